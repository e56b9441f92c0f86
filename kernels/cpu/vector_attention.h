/* Scores and weighted values of attention, for the vectors of the file that includes this. */
#ifndef QUIRE_KERNELS_CPU_VECTOR_ATTENTION_H
#define QUIRE_KERNELS_CPU_VECTOR_ATTENTION_H

#include "kernels/cpu/vector_rows.h"

/* Blocks that are too small for these vectors go to the next narrower ones. */
static const struct cpu_kernels *const narrower = LANES == 8 ? &cpu_kernels_scalar : &cpu_kernels_avx2;

/* Four vectors of keys, which are 4 * LANES / x tokens from `token` on, against num_rows queries from `row` on. A
 * vector holds x elements of each of several tokens; sums stay apart by element until the end. num_rows and x are
 * constants. */
VECTOR void scores_group(const struct cpu_scores_args *args, int row, int token, const int num_rows, const int x)
{
    const int64_t key_stride = (int64_t)args->block_size * x;
    const float *query = args->query + row * args->head_size, *keys = args->keys + token * x;
    vec sums[ATTENTION_X][4];
    vec_clear(sums[0], num_rows * 4);
    for (int d = 0; d < args->head_size; d += x) {
        vec k[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) k[i] = vec_load(keys + i * LANES);
#pragma GCC unroll 4
        for (int r = 0; r < num_rows; r++) {
            const float *q = query + r * args->head_size + d;
            const vec repeated = vec_repeat(q, x);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) sums[r][i] = vec_fma(repeated, k[i], sums[r][i]);
        }
        keys += key_stride;
    }
#pragma GCC unroll 4
    for (int r = 0; r < num_rows; r++) {
        vec quads = vec_sum_quads_ordered(sums[r][0], sums[r][1], sums[r][2], sums[r][3]);
        float *out = args->scores + (row + r) * args->score_stride + token, pairs[LANES];
        vec_store(x == 4 ? out : pairs, quads);
        for (int t = 0; x == 8 && t < LANES / 2; t++) out[t] = pairs[2 * t] + pairs[2 * t + 1];
    }
}

/* A copy of the arguments, which no store can alias, stays in registers. */
VECTOR void scores_as(const struct cpu_scores_args args, const int x)
{
    const int step = 4 * LANES / x;
    int row = 0;
    for (; row + ATTENTION_X <= args.num_rows; row += ATTENTION_X)
        for (int token = 0; token < args.num_tokens; token += step) scores_group(&args, row, token, ATTENTION_X, x);
    for (; row < args.num_rows; row++)
        for (int token = 0; token < args.num_tokens; token += step) scores_group(&args, row, token, 1, x);
}

static void scores(const struct cpu_scores_args *args)
{
    if (args->block_size * args->x % (4 * LANES) != 0) {
        narrower->scores(args);
    } else if (args->x == 4) {
        scores_as(*args, 4);
    } else {
        scores_as(*args, 8);
    }
}

/* Adds elements d to d + 3 of the values of all tokens of all blocks, weighted, to num_rows (a constant) results from
 * `row` on. */
VECTOR void values_group(const struct cpu_values_args *args, int row, const int num_rows, int64_t d)
{
    const int64_t block_size = args->block_size;
    const float *weights = args->weights + row * args->weight_stride;
    vec sums[ATTENTION_X][4];
    vec_clear(sums[0], num_rows * 4);
    for (int b = 0; b < args->num_blocks; b++) {
        const float *v = args->values[b] + d * block_size;
        for (int64_t t = 0; t < block_size; t += LANES) {
            vec p[ATTENTION_X];
#pragma GCC unroll 4
            for (int r = 0; r < num_rows; r++) p[r] = vec_load(weights + r * args->weight_stride + t);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                vec element = vec_load(v + i * block_size + t);
#pragma GCC unroll 4
                for (int r = 0; r < num_rows; r++) sums[r][i] = vec_fma(p[r], element, sums[r][i]);
            }
        }
        weights += block_size;
    }
#pragma GCC unroll 4
    for (int r = 0; r < num_rows; r++) {
        float *out = args->out + (row + r) * args->head_size + d;
        __m128 four = vec_sum4(sums[r][0], sums[r][1], sums[r][2], sums[r][3]);
        _mm_storeu_ps(out, _mm_loadu_ps(out) + four);
    }
}

VECTOR void values_of(const struct cpu_values_args args)
{
    for (int d = 0; d < args.head_size; d += 4) {
        int row = 0;
        for (; row + ATTENTION_X <= args.num_rows; row += ATTENTION_X) values_group(&args, row, ATTENTION_X, d);
        for (; row < args.num_rows; row++) values_group(&args, row, 1, d);
    }
}

static void weighted_values(const struct cpu_values_args *args)
{
    if (args->block_size % LANES != 0) {
        narrower->weighted_values(args);
    } else {
        values_of(*args);
    }
}

#endif
