/* Latent attention on tensor cores: 16-bit activations, and a cache of the same type or of fp8. The cost of decodes is
 * to read the latents once, at the speed of memory; that of prefills is the products.
 *
 * All heads read the same vectors, so heads and query tokens are rows of one matrix: row r of an entry is head r %
 * num_heads of token r / num_heads, as they follow one another in the query. A block computes a tile of ROWS rows. It
 * reads the context in chunks of CHUNK tokens, several chunks ahead, and a chunk in shared memory serves twice: as K,
 * and its first `rank` columns as V (as in FlashMLA: DeepSeek-AI, 2025). With P = softmax of S
 *
 *     S [ROWS x CHUNK] = Q K^T,    O [ROWS x rank] += P V.
 *
 * For S a warp has 32 rows, 16 tokens and a part of the columns, whose scores are added up through shared memory; for O
 * it has all rows and an eighth of the columns. Between two barriers the block computes S of a chunk and O of the one
 * before it; then it makes P of S, while copies go on. Rows of chunks are padded by 16 bytes, so that 8 of them lie in
 * different banks. Chunks of fp8 are converted by the threads that have copied them, into one of two places.
 *
 * Decodes: entries of a run (base/batch.h) are one entry of several tokens here. The chunks of all tiles, one after the
 * other, are divided evenly between as many blocks as run at a time; the place of a tile costs as much as OVERHEAD
 * chunks beside its own. So a block computes the end of one tile, then whole ones, then the beginning of another, and
 * one long context fills the GPU as well as many short ones. All this follows on the device from the lengths of the
 * step: a graph is captured before they are known. Pieces of a tile leave their sums in the workspace, two places a
 * block, and a second kernel combines them:
 *
 *     chunks      | tile 0                      | tile 1            | tile 2 | tile 3                       |
 *     blocks      | 0             | 1             | 2             | 3             | 4             | 5       |
 *     places        1               2           3   4                         7   8               10
 *
 * Prefills: a block has a tile and all of its context, or if there are few tiles a part of it. */
#include <type_traits>

#include "kernels/cuda/attention/attention_mma.cuh"
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/latent/latent.cuh"
#include "kernels/cuda/operations.h"

enum { WARPS = 8, LANES = 32, THREADS = WARPS * LANES, CHUNK = 32, WARP_TOKENS = CHUNK / WARPS };
enum { MAX_ROPE = 64, MAX_ROWS = 64, MAX_RANK = 512, MAX_RUN = 1 + MAX_DRAFTS };
enum { OVERHEAD = 2, LEAST_SHARE = 4, MAX_STAGES = 8, MAX_GROWTH = 8 };

template <class Type, bool is_fp8, int latent_rank, int rows> struct latent_traits {
    using T = Type;
    static constexpr bool FP8 = is_fp8;
    static constexpr int RANK = latent_rank, ROWS = rows, SIZE = RANK + MAX_ROPE; /* SIZE: there is room for */
    static constexpr int ROW_TILES = ROWS / 16;
    static constexpr int PARTS = WARPS / (ROWS / 32) / (CHUNK / 16); /* of the columns of S */
    static constexpr int THREADS_PER_ROW = THREADS / ROWS, ROW_TOKENS = CHUNK / THREADS_PER_ROW; /* of the softmax */
    static constexpr int TILES = RANK / WARPS / 8; /* of a warp's columns of O */
    static constexpr int STRIDE = SIZE * 2 + 16;   /* bytes from row to row, of Q and of chunks */
    static constexpr int CHUNK_BYTES = CHUNK * STRIDE;
    static constexpr int STAGE_BYTES = FP8 ? CHUNK * SIZE : CHUNK_BYTES;
    static constexpr int PIECES = (SIZE * (FP8 ? 1 : 2) / 16 * WARP_TOKENS + LANES - 1) / LANES; /* of a lane, most */
    static constexpr int SCORE_STRIDE = CHUNK + 8;                                               /* floats */
    static constexpr int WEIGHT_STRIDE = CHUNK * 2 + 16;                                         /* bytes */
    /* Shared memory: Q, S, P, with fp8 two chunks, and the ring of copies. */
    static constexpr int S_AT = ROWS * STRIDE;
    static constexpr int P_AT = S_AT + PARTS * ROWS * SCORE_STRIDE * 4;
    static constexpr int CHUNKS_AT = P_AT + ROWS * WEIGHT_STRIDE;
    static constexpr int RING_AT = CHUNKS_AT + (FP8 ? 2 * CHUNK_BYTES : 0);
};

/* A tile's sums are combined of this many pieces; up to 1: there is nothing to combine. Piece 0 is in place `first`,
 * and piece i > 0 in place first + 2 i - 1. */
struct latent_tile {
    int32_t first, pieces;
    int32_t row, rows; /* of out */
};

struct latent_plan {
    int32_t blocks;      /* decodes: which share the chunks. Prefills: parts of each tile */
    int32_t entry_tiles; /* decodes: tiles of an entry of one token. Prefills: of an entry of max_query_len tokens */
    int32_t first_seq;   /* of prefills */
    int32_t stages;      /* of the ring */
    struct latent_tile *tiles;
    float2 *stats;   /* [places][MAX_ROWS] maximum, sum */
    float *partials; /* [places][MAX_ROWS][RANK] */
};

/* What a block computes at a time: chunks [begin, end) of a tile. */
struct latent_piece {
    const int32_t *block_table;
    int32_t row, rows;         /* of query and out */
    int32_t first_end, head;   /* row 0 attends to tokens [0, first_end), and is this head */
    int32_t last_end;          /* no row attends to more tokens */
    int32_t begin, end, place; /* place -1: this is the whole tile */
};

static __device__ __forceinline__ uint4 load_shared(uint32_t from)
{
    uint4 x;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(from)
                 : "memory");
    return x;
}

static __device__ __forceinline__ void store_shared(uint32_t to, const uint32_t x[4])
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};\n" ::"r"(to), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}

/* 4 fp8 numbers as 4 T. */
template <class T> static __device__ __forceinline__ void convert_fp8(uint32_t bits, bool e5m2, uint32_t out[2])
{
    if (e5m2)
        fp8_to_float16<true>(bits, out[0], out[1]);
    else
        fp8_to_float16<false>(bits, out[0], out[1]);
    if constexpr (!std::is_same_v<T, __half>) {
        for (int i = 0; i < 2; i++) {
            const float2 pair = __half22float2(*(const __half2 *)&out[i]);
            out[i] = pack_pair<T>(pair.x, pair.y);
        }
    }
}

/* ---- copies ---- */

/* The copies of a piece's chunks. A warp copies WARP_TOKENS tokens of each, which lie in one block and side by side. */
struct chunk_copies {
    const uint8_t *cache;
    const int32_t *block_table;
    int64_t block_bytes;
    int32_t block_size, pieces; /* pieces of 16 bytes of a token */
    uint32_t inverse;           /* 1 / pieces, times 2^16 and rounded up */
    int32_t begin, count, end;  /* chunks; tokens that may be read */
    int32_t block;              /* of the warp's tokens of the chunk that is copied next */
    int32_t issued;             /* chunks of which the copy has begun, and those that do not exist */
};

static __device__ __forceinline__ int32_t first_token(const chunk_copies &c, int32_t i)
{
    return (c.begin + i) * CHUNK + (int32_t)(threadIdx.x / LANES) * WARP_TOKENS;
}

static __device__ __forceinline__ void look_up_block(chunk_copies &c)
{
    const int32_t token = first_token(c, c.issued);
    c.block = c.issued < c.count && token < c.end ? c.block_table[token / c.block_size] : 0;
}

template <class L>
static __device__ __forceinline__ chunk_copies copies_of(const latent_attention_args &args, const latent_piece &piece)
{
    constexpr int ELEMENT = L::FP8 ? 1 : 2;
    const int32_t pieces = (args.rank + args.rope) * ELEMENT / 16;
    chunk_copies c = {
        (const uint8_t *)args.cache,    piece.block_table, args.block_stride * ELEMENT, args.block_size, pieces,
        (65536u + pieces - 1) / pieces, piece.begin,       piece.end - piece.begin,     piece.last_end};
    look_up_block(c);
    return c;
}

/* The warp's piece p of a chunk: its token, and where in the token it is. */
static __device__ __forceinline__ int32_t token_of(const chunk_copies &c, int32_t p)
{
    return (int32_t)(p * c.inverse >> 16);
}

/* Begins to copy the next chunk, if there is one, to its stage of the ring. */
template <class L> static __device__ __forceinline__ void copy_next(chunk_copies &c, uint32_t ring, int32_t stages)
{
    const int32_t lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, token = first_token(c, c.issued);
    const uint32_t stage = ring + c.issued % stages * L::STAGE_BYTES;
    if (c.issued < c.count) {
        const uint8_t *from = c.cache + c.block * c.block_bytes + (int64_t)(token % c.block_size) * c.pieces * 16;
#pragma unroll
        for (int i = 0; i < L::PIECES; i++) {
            const int32_t p = lane + i * LANES, t = token_of(c, p);
            if (t >= WARP_TOKENS) break;
            const uint32_t to = L::FP8 ? (warp * WARP_TOKENS * c.pieces + p) * 16
                                       : (warp * WARP_TOKENS + t) * L::STRIDE + (p - t * c.pieces) * 16;
            copy_async(stage + to, from + p * 16, token + t < c.end);
        }
    }
    c.issued++;
    look_up_block(c);
    copy_async_commit();
}

/* Waits until at most `pending` of the thread's copies have not arrived. */
static __device__ __forceinline__ void wait_for_copies(int32_t pending)
{
    switch (pending) {
    case 0:
        return copy_async_wait<0>();
    case 1:
        return copy_async_wait<1>();
    case 2:
        return copy_async_wait<2>();
    case 3:
        return copy_async_wait<3>();
    case 4:
        return copy_async_wait<4>();
    case 5:
        return copy_async_wait<5>();
    default:
        return copy_async_wait<6>();
    }
}

/* Converts what the thread has copied of chunk i. */
template <class L>
static __device__ __forceinline__ void convert_chunk(const chunk_copies &c, int32_t i, uint32_t stage, uint32_t to,
                                                     bool e5m2)
{
    const int32_t lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
#pragma unroll
    for (int k = 0; k < L::PIECES; k++) {
        const int32_t p = lane + k * LANES, t = token_of(c, p);
        if (t >= WARP_TOKENS) break;
        const uint4 bits = load_shared(stage + (warp * WARP_TOKENS * c.pieces + p) * 16);
        const uint32_t place = to + (warp * WARP_TOKENS + t) * L::STRIDE + (p - t * c.pieces) * 32;
        uint32_t low[4], high[4];
        convert_fp8<typename L::T>(bits.x, e5m2, low), convert_fp8<typename L::T>(bits.y, e5m2, low + 2);
        convert_fp8<typename L::T>(bits.z, e5m2, high), convert_fp8<typename L::T>(bits.w, e5m2, high + 2);
        store_shared(place, low);
        store_shared(place + 16, high);
    }
}

/* Where chunk i is multiplied from. */
template <class L> static __device__ __forceinline__ uint32_t chunk_at(uint32_t shared, int32_t i, int32_t stages)
{
    return L::FP8 ? shared + L::CHUNKS_AT + i % 2 * L::CHUNK_BYTES : shared + L::RING_AT + i % stages * L::STAGE_BYTES;
}

/* The thread's part of chunk i is there; after a barrier, all of it. */
template <class L>
static __device__ __forceinline__ void await_chunk(chunk_copies &c, int32_t i, uint32_t shared, int32_t stages,
                                                   bool e5m2)
{
    if constexpr (L::FP8) {
        const uint32_t ring = shared + L::RING_AT;
        wait_for_copies(stages - 1);
        convert_chunk<L>(c, i, ring + i % stages * L::STAGE_BYTES, chunk_at<L>(shared, i, stages), e5m2);
        copy_next<L>(c, ring, stages);
    } else {
        wait_for_copies(i == 0 ? stages - 1 : stages - 2);
    }
}

/* Q of the piece's rows; rows that do not exist become zeros. */
template <class L>
static __device__ __forceinline__ void copy_query(const latent_attention_args &args, const latent_piece &piece,
                                                  uint32_t shared)
{
    const int32_t pieces = (args.rank + args.rope) / 8;
    const uint8_t *query = (const uint8_t *)args.query + (int64_t)piece.row * pieces * 16;
    for (int32_t r = threadIdx.x / LANES; r < L::ROWS; r += WARPS)
        for (int32_t p = threadIdx.x % LANES; p < pieces; p += LANES) {
            const bool there = r < piece.rows;
            copy_async(shared + r * L::STRIDE + p * 16, there ? query + (r * pieces + p) * 16 : query, there);
        }
}

/* ---- the products ---- */

/* S of a chunk, a part of the columns for each warp. */
template <class L>
static __device__ __forceinline__ void multiply_keys(const latent_attention_args &args, int32_t rows, uint32_t shared,
                                                     uint32_t chunk, float *scores)
{
    const int32_t lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const int32_t tokens = warp % 2 * 16, part = warp / 2 % L::PARTS, row = warp / 2 / L::PARTS * 32;
    const int32_t steps = (args.rank + args.rope) / 16, last = steps * (part + 1) / L::PARTS;
    const uint32_t q = shared + (row + lane % 16) * L::STRIDE + lane / 16 * 16;
    const uint32_t k = chunk + (tokens + lane / 16 * 8 + lane % 8) * L::STRIDE + lane / 8 % 2 * 16;
    const bool two = row + 16 < rows;
    if (row >= rows) return;
    float s[2][2][4] = {};
#pragma unroll 3
    for (int32_t step = steps * part / L::PARTS; step < last; step++) {
        uint32_t a[4], b[4];
        load_matrices(b, k + step * 32);
        load_matrices(a, q + step * 32);
        multiply_add<typename L::T>(s[0][0], a, b[0], b[1]);
        multiply_add<typename L::T>(s[0][1], a, b[2], b[3]);
        if (two) {
            load_matrices(a, q + 16 * L::STRIDE + step * 32);
            multiply_add<typename L::T>(s[1][0], a, b[0], b[1]);
            multiply_add<typename L::T>(s[1][1], a, b[2], b[3]);
        }
    }
    float *to = scores + (part * L::ROWS + row + lane / 4) * L::SCORE_STRIDE + tokens + lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < 2; m++)
        for (int n = 0; n < 2; n++)
            for (int r = 0; r < 2; r++)
                *(float2 *)(to + (m * 16 + r * 8) * L::SCORE_STRIDE + n * 8) =
                    make_float2(s[m][n][2 * r], s[m][n][2 * r + 1]);
}

/* O of the warp's columns: scaled by what has become of the maxima, and a chunk is added. */
template <class L> struct warp_sums {
    float out[L::ROW_TILES][L::TILES][4];
};

template <class L>
static __device__ __forceinline__ void multiply_values(warp_sums<L> &sums, int32_t rows, uint32_t weights,
                                                       uint32_t chunk, const float *factors)
{
    const int32_t lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const uint32_t p = weights + lane % 16 * L::WEIGHT_STRIDE + lane / 16 * 16;
    const uint32_t v = chunk + lane % 16 * L::STRIDE + lane / 16 * 16 + warp * L::TILES * 16;
#pragma unroll
    for (int m = 0; m < L::ROW_TILES; m++) {
        const float low = factors[m * 16 + lane / 4], high = factors[m * 16 + 8 + lane / 4];
        if (!__any_sync(~0u, low != 1 || high != 1)) continue;
#pragma unroll
        for (int n = 0; n < L::TILES; n++) {
            sums.out[m][n][0] *= low, sums.out[m][n][1] *= low;
            sums.out[m][n][2] *= high, sums.out[m][n][3] *= high;
        }
    }
#pragma unroll
    for (int t = 0; t < CHUNK / 16; t++) {
        uint32_t a[L::ROW_TILES][4];
#pragma unroll
        for (int m = 0; m < L::ROW_TILES; m++) load_matrices(a[m], p + m * 16 * L::WEIGHT_STRIDE + t * 32);
#pragma unroll
        for (int n = 0; n < L::TILES; n += 2) {
            uint32_t b[4];
            load_matrices_transposed(b, v + t * 16 * L::STRIDE + n * 16);
#pragma unroll
            for (int m = 0; m < L::ROW_TILES; m++) {
                if (m * 16 >= rows) break;
                multiply_add<typename L::T>(sums.out[m][n], a[m], b[0], b[1]);
                multiply_add<typename L::T>(sums.out[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* The softmax of a thread's row, of whose tokens it has some: the maximum of all, in powers of two, and its own sum. */
struct row_softmax {
    int32_t end;
    float max, sum;
};

/* Turns the scores of the chunk from token `start` into weights. The maximum is only replaced by one that is more than
 * 2^MAX_GROWTH times as heavy, so that most factors are 1. */
template <class L>
static __device__ __forceinline__ void weigh(row_softmax &row, const float *scores, uint32_t weights, float *factors,
                                             int32_t start, float scale_log2)
{
    const int32_t r = threadIdx.x / L::THREADS_PER_ROW, token = threadIdx.x % L::THREADS_PER_ROW * L::ROW_TOKENS;
    float x[L::ROW_TOKENS], max = row.max;
#pragma unroll
    for (int i = 0; i < L::ROW_TOKENS; i += 4) {
        float4 sum = {};
#pragma unroll
        for (int p = 0; p < L::PARTS; p++) {
            const float4 s = *(const float4 *)(scores + (p * L::ROWS + r) * L::SCORE_STRIDE + token + i);
            sum.x += s.x, sum.y += s.y, sum.z += s.z, sum.w += s.w;
        }
        x[i] = sum.x, x[i + 1] = sum.y, x[i + 2] = sum.z, x[i + 3] = sum.w;
    }
#pragma unroll
    for (int i = 0; i < L::ROW_TOKENS; i++) {
        x[i] = start + token + i < row.end ? x[i] * scale_log2 : -INFINITY;
        max = fmaxf(max, x[i]);
    }
#pragma unroll
    for (int step = 1; step < L::THREADS_PER_ROW; step *= 2) max = fmaxf(max, __shfl_xor_sync(~0u, max, step));
    if (!(max - row.max > MAX_GROWTH)) max = row.max;
    const float base = max == -INFINITY ? 0 : max, factor = exp2_fast(row.max - base);
    row.max = max;
    row.sum *= factor;
#pragma unroll
    for (int i = 0; i < L::ROW_TOKENS; i += 4) {
        uint32_t pairs[2];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            x[i + k] = exp2_fast(x[i + k] - base);
            row.sum += x[i + k];
        }
        pairs[0] = pack_pair<typename L::T>(x[i], x[i + 1]), pairs[1] = pack_pair<typename L::T>(x[i + 2], x[i + 3]);
        asm volatile("st.shared.v2.b32 [%0], {%1, %2};\n" ::"r"(weights + r * L::WEIGHT_STRIDE + (token + i) * 2),
                     "r"(pairs[0]), "r"(pairs[1])
                     : "memory");
    }
    if (token == 0) factors[r] = factor;
}

/* ---- a piece ---- */

/* Stores what was summed: rows of out, or in the workspace. */
template <class L>
static __device__ __forceinline__ void store_sums(const latent_attention_args &args, const latent_plan &plan,
                                                  const latent_piece &piece, const warp_sums<L> &sums,
                                                  const float *factors)
{
    using T = typename L::T;
    const int32_t lane = threadIdx.x % LANES, column = threadIdx.x / LANES * L::TILES * 8 + lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < L::ROW_TILES; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int32_t r = m * 16 + h * 8 + lane / 4;
            if (r >= piece.rows) continue;
            const float factor = factors[r];
            T *out = (T *)args.out + (int64_t)(piece.row + r) * L::RANK + column;
            float *partial = plan.partials + ((int64_t)piece.place * MAX_ROWS + r) * L::RANK + column;
#pragma unroll
            for (int n = 0; n < L::TILES; n++) {
                const float x = sums.out[m][n][2 * h], y = sums.out[m][n][2 * h + 1];
                if (piece.place < 0)
                    *(uint32_t *)(out + n * 8) = pack_pair<T>(x * factor, y * factor);
                else
                    *(float2 *)(partial + n * 8) = make_float2(x, y);
            }
        }
}

template <class L>
static __device__ __forceinline__ void compute_piece(const latent_attention_args &args, const latent_plan &plan,
                                                     const latent_piece &piece, uint8_t *memory)
{
    __shared__ float factors[L::ROWS];
    const uint32_t shared = shared_address(memory), weights = shared + L::P_AT, ring = shared + L::RING_AT;
    float *scores = (float *)(memory + L::S_AT);
    const int32_t count = piece.end - piece.begin, stages = plan.stages, r = threadIdx.x / L::THREADS_PER_ROW;
    const bool e5m2 = args.cache_dtype == DTYPE_FP8_E5M2;
    const float scale = L::FP8 ? args.kv_scales[0] : 1, scale_log2 = args.scale * scale * ATTENTION_LOG2E;
    chunk_copies copies = copies_of<L>(args, piece);
    row_softmax row = {r < piece.rows ? piece.first_end + (piece.head + r) / args.num_heads : 0, -INFINITY, 0};
    warp_sums<L> sums = {};
    __syncthreads(); /* no warp needs the last piece any more */
    copy_query<L>(args, piece, shared);
    for (int i = 0; i < stages; i++) copy_next<L>(copies, ring, stages);
    if (count > 0) await_chunk<L>(copies, 0, shared, stages, e5m2);
    __syncthreads();
    for (int32_t i = 0; i < count; i++) {
        const uint32_t chunk = chunk_at<L>(shared, i, stages);
        multiply_keys<L>(args, piece.rows, shared, chunk, scores);
        if (i > 0) multiply_values<L>(sums, piece.rows, weights, chunk_at<L>(shared, i - 1, stages), factors);
        __syncthreads(); /* the scores are there, and no warp needs weights and the chunk before this any more */
        if (!L::FP8 && i > 0) copy_next<L>(copies, ring, stages);
        weigh<L>(row, scores, weights, factors, (piece.begin + i) * CHUNK, scale_log2);
        if (i + 1 < count) await_chunk<L>(copies, i + 1, shared, stages, e5m2);
        __syncthreads();
    }
    if (count > 0) multiply_values<L>(sums, piece.rows, weights, chunk_at<L>(shared, count - 1, stages), factors);
    __syncthreads();
#pragma unroll
    for (int step = 1; step < L::THREADS_PER_ROW; step *= 2) row.sum += __shfl_xor_sync(~0u, row.sum, step);
    if (threadIdx.x % L::THREADS_PER_ROW == 0) {
        factors[r] = row.sum == 0 ? 0 : scale / row.sum;
        if (piece.place >= 0) plan.stats[piece.place * MAX_ROWS + r] = make_float2(row.max, row.sum);
    }
    __syncthreads();
    store_sums<L>(args, plan, piece, sums, factors);
}

/* ---- decodes ---- */

/* The entries of a run, of which this is the first, as one. rows 0: there is nothing to compute for this entry. */
struct latent_entry {
    int32_t rows, tiles, chunks; /* of a tile */
    int32_t first_token, seq_len, query_len;
};

static __device__ __forceinline__ bool continues(const latent_attention_args &args, int32_t i)
{
    return i > 0 && i < args.num_decodes && args.state_indices[i] == args.state_indices[i - 1] &&
           args.seq_lens[i] == args.seq_lens[i - 1] + 1 && args.query_start[i + 1] == args.query_start[i] + 1 &&
           args.query_start[i] == args.query_start[i - 1] + 1;
}

template <class L> static __device__ __forceinline__ latent_entry entry_of(const latent_attention_args &args, int32_t i)
{
    latent_entry e = {};
    if (i >= args.num_decodes) return e;
    e.first_token = args.query_start[i];
    e.query_len = args.query_start[i + 1] - e.first_token;
    e.seq_len = args.seq_lens[i];
    if (args.max_run_len > 1 && e.query_len > 0) {
        uint32_t next = 0;
#pragma unroll
        for (int k = 0; k <= MAX_RUN; k++) next |= (uint32_t)continues(args, i + k) << k;
        const int32_t more = __ffs(~(next >> 1)) - 1;
        e.query_len = next & 1 ? 0 : e.query_len + more;
        e.seq_len += more;
    }
    e.rows = e.query_len * args.num_heads;
    e.tiles = (e.rows + L::ROWS - 1) / L::ROWS;
    e.chunks = max((e.seq_len + CHUNK - 1) / CHUNK, 1);
    return e;
}

static __device__ __forceinline__ int32_t cost_of(const latent_entry &e)
{
    return e.tiles * (e.chunks + OVERHEAD);
}

/* Tile `tile` of an entry, whose place among all chunks begins at `start`. */
static __device__ __forceinline__ latent_piece tile_of(const latent_attention_args &args, const latent_entry &e,
                                                       int32_t i, int32_t tile, int32_t tile_rows)
{
    const int32_t first = tile * tile_rows, rows = min(tile_rows, e.rows - first), token = first / args.num_heads;
    latent_piece piece = {};
    piece.block_table = args.block_tables + args.state_indices[i] * args.block_table_stride;
    piece.row = e.first_token * args.num_heads + first;
    piece.rows = rows;
    piece.head = first - token * args.num_heads;
    piece.first_end = e.seq_len - e.query_len + token + 1;
    piece.last_end = piece.first_end + (piece.head + rows - 1) / args.num_heads;
    piece.end = e.chunks;
    piece.place = -1;
    return piece;
}

/* The sum of x over the threads before this one, and in *all over the block. */
static __device__ __forceinline__ int32_t sum_before(int32_t x, int32_t *all)
{
    __shared__ int32_t sums[WARPS];
    const int32_t lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    int32_t through = x, before = 0, total = 0;
    for (int step = 1; step < LANES; step *= 2) {
        const int32_t other = __shfl_up_sync(~0u, through, step);
        if (lane >= step) through += other;
    }
    __syncthreads(); /* the last call's sums are not needed any more */
    if (lane == LANES - 1) sums[warp] = through;
    __syncthreads();
    for (int w = 0; w < WARPS; w++) {
        if (w < warp) before += sums[w];
        total += sums[w];
    }
    *all = total;
    return before + through - x;
}

/* Where a block begins: in an entry, whose chunks begin at `start`. */
struct latent_begin {
    int32_t entry, start, share;
};

template <class L>
static __device__ __forceinline__ latent_begin find_begin(const latent_attention_args &args, const latent_plan &plan)
{
    __shared__ latent_begin found;
    int32_t total = 0, before = 0;
    for (int32_t from = 0; from < args.num_decodes; from += THREADS) {
        int32_t all;
        sum_before(cost_of(entry_of<L>(args, from + threadIdx.x)), &all);
        total += all;
    }
    const int32_t share = max((total + plan.blocks - 1) / plan.blocks, (int32_t)LEAST_SHARE);
    const int32_t begin = blockIdx.x * share;
    if (threadIdx.x == 0) found = {args.num_decodes, total, share};
    for (int32_t from = 0; from < args.num_decodes && before <= begin; from += THREADS) {
        int32_t all;
        const int32_t i = from + threadIdx.x, cost = cost_of(entry_of<L>(args, i));
        const int32_t start = before + sum_before(cost, &all);
        if (start <= begin && begin < start + cost) found = {i, start, share};
        before += all;
    }
    __syncthreads();
    return found;
}

/* Notes of all tiles what they are combined of. */
template <class L>
static __device__ __forceinline__ void note_tiles(const latent_attention_args &args, const latent_plan &plan,
                                                  int32_t share)
{
    int32_t before = 0;
    for (int32_t i = threadIdx.x; i < args.num_decodes * plan.entry_tiles; i += THREADS) plan.tiles[i].pieces = 0;
    for (int32_t from = 0; from < args.num_decodes; from += THREADS) {
        int32_t all;
        const int32_t i = from + threadIdx.x;
        const latent_entry e = entry_of<L>(args, i);
        const int32_t start = before + sum_before(cost_of(e), &all);
        for (int32_t t = 0; t < e.tiles; t++) {
            const int32_t at = start + t * (e.chunks + OVERHEAD) + OVERHEAD, row = t * L::ROWS;
            const int32_t first = at / share, last = (at + e.chunks - 1) / share;
            plan.tiles[i * plan.entry_tiles + t] = {2 * first + 1, last - first + 1,
                                                    e.first_token * args.num_heads + row,
                                                    min((int32_t)L::ROWS, e.rows - row)};
        }
        before += all;
    }
}

template <class L>
static __global__ void __launch_bounds__(THREADS, 1)
    latent_decode_kernel(const __grid_constant__ struct latent_attention_args args,
                         const __grid_constant__ struct latent_plan plan)
{
    extern __shared__ __align__(128) uint8_t memory[];
    let_next_start();
    const latent_begin begin = find_begin<L>(args, plan);
    const int32_t end = (blockIdx.x + 1) * begin.share;
    int32_t at = blockIdx.x * begin.share, start = begin.start;
    wait_for_previous();
    if (blockIdx.x == gridDim.x - 1) note_tiles<L>(args, plan, begin.share); /* it has the least work */
    for (int32_t i = begin.entry; i < args.num_decodes && start < end; i++) {
        const latent_entry e = entry_of<L>(args, i);
        const int32_t cost = e.chunks + OVERHEAD;
        for (int32_t t = (at - start) / cost; t < e.tiles && start + t * cost < end; t++) {
            const int32_t first = start + t * cost + OVERHEAD;
            latent_piece piece = tile_of(args, e, i, t, L::ROWS);
            piece.begin = max(at - first, 0);
            piece.end = min(end - first, e.chunks);
            if (piece.begin > 0 || piece.end < e.chunks) piece.place = 2 * blockIdx.x + (piece.begin == 0);
            if (piece.begin < piece.end) compute_piece<L>(args, plan, piece, memory);
        }
        start += cost_of(e);
        at = max(at, start);
    }
}

/* ---- prefills ---- */

/* Grid: x parts of tiles, the last tiles of prompts, which have the most work, first; y entries. */
template <class L>
static __global__ void __launch_bounds__(THREADS, 1)
    latent_prefill_kernel(const __grid_constant__ struct latent_attention_args args,
                          const __grid_constant__ struct latent_plan plan)
{
    extern __shared__ __align__(128) uint8_t memory[];
    const int32_t i = plan.first_seq + blockIdx.y, parts = plan.blocks, part = blockIdx.x % parts;
    const int32_t tile = plan.entry_tiles - 1 - (int32_t)blockIdx.x / parts;
    const int32_t index = blockIdx.y * plan.entry_tiles + tile;
    latent_entry e = {};
    e.first_token = args.query_start[i];
    e.query_len = args.query_start[i + 1] - e.first_token;
    e.seq_len = args.seq_lens[i];
    e.rows = e.query_len * args.num_heads;
    let_next_start();
    wait_for_previous();
    if (tile * L::ROWS >= e.rows) {
        if (parts > 1 && part == 0 && threadIdx.x == 0) plan.tiles[index].pieces = 0;
        return;
    }
    latent_piece piece = tile_of(args, e, i, tile, L::ROWS);
    const int32_t chunks = (piece.last_end + CHUNK - 1) / CHUNK;
    piece.begin = (int64_t)chunks * part / parts, piece.end = (int64_t)chunks * (part + 1) / parts;
    if (parts > 1) {
        const int32_t first = 2 * parts * index + 1;
        piece.place = part == 0 ? first : first + 2 * part - 1;
        if (part == 0 && threadIdx.x == 0) plan.tiles[index] = {first, parts, piece.row, piece.rows};
    }
    compute_piece<L>(args, plan, piece, memory);
}

/* ---- combining ---- */

enum { SLICE = LANES * 4 /* columns */ };

/* Combines pieces of a tile: a block takes a row, and SLICE columns of it, at a time. Grid: x tiles, y blocks that
 * share a tile. */
template <class T, int RANK>
static __global__ void __launch_bounds__(THREADS)
    latent_combine_kernel(T *out, const __grid_constant__ struct latent_plan plan, const float *kv_scale)
{
    constexpr int SLICES = RANK / SLICE;
    __shared__ float4 sums[WARPS][LANES];
    __shared__ float maxima[WARPS], weights[WARPS];
    const int32_t lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    let_next_start();
    wait_for_previous();
    const struct latent_tile tile = plan.tiles[blockIdx.x];
    if (tile.pieces <= 1) return;
    for (int32_t item = blockIdx.y; item < tile.rows * SLICES; item += gridDim.y) {
        const int32_t row = item / SLICES, column = item % SLICES * SLICE + lane * 4;
        float max = -INFINITY, weight = 0;
        float4 sum = {};
#pragma unroll 4
        for (int32_t i = warp; i < tile.pieces; i += WARPS) {
            const int64_t place = (int64_t)(i == 0 ? tile.first : tile.first + 2 * i - 1) * MAX_ROWS + row;
            const float2 stats = plan.stats[place];
            const float4 x = *(const float4 *)(plan.partials + place * RANK + column);
            const float most = fmaxf(max, stats.x), base = most == -INFINITY ? 0 : most;
            const float old = exp2_fast(max - base), now = exp2_fast(stats.x - base);
            max = most;
            weight = weight * old + stats.y * now;
            sum.x = sum.x * old + x.x * now, sum.y = sum.y * old + x.y * now;
            sum.z = sum.z * old + x.z * now, sum.w = sum.w * old + x.w * now;
        }
        sums[warp][lane] = sum;
        if (lane == 0) maxima[warp] = max, weights[warp] = weight;
        __syncthreads();
        if (warp == 0) {
            for (int w = 1; w < WARPS; w++) max = fmaxf(max, maxima[w]);
            const float base = max == -INFINITY ? 0 : max;
            sum = {}, weight = 0;
            for (int w = 0; w < WARPS; w++) {
                const float now = exp2_fast(maxima[w] - base);
                const float4 x = sums[w][lane];
                weight += weights[w] * now;
                sum.x += x.x * now, sum.y += x.y * now, sum.z += x.z * now, sum.w += x.w * now;
            }
            const float factor = weight == 0 ? 0 : (kv_scale ? *kv_scale : 1) / weight;
            const uint2 pairs = {pack_pair<T>(sum.x * factor, sum.y * factor),
                                 pack_pair<T>(sum.z * factor, sum.w * factor)};
            *(uint2 *)(out + (int64_t)(tile.row + row) * RANK + column) = pairs;
        }
        __syncthreads();
    }
}

/* ---- launches ---- */

static int32_t min_int(int64_t a, int64_t b)
{
    return (int32_t)(a < b ? a : b);
}

/* How the region of the workspace is divided. */
struct latent_layout {
    int64_t places, stats, partials, bytes; /* the tiles come first */
};

static struct latent_layout layout_of(const struct cuda_state *s, int64_t tiles, int32_t rank)
{
    struct latent_layout l = {2 * s->num_sms};
    l.stats = cuda_div_up(tiles * (int64_t)sizeof(struct latent_tile), 256) * 256;
    l.partials = l.stats + l.places * MAX_ROWS * (int64_t)sizeof(float2);
    l.bytes = l.partials + l.places * MAX_ROWS * rank * (int64_t)sizeof(float);
    return l;
}

int64_t cuda_latent_workspace(const struct cuda_state *s, const struct workspace_query *query)
{
    if (query->latent_rank <= 0 || query->latent_rank > MAX_RANK) return 0;
    const int64_t decodes = (int64_t)query->max_num_seqs * cuda_div_up(query->num_heads, 32);
    return layout_of(s, decodes + s->num_sms, query->latent_rank).bytes;
}

/* A call, before its types are known. */
struct latent_launch {
    struct backend *b;
    const struct latent_attention_args *args;
    struct latent_plan plan;
};

template <class L> static void combine(const struct latent_launch *l, int64_t tiles)
{
    const struct cuda_state *s = cuda_state(l->b);
    const int64_t each = cuda_div_up(2 * s->num_sms, tiles), most = L::ROWS * (L::RANK / SLICE);
    const dim3 grid((unsigned)tiles, (unsigned)min_int(each < 4 ? 4 : each, most));
    cuda_launch_dependent(s, latent_combine_kernel<typename L::T, L::RANK>, {grid, THREADS},
                          (typename L::T *)l->args->out, l->plan, L::FP8 ? l->args->kv_scales : (const float *)NULL);
    cuda_check_launch(l->b, "latent attention");
}

/* Stages of the ring that fit; 2 at least. */
template <class L> static int32_t stages_of(const struct cuda_state *s)
{
    enum { NOT_DYNAMIC = 1024 };
    return min_int((s->max_shared_bytes - NOT_DYNAMIC - L::RING_AT) / L::STAGE_BYTES, MAX_STAGES);
}

template <class L> static void launch_decodes(struct latent_launch *l)
{
    const struct cuda_state *s = cuda_state(l->b);
    const struct latent_attention_args *args = l->args;
    l->plan.stages = stages_of<L>(s);
    l->plan.entry_tiles = (int32_t)cuda_div_up(args->num_heads, L::ROWS);
    l->plan.blocks = s->num_sms;
    const int shared_bytes = L::RING_AT + l->plan.stages * L::STAGE_BYTES;
    cuda_run_dependent(l->b, "latent attention", latent_decode_kernel<L>,
                       {dim3((unsigned)l->plan.blocks), THREADS, shared_bytes}, *args, l->plan);
    if (args->max_seq_len > CHUNK) combine<L>(l, (int64_t)args->num_decodes * l->plan.entry_tiles);
}

/* A tile is divided between blocks as long as there are multiprocessors for all of them. */
template <class L> static void launch_prefills(struct latent_launch *l)
{
    const struct cuda_state *s = cuda_state(l->b);
    const struct latent_attention_args *args = l->args;
    const int32_t entries = args->num_seqs - args->num_decodes;
    l->plan.stages = stages_of<L>(s);
    l->plan.first_seq = args->num_decodes;
    l->plan.entry_tiles = (int32_t)cuda_div_up((int64_t)args->max_query_len * args->num_heads, L::ROWS);
    const int64_t tiles = (int64_t)l->plan.entry_tiles * entries, chunks = cuda_div_up(args->max_seq_len, CHUNK);
    l->plan.blocks = min_int(s->num_sms / tiles, cuda_div_up(chunks, LEAST_SHARE));
    if (l->plan.blocks < 1) l->plan.blocks = 1;
    const int shared_bytes = L::RING_AT + l->plan.stages * L::STAGE_BYTES;
    const dim3 grid((unsigned)(l->plan.entry_tiles * l->plan.blocks), (unsigned)entries);
    cuda_run_dependent(l->b, "latent attention", latent_prefill_kernel<L>, {grid, THREADS, shared_bytes}, *args,
                       l->plan);
    if (l->plan.blocks > 1) combine<L>(l, tiles);
}

/* Large tiles are for many rows, where they fit into shared memory. False: neither do small ones. */
template <class T, bool FP8, int RANK> static bool launch(struct latent_launch *l)
{
    using small = latent_traits<T, FP8, RANK, 32>;
    using large = latent_traits<T, FP8, RANK, 64>;
    const struct cuda_state *s = cuda_use(l->b);
    const struct latent_attention_args *args = l->args;
    const bool has_small = stages_of<small>(s) >= 2, has_large = stages_of<large>(s) >= 2;
    if (!has_small) return false;
    const int64_t rows = (int64_t)args->num_heads * (args->max_run_len > 1 ? args->max_run_len : 1);
    if (args->num_decodes > 0 && has_large && rows > 32)
        launch_decodes<large>(l);
    else if (args->num_decodes > 0)
        launch_decodes<small>(l);
    if (args->num_seqs > args->num_decodes && has_large)
        launch_prefills<large>(l);
    else if (args->num_seqs > args->num_decodes)
        launch_prefills<small>(l);
    return true;
}

static bool is_for_tensor_cores(const struct latent_attention_args *args)
{
    const bool fp8 = dtype_size(args->cache_dtype) == 1;
    return args->dtype != DTYPE_FLOAT32 && (args->cache_dtype == args->dtype || fp8) &&
           (args->rank == 512 || args->rank == 256) && args->rope <= MAX_ROPE && args->rope % 16 == 0 &&
           args->block_size % WARP_TOKENS == 0 && args->block_stride * dtype_size(args->cache_dtype) % 16 == 0 &&
           cuda_is_aligned(args->query) && cuda_is_aligned(args->out) && cuda_is_aligned(args->cache);
}

/* Sets the plan's part of the workspace; false: it has no room. */
static bool take_workspace(struct latent_launch *l)
{
    const struct cuda_state *s = cuda_state(l->b);
    const struct cuda_region *region = &s->regions[CUDA_USER_LATENT];
    const int64_t tiles = l->args->num_decodes * cuda_div_up(l->args->num_heads, 32) + s->num_sms;
    const struct latent_layout layout = layout_of(s, tiles, l->args->rank);
    if (!region->data || layout.bytes > region->bytes) return false;
    l->plan.tiles = (struct latent_tile *)region->data;
    l->plan.stats = (float2 *)(region->data + layout.stats);
    l->plan.partials = (float *)(region->data + layout.partials);
    return true;
}

static bool launch_types(struct latent_launch *l)
{
    const bool fp8 = dtype_size(l->args->cache_dtype) == 1, large = l->args->rank == 512;
    auto with_type = [&](auto zero) {
        using T = decltype(zero);
        if (fp8) return large ? launch<T, true, 512>(l) : launch<T, true, 256>(l);
        return large ? launch<T, false, 512>(l) : launch<T, false, 256>(l);
    };
    return l->args->dtype == DTYPE_FLOAT16 ? with_type(__half()) : with_type(__nv_bfloat16());
}

void cuda_latent_attention(struct backend *b, const struct latent_attention_args *args)
{
    struct latent_launch l = {b, args};
    if (args->num_seqs <= 0 || args->num_tokens <= 0) return;
    if (is_for_tensor_cores(args) && take_workspace(&l) && launch_types(&l)) return;
    cuda_latent_generic(b, args);
}
