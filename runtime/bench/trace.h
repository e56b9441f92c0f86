/* Drives a scheduler as the engine does, one or two steps in flight, but without a model: the tokens that a step
 * samples are drawn at random. Times the scheduler's own functions and nothing else. */
#ifndef QUIRE_RUNTIME_BENCH_TRACE_H
#define QUIRE_RUNTIME_BENCH_TRACE_H

#include "base/random.h"
#include "scheduler/scheduler.h"

struct trace_request {
    struct request *request; /* NULL: it has ended */
    int32_t answer_len;      /* an eos is its last token */
};

struct trace {
    struct scheduler *scheduler;
    struct batch batch;
    struct random random;
    struct trace_request *requests; /* [num_requests] */
    int32_t num_requests, capacity, max_in_flight;
    struct trace_request **running; /* [max_num_seqs] by state index */
    int32_t *samples[2];            /* of the steps in flight, a ring: [num_samples] */
    int32_t num_samples[2], oldest;
    /* Time in scheduler_schedule and in scheduler_collect, and the steps that they made. The caller sets them back. */
    double schedule_seconds, collect_seconds;
    int64_t steps;
};

/* A scheduler of the default configuration with these limits, for at most max_requests requests. */
enum status trace_init(struct trace *t, const struct batch_limits *limits, int32_t num_blocks, int32_t max_requests,
                       int32_t max_in_flight, struct error *err);
void trace_free(struct trace *t); /* with its requests; safe on a zeroed struct */

/* Creates a request whose answer has answer_len tokens, which the scheduler does not know: it makes room for
 * max_tokens. *out may be NULL. */
enum status trace_create(struct trace *t, const int32_t *prompt, int32_t prompt_len, int32_t answer_len,
                         int32_t max_tokens, struct request **out, struct error *err);
/* Creates and queues it. */
enum status trace_add(struct trace *t, const int32_t *prompt, int32_t prompt_len, int32_t answer_len,
                      int32_t max_tokens, struct error *err);

/* Schedules until max_in_flight steps are in flight, or nothing can be scheduled, and collects one. */
enum status trace_step(struct trace *t, struct error *err);
/* Steps until no request is left. */
enum status trace_finish(struct trace *t, struct error *err);

/* Random tokens, never the eos. */
void trace_draw(struct random *random, int32_t *tokens, int32_t count);

#endif
