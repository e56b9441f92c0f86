#include "model/llama.h"

static char *at_column(void *row, int64_t column, enum dtype dtype)
{
    return (char *)row + column * dtype_size(dtype);
}

/* The parts of a fused projection, side by side in each row of out. */
static void project(struct model *m, void *out, const void *x, int32_t num_tokens, const struct projection *p)
{
    int64_t stride = 0, column = 0;
    for (int i = 0; i < p->num_parts; i++) stride += p->parts[i].rows;
    for (int i = 0; i < p->num_parts; i++) {
        const struct weight *w = &p->parts[i];
        m->backend->linear(m->backend, at_column(out, column, m->options.dtype), stride, m->options.dtype, x,
                           w->columns, m->options.dtype, num_tokens, w, NULL);
        column += w->rows;
    }
}

static void linear(struct model *m, void *out, const void *x, int32_t num_tokens, const struct weight *w)
{
    m->backend->linear(m->backend, out, w->rows, m->options.dtype, x, w->columns, m->options.dtype, num_tokens, w,
                       NULL);
}

/* Attention of one layer: hidden (normalised) in, hidden out. */
static void attention_block(struct model *m, const struct step_shape *shape, int32_t layer)
{
    struct backend *b = m->backend;
    const struct model_config *c = &m->config;
    const struct layer_weights *w = &m->weights->layers[layer];
    const struct step_inputs *in = &m->inputs;
    const enum dtype dtype = m->options.dtype, cache_dtype = m->options.cache_dtype;
    const int32_t block_size = m->options.limits.block_size, n = shape->num_tokens;
    const int64_t q_size = (int64_t)c->num_heads * c->head_dim, kv_size = (int64_t)c->num_kv_heads * c->head_dim;
    const int64_t stride = q_size + 2 * kv_size;

    project(m, m->act.qkv, m->act.hidden, n, &w->qkv);
    char *q = m->act.qkv, *k = at_column(q, q_size, dtype), *v = at_column(k, kv_size, dtype);
    b->rotary_embedding(b,
                        &(struct rotary_args){.query = q,
                                              .key = k,
                                              .query_stride = stride,
                                              .key_stride = stride,
                                              .positions = in->positions,
                                              .cos_sin = m->state.cos_sin,
                                              .num_tokens = n,
                                              .num_heads = c->num_heads,
                                              .num_kv_heads = c->num_kv_heads,
                                              .head_size = c->head_dim,
                                              .rotary_dim = c->head_dim,
                                              .dtype = dtype},
                        NULL);
    b->reshape_and_cache(b,
                         &(struct reshape_and_cache_args){.key = k,
                                                          .value = v,
                                                          .kv_stride = stride,
                                                          .k_cache = m->k_cache[layer],
                                                          .v_cache = m->v_cache[layer],
                                                          .slot_mapping = in->slot_mapping,
                                                          .num_tokens = n,
                                                          .num_kv_heads = c->num_kv_heads,
                                                          .head_size = c->head_dim,
                                                          .block_size = block_size,
                                                          .dtype = dtype,
                                                          .cache_dtype = cache_dtype,
                                                          .k_scale = m->attention.k_scale,
                                                          .v_scale = m->attention.v_scale},
                         NULL);
    paged_attention(b,
                    &(struct attention_args){.out = m->act.attention,
                                             .query = q,
                                             .query_stride = stride,
                                             .k_cache = m->k_cache[layer],
                                             .v_cache = m->v_cache[layer],
                                             .block_tables = m->state.block_tables,
                                             .block_table_stride = batch_max_blocks(&m->options.limits),
                                             .seq_lens = in->seq_lens,
                                             .query_start = in->query_start,
                                             .seq_slot = in->seq_slot,
                                             .num_heads = c->num_heads,
                                             .num_kv_heads = c->num_kv_heads,
                                             .head_size = c->head_dim,
                                             .block_size = block_size,
                                             .max_query_len = shape->max_query_len,
                                             .max_seq_len = shape->max_seq_len,
                                             .dtype = dtype,
                                             .cache_dtype = cache_dtype,
                                             .params = &m->attention},
                    shape->num_decodes, shape->num_seqs, NULL);
    linear(m, m->act.hidden, m->act.attention, n, &w->o);
}

/* SwiGLU (Shazeer, 2020): down(silu(gate(x)) * up(x)). */
static void mlp_block(struct model *m, int32_t n, const struct layer_weights *w)
{
    project(m, m->act.gate_up, m->act.hidden, n, &w->gate_up);
    m->backend->silu_and_mul(m->backend, m->act.gated, m->act.gate_up, n, m->config.intermediate_size, m->options.dtype,
                             NULL);
    linear(m, m->act.hidden, m->act.gated, n, &w->down);
}

/* residual += hidden; hidden = rms_norm(residual) * gain. */
static void add_and_norm(struct model *m, void *hidden, void *residual, const void *gain, int32_t n)
{
    m->backend->fused_add_rms_norm(m->backend, hidden, hidden, residual, gain, m->weights->norm_dtype,
                                   (float)m->config.rms_norm_eps, n, m->config.hidden_size, m->options.dtype, NULL);
}

/* The last norm and the logits, of the tokens that are sampled from only. */
static void head(struct model *m, const struct step_shape *shape)
{
    struct backend *b = m->backend;
    struct activations *act = &m->act;
    const int32_t rows = shape->num_samples, hidden_size = m->config.hidden_size;
    const enum dtype dtype = m->options.dtype;
    void *hidden = act->hidden, *residual = act->residual;
    if (!shape->all_sampled) {
        b->gather_rows(b, act->last_hidden, hidden, m->inputs.sample_rows, rows, hidden_size, dtype, NULL);
        b->gather_rows(b, act->last_residual, residual, m->inputs.sample_rows, rows, hidden_size, dtype, NULL);
        hidden = act->last_hidden;
        residual = act->last_residual;
    }
    add_and_norm(m, hidden, residual, m->weights->final_norm, rows);
    b->linear(b, act->logits, m->config.vocab_size, DTYPE_FLOAT32, hidden, hidden_size, dtype, rows,
              &m->weights->lm_head, NULL);
}

void llama_forward(struct model *m, const struct step_shape *shape)
{
    struct backend *b = m->backend;
    const struct model_weights *w = m->weights;
    struct activations *act = &m->act;
    const int32_t n = shape->num_tokens;

    b->embedding(b, act->residual, m->inputs.token_ids, m->state.sampled, n, &w->embedding, m->options.dtype, NULL);
    for (int32_t layer = 0; layer < m->config.num_layers; layer++) {
        const struct layer_weights *l = &w->layers[layer];
        if (layer == 0)
            b->rms_norm(b, act->hidden, act->residual, l->input_norm, w->norm_dtype, (float)m->config.rms_norm_eps, n,
                        m->config.hidden_size, m->options.dtype, NULL);
        else
            add_and_norm(m, act->hidden, act->residual, l->input_norm, n);
        attention_block(m, shape, layer);
        add_and_norm(m, act->hidden, act->residual, l->post_attention_norm, n);
        mlp_block(m, n, l);
    }
    if (shape->num_samples > 0) head(m, shape);
}
