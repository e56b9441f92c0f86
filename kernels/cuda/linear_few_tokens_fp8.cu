/* Matmuls of FP8 weights with few tokens on Hopper, without decoding: wgmma takes the weights as they are, and x as
 * e4m3, too. The cost is to read the weights once, at the speed of memory.
 *
 * x keeps its accuracy, because each element becomes two e4m3 numbers: x 2^k = high + low, where 2^k takes the largest
 * of 128 input features of a token to 128 or more. Both have four significant bits, so bfloat16 is exact, but for bits
 * that are 2^17 times smaller than that largest one. A step is 128 input features. In shared memory x has for each step
 * the rows of wgmma's second operand, in the 128-byte swizzle. It is copied to where its two rows are later:
 *
 *     step     row 0: token 0, high    row 1: token 0, low    row 2: token 1, high    ...
 *              (before: token 0, 128 elements of 16 bits)     (before: token 1)
 *
 * One warp copies weights into a ring in shared memory with the tensor copy engine, from before the previous kernel has
 * ended. Two warpgroups turn x into e4m3 and multiply. A stage of the ring has four boxes of up to 64 rows and one
 * step, and each warpgroup multiplies two of them. With MATMUL_GATE half of a box's rows are gates, and the others the
 * ups that belong to them.
 *
 * The sums of a step are multiplied by what belongs to the step, and are added in float32: wgmma adds e4m3 products
 * with 14 bits only. A large x is cut into two parts, for the two blocks of a cluster, which add their sums through
 * shared memory. */
#include <cuda_fp8.h>

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/linear_few_tokens_fp8.cuh"
#include "kernels/cuda/tensor_map.cuh"
#include "kernels/cuda/wgmma.cuh"

enum {
    STEP = 128, /* input features, and bytes of a row */
    BOX_ROWS = 64,
    GROUP = 128, /* threads of a warpgroup */
    MMA_THREADS = 2 * GROUP,
    PREPARE_THREADS = 2 * MMA_THREADS, /* the first half of them multiply then */
    THREADS = PREPARE_THREADS + 32,
    BOXES = 4, /* of a stage, which has as many steps */
    GROUP_BOXES = BOXES / 2,
    MAX_STAGES = 16,
    MIN_RING = 64 << 10,     /* bytes, unless everything fits into fewer */
    IN_FLIGHT = 64 << 10,    /* bytes in flight to each multiprocessor; more make reads slower */
    SUMS_ROW = BOX_ROWS + 8, /* floats; the padding puts the tokens of a warp into different banks */
    HALF_WARPS = PREPARE_THREADS / 16,
    UP_ROW = BOX_ROWS / 2, /* of a tile of MATMUL_GATE: the first row of up */
    HALF_EXPONENT = 22,    /* of a float16 from 128 to 255, with its bias */
    ALIGNMENT = 1024       /* of a box: the swizzle's period */
};

using element = __nv_bfloat16; /* of x and out */

struct fp8_call {
    CUtensorMap weight; /* in boxes of box_rows and a step */
    CUtensorMap x;      /* [steps, tokens, step] in boxes of x_steps, if it has whole steps; else of one */
    int32_t x_steps;
    struct matmul matmul;
    int32_t tiles, tile_rows, box_rows;
    int32_t splits;      /* parts of a tile: 1, or one for each block of a cluster */
    int32_t columns;     /* blocks of a part */
    int32_t part_stages; /* stages of a part; the last one may have fewer */
    int32_t all_stages;
    int32_t stages, in_flight, slot_bytes; /* of the ring; in_flight: the most stages that are being copied at a time */
    int32_t groups;                        /* of a row's scales */
    int32_t x_at, sums_at, scales_at, squares_at, gain_at, shared_bytes; /* in shared memory */
};

template <int N> static constexpr int SUMS = 2 * (N / 2) * SUMS_ROW; /* of both warpgroups */

/* Steps of a part of x. */
static inline __host__ __device__ int steps_of(const fp8_call &c)
{
    return c.part_stages * BOXES;
}

static inline __host__ __device__ int gain_bytes_of(const matmul &m)
{
    return m.gain ? (int)m.in_features * (m.gain_is_float ? 4 : 2) : 0;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* Output features of a tile: with MATMUL_GATE gates. */
static __device__ __forceinline__ int tile_features(const fp8_call &c)
{
    return c.matmul.result == MATMUL_GATE ? c.tile_rows / 2 : c.tile_rows;
}

struct fp8_ring {
    uint8_t *data;
    uint64_t *full, *empty;
};

/* A block's part: tiles first_tile, first_tile + columns, ..., and of each the stages [begin, begin + stages). */
struct fp8_part {
    int rank, first_tile, begin, stages;
};

static __device__ __forceinline__ fp8_part find_part(const fp8_call &c)
{
    fp8_part p;
    p.rank = blockIdx.x % c.splits;
    p.first_tile = blockIdx.x / c.splits;
    p.begin = p.rank * c.part_stages;
    p.stages = c.all_stages - p.begin < c.part_stages ? c.all_stages - p.begin : c.part_stages;
    return p;
}

static __device__ __forceinline__ uint64_t swizzled_descriptor(uint32_t address)
{
    return (uint64_t)(address >> 4) | (uint64_t)1 << 16 | (uint64_t)(8 * STEP >> 4) << 32 | (uint64_t)1 << 62;
}

static __device__ __forceinline__ void mma_threads_sync()
{
    asm volatile("bar.sync 1, %0;" ::"n"((int)MMA_THREADS) : "memory");
}

/* ---- the ring ---- */

/* The warp that copies: lane i copies box i of a stage; of MATMUL_GATE lanes BOXES + i the rows of up. */
static __device__ __forceinline__ void copy_weights(const fp8_call &c, const fp8_part &p, const fp8_ring &ring)
{
    const int lane = threadIdx.x % 32, box = lane % BOXES, stage_bytes = BOXES * c.slot_bytes;
    const bool gated = c.matmul.result == MATMUL_GATE, is_up = lane >= BOXES;
    const int boxes = gated ? 2 * BOXES : BOXES, up_row = is_up ? (int)(c.matmul.out_features / 2) : 0;
    const uint64_t policy = evict_first_policy();
    uint8_t *to = ring.data + box * c.slot_bytes + (is_up ? UP_ROW * STEP : 0);
    ring_place at = {0, 0}, arrived = {0, 0};
    int in_flight = 0;
    for (int tile = p.first_tile; tile < c.tiles; tile += c.columns) {
        const int row = tile * tile_features(c) + up_row;
#pragma unroll 1
        for (int i = 0; i < p.stages; i++) {
            if (in_flight == c.in_flight) {
                barrier_wait(&ring.full[arrived.stage], arrived.round & 1);
                ring_step(arrived, c.stages);
            } else {
                in_flight++;
            }
            if (at.round > 0) barrier_wait(&ring.empty[at.stage], (at.round - 1) & 1);
            if (lane == 0) barrier_arrive_expect(&ring.full[at.stage], boxes * c.box_rows * STEP);
            __syncwarp();
            if (lane < boxes)
                box_copy_2d(to + at.stage * stage_bytes, &c.weight, ((p.begin + i) * BOXES + box) * (STEP / 2), row,
                            &ring.full[at.stage], policy);
            ring_step(at, c.stages);
        }
    }
}

/* ---- x ---- */

static __device__ __forceinline__ void box_copy_3d(void *to, const CUtensorMap *map, int c0, int c1, int c2,
                                                   uint64_t *barrier)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(to)),
                 "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(shared_address(barrier))
                 : "memory");
}

/* A warp copies the part's steps of x, with zeros for tokens and input features that are not there, and the gains,
 * which do not wait for the previous kernel. */
template <int N>
static __device__ __forceinline__ void copy_x(const fp8_call &c, const fp8_part &p, uint8_t *x, uint8_t *gain,
                                              uint64_t *full)
{
    if (threadIdx.x == 0) {
        barrier_arrive_expect(full, steps_of(c) * N * STEP + gain_bytes_of(c.matmul));
        if (c.matmul.gain) bulk_copy(gain, c.matmul.gain, gain_bytes_of(c.matmul), full, evict_last_policy());
    }
    __syncwarp();
    wait_for_previous();
    for (int i = threadIdx.x * c.x_steps; i < steps_of(c); i += 32 * c.x_steps) {
        const int step = p.begin * BOXES + i;
        const bool whole = c.matmul.in_features % STEP == 0;
        box_copy_3d(x + i * N * STEP, &c.x, whole ? 0 : step * STEP, 0, whole ? step : 0, full);
    }
}

static __device__ __forceinline__ uint32_t to_e4m3(uint32_t pair)
{
    uint16_t out;
    asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(out) : "r"(pair));
    return out;
}

static __device__ __forceinline__ uint32_t from_e4m3(uint32_t pair)
{
    uint32_t out;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(out) : "h"((uint16_t)pair));
    return out;
}

template <class G> static __device__ __forceinline__ void load_eight(float (&out)[8], const G *from)
{
    G values[8];
#pragma unroll
    for (int i = 0; i < (int)sizeof values / 16; i++) ((uint4 *)values)[i] = ((const uint4 *)from)[i];
#pragma unroll
    for (int i = 0; i < 8; i++) out[i] = to_float(values[i]);
}

/* Eight elements of x times their gains, rounded, and their squares before. */
static __device__ __forceinline__ uint4 apply_gains(uint4 words, const float (&gains)[8], float &square)
{
    uint32_t *w = (uint32_t *)&words;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float low = __uint_as_float(w[i] << 16), high = __uint_as_float(w[i] & 0xffff0000);
        const __nv_bfloat162 out = __floats2bfloat162_rn(low * gains[2 * i], high * gains[2 * i + 1]);
        square += low * low + high * high;
        w[i] = *(const uint32_t *)&out;
    }
    return words;
}

/* The exponents, with their bias, of the largest of 128 bfloat16, of which 16 lanes have eight each: of COUNT tokens.
 */
template <int COUNT>
static __device__ __forceinline__ void find_exponents(uint32_t (&exponents)[COUNT], const uint4 (&words)[COUNT])
{
    constexpr uint32_t SIZE = 0x7fff7fff;
#pragma unroll
    for (int t = 0; t < COUNT; t++)
        exponents[t] = __vimax3_s16x2(__vimax3_s16x2(words[t].x & SIZE, words[t].y & SIZE, words[t].z & SIZE),
                                      words[t].w & SIZE, 0);
#pragma unroll
    for (int offset = 8; offset > 0; offset /= 2)
#pragma unroll
        for (int t = 0; t < COUNT; t++)
            exponents[t] = __vimax3_s16x2(exponents[t], __shfl_xor_sync(~0u, exponents[t], offset), 0);
#pragma unroll
    for (int t = 0; t < COUNT; t++)
        exponents[t] = max(max(exponents[t] & 0xffff, exponents[t] >> 16) >> 7, (uint32_t)HALF_EXPONENT);
}

/* Makes two e4m3 of each of eight bfloat16. As float16 one with the exponent of the largest has the exponent 7, so it
 * is below 256, and what is lost is 2^17 times smaller. */
static __device__ __forceinline__ void split_eight(const uint4 &words, uint32_t exponent, uint2 &high, uint2 &low)
{
    const uint32_t *w = (const uint32_t *)&words;
    const uint32_t minus = ((HALF_EXPONENT - exponent) << 7 & 0xffff) * 0x10001;
    uint32_t h[4], l[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t half = __viaddmax_s16x2(w[i] & 0x7fff7fff, minus, 0) << 3 | (w[i] & 0x80008000);
        h[i] = to_e4m3(half);
        const uint32_t back = from_e4m3(h[i]);
        const __half2 rest = __hsub2(*(const __half2 *)&half, *(const __half2 *)&back);
        l[i] = to_e4m3(*(const uint32_t *)&rest);
    }
    high = make_uint2(h[0] | h[1] << 16, h[2] | h[3] << 16);
    low = make_uint2(l[0] | l[1] << 16, l[2] | l[3] << 16);
}

/* Makes e4m3 of the x in shared memory, in place: each half warp takes steps, and AT_ONCE tokens at a time. scales:
 * [steps, tokens], of the sums; squares: [half warps, tokens], of the elements before their gains. */
template <int N, int AT_ONCE>
static __device__ __forceinline__ void convert_x(const fp8_call &c, const fp8_part &p, uint8_t *x, const uint8_t *gain,
                                                 float *scales, float *squares)
{
    constexpr int TOKENS = N / 2;
    const int lane = threadIdx.x % 16, half_warp = threadIdx.x / 16;
    const matmul &m = c.matmul;
    float square[TOKENS] = {};
#pragma unroll 1
    for (int first_step = threadIdx.x / 32 * 2; first_step < steps_of(c); first_step += HALF_WARPS) {
        const int step = first_step + half_warp % 2; /* there are an even number of steps */
        float g[8] = {};
        const int feature = (p.begin * BOXES + step) * STEP + 8 * lane;
        if (m.gain && feature < m.in_features) {
            if (m.gain_is_float) {
                load_eight(g, (const float *)gain + feature);
            } else {
                load_eight(g, (const element *)gain + feature);
            }
        }
#pragma unroll
        for (int first = 0; first < TOKENS; first += AT_ONCE) {
            if (first >= m.num_tokens) break;
            uint8_t *rows = x + (step * TOKENS + first) * 2 * STEP;
            uint4 words[AT_ONCE];
#pragma unroll
            for (int t = 0; t < AT_ONCE; t++) words[t] = *(const uint4 *)(rows + t * 2 * STEP + 16 * lane);
            if (m.gain)
#pragma unroll
                for (int t = 0; t < AT_ONCE; t++) words[t] = apply_gains(words[t], g, square[first + t]);
            uint32_t exponents[AT_ONCE];
            uint2 high[AT_ONCE], low[AT_ONCE];
            find_exponents(exponents, words);
#pragma unroll
            for (int t = 0; t < AT_ONCE; t++) split_eight(words[t], exponents[t], high[t], low[t]);
            __syncwarp();
#pragma unroll
            for (int t = 0; t < AT_ONCE; t++) {
                uint8_t *row = rows + t * 2 * STEP + lane % 2 * 8;
                const int swizzle = 2 * (first + t) % 8;
                *(uint2 *)(row + (lane / 2 ^ swizzle) * 16) = high[t];
                *(uint2 *)(row + STEP + (lane / 2 ^ (swizzle + 1)) * 16) = low[t];
                if (lane == 0)
                    scales[step * TOKENS + first + t] =
                        __uint_as_float(exponents[t] == 255 ? 0x7fc00000 : (exponents[t] - 7) << 23);
            }
        }
    }
    if (!m.gain) return;
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
#pragma unroll
        for (int offset = 8; offset > 0; offset /= 2) square[t] += __shfl_xor_sync(~0u, square[t], offset);
        if (lane == 0) squares[half_warp * TOKENS + t] = square[t];
    }
}

/* ---- the matmul ---- */

/* The sums of a warpgroup over a stage, into total[n8 of tokens][row g, g + 8]. scales: of the stage's first step. */
template <int N>
static __device__ __forceinline__ void multiply_stage(float (&total)[N / 8][2], const fp8_call &c, uint32_t weights,
                                                      uint32_t x, const float *scales, const float *const (&of_rows)[2],
                                                      int step)
{
    float sum[GROUP_BOXES][N / 2];
    wgmma_begin();
#pragma unroll
    for (int b = 0; b < GROUP_BOXES; b++) {
        const uint64_t first = swizzled_descriptor(weights + b * c.slot_bytes),
                       second = swizzled_descriptor(x + b * N * STEP);
#pragma unroll
        for (int k = 0; k < 4; k++) wgmma_e4m3<N>(sum[b], first + 2 * k, second + 2 * k, k > 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
#pragma unroll
    for (int b = 0; b < GROUP_BOXES; b++) {
        wgmma_pin(sum[b]);
        float factors[2] = {1, 1};
        if (c.groups > 1) factors[0] = of_rows[0][step + b], factors[1] = of_rows[1][step + b];
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
            const float scale = scales[b * (N / 2) + 4 * n + threadIdx.x % 4];
            const float *s = sum[b] + 4 * n;
            total[n][0] += scale * factors[0] * (s[0] + s[1]);
            total[n][1] += scale * factors[1] * (s[2] + s[3]);
        }
    }
}

/* An element of a tile's result that a thread stores, and what it reads for that before the sum is there. */
struct fp8_place {
    bool is_there;
    int token, row; /* of the tile */
    int64_t at;     /* in out */
    float bias, up_bias, before, scale, up_scale;
};

static __device__ __forceinline__ fp8_place find_place(const fp8_call &c, int tile, int i)
{
    const matmul &m = c.matmul;
    const bool gated = m.result == MATMUL_GATE;
    const int rows = tile_features(c), features = (int)(gated ? m.out_features / 2 : m.out_features);
    fp8_place place = {};
    place.token = i / rows;
    place.row = i - place.token * rows;
    const int o = tile * rows + place.row;
    place.is_there = place.token < m.num_tokens && o < features;
    if (!place.is_there) return place;
    place.at = place.token * m.out_stride + o;
    place.scale = c.groups > 1 ? 1 : ((const float *)m.scales)[o / m.scale_rows];
    if (gated) place.up_scale = c.groups > 1 ? 1 : ((const float *)m.scales)[(features + o) / m.scale_rows];
    if (m.bias) place.bias = to_float(((const element *)m.bias)[o]);
    if (m.bias && gated) place.up_bias = to_float(((const element *)m.bias)[features + o]);
    if (m.result == MATMUL_ADD) place.before = to_float(((const element *)m.out)[place.at]);
    return place;
}

/* The sum of a row over the warpgroups and the blocks of the cluster. */
template <int N>
static __device__ __forceinline__ float total_of(const fp8_call &c, const float *sums, int token, int row)
{
    const float *first = sums + token * SUMS_ROW + row, *second = first + (N / 2) * SUMS_ROW;
    if (c.splits == 1) return *first + *second;
    float total = 0;
    for (int rank = 0; rank < c.splits; rank++)
        total += cluster_load(cluster_address(first, rank)) + cluster_load(cluster_address(second, rank));
    return total;
}

template <int N>
static __device__ __forceinline__ void write_place(const fp8_call &c, const fp8_place &place, const float *sums,
                                                   const float *norms)
{
    const matmul &m = c.matmul;
    const float norm = m.gain ? norms[place.token] : 1;
    const float y = total_of<N>(c, sums, place.token, place.row) * (place.scale * norm) + place.bias;
    if (m.result == MATMUL_GATE) {
        const float up =
            total_of<N>(c, sums, place.token, UP_ROW + place.row) * (place.up_scale * norm) + place.up_bias;
        ((element *)m.out)[place.at] = from_float<element>(gate_times_up<element>(m.activation, y, up));
    } else if (m.result == MATMUL_ADD) {
        ((element *)m.out)[place.at] = from_float<element>(place.before + to_float(from_float<element>(y)));
    } else if (m.out_is_float) {
        ((float *)m.out)[place.at] = y;
    } else {
        ((element *)m.out)[place.at] = from_float<element>(y);
    }
}

/* Tells both blocks of the cluster that this block's sums are there. */
static __device__ __forceinline__ void arrive_at_all(uint64_t *barrier)
{
    for (int rank = 0; rank < 2; rank++)
        asm volatile(
            "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];\n" ::"r"(cluster_address(barrier, rank))
            : "memory");
}

static __device__ __forceinline__ void wait_for_cluster(uint64_t *barrier, uint32_t parity)
{
    asm volatile("{\n.reg .pred p;\nagain:\n"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n@!p bra again;\n}\n" ::"r"(
                     shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

/* The scales of the groups of a thread's two rows, if scales are of groups. */
static __device__ __forceinline__ void find_group_scales(const float *(&of_rows)[2], const fp8_call &c, int tile)
{
    const matmul &m = c.matmul;
    const bool gated = m.result == MATMUL_GATE;
    const int features = (int)m.out_features;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = threadIdx.x % GROUP / 32 * 16 + threadIdx.x % 32 / 4 + 8 * i;
        int o = tile * tile_features(c) + (gated ? row % UP_ROW : row);
        if (gated && row >= UP_ROW) o += features / 2;
        if (o >= features) o = features - 1;
        of_rows[i] = (const float *)m.scales + (int64_t)(o / (int)m.scale_rows) * c.groups;
    }
}

/* The warpgroups that multiply. sums: two sets, used in turn, so that one barrier for each tile is enough. */
template <int N>
static __device__ __forceinline__ void multiply_tiles(const fp8_call &c, const fp8_part &p, const fp8_ring &ring,
                                                      const uint8_t *x, const float *scales, float *all_sums,
                                                      const float *norms, uint64_t *sums_full)
{
    const int group = threadIdx.x / GROUP, row = threadIdx.x % GROUP / 32 * 16 + threadIdx.x % 32 / 4;
    const int first_step = group * GROUP_BOXES;
    const int elements = c.matmul.num_tokens * tile_features(c);
    const uint32_t first_weights = shared_address(ring.data) + group * GROUP_BOXES * c.slot_bytes;
    const uint32_t first_x = shared_address(x) + first_step * N * STEP;
    const float *of_rows[2] = {};
    ring_place at = {0, 0};
    uint32_t side = 0, round = 0;
    for (int tile = p.first_tile; tile < c.tiles; tile += c.columns) {
        const fp8_place place = find_place(c, tile, threadIdx.x + p.rank * MMA_THREADS);
        float total[N / 8][2] = {}, *sums = all_sums + side * SUMS<N>;
        if (c.groups > 1) find_group_scales(of_rows, c, tile);
#pragma unroll 1
        for (int i = 0; i < p.stages; i++) {
            const int step = i * BOXES;
            barrier_wait(&ring.full[at.stage], at.round & 1);
            multiply_stage<N>(total, c, first_weights + at.stage * BOXES * c.slot_bytes, first_x + step * N * STEP,
                              scales + (step + first_step) * (N / 2), of_rows, p.begin * BOXES + step + first_step);
            if (threadIdx.x % 32 == 0) barrier_arrive(&ring.empty[at.stage]);
            ring_step(at, c.stages);
        }
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                sums[(group * (N / 2) + 4 * n + threadIdx.x % 4) * SUMS_ROW + row + 8 * i] = total[n][i];
        mma_threads_sync();
        if (c.splits > 1) {
            if (threadIdx.x == 0) arrive_at_all(&sums_full[side]);
            wait_for_cluster(&sums_full[side], round);
        }
        if (place.is_there) write_place<N>(c, place, sums, norms);
        for (int i = threadIdx.x + (p.rank + c.splits) * MMA_THREADS; i < elements; i += c.splits * MMA_THREADS) {
            const fp8_place next = find_place(c, tile, i);
            if (next.is_there) write_place<N>(c, next, sums, norms);
        }
        side ^= 1;
        round ^= side == 0;
    }
}

/* The factors of rms_norm. */
template <int N>
static __device__ __forceinline__ void find_norms(const fp8_call &c, const float *squares, float *norms)
{
    if (!c.matmul.gain || (int)threadIdx.x >= N / 2) return;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < HALF_WARPS; i++) sum += squares[i * (N / 2) + threadIdx.x];
    norms[threadIdx.x] = rsqrtf(sum / (float)c.matmul.in_features + c.matmul.eps);
}

/* The threads that prepare x, and multiply. */
template <int N>
static __device__ __forceinline__ void multiply(const fp8_call &c, const fp8_part &p, const fp8_ring &ring,
                                                uint8_t *data, uint64_t *x_full, uint64_t *sums_full, float *norms)
{
    uint8_t *x = data + c.x_at, *gain = data + c.gain_at;
    float *scales = (float *)(data + c.scales_at), *squares = (float *)(data + c.squares_at);
    if (threadIdx.x < 32) copy_x<N>(c, p, x, gain, x_full);
    wait_for_previous();
    barrier_wait(x_full, 0);
    if (c.matmul.num_tokens == 1) {
        convert_x<N, 1>(c, p, x, gain, scales, squares);
    } else {
        convert_x<N, 4>(c, p, x, gain, scales, squares);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); /* for wgmma */
    if (c.splits > 1) cluster_wait();                            /* the other block has initialized its barriers */
    asm volatile("bar.sync 2, %0;" ::"n"((int)PREPARE_THREADS) : "memory");
    if (threadIdx.x >= MMA_THREADS) return;
    find_norms<N>(c, squares, norms);
    multiply_tiles<N>(c, p, ring, x, scales, (float *)(data + c.sums_at), norms, sums_full);
}

#endif

template <int N>
static __global__ void __launch_bounds__(THREADS, 1) few_tokens_fp8_kernel(const __grid_constant__ fp8_call c)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ uint8_t shared[];
    __shared__ uint64_t full[MAX_STAGES], empty[MAX_STAGES], x_full, sums_full[2];
    __shared__ float norms[N / 2];
    uint8_t *data = shared + (-shared_address(shared) & (ALIGNMENT - 1));
    const fp8_ring ring = {data, full, empty};
    const fp8_part p = find_part(c);
    let_next_start();
    if (threadIdx.x < MAX_STAGES) {
        barrier_init(&full[threadIdx.x], 1);
        barrier_init(&empty[threadIdx.x], MMA_THREADS / 32);
        if (threadIdx.x < 2) barrier_init(&sums_full[threadIdx.x], 2);
        if (threadIdx.x == 0) barrier_init(&x_full, 1);
        barrier_init_fence();
    }
    __syncthreads();
    if (c.splits > 1) cluster_arrive();
    if (threadIdx.x < PREPARE_THREADS) {
        multiply<N>(c, p, ring, data, &x_full, sums_full, norms);
    } else {
        copy_weights(c, p, ring);
        __syncwarp();
        if (c.splits > 1) cluster_wait();
    }
    if (c.splits > 1) { /* waits until the other block does not read this block's sums any more */
        __syncwarp();
        cluster_arrive_relaxed();
        cluster_wait();
    }
#endif
}

/* ---- the host's side ---- */

/* Columns of x as e4m3. */
static int columns_of(const struct matmul *m)
{
    return m->num_tokens <= 4 ? 8 : 16;
}

/* Shared memory, with the longest ring that fits. False: it is too short. */
static bool lay_out(const struct cuda_state *s, struct fp8_call *c)
{
    const int n = columns_of(&c->matmul), steps = steps_of(*c), stage = BOXES * c->slot_bytes;
    const int64_t x = (int64_t)steps * n * STEP, sums = 2 * (n == 8 ? SUMS<8> : SUMS<16>)*(int64_t)sizeof(float);
    const int64_t scales = steps * n / 2 * (int64_t)sizeof(float);
    const int64_t squares = HALF_WARPS * n / 2 * (int64_t)sizeof(float), gain = gain_bytes_of(c->matmul);
    const int64_t room = (int64_t)s->max_shared_bytes - 1024 - ALIGNMENT - x - sums - scales - squares - gain;
    const int64_t all = c->part_stages * cuda_div_up(c->tiles, c->columns);
    int64_t stages = room > 0 ? room / stage : 0;
    if (stages < 2 || (stages < all && stages * stage < MIN_RING)) return false;
    if (stages > MAX_STAGES) stages = MAX_STAGES;
    if (stages > all) stages = all > 2 ? all : 2; /* the rest of shared memory is for the next kernel's blocks */
    c->stages = (int32_t)stages;
    c->x_at = (int32_t)stages * stage;
    c->sums_at = (int32_t)(c->x_at + x);
    c->scales_at = (int32_t)(c->sums_at + sums);
    c->squares_at = (int32_t)(c->scales_at + scales);
    c->gain_at = (int32_t)(c->squares_at + squares);
    c->shared_bytes = (int32_t)(ALIGNMENT + c->gain_at + gain);
    return true;
}

/* With tiles in so many parts, of a size that gives all blocks the same to do. False: x does not fit. */
static bool plan_with(const struct cuda_state *s, int splits, struct fp8_call *c)
{
    const struct matmul *m = &c->matmul;
    const bool gated = m->result == MATMUL_GATE;
    const int64_t places = s->num_sms / splits;
    const int64_t rounds = cuda_div_up(cuda_div_up(m->out_features, BOX_ROWS), places);
    c->splits = splits;
    c->tile_rows = (int32_t)cuda_div_up(cuda_div_up(m->out_features, rounds * places), 8) * 8;
    c->tiles = (int32_t)cuda_div_up(m->out_features, c->tile_rows);
    c->columns = c->tiles < places ? c->tiles : (int32_t)places;
    c->box_rows = gated ? c->tile_rows / 2 : c->tile_rows;
    c->slot_bytes = (gated ? BOX_ROWS : c->box_rows) * STEP;
    c->all_stages = (int32_t)cuda_div_up(m->in_features, BOXES * STEP);
    c->part_stages = (int32_t)cuda_div_up(c->all_stages, splits);
    if ((splits - 1) * c->part_stages >= c->all_stages || !lay_out(s, c)) return false;
    c->in_flight = (int32_t)cuda_div_up(IN_FLIGHT, BOXES * c->tile_rows * STEP);
    if (c->in_flight > c->stages) c->in_flight = c->stages;
    return true;
}

/* An x that leaves too little for the ring is cut into two parts, but the norm needs all of it. */
static bool plan(const struct cuda_state *s, struct fp8_call *c)
{
    const int64_t x = c->matmul.in_features * columns_of(&c->matmul);
    const bool is_large = x > (columns_of(&c->matmul) == 8 ? 72 << 10 : 116 << 10);
    return c->matmul.gain || !is_large ? plan_with(s, 1, c) : plan_with(s, 2, c);
}

template <int N> static void launch(struct backend *b, const char *operation, const struct fp8_call *call)
{
    auto *kernel = few_tokens_fp8_kernel<N>;
    const struct cuda_state *s = cuda_use(b);
    const dim3 blocks(call->columns * call->splits);
    if (!cuda_allow_shared(b, operation, kernel, call->shared_bytes)) return;
    cuda_launch_dependent(s, kernel, {blocks, THREADS, call->shared_bytes, call->splits}, *call);
    cuda_check_launch(b, operation);
}

static bool takes(struct backend *b, const struct matmul *m)
{
    const bool format = m->format == WEIGHT_FP8 && m->scale_dtype == DTYPE_FLOAT32 &&
                        (m->group_size >= m->in_features || m->group_size == STEP);
    const bool shape = m->num_tokens >= 1 && m->num_tokens <= FEW_TOKENS_FP8_MAX && m->in_features > 0 &&
                       m->in_features % 16 == 0 && m->in_features <= INT32_MAX / 64 && m->out_features > 0 &&
                       m->out_features <= INT32_MAX / 64;
    const bool aligned = cuda_is_aligned(m->weight) && cuda_is_aligned(m->x) && m->x_stride % 8 == 0 &&
                         (!m->gain || cuda_is_aligned(m->gain));
    return cuda_state(b)->has_wgmma && m->dtype == DTYPE_BFLOAT16 && format && shape && aligned;
}

/* The weight's bytes count as 16-bit elements. */
static bool map_operands(struct fp8_call *c)
{
    const struct matmul *m = &c->matmul;
    const struct tensor_map_args weight = {m->weight,
                                           2,
                                           {m->in_features / 2, m->out_features},
                                           {m->in_features / 2},
                                           {STEP / 2, c->box_rows},
                                           CU_TENSOR_MAP_SWIZZLE_128B,
                                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B};
    const bool whole = m->in_features % STEP == 0;
    c->x_steps = whole ? steps_of(*c) : 1;
    const struct tensor_map_args x = {
        m->x,
        3,
        {whole ? (int64_t)STEP : m->in_features, m->num_tokens, whole ? m->in_features / STEP : 1},
        {m->x_stride, STEP},
        {STEP, columns_of(m) / 2, c->x_steps},
        CU_TENSOR_MAP_SWIZZLE_NONE,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B};
    return tensor_map_encode(&c->weight, &weight) && tensor_map_encode(&c->x, &x);
}

bool few_tokens_fp8(struct backend *b, const char *operation, const struct matmul *m)
{
    struct fp8_call call = {};
    call.matmul = *m;
    call.groups = (int32_t)cuda_div_up(m->in_features, m->group_size);
    if (!takes(b, m) || !plan(cuda_state(b), &call) || !map_operands(&call)) return false;
    if (columns_of(m) == 8) {
        launch<8>(b, operation, &call);
    } else {
        launch<16>(b, operation, &call);
    }
    return true;
}
