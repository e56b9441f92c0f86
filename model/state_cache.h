/* The states of recurrent layers: of each layer that has one, an array with a place for each state slot
 * (base/batch.h), from which the kernels read a sequence's state and to which they write it (kernels/recurrence.h).
 *
 * A recurrent layer keeps two states, that of its convolution and that of its recurrence, and a convolution one. All
 * are float32. */
#ifndef QUIRE_MODEL_STATE_CACHE_H
#define QUIRE_MODEL_STATE_CACHE_H

#include "model/arena.h"
#include "model/model_spec.h"

struct layer_state {
    float *conv, *matrix; /* [num_slots + 1, conv_stride], [num_slots + 1, matrix_stride]; NULL: the layer has none */
    int64_t conv_stride, matrix_stride; /* elements */
};

struct state_cache {
    struct layer_state layers[MODEL_MAX_LAYERS]; /* [num_layers] */
    int32_t num_slots;
    int64_t slot_bytes; /* of a slot in all layers */
};

/* Elements of a layer's states, which a slot has; both 0 for a layer without a state. */
struct layer_state layer_state_sizes(const struct model_spec *spec, int32_t layer);
/* Bytes of a slot in all layers; 0: no layer has a state. */
int64_t state_cache_slot_bytes(const struct model_spec *spec);
/* Allocates slots 1 .. num_slots and the null slot of every layer that has a state. */
enum status state_cache_allocate(struct state_cache *cache, struct arena *arena, const struct model_spec *spec,
                                 int32_t num_slots, struct error *err);

#endif
