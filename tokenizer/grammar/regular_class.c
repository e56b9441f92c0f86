#include "tokenizer/grammar/regular_class.h"

#include <ctype.h>
#include <string.h>

#include "base/utf8.h"

void regular_line_ends(struct character_set *set)
{
    character_set_add(set, '\n', '\n');
    character_set_add(set, '\r', '\r');
    character_set_add(set, 0x2028, 0x2029);
}

/* ECMA-262's \d, \w and \s. */
static void add_class(struct character_set *set, char letter)
{
    static const struct symbol_range spaces[] = {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                                                 {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                                 {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    switch (letter) {
    case 'd':
        character_set_add(set, '0', '9');
        break;
    case 'w':
        character_set_add(set, '0', '9');
        character_set_add(set, 'A', 'Z');
        character_set_add(set, '_', '_');
        character_set_add(set, 'a', 'z');
        break;
    default:
        for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
            character_set_add(set, spaces[i].first, spaces[i].last);
    }
}

/* Adds `part`, or all other characters, and frees it. */
static void add_part(struct character_set *set, struct character_set *part, bool inverted)
{
    character_set_sort(part);
    if (inverted) character_set_invert(part);
    character_set_add_set(set, part);
    character_set_free(part);
}

/* Reads the name of \p{...} or \pL as unicode_classes.h spells it: lower case, and "greek" of "Script=Greek". */
static bool read_property(struct regular_parser *p, char *name, size_t size)
{
    size_t length = 0;
    if (!regular_take(p, "{")) {
        if (p->at == p->length) return false;
        name[length++] = (char)tolower((unsigned char)p->pattern[p->at++]);
    } else {
        static const char *const kinds[] = {"Script=", "sc=", "General_Category=", "gc="};
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            if (regular_take(p, kinds[i])) break;
        for (; p->at < p->length && p->pattern[p->at] != '}' && length + 1 < size; p->at++) {
            const char c = p->pattern[p->at];
            if (!isalnum((unsigned char)c) && c != '_' && c != ' ') return false;
            if (isalnum((unsigned char)c)) name[length++] = (char)tolower((unsigned char)c);
        }
        if (!regular_take(p, "}")) return false;
    }
    name[length] = '\0';
    return length > 0;
}

static enum regular_escape parse_property(struct regular_parser *p, size_t start, struct character_set *set)
{
    const bool inverted = p->pattern[p->at++] == 'P';
    struct character_set part = {0};
    char name[64];
    if (!read_property(p, name, sizeof name)) {
        regular_fail(p, STATUS_INVALID, start, "\\p must be followed by the name of a class, as in \\p{L}");
        return REGULAR_ESCAPE_FAILED;
    }
    struct error why = {""};
    const enum status status = character_set_add_property(&part, name, &why);
    if (status) regular_fail(p, status, start, why.text);
    add_part(set, &part, inverted);
    return status ? REGULAR_ESCAPE_FAILED : REGULAR_ESCAPE_SET;
}

/* Reads `count` hexadecimal digits, or with count 0 all up to "}". */
static bool parse_hex(struct regular_parser *p, int count, uint32_t *value)
{
    *value = 0;
    int digits = 0;
    for (; p->at < p->length && isxdigit((unsigned char)p->pattern[p->at]); p->at++, digits++) {
        if (count > 0 && digits == count) break;
        const char c = p->pattern[p->at];
        *value = *value * 16 + (uint32_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
        if (*value > 0x10FFFF) return false;
    }
    return count > 0 ? digits == count : digits > 0 && regular_take(p, "}");
}

/* Behind "\u" or "\x": a character, also as two halves of a surrogate pair. */
static bool parse_code(struct regular_parser *p, bool is_u, uint32_t *character)
{
    uint32_t second;
    if (regular_take(p, "{")) return parse_hex(p, 0, character);
    if (!parse_hex(p, is_u ? 4 : 2, character)) return false;
    if (*character < 0xD800 || *character > 0xDBFF) return true;
    if (!regular_take(p, "\\u") || !parse_hex(p, 4, &second) || second < 0xDC00 || second > 0xDFFF) return false;
    *character = 0x10000 + ((*character - 0xD800) << 10) + (second - 0xDC00);
    return true;
}

static enum regular_escape parse_character_escape(struct regular_parser *p, bool in_brackets, size_t start,
                                                  uint32_t *character)
{
    static const char letters[] = "tnrfvae0", values[] = "\t\n\r\f\v\a\x1b\0";
    const char letter = p->pattern[p->at];
    const char *known = letter ? strchr(letters, letter) : NULL;
    if (in_brackets && letter == 'b') {
        *character = '\b';
        p->at++;
    } else if (known && !(letter == '0' && p->at + 1 < p->length && isdigit((unsigned char)p->pattern[p->at + 1]))) {
        *character = (unsigned char)values[known - letters];
        p->at++;
    } else if (letter == 'u' || letter == 'x') {
        p->at++;
        if (!parse_code(p, letter == 'u', character))
            regular_fail(p, STATUS_INVALID, start, "\\u and \\x must be followed by the number of a character");
    } else if (isdigit((unsigned char)letter) || letter == 'k') {
        regular_fail(p, STATUS_UNSUPPORTED, start, "quire does not support back-references");
    } else if (letter == 'b' || letter == 'B') {
        regular_fail(p, STATUS_UNSUPPORTED, start, "quire does not support \\b and \\B, the bounds of words");
    } else if (isalpha((unsigned char)letter)) {
        regular_fail(p, STATUS_UNSUPPORTED, start, "quire does not know this escape");
    } else {
        *character = utf8_next(p->pattern + p->at, &p->at);
    }
    return p->status ? REGULAR_ESCAPE_FAILED : REGULAR_ESCAPE_CHARACTER;
}

enum regular_escape regular_parse_escape(struct regular_parser *p, bool in_brackets, uint32_t *character,
                                         struct character_set *set)
{
    const size_t start = p->at++;
    if (p->at == p->length) {
        regular_fail(p, STATUS_INVALID, start, "\\ must be followed by a character");
        return REGULAR_ESCAPE_FAILED;
    }
    const char letter = p->pattern[p->at];
    if (letter == 'p' || letter == 'P') return parse_property(p, start, set);
    if (!letter || !strchr("dDwWsS", letter)) return parse_character_escape(p, in_brackets, start, character);
    struct character_set part = {0};
    p->at++;
    add_class(&part, (char)tolower((unsigned char)letter));
    add_part(set, &part, isupper((unsigned char)letter));
    return REGULAR_ESCAPE_SET;
}

/* One character of a bracket expression, or the set of an escape. */
static enum regular_escape parse_member(struct regular_parser *p, uint32_t *character, struct character_set *set)
{
    if (regular_peek(p, "\\")) return regular_parse_escape(p, true, character, set);
    *character = utf8_next(p->pattern + p->at, &p->at);
    return REGULAR_ESCAPE_CHARACTER;
}

/* A member, or a range of characters: "-" is itself where it stands first or last, or beside a class. */
static void parse_range(struct regular_parser *p, struct character_set *set)
{
    const size_t start = p->at;
    uint32_t first, last;
    if (regular_peek(p, "[:")) regular_fail(p, STATUS_UNSUPPORTED, start, "quire does not support [:...:]");
    if (p->status || parse_member(p, &first, set) != REGULAR_ESCAPE_CHARACTER) return;
    character_set_add(set, first, first);
    if (!regular_peek(p, "-") || p->at + 1 == p->length || p->pattern[p->at + 1] == ']') return;
    p->at++;
    const enum regular_escape kind = parse_member(p, &last, set);
    if (kind == REGULAR_ESCAPE_SET)
        character_set_add(set, '-', '-');
    else if (kind == REGULAR_ESCAPE_CHARACTER && last < first)
        regular_fail(p, STATUS_INVALID, start, "a range of characters ends before it begins");
    else if (kind == REGULAR_ESCAPE_CHARACTER)
        character_set_add(set, first, last);
}

enum status regular_parse_brackets(struct regular_parser *p, struct character_set *set)
{
    const size_t start = p->at - 1;
    const bool inverted = regular_take(p, "^");
    while (!p->status && !regular_peek(p, "]")) {
        if (p->at == p->length) return regular_fail(p, STATUS_INVALID, start, "this [ has no ]");
        parse_range(p, set);
    }
    if (p->status) return p->status;
    p->at++;
    if (p->ignore_case) character_set_add_cases(set);
    character_set_sort(set);
    if (inverted) character_set_invert(set);
    return STATUS_OK;
}
