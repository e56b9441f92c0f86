/* Prefill's copying warpgroup. It copies Q, K and V of the block's tiles in the order in which they are used. */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_PREFILL_COPY_CUH
#define QUIRE_KERNELS_CUDA_ATTENTION_PREFILL_COPY_CUH

#include "kernels/cuda/attention/prefill.cuh"

#ifdef ATTENTION_HAVE_WGMMA

/* What a producer copies from: also the caches as tensors. */
struct tile_source : token_source {
    const CUtensorMap *keys, *values;
};

/* The last Q_THREADS threads copy the rows of a tile. */
template <class P>
static __device__ __forceinline__ void load_query(const tile_source &source, uint32_t q,
                                                  prefill_stage<P::Q_STAGES> *stage)
{
    prefill_wait_empty(*stage);
    copy_query<P>(source, q + stage->index * P::Q_BYTES);
    barrier_arrive_copied(prefill_full(*stage));
    prefill_stage_next(stage);
}

/* One warp copies all K of a tile of rows; a lane starts the copy of one run of each tile of tokens. Runs of which
 * nothing may be read are not copied, because their weights are 0. */
template <class P>
static __device__ __forceinline__ void load_keys(const tile_source &source, uint32_t k,
                                                 prefill_stage<P::K_STAGES> *stage)
{
    const struct prefill_tile &tile = source.tile;
    const int32_t run = run_tokens(source.args), lane = threadIdx.x % 32, mask = source.args->block_size - 1;
    int32_t token = tile.start + lane * run, block = block_of(source, token, run);
    for (int32_t t = 0; t < tile.count; t++, token += P::TOKENS) {
        const bool there = lane * run < P::TOKENS && any_seen(tile, token, run);
        const int32_t next_block = block_of(source, token + P::TOKENS, run), runs = __popc(__ballot_sync(~0u, there));
        prefill_wait_empty(*stage);
        if (lane == 0) barrier_arrive_expect(prefill_full(*stage), runs * run * P::TOKEN_BYTES);
        __syncwarp();
        if (there)
            box_copy_5d(k + stage->index * P::TILE_BYTES + lane * run * P::TOKEN_BYTES, source.keys, 0, 0,
                        (token & mask) / 8, tile.kv_head, block, prefill_full(*stage));
        block = next_block;
        prefill_stage_next(stage);
    }
}

/* The place of piece i (tokens 8i .. 8i + 7) of element d of a run of V. */
static __device__ __forceinline__ uint32_t value_place(int32_t run, int32_t d, int32_t i)
{
    return run == 16 ? d * 32 + (d / 4 % 2 ^ i) * 16 : d * 16;
}

/* One warp copies a run of V with tokens that must not be read. These become zeros, because a weight of 0 does not hide
 * a value that is not finite. */
template <class P>
static __device__ __forceinline__ void mask_values(const tile_source &source, int32_t token, int32_t block, uint32_t to)
{
    const struct attention_args &args = *source.args;
    const int32_t bs = args.block_size, run = run_tokens(&args);
    const typename P::T *from =
        (const typename P::T *)args.v_cache + value_start<P>(source, block) + (token & (bs - 1));
    const bool seen = any_seen(source.tile, token, run);
#pragma unroll 1
    for (int d = threadIdx.x % 32; d < P::HEAD; d += 32)
        for (int i = 0; i < run / 8; i++) {
            const bool there = seen && d < v_head_size<P>(args);
            const uint4 piece = there ? *(const uint4 *)(from + d * bs + i * 8) : make_uint4(0, 0, 0, 0);
            store_piece(to + value_place(run, d, i), mask_piece(source.tile, token + i * 8, piece));
        }
}

/* One warp copies all V of a tile of rows. */
template <class P>
static __device__ __forceinline__ void load_values(const tile_source &source, uint32_t v,
                                                   prefill_stage<P::V_STAGES> *stage)
{
    const struct prefill_tile &tile = source.tile;
    const int32_t run = run_tokens(source.args), lane = threadIdx.x % 32, mask = source.args->block_size - 1;
    int32_t token = tile.start + lane * run, block = block_of(source, token, run);
    for (int32_t t = 0; t < tile.count; t++, token += P::TOKENS) {
        const bool inside = lane * run < P::TOKENS, whole = inside && all_seen(tile, token, run);
        const int32_t next_block = block_of(source, token + P::TOKENS, run), runs = __popc(__ballot_sync(~0u, whole));
        uint32_t others = __ballot_sync(~0u, inside && !whole);
        const uint32_t to = v + stage->index * P::TILE_BYTES;
        prefill_wait_empty(*stage);
        if (whole)
            box_copy_5d(to + lane * run * P::TOKEN_BYTES, source.values, token & mask, 0, 0, tile.kv_head, block,
                        prefill_full(*stage));
        if (others != 0) {
            for (; others != 0; others &= others - 1) {
                const int other = __ffs((int)others) - 1;
                mask_values<P>(source, __shfl_sync(~0u, token, other), __shfl_sync(~0u, block, other),
                               to + other * run * P::TOKEN_BYTES);
            }
            async_proxy_fence();
            __syncwarp();
        }
        if (lane == 0) barrier_arrive_expect(prefill_full(*stage), runs * run * P::TOKEN_BYTES);
        block = next_block;
        prefill_stage_next(stage);
    }
}

/* For an fp8 cache the whole warpgroup copies a tile of K and one of V. A thread copies some pieces to places of its
 * own, a tile of tokens ahead, and converts them later: so it waits for no other thread and seldom for memory. */
template <class P> static constexpr int THREAD_PIECES = P::TOKENS *P::HEAD / 16 / GROUP_THREADS; /* of K, and of V */

/* Where a producer of an fp8 cache is: at tile of tokens `t` of the tile of rows in `source`. */
template <class P> struct fp8_producer {
    tile_source source;
    int32_t t;
    uint32_t k, v;                                 /* this thread's pieces: GROUP_THREADS pieces apart */
    int32_t k_block, v_blocks[P::TOKENS / 16 / 4]; /* of the thread's token, and of the warp's runs */
    prefill_stage<P::K_STAGES> k_stage;
    prefill_stage<P::V_STAGES> v_stage;
};

/* K: a thread has one token, and all of its pieces or every other one. V: a warp has neighbouring runs, a lane every
 * 32nd element. */
template <class P> static constexpr int KEY_STEP = GROUP_THREADS / P::TOKENS;
template <class P> static constexpr int WARP_RUNS = P::TOKENS / 16 / 4;

static __device__ __forceinline__ int32_t key_of(int32_t start, int32_t tokens)
{
    return start + threadIdx.x % tokens;
}
template <class P> static __device__ __forceinline__ int32_t first_value_of(int32_t start)
{
    return start + threadIdx.x / 32 * WARP_RUNS<P> * 16;
}

/* Looks up the blocks of the tile of tokens that the producer is at. */
template <class P> static __device__ __forceinline__ void find_blocks(fp8_producer<P> &p)
{
    const int32_t start = p.source.tile.start + p.t * P::TOKENS;
    p.k_block = block_of(p.source, key_of(start, P::TOKENS), 1);
#pragma unroll
    for (int i = 0; i < WARP_RUNS<P>; i++) p.v_blocks[i] = block_of(p.source, first_value_of<P>(start) + i * 16, 16);
}

template <class P> static __device__ __forceinline__ void copy_fp8_keys(const fp8_producer<P> &p)
{
    const struct attention_args &args = *p.source.args;
    const int32_t bs = args.block_size, token = key_of(p.source.tile.start + p.t * P::TOKENS, P::TOKENS);
    const int32_t elements = any_seen(p.source.tile, token, 1) ? args.head_size : 0;
    const uint8_t *from = (const uint8_t *)args.k_cache + key_start(p.source, p.k_block) + (token & (bs - 1)) * 16;
#pragma unroll
    for (int i = 0; i < THREAD_PIECES<P>; i++) {
        const int g = threadIdx.x / P::TOKENS + i * KEY_STEP<P>;
        copy_async(p.k + i * GROUP_THREADS * 16, from + g * bs * 16, g * 16 < elements);
    }
    copy_async_commit();
}

template <class P> static __device__ __forceinline__ void copy_fp8_values(const fp8_producer<P> &p)
{
    constexpr int COLUMNS = P::HEAD / 32;
    const struct attention_args &args = *p.source.args;
    const int32_t bs = args.block_size, token = first_value_of<P>(p.source.tile.start + p.t * P::TOKENS);
#pragma unroll
    for (int i = 0; i < THREAD_PIECES<P>; i++) {
        const int run = i / COLUMNS, d = i % COLUMNS * 32 + threadIdx.x % 32, start = token + run * 16;
        const uint8_t *from =
            (const uint8_t *)args.v_cache + value_start<P>(p.source, p.v_blocks[run]) + (start & (bs - 1));
        const int32_t elements = any_seen(p.source.tile, start, 16) ? v_head_size<P>(args) : 0;
        copy_async(p.v + i * GROUP_THREADS * 16, from + d * bs, d < elements);
    }
    copy_async_commit();
}

template <class P, bool E5M2> static __device__ __forceinline__ void convert_keys(fp8_producer<P> &p, uint32_t k)
{
    const int32_t row = threadIdx.x % P::TOKENS;
    const uint32_t to = k + p.k_stage.index * P::TILE_BYTES + row / 8 * 8 * P::TOKEN_BYTES + row % 8 * 16;
    prefill_wait_empty(p.k_stage);
#pragma unroll
    for (int first = 0; first < THREAD_PIECES<P>; first += 4) {
        uint4 x[4];
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = load_piece(p.k + (first + i) * GROUP_THREADS * 16);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t place = to + 2 * (threadIdx.x / P::TOKENS + (first + i) * KEY_STEP<P>)*128;
            store_piece(place, convert_piece<typename P::T, E5M2>(x[i].x, x[i].y));
            store_piece(place + 128, convert_piece<typename P::T, E5M2>(x[i].z, x[i].w));
        }
    }
    async_proxy_fence();
    barrier_arrive(prefill_full(p.k_stage));
    prefill_stage_next(&p.k_stage);
}

/* tile: the tile of rows; its tokens from `start` on. */
template <class P, bool E5M2>
static __device__ __forceinline__ void convert_values(fp8_producer<P> &p, uint32_t v, const prefill_tile &tile,
                                                      int32_t start)
{
    constexpr int COLUMNS = P::HEAD / 32;
    const int32_t lane = threadIdx.x % 32, token = first_value_of<P>(start);
    const uint32_t to = v + p.v_stage.index * P::TILE_BYTES + threadIdx.x / 32 * WARP_RUNS<P> * 16 * P::TOKEN_BYTES;
    prefill_wait_empty(p.v_stage);
    const bool whole = all_seen(tile, token, WARP_RUNS<P> * 16);
#pragma unroll
    for (int first = 0; first < THREAD_PIECES<P>; first += 4) {
        uint4 x[4];
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = load_piece(p.v + (first + i) * GROUP_THREADS * 16);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int run = (first + i) / COLUMNS, d = (first + i) % COLUMNS * 32 + lane;
            uint4 low = convert_piece<typename P::T, E5M2>(x[i].x, x[i].y);
            uint4 high = convert_piece<typename P::T, E5M2>(x[i].z, x[i].w);
            if (!whole) {
                low = mask_piece(tile, token + run * 16, low);
                high = mask_piece(tile, token + run * 16 + 8, high);
            }
            store_piece(to + run * 16 * P::TOKEN_BYTES + value_place(16, d, 0), low);
            store_piece(to + run * 16 * P::TOKEN_BYTES + value_place(16, d, 1), high);
        }
    }
    async_proxy_fence();
    barrier_arrive(prefill_full(p.v_stage));
    prefill_stage_next(&p.v_stage);
}

/* raw: RAW_BYTES of shared memory. A thread's copies of K and those of V are groups that take turns. */
template <class P>
static __device__ __forceinline__ void produce_fp8(const tile_source &source, const attention_call &call,
                                                   prefill_shared<P> *shared, uint32_t k, uint32_t v, uint32_t q,
                                                   uint32_t raw)
{
    const bool e5m2 = call.args.cache_dtype == DTYPE_FP8_E5M2;
    prefill_stage<P::Q_STAGES> q_stage = {&shared->q_barriers};
    fp8_producer<P> p = {source};
    p.k = raw + threadIdx.x * 16, p.v = p.k + P::TOKENS * P::HEAD;
    p.k_stage = {&shared->k_barriers}, p.v_stage = {&shared->v_barriers};
    bool more = prefill_tile_next<P>(&p.source.tile, &call);
    if (!more) return;
    find_blocks(p);
    copy_fp8_keys(p);
    copy_fp8_values(p);
    while (more) {
        const struct prefill_tile tile = p.source.tile;
        const int32_t start = tile.start + p.t * P::TOKENS;
        if (p.t == 0) load_query<P>(p.source, q, &q_stage);
        if (++p.t == tile.count) {
            p.t = 0;
            more = prefill_tile_next<P>(&p.source.tile, &call);
            if (!more) p.source.tile.end = 0; /* of what follows nothing is read */
        }
        find_blocks(p);
        copy_async_wait<1>();
        if (e5m2)
            convert_keys<P, true>(p, k);
        else
            convert_keys<P, false>(p, k);
        copy_fp8_keys(p);
        copy_async_wait<1>();
        if (e5m2)
            convert_values<P, true>(p, v, tile, start);
        else
            convert_values<P, false>(p, v, tile, start);
        copy_fp8_values(p);
    }
}

/* The copying warpgroup. For a 16-bit cache one warp copies K, one V, and the others Q. */
template <class P>
static __device__ __forceinline__ void produce(const prefill_call &launch, prefill_shared<P> *shared, uint32_t k,
                                               uint32_t v, uint32_t q)
{
    tile_source source = {token_source_make(&launch.call.args), &launch.keys, &launch.values};
    prefill_stage<P::K_STAGES> k_stage = {&shared->k_barriers};
    prefill_stage<P::V_STAGES> v_stage = {&shared->v_barriers};
    prefill_stage<P::Q_STAGES> q_stage = {&shared->q_barriers};
    const int32_t warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    if constexpr (P::FP8) produce_fp8<P>(source, launch.call, shared, k, v, q, q + P::Q_STAGES * P::Q_BYTES);
    while (!P::FP8 && prefill_tile_next<P>(&source.tile, &launch.call)) {
        if (warp == 0) {
            load_keys<P>(source, k, &k_stage);
        } else if (warp == 1) {
            load_values<P>(source, v, &v_stage);
        } else {
            load_query<P>(source, q, &q_stage);
        }
    }
    copy_async_wait_all();
}

#endif
#endif
