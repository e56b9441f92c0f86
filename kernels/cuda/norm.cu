/* RMSNorm (Zhang and Sennrich, 2019), and the same after adding to the residual. One block a token. What a thread
 * reads for the sum of squares it keeps in registers for the result, as far as KEPT pieces go. Their gains are read
 * before: a norm of few tokens is all waiting for memory, and gains, which no kernel writes, come from afar and at a
 * time when the next product's first weights are on their way too. */
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/operations.h"

enum { MAX_THREADS = 512, KEPT = 2 };

static __device__ __forceinline__ float sum_of_block(float x)
{
    __shared__ float of_warps[MAX_THREADS / 32];
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(~0u, x, offset);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
    __syncthreads();
    x = threadIdx.x % 32 < blockDim.x / 32 ? of_warps[threadIdx.x % 32] : 0;
    for (int offset = MAX_THREADS / 64; offset > 0; offset /= 2) x += __shfl_xor_sync(~0u, x, offset);
    return __shfl_sync(~0u, x, 0);
}

/* N gains as they lie there. They are converted where they are used, so that nothing waits for them before. */
template <int N> union raw_gains {
    piece<float, N> floats;
    piece<__half, N> halves;
    piece<__nv_bfloat16, N> bfloats;
};

/* Piece i. The type is a run-time value: a branch that a whole grid takes alike costs nothing here. */
template <int N> static __device__ __forceinline__ raw_gains<N> load_gains(const void *gain, enum dtype dtype, int i)
{
    raw_gains<N> raw;
    if (dtype == DTYPE_FLOAT32)
        raw.floats = ((const piece<float, N> *)gain)[i];
    else
        raw.halves = ((const piece<__half, N> *)gain)[i];
    return raw;
}

template <int N>
static __device__ __forceinline__ void convert_gains(float (&out)[N], const raw_gains<N> &raw, enum dtype dtype)
{
#pragma unroll
    for (int j = 0; j < N; j++)
        out[j] = dtype == DTYPE_FLOAT32   ? raw.floats.values[j]
                 : dtype == DTYPE_FLOAT16 ? to_float(raw.halves.values[j])
                                          : to_float(raw.bfloats.values[j]);
}

/* x at i, after adding it to the residual (rounded to T, as the residual is kept) where there is one. */
template <class T, int N>
static __device__ __forceinline__ piece<T, N> load_piece(const piece<T, N> *x, piece<T, N> *residual, int i, float *sum)
{
    piece<T, N> p = x[i];
    if (residual) {
        const piece<T, N> r = residual[i];
#pragma unroll
        for (int j = 0; j < N; j++) p.values[j] = from_float<T>(to_float(r.values[j]) + to_float(p.values[j]));
        residual[i] = p;
    }
#pragma unroll
    for (int j = 0; j < N; j++) *sum += to_float(p.values[j]) * to_float(p.values[j]);
    return p;
}

template <class T, int N>
static __device__ __forceinline__ void store_piece(piece<T, N> *out, piece<T, N> p, const raw_gains<N> &raw,
                                                   enum dtype gain_dtype, float factor, int i)
{
    float gains[N];
    convert_gains<N>(gains, raw, gain_dtype);
#pragma unroll
    for (int j = 0; j < N; j++) p.values[j] = from_float<T>(to_float(p.values[j]) * factor * gains[j]);
    out[i] = p;
}

/* out may be x: a thread writes what it alone has read. size is a multiple of N. */
template <class T, int N>
static __global__ void __launch_bounds__(MAX_THREADS)
    rms_norm_kernel(T *out, const T *x, T *residual, const void *gain, enum dtype gain_dtype, float eps, int size)
{
    const int pieces = size / N, step = blockDim.x;
    piece<T, N> kept[KEPT];
    raw_gains<N> gains[KEPT];
    float sum = 0;
    let_next_start();
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        if ((int)threadIdx.x + k * step < pieces) gains[k] = load_gains<N>(gain, gain_dtype, threadIdx.x + k * step);
    wait_for_previous();
    const int64_t row = (int64_t)blockIdx.x * size;
    const piece<T, N> *from = (const piece<T, N> *)(x + row);
    piece<T, N> *added = residual ? (piece<T, N> *)(residual + row) : NULL, *to = (piece<T, N> *)(out + row);
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        if ((int)threadIdx.x + k * step < pieces) kept[k] = load_piece<T, N>(from, added, threadIdx.x + k * step, &sum);
    for (int i = threadIdx.x + KEPT * step; i < pieces; i += step) load_piece<T, N>(from, added, i, &sum);
    const float factor = rsqrtf(sum_of_block(sum) / (float)size + eps);
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        if ((int)threadIdx.x + k * step < pieces)
            store_piece<T, N>(to, kept[k], gains[k], gain_dtype, factor, threadIdx.x + k * step);
    for (int i = threadIdx.x + KEPT * step; i < pieces; i += step)
        store_piece<T, N>(to, added ? added[i] : from[i], load_gains<N>(gain, gain_dtype, i), gain_dtype, factor, i);
}

/* One token alone: as many threads as it has pieces. Tokens enough for every multiprocessor: fewer threads with KEPT
 * pieces each, which keeps more reads under way. */
static int threads_for(const struct cuda_state *s, int64_t pieces, int32_t num_tokens)
{
    const int64_t wanted = num_tokens > s->num_sms ? cuda_div_up(pieces, KEPT) : pieces;
    return wanted >= MAX_THREADS ? MAX_THREADS : (int)cuda_div_up(wanted, 32) * 32;
}

static void norm(struct backend *b, const char *operation, void *out, const void *x, void *residual, const void *gain,
                 enum dtype gain_dtype, float eps, int32_t num_tokens, int32_t size, enum dtype dtype,
                 backend_stream stream)
{
    if (num_tokens <= 0 || size <= 0) return;
    cudaStream_t on = cuda_stream(b, stream);
    cuda_dispatch(b, operation, dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = 16 / sizeof(T);
        const bool vectors = size % N == 0 && cuda_is_aligned(out) && cuda_is_aligned(x) &&
                             (!residual || cuda_is_aligned(residual)) &&
                             (uintptr_t)gain % (N * dtype_size(gain_dtype)) == 0;
        const int64_t pieces = vectors ? size / N : size;
        const int threads = threads_for(cuda_state(b), pieces, num_tokens);
        cuda_launch_dependent(cuda_state(b), on, vectors ? rms_norm_kernel<T, N> : rms_norm_kernel<T, 1>, num_tokens,
                              threads, 0, 1, (T *)out, (const T *)x, (T *)residual, gain, gain_dtype, eps, size);
    });
    cuda_check_launch(b, operation);
}

void cuda_rms_norm(struct backend *b, void *out, const void *x, const void *gain, enum dtype gain_dtype, float eps,
                   int32_t num_tokens, int32_t size, enum dtype dtype, backend_stream stream)
{
    norm(b, "rms_norm", out, x, NULL, gain, gain_dtype, eps, num_tokens, size, dtype, stream);
}

void cuda_fused_add_rms_norm(struct backend *b, void *out, const void *x, void *residual, const void *gain,
                             enum dtype gain_dtype, float eps, int32_t num_tokens, int32_t size, enum dtype dtype,
                             backend_stream stream)
{
    norm(b, "fused_add_rms_norm", out, x, residual, gain, gain_dtype, eps, num_tokens, size, dtype, stream);
}
