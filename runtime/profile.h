/* quire profile: what its two parts share. */
#ifndef QUIRE_RUNTIME_PROFILE_H
#define QUIRE_RUNTIME_PROFILE_H

#include <jansson.h>

#include "runtime/engine/engine.h"
#include "runtime/line_reader.h"
#include "runtime/options/sampling_flags.h"

struct profile_options {
    struct engine_options engine;
    struct sampling_flags sampling;
    const char *input;  /* prompts to run, or NULL */
    int32_t every;      /* one row for so many steps */
    const char *format; /* of input: "auto", "text", "jsonl" */
    bool json;
};

/* Runs the prompts that `input`, options->input opened, has, all queued at once, and says after each step who holds the
 * blocks: a table on stdout as the steps go by, then a summary; with options->json nothing is printed, and "steps" and
 * "summary" are put into `json`. */
enum status profile_prompts(struct engine *e, const struct profile_options *options, struct line_reader *input,
                            json_t *json, struct error *err);

#endif
