/* Facts of the server: its page, its models, whether it is well, and what it counts. */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "runtime/serve/page.h"
#include "runtime/serve/server.h"
#include "runtime/version.h"

/* ---- models ---- */

static json_t *model_json(const struct server *s, int32_t number)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:n, s:i}", "id", s->rules.model_names[number], "object", "model",
                     "created", (json_int_t)s->created, "owned_by", "quire", "root", s->root, "parent", "max_model_len",
                     (int)service_engine(s->service)->limits->max_model_len);
}

static void answer_list(struct visit *v)
{
    json_t *list = json_array();
    for (int32_t i = 0; v->server->rules.model_names[i] && list; i++)
        json_array_append_new(list, model_json(v->server, i));
    visit_reply_json(v, json_pack("{s:s, s:o}", "object", "list", "data", list));
}

/* A name may have slashes in it. */
void answer_models(struct visit *v)
{
    static const char prefix[] = "/v1/models/";
    const char *path = http_path(v->exchange);
    if (strncmp(path, prefix, sizeof prefix - 1) != 0) {
        answer_list(v);
        return;
    }
    for (int32_t i = 0; v->server->rules.model_names[i]; i++) {
        if (strcmp(v->server->rules.model_names[i], path + sizeof prefix - 1) != 0) continue;
        visit_reply_json(v, model_json(v->server, i));
        return;
    }
    visit_refuse(v, 404, "there is no model of this name");
}

/* ---- the page ---- */

/* The page takes nothing from elsewhere, and no other page may frame it. */
void answer_page(struct visit *v)
{
    http_add_header(v->exchange, "Content-Security-Policy",
                    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
                    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'");
    http_add_header(v->exchange, "X-Content-Type-Options", "nosniff");
    http_add_header(v->exchange, "Cache-Control", "no-cache");
    visit_reply(v, "text/html; charset=utf-8", page_html, page_html_length);
}

/* ---- health ---- */

void answer_health(struct visit *v)
{
    struct api_refusal refusal;
    if (service_check_room(v->server->service, &refusal) || refusal.http_status == 429)
        visit_reply(v, "text/plain", "", 0);
    else
        visit_refuse_with(v, &refusal);
}

void answer_version(struct visit *v)
{
    visit_reply_json(v, json_pack("{s:s, s:s}", "version", QUIRE_VERSION, "quire", version_text()));
}

/* ---- counts ---- */

void answer_metrics(struct visit *v)
{
    struct server *s = v->server;
    struct text out = {0};
    struct metrics_facts facts = {.model = s->rules.model_names[0],
                                  .engine = service_engine(s->service),
                                  .created = s->created,
                                  .num_connections = http_server_num_connections(s->http)};
    service_stats(s->service, &facts.stats, &facts.num_waiting);
    if (metrics_write(&s->metrics, &facts, &out))
        visit_reply(v, "text/plain; version=0.0.4; charset=utf-8", out.data, out.length);
    else
        visit_refuse(v, 500, "out of host memory for the metrics");
    text_free(&out);
}

/* What the page shows. */
void answer_stats(struct visit *v)
{
    struct server *s = v->server;
    struct scheduler_stats stats;
    int32_t num_waiting;
    service_stats(s->service, &stats, &num_waiting);
    const double now = clock_seconds();
    json_t *blocks = json_pack("{s:i, s:i, s:i, s:i, s:i}", "total", stats.blocks_total, "in_use", stats.blocks_in_use,
                               "cached", stats.blocks_cached, "free", stats.blocks_free, "size",
                               service_engine(s->service)->limits->block_size);
    visit_reply_json(v, json_pack("{s:s, s:i, s:i, s:i, s:o, s:f, s:f, s:i}", "model", s->rules.model_names[0],
                                  "running", stats.num_running, "waiting", num_waiting, "swapped", stats.num_swapped,
                                  "blocks", blocks, "tokens_per_second", metrics_tokens_per_second(&s->metrics, now),
                                  "uptime", now - s->metrics.started, "max_model_len",
                                  (int)service_engine(s->service)->limits->max_model_len));
}
