/* KV cache groups (base/batch.h) of a model: which of them there are, and which layers each has.
 *
 * A block must have as many bytes in one group as in another, so all groups have the same number of cache tensors, and
 * tensor i of K and of V serves layer i of every group. A layer that stores fewer elements of a token than the largest
 * has larger blocks: the tokens that a block of it holds are the largest power of two times block_size that fits, and
 * that kernels take (KV_MAX_BLOCK_SIZE). Gemma 2 with 4 layers, whose windows take turns:
 *
 *     layer    0         1         2         3
 *     window   4096      all       4096      all
 *     group    1         0         1         0          windows[] = {0, 4096}
 *     index    0         0         1         1          K and V: two tensors each, not four */
#ifndef QUIRE_MODEL_KV_GROUPS_H
#define QUIRE_MODEL_KV_GROUPS_H

#include "base/batch.h"
#include "model/model_spec.h"

struct kv_groups {
    int32_t count;
    int32_t num_tensors;               /* of K, and as many of V: the layers of the largest group */
    int32_t num_sides;                 /* 2: K and V; 1: no layer caches a V */
    int32_t num_layers[KV_MAX_GROUPS]; /* [count] */
    /* [spec->num_layers] The group of each layer, and the tensor that serves it there. Of layers in one group, the
     * later one has the higher index. A layer that shares K and V has the place of the one that keeps them. */
    int16_t group[MODEL_MAX_LAYERS], index[MODEL_MAX_LAYERS];
};

/* Sets limits->num_groups, windows, chunked and block_shifts from the layers' caches (layer_cache.h),
 * limits->max_model_len and limits->block_size. The layers that have one window, or one chunk, and as many tokens in a
 * block are one kind; a window or a chunk that no sequence outgrows is as full attention, which comes first. Groups
 * have as many layers as the smallest kind; as the largest, where that has less than 1.25 times as many; more, where
 * there would be more than KV_MAX_GROUPS groups. The rule is that of vLLM's hybrid KV cache manager. A model with more
 * kinds than KV_MAX_GROUPS is one group without a window.
 *
 * The groups are those of the model, though the spec is a stage's (stage.h), because one batch is for all stages. A
 * stage may lack layers of some. */
void kv_groups_choose(const struct model_spec *spec, struct batch_limits *limits);

/* Which layers the groups of these limits have: those of the group's kind, dealt in turn where several groups have it.
 * A layer whose window no group has is in those without a window, which keep all that it reads. Needs a group without a
 * window and with blocks of block_size, or one of each layer's kind. */
enum status kv_groups_assign(const struct model_spec *spec, const struct batch_limits *limits, struct kv_groups *out,
                             struct error *err);

#endif
