/* Filters that take lists apart and put them together. */
#include "tokenizer/jinja/filters.h"

struct jinja_value jinja_filter_length(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    size_t length;
    if (!jinja_bind_positional(run, "length", args, 0, 0, NULL)) return jinja_undefined(NULL);
    if (jinja_length(self, &length)) return jinja_int((int64_t)length);
    jinja_fail(run, "object of type '%s' has no len()", jinja_type_name(self));
    return jinja_undefined(NULL);
}

struct jinja_value jinja_filter_list(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    if (!jinja_bind_positional(run, "list", args, 0, 0, NULL)) return jinja_undefined(NULL);
    const struct jinja_list *from = jinja_iterate(run, self);
    struct jinja_value list = jinja_list_new(run, JINJA_LIST);
    for (size_t i = 0; from && i < from->count && jinja_tick(run); i++)
        jinja_list_append(run, list.list, from->items[i]);
    return list;
}

struct jinja_value jinja_filter_items(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    if (!jinja_bind_positional(run, "items", args, 0, 0, NULL)) return jinja_undefined(NULL);
    struct jinja_value items = jinja_list_new(run, JINJA_LIST);
    if (self.kind == JINJA_UNDEFINED) return jinja_generator(run, items);
    if (self.kind != JINJA_DICT) {
        jinja_fail(run, "Can only get item pairs from a mapping.");
        return jinja_undefined(NULL);
    }
    for (size_t i = 0; i < self.dict->count && jinja_tick(run); i++) {
        struct jinja_value both[] = {self.dict->pairs[i].key, self.dict->pairs[i].value};
        jinja_list_append(run, items.list, jinja_tuple(run, both, 2));
    }
    return jinja_generator(run, items);
}

struct jinja_value jinja_filter_first(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    struct jinja_value first;
    if (!jinja_bind_positional(run, "first", args, 0, 0, NULL)) return jinja_undefined(NULL);
    return jinja_first_element(run, self, &first) ? first : jinja_undefined("No first item, sequence was empty.");
}

/* What reversed(v) takes: anything but a generator. */
static const struct jinja_list *reversible(struct jinja_run *run, struct jinja_value v)
{
    size_t length;
    if (jinja_length(v, &length)) return jinja_iterate(run, v);
    jinja_fail(run, "'%s' object is not reversible", jinja_type_name(v));
    return NULL;
}

struct jinja_value jinja_filter_last(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    if (!jinja_bind_positional(run, "last", args, 0, 0, NULL)) return jinja_undefined(NULL);
    const struct jinja_list *list = reversible(run, self);
    return list && list->count ? list->items[list->count - 1] : jinja_undefined("No last item, sequence was empty.");
}

struct jinja_value jinja_filter_reverse(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    struct jinja_value none = jinja_none();
    size_t length;
    if (!jinja_bind_positional(run, "reverse", args, 0, 0, NULL)) return jinja_undefined(NULL);
    if (self.kind == JINJA_STRING) return jinja_slice(run, self, none, none, jinja_int(-1));
    bool was_list = !jinja_length(self, &length); /* a generator becomes a list, others a generator */
    const struct jinja_list *from = jinja_iterate(run, self);
    struct jinja_value list = jinja_list_new(run, JINJA_LIST);
    for (size_t i = from ? from->count : 0; i-- > 0 && jinja_tick(run);)
        jinja_list_append(run, list.list, from->items[i]);
    return was_list ? list : jinja_generator(run, list);
}

struct jinja_value jinja_filter_join(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    static const char *const names[] = {"d", "attribute"};
    struct jinja_value v[2];
    struct jinja_attribute attribute;
    if (!jinja_bind(run, "join", args, names, 2, 0, v) || !jinja_attribute_parse(run, v[1], &attribute))
        return jinja_undefined(NULL);
    struct jinja_value separator = jinja_str(run, v[0]);
    const struct jinja_list *list = jinja_iterate(run, self);
    struct jinja_builder b = {0};
    for (size_t i = 0; list && i < list->count && jinja_tick(run); i++) {
        if (i) jinja_build_string(run, &b, separator.string);
        jinja_build_str(run, &b, jinja_attribute_get(run, &attribute, list->items[i]));
    }
    return jinja_build_end(run, &b);
}

struct jinja_value jinja_filter_sum(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    static const char *const names[] = {"attribute", "start"};
    struct jinja_value v[2];
    struct jinja_attribute attribute;
    if (!jinja_bind(run, "sum", args, names, 2, 0, v) || !jinja_attribute_parse(run, v[0], &attribute))
        return jinja_undefined(NULL);
    struct jinja_value sum = v[1].kind == JINJA_UNDEFINED ? jinja_int(0) : v[1];
    if (sum.kind == JINJA_STRING) jinja_fail(run, "sum() can't sum strings [use ''.join(seq) instead]");
    const struct jinja_list *list = jinja_iterate(run, self);
    for (size_t i = 0; list && i < list->count && jinja_tick(run); i++)
        sum = jinja_arithmetic(run, JINJA_ADD, sum, jinja_attribute_get(run, &attribute, list->items[i]));
    return sum;
}

/* --- batch and slice --- */

struct jinja_value jinja_filter_batch(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    static const char *const names[] = {"linecount", "fill_with"};
    struct jinja_value v[2];
    int64_t size;
    if (!jinja_bind(run, "batch", args, names, 2, 1, v) || !jinja_expect_int(run, "batch", v[0], 0, &size))
        return jinja_undefined(NULL);
    const struct jinja_list *list = jinja_iterate(run, self);
    struct jinja_value out = jinja_list_new(run, JINJA_LIST), line = jinja_list_new(run, JINJA_LIST);
    for (size_t i = 0; list && i < list->count && jinja_tick(run); i++) {
        if ((int64_t)line.list->count == size) {
            jinja_list_append(run, out.list, line);
            line = jinja_list_new(run, JINJA_LIST);
            if (jinja_failed(run)) break;
        }
        jinja_list_append(run, line.list, list->items[i]);
    }
    if (jinja_failed(run) || !line.list->count) return jinja_generator(run, out);
    bool fill = v[1].kind != JINJA_UNDEFINED && v[1].kind != JINJA_NONE;
    while (fill && (int64_t)line.list->count < size && jinja_tick(run)) jinja_list_append(run, line.list, v[1]);
    jinja_list_append(run, out.list, line);
    return jinja_generator(run, out);
}

struct jinja_value jinja_filter_slice(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    static const char *const names[] = {"slices", "fill_with"};
    struct jinja_value v[2];
    int64_t slices;
    if (!jinja_bind(run, "slice", args, names, 2, 1, v) || !jinja_expect_int(run, "slice", v[0], 0, &slices))
        return jinja_undefined(NULL);
    const struct jinja_list *list = jinja_iterate(run, self);
    struct jinja_value out = jinja_list_new(run, JINJA_LIST);
    if (slices == 0) jinja_fail(run, "integer division or modulo by zero");
    bool fill = v[1].kind != JINJA_UNDEFINED && v[1].kind != JINJA_NONE;
    size_t at = 0;
    for (int64_t i = 0; i < slices && list && jinja_tick(run); i++) {
        int64_t count = (int64_t)list->count, extra = i < count % slices;
        struct jinja_value part = jinja_list_new(run, JINJA_LIST);
        for (int64_t k = 0; k < count / slices + extra && jinja_tick(run); k++)
            jinja_list_append(run, part.list, list->items[at++]);
        if (fill && !extra && !jinja_failed(run)) jinja_list_append(run, part.list, v[1]);
        if (!jinja_failed(run)) jinja_list_append(run, out.list, part);
    }
    return jinja_generator(run, out);
}
