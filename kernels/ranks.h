/* Ranks beside the operations of their groups (collective.h): what their process does before it opens a device, how
 * their kernels are loaded, and how benchmarks compare. */
#ifndef QUIRE_KERNELS_RANKS_H
#define QUIRE_KERNELS_RANKS_H

#include <stdint.h>

#include "base/status.h"
#include "kernels/collective.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Call it where a model will have several ranks, before anything asks for a GPU and before there are other threads. It
 * sets what NCCL reads from the environment, unless it is set there:
 * NCCL_RUNTIME_CONNECT=0: NCCL connects ranks when it is opened, not when they wait for one another.
 * NCCL_NVLS_ENABLE=0: NCCL does without NVLink's multicast. */
void backend_expect_ranks(void);

/* What a rank does with others. */
struct group_operations {
    all_reduce_function *all_reduce;
    all_gather_function *all_gather;
    all_reduce_add_norm_function *all_reduce_add_norm;
    all_norm_function *all_norm;
    gather_columns_function *gather_columns;
    send_function *send;
    receive_function *receive;
};
/* From pause to resume these operations of a rank do nothing. CUDA loads a kernel when it is first launched, and may
 * wait for what runs on the device to do that: for kernels that wait for another rank, whose thread may wait for this
 * one to have loaded. So each kernel is launched once while no rank waits. */
void backend_group_pause(struct backend *b, struct group_operations *kept);
void backend_group_resume(struct backend *b, const struct group_operations *kept);

/* For benchmarks and tests: all_reduces of a group on GPUs of this process are NCCL's from so many bytes on; INT64_MAX:
 * none is. No operation of the group is running. `ranks` are all of its backends. UNSUPPORTED: NCCL cannot be used. */
enum status backend_group_set_nccl_from(struct backend *const *ranks, int64_t bytes, struct error *err);
enum status backend_cuda_group_set_nccl_from(struct backend *const *ranks, int64_t bytes, struct error *err);

#ifdef __cplusplus
}
#endif

#endif
