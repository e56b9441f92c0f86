/* all_reduce_add_norm of few tokens: a block for each token, x in words (peers.cuh). What a thread needs of the gains
 * and of the residual stream is read while the words are on their way. It rounds where all_reduce and
 * fused_add_rms_norm do (norm.cu). */
#include "kernels/cuda/collective/peers.cuh"
#include "kernels/cuda/gains.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/warp.cuh"

using namespace collective;

enum { KEPT = 4 /* pieces of a thread */ };

template <class T> struct reduce_call {
    struct peers peers;
    T *out;
    const T *x;
    T *residual;
    struct norm_params norm;
    float multiplier;
    int pieces; /* of a token */
};

union piece_words {
    uint4 all;
    uint2 words[2];
};

/* The sum of a piece of x, which begins with that word, over all ranks. */
template <class T, int N>
static __device__ __forceinline__ void receive_sum(float (&sum)[N], const peers &p, uint32_t call, int word,
                                                   const piece_words &mine)
{
    for (int k = 0; k < p.count; k++) {
        piece_words part = mine;
        if (k != p.rank) part.all = receive_two(p, call, k, word);
        const piece<T, N> x = *(const piece<T, N> *)&part;
#pragma unroll
        for (int j = 0; j < N; j++) sum[j] = k == 0 ? to_float(x.values[j]) : sum[j] + to_float(x.values[j]);
    }
}

/* The residual stream after the addition, whose squares are added to *squares. */
template <class T, int N>
static __device__ __forceinline__ piece<T, N> add_residual(const float (&sum)[N], const piece<T, N> &residual,
                                                           float multiplier, float *squares)
{
    piece<T, N> p;
#pragma unroll
    for (int j = 0; j < N; j++) {
        const float x = to_float(from_float<T>(sum[j]));
        p.values[j] = from_float<T>(fmaf(multiplier, x, to_float(residual.values[j])));
        *squares += to_float(p.values[j]) * to_float(p.values[j]);
    }
    return p;
}

template <class T>
static __global__ void __launch_bounds__(THREADS) reduce_add_norm_kernel(const __grid_constant__ reduce_call<T> c)
{
    constexpr int N = 16 / sizeof(T);
    __shared__ struct warp_sums sums;
    const int64_t row = (int64_t)blockIdx.x * c.pieces;
    piece_words mine[KEPT];
    piece<T, N> kept[KEPT];
    raw_gains<N> gains[KEPT];
    float squares = 0;
    let_next_start();
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int i = threadIdx.x + k * blockDim.x;
        if (i < c.pieces) gains[k] = load_gains<N>(c.norm.gain, c.norm.gain_dtype, i);
    }
    wait_for_previous();
    const uint32_t call = begin_call(c.peers);
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int i = threadIdx.x + k * blockDim.x;
        if (i < c.pieces) mine[k].all = ((const uint4 *)c.x)[row + i];
    }
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int i = threadIdx.x + k * blockDim.x;
        if (i >= c.pieces) continue;
        send(c.peers, call, (int)(2 * (row + i)), mine[k].words[0]);
        send(c.peers, call, (int)(2 * (row + i)) + 1, mine[k].words[1]);
        kept[k] = ((const piece<T, N> *)c.residual)[row + i];
    }
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int i = threadIdx.x + k * blockDim.x;
        if (i >= c.pieces) continue;
        float sum[N];
        receive_sum<T, N>(sum, c.peers, call, (int)(2 * (row + i)), mine[k]);
        kept[k] = add_residual<T, N>(sum, kept[k], c.multiplier, &squares);
        ((piece<T, N> *)c.residual)[row + i] = kept[k];
    }
    const float factor = rsqrtf(block_sum(squares, &sums) / (float)(c.pieces * N) + c.norm.eps);
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int i = threadIdx.x + k * blockDim.x;
        if (i >= c.pieces) continue;
        apply_gains(kept[k], factor, gains[k], c.norm.gain_dtype);
        ((piece<T, N> *)c.out)[row + i] = kept[k];
    }
    end_call(c.peers, call);
}

/* What the kernel takes follows from the model and num_tokens, because activations are aligned. */
static bool takes(const struct cuda_state *s, const struct fused_add_rms_norm_args *args)
{
    const int64_t row = (int64_t)args->size * dtype_size(args->dtype);
    const bool aligned =
        row % 16 == 0 && cuda_is_aligned(args->x) && cuda_is_aligned(args->out) && cuda_is_aligned(args->residual);
    const bool plain = args->out && !args->quantized && !args->post_norm && !args->x_scales.of_tokens &&
                       args->sum_multiplier == 1 && args->norm.type == NORM_RMS;
    return plain && aligned && row <= (int64_t)KEPT * THREADS * 16 && args->num_tokens <= MAX_BLOCKS &&
           args->num_tokens * row <= cuda_most_in_words(s);
}

bool cuda_all_reduce_add_norm(struct backend *b, const struct fused_add_rms_norm_args *args)
{
    if (!takes(cuda_state(b), args)) return false;
    bool launched = false;
    const struct cuda_state *s = cuda_use(b);
    if (args->num_tokens <= 0 || args->size <= 0) return true;
    cuda_dispatch(b, "all_reduce_add_norm", args->dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = 16 / sizeof(T);
        if (!gains_are_aligned<N>(&args->norm)) return;
        const reduce_call<T> call = {cuda_peers(s), (T *)args->out,   (const T *)args->x, (T *)args->residual,
                                     args->norm,    args->multiplier, args->size / N};
        cuda_launch_dependent(s, reduce_add_norm_kernel<T>,
                              {dim3((unsigned)args->num_tokens), cuda_threads_for(call.pieces, THREADS)}, call);
        launched = true;
    });
    cuda_check_launch(b, "all_reduce_add_norm");
    return launched;
}

template <class T> static bool load(struct backend *b)
{
    struct cudaFuncAttributes attributes;
    return cuda_check(b, "all_reduce_add_norm", cudaFuncGetAttributes(&attributes, reduce_add_norm_kernel<T>));
}

bool cuda_load_all_reduce_add_norm(struct backend *b)
{
    return load<float>(b) && load<__half>(b) && load<__nv_bfloat16>(b);
}
