/* An exchange as its user sees it: the request's strings, and what is said about the answer. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/serve/http_state.h"

enum { REQUEST_KINDS = MHD_HEADER_KIND | MHD_GET_ARGUMENT_KIND };

/* ---- copying the request, which libmicrohttpd forgets when the client has gone ---- */

struct copy {
    struct http_exchange *x; /* NULL: bytes and fields are counted */
    char *end;
    size_t num_bytes, num_fields;
};

static const char *copy_string(struct copy *c, const char *s)
{
    const size_t size = strlen(s) + 1;
    c->num_bytes += size;
    if (!c->x) return NULL;
    char *copied = memcpy(c->end, s, size);
    c->end += size;
    return copied;
}

static enum MHD_Result copy_field(void *copy, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct copy *c = copy;
    struct http_field field = {kind, copy_string(c, name), copy_string(c, value ? value : "")};
    if (c->x) c->x->fields[c->num_fields] = field;
    c->num_fields++;
    return MHD_YES;
}

/* The path of a URL that may name scheme and host, as clients of a proxy write it. */
static const char *path_of(const char *url)
{
    const char *host = strncasecmp(url, "http://", 7) == 0    ? url + 7
                       : strncasecmp(url, "https://", 8) == 0 ? url + 8
                                                              : NULL;
    if (!host) return url;
    const char *path = strchr(host, '/');
    return path ? path : "/";
}

static void copy_request(struct copy *c, const struct http_connection *connection, const char *url, const char *method)
{
    const char *copied_method = copy_string(c, method), *path = copy_string(c, path_of(url));
    const char *peer = copy_string(c, connection->peer);
    MHD_get_connection_values(connection->handle, (enum MHD_ValueKind)REQUEST_KINDS, copy_field, c);
    if (!c->x) return;
    c->x->method = copied_method;
    c->x->path = path;
    c->x->peer = peer;
    c->x->num_fields = c->num_fields;
}

static bool is_id(const char *s)
{
    const size_t length = strlen(s);
    for (size_t i = 0; i < length; i++)
        if (!isgraph((unsigned char)s[i])) return false;
    return length >= 1 && length <= 128;
}

static void choose_id(struct http_exchange *x, struct random *ids)
{
    const char *given = http_header(x, "X-Request-Id");
    if (given && is_id(given)) {
        strcpy(x->id, given);
        return;
    }
    const uint64_t high = random_bits(ids), low = random_bits(ids);
    snprintf(x->id, sizeof x->id, "%016llx%016llx", (unsigned long long)high, (unsigned long long)low);
}

struct http_exchange *http_exchange_new(struct http_connection *c, const char *url, const char *method)
{
    struct copy counted = {0}, copied = {0};
    copy_request(&counted, c, url, method);
    struct http_exchange *x = calloc(1, sizeof *x);
    if (!x) return NULL;
    x->strings = copied.end = malloc(counted.num_bytes);
    x->fields = malloc(counted.num_fields * sizeof *x->fields + 1);
    if (!x->strings || !x->fields) {
        free(x->strings);
        free(x->fields);
        free(x);
        return NULL;
    }
    copied.x = x;
    copy_request(&copied, c, url, method);
    x->head_only = strcmp(x->method, "HEAD") == 0;
    if (x->head_only) x->method = "GET";
    choose_id(x, &c->worker->ids);
    x->server = c->worker->server;
    x->thread = pthread_self();
    x->connection = c;
    atomic_init(&x->references, 1);
    pthread_mutex_init(&x->lock, NULL);
    pthread_cond_init(&x->told, NULL);
    return x;
}

void http_exchange_release(struct http_exchange *x)
{
    if (atomic_fetch_sub(&x->references, 1) > 1) return;
    pthread_cond_destroy(&x->told);
    pthread_mutex_destroy(&x->lock);
    text_free(&x->body);
    text_free(&x->headers);
    text_free(&x->out);
    free(x->fields);
    free(x->strings);
    free(x);
}

/* ---- the request ---- */

static const char *find_field(const struct http_exchange *x, enum MHD_ValueKind kind, const char *name)
{
    for (size_t i = 0; i < x->num_fields; i++)
        if (x->fields[i].kind == kind && strcasecmp(x->fields[i].name, name) == 0) return x->fields[i].value;
    return NULL;
}

const char *http_method(const struct http_exchange *x)
{
    return x->method;
}
const char *http_path(const struct http_exchange *x)
{
    return x->path;
}
const char *http_peer(const struct http_exchange *x)
{
    return x->peer;
}
const char *http_request_id(const struct http_exchange *x)
{
    return x->id;
}
void http_set_data(struct http_exchange *x, void *data)
{
    x->data = data;
}

const char *http_header(const struct http_exchange *x, const char *name)
{
    return find_field(x, MHD_HEADER_KIND, name);
}

const char *http_query(const struct http_exchange *x, const char *name)
{
    return find_field(x, MHD_GET_ARGUMENT_KIND, name);
}

const char *http_body(const struct http_exchange *x, size_t *length)
{
    *length = x->body.length;
    return x->body.data ? x->body.data : "";
}

/* ---- the answer ---- */

/* With x->lock. The worker looks at an answer by itself unless the connection is suspended. */
static void tell_worker(struct http_exchange *x)
{
    if (x->connection && (x->suspended || x->too_slow) && !x->queued) http_worker_tell(x->connection->worker, x);
}

/* With x->lock. */
static void add_header(struct http_exchange *x, const char *name, const char *value)
{
    if (x->answer == ANSWER_NONE && text_reserve(&x->headers, x->headers.length + strlen(name) + strlen(value) + 2)) {
        text_append(&x->headers, name, strlen(name) + 1);
        text_append(&x->headers, value, strlen(value) + 1);
    }
}

void http_add_header(struct http_exchange *x, const char *name, const char *value)
{
    pthread_mutex_lock(&x->lock);
    add_header(x, name, value);
    pthread_mutex_unlock(&x->lock);
}

/* With x->lock. False: there is an answer already, or nobody would read it. */
static bool begin_answer(struct http_exchange *x, enum http_answer_kind kind, int status, const char *type)
{
    if (x->answer != ANSWER_NONE || x->gone) return false;
    if (type) add_header(x, "Content-Type", type);
    x->answer = kind;
    x->status = status;
    return true;
}

void http_answer(struct http_exchange *x, int status, const char *type, const char *body, size_t length)
{
    pthread_mutex_lock(&x->lock);
    if (begin_answer(x, ANSWER_WHOLE, status, type)) {
        if (!text_append(&x->out, body, length)) x->status = 500; /* with no body, for want of memory */
        tell_worker(x);
    }
    pthread_mutex_unlock(&x->lock);
}

void http_begin(struct http_exchange *x, int status, const char *type)
{
    pthread_mutex_lock(&x->lock);
    if (begin_answer(x, ANSWER_STREAM, status, type)) tell_worker(x);
    pthread_mutex_unlock(&x->lock);
}

/* With x->lock. Puts the bytes behind those that wait. */
static bool append(struct http_exchange *x, const char *bytes, size_t length)
{
    const size_t unsent = x->out.length - x->sent;
    if (x->sent > 0 && x->out.length + length + 1 > x->out.capacity) {
        memmove(x->out.data, x->out.data + x->sent, unsent);
        x->out.length = unsent;
        x->sent = 0;
    }
    return unsent <= x->server->options.max_unsent && text_append(&x->out, bytes, length);
}

bool http_send(struct http_exchange *x, const char *bytes, size_t length)
{
    pthread_mutex_lock(&x->lock);
    bool is_read = !x->gone && !x->too_slow && x->answer == ANSWER_STREAM && (x->connection || x->head_only);
    if (is_read && !x->head_only) {
        is_read = append(x, bytes, length);
        if (!is_read) x->too_slow = true;
        tell_worker(x);
    }
    pthread_mutex_unlock(&x->lock);
    return is_read;
}

void http_end(struct http_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    const bool is_told_now = pthread_equal(pthread_self(), x->thread) != 0; /* by `gone`, which has called this */
    while (x->telling && !is_told_now) pthread_cond_wait(&x->told, &x->lock);
    x->ended = true;
    tell_worker(x);
    pthread_mutex_unlock(&x->lock);
    http_exchange_release(x);
}

/* ---- for the worker ---- */

void http_exchange_lose(struct http_exchange *x)
{
    const struct http_options *o = &x->server->options;
    if (x->gone) return;
    x->gone = true;
    if (!x->handed || x->ended || !o->gone) return;
    x->telling = true;
    pthread_mutex_unlock(&x->lock);
    o->gone(o->user, x, x->data);
    pthread_mutex_lock(&x->lock);
    x->telling = false;
    pthread_cond_broadcast(&x->told);
}

void http_exchange_resume(struct http_exchange *x)
{
    if (!x->suspended) return;
    x->suspended = false;
    MHD_resume_connection(x->connection->handle);
}

void http_exchange_refuse(struct http_exchange *x, int status, const char *sentence)
{
    const struct http_options *o = &x->server->options;
    struct text body = {0};
    if (o->error_body)
        o->error_body(o->user, status, sentence, &body);
    else
        text_printf(&body, "%s\n", sentence);
    http_answer(x, status, o->error_body ? o->error_type : "text/plain; charset=utf-8", body.data ? body.data : "",
                body.length);
    text_free(&body);
}
