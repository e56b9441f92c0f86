/* Expressions, with the precedence and the oddities of jinja2's parser.py. */
#include "tokenizer/jinja/parser.h"

#include <stdio.h>
#include <string.h>

/* --- nodes --- */

struct jinja_expr *parser_new_expr(struct jinja_parser *p, enum jinja_expr_kind kind, const struct jinja_token *at)
{
    struct jinja_expr *e = jinja_alloc(p->run, sizeof *e);
    if (!e) return NULL;
    e->kind = kind;
    e->line = at->line;
    e->column = at->column;
    return e;
}

void parser_list_append(struct jinja_expr_list *list, struct jinja_expr *e)
{
    if (list->last)
        list->last->next = e;
    else
        list->first = e;
    list->last = e;
    list->count++;
}

/* `above` gets `below` as a part; the tree may not be too high, as evaluation recurses. */
static bool raise_above(struct jinja_parser *p, struct jinja_expr *above, const struct jinja_expr *below)
{
    if (!above || !below) return false;
    if (above->height <= below->height) above->height = below->height + 1;
    if (above->height >= JINJA_MAX_DEPTH)
        parser_fail_at(p, above->line, above->column, "expressions are nested more than %d deep", JINJA_MAX_DEPTH);
    return !jinja_failed(p->run);
}

/* A node, which may be NULL, with one more operand. */
static struct jinja_expr *with_operand(struct jinja_parser *p, struct jinja_expr *e, struct jinja_expr *operand)
{
    if (!raise_above(p, e, operand)) return NULL;
    parser_list_append(&e->operands, operand);
    return e;
}

static struct jinja_expr *constant(struct jinja_parser *p, const struct jinja_token *at, struct jinja_value value)
{
    struct jinja_expr *e = parser_new_expr(p, JINJA_EXPR_CONSTANT, at);
    if (e) e->value = value;
    return e;
}

/* --- names and literals --- */

/* Notes which of the special variables of macros are used. */
static void note_use(struct jinja_parser *p, const struct jinja_name *name)
{
    for (struct jinja_open_macro *m = p->macro; m; m = m->around) {
        if (name == p->t->caller && !m->declares_caller) m->macro->uses_caller = true;
        if (name == p->t->kwargs && !m->declares_kwargs) m->macro->uses_kwargs = true;
        if (name == p->t->varargs && !m->declares_varargs) m->macro->uses_varargs = true;
    }
}

void parser_declare(struct jinja_parser *p, const struct jinja_name *name)
{
    for (struct jinja_open_macro *m = p->macro; m; m = m->around) {
        if (name == p->t->caller) m->declares_caller = true;
        if (name == p->t->kwargs) m->declares_kwargs = true;
        if (name == p->t->varargs) m->declares_varargs = true;
    }
}

static struct jinja_expr *name_node(struct jinja_parser *p, const struct jinja_token *token)
{
    struct jinja_expr *e = parser_new_expr(p, JINJA_EXPR_NAME, token);
    if (e) e->name = parser_name(p, token->text, token->length);
    return e;
}

/* True, and the value: true, false and none are no variables. */
static bool named_constant(const struct jinja_token *token, struct jinja_value *value)
{
    if (parser_is(token, "true") || parser_is(token, "True"))
        *value = jinja_bool(true);
    else if (parser_is(token, "false") || parser_is(token, "False"))
        *value = jinja_bool(false);
    else if (parser_is(token, "none") || parser_is(token, "None"))
        *value = jinja_none();
    else
        return false;
    return true;
}

static struct jinja_expr *parse_name(struct jinja_parser *p)
{
    const struct jinja_token token = p->token;
    struct jinja_value value;
    parser_take(p);
    if (named_constant(&token, &value)) return constant(p, &token, value);
    struct jinja_expr *e = name_node(p, &token);
    if (e) note_use(p, e->name);
    return e;
}

/* Strings beside each other are one. */
static struct jinja_expr *parse_strings(struct jinja_parser *p)
{
    const struct jinja_token first = p->token;
    struct jinja_builder b = {0};
    parser_take(p);
    if (p->token.kind != JINJA_TOKEN_STRING) return constant(p, &first, first.value);
    if (first.value.kind == JINJA_STRING) jinja_build_string(p->run, &b, first.value.string);
    for (; p->token.kind == JINJA_TOKEN_STRING; parser_take(p)) jinja_build_string(p->run, &b, p->token.value.string);
    return constant(p, &first, jinja_build_end(p->run, &b));
}

/* Expressions with commas between them up to the bracket `end`; a comma may stand before it. A dict's are pairs. */
static struct jinja_expr *parse_bracketed(struct jinja_parser *p, enum jinja_expr_kind kind, const char *end)
{
    struct jinja_expr *e = parser_new_expr(p, kind, &p->token);
    parser_take(p);
    while (e && !parser_at(p, end)) {
        if (e->operands.count && !parser_expect(p, ",")) return NULL;
        if (parser_at(p, end)) break;
        e = with_operand(p, e, parser_expression(p));
        if (kind == JINJA_EXPR_DICT) e = parser_expect(p, ":") ? with_operand(p, e, parser_expression(p)) : NULL;
    }
    return parser_expect(p, end) ? e : NULL;
}

static struct jinja_expr *parse_values(struct jinja_parser *p, bool conditions, bool bracket);

static struct jinja_expr *parse_primary(struct jinja_parser *p)
{
    const struct jinja_token token = p->token;
    switch (token.kind) {
    case JINJA_TOKEN_NAME:
        return parse_name(p);
    case JINJA_TOKEN_STRING:
        return parse_strings(p);
    case JINJA_TOKEN_INTEGER:
    case JINJA_TOKEN_FLOAT:
        parser_take(p);
        return constant(p, &token, token.value);
    default:
        break;
    }
    if (parser_at(p, "[")) return parse_bracketed(p, JINJA_EXPR_LIST, "]");
    if (parser_at(p, "{")) return parse_bracketed(p, JINJA_EXPR_DICT, "}");
    if (parser_accept(p, "(")) {
        struct jinja_expr *e = parse_values(p, true, true);
        return parser_expect(p, ")") ? e : NULL;
    }
    parser_unexpected(p, "an expression");
    return NULL;
}

/* --- what stands behind a value: .name [item] (arguments) | filter is test --- */

/* "a:b:c", of which each may be missing; `start` is NULL or the a that is parsed already. */
static struct jinja_expr *parse_slice(struct jinja_parser *p, struct jinja_expr *object, struct jinja_expr *start)
{
    struct jinja_expr *slice = with_operand(p, parser_new_expr(p, JINJA_EXPR_SLICE, &p->token), object);
    slice = with_operand(p, slice, start ? start : constant(p, &p->token, jinja_none()));
    for (int i = 0; i < 2 && slice; i++) {
        const bool given = parser_accept(p, ":") && !parser_at(p, ":") && !parser_at(p, "]") && !parser_at(p, ",");
        slice = with_operand(p, slice, given ? parser_expression(p) : constant(p, &p->token, jinja_none()));
    }
    if (slice && parser_at(p, ",")) parser_unexpected(p, "] behind a slice");
    return slice;
}

/* object[key]; the bracket is taken already. */
static struct jinja_expr *parse_item(struct jinja_parser *p, struct jinja_expr *object, const struct jinja_token *at)
{
    struct jinja_expr *key = NULL;
    if (parser_at(p, "]")) /* a[] is a[()] */
        key = parser_new_expr(p, JINJA_EXPR_TUPLE, at);
    else if (!parser_at(p, ":"))
        key = parser_expression(p);
    if (jinja_failed(p->run)) return NULL;
    if (parser_at(p, ":")) {
        struct jinja_expr *slice = parse_slice(p, object, key);
        return parser_expect(p, "]") ? slice : NULL;
    }
    if (parser_at(p, ",")) { /* a[b, c] is a[(b, c)] */
        key = with_operand(p, parser_new_expr(p, JINJA_EXPR_TUPLE, at), key);
        while (key && parser_accept(p, ",")) key = with_operand(p, key, parser_expression(p));
    }
    struct jinja_expr *item = with_operand(p, parser_new_expr(p, JINJA_EXPR_ITEM, at), object);
    item = with_operand(p, item, key);
    return parser_expect(p, "]") ? item : NULL;
}

/* object.name, or object.0; the dot is taken already. */
static struct jinja_expr *parse_attribute(struct jinja_parser *p, struct jinja_expr *object,
                                          const struct jinja_token *at)
{
    const struct jinja_token token = p->token;
    if (token.kind == JINJA_TOKEN_INTEGER) {
        parser_take(p);
        struct jinja_expr *item = with_operand(p, parser_new_expr(p, JINJA_EXPR_ITEM, at), object);
        return with_operand(p, item, constant(p, &token, token.value));
    }
    if (token.kind != JINJA_TOKEN_NAME) parser_unexpected(p, "a name or number behind the dot");
    parser_take(p);
    struct jinja_expr *e = with_operand(p, parser_new_expr(p, JINJA_EXPR_ATTRIBUTE, at), object);
    if (e) e->name = parser_name(p, token.text, token.length);
    return e;
}

static bool add_keyword(struct jinja_parser *p, struct jinja_arguments *args, const struct jinja_token *name,
                        struct jinja_expr *value)
{
    struct jinja_named_expr **end = &args->keywords;
    struct jinja_named_expr *keyword = jinja_alloc(p->run, sizeof *keyword);
    if (!keyword || !value) return false;
    keyword->name = jinja_string_of(p->run, name->text, name->length, false);
    keyword->value = value;
    for (; *end && jinja_tick(p->run); end = &(*end)->next) {
        const struct jinja_string *other = (*end)->name.string;
        if (other->length == name->length && memcmp(other->bytes, name->text, name->length) == 0)
            parser_fail_at(p, name->line, name->column, "the argument %.*s is given twice", (int)name->length,
                           name->text);
    }
    *end = keyword;
    args->num_keywords++;
    return !jinja_failed(p->run);
}

/* One argument: a value, name=value, *values or **dict. Returns its value. */
static struct jinja_expr *parse_argument(struct jinja_parser *p, struct jinja_arguments *args)
{
    const struct jinja_token first = p->token;
    struct jinja_expr *value = NULL;
    bool in_order = !args->more_keywords;
    if (parser_accept(p, "*")) {
        in_order = in_order && !args->more_positional;
        value = args->more_positional = parser_expression(p);
    } else if (parser_accept(p, "**")) {
        value = args->more_keywords = parser_expression(p);
    } else if (first.kind == JINJA_TOKEN_NAME && parser_is(&p->ahead, "=")) {
        parser_take(p);
        parser_take(p);
        value = parser_expression(p);
        if (!add_keyword(p, args, &first, value)) return NULL;
    } else {
        in_order = in_order && !args->more_positional && !args->num_keywords;
        value = parser_expression(p);
        if (value) parser_list_append(&args->positional, value);
    }
    if (!in_order)
        parser_fail_at(p, first.line, first.column,
                       "arguments must stand in this order: values, names with values, *list, **dict");
    return value;
}

/* The arguments of e, in brackets. */
static bool parse_arguments(struct jinja_parser *p, struct jinja_expr *e)
{
    if (!e || !parser_expect(p, "(")) return false;
    for (bool first = true; !parser_at(p, ")"); first = false) {
        if (!first && !parser_expect(p, ",")) return false;
        if (parser_at(p, ")")) break;
        if (!raise_above(p, e, parse_argument(p, &e->args))) return false;
    }
    return parser_expect(p, ")");
}

static struct jinja_expr *parse_call(struct jinja_parser *p, struct jinja_expr *callee)
{
    struct jinja_expr *call = with_operand(p, parser_new_expr(p, JINJA_EXPR_CALL, &p->token), callee);
    return parse_arguments(p, call) ? call : NULL;
}

static struct jinja_expr *parse_postfix(struct jinja_parser *p, struct jinja_expr *e)
{
    while (e) {
        const struct jinja_token token = p->token;
        if (parser_accept(p, "."))
            e = parse_attribute(p, e, &token);
        else if (parser_accept(p, "["))
            e = parse_item(p, e, &token);
        else if (parser_at(p, "("))
            e = parse_call(p, e);
        else
            break;
    }
    return e;
}

/* The name of a filter or test, which may have dots. */
static struct jinja_value called_name(struct jinja_parser *p)
{
    struct jinja_builder b = {0};
    struct jinja_token name;
    do {
        if (!parser_expect_name(p, &name)) return jinja_none();
        if (b.length) jinja_build_bytes(p->run, &b, ".", 1, false);
        jinja_build_bytes(p->run, &b, name.text, name.length, false);
    } while (parser_accept(p, "."));
    return jinja_build_end(p->run, &b);
}

struct jinja_expr *parser_filters(struct jinja_parser *p, struct jinja_expr *operand, bool first_without_bar)
{
    struct jinja_expr *e = operand;
    while (e && (first_without_bar || parser_accept(p, "|"))) {
        first_without_bar = false;
        e = with_operand(p, parser_new_expr(p, JINJA_EXPR_FILTER, &p->token), e);
        if (!e) return NULL;
        e->called = called_name(p);
        if (parser_at(p, "(") && !parse_arguments(p, e)) return NULL;
        if (jinja_failed(p->run)) return NULL;
        e->function = jinja_find_filter(e->called.string);
    }
    return e;
}

/* Whether a test's argument without brackets begins here: x is divisibleby 3. */
static bool at_test_argument(const struct jinja_parser *p)
{
    const struct jinja_token *t = &p->token;
    if (t->kind == JINJA_TOKEN_NAME) return !parser_is(t, "else") && !parser_is(t, "or") && !parser_is(t, "and");
    return t->kind == JINJA_TOKEN_STRING || t->kind == JINJA_TOKEN_INTEGER || t->kind == JINJA_TOKEN_FLOAT ||
           parser_is(t, "[") || parser_is(t, "{");
}

/* "is [not] TEST [argument]"; the "is" is taken already. */
static struct jinja_expr *parse_test(struct jinja_parser *p, struct jinja_expr *operand, const struct jinja_token *at)
{
    const bool negated = parser_accept(p, "not");
    struct jinja_expr *test = with_operand(p, parser_new_expr(p, JINJA_EXPR_TEST, at), operand);
    if (!test) return NULL;
    test->called = called_name(p);
    if (parser_at(p, "(")) {
        if (!parse_arguments(p, test)) return NULL;
    } else if (at_test_argument(p)) {
        if (parser_at(p, "is")) parser_unexpected(p, "one test (write \"and\" between two)");
        struct jinja_expr *argument = parse_postfix(p, parse_primary(p));
        if (!raise_above(p, test, argument)) return NULL;
        parser_list_append(&test->args.positional, argument);
    }
    if (jinja_failed(p->run)) return NULL;
    test->function = jinja_find_test(test->called.string);
    return negated ? with_operand(p, parser_new_expr(p, JINJA_EXPR_NOT, at), test) : test;
}

static struct jinja_expr *parse_filters_and_tests(struct jinja_parser *p, struct jinja_expr *e)
{
    while (e) {
        const struct jinja_token token = p->token;
        if (parser_at(p, "|"))
            e = parser_filters(p, e, false);
        else if (parser_accept(p, "is"))
            e = parse_test(p, e, &token);
        else if (parser_at(p, "("))
            e = parse_call(p, e);
        else
            break;
    }
    return e;
}

/* --- operators --- */

enum level {
    LEVEL_OR,
    LEVEL_AND,
    LEVEL_NOT,
    LEVEL_COMPARE,
    LEVEL_SUM,
    LEVEL_CONCATENATE,
    LEVEL_PRODUCT,
    LEVEL_POWER,
    LEVEL_UNARY
};

static const struct operator_ {
    const char *text;
    enum level level;
    enum jinja_expr_kind kind;
    int detail; /* the arithmetic operator or the comparison */
} operators[] = {
    {"or", LEVEL_OR, JINJA_EXPR_OR},
    {"and", LEVEL_AND, JINJA_EXPR_AND},
    {"==", LEVEL_COMPARE, JINJA_EXPR_COMPARE, JINJA_EQUAL},
    {"!=", LEVEL_COMPARE, JINJA_EXPR_COMPARE, JINJA_NOT_EQUAL},
    {"<", LEVEL_COMPARE, JINJA_EXPR_COMPARE, JINJA_LESS},
    {"<=", LEVEL_COMPARE, JINJA_EXPR_COMPARE, JINJA_LESS_EQUAL},
    {">", LEVEL_COMPARE, JINJA_EXPR_COMPARE, JINJA_GREATER},
    {">=", LEVEL_COMPARE, JINJA_EXPR_COMPARE, JINJA_GREATER_EQUAL},
    {"in", LEVEL_COMPARE, JINJA_EXPR_COMPARE, JINJA_IN},
    {"not", LEVEL_COMPARE, JINJA_EXPR_COMPARE, JINJA_NOT_IN}, /* with "in" behind it */
    {"+", LEVEL_SUM, JINJA_EXPR_ARITHMETIC, JINJA_ADD},
    {"-", LEVEL_SUM, JINJA_EXPR_ARITHMETIC, JINJA_SUBTRACT},
    {"~", LEVEL_CONCATENATE, JINJA_EXPR_CONCATENATE},
    {"*", LEVEL_PRODUCT, JINJA_EXPR_ARITHMETIC, JINJA_MULTIPLY},
    {"/", LEVEL_PRODUCT, JINJA_EXPR_ARITHMETIC, JINJA_DIVIDE},
    {"//", LEVEL_PRODUCT, JINJA_EXPR_ARITHMETIC, JINJA_FLOOR_DIVIDE},
    {"%", LEVEL_PRODUCT, JINJA_EXPR_ARITHMETIC, JINJA_MODULO},
    {"**", LEVEL_POWER, JINJA_EXPR_ARITHMETIC, JINJA_POWER}, /* from left to right, unlike Python's */
};

/* The operator of this level that stands here, which is taken; NULL: there is none. */
static const struct operator_ *take_operator(struct jinja_parser *p, enum level level)
{
    if (p->token.kind != JINJA_TOKEN_NAME && p->token.kind != JINJA_TOKEN_OPERATOR) return NULL;
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        const struct operator_ *o = &operators[i];
        if (o->level != level || !parser_at(p, o->text)) continue;
        if (o->kind == JINJA_EXPR_COMPARE && o->detail == JINJA_NOT_IN) {
            if (!parser_is(&p->ahead, "in")) return NULL;
            parser_take(p);
        }
        parser_take(p);
        return o;
    }
    return NULL;
}

/* -x and +x bind tighter than filters and tests: -1|abs is 1. */
static struct jinja_expr *parse_unary(struct jinja_parser *p, bool with_filters)
{
    struct jinja_expr *e = NULL;
    if (parser_at(p, "-") || parser_at(p, "+")) {
        const enum jinja_expr_kind kind = parser_at(p, "-") ? JINJA_EXPR_NEGATIVE : JINJA_EXPR_POSITIVE;
        e = parser_new_expr(p, kind, &p->token);
        parser_take(p);
        if (!jinja_enter(p->run)) return NULL;
        e = with_operand(p, e, parse_unary(p, false));
        jinja_leave(p->run);
    } else {
        e = parse_primary(p);
    }
    e = parse_postfix(p, e);
    return with_filters ? parse_filters_and_tests(p, e) : e;
}

static struct jinja_expr *parse_level(struct jinja_parser *p, enum level level);

static struct jinja_expr *parse_not(struct jinja_parser *p)
{
    const struct jinja_token token = p->token;
    if (!parser_accept(p, "not")) return parse_level(p, LEVEL_COMPARE);
    if (!jinja_enter(p->run)) return NULL;
    struct jinja_expr *e = with_operand(p, parser_new_expr(p, JINJA_EXPR_NOT, &token), parse_not(p));
    jinja_leave(p->run);
    return e;
}

/* Operators of this level, and of those that bind tighter. */
static struct jinja_expr *parse_level(struct jinja_parser *p, enum level level)
{
    if (level == LEVEL_UNARY) return parse_unary(p, true);
    if (level == LEVEL_NOT) return parse_not(p);
    struct jinja_expr *e = parse_level(p, level + 1), *chain = NULL;
    while (e) {
        const struct jinja_token token = p->token;
        const struct operator_ *o = take_operator(p, level);
        if (!o) break;
        struct jinja_expr *right = parse_level(p, level + 1);
        if (!right) return NULL;
        if (o->kind == JINJA_EXPR_COMPARE) right->comparison = (enum jinja_comparison)o->detail;
        /* a < b < c and a ~ b ~ c are one node each. */
        const bool continues = chain && (o->kind == JINJA_EXPR_COMPARE || o->kind == JINJA_EXPR_CONCATENATE);
        if (!continues) chain = with_operand(p, parser_new_expr(p, o->kind, &token), e);
        if (chain && o->kind == JINJA_EXPR_ARITHMETIC) chain->op = (enum jinja_operator)o->detail;
        e = with_operand(p, chain, right);
    }
    return e;
}

/* --- whole expressions --- */

/* "value if test else other"; without else, the value is undefined where the test is false. */
static struct jinja_expr *parse_condition(struct jinja_parser *p, struct jinja_expr *value)
{
    struct jinja_expr *e = parser_new_expr(p, JINJA_EXPR_CONDITION, &p->token);
    struct jinja_expr *test = parse_level(p, LEVEL_OR);
    e = with_operand(p, with_operand(p, e, test), value);
    if (!e) return NULL;
    if (parser_accept(p, "else")) return with_operand(p, e, parser_expression(p));
    static const char format[] =
        "the inline if-expression on line %d evaluated to false and no else section was defined.";
    char *sentence = jinja_alloc(p->run, sizeof format + 16);
    if (sentence) snprintf(sentence, sizeof format + 16, format, e->line);
    e->value = jinja_undefined(sentence);
    return e;
}

struct jinja_expr *parser_expression(struct jinja_parser *p)
{
    if (!jinja_enter(p->run)) return NULL;
    struct jinja_expr *e = parse_level(p, LEVEL_OR);
    while (e && parser_accept(p, "if")) e = parse_condition(p, e);
    jinja_leave(p->run);
    return e;
}

static bool at_tuple_end(const struct jinja_parser *p)
{
    return p->token.kind == JINJA_TOKEN_PRINT_END || p->token.kind == JINJA_TOKEN_BLOCK_END || parser_at(p, ")");
}

/* `bracket`: within ( and ), where there may be no value at all. */
static struct jinja_expr *parse_values(struct jinja_parser *p, bool conditions, bool bracket)
{
    const struct jinja_token first = p->token;
    struct jinja_expr *tuple = NULL;
    while (!at_tuple_end(p)) {
        struct jinja_expr *e = conditions ? parser_expression(p) : parse_level(p, LEVEL_OR);
        if (!e || (!tuple && !parser_at(p, ","))) return e;
        if (!tuple) tuple = parser_new_expr(p, JINJA_EXPR_TUPLE, &first);
        tuple = with_operand(p, tuple, e);
        if (!tuple) return NULL;
        if (!parser_accept(p, ",")) break;
    }
    if (!tuple && !bracket) parser_unexpected(p, "an expression");
    return tuple || jinja_failed(p->run) ? tuple : parser_new_expr(p, JINJA_EXPR_TUPLE, &first);
}

struct jinja_expr *parser_tuple(struct jinja_parser *p, bool conditions)
{
    return parse_values(p, conditions, false);
}

/* --- targets of assignments --- */

/* A name, an attribute of a namespace, or targets in brackets. */
static struct jinja_expr *parse_target(struct jinja_parser *p, bool attributes)
{
    const struct jinja_token token = p->token;
    struct jinja_value value;
    if (parser_accept(p, "(")) {
        struct jinja_expr *e = parser_target(p, false);
        return parser_expect(p, ")") ? e : NULL;
    }
    if (token.kind != JINJA_TOKEN_NAME || named_constant(&token, &value)) {
        parser_unexpected(p, "a name to assign to");
        return NULL;
    }
    parser_take(p);
    struct jinja_expr *e = name_node(p, &token);
    if (!e) return NULL;
    if (attributes && parser_at(p, ".")) {
        const struct jinja_token dot = p->token;
        parser_take(p);
        if (p->token.kind == JINJA_TOKEN_INTEGER) parser_unexpected(p, "the name of an attribute");
        return parse_attribute(p, e, &dot);
    }
    parser_declare(p, e->name);
    return e;
}

struct jinja_expr *parser_target(struct jinja_parser *p, bool attributes)
{
    if (!jinja_enter(p->run)) return NULL;
    const struct jinja_token first = p->token;
    struct jinja_expr *e = parse_target(p, attributes);
    if (e && parser_at(p, ",")) {
        e = with_operand(p, parser_new_expr(p, JINJA_EXPR_TUPLE, &first), e);
        while (e && parser_accept(p, ",") && !at_tuple_end(p)) e = with_operand(p, e, parse_target(p, attributes));
    }
    jinja_leave(p->run);
    return jinja_failed(p->run) ? NULL : e;
}
