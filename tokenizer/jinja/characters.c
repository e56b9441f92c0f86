#include "tokenizer/jinja/characters.h"

#include <stdio.h>
#include <utf8proc.h>

#include "tokenizer/jinja/character_tables.h"

size_t character_escape(uint32_t c, char out[11])
{
    return (size_t)sprintf(out, c <= 0xFF ? "\\x%02x" : c <= 0xFFFF ? "\\u%04x" : "\\U%08x", (unsigned)c);
}

size_t character_count(const char *bytes, size_t length)
{
    size_t count = 0;
    for (size_t i = 0; i < length; i++) count += ((unsigned char)bytes[i] & 0xC0) != 0x80;
    return count;
}

static utf8proc_category_t category(uint32_t c)
{
    return utf8proc_category((utf8proc_int32_t)c);
}

static bool in_ranges(uint32_t c, const struct character_range *ranges, size_t count)
{
    for (size_t i = 0; i < count && ranges[i].first <= c; i++) {
        if (c <= ranges[i].last) return true;
    }
    return false;
}
#define IN_RANGES(c, ranges) in_ranges(c, ranges, sizeof(ranges) / sizeof((ranges)[0]))

bool character_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 ||
           (c > 0x85 && category(c) == UTF8PROC_CATEGORY_ZS) || c == 0x2028 || c == 0x2029;
}

bool character_is_line_end(uint32_t c)
{
    return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool character_is_alpha(uint32_t c)
{
    utf8proc_category_t k = category(c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool character_is_decimal(uint32_t c)
{
    return category(c) == UTF8PROC_CATEGORY_ND;
}

bool character_is_digit(uint32_t c)
{
    return character_is_decimal(c) || IN_RANGES(c, other_digits);
}

bool character_is_numeric(uint32_t c)
{
    utf8proc_category_t k = category(c);
    return (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO) || IN_RANGES(c, other_numeric);
}

bool character_is_alnum(uint32_t c)
{
    return character_is_alpha(c) || character_is_numeric(c);
}

bool character_is_lower(uint32_t c)
{
    return category(c) == UTF8PROC_CATEGORY_LL || IN_RANGES(c, other_lower);
}

bool character_is_upper(uint32_t c)
{
    return category(c) == UTF8PROC_CATEGORY_LU || IN_RANGES(c, other_upper);
}

bool character_is_cased(uint32_t c)
{
    return character_is_lower(c) || character_is_upper(c) || category(c) == UTF8PROC_CATEGORY_LT;
}

bool character_is_case_ignorable(uint32_t c)
{
    switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default: /* and what may stand within a word (Word_Break MidLetter, MidNumLet, Single_Quote) */
        return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x387 || c == 0x55F || c == 0x5F4 ||
               c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027 || c == 0xFE13 || c == 0xFE52 || c == 0xFE55 ||
               c == 0xFF07 || c == 0xFF0E || c == 0xFF1A;
    }
}

bool character_is_printable(uint32_t c)
{
    if (c == ' ') return true;
    utf8proc_category_t k = category(c);
    return k != UTF8PROC_CATEGORY_CN && k < UTF8PROC_CATEGORY_ZS;
}

bool character_is_word(uint32_t c)
{
    return c == '_' || character_is_alnum(c);
}

bool character_starts_identifier(uint32_t c)
{
    return c == '_' || character_is_alpha(c) || category(c) == UTF8PROC_CATEGORY_NL;
}

bool character_continues_identifier(uint32_t c)
{
    utf8proc_category_t k = category(c);
    return character_starts_identifier(c) || k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_MN ||
           k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_PC || c == 0xB7;
}

static int fold(uint32_t c, uint32_t out[3])
{
    utf8proc_int32_t folded[4];
    int boundary = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)c, folded, 4, UTF8PROC_CASEFOLD, &boundary);
    if (n < 1 || n > 3) {
        out[0] = c;
        return 1;
    }
    for (int i = 0; i < (int)n; i++) out[i] = (uint32_t)folded[i];
    return (int)n;
}

/* A letter whose folding is several characters becomes the capitals of these; in title case, if it has no such letter
 * of its own, it becomes a capital and the rest, where a small iota is written below: "ss" and "SS", "Ss". */
static int to_upper_or_title(uint32_t c, bool title, uint32_t out[3])
{
    enum { SHARP_S = 0xDF, N_AFTER_APOSTROPHE = 0x149, SMALL_IOTA = 0x3B9, IOTA_BELOW = 0x345 };
    const uint32_t simple =
        (uint32_t)(title ? utf8proc_totitle((utf8proc_int32_t)c) : utf8proc_toupper((utf8proc_int32_t)c));
    const bool has_title = c != SHARP_S && (simple != c || category(c) == UTF8PROC_CATEGORY_LT);
    const int n = fold(c, out);
    if (n == 1 || category(c) == UTF8PROC_CATEGORY_LU || (title && has_title)) {
        out[0] = simple;
        return 1;
    }
    for (int i = 0; i < n; i++) {
        if (!title || i == 0 || c == N_AFTER_APOSTROPHE)
            out[i] = (uint32_t)utf8proc_toupper((utf8proc_int32_t)out[i]);
        else if (out[i] == SMALL_IOTA)
            out[i] = IOTA_BELOW;
    }
    return n;
}

int character_to_case(uint32_t c, enum character_case wanted, uint32_t out[3])
{
    if (c < 0x80) {
        bool lower = wanted == CHARACTER_LOWER || wanted == CHARACTER_FOLD;
        out[0] = lower ? c + (c >= 'A' && c <= 'Z' ? 32 : 0) : c - (c >= 'a' && c <= 'z' ? 32 : 0);
        return 1;
    }
    if (wanted == CHARACTER_FOLD) return fold(c, out);
    if (wanted == CHARACTER_LOWER) {
        out[0] = c == 0x130 ? 'i' : (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
        out[1] = 0x307;
        return c == 0x130 ? 2 : 1;
    }
    return to_upper_or_title(c, wanted == CHARACTER_TITLE, out);
}
