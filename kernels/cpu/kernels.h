/* The inner loops, one table for each instruction set. Operations are written once, around this table: they walk rows,
 * tiles and blocks, share them between threads, and leave the arithmetic on floats to it.
 *
 * No function here allocates, starts threads or keeps state. Pointers need no alignment beyond their element's. */
#ifndef QUIRE_KERNELS_CPU_KERNELS_H
#define QUIRE_KERNELS_CPU_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/dtype.h"

struct cpu_kernels {
    /* Conversion; fp8 values are taken as they are stored, without a scale. from_float rounds to nearest even. */
    void (*to_float)(float *out, const void *in, enum dtype dtype, int64_t count);
    void (*from_float)(void *out, const float *in, enum dtype dtype, int64_t count);

    float (*sum_squares)(const float *x, int64_t count);
    /* out = x * factor * gain. out may be x. */
    void (*scale)(float *out, const float *x, const float *gain, float factor, int64_t count);
    /* out = gate / (1 + exp(-gate)) * up. out may be gate. */
    void (*silu_and_mul)(float *out, const float *gate, const float *up, int64_t count);
    /* out = gelu_tanh(gate) * up. out may be gate. */
    void (*gelu_tanh_and_mul)(float *out, const float *gate, const float *up, int64_t count);
    /* (first, second) = (first cos - second sin, second cos + first sin) */
    void (*rotate)(float *first, float *second, const float *cos, const float *sin, int64_t count);
    /* The largest of x, -INFINITY for none; a NaN counts as -INFINITY. */
    float (*maximum)(const float *x, int64_t count);
    /* x = exp(x - shift); returns the sum. exp(-INFINITY) is exactly 0. */
    float (*exponentials)(float *x, float shift, int64_t count);

    /* out[r][n] = sum over c of x[r][c] * w[n][c], for r < rows and n < count: few rows, each weight read once. */
    void (*dot_rows)(float *out, int64_t out_stride, const float *x, int64_t x_stride, int rows, const void *w,
                     enum dtype dtype, int64_t w_stride, int64_t count, int64_t columns);

    /* A matrix product in tiles of tile_rows x tile_columns, from operands packed so that a tile reads them in order.
     * tile_rows = 0: this table has none, and dot_rows is used for any number of rows. */
    int tile_rows, tile_columns;
    /* out[c][i] = in[i][c] for i < rows, 0 for rows <= i < width. out [columns, width], in rows of `stride` elements.
     */
    void (*pack)(float *out, int width, const void *in, enum dtype dtype, int64_t stride, int rows, int64_t columns);
    /* out[r][n] (+)= sum over k < depth of a[k][r] * b[k][n], for r < rows <= tile_rows and every n < tile_columns.
     * a [depth, tile_rows], b [depth, tile_columns], both packed. */
    void (*tile)(float *out, int64_t out_stride, const float *a, const float *b, int64_t depth, int rows,
                 bool accumulate);

    /* scores[r][t] = query[r] . key t of one block, for t < tokens; more of the row, up to block_size, may be written.
     * k [head_size / x, block_size, x] float, x is 4 or 8. */
    void (*scores)(float *scores, int64_t score_stride, const float *query, int64_t query_stride, int rows,
                   const float *k, int head_size, int block_size, int x, int tokens);
    /* out[r][d] += sum over blocks b and t < block_size of weights[r][b * block_size + t] * values[b][d][t]. */
    void (*weighted_values)(float *out, int64_t out_stride, const float *weights, int64_t weight_stride, int rows,
                            const float *const *values, int num_blocks, int head_size, int block_size);
};

extern const struct cpu_kernels cpu_kernels_scalar;
#if QUIRE_X86
extern const struct cpu_kernels cpu_kernels_avx2, cpu_kernels_avx512;
#endif

#endif
