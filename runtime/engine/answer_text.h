/* The text of one answer: token ids go through the streaming detokenizer, and stop strings end it. Text that may be the
 * beginning of a stop string is held back until the tokens after it decide. Nothing is allocated after
 * answer_text_init, and an answer without stop strings has no memory of its own. */
#ifndef QUIRE_RUNTIME_ANSWER_TEXT_H
#define QUIRE_RUNTIME_ANSWER_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "scheduler/sampling_params.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/tokenizer.h"

struct answer_text {
    struct detokenizer detokenizer;
    const struct sampling_params *params; /* stop, include_stop_str_in_output; outlives the answer */
    char *buffer;                         /* where text is put together; any number of answers share it */
    char *held;                           /* [num_held] text that was not returned yet: less than a stop string */
    size_t num_held;
    int stop; /* index of the stop string that was found, or -1 */
};

/* Bytes of a buffer for answers of this tokenizer. */
size_t answer_text_buffer_size(const struct tokenizer *tokenizer);

/* `params` and `buffer` are referred to; at_start: see detokenizer_init. False if memory ran out. */
bool answer_text_init(struct answer_text *t, const struct tokenizer *tokenizer, const struct sampling_params *params,
                      char *buffer, bool at_start);
void answer_text_free(struct answer_text *t); /* safe on a zeroed struct */

/* Adds a token. Returns the text that is certain now, [*length] bytes in the buffer, valid until a call of any answer
 * that shares it. If the token completes a stop string, t->stop says which, the text ends before it (with
 * include_stop_str_in_output: after it), and no token may follow. While may_stop is false (min_tokens), stop strings
 * are not searched for. `last`: the answer ends with this token, and nothing is held back. */
const char *answer_text_add(struct answer_text *t, int32_t token, bool may_stop, bool last, size_t *length);
/* For an answer that ends without a token (it was aborted): returns everything that was held back. */
const char *answer_text_finish(struct answer_text *t, size_t *length);

#endif
