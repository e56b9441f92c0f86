/* The mixture of experts of a layer (struct experts_spec): a router chooses experts for each token, and what they
 * compute is weighted and added, to the output of the MLP beside them if there is one. */
#include "model/layers/layers.h"

/* out = w(in) as float32, or as the type of the activations. */
static void project(const struct residual_stream *s, void *out, enum dtype out_dtype, const struct weight *w,
                    const struct matmul_input *in)
{
    const struct projection p = {.parts = {*w}, .num_parts = 1};
    layer_project(s, out, out_dtype, &p, in, NULL);
}

static struct expert_matrices matrices(const struct expert_weights *w, const struct weight *first, int num_parts)
{
    return (struct expert_matrices){.weights = first, .stacked = w->stacked, .num_parts = w->stacked ? 1 : num_parts};
}

/* Which tokens go to which expert: in act.experts.plan. */
static void route(const struct residual_stream *s, const struct matmul_input *in, int32_t layer)
{
    const struct decoder *d = s->d;
    const struct expert_weights *w = &d->weights->layers[layer].experts;
    const struct route_experts_args args = {.plan = d->act.experts.plan,
                                            .logits = d->act.experts.logits,
                                            .choice_bias = w->choice_bias.data,
                                            .expert_scales = w->expert_scales.data,
                                            .router = d->spec->layers[layer].experts.router,
                                            .num_tokens = s->num_tokens};
    if (fused_linear_route(s, in, &w->router, &args)) return;
    project(s, d->act.experts.logits, DTYPE_FLOAT32, &w->router, in);
    d->backend->route_experts(d->backend, &args);
}

void experts_inner(struct residual_stream *s, const struct norm_params *norm, int32_t layer)
{
    const struct decoder *d = s->d;
    const struct experts_spec *e = &d->spec->layers[layer].experts;
    const struct expert_weights *w = &d->weights->layers[layer].experts;
    struct matmul_input in = residual_input(s, e->own_norms ? &w->router_norm : norm, NULL);
    route(s, &in, layer);
    in = residual_input(s, e->own_norms ? &w->norm : norm, NULL);
    if (e->shared_gate) project(s, d->act.experts.base_gate, DTYPE_FLOAT32, &w->shared_gate, &in);
    const struct experts_gate_up_args args = {.out = d->act.experts.gated,
                                              .x = in.x,
                                              .gate_up = matrices(w, w->gate_up, 2),
                                              .gate = e->gate,
                                              .plan = d->act.experts.plan,
                                              .weights_first = e->weights_first,
                                              .scratch = d->act.experts.scratch,
                                              .num_tokens = s->num_tokens,
                                              .num_experts = e->router.num_experts,
                                              .top_k = e->router.top_k,
                                              .size = e->intermediate_size,
                                              .dtype = d->dtype};
    d->backend->experts_gate_up(d->backend, &args);
}

/* s->hidden = post_shared_norm(s->hidden) + post_norm(x) */
static void add_normed(const struct residual_stream *s, void *x, const struct expert_weights *w)
{
    const struct decoder *d = s->d;
    const int32_t size = d->spec->hidden_size;
    const struct fused_add_rms_norm_args args = {.x = x,
                                                 .residual = s->hidden,
                                                 .multiplier = 1,
                                                 .sum_multiplier = 1,
                                                 .post_norm = &w->post_norm,
                                                 .num_tokens = s->num_tokens,
                                                 .size = size,
                                                 .dtype = d->dtype};
    layer_norm_in_place(s, s->hidden, size, size, &w->post_shared_norm);
    d->backend->fused_add_rms_norm(d->backend, &args);
}

void experts_output(struct residual_stream *s, const struct matmul_input *in, int32_t layer)
{
    const struct decoder *d = s->d;
    const struct layer_spec *l = &d->spec->layers[layer];
    const struct experts_spec *e = &l->experts;
    const struct layer_weights *w = &d->weights->layers[layer];
    const bool shared = l->mlp.intermediate_size > 0;
    void *out = e->own_norms ? d->act.qkv : s->hidden;
    const struct experts_down_args args = {.out = out,
                                           .x = d->act.experts.gated,
                                           .down = matrices(&w->experts, w->experts.down, 1),
                                           .plan = d->act.experts.plan,
                                           .weights_first = e->weights_first,
                                           .base = shared && !e->own_norms ? s->hidden : NULL,
                                           .base_gate = e->shared_gate ? d->act.experts.base_gate : NULL,
                                           .scratch = d->act.experts.scratch,
                                           .num_tokens = s->num_tokens,
                                           .num_experts = e->router.num_experts,
                                           .top_k = e->router.top_k,
                                           .size = e->intermediate_size,
                                           .dtype = d->dtype};
    residual_begin(s);
    if (shared) project(s, s->hidden, d->dtype, &w->down, in);
    d->backend->experts_down(d->backend, &args);
    if (e->own_norms) add_normed(s, out, &w->experts);
    residual_pend(s, &w->post_mlp_norm, l->residual_multiplier * (e->mean ? 0.5f : 1));
}
