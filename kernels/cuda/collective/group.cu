/* Groups of devices of one process, which write each other's memory (CUDA programming guide, "peer-to-peer memory
 * access"). */
#include <stdlib.h>

#include "kernels/cuda/collective/peers.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/group_failure.h"
#include "kernels/ranks.h"

using namespace collective;

/* Lets kernels on `from` write the memory of `to`. */
static enum status enable_access(struct backend *from, struct backend *to, struct error *err)
{
    int can = 0;
    const int device = cuda_state(from)->device, other = cuda_state(to)->device;
    if (device == other)
        return error_set(err, STATUS_INVALID, "%s was named twice: each rank needs a GPU of its own", from->name);
    cuda_set_device(from);
    cudaError_t error = cudaDeviceCanAccessPeer(&can, device, other);
    if (error == cudaSuccess && !can)
        return error_set(
            err, STATUS_UNSUPPORTED,
            "%s and %s cannot reach each other's memory (see nvidia-smi topo -p2p w), so a model cannot be "
            "split over them",
            from->name, to->name);
    if (error == cudaSuccess) error = cudaDeviceEnablePeerAccess(other, 0);
    if (error != cudaSuccess) cudaGetLastError(); /* clears it: later checks must not report it again */
    if (error == cudaSuccess || error == cudaErrorPeerAccessAlreadyEnabled) return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED, "%s cannot reach the memory of %s: %s", from->name, to->name,
                     cudaGetErrorString(error));
}

/* The group's listener: kernels that wait see it. */
static void end_waiting(void *group)
{
    __atomic_store_n(((struct cuda_group *)group)->has_failed, 1, __ATOMIC_RELEASE);
}

/* After a failure, kernels and NCCL may still use the group: it is left to the end of the process. */
void cuda_group_free(struct cuda_group *g)
{
    if (group_has_failed(g->failure) || group_has_failed(g->communicators.failure)) return;
    if (g->failure) group_failure_forget(g->failure, g);
    if (g->has_failed) cudaFreeHost(g->has_failed);
    for (int i = 0; i < g->num_ranks; i++)
        if (g->memories[i]) cudaFree(g->memories[i]);
    communicators_free(&g->communicators);
    group_failure_free(g->failure);
    free(g);
}

/* What tells the kernels that the group has failed. */
static enum status prepare_failure(struct backend *const *ranks, struct cuda_group *g, struct error *err)
{
    cuda_set_device(ranks[0]);
    const cudaError_t error =
        cudaHostAlloc((void **)&g->has_failed, sizeof *g->has_failed, cudaHostAllocPortable | cudaHostAllocMapped);
    if (error != cudaSuccess) {
        cudaGetLastError(); /* clears it: later checks must not report it again */
        g->has_failed = NULL;
        return error_set(err, STATUS_OUT_OF_MEMORY, "%s: cannot allocate pinned host memory: %s", ranks[0]->name,
                         cudaGetErrorString(error));
    }
    *g->has_failed = 0;
    g->failure = ranks[0]->failure;
    group_failure_keep(g->failure);
    if (g->failure) group_failure_tell(g->failure, end_waiting, g);
    return STATUS_OK;
}

/* The rank's memory, which is zero when this returns. */
static enum status allocate(struct backend *b, struct rank_memory **out, struct error *err)
{
    const enum status status =
        cuda_memory_alloc(b, MEMORY_DEVICE, (int64_t)sizeof(struct rank_memory), (void **)out, err);
    return status == STATUS_OK ? b->stream_synchronize(b, NULL, err) : status;
}

static enum status connect(struct backend *const *ranks, struct cuda_group *g, struct error *err)
{
    enum status status = prepare_failure(ranks, g, err);
    g->max_blocks = MAX_BLOCKS;
    for (int i = 0; i < g->num_ranks; i++)
        if (cuda_state(ranks[i])->num_sms < g->max_blocks) g->max_blocks = cuda_state(ranks[i])->num_sms;
    for (int i = 0; i < g->num_ranks && status == STATUS_OK; i++)
        for (int k = 0; k < g->num_ranks && status == STATUS_OK; k++)
            if (k != i) status = enable_access(ranks[i], ranks[k], err);
    for (int i = 0; i < g->num_ranks && status == STATUS_OK; i++) status = allocate(ranks[i], &g->memories[i], err);
    for (int i = 0; i < g->num_ranks && status == STATUS_OK; i++) {
        cuda_set_device(ranks[i]);
        if (!cuda_load_all_reduce(ranks[i]) || !cuda_load_all_gather(ranks[i]) ||
            !cuda_load_all_reduce_add_norm(ranks[i]) || !cuda_load_all_norm(ranks[i]) ||
            !cuda_load_gather_columns(ranks[i]))
            status = ranks[i]->stream_synchronize(ranks[i], NULL, err);
    }
    return status;
}

static enum status begin_communicators(struct backend *const *ranks, struct cuda_group *g, struct error *err)
{
    int devices[MAX_RANKS];
    if (g->communicators.count > 0) return STATUS_OK;
    for (int i = 0; i < g->num_ranks; i++) devices[i] = cuda_state(ranks[i])->device;
    const struct communicators_args args = {NULL, 0, g->num_ranks, g->num_ranks, devices, g->failure};
    return communicators_begin(&g->communicators, &args, err);
}

/* Larger counts pass through the same memory, so no limit on them is needed. */
enum status backend_cuda_group_open(struct backend *const *ranks, int32_t num_ranks, struct error *err)
{
    struct cuda_group *g = (struct cuda_group *)calloc(1, sizeof *g);
    if (!g) return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory opening a group of %d GPUs", num_ranks);
    struct error no_nccl;
    g->num_ranks = g->members = num_ranks;
    communicators_init(&g->communicators, num_ranks);
    const enum status status = connect(ranks, g, err);
    if (status != STATUS_OK) {
        cuda_group_free(g);
        return status;
    }
    for (int i = 0; i < num_ranks; i++) {
        cuda_state(ranks[i])->group = g;
        cuda_state(ranks[i])->rank = i;
        ranks[i]->all_reduce = cuda_all_reduce;
        ranks[i]->all_gather = cuda_all_gather;
        ranks[i]->all_reduce_add_norm = cuda_all_reduce_add_norm;
    }
    if (g->communicators.from_bytes < INT64_MAX)
        begin_communicators(ranks, g, &no_nccl); /* without NCCL the group's kernels do for all counts */
    return STATUS_OK;
}

enum status backend_cuda_group_set_nccl_from(struct backend *const *ranks, int64_t bytes, struct error *err)
{
    struct cuda_group *g = cuda_state(ranks[0])->group;
    enum status status = begin_communicators(ranks, g, err);
    if (status != STATUS_OK) return status;
    communicators_wait(&g->communicators);
    if (g->communicators.count == 0)
        return error_set(err, STATUS_UNSUPPORTED, "NCCL cannot connect the ranks (NCCL_DEBUG=INFO says why)");
    g->communicators.from_bytes = bytes;
    return STATUS_OK;
}

void cuda_group_leave(struct cuda_state *s)
{
    if (s->group && __atomic_sub_fetch(&s->group->members, 1, __ATOMIC_ACQ_REL) == 0) cuda_group_free(s->group);
}
