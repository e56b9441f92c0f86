/* Which parts of a grammar have an automaton of their own, a *unit*: the root; every node that contains itself; what is
 * large and used more than once; what is repeated with counts; what is nested deeply. An automaton calls the other
 * units as a rule is called; all other nodes are a part of the automata of those that use them. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_UNITS_H
#define QUIRE_TOKENIZER_GRAMMAR_UNITS_H

#include "tokenizer/grammar/builder_state.h"

struct units {
    int32_t *unit_of;    /* [num_nodes] -1: no unit */
    bool *is_nullable;   /* [num_nodes] has the empty text */
    bool *has_text;      /* [num_nodes] has a text */
    bool *has_bytes;     /* [num_nodes] has a text that is not empty */
    grammar_node *nodes; /* [count] unit 0 is the root */
    int32_t count;
    /* While they are sought. */
    grammar_node *order; /* [num_reached] children before parents, but for those that contain themselves */
    int32_t num_reached;
    int32_t *uses, *sizes, *depths; /* [num_nodes] */
};

/* Of the nodes that `root` reaches. Free *u also after a failure. */
enum status units_find(const struct grammar_builder *b, grammar_node root, struct units *u, struct error *err);
void units_free(struct units *u);

/* A repetition that is written out instead of being counted. */
bool units_unrolls(const struct units *u, const struct node *repeat);

#endif
