/* Paged attention for decode on tensor cores: one query token a sequence, 16-bit activations, and a cache of the same
 * type or of fp8. The cost is to read K and V once, at the speed of memory.
 *
 * A warp takes every DECODE_WARPS-th chunk of its block's work, copies its chunks into a ring of its own, several
 * chunks ahead, and does not need the other warps until the end. With tokens as rows and the unit's heads as columns it
 * computes for each chunk
 *
 *     S [16 tokens x 8 heads] = K Q^T,    O [v_head_size x 8 heads] += V^T P.
 *
 * So K and V are the A operands, in rows of 16 bytes as they are in the cache, and a lane has the same heads in the
 * layouts of S and of O: neither the maximum nor rescaling needs an exchange between lanes of different heads. P is
 * brought from the C layout to the B layout by transposing 8x8 matrices.
 *
 * Entries of a run with a long context (decode.cuh) are computed together, so that K and V are read once for all of
 * them: the columns are the unit's heads of the first entry, then those of the second and so on, in up to MAX_TILES
 * tiles of 8, and each column has an end of its own. Their queries stay in shared memory. All else is as for one entry,
 * and in the same order.
 *
 * A chunk in shared memory, whatever the block size, in pieces of 16 bytes:
 *
 *     16-bit   K [head_size / 8][16 tokens] pieces of 8 elements,
 *              V [head_size][2] pieces of 8 tokens; the two are swapped in every other group of 4 rows, so that
 *              the 8 rows of a matrix, 32 bytes apart, are in different banks.
 *     fp8      K [head_size / 16][16 rows] pieces of 16 elements,
 *              V [head_size] pieces of 16 tokens.
 *
 * With fp8 ldmatrix gives a lane the bytes 4j .. 4j + 3 of a piece, which are twice as many elements as it has of 16
 * bits. They become columns 2j, 2j + 1 and 2j + 8, 2j + 9 of A, so the columns of A are elements (tokens) in another
 * order. Q is loaded in that order too, and for P the rows of S are: row m is token chunk_token(m).
 *
 * Tokens that are not attended to are filled with zeros, or masked where a piece of V has both kinds, so that NaN never
 * gets into a sum.
 *
 * cuda_decode_attention also does the work of rotary_embedding and reshape_and_cache in this kernel: a block norms and
 * rotates its heads of the query when it loads them, and the warp that has a sequence's last chunk writes the newest
 * token's K and V into that chunk and into the cache. An entry of a run also writes K and V of the entries before it
 * into its chunks, because those write them into the cache meanwhile: K of a run is rotated again for each entry, and
 * no entry waits for another. Everything else that the kernel reads was there before the step. So it finds its work and
 * fills its rings while the matmul that makes query, K and V still runs. */
#include <type_traits>

#include "kernels/cuda/attention/decode.cuh"
#include "kernels/cuda/attention/attention_mma.cuh"
#include "kernels/cuda/cache.cuh"
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/output_gate.cuh"
#include "kernels/cuda/rotary.cuh"

template <class Type, bool is_fp8, int head_size, bool has_variant, bool has_two_sizes = false, bool has_runs = false>
struct decode_traits {
    using T = Type;
    using Operand = std::conditional_t<is_fp8, __half, Type>;  /* of the tensor cores */
    using Element = std::conditional_t<is_fp8, uint8_t, Type>; /* of the cache */
    static constexpr bool FP8 = is_fp8, VARIANT = has_variant; /* soft cap or ALiBi */
    static constexpr bool TWO_SIZES = has_two_sizes;           /* v_head_size */
    static constexpr bool RUNS = has_runs;                     /* sequences may be entries of runs */
    static constexpr int FRESH = RUNS ? 1 + MAX_DRAFTS : 1;    /* tokens whose K and V are not in the cache yet */
    static constexpr int HEAD = head_size;                     /* padded to 64, 128, 256 */
    static constexpr int TILES = 1;                            /* of columns; of a group: MAX_TILES */
    static constexpr int MAX_TILES = !RUNS ? 1 : HEAD == 256 ? 2 : 4;
    static constexpr int COLUMNS = MAX_TILES * UNIT_HEADS;          /* there is room for */
    static constexpr int ROWS = COLUMNS + 2 * FRESH;                /* of decode_row */
    static constexpr int PIECE_TOKENS = FP8 ? 16 : 8;               /* of V, in 16 bytes */
    static constexpr int PART_BYTES = HEAD * CHUNK * (FP8 ? 1 : 2); /* K, or V, of a chunk */
    static constexpr int STAGE_BYTES = 2 * PART_BYTES;
    /* Stages of a warp's ring if there are few units, and if there are many. Then small heads have half the stages, so
     * that more blocks fit on a multiprocessor. */
    static constexpr int STAGES = 16384 / STAGE_BYTES > 2 ? 16384 / STAGE_BYTES : 2;
    static constexpr int LEAST_STAGES = HEAD == 64 ? STAGES / 2 : STAGES;
    static constexpr int BLOCKS_PER_SM = HEAD == 256 && !FP8 ? 1 : RUNS ? HEAD == 64 ? 3 : 2 : HEAD == 64 ? 5 : 3;
    static constexpr int ROW_STRIDE = HEAD + 8; /* elements from row to row, without bank conflicts */
    static_assert(COLUMNS * HEAD * sizeof(float) <= LEAST_STAGES * STAGE_BYTES,
                  "the ring holds a warp's results at the end");
};

/* A kernel with runs, where it computes a group of up to this many tiles, of 2 at least: with one the query would be
 * expected in registers. */
template <class D, int tiles> struct group_traits : D {
    static constexpr int TILES = tiles;
};

/* The chunks that a warp reads. */
struct chunk_source {
    const uint8_t *keys, *values; /* of this KV head in block 0 */
    int64_t block_bytes;          /* from a block to the next */
    const int32_t *block_table;
    int32_t head_size, v_head_size, block_size, log_block_size;
    int32_t first, end; /* tokens that the queries attend to */
    int32_t chunk;      /* the warp's first; each of the others is DECODE_WARPS after the one before it */
    int32_t count;
    int32_t all_first, all_end; /* tokens that all of a group's queries attend to */
    uint32_t per_heads;         /* of a group: 1 / heads, times 2^16 and rounded up */
};

/* What is loaded for the unit's query tokens: a row for each of the unit's columns, then K and V of the tokens of its
 * run up to its last, first all of K, if this block has a chunk that they belong to and they are not in the cache yet.
 */
template <class D> using decode_row = typename D::T[D::ROW_STRIDE];

/* A lane's part of the softmax: columns 2j and 2j + 1 of each tile, over the rows of S that this lane has. */
template <class D> struct decode_state {
    uint32_t query[D::TILES > 1 ? 1 : D::HEAD / 16][2]; /* B operands; of a group they are loaded from `rows` */
    uint32_t rows;                                      /* the lane's address in shared memory */
    float max[D::TILES][2], sum[D::TILES][2], out[D::TILES][D::HEAD / 16][4];
    float slopes[D::TILES][2];
};

/* The entry of a column, of a group: exact for less than 2^16 / UNIT_HEADS columns. */
static __device__ __forceinline__ int32_t column_entry(const chunk_source &source, int32_t column)
{
    return (int32_t)(column * source.per_heads >> 16);
}

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

/* Two operands A of 16-bit elements from what load_matrices made of 16 rows of 32 fp8 numbers. */
template <bool E5M2> static __device__ __forceinline__ void convert_matrices(const uint32_t r[4], uint32_t a[2][4])
{
#pragma unroll
    for (int m = 0; m < 4; m++) fp8_to_float16<E5M2>(r[m], a[m / 2][m % 2], a[m / 2][m % 2 + 2]);
}

/* The B operands of columns 8 tile .. 8 tile + 7 for elements 32 pair .. 32 pair + 31. */
template <class D>
static __device__ __forceinline__ void query_operands(const decode_state<D> &state, int32_t tile, int32_t pair,
                                                      uint32_t b[4])
{
    if constexpr (D::TILES > 1) {
        load_matrices(b, state.rows + (tile * UNIT_HEADS * D::ROW_STRIDE + pair * 32) * 2);
    } else {
        for (int i = 0; i < 4; i++) b[i] = state.query[2 * pair + i / 2][i % 2];
    }
}

/* S = K Q^T. */
template <class D, bool E5M2>
static __device__ __forceinline__ void multiply_keys(const decode_state<D> &state, uint32_t stage,
                                                     float scores[D::TILES][4])
{
    const uint32_t address = stage + threadIdx.x % LANES * 16;
    float sums[D::TILES][2][4] = {};
#pragma unroll
    for (int pair = 0; pair < D::HEAD / 32; pair++) {
        uint32_t a[2][4], b[4];
        if constexpr (D::FP8) {
            uint32_t r[4];
            load_matrices(r, address + pair * 512);
            convert_matrices<E5M2>(r, a);
        } else {
            load_matrices(a[0], address + pair * 1024);
            load_matrices(a[1], address + pair * 1024 + 512);
        }
#pragma unroll
        for (int t = 0; t < D::TILES; t++) {
            query_operands<D>(state, t, pair, b);
            multiply_add<typename D::Operand>(sums[t][0], a[0], b[0], b[1]);
            multiply_add<typename D::Operand>(sums[t][1], a[1], b[2], b[3]);
        }
    }
#pragma unroll
    for (int t = 0; t < D::TILES; t++)
        for (int e = 0; e < 4; e++) scores[t][e] = sums[t][0][e] + sums[t][1][e];
}

/* A mask with `bits` bits for each of the tokens from + 0, 1, ... 32 / bits - 1: ones if a query attends to it. */
template <int bits> static __device__ __forceinline__ uint32_t seen_mask(const chunk_source &source, int32_t from)
{
    uint32_t mask = 0;
#pragma unroll
    for (int i = 0; i < 32 / bits; i++)
        if (from + i >= source.first && from + i < source.end) mask |= ((1u << bits) - 1) << (i * bits);
    return mask;
}

/* O += V^T P. `partial`: not every query attends to all tokens of the chunk. */
template <class D, bool E5M2>
static __device__ __forceinline__ void multiply_values(decode_state<D> &state, const chunk_source &source,
                                                       uint32_t stage, int32_t start, bool partial,
                                                       const uint32_t b[D::TILES][2])
{
    using Operand = typename D::Operand;
    const int32_t lane = threadIdx.x % LANES, j = lane % 4;
    const uint32_t values = stage + D::PART_BYTES;
    uint32_t low = ~0u, high = ~0u; /* masks of A's columns 2j.. and 2j + 8..; fp8: of 4 tokens */
    if (partial) {
        low = D::FP8 ? seen_mask<8>(source, start + 4 * j) : seen_mask<16>(source, start + 2 * j);
        high = D::FP8 ? low : seen_mask<16>(source, start + 2 * j + 8);
    }
#pragma unroll
    for (int p = 0; p < D::PART_BYTES / 512; p++) {
        uint32_t r[4], a[2][4];
        if constexpr (D::FP8) {
            load_matrices(r, values + p * 512 + lane * 16);
            if (partial) r[0] &= low, r[1] &= low, r[2] &= low, r[3] &= low;
            convert_matrices<E5M2>(r, a);
        } else {
            const int32_t row = lane % 16, half = lane / 16 ^ row / 4 % 2;
            load_matrices(r, values + p * 512 + (row * 2 + half) * 16);
            if (partial) r[0] &= low, r[1] &= low, r[2] &= high, r[3] &= high;
        }
#pragma unroll
        for (int t = 0; t < D::TILES; t++) {
            if constexpr (D::FP8) {
                multiply_add<Operand>(state.out[t][2 * p], a[0], b[t][0], b[t][1]);
                multiply_add<Operand>(state.out[t][2 * p + 1], a[1], b[t][0], b[t][1]);
            } else {
                multiply_add<Operand>(state.out[t][p], r, b[t][0], b[t][1]);
            }
        }
    }
}

/* Scores of a tile as powers of 2, which are minus infinity where the query does not attend to the token. */
template <class D>
static __device__ __forceinline__ void scale_scores(float s[4], const chunk_source &source,
                                                    const struct attention_call &call, float scale,
                                                    const float slopes[2], int32_t tile, int32_t start, bool partial)
{
    const int32_t row = threadIdx.x % LANES / 4, column = tile * UNIT_HEADS + threadIdx.x % 4 * 2;
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const int32_t token = start + chunk_token<D>(row + e / 2 * 8);
        const int32_t end = D::TILES > 1 ? source.all_end + column_entry(source, column + e % 2) : source.end;
        if constexpr (D::VARIANT) {
            s[e] = attention_modify_fast(&call.params, s[e] * scale, slopes[e % 2], token - end + 1) * ATTENTION_LOG2E;
        } else {
            s[e] *= scale * ATTENTION_LOG2E;
        }
        if (!partial) continue;
        const int32_t first = D::TILES > 1 ? attention_first(&call.params, end - 1) : source.first;
        if (token < first || token >= end) s[e] = -INFINITY;
    }
}

/* Adds a chunk, which is in `stage`, to the softmax. */
template <class D, bool E5M2>
static __device__ __forceinline__ void attend_chunk(decode_state<D> &state, const chunk_source &source,
                                                    const struct attention_call &call, float k_scale, uint32_t stage,
                                                    int32_t start)
{
    const bool partial = start < source.all_first || start + CHUNK > source.all_end;
    float scores[D::TILES][4];
    uint32_t b[D::TILES][2];
    multiply_keys<D, E5M2>(state, stage, scores);
#pragma unroll
    for (int t = 0; t < D::TILES; t++) {
        float *s = scores[t], factor[2], p[4];
        scale_scores<D>(s, source, call, call.params.scale * k_scale, state.slopes[t], t, start, partial);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float max = fmaxf(s[h], s[h + 2]);
            for (int step = 4; step < LANES; step *= 2) max = fmaxf(max, __shfl_xor_sync(~0u, max, step));
            max = fmaxf(max, state.max[t][h]);
            const float base = max == -INFINITY ? 0 : max;
            factor[h] = exp2_fast(state.max[t][h] - base);
            state.max[t][h] = max;
            p[h] = exp2_fast(s[h] - base);
            p[h + 2] = exp2_fast(s[h + 2] - base);
            state.sum[t][h] = state.sum[t][h] * factor[h] + p[h] + p[h + 2];
        }
#pragma unroll
        for (int m = 0; m < D::HEAD / 16; m++)
            for (int e = 0; e < 4; e++) state.out[t][m][e] *= factor[e % 2];
        b[t][0] = transpose_matrix(pack_pair<typename D::Operand>(p[0], p[1]));
        b[t][1] = transpose_matrix(pack_pair<typename D::Operand>(p[2], p[3]));
    }
    multiply_values<D, E5M2>(state, source, stage, start, partial, b);
}

/* What a block computes: heads [head, head + heads) of `entries` tokens, the last of which is `token`. Column c is head
 * c % heads of token c / heads of these. */
struct decode_unit {
    int64_t token;
    int32_t kv_head, head, heads;
    int32_t entries; /* 1, or those of a group */
    int32_t run;     /* tokens of its run up to its last, which are neighbours; 1 without runs */
    int32_t columns; /* heads * entries */
};

/* A lane's share of a row: 4 elements from `left` on, and the 4 from `right` on, which rotation pairs them with. */
struct row_share {
    int32_t left, right;
    bool there;   /* the row has such elements */
    bool rotated; /* they are rotated, and by which angles */
    piece<float, 4> cos, sin;
};

/* HEAD / 8 lanes share a row. */
template <class D, bool ANY>
static __device__ __forceinline__ row_share share_row(const struct decode_fresh &fresh, int64_t token,
                                                      int32_t head_size)
{
    const int32_t i = threadIdx.x % (D::HEAD / 8), half = head_size / 2;
    const int32_t rotary_dim = ANY ? fresh.rotary_dim : head_size;
    row_share share = {4 * i, half + 4 * i, 4 * i < half};
    if constexpr (ANY) {
        const head_split split = {head_size / 4, rotary_dim / 8, fresh.interleaved};
        share.left = 4 * split.left(i);
        share.right = 4 * split.right(i);
    }
    share.rotated = !ANY || 4 * i < rotary_dim / 2;
    share.cos = share.sin = {};
    if (fresh.cos_sin && share.there && share.rotated) {
        const float *angles = fresh.cos_sin + (int64_t)fresh.positions[token] * rotary_dim + 4 * i;
        share.cos = *(const piece<float, 4> *)angles;
        share.sin = *(const piece<float, 4> *)(angles + rotary_dim / 2);
    }
    return share;
}

/* The lane's gains of a row. */
struct row_gains {
    raw_gains<4> left, right;
};

static __device__ __forceinline__ row_gains load_row_gains(const void *gain, enum dtype dtype, const row_share &share)
{
    return {load_gains<4>(gain, dtype, share.left / 4), load_gains<4>(gain, dtype, share.right / 4)};
}

template <class T>
static __device__ __forceinline__ void apply_row_gains(piece<T, 4> &left, piece<T, 4> &right, float factor,
                                                       const row_gains &gains, enum dtype gain_dtype)
{
    apply_gains(left, factor, gains.left, gain_dtype);
    apply_gains(right, factor, gains.right, gain_dtype);
}

/* The token of row r. */
template <class D> static __device__ __forceinline__ int64_t row_token(const struct decode_unit &unit, int32_t r)
{
    if (!D::RUNS || r < unit.heads) return unit.token;
    return unit.token + 1 - unit.run + (r - unit.heads) % unit.run;
}

/* Loads the `count` rows of the block when the previous kernels have ended: `heads` of the query, then K and V. Query
 * and key are normed and rotated. The gains and the first angles, which no kernel writes, are read before the wait. */
template <class D, bool ANY>
static __device__ __forceinline__ void load_rows(decode_row<D> *rows, const struct attention_call &call,
                                                 const struct decode_fresh &fresh, const struct decode_unit &unit,
                                                 int32_t count)
{
    using T = typename D::T;
    constexpr int ROW_LANES = D::HEAD / 8, ROWS_AT_ONCE = DECODE_THREADS / ROW_LANES;
    const int32_t head_size = call.args.head_size, heads = unit.heads;
    const struct decode_norms &norms = fresh.norms;
    const T *query = (const T *)call.args.query + unit.token * call.args.query_stride + (int64_t)unit.head * head_size;
    const T *key = (const T *)fresh.key + unit.token * fresh.key_stride + (int64_t)unit.kv_head * head_size;
    const T *value = (const T *)fresh.value + unit.token * fresh.value_stride + (int64_t)unit.kv_head * head_size;
    const int32_t row = threadIdx.x / ROW_LANES, values = heads + unit.run;
    row_share share = share_row<D, ANY>(fresh, row_token<D>(unit, row), head_size);
    const bool normed = ANY && norms.query_gain;
    row_gains query_gains, key_gains;
    if (normed && share.there) {
        query_gains = load_row_gains(norms.query_gain, norms.gain_dtype, share);
        key_gains = load_row_gains(norms.key_gain, norms.gain_dtype, share);
    }
    wait_for_previous();
    /* With ANY all lanes of a warp make the same number of rounds, because they may exchange sums. */
    for (int32_t first = 0; first + (ANY ? 0 : row) < count && (ANY || share.there); first += ROWS_AT_ONCE) {
        const int32_t r = first + row;
        const bool there = !ANY || (r < count && share.there);
        const bool is_key = D::RUNS ? r >= heads && r < values : r == heads;
        const T *from = r < heads ? query + r * head_size : is_key ? key : value;
        if constexpr (D::RUNS) {
            const int64_t token = row_token<D>(unit, r), before = unit.token - token;
            if (r >= heads) from -= before * (is_key ? fresh.key_stride : fresh.value_stride);
            if (first > 0) share = share_row<D, ANY>(fresh, token, head_size);
        }
        piece<T, 4> left = {}, right = {};
        if (there) left = *(const piece<T, 4> *)(from + share.left), right = *(const piece<T, 4> *)(from + share.right);
        if (normed) {
            const float eps = r < heads ? norms.query_eps : norms.key_eps;
            const float factor = head_norm_factor(add_squares(add_squares(0, left), right), ROW_LANES, head_size, eps);
            if (r < heads) apply_row_gains(left, right, factor, query_gains, norms.gain_dtype);
            if (is_key) apply_row_gains(left, right, factor, key_gains, norms.gain_dtype);
        }
        if (fresh.cos_sin && share.rotated && (r < heads || is_key))
            rotate_pieces(left, right, share.cos.values, share.sin.values, ANY && fresh.interleaved);
        if (!there) continue;
        *(piece<T, 4> *)&rows[r][share.left] = left;
        *(piece<T, 4> *)&rows[r][share.right] = right;
    }
}

/* Row r of a group: where it is loaded from, and how it is prepared. */
template <class D> struct group_row {
    const typename D::T *from;
    row_share share;
    bool is_query, is_key, there;
    piece<typename D::T, 4> left, right;
};

template <class D>
static __device__ __forceinline__ group_row<D> find_group_row(const struct attention_call &call,
                                                              const struct decode_fresh &fresh,
                                                              const struct decode_unit &unit, int32_t r, int32_t count)
{
    using T = typename D::T;
    const int32_t head_size = call.args.head_size, values = unit.columns + unit.run;
    const bool is_query = r < unit.columns, is_key = !is_query && r < values;
    const int32_t before = is_query ? unit.entries - 1 - r / unit.heads : unit.run - 1 - (r - unit.columns) % unit.run;
    const int64_t token = unit.token - before;
    const T *from =
        (const T *)call.args.query + token * call.args.query_stride + (int64_t)(unit.head + r % unit.heads) * head_size;
    if (is_key) from = (const T *)fresh.key + token * fresh.key_stride + (int64_t)unit.kv_head * head_size;
    if (r >= values) from = (const T *)fresh.value + token * fresh.value_stride + (int64_t)unit.kv_head * head_size;
    group_row<D> row = {from, {}, is_query, is_key, false, {}, {}};
    if (r < count) row.share = share_row<D, true>(fresh, token, head_size);
    row.there = r < count && row.share.there;
    return row;
}

/* load_rows of a group, with K and V from row COLUMNS on. All rows are found before the wait, and all are loaded before
 * the first one is prepared. */
template <class D>
static __device__ __forceinline__ void load_group_rows(decode_row<D> *rows, const struct attention_call &call,
                                                       const struct decode_fresh &fresh, const struct decode_unit &unit,
                                                       int32_t count)
{
    using T = typename D::T;
    constexpr int ROW_LANES = D::HEAD / 8, ROWS_AT_ONCE = DECODE_THREADS / ROW_LANES;
    constexpr int ROUNDS = (D::ROWS + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE;
    const struct decode_norms &norms = fresh.norms;
    const int32_t row = threadIdx.x / ROW_LANES;
    group_row<D> found[ROUNDS];
#pragma unroll
    for (int n = 0; n < ROUNDS; n++) found[n] = find_group_row<D>(call, fresh, unit, n * ROWS_AT_ONCE + row, count);
    const row_share share = found[0].share; /* but for the angles the same share of all rows */
    row_gains query_gains, key_gains;
    if (norms.query_gain && share.there) {
        query_gains = load_row_gains(norms.query_gain, norms.gain_dtype, share);
        key_gains = load_row_gains(norms.key_gain, norms.gain_dtype, share);
    }
    wait_for_previous();
#pragma unroll
    for (int n = 0; n < ROUNDS; n++)
        if (found[n].there) {
            found[n].left = *(const piece<T, 4> *)(found[n].from + share.left);
            found[n].right = *(const piece<T, 4> *)(found[n].from + share.right);
        }
#pragma unroll
    for (int n = 0; n < ROUNDS; n++) {
        if (n * ROWS_AT_ONCE >= count) break;
        group_row<D> &x = found[n];
        if (norms.query_gain) {
            const float eps = x.is_query ? norms.query_eps : norms.key_eps;
            const float squares = add_squares(add_squares(0, x.left), x.right);
            const float factor = head_norm_factor(squares, ROW_LANES, call.args.head_size, eps);
            if (x.is_query) apply_row_gains(x.left, x.right, factor, query_gains, norms.gain_dtype);
            if (x.is_key) apply_row_gains(x.left, x.right, factor, key_gains, norms.gain_dtype);
        }
        if (fresh.cos_sin && x.share.rotated && (x.is_query || x.is_key))
            rotate_pieces(x.left, x.right, x.share.cos.values, x.share.sin.values, fresh.interleaved);
        if (!x.there) continue;
        const int32_t r = n * ROWS_AT_ONCE + row, place = x.is_query ? r : r - unit.columns + D::COLUMNS;
        *(piece<T, 4> *)&rows[place][share.left] = x.left;
        *(piece<T, 4> *)&rows[place][share.right] = x.right;
    }
}

template <class D> static __device__ __forceinline__ uint32_t to_operands(uint32_t pair)
{
    return std::is_same_v<typename D::T, typename D::Operand> ? pair : bfloat16_to_float16(pair);
}

/* The unit's heads of the query as B operands: column n is head n, with zeros after the last head and after head_size.
 */
template <class D>
static __device__ __forceinline__ void load_query(decode_state<D> &state, const decode_row<D> *rows, int32_t heads,
                                                  int32_t head_size)
{
    const int32_t head = threadIdx.x % LANES / 4, j = threadIdx.x % 4;
#pragma unroll
    for (int k = 0; k < D::HEAD / 16; k++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int32_t d = k * 16 + (D::FP8 ? 4 * j + 2 * e : 2 * j + 8 * e);
            const bool there = head < heads && d < head_size;
            state.query[k][e] = there ? to_operands<D>(*(const uint32_t *)&rows[head][d]) : 0;
        }
}

/* The same for a group: the rows become operands where they are, in the order in which load_matrices wants them. */
template <class D>
static __device__ __forceinline__ void load_group_query(decode_state<D> &state, decode_row<D> *rows, int32_t columns,
                                                        int32_t head_size)
{
    for (int32_t i = threadIdx.x; i < D::COLUMNS * D::HEAD / 16; i += DECODE_THREADS) {
        const int32_t column = i / (D::HEAD / 16), d = i % (D::HEAD / 16) * 16;
        uint32_t *pairs = (uint32_t *)&rows[column][d], from[8];
#pragma unroll
        for (int n = 0; n < 8; n++) {
            const bool there = column < columns && d + 2 * n < head_size;
            from[n] = there ? to_operands<D>(pairs[n]) : 0;
        }
#pragma unroll
        for (int n = 0; n < 8; n++) pairs[D::FP8 ? n / 2 + n % 2 * 4 : n] = from[n];
    }
    __syncthreads();
    const int32_t lane = threadIdx.x % LANES;
    state.rows = shared_address(&rows[lane % 8][lane / 8 * 8]);
}

template <class D>
static __device__ __forceinline__ typename D::Element cache_element(typename D::T x, float inverse_scale,
                                                                    enum dtype cache)
{
    if constexpr (!D::FP8)
        return x;
    else if (cache == DTYPE_FP8_E5M2)
        return to_cache<__nv_fp8_e5m2>(to_float(x), inverse_scale).__x;
    else
        return to_cache<__nv_fp8_e4m3>(to_float(x), inverse_scale).__x;
}

/* Writes K and V of the token at `position` into its chunk, which is in `stage`, and into the cache, unless slot is
 * negative. */
template <class D>
static __device__ __forceinline__ void place_fresh(const chunk_source &source, const struct attention_call &call,
                                                   struct kv_scales scales, const typename D::T *key,
                                                   const typename D::T *value, int32_t position, int64_t slot,
                                                   uint8_t *stage)
{
    using Element = typename D::Element;
    constexpr int X = 16 / sizeof(Element), SIZE = sizeof(Element);
    const enum dtype cache = call.args.cache_dtype;
    const float k_inverse = 1.0f / scales.k, v_inverse = 1.0f / scales.v;
    const int32_t token = position % CHUNK, row = chunk_row<D>(token), bs = source.block_size;
    const int64_t block = slot >> source.log_block_size, offset = slot & (bs - 1);
    uint8_t *keys = (uint8_t *)source.keys + block * source.block_bytes + offset * 16;
    uint8_t *values = (uint8_t *)source.values + block * source.block_bytes + offset * SIZE;
    for (int32_t d = threadIdx.x % LANES * 2; d < source.head_size; d += LANES * 2) {
        const piece<Element, 2> k = {cache_element<D>(key[d], k_inverse, cache),
                                     cache_element<D>(key[d + 1], k_inverse, cache)};
        *(piece<Element, 2> *)(stage + (d / X * CHUNK + row) * 16 + d % X * SIZE) = k;
        if (slot >= 0) *(piece<Element, 2> *)(keys + d / X * bs * 16 + d % X * SIZE) = k;
        const int32_t half = D::FP8 ? 0 : token / 8 ^ d / 4 % 2;
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const Element v = cache_element<D>(value[d + e], v_inverse, cache);
            *(Element *)(stage + D::PART_BYTES + ((d + e) * (D::FP8 ? 1 : 2) + half) * 16 + token % X * SIZE) = v;
            if (slot >= 0) *(Element *)(values + (d + e) * bs * SIZE) = v;
        }
    }
}

/* Places the tokens of the run that are in the chunk of tokens from `start` on; only those of the unit's entries are
 * stored in the cache. Lane k has the slot of entry k. */
template <class D>
static __device__ __forceinline__ void place_run(const chunk_source &source, const struct attention_call &call,
                                                 struct kv_scales scales, const struct decode_unit &unit,
                                                 const decode_row<D> *rows, int64_t slot, int32_t start, uint8_t *stage)
{
    const int32_t first = source.end - unit.run, end = min(source.end, start + CHUNK);
    for (int32_t position = max(start, first); position < end; position++) {
        const int32_t row = position - first, entry = row - (unit.run - unit.entries);
        const int64_t place = __shfl_sync(~0u, slot, max(entry, 0));
        place_fresh<D>(source, call, scales, rows[row], rows[row + unit.run], position, entry >= 0 ? place : -1, stage);
    }
}

template <class D>
static __device__ __forceinline__ void begin_state(decode_state<D> &state, const struct attention_call &call,
                                                   const struct decode_unit &unit)
{
#pragma unroll
    for (int t = 0; t < D::TILES; t++) {
        for (int h = 0; h < 2; h++) {
            const int32_t column = t * UNIT_HEADS + threadIdx.x % 4 * 2 + h;
            state.max[t][h] = -INFINITY, state.sum[t][h] = 0, state.slopes[t][h] = 0;
            if (D::VARIANT && call.params.alibi_slopes && column < unit.columns)
                state.slopes[t][h] =
                    call.params.alibi_slopes[unit.head + (D::TILES > 1 ? column % unit.heads : column)];
        }
#pragma unroll
        for (int m = 0; m < D::HEAD / 16; m++)
            for (int e = 0; e < 4; e++) state.out[t][m][e] = 0;
    }
}

/* All chunks of the warp. fresh_rows: the rows of K of the run's tokens, followed by those of V; NULL if the cache has
 * them. */
template <class D>
static __device__ __forceinline__ void attend_chunks(decode_state<D> &state, const chunk_source &source,
                                                     chunk_copies &copies, const struct attention_call &call,
                                                     struct kv_scales scales, const struct decode_unit &unit,
                                                     const decode_row<D> *fresh_rows, int64_t slot)
{
    begin_state<D>(state, call, unit);
    for (int32_t i = 0; i < source.count; i++) {
        const int32_t start = (source.chunk + i * DECODE_WARPS) * CHUNK;
        uint8_t *stage = chunk_stage<D>(copies, i);
        wait_for_oldest(copies.stages);
        __syncwarp();
        if (fresh_rows && start + CHUNK >= source.end - (unit.run - 1)) {
            if constexpr (D::RUNS)
                place_run<D>(source, call, scales, unit, fresh_rows, slot, start, stage);
            else
                place_fresh<D>(source, call, scales, fresh_rows[0], fresh_rows[1], source.end - 1, slot, stage);
            __syncwarp();
        }
        if (D::FP8 && call.args.cache_dtype == DTYPE_FP8_E5M2)
            attend_chunk<D, true>(state, source, call, scales.k, shared_address(stage), start);
        else
            attend_chunk<D, false>(state, source, call, scales.k, shared_address(stage), start);
        __syncwarp();
        copy_next<D>(copies, source); /* into the stage that was read just now */
    }
    copy_async_wait<0>();
}

enum {
    MAX_CLUSTER = 8,   /* blocks: every device with clusters can run this many */
    LARGE_CLUSTER = 64 /* chunks: a cluster whose rings hold this many is large enough */
};

/* What the block's warps combine their results with; their outputs are in their rings. */
template <int COLUMNS> struct decode_merge {
    float max[DECODE_WARPS][COLUMNS], sum[DECODE_WARPS][COLUMNS];
    float2 stats[COLUMNS]; /* of the block: maximum and sum; its output takes the place of warp 0's */
    bool is_last;
};

/* Where element d of a column's output is in a ring, in floats: the lanes of a warp write to different banks. */
template <class D> static __device__ __forceinline__ int32_t merge_place(int32_t column, int32_t d)
{
    return column * D::HEAD + (d ^ column / 2 % 4 * 8);
}

template <class D>
static __device__ void leave_warp_sums(decode_state<D> &state, decode_merge<D::COLUMNS> *merge, float *out)
{
    const int32_t lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, i = lane / 4, j = lane % 4;
#pragma unroll
    for (int t = 0; t < D::TILES; t++) {
        const int32_t column = t * UNIT_HEADS + 2 * j;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float &sum = state.sum[t][h];
            for (int step = 4; step < LANES; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
            if (i == 0) merge->max[warp][column + h] = state.max[t][h], merge->sum[warp][column + h] = sum;
        }
#pragma unroll
        for (int m = 0; m < D::HEAD / 16; m++)
            for (int e = 0; e < 4; e++)
                out[merge_place<D>(column + e % 2, m * 16 + e / 2 * 8 + i)] = state.out[t][m][e];
    }
}

static __device__ __forceinline__ void add_scaled(float4 &sum, float weight, float4 x)
{
    sum.x += weight * x.x, sum.y += weight * x.y, sum.z += weight * x.z, sum.w += weight * x.w;
}

/* Combines results that were computed with different maxima. */
struct decode_join {
    float max, sum;
    float4 out;
};

static __device__ __forceinline__ void join_add(struct decode_join *join, float max, float sum, float4 out)
{
    const float weight = max == -INFINITY ? 0 : exp2_fast(max - join->max);
    join->sum += weight * sum;
    add_scaled(join->out, weight, out);
}

/* Multiplies 4 results of a token, from element i on, by their gates. */
template <class T>
static __device__ __forceinline__ void apply_gates(const struct output_gate_args &gate, int64_t token, int32_t i,
                                                   piece<T, 4> &x)
{
    const int32_t span = gate.size / gate.gate_size;
    const T *gates = (const T *)gate.gate + token * gate.gate_stride + i / span;
    piece<T, 4> own;
    if (span == 1)
        own = *(const piece<T, 4> *)gates;
    else
        own.values[0] = *gates;
#pragma unroll
    for (int k = 0; k < 4; k++)
        x.values[k] =
            from_float<T>(to_float(x.values[k]) * output_gate_of(gate.kind, to_float(own.values[span == 1 ? k : 0])));
}

/* Stores 4 elements, from d on, of the result of a token's head. */
template <class D>
static __device__ __forceinline__ void store_result(const struct attention_call &call, float v_scale, int64_t token,
                                                    int32_t head, int32_t d, const struct decode_join &join)
{
    using T = typename D::T;
    const float sum = join.sum + attention_sink_weight(&call.params, head, join.max);
    const float inverse = sum == 0 ? 0 : v_scale / sum;
    const int32_t size = v_head_size<D>(call.args);
    const uint2 pairs = make_uint2(pack_pair<T>(join.out.x * inverse, join.out.y * inverse),
                                   pack_pair<T>(join.out.z * inverse, join.out.w * inverse));
    piece<T, 4> x = *(const piece<T, 4> *)&pairs;
    if (call.gate.kind != OUTPUT_GATE_NONE) apply_gates(call.gate, token, head * size + d, x);
    *(piece<T, 4> *)((T *)call.args.out + (token * call.args.num_heads + head) * size + d) = x;
}

/* Stores 4 elements, from d on, of the unit's result for a column. */
template <class D>
static __device__ __forceinline__ void store_column(const struct attention_call &call, float v_scale,
                                                    const struct decode_unit &unit, const struct decode_join &join,
                                                    int32_t column, int32_t d)
{
    const int32_t entry = D::TILES > 1 ? column / unit.heads : 0;
    const int32_t head = unit.head + (D::TILES > 1 ? column % unit.heads : column);
    store_result<D>(call, v_scale, unit.token + 1 - unit.entries + entry, head, d, join);
}

/* Combines the warps' results for 4 elements of a column. */
template <class D>
static __device__ __forceinline__ struct decode_join join_warps(const uint8_t *rings, int32_t ring_bytes,
                                                                const decode_merge<D::COLUMNS> *merge, int32_t column,
                                                                int32_t d)
{
    struct decode_join join = {-INFINITY, 0, {}};
    for (int w = 0; w < DECODE_WARPS; w++) join.max = fmaxf(join.max, merge->max[w][column]);
    for (int w = 0; w < DECODE_WARPS; w++)
        join_add(&join, merge->max[w][column], merge->sum[w][column],
                 *(const float4 *)((const float *)(rings + w * ring_bytes) + merge_place<D>(column, d)));
    return join;
}

/* Combines the results of the cluster's blocks, each of which has called join_block. */
template <class D>
static __device__ __forceinline__ struct decode_join join_cluster(const uint8_t *rings,
                                                                  const decode_merge<D::COLUMNS> *merge,
                                                                  int32_t cluster, int32_t column, int32_t d)
{
    struct decode_join join = {-INFINITY, 0, {}};
    const float *from = (const float *)rings + merge_place<D>(column, d);
    float2 stats[MAX_CLUSTER];
    float4 out[MAX_CLUSTER];
#pragma unroll
    for (int r = 0; r < MAX_CLUSTER; r++) { /* all loads are started before the first result is used */
        stats[r] = r < cluster ? cluster_load_2(cluster_address(&merge->stats[column], r)) : make_float2(-INFINITY, 0);
        out[r] = r < cluster ? cluster_load_4(cluster_address(from, r)) : make_float4(0, 0, 0, 0);
        join.max = fmaxf(join.max, stats[r].x);
    }
#pragma unroll
    for (int r = 0; r < MAX_CLUSTER; r++) join_add(&join, stats[r].x, stats[r].y, out[r]);
    return join;
}

template <class D>
static __device__ __forceinline__ void join_block(uint8_t *rings, int32_t ring_bytes, decode_merge<D::COLUMNS> *merge,
                                                  int32_t columns)
{
    for (int32_t index = threadIdx.x * 4; index < columns * D::HEAD; index += DECODE_THREADS * 4) {
        const int32_t column = index / D::HEAD, d = index % D::HEAD;
        const struct decode_join join = join_warps<D>(rings, ring_bytes, merge, column, d);
        *(float4 *)((float *)rings + merge_place<D>(column, d)) = join.out;
        if (d == 0) merge->stats[column] = make_float2(join.max, join.sum);
    }
}

/* Combines a unit's parts, from the workspace, and writes the unit's result. */
template <class D>
static __device__ __forceinline__ void join_parts(const struct decode_work &work, const struct decode_plan &plan,
                                                  const struct attention_call &call, float v_scale,
                                                  const struct decode_unit &unit)
{
    const int32_t head_size = v_head_size<D>(call.args);
    for (int32_t index = threadIdx.x * 4; index < unit.columns * D::HEAD; index += DECODE_THREADS * 4) {
        const int32_t column = index / D::HEAD, d = index % D::HEAD;
        if (d >= head_size) continue;
        struct decode_join join = {-INFINITY, 0, {}};
#pragma unroll 4
        for (int p = 0; p < work.parts; p++)
            join.max =
                fmaxf(join.max, __ldcg(plan.stats + ((int64_t)(work.first_partial + p) * D::COLUMNS + column) * 2));
#pragma unroll 4
        for (int p = 0; p < work.parts; p++) {
            const int64_t place = (int64_t)(work.first_partial + p) * D::COLUMNS + column;
            const float2 stats = __ldcg((const float2 *)(plan.stats + place * 2));
            join_add(&join, stats.x, stats.y, __ldcg((const float4 *)(plan.partials + place * D::HEAD + d)));
        }
        store_column<D>(call, v_scale, unit, join, column, d);
    }
}

/* Combines the results of the warps and of the cluster's blocks, each of which does a slice of the output, and writes
 * the unit's result, or the part's partial. */
template <class D>
static __device__ void finish_work(const struct decode_work &work, const struct decode_plan &plan,
                                   const struct attention_call &call, float v_scale, const struct decode_unit &unit,
                                   uint8_t *rings, decode_merge<D::COLUMNS> *merge)
{
    const int32_t head_size = v_head_size<D>(call.args), cluster = plan.cluster;
    const int32_t slice = unit.columns * D::HEAD / cluster, ring_bytes = plan.stages * D::STAGE_BYTES;
    const int32_t first = cluster > 1 ? (int32_t)blockIdx.x % cluster * slice : 0;
    if (cluster > 1) {
        join_block<D>(rings, ring_bytes, merge, unit.columns);
        cluster_arrive();
        cluster_wait();
    }
    for (int32_t index = first + threadIdx.x * 4; index < first + slice; index += DECODE_THREADS * 4) {
        const int32_t column = index / D::HEAD, d = index % D::HEAD;
        if (d >= head_size) continue;
        const struct decode_join join = cluster > 1 ? join_cluster<D>(rings, merge, cluster, column, d)
                                                    : join_warps<D>(rings, ring_bytes, merge, column, d);
        if (work.parts == 1) {
            store_column<D>(call, v_scale, unit, join, column, d);
            continue;
        }
        const int64_t place = (int64_t)(work.first_partial + work.part) * D::COLUMNS + column;
        *(float4 *)(plan.partials + place * D::HEAD + d) = join.out;
        if (d == 0) *(float2 *)(plan.stats + place * 2) = make_float2(join.max, join.sum);
    }
    if (cluster > 1) cluster_arrive(); /* no block ends before all have read its shared memory */
    if (work.parts > 1) {
        const uint32_t blocks = work.parts * cluster;
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) /* counts to blocks - 1, then back to 0 */
            merge->is_last = atomicInc(&plan.counters[work.first_partial], blocks - 1) == blocks - 1;
        __syncthreads();
        if (merge->is_last) {
            __threadfence();
            join_parts<D>(work, plan, call, v_scale, unit);
        }
    }
    if (cluster > 1) cluster_wait();
}

/* The slots of the unit's tokens: of a run, lane k has that of entry k. -1: K and V are not stored. */
template <class D>
static __device__ __forceinline__ int64_t find_slot(const struct decode_fresh &fresh, const struct decode_unit &unit)
{
    if constexpr (!D::RUNS) return fresh.slots[unit.token];
    const int32_t lane = threadIdx.x % LANES;
    return lane < unit.entries ? fresh.slots[unit.token + 1 - unit.entries + lane] : -1;
}

/* Loads the block's rows, and makes operands of the queries. */
template <class D, bool ANY>
static __device__ __forceinline__ void prepare_rows(decode_state<D> &state, decode_row<D> *rows,
                                                    const struct attention_call &call, const struct decode_fresh &fresh,
                                                    const struct decode_unit &unit, bool has_fresh)
{
    const int32_t count = unit.columns + (has_fresh ? 2 * unit.run : 0);
    if constexpr (D::TILES > 1) {
        load_group_rows<D>(rows, call, fresh, unit, count);
        __syncthreads();
        load_group_query<D>(state, rows, unit.columns, call.args.head_size);
    } else {
        load_rows<D, ANY>(rows, call, fresh, unit, count);
        __syncthreads();
        load_query<D>(state, rows, unit.columns, call.args.head_size);
    }
}

template <class D, bool ANY>
static __device__ __forceinline__ void do_work(const struct decode_work &work, const struct decode_plan &plan,
                                               const struct attention_call &call, const struct decode_fresh &fresh,
                                               uint8_t *rings, decode_row<D> *rows, decode_merge<D::COLUMNS> *merge)
{
    const struct attention_args &args = call.args;
    const int64_t token = args.query_start[args.first_seq + work.seq];
    const struct decode_range &range = work.range;
    const int32_t kv_head = work.unit / plan.units_per_head, group = args.num_heads / args.num_kv_heads;
    const int32_t in_group = work.unit % plan.units_per_head * UNIT_HEADS, head = kv_head * group + in_group;
    const int32_t heads = min(group - in_group, (int32_t)UNIT_HEADS), warp = threadIdx.x / LANES;
    constexpr int64_t SIZE = D::FP8 ? 1 : 2;
    const int64_t k_bytes = SIZE * args.head_size * args.block_size; /* of a head in a block */
    const int64_t v_bytes = SIZE * v_head_size<D>(args) * args.block_size;
    const int32_t begin = work.begin + warp, entries = D::TILES > 1 ? range.entries : 1;
    const struct chunk_source source = {(const uint8_t *)args.k_cache + kv_head * k_bytes,
                                        (const uint8_t *)args.v_cache + kv_head * v_bytes,
                                        SIZE * args.block_stride,
                                        args.block_tables + work.state_index * args.block_table_stride,
                                        args.head_size,
                                        v_head_size<D>(args),
                                        args.block_size,
                                        plan.log_block_size,
                                        range.first,
                                        range.end,
                                        range.chunk + begin,
                                        max(work.end - begin + DECODE_WARPS - 1, 0) / DECODE_WARPS,
                                        D::TILES > 1 ? attention_first(&call.params, range.end - 1) : range.first,
                                        range.end + 1 - entries,
                                        (65536u + heads - 1) / heads};
    uint8_t *ring = rings + warp * plan.stages * D::STAGE_BYTES;
    chunk_copies copies = begin_copies<D>(source, ring, plan.stages);
    const struct kv_scales scales = kv_scales_load(&call.params, D::FP8);
    const struct decode_unit unit = {token, kv_head, head, heads, entries, D::RUNS ? range.run : 1, heads * entries};
    const bool has_last = D::RUNS ? (range.chunk + work.end) * CHUNK > range.end - unit.run : work.end == range.count;
    const bool has_fresh = fresh.key && work.begin < work.end && has_last;
    /* Only one unit of a KV head writes to the cache. */
    const int64_t slot = has_fresh && in_group == 0 ? find_slot<D>(fresh, unit) : -1;
    decode_state<D> state;
    prepare_rows<D, ANY>(state, rows, call, fresh, unit, has_fresh);
    const int32_t first_fresh = D::TILES > 1 ? (int32_t)D::COLUMNS : unit.columns;
    attend_chunks<D>(state, source, copies, call, scales, unit, has_fresh ? rows + first_fresh : NULL, slot);
    leave_warp_sums<D>(state, merge, (float *)ring);
    __syncthreads();
    finish_work<D>(work, plan, call, scales.v, unit, rings, merge);
}

/* ANY: heads may be normed, and rotated in any way. Without it they are not normed, and rotated as a whole or not at
 * all, which is what most models do. */
template <class D, bool ANY>
static __global__ void __launch_bounds__(DECODE_THREADS, D::BLOCKS_PER_SM)
    decode_kernel(const __grid_constant__ struct attention_call call, const __grid_constant__ struct decode_plan plan,
                  const __grid_constant__ struct decode_fresh fresh)
{
    extern __shared__ __align__(128) uint8_t rings[];
    __shared__ decode_merge<D::COLUMNS> merge;
    __shared__ __align__(16) decode_row<D> rows[D::ROWS];
    struct decode_work work;
    let_next_start();
    if (!fresh.key) wait_for_previous(); /* the previous kernel may have written the cache */
    if (!decode_work_of<D::RUNS>(&work, &call, &plan)) {
        if (blockIdx.x == 0) wait_for_previous(); /* a block has to (dependent.cuh), and perhaps none has work */
        return;
    }
    if constexpr (D::RUNS) {
        const int32_t columns = work.range.entries * plan.unit_heads;
        if (work.range.entries > 1 && columns <= 2 * UNIT_HEADS)
            return do_work<group_traits<D, 2>, true>(work, plan, call, fresh, rings, rows, &merge);
        if (work.range.entries > 1)
            return do_work<group_traits<D, D::MAX_TILES>, true>(work, plan, call, fresh, rings, rows, &merge);
    }
    do_work<D, ANY>(work, plan, call, fresh, rings, rows, &merge);
}

/* How many parts a call is cut into: two for each multiprocessor. With runs there is room for no more blocks than that
 * at a time, and fewer parts leave room for clusters, which do not fit everywhere, and for blocks without work: there
 * may be hundreds, and the next kernel cannot start before they have. */
static int32_t target_parts(const struct cuda_state *s, bool runs)
{
    return runs ? s->num_sms + s->num_sms / 2 : 2 * s->num_sms;
}

int64_t cuda_attention_workspace(const struct cuda_state *s, const struct workspace_query *query)
{
    /* A part's outputs and their stats: 32 columns of heads of up to 128, or 16 of larger ones. */
    const int64_t floats = 32 * (padded_head_size(query->head_size) == 64 ? 64 : 128) + 2 * 32;
    return 2 * target_parts(s, false) * (int64_t)(sizeof(uint32_t) + floats * sizeof(float));
}

/* Whether the rings fit beside the kernel's static shared memory. */
static bool rings_fit(const struct cuda_state *s, int32_t stages, int32_t stage_bytes)
{
    enum { NOT_DYNAMIC = 20480 };
    return DECODE_WARPS * stages * stage_bytes <= s->max_shared_bytes - NOT_DYNAMIC;
}

static int32_t min_int(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static bool is_for_tensor_cores(const struct attention_args *args)
{
    const bool fp8 = dtype_size(args->cache_dtype) == 1;
    return args->dtype != DTYPE_FLOAT32 && (args->cache_dtype == args->dtype || fp8) &&
           !(fp8 && (args->block_size < 16 || (args->head_size | args->v_head_size) % 16 != 0)) &&
           !attention_is_sparse(args->params) && (args->head_size | args->v_head_size) % 8 == 0 &&
           args->head_size <= 256 && args->v_head_size <= 256 && args->query_stride % 4 == 0 &&
           (uintptr_t)args->query % 8 == 0 && (uintptr_t)args->out % 8 == 0 && cuda_is_aligned(args->k_cache) &&
           cuda_is_aligned(args->v_cache);
}

/* A cluster has as many blocks as the GPU has room for, until its rings hold LARGE_CLUSTER chunks, or twice as many of
 * fp8, which take as long to convert. What fits into the rings is copied while the previous kernel still runs, so more
 * blocks would gain nothing. */
template <class D>
static struct decode_plan make_plan(const struct cuda_state *s, const struct attention_args *args, bool may_split)
{
    const struct cuda_region *region = &s->regions[CUDA_USER_ATTENTION];
    /* The same with and without runs: the counters stay where they are. */
    const int64_t partials = 2 * target_parts(s, false), group = args->num_heads / args->num_kv_heads;
    struct decode_plan plan = {};
    plan.cluster = 1;
    plan.units_per_head = (int32_t)cuda_div_up(group, UNIT_HEADS);
    while (1 << plan.log_block_size < args->block_size) plan.log_block_size++;
    plan.counters = (uint32_t *)region->data;
    plan.unit_heads = min_int((int32_t)group, UNIT_HEADS);
    plan.group_entries = min_int(1 + MAX_DRAFTS, D::COLUMNS / plan.unit_heads);
    plan.stats = (float *)(plan.counters + partials);
    plan.partials = plan.stats + partials * D::COLUMNS * 2;
    const int64_t units = (int64_t)args->num_seqs * args->num_kv_heads * plan.units_per_head;
    plan.stages = units <= target_parts(s, D::RUNS) ? D::STAGES : D::LEAST_STAGES;
    if (!rings_fit(s, plan.stages, D::STAGE_BYTES)) plan.stages = 1;
    const float *end = plan.partials + partials * D::COLUMNS * D::HEAD;
    const bool fits = region->data && (const uint8_t *)end <= region->data + region->bytes;
    if (!may_split || !fits || args->max_seq_len <= CHUNK * DECODE_WARPS) return plan;
    constexpr int32_t large = (D::FP8 ? 2 : 1) * LARGE_CLUSTER / (DECODE_WARPS * D::STAGES);
    constexpr int32_t most = large < MAX_CLUSTER ? large : MAX_CLUSTER;
    while (s->compute_capability >= 90 && plan.cluster < most && 2 * units * plan.cluster <= target_parts(s, D::RUNS))
        plan.cluster *= 2;
    plan.target = target_parts(s, D::RUNS) / plan.cluster;
    return plan;
}

/* A call of the kernel, before its types are known. */
struct decode_launch {
    struct backend *b;
    const struct attention_args *args;
    struct decode_fresh fresh;
    bool may_split;
    struct output_gate_args gate;
};

template <class D, bool ANY> static void launch(const struct decode_launch *l)
{
    const struct cuda_state *s = cuda_use(l->b);
    const struct decode_plan plan = make_plan<D>(s, l->args, l->may_split);
    const int shared_bytes = DECODE_WARPS * plan.stages * D::STAGE_BYTES;
    const int64_t units = (int64_t)l->args->num_seqs * l->args->num_kv_heads * plan.units_per_head;
    const dim3 grid((unsigned)((units + plan.target) * plan.cluster));
    struct attention_call call = attention_call_make(l->args);
    call.gate = l->gate;
    if (!cuda_allow_shared(l->b, "paged attention", decode_kernel<D, ANY>, shared_bytes)) return;
    cuda_launch_dependent(s, decode_kernel<D, ANY>, {grid, DECODE_THREADS, shared_bytes, plan.cluster}, call, plan,
                          l->fresh);
    cuda_check_launch(l->b, "paged attention");
}

/* Whether a kernel for runs is needed: there may be groups, or entries whose run is not in the cache yet. */
static bool needs_runs(const struct decode_launch *l)
{
    const bool is_long = l->args->max_seq_len > (LEAST_GROUP_CHUNKS - 1) * CHUNK;
    return l->args->max_run_len > 1 && (l->fresh.key || is_long);
}

template <class T, bool FP8, int HEAD>
static void launch_variant(attention_types<T, FP8, HEAD>, const struct decode_launch *l)
{
    const struct decode_fresh *f = &l->fresh;
    const bool whole = f->rotary_dim == 0 || f->rotary_dim == l->args->head_size;
    const bool modifies = attention_modifies_scores(l->args->params);
    if (attention_has_two_sizes(l->args))
        launch<decode_traits<T, FP8, 256, true, true>, false>(l);
    else if (needs_runs(l) && modifies)
        launch<decode_traits<T, FP8, HEAD, true, false, true>, true>(l);
    else if (needs_runs(l))
        launch<decode_traits<T, FP8, HEAD, false, false, true>, true>(l);
    else if (modifies)
        launch<decode_traits<T, FP8, HEAD, true>, true>(l);
    else if (f->norms.query_gain || f->interleaved || !whole)
        launch<decode_traits<T, FP8, HEAD, false>, true>(l);
    else
        launch<decode_traits<T, FP8, HEAD, false>, false>(l);
}

static void launch_call(const struct decode_launch *l)
{
    if (l->args->num_seqs > 0) attention_dispatch(l->args, [&](auto types) { launch_variant(types, l); });
}

static void decode(struct backend *b, const struct attention_args *args, bool may_split)
{
    if (is_for_tensor_cores(args)) {
        const struct decode_launch call = {b, args, {}, may_split, {}};
        launch_call(&call);
    } else {
        cuda_attention_generic(b, args);
    }
}

void cuda_paged_attention_v1(struct backend *b, const struct attention_args *args)
{
    decode(b, args, false);
}

void cuda_paged_attention_v2(struct backend *b, const struct attention_args *args)
{
    decode(b, args, true);
}

/* Whether there is a kernel for these norms; *out is set if there are any. */
static bool norms_of(const struct rotary_args *rotary, struct decode_norms *out)
{
    const struct norm_params *query = rotary->query_norm, *key = rotary->key_norm;
    if (!query && !key) return true;
    if (!query || !key || query->type != NORM_RMS || key->type != NORM_RMS || query->gain_dtype != key->gain_dtype ||
        !gains_are_aligned<4>(query) || !gains_are_aligned<4>(key))
        return false;
    *out = {query->gain, key->gain, query->gain_dtype, query->eps, key->eps};
    return query->gain_dtype == DTYPE_FLOAT32 || query->gain_dtype == rotary->dtype;
}

/* Whether the gates can be read with 4 results. */
static bool takes_gate(const struct output_gate_args *gate)
{
    if (gate->kind == OUTPUT_GATE_NONE) return true;
    if (gate->size != gate->gate_size) return gate->size / gate->gate_size % 4 == 0;
    return gate->gate_stride % 4 == 0 && (uintptr_t)gate->gate % 8 == 0;
}

bool cuda_decode_attention(struct backend *b, const struct decode_attention_args *args)
{
    const struct rotary_args *rotary = &args->rotary;
    const struct attention_args *attention = &args->attention;
    struct decode_fresh fresh = {rotary->key,
                                 args->cache.value,
                                 rotary->key_stride,
                                 args->cache.kv_stride,
                                 rotary->positions,
                                 rotary->rotary_dim > 0 ? rotary->cos_sin : NULL,
                                 args->cache.slot_mapping,
                                 {},
                                 rotary->rotary_dim,
                                 rotary->interleaved};
    const bool aligned = fresh.key_stride % 4 == 0 && fresh.value_stride % 4 == 0 && (uintptr_t)fresh.key % 8 == 0 &&
                         (uintptr_t)fresh.value % 8 == 0 && cuda_is_aligned(fresh.cos_sin);
    if (!aligned || !takes_gate(&args->gate) || rotary->rotary_dim % 8 != 0 || attention_has_two_sizes(attention) ||
        !norms_of(rotary, &fresh.norms) || !is_for_tensor_cores(attention))
        return false;
    const bool may_split = !paged_attention_use_v1(attention->max_seq_len, attention->num_seqs, attention->num_heads);
    const struct decode_launch call = {b, attention, fresh, may_split, args->gate};
    launch_call(&call);
    return true;
}
