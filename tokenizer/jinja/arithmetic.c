/* The operators of numbers, + and * of strings and lists, and ~. */
#include <math.h>

#include "tokenizer/jinja/library.h"

static const char *symbol(enum jinja_operator op)
{
    static const char *const symbols[] = {"+", "-", "*", "/", "//", "%", "**"};
    return symbols[op];
}

static struct jinja_value overflow(struct jinja_run *run)
{
    return jinja_error(run, "the result is too large for an integer of 64 bits");
}

/* --- integers --- */

static struct jinja_value divide_ints(struct jinja_run *run, enum jinja_operator op, int64_t a, int64_t b)
{
    if (b == 0)
        return jinja_error(run, "%s", op == JINJA_DIVIDE ? "division by zero" : "integer division or modulo by zero");
    if (op == JINJA_DIVIDE) return jinja_float((double)a / (double)b);
    if (b == -1) { /* INT64_MIN / -1 has no result */
        if (op == JINJA_MODULO) return jinja_int(0);
        return a == INT64_MIN ? overflow(run) : jinja_int(-a);
    }
    int64_t quotient = a / b, rest = a % b;
    if (rest != 0 && (rest < 0) != (b < 0)) {
        quotient--;
        rest += b;
    }
    return jinja_int(op == JINJA_MODULO ? rest : quotient);
}

static struct jinja_value power_of_ints(struct jinja_run *run, int64_t base, int64_t exponent)
{
    if (exponent < 0) {
        if (base == 0) return jinja_error(run, "0.0 cannot be raised to a negative power");
        return jinja_float(pow((double)base, (double)exponent));
    }
    int64_t result = 1;
    while (exponent) {
        if (exponent & 1 && __builtin_mul_overflow(result, base, &result)) return overflow(run);
        exponent >>= 1;
        if (exponent && __builtin_mul_overflow(base, base, &base)) return overflow(run);
    }
    return jinja_int(result);
}

static struct jinja_value int_arithmetic(struct jinja_run *run, enum jinja_operator op, int64_t a, int64_t b)
{
    int64_t result;
    bool too_large;
    switch (op) {
    case JINJA_ADD:
        too_large = __builtin_add_overflow(a, b, &result);
        break;
    case JINJA_SUBTRACT:
        too_large = __builtin_sub_overflow(a, b, &result);
        break;
    case JINJA_MULTIPLY:
        too_large = __builtin_mul_overflow(a, b, &result);
        break;
    case JINJA_POWER:
        return power_of_ints(run, a, b);
    default:
        return divide_ints(run, op, a, b);
    }
    return too_large ? overflow(run) : jinja_int(result);
}

/* --- floats --- */

/* The rest has the divisor's sign, as in Python. */
static double float_modulo(double a, double b)
{
    double rest = fmod(a, b);
    if (rest == 0) return copysign(0, b);
    return (rest < 0) != (b < 0) ? rest + b : rest;
}

static double float_floor_divide(double a, double b)
{
    double quotient = (a - float_modulo(a, b)) / b;
    if (quotient == 0) return copysign(0, a / b);
    double whole = floor(quotient);
    return quotient - whole > 0.5 ? whole + 1 : whole;
}

static struct jinja_value power_of_floats(struct jinja_run *run, double base, double exponent)
{
    if (base == 0 && exponent < 0) return jinja_error(run, "0.0 cannot be raised to a negative power");
    if (base < 0 && isfinite(base) && isfinite(exponent) && exponent != floor(exponent))
        return jinja_error(
            run, "a negative number raised to a fraction would be a complex number, which templates do not have");
    double result = pow(base, exponent);
    if (isinf(result) && isfinite(base) && isfinite(exponent))
        return jinja_error(run, "the result is too large for a float");
    return jinja_float(result);
}

static struct jinja_value float_arithmetic(struct jinja_run *run, enum jinja_operator op, double a, double b)
{
    if (op == JINJA_ADD) return jinja_float(a + b);
    if (op == JINJA_SUBTRACT) return jinja_float(a - b);
    if (op == JINJA_MULTIPLY) return jinja_float(a * b);
    if (op == JINJA_POWER) return power_of_floats(run, a, b);
    if (b == 0)
        return jinja_error(run, "%s",
                           op == JINJA_DIVIDE ? "float division by zero" : "float floor division or modulo by zero");
    if (op == JINJA_DIVIDE) return jinja_float(a / b);
    return jinja_float(op == JINJA_MODULO ? float_modulo(a, b) : float_floor_divide(a, b));
}

/* --- strings and lists --- */

static struct jinja_value add_strings(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    bool markup = a.string->is_markup || b.string->is_markup;
    if (markup) {
        a = jinja_escape(run, a);
        b = jinja_escape(run, b);
        if (jinja_failed(run)) return jinja_undefined(NULL);
    }
    struct jinja_builder builder = {0};
    jinja_build_string(run, &builder, a.string);
    jinja_build_string(run, &builder, b.string);
    struct jinja_value sum = jinja_build_end(run, &builder);
    return markup ? jinja_as_markup(run, sum) : sum;
}

static bool append_all(struct jinja_run *run, struct jinja_list *list, const struct jinja_list *more)
{
    for (size_t i = 0; i < more->count; i++) {
        if (!jinja_tick(run) || !jinja_list_append(run, list, more->items[i])) return false;
    }
    return !jinja_failed(run);
}

/* The sum takes the room behind a's items, if there is enough, so that a template which adds to a list again and again
 * copies little. a keeps its items, but no room: the next sum that begins with it is a copy. */
static struct jinja_value add_lists(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    struct jinja_value sum = jinja_list_new(run, a.kind);
    struct jinja_list *from = a.list;
    if (sum.kind != a.kind) return sum;
    if (from->capacity >= from->count + b.list->count) {
        *sum.list = (struct jinja_list){.items = from->items, .count = from->count, .capacity = from->capacity};
        from->capacity = from->count;
    } else if (!append_all(run, sum.list, from)) {
        return sum;
    }
    append_all(run, sum.list, b.list);
    return sum;
}

static struct jinja_value repeat(struct jinja_run *run, struct jinja_value v, int64_t count)
{
    if (v.kind == JINJA_STRING) {
        struct jinja_builder b = {0};
        jinja_build_repeated(run, &b, v.string, count);
        struct jinja_value repeated = jinja_build_end(run, &b);
        return v.string->is_markup ? jinja_as_markup(run, repeated) : repeated;
    }
    struct jinja_value list = jinja_list_new(run, v.kind);
    if (list.kind != v.kind) return list;
    for (int64_t i = 0; i < count && v.list->count; i++) {
        if (!append_all(run, list.list, v.list)) break;
    }
    return list;
}

static bool is_sequence(struct jinja_value v)
{
    return v.kind == JINJA_STRING || v.kind == JINJA_LIST || v.kind == JINJA_TUPLE;
}

static struct jinja_value refuse(struct jinja_run *run, enum jinja_operator op, struct jinja_value a,
                                 struct jinja_value b)
{
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED)
        return jinja_wrong_type(run, symbol(op), "defined values", a.kind == JINJA_UNDEFINED ? a : b);
    if (op == JINJA_ADD && is_sequence(a)) {
        jinja_fail(run, "can only concatenate %s (not \"%s\") to %s", jinja_type_name(a), jinja_type_name(b),
                   jinja_type_name(a));
    } else {
        jinja_fail(run, "unsupported operand types for %s: '%s' and '%s'", symbol(op), jinja_type_name(a),
                   jinja_type_name(b));
    }
    return jinja_undefined(NULL);
}

struct jinja_value jinja_arithmetic(struct jinja_run *run, enum jinja_operator op, struct jinja_value a,
                                    struct jinja_value b)
{
    int64_t i, j;
    if (jinja_failed(run)) return jinja_undefined(NULL);
    bool a_int = jinja_is_int(a, &i), b_int = jinja_is_int(b, &j);
    if (a_int && b_int) return int_arithmetic(run, op, i, j);
    if (jinja_is_number(a) && jinja_is_number(b) && a.kind != JINJA_BIG_INT && b.kind != JINJA_BIG_INT)
        return float_arithmetic(run, op, jinja_to_double(a), jinja_to_double(b));
    if (op == JINJA_ADD && a.kind == b.kind && is_sequence(a))
        return a.kind == JINJA_STRING ? add_strings(run, a, b) : add_lists(run, a, b);
    if (op == JINJA_MULTIPLY && is_sequence(a) && b_int) return repeat(run, a, j);
    if (op == JINJA_MULTIPLY && a_int && is_sequence(b)) return repeat(run, b, i);
    if (op == JINJA_MODULO && a.kind == JINJA_STRING) return jinja_percent_format(run, a.string, b);
    return refuse(run, op, a, b);
}

struct jinja_value jinja_negate(struct jinja_run *run, struct jinja_value v, bool plus)
{
    int64_t i;
    if (jinja_failed(run)) return jinja_undefined(NULL);
    if (v.kind == JINJA_FLOAT) return jinja_float(plus ? v.real : -v.real);
    if (jinja_is_int(v, &i)) return plus ? jinja_int(i) : int_arithmetic(run, JINJA_SUBTRACT, 0, i);
    if (v.kind == JINJA_UNDEFINED) return jinja_wrong_type(run, plus ? "+" : "-", "a number", v);
    return jinja_error(run, "bad operand type for unary %s: '%s'", plus ? "+" : "-", jinja_type_name(v));
}

struct jinja_value jinja_concatenate(struct jinja_run *run, const struct jinja_value *items, size_t count)
{
    struct jinja_builder b = {0};
    for (size_t i = 0; i < count; i++) jinja_build_str(run, &b, items[i]);
    return jinja_build_end(run, &b);
}
