/* Matmuls of quantized rows by a weight in FP8 (W8A8) with cuBLASLt, which gets those that the planner (plan.h) does
 * not send to linear_wgmma. It has many kernels for a matmul with a single scale, but one for a scale of each token and
 * output feature, whose tiles are large, and which older versions and other GPUs lack. So up to some hundreds of tokens
 * the scales are left out, and multiplied by the operation that reads the result, or else by finish_kernel. */
#include <math.h>

#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/matmul/kernels.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/quantize.cuh"

/* Up to MAX_LEFT_OUT cuBLASLt is faster without scales if they cost nothing later, up to MAX_FINISH if finish_kernel
 * has to multiply by them. */
enum { MAX_FINISH = 160, MAX_LEFT_OUT = 448, THREADS = 256 };

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
    bool blocks;
    if (!matmul_is_for_cublas_lt(w, dtype, &blocks)) return false;
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
    return true;
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
    const struct matmul_device device = matmul_device_of(b);
    if (!matmul_wants_quantized_rows(&device, w, num_tokens, dtype) ||
        !describe(w, num_tokens, dtype, w->out_features, &m))
        return false;
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

void cuda_linear_cublas_lt(struct backend *b, const struct linear_args *args)
{
    const struct weight *w = args->weight;
    struct cublas_lt_matmul m;
    int status = -1;
    if (args->out_dtype == args->dtype && cuda_is_aligned(args->out) && args->out_stride % 8 == 0 &&
        cuda_state(b)->cublas_lt && describe(w, args->num_tokens, args->dtype, args->out_stride, &m))
        status = run(b, args, &m);
    if (status)
        cuda_fail(b, "linear failed on %s: cuBLASLt's status is %d for %d quantized tokens, %lld x %lld weights",
                  b->name, status, args->num_tokens, (long long)w->out_features, (long long)w->in_features);
    cuda_check_launch(b, "linear");
}
