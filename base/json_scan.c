#include "base/json_scan.h"

#include <string.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static enum json_scan_result go(struct json_scan *s, enum json_scan_state state)
{
    s->state = state;
    return JSON_SCAN_MORE;
}

/* A string, a word, an object or an array has ended. */
static enum json_scan_result end_value(struct json_scan *s)
{
    s->state = JSON_SCAN_AFTER;
    return s->depth == 0 ? JSON_SCAN_END : JSON_SCAN_MORE;
}

static bool in_object(const struct json_scan *s)
{
    const int at = s->depth - 1;
    return s->is_object[at / 64] >> (at % 64) & 1;
}

static enum json_scan_result open_container(struct json_scan *s, bool is_object)
{
    if (s->depth == JSON_SCAN_MAX_DEPTH) return JSON_SCAN_WRONG;
    const uint64_t bit = (uint64_t)1 << (s->depth % 64);
    uint64_t *bits = &s->is_object[s->depth / 64];
    *bits = is_object ? *bits | bit : *bits & ~bit;
    s->depth++;
    return go(s, is_object ? JSON_SCAN_FIRST_KEY : JSON_SCAN_FIRST);
}

static enum json_scan_result close_container(struct json_scan *s, char c)
{
    if (s->depth == 0 || in_object(s) != (c == '}')) return JSON_SCAN_WRONG;
    s->depth--;
    return end_value(s);
}

static enum json_scan_result begin_word(struct json_scan *s, const char *rest)
{
    s->word = rest;
    return go(s, JSON_SCAN_WORD);
}

static enum json_scan_result begin_string(struct json_scan *s, bool is_key)
{
    s->is_key = is_key;
    return go(s, JSON_SCAN_STRING);
}

static enum json_scan_result begin_value(struct json_scan *s, char c)
{
    switch (c) {
    case '{':
        return open_container(s, true);
    case '[':
        return open_container(s, false);
    case '"':
        return begin_string(s, false);
    case '-':
        return go(s, JSON_SCAN_MINUS);
    case '0':
        return go(s, JSON_SCAN_ZERO);
    case 't':
        return begin_word(s, "rue");
    case 'f':
        return begin_word(s, "alse");
    case 'n':
        return begin_word(s, "ull");
    default:
        return is_digit(c) ? go(s, JSON_SCAN_DIGITS) : JSON_SCAN_WRONG;
    }
}

/* Between values. */
static enum json_scan_result add_between(struct json_scan *s, char c)
{
    if (json_is_blank(c)) return JSON_SCAN_MORE;
    switch (s->state) {
    case JSON_SCAN_FIRST:
        return c == ']' ? close_container(s, c) : begin_value(s, c);
    case JSON_SCAN_FIRST_KEY:
        if (c == '}') return close_container(s, c);
        /* fall through */
    case JSON_SCAN_KEY:
        return c == '"' ? begin_string(s, true) : JSON_SCAN_WRONG;
    case JSON_SCAN_COLON:
        return c == ':' ? go(s, JSON_SCAN_VALUE) : JSON_SCAN_WRONG;
    case JSON_SCAN_AFTER:
        if (c == ',' && s->depth > 0) return go(s, in_object(s) ? JSON_SCAN_KEY : JSON_SCAN_VALUE);
        return c == '}' || c == ']' ? close_container(s, c) : JSON_SCAN_WRONG;
    default:
        return begin_value(s, c);
    }
}

/* Inside a string. */
static enum json_scan_result add_to_string(struct json_scan *s, char c)
{
    switch (s->state) {
    case JSON_SCAN_ESCAPE:
        if (c == 'u') s->hex_digits = 4;
        if (c == '\0' || !strchr("\"\\/bfnrtu", c)) return JSON_SCAN_WRONG;
        return go(s, c == 'u' ? JSON_SCAN_HEX : JSON_SCAN_STRING);
    case JSON_SCAN_HEX:
        if (!is_digit(c) && !(c >= 'a' && c <= 'f') && !(c >= 'A' && c <= 'F')) return JSON_SCAN_WRONG;
        return --s->hex_digits ? JSON_SCAN_MORE : go(s, JSON_SCAN_STRING);
    default:
        if (c == '"') return s->is_key ? go(s, JSON_SCAN_COLON) : end_value(s);
        if (c == '\\') return go(s, JSON_SCAN_ESCAPE);
        return (unsigned char)c < 0x20 ? JSON_SCAN_WRONG : JSON_SCAN_MORE;
    }
}

/* What follows the number is looked at as what follows a value. */
static enum json_scan_result end_number(struct json_scan *s, char c)
{
    s->state = JSON_SCAN_AFTER;
    return add_between(s, c);
}

static enum json_scan_result add_to_number(struct json_scan *s, char c)
{
    const bool digit = is_digit(c), exponent = c == 'e' || c == 'E';
    switch (s->state) {
    case JSON_SCAN_MINUS:
        return !digit ? JSON_SCAN_WRONG : go(s, c == '0' ? JSON_SCAN_ZERO : JSON_SCAN_DIGITS);
    case JSON_SCAN_POINT:
        return digit ? go(s, JSON_SCAN_FRACTION) : JSON_SCAN_WRONG;
    case JSON_SCAN_EXPONENT:
        if (c == '+' || c == '-') return go(s, JSON_SCAN_SIGN);
        /* fall through */
    case JSON_SCAN_SIGN:
        return digit ? go(s, JSON_SCAN_POWER) : JSON_SCAN_WRONG;
    case JSON_SCAN_POWER:
        return digit ? JSON_SCAN_MORE : end_number(s, c);
    case JSON_SCAN_FRACTION:
        if (digit) return JSON_SCAN_MORE;
        break;
    default: /* ZERO and DIGITS */
        if (digit) return s->state == JSON_SCAN_ZERO ? JSON_SCAN_WRONG : JSON_SCAN_MORE;
        if (c == '.') return go(s, JSON_SCAN_POINT);
    }
    return exponent ? go(s, JSON_SCAN_EXPONENT) : end_number(s, c);
}

enum json_scan_result json_scan_add(struct json_scan *s, char byte)
{
    if (s->state == JSON_SCAN_WORD) {
        if (byte != *s->word) return JSON_SCAN_WRONG;
        s->word++;
        return *s->word ? JSON_SCAN_MORE : end_value(s);
    }
    if (s->state < JSON_SCAN_STRING) return add_between(s, byte);
    return s->state <= JSON_SCAN_HEX ? add_to_string(s, byte) : add_to_number(s, byte);
}

bool json_scan_whole(const char *text, size_t length)
{
    struct json_scan s = {0};
    for (size_t i = 0; i < length; i++)
        if (json_scan_add(&s, text[i]) == JSON_SCAN_WRONG) return false;
    const bool number = s.state == JSON_SCAN_ZERO || s.state == JSON_SCAN_DIGITS || s.state == JSON_SCAN_FRACTION ||
                        s.state == JSON_SCAN_POWER;
    return s.depth == 0 && (number || s.state == JSON_SCAN_AFTER);
}
