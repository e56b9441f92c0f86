/* The MLP of a layer: down(activation(gate(x)) * up(x)), SwiGLU and GeGLU of Shazeer, 2020; or down(activation(up(x))).
 */
#include "model/layers/layers.h"

static const struct norm_params *input_norm(const struct residual_stream *s, int32_t layer)
{
    const struct layer_weights *w = &s->d->weights->layers[layer];
    return s->d->spec->layers[layer].norm_placement == NORM_PARALLEL ? &w->attention_norm : &w->mlp_norm;
}

static bool gate_is_multiplied(const struct mlp_spec *m)
{
    return multiplier_or_1(m->gate_multiplier) != 1;
}

/* gate_and_up or up_and_activate as one operation, if there is one: of the residual stream, or of *in, which the norm
 * makes of it. */
static bool compute_fused(struct residual_stream *s, int32_t layer, struct matmul_input *in)
{
    const struct mlp_spec *m = &s->d->spec->layers[layer].mlp;
    const struct projection *p = &s->d->weights->layers[layer].gate_up;
    const struct norm_params *norm = input_norm(s, layer);
    const struct matmul_input residual = {.x = s->residual};
    const bool plain = !gate_is_multiplied(m);
    if (plain && fused_gate_up(s, &residual, p, m, norm)) return true;
    *in = residual_input(s, norm, p);
    return plain && fused_gate_up(s, in, p, m, NULL);
}

/* activation(gate(y)) * up(y), where y is the MLP's input; in act.gated. */
static struct matmul_input gate_and_up(struct residual_stream *s, int32_t layer)
{
    const struct decoder *d = s->d;
    struct backend *b = d->backend;
    const struct mlp_spec *m = &d->spec->layers[layer].mlp;
    const struct layer_weights *w = &d->weights->layers[layer];
    struct matmul_input in, out = {.x = d->act.gated};
    if (compute_fused(s, layer, &in)) return out;
    const struct column_part gate = {m->intermediate_size, m->gate_multiplier};
    struct left_out_scales scales = {0};
    layer_project(s, d->act.gate_up, d->dtype, &w->gate_up, &in, gate_is_multiplied(m) ? NULL : &scales);
    layer_scale_columns(s, d->act.gate_up, 2 * gate.size, &gate, 1);
    out.rows = layer_rows_for(s, &w->down, d->act.gated);
    const struct act_and_mul_args args = {.out = d->act.gated,
                                          .quantized = rows_of(&out),
                                          .gate_up = d->act.gate_up,
                                          .gate_up_scales = scales,
                                          .activation = m->activation,
                                          .limit = m->limit,
                                          .num_tokens = s->num_tokens,
                                          .size = m->intermediate_size,
                                          .dtype = d->dtype};
    b->act_and_mul(b, &args);
    return out;
}

/* activation(up(y)); in act.gated, or quantized in act.gate_up, which such an MLP does not need. */
static struct matmul_input up_and_activate(struct residual_stream *s, int32_t layer)
{
    const struct decoder *d = s->d;
    const struct mlp_spec *m = &d->spec->layers[layer].mlp;
    const struct layer_weights *w = &d->weights->layers[layer];
    const struct activate_args args = {.out = d->act.gated,
                                       .x = d->act.gated,
                                       .activation = m->activation,
                                       .xielu = w->xielu,
                                       .num_tokens = s->num_tokens,
                                       .size = m->intermediate_size,
                                       .dtype = d->dtype};
    struct matmul_input in;
    if (m->activation == ACTIVATION_XIELU || !compute_fused(s, layer, &in)) {
        residual_project(s, d->act.gated, d->dtype, &w->gate_up, input_norm(s, layer));
        d->backend->activate(d->backend, &args);
    }
    return layer_quantize_for(s, d->act.gated, &w->down, d->act.gate_up);
}

struct matmul_input mlp_inner(struct residual_stream *s, int32_t layer)
{
    const struct layer_spec *l = &s->d->spec->layers[layer];
    if (l->experts.router.num_experts > 0) experts_inner(s, input_norm(s, layer), layer);
    if (l->mlp.intermediate_size == 0 || layer_mlp_is_expert(s, layer)) return (struct matmul_input){0};
    return l->mlp.kind == MLP_GATED ? gate_and_up(s, layer) : up_and_activate(s, layer);
}

void mlp_output(struct residual_stream *s, const struct matmul_input *in, int32_t layer)
{
    const struct layer_weights *w = &s->d->weights->layers[layer];
    const struct layer_spec *l = &s->d->spec->layers[layer];
    if (l->experts.router.num_experts > 0) {
        experts_output(s, in, layer);
        return;
    }
    const struct last_matmul down = layer_last_matmul(s, in, &w->down, layer, TENSOR_DOWN);
    residual_add(s, &down.in, &down.weight, &w->post_mlp_norm,
                 mlp_multiplier(l) * multiplier_or_1(l->mlp.out_multiplier));
}
