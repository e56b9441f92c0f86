/* Matmuls of few tokens with quantized weights, for the vectors of the file that includes this. INT8, INT4
 * and MXFP4 are multiplied as integers with an x of 8 bits, FP8 as floats. */
#ifndef QUIRE_KERNELS_CPU_VECTOR_QUANTIZED_H
#define QUIRE_KERNELS_CPU_VECTOR_QUANTIZED_H

#include <math.h>
#include <string.h>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/vector.h"
#include "kernels/cpu/vector_prefetch.h"
#include "kernels/fp8.h"

enum {
    LINE = 4 * LANES, /* bytes of a vector */
    MANY_R = 2,       /* output features at once, of up to FP8_X or DOT_X tokens, */
    E2M1_ZERO = 12,   /* what makes unsigned numbers of twice an e2m1 */
    ONE_R = 4,        /* output features at once of a single token */
    NEXT_PANEL = 256  /* bytes of a row ahead to prefetch in tiles: the columns that are packed next */
};

/* ---- floats ---- */

VECTOR int64_t dequantize_as(float *out, const enum weight_format format, const struct cpu_group *group, int64_t start,
                             int64_t end)
{
    const vec scale = vec_set(format == WEIGHT_MXFP4 ? group->scale / 2 : group->scale);
    const vec zero = vec_set((float)group->zero);
    const uint8_t *row = group->row;
    int64_t i = start;
    for (; i + LANES <= end; i += LANES) {
        __builtin_prefetch(row + (weight_is_packed(format) ? i / 2 : i) + NEXT_PANEL);
        const vec v = format == WEIGHT_FP8     ? vec_load_e4m3(row + i)
                      : format == WEIGHT_INT8  ? vec_load_int8(row + i)
                      : format == WEIGHT_MXFP4 ? vec_load_e2m1(row + i / 2)
                                               : (vec)(vec_load_int4(row + i / 2) - zero);
        vec_store(out + i - start, scale * v);
    }
    return i - start;
}

static int64_t dequantize(float *out, enum weight_format format, const struct cpu_group *group, int64_t start,
                          int64_t end)
{
    if (format == WEIGHT_FP8) return dequantize_as(out, WEIGHT_FP8, group, start, end);
    if (format == WEIGHT_INT8) return dequantize_as(out, WEIGHT_INT8, group, start, end);
    if (start % 2) return 0;
    if (format == WEIGHT_MXFP4) return dequantize_as(out, WEIGHT_MXFP4, group, start, end);
    return dequantize_as(out, WEIGHT_INT4, group, start, end);
}

static void zero_terms(float *out, const float *scales, const uint8_t *zeros, int64_t count)
{
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        const vec zero = vec_from_int32(VEC(cvtepu8_epi32)(few_bytes_load(zeros + i, LANES)));
        vec_store(out + i, vec_load(scales + i) * (vec_set(8) - zero));
    }
    for (; i < count; i++) out[i] = scales[i] * (float)(8 - zeros[i]);
}

/* ---- x ---- */

/* Rounds 32 floats to scale * [-127, 127] and returns the scale: NaN if one of them is. */
VECTOR float round_group(__m256i *out, const float *x)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256 v[4];
    __m256i largest = _mm256_setzero_si256(), n[4];
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        largest = _mm256_max_epi32(largest, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
    }
    __m128i most = _mm_max_epi32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4e));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0xb1));
    const float max = _mm_cvtss_f32(_mm_castsi128_ps(most));
    const __m256 factor = _mm256_set1_ps(max > 1e-30f ? 127 / max : 0);
    for (int i = 0; i < 4; i++) n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], factor));
    *out = _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
    *out = _mm256_permutevar8x32_epi32(*out, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    return max / 127;
}

/* The sums of each four bytes. */
VECTOR __m256i sums_of_four(__m256i v)
{
    return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), v), _mm256_set1_epi16(1));
}

/* Group `j` of a unit; returns the sum of its rounded values. */
VECTOR float store_group_int8(uint8_t *unit, int j, const float *x)
{
    __m256i v;
    const float scale = round_group(&v, x);
    const __m256i sums = sums_of_four(v), offsets = _mm256_mullo_epi32(sums, _mm256_set1_epi32(-INT8_ZERO));
    _mm256_storeu_si256((__m256i *)(unit + 32 * j), v);
    _mm256_storeu_si256((__m256i *)(unit + LINE + 32 * j), offsets);
    _mm256_storeu_ps((float *)(unit + LINE + 4 * LANES) + 8 * j, _mm256_set1_ps(scale));
    return 0;
}

/* For weights that are used as `zero` more than `times` what they stand for. */
VECTOR float store_group_halves(uint8_t *unit, int j, const float *x, const int zero, const int times)
{
    const __m256i even_odd = _mm256_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15, 0, 2, 4, 6, 8, 10,
                                              12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    __m256i v;
    const float scale = round_group(&v, x);
    v = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(v, even_odd), 0xd8);
    const __m256i eight = sums_of_four(v);
    const __m128i sums = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    _mm_storeu_si128((__m128i *)(unit + 16 * j), _mm256_castsi256_si128(v));
    _mm_storeu_si128((__m128i *)(unit + LINE + 16 * j), _mm256_extracti128_si256(v, 1));
    _mm_storeu_si128((__m128i *)(unit + 2 * LINE + 16 * j), _mm_mullo_epi32(sums, _mm_set1_epi32(-zero)));
    _mm_storeu_ps((float *)(unit + 2 * LINE + 4 * LANES) + 4 * j, _mm_set1_ps(scale / (float)times));
    const __m128i two = _mm_add_epi32(sums, _mm_shuffle_epi32(sums, 0x4e));
    return scale * (float)_mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

static void round_x(uint8_t *units, float *sums, const float *x, enum weight_format format, int64_t in_features)
{
    const int columns = cpu_unit_columns(LANES, format), bytes_of_unit = cpu_unit_bytes(LANES, format);
    for (int64_t i = 0; i < in_features; i += columns, units += bytes_of_unit)
        for (int j = 0; j < columns / CPU_X_GROUP; j++) {
            const int64_t first = i + j * CPU_X_GROUP, left = in_features - first;
            float padded[CPU_X_GROUP] = {0};
            const float *group = x + first;
            if (left < CPU_X_GROUP) {
                if (left > 0) memcpy(padded, group, (size_t)left * sizeof *padded);
                group = padded;
            }
            const float sum = format == WEIGHT_INT8    ? store_group_int8(units, j, group)
                              : format == WEIGHT_MXFP4 ? store_group_halves(units, j, group, E2M1_ZERO, 2)
                                                       : store_group_halves(units, j, group, 8, 1);
            if (left > 0) sums[first / CPU_X_GROUP] = sum;
        }
}

/* ---- integers ---- */

/* A vector of weights, decoded. */
struct line {
    bytes low, high;
};

VECTOR struct line load_line(const uint8_t *p, const enum weight_format format)
{
    const bytes v = bytes_load(p);
    if (format == WEIGHT_INT8) return (struct line){v, v};
    const struct line line = {bytes_low_halves(v), bytes_high_halves(v)};
    if (format == WEIGHT_INT4) return line;
    return (struct line){bytes_from_e2m1(line.low, E2M1_ZERO), bytes_from_e2m1(line.high, E2M1_ZERO)};
}

/* A unit of x. */
struct unit {
    bytes low, high, offsets;
    vec scales;
};

VECTOR struct unit load_unit(const uint8_t *unit, const enum weight_format format)
{
    const uint8_t *offsets = unit + cpu_unit_columns(LANES, format);
    struct unit x = {.low = bytes_load(unit), .scales = vec_load((const float *)(offsets + LINE))};
    x.high = format == WEIGHT_INT8 ? x.low : bytes_load(unit + LINE);
    x.offsets = format == WEIGHT_INT8 && INT8_ZERO == 0 ? (bytes)vec_zero() : bytes_load(offsets);
    return x;
}

/* The products of a line and a unit, in x's scale. */
VECTOR vec multiply_line(struct line w, const enum weight_format format, struct unit x, vec sum)
{
    const bytes products = format == WEIGHT_INT8 ? dot_bytes(x.offsets, w.low, x.low)
                                                 : dot_halves(x.offsets, w.low, w.high, x.low, x.high);
    return vec_fma(vec_from_int32(products), x.scales, sum);
}

/* Writes the sums of `rows` by `tokens` vectors. The vectors of a row begin `stride` after those of the row before. */
VECTOR void store_totals(const struct cpu_quantized_args *a, const int rows, const int tokens, const vec *totals,
                         const int stride)
{
    if (rows == 4 && tokens == 1) {
        _mm_storeu_ps(a->out, vec_sum4(totals[0], totals[stride], totals[2 * stride], totals[3 * stride]));
        return;
    }
    for (int r = 0; r < rows; r++, totals += stride) {
        if (tokens == 4) {
            float four[4];
            _mm_storeu_ps(four, vec_sum4(totals[0], totals[1], totals[2], totals[3]));
            for (int t = 0; t < 4; t++) a->out[t * a->out_stride + r] = four[t];
        } else {
            for (int t = 0; t < tokens; t++) a->out[t * a->out_stride + r] = vec_sum(totals[t]);
        }
    }
}

/* What zeros other than 8 add: the totals begin with it. */
VECTOR void add_zeros(const struct cpu_quantized_args *a, const int rows, const int tokens, vec totals[ONE_R][DOT_X])
{
    for (int64_t g = 0; g < a->groups; g += LANES) {
        const int count = a->groups - g < LANES ? (int)(a->groups - g) : LANES;
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            const vec terms = vec_load_first(a->terms + r * a->groups + g, count);
#pragma GCC unroll 4
            for (int t = 0; t < tokens; t++)
                totals[r][t] = vec_fma(terms, vec_load_first(a->sums + t * a->groups + g, count), totals[r][t]);
        }
    }
}

/* Adds the products of a line of each row. The rows are `stride` bytes apart, the tokens x_bytes. */
VECTOR void add_lines(const uint8_t *lines, int64_t stride, const uint8_t *unit, int64_t x_bytes,
                      const enum weight_format format, const int rows, const int tokens, vec parts[ONE_R][DOT_X])
{
    struct line w[ONE_R];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) w[r] = load_line(lines + r * stride, format);
#pragma GCC unroll 4
    for (int t = 0; t < tokens; t++) {
        const struct unit x = load_unit(unit + t * x_bytes, format);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) parts[r][t] = multiply_line(w[r], format, x, parts[r][t]);
    }
}

/* The last line of each row, which is cut off: padded with zeros. */
VECTOR void copy_last(const struct cpu_quantized_args *a, uint8_t last[ONE_R][LINE], const int rows)
{
    const int64_t whole = a->row_bytes / LINE * LINE;
    for (int r = 0; r < rows; r++) {
        const bytes v = bytes_load_first(a->weights + r * a->row_bytes + whole, a->row_bytes - whole);
        memcpy(last[r], &v, sizeof v);
    }
}

/* Adds the products of units [u, end). Where a cache line has two vectors, it is prefetched twice: once is slower. */
VECTOR void add_units(const struct cpu_quantized_args *a, const enum weight_format format, const int rows,
                      const int tokens, int64_t u, int64_t end, vec parts[ONE_R][DOT_X])
{
    const int unit_bytes = cpu_unit_bytes(LANES, format);
    const int64_t row_bytes = a->row_bytes, x_bytes = a->x_bytes;
    const int64_t whole = row_bytes / LINE, stop = end < whole ? end : whole;
    const uint8_t *const weights = a->weights, *unit = a->x + u * unit_bytes;
    for (; u < stop; u++, unit += unit_bytes) {
        prefetch_rows(weights, row_bytes, rows, u * LINE, false);
        add_lines(weights + u * LINE, row_bytes, unit, x_bytes, format, rows, tokens, parts);
    }
    if (u < end) {
        uint8_t last[ONE_R][LINE];
        copy_last(a, last, rows);
        add_lines(last[0], LINE, unit, x_bytes, format, rows, tokens, parts);
    }
}

/* Output features [0, rows) of tokens [0, tokens), constants. `split`: how many groups share a unit; 1: a group is made
 * of units. */
VECTOR void dot_integers(const struct cpu_quantized_args *a, const enum weight_format format, const int rows,
                         const int tokens, const int split)
{
    const int columns = cpu_unit_columns(LANES, format);
    const int64_t units = (a->in_features + columns - 1) / columns;
    const int64_t group_units = split > 1 ? 1 : (a->group_size + columns - 1) / columns;
    const float *scales = a->scales;
    vec totals[ONE_R][DOT_X], parts[ONE_R][DOT_X];
    vec_clear(totals[0], ONE_R * DOT_X);
    if (a->terms) add_zeros(a, rows, tokens, totals);
    for (int64_t u = 0; u < units; u += group_units, scales += split) {
        vec_clear(parts[0], ONE_R * DOT_X);
        add_units(a, format, rows, tokens, u, u + group_units < units ? u + group_units : units, parts);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            const float *of_row = scales + r * a->scale_stride;
            const vec scale = split > 1 ? vec_repeat_scales(of_row, split) : vec_set(*of_row);
#pragma GCC unroll 4
            for (int t = 0; t < tokens; t++) totals[r][t] = vec_fma(parts[r][t], scale, totals[r][t]);
        }
    }
    store_totals(a, rows, tokens, totals[0], DOT_X);
}

/* ---- FP8 ---- */

/* The input features after the last whole line; they belong to the last group. */
VECTOR float tail_fp8(const struct cpu_quantized_args *a, int row, int token, int64_t start)
{
    const float *x = (const float *)(a->x + token * a->x_bytes);
    const uint8_t *w = a->weights + row * a->row_bytes;
    float sum = 0;
    for (int64_t i = start; i < a->in_features; i++) sum += x[i] * fp8_e4m3_to_float(w[i]);
    return sum * a->scales[row * a->scale_stride + (a->in_features - 1) / a->group_size];
}

VECTOR void dot_fp8(const struct cpu_quantized_args *a, const int rows, const int tokens)
{
    const int64_t whole = a->in_features / LINE * LINE;
    vec totals[ONE_R][FP8_X], parts[ONE_R][FP8_X];
    bool nan[ONE_R] = {false};
    vec_clear(totals[0], ONE_R * FP8_X);
    int64_t i = 0;
    for (const float *scales = a->scales; i < whole; scales++) {
        const int64_t end = i + a->group_size < whole ? i + a->group_size : whole;
        vec_clear(parts[0], ONE_R * FP8_X);
        for (; i < end; i += LINE) {
            prefetch_rows(a->weights, a->row_bytes, rows, i, false);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                const uint8_t *w = a->weights + r * a->row_bytes + i;
                nan[r] |= bytes_nan_e4m3(bytes_load(w));
#pragma GCC unroll 4
                for (int j = 0; j < 4; j++) {
                    const vec v = vec_load_small_e4m3(w + j * LANES);
#pragma GCC unroll 11
                    for (int t = 0; t < tokens; t++)
                        parts[r][t] =
                            vec_fma(v, vec_load((const float *)(a->x + t * a->x_bytes) + i + j * LANES), parts[r][t]);
                }
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            const vec scale = vec_set(256 * scales[r * a->scale_stride]);
#pragma GCC unroll 11
            for (int t = 0; t < tokens; t++) totals[r][t] = vec_fma(parts[r][t], scale, totals[r][t]);
        }
    }
    store_totals(a, rows, tokens, totals[0], FP8_X);
    for (int r = 0; r < rows; r++)
        for (int t = 0; t < tokens && (i < a->in_features || nan[r]); t++)
            a->out[t * a->out_stride + r] += nan[r] ? NAN : tail_fp8(a, r, t, i);
}

/* ---- all output features and tokens ---- */

VECTOR void dot_rows(const struct cpu_quantized_args *a, const enum weight_format format, const int rows,
                     const int tokens, const int split)
{
    if (format == WEIGHT_FP8) {
        dot_fp8(a, rows, tokens <= FP8_X ? tokens : 1);
    } else {
        dot_integers(a, format, rows, tokens <= DOT_X ? tokens : 1, split);
    }
}

VECTOR void skip_rows(struct cpu_quantized_args *a, int rows)
{
    a->weights += rows * a->row_bytes;
    a->scales += rows * a->scale_stride;
    if (a->terms) a->terms += rows * a->groups;
    a->out += rows;
    a->out_features -= rows;
}

/* All output features, of `tokens` tokens (a constant). */
VECTOR void dot_tokens(struct cpu_quantized_args a, const enum weight_format format, const int tokens, const int split)
{
    const int rows = tokens == 1 ? ONE_R : MANY_R;
    for (; a.out_features >= rows; skip_rows(&a, rows)) dot_rows(&a, format, rows, tokens, split);
    for (; a.out_features > 0; skip_rows(&a, 1)) dot_rows(&a, format, 1, tokens, split);
}

VECTOR void skip_tokens(struct cpu_quantized_args *a, int tokens)
{
    a->x += tokens * a->x_bytes;
    if (a->terms) a->sums += tokens * a->groups;
    a->out += tokens * a->out_stride;
    a->num_tokens -= tokens;
}

/* Tokens at once. */
VECTOR int most_tokens(const enum weight_format format)
{
    return format == WEIGHT_FP8 ? FP8_X : DOT_X;
}

/* All output features, if there are n tokens, a constant. */
VECTOR void dot_if(const struct cpu_quantized_args *a, const enum weight_format format, const int tokens, const int n,
                   const int split)
{
    if (tokens == n && n <= most_tokens(format)) dot_tokens(*a, format, n, split);
}

VECTOR void dot_as(struct cpu_quantized_args a, const enum weight_format format, const int split)
{
    const int most = most_tokens(format);
    for (int groups = (a.num_tokens + most - 1) / most; groups > 0; groups--) {
        const int tokens = (a.num_tokens + groups - 1) / groups;
        dot_if(&a, format, tokens, 1, split);
        dot_if(&a, format, tokens, 2, split);
        dot_if(&a, format, tokens, 3, split);
        dot_if(&a, format, tokens, 4, split);
        dot_if(&a, format, tokens, 5, split);
        dot_if(&a, format, tokens, 6, split);
        dot_if(&a, format, tokens, 7, split);
        dot_if(&a, format, tokens, 8, split);
        dot_if(&a, format, tokens, 9, split);
        dot_if(&a, format, tokens, 10, split);
        dot_if(&a, format, tokens, 11, split);
        skip_tokens(&a, tokens);
    }
}

static void dot_quantized(const struct cpu_quantized_args *args)
{
    const int64_t columns = cpu_unit_columns(LANES, args->format);
    const int64_t split =
        args->group_size < columns && args->group_size < args->in_features ? columns / args->group_size : 1;
    if (args->format == WEIGHT_FP8) {
        dot_as(*args, WEIGHT_FP8, 1);
    } else if (args->format == WEIGHT_INT8) {
        if (split == 1) dot_as(*args, WEIGHT_INT8, 1);
        if (split == 2) dot_as(*args, WEIGHT_INT8, 2);
    } else if (args->format == WEIGHT_INT4) {
        if (split == 1) dot_as(*args, WEIGHT_INT4, 1);
        if (split == 2) dot_as(*args, WEIGHT_INT4, 2);
        if (split == 4) dot_as(*args, WEIGHT_INT4, 4);
    } else {
        if (split == 1) dot_as(*args, WEIGHT_MXFP4, 1);
        if (split == 2) dot_as(*args, WEIGHT_MXFP4, 2);
        if (split == 4) dot_as(*args, WEIGHT_MXFP4, 4);
    }
}

const struct cpu_quantized_kernels ISA(cpu_quantized) = {
    .lanes = LANES,
    .dequantize = dequantize,
    .round_x = round_x,
    .zero_terms = zero_terms,
    .dot = dot_quantized,
};

#endif
