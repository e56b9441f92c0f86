/* Expressions. */
#include "tokenizer/jinja/evaluator.h"

enum { MAX_LEVELS = 20 * JINJA_MAX_DEPTH };

bool evaluator_enter(struct evaluator *e)
{
    if (e->levels == MAX_LEVELS)
        jinja_fail(&e->run, "statements, expressions and calls are nested more than %d deep", MAX_LEVELS);
    if (!jinja_tick(&e->run)) return false;
    if (!e->library_calls) jinja_collect(&e->run);
    e->levels++;
    return true;
}

void hold(struct evaluator *e, struct held *held, const struct jinja_value *values, size_t count)
{
    *held = (struct held){e->held, values, count};
    e->held = held;
}

void release(struct evaluator *e, const struct held *held)
{
    e->held = held->outer;
}

/* A value that is held while another expression is evaluated. */
static struct jinja_value evaluate_holding(struct evaluator *e, const struct jinja_expr *expr, struct jinja_value value)
{
    struct held held;
    hold(e, &held, &value, 1);
    const struct jinja_value result = evaluate(e, expr);
    release(e, &held);
    return result;
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
        jinja_list_append(&e->run, list.list, evaluate_holding(e, item, list));
    return list;
}

static struct jinja_value evaluate_dict(struct evaluator *e, const struct jinja_expr *expr)
{
    struct jinja_value dict = jinja_dict_new(&e->run);
    struct held held;
    hold(e, &held, &dict, 1);
    for (const struct jinja_expr *key = expr->operands.first; key && !jinja_failed(&e->run); key = key->next->next) {
        const struct jinja_value k = evaluate(e, key), v = evaluate_holding(e, key->next, k);
        evaluator_at(e, key);
        if (!jinja_failed(&e->run)) jinja_dict_set(&e->run, dict.dict, k, v);
    }
    release(e, &held);
    return dict;
}

/* x or y, x and y: the operand that decides. */
static struct jinja_value evaluate_logic(struct evaluator *e, const struct jinja_expr *expr)
{
    const struct jinja_value left = evaluate(e, expr->operands.first);
    evaluator_at(e, expr);
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

/* a < b < c is a < b and b < c, with b evaluated once. */
static struct jinja_value evaluate_comparison(struct evaluator *e, const struct jinja_expr *expr)
{
    struct jinja_value left = evaluate(e, expr->operands.first);
    bool result = true;
    for (const struct jinja_expr *operand = expr->operands.first->next; operand && result; operand = operand->next) {
        const struct jinja_value right = evaluate_holding(e, operand, left);
        if (jinja_failed(&e->run)) break;
        evaluator_at(e, expr);
        result = jinja_compares(&e->run, operand->comparison, left, right);
        left = right;
    }
    return jinja_bool(result);
}

/* The values of the operands, whose number is `count`; false after a failure. */
static bool evaluate_operands(struct evaluator *e, const struct jinja_expr *expr, struct jinja_value *values,
                              size_t count)
{
    const struct jinja_expr *operand = expr->operands.first;
    struct held held;
    hold(e, &held, values, 0);
    for (; held.count < count; held.count++, operand = operand->next) values[held.count] = evaluate(e, operand);
    release(e, &held);
    evaluator_at(e, expr);
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
    const struct jinja_value tuple = evaluate_sequence(e, expr);
    evaluator_at(e, expr);
    return jinja_failed(&e->run) ? jinja_none() : jinja_concatenate(&e->run, tuple.list->items, tuple.list->count);
}

/* --- calls --- */

/* Arguments while they are evaluated: an object that no template sees. */
struct arguments {
    struct jinja_object base;
    struct jinja_value *positional; /* behind this struct, as are ... */
    struct jinja_keyword *keywords;
    struct jinja_args args; /* ... which refer to them */
};

static void reach_arguments(struct jinja_run *run, struct jinja_object *self)
{
    const struct arguments *a = (const struct arguments *)self;
    for (size_t i = 0; i < a->args.count; i++) jinja_reach(run, a->positional[i]);
    for (size_t i = 0; i < a->args.num_keywords; i++) {
        jinja_reach(run, a->keywords[i].name);
        jinja_reach(run, a->keywords[i].value);
    }
}

static const struct jinja_object_type arguments_type = {.name = "arguments", .reach = reach_arguments};

/* A copy of `from`, or no arguments if that is NULL, with room for `positional` more values and `keywords` more names.
 */
static struct arguments *new_arguments(struct evaluator *e, const struct arguments *from, size_t positional,
                                       size_t keywords)
{
    static const struct arguments none = {.base = {&arguments_type}};
    const struct jinja_args *old = from ? &from->args : &none.args;
    const size_t values = old->count + positional, names = old->num_keywords + keywords;
    struct arguments *a =
        jinja_alloc(&e->run, sizeof *a + values * sizeof *a->positional + names * sizeof *a->keywords);
    if (!a) return NULL;
    *a = from ? *from : none;
    a->args.positional = a->positional = (struct jinja_value *)(a + 1);
    a->args.keywords = a->keywords = (struct jinja_keyword *)(a->positional + values);
    for (size_t i = 0; i < old->count; i++) a->positional[i] = old->positional[i];
    for (size_t i = 0; i < old->num_keywords; i++) a->keywords[i] = old->keywords[i];
    return a;
}

static struct arguments *add_list(struct evaluator *e, struct arguments *a, const struct jinja_expr *expr)
{
    const struct jinja_value value = evaluate_holding(e, expr, jinja_object(&a->base));
    evaluator_at(e, expr);
    const struct jinja_list *list = jinja_iterate(&e->run, value);
    if (!list || !(a = new_arguments(e, a, list->count, 1))) return NULL;
    for (size_t i = 0; i < list->count; i++) a->positional[a->args.count++] = list->items[i];
    return a;
}

static void add_keyword(struct evaluator *e, struct arguments *a, struct jinja_value name, struct jinja_value value)
{
    for (size_t i = 0; i < a->args.num_keywords && jinja_tick(&e->run); i++)
        if (jinja_equal(&e->run, a->keywords[i].name, name))
            jinja_fail(&e->run, "got multiple values for keyword argument '%.*s'", (int)name.string->length,
                       name.string->bytes);
    a->keywords[a->args.num_keywords++] = (struct jinja_keyword){name, value};
}

static struct arguments *add_dict(struct evaluator *e, struct arguments *a, const struct jinja_expr *expr)
{
    const struct jinja_value value = evaluate_holding(e, expr, jinja_object(&a->base));
    evaluator_at(e, expr);
    if (jinja_failed(&e->run)) return NULL;
    if (value.kind != JINJA_DICT) {
        jinja_fail(&e->run, "argument after ** must be a mapping, not %s", jinja_type_name(value));
        return NULL;
    }
    a = new_arguments(e, a, 0, value.dict->count);
    for (size_t i = 0; i < value.dict->count && !jinja_failed(&e->run); i++) {
        const struct jinja_pair *pair = &value.dict->pairs[i];
        if (pair->key.kind == JINJA_STRING)
            add_keyword(e, a, pair->key, pair->value);
        else
            jinja_fail(&e->run, "keywords must be strings");
    }
    return a;
}

/* `caller`: the block that a call block gives to what it calls; NULL: none. */
static bool evaluate_arguments(struct evaluator *e, const struct jinja_arguments *in, const struct jinja_value *caller,
                               struct jinja_args *out)
{
    *out = (struct jinja_args){0};
    if (!in->positional.count && !in->more_positional && !in->num_keywords && !in->more_keywords && !caller)
        return true;
    struct arguments *a = new_arguments(e, NULL, in->positional.count, in->num_keywords + 1);
    for (const struct jinja_expr *expr = in->positional.first; expr && !jinja_failed(&e->run); expr = expr->next) {
        const struct jinja_value value = evaluate_holding(e, expr, jinja_object(&a->base));
        a->positional[a->args.count++] = value;
    }
    for (const struct jinja_named_expr *k = in->keywords; k && !jinja_failed(&e->run); k = k->next) {
        const struct jinja_value value = evaluate_holding(e, k->value, jinja_object(&a->base));
        a->keywords[a->args.num_keywords++] = (struct jinja_keyword){k->name, value};
    }
    if (caller && !jinja_failed(&e->run)) add_keyword(e, a, jinja_literal(&e->run, "caller"), *caller);
    if (in->more_positional && !jinja_failed(&e->run)) a = add_list(e, a, in->more_positional);
    if (in->more_keywords && !jinja_failed(&e->run)) a = add_dict(e, a, in->more_keywords);
    if (jinja_failed(&e->run)) return false;
    *out = a->args;
    return true;
}

/* The callee of a call, or what a filter or test is given; and the arguments. */
static struct jinja_value evaluate_self(struct evaluator *e, const struct jinja_expr *expr,
                                        const struct jinja_value *caller, struct jinja_args *args)
{
    const struct jinja_value self = evaluate(e, expr->operands.first);
    struct held held;
    hold(e, &held, &self, 1);
    if (!jinja_failed(&e->run) && evaluate_arguments(e, &expr->args, caller, args)) evaluator_at(e, expr);
    release(e, &held);
    return self;
}

struct jinja_value evaluate_call(struct evaluator *e, const struct jinja_expr *expr, const struct jinja_value *caller)
{
    struct jinja_args args;
    const struct jinja_value callee = evaluate_self(e, expr, caller, &args);
    return jinja_failed(&e->run) ? jinja_none() : jinja_call(&e->run, callee, &args);
}

static struct jinja_value evaluate_function(struct evaluator *e, const struct jinja_expr *expr)
{
    struct jinja_args args;
    const struct jinja_value self = evaluate_self(e, expr, NULL, &args);
    if (jinja_failed(&e->run)) return jinja_none();
    if (expr->function) return jinja_apply(&e->run, expr->function, self, &args);
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
