/* Automata that call themselves before they read a byte, directly or through others, are replaced by automata of the
 * same texts that do not. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_LEFT_RECURSION_H
#define QUIRE_TOKENIZER_GRAMMAR_LEFT_RECURSION_H

#include "tokenizer/grammar/nfa.h"

/* Of automata [count], whose calls name each other. ranks [count]: an automaton has a lower one than those that it
 * calls before it reads a byte. */
enum status left_recursion_remove(struct automaton *automata, int32_t count, int32_t *ranks, struct error *err);

#endif
