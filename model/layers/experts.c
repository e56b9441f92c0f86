/* The mixture of experts of a layer (struct experts_spec): a router chooses experts for each token, and what they
 * compute is weighted and added, to the output of the MLP beside them if there is one. */
#include "model/layers/layers.h"

/* out = w(in) */
static void project(const struct residual_stream *s, void *out, const struct weight *w, const struct matmul_input *in)
{
    const struct projection p = {.parts = {*w}, .num_parts = 1};
    layer_project(s, out, s->d->dtype, &p, in, NULL);
}

static struct expert_matrices matrices(const struct expert_weights *w, const struct weight *first, int num_parts)
{
    return (struct expert_matrices){.weights = first, .stacked = w->stacked, .num_parts = w->stacked ? 1 : num_parts};
}

/* Which tokens go to which expert: in act.experts.plan; and the shared experts' gates: in act.experts.base_gate. */
static void route(const struct residual_stream *s, const struct matmul_input *in, int32_t layer)
{
    const struct decoder *d = s->d;
    const struct experts_spec *e = &d->spec->layers[layer].experts;
    const struct expert_weights *w = &d->weights->layers[layer].experts;
    const struct expert_activations *x = &d->act.experts;
    const bool one = layer_mlp_is_expert(s, layer);
    float *base_gate = one ? x->one.weights + x->top_k : x->base_gate;
    const struct route_experts_args args = {.plan = one ? x->one : x->plan,
                                            .base_gate = e->shared_gate ? base_gate : NULL,
                                            .logits = d->act.experts.logits,
                                            .choice_bias = w->choice_bias.data,
                                            .expert_scales = w->expert_scales.data,
                                            .router = e->router,
                                            .num_tokens = s->num_tokens};
    layer_project(s, d->act.experts.logits, DTYPE_FLOAT32, &w->router, in, NULL);
    d->backend->route_experts(d->backend, &args);
}

/* Where the experts of a layer are computed: by the decoder's backend, or on the host. */
struct place {
    struct backend *backend;
    const struct expert_activations *act;
    int32_t num_tokens;
    bool has_shared; /* the MLP beside the experts counts as one of them */
};

static void compute_gate_up(const struct place *p, const struct decoder *d, int32_t layer, const void *x)
{
    const struct experts_spec *e = &d->spec->layers[layer].experts;
    const struct expert_weights *w = &d->weights->layers[layer].experts;
    const struct experts_gate_up_args args = {.out = p->act->gated,
                                              .x = x,
                                              .gate_up = matrices(w, w->gate_up, gate_operands(&e->gate)),
                                              .gate = e->gate,
                                              .plan = p->has_shared ? p->act->one : p->act->plan,
                                              .weights_first = e->weights_first,
                                              .scratch = p->act->scratch,
                                              .num_tokens = p->num_tokens,
                                              .num_experts = router_num_own(&e->router) + p->has_shared,
                                              .top_k = e->router.top_k + p->has_shared,
                                              .all_experts = e->router.num_experts + p->has_shared,
                                              .size = e->intermediate_size,
                                              .dtype = d->dtype};
    p->backend->experts_gate_up(p->backend, &args);
}

/* Whether experts add to the output of the MLP beside them. */
static bool has_base(const struct decoder *d, int32_t layer)
{
    const struct layer_spec *l = &d->spec->layers[layer];
    return l->mlp.intermediate_size > 0 && !l->experts.own_norms && l->experts.latent_size == 0;
}

/* Into `out`, which has what they add to. */
static void compute_down(const struct place *p, const struct decoder *d, int32_t layer, void *out)
{
    const struct experts_spec *e = &d->spec->layers[layer].experts;
    const struct expert_weights *w = &d->weights->layers[layer].experts;
    const struct experts_down_args args = {.out = out,
                                           .x = p->act->gated,
                                           .down = matrices(w, w->down, 1),
                                           .plan = p->has_shared ? p->act->one : p->act->plan,
                                           .weights_first = e->weights_first,
                                           .base = has_base(d, layer) && !p->has_shared ? out : NULL,
                                           .base_gate = e->shared_gate && !p->has_shared ? p->act->base_gate : NULL,
                                           .scratch = p->act->scratch,
                                           .num_tokens = p->num_tokens,
                                           .num_experts = router_num_own(&e->router) + p->has_shared,
                                           .top_k = e->router.top_k + p->has_shared,
                                           .all_experts = e->router.num_experts + p->has_shared,
                                           .size = e->intermediate_size,
                                           .dtype = d->dtype};
    p->backend->experts_down(p->backend, &args);
}

/* ---- on the host ---- */

/* A graph calls this for steps of any number of tokens up to its own: the plan says how many there are, because all
 * experts are here. */
static void compute_on_host(void *host_layer)
{
    const struct host_layer *l = host_layer;
    const struct host_experts *h = &l->d->host_experts;
    const struct router_params *r = &l->d->spec->layers[l->layer].experts.router;
    if (h->idle) return;
    const struct place p = {h->backend, &h->act, h->act.plan.starts[r->num_experts] / r->top_k, false};
    compute_gate_up(&p, l->d, l->layer, h->x);
    compute_down(&p, l->d, l->layer, h->hidden);
}

/* A copy of what experts of a layer read or make, in whole words. */
static struct copy_segment copy_of_rows(const struct residual_stream *s, int32_t layer, void *destination,
                                        const void *source)
{
    const struct model_spec *spec = s->d->spec;
    const int64_t width = experts_width(&spec->layers[layer].experts, spec->hidden_size);
    const int64_t bytes = s->num_tokens * width * dtype_size(s->d->dtype);
    return (struct copy_segment){destination, source, (bytes + 3) / 4 * 4};
}

static void copy_many(const struct residual_stream *s, const struct copy_segment *segments, int32_t count)
{
    const struct copy_many_args args = {.segments = segments, .count = count};
    s->d->backend->copy_many(s->d->backend, &args);
}

/* What experts on the host read, but for the output of the MLP beside them. */
static void send_input(const struct residual_stream *s, const void *x, int32_t layer)
{
    const struct decoder *d = s->d;
    const struct router_params *r = &d->spec->layers[layer].experts.router;
    const struct expert_plan *from = &d->act.experts.plan, *to = &d->host_experts.act.plan;
    const int64_t assignments = (int64_t)s->num_tokens * r->top_k;
    const struct copy_segment segments[] = {
        copy_of_rows(s, layer, d->host_experts.x, x),
        {to->starts, from->starts, (r->num_experts + 1) * (int64_t)sizeof *to->starts},
        {to->tokens, from->tokens, assignments * (int64_t)sizeof *to->tokens},
        {to->rows, from->rows, assignments * (int64_t)sizeof *to->rows},
        {to->weights, from->weights, assignments * (int64_t)sizeof *to->weights},
    };
    copy_many(s, segments, sizeof segments / sizeof *segments);
}

/* `out` goes to the host with what experts add to, and comes back with what they make. */
static void compute_away(const struct residual_stream *s, int32_t layer, void *out)
{
    const struct decoder *d = s->d;
    void *hidden = d->host_experts.hidden;
    const struct copy_segment output = copy_of_rows(s, layer, out, hidden);
    const struct copy_segment base[] = {copy_of_rows(s, layer, hidden, out),
                                        {d->host_experts.act.base_gate, d->act.experts.base_gate,
                                         s->num_tokens * (int64_t)sizeof *d->act.experts.base_gate}};
    if (has_base(d, layer)) copy_many(s, base, d->spec->layers[layer].experts.shared_gate ? 2 : 1);
    d->backend->call_host(d->backend, compute_on_host, (void *)&d->host_experts.layers[layer]);
    copy_many(s, &output, 1);
}

/* ---- the sublayer ---- */

/* What experts read: the sublayer's input, or its projection. */
static const void *project_in(const struct residual_stream *s, const struct matmul_input *in, int32_t layer)
{
    const struct decoder *d = s->d;
    const struct weight *w = &d->weights->layers[layer].experts.in;
    if (d->spec->layers[layer].experts.latent_size == 0) return in->x;
    const struct matmul_input rows = layer_quantize_for(s, in->x, w, d->act.quantized);
    project(s, d->act.experts.latent, w, &rows);
    return d->act.experts.latent;
}

void experts_inner(struct residual_stream *s, const struct norm_params *norm, int32_t layer)
{
    const struct decoder *d = s->d;
    const struct experts_spec *e = &d->spec->layers[layer].experts;
    const struct expert_weights *w = &d->weights->layers[layer].experts;
    const struct place here = {d->backend, &d->act.experts, s->num_tokens, layer_mlp_is_expert(s, layer)};
    struct matmul_input in = residual_input(s, e->own_norms ? &w->router_norm : norm, NULL);
    route(s, &in, layer);
    in = residual_input(s, e->own_norms ? &w->norm : norm, NULL);
    const void *x = project_in(s, &in, layer);
    if (layer < d->host_experts.num_layers)
        send_input(s, x, layer);
    else
        compute_gate_up(&here, d, layer, x);
}

/* s->hidden = post_shared_norm(s->hidden) + post_norm(x) */
static void add_normed(const struct residual_stream *s, void *x, int32_t layer)
{
    const struct decoder *d = s->d;
    const struct expert_weights *w = &d->weights->layers[layer].experts;
    const int32_t size = d->spec->hidden_size;
    const struct fused_add_rms_norm_args args = {.x = x,
                                                 .residual = s->hidden,
                                                 .multiplier = 1,
                                                 .sum_multiplier = 1,
                                                 .post_norm = &w->post_norm,
                                                 .num_tokens = s->num_tokens,
                                                 .size = size,
                                                 .dtype = d->dtype};
    layer_add_shares(s, x, size, w->down);
    layer_add_shares(s, s->hidden, size, &d->weights->layers[layer].down);
    layer_norm_in_place(s, s->hidden, size, size, &w->post_shared_norm);
    d->backend->fused_add_rms_norm(d->backend, &args);
}

/* `out` = what the experts make, with what is there already (has_base). */
static void add_down(const struct residual_stream *s, int32_t layer, void *out)
{
    const struct place here = {s->d->backend, &s->d->act.experts, s->num_tokens, layer_mlp_is_expert(s, layer)};
    if (layer < s->d->host_experts.num_layers)
        compute_away(s, layer, out);
    else
        compute_down(&here, s->d, layer, out);
}

/* Adds the MLP beside latent experts first, and then what these make, projected back. */
static void output_of_latent(struct residual_stream *s, const struct matmul_input *in, int32_t layer)
{
    const struct decoder *d = s->d;
    const struct layer_spec *l = &d->spec->layers[layer];
    const struct layer_weights *w = &d->weights->layers[layer];
    void *latent = d->act.experts.latent;
    const struct last_matmul down = layer_last_matmul(s, in, &w->down, layer, TENSOR_DOWN);
    if (l->mlp.intermediate_size > 0)
        residual_add(s, &down.in, &down.weight, &w->post_mlp_norm, l->residual_multiplier);
    add_down(s, layer, latent);
    const struct matmul_input rows = layer_quantize_for(s, latent, &w->experts.out, d->act.quantized);
    residual_add(s, &rows, &w->experts.out, &w->post_mlp_norm, l->residual_multiplier);
}

void experts_output(struct residual_stream *s, const struct matmul_input *in, int32_t layer)
{
    const struct decoder *d = s->d;
    const struct layer_spec *l = &d->spec->layers[layer];
    const struct layer_weights *w = &d->weights->layers[layer];
    void *out = l->experts.own_norms ? d->act.qkv : s->hidden;
    if (l->experts.latent_size > 0) {
        output_of_latent(s, in, layer);
        return;
    }
    residual_begin(s);
    if (l->mlp.intermediate_size > 0 && !layer_mlp_is_expert(s, layer)) {
        const struct last_matmul down = layer_last_matmul(s, in, &w->down, layer, TENSOR_DOWN);
        project(s, s->hidden, &down.weight, &down.in);
    }
    add_down(s, layer, out);
    if (l->experts.own_norms) add_normed(s, out, layer);
    residual_pend(s, &w->post_mlp_norm, mlp_multiplier(l) * (l->experts.mean ? 0.5f : 1),
                  w->experts.down->is_share && !l->experts.own_norms);
}
