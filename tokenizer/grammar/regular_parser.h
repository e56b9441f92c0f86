/* What the readers of a regular expression share: regular_parse.c, regular_class.c and regular_lookahead.c. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_REGULAR_PARSER_H
#define QUIRE_TOKENIZER_GRAMMAR_REGULAR_PARSER_H

#include "tokenizer/grammar/regular_syntax.h"

struct regular_parser {
    const char *pattern; /* [length], UTF-8 */
    size_t length, at;
    bool ignore_case, dot_all; /* the flags i and s at this place */
    int depth;                 /* of groups */
    struct regular_tree tree;
    enum status status; /* the first failure; what comes after it does nothing */
    struct error *err;
};

/* Fails with a sentence about the character at byte `at` of the pattern. */
enum status regular_fail(struct regular_parser *p, enum status status, size_t at, const char *what);
bool regular_peek(const struct regular_parser *p, const char *word); /* the word comes next */
bool regular_take(struct regular_parser *p, const char *word);       /* ... and is read */

/* regular_lookahead.c. *all becomes its intersection with `other`; NULL after a failure. */
enum status regular_narrow(const struct regular *other, struct regular **all, struct error *err);
/* ... with the texts that begin with a match of pattern[length], or if `negative` do not; *all NULL: all texts. */
enum status regular_look_ahead(const char *pattern, size_t length, bool negative, size_t *work, struct regular **all,
                               struct error *err);

#endif
