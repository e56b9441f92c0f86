/* The inner loops, one table for each instruction set. Operations are written once, around this table: they walk
 * tokens, tiles and blocks, share them between threads, and leave the arithmetic on floats to it.
 *
 * No function here allocates, starts threads or keeps state. Pointers need no alignment beyond their element's. */
#ifndef QUIRE_KERNELS_CPU_KERNELS_H
#define QUIRE_KERNELS_CPU_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/backend.h"

/* out[t][o] = sum over i of x[t][i] * weights[o][i]. */
struct cpu_dot_args {
    float *out; /* [num_tokens, out_features] */
    int64_t out_stride;
    const float *x; /* [num_tokens, in_features] */
    int64_t x_stride;
    const void *weights; /* [out_features, in_features] dtype */
    enum dtype dtype;
    int num_tokens;
    int64_t out_features, in_features;
};

/* scores[r][t] = query[r] . key t, for the first num_tokens tokens of one block. */
struct cpu_scores_args {
    float *scores; /* [num_rows, num_tokens]; up to block_size of a row may be written */
    int64_t score_stride;
    const float *query; /* [num_rows, head_size] */
    const float *keys;  /* [head_size / x, block_size, x]; x is 4 or 8 */
    int num_rows, num_tokens, head_size, block_size, x;
};

/* out[r][d] += sum over blocks b and t < block_size of weights[r][b * block_size + t] * values[b][d][t]. */
struct cpu_values_args {
    float *out;           /* [num_rows, head_size] */
    const float *weights; /* [num_rows, num_blocks * block_size] */
    int64_t weight_stride;
    const float *const *values; /* [num_blocks] of [head_size, block_size] */
    int num_rows, num_blocks, head_size, block_size;
};

/* out[t][o] += sum over i of x[t][i] * weights[i][o]. */
struct cpu_columns_args {
    float *out; /* [num_tokens, out_features] */
    int64_t out_stride;
    const float *x; /* [num_tokens, in_features] */
    int64_t x_stride;
    const void *weights; /* [in_features, out_features] dtype: float32, float16 or bfloat16 */
    int64_t weight_stride;
    enum dtype dtype;
    int num_tokens;
    int64_t in_features, out_features;
};

/* Some tokens of some rows of a head's state (kernels/recurrence.h). For each token,
 *
 *     S = decay * S;  S += (beta * (v - S k)) k^T, or without `delta` S += (beta * v) k^T;  out = S q
 *
 * where S is `source` before the first and `state` after the last one. */
struct cpu_recurrence_args {
    float *out;                /* [num_tokens, num_rows] */
    const float *source;       /* [num_rows, k_size] */
    float *state;              /* [num_rows, k_size]; may be source */
    const float *q, *k;        /* [num_tokens, k_size] */
    const float *v;            /* [num_tokens, num_rows] */
    int64_t row_stride;        /* of out and v, from token to token */
    const float *decay, *beta; /* [num_tokens] */
    const float *decays;       /* [num_tokens, k_size] of each column, instead of decay; NULL: decay */
    bool delta;
    int num_tokens, num_rows, k_size; /* rows and k_size: multiples of 16 */
};

struct cpu_kernels {
    /* Conversion; fp8 values are taken as they are stored, without a scale. from_float rounds to nearest even. */
    void (*to_float)(float *out, const void *in, enum dtype dtype, int64_t count);
    void (*from_float)(void *out, const float *in, enum dtype dtype, int64_t count);

    float (*sum_squares)(const float *x, int64_t count);
    /* out = x * factor * gain. out may be x. */
    void (*scale)(float *out, const float *x, const float *gain, float factor, int64_t count);
    /* out = silu(gate) * up. out may be gate or up. */
    void (*silu_and_mul)(float *out, const float *gate, const float *up, int64_t count);
    /* out = gelu_tanh(gate) * up. out may be gate. */
    void (*gelu_tanh_and_mul)(float *out, const float *gate, const float *up, int64_t count);
    /* out += x * y */
    void (*multiply_add)(float *out, const float *x, const float *y, int64_t count);
    /* (first, second) = (first cos - second sin, second cos + first sin) */
    void (*rotate)(float *first, float *second, const float *cos, const float *sin, int64_t count);
    /* The largest of x, -INFINITY for none; a NaN counts as -INFINITY. */
    float (*maximum)(const float *x, int64_t count);
    /* x = exp(x - shift); returns the sum. exp(-INFINITY) is exactly 0. */
    float (*exponentials)(float *x, float shift, int64_t count);
    /* x = log(1 + exp(x)) */
    void (*softplus)(float *x, int64_t count);

    /* The matmul of few tokens: each weight is read once. */
    void (*dot)(const struct cpu_dot_args *args);
    /* The same with a matrix that is stored by columns. */
    void (*columns)(const struct cpu_columns_args *args);

    void (*recurrence)(const struct cpu_recurrence_args *args);

    /* Attention. */
    void (*scores)(const struct cpu_scores_args *args);
    void (*weighted_values)(const struct cpu_values_args *args);
};

extern const struct cpu_kernels cpu_kernels_scalar;
#if QUIRE_X86
extern const struct cpu_kernels cpu_kernels_avx2, cpu_kernels_avx512;
#endif

/* ---- matmuls of many tokens, in tiles ---- */

enum cpu_tile_kind {
    CPU_TILES_FLOAT,  /* any weights, which become floats before they are packed */
    CPU_TILES_INT8,   /* INT8, INT4 and MXFP4 as bytes, with an x of 8 bits */
    CPU_TILES_BF16,   /* bfloat16 as it is, with an x of three bfloat16 parts, whose sum a float32 is */
    CPU_TILES_BF16_X, /* bfloat16 as it is, with an x of bfloat16 */
    CPU_TILE_KINDS
};

/* out[t][o] (+)= sum over k < depth of x[t][k] * weights[o][k]. */
struct cpu_tile_args {
    float *out;
    int64_t out_stride;
    const uint8_t *x, *weights;  /* packed; weights: of as many tiles as num_features has, one after the other */
    int64_t depth, num_features; /* num_features is a multiple of tile_features */
    int num_tokens;              /* at most tile_tokens */
    bool accumulate;
};

/* A tile is tile_tokens by tile_features, from operands that are packed so that it reads consecutive addresses. They
 * begin at multiples of 64 bytes (AMX is slow at others). `group` input features are packed together; the last group is
 * padded with zeros. A group:
 *
 *   float        x        [tile_tokens] float
 *                weights  [tile_features] float
 *   INT8         x        values [8, tile_tokens, 4] int8 | offsets [tile_tokens] int32 | scales [tile_tokens] float
 *                weights  values [8, tile_features, 4] uint8, 128 for zero | scales [tile_features] float
 *   BF16, BF16_X x        [parts, tile_tokens, 32] bfloat16
 *                weights  [16, 16 output features, 2] bfloat16, and then the next 16 output features
 */
struct cpu_tiles {
    enum cpu_tile_kind kind;
    int tile_tokens, tile_features;
    int group, x_group_bytes, w_group_bytes; /* bytes of a token, and of an output feature */
    /* x is float32; or any type for FLOAT, bfloat16 for BF16_X. Rows are `stride` elements apart; num_tokens <=
     * tile_tokens. */
    void (*pack_x)(uint8_t *out, const void *x, enum dtype dtype, int64_t stride, int num_tokens, int64_t depth);
    /* Input features [start, start + depth) of output features [first, first + count), count <= tile_features. start is
     * a multiple of 64. FLOAT takes weights that are not quantized. */
    void (*pack_w)(uint8_t *out, const struct weight *w, int64_t first, int count, int64_t start, int64_t depth);
    void (*multiply)(const struct cpu_tile_args *args);
};

#if QUIRE_X86
extern const struct cpu_tiles cpu_tiles_avx2, cpu_tiles_avx512, cpu_tiles_avx512vnni;
extern const struct cpu_tiles cpu_tiles_amx, cpu_tiles_amx_bfloat16;
#endif

/* ---- quantized weights ---- */

/* A token for INT8, INT4 and MXFP4 weights: rounded to 8 bits, with a scale for each CPU_X_GROUP columns. It lies in
 * units that match a vector of 4 * lanes bytes of the weights. The integer products of a vector leave a sum of four
 * bytes in each lane; offsets are what these sums begin with, since weights are used as unsigned numbers: -zero * sum
 * of the four values. The last unit is padded with zeros.
 *
 *   INT8, 4 * lanes columns    values, 4 * lanes bytes | offsets, lanes int32 | scales, lanes floats
 *   INT4, 8 * lanes columns    even columns | odd columns | offsets | scales
 *   MXFP4                      the same; scales are halved, because weights are used as twice what they stand for
 */
enum { CPU_X_GROUP = 32 };

static inline int cpu_unit_columns(int lanes, enum weight_format format)
{
    return weight_is_packed(format) ? 8 * lanes : 4 * lanes;
}

static inline int cpu_unit_bytes(int lanes, enum weight_format format)
{
    return cpu_unit_columns(lanes, format) + 8 * lanes;
}

/* out[t][o] = sum over i of x[t][i] * element[o][i], where the zero of INT4 counts as 8, + sum over g of sums[t][g] *
 * terms[o][g]: what other zeros add. */
struct cpu_quantized_args {
    enum weight_format format;
    float *out; /* [num_tokens, out_features] */
    int64_t out_stride;
    const uint8_t *x; /* [num_tokens]; FP8: in_features floats, else units */
    int64_t x_bytes;  /* from token to token */
    const uint8_t *weights;
    int64_t row_bytes;
    const float *scales; /* [out_features, groups] */
    int64_t scale_stride;
    int64_t group_size;
    const float *terms; /* [out_features, groups]; NULL: all zeros are 8 */
    const float *sums;  /* [num_tokens, groups] of x over the groups; only with terms */
    int64_t groups;
    int num_tokens;
    int64_t out_features, in_features;
};

/* A row of data, and the scale and the zero of one of its groups. */
struct cpu_group {
    const uint8_t *row;
    float scale;
    int zero; /* INT4 */
};

struct cpu_quantized_kernels {
    int lanes;
    /* Columns from `start` on as floats, up to `end` at most. Returns how many; the caller does what is left. */
    int64_t (*dequantize)(float *out, enum weight_format format, const struct cpu_group *group, int64_t start,
                          int64_t end);
    /* Rounds a token of in_features floats, and sets sums[i] to the sum of rounded columns [32 i, 32 i + 32). */
    void (*round_x)(uint8_t *units, float *sums, const float *x, enum weight_format format, int64_t in_features);
    /* out[i] = scales[i] * (8 - zeros[i]) */
    void (*zero_terms)(float *out, const float *scales, const uint8_t *zeros, int64_t count);
    /* The matmul of few tokens. group_size is a multiple of a unit's columns or, but for FP8, 32 or 64; or at least
     * in_features.
     */
    void (*dot)(const struct cpu_quantized_args *args);
};

#if QUIRE_X86
extern const struct cpu_quantized_kernels cpu_quantized_avx2, cpu_quantized_avx512, cpu_quantized_avx512vnni;
#endif

#endif
