/* Strings with marks, and the builder that makes them. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tokenizer/jinja/characters.h"
#include "tokenizer/jinja/library.h"

static struct jinja_value new_string(struct jinja_run *run, struct jinja_string s)
{
    struct jinja_string *out = jinja_alloc(run, sizeof *out);
    if (!out) return jinja_undefined(NULL);
    s.count = character_count(s.bytes, s.length);
    *out = s;
    return (struct jinja_value){.kind = JINJA_STRING, .string = out};
}

struct jinja_value jinja_string_of(struct jinja_run *run, const char *bytes, size_t length, bool marked)
{
    return new_string(run, (struct jinja_string){.bytes = bytes, .length = length, .marked = marked});
}

struct jinja_value jinja_string_copy(struct jinja_run *run, const char *bytes, size_t length, bool marked)
{
    char *copy = jinja_alloc(run, length + 1);
    if (!copy) return jinja_undefined(NULL);
    memcpy(copy, bytes, length);
    return jinja_string_of(run, copy, length, marked);
}

struct jinja_value jinja_literal(struct jinja_run *run, const char *text)
{
    return jinja_string_of(run, text, strlen(text), false);
}

struct jinja_value jinja_substring(struct jinja_run *run, const struct jinja_string *s, size_t from, size_t to)
{
    return new_string(run, (struct jinja_string){.bytes = s->bytes + from,
                                                 .length = to - from,
                                                 .marks = s->marks ? s->marks + from : NULL,
                                                 .marked = s->marked});
}

struct jinja_value jinja_as_markup(struct jinja_run *run, struct jinja_value string)
{
    if (string.kind != JINJA_STRING || string.string->is_markup) return string;
    struct jinja_string s = *string.string;
    s.is_markup = true;
    return new_string(run, s);
}

bool jinja_string_is(const struct jinja_string *s, const char *text)
{
    return s->length == strlen(text) && memcmp(s->bytes, text, s->length) == 0;
}

bool jinja_strings_equal(const struct jinja_string *a, const struct jinja_string *b)
{
    return a->length == b->length && memcmp(a->bytes, b->bytes, a->length) == 0;
}

size_t jinja_byte_of(const struct jinja_string *s, size_t index)
{
    if (index >= s->count) return s->length;
    if (s->count == s->length) return index;
    size_t byte = 0;
    for (; index; index--) character_decode(s->bytes, &byte);
    return byte;
}

size_t jinja_find_bytes(const struct jinja_string *s, size_t from, size_t to, const struct jinja_string *needle)
{
    if (from > to || to - from < needle->length) return SIZE_MAX;
    if (needle->length == 0) return from;
    const char *found = memmem(s->bytes + from, to - from, needle->bytes, needle->length);
    return found ? (size_t)(found - s->bytes) : SIZE_MAX;
}

bool jinja_has_bytes_at(const struct jinja_string *s, size_t at, const struct jinja_string *text)
{
    return at <= s->length && s->length - at >= text->length && memcmp(s->bytes + at, text->bytes, text->length) == 0;
}

size_t jinja_find_last_bytes(struct jinja_run *run, const struct jinja_string *s, size_t from, size_t to,
                             const struct jinja_string *needle)
{
    if (from > to || to - from < needle->length) return SIZE_MAX;
    for (size_t at = to - needle->length + 1; at-- > from && jinja_tick(run);)
        if (jinja_has_bytes_at(s, at, needle)) return at;
    return SIZE_MAX;
}

static bool reserve(struct jinja_run *run, struct jinja_builder *b, size_t more)
{
    if (jinja_failed(run)) return false;
    if (b->capacity - b->length >= more) return true;
    size_t capacity = b->capacity * 2 > b->length + more ? b->capacity * 2 : b->length + more;
    if (capacity < 64) capacity = 64;
    char *bytes = jinja_alloc(run, capacity);
    uint8_t *marks = b->marks ? jinja_alloc(run, capacity) : NULL;
    if (!bytes || (b->marks && !marks)) return false;
    if (b->length) memcpy(bytes, b->bytes, b->length);
    if (marks) memcpy(marks, b->marks, b->length);
    b->bytes = bytes;
    b->marks = marks;
    b->capacity = capacity;
    return true;
}

/* Room for `more` bytes that have not all the mark of those before them. */
static bool need_marks(struct jinja_run *run, struct jinja_builder *b)
{
    if (b->marks) return true;
    b->marks = jinja_alloc(run, b->capacity);
    if (!b->marks) return false;
    memset(b->marks, b->marked, b->length);
    return true;
}

/* `marks` NULL: all bytes have the mark `marked`. */
static bool append(struct jinja_run *run, struct jinja_builder *b, const char *bytes, size_t length,
                   const uint8_t *marks, bool marked)
{
    if (length == 0) return !jinja_failed(run);
    if (!reserve(run, b, length)) return false;
    if (b->length == 0) b->marked = marked;
    if ((marks || b->marked != marked) && !need_marks(run, b)) return false;
    memcpy(b->bytes + b->length, bytes, length);
    if (marks) {
        memcpy(b->marks + b->length, marks, length);
    } else if (b->marks) {
        memset(b->marks + b->length, marked, length);
    }
    b->length += length;
    return true;
}

bool jinja_build_string(struct jinja_run *run, struct jinja_builder *b, const struct jinja_string *s)
{
    return append(run, b, s->bytes, s->length, s->marks, s->marked);
}

bool jinja_build_range(struct jinja_run *run, struct jinja_builder *b, const struct jinja_string *s, size_t from,
                       size_t to)
{
    return append(run, b, s->bytes + from, to - from, s->marks ? s->marks + from : NULL, s->marked);
}

bool jinja_build_bytes(struct jinja_run *run, struct jinja_builder *b, const char *bytes, size_t length, bool marked)
{
    return append(run, b, bytes, length, NULL, marked);
}

bool jinja_build_text(struct jinja_run *run, struct jinja_builder *b, const char *text)
{
    return append(run, b, text, strlen(text), NULL, false);
}

bool jinja_build_printf(struct jinja_run *run, struct jinja_builder *b, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return jinja_build_text(run, b, text);
}

bool jinja_build_character(struct jinja_run *run, struct jinja_builder *b, uint32_t c, bool marked)
{
    char bytes[4];
    return append(run, b, bytes, character_encode(c, bytes), NULL, marked);
}

bool jinja_build_repeated(struct jinja_run *run, struct jinja_builder *b, const struct jinja_string *s, int64_t count)
{
    if (s->length == 0 || count <= 0) return !jinja_failed(run);
    if ((uint64_t)count > run->max_bytes / s->length) {
        jinja_fail(run, "a string repeated %lld times needs more memory than a rendering may take", (long long)count);
        return false;
    }
    if (!reserve(run, b, s->length * (size_t)count)) return false;
    for (int64_t i = 0; i < count; i++) {
        if (!jinja_build_string(run, b, s)) return false;
    }
    return true;
}

struct jinja_value jinja_build_end(struct jinja_run *run, struct jinja_builder *b)
{
    if (jinja_failed(run)) return jinja_undefined(NULL);
    return new_string(
        run, (struct jinja_string){
                 .bytes = b->bytes ? b->bytes : "", .length = b->length, .marks = b->marks, .marked = b->marked});
}

struct jinja_value jinja_escape(struct jinja_run *run, struct jinja_value v)
{
    struct jinja_value text = jinja_str(run, v);
    if (text.kind != JINJA_STRING || (v.kind == JINJA_STRING && v.string->is_markup)) return text;
    const struct jinja_string *s = text.string;
    struct jinja_builder b = {0};
    size_t done = 0;
    for (size_t i = 0; i < s->length; i++) {
        static const char special[] = "&<>\"'";
        static const char *const escapes[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
        const char *found = s->bytes[i] ? strchr(special, s->bytes[i]) : NULL;
        if (!found) continue;
        const char *escape = escapes[found - special];
        jinja_build_range(run, &b, s, done, i);
        jinja_build_bytes(run, &b, escape, strlen(escape), jinja_mark_at(s, i));
        done = i + 1;
    }
    jinja_build_range(run, &b, s, done, s->length);
    return jinja_as_markup(run, jinja_build_end(run, &b));
}
