/* The operations of latent attention (MLA: DeepSeek-AI, 2024, arXiv 2405.04434), which caches one vector of a token for
 * all heads in place of K and V. A part of backend.h.
 *
 * The *latent* c of a token has `rank` elements, and its rotated key r `rope` elements, which all heads share. Head h
 * has K = [W_UK[h] c, r] and V = W_UV[h] c. Multiplied out, scores and results need c and r only:
 *
 *     score = (W_UK[h]^T q_nope) . c + q_rope . r          result[h] = W_UV[h] (sum of weights * c)
 *
 * So attention is that of one KV head, whose K is [c, r] and whose V is c: the absorbed form. heads_linear makes its
 * queries and finishes its results. */
#ifndef QUIRE_KERNELS_LATENT_H
#define QUIRE_KERNELS_LATENT_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The cache of a layer is [num_blocks, block_size, rank + rope]: c and r of a token side by side. */
struct latent_cache_args {
    const void *latent;  /* [num_tokens, rank] dtype */
    const void *rotated; /* [num_tokens, rope] dtype */
    int64_t latent_stride, rotated_stride;
    void *cache;
    const int64_t *slot_mapping; /* [num_tokens] block * block_size + offset; -1: the token is not stored */
    int32_t num_tokens, rank, rope, block_size; /* rank and rope: multiples of 16 */
    int64_t block_stride;                       /* elements from a block to the next */
    enum dtype dtype, cache_dtype;
    float *kv_scales; /* [2] on the device, of which the first is read, as in reshape_and_cache_args */
};

/* Paged attention of all entries of the batch, decodes, runs and prefills, as struct attention_args describes them. */
struct latent_attention_args {
    void *out;         /* [num_tokens, num_heads, rank] dtype */
    const void *query; /* [num_tokens, num_heads, rank + rope] dtype */
    const void *cache; /* cache_dtype */
    const int32_t *block_tables;
    int64_t block_table_stride;
    const int32_t *seq_lens, *query_start, *state_indices;
    int32_t num_seqs, num_decodes;
    int32_t num_heads, rank, rope, block_size;
    int64_t block_stride;
    int32_t num_tokens, max_query_len, max_seq_len; /* the last two are bounds */
    int32_t max_run_len;                            /* as in struct attention_args */
    float scale;                                    /* scores are scale * q.k */
    enum dtype dtype, cache_dtype;
    const float *kv_scales;
};

/* A matrix for each head: out[t][h] = W[h] x[t][h]. W of head h begins h * head_stride elements behind weight. With
 * `transposed` it is [in_features, out_features], otherwise [out_features, in_features]. Sums are float32. */
struct heads_linear_args {
    void *out;                                                    /* [num_tokens, num_heads, out_features] dtype */
    const void *x;                                                /* [num_tokens, num_heads, in_features] dtype */
    int64_t out_stride, out_head_stride, x_stride, x_head_stride; /* from token to token, and from head to head */
    const void *weight; /* weight_dtype: floats; on the device that of activations */
    enum dtype weight_dtype;
    int64_t head_stride;
    bool transposed;
    int32_t num_tokens, num_heads, in_features, out_features;
    enum dtype dtype;
    int32_t num_copied; /* elements behind in_features of each x[t][h], copied to out behind out_features; 0: none */
    /* The copies are rotated by the angles of the token's position, as in struct rotary_args; cos_sin NULL: not. */
    const float *cos_sin;     /* [, num_copied] */
    const int32_t *positions; /* [num_tokens] */
    bool interleaved;
};

struct backend;
typedef void latent_cache_function(struct backend *b, const struct latent_cache_args *args);
typedef void latent_attention_function(struct backend *b, const struct latent_attention_args *args);
typedef void heads_linear_function(struct backend *b, const struct heads_linear_args *args);

#ifdef __cplusplus
}
#endif

#endif
