/* What a layer keeps of a sequence in the KV cache, how many bytes that takes, and what of it a token reads. KV cache
 * groups (kv_groups.h), the sizes of blocks (kv_cache.h) and estimates of what a step reads ask it, and not the layer.
 */
#ifndef QUIRE_MODEL_LAYER_CACHE_H
#define QUIRE_MODEL_LAYER_CACHE_H

#include "model/model_spec.h"

/* FULL: K and V of every token, all of which are read; of latent attention one vector in the place of K, and no V.
 * WINDOW: only those of the last `window` tokens are read. CHUNKED: only those of the chunk of `window` tokens that the
 * query is in. SHARED: none; what another layer keeps is read. NONE: none; what the layer keeps is no K and V
 * (state_cache.h), or nothing. */
enum cache_kind { CACHE_FULL, CACHE_WINDOW, CACHE_CHUNKED, CACHE_SHARED, CACHE_NONE };

struct layer_cache {
    enum cache_kind kind;
    int32_t window;                 /* 0: CACHE_FULL */
    int64_t k_elements, v_elements; /* for each token */
};

static inline struct layer_cache layer_cache_of(const struct layer_spec *l)
{
    const struct attention_spec *a = &l->attention;
    struct layer_cache cache = {
        .kind = CACHE_FULL, .k_elements = attention_k_size(a), .v_elements = attention_v_size(a)};
    if (l->mixer == MIXER_LATENT)
        return (struct layer_cache){.kind = CACHE_FULL, .k_elements = latent_vector_size(&l->latent)};
    if (l->mixer != MIXER_ATTENTION) return (struct layer_cache){.kind = CACHE_NONE};
    if (a->shares_kv) return (struct layer_cache){.kind = CACHE_SHARED};
    if (a->window > 0) cache.kind = CACHE_WINDOW, cache.window = a->window;
    if (a->chunk > 0) cache.kind = CACHE_CHUNKED, cache.window = a->chunk;
    return cache;
}

/* Bytes of the K and V of a token. */
static inline int64_t layer_cache_token_bytes(const struct layer_cache *c, enum dtype dtype)
{
    return (c->k_elements + c->v_elements) * dtype_size(dtype);
}

/* Elements of a token that a tensor of K, and one of V, must have room for. */
static inline int64_t layer_cache_room(const struct layer_cache *c)
{
    return c->k_elements > c->v_elements ? c->k_elements : c->v_elements;
}

/* How many tokens the last tokens of num_seqs sequences read, which are alike and have `context` tokens together. */
static inline int64_t layer_cache_tokens_read(const struct layer_cache *c, int64_t context, int32_t num_seqs)
{
    const int64_t windows = (int64_t)c->window * num_seqs;
    if (c->kind == CACHE_NONE) return 0;
    if (c->kind == CACHE_FULL || windows >= context) return context;
    if (c->kind == CACHE_WINDOW) return windows;
    return ((context / num_seqs - 1) % c->window + 1) * num_seqs;
}

#endif
