#include "runtime/bench/bench.h"

#include <math.h>
#include <string.h>

/* Random requests whose prompts begin with the same `prefix` [prefix_len]. */
static enum status create_sharing(struct bench *b, int32_t count, const int32_t *prefix, struct bench_run *run,
                                  struct error *err)
{
    const struct bench_options *o = b->options;
    const struct bench_range lengths = {o->prefix_len + o->input_len.minimum, o->prefix_len + o->input_len.maximum};
    enum status status = bench_run_create(count, lengths, o->output_len,
                                          engine_pool_info(b->pool)->config->spec.vocab_size, &b->random, run, err);
    for (int32_t i = 0; status == STATUS_OK && i < count; i++)
        memcpy(run->requests[i].prompt, prefix, (size_t)o->prefix_len * sizeof *prefix);
    return status;
}

struct cache_result {
    struct samples cold, cached; /* time to first token of a prompt alone, seconds */
    struct samples cold_ms, cached_ms;
    int64_t cached_tokens; /* of the last cached prompt */
    int32_t peak_blocks;
    int64_t unshared_blocks;
    double seconds; /* all prompts at once */
};

/* Times one prompt with an empty cache, and then another one with the same prefix. */
static enum status measure_pair(struct bench *b, const int32_t *prefix, bool record, struct cache_result *result,
                                struct error *err)
{
    engine_pool_reset_prefix_cache(b->pool);
    for (int pass = 0; pass < 2; pass++) {
        struct bench_run run;
        enum status status = create_sharing(b, 1, prefix, &run, err);
        if (status != STATUS_OK) return status;
        status = bench_run_execute(&run, b->pool, err);
        const double seconds = run.requests[0].first - run.requests[0].added;
        if (record) samples_add(pass ? &result->cached : &result->cold, seconds);
        if (record) samples_add(pass ? &result->cached_ms : &result->cold_ms, 1e3 * seconds);
        result->cached_tokens = run.requests[0].cached_tokens;
        bench_run_free(&run);
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

/* Runs all prompts at once, from an empty cache. */
static enum status measure_blocks(struct bench *b, const int32_t *prefix, struct cache_result *result,
                                  struct error *err)
{
    struct bench_run run;
    enum status status = create_sharing(b, b->options->num_prompts, prefix, &run, err);
    if (status != STATUS_OK) return status;
    engine_pool_reset_prefix_cache(b->pool);
    status = bench_run_execute(&run, b->pool, err);
    result->peak_blocks = run.peak_blocks;
    result->unshared_blocks = run.peak_unshared;
    result->seconds = run.seconds;
    bench_run_free(&run);
    return status;
}

static void report_cache(struct bench *b, const struct cache_result *result)
{
    struct report *r = &b->report;
    const double cold = samples_percentile(&result->cold, 50), cached = samples_percentile(&result->cached, 50);
    report_integer(r, "num_prompts", "prompts", b->options->num_prompts);
    report_integer(r, "prefix_len", "tokens they share", b->options->prefix_len);
    report_integer(r, "cached_tokens", "of those found in the cache", result->cached_tokens);
    report_integer(r, "peak_blocks", "most blocks in use", result->peak_blocks);
    report_integer(r, "unshared_blocks", "blocks without sharing", result->unshared_blocks);
    report_number(r, "blocks_ratio", "less by a factor of",
                  result->peak_blocks ? (double)result->unshared_blocks / result->peak_blocks : NAN, "");
    report_number(r, "duration", "all prompts at once", result->seconds, "s");
    report_number(r, "ttft_ratio", "first token sooner by a factor of", cold / cached, "");
    report_runs(r, "ttft_cold", "time to first token, cold", &result->cold_ms, "ms", "lower");
    report_runs(r, "ttft_cached", "time to first token, cached", &result->cached_ms, "ms", "lower");
    report_milliseconds(r, "ttft_cold", "time to first token, cold", &result->cold);
    report_milliseconds(r, "ttft_cached", "time to first token, cached", &result->cached);
}

enum status bench_cache(struct bench *b, struct error *err)
{
    const struct bench_options *o = b->options;
    const struct bench_range length = {o->prefix_len, o->prefix_len}, one = {1, 1};
    struct cache_result result = {0};
    struct bench_run prefix; /* one request, whose prompt is the shared prefix */
    enum status status =
        bench_run_create(1, length, one, engine_pool_info(b->pool)->config->spec.vocab_size, &b->random, &prefix, err);
    if (status != STATUS_OK) return status;
    const int32_t *tokens = prefix.requests[0].prompt;
    for (int32_t i = -o->num_iters_warmup; i < o->num_iters && status == STATUS_OK; i++)
        status = measure_pair(b, tokens, i >= 0, &result, err);
    if (status == STATUS_OK) status = measure_blocks(b, tokens, &result, err);
    if (status == STATUS_OK) report_cache(b, &result);
    samples_free(&result.cold);
    samples_free(&result.cached);
    samples_free(&result.cold_ms);
    samples_free(&result.cached_ms);
    bench_run_free(&prefix);
    return status;
}
