/* What follows lm_head. scale_logits: a multiplier (Cohere's logit_scale, for example) and a soft cap (Gemma 2's).
 * scatter_logits: the logits of a head's own vocabulary (EAGLE-3) by the ids of its target. */
#include <math_constants.h>

#include "kernels/cuda/operations.h"
#include "kernels/cuda/state.cuh"

enum { THREADS = 256, BLOCKS_PER_SM = 8 };

static __device__ __forceinline__ float scaled(float x, float multiplier, float soft_cap)
{
    x *= multiplier;
    return soft_cap > 0 ? soft_cap * tanhf(x / soft_cap) : x;
}

/* The logits are contiguous: `count` of them, as pieces of N. */
template <int N>
static __global__ void __launch_bounds__(THREADS)
    scale_logits_kernel(float *logits, int64_t count, float multiplier, float soft_cap)
{
    const int64_t step = (int64_t)gridDim.x * THREADS;
    piece<float, N> *pieces = (piece<float, N> *)logits;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count / N; i += step) {
        piece<float, N> p = pieces[i];
#pragma unroll
        for (int j = 0; j < N; j++) p.values[j] = scaled(p.values[j], multiplier, soft_cap);
        pieces[i] = p;
    }
}

void cuda_scale_logits(struct backend *b, const struct scale_logits_args *args)
{
    const int64_t count = (int64_t)args->num_samples * args->vocab_size;
    if (count <= 0) return;
    const struct cuda_state *s = cuda_use(b);
    const bool vectors = count % 4 == 0 && cuda_is_aligned(args->logits);
    const int64_t blocks = cuda_div_up(vectors ? count / 4 : count, THREADS), most = BLOCKS_PER_SM * s->num_sms;
    auto *kernel = vectors ? scale_logits_kernel<4> : scale_logits_kernel<1>;
    kernel<<<(unsigned)(blocks < most ? blocks : most), THREADS, 0, s->stream>>>(args->logits, count, args->multiplier,
                                                                                 args->soft_cap);
    cuda_check_launch(b, "scale_logits");
}

/* Grid: (pieces of a row, rows). */
static __global__ void __launch_bounds__(THREADS) fill_kernel(scatter_logits_args args)
{
    float *out = args.out + (int64_t)blockIdx.y * args.vocab_size;
    for (int32_t i = blockIdx.x * THREADS + threadIdx.x; i < args.vocab_size; i += gridDim.x * THREADS)
        out[i] = -CUDART_INF_F;
}

static __global__ void __launch_bounds__(THREADS) scatter_kernel(scatter_logits_args args)
{
    const int64_t row = blockIdx.y;
    for (int32_t i = blockIdx.x * THREADS + threadIdx.x; i < args.num_ids; i += gridDim.x * THREADS)
        args.out[row * args.vocab_size + args.ids[i]] = args.logits[row * args.num_ids + i];
}

static dim3 scatter_grid(int32_t size, int32_t num_rows)
{
    enum { PER_THREAD = 4 };
    return dim3((unsigned)cuda_div_up(size, PER_THREAD * THREADS), (unsigned)num_rows);
}

void cuda_scatter_logits(struct backend *b, const struct scatter_logits_args *args)
{
    if (args->num_samples <= 0) return;
    const struct cuda_state *s = cuda_use(b);
    fill_kernel<<<scatter_grid(args->vocab_size, args->num_samples), THREADS, 0, s->stream>>>(*args);
    scatter_kernel<<<scatter_grid(args->num_ids, args->num_samples), THREADS, 0, s->stream>>>(*args);
    cuda_check_launch(b, "scatter_logits");
}
