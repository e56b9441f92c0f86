/* A token of a head's state, for the vectors of the file that includes this. */
#ifndef QUIRE_KERNELS_CPU_VECTOR_RECURRENCE_H
#define QUIRE_KERNELS_CPU_VECTOR_RECURRENCE_H

#include "kernels/cpu/vector_rows.h"

enum { STATE_ROWS = 4 }; /* at once: their sums are added up together */

/* The decays of columns i to i + LANES - 1. */
VECTOR vec decay_of(const struct cpu_recurrence_args *args, const bool of_columns, int i)
{
    return of_columns ? vec_load(args->decays + i) : vec_set(args->decay);
}

/* decay * source times k, of rows [row, row + STATE_ROWS). */
VECTOR __m128 read_rows(const struct cpu_recurrence_args *args, const bool of_columns, int row)
{
    const float *source = args->source + (int64_t)row * args->k_size;
    vec sums[STATE_ROWS];
    vec_clear(sums, STATE_ROWS);
    for (int i = 0; i < args->k_size; i += LANES) {
        const vec k = vec_load(args->k + i) * decay_of(args, of_columns, i);
#pragma GCC unroll 4
        for (int r = 0; r < STATE_ROWS; r++)
            sums[r] = vec_fma(vec_load(source + (int64_t)r * args->k_size + i), k, sums[r]);
    }
    return vec_sum4(sums[0], sums[1], sums[2], sums[3]);
}

/* state = decay * source + factors * k^T, and out = state * q, of the same rows. */
VECTOR void write_rows(const struct cpu_recurrence_args *args, const bool of_columns, int row, const float *factors)
{
    const float *source = args->source + (int64_t)row * args->k_size;
    float *state = args->state + (int64_t)row * args->k_size;
    vec sums[STATE_ROWS];
    vec_clear(sums, STATE_ROWS);
    for (int i = 0; i < args->k_size; i += LANES) {
        const vec k = vec_load(args->k + i), q = vec_load(args->q + i), decay = decay_of(args, of_columns, i);
#pragma GCC unroll 4
        for (int r = 0; r < STATE_ROWS; r++) {
            const vec s = vec_load(source + (int64_t)r * args->k_size + i);
            const vec sum = vec_fma(vec_set(factors[r]), k, s * decay);
            vec_store(state + (int64_t)r * args->k_size + i, sum);
            sums[r] = vec_fma(sum, q, sums[r]);
        }
    }
    _mm_storeu_ps(args->out + row, vec_sum4(sums[0], sums[1], sums[2], sums[3]));
}

/* A copy of the arguments, which no store can alias, stays in registers. The last two are constants. */
VECTOR void recurrence_as(const struct cpu_recurrence_args args, const bool of_columns, const bool delta)
{
    for (int row = 0; row < args.num_rows; row += STATE_ROWS) {
        float factors[STATE_ROWS];
        __m128 v = _mm_loadu_ps(args.v + row);
        if (delta) v -= read_rows(&args, of_columns, row);
        _mm_storeu_ps(factors, v * _mm_set1_ps(args.beta));
        write_rows(&args, of_columns, row, factors);
    }
}

static void recurrence(const struct cpu_recurrence_args *args)
{
    if (args->decays && args->delta) recurrence_as(*args, true, true);
    if (args->decays && !args->delta) recurrence_as(*args, true, false);
    if (!args->decays && args->delta) recurrence_as(*args, false, true);
    if (!args->decays && !args->delta) recurrence_as(*args, false, false);
}

#endif
