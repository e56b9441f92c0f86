/* Runs a set of requests through engines and records the time of every token and every step. Prints nothing. */
#ifndef QUIRE_RUNTIME_BENCH_RUN_H
#define QUIRE_RUNTIME_BENCH_RUN_H

#include "base/random.h"
#include "runtime/engine/engine_pool.h"

/* All times are clock_seconds(). */
struct bench_request {
    int32_t *prompt; /* [prompt_len] */
    int32_t prompt_len, output_len;
    double added, first, last; /* times: queued, first token, last token */
    int32_t output_tokens, cached_tokens;
    size_t last_step; /* that gave it tokens */
};

/* One engine_pool_step. */
struct bench_step {
    double seconds;
    int32_t first_tokens, next_tokens; /* tokens delivered: the first ones of their requests, and later ones */
    int32_t decodes;                   /* requests that got later ones */
    int64_t context;                   /* tokens whose K and V were read for them, in all */
};

struct bench_run {
    struct bench_request *requests; /* [count] */
    int32_t count;
    bool synthetic;           /* every sample draws SYNTHETIC_TOKEN */
    struct bench_step *steps; /* [num_steps] */
    size_t num_steps, steps_capacity;
    double seconds;           /* from the first request queued to the last token */
    int32_t peak_blocks;      /* the most blocks in use after a step */
    int64_t peak_unshared;    /* the most that the same sequences would take without sharing */
    struct error first_error; /* of a request that ended with an error */
    bool failed;
};

/* Lengths of random requests: inclusive bounds. */
struct bench_range {
    int32_t minimum, maximum;
};

/* Makes `count` requests of random token ids below vocab_size, their lengths drawn from the ranges. *random is the
 * state of the generator: the same state gives the same requests. */
enum status bench_run_create(int32_t count, struct bench_range input_len, struct bench_range output_len,
                             int32_t vocab_size, struct random *random, struct bench_run *run, struct error *err);
void bench_run_free(struct bench_run *run);

/* Queues every request at once (greedy, eos ignored, so that each gets exactly its output_len tokens) and steps until
 * all have ended. CANCELLED: a signal asked for the end. A second call overwrites what the first recorded. */
enum status bench_run_execute(struct bench_run *run, struct engine_pool *p, struct error *err);

#endif
