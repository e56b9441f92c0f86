/* The tiles of prefill, whichever instruction multiplies them: tiles of query rows, the tokens that they need, and
 * pieces of 16 bytes of Q, K and V.
 *
 * A row is one query token and one head. A tile has ROWS rows of one sequence and one KV head: row r is head r % group
 * of token r / group. So K and V are read once for all heads of a group, whatever the query's length, and a tile has
 * few query tokens, so that the causal mask wastes little of its work.
 *
 * P is the traits of a kernel: the type T, HEAD (head_size, padded), ROWS, TOKENS of a tile of K or V, VARIANT (there
 * may be a soft cap or ALiBi), TWO_SIZES (v_head_size), and Q in shared memory, [HEAD / 8][ROWS] pieces of 8 elements,
 * Q_STRIDE bytes from one group of 8 elements to the next, copied by Q_THREADS threads. SPLIT: the blocks of a cluster
 * compute the same tile of rows, each for a part of its tokens. */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_TILES_CUH
#define QUIRE_KERNELS_CUDA_ATTENTION_TILES_CUH

#include <type_traits>

#include "kernels/cuda/attention/attention_mma.cuh"
#include "kernels/cuda/cluster.cuh"

struct prefill_tile {
    struct attention_seq seq;
    int32_t round; /* of the next tile */
    int32_t kv_head, group, group_inverse;
    int32_t first_token, first_head; /* of row 0: of the sequence's query, and of the group */
    int32_t first, end;              /* tokens that some row of the sequence attends to: no others may be read */
    int32_t start, count;            /* tiles of tokens: the first token of the first one, and how many */
};

struct prefill_row {
    int32_t token; /* of the sequence's query; from query_len on there is no such token */
    int32_t head;
};

/* Row r of a tile. The multiplication by group_inverse divides by group exactly as long as (ROWS + group) * group is
 * below 2^20. */
static __device__ __forceinline__ struct prefill_row prefill_row_of(const struct prefill_tile *tile, int32_t r)
{
    const int32_t x = tile->first_head + r, tokens = x * tile->group_inverse >> 20;
    return {tile->first_token + tokens, tile->kv_head * tile->group + x - tokens * tile->group};
}

/* The position in the sequence of a row's token, or of the last if there is no such token. */
static __device__ __forceinline__ int32_t prefill_position(const struct prefill_tile *tile, int32_t r)
{
    return tile->seq.seq_len - tile->seq.query_len + min(prefill_row_of(tile, r).token, tile->seq.query_len - 1);
}

/* Tiles of a KV head for the longest query, and of the whole call. */
template <class P> static inline __host__ __device__ int32_t prefill_head_tiles(const struct attention_args *args)
{
    return (int32_t)cuda_div_up((int64_t)args->max_query_len * (args->num_heads / args->num_kv_heads), P::ROWS);
}
template <class P> static inline __host__ __device__ int32_t prefill_tiles(const struct attention_args *args)
{
    return prefill_head_tiles<P>(args) * args->num_kv_heads * args->num_seqs;
}

/* Leaves a part of a tile's tokens. A part has one tile of tokens at least: if there are too few, one beyond the last,
 * which no row attends to. */
template <class P>
static __device__ __forceinline__ void take_part(struct prefill_tile *tile, int32_t part, int32_t parts)
{
    const int32_t begin = tile->count * part / parts, end = tile->count * (part + 1) / parts;
    tile->start += (begin < end ? begin : tile->count) * P::TOKENS;
    tile->count = max(end - begin, 1);
}

/* The block's next tile; false: there are no more. The last tiles of a prompt have the most work and come first. Every
 * other round goes through the blocks in reverse, so that no block gets the longest tile of each round. */
template <class P>
static __device__ __forceinline__ bool prefill_tile_next(struct prefill_tile *tile, const struct attention_call *call)
{
    const struct attention_args *args = &call->args;
    const int32_t tiles = prefill_tiles<P>(args), columns = args->num_kv_heads * args->num_seqs;
    tile->group = args->num_heads / args->num_kv_heads;
    tile->group_inverse = (1 << 20) / tile->group + 1;
    const int32_t parts = P::SPLIT ? cluster_size() : 1, block = blockIdx.x / parts, blocks = gridDim.x / parts;
    for (int32_t start = tile->round * blocks; start < tiles; start += blocks) {
        const int32_t index = start + (tile->round++ % 2 ? blocks - 1 - block : block);
        const int32_t row = index / columns, column = index - row * columns;
        if (index >= tiles) continue;
        tile->seq = attention_seq_load(args, column / args->num_kv_heads);
        tile->kv_head = column % args->num_kv_heads;
        const int32_t first_row = (prefill_head_tiles<P>(args) - 1 - row) * P::ROWS;
        tile->first_token = first_row / tile->group;
        tile->first_head = first_row % tile->group;
        if (tile->first_token >= tile->seq.query_len) continue;
        const int32_t position = tile->seq.seq_len - tile->seq.query_len;
        tile->first = attention_first(&call->params, position);
        tile->end = tile->seq.seq_len;
        tile->start = attention_first(&call->params, position + tile->first_token) / P::TOKENS * P::TOKENS;
        tile->count = max((prefill_position(tile, P::ROWS - 1) - tile->start) / P::TOKENS + 1, 1);
        if (P::SPLIT) take_part<P>(tile, cluster_rank(), parts);
        return true;
    }
    return false;
}

/* Whether any, or all, of the tokens [token, token + tokens) may be read. */
static __device__ __forceinline__ bool any_seen(const prefill_tile &tile, int32_t token, int32_t tokens)
{
    return token < tile.end && token + tokens > tile.first;
}
static __device__ __forceinline__ bool all_seen(const prefill_tile &tile, int32_t token, int32_t tokens)
{
    return token >= tile.first && token + tokens <= tile.end;
}

/* Where K and V of a tile of rows come from. */
struct token_source {
    const struct attention_args *args;
    int32_t log_block_size;
    struct prefill_tile tile;
};

static __device__ __forceinline__ token_source token_source_make(const struct attention_args *args)
{
    token_source source = {args};
    while (1 << source.log_block_size < args->block_size) source.log_block_size++;
    return source;
}

/* The block of tokens [token, token + tokens), or 0 if none of them may be read. */
static __device__ __forceinline__ int32_t block_of(const token_source &source, int32_t token, int32_t tokens)
{
    return any_seen(source.tile, token, tokens) ? source.tile.seq.block_table[token >> source.log_block_size] : 0;
}

/* Where this KV head's part of a block begins in the cache of K, and in that of V, in elements. */
static __device__ __forceinline__ int64_t key_start(const token_source &source, int32_t block)
{
    const struct attention_args &args = *source.args;
    return block * args.block_stride + (int64_t)source.tile.kv_head * args.head_size * args.block_size;
}
template <class P> static __device__ __forceinline__ int64_t value_start(const token_source &source, int32_t block)
{
    const struct attention_args &args = *source.args;
    return block * args.block_stride + (int64_t)source.tile.kv_head * v_head_size<P>(args) * args.block_size;
}

/* Q_THREADS threads copy the rows of a tile to shared memory; rows that do not exist become zeros. */
template <class P> static __device__ __forceinline__ void copy_query(const token_source &source, uint32_t q)
{
    constexpr int GROUPS = P::HEAD / 8, STEP = P::Q_THREADS / GROUPS;
    const struct attention_args &args = *source.args;
    const struct prefill_tile &tile = source.tile;
    const int32_t d = threadIdx.x % GROUPS, thread_row = threadIdx.x % P::Q_THREADS / GROUPS;
    const uint32_t to = q + d * P::Q_STRIDE;
    const typename P::T *query = (const typename P::T *)args.query + tile.seq.first_token * args.query_stride + d * 8;
#pragma unroll 4
    for (int r = thread_row; r < P::ROWS; r += STEP) {
        const struct prefill_row row = prefill_row_of(&tile, r);
        const bool there = row.token < tile.seq.query_len && d * 8 < args.head_size;
        copy_async(to + r * 16,
                   there ? query + row.token * args.query_stride + (int64_t)row.head * args.head_size : query, there);
    }
}

static __device__ __forceinline__ uint4 load_piece(uint32_t from)
{
    uint4 piece;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(piece.x), "=r"(piece.y), "=r"(piece.z), "=r"(piece.w)
                 : "r"(from)
                 : "memory");
    return piece;
}

static __device__ __forceinline__ void store_piece(uint32_t to, uint4 piece)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};\n" ::"r"(to), "r"(piece.x), "r"(piece.y), "r"(piece.z),
                 "r"(piece.w)
                 : "memory");
}

/* Zeros those of the 8 tokens from `token` that must not be read. */
static __device__ __forceinline__ uint4 mask_piece(const prefill_tile &tile, int32_t token, uint4 piece)
{
    uint32_t masks[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        masks[i] =
            (any_seen(tile, token + 2 * i, 1) ? 0xffffu : 0) | (any_seen(tile, token + 2 * i + 1, 1) ? 0xffff0000u : 0);
    return make_uint4(piece.x & masks[0], piece.y & masks[1], piece.z & masks[2], piece.w & masks[3]);
}

/* 8 fp8 numbers as 8 T. */
template <class T, bool E5M2> static __device__ __forceinline__ uint4 convert_piece(uint32_t low, uint32_t high)
{
    uint32_t out[4];
    fp8_to_float16<E5M2>(low, out[0], out[1]), fp8_to_float16<E5M2>(high, out[2], out[3]);
    if constexpr (!std::is_same_v<T, __half>) {
        for (int i = 0; i < 4; i++) {
            const float2 pair = __half22float2(*(const __half2 *)&out[i]);
            out[i] = pack_pair<T>(pair.x, pair.y);
        }
    }
    return make_uint4(out[0], out[1], out[2], out[3]);
}
template <class T> static __device__ __forceinline__ uint4 convert_piece(uint32_t low, uint32_t high, enum dtype dtype)
{
    return dtype == DTYPE_FP8_E5M2 ? convert_piece<T, true>(low, high) : convert_piece<T, false>(low, high);
}

#endif
