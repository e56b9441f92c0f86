/* quire bench NAME: what its parts share. */
#ifndef QUIRE_RUNTIME_BENCH_H
#define QUIRE_RUNTIME_BENCH_H

#include "runtime/bench/report.h"
#include "runtime/bench/run.h"

struct bench_options {
    struct engine_options engine;
    struct bench_range input_len, output_len; /* tokens of a prompt, of an answer */
    int32_t batch_size;                       /* latency: requests at once */
    int32_t num_prompts;                      /* throughput, cache: requests in all */
    int32_t prefix_len;                       /* cache: tokens that all prompts share, before input_len of their own */
    int32_t num_iters, num_iters_warmup;
    bool json;
};

struct bench {
    const struct bench_options *options;
    struct engine *engine;
    struct random random;
    struct report report;
};

/* Each measures, and puts what it found into b->report. */
typedef enum status bench_function(struct bench *b, struct error *err);
bench_function bench_latency;    /* one batch: time to first token, time per output token */
bench_function bench_throughput; /* many requests of different lengths, all queued at once */
bench_function bench_prefill;    /* prompts alone, one at a time */
bench_function bench_cache;      /* prompts that begin alike: blocks shared, and time saved */

/* Bytes that a decode step must read: the weights once (of an embedding only rows are read, unless it is the output
 * matrix too), and the K and V of `context` tokens. */
double bench_decode_bytes(const struct engine *e, int64_t steps, int64_t context);
/* Floating-point operations of the matrix products of so many prompts of `tokens` in all. Of the last layer only q, k
 * and v are of every token; the rest of it, and logits, are of a prompt's last. */
double bench_prefill_flops(const struct engine *e, int64_t prompts, int64_t tokens);

#endif
