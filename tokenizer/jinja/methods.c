/* The tables of methods, and the methods of lists, dicts and numbers. */
#include <math.h>

#include "tokenizer/jinja/str_methods.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

const struct jinja_named jinja_str_methods[] = {
    {"capitalize", jinja_str_capitalize},
    {"casefold", jinja_str_casefold},
    {"center", jinja_str_center},
    {"count", jinja_str_count},
    {"endswith", jinja_str_endswith},
    {"expandtabs", jinja_str_expandtabs},
    {"find", jinja_str_find},
    {"format", jinja_str_format},
    {"format_map", jinja_str_format_map},
    {"index", jinja_str_index},
    {"isalnum", jinja_str_isalnum},
    {"isalpha", jinja_str_isalpha},
    {"isascii", jinja_str_isascii},
    {"isdecimal", jinja_str_isdecimal},
    {"isdigit", jinja_str_isdigit},
    {"isidentifier", jinja_str_isidentifier},
    {"islower", jinja_str_islower},
    {"isnumeric", jinja_str_isnumeric},
    {"isprintable", jinja_str_isprintable},
    {"isspace", jinja_str_isspace},
    {"istitle", jinja_str_istitle},
    {"isupper", jinja_str_isupper},
    {"join", jinja_str_join},
    {"ljust", jinja_str_ljust},
    {"lower", jinja_str_lower},
    {"lstrip", jinja_str_lstrip},
    {"partition", jinja_str_partition},
    {"removeprefix", jinja_str_removeprefix},
    {"removesuffix", jinja_str_removesuffix},
    {"replace", jinja_str_replace},
    {"rfind", jinja_str_rfind},
    {"rindex", jinja_str_rindex},
    {"rjust", jinja_str_rjust},
    {"rpartition", jinja_str_rpartition},
    {"rsplit", jinja_str_rsplit},
    {"rstrip", jinja_str_rstrip},
    {"split", jinja_str_split},
    {"splitlines", jinja_str_splitlines},
    {"startswith", jinja_str_startswith},
    {"strip", jinja_str_strip},
    {"swapcase", jinja_str_swapcase},
    {"title", jinja_str_title},
    {"upper", jinja_str_upper},
    {"zfill", jinja_str_zfill},
};
const size_t jinja_num_str_methods = COUNT(jinja_str_methods);

/* --- lists and tuples --- */

static struct jinja_value list_index(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    struct jinja_value v[3];
    int64_t start, stop, count = (int64_t)self.list->count;
    if (!jinja_bind_positional(run, "index", args, 3, 1, v) || !jinja_expect_int(run, "index", v[1], 0, &start) ||
        !jinja_expect_int(run, "index", v[2], count, &stop))
        return jinja_undefined(NULL);
    if (start < 0) start = start < -count ? 0 : start + count;
    if (stop < 0) stop += count;
    for (int64_t i = start; i < stop && i < count && jinja_tick(run); i++) {
        if (jinja_equal(run, self.list->items[i], v[0])) return jinja_int(i);
    }
    jinja_fail(run, "the value is not in the %s", jinja_type_name(self));
    return jinja_undefined(NULL);
}

static struct jinja_value list_count(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    struct jinja_value v;
    int64_t count = 0;
    if (!jinja_bind_positional(run, "count", args, 1, 1, &v)) return jinja_undefined(NULL);
    for (size_t i = 0; i < self.list->count && jinja_tick(run); i++) count += jinja_equal(run, self.list->items[i], v);
    return jinja_int(count);
}

static struct jinja_value list_copy(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    struct jinja_value none = jinja_none();
    if (!jinja_bind_positional(run, "copy", args, 0, 0, NULL)) return jinja_undefined(NULL);
    return jinja_slice(run, self, none, none, none);
}

const struct jinja_named jinja_list_methods[] = {{"index", list_index}, {"count", list_count}, {"copy", list_copy}};
const size_t jinja_num_list_methods = COUNT(jinja_list_methods);
const struct jinja_named jinja_tuple_methods[] = {{"index", list_index}, {"count", list_count}};
const size_t jinja_num_tuple_methods = COUNT(jinja_tuple_methods);

/* --- dicts --- */

static struct jinja_value dict_get(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    struct jinja_value v[2];
    if (!jinja_bind_positional(run, "get", args, 2, 1, v)) return jinja_undefined(NULL);
    const struct jinja_value *found = jinja_dict_get(run, self.dict, v[0]);
    return found ? *found : args->count == 2 ? v[1] : jinja_none();
}

static struct jinja_value view(struct jinja_run *run, const char *name, struct jinja_value self,
                               const struct jinja_args *args, enum jinja_view kind)
{
    if (!jinja_bind_positional(run, name, args, 0, 0, NULL)) return jinja_undefined(NULL);
    return jinja_dict_view(run, self.dict, kind);
}

static struct jinja_value dict_keys(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return view(run, "keys", self, args, JINJA_KEYS);
}

static struct jinja_value dict_values(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return view(run, "values", self, args, JINJA_VALUES);
}

static struct jinja_value dict_items(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return view(run, "items", self, args, JINJA_ITEMS);
}

static struct jinja_value dict_copy(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    struct jinja_value copy = jinja_dict_new(run);
    if (!jinja_bind_positional(run, "copy", args, 0, 0, NULL)) return jinja_undefined(NULL);
    for (size_t i = 0; i < self.dict->count && jinja_tick(run); i++)
        jinja_dict_set(run, copy.dict, self.dict->pairs[i].key, self.dict->pairs[i].value);
    return copy;
}

const struct jinja_named jinja_dict_methods[] = {
    {"get", dict_get}, {"items", dict_items}, {"keys", dict_keys}, {"values", dict_values}, {"copy", dict_copy}};
const size_t jinja_num_dict_methods = COUNT(jinja_dict_methods);

/* --- numbers --- */

static struct jinja_value int_bit_length(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    int64_t i = 0, bits = 0;
    if (!jinja_bind_positional(run, "bit_length", args, 0, 0, NULL)) return jinja_undefined(NULL);
    jinja_is_int(self, &i);
    for (uint64_t rest = i < 0 ? 0 - (uint64_t)i : (uint64_t)i; rest; rest >>= 1) bits++;
    return jinja_int(bits);
}

static struct jinja_value float_is_integer(struct jinja_run *run, struct jinja_value self,
                                           const struct jinja_args *args)
{
    if (!jinja_bind_positional(run, "is_integer", args, 0, 0, NULL)) return jinja_undefined(NULL);
    return jinja_bool(isfinite(self.real) && self.real == floor(self.real));
}

const struct jinja_named jinja_int_methods[] = {{"bit_length", int_bit_length}};
const size_t jinja_num_int_methods = COUNT(jinja_int_methods);
const struct jinja_named jinja_float_methods[] = {{"is_integer", float_is_integer}};
const size_t jinja_num_float_methods = COUNT(jinja_float_methods);
