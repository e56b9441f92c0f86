#include "model/llama.h"

#include "model/swap.h"

static char *at_column(void *row, int64_t column, enum dtype dtype)
{
    return (char *)row + column * dtype_size(dtype);
}

/* The residual stream. A sublayer's output lies in act.hidden, `pending`, until the next norm adds it: one pass instead
 * of two. Where the backend has fused operations for so few tokens, it is added as it is made, and nothing is pending.
 */
struct stream {
    struct model *m;
    void *hidden, *residual; /* [num_tokens, hidden_size] */
    int32_t num_tokens;
    bool pending;
};

static struct norm_params norm_params(const struct model *m, const void *gain)
{
    return (struct norm_params){gain, m->weights->norm_dtype, (float)m->config.rms_norm_eps};
}

/* hidden = rms_norm(residual), what is pending added to the residual first. */
static void normalise(struct stream *s, const void *gain)
{
    struct model *m = s->m;
    const struct norm_params norm = norm_params(m, gain);
    const int32_t size = m->config.hidden_size;
    const struct rms_norm_args plain = {.out = s->hidden,
                                        .x = s->residual,
                                        .out_stride = size,
                                        .x_stride = size,
                                        .norm = norm,
                                        .num_tokens = s->num_tokens,
                                        .size = size,
                                        .dtype = m->options.dtype};
    const struct fused_add_rms_norm_args fused = {.out = s->hidden,
                                                  .x = s->hidden,
                                                  .residual = s->residual,
                                                  .multiplier = 1,
                                                  .norm = norm,
                                                  .num_tokens = s->num_tokens,
                                                  .size = size,
                                                  .dtype = m->options.dtype};
    if (s->pending)
        m->backend->fused_add_rms_norm(m->backend, &fused);
    else
        m->backend->rms_norm(m->backend, &plain);
    s->pending = false;
}

static int64_t projection_rows(const struct projection *p)
{
    int64_t rows = 0;
    for (int i = 0; i < p->num_parts; i++) rows += p->parts[i].out_features;
    return rows;
}

/* out = w(x) of the tokens in hand; rows of out are out_stride apart. */
static struct linear_args linear_args(const struct stream *s, void *out, int64_t out_stride, enum dtype out_dtype,
                                      const void *x, const struct weight *w)
{
    return (struct linear_args){.out = out,
                                .out_stride = out_stride,
                                .out_dtype = out_dtype,
                                .x = x,
                                .x_stride = w->in_features,
                                .dtype = s->m->options.dtype,
                                .num_tokens = s->num_tokens,
                                .weight = w};
}

/* out = p(hidden), the parts side by side in each row. */
static void project(struct stream *s, void *out, enum dtype out_dtype, const struct projection *p)
{
    struct model *m = s->m;
    const int64_t stride = projection_rows(p);
    for (int64_t i = 0, column = 0; i < p->num_parts; column += p->parts[i++].out_features) {
        const struct linear_args args =
            linear_args(s, at_column(out, column, out_dtype), stride, out_dtype, s->hidden, &p->parts[i]);
        m->backend->linear(m->backend, &args);
    }
}

/* out = p(rms_norm(stream)). */
static void norm_project(struct stream *s, void *out, enum dtype out_dtype, const struct projection *p,
                         const void *gain)
{
    struct model *m = s->m;
    struct backend *b = m->backend;
    const struct norm_linear_args args = {linear_args(s, out, projection_rows(p), out_dtype, s->residual, &p->parts[0]),
                                          norm_params(m, gain)};
    if (!s->pending && p->num_parts == 1 && b->norm_linear && b->norm_linear(b, &args)) return;
    normalise(s, gain);
    project(s, out, out_dtype, p);
}

/* The stream gets w(x) on top. */
static void add_linear(struct stream *s, const void *x, const struct weight *w)
{
    struct model *m = s->m;
    struct backend *b = m->backend;
    struct linear_args args = linear_args(s, s->residual, w->out_features, m->options.dtype, x, w);
    if (b->linear_residual && b->linear_residual(b, &args)) return;
    args.out = s->hidden;
    b->linear(b, &args);
    s->pending = true;
}

static bool is_last(const struct model *m, int32_t layer)
{
    return layer == m->config.num_layers - 1;
}

/* act.attention, of all tokens. What nobody samples from ends with its K and V in the cache of the last layer. */
static void attend(struct stream *s, const struct step_shape *shape, int32_t layer)
{
    struct model *m = s->m;
    struct backend *b = m->backend;
    const struct model_config *c = &m->config;
    const struct layer_weights *w = &m->weights->layers[layer];
    const struct step_inputs *in = &m->inputs;
    const enum dtype dtype = m->options.dtype, cache_dtype = m->options.cache_dtype;
    const int32_t block_size = m->options.limits.block_size, n = shape->num_tokens;
    const int64_t q_size = (int64_t)c->num_heads * c->head_size, kv_size = (int64_t)c->num_kv_heads * c->head_size;
    const int64_t stride = q_size + 2 * kv_size;

    norm_project(s, m->act.qkv, dtype, &w->qkv, w->input_norm);
    char *q = m->act.qkv, *k = at_column(q, q_size, dtype), *v = at_column(k, kv_size, dtype);
    const struct rotary_args rotary = {.query = q,
                                       .key = k,
                                       .query_stride = stride,
                                       .key_stride = stride,
                                       .positions = in->positions,
                                       .cos_sin = m->state.cos_sin,
                                       .num_tokens = n,
                                       .num_heads = c->num_heads,
                                       .num_kv_heads = c->num_kv_heads,
                                       .head_size = c->head_size,
                                       .rotary_dim = c->head_size,
                                       .dtype = dtype};
    const struct reshape_and_cache_args cache = {.key = k,
                                                 .value = v,
                                                 .kv_stride = stride,
                                                 .k_cache = m->k_cache[layer],
                                                 .v_cache = m->v_cache[layer],
                                                 .slot_mapping = in->slot_mapping,
                                                 .num_tokens = n,
                                                 .num_kv_heads = c->num_kv_heads,
                                                 .head_size = c->head_size,
                                                 .block_size = block_size,
                                                 .dtype = dtype,
                                                 .cache_dtype = cache_dtype,
                                                 .k_scale = m->attention.k_scale,
                                                 .v_scale = m->attention.v_scale};
    const struct attention_args attention = {.out = m->act.attention,
                                             .query = q,
                                             .query_stride = stride,
                                             .k_cache = m->k_cache[layer],
                                             .v_cache = m->v_cache[layer],
                                             .block_tables = m->state.block_tables,
                                             .block_table_stride = batch_max_blocks(&m->options.limits),
                                             .seq_lens = in->seq_lens,
                                             .query_start = in->query_start,
                                             .state_indices = in->state_indices,
                                             .num_seqs = shape->num_seqs,
                                             .num_heads = c->num_heads,
                                             .num_kv_heads = c->num_kv_heads,
                                             .head_size = c->head_size,
                                             .block_size = block_size,
                                             .max_query_len = shape->max_query_len,
                                             .max_seq_len = shape->max_seq_len,
                                             .dtype = dtype,
                                             .cache_dtype = cache_dtype,
                                             .params = &m->attention};
    if (shape->swaps) swap_wait(m, layer);
    const struct decode_attention_args decode = {rotary, cache, attention};
    const bool fused = shape->num_decodes == shape->num_seqs && b->decode_attention && b->decode_attention(b, &decode);
    if (!fused) {
        b->rotary_embedding(b, &rotary);
        b->reshape_and_cache(b, &cache);
        if (!is_last(m, layer) || shape->num_samples > 0)
            paged_attention(b, &attention, shape->num_decodes, shape->num_seqs);
    }
}

/* In the last layer the stream is, after attention, of the tokens that are sampled from only. Returns act.attention of
 * those. What held q, k and v, and what held their input, is free. */
static void *keep_sampled(struct stream *s, const struct step_shape *shape)
{
    struct model *m = s->m;
    struct backend *b = m->backend;
    struct gather_rows_args args = {.out = m->act.qkv,
                                    .x = m->act.attention,
                                    .indices = m->inputs.logits_indices,
                                    .num_indices = shape->num_samples,
                                    .size = m->config.num_heads * m->config.head_size,
                                    .dtype = m->options.dtype};
    if (shape->all_sampled) return m->act.attention;
    b->gather_rows(b, &args);
    args.out = s->hidden;
    args.x = s->residual;
    args.size = m->config.hidden_size;
    b->gather_rows(b, &args);
    void *free_now = s->residual;
    s->residual = s->hidden;
    s->hidden = free_now;
    s->num_tokens = shape->num_samples;
    return m->act.qkv;
}

/* act.gated = silu(gate(x)) * up(x) in one go, of the stream normed or, without a norm, of hidden. */
static bool fused_gate_up(struct stream *s, const void *x, const struct projection *p, const struct norm_params *norm)
{
    struct model *m = s->m;
    struct backend *b = m->backend;
    const struct gate_up_args args = {
        .linear = linear_args(s, m->act.gated, m->config.intermediate_size, m->options.dtype, x, &p->parts[0]),
        .norm = norm,
        .activation = ACTIVATION_SILU};
    return p->num_parts == 1 && b->gate_up && b->gate_up(b, &args);
}

/* SwiGLU (Shazeer, 2020): down(silu(gate(x)) * up(x)). */
static void mlp_block(struct stream *s, const struct layer_weights *w)
{
    struct model *m = s->m;
    struct backend *b = m->backend;
    const struct norm_params norm = norm_params(m, w->post_attention_norm);
    bool fused = !s->pending && fused_gate_up(s, s->residual, &w->gate_up, &norm);
    if (!fused) {
        normalise(s, w->post_attention_norm);
        fused = fused_gate_up(s, s->hidden, &w->gate_up, NULL);
    }
    if (!fused) {
        project(s, m->act.gate_up, m->options.dtype, &w->gate_up);
        const struct act_and_mul_args args = {.out = m->act.gated,
                                              .gate_up = m->act.gate_up,
                                              .activation = ACTIVATION_SILU,
                                              .num_tokens = s->num_tokens,
                                              .size = m->config.intermediate_size,
                                              .dtype = m->options.dtype};
        b->act_and_mul(b, &args);
    }
    add_linear(s, m->act.gated, &w->down);
}

void llama_forward(struct model *m, const struct step_shape *shape)
{
    struct backend *b = m->backend;
    const struct model_weights *w = m->weights;
    struct stream s = {.m = m, .hidden = m->act.hidden, .residual = m->act.residual, .num_tokens = shape->num_tokens};

    const struct embedding_args embedding = {.out = s.residual,
                                             .ids = m->inputs.token_ids,
                                             .last_sampled = m->state.sampled,
                                             .num_tokens = s.num_tokens,
                                             .table = &w->embedding,
                                             .multiplier = 1,
                                             .dtype = m->options.dtype};
    b->embedding(b, &embedding);
    for (int32_t layer = 0; layer < m->config.num_layers; layer++) {
        void *attention = m->act.attention;
        attend(&s, shape, layer);
        if (is_last(m, layer)) {
            if (shape->num_samples == 0) return;
            attention = keep_sampled(&s, shape);
        }
        add_linear(&s, attention, &w->layers[layer].o);
        mlp_block(&s, &w->layers[layer]);
    }
    const struct projection head = {.parts = {w->lm_head}, .num_parts = 1};
    norm_project(&s, m->act.logits, DTYPE_FLOAT32, &head, w->final_norm);
}
