/* Tokens of a head's state, for the vectors of the file that includes this. */
#ifndef QUIRE_KERNELS_CPU_VECTOR_RECURRENCE_H
#define QUIRE_KERNELS_CPU_VECTOR_RECURRENCE_H

#include "kernels/cpu/vector_rows.h"

enum {
    STATE_ROWS = 4,    /* at once: their sums are added up together */
    STATE_AHEAD = 4096 /* bytes: how far ahead the first token fetches rows, which lie one behind the other */
};

/* A token of rows [row, row + STATE_ROWS). */
struct token {
    const float *source, *q, *k, *decays; /* decays: of columns */
    float *state;
    vec decay; /* of all columns */
    int k_size;
};

/* The decays of columns i to i + LANES - 1. */
VECTOR vec decay_of(const struct token *token, const bool of_columns, int i)
{
    return of_columns ? vec_load(token->decays + i) : token->decay;
}

/* While a loop passes over STATE_ROWS rows, fetches `count` rows (a constant) that lie `skip` rows behind STATE_AHEAD,
 * in the order of their addresses: a processor that sees this order fetches more of them by itself. */
VECTOR void fetch_rows(const struct token *token, int i, const int skip, const int count)
{
    const float *ahead = token->source + STATE_AHEAD / (int)sizeof(float) + skip * token->k_size;
#pragma GCC unroll 4
    for (int r = 0; r < count; r++) __builtin_prefetch(ahead + count * i + r * LANES);
}

/* decay * source times k. Of the next rows, half are fetched here and half while these are written. */
VECTOR __m128 read_rows(const struct token *token, const bool of_columns, const bool fetch)
{
    vec sums[STATE_ROWS];
    vec_clear(sums, STATE_ROWS);
    for (int i = 0; i < token->k_size; i += LANES) {
        const vec k = vec_load(token->k + i) * decay_of(token, of_columns, i);
        if (fetch) fetch_rows(token, i, 0, STATE_ROWS / 2);
#pragma GCC unroll 4
        for (int r = 0; r < STATE_ROWS; r++)
            sums[r] = vec_fma(vec_load(token->source + (int64_t)r * token->k_size + i), k, sums[r]);
    }
    return vec_sum4(sums[0], sums[1], sums[2], sums[3]);
}

/* state = decay * source + factors * k^T; returns state times q. */
VECTOR __m128 write_rows(const struct token *token, const bool of_columns, const int fetched, const float *factors)
{
    vec sums[STATE_ROWS];
    vec_clear(sums, STATE_ROWS);
    for (int i = 0; i < token->k_size; i += LANES) {
        const vec k = vec_load(token->k + i), q = vec_load(token->q + i), decay = decay_of(token, of_columns, i);
        fetch_rows(token, i, fetched, STATE_ROWS - fetched);
#pragma GCC unroll 4
        for (int r = 0; r < STATE_ROWS; r++) {
            const int64_t at = (int64_t)r * token->k_size + i;
            const vec s = vec_fma(vec_set(factors[r]), k, vec_load(token->source + at) * decay);
            vec_store(token->state + at, s);
            sums[r] = vec_fma(s, q, sums[r]);
        }
    }
    return vec_sum4(sums[0], sums[1], sums[2], sums[3]);
}

/* Token t. The last three are constants. */
VECTOR void recurrence_token(const struct cpu_recurrence_args *args, int t, const bool of_columns, const bool delta,
                             const bool fetch)
{
    for (int row = 0; row < args->num_rows; row += STATE_ROWS) {
        const int64_t first = (int64_t)row * args->k_size, at = t * args->row_stride + row;
        const struct token token = {.source = (t == 0 ? args->source : args->state) + first,
                                    .state = args->state + first,
                                    .q = args->q + (int64_t)t * args->k_size,
                                    .k = args->k + (int64_t)t * args->k_size,
                                    .decays = of_columns ? args->decays + (int64_t)t * args->k_size : NULL,
                                    .decay = vec_set(of_columns ? 0 : args->decay[t]),
                                    .k_size = args->k_size};
        const int fetched = !fetch ? STATE_ROWS : delta ? STATE_ROWS / 2 : 0;
        float factors[STATE_ROWS];
        __m128 v = _mm_loadu_ps(args->v + at);
        if (delta) v -= read_rows(&token, of_columns, fetch);
        _mm_storeu_ps(factors, v * _mm_set1_ps(args->beta[t]));
        _mm_storeu_ps(args->out + at, write_rows(&token, of_columns, fetched, factors));
    }
}

/* A copy of the arguments, which no store can alias, stays in registers. The last two are constants. */
VECTOR void recurrence_as(const struct cpu_recurrence_args args, const bool of_columns, const bool delta)
{
    recurrence_token(&args, 0, of_columns, delta, true);
    for (int t = 1; t < args.num_tokens; t++) recurrence_token(&args, t, of_columns, delta, false);
}

static void recurrence(const struct cpu_recurrence_args *args)
{
    if (args->decays && args->delta) recurrence_as(*args, true, true);
    if (args->decays && !args->delta) recurrence_as(*args, true, false);
    if (!args->decays && args->delta) recurrence_as(*args, false, true);
    if (!args->decays && !args->delta) recurrence_as(*args, false, false);
}

#endif
