#include "kernels/cuda/collective/communicators.h"

enum { PATIENCE = 60 /* seconds, in which NCCL connects devices of one process */ };

/* Up to here the group's own kernels are at least as fast (kernels/MEASURED.md). */
static const int64_t NCCL_FROM_BYTES = 8 << 20;

void communicators_init(struct communicators *c)
{
    c->from_bytes = NCCL_FROM_BYTES;
    pthread_mutex_init(&c->lock, NULL);
}

static void close_all(struct communicators *c)
{
    for (int32_t r = 0; r < c->num_ranks; r++) {
        nccl_close(c->of[r]);
        c->of[r] = NULL;
    }
    c->num_ranks = 0;
}

void communicators_free(struct communicators *c)
{
    communicators_wait(c);
    close_all(c);
    pthread_mutex_destroy(&c->lock);
}

enum status communicators_begin(struct communicators *c, const int *devices, int32_t num_ranks, struct error *err)
{
    uint8_t id[NCCL_ID_BYTES];
    if (c->num_ranks > 0) return STATUS_OK;
    enum status status = nccl_make_id(id, err);
    for (int32_t r = 0; r < num_ranks && status == STATUS_OK; r++) {
        status = nccl_begin(id, r, num_ranks, devices[r], &c->of[r], err);
        if (status == STATUS_OK) c->num_ranks++;
    }
    if (status == STATUS_OK)
        c->is_pending = true;
    else
        close_all(c);
    return status;
}

void communicators_finish(struct communicators *c)
{
    struct error ignored;
    enum status status = STATUS_OK;
    pthread_mutex_lock(&c->lock);
    if (c->is_pending) {
        for (int32_t r = 0; r < c->num_ranks && status == STATUS_OK; r++)
            status = nccl_wait(c->of[r], PATIENCE, &ignored);
        if (status != STATUS_OK) close_all(c);
        __atomic_store_n(&c->is_pending, false, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&c->lock);
}
