#include "runtime/bench/bench.h"
#include "runtime/bench/kernels.h"
#include "runtime/engine/loaded_model.h"

/* `speeds`: prompt tokens a second of each prompt. */
static enum status measure(struct bench *b, struct samples *seconds, struct samples *speeds, int64_t *tokens,
                           struct error *err)
{
    const struct bench_options *o = b->options;
    const struct bench_range one = {1, 1};
    enum status status = STATUS_OK;
    for (int32_t i = -o->num_iters_warmup; i < o->num_iters && status == STATUS_OK; i++) {
        struct bench_run run;
        status = bench_run_create(1, o->input_len, one, engine_pool_info(b->pool)->config->spec.vocab_size, &b->random,
                                  &run, err);
        if (status != STATUS_OK) return status;
        engine_pool_reset_prefix_cache(b->pool);
        status = bench_run_execute(&run, b->pool, err);
        if (status == STATUS_OK && i >= 0) {
            const double elapsed = run.requests[0].first - run.requests[0].added;
            samples_add(seconds, elapsed);
            samples_add(speeds, run.requests[0].prompt_len / elapsed);
            *tokens += run.requests[0].prompt_len;
        }
        bench_run_free(&run);
    }
    return status;
}

/* Floating-point operations of the matmuls of so many prompts of `tokens` in all. In the last layer only q, k and v are
 * computed for every token; the rest of that layer, and the logits, only for the last token of each prompt. */
static double matmul_operations(const struct bench_matmuls *m, int32_t num_layers, int64_t prompts, int64_t tokens)
{
    double elements[NUM_MATMULS], layer = 0;
    for (int i = 0; i < NUM_MATMULS; i++) {
        elements[i] = (double)m->out_features[i] * (double)m->in_features[i];
        if (i != MATMUL_LM_HEAD) layer += elements[i];
    }
    const double after_qkv = layer - elements[MATMUL_QKV];
    const double of_tokens = num_layers * layer - after_qkv, of_prompts = after_qkv + elements[MATMUL_LM_HEAD];
    return 2 * (of_tokens * (double)tokens + of_prompts * (double)prompts);
}

/* Prefill is bound by its matmuls: compares it with the fastest of them alone, with as many tokens. */
static void report_matmuls(struct bench *b, const struct bench_matmuls *matmuls, double speed)
{
    const struct engine_info *info = engine_pool_info(b->pool);
    const struct bench_options *o = b->options;
    const int32_t most = info->limits->max_num_tokens;
    struct bench_sizes sizes = bench_sizes_of(&info->config->spec);
    struct backend *backend;
    struct error ignored; /* without memory for the measurement the comparison is left out */
    double alone = 0;
    report_number(&b->report, "prefill_gflops", "matmuls", speed / 1e9, "GFLOP/s");
    if (open_device(info->device, info->threads, o->engine.cpu_isa, NULL, &backend, &ignored) != STATUS_OK) return;
    sizes.block_size = info->limits->block_size;
    sizes.weights = info->config->spec.dtype;
    sizes.activations = info->memory->dtype;
    const int32_t num_tokens = o->input_len.maximum < most ? o->input_len.maximum : most;
    if (bench_matmul_speed(backend, &sizes, matmuls, num_tokens, &alone, &ignored) == STATUS_OK) {
        report_number(&b->report, "matmul_gflops", "one alone runs at", alone / 1e9, "GFLOP/s");
        report_number(&b->report, "prefill_matmul_percent",
                      speed > alone ? "of that; above 100, the caches hold what the one alone reads from memory"
                                    : "of that",
                      100 * speed / alone, "%");
    }
    backend->destroy(backend);
}

enum status bench_prefill(struct bench *b, struct error *err)
{
    const struct model_spec *spec = &engine_pool_info(b->pool)->config->spec;
    struct bench_matmuls matmuls;
    struct samples seconds = {0}, speeds = {0};
    int64_t tokens = 0;
    enum status status = bench_matmuls_of(spec, &matmuls, err);
    if (status == STATUS_OK) status = measure(b, &seconds, &speeds, &tokens, err);
    if (status == STATUS_OK) {
        struct report *r = &b->report;
        const double total = samples_mean(&seconds) * (double)seconds.count;
        const double operations = matmul_operations(&matmuls, spec->num_layers, (int64_t)seconds.count, tokens);
        report_integer(r, "num_iters", "prompts", (int64_t)seconds.count);
        report_integer(r, "total_input_tokens", "prompt tokens", tokens);
        report_number(r, "prefill_throughput", NULL, (double)tokens / total, "tokens/s");
        report_runs(r, "prefill_throughput", "prefill", &speeds, "tokens/s", "higher");
        report_matmuls(b, &matmuls, operations / total);
        report_milliseconds(r, "ttft", "time to first token", &seconds);
    }
    samples_free(&seconds);
    samples_free(&speeds);
    return status;
}
