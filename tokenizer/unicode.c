#include "tokenizer/unicode.h"

#include <utf8proc.h>

struct range {
    uint32_t first, last;
};
#include "tokenizer/unicode_tables.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static bool in_ranges(const struct range *ranges, size_t count, uint32_t c)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (c > ranges[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && c >= ranges[low].first;
}

bool unicode_is_white_space(uint32_t c)
{
    if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

bool unicode_is_numeric(uint32_t c)
{
    if (c < 0x80) return c >= '0' && c <= '9';
    return in_ranges(numeric_ranges, COUNT(numeric_ranges), c);
}

bool unicode_is_punctuation(uint32_t c)
{
    return in_ranges(punctuation_ranges, COUNT(punctuation_ranges), c);
}

bool unicode_is_mark(uint32_t c)
{
    return c >= 0x300 && in_ranges(mark_ranges, COUNT(mark_ranges), c);
}

bool unicode_is_newer_than_normal_forms(uint32_t c)
{
    return in_ranges(newer_ranges, COUNT(newer_ranges), c);
}

/* Capital letters of Unicode 15 to 17, which utf8proc may not know. */
static const struct {
    uint32_t first, last, step;
    int32_t to_lower;
} new_capitals[] = {
    {0x1C89, 0x1C89, 1, 1},      {0xA7CB, 0xA7CB, 1, 0x264 - 0xA7CB},
    {0xA7CC, 0xA7DA, 2, 1},      {0xA7DC, 0xA7DC, 1, 0x19B - 0xA7DC},
    {0x10D50, 0x10D65, 1, 0x20}, {0x16EA0, 0x16EB8, 1, 0x1B},
};

int unicode_lower(uint32_t c, uint32_t lower[2])
{
    lower[0] = c;
    if (c < 0x80) {
        if (c >= 'A' && c <= 'Z') lower[0] = c + ('a' - 'A');
        return 1;
    }
    if (c == 0x130) { /* the only one with two: i and a dot above */
        lower[0] = 'i';
        lower[1] = 0x307;
        return 2;
    }
    for (size_t i = 0; i < COUNT(new_capitals); i++) {
        if (c < new_capitals[i].first || c > new_capitals[i].last) continue;
        if ((c - new_capitals[i].first) % new_capitals[i].step == 0)
            lower[0] = (uint32_t)((int32_t)c + new_capitals[i].to_lower);
        return 1;
    }
    lower[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
    return 1;
}
