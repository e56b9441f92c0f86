/* A request on its way through a worker: its head, its body, the call of `handle`, and the answer as libmicrohttpd
 * takes it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/serve/http_state.h"

/* ---- origins ---- */

/* What a page of this origin is told about being allowed; NULL: it is not. */
static const char *allowed_origin(const struct http_server *s, const char *origin)
{
    const size_t length = strlen(origin);
    const char *list = s->allowed_origins;
    if (!list || length == 0) return NULL;
    while (*list) {
        list += strspn(list, ", \t");
        const size_t entry = strcspn(list, ", \t");
        if (entry == 1 && *list == '*') return "*";
        if (entry == length && memcmp(list, origin, length) == 0) return origin;
        list += entry;
    }
    return NULL;
}

/* A page of another origin may read the answer. */
static void add_origin(struct http_exchange *x)
{
    const char *origin = http_header(x, "Origin"), *allowed = origin ? allowed_origin(x->server, origin) : NULL;
    if (x->server->allowed_origins) http_add_header(x, "Vary", "Origin");
    if (!allowed) return;
    http_add_header(x, "Access-Control-Allow-Origin", allowed);
    http_add_header(x, "Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
}

/* Answers a browser that asks what pages of an origin may do. False: the request is of another kind. */
static bool answer_preflight(struct http_exchange *x)
{
    const char *origin = http_header(x, "Origin"), *headers = http_header(x, "Access-Control-Request-Headers");
    if (!x->server->allowed_origins || !origin || strcmp(x->method, "OPTIONS") != 0 ||
        !http_header(x, "Access-Control-Request-Method"))
        return false;
    if (!allowed_origin(x->server, origin)) {
        http_exchange_refuse(x, 403, "pages of this origin may not use the server");
        return true;
    }
    http_add_header(x, "Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS");
    http_add_header(x, "Access-Control-Allow-Headers", headers ? headers : "*");
    http_add_header(x, "Access-Control-Max-Age", "600");
    http_answer(x, 204, NULL, "", 0);
    return true;
}

/* ---- the answer ---- */

/* With x->lock. Nothing is to be done for the connection until something is said about the answer. False: nobody would
 * read it. */
static bool suspend(struct http_exchange *x)
{
    if (x->connection->half_closed || atomic_load(&x->server->stopping)) {
        http_exchange_lose(x);
        return false;
    }
    x->suspended = true;
    MHD_suspend_connection(x->connection->handle);
    return true;
}

/* libmicrohttpd asks for bytes of a stream. */
static ssize_t read_stream(void *exchange, uint64_t position, char *out, size_t size)
{
    struct http_exchange *x = exchange;
    (void)position;
    pthread_mutex_lock(&x->lock);
    const size_t unsent = x->out.length - x->sent;
    ssize_t result = 0;
    if (x->gone || x->too_slow) {
        result = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (unsent > 0) {
        result = (ssize_t)(unsent < size ? unsent : size);
        memcpy(out, x->out.data + x->sent, (size_t)result);
        x->sent += (size_t)result;
        if (x->sent == x->out.length) x->sent = x->out.length = 0;
    } else if (x->ended) {
        result = MHD_CONTENT_READER_END_OF_STREAM;
    } else if (!suspend(x)) {
        result = MHD_CONTENT_READER_END_WITH_ERROR;
    }
    pthread_mutex_unlock(&x->lock);
    return result;
}

/* With x->lock. NULL: there is no memory. */
static struct MHD_Response *new_response(struct http_exchange *x)
{
    enum { BLOCK = 4096 }; /* of a stream that is not chunked, for a client of HTTP/1.0 */
    struct MHD_Response *r;
    if (x->answer == ANSWER_STREAM) {
        r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, read_stream, x, NULL);
    } else if (x->out.length == 0) {
        r = MHD_create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT);
    } else {
        r = MHD_create_response_from_buffer(x->out.length, x->out.data, MHD_RESPMEM_MUST_FREE);
        if (r) x->out = (struct text){0};
    }
    if (!r) return NULL;
    /* Not chunked, because libmicrohttpd 0.9.75 sends the last chunk also in answer to HEAD. */
    if (x->answer == ANSWER_STREAM && x->head_only)
        MHD_set_response_options(r, MHD_RF_HTTP_1_0_COMPATIBLE_STRICT, MHD_RO_END);
    for (const char *name = x->headers.data; name && name < x->headers.data + x->headers.length;) {
        const char *value = name + strlen(name) + 1;
        MHD_add_response_header(r, name, value);
        name = value + strlen(value) + 1;
    }
    MHD_add_response_header(r, "X-Request-Id", x->id);
    if (atomic_load(&x->server->closing)) MHD_add_response_header(r, "Connection", "close");
    return r;
}

static enum MHD_Result queue_answer(struct http_exchange *x, struct MHD_Connection *handle)
{
    pthread_mutex_lock(&x->lock);
    struct MHD_Response *r = new_response(x);
    const int status = x->status;
    pthread_mutex_unlock(&x->lock);
    if (!r) return MHD_NO;
    const enum MHD_Result result = MHD_queue_response(handle, (unsigned int)status, r);
    MHD_destroy_response(r);
    return result;
}

/* ---- the request ---- */

static bool is_answered(struct http_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    const bool answered = x->answer != ANSWER_NONE;
    pthread_mutex_unlock(&x->lock);
    return answered;
}

static void refuse_body(struct http_exchange *x)
{
    char sentence[128];
    snprintf(sentence, sizeof sentence, "the body of the request is too large: up to %zu bytes are possible",
             x->server->options.max_body);
    http_exchange_refuse(x, 413, sentence);
}

/* Many clients do not look at an answer before they have sent their whole body. So a body that is too large is read
 * and dropped, up to so many times the limit. */
enum { DROPPED = 16 };

/* Whether a body is announced that is too large, and whether it is even too large to be dropped. */
static bool is_body_too_large(struct http_exchange *x, bool *is_hopeless)
{
    const size_t limit = x->server->options.max_body;
    const char *text = http_header(x, "Content-Length");
    const unsigned long long length = text ? strtoull(text, NULL, 10) : 0;
    *is_hopeless = length / DROPPED > limit;
    return length > limit;
}

/* The user may refuse a request whose head is known. What it keeps of the exchange it keeps from `handle` on. */
static void show_head(struct http_exchange *x)
{
    const struct http_options *o = &x->server->options;
    if (!o->head) return;
    atomic_fetch_add(&x->references, 1);
    o->head(o->user, x);
    if (!x->ended) http_exchange_release(x);
}

static size_t head_size(struct MHD_Connection *handle)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(handle, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    return info ? info->header_size : 0;
}

static enum MHD_Result begin(struct http_worker *w, struct MHD_Connection *handle, const char *url, const char *method,
                             void **exchange)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(handle, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct http_connection *c = info->socket_context; /* NULL: there was no memory */
    struct http_exchange *x = c ? http_exchange_new(c, url, method) : NULL;
    bool is_hopeless = false;
    if (!x) return MHD_NO;
    *exchange = x;
    http_connection_set_exchange(c, x);
    add_origin(x);
    if (head_size(handle) > w->server->options.max_head)
        http_exchange_refuse(x, 431, "the head of the request is too large");
    else if (is_body_too_large(x, &is_hopeless))
        refuse_body(x);
    else if (!answer_preflight(x))
        show_head(x);
    /* A client that asks before it sends the body (100-continue) gets the answer in place of "Continue". */
    const bool at_once = is_hopeless || (http_header(x, "Expect") && is_answered(x));
    return at_once ? queue_answer(x, handle) : MHD_YES;
}

/* Bytes of the body. After an answer they are dropped, but not for ever. */
static enum MHD_Result take_body(struct http_exchange *x, const char *bytes, size_t count)
{
    const size_t limit = x->server->options.max_body;
    if (!is_answered(x)) {
        if (count <= limit - x->body.length) return text_append(&x->body, bytes, count) ? MHD_YES : MHD_NO;
        text_free(&x->body);
        refuse_body(x);
    }
    x->dropped += count;
    return x->dropped / DROPPED <= limit ? MHD_YES : MHD_NO;
}

static void hand_over(struct http_exchange *x)
{
    const struct http_options *o = &x->server->options;
    if (atomic_load(&x->server->closing)) {
        http_exchange_refuse(x, 503, "the server is ending and takes no more requests");
        return;
    }
    atomic_fetch_add(&x->references, 1);
    x->handed = true;
    o->handle(o->user, x);
}

/* The request is whole. Called again when something was said about the answer. */
static enum MHD_Result finish(struct http_exchange *x, struct MHD_Connection *handle)
{
    bool waits = false;
    http_connection_set_whole(x->connection);
    if (!x->handed && !is_answered(x)) hand_over(x);
    pthread_mutex_lock(&x->lock);
    const bool is_missing = x->answer == ANSWER_NONE && x->ended;
    if (x->answer == ANSWER_NONE && !x->ended && !x->gone) waits = suspend(x);
    const bool is_gone = x->gone;
    pthread_mutex_unlock(&x->lock);
    if (is_gone) return MHD_NO;
    if (waits) return MHD_YES;
    if (is_missing) http_exchange_refuse(x, 500, "the request was not answered");
    return queue_answer(x, handle);
}

enum MHD_Result http_request_continue(void *worker, struct MHD_Connection *handle, const char *url, const char *method,
                                      const char *version, const char *bytes, size_t *count, void **exchange)
{
    struct http_exchange *x = *exchange;
    (void)version;
    if (!x) return begin(worker, handle, url, method, exchange);
    if (*count == 0) return finish(x, handle);
    const size_t given = *count;
    *count = 0;
    return take_body(x, bytes, given);
}

void http_request_completed(void *worker, struct MHD_Connection *handle, void **exchange,
                            enum MHD_RequestTerminationCode code)
{
    struct http_exchange *x = *exchange;
    (void)worker;
    (void)handle;
    if (!x) return;
    *exchange = NULL;
    struct http_connection *c = x->connection;
    pthread_mutex_lock(&x->lock);
    if (code != MHD_REQUEST_TERMINATED_COMPLETED_OK) http_exchange_lose(x);
    x->connection = NULL;
    pthread_mutex_unlock(&x->lock);
    http_connection_set_exchange(c, NULL);
    http_exchange_release(x);
}
