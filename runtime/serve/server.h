/* What the paths of a server answer: who may ask, what each path is, and what its answer is made of. */
#ifndef QUIRE_RUNTIME_SERVER_H
#define QUIRE_RUNTIME_SERVER_H

#include <stdatomic.h>

#include "runtime/serve/api_keys.h"
#include "runtime/serve/call.h"
#include "runtime/serve/service.h"

struct server {
    struct http_server *http;
    struct service *service;
    struct metrics metrics;
    struct request_log log;
    struct call_context calls;
    const struct api_keys *keys;
    struct prompt_rules prompts;
    struct api_rules rules;
    const char *root;  /* the model's folder, or its name in the cache */
    int64_t created;   /* Unix time, seconds */
    atomic_bool ready; /* the model is loaded: all but `metrics`, `log`, `calls` and `keys` are set */
};

/* Functions of struct http_options; `user` is the server, `data` the call. */
void server_head(void *user, struct http_exchange *x);
void server_error_body(void *user, int status, const char *sentence, struct text *out);
void server_handle(void *user, struct http_exchange *x);
void server_gone(void *user, struct http_exchange *x, void *data);

/* ---- a request on its way to what answers it ---- */

struct route;
struct visit {
    struct server *server;
    const struct route *route;
    struct http_exchange *exchange;
    double received; /* clock_seconds */
};

struct route {
    const char *method, *path; /* a path that ends with "/" has all below it */
    void (*answer)(struct visit *v);
    bool is_polled;     /* asked for every few seconds, so that the log leaves it out while all is well */
    bool is_open;       /* without a key */
    bool is_early;      /* also before the model is loaded */
    enum api_form form; /* of the API's paths, and of errors */
};

/* Each ends the exchange. */
void visit_refuse(struct visit *v, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));
void visit_refuse_with(struct visit *v, const struct api_refusal *refusal);
void visit_reply_json(struct visit *v, json_t *object);                               /* which it takes; NULL: 500 */
void visit_reply(struct visit *v, const char *type, const char *body, size_t length); /* 200 */

/* The answers of the table in server.c. */
void answer_api(struct visit *v);      /* answer_api.c */
void answer_tokenize(struct visit *v); /* answer_tokens.c */
void answer_detokenize(struct visit *v);
void answer_models(struct visit *v); /* answer_facts.c */
void answer_page(struct visit *v);
void answer_health(struct visit *v);
void answer_version(struct visit *v);
void answer_metrics(struct visit *v);
void answer_stats(struct visit *v);

#endif
