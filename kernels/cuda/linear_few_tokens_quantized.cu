/* Matmuls of quantized weights with few tokens (quantized.cuh has the formats). The cost is to read the weights once,
 * at the speed of memory, and to decode them meanwhile.
 *
 * Two blocks run on each multiprocessor and walk the tiles of 16 output features. What a warp multiplies at a time is a
 * unit: 64 bytes of each row of a tile, which are 128 input features of INT4 and 64 of the others. The warps of a block
 * take the units of a tile in turn, and their sums are added at its end. A unit comes through a ring that is the
 * warp's own. Even less is shared: a lane copies the very bytes that it decodes itself, so a unit that has arrived
 * needs no barrier.
 *
 *     a tile:    row  0 | unit 0: warp 0 | unit 1: warp 1 | ... | unit 8: warp 0 | ...
 *                ...
 *                row 15 |
 *
 *     a unit:    row  g | 16 bytes: lane (g, 0) | lane (g, 1) | lane (g, 2) | lane (g, 3) |        g = 0 .. 7
 *             row g + 8 | the same lanes                                                  |
 *
 * The first copies start before the previous kernel has ended, because weights do not depend on it (dependent.cuh), and
 * go on while x is copied and normed. A block that ends makes room for one of the next kernel.
 *
 * The matmul runs on tensor cores (mma.cuh) with the rows of a tile as M and 8 tokens as N. The order in which a lane
 * multiplies input features does not matter as long as it is the same for both operands. INT4 was reordered, so x is in
 * its natural order. Of FP8 and INT8 a lane has 16 consecutive input features, and decoding makes pairs of the bytes 0
 * and 2, 1 and 3 of a word; x is put into that order on its way to shared memory.
 *
 * Decoding has to be cheap, so what can be done for a whole unit is done to its sums:
 * - FP8 in bfloat16 is too small by 2^120. x is made larger by 2^32, and the sums by the rest. All of this is exact.
 * - INT4 is multiplied as INT4_OFFSET + v, or as v 2^-24, a subnormal float16. The offset and the zero, times the sum
 * of x over the group, are subtracted from the sum. The sums of x come from the tensor cores too: x times ones.
 * - Scales of groups are copied for a tile with its first units. */
#include "kernels/cuda/cache_policy.cuh"
#include "kernels/cuda/copy_async.cuh"
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/linear_tile.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/quantized.cuh"

enum {
    TILE = 16,
    UNIT_BYTES = 64,                   /* of a row */
    HALF_UNIT = TILE / 2 * UNIT_BYTES, /* rows 0 to 7 of a unit, or rows 8 to 15 */
    STAGE = MMA_WARPS * 2 * HALF_UNIT,
    MIN_STAGES = 4,
    MAX_STAGES = 10,
    X_SKEW = 16, /* bytes between the tokens of x, so that eight tokens lie in different banks */
    ROW_THREADS = MMA_THREADS / TILE,
    WHOLE_ROW = 31 /* group_shift: one group */
};

struct quantized_call {
    struct few_tokens_call base;
    int32_t units;       /* of a row of the largest part */
    int32_t rounds;      /* units of a warp; those beyond the last one are not there */
    bool grouped;        /* scales are of groups, not of rows; always so for INT4 */
    int32_t group_shift; /* log2(group_size), or WHOLE_ROW */
    int32_t scale_shift; /* log2(scale_rows) */
    int32_t groups;      /* of a row */
    int32_t fold_words;  /* INT4: words of a lane's piece (32 input features each) whose sums get a scale together */
    int32_t scale_size;
    /* Scales and zeros of a tile in shared memory: bytes from row to row, and of all; tiles that there is room for. */
    int32_t scale_pitch, zero_pitch, scale_stages;
    int32_t sum_bytes, gain_bytes, x_sum_bytes; /* in shared memory */
};

static inline __host__ __device__ int unit_features(enum weight_format format)
{
    return format == WEIGHT_INT4 ? 2 * UNIT_BYTES : UNIT_BYTES;
}

/* Units of this part. */
template <enum weight_format F> static __device__ __forceinline__ int units_of(const block_part &p)
{
    return (p.size + unit_features(F) - 1) / unit_features(F);
}

/* What x is multiplied by on its way to shared memory, and the sums later. */
template <class T, enum weight_format F>
static constexpr float X_FACTOR = F == WEIGHT_FP8 && !std::is_same_v<T, __half> ? 0x1p32f : 1;
template <class T, enum weight_format F>
static constexpr float SUM_FACTOR = F == WEIGHT_FP8                                ? FP8_FACTOR<T> / X_FACTOR<T, F>
                                    : F == WEIGHT_INT4 &&std::is_same_v<T, __half> ? 0x1p24f
                                                                                   : 1;

/* ---- the ring ---- */

template <int stages> static __device__ __forceinline__ void wait_stages()
{
    copy_async_wait<stages - 1>();
}

/* Waits until the oldest of so many stages has arrived. */
static __device__ __forceinline__ void wait_oldest(int stages)
{
    switch (stages) {
    case 10:
        return wait_stages<10>();
    case 8:
        return wait_stages<8>();
    case 6:
        return wait_stages<6>();
    default:
        return wait_stages<MIN_STAGES>();
    }
}

/* A lane's copies of weights, and with the first unit of a tile its share of the tile's scales and zeros. */
struct unit_copies {
    uint32_t ring;   /* the lane's place in the first stage */
    uint32_t scales; /* the first tile's */
    int64_t tile;    /* of the next unit; beyond the last one: there is nothing left to copy */
    int round;       /* of the tile */
    int scale_stage;
    const uint8_t *low, *high; /* what the lane copies next, of rows g and g + 8 */
    int low_left, high_left;   /* bytes from there to the end of the part; 0 or less: there is nothing to copy */
    uint64_t policy;
};

/* Copies `bytes` bytes, which may begin anywhere, in pieces of 16 bytes from the multiple of 16 before them on; piece
 * j of ROW_THREADS threads. */
static __device__ __forceinline__ void copy_unaligned(uint32_t to, const void *from, int bytes, int j)
{
    const int before = (int)((uintptr_t)from & 15);
#pragma unroll 1
    for (int at = j * 16; at < before + bytes; at += ROW_THREADS * 16) {
        const int left = before + bytes - at;
        copy_async_bytes(to + at, (const uint8_t *)from - before + at, left < 16 ? left : 16);
    }
}

/* Where the scales of an output feature begin that are for the part's groups, and how many there are. */
struct group_range {
    int64_t first;
    int count;
};

static __device__ __forceinline__ group_range groups_of(const quantized_call &c, const block_part &p)
{
    const int first = (int)(p.begin >> c.group_shift), last = (int)((p.begin + p.size - 1) >> c.group_shift);
    return {first, last - first + 1};
}

static __device__ __forceinline__ const uint8_t *scales_of(const quantized_call &c, int64_t feature, int64_t group)
{
    const matmul &m = c.base.matmul;
    return (const uint8_t *)m.scales + ((feature >> c.scale_shift) * c.groups + group) * c.scale_size;
}

static __device__ __forceinline__ const uint8_t *zeros_of(const quantized_call &c, int64_t feature, int64_t group)
{
    return c.base.matmul.zeros + feature * c.groups + group;
}

static __device__ __forceinline__ void copy_scales(const quantized_call &c, const block_part &p, uint32_t to,
                                                   int64_t tile)
{
    const int row = threadIdx.x / ROW_THREADS, j = threadIdx.x % ROW_THREADS;
    const int64_t feature = feature_of<TILE>(c.base.matmul, tile, row);
    const group_range groups = groups_of(c, p);
    if (feature < 0) return;
    copy_unaligned(to + row * c.scale_pitch, scales_of(c, feature, groups.first), groups.count * c.scale_size, j);
    if (c.base.matmul.zeros)
        copy_unaligned(to + TILE * c.scale_pitch + row * c.zero_pitch, zeros_of(c, feature, groups.first), groups.count,
                       j);
}

template <enum weight_format F>
static __device__ __forceinline__ void begin_tile(unit_copies &copies, const quantized_call &c, const block_part &p)
{
    constexpr int density = F == WEIGHT_INT4 ? 2 : 1; /* input features of a byte */
    const matmul &m = c.base.matmul;
    const int g = threadIdx.x % 32 / 4, byte = threadIdx.x / 32 * UNIT_BYTES + threadIdx.x % 4 * 16;
    const bool is_there = copies.tile < p.tiles;
    const int64_t low = is_there ? feature_of<TILE>(m, copies.tile, g) : -1;
    const int64_t high = is_there ? feature_of<TILE>(m, copies.tile, g + 8) : -1;
    const uint8_t *first = (const uint8_t *)m.weight + p.begin / density + byte;
    copies.round = 0;
    copies.low = first + (low < 0 ? 0 : low) * (m.in_features / density);
    copies.high = first + (high < 0 ? 0 : high) * (m.in_features / density);
    copies.low_left = low < 0 ? 0 : p.size / density - byte;
    copies.high_left = high < 0 ? 0 : p.size / density - byte;
}

/* Starts the copies of the warp's next unit, to a stage. */
template <enum weight_format F>
static __device__ __forceinline__ void copy_next(unit_copies &copies, const quantized_call &c, const block_part &p,
                                                 int stage)
{
    const uint32_t to = copies.ring + stage * STAGE;
    if (copies.low_left > 0) copy_async(to, copies.low, true, copies.policy);
    if (copies.high_left > 0) copy_async(to + HALF_UNIT, copies.high, true, copies.policy);
    if (c.grouped && copies.round == 0 && copies.tile < p.tiles) {
        copy_scales(c, p, copies.scales + copies.scale_stage * TILE * (c.scale_pitch + c.zero_pitch), copies.tile);
        if (++copies.scale_stage == c.scale_stages) copies.scale_stage = 0;
    }
    copy_async_commit();
    copies.low += MMA_WARPS * UNIT_BYTES, copies.high += MMA_WARPS * UNIT_BYTES;
    copies.low_left -= MMA_WARPS * UNIT_BYTES, copies.high_left -= MMA_WARPS * UNIT_BYTES;
    if (++copies.round < c.rounds) return;
    copies.tile += p.tile_step;
    begin_tile<F>(copies, c, p);
}

/* ---- x ---- */

/* Eight elements of x in the order in which lanes multiply them, times X_FACTOR. */
template <class T, enum weight_format F> static __device__ __forceinline__ uint4 arrange(uint4 x)
{
    if constexpr (F == WEIGHT_INT4) return x;
    if constexpr (X_FACTOR<T, F> != 1) {
        const uint32_t factor = pair_of<T>(X_FACTOR<T, F>);
        x = {multiply_pairs<T>(x.x, factor), multiply_pairs<T>(x.y, factor), multiply_pairs<T>(x.z, factor),
             multiply_pairs<T>(x.w, factor)};
    }
    return {__byte_perm(x.x, x.y, 0x5410), __byte_perm(x.x, x.y, 0x7632), __byte_perm(x.z, x.w, 0x5410),
            __byte_perm(x.z, x.w, 0x7632)};
}

/* The threads that share a token while x is copied, a power of two of them: a thread has pieces first, first + step,
 * ... of eight elements. */
struct token_share {
    int token, token_step, warps, first, step;
};

static __device__ __forceinline__ token_share share_tokens(int tokens)
{
    const int shift = tokens == 1 ? 3 : tokens == 2 ? 2 : tokens <= 4 ? 1 : 0, threads = 32 << shift;
    return {(int)threadIdx.x / 32 >> shift, MMA_WARPS >> shift, 1 << shift, (int)threadIdx.x & (threads - 1), threads};
}

/* Copies the part's input features of x to shared memory, with zeros up to the end of the last unit. If there is a
 * norm, they are left as they are, and sums[token][warp] gets the squares of all input features. */
template <class T, enum weight_format F>
static __device__ __forceinline__ void load_x(const quantized_call &c, const block_part &p, uint8_t *x, float *sums)
{
    enum { BATCH = 4 };
    const matmul &m = c.base.matmul;
    const token_share share = share_tokens(m.num_tokens);
    const int all = (int)m.in_features / 8, begin = (int)p.begin / 8, padded = c.units * unit_features(F) / 8;
    const int low = m.gain ? 0 : begin, high = m.gain && all > begin + padded ? all : begin + padded;
    for (int token = share.token; token < m.num_tokens; token += share.token_step) {
        const uint4 *from = (const uint4 *)((const T *)m.x + token * m.x_stride);
        uint4 *to = (uint4 *)(x + token * p.x_row);
        float sum = 0;
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
                if (piece >= 0 && piece < padded) to[piece] = m.gain ? values[k] : arrange<T, F>(values[k]);
            }
        }
        if (!m.gain) continue;
        for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
        if (threadIdx.x % 32 == 0) sums[token * MMA_WARPS + (threadIdx.x / 32 & (share.warps - 1))] = sum;
    }
}

/* rms_norm of what load_x left; each thread norms what it has copied. gain: the part's. */
template <class T, enum weight_format F>
static __device__ __forceinline__ void norm_part(const quantized_call &c, const block_part &p, uint8_t *x,
                                                 const uint8_t *gain, const float *sums)
{
    const matmul &m = c.base.matmul;
    const token_share share = share_tokens(m.num_tokens);
    const int begin = (int)p.begin / 8, padded = c.units * unit_features(F) / 8, size = p.size / 8;
    for (int token = share.token; token < m.num_tokens; token += share.token_step) {
        float sum = 0;
        for (int i = 0; i < share.warps; i++) sum += sums[token * MMA_WARPS + i];
        const float factor = rsqrtf(sum / (float)m.in_features + m.eps);
        /* the first piece of the part that load_x gave to this thread */
        const int first = (share.first - begin) & (share.step - 1);
#pragma unroll 2
        for (int i = first; i < padded; i += share.step) {
            uint4 *words = (uint4 *)(x + token * p.x_row) + i;
            if (i >= size) break; /* zeros */
            *words = arrange<T, F>(m.gain_is_float ? normalize<T>(*words, (const float *)gain + i * 8, factor)
                                                   : normalize<T>(*words, (const T *)gain + i * 8, factor));
        }
    }
}

static __device__ __forceinline__ void copy_gains(const matmul &m, const block_part &p, uint8_t *gain)
{
    const int size = m.gain_is_float ? 4 : 2;
    if (!m.gain) return;
#pragma unroll 1
    for (int i = threadIdx.x * 16; i < p.size * size; i += MMA_THREADS * 16)
        copy_async(shared_address(gain + i), (const uint8_t *)m.gain + p.begin * size + i, true);
}

/* Four 8x8 matrices of 16-bit elements: lane (g, t) gets elements 2 t and 2 t + 1 of row g of each. Lane i gives the
 * address of row i % 8 of matrix i / 8. */
static __device__ __forceinline__ uint4 load_matrices(uint32_t row)
{
    uint4 out;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
                 : "r"(row)
                 : "memory");
    return out;
}

/* ---- units ---- */

/* A lane's places in x: where it reads of each 8 tokens. A token that is not there is the first one; its sums are not
 * used. */
template <enum weight_format F, int GROUPS>
static __device__ __forceinline__ void find_x(uint32_t (&at)[GROUPS], const quantized_call &c, const block_part &p,
                                              const uint8_t *x)
{
    const int lane = threadIdx.x % 32, row = F == WEIGHT_INT4 ? lane % 8 : lane / 4;
    const int within = F == WEIGHT_INT4 ? lane / 8 * 16 : lane % 4 * 32;
#pragma unroll
    for (int n = 0; n < GROUPS; n++) {
        const int token = 8 * n + row < c.base.matmul.num_tokens ? 8 * n + row : 0;
        at[n] = shared_address(x) + token * p.x_row + within + threadIdx.x / 32 * unit_features(F) * 2;
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

static __device__ __forceinline__ uint32_t word_of(const uint4 &words, int i)
{
    return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}

/* A pair of INT4 as it is multiplied; see above. */
template <class T> static __device__ __forceinline__ uint32_t raw_pair(uint32_t word, int i)
{
    if constexpr (std::is_same_v<T, __half>) return word >> 4 * i & 0x000f000f;
    return masked_with(word >> 4 * i, 0x000f000f, INT4_BITS<T>);
}
template <class T> static constexpr float RAW_OFFSET = std::is_same_v<T, __half> ? 0.0f : INT4_OFFSET<T>;

/* Where the scales and zeros of the lane's two rows are. */
struct row_scales {
    uint32_t scale[2], zero[2]; /* in shared memory, if grouped */
    float factor[2];            /* of the whole row, if not */
};

static __device__ __forceinline__ float to_scale(uint32_t bits, enum dtype dtype)
{
    if (dtype == DTYPE_FLOAT16) return to_float(__ushort_as_half((uint16_t)bits));
    return __uint_as_float(dtype == DTYPE_FLOAT32 ? bits : bits << 16);
}

static __device__ __forceinline__ float load_scale(uint32_t address, enum dtype dtype)
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

static __device__ __forceinline__ float load_zero(uint32_t address)
{
    uint32_t zero;
    asm volatile("ld.shared.u8 %0, [%1];\n" : "=r"(zero) : "r"(address) : "memory");
    return (float)zero;
}

static __device__ __forceinline__ row_scales find_scales(const quantized_call &c, const block_part &p, int64_t tile,
                                                         uint32_t staged, float factor)
{
    const matmul &m = c.base.matmul;
    const int64_t first_group = p.begin >> c.group_shift;
    row_scales out = {};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = threadIdx.x % 32 / 4 + 8 * i;
        const int64_t feature = feature_of<TILE>(m, tile, row);
        if (feature < 0) continue;
        const uint8_t *scale = scales_of(c, feature, first_group);
        out.scale[i] = staged + row * c.scale_pitch + (uint32_t)((uintptr_t)scale & 15);
        if (m.zeros)
            out.zero[i] = staged + TILE * c.scale_pitch + row * c.zero_pitch +
                          (uint32_t)((uintptr_t)zeros_of(c, feature, first_group) & 15);
        if (!c.grouped)
            out.factor[i] =
                factor * (m.scale_dtype == DTYPE_FLOAT32 ? *(const float *)scale
                                                         : to_scale(*(const uint16_t *)scale, m.scale_dtype));
    }
    return out;
}

/* total += scale * sum, sum = 0. x_sums: INT4: the sums of x over the group, [tokens]. */
template <class T, enum weight_format F, int GROUPS>
static __device__ __forceinline__ void fold(float (&total)[GROUPS][4], float (&sum)[GROUPS][4], const quantized_call &c,
                                            const row_scales &scales, int group, const float *x_sums)
{
    float scale[2], offset[2] = {};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        scale[i] = load_scale(scales.scale[i] + group * c.scale_size, c.base.matmul.scale_dtype) * SUM_FACTOR<T, F>;
        if (F == WEIGHT_INT4)
            offset[i] =
                -(RAW_OFFSET<T> + (c.base.matmul.zeros ? load_zero(scales.zero[i] + group) : 8.0f)) / SUM_FACTOR<T, F>;
    }
#pragma unroll
    for (int n = 0; n < GROUPS; n++) {
        float2 x_sum = {};
        if (F == WEIGHT_INT4) x_sum = *(const float2 *)(x_sums + 8 * n + threadIdx.x % 4 * 2);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (F == WEIGHT_INT4) sum[n][i] += offset[i / 2] * (i % 2 ? x_sum.y : x_sum.x);
            total[n][i] += scale[i / 2] * sum[n][i];
            sum[n][i] = 0;
        }
    }
}

/* Whether word w of a lane's piece of INT4 is the last one of its group. SMALL: groups may be smaller than a unit. */
template <bool SMALL> static __device__ __forceinline__ bool ends_group(int w, int fold_words)
{
    return w == 3 || (SMALL && ((w + 1) & (fold_words - 1)) == 0);
}

/* x_sums: [groups of the part, or units where a group has several][8 GROUPS]; here of this unit. */
template <class T, int GROUPS, bool SMALL>
static __device__ __forceinline__ void multiply_int4(float (&total)[GROUPS][4], uint4 low, uint4 high,
                                                     const uint32_t (&x)[GROUPS], const quantized_call &c,
                                                     const row_scales &scales, int first_group, const float *x_sums)
{
    float sum[GROUPS][4] = {};
    int folds = 0;
#pragma unroll
    for (int w = 0; w < 4; w++) {
        const uint32_t l = word_of(low, w), h = word_of(high, w);
        const uint32_t first[4] = {raw_pair<T>(l, 0), raw_pair<T>(h, 0), raw_pair<T>(l, 1), raw_pair<T>(h, 1)};
        const uint32_t second[4] = {raw_pair<T>(l, 2), raw_pair<T>(h, 2), raw_pair<T>(l, 3), raw_pair<T>(h, 3)};
#pragma unroll
        for (int n = 0; n < GROUPS; n++) {
            const uint4 y = load_matrices(x[n] + w * 64);
            multiply_add<T>(sum[n], first, y.x, y.y);
            multiply_add<T>(sum[n], second, y.z, y.w);
        }
        if (!ends_group<SMALL>(w, c.fold_words)) continue;
        fold<T, WEIGHT_INT4, GROUPS>(total, sum, c, scales, first_group + folds, x_sums + folds * GROUPS * 8);
        folds++;
    }
}

/* The sums of x that multiply_int4 needs of this unit. */
template <class T, int GROUPS, bool SMALL>
static __device__ __forceinline__ void sum_x(const uint32_t (&x)[GROUPS], int fold_words, float *x_sums)
{
    const uint32_t one = pair_of<T>(1), ones[4] = {one, one, one, one};
    float sum[GROUPS][4] = {};
#pragma unroll
    for (int w = 0; w < 4; w++) {
#pragma unroll
        for (int n = 0; n < GROUPS; n++) {
            const uint4 y = load_matrices(x[n] + w * 64);
            multiply_add<T>(sum[n], ones, y.x, y.y);
            multiply_add<T>(sum[n], ones, y.z, y.w);
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

template <class T, enum weight_format F, int GROUPS>
static __device__ __forceinline__ void multiply_bytes(float (&sum)[GROUPS][4], uint4 low, uint4 high,
                                                      const uint32_t (&x)[GROUPS])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t a[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint32_t l = word_of(low, 2 * half + i), h = word_of(high, 2 * half + i);
            if constexpr (F == WEIGHT_FP8) {
                fp8_pairs<T>(l, a[i][0], a[i][2]);
                fp8_pairs<T>(h, a[i][1], a[i][3]);
            } else {
                int8_pairs<T>(l, a[i][0], a[i][2]);
                int8_pairs<T>(h, a[i][1], a[i][3]);
            }
        }
#pragma unroll
        for (int n = 0; n < GROUPS; n++) {
            const uint4 y = load_shared(x[n] + half * 16);
            multiply_add<T>(sum[n], a[0], y.x, y.y);
            multiply_add<T>(sum[n], a[1], y.z, y.w);
        }
    }
}

/* ---- the kernel ---- */

/* What a block has in shared memory. */
struct shared_parts {
    uint8_t *ring, *scales, *x, *gain;
    float *sums;   /* two sets of [MMA_WARPS, tokens, TILE], used in turn */
    float *x_sums; /* INT4 */
};

static __device__ __forceinline__ shared_parts shared_of(const quantized_call &c, uint8_t *shared)
{
    shared_parts s;
    s.ring = shared;
    s.scales = s.ring + c.base.plan.stages * STAGE;
    s.sums = (float *)(s.scales + c.scale_stages * TILE * (c.scale_pitch + c.zero_pitch));
    s.x_sums = (float *)((uint8_t *)s.sums + c.sum_bytes);
    s.gain = (uint8_t *)s.x_sums + c.x_sum_bytes;
    s.x = s.gain + c.gain_bytes;
    return s;
}

template <class T, enum weight_format F, int GROUPS, bool SMALL>
static __device__ __forceinline__ void multiply_tiles(const quantized_call &c, const block_part &p,
                                                      const shared_parts &s, unit_copies &copies, int *is_last)
{
    constexpr int COUNT = GROUPS * 8 * TILE, UNIT_X = 2 * UNIT_BYTES * (F == WEIGHT_INT4 ? 2 : 1);
    const int warp = threadIdx.x / 32, stages = c.base.plan.stages, units = units_of<F>(p);
    const int folds = SMALL ? 4 / c.fold_words : 1;
    const int first_group = (int)(p.begin >> c.group_shift);
    int side = 0, stage = 0, scale_stage = 0;
    uint32_t first_x[GROUPS];
    find_x<F, GROUPS>(first_x, c, p, s.x);
    for (int64_t tile = p.first_tile; tile < p.tiles; tile += p.tile_step) {
        const result_place place = find_place<T, TILE>(c.base.matmul, tile);
        const uint32_t staged = shared_address(s.scales) + scale_stage * TILE * (c.scale_pitch + c.zero_pitch);
        const row_scales scales = find_scales(c, p, tile, staged, SUM_FACTOR<T, F>);
        float total[GROUPS][4] = {}, sum[GROUPS][4] = {};
        for (int round = 0; round < c.rounds; round++) {
            const int unit = round * MMA_WARPS + warp;
            wait_oldest(stages);
            const uint4 low = load_shared(copies.ring + stage * STAGE);
            const uint4 high = load_shared(copies.ring + stage * STAGE + HALF_UNIT);
            if (unit < units) {
                uint32_t x[GROUPS];
#pragma unroll
                for (int n = 0; n < GROUPS; n++) x[n] = first_x[n] + round * MMA_WARPS * UNIT_X;
                const int group = (int)((p.begin + unit * unit_features(F)) >> c.group_shift) - first_group;
                if constexpr (F == WEIGHT_INT4) {
                    multiply_int4<T, GROUPS, SMALL>(total, low, high, x, c, scales, group,
                                                    s.x_sums + unit * folds * GROUPS * 8);
                } else {
                    multiply_bytes<T, F, GROUPS>(sum, low, high, x);
                    if (c.grouped) fold<T, F, GROUPS>(total, sum, c, scales, group, NULL);
                }
            }
            copy_next<F>(copies, c, p, stage);
            if (++stage == stages) stage = 0;
        }
        if (!c.grouped) {
#pragma unroll
            for (int n = 0; n < GROUPS; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) total[n][i] = scales.factor[i / 2] * sum[n][i];
        }
        leave_sums<TILE, GROUPS>(s.sums + (side * MMA_WARPS + warp) * COUNT, total);
        wait_oldest(stages); /* so that the barrier shows the scales of the next tile to all */
        mma_warps_sync();
        finish_tile<T, TILE, COUNT>(c.base, p, tile, place, s.sums + side * MMA_WARPS * COUNT, is_last);
        side ^= 1;
        if (++scale_stage == c.scale_stages) scale_stage = 0;
    }
}

template <class T, enum weight_format F, int GROUPS, bool SMALL>
static __global__ void __launch_bounds__(MMA_THREADS, 2)
    few_tokens_quantized_kernel(const __grid_constant__ quantized_call c)
{
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ int is_last;
    const shared_parts s = shared_of(c, shared);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    block_part p = find_part<TILE>(c.base.plan, c.base.matmul);
    p.x_row = c.units * unit_features(F) * 2 + X_SKEW;
    let_next_start();
    unit_copies copies = {};
    copies.ring = shared_address(s.ring) + warp * 2 * HALF_UNIT + lane * 16;
    asm volatile("" : "+r"(copies.ring));
    copies.scales = shared_address(s.scales);
    copies.policy = evict_first_policy();
    copies.tile = p.first_tile;
    begin_tile<F>(copies, c, p);
    copy_gains(c.base.matmul, p, s.gain);
    for (int i = 0; i < c.base.plan.stages; i++) copy_next<F>(copies, c, p, i);
    wait_for_previous();
    load_x<T, F>(c, p, s.x, s.sums);
    wait_oldest(c.base.plan.stages);
    mma_warps_sync();
    if (c.base.matmul.gain) {
        norm_part<T, F>(c, p, s.x, s.gain, s.sums);
        mma_warps_sync();
    }
    if (F == WEIGHT_INT4) {
        uint32_t x[GROUPS];
        find_x<F, GROUPS>(x, c, p, s.x);
        for (int unit = warp; unit < units_of<F>(p); unit += MMA_WARPS) {
            sum_x<T, GROUPS, SMALL>(x, c.fold_words, s.x_sums + unit * (4 / c.fold_words) * GROUPS * 8);
#pragma unroll
            for (int n = 0; n < GROUPS; n++) x[n] += MMA_WARPS * 2 * INT4_SEGMENT;
        }
        __syncwarp();
    }
    multiply_tiles<T, F, GROUPS, SMALL>(c, p, s, copies, &is_last);
}

/* ---- the host's side ---- */

static bool can_compute(const struct matmul *m, int64_t groups)
{
    const int features = m->format == WEIGHT_INT4 ? INT4_SEGMENT : 16, smallest = m->format == WEIGHT_INT4 ? 32 : 64;
    const bool shape = m->num_tokens >= 1 && m->num_tokens <= FEW_TOKENS_MAX && m->in_features > 0 &&
                       m->in_features % features == 0 && m->in_features <= INT32_MAX / 64 && m->out_features > 0 &&
                       tile_count<TILE>(m) <= INT32_MAX / 64;
    const bool aligned = cuda_is_aligned(m->weight) && cuda_is_aligned(m->x) && m->x_stride % 8 == 0 &&
                         (!m->gain || cuda_is_aligned(m->gain));
    const bool grouping = (m->scale_rows & (m->scale_rows - 1)) == 0 &&
                          (groups == 1 || (m->group_size >= smallest && (m->group_size & (m->group_size - 1)) == 0));
    return shape && aligned && grouping;
}

static int token_groups(const struct matmul *m)
{
    return m->num_tokens <= 8 ? 1 : 2;
}

/* Bytes from row to row for `bytes` bytes that begin anywhere: an odd multiple of 16, so that eight rows lie in
 * different banks. */
static int32_t pitch_of(int64_t bytes)
{
    return (int32_t)(cuda_div_up(bytes + 15, 32) * 32 + 16);
}

/* What follows from the size of a part: everything but the ring. Returns the bytes of shared memory. */
static int64_t lay_out(const struct matmul *m, int32_t stages, struct quantized_call *c)
{
    const int features = unit_features(m->format), tokens = 8 * token_groups(m);
    const int64_t groups = (c->base.plan.part >> c->group_shift) + 2;
    c->units = c->base.plan.part / features;
    c->rounds = (int32_t)cuda_div_up(c->units, MMA_WARPS);
    c->scale_pitch = c->grouped ? pitch_of(groups * c->scale_size) : 0;
    c->zero_pitch = c->grouped && m->zeros ? pitch_of(groups) : 0;
    c->scale_stages = c->grouped ? (int32_t)cuda_div_up(stages, c->rounds) + 1 : 0;
    c->sum_bytes = 2 * MMA_WARPS * tokens * TILE * (int32_t)sizeof(float);
    c->x_sum_bytes = m->format == WEIGHT_INT4 ? c->units * (4 / c->fold_words) * tokens * (int32_t)sizeof(float) : 0;
    c->gain_bytes = m->gain ? c->base.plan.part * (m->gain_is_float ? 4 : 2) : 0;
    c->base.plan.stages = stages;
    c->base.plan.x_bytes = m->num_tokens * (2 * c->base.plan.part + X_SKEW);
    const int64_t bytes = (int64_t)stages * STAGE + c->scale_stages * TILE * (c->scale_pitch + c->zero_pitch) +
                          c->sum_bytes + c->x_sum_bytes + c->gain_bytes + c->base.plan.x_bytes;
    c->base.plan.shared_bytes = (int32_t)bytes;
    return bytes;
}

/* Two blocks for each multiprocessor if they fit, with tiles in as few parts as possible and the longest ring. */
static bool plan_quantized(const struct cuda_state *s, const struct matmul *m, struct quantized_call *c)
{
    const int64_t units = cuda_div_up(m->in_features, unit_features(m->format)), tiles = tile_count<TILE>(m);
    const int64_t sums = (int64_t)token_groups(m) * 8 * TILE * (int64_t)sizeof(float);
    const int most = getenv("QF_STAGES") ? atoi(getenv("QF_STAGES")) : MAX_STAGES;
    for (int per_sm = getenv("QF_PER_SM") ? atoi(getenv("QF_PER_SM")) : 2; per_sm > 0; per_sm--)
        for (int32_t splits = 1; splits <= 16; splits *= 2) {
            const int64_t part = cuda_div_up(units, splits) * unit_features(m->format);
            const int64_t room = (s->max_shared_bytes + 1024) / per_sm - 2048, columns = s->num_sms * per_sm / splits;
            if (splits > 1 && ((splits - 1) * part >= m->in_features || !s->regions[CUDA_USER_LINEAR].data ||
                               tiles > MAX_SPLIT_TILES || splits * tiles * sums > PARTIAL_BYTES))
                break;
            struct few_tokens_plan *plan = &c->base.plan;
            plan->splits = splits;
            plan->part = (int32_t)part;
            plan->chunk = unit_features(m->format);
            plan->blocks = (int32_t)(columns < tiles ? columns : tiles) * splits;
            for (int stages = most; stages >= MIN_STAGES; stages -= 2)
                if (lay_out(m, stages, c) <= room) return true;
        }
    return false;
}

template <class T, enum weight_format F, int GROUPS, bool SMALL>
static void launch(struct backend *b, const char *operation, const struct quantized_call *call)
{
    const struct few_tokens_plan *plan = &call->base.plan;
    auto *kernel = few_tokens_quantized_kernel<T, F, GROUPS, SMALL>;
    const struct cuda_state *s = cuda_use(b);
    if (!cuda_allow_shared(b, operation, kernel, plan->shared_bytes)) return;
    cuda_launch_dependent(s, kernel, {dim3(plan->blocks), MMA_THREADS, plan->shared_bytes}, *call);
    cuda_check_launch(b, operation);
}

template <class T, enum weight_format F, bool SMALL>
static void launch_groups(struct backend *b, const char *operation, const struct quantized_call *call)
{
    if (token_groups(&call->base.matmul) == 1) {
        launch<T, F, 1, SMALL>(b, operation, call);
    } else {
        launch<T, F, 2, SMALL>(b, operation, call);
    }
}

template <class T>
static void launch_format(struct backend *b, const char *operation, const struct quantized_call *call)
{
    switch (call->base.matmul.format) {
    case WEIGHT_FP8:
        return launch_groups<T, WEIGHT_FP8, false>(b, operation, call);
    case WEIGHT_INT8:
        return launch_groups<T, WEIGHT_INT8, false>(b, operation, call);
    default:
        return call->fold_words < 4 ? launch_groups<T, WEIGHT_INT4, true>(b, operation, call)
                                    : launch_groups<T, WEIGHT_INT4, false>(b, operation, call);
    }
}

bool few_tokens_quantized(struct backend *b, const char *operation, const struct matmul *m)
{
    const int64_t groups = cuda_div_up(m->in_features, m->group_size);
    uint8_t *workspace = cuda_state(b)->regions[CUDA_USER_LINEAR].data;
    struct quantized_call call = {};
    if (!can_compute(m, groups)) return false;
    call.base.matmul = *m;
    call.grouped = groups > 1 || m->format == WEIGHT_INT4;
    call.groups = (int32_t)groups;
    call.scale_shift = __builtin_ctzll((uint64_t)m->scale_rows);
    call.group_shift = groups == 1 ? WHOLE_ROW : __builtin_ctzll((uint64_t)m->group_size);
    call.fold_words = groups == 1 || m->group_size >= INT4_SEGMENT ? 4 : (int32_t)m->group_size / 32;
    call.scale_size = dtype_size(m->scale_dtype);
    if (!plan_quantized(cuda_state(b), m, &call)) return false;
    if (workspace) {
        call.base.arrivals = (uint32_t *)workspace;
        call.base.partials = (float *)(call.base.arrivals + MAX_SPLIT_TILES);
    }
    if (m->dtype == DTYPE_FLOAT16) {
        launch_format<__half>(b, operation, &call);
    } else {
        launch_format<__nv_bfloat16>(b, operation, &call);
    }
    return true;
}
