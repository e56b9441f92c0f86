/* The functions that every template has: range, dict, namespace, joiner, cycler, raise_exception and strftime_now. */
#include <string.h>
#include <time.h>

#include "tokenizer/jinja/library.h"

enum { MAX_RANGE = 100000 }; /* the sandbox's */

static struct jinja_value global_range(struct jinja_run *run, struct jinja_call *c)
{
    int64_t n[3] = {0, 0, 1};
    for (size_t i = 0; i < c->args->count; i++) {
        if (!jinja_is_int(c->v[i], &n[i])) return jinja_wrong_type(run, "range()", "integers", c->v[i]);
    }
    int64_t start = c->args->count > 1 ? n[0] : 0, stop = c->args->count > 1 ? n[1] : n[0], step = n[2];
    if (step == 0) jinja_fail(run, "range() arg 3 must not be zero");
    __int128 span = step > 0 ? (__int128)stop - start : (__int128)start - stop;
    __int128 stride = step > 0 ? step : -(__int128)step;
    __int128 count = span <= 0 || !stride ? 0 : (span + stride - 1) / stride;
    if (count > MAX_RANGE) jinja_fail(run, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
    if (jinja_failed(run)) return jinja_undefined(NULL);
    return jinja_range(
        run, (struct jinja_slice_indices){.start = start, .stop = stop, .step = step, .count = (int64_t)count});
}

/* --- dict and namespace --- */

static bool add_pairs(struct jinja_run *run, struct jinja_dict *dict, struct jinja_value from)
{
    if (from.kind == JINJA_DICT) from = jinja_dict_view(run, from.dict, JINJA_ITEMS);
    if (from.kind == JINJA_UNDEFINED) jinja_wrong_type(run, "dict()", "a mapping", from);
    const struct jinja_list *list = jinja_iterate(run, from);
    for (size_t i = 0; list && i < list->count && jinja_tick(run); i++) {
        const struct jinja_list *pair = jinja_iterate(run, list->items[i]);
        if (pair && pair->count != 2) jinja_fail(run, "dict() needs a mapping, or pairs of a key and a value");
        if (!pair || jinja_failed(run)) return false;
        jinja_dict_set(run, dict, pair->items[0], pair->items[1]);
    }
    return !jinja_failed(run);
}

static struct jinja_value global_dict(struct jinja_run *run, struct jinja_call *c)
{
    struct jinja_value dict = jinja_dict_new(run);
    if (c->args->count > 1) jinja_fail(run, "dict() takes at most 1 argument without a name");
    if (c->args->count && !jinja_failed(run)) add_pairs(run, dict.dict, c->args->positional[0]);
    for (size_t i = 0; i < c->args->num_keywords && jinja_tick(run); i++)
        jinja_dict_set(run, dict.dict, c->args->keywords[i].name, c->args->keywords[i].value);
    return dict;
}

struct namespace
{
    struct jinja_object base;
    struct jinja_dict *attributes;
};

static bool namespace_get(struct jinja_run *run, struct jinja_object *self, const struct jinja_string *name,
                          struct jinja_value *out)
{
    struct jinja_value key = {.kind = JINJA_STRING, .string = name};
    const struct jinja_value *found = jinja_dict_get(run, ((struct namespace *)self)->attributes, key);
    if (found) *out = *found;
    return found != NULL;
}

static bool namespace_set(struct jinja_run *run, struct jinja_object *self, const struct jinja_string *name,
                          struct jinja_value value)
{
    struct jinja_value key = {.kind = JINJA_STRING, .string = name};
    return jinja_dict_set(run, ((struct namespace *)self)->attributes, key, value);
}

static bool build_namespace(struct jinja_run *run, struct jinja_builder *b, struct jinja_object *self)
{
    jinja_build_text(run, b, "<Namespace ");
    jinja_build_repr(run, b, (struct jinja_value){.kind = JINJA_DICT, .dict = ((struct namespace *)self)->attributes});
    return jinja_build_text(run, b, ">");
}

static void reach_namespace(struct jinja_run *run, struct jinja_object *self)
{
    jinja_reach(run, (struct jinja_value){.kind = JINJA_DICT, .dict = ((struct namespace *)self)->attributes});
}

static const struct jinja_object_type namespace_type = {.name = "Namespace",
                                                        .get_attribute = namespace_get,
                                                        .set_attribute = namespace_set,
                                                        .build_repr = build_namespace,
                                                        .reach = reach_namespace};

static struct jinja_value global_namespace(struct jinja_run *run, struct jinja_call *c)
{
    struct jinja_value attributes = global_dict(run, c);
    const struct namespace object = {{&namespace_type}, attributes.dict};
    return jinja_new_object(run, &object, sizeof object);
}

/* --- joiner --- */

struct joiner {
    struct jinja_object base;
    struct jinja_value separator;
    bool used;
};

static struct jinja_value call_joiner(struct jinja_run *run, struct jinja_object *self, const struct jinja_args *args)
{
    struct joiner *j = (struct joiner *)self;
    if (!jinja_bind(run, "joiner", "/", args, NULL)) return jinja_undefined(NULL);
    bool used = j->used;
    j->used = true;
    return used ? j->separator : jinja_literal(run, "");
}

static void reach_joiner(struct jinja_run *run, struct jinja_object *self)
{
    jinja_reach(run, ((const struct joiner *)self)->separator);
}

static const struct jinja_object_type joiner_type = {.name = "Joiner", .call = call_joiner, .reach = reach_joiner};

static struct jinja_value global_joiner(struct jinja_run *run, struct jinja_call *c)
{
    if (c->v[0].kind == JINJA_UNDEFINED) c->v[0] = jinja_literal(run, ", ");
    const struct joiner object = {{&joiner_type}, c->v[0], false};
    return jinja_new_object(run, &object, sizeof object);
}

/* --- cycler --- */

struct cycler {
    struct jinja_object base;
    struct jinja_value items; /* a tuple */
    size_t position;
};

static struct jinja_value cycler_next(struct jinja_run *run, struct jinja_call *c)
{
    (void)run;
    struct cycler *cycler = (struct cycler *)c->self.object;
    struct jinja_value current = cycler->items.list->items[cycler->position];
    cycler->position = (cycler->position + 1) % cycler->items.list->count;
    return current;
}

static struct jinja_value cycler_reset(struct jinja_run *run, struct jinja_call *c)
{
    (void)run;
    ((struct cycler *)c->self.object)->position = 0;
    return jinja_none();
}

static bool cycler_get(struct jinja_run *run, struct jinja_object *self, const struct jinja_string *name,
                       struct jinja_value *out)
{
    static const struct jinja_function methods[] = {{"next", cycler_next, "/"}, {"reset", cycler_reset, "/"}, {NULL}};
    static const struct jinja_function *const tables[] = {methods, NULL};
    const struct cycler *c = (const struct cycler *)self;
    const struct jinja_function *method = jinja_find_function(tables, name);
    if (method) {
        *out = jinja_make_function(run, method, jinja_object(self));
    } else if (jinja_string_is(name, "current")) {
        *out = c->items.list->items[c->position];
    } else if (jinja_string_is(name, "items")) {
        *out = c->items;
    } else if (jinja_string_is(name, "pos")) {
        *out = jinja_int((int64_t)c->position);
    } else {
        return false;
    }
    return true;
}

static void reach_cycler(struct jinja_run *run, struct jinja_object *self)
{
    jinja_reach(run, ((const struct cycler *)self)->items);
}

static const struct jinja_object_type cycler_type = {
    .name = "Cycler", .get_attribute = cycler_get, .reach = reach_cycler};

static struct jinja_value global_cycler(struct jinja_run *run, struct jinja_call *c)
{
    if (c->args->num_keywords) jinja_fail(run, "cycler() takes no keyword arguments");
    if (c->args->count == 0) jinja_fail(run, "at least one item has to be provided");
    const struct cycler object = {{&cycler_type}, jinja_tuple(run, c->args->positional, c->args->count), 0};
    return jinja_new_object(run, &object, sizeof object);
}

/* --- transformers' functions --- */

static struct jinja_value global_raise_exception(struct jinja_run *run, struct jinja_call *c)
{
    struct jinja_value text = jinja_str(run, c->v[0]);
    if (text.kind == JINJA_STRING) jinja_fail(run, "%.*s", (int)text.string->length, text.string->bytes);
    return jinja_undefined(NULL);
}

/* One code such as "%d" or "%-d"; Python's %f are microseconds, and its time has no zone. */
static bool build_time(struct jinja_run *run, struct jinja_builder *b, const char *code, const struct tm *when,
                       bool marked)
{
    char text[256];
    char last = code[strlen(code) - 1];
    if (last == 'f') return jinja_build_bytes(run, b, "000000", 6, marked);
    if (last == 'z' || last == 'Z') return true;
    return jinja_build_bytes(run, b, text, strftime(text, sizeof text, code, when), marked);
}

static struct jinja_value global_strftime_now(struct jinja_run *run, struct jinja_call *c)
{
    struct tm when;
    time_t now = (time_t)run->context->now;
    const struct jinja_string *s = jinja_expect_string(run, "strftime_now", c->v[0]);
    if (!localtime_r(&now, &when)) jinja_fail(run, "strftime_now: the time cannot be shown");
    struct jinja_builder b = {0};
    for (size_t at = 0; s && at < s->length && jinja_tick(run);) {
        char code[4] = {s->bytes[at]};
        size_t length = 1;
        bool marked = jinja_mark_at(s, at);
        if (code[0] == '%' && at + 1 < s->length) {
            length = strchr("-_0^#EO", s->bytes[at + 1]) && s->bytes[at + 1] && at + 2 < s->length ? 3 : 2;
            memcpy(code, s->bytes + at, length);
            build_time(run, &b, code, &when, marked);
        } else {
            jinja_build_bytes(run, &b, code, 1, marked);
        }
        at += length;
    }
    return jinja_build_end(run, &b);
}

/* jinja2's `self` holds the blocks of a template, of which there are none here. */
static bool make_self(struct jinja_run *run, struct jinja_value *out)
{
    static const struct jinja_object_type type = {.name = "jinja2.runtime.TemplateReference"};
    const struct jinja_object object = {&type};
    *out = jinja_new_object(run, &object, sizeof object);
    return !jinja_failed(run);
}

bool jinja_find_global(struct jinja_run *run, const struct jinja_string *name, struct jinja_value *out)
{
    static const struct jinja_function globals[] = {
        {"range", global_range, "start, stop=, step=, /"},
        {"dict", global_dict},
        {"namespace", global_namespace},
        {"joiner", global_joiner, "sep="},
        {"cycler", global_cycler},
        {"raise_exception", global_raise_exception, "message"},
        {"strftime_now", global_strftime_now, "format"},
        {NULL},
    };
    static const struct jinja_function *const tables[] = {globals, NULL};
    const struct jinja_function *found = jinja_find_function(tables, name);
    if (found) *out = jinja_make_function(run, found, jinja_none());
    if (jinja_string_is(name, "self")) return make_self(run, out);
    if (!found && jinja_string_is(name, "lipsum")) {
        *out = jinja_undefined(
            "the function 'lipsum' is not supported: the same conversation must always give the same text");
        return true;
    }
    return found != NULL;
}
