/* quire bench NAME: what the benchmarks share, and those that run an engine. */
#ifndef QUIRE_RUNTIME_BENCH_H
#define QUIRE_RUNTIME_BENCH_H

#include "runtime/bench/run.h"
#include "runtime/bench/drafts.h"
#include "runtime/options/command.h"
#include "runtime/report.h"

/* Benchmarks without an engine: of the scheduler, on traces of random tokens; of grammars; and of single kernels
 * (kernels.h). */
extern const struct command bench_scheduler, bench_grammar;

/* quire bench --compare A.json B.json: two results of the same benchmark; argv[0] is "--compare". Prints a row for each
 * figure that both files have: the medians, their ratio and the spread. A difference counts where the ranges of the
 * runs, from the smallest to the largest, have nothing in common. Returns the exit status. */
int bench_compare(int argc, char **argv);

/* A flag that counts something. */
struct option_spec bench_count_flag(const char *name, int32_t *target, int minimum, int maximum, const char *help);

/* Adds what computes to the JSON: benchmark, model and device, and of a CPU (isa not NULL) threads and instruction set,
 * which words[40] gets for the title: " (2 threads, avx2)", or "". */
void bench_report_device(struct report *r, const char *benchmark, const char *model, const char *device, int threads,
                         const char *isa, char words[40]);
/* Adds the build and the machine as lines to the title, and the same facts to the JSON. `gpu`: the device that
 * computes, "cuda:0"; NULL: none does. */
void bench_report_machine(struct report *r, const char *gpu);

struct bench_options {
    struct engine_options engine;
    struct bench_range input_len, output_len; /* tokens of a prompt, of an answer */
    int32_t batch_size;                       /* latency: requests at once */
    int32_t num_prompts;                      /* throughput, cache: requests in all */
    int32_t prefix_len;                       /* cache: tokens that all prompts share, before input_len of their own */
    int32_t num_iters, num_iters_warmup;
    bool synthetic;              /* latency, throughput: every sample draws SYNTHETIC_TOKEN */
    double synthetic_acceptance; /* then: how probably a draft is accepted; below 0: there are no drafts */
    struct synthetic_drafter drafter;
    bool json;
    const struct benchmark *benchmark;
    struct log log; /* engine.log */
    struct {
        char input[128], output[128], iters[64];
    } help; /* texts that name a default, which the option table refers to */
};

struct bench {
    const struct bench_options *options;
    struct engine_pool *pool;
    double start_seconds; /* of engine_pool_create */
    struct random random;
    struct scheduler_stats before; /* when measuring began */
    struct report report;
};

/* ---- drafts (drafts.c) ---- */

struct option_spec bench_drafts_flag(struct bench_options *o);
/* After parsing: gives the engine the synthetic drafter if it is asked for. */
enum status bench_drafts_add(struct bench_options *o, struct error *err);
void bench_drafts_setting(struct bench *b); /* a line of the title: how the requests are drafted for, if they are */
void bench_drafts_report(struct bench *b);  /* what became of drafts since `before`, if there were any */

/* Each runs its benchmark and puts the results into b->report. */
typedef enum status bench_function(struct bench *b, struct error *err);
bench_function bench_latency;    /* one batch: time to first token, time per output token */
bench_function bench_throughput; /* many requests of different lengths, all queued at once */
bench_function bench_prefill;    /* prompts alone, one at a time */
bench_function bench_cache;      /* prompts that begin alike: blocks shared, and time saved */

#endif
