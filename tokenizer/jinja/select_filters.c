/* Filters that apply attributes, tests and filters to the elements of a list; attr and default. */
#include "tokenizer/jinja/library.h"

static struct jinja_value filter_default(struct jinja_run *run, struct jinja_call *c)
{
    bool given = c->args->count > 0 || c->v[0].kind != JINJA_UNDEFINED; /* an undefined default is one, too */
    bool use = c->self.kind == JINJA_UNDEFINED || (jinja_is_true(run, c->v[1]) && !jinja_is_true(run, c->self));
    if (!use) return c->self;
    return given ? c->v[0] : jinja_literal(run, "");
}

static struct jinja_value filter_attr(struct jinja_run *run, struct jinja_call *c)
{
    struct jinja_value found;
    if (!jinja_expect_string(run, "attr", c->v[0])) return jinja_undefined(NULL);
    if (c->self.kind == JINJA_UNDEFINED) return jinja_wrong_type(run, "attr", "a value", c->self);
    return jinja_find_attribute(run, c->self, c->v[0].string, &found) ? found : jinja_no_item(run, c->self, c->v[0]);
}

/* A filter or test by name, with the arguments that follow it. */
struct applied {
    const struct jinja_function *function; /* NULL: none was named */
    struct jinja_args args;
};

/* args[at] is the name, if there is one. False after a failure. */
static bool parse_applied(struct jinja_run *run, const struct jinja_args *args, size_t at, const char *kind,
                          const struct jinja_function *(*find)(const struct jinja_string *name), struct applied *out)
{
    *out = (struct applied){0};
    if (args->count <= at) return !jinja_failed(run);
    struct jinja_value name = args->positional[at];
    if (!jinja_expect_string(run, kind, name)) return false;
    out->function = find(name.string);
    if (!out->function) {
        const struct jinja_string *s = name.string;
        jinja_fail(run, "No %s named '%.*s'.", kind, (int)s->length, s->bytes);
    }
    out->args = *args;
    out->args.positional += at + 1;
    out->args.count -= at + 1;
    return !jinja_failed(run);
}

/* --- map --- */

/* attribute=..., default=... */
static bool parse_map_attribute(struct jinja_run *run, const struct jinja_args *args, struct jinja_attribute *out)
{
    struct jinja_value v[2];
    if (args->num_keywords == 0) return jinja_fail(run, "map requires a filter argument");
    if (!jinja_bind(run, "map", "attribute, default=", args, v) || !jinja_attribute_parse(run, v[0], out)) return false;
    if (v[1].kind != JINJA_NONE) out->absent = v[1];
    return true;
}

static struct jinja_value filter_map(struct jinja_run *run, struct jinja_call *c)
{
    struct applied filter;
    struct jinja_attribute attribute;
    struct jinja_value out = jinja_list_new(run, JINJA_LIST);
    if (!jinja_is_true(run, c->self)) return jinja_generator(run, out);
    if (!parse_applied(run, c->args, 0, "filter", jinja_find_filter, &filter)) return jinja_undefined(NULL);
    if (!filter.function && !parse_map_attribute(run, c->args, &attribute)) return jinja_undefined(NULL);
    const struct jinja_list *list = jinja_iterate(run, c->self);
    if (!jinja_enter(run)) return jinja_undefined(NULL); /* the filter may be map itself */
    for (size_t i = 0; list && i < list->count && jinja_tick(run); i++) {
        struct jinja_value item = list->items[i];
        jinja_list_append(run, out.list,
                          filter.function ? jinja_apply(run, filter.function, item, &filter.args)
                                          : jinja_attribute_get(run, &attribute, item));
    }
    jinja_leave(run);
    return jinja_generator(run, out);
}

/* --- select and reject --- */

enum { REJECT = 1, BY_ATTRIBUTE = 2 };

/* `variant` is made of these: whether the test decides what is left out, and whether it is given an attribute. */
static struct jinja_value filter_choose(struct jinja_run *run, struct jinja_call *c)
{
    const bool by_attribute = c->variant & BY_ATTRIBUTE, wanted = !(c->variant & REJECT);
    struct applied test;
    struct jinja_attribute attribute = {0};
    struct jinja_value out = jinja_list_new(run, JINJA_LIST);
    if (!jinja_is_true(run, c->self)) return jinja_generator(run, out);
    if (by_attribute && c->args->count == 0) jinja_fail(run, "Missing parameter for attribute name");
    if (jinja_failed(run) || (by_attribute && !jinja_attribute_parse(run, c->args->positional[0], &attribute)) ||
        !parse_applied(run, c->args, by_attribute, "test", jinja_find_test, &test))
        return jinja_undefined(NULL);
    const struct jinja_list *list = jinja_iterate(run, c->self);
    for (size_t i = 0; list && i < list->count && jinja_tick(run); i++) {
        struct jinja_value v = jinja_attribute_get(run, &attribute, list->items[i]);
        if (test.function) v = jinja_apply(run, test.function, v, &test.args);
        if (jinja_is_true(run, v) == wanted) jinja_list_append(run, out.list, list->items[i]);
    }
    return jinja_generator(run, out);
}

const struct jinja_function jinja_select_filters[] = {
    {"default", filter_default, "default_value=, boolean="},
    {"d", filter_default, "default_value=, boolean=", 0, "default"},
    {"attr", filter_attr, "name"},
    {"map", filter_map},
    {"select", filter_choose},
    {"selectattr", filter_choose, NULL, BY_ATTRIBUTE},
    {"reject", filter_choose, NULL, REJECT},
    {"rejectattr", filter_choose, NULL, REJECT | BY_ATTRIBUTE},
    {NULL},
};
