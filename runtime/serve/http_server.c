#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/file.h"
#include "base/thread.h"
#include "runtime/serve/http_state.h"

/* ---- starting ---- */

/* Raises the limit of open files as far as the system lets it, and lowers max_connections to what it then allows. */
static void fit_into_file_limit(struct http_options *o)
{
    enum { OTHER_FILES = 256 }; /* of the process */
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    const rlim_t wanted = (rlim_t)o->max_connections + OTHER_FILES;
    if (limit.rlim_cur < wanted && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0) getrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur >= wanted) return;
    const int possible = limit.rlim_cur > 2 * OTHER_FILES ? (int)limit.rlim_cur - OTHER_FILES : (int)limit.rlim_cur / 2;
    log_write(o->log, LOG_WARNING, "%d connections at once instead of %d, because the process may open %ju files",
              possible, o->max_connections, (uintmax_t)limit.rlim_cur);
    o->max_connections = possible;
}

static void erase(struct text *t)
{
    if (t->data) explicit_bzero(t->data, t->capacity);
    text_free(t);
}

static enum status open_workers(struct http_server *s, const struct http_options *o, struct error *err)
{
    struct text certificate = {0}, key = {0};
    enum status status = STATUS_OK;
    if (o->certificate) status = file_read_or_pipe(o->certificate, &certificate, err);
    if (status == STATUS_OK && o->certificate) status = file_read_or_pipe(o->key, &key, err);
    for (int i = 0; i < o->num_threads && status == STATUS_OK; i++) {
        s->workers[i].server = s;
        s->num_workers++;
        status = http_worker_open(&s->workers[i], o->certificate ? certificate.data : NULL, key.data, err);
        if (status == STATUS_INVALID) error_prefix(err, status, o->certificate);
    }
    erase(&certificate);
    erase(&key);
    return status;
}

/* Returns how many run. */
static int start_threads(struct http_server *s)
{
    int count = 0;
    while (count < s->num_workers && thread_start(&s->workers[count].thread, http_worker_run, &s->workers[count]) == 0)
        count++;
    return count;
}

static void stop_threads(struct http_server *s, int count)
{
    http_server_close_listener(s);
    atomic_store(&s->stopping, true);
    for (int i = 0; i < count; i++) http_worker_wake(&s->workers[i], true);
    for (int i = 0; i < count; i++) pthread_join(s->workers[i].thread, NULL);
}

static void free_server(struct http_server *s)
{
    for (int i = 0; i < s->num_workers; i++) http_worker_close(&s->workers[i]);
    http_listener_close(&s->listener);
    free(s->allowed_origins);
    free(s);
}

static enum status run_workers(struct http_server *s, struct error *err)
{
    const int count = start_threads(s);
    if (count == s->num_workers) return STATUS_OK;
    stop_threads(s, count);
    return error_set(err, STATUS_OUT_OF_MEMORY, "cannot start %d threads: the system has started %d", s->num_workers,
                     count);
}

static struct http_server *new_server(const struct http_options *o)
{
    struct http_server *s = calloc(1, sizeof *s + (size_t)o->num_threads * sizeof s->workers[0]);
    if (!s) return NULL;
    s->options = *o;
    s->allowed_origins = o->allowed_origins ? strdup(o->allowed_origins) : NULL;
    if (!o->allowed_origins || s->allowed_origins) return s;
    free(s);
    return NULL;
}

enum status http_server_start(const struct http_options *options, struct http_server **out, struct error *err)
{
    struct http_server *s = new_server(options);
    *out = NULL;
    if (!s) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for a server");
    fit_into_file_limit(&s->options);
    enum status status = open_workers(s, options, err);
    if (status == STATUS_OK) status = http_listener_open(options, &s->listener, err);
    if (status == STATUS_OK) status = run_workers(s, err);
    if (status == STATUS_OK)
        *out = s;
    else
        free_server(s);
    return status;
}

/* ---- running and stopping ---- */

const char *http_server_url(const struct http_server *s)
{
    return s->listener.url;
}

int http_server_num_connections(const struct http_server *s)
{
    return atomic_load(&s->num_connections);
}

void http_server_close_listener(struct http_server *s)
{
    atomic_store(&s->closing, true);
    for (int i = 0; i < s->num_workers; i++) http_worker_wake(&s->workers[i], true);
}

void http_server_stop(struct http_server *s)
{
    if (!s) return;
    stop_threads(s, s->num_workers);
    free_server(s);
}

void http_send_several_begin(struct http_server *s)
{
    atomic_fetch_add(&s->holding, 1);
}

void http_send_several_end(struct http_server *s)
{
    if (atomic_fetch_sub(&s->holding, 1) == 1)
        for (int i = 0; i < s->num_workers; i++) http_worker_wake(&s->workers[i], false);
}
