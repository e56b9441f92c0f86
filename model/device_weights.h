/* Weights on a device that has memory of its own. There matrices and biases have the type of the activations, gains
 * keep the type that they have on the host, and the parts of a projection are merged into one matrix. */
#ifndef QUIRE_MODEL_DEVICE_WEIGHTS_H
#define QUIRE_MODEL_DEVICE_WEIGHTS_H

#include "model/arena.h"
#include "model/upload.h"
#include "model/weights.h"

/* Allocates memory for the weights in the arena, fills *device with pointers to it, and starts the upload *out. Work
 * that needs only the addresses, such as capturing graphs, need not wait for the upload. Finish it before `host` or the
 * arena is closed. Close *device with model_weights_close. */
enum status device_weights_begin(struct arena *arena, const struct model_spec *spec, const struct model_weights *host,
                                 enum dtype dtype, struct model_weights *device, struct upload **out,
                                 struct error *err);

/* Bytes that device_weights_begin will allocate. */
int64_t device_weights_bytes(const struct model_weights *host, enum dtype dtype);

#endif
