/* How prefill is laid out: tiles of query rows, tiles of tokens, and what lies where in shared memory.
 *
 * A row is one query token and one head; a tile has ROWS rows of one sequence and one KV head, row r being head r %
 * group of token r / group. So K and V are read once for all heads of a group whatever the query's length, and the
 * tokens of a tile are few, which leaves little of its work behind the causal mask. */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_PREFILL_CUH
#define QUIRE_KERNELS_CUDA_ATTENTION_PREFILL_CUH

#include "kernels/cuda/attention_wgmma.cuh"

enum { GROUP_THREADS = 128, CONSUMERS = 2, ROWS = 64 * CONSUMERS, PREFILL_THREADS = (1 + CONSUMERS) * GROUP_THREADS };
enum { STAGES = 2 };

/* Operands as core matrices (attention_wgmma.cuh), `*_STRIDE` bytes from one to the next along k. Pieces are 16 bytes:
 *     Q [HEAD / 8][ROWS] pieces of 8 elements, and one piece more in each group against bank conflicts,
 *     K [HEAD / 8][TOKENS] pieces of 8 elements,
 *     V [TOKENS / 8][HEAD] pieces of 8 tokens, and four pieces more in each group. */
template <class Type, bool is_fp8, int head_size, bool has_variant> struct prefill_traits {
    using T = Type;
    static constexpr bool FP8 = is_fp8, VARIANT = has_variant;
    static constexpr int HEAD = head_size;                /* padded to 64, 128, 256 */
    static constexpr int TOKENS = HEAD == 256 ? 64 : 128; /* of a tile of K and V */
    static constexpr int Q_STRIDE = (ROWS + 1) * 16, K_STRIDE = TOKENS * 16, V_STRIDE = (HEAD + 4) * 16;
    static constexpr int Q_BYTES = HEAD / 8 * Q_STRIDE, K_BYTES = HEAD / 8 * K_STRIDE, V_BYTES = TOKENS / 8 * V_STRIDE;
    static constexpr int SHARED_BYTES = Q_BYTES + STAGES * (K_BYTES + V_BYTES);
};

/* Both the producer and the consumers walk the same tiles in the same order, so they need nothing but these to agree.
 */
struct prefill_barriers {
    uint64_t q_full, q_empty, k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
};

/* Which stage a walker is at, and how often it has been there. */
struct prefill_stage {
    int32_t index;
    uint32_t parity;
};
static __device__ __forceinline__ void prefill_stage_next(struct prefill_stage *stage)
{
    if (++stage->index == STAGES) stage->index = 0, stage->parity ^= 1;
}

struct prefill_tile {
    struct attention_seq seq;
    int32_t kv_head, group;
    int32_t first_row, rows; /* of the sequence: [first_row, rows) are this tile's and those after it */
    int32_t first, end;      /* tokens that some row sees */
    int32_t start, count;    /* tiles of tokens: the first token of the first, how many */
};

/* Position of a row's token in the sequence. */
static __device__ __forceinline__ int32_t prefill_position(const struct prefill_tile *tile, int32_t row)
{
    return tile->seq.seq_len - tile->seq.query_len + min(row, tile->rows - 1) / tile->group;
}

static inline __host__ __device__ int64_t prefill_tiles(const struct attention_args *args)
{
    return cuda_div_up((int64_t)args->max_query_len * (args->num_heads / args->num_kv_heads), ROWS);
}

/* The block's round-th tile. The last tiles of a prompt have the most to do and come first; every other round goes the
 * other way, so that no block gets the longest of each. false: no such tile; count 0 and rows 0: nothing to do in it.
 */
static __device__ __forceinline__ bool prefill_tile_of(struct prefill_tile *tile, const struct attention_call *call,
                                                       int32_t tokens, int32_t round)
{
    const struct attention_args *args = &call->args;
    const int64_t tiles = prefill_tiles(args), columns = (int64_t)args->num_kv_heads * args->num_seqs;
    const int64_t place = round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x,
                  index = (int64_t)round * gridDim.x + place;
    if ((int64_t)round * gridDim.x >= tiles * columns) return false;
    const int32_t column = (int32_t)(index % columns);
    tile->seq = attention_seq_load(args, column / args->num_kv_heads);
    tile->kv_head = column % args->num_kv_heads;
    tile->group = args->num_heads / args->num_kv_heads;
    tile->first_row = (int32_t)((tiles - 1 - index / columns) * ROWS);
    tile->rows = tile->seq.query_len * tile->group;
    if (index >= tiles * columns || tile->first_row >= tile->rows) {
        tile->rows = tile->count = 0;
        return true;
    }
    tile->end = prefill_position(tile, tile->first_row + ROWS - 1) + 1;
    tile->first = attention_first(&call->params, prefill_position(tile, tile->first_row));
    tile->start = tile->first / tokens * tokens;
    tile->count = max((tile->end - tile->start + tokens - 1) / tokens, 0);
    return true;
}

#endif
