/* From a node of a builder to a nondeterministic automaton. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_COMPILE_H
#define QUIRE_TOKENIZER_GRAMMAR_COMPILE_H

#include "tokenizer/grammar/nfa.h"
#include "tokenizer/grammar/units.h"

/* The automaton of a unit, in the memory of the last one. It has no calls of units without texts; calls read at least
 * a byte, those of units with the empty text have an edge beside them that reads nothing. */
void compile_unit(const struct grammar_builder *b, const struct units *u, int32_t unit, struct nfa *n);

#endif
