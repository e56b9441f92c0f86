/* RMSNorm (Zhang and Sennrich, 2019), with or without an addition to the residual stream before it. One block a token.
 *
 * A thread keeps what it reads for the sum of squares in registers, up to KEPT pieces, so that it need not read them
 * again for the result. The gains are read first: the norm of a few tokens spends its time waiting for memory, and no
 * kernel writes the gains, so they can be loaded while the previous kernel still runs. */
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/gains.cuh"
#include "kernels/cuda/operations.h"

enum { MAX_THREADS = 512, KEPT = 2 };

template <class T> struct norm_call {
    T *out;
    const T *x;
    T *residual;
    int64_t out_stride, x_stride;
    struct norm_params norm;
    float multiplier; /* of x, where there is a residual */
    int size;
};

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

/* Piece i of x; with a residual, of the residual after the addition, rounded to T as it is stored. */
template <class T, int N, bool ADD>
static __device__ __forceinline__ piece<T, N> load_piece(const piece<T, N> *x, piece<T, N> *residual, float multiplier,
                                                         int i, float *sum)
{
    piece<T, N> p = x[i];
    if constexpr (ADD) {
        const piece<T, N> r = residual[i];
#pragma unroll
        for (int j = 0; j < N; j++)
            p.values[j] = from_float<T>(fmaf(multiplier, to_float(p.values[j]), to_float(r.values[j])));
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
    apply_gains(p, factor, raw, gain_dtype);
    out[i] = p;
}

/* ADD: there is a residual, and all rows are contiguous. out may be x: a thread writes what it alone has read. size and
 * the strides are multiples of N. */
template <class T, int N, bool ADD>
static __global__ void __launch_bounds__(MAX_THREADS) rms_norm_kernel(const __grid_constant__ norm_call<T> call)
{
    const int pieces = call.size / N, step = blockDim.x;
    const void *gain = call.norm.gain;
    const enum dtype gain_dtype = call.norm.gain_dtype;
    piece<T, N> kept[KEPT];
    raw_gains<N> gains[KEPT];
    float sum = 0;
    let_next_start();
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        if ((int)threadIdx.x + k * step < pieces) gains[k] = load_gains<N>(gain, gain_dtype, threadIdx.x + k * step);
    wait_for_previous();
    const int64_t row = (int64_t)blockIdx.x * call.size;
    const piece<T, N> *from = (const piece<T, N> *)(call.x + (ADD ? row : blockIdx.x * call.x_stride));
    piece<T, N> *added = (piece<T, N> *)(call.residual + row);
    piece<T, N> *to = (piece<T, N> *)(call.out + (ADD ? row : blockIdx.x * call.out_stride));
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        if ((int)threadIdx.x + k * step < pieces)
            kept[k] = load_piece<T, N, ADD>(from, added, call.multiplier, threadIdx.x + k * step, &sum);
    for (int i = threadIdx.x + KEPT * step; i < pieces; i += step)
        load_piece<T, N, ADD>(from, added, call.multiplier, i, &sum);
    const float factor = rsqrtf(sum_of_block(sum) / (float)call.size + call.norm.eps);
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        if ((int)threadIdx.x + k * step < pieces)
            store_piece<T, N>(to, kept[k], gains[k], gain_dtype, factor, threadIdx.x + k * step);
    for (int i = threadIdx.x + KEPT * step; i < pieces; i += step)
        store_piece<T, N>(to, ADD ? added[i] : from[i], load_gains<N>(gain, gain_dtype, i), gain_dtype, factor, i);
}

/* Few tokens: as many threads as a token has pieces. Enough tokens for every multiprocessor: fewer threads with KEPT
 * pieces each, which keeps more reads in flight. */
static int threads_for(const struct cuda_state *s, int64_t pieces, int32_t num_tokens)
{
    return cuda_threads_for(num_tokens > s->num_sms ? cuda_div_up(pieces, KEPT) : pieces, MAX_THREADS);
}

/* rms_norm; with ADD fused_add_rms_norm. */
template <bool ADD>
static void norm(struct backend *b, const char *operation, const struct rms_norm_args *args, void *residual,
                 float multiplier)
{
    if (args->num_tokens <= 0 || args->size <= 0) return;
    const struct cuda_state *s = cuda_use(b);
    cuda_dispatch(b, operation, args->dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = 16 / sizeof(T);
        const norm_call<T> call = {(T *)args->out, (const T *)args->x, (T *)residual, args->out_stride,
                                   args->x_stride, args->norm,         multiplier,    args->size};
        const bool vectors = args->size % N == 0 && args->out_stride % N == 0 && args->x_stride % N == 0 &&
                             cuda_is_aligned(args->out) && cuda_is_aligned(args->x) && cuda_is_aligned(residual) &&
                             gains_are_aligned<N>(&args->norm);
        const int threads = threads_for(s, vectors ? args->size / N : args->size, args->num_tokens);
        cuda_launch_dependent(s, vectors ? rms_norm_kernel<T, N, ADD> : rms_norm_kernel<T, 1, ADD>,
                              {dim3(args->num_tokens), threads}, call);
    });
    cuda_check_launch(b, operation);
}

void cuda_rms_norm(struct backend *b, const struct rms_norm_args *args)
{
    norm<false>(b, "rms_norm", args, NULL, 1);
}

void cuda_fused_add_rms_norm(struct backend *b, const struct fused_add_rms_norm_args *args)
{
    const struct rms_norm_args rows = {.out = args->out,
                                       .x = args->x,
                                       .out_stride = args->size,
                                       .x_stride = args->size,
                                       .norm = args->norm,
                                       .num_tokens = args->num_tokens,
                                       .size = args->size,
                                       .dtype = args->dtype};
    norm<true>(b, "fused_add_rms_norm", &rows, args->residual, args->multiplier);
}
