/* What statements and expressions are parsed with: tokens and names. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tokenizer/jinja/parser.h"

/* --- tokens --- */

void parser_take(struct jinja_parser *p)
{
    p->token = p->ahead;
    p->ahead = jinja_lexer_next(&p->lexer);
    if (jinja_failed(p->run)) p->token.kind = JINJA_TOKEN_END;
}

bool parser_is(const struct jinja_token *token, const char *text)
{
    return (token->kind == JINJA_TOKEN_NAME || token->kind == JINJA_TOKEN_OPERATOR) && token->length == strlen(text) &&
           memcmp(token->text, text, token->length) == 0;
}

bool parser_at(const struct jinja_parser *p, const char *text)
{
    return parser_is(&p->token, text);
}

bool parser_accept(struct jinja_parser *p, const char *text)
{
    if (!parser_at(p, text)) return false;
    parser_take(p);
    return !jinja_failed(p->run);
}

void parser_fail_at(struct jinja_parser *p, int line, int column, const char *format, ...)
{
    char sentence[sizeof(struct error)];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    if (!jinja_failed(p->run)) {
        p->run->line = line;
        p->run->column = column;
    }
    jinja_fail(p->run, "%s", sentence);
}

void parser_unexpected(struct jinja_parser *p, const char *expected)
{
    const struct jinja_token *t = &p->token;
    const char *what = NULL;
    switch (t->kind) {
    case JINJA_TOKEN_END:
        what = "the end of the template";
        break;
    case JINJA_TOKEN_DATA:
        what = "text";
        break;
    case JINJA_TOKEN_PRINT_BEGIN:
        what = "{{";
        break;
    case JINJA_TOKEN_PRINT_END:
        what = "}}";
        break;
    case JINJA_TOKEN_BLOCK_BEGIN:
        what = "{%";
        break;
    case JINJA_TOKEN_BLOCK_END:
        what = "%}";
        break;
    default:
        break;
    }
    if (what)
        parser_fail_at(p, t->line, t->column, "expected %s, found %s", expected, what);
    else
        parser_fail_at(p, t->line, t->column, "expected %s, found '%.*s'", expected, (int)t->length, t->text);
}

bool parser_expect(struct jinja_parser *p, const char *text)
{
    char quoted[32];
    if (parser_accept(p, text)) return true;
    snprintf(quoted, sizeof quoted, "'%s'", text);
    parser_unexpected(p, quoted);
    return false;
}

bool parser_expect_kind(struct jinja_parser *p, enum jinja_token_kind kind, const char *what)
{
    const bool found = p->token.kind == kind;
    if (found)
        parser_take(p);
    else
        parser_unexpected(p, what);
    return !jinja_failed(p->run);
}

bool parser_expect_name(struct jinja_parser *p, struct jinja_token *out)
{
    *out = p->token;
    return parser_expect_kind(p, JINJA_TOKEN_NAME, "a name");
}

/* --- names --- */

const char *parser_sentence(struct jinja_parser *p, const char *format, const struct jinja_string *name)
{
    const size_t size = strlen(format) + name->length + 1;
    char *sentence = jinja_alloc(p->run, size);
    if (sentence) snprintf(sentence, size, format, (int)name->length, name->bytes);
    return sentence;
}

struct jinja_name *parser_name(struct jinja_parser *p, const char *text, size_t length)
{
    struct jinja_template *t = p->t;
    const struct jinja_value key = jinja_string_of(p->run, text, length, false);
    if (jinja_failed(p->run)) return NULL;
    const struct jinja_value *known = jinja_dict_get(p->run, t->names_index.dict, key);
    if (known) return t->names[known->integer];
    struct jinja_name *name = jinja_alloc(p->run, sizeof *name);
    if (!name || !jinja_reserve_one(p->run, &t->names, &t->names_capacity, t->num_names, sizeof *t->names)) return NULL;
    name->string = *key.string;
    name->undefined = parser_sentence(p, "'%.*s' is undefined", key.string);
    name->index = t->num_names;
    if (!jinja_dict_set(p->run, t->names_index.dict, key, jinja_int((int64_t)name->index))) return NULL;
    t->names[t->num_names++] = name;
    return name;
}
