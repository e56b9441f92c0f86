#include "runtime/serve/server.h"

#include <stdarg.h>
#include <string.h>

#include "base/clock.h"

static const struct request_log no_log;         /* of what programs ask for every few seconds */
static const char UNKNOWN_PATH[] = "(unknown)"; /* in metrics and the log */

static const struct route routes[] = {
    {"POST", "/v1/chat/completions", answer_api, .form = API_CHAT},
    {"POST", "/v1/completions", answer_api, .form = API_COMPLETION},
    {"POST", "/v1/messages", answer_api, .form = API_MESSAGES},
    {"POST", "/v1/responses", answer_api, .form = API_RESPONSES},
    {"GET", "/v1/models", answer_models},
    {"GET", "/v1/models/", answer_models},
    {"POST", "/tokenize", answer_tokenize},
    {"POST", "/detokenize", answer_detokenize},
    {"GET", "/health", answer_health, .is_open = true, .is_polled = true},
    {"GET", "/ping", answer_health, .is_open = true, .is_polled = true},
    {"POST", "/ping", answer_health, .is_open = true, .is_polled = true},
    {"GET", "/", answer_page, .is_open = true, .is_early = true},
    {"GET", "/version", answer_version, .is_open = true, .is_early = true},
    {"GET", "/metrics", answer_metrics, .is_polled = true},
    {"GET", "/stats", answer_stats, .is_polled = true},
};
enum { NUM_ROUTES = sizeof routes / sizeof *routes };

/* ---- answers ---- */

static const char *path_of(const struct visit *v)
{
    return v->route ? v->route->path : UNKNOWN_PATH;
}

void visit_refuse_with(struct visit *v, const struct api_refusal *refusal)
{
    call_refuse(&v->server->calls, v->exchange, path_of(v), v->route ? v->route->form : API_CHAT, refusal);
}

void visit_refuse(struct visit *v, int status, const char *format, ...)
{
    struct api_refusal refusal = {.http_status = status};
    va_list args;
    va_start(args, format);
    vsnprintf(refusal.error.text, sizeof refusal.error.text, format, args);
    va_end(args);
    visit_refuse_with(v, &refusal);
}

void visit_reply(struct visit *v, const char *type, const char *body, size_t length)
{
    struct call_context context = v->server->calls;
    if (v->route->is_polled) context.log = &no_log;
    call_reply(&context, v->exchange, path_of(v), 200, type, body, length);
}

void visit_reply_json(struct visit *v, json_t *object)
{
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (text)
        visit_reply(v, "application/json", text, strlen(text));
    else
        visit_refuse(v, 500, "out of host memory for the response");
    free(text);
}

/* ---- a request ---- */

static bool fits(const struct route *route, const char *path)
{
    const size_t length = strlen(route->path);
    const bool has_more = length > 1 && route->path[length - 1] == '/';
    return has_more ? strncmp(route->path, path, length) == 0 && path[length] : strcmp(route->path, path) == 0;
}

/* The route of the path and method; NULL: there is none. *other is one of the path with another method, or NULL. */
static const struct route *find_route(const struct http_exchange *x, const struct route **other)
{
    *other = NULL;
    for (int i = 0; i < NUM_ROUTES; i++) {
        if (!fits(&routes[i], http_path(x))) continue;
        if (strcmp(routes[i].method, http_method(x)) == 0) return &routes[i];
        *other = &routes[i];
    }
    return NULL;
}

static bool may_ask(const struct visit *v)
{
    if (v->route && v->route->is_open) return true;
    return api_keys_allow(v->server->keys, http_header(v->exchange, "Authorization"),
                          http_header(v->exchange, "x-api-key"));
}

/* Refuses before the body is read what no body could make right. Who may not ask is not told which paths there are. */
void server_head(void *user, struct http_exchange *x)
{
    struct visit v = {.server = user, .exchange = x};
    const struct route *other, *route = find_route(x, &other);
    v.route = route ? route : other;
    if (!may_ask(&v)) {
        visit_refuse(&v, 401, "the request shows no key of this server: Authorization: Bearer KEY");
    } else if (!v.route) {
        visit_refuse(&v, 404, "there is nothing at this path");
    } else if (!route) {
        http_add_header(x, "Allow", other->method);
        visit_refuse(&v, 405, "this path takes %s alone", other->method);
    } else if (!route->is_early && !atomic_load(&v.server->ready)) {
        visit_refuse(&v, 503, "the model is being loaded");
    }
}

void server_handle(void *user, struct http_exchange *x)
{
    const struct route *other;
    struct visit v = {.server = user, .exchange = x, .received = clock_seconds()};
    v.route = find_route(x, &other);
    v.route->answer(&v);
}

void server_error_body(void *user, int status, const char *sentence, struct text *out)
{
    struct api_refusal refusal = {.http_status = status};
    (void)user;
    error_set(&refusal.error, STATUS_INVALID, "%s", sentence);
    api_refusal_write(API_CHAT, &refusal, out);
}

void server_gone(void *user, struct http_exchange *x, void *data)
{
    struct server *s = user;
    (void)x;
    if (data) service_abandon(s->service, data);
}
