/* str methods that look for strings, and those that put strings together. */
#include "tokenizer/jinja/str_methods.h"

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

/* The index of the character at which the argument is found; -1: nowhere, or a failure. */
static int64_t find(struct jinja_run *run, const char *name, const struct jinja_string *s,
                    const struct jinja_args *args, bool last)
{
    struct jinja_value v[3];
    size_t from, to;
    if (!jinja_bind_positional(run, name, args, 3, 1, v)) return -1;
    const struct jinja_string *needle = jinja_expect_string(run, name, v[0]);
    if (!needle || !search_bounds(run, name, s, v + 1, &from, &to)) return -1;
    size_t found = last ? jinja_find_last_bytes(run, s, from, to, needle) : jinja_find_bytes(s, from, to, needle);
    if (found == SIZE_MAX) return -1;
    int64_t index = 0;
    for (size_t i = 0; i < found; i++) index += ((unsigned char)s->bytes[i] & 0xC0) != 0x80;
    return index;
}

struct jinja_value jinja_str_find(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return jinja_int(find(run, "find", self.string, args, false));
}

struct jinja_value jinja_str_rfind(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return jinja_int(find(run, "rfind", self.string, args, true));
}

static struct jinja_value index_of(struct jinja_run *run, const char *name, struct jinja_value self,
                                   const struct jinja_args *args, bool last)
{
    int64_t index = find(run, name, self.string, args, last);
    if (index < 0) jinja_fail(run, "substring not found");
    return jinja_int(index);
}

struct jinja_value jinja_str_index(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return index_of(run, "index", self, args, false);
}

struct jinja_value jinja_str_rindex(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return index_of(run, "rindex", self, args, true);
}

struct jinja_value jinja_str_count(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    const struct jinja_string *s = self.string;
    struct jinja_value v[3];
    size_t from, to;
    if (!jinja_bind_positional(run, "count", args, 3, 1, v)) return jinja_undefined(NULL);
    const struct jinja_string *needle = jinja_expect_string(run, "count", v[0]);
    if (!needle || !search_bounds(run, "count", s, v + 1, &from, &to)) return jinja_int(0);
    int64_t count = 0;
    if (needle->length == 0) { /* before each character, and at the end */
        for (size_t i = from; i < to; i++) count += ((unsigned char)s->bytes[i] & 0xC0) != 0x80;
        return jinja_int(count + 1);
    }
    for (size_t at; (at = jinja_find_bytes(s, from, to, needle)) != SIZE_MAX; from = at + needle->length) count++;
    return jinja_int(count);
}

static bool is_at_end(const struct jinja_string *s, size_t from, size_t to, const struct jinja_string *text, bool start)
{
    if (to - from < text->length) return false;
    return jinja_has_bytes_at(s, start ? from : to - text->length, text);
}

static struct jinja_value has_end(struct jinja_run *run, const char *name, struct jinja_value self,
                                  const struct jinja_args *args, bool start)
{
    struct jinja_value v[3];
    size_t from, to;
    if (!jinja_bind_positional(run, name, args, 3, 1, v)) return jinja_undefined(NULL);
    bool tuple = v[0].kind == JINJA_TUPLE;
    size_t count = tuple ? v[0].list->count : 1;
    bool possible = search_bounds(run, name, self.string, v + 1, &from, &to);
    for (size_t i = 0; i < count && jinja_tick(run); i++) {
        const struct jinja_string *text = jinja_expect_string(run, name, tuple ? v[0].list->items[i] : v[0]);
        if (text && possible && is_at_end(self.string, from, to, text, start)) return jinja_bool(true);
    }
    return jinja_bool(false);
}

struct jinja_value jinja_str_startswith(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return has_end(run, "startswith", self, args, true);
}

struct jinja_value jinja_str_endswith(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return has_end(run, "endswith", self, args, false);
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
        size_t next = at + 1;
        while (next < s->length && ((unsigned char)s->bytes[next] & 0xC0) == 0x80) next++;
        jinja_build_range(run, b, s, at, next);
        at = next;
    }
    jinja_build_range(run, b, s, at, s->length);
}

struct jinja_value jinja_str_replace(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    const struct jinja_string *s = self.string;
    struct jinja_value v[3];
    int64_t max;
    if (!jinja_bind_positional(run, "replace", args, 3, 2, v) || !jinja_expect_int(run, "replace", v[2], -1, &max))
        return jinja_undefined(NULL);
    const struct jinja_string *old = jinja_expect_string(run, "replace", v[0]);
    const struct jinja_string *new_text = jinja_expect_string(run, "replace", v[1]);
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
    if (at == 0) return self;
    jinja_build_range(run, &b, s, at, s->length);
    return jinja_build_end(run, &b);
}

struct jinja_value jinja_str_join(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    struct jinja_value v;
    if (!jinja_bind_positional(run, "join", args, 1, 1, &v)) return jinja_undefined(NULL);
    const struct jinja_list *list = jinja_iterate(run, v);
    struct jinja_builder b = {0};
    for (size_t i = 0; list && i < list->count && jinja_tick(run); i++) {
        if (list->items[i].kind != JINJA_STRING) {
            jinja_fail(run, "sequence item %zu: expected str instance, %s found", i, jinja_type_name(list->items[i]));
            break;
        }
        if (i) jinja_build_string(run, &b, self.string);
        jinja_build_string(run, &b, list->items[i].string);
    }
    return jinja_build_end(run, &b);
}
