/* Filters that apply attributes, tests and filters to the elements of a list; attr and default. */
#include "tokenizer/jinja/filters.h"

struct jinja_value jinja_filter_default(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    static const char *const names[] = {"default_value", "boolean"};
    struct jinja_value v[2];
    if (!jinja_bind(run, "default", args, names, 2, 0, v)) return jinja_undefined(NULL);
    bool given = args->count > 0 || v[0].kind != JINJA_UNDEFINED; /* an undefined default is one, too */
    bool use = self.kind == JINJA_UNDEFINED || (jinja_is_true(run, v[1]) && !jinja_is_true(run, self));
    if (!use) return self;
    return given ? v[0] : jinja_literal(run, "");
}

struct jinja_value jinja_filter_attr(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    static const char *const names[] = {"name"};
    struct jinja_value name, found;
    if (!jinja_bind(run, "attr", args, names, 1, 1, &name) || !jinja_expect_string(run, "attr", name))
        return jinja_undefined(NULL);
    if (self.kind == JINJA_UNDEFINED) return jinja_wrong_type(run, "attr", "a value", self);
    return jinja_find_attribute(run, self, name.string, &found) ? found : jinja_no_item(run, self, name);
}

/* A filter or test by name, with the arguments that follow it. */
struct applied {
    jinja_function function; /* NULL: none was named */
    struct jinja_args args;
};

/* args[at] is the name, if there is one. False after a failure. */
static bool parse_applied(struct jinja_run *run, const struct jinja_args *args, size_t at, const char *kind,
                          jinja_function (*find)(const struct jinja_string *name), struct applied *out)
{
    *out = (struct applied){0};
    if (args->count <= at) return !jinja_failed(run);
    struct jinja_value name = args->positional[at];
    if (!jinja_expect_string(run, kind, name)) return false;
    out->function = find(name.string);
    if (!out->function) {
        const struct jinja_string *s = name.string;
        jinja_fail(run, "No %s named '%.*s'.", kind, (int)(s->length < 100 ? s->length : 100), s->bytes);
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
    static const char *const names[] = {"attribute", "default"};
    struct jinja_value v[2];
    if (args->num_keywords == 0) {
        jinja_fail(run, "map requires a filter argument");
        return false;
    }
    if (!jinja_bind(run, "map", args, names, 2, 1, v) || !jinja_attribute_parse(run, v[0], out)) return false;
    if (v[1].kind != JINJA_NONE) out->absent = v[1];
    return true;
}

struct jinja_value jinja_filter_map(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    struct applied filter;
    struct jinja_attribute attribute;
    struct jinja_value out = jinja_list_new(run, JINJA_LIST);
    if (!jinja_is_true(run, self)) return jinja_generator(run, out);
    if (!parse_applied(run, args, 0, "filter", jinja_find_filter, &filter)) return jinja_undefined(NULL);
    if (!filter.function && !parse_map_attribute(run, args, &attribute)) return jinja_undefined(NULL);
    const struct jinja_list *list = jinja_iterate(run, self);
    if (!jinja_enter(run)) return jinja_undefined(NULL); /* the filter may be map itself */
    for (size_t i = 0; list && i < list->count && jinja_tick(run); i++) {
        struct jinja_value item = list->items[i];
        jinja_list_append(run, out.list,
                          filter.function ? filter.function(run, item, &filter.args)
                                          : jinja_attribute_get(run, &attribute, item));
    }
    jinja_leave(run);
    return jinja_generator(run, out);
}

/* --- select and reject --- */

static struct jinja_value choose(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args,
                                 bool by_attribute, bool wanted)
{
    struct applied test;
    struct jinja_attribute attribute = {0};
    struct jinja_value out = jinja_list_new(run, JINJA_LIST);
    if (!jinja_is_true(run, self)) return jinja_generator(run, out);
    if (by_attribute && args->count == 0) jinja_fail(run, "Missing parameter for attribute name");
    if (jinja_failed(run) || (by_attribute && !jinja_attribute_parse(run, args->positional[0], &attribute)) ||
        !parse_applied(run, args, by_attribute, "test", jinja_find_test, &test))
        return jinja_undefined(NULL);
    const struct jinja_list *list = jinja_iterate(run, self);
    for (size_t i = 0; list && i < list->count && jinja_tick(run); i++) {
        struct jinja_value v = jinja_attribute_get(run, &attribute, list->items[i]);
        if (test.function) v = test.function(run, v, &test.args);
        if (jinja_is_true(run, v) == wanted) jinja_list_append(run, out.list, list->items[i]);
    }
    return jinja_generator(run, out);
}

struct jinja_value jinja_filter_select(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return choose(run, self, args, false, true);
}

struct jinja_value jinja_filter_reject(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return choose(run, self, args, false, false);
}

struct jinja_value jinja_filter_selectattr(struct jinja_run *run, struct jinja_value self,
                                           const struct jinja_args *args)
{
    return choose(run, self, args, true, true);
}

struct jinja_value jinja_filter_rejectattr(struct jinja_run *run, struct jinja_value self,
                                           const struct jinja_args *args)
{
    return choose(run, self, args, true, false);
}
