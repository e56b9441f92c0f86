/* Matmuls with few tokens (compute capability 9.0 and later). The cost is to read the weights once, at the speed of
 * memory.
 *
 * A block has COPY_WARPS warps that start copies of weights into a ring in shared memory, through the bulk copy engine,
 * and MMA_WARPS warps that multiply what has arrived:
 *
 *      weights of a tile           ring: `stages` stages of one chunk each             mma warps
 *     (16 output features)
 *                              stage 0    stage 1    stage 2    stage 3
 *     chunk 8, 9, 10, ... ->  +---------++---------++---------++---------+  -->  wait for full[1],
 *     wait for empty[0],      | free    || chunk 5 || chunk 6 || chunk 7 |       multiply chunk 5,
 *     copy chunk 8 into       |         || full    || full    || copying |       arrive at empty[1]
 *     stage 0; its arrival    +---------++---------++---------++---------+
 *     completes full[0]
 *
 * So enough bytes are always in flight, whatever the mma warps wait for. The copies start before the previous kernel
 * has ended, because weights do not depend on it (dependent.cuh). There are several copy warps because starting the
 * copy of one row takes a warp about 80 cycles, which is too slow for one warp.
 *
 * The matmul runs on tensor cores (mma.cuh) with 16 output features as M and 8 tokens as N. Each mma warp takes an
 * eighth of a chunk's input features. The order in which a lane multiplies them does not matter as long as it is the
 * same for both operands: lane (g, t) takes input features 8 t .. 8 t + 7 of each 32, of weight rows g and g + 8 and of
 * token g, so that every operand is read in pieces of 16 bytes. The rows of a stage and of x are padded by SKEW bytes,
 * so that the eight lanes that are served together read from different banks. */
#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/matmul/few_tokens_tile.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/operations.h"

enum {
    TILE = FEW_TOKENS_TILE,
    COPY_WARPS = 4,
    COPY_WARP_ROWS = TILE / COPY_WARPS, /* rows of a stage that one copy warp copies */
    THREADS = MMA_THREADS + 32 * COPY_WARPS,
    MAX_STAGES = FEW_TOKENS_MAX_STAGES
};

#if __CUDA_ARCH__ >= 900

/* The ring and its barriers: full[s] ends a phase when a chunk is in stage s, empty[s] when it has been multiplied. */
struct weight_ring {
    uint8_t *data;
    uint64_t *full, *empty;
};

/* A copy warp: each of its first COPY_WARP_ROWS lanes copies one row of every chunk. A chunk is copied when its stage
 * is free and the chunk `in_flight` before it has arrived. */
template <class T>
static __device__ __forceinline__ void copy_weights(const few_tokens_call &c, const block_part &p,
                                                    const weight_ring &ring)
{
    const struct few_tokens_plan &plan = c.plan;
    const matmul &m = c.matmul;
    const int lane = threadIdx.x % 32, row_bytes = 2 * plan.chunk + SKEW;
    const int row = (threadIdx.x - MMA_THREADS) / 32 * COPY_WARP_ROWS + lane;
    const uint64_t policy = evict_first_policy();
    ring_filler filler = {};
    for (int tile = p.first_tile; tile < plan.tiles; tile += plan.columns) {
        const int feature = lane < COPY_WARP_ROWS ? feature_of<TILE>(m, tile, row) : -1;
        const int rows = __popc(__ballot_sync(~0u, feature >= 0));
        const T *from = (const T *)m.weight + (int64_t)feature * m.in_features + p.begin;
        for (int chunk = 0; chunk < p.chunks; chunk++) {
            const int left = p.size - chunk * plan.chunk, features = left < plan.chunk ? left : plan.chunk;
            const int stage = filler.next.stage;
            ring_wait_empty(filler, ring.full, ring.empty, plan.stages, plan.in_flight);
            if (lane == 0) barrier_arrive_expect(&ring.full[stage], (uint32_t)(rows * features * 2));
            __syncwarp();
            if (feature >= 0)
                bulk_copy(ring.data + (stage * TILE + row) * row_bytes, from + chunk * plan.chunk,
                          (uint32_t)features * 2, &ring.full[stage], policy);
            ring_step(filler.next, plan.stages);
        }
    }
}

/* One warp copies this part's input features of x into shared memory, and the gains if there are any. The gains do not
 * wait for the previous kernel. All blocks read the same x, which keeps the L2 cache busy, so the two blocks of a
 * cluster copy every other token for both. */
static __device__ __forceinline__ void copy_x(const few_tokens_call &c, const block_part &p, uint8_t *x, uint8_t *gain,
                                              uint64_t *full)
{
    const matmul &m = c.matmul;
    const int lane = threadIdx.x % 32;
    const uint64_t policy = evict_last_policy();
    if (lane == 0) {
        barrier_arrive_expect(full, (uint32_t)(m.num_tokens * p.size * 2 + few_tokens_gain_bytes(&m)));
        if (m.gain) bulk_copy(gain, m.gain, few_tokens_gain_bytes(&m), full, policy);
    }
    __syncwarp();
    wait_for_previous();
    if (lane >= m.num_tokens) return;
    const uint16_t *from = (const uint16_t *)m.x + lane * m.x_stride + p.begin;
    if (c.plan.cluster == 1 || !BULK_COPY_TO_CLUSTER)
        bulk_copy(x + lane * c.plan.x_row, from, (uint32_t)p.size * 2, full, policy);
    else if (lane % 2 == (int)cluster_rank())
        bulk_copy_to_cluster(x + lane * c.plan.x_row, from, (uint32_t)p.size * 2, full, 3, policy);
}

/* A warp's share of one chunk: `left` of the chunk's input features are in the matmul. */
struct chunk_operands {
    const uint8_t *stage, *x; /* the chunk's input features of 16 rows of the weight, and of the tokens */
    int stage_row, x_row;     /* bytes from row to row, and from token to token */
    int num_tokens, size, left;
};

template <class T, int GROUPS>
static __device__ __forceinline__ void multiply_chunk(float (&sum)[GROUPS][4], const chunk_operands &c)
{
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const uint4 zero = make_uint4(0, 0, 0, 0);
    const int begin = warp * (c.size / MMA_WARPS), end = begin + c.size / MMA_WARPS;
#pragma unroll 2
    for (int group = begin; group < end; group += 32) {
        const int feature = group + 8 * t;
        const bool there = feature < c.left;
        const uint4 low = there ? *(const uint4 *)(c.stage + g * c.stage_row + feature * 2) : zero;
        const uint4 high = there ? *(const uint4 *)(c.stage + (g + 8) * c.stage_row + feature * 2) : zero;
        const uint32_t first[4] = {low.x, high.x, low.y, high.y}, second[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
        for (int n = 0; n < GROUPS; n++) {
            const int token = 8 * n + g;
            const uint4 y =
                there && token < c.num_tokens ? *(const uint4 *)(c.x + token * c.x_row + feature * 2) : zero;
            multiply_add<T>(sum[n], first, y.x, y.y);
            multiply_add<T>(sum[n], second, y.z, y.w);
        }
    }
}

/* The mma warps: all chunks of all tiles. sums: two sets of [MMA_WARPS, tokens, TILE], used in turn, so that one
 * barrier a tile is enough: a warp writes to a set again only after all warps have passed the next tile's barrier. */
template <class T, int GROUPS>
static __device__ __forceinline__ void multiply_tiles(const few_tokens_call &c, const block_part &p,
                                                      const weight_ring &ring, const uint8_t *x, float *sums,
                                                      int *is_last)
{
    constexpr int COUNT = GROUPS * 8 * TILE;
    const int warp = threadIdx.x / 32, stage_row = 2 * c.plan.chunk + SKEW;
    ring_place at = {0, 0};
    int side = 0;
    for (int tile = p.first_tile; tile < c.plan.tiles; tile += c.plan.columns) {
        const tile_element<T> element = find_element<T, TILE>(c.matmul, tile, threadIdx.x);
        float sum[GROUPS][4] = {};
        for (int chunk = 0; chunk < p.chunks; chunk++) {
            const int begin = chunk * c.plan.chunk;
            barrier_wait(&ring.full[at.stage], at.round & 1);
            multiply_chunk<T, GROUPS>(sum, {ring.data + at.stage * TILE * stage_row, x + begin * 2, stage_row,
                                            c.plan.x_row, c.matmul.num_tokens, c.plan.chunk, p.size - begin});
            __syncwarp();
            if (threadIdx.x % 32 == 0) barrier_arrive(&ring.empty[at.stage]);
            ring_step(at, c.plan.stages);
        }
        leave_sums<TILE, GROUPS>(sums + (side * MMA_WARPS + warp) * COUNT, sum);
        mma_warps_sync();
        finish_tile<T, TILE, COUNT>(c, p.split, tile, element, sums + side * MMA_WARPS * COUNT, is_last);
        side ^= 1;
    }
}

#endif

/* Dynamic shared memory: the ring, x, two sets of the warps' sums, the gains. */
template <class T, int GROUPS>
static __global__ void __launch_bounds__(THREADS, GROUPS == 1 ? 2 : 1)
    few_tokens_kernel(const __grid_constant__ few_tokens_call c)
{
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ uint64_t full[MAX_STAGES], empty[MAX_STAGES], x_full;
    __shared__ int is_last;
    uint8_t *x = shared + c.plan.stages * TILE * (2 * c.plan.chunk + SKEW);
    float *sums = (float *)(x + c.matmul.num_tokens * c.plan.x_row);
    uint8_t *gain = (uint8_t *)(sums + 2 * MMA_WARPS * GROUPS * 8 * TILE);
    const block_part p = find_part(c, c.plan.chunk);
    const weight_ring ring = {shared, full, empty};
    let_next_start();
    if (threadIdx.x < c.plan.stages) {
        barrier_init(&full[threadIdx.x], COPY_WARPS);
        barrier_init(&empty[threadIdx.x], MMA_WARPS);
        if (threadIdx.x == 0) barrier_init(&x_full, 1);
        barrier_init_fence();
    }
    __syncthreads();
    if (c.plan.cluster > 1) cluster_arrive();
    if (threadIdx.x >= MMA_THREADS) {
        copy_weights<T>(c, p, ring);
        __syncwarp();
        if (c.plan.cluster > 1) cluster_wait();
        return;
    }
    if (c.plan.cluster > 1) cluster_wait(); /* the other block has initialized its barriers */
    if (threadIdx.x < 32) copy_x(c, p, x, gain, &x_full);
    wait_for_previous();
    barrier_wait(&x_full, 0);
    if (c.matmul.gain) {
        norm_x<T>(c.matmul, x, c.plan.x_row, gain, sums);
        mma_warps_sync();
    }
    multiply_tiles<T, GROUPS>(c, p, ring, x, sums, &is_last);
#endif
}

bool few_tokens(struct backend *b, const char *operation, const struct matmul *m)
{
    const struct few_tokens_call call = few_tokens_call_of(b, m);
    const struct few_tokens_plan &plan = call.plan;
    matmul_dispatch(m, [&](auto zero) {
        using T = decltype(zero);
        cuda_run_dependent(b, operation, m->num_tokens <= 8 ? few_tokens_kernel<T, 1> : few_tokens_kernel<T, 2>,
                           {dim3(plan.blocks), THREADS, plan.shared_bytes, plan.cluster}, call);
    });
    return true;
}

int64_t cuda_linear_workspace(const struct cuda_state *s, const struct workspace_query *query)
{
    (void)s, (void)query;
    return CHAIN_COUNTER_AT + (int64_t)sizeof(uint32_t);
}
