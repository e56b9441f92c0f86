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

struct cpu_kernels {
    /* Conversion; fp8 values are taken as they are stored, without a scale. from_float rounds to nearest even. */
    void (*to_float)(float *out, const void *in, enum dtype dtype, int64_t count);
    void (*from_float)(void *out, const float *in, enum dtype dtype, int64_t count);

    float (*sum_squares)(const float *x, int64_t count);
    /* out = x * factor * gain. out may be x. */
    void (*scale)(float *out, const float *x, const float *gain, float factor, int64_t count);
    /* out = silu(gate) * up. out may be gate. */
    void (*silu_and_mul)(float *out, const float *gate, const float *up, int64_t count);
    /* out = gelu_tanh(gate) * up. out may be gate. */
    void (*gelu_tanh_and_mul)(float *out, const float *gate, const float *up, int64_t count);
    /* (first, second) = (first cos - second sin, second cos + first sin) */
    void (*rotate)(float *first, float *second, const float *cos, const float *sin, int64_t count);
    /* The largest of x, -INFINITY for none; a NaN counts as -INFINITY. */
    float (*maximum)(const float *x, int64_t count);
    /* x = exp(x - shift); returns the sum. exp(-INFINITY) is exactly 0. */
    float (*exponentials)(float *x, float shift, int64_t count);

    /* For few tokens: each weight is read once. */
    void (*dot)(const struct cpu_dot_args *args);

    /* A matmul in tiles of tile_tokens x tile_features, from operands packed so that a tile reads consecutive
     * addresses. tile_tokens = 0: this table has none, and dot is used for any number of tokens. */
    int tile_tokens, tile_features;
    int few_tokens; /* tiles are faster than dot for more */
    /* Transposes `count` rows of `depth` elements: out[k][i] = in[i][k] for i < count, 0 for count <= i < width.
     * in [count, depth] dtype, rows `stride` elements apart; out [depth, width]. */
    void (*pack)(float *out, int width, const void *in, enum dtype dtype, int64_t stride, int count, int64_t depth);
    /* out[t][o] (+)= sum over k < depth of a[k][t] * b[k][o], for t < num_tokens <= tile_tokens and every
     * o < tile_features. a [depth, tile_tokens], b [depth, tile_features], both packed. */
    void (*tile)(float *out, int64_t out_stride, const float *a, const float *b, int64_t depth, int num_tokens,
                 bool accumulate);

    /* Attention. */
    void (*scores)(const struct cpu_scores_args *args);
    void (*weighted_values)(const struct cpu_values_args *args);
};

extern const struct cpu_kernels cpu_kernels_scalar;
#if QUIRE_X86
extern const struct cpu_kernels cpu_kernels_avx2, cpu_kernels_avx512;
#endif

/* ---- bfloat16 weights in tile registers ---- */

/* As pack and tile of cpu_kernels, for operands that are bfloat16. A float32 x becomes three parts, whose sum it is; a
 * bfloat16 x is one. Operands are packed in groups of CPU_BF16_GROUP input features, the last one
 * padded with zeros, at addresses that are multiples of 64 bytes (others are slow):
 *
 *   x          [parts, tile_tokens, CPU_BF16_GROUP]
 *   weights    [CPU_BF16_GROUP / 2, 2] of 16 output features, and the same of the next 16
 */
enum { CPU_BF16_GROUP = 32, CPU_BF16_PARTS = 3 };

static inline int cpu_bf16_parts(enum dtype x)
{
    return x == DTYPE_BFLOAT16 ? 1 : CPU_BF16_PARTS;
}

struct cpu_bf16_kernels {
    int few_tokens; /* tiles are faster than dot for more */
    int tile_tokens, tile_features;
    void (*pack_x)(uint8_t *out, const void *x, enum dtype dtype, int64_t stride, int num_tokens,
                   int64_t depth); /* float32 or bfloat16 */
    void (*pack_w)(uint8_t *out, const uint16_t *w, int64_t stride, int count, int64_t depth);
    /* num_features is a multiple of tile_features. */
    void (*tiles)(float *out, int64_t out_stride, const uint8_t *x, int parts, const uint8_t *w, int64_t depth,
                  int num_tokens, int64_t num_features, bool accumulate);
};

#if QUIRE_X86
extern const struct cpu_bf16_kernels cpu_bf16_amx;
#endif

/* ---- quantized weights ---- */

/* A token for INT8 and INT4 weights: rounded to 8 bits, with a scale for each CPU_X_GROUP columns. It lies in units
 * that match a vector of 4 * lanes bytes of the weights. The integer products of a vector leave a sum of four bytes in
 * each lane; offsets are what these sums begin with, since weights are used as unsigned numbers: -zero * sum of the
 * four values. The last unit is padded with zeros.
 *
 *   INT8, 4 * lanes columns    values, 4 * lanes bytes | offsets, lanes int32 | scales, lanes floats
 *   INT4, 8 * lanes columns    even columns | odd columns | offsets | scales
 */
enum {
    CPU_X_GROUP = 32,
    CPU_PACKED_X_BYTES = CPU_X_GROUP + 8, /* of a group of a token, in tiles */
    CPU_PACKED_W_BYTES = CPU_X_GROUP + 4  /* of an output feature */
};

static inline int cpu_unit_columns(int lanes, enum weight_format format)
{
    return format == WEIGHT_INT4 ? 8 * lanes : 4 * lanes;
}

static inline int cpu_unit_bytes(int lanes, enum weight_format format)
{
    return cpu_unit_columns(lanes, format) + 8 * lanes;
}

/* out[t][o] = sum over i of x[t][i] * element[o][i]; zeros are left out: that of INT4 counts as 8. */
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
    /* For few tokens. group_size is a multiple of a unit's columns or, INT8 and INT4, 32 or 64; or at least
     * in_features.
     */
    void (*dot)(const struct cpu_quantized_args *args);
    /* For more tokens other ways are faster: for FP8, floats in memory and then dot of cpu_kernels; for INT8 and INT4,
     * tiles, of bytes if there are some. */
    int few_fp8, few_int8, few_int4;

    /* As pack and tile of cpu_kernels, for INT8 and INT4; tile NULL: there is none. Operands are packed in groups of
     * CPU_X_GROUP columns, the last one padded:
     *
     *   x          | values [8, tile_tokens, 4] int8   | offsets [tile_tokens] int32 | scales [tile_tokens] float |
     *   weights    | values [8, tile_features, 4] uint8, 128 for zero                | scales [tile_features] float |
     */
    int tile_tokens, tile_features;
    void (*pack_x)(uint8_t *out, const float *x, int64_t stride, int num_tokens, int64_t depth);
    /* Columns [start, start + depth) of output features [first, first + count); start is a multiple of 64. */
    void (*pack_w)(uint8_t *out, const struct weight *w, int64_t first, int count, int64_t start, int64_t depth);
    void (*tile)(float *out, int64_t out_stride, const uint8_t *x, const uint8_t *w, int64_t depth, int num_tokens,
                 bool accumulate);
};

#if QUIRE_X86
extern const struct cpu_quantized_kernels cpu_quantized_avx2, cpu_quantized_avx512, cpu_quantized_avx512vnni;
#endif

#endif
