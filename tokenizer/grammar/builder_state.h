/* What a grammar_builder is made of, for what makes a grammar of it. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_BUILDER_STATE_H
#define QUIRE_TOKENIZER_GRAMMAR_BUILDER_STATE_H

#include "tokenizer/grammar/grammar.h"

enum node_kind {
    NODE_NEVER,      /* no text */
    NODE_EMPTY,      /* the empty text */
    NODE_BYTES,      /* bytes[first .. first + count) */
    NODE_CHARACTERS, /* one of ranges[first .. first + count): sorted, apart, without surrogates */
    NODE_SEQUENCE,   /* children[first .. first + count) */
    NODE_CHOICE,     /* the same */
    NODE_REPEAT,     /* the node `first`, least to most times */
    NODE_AUTOMATON,  /* states[first .. first + count); it has a text that is not empty */
    NODE_REFERENCE   /* the rule `first` */
};

struct node {
    enum node_kind kind;
    int32_t first, count;
    int32_t least, most;
};

struct rule {
    char *name; /* NULL: none */
    grammar_node node;
    bool is_defined;
};

/* A state of grammar_from_automaton. Targets count from its first state. */
struct stored_state {
    int32_t first_edge; /* its edges end where those of the next state begin */
    bool ends;
};
struct stored_edge {
    uint8_t first, last;
    int32_t target;
};

struct grammar_builder {
    struct node *nodes; /* the first is NODE_NEVER, which stands for what could not be made */
    int32_t num_nodes;
    struct rule *rules;
    int32_t num_rules;
    char *bytes;
    struct character_range *ranges;
    grammar_node *children;
    struct stored_state *states; /* one more stands behind those of each automaton, so that its edges end */
    struct stored_edge *edges;
    int32_t *names; /* hash table of rules by name, -1: free; [name_slots], a power of two */
    int32_t name_slots, num_names;
    size_t num_bytes, num_ranges, num_children, num_states, num_edges;
    size_t node_capacity, rule_capacity, byte_capacity, range_capacity, child_capacity, state_capacity, edge_capacity;
    bool out_of_memory, too_large;
};

#endif
