/* Where all characters of some classes lead to the same place, as in a string, texts of them need not be read byte by
 * byte. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_LOOPS_H
#define QUIRE_TOKENIZER_GRAMMAR_LOOPS_H

#include "tokenizer/grammar/pushdown.h"
#include "tokenizer/grammar/vocabulary_state.h"

/* All texts of at most so many characters of the classes are the beginning of a text here. False: that is not so, or
 * their characters may lead through more than most_places other places. */
bool loops_allow(struct pushdown *p, struct place *at, uint64_t classes, int most_characters, int most_places);

#endif
