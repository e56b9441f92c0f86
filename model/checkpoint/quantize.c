#include "model/checkpoint/quantize.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

/* The loops are written so that a compiler makes vectors of them: no calls, no branches, sums in lanes. Each is
 * compiled for several instruction sets, see quantize_rows. */
#define INLINE static inline __attribute__((always_inline))

enum { PIECE = 1024, LANES = 16 };

INLINE uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

INLINE float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Shifted into the fields of a float32, a float16 is too small by a factor of 2^112, subnormal ones too. */
INLINE float float_of_half(uint16_t half)
{
    const float magnitude = float_of((uint32_t)(half & 0x7fff) << 13) * 0x1p112f;
    const uint32_t bits = bits_of(magnitude) | (magnitude >= 65536 ? 0x7f800000u : 0);
    return float_of(bits | (uint32_t)(half & 0x8000) << 16);
}

INLINE uint16_t half_at(const uint8_t *bytes, int64_t i)
{
    uint16_t half;
    memcpy(&half, bytes + 2 * i, sizeof half);
    return half;
}

INLINE void load_floats(float *out, const void *row, enum dtype dtype, int64_t first, int64_t count)
{
    const uint8_t *bytes = (const uint8_t *)row + first * dtype_size(dtype);
    if (dtype == DTYPE_FLOAT32)
        memcpy(out, bytes, (size_t)count * sizeof *out);
    else if (dtype == DTYPE_BFLOAT16)
        for (int64_t i = 0; i < count; i++) out[i] = float_of((uint32_t)half_at(bytes, i) << 16);
    else
        for (int64_t i = 0; i < count; i++) out[i] = float_of_half(half_at(bytes, i));
}

/* The largest magnitude; NaN if there is one. As integers, NaN is above infinity and infinity above all numbers. */
INLINE float absolute_maximum(float so_far, const float *x, int64_t count)
{
    int32_t largest = (int32_t)bits_of(so_far);
    for (int64_t i = 0; i < count; i++) {
        const int32_t magnitude = (int32_t)(bits_of(x[i]) & 0x7fffffff);
        largest = magnitude > largest ? magnitude : largest;
    }
    return float_of((uint32_t)largest);
}

/* A scale to divide by. */
INLINE float usable_scale(float scale)
{
    if (!(scale < INFINITY)) return NAN;
    return scale >= FLT_MIN ? scale : 1;
}

/* Stores a scale and returns it as stored. */
INLINE float store_scale(void *scales, enum dtype dtype, int64_t i, float scale)
{
    if (dtype == DTYPE_FLOAT16 && scale < 0x1p-14f) scale = 0x1p-14f;
    if (dtype == DTYPE_FLOAT16 && scale > 65504) scale = 65504;
    dtype_store(scales, dtype, i, scale);
    return dtype_load(scales, dtype, i);
}

/* The nearest e4m3 value to x, |x| <= 448. Below 2^-6 all values are multiples of 2^-9, which is what a float's last
 * bit is worth if 2^14 is added. Above, the lower 20 bits of the mantissa are rounded away; a carry adds to the
 * exponent, whose bias is 120 larger. */
INLINE uint8_t e4m3_of(float x)
{
    const uint32_t bits = bits_of(x), magnitude = bits & 0x7fffffff;
    const uint32_t small = bits_of(float_of(magnitude) + 0x1p14f) - bits_of(0x1p14f);
    const uint32_t normal = ((magnitude + 0x7ffff + ((magnitude >> 20) & 1)) >> 20) - (120 << 3);
    return (uint8_t)((bits >> 24 & 0x80) | ((magnitude < bits_of(0x1p-6f) ? small : normal) & 0x7f));
}

/* Rounds |x| < 2^22 to an integer: the last bit of x + 1.5 * 2^23 is worth 1. */
static const float rounder = 0x1.8p23f;

INLINE int8_t int8_of(float x)
{
    return (int8_t)(uint8_t)bits_of(x + rounder);
}

INLINE void quantize_row(const struct weight_quantize_args *a, int64_t r)
{
    const void *row = (const uint8_t *)a->rows + r * a->in_features * dtype_size(a->dtype);
    const bool is_fp8 = a->format == WEIGHT_FP8;
    float x[PIECE], largest = 0;
    for (int64_t i = 0; i < a->in_features; i += PIECE) {
        const int64_t count = a->in_features - i < PIECE ? a->in_features - i : PIECE;
        load_floats(x, row, a->dtype, i, count);
        largest = absolute_maximum(largest, x, count);
    }
    const float exact = usable_scale(largest / (is_fp8 ? 448.0f : 127.0f));
    const float scale = store_scale(&(float){0}, a->scale_dtype, 0, exact);
    ((float *)a->scales)[r] = scale;
    for (int64_t i = 0; i < a->in_features; i += PIECE) {
        const int64_t count = a->in_features - i < PIECE ? a->in_features - i : PIECE;
        uint8_t *out = (uint8_t *)a->data + r * a->in_features + i;
        load_floats(x, row, a->dtype, i, count);
        if (is_fp8)
            for (int64_t j = 0; j < count; j++) out[j] = e4m3_of(x[j] / scale);
        else
            for (int64_t j = 0; j < count; j++) out[j] = (uint8_t)int8_of(x[j] / scale);
    }
}

/* The code of y, in steps of the scale, as a float; 0 for NaN. */
INLINE float code_of(float y, float zero)
{
    const float code = y + zero, positive = code > 0 ? code : 0;
    return (positive < 15 ? positive : 15) + rounder - rounder;
}

INLINE float sum_lanes(float lanes[LANES])
{
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int j = 0; j < width; j++) lanes[j] += lanes[j + width];
    return lanes[0];
}

/* The scale that fits best to the codes that y gets with the scale `step`. With codes less the zero point =: d, it is
 * sum(y d) / sum(d^2), and its error is sum(y^2) - gain with gain = sum(y d)^2 / sum(d^2). */
INLINE float fit_scale(const float *y, int64_t count, float step, float zero, float *gain)
{
    const float inverse = 1 / step;
    float products[LANES] = {0}, squares[LANES] = {0};
    for (int64_t i = 0; i < count; i += LANES)
#pragma omp simd
        for (int j = 0; j < LANES; j++) {
            const float d = code_of(y[i + j] * inverse, zero) - zero;
            products[j] += y[i + j] * d;
            squares[j] += d * d;
        }
    const float product = sum_lanes(products), square = sum_lanes(squares);
    *gain = square > 0 ? product * product / square : 0;
    return square > 0 ? product / square : step;
}

/* The least and the greatest element, and 0. */
INLINE void find_range(const float *x, int64_t count, float *low, float *high)
{
    float least = 0, greatest = 0;
#pragma omp simd reduction(min : least) reduction(max : greatest)
    for (int64_t i = 0; i < count; i++) {
        least = x[i] < least ? x[i] : least;
        greatest = x[i] > greatest ? x[i] : greatest;
    }
    *low = least;
    *high = greatest;
}

/* The scale and zero point of count <= QUANTIZE_MAX_GROUP elements, a multiple of LANES. y is x in steps of the whole
 * range, so that no square overflows. */
INLINE float choose_scale(const float *x, int64_t count, bool symmetric, float *zero)
{
    static const float shrunken[] = {1, 0.92f, 0.84f, 0.76f, 0.68f};
    float y[QUANTIZE_MAX_GROUP], low, high, most = -1, best = 1;
    find_range(x, count, &low, &high);
    if (symmetric) high = high > -low ? high : -low, low = -high;
    const float range = high / 15 - low / 15; /* divided first, because the difference may be infinite */
    const float scale = usable_scale(absolute_maximum(range, x, count) < INFINITY ? range : NAN);
    *zero = symmetric ? 8 : code_of(-low / scale, 0);
    const float inverse = 1 / scale;
    for (int64_t i = 0; i < count; i++) y[i] = x[i] * inverse;
    for (size_t i = 0; i < sizeof shrunken / sizeof *shrunken; i++) {
        float gain;
        const float fitted = fit_scale(y, count, shrunken[i], *zero, &gain);
        if (gain > most) {
            most = gain;
            best = fitted;
        }
    }
    return best * scale;
}

INLINE void quantize_row_in_groups(const struct weight_quantize_args *a, int64_t r)
{
    const int64_t size = a->group_size, groups = a->in_features / size;
    const void *row = (const uint8_t *)a->rows + r * a->in_features * dtype_size(a->dtype);
    for (int64_t g = 0; g < groups; g++) {
        float x[QUANTIZE_MAX_GROUP], zero;
        uint8_t codes[QUANTIZE_MAX_GROUP], *out = (uint8_t *)a->data + (r * a->in_features + g * size) / 2;
        int64_t padded = size; /* with zeros, which change neither range nor sums */
        load_floats(x, row, a->dtype, g * size, size);
        while (padded % LANES != 0) x[padded++] = 0;
        const float chosen = choose_scale(x, padded, !a->zeros, &zero);
        const float scale = store_scale(a->scales, a->scale_dtype, r * groups + g, chosen);
        if (a->zeros) a->zeros[r * groups + g] = (uint8_t)zero;
        for (int64_t i = 0; i < size; i++) codes[i] = (uint8_t)code_of(x[i] / scale, zero);
        for (int64_t i = 0; i < size / 2; i++) out[i] = (uint8_t)(codes[2 * i] | codes[2 * i + 1] << 4);
    }
}

INLINE void quantize_all(const struct weight_quantize_args *a)
{
    for (int64_t r = 0; r < a->num_rows; r++)
        if (a->format == WEIGHT_INT4)
            quantize_row_in_groups(a, r);
        else
            quantize_row(a, r);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void quantize_all_avx2(const struct weight_quantize_args *a)
{
    quantize_all(a);
}

__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"))) static void quantize_all_avx512(
    const struct weight_quantize_args *a)
{
    quantize_all(a);
}
#endif

void quantize_rows(const struct weight_quantize_args *args)
{
    assert(args->format != WEIGHT_INT4 || (args->group_size % 2 == 0 && args->group_size <= QUANTIZE_MAX_GROUP &&
                                           args->in_features % args->group_size == 0));
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
        quantize_all_avx512(args);
        return;
    }
    if (__builtin_cpu_supports("avx2")) {
        quantize_all_avx2(args);
        return;
    }
#endif
    quantize_all(args);
}
