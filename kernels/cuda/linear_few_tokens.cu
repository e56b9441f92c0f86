/* Matrix products with few tokens: the cost is to read the weights once, at the speed of memory.
 *
 * A block has four warps that order weights with the bulk copy engine into a ring in shared memory, as far ahead as the
 * ring is long, and eight that multiply what has arrived: so enough bytes are always under way, whatever the others
 * wait for, and the ring is filled before the previous kernel is over, because weights do not depend on it (see
 * griddepcontrol in the PTX ISA). Four, because a warp takes some 80 cycles to order one row of a stage: one warp alone
 * was measured at 1.3 TB/s with rows of 512 bytes, 2.7 with 1024.
 *
 * The product is by tensor cores, mma.m16n8k16, with 16 rows of weights as its M and 8 tokens as its N. Each of the
 * eight warps takes an eighth of a chunk's columns. Which of them a lane multiplies in which step does not matter to a
 * sum as long as both operands agree: lane (g, t) takes columns 8 t .. 8 t + 7 of a group of 32 for rows g and g + 8,
 * and for token g: all are single 16-byte reads. A stage's rows, and those of x, lie 64 bytes off a multiple of 128
 * apart, so that the eight lanes of a quarter of a warp read from all banks.
 *
 * Sums are made in a fixed order: within a warp, over the eight warps, over the parts of a tile. The parts of a tile
 * are computed by different blocks, and the last to finish adds them up. */
#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/linear_few_tokens.cuh"
#include "kernels/cuda/operations.h"

enum {
    TILE = 16,
    WARPS = 8, /* that multiply */
    MULTIPLIERS = 32 * WARPS,
    ORDERERS = 4, /* warps that order weights, each its rows of a tile */
    ORDERER_ROWS = TILE / ORDERERS,
    THREADS = MULTIPLIERS + 32 * ORDERERS,
    SKEW = 64, /* bytes */
    MAX_STAGES = 16,
    SHORT_BYTES = 600 << 10, /* of weights for each multiprocessor */
    UNDER_WAY = 64 << 10, /* bytes under way to each multiprocessor; with three times as many reads got 10 % slower */
    PARTIAL_BYTES = 16 << 20, /* of the workspace: sums of parts; and an arrival counter for each tile */
    MAX_SPLIT_TILES = 16384
};

/* What the kernel is given. */
struct few_tokens_call {
    struct matmul product;
    struct few_tokens_plan plan;
    uint32_t *arrivals; /* [tiles] zero, and zero again afterwards */
    float *partials;    /* [tiles, splits, tokens, TILE] */
};

static inline __host__ __device__ int64_t tile_count(const struct matmul *p)
{
    return p->result == MATMUL_GATE ? cuda_div_up(p->out_features / 2, TILE / 2) : cuda_div_up(p->out_features, TILE);
}

/* Tokens are padded to a multiple of 8 in the sums. */
static inline __host__ __device__ int64_t sum_count(int groups)
{
    return (int64_t)groups * 8 * TILE;
}

static int32_t stage_bytes(int32_t chunk)
{
    return TILE * (2 * chunk + SKEW);
}

#if __CUDA_ARCH__ >= 900

template <class T>
static __device__ __forceinline__ void multiply(float (&sum)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                uint32_t b0, uint32_t b1);
template <>
__device__ __forceinline__ void multiply<__nv_bfloat16>(float (&sum)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                                        uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void multiply<__half>(float (&sum)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                 uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* The eight multiplying warps wait for each other. */
static __device__ __forceinline__ void multipliers_sync()
{
    asm volatile("bar.sync 1, %0;" ::"r"((int)MULTIPLIERS) : "memory");
}

/* Where the block's part of the product lies. */
struct part_of_block {
    int32_t split, first_tile, tile_step;
    int64_t tiles, begin; /* columns [begin, begin + size) */
    int32_t size, chunks, x_row;
};

static __device__ __forceinline__ part_of_block find_part(const struct few_tokens_plan &plan, const matmul &product)
{
    part_of_block p;
    p.split = blockIdx.x % plan.splits;
    p.tile_step = gridDim.x / plan.splits;
    p.first_tile = blockIdx.x / plan.splits;
    p.tiles = tile_count(&product);
    p.begin = p.split * (int64_t)plan.part;
    const int64_t left = product.in_features - p.begin;
    p.size = (int32_t)(left < plan.part ? left : plan.part);
    p.chunks = (p.size + plan.chunk - 1) / plan.chunk;
    p.x_row = 2 * plan.part + SKEW;
    return p;
}

/* Row `row` of a tile is which row of the weights; -1: none. */
static __device__ __forceinline__ int64_t weight_row(const matmul &p, int64_t tile, int row)
{
    if (p.result != MATMUL_GATE) {
        const int64_t r = tile * TILE + row;
        return r < p.out_features ? r : -1;
    }
    const int64_t half = p.out_features / 2, r = tile * (TILE / 2) + row % (TILE / 2);
    return r >= half ? -1 : row < TILE / 2 ? r : half + r;
}

/* An ordering warp: each of its first lanes copies one row of every tile. A chunk is ordered once its place is free and
 * the one `ahead` before it has come, so that no more bytes are under way than help. */
template <class T>
static __device__ __forceinline__ void order_weights(const struct few_tokens_plan &plan, const matmul &product,
                                                     const part_of_block &p, uint8_t *ring, uint64_t *full,
                                                     uint64_t *empty)
{
    const int lane = threadIdx.x % 32, row_bytes = 2 * plan.chunk + SKEW;
    const int row_of_tile = (threadIdx.x - MULTIPLIERS) / 32 * ORDERER_ROWS + lane;
    const uint64_t policy = evict_first_policy();
    ring_place at = {0, 0}, come = {0, 0};
    int under_way = 0;
    for (int64_t tile = p.first_tile; tile < p.tiles; tile += p.tile_step) {
        const int64_t row = lane < ORDERER_ROWS ? weight_row(product, tile, row_of_tile) : -1;
        const int rows = __popc(__ballot_sync(~0u, row >= 0));
        const T *from = (const T *)product.weight + row * product.in_features + p.begin;
        for (int chunk = 0; chunk < p.chunks; chunk++) {
            const int left = p.size - chunk * plan.chunk, columns = left < plan.chunk ? left : plan.chunk;
            if (under_way == plan.in_flight) {
                barrier_wait(&full[come.stage], come.round & 1);
                ring_step(come, plan.stages);
            } else {
                under_way++;
            }
            if (at.round > 0) barrier_wait(&empty[at.stage], (at.round - 1) & 1);
            if (lane == 0) barrier_arrive_expect(&full[at.stage], (uint32_t)(rows * columns * 2));
            __syncwarp();
            if (row >= 0)
                bulk_copy(ring + (at.stage * TILE + row_of_tile) * row_bytes, from + chunk * plan.chunk,
                          (uint32_t)columns * 2, &full[at.stage], policy);
            ring_step(at, plan.stages);
        }
    }
}

static __device__ __forceinline__ int gain_bytes(const matmul &p)
{
    return p.gain ? (int)p.in_features * (p.gain_is_float ? 4 : 2) : 0;
}

/* This part's columns of x, and the gains if there are any, into shared memory, by one warp. Gains are weights: they do
 * not wait for the kernels before. Two blocks of a cluster bring
 * every other token for both: the same x for every block is what the L2 cache is busiest with. */
static __device__ __forceinline__ void order_x(const matmul &product, int cluster, const part_of_block &p, uint8_t *x,
                                               uint8_t *gain, uint64_t *full)
{
    const int lane = threadIdx.x % 32;
    const uint64_t policy = evict_last_policy();
    if (lane == 0) {
        barrier_arrive_expect(full, (uint32_t)(product.num_tokens * p.size * 2 + gain_bytes(product)));
        if (product.gain) bulk_copy(gain, product.gain, gain_bytes(product), full, policy);
    }
    __syncwarp();
    wait_for_previous();
    if (lane >= product.num_tokens) return;
    const uint16_t *from = (const uint16_t *)product.x + lane * product.x_stride + p.begin;
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

/* rms_norm of x in shared memory, in place. Every block makes it for itself: that costs less than a kernel and its
 * round trip. Eight, four, two or one warps have a token. sums: [tokens, WARPS] of scratch. */
template <class T>
static __device__ __forceinline__ void norm_x(const matmul &product, uint8_t *x, int x_row, const uint8_t *gain,
                                              float *sums)
{
    const int pieces = (int)(product.in_features / 8), tokens = product.num_tokens;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warps = tokens == 1 ? 8 : tokens == 2 ? 4 : tokens <= 4 ? 2 : 1; /* of a token */
    const int first = warp % warps * 32 + lane;
    for (int token = warp / warps; token < tokens; token += WARPS / warps) {
        float sum = 0;
#pragma unroll 4
        for (int i = first; i < pieces; i += warps * 32) sum += square_sum<T>(*(uint4 *)(x + token * x_row + i * 16));
        for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
        if (lane == 0) sums[token * WARPS + warp % warps] = sum;
    }
    multipliers_sync();
    for (int token = warp / warps; token < tokens; token += WARPS / warps) {
        float sum = 0;
        for (int i = 0; i < warps; i++) sum += sums[token * WARPS + i];
        const float factor = rsqrtf(sum / (float)product.in_features + product.eps);
#pragma unroll 4
        for (int i = first; i < pieces; i += warps * 32) {
            uint4 *words = (uint4 *)(x + token * x_row + i * 16);
            *words = product.gain_is_float ? normalize<T>(*words, (const float *)gain + i * 8, factor)
                                           : normalize<T>(*words, (const T *)gain + i * 8, factor);
        }
    }
}

/* What a thread reads for its element of a tile's result, before the product is there: its biases, and what is added
 * to. 16 rows of at most 16 tokens: one element a thread. */
struct result_place {
    bool is_there;
    int token, row; /* of the tile */
    int64_t at;     /* in out */
    float bias, up_bias, before;
};

template <class T> static __device__ __forceinline__ result_place find_place(const matmul &p, int64_t tile)
{
    const int rows = p.result == MATMUL_GATE ? TILE / 2 : TILE;
    result_place place = {};
    place.token = threadIdx.x / rows;
    place.row = threadIdx.x % rows;
    const int64_t r = weight_row(p, tile, place.row);
    place.is_there = place.token < p.num_tokens && r >= 0;
    if (!place.is_there) return place;
    place.at = place.token * p.out_stride + r;
    if (p.bias) place.bias = to_float(((const T *)p.bias)[r]);
    if (p.bias && p.result == MATMUL_GATE) place.up_bias = to_float(((const T *)p.bias)[p.out_features / 2 + r]);
    if (p.result == MATMUL_ADD) place.before = to_float(((const T *)p.out)[place.at]);
    return place;
}

/* total(row of the tile) gives the sum of this token and a row. */
template <class T, class Total>
static __device__ __forceinline__ void write_result(const matmul &p, const result_place &place, Total total)
{
    if (!place.is_there) return;
    const float y = total(place.row) + place.bias;
    if (p.result == MATMUL_GATE) {
        const float up = total(place.row + TILE / 2) + place.up_bias;
        ((T *)p.out)[place.at] = from_float<T>(gate_times_up<T>(p.activation, y, up));
    } else if (p.result == MATMUL_ADD) {
        ((T *)p.out)[place.at] = from_float<T>(place.before + to_float(from_float<T>(y)));
    } else if (p.out_is_float) {
        ((float *)p.out)[place.at] = y;
    } else {
        ((T *)p.out)[place.at] = from_float<T>(y);
    }
}

/* The end of a tile: sums [WARPS, tokens, TILE] of the warps become results, or a part of them. */
template <class T, int GROUPS>
static __device__ __forceinline__ void finish_tile(const few_tokens_call &c, const part_of_block &p, int64_t tile,
                                                   const result_place &place, const float *sums, int *is_last)
{
    constexpr int COUNT = GROUPS * 8 * TILE;
    auto of_warps = [&](int i) {
        float total = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) total += sums[w * COUNT + i];
        return total;
    };
    const matmul &product = c.product;
    const int splits = c.plan.splits;
    if (splits == 1) {
        write_result<T>(product, place, [&](int row) { return of_warps(place.token * TILE + row); });
        return;
    }
    float *parts = c.partials + tile * splits * COUNT;
    for (int i = threadIdx.x; i < product.num_tokens * TILE; i += MULTIPLIERS)
        __stcg(&parts[p.split * COUNT + i], of_warps(i));
    __threadfence();
    multipliers_sync();
    if (threadIdx.x == 0) *is_last = atomicInc(&c.arrivals[tile], splits - 1) == (uint32_t)splits - 1;
    multipliers_sync();
    if (!*is_last) return;
    __threadfence();
    write_result<T>(product, place, [&](int row) {
        float total = 0;
        for (int s = 0; s < splits; s++) total += __ldcg(&parts[s * COUNT + place.token * TILE + row]);
        return total;
    });
}

/* One chunk's worth of products for this warp. stage: its 16 rows; x: the same columns of the tokens. */
template <class T, int GROUPS>
static __device__ __forceinline__ void multiply_chunk(float (&sum)[GROUPS][4], const uint8_t *stage, int stage_row,
                                                      const uint8_t *x, int x_row, int num_tokens, int chunk, int left)
{
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const uint4 zero = make_uint4(0, 0, 0, 0);
    const int begin = warp * (chunk / WARPS), end = begin + chunk / WARPS;
#pragma unroll 2
    for (int group = begin; group < end; group += 32) {
        const int column = group + 8 * t;
        const bool there = column < left;
        const uint4 low = there ? *(const uint4 *)(stage + g * stage_row + column * 2) : zero;
        const uint4 high = there ? *(const uint4 *)(stage + (g + 8) * stage_row + column * 2) : zero;
#pragma unroll
        for (int n = 0; n < GROUPS; n++) {
            const int token = 8 * n + g;
            const uint4 y = there && token < num_tokens ? *(const uint4 *)(x + token * x_row + column * 2) : zero;
            multiply<T>(sum[n], low.x, high.x, low.y, high.y, y.x, y.y);
            multiply<T>(sum[n], low.z, high.z, low.w, high.w, y.z, y.w);
        }
    }
}

template <class T, int GROUPS>
static __device__ __forceinline__ void multiply_tiles(const few_tokens_call &c, const part_of_block &p,
                                                      const uint8_t *ring, const uint8_t *x, float *sums, int *is_last,
                                                      uint64_t *full, uint64_t *empty)
{
    constexpr int COUNT = GROUPS * 8 * TILE;
    const matmul &product = c.product;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int stage_row = 2 * c.plan.chunk + SKEW;
    ring_place at = {0, 0};
    int side = 0;
    for (int64_t tile = p.first_tile; tile < p.tiles; tile += p.tile_step) {
        const result_place place = find_place<T>(product, tile);
        float sum[GROUPS][4] = {};
        for (int chunk = 0; chunk < p.chunks; chunk++) {
            const int begin = chunk * c.plan.chunk;
            barrier_wait(&full[at.stage], at.round & 1);
            multiply_chunk<T, GROUPS>(sum, ring + at.stage * TILE * stage_row, stage_row, x + begin * 2, p.x_row,
                                      product.num_tokens, c.plan.chunk, p.size - begin);
            __syncwarp();
            if (lane == 0) barrier_arrive(&empty[at.stage]);
            ring_step(at, c.plan.stages);
        }
        /* Two sides, so that one barrier a tile is enough: nobody writes a side before all have read it. */
        float *own = sums + (side * WARPS + warp) * COUNT;
#pragma unroll
        for (int n = 0; n < GROUPS; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) own[(8 * n + 2 * t + i % 2) * TILE + g + i / 2 * 8] = sum[n][i];
        multipliers_sync();
        finish_tile<T, GROUPS>(c, p, tile, place, sums + side * WARPS * COUNT, is_last);
        side ^= 1;
    }
}

#endif

/* Shared memory: ring, x, sums of the warps (two sides), gains; barriers. */
template <class T, int GROUPS>
static __global__ void __launch_bounds__(THREADS, GROUPS == 1 ? 2 : 1)
    few_tokens_kernel(const __grid_constant__ few_tokens_call c)
{
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) uint8_t ring[];
    __shared__ uint64_t full[MAX_STAGES], empty[MAX_STAGES], x_full;
    __shared__ int is_last;
    uint8_t *x = ring + c.plan.stages * TILE * (2 * c.plan.chunk + SKEW);
    float *sums = (float *)(x + c.plan.x_bytes);
    uint8_t *gain = (uint8_t *)(sums + 2 * WARPS * GROUPS * 8 * TILE);
    const part_of_block p = find_part(c.plan, c.product);
    let_next_start();
    if (threadIdx.x < c.plan.stages) {
        barrier_init(&full[threadIdx.x], ORDERERS);
        barrier_init(&empty[threadIdx.x], WARPS);
        if (threadIdx.x == 0) barrier_init(&x_full, 1);
        barrier_init_fence();
    }
    __syncthreads();
    if (c.plan.cluster > 1) cluster_arrive();
    if (threadIdx.x >= MULTIPLIERS) {
        order_weights<T>(c.plan, c.product, p, ring, full, empty);
        __syncwarp();
        if (c.plan.cluster > 1) cluster_wait();
        return;
    }
    if (c.plan.cluster > 1) cluster_wait(); /* the other block's barrier is there too */
    if (threadIdx.x < 32) order_x(c.product, c.plan.cluster, p, x, gain, &x_full);
    wait_for_previous();
    barrier_wait(&x_full, 0);
    if (c.product.gain) {
        norm_x<T>(c.product, x, p.x_row, gain, sums);
        multipliers_sync();
    }
    multiply_tiles<T, GROUPS>(c, p, ring, x, sums, &is_last, full, empty);
#endif
}

static int groups_of(int32_t num_tokens)
{
    return num_tokens <= 8 ? 1 : 2;
}

/* Whether the kernel can compute it on this device at all. */
static bool can_compute(const struct cuda_state *s, const struct matmul *p)
{
    const bool shape = p->num_tokens >= 1 && p->num_tokens <= FEW_TOKENS_MAX && p->in_features > 0 &&
                       p->in_features % 8 == 0 && p->in_features <= INT32_MAX / 64 && p->out_features > 0 &&
                       tile_count(p) <= INT32_MAX / 64;
    const bool types = p->dtype == DTYPE_FLOAT16 || p->dtype == DTYPE_BFLOAT16;
    const bool places = cuda_is_aligned(p->weight) && cuda_is_aligned(p->x) && p->x_stride % 8 == 0 &&
                        (!p->gain || cuda_is_aligned(p->gain));
    return s->compute_capability >= 90 && shape && types && places;
}

/* A plan of so many splits and columns a chunk; stages is 0 where it does not fit. */
static struct few_tokens_plan plan_of(const struct cuda_state *s, const struct matmul *p, int32_t splits, int32_t chunk)
{
    const int64_t sums = sum_count(groups_of(p->num_tokens)) * (int64_t)sizeof(float), tiles = tile_count(p);
    const int64_t room = s->max_shared_bytes - 1024; /* less what is not dynamic */
    const int64_t part = cuda_div_up(cuda_div_up(p->in_features, splits), chunk) * chunk;
    const int64_t x = p->num_tokens * (2 * part + SKEW),
                  gain = p->gain ? p->in_features * (p->gain_is_float ? 4 : 2) : 0;
    const int64_t fixed = x + 2 * WARPS * sums + gain;
    const int64_t blocks = s->num_sms / splits < tiles ? s->num_sms / splits : tiles;
    const int64_t most = cuda_div_up(tiles, blocks) * (part / chunk); /* a block's chunks in all */
    struct few_tokens_plan plan = {};
    if ((splits - 1) * part >= p->in_features) return plan;
    if (splits > 1 && (!s->regions[CUDA_USER_LINEAR].data || p->gain || tiles > MAX_SPLIT_TILES)) return plan;
    if (splits > 1 && tiles * splits * sums > PARTIAL_BYTES) return plan;
    int64_t stages = (room - fixed) / stage_bytes(chunk);
    if (stages < 2) return plan;
    if (stages > MAX_STAGES) stages = MAX_STAGES;
    if (stages > most) stages = most > 2 ? most : 2; /* what is left serves the next kernel's blocks */
    plan.splits = splits;
    plan.part = (int32_t)part;
    plan.chunk = chunk;
    plan.stages = (int32_t)stages;
    plan.in_flight = UNDER_WAY / (TILE * 2 * chunk);
    if (plan.in_flight > plan.stages) plan.in_flight = plan.stages;
    plan.blocks = (int32_t)blocks * splits;
    plan.cluster = splits == 1 && plan.blocks % 2 == 0 && p->num_tokens > 2 ? 2 : 1;
    plan.x_bytes = (int32_t)x;
    plan.shared_bytes = (int32_t)(plan.stages * stage_bytes(chunk) + fixed);
    return plan;
}

/* Large chunks are ordered sooner, small ones come more evenly: a block that has little to read takes large ones. */
bool few_tokens_plan(const struct cuda_state *s, const struct matmul *p, struct few_tokens_plan *out)
{
    if (!can_compute(s, p)) return false;
    const bool is_short = p->out_features * p->in_features * 2 < (int64_t)SHORT_BYTES * s->num_sms;
    *out = plan_of(s, p, 1, is_short ? 1024 : 512);
    if (out->stages >= 3) return true;
    for (int32_t splits = 1; splits <= 16 && out->stages < 4; splits *= 2) {
        const struct few_tokens_plan plan = plan_of(s, p, splits, 512);
        if (plan.stages > out->stages) *out = plan;
    }
    return out->stages >= 2;
}

template <class T, int GROUPS>
static void launch(struct backend *b, const char *operation, const struct few_tokens_call *call)
{
    const struct few_tokens_plan *plan = &call->plan;
    auto *kernel = few_tokens_kernel<T, GROUPS>;
    if (!cuda_allow_shared(b, operation, kernel, plan->shared_bytes)) return;
    cuda_launch_dependent(cuda_use(b), kernel, {dim3(plan->blocks), THREADS, plan->shared_bytes, plan->cluster}, *call);
    cuda_check_launch(b, operation);
}

template <class T>
static void launch_groups(struct backend *b, const char *operation, const struct few_tokens_call *call)
{
    if (groups_of(call->product.num_tokens) == 1) {
        launch<T, 1>(b, operation, call);
    } else {
        launch<T, 2>(b, operation, call);
    }
}

void few_tokens_launch(struct backend *b, const char *operation, const struct matmul *p,
                       const struct few_tokens_plan *plan)
{
    uint8_t *workspace = cuda_state(b)->regions[CUDA_USER_LINEAR].data;
    struct few_tokens_call call = {};
    call.product = *p;
    call.plan = *plan;
    if (workspace) {
        call.arrivals = (uint32_t *)workspace;
        call.partials = (float *)(call.arrivals + MAX_SPLIT_TILES);
    }
    if (p->dtype == DTYPE_FLOAT16) {
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
