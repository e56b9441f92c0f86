/* Latent attention on tensor cores: 16-bit activations, and a cache of the same type or of fp8. The cost of decodes is
 * to read the latents once, at the speed of memory; that of prefills is the products. plan.cuh says how the work is
 * divided. Hopper computes the same in attention_wgmma.cu.
 *
 * A block reads the context several chunks ahead. For S a warp has 16 rows, 16 tokens and a part of the columns, whose
 * scores are added up through shared memory; Q of small tiles stays in its registers. For O it has all rows and a
 * sixteenth of the columns. Between two barriers the block computes S of a chunk and O of the one before it; then it
 * makes P of S, while copies go on. Rows of chunks are padded by 16 bytes, so that 8 of them lie in different banks.
 * Chunks of fp8 are converted by the threads that have copied them, into one of two places. */
#include <type_traits>

#include "kernels/cuda/attention/attention_mma.cuh"
#include "kernels/cuda/latent/plan.cuh"
#include "kernels/cuda/operations.h"

enum { TOKENS = 32 /* of a chunk */, WARP_TOKENS = TOKENS / WARPS, MAX_STAGES = 8, MAX_GROWTH = 8 };

template <class Type, bool is_fp8, int latent_rank, int rows> struct latent_traits {
    using T = Type;
    static constexpr bool FP8 = is_fp8;
    static constexpr int RANK = latent_rank, ROWS = rows, CHUNK = TOKENS;
    static constexpr int OVERHEAD = 2, LEAST_SHARE = 2;
    static constexpr int SIZE = RANK + MAX_ROPE; /* there is room for */
    static constexpr int ROW_TILES = ROWS / 16;
    static constexpr int PARTS = WARPS / ROW_TILES / (TOKENS / 16); /* of the columns of S */
    static constexpr int STEPS = (SIZE / 16 + PARTS - 1) / PARTS;   /* of 16 columns of a part, most */
    static constexpr bool KEEPS_QUERY = ROWS == 32;                 /* in registers */
    static constexpr int THREADS_PER_ROW = THREADS / ROWS, ROW_TOKENS = TOKENS / THREADS_PER_ROW; /* of the softmax */
    static constexpr int TILES = RANK / WARPS / 8; /* of a warp's columns of O */
    static constexpr int STRIDE = SIZE * 2 + 16;   /* bytes from row to row, of Q and of chunks */
    static constexpr int CHUNK_BYTES = TOKENS * STRIDE;
    static constexpr int STAGE_BYTES = FP8 ? TOKENS * SIZE : CHUNK_BYTES;
    static constexpr int PIECES = (SIZE * (FP8 ? 1 : 2) / 16 * WARP_TOKENS + LANES - 1) / LANES; /* of a lane, most */
    static constexpr int SCORE_STRIDE = TOKENS + 8;                                              /* floats */
    static constexpr int WEIGHT_STRIDE = TOKENS * 2 + 16;                                        /* bytes */
    /* Shared memory: Q, S, P, with fp8 two chunks, and the ring of copies. */
    static constexpr int S_AT = ROWS * STRIDE;
    static constexpr int P_AT = S_AT + PARTS * ROWS * SCORE_STRIDE * 4;
    static constexpr int CHUNKS_AT = P_AT + ROWS * WEIGHT_STRIDE;
    static constexpr int RING_AT = CHUNKS_AT + (FP8 ? 2 * CHUNK_BYTES : 0);
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
    int32_t log_block_size, pieces; /* pieces of 16 bytes of a token */
    uint32_t inverse;               /* 1 / pieces, times 2^16 and rounded up */
    int32_t begin, count, end;      /* chunks; tokens that may be read */
    int32_t block;                  /* of the warp's tokens of the chunk that is copied next */
    int32_t issued;                 /* chunks of which the copy has begun, and those that do not exist */
};

static __device__ __forceinline__ int32_t first_token(const chunk_copies &c, int32_t i)
{
    return (c.begin + i) * TOKENS + (int32_t)(threadIdx.x / LANES) * WARP_TOKENS;
}

static __device__ __forceinline__ void look_up_block(chunk_copies &c)
{
    const int32_t token = first_token(c, c.issued);
    c.block = c.issued < c.count && token < c.end ? c.block_table[token >> c.log_block_size] : 0;
}

template <class L>
static __device__ __forceinline__ chunk_copies copies_of(const latent_attention_args &args, const latent_piece &piece)
{
    constexpr int ELEMENT = L::FP8 ? 1 : 2;
    const int32_t pieces = (args.rank + args.rope) * ELEMENT / 16;
    chunk_copies c = {(const uint8_t *)args.cache,
                      piece.block_table,
                      args.block_stride * ELEMENT,
                      __ffs(args.block_size) - 1,
                      pieces,
                      (65536u + pieces - 1) / pieces,
                      piece.begin,
                      piece.end - piece.begin,
                      piece.last_end};
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
        const uint8_t *from =
            c.cache + c.block * c.block_bytes + (token & ((1 << c.log_block_size) - 1)) * c.pieces * 16;
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

/* A warp's share of S: 16 rows, 16 tokens, and some of the columns in steps of 16. */
struct score_share {
    int32_t row, tokens, part, first, count; /* first: step */
};

template <class L> static __device__ __forceinline__ score_share score_share_of(const latent_attention_args &args)
{
    const int32_t warp = threadIdx.x / LANES, part = warp / 2 % L::PARTS, steps = (args.rank + args.rope) / 16;
    const int32_t first = steps * part / L::PARTS, last = steps * (part + 1) / L::PARTS;
    return {warp / 2 / L::PARTS * 16, warp % 2 * 16, part, first, last - first};
}

/* Q of a warp's share, where it stays in registers; otherwise it is loaded for each chunk. */
template <class L> struct query_share {
    uint32_t a[L::KEEPS_QUERY ? L::STEPS : 1][4];
};

/* The lane's address of the share's first step of Q. */
template <class L> static __device__ __forceinline__ uint32_t query_at(const score_share &share, uint32_t shared)
{
    const int32_t lane = threadIdx.x % LANES;
    return shared + (share.row + lane % 16) * L::STRIDE + lane / 16 * 16 + share.first * 32;
}

template <class L>
static __device__ __forceinline__ void load_query(query_share<L> &query, const score_share &share, uint32_t shared)
{
    if constexpr (L::KEEPS_QUERY) {
        const uint32_t q = query_at<L>(share, shared);
#pragma unroll
        for (int i = 0; i < L::STEPS; i++)
            if (i < share.count) load_matrices(query.a[i], q + i * 32);
    }
}

/* S of a chunk. Operands of some steps are loaded at a time, so that the products do not wait for each load. */
template <class L>
static __device__ __forceinline__ void multiply_keys(const query_share<L> &query, const score_share &share,
                                                     int32_t rows, uint32_t shared, uint32_t chunk, float *scores)
{
    constexpr int GROUP = L::KEEPS_QUERY ? 3 : 2;
    const int32_t lane = threadIdx.x % LANES;
    const uint32_t q = query_at<L>(share, shared);
    const uint32_t k =
        chunk + (share.tokens + lane / 16 * 8 + lane % 8) * L::STRIDE + lane / 8 % 2 * 16 + share.first * 32;
    if (share.row >= rows) return;
    float s[2][4] = {};
#pragma unroll
    for (int i = 0; i < L::STEPS; i += GROUP) {
        uint32_t a[GROUP][4], b[GROUP][4];
#pragma unroll
        for (int g = 0; g < GROUP; g++) {
            if (i + g >= L::STEPS || i + g >= share.count) continue;
            load_matrices(b[g], k + (i + g) * 32);
            if constexpr (!L::KEEPS_QUERY) load_matrices(a[g], q + (i + g) * 32);
        }
#pragma unroll
        for (int g = 0; g < GROUP; g++) {
            if (i + g >= L::STEPS || i + g >= share.count) continue;
            const uint32_t *of_step = L::KEEPS_QUERY ? query.a[L::KEEPS_QUERY ? i + g : 0] : a[g];
            multiply_add<typename L::T>(s[0], of_step, b[g][0], b[g][1]);
            multiply_add<typename L::T>(s[1], of_step, b[g][2], b[g][3]);
        }
    }
    float *to = scores + (share.part * L::ROWS + share.row + lane / 4) * L::SCORE_STRIDE + share.tokens + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < 2; n++)
        for (int r = 0; r < 2; r++)
            *(float2 *)(to + r * 8 * L::SCORE_STRIDE + n * 8) = make_float2(s[n][2 * r], s[n][2 * r + 1]);
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
    for (int t = 0; t < TOKENS / 16; t++) {
        uint32_t a[L::ROW_TILES][4], b[L::TILES / 2][4];
#pragma unroll
        for (int n = 0; n < L::TILES / 2; n++) load_matrices_transposed(b[n], v + t * 16 * L::STRIDE + n * 32);
#pragma unroll
        for (int m = 0; m < L::ROW_TILES; m++)
            if (m * 16 < rows) load_matrices(a[m], p + m * 16 * L::WEIGHT_STRIDE + t * 32);
#pragma unroll
        for (int m = 0; m < L::ROW_TILES; m++) {
            if (m * 16 >= rows) continue;
#pragma unroll
            for (int n = 0; n < L::TILES; n++)
                multiply_add<typename L::T>(sums.out[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
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
    for (int i = 0; i < L::ROW_TOKENS; i += 2) {
        float2 sum = {};
#pragma unroll
        for (int p = 0; p < L::PARTS; p++) {
            const float2 s = *(const float2 *)(scores + (p * L::ROWS + r) * L::SCORE_STRIDE + token + i);
            sum.x += s.x, sum.y += s.y;
        }
        x[i] = sum.x, x[i + 1] = sum.y;
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
    for (int i = 0; i < L::ROW_TOKENS; i += 2) {
        x[i] = exp2_fast(x[i] - base), x[i + 1] = exp2_fast(x[i + 1] - base);
        row.sum += x[i] + x[i + 1];
        asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(weights + r * L::WEIGHT_STRIDE + (token + i) * 2),
                     "r"(pack_pair<typename L::T>(x[i], x[i + 1]))
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
    query_share<L> query = {};
    const score_share share = score_share_of<L>(args);
    __syncthreads(); /* no warp needs the last piece any more */
    copy_query<L>(args, piece, shared);
    for (int i = 0; i < stages; i++) copy_next<L>(copies, ring, stages);
    if (count > 0) await_chunk<L>(copies, 0, shared, stages, e5m2);
    __syncthreads();
    load_query<L>(query, share, shared);
    for (int32_t i = 0; i < count; i++) {
        const uint32_t chunk = chunk_at<L>(shared, i, stages);
        multiply_keys<L>(query, share, piece.rows, shared, chunk, scores);
        if (i > 0) multiply_values<L>(sums, piece.rows, weights, chunk_at<L>(shared, i - 1, stages), factors);
        __syncthreads(); /* the scores are there, and no warp needs weights and the chunk before this any more */
        if (!L::FP8 && i > 0) copy_next<L>(copies, ring, stages);
        weigh<L>(row, scores, weights, factors, (piece.begin + i) * TOKENS, scale_log2);
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

/* ---- kernels ---- */

template <class L>
static __global__ void __launch_bounds__(THREADS, 1)
    latent_decode_kernel(const __grid_constant__ struct latent_attention_args args,
                         const __grid_constant__ struct latent_plan plan)
{
    extern __shared__ __align__(128) uint8_t memory[];
    let_next_start();
    const latent_begin begin = find_begin<L>(args, plan);
    wait_for_previous();
    if (blockIdx.x == gridDim.x - 1) note_tiles<L>(args, plan, begin.share); /* it has the least work */
    each_piece<L>(args, begin, [&](const latent_piece &piece) { compute_piece<L>(args, plan, piece, memory); });
}

template <class L>
static __global__ void __launch_bounds__(THREADS, 1)
    latent_prefill_kernel(const __grid_constant__ struct latent_attention_args args,
                          const __grid_constant__ struct latent_plan plan)
{
    extern __shared__ __align__(128) uint8_t memory[];
    let_next_start();
    wait_for_previous();
    each_prefill_piece<L>(args, plan, [&](const latent_piece &piece) { compute_piece<L>(args, plan, piece, memory); });
}

/* ---- launches ---- */

/* How the region of the workspace is divided. */
struct latent_layout {
    int64_t places, tiles, stats, partials, bytes; /* the counters come first, which every call must find */
};

static struct latent_layout layout_of(const struct cuda_state *s, int64_t tiles, int32_t rank)
{
    struct latent_layout l = {2 * s->num_sms};
    l.tiles = cuda_div_up(s->num_sms * (int64_t)sizeof(uint32_t), 256) * 256;
    l.stats = l.tiles + cuda_div_up(tiles * (int64_t)sizeof(struct latent_tile), 256) * 256;
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

/* Stages of the ring that fit; 2 at least. */
template <class L> static int32_t stages_of(const struct cuda_state *s)
{
    enum { NOT_DYNAMIC = 1024 };
    return min_int((s->max_shared_bytes - NOT_DYNAMIC - L::RING_AT) / L::STAGE_BYTES, MAX_STAGES);
}

template <class L> static void launch_decodes(struct latent_launch *l)
{
    const int64_t tiles = plan_decodes<L>(l);
    l->plan.stages = stages_of<L>(cuda_state(l->b));
    const int shared_bytes = L::RING_AT + l->plan.stages * L::STAGE_BYTES;
    cuda_run_dependent(l->b, "latent attention", latent_decode_kernel<L>,
                       {dim3((unsigned)l->plan.blocks), THREADS, shared_bytes}, *l->args, l->plan);
    cuda_latent_combine(l, tiles, L::ROWS);
}

template <class L> static void launch_prefills(struct latent_launch *l)
{
    const int64_t tiles = plan_prefills<L>(l);
    l->plan.stages = stages_of<L>(cuda_state(l->b));
    const int shared_bytes = L::RING_AT + l->plan.stages * L::STAGE_BYTES;
    const dim3 grid((unsigned)prefill_items(*l->args, l->plan));
    cuda_run_dependent(l->b, "latent attention", latent_prefill_kernel<L>, {grid, THREADS, shared_bytes}, *l->args,
                       l->plan);
    cuda_latent_combine(l, tiles, L::ROWS);
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
           args->block_size % WARP_TOKENS == 0 && (args->block_size & (args->block_size - 1)) == 0 &&
           args->block_stride * dtype_size(args->cache_dtype) % 16 == 0 && cuda_is_aligned(args->query) &&
           cuda_is_aligned(args->out) && cuda_is_aligned(args->cache);
}

/* Sets the plan's part of the workspace; false: it has no room. */
static bool take_workspace(struct latent_launch *l)
{
    const struct cuda_state *s = cuda_state(l->b);
    const struct cuda_region *region = &s->regions[CUDA_USER_LATENT];
    const int64_t tiles = l->args->num_decodes * cuda_div_up(l->args->num_heads, 32) + s->num_sms;
    const struct latent_layout layout = layout_of(s, tiles, l->args->rank);
    if (!region->data || layout.bytes > region->bytes) return false;
    l->plan.counters = (uint32_t *)region->data;
    l->plan.tiles = (struct latent_tile *)(region->data + layout.tiles);
    l->plan.stats = (float2 *)(region->data + layout.stats);
    l->plan.partials = (float *)(region->data + layout.partials);
    return true;
}

static bool launch_types(struct latent_launch *l)
{
    return latent_dispatch(l->args, [&](auto zero, auto is_fp8, auto rank) {
        return launch<decltype(zero), decltype(is_fp8)::value, decltype(rank)::value>(l);
    });
}

void cuda_latent_attention(struct backend *b, const struct latent_attention_args *args)
{
    struct latent_launch l = {b, args};
    if (args->num_seqs <= 0 || args->num_tokens <= 0) return;
    if (is_for_tensor_cores(args) && take_workspace(&l) && (cuda_latent_wgmma(&l) || launch_types(&l))) return;
    cuda_latent_generic(b, args);
}
