/* What a layer keeps of a sequence in the KV cache, how many bytes that takes, and what of it a token reads. KV cache
 * groups (kv_groups.h), the sizes of blocks (kv_cache.h) and estimates of what a step reads ask it, and not the layer.
 */
#ifndef QUIRE_MODEL_LAYER_CACHE_H
#define QUIRE_MODEL_LAYER_CACHE_H

#include "model/model_spec.h"

/* FULL: K and V of every token, all of which are read. WINDOW: only those of the last `window` tokens are read.
 * CHUNKED: only those of the chunk of `window` tokens that the query is in. SHARED: none; what another layer keeps is
 * read. */
enum cache_kind { CACHE_FULL, CACHE_WINDOW, CACHE_CHUNKED, CACHE_SHARED };

struct layer_cache {
    enum cache_kind kind;
    int32_t window;         /* 0: CACHE_FULL */
    int64_t token_elements; /* of K for each token, and as many of V */
};

static inline struct layer_cache layer_cache_of(const struct layer_spec *l)
{
    const struct attention_spec *a = &l->attention;
    struct layer_cache cache = {.kind = CACHE_FULL, .token_elements = attention_kv_size(a)};
    if (a->shares_kv) return (struct layer_cache){.kind = CACHE_SHARED};
    if (a->window > 0) cache.kind = CACHE_WINDOW, cache.window = a->window;
    if (a->chunk > 0) cache.kind = CACHE_CHUNKED, cache.window = a->chunk;
    return cache;
}

/* Bytes of the K and V of a token. */
static inline int64_t layer_cache_token_bytes(const struct layer_cache *c, enum dtype dtype)
{
    return 2 * c->token_elements * dtype_size(dtype);
}

/* Bytes of the K of a block, and as many of the V. */
static inline int64_t layer_cache_block_bytes(const struct layer_cache *c, int32_t block_size, enum dtype dtype)
{
    return c->token_elements * block_size * dtype_size(dtype);
}

/* How many tokens the last tokens of num_seqs sequences read, which are alike and have `context` tokens together. */
static inline int64_t layer_cache_tokens_read(const struct layer_cache *c, int64_t context, int32_t num_seqs)
{
    const int64_t windows = (int64_t)c->window * num_seqs;
    if (c->kind == CACHE_FULL || windows >= context) return context;
    if (c->kind == CACHE_WINDOW) return windows;
    return ((context / num_seqs - 1) % c->window + 1) * num_seqs;
}

#endif
