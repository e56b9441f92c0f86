/* Paged attention for prefill and chunked prefill, on Hopper's matrix units (the algorithm of FlashAttention, Dao et
 * al., 2022, and the division of labour of FlashAttention-3, Shah et al., 2024).
 *
 * Of a block's three warpgroups one copies, two compute 64 rows each. The first goes through the block table and turns
 * pieces of 16 bytes into core matrices: any block size, zeros for what no row sees, fp8 made into activations' type on
 * the way. The others hold scores, weights and sums in registers: the scores of a tile are computed while the weights
 * of the tile before are multiplied with V, and as the two are not in step, one's exponentials run beside the other's
 * products. Blocks stay for several tiles of rows, and copying runs ahead across them. */
#include "kernels/cuda/attention_prefill.cuh"
#include "kernels/cuda/operations.h"

#ifdef ATTENTION_HAVE_WGMMA

/* The producer's view of a tile of tokens. */
struct tile_source {
    const uint8_t *keys, *values; /* of this KV head in block 0 */
    int64_t block_bytes;          /* from a block to the next */
    int32_t log_block_size;
};

static __device__ __forceinline__ int32_t block_of(const tile_source &source, const prefill_tile &tile, int32_t token,
                                                   int32_t tokens)
{
    const bool seen = token < tile.end && token + tokens > tile.first;
    return seen ? tile.seq.block_table[token >> source.log_block_size] : 0;
}

static __device__ __forceinline__ bool is_seen(const prefill_tile &tile, int32_t token)
{
    return token >= tile.first && token < tile.end;
}

static __device__ __forceinline__ void store_piece(uint32_t to, uint4 piece)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};\n" ::"r"(to), "r"(piece.x), "r"(piece.y), "r"(piece.z),
                 "r"(piece.w)
                 : "memory");
}

/* Zeros for those of the 8 tokens from `token` that no row sees. */
static __device__ __forceinline__ uint4 mask_piece(const prefill_tile &tile, int32_t token, uint4 piece)
{
    uint32_t masks[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        masks[i] = (is_seen(tile, token + 2 * i) ? 0xffffu : 0) | (is_seen(tile, token + 2 * i + 1) ? 0xffff0000u : 0);
    return make_uint4(piece.x & masks[0], piece.y & masks[1], piece.z & masks[2], piece.w & masks[3]);
}

/* 8 fp8 numbers as 8 T. */
template <class T> static __device__ __forceinline__ uint4 convert_piece(uint32_t low, uint32_t high, enum dtype dtype)
{
    uint32_t out[4] = {fp8_pair(low & 0xffff, dtype), fp8_pair(low >> 16, dtype), fp8_pair(high & 0xffff, dtype),
                       fp8_pair(high >> 16, dtype)};
    if constexpr (!std::is_same_v<T, __half>) {
        for (int i = 0; i < 4; i++) {
            const float2 pair = __half22float2(*(const __half2 *)&out[i]);
            out[i] = pack_pair<T>(pair.x, pair.y);
        }
    }
    return make_uint4(out[0], out[1], out[2], out[3]);
}

/* What was written with ordinary stores, or must be waited for here. */
static __device__ __forceinline__ void arrive_written(uint64_t *full)
{
    copy_async_wait_all();
    async_proxy_fence();
    barrier_arrive(full);
}

template <class P>
static __device__ __forceinline__ void load_query(const attention_call &call, const prefill_tile &tile, uint32_t to,
                                                  uint64_t *full)
{
    constexpr int GROUPS = P::HEAD / 8, STEP = GROUP_THREADS / GROUPS;
    const struct attention_args &args = call.args;
    const int32_t d = threadIdx.x % GROUPS, thread_row = threadIdx.x / GROUPS;
    const typename P::T *query = (const typename P::T *)args.query + tile.seq.first_row * args.query_stride + d * 8;
#pragma unroll 4
    for (int r = thread_row; r < ROWS; r += STEP) {
        const int32_t row = tile.first_row + r, token = row / tile.group;
        const int32_t head = tile.kv_head * tile.group + row % tile.group;
        const bool there = row < tile.rows && d * 8 < args.head_size;
        copy_async(to + d * P::Q_STRIDE + r * 16,
                   there ? query + token * args.query_stride + (int64_t)head * args.head_size : query, there);
    }
    barrier_arrive_copied(full);
}

/* K: a thread has one token of the tile, and every piece of it, or every other. */
template <class P>
static __device__ __forceinline__ void load_keys(const attention_call &call, const tile_source &source,
                                                 const prefill_tile &tile, int32_t start, int64_t block, uint32_t to,
                                                 uint64_t *full)
{
    constexpr int STEP = GROUP_THREADS / P::TOKENS, ELEMENTS = P::FP8 ? 16 : 8; /* of a piece in the cache */
    const int32_t slot = threadIdx.x % P::TOKENS, token = start + slot, bs = call.args.block_size;
    const int32_t group = threadIdx.x / P::TOKENS;
    const bool seen = is_seen(tile, token);
    const uint8_t *from = source.keys + block * source.block_bytes + (group * bs + (token & (bs - 1))) * 16;
    to += slot * 16;
#pragma unroll 8
    for (int i = 0; i < P::HEAD / ELEMENTS / STEP; i++) {
        const int32_t g = group + i * STEP;
        const bool there = seen && g * ELEMENTS < call.args.head_size;
        if constexpr (P::FP8) {
            const uint4 piece = there ? *(const uint4 *)(from + i * STEP * bs * 16) : make_uint4(0, 0, 0, 0);
            store_piece(to + 2 * g * P::K_STRIDE,
                        convert_piece<typename P::T>(piece.x, piece.y, call.args.cache_dtype));
            store_piece(to + (2 * g + 1) * P::K_STRIDE,
                        convert_piece<typename P::T>(piece.z, piece.w, call.args.cache_dtype));
        } else {
            copy_async(to + g * P::K_STRIDE, from + i * STEP * bs * 16, there);
        }
    }
    if constexpr (P::FP8) {
        arrive_written(full);
    } else {
        barrier_arrive_copied(full);
    }
}

/* V: a warp has the rows of 16 neighbouring tokens at a time; `blocks` of this thread's pieces of each such run. */
template <class P> static constexpr int RUNS = P::TOKENS / 16 / 4; /* a warp */

template <class P> static __device__ __forceinline__ int32_t value_token(int32_t run)
{
    const int32_t warp = threadIdx.x / 32;
    return (warp * RUNS<P> + run) * 16 + (P::FP8 ? 0 : threadIdx.x % 2 * 8);
}

template <class P>
static __device__ __forceinline__ void load_values(const attention_call &call, const tile_source &source,
                                                   const prefill_tile &tile, int32_t start, const int32_t *blocks,
                                                   uint32_t to, uint64_t *full)
{
    constexpr int STEP = P::FP8 ? 32 : 16, BYTES = P::FP8 ? 1 : 2;
    const int32_t bs = call.args.block_size, head_size = call.args.head_size;
    const int32_t row = P::FP8 ? threadIdx.x % 32 : threadIdx.x % 32 / 2;
    const bool whole = start >= tile.first && start + P::TOKENS <= tile.end;
#pragma unroll
    for (int run = 0; run < RUNS<P>; run++) {
        const int32_t offset = value_token<P>(run), token = start + offset;
        const bool seen = token < tile.end && token + 16 / BYTES > tile.first;
        const bool masked = token < tile.first || token + 16 / BYTES > tile.end;
        const uint8_t *from =
            source.values + (int64_t)blocks[run] * source.block_bytes + (row * bs + (token & (bs - 1))) * BYTES;
        const uint32_t place = to + offset / 8 * P::V_STRIDE + row * 16;
#pragma unroll 8
        for (int i = 0; i < P::HEAD / STEP; i++) {
            const bool there = seen && row + i * STEP < head_size;
            const uint8_t *piece = from + i * STEP * bs * BYTES;
            if constexpr (P::FP8) {
                const uint4 x = there ? *(const uint4 *)piece : make_uint4(0, 0, 0, 0);
                const uint4 low = convert_piece<typename P::T>(x.x, x.y, call.args.cache_dtype);
                const uint4 high = convert_piece<typename P::T>(x.z, x.w, call.args.cache_dtype);
                store_piece(place + i * STEP * 16, masked ? mask_piece(tile, token, low) : low);
                store_piece(place + i * STEP * 16 + P::V_STRIDE, masked ? mask_piece(tile, token + 8, high) : high);
            } else if (there && masked) {
                store_piece(place + i * STEP * 16, mask_piece(tile, token, *(const uint4 *)piece));
            } else {
                copy_async(place + i * STEP * 16, piece, there);
            }
        }
    }
    if (P::FP8 || !whole) {
        arrive_written(full);
    } else {
        barrier_arrive_copied(full);
    }
}

/* The copying warpgroup. */
template <class P>
static __device__ __forceinline__ void produce(const attention_call &call, uint32_t q, uint32_t k, uint32_t v,
                                               prefill_barriers *barriers)
{
    const struct attention_args &args = call.args;
    const int64_t block_elements = (int64_t)args.head_size * args.block_size * (P::FP8 ? 1 : 2);
    struct prefill_stage stage = {0, 1}; /* an empty barrier counts as passed */
    struct prefill_tile tile;
    struct tile_source source = {NULL, NULL, args.num_kv_heads * block_elements, 0};
    while (1 << source.log_block_size < args.block_size) source.log_block_size++;
    uint32_t q_parity = 1;
    for (int32_t round = 0; prefill_tile_of(&tile, &call, P::TOKENS, round); round++) {
        if (tile.rows == 0) continue;
        source.keys = (const uint8_t *)args.k_cache + tile.kv_head * block_elements;
        source.values = (const uint8_t *)args.v_cache + tile.kv_head * block_elements;
        barrier_wait(&barriers->q_empty, q_parity);
        q_parity ^= 1;
        load_query<P>(call, tile, q, &barriers->q_full);
        for (int32_t t = 0; t < tile.count; t++) {
            const int32_t start = tile.start + t * P::TOKENS;
            int32_t v_blocks[RUNS<P>];
            const int32_t k_block = block_of(source, tile, start + threadIdx.x % P::TOKENS, 1);
#pragma unroll
            for (int run = 0; run < RUNS<P>; run++)
                v_blocks[run] = block_of(source, tile, start + value_token<P>(run), P::FP8 ? 16 : 8);
            barrier_wait(&barriers->k_empty[stage.index], stage.parity);
            load_keys<P>(call, source, tile, start, k_block, k + stage.index * P::K_BYTES,
                         &barriers->k_full[stage.index]);
            barrier_wait(&barriers->v_empty[stage.index], stage.parity);
            load_values<P>(call, source, tile, start, v_blocks, v + stage.index * P::V_BYTES,
                           &barriers->v_full[stage.index]);
            prefill_stage_next(&stage);
        }
    }
    copy_async_wait_all();
}

/* One of a consumer's two rows a thread: i and i + 8 of its warp's 16. */
struct row_state {
    int32_t first, last; /* tokens that it sees */
    float max, sum, slope;
};

/* Scores of a tile of tokens from `start`: what a row does not see becomes -INFINITY. */
template <class P>
static __device__ __forceinline__ void bend_scores(float (&s)[P::TOKENS / 2], const attention_call &call,
                                                   const row_state rows[2], int32_t start)
{
    const int32_t j = threadIdx.x % 4;
    if constexpr (P::VARIANT) {
        const float scale = call.params.scale * call.params.k_scale;
#pragma unroll
        for (int n = 0; n < P::TOKENS / 2; n++) {
            const int32_t token = start + n / 4 * 8 + 2 * j + n % 2;
            s[n] = attention_bend(&call.params, s[n] * scale, rows[n / 2 % 2].slope, token - rows[n / 2 % 2].last);
        }
    }
    const int32_t last = min(__shfl_sync(~0u, rows[0].last, 0), rows[0].last); /* rows are in order of position */
    const int32_t first = rows[1].first;
    if (__all_sync(~0u, start >= first && start + P::TOKENS - 1 <= last)) return;
#pragma unroll
    for (int n = 0; n < P::TOKENS / 2; n++) {
        const int32_t token = start + n / 4 * 8 + 2 * j + n % 2;
        if (token < rows[n / 2 % 2].first || token > rows[n / 2 % 2].last) s[n] = -INFINITY;
    }
}

/* Scores become weights; factors[] is what brings earlier sums to the new maximum. */
template <class P>
static __device__ __forceinline__ void softmax(float (&s)[P::TOKENS / 2], row_state rows[2], float factors[2],
                                               float scale_log2)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float max = rows[r].max, sum = 0;
#pragma unroll
        for (int n = 0; n < P::TOKENS / 4; n++) max = fmaxf(max, s[n / 2 * 4 + r * 2 + n % 2]);
        max = fmaxf(max, __shfl_xor_sync(~0u, max, 1));
        max = fmaxf(max, __shfl_xor_sync(~0u, max, 2));
        const float base = max == -INFINITY ? 0 : max * scale_log2;
        factors[r] = exp2_fast(rows[r].max * scale_log2 - base);
        rows[r].max = max;
#pragma unroll
        for (int n = 0; n < P::TOKENS / 4; n++) {
            float &x = s[n / 2 * 4 + r * 2 + n % 2];
            x = exp2_fast(fmaf(x, scale_log2, -base));
            sum += x;
        }
        rows[r].sum = rows[r].sum * factors[r] + sum;
    }
}

/* S = Q K^T, begun. */
template <class P>
static __device__ __forceinline__ void begin_scores(float (&s)[P::TOKENS / 2], uint32_t q, uint32_t k)
{
    wgmma_pin(s);
    wgmma_begin();
#pragma unroll
    for (int d = 0; d < P::HEAD / 16; d++)
        wgmma_shared<typename P::T, P::TOKENS>(s, wgmma_descriptor(q + d * 2 * P::Q_STRIDE, P::Q_STRIDE),
                                               wgmma_descriptor(k + d * 2 * P::K_STRIDE, P::K_STRIDE), d > 0);
    wgmma_commit();
}

/* O += P V, begun. */
template <class P>
static __device__ __forceinline__ void begin_values(float (&out)[P::HEAD / 2], const uint32_t (&weights)[P::TOKENS / 4],
                                                    uint32_t v)
{
    constexpr int N = P::HEAD < 128 ? P::HEAD : 128;
    wgmma_pin(out);
    wgmma_begin();
#pragma unroll
    for (int t = 0; t < P::TOKENS / 16; t++)
#pragma unroll
        for (int n = 0; n < P::HEAD; n += N)
            wgmma_registers<typename P::T, N>(out + n / 2, weights + t * 4,
                                              wgmma_descriptor(v + t * 2 * P::V_STRIDE + n * 16, P::V_STRIDE));
    wgmma_commit();
}

template <class P>
static __device__ __forceinline__ void pack_weights(uint32_t (&weights)[P::TOKENS / 4], const float (&s)[P::TOKENS / 2])
{
#pragma unroll
    for (int n = 0; n < P::TOKENS / 4; n++) weights[n] = pack_pair<typename P::T>(s[2 * n], s[2 * n + 1]);
}

static __device__ __forceinline__ void wait_full(uint64_t *full, uint32_t parity)
{
    barrier_wait(full, parity);
    async_proxy_fence();
}

/* One arrival for each warp. */
static __device__ __forceinline__ void release(uint64_t *empty)
{
    if (threadIdx.x % 32 == 0) barrier_arrive(empty);
}

template <class P>
static __device__ __forceinline__ void store_rows(const attention_call &call, const prefill_tile &tile,
                                                  const float (&out)[P::HEAD / 2], row_state rows[2], int32_t first_row)
{
    const struct attention_args &args = call.args;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int32_t row = first_row + r * 8;
        float sum = rows[r].sum;
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        const float inverse = sum == 0 ? 0 : call.params.v_scale / sum;
        if (row >= tile.rows) continue;
        const int64_t token = tile.seq.first_row + row / tile.group,
                      head = tile.kv_head * tile.group + row % tile.group;
        typename P::T *to = (typename P::T *)args.out + (token * args.num_heads + head) * args.head_size;
#pragma unroll
        for (int b = 0; b < P::HEAD / 8; b++)
            if (b * 8 < args.head_size)
                *(uint32_t *)(to + b * 8 + threadIdx.x % 4 * 2) =
                    pack_pair<typename P::T>(out[b * 4 + r * 2] * inverse, out[b * 4 + r * 2 + 1] * inverse);
    }
}

/* A computing warpgroup; q is where its 64 rows are. */
template <class P>
static __device__ __forceinline__ void consume(const attention_call &call, int32_t group, uint32_t q, uint32_t k,
                                               uint32_t v, prefill_barriers *barriers)
{
    const int32_t thread = threadIdx.x % GROUP_THREADS;
    const float scale_log2 =
        (P::VARIANT ? 1.0f : call.params.scale * call.params.k_scale) * ATTENTION_LOG2E; /* bend_scores does the rest */
    struct prefill_stage k_stage = {0, 0}, v_stage = {0, 0};
    struct prefill_tile tile;
    uint32_t q_parity = 0, weights[P::TOKENS / 4];
    float s[P::TOKENS / 2], out[P::HEAD / 2], factors[2];
    for (int32_t round = 0; prefill_tile_of(&tile, &call, P::TOKENS, round); round++) {
        if (tile.rows == 0) continue;
        const int32_t first_row = tile.first_row + group * 64 + thread / 32 * 16 + thread % 32 / 4;
        row_state rows[2];
        for (int r = 0; r < 2; r++) {
            const int32_t position = prefill_position(&tile, first_row + r * 8);
            const int32_t head = tile.kv_head * tile.group + (first_row + r * 8) % tile.group;
            rows[r] = {attention_first(&call.params, position), position, -INFINITY, 0, 0};
            if (P::VARIANT && call.params.alibi_slopes) rows[r].slope = call.params.alibi_slopes[head];
        }
#pragma unroll
        for (int n = 0; n < P::HEAD / 2; n++) out[n] = 0;

        wait_full(&barriers->q_full, q_parity);
        q_parity ^= 1;
        if (tile.count > 0) {
            wait_full(&barriers->k_full[k_stage.index], k_stage.parity);
            begin_scores<P>(s, q, k + k_stage.index * P::K_BYTES);
            wgmma_wait<0>();
            wgmma_pin(s);
            release(&barriers->k_empty[k_stage.index]);
            prefill_stage_next(&k_stage);
            bend_scores<P>(s, call, rows, tile.start);
            softmax<P>(s, rows, factors, scale_log2);
            pack_weights<P>(weights, s);
        }
        for (int32_t t = 1; t < tile.count; t++) {
            wait_full(&barriers->k_full[k_stage.index], k_stage.parity);
            begin_scores<P>(s, q, k + k_stage.index * P::K_BYTES);
            wait_full(&barriers->v_full[v_stage.index], v_stage.parity);
            begin_values<P>(out, weights, v + v_stage.index * P::V_BYTES);
            wgmma_wait<1>();
            wgmma_pin(s);
            release(&barriers->k_empty[k_stage.index]);
            prefill_stage_next(&k_stage);
            bend_scores<P>(s, call, rows, tile.start + t * P::TOKENS);
            softmax<P>(s, rows, factors, scale_log2);
            wgmma_wait<0>();
            wgmma_pin(out);
            release(&barriers->v_empty[v_stage.index]);
            prefill_stage_next(&v_stage);
#pragma unroll
            for (int n = 0; n < P::HEAD / 2; n++) out[n] *= factors[n / 2 % 2];
            pack_weights<P>(weights, s);
        }
        release(&barriers->q_empty);
        if (tile.count > 0) {
            wait_full(&barriers->v_full[v_stage.index], v_stage.parity);
            begin_values<P>(out, weights, v + v_stage.index * P::V_BYTES);
            wgmma_wait<0>();
            wgmma_pin(out);
            release(&barriers->v_empty[v_stage.index]);
            prefill_stage_next(&v_stage);
        }
        store_rows<P>(call, tile, out, rows, first_row);
    }
}
#endif

template <class P>
static __global__ void __launch_bounds__(PREFILL_THREADS, 1)
    prefill_kernel(const __grid_constant__ struct attention_call call)
{
#ifdef ATTENTION_HAVE_WGMMA
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ struct prefill_barriers barriers;
    if (threadIdx.x == 0) {
        barrier_init(&barriers.q_full, GROUP_THREADS);
        barrier_init(&barriers.q_empty, CONSUMERS * 4);
        for (int i = 0; i < STAGES; i++) {
            barrier_init(&barriers.k_full[i], GROUP_THREADS);
            barrier_init(&barriers.v_full[i], GROUP_THREADS);
            barrier_init(&barriers.k_empty[i], CONSUMERS * 4);
            barrier_init(&barriers.v_empty[i], CONSUMERS * 4);
        }
        async_proxy_fence();
    }
    __syncthreads();
    const uint32_t q = shared_address(shared), k = q + P::Q_BYTES, v = k + STAGES * P::K_BYTES;
    const int32_t group = __shfl_sync(~0u, threadIdx.x / GROUP_THREADS, 0);
    if (group == 0) {
        give_registers<56>();
        produce<P>(call, q, k, v, &barriers);
    } else {
        take_registers<224>();
        consume<P>(call, group - 1, q + (group - 1) * 64 * 16, k, v, &barriers);
    }
#endif
}

static bool is_for_matrix_units(const struct cuda_state *s, const struct attention_args *args)
{
    const bool fp8 = dtype_size(args->cache_dtype) == 1;
    return s->compute_capability == 90 && args->dtype != DTYPE_FLOAT32 && (args->cache_dtype == args->dtype || fp8) &&
           !(fp8 && (args->block_size < 16 || args->head_size % 16 != 0)) && !attention_is_sparse(args->params) &&
           args->head_size % 8 == 0 && args->head_size <= 256 && args->params->scale * args->params->k_scale > 0 &&
           args->query_stride % 8 == 0 && cuda_is_aligned(args->query) && (uintptr_t)args->out % 4 == 0 &&
           cuda_is_aligned(args->k_cache) && cuda_is_aligned(args->v_cache);
}

template <class P> static void launch(struct backend *b, const struct attention_args *args, cudaStream_t stream)
{
    const int64_t tiles = prefill_tiles(args) * args->num_kv_heads * args->num_seqs, sms = cuda_state(b)->num_sms;
    if (!cuda_check(
            b, "paged attention",
            cudaFuncSetAttribute(prefill_kernel<P>, cudaFuncAttributeMaxDynamicSharedMemorySize, P::SHARED_BYTES)))
        return;
    prefill_kernel<P><<<(unsigned)(tiles < sms ? tiles : sms), PREFILL_THREADS, P::SHARED_BYTES, stream>>>(
        attention_call_make(args));
    cuda_check_launch(b, "paged attention");
}

template <class T, bool FP8, int HEAD>
static void launch_variant(struct backend *b, const struct attention_args *args, cudaStream_t stream)
{
    if (args->params->alibi_slopes || args->params->soft_cap > 0) {
        launch<prefill_traits<T, FP8, HEAD, true>>(b, args, stream);
    } else {
        launch<prefill_traits<T, FP8, HEAD, false>>(b, args, stream);
    }
}

template <class T, bool FP8>
static void launch_head_size(struct backend *b, const struct attention_args *args, cudaStream_t stream)
{
    if (args->head_size <= 64) {
        launch_variant<T, FP8, 64>(b, args, stream);
    } else if (args->head_size <= 128) {
        launch_variant<T, FP8, 128>(b, args, stream);
    } else {
        launch_variant<T, FP8, 256>(b, args, stream);
    }
}

template <class T> static void launch_cache(struct backend *b, const struct attention_args *args, cudaStream_t stream)
{
    if (dtype_size(args->cache_dtype) == 1) {
        launch_head_size<T, true>(b, args, stream);
    } else {
        launch_head_size<T, false>(b, args, stream);
    }
}

void cuda_paged_attention_prefill(struct backend *b, const struct attention_args *args, backend_stream stream)
{
    if (args->num_seqs <= 0 || args->max_query_len <= 0) return;
    if (!is_for_matrix_units(cuda_state(b), args)) {
        cuda_attention_generic(b, args, cuda_stream(b, stream));
    } else if (args->dtype == DTYPE_FLOAT16) {
        launch_cache<__half>(b, args, cuda_stream(b, stream));
    } else {
        launch_cache<__nv_bfloat16>(b, args, cuda_stream(b, stream));
    }
}
