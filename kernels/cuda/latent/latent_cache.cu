/* latent_cache: a thread stores 16 bytes of the cache, of a token's latent or of its rotated key. */
#include "kernels/cuda/cache.cuh"
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/operations.h"

enum { THREADS = 128 };

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
