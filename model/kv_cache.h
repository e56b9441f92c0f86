/* The KV cache: a K and a V tensor for each layer of the largest KV cache group, made of blocks (layout: struct
 * reshape_and_cache_args; of latent attention struct latent_cache_args, in the K tensor). Where all layers have latent
 * attention there are no V tensors. Tensor i serves layer i of every group, so a block holds the K and V of one group's
 * layers. The block of a tensor has room for the block of any layer. What a layer does not fill is behind its K or V:
 *
 *     a tensor     [          block 0          ] [          block 1          ] [ ...
 *     layer 0      [  16 tokens of 8 x 64      ]                                      of a group with block_size 16
 *     layer 5      [  64 tokens of 3 x 32 |    ]                                      of one with 64: a quarter is lost
 *
 * Tensors of K and of V have blocks of the same size, so heads of V that are smaller than those of K leave some empty,
 * too.
 */
#ifndef QUIRE_MODEL_KV_CACHE_H
#define QUIRE_MODEL_KV_CACHE_H

#include "model/arena.h"
#include "model/kv_groups.h"
#include "model/model_spec.h"
#include "model/weights.h"

struct kv_cache {
    struct kv_groups groups;
    void **tensors;      /* [num_tensors] each [num_blocks + 1, ...]: K of index 0, 1, ..., then V of the same */
    int32_t num_tensors; /* groups.num_sides * groups.num_tensors */
    int32_t num_blocks;  /* blocks 1 .. num_blocks can be taken; block 0 is the null block */
    int32_t block_sizes[KV_MAX_GROUPS]; /* [groups.count] tokens of a block */
    enum dtype dtype;
    int64_t tensor_block_bytes; /* of one block in one tensor: the most that a layer's K or V takes */
    int64_t block_bytes;        /* of one block in all tensors, kv_cache_block_bytes; of a host block, too */
    float *scales; /* [num_layers, 2] of a cache of fp8, on the device (attention_params.kv_scales); NULL: of floats */
    bool measure_scales; /* of the first step that stores tokens: it raises the scales to what it stores */
};

/* Bytes of one block in all tensors: groups->num_sides * groups->num_tensors * the most that a layer's K or V of a
 * block takes. */
int64_t kv_cache_block_bytes(const struct model_spec *spec, const struct kv_groups *groups,
                             const struct batch_limits *limits, enum dtype dtype);
/* The bytes of a block that the layers of a group have and do not fill: where the largest layer stores more elements of
 * a token, but not a power of two times as many, or more times as many than KV_MAX_BLOCK_SIZE allows; and where heads
 * of K and V differ in size. */
int64_t kv_cache_unused_bytes(const struct model_spec *spec, const struct kv_groups *groups,
                              const struct batch_limits *limits, int32_t group, enum dtype dtype);

/* Bytes of the K and V of one token in every layer. */
int64_t kv_cache_token_bytes(const struct model_spec *spec, enum dtype dtype);

/* Sets the sizes and makes room for the pointers; no block is allocated. Free with kv_cache_close. */
enum status kv_cache_init(struct kv_cache *cache, const struct model_spec *spec, const struct batch_limits *limits,
                          enum dtype dtype, struct error *err);
/* Allocates the tensors for num_blocks and the null block. */
enum status kv_cache_allocate(struct kv_cache *cache, struct arena *arena, int32_t num_blocks, struct error *err);

/* Allocates the scales, if the cache is to have any. `dtype` is that of the cache. */
enum status kv_cache_allocate_scales(struct kv_cache *cache, struct arena *arena, const struct model_spec *spec,
                                     enum dtype dtype, struct error *err);
/* Sets the scales of fp8_e4m3 to those of the checkpoint, if it has them for all layers; else to the least, and
 * measure_scales. The scales of fp8_e5m2 are 1. Values are stored before v_multiplier, by which scales of V that are
 * not measured are divided. INVALID: a scale of the checkpoint is no positive number. */
enum status kv_cache_set_scales(struct kv_cache *cache, struct backend *b, const struct model_weights *weights,
                                const struct model_spec *spec, struct error *err);

void kv_cache_close(struct kv_cache *cache); /* the tensors are the arena's; safe on a zeroed struct */

static inline void *kv_cache_k(const struct kv_cache *cache, int32_t layer)
{
    return cache->tensors[cache->groups.index[layer]];
}

/* Tokens of a block of the layer. */
static inline int32_t kv_cache_block_size(const struct kv_cache *cache, int32_t layer)
{
    return cache->block_sizes[cache->groups.group[layer]];
}

/* Elements from a block to the next, in any tensor. */
static inline int64_t kv_cache_block_stride(const struct kv_cache *cache)
{
    return cache->tensor_block_bytes / dtype_size(cache->dtype);
}

/* The layer's attention_params.kv_scales. */
static inline float *kv_cache_scales(const struct kv_cache *cache, int32_t layer)
{
    return cache->scales ? cache->scales + (int64_t)2 * layer : NULL;
}

static inline void *kv_cache_v(const struct kv_cache *cache, int32_t layer)
{
    return cache->tensors[cache->groups.num_tensors + cache->groups.index[layer]];
}

#endif
