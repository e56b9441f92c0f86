#include <math.h>
#include "runtime/bench/bench.h"

#include "model/layer_cache.h"
#include "runtime/bench/device.h"

struct latency {
    struct samples first;                 /* time to first token of each request */
    struct samples token;                 /* time per output token after the first, of each request */
    struct samples step;                  /* steps that did nothing but decode the whole batch */
    struct samples request;               /* from queued to the last token, of each request */
    struct samples batch;                 /* the whole batch: of each iteration, as the next two */
    struct samples first_run, decode_run; /* mean time to first token in ms; output tokens a second while decoding */
    double decode_seconds, decode_bytes;
    int64_t decode_tokens;
};

static void add_requests(struct latency *l, const struct bench_run *run)
{
    double first = 0;
    for (int32_t i = 0; i < run->count; i++) {
        const struct bench_request *r = &run->requests[i];
        first += r->first - r->added;
        samples_add(&l->first, r->first - r->added);
        samples_add(&l->request, r->last - r->added);
        if (r->output_tokens > 1) samples_add(&l->token, (r->last - r->first) / (r->output_tokens - 1));
    }
    samples_add(&l->batch, run->seconds);
    samples_add(&l->first_run, 1e3 * first / run->count);
}

/* The share of its experts that the layers of a model read for so many tokens, if each expert is as likely as another.
 */
static double experts_read(const struct model_spec *c, int32_t num_tokens)
{
    const struct layer_sizes s = model_spec_largest(c);
    return s.num_experts > 0 ? 1 - pow(1 - (double)s.top_k / s.num_experts, num_tokens) : 0;
}

/* Bytes that a decode step must read in all ranks together: the weights once, as they are in memory, of experts those
 * that tokens go to, and the K and V of what each layer attends to. The sequences have `context` tokens together. */
static double bytes_read(const struct engine_info *info, int64_t context, int32_t num_seqs)
{
    const struct model_spec *c = &info->config->spec;
    double cached = 0, experts = 0; /* of all layers; of all ranks */
    for (int32_t i = 0; i < c->num_layers; i++) {
        const struct layer_cache cache = layer_cache_of(&c->layers[i - c->layers[i].attention.shares_kv]);
        cached += (double)(layer_cache_tokens_read(&cache, context, num_seqs) *
                           layer_cache_token_bytes(&cache, info->memory->cache_dtype));
    }
    for (int32_t r = 0; r < info->num_ranks; r++) experts += (double)info->rank_memory[r].experts;
    return (double)info->decode_weight_bytes - (1 - experts_read(c, num_seqs)) * experts + cached;
}

static void add_steps(struct latency *l, const struct bench_run *run, const struct engine_info *info)
{
    double seconds = 0;
    int64_t tokens = 0;
    for (size_t i = 0; i < run->num_steps; i++) {
        const struct bench_step *step = &run->steps[i];
        if (step->first_tokens || step->decodes != run->count) continue;
        samples_add(&l->step, step->seconds);
        seconds += step->seconds;
        tokens += step->next_tokens;
        l->decode_bytes += bytes_read(info, step->context, run->count);
    }
    l->decode_seconds += seconds;
    l->decode_tokens += tokens;
    if (tokens > 0) samples_add(&l->decode_run, (double)tokens / seconds);
}

static enum status measure(struct bench *b, struct latency *l, struct error *err)
{
    const struct bench_options *o = b->options;
    enum status status = STATUS_OK;
    for (int32_t i = -o->num_iters_warmup; i < o->num_iters && status == STATUS_OK; i++) {
        struct bench_run run;
        status = bench_run_create(o->batch_size, o->input_len, o->output_len,
                                  engine_pool_info(b->pool)->config->spec.vocab_size, &b->random, &run, err);
        if (status != STATUS_OK) return status;
        run.synthetic = o->synthetic;
        if (i == 0) engine_pool_stats(b->pool, &b->before);
        engine_pool_reset_prefix_cache(b->pool);
        status = bench_run_execute(&run, b->pool, err);
        if (status == STATUS_OK && i >= 0) {
            add_requests(l, &run);
            add_steps(l, &run, engine_pool_info(b->pool));
        }
        bench_run_free(&run);
    }
    return status;
}

/* Decoding is bound by reading the weights: compares it with how fast memory can be read. A model that fits into the
 * processor's caches is faster than that. */
static void report_reading(struct bench *b, double speed)
{
    struct report *r = &b->report;
    report_number(r, "decode_read_gb_per_second", "weights and KV cache read", speed / 1e9, "GB/s");
    struct bench_read memory;
    struct error ignored; /* without memory for the measurement the comparison is left out */
    if (engine_pool_info(b->pool)->discrete) return;
    if (bench_host_read(engine_pool_info(b->pool)->threads, &memory, &ignored) != STATUS_OK) return;
    report_number(r, "memory_read_gb_per_second", "memory can be read at", memory.bytes_per_second / 1e9, "GB/s");
    report_number(r, "decode_read_percent",
                  speed > memory.bytes_per_second ? "of that; above 100, the caches hold a part of it" : "of that",
                  100 * speed / memory.bytes_per_second, "%");
}

static void report_latency(struct bench *b, const struct latency *l)
{
    struct report *r = &b->report;
    report_integer(r, "batch_size", "batch size", b->options->batch_size);
    report_integer(r, "num_iters", "times measured", b->options->num_iters);
    report_number(r, "avg_latency", NULL, samples_mean(&l->batch), "s");
    report_number(r, "decode_throughput", NULL, (double)l->decode_tokens / l->decode_seconds, "tokens/s");
    report_runs(r, "decode_throughput", "decode", &l->decode_run, "tokens/s", "higher");
    report_runs(r, "ttft", "time to first token", &l->first_run, "ms", "lower");
    report_runs(r, "latency", "latency of the batch", &l->batch, "s", "lower");
    if (l->decode_seconds > 0) report_reading(b, l->decode_bytes / l->decode_seconds);
    bench_drafts_report(b);
    report_milliseconds(r, "ttft", "time to first token", &l->first);
    report_milliseconds(r, "tpot", "time per output token", &l->token);
    report_milliseconds(r, "step", "decode step", &l->step);
    report_milliseconds(r, "e2el", "request, end to end", &l->request);
}

enum status bench_latency(struct bench *b, struct error *err)
{
    struct latency l = {0};
    enum status status = measure(b, &l, err);
    if (status == STATUS_OK) report_latency(b, &l);
    samples_free(&l.first);
    samples_free(&l.token);
    samples_free(&l.step);
    samples_free(&l.request);
    samples_free(&l.batch);
    samples_free(&l.first_run);
    samples_free(&l.decode_run);
    return status;
}
