/* Matmuls of FP8 and INT4 weights with few tokens on Hopper: wgmma takes weights and x as e4m3. The cost is to read the
 * weights once, at the speed of memory.
 *
 * FP8 weights stay in shared memory as they are. A byte from 0 to 15 is an e4m3, too, 2^-9 times that number, so INT4
 * becomes e4m3 by a mask, in registers. The zeros are subtracted from the sums:
 *
 *     sum of (weight - zero) x = sum of weight x - zero * sum of x
 *
 * x keeps its accuracy, because each element becomes two or three e4m3 numbers (few_tokens_e4m3.cuh). In shared memory
 * x has for each step of 128 input features the rows of wgmma's second operand, in the 128-byte swizzle.
 *
 * One warp copies weights into a ring in shared memory with the tensor copy engine, from before the previous kernel has
 * ended. Two more warps load the scales and zeros of INT4 for the ring, and those of FP8 if a row has several. Four
 * warpgroups turn x into e4m3, and two or all of them multiply. A stage of the ring has four boxes of up to 64 rows of
 * 128 bytes, of which each warpgroup multiplies its share. With MATMUL_GATE half of a box's rows are gates, and the
 * others the ups that belong to them.
 *
 * The sums of a step are multiplied by what belongs to the step, and are added in float32: wgmma adds e4m3 products
 * with 14 bits only. A large x is cut into two parts, for the two blocks of a cluster, which add their sums through
 * shared memory.
 *
 * A few rows of floats that have the same input (cuda_linear_parts) are multiplied by blocks of their own, a row by a
 * warp, while the others go through the weights. */
#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/matmul/epilogue.cuh"
#include "kernels/cuda/matmul/few_tokens_e4m3.cuh"
#include "kernels/cuda/matmul/kernels.cuh"
#include "kernels/cuda/matmul/quantized.cuh"
#include "kernels/cuda/tensor_map.cuh"
#include "kernels/cuda/warp.cuh"
#include "kernels/cuda/wgmma.cuh"

enum {
    GROUP = 128, /* threads of a warpgroup */
    PREPARE_THREADS = 16 * HALF_WARPS,
    SCALE_THREADS = BOX_ROWS,
    COPY_THREADS = 32,
    MAX_THREADS = PREPARE_THREADS + COPY_THREADS + SCALE_THREADS,
    UP_ROW = BOX_ROWS / 2,              /* of a tile of MATMUL_GATE: the first row of up */
    BESIDE_ROWS = PREPARE_THREADS / 32, /* rows of floats of a block */
    MOST_BESIDE = 8                     /* blocks: more would take too many multiprocessors from the others */
};

struct few_maps {
    CUtensorMap weight; /* in boxes of `features` rows and a step */
    CUtensorMap x; /* [steps, tokens, 1, step], or [1, tokens, 1, in_features] if those are not whole steps; in boxes
                      of x_steps, all tokens and their places, and a step */
};
struct few_call : few_maps, few_tokens_wgmma_layout {
};

template <class T> static constexpr int PLACES = places_of(std::is_same_v<T, __half> ? DTYPE_FLOAT16 : DTYPE_BFLOAT16);

/* Sums to which the wgmmas of a step add in turn, because each waits for the one before with the same sums. Two take
 * too many registers with 16 columns. */
template <int N> static constexpr int CHAINS = N == 8 ? 2 : 1;

template <enum weight_format FORMAT> static constexpr int STAGE_STEPS = BOXES *box_steps_of(FORMAT);

/* The warpgroups that multiply, what each has of a stage, and the floats of all their sums. */
template <enum weight_format FORMAT, int N> struct few_tiling {
    static constexpr int MMA_GROUPS = mma_groups_of(FORMAT, N), MMA_THREADS = MMA_GROUPS * GROUP;
    static constexpr int GROUP_BOXES = BOXES / MMA_GROUPS, GROUP_STEPS = GROUP_BOXES * box_steps_of(FORMAT);
    static constexpr int SUMS = sums_of(FORMAT, N);
    static_assert(sizeof(step_factors<FORMAT>) == scale_bytes_of(FORMAT), "the layout has room for them");
};

template <enum weight_format FORMAT> static constexpr int STAGE_SCALES = STAGE_STEPS<FORMAT> *BOX_ROWS;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

struct weight_ring {
    uint8_t *data, *scales; /* scales: [stages, steps of a stage, BOX_ROWS], if has_stage_scales */
    uint64_t *full, *empty;
};

/* A block's part: tiles first_tile, first_tile + columns, ..., and of each the stages [begin, begin + stages). */
struct few_part {
    int rank, first_tile, begin, stages;
};

static __device__ __forceinline__ few_part find_part(const few_call &c)
{
    few_part p;
    p.rank = blockIdx.x % c.splits;
    p.first_tile = blockIdx.x / c.splits;
    p.begin = p.rank * c.part_stages;
    p.stages = c.all_stages - p.begin < c.part_stages ? c.all_stages - p.begin : c.part_stages;
    return p;
}

template <int MMA_THREADS> static __device__ __forceinline__ void mma_threads_sync()
{
    asm volatile("bar.sync 1, %0;" ::"n"(MMA_THREADS) : "memory");
}

/* ---- the ring ---- */

/* The whole pieces of 16 bytes of `count` rows of row_bytes. */
static __device__ __forceinline__ void prefetch_rows(const void *rows, int64_t row_bytes, int first, int count)
{
    const uintptr_t begin = ((uintptr_t)rows + first * row_bytes + 15) & ~(uintptr_t)15;
    const uintptr_t end = ((uintptr_t)rows + (first + count) * row_bytes) & ~(uintptr_t)15;
    if (begin < end) bulk_prefetch((const void *)begin, (uint32_t)(end - begin));
}

/* The scales and zeros of a tile into the L2 cache, by lane 0, and those of up by lane 1. */
static __device__ __forceinline__ void prefetch_scales(const few_call &c, int tile)
{
    const matmul &m = c.matmul;
    const int lane = threadIdx.x % 32, lanes = m.result == MATMUL_GATE ? 2 : 1;
    const int features = (int)m.out_features / lanes, first = tile * c.features;
    const int count = min(c.features, features - first);
    if (lane >= lanes) return;
    prefetch_rows(m.scales, c.groups * c.scale_bytes, lane * features + first, count);
    if (m.zeros) prefetch_rows(m.zeros, c.groups, lane * features + first, count);
}

/* The warp that copies: lane i copies box i of a stage; of MATMUL_GATE lanes BOXES + i the rows of up. */
template <enum weight_format FORMAT>
static __device__ __forceinline__ void copy_weights(const few_call &c, const few_part &p, const weight_ring &ring)
{
    const int lane = threadIdx.x % 32, box = lane % BOXES, stage_bytes = BOXES * c.slot_bytes;
    const bool gated = c.matmul.result == MATMUL_GATE, is_up = lane >= BOXES;
    const int boxes = gated ? 2 * BOXES : BOXES, up_row = is_up ? (int)(c.matmul.out_features / 2) : 0;
    const uint64_t policy = evict_first_policy();
    uint8_t *to = ring.data + box * c.slot_bytes + (is_up ? UP_ROW * BOX_ROW : 0);
    ring_filler filler = {};
    const bool prefetches = FORMAT == WEIGHT_INT4 && p.rank == 0;
    for (int tile = p.first_tile; tile < c.tiles; tile += c.columns) {
        const int row = tile * c.features + up_row, next = tile + c.columns;
        if (prefetches && next < c.tiles) prefetch_scales(c, next);
#pragma unroll 1
        for (int i = 0; i < p.stages; i++) {
            const int stage = filler.next.stage;
            ring_wait_empty(filler, ring.full, ring.empty, c.stages, c.in_flight);
            if (lane == 0) barrier_arrive_expect(&ring.full[stage], boxes * c.features * BOX_ROW);
            __syncwarp();
            if (lane < boxes)
                box_copy_2d(to + stage * stage_bytes, &c.weight, ((p.begin + i) * BOXES + box) * (BOX_ROW / 2), row,
                            &ring.full[stage], policy);
            ring_step(filler.next, c.stages);
        }
    }
}

/* The output feature of a row of a tile; one that exists. */
static __device__ __forceinline__ int feature_of(const few_call &c, int tile, int row)
{
    const bool gated = c.matmul.result == MATMUL_GATE;
    const int features = (int)c.matmul.out_features;
    int o = tile * c.features + (gated ? row % UP_ROW : row);
    if (gated && row >= UP_ROW) o += features / 2;
    return o >= features ? features - 1 : o;
}

/* A row's scales and zeros of a stage as they lie in memory: eight 16-bit scales in four words, or one in each word. */
struct raw_scales {
    uint32_t words[8];
    uint2 zeros;
};

/* Loads those of a stage of the part. A stage may go beyond the last group, where x is zero. */
template <enum weight_format FORMAT>
static __device__ __forceinline__ raw_scales load_scales(const few_call &c, const few_part &p, int tile, int stage)
{
    const matmul &m = c.matmul;
    const int feature = feature_of(c, tile, threadIdx.x % SCALE_THREADS);
    const int64_t first = (int64_t)(FORMAT == WEIGHT_INT4 ? feature : feature / (int)m.scale_rows) * c.groups;
    const int step = (p.begin + stage) * STAGE_STEPS<FORMAT>;
    raw_scales raw = {{}, {0x08080808, 0x08080808}};
    if (c.loads_eight) {
        *(uint4 *)raw.words = *(const uint4 *)((const uint16_t *)m.scales + first + step);
        if (m.zeros) raw.zeros = *(const uint2 *)(m.zeros + first + step);
        return raw;
    }
    uint32_t zeros[2] = {};
#pragma unroll
    for (int k = 0; k < STAGE_STEPS<FORMAT>; k++) {
        const int64_t at = first + min((step + k) / c.group_steps, c.groups - 1);
        raw.words[k] = c.scale_bytes == 4 ? ((const uint32_t *)m.scales)[at] : ((const uint16_t *)m.scales)[at];
        if (FORMAT == WEIGHT_INT4 && m.zeros) zeros[k / 4] |= (uint32_t)m.zeros[at] << k % 4 * 8;
    }
    if (m.zeros) raw.zeros = make_uint2(zeros[0], zeros[1]);
    return raw;
}

/* The threads that fill the ring's scales; those of the next stage are loaded before these are stored. */
template <enum weight_format FORMAT>
static __device__ __forceinline__ void copy_scales(const few_call &c, const few_part &p, const weight_ring &ring)
{
    step_factors<FORMAT> *to = (step_factors<FORMAT> *)ring.scales + threadIdx.x % SCALE_THREADS;
    ring_place at = {0, 0};
    raw_scales next = load_scales<FORMAT>(c, p, p.first_tile, 0);
    for (int tile = p.first_tile; tile < c.tiles; tile += c.columns)
#pragma unroll 1
        for (int i = 0; i < p.stages; i++) {
            const raw_scales raw = next;
            const bool is_last = i + 1 == p.stages; /* after the last tile: rows that exist */
            next = load_scales<FORMAT>(c, p, is_last ? tile + c.columns : tile, is_last ? 0 : i + 1);
            if (at.round > 0) barrier_wait(&ring.empty[at.stage], (at.round - 1) & 1);
#pragma unroll
            for (int k = 0; k < STAGE_STEPS<FORMAT>; k++) {
                step_factors<FORMAT> &out = to[at.stage * STAGE_SCALES<FORMAT> + k * BOX_ROWS];
                const uint32_t bits = c.loads_eight ? raw.words[k / 2] >> k % 2 * 16 & 0xffff : raw.words[k];
                const float scale = to_scale(bits, c.matmul.scale_dtype);
                if constexpr (FORMAT == WEIGHT_INT4) {
                    out = make_float2(scale, scale * (float)((k < 4 ? raw.zeros.x : raw.zeros.y) >> k % 4 * 8 & 255));
                } else {
                    out = scale;
                }
            }
            __syncwarp();
            if (threadIdx.x % 32 == 0) barrier_arrive(&ring.full[at.stage]);
            ring_step(at, c.stages);
        }
}

/* ---- x ---- */

/* Copies a box from element c0 of step c3 on. */
static __device__ __forceinline__ void copy_steps(void *to, const CUtensorMap *map, int c0, int c3, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %3, %4}], [%5];" ::"r"(shared_address(to)),
                 "l"(map), "r"(c0), "r"(0), "r"(c3), "r"(shared_address(barrier))
                 : "memory");
}

/* A warp copies the part's steps of x, with zeros for second places and for tokens and input features that are not
 * there, and the gains, which do not wait for the previous kernel. */
template <enum weight_format FORMAT, int N>
static __device__ __forceinline__ void copy_x(const few_call &c, const few_part &p, uint8_t *x, uint8_t *gain,
                                              uint64_t *full)
{
    if (threadIdx.x == 0) {
        barrier_arrive_expect(full, steps_of(&c, FORMAT) * N * STEP + few_tokens_gain_bytes(&c.matmul));
        tensor_map_prefetch(&c.x);
        if (c.matmul.gain) bulk_copy(gain, c.matmul.gain, few_tokens_gain_bytes(&c.matmul), full, evict_last_policy());
    }
    __syncwarp();
    wait_for_previous();
    for (int i = threadIdx.x * c.x_steps; i < steps_of(&c, FORMAT); i += 32 * c.x_steps) {
        const int step = p.begin * STAGE_STEPS<FORMAT> + i;
        const bool whole = c.matmul.in_features % STEP == 0;
        copy_steps(x + i * N * STEP, &c.x, whole ? 0 : step * STEP, whole ? step : 0, full);
    }
}

/* Makes e4m3 of the x in shared memory, in place: each half warp takes steps, and of bfloat16 AT_ONCE tokens at a time.
 * factors: [steps, places]; squares: [half warps, tokens], of the elements before their gains. */
template <class T, enum weight_format FORMAT, int N, int AT_ONCE>
static __device__ __forceinline__ void convert_x(const few_call &c, const few_part &p, uint8_t *x, const uint8_t *gain,
                                                 step_factors<FORMAT> *factors, float *squares)
{
    constexpr int TOKENS = N / 2 / PLACES<T>, STRIDE = PLACES<T> == 1 ? AT_ONCE : 1;
    const x_lane at = find_lane<FORMAT>();
    const matmul &m = c.matmul;
    float square[TOKENS] = {};
#pragma unroll 1
    for (int first_step = threadIdx.x / 32 * 2; first_step < steps_of(&c, FORMAT); first_step += HALF_WARPS) {
        const int step = first_step + at.half_warp % 2; /* there are an even number of steps */
        float g[8] = {};
        if (m.gain) load_gains<T>(g, m, gain, (p.begin * STAGE_STEPS<FORMAT> + step) * STEP + 8 * at.lane);
#pragma unroll
        for (int first = 0; first < TOKENS; first += STRIDE) {
            if (first >= m.num_tokens) break;
            uint8_t *rows = x + step * N * STEP;
            step_factors<FORMAT> *of_step = factors + step * (N / 2);
            if constexpr (PLACES<T> == 1) {
                convert_tokens<FORMAT, N, AT_ONCE>(at, rows, first, g, m.gain != NULL, of_step, square + first);
            } else {
                convert_half<FORMAT>(at, rows, first, g, m.gain != NULL, of_step, square[first]);
            }
        }
    }
    if (!m.gain) return;
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        square[t] = warp_sum<16>(square[t]);
        if (at.lane == 0) squares[at.half_warp * (N / 2) + t] = square[t];
    }
}

/* ---- the matmul ---- */

/* The first of the two rows of a box that a thread multiplies; the other one is 8 further. INT4: two neighbouring quads
 * have rows that are 4 apart, so that their pieces are in different banks. */
template <enum weight_format FORMAT> static __device__ __forceinline__ int row_of_thread()
{
    const int quad = threadIdx.x % 32 / 4;
    return threadIdx.x % GROUP / 32 * 16 + (FORMAT == WEIGHT_INT4 ? (quad & 1) << 2 | (quad & 2) | quad >> 2 : quad);
}

/* What all sums of an output feature of FP8 are multiplied by; those of INT4 by INT4_FACTOR. */
static __device__ __forceinline__ float row_scale(const few_call &c, int o)
{
    return c.groups > 1 ? 1 : ((const float *)c.matmul.scales)[o / (int)c.matmul.scale_rows];
}

/* What a warpgroup has of a stage: the shared addresses of its weights and x, what belongs to its steps of x and of the
 * thread's first row, the barrier for when the weights and their scales are not needed any more. */
template <enum weight_format FORMAT> struct stage_part {
    uint32_t weights, x;
    const step_factors<FORMAT> *factors;
    const step_factors<FORMAT> *scales;
    uint64_t *empty;
};

/* The sums of a warpgroup over a stage, into total[n8 of tokens][row, row + 8]. */
template <int N>
static __device__ __forceinline__ void multiply_stage(float (&total)[N / 8][2], const few_call &c,
                                                      const stage_part<WEIGHT_FP8> &part)
{
    constexpr int GROUP_BOXES = few_tiling<WEIGHT_FP8, N>::GROUP_BOXES;
    float sum[GROUP_BOXES][N / 2];
    wgmma_begin();
#pragma unroll
    for (int b = 0; b < GROUP_BOXES; b++) {
        const uint64_t first = swizzled_descriptor(part.weights + b * c.slot_bytes),
                       second = swizzled_descriptor(part.x + b * N * STEP);
#pragma unroll
        for (int k = 0; k < 4; k++) wgmma_e4m3<N>(sum[b], first + 2 * k, second + 2 * k, k > 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
#pragma unroll
    for (int b = 0; b < GROUP_BOXES; b++) {
        wgmma_pin(sum[b]);
        float factors[2] = {1, 1};
        if (c.has_stage_scales) factors[0] = part.scales[b * BOX_ROWS], factors[1] = part.scales[b * BOX_ROWS + 8];
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
            const float scale = part.factors[b * (N / 2) + 4 * n + threadIdx.x % 4];
            const float *s = sum[b] + 4 * n;
            total[n][0] += scale * factors[0] * (s[0] + s[1]);
            total[n][1] += scale * factors[1] * (s[2] + s[3]);
        }
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(part.empty);
}

/* A thread's pieces of INT4 of a step, of each of its rows. */
static __device__ __forceinline__ void load_pieces(uint4 (&pieces)[2], const few_call &c, uint32_t weights, int s)
{
    const int row = row_of_thread<WEIGHT_INT4>();
    const uint32_t first = weights + row * BOX_ROW + (threadIdx.x % 4 ^ row % 8) * 16;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t at = (first ^ s % 2 * INT4_SEGMENT_BYTES) + s / 2 * c.slot_bytes + i * 8 * BOX_ROW;
        pieces[i] = *(const uint4 *)__cvta_shared_to_generic(at);
    }
}

/* Unpacks a step of both rows: A of four wgmmas, 32 input features each. */
static __device__ __forceinline__ void unpack_step(uint32_t (&a)[4][4], const uint4 (&pieces)[2])
{
#pragma unroll
    for (int k = 0; k < 4; k++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint32_t word = ((const uint32_t *)&pieces[i])[k];
            a[k][i] = word & 0x0f0f0f0f;
            a[k][2 + i] = word >> 4 & 0x0f0f0f0f;
        }
        wgmma_pin_operand(a[k]);
    }
}

/* What the sums of a step are multiplied by: of the thread's two rows, and of x. */
template <int N> struct stage_factors {
    float2 rows[2], x[N / 8];
};

template <int N>
static __device__ __forceinline__ stage_factors<N> load_factors(const stage_part<WEIGHT_INT4> &part, int s)
{
    stage_factors<N> f;
#pragma unroll
    for (int i = 0; i < 2; i++) f.rows[i] = part.scales[s * BOX_ROWS + 8 * i];
#pragma unroll
    for (int n = 0; n < N / 8; n++) f.x[n] = part.factors[s * (N / 2) + 4 * n + threadIdx.x % 4];
    return f;
}

template <int N>
static __device__ __forceinline__ void add_step(float (&total)[N / 8][2], float (&sum)[CHAINS<N>][N / 2],
                                                const stage_factors<N> &f)
{
#pragma unroll
    for (int i = 0; i < CHAINS<N>; i++) wgmma_pin(sum[i]);
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float both = 0;
#pragma unroll
            for (int k = 0; k < CHAINS<N>; k++) both += sum[k][4 * n + 2 * i] + sum[k][4 * n + 2 * i + 1];
            total[n][i] += f.rows[i].x * (f.x[n].x * both) - f.rows[i].y * f.x[n].y;
        }
}

/* A step is unpacked while wgmma multiplies the step before, whose sums are added then. */
template <int N>
static __device__ __forceinline__ void multiply_stage(float (&total)[N / 8][2], const few_call &c,
                                                      const stage_part<WEIGHT_INT4> &part)
{
    constexpr int STEPS = few_tiling<WEIGHT_INT4, N>::GROUP_STEPS;
    float sum[2][CHAINS<N>][N / 2];
    uint32_t a[2][4][4];
    uint4 pieces[2][2];
    load_pieces(pieces[0], c, part.weights, 0);
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        if (s >= 2) {
            const stage_factors<N> f = load_factors<N>(part, s - 2);
            wgmma_wait<1>();
            add_step<N>(total, sum[s % 2], f);
        }
        if (s + 1 < STEPS) load_pieces(pieces[(s + 1) % 2], c, part.weights, s + 1);
        unpack_step(a[s % 2], pieces[s % 2]);
        wgmma_begin();
        const uint64_t x = swizzled_descriptor(part.x + s * N * STEP);
#pragma unroll
        for (int k = 0; k < 4; k++)
            wgmma_e4m3_registers<N>(sum[s % 2][k % CHAINS<N>], a[s % 2][k], x + 2 * k, k >= CHAINS<N>);
        wgmma_commit();
    }
    const stage_factors<N> last[2] = {load_factors<N>(part, STEPS - 2), load_factors<N>(part, STEPS - 1)};
    __syncwarp();
    barrier_arrive_if(part.empty, threadIdx.x % 32 == 0);
    wgmma_wait<1>();
    add_step<N>(total, sum[STEPS % 2], last[0]);
    wgmma_wait<0>();
    add_step<N>(total, sum[(STEPS + 1) % 2], last[1]);
}

/* An element of a tile's result that a thread stores. */
template <class T> struct out_place {
    int number;            /* token * output features of a tile + row; -1: there is none */
    float scale, up_scale; /* of FP8 */
    out_element<T> out;
};

static __device__ __forceinline__ int token_of(const few_call &c, int number)
{
    return (int)__umulhi((uint32_t)number, c.inverse);
}

template <class T, enum weight_format FORMAT>
static __device__ __forceinline__ out_place<T> find_place(const few_call &c, int tile, int number)
{
    const matmul &m = c.matmul;
    const int token = token_of(c, number), feature = tile * c.features + number - token * c.features;
    const int features = (int)(m.result == MATMUL_GATE ? m.out_features / 2 : m.out_features);
    if (token >= m.num_tokens || feature >= features) return {-1};
    out_place<T> place = {number};
    place.out = out_element_of<T>(m, token, feature);
    if (FORMAT == WEIGHT_INT4) return place;
    place.scale = row_scale(c, feature);
    if (m.result == MATMUL_GATE) place.up_scale = row_scale(c, features + feature);
    return place;
}

/* Loads what MATMUL_ADD adds to, once the previous kernel has ended. */
template <class T> static __device__ __forceinline__ void load_before(const few_call &c, out_place<T> &place)
{
    if (place.number >= 0) load_before(c.matmul, place.out);
}

/* The first element of each tile that the thread stores. */
template <enum weight_format FORMAT, int N> static __device__ __forceinline__ int first_number(const few_part &p)
{
    return threadIdx.x + p.rank * few_tiling<FORMAT, N>::MMA_THREADS;
}

/* The sum of a row over a token's places, the warpgroups and the blocks of the cluster. */
template <class T, enum weight_format FORMAT, int N>
static __device__ __forceinline__ float total_of(const few_call &c, const float *sums, int token, int row)
{
    float total = 0;
#pragma unroll
    for (int i = 0; i < PLACES<T> * few_tiling<FORMAT, N>::MMA_GROUPS; i++) {
        const int place = token * PLACES<T> + i % PLACES<T>, group = i / PLACES<T>;
        const float *sum = sums + (group * (N / 2) + place) * SUMS_ROW + row;
        if (c.splits == 1) total += *sum;
        for (int rank = 0; rank < c.splits && c.splits > 1; rank++) total += cluster_load(cluster_address(sum, rank));
    }
    return total;
}

template <class T, enum weight_format FORMAT, int N>
static __device__ __forceinline__ void write_place(const few_call &c, const out_place<T> &place, const float *sums,
                                                   const float *norms)
{
    if (place.number < 0) return;
    const int token = token_of(c, place.number), row = place.number - token * c.features;
    const float norm = c.matmul.gain ? norms[token] : 1;
    auto total = [&](int from, float scale) {
        if (FORMAT == WEIGHT_INT4) scale = INT4_FACTOR;
        return total_of<T, FORMAT, N>(c, sums, token, from) * (scale * norm);
    };
    finish_element(
        c.matmul, place.out, [&] { return total(row, place.scale); },
        [&] { return total(UP_ROW + row, place.up_scale); });
}

/* All elements of a tile that the thread stores; place: the first one. */
template <class T, enum weight_format FORMAT, int N>
static __device__ __forceinline__ void write_tile(const few_call &c, int tile, out_place<T> place, int first,
                                                  const float *sums, const float *norms)
{
    for (int number = first;;) {
        write_place<T, FORMAT, N>(c, place, sums, norms);
        number += c.splits * few_tiling<FORMAT, N>::MMA_THREADS;
        if (number >= c.matmul.num_tokens * c.features) break;
        place = find_place<T, FORMAT>(c, tile, number);
        load_before(c, place);
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

/* The warpgroups that multiply. place: the thread's first one. sums: two sets, used in turn, so that one barrier for
 * each tile is enough. */
template <class T, enum weight_format FORMAT, int N>
static __device__ __forceinline__ void multiply_tiles(const few_call &c, const few_part &p, const weight_ring &ring,
                                                      const uint8_t *x, const step_factors<FORMAT> *factors,
                                                      float *all_sums, const float *norms, out_place<T> place,
                                                      uint64_t *sums_full)
{
    using L = few_tiling<FORMAT, N>;
    const int group = __shfl_sync(~0u, threadIdx.x / GROUP, 0); /* so that addresses are the same for a whole warp */
    const int row = row_of_thread<FORMAT>(), first_step = group * L::GROUP_STEPS;
    const int first = first_number<FORMAT, N>(p);
    const uint32_t first_weights = shared_address(ring.data) + group * L::GROUP_BOXES * c.slot_bytes;
    const uint32_t first_x = shared_address(x) + first_step * N * STEP;
    const step_factors<FORMAT> *first_scales = (const step_factors<FORMAT> *)ring.scales + first_step * BOX_ROWS + row;
    ring_place at = {0, 0};
    uint32_t side = 0, round = 0;
    for (int tile = p.first_tile; tile < c.tiles; tile += c.columns) {
        if (tile != p.first_tile) {
            place = find_place<T, FORMAT>(c, tile, first);
            load_before(c, place);
        }
        float total[N / 8][2] = {}, *sums = all_sums + side * L::SUMS;
#pragma unroll 1
        for (int i = 0; i < p.stages; i++) {
            const int step = i * STAGE_STEPS<FORMAT>;
            const stage_part<FORMAT> part = {first_weights + at.stage * BOXES * c.slot_bytes, first_x + step * N * STEP,
                                             factors + (step + first_step) * (N / 2),
                                             first_scales + at.stage * STAGE_SCALES<FORMAT>, &ring.empty[at.stage]};
            barrier_wait(&ring.full[at.stage], at.round & 1);
            multiply_stage<N>(total, c, part);
            ring_step(at, c.stages);
        }
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                sums[(group * (N / 2) + 4 * n + threadIdx.x % 4) * SUMS_ROW + row + 8 * i] = total[n][i];
        mma_threads_sync<L::MMA_THREADS>();
        if (c.splits > 1) {
            if (threadIdx.x == 0) arrive_at_all(&sums_full[side]);
            wait_for_cluster(&sums_full[side], round);
        }
        write_tile<T, FORMAT, N>(c, tile, place, first, sums, norms);
        side ^= 1;
        round ^= side == 0;
    }
}

/* The factors of rms_norm, by a warp for each token. */
template <int N>
static __device__ __forceinline__ void find_norms(const few_call &c, const float *squares, float *norms)
{
    static_assert(HALF_WARPS == 32, "a lane has the sum of a half warp");
    const int token = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (!c.matmul.gain || token >= N / 2) return;
    const float sum = warp_sum(squares[lane * (N / 2) + token]);
    if (lane == 0) norms[token] = rsqrtf(__fdividef(sum, (float)(int)c.matmul.in_features) + c.matmul.eps);
}

/* Reads parameters that are needed later. They lie in constant memory, whose cache does not have them yet: a read takes
 * as long as one of the L2 cache. */
static __device__ __forceinline__ void read_parameters(const few_call &c)
{
    const matmul &m = c.matmul;
    asm volatile("" ::"l"(m.out), "l"(m.gain), "l"(m.in_features), "r"((int)m.gate.activation),
                 "r"((int)m.out_is_float));
    asm volatile("" ::"r"(c.factors_at), "r"(c.slot_bytes), "r"(c.stages), "r"(c.scales_at), "f"(m.eps));
}

/* The threads that prepare x, and multiply. */
template <class T, enum weight_format FORMAT, int N>
static __device__ __forceinline__ void multiply(const few_call &c, const few_part &p, const weight_ring &ring,
                                                uint8_t *data, uint64_t *x_full, uint64_t *sums_full, float *norms)
{
    uint8_t *x = data + c.x_at, *gain = data + c.gain_at;
    step_factors<FORMAT> *factors = (step_factors<FORMAT> *)(data + c.factors_at);
    float *squares = (float *)(data + c.squares_at);
    const bool multiplies = threadIdx.x < few_tiling<FORMAT, N>::MMA_THREADS;
    out_place<T> place = {};
    read_parameters(c);
    if (multiplies) place = find_place<T, FORMAT>(c, p.first_tile, first_number<FORMAT, N>(p));
    if (threadIdx.x < 32) copy_x<FORMAT, N>(c, p, x, gain, x_full);
    wait_for_previous();
    if (multiplies) load_before(c, place);
    barrier_wait(x_full, 0);
    if (c.matmul.num_tokens == 1 || PLACES < T >> 1) {
        convert_x<T, FORMAT, N, 1>(c, p, x, gain, factors, squares);
    } else {
        convert_x<T, FORMAT, N, 4>(c, p, x, gain, factors, squares);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); /* for wgmma */
    if (c.splits > 1) cluster_wait();                            /* the other block has initialized its barriers */
    asm volatile("bar.sync 2, %0;" ::"n"((int)PREPARE_THREADS) : "memory");
    if (!multiplies) return;
    find_norms<N>(c, squares, norms);
    multiply_tiles<T, FORMAT, N>(c, p, ring, x, factors, (float *)(data + c.sums_at), norms, place, sums_full);
}

/* ---- rows of floats ---- */

/* sum += the sum of products of 8 elements. */
template <class T> static __device__ __forceinline__ float add_products(float sum, const uint4 &a, const uint4 &b)
{
    const piece<T, 8> x = *(const piece<T, 8> *)&a, y = *(const piece<T, 8> *)&b;
#pragma unroll
    for (int i = 0; i < 8; i++) sum = fmaf(to_float(x.values[i]), to_float(y.values[i]), sum);
    return sum;
}

/* A warp's row: its first pieces are read before the previous kernel has ended. */
template <class T> static __device__ __forceinline__ void multiply_beside(const few_call &c, int block)
{
    constexpr int KEPT = 8, MOST = FEW_TOKENS_WGMMA_MAX;
    const matmul &m = c.matmul;
    const int lane = threadIdx.x % 32, row = block * BESIDE_ROWS + threadIdx.x / 32;
    const int pieces = (int)m.in_features / 8;
    if (threadIdx.x >= 32 * BESIDE_ROWS || row >= c.beside.rows) return;
    const uint4 *weight = (const uint4 *)((const T *)c.beside.weight + row * m.in_features);
    uint4 kept[KEPT];
    float sums[MOST] = {};
#pragma unroll
    for (int k = 0; k < KEPT; k++) kept[k] = lane + 32 * k < pieces ? weight[lane + 32 * k] : make_uint4(0, 0, 0, 0);
    wait_for_previous();
#pragma unroll 1
    for (int first = lane; first < pieces; first += 32 * KEPT) {
        if (first != lane)
#pragma unroll
            for (int k = 0; k < KEPT; k++)
                kept[k] = first + 32 * k < pieces ? weight[first + 32 * k] : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int t = 0; t < MOST; t++) {
            if (t >= m.num_tokens) break;
            const uint4 *x = (const uint4 *)((const T *)m.x + t * m.x_stride) + first;
#pragma unroll
            for (int k = 0; k < KEPT; k++)
                if (first + 32 * k < pieces) sums[t] = add_products<T>(sums[t], kept[k], x[32 * k]);
        }
    }
#pragma unroll
    for (int t = 0; t < MOST; t++) {
        if (t >= m.num_tokens) break;
        const float sum = warp_sum(sums[t]);
        if (lane == 0) ((T *)c.beside.out)[t * m.out_stride + row] = from_float<T>(sum);
    }
}

#endif

template <class T, enum weight_format FORMAT, int N>
static __global__ void __launch_bounds__(MAX_THREADS, 1) few_tokens_wgmma_kernel(const __grid_constant__ few_call c)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ uint8_t shared[];
    __shared__ uint64_t full[MAX_STAGES], empty[MAX_STAGES], x_full, sums_full[2];
    __shared__ float norms[N / 2];
    uint8_t *data = shared + (-shared_address(shared) & (ALIGNMENT - 1));
    const weight_ring ring = {data, data + c.scales_at, full, empty};
    const few_part p = find_part(c);
    const int beside = (int)blockIdx.x - c.columns * c.splits;
    let_next_start();
    if (beside >= 0) {
        multiply_beside<T>(c, beside);
        return;
    }
    if (threadIdx.x < MAX_STAGES) {
        barrier_init(&full[threadIdx.x], c.has_stage_scales ? 1 + SCALE_THREADS / 32 : 1);
        barrier_init(&empty[threadIdx.x], few_tiling<FORMAT, N>::MMA_THREADS / 32);
        if (threadIdx.x < 2) barrier_init(&sums_full[threadIdx.x], 2);
        if (threadIdx.x == 0) barrier_init(&x_full, 1);
        barrier_init_fence();
    }
    __syncthreads();
    if (c.splits > 1) cluster_arrive();
    if (threadIdx.x < PREPARE_THREADS) {
        multiply<T, FORMAT, N>(c, p, ring, data, &x_full, sums_full, norms);
    } else {
        if (threadIdx.x < PREPARE_THREADS + COPY_THREADS) {
            copy_weights<FORMAT>(c, p, ring);
        } else {
            copy_scales<FORMAT>(c, p, ring);
        }
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

/* The weight's bytes count as 16-bit elements. */
static bool map_operands(struct few_call *c)
{
    const struct matmul *m = &c->matmul;
    const int64_t row = m->in_features / (2 * box_steps_of(m->format));
    const struct tensor_map_args weight = {m->weight,
                                           2,
                                           {row, m->out_features},
                                           {row},
                                           {BOX_ROW / 2, c->features},
                                           CU_TENSOR_MAP_SWIZZLE_128B,
                                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B};
    const bool whole = m->in_features % STEP == 0;
    const int places = places_of(m->dtype);
    const struct tensor_map_args x = {
        m->x,
        4,
        {whole ? (int64_t)STEP : m->in_features, 1, m->num_tokens, whole ? m->in_features / STEP : 1},
        {m->x_stride, m->x_stride, STEP},
        {STEP, places, columns_of(m) / 2 / places, c->x_steps},
        CU_TENSOR_MAP_SWIZZLE_NONE,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B};
    return tensor_map_encode(&c->weight, &weight) && tensor_map_encode(&c->x, &x);
}

template <class T, enum weight_format FORMAT> static auto kernel_of(const struct matmul *m)
{
    return columns_of(m) == 8 ? few_tokens_wgmma_kernel<T, FORMAT, 8> : few_tokens_wgmma_kernel<T, FORMAT, 16>;
}

/* The blocks beside have multiprocessors of their own. */
static bool run(struct backend *b, const char *operation, const struct matmul *m, const struct few_beside *beside)
{
    struct matmul_device device = matmul_device_of(b);
    struct few_call call = {};
    device.num_sms -= beside->blocks;
    if (!few_tokens_wgmma_lay_out(&device, m, &call) || !map_operands(&call)) return false;
    const int threads = call.has_stage_scales ? MAX_THREADS : MAX_THREADS - SCALE_THREADS;
    const int blocks = call.columns * call.splits + (int)cuda_div_up(beside->blocks, call.splits) * call.splits;
    call.beside = *beside;
    matmul_dispatch(m, [&](auto zero) {
        using T = decltype(zero);
        cuda_run_dependent(b, operation,
                           m->format == WEIGHT_FP8 ? kernel_of<T, WEIGHT_FP8>(m) : kernel_of<T, WEIGHT_INT4>(m),
                           {dim3(blocks), threads, call.shared_bytes, call.splits}, call);
    });
    return true;
}

bool few_tokens_wgmma(struct backend *b, const char *operation, const struct matmul *m)
{
    const struct few_beside none = {};
    return run(b, operation, m, &none);
}

/* Whether blocks beside those of the first part can multiply the second. */
static bool goes_beside(const struct linear_args *first, const struct linear_args *second)
{
    const struct weight *w = second->weight;
    return second->out_dtype == second->dtype && w->format == weight_format_of(second->dtype) && !w->bias &&
           !second->quantized_x && second->x == first->x && second->x_stride == first->x_stride &&
           second->out_stride == first->out_stride && first->segments.count == 0 && second->segments.count == 0 &&
           w->in_features % 8 == 0 && w->out_features <= MOST_BESIDE * BESIDE_ROWS && cuda_is_aligned(w->data);
}

bool cuda_linear_parts(struct backend *b, const struct linear_args *parts, int count)
{
    if (count != 2 || parts[0].num_tokens <= 0 || !goes_beside(&parts[0], &parts[1])) return false;
    const struct matmul_device device = matmul_device_of(b);
    const struct matmul_question q = matmul_question_of(&parts[0], MATMUL_STORE, NULL, NULL, false);
    if (matmul_plan(&device, &q) != MATMUL_FEW_TOKENS_WGMMA) return false;
    const int32_t rows = (int32_t)parts[1].weight->out_features;
    const struct few_beside beside = {parts[1].weight->data, parts[1].out, rows,
                                      (int32_t)cuda_div_up(rows, BESIDE_ROWS)};
    return run(b, "linear_parts", &q.matmul, &beside);
}
