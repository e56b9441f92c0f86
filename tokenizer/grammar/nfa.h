/* Nondeterministic automata whose edges read bytes, call a unit or read nothing; and the automata without edges that
 * read nothing that are made of them. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_NFA_H
#define QUIRE_TOKENIZER_GRAMMAR_NFA_H

#include "tokenizer/grammar/grammar.h"

enum { NFA_EMPTY = -1, NFA_BYTES = -2 }; /* in place of a unit */

struct nfa_edge {
    int32_t next; /* of the same state; -1: none */
    int32_t target;
    int32_t unit;        /* that is called; NFA_EMPTY, NFA_BYTES */
    int32_t least, most; /* of the call: as grammar_repeat, 1 and 1 for a plain one */
    uint8_t first, last; /* NFA_BYTES: these bytes */
};

struct nfa {
    int32_t *edges_of; /* [num_states] the first edge of a state, -1: none */
    struct nfa_edge *edges;
    size_t num_states, num_edges, state_capacity, edge_capacity;
    int32_t start, end;
    bool failed; /* memory ran out, or it became too large */
};

/* Begins an automaton of two states, start and end, in the memory of the last one. */
void nfa_begin(struct nfa *n);
void nfa_free(struct nfa *n);
int32_t nfa_state(struct nfa *n); /* a new one */
void nfa_add_empty(struct nfa *n, int32_t from, int32_t to);
void nfa_add_bytes(struct nfa *n, int32_t from, int32_t to, uint8_t first, uint8_t last);
void nfa_add_call(struct nfa *n, int32_t from, int32_t to, int32_t unit, int32_t least, int32_t most);
/* Characters first .. last in UTF-8; no surrogates. */
void nfa_add_characters(struct nfa *n, int32_t from, int32_t to, struct character_range range);

struct automaton_edge {
    uint8_t first, last;
    int32_t target;
};
struct automaton_call {
    int32_t unit, target;
    int32_t least, most;
};
struct automaton_state {
    int32_t first_edge, first_call; /* they end where those of the next state begin */
    bool ends;
};
/* State 0 begins, does not end, and no edge leads to it: so it has no empty text. */
struct automaton {
    struct automaton_state *states; /* [num_states + 1] */
    struct automaton_edge *edges;
    struct automaton_call *calls;
    size_t num_states, num_edges, num_calls, state_capacity, edge_capacity, call_capacity;
};
void automaton_free(struct automaton *a);
/* Appends a state whose edges are those added from now on, or nothing but the end of the last one's. False: no memory.
 */
bool automaton_add_state(struct automaton *a, bool ends);
bool automaton_add_edge(struct automaton *a, uint8_t first, uint8_t last, int32_t target);
bool automaton_add_call(struct automaton *a, struct automaton_call call);

/* The texts of n, but for the empty one. It is deterministic, unless it would be much larger than n. */
enum status nfa_determinize(const struct nfa *n, struct automaton *out, struct error *err);
/* Leaves the start, and the states that are on a way from it to an end. */
enum status automaton_trim(struct automaton *a, struct error *err);

#endif
