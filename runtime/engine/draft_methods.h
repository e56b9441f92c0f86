/* The methods that drafter_create knows, and how they look for tokens in a text.
 *
 * A place of a text is the index of a token that follows a match: the tokens before the place are those at the end of
 * the sequence that is drafted for, as many as the match is long. */
#ifndef QUIRE_RUNTIME_ENGINE_DRAFT_METHODS_H
#define QUIRE_RUNTIME_ENGINE_DRAFT_METHODS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/engine/draft.h"

enum status draft_ngram_create(const struct speculative_config *config, struct drafter **out, struct error *err);
enum status draft_suffix_create(const struct speculative_config *config, int32_t max_model_len, struct drafter **out,
                                struct error *err);

static inline int32_t draft_min(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Whether one of the places 0 .. count - 1 of `text` has `last` right before it, and `first` `length` tokens before it:
 * only there can `length` tokens match. The loop is for the compiler to vectorize. */
static inline bool draft_block_matches(const int32_t *text, int32_t count, int32_t length, int32_t first, int32_t last)
{
    int32_t any = 0;
    for (int32_t i = 0; i < count; i++) any |= (text[i - 1] == last) & (text[i - length] == first);
    return any;
}

#define DRAFT_BLOCK 64

/* The first place from `place` on where the last `length` tokens of tokens[n] may match; n: there is none.
 * place >= length >= 1. */
static inline int32_t draft_place_from(const int32_t *tokens, int32_t n, int32_t place, int32_t length)
{
    const int32_t first = tokens[n - length], last = tokens[n - 1];
    for (; place < n; place += DRAFT_BLOCK) {
        const int32_t end = place + draft_min(DRAFT_BLOCK, n - place);
        if (!draft_block_matches(tokens + place, end - place, length, first, last)) continue;
        for (; place < end; place++)
            if (tokens[place - 1] == last && tokens[place - length] == first) return place;
    }
    return n;
}

/* The last such place before `place`, which is at most n; 0: there is none. */
static inline int32_t draft_place_before(const int32_t *tokens, int32_t n, int32_t place, int32_t length)
{
    const int32_t first = tokens[n - length], last = tokens[n - 1];
    while (place > length) {
        const int32_t start = place - draft_min(DRAFT_BLOCK, place - length);
        if (!draft_block_matches(tokens + start, place - start, length, first, last)) {
            place = start;
            continue;
        }
        for (place--; tokens[place - 1] != last || tokens[place - length] != first; place--) continue;
        return place;
    }
    return 0;
}

/* How many tokens before `place` of a text are those before `end`, up to `most`. The index of a token in the text is
 * its position & mask. */
static inline int32_t draft_match_length(const int32_t *text, uint32_t mask, uint32_t place, const int32_t *end,
                                         int32_t most)
{
    int32_t length = 0;
    while (length < most && text[(place - 1 - (uint32_t)length) & mask] == end[-1 - length]) length++;
    return length;
}

#endif
