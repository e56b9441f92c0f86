/* Paged attention for decode on tensor cores: one query token a sequence, 16-bit activations, and a cache of the same
 * type or of fp8. The cost is to read K and V once, at the speed of memory.
 *
 * A warp takes every DECODE_WARPS-th chunk of its block's work, copies its chunks into a ring of its own, several
 * chunks ahead, and does not need the other warps until the end. With tokens as rows and the unit's heads as columns it
 * computes for each chunk
 *
 *     S [16 tokens x 8 heads] = K Q^T,    O [v_head_size x 8 heads] += V^T P.
 *
 * Kernels for runs have the heads of several entries as columns, in two tiles of 8 where registers suffice, so that a
 * tile of K or V is loaded, and converted from fp8, once for both. Their columns have ends of their own.
 *
 * So K and V are the A operands, in rows of 16 bytes as they are in the cache, and a lane has the same heads in the
 * layouts of S and of O: neither the maximum nor rescaling needs an exchange between lanes of different heads. P is
 * brought from the C layout to the B layout by transposing 8x8 matrices.
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
 * token's K and V into that chunk and into the cache. Of a run, every unit writes K and V of all entries up to its last
 * into its chunks, and those of its own entries into the cache: K is rotated again by each unit, and no unit waits for
 * another. Everything else that the kernel reads was there before the step. So it finds its work and fills its rings
 * while the matmul that makes query, K and V still runs. */
#include <type_traits>

#include "kernels/cuda/attention/decode.cuh"
#include "kernels/cuda/attention/attention_mma.cuh"
#include "kernels/cuda/cache.cuh"
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/rotary.cuh"

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

/* Rows of the unit's query tokens: the unit's columns of the query, then K and V of the tokens that are not in the
 * cache yet, first all of K, if this block has chunks that they belong to. */
template <class D> struct decode_rows {
    alignas(16) typename D::T values[D::COLUMNS + 2 * D::FRESH][D::ROW_STRIDE];
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

/* Two operands A of 16-bit elements from what load_matrices made of 16 rows of 32 fp8 numbers. */
template <bool E5M2> static __device__ __forceinline__ void convert_matrices(const uint32_t r[4], uint32_t a[2][4])
{
#pragma unroll
    for (int m = 0; m < 4; m++) fp8_to_float16<E5M2>(r[m], a[m / 2][m % 2], a[m / 2][m % 2 + 2]);
}

/* S = K Q^T. */
template <class D, bool E5M2>
static __device__ __forceinline__ void multiply_keys(const decode_state<D> &state, uint32_t stage,
                                                     float scores[D::TILES][4])
{
    using Operand = typename D::Operand;
    const uint32_t address = stage + threadIdx.x % LANES * 16;
    float sums[D::TILES][2][4] = {};
#pragma unroll
    for (int p = 0; p < D::PART_BYTES / 512; p++) {
        uint32_t r[4], a[2][4];
        load_matrices(r, address + p * 512);
        if constexpr (D::FP8) convert_matrices<E5M2>(r, a);
#pragma unroll
        for (int t = 0; t < D::TILES; t++) {
            const auto &query = state.query[t];
            if constexpr (D::FP8) {
                multiply_add<Operand>(sums[t][0], a[0], query[2 * p][0], query[2 * p][1]);
                multiply_add<Operand>(sums[t][1], a[1], query[2 * p + 1][0], query[2 * p + 1][1]);
            } else {
                multiply_add<Operand>(sums[t][p % 2], r, query[p][0], query[p][1]);
            }
        }
    }
#pragma unroll
    for (int t = 0; t < D::TILES; t++)
        for (int e = 0; e < 4; e++) scores[t][e] = sums[t][0][e] + sums[t][1][e];
}

/* A mask with `bits` bits for each of the tokens from + 0, 1, ... 32 / bits - 1: ones if the query attends to it. */
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

/* Whether the scores of this call have a soft cap or ALiBi: kernels for runs find out as they run. */
template <class D> static __device__ __forceinline__ bool modifies_scores(const struct attention_call &call)
{
    return D::RUNS ? call.params.alibi_slopes || call.params.soft_cap > 0 : D::VARIANT;
}

/* Scores as powers of 2, which are minus infinity where the query does not attend to the token. */
template <class D>
static __device__ __forceinline__ void scale_scores(float s[4], const decode_state<D> &state, int32_t tile,
                                                    const chunk_source &source, const struct attention_call &call,
                                                    float scale, int32_t start, bool partial)
{
    const int32_t row = threadIdx.x % LANES / 4;
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const int32_t token = start + chunk_token<D>(row + e / 2 * 8);
        const int32_t end = D::RUNS ? state.end[tile][e % 2] : source.end;
        if (modifies_scores<D>(call)) {
            s[e] = attention_modify_fast(&call.params, s[e] * scale, state.slopes[tile][e % 2], token - end + 1) *
                   ATTENTION_LOG2E;
        } else {
            s[e] *= scale * ATTENTION_LOG2E;
        }
        if (!partial) continue;
        const int32_t first = D::RUNS ? attention_first(&call.params, end - 1) : source.first;
        if (token < first || token >= end) s[e] = -INFINITY;
    }
}

/* Adds a chunk, which is in `stage`, to the softmax. */
template <class D, bool E5M2>
static __device__ __forceinline__ void attend_chunk(decode_state<D> &state, const chunk_source &source,
                                                    const struct attention_call &call, float k_scale, uint32_t stage,
                                                    int32_t start)
{
    const bool partial = D::RUNS ? start < source.all_first || start + CHUNK > source.all_end
                                 : start < source.first || start + CHUNK > source.end;
    float scores[D::TILES][4];
    uint32_t b[D::TILES][2];
    multiply_keys<D, E5M2>(state, stage, scores);
#pragma unroll
    for (int t = 0; t < D::TILES; t++) {
        float *s = scores[t], factor[2], p[4];
        scale_scores<D>(s, state, t, source, call, call.params.scale * k_scale, start, partial);
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

/* A lane's share of a row: 4 elements from `left` on, and the 4 from `right` on, which rotation pairs them with. */
struct row_share {
    int32_t left, right;
    bool there;   /* the row has such elements */
    bool rotated; /* they are rotated */
};

/* By which angles. */
struct row_angles {
    piece<float, 4> cos, sin;
};

/* HEAD / 8 lanes share a row. */
template <class D, bool ANY>
static __device__ __forceinline__ row_share share_row(const struct decode_fresh &fresh, int32_t head_size)
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
    return share;
}

template <class D, bool ANY>
static __device__ __forceinline__ row_angles load_angles(const struct decode_fresh &fresh, const row_share &share,
                                                         int64_t token, int32_t head_size)
{
    const int32_t i = threadIdx.x % (D::HEAD / 8), rotary_dim = ANY ? fresh.rotary_dim : head_size;
    row_angles out = {};
    if (fresh.cos_sin && share.there && share.rotated) {
        const float *angles = fresh.cos_sin + (int64_t)fresh.positions[token] * rotary_dim + 4 * i;
        out.cos = *(const piece<float, 4> *)angles;
        out.sin = *(const piece<float, 4> *)(angles + rotary_dim / 2);
    }
    return out;
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

/* What all rows of a block are prepared with. The gains, which no kernel writes, are read before the wait. */
struct row_preparation {
    row_share share;
    row_gains query_gains, key_gains;
    int32_t head_size;
    bool normed;
};

template <class D, bool ANY>
static __device__ __forceinline__ row_preparation prepare_rows(const struct attention_call &call,
                                                               const struct decode_fresh &fresh)
{
    const struct decode_norms &norms = fresh.norms;
    row_preparation p;
    p.head_size = call.args.head_size;
    p.share = share_row<D, ANY>(fresh, p.head_size);
    p.normed = ANY && norms.query_gain;
    if (p.normed && p.share.there) {
        p.query_gains = load_row_gains(norms.query_gain, norms.gain_dtype, p.share);
        p.key_gains = load_row_gains(norms.key_gain, norms.gain_dtype, p.share);
    }
    return p;
}

/* A row of the query, of K or of V: the lane's share of it. */
template <class T> struct row_pieces {
    piece<T, 4> left, right;
    bool is_query, is_key;
    bool there; /* this lane has a share of a row */
};

/* Norms and rotates rows of query and key, and stores them. */
template <class D, bool ANY>
static __device__ __forceinline__ void finish_row(typename D::T *to, row_pieces<typename D::T> &row,
                                                  const row_preparation &p, const row_angles &angles,
                                                  const struct decode_fresh &fresh)
{
    const struct decode_norms &norms = fresh.norms;
    if (p.normed) {
        const float eps = row.is_query ? norms.query_eps : norms.key_eps;
        const float squares = add_squares(add_squares(0, row.left), row.right);
        const float factor = head_norm_factor(squares, D::HEAD / 8, p.head_size, eps);
        if (row.is_query) apply_row_gains(row.left, row.right, factor, p.query_gains, norms.gain_dtype);
        if (row.is_key) apply_row_gains(row.left, row.right, factor, p.key_gains, norms.gain_dtype);
    }
    if (fresh.cos_sin && p.share.rotated && (row.is_query || row.is_key))
        rotate_pieces(row.left, row.right, angles.cos.values, angles.sin.values, ANY && fresh.interleaved);
    if (!row.there) return;
    *(piece<typename D::T, 4> *)(to + p.share.left) = row.left;
    *(piece<typename D::T, 4> *)(to + p.share.right) = row.right;
}

/* Loads the rows of the block's token when the previous kernels have ended: `heads` of the query, then K and V if
 * has_fresh. */
template <class D, bool ANY>
static __device__ __forceinline__ void load_rows(decode_rows<D> *rows, const struct attention_call &call,
                                                 const struct decode_fresh &fresh, const struct decode_unit &unit,
                                                 bool has_fresh)
{
    using T = typename D::T;
    constexpr int ROW_LANES = D::HEAD / 8, ROWS_AT_ONCE = DECODE_THREADS / ROW_LANES;
    const int32_t head_size = call.args.head_size, heads = unit.heads, count = has_fresh ? heads + 2 : heads;
    const T *query = (const T *)call.args.query + unit.token * call.args.query_stride + (int64_t)unit.head * head_size;
    const T *key = (const T *)fresh.key + unit.token * fresh.key_stride + (int64_t)unit.kv_head * head_size;
    const T *value = (const T *)fresh.value + unit.token * fresh.value_stride + (int64_t)unit.kv_head * head_size;
    const row_preparation p = prepare_rows<D, ANY>(call, fresh);
    const row_angles angles = load_angles<D, ANY>(fresh, p.share, unit.token, head_size);
    wait_for_previous();
    /* With ANY all lanes of a warp make the same number of rounds, because they may exchange sums. */
    const int32_t row = threadIdx.x / ROW_LANES;
    for (int32_t first = 0; first + (ANY ? 0 : row) < count && (ANY || p.share.there); first += ROWS_AT_ONCE) {
        const int32_t r = first + row;
        row_pieces<T> x = {{}, {}, r < heads, r == heads, !ANY || (r < count && p.share.there)};
        const T *from = r < heads ? query + r * head_size : r == heads ? key : value;
        if (x.there)
            x.left = *(const piece<T, 4> *)(from + p.share.left),
            x.right = *(const piece<T, 4> *)(from + p.share.right);
        finish_row<D, ANY>(rows->values[r], x, p, angles, fresh);
    }
}

/* The same for a unit of several tokens: its columns of the query, then K of the run's tokens, then V, if has_fresh.
 * Everything is loaded before the first row is prepared. */
template <class D>
static __device__ __forceinline__ void load_run_rows(decode_rows<D> *rows, const struct attention_call &call,
                                                     const struct decode_fresh &fresh, const struct decode_unit &unit,
                                                     bool has_fresh)
{
    using T = typename D::T;
    constexpr int ROW_LANES = D::HEAD / 8, ROWS_AT_ONCE = DECODE_THREADS / ROW_LANES;
    constexpr int ROUNDS = (D::COLUMNS + 2 * D::FRESH + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE;
    const int32_t head_size = call.args.head_size, columns = unit.columns<D>();
    const int32_t values = columns + unit.run, count = has_fresh ? values + unit.run : columns;
    const int64_t first_token = unit.token + unit.entries - unit.run, kv_offset = (int64_t)unit.kv_head * head_size;
    const row_preparation p = prepare_rows<D, true>(call, fresh);
    row_angles angles[ROUNDS];
    row_pieces<T> pieces[ROUNDS];
    const T *from[ROUNDS];
#pragma unroll
    for (int n = 0; n < ROUNDS; n++) {
        const int32_t r = n * ROWS_AT_ONCE + (int32_t)threadIdx.x / ROW_LANES;
        const bool is_query = r < columns, is_key = !is_query && r < values;
        const int64_t token = is_query ? unit.token + unit.entry<D>(r) : first_token + r - (is_key ? columns : values);
        pieces[n] = {{}, {}, is_query, is_key, r < count && p.share.there};
        if (is_query)
            from[n] =
                (const T *)call.args.query + token * call.args.query_stride + (int64_t)unit.head_of<D>(r) * head_size;
        else
            from[n] = is_key ? (const T *)fresh.key + token * fresh.key_stride + kv_offset
                             : (const T *)fresh.value + token * fresh.value_stride + kv_offset;
        angles[n] = {};
        if (r < count && (is_query || is_key)) angles[n] = load_angles<D, true>(fresh, p.share, token, head_size);
    }
    wait_for_previous();
#pragma unroll
    for (int n = 0; n < ROUNDS; n++)
        if (pieces[n].there) {
            pieces[n].left = *(const piece<T, 4> *)(from[n] + p.share.left);
            pieces[n].right = *(const piece<T, 4> *)(from[n] + p.share.right);
        }
#pragma unroll
    for (int n = 0; n < ROUNDS; n++)
        if (n * ROWS_AT_ONCE < count)
            finish_row<D, true>(rows->values[n * ROWS_AT_ONCE + (int32_t)threadIdx.x / ROW_LANES], pieces[n], p,
                                angles[n], fresh);
}

/* The unit's columns of the query as B operands, with zeros after the last one and after head_size. */
template <class D>
static __device__ __forceinline__ void load_query(decode_state<D> &state, const decode_rows<D> *rows, int32_t columns,
                                                  int32_t head_size)
{
    const int32_t j = threadIdx.x % 4;
#pragma unroll
    for (int t = 0; t < D::TILES; t++) {
        const int32_t column = t * TILE_COLUMNS + threadIdx.x % LANES / 4;
#pragma unroll
        for (int k = 0; k < D::HEAD / 16; k++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int32_t d = k * 16 + (D::FP8 ? 4 * j + 2 * e : 2 * j + 8 * e);
                const bool there = column < columns && d < head_size;
                const uint32_t pair = there ? *(const uint32_t *)&rows->values[column][d] : 0;
                state.query[t][k][e] =
                    std::is_same_v<typename D::T, typename D::Operand> ? pair : bfloat16_to_float16(pair);
            }
    }
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

/* Writes K and V of a token that is not in the cache yet into its chunk, which is in `stage`, and into the cache,
 * unless slot is negative. */
template <class D>
static __device__ __forceinline__ void place_token(const chunk_source &source, const struct attention_call &call,
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

/* What of the last tokens is not in the cache yet: rows of K, then as many of V. `slot`: where to store the last one;
 * with runs, lane k has that of token k. */
template <class D> struct fresh_rows {
    const typename D::T (*rows)[D::ROW_STRIDE]; /* NULL: all is in the cache */
    int32_t count;
    int64_t slot;
};

/* Places those that are in the chunk of tokens from `start` on. */
template <class D>
static __device__ __forceinline__ void place_fresh(const chunk_source &source, const struct attention_call &call,
                                                   struct kv_scales scales, const fresh_rows<D> &fresh, int32_t start,
                                                   uint8_t *stage)
{
    const int32_t count = D::RUNS ? fresh.count : 1, first = source.end - count; /* position of the first of them */
    if (!fresh.rows || start + CHUNK <= first) return;
    if constexpr (D::RUNS) {
        const int32_t end = min(source.end, start + CHUNK);
        for (int32_t k = max(start - first, 0); first + k < end; k++)
            place_token<D>(source, call, scales, fresh.rows[k], fresh.rows[count + k], first + k,
                           __shfl_sync(~0u, fresh.slot, k), stage);
    } else {
        place_token<D>(source, call, scales, fresh.rows[0], fresh.rows[1], first, fresh.slot, stage);
    }
    __syncwarp();
}

template <class D>
static __device__ __forceinline__ void begin_state(decode_state<D> &state, const chunk_source &source,
                                                   const struct attention_call &call, const struct decode_unit &unit)
{
    const int32_t j = threadIdx.x % 4, columns = unit.columns<D>();
#pragma unroll
    for (int t = 0; t < D::TILES; t++) {
        for (int h = 0; h < 2; h++) {
            const int32_t column = t * TILE_COLUMNS + 2 * j + h;
            state.max[t][h] = -INFINITY, state.sum[t][h] = 0, state.slopes[t][h] = 0;
            if (D::RUNS) state.end[t][h] = min(source.all_end + unit.entry<D>(column), source.end);
            if (modifies_scores<D>(call) && call.params.alibi_slopes && column < columns)
                state.slopes[t][h] = call.params.alibi_slopes[unit.head_of<D>(column)];
        }
#pragma unroll
        for (int m = 0; m < D::HEAD / 16; m++)
            for (int e = 0; e < 4; e++) state.out[t][m][e] = 0;
    }
}

/* All chunks of the warp. */
template <class D>
static __device__ __forceinline__ void attend_chunks(decode_state<D> &state, const chunk_source &source,
                                                     chunk_copies &copies, const struct attention_call &call,
                                                     struct kv_scales scales, const fresh_rows<D> &fresh)
{
    for (int32_t i = 0; i < source.count; i++) {
        const int32_t start = (source.chunk + i * DECODE_WARPS) * CHUNK;
        uint8_t *stage = chunk_stage<D>(copies, i);
        wait_for_oldest(copies.stages);
        __syncwarp();
        place_fresh<D>(source, call, scales, fresh, start, stage);
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
template <class D> struct decode_merge {
    float max[DECODE_WARPS][D::COLUMNS], sum[DECODE_WARPS][D::COLUMNS];
    float2 stats[D::COLUMNS]; /* of the block: maximum and sum; its output takes the place of warp 0's */
    bool is_last;
};

template <class D> static __device__ void leave_warp_sums(decode_state<D> &state, decode_merge<D> *merge, float *out)
{
    const int32_t lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, i = lane / 4, j = lane % 4;
#pragma unroll
    for (int t = 0; t < D::TILES; t++) {
        const int32_t column = t * TILE_COLUMNS + 2 * j;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float &sum = state.sum[t][h];
            for (int step = 4; step < LANES; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
            if (i == 0) merge->max[warp][column + h] = state.max[t][h], merge->sum[warp][column + h] = sum;
        }
#pragma unroll
        for (int m = 0; m < D::HEAD / 16; m++)
            for (int e = 0; e < 4; e++)
                out[(column + e % 2) * D::MERGE_STRIDE + m * 16 + e / 2 * 8 + i] = state.out[t][m][e];
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

/* Stores 4 elements of the result of a head. */
template <class D>
static __device__ __forceinline__ void store_result(const struct attention_call &call, float v_scale, int32_t head,
                                                    const struct decode_join &join, typename D::T *out)
{
    const float sum = join.sum + attention_sink_weight(&call.params, head, join.max);
    const float inverse = sum == 0 ? 0 : v_scale / sum;
    *(uint2 *)out = make_uint2(pack_pair<typename D::T>(join.out.x * inverse, join.out.y * inverse),
                               pack_pair<typename D::T>(join.out.z * inverse, join.out.w * inverse));
}

/* Combines the warps' results for 4 elements of a column. */
template <class D>
static __device__ __forceinline__ struct decode_join join_warps(const uint8_t *rings, int32_t ring_bytes,
                                                                const decode_merge<D> *merge, int32_t column, int32_t d)
{
    struct decode_join join = {-INFINITY, 0, {}};
    for (int w = 0; w < DECODE_WARPS; w++) join.max = fmaxf(join.max, merge->max[w][column]);
    for (int w = 0; w < DECODE_WARPS; w++)
        join_add(&join, merge->max[w][column], merge->sum[w][column],
                 *(const float4 *)((const float *)(rings + w * ring_bytes) + column * D::MERGE_STRIDE + d));
    return join;
}

/* Combines the results of the cluster's blocks, each of which has called join_block. */
template <class D>
static __device__ __forceinline__ struct decode_join join_cluster(const uint8_t *rings, const decode_merge<D> *merge,
                                                                  int32_t cluster, int32_t column, int32_t d)
{
    struct decode_join join = {-INFINITY, 0, {}};
    const float *from = (const float *)rings + column * D::MERGE_STRIDE + d;
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
static __device__ __forceinline__ void join_block(uint8_t *rings, int32_t ring_bytes, decode_merge<D> *merge,
                                                  int32_t columns)
{
    for (int32_t index = threadIdx.x * 4; index < columns * D::HEAD; index += DECODE_THREADS * 4) {
        const int32_t column = index / D::HEAD, d = index % D::HEAD;
        const struct decode_join join = join_warps<D>(rings, ring_bytes, merge, column, d);
        *(float4 *)((float *)rings + column * D::MERGE_STRIDE + d) = join.out;
        if (d == 0) merge->stats[column] = make_float2(join.max, join.sum);
    }
}

template <class D>
static __device__ __forceinline__ typename D::T *result_row(const struct attention_call &call,
                                                            const struct decode_unit &unit, typename D::T *out,
                                                            int32_t column)
{
    const int32_t row =
        D::RUNS ? unit.entry<D>(column) * call.args.num_heads + unit.head_of<D>(column) - unit.head : column;
    return out + row * v_head_size<D>(call.args);
}

/* Combines a unit's parts, from the workspace, and writes the unit's result. */
template <class D>
static __device__ __forceinline__ void join_parts(const struct decode_work &work, const struct decode_plan &plan,
                                                  const struct attention_call &call, float v_scale,
                                                  const struct decode_unit &unit, typename D::T *out)
{
    const int32_t head_size = v_head_size<D>(call.args);
    for (int32_t index = threadIdx.x * 4; index < unit.columns<D>() * D::HEAD; index += DECODE_THREADS * 4) {
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
        store_result<D>(call, v_scale, unit.head_of<D>(column), join, result_row<D>(call, unit, out, column) + d);
    }
}

/* Combines the results of the warps and of the cluster's blocks, each of which does a slice of the output, and writes
 * the unit's result, or the part's partial. `out`: where the result of column 0 goes. */
template <class D>
static __device__ void finish_work(const struct decode_work &work, const struct decode_plan &plan,
                                   const struct attention_call &call, float v_scale, const struct decode_unit &unit,
                                   uint8_t *rings, decode_merge<D> *merge, typename D::T *out)
{
    const int32_t head_size = v_head_size<D>(call.args), cluster = plan.cluster,
                  slice = unit.columns<D>() * D::HEAD / cluster;
    const int32_t ring_bytes = plan.stages * D::STAGE_BYTES;
    const int32_t first = cluster > 1 ? (int32_t)blockIdx.x % cluster * slice : 0;
    if (cluster > 1) {
        join_block<D>(rings, ring_bytes, merge, unit.columns<D>());
        cluster_arrive();
        cluster_wait();
    }
    for (int32_t index = first + threadIdx.x * 4; index < first + slice; index += DECODE_THREADS * 4) {
        const int32_t column = index / D::HEAD, d = index % D::HEAD;
        if (d >= head_size) continue;
        const struct decode_join join = cluster > 1 ? join_cluster<D>(rings, merge, cluster, column, d)
                                                    : join_warps<D>(rings, ring_bytes, merge, column, d);
        if (work.parts == 1) {
            store_result<D>(call, v_scale, unit.head_of<D>(column), join, result_row<D>(call, unit, out, column) + d);
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
            join_parts<D>(work, plan, call, v_scale, unit, out);
        }
    }
    if (cluster > 1) cluster_wait();
}

/* The slot of the unit's token; with runs, lane k has that of token k of the run, and those before the unit's are not
 * stored by it. */
template <class D>
static __device__ __forceinline__ int64_t fresh_slot(const struct decode_fresh &fresh, const struct decode_unit &unit)
{
    if constexpr (!D::RUNS) return fresh.slots[unit.token];
    const int32_t k = (int32_t)(threadIdx.x % LANES) - (unit.run - unit.entries);
    return k >= 0 && k < unit.entries ? fresh.slots[unit.token + k] : -1;
}

template <class D, bool ANY>
static __device__ __forceinline__ void do_work(const struct decode_work &work, const struct decode_plan &plan,
                                               const struct attention_call &call, const struct decode_fresh &fresh,
                                               uint8_t *rings, decode_rows<D> *rows, decode_merge<D> *merge)
{
    const struct attention_args &args = call.args;
    const struct decode_range range = decode_range_of<D::RUNS>(&call, &plan, work.seq);
    const int64_t last_token = args.query_start[args.first_seq + work.seq], token = last_token - (range.entries - 1);
    const int32_t kv_head = work.unit / plan.units_per_head, group = args.num_heads / args.num_kv_heads;
    const int32_t in_group = work.unit % plan.units_per_head * D::COLUMNS, head = kv_head * group + in_group;
    const int32_t heads = min(group - in_group, (int32_t)D::COLUMNS), warp = threadIdx.x / LANES;
    constexpr int64_t SIZE = D::FP8 ? 1 : 2;
    const int64_t k_bytes = SIZE * args.head_size * args.block_size; /* of a head in a block */
    const int64_t v_bytes = SIZE * v_head_size<D>(args) * args.block_size;
    const int32_t begin = work.begin + warp;
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
                                        attention_first(&call.params, range.end - 1),
                                        range.end - (range.entries - 1),
                                        range.chunk + begin,
                                        max(work.end - begin + DECODE_WARPS - 1, 0) / DECODE_WARPS};
    uint8_t *ring = rings + warp * plan.stages * D::STAGE_BYTES;
    chunk_copies copies = begin_copies<D>(source, ring, plan.stages);
    const struct kv_scales scales = kv_scales_load(&call.params, D::FP8);
    const bool has_last = D::RUNS ? (range.chunk + work.end) * CHUNK > range.end - range.run : work.end == range.count;
    const bool has_fresh = fresh.key && work.begin < work.end && has_last;
    const struct decode_unit unit = {token, kv_head, head, heads, range.entries, range.run};
    const int64_t slot = has_fresh && in_group == 0 /* only one unit of a KV head writes to the cache */
                             ? fresh_slot<D>(fresh, unit)
                             : -1;
    if constexpr (D::RUNS)
        load_run_rows<D>(rows, call, fresh, unit, has_fresh);
    else
        load_rows<D, ANY>(rows, call, fresh, unit, has_fresh);
    __syncthreads();
    decode_state<D> state;
    load_query<D>(state, rows, unit.columns<D>(), args.head_size);
    begin_state<D>(state, source, call, unit);
    attend_chunks<D>(state, source, copies, call, scales,
                     {has_fresh ? rows->values + unit.columns<D>() : NULL, unit.run, slot});
    leave_warp_sums<D>(state, merge, (float *)ring);
    __syncthreads();
    finish_work<D>(work, plan, call, scales.v, unit, rings, merge,
                   (typename D::T *)args.out + (token * args.num_heads + head) * v_head_size<D>(args));
}

/* ANY: heads may be normed, and rotated in any way. Without it they are not normed, and rotated as a whole or not at
 * all, which is what most models do. */
template <class D, bool ANY>
static __global__ void __launch_bounds__(DECODE_THREADS, D::BLOCKS_PER_SM)
    decode_kernel(const __grid_constant__ struct attention_call call, const __grid_constant__ struct decode_plan plan,
                  const __grid_constant__ struct decode_fresh fresh)
{
    extern __shared__ __align__(128) uint8_t rings[];
    __shared__ decode_merge<D> merge;
    __shared__ decode_rows<D> rows;
    struct decode_work work;
    const int32_t first = (int32_t)blockIdx.x / plan.cluster, clusters = (int32_t)gridDim.x / plan.cluster;
    let_next_start();
    if (!fresh.key) wait_for_previous(); /* the previous kernel may have written the cache */
    for (int32_t index = first;; index += clusters) {
        if (decode_work_of<D::RUNS>(&work, &call, &plan, index))
            do_work<D, ANY>(work, plan, call, fresh, rings, &rows, &merge);
        else if (blockIdx.x == 0) /* at least one block has to wait (dependent.cuh), and perhaps none has work */
            wait_for_previous();
        if (!D::RUNS || index + clusters >= work.all) break;
        __syncthreads(); /* the results in shared memory have been read */
    }
}

/* How many parts a call is cut into: two for each multiprocessor. */
static int32_t target_parts(const struct cuda_state *s)
{
    return 2 * s->num_sms;
}

int64_t cuda_attention_workspace(const struct cuda_state *s, const struct workspace_query *query)
{
    const int64_t floats = TILE_COLUMNS * (2 + padded_head_size(query->head_size));
    return 2 * target_parts(s) * (int64_t)(sizeof(uint32_t) + floats * sizeof(float));
}

/* Whether the rings fit beside the kernel's static shared memory. */
static bool rings_fit(const struct cuda_state *s, int32_t stages, int32_t stage_bytes)
{
    enum { NOT_DYNAMIC = 16384 };
    return DECODE_WARPS * stages * stage_bytes <= s->max_shared_bytes - NOT_DYNAMIC;
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

/* The units of a call, all of whose groups are full. */
static int64_t num_units(const struct attention_args *args, const struct decode_plan *plan)
{
    return cuda_div_up(args->num_seqs, plan->unit_entries) * args->num_kv_heads * plan->units_per_head;
}

/* A cluster has as many blocks as the GPU has room for, until its rings hold LARGE_CLUSTER chunks, or twice as many of
 * fp8, which take as long to convert. What fits into the rings is copied while the previous kernel still runs, so more
 * blocks would gain nothing. */
template <class D>
static struct decode_plan make_plan(const struct cuda_state *s, const struct attention_args *args, bool may_split)
{
    const struct cuda_region *region = &s->regions[CUDA_USER_ATTENTION];
    const int64_t counters = 2 * target_parts(s), partials = counters / D::TILES;
    const int64_t group = args->num_heads / args->num_kv_heads;
    struct decode_plan plan = {};
    plan.cluster = 1;
    plan.units_per_head = (int32_t)cuda_div_up(group, D::COLUMNS);
    plan.unit_entries = 1;
    while (D::RUNS && (plan.unit_entries + 1) * group <= D::COLUMNS && plan.unit_entries < args->max_run_len)
        plan.unit_entries++;
    while (1 << plan.log_block_size < args->block_size) plan.log_block_size++;
    plan.counters = (uint32_t *)region->data;
    plan.stats = (float *)(plan.counters + counters);
    plan.partials = plan.stats + partials * D::COLUMNS * 2;
    const int64_t units = num_units(args, &plan);
    plan.stages = units <= target_parts(s) ? D::STAGES : D::LEAST_STAGES;
    if (!rings_fit(s, plan.stages, D::STAGE_BYTES)) plan.stages = 1;
    const float *end = plan.partials + partials * D::COLUMNS * D::HEAD;
    const bool fits = region->data && (const uint8_t *)end <= region->data + region->bytes;
    if (!may_split || !fits || args->max_seq_len <= CHUNK * DECODE_WARPS) return plan;
    constexpr int32_t large = (D::FP8 ? 2 : 1) * LARGE_CLUSTER / (DECODE_WARPS * D::STAGES);
    constexpr int32_t most = large < MAX_CLUSTER ? large : MAX_CLUSTER;
    while (s->compute_capability >= 90 && plan.cluster < most && 2 * units * plan.cluster <= target_parts(s))
        plan.cluster *= 2;
    plan.target = target_parts(s) / (plan.cluster > D::TILES ? plan.cluster : D::TILES);
    return plan;
}

/* A call of the kernel, before its types are known. */
struct decode_launch {
    struct backend *b;
    const struct attention_args *args;
    struct decode_fresh fresh;
    bool may_split;
};

template <class D, bool ANY> static void launch(const struct decode_launch *l)
{
    const struct cuda_state *s = cuda_use(l->b);
    const struct decode_plan plan = make_plan<D>(s, l->args, l->may_split || D::RUNS);
    const int shared_bytes = DECODE_WARPS * plan.stages * D::STAGE_BYTES;
    const dim3 grid((unsigned)((num_units(l->args, &plan) + plan.target) * plan.cluster));
    if (!cuda_allow_shared(l->b, "paged attention", decode_kernel<D, ANY>, shared_bytes)) return;
    cuda_launch_dependent(s, decode_kernel<D, ANY>, {grid, DECODE_THREADS, shared_bytes, plan.cluster},
                          attention_call_make(l->args), plan, l->fresh);
    cuda_check_launch(l->b, "paged attention");
}

template <class T, bool FP8, int HEAD>
static void launch_variant(attention_types<T, FP8, HEAD>, const struct decode_launch *l)
{
    const struct decode_fresh *f = &l->fresh;
    const bool whole = f->rotary_dim == 0 || f->rotary_dim == l->args->head_size;
    if (attention_has_two_sizes(l->args))
        launch<decode_traits<T, FP8, 256, true, true>, false>(l);
    else if (l->args->max_run_len > 1)
        launch<decode_traits<T, FP8, HEAD, true, false, true>, true>(l);
    else if (attention_modifies_scores(l->args->params))
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
        const struct decode_launch call = {b, args, {}, may_split};
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
    if (!aligned || rotary->rotary_dim % 8 != 0 || attention_has_two_sizes(attention) ||
        !norms_of(rotary, &fresh.norms) || !is_for_tensor_cores(attention))
        return false;
    const bool may_split = !paged_attention_use_v1(attention->max_seq_len, attention->num_seqs, attention->num_heads);
    const struct decode_launch call = {b, attention, fresh, may_split};
    launch_call(&call);
    return true;
}
