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
#include "kernels/cuda/attention/decode_join.cuh"
#include "kernels/cuda/attention/decode_rows.cuh"
#include "kernels/cuda/operations.h"

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
