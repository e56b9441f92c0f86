/* quire profile: the options, a run of prompts, and what happened while they were answered. */
#ifndef QUIRE_RUNTIME_PROFILE_H
#define QUIRE_RUNTIME_PROFILE_H

#include <jansson.h>

#include "runtime/engine/engine.h"
#include "runtime/inputs.h"
#include "runtime/options/sampling_flags.h"
#include "runtime/profile/series.h"
#include "runtime/prompts/prompt.h"
#include "runtime/report.h"

struct profile_options {
    struct engine_options engine;
    struct log log; /* engine.log, which is told of the progress line */
    struct sampling_flags sampling;
    struct input_list input;     /* prompts to run; may be empty */
    const char *word;            /* the same beside the flags; or NULL */
    int32_t every;               /* a row for every so many steps */
    const char *format;          /* of input: "auto", "text", "jsonl" */
    const char *csv, *svg, *png; /* files to write, or NULL */
    int plot;                    /* 1, 0; -1: on a terminal */
    bool json, steps, plan, fail_if_preempted;
    bool as_chat; /* plain texts are questions */
};

/* One prompt, and the progress of its answers. */
struct profiled {
    struct prompt prompt;
    const char *file;       /* its name in sentences */
    int64_t line;           /* of that file, from 1 */
    int32_t *output_tokens; /* [n] of each answer */
    double *last_token;     /* [n] when each got its last token: clock_seconds() */
    struct profile_run *run;
};

struct profile_run {
    struct profiled *requests; /* [count] */
    size_t count, capacity;
    int32_t block_size;
    int64_t num_bad_lines;                /* that were no prompt, or that the engine refused; each was said on stderr */
    int64_t num_unread;                   /* of those, the former: `requests` has them not */
    int64_t prompt_tokens, output_tokens; /* of requests that the engine took; so far */
    int64_t num_ended, num_aborted;       /* requests; the latter are not among the former */
    int32_t num_errors;                   /* requests that ended with one */
    struct error first_error;             /* the first of those, or of the bad lines */
    struct samples gaps;                  /* seconds between two tokens of an answer */
    /* After a step: the most requests of each state, the most blocks in use and what of them was filled then,
     * and the most blocks that the same sequences would take without sharing. */
    int32_t most_running, most_waiting, most_swapped;
    int32_t peak_slots; /* state slots held by sequences */
    int32_t peak_blocks;
    double peak_blocks_filled; /* the sum of the filled parts of these blocks, each from 0 to 1 */
    int64_t peak_unshared;
    int64_t most_step_tokens;
    struct series series;
    struct scheduler_stats stats; /* at the end */
    int32_t *lengths;             /* [num_lengths] tokens of each answer's sequence with K and V, once it has ended */
    size_t num_lengths;
};

void profile_run_free(struct profile_run *run); /* safe on a zeroed struct */

/* Runs the prompts of `input`, which is options->input opened; all are queued at once. A line that is no prompt is said
 * on stderr, counted, and skipped. With `rows` each row of run->series is printed on stdout as it comes. *run is zeroed
 * on entry; free it with profile_run_free either way. */
enum status profile_run_prompts(struct profile_run *run, struct engine *e, struct profile_options *options,
                                struct inputs *input, bool rows, struct error *err);

/* INVALID, with how many and the first one's sentence: a line was no prompt, or a request ended with an error. */
enum status profile_run_failed(const struct profile_run *run, struct error *err);

/* The numbers of a run for people and programs. */
void profile_summary(struct report *r, const struct profile_run *run, const struct engine_info *info);
/* What the run's sequences would reserve in contiguous caches: prints a table on stdout. False if it could not be
 * written. And as an array of objects; NULL if memory ran out. */
bool reservations_print(const struct profile_run *run, const struct engine *e);
json_t *reservations_json(const struct profile_run *run, const struct engine *e);

#endif
