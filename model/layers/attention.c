/* Attention: from the residual stream to q, k and v, which are rotated, and K and V cached; softmax(q K) V of each
 * head; and o, back to the residual stream. */
#include "model/layers/layers.h"

/* Where the parts of act.qkv begin; the tokens of each are `stride` elements apart. */
struct qkv {
    char *q, *k, *v, *gate;
    int64_t stride;
};

static struct qkv split_qkv(const struct decoder *d, const struct layer_spec *l)
{
    const struct attention_spec *a = &l->attention;
    char *q = d->act.qkv, *k = at_column(q, attention_q_size(a), d->dtype);
    char *v = at_column(k, attention_k_size(a), d->dtype), *gate = at_column(v, attention_v_size(a), d->dtype);
    return (struct qkv){q, k, v, gate, layer_mixer_in_size(l)};
}

static struct rotary_args rotary_of(const struct residual_stream *s, const struct qkv *qkv, int32_t layer)
{
    const struct decoder *d = s->d;
    const struct layer_weights *w = &d->weights->layers[layer];
    const struct attention_spec *a = &d->spec->layers[layer].attention;
    const bool norms_heads = a->qk_norm == QK_NORM_HEAD;
    return (struct rotary_args){.query = qkv->q,
                                .key = qkv->k,
                                .query_stride = qkv->stride,
                                .key_stride = qkv->stride,
                                .positions = d->inputs->positions,
                                .cos_sin = d->cos_sin[a->rope],
                                .query_norm = norms_heads ? &w->q_norm : NULL,
                                .key_norm = norms_heads ? &w->k_norm : NULL,
                                .num_tokens = s->num_tokens,
                                .num_heads = a->num_heads,
                                .num_kv_heads = a->shares_kv ? 0 : a->num_kv_heads,
                                .head_size = a->head_size,
                                .rotary_dim = a->rotary_dim,
                                .interleaved = d->spec->rope_interleaved,
                                .dtype = d->dtype};
}

static struct reshape_and_cache_args caching_of(const struct residual_stream *s, const struct qkv *qkv, int32_t layer)
{
    const struct decoder *d = s->d;
    const struct attention_spec *a = &d->spec->layers[layer].attention;
    const int64_t group = d->cache->groups.group[layer];
    return (struct reshape_and_cache_args){.key = qkv->k,
                                           .value = qkv->v,
                                           .kv_stride = qkv->stride,
                                           .k_cache = kv_cache_k(d->cache, layer),
                                           .v_cache = kv_cache_v(d->cache, layer),
                                           .slot_mapping = d->inputs->slot_mapping + group * s->num_tokens,
                                           .num_tokens = s->num_tokens,
                                           .num_kv_heads = a->num_kv_heads,
                                           .head_size = a->head_size,
                                           .v_head_size = attention_v_head_size(a),
                                           .block_size = kv_cache_block_size(d->cache, layer),
                                           .block_stride = kv_cache_block_stride(d->cache),
                                           .dtype = d->dtype,
                                           .cache_dtype = d->cache->dtype,
                                           .kv_scales = kv_cache_scales(d->cache, layer)};
}

static struct attention_args attention_of(const struct decoder *d, const struct qkv *qkv,
                                          const struct step_shape *shape, int32_t layer)
{
    const struct attention_spec *a = &d->spec->layers[layer].attention;
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
                                   .num_heads = a->num_heads,
                                   .num_kv_heads = a->num_kv_heads,
                                   .head_size = a->head_size,
                                   .v_head_size = attention_v_head_size(a),
                                   .block_size = kv_cache_block_size(d->cache, layer),
                                   .block_stride = kv_cache_block_stride(d->cache),
                                   .max_query_len = shape->max_query_len,
                                   .max_run_len = shape->num_drafts > 0 ? 1 + MAX_DRAFTS : 1,
                                   .max_seq_len = shape->max_seq_len,
                                   .dtype = d->dtype,
                                   .cache_dtype = d->cache->dtype,
                                   .params = &d->attention[layer]};
}

/* Rotates q and k, and leaves their norms to the next operation. */
static void rotate_first(struct backend *b, struct rotary_args *rotary)
{
    struct rotary_args rotation = *rotary;
    rotation.query_norm = rotation.key_norm = NULL;
    if (rotation.rotary_dim > 0) b->rotary_embedding(b, &rotation);
    rotary->rotary_dim = 0;
}

/* Norms each head of v, as those of queries are normed. */
static void norm_values(struct backend *b, const struct rotary_args *rotary, const struct attention_spec *a, void *v,
                        const struct norm_params *norm)
{
    struct rotary_args args = *rotary;
    args.query = args.key = v;
    args.head_size = attention_v_head_size(a);
    args.query_norm = args.key_norm = norm;
    args.num_heads = rotary->num_kv_heads;
    args.num_kv_heads = args.rotary_dim = 0;
    b->rotary_embedding(b, &args);
}

/* Norms of q and k over all heads, which several ranks may have between them. There is room for sums where attention
 * writes its results later. */
static void norm_projections(const struct residual_stream *s, const struct qkv *qkv, int32_t layer)
{
    const struct decoder *d = s->d;
    const struct attention_spec *a = &d->spec->layers[layer].attention;
    const struct layer_weights *w = &d->weights->layers[layer];
    struct all_norm_args args = {.norms = {{.x = qkv->q, .size = (int32_t)attention_q_size(a)},
                                           {.x = qkv->k, .size = (int32_t)attention_k_size(a)}},
                                 .num_norms = 2,
                                 .squares = d->act.attention};
    if (!d->spec->whole) {
        layer_norm_in_place(s, qkv->q, qkv->stride, attention_q_size(a), &w->q_norm);
        layer_norm_in_place(s, qkv->k, qkv->stride, attention_k_size(a), &w->k_norm);
        return;
    }
    for (int i = 0; i < 2; i++) {
        const struct norm_params *norm = i == 0 ? &w->q_norm : &w->k_norm;
        args.norms[i].stride = qkv->stride;
        args.norms[i].num_groups = 1;
        args.norms[i].gain = norm->gain, args.norms[i].gain_dtype = norm->gain_dtype;
        args.norms[i].eps = norm->eps;
    }
    layer_norm_over_ranks(s, &args);
}

static void clip(const struct residual_stream *s, const struct attention_spec *a)
{
    struct backend *b = s->d->backend;
    const struct clip_args args = {
        .x = s->d->act.qkv, .count = s->num_tokens * attention_qkv_size(a), .limit = a->clip, .dtype = s->d->dtype};
    b->clip(b, &args);
}

/* By constants. */
static void scale(const struct residual_stream *s, const struct qkv *qkv, const struct attention_spec *a)
{
    const float in = multiplier_or_1(a->in_multiplier);
    const struct column_part parts[] = {{attention_q_size(a), in},
                                        {attention_k_size(a), in * multiplier_or_1(a->k_multiplier)},
                                        {attention_v_size(a), in}};
    layer_scale_columns(s, qkv->q, qkv->stride, parts, 3);
}

/* Before the rotation, which is linear. */
void layer_scale_queries(const struct residual_stream *s, void *q, int64_t stride, int64_t size,
                         const struct query_scaling *scaling)
{
    struct backend *b = s->d->backend;
    const struct scale_queries_args args = {.x = q,
                                            .stride = stride,
                                            .positions = s->d->inputs->positions,
                                            .scaling = *scaling,
                                            .num_tokens = s->num_tokens,
                                            .size = (int32_t)size,
                                            .dtype = s->d->dtype};
    b->scale_queries(b, &args);
}

static struct output_gate_args gate_of(const struct residual_stream *s, const struct qkv *qkv,
                                       const struct attention_spec *a)
{
    return (struct output_gate_args){.x = s->d->act.attention,
                                     .gate = qkv->gate,
                                     .gate_stride = qkv->stride,
                                     .num_tokens = s->num_tokens,
                                     .size = (int32_t)attention_out_size(a),
                                     .gate_size = (int32_t)attention_gate_size(a),
                                     .kind = a->output_gate,
                                     .dtype = s->d->dtype};
}

/* Rotates q and k, stores k and v, and computes the heads' results, times their gates. */
static void attend(const struct decoder *d, const struct step_shape *shape, const struct decode_attention_args *args,
                   int32_t layer)
{
    struct backend *b = d->backend;
    const bool shares = d->spec->layers[layer].attention.shares_kv;
    if (!shares && !shape->measures_scales && fused_decode_attention(d, shape, args)) return;
    if (args->rotary.rotary_dim > 0 || args->rotary.query_norm) b->rotary_embedding(b, &args->rotary);
    if (shape->measures_scales && !shares) b->calculate_kv_scales(b, &args->cache);
    if (!shares) b->reshape_and_cache(b, &args->cache);
    if (!layer_is_read(d, shape, layer)) return;
    paged_attention(b, &args->attention, shape->num_decodes, shape->num_seqs);
    if (args->gate.kind != OUTPUT_GATE_NONE) b->output_gate(b, &args->gate);
}

void attention_inner(struct residual_stream *s, const struct step_shape *shape, int32_t layer)
{
    const struct decoder *d = s->d;
    struct backend *b = d->backend;
    const struct attention_spec *a = &d->spec->layers[layer].attention;
    const struct layer_weights *w = &d->weights->layers[layer];
    const struct qkv qkv = split_qkv(d, &d->spec->layers[layer]);
    struct decode_attention_args args = {
        .rotary = rotary_of(s, &qkv, layer),
        .cache = caching_of(s, &qkv, layer),
        .attention = attention_of(d, &qkv, shape, layer),
        .gate = gate_of(s, &qkv, a),
    };

    if (layer_reads_embedding(d->spec, layer))
        layer_project(s, d->act.qkv, d->dtype, &w->qkv, &(struct matmul_input){.x = d->act.head_input}, NULL);
    else
        residual_project(s, d->act.qkv, d->dtype, &w->qkv, &w->attention_norm);
    head_keep_before(s, layer);
    if (d->spec->layers[layer].recurrent_beside) recurrent_beside(s, shape, layer);
    scale(s, &qkv, a);
    if (a->clip > 0) clip(s, a);
    if (a->qk_norm == QK_NORM_PROJECTION) norm_projections(s, &qkv, layer);
    if (a->query_scaling.length > 0) layer_scale_queries(s, qkv.q, qkv.stride, attention_q_size(a), &a->query_scaling);
    if (a->v_norm) norm_values(b, &args.rotary, a, qkv.v, &w->v_norm);
    if (a->norm_after_rotation) rotate_first(b, &args.rotary);
    if (shape->swapped) b->event_wait(b, shape->swapped[d->cache->groups.index[layer]], NULL);
    attend(d, shape, &args, layer);
}

void attention_output(struct residual_stream *s, const void *x, int32_t layer)
{
    const struct decoder *d = s->d;
    const struct layer_spec *l = &d->spec->layers[layer];
    const struct layer_weights *w = &d->weights->layers[layer];
    const struct matmul_input in = layer_quantize_for(s, x, &w->o, d->act.quantized);
    const struct last_matmul o = layer_last_matmul(s, &in, &w->o, layer, TENSOR_O);
    const float v_multiplier = l->mixer == MIXER_ATTENTION ? l->attention.v_multiplier : 1;
    const float own = l->mixer == MIXER_RECURRENT ? l->recurrent.out_multiplier : l->attention.out_multiplier;
    residual_add(s, &o.in, &o.weight, &w->post_attention_norm,
                 mixer_multiplier(l) * v_multiplier * multiplier_or_1(own));
    if (!l->recurrent_beside) return;
    if (s->pending) residual_begin(s); /* the rows of the next input take the place of scales that this reads */
    const struct matmul_input beside =
        layer_quantize_for(s, beside_out(l, x, s->num_tokens, d->dtype), &w->recurrent.o, d->act.quantized);
    const struct last_matmul beside_o = layer_last_matmul(s, &beside, &w->recurrent.o, layer, TENSOR_MIX_O);
    residual_add(s, &beside_o.in, &beside_o.weight, &w->post_attention_norm,
                 l->residual_multiplier * multiplier_or_1(l->recurrent.out_multiplier));
}
