/* The communicators of a process's ranks. In a group of one process they do all_reduces of very many bytes: they are
 * made while the rest of the start-up goes on, and where NCCL cannot be used the group does without it. In a group of
 * several processes they do everything. */
#ifndef QUIRE_KERNELS_CUDA_COLLECTIVE_COMMUNICATORS_H
#define QUIRE_KERNELS_CUDA_COLLECTIVE_COMMUNICATORS_H

#include <pthread.h>

#include "kernels/collective.h"
#include "kernels/cuda/collective/nccl.h"

struct group_failure;

struct communicators {
    int64_t from_bytes; /* of one process: what has so many bytes is NCCL's */
    int32_t count;      /* 0: there are none */
    int32_t first;      /* the first one's rank */
    bool is_pending;    /* they are being made, and nobody has waited for that */
    struct nccl *of[COLLECTIVE_MAX_RANKS];
    pthread_mutex_t making; /* held by who waits */

    struct group_failure *failure;
    pthread_t watcher;
    bool has_watcher;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    bool closes;
};

void communicators_init(struct communicators *c, int32_t num_ranks);
void communicators_free(struct communicators *c);

/* Ranks of this process: first .. first + count - 1 of num_ranks, on devices [count], which are CUDA's numbers. */
struct communicators_args {
    const uint8_t *id; /* [NCCL_ID_BYTES]; NULL: no other process has ranks */
    int32_t first, count, num_ranks;
    const int *devices;
    /* Whatever waits for another rank ends when this fails, and it fails when NCCL loses a rank. NULL: none. */
    struct group_failure *failure;
};
/* Begins to make them. On failure there are none. UNSUPPORTED: there is no NCCL. */
enum status communicators_begin(struct communicators *c, const struct communicators_args *args, struct error *err);
/* Waits until they are made. On failure there are none. */
enum status communicators_finish(struct communicators *c, double seconds, struct error *err);

/* Waits for those of one process, if nobody has. */
void communicators_finish_pending(struct communicators *c);
static inline void communicators_wait(struct communicators *c)
{
    if (__atomic_load_n(&c->is_pending, __ATOMIC_ACQUIRE)) communicators_finish_pending(c);
}

/* The communicator of one of the process's ranks, if an operation of so many bytes is NCCL's; else NULL. */
static inline struct nccl *communicators_take(struct communicators *c, int rank, int64_t bytes)
{
    if (bytes < c->from_bytes) return NULL;
    communicators_wait(c);
    return c->count > 0 ? c->of[rank] : NULL;
}

#endif
