/* The tests: what stands after `is`. */
#include "tokenizer/jinja/library.h"

/* --- kinds --- */

/* `variant` is the kind. */
static struct jinja_value test_kind(struct jinja_run *run, struct jinja_call *c)
{
    (void)run;
    return jinja_bool((int)c->self.kind == c->variant);
}

static struct jinja_value test_defined(struct jinja_run *run, struct jinja_call *c)
{
    (void)run;
    return jinja_bool(c->self.kind != JINJA_UNDEFINED);
}

/* `variant` is the truth that is wanted. */
static struct jinja_value test_truth(struct jinja_run *run, struct jinja_call *c)
{
    (void)run;
    return jinja_bool(c->self.kind == JINJA_BOOL && c->self.boolean == c->variant);
}

static struct jinja_value test_integer(struct jinja_run *run, struct jinja_call *c)
{
    (void)run;
    return jinja_bool(c->self.kind == JINJA_INT || c->self.kind == JINJA_BIG_INT);
}

static struct jinja_value test_number(struct jinja_run *run, struct jinja_call *c)
{
    (void)run;
    return jinja_bool(jinja_is_number(c->self));
}

static struct jinja_value test_escaped(struct jinja_run *run, struct jinja_call *c)
{
    (void)run;
    return jinja_bool(c->self.kind == JINJA_STRING && c->self.string->is_markup);
}

/* What has a length and items; jinja2 counts an undefined value, too. */
static struct jinja_value test_sequence(struct jinja_run *run, struct jinja_call *c)
{
    (void)run;
    size_t length;
    if (c->self.kind != JINJA_OBJECT) return jinja_bool(jinja_length(c->self, &length));
    return jinja_bool(c->self.object->type->length && c->self.object->type->get_item);
}

static struct jinja_value test_iterable(struct jinja_run *run, struct jinja_call *c)
{
    (void)run;
    size_t length;
    if (c->self.kind != JINJA_OBJECT) return jinja_bool(jinja_length(c->self, &length));
    return jinja_bool(c->self.object->type->iterate);
}

static struct jinja_value test_callable(struct jinja_run *run, struct jinja_call *c)
{
    (void)run;
    return jinja_bool(c->self.kind == JINJA_UNDEFINED || (c->self.kind == JINJA_OBJECT && c->self.object->type->call));
}

/* --- numbers --- */

/* self % divisor == rest */
static struct jinja_value has_rest(struct jinja_run *run, struct jinja_value self, struct jinja_value divisor,
                                   int64_t rest)
{
    return jinja_bool(jinja_equal(run, jinja_arithmetic(run, JINJA_MODULO, self, divisor), jinja_int(rest)));
}

/* `variant` is the rest of a division by 2. */
static struct jinja_value test_parity(struct jinja_run *run, struct jinja_call *c)
{
    return has_rest(run, c->self, jinja_int(2), c->variant);
}

static struct jinja_value test_divisibleby(struct jinja_run *run, struct jinja_call *c)
{
    return has_rest(run, c->self, c->v[0], 0);
}

/* --- strings --- */

/* `variant` says whether upper case is wanted. */
static struct jinja_value test_case(struct jinja_run *run, struct jinja_call *c)
{
    return jinja_call_str_method(run, c->variant ? "isupper" : "islower", c->self, c->args);
}

/* The tables of filters and tests are dicts in jinja2. */
static bool is_key(struct jinja_run *run, struct jinja_value self)
{
    if (!jinja_is_hashable(run, self)) jinja_fail(run, "unhashable type: '%s'", jinja_type_name(self));
    return self.kind == JINJA_STRING && !jinja_failed(run);
}

static struct jinja_value test_filter(struct jinja_run *run, struct jinja_call *c)
{
    return jinja_bool(is_key(run, c->self) && jinja_find_filter(c->self.string));
}

static struct jinja_value test_test(struct jinja_run *run, struct jinja_call *c)
{
    return jinja_bool(is_key(run, c->self) && jinja_find_test(c->self.string));
}

/* --- comparisons --- */

/* `variant` is the comparison. */
static struct jinja_value test_comparison(struct jinja_run *run, struct jinja_call *c)
{
    return jinja_bool(jinja_compares(run, (enum jinja_comparison)c->variant, c->self, c->v[0]));
}

/* Python's `is`: the same object. Equal strings and numbers need not be one. */
static struct jinja_value test_sameas(struct jinja_run *run, struct jinja_call *c)
{
    const struct jinja_value self = c->self, other = c->v[0];
    if (self.kind != other.kind) return jinja_bool(false);
    switch (self.kind) {
    case JINJA_LIST:
    case JINJA_TUPLE:
        return jinja_bool(self.list == other.list);
    case JINJA_DICT:
        return jinja_bool(self.dict == other.dict);
    case JINJA_UNDEFINED:
        return jinja_bool(false);
    default:
        return jinja_bool(jinja_equal(run, self, other));
    }
}

static const char any[] = "the test", other[] = "other, /";
static const struct jinja_function tests[] = {
    {"odd", test_parity, "/", 1, any},
    {"even", test_parity, "/", 0, any},
    {"divisibleby", test_divisibleby, "num"},
    {"defined", test_defined, "/", 0, any},
    {"undefined", test_kind, "/", JINJA_UNDEFINED, any},
    {"filter", test_filter, "/", 0, any},
    {"test", test_test, "/", 0, any},
    {"none", test_kind, "/", JINJA_NONE, any},
    {"boolean", test_kind, "/", JINJA_BOOL, any},
    {"false", test_truth, "/", false, any},
    {"true", test_truth, "/", true, any},
    {"integer", test_integer, "/", 0, any},
    {"float", test_kind, "/", JINJA_FLOAT, any},
    {"lower", test_case, NULL, false},
    {"upper", test_case, NULL, true},
    {"string", test_kind, "/", JINJA_STRING, any},
    {"mapping", test_kind, "/", JINJA_DICT, any},
    {"number", test_number, "/", 0, any},
    {"sequence", test_sequence, "/", 0, any},
    {"iterable", test_iterable, "/", 0, any},
    {"callable", test_callable, "/", 0, any},
    {"sameas", test_sameas, "other"},
    {"escaped", test_escaped, "/", 0, any},
    {"in", test_comparison, "seq", JINJA_IN},
    {"==", test_comparison, other, JINJA_EQUAL, any},
    {"eq", test_comparison, other, JINJA_EQUAL, any},
    {"equalto", test_comparison, other, JINJA_EQUAL, any},
    {"!=", test_comparison, other, JINJA_NOT_EQUAL, any},
    {"ne", test_comparison, other, JINJA_NOT_EQUAL, any},
    {">", test_comparison, other, JINJA_GREATER, any},
    {"gt", test_comparison, other, JINJA_GREATER, any},
    {"greaterthan", test_comparison, other, JINJA_GREATER, any},
    {"ge", test_comparison, other, JINJA_GREATER_EQUAL, any},
    {">=", test_comparison, other, JINJA_GREATER_EQUAL, any},
    {"<", test_comparison, other, JINJA_LESS, any},
    {"lt", test_comparison, other, JINJA_LESS, any},
    {"lessthan", test_comparison, other, JINJA_LESS, any},
    {"<=", test_comparison, other, JINJA_LESS_EQUAL, any},
    {"le", test_comparison, other, JINJA_LESS_EQUAL, any},
    {NULL},
};

const struct jinja_function *jinja_find_test(const struct jinja_string *name)
{
    static const struct jinja_function *const tables[] = {tests, NULL};
    return jinja_find_function(tables, name);
}
