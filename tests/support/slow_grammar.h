/* Grammars for tests, with a recognizer that knows nothing of automata: it fills a table of which node derives which
 * part of a text until nothing changes. */
#ifndef QUIRE_TESTS_SUPPORT_SLOW_GRAMMAR_H
#define QUIRE_TESTS_SUPPORT_SLOW_GRAMMAR_H

#include "base/random.h"
#include "tokenizer/grammar/grammar.h"

enum { SLOW_MAX_NODES = 256, SLOW_MAX_CHILDREN = 4, SLOW_MAX_RULES = 6, SLOW_MAX_STATES = 4, SLOW_MAX_TEXT = 24 };

enum slow_kind {
    SLOW_NEVER,
    SLOW_EMPTY,
    SLOW_BYTES,
    SLOW_CHARACTERS,
    SLOW_SEQUENCE,
    SLOW_CHOICE,
    SLOW_REPEAT,
    SLOW_AUTOMATON,
    SLOW_RULE
};

struct slow_node {
    enum slow_kind kind;
    char bytes[8]; /* SLOW_BYTES: [count] */
    struct character_range ranges[SLOW_MAX_CHILDREN];
    int children[SLOW_MAX_CHILDREN]; /* nodes; of SLOW_RULE the rule */
    int count, least, most;
    int32_t next[SLOW_MAX_STATES * 256]; /* SLOW_AUTOMATON: of `count` states */
    bool ends[SLOW_MAX_STATES];
};

struct slow_grammar {
    struct slow_node nodes[SLOW_MAX_NODES];
    int num_nodes;
    int rules[SLOW_MAX_RULES]; /* [num_rules] their nodes; the first is the root */
    int num_rules;
};

/* A grammar of a few rules over a few bytes and characters, which may be recursive, ambiguous or without a text. */
void slow_grammar_random(struct slow_grammar *g, struct random *r);
/* The same grammar in a builder: the root's rule. */
int32_t slow_grammar_add(const struct slow_grammar *g, struct grammar_builder *b);

/* text[length] is one of the grammar; is the beginning of one. */
struct slow_answer {
    bool is_text, is_prefix;
};
struct slow_answer slow_grammar_ask(const struct slow_grammar *g, const char *text, int length);
bool slow_grammar_has_text(const struct slow_grammar *g);

/* A string of a few of the bytes that random grammars are made of: out[8]. Returns its length. */
int slow_random_bytes(struct random *r, int most, char out[8]);

#endif
