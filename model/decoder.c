#include "model/decoder.h"

/* The residual stream. A sublayer's output stays pending in `hidden` until the next norm adds it to `residual`, which
 * saves a pass over memory. The fused linear_residual adds the output as it computes it: then nothing is pending. */
struct residual_stream {
    const struct decoder *d;
    void *hidden, *residual; /* [num_tokens, hidden_size] */
    int32_t num_tokens;
    bool pending;
    float multiplier;                    /* of the pending output */
    struct left_out_scales scales;       /* of the pending output */
    const struct norm_params *post_norm; /* of the pending output; NULL: none */
    const struct norm_params *normed;    /* hidden is this norm of residual; NULL: of none */
    int64_t normed_groups;               /* 0: hidden is; else act.quantized is, in groups of so many elements */
};

/* The input of matmuls: floats, or the same in 8 bits. */
struct input {
    const void *x;
    struct quantized_rows rows; /* data NULL: x */
};

static const struct quantized_rows *rows_of(const struct input *in)
{
    return in->rows.data ? &in->rows : NULL;
}

static char *at_column(void *row, int64_t column, enum dtype dtype)
{
    return (char *)row + column * dtype_size(dtype);
}

static bool is_last(const struct decoder *d, int32_t layer)
{
    return layer == d->spec->num_layers - 1;
}

/* out = w(in), contiguous. */
static struct linear_args linear_of(const struct residual_stream *s, void *out, const struct input *in,
                                    const struct weight *w)
{
    const enum dtype dtype = s->d->dtype;
    return (struct linear_args){.out = out,
                                .out_stride = w->out_features,
                                .out_dtype = dtype,
                                .x = in->x,
                                .x_stride = w->in_features,
                                .quantized_x = rows_of(in),
                                .dtype = dtype,
                                .num_tokens = s->num_tokens,
                                .weight = w};
}

/* ---- Quantized rows: where the backend wants the input of a matmul in 8 bits, the operation that computes the input
 * writes it so. ---- */

/* The rows of w's input in the buffer, if the backend wants them; else none. Scales come first: an operation may read
 * those that a matmul left out, and write those of its own rows to the same place. */
static struct quantized_rows rows_for(const struct residual_stream *s, const struct weight *w, void *buffer)
{
    struct backend *b = s->d->backend;
    if (!b->takes_quantized_rows || !b->takes_quantized_rows(b, w, s->num_tokens, s->d->dtype))
        return (struct quantized_rows){0};
    const int64_t groups = w->in_features / w->group_size;
    const int64_t scales = quantized_rows_padded(s->num_tokens) * groups * (int64_t)sizeof(float);
    return (struct quantized_rows){.data = (char *)buffer + scales, .scales = buffer, .group_size = w->group_size};
}

/* The same of a projection, all of whose parts must want the same. */
static struct quantized_rows rows_for_all(const struct residual_stream *s, const struct projection *p, void *buffer)
{
    struct quantized_rows rows = {0};
    for (int i = 0; i < p->num_parts; i++) {
        const struct quantized_rows part = rows_for(s, &p->parts[i], buffer);
        if (!part.data || (i > 0 && part.group_size != rows.group_size)) return (struct quantized_rows){0};
        rows = part;
    }
    return rows;
}

/* For what is computed by an operation that cannot quantize. */
static void quantize(const struct residual_stream *s, const struct input *in, int32_t size)
{
    struct backend *b = s->d->backend;
    const struct quantize_rows_args args = {
        .out = &in->rows, .x = in->x, .num_tokens = s->num_tokens, .size = size, .dtype = s->d->dtype};
    if (in->rows.data) b->quantize_rows(b, &args);
}

/* ---- Fused operations. Each does nothing and returns false if the model or the backend needs the single operations.
 */

/* out = p(rms_norm(residual)) */
static bool fused_norm_linear(const struct residual_stream *s, void *out, enum dtype out_dtype,
                              const struct projection *p, const struct norm_params *norm)
{
    struct backend *b = s->d->backend;
    if (!b->norm_linear || s->pending || !norm->gain || p->num_parts > 1) return false;
    const struct input in = {.x = s->residual};
    struct norm_linear_args args = {.linear = linear_of(s, out, &in, &p->parts[0]), .norm = *norm};
    args.linear.out_dtype = out_dtype;
    return b->norm_linear(b, &args);
}

/* residual += w(in) */
static bool fused_linear_residual(const struct residual_stream *s, const struct input *in, const struct weight *w,
                                  const struct norm_params *post_norm, float multiplier)
{
    struct backend *b = s->d->backend;
    if (!b->linear_residual || in->rows.data || post_norm->gain || multiplier != 1) return false;
    const struct linear_args args = linear_of(s, s->residual, in, w);
    return b->linear_residual(b, &args);
}

/* act.gated = activation(gate(y)) * up(y), where y is norm(in) or, if norm is NULL, in. */
static bool fused_gate_up(const struct residual_stream *s, const struct input *in, const struct projection *p,
                          enum activation activation, const struct norm_params *norm)
{
    const struct decoder *d = s->d;
    struct backend *b = d->backend;
    if (!b->gate_up || in->rows.data || p->num_parts > 1) return false;
    if (norm && (s->pending || s->normed == norm || !norm->gain)) return false;
    struct gate_up_args args = {
        .linear = linear_of(s, d->act.gated, in, &p->parts[0]), .norm = norm, .activation = activation};
    args.linear.out_stride = d->spec->intermediate_size;
    return b->gate_up(b, &args);
}

/* Rotation, caching and attention of a batch that has only decodes. */
static bool fused_decode_attention(struct backend *b, const struct step_shape *shape,
                                   const struct decode_attention_args *args)
{
    return b->decode_attention && shape->num_decodes == shape->num_seqs && b->decode_attention(b, args);
}

/* ---- From the residual stream into a sublayer, and back ---- */

/* residual += the pending output; hidden = norm(residual), or nothing if norm is NULL. With `rows` they are written
 * instead of hidden. */
static void add_pending(struct residual_stream *s, const struct norm_params *norm, const struct quantized_rows *rows)
{
    const struct decoder *d = s->d;
    const struct fused_add_rms_norm_args args = {.out = norm ? s->hidden : NULL,
                                                 .quantized = norm ? rows : NULL,
                                                 .x = s->hidden,
                                                 .x_scales = s->scales,
                                                 .residual = s->residual,
                                                 .multiplier = s->multiplier,
                                                 .post_norm = s->post_norm,
                                                 .norm = norm ? *norm : (struct norm_params){0},
                                                 .num_tokens = s->num_tokens,
                                                 .size = d->spec->hidden_size,
                                                 .dtype = d->dtype};
    d->backend->fused_add_rms_norm(d->backend, &args);
    s->pending = false;
}

/* x = norm(x), where tokens are `stride` elements apart. */
static void norm_in_place(const struct residual_stream *s, void *x, int64_t stride, int32_t size,
                          const struct norm_params *norm)
{
    struct backend *b = s->d->backend;
    const struct rms_norm_args args = {.out = x,
                                       .x = x,
                                       .out_stride = stride,
                                       .x_stride = stride,
                                       .norm = *norm,
                                       .num_tokens = s->num_tokens,
                                       .size = size,
                                       .dtype = s->d->dtype};
    b->rms_norm(b, &args);
}

/* The input of a sublayer: the normed residual stream or, if the layer norms only outputs, the residual stream itself.
 * Quantized if p, which reads it, wants that; p NULL: floats. */
static struct input sublayer_input(struct residual_stream *s, const struct norm_params *norm,
                                   const struct projection *p)
{
    const struct decoder *d = s->d;
    const int32_t size = d->spec->hidden_size;
    struct input in = {.x = norm->gain ? s->hidden : s->residual};
    if (p) in.rows = rows_for_all(s, p, d->act.quantized);
    /* in a parallel block, which has one norm for attention and MLP */
    if (s->normed == norm && s->normed_groups == in.rows.group_size) return in;
    if (s->pending) {
        add_pending(s, norm->gain ? norm : NULL, rows_of(&in));
    } else if (norm->gain) {
        const struct rms_norm_args args = {.out = s->hidden,
                                           .x = s->residual,
                                           .out_stride = size,
                                           .x_stride = size,
                                           .quantized = rows_of(&in),
                                           .norm = *norm,
                                           .num_tokens = s->num_tokens,
                                           .size = size,
                                           .dtype = d->dtype};
        d->backend->rms_norm(d->backend, &args);
    }
    if (norm->gain) {
        s->normed = norm;
        s->normed_groups = in.rows.group_size;
    } else {
        quantize(s, &in, size);
    }
    return in;
}

/* residual += multiplier * post_norm(w(in)), at once or pending. */
static void add_to_residual(struct residual_stream *s, const struct input *in, const struct weight *w,
                            const struct norm_params *post_norm, float multiplier)
{
    struct backend *b = s->d->backend;
    s->normed = NULL;
    if (fused_linear_residual(s, in, w, post_norm, multiplier)) return;
    if (s->pending) add_pending(s, NULL, NULL); /* of a parallel block's attention */
    struct linear_args args = linear_of(s, s->hidden, in, w);
    s->scales = (struct left_out_scales){0};
    args.left_out = &s->scales;
    b->linear(b, &args);
    s->pending = true;
    s->multiplier = multiplier;
    s->post_norm = post_norm->gain ? post_norm : NULL;
}

static int64_t projection_size(const struct projection *p)
{
    int64_t size = 0;
    for (int i = 0; i < p->num_parts; i++) size += p->parts[i].out_features;
    return size;
}

/* out = p(in), the parts side by side for each token. If left_out is not NULL, scales of a p of one part may be left
 * out. */
static void project(const struct residual_stream *s, void *out, enum dtype out_dtype, const struct projection *p,
                    const struct input *in, struct left_out_scales *left_out)
{
    struct backend *b = s->d->backend;
    struct linear_args parts[LINEAR_MAX_PARTS];
    const int64_t stride = projection_size(p);
    for (int64_t i = 0, column = 0; i < p->num_parts; column += p->parts[i++].out_features) {
        parts[i] = linear_of(s, at_column(out, column, out_dtype), in, &p->parts[i]);
        parts[i].out_stride = stride;
        parts[i].out_dtype = out_dtype;
        parts[i].left_out = p->num_parts == 1 ? left_out : NULL;
    }
    if (p->num_parts > 1 && b->linear_parts && b->linear_parts(b, parts, p->num_parts)) return;
    for (int i = 0; i < p->num_parts; i++) b->linear(b, &parts[i]);
}

/* out = p(norm(residual stream)). */
static void norm_project(struct residual_stream *s, void *out, enum dtype out_dtype, const struct projection *p,
                         const struct norm_params *norm)
{
    if (fused_norm_linear(s, out, out_dtype, p, norm)) return;
    const struct input in = sublayer_input(s, norm, out_dtype == s->d->dtype ? p : NULL);
    project(s, out, out_dtype, p, &in, NULL);
}

/* ---- Attention ---- */

static bool wants_logits(const struct step_shape *shape)
{
    return shape->num_samples > 0 || shape->num_targets > 0;
}

/* Where the parts of act.qkv begin; the tokens of each are `stride` elements apart. */
struct qkv {
    char *q, *k, *v;
    int64_t stride;
};

static struct qkv split_qkv(const struct decoder *d)
{
    const struct model_spec *c = d->spec;
    const int64_t q_size = (int64_t)c->num_heads * c->head_size, kv_size = (int64_t)c->num_kv_heads * c->head_size;
    char *q = d->act.qkv, *k = at_column(q, q_size, d->dtype);
    return (struct qkv){q, k, at_column(k, kv_size, d->dtype), q_size + 2 * kv_size};
}

static struct rotary_args rotary_of(const struct residual_stream *s, const struct qkv *qkv, int32_t layer)
{
    const struct decoder *d = s->d;
    const struct layer_weights *w = &d->weights->layers[layer];
    const bool norms_heads = d->spec->layers[layer].qk_norm == QK_NORM_HEAD;
    return (struct rotary_args){.query = qkv->q,
                                .key = qkv->k,
                                .query_stride = qkv->stride,
                                .key_stride = qkv->stride,
                                .positions = d->inputs->positions,
                                .cos_sin = d->cos_sin[d->spec->layers[layer].rope],
                                .query_norm = norms_heads ? &w->q_norm : NULL,
                                .key_norm = norms_heads ? &w->k_norm : NULL,
                                .num_tokens = s->num_tokens,
                                .num_heads = d->spec->num_heads,
                                .num_kv_heads = d->spec->num_kv_heads,
                                .head_size = d->spec->head_size,
                                .rotary_dim = d->spec->layers[layer].rotary_dim,
                                .interleaved = d->spec->rope_interleaved,
                                .dtype = d->dtype};
}

static struct reshape_and_cache_args caching_of(const struct residual_stream *s, const struct qkv *qkv, int32_t layer)
{
    const struct decoder *d = s->d;
    const int64_t group = d->cache->groups.group[layer];
    return (struct reshape_and_cache_args){.key = qkv->k,
                                           .value = qkv->v,
                                           .kv_stride = qkv->stride,
                                           .k_cache = kv_cache_k(d->cache, layer),
                                           .v_cache = kv_cache_v(d->cache, layer),
                                           .slot_mapping = d->inputs->slot_mapping + group * s->num_tokens,
                                           .num_tokens = s->num_tokens,
                                           .num_kv_heads = d->spec->num_kv_heads,
                                           .head_size = d->spec->head_size,
                                           .block_size = d->cache->block_size,
                                           .dtype = d->dtype,
                                           .cache_dtype = d->cache->dtype,
                                           .kv_scales = kv_cache_scales(d->cache, layer)};
}

static struct attention_args attention_of(const struct decoder *d, const struct qkv *qkv,
                                          const struct step_shape *shape, int32_t layer)
{
    const int64_t group = d->cache->groups.group[layer];
    return (struct attention_args){.out = d->act.attention,
                                   .query = qkv->q,
                                   .query_stride = qkv->stride,
                                   .k_cache = kv_cache_k(d->cache, layer),
                                   .v_cache = kv_cache_v(d->cache, layer),
                                   .block_tables = d->block_tables + group * d->group_stride,
                                   .block_table_stride = d->block_table_stride,
                                   .seq_lens = d->inputs->seq_lens,
                                   .query_start = d->inputs->query_start,
                                   .state_indices = d->inputs->state_indices,
                                   .num_seqs = shape->num_seqs,
                                   .num_heads = d->spec->num_heads,
                                   .num_kv_heads = d->spec->num_kv_heads,
                                   .head_size = d->spec->head_size,
                                   .block_size = d->cache->block_size,
                                   .max_query_len = shape->max_query_len,
                                   .max_seq_len = shape->max_seq_len,
                                   .dtype = d->dtype,
                                   .cache_dtype = d->cache->dtype,
                                   .params = &d->attention[layer]};
}

/* act.attention of all tokens. K and V of the last layer are cached even for tokens that are not sampled from. */
static void attend(struct residual_stream *s, const struct step_shape *shape, int32_t layer)
{
    const struct decoder *d = s->d;
    struct backend *b = d->backend;
    const struct layer_weights *w = &d->weights->layers[layer];
    const struct qkv qkv = split_qkv(d);
    const struct decode_attention_args args = {
        .rotary = rotary_of(s, &qkv, layer),
        .cache = caching_of(s, &qkv, layer),
        .attention = attention_of(d, &qkv, shape, layer),
    };

    norm_project(s, d->act.qkv, d->dtype, &w->qkv, &w->attention_norm);
    if (d->spec->layers[layer].qk_norm == QK_NORM_PROJECTION) {
        norm_in_place(s, qkv.q, qkv.stride, d->spec->num_heads * d->spec->head_size, &w->q_norm);
        norm_in_place(s, qkv.k, qkv.stride, d->spec->num_kv_heads * d->spec->head_size, &w->k_norm);
    }
    if (shape->swapped) b->event_wait(b, shape->swapped[d->cache->groups.index[layer]], NULL);
    if (!shape->measures_scales && fused_decode_attention(b, shape, &args)) return;
    if (args.rotary.rotary_dim > 0 || args.rotary.query_norm) b->rotary_embedding(b, &args.rotary);
    if (shape->measures_scales) b->calculate_kv_scales(b, &args.cache);
    b->reshape_and_cache(b, &args.cache);
    if (!is_last(d, layer) || wants_logits(shape))
        paged_attention(b, &args.attention, shape->num_decodes, shape->num_seqs);
}

static void gather(const struct decoder *d, void *out, const void *x, const int32_t *indices, int32_t count,
                   int32_t size)
{
    const struct gather_rows_args args = {
        .out = out, .x = x, .indices = indices, .num_indices = count, .size = size, .dtype = d->dtype};
    d->backend->gather_rows(d->backend, &args);
}

/* After the attention of the last layer only the tokens that are sampled from matter, so the residual stream keeps only
 * those. Returns their attention. They are gathered in `hidden` and in the buffer of q, k and v, which are free by
 * then. With targets all tokens are kept: targets and samples together may be more rows than the buffers have. */
static const void *keep_sampled(struct residual_stream *s, const struct step_shape *shape)
{
    const struct decoder *d = s->d;
    if (shape->all_sampled || shape->num_targets > 0) return d->act.attention;
    const int32_t *indices = d->inputs->logits_indices;
    gather(d, d->act.qkv, d->act.attention, indices, shape->num_samples, d->spec->num_heads * d->spec->head_size);
    gather(d, s->hidden, s->residual, indices, shape->num_samples, d->spec->hidden_size);
    void *old = s->residual;
    s->residual = s->hidden;
    s->hidden = old;
    s->normed = NULL;
    s->num_tokens = shape->num_samples;
    return d->act.qkv;
}

/* ---- MLP: down(activation(gate(x)) * up(x)), SwiGLU and GeGLU of Shazeer, 2020; or down(xielu(up(x))) ---- */

static const struct norm_params *mlp_input_norm(const struct residual_stream *s, int32_t layer)
{
    const struct layer_weights *w = &s->d->weights->layers[layer];
    return s->d->spec->layers[layer].norm_placement == NORM_PARALLEL ? &w->attention_norm : &w->mlp_norm;
}

/* activation(gate(y)) * up(y), where y is the MLP's input; in act.gated. */
static struct input gate_and_up(struct residual_stream *s, int32_t layer)
{
    const struct decoder *d = s->d;
    struct backend *b = d->backend;
    const struct layer_spec *l = &d->spec->layers[layer];
    const struct layer_weights *w = &d->weights->layers[layer];
    const struct norm_params *norm = mlp_input_norm(s, layer);
    struct input out = {.x = d->act.gated};
    const struct input residual = {.x = s->residual};
    if (fused_gate_up(s, &residual, &w->gate_up, l->activation, norm)) return out;
    const struct input in = sublayer_input(s, norm, &w->gate_up);
    if (fused_gate_up(s, &in, &w->gate_up, l->activation, NULL)) return out;
    struct left_out_scales scales = {0};
    project(s, d->act.gate_up, d->dtype, &w->gate_up, &in, &scales);
    out.rows = rows_for(s, &w->down, d->act.gated);
    const struct act_and_mul_args args = {.out = d->act.gated,
                                          .quantized = rows_of(&out),
                                          .gate_up = d->act.gate_up,
                                          .gate_up_scales = scales,
                                          .activation = l->activation,
                                          .num_tokens = s->num_tokens,
                                          .size = d->spec->intermediate_size,
                                          .dtype = d->dtype};
    b->act_and_mul(b, &args);
    return out;
}

/* xielu(up(y)); in act.gated, or quantized in act.gate_up, which such an MLP does not need. */
static struct input up_and_xielu(struct residual_stream *s, int32_t layer)
{
    const struct decoder *d = s->d;
    const struct layer_weights *w = &d->weights->layers[layer];
    const struct xielu_args args = {.out = d->act.gated,
                                    .x = d->act.gated,
                                    .params = w->xielu,
                                    .num_tokens = s->num_tokens,
                                    .size = d->spec->intermediate_size,
                                    .dtype = d->dtype};
    norm_project(s, d->act.gated, d->dtype, &w->gate_up, mlp_input_norm(s, layer));
    d->backend->xielu(d->backend, &args);
    const struct input out = {.x = d->act.gated, .rows = rows_for(s, &w->down, d->act.gate_up)};
    quantize(s, &out, d->spec->intermediate_size);
    return out;
}

/* All of the MLP but down, whose input it returns. */
static struct input mlp_inner(struct residual_stream *s, int32_t layer)
{
    return s->d->spec->layers[layer].mlp == MLP_GATED ? gate_and_up(s, layer) : up_and_xielu(s, layer);
}

/* ---- The whole pass ---- */

static void embed(const struct residual_stream *s)
{
    const struct decoder *d = s->d;
    const struct embedding_args args = {.out = s->residual,
                                        .ids = d->inputs->token_ids,
                                        .last_sampled = d->last_sampled,
                                        .num_tokens = s->num_tokens,
                                        .table = &d->weights->embedding,
                                        .multiplier = d->embedding_multiplier,
                                        .dtype = d->dtype};
    d->backend->embedding(d->backend, &args);
}

static void scale_logits(const struct decoder *d, int32_t num_rows)
{
    const struct scale_logits_args args = {.logits = d->act.logits,
                                           .num_samples = num_rows,
                                           .vocab_size = d->spec->vocab_size,
                                           .multiplier = (float)d->spec->logits_multiplier,
                                           .soft_cap = (float)d->spec->logits_soft_cap};
    if (args.multiplier != 1 || args.soft_cap != 0) d->backend->scale_logits(d->backend, &args);
}

static struct projection lm_head(const struct decoder *d)
{
    return (struct projection){.parts = {d->weights->lm_head}, .num_parts = 1};
}

static void compute_logits(struct residual_stream *s)
{
    const struct projection head = lm_head(s->d);
    norm_project(s, s->d->act.logits, DTYPE_FLOAT32, &head, &s->d->weights->final_norm);
    scale_logits(s->d, s->num_tokens);
}

/* The logits of the tokens indices[count] of a pass that kept all. The final norm's output is in act.hidden, unless
 * there is no such norm; the other buffer is free. */
static void compute_gathered_logits(const struct decoder *d, const int32_t *indices, int32_t count)
{
    const bool normed = d->weights->final_norm.gain != NULL;
    const struct projection head = lm_head(d);
    const struct residual_stream rows = {.d = d, .num_tokens = count};
    void *gathered = normed ? d->act.residual : d->act.hidden;
    gather(d, gathered, normed ? d->act.hidden : d->act.residual, indices, count, d->spec->hidden_size);
    const struct input in = {.x = gathered};
    project(&rows, d->act.logits, DTYPE_FLOAT32, &head, &in, NULL);
    scale_logits(d, count);
}

void decoder_target_logits(const struct decoder *d, int32_t first, int32_t count)
{
    compute_gathered_logits(d, d->inputs->target_indices + first, count);
}

static bool cancelled(const struct decoder *d)
{
    return d->cancel && *d->cancel;
}

bool decoder_forward(const struct decoder *d, const struct step_shape *shape)
{
    struct residual_stream s = {
        .d = d, .hidden = d->act.hidden, .residual = d->act.residual, .num_tokens = shape->num_tokens};
    embed(&s);
    for (int32_t layer = 0; layer < d->spec->num_layers; layer++) {
        const struct layer_spec *l = &d->spec->layers[layer];
        const struct layer_weights *w = &d->weights->layers[layer];
        struct input attention = {.x = d->act.attention}, gated = {0};
        if (cancelled(d)) return false;
        attend(&s, shape, layer);
        if (is_last(d, layer)) {
            if (!wants_logits(shape)) return true;
            attention.x = keep_sampled(&s, shape);
        }
        /* A parallel block's MLP reads the residual stream without the attention's output. */
        if (l->norm_placement == NORM_PARALLEL) gated = mlp_inner(&s, layer);
        attention.rows = rows_for(&s, &w->o, d->act.quantized);
        quantize(&s, &attention, d->spec->num_heads * d->spec->head_size);
        add_to_residual(&s, &attention, &w->o, &w->post_attention_norm, l->residual_multiplier);
        if (cancelled(d)) return false;
        if (l->norm_placement != NORM_PARALLEL) gated = mlp_inner(&s, layer);
        if (cancelled(d)) return false;
        add_to_residual(&s, &gated, &w->down, &w->post_mlp_norm, l->residual_multiplier);
    }
    if (shape->num_targets == 0) {
        compute_logits(&s);
    } else {
        sublayer_input(&s, &d->weights->final_norm, NULL);
        if (shape->num_samples > 0) compute_gathered_logits(d, d->inputs->logits_indices, shape->num_samples);
    }
    return true;
}

/* ---- Start-up ---- */

/* Bytes of a sublayer's or o's input as quantized rows: elements and, at worst, a scale for each 128 and one more. */
static int64_t quantized_bytes(const struct model_spec *c, int64_t num_tokens)
{
    const int64_t heads = (int64_t)c->num_heads * c->head_size, size = heads > c->hidden_size ? heads : c->hidden_size;
    for (int32_t i = 0; i < c->num_schemes; i++)
        if (c->schemes[i].quantize_x) return num_tokens * (size + (size / 128 + 1) * (int64_t)sizeof(float));
    return 0;
}

static enum status allocate_activations(struct decoder *d, struct arena *arena, const struct batch_limits *limits,
                                        struct error *err)
{
    const struct model_spec *c = d->spec;
    const int64_t T = quantized_rows_padded(limits->max_num_tokens), S = limits->max_num_seqs, e = dtype_size(d->dtype);
    const int64_t qkv_size = ((int64_t)c->num_heads + 2 * c->num_kv_heads) * c->head_size;
    struct activations *a = &d->act;
    const struct arena_request requests[] = {
        {PURPOSE_ACTIVATIONS, T * c->hidden_size, e, &a->hidden},
        {PURPOSE_ACTIVATIONS, T * c->hidden_size, e, &a->residual},
        {PURPOSE_ACTIVATIONS, T * qkv_size, e, &a->qkv},
        {PURPOSE_ACTIVATIONS, T * c->num_heads * c->head_size, e, &a->attention},
        {PURPOSE_ACTIVATIONS, T * 2 * c->intermediate_size, e, &a->gate_up},
        {PURPOSE_ACTIVATIONS, T * c->intermediate_size, e, &a->gated},
        {PURPOSE_ACTIVATIONS, quantized_bytes(c, T), 1, &a->quantized},
        {PURPOSE_ACTIVATIONS, S * c->vocab_size, sizeof(float), &a->logits},
    };
    return arena_alloc_all(arena, requests, sizeof requests / sizeof *requests, err);
}

static float rounded(float value, enum dtype dtype)
{
    float stored;
    dtype_store(&stored, dtype, 0, value);
    return dtype_load(&stored, dtype, 0);
}

enum status decoder_allocate(struct decoder *d, struct arena *arena, const struct batch_limits *limits,
                             struct error *err)
{
    d->embedding_multiplier = (float)d->spec->embedding_multiplier;
    if (d->spec->round_embedding_multiplier) d->embedding_multiplier = rounded(d->embedding_multiplier, d->dtype);
    for (int32_t i = 0; i < d->spec->num_layers; i++) {
        const struct layer_spec *l = &d->spec->layers[i];
        d->attention[i] = (struct attention_params){.scale = l->attention_scale,
                                                    .window = l->window,
                                                    .soft_cap = l->attention_soft_cap,
                                                    .kv_scales = kv_cache_scales(d->cache, i)};
    }
    return allocate_activations(d, arena, limits, err);
}
