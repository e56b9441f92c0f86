#include "tests/support/http_test_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/must.h"

static void answer_text(struct http_exchange *x, int status, const char *text)
{
    http_answer(x, status, "text/plain", text, strlen(text));
    http_end(x);
}

static void answer_facts(struct http_exchange *x)
{
    struct text t = {0};
    const char *a = http_query(x, "a"), *header = http_header(x, "x-a");
    text_printf(&t, "%s\n%s\n%s\n%s\n%s\n", http_method(x), http_path(x), a ? a : "-", header ? header : "-",
                http_peer(x));
    answer_text(x, 200, t.data);
    text_free(&t);
}

static void hold(struct http_test_server *t, struct http_exchange *x)
{
    http_set_data(x, x);
    pthread_mutex_lock(&t->lock);
    t->held[t->num_held++ % HTTP_TEST_MAX_HELD] = x;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

static void handle(void *user, struct http_exchange *x)
{
    struct http_test_server *t = user;
    const char *path = http_path(x);
    atomic_fetch_add(&t->num_handled, 1);
    if (strcmp(path, "/facts") == 0) {
        answer_facts(x);
    } else if (strcmp(path, "/echo") == 0) {
        size_t length;
        const char *body = http_body(x, &length);
        http_add_header(x, "X-Echo", "yes");
        http_answer(x, 200, "application/octet-stream", body, length);
        http_end(x);
    } else if (strcmp(path, "/hold") == 0) {
        hold(t, x);
    } else if (strcmp(path, "/forget") == 0) {
        http_end(x);
    } else {
        answer_text(x, 404, "no such path");
    }
}

static void look_at_head(void *user, struct http_exchange *x)
{
    (void)user;
    if (http_header(x, "X-Refuse")) answer_text(x, 401, "refused");
}

static void note_gone(void *user, struct http_exchange *x, void *data)
{
    struct http_test_server *t = user;
    (void)x;
    pthread_mutex_lock(&t->lock);
    t->gone_data = data;
    atomic_fetch_add(&t->num_gone, 1);
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

static void write_error(void *user, int status, const char *sentence, struct text *out)
{
    (void)user;
    text_printf(out, "{\"status\": %d, \"message\": \"%s\"}", status, sentence);
}

void http_test_prepare(struct http_test_server *t)
{
    memset(t, 0, sizeof *t);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    t->options = (struct http_options){.host = "127.0.0.1",
                                       .num_threads = 2,
                                       .max_connections = 4096,
                                       .max_body = 1 << 20,
                                       .max_head = 16384,
                                       .idle_seconds = 60,
                                       .max_unsent = 1 << 20,
                                       .head = look_at_head,
                                       .handle = handle,
                                       .gone = note_gone,
                                       .error_body = write_error,
                                       .error_type = "application/json",
                                       .user = t};
}

void http_test_start(struct http_test_server *t)
{
    struct error err;
    must(http_server_start(&t->options, &t->server, &err), &err);
    t->url = http_server_url(t->server);
}

void http_test_stop(struct http_test_server *t)
{
    http_server_stop(t->server);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
}

struct http_exchange *http_test_take(struct http_test_server *t)
{
    pthread_mutex_lock(&t->lock);
    while (t->num_taken == t->num_held) pthread_cond_wait(&t->changed, &t->lock);
    struct http_exchange *x = t->held[t->num_taken++ % HTTP_TEST_MAX_HELD];
    pthread_mutex_unlock(&t->lock);
    return x;
}

void http_test_wait_gone(struct http_test_server *t, int count)
{
    pthread_mutex_lock(&t->lock);
    while (atomic_load(&t->num_gone) < count) pthread_cond_wait(&t->changed, &t->lock);
    pthread_mutex_unlock(&t->lock);
}
