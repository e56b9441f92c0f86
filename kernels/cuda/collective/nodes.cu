/* Groups of devices of several processes, the nodes: all of their operations are NCCL's. */
#include <stdlib.h>

#include "kernels/cuda/collective/peers.cuh"
#include "kernels/group_failure.h"

/* What a group that has failed could not do is reported as its failure. */
static void check(struct backend *b, const char *operation, const char *why)
{
    if (why && !group_has_failed(b->failure)) cuda_fail(b, "%s failed on %s: NCCL: %s", operation, b->name, why);
}

static struct nccl *communicator_of(const struct cuda_state *s)
{
    return s->group->communicators.of[s->rank];
}

static void all_reduce(struct backend *b, const struct all_reduce_args *args)
{
    if (args->count <= 0) return;
    const struct cuda_state *s = cuda_use(b);
    check(b, "all_reduce", nccl_all_reduce(communicator_of(s), args->x, args->count, args->dtype, s->stream));
}

/* Zeros of the columns that the rank has not. */
static void clear(struct backend *b, const struct all_gather_args *args, int64_t first, int64_t columns)
{
    if (columns <= 0) return;
    cuda_check(b, "all_gather",
               cudaMemset2DAsync(args->x + first, (size_t)args->stride * sizeof(float), 0,
                                 (size_t)columns * sizeof(float), (size_t)args->rows, cuda_state(b)->stream));
}

/* Adds zeros to what each rank has, so none needs to know which columns another has. It moves up to twice the bytes of
 * a gather, but needs no buffer. */
static void all_gather(struct backend *b, const struct all_gather_args *args)
{
    if (args->rows <= 0 || args->total <= 0) return;
    const struct cuda_state *s = cuda_use(b);
    struct nccl *n = communicator_of(s);
    clear(b, args, 0, args->first < args->total ? args->first : args->total);
    clear(b, args, args->first + args->columns, args->total - args->first - args->columns);
    if (args->stride == args->total || args->rows == 1) {
        check(b, "all_gather", nccl_all_reduce(n, args->x, args->rows * args->total, DTYPE_FLOAT32, s->stream));
        return;
    }
    check(b, "all_gather", nccl_begin_several(n));
    for (int64_t row = 0; row < args->rows; row++)
        check(b, "all_gather", nccl_all_reduce(n, args->x + row * args->stride, args->total, DTYPE_FLOAT32, s->stream));
    check(b, "all_gather", nccl_end_several(n));
}

static enum status connect(struct backend *const *ranks, int32_t count, const struct group_nodes *nodes,
                           struct communicators *c, struct error *err)
{
    int devices[COLLECTIVE_MAX_RANKS] = {0};
    for (int32_t i = 0; i < count; i++) devices[i] = cuda_state(ranks[i])->device;
    const struct communicators_args args = {nodes->id, nodes->node * count, count, nodes->num_ranks,
                                            devices,   ranks[0]->failure};
    enum status status = communicators_begin(c, &args, err);
    return status == STATUS_OK ? communicators_finish(c, nodes->timeout, err) : status;
}

enum status backend_cuda_group_join(struct backend *const *ranks, int32_t count, const struct group_nodes *nodes,
                                    struct error *err)
{
    struct cuda_group *g = (struct cuda_group *)calloc(1, sizeof *g);
    if (!g) return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory opening a group of %d GPUs", nodes->num_ranks);
    g->num_ranks = g->members = count;
    communicators_init(&g->communicators, nodes->num_ranks);
    const enum status status = connect(ranks, count, nodes, &g->communicators, err);
    if (status != STATUS_OK) {
        cuda_group_free(g);
        return status;
    }
    for (int32_t i = 0; i < count; i++) {
        cuda_state(ranks[i])->group = g;
        cuda_state(ranks[i])->rank = i;
        ranks[i]->all_reduce = all_reduce;
        ranks[i]->all_gather = all_gather;
    }
    return STATUS_OK;
}

enum status backend_cuda_group_make_id(uint8_t id[COLLECTIVE_ID_BYTES], struct error *err)
{
    return nccl_make_id(id, err);
}
