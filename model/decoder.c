#include <assert.h>
#include <stdlib.h>

#include "model/layers/layers.h"
#include "model/shard.h"

/* The first of the ids of which the embedding has rows: vocab_size of them. */
static int32_t first_id(const struct model_spec *spec)
{
    return spec->whole ? shard_tokens(spec->whole->vocab_size, spec->rank, spec->num_ranks).first : 0;
}

void layer_embed(const struct residual_stream *s, void *out)
{
    const struct decoder *d = s->d;
    const struct weight *positions = &d->weights->position_embedding;
    const bool has_positions = d->spec->names.position_embedding && d->spec->rank == 0;
    const struct embedding_args args = {.out = out,
                                        .ids = d->inputs->token_ids,
                                        .last_sampled = d->last_sampled,
                                        .num_tokens = s->num_tokens,
                                        .table = d->embedding,
                                        .first_id = first_id(d->spec),
                                        .is_part = d->spec->whole != NULL,
                                        .multiplier = d->embedding_multiplier,
                                        .position_table = has_positions ? positions : NULL,
                                        .positions = d->inputs->positions,
                                        .position_offset = d->spec->position_offset,
                                        .dtype = d->dtype};
    d->backend->embedding(d->backend, &args);
    if (args.is_part) layer_all_reduce(s, out, d->spec->hidden_size);
    if (d->spec->names.embedding_norm)
        layer_norm_in_place(s, out, d->spec->hidden_size, d->spec->hidden_size, &d->weights->embedding_norm);
}

void layer_gather(const struct decoder *d, void *out, const void *x, const int32_t *indices, int32_t count,
                  int32_t size)
{
    const struct gather_rows_args args = {.out = out,
                                          .x = x,
                                          .out_stride = size,
                                          .x_stride = size,
                                          .indices = indices,
                                          .num_indices = count,
                                          .size = size,
                                          .dtype = d->dtype};
    d->backend->gather_rows(d->backend, &args);
}

/* Whether the final norm is of all tokens: logits are wanted of more of them, or their states. */
static bool keeps_all(const struct decoder *d, const struct step_shape *shape)
{
    return shape->num_targets > 0 || d->spec->head.kind != HEAD_NONE || serves_last_state(d);
}

/* After the attention of the last layer only the tokens that are sampled from matter, so the residual stream keeps only
 * those. Returns their attention. They are gathered in `hidden` and in the buffer of q, k and v, which are free by
 * then. Targets and samples together may be more rows than the buffers have. */
static const void *keep_sampled(struct residual_stream *s, const struct step_shape *shape)
{
    const struct decoder *d = s->d;
    const struct layer_spec *last = &d->spec->layers[d->spec->num_layers - 1];
    const int64_t size = layer_mixer_out_size(last);
    const int64_t beside = last->recurrent_beside ? recurrent_v_size(&last->recurrent) : 0;
    if (shape->all_sampled || keeps_all(d, shape)) return d->act.attention;
    const int32_t *indices = d->inputs->logits_indices;
    if (last->mixer == MIXER_NONE) residual_begin(s); /* no mixer has added what is pending */
    if (size > 0) layer_gather(d, d->act.qkv, d->act.attention, indices, shape->num_samples, (int32_t)(size - beside));
    if (beside > 0)
        layer_gather(d, beside_out(last, d->act.qkv, shape->num_samples, d->dtype),
                     beside_out(last, d->act.attention, s->num_tokens, d->dtype), indices, shape->num_samples,
                     (int32_t)beside);
    layer_gather(d, s->hidden, s->residual, indices, shape->num_samples, d->spec->hidden_size);
    void *old = s->residual;
    s->residual = s->hidden;
    s->hidden = old;
    s->normed = NULL;
    s->num_tokens = shape->num_samples;
    return d->act.qkv;
}

/* Where the logits of lm_head are, of all ranks; the first of those of which the rank has rows; and where its own
 * begin. */
static float *own_logits(const struct decoder *d)
{
    return d->spec->head.maps_ids ? d->act.head_logits : d->act.logits;
}

static int32_t first_logit(const struct model_spec *spec)
{
    return spec->whole ? shard_tokens(model_spec_num_logits(spec->whole), spec->rank, spec->num_ranks).first : 0;
}

static float *rank_logits(const struct decoder *d)
{
    return own_logits(d) + first_logit(d->spec);
}

/* Adds the other ranks' logits of all rows. */
static void gather_logits(const struct decoder *d, int32_t num_rows)
{
    const int64_t all = model_spec_num_logits(model_spec_whole(d->spec));
    const struct all_gather_args args = {.x = own_logits(d),
                                         .rows = num_rows,
                                         .stride = all,
                                         .total = all,
                                         .first = first_logit(d->spec),
                                         .columns = model_spec_num_logits(d->spec)};
    if (d->spec->whole) d->backend->all_gather(d->backend, &args);
}

void decoder_finish_logits(const struct decoder *d, int32_t num_rows)
{
    const int32_t num_logits = model_spec_num_logits(model_spec_whole(d->spec));
    const struct scale_logits_args scale = {.logits = own_logits(d),
                                            .num_samples = num_rows,
                                            .vocab_size = num_logits,
                                            .multiplier = (float)d->spec->logits_multiplier,
                                            .soft_cap = (float)d->spec->logits_soft_cap};
    const struct scatter_logits_args scatter = {.out = d->act.logits,
                                                .logits = d->act.head_logits,
                                                .ids = d->weights->target_ids.data,
                                                .num_samples = num_rows,
                                                .num_ids = num_logits,
                                                .vocab_size = model_spec_whole(d->spec)->vocab_size};
    gather_logits(d, num_rows);
    if (scale.multiplier != 1 || scale.soft_cap != 0) d->backend->scale_logits(d->backend, &scale);
    if (d->spec->head.maps_ids) d->backend->scatter_logits(d->backend, &scatter);
}

static struct projection lm_head(const struct decoder *d)
{
    const int32_t all = model_spec_num_logits(model_spec_whole(d->spec));
    return (struct projection){.parts = {*d->lm_head}, .num_parts = 1, .out_stride = all};
}

static void compute_logits(struct residual_stream *s)
{
    const struct projection head = lm_head(s->d);
    residual_project(s, rank_logits(s->d), DTYPE_FLOAT32, &head, &s->d->weights->final_norm);
}

/* The logits of `count` tokens whose final norm is x. */
static void compute_normed_logits(const struct decoder *d, const void *x, int32_t count)
{
    const struct projection head = lm_head(d);
    const struct residual_stream rows = {.d = d, .num_tokens = count};
    const struct matmul_input in = {.x = x};
    layer_project(&rows, rank_logits(d), DTYPE_FLOAT32, &head, &in, NULL);
}

/* The logits of the tokens indices[count] of a pass that kept all. The final norm's output is in act.hidden, unless
 * there is no such norm; the other buffer is free. */
static void compute_gathered_logits(const struct decoder *d, const int32_t *indices, int32_t count)
{
    const bool normed = d->weights->final_norm.gain != NULL;
    void *gathered = normed ? d->act.residual : d->act.hidden;
    layer_gather(d, gathered, normed ? d->act.hidden : d->act.residual, indices, count, d->spec->hidden_size);
    compute_normed_logits(d, gathered, count);
}

void decoder_target_logits(const struct decoder *d, int32_t first, int32_t count)
{
    compute_gathered_logits(d, d->inputs->target_indices + first, count);
    decoder_finish_logits(d, count);
}

bool decoder_own_logits(const struct decoder *d, struct sample_share *share)
{
    const struct model_spec *spec = d->spec;
    if (spec->logits_multiplier != 1 || spec->logits_soft_cap != 0 || spec->head.maps_ids) return false;
    *share = (struct sample_share){spec->rank, spec->num_ranks, first_logit(spec), model_spec_num_logits(spec)};
    return true;
}

/* The final norm and the rank's logits. */
static void compute_own_logits(struct residual_stream *s, const struct step_shape *shape)
{
    const struct decoder *d = s->d;
    if (!keeps_all(d, shape)) {
        compute_logits(s);
        return;
    }
    const struct matmul_input in = residual_input(s, &d->weights->final_norm, NULL);
    head_keep_last(s, in.x);
    if (shape->all_sampled && shape->num_targets == 0)
        compute_normed_logits(d, in.x, shape->num_samples);
    else if (shape->num_samples > 0)
        compute_gathered_logits(d, d->inputs->logits_indices, shape->num_samples);
}

static void finish(struct residual_stream *s, const struct step_shape *shape)
{
    compute_own_logits(s, shape);
    if (!s->d->spec->whole && shape->num_samples > 0) decoder_finish_logits(s->d, shape->num_samples);
}

/* What the next stage goes on from, in act.residual: nothing is pending. */
static void finish_stage(struct residual_stream *s)
{
    const struct decoder *d = s->d;
    residual_begin(s);
    if (s->residual != d->act.residual)
        layer_gather(d, d->act.residual, s->residual, NULL, s->num_tokens, d->spec->hidden_size);
}

/* What the layer's mixer computes, in act.attention. */
static void mixer_inner(struct residual_stream *s, const struct step_shape *shape, int32_t layer)
{
    switch (s->d->spec->layers[layer].mixer) {
    case MIXER_ATTENTION:
        attention_inner(s, shape, layer);
        break;
    case MIXER_RECURRENT:
        recurrent_inner(s, shape, layer);
        break;
    case MIXER_CONV:
        conv_inner(s, shape, layer);
        break;
    case MIXER_LATENT:
        latent_inner(s, shape, layer);
        break;
    case MIXER_NONE:
        break;
    }
}

/* Ranks end a pass together. */
static bool cancelled(const struct decoder *d)
{
    const bool mine = d->cancel && *d->cancel;
    return d->cancel && d->backend->agree ? d->backend->agree(d->backend, mine) : mine;
}

/* The layer's MLP, or experts. */
static bool add_mlp(struct residual_stream *s, struct matmul_input *mlp, int32_t layer)
{
    const struct decoder *d = s->d;
    const struct layer_spec *l = &d->spec->layers[layer];
    if (l->norm_placement == NORM_STREAM) residual_norm_stream(s, &d->weights->layers[layer].mlp_stream_norm);
    if (!norm_is_parallel(l->norm_placement)) *mlp = mlp_inner(s, layer);
    if (cancelled(d)) return false;
    if (l->norm_placement == NORM_STREAM) s->sum_multiplier = l->mlp_scaling.sum;
    mlp_output(s, mlp, layer);
    return true;
}

bool decoder_forward(const struct decoder *d, const struct step_shape *shape)
{
    struct residual_stream s = {.d = d,
                                .hidden = d->act.hidden,
                                .residual = d->act.residual,
                                .num_tokens = shape->num_tokens,
                                .sum_multiplier = 1};
    if (d->spec->head.kind != HEAD_NONE)
        head_begin(&s, shape);
    else if (stage_is_first(d->spec))
        layer_embed(&s, s.residual);
    if (d->spec->per_layer_size) per_layer_inputs(&s);
    for (int32_t layer = 0; layer < d->spec->num_layers; layer++) {
        const struct layer_spec *l = &d->spec->layers[layer];
        const struct layer_weights *w = &d->weights->layers[layer];
        const bool parallel = norm_is_parallel(l->norm_placement), stream = l->norm_placement == NORM_STREAM;
        const void *attention = d->act.attention;
        struct matmul_input mlp = {0};
        if (cancelled(d)) return false;
        if (stream) residual_norm_stream(&s, &w->stream_norm);
        mixer_inner(&s, shape, layer);
        if (!layer_is_read(d, shape, layer)) return true;
        if (layer_is_last(d, layer)) attention = keep_sampled(&s, shape);
        /* A parallel block's MLP reads the residual stream without the attention's output. */
        if (parallel) mlp = mlp_inner(&s, layer);
        if (stream) s.sum_multiplier = l->mixer_scaling.sum;
        if (l->mixer != MIXER_NONE) attention_output(&s, attention, layer);
        if (cancelled(d)) return false;
        if (layer_has_mlp(l) && !add_mlp(&s, &mlp, layer)) return false;
        if (d->spec->per_layer_size) per_layer_add(&s, shape, layer);
        if (d->spec->layer_scalars) s.sum_multiplier = w->scalar;
        assert(s.pending || s.sum_multiplier == 1); /* the addition multiplies */
    }
    if (stage_is_last(d->spec))
        finish(&s, shape);
    else
        finish_stage(&s);
    return true;
}

/* ---- Start-up ---- */

/* Elements that a token takes at most in the buffers that layers share. */
struct activation_sizes {
    int64_t qkv, attention, mixed, mixed_gates, latent_heads, inner, gate_up;
};

static void cover(int64_t *most, int64_t value)
{
    if (value > *most) *most = value;
}

/* latent_heads holds q before attention, unless q is a part of qkv, and what attention computes. */
static void cover_latent(struct activation_sizes *s, const struct latent_spec *l)
{
    const int64_t heads = l->num_heads, q = l->q_rank > 0 ? latent_q_size(l) : 0;
    cover(&s->attention, l->q_rank);
    cover(&s->mixed, heads * latent_vector_size(l));
    cover(&s->latent_heads, q);
    cover(&s->latent_heads, heads * l->rank);
}

static struct activation_sizes largest_sizes(const struct model_spec *c)
{
    struct activation_sizes s = {0};
    for (int32_t i = 0; i < c->num_layers; i++) {
        const struct layer_spec *l = &c->layers[i];
        const struct recurrent_spec *r = &l->recurrent;
        const int64_t out = layer_mixer_out_size(l), qkv = layer_mixer_in_size(l);
        const int64_t mixed = layer_is_recurrent(l) ? recurrent_channels(r) : 0;
        if (r->rank > 0) cover(&s.mixed_gates, recurrent_v_size(r) + recurrent_a_size(r));
        if (qkv > s.qkv) s.qkv = qkv;
        if (out > s.qkv) s.qkv = out; /* keep_sampled gathers it there */
        if (l->mixer == MIXER_LATENT) cover_latent(&s, &l->latent);
        if (l->experts.own_norms && c->hidden_size > s.qkv) s.qkv = c->hidden_size; /* what the experts compute */
        if (out > s.attention) s.attention = out;
        if (mixed > s.mixed) s.mixed = mixed;
        if (l->mlp.intermediate_size > s.inner) s.inner = l->mlp.intermediate_size;
    }
    const int64_t per_layer = (int64_t)c->num_layers * c->per_layer_size;
    if (c->per_layer_size > s.inner) s.inner = c->per_layer_size;
    s.gate_up = per_layer > 2 * s.inner ? per_layer : 2 * s.inner;
    return s;
}

/* Bytes of rows of `size` elements, quantized: elements and, at worst, a scale for each 128 and one more. */
static int64_t quantized_bytes(const struct model_spec *c, int64_t num_tokens, int64_t size)
{
    for (int32_t i = 0; i < c->num_schemes; i++)
        if (c->schemes[i].quantize_x) return num_tokens * (size + (size / 128 + 1) * (int64_t)sizeof(float));
    return 0;
}

/* Without room for what experts compute where none is computed. */
static enum status allocate_expert_activations(const struct decoder *d, struct arena *arena,
                                               enum memory_purpose purpose, int64_t num_tokens, bool computed,
                                               struct expert_activations *x, struct error *err)
{
    const struct layer_sizes sizes = model_spec_largest(d->spec);
    const int64_t T = num_tokens, A = T * sizes.top_k, e = dtype_size(d->dtype), i32 = sizeof(int32_t);
    const int64_t inner = 2 * (int64_t)sizes.expert_size, rows = computed ? A : 0;
    int64_t widest = d->spec->hidden_size;
    cover(&widest, inner);
    cover(&widest, sizes.expert_latent_size);
    x->num_experts = sizes.num_experts, x->top_k = sizes.top_k;
    const struct arena_request requests[] = {
        {purpose, T, sizeof *x->base_gate, &x->base_gate},
        {purpose, sizes.num_experts + 1, i32, &x->plan.starts},
        {purpose, A, i32, &x->plan.tokens},
        {purpose, A, i32, &x->plan.rows},
        {purpose, A, sizeof *x->plan.weights, &x->plan.weights},
        {purpose, sizes.num_experts + 2, i32, &x->one.starts},
        {purpose, sizes.top_k + 1, i32, &x->one.tokens},
        {purpose, sizes.top_k + 1, i32, &x->one.rows},
        {purpose, sizes.top_k + 1, sizeof *x->one.weights, &x->one.weights},
        {purpose, rows * sizes.expert_size, e, &x->gated},
        {purpose, T * sizes.expert_latent_size, e, &x->latent},
        {purpose, rows * (widest * e + (int64_t)sizeof(float)), 1, &x->scratch},
    };
    return arena_alloc_all(arena, requests, sizeof requests / sizeof *requests, err);
}

static enum status allocate_host_experts(struct decoder *d, struct arena *arena, int64_t num_tokens, struct error *err)
{
    struct host_experts *h = &d->host_experts;
    const int64_t latent = model_spec_largest(d->spec).expert_latent_size, e = dtype_size(d->dtype);
    const int64_t elements = num_tokens * (latent > d->spec->hidden_size ? latent : d->spec->hidden_size);
    const struct arena_request requests[] = {{PURPOSE_HOST_STAGING, elements, e, &h->x},
                                             {PURPOSE_HOST_STAGING, elements, e, &h->hidden}};
    enum status status = arena_alloc_all(arena, requests, sizeof requests / sizeof *requests, err);
    for (int32_t i = 0; i < h->num_layers; i++) h->layers[i] = (struct host_layer){d, i};
    if (status != STATUS_OK) return status;
    return allocate_expert_activations(d, arena, PURPOSE_HOST_STAGING, num_tokens, true, &h->act, err);
}

static enum status allocate_experts(struct decoder *d, struct arena *arena, int64_t num_tokens, struct error *err)
{
    const struct layer_sizes sizes = model_spec_largest(d->spec);
    struct expert_activations *x = &d->act.experts;
    const struct arena_request logits = {PURPOSE_ACTIVATIONS, num_tokens * (sizes.num_experts + 1), sizeof *x->logits,
                                         &x->logits};
    const bool computed = d->host_experts.num_layers < d->spec->num_layers;
    if (sizes.num_experts == 0) return STATUS_OK;
    enum status status = arena_alloc_all(arena, &logits, 1, err);
    if (status == STATUS_OK)
        status = allocate_expert_activations(d, arena, PURPOSE_ACTIVATIONS, num_tokens, computed, x, err);
    if (status != STATUS_OK || d->host_experts.num_layers == 0) return status;
    return allocate_host_experts(d, arena, num_tokens, err);
}

/* What a head has more than other models, and what its target keeps for it. */
static enum status allocate_head(struct decoder *d, struct arena *arena, int64_t num_tokens, int64_t num_entries,
                                 struct error *err)
{
    const struct head_spec *own = &d->spec->head;
    const int64_t hidden = d->spec->hidden_size, e = dtype_size(d->dtype);
    const struct head_spec *head = d->served ? d->served : own;
    const int64_t states = (int64_t)head->num_states * head->state_size;
    const bool is_head = own->kind != HEAD_NONE;
    const int64_t kept = d->served ? states : hidden * is_head;
    const struct arena_request requests[] = {
        {PURPOSE_ACTIVATIONS, num_tokens * kept, e, &d->states},
        {PURPOSE_ACTIVATIONS, is_head ? num_tokens * (states > 2 * hidden ? states : 2 * hidden) : 0, e,
         &d->act.head_input},
        {PURPOSE_ACTIVATIONS, own->maps_ids ? num_entries * model_spec_num_logits(model_spec_whole(d->spec)) : 0,
         sizeof(float), &d->act.head_logits},
    };
    return arena_alloc_all(arena, requests, sizeof requests / sizeof *requests, err);
}

/* A plan has no weights, of which a file may have an order that its scheme does not speak of. */
static bool is_ordered(const struct decoder *d, int32_t layer, enum tensor_role role)
{
    const struct model_spec *c = d->spec;
    if (c->schemes[c->layers[layer].schemes[role]].ordered) return true;
    if (!d->weights->layers) return false;
    const struct layer_weights *w = &d->weights->layers[layer];
    return (role == TENSOR_O ? &w->o : role == TENSOR_MIX_O ? &w->recurrent.o : &w->down)->input_order;
}

/* What gather_columns needs (layers/residual.c). */
static enum status allocate_ordered(struct decoder *d, struct arena *arena, int64_t num_tokens, struct error *err)
{
    static const enum tensor_role shares[] = {TENSOR_O, TENSOR_MIX_O, TENSOR_DOWN};
    int64_t total = 0;
    for (int32_t i = 0; i < d->spec->num_layers && d->spec->whole; i++)
        for (int k = 0; k < 3; k++)
            if (is_ordered(d, i, shares[k])) cover(&total, shard_columns(d->spec, i, shares[k]).total);
    const struct arena_request requests[] = {
        {PURPOSE_ACTIVATIONS, num_tokens * total, dtype_size(d->dtype), &d->act.ordered},
        {PURPOSE_ACTIVATIONS, num_tokens * total, sizeof(float), &d->act.all_inputs},
    };
    return arena_alloc_all(arena, requests, sizeof requests / sizeof *requests, err);
}

static enum status allocate_activations(struct decoder *d, struct arena *arena, const struct batch_limits *limits,
                                        struct error *err)
{
    const struct model_spec *c = d->spec;
    const int64_t T = quantized_rows_padded(batch_max_rows(limits)), E = batch_max_entries(limits);
    const int64_t e = dtype_size(d->dtype);
    const struct activation_sizes sizes = largest_sizes(c);
    int64_t quantized = c->hidden_size; /* of a sublayer, o, or experts_out */
    cover(&quantized, sizes.attention);
    cover(&quantized, model_spec_largest(c).expert_latent_size);
    struct activations *a = &d->act;
    const struct arena_request requests[] = {
        {PURPOSE_ACTIVATIONS, T * c->hidden_size, e, &a->hidden},
        {PURPOSE_ACTIVATIONS, T * c->hidden_size, e, &a->residual},
        {PURPOSE_ACTIVATIONS, T * sizes.qkv, e, &a->qkv},
        {PURPOSE_ACTIVATIONS, T * sizes.attention, e, &a->attention},
        {PURPOSE_ACTIVATIONS, T * sizes.mixed, e, &a->mixed},
        {PURPOSE_ACTIVATIONS, T * sizes.mixed_gates, e, &a->mixed_gates},
        {PURPOSE_ACTIVATIONS, T * sizes.latent_heads, e, &a->latent_heads},
        {PURPOSE_ACTIVATIONS, T * sizes.gate_up, e, &a->gate_up},
        {PURPOSE_ACTIVATIONS, T * sizes.inner, e, &a->gated},
        {PURPOSE_ACTIVATIONS, T * c->num_layers * c->per_layer_size, e, &a->per_layer},
        {PURPOSE_ACTIVATIONS, quantized_bytes(c, T, quantized), 1, &a->quantized},
        {PURPOSE_ACTIVATIONS, stage_is_last(c) ? E * model_spec_whole(c)->vocab_size : 0, sizeof(float), &a->logits},
    };
    enum status status = arena_alloc_all(arena, requests, sizeof requests / sizeof *requests, err);
    if (status == STATUS_OK) status = allocate_head(d, arena, T, E, err);
    if (status == STATUS_OK) status = allocate_ordered(d, arena, T, err);
    return status == STATUS_OK ? allocate_experts(d, arena, T, err) : status;
}

static float rounded(float value, enum dtype dtype)
{
    float stored;
    dtype_store(&stored, dtype, 0, value);
    return dtype_load(&stored, dtype, 0);
}

/* Elements of alibi_slopes; 0: no layer has ALiBi. */
static int64_t alibi_count(const struct model_spec *spec)
{
    bool any = false;
    for (int32_t i = 0; i < spec->num_layers; i++) any |= spec->layers[i].attention.alibi_bias_max > 0;
    return any ? (int64_t)spec->num_layers * model_spec_largest(spec).num_heads : 0;
}

/* The row of a layer's MLP that counts as an expert. */
static enum status upload_one(const struct decoder *d, struct error *err)
{
    struct backend *b = d->backend;
    const struct expert_activations *x = &d->act.experts;
    const int32_t start = x->top_k + 1, token = 0, row = x->top_k;
    const float weight = 1;
    if (x->num_experts == 0) return STATUS_OK;
    b->copy(b, x->one.starts + x->num_experts + 1, &start, sizeof start, NULL);
    b->copy(b, x->one.tokens + x->top_k, &token, sizeof token, NULL);
    b->copy(b, x->one.rows + x->top_k, &row, sizeof row, NULL);
    b->copy(b, x->one.weights + x->top_k, &weight, sizeof weight, NULL);
    return b->stream_synchronize(b, NULL, err);
}

enum status decoder_upload(const struct decoder *d, struct error *err)
{
    const struct model_spec *spec = d->spec;
    const int64_t count = alibi_count(spec), heads = count / spec->num_layers;
    const enum status uploaded = upload_one(d, err);
    if (count == 0 || uploaded != STATUS_OK) return uploaded;
    float *slopes = malloc((size_t)count * sizeof *slopes);
    if (!slopes) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the slopes of ALiBi");
    for (int64_t i = 0; i < count; i++)
        slopes[i] = attention_alibi_slope(&spec->layers[i / heads].attention, (int32_t)(i % heads));
    d->backend->copy(d->backend, d->alibi_slopes, slopes, count * (int64_t)sizeof *slopes, NULL);
    const enum status status = d->backend->stream_synchronize(d->backend, NULL, err);
    free(slopes);
    return status;
}

enum status decoder_allocate(struct decoder *d, struct arena *arena, const struct batch_limits *limits,
                             struct error *err)
{
    void *slopes = NULL;
    const int64_t alibi = alibi_count(d->spec);
    enum status status =
        alibi > 0 ? arena_alloc(arena, PURPOSE_STATE, alibi * (int64_t)sizeof(float), &slopes, err) : STATUS_OK;
    if (status != STATUS_OK) return status;
    d->alibi_slopes = slopes;
    d->embedding_multiplier = (float)d->spec->embedding_multiplier;
    if (d->spec->round_embedding_multiplier) d->embedding_multiplier = rounded(d->embedding_multiplier, d->dtype);
    for (int32_t i = 0; i < d->spec->num_layers; i++) {
        const struct attention_spec *a = &d->spec->layers[i].attention;
        d->attention[i] = (struct attention_params){.scale = a->scale,
                                                    .window = a->window,
                                                    .chunk = a->chunk,
                                                    .soft_cap = a->soft_cap,
                                                    .kv_scales = kv_cache_scales(d->cache, i - a->shares_kv)};
        if (a->alibi_bias_max > 0 && slopes)
            d->attention[i].alibi_slopes = d->alibi_slopes + i * (alibi / d->spec->num_layers);
        if (!arena->planning) d->attention[i].sinks = d->weights->layers[i].sinks.data;
    }
    return allocate_activations(d, arena, limits, err);
}
