/* str methods that cut the ends of strings off, or make them longer. */
#include <string.h>

#include "tokenizer/jinja/characters.h"
#include "tokenizer/jinja/str_methods.h"

/* --- cutting --- */

/* Whether the character of s at bytes from .. to is one of `chars`; NULL: white space. */
static bool is_stripped(const struct jinja_string *s, size_t from, size_t to, const struct jinja_string *chars)
{
    size_t at = from;
    if (!chars) return character_is_space(character_decode(s->bytes, &at));
    struct jinja_string character = {.bytes = s->bytes + from, .length = to - from};
    return jinja_find_bytes(chars, 0, chars->length, &character) != SIZE_MAX;
}

static struct jinja_value strip(struct jinja_run *run, const char *name, struct jinja_value self,
                                const struct jinja_args *args, bool left, bool right)
{
    struct jinja_value v;
    const struct jinja_string *s = self.string, *chars = NULL;
    if (!jinja_bind_positional(run, name, args, 1, 0, &v)) return jinja_undefined(NULL);
    if (v.kind != JINJA_UNDEFINED && v.kind != JINJA_NONE) chars = jinja_expect_string(run, name, v);
    if (jinja_failed(run)) return jinja_undefined(NULL);
    size_t from = 0, to = s->length;
    while (left && from < to && jinja_tick(run)) {
        size_t next = from;
        character_decode(s->bytes, &next);
        if (!is_stripped(s, from, next, chars)) break;
        from = next;
    }
    while (right && to > from && jinja_tick(run)) {
        size_t start = to - 1;
        while (((unsigned char)s->bytes[start] & 0xC0) == 0x80) start--;
        if (!is_stripped(s, start, to, chars)) break;
        to = start;
    }
    return from == 0 && to == s->length ? self : jinja_substring(run, s, from, to);
}

struct jinja_value jinja_str_strip(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return strip(run, "strip", self, args, true, true);
}

struct jinja_value jinja_str_lstrip(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return strip(run, "lstrip", self, args, true, false);
}

struct jinja_value jinja_str_rstrip(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return strip(run, "rstrip", self, args, false, true);
}

struct jinja_value jinja_str_removeprefix(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    struct jinja_value v;
    const struct jinja_string *s = self.string;
    if (!jinja_bind_positional(run, "removeprefix", args, 1, 1, &v)) return jinja_undefined(NULL);
    const struct jinja_string *prefix = jinja_expect_string(run, "removeprefix", v);
    if (!prefix) return jinja_undefined(NULL);
    return jinja_has_bytes_at(s, 0, prefix) ? jinja_substring(run, s, prefix->length, s->length) : self;
}

struct jinja_value jinja_str_removesuffix(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    struct jinja_value v;
    const struct jinja_string *s = self.string;
    if (!jinja_bind_positional(run, "removesuffix", args, 1, 1, &v)) return jinja_undefined(NULL);
    const struct jinja_string *suffix = jinja_expect_string(run, "removesuffix", v);
    if (!suffix || s->length < suffix->length) return self;
    size_t end = s->length - suffix->length;
    return jinja_has_bytes_at(s, end, suffix) ? jinja_substring(run, s, 0, end) : self;
}

/* --- padding --- */

/* `fill` is one character; left and right count characters. */
static struct jinja_value pad(struct jinja_run *run, const struct jinja_string *s, const struct jinja_string *fill,
                              int64_t left, int64_t right)
{
    struct jinja_builder b = {0};
    jinja_build_repeated(run, &b, fill, left);
    jinja_build_string(run, &b, s);
    jinja_build_repeated(run, &b, fill, right);
    return jinja_build_end(run, &b);
}

/* The width that is missing, 0 or more, and the character that fills it. */
static bool padding(struct jinja_run *run, const char *name, const struct jinja_string *s,
                    const struct jinja_args *args, int64_t *missing, const struct jinja_string **fill)
{
    static const struct jinja_string space = {.bytes = " ", .length = 1, .count = 1};
    struct jinja_value v[2];
    int64_t width;
    if (!jinja_bind_positional(run, name, args, 2, 1, v) || !jinja_expect_int(run, name, v[0], 0, &width)) return false;
    *fill = v[1].kind == JINJA_UNDEFINED ? &space : jinja_expect_string(run, name, v[1]);
    if (*fill && (*fill)->count != 1) jinja_fail(run, "The fill character must be exactly one character long");
    *missing = width > (int64_t)s->count ? width - (int64_t)s->count : 0;
    return !jinja_failed(run);
}

struct jinja_value jinja_str_center(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    int64_t missing;
    const struct jinja_string *fill;
    if (!padding(run, "center", self.string, args, &missing, &fill)) return jinja_undefined(NULL);
    /* Which side gets the odd one is CPython's choice. */
    int64_t left = missing / 2 + (missing & (missing + (int64_t)self.string->count) & 1);
    return pad(run, self.string, fill, left, missing - left);
}

struct jinja_value jinja_str_ljust(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    int64_t missing;
    const struct jinja_string *fill;
    if (!padding(run, "ljust", self.string, args, &missing, &fill)) return jinja_undefined(NULL);
    return pad(run, self.string, fill, 0, missing);
}

struct jinja_value jinja_str_rjust(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    int64_t missing;
    const struct jinja_string *fill;
    if (!padding(run, "rjust", self.string, args, &missing, &fill)) return jinja_undefined(NULL);
    return pad(run, self.string, fill, missing, 0);
}

struct jinja_value jinja_str_zfill(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    static const struct jinja_string zero = {.bytes = "0", .length = 1, .count = 1};
    const struct jinja_string *s = self.string;
    struct jinja_value v;
    int64_t width;
    if (!jinja_bind_positional(run, "zfill", args, 1, 1, &v) || !jinja_expect_int(run, "zfill", v, 0, &width))
        return jinja_undefined(NULL);
    size_t sign = s->length && (s->bytes[0] == '+' || s->bytes[0] == '-');
    struct jinja_builder b = {0};
    jinja_build_range(run, &b, s, 0, sign);
    if (width > (int64_t)s->count) jinja_build_repeated(run, &b, &zero, width - (int64_t)s->count);
    jinja_build_range(run, &b, s, sign, s->length);
    return jinja_build_end(run, &b);
}

struct jinja_value jinja_str_expandtabs(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    static const char *const names[] = {"tabsize"};
    const struct jinja_string *s = self.string;
    struct jinja_value v;
    int64_t size, column = 0;
    if (!jinja_bind(run, "expandtabs", args, names, 1, 0, &v) || !jinja_expect_int(run, "expandtabs", v, 8, &size))
        return jinja_undefined(NULL);
    struct jinja_builder b = {0};
    for (size_t at = 0; at < s->length && jinja_tick(run);) {
        size_t start = at;
        uint32_t c = character_decode(s->bytes, &at);
        if (c != '\t') {
            jinja_build_range(run, &b, s, start, at);
            column = c == '\n' || c == '\r' ? 0 : column + 1;
        } else if (size > 0) {
            struct jinja_string space = {.bytes = " ", .length = 1, .count = 1, .marked = jinja_mark_at(s, start)};
            jinja_build_repeated(run, &b, &space, size - column % size);
            column += size - column % size;
        }
    }
    return jinja_build_end(run, &b);
}
