/* Linear recurrences. An iteration computes some rows of the state of one head, which do not depend on the others, for
 * all tokens of a chain of entries: some tokens at a time, whose q, k and numbers are prepared once, and of these so
 * few rows at a time that they stay in the L1 cache from token to token. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/state.h"

enum { MAX_SIZE = 256, TOKENS = 8, CACHED_FLOATS = 16 * MAX_SIZE };

struct slice {
    const struct cpu_kernels *kernels;
    const struct recurrence_args *args;
    int32_t head, first, num_rows; /* of v: rows [first, first + num_rows) */
    const float *source;           /* the state before the next token */
    float decay[TOKENS], beta[TOKENS];
    float q[TOKENS * MAX_SIZE], k[TOKENS * MAX_SIZE], decays[TOKENS * MAX_SIZE]; /* [tokens, k_size] */
    float v[TOKENS * MAX_SIZE], out[TOKENS * MAX_SIZE];                          /* [tokens, num_rows] */
    float own[MAX_SIZE * MAX_SIZE];                                              /* a state that lies in no slot */
};

static float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

static float norm_factor(const struct slice *slice, const float *x)
{
    const struct recurrence_params *params = slice->args->params;
    return params->norm_qk ? 1 / sqrtf(slice->kernels->sum_squares(x, params->k_size) + 1e-6f) : 1;
}

/* q or k of the slice's head, times `factor`. */
static void load_head(const struct slice *slice, float *out, const void *rows, int64_t token, float factor)
{
    const struct recurrence_args *args = slice->args;
    const struct recurrence_params *params = args->params;
    const int64_t size = params->k_size, head = slice->head / (params->num_v_heads / params->num_k_heads);
    slice->kernels->to_float(out, cpu_element(rows, args->dtype, token * args->qkv_stride + head * size), args->dtype,
                             size);
    factor *= norm_factor(slice, out);
    for (int64_t i = 0; i < size; i++) out[i] *= factor;
}

/* decays = exp(-exp(a_log) * softplus(a + dt_bias)) of each element of k. */
static void load_decays(const struct slice *slice, float *decays, int64_t token)
{
    const struct recurrence_args *args = slice->args;
    const int64_t size = args->params->k_size, first = slice->head * size;
    const float *bias = args->params->dt_bias + first, rate = -expf(args->params->a_log[slice->head]);
    slice->kernels->to_float(decays, cpu_element(args->a, args->dtype, token * args->a_stride + first), args->dtype,
                             size);
    for (int64_t i = 0; i < size; i++) decays[i] += bias[i];
    slice->kernels->softplus(decays, size);
    for (int64_t i = 0; i < size; i++) decays[i] *= rate;
    slice->kernels->exponentials(decays, 0, size);
}

/* softplus(a + dt_bias) of a token, where a head has one. */
static float step_of(const struct slice *slice, int64_t token)
{
    const struct recurrence_args *args = slice->args;
    return softplus(dtype_load(args->a, args->dtype, token * args->a_stride + slice->head) +
                    args->params->dt_bias[slice->head]);
}

static float sigmoid_b(const struct slice *slice, int64_t token)
{
    const struct recurrence_args *args = slice->args;
    return 1 / (1 + expf(-dtype_load(args->b, args->dtype, token * args->b_stride + slice->head)));
}

/* The numbers of a token, which is token t of those at hand. */
static void load_numbers(struct slice *slice, int t, int64_t token)
{
    const struct recurrence_params *params = slice->args->params;
    const float a_log = params->a_log[slice->head];
    switch (params->kind) {
    case RECURRENCE_DELTA:
        slice->decay[t] = expf(-expf(a_log) * step_of(slice, token));
        slice->beta[t] = params->beta_factor * sigmoid_b(slice, token);
        break;
    case RECURRENCE_DELTA_CHANNELS:
        load_decays(slice, slice->decays + t * params->k_size, token);
        slice->beta[t] = params->beta_factor * sigmoid_b(slice, token);
        break;
    case RECURRENCE_SSD:
        slice->beta[t] = fminf(fmaxf(step_of(slice, token), params->beta_min), params->beta_max);
        slice->decay[t] = expf(-expf(a_log) * slice->beta[t]);
        break;
    case RECURRENCE_FIXED:
        slice->decay[t] = expf(-a_log);
        slice->beta[t] = 1;
        break;
    }
}

/* The element of v, and of out in a token, with which the slice begins. */
static int64_t first_element(const struct slice *slice)
{
    return (int64_t)slice->head * slice->args->params->v_size + slice->first;
}

static void load_token(struct slice *slice, int t, int64_t token)
{
    const struct recurrence_args *args = slice->args;
    const struct recurrence_params *params = args->params;
    load_head(slice, slice->q + t * params->k_size, args->q, token, params->scale);
    load_head(slice, slice->k + t * params->k_size, args->k, token, 1);
    slice->kernels->to_float(slice->v + t * slice->num_rows,
                             cpu_element(args->v, args->dtype, token * args->qkv_stride + first_element(slice)),
                             args->dtype, slice->num_rows);
    load_numbers(slice, t, token);
}

static void store_token(struct slice *slice, int t, int64_t token)
{
    const struct recurrence_args *args = slice->args;
    const struct recurrence_params *params = args->params;
    const int64_t index = token * params->num_v_heads * params->v_size + first_element(slice);
    float *out = slice->out + t * slice->num_rows, *v = slice->v + t * slice->num_rows;
    if (params->skip)
        for (int64_t i = 0; i < slice->num_rows; i++) out[i] += params->skip[slice->head] * v[i];
    slice->kernels->from_float(cpu_element_out(args->out, args->dtype, index), out, args->dtype, slice->num_rows);
}

/* Computes some tokens, and leaves the state after them in `state`. */
static void slice_tokens(struct slice *slice, int64_t first, int count, float *state)
{
    const struct recurrence_params *params = slice->args->params;
    const bool of_columns = params->kind == RECURRENCE_DELTA_CHANNELS;
    const int rows_at_once = CACHED_FLOATS / params->k_size / 16 * 16;
    for (int t = 0; t < count; t++) load_token(slice, t, first + t);
    for (int row = 0; row < slice->num_rows; row += rows_at_once)
        slice->kernels->recurrence(
            &(struct cpu_recurrence_args){.out = slice->out + row,
                                          .source = slice->source + row * params->k_size,
                                          .state = state + row * params->k_size,
                                          .q = slice->q,
                                          .k = slice->k,
                                          .v = slice->v + row,
                                          .row_stride = slice->num_rows,
                                          .decay = slice->decay,
                                          .beta = slice->beta,
                                          .decays = of_columns ? slice->decays : NULL,
                                          .delta = of_columns || params->kind == RECURRENCE_DELTA,
                                          .num_tokens = count,
                                          .num_rows = (int)min_i64(rows_at_once, slice->num_rows - row),
                                          .k_size = params->k_size});
    for (int t = 0; t < count; t++) store_token(slice, t, first + t);
    slice->source = state;
}

static float *state_of(const struct slice *slice, int32_t slot)
{
    return slice->args->states + slot * slice->args->state_stride + first_element(slice) * slice->args->params->k_size;
}

/* The tokens of entry i. The state moves to the entry's slot, where it has one, with its first token. */
static void slice_entry(struct slice *slice, int64_t i)
{
    const struct state_batch *batch = &slice->args->batch;
    float *state = batch->slots[i] == STATE_SLOT_NONE ? slice->own : state_of(slice, batch->slots[i]);
    const int64_t end = batch->query_start[i + 1];
    for (int64_t t = batch->query_start[i]; t < end; t += TOKENS)
        slice_tokens(slice, t, (int)min_i64(TOKENS, end - t), state);
}

struct slices {
    const struct recurrence_args *args;
    int32_t num_rows, per_head; /* rows of a slice; slices */
};

/* Entries that go on from the one before them are computed with the first of their chain. */
static void recur(const struct cpu_state *s, const void *slices, int64_t index, int thread)
{
    (void)thread;
    const struct slices *all = slices;
    const struct recurrence_args *args = all->args;
    const struct recurrence_params *params = args->params;
    const struct state_batch *batch = &args->batch;
    int64_t i = index / all->per_head / params->num_v_heads;
    struct slice slice;
    if (batch->sources[i] == STATE_CONTINUES) return;
    slice.kernels = s->kernels, slice.args = args;
    slice.head = (int32_t)(index / all->per_head % params->num_v_heads);
    slice.first = (int32_t)(index % all->per_head) * all->num_rows;
    slice.num_rows = (int32_t)min_i64(all->num_rows, params->v_size - slice.first);
    slice.source = slice.own;
    if (batch->sources[i] == STATE_SLOT_NONE) {
        memset(slice.own, 0, sizeof(float) * (size_t)slice.num_rows * (size_t)params->k_size);
    } else {
        slice.source = state_of(&slice, batch->sources[i]);
    }
    do {
        slice_entry(&slice, i++);
    } while (i < batch->num_seqs && batch->sources[i] == STATE_CONTINUES);
}

/* Whole heads, or less where one entry has fewer than two for each thread. */
static struct slices slices_of(const struct cpu_state *s, const struct recurrence_args *args)
{
    const struct recurrence_params *params = args->params;
    const int64_t wanted = divide_up(2 * (int64_t)s->threads, params->num_v_heads);
    const int32_t rows = (int32_t)divide_up(divide_up(params->v_size, wanted), 16) * 16;
    return (struct slices){args, rows, (int32_t)divide_up(params->v_size, rows)};
}

void cpu_recurrence(struct backend *b, const struct recurrence_args *args)
{
    const struct cpu_state *s = cpu_state(b);
    const struct recurrence_params *params = args->params;
    const struct slices slices = slices_of(s, args);
    assert(params->k_size <= MAX_SIZE && params->v_size <= MAX_SIZE);
    const int64_t size = (int64_t)params->num_v_heads * params->v_size * params->k_size;
    cpu_for(s, args->batch.num_tokens * size, (int64_t)args->batch.num_seqs * params->num_v_heads * slices.per_head,
            recur, &slices);
}
