/* Functions, filters, tests and methods: how they are found, and what their arguments are. */
#include <string.h>

#include "base/plural.h"
#include "tokenizer/jinja/library.h"

struct parameter {
    const char *name; /* [length] */
    size_t length;
    bool is_required, is_given;
};

/* Takes the parameters of a struct jinja_function apart. Returns how many there are. */
static size_t parse_parameters(const char *text, struct parameter *out, bool *positional)
{
    size_t count = 0;
    *positional = false;
    while (*text) {
        const size_t length = strcspn(text, "=,");
        const bool has_default = text[length] == '=';
        if (*text == '/')
            *positional = true;
        else
            out[count++] = (struct parameter){text, length, !has_default, false};
        text += length + has_default;
        if (*text) text += strlen(", ");
    }
    return count;
}

static bool bind_keyword(struct jinja_run *run, const char *function, const struct jinja_keyword *keyword,
                         struct parameter *parameters, size_t count, struct jinja_value *values)
{
    const struct jinja_string *name = keyword->name.string;
    for (size_t i = 0; i < count; i++) {
        struct parameter *p = &parameters[i];
        if (name->length != p->length || memcmp(name->bytes, p->name, p->length) != 0) continue;
        if (p->is_given)
            jinja_fail(run, "%s() got multiple values for argument '%.*s'", function, (int)p->length, p->name);
        values[i] = keyword->value;
        p->is_given = true;
        return !jinja_failed(run);
    }
    return jinja_fail(run, "%s() got an unexpected keyword argument '%.*s'", function, (int)name->length, name->bytes);
}

/* Fails if a parameter without a default has no value. */
static bool check_required(struct jinja_run *run, const char *function, const struct parameter *parameters,
                           size_t count, bool positional, size_t found)
{
    size_t required = 0;
    while (required < count && parameters[required].is_required) required++;
    if (positional && found < required)
        jinja_fail(run, "%s() takes at least %zu argument%s, found %zu", function, required, plural((int64_t)required),
                   found);
    for (size_t i = 0; i < required; i++) {
        const struct parameter *p = &parameters[i];
        if (!p->is_given) jinja_fail(run, "%s() is missing its argument '%.*s'", function, (int)p->length, p->name);
    }
    return !jinja_failed(run);
}

bool jinja_bind(struct jinja_run *run, const char *function, const char *parameters, const struct jinja_args *args,
                struct jinja_value *values)
{
    struct parameter p[JINJA_MAX_PARAMETERS];
    bool positional;
    const size_t count = parse_parameters(parameters, p, &positional);
    for (size_t i = 0; i < count; i++) {
        p[i].is_given = i < args->count;
        values[i] = p[i].is_given ? args->positional[i] : jinja_undefined(NULL);
    }
    if (args->count > count)
        jinja_fail(run, "%s() takes at most %zu argument%s, found %zu", function, count, plural((int64_t)count),
                   args->count);
    else if (positional && args->num_keywords)
        jinja_fail(run, "%s() takes no keyword arguments", function);
    for (size_t i = 0; i < args->num_keywords && !jinja_failed(run); i++)
        bind_keyword(run, function, &args->keywords[i], p, count, values);
    return !jinja_failed(run) && check_required(run, function, p, count, positional, args->count);
}

struct jinja_value jinja_apply(struct jinja_run *run, const struct jinja_function *function, struct jinja_value self,
                               const struct jinja_args *args)
{
    struct jinja_call c;
    c.title = function->title ? function->title : function->name;
    c.variant = function->variant;
    c.self = self;
    c.args = args;
    if (function->parameters && !jinja_bind(run, c.title, function->parameters, args, c.v))
        return jinja_undefined(NULL);
    return function->call(run, &c);
}

const struct jinja_function *jinja_find_function(const struct jinja_function *const *tables,
                                                 const struct jinja_string *name)
{
    for (; *tables; tables++)
        for (const struct jinja_function *f = *tables; f->name; f++)
            if (jinja_string_is(name, f->name)) return f;
    return NULL;
}

const struct jinja_string *jinja_expect_string(struct jinja_run *run, const char *function, struct jinja_value v)
{
    if (v.kind == JINJA_STRING && !jinja_failed(run)) return v.string;
    jinja_wrong_type(run, function, "a string", v);
    return NULL;
}

bool jinja_expect_int(struct jinja_run *run, const char *function, struct jinja_value v, int64_t absent, int64_t *out)
{
    *out = absent;
    if (v.kind != JINJA_UNDEFINED && v.kind != JINJA_NONE && !jinja_is_int(v, out))
        jinja_wrong_type(run, function, "an integer", v);
    return !jinja_failed(run);
}
