/* Per-layer embeddings (Gemma 3n and 4, Google, 2025): a token has an embedding for each layer, which is added to a
 * projection of its embedding, and which the layer mixes into the residual stream behind its MLP:
 *
 *     inputs = (embedding(token) + norm(projection(x))) / sqrt(2)     all layers together, before the first
 *     x = x + post_norm(down(activation(gate(x)) * inputs[layer])) */
#include <math.h>

#include "model/layers/layers.h"

static void look_up(const struct residual_stream *s)
{
    const struct decoder *d = s->d;
    const struct embedding_args args = {.out = d->act.per_layer,
                                        .ids = d->inputs->token_ids,
                                        .last_sampled = d->last_sampled,
                                        .num_tokens = s->num_tokens,
                                        .table = &d->weights->per_layer_embedding,
                                        .multiplier = sqrtf((float)d->spec->per_layer_size / 2),
                                        .dtype = d->dtype};
    d->backend->embedding(d->backend, &args);
}

void per_layer_inputs(const struct residual_stream *s)
{
    const struct decoder *d = s->d;
    const struct model_spec *spec = d->spec;
    const struct matmul_input in = {.x = s->residual};
    struct norm_params norm = d->weights->per_layer_norm;
    norm.eps *= (float)spec->hidden_size; /* the projection is divided by sqrt(hidden_size), which the norm undoes */
    look_up(s);
    layer_project(s, d->act.gate_up, d->dtype, &d->weights->per_layer_projection, &in, NULL);
    const struct fused_add_rms_norm_args args = {.x = d->act.gate_up,
                                                 .residual = d->act.per_layer,
                                                 .multiplier = sqrtf(0.5f),
                                                 .sum_multiplier = 1,
                                                 .post_norm = &norm,
                                                 .num_tokens = s->num_tokens * spec->num_layers,
                                                 .size = spec->per_layer_size,
                                                 .dtype = d->dtype};
    d->backend->fused_add_rms_norm(d->backend, &args);
}

/* The inputs of all layers, of the tokens that the residual stream still has. */
static const void *inputs_of(const struct residual_stream *s, const struct step_shape *shape)
{
    const struct decoder *d = s->d;
    if (s->num_tokens == shape->num_tokens) return d->act.per_layer;
    layer_gather(d, d->act.gate_up, d->act.per_layer, d->inputs->logits_indices, s->num_tokens,
                 d->spec->num_layers * d->spec->per_layer_size);
    return d->act.gate_up;
}

void per_layer_add(struct residual_stream *s, const struct step_shape *shape, int32_t layer)
{
    static const struct norm_params none = {0};
    const struct decoder *d = s->d;
    const struct layer_weights *w = &d->weights->layers[layer];
    const int32_t size = d->spec->per_layer_size;
    const struct matmul_input x = residual_input(s, &none, &w->per_layer_gate);
    layer_project(s, d->act.gated, d->dtype, &w->per_layer_gate, &x, NULL);
    const struct act_and_mul_args args = {.out = d->act.gated,
                                          .gate_up = d->act.gated,
                                          .activation = d->spec->layers[layer].mlp.activation,
                                          .up = at_column((void *)inputs_of(s, shape), (int64_t)layer * size, d->dtype),
                                          .up_stride = (int64_t)d->spec->num_layers * size,
                                          .num_tokens = s->num_tokens,
                                          .size = size,
                                          .dtype = d->dtype};
    d->backend->act_and_mul(d->backend, &args);
    const struct matmul_input in = layer_quantize_for(s, d->act.gated, &w->per_layer_down, d->act.quantized);
    residual_add(s, &in, &w->per_layer_down, &w->post_per_layer_norm, 1);
}
