#include "runtime/serve/call.h"

#include <stdlib.h>

#include "base/clock.h"

static const char JSON_TYPE[] = "application/json";
/* Of a request whose client has gone, in the log and in metrics; nobody gets it. */
enum { STATUS_CLIENT_GONE = 499 };

/* ---- start and end ---- */

static void free_call(struct call *c)
{
    api_response_free(c->response);
    api_request_free(&c->request);
    free(c->prompts);
    free(c->last_tokens);
    text_free(&c->out);
    free(c);
}

static struct call *new_call(struct api_request *request)
{
    struct call *c = calloc(1, sizeof *c);
    if (!c) {
        api_request_free(request);
        return NULL;
    }
    c->request = *request;
    *request = (struct api_request){0};
    atomic_init(&c->references, 1);
    c->num_open = c->request.num_prompts;
    c->num_answers = c->request.num_prompts * c->request.n;
    c->prompts = calloc((size_t)c->num_open, sizeof *c->prompts);
    c->last_tokens = calloc((size_t)c->num_answers, sizeof *c->last_tokens);
    for (int32_t i = 0; c->prompts && i < c->num_open; i++)
        c->prompts[i] = (struct call_prompt){.call = c, .number = i, .is_running = true};
    return c;
}

enum status call_create(const struct call_context *context, const struct api_rules *rules, struct http_exchange *x,
                        const char *path, double received, struct api_request *request, struct call **out,
                        struct error *err)
{
    struct call *c = *out = new_call(request);
    enum status status = STATUS_OK;
    if (!c || !c->prompts || !c->last_tokens)
        status = error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for a request");
    if (status == STATUS_OK) status = api_response_create(rules, &c->request, http_request_id(x), &c->response, err);
    if (status != STATUS_OK) {
        if (c) free_call(c);
        *out = NULL;
        return status;
    }
    c->context = context;
    c->exchange = x;
    c->path = path;
    c->received = received;
    return STATUS_OK;
}

void call_hold(struct call *c)
{
    atomic_fetch_add(&c->references, 1);
}

void call_release(struct call *c)
{
    if (atomic_fetch_sub(&c->references, 1) == 1) free_call(c);
}

/* ---- pieces in ---- */

static void count_token(struct call *c, struct call_prompt *p, const struct answer_piece *piece, double now)
{
    struct metrics *m = c->context->metrics;
    double *last = &c->last_tokens[p->number * c->request.n + piece->index];
    metrics_count_tokens(m, now, piece->num_tokens);
    if (*last > 0) metrics_observe(m, METRICS_BETWEEN, now - *last);
    *last = now;
    if (!p->has_token) metrics_observe(m, METRICS_FIRST_TOKEN, now - c->received);
    p->has_token = true;
    if (c->first_token == 0) c->first_token = now;
}

void call_take(struct call_prompt *p, const struct answer_piece *piece, double now)
{
    struct call *c = p->call;
    if (piece->num_tokens > 0) count_token(c, p, piece, now);
    if (piece->finish_reason != FINISH_NONE) metrics_count_answer(c->context->metrics, piece->finish_reason);
    if (piece->request_finished) c->num_open--;
    if (atomic_load(&c->gone) || c->no_memory) return;
    c->no_memory = !api_response_take(c->response, p->number, piece, &c->out);
}

/* ---- bytes out ---- */

static bool send_stream(struct call *c)
{
    if (!c->begun) {
        http_add_header(c->exchange, "Cache-Control", "no-cache");
        http_begin(c->exchange, 200, "text/event-stream; charset=utf-8");
    }
    c->begun = true;
    return http_send(c->exchange, c->out.data, c->out.length);
}

/* An error that comes before a stream has begun is an answer with its own status. */
bool call_send(struct call *c)
{
    bool ok = !atomic_load(&c->gone);
    if (ok && c->out.length > 0 && !c->answered && !c->no_memory) {
        const int status = api_response_status(c->response);
        if (c->begun || (api_response_is_stream(c->response) && status == 200)) {
            ok = send_stream(c);
        } else {
            http_answer(c->exchange, status, JSON_TYPE, c->out.data, c->out.length);
            c->answered = true;
        }
    }
    text_clear(&c->out);
    return ok;
}

static void set_no_memory(struct api_refusal *out)
{
    *out = (struct api_refusal){.http_status = 500};
    error_set(&out->error, STATUS_OUT_OF_MEMORY, "out of host memory for the response");
}

static void answer_refusal(struct http_exchange *x, enum api_form form, const struct api_refusal *refusal)
{
    struct text body = {0};
    if (api_refusal_write(form, refusal, &body))
        http_answer(x, refusal->http_status, JSON_TYPE, body.data, body.length);
    else
        http_answer(x, refusal->http_status, JSON_TYPE, "", 0);
    text_free(&body);
}

static int end_status(struct call *c)
{
    struct api_refusal refusal;
    if (atomic_load(&c->gone)) return STATUS_CLIENT_GONE;
    if (c->begun) return 200;
    if (c->answered) return api_response_status(c->response);
    set_no_memory(&refusal);
    answer_refusal(c->exchange, c->request.form, &refusal);
    return refusal.http_status;
}

void call_end(struct call *c, double now)
{
    const int status = end_status(c);
    const struct request_facts facts = {.usage = api_response_usage(c->response),
                                        .first_seconds = c->first_token > 0 ? c->first_token - c->received : -1,
                                        .seconds = now - c->received};
    metrics_count_usage(c->context->metrics, facts.usage);
    metrics_observe(c->context->metrics, METRICS_END_TO_END, facts.seconds);
    metrics_count_response(c->context->metrics, c->path, status);
    request_log_end(c->context->log, c->exchange, c->path, status, &facts);
    http_end(c->exchange);
    call_release(c);
}

void call_reply(const struct call_context *context, struct http_exchange *x, const char *path, int status,
                const char *type, const char *body, size_t length)
{
    metrics_count_response(context->metrics, path, status);
    request_log_end(context->log, x, path, status, NULL);
    http_answer(x, status, type, body, length);
    http_end(x);
}

void call_refuse(const struct call_context *context, struct http_exchange *x, const char *path, enum api_form form,
                 const struct api_refusal *refusal)
{
    if (refusal->http_status == 429 || refusal->http_status == 503) http_add_header(x, "Retry-After", "1");
    if (refusal->http_status == 401) http_add_header(x, "WWW-Authenticate", "Bearer");
    metrics_count_response(context->metrics, path, refusal->http_status);
    request_log_end(context->log, x, path, refusal->http_status, NULL);
    answer_refusal(x, form, refusal);
    http_end(x);
}
