/* linear: asks the planner (plan.h) for a kernel, and runs it. */
#include "kernels/cuda/matmul/dequantize.cuh"
#include "kernels/cuda/matmul/kernels.cuh"
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

/* linear for output features first, ..., first + rows - 1 of a quantized weight, whose elements become x's type in
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
    cuda_linear(b, &part);
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

/* A part after the other: its x in the order of the weight's columns, and then the kernel that is best for so many
 * tokens. */
static void run_in_order(struct backend *b, const char *operation, const struct matmul *m)
{
    const struct matmul_device device = matmul_device_of(b);
    const int32_t tokens = matmul_part_tokens(&device, m);
    for (int32_t first = 0; first < m->num_tokens; first += tokens) {
        struct matmul x = *m;
        x.num_tokens = m->num_tokens - first < tokens ? m->num_tokens - first : tokens;
        x.x = (const uint8_t *)m->x + first * m->x_stride * dtype_size(m->dtype);
        const struct matmul part = matmul_ordered_part(&device, m, first, x.num_tokens);
        input_order_gather(b, operation, &x, (void *)part.x);
        matmul_run(b, operation, matmul_plan_quantized(&device, &part), &part);
    }
}

static matmul_function *function_of(enum matmul_kernel kernel, enum weight_format format)
{
    switch (kernel) {
    case MATMUL_FEW_TOKENS:
        return few_tokens;
    case MATMUL_CHAIN:
        return matmul_chain_add;
    case MATMUL_LINEAR_WGMMA:
        return linear_wgmma;
    case MATMUL_FEW_TOKENS_WGMMA:
        return few_tokens_wgmma;
    case MATMUL_FEW_TOKENS_QUANTIZED:
        return few_tokens_quantized;
    case MATMUL_LINEAR_WGMMA_INT4:
        return linear_wgmma_int4;
    case MATMUL_LINEAR_WGMMA_QUANTIZED:
        return format == WEIGHT_MXFP4 ? linear_wgmma_mxfp4 : linear_wgmma_quantized;
    case MATMUL_ROWS_WGMMA:
        return format == WEIGHT_MXFP4 ? linear_wgmma_mxfp4_rows : linear_wgmma_rows;
    default:
        return linear_mma_quantized;
    }
}

void matmul_run(struct backend *b, const char *operation, enum matmul_kernel kernel, const struct matmul *m)
{
    if (kernel == MATMUL_IN_ORDER) return run_in_order(b, operation, m);
    if (!function_of(kernel, m->format)(b, operation, m))
        cuda_fail(b, "%s failed on %s: the driver cannot describe %lld x %lld weights to the GPU's copy engine",
                  operation, b->name, (long long)m->out_features, (long long)m->in_features);
}

void cuda_linear(struct backend *b, const struct linear_args *args)
{
    if (args->num_tokens <= 0 || args->weight->out_features <= 0) return;
    const struct matmul_device device = matmul_device_of(b);
    const struct matmul_question q = matmul_question_of(args, MATMUL_STORE, NULL, NULL, false);
    const enum matmul_kernel kernel = matmul_plan(&device, &q);
    if (args->quantized_x && args->left_out) *args->left_out = left_out_scales();
    switch (kernel) {
    case MATMUL_CUBLAS:
        return run_cublas(b, args);
    case MATMUL_LINEAR_MIXED:
        return cuda_linear_mixed(b, args);
    case MATMUL_DEQUANTIZE:
        return linear_dequantized(b, args);
    case MATMUL_CUBLAS_LT:
        return cuda_linear_cublas_lt(b, args);
    default:
        return matmul_run(b, "linear", kernel, &q.matmul);
    }
}
