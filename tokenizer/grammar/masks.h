/* The tokens that may come next at a place.
 *
 * A configuration allows a token if the token's bytes lead somewhere. Most do so, or do not, whatever the stack is: the
 * unit of the state is not done before the token ends. So what a state allows is found once, as a *record*, over an
 * empty stack, with the nodes of the trie where the unit is done and the bytes below them depend on the stack. Only
 * these are looked at for each stack. The mask of a place joins the records of its configurations, and is kept. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_MASKS_H
#define QUIRE_TOKENIZER_GRAMMAR_MASKS_H

#include "tokenizer/grammar/pushdown.h"
#include "tokenizer/grammar/vocabulary_state.h"

enum { MASK_MAX_WHOLE = 2 };

/* Tokens: those of whole masks, and some more. */
struct mask {
    const uint32_t *whole[MASK_MAX_WHOLE]; /* [num_whole][mask_words] */
    int32_t num_whole, num_ids;
    int32_t ids[];
};

/* The tokens that may come next; in a text that has begun, or with `at_start` at the beginning of the answer. They are
 * in memory of the pushdown. NULL: no memory. */
struct mask *masks_find(struct pushdown *p, const struct vocabulary *v, struct place *at);
struct mask *masks_find_first(struct pushdown *p, const struct vocabulary *v);
void mask_write(const struct mask *m, const struct vocabulary *v, uint32_t *words);

#endif
