/* What the CUDA backend offers beyond the table of operations, for tests and benchmarks. */
#ifndef QUIRE_KERNELS_CUDA_CUDA_H
#define QUIRE_KERNELS_CUDA_CUDA_H

#include "kernels/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* norm_linear, and gate_up_silu with a norm, take no more tokens than this; nor do linear_residual and gate_up_silu
 * without one, but where kernels are compiled for 90a: those take 64. */
enum { FUSED_MAX_TOKENS = 8 };

/* `b` is a backend of backend_cuda_open in all of these. */

/* The countdown-th allocation from now (1: the next memory_alloc, stream_create or event_create) fails as if memory had
 * run out; 0: none. */
void backend_cuda_fail_allocation(struct backend *b, int countdown);

/* An operation that failed makes every later synchronize fail with the same sentence: a step after it cannot be right.
 * This forgets it, where what it spoiled is known. */
void backend_cuda_forget_failure(struct backend *b);

#ifdef __cplusplus
}
#endif

#endif
