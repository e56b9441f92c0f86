/* Matmuls with few tokens. The cost is to read the weights once, at the speed of memory.
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
 * so that the eight lanes that are served together read from different banks.
 *
 * Sums are added in a fixed order: within a warp, over the mma warps, over the parts of a tile. Different blocks
 * compute the parts of a tile, and the block that finishes last adds them up. */
#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/linear_few_tokens.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/operations.h"

enum {
    TILE = 16, /* output features; of MATMUL_GATE 8 gates and the 8 ups that belong to them */
    MMA_WARPS = 8,
    MMA_THREADS = 32 * MMA_WARPS,
    COPY_WARPS = 4,
    COPY_WARP_ROWS = TILE / COPY_WARPS, /* rows of a stage that one copy warp copies */
    THREADS = MMA_THREADS + 32 * COPY_WARPS,
    SKEW = 64, /* bytes */
    MAX_STAGES = 16,
    SHORT_BYTES = 600 << 10,  /* a weight of fewer bytes than this for each multiprocessor gets large chunks */
    IN_FLIGHT = 64 << 10,     /* bytes in flight to each multiprocessor; many more make reads slower */
    PARTIAL_BYTES = 16 << 20, /* of the workspace, for the sums of parts */
    MAX_SPLIT_TILES = 16384   /* of a matmul in parts: the workspace has a counter for each */
};

struct few_tokens_call {
    struct matmul matmul;
    struct few_tokens_plan plan;
    uint32_t *arrivals; /* [tiles] parts that are finished; zero before and after the kernel */
    float *partials;    /* [tiles, splits, tokens, TILE] */
};

static inline __host__ __device__ int64_t tile_count(const struct matmul *m)
{
    return m->result == MATMUL_GATE ? cuda_div_up(m->out_features / 2, TILE / 2) : cuda_div_up(m->out_features, TILE);
}

/* The number of sums of a tile. Its tokens are padded to groups of 8. */
static inline __host__ __device__ int64_t sum_count(int groups)
{
    return (int64_t)groups * 8 * TILE;
}

static int32_t stage_bytes(int32_t chunk)
{
    return TILE * (2 * chunk + SKEW);
}

#if __CUDA_ARCH__ >= 900

/* Waits for the other mma warps. */
static __device__ __forceinline__ void mma_warps_sync()
{
    asm volatile("bar.sync 1, %0;" ::"r"((int)MMA_THREADS) : "memory");
}

/* A block's part of the matmul: tiles first_tile, first_tile + tile_step, ..., and of each the input features
 * [begin, begin + size), in `chunks` chunks. */
struct block_part {
    int32_t split, first_tile, tile_step;
    int64_t tiles, begin;
    int32_t size, chunks;
    int32_t x_row; /* bytes from a token of x to the next in shared memory */
};

static __device__ __forceinline__ block_part find_part(const struct few_tokens_plan &plan, const matmul &m)
{
    block_part p;
    p.split = blockIdx.x % plan.splits;
    p.tile_step = gridDim.x / plan.splits;
    p.first_tile = blockIdx.x / plan.splits;
    p.tiles = tile_count(&m);
    p.begin = p.split * (int64_t)plan.part;
    const int64_t left = m.in_features - p.begin;
    p.size = (int32_t)(left < plan.part ? left : plan.part);
    p.chunks = (p.size + plan.chunk - 1) / plan.chunk;
    p.x_row = 2 * plan.part + SKEW;
    return p;
}

/* The output feature that a row of a tile is; -1: none, the row is beyond the last one. */
static __device__ __forceinline__ int64_t feature_of(const matmul &m, int64_t tile, int row)
{
    if (m.result != MATMUL_GATE) {
        const int64_t o = tile * TILE + row;
        return o < m.out_features ? o : -1;
    }
    const int64_t half = m.out_features / 2, o = tile * (TILE / 2) + row % (TILE / 2);
    return o >= half ? -1 : row < TILE / 2 ? o : half + o;
}

/* The ring and its barriers: full[s] ends a phase when a chunk is in stage s, empty[s] when it has been multiplied. */
struct weight_ring {
    uint8_t *data;
    uint64_t *full, *empty;
};

/* A copy warp: each of its first COPY_WARP_ROWS lanes copies one row of every chunk. A chunk is copied when its stage
 * is free and the chunk `in_flight` before it has arrived. */
template <class T>
static __device__ __forceinline__ void copy_weights(const struct few_tokens_plan &plan, const matmul &m,
                                                    const block_part &p, const weight_ring &ring)
{
    const int lane = threadIdx.x % 32, row_bytes = 2 * plan.chunk + SKEW;
    const int row = (threadIdx.x - MMA_THREADS) / 32 * COPY_WARP_ROWS + lane;
    const uint64_t policy = evict_first_policy();
    ring_place at = {0, 0}, arrived = {0, 0};
    int in_flight = 0;
    for (int64_t tile = p.first_tile; tile < p.tiles; tile += p.tile_step) {
        const int64_t feature = lane < COPY_WARP_ROWS ? feature_of(m, tile, row) : -1;
        const int rows = __popc(__ballot_sync(~0u, feature >= 0));
        const T *from = (const T *)m.weight + feature * m.in_features + p.begin;
        for (int chunk = 0; chunk < p.chunks; chunk++) {
            const int left = p.size - chunk * plan.chunk, features = left < plan.chunk ? left : plan.chunk;
            if (in_flight == plan.in_flight) {
                barrier_wait(&ring.full[arrived.stage], arrived.round & 1);
                ring_step(arrived, plan.stages);
            } else {
                in_flight++;
            }
            if (at.round > 0) barrier_wait(&ring.empty[at.stage], (at.round - 1) & 1);
            if (lane == 0) barrier_arrive_expect(&ring.full[at.stage], (uint32_t)(rows * features * 2));
            __syncwarp();
            if (feature >= 0)
                bulk_copy(ring.data + (at.stage * TILE + row) * row_bytes, from + chunk * plan.chunk,
                          (uint32_t)features * 2, &ring.full[at.stage], policy);
            ring_step(at, plan.stages);
        }
    }
}

static __device__ __forceinline__ int gain_bytes(const matmul &m)
{
    return m.gain ? (int)m.in_features * (m.gain_is_float ? 4 : 2) : 0;
}

/* One warp copies this part's input features of x into shared memory, and the gains if there are any. The gains do not
 * wait for the previous kernel. All blocks read the same x, which keeps the L2 cache busy, so the two blocks of a
 * cluster copy every other token for both. */
static __device__ __forceinline__ void copy_x(const matmul &m, int cluster, const block_part &p, uint8_t *x,
                                              uint8_t *gain, uint64_t *full)
{
    const int lane = threadIdx.x % 32;
    const uint64_t policy = evict_last_policy();
    if (lane == 0) {
        barrier_arrive_expect(full, (uint32_t)(m.num_tokens * p.size * 2 + gain_bytes(m)));
        if (m.gain) bulk_copy(gain, m.gain, gain_bytes(m), full, policy);
    }
    __syncwarp();
    wait_for_previous();
    if (lane >= m.num_tokens) return;
    const uint16_t *from = (const uint16_t *)m.x + lane * m.x_stride + p.begin;
    if (cluster == 1 || !BULK_COPY_TO_CLUSTER)
        bulk_copy(x + lane * p.x_row, from, (uint32_t)p.size * 2, full, policy);
    else if (lane % 2 == (int)cluster_rank())
        bulk_copy_to_cluster(x + lane * p.x_row, from, (uint32_t)p.size * 2, full, 3, policy);
}

template <class T> static __device__ __forceinline__ float square_sum(uint4 words)
{
    const T *x = (const T *)&words;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) sum += to_float(x[i]) * to_float(x[i]);
    return sum;
}

template <class T, class G> static __device__ __forceinline__ uint4 normalize(uint4 words, const G *gain, float factor)
{
    T *x = (T *)&words;
    G gains[8];
#pragma unroll
    for (int i = 0; i < (int)sizeof gains / 16; i++) ((uint4 *)gains)[i] = ((const uint4 *)gain)[i];
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] = from_float<T>(to_float(x[i]) * factor * to_float(gains[i]));
    return words;
}

/* rms_norm of x in shared memory, in place. Every block does it for itself, which costs less than a kernel and its
 * round trip through memory. One to eight warps share a token. sums: scratch for [tokens, MMA_WARPS]. */
template <class T>
static __device__ __forceinline__ void norm_x(const matmul &m, uint8_t *x, int x_row, const uint8_t *gain, float *sums)
{
    const int pieces = (int)(m.in_features / 8), tokens = m.num_tokens;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warps = tokens == 1 ? 8 : tokens == 2 ? 4 : tokens <= 4 ? 2 : 1; /* of a token */
    const int first = warp % warps * 32 + lane;
    for (int token = warp / warps; token < tokens; token += MMA_WARPS / warps) {
        float sum = 0;
#pragma unroll 4
        for (int i = first; i < pieces; i += warps * 32) sum += square_sum<T>(*(uint4 *)(x + token * x_row + i * 16));
        for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
        if (lane == 0) sums[token * MMA_WARPS + warp % warps] = sum;
    }
    mma_warps_sync();
    for (int token = warp / warps; token < tokens; token += MMA_WARPS / warps) {
        float sum = 0;
        for (int i = 0; i < warps; i++) sum += sums[token * MMA_WARPS + i];
        const float factor = rsqrtf(sum / (float)m.in_features + m.eps);
#pragma unroll 4
        for (int i = first; i < pieces; i += warps * 32) {
            uint4 *words = (uint4 *)(x + token * x_row + i * 16);
            *words = m.gain_is_float ? normalize<T>(*words, (const float *)gain + i * 8, factor)
                                     : normalize<T>(*words, (const T *)gain + i * 8, factor);
        }
    }
}

/* The element of a tile's result that a thread stores, and what it reads for that before the sum is there: the biases
 * and the element of out that the sum is added to. A tile has at most 16 x 16 elements, one for each mma thread. */
struct result_place {
    bool is_there;
    int token, row; /* of the tile */
    int64_t at;     /* in out */
    float bias, up_bias, before;
};

template <class T> static __device__ __forceinline__ result_place find_place(const matmul &m, int64_t tile)
{
    const int rows = m.result == MATMUL_GATE ? TILE / 2 : TILE;
    result_place place = {};
    place.token = threadIdx.x / rows;
    place.row = threadIdx.x % rows;
    const int64_t o = feature_of(m, tile, place.row);
    place.is_there = place.token < m.num_tokens && o >= 0;
    if (!place.is_there) return place;
    place.at = place.token * m.out_stride + o;
    if (m.bias) place.bias = to_float(((const T *)m.bias)[o]);
    if (m.bias && m.result == MATMUL_GATE) place.up_bias = to_float(((const T *)m.bias)[m.out_features / 2 + o]);
    if (m.result == MATMUL_ADD) place.before = to_float(((const T *)m.out)[place.at]);
    return place;
}

/* total(row) returns the sum of the place's token and a row of the tile. */
template <class T, class Total>
static __device__ __forceinline__ void write_result(const matmul &m, const result_place &place, Total total)
{
    if (!place.is_there) return;
    const float y = total(place.row) + place.bias;
    if (m.result == MATMUL_GATE) {
        const float up = total(place.row + TILE / 2) + place.up_bias;
        ((T *)m.out)[place.at] = from_float<T>(gate_times_up<T>(m.activation, y, up));
    } else if (m.result == MATMUL_ADD) {
        ((T *)m.out)[place.at] = from_float<T>(place.before + to_float(from_float<T>(y)));
    } else if (m.out_is_float) {
        ((float *)m.out)[place.at] = y;
    } else {
        ((T *)m.out)[place.at] = from_float<T>(y);
    }
}

/* Finishes a tile: adds up the warps' sums [MMA_WARPS, tokens, TILE] and stores the result, or leaves the sums of this
 * part for the block that finishes the tile last. */
template <class T, int GROUPS>
static __device__ __forceinline__ void finish_tile(const few_tokens_call &c, const block_part &p, int64_t tile,
                                                   const result_place &place, const float *sums, int *is_last)
{
    constexpr int COUNT = GROUPS * 8 * TILE;
    auto of_warps = [&](int i) {
        float total = 0;
#pragma unroll
        for (int w = 0; w < MMA_WARPS; w++) total += sums[w * COUNT + i];
        return total;
    };
    const matmul &m = c.matmul;
    const int splits = c.plan.splits;
    if (splits == 1) {
        write_result<T>(m, place, [&](int row) { return of_warps(place.token * TILE + row); });
        return;
    }
    float *parts = c.partials + tile * splits * COUNT;
    for (int i = threadIdx.x; i < m.num_tokens * TILE; i += MMA_THREADS)
        __stcg(&parts[p.split * COUNT + i], of_warps(i));
    __threadfence();
    mma_warps_sync();
    if (threadIdx.x == 0) *is_last = atomicInc(&c.arrivals[tile], splits - 1) == (uint32_t)splits - 1;
    mma_warps_sync();
    if (!*is_last) return;
    __threadfence();
    write_result<T>(m, place, [&](int row) {
        float total = 0;
        for (int s = 0; s < splits; s++) total += __ldcg(&parts[s * COUNT + place.token * TILE + row]);
        return total;
    });
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

/* A warp's sums of a tile, in the layout of the mma instruction, into sums [tokens, TILE]. */
template <int GROUPS> static __device__ __forceinline__ void leave_sums(float *sums, const float (&sum)[GROUPS][4])
{
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < GROUPS; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) sums[(8 * n + 2 * t + i % 2) * TILE + g + i / 2 * 8] = sum[n][i];
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
    for (int64_t tile = p.first_tile; tile < p.tiles; tile += p.tile_step) {
        const result_place place = find_place<T>(c.matmul, tile);
        float sum[GROUPS][4] = {};
        for (int chunk = 0; chunk < p.chunks; chunk++) {
            const int begin = chunk * c.plan.chunk;
            barrier_wait(&ring.full[at.stage], at.round & 1);
            multiply_chunk<T, GROUPS>(sum, {ring.data + at.stage * TILE * stage_row, x + begin * 2, stage_row, p.x_row,
                                            c.matmul.num_tokens, c.plan.chunk, p.size - begin});
            __syncwarp();
            if (threadIdx.x % 32 == 0) barrier_arrive(&ring.empty[at.stage]);
            ring_step(at, c.plan.stages);
        }
        leave_sums<GROUPS>(sums + (side * MMA_WARPS + warp) * COUNT, sum);
        mma_warps_sync();
        finish_tile<T, GROUPS>(c, p, tile, place, sums + side * MMA_WARPS * COUNT, is_last);
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
    float *sums = (float *)(x + c.plan.x_bytes);
    uint8_t *gain = (uint8_t *)(sums + 2 * MMA_WARPS * GROUPS * 8 * TILE);
    const block_part p = find_part(c.plan, c.matmul);
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
        copy_weights<T>(c.plan, c.matmul, p, ring);
        __syncwarp();
        if (c.plan.cluster > 1) cluster_wait();
        return;
    }
    if (c.plan.cluster > 1) cluster_wait(); /* the other block has initialized its barriers */
    if (threadIdx.x < 32) copy_x(c.matmul, c.plan.cluster, p, x, gain, &x_full);
    wait_for_previous();
    barrier_wait(&x_full, 0);
    if (c.matmul.gain) {
        norm_x<T>(c.matmul, x, p.x_row, gain, sums);
        mma_warps_sync();
    }
    multiply_tiles<T, GROUPS>(c, p, ring, x, sums, &is_last);
#endif
}

static int groups_of(int32_t num_tokens)
{
    return num_tokens <= 8 ? 1 : 2;
}

/* Whether the kernel can compute it on this device at all. */
static bool can_compute(const struct cuda_state *s, const struct matmul *m)
{
    const bool shape = m->num_tokens >= 1 && m->num_tokens <= FEW_TOKENS_MAX && m->in_features > 0 &&
                       m->in_features % 8 == 0 && m->in_features <= INT32_MAX / 64 && m->out_features > 0 &&
                       tile_count(m) <= INT32_MAX / 64;
    const bool aligned = cuda_is_aligned(m->weight) && cuda_is_aligned(m->x) && m->x_stride % 8 == 0 &&
                         (!m->gain || cuda_is_aligned(m->gain));
    return s->compute_capability >= 90 && shape && aligned;
}

/* A plan with that many splits and input features a chunk; stages is 0 if that does not fit. */
static struct few_tokens_plan plan_of(const struct cuda_state *s, const struct matmul *m, int32_t splits, int32_t chunk)
{
    const int64_t sums = sum_count(groups_of(m->num_tokens)) * (int64_t)sizeof(float), tiles = tile_count(m);
    const int64_t room = s->max_shared_bytes - 1024; /* less the static shared memory */
    const int64_t part = cuda_div_up(cuda_div_up(m->in_features, splits), chunk) * chunk;
    const int64_t x = m->num_tokens * (2 * part + SKEW);
    const int64_t gain = m->gain ? m->in_features * (m->gain_is_float ? 4 : 2) : 0;
    const int64_t fixed = x + 2 * MMA_WARPS * sums + gain;
    const int64_t blocks = s->num_sms / splits < tiles ? s->num_sms / splits : tiles;
    const int64_t most = cuda_div_up(tiles, blocks) * (part / chunk); /* chunks that a block has to read */
    struct few_tokens_plan plan = {};
    if ((splits - 1) * part >= m->in_features) return plan;
    if (splits > 1 && (!s->regions[CUDA_USER_LINEAR].data || m->gain || tiles > MAX_SPLIT_TILES)) return plan;
    if (splits > 1 && tiles * splits * sums > PARTIAL_BYTES) return plan;
    int64_t stages = (room - fixed) / stage_bytes(chunk);
    if (stages < 2) return plan;
    if (stages > MAX_STAGES) stages = MAX_STAGES;
    if (stages > most) stages = most > 2 ? most : 2; /* the rest of shared memory is for the next kernel's blocks */
    plan.splits = splits;
    plan.part = (int32_t)part;
    plan.chunk = chunk;
    plan.stages = (int32_t)stages;
    plan.in_flight = IN_FLIGHT / (TILE * 2 * chunk);
    if (plan.in_flight > plan.stages) plan.in_flight = plan.stages;
    plan.blocks = (int32_t)blocks * splits;
    plan.cluster = splits == 1 && plan.blocks % 2 == 0 && m->num_tokens > 2 ? 2 : 1;
    plan.x_bytes = (int32_t)x;
    plan.shared_bytes = (int32_t)(plan.stages * stage_bytes(chunk) + fixed);
    return plan;
}

/* Copies of large chunks start sooner, those of small chunks finish more evenly, so a block that has little to read
 * gets large chunks. */
bool few_tokens_plan(const struct cuda_state *s, const struct matmul *m, struct few_tokens_plan *out)
{
    if (!can_compute(s, m)) return false;
    const bool is_short = m->out_features * m->in_features * 2 < (int64_t)SHORT_BYTES * s->num_sms;
    *out = plan_of(s, m, 1, is_short ? 1024 : 512);
    if (out->stages >= 3) return true;
    for (int32_t splits = 1; splits <= 16 && out->stages < 4; splits *= 2) {
        const struct few_tokens_plan plan = plan_of(s, m, splits, 512);
        if (plan.stages > out->stages) *out = plan;
    }
    return out->stages >= 2;
}

template <class T, int GROUPS>
static void launch(struct backend *b, const char *operation, const struct few_tokens_call *call)
{
    const struct few_tokens_plan *plan = &call->plan;
    auto *kernel = few_tokens_kernel<T, GROUPS>;
    const struct cuda_state *s = cuda_use(b);
    if (!cuda_allow_shared(b, operation, kernel, plan->shared_bytes)) return;
    cuda_launch_dependent(s, kernel, {dim3(plan->blocks), THREADS, plan->shared_bytes, plan->cluster}, *call);
    cuda_check_launch(b, operation);
}

template <class T>
static void launch_groups(struct backend *b, const char *operation, const struct few_tokens_call *call)
{
    if (groups_of(call->matmul.num_tokens) == 1) {
        launch<T, 1>(b, operation, call);
    } else {
        launch<T, 2>(b, operation, call);
    }
}

void few_tokens_launch(struct backend *b, const char *operation, const struct matmul *m,
                       const struct few_tokens_plan *plan)
{
    uint8_t *workspace = cuda_state(b)->regions[CUDA_USER_LINEAR].data;
    struct few_tokens_call call = {};
    call.matmul = *m;
    call.plan = *plan;
    if (workspace) {
        call.arrivals = (uint32_t *)workspace;
        call.partials = (float *)(call.arrivals + MAX_SPLIT_TILES);
    }
    if (m->dtype == DTYPE_FLOAT16) {
        launch_groups<__half>(b, operation, &call);
    } else {
        launch_groups<__nv_bfloat16>(b, operation, &call);
    }
}

int64_t cuda_linear_workspace(const struct cuda_state *s, const struct workspace_query *query)
{
    (void)query;
    return s->compute_capability >= 90 ? PARTIAL_BYTES + MAX_SPLIT_TILES * (int64_t)sizeof(uint32_t) : 0;
}
