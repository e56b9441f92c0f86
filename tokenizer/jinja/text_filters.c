/* Filters of text. Those that are methods of str take any value, as its str(). */
#include "tokenizer/jinja/characters.h"
#include "tokenizer/jinja/library.h"

/* A filter that does what the method of its name does. */
static struct jinja_value filter_method(struct jinja_run *run, struct jinja_call *c)
{
    return jinja_call_str_method(run, c->title, c->self, c->args);
}

static struct jinja_value filter_center(struct jinja_run *run, struct jinja_call *c)
{
    if (c->v[0].kind == JINJA_UNDEFINED) c->v[0] = jinja_int(80);
    return jinja_call_str_method(run, "center", c->self, &(struct jinja_args){.positional = c->v, .count = 1});
}

static struct jinja_value filter_trim(struct jinja_run *run, struct jinja_call *c)
{
    return jinja_call_str_method(run, "strip", c->self, &(struct jinja_args){.positional = c->v, .count = 1});
}

static struct jinja_value filter_replace(struct jinja_run *run, struct jinja_call *c)
{
    c->v[0] = jinja_str(run, c->v[0]);
    c->v[1] = jinja_str(run, c->v[1]);
    return jinja_call_str_method(run, "replace", c->self, &(struct jinja_args){.positional = c->v, .count = 3});
}

static struct jinja_value filter_string(struct jinja_run *run, struct jinja_call *c)
{
    return jinja_str(run, c->self);
}

static struct jinja_value filter_safe(struct jinja_run *run, struct jinja_call *c)
{
    return jinja_as_markup(run, jinja_str(run, c->self));
}

static struct jinja_value filter_escape(struct jinja_run *run, struct jinja_call *c)
{
    return jinja_escape(run, c->self);
}

static struct jinja_value filter_forceescape(struct jinja_run *run, struct jinja_call *c)
{
    struct jinja_value text = jinja_str(run, c->self);
    if (text.kind != JINJA_STRING) return text;
    struct jinja_string plain = *text.string;
    plain.is_markup = false;
    return jinja_escape(run, (struct jinja_value){.kind = JINJA_STRING, .string = &plain});
}

static struct jinja_value filter_format(struct jinja_run *run, struct jinja_call *c)
{
    struct jinja_value text = jinja_str(run, c->self);
    if (c->args->count && c->args->num_keywords)
        jinja_fail(run, "can't handle positional and keyword arguments at the same time");
    if (jinja_failed(run)) return jinja_undefined(NULL);
    if (!c->args->num_keywords)
        return jinja_percent_format(run, text.string, jinja_tuple(run, c->args->positional, c->args->count));
    struct jinja_value keywords = jinja_dict_new(run);
    for (size_t i = 0; i < c->args->num_keywords && jinja_tick(run); i++)
        jinja_dict_set(run, keywords.dict, c->args->keywords[i].name, c->args->keywords[i].value);
    return jinja_percent_format(run, text.string, keywords);
}

/* --- title: words begin after white space and some brackets --- */

static bool separates_words(uint32_t c)
{
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || character_is_space(c);
}

static struct jinja_value filter_title(struct jinja_run *run, struct jinja_call *c)
{
    struct jinja_value text = jinja_str(run, c->self);
    if (text.kind != JINJA_STRING) return text;
    const struct jinja_string *s = text.string;
    struct jinja_builder b = {0};
    for (size_t at = 0; at < s->length && jinja_tick(run);) {
        size_t start = at, end;
        if (separates_words(utf8_next(s->bytes + at, &at))) {
            jinja_build_range(run, &b, s, start, at);
            continue;
        }
        jinja_build_upper(run, &b, s, start, at);
        for (end = at; end < s->length;) {
            size_t next = end;
            if (separates_words(utf8_next(s->bytes + next, &next))) break;
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
    int64_t spaces;
    if (width.kind == JINJA_STRING) return width;
    if (!jinja_expect_int(run, "indent", width, 4, &spaces)) return jinja_undefined(NULL);
    struct jinja_builder b = {0};
    jinja_build_spaces(run, &b, spaces, false);
    return jinja_build_end(run, &b);
}

static struct jinja_value filter_indent(struct jinja_run *run, struct jinja_call *c)
{
    const struct jinja_string *s = jinja_expect_string(run, "indent", c->self);
    struct jinja_value indent = indentation(run, c->v[0]);
    bool first = jinja_is_true(run, c->v[1]), blank = jinja_is_true(run, c->v[2]);
    if (jinja_failed(run)) return jinja_undefined(NULL);
    struct jinja_builder text = {0}, b = {0};
    jinja_build_string(run, &text, s);
    jinja_build_bytes(run, &text, "\n", 1, s->length && jinja_mark_at(s, s->length - 1)); /* jinja2 does so, too */
    struct jinja_value ended = jinja_build_end(run, &text);
    if (ended.kind != JINJA_STRING) return ended;
    const struct jinja_list *lines = jinja_lines(run, ended.string, false);
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

static struct jinja_value filter_truncate(struct jinja_run *run, struct jinja_call *c)
{
    int64_t length, leeway;
    if (!jinja_expect_int(run, "truncate", c->v[0], 255, &length) ||
        !jinja_expect_int(run, "truncate", c->v[3], 5, &leeway))
        return jinja_undefined(NULL);
    if (c->self.kind == JINJA_UNDEFINED) return c->self;
    const struct jinja_string *s = jinja_expect_string(run, "truncate", c->self);
    struct jinja_value end = c->v[2].kind == JINJA_UNDEFINED ? jinja_literal(run, "...") : c->v[2];
    if (!s || !jinja_expect_string(run, "truncate", end)) return jinja_undefined(NULL);
    if (length < (int64_t)end.string->count)
        jinja_fail(run, "expected length >= %zu, got %lld", end.string->count, (long long)length);
    if (leeway < 0) jinja_fail(run, "expected leeway >= 0");
    if (jinja_failed(run)) return jinja_undefined(NULL);
    if ((int64_t)s->count <= length || (int64_t)s->count - length <= leeway) return c->self;
    size_t to = jinja_byte_of(s, (size_t)length - end.string->count);
    size_t space = to;
    while (space > 0 && s->bytes[space - 1] != ' ') space--;
    if (space && !jinja_is_true(run, c->v[1])) to = space - 1;
    struct jinja_builder b = {0};
    jinja_build_range(run, &b, s, 0, to);
    jinja_build_string(run, &b, end.string);
    return jinja_build_end(run, &b);
}

static struct jinja_value filter_wordcount(struct jinja_run *run, struct jinja_call *c)
{
    struct jinja_value text = jinja_str(run, c->self);
    if (text.kind != JINJA_STRING) return text;
    int64_t count = 0;
    bool in_word = false;
    for (size_t at = 0; at < text.string->length && jinja_tick(run);) {
        bool is_word = character_is_word(utf8_next(text.string->bytes + at, &at));
        count += is_word && !in_word;
        in_word = is_word;
    }
    return jinja_int(count);
}

const struct jinja_function jinja_text_filters[] = {
    {"capitalize", filter_method},
    {"lower", filter_method},
    {"upper", filter_method},
    {"center", filter_center, "width="},
    {"trim", filter_trim, "chars="},
    {"replace", filter_replace, "old, new, count="},
    {"string", filter_string, "/"},
    {"safe", filter_safe, "/"},
    {"escape", filter_escape, "/"},
    {"e", filter_escape, "/", 0, "escape"},
    {"forceescape", filter_forceescape, "/"},
    {"format", filter_format},
    {"title", filter_title, "/"},
    {"indent", filter_indent, "width=, first=, blank="},
    {"truncate", filter_truncate, "length=, killwords=, end=, leeway="},
    {"wordcount", filter_wordcount, "/"},
    {NULL},
};
