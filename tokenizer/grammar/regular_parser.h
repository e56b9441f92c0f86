/* What the readers of a regular expression share: regular_parse.c and regular_class.c. */
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

#endif
