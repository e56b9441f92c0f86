/* NCCL's part in a group of devices of one process: all_reduces of many bytes. Communicators are made while the rest of
 * the start-up goes on; where NCCL cannot be used, the group does without it. */
#ifndef QUIRE_KERNELS_CUDA_COLLECTIVE_COMMUNICATORS_H
#define QUIRE_KERNELS_CUDA_COLLECTIVE_COMMUNICATORS_H

#include <pthread.h>

#include "kernels/collective.h"
#include "kernels/cuda/collective/nccl.h"

struct communicators {
    int64_t from_bytes; /* what has so many bytes is NCCL's */
    int32_t num_ranks;  /* 0: there are none */
    bool is_pending;    /* they are being made, and nobody has waited for that */
    pthread_mutex_t lock;
    struct nccl *of[COLLECTIVE_MAX_RANKS];
};

void communicators_init(struct communicators *c);
void communicators_free(struct communicators *c);

/* Begins to make one for each rank. devices: CUDA's numbers. UNSUPPORTED: there is no NCCL. */
enum status communicators_begin(struct communicators *c, const int *devices, int32_t num_ranks, struct error *err);
/* Waits until they are made. If that fails, there are none. */
void communicators_finish(struct communicators *c);

static inline void communicators_wait(struct communicators *c)
{
    if (__atomic_load_n(&c->is_pending, __ATOMIC_ACQUIRE)) communicators_finish(c);
}

/* The rank's communicator, if an operation of so many bytes is NCCL's; else NULL. */
static inline struct nccl *communicators_take(struct communicators *c, int rank, int64_t bytes)
{
    if (bytes < c->from_bytes) return NULL;
    communicators_wait(c);
    return c->num_ranks > 0 ? c->of[rank] : NULL;
}

#endif
