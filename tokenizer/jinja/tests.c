/* The tests: what stands after `is`. */
#include <string.h>

#include "tokenizer/jinja/str_methods.h"

typedef struct jinja_value test(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args);

static bool no_arguments(struct jinja_run *run, const struct jinja_args *args)
{
    return jinja_bind_positional(run, "the test", args, 0, 0, NULL);
}

static bool one_argument(struct jinja_run *run, const struct jinja_args *args, struct jinja_value *out)
{
    return jinja_bind_positional(run, "the test", args, 1, 1, out);
}

/* --- kinds --- */

static struct jinja_value test_defined(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return jinja_bool(no_arguments(run, args) && self.kind != JINJA_UNDEFINED);
}

static struct jinja_value test_undefined(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return jinja_bool(no_arguments(run, args) && self.kind == JINJA_UNDEFINED);
}

static struct jinja_value test_none(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return jinja_bool(no_arguments(run, args) && self.kind == JINJA_NONE);
}

static struct jinja_value test_boolean(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return jinja_bool(no_arguments(run, args) && self.kind == JINJA_BOOL);
}

static struct jinja_value test_true(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return jinja_bool(no_arguments(run, args) && self.kind == JINJA_BOOL && self.boolean);
}

static struct jinja_value test_false(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return jinja_bool(no_arguments(run, args) && self.kind == JINJA_BOOL && !self.boolean);
}

static struct jinja_value test_integer(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return jinja_bool(no_arguments(run, args) && (self.kind == JINJA_INT || self.kind == JINJA_BIG_INT));
}

static struct jinja_value test_float(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return jinja_bool(no_arguments(run, args) && self.kind == JINJA_FLOAT);
}

static struct jinja_value test_number(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return jinja_bool(no_arguments(run, args) && jinja_is_number(self));
}

static struct jinja_value test_string(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return jinja_bool(no_arguments(run, args) && self.kind == JINJA_STRING);
}

static struct jinja_value test_escaped(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return jinja_bool(no_arguments(run, args) && self.kind == JINJA_STRING && self.string->is_markup);
}

static struct jinja_value test_mapping(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return jinja_bool(no_arguments(run, args) && self.kind == JINJA_DICT);
}

/* What has a length and items; jinja2 counts an undefined value, too. */
static struct jinja_value test_sequence(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    bool is_object = self.kind == JINJA_OBJECT;
    bool object_is_one = is_object && self.object->type->length && self.object->type->get_item;
    size_t length;
    return jinja_bool(no_arguments(run, args) && (is_object ? object_is_one : jinja_length(self, &length)));
}

static struct jinja_value test_iterable(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    size_t length;
    bool is_object = self.kind == JINJA_OBJECT;
    return jinja_bool(no_arguments(run, args) &&
                      (is_object ? self.object->type->iterate != NULL : jinja_length(self, &length)));
}

static struct jinja_value test_callable(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    bool is_callable = self.kind == JINJA_UNDEFINED || (self.kind == JINJA_OBJECT && self.object->type->call);
    return jinja_bool(no_arguments(run, args) && is_callable);
}

/* --- numbers --- */

/* self % divisor == rest */
static struct jinja_value has_rest(struct jinja_run *run, struct jinja_value self, struct jinja_value divisor,
                                   int64_t rest)
{
    return jinja_bool(jinja_equal(run, jinja_arithmetic(run, JINJA_MODULO, self, divisor), jinja_int(rest)));
}

static struct jinja_value test_odd(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return no_arguments(run, args) ? has_rest(run, self, jinja_int(2), 1) : jinja_undefined(NULL);
}

static struct jinja_value test_even(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return no_arguments(run, args) ? has_rest(run, self, jinja_int(2), 0) : jinja_undefined(NULL);
}

static struct jinja_value test_divisibleby(struct jinja_run *run, struct jinja_value self,
                                           const struct jinja_args *args)
{
    static const char *const names[] = {"num"};
    struct jinja_value divisor;
    if (!jinja_bind(run, "divisibleby", args, names, 1, 1, &divisor)) return jinja_undefined(NULL);
    return has_rest(run, self, divisor, 0);
}

/* --- strings --- */

static struct jinja_value judge(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args,
                                jinja_method *method)
{
    struct jinja_value text = jinja_str(run, self);
    return text.kind == JINJA_STRING ? method(run, text, args) : text;
}

static struct jinja_value test_lower(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return judge(run, self, args, jinja_str_islower);
}

static struct jinja_value test_upper(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return judge(run, self, args, jinja_str_isupper);
}

/* The tables of filters and tests are dicts in jinja2. */
static bool is_key(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    if (!no_arguments(run, args)) return false;
    if (!jinja_is_hashable(run, self)) jinja_fail(run, "unhashable type: '%s'", jinja_type_name(self));
    return self.kind == JINJA_STRING && !jinja_failed(run);
}

static struct jinja_value test_filter(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return jinja_bool(is_key(run, self, args) && jinja_find_filter(self.string));
}

static struct jinja_value test_test(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return jinja_bool(is_key(run, self, args) && jinja_find_test(self.string));
}

/* --- comparisons --- */

static struct jinja_value test_eq(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    struct jinja_value other;
    return jinja_bool(one_argument(run, args, &other) && jinja_equal(run, self, other));
}

static struct jinja_value test_ne(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    struct jinja_value other;
    return jinja_bool(one_argument(run, args, &other) && !jinja_equal(run, self, other));
}

static struct jinja_value test_lt(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    struct jinja_value other;
    return jinja_bool(one_argument(run, args, &other) && jinja_compare(run, self, other) == -1);
}

static struct jinja_value test_gt(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    struct jinja_value other;
    return jinja_bool(one_argument(run, args, &other) && jinja_compare(run, self, other) == 1);
}

static struct jinja_value test_le(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    struct jinja_value other;
    return jinja_bool(one_argument(run, args, &other) && jinja_compare(run, self, other) <= 0);
}

static struct jinja_value test_ge(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    struct jinja_value other;
    int order;
    if (!one_argument(run, args, &other)) return jinja_undefined(NULL);
    order = jinja_compare(run, self, other);
    return jinja_bool(order == 0 || order == 1);
}

static struct jinja_value test_in(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    static const char *const names[] = {"seq"};
    struct jinja_value container;
    return jinja_bool(jinja_bind(run, "in", args, names, 1, 1, &container) && jinja_contains(run, container, self));
}

/* Python's `is`: the same object. Equal strings and numbers need not be one. */
static struct jinja_value test_sameas(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    static const char *const names[] = {"other"};
    struct jinja_value other;
    if (!jinja_bind(run, "sameas", args, names, 1, 1, &other)) return jinja_undefined(NULL);
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

jinja_function jinja_find_test(const struct jinja_string *name)
{
    static const struct jinja_named tests[] = {
        {"odd", test_odd},
        {"even", test_even},
        {"divisibleby", test_divisibleby},
        {"defined", test_defined},
        {"undefined", test_undefined},
        {"filter", test_filter},
        {"test", test_test},
        {"none", test_none},
        {"boolean", test_boolean},
        {"false", test_false},
        {"true", test_true},
        {"integer", test_integer},
        {"float", test_float},
        {"lower", test_lower},
        {"upper", test_upper},
        {"string", test_string},
        {"mapping", test_mapping},
        {"number", test_number},
        {"sequence", test_sequence},
        {"iterable", test_iterable},
        {"callable", test_callable},
        {"sameas", test_sameas},
        {"escaped", test_escaped},
        {"in", test_in},
        {"==", test_eq},
        {"eq", test_eq},
        {"equalto", test_eq},
        {"!=", test_ne},
        {"ne", test_ne},
        {">", test_gt},
        {"gt", test_gt},
        {"greaterthan", test_gt},
        {"ge", test_ge},
        {">=", test_ge},
        {"<", test_lt},
        {"lt", test_lt},
        {"lessthan", test_lt},
        {"<=", test_le},
        {"le", test_le},
    };
    const struct jinja_named *found = jinja_find_named(tests, sizeof tests / sizeof tests[0], name);
    return found ? found->function : NULL;
}
