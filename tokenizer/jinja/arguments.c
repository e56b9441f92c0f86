/* Arguments of functions, filters and methods. */
#include <string.h>

#include "base/plural.h"

#include "tokenizer/jinja/library.h"

static bool bind_keyword(struct jinja_run *run, const char *function, const struct jinja_keyword *keyword,
                         const char *const *names, size_t num_names, struct jinja_value *values, bool *given)
{
    const struct jinja_string *name = keyword->name.string;
    for (size_t i = 0; i < num_names; i++) {
        if (!jinja_string_is(name, names[i])) continue;
        if (given[i]) {
            jinja_fail(run, "%s() got multiple values for argument '%s'", function, names[i]);
            return false;
        }
        values[i] = keyword->value;
        given[i] = true;
        return true;
    }
    jinja_fail(run, "%s() got an unexpected keyword argument '%.*s'", function, (int)name->length, name->bytes);
    return false;
}

static bool check_count(struct jinja_run *run, const char *function, const struct jinja_args *args, size_t max)
{
    if (args->count > max) {
        jinja_fail(run, "%s() takes at most %zu argument%s, found %zu", function, max, plural((int64_t)max),
                   args->count);
    }
    return !jinja_failed(run);
}

bool jinja_bind(struct jinja_run *run, const char *function, const struct jinja_args *args, const char *const *names,
                size_t num_names, size_t num_required, struct jinja_value *values)
{
    for (size_t i = 0; i < num_names; i++) values[i] = jinja_undefined(NULL);
    if (!check_count(run, function, args, num_names)) return false;
    bool *given = jinja_alloc(run, num_names + 1);
    if (!given) return false;
    for (size_t i = 0; i < args->count; i++) {
        values[i] = args->positional[i];
        given[i] = true;
    }
    for (size_t i = 0; i < args->num_keywords; i++) {
        if (!bind_keyword(run, function, &args->keywords[i], names, num_names, values, given)) return false;
    }
    for (size_t i = 0; i < num_required; i++) {
        if (given[i]) continue;
        jinja_fail(run, "%s() is missing its argument '%s'", function, names[i]);
        return false;
    }
    return true;
}

bool jinja_bind_positional(struct jinja_run *run, const char *function, const struct jinja_args *args, size_t max,
                           size_t num_required, struct jinja_value *values)
{
    for (size_t i = 0; i < max; i++) values[i] = i < args->count ? args->positional[i] : jinja_undefined(NULL);
    if (!check_count(run, function, args, max)) return false;
    if (args->num_keywords) {
        jinja_fail(run, "%s() takes no keyword arguments", function);
    } else if (args->count < num_required) {
        jinja_fail(run, "%s() takes at least %zu argument%s, found %zu", function, num_required,
                   plural((int64_t)num_required), args->count);
    }
    return !jinja_failed(run);
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
