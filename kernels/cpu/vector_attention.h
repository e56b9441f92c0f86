/* Scores and weighted values of attention, for the vectors of the file that includes this. */
#ifndef QUIRE_KERNELS_CPU_VECTOR_ATTENTION_H
#define QUIRE_KERNELS_CPU_VECTOR_ATTENTION_H

#include "kernels/cpu/vector_rows.h"

/* Four vectors of keys, which are 4 * LANES / x tokens, against `rows` queries. A vector holds x elements of each of
 * several tokens; sums stay apart by element until the end. x and rows are constants. */
VECTOR void scores_group(float *out, int64_t score_stride, const float *query, int64_t query_stride, const int rows,
                         const float *k, int head_size, int64_t k_stride, const int x)
{
    vec sums[ATTENTION_X][4];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) sums[r][i] = vec_zero();
    for (int d = 0; d < head_size; d += x) {
        vec keys[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) keys[i] = vec_load(k + i * LANES);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            const float *q = query + r * query_stride + d;
            vec repeated = x == 4 ? vec_repeat4(q) : vec_repeat8(q);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) sums[r][i] = vec_fma(repeated, keys[i], sums[r][i]);
        }
        k += k_stride;
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        vec quads = vec_sum_quads_ordered(sums[r][0], sums[r][1], sums[r][2], sums[r][3]);
        float *row = out + r * score_stride, pairs[LANES];
        vec_store(x == 4 ? row : pairs, quads);
        for (int t = 0; x == 8 && t < LANES / 2; t++) row[t] = pairs[2 * t] + pairs[2 * t + 1];
    }
}

VECTOR void scores_as(float *out, int64_t score_stride, const float *query, int64_t query_stride, int rows,
                      const float *k, int head_size, int block_size, const int x, int tokens)
{
    const int step = 4 * LANES / x;
    int64_t k_stride = (int64_t)block_size * x;
    for (int r = 0; r < rows;) {
        int taken = rows - r >= ATTENTION_X ? ATTENTION_X : 1;
        const float *q = query + r * query_stride;
        float *row = out + r * score_stride;
        for (int t = 0; t < tokens; t += step) {
            if (taken == 1) {
                scores_group(row + t, score_stride, q, query_stride, 1, k + t * x, head_size, k_stride, x);
            } else {
                scores_group(row + t, score_stride, q, query_stride, ATTENTION_X, k + t * x, head_size, k_stride, x);
            }
        }
        r += taken;
    }
}

/* Blocks of 8 tokens are too small for long vectors: the narrower table takes them. */
static void scores(float *out, int64_t score_stride, const float *query, int64_t query_stride, int rows, const float *k,
                   int head_size, int block_size, int x, int tokens)
{
    if (block_size * x % (4 * LANES) != 0) {
        narrower->scores(out, score_stride, query, query_stride, rows, k, head_size, block_size, x, tokens);
    } else if (x == 4) {
        scores_as(out, score_stride, query, query_stride, rows, k, head_size, block_size, 4, tokens);
    } else {
        scores_as(out, score_stride, query, query_stride, rows, k, head_size, block_size, 8, tokens);
    }
}

/* `rows` (a constant) weights against 4 elements of the values, over all tokens of all blocks. */
VECTOR void values_group(float *out, int64_t out_stride, const float *weights, int64_t weight_stride, const int rows,
                         const float *const *values, int num_blocks, int64_t d, int block_size)
{
    vec sums[ATTENTION_X][4];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) sums[r][i] = vec_zero();
    for (int b = 0; b < num_blocks; b++) {
        const float *v = values[b] + d * block_size;
        for (int t = 0; t < block_size; t += LANES) {
            vec p[ATTENTION_X];
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) p[r] = vec_load(weights + r * weight_stride + t);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                vec element = vec_load(v + (int64_t)i * block_size + t);
#pragma GCC unroll 4
                for (int r = 0; r < rows; r++) sums[r][i] = vec_fma(p[r], element, sums[r][i]);
            }
        }
        weights += block_size;
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        float *o = out + r * out_stride + d;
        __m128 four = vec_sum4(sums[r][0], sums[r][1], sums[r][2], sums[r][3]);
        _mm_storeu_ps(o, _mm_add_ps(_mm_loadu_ps(o), four));
    }
}

static void weighted_values(float *out, int64_t out_stride, const float *weights, int64_t weight_stride, int rows,
                            const float *const *values, int num_blocks, int head_size, int block_size)
{
    if (block_size % LANES != 0) {
        narrower->weighted_values(out, out_stride, weights, weight_stride, rows, values, num_blocks, head_size,
                                  block_size);
        return;
    }
    for (int d = 0; d < head_size; d += 4) {
        int r = 0;
        for (; r + ATTENTION_X <= rows; r += ATTENTION_X)
            values_group(out + r * out_stride, out_stride, weights + r * weight_stride, weight_stride, ATTENTION_X,
                         values, num_blocks, d, block_size);
        for (; r < rows; r++)
            values_group(out + r * out_stride, out_stride, weights + r * weight_stride, weight_stride, 1, values,
                         num_blocks, d, block_size);
    }
}

#endif
