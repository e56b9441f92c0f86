/* The scales of an fp8 KV cache that a checkpoint holds: real value = stored value * scale. */
#ifndef QUIRE_MODEL_KV_SCALES_H
#define QUIRE_MODEL_KV_SCALES_H

#include <stdbool.h>

#include "model/weights.h"

/* Sets layer_weights.kv_scales to what weights->file holds under any of the names that quantizing programs give them,
 * and marks those tensors in used[tensor_file_count]. A tensor of more than one number is left alone: scales of single
 * heads are not used. */
enum status kv_scales_find(struct model_weights *weights, const struct model_spec *spec, bool *used, struct error *err);

#endif
