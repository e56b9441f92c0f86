/* Latent attention on Hopper: 16-bit activations, and a cache of the same type. plan.cuh says how the work is divided.
 *
 * The warpgroups of a block work like a pipeline, with barriers between them. One copies Q of a tile and chunks of the
 * context to shared memory. One computes S of a chunk and makes P of it in registers, as prefill does; P goes to shared
 * memory, with the factors by which its rows' maxima have changed. Two have half the columns of O each, in registers.
 * While these multiply P and V of a chunk, S of the next one is computed and those behind it are copied. The lower half
 * of a chunk is free when both have multiplied it, before the upper one.
 *
 * Shared memory holds Q, STAGES chunks and P, as operands of wgmma: panels of 64 columns, which have rows of 128 bytes
 * in the 128-byte swizzle. A row of a chunk is a token: as K, a column of B; as V, a row of B. Rows of tiles and tokens
 * of chunks that do not exist are zeros, and so is what a rotated key lacks to 64 elements. */
#include "kernels/cuda/attention/attention_wgmma.cuh"
#include "kernels/cuda/attention/softmax.cuh"
#include "kernels/cuda/barrier.cuh"
#include "kernels/cuda/latent/plan.cuh"
#include "kernels/cuda/operations.h"

enum { GROUP_THREADS = 128, GROUPS = THREADS / GROUP_THREADS, HALVES = 2 /* of a chunk */ };
enum { COPY_REGISTERS = 56, SCORE_REGISTERS = 104, VALUE_REGISTERS = 176 };

/* TOKENS, HEAD and VARIANT are for softmax.cuh. */
template <class Type, int latent_rank> struct wgmma_traits {
    using T = Type;
    static constexpr int RANK = latent_rank, ROWS = 64, CHUNK = 64;
    static constexpr int OVERHEAD = 1, LEAST_SHARE = 1;
    static constexpr int TOKENS = CHUNK, HEAD = RANK;
    static constexpr bool VARIANT = false;
    static constexpr int PANELS = (RANK + MAX_ROPE) / 64, PANEL_BYTES = 64 * 128; /* of Q, and of a chunk */
    static constexpr int CHUNK_BYTES = PANELS * PANEL_BYTES;
    static constexpr int STAGES = RANK == 512 ? 2 : 4;
    static constexpr int COLUMNS = RANK / 2; /* of O, of a warpgroup */
    static constexpr int CHUNKS_AT = CHUNK_BYTES, P_AT = CHUNKS_AT + STAGES * CHUNK_BYTES;
    static constexpr int SHARED_BYTES = P_AT + PANEL_BYTES;
};

#ifdef ATTENTION_HAVE_WGMMA

/* What passes between the warpgroups. Barriers are full when what they are named for is there, and empty when it may be
 * overwritten. */
template <class L> struct latent_shared {
    uint64_t full[L::STAGES], empty[L::STAGES][HALVES];
    uint64_t query_full, query_empty, weights_full, weights_empty;
    float factors[L::ROWS]; /* belong to the weights: what O is multiplied by before they are added */
    float last[L::ROWS];    /* belong to the last weights of a piece: what O is multiplied by in the end */
};

template <class L> static __device__ __forceinline__ void init_barriers(latent_shared<L> &shared)
{
    constexpr int VALUE_WARPS = 2 * GROUP_THREADS / LANES;
    for (int i = 0; i < L::STAGES; i++) {
        barrier_init(&shared.full[i], GROUP_THREADS);
        for (int h = 0; h < HALVES; h++) barrier_init(&shared.empty[i][h], VALUE_WARPS);
    }
    barrier_init(&shared.query_full, GROUP_THREADS);
    barrier_init(&shared.query_empty, GROUP_THREADS / LANES);
    barrier_init(&shared.weights_full, GROUP_THREADS);
    barrier_init(&shared.weights_empty, VALUE_WARPS);
    barrier_init_fence();
}

/* Where a warpgroup is: how many pieces and chunks it has finished, and the stage of the next chunk. */
struct latent_progress {
    uint32_t pieces, chunks;
    ring_place ring;
};

/* ---- copies ---- */

/* The place of piece `column` of 16 bytes of a row of a panel. */
static __device__ __forceinline__ uint32_t swizzled_place(int32_t row, int32_t column)
{
    return row * 128 + (column ^ row % 8) * 16;
}

/* A thread copies 16 bytes of each panel, of every 16th row. */
template <class L>
static __device__ __forceinline__ void copy_rows(const latent_attention_args &args, const latent_piece &piece,
                                                 uint32_t q)
{
    const int32_t thread = threadIdx.x % GROUP_THREADS, column = thread % 8, size = args.rank + args.rope;
    const bool has_last = column * 8 < args.rope;
    const typename L::T *query = (const typename L::T *)args.query + (int64_t)piece.row * size + column * 8;
#pragma unroll
    for (int j = 0; j < L::ROWS / 16; j++) {
        const int32_t row = j * 16 + thread / 8;
        const bool there = row < piece.rows;
        const typename L::T *from = there ? query + row * size : query;
#pragma unroll
        for (int p = 0; p < L::PANELS; p++)
            copy_async(q + p * L::PANEL_BYTES + swizzled_place(row, column), from + p * 64,
                       there && (p < L::PANELS - 1 || has_last));
    }
}

/* The tokens of a thread: every fourth of its warp's 16. A half of a chunk is copied by two warps. */
enum { TOKEN_STEP = 4, THREAD_TOKENS = 16 / TOKEN_STEP };

static __device__ __forceinline__ int32_t token_of(int32_t j)
{
    return threadIdx.x % GROUP_THREADS / LANES * 16 + j * TOKEN_STEP + threadIdx.x % LANES / 8;
}

/* The blocks of the thread's tokens of the chunk from token `start` on. */
static __device__ __forceinline__ void look_up_blocks(const latent_piece &piece, int32_t log_block_size, int32_t start,
                                                      int32_t (&blocks)[THREAD_TOKENS])
{
#pragma unroll
    for (int j = 0; j < THREAD_TOKENS; j++) {
        const int32_t token = start + token_of(j);
        blocks[j] = token < piece.last_end ? piece.block_table[token >> log_block_size] : 0;
    }
}

/* A thread copies 16 bytes of each panel of its tokens of the chunk from token `start` on. */
template <class L>
static __device__ __forceinline__ void copy_chunk(const latent_attention_args &args, int32_t start, int32_t end,
                                                  const int32_t (&blocks)[THREAD_TOKENS], uint32_t to)
{
    const int32_t column = threadIdx.x % 8, size = args.rank + args.rope;
    const bool has_last = column * 8 < args.rope;
    const typename L::T *cache = (const typename L::T *)args.cache + column * 8;
#pragma unroll
    for (int j = 0; j < THREAD_TOKENS; j++) {
        const int32_t row = token_of(j), token = start + row;
        const bool there = token < end;
        const typename L::T *from = cache + blocks[j] * args.block_stride + (token & (args.block_size - 1)) * size;
#pragma unroll
        for (int p = 0; p < L::PANELS; p++)
            copy_async(to + p * L::PANEL_BYTES + swizzled_place(row, column), from + p * 64,
                       there && (p < L::PANELS - 1 || has_last));
    }
}

/* The copying warpgroup's part of a piece. */
template <class L>
static __device__ __forceinline__ void copy_piece(const latent_attention_args &args, const latent_piece &piece,
                                                  latent_shared<L> &shared, uint32_t memory, latent_progress &at)
{
    const int32_t half = threadIdx.x % GROUP_THREADS / (GROUP_THREADS / HALVES);
    const int32_t log_block_size = __ffs(args.block_size) - 1;
    int32_t blocks[THREAD_TOKENS];
    look_up_blocks(piece, log_block_size, piece.begin * L::CHUNK, blocks);
    barrier_wait(&shared.query_empty, at.pieces++ % 2 ^ 1);
    copy_rows<L>(args, piece, memory);
    barrier_arrive_copied(&shared.query_full);
    for (int32_t i = piece.begin; i < piece.end; i++) {
        barrier_wait(&shared.empty[at.ring.stage][half], at.ring.round % 2 ^ 1);
        copy_chunk<L>(args, i * L::CHUNK, piece.last_end, blocks,
                      memory + L::CHUNKS_AT + at.ring.stage * L::CHUNK_BYTES);
        barrier_arrive_copied(&shared.full[at.ring.stage]);
        if (i + 1 < piece.end) look_up_blocks(piece, log_block_size, (i + 1) * L::CHUNK, blocks);
        ring_step(at.ring, L::STAGES);
    }
}

/* ---- scores ---- */

/* S = Q K^T. */
template <class L>
static __device__ __forceinline__ void multiply_keys(float (&s)[L::CHUNK / 2], uint32_t q, uint32_t chunk)
{
    const uint64_t rows = swizzled_descriptor(q), keys = swizzled_descriptor(chunk);
    wgmma_pin(s);
    wgmma_begin();
#pragma unroll
    for (int p = 0; p < L::PANELS; p++)
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int offset = p * L::PANEL_BYTES / 16 + k * 2;
            wgmma_shared<typename L::T, L::CHUNK>(s, rows + offset, keys + offset, p + k > 0);
        }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(s);
}

/* The thread's two rows. Rows that do not exist attend to all tokens, so that their maxima do not change either. */
static __device__ __forceinline__ void start_rows(const latent_attention_args &args, const latent_piece &piece,
                                                  int32_t first_row, row_state rows[2])
{
    for (int r = 0; r < 2; r++) {
        const int32_t row = first_row + r * 8;
        const int32_t end = row < piece.rows ? piece.first_end + (piece.head + row) / args.num_heads : piece.last_end;
        rows[r] = {0, end - 1, -INFINITY, 0, 0};
    }
}

/* Sets the scores of tokens that a row does not attend to to -INFINITY. */
template <class L>
static __device__ __forceinline__ void mask_scores(float (&s)[L::CHUNK / 2], const row_state rows[2], int32_t start)
{
    if (__all_sync(~0u, start + L::CHUNK - 1 <= min(rows[0].last, rows[1].last))) return;
#pragma unroll
    for (int n = 0; n < L::CHUNK / 2; n++) {
        const int32_t token = start + n / 4 * 8 + threadIdx.x % 4 * 2 + n % 2;
        if (token > rows[n / 2 % 2].last) s[n] = -INFINITY;
    }
}

/* The end of a piece: its sums, whose weights are in the workspace if others are to be added. */
static __device__ __forceinline__ void finish_rows(const latent_plan &plan, const latent_piece &piece,
                                                   const row_state rows[2], int32_t first_row, float scale_log2,
                                                   float *last)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int32_t row = first_row + r * 8;
        float sum = rows[r].sum;
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (threadIdx.x % 4 != 0) continue;
        last[row] = sum == 0 ? 0 : 1 / sum;
        if (piece.place >= 0) plan.stats[piece.place * MAX_ROWS + row] = make_float2(rows[r].max * scale_log2, sum);
    }
}

/* The weights of a chunk as an operand of wgmma. A thread has two neighbouring tokens of 8 at a time, of two rows. */
template <class L>
static __device__ __forceinline__ void store_weights(const uint32_t (&weights)[L::CHUNK / 4], int32_t first_row,
                                                     uint32_t to)
{
#pragma unroll
    for (int n = 0; n < L::CHUNK / 4; n++)
        store_pair(to + swizzled_place(first_row + n % 2 * 8, n / 2) + threadIdx.x % 4 * 4, weights[n]);
}

/* The part of a piece of the warpgroup that computes scores. */
template <class L>
static __device__ __forceinline__ void weigh_piece(const latent_attention_args &args, const latent_plan &plan,
                                                   const latent_piece &piece, latent_shared<L> &shared, uint32_t memory,
                                                   latent_progress &at)
{
    const int32_t lane = threadIdx.x % LANES;
    const int32_t first_row = threadIdx.x % GROUP_THREADS / LANES * 16 + lane / 4;
    const float scale_log2 = args.scale * ATTENTION_LOG2E;
    row_state rows[2];
    start_rows(args, piece, first_row, rows);
    barrier_wait(&shared.query_full, at.pieces++ % 2);
    for (int32_t i = piece.begin; i < piece.end; i++) {
        float s[L::CHUNK / 2], factors[2];
        uint32_t weights[L::CHUNK / 4];
        barrier_wait(&shared.full[at.ring.stage], at.ring.round % 2);
        async_proxy_fence();
        multiply_keys<L>(s, memory, memory + L::CHUNKS_AT + at.ring.stage * L::CHUNK_BYTES);
        if (i == piece.end - 1 && lane == 0) barrier_arrive(&shared.query_empty);
        mask_scores<L>(s, rows, i * L::CHUNK);
        softmax<L>(s, rows, factors, scale_log2);
        pack_weights<L>(weights, s);
        barrier_wait(&shared.weights_empty, at.chunks++ % 2 ^ 1);
        store_weights<L>(weights, first_row, memory + L::P_AT);
        if (lane % 4 == 0) shared.factors[first_row] = factors[0], shared.factors[first_row + 8] = factors[1];
        if (i == piece.end - 1) finish_rows(plan, piece, rows, first_row, scale_log2, shared.last);
        async_proxy_fence();
        barrier_arrive(&shared.weights_full);
        ring_step(at.ring, L::STAGES);
    }
    if (piece.begin == piece.end) {
        finish_rows(plan, piece, rows, first_row, scale_log2, shared.last);
        if (lane == 0) barrier_arrive(&shared.query_empty);
    }
}

/* ---- values ---- */

/* O += P V, and releases the halves of the chunk and the weights. */
template <class L>
static __device__ __forceinline__ void multiply_values(float (&out)[L::COLUMNS / 2], uint32_t weights, uint32_t values,
                                                       latent_shared<L> &shared, int32_t stage)
{
    constexpr int STEPS = L::CHUNK / 16;
    const bool first_lane = threadIdx.x % LANES == 0;
    const uint64_t p = swizzled_descriptor(weights), v = swizzled_rows_descriptor(values, L::PANEL_BYTES);
    wgmma_pin(out);
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
#pragma unroll
        for (int n = 0; n < L::COLUMNS; n += 128)
            wgmma_shared_rows<typename L::T, 128>(out + n / 2, p + k * 2,
                                                  v + (k * 16 * 128 + n / 64 * L::PANEL_BYTES) / 16, true);
        if (k == STEPS / 2 - 1 || k == STEPS - 1) wgmma_commit();
    }
    wgmma_wait<1>();
    barrier_arrive_if(&shared.empty[stage][0], first_lane);
    wgmma_wait<0>();
    wgmma_pin(out);
    barrier_arrive_if(&shared.empty[stage][1], first_lane);
}

/* Stores the thread's two rows: of out, or in the workspace. */
template <class L>
static __device__ __forceinline__ void store_sums(const latent_attention_args &args, const latent_plan &plan,
                                                  const latent_piece &piece, const float (&out)[L::COLUMNS / 2],
                                                  const float factors[2], int32_t first_row, int32_t first_column)
{
    using T = typename L::T;
    const int32_t column = first_column + threadIdx.x % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int32_t row = first_row + r * 8;
        if (row >= piece.rows) continue;
        T *to = (T *)args.out + (int64_t)(piece.row + row) * L::RANK + column;
        float *partial = plan.partials + ((int64_t)piece.place * MAX_ROWS + row) * L::RANK + column;
#pragma unroll
        for (int n = 0; n < L::COLUMNS / 8; n++) {
            const float x = out[n * 4 + r * 2], y = out[n * 4 + r * 2 + 1];
            if (piece.place < 0)
                *(uint32_t *)(to + n * 8) = pack_pair<T>(x * factors[r], y * factors[r]);
            else
                *(float2 *)(partial + n * 8) = make_float2(x, y);
        }
    }
}

/* The part of a piece of a warpgroup that has half the columns of O. */
template <class L>
static __device__ __forceinline__ void sum_piece(const latent_attention_args &args, const latent_plan &plan,
                                                 const latent_piece &piece, latent_shared<L> &shared, uint32_t memory,
                                                 int32_t half, latent_progress &at)
{
    const int32_t first_row = threadIdx.x % GROUP_THREADS / LANES * 16 + threadIdx.x % LANES / 4;
    const uint32_t chunks = memory + L::CHUNKS_AT + half * (L::COLUMNS / 64) * L::PANEL_BYTES;
    float out[L::COLUMNS / 2], factors[2] = {};
#pragma unroll
    for (int n = 0; n < L::COLUMNS / 2; n++) out[n] = 0;
    for (int32_t i = piece.begin; i < piece.end; i++) {
        barrier_wait(&shared.weights_full, at.chunks++ % 2);
        barrier_wait(&shared.full[at.ring.stage], at.ring.round % 2);
        async_proxy_fence();
        factors[0] = shared.factors[first_row], factors[1] = shared.factors[first_row + 8];
        if (i > piece.begin && __any_sync(~0u, factors[0] != 1 || factors[1] != 1)) {
#pragma unroll
            for (int n = 0; n < L::COLUMNS / 2; n++) out[n] *= factors[n / 2 % 2];
        }
        if (i == piece.end - 1) factors[0] = shared.last[first_row], factors[1] = shared.last[first_row + 8];
        multiply_values<L>(out, memory + L::P_AT, chunks + at.ring.stage * L::CHUNK_BYTES, shared, at.ring.stage);
        if (threadIdx.x % LANES == 0) barrier_arrive(&shared.weights_empty);
        ring_step(at.ring, L::STAGES);
    }
    store_sums<L>(args, plan, piece, out, factors, first_row, half * L::COLUMNS);
}

/* ---- kernels ---- */

/* Computes the pieces with which `pieces` calls its argument, which is the same for every thread. */
template <class L, class Pieces>
static __device__ __forceinline__ void compute_pieces(const latent_attention_args &args, const latent_plan &plan,
                                                      latent_shared<L> &shared, uint8_t *tiles, Pieces pieces)
{
    const int32_t group = __shfl_sync(~0u, threadIdx.x / GROUP_THREADS, 0);
    const uint32_t memory = shared_address(tiles);
    latent_progress at = {};
    if (group == 0) {
        give_registers<COPY_REGISTERS>();
        pieces([&](const latent_piece &piece) { copy_piece<L>(args, piece, shared, memory, at); });
        copy_async_wait_all();
    } else if (group == 1) {
        give_registers<SCORE_REGISTERS>();
        pieces([&](const latent_piece &piece) { weigh_piece<L>(args, plan, piece, shared, memory, at); });
    } else {
        take_registers<VALUE_REGISTERS>();
        pieces([&](const latent_piece &piece) { sum_piece<L>(args, plan, piece, shared, memory, group - 2, at); });
    }
}
#endif

template <class L>
static __global__ void __launch_bounds__(THREADS, 1)
    latent_decode_wgmma_kernel(const __grid_constant__ struct latent_attention_args args,
                               const __grid_constant__ struct latent_plan plan)
{
#ifdef ATTENTION_HAVE_WGMMA
    extern __shared__ __align__(1024) uint8_t tiles[];
    __shared__ latent_shared<L> shared;
    if (threadIdx.x == 0) init_barriers(shared);
    let_next_start();
    const latent_begin begin = find_begin<L>(args, plan);
    wait_for_previous();
    if (blockIdx.x == gridDim.x - 1) note_tiles<L>(args, plan, begin.share); /* it has the least work */
    __syncthreads();
    compute_pieces<L>(args, plan, shared, tiles, [&](auto f) { each_piece<L>(args, begin, f); });
#endif
}

template <class L>
static __global__ void __launch_bounds__(THREADS, 1)
    latent_prefill_wgmma_kernel(const __grid_constant__ struct latent_attention_args args,
                                const __grid_constant__ struct latent_plan plan)
{
#ifdef ATTENTION_HAVE_WGMMA
    extern __shared__ __align__(1024) uint8_t tiles[];
    __shared__ latent_shared<L> shared;
    if (threadIdx.x == 0) init_barriers(shared);
    let_next_start();
    wait_for_previous();
    __syncthreads();
    compute_pieces<L>(args, plan, shared, tiles, [&](auto f) { each_prefill_piece<L>(args, plan, f); });
#endif
}

/* ---- launches ---- */

template <class L> static void launch_decodes(struct latent_launch *l)
{
    const int64_t tiles = plan_decodes<L>(l);
    cuda_run_dependent(l->b, "latent attention", latent_decode_wgmma_kernel<L>,
                       {dim3((unsigned)l->plan.blocks), THREADS, L::SHARED_BYTES}, *l->args, l->plan);
    cuda_latent_combine(l, tiles, L::ROWS);
}

template <class L> static void launch_prefills(struct latent_launch *l)
{
    const int64_t tiles = plan_prefills<L>(l);
    const dim3 grid((unsigned)min_int(prefill_items(*l->args, l->plan), cuda_state(l->b)->num_sms));
    cuda_run_dependent(l->b, "latent attention", latent_prefill_wgmma_kernel<L>, {grid, THREADS, L::SHARED_BYTES},
                       *l->args, l->plan);
    cuda_latent_combine(l, tiles, L::ROWS);
}

template <class T, int RANK> static void launch(struct latent_launch *l)
{
    using L = wgmma_traits<T, RANK>;
    if (l->args->num_decodes > 0) launch_decodes<L>(l);
    if (l->args->num_seqs > l->args->num_decodes) launch_prefills<L>(l);
}

bool cuda_latent_wgmma(struct latent_launch *l)
{
    const struct latent_attention_args *args = l->args;
    const bool large = args->rank == 512;
    if (!cuda_use(l->b)->has_wgmma || args->cache_dtype != args->dtype || !(args->scale > 0)) return false;
    if (args->dtype == DTYPE_FLOAT16)
        large ? launch<__half, 512>(l) : launch<__half, 256>(l);
    else
        large ? launch<__nv_bfloat16, 512>(l) : launch<__nv_bfloat16, 256>(l);
    return true;
}
