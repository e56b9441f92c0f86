/* quire profile: the options, and the part that runs prompts. */
#ifndef QUIRE_RUNTIME_PROFILE_H
#define QUIRE_RUNTIME_PROFILE_H

#include <jansson.h>

#include "runtime/engine/engine.h"
#include "runtime/inputs.h"
#include "runtime/options/sampling_flags.h"

struct profile_options {
    struct engine_options engine;
    struct sampling_flags sampling;
    struct input_list input; /* prompts to run; may be empty */
    int32_t every;           /* a row for every so many steps */
    const char *format;      /* of input: "auto", "text", "jsonl" */
    bool json;
};

/* Runs the prompts of `input`, which is options->input opened. All are queued at once. After each step a row of a table
 * on stdout says how many blocks are in use, cached and free; a summary follows. With options->json nothing is printed:
 * "steps" and "summary" are added to `json`. */
enum status profile_prompts(struct engine *e, const struct profile_options *options, struct inputs *input, json_t *json,
                            struct error *err);

#endif
