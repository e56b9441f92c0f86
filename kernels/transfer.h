/* Sends and receives (collective.h) of ranks that are threads of one process. They are the same on all backends: an
 * event of the sender's stream, for which the receiver's waits, and a copy. */
#ifndef QUIRE_KERNELS_TRANSFER_H
#define QUIRE_KERNELS_TRANSFER_H

#include "kernels/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A backend calls it when it is destroyed, while it still has streams. Does nothing without an end. */
void transfer_end_close(struct backend *b);

/* Lets copies between the two devices go straight from one to the other, where they can. */
void backend_cuda_connect(struct backend *from, struct backend *to);

#ifdef __cplusplus
}
#endif

#endif
