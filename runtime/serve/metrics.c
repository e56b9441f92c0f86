#include "runtime/serve/metrics.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "runtime/serve/process_facts.h"

/* Bounds end with 0. */
static const struct {
    const char *name, *help;
    double bounds[METRICS_MAX_BOUNDS + 1];
} histograms[NUM_METRICS_HISTOGRAMS] = {
    [METRICS_FIRST_TOKEN] = {"vllm:time_to_first_token_seconds",
                             "Time from a request's arrival to its first token.",
                             {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                              1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560}},
    [METRICS_BETWEEN] = {"vllm:inter_token_latency_seconds",
                         "Time between two tokens of an answer.",
                         {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
                          0.4,   0.5,    0.75,  1,    2.5,   5,    7.5,   10,  20,   40,  80}},
    [METRICS_END_TO_END] = {"vllm:e2e_request_latency_seconds",
                            "Time from a request's arrival to its end.",
                            {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                             30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680}},
    [METRICS_PROMPT_TOKENS] = {"vllm:request_prompt_tokens",
                               "Tokens of the prompts of a request.",
                               {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000,
                                200000, 500000, 1000000}},
    [METRICS_OUTPUT_TOKENS] = {"vllm:request_generation_tokens",
                               "Tokens of the answers to a request.",
                               {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000,
                                200000, 500000, 1000000}},
};

void metrics_init(struct metrics *m)
{
    *m = (struct metrics){.started = clock_seconds()};
    pthread_mutex_init(&m->lock, NULL);
}

void metrics_destroy(struct metrics *m)
{
    pthread_mutex_destroy(&m->lock);
}

/* ---- counting ---- */

static int64_t slice_number(const struct metrics *m, double now)
{
    return (int64_t)((now - m->started) * (METRICS_NUM_SLICES - 1));
}

void metrics_count_tokens(struct metrics *m, double now, int32_t count)
{
    const int64_t number = slice_number(m, now);
    const int64_t place = number % METRICS_NUM_SLICES;
    pthread_mutex_lock(&m->lock);
    m->output_tokens += count;
    if (m->slices[place].number != number) m->slices[place].tokens = 0;
    m->slices[place].number = number;
    m->slices[place].tokens += count;
    pthread_mutex_unlock(&m->lock);
}

double metrics_tokens_per_second(struct metrics *m, double now)
{
    const int64_t number = slice_number(m, now);
    int64_t tokens = 0;
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < METRICS_NUM_SLICES; i++)
        if (m->slices[i].number < number && m->slices[i].number >= number - (METRICS_NUM_SLICES - 1))
            tokens += m->slices[i].tokens;
    pthread_mutex_unlock(&m->lock);
    return (double)tokens;
}

void metrics_observe(struct metrics *m, enum metrics_histogram which, double value)
{
    struct histogram *h = &m->histograms[which];
    const double *bounds = histograms[which].bounds;
    int i = 0;
    while (bounds[i] > 0 && value > bounds[i]) i++;
    pthread_mutex_lock(&m->lock);
    h->counts[i]++;
    h->sum += value;
    pthread_mutex_unlock(&m->lock);
}

void metrics_count_answer(struct metrics *m, enum finish_reason reason)
{
    pthread_mutex_lock(&m->lock);
    m->answers[reason]++;
    pthread_mutex_unlock(&m->lock);
}

void metrics_count_usage(struct metrics *m, struct api_usage usage)
{
    metrics_observe(m, METRICS_PROMPT_TOKENS, usage.prompt_tokens);
    metrics_observe(m, METRICS_OUTPUT_TOKENS, usage.completion_tokens);
    pthread_mutex_lock(&m->lock);
    m->prompt_tokens += usage.prompt_tokens;
    pthread_mutex_unlock(&m->lock);
}

void metrics_count_response(struct metrics *m, const char *path, int status)
{
    int i = 0;
    pthread_mutex_lock(&m->lock);
    while (i < METRICS_MAX_ROUTES - 1 && m->routes[i].path && strcmp(m->routes[i].path, path) != 0) i++;
    m->routes[i].path = path;
    m->routes[i].counts[status / 100 % 6]++;
    pthread_mutex_unlock(&m->lock);
}

/* ---- writing ---- */

/* What is being written. */
struct page {
    struct text *out;
    struct text labels; /* of every metric of the model */
    bool ok;
};

static bool append_labels(struct text *out, const char *model)
{
    bool ok = text_append_string(out, "model_name=\"");
    for (; *model && ok; model++) {
        if (*model == '\n')
            ok = text_append(out, "\\n", 2);
        else
            ok = ((*model != '"' && *model != '\\') || text_append(out, "\\", 1)) && text_append(out, model, 1);
    }
    return ok && text_append_string(out, "\",engine=\"0\"");
}

static void head(struct page *p, const char *name, const char *type, const char *help)
{
    p->ok = p->ok && text_printf(p->out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* A metric of one value. A counter's name ends with "_total". */
static void value(struct page *p, const char *name, const char *type, const char *help, double number)
{
    head(p, name, type, help);
    p->ok = p->ok && text_printf(p->out, "%s{%s} %.17g\n", name, p->labels.data, number);
}

static void histogram(struct page *p, const struct histogram *h, enum metrics_histogram which)
{
    const char *name = histograms[which].name, *labels = p->labels.data;
    const double *bounds = histograms[which].bounds;
    int64_t count = 0;
    int i;
    head(p, name, "histogram", histograms[which].help);
    for (i = 0; bounds[i] > 0; i++) {
        count += h->counts[i];
        p->ok = p->ok &&
                text_printf(p->out, "%s_bucket{%s,le=\"%.12g\"} %lld\n", name, labels, bounds[i], (long long)count);
    }
    count += h->counts[i];
    p->ok = p->ok && text_printf(p->out, "%s_bucket{%s,le=\"+Inf\"} %lld\n%s_sum{%s} %.17g\n%s_count{%s} %lld\n", name,
                                 labels, (long long)count, name, labels, h->sum, name, labels, (long long)count);
}

static void answers(struct page *p, const struct metrics *m)
{
    const char *name = "vllm:request_success_total";
    head(p, name, "counter", "Answers that have ended, by why.");
    for (enum finish_reason r = FINISH_STOP; r <= FINISH_ERROR; r++)
        p->ok = p->ok && text_printf(p->out, "%s{%s,finished_reason=\"%s\"} %lld\n", name, p->labels.data,
                                     finish_reason_name(r), (long long)m->answers[r]);
}

static void responses(struct page *p, const struct metrics *m)
{
    const char *name = "http_requests_total";
    head(p, name, "counter", "Responses of HTTP, by path and class of status.");
    for (int i = 0; i < METRICS_MAX_ROUTES && m->routes[i].path; i++)
        for (int k = 1; k < 6; k++)
            if (m->routes[i].counts[k] > 0)
                p->ok = p->ok && text_printf(p->out, "%s{handler=\"%s\",status=\"%dxx\"} %lld\n", name,
                                             m->routes[i].path, k, (long long)m->routes[i].counts[k]);
}

static void engine_metrics(struct page *p, const struct metrics_facts *f)
{
    const struct scheduler_stats *s = &f->stats;
    const double used = s->blocks_total > 0 ? (double)s->blocks_in_use / s->blocks_total : 0;
    value(p, "vllm:num_requests_running", "gauge", "Requests that the engine runs.", s->num_running);
    value(p, "vllm:num_requests_waiting", "gauge", "Requests that wait for the engine.", f->num_waiting);
    value(p, "vllm:kv_cache_usage_perc", "gauge", "Share of the KV cache's blocks that are in use, 0 to 1.", used);
    value(p, "vllm:prefix_cache_queries_total", "counter",
          "Tokens of prompts that were looked for in the prefix cache.", (double)s->prefix_queries);
    value(p, "vllm:prefix_cache_hits_total", "counter", "Tokens of prompts that were found in the prefix cache.",
          (double)s->prefix_hits);
    value(p, "vllm:num_preemptions_total", "counter", "Requests whose blocks were taken away while they ran.",
          (double)(s->preemptions_recompute + s->preemptions_swap));
    value(p, "quire:engine_steps_total", "counter", "Steps of the engine.", (double)s->steps);
    value(p, "quire:engine_tokens_total", "counter", "Tokens that the engine has computed, those of prompts included.",
          (double)s->tokens);
    if (!f->engine->drafter) return;
    value(p, "vllm:spec_decode_num_drafts_total", "counter", "Runs of drafts.", (double)s->runs);
    value(p, "vllm:spec_decode_num_draft_tokens_total", "counter", "Tokens that were drafted.", (double)s->drafts);
    value(p, "vllm:spec_decode_num_accepted_tokens_total", "counter", "Drafted tokens that were accepted.",
          (double)s->drafts_accepted);
}

/* By the names of Prometheus' own clients; of no model. */
static void process(struct page *p, double started)
{
    const struct process_facts facts = process_facts_read();
    const struct {
        const char *name, *type, *help;
        double value;
    } values[] = {
        {"process_resident_memory_bytes", "gauge", "Resident memory.", (double)facts.resident_bytes},
        {"process_virtual_memory_bytes", "gauge", "Address space.", (double)facts.virtual_bytes},
        {"process_cpu_seconds_total", "counter", "Time of processors.", facts.cpu_seconds},
        {"process_open_fds", "gauge", "Open descriptors.", facts.num_descriptors},
        {"process_start_time_seconds", "gauge", "Start of the server, Unix time.", started},
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        head(p, values[i].name, values[i].type, values[i].help);
        p->ok = p->ok && text_printf(p->out, "%s %.17g\n", values[i].name, values[i].value);
    }
}

static void cache_config(struct page *p, const struct metrics_facts *f)
{
    head(p, "vllm:cache_config_info", "gauge", "How the KV cache is laid out.");
    p->ok = p->ok && text_printf(p->out, "vllm:cache_config_info{%s,block_size=\"%d\",num_gpu_blocks=\"%d\"} 1\n",
                                 p->labels.data, f->engine->limits->block_size, f->stats.blocks_total);
}

bool metrics_write(struct metrics *m, const struct metrics_facts *facts, struct text *out)
{
    struct page p = {.out = out};
    p.ok = append_labels(&p.labels, facts->model);
    engine_metrics(&p, facts);
    cache_config(&p, facts);
    pthread_mutex_lock(&m->lock);
    const struct metrics now = *m;
    pthread_mutex_unlock(&m->lock);
    value(&p, "vllm:prompt_tokens_total", "counter", "Tokens of prompts.", (double)now.prompt_tokens);
    value(&p, "vllm:generation_tokens_total", "counter", "Tokens of answers.", (double)now.output_tokens);
    answers(&p, &now);
    for (int i = 0; i < NUM_METRICS_HISTOGRAMS; i++) histogram(&p, &now.histograms[i], i);
    responses(&p, &now);
    value(&p, "quire:http_connections", "gauge", "Connections that are open.", facts->num_connections);
    process(&p, (double)facts->created);
    text_free(&p.labels);
    return p.ok;
}
