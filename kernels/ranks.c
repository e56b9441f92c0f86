#include "kernels/ranks.h"

#include <stdlib.h>

#include "kernels/backend.h"

void backend_expect_ranks(void)
{
    setenv("NCCL_RUNTIME_CONNECT", "0", 0);
    setenv("NCCL_NVLS_ENABLE", "0", 0);
}

/* ---- operations that do nothing ---- */

static void reduce_nothing(struct backend *b, const struct all_reduce_args *args)
{
    (void)b, (void)args;
}

static void gather_nothing(struct backend *b, const struct all_gather_args *args)
{
    (void)b, (void)args;
}

static void norm_nothing(struct backend *b, const struct all_norm_args *args)
{
    (void)b, (void)args;
}

static void gather_no_columns(struct backend *b, const struct gather_columns_args *args)
{
    (void)b, (void)args;
}

static void send_nothing(struct backend *b, const struct transfer_args *args)
{
    (void)b, (void)args;
}

static bool receive_nothing(struct backend *b, const struct transfer_args *args)
{
    (void)b, (void)args;
    return true;
}

void backend_group_pause(struct backend *b, struct group_operations *kept)
{
    *kept = (struct group_operations){
        b->all_reduce, b->all_gather, b->all_reduce_add_norm, b->all_norm, b->gather_columns, b->send, b->receive};
    const struct group_operations nothing = {reduce_nothing,    gather_nothing, NULL,           norm_nothing,
                                             gather_no_columns, send_nothing,   receive_nothing};
    backend_group_resume(b, &nothing);
}

void backend_group_resume(struct backend *b, const struct group_operations *kept)
{
    b->all_reduce = kept->all_reduce;
    b->all_gather = kept->all_gather;
    b->all_reduce_add_norm = kept->all_reduce_add_norm;
    b->all_norm = kept->all_norm;
    b->gather_columns = kept->gather_columns;
    b->send = kept->send;
    b->receive = kept->receive;
}

/* ---- how benchmarks compare ---- */

enum status backend_group_set_nccl_from(struct backend *const *ranks, int64_t bytes, struct error *err)
{
#ifdef QUIRE_HAVE_CUDA
    if (ranks[0]->discrete) return backend_cuda_group_set_nccl_from(ranks, bytes, err);
#endif
    (void)bytes;
    return error_set(err, STATUS_UNSUPPORTED, "'%s' does nothing through NCCL", ranks[0]->name);
}
