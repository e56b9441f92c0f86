/* What vLLM calls structured outputs, as grammars, and a cache of those that were made. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_STRUCTURED_H
#define QUIRE_TOKENIZER_GRAMMAR_STRUCTURED_H

#include <jansson.h>

#include "tokenizer/grammar/matcher.h"

enum structured_kind {
    STRUCTURED_NONE,
    STRUCTURED_JSON,          /* value: a schema, an object or a boolean, or a string that holds one */
    STRUCTURED_JSON_OBJECT,   /* value: true */
    STRUCTURED_REGEX,         /* value: a string; the whole answer matches */
    STRUCTURED_CHOICE,        /* value: a list of strings; the answer is one of them */
    STRUCTURED_GRAMMAR,       /* value: a string: GBNF if it has a line with "::=", else Lark */
    STRUCTURED_STRUCTURAL_TAG /* value: {"type": "structural_tag", "format": {...}}, or vLLM's older form with
                                 "structures" and "triggers" */
};
#define NUM_STRUCTURED_KINDS 7
const char *structured_kind_name(enum structured_kind kind); /* "json", "json_object", "regex", ... as vLLM's fields */

/* What a model may write before an answer that has a form: a thought, free text up to the first of the marks `ends`,
 * and a few blanks. */
struct structured_thought {
    const char *const *begins, *const *ends; /* lists of strings that NULL ends; no ends: there is no thought */
    bool is_open; /* the answer begins inside the thought; else it may begin with a thought, and one of `begins` */
};

struct structured {
    enum structured_kind kind;
    const json_t *value;                                        /* referred to */
    bool disable_any_whitespace, disable_additional_properties; /* of JSON, as in vLLM */
    struct structured_thought thought;
};

/* Its grammar. INVALID, UNSUPPORTED: the sentence begins with the place in the value. */
enum status structured_grammar(const struct structured *s, struct grammar **out, struct error *err);

/* Constraints that were made, by their text: the newest of at most so many bytes. Any thread may use it. */
struct structured_cache;
enum status structured_cache_create(const struct vocabulary *v, size_t max_bytes, struct structured_cache **out,
                                    struct error *err);
void structured_cache_free(struct structured_cache *c); /* NULL is allowed */
/* The caller has a reference to *out. */
enum status structured_cache_get(struct structured_cache *c, const struct structured *s, struct constraint **out,
                                 struct error *err);

#endif
