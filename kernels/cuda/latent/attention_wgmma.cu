/* Latent attention on Hopper: 16-bit activations, and a cache of the same type or of fp8. plan.cuh says how the work is
 * divided.
 *
 * The warpgroups of a block work like a pipeline, with barriers between them. One copies Q of a tile and chunks of the
 * context to shared memory. One computes S of a chunk and makes P of it in registers, as prefill does; P goes to shared
 * memory, with the factors by which its rows' maxima have changed. Two have half the columns of O each, in registers.
 * While these multiply P and V of a chunk, S of the next one is computed and those behind it are copied. The lower half
 * of a chunk is free when both have multiplied it, before the upper one. In decodes these two also combine the pieces
 * of tiles. */
#include "kernels/cuda/latent/combine.cuh"
#include "kernels/cuda/latent/wgmma_copy.cuh"
#include "kernels/cuda/operations.h"

enum { COPY_REGISTERS = 56, SCORE_REGISTERS = 104, VALUE_REGISTERS = 176 };

#ifdef ATTENTION_HAVE_WGMMA

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

/* The end of a piece: its sums, whose weights are in the workspace if others are to be added. scale: of the cache. */
static __device__ __forceinline__ void finish_rows(const latent_plan &plan, const latent_piece &piece,
                                                   const row_state rows[2], int32_t first_row, float scale_log2,
                                                   float scale, float *last)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int32_t row = first_row + r * 8;
        float sum = rows[r].sum;
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (threadIdx.x % 4 != 0) continue;
        last[row] = sum == 0 ? 0 : scale / sum;
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
    const float scale = scale_of<L>(args), scale_log2 = args.scale * scale * ATTENTION_LOG2E;
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
        if (i == piece.end - 1) finish_rows(plan, piece, rows, first_row, scale_log2, scale, shared.last);
        async_proxy_fence();
        barrier_arrive(&shared.weights_full);
        ring_step(at.ring, L::STAGES);
    }
    if (piece.begin == piece.end) {
        finish_rows(plan, piece, rows, first_row, scale_log2, scale, shared.last);
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

/* A row of four threads' columns of 32, of which each has two neighbouring ones of every 8: pairs. Afterwards each has
 * 8 neighbouring ones. */
static __device__ __forceinline__ void gather_columns(uint32_t (&pairs)[4])
{
    const bool odd = threadIdx.x % 2, upper = threadIdx.x / 2 % 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const uint32_t other = __shfl_xor_sync(~0u, odd ? pairs[i] : pairs[i + 1], 1);
        (odd ? pairs[i] : pairs[i + 1]) = other;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t other = __shfl_xor_sync(~0u, upper ? pairs[i] : pairs[i + 2], 2);
        (upper ? pairs[i] : pairs[i + 2]) = other;
    }
}

/* Stores the thread's two rows: of out, or in the workspace. */
template <class L>
static __device__ __forceinline__ void store_sums(const latent_attention_args &args, const latent_plan &plan,
                                                  const latent_piece &piece, const float (&out)[L::COLUMNS / 2],
                                                  const float factors[2], int32_t first_row, int32_t first_column)
{
    using T = typename L::T;
    const int32_t lane = threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int32_t row = first_row + r * 8;
        if (piece.place < 0) {
            T *to = (T *)args.out + (int64_t)(piece.row + row) * L::RANK + first_column + lane * 8;
#pragma unroll
            for (int n = 0; n < L::COLUMNS / 8; n += 4) {
                uint32_t pairs[4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float *x = out + (n + i) * 4 + r * 2;
                    pairs[i] = pack_pair<T>(x[0] * factors[r], x[1] * factors[r]);
                }
                gather_columns(pairs);
                if (row < piece.rows) *(uint4 *)(to + n * 8) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
            }
        } else if (row < piece.rows) {
            float *to = plan.partials + ((int64_t)piece.place * MAX_ROWS + row) * L::RANK + first_column + lane * 2;
#pragma unroll
            for (int n = 0; n < L::COLUMNS / 8; n++)
                *(float2 *)(to + n * 8) = make_float2(out[n * 4 + r * 2], out[n * 4 + r * 2 + 1]);
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

/* ---- the pieces of decodes' tiles ---- */

/* Every block that has a piece of a tile combines a part of it, when all pieces are there. The counter of the tile's
 * first block tells: each block adds 1 when it has stored its piece, and 1 when it has seen that all have. The last
 * resets it. A block may wait for others because all of them run at a time: there are no more than multiprocessors, and
 * what runs before them does not wait for them. */

/* A barrier of the two warpgroups that have O. */
static __device__ __forceinline__ void sync_values()
{
    asm volatile("bar.sync 1, %0;\n" ::"n"(2 * GROUP_THREADS) : "memory");
}

static __device__ __forceinline__ bool is_first_of_values()
{
    return threadIdx.x == 2 * GROUP_THREADS;
}

static __device__ __forceinline__ uint32_t load_acquire(const uint32_t *from)
{
    uint32_t x;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n" : "=r"(x) : "l"(from) : "memory");
    return x;
}

/* The block's piece of the tile is in the workspace. */
static __device__ __forceinline__ void report_piece(const latent_plan &plan, const latent_tile &tile)
{
    sync_values();
    if (!is_first_of_values()) return;
    __threadfence();
    atomicAdd(plan.counters + tile.first / 2, 1);
}

static __device__ __forceinline__ void await_pieces(const latent_plan &plan, const latent_tile &tile)
{
    if (is_first_of_values()) {
        uint32_t *counter = plan.counters + tile.first / 2;
        const uint32_t pieces = tile.pieces;
        while (load_acquire(counter) < pieces) {
        }
        if (atomicAdd(counter, 1) == 2 * pieces - 1) *counter = 0;
    }
    sync_values();
}

/* Pieces that a warp loads at once, and where several warps have an item: 8 of them all pieces of a GPU's blocks. */
enum { BATCH = 16, MANY = 20 };

/* ITEMS items at a time of a warp. */
template <class L, int ITEMS>
static __device__ __forceinline__ void combine_items(const latent_attention_args &args, const latent_plan &plan,
                                                     const latent_tile &tile, int32_t item, int32_t step)
{
    const int32_t items = tile.rows * (L::RANK / SLICE);
    for (; item < items; item += ITEMS * step) {
        latent_sums s[ITEMS];
        sum_pieces<L::RANK, ITEMS, BATCH / ITEMS>(plan, tile, item, step, 0, 1, s);
#pragma unroll
        for (int n = 0; n < ITEMS; n++)
            if (item + n * step < items)
                store_item<typename L::T, L::RANK>((typename L::T *)args.out, tile, item + n * step, s[n],
                                                   scale_of<L>(args));
    }
}

/* The block's part of a tile: some items, each of which a warp or several add up. */
template <class L>
static __device__ __forceinline__ void combine_part(const latent_attention_args &args, const latent_plan &plan,
                                                    const latent_tile &tile, warp_sums_shared &shared)
{
    constexpr int VALUE_WARPS = 2 * GROUP_THREADS / LANES;
    const int32_t warp = threadIdx.x / LANES % VALUE_WARPS, items = tile.rows * (L::RANK / SLICE);
    const int32_t block = blockIdx.x - tile.first / 2, first = block + warp * tile.pieces;
    const int32_t own_items = (items + tile.pieces - 1) / tile.pieces;
    int32_t share = 1; /* warps of an item: all that have none of their own, if it has so many pieces */
    while (share * BATCH < tile.pieces && 2 * share * own_items <= VALUE_WARPS) share *= 2;
    await_pieces(plan, tile);
    if (tile.pieces <= 4) return combine_items<L, 4>(args, plan, tile, first, VALUE_WARPS * tile.pieces);
    if (share == 1) return combine_items<L, 1>(args, plan, tile, first, VALUE_WARPS * tile.pieces);
    const int32_t groups = VALUE_WARPS / share;
    for (int32_t begin = block; begin < items; begin += groups * tile.pieces) {
        const int32_t item = begin + warp / share * tile.pieces;
        latent_sums s[1];
        sum_pieces<L::RANK, 1, MANY>(plan, tile, item, 0, warp % share, share, s);
        add_warps(s[0], share, shared, sync_values);
        if (item < items && warp % share == 0)
            store_item<typename L::T, L::RANK>((typename L::T *)args.out, tile, item, s[0], scale_of<L>(args));
    }
}

/* ---- kernels ---- */

/* The part of the warpgroups that have O. COMBINES: they also combine the tiles of which the block has pieces. */
template <class L, bool COMBINES, class Pieces>
static __device__ __forceinline__ void sum_pieces_of(const latent_attention_args &args, const latent_plan &plan,
                                                     latent_shared<L> &shared, uint8_t *tiles, int32_t half,
                                                     Pieces pieces)
{
    latent_progress at = {};
    latent_tile ended = {}, begun = {}; /* a block may have the last piece of one, and the first of another */
    pieces([&](const latent_piece &piece) {
        sum_piece<L>(args, plan, piece, shared, shared_address(tiles), half, at);
        if (!COMBINES || piece.place < 0) return;
        const latent_tile tile = {2 * piece.first_block + 1, piece.pieces, piece.row, piece.rows};
        report_piece(plan, tile);
        (piece.begin > 0 ? ended : begun) = tile;
    });
    if (ended.pieces > 0) combine_part<L>(args, plan, ended, *(warp_sums_shared *)tiles);
    if (begun.pieces > 0) combine_part<L>(args, plan, begun, *(warp_sums_shared *)tiles);
}

/* Computes the pieces with which `pieces` calls its argument, which is the same for every thread. */
template <class L, bool COMBINES, class Pieces>
static __device__ __forceinline__ void compute_pieces(const latent_attention_args &args, const latent_plan &plan,
                                                      latent_shared<L> &shared, uint8_t *tiles, Pieces pieces)
{
    const int32_t group = __shfl_sync(~0u, threadIdx.x / GROUP_THREADS, 0);
    const uint32_t memory = shared_address(tiles);
    latent_progress at = {};
    if (group == 0) {
        give_registers<COPY_REGISTERS>();
        pieces([&](const latent_piece &piece) {
            if constexpr (L::FP8)
                convert_piece_of<L>(args, piece, shared, memory, at);
            else
                copy_piece<L>(args, piece, shared, memory, at);
        });
        copy_async_wait_all();
    } else if (group == 1) {
        give_registers<SCORE_REGISTERS>();
        pieces([&](const latent_piece &piece) { weigh_piece<L>(args, plan, piece, shared, memory, at); });
    } else {
        take_registers<VALUE_REGISTERS>();
        sum_pieces_of<L, COMBINES>(args, plan, shared, tiles, group - 2, pieces);
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
    prefetch_first<L>(args, begin);
    wait_for_previous();
    compute_pieces<L, true>(args, plan, shared, tiles, [&](auto f) { each_piece<L>(args, begin, f); });
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
    compute_pieces<L, false>(args, plan, shared, tiles, [&](auto f) { each_prefill_piece<L>(args, plan, f); });
#endif
}

/* ---- launches ---- */

template <class L> static void launch_decodes(struct latent_launch *l)
{
    plan_decodes<L>(l);
    cuda_run_dependent(l->b, "latent attention", latent_decode_wgmma_kernel<L>,
                       {dim3((unsigned)l->plan.blocks), THREADS, L::SHARED_BYTES}, *l->args, l->plan);
}

template <class L> static void launch_prefills(struct latent_launch *l)
{
    const int64_t tiles = plan_prefills<L>(l);
    const dim3 grid((unsigned)min_int(prefill_items(*l->args, l->plan), cuda_state(l->b)->num_sms));
    cuda_run_dependent(l->b, "latent attention", latent_prefill_wgmma_kernel<L>, {grid, THREADS, L::SHARED_BYTES},
                       *l->args, l->plan);
    cuda_latent_combine(l, tiles, L::ROWS);
}

template <class T, bool FP8, int RANK> static void launch(struct latent_launch *l)
{
    using L = wgmma_traits<T, FP8, RANK>;
    if (l->args->num_decodes > 0) launch_decodes<L>(l);
    if (l->args->num_seqs > l->args->num_decodes) launch_prefills<L>(l);
}

bool cuda_latent_wgmma(struct latent_launch *l)
{
    if (!cuda_use(l->b)->has_wgmma || !(l->args->scale > 0)) return false;
    latent_dispatch(l->args, [&](auto zero, auto is_fp8, auto rank) {
        launch<decltype(zero), decltype(is_fp8)::value, decltype(rank)::value>(l);
    });
    return true;
}
