/* What a server counts, and how Prometheus reads it
 * (https://prometheus.io/docs/instrumenting/exposition_formats/): names are vLLM's where the meaning is the same. */
#ifndef QUIRE_RUNTIME_METRICS_H
#define QUIRE_RUNTIME_METRICS_H

#include <pthread.h>
#include <stdint.h>

#include "base/array.h"
#include "runtime/engine/engine.h"
#include "runtime/prompts/api_writer.h"

enum metrics_histogram {
    METRICS_FIRST_TOKEN,   /* seconds from a request's arrival to the first token of a prompt */
    METRICS_BETWEEN,       /* seconds between two tokens of an answer */
    METRICS_END_TO_END,    /* seconds from a request's arrival to its end */
    METRICS_PROMPT_TOKENS, /* of a request */
    METRICS_OUTPUT_TOKENS, /* of a request */
    NUM_METRICS_HISTOGRAMS
};
enum { METRICS_MAX_BOUNDS = 24, METRICS_NUM_SLICES = 11, METRICS_MAX_ROUTES = 20 };

struct histogram {
    int64_t counts[METRICS_MAX_BOUNDS + 1]; /* of values up to each bound, and above the last */
    double sum;
};

/* Responses of one path. */
struct metrics_route {
    const char *path;
    int64_t counts[6]; /* by the first digit of the status */
};

struct metrics {
    pthread_mutex_t lock; /* of everything below */
    int64_t prompt_tokens, output_tokens, answers[FINISH_ERROR + 1];
    struct histogram histograms[NUM_METRICS_HISTOGRAMS];
    struct metrics_route routes[METRICS_MAX_ROUTES]; /* those that were answered, up to the first without a path */
    /* Tokens of the last second: each slice has those of a tenth, the index of which since the start is its number. */
    struct {
        int64_t number, tokens;
    } slices[METRICS_NUM_SLICES];
    double started; /* clock_seconds */
};

void metrics_init(struct metrics *m);
void metrics_destroy(struct metrics *m);

/* These may be called from any thread. Times are those of clock_seconds. */
void metrics_count_tokens(struct metrics *m, double now, int32_t count);
void metrics_observe(struct metrics *m, enum metrics_histogram which, double value);
void metrics_count_answer(struct metrics *m, enum finish_reason reason);
void metrics_count_usage(struct metrics *m, struct api_usage usage);          /* of a request that has ended */
void metrics_count_response(struct metrics *m, const char *path, int status); /* `path` is kept */
/* Output tokens of the ten whole tenths of a second before `now`. */
double metrics_tokens_per_second(struct metrics *m, double now);

/* What is not counted here, but asked for when metrics are read. */
struct metrics_facts {
    const char *model;
    const struct engine_info *engine;
    int64_t created; /* of the server, Unix time */
    struct scheduler_stats stats;
    int32_t num_waiting;     /* requests that no engine runs */
    int32_t num_connections; /* of HTTP */
};
/* Appends all metrics as text. False: memory ran out. */
bool metrics_write(struct metrics *m, const struct metrics_facts *facts, struct text *out);

#endif
