/* Communicators of NCCL, through which GPUs of one process or of several exchange data. The executable is not linked
 * against the library: it is opened when it is needed, as cuBLAS is. */
#ifndef QUIRE_KERNELS_CUDA_COLLECTIVE_NCCL_H
#define QUIRE_KERNELS_CUDA_COLLECTIVE_NCCL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/dtype.h"

enum { NCCL_ID_BYTES = 128 };

struct nccl; /* the communicator of one rank */

/* Makes the id by which the ranks of a new group find each other. UNSUPPORTED: the library is not installed; *err says
 * what to install. */
enum status nccl_make_id(uint8_t id[NCCL_ID_BYTES], struct error *err);

/* Begins to make the communicator of a rank, on a thread of its own: it is made when all ranks have begun. `device` is
 * CUDA's number. Free *out with nccl_close. */
enum status nccl_begin(const uint8_t id[NCCL_ID_BYTES], int32_t rank, int32_t num_ranks, int device, struct nccl **out,
                       struct error *err);
/* Waits until it is made, before its first use. On failure it can only be closed. */
enum status nccl_wait(struct nccl *n, double seconds, struct error *err);
/* No work of it is on a stream, and no graph has any. One that is still being made is left to its thread. NULL is
 * allowed. */
void nccl_close(struct nccl *n);

/* Each puts an operation on `stream`, a cudaStream_t of the communicator's device, which is the calling thread's
 * current one, and can be captured in a graph. They return NULL, or why they could not. Calls of one communicator
 * follow each other.
 *
 * nccl_all_reduce: in which order the ranks' elements are added, and how often a sum is rounded to dtype on the way,
 * depends on the library, on the number of ranks, on count and on the element's place; all ranks get the same bits. Of
 * two ranks there is one order, and one rounding. */
const char *nccl_all_reduce(struct nccl *n, void *x, int64_t count, enum dtype dtype, void *stream);
/* What is called between these two begins together. */
const char *nccl_begin_several(struct nccl *n);
const char *nccl_end_several(struct nccl *n);

/* What went wrong on the device or on the way to another rank since; NULL: nothing, or it is not made yet, or aborted.
 * What is on the stream may then wait for ever, until nccl_abort. */
const char *nccl_failure(struct nccl *n);
/* Ends what waits, in nccl_wait, in a call or on a stream; from now on the communicator can only be closed. Any thread,
 * until nccl_close, and more than once. */
void nccl_abort(struct nccl *n);

#endif
