/* str methods that look for strings, and those that put strings together. */
#include "tokenizer/jinja/characters.h"
#include "tokenizer/jinja/library.h"

/* --- where --- */

/* Bytes of s between the bounds start and end, in characters, as Python's find takes them. False: nothing can lie
 * there, not even "" (or a failure). */
static bool search_bounds(struct jinja_run *run, const char *name, const struct jinja_string *s,
                          const struct jinja_value bounds[2], size_t *from, size_t *to)
{
    int64_t start, end, count = (int64_t)s->count;
    if (!jinja_expect_int(run, name, bounds[0], 0, &start) || !jinja_expect_int(run, name, bounds[1], count, &end))
        return false;
    if (start < 0) start = start < -count ? 0 : start + count;
    if (end < 0) end = end < -count ? 0 : end + count;
    if (end > count) end = count;
    if (start > end) return false;
    *from = jinja_byte_of(s, (size_t)start);
    *to = jinja_byte_of(s, (size_t)end);
    return true;
}

enum { LAST = 1, MUST_BE_THERE = 2 };

/* The index of the character at which the argument is found; -1: nowhere. `variant` asks for the last place instead of
 * the first, and says whether there must be one. */
static struct jinja_value str_find(struct jinja_run *run, struct jinja_call *c)
{
    const struct jinja_string *s = c->self.string, *needle = jinja_expect_string(run, c->title, c->v[0]);
    size_t from, to, found = SIZE_MAX;
    if (needle && search_bounds(run, c->title, s, c->v + 1, &from, &to))
        found =
            c->variant & LAST ? jinja_find_last_bytes(run, s, from, to, needle) : jinja_find_bytes(s, from, to, needle);
    if (found == SIZE_MAX && c->variant & MUST_BE_THERE) jinja_fail(run, "substring not found");
    return jinja_int(found == SIZE_MAX ? -1 : (int64_t)character_count(s->bytes, found));
}

static struct jinja_value str_count(struct jinja_run *run, struct jinja_call *c)
{
    const struct jinja_string *s = c->self.string;
    size_t from, to;
    const struct jinja_string *needle = jinja_expect_string(run, "count", c->v[0]);
    if (!needle || !search_bounds(run, "count", s, c->v + 1, &from, &to)) return jinja_int(0);
    int64_t count = 0;
    if (needle->length == 0) /* before each character, and at the end */
        return jinja_int((int64_t)character_count(s->bytes + from, to - from) + 1);
    for (size_t at; (at = jinja_find_bytes(s, from, to, needle)) != SIZE_MAX; from = at + needle->length) count++;
    return jinja_int(count);
}

enum { START, END };

/* Whether the string has one of the arguments at an end. `variant` says at which. */
static struct jinja_value str_has_end(struct jinja_run *run, struct jinja_call *c)
{
    const struct jinja_string *s = c->self.string;
    size_t from, to;
    bool tuple = c->v[0].kind == JINJA_TUPLE;
    size_t count = tuple ? c->v[0].list->count : 1;
    bool possible = search_bounds(run, c->title, s, c->v + 1, &from, &to);
    for (size_t i = 0; i < count && jinja_tick(run); i++) {
        const struct jinja_string *text = jinja_expect_string(run, c->title, tuple ? c->v[0].list->items[i] : c->v[0]);
        if (text && possible && to - from >= text->length &&
            jinja_has_bytes_at(s, c->variant == START ? from : to - text->length, text))
            return jinja_bool(true);
    }
    return jinja_bool(false);
}

/* --- replace and join --- */

/* `new_text` before each of the first `max` characters, and at the end. */
static void interleave(struct jinja_run *run, struct jinja_builder *b, const struct jinja_string *s,
                       const struct jinja_string *new_text, int64_t max)
{
    size_t at = 0;
    for (; max != 0 && jinja_tick(run); max--) {
        jinja_build_string(run, b, new_text);
        if (at == s->length) return;
        const size_t next = jinja_character_end(s, at);
        jinja_build_range(run, b, s, at, next);
        at = next;
    }
    jinja_build_range(run, b, s, at, s->length);
}

static struct jinja_value str_replace(struct jinja_run *run, struct jinja_call *c)
{
    const struct jinja_string *s = c->self.string;
    int64_t max;
    if (!jinja_expect_int(run, "replace", c->v[2], -1, &max)) return jinja_undefined(NULL);
    const struct jinja_string *old = jinja_expect_string(run, "replace", c->v[0]);
    const struct jinja_string *new_text = jinja_expect_string(run, "replace", c->v[1]);
    if (!old || !new_text) return jinja_undefined(NULL);
    struct jinja_builder b = {0};
    size_t at = 0, found;
    if (old->length == 0) {
        interleave(run, &b, s, new_text, max);
        return jinja_build_end(run, &b);
    }
    for (; max != 0 && jinja_tick(run) && (found = jinja_find_bytes(s, at, s->length, old)) != SIZE_MAX; max--) {
        jinja_build_range(run, &b, s, at, found);
        jinja_build_string(run, &b, new_text);
        at = found + old->length;
    }
    if (at == 0) return c->self;
    jinja_build_range(run, &b, s, at, s->length);
    return jinja_build_end(run, &b);
}

static struct jinja_value str_join(struct jinja_run *run, struct jinja_call *c)
{
    const struct jinja_list *list = jinja_iterate(run, c->v[0]);
    struct jinja_builder b = {0};
    for (size_t i = 0; list && i < list->count && jinja_tick(run); i++) {
        if (list->items[i].kind != JINJA_STRING) {
            jinja_fail(run, "sequence item %zu: expected str instance, %s found", i, jinja_type_name(list->items[i]));
            break;
        }
        if (i) jinja_build_string(run, &b, c->self.string);
        jinja_build_string(run, &b, list->items[i].string);
    }
    return jinja_build_end(run, &b);
}

const struct jinja_function jinja_search_methods[] = {
    {"count", str_count, "sub, start=, end=, /"},
    {"endswith", str_has_end, "suffix, start=, end=, /", END},
    {"find", str_find, "sub, start=, end=, /"},
    {"index", str_find, "sub, start=, end=, /", MUST_BE_THERE},
    {"join", str_join, "iterable, /"},
    {"replace", str_replace, "old, new, count=, /"},
    {"rfind", str_find, "sub, start=, end=, /", LAST},
    {"rindex", str_find, "sub, start=, end=, /", LAST | MUST_BE_THERE},
    {"startswith", str_has_end, "prefix, start=, end=, /", START},
    {NULL},
};
