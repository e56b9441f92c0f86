/* Expressions. */
#include "tokenizer/jinja/evaluator.h"

enum { MAX_LEVELS = 20 * JINJA_MAX_DEPTH };

bool evaluator_enter(struct evaluator *e)
{
    if (e->levels == MAX_LEVELS)
        jinja_fail(&e->run, "statements, expressions and calls are nested more than %d deep", MAX_LEVELS);
    if (!jinja_tick(&e->run)) return false;
    e->levels++;
    return true;
}

/* Errors that follow are about this place. */
static void at(struct evaluator *e, const struct jinja_expr *expr)
{
    if (jinja_failed(&e->run)) return;
    e->run.line = expr->line;
    e->run.column = expr->column;
}

struct jinja_value *slot_at(struct evaluator *e, struct jinja_place place)
{
    struct frame *frame = e->frame;
    for (uint32_t i = 0; i < place.up; i++) frame = frame->outer;
    return &frame->slots[place.slot];
}

static struct jinja_value evaluate_name(struct evaluator *e, const struct jinja_expr *expr)
{
    const struct jinja_value value = *slot_at(e, expr->place);
    return value.kind == JINJA_UNDEFINED && !value.missing ? jinja_undefined(expr->name->undefined) : value;
}

static struct jinja_value evaluate_sequence(struct evaluator *e, const struct jinja_expr *expr)
{
    struct jinja_value list = jinja_list_new(&e->run, expr->kind == JINJA_EXPR_TUPLE ? JINJA_TUPLE : JINJA_LIST);
    for (const struct jinja_expr *item = expr->operands.first; item && !jinja_failed(&e->run); item = item->next)
        jinja_list_append(&e->run, list.list, evaluate(e, item));
    return list;
}

static struct jinja_value evaluate_dict(struct evaluator *e, const struct jinja_expr *expr)
{
    struct jinja_value dict = jinja_dict_new(&e->run);
    for (const struct jinja_expr *key = expr->operands.first; key && !jinja_failed(&e->run); key = key->next->next) {
        const struct jinja_value k = evaluate(e, key), v = evaluate(e, key->next);
        at(e, key);
        if (!jinja_failed(&e->run)) jinja_dict_set(&e->run, dict.dict, k, v);
    }
    return dict;
}

/* x or y, x and y: the operand that decides. */
static struct jinja_value evaluate_logic(struct evaluator *e, const struct jinja_expr *expr)
{
    const struct jinja_value left = evaluate(e, expr->operands.first);
    at(e, expr);
    const bool is_true = jinja_is_true(&e->run, left);
    if (jinja_failed(&e->run) || is_true == (expr->kind == JINJA_EXPR_OR)) return left;
    return evaluate(e, expr->operands.last);
}

static struct jinja_value evaluate_condition(struct evaluator *e, const struct jinja_expr *expr)
{
    const struct jinja_expr *test = expr->operands.first, *value = test->next;
    const bool is_true = jinja_is_true(&e->run, evaluate(e, test));
    if (jinja_failed(&e->run)) return jinja_none();
    if (is_true) return evaluate(e, value);
    return value->next ? evaluate(e, value->next) : expr->value;
}

static bool compare(struct evaluator *e, enum jinja_comparison comparison, struct jinja_value a, struct jinja_value b)
{
    struct jinja_run *run = &e->run;
    switch (comparison) {
    case JINJA_EQUAL:
        return jinja_equal(run, a, b);
    case JINJA_NOT_EQUAL:
        return !jinja_equal(run, a, b);
    case JINJA_IN:
        return jinja_contains(run, b, a);
    case JINJA_NOT_IN:
        return !jinja_contains(run, b, a);
    default:
        break;
    }
    const int order = jinja_compare(run, a, b);
    switch (comparison) {
    case JINJA_LESS:
        return order == -1;
    case JINJA_LESS_EQUAL:
        return order == -1 || order == 0;
    case JINJA_GREATER:
        return order == 1;
    default:
        return order == 1 || order == 0;
    }
}

/* a < b < c is a < b and b < c, with b evaluated once. */
static struct jinja_value evaluate_comparison(struct evaluator *e, const struct jinja_expr *expr)
{
    struct jinja_value left = evaluate(e, expr->operands.first);
    bool result = true;
    for (const struct jinja_expr *operand = expr->operands.first->next; operand && result; operand = operand->next) {
        const struct jinja_value right = evaluate(e, operand);
        if (jinja_failed(&e->run)) break;
        at(e, expr);
        result = compare(e, operand->comparison, left, right);
        left = right;
    }
    return jinja_bool(result);
}

/* The values of the operands, whose number is `count`; false after a failure. */
static bool evaluate_operands(struct evaluator *e, const struct jinja_expr *expr, struct jinja_value *values,
                              size_t count)
{
    const struct jinja_expr *operand = expr->operands.first;
    for (size_t i = 0; i < count; i++, operand = operand->next) values[i] = evaluate(e, operand);
    at(e, expr);
    return !jinja_failed(&e->run);
}

static struct jinja_value evaluate_operation(struct evaluator *e, const struct jinja_expr *expr)
{
    struct jinja_run *run = &e->run;
    struct jinja_value v[4];
    if (!evaluate_operands(e, expr, v, expr->operands.count)) return jinja_none();
    switch (expr->kind) {
    case JINJA_EXPR_NOT:
        return jinja_bool(!jinja_is_true(run, v[0]));
    case JINJA_EXPR_ARITHMETIC:
        return jinja_arithmetic(run, expr->op, v[0], v[1]);
    case JINJA_EXPR_NEGATIVE:
        return jinja_negate(run, v[0], false);
    case JINJA_EXPR_POSITIVE:
        return jinja_negate(run, v[0], true);
    case JINJA_EXPR_ATTRIBUTE:
        return jinja_get_attribute(run, v[0], &expr->name->string);
    case JINJA_EXPR_ITEM:
        return jinja_get_item(run, v[0], v[1]);
    default:
        return jinja_slice(run, v[0], v[1], v[2], v[3]);
    }
}

static struct jinja_value evaluate_concatenation(struct evaluator *e, const struct jinja_expr *expr)
{
    struct jinja_value *values = jinja_alloc(&e->run, expr->operands.count * sizeof *values);
    if (!values || !evaluate_operands(e, expr, values, expr->operands.count)) return jinja_none();
    return jinja_concatenate(&e->run, values, expr->operands.count);
}

/* --- calls --- */

/* Arguments while they are evaluated. */
struct arguments {
    struct jinja_value *positional;
    struct jinja_keyword *keywords;
    struct jinja_args args;
};

/* Room for `positional` more values and `keywords` more names. */
static bool reserve(struct evaluator *e, struct arguments *a, size_t positional, size_t keywords)
{
    struct jinja_value *values = jinja_alloc(&e->run, (a->args.count + positional) * sizeof *values);
    struct jinja_keyword *names = jinja_alloc(&e->run, (a->args.num_keywords + keywords) * sizeof *names);
    if (!values || !names) return false;
    for (size_t i = 0; i < a->args.count; i++) values[i] = a->positional[i];
    for (size_t i = 0; i < a->args.num_keywords; i++) names[i] = a->keywords[i];
    a->args.positional = a->positional = values;
    a->args.keywords = a->keywords = names;
    return true;
}

static void add_list(struct evaluator *e, struct arguments *a, const struct jinja_expr *expr)
{
    const struct jinja_value value = evaluate(e, expr);
    at(e, expr);
    const struct jinja_list *list = jinja_iterate(&e->run, value);
    if (!list || !reserve(e, a, list->count, 0)) return;
    for (size_t i = 0; i < list->count; i++) a->positional[a->args.count++] = list->items[i];
}

static void add_keyword(struct evaluator *e, struct arguments *a, struct jinja_value name, struct jinja_value value)
{
    for (size_t i = 0; i < a->args.num_keywords && jinja_tick(&e->run); i++)
        if (jinja_equal(&e->run, a->keywords[i].name, name))
            jinja_fail(&e->run, "got multiple values for keyword argument '%.*s'", (int)name.string->length,
                       name.string->bytes);
    a->keywords[a->args.num_keywords++] = (struct jinja_keyword){name, value};
}

static void add_dict(struct evaluator *e, struct arguments *a, const struct jinja_expr *expr)
{
    const struct jinja_value value = evaluate(e, expr);
    at(e, expr);
    if (jinja_failed(&e->run)) return;
    if (value.kind != JINJA_DICT) {
        jinja_fail(&e->run, "argument after ** must be a mapping, not %s", jinja_type_name(value));
        return;
    }
    if (!reserve(e, a, 0, value.dict->count)) return;
    for (size_t i = 0; i < value.dict->count && !jinja_failed(&e->run); i++) {
        const struct jinja_pair *pair = &value.dict->pairs[i];
        if (pair->key.kind == JINJA_STRING)
            add_keyword(e, a, pair->key, pair->value);
        else
            jinja_fail(&e->run, "keywords must be strings");
    }
}

/* `caller`: the block that a call block gives to what it calls; NULL: none. */
static bool evaluate_arguments(struct evaluator *e, const struct jinja_arguments *in, const struct jinja_value *caller,
                               struct jinja_args *out)
{
    struct arguments a = {0};
    const bool has_keywords = in->num_keywords || in->more_keywords || caller;
    *out = a.args;
    if (!in->positional.count && !in->more_positional && !has_keywords) return true;
    if (!reserve(e, &a, in->positional.count, in->num_keywords + 1)) return false;
    for (const struct jinja_expr *expr = in->positional.first; expr; expr = expr->next)
        a.positional[a.args.count++] = evaluate(e, expr);
    for (const struct jinja_named_expr *k = in->keywords; k; k = k->next)
        a.keywords[a.args.num_keywords++] = (struct jinja_keyword){k->name, evaluate(e, k->value)};
    if (caller && !jinja_failed(&e->run)) add_keyword(e, &a, jinja_literal(&e->run, "caller"), *caller);
    if (in->more_positional) add_list(e, &a, in->more_positional);
    if (in->more_keywords) add_dict(e, &a, in->more_keywords);
    *out = a.args;
    return !jinja_failed(&e->run);
}

struct jinja_value evaluate_call(struct evaluator *e, const struct jinja_expr *expr, const struct jinja_value *caller)
{
    struct jinja_args args;
    const struct jinja_value callee = evaluate(e, expr->operands.first);
    if (jinja_failed(&e->run) || !evaluate_arguments(e, &expr->args, caller, &args)) return jinja_none();
    at(e, expr);
    return jinja_call(&e->run, callee, &args);
}

static struct jinja_value evaluate_function(struct evaluator *e, const struct jinja_expr *expr)
{
    struct jinja_args args;
    const struct jinja_value self = evaluate(e, expr->operands.first);
    if (jinja_failed(&e->run) || !evaluate_arguments(e, &expr->args, NULL, &args)) return jinja_none();
    at(e, expr);
    if (expr->function) return expr->function(&e->run, self, &args);
    jinja_fail(&e->run, "there is no %s \"%.*s\"", expr->kind == JINJA_EXPR_FILTER ? "filter" : "test",
               (int)expr->called.string->length, expr->called.string->bytes);
    return jinja_none();
}

static struct jinja_value evaluate_here(struct evaluator *e, const struct jinja_expr *expr)
{
    switch (expr->kind) {
    case JINJA_EXPR_CONSTANT:
        return expr->value;
    case JINJA_EXPR_NAME:
        return evaluate_name(e, expr);
    case JINJA_EXPR_CAPTURED:
        return e->captured;
    case JINJA_EXPR_TUPLE:
    case JINJA_EXPR_LIST:
        return evaluate_sequence(e, expr);
    case JINJA_EXPR_DICT:
        return evaluate_dict(e, expr);
    case JINJA_EXPR_CONDITION:
        return evaluate_condition(e, expr);
    case JINJA_EXPR_OR:
    case JINJA_EXPR_AND:
        return evaluate_logic(e, expr);
    case JINJA_EXPR_COMPARE:
        return evaluate_comparison(e, expr);
    case JINJA_EXPR_CONCATENATE:
        return evaluate_concatenation(e, expr);
    case JINJA_EXPR_CALL:
        return evaluate_call(e, expr, NULL);
    case JINJA_EXPR_FILTER:
    case JINJA_EXPR_TEST:
        return evaluate_function(e, expr);
    default:
        return evaluate_operation(e, expr);
    }
}

struct jinja_value evaluate(struct evaluator *e, const struct jinja_expr *expr)
{
    if (!evaluator_enter(e)) return jinja_none();
    const struct jinja_value value = evaluate_here(e, expr);
    e->levels--;
    return value;
}
