#include "kernels/cuda/collective/communicators.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/group_failure.h"

enum {
    PATIENCE = 60,           /* seconds, in which NCCL connects devices of one process */
    LOOK_MILLISECONDS = 100, /* between two looks of the watcher */
    LOOKS_FOR_CAUSE = 20     /* when NCCL has failed: somebody may know which process has ended, and say so */
};

/* Two ranks' own kernels are as fast as NCCL with all counts that were measured (kernels/MEASURED.md), and a group
 * without NCCL is open sooner and takes less memory. */
static const int64_t NCCL_FROM_BYTES = 8 << 20; /* of more ranks */

void communicators_init(struct communicators *c, int32_t num_ranks)
{
    memset(c, 0, sizeof *c);
    c->from_bytes = num_ranks > 2 ? NCCL_FROM_BYTES : INT64_MAX;
    pthread_mutex_init(&c->making, NULL);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
}

/* ---- failures ---- */

/* Passes some time, less when the group fails; true: the communicators are being closed. */
static bool pass_time(struct communicators *c)
{
    struct timespec until;
    int waited = 0;
    clock_gettime(CLOCK_REALTIME, &until); /* which pthread_cond_timedwait goes by */
    until.tv_nsec += LOOK_MILLISECONDS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&c->lock);
    while (!c->closes && !group_has_failed(c->failure) && waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&c->changed, &c->lock, &until);
    const bool closes = c->closes;
    pthread_mutex_unlock(&c->lock);
    return closes;
}

/* Whether NCCL has failed for one of the ranks: then *sentence says so. */
static bool has_lost_rank(struct communicators *c, char *sentence, size_t size)
{
    for (int32_t r = 0; r < c->count; r++) {
        const char *why = nccl_failure(c->of[r]);
        if (!why) continue;
        snprintf(sentence, size, "rank %d cannot reach the other ranks: NCCL: %s", c->first + r, why);
        return true;
    }
    return false;
}

/* A process that exits may leave its groups open. NCCL takes itself apart then, so nothing is asked of it any more.
 * After a failure it would wait in there for kernels that wait for other ranks: then the process ends at once. */
static pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER;
static bool exits;      /* under `looking` */
static bool any_failed; /* a group with communicators; atomic */

/* The group's listener. */
static void see_failure(void *communicators)
{
    struct communicators *c = (struct communicators *)communicators;
    __atomic_store_n(&any_failed, true, __ATOMIC_RELEASE);
    pthread_mutex_lock(&c->lock);
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static void end_looking(int status, void *unused)
{
    (void)unused;
    pthread_mutex_lock(&looking);
    exits = true;
    pthread_mutex_unlock(&looking);
    if (!__atomic_load_n(&any_failed, __ATOMIC_ACQUIRE)) return;
    fflush(NULL);
    _exit(status);
}

static void end_looking_at_exit(void)
{
    on_exit(end_looking, NULL);
}

/* The thread that ends what waits. It waits for no rank, so none that hangs in a call holds it up. */
static void *watch(void *communicators)
{
    struct communicators *c = (struct communicators *)communicators;
    char sentence[256];
    while (!group_has_failed(c->failure)) {
        if (pass_time(c)) return NULL;
        pthread_mutex_lock(&looking);
        const bool ends = exits, lost = !exits && has_lost_rank(c, sentence, sizeof sentence);
        pthread_mutex_unlock(&looking);
        if (ends) return NULL;
        if (!lost) continue;
        for (int i = 0; i < LOOKS_FOR_CAUSE && !group_has_failed(c->failure); i++)
            if (pass_time(c)) return NULL;
        group_fail(c->failure, STATUS_INTERNAL, sentence);
    }
    pthread_mutex_lock(&looking);
    const bool ends = exits;
    pthread_mutex_unlock(&looking);
    for (int32_t r = 0; r < c->count && !ends; r++) nccl_abort(c->of[r]);
    return NULL;
}

static enum status start_watcher(struct communicators *c, struct error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (!c->failure) return STATUS_OK;
    pthread_once(&once, end_looking_at_exit);
    group_failure_tell(c->failure, see_failure, c);
    c->closes = false;
    c->has_watcher = pthread_create(&c->watcher, NULL, watch, c) == 0;
    return c->has_watcher ? STATUS_OK
                          : error_set(err, STATUS_OUT_OF_MEMORY, "cannot start a thread that watches the ranks");
}

/* ---- making and closing ---- */

/* After a failure the watcher ends them, and nobody waits for that. */
static void close_all(struct communicators *c)
{
    if (group_has_failed(c->failure)) return;
    if (c->failure) group_failure_forget(c->failure, c);
    pthread_mutex_lock(&c->lock);
    c->closes = true;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (c->has_watcher) pthread_join(c->watcher, NULL);
    c->has_watcher = false;
    for (int32_t r = 0; r < c->count; r++) nccl_close(c->of[r]);
    c->count = 0;
}

void communicators_free(struct communicators *c)
{
    communicators_wait(c);
    close_all(c);
    group_failure_free(c->failure);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->making);
}

enum status communicators_begin(struct communicators *c, const struct communicators_args *args, struct error *err)
{
    uint8_t own_id[NCCL_ID_BYTES];
    enum status status = args->id ? STATUS_OK : nccl_make_id(own_id, err);
    c->first = args->first;
    group_failure_keep(args->failure);
    group_failure_free(c->failure); /* of an earlier attempt */
    c->failure = args->failure;
    for (int32_t r = 0; r < args->count && status == STATUS_OK; r++) {
        status = nccl_begin(args->id ? args->id : own_id, args->first + r, args->num_ranks, args->devices[r], &c->of[r],
                            err);
        c->count += status == STATUS_OK;
    }
    if (status == STATUS_OK) status = start_watcher(c, err);
    if (status == STATUS_OK)
        c->is_pending = true;
    else
        close_all(c);
    return status;
}

enum status communicators_finish(struct communicators *c, double seconds, struct error *err)
{
    enum status status = STATUS_OK;
    for (int32_t r = 0; r < c->count && status == STATUS_OK; r++) status = nccl_wait(c->of[r], seconds, err);
    if (group_has_failed(c->failure)) status = group_failure_get(c->failure, err);
    if (status != STATUS_OK) close_all(c);
    __atomic_store_n(&c->is_pending, false, __ATOMIC_RELEASE);
    return status;
}

void communicators_finish_pending(struct communicators *c)
{
    struct error ignored;
    pthread_mutex_lock(&c->making);
    if (c->is_pending) communicators_finish(c, PATIENCE, &ignored);
    pthread_mutex_unlock(&c->making);
}
