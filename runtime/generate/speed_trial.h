/* How fast an engine reads prompts and writes answers, measured with some of the prompts that it will get. */
#ifndef QUIRE_RUNTIME_SPEED_TRIAL_H
#define QUIRE_RUNTIME_SPEED_TRIAL_H

#include "runtime/prompts/prompt.h"

struct speed {
    double prompt_tokens, output_tokens; /* a second; 0: not measured */
    size_t num_prompts;                  /* that ran at once */
};

/* Runs 1, 2, 4, ... of prompts[count], each with a few tokens of an answer, until all run at once or some seconds have
 * passed, and reports the last of these runs. A prompt that the engine refuses is left out. Takes at least as long as
 * one prompt does. The engine must have no other requests. */
enum status speed_trial(struct engine *e, const struct prompt *prompts, size_t count, struct speed *out,
                        struct error *err);

#endif
