#include "tokenizer/grammar/character_set.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/array.h"
#include "base/utf8.h"
#include "tokenizer/regexp.h"

void character_set_free(struct character_set *s)
{
    free(s->ranges);
    *s = (struct character_set){0};
}

static void add_symbols(struct character_set *s, uint32_t first, uint32_t last)
{
    if (s->failed || first > last) return;
    if (!array_reserve(&s->ranges, &s->capacity, s->count + 1, sizeof *s->ranges)) {
        s->failed = true;
        return;
    }
    s->ranges[s->count++] = (struct symbol_range){first, last};
}

void character_set_add(struct character_set *s, uint32_t first, uint32_t last)
{
    if (last > 0x10FFFF) last = 0x10FFFF;
    if (first >= 0xD800 && first <= 0xDFFF) first = 0xE000;
    if (last >= 0xD800 && last <= 0xDFFF) last = 0xD7FF;
    if (first <= last) add_symbols(s, symbol_of(first), symbol_of(last));
}

void character_set_add_set(struct character_set *s, const struct character_set *other)
{
    if (other->failed) s->failed = true;
    for (size_t i = 0; i < other->count; i++) add_symbols(s, other->ranges[i].first, other->ranges[i].last);
}

static int compare_ranges(const void *a, const void *b)
{
    const uint32_t x = ((const struct symbol_range *)a)->first, y = ((const struct symbol_range *)b)->first;
    return (x > y) - (x < y);
}

void character_set_sort(struct character_set *s)
{
    if (s->failed || s->count < 2) return;
    qsort(s->ranges, s->count, sizeof *s->ranges, compare_ranges);
    size_t last = 0;
    for (size_t i = 1; i < s->count; i++) {
        const struct symbol_range r = s->ranges[i];
        if (r.first > s->ranges[last].last + 1)
            s->ranges[++last] = r;
        else if (r.last > s->ranges[last].last)
            s->ranges[last].last = r.last;
    }
    s->count = last + 1;
}

void character_set_invert(struct character_set *s)
{
    struct character_set out = {.failed = s->failed};
    uint32_t next = 0;
    for (size_t i = 0; i < s->count && !s->failed; i++) {
        if (s->ranges[i].first > next) add_symbols(&out, next, s->ranges[i].first - 1);
        next = s->ranges[i].last + 1;
    }
    if (next < NUM_SYMBOLS) add_symbols(&out, next, NUM_SYMBOLS - 1);
    character_set_free(s);
    *s = out;
}

bool character_set_equal(const struct character_set *a, const struct character_set *b)
{
    return a->count == b->count && (a->count == 0 || memcmp(a->ranges, b->ranges, a->count * sizeof *a->ranges) == 0);
}

void character_set_add_cases(struct character_set *s)
{
    const size_t count = s->count;
    for (size_t i = 0; i < count && !s->failed; i++) {
        const struct symbol_range r = s->ranges[i];
        for (uint32_t symbol = r.first; symbol <= r.last && !s->failed; symbol++) {
            const utf8proc_int32_t c = (utf8proc_int32_t)symbol_character(symbol);
            const utf8proc_int32_t cases[] = {utf8proc_tolower(c), utf8proc_toupper(c), utf8proc_totitle(c)};
            for (int j = 0; j < 3; j++)
                if (cases[j] != c) character_set_add(s, (uint32_t)cases[j], (uint32_t)cases[j]);
        }
    }
}

/* The characters of Unicode, by whether those of a span are all of one class: private or not assigned. So a fifth of
 * them has to be looked at. */
static const struct span {
    uint32_t first, last;
    bool uniform;
} spans[] = {{0, 0xFFFF, false},       {0x10000, 0x1FFFF, false},  {0x20000, 0x2FFFF, false}, {0x30000, 0x33FFF, false},
             {0x34000, 0xDFFFF, true}, {0xE0000, 0xE0FFF, false},  {0xE1000, 0xEFFFF, true},  {0xF0000, 0xFFFFD, true},
             {0xFFFFE, 0xFFFFF, true}, {0x100000, 0x10FFFD, true}, {0x10FFFE, 0x10FFFF, true}};
enum { MAX_SPAN = 0x10000, NUM_SPANS = sizeof spans / sizeof *spans };

/* Adds the characters of the span that the expression matches. `text` has room for 4 * MAX_SPAN bytes. */
static enum status add_matches(struct character_set *s, const struct regexp *re, struct regexp_memory *memory,
                               const struct span *span, char *text, struct error *err)
{
    size_t length = 0, start = 0, end;
    for (uint32_t c = span->first; c <= (span->uniform ? span->first : span->last); c++)
        if (c < 0xD800 || c > 0xDFFF) length += utf8_write(c, text + length);
    struct regexp_search search = regexp_search(re, memory, text, length);
    for (;;) {
        const enum status status = regexp_next(&search, &start, &end, err);
        if (status) return status;
        if (start == SIZE_MAX) break;
        size_t at = start;
        const uint32_t first = utf8_next(text + at, &at);
        uint32_t last = first;
        while (at < end) last = utf8_next(text + at, &at);
        character_set_add(s, first, span->uniform ? span->last : last);
    }
    return s->failed ? error_set(err, STATUS_OUT_OF_MEMORY, "no memory for a class of characters") : STATUS_OK;
}

enum status character_set_add_property(struct character_set *s, const char *name, struct error *err)
{
    struct text pattern = {0};
    struct regexp *re = NULL;
    struct regexp_memory *memory = regexp_memory_new();
    char *text = malloc((size_t)4 * MAX_SPAN);
    enum status status = STATUS_OUT_OF_MEMORY;
    if (!memory || !text || !text_printf(&pattern, "\\p{%s}+", name)) {
        error_set(err, status, "no memory for the characters of \\p{%s}", name);
        goto done;
    }
    status = regexp_open(pattern.data, pattern.length, false, &re, err);
    if (status == STATUS_INVALID || status == STATUS_UNSUPPORTED)
        status = error_set(err, STATUS_UNSUPPORTED, "quire does not know \\p{%s}", name);
    for (size_t i = 0; i < NUM_SPANS && status == STATUS_OK; i++)
        status = add_matches(s, re, memory, &spans[i], text, err);
done:
    regexp_close(re);
    regexp_memory_free(memory);
    text_free(&pattern);
    free(text);
    return status;
}
