/* "text".format(...), as jinja2's sandbox does it. */
#include <string.h>

#include "tokenizer/jinja/format.h"
#include "tokenizer/jinja/library.h"

enum { MAX_DEPTH = 3 }; /* of fields in the format of a field */

struct formatter {
    struct jinja_run *run;
    const struct jinja_args *args;
    const struct jinja_dict *mapping; /* of format_map; otherwise NULL */
    int64_t next;                     /* number of the next {} */
    bool automatic, manual;           /* which kind of numbers was used */
};

static bool build_formatted(struct formatter *f, struct jinja_builder *b, const struct jinja_string *s, int depth);

static bool positional(struct formatter *f, int64_t index, struct jinja_value *out)
{
    if ((size_t)index >= f->args->count)
        return jinja_fail(f->run, "Replacement index %d out of range for positional args tuple", (int)index);
    *out = f->args->positional[index];
    return true;
}

/* What stands before the first '.' or '[' of a field. */
static bool first_value(struct formatter *f, struct jinja_value name, struct jinja_value *out)
{
    int64_t index;
    const bool automatic = name.string->length == 0;
    if (automatic || jinja_is_index(name.string, &index)) {
        if (automatic ? f->manual : f->automatic)
            return jinja_fail(f->run, "cannot switch between manual field specification and automatic field numbering");
        if (automatic)
            f->automatic = true;
        else
            f->manual = true;
        return positional(f, automatic ? f->next++ : index, out);
    }
    const struct jinja_value *found = f->mapping ? jinja_dict_get(f->run, f->mapping, name) : NULL;
    if (found) *out = *found;
    for (size_t i = 0; !found && i < f->args->num_keywords && jinja_tick(f->run); i++) {
        if (!jinja_strings_equal(f->args->keywords[i].name.string, name.string)) continue;
        *out = f->args->keywords[i].value;
        return true;
    }
    if (!found) jinja_fail(f->run, "format() has no argument '%.*s'", (int)name.string->length, name.string->bytes);
    return found != NULL;
}

/* The value of "name.attribute[key]". */
static bool field_value(struct formatter *f, const struct jinja_string *field, struct jinja_value *out)
{
    int64_t index;
    size_t at = 0;
    while (at < field->length && field->bytes[at] != '.' && field->bytes[at] != '[') at++;
    struct jinja_value name = jinja_substring(f->run, field, 0, at);
    if (jinja_failed(f->run) || !first_value(f, name, out)) return false;
    while (at < field->length && jinja_tick(f->run)) {
        bool item = field->bytes[at] == '[';
        size_t from = ++at;
        if (!item && field->bytes[from - 1] != '.')
            return jinja_fail(f->run, "Only '.' or '[' may follow ']' in format field specifier");
        while (at < field->length &&
               (item ? field->bytes[at] != ']' : field->bytes[at] != '.' && field->bytes[at] != '['))
            at++;
        if (item && at == field->length) return jinja_fail(f->run, "Missing ']' in format string");
        if (at == from) return jinja_fail(f->run, "Empty attribute in format string");
        struct jinja_value key = jinja_substring(f->run, field, from, at);
        if (jinja_failed(f->run)) return false;
        if (!item) *out = jinja_get_attribute(f->run, *out, key.string);
        if (item && jinja_is_index(key.string, &index)) key = jinja_int(index);
        if (item) *out = jinja_get_item(f->run, *out, key);
        at += item;
    }
    return !jinja_failed(f->run);
}

static bool convert(struct formatter *f, char conversion, struct jinja_value *v)
{
    struct jinja_builder b = {0};
    if (conversion == 's')
        jinja_build_str(f->run, &b, *v);
    else if (conversion == 'r')
        jinja_build_repr(f->run, &b, *v);
    else if (conversion == 'a')
        jinja_build_ascii(f->run, &b, *v);
    else
        return jinja_fail(f->run, "Unknown conversion specifier");
    *v = jinja_build_end(f->run, &b);
    return !jinja_failed(f->run);
}

/* Bytes from .. to of s: "name!r:spec". */
static bool build_field(struct formatter *f, struct jinja_builder *b, const struct jinja_string *s, size_t from,
                        size_t to, int depth)
{
    size_t end = from;
    for (bool in_brackets = false; end < to && (in_brackets || (s->bytes[end] != '!' && s->bytes[end] != ':')); end++) {
        if (s->bytes[end] == '[') in_brackets = true;
        if (s->bytes[end] == ']') in_brackets = false;
    }
    struct jinja_value field = jinja_substring(f->run, s, from, end), v;
    if (jinja_failed(f->run) || !field_value(f, field.string, &v)) return false;
    if (end < to && s->bytes[end] == '!') {
        if (end + 1 == to || (end + 2 < to && s->bytes[end + 2] != ':'))
            return jinja_fail(f->run, "expected ':' after conversion specifier");
        if (!convert(f, s->bytes[end + 1], &v)) return false;
        end += 2;
    }
    struct jinja_value spec = jinja_substring(f->run, s, end < to ? end + 1 : to, to);
    struct jinja_builder expanded = {0};
    if (jinja_failed(f->run) || !build_formatted(f, &expanded, spec.string, depth + 1)) return false;
    spec = jinja_build_end(f->run, &expanded);
    return spec.kind == JINJA_STRING && jinja_build_format(f->run, b, v, spec.string);
}

/* The '}' that ends the field which begins at `at`; s->length: there is none. */
static size_t end_of_field(const struct jinja_string *s, size_t at)
{
    for (int depth = 1; at < s->length; at++) {
        if (s->bytes[at] == '[') {
            while (at < s->length && s->bytes[at] != ']') at++;
            if (at == s->length) break;
        }
        depth += (s->bytes[at] == '{') - (s->bytes[at] == '}');
        if (depth == 0) return at;
    }
    return s->length;
}

static bool build_formatted(struct formatter *f, struct jinja_builder *b, const struct jinja_string *s, int depth)
{
    if (depth > MAX_DEPTH) return jinja_fail(f->run, "Max string recursion exceeded");
    size_t done = 0;
    for (size_t at = 0; at < s->length && jinja_tick(f->run); at++) {
        char c = s->bytes[at];
        if (c != '{' && c != '}') continue;
        bool doubled = at + 1 < s->length && s->bytes[at + 1] == c;
        jinja_build_range(f->run, b, s, done, at + doubled);
        if (!doubled && c == '}') return jinja_fail(f->run, "Single '}' encountered in format string");
        if (!doubled) {
            size_t end = end_of_field(s, at + 1);
            if (end == s->length) return jinja_fail(f->run, "expected '}' before end of string");
            build_field(f, b, s, at + 1, end, depth);
            at = end;
        } else {
            at++;
        }
        done = at + 1;
    }
    return !jinja_failed(f->run) && jinja_build_range(f->run, b, s, done, s->length);
}

static struct jinja_value str_format(struct jinja_run *run, struct jinja_call *c)
{
    struct formatter f = {.run = run, .args = c->args};
    struct jinja_builder b = {0};
    build_formatted(&f, &b, c->self.string, 1);
    return jinja_build_end(run, &b);
}

static struct jinja_value str_format_map(struct jinja_run *run, struct jinja_call *c)
{
    if (c->v[0].kind != JINJA_DICT) return jinja_wrong_type(run, "format_map()", "a mapping", c->v[0]);
    struct jinja_args none = {0};
    struct formatter f = {.run = run, .args = &none, .mapping = c->v[0].dict};
    struct jinja_builder b = {0};
    build_formatted(&f, &b, c->self.string, 1);
    return jinja_build_end(run, &b);
}

const struct jinja_function jinja_format_methods[] = {
    {"format", str_format}, {"format_map", str_format_map, "mapping, /"}, {NULL}};
