/* Filters that take lists apart and put them together. */
#include "tokenizer/jinja/library.h"

static struct jinja_value filter_length(struct jinja_run *run, struct jinja_call *c)
{
    size_t length;
    if (jinja_length(c->self, &length)) return jinja_int((int64_t)length);
    return jinja_error(run, "object of type '%s' has no len()", jinja_type_name(c->self));
}

static struct jinja_value filter_list(struct jinja_run *run, struct jinja_call *c)
{
    const struct jinja_list *from = jinja_iterate(run, c->self);
    struct jinja_value list = jinja_list_new(run, JINJA_LIST);
    for (size_t i = 0; from && i < from->count && jinja_tick(run); i++)
        jinja_list_append(run, list.list, from->items[i]);
    return list;
}

static struct jinja_value filter_items(struct jinja_run *run, struct jinja_call *c)
{
    struct jinja_value items = jinja_list_new(run, JINJA_LIST);
    if (c->self.kind == JINJA_UNDEFINED) return jinja_generator(run, items);
    if (c->self.kind != JINJA_DICT) return jinja_error(run, "Can only get item pairs from a mapping.");
    for (size_t i = 0; i < c->self.dict->count && jinja_tick(run); i++) {
        struct jinja_value both[] = {c->self.dict->pairs[i].key, c->self.dict->pairs[i].value};
        jinja_list_append(run, items.list, jinja_tuple(run, both, 2));
    }
    return jinja_generator(run, items);
}

static struct jinja_value filter_first(struct jinja_run *run, struct jinja_call *c)
{
    struct jinja_value first;
    return jinja_first_element(run, c->self, &first) ? first : jinja_undefined("No first item, sequence was empty.");
}

/* What reversed(v) takes: anything but a generator. */
static const struct jinja_list *reversible(struct jinja_run *run, struct jinja_value v)
{
    size_t length;
    if (jinja_length(v, &length)) return jinja_iterate(run, v);
    jinja_fail(run, "'%s' object is not reversible", jinja_type_name(v));
    return NULL;
}

static struct jinja_value filter_last(struct jinja_run *run, struct jinja_call *c)
{
    const struct jinja_list *list = reversible(run, c->self);
    return list && list->count ? list->items[list->count - 1] : jinja_undefined("No last item, sequence was empty.");
}

static struct jinja_value filter_reverse(struct jinja_run *run, struct jinja_call *c)
{
    struct jinja_value none = jinja_none();
    size_t length;
    if (c->self.kind == JINJA_STRING) return jinja_slice(run, c->self, none, none, jinja_int(-1));
    bool was_list = !jinja_length(c->self, &length); /* a generator becomes a list, others a generator */
    const struct jinja_list *from = jinja_iterate(run, c->self);
    struct jinja_value list = jinja_list_new(run, JINJA_LIST);
    for (size_t i = from ? from->count : 0; i-- > 0 && jinja_tick(run);)
        jinja_list_append(run, list.list, from->items[i]);
    return was_list ? list : jinja_generator(run, list);
}

static struct jinja_value filter_join(struct jinja_run *run, struct jinja_call *c)
{
    struct jinja_attribute attribute;
    if (!jinja_attribute_parse(run, c->v[1], &attribute)) return jinja_undefined(NULL);
    struct jinja_value separator = jinja_str(run, c->v[0]);
    const struct jinja_list *list = jinja_iterate(run, c->self);
    struct jinja_builder b = {0};
    for (size_t i = 0; list && i < list->count && jinja_tick(run); i++) {
        if (i) jinja_build_string(run, &b, separator.string);
        jinja_build_str(run, &b, jinja_attribute_get(run, &attribute, list->items[i]));
    }
    return jinja_build_end(run, &b);
}

static struct jinja_value filter_sum(struct jinja_run *run, struct jinja_call *c)
{
    struct jinja_attribute attribute;
    if (!jinja_attribute_parse(run, c->v[0], &attribute)) return jinja_undefined(NULL);
    struct jinja_value sum = c->v[1].kind == JINJA_UNDEFINED ? jinja_int(0) : c->v[1];
    if (sum.kind == JINJA_STRING) jinja_fail(run, "sum() can't sum strings [use ''.join(seq) instead]");
    const struct jinja_list *list = jinja_iterate(run, c->self);
    for (size_t i = 0; list && i < list->count && jinja_tick(run); i++)
        sum = jinja_arithmetic(run, JINJA_ADD, sum, jinja_attribute_get(run, &attribute, list->items[i]));
    return sum;
}

/* --- batch and slice --- */

static struct jinja_value filter_batch(struct jinja_run *run, struct jinja_call *c)
{
    int64_t size;
    if (!jinja_expect_int(run, "batch", c->v[0], 0, &size)) return jinja_undefined(NULL);
    const struct jinja_list *list = jinja_iterate(run, c->self);
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
    bool fill = c->v[1].kind != JINJA_UNDEFINED && c->v[1].kind != JINJA_NONE;
    while (fill && (int64_t)line.list->count < size && jinja_tick(run)) jinja_list_append(run, line.list, c->v[1]);
    jinja_list_append(run, out.list, line);
    return jinja_generator(run, out);
}

static struct jinja_value filter_slice(struct jinja_run *run, struct jinja_call *c)
{
    int64_t slices;
    if (!jinja_expect_int(run, "slice", c->v[0], 0, &slices)) return jinja_undefined(NULL);
    const struct jinja_list *list = jinja_iterate(run, c->self);
    struct jinja_value out = jinja_list_new(run, JINJA_LIST);
    if (slices == 0) jinja_fail(run, "integer division or modulo by zero");
    bool fill = c->v[1].kind != JINJA_UNDEFINED && c->v[1].kind != JINJA_NONE;
    size_t at = 0;
    for (int64_t i = 0; i < slices && list && jinja_tick(run); i++) {
        int64_t count = (int64_t)list->count, extra = i < count % slices;
        struct jinja_value part = jinja_list_new(run, JINJA_LIST);
        for (int64_t k = 0; k < count / slices + extra && jinja_tick(run); k++)
            jinja_list_append(run, part.list, list->items[at++]);
        if (fill && !extra && !jinja_failed(run)) jinja_list_append(run, part.list, c->v[1]);
        if (!jinja_failed(run)) jinja_list_append(run, out.list, part);
    }
    return jinja_generator(run, out);
}

const struct jinja_function jinja_list_filters[] = {
    {"length", filter_length, "/"},
    {"count", filter_length, "/", 0, "length"},
    {"list", filter_list, "/"},
    {"items", filter_items, "/"},
    {"first", filter_first, "/"},
    {"last", filter_last, "/"},
    {"reverse", filter_reverse, "/"},
    {"join", filter_join, "d=, attribute="},
    {"sum", filter_sum, "attribute=, start="},
    {"batch", filter_batch, "linecount, fill_with="},
    {"slice", filter_slice, "slices, fill_with="},
    {NULL},
};
