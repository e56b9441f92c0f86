/* quire profile: the options, and the part that runs prompts. */
#ifndef QUIRE_RUNTIME_PROFILE_H
#define QUIRE_RUNTIME_PROFILE_H

#include <jansson.h>

#include "runtime/engine/engine.h"
#include "runtime/inputs.h"
#include "runtime/options/sampling_flags.h"
#include "runtime/profile/profile_run.h"

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

/* Runs the prompts of `input`, which is options->input opened; all are queued at once. A line that is no prompt is said
 * on stderr, counted, and skipped. With `rows` each row of run->series is printed on stdout as it comes. *run is zeroed
 * on entry; free it with profile_run_free either way. */
enum status profile_run_prompts(struct profile_run *run, struct engine *e, struct profile_options *options,
                                struct inputs *input, bool rows, struct error *err);

/* INVALID, with how many and the first one's sentence: a line was no prompt, or a request ended with an error. */
enum status profile_run_failed(const struct profile_run *run, struct error *err);

#endif
