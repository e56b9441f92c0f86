/* What a struct regular is made of. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_REGULAR_STATE_H
#define QUIRE_TOKENIZER_GRAMMAR_REGULAR_STATE_H

#include "tokenizer/grammar/character_set.h"
#include "tokenizer/grammar/regular.h"

enum { REGULAR_MAX_TRANSITIONS = 1 << 24 }; /* of a table */

/* A deterministic automaton: every state has a transition for every class of the alphabet, all states can be reached,
 * and state 0 begins. */
struct regular {
    struct alphabet alphabet;
    int32_t num_states;
    int32_t *next; /* [num_states, alphabet.num_classes] */
    bool *ends;    /* [num_states]: a text may end here */
};

/* A regular of this many states with the alphabet, which is moved into it, with or without success; tables are zero.
 * NULL: memory ran out, or it would be too large. */
struct regular *regular_new(int32_t num_states, struct alphabet *alphabet);
/* The smallest automaton of the same language, with the smallest alphabet; frees *r. NULL: memory ran out, or r is
 * NULL. */
struct regular *regular_minimize(struct regular *r);

#endif
