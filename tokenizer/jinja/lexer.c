#include "tokenizer/jinja/lexer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/jinja/characters.h"

/* --- the source --- */

/* Newlines become \n, and one at the end is dropped. */
void jinja_lexer_begin(struct jinja_lexer *l, struct jinja_run *run, const char *source, size_t length)
{
    *l = (struct jinja_lexer){.run = run, .line = 1, .column = 1, .line_starting = true};
    l->source = jinja_alloc(run, length + 1);
    if (!l->source) return;
    for (size_t i = 0; i < length; i++) {
        const bool after_return = i > 0 && source[i - 1] == '\r';
        if (source[i] == '\n' && after_return) continue;
        l->source[l->length++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (l->length > 0 && l->source[l->length - 1] == '\n') l->length--;
    l->source[l->length] = '\0';
}

/* The line and column of a byte; asked for in ascending order, so that each byte is counted once. */
static void place_at(struct jinja_lexer *l, size_t offset)
{
    for (; l->counted < offset; l->counted++) {
        const char byte = l->source[l->counted];
        if (byte == '\n') {
            l->line++;
            l->column = 1;
        } else if ((byte & 0xC0) != 0x80) {
            l->column++;
        }
    }
    l->run->line = l->line;
    l->run->column = l->column;
}

static struct jinja_token token_at(struct jinja_lexer *l, enum jinja_token_kind kind, size_t from, size_t to)
{
    place_at(l, from);
    l->at = to;
    return (struct jinja_token){
        .kind = kind, .line = l->line, .column = l->column, .text = l->source + from, .length = to - from};
}

static bool looking_at(const struct jinja_lexer *l, size_t at, const char *text)
{
    const size_t n = strlen(text);
    return l->length - at >= n && memcmp(l->source + at, text, n) == 0;
}

static size_t skip_space(const struct jinja_lexer *l, size_t at)
{
    while (at < l->length) {
        size_t next = at;
        if (!character_is_space(utf8_next(l->source + next, &next))) break;
        at = next;
    }
    return at;
}

/* --- text and the tags in it --- */

/* The end of from .. to without the white space there. */
static size_t strip_end(const struct jinja_lexer *l, size_t from, size_t to)
{
    while (to > from) {
        size_t start = to - 1;
        while (start > from && (l->source[start] & 0xC0) == 0x80) start--;
        size_t next = start;
        if (!character_is_space(utf8_next(l->source + next, &next))) break;
        to = start;
    }
    return to;
}

/* The end of the text from .. to before a tag that has this sign: what - and lstrip_blocks leave of it. */
static size_t text_end(const struct jinja_lexer *l, size_t from, size_t to, char sign, bool is_print)
{
    if (sign == '-') return strip_end(l, from, to);
    if (sign == '+' || is_print) return to;
    size_t line = to;
    while (line > from && l->source[line - 1] != '\n') line--;
    const bool starts_line = line > from || l->line_starting;
    return starts_line && strip_end(l, line, to) == line ? line : to;
}

static char sign_at(const struct jinja_lexer *l, size_t at)
{
    const char c = at < l->length ? l->source[at] : '\0';
    return c == '-' || c == '+' ? c : '\0';
}

/* If a tag ends at `at` ("%}" or "#}" with its sign): the byte behind it and the white space that it takes; otherwise
 * 0. */
static size_t tag_end(const struct jinja_lexer *l, size_t at, const char *end)
{
    const char sign = sign_at(l, at);
    if (!looking_at(l, at + (sign != 0), end)) return 0;
    at += (sign != 0) + strlen(end);
    if (sign == '-') return skip_space(l, at);
    if (!sign && looking_at(l, at, "\n")) at++;
    return at;
}

/* If "{% WORD" stands at `at`: the byte behind it and its white space; otherwise 0. */
static size_t word_tag(const struct jinja_lexer *l, size_t at, const char *word)
{
    if (!looking_at(l, at, "{%")) return 0;
    at += 2;
    at = skip_space(l, at + (sign_at(l, at) != 0));
    return looking_at(l, at, word) ? skip_space(l, at + strlen(word)) : 0;
}

/* If "{% raw %}" stands at `at`: where its text begins; otherwise 0. */
static size_t raw_begin(const struct jinja_lexer *l, size_t at)
{
    const size_t end = word_tag(l, at, "raw");
    if (!end) return 0;
    if (looking_at(l, end, "-%}")) return skip_space(l, end + 3);
    return looking_at(l, end, "%}") ? end + 2 : 0;
}

static void set_behind_tag(struct jinja_lexer *l, size_t at)
{
    l->line_starting = l->source[at - 1] == '\n';
    l->at = at;
}

/* The text of a raw block that begins at `from`. */
static struct jinja_token raw_text(struct jinja_lexer *l, size_t from)
{
    set_behind_tag(l, from);
    for (size_t at = from; at < l->length; at++) {
        const size_t word = word_tag(l, at, "endraw"), end = word ? tag_end(l, word, "%}") : 0;
        if (!end) continue;
        struct jinja_token data = token_at(l, JINJA_TOKEN_DATA, from, text_end(l, from, at, sign_at(l, at + 2), false));
        set_behind_tag(l, end);
        return data;
    }
    /* jinja2's lexer stops at the end of the source before it looks for the end of the block. */
    if (from < l->length) jinja_fail(l->run, "{%% raw %%} has no {%% endraw %%}");
    return (struct jinja_token){JINJA_TOKEN_END};
}

static void skip_comment(struct jinja_lexer *l, size_t start)
{
    for (size_t at = start; at + 1 < l->length; at++) {
        const size_t end = tag_end(l, at, "#}");
        if (!end) continue;
        set_behind_tag(l, end);
        return;
    }
    jinja_fail(l->run, "this comment has no end; write #}");
}

static size_t find_tag(const struct jinja_lexer *l)
{
    for (size_t at = l->at; at + 1 < l->length; at++)
        if (l->source[at] == '{' && strchr("%{#", l->source[at + 1]) && l->source[at + 1]) return at;
    return l->length;
}

static struct jinja_token next_outside(struct jinja_lexer *l)
{
    while (!jinja_failed(l->run)) {
        const size_t from = l->at, tag = find_tag(l);
        if (tag == l->length) return token_at(l, tag > from ? JINJA_TOKEN_DATA : JINJA_TOKEN_END, from, tag);
        const char kind = l->source[tag + 1], sign = sign_at(l, tag + 2);
        const size_t end = text_end(l, from, tag, sign, kind == '{');
        if (end > from) {
            struct jinja_token data = token_at(l, JINJA_TOKEN_DATA, from, end);
            l->at = tag;
            return data;
        }
        place_at(l, tag);
        const size_t raw = raw_begin(l, tag), behind = tag + 2 + (sign != 0);
        if (raw) {
            struct jinja_token data = raw_text(l, raw);
            if (data.length > 0) return data;
        } else if (kind == '#') {
            skip_comment(l, behind);
        } else {
            l->line_starting = false;
            l->state = kind == '{' ? JINJA_LEX_PRINT : JINJA_LEX_BLOCK;
            return token_at(l, kind == '{' ? JINJA_TOKEN_PRINT_BEGIN : JINJA_TOKEN_BLOCK_BEGIN, tag, behind);
        }
    }
    return (struct jinja_token){JINJA_TOKEN_END};
}

/* --- inside a tag: numbers --- */

static bool is_digit(char c, int base)
{
    if (base == 16) return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'f');
    return c >= '0' && c < '0' + base;
}

/* The end of digits with single underscores between them. `at`: the first may be one, as in 0x_1. */
static size_t skip_digits(const struct jinja_lexer *l, size_t at, int base)
{
    for (;;) {
        const size_t digit = at + (l->source[at] == '_');
        if (!is_digit(l->source[digit], base)) return at;
        at = digit + 1;
    }
}

/* The end of the float at `from`; `from` if what stands there is none. */
static size_t float_end(const struct jinja_lexer *l, size_t from)
{
    if (from > 0 && l->source[from - 1] == '.') return from;
    const char *s = l->source;
    size_t at = skip_digits(l, from, 10);
    bool found = false;
    if (s[at] == '.' && is_digit(s[at + 1], 10)) {
        at = skip_digits(l, at + 1, 10);
        found = true;
    }
    if ((s[at] | 32) == 'e') {
        const size_t digits = at + 1 + (s[at + 1] == '+' || s[at + 1] == '-');
        if (is_digit(s[digits], 10)) {
            at = skip_digits(l, digits, 10);
            found = true;
        }
    }
    return found ? at : from;
}

static size_t integer_end(const struct jinja_lexer *l, size_t from, int *base)
{
    const char *s = l->source;
    const char letter = s[from] == '0' ? s[from + 1] | 32 : '\0';
    *base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    if (*base != 10) {
        const size_t end = skip_digits(l, from + 2, *base);
        if (end > from + 2) return end;
        *base = 10;
    }
    /* After a zero only zeros: 07 is two numbers. */
    return skip_digits(l, from + 1, s[from] == '0' ? 1 : 10);
}

static struct jinja_token number(struct jinja_lexer *l)
{
    const size_t from = l->at;
    size_t end = float_end(l, from);
    const bool is_float = end > from;
    int base = 10;
    if (!is_float) end = integer_end(l, from, &base);
    struct jinja_token token = token_at(l, is_float ? JINJA_TOKEN_FLOAT : JINJA_TOKEN_INTEGER, from, end);
    char *digits = jinja_alloc(l->run, token.length + 1);
    if (!digits) return token;
    size_t n = 0;
    for (size_t i = base == 10 ? 0 : 2; i < token.length; i++)
        if (token.text[i] != '_') digits[n++] = token.text[i];
    errno = 0;
    if (is_float)
        token.value = jinja_float(strtod(digits, NULL));
    else
        token.value = jinja_int(strtoll(digits, NULL, base));
    if (!is_float && errno == ERANGE) jinja_fail(l->run, "the integer %s is too large: 64 bits do not hold it", digits);
    return token;
}

/* --- inside a tag: strings --- */

/* The value of `count` digits at *at of text[length], which it moves behind them; -1 if there are fewer. */
static int64_t take_digits(const char *text, size_t length, size_t *at, size_t count, int base)
{
    char digits[9] = {0};
    for (size_t i = 0; i < count; i++) {
        if (*at + i >= length || !is_digit(text[*at + i], base)) return -1;
        digits[i] = text[*at + i];
    }
    *at += count;
    return strtoll(digits, NULL, base);
}

/* A backslash before a character that is not ASCII: jinja2 reads the character as an escape, and leaves that. */
static size_t escape_character(const char *text, size_t *at, char *out)
{
    const uint32_t c = utf8_next(text + *at, at);
    char escape[11];
    const size_t n = character_escape(c, escape);
    memcpy(out, escape, n);
    return n;
}

/* The escape at text[*at], behind its backslash, as Python's unicode_escape reads it: writes what it stands for to out,
 * moves *at behind it, and returns the number of bytes: at most twice as many as it has. */
static size_t unescape(struct jinja_lexer *l, const char *text, size_t length, size_t *at, char *out)
{
    static const char simple[] = "\\'\"abfnrtv", meaning[] = "\\'\"\a\b\f\n\r\t\v";
    const char c = text[*at];
    const char *found = c ? strchr(simple, c) : NULL;
    if (c == '\n' || found) {
        ++*at;
        if (found) *out = meaning[found - simple];
        return found != NULL;
    }
    int64_t code = -1;
    if (is_digit(c, 8)) {
        size_t count = 1;
        while (count < 3 && *at + count < length && is_digit(text[*at + count], 8)) count++;
        code = take_digits(text, length, at, count, 8);
    } else if (c == 'x' || c == 'u' || c == 'U') {
        ++*at;
        code = take_digits(text, length, at, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16);
    } else if (c & 0x80) {
        return escape_character(text, at, out);
    } else if (c != 'N') {
        *out = '\\'; /* no escape: the backslash stays */
        return 1;
    }
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
        jinja_fail(l->run, "\\%c in this string does not stand for a character; write \\xhh, \\uhhhh or \\Uhhhhhhhh",
                   c);
        return 0;
    }
    return utf8_write((uint32_t)code, out);
}

/* The string between quotes: text[length]. */
static struct jinja_value string_value(struct jinja_lexer *l, const char *text, size_t length)
{
    if (!memchr(text, '\\', length)) return jinja_string_of(l->run, text, length, false);
    char *bytes = jinja_alloc(l->run, 2 * length);
    size_t n = 0;
    for (size_t at = 0; bytes && at < length && !jinja_failed(l->run);) {
        if (text[at] == '\\') {
            at++;
            n += unescape(l, text, length, &at, bytes + n);
        } else {
            bytes[n++] = text[at++];
        }
    }
    return jinja_failed(l->run) ? jinja_none() : jinja_string_of(l->run, bytes, n, false);
}

static struct jinja_token string(struct jinja_lexer *l)
{
    const size_t from = l->at;
    size_t end = from + 1;
    while (end < l->length && l->source[end] != l->source[from]) end += l->source[end] == '\\' ? 2 : 1;
    struct jinja_token token = token_at(l, JINJA_TOKEN_STRING, from, end < l->length ? end + 1 : l->length);
    if (end >= l->length)
        jinja_fail(l->run, "this string has no closing quote");
    else
        token.value = string_value(l, l->source + from + 1, end - from - 1);
    return token;
}

/* --- inside a tag: the rest --- */

static struct jinja_token name(struct jinja_lexer *l)
{
    const size_t from = l->at;
    size_t end = from;
    bool valid = true;
    for (size_t next = from; next < l->length; end = next) {
        const uint32_t c = utf8_next(l->source + next, &next);
        if (!character_is_word(c) && !character_continues_identifier(c)) break;
        valid = valid && (end == from ? character_starts_identifier(c) : character_continues_identifier(c));
    }
    struct jinja_token token = token_at(l, JINJA_TOKEN_NAME, from, end);
    if (!valid) jinja_fail(l->run, "\"%.*s\" is not a name", (int)token.length, token.text);
    return token;
}

/* Brackets are counted, because an end of the tag counts only outside of them. */
static void count_bracket(struct jinja_lexer *l, char c)
{
    const char closing = c == '(' ? ')' : c == '[' ? ']' : c == '{' ? '}' : '\0';
    if (closing && l->open == JINJA_MAX_DEPTH)
        jinja_fail(l->run, "brackets are nested more than %d deep", JINJA_MAX_DEPTH);
    else if (closing)
        l->closing[l->open++] = closing;
    else if (l->open == 0)
        jinja_fail(l->run, "unexpected '%c'", c);
    else if (l->closing[--l->open] != c)
        jinja_fail(l->run, "unexpected '%c', expected '%c'", c, l->closing[l->open]);
}

static struct jinja_token operator_token(struct jinja_lexer *l)
{
    static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                            "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (!looking_at(l, l->at, operators[i])) continue;
        const struct jinja_token token = token_at(l, JINJA_TOKEN_OPERATOR, l->at, l->at + strlen(operators[i]));
        if (strchr("()[]{}", *token.text)) count_bracket(l, *token.text);
        return token;
    }
    size_t end = l->at;
    utf8_next(l->source + end, &end);
    place_at(l, l->at);
    jinja_fail(l->run, "unexpected character '%.*s'", (int)(end - l->at), l->source + l->at);
    return (struct jinja_token){JINJA_TOKEN_END};
}

/* If the tag ends here: the byte behind its end; otherwise 0. */
static size_t end_of_this_tag(const struct jinja_lexer *l)
{
    if (l->open > 0) return 0;
    if (l->state == JINJA_LEX_BLOCK) return tag_end(l, l->at, "%}");
    if (looking_at(l, l->at, "-}}")) return skip_space(l, l->at + 3);
    return looking_at(l, l->at, "}}") ? l->at + 2 : 0;
}

static struct jinja_token next_inside(struct jinja_lexer *l)
{
    l->at = skip_space(l, l->at);
    if (l->at >= l->length) return token_at(l, JINJA_TOKEN_END, l->length, l->length);
    const size_t end = end_of_this_tag(l);
    if (end) {
        const bool block = l->state == JINJA_LEX_BLOCK;
        const struct jinja_token token = token_at(l, block ? JINJA_TOKEN_BLOCK_END : JINJA_TOKEN_PRINT_END, l->at, end);
        l->state = JINJA_LEX_DATA;
        set_behind_tag(l, end);
        return token;
    }
    size_t next = l->at;
    const uint32_t c = utf8_next(l->source + next, &next);
    if (c >= '0' && c <= '9') return number(l);
    if (c == '"' || c == '\'') return string(l);
    return character_is_word(c) ? name(l) : operator_token(l);
}

struct jinja_token jinja_lexer_next(struct jinja_lexer *l)
{
    struct jinja_token token = {JINJA_TOKEN_END};
    if (!jinja_tick(l->run)) return token;
    token = l->state == JINJA_LEX_DATA ? next_outside(l) : next_inside(l);
    if (jinja_failed(l->run)) token.kind = JINJA_TOKEN_END;
    return token;
}
