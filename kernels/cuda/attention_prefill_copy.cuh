/* Prefill's copying warpgroup. It copies Q, K and V of the block's tiles in the order in which they are used. */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_PREFILL_COPY_CUH
#define QUIRE_KERNELS_CUDA_ATTENTION_PREFILL_COPY_CUH

#include "kernels/cuda/attention_prefill.cuh"

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
    const typename P::T *from = (const typename P::T *)args.v_cache + head_start(source, block) + (token & (bs - 1));
    const bool seen = any_seen(source.tile, token, run);
#pragma unroll 1
    for (int d = threadIdx.x % 32; d < P::HEAD; d += 32)
        for (int i = 0; i < run / 8; i++) {
            const bool there = seen && d < args.head_size;
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

/* For an fp8 cache the whole warpgroup copies a tile of K and one of V, four pieces at a time. K: a thread has one
 * token, and all of its pieces or every other one. */
template <class P>
static __device__ __forceinline__ void convert_keys(const tile_source &source, int32_t token, int32_t block, uint32_t k,
                                                    prefill_stage<P::K_STAGES> *stage)
{
    constexpr int STEP = GROUP_THREADS / P::TOKENS;
    const struct attention_args &args = *source.args;
    const int32_t row = threadIdx.x % P::TOKENS, bs = args.block_size;
    const bool seen = any_seen(source.tile, token, 1);
    const uint8_t *from = (const uint8_t *)args.k_cache + head_start(source, block) + (token & (bs - 1)) * 16;
    const uint32_t to = k + stage->index * P::TILE_BYTES + row / 8 * 8 * P::TOKEN_BYTES + row % 8 * 16;
    prefill_wait_empty(*stage);
    for (int first = threadIdx.x / P::TOKENS; first < P::HEAD / 16; first += 4 * STEP) {
        uint4 x[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int g = first + i * STEP;
            x[i] = seen && g * 16 < args.head_size ? *(const uint4 *)(from + g * bs * 16) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t place = to + 2 * (first + i * STEP) * 128;
            store_piece(place, convert_piece<typename P::T>(x[i].x, x[i].y, args.cache_dtype));
            store_piece(place + 128, convert_piece<typename P::T>(x[i].z, x[i].w, args.cache_dtype));
        }
    }
    async_proxy_fence();
    barrier_arrive(prefill_full(*stage));
    prefill_stage_next(stage);
}

/* V: a warp has neighbouring runs, a lane every 32nd element. */
template <class P> static constexpr int WARP_RUNS = P::TOKENS / 16 / 4;

template <class P>
static __device__ __forceinline__ void convert_values(const tile_source &source, int32_t token,
                                                      const int32_t blocks[WARP_RUNS<P>], uint32_t v,
                                                      prefill_stage<P::V_STAGES> *stage)
{
    constexpr int COLUMNS = P::HEAD / 32, PIECES = WARP_RUNS<P> * COLUMNS;
    const struct attention_args &args = *source.args;
    const int32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, bs = args.block_size;
    const uint32_t to = v + stage->index * P::TILE_BYTES + warp * WARP_RUNS<P> * 16 * P::TOKEN_BYTES;
    prefill_wait_empty(*stage);
#pragma unroll
    for (int first = 0; first < PIECES; first += 4) {
        uint4 x[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int run = (first + i) / COLUMNS, d = (first + i) % COLUMNS * 32 + lane, start = token + run * 16;
            const uint8_t *from = (const uint8_t *)args.v_cache + head_start(source, blocks[run]) + (start & (bs - 1));
            const bool there = any_seen(source.tile, start, 16) && d < args.head_size;
            x[i] = there ? *(const uint4 *)(from + d * bs) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int run = (first + i) / COLUMNS, d = (first + i) % COLUMNS * 32 + lane, start = token + run * 16;
            uint4 low = convert_piece<typename P::T>(x[i].x, x[i].y, args.cache_dtype);
            uint4 high = convert_piece<typename P::T>(x[i].z, x[i].w, args.cache_dtype);
            if (!all_seen(source.tile, start, 16)) {
                low = mask_piece(source.tile, start, low);
                high = mask_piece(source.tile, start + 8, high);
            }
            store_piece(to + run * 16 * P::TOKEN_BYTES + value_place(16, d, 0), low);
            store_piece(to + run * 16 * P::TOKEN_BYTES + value_place(16, d, 1), high);
        }
    }
    async_proxy_fence();
    barrier_arrive(prefill_full(*stage));
    prefill_stage_next(stage);
}

template <class P>
static __device__ __forceinline__ void convert_tokens(const tile_source &source, uint32_t k, uint32_t v,
                                                      prefill_stage<P::K_STAGES> *k_stage,
                                                      prefill_stage<P::V_STAGES> *v_stage)
{
    const struct prefill_tile &tile = source.tile;
    for (int32_t t = 0; t < tile.count; t++) {
        const int32_t start = tile.start + t * P::TOKENS, k_token = start + threadIdx.x % P::TOKENS;
        const int32_t v_token = start + threadIdx.x / 32 * WARP_RUNS<P> * 16, k_block = block_of(source, k_token, 1);
        int32_t v_blocks[WARP_RUNS<P>];
#pragma unroll
        for (int i = 0; i < WARP_RUNS<P>; i++) v_blocks[i] = block_of(source, v_token + i * 16, 16);
        convert_keys<P>(source, k_token, k_block, k, k_stage);
        convert_values<P>(source, v_token, v_blocks, v, v_stage);
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
    while (prefill_tile_next<P>(&source.tile, &launch.call)) {
        if constexpr (P::FP8) {
            load_query<P>(source, q, &q_stage);
            convert_tokens<P>(source, k, v, &k_stage, &v_stage);
        } else if (warp == 0) {
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
