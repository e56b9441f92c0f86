/* The tries of a vocabulary whose tokens have their spellings. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_TRIE_H
#define QUIRE_TOKENIZER_GRAMMAR_TRIE_H

#include "tokenizer/grammar/vocabulary_state.h"

/* Of the tokens of `least` to `most` bytes; false: no memory. */
bool trie_build(const struct vocabulary *v, uint32_t least, uint32_t most, struct trie *t);
void trie_free(struct trie *t);
/* The mask of the tokens of a node and below; NULL: they are few. */
const uint32_t *trie_large_mask(const struct trie *t, uint32_t node, int32_t mask_words);

#endif
