/* Recurrent layers and short convolutions: from the residual stream to the channels, gates, a and b of each token; the
 * convolution; the recurrence; its gated norm. Both keep states in slots (model/state_cache.h). */
#include "model/layers/layers.h"

/* What is computed of the layer's input, and how many elements the tokens of each are apart: of channels and b, and of
 * gate and a; and where what the layer computes is. */
struct mix {
    char *channels, *gate, *a, *b, *out;
    int64_t stride, second_stride;
};

/* The parts of act.qkv. Of a layer beside attention, whose parts come first, of which there are num_tokens. */
static struct mix split_mix(const struct decoder *d, const struct layer_spec *l, int32_t num_tokens)
{
    const struct recurrent_spec *r = &l->recurrent;
    const int64_t first = l->recurrent_beside ? attention_qkv_size(&l->attention) : 0;
    const int64_t stride = layer_mixer_in_size(l);
    char *channels = at_column(d->act.qkv, first, d->dtype);
    char *gate = at_column(channels, recurrent_channels(r), d->dtype);
    char *a = at_column(gate, recurrent_first_gate_size(r), d->dtype);
    char *b = at_column(a, recurrent_first_a_size(r), d->dtype);
    char *out = l->recurrent_beside ? beside_out(l, d->act.attention, num_tokens, d->dtype) : d->act.attention;
    return (struct mix){channels, gate, a, b, out, stride, stride};
}

/* out = w(x), where tokens of x are x_stride elements apart, and those of out out_stride. */
static void project_second(const struct residual_stream *s, char *out, int64_t out_stride, const char *x,
                           int64_t x_stride, const struct weight *w)
{
    const struct decoder *d = s->d;
    const struct linear_args args = {.out = out,
                                     .out_stride = out_stride,
                                     .out_dtype = d->dtype,
                                     .x = x,
                                     .x_stride = x_stride,
                                     .dtype = d->dtype,
                                     .num_tokens = s->num_tokens,
                                     .weight = w};
    d->backend->linear(d->backend, &args);
}

/* Makes gates and a of the parts that are low in rank, in act.mixed_gates. */
static struct mix expand_mix(const struct residual_stream *s, const struct recurrent_spec *r,
                             const struct recurrent_weights *w, const struct mix *low)
{
    const struct decoder *d = s->d;
    struct mix mix = *low;
    mix.gate = d->act.mixed_gates;
    mix.a = at_column(mix.gate, recurrent_v_size(r), d->dtype);
    mix.second_stride = recurrent_v_size(r) + recurrent_a_size(r);
    project_second(s, mix.gate, mix.second_stride, low->gate, low->stride, &w->gate_b);
    project_second(s, mix.a, mix.second_stride, low->a, low->stride, &w->a_b);
    return mix;
}

static struct state_batch batch_of(const struct decoder *d, const struct step_shape *shape)
{
    return (struct state_batch){.query_start = d->inputs->query_start,
                                .sources = d->inputs->state_sources,
                                .slots = d->inputs->state_slots,
                                .num_seqs = shape->num_seqs,
                                .num_decodes = shape->num_decodes,
                                .num_tokens = shape->num_tokens,
                                .max_query_len = shape->max_query_len,
                                .max_run_len = shape->num_drafts > 0 ? 1 + MAX_DRAFTS : 1};
}

static struct short_conv_args conv_args(const struct residual_stream *s, const struct step_shape *shape, int32_t layer)
{
    const struct decoder *d = s->d;
    const struct recurrent_weights *w = &d->weights->layers[layer].recurrent;
    const struct layer_state *state = &d->states_cache->layers[layer];
    return (struct short_conv_args){.weight = w->conv.data,
                                    .bias = w->conv_bias.data,
                                    .states = state->conv,
                                    .state_stride = state->conv_stride,
                                    .batch = batch_of(d, shape),
                                    .dtype = d->dtype};
}

static struct recurrence_params params_of(const struct recurrent_spec *r, const struct recurrent_weights *w)
{
    return (struct recurrence_params){.kind = r->kind,
                                      .num_k_heads = r->num_k_heads,
                                      .num_v_heads = r->num_v_heads,
                                      .k_size = r->k_head_size,
                                      .v_size = r->v_head_size,
                                      .a_log = w->a_log.data,
                                      .dt_bias = w->dt_bias.data,
                                      .skip = w->skip.data,
                                      .scale = r->scale,
                                      .beta_factor = r->beta_factor,
                                      .beta_min = r->beta_min,
                                      .beta_max = r->beta_max,
                                      .norm_qk = r->norm_qk};
}

static struct gated_norm_args norm_args(const struct decoder *d, const struct recurrent_spec *r,
                                        const struct weight_vector *gain, const struct mix *mix)
{
    return (struct gated_norm_args){.out = mix->out,
                                    .x = mix->out,
                                    .gate = mix->gate,
                                    .gate_stride = mix->second_stride,
                                    .gain = gain->data,
                                    .gain_dtype = gain->dtype,
                                    .gain_size = r->norm_size,
                                    .group_size = r->norm_group_size,
                                    .eps = (float)r->norm_eps,
                                    .gate_first = r->gate_first,
                                    .sigmoid = r->sigmoid_gate,
                                    .round_norm = r->round_norm,
                                    .size = (int32_t)recurrent_v_size(r),
                                    .dtype = d->dtype};
}

/* Whether a group of the norm is the heads of several ranks. */
static bool norms_over_ranks(const struct recurrent_spec *r)
{
    return !r->no_norm && r->norm_group_size > recurrent_v_size(r);
}

/* There is room for sums where q, k and v were. */
static void norm_over_ranks(const struct residual_stream *s, const struct recurrent_spec *r,
                            const struct gated_norm_args *norm)
{
    const int64_t all = s->d->spec->num_ranks * recurrent_v_size(r);
    struct all_norm_args args = {.norms = {{.x = norm->out,
                                            .stride = norm->size,
                                            .size = norm->size,
                                            .num_groups = (int32_t)(all / norm->group_size),
                                            .gain = norm->gain,
                                            .gain_dtype = norm->gain_dtype,
                                            .eps = norm->eps,
                                            .gate = norm->gate,
                                            .gate_stride = norm->gate_stride,
                                            .gate_first = norm->gate_first,
                                            .sigmoid = norm->sigmoid,
                                            .round_norm = norm->round_norm}},
                                 .num_norms = 1,
                                 .squares = s->d->act.mixed};
    layer_norm_over_ranks(s, &args);
}

/* q, k and v are in act.mixed, where the convolution writes them. */
static struct recurrence_args recurrence_args_of(const struct decoder *d, const struct step_shape *shape, int32_t layer,
                                                 const struct recurrence_params *params, const struct mix *mix)
{
    const struct recurrent_spec *r = &d->spec->layers[layer].recurrent;
    const struct layer_state *state = &d->states_cache->layers[layer];
    const int64_t k_size = (int64_t)r->num_k_heads * r->k_head_size;
    char *first = d->act.mixed, *second, *third;
    second = at_column(first, r->value_first ? recurrent_v_size(r) : k_size, d->dtype);
    third = at_column(second, k_size, d->dtype);
    return (struct recurrence_args){.out = mix->out,
                                    .q = r->value_first ? third : first,
                                    .k = second,
                                    .v = r->value_first ? first : third,
                                    .a = mix->a,
                                    .b = mix->b,
                                    .qkv_stride = recurrent_channels(r),
                                    .a_stride = mix->second_stride,
                                    .b_stride = mix->stride,
                                    .states = state->matrix,
                                    .state_stride = state->matrix_stride,
                                    .batch = batch_of(d, shape),
                                    .params = params,
                                    .dtype = d->dtype};
}

static void scale(const struct residual_stream *s, const struct recurrent_spec *r, const struct mix *mix)
{
    const int64_t k_size = (int64_t)r->num_k_heads * r->k_head_size;
    const struct column_part q = {k_size, r->q_multiplier}, k = {k_size, r->k_multiplier},
                             v = {recurrent_v_size(r), r->v_multiplier};
    const struct column_part parts[] = {r->value_first ? v : q,
                                        k,
                                        r->value_first ? q : v,
                                        {recurrent_v_size(r), r->gate_multiplier},
                                        {recurrent_a_size(r), r->a_multiplier}};
    layer_scale_columns(s, mix->channels, mix->stride, parts, 5);
}

/* What the mixer makes of the projection of its input. */
static void mix_tokens(const struct residual_stream *s, const struct step_shape *shape, int32_t layer)
{
    const struct decoder *d = s->d;
    struct backend *b = d->backend;
    const struct recurrent_spec *r = &d->spec->layers[layer].recurrent;
    const struct layer_weights *w = &d->weights->layers[layer];
    const struct recurrence_params params = params_of(r, &w->recurrent);
    struct mix mix = split_mix(d, &d->spec->layers[layer], s->num_tokens);
    if (r->rank > 0) mix = expand_mix(s, r, &w->recurrent, &mix);
    struct decode_recurrence_args args = {.conv = conv_args(s, shape, layer),
                                          .recurrence = recurrence_args_of(d, shape, layer, &params, &mix),
                                          .norm = norm_args(d, r, &w->recurrent.norm, &mix)};
    scale(s, r, &mix);
    args.conv.out = d->act.mixed;
    args.conv.x = mix.channels;
    args.conv.x_stride = mix.stride;
    args.conv.silu = true;
    args.conv.channels = (int32_t)recurrent_channels(r);
    args.conv.width = r->conv_width;
    args.norm.num_tokens = norms_over_ranks(r) ? 0 : s->num_tokens;
    if (shape->num_decodes != shape->num_seqs || !b->decode_recurrence || !b->decode_recurrence(b, &args)) {
        b->short_conv(b, &args.conv);
        b->recurrence(b, &args.recurrence);
        if (!norms_over_ranks(r)) b->gated_norm(b, &args.norm);
    }
    if (norms_over_ranks(r)) norm_over_ranks(s, r, &args.norm);
}

void recurrent_beside(const struct residual_stream *s, const struct step_shape *shape, int32_t layer)
{
    mix_tokens(s, shape, layer);
}

void recurrent_inner(struct residual_stream *s, const struct step_shape *shape, int32_t layer)
{
    const struct decoder *d = s->d;
    const struct layer_weights *w = &d->weights->layers[layer];
    residual_project(s, d->act.qkv, d->dtype, &w->qkv, &w->attention_norm);
    head_keep_before(s, layer);
    mix_tokens(s, shape, layer);
}

void conv_inner(struct residual_stream *s, const struct step_shape *shape, int32_t layer)
{
    const struct decoder *d = s->d;
    const struct layer_weights *w = &d->weights->layers[layer];
    const struct conv_spec *c = &d->spec->layers[layer].conv;
    char *input_gate = d->act.qkv, *output_gate = at_column(input_gate, c->channels, d->dtype);
    struct short_conv_args args = conv_args(s, shape, layer);
    residual_project(s, d->act.qkv, d->dtype, &w->qkv, &w->attention_norm);
    head_keep_before(s, layer);
    args.out = d->act.attention;
    args.x = at_column(output_gate, c->channels, d->dtype);
    args.input_gate = input_gate;
    args.output_gate = output_gate;
    args.x_stride = 3 * (int64_t)c->channels;
    args.channels = c->channels;
    args.width = c->width;
    d->backend->short_conv(d->backend, &args);
}
