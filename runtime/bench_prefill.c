#include "runtime/bench.h"

static enum status measure(struct bench *b, struct samples *seconds, int64_t *tokens, struct error *err)
{
    const struct bench_options *o = b->options;
    const struct bench_range one = {1, 1};
    enum status status = STATUS_OK;
    for (int32_t i = -o->num_iters_warmup; i < o->num_iters && status == STATUS_OK; i++) {
        struct bench_run run;
        status =
            bench_run_create(1, o->input_len, one, engine_model_config(b->engine)->vocab_size, &b->random, &run, err);
        if (status != STATUS_OK) return status;
        engine_reset_prefix_cache(b->engine);
        status = bench_run_execute(&run, b->engine, err);
        if (status == STATUS_OK && i >= 0) {
            samples_add(seconds, run.requests[0].first - run.requests[0].added);
            *tokens += run.requests[0].prompt_len;
        }
        bench_run_free(&run);
    }
    return status;
}

enum status bench_prefill(struct bench *b, struct error *err)
{
    struct samples seconds = {0};
    int64_t tokens = 0;
    enum status status = measure(b, &seconds, &tokens, err);
    if (status == STATUS_OK) {
        struct report *r = &b->report;
        const double total = samples_mean(&seconds) * (double)seconds.count;
        const double flops = bench_prefill_flops(b->engine, tokens);
        report_integer(r, "num_iters", "prompts", (int64_t)seconds.count);
        report_integer(r, "total_input_tokens", "prompt tokens", tokens);
        report_number(r, "prefill_throughput", "prefill", (double)tokens / total, "tokens/s");
        report_number(r, "prefill_gflops", "matrix products", flops / total / 1e9, "GFLOP/s");
        report_milliseconds(r, "ttft", "time to first token", &seconds);
    }
    samples_free(&seconds);
    return status;
}
