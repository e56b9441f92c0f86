/* str methods that cut the ends of strings off, or make them longer. */
#include <string.h>

#include "tokenizer/jinja/characters.h"
#include "tokenizer/jinja/library.h"

/* --- cutting --- */

/* Whether the character of s at bytes from .. to is one of `chars`; NULL: white space. */
static bool is_stripped(const struct jinja_string *s, size_t from, size_t to, const struct jinja_string *chars)
{
    size_t at = from;
    if (!chars) return character_is_space(utf8_next(s->bytes + at, &at));
    struct jinja_string character = {.bytes = s->bytes + from, .length = to - from};
    return jinja_find_bytes(chars, 0, chars->length, &character) != SIZE_MAX;
}

enum { LEFT = 1, RIGHT = 2 };

/* `variant` says which sides are stripped. */
static struct jinja_value str_strip(struct jinja_run *run, struct jinja_call *c)
{
    const struct jinja_string *s = c->self.string, *chars = NULL;
    if (c->v[0].kind != JINJA_UNDEFINED && c->v[0].kind != JINJA_NONE)
        chars = jinja_expect_string(run, c->title, c->v[0]);
    if (jinja_failed(run)) return jinja_undefined(NULL);
    size_t from = 0, to = s->length;
    while (c->variant & LEFT && from < to && jinja_tick(run)) {
        const size_t next = jinja_character_end(s, from);
        if (!is_stripped(s, from, next, chars)) break;
        from = next;
    }
    while (c->variant & RIGHT && to > from && jinja_tick(run)) {
        const size_t start = jinja_character_start(s, to);
        if (!is_stripped(s, start, to, chars)) break;
        to = start;
    }
    return from == 0 && to == s->length ? c->self : jinja_substring(run, s, from, to);
}

static struct jinja_value str_removeprefix(struct jinja_run *run, struct jinja_call *c)
{
    const struct jinja_string *s = c->self.string;
    const struct jinja_string *prefix = jinja_expect_string(run, "removeprefix", c->v[0]);
    if (!prefix) return jinja_undefined(NULL);
    return jinja_has_bytes_at(s, 0, prefix) ? jinja_substring(run, s, prefix->length, s->length) : c->self;
}

static struct jinja_value str_removesuffix(struct jinja_run *run, struct jinja_call *c)
{
    const struct jinja_string *s = c->self.string;
    const struct jinja_string *suffix = jinja_expect_string(run, "removesuffix", c->v[0]);
    if (!suffix || s->length < suffix->length) return c->self;
    size_t end = s->length - suffix->length;
    return jinja_has_bytes_at(s, end, suffix) ? jinja_substring(run, s, 0, end) : c->self;
}

/* --- padding --- */

enum { CENTER, TO_LEFT, TO_RIGHT };

/* `variant` says where the text goes. */
static struct jinja_value str_pad(struct jinja_run *run, struct jinja_call *c)
{
    static const struct jinja_string space = {.bytes = " ", .length = 1, .count = 1};
    const struct jinja_string *s = c->self.string;
    int64_t width;
    if (!jinja_expect_int(run, c->title, c->v[0], 0, &width)) return jinja_undefined(NULL);
    const struct jinja_string *fill =
        c->v[1].kind == JINJA_UNDEFINED ? &space : jinja_expect_string(run, c->title, c->v[1]);
    if (fill && fill->count != 1) jinja_fail(run, "The fill character must be exactly one character long");
    if (jinja_failed(run)) return jinja_undefined(NULL);
    const int64_t count = (int64_t)s->count, missing = width > count ? width - count : 0;
    int64_t left = c->variant == TO_RIGHT ? missing : 0;
    if (c->variant == CENTER)
        left = missing / 2 + (missing & (missing + count) & 1); /* the odd one is CPython's choice */
    struct jinja_builder b = {0};
    jinja_build_repeated(run, &b, fill, left);
    jinja_build_string(run, &b, s);
    jinja_build_repeated(run, &b, fill, missing - left);
    return jinja_build_end(run, &b);
}

static struct jinja_value str_zfill(struct jinja_run *run, struct jinja_call *c)
{
    static const struct jinja_string zero = {.bytes = "0", .length = 1, .count = 1};
    const struct jinja_string *s = c->self.string;
    int64_t width;
    if (!jinja_expect_int(run, "zfill", c->v[0], 0, &width)) return jinja_undefined(NULL);
    size_t sign = s->length && (s->bytes[0] == '+' || s->bytes[0] == '-');
    struct jinja_builder b = {0};
    jinja_build_range(run, &b, s, 0, sign);
    if (width > (int64_t)s->count) jinja_build_repeated(run, &b, &zero, width - (int64_t)s->count);
    jinja_build_range(run, &b, s, sign, s->length);
    return jinja_build_end(run, &b);
}

static struct jinja_value str_expandtabs(struct jinja_run *run, struct jinja_call *c)
{
    const struct jinja_string *s = c->self.string;
    int64_t size, column = 0;
    if (!jinja_expect_int(run, "expandtabs", c->v[0], 8, &size)) return jinja_undefined(NULL);
    struct jinja_builder b = {0};
    for (size_t at = 0; at < s->length && jinja_tick(run);) {
        size_t start = at;
        uint32_t character = utf8_next(s->bytes + at, &at);
        if (character != '\t') {
            jinja_build_range(run, &b, s, start, at);
            column = character == '\n' || character == '\r' ? 0 : column + 1;
        } else if (size > 0) {
            jinja_build_spaces(run, &b, size - column % size, jinja_mark_at(s, start));
            column += size - column % size;
        }
    }
    return jinja_build_end(run, &b);
}

const struct jinja_function jinja_strip_methods[] = {
    {"center", str_pad, "width, fillchar=, /", CENTER},
    {"expandtabs", str_expandtabs, "tabsize="},
    {"ljust", str_pad, "width, fillchar=, /", TO_LEFT},
    {"lstrip", str_strip, "chars=, /", LEFT},
    {"removeprefix", str_removeprefix, "prefix, /"},
    {"removesuffix", str_removesuffix, "suffix, /"},
    {"rjust", str_pad, "width, fillchar=, /", TO_RIGHT},
    {"rstrip", str_strip, "chars=, /", RIGHT},
    {"strip", str_strip, "chars=, /", LEFT | RIGHT},
    {"zfill", str_zfill, "width, /"},
    {NULL},
};
