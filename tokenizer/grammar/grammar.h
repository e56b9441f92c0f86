/* A grammar: the set of texts that an answer may be, as a context-free language over bytes. It knows neither tokens nor
 * models; matcher.h joins it with a vocabulary. What writes grammars: json_schema.h, gbnf.h, lark.h, regular.h and
 * structured.h. A grammar never changes once it is made, so any number of threads may share one.
 *
 *     struct grammar_builder *b = grammar_builder_create();
 *     grammar_node digit = grammar_characters(b, &(struct character_range){'0', '9'}, 1);
 *     int32_t rule = grammar_rule(b, "list");
 *     grammar_define(b, rule, grammar_choice(b, (grammar_node[]){digit, grammar_sequence(b, ...)}, 2));
 *     status = grammar_build(b, rule, &grammar, err);
 *     grammar_builder_free(b);
 *
 * A builder remembers that memory ran out or a limit was reached; grammar_build reports it, so callers need not check
 * each node. Nodes may be used any number of times. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_GRAMMAR_H
#define QUIRE_TOKENIZER_GRAMMAR_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
    GRAMMAR_MAX_NODES = 1 << 20, /* of a builder */
    GRAMMAR_MAX_RULES = 1 << 16,
    GRAMMAR_UNBOUNDED = -1 /* of a repetition: no most */
};

struct grammar;
struct grammar_builder;
typedef int32_t grammar_node;

/* Characters first .. last, code points of Unicode; surrogates in it stand for nothing. */
struct character_range {
    uint32_t first, last;
};

struct grammar_builder *grammar_builder_create(void); /* NULL: out of memory */
void grammar_builder_free(struct grammar_builder *b); /* NULL is allowed */

grammar_node grammar_empty(struct grammar_builder *b); /* the empty text */
grammar_node grammar_never(struct grammar_builder *b); /* no text */
/* These bytes. */
grammar_node grammar_bytes(struct grammar_builder *b, const char *bytes, size_t length);
/* One character of the ranges, which may overlap, in UTF-8. */
grammar_node grammar_characters(struct grammar_builder *b, const struct character_range *ranges, int32_t count);
grammar_node grammar_sequence(struct grammar_builder *b, const grammar_node *parts, int32_t count);
grammar_node grammar_choice(struct grammar_builder *b, const grammar_node *parts, int32_t count);
/* `part` least to most times; most: GRAMMAR_UNBOUNDED or at least `least`. Its size does not grow with the counts. */
grammar_node grammar_repeat(struct grammar_builder *b, grammar_node part, int32_t least, int32_t most);
/* A deterministic automaton over bytes: from state s, byte c leads to next[s * 256 + c], -1: to none; state 0 begins,
 * and a text may end in the states of `ends`. Copied. */
struct grammar_automaton {
    int32_t num_states;
    const int32_t *next; /* [num_states, 256] */
    const bool *ends;    /* [num_states] */
};
grammar_node grammar_from_automaton(struct grammar_builder *b, const struct grammar_automaton *automaton);

/* A new rule, or the one of this name; NULL: a rule without a name. */
int32_t grammar_rule(struct grammar_builder *b, const char *name);
grammar_node grammar_reference(struct grammar_builder *b, int32_t rule);
void grammar_define(struct grammar_builder *b, int32_t rule, grammar_node node); /* once */
bool grammar_is_defined(const struct grammar_builder *b, int32_t rule);

/* The language of rule `root`. Rules may be recursive, on the left, too. INVALID: a rule is not defined (the sentence
 * has its name), or the root has no text; UNSUPPORTED: a limit was reached. The caller has one reference. */
enum status grammar_build(struct grammar_builder *b, int32_t root, struct grammar **out, struct error *err);
struct grammar *grammar_keep(struct grammar *g); /* one reference more */
void grammar_free(struct grammar *g);            /* one less; NULL is allowed */

#endif
