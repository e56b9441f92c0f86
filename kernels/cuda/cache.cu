/* Writing the KV cache. A work item is 16 bytes of K's layout: x elements of one token's head, for K and for V. The
 * items of `tile` consecutive tokens are next to each other in a warp: tokens that follow each other mostly lie in
 * slots that do, so a warp writes runs of K of tile * 16 bytes, and V, whose rows run along the slots, in runs of tile
 * elements. */
#include <type_traits>

#include "kernels/cuda/cache.cuh"
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/operations.h"

enum { THREADS = 128, MAX_TILE = 16 };

template <class T, class C> static __device__ __forceinline__ C convert(T x, float inverse_scale)
{
    if constexpr (std::is_same_v<T, C>)
        return x; /* as it is, whatever bits it has */
    else
        return to_cache<C>(to_float(x), inverse_scale);
}

/* out[j] = in[j] as an element of the cache. */
template <class T, class C, int X>
static __device__ __forceinline__ piece<C, X> load_item(const T *in, bool aligned, float inverse_scale)
{
    constexpr int N = 16 / sizeof(T) < X ? 16 / sizeof(T) : X;
    piece<C, X> out;
#pragma unroll
    for (int i = 0; i < X; i += N) {
        piece<T, N> part;
        if (aligned) {
            part = *(const piece<T, N> *)(in + i);
        } else {
#pragma unroll
            for (int j = 0; j < N; j++) part.values[j] = in[i + j];
        }
#pragma unroll
        for (int j = 0; j < N; j++) out.values[i + j] = convert<T, C>(part.values[j], inverse_scale);
    }
    return out;
}

/* Grid: x the tile of tokens, y the part of its items. tile is a power of two; a block holds 2^block_bits tokens;
 * aligned: the rows of key and value can be read by 16 bytes. */
template <class T, class C>
static __global__ void __launch_bounds__(THREADS)
    reshape_and_cache_kernel(struct reshape_and_cache_args args, int tile, int block_bits, bool aligned,
                             float k_inverse, float v_inverse)
{
    let_next_start();
    wait_for_previous();
    constexpr int X = 16 / sizeof(C);
    const int item = blockIdx.y * THREADS + threadIdx.x, chunks = args.head_size / X;
    const int64_t token = (int64_t)blockIdx.x * tile + item % tile;
    const int chunk = item / tile % chunks, head = item / tile / chunks;
    if (token >= args.num_tokens || head >= args.num_kv_heads) return;
    /* K and V are asked for before the slot is known, so that one wait serves all three. */
    const int64_t slot = args.slot_mapping[token];
    const int64_t from = token * args.kv_stride + (int64_t)head * args.head_size + chunk * X;
    const piece<C, X> k = load_item<T, C, X>((const T *)args.key + from, aligned, k_inverse);
    const piece<C, X> v = load_item<T, C, X>((const T *)args.value + from, aligned, v_inverse);
    if (slot < 0) return;
    const int64_t block = slot >> block_bits;
    const int offset = (int)(slot & (args.block_size - 1));
    const int64_t to = (block * args.num_kv_heads + head) * args.head_size * args.block_size;
    *(piece<C, X> *)((C *)args.k_cache + to + ((int64_t)chunk * args.block_size + offset) * X) = k;
    C *v_to = (C *)args.v_cache + to + (int64_t)chunk * X * args.block_size + offset;
#pragma unroll
    for (int j = 0; j < X; j++) v_to[j * args.block_size] = v.values[j];
}

template <class T, class C>
static void launch(const struct cuda_state *s, const struct reshape_and_cache_args *args, cudaStream_t stream)
{
    constexpr int X = 16 / sizeof(C), N = 16 / sizeof(T);
    const bool fp8 = sizeof(C) == 1;
    const bool aligned = args->head_size % N == 0 && args->kv_stride % N == 0 && cuda_is_aligned(args->key) &&
                         cuda_is_aligned(args->value);
    int tile = 1, block_bits = 0;
    while (tile < MAX_TILE && tile < args->num_tokens) tile *= 2;
    while (1 << block_bits < args->block_size) block_bits++;
    const int64_t items = (int64_t)tile * args->num_kv_heads * (args->head_size / X);
    const dim3 grid((unsigned)cuda_div_up(args->num_tokens, tile), (unsigned)cuda_div_up(items, THREADS));
    cuda_launch_dependent(s, stream, reshape_and_cache_kernel<T, C>, grid, THREADS, 0, 1, *args, tile, block_bits,
                          aligned, fp8 ? 1.0f / args->k_scale : 1.0f, fp8 ? 1.0f / args->v_scale : 1.0f);
}

void cuda_reshape_and_cache(struct backend *b, const struct reshape_and_cache_args *args, backend_stream stream)
{
    if (args->num_tokens <= 0) return;
    if (args->head_size % (16 / dtype_size(args->cache_dtype)) != 0) {
        cuda_fail(b, "reshape_and_cache: a head of %d elements is not a whole number of 16 bytes of %s",
                  args->head_size, dtype_name(args->cache_dtype));
        return;
    }
    if (args->block_size <= 0 || (args->block_size & (args->block_size - 1)) != 0) {
        cuda_fail(b, "reshape_and_cache: a block of %d tokens is not a power of two", args->block_size);
        return;
    }
    const struct cuda_state *s = cuda_state(b);
    cudaStream_t on = cuda_stream(b, stream);
    cuda_dispatch(b, "reshape_and_cache", args->dtype, [&](auto zero) {
        using T = decltype(zero);
        if (args->cache_dtype == DTYPE_FP8_E4M3) {
            launch<T, __nv_fp8_e4m3>(s, args, on);
        } else if (args->cache_dtype == DTYPE_FP8_E5M2) {
            launch<T, __nv_fp8_e5m2>(s, args, on);
        } else {
            cuda_dispatch(b, "reshape_and_cache", args->cache_dtype,
                          [&](auto cache_zero) { launch<T, decltype(cache_zero)>(s, args, on); });
        }
    });
    cuda_check_launch(b, "reshape_and_cache");
}
