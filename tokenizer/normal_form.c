#include "tokenizer/normal_form.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "tokenizer/unicode.h"

/* Characters that are stable in these forms: alone they are normalized, and they neither move nor combine with what
 * stands before them. Not all that are, but most of most texts. */
static const struct {
    uint32_t first, last;
    int forms;
} stable_ranges[] = {
    {0x0, 0x7F, NORMAL_FORM_C | NORMAL_FORM_D | NORMAL_FORM_KC | NORMAL_FORM_KD},
    {0x80, 0x2FF, NORMAL_FORM_C},
    {0x388, 0x3CF, NORMAL_FORM_C},
    {0x400, 0x482, NORMAL_FORM_C | NORMAL_FORM_KC},
    {0x5D0, 0x5EA, NORMAL_FORM_C | NORMAL_FORM_D | NORMAL_FORM_KC | NORMAL_FORM_KD},
    {0x621, 0x64A, NORMAL_FORM_C | NORMAL_FORM_KC},
    {0x904, 0x928, NORMAL_FORM_C | NORMAL_FORM_KC},
    {0x2010, 0x2027, NORMAL_FORM_C},
    {0x3001, 0x3029, NORMAL_FORM_C},
    {0x3041, 0x3096, NORMAL_FORM_C | NORMAL_FORM_KC},
    {0x30A1, 0x30FA, NORMAL_FORM_C | NORMAL_FORM_KC},
    {0x3400, 0x4DB5, NORMAL_FORM_C | NORMAL_FORM_D | NORMAL_FORM_KC | NORMAL_FORM_KD},
    {0x4E00, 0x9FD5, NORMAL_FORM_C | NORMAL_FORM_D | NORMAL_FORM_KC | NORMAL_FORM_KD},
    {0xAC00, 0xD7A3, NORMAL_FORM_C | NORMAL_FORM_KC},
    {0xFF01, 0xFF60, NORMAL_FORM_C},
    {0x1F300, 0x1F64F, NORMAL_FORM_C | NORMAL_FORM_D | NORMAL_FORM_KC | NORMAL_FORM_KD},
};

static bool is_stable(enum normal_form form, uint32_t c)
{
    if (c < 0x80) return true;
    for (size_t i = 1; i < sizeof stable_ranges / sizeof stable_ranges[0] && c >= stable_ranges[i].first; i++)
        if (c <= stable_ranges[i].last) return (stable_ranges[i].forms & form) != 0;
    return false;
}

/* Decomposed characters that wait until a boundary: count of them are there, and `sorting` has the same room. */
struct buffer {
    utf8proc_int32_t *characters, *sorting;
    size_t count, capacity, sorting_capacity;
    bool marked;
};

static int combining_class(utf8proc_int32_t c)
{
    return utf8proc_get_property(c)->combining_class;
}

/* A stable sort of count characters by combining class, all of which are above 0. */
static bool sort_by_class(struct buffer *b, utf8proc_int32_t *characters, size_t count)
{
    size_t starts[257] = {0};
    bool sorted = true;
    for (size_t i = 1; i < count && sorted; i++)
        sorted = combining_class(characters[i - 1]) <= combining_class(characters[i]);
    if (sorted) return true;
    if (!array_reserve(&b->sorting, &b->sorting_capacity, count, sizeof *b->sorting)) return false;
    for (size_t i = 0; i < count; i++) starts[combining_class(characters[i]) + 1]++;
    for (int class = 0; class < 256; class ++) starts[class + 1] += starts[class];
    for (size_t i = 0; i < count; i++) b->sorting[starts[combining_class(characters[i])]++] = characters[i];
    memcpy(characters, b->sorting, count * sizeof *characters);
    return true;
}

static bool order(struct buffer *b)
{
    for (size_t i = 0; i < b->count;) {
        size_t start = i;
        while (i < b->count && combining_class(b->characters[i]) > 0) i++;
        if (i - start > 1 && !sort_by_class(b, b->characters + start, i - start)) return false;
        if (i == start) i++;
    }
    return true;
}

static bool flush(struct buffer *b, enum normal_form form, bool with_marks, struct marked_text *out)
{
    if (b->count == 0) return true;
    if (!order(b)) return false;
    utf8proc_ssize_t count = (utf8proc_ssize_t)b->count;
    if (form & (NORMAL_FORM_C | NORMAL_FORM_KC))
        count = utf8proc_normalize_utf32(b->characters, count, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    for (utf8proc_ssize_t i = 0; i < count; i++) {
        char bytes[4];
        size_t length = utf8_write((uint32_t)b->characters[i], bytes);
        if (!marked_text_append(out, bytes, length, with_marks, b->marked)) return false;
    }
    b->count = 0;
    b->marked = false;
    return true;
}

/* Adds the decomposition of a character. If it begins with a stable one, what waits is complete. */
static bool decompose(struct buffer *b, enum normal_form form, uint32_t c, bool marked, bool with_marks,
                      struct marked_text *out)
{
    utf8proc_int32_t parts[32]; /* U+FDFA has 18 */
    int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, ignored = 0;
    if (form & (NORMAL_FORM_KC | NORMAL_FORM_KD)) options |= UTF8PROC_COMPAT;
    size_t count = (size_t)utf8proc_decompose_char((utf8proc_int32_t)c, parts, 32, options, &ignored);
    if (is_stable(form, (uint32_t)parts[0]) && !flush(b, form, with_marks, out)) return false;
    if (!array_reserve(&b->characters, &b->capacity, b->count + count, sizeof *b->characters)) return false;
    memcpy(b->characters + b->count, parts, count * sizeof *parts);
    b->count += count;
    b->marked |= marked;
    return true;
}

/* The end of the stable characters from `at` on whose successor is stable, too: they are copied. */
static size_t stable_end(enum normal_form form, const char *text, size_t at, size_t length)
{
    size_t end = at;
    while (at < length) {
        size_t start = at;
        if (!is_stable(form, utf8_next(text + at, &at))) return end;
        end = start;
    }
    return length;
}

bool normal_form_append(enum normal_form form, const char *text, const char *marks, size_t length,
                        struct marked_text *out)
{
    struct buffer b = {0};
    bool good = true;
    for (size_t at = 0; at < length && good;) {
        size_t end = stable_end(form, text, at, length);
        good =
            text_append(&out->text, text + at, end - at) && (!marks || text_append(&out->marks, marks + at, end - at));
        /* A stable character and those after it that are not. */
        for (at = end; at < length && good;) {
            size_t next = at;
            uint32_t c = utf8_next(text + at, &next);
            if (at > end && is_stable(form, c)) break;
            if (unicode_is_newer_than_normal_forms(c)) {
                good = flush(&b, form, marks, out) &&
                       marked_text_append(out, text + at, next - at, marks, marks && marks[at]);
            } else {
                good = decompose(&b, form, c, marks && marks[at], marks, out);
            }
            at = next;
        }
        good = good && flush(&b, form, marks, out);
    }
    free(b.characters);
    free(b.sorting);
    return good;
}
