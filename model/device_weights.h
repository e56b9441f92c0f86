/* Weights on a device that has memory of its own. There matrices of floats, and biases, have the type of the
 * activations; gains and quantized matrices are what they are on the host. The parts of a projection are merged into
 * one matrix if they have the same scheme and no order of input features; experts are stacked. The experts of the first
 * host->host_expert_layers layers stay where they are, and the device's layers point there. With host->host_embeddings
 * tables of embeddings are copied to pinned host memory, where the device reads rows of them. */
#ifndef QUIRE_MODEL_DEVICE_WEIGHTS_H
#define QUIRE_MODEL_DEVICE_WEIGHTS_H

#include "model/arena.h"
#include "model/upload.h"
#include "model/weights.h"

/* Allocates memory for the weights in the arena, fills *device with pointers to it, and starts the upload *out. Work
 * that needs only the addresses, such as capturing graphs, need not wait for the upload. Finish it before `host` or the
 * arena is closed; experts that stay on the host need `host` as long as *device is used. Close *device with
 * model_weights_close. */
enum status device_weights_begin(struct arena *arena, const struct model_spec *spec, const struct model_weights *host,
                                 enum dtype dtype, struct model_weights *device, struct upload **out,
                                 struct error *err);

/* Lets the backend reorder quantized matrices. Call it once, when the upload is finished and before the first use. */
void device_weights_prepare(struct backend *b, const struct model_weights *device);

/* Bytes that device_weights_begin will allocate; those of them that are matrices and biases of experts. */
int64_t device_weights_bytes(const struct model_weights *host, enum dtype dtype);
int64_t device_weights_pinned_bytes(const struct model_weights *host, enum dtype dtype); /* in pinned host memory */
int64_t device_weights_expert_bytes(const struct model_weights *host, enum dtype dtype);

#endif
