/* Filters of text. Those that are methods of str take any value, as its str(). */
#include "tokenizer/jinja/characters.h"
#include "tokenizer/jinja/filters.h"
#include "tokenizer/jinja/str_methods.h"

static struct jinja_value apply(struct jinja_run *run, jinja_method *method, struct jinja_value self,
                                const struct jinja_args *args)
{
    struct jinja_value text = jinja_str(run, self);
    return text.kind == JINJA_STRING ? method(run, text, args) : text;
}

struct jinja_value jinja_filter_capitalize(struct jinja_run *run, struct jinja_value self,
                                           const struct jinja_args *args)
{
    return apply(run, jinja_str_capitalize, self, args);
}

struct jinja_value jinja_filter_lower(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return apply(run, jinja_str_lower, self, args);
}

struct jinja_value jinja_filter_upper(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return apply(run, jinja_str_upper, self, args);
}

struct jinja_value jinja_filter_center(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    static const char *const names[] = {"width"};
    struct jinja_value width;
    if (!jinja_bind(run, "center", args, names, 1, 0, &width)) return jinja_undefined(NULL);
    if (width.kind == JINJA_UNDEFINED) width = jinja_int(80);
    return apply(run, jinja_str_center, self, &(struct jinja_args){.positional = &width, .count = 1});
}

struct jinja_value jinja_filter_trim(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    static const char *const names[] = {"chars"};
    struct jinja_value chars;
    if (!jinja_bind(run, "trim", args, names, 1, 0, &chars)) return jinja_undefined(NULL);
    return apply(run, jinja_str_strip, self, &(struct jinja_args){.positional = &chars, .count = 1});
}

struct jinja_value jinja_filter_replace(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    static const char *const names[] = {"old", "new", "count"};
    struct jinja_value v[3];
    if (!jinja_bind(run, "replace", args, names, 3, 2, v)) return jinja_undefined(NULL);
    v[0] = jinja_str(run, v[0]);
    v[1] = jinja_str(run, v[1]);
    return apply(run, jinja_str_replace, self, &(struct jinja_args){.positional = v, .count = 3});
}

struct jinja_value jinja_filter_string(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    if (!jinja_bind_positional(run, "string", args, 0, 0, NULL)) return jinja_undefined(NULL);
    return jinja_str(run, self);
}

struct jinja_value jinja_filter_safe(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    if (!jinja_bind_positional(run, "safe", args, 0, 0, NULL)) return jinja_undefined(NULL);
    return jinja_as_markup(run, jinja_str(run, self));
}

struct jinja_value jinja_filter_escape(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    if (!jinja_bind_positional(run, "escape", args, 0, 0, NULL)) return jinja_undefined(NULL);
    return jinja_escape(run, self);
}

struct jinja_value jinja_filter_forceescape(struct jinja_run *run, struct jinja_value self,
                                            const struct jinja_args *args)
{
    if (!jinja_bind_positional(run, "forceescape", args, 0, 0, NULL)) return jinja_undefined(NULL);
    struct jinja_value text = jinja_str(run, self);
    if (text.kind != JINJA_STRING) return text;
    struct jinja_string plain = *text.string;
    plain.is_markup = false;
    return jinja_escape(run, (struct jinja_value){.kind = JINJA_STRING, .string = &plain});
}

struct jinja_value jinja_filter_format(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    struct jinja_value text = jinja_str(run, self);
    if (args->count && args->num_keywords)
        jinja_fail(run, "can't handle positional and keyword arguments at the same time");
    if (jinja_failed(run)) return jinja_undefined(NULL);
    if (!args->num_keywords)
        return jinja_percent_format(run, text.string, jinja_tuple(run, args->positional, args->count));
    struct jinja_value keywords = jinja_dict_new(run);
    for (size_t i = 0; i < args->num_keywords && jinja_tick(run); i++)
        jinja_dict_set(run, keywords.dict, args->keywords[i].name, args->keywords[i].value);
    return jinja_percent_format(run, text.string, keywords);
}

/* --- title: words begin after white space and some brackets --- */

static bool separates_words(uint32_t c)
{
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || character_is_space(c);
}

struct jinja_value jinja_filter_title(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    struct jinja_value text = jinja_str(run, self);
    if (!jinja_bind_positional(run, "title", args, 0, 0, NULL)) return jinja_undefined(NULL);
    const struct jinja_string *s = text.string;
    struct jinja_builder b = {0};
    for (size_t at = 0; at < s->length && jinja_tick(run);) {
        size_t start = at, end;
        if (separates_words(character_decode(s->bytes, &at))) {
            jinja_build_range(run, &b, s, start, at);
            continue;
        }
        jinja_build_upper(run, &b, s, start, at);
        for (end = at; end < s->length;) {
            size_t next = end;
            if (separates_words(character_decode(s->bytes, &next))) break;
            end = next;
        }
        struct jinja_value rest = jinja_substring(run, s, at, end);
        if (rest.kind == JINJA_STRING) jinja_build_lower(run, &b, rest.string, 0, rest.string->length);
        at = end;
    }
    return jinja_build_end(run, &b);
}

/* --- indent --- */

static struct jinja_value indentation(struct jinja_run *run, struct jinja_value width)
{
    static const struct jinja_string space = {.bytes = " ", .length = 1, .count = 1};
    int64_t spaces;
    if (width.kind == JINJA_STRING) return width;
    if (!jinja_expect_int(run, "indent", width, 4, &spaces)) return jinja_undefined(NULL);
    struct jinja_builder b = {0};
    jinja_build_repeated(run, &b, &space, spaces);
    return jinja_build_end(run, &b);
}

struct jinja_value jinja_filter_indent(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    static const char *const names[] = {"width", "first", "blank"};
    struct jinja_value v[3];
    if (!jinja_bind(run, "indent", args, names, 3, 0, v)) return jinja_undefined(NULL);
    const struct jinja_string *s = jinja_expect_string(run, "indent", self);
    struct jinja_value indent = indentation(run, v[0]);
    bool first = jinja_is_true(run, v[1]), blank = jinja_is_true(run, v[2]);
    if (jinja_failed(run)) return jinja_undefined(NULL);
    struct jinja_builder text = {0}, b = {0};
    jinja_build_string(run, &text, s);
    jinja_build_bytes(run, &text, "\n", 1, s->length && jinja_mark_at(s, s->length - 1)); /* jinja2 does so, too */
    struct jinja_value ended = jinja_build_end(run, &text);
    if (ended.kind != JINJA_STRING) return ended;
    const struct jinja_list *lines = jinja_lines(run, ended.string);
    for (size_t i = 0; lines && i < lines->count; i++) {
        const struct jinja_string *line = lines->items[i].string;
        if (i) { /* the line feed stands for the end of the line before, and has its mark */
            size_t end = (size_t)(line->bytes - ended.string->bytes) - 1;
            jinja_build_bytes(run, &b, "\n", 1, jinja_mark_at(ended.string, end));
        }
        if (i ? line->length || blank : first) jinja_build_string(run, &b, indent.string);
        jinja_build_string(run, &b, line);
    }
    return jinja_build_end(run, &b);
}

/* --- truncate --- */

struct jinja_value jinja_filter_truncate(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    static const char *const names[] = {"length", "killwords", "end", "leeway"};
    struct jinja_value v[4];
    int64_t length, leeway;
    if (!jinja_bind(run, "truncate", args, names, 4, 0, v) || !jinja_expect_int(run, "truncate", v[0], 255, &length) ||
        !jinja_expect_int(run, "truncate", v[3], 5, &leeway))
        return jinja_undefined(NULL);
    if (self.kind == JINJA_UNDEFINED) return self;
    const struct jinja_string *s = jinja_expect_string(run, "truncate", self);
    struct jinja_value end = v[2].kind == JINJA_UNDEFINED ? jinja_literal(run, "...") : v[2];
    if (!s || !jinja_expect_string(run, "truncate", end)) return jinja_undefined(NULL);
    if (length < (int64_t)end.string->count)
        jinja_fail(run, "expected length >= %zu, got %lld", end.string->count, (long long)length);
    if (leeway < 0) jinja_fail(run, "expected leeway >= 0");
    if (jinja_failed(run)) return jinja_undefined(NULL);
    if ((int64_t)s->count <= length || (int64_t)s->count - length <= leeway) return self;
    size_t to = jinja_byte_of(s, (size_t)length - end.string->count);
    size_t space = to;
    while (space > 0 && s->bytes[space - 1] != ' ') space--;
    if (space && !jinja_is_true(run, v[1])) to = space - 1;
    struct jinja_builder b = {0};
    jinja_build_range(run, &b, s, 0, to);
    jinja_build_string(run, &b, end.string);
    return jinja_build_end(run, &b);
}

struct jinja_value jinja_filter_wordcount(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    struct jinja_value text = jinja_str(run, self);
    if (!jinja_bind_positional(run, "wordcount", args, 0, 0, NULL)) return jinja_undefined(NULL);
    int64_t count = 0;
    bool in_word = false;
    for (size_t at = 0; at < text.string->length && jinja_tick(run);) {
        bool is_word = character_is_word(character_decode(text.string->bytes, &at));
        count += is_word && !in_word;
        in_word = is_word;
    }
    return jinja_int(count);
}
