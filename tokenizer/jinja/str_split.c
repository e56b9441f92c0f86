/* str methods that take strings apart. */
#include "tokenizer/jinja/characters.h"
#include "tokenizer/jinja/library.h"

static bool append_range(struct jinja_run *run, struct jinja_value list, const struct jinja_string *s, size_t from,
                         size_t to)
{
    return !jinja_failed(run) && jinja_list_append(run, list.list, jinja_substring(run, s, from, to));
}

/* The character that ends at byte `end` > 0; *start is where it begins. */
static uint32_t character_before(const struct jinja_string *s, size_t end, size_t *start)
{
    size_t at = *start = jinja_character_start(s, end);
    return utf8_next(s->bytes + at, &at);
}

static size_t skip_spaces(const struct jinja_string *s, size_t at)
{
    for (size_t next = at; next < s->length; at = next) {
        if (!character_is_space(utf8_next(s->bytes + next, &next))) return at;
    }
    return s->length;
}

static size_t skip_spaces_back(const struct jinja_string *s, size_t end)
{
    for (size_t start; end > 0; end = start) {
        if (!character_is_space(character_before(s, end, &start))) return end;
    }
    return 0;
}

/* --- at white space --- */

static void split_words(struct jinja_run *run, struct jinja_value list, const struct jinja_string *s, int64_t max)
{
    size_t at = skip_spaces(s, 0);
    for (; at < s->length && max != 0 && jinja_tick(run); max--) {
        size_t end = at;
        for (size_t next = at; next < s->length; end = next) {
            if (character_is_space(utf8_next(s->bytes + next, &next))) break;
        }
        append_range(run, list, s, at, end);
        at = skip_spaces(s, end);
    }
    if (at < s->length) append_range(run, list, s, at, s->length);
}

static void rsplit_words(struct jinja_run *run, struct jinja_value list, const struct jinja_string *s, int64_t max)
{
    size_t end = skip_spaces_back(s, s->length);
    for (; end > 0 && max != 0 && jinja_tick(run); max--) {
        size_t start = end;
        for (size_t before = end; start > 0; start = before) {
            if (character_is_space(character_before(s, start, &before))) break;
        }
        append_range(run, list, s, start, end);
        end = skip_spaces_back(s, start);
    }
    if (end > 0) append_range(run, list, s, 0, end);
}

/* --- at a separator --- */

static void split_at(struct jinja_run *run, struct jinja_value list, const struct jinja_string *s,
                     const struct jinja_string *separator, int64_t max)
{
    size_t at = 0;
    for (; max != 0 && jinja_tick(run); max--) {
        size_t found = jinja_find_bytes(s, at, s->length, separator);
        if (found == SIZE_MAX) break;
        append_range(run, list, s, at, found);
        at = found + separator->length;
    }
    append_range(run, list, s, at, s->length);
}

static void rsplit_at(struct jinja_run *run, struct jinja_value list, const struct jinja_string *s,
                      const struct jinja_string *separator, int64_t max)
{
    size_t end = s->length;
    for (; max != 0 && jinja_tick(run); max--) {
        size_t found = jinja_find_last_bytes(run, s, 0, end, separator);
        if (found == SIZE_MAX) break;
        append_range(run, list, s, found + separator->length, end);
        end = found;
    }
    append_range(run, list, s, 0, end);
}

static void reverse(struct jinja_list *list)
{
    for (size_t i = 0, j = list->count; i + 1 < j; i++) {
        j--;
        struct jinja_value other = list->items[i];
        list->items[i] = list->items[j];
        list->items[j] = other;
    }
}

static const struct jinja_string *expect_separator(struct jinja_run *run, const char *name, struct jinja_value v)
{
    const struct jinja_string *separator = jinja_expect_string(run, name, v);
    if (separator && separator->length == 0) jinja_fail(run, "empty separator");
    return jinja_failed(run) ? NULL : separator;
}

/* With `variant` the string is split from the right. */
static struct jinja_value str_split(struct jinja_run *run, struct jinja_call *c)
{
    int64_t max;
    if (!jinja_expect_int(run, c->title, c->v[1], -1, &max)) return jinja_undefined(NULL);
    struct jinja_value list = jinja_list_new(run, JINJA_LIST);
    if (c->v[0].kind == JINJA_UNDEFINED || c->v[0].kind == JINJA_NONE) {
        (c->variant ? rsplit_words : split_words)(run, list, c->self.string, max);
    } else {
        const struct jinja_string *separator = expect_separator(run, c->title, c->v[0]);
        if (!separator) return jinja_undefined(NULL);
        (c->variant ? rsplit_at : split_at)(run, list, c->self.string, separator, max);
    }
    if (c->variant && !jinja_failed(run)) reverse(list.list);
    return list;
}

/* With `variant` the last separator counts. */
static struct jinja_value str_partition(struct jinja_run *run, struct jinja_call *c)
{
    const struct jinja_string *s = c->self.string, *separator = expect_separator(run, c->title, c->v[0]);
    if (!separator) return jinja_undefined(NULL);
    size_t found = c->variant ? jinja_find_last_bytes(run, s, 0, s->length, separator)
                              : jinja_find_bytes(s, 0, s->length, separator);
    size_t from = found != SIZE_MAX ? found : c->variant ? 0 : s->length;
    size_t to = found != SIZE_MAX ? found + separator->length : from;
    const struct jinja_value parts[] = {jinja_substring(run, s, 0, from), jinja_substring(run, s, from, to),
                                        jinja_substring(run, s, to, s->length)};
    return jinja_tuple(run, parts, 3);
}

/* --- at line ends --- */

static struct jinja_value split_lines(struct jinja_run *run, const struct jinja_string *s, bool keep_ends)
{
    struct jinja_value list = jinja_list_new(run, JINJA_LIST);
    size_t from = 0;
    for (size_t at = 0; at < s->length && jinja_tick(run);) {
        size_t end = at;
        uint32_t c = utf8_next(s->bytes + at, &at);
        if (!character_is_line_end(c)) continue;
        if (c == '\r' && at < s->length && s->bytes[at] == '\n') at++;
        append_range(run, list, s, from, keep_ends ? at : end);
        from = at;
    }
    if (from < s->length) append_range(run, list, s, from, s->length);
    return list;
}

const struct jinja_list *jinja_lines(struct jinja_run *run, const struct jinja_string *s, bool keep_ends)
{
    struct jinja_value lines = split_lines(run, s, keep_ends);
    return jinja_failed(run) ? NULL : lines.list;
}

static struct jinja_value str_splitlines(struct jinja_run *run, struct jinja_call *c)
{
    return split_lines(run, c->self.string, jinja_is_true(run, c->v[0]));
}

const struct jinja_function jinja_split_methods[] = {
    {"partition", str_partition, "sep, /", false},  {"rpartition", str_partition, "sep, /", true},
    {"rsplit", str_split, "sep=, maxsplit=", true}, {"split", str_split, "sep=, maxsplit=", false},
    {"splitlines", str_splitlines, "keepends="},    {NULL},
};
