/* What a warp of attention_decode (decode.cu) reads, in chunks: it copies them into its ring, several chunks ahead. */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_DECODE_CHUNKS_CUH
#define QUIRE_KERNELS_CUDA_ATTENTION_DECODE_CHUNKS_CUH

#include <type_traits>

#include "kernels/cuda/attention/attention_mma.cuh"
#include "kernels/cuda/attention/decode.cuh"

template <class Type, bool is_fp8, int head_size, bool has_variant, bool has_two_sizes = false, bool has_runs = false>
struct decode_traits {
    using T = Type;
    using Operand = std::conditional_t<is_fp8, __half, Type>;       /* of the tensor cores */
    using Element = std::conditional_t<is_fp8, uint8_t, Type>;      /* of the cache */
    static constexpr bool FP8 = is_fp8, VARIANT = has_variant;      /* soft cap or ALiBi */
    static constexpr bool TWO_SIZES = has_two_sizes;                /* v_head_size */
    static constexpr bool RUNS = has_runs;                          /* several entries of a run in a unit */
    static constexpr int HEAD = head_size;                          /* padded to 64, 128, 256 */
    static constexpr int TILES = RUNS && HEAD < 256 ? 2 : 1;        /* of columns */
    static constexpr int COLUMNS = TILES * TILE_COLUMNS;            /* heads of a unit, of all of its entries */
    static constexpr int FRESH = RUNS ? 1 + MAX_DRAFTS : 1;         /* tokens whose K and V are not in the cache yet */
    static constexpr int PIECE_TOKENS = FP8 ? 16 : 8;               /* of V, in 16 bytes */
    static constexpr int PART_BYTES = HEAD * CHUNK * (FP8 ? 1 : 2); /* K, or V, of a chunk */
    static constexpr int STAGE_BYTES = 2 * PART_BYTES;
    /* Stages of a warp's ring if there are few units, and if there are many. Then small heads have half the stages, so
     * that more blocks fit on a multiprocessor. */
    static constexpr int STAGES = 16384 / STAGE_BYTES > 2 ? 16384 / STAGE_BYTES : 2;
    static constexpr int LEAST_STAGES = HEAD == 64 ? STAGES / 2 : STAGES;
    static constexpr int BLOCKS_PER_SM = RUNS ? HEAD == 64 ? 3 : 2 : HEAD == 64 ? 5 : HEAD == 256 && !FP8 ? 1 : 3;
    static constexpr int MERGE_STRIDE = HEAD + 4; /* floats from head to head, without bank conflicts */
    static constexpr int ROW_STRIDE = HEAD + 8;   /* elements from row to row of decode_rows, the same */
    static_assert(COLUMNS * MERGE_STRIDE * sizeof(float) <= LEAST_STAGES * STAGE_BYTES,
                  "the ring holds a warp's results at the end");
};

/* The chunks that a warp reads. */
struct chunk_source {
    const uint8_t *keys, *values; /* of this KV head in block 0 */
    int64_t block_bytes;          /* from a block to the next */
    const int32_t *block_table;
    int32_t head_size, v_head_size, block_size, log_block_size;
    int32_t first, end;         /* tokens that the query attends to; with runs, any query */
    int32_t all_first, all_end; /* with runs: tokens that all queries attend to */
    int32_t chunk;              /* the warp's first; each of the others is DECODE_WARPS after the one before it */
    int32_t count;
};

/* A unit's heads and the tokens that it belongs to: `entries` from `token` on, which are the last of `run`. Column c is
 * head c % heads of entry c / heads. */
struct decode_unit {
    int64_t token;
    int32_t kv_head, head, heads; /* heads [head, head + heads) */
    int32_t entries, run;         /* 1 without runs */

    template <class D> __device__ __forceinline__ int32_t columns() const { return D::RUNS ? entries * heads : heads; }
    template <class D> __device__ __forceinline__ int32_t entry(int32_t column) const
    {
        return D::RUNS ? column / heads : 0;
    }
    template <class D> __device__ __forceinline__ int32_t head_of(int32_t column) const
    {
        return head + (D::RUNS ? column % heads : column);
    }
};

/* A lane's part of the softmax: columns 2j and 2j + 1 of each tile, over the rows of S that this lane has. */
template <class D> struct decode_state {
    uint32_t query[D::TILES][D::HEAD / 16][2]; /* B operands */
    float max[D::TILES][2], sum[D::TILES][2], out[D::TILES][D::HEAD / 16][4];
    float slopes[D::TILES][2];
    int32_t end[D::TILES][2]; /* with runs: of the tokens that the query attends to */
};

/* The token of row m of S, and the inverse. */
template <class D> static __device__ __forceinline__ int32_t chunk_token(int32_t m)
{
    return D::FP8 ? m % 8 / 2 * 4 + m / 8 * 2 + m % 2 : m;
}
template <class D> static __device__ __forceinline__ int32_t chunk_row(int32_t token)
{
    return D::FP8 ? token % 4 / 2 * 8 + token / 4 * 2 + token % 2 : token;
}

enum { CHUNKS_PER_LOOKUP = LANES / 2 };

/* Looks up the blocks of 16 chunks together: lane 2c + h gets the block of the h-th piece of V of the warp's chunk
 * `from + c`. */
template <class D> static __device__ __forceinline__ int32_t look_up_blocks(const chunk_source &source, int32_t from)
{
    const int32_t lane = threadIdx.x % LANES, i = from + lane / 2;
    const int32_t token = (source.chunk + i * DECODE_WARPS) * CHUNK + (D::FP8 ? 0 : lane % 2 * 8);
    const bool seen = i < source.count && token < source.end && token + D::PIECE_TOKENS > source.first;
    return seen ? source.block_table[token >> source.log_block_size] : 0;
}

/* Starts to copy the warp's i-th chunk to `stage`. */
template <class D>
static __device__ __forceinline__ void copy_chunk(const chunk_source &source, int32_t i, int32_t blocks, uint32_t stage)
{
    const int32_t lane = threadIdx.x % LANES, start = (source.chunk + i * DECODE_WARPS) * CHUNK;
    const int32_t bs = source.block_size, lookup = 2 * (i % CHUNKS_PER_LOOKUP);
    constexpr int PIECE_TOKENS = D::PIECE_TOKENS, PIECE_ELEMENTS = PIECE_TOKENS; /* of V; of K */
    constexpr int V_PIECES = CHUNK / PIECE_TOKENS;                               /* a row */

    const int32_t k_token = start + lane % CHUNK, k_group = lane / CHUNK;
    const int32_t v_token = start + lane % V_PIECES * PIECE_TOKENS, v_row = lane / V_PIECES;
    const int64_t k_block = __shfl_sync(~0u, blocks, lookup + lane % CHUNK / 8);
    const int64_t v_block = __shfl_sync(~0u, blocks, lookup + lane % V_PIECES);
    const bool k_seen = k_token >= source.first && k_token < source.end;
    const bool v_seen = v_token + PIECE_TOKENS > source.first && v_token < source.end;
    const uint8_t *k = source.keys + k_block * source.block_bytes + (k_group * bs + (k_token & (bs - 1))) * 16;
    const uint8_t *v =
        source.values + v_block * source.block_bytes + (v_row * bs + (v_token & (bs - 1))) * (16 / PIECE_TOKENS);
    const uint32_t k_to = stage + (k_group * CHUNK + chunk_row<D>(lane % CHUNK)) * 16;
    const uint32_t v_to = stage + D::PART_BYTES + (D::FP8 ? lane : lane ^ v_row / 4 % 2) * 16;
#pragma unroll
    for (int p = 0; p < D::PART_BYTES / 512; p++) {
        copy_async(k_to + p * 512, k + p * 2 * bs * 16,
                   k_seen && (k_group + p * 2) * PIECE_ELEMENTS < source.head_size);
        copy_async(v_to + p * 512, v + p * (LANES / V_PIECES) * bs * (16 / PIECE_TOKENS),
                   v_seen && v_row + p * (LANES / V_PIECES) < source.v_head_size);
    }
}

/* The state of a warp's copies. */
struct chunk_copies {
    uint8_t *ring;
    int32_t stages;
    int32_t blocks, next_blocks; /* from look_up_blocks */
    int32_t count;               /* chunks whose copy was started */
};

template <class D> static __device__ __forceinline__ uint8_t *chunk_stage(const chunk_copies &copies, int32_t i)
{
    return copies.ring + (i & (copies.stages - 1)) * D::STAGE_BYTES;
}

/* Starts the next copy, if there is one. */
template <class D> static __device__ __forceinline__ void copy_next(chunk_copies &copies, const chunk_source &source)
{
    if (copies.count > 0 && copies.count % CHUNKS_PER_LOOKUP == 0) {
        copies.blocks = copies.next_blocks;
        copies.next_blocks = look_up_blocks<D>(source, copies.count + CHUNKS_PER_LOOKUP);
    }
    if (copies.count < source.count)
        copy_chunk<D>(source, copies.count, copies.blocks, shared_address(chunk_stage<D>(copies, copies.count)));
    copies.count++;
    copy_async_commit();
}

/* Fills the ring. */
template <class D>
static __device__ __forceinline__ chunk_copies begin_copies(const chunk_source &source, uint8_t *ring, int32_t stages)
{
    chunk_copies copies = {ring, stages, look_up_blocks<D>(source, 0), look_up_blocks<D>(source, CHUNKS_PER_LOOKUP), 0};
    for (int i = 0; i < stages; i++) copy_next<D>(copies, source);
    return copies;
}

/* Devices of 8.6, 8.9 and 12.0 have so little shared memory that a ring of heads of more than 128 elements of 16 bits
 * has one stage there: the warps copy and multiply in turn. */
#if __CUDA_ARCH__ == 900
static constexpr int32_t FEWEST_STAGES = 2;
#else
static constexpr int32_t FEWEST_STAGES = 1;
#endif

/* Waits until the oldest of `stages` copies has arrived. */
static __device__ __forceinline__ void wait_for_oldest(int32_t stages)
{
    if (FEWEST_STAGES == 1 && stages == 1)
        copy_async_wait<0>();
    else if (stages == 2)
        copy_async_wait<1>();
    else if (stages == 4)
        copy_async_wait<3>();
    else
        copy_async_wait<7>();
}

#endif
