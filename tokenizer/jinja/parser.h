/* The parser: parser_tokens.c has its tokens and names, expressions.c the expressions, parser.c the statements. */
#ifndef QUIRE_TOKENIZER_JINJA_PARSER_H
#define QUIRE_TOKENIZER_JINJA_PARSER_H

#include "tokenizer/jinja/lexer.h"
#include "tokenizer/jinja/syntax.h"

/* The macros around what is being parsed. */
struct jinja_open_macro {
    struct jinja_open_macro *around;
    struct jinja_macro *macro;
    bool declares_caller, declares_kwargs, declares_varargs; /* its body assigns them before it uses them */
};

struct jinja_parser {
    struct jinja_run *run;
    struct jinja_template *t;
    struct jinja_lexer lexer;
    struct jinja_token token, ahead; /* the one looked at, and the one after it */
    int blocks;                      /* statements around this one */
    int loops, all_loops;            /* around it: in its function, that break may leave; and in all */
    struct jinja_open_macro *macro;  /* the innermost; NULL: none */
};

/* Tokens. After a failure each token is JINJA_TOKEN_END. */
void parser_take(struct jinja_parser *p);
bool parser_is(const struct jinja_token *token, const char *text); /* a name or an operator */
bool parser_at(const struct jinja_parser *p, const char *text);
bool parser_accept(struct jinja_parser *p, const char *text);
bool parser_expect(struct jinja_parser *p, const char *text);
bool parser_expect_name(struct jinja_parser *p, struct jinja_token *out); /* any name */
bool parser_expect_kind(struct jinja_parser *p, enum jinja_token_kind kind, const char *what);
/* Fails with "expected WHAT, found TOKEN". */
void parser_unexpected(struct jinja_parser *p, const char *expected);
void parser_fail_at(struct jinja_parser *p, int line, int column, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The entry of the table of names. NULL after a failure. */
struct jinja_name *parser_name(struct jinja_parser *p, const char *text, size_t length);
/* The format's sentence about a name ("%.*s"), in the run's memory. */
const char *parser_sentence(struct jinja_parser *p, const char *format, const struct jinja_string *name);

/* Expressions. All return NULL after a failure. */
struct jinja_expr *parser_expression(struct jinja_parser *p);
/* One expression, or several with commas between them: a tuple. `conditions`: a value may be an inline if. */
struct jinja_expr *parser_tuple(struct jinja_parser *p, bool conditions);
/* What a for, set or with assigns to; attributes of namespaces only if allowed. */
struct jinja_expr *parser_target(struct jinja_parser *p, bool attributes);
/* Notes that a name is assigned to. */
void parser_declare(struct jinja_parser *p, const struct jinja_name *name);
/* "a | b(c)" behind a block's text; the text is JINJA_EXPR_CAPTURED. */
struct jinja_expr *parser_filters(struct jinja_parser *p, struct jinja_expr *operand, bool first_without_bar);
struct jinja_expr *parser_new_expr(struct jinja_parser *p, enum jinja_expr_kind kind, const struct jinja_token *at);
void parser_list_append(struct jinja_expr_list *list, struct jinja_expr *e);

#endif
