/* Paged attention for prefill and chunked prefill on the tensor cores of GPUs without wgmma (the algorithm of
 * FlashAttention-2, Dao, 2023).
 *
 * A block computes one tile of rows, and each of its warps 16 or 32 of them, with scores, weights and sums in
 * registers. Shared memory holds Q, one tile of K and one of V. V is copied while the scores are computed, and the next
 * K while the weights are multiplied with V. The other blocks of a multiprocessor hide what is left of the waiting. */
#include "kernels/cuda/attention/softmax.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operations.h"

enum { THREADS = 128 };

/* Shared memory, in pieces of 16 bytes, such that the 8 rows of a matrix lie together and are in different banks:
 *
 *     K [HEAD / 8][TOKENS] pieces of 8 elements,
 *     V [TOKENS / 8][HEAD] pieces of 8 tokens,
 *     Q [HEAD / 8][ROWS] pieces of 8 elements, each group padded by one piece against bank conflicts.
 *
 * The cache too is read in pieces of 16 bytes, of PIECE elements or tokens. Of a tile of tokens a thread copies K_COUNT
 * pieces of one token of K, and V_COUNT pieces of V, which are of the same tokens, in rows that are V_STEP apart. */
template <class Type, bool is_fp8, int head_size, int tokens, bool has_variant> struct mma_traits {
    using T = Type;
    using Element = std::conditional_t<is_fp8, uint8_t, Type>; /* of the cache */
    static constexpr bool FP8 = is_fp8, VARIANT = has_variant, SPLIT = false;
    static constexpr int HEAD = head_size; /* padded to 64, 128, 256 */
    static constexpr bool TWO_SIZES = VARIANT && HEAD == 256;
    static constexpr int ROW_TILES = HEAD == 256 ? 1 : 2; /* of a warp */
    static constexpr int WARP_ROWS = 16 * ROW_TILES, ROWS = THREADS / 32 * WARP_ROWS;
    static constexpr int TOKENS = tokens, TILE_BYTES = TOKENS * HEAD * 2; /* of a tile of K or V */
    static constexpr int Q_THREADS = THREADS, Q_STRIDE = (ROWS + 1) * 16, Q_BYTES = HEAD / 8 * Q_STRIDE;
    static constexpr int SHARED_BYTES = 2 * TILE_BYTES + Q_BYTES;
    static constexpr int BLOCKS_PER_SM = HEAD == 64 && !FP8 && !VARIANT ? 3 : 2; /* as many as registers allow */
    static constexpr int PIECE = FP8 ? 16 : 8, V_PIECES = TOKENS / PIECE;        /* of a row of V */
    static constexpr int K_STEP = THREADS / TOKENS, K_COUNT = HEAD / PIECE / K_STEP;
    static constexpr int V_STEP = THREADS / V_PIECES, V_COUNT = HEAD / V_STEP;
};

/* The copies of a block. The blocks are those of the thread's tokens in the tile that is copied next. */
struct token_copies {
    token_source source;
    int32_t key_block, value_block;
};

/* The token of K, the first of PIECE tokens of V and the first row of V that are a thread's in a tile of tokens. */
template <class P> static __device__ __forceinline__ int32_t key_token(int32_t start)
{
    return start + threadIdx.x % P::TOKENS;
}
template <class P> static __device__ __forceinline__ int32_t value_token(int32_t start)
{
    return start + threadIdx.x / 8 % P::V_PIECES * P::PIECE;
}
template <class P> static __device__ __forceinline__ int32_t value_row()
{
    return threadIdx.x / 8 / P::V_PIECES * 8 + threadIdx.x % 8;
}

template <class P> static __device__ __forceinline__ void find_key_block(token_copies &c, int32_t start)
{
    c.key_block = block_of(c.source, key_token<P>(start), 1);
}
template <class P> static __device__ __forceinline__ void find_value_block(token_copies &c, int32_t start)
{
    c.value_block = block_of(c.source, value_token<P>(start), P::PIECE);
}

/* Copies K of the tile of tokens from `start`. Tokens that must not be read become zeros. */
template <class P> static __device__ __forceinline__ void copy_keys(token_copies &c, int32_t start, uint32_t k)
{
    const struct attention_args &args = *c.source.args;
    const int32_t bs = args.block_size, token = key_token<P>(start), first = threadIdx.x / P::TOKENS;
    const int32_t step = P::K_STEP * bs * P::PIECE;
    const typename P::Element *from = (const typename P::Element *)args.k_cache + key_start(c.source, c.key_block) +
                                      (first * bs + (token & (bs - 1))) * P::PIECE;
    const int32_t groups = any_seen(c.source.tile, token, 1) ? args.head_size / P::PIECE - first : 0;
    if constexpr (P::FP8) {
        const uint32_t to = k + (2 * first * P::TOKENS + threadIdx.x % P::TOKENS) * 16;
        uint4 x[P::K_COUNT];
#pragma unroll
        for (int i = 0; i < P::K_COUNT; i++)
            x[i] = i * P::K_STEP < groups ? *(const uint4 *)(from + i * step) : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < P::K_COUNT; i++) {
            const uint32_t place = to + i * 2 * P::K_STEP * P::TOKENS * 16;
            store_piece(place, convert_piece<typename P::T>(x[i].x, x[i].y, args.cache_dtype));
            store_piece(place + P::TOKENS * 16, convert_piece<typename P::T>(x[i].z, x[i].w, args.cache_dtype));
        }
    } else {
#pragma unroll
        for (int i = 0; i < P::K_COUNT; i++)
            copy_async(k + (i * THREADS + threadIdx.x) * 16, from + i * step, i * P::K_STEP < groups);
    }
    find_key_block<P>(c, start + P::TOKENS);
}

/* Where the thread's first piece of V belongs in shared memory. */
template <class P> static __device__ __forceinline__ uint32_t value_place(uint32_t v)
{
    return v + (value_token<P>(0) / 8 * P::HEAD + value_row<P>()) * 16;
}

/* Copies V of the tile of tokens from `start`. With a 16-bit cache, a piece with a token that may be read is copied
 * whole, for mask_values. */
template <class P> static __device__ __forceinline__ void copy_values(token_copies &c, int32_t start, uint32_t v)
{
    const struct attention_args &args = *c.source.args;
    const struct prefill_tile &tile = c.source.tile;
    const int32_t bs = args.block_size, token = value_token<P>(start), first = value_row<P>(), step = P::V_STEP * bs;
    const typename P::Element *from = (const typename P::Element *)args.v_cache +
                                      value_start<P>(c.source, c.value_block) + first * bs + (token & (bs - 1));
    const int32_t rows = any_seen(tile, token, P::PIECE) ? v_head_size<P>(args) - first : 0;
    const uint32_t to = value_place<P>(v);
    if constexpr (P::FP8) {
        uint4 x[P::V_COUNT];
#pragma unroll
        for (int i = 0; i < P::V_COUNT; i++)
            x[i] = i * P::V_STEP < rows ? *(const uint4 *)(from + i * step) : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < P::V_COUNT; i++) {
            const uint4 low = convert_piece<typename P::T>(x[i].x, x[i].y, args.cache_dtype);
            const uint4 high = convert_piece<typename P::T>(x[i].z, x[i].w, args.cache_dtype);
            store_piece(to + i * P::V_STEP * 16, mask_piece(tile, token, low));
            store_piece(to + (P::HEAD + i * P::V_STEP) * 16, mask_piece(tile, token + 8, high));
        }
    } else {
#pragma unroll
        for (int i = 0; i < P::V_COUNT; i++) copy_async(to + i * P::V_STEP * 16, from + i * step, i * P::V_STEP < rows);
    }
    find_value_block<P>(c, start + P::TOKENS);
}

/* Zeros the tokens that must not be read in the pieces of V that this thread has copied, because a weight of 0 does not
 * hide a value that is not finite. */
template <class P> static __device__ __forceinline__ void mask_values(const token_copies &c, int32_t start, uint32_t v)
{
    const struct prefill_tile &tile = c.source.tile;
    const int32_t token = value_token<P>(start);
    if (!any_seen(tile, token, P::PIECE) || all_seen(tile, token, P::PIECE)) return;
#pragma unroll 1
    for (int i = 0; i < P::V_COUNT; i++) {
        const uint32_t place = value_place<P>(v) + i * P::V_STEP * 16;
        store_piece(place, mask_piece(tile, token, load_piece(place)));
    }
}

/* 16 rows of a warp. */
template <class P> struct row_tile {
    row_state rows[2];
    float s[P::TOKENS / 2], out[P::HEAD / 2];
    uint32_t weights[P::TOKENS / 4];
};

/* S = Q K^T. q: the warp's first row. */
template <class P>
static __device__ __forceinline__ void multiply_keys(row_tile<P> (&tiles)[P::ROW_TILES], uint32_t q, uint32_t k)
{
    const int32_t lane = threadIdx.x % 32;
    const uint32_t queries = q + lane / 16 * P::Q_STRIDE + lane % 16 * 16;
    const uint32_t keys = k + (lane / 8 % 2 * P::TOKENS + lane / 16 * 8 + lane % 8) * 16;
#pragma unroll
    for (int m = 0; m < P::ROW_TILES; m++)
        for (int n = 0; n < P::TOKENS / 2; n++) tiles[m].s[n] = 0;
#pragma unroll
    for (int d = 0; d < P::HEAD / 16; d++) {
        uint32_t a[P::ROW_TILES][4], b[4];
#pragma unroll
        for (int m = 0; m < P::ROW_TILES; m++) load_matrices(a[m], queries + d * 2 * P::Q_STRIDE + m * 256);
#pragma unroll
        for (int n = 0; n < P::TOKENS / 16; n++) {
            load_matrices(b, keys + d * 2 * P::TOKENS * 16 + n * 256);
#pragma unroll
            for (int m = 0; m < P::ROW_TILES; m++) {
                multiply_add<typename P::T>(tiles[m].s + n * 8, a[m], b[0], b[1]);
                multiply_add<typename P::T>(tiles[m].s + n * 8 + 4, a[m], b[2], b[3]);
            }
        }
    }
}

/* O += P V. */
template <class P>
static __device__ __forceinline__ void multiply_values(row_tile<P> (&tiles)[P::ROW_TILES], uint32_t v)
{
    const int32_t lane = threadIdx.x % 32;
    const uint32_t values = v + (lane / 8 % 2 * P::HEAD + lane / 16 * 8 + lane % 8) * 16;
#pragma unroll
    for (int t = 0; t < P::TOKENS / 16; t++)
#pragma unroll
        for (int n = 0; n < P::HEAD / 16; n++) {
            uint32_t b[4];
            load_matrices(b, values + t * 2 * P::HEAD * 16 + n * 256);
#pragma unroll
            for (int m = 0; m < P::ROW_TILES; m++) {
                multiply_add<typename P::T>(tiles[m].out + n * 8, tiles[m].weights + t * 4, b[0], b[1]);
                multiply_add<typename P::T>(tiles[m].out + n * 8 + 4, tiles[m].weights + t * 4, b[2], b[3]);
            }
        }
}

/* Makes weights of the scores of the tile of tokens from `start`, and scales what was summed before. */
template <class P>
static __device__ __forceinline__ void weigh(row_tile<P> &tile, const attention_call &call, int32_t start,
                                             float scale_log2)
{
    float factors[2];
    modify_scores<P>(tile.s, call, tile.rows, start);
    softmax<P>(tile.s, tile.rows, factors, scale_log2);
    pack_weights<P>(tile.weights, tile.s);
    if (__any_sync(~0u, factors[0] != 1 || factors[1] != 1)) {
#pragma unroll
        for (int n = 0; n < P::HEAD / 2; n++) tile.out[n] *= factors[n / 2 % 2];
    }
}

/* Computes a tile of rows. */
template <class P>
static __device__ __forceinline__ void attend(const attention_call &call, token_copies &copies, uint32_t k)
{
    const struct prefill_tile &tile = copies.source.tile;
    const int32_t warp_row = threadIdx.x / 32 * P::WARP_ROWS, thread_row = warp_row + threadIdx.x % 32 / 4;
    const uint32_t v = k + P::TILE_BYTES, q = v + P::TILE_BYTES, q_rows = q + warp_row * 16;
    const float scale_log2 =
        (P::VARIANT ? 1.0f : call.params.scale * kv_scales_load(&call.params, P::FP8).k) * ATTENTION_LOG2E;
    row_tile<P> tiles[P::ROW_TILES];
    int32_t start = tile.start;
    find_key_block<P>(copies, start);
    find_value_block<P>(copies, start);
    copy_query<P>(copies.source, q);
    copy_keys<P>(copies, start, k);
#pragma unroll
    for (int m = 0; m < P::ROW_TILES; m++) {
        start_rows<P>(call, tile, thread_row + m * 16, tiles[m].rows);
        for (int n = 0; n < P::HEAD / 2; n++) tiles[m].out[n] = 0;
    }
    for (int32_t t = 1;; t++, start += P::TOKENS) {
        copy_async_wait_all();
        __syncthreads(); /* K has arrived, and no warp needs V any more */
        copy_values<P>(copies, start, v);
        multiply_keys<P>(tiles, q_rows, k);
#pragma unroll
        for (int m = 0; m < P::ROW_TILES; m++) weigh<P>(tiles[m], call, start, scale_log2);
        copy_async_wait_all();
        if constexpr (!P::FP8) mask_values<P>(copies, start, v);
        __syncthreads(); /* V has arrived, and no warp needs K any more */
        if (t < tile.count) copy_keys<P>(copies, start + P::TOKENS, k);
        multiply_values<P>(tiles, v);
        if (t >= tile.count) break;
    }
#pragma unroll
    for (int m = 0; m < P::ROW_TILES; m++)
        store_rows<P>(call, tile, tiles[m].out, tiles[m].rows, scale_log2, q_rows + m * 256, warp_row + m * 16);
}

template <class P>
static __global__ void __launch_bounds__(THREADS, P::BLOCKS_PER_SM)
    prefill_mma_kernel(const __grid_constant__ struct attention_call call)
{
    extern __shared__ __align__(128) uint8_t shared[];
    token_copies copies = {token_source_make(&call.args)};
    if (prefill_tile_next<P>(&copies.source.tile, &call)) attend<P>(call, copies, shared_address(shared));
}

template <class P> static void launch(struct backend *b, const struct attention_args *args)
{
    const struct cuda_state *s = cuda_use(b);
    if (!cuda_allow_shared(b, "paged attention", prefill_mma_kernel<P>, P::SHARED_BYTES)) return;
    const dim3 grid((unsigned)prefill_tiles<P>(args));
    cuda_launch_kernel(s, prefill_mma_kernel<P>, {grid, THREADS, P::SHARED_BYTES}, false, attention_call_make(args));
    cuda_check_launch(b, "paged attention");
}

/* Whether BLOCKS_PER_SM blocks fit on a multiprocessor, which takes 1 KiB for each of them. It can give a block all of
 * its shared memory but that. */
template <class P> static bool fits(const struct cuda_state *s)
{
    enum { TAKEN = 1024 };
    return P::BLOCKS_PER_SM * (P::SHARED_BYTES + TAKEN) <= s->max_shared_bytes + TAKEN;
}

/* Larger tiles of tokens are faster, if a thread's registers hold their scores. */
template <class T, bool FP8, int HEAD, bool VARIANT>
static void launch_tokens(struct backend *b, const struct attention_args *args)
{
    using narrow = mma_traits<T, FP8, HEAD, HEAD == 64 ? 64 : 32, VARIANT>;
    if constexpr (HEAD == 128 && !FP8 && !VARIANT) {
        using wide = mma_traits<T, FP8, HEAD, 64, VARIANT>;
        if (fits<wide>(cuda_state(b))) return launch<wide>(b, args);
    }
    launch<narrow>(b, args);
}

template <class T, bool FP8, int HEAD>
static void launch_variant(attention_types<T, FP8, HEAD>, struct backend *b, const struct attention_args *args)
{
    if (attention_has_two_sizes(args)) {
        launch_tokens<T, FP8, 256, true>(b, args);
    } else if (attention_modifies_scores(args->params)) {
        launch_tokens<T, FP8, HEAD, true>(b, args);
    } else {
        launch_tokens<T, FP8, HEAD, false>(b, args);
    }
}

void cuda_attention_prefill_mma(struct backend *b, const struct attention_args *args)
{
    attention_dispatch(args, [&](auto types) { launch_variant(types, b, args); });
}
