/* Ranks beside the operations of their groups (collective.h): what their process does before it opens a device, and how
 * benchmarks compare. */
#ifndef QUIRE_KERNELS_RANKS_H
#define QUIRE_KERNELS_RANKS_H

#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct backend;

/* Call it where a model will have several ranks, before anything asks for a GPU and before there are other threads. It
 * sets what CUDA and NCCL read from the environment, unless it is set there:
 * CUDA_MODULE_LOADING=EAGER: kernels are loaded when a device is opened. What is loaded on first use may wait for a
 * kernel on that device, and that kernel for this rank.
 * NCCL_RUNTIME_CONNECT=0: NCCL connects ranks when it is opened, for the same reason.
 * NCCL_NVLS_ENABLE=0: NCCL does without NVLink's multicast. */
void backend_expect_ranks(void);

/* For benchmarks and tests: all_reduces of a group on GPUs of this process are NCCL's from so many bytes on; INT64_MAX:
 * none is. No operation of the group is running. `ranks` are all of its backends. UNSUPPORTED: NCCL cannot be used. */
enum status backend_group_set_nccl_from(struct backend *const *ranks, int64_t bytes, struct error *err);
enum status backend_cuda_group_set_nccl_from(struct backend *const *ranks, int64_t bytes, struct error *err);

#ifdef __cplusplus
}
#endif

#endif
