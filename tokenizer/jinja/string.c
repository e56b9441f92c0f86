/* Strings with marks, and the builder that makes them. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tokenizer/jinja/characters.h"
#include "tokenizer/jinja/library.h"

enum {
    MIN_CAPACITY = 32, /* bytes of a buffer */
    MAX_KEPT = 4096    /* of a buffer that a short part of it may keep in memory */
};

/* `s` as a value of the run. The strings of a parser, whose run frees nothing before the end, refer to no buffer: the
 * renderings of a template share them. */
static struct jinja_value new_string(struct jinja_run *run, struct jinja_string s)
{
    struct jinja_string *out = jinja_alloc(run, sizeof *out);
    if (!out) return jinja_undefined(NULL);
    s.is_cell = run->reach_roots != NULL;
    if (!s.is_cell) s.buffer = NULL;
    if (s.buffer) s.buffer->shared = true;
    *out = s;
    return (struct jinja_value){.kind = JINJA_STRING, .string = out};
}

struct jinja_value jinja_string_of(struct jinja_run *run, const char *bytes, size_t length, bool marked)
{
    const size_t count = character_count(bytes, length);
    return new_string(run, (struct jinja_string){.bytes = bytes, .length = length, .count = count, .marked = marked});
}

struct jinja_value jinja_string_copy(struct jinja_run *run, const char *bytes, size_t length, bool marked)
{
    struct jinja_builder b = {0};
    jinja_build_bytes(run, &b, bytes, length, marked);
    return jinja_build_end(run, &b);
}

struct jinja_value jinja_literal(struct jinja_run *run, const char *text)
{
    return jinja_string_of(run, text, strlen(text), false);
}

struct jinja_value jinja_view(struct jinja_run *run, const struct jinja_string *s, size_t from, size_t to)
{
    return new_string(run, (struct jinja_string){.bytes = s->bytes + from,
                                                 .length = to - from,
                                                 .count = character_count(s->bytes + from, to - from),
                                                 .marks = s->marks ? s->marks + from : NULL,
                                                 .buffer = s->buffer,
                                                 .marked = s->marked});
}

struct jinja_value jinja_substring(struct jinja_run *run, const struct jinja_string *s, size_t from, size_t to)
{
    if (!s->buffer || s->buffer->capacity <= MAX_KEPT || s->buffer->capacity / 8 < to - from)
        return jinja_view(run, s, from, to);
    struct jinja_builder b = {0}; /* a copy, so that a short string does not keep a long one in memory */
    jinja_build_range(run, &b, s, from, to);
    return jinja_build_end(run, &b);
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

bool jinja_is_index(const struct jinja_string *s, int64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < s->length; i++) {
        if (s->bytes[i] < '0' || s->bytes[i] > '9' || i == 9) return false;
        *out = *out * 10 + (s->bytes[i] - '0');
    }
    return s->length > 0;
}

size_t jinja_byte_of(const struct jinja_string *s, size_t index)
{
    if (index >= s->count) return s->length;
    if (s->count == s->length) return index;
    size_t byte = 0;
    for (; index; index--) utf8_next(s->bytes + byte, &byte);
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

/* Whether the builder's bytes end where those of its buffer do: no string has grown into the room behind them. */
static bool is_at_end(const struct jinja_builder *b)
{
    return b->buffer && b->buffer->length == b->length;
}

/* The builder's bytes in a buffer of its own. */
static bool move(struct jinja_run *run, struct jinja_builder *b, size_t capacity)
{
    const struct jinja_buffer *from = b->buffer;
    struct jinja_buffer *to = jinja_alloc(run, sizeof *to + capacity);
    uint8_t *marks = from && from->marks ? jinja_alloc(run, capacity) : NULL;
    if (jinja_failed(run)) return false;
    if (from) memcpy(to->bytes, from->bytes, b->length);
    if (marks) memcpy(marks, from->marks, b->length);
    to->marks = marks;
    to->length = b->length;
    to->capacity = capacity;
    b->buffer = to;
    return true;
}

static bool grow(struct jinja_run *run, struct jinja_builder *b, size_t capacity)
{
    struct jinja_buffer *buffer = b->buffer;
    if (buffer->marks) {
        uint8_t *marks = jinja_grow(run, buffer->marks, b->length, capacity);
        if (marks) buffer->marks = marks;
    }
    buffer = jinja_grow(run, buffer, sizeof *buffer + b->length, sizeof *buffer + capacity);
    if (!buffer) return false;
    buffer->capacity = capacity;
    b->buffer = buffer;
    return true;
}

/* Room for `more` bytes behind those of the builder. */
static bool reserve(struct jinja_run *run, struct jinja_builder *b, size_t more)
{
    if (jinja_failed(run)) return false;
    const bool at_end = is_at_end(b);
    if (at_end && b->buffer->capacity - b->length >= more) return true;
    size_t capacity = b->length + more;
    if (at_end && capacity < 2 * b->buffer->capacity) capacity = 2 * b->buffer->capacity;
    if (capacity < MIN_CAPACITY) capacity = MIN_CAPACITY;
    return at_end && !b->buffer->shared ? grow(run, b, capacity) : move(run, b, capacity);
}

/* Room for bytes that have not all the mark of those before them. */
static bool need_marks(struct jinja_run *run, struct jinja_builder *b)
{
    if (b->buffer->marks) return true;
    b->buffer->marks = jinja_alloc(run, b->buffer->capacity);
    if (!b->buffer->marks) return false;
    memset(b->buffer->marks, b->marked, b->length);
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
    struct jinja_buffer *buffer = b->buffer;
    memcpy(buffer->bytes + b->length, bytes, length);
    if (marks) {
        memcpy(buffer->marks + b->length, marks, length);
    } else if (buffer->marks) {
        memset(buffer->marks + b->length, marked, length);
    }
    buffer->length = b->length += length;
    return true;
}

bool jinja_build_string(struct jinja_run *run, struct jinja_builder *b, const struct jinja_string *s)
{
    const bool may_grow = s->buffer && s->bytes == s->buffer->bytes && s->length == s->buffer->length;
    if (b->buffer || !may_grow || jinja_failed(run)) return append(run, b, s->bytes, s->length, s->marks, s->marked);
    *b = (struct jinja_builder){s->buffer, s->length, s->marked, {s->length, s->count}};
    return true;
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
    return append(run, b, bytes, utf8_write(c, bytes), NULL, marked);
}

bool jinja_build_repeated(struct jinja_run *run, struct jinja_builder *b, const struct jinja_string *s, int64_t count)
{
    if (s->length == 0 || count <= 0) return !jinja_failed(run);
    if ((uint64_t)count > run->max_bytes / s->length)
        return jinja_fail(run, "a string repeated %lld times needs more memory than a rendering may take",
                          (long long)count);
    if (!reserve(run, b, s->length * (size_t)count)) return false;
    for (int64_t i = 0; i < count; i++) {
        if (!jinja_build_string(run, b, s)) return false;
    }
    return true;
}

bool jinja_build_spaces(struct jinja_run *run, struct jinja_builder *b, int64_t count, bool marked)
{
    const struct jinja_string space = {.bytes = " ", .length = 1, .count = 1, .marked = marked};
    return jinja_build_repeated(run, b, &space, count);
}

struct jinja_value jinja_build_end(struct jinja_run *run, struct jinja_builder *b)
{
    if (jinja_failed(run)) return jinja_undefined(NULL);
    struct jinja_string s = {.bytes = "", .length = b->length, .buffer = b->buffer, .marked = b->marked};
    if (b->buffer) {
        s.bytes = b->buffer->bytes;
        s.marks = b->buffer->marks;
        s.count = b->counted.count + character_count(s.bytes + b->counted.length, s.length - b->counted.length);
    }
    return new_string(run, s);
}
