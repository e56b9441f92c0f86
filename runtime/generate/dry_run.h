/* quire generate --dry-run: what a run would read and, about, how long it would take. */
#ifndef QUIRE_RUNTIME_DRY_RUN_H
#define QUIRE_RUNTIME_DRY_RUN_H

#include "runtime/engine/engine_pool.h"
#include "runtime/inputs.h"
#include "runtime/prompts/prompt.h"

struct dry_run_options {
    const struct engine_options *engine;
    const struct input_list *input;
    struct prompt_options prompts;
};

/* Reads all lines with the tokenizer and config.json, and names the bad ones on stderr. Then it opens the model, to
 * measure its speed with some of the prompts, and prints what it counted on stdout. A model that cannot be opened costs
 * only the estimate. Returns the command's exit status: EXIT_STATUS_FAILURE if a line is bad. */
int dry_run(const struct dry_run_options *options);

/* How fast engines read prompts and write answers, measured with some of the prompts that they will get. */
struct speed {
    double prompt_tokens, output_tokens; /* a second; 0: not measured */
    size_t num_prompts;                  /* that ran at once */
};

/* Runs 1, 2, 4, ... of prompts[count], each with a few tokens of an answer, until all run at once or some seconds have
 * passed, and reports the last of these runs. A prompt that the engine refuses is left out. Takes at least as long as
 * one prompt does. The engines must have no other requests. */
enum status speed_trial(struct engine_pool *p, const struct prompt *prompts, size_t count, struct speed *out,
                        struct error *err);

#endif
