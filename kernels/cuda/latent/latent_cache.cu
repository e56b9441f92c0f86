/* latent_cache: a thread stores 16 bytes of the cache, of a token's latent or of its rotated key.
 *
 * latent_inputs: a block norms a token's latent, rotates its key and stores both; another norms q. A thread keeps what
 * it has read, up to KEPT pieces, and reads the gains before the previous kernel has ended. */
#include "kernels/cuda/cache.cuh"
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/rotary.cuh"
#include "kernels/cuda/warp.cuh"

enum { THREADS = 128, KEPT = 4 };

struct latent_cache_call {
    struct latent_cache_args args;
    bool aligned; /* latent and rotated can be read 16 bytes at a time */
};

/* Pieces of 16 bytes of a token. */
template <class C> static inline __host__ __device__ int32_t pieces_of(const struct latent_cache_args *args)
{
    return (args->rank + args->rope) * (int32_t)sizeof(C) / 16;
}

template <class T, class C>
static __global__ void __launch_bounds__(THREADS) latent_cache_kernel(const __grid_constant__ latent_cache_call call)
{
    constexpr int X = 16 / sizeof(C);
    const struct latent_cache_args &args = call.args;
    const int64_t index = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int32_t pieces = pieces_of<C>(&args), token = (int32_t)(index / pieces);
    const int32_t d = (int32_t)(index - (int64_t)token * pieces) * X;
    let_next_start();
    wait_for_previous();
    if (token >= args.num_tokens) return;
    const int64_t slot = args.slot_mapping[token];
    const T *in = d < args.rank ? (const T *)args.latent + token * args.latent_stride + d
                                : (const T *)args.rotated + token * args.rotated_stride + (d - args.rank);
    const piece<C, X> x = load_item<T, C, X>(in, call.aligned, X == 16 ? 1 / args.kv_scales[0] : 1);
    if (slot < 0) return;
    const int64_t size = args.rank + args.rope, offset = slot % args.block_size;
    *(piece<C, X> *)((C *)args.cache + slot / args.block_size * args.block_stride + offset * size + d) = x;
}

template <class T, class C> static void launch(const struct cuda_state *s, const struct latent_cache_args *args)
{
    constexpr int N = 16 / sizeof(T);
    const bool aligned = args->latent_stride % N == 0 && args->rotated_stride % N == 0 &&
                         cuda_is_aligned(args->latent) && cuda_is_aligned(args->rotated);
    const int64_t blocks = cuda_div_up((int64_t)args->num_tokens * pieces_of<C>(args), THREADS);
    cuda_launch_dependent(s, latent_cache_kernel<T, C>, {dim3((unsigned)blocks), THREADS},
                          latent_cache_call{*args, aligned});
}

void cuda_latent_cache(struct backend *b, const struct latent_cache_args *args)
{
    if (args->num_tokens <= 0) return;
    const struct cuda_state *s = cuda_use(b);
    cuda_dispatch(b, "latent_cache", args->dtype, [&](auto zero) {
        using T = decltype(zero);
        cuda_dispatch_cache(b, "latent_cache", args->cache_dtype,
                            [&](auto cache_zero) { launch<T, decltype(cache_zero)>(s, args); });
    });
    cuda_check_launch(b, "latent_cache");
}

/* ---- latent_inputs ---- */

/* Where a token is in the cache; NULL: nowhere. */
template <class C> static __device__ __forceinline__ C *place_of(const latent_cache_args &args, int token)
{
    const int64_t slot = args.slot_mapping[token], size = args.rank + args.rope;
    if (slot < 0) return NULL;
    return (C *)args.cache + slot / args.block_size * args.block_stride + slot % args.block_size * size;
}

template <class T, class C, int N>
static __device__ __forceinline__ void store_piece(C *to, const piece<T, N> &x, float inverse_scale)
{
    piece<C, N> out;
#pragma unroll
    for (int j = 0; j < N; j++) out.values[j] = convert_for_cache<T, C>(x.values[j], inverse_scale);
    *(piece<C, N> *)to = out;
}

/* A thread's part of the key. */
template <class T, class C>
static __device__ __forceinline__ void store_key(const latent_inputs_args &args, C *to, int token, float inverse_scale)
{
    constexpr int N = 16 / sizeof(T);
    const int rope = args.cache.rope, half = rope / 2, i = (int)threadIdx.x * N;
    const T *key = (const T *)args.cache.rotated + token * args.cache.rotated_stride;
    if (i >= rope) return;
    if (!args.cos_sin) {
        store_piece(to + i, *(const piece<T, N> *)(key + i), inverse_scale);
        return;
    }
    const float *cos = args.cos_sin + (int64_t)args.positions[token] * rope;
    store_piece(to + i, rotated_piece<T, N>(key, i, half, cos, cos + half, args.interleaved), inverse_scale);
}

/* Grid: x the token, y 0 its latent and key, 1 its q. */
template <class T, class C>
static __global__ void __launch_bounds__(THREADS) latent_inputs_kernel(const __grid_constant__ latent_inputs_args args)
{
    constexpr int N = 16 / sizeof(T);
    __shared__ struct warp_sums sums;
    const int token = blockIdx.x;
    const bool is_q = blockIdx.y == 1;
    const latent_cache_args &cache = args.cache;
    const norm_params &norm = is_q ? args.q_norm : args.norm;
    const int size = is_q ? args.q_rank : cache.rank, pieces = size / N;
    const T *x =
        is_q ? (const T *)args.q_in + token * args.q_stride : (const T *)cache.latent + token * cache.latent_stride;
    piece<T, N> *q = (piece<T, N> *)((T *)args.q + (int64_t)token * args.q_rank), kept[KEPT];
    raw_gains<N> gains[KEPT];
    float sum = 0;
    let_next_start();
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        if ((int)threadIdx.x + k * THREADS < pieces)
            gains[k] = load_gains<N>(norm.gain, norm.gain_dtype, threadIdx.x + k * THREADS);
    wait_for_previous();
    C *to = is_q ? NULL : place_of<C>(cache, token);
    const float inverse_scale = sizeof(C) == 1 && to ? 1 / cache.kv_scales[0] : 1;
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        if ((int)threadIdx.x + k * THREADS < pieces) {
            kept[k] = ((const piece<T, N> *)x)[threadIdx.x + k * THREADS];
            sum = add_squares(sum, kept[k]);
        }
    if (to) store_key<T, C>(args, to + cache.rank, token, inverse_scale);
    const float factor = rsqrtf(block_sum(sum, &sums) / (float)size + norm.eps);
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int i = threadIdx.x + k * THREADS;
        if (i >= pieces) break;
        apply_gains(kept[k], factor, gains[k], norm.gain_dtype);
        if (is_q) q[i] = kept[k];
        if (to) store_piece(to + i * N, kept[k], inverse_scale);
    }
}

template <class T> static bool takes(const struct latent_inputs_args *args)
{
    constexpr int N = 16 / sizeof(T), MOST = KEPT * THREADS * N;
    const struct latent_cache_args *c = &args->cache;
    const int64_t strides = c->latent_stride | c->rotated_stride | (args->q_rank > 0 ? args->q_stride : 0);
    const bool q_aligned = args->q_rank == 0 || (cuda_is_aligned(args->q) && cuda_is_aligned(args->q_in) &&
                                                 args->q_norm.type == NORM_RMS && gains_are_aligned<N>(&args->q_norm));
    return args->norm.type == NORM_RMS && gains_are_aligned<N>(&args->norm) && q_aligned && strides % N == 0 &&
           args->q_rank % N == 0 && args->q_rank <= MOST && c->rank <= MOST && c->rope / 2 % N == 0 &&
           c->rope <= THREADS * N && cuda_is_aligned(c->latent) && cuda_is_aligned(c->rotated);
}

bool cuda_latent_inputs(struct backend *b, const struct latent_inputs_args *args)
{
    const struct latent_cache_args *c = &args->cache;
    bool taken = false;
    cuda_dispatch(b, "latent_inputs", c->dtype, [&](auto zero) {
        using T = decltype(zero);
        taken = takes<T>(args);
        if (!taken || c->num_tokens <= 0) return;
        const dim3 grid((unsigned)c->num_tokens, args->q_rank > 0 ? 2 : 1);
        cuda_dispatch_cache(b, "latent_inputs", c->cache_dtype, [&](auto cache_zero) {
            cuda_launch_dependent(cuda_use(b), latent_inputs_kernel<T, decltype(cache_zero)>, {grid, THREADS}, *args);
        });
    });
    cuda_check_launch(b, "latent_inputs");
    return taken;
}
