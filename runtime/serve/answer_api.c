/* Requests of an API: read here, on a thread of HTTP, and handed over. */
#include "runtime/serve/server.h"

/* The client may go as soon as the exchange knows the call, which then is abandoned before it is submitted. */
static bool submit(const struct visit *v, struct call *c, struct api_refusal *refusal)
{
    http_set_data(v->exchange, c);
    if (service_submit(v->server->service, c, refusal)) return true;
    http_set_data(v->exchange, NULL);
    return false;
}

static bool take(struct visit *v, struct api_refusal *refusal)
{
    const struct server *s = v->server;
    struct api_request request = {0};
    struct error err = {""};
    struct call *c = NULL;
    size_t length;
    const char *body = http_body(v->exchange, &length);
    if (!service_check_room(s->service, refusal)) return false;
    if (!api_request_read(&s->rules, v->route->form, body, length, &request, refusal)) {
        api_request_free(&request);
        return false;
    }
    enum status status = service_check_request(s->service, &request, &err);
    if (status == STATUS_OK)
        status = call_create(&s->calls, &s->rules, v->exchange, v->route->path, v->received, &request, &c, &err);
    api_request_free(&request);
    if (status != STATUS_OK) api_refuse(&s->rules, status, &err, refusal);
    if (status == STATUS_OK && submit(v, c, refusal)) return true;
    if (c) call_release(c);
    return false;
}

void answer_api(struct visit *v)
{
    struct api_refusal refusal;
    request_log_body(&v->server->log, v->exchange);
    if (!take(v, &refusal)) visit_refuse_with(v, &refusal);
}
