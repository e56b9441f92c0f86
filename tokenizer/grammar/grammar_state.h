/* What a grammar is made of: the automata of its units, end to end. A call remembers where to go on and runs the
 * automaton of a unit, which reads at least one byte. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_GRAMMAR_STATE_H
#define QUIRE_TOKENIZER_GRAMMAR_GRAMMAR_STATE_H

#include <stdatomic.h>

#include "tokenizer/grammar/nfa.h"

struct grammar_unit {
    int32_t start;
    int32_t rank; /* lower than those of the units that it calls before it reads a byte */
};

struct grammar {
    struct automaton automaton; /* all of them; states and targets count from the first */
    struct grammar_unit *units; /* [num_units]; the first is the root */
    int32_t num_units;
    uint8_t *last_bytes;       /* [num_states] the largest byte that an edge of a state reads; 0: none */
    uint8_t byte_classes[256]; /* bytes of a class are alike to all edges */
    int32_t num_byte_classes;
    bool has_empty; /* the empty text is in the grammar */
    atomic_int references;
};

/* A call that only goes on when its unit is done and may then end: what it returns to is nothing but an end. */
static inline bool grammar_is_tail(const struct grammar *g, const struct automaton_call *call)
{
    const struct automaton_state *s = &g->automaton.states[call->target];
    return call->least == 1 && call->most == 1 && s[0].ends && s[0].first_edge == s[1].first_edge &&
           s[0].first_call == s[1].first_call;
}

#endif
