#include "runtime/bench/bench.h"

enum { WARMUP_REQUESTS = 8, WARMUP_TOKENS = 8 };

static enum status warm_up(struct bench *b, struct error *err)
{
    const struct bench_options *o = b->options;
    const struct bench_range short_output = {1, WARMUP_TOKENS < o->output_len.maximum ? WARMUP_TOKENS : 1};
    const int32_t count = o->num_prompts < WARMUP_REQUESTS ? o->num_prompts : WARMUP_REQUESTS;
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < o->num_iters_warmup && status == STATUS_OK; i++) {
        struct bench_run run;
        status = bench_run_create(count, o->input_len, short_output, engine_pool_info(b->pool)->config->spec.vocab_size,
                                  &b->random, &run, err);
        if (status != STATUS_OK) return status;
        run.synthetic = o->synthetic;
        status = bench_run_execute(&run, b->pool, err);
        bench_run_free(&run);
    }
    return status;
}

/* `first`, `token` and `request` are of all runs; the next three have a value for each run. */
struct totals {
    struct samples first, token, request;
    struct samples seconds, requests_per_second, output_per_second, tokens_per_second;
    int64_t input, output; /* tokens of a run */
};

static void add_up(struct totals *t, const struct bench_run *run)
{
    t->input = t->output = 0;
    for (int32_t i = 0; i < run->count; i++) {
        const struct bench_request *r = &run->requests[i];
        t->input += r->prompt_len;
        t->output += r->output_tokens;
        samples_add(&t->first, r->first - r->added);
        samples_add(&t->request, r->last - r->added);
        if (r->output_tokens > 1) samples_add(&t->token, (r->last - r->first) / (r->output_tokens - 1));
    }
    samples_add(&t->seconds, run->seconds);
    samples_add(&t->requests_per_second, run->count / run->seconds);
    samples_add(&t->output_per_second, (double)t->output / run->seconds);
    samples_add(&t->tokens_per_second, (double)(t->input + t->output) / run->seconds);
}

static void free_totals(struct totals *t)
{
    samples_free(&t->first);
    samples_free(&t->token);
    samples_free(&t->request);
    samples_free(&t->seconds);
    samples_free(&t->requests_per_second);
    samples_free(&t->output_per_second);
    samples_free(&t->tokens_per_second);
}

/* vLLM's names have the medians. `run` is the last one. */
static void report_throughput(struct bench *b, const struct totals *t, const struct bench_run *run)
{
    struct report *r = &b->report;
    struct scheduler_stats stats;
    engine_pool_stats(b->pool, &stats);
    report_integer(r, "completed", "requests", run->count);
    report_integer(r, "total_input_tokens", "prompt tokens", t->input);
    report_integer(r, "total_output_tokens", "output tokens", t->output);
    report_number(r, "duration", NULL, samples_percentile(&t->seconds, 50), "s");
    report_number(r, "request_throughput", NULL, samples_percentile(&t->requests_per_second, 50), "requests/s");
    report_number(r, "output_throughput", NULL, samples_percentile(&t->output_per_second, 50), "tokens/s");
    report_number(r, "total_token_throughput", NULL, samples_percentile(&t->tokens_per_second, 50), "tokens/s");
    report_integer(r, "peak_blocks", "most blocks in use", run->peak_blocks);
    report_integer(r, "num_gpu_blocks", "of blocks", stats.blocks_total);
    report_integer(r, "num_preemptions", "preemptions", stats.preemptions_recompute + stats.preemptions_swap);
    report_integer(r, "num_swapped_out_blocks", "blocks swapped out", stats.blocks_swapped_out);
    bench_drafts_report(b);
    report_runs(r, "duration", "duration", &t->seconds, "s", "lower");
    report_runs(r, "request_throughput", "requests", &t->requests_per_second, "requests/s", "higher");
    report_runs(r, "output_throughput", "output", &t->output_per_second, "tokens/s", "higher");
    report_runs(r, "total_token_throughput", "prompts and output", &t->tokens_per_second, "tokens/s", "higher");
    report_milliseconds(r, "ttft", "time to first token", &t->first);
    report_milliseconds(r, "tpot", "time per output token", &t->token);
    report_milliseconds(r, "e2el", "request, end to end", &t->request);
}

enum status bench_throughput(struct bench *b, struct error *err)
{
    const struct bench_options *o = b->options;
    struct bench_run run = {0};
    struct totals t = {.input = 0};
    enum status status = warm_up(b, err);
    if (status == STATUS_OK)
        status = bench_run_create(o->num_prompts, o->input_len, o->output_len,
                                  engine_pool_info(b->pool)->config->spec.vocab_size, &b->random, &run, err);
    run.synthetic = o->synthetic;
    engine_pool_stats(b->pool, &b->before);
    for (int32_t i = 0; i < o->num_iters && status == STATUS_OK; i++) {
        engine_pool_reset_prefix_cache(b->pool);
        status = bench_run_execute(&run, b->pool, err);
        if (status == STATUS_OK) add_up(&t, &run);
    }
    if (status == STATUS_OK) report_throughput(b, &t, &run);
    bench_run_free(&run);
    free_totals(&t);
    return status;
}
