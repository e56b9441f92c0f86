#include "runtime/engine/answer_text.h"

#include <stdlib.h>
#include <string.h>

bool answer_text_init(struct answer_text *t, const struct tokenizer *tokenizer, const struct sampling_params *params,
                      bool at_start)
{
    *t = (struct answer_text){.params = params, .stop = -1};
    detokenizer_init(&t->detokenizer, tokenizer, at_start, !params->skip_special_tokens);
    /* Less than one stop string is held back; one token and the end of the text add to it. */
    t->capacity = SAMPLING_PARAMS_MAX_STOP_BYTES + 2 * detokenizer_max_bytes(tokenizer);
    t->held = malloc(t->capacity);
    return t->held != NULL;
}

void answer_text_free(struct answer_text *t)
{
    free(t->held);
    t->held = NULL;
}

static void drop_released(struct answer_text *t)
{
    memmove(t->held, t->held + t->released, t->length - t->released);
    t->length -= t->released;
    t->released = 0;
}

/* The earliest place where a stop string begins, or NULL. */
static const char *find_stop(struct answer_text *t)
{
    const char *found = NULL;
    for (int i = 0; i < t->params->num_stop; i++) {
        const char *stop = t->params->stop[i];
        const char *at = memmem(t->held, t->length, stop, strlen(stop));
        if (at && (!found || at < found)) {
            found = at;
            t->stop = i;
        }
    }
    return found;
}

/* How many bytes at the end of the text may be the beginning of a stop string. */
static size_t undecided(const struct answer_text *t)
{
    size_t longest = 0;
    for (int i = 0; i < t->params->num_stop; i++) {
        const size_t stop_length = strlen(t->params->stop[i]);
        size_t n = stop_length - 1 < t->length ? stop_length - 1 : t->length;
        while (n > longest && memcmp(t->held + t->length - n, t->params->stop[i], n) != 0) n--;
        if (n > longest) longest = n;
    }
    return longest;
}

static const char *release(struct answer_text *t, size_t released, size_t *length)
{
    t->released = *length = released;
    return t->held;
}

const char *answer_text_add(struct answer_text *t, int32_t token, bool may_stop, bool last, size_t *length)
{
    drop_released(t);
    t->length += detokenizer_add(&t->detokenizer, token, t->held + t->length);
    const char *stop = may_stop ? find_stop(t) : NULL;
    if (stop) {
        t->length = (size_t)(stop - t->held);
        if (t->params->include_stop_str_in_output) t->length += strlen(t->params->stop[t->stop]);
        return release(t, t->length, length);
    }
    if (last) {
        t->length += detokenizer_finish(&t->detokenizer, t->held + t->length);
        return release(t, t->length, length);
    }
    return release(t, t->length - (may_stop ? undecided(t) : 0), length);
}

const char *answer_text_finish(struct answer_text *t, size_t *length)
{
    drop_released(t);
    t->length += detokenizer_finish(&t->detokenizer, t->held + t->length);
    return release(t, t->length, length);
}
