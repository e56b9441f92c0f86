/* Paged attention for prefill and chunked prefill on Hopper's tensor cores (the algorithm of FlashAttention, Dao et
 * al., 2022, with the division of labour of FlashAttention-3, Shah et al., 2024).
 *
 * One warpgroup of a block copies, the others compute 64 rows each. The copying warpgroup goes through the block table:
 * one warp has the copy engine bring K and one V, as boxes of the cache that are operands of wgmma as they are. V with
 * tokens that must not be read, and fp8 numbers, pass through registers instead. The computing warpgroups hold scores,
 * weights and sums in registers. The scores of a tile are computed while the weights of the previous tile are
 * multiplied with V, and the exponentials of one warpgroup run while the matmuls of another do. Nothing makes the
 * warpgroups take turns: they fall into step by themselves, and barriers cost more than they bring. A block computes
 * several tiles of rows, and starts the copies and the first scores of a tile before the previous one is finished.
 *
 * A few tiles of rows, those of a chunk of a prompt, would leave most multiprocessors idle. Then (P::SPLIT) the blocks
 * of a cluster each compute one tile of rows for a part of its tokens, and the first block adds up the results in the
 * order of their ranks. */
#include "kernels/cuda/attention/prefill_copy.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/tensor_map.cuh"

enum { MIN_PART = 512, LONG_CONTEXT = 8192 /* tokens */ };

#ifdef ATTENTION_HAVE_WGMMA

/* Starts S = Q K^T. Addresses in descriptors are in units of 16 bytes. */
template <class P>
static __device__ __forceinline__ void begin_scores(float (&s)[P::TOKENS / 2], uint32_t q, uint32_t k)
{
    const uint64_t q_matrices = wgmma_descriptor(q, P::Q_STRIDE),
                   k_matrices = wgmma_descriptor(k, 128, 8 * P::TOKEN_BYTES);
    wgmma_pin(s);
    wgmma_begin();
#pragma unroll
    for (int d = 0; d < P::HEAD / 16; d++)
        wgmma_shared<typename P::T, P::TOKENS>(s, q_matrices + d * 2 * P::Q_STRIDE / 16, k_matrices + d * 2 * 128 / 16,
                                               d > 0);
    wgmma_commit();
}

/* Starts O += P V. v: V's descriptor. */
template <class P>
static __device__ __forceinline__ void begin_values(float (&out)[P::HEAD / 2], const uint32_t (&weights)[P::TOKENS / 4],
                                                    uint64_t v, uint32_t row_bytes)
{
    constexpr int N = P::HEAD < 128 ? P::HEAD : 128;
    wgmma_pin(out);
    wgmma_begin();
#pragma unroll
    for (int t = 0; t < P::TOKENS / 16; t++)
#pragma unroll
        for (int n = 0; n < P::HEAD; n += N)
            wgmma_registers<typename P::T, N>(out + n / 2, weights + t * 4,
                                              v + t * P::TOKEN_BYTES + (n > 0 ? n * row_bytes / 16 : 0));
    wgmma_commit();
}

/* Starts the first scores of a tile. If there is no such tile, it computes scores that are not used. */
template <class P>
static __device__ __forceinline__ void begin_first_scores(float (&s)[P::TOKENS / 2], bool there,
                                                          const prefill_stage<P::Q_STAGES> &q_stage, uint32_t q,
                                                          const prefill_stage<P::K_STAGES> &k_stage, uint32_t k)
{
    if (there) {
        prefill_wait_full(q_stage);
        async_proxy_fence();
        prefill_wait_full(k_stage);
    }
    begin_scores<P>(s, q + q_stage.index * P::Q_BYTES, k + k_stage.index * P::TILE_BYTES);
}

/* The state of a computing warpgroup. */
template <class P> struct consumer {
    int32_t group;
    uint32_t k, q;      /* the first stages of K and of this warpgroup's rows of Q */
    uint64_t values;    /* the descriptor of V's first stage */
    uint32_t row_bytes; /* of V */
    float scale_log2;
    prefill_stage<P::K_STAGES> k_stage;
    prefill_stage<P::V_STAGES> v_stage;
    prefill_stage<P::Q_STAGES> q_stage;
    row_state rows[2];
    float s[P::TOKENS / 2], out[P::HEAD / 2];
    uint32_t weights[P::TOKENS / 4];
};

/* Starts O += P V with the next stage of V. */
template <class P> static __device__ __forceinline__ void begin_next_values(consumer<P> &c)
{
    begin_values<P>(c.out, c.weights, c.values + c.v_stage.index * P::TILE_BYTES / 16, c.row_bytes);
}

/* Makes weights of the first scores of a tile of rows. */
template <class P>
static __device__ __forceinline__ void start_tile(consumer<P> &c, const attention_call &call, const prefill_tile &tile,
                                                  int32_t first_row)
{
    float factors[2];
    start_rows<P>(call, tile, first_row, c.rows);
#pragma unroll
    for (int n = 0; n < P::HEAD / 2; n++) c.out[n] = 0;
    prefill_stage_release(&c.k_stage);
    modify_scores<P>(c.s, call, c.rows, tile.start);
    softmax<P>(c.s, c.rows, factors, c.scale_log2);
    pack_weights<P>(c.weights, c.s);
}

/* The next tile of tokens, from `start` on: its scores, and V with the weights of the tile before it. */
template <class P>
static __device__ __forceinline__ void add_tokens(consumer<P> &c, const attention_call &call, uint32_t q_rows,
                                                  int32_t start)
{
    float factors[2];
    prefill_wait_full(c.k_stage);
    begin_scores<P>(c.s, q_rows, c.k + c.k_stage.index * P::TILE_BYTES);
    prefill_wait_full(c.v_stage);
    begin_next_values(c);
    wgmma_wait<1>();
    wgmma_pin(c.s);
    prefill_stage_release(&c.k_stage);
    modify_scores<P>(c.s, call, c.rows, start);
    softmax<P>(c.s, c.rows, factors, c.scale_log2);
    /* V has arrived already, but without this barrier the assembler moves the next wait before the exponentials. */
    prefill_wait_full(c.v_stage);
    wgmma_wait<0>();
    wgmma_pin(c.out);
    if (__any_sync(~0u, factors[0] != 1 || factors[1] != 1)) {
#pragma unroll
        for (int n = 0; n < P::HEAD / 2; n++) c.out[n] *= factors[n / 2 % 2];
    }
    prefill_stage_release(&c.v_stage);
    pack_weights<P>(c.weights, c.s);
}

/* A thread's part of a result in shared memory, where K and V were: `out` and then the maxima and sums of its two rows
 * in pieces of four floats, GROUP_THREADS pieces apart. */
template <class P> static __device__ __forceinline__ float4 *part_of(uint32_t k, int32_t group)
{
    float4 *parts = (float4 *)__cvta_shared_to_generic(k);
    return parts + group * GROUP_THREADS * (P::HEAD / 8 + 1) + threadIdx.x % GROUP_THREADS;
}

/* Stores the results of a block that is not the cluster's first one. */
template <class P> static __device__ __forceinline__ void store_part(const consumer<P> &c, float4 *part)
{
    /* until every warpgroup has read its last V, which may be here */
    asm volatile("bar.sync %0, %1;\n" ::"n"(P::CONSUMERS + 1), "n"(P::CONSUMERS * GROUP_THREADS) : "memory");
#pragma unroll
    for (int n = 0; n < P::HEAD / 2; n += 4)
        part[n / 4 * GROUP_THREADS] = make_float4(c.out[n], c.out[n + 1], c.out[n + 2], c.out[n + 3]);
    part[P::HEAD / 8 * GROUP_THREADS] = make_float4(c.rows[0].max, c.rows[0].sum, c.rows[1].max, c.rows[1].sum);
}

/* Adds the results of the block of that rank to this thread's. */
template <class P> static __device__ __forceinline__ void add_part(consumer<P> &c, const float4 *part, int32_t rank)
{
    const float4 state = cluster_load_4(cluster_address(part + P::HEAD / 8 * GROUP_THREADS, rank));
    const float max[2] = {state.x, state.z}, sum[2] = {state.y, state.w};
    float own[2], other[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float larger = fmaxf(c.rows[r].max, max[r]), base = larger == -INFINITY ? 0 : larger;
        own[r] = exp2_fast((c.rows[r].max - base) * c.scale_log2);
        other[r] = exp2_fast((max[r] - base) * c.scale_log2);
        c.rows[r].max = larger;
        c.rows[r].sum = c.rows[r].sum * own[r] + sum[r] * other[r];
    }
#pragma unroll
    for (int n = 0; n < P::HEAD / 2; n += 4) {
        const float4 x = cluster_load_4(cluster_address(part + n / 4 * GROUP_THREADS, rank));
        c.out[n] = c.out[n] * own[0] + x.x * other[0];
        c.out[n + 1] = c.out[n + 1] * own[0] + x.y * other[0];
        c.out[n + 2] = c.out[n + 2] * own[1] + x.z * other[1];
        c.out[n + 3] = c.out[n + 3] * own[1] + x.w * other[1];
    }
}

/* Waits for the results of the cluster's other blocks; the first block adds them up. Every thread of the cluster passes
 * one such barrier, here or where there is nothing to join, and one at the kernel's end. */
template <class P> static __device__ __forceinline__ void join_parts(consumer<P> &c)
{
    float4 *part = part_of<P>(c.k, c.group);
    if (cluster_rank() > 0) store_part(c, part);
    cluster_arrive();
    cluster_wait();
    if (cluster_rank() > 0) return;
    for (uint32_t rank = 1; rank < cluster_size(); rank++) add_part(c, part, rank);
}

/* A computing warpgroup. q: its 64 rows in the first stage of Q. */
template <class P>
static __device__ __forceinline__ void consume(const attention_call &call, int32_t group, prefill_shared<P> *shared,
                                               uint32_t k, uint32_t v, uint32_t q)
{
    /* The next tile's first scores are computed while a tile's last weights are multiplied with V, if the next tile has
     * a stage of Q of its own. */
    constexpr bool AHEAD = P::Q_STAGES > 1 && !P::SPLIT;
    const int32_t warp_row = threadIdx.x % GROUP_THREADS / 32 * 16, thread_row = warp_row + threadIdx.x % 32 / 4;
    const bool swizzled = call.args.block_size >= 16;
    consumer<P> c = {group, k, q};
    c.scale_log2 = (P::VARIANT ? 1.0f : call.params.scale * kv_scales_load(&call.params, P::FP8).k) * ATTENTION_LOG2E;
    c.values = swizzled ? wgmma_descriptor_swizzled(v) : wgmma_descriptor(v, P::HEAD * 16);
    c.row_bytes = swizzled ? 32 : 16;
    c.k_stage = {&shared->k_barriers}, c.v_stage = {&shared->v_barriers}, c.q_stage = {&shared->q_barriers};
    struct prefill_tile tile = {};
    bool more = prefill_tile_next<P>(&tile, &call);
    begin_first_scores<P>(c.s, more, c.q_stage, q, c.k_stage, k);
    wgmma_wait<0>();
    wgmma_pin(c.s);
    if (P::SPLIT && !more) { /* nothing to join */
        cluster_arrive();
        cluster_wait();
    }
    while (more) {
        const uint32_t q_rows = q + c.q_stage.index * P::Q_BYTES;
        start_tile(c, call, tile, group * 64 + thread_row);
        for (int32_t t = 1; t < tile.count; t++) add_tokens(c, call, q_rows, tile.start + t * P::TOKENS);
        struct prefill_tile next = tile;
        prefill_stage<P::Q_STAGES> next_q = c.q_stage;
        prefill_stage_next(&next_q);
        more = prefill_tile_next<P>(&next, &call);
        prefill_wait_full(c.v_stage);
        wgmma_pin(c.s);
        begin_next_values(c);
        if (AHEAD) begin_first_scores<P>(c.s, more, next_q, q, c.k_stage, k);
        wgmma_wait<AHEAD ? 1 : 0>();
        wgmma_pin(c.out);
        prefill_stage_release(&c.v_stage);
        if constexpr (P::SPLIT) {
            join_parts(c);
            if (cluster_rank() > 0) return;
        }
        store_rows<P>(call, tile, c.out, c.rows, c.scale_log2, q_rows + warp_row * 16, group * 64 + warp_row);
        if (P::SPLIT) return; /* a cluster has one tile */
        prefill_stage_return(&c.q_stage);
        if (!AHEAD) begin_first_scores<P>(c.s, more, next_q, q, c.k_stage, k);
        wgmma_wait<0>();
        wgmma_pin(c.s);
        tile = next;
    }
}
#endif

template <class P>
static __global__ void __launch_bounds__(P::THREADS, 1) prefill_kernel(const __grid_constant__ prefill_call launch)
{
#ifdef ATTENTION_HAVE_WGMMA
    extern __shared__ __align__(1024) uint8_t tiles[];
    __shared__ prefill_shared<P> shared;
    if (threadIdx.x == 0) {
        if (!P::FP8) tensor_map_prefetch(&launch.keys), tensor_map_prefetch(&launch.values);
        prefill_barriers_init(&shared.k_barriers, P::FP8 ? GROUP_THREADS : 1, P::CONSUMERS * 4);
        prefill_barriers_init(&shared.v_barriers, P::FP8 ? GROUP_THREADS : 1, P::CONSUMERS * 4);
        prefill_barriers_init(&shared.q_barriers, P::Q_THREADS, P::CONSUMERS * GROUP_THREADS);
        barrier_init_fence();
    }
    __syncthreads();
    const uint32_t k = shared_address(tiles), v = k + P::K_STAGES * P::TILE_BYTES, q = v + P::V_STAGES * P::TILE_BYTES;
    const int32_t group = __shfl_sync(~0u, threadIdx.x / GROUP_THREADS, 0);
    if (group == 0) {
        give_registers<P::PRODUCER_REGISTERS>();
        produce<P>(launch, &shared, k, v, q);
        if (P::SPLIT) {
            __syncwarp();
            cluster_arrive();
            cluster_wait();
        }
    } else {
        take_registers<P::CONSUMER_REGISTERS>();
        consume<P>(launch.call, group - 1, &shared, k, v, q + (group - 1) * 64 * 16);
    }
    if (P::SPLIT) { /* waits until the first block has read this block's results */
        __syncwarp();
        cluster_arrive();
        cluster_wait();
    }
#endif
}

static bool is_for_tensor_cores(const struct attention_args *args)
{
    const bool fp8 = dtype_size(args->cache_dtype) == 1;
    return args->dtype != DTYPE_FLOAT32 && (args->cache_dtype == args->dtype || fp8) &&
           !(fp8 && (args->block_size < 16 || (args->head_size | args->v_head_size) % 16 != 0)) &&
           !attention_is_sparse(args->params) && (args->head_size | args->v_head_size) % 8 == 0 &&
           args->head_size <= 256 && args->v_head_size <= 256 && args->params->scale > 0 &&
           args->query_stride % 8 == 0 && cuda_is_aligned(args->query) && cuda_is_aligned(args->out) &&
           cuda_is_aligned(args->k_cache) && cuda_is_aligned(args->v_cache);
}

/* The caches as tensors of 5 dimensions, innermost first:
 *     K [num_blocks][num_kv_heads][block_size / 8][head_size / 8][8 tokens of 8 elements],
 *     V [num_blocks][num_kv_heads][1][v_head_size][block_size]. */
template <class P> static bool map_caches(struct backend *b, struct prefill_call *call)
{
    const struct attention_args *args = &call->call.args;
    const int64_t bs = args->block_size, head_size = args->head_size, heads = args->num_kv_heads;
    const int64_t v_head_size = args->v_head_size, k_head = bs * head_size, v_head = bs * v_head_size;
    const int32_t run = run_tokens(args);
    const struct tensor_map_args keys = {args->k_cache,
                                         5,
                                         {64, head_size / 8, bs / 8, heads, INT32_MAX},
                                         {bs * 8, 64, k_head, args->block_stride},
                                         {64, P::HEAD / 8, run / 8, 1, 1},
                                         CU_TENSOR_MAP_SWIZZLE_NONE,
                                         CU_TENSOR_MAP_L2_PROMOTION_NONE};
    const struct tensor_map_args values = {args->v_cache,
                                           5,
                                           {bs, v_head_size, 1, heads, INT32_MAX},
                                           {bs, v_head, v_head, args->block_stride},
                                           {run, P::HEAD, 1, 1, 1},
                                           run == 16 ? CU_TENSOR_MAP_SWIZZLE_32B : CU_TENSOR_MAP_SWIZZLE_NONE,
                                           CU_TENSOR_MAP_L2_PROMOTION_NONE};
    if (tensor_map_encode(&call->keys, &keys) && tensor_map_encode(&call->values, &values)) return true;
    cuda_fail(b,
              "paged attention: the driver cannot make tensor maps of caches with blocks of %d tokens and heads of %d",
              args->block_size, args->head_size);
    return false;
}

/* Into how many parts the tokens of each tile of rows are split. The parts of all tiles must run at the same time, and
 * fewer clusters of four blocks than multiprocessors would allow do, because a cluster lies in one group of
 * multiprocessors. Parts that are too short take longer to add up than they save. Two parts of very long contexts gain
 * nothing in a step, unless the tiles are few. */
template <class P> static int32_t num_parts(const struct cuda_state *s, const struct attention_args *args)
{
    const struct attention_params *params = args->params;
    const int32_t reach = params->chunk > 0 ? params->chunk : params->window;
    const int64_t needed = (int64_t)reach + args->max_query_len, tiles = prefill_tiles<P>(args);
    const int64_t tokens = reach > 0 && needed < args->max_seq_len ? needed : args->max_seq_len;
    if (tiles * 4 <= s->num_sms * 3 / 4 && tokens >= 4 * MIN_PART) return 4;
    const bool gains = tiles * 4 <= s->num_sms || tokens < 8 * MIN_PART;
    return gains && tiles * 2 <= s->num_sms && tokens >= 2 * MIN_PART ? 2 : 1;
}

template <class P> static void launch(struct backend *b, const struct attention_args *args, int32_t parts)
{
    const struct cuda_state *s = cuda_use(b);
    const int32_t tiles = prefill_tiles<P>(args), most = P::SPLIT ? tiles : s->num_sms;
    struct prefill_call call = {{}, {}, attention_call_make(args)};
    if (!P::FP8 && !map_caches<P>(b, &call)) return;
    if (!cuda_allow_shared(b, "paged attention", prefill_kernel<P>, P::SHARED_BYTES)) return;
    const unsigned blocks = (unsigned)((tiles < most ? tiles : most) * parts);
    cuda_launch_kernel(s, prefill_kernel<P>, {blocks, P::THREADS, P::SHARED_BYTES, parts}, false, call);
    cuda_check_launch(b, "paged attention");
}

/* Three computing warpgroups use each tile of K and V for more rows; they are worth it if there are enough rows to keep
 * the device busy. Where they have not enough registers, larger tiles of tokens are worth it after long contexts. */
template <class T, bool FP8, int HEAD>
static void launch_variant(attention_types<T, FP8, HEAD>, struct backend *b, const struct attention_args *args)
{
    constexpr int MOST = HEAD == 64 && !FP8 ? 3 : 2;
    constexpr bool CAN_SPLIT = HEAD <= 128 && !FP8;
    using wide = prefill_traits<T, FP8, HEAD, false, MOST>;
    using narrow = prefill_traits<T, FP8, HEAD, false, 2>;
    using longer = prefill_traits<T, FP8, HEAD, false, 2, false, HEAD == 128 && !FP8 ? 160 : 128>;
    using split = prefill_traits<T, FP8, HEAD, false, 2, CAN_SPLIT>;
    const bool many_rows = prefill_tiles<wide>(args) >= 2 * cuda_state(b)->num_sms;
    const bool is_long = args->params->window == 0 && args->max_seq_len >= LONG_CONTEXT;
    const int32_t parts = CAN_SPLIT ? num_parts<split>(cuda_state(b), args) : 1;
    if (attention_has_two_sizes(args)) {
        launch<prefill_traits<T, FP8, 256, true, 2>>(b, args, 1);
    } else if (attention_modifies_scores(args->params)) {
        launch<prefill_traits<T, FP8, HEAD, true, 2>>(b, args, 1);
    } else if (parts > 1) {
        launch<split>(b, args, parts);
    } else if (HEAD == 128 && many_rows && is_long) {
        launch<longer>(b, args, 1);
    } else if (many_rows) {
        launch<wide>(b, args, 1);
    } else {
        launch<narrow>(b, args, 1);
    }
}

void cuda_paged_attention_prefill(struct backend *b, const struct attention_args *args)
{
    if (args->num_seqs <= 0 || args->max_query_len <= 0) return;
    if (!is_for_tensor_cores(args)) {
        cuda_attention_generic(b, args);
    } else if (!cuda_state(b)->has_wgmma) {
        cuda_attention_prefill_mma(b, args);
    } else {
        attention_dispatch(args, [&](auto types) { launch_variant(types, b, args); });
    }
}
