/* Matmuls of quantized rows by a weight in FP8 (W8A8). Few tokens go to linear_wgmma, on Hopper; all others to
 * cuBLASLt. It has many kernels for a matmul with a single scale, but one for a scale of each token and output feature,
 * whose tiles are large, and which older versions and other GPUs lack. So up to some hundreds of tokens the scales are
 * left out, and multiplied by the operation that reads the result, or else by finish_kernel. */
#include <math.h>

#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/matmul/few_tokens_wgmma.cuh"
#include "kernels/cuda/matmul/linear_wgmma.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/quantize.cuh"

/* Up to MAX_DECODED tokens, or FEW_TOKENS_WGMMA_MAX if linear_wgmma takes more, x keeps its 16 bits, in as little time.
 * Up to MAX_LEFT_OUT cuBLASLt is faster without scales if they cost nothing later, up to MAX_FINISH if finish_kernel
 * has to multiply by them. */
enum { MAX_DECODED = 16, MAX_FINISH = 160, MAX_LEFT_OUT = 448, THREADS = 256 };

/* out = out * scales + bias. Grid: x the token, y the part of its elements. */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    finish_kernel(T *out, int64_t out_stride, const left_out_scales scales, const T *__restrict__ bias, int size)
{
    const int i = blockIdx.y * THREADS + threadIdx.x;
    let_next_start();
    wait_for_previous();
    if (i * N >= size) return;
    piece<T, N> *at = (piece<T, N> *)(out + blockIdx.x * out_stride) + i, p = *at;
    float values[N];
    load_scaled(values, p, scales, i);
#pragma unroll
    for (int j = 0; j < N; j++) p.values[j] = from_float<T>(values[j] + (bias ? to_float(bias[i * N + j]) : 0));
    *at = p;
}

static void finish(struct backend *b, const struct linear_args *args, const struct left_out_scales *scales)
{
    const int size = (int)args->weight->out_features;
    cuda_dispatch(b, "linear", args->dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = 16 / sizeof(T);
        const dim3 grid(args->num_tokens, (unsigned)cuda_div_up(size / N, THREADS));
        cuda_launch_dependent(cuda_use(b), finish_kernel<T, N>, {grid, THREADS}, (T *)args->out, args->out_stride,
                              *scales, (const T *)args->weight->bias, size);
    });
}

/* What cuBLASLt is asked for; out, x and its scales are missing. False: none of its matmuls. */
static bool describe(const struct weight *w, int32_t num_tokens, enum dtype dtype, int64_t out_stride,
                     struct cublas_lt_matmul *m)
{
    const bool rows = w->scale_rows == 1 && w->group_size == w->in_features;
    const bool blocks = w->scale_rows == QUANTIZE_GROUP && w->group_size == QUANTIZE_GROUP &&
                        w->in_features % (4 * QUANTIZE_GROUP) == 0; /* rows of scales are aligned to 16 bytes */
    *m = {};
    m->scaling = blocks ? CUBLAS_LT_BLOCKS : CUBLAS_LT_ROWS;
    m->num_tokens = blocks ? quantized_rows_padded(num_tokens) : num_tokens;
    m->out_features = w->out_features;
    m->in_features = w->in_features;
    m->out_stride = out_stride;
    m->dtype = dtype;
    m->weight = w->data;
    m->weight_scales = m->x_scales = (const float *)w->scales;
    m->bias = w->bias;
    return w->format == WEIGHT_FP8 && (rows || blocks) && !w->input_order && w->scale_dtype == DTYPE_FLOAT32 &&
           (dtype == DTYPE_FLOAT16 || dtype == DTYPE_BFLOAT16) && (!w->bias || w->bias_dtype == dtype) &&
           w->in_features % 16 == 0 && w->out_features % 16 == 0 && cuda_is_aligned(w->data) &&
           cuda_is_aligned(w->scales);
}

/* The same matmul without its scales and bias. The largest sums have to fit into float16, which gets a scale that is a
 * power of two. */
static struct cublas_lt_matmul without_scales(const struct cublas_lt_matmul *m)
{
    struct cublas_lt_matmul unscaled = *m;
    unscaled.scaling = CUBLAS_LT_SCALAR;
    unscaled.scale = m->dtype == DTYPE_FLOAT16 ? exp2f(-ceilf(log2f(448.0f * 448 * m->in_features / 65504))) : 1;
    unscaled.bias = NULL;
    return unscaled;
}

bool cuda_takes_quantized_rows(struct backend *b, const struct weight *w, int32_t num_tokens, enum dtype dtype)
{
    struct cublas_lt *lt = cuda_state(b)->cublas_lt;
    struct cublas_lt_matmul m;
    if (!w->quantize_x || !describe(w, num_tokens, dtype, w->out_features, &m)) return false;
    const bool has_own = cuda_state(b)->has_wgmma && m.scaling == CUBLAS_LT_ROWS;
    if (num_tokens <= (has_own ? (int)FEW_TOKENS_WGMMA_MAX : (int)MAX_DECODED)) return false;
    if (m.scaling == CUBLAS_LT_BLOCKS) return cublas_lt_takes(lt, &m);
    const struct cublas_lt_matmul unscaled = without_scales(&m);
    return cublas_lt_takes(lt, &unscaled);
}

/* Starts m; then what is left to do. */
static int run(struct backend *b, const struct linear_args *args, struct cublas_lt_matmul *m)
{
    const struct cuda_state *s = cuda_use(b);
    const bool can_leave_out = args->left_out && !m->bias;
    const bool is_faster = m->num_tokens <= (can_leave_out ? MAX_LEFT_OUT : MAX_FINISH);
    struct left_out_scales scales = {};
    m->out = args->out;
    m->x = args->quantized_x->data;
    m->x_scales = args->quantized_x->scales;
    if (m->scaling == CUBLAS_LT_ROWS && (is_faster || !cublas_lt_takes(s->cublas_lt, m))) {
        *m = without_scales(m);
        scales = {m->x_scales, m->weight_scales, 1 / m->scale};
    }
    const int status = cublas_lt_run(s->cublas_lt, m, s->regions[CUDA_USER_CUBLAS].data, s->stream);
    if (scales.of_tokens && !can_leave_out) finish(b, args, &scales);
    if (can_leave_out) *args->left_out = scales;
    return status;
}

void cuda_linear_quantized_rows(struct backend *b, const struct linear_args *args)
{
    const struct weight *w = args->weight;
    struct cublas_lt_matmul m;
    struct matmul own;
    int status = -1;
    if (args->left_out) *args->left_out = left_out_scales();
    if (matmul_of(args, MATMUL_STORE, &own) && linear_wgmma_quantized_rows(b, "linear", &own, args->quantized_x))
        return;
    if (args->out_dtype == args->dtype && cuda_is_aligned(args->out) && args->out_stride % 8 == 0 &&
        cuda_state(b)->cublas_lt && describe(w, args->num_tokens, args->dtype, args->out_stride, &m))
        status = run(b, args, &m);
    if (status)
        cuda_fail(b, "linear failed on %s: cuBLASLt's status is %d for %d quantized tokens, %lld x %lld weights",
                  b->name, status, args->num_tokens, (long long)w->out_features, (long long)w->in_features);
    cuda_check_launch(b, "linear");
}
