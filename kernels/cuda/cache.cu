/* reshape_and_cache, and the scales of an fp8 cache. A work item is 16 bytes of K's layout, that is x elements of one
 * token's head, of K and of V. Neighbouring threads have the same item of up to MAX_TILE consecutive tokens.
 * Consecutive tokens mostly have consecutive slots, so a warp writes runs of tile * 16 bytes of K, and of tile elements
 * of V. */
#include "kernels/cuda/cache.cuh"
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/kv_scale.h"

enum { THREADS = 128, MAX_TILE = 16 };

struct cache_call {
    struct reshape_and_cache_args args;
    int chunks;     /* pieces of 16 bytes of the cache: of a head of K or of V, the larger */
    int tile;       /* tokens: a power of two */
    int block_bits; /* a block has 2^block_bits tokens */
    bool aligned;   /* key and value can be read 16 bytes at a time */
};

/* Grid: x the tile of tokens, y the part of its items. */
template <class T, class C>
static __global__ void __launch_bounds__(THREADS) reshape_and_cache_kernel(const __grid_constant__ cache_call call)
{
    const struct reshape_and_cache_args &args = call.args;
    const int tile = call.tile;
    let_next_start();
    wait_for_previous();
    constexpr int X = 16 / sizeof(C);
    const int item = blockIdx.y * THREADS + threadIdx.x, head_size = args.head_size, v_head_size = args.v_head_size;
    const int64_t token = (int64_t)blockIdx.x * tile + item % tile;
    const int chunk = item / tile % call.chunks, head = item / tile / call.chunks;
    const bool has_k = chunk * X < head_size, has_v = chunk * X < v_head_size;
    if (token >= args.num_tokens || head >= args.num_kv_heads) return;
    /* K and V are read before the slot is known, so that the three loads wait for memory together. */
    const int64_t slot = args.slot_mapping[token];
    const int64_t from = token * args.kv_stride + chunk * X;
    const float k_inverse = X == 16 ? 1 / args.kv_scales[0] : 1, v_inverse = X == 16 ? 1 / args.kv_scales[1] : 1;
    piece<C, X> k, v;
    if (has_k) k = load_item<T, C, X>((const T *)args.key + from + head * head_size, call.aligned, k_inverse);
    if (has_v) v = load_item<T, C, X>((const T *)args.value + from + head * v_head_size, call.aligned, v_inverse);
    if (slot < 0) return;
    const int64_t block = slot >> call.block_bits;
    const int offset = (int)(slot & (args.block_size - 1));
    const int64_t to = block * args.block_stride;
    /* By this function, because the compiler splits an assignment into stores of 4 bytes. */
    if (has_k)
        __stwb((uint4 *)((C *)args.k_cache + to + (head * head_size + chunk * X) * args.block_size + offset * X),
               *(const uint4 *)&k);
    if (!has_v) return;
    C *v_to = (C *)args.v_cache + to + (head * v_head_size + chunk * X) * args.block_size + offset;
#pragma unroll
    for (int j = 0; j < X; j++) v_to[j * args.block_size] = v.values[j];
}

template <class T, class C> static void launch(const struct cuda_state *s, const struct reshape_and_cache_args *args)
{
    constexpr int X = 16 / sizeof(C), N = 16 / sizeof(T);
    cache_call call = {};
    call.args = *args;
    call.chunks = (args->head_size > args->v_head_size ? args->head_size : args->v_head_size) / X;
    call.tile = 1;
    call.aligned = (args->head_size | args->v_head_size) % N == 0 && args->kv_stride % N == 0 &&
                   cuda_is_aligned(args->key) && cuda_is_aligned(args->value);
    while (call.tile < MAX_TILE && call.tile < args->num_tokens) call.tile *= 2;
    while (1 << call.block_bits < args->block_size) call.block_bits++;
    const int64_t items = (int64_t)call.tile * args->num_kv_heads * call.chunks;
    const dim3 grid((unsigned)cuda_div_up(args->num_tokens, call.tile), (unsigned)cuda_div_up(items, THREADS));
    cuda_launch_dependent(s, reshape_and_cache_kernel<T, C>, {grid, THREADS}, call);
}

void cuda_reshape_and_cache(struct backend *b, const struct reshape_and_cache_args *args)
{
    if (args->num_tokens <= 0) return;
    if ((args->head_size | args->v_head_size) % (16 / dtype_size(args->cache_dtype)) != 0) {
        cuda_fail(b, "reshape_and_cache: a head of %d or %d elements is not a whole number of 16 bytes of %s",
                  args->head_size, args->v_head_size, dtype_name(args->cache_dtype));
        return;
    }
    if (args->block_size <= 0 || (args->block_size & (args->block_size - 1)) != 0) {
        cuda_fail(b, "reshape_and_cache: a block of %d tokens is not a power of two", args->block_size);
        return;
    }
    const struct cuda_state *s = cuda_use(b);
    cuda_dispatch(b, "reshape_and_cache", args->dtype, [&](auto zero) {
        using T = decltype(zero);
        cuda_dispatch_cache(b, "reshape_and_cache", args->cache_dtype,
                            [&](auto cache_zero) { launch<T, decltype(cache_zero)>(s, args); });
    });
    cuda_check_launch(b, "reshape_and_cache");
}

/* Grid: x a token, y K or V. Scales are positive, so their bits are ordered as they are. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    calculate_kv_scales_kernel(const __grid_constant__ reshape_and_cache_args args)
{
    const int64_t token = blockIdx.x;
    if (args.slot_mapping[token] < 0) return;
    const T *in = (const T *)(blockIdx.y == 0 ? args.key : args.value) + token * args.kv_stride;
    float largest = 0;
    const int size = args.num_kv_heads * (blockIdx.y == 0 ? args.head_size : args.v_head_size);
    for (int i = threadIdx.x; i < size; i += THREADS) {
        const float x = fabsf(to_float(in[i]));
        if (x < INFINITY) largest = fmaxf(largest, x);
    }
    const unsigned bits = __reduce_max_sync(~0u, __float_as_uint(kv_scale_for(largest)));
    if (threadIdx.x % 32 == 0) atomicMax((unsigned *)args.kv_scales + blockIdx.y, bits);
}

void cuda_calculate_kv_scales(struct backend *b, const struct reshape_and_cache_args *args)
{
    if (args->num_tokens <= 0) return;
    const struct cuda_state *s = cuda_use(b);
    cuda_dispatch(b, "calculate_kv_scales", args->dtype, [&](auto zero) {
        const dim3 grid((unsigned)args->num_tokens, 2);
        cuda_launch_kernel(s, calculate_kv_scales_kernel<decltype(zero)>, {grid, THREADS}, false, *args);
    });
    cuda_check_launch(b, "calculate_kv_scales");
}
