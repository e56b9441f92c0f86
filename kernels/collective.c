/* Groups of ranks: what kernels/cpu and kernels/cuda have in common. */
#include "kernels/collective.h"

#include <stdio.h>
#include <string.h>

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

static enum status check_kind(struct backend *const *ranks, int32_t count, struct error *err)
{
    for (int32_t i = 0; i < count; i++) {
        if (ranks[i]->discrete != ranks[0]->discrete)
            return error_set(err, STATUS_INVALID,
                             "'%s' and '%s' are not devices of one kind, so they cannot be a group", ranks[0]->name,
                             ranks[i]->name);
        if (ranks[i]->all_reduce) return error_set(err, STATUS_INVALID, "'%s' is in a group already", ranks[i]->name);
    }
    return STATUS_OK;
}

static enum status check_count(int32_t num_ranks, struct error *err)
{
    if (num_ranks >= 1 && num_ranks <= COLLECTIVE_MAX_RANKS) return STATUS_OK;
    return error_set(err, STATUS_INVALID, "a group of %d ranks was asked for: it may have 1 to %d", num_ranks,
                     COLLECTIVE_MAX_RANKS);
}

enum status backend_group_open(struct backend *const *ranks, int32_t num_ranks, struct error *err)
{
    enum status status = check_count(num_ranks, err);
    if (status == STATUS_OK) status = check_kind(ranks, num_ranks, err);
    if (status != STATUS_OK || num_ranks == 1) return status;
    return ranks[0]->discrete ? open_cuda_group(ranks, num_ranks, err) : backend_cpu_group_open(ranks, num_ranks, err);
}

/* ---- several nodes ---- */

void group_node_name(int32_t node, const struct group_nodes *nodes, char out[GROUP_NODE_NAME])
{
    const int32_t count = nodes->num_ranks / nodes->num_nodes, first = node * count;
    if (count == 1)
        snprintf(out, GROUP_NODE_NAME, "node %d (rank %d)", node, first);
    else
        snprintf(out, GROUP_NODE_NAME, "node %d (ranks %d %s %d)", node, first, count == 2 ? "and" : "to",
                 first + count - 1);
}

static enum status join_cuda_group(struct backend *const *ranks, int32_t count, const struct group_nodes *nodes,
                                   struct error *err)
{
#ifdef QUIRE_HAVE_CUDA
    return backend_cuda_group_join(ranks, count, nodes, err);
#else
    (void)count, (void)nodes;
    return error_set(err, STATUS_UNSUPPORTED, "this build of quire has no CUDA, so '%s' has no group", ranks[0]->name);
#endif
}

enum status backend_group_join(struct backend *const *ranks, int32_t count, const struct group_nodes *nodes,
                               struct error *err)
{
    enum status status = check_count(nodes->num_ranks, err);
    if (status == STATUS_OK) status = check_kind(ranks, count, err);
    if (status != STATUS_OK) return status;
    return ranks[0]->discrete ? join_cuda_group(ranks, count, nodes, err)
                              : backend_cpu_group_join(ranks, count, nodes, err);
}

enum status backend_group_make_id(const struct backend *b, uint8_t id[COLLECTIVE_ID_BYTES], struct error *err)
{
    memset(id, 0, COLLECTIVE_ID_BYTES);
    if (!b->discrete) return STATUS_OK;
#ifdef QUIRE_HAVE_CUDA
    return backend_cuda_group_make_id(id, err);
#else
    return error_set(err, STATUS_UNSUPPORTED, "this build of quire has no CUDA, so '%s' has no group", b->name);
#endif
}
