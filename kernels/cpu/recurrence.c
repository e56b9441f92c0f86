/* Linear recurrences. An iteration computes some rows of the state of one head, for all tokens of a chain of entries:
 * rows do not depend on each other, and so few stay in the L1 cache from token to token. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/state.h"

enum { MAX_SIZE = 256, SLICE_FLOATS = 4096, LARGE_SLICE_FLOATS = 16384 };

struct slice {
    const struct cpu_kernels *kernels;
    const struct recurrence_args *args;
    int32_t head, first, num_rows; /* of v: rows [first, first + num_rows) */
    const float *source;           /* the state before the next token */
    float q[MAX_SIZE], k[MAX_SIZE], v[MAX_SIZE], decays[MAX_SIZE], out[MAX_SIZE];
    float own[LARGE_SLICE_FLOATS]; /* a state that lies in no slot */
};

/* Decays of each element of k take longer to compute than a few rows: more rows share them. */
static int32_t rows_at_once(const struct recurrence_params *params)
{
    const int32_t floats = params->kind == RECURRENCE_DELTA_CHANNELS ? LARGE_SLICE_FLOATS : SLICE_FLOATS;
    const int32_t rows = floats / params->k_size / 16 * 16;
    return rows < params->v_size ? rows : params->v_size;
}

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
static void load_decays(struct slice *slice, int64_t token)
{
    const struct recurrence_args *args = slice->args;
    const int64_t size = args->params->k_size, first = slice->head * size;
    const float *bias = args->params->dt_bias + first, rate = -expf(args->params->a_log[slice->head]);
    slice->kernels->to_float(slice->decays, cpu_element(args->a, args->dtype, token * args->a_stride + first),
                             args->dtype, size);
    for (int64_t i = 0; i < size; i++) slice->decays[i] += bias[i];
    slice->kernels->softplus(slice->decays, size);
    for (int64_t i = 0; i < size; i++) slice->decays[i] *= rate;
    slice->kernels->exponentials(slice->decays, 0, size);
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

/* What is the same for all rows of a token. */
static struct cpu_recurrence_args token_args(struct slice *slice, int64_t token)
{
    const struct recurrence_params *params = slice->args->params;
    struct cpu_recurrence_args out = {
        .q = slice->q, .k = slice->k, .v = slice->v, .out = slice->out, .k_size = params->k_size};
    const float a_log = params->a_log[slice->head];
    switch (params->kind) {
    case RECURRENCE_DELTA:
        out.delta = true;
        out.decay = expf(-expf(a_log) * step_of(slice, token));
        out.beta = params->beta_factor * sigmoid_b(slice, token);
        break;
    case RECURRENCE_DELTA_CHANNELS:
        out.delta = true;
        load_decays(slice, token);
        out.decays = slice->decays;
        out.beta = params->beta_factor * sigmoid_b(slice, token);
        break;
    case RECURRENCE_SSD:
        out.beta = fminf(fmaxf(step_of(slice, token), params->beta_min), params->beta_max);
        out.decay = expf(-expf(a_log) * out.beta);
        break;
    case RECURRENCE_FIXED:
        out.decay = expf(-a_log);
        out.beta = 1;
        break;
    }
    return out;
}

static int64_t v_index(const struct slice *slice)
{
    return (int64_t)slice->head * slice->args->params->v_size + slice->first;
}

/* Computes a token, and leaves the state after it in `state`. */
static void slice_token(struct slice *slice, int64_t token, float *state)
{
    const struct recurrence_args *args = slice->args;
    const struct recurrence_params *params = args->params;
    const int64_t rows = slice->num_rows, index = v_index(slice);
    load_head(slice, slice->q, args->q, token, params->scale);
    load_head(slice, slice->k, args->k, token, 1);
    slice->kernels->to_float(slice->v, cpu_element(args->v, args->dtype, token * args->qkv_stride + index), args->dtype,
                             rows);
    struct cpu_recurrence_args step = token_args(slice, token);
    step.source = slice->source, step.state = state, step.num_rows = slice->num_rows;
    slice->kernels->recurrence(&step);
    if (params->skip)
        for (int64_t i = 0; i < rows; i++) slice->out[i] += params->skip[slice->head] * slice->v[i];
    const int64_t token_size = (int64_t)params->num_v_heads * params->v_size;
    slice->kernels->from_float(cpu_element_out(args->out, args->dtype, token * token_size + index), slice->out,
                               args->dtype, rows);
    slice->source = state;
}

static float *state_of(const struct slice *slice, int32_t slot)
{
    return slice->args->states + slot * slice->args->state_stride + v_index(slice) * slice->args->params->k_size;
}

/* The tokens of entry i. The state moves to the entry's slot, where it has one, with its first token. */
static void slice_entry(struct slice *slice, int64_t i)
{
    const struct state_batch *batch = &slice->args->batch;
    float *state = batch->slots[i] == STATE_SLOT_NONE ? slice->own : state_of(slice, batch->slots[i]);
    const size_t bytes = sizeof(float) * (size_t)slice->num_rows * (size_t)slice->args->params->k_size;
    for (int64_t t = batch->query_start[i]; t < batch->query_start[i + 1]; t++) slice_token(slice, t, state);
    if (batch->slots[i] != STATE_SLOT_NONE && slice->source != state) memcpy(state, slice->source, bytes);
}

static int64_t slices_per_head(const struct recurrence_params *params)
{
    return divide_up(params->v_size, rows_at_once(params));
}

/* Entries that go on from the one before them are computed with the first of their chain. */
static void recur(const struct cpu_state *s, const void *recurrence_args, int64_t index, int thread)
{
    (void)thread;
    const struct recurrence_args *args = recurrence_args;
    const struct recurrence_params *params = args->params;
    const struct state_batch *batch = &args->batch;
    const int64_t slices = slices_per_head(params), rows = rows_at_once(params);
    int64_t i = index / slices / params->num_v_heads;
    struct slice slice;
    if (batch->sources[i] == STATE_CONTINUES) return;
    slice.kernels = s->kernels, slice.args = args;
    slice.head = (int32_t)(index / slices % params->num_v_heads), slice.first = (int32_t)(index % slices * rows);
    slice.num_rows = (int32_t)min_i64(rows, params->v_size - slice.first);
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

void cpu_recurrence(struct backend *b, const struct recurrence_args *args)
{
    const struct recurrence_params *params = args->params;
    assert(params->k_size <= MAX_SIZE && params->v_size <= MAX_SIZE);
    const int64_t size = (int64_t)params->num_v_heads * params->v_size * params->k_size;
    cpu_for(cpu_state(b), args->batch.num_tokens * size,
            args->batch.num_seqs * params->num_v_heads * slices_per_head(params), recur, args);
}
