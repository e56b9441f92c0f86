/* Latent attention (kernels/latent.h): from the residual stream to q, the latent and the rotated key of each token, of
 * which the last two are cached; attention in the absorbed form; the results of heads, which o reads. */
#include <assert.h>

#include "model/layers/layers.h"

/* What is computed of the layer's input, and where it lies; the tokens of each are so many elements apart. */
struct parts {
    char *q, *latent, *rotated;
    int64_t q_stride, stride; /* of q; of the other two */
};

/* Without a second matrix for q, q is in act.qkv. */
static struct parts split(const struct decoder *d, const struct latent_spec *l)
{
    char *latent = at_column(d->act.qkv, latent_first_size(l), d->dtype);
    const int64_t stride = latent_first_size(l) + latent_vector_size(l);
    return (struct parts){.q = l->q_rank > 0 ? d->act.latent_heads : d->act.qkv,
                          .latent = latent,
                          .rotated = at_column(latent, l->rank, d->dtype),
                          .q_stride = l->q_rank > 0 ? latent_q_size(l) : stride,
                          .stride = stride};
}

/* act.attention = norm(the first columns of act.qkv) */
static void norm_queries(struct residual_stream *s, const struct latent_spec *l, const struct latent_weights *w,
                         const struct parts *p)
{
    const struct decoder *d = s->d;
    const struct rms_norm_args norm = {.out = d->act.attention,
                                       .x = d->act.qkv,
                                       .out_stride = l->q_rank,
                                       .x_stride = p->stride,
                                       .norm = w->q_norm,
                                       .num_tokens = s->num_tokens,
                                       .size = l->q_rank,
                                       .dtype = d->dtype};
    d->backend->rms_norm(d->backend, &norm);
}

/* q = q_b(act.attention) */
static void project_queries(struct residual_stream *s, const struct latent_weights *w, const struct parts *p)
{
    const struct decoder *d = s->d;
    const struct matmul_input in = layer_quantize_for(s, d->act.attention, &w->q_b.parts[0], d->act.quantized);
    layer_project(s, p->q, d->dtype, &w->q_b, &in, NULL);
}

/* The last elements of each head of q, and the one key. For the operation a head begins with what is rotated, and so
 * ends behind the first elements of the next, which stay as they are. */
static void rotate(const struct residual_stream *s, const struct latent_spec *l, const struct parts *p)
{
    const struct decoder *d = s->d;
    const struct rotary_args args = {.query = at_column(p->q, l->nope, d->dtype),
                                     .key = p->rotated,
                                     .query_stride = p->q_stride,
                                     .key_stride = p->stride,
                                     .positions = d->inputs->positions,
                                     .cos_sin = d->cos_sin[0],
                                     .num_tokens = s->num_tokens,
                                     .num_heads = l->num_heads,
                                     .num_kv_heads = 1,
                                     .head_size = latent_head_size(l),
                                     .rotary_dim = l->rope,
                                     .interleaved = d->spec->rope_interleaved,
                                     .dtype = d->dtype};
    d->backend->rotary_embedding(d->backend, &args);
}

/* One scale is that of both parts of what is cached: each of them raises it. */
static void measure_scale(const struct residual_stream *s, const struct latent_cache_args *cache)
{
    struct backend *b = s->d->backend;
    struct reshape_and_cache_args args = {.key = cache->latent,
                                          .value = cache->latent,
                                          .kv_stride = cache->latent_stride,
                                          .slot_mapping = cache->slot_mapping,
                                          .num_tokens = cache->num_tokens,
                                          .num_kv_heads = 1,
                                          .head_size = cache->rank,
                                          .v_head_size = cache->rank,
                                          .block_size = cache->block_size,
                                          .dtype = cache->dtype,
                                          .cache_dtype = cache->cache_dtype,
                                          .kv_scales = cache->kv_scales};
    b->calculate_kv_scales(b, &args);
    args.key = args.value = cache->rotated;
    args.head_size = args.v_head_size = cache->rope;
    b->calculate_kv_scales(b, &args);
}

static struct latent_cache_args caching_of(const struct residual_stream *s, const struct latent_spec *l,
                                           const struct parts *p, int32_t layer)
{
    const struct decoder *d = s->d;
    const int64_t group = d->cache->groups.group[layer];
    return (struct latent_cache_args){.latent = p->latent,
                                      .rotated = p->rotated,
                                      .latent_stride = p->stride,
                                      .rotated_stride = p->stride,
                                      .cache = kv_cache_k(d->cache, layer),
                                      .slot_mapping = d->inputs->slot_mapping + group * s->num_tokens,
                                      .num_tokens = s->num_tokens,
                                      .rank = l->rank,
                                      .rope = l->rope,
                                      .block_size = kv_cache_block_size(d->cache, layer),
                                      .block_stride = kv_cache_block_stride(d->cache),
                                      .dtype = d->dtype,
                                      .cache_dtype = d->cache->dtype,
                                      .kv_scales = kv_cache_scales(d->cache, layer)};
}

/* Norms and stores what the layer's input was projected to in one operation, if there is one. */
static bool fused_inputs(const struct residual_stream *s, const struct latent_spec *l, const struct latent_weights *w,
                         const struct parts *p, const struct latent_cache_args *cache)
{
    const struct decoder *d = s->d;
    const struct latent_inputs_args args = {.cache = *cache,
                                            .norm = w->norm,
                                            .cos_sin = l->no_rotation ? NULL : d->cos_sin[0],
                                            .positions = d->inputs->positions,
                                            .interleaved = d->spec->rope_interleaved,
                                            .q = d->act.attention,
                                            .q_in = d->act.qkv,
                                            .q_stride = p->stride,
                                            .q_rank = l->q_rank,
                                            .q_norm = w->q_norm};
    return d->backend->latent_inputs && d->backend->latent_inputs(d->backend, &args);
}

/* What fused_inputs does but for the norm of q, in single operations; and rotates q. */
static void store(const struct residual_stream *s, const struct step_shape *shape, const struct latent_spec *l,
                  const struct latent_weights *w, const struct parts *p, const struct latent_cache_args *cache)
{
    layer_norm_in_place(s, p->latent, p->stride, l->rank, &w->norm);
    if (!l->no_rotation) rotate(s, l, p);
    if (shape->measures_scales) measure_scale(s, cache);
    s->d->backend->latent_cache(s->d->backend, cache);
}

/* W_UK of head 0 is the first rows of kv_b, W_UV those behind it; then come those of head 1. */
static struct heads_linear_args heads_linear_of(const struct residual_stream *s, const struct latent_spec *l,
                                                const struct weight *kv_b)
{
    return (struct heads_linear_args){.weight = kv_b->data,
                                      .weight_dtype = weight_dtype(kv_b),
                                      .head_stride = (int64_t)(l->nope + l->v_head_size) * l->rank,
                                      .num_tokens = s->num_tokens,
                                      .num_heads = l->num_heads,
                                      .dtype = s->d->dtype};
}

/* act.mixed = [W_UK^T q_nope, q_rope] of each head. `rotates`: q_rope is yet to be rotated. */
static void absorb(const struct residual_stream *s, const struct latent_spec *l, const struct weight *kv_b,
                   const struct parts *p, bool rotates)
{
    const struct decoder *d = s->d;
    struct heads_linear_args args = heads_linear_of(s, l, kv_b);
    args.out = d->act.mixed;
    args.out_head_stride = latent_vector_size(l);
    args.out_stride = l->num_heads * args.out_head_stride;
    args.x = p->q;
    args.x_head_stride = latent_head_size(l);
    args.x_stride = p->q_stride;
    args.transposed = true;
    args.in_features = l->nope;
    args.out_features = l->rank;
    args.num_copied = l->rope;
    args.cos_sin = rotates ? d->cos_sin[0] : NULL;
    args.positions = d->inputs->positions;
    args.interleaved = d->spec->rope_interleaved;
    d->backend->heads_linear(d->backend, &args);
}

/* act.latent_heads = the weighted sums of latents. */
static void attend(const struct residual_stream *s, const struct step_shape *shape, const struct latent_spec *l,
                   int32_t layer)
{
    const struct decoder *d = s->d;
    const int64_t group = d->cache->groups.group[layer];
    const struct latent_attention_args args = {.out = d->act.latent_heads,
                                               .query = d->act.mixed,
                                               .cache = kv_cache_k(d->cache, layer),
                                               .block_tables = d->block_tables + group * d->group_stride,
                                               .block_table_stride = d->block_table_stride,
                                               .seq_lens = d->inputs->seq_lens,
                                               .query_start = d->inputs->query_start,
                                               .state_indices = d->inputs->state_indices,
                                               .num_seqs = shape->num_seqs,
                                               .num_decodes = shape->num_decodes,
                                               .num_heads = l->num_heads,
                                               .rank = l->rank,
                                               .rope = l->rope,
                                               .block_size = kv_cache_block_size(d->cache, layer),
                                               .block_stride = kv_cache_block_stride(d->cache),
                                               .num_tokens = s->num_tokens,
                                               .max_query_len = shape->max_query_len,
                                               .max_seq_len = shape->max_seq_len,
                                               .max_run_len = shape->num_drafts > 0 ? 1 + MAX_DRAFTS : 1,
                                               .scale = l->scale,
                                               .dtype = d->dtype,
                                               .cache_dtype = d->cache->dtype,
                                               .kv_scales = kv_cache_scales(d->cache, layer)};
    d->backend->latent_attention(d->backend, &args);
}

/* act.attention = W_UV of these. */
static void finish_heads(const struct residual_stream *s, const struct latent_spec *l, const struct weight *kv_b)
{
    const struct decoder *d = s->d;
    struct heads_linear_args args = heads_linear_of(s, l, kv_b);
    args.weight = at_column((void *)kv_b->data, (int64_t)l->nope * l->rank, args.weight_dtype);
    args.out = d->act.attention;
    args.out_head_stride = l->v_head_size;
    args.out_stride = latent_out_size(l);
    args.x = d->act.latent_heads;
    args.x_head_stride = l->rank;
    args.x_stride = (int64_t)l->num_heads * l->rank;
    args.in_features = l->rank;
    args.out_features = l->v_head_size;
    d->backend->heads_linear(d->backend, &args);
}

void latent_inner(struct residual_stream *s, const struct step_shape *shape, int32_t layer)
{
    const struct decoder *d = s->d;
    struct backend *b = d->backend;
    const struct latent_spec *l = &d->spec->layers[layer].latent;
    const struct layer_weights *w = &d->weights->layers[layer];
    const struct parts p = split(d, l);
    const struct latent_cache_args cache = caching_of(s, l, &p, layer);
    assert(!weight_is_quantized(&w->latent.kv_b));
    residual_project(s, d->act.qkv, d->dtype, &w->qkv, &w->attention_norm);
    head_keep_before(s, layer);
    if (shape->swapped) b->event_wait(b, shape->swapped[d->cache->groups.index[layer]], NULL);
    const bool fused = !shape->measures_scales && fused_inputs(s, l, &w->latent, &p, &cache);
    if (!fused && l->q_rank > 0) norm_queries(s, l, &w->latent, &p);
    if (l->q_rank > 0) project_queries(s, &w->latent, &p);
    if (l->query_scaling.length > 0) layer_scale_queries(s, p.q, p.q_stride, latent_q_size(l), &l->query_scaling);
    if (!fused) store(s, shape, l, &w->latent, &p, &cache);
    if (!layer_is_read(d, shape, layer)) return;
    absorb(s, l, &w->latent.kv_b, &p, fused && !l->no_rotation);
    attend(s, shape, l, layer);
    finish_heads(s, l, &w->latent.kv_b);
}
