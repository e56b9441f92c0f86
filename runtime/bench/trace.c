#include "runtime/bench/trace.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/plural.h"

enum { EOS = 0, VOCAB_SIZE = 32000 };

void trace_draw(struct random *random, int32_t *tokens, int32_t count)
{
    for (int32_t i = 0; i < count; i++) tokens[i] = (int32_t)random_between(random, EOS + 1, VOCAB_SIZE - 1);
}

enum status trace_init(struct trace *t, const struct batch_limits *limits, int32_t num_blocks, int32_t max_requests,
                       int32_t max_in_flight, struct error *err)
{
    const size_t seqs = (size_t)limits->max_num_seqs;
    *t = (struct trace){.capacity = max_requests, .max_in_flight = max_in_flight};
    const struct scheduler_config config = {
        .limits = *limits, .num_blocks = num_blocks, .enable_prefix_caching = true, .enable_chunked_prefill = true};
    enum status status = scheduler_create(&config, &t->scheduler, err);
    if (status == STATUS_OK) status = batch_init(&t->batch, limits, err);
    if (status == STATUS_OK) {
        t->requests = calloc((size_t)max_requests, sizeof *t->requests);
        t->running = calloc(seqs, sizeof *t->running);
        for (int i = 0; i < 2; i++) t->samples[i] = calloc(seqs, sizeof *t->samples[i]);
        if (!t->requests || !t->running || !t->samples[0] || !t->samples[1])
            status = error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for a trace of %d request%s",
                               max_requests, plural(max_requests));
    }
    if (status != STATUS_OK) trace_free(t);
    return status;
}

void trace_free(struct trace *t)
{
    scheduler_destroy(t->scheduler);
    for (int32_t i = 0; i < t->num_requests; i++) request_destroy(t->requests[i].request);
    batch_free(&t->batch);
    free(t->requests);
    free(t->running);
    for (int i = 0; i < 2; i++) free(t->samples[i]);
    *t = (struct trace){0};
}

enum status trace_create(struct trace *t, const int32_t *prompt, int32_t prompt_len, int32_t answer_len,
                         int32_t max_tokens, struct request **out, struct error *err)
{
    if (t->num_requests == t->capacity)
        return error_set(err, STATUS_INTERNAL, "a trace for %d requests got one more", t->capacity);
    struct sampling_params params = sampling_params_default();
    struct request *request;
    params.max_tokens = max_tokens;
    enum status status = request_create(&params, prompt, prompt_len, &t->batch.limits, &request, err);
    if (status != STATUS_OK) return status;
    struct trace_request *r = &t->requests[t->num_requests++];
    *r = (struct trace_request){request, answer_len};
    request->user = r;
    request->num_eos = 1;
    request->eos_token_ids[0] = EOS;
    if (out) *out = request;
    return STATUS_OK;
}

enum status trace_add(struct trace *t, const int32_t *prompt, int32_t prompt_len, int32_t answer_len,
                      int32_t max_tokens, struct error *err)
{
    struct request *request = NULL;
    enum status status = trace_create(t, prompt, prompt_len, answer_len, max_tokens, &request, err);
    if (status == STATUS_OK) scheduler_add(t->scheduler, request);
    return status;
}

/* Draws what the batch samples. */
static void submit(struct trace *t, const struct schedule *schedule)
{
    const int place = (t->oldest + scheduler_in_flight(t->scheduler) - 1) % 2;
    const struct batch *b = &t->batch;
    for (int32_t i = 0; i < schedule->num_admitted; i++)
        t->running[schedule->admitted[i]->state_index] = schedule->admitted[i]->request->user;
    trace_draw(&t->random, t->samples[place], b->num_samples);
    for (int32_t i = 0; i < b->num_samples; i++)
        if (b->output_positions[i] + 1 >= t->running[b->sample_state_indices[i]]->answer_len)
            t->samples[place][i] = EOS;
    t->num_samples[place] = b->num_samples;
    t->steps++;
}

static enum status schedule(struct trace *t, enum schedule_result *result, struct error *err)
{
    struct schedule schedule;
    const double start = clock_seconds();
    enum status status = scheduler_schedule(t->scheduler, &t->batch, &schedule, err);
    t->schedule_seconds += clock_seconds() - start;
    *result = schedule.result;
    if (status == STATUS_OK && schedule.result == SCHEDULE_BATCH) submit(t, &schedule);
    return status;
}

static enum status end_requests(struct trace *t, struct error *err)
{
    enum status status = STATUS_OK;
    struct request *request;
    while ((request = scheduler_next_finished(t->scheduler))) {
        const struct sequence *seq = &request->sequences[0];
        if (status == STATUS_OK && seq->finish_reason == FINISH_ERROR)
            status = error_set(err, STATUS_INVALID, "a request of the trace failed: it has %d tokens", seq->num_tokens);
        ((struct trace_request *)request->user)->request = NULL;
        request_destroy(request);
    }
    return status;
}

static enum status collect(struct trace *t, struct error *err)
{
    const struct sample_output samples = {.num_samples = t->num_samples[t->oldest], .token_ids = t->samples[t->oldest]};
    const struct token_event *events;
    int32_t num_events;
    t->oldest = (t->oldest + 1) % 2;
    const double start = clock_seconds();
    enum status status = scheduler_collect(t->scheduler, &samples, &events, &num_events, err);
    t->collect_seconds += clock_seconds() - start;
    return status;
}

enum status trace_step(struct trace *t, struct error *err)
{
    enum schedule_result result = SCHEDULE_BATCH;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && result == SCHEDULE_BATCH && scheduler_in_flight(t->scheduler) < t->max_in_flight)
        status = schedule(t, &result, err);
    if (status == STATUS_OK && scheduler_in_flight(t->scheduler) > 0) status = collect(t, err);
    return status == STATUS_OK ? end_requests(t, err) : status;
}

enum status trace_finish(struct trace *t, struct error *err)
{
    enum status status = STATUS_OK;
    while (status == STATUS_OK && scheduler_has_work(t->scheduler)) status = trace_step(t, err);
    return status;
}
