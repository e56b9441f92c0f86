#include "kernels/group_failure.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/collective.h"

enum { MAX_LISTENERS = 2 * COLLECTIVE_MAX_RANKS };

struct group_failure {
    atomic_int keepers;
    atomic_bool failed; /* set after the rest */
    pthread_mutex_t lock;
    enum status status;
    struct error error;
    struct listener {
        group_failure_function *function;
        void *context; /* NULL: a free entry */
    } listeners[MAX_LISTENERS];
};

struct group_failure *group_failure_create(void)
{
    struct group_failure *f = calloc(1, sizeof *f);
    if (!f) return NULL;
    atomic_init(&f->keepers, 1);
    pthread_mutex_init(&f->lock, NULL);
    return f;
}

void group_failure_keep(struct group_failure *f)
{
    if (f) atomic_fetch_add(&f->keepers, 1);
}

void group_failure_free(struct group_failure *f)
{
    if (!f || atomic_fetch_sub(&f->keepers, 1) > 1) return;
    pthread_mutex_destroy(&f->lock);
    free(f);
}

void group_fail(struct group_failure *f, enum status status, const char *sentence)
{
    pthread_mutex_lock(&f->lock);
    if (!atomic_load(&f->failed)) {
        f->status = error_set(&f->error, status, "%s", sentence);
        atomic_store(&f->failed, true);
        for (int i = 0; i < MAX_LISTENERS; i++)
            if (f->listeners[i].context) f->listeners[i].function(f->listeners[i].context);
    }
    pthread_mutex_unlock(&f->lock);
}

bool group_has_failed(const struct group_failure *f)
{
    return f && atomic_load(&f->failed);
}

enum status group_failure_get(struct group_failure *f, struct error *err)
{
    if (!group_has_failed(f)) return STATUS_OK;
    if (err) *err = f->error;
    return f->status;
}

void group_failure_tell(struct group_failure *f, group_failure_function *function, void *context)
{
    pthread_mutex_lock(&f->lock);
    if (atomic_load(&f->failed)) function(context);
    for (int i = 0; i < MAX_LISTENERS; i++) {
        if (f->listeners[i].context) continue;
        f->listeners[i] = (struct listener){function, context};
        break;
    }
    pthread_mutex_unlock(&f->lock);
}

void group_failure_forget(struct group_failure *f, void *context)
{
    pthread_mutex_lock(&f->lock);
    for (int i = 0; i < MAX_LISTENERS; i++)
        if (f->listeners[i].context == context) f->listeners[i].context = NULL;
    pthread_mutex_unlock(&f->lock);
}
