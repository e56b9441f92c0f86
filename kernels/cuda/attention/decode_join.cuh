/* How the results of the warps of a block, of the blocks of a cluster and of the parts of a unit are combined. */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_DECODE_JOIN_CUH
#define QUIRE_KERNELS_CUDA_ATTENTION_DECODE_JOIN_CUH

#include "kernels/cuda/attention/decode_chunks.cuh"
#include "kernels/cuda/cluster.cuh"

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

#endif
