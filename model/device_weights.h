/* Weights on a device that has memory of its own: copied through pinned buffers by several threads while the file is
 * read, every matrix in the type of the activations, the parts of a projection merged into one matrix. */
#ifndef QUIRE_MODEL_DEVICE_WEIGHTS_H
#define QUIRE_MODEL_DEVICE_WEIGHTS_H

#include "model/arena.h"
#include "model/weights.h"

struct weights_upload; /* under way, in threads of its own */

/* Fills *device (its own `layers` array; close with model_weights_close; the data is the arena's) and begins to copy:
 * what only needs to know where the weights are, as capturing graphs does, need not wait. Gains keep their type. bytes:
 * what the device holds. *out must be finished, before `host` and the arena are. */
enum status device_weights_begin(struct arena *arena, const struct model_spec *spec, const struct model_weights *host,
                                 enum dtype dtype, struct model_weights *device, struct weights_upload **out,
                                 struct error *err);
/* Waits until the weights are there, and frees *upload. */
enum status device_weights_finish(struct weights_upload *upload, struct error *err);

/* What the above will allocate, before anything is read. */
int64_t device_weights_bytes(const struct model_spec *spec, const struct model_weights *host, enum dtype dtype);

#endif
