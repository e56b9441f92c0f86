/* Heads (struct head_spec): what a target keeps for one, and what one makes its input of. */
#include "model/layers/layers.h"

/* ---- what is kept ---- */

/* x [num_tokens, size] becomes column `column` of rows of `stride` elements. */
static void keep(const struct residual_stream *s, const void *x, int32_t size, int64_t column, int64_t stride)
{
    const struct decoder *d = s->d;
    const struct gather_rows_args args = {.out = at_column(d->states, column, d->dtype),
                                          .x = x,
                                          .out_stride = stride,
                                          .x_stride = size,
                                          .num_indices = s->num_tokens,
                                          .size = size,
                                          .dtype = d->dtype};
    d->backend->gather_rows(d->backend, &args);
}

void head_keep_before(const struct residual_stream *s, int32_t layer)
{
    const struct head_spec *head = s->d->served;
    if (!head || head->kind != HEAD_EAGLE3) return;
    for (int32_t i = 0; i < head->num_states; i++)
        if (head->state_layers[i] == layer)
            keep(s, s->residual, head->state_size, (int64_t)i * head->state_size,
                 (int64_t)head->num_states * head->state_size);
}

void head_keep_last(const struct residual_stream *s, const void *normed)
{
    const struct head_spec *own = &s->d->spec->head, *served = s->d->served;
    const int32_t size = s->d->spec->hidden_size;
    if (own->kind != HEAD_NONE)
        keep(s, own->own_state_normed ? normed : s->residual, size, 0, size);
    else if (serves_last_state(s->d))
        keep(s, served->state_before_norm ? s->residual : normed, size, 0, size);
}

/* ---- what is read ---- */

/* Norms x [num_tokens, hidden_size] into one of the two halves of the input. */
static void norm_half(const struct residual_stream *s, int half, const void *x, const struct norm_params *norm)
{
    const struct decoder *d = s->d;
    const int32_t size = d->spec->hidden_size;
    const struct rms_norm_args args = {.out = at_column(d->act.head_input, (int64_t)half * size, d->dtype),
                                       .x = x,
                                       .out_stride = 2 * (int64_t)size,
                                       .x_stride = size,
                                       .norm = *norm,
                                       .num_tokens = s->num_tokens,
                                       .size = size,
                                       .dtype = d->dtype};
    d->backend->rms_norm(d->backend, &args);
}

/* residual = head_projection(act.head_input) */
static void project_input(const struct residual_stream *s)
{
    const struct decoder *d = s->d;
    const struct projection p = {.parts = {d->weights->head_projection}, .num_parts = 1};
    const struct matmul_input in = {.x = d->act.head_input};
    layer_project(s, s->residual, d->dtype, &p, &in, NULL);
}

static void begin_eagle3(struct residual_stream *s, const struct step_shape *shape)
{
    const struct decoder *d = s->d;
    const struct head_spec *head = &d->spec->head;
    if (shape->target_states) {
        layer_gather(d, d->act.head_input, d->target_states, d->inputs->target_rows, s->num_tokens,
                     head->num_states * head->state_size);
        project_input(s);
    }
    if (shape->own_states)
        layer_gather(d, s->residual, d->states, d->inputs->own_rows, s->num_tokens, d->spec->hidden_size);
    layer_embed(s, s->hidden);
    norm_half(s, 0, s->hidden, &d->weights->layers[0].attention_norm);
    norm_half(s, 1, s->residual, &d->weights->head_state_norm);
}

static void begin_mtp(struct residual_stream *s, const struct step_shape *shape)
{
    const struct decoder *d = s->d;
    const int state_half = d->spec->head.state_first ? 0 : 1;
    if (shape->target_states)
        layer_gather(d, s->residual, d->target_states, d->inputs->target_rows, s->num_tokens, d->spec->hidden_size);
    if (shape->own_states)
        layer_gather(d, s->residual, d->states, d->inputs->own_rows, s->num_tokens, d->spec->hidden_size);
    layer_embed(s, s->hidden);
    norm_half(s, 1 - state_half, s->hidden, &d->weights->head_embedding_norm);
    norm_half(s, state_half, s->residual, &d->weights->head_state_norm);
    project_input(s);
}

void head_begin(struct residual_stream *s, const struct step_shape *shape)
{
    if (s->d->spec->head.kind == HEAD_EAGLE3)
        begin_eagle3(s, shape);
    else
        begin_mtp(s, shape);
}
