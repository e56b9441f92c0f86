/* The trie of a vocabulary whose tokens have their spellings. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_TRIE_H
#define QUIRE_TOKENIZER_GRAMMAR_TRIE_H

#include "tokenizer/grammar/vocabulary_state.h"

bool trie_build(struct vocabulary *v); /* false: no memory */

#endif
