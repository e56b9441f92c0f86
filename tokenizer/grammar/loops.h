/* Where all characters of some classes lead to the same place, as in a string, texts of them need not be read byte by
 * byte. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_LOOPS_H
#define QUIRE_TOKENIZER_GRAMMAR_LOOPS_H

#include "tokenizer/grammar/pushdown.h"
#include "tokenizer/grammar/vocabulary_state.h"

/* The classes whose characters lead from `at` back to it; 0: none do. */
uint64_t loops_of(struct pushdown *p, struct place *at);

/* All texts of at most so many characters of the classes are the beginning of a text here. False: that is not so, or
 * they are long and lead through several places. */
bool loops_allow(struct pushdown *p, struct place *at, uint64_t classes, int most_characters);

#endif
