/* What the CUDA backend offers beyond the table of operations, for tests and benchmarks. */
#ifndef QUIRE_KERNELS_CUDA_CUDA_H
#define QUIRE_KERNELS_CUDA_CUDA_H

#include "kernels/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most tokens that norm_linear takes, and gate_up with a norm. linear_residual, and gate_up without a norm, take 64
 * where the kernels are compiled for 90a, and as many as this elsewhere. */
enum { FUSED_MAX_TOKENS = 8 };

/* In all of these functions `b` comes from backend_cuda_open. */

/* Makes the countdown-th allocation from now fail as if memory had run out. Allocations are memory_alloc, stream_create
 * and event_create; 1 is the next one, 0 turns this off. */
void backend_cuda_fail_allocation(struct backend *b, int countdown);

/* After an operation has failed, every later synchronize fails with the same sentence, because later steps cannot be
 * right. This clears the failure, for callers that know what the operation spoiled. */
void backend_cuda_forget_failure(struct backend *b);

/* From now on operations choose their kernels, shared memory included, as on a GPU of this compute capability, 80 or
 * 89; 0: as on this GPU. */
void backend_cuda_choose_as(struct backend *b, int compute_capability);

#ifdef __cplusplus
}
#endif

#endif
