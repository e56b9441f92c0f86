/* The inner loops, one table for each instruction set. Operations are written once, around this table: they walk
 * tokens, tiles and blocks, share them between threads, and leave the arithmetic on floats to it.
 *
 * No function here allocates, starts threads or keeps state. Pointers need no alignment beyond their element's. */
#ifndef QUIRE_KERNELS_CPU_KERNELS_H
#define QUIRE_KERNELS_CPU_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/dtype.h"

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

#endif
