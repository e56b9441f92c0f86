/* Tokens of a template's source, with jinja2's handling of white space (trim_blocks, lstrip_blocks, - and +). Comments
 * and the marks of raw blocks are gone. */
#ifndef QUIRE_TOKENIZER_JINJA_LEXER_H
#define QUIRE_TOKENIZER_JINJA_LEXER_H

#include "tokenizer/jinja/value.h"

enum jinja_token_kind {
    JINJA_TOKEN_END, /* of the template; also after a failure */
    JINJA_TOKEN_DATA,
    JINJA_TOKEN_PRINT_BEGIN,
    JINJA_TOKEN_PRINT_END,
    JINJA_TOKEN_BLOCK_BEGIN,
    JINJA_TOKEN_BLOCK_END,
    JINJA_TOKEN_NAME,
    JINJA_TOKEN_STRING,
    JINJA_TOKEN_INTEGER,
    JINJA_TOKEN_FLOAT,
    JINJA_TOKEN_OPERATOR
};

struct jinja_token {
    enum jinja_token_kind kind;
    int line, column;
    const char *text; /* [length] DATA, NAME, OPERATOR: part of the source */
    size_t length;
    struct jinja_value value; /* STRING, INTEGER, FLOAT */
};

struct jinja_lexer {
    struct jinja_run *run; /* owns the source and strings; errors go there */
    char *source;          /* [length], newlines normalised */
    size_t length, at;
    size_t counted; /* bytes whose lines and columns are counted: line, column is the place of this byte */
    int line, column;
    enum { JINJA_LEX_DATA, JINJA_LEX_BLOCK, JINJA_LEX_PRINT } state;
    bool line_starting;            /* what was read last ended a line */
    char closing[JINJA_MAX_DEPTH]; /* [open] the brackets that close the open ones */
    int open;
};

/* Copies the source. */
void jinja_lexer_begin(struct jinja_lexer *l, struct jinja_run *run, const char *source, size_t length);
struct jinja_token jinja_lexer_next(struct jinja_lexer *l);

#endif
