/* The text of one answer while it is made: token ids through the streaming detokenizer, and stop strings. Text that
 * could be the beginning of a stop string is held back until it is known not to be. All memory is taken at the start.
 */
#ifndef QUIRE_RUNTIME_ANSWER_TEXT_H
#define QUIRE_RUNTIME_ANSWER_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "scheduler/sampling_params.h"
#include "tokenizer/detokenizer.h"

struct answer_text {
    struct detokenizer detokenizer;
    const struct sampling_params *params; /* stop, include_stop_str_in_output; outlives the answer */
    char *held;                           /* [capacity] text not given out yet */
    size_t length, capacity;
    size_t released; /* bytes of `held` that the last call gave out; dropped by the next one */
    int stop;        /* index of the stop string that was found, or -1 */
};

/* at_start: see detokenizer_init. False when memory ran out. */
bool answer_text_init(struct answer_text *t, const struct tokenizer *tokenizer, const struct sampling_params *params,
                      bool at_start);
void answer_text_free(struct answer_text *t); /* safe on a zeroed struct */

/* Adds a token. Returns the text that is certain now, [*length] bytes, valid until the next call. When a stop string is
 * complete t->stop says which, the text ends before it (or with it, include_stop_str_in_output) and nothing may follow.
 * Stop strings are not looked for while may_stop is false (min_tokens). With `last` the answer ends with this token and
 * nothing is held back. */
const char *answer_text_add(struct answer_text *t, int32_t token, bool may_stop, bool last, size_t *length);
/* The answer ended without a token (it was aborted): returns everything held back. */
const char *answer_text_finish(struct answer_text *t, size_t *length);

#endif
