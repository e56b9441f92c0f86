/* linear: sends each matmul to the kernel that is fastest for it. */
#include <limits.h>

#include "kernels/cuda/matmul/dequantize.cuh"
#include "kernels/cuda/matmul/few_tokens.cuh"
#include "kernels/cuda/matmul/linear_wgmma.cuh"
#include "kernels/cuda/matmul/linear_wgmma_quantized.cuh"
#include "kernels/cuda/operations.h"

enum { THREADS = 256, MAX_GRID_Y = 65535 };

/* out[t][o] = bias[o]. cuBLAS then adds the matmul to it, so that the sum is rounded once. */
template <class T, class B>
static __global__ void spread_bias_kernel(T *out, int64_t out_stride, const B *__restrict__ bias, int64_t out_features,
                                          int num_tokens)
{
    const int64_t o = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (o >= out_features) return;
    const T value = from_float<T>(to_float(bias[o]));
    for (int64_t t = blockIdx.y; t < num_tokens; t += gridDim.y) out[t * out_stride + o] = value;
}

static void spread_bias(struct backend *b, const struct linear_args *args)
{
    const struct weight *w = args->weight;
    const dim3 grid((unsigned)cuda_div_up(w->out_features, THREADS),
                    args->num_tokens < MAX_GRID_Y ? args->num_tokens : MAX_GRID_Y);
    cuda_dispatch(b, "linear", args->out_dtype, [&](auto zero) {
        using T = decltype(zero);
        cuda_dispatch(b, "linear", w->bias_dtype, [&](auto bias_zero) {
            using B = decltype(bias_zero);
            spread_bias_kernel<<<grid, THREADS, 0, cuda_stream(b, NULL)>>>(
                (T *)args->out, args->out_stride, (const B *)w->bias, w->out_features, args->num_tokens);
        });
    });
}

/* By quire's own kernels, if they take it and cuBLAS is not faster. */
static bool run_own_kernel(struct backend *b, const struct linear_args *args)
{
    struct matmul m;
    struct few_tokens_plan plan;
    if (!matmul_of(args, MATMUL_STORE, &m)) return false;
    if (!few_tokens_is_best(&m) && linear_wgmma(b, "linear", &m)) return true;
    if (!few_tokens_plan(cuda_state(b), &m, &plan) || plan.splits > 1) return false;
    few_tokens_launch(b, "linear", &m, &plan);
    return true;
}

/* Whether cuBLAS takes it: one type, sizes that fit into an int, and a bias that `out` can hold exactly. */
static bool is_for_cublas(const struct linear_args *args)
{
    const struct weight *w = args->weight;
    const bool is_float = args->out_dtype == DTYPE_FLOAT32;
    return weight_dtype(w) == args->dtype && (args->out_dtype == args->dtype || is_float) &&
           (!w->bias || is_float || w->bias_dtype == args->out_dtype) && w->out_features <= INT_MAX &&
           w->in_features <= INT_MAX && args->x_stride <= INT_MAX && args->out_stride <= INT_MAX;
}

static void run_cublas(struct backend *b, const struct linear_args *args)
{
    const struct weight *w = args->weight;
    const struct cublas_matmul matmul = {args->out,       args->out_stride, args->out_dtype, args->x,
                                         args->x_stride,  w->data,          args->dtype,     args->num_tokens,
                                         w->out_features, w->in_features,   w->bias != NULL};
    if (w->bias) spread_bias(b, args);
    const char *wrong = cublas_run(cuda_state(b)->cublas, &matmul, cuda_stream(b, NULL));
    if (wrong)
        cuda_fail(b, "linear failed on %s: cuBLAS says %s for %d tokens, %lld x %lld weights, %s", b->name, wrong,
                  args->num_tokens, (long long)w->out_features, (long long)w->in_features, dtype_name(args->dtype));
    cuda_check_launch(b, "linear");
}

static void linear_of_floats(struct backend *b, const struct linear_args *args)
{
    if (run_own_kernel(b, args)) return;
    if (is_for_cublas(args)) {
        run_cublas(b, args);
    } else {
        cuda_linear_mixed(b, args);
    }
}

/* The same for output features first, ..., first + rows - 1 of a quantized weight, whose elements become x's type in
 * `floats`. */
static void linear_of_rows(struct backend *b, const struct linear_args *args, int64_t first, int64_t rows, void *floats)
{
    const struct weight *w = args->weight;
    struct weight slab = {};
    slab.format = weight_format_of(args->dtype);
    slab.out_features = rows;
    slab.in_features = w->in_features;
    slab.data = floats;
    slab.bias = w->bias ? (const uint8_t *)w->bias + first * dtype_size(w->bias_dtype) : NULL;
    slab.bias_dtype = w->bias_dtype;
    struct linear_args part = *args;
    part.weight = &slab;
    part.out = (uint8_t *)args->out + first * dtype_size(args->out_dtype);
    dequantize_rows(b, w, first, rows, args->dtype, floats);
    linear_of_floats(b, &part);
}

/* Any quantized weight, as many rows at a time as the workspace holds. */
static void linear_dequantized(struct backend *b, const struct linear_args *args)
{
    const struct weight *w = args->weight;
    const struct cuda_region *region = &cuda_state(b)->regions[CUDA_USER_DEQUANTIZE];
    const int64_t row_bytes = w->in_features * dtype_size(args->dtype);
    int64_t most = region->data ? region->bytes / (row_bytes > 0 ? row_bytes : 1) : 0;
    if (most > 8) most -= most % 8; /* so that the rows of `out` stay aligned */
    if (most == 0)
        return cuda_fail(b,
                         "linear: the workspace has no room for a row of a quantized weight with %lld input features",
                         (long long)w->in_features);
    for (int64_t first = 0; first < w->out_features; first += most)
        linear_of_rows(b, args, first, w->out_features - first < most ? w->out_features - first : most, region->data);
}

void cuda_linear(struct backend *b, const struct linear_args *args)
{
    if (args->num_tokens <= 0 || args->weight->out_features <= 0) return;
    struct matmul m;
    if (args->quantized_x) {
        cuda_linear_quantized_rows(b, args);
    } else if (weight_is_quantized(args->weight)) {
        if (matmul_of(args, MATMUL_STORE, &m) && linear_decoding(b, "linear", &m)) return;
        linear_dequantized(b, args);
    } else {
        linear_of_floats(b, args);
    }
}
