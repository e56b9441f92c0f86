#include "runtime/generate/disk_sync.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"

enum { INTERVAL_SECONDS = 5 }; /* half of what is promised: fdatasync itself takes a while */

struct disk_sync {
    pthread_t thread;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t wake;
    bool ending;
    int error; /* errno of the first fdatasync that failed, or 0 */
    struct {
        int fd;
        uint64_t written, done;
    } files[DISK_SYNC_FILES];
};

/* With the lock held, which it gives up while it waits for the disk. EINVAL: a file that cannot be synchronised, such
 * as one of /proc; there is nothing to wait for. */
static void sync_files(struct disk_sync *s)
{
    for (int i = 0; i < DISK_SYNC_FILES; i++) {
        const uint64_t written = s->files[i].written;
        if (s->files[i].fd < 0 || written == s->files[i].done) continue;
        pthread_mutex_unlock(&s->lock);
        const int error = fdatasync(s->files[i].fd) == 0 || errno == EINVAL || errno == EROFS ? 0 : errno;
        pthread_mutex_lock(&s->lock);
        if (error == 0) s->files[i].done = written;
        if (s->error == 0) s->error = error;
    }
}

static void *run(void *user)
{
    struct disk_sync *s = user;
    struct timespec until;
    pthread_mutex_lock(&s->lock);
    while (!s->ending) {
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += INTERVAL_SECONDS;
        while (!s->ending && pthread_cond_timedwait(&s->wake, &s->lock, &until) == 0) continue;
        if (!s->ending) sync_files(s);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

enum status disk_sync_start(const int *fds, struct disk_sync **out, struct error *err)
{
    struct disk_sync *s = *out = calloc(1, sizeof *s);
    pthread_condattr_t monotonic;
    if (!s) return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for writing answers");
    for (int i = 0; i < DISK_SYNC_FILES; i++) s->files[i].fd = fds[i];
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    const int error = thread_start(&s->thread, run, s);
    if (error == 0) return STATUS_OK;
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    free(s);
    *out = NULL;
    return error_set(err, STATUS_IO, "cannot start the thread that writes answers to the disk: %s", strerror(error));
}

void disk_sync_note(struct disk_sync *s, int i, uint64_t position)
{
    pthread_mutex_lock(&s->lock);
    s->files[i].written = position;
    pthread_mutex_unlock(&s->lock);
}

uint64_t disk_sync_done(struct disk_sync *s, int i)
{
    pthread_mutex_lock(&s->lock);
    const uint64_t done = s->files[i].fd < 0 ? s->files[i].written : s->files[i].done;
    pthread_mutex_unlock(&s->lock);
    return done;
}

enum status disk_sync_check(struct disk_sync *s, struct error *err)
{
    pthread_mutex_lock(&s->lock);
    const int error = s->error;
    pthread_mutex_unlock(&s->lock);
    if (error == 0) return STATUS_OK;
    return error_set(err, STATUS_IO, "the disk did not take the answers: %s", strerror(error));
}

enum status disk_sync_end(struct disk_sync *s, struct error *err)
{
    if (!s) return STATUS_OK;
    pthread_mutex_lock(&s->lock);
    s->ending = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_mutex_lock(&s->lock);
    sync_files(s);
    pthread_mutex_unlock(&s->lock);
    const enum status status = disk_sync_check(s, err);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    free(s);
    return status;
}
