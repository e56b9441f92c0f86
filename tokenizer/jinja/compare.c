/* Equality and order. The equality of dicts looks up keys, and looking up a key compares: compare.c and dict.c are one
 * recursive unit. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tokenizer/jinja/library.h"

/* --- numbers --- */

/* An int64 and a double, compared exactly. */
static int compare_int_float(int64_t i, double d)
{
    if (isnan(d)) return 2;
    if (d >= 0x1p63) return -1;
    if (d < -0x1p63) return 1;
    int64_t whole = (int64_t)d;
    if (i != whole) return i < whole ? -1 : 1;
    double rest = d - (double)whole;
    return rest > 0 ? -1 : rest < 0;
}

/* Two integers of JSON, which has no leading zeros. */
static int compare_digits(const char *a, const char *b)
{
    const bool a_negative = *a == '-', b_negative = *b == '-';
    if (a_negative != b_negative) return a_negative ? -1 : 1;
    const size_t length = strlen(a), other = strlen(b);
    const int difference = length == other ? strcmp(a, b) : length < other ? -1 : 1;
    const int order = (difference > 0) - (difference < 0);
    return a_negative ? -order : order;
}

/* `b` is a number of any kind. */
static int compare_big(struct jinja_value a, struct jinja_value b)
{
    const char *digits = a.string->bytes;
    char text[320];
    int64_t i;
    if (b.kind == JINJA_BIG_INT) return compare_digits(digits, b.string->bytes);
    if (jinja_is_int(b, &i)) return *digits == '-' ? -1 : 1;
    if (isnan(b.real)) return 2;
    if (isinf(b.real)) return b.real > 0 ? -1 : 1;
    snprintf(text, sizeof text, "%.0f", b.real); /* exact; what it rounds off is nothing beside a number so large */
    return compare_digits(digits, text);
}

static int compare_numbers(struct jinja_value a, struct jinja_value b)
{
    if (a.kind == JINJA_BIG_INT) return compare_big(a, b);
    if (b.kind == JINJA_BIG_INT) {
        const int opposite = compare_big(b, a);
        return opposite == 2 ? 2 : -opposite;
    }
    int64_t i = 0, j = 0;
    bool a_int = jinja_is_int(a, &i), b_int = jinja_is_int(b, &j);
    if (a_int && b_int) return (i > j) - (i < j);
    if (a_int) return compare_int_float(i, b.real);
    if (b_int) {
        int order = compare_int_float(j, a.real);
        return order == 2 ? 2 : -order;
    }
    if (isnan(a.real) || isnan(b.real)) return 2;
    return (a.real > b.real) - (a.real < b.real);
}

/* --- equality and order --- */

static bool equal_lists(struct jinja_run *run, const struct jinja_list *a, const struct jinja_list *b)
{
    if (a->count != b->count) return false;
    for (size_t i = 0; i < a->count; i++) {
        if (!jinja_tick(run) || !jinja_equal(run, a->items[i], b->items[i])) return false;
    }
    return true;
}

static bool equal_dicts(struct jinja_run *run, const struct jinja_dict *a, const struct jinja_dict *b)
{
    if (a->count != b->count) return false;
    for (size_t i = 0; i < a->count; i++) {
        const struct jinja_value *other = jinja_dict_get(run, b, a->pairs[i].key);
        if (!jinja_tick(run) || !other || !jinja_equal(run, a->pairs[i].value, *other)) return false;
    }
    return true;
}

static bool equal_ranges(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    if (a.object == b.object) return true;
    if (!jinja_is_range(a) || !jinja_is_range(b)) return false;
    const struct jinja_list *x = jinja_iterate(run, a), *y = jinja_iterate(run, b);
    return x && y && equal_lists(run, x, y);
}

static bool equal_containers(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    if (!jinja_enter(run)) return false;
    bool equal = a.kind == JINJA_DICT     ? equal_dicts(run, a.dict, b.dict)
                 : a.kind == JINJA_OBJECT ? equal_ranges(run, a, b)
                                          : equal_lists(run, a.list, b.list);
    jinja_leave(run);
    return equal;
}

bool jinja_equal(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    if (jinja_failed(run)) return false;
    if (jinja_is_number(a) && jinja_is_number(b)) return compare_numbers(a, b) == 0;
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return true;
    case JINJA_STRING:
        return jinja_strings_equal(a.string, b.string);
    default:
        return equal_containers(run, a, b);
    }
}

static int compare_strings(const struct jinja_string *a, const struct jinja_string *b)
{
    size_t common = a->length < b->length ? a->length : b->length;
    int order = memcmp(a->bytes, b->bytes, common); /* the order of UTF-8's bytes is that of code points */
    if (order == 0) return (a->length > b->length) - (a->length < b->length);
    return order < 0 ? -1 : 1;
}

static int compare_lists(struct jinja_run *run, const struct jinja_list *a, const struct jinja_list *b)
{
    if (!jinja_enter(run)) return 0;
    int order = (a->count > b->count) - (a->count < b->count);
    for (size_t i = 0; i < a->count && i < b->count; i++) {
        if (!jinja_tick(run) || jinja_equal(run, a->items[i], b->items[i])) continue;
        order = jinja_compare(run, a->items[i], b->items[i]);
        break;
    }
    jinja_leave(run);
    return order;
}

int jinja_compare(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    if (jinja_failed(run)) return 0;
    if (jinja_is_number(a) && jinja_is_number(b)) return compare_numbers(a, b);
    if (a.kind == JINJA_STRING && b.kind == JINJA_STRING) return compare_strings(a.string, b.string);
    if (a.kind == b.kind && (a.kind == JINJA_LIST || a.kind == JINJA_TUPLE)) return compare_lists(run, a.list, b.list);
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED) {
        jinja_wrong_type(run, "the comparison", "defined values", a.kind == JINJA_UNDEFINED ? a : b);
    } else {
        jinja_fail(run, "'<' is not supported between instances of '%s' and '%s'", jinja_type_name(a),
                   jinja_type_name(b));
    }
    return 0;
}

/* --- in --- */

static bool is_element(struct jinja_run *run, struct jinja_value container, struct jinja_value item)
{
    const struct jinja_list *items = jinja_iterate(run, container);
    for (size_t i = 0; items && i < items->count; i++) {
        if (!jinja_tick(run)) return false;
        if (jinja_equal(run, items->items[i], item)) return true;
    }
    return false;
}

static bool contains(struct jinja_run *run, struct jinja_value container, struct jinja_value item)
{
    if (container.kind == JINJA_DICT) return jinja_dict_get(run, container.dict, item) != NULL;
    if (container.kind != JINJA_STRING) return is_element(run, container, item);
    if (item.kind != JINJA_STRING)
        return jinja_fail(run, "'in <string>' requires string as left operand, not %s", jinja_type_name(item));
    return jinja_find_bytes(container.string, 0, container.string->length, item.string) != SIZE_MAX;
}

bool jinja_compares(struct jinja_run *run, enum jinja_comparison comparison, struct jinja_value a, struct jinja_value b)
{
    if (comparison == JINJA_EQUAL || comparison == JINJA_NOT_EQUAL)
        return jinja_equal(run, a, b) == (comparison == JINJA_EQUAL);
    if (comparison == JINJA_IN || comparison == JINJA_NOT_IN) return contains(run, b, a) == (comparison == JINJA_IN);
    const int order = jinja_compare(run, a, b);
    if (order == 2) return false;
    if (comparison == JINJA_LESS) return order < 0;
    if (comparison == JINJA_GREATER) return order > 0;
    return comparison == JINJA_LESS_EQUAL ? order <= 0 : order >= 0;
}
