/* The tables of methods, and the methods of lists, dicts and numbers. */
#include <math.h>
#include <string.h>

#include "tokenizer/jinja/library.h"

/* --- lists and tuples --- */

static struct jinja_value list_index(struct jinja_run *run, struct jinja_call *c)
{
    int64_t start, stop, count = (int64_t)c->self.list->count;
    if (!jinja_expect_int(run, "index", c->v[1], 0, &start) || !jinja_expect_int(run, "index", c->v[2], count, &stop))
        return jinja_undefined(NULL);
    if (start < 0) start = start < -count ? 0 : start + count;
    if (stop < 0) stop += count;
    for (int64_t i = start; i < stop && i < count && jinja_tick(run); i++) {
        if (jinja_equal(run, c->self.list->items[i], c->v[0])) return jinja_int(i);
    }
    return jinja_error(run, "the value is not in the %s", jinja_type_name(c->self));
}

static struct jinja_value list_count(struct jinja_run *run, struct jinja_call *c)
{
    int64_t count = 0;
    for (size_t i = 0; i < c->self.list->count && jinja_tick(run); i++)
        count += jinja_equal(run, c->self.list->items[i], c->v[0]);
    return jinja_int(count);
}

static struct jinja_value list_copy(struct jinja_run *run, struct jinja_call *c)
{
    struct jinja_value none = jinja_none();
    return jinja_slice(run, c->self, none, none, none);
}

static const struct jinja_function sequence_methods[] = {
    {"index", list_index, "value, start=, stop=, /"}, {"count", list_count, "value, /"}, {NULL}};
static const struct jinja_function list_methods[] = {{"copy", list_copy, "/"}, {NULL}};

/* --- dicts --- */

static struct jinja_value dict_get(struct jinja_run *run, struct jinja_call *c)
{
    const struct jinja_value *found = jinja_dict_get(run, c->self.dict, c->v[0]);
    return found ? *found : c->args->count == 2 ? c->v[1] : jinja_none();
}

static struct jinja_value dict_view(struct jinja_run *run, struct jinja_call *c)
{
    return jinja_dict_view(run, c->self.dict, (enum jinja_view)c->variant);
}

static struct jinja_value dict_copy(struct jinja_run *run, struct jinja_call *c)
{
    struct jinja_value copy = jinja_dict_new(run);
    for (size_t i = 0; i < c->self.dict->count && jinja_tick(run); i++)
        jinja_dict_set(run, copy.dict, c->self.dict->pairs[i].key, c->self.dict->pairs[i].value);
    return copy;
}

static const struct jinja_function dict_methods[] = {
    {"get", dict_get, "key, default=, /"},
    {"items", dict_view, "/", JINJA_ITEMS},
    {"keys", dict_view, "/", JINJA_KEYS},
    {"values", dict_view, "/", JINJA_VALUES},
    {"copy", dict_copy, "/"},
    {NULL},
};

/* --- numbers --- */

static struct jinja_value int_bit_length(struct jinja_run *run, struct jinja_call *c)
{
    (void)run;
    int64_t i = 0, bits = 0;
    jinja_is_int(c->self, &i);
    for (uint64_t rest = i < 0 ? 0 - (uint64_t)i : (uint64_t)i; rest; rest >>= 1) bits++;
    return jinja_int(bits);
}

static struct jinja_value float_is_integer(struct jinja_run *run, struct jinja_call *c)
{
    (void)run;
    return jinja_bool(isfinite(c->self.real) && c->self.real == floor(c->self.real));
}

static const struct jinja_function int_methods[] = {{"bit_length", int_bit_length, "/"}, {NULL}};
static const struct jinja_function float_methods[] = {{"is_integer", float_is_integer, "/"}, {NULL}};

/* --- all methods --- */

const struct jinja_function *const jinja_str_methods[] = {
    jinja_split_methods, jinja_strip_methods, jinja_search_methods, jinja_case_methods, jinja_format_methods, NULL};

const struct jinja_function *jinja_find_method(enum jinja_kind kind, const struct jinja_string *name)
{
    static const struct jinja_function *const of_int[] = {int_methods, NULL}, *const of_float[] = {float_methods, NULL},
                                              *const of_list[] = {sequence_methods, list_methods, NULL},
                                              *const of_tuple[] = {sequence_methods, NULL},
                                              *const of_dict[] = {dict_methods, NULL};
    static const struct jinja_function *const *const of_kind[JINJA_OBJECT + 1] = {
        [JINJA_BOOL] = of_int,  [JINJA_INT] = of_int,     [JINJA_FLOAT] = of_float, [JINJA_STRING] = jinja_str_methods,
        [JINJA_LIST] = of_list, [JINJA_TUPLE] = of_tuple, [JINJA_DICT] = of_dict};
    return of_kind[kind] ? jinja_find_function(of_kind[kind], name) : NULL;
}

struct jinja_value jinja_call_str_method(struct jinja_run *run, const char *name, struct jinja_value self,
                                         const struct jinja_args *args)
{
    const struct jinja_string key = {.bytes = name, .length = strlen(name)};
    const struct jinja_value text = jinja_str(run, self);
    if (text.kind != JINJA_STRING) return text;
    return jinja_apply(run, jinja_find_function(jinja_str_methods, &key), text, args);
}
