/* The tree of a regular expression, between regular_parse.c, which reads it, and regular_compile.c. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_REGULAR_SYNTAX_H
#define QUIRE_TOKENIZER_GRAMMAR_REGULAR_SYNTAX_H

#include "tokenizer/grammar/character_set.h"
#include "tokenizer/grammar/regular.h"

enum regular_kind {
    REGULAR_SET,      /* a character of set `set` */
    REGULAR_SEQUENCE, /* all children */
    REGULAR_CHOICE,   /* one of the children */
    REGULAR_REPEAT,   /* the child least to most times; most -1: any number */
    REGULAR_BEGIN,    /* the beginning of the text */
    REGULAR_END       /* its end */
};

struct regular_part {
    enum regular_kind kind;
    int32_t set, least, most;
    int32_t child, last_child, sibling; /* other parts; 0: none */
};

struct regular_tree {
    struct regular_part *parts; /* [num_parts]; parts[0] is not used */
    size_t num_parts, part_capacity;
    struct character_set *sets; /* [num_sets], sorted, no two equal */
    size_t num_sets, set_capacity;
    int32_t root;
};

enum { REGULAR_MAX_WORK = 1 << 23 }; /* parts, nodes and transitions that are looked at for one automaton */

/* The automaton of the tree; regular_parse's `search`. UNSUPPORTED: a limit, or it needs more than *work, which becomes
 * less by what was done. */
enum status regular_compile(const struct regular_tree *tree, bool search, size_t *work, struct regular **out,
                            struct error *err);
/* regular_parse with such a limit. */
enum status regular_parse_within(const char *pattern, size_t length, bool search, size_t *work, struct regular **out,
                                 struct error *err);

#endif
