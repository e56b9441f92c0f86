/* Matmuls of quantized weights with few tokens (quantized.cuh has the formats). The cost is to read the weights once,
 * at the speed of memory, and to unpack them meanwhile.
 *
 * Two blocks run on each multiprocessor. A block walks batches of tiles of 16 output features. What a warp multiplies
 * at a time is a unit: 64 bytes of each row of a tile, which are 128 input features of INT4 and 64 of the others. Each
 * warp gets an equal share of a batch, units that follow each other, and needs the other warps only at the end of the
 * batch, when the sums are added. A batch of three tiles for four warps:
 *
 *     tile 0   | warp 0 . . . . . . . . | warp 1 . . |
 *     tile 1   | . . . . . . | warp 2 . . . . . . .  |          warp 1 leaves two sums: one of each tile
 *     tile 2   | . . | warp 3 . . . . . . . . . . .  |
 *
 * A unit comes through a ring that is the warp's own. Even less is shared: a lane copies the very bytes that it unpacks
 * itself, so a unit that has arrived needs no barrier.
 *
 *     a unit:    row  g    | 16 bytes: lane (g, 0) | lane (g, 1) | lane (g, 2) | lane (g, 3) |        g = 0 .. 7
 *                row g + 8 | the same lanes                                                  |
 *
 * The first copies start before the previous kernel has ended, because weights do not depend on it (dependent.cuh), and
 * go on while x is copied and normed. A block that ends makes room for one of the next kernel.
 *
 * The matmul runs on tensor cores (mma.cuh) with the rows of a tile as M and 8 tokens as N, in float16 whatever the
 * type of x: it holds all the elements of the formats, and unpacking to it takes the fewest instructions. Each token is
 * multiplied by a power of two that takes its largest element close to the largest float16. Elements 2^24 times smaller
 * are still exact, and what is lost of those below is less than the rounding of a sum in float32.
 *
 * The order in which a lane multiplies input features does not matter as long as it is the same for both operands. INT4
 * was reordered, so x is in its natural order. Of FP8 and INT8 a lane has 16 consecutive input features; where
 * unpacking makes pairs of the bytes 0 and 2, 1 and 3 of a word, x is put into that order on its way to shared memory.
 *
 * What can be done for a whole unit is done to its sums:
 * - INT4 is multiplied as v 2^-24, a subnormal float16, or as 16 v 2^-24 with x made 16 times smaller. The zero, times
 *   the sum of x over the group, is subtracted from the sum. The sums of x come from the tensor cores too.
 * - Scales and zeros of eight groups are copied with the first unit that needs them. */
#include "kernels/cuda/cache_policy.cuh"
#include "kernels/cuda/copy_async.cuh"
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/matmul/few_tokens_quantized.h"
#include "kernels/cuda/matmul/few_tokens_tile.cuh"
#include "kernels/cuda/matmul/quantized.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/operations.h"

/* a / b by multiplication (inverse_of in few_tokens_quantized.c). */
static __device__ __forceinline__ int divide(int a, uint32_t inverse)
{
    return inverse == 0 ? a : (int)__umulhi((uint32_t)a, inverse);
}

/* What the sums are multiplied by; see above. */
template <enum weight_format F> static constexpr float SUM_FACTOR = F == WEIGHT_INT4 ? 0x1p24f : 1;

/* ---- the order of units ---- */

/* A block's part, `tiles` tiles of it, and the inverse of its chunks, which are units. */
struct block_work : block_part {
    int tiles;
    uint32_t unit_inverse;
};

template <enum weight_format F> static __device__ __forceinline__ block_work work_of(const quantized_call &c)
{
    const struct few_tokens_plan &plan = c.base.plan;
    block_work w = {find_part(c.base, unit_features(F))};
    w.tiles = (plan.tiles - w.first_tile + plan.columns - 1) / plan.columns;
    w.unit_inverse = w.chunks == plan.part / unit_features(F) ? c.unit_inverse : c.last_inverse;
    return w;
}

/* A warp's share of a batch: `left` units, from a unit of a tile on. */
struct warp_share {
    int tile, unit, left; /* tile: of the block */
};

static __device__ __forceinline__ int batch_tiles(const quantized_call &c, const block_work &work, int batch)
{
    const int left = work.tiles - batch * c.batch;
    return left < c.batch ? left : c.batch;
}

/* left is 0 or less if there is no such batch. */
static __device__ __forceinline__ warp_share share_of(const quantized_call &c, const block_work &work, int batch)
{
    const int warp = threadIdx.x / 32, all = batch_tiles(c, work, batch) * work.chunks;
    const int begin = all * warp / MMA_WARPS, end = all * (warp + 1) / MMA_WARPS,
              tile = divide(begin, work.unit_inverse);
    return {batch * c.batch + tile, begin - tile * work.chunks, end - begin};
}

static __device__ __forceinline__ int tile_of(const quantized_call &c, const block_work &work, int tile)
{
    return work.first_tile + tile * c.base.plan.columns;
}

template <enum weight_format F>
static __device__ __forceinline__ uint32_t group_of(int group_shift, const block_work &work, int unit)
{
    return ((uint32_t)work.begin + unit * unit_features(F)) >> group_shift;
}

/* ---- scales ---- */

static __device__ __forceinline__ const uint8_t *scales_of(const quantized_call &c, int feature, int group)
{
    return (const uint8_t *)c.base.matmul.scales +
           ((int64_t)(feature >> c.scale_shift) * c.groups + group) * c.scale_size;
}

/* Where 8 bytes or 16 cannot be copied as one. */
static __device__ __noinline__ void store_scales(uint32_t to, const uint8_t *from, int bytes)
{
    for (int i = 0; i < bytes; i++)
        asm volatile("st.shared.u8 [%0], %1;\n" ::"r"(to + i), "r"((uint32_t)from[i]) : "memory");
}

/* Copies groups first_group, ..., + SCALE_BLOCK - 1 of a tile: scales [TILE, SCALE_BLOCK], zeros [TILE, SCALE_BLOCK].
 * Lanes 0 to 15 copy the scales of a row, the others the zeros. */
static __device__ __forceinline__ void copy_scales(const quantized_call &c, uint32_t to, int tile, int first_group)
{
    const int row = threadIdx.x % TILE, left = c.groups - first_group, count = left < SCALE_BLOCK ? left : SCALE_BLOCK;
    const bool is_zero = threadIdx.x % 32 >= TILE;
    const int feature = feature_of<TILE>(c.base.matmul, tile, row);
    if (feature < 0 || (is_zero && !c.base.matmul.zeros)) return;
    const uint8_t *from =
        is_zero ? c.base.matmul.zeros + (int64_t)feature * c.groups + first_group : scales_of(c, feature, first_group);
    const int bytes = is_zero ? SCALE_BLOCK : SCALE_BLOCK * c.scale_size;
    to += row * bytes + (is_zero ? TILE * SCALE_BLOCK * c.scale_size : 0);
    if (!c.can_copy) return store_scales(to, from, is_zero ? count : count * c.scale_size);
    if (is_zero) return copy_async_8(to, from);
    copy_async_bytes(to, from, 16);
    if (c.scale_size == 4) copy_async_bytes(to + 16, from + 16, 16);
}

/* What is needed for each unit. */
struct unit_constants {
    int stages, group_shift, scale_size;
    enum dtype scale_dtype;
    bool grouped, has_zeros;
};

static __device__ __forceinline__ unit_constants constants_of(const quantized_call &c)
{
    const matmul &m = c.base.matmul;
    return {c.base.plan.stages, c.group_shift, c.scale_size, m.scale_dtype, c.grouped, m.zeros != NULL};
}

/* ---- the ring ---- */

/* Waits until the oldest of so many stages has arrived. */
static __device__ __forceinline__ void wait_oldest(int stages)
{
    if (stages == 8) return copy_async_wait<7>();
    if (stages == 5) return copy_async_wait<4>();
    copy_async_wait<2>();
}

/* A lane's copies of weights, and its share of the copies of scales. */
struct unit_copies {
    uint32_t ring;   /* the lane's place in the first stage */
    uint32_t scales; /* the warp's first block */
    int batch;
    warp_share next;             /* what is left to copy of the batch; left 0: of all batches */
    const uint8_t *low, *high;   /* what the lane copies next, of rows g and g + 8; row 0 for one that is not there */
    int scale_block, scale_slot; /* the block that was copied last, and the slot of the next one */
    uint64_t policy;
};

/* Begins a tile, or what the warp has of it. */
template <enum weight_format F>
static __device__ __forceinline__ void begin_tile(unit_copies &copies, const quantized_call &c, const block_work &work)
{
    constexpr int density = F == WEIGHT_INT4 ? 2 : 1; /* input features of a byte */
    const matmul &m = c.base.matmul;
    const int tile = tile_of(c, work, copies.next.tile), row_bytes = (int)m.in_features / density;
    const int low = feature_of<TILE>(m, tile, threadIdx.x % 32 / 4),
              high = feature_of<TILE>(m, tile, threadIdx.x % 32 / 4 + 8);
    const uint8_t *first =
        (const uint8_t *)m.weight + (work.begin / density + copies.next.unit * UNIT_BYTES) + threadIdx.x % 4 * 16;
    copies.low = first + (int64_t)(low < 0 ? 0 : low) * row_bytes;
    copies.high = first + (int64_t)(high < 0 ? 0 : high) * row_bytes;
    copies.scale_block = -1;
}

/* Begins the next batch of which the warp has a share. */
template <enum weight_format F>
static __device__ __forceinline__ void begin_batch(unit_copies &copies, const quantized_call &c, const block_work &work)
{
    do {
        copies.batch++;
        copies.next = {0, 0, 0};
        if (copies.batch * c.batch >= work.tiles) return;
        copies.next = share_of(c, work, copies.batch);
    } while (copies.next.left == 0);
    begin_tile<F>(copies, c, work);
}

/* Starts the copies of the warp's next unit, to a stage. */
template <enum weight_format F>
static __device__ __forceinline__ void copy_next(unit_copies &copies, const quantized_call &c, const unit_constants &k,
                                                 const block_work &work, int stage)
{
    const uint32_t to = copies.ring + stage * STAGE;
    if (copies.next.left > 0) {
        const bool is_there = F == WEIGHT_INT4 || copies.next.unit * UNIT_BYTES + (int)threadIdx.x % 4 * 16 < work.size;
        copy_async(to, copies.low, is_there, copies.policy); /* else zeros: shared memory may hold what reads as NaN */
        copy_async(to + HALF_UNIT, copies.high, is_there, copies.policy);
        const int block = (int)(group_of<F>(k.group_shift, work, copies.next.unit) / SCALE_BLOCK);
        if (k.grouped && block != copies.scale_block) {
            copy_scales(c, copies.scales + copies.scale_slot * scale_block_bytes(k.scale_size),
                        tile_of(c, work, copies.next.tile), block * SCALE_BLOCK);
            copies.scale_block = block;
            if (++copies.scale_slot == c.scale_slots) copies.scale_slot = 0;
        }
    }
    copy_async_commit();
    copies.low += UNIT_BYTES, copies.high += UNIT_BYTES;
    copies.next.unit++;
    if (copies.next.left > 0 && --copies.next.left == 0) {
        begin_batch<F>(copies, c, work);
    } else if (copies.next.unit == work.chunks) {
        copies.next.unit = 0;
        copies.next.tile++;
        begin_tile<F>(copies, c, work);
    }
}

/* ---- x ---- */

/* Whether unpacking makes pairs of neighbours; else it makes pairs of the bytes 0 and 2, 1 and 3 of a word. */
#if __CUDA_ARCH__ >= 890
template <enum weight_format F> static constexpr bool NATURAL_ORDER = F != WEIGHT_INT8;
#else
template <enum weight_format F> static constexpr bool NATURAL_ORDER = F == WEIGHT_INT4;
#endif

/* Eight elements of x, times a power of two, in the order in which lanes multiply them. */
template <class T, enum weight_format F> static __device__ __forceinline__ uint4 arrange(uint4 words, float factor)
{
    const T *x = (const T *)&words;
    __half2 y[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        y[i] = NATURAL_ORDER<F> ? __floats2half2_rn(to_float(x[2 * i]) * factor, to_float(x[2 * i + 1]) * factor)
                                : __floats2half2_rn(to_float(x[i / 2 * 4 + i % 2]) * factor,
                                                    to_float(x[i / 2 * 4 + i % 2 + 2]) * factor);
    return *(const uint4 *)y;
}

/* What the warps find out about x: by token and warp, the sum of squares and the largest magnitude; and by warp the
 * largest gain. It lies where the sums are later. */
struct x_facts {
    float squares[FEW_TOKENS_MAX][MMA_WARPS], largest[FEW_TOKENS_MAX][MMA_WARPS], gain[MMA_WARPS];
};

/* The largest magnitude of 16 bytes of elements. */
template <class T> static __device__ __forceinline__ float largest_of(uint4 words)
{
    const T *x = (const T *)&words;
    float largest = 0;
#pragma unroll
    for (int i = 0; i < (int)(sizeof words / sizeof *x); i++) largest = fmaxf(largest, fabsf(to_float(x[i])));
    return largest;
}

/* Gains may be read before the previous kernel has ended. */
template <class T>
static __device__ __forceinline__ void find_largest_gain(const matmul &m, const block_work &work, x_facts *facts)
{
    const int pieces = m.gain_is_float ? 2 : 1; /* of eight gains */
    const uint4 *gain = (const uint4 *)m.gain + pieces * (work.begin / 8);
    float largest = 0;
    for (int i = threadIdx.x; i < pieces * (work.size / 8); i += MMA_THREADS)
        largest = fmaxf(largest, m.gain_is_float ? largest_of<float>(gain[i]) : largest_of<T>(gain[i]));
    largest = warp_max(largest);
    if (threadIdx.x % 32 == 0) facts->gain[threadIdx.x / 32] = largest;
}

/* Copies the part's input features of x to shared memory as they are, with zeros up to the end of the last unit, and
 * looks at them; if there is a norm, at all input features. */
template <class T, enum weight_format F>
static __device__ __forceinline__ void load_x(const quantized_call &c, const block_work &work, uint8_t *x,
                                              x_facts *facts)
{
    enum { BATCH = 4 };
    const matmul &m = c.base.matmul;
    const token_share share = share_tokens(m.num_tokens);
    const int all = (int)m.in_features / 8, begin = work.begin / 8, padded = c.base.plan.part / 8;
    const int low = m.gain ? 0 : begin, high = m.gain && all > begin + padded ? all : begin + padded;
    for (int token = share.token; token < m.num_tokens; token += share.token_step) {
        const uint4 *from = (const uint4 *)((const T *)m.x + token * m.x_stride);
        uint4 *to = (uint4 *)(x + token * c.base.plan.x_row);
        float sum = 0, largest = 0;
        for (int i = low + share.first; i < high; i += BATCH * share.step) {
            uint4 values[BATCH];
#pragma unroll
            for (int k = 0; k < BATCH; k++) {
                const int piece = i + k * share.step;
                values[k] = piece < all ? from[piece] : make_uint4(0, 0, 0, 0);
            }
#pragma unroll
            for (int k = 0; k < BATCH; k++) {
                const int piece = i + k * share.step - begin;
                if (m.gain) sum += square_sum<T>(values[k]);
                largest = fmaxf(largest, largest_of<T>(values[k]));
                if (piece >= 0 && piece < padded) to[piece] = values[k];
            }
        }
        sum = warp_sum(sum);
        largest = warp_max(largest);
        const int warp = threadIdx.x / 32 & (share.warps - 1);
        if (threadIdx.x % 32 == 0) facts->squares[token][warp] = sum, facts->largest[token][warp] = largest;
    }
}

/* Norms what load_x left, if there is a norm, and makes it float16: times the power of two that takes the largest
 * magnitude to 2^14 or more, so that no element that matters is lost. The other odd pieces of INT4 are 16 times smaller
 * (raw_pair). Each thread works on what it has copied. inverses: of the powers of two. gain: the part's. */
template <class T, enum weight_format F>
static __device__ __forceinline__ void prepare_x(const quantized_call &c, const block_work &work, uint8_t *x,
                                                 const uint8_t *gain, const x_facts *facts, float *inverses)
{
    const matmul &m = c.base.matmul;
    const token_share share = share_tokens(m.num_tokens);
    const int begin = work.begin / 8, size = work.size / 8,
              first = ((m.gain ? share.first - begin : share.first)) & (share.step - 1);
    float largest_gain = 1;
    if (m.gain) {
        largest_gain = 0;
#pragma unroll
        for (int i = 0; i < MMA_WARPS; i++) largest_gain = fmaxf(largest_gain, facts->gain[i]);
    }
    if (m.num_tokens > GAIN_TOKENS) gain = (const uint8_t *)m.gain + work.begin * (m.gain_is_float ? 4 : 2);
    for (int token = share.token; token < m.num_tokens; token += share.token_step) {
        float sum = 0, largest = 0;
        for (int i = 0; i < share.warps; i++)
            sum += facts->squares[token][i], largest = fmaxf(largest, facts->largest[token][i]);
        const float norm = m.gain ? rsqrtf(sum / (float)m.in_features + m.eps) : 1;
        const uint32_t bits = __float_as_uint(largest * norm * largest_gain) >> 23, exponent = bits < 15 ? 15 : bits;
        const float factor = __uint_as_float((268 - exponent) << 23);
        if (share.first == 0) inverses[token] = __uint_as_float((exponent - 14) << 23);
#pragma unroll 2
        for (int i = first; i < size; i += share.step) {
            uint4 *words = (uint4 *)(x + token * c.base.plan.x_row) + i, y = *words;
            if (m.gain) y = normalize<T>(m, y, gain, i, norm);
            *words = arrange<T, F>(y, F == WEIGHT_INT4 && i % 2 ? factor / 16 : factor);
        }
    }
}

static __device__ __forceinline__ void copy_gains(const matmul &m, const block_work &work, uint8_t *gain)
{
    const int size = m.gain_is_float ? 4 : 2;
    if (!m.gain || m.num_tokens > GAIN_TOKENS) return;
#pragma unroll 1
    for (int i = threadIdx.x * 16; i < work.size * size; i += MMA_THREADS * 16)
        copy_async(shared_address(gain + i), (const uint8_t *)m.gain + work.begin * size + i, true);
}

/* ---- units ---- */

/* A lane's places in x: where it reads of each 8 tokens. A token that is not there is the first one; its sums are not
 * used. */
template <enum weight_format F, int GROUPS>
static __device__ __forceinline__ void find_x(uint32_t (&at)[GROUPS], const quantized_call &c, const block_work &work,
                                              const uint8_t *x)
{
    const int lane = threadIdx.x % 32, row = F == WEIGHT_INT4 ? lane % 8 : lane / 4;
    const int within = F == WEIGHT_INT4 ? lane / 8 * 16 : lane % 4 * 32;
#pragma unroll
    for (int n = 0; n < GROUPS; n++) {
        const int token = 8 * n + row < c.base.matmul.num_tokens ? 8 * n + row : 0;
        at[n] = shared_address(x) + token * c.base.plan.x_row + within;
        asm volatile("" : "+r"(at[n])); /* so that it is not computed again for each unit */
    }
}

static __device__ __forceinline__ uint4 load_shared(uint32_t address)
{
    uint4 out;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
                 : "r"(address)
                 : "memory");
    return out;
}

/* Pair i of a prepared word, as v 2^-24 if i is even and 16 v 2^-24 if it is odd: subnormal float16. */
static __device__ __forceinline__ uint32_t raw_pair(uint32_t word, int i)
{
    return (i < 2 ? word : word >> 8) & (i % 2 ? 0x00f000f0 : 0x000f000f);
}

/* Four bytes of INT8 or e4m3, in pairs as NATURAL_ORDER says. */
template <enum weight_format F>
static __device__ __forceinline__ void byte_pairs(uint32_t word, uint32_t &first, uint32_t &second)
{
    if constexpr (F == WEIGHT_INT8) {
        int8_pairs<__half>(word, first, second);
    } else {
#if __CUDA_ARCH__ >= 890
        fp8_halves(word, first, second);
#else
        fp8_pairs<__half>(word, first, second);
        first = multiply_pairs<__half>(first, pair_of<__half>(FP8_FACTOR<__half>));
        second = multiply_pairs<__half>(second, pair_of<__half>(FP8_FACTOR<__half>));
#endif
    }
}

/* The scales of the lane's two rows. */
struct row_scales {
    uint32_t scale, zero; /* in shared memory, if grouped: of row g and the block of groups that is being multiplied */
    float factor[2];      /* of the whole row, if not */
};

static __device__ __forceinline__ float load_shared_scale(uint32_t address, enum dtype dtype)
{
    uint32_t bits;
    if (dtype == DTYPE_FLOAT32) {
        asm volatile("ld.shared.u32 %0, [%1];\n" : "=r"(bits) : "r"(address) : "memory");
    } else {
        uint16_t half;
        asm volatile("ld.shared.u16 %0, [%1];\n" : "=h"(half) : "r"(address) : "memory");
        bits = half;
    }
    return to_scale(bits, dtype);
}

static __device__ __forceinline__ float load_shared_zero(uint32_t address)
{
    uint32_t zero;
    asm volatile("ld.shared.u8 %0, [%1];\n" : "=r"(zero) : "r"(address) : "memory");
    return (float)zero;
}

/* The lane's factors of two whole rows. */
static __device__ __forceinline__ row_scales find_scales(const quantized_call &c, int tile, float factor)
{
    const matmul &m = c.base.matmul;
    row_scales out = {};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int feature = feature_of<TILE>(m, tile, threadIdx.x % 32 / 4 + 8 * i);
        if (c.grouped || feature < 0) continue;
        out.factor[i] = factor * load_scale(scales_of(c, feature, 0), m.scale_dtype, 0);
    }
    return out;
}

/* Scale and offset of a group of the lane's two rows. */
struct group_scales {
    float scale[2], offset[2];
};

template <enum weight_format F>
static __device__ __forceinline__ group_scales load_group(const unit_constants &k, const row_scales &scales,
                                                          uint32_t group)
{
    const uint32_t at = group % SCALE_BLOCK, scale = scales.scale + at * k.scale_size, zero = scales.zero + at;
    group_scales out = {};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int rows = 8 * i * SCALE_BLOCK;
        out.scale[i] = load_shared_scale(scale + rows * k.scale_size, k.scale_dtype) * SUM_FACTOR<F>;
        if (F == WEIGHT_INT4) out.offset[i] = -(k.has_zeros ? load_shared_zero(zero + rows) : 8.0f) / SUM_FACTOR<F>;
    }
    return out;
}

/* total += scale * sum, sum = 0. x_sums: INT4: the sums of x over the group, [tokens]. */
template <enum weight_format F, int GROUPS>
static __device__ __forceinline__ void fold(float (&total)[GROUPS][4], float (&sum)[GROUPS][4], const group_scales &g,
                                            const float *x_sums)
{
#pragma unroll
    for (int n = 0; n < GROUPS; n++) {
        float2 x_sum = {};
        if (F == WEIGHT_INT4) x_sum = *(const float2 *)(x_sums + 8 * n + threadIdx.x % 4 * 2);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (F == WEIGHT_INT4) sum[n][i] += g.offset[i / 2] * (i % 2 ? x_sum.y : x_sum.x);
            total[n][i] += g.scale[i / 2] * sum[n][i];
            sum[n][i] = 0;
        }
    }
}

/* Whether word w of a lane's piece of INT4 is the last one of its group. SMALL: groups may be smaller than a unit. */
template <bool SMALL> static __device__ __forceinline__ bool ends_group(int w, int fold_words)
{
    return w == 3 || (SMALL && ((w + 1) & (fold_words - 1)) == 0);
}

/* x_sums: of this unit, [its groups, or 1][8 GROUPS]. Even and odd words have sums of their own, because a matmul takes
 * long to return its sums to the next one. */
template <int GROUPS, bool SMALL>
static __device__ __forceinline__ void multiply_int4(float (&total)[GROUPS][4], uint4 low, uint4 high,
                                                     const uint32_t (&x)[GROUPS], const unit_constants &k,
                                                     int fold_words, const row_scales &scales, uint32_t group,
                                                     const float *x_sums)
{
    float sum[GROUPS][4] = {}, odd[GROUPS][4] = {};
    uint32_t y[GROUPS][4][4];
#pragma unroll
    for (int n = 0; n < GROUPS; n++)
#pragma unroll
        for (int w = 0; w < 4; w++) load_matrices(y[n][w], x[n] + w * 64);
    group_scales g = load_group<WEIGHT_INT4>(k, scales, group);
#pragma unroll
    for (int w = 0; w < 4; w++) {
        const uint32_t l = ((const uint32_t *)&low)[w], h = ((const uint32_t *)&high)[w];
        const uint32_t first[4] = {raw_pair(l, 0), raw_pair(h, 0), raw_pair(l, 1), raw_pair(h, 1)};
        const uint32_t second[4] = {raw_pair(l, 2), raw_pair(h, 2), raw_pair(l, 3), raw_pair(h, 3)};
#pragma unroll
        for (int n = 0; n < GROUPS; n++) {
            multiply_add<__half>(sum[n], first, y[n][w][0], y[n][w][1]);
            multiply_add<__half>(odd[n], second, y[n][w][2], y[n][w][3]);
        }
        if (!ends_group<SMALL>(w, fold_words)) continue;
#pragma unroll
        for (int n = 0; n < GROUPS; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) sum[n][i] += odd[n][i], odd[n][i] = 0;
        fold<WEIGHT_INT4, GROUPS>(total, sum, g, x_sums);
        if (!SMALL || w == 3) continue;
        x_sums += GROUPS * 8;
        g = load_group<WEIGHT_INT4>(k, scales, ++group);
    }
}

/* The sums of x that multiply_int4 needs of this unit. */
template <int GROUPS, bool SMALL>
static __device__ __forceinline__ void sum_x(const uint32_t (&x)[GROUPS], int fold_words, float *x_sums)
{
    const uint32_t one = pair_of<__half>(1), more = pair_of<__half>(16), ones[4] = {one, one, more, more};
    float sum[GROUPS][4] = {};
#pragma unroll
    for (int w = 0; w < 4; w++) {
#pragma unroll
        for (int n = 0; n < GROUPS; n++) {
            uint32_t y[4];
            load_matrices(y, x[n] + w * 64);
            multiply_add<__half>(sum[n], ones, y[0], y[1]);
            multiply_add<__half>(sum[n], ones, y[2], y[3]);
        }
        if (!ends_group<SMALL>(w, fold_words)) continue;
#pragma unroll
        for (int n = 0; n < GROUPS; n++) {
            if (threadIdx.x % 32 < 4)
                *(float2 *)(x_sums + 8 * n + threadIdx.x % 4 * 2) = make_float2(sum[n][0], sum[n][1]);
            sum[n][0] = sum[n][1] = 0;
        }
        x_sums += GROUPS * 8;
    }
}

template <enum weight_format F, int GROUPS>
static __device__ __forceinline__ void multiply_bytes(float (&sum)[GROUPS][4], uint4 low, uint4 high,
                                                      const uint32_t (&x)[GROUPS])
{
    uint4 y[GROUPS][2];
#pragma unroll
    for (int n = 0; n < GROUPS; n++) y[n][0] = load_shared(x[n]), y[n][1] = load_shared(x[n] + 16);
#pragma unroll
    for (int w = 0; w < 4; w++) {
        const uint32_t l = ((const uint32_t *)&low)[w], h = ((const uint32_t *)&high)[w];
        uint32_t a[4];
        byte_pairs<F>(l, a[0], a[2]);
        byte_pairs<F>(h, a[1], a[3]);
#pragma unroll
        for (int n = 0; n < GROUPS; n++) {
            const uint4 part = y[n][w / 2];
            multiply_add<__half>(sum[n], a, w % 2 ? part.z : part.x, w % 2 ? part.w : part.y);
        }
    }
}

/* ---- the kernel ---- */

/* What a block has in shared memory. */
struct shared_parts {
    uint8_t *ring, *scales, *x, *gain;
    float *sums;   /* two sets, used in turn, of [MMA_WARPS, sum_slots, tokens, TILE] */
    float *x_sums; /* INT4 */
};

static __device__ __forceinline__ shared_parts shared_of(const quantized_call &c, uint8_t *shared)
{
    shared_parts s;
    s.ring = shared;
    s.scales = s.ring + c.base.plan.stages * STAGE;
    s.sums = (float *)(s.scales + MMA_WARPS * c.scale_slots * scale_block_bytes(c.scale_size));
    s.x_sums = (float *)((uint8_t *)s.sums + c.sum_bytes);
    s.gain = (uint8_t *)s.x_sums + c.x_sum_bytes;
    s.x = s.gain + c.gain_bytes;
    return s;
}

/* The sums of x that multiply_int4 needs of all units. */
template <int GROUPS, bool SMALL>
static __device__ __forceinline__ void sum_units(const quantized_call &c, const block_work &work, const shared_parts &s)
{
    const int folds = SMALL ? 4 / c.fold_words : 1;
    uint32_t first[GROUPS], x[GROUPS];
    find_x<WEIGHT_INT4, GROUPS>(first, c, work, s.x);
    for (int unit = threadIdx.x / 32; unit < work.chunks; unit += MMA_WARPS) {
#pragma unroll
        for (int n = 0; n < GROUPS; n++) x[n] = first[n] + unit * 2 * INT4_SEGMENT;
        sum_x<GROUPS, SMALL>(x, c.fold_words, s.x_sums + unit * folds * GROUPS * 8);
    }
}

/* A warp's place in the ring and in the blocks of scales. */
struct unit_reader {
    int stage, scale_slot, scale_block;
};

/* `count` units of a tile from `unit` on; their sums. */
template <enum weight_format F, int GROUPS, bool SMALL>
static __device__ __forceinline__ void multiply_units(float (&total)[GROUPS][4], const quantized_call &c,
                                                      const unit_constants &k, const block_work &work,
                                                      const shared_parts &s, unit_copies &copies, unit_reader &reader,
                                                      const uint32_t (&first_x)[GROUPS], int tile, int unit, int count)
{
    constexpr int UNIT_X = 2 * UNIT_BYTES * (F == WEIGHT_INT4 ? 2 : 1);
    const int folds = SMALL ? 4 / c.fold_words : 1, row = threadIdx.x % 32 / 4 * SCALE_BLOCK;
    row_scales scales = find_scales(c, tile, SUM_FACTOR<F>);
    float sum[GROUPS][4] = {};
    const float *x_sums = s.x_sums + unit * folds * GROUPS * 8;
    uint32_t x[GROUPS];
#pragma unroll
    for (int n = 0; n < GROUPS; n++) x[n] = first_x[n] + unit * UNIT_X;
    reader.scale_block = -1;
#pragma unroll 1
    for (int i = 0; i < count; i++) {
        const uint32_t at = copies.ring + reader.stage * STAGE;
        wait_oldest(k.stages);
        const uint4 low = load_shared(at), high = load_shared(at + HALF_UNIT);
        const uint32_t group = group_of<F>(k.group_shift, work, unit + i);
        if (k.grouped && (int)(group / SCALE_BLOCK) != reader.scale_block) {
            __syncwarp();
            const uint32_t block = copies.scales + reader.scale_slot * scale_block_bytes(k.scale_size);
            scales.scale = block + row * k.scale_size;
            scales.zero = block + TILE * SCALE_BLOCK * k.scale_size + row;
            reader.scale_block = (int)(group / SCALE_BLOCK);
            if (++reader.scale_slot == c.scale_slots) reader.scale_slot = 0;
        }
        if constexpr (F == WEIGHT_INT4) {
            multiply_int4<GROUPS, SMALL>(total, low, high, x, k, c.fold_words, scales, group, x_sums);
            x_sums += folds * GROUPS * 8;
        } else {
            multiply_bytes<F, GROUPS>(sum, low, high, x);
            if (k.grouped) fold<F, GROUPS>(total, sum, load_group<F>(k, scales, group), NULL);
        }
#pragma unroll
        for (int n = 0; n < GROUPS; n++) x[n] += UNIT_X;
        copy_next<F>(copies, c, k, work, reader.stage);
        if (++reader.stage == k.stages) reader.stage = 0;
    }
    if (c.grouped) return;
#pragma unroll
    for (int n = 0; n < GROUPS; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) total[n][i] = scales.factor[i / 2] * sum[n][i];
}

/* What a batch leaves for its end: the tiles of which each warp has sums, and of which tiles this block has the last
 * part. */
struct batch_end {
    int first_tile[MMA_WARPS], last_tile[MMA_WARPS]; /* of the batch; last below first: none */
    bool is_last[MAX_BATCH];
};

/* Element i of a batch's results. */
template <class T>
static __device__ __forceinline__ tile_element<T> batch_element(const quantized_call &c, const block_work &work,
                                                                int first, int tiles, int i, int *tile)
{
    const matmul &m = c.base.matmul;
    const int size = (m.result == MATMUL_GATE ? TILE / 2 : TILE) * m.num_tokens;
    *tile = divide(i, c.element_inverse);
    if (*tile >= tiles) return {};
    return find_element<T, TILE>(m, tile_of(c, work, first + *tile), i - *tile * size);
}

/* Adds up the warps' sums of a batch and stores the results, or leaves the sums of this part for the block that
 * finishes a tile last. element: the thread's first one, of `tile`. */
template <class T, int COUNT>
static __device__ __forceinline__ void finish_batch(const quantized_call &c, const block_work &work, int first,
                                                    int tiles, tile_element<T> element, int tile, const float *sums,
                                                    batch_end *end)
{
    const matmul &m = c.base.matmul;
    const int size = (m.result == MATMUL_GATE ? TILE / 2 : TILE) * m.num_tokens, count = m.num_tokens * TILE;
    auto of_warps = [&](int of, int i) {
        float total = 0;
#pragma unroll
        for (int w = 0; w < MMA_WARPS; w++)
            if (of >= end->first_tile[w] && of <= end->last_tile[w])
                total += sums[(w * c.sum_slots + of - end->first_tile[w]) * COUNT + i];
        return total;
    };
    auto finish_all = [&](bool in_parts, auto total) {
        for (int i = threadIdx.x; i < tiles * size; i += MMA_THREADS) {
            if (i >= MMA_THREADS) element = batch_element<T>(c, work, first, tiles, i, &tile);
            if (!in_parts || end->is_last[tile]) finish<T, TILE>(m, element, total);
        }
    };
    if (c.base.plan.splits == 1) return finish_all(false, [&](int i) { return of_warps(tile, i); });
    for (int i = threadIdx.x; i < tiles * count; i += MMA_THREADS) {
        const int of = i / count;
        __stcg(&part_sums<COUNT>(c.base, tile_of(c, work, first + of), work.split)[i - of * count],
               of_warps(of, i - of * count));
    }
    __threadfence();
    mma_warps_sync();
    if ((int)threadIdx.x < tiles)
        end->is_last[threadIdx.x] = arrives_last(c.base, tile_of(c, work, first + (int)threadIdx.x));
    mma_warps_sync();
    __threadfence();
    finish_all(true, [&](int i) { return sum_of_parts<COUNT>(c.base, tile_of(c, work, first + tile), i); });
}

template <class T, enum weight_format F, int GROUPS, bool SMALL>
static __device__ __forceinline__ void multiply_batches(const quantized_call &c, const unit_constants &k,
                                                        const block_work &work, const shared_parts &s,
                                                        unit_copies &copies, batch_end *ends, const float *inverses)
{
    constexpr int COUNT = GROUPS * 8 * TILE;
    const int warp = threadIdx.x / 32;
    unit_reader reader = {};
    uint32_t x[GROUPS];
    find_x<F, GROUPS>(x, c, work, s.x);
    for (int batch = 0; batch * c.batch < work.tiles; batch++) {
        const int first = batch * c.batch, tiles = batch_tiles(c, work, batch), side = batch % 2;
        float *sums = s.sums + side * MMA_WARPS * c.sum_slots * COUNT;
        warp_share share = share_of(c, work, batch);
        int tile, slot = 0;
        const tile_element<T> element = batch_element<T>(c, work, first, tiles, threadIdx.x, &tile);
        if (threadIdx.x % 32 == 0) ends[side].first_tile[warp] = share.tile - first;
        for (; share.left > 0; share.tile++, share.unit = 0, slot++) {
            const int units = work.chunks - share.unit, count = share.left < units ? share.left : units;
            float total[GROUPS][4] = {};
            multiply_units<F, GROUPS, SMALL>(total, c, k, work, s, copies, reader, x, tile_of(c, work, share.tile),
                                             share.unit, count);
#pragma unroll
            for (int n = 0; n < GROUPS; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) total[n][i] *= inverses[8 * n + threadIdx.x % 4 * 2 + i % 2];
            leave_sums<TILE, GROUPS>(sums + (warp * c.sum_slots + slot) * COUNT, total);
            share.left -= count;
        }
        if (threadIdx.x % 32 == 0) ends[side].last_tile[warp] = share.tile - first - 1;
        mma_warps_sync();
        finish_batch<T, COUNT>(c, work, first, tiles, element, tile, sums, &ends[side]);
    }
}

template <class T, enum weight_format F, int GROUPS, bool SMALL>
static __global__ void __launch_bounds__(MMA_THREADS, 2)
    few_tokens_quantized_kernel(const __grid_constant__ quantized_call c)
{
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ batch_end ends[2];
    __shared__ float inverses[FEW_TOKENS_MAX]; /* of the powers of two that tokens were multiplied by */
    const shared_parts s = shared_of(c, shared);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const block_work work = work_of<F>(c);
    const unit_constants k = constants_of(c);
    let_next_start();
    unit_copies copies = {};
    copies.ring = shared_address(s.ring) + warp * 2 * HALF_UNIT + lane * 16;
    asm volatile("" : "+r"(copies.ring)); /* so that it is not computed again for each unit */
    copies.scales = shared_address(s.scales) + warp * c.scale_slots * scale_block_bytes(c.scale_size);
    copies.policy = evict_first_policy();
    copies.batch = -1;
    begin_batch<F>(copies, c, work);
    copy_gains(c.base.matmul, work, s.gain);
#pragma unroll 1
    for (int i = 0; i < c.base.plan.stages; i++) copy_next<F>(copies, c, k, work, i);
    x_facts *facts = (x_facts *)s.sums;
    if (c.base.matmul.gain) find_largest_gain<T>(c.base.matmul, work, facts);
    wait_for_previous();
    load_x<T, F>(c, work, s.x, facts);
    wait_oldest(c.base.plan.stages); /* for the gains */
    mma_warps_sync();
    prepare_x<T, F>(c, work, s.x, s.gain, facts, inverses);
    mma_warps_sync();
    if (F == WEIGHT_INT4) {
        sum_units<GROUPS, SMALL>(c, work, s);
        mma_warps_sync();
    }
    multiply_batches<T, F, GROUPS, SMALL>(c, k, work, s, copies, ends, inverses);
}

/* ---- the host's side ---- */

template <class T, enum weight_format F, bool SMALL> static auto kernel_of(const struct matmul *m)
{
    return token_groups(m) == 1 ? few_tokens_quantized_kernel<T, F, 1, SMALL>
                                : few_tokens_quantized_kernel<T, F, 2, SMALL>;
}

bool few_tokens_quantized(struct backend *b, const char *operation, const struct matmul *m)
{
    const struct matmul_device device = matmul_device_of(b);
    struct quantized_call call;
    if (!few_tokens_quantized_lay_out(&device, m, &call)) return false;
    few_tokens_find_partials(b, &call.base);
    matmul_dispatch(m, [&](auto zero) {
        using T = decltype(zero);
        auto *kernel = m->format == WEIGHT_FP8    ? kernel_of<T, WEIGHT_FP8, false>(m)
                       : m->format == WEIGHT_INT8 ? kernel_of<T, WEIGHT_INT8, false>(m)
                       : call.fold_words < 4      ? kernel_of<T, WEIGHT_INT4, true>(m)
                                                  : kernel_of<T, WEIGHT_INT4, false>(m);
        cuda_run_dependent(b, operation, kernel,
                           {dim3(call.base.plan.blocks), MMA_THREADS, call.base.plan.shared_bytes}, call);
    });
    return true;
}
