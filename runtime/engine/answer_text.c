#include "runtime/engine/answer_text.h"

#include <stdlib.h>
#include <string.h>

size_t answer_text_buffer_size(const struct tokenizer *tokenizer)
{
    /* Less than one stop string is held back; one token and the end of the text add to it. */
    return SAMPLING_PARAMS_MAX_STOP_BYTES + 2 * detokenizer_max_bytes(tokenizer_tokens(tokenizer));
}

bool answer_text_init(struct answer_text *t, const struct tokenizer *tokenizer, const struct sampling_params *params,
                      char *buffer, bool at_start)
{
    size_t longest = 0;
    *t = (struct answer_text){.params = params, .buffer = buffer, .stop = -1};
    detokenizer_init(&t->detokenizer, tokenizer_tokens(tokenizer), at_start, !params->skip_special_tokens);
    for (int i = 0; i < params->num_stop; i++) {
        const size_t length = strlen(params->stop[i]);
        if (length > longest) longest = length;
    }
    if (longest > 0) t->held = malloc(longest);
    return t->held || longest == 0;
}

void answer_text_free(struct answer_text *t)
{
    free(t->held);
    t->held = NULL;
}

/* The earliest place in the buffer where a stop string begins, or NULL. */
static const char *find_stop(struct answer_text *t, size_t length)
{
    const char *found = NULL;
    for (int i = 0; i < t->params->num_stop; i++) {
        const char *stop = t->params->stop[i];
        const char *at = memmem(t->buffer, length, stop, strlen(stop));
        if (at && (!found || at < found)) {
            found = at;
            t->stop = i;
        }
    }
    return found;
}

/* How many bytes at the end of the buffer may be the beginning of a stop string. */
static size_t undecided(const struct answer_text *t, size_t length)
{
    size_t longest = 0;
    for (int i = 0; i < t->params->num_stop; i++) {
        const size_t stop_length = strlen(t->params->stop[i]);
        size_t n = stop_length - 1 < length ? stop_length - 1 : length;
        while (n > longest && memcmp(t->buffer + length - n, t->params->stop[i], n) != 0) n--;
        if (n > longest) longest = n;
    }
    return longest;
}

/* Begins the buffer with what was held back. Returns the number of bytes. */
static size_t take_held(struct answer_text *t)
{
    const size_t count = t->num_held;
    if (count > 0) memcpy(t->buffer, t->held, count);
    t->num_held = 0;
    return count;
}

const char *answer_text_add(struct answer_text *t, int32_t token, bool may_stop, bool last, size_t *length)
{
    size_t count = take_held(t);
    count += detokenizer_add(&t->detokenizer, token, t->buffer + count);
    const char *stop = may_stop ? find_stop(t, count) : NULL;
    if (stop) {
        count = (size_t)(stop - t->buffer);
        if (t->params->include_stop_str_in_output) count += strlen(t->params->stop[t->stop]);
    } else if (last) {
        count += detokenizer_finish(&t->detokenizer, t->buffer + count);
    } else if (may_stop) {
        t->num_held = undecided(t, count);
        count -= t->num_held;
        if (t->num_held > 0) memcpy(t->held, t->buffer + count, t->num_held);
    }
    *length = count;
    return t->buffer;
}

const char *answer_text_finish(struct answer_text *t, size_t *length)
{
    const size_t count = take_held(t);
    *length = count + detokenizer_finish(&t->detokenizer, t->buffer + count);
    return t->buffer;
}
