#include "runtime/bench/run.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/plural.h"
#include "runtime/bench/drafts.h"
#include "runtime/interrupt.h"

/* A number from minimum to maximum. */
static int32_t draw(struct random *random, struct bench_range range)
{
    return (int32_t)random_between(random, range.minimum, range.maximum);
}

enum status bench_run_create(int32_t count, struct bench_range input_len, struct bench_range output_len,
                             int32_t vocab_size, struct random *random, struct bench_run *run, struct error *err)
{
    *run = (struct bench_run){.requests = calloc((size_t)count, sizeof *run->requests), .count = count};
    bool ok = run->requests != NULL;
    for (int32_t i = 0; ok && i < count; i++) {
        struct bench_request *r = &run->requests[i];
        r->prompt_len = draw(random, input_len);
        r->output_len = draw(random, output_len);
        r->prompt = malloc((size_t)r->prompt_len * sizeof *r->prompt);
        ok = r->prompt != NULL;
        const struct bench_range ids = {0, vocab_size - 1};
        for (int32_t t = 0; ok && t < r->prompt_len; t++) r->prompt[t] = draw(random, ids);
    }
    if (ok) return STATUS_OK;
    bench_run_free(run);
    return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for %d prompt%s", count, plural(count));
}

void bench_run_free(struct bench_run *run)
{
    for (int32_t i = 0; run->requests && i < run->count; i++) free(run->requests[i].prompt);
    free(run->requests);
    free(run->steps);
    *run = (struct bench_run){0};
}

/* What the callback needs: the request that a piece belongs to, and the step that is running. */
struct delivery {
    struct bench_run *run;
    struct bench_request *request;
    struct bench_step *step;
};

static void deliver(void *user, const struct answer_piece *piece)
{
    const double now = clock_seconds();
    struct delivery *d = user;
    struct bench_request *r = d->request;
    struct bench_step *step = d->step;
    if (piece->finish_reason == FINISH_ERROR && !d->run->failed) {
        d->run->failed = true;
        d->run->first_error = *piece->error;
    }
    if (piece->num_tokens == 0) return;
    r->cached_tokens = piece->cached_tokens;
    r->output_tokens += piece->num_tokens;
    r->last = now;
    if (r->output_tokens == piece->num_tokens) {
        r->first = now;
        step->first_tokens++;
    } else {
        step->next_tokens++;
        if (r->last_step == d->run->num_steps) return; /* a further token of a run */
        step->decodes++;
        step->context += r->prompt_len + r->output_tokens - 1;
    }
    r->last_step = d->run->num_steps;
}

static enum status add_requests(struct bench_run *run, struct delivery *deliveries, struct engine_pool *p,
                                struct error *err)
{
    struct logit_bias bias = {SYNTHETIC_TOKEN, SYNTHETIC_BIAS};
    struct sampling_params params = sampling_params_default();
    params.temperature = 0;
    params.ignore_eos = true;
    if (run->synthetic) {
        params.logit_bias = &bias;
        params.num_logit_bias = 1;
    }
    for (int32_t i = 0; i < run->count; i++) {
        struct bench_request *r = &run->requests[i];
        params.max_tokens = r->output_len;
        r->added = clock_seconds();
        r->output_tokens = r->cached_tokens = 0;
        const struct engine_request request = {.prompt = r->prompt,
                                               .prompt_len = r->prompt_len,
                                               .params = &params,
                                               .deliver = deliver,
                                               .user = &deliveries[i]};
        enum status status = engine_pool_add(p, &request, NULL, err);
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

static void note_peak(struct bench_run *run, struct engine_pool *p)
{
    struct scheduler_stats stats;
    engine_pool_stats(p, &stats);
    if (stats.blocks_in_use > run->peak_blocks) run->peak_blocks = stats.blocks_in_use;
    const int64_t unshared = engine_pool_blocks_unshared(p);
    if (unshared > run->peak_unshared) run->peak_unshared = unshared;
}

/* What engine_step takes to submit a step alone belongs to the step with the next tokens. */
static enum status run_step(struct bench_run *run, struct bench_step *step, struct engine_pool *p, struct error *err)
{
    const double before = step->first_tokens + step->next_tokens == 0 ? step->seconds : 0;
    *step = (struct bench_step){0};
    if (!array_reserve(&run->steps, &run->steps_capacity, run->num_steps + 1, sizeof *run->steps))
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory after %zu step%s", run->num_steps,
                         plural((int64_t)run->num_steps));
    bool worked;
    const double start = clock_seconds();
    enum status status = engine_pool_step(p, &worked, err);
    step->seconds = before + clock_seconds() - start;
    if (status != STATUS_OK) return status;
    run->steps[run->num_steps++] = *step;
    note_peak(run, p);
    return STATUS_OK;
}

enum status bench_run_execute(struct bench_run *run, struct engine_pool *p, struct error *err)
{
    struct bench_step step = {0};
    struct delivery *deliveries = calloc((size_t)run->count, sizeof *deliveries);
    if (!deliveries)
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for %d request%s", run->count,
                         plural(run->count));
    for (int32_t i = 0; i < run->count; i++) deliveries[i] = (struct delivery){run, &run->requests[i], &step};
    run->num_steps = 0;
    run->peak_blocks = 0;
    run->peak_unshared = 0;
    run->failed = false;
    const double start = clock_seconds();
    enum status status = add_requests(run, deliveries, p, err);
    while (status == STATUS_OK && engine_pool_has_work(p) && !interrupt_pending())
        status = run_step(run, &step, p, err);
    if (status == STATUS_OK && interrupt_pending()) status = error_set(err, STATUS_CANCELLED, "interrupted");
    double end = start;
    for (int32_t i = 0; i < run->count; i++)
        if (run->requests[i].last > end) end = run->requests[i].last;
    run->seconds = end - start;
    free(deliveries);
    if (status == STATUS_OK && run->failed) {
        *err = run->first_error;
        status = STATUS_INVALID;
    }
    return status;
}
