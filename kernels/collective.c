/* Groups of ranks: what kernels/cpu and kernels/cuda have in common. */
#include "kernels/collective.h"

#include "kernels/backend.h"

static enum status open_cuda_group(struct backend *const *ranks, int32_t num_ranks, struct error *err)
{
#ifdef QUIRE_HAVE_CUDA
    return backend_cuda_group_open(ranks, num_ranks, err);
#else
    (void)num_ranks;
    return error_set(err, STATUS_UNSUPPORTED, "this build of quire has no CUDA, so '%s' has no group", ranks[0]->name);
#endif
}

enum status backend_group_open(struct backend *const *ranks, int32_t num_ranks, struct error *err)
{
    if (num_ranks < 1 || num_ranks > COLLECTIVE_MAX_RANKS)
        return error_set(err, STATUS_INVALID, "a group of %d ranks was asked for: it may have 1 to %d", num_ranks,
                         COLLECTIVE_MAX_RANKS);
    for (int32_t i = 0; i < num_ranks; i++) {
        if (ranks[i]->discrete != ranks[0]->discrete)
            return error_set(err, STATUS_INVALID,
                             "'%s' and '%s' are not devices of one kind, so they cannot be a group", ranks[0]->name,
                             ranks[i]->name);
        if (ranks[i]->all_reduce) return error_set(err, STATUS_INVALID, "'%s' is in a group already", ranks[i]->name);
    }
    if (num_ranks == 1) return STATUS_OK;
    return ranks[0]->discrete ? open_cuda_group(ranks, num_ranks, err) : backend_cpu_group_open(ranks, num_ranks, err);
}
