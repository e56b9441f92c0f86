#include "base/json_parse.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/json_value.h"
#include "base/utf8.h"

enum { MAX_DEPTH = 2048 }; /* jansson's: its functions call themselves for each level of a value */

struct parser {
    const char *begin, *at, *end;
    size_t flags;
    int depth;
    struct text number; /* the last one that strtod read */
    bool failed;
    const char *where; /* it failed; NULL: memory ran out */
    char why[192];
};

static json_t *parse_value(struct parser *p);

/* ---- failures ---- */

static json_t *fail(struct parser *p, const char *where, const char *format, ...) __attribute__((format(printf, 3, 4)));
static json_t *fail(struct parser *p, const char *where, const char *format, ...)
{
    va_list args;
    if (p->failed) return NULL;
    p->failed = true;
    p->where = where;
    va_start(args, format);
    vsnprintf(p->why, sizeof p->why, format, args);
    va_end(args);
    return NULL;
}

static json_t *no_memory(struct parser *p)
{
    return fail(p, NULL, "out of host memory while reading JSON");
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '+' ||
           c == '.' || c == '_';
}

/* What stands at p->at, a word or a character, is not what was expected. */
static json_t *unexpected(struct parser *p, const char *expected)
{
    const size_t left = (size_t)(p->end - p->at);
    size_t length = 0;
    if (left == 0) return fail(p, p->at, "expected %s, but the text ends; is it cut short?", expected);
    while (length < left && length < 40 && is_word(p->at[length])) length++;
    const int character = length ? (int)length : utf8_length(p->at, left);
    if (character <= 0) return fail(p, p->at, "expected %s, found a byte that is not UTF-8", expected);
    return fail(p, p->at, "expected %s, found '%s'", expected, show_text(p->at, (size_t)character).text);
}

size_t json_leading_blanks(const char *text, size_t length)
{
    size_t n = 0;
    while (n < length && (text[n] == ' ' || text[n] == '\n' || text[n] == '\t' || text[n] == '\r')) n++;
    return n;
}

static void skip_blanks(struct parser *p)
{
    p->at += json_leading_blanks(p->at, (size_t)(p->end - p->at));
}

/* Whether the next character is c, which is then passed. */
static bool take(struct parser *p, char c)
{
    if (p->at == p->end || *p->at != c) return false;
    p->at++;
    return true;
}

/* ---- strings ---- */

struct string {
    const char *bytes; /* [length], in the text or in `resolved` */
    size_t length;
    struct text resolved; /* if the string has escapes */
};

static bool read_hex(struct parser *p, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++) {
        const char c = p->end - p->at > i ? p->at[i] : '\0';
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) return false;
        *out = *out << 4 | (uint32_t)digit;
    }
    p->at += 4;
    return true;
}

/* The character of \uXXXX, whose digits are at p->at. A half of a surrogate pair that has no other half stays one. */
static bool read_code(struct parser *p, uint32_t *out)
{
    uint32_t low;
    if (!read_hex(p, out)) return false;
    if ((*out & 0xFC00) != 0xD800 || p->end - p->at < 6 || p->at[0] != '\\' || p->at[1] != 'u') return true;
    const char *const next = p->at;
    p->at += 2;
    if (read_hex(p, &low) && (low & 0xFC00) == 0xDC00)
        *out = 0x10000 + ((*out & 0x3FF) << 10 | (low & 0x3FF));
    else
        p->at = next;
    return true;
}

/* The escape whose backslash is at p->at. A key has no NUL in it, because keys are C strings to those who look for
 * them: U+0000 gets the two bytes that UTF-8 would give it if it had them to give. */
static bool read_escape(struct parser *p, bool is_key, struct text *out)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char *const start = p->at++;
    const char c = p->at < p->end ? *p->at : '\0';
    const char *const letter = c ? strchr(letters, c) : NULL;
    char bytes[4];
    size_t count = 1;
    uint32_t character;
    p->at += c != '\0';
    if (letter) {
        bytes[0] = meanings[letter - letters];
    } else {
        if (c != 'u' || !read_code(p, &character))
            return fail(p, start, "an escape is \\uXXXX or one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t");
        count = utf8_write(character, bytes);
        if (is_key && character == 0) return text_append(out, "\xc0\x80", 2) || no_memory(p);
    }
    return text_append(out, bytes, count) || no_memory(p);
}

/* The characters from p->at to the next quote or backslash. */
static bool read_plain(struct parser *p)
{
    while (p->at < p->end && *p->at != '"' && *p->at != '\\') {
        const unsigned char c = (unsigned char)*p->at;
        const int length = c < 0x80 ? 1 : utf8_length(p->at, (size_t)(p->end - p->at));
        if (c < 0x20) return fail(p, p->at, "a control character in a string; write it as \\u%04x", c);
        if (length <= 0) return fail(p, p->at, "a byte that is not UTF-8");
        p->at += length;
    }
    return true;
}

/* The string whose opening quote is at p->at. Free out->resolved either way. */
static bool parse_string(struct parser *p, bool is_key, struct string *out)
{
    const char *const quote = p->at++;
    const char *begin = p->at;
    *out = (struct string){.bytes = begin};
    bool escaped = false;
    while (read_plain(p) && p->at < p->end && *p->at == '\\') {
        if (!text_append(&out->resolved, begin, (size_t)(p->at - begin))) return no_memory(p);
        if (!read_escape(p, is_key, &out->resolved)) return false;
        escaped = true;
        begin = p->at;
    }
    if (p->failed) return false;
    if (p->at == p->end) return fail(p, quote, "this string does not end; is the text cut short?");
    out->length = (size_t)(p->at - begin);
    if (escaped) {
        if (!text_append(&out->resolved, begin, out->length)) return no_memory(p);
        out->bytes = out->resolved.data;
        out->length = out->resolved.length;
    }
    p->at++;
    return true;
}

static json_t *string_value(struct parser *p)
{
    struct string string;
    json_t *value = NULL;
    if (parse_string(p, false, &string) && !(value = json_stringn_nocheck(string.bytes, string.length))) no_memory(p);
    text_free(&string.resolved);
    return value;
}

/* ---- numbers ---- */

static const char *skip_digits(const char *at, const char *end)
{
    while (at < end && *at >= '0' && *at <= '9') at++;
    return at;
}

/* Behind a fraction and an exponent that stand at `at`. */
static const char *skip_fraction(const char *at, const char *end)
{
    const char *digits;
    if (at < end && *at == '.' && (digits = skip_digits(at + 1, end)) > at + 1) at = digits;
    if (at == end || (*at != 'e' && *at != 'E')) return at;
    const char *exponent = at + 1;
    if (exponent < end && (*exponent == '+' || *exponent == '-')) exponent++;
    return (digits = skip_digits(exponent, end)) > exponent ? digits : at;
}

static json_t *integer_value(struct parser *p, const char *at, const char *end)
{
    const char *const begin = at;
    const bool negative = *at == '-';
    int64_t n = 0;
    for (at += negative; at < end; at++)
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_sub_overflow(n, *at - '0', &n)) break;
    const bool fits = at == end && (negative || n != INT64_MIN);
    json_t *value = fits ? json_integer(negative ? n : -n) : json_spelled_number(begin, (size_t)(end - begin));
    return value ? value : no_memory(p);
}

static json_t *real_value(struct parser *p, const char *begin, const char *end)
{
    text_clear(&p->number);
    if (!text_append(&p->number, begin, (size_t)(end - begin))) return no_memory(p);
    const double number = strtod(p->number.data, NULL);
    json_t *value = isfinite(number) ? json_real(number) : json_spelled_number(begin, (size_t)(end - begin));
    return value ? value : no_memory(p);
}

static json_t *number_value(struct parser *p)
{
    const char *const begin = p->at, *const first = begin + (*begin == '-');
    const char *const whole = first < p->end && *first == '0' ? first + 1 : skip_digits(first, p->end);
    if (whole == first) return unexpected(p, "a value");
    p->at = skip_fraction(whole, p->end);
    return p->at == whole ? integer_value(p, begin, whole) : real_value(p, begin, p->at);
}

static bool take_word(struct parser *p, const char *word)
{
    const size_t length = strlen(word);
    if ((size_t)(p->end - p->at) < length || memcmp(p->at, word, length) != 0) return false;
    p->at += length;
    return true;
}

static json_t *word_value(struct parser *p)
{
    static const char *const numbers[] = {"NaN", "Infinity", "-Infinity"};
    if (take_word(p, "true")) return json_true();
    if (take_word(p, "false")) return json_false();
    if (take_word(p, "null")) return json_null();
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (!take_word(p, numbers[i])) continue;
        json_t *value = json_spelled_number(numbers[i], strlen(numbers[i]));
        return value ? value : no_memory(p);
    }
    return unexpected(p, "a value");
}

/* ---- arrays and objects ---- */

static bool parse_member(struct parser *p, json_t *object)
{
    struct string key;
    const char *const start = p->at;
    json_t *value = NULL;
    if (p->at == p->end || *p->at != '"') return unexpected(p, "a key in double quotes");
    bool ok = parse_string(p, true, &key);
    if (ok && p->flags & JSON_REJECT_DUPLICATES && json_object_getn(object, key.bytes, key.length))
        ok = fail(p, start, "the key \"%s\" is there twice", show_text(key.bytes, key.length).text);
    if (ok) skip_blanks(p);
    if (ok && !take(p, ':')) ok = unexpected(p, "':'");
    if (ok) ok = (value = parse_value(p)) != NULL;
    if (ok && json_object_setn_new_nocheck(object, key.bytes, key.length, value) != 0) ok = no_memory(p);
    text_free(&key.resolved);
    return ok;
}

static bool parse_element(struct parser *p, json_t *array)
{
    json_t *value = parse_value(p);
    if (!value) return false;
    return json_array_append_new(array, value) == 0 || no_memory(p);
}

/* The elements or members of `value` up to the closing bracket; p->at is behind the opening one. */
static json_t *parse_container(struct parser *p, json_t *value)
{
    const bool is_object = json_is_object(value);
    const char close = is_object ? '}' : ']';
    bool ok = value || no_memory(p), more;
    if (ok && ++p->depth > MAX_DEPTH)
        ok = fail(p, p->at - 1, "more than %d objects and arrays inside each other", MAX_DEPTH);
    skip_blanks(p);
    for (more = ok && !take(p, close); more;) {
        skip_blanks(p);
        ok = is_object ? parse_member(p, value) : parse_element(p, value);
        skip_blanks(p);
        more = ok && take(p, ',');
        if (ok && !more && !take(p, close)) ok = unexpected(p, is_object ? "',' or '}'" : "',' or ']'");
    }
    p->depth--;
    if (ok) return value;
    json_decref(value);
    return NULL;
}

static json_t *parse_value(struct parser *p)
{
    skip_blanks(p);
    const char c = p->at < p->end ? *p->at : '\0';
    if (c == '"') return string_value(p);
    if (take(p, '{')) return parse_container(p, json_object());
    if (take(p, '[')) return parse_container(p, json_array());
    if ((c >= '0' && c <= '9') || (c == '-' && !(p->end - p->at > 1 && p->at[1] == 'I'))) return number_value(p);
    return word_value(p);
}

/* ---- the text ---- */

static json_t *parse_text(struct parser *p)
{
    skip_blanks(p);
    const char c = p->at < p->end ? *p->at : '\0';
    if (!(p->flags & JSON_DECODE_ANY) && c != '{' && c != '[') return unexpected(p, "'{' or '['");
    json_t *value = parse_value(p);
    skip_blanks(p);
    if (!value || p->at == p->end) return value;
    json_decref(value);
    return unexpected(p, "the end");
}

/* The sentence of the failure, with its place: lines and characters are counted from 1. */
static enum status explain(const struct parser *p, const char *source, struct error *err)
{
    const char *const colon = source ? ": " : "";
    size_t line = 1, column = 1;
    if (!source) source = "";
    if (!p->where) return error_set(err, STATUS_OUT_OF_MEMORY, "%s%s%s", source, colon, p->why);
    for (const char *c = p->begin; c < p->where; c++) {
        column = *c == '\n' ? 1 : column + (((unsigned char)*c & 0xC0) != 0x80);
        line += *c == '\n';
    }
    char number[32] = ""; /* it is worth saying of a file, or of a text that has lines */
    if (*source || line > 1) snprintf(number, sizeof number, "line %zu, ", line);
    return error_set(err, STATUS_INVALID, "%s%snot valid JSON at %scolumn %zu: %s", source, colon, number, column,
                     show_string(p->why).text);
}

enum status json_value_parse(const char *bytes, size_t length, size_t flags, const char *source, json_t **out,
                             struct error *err)
{
    static const char mark[] = "\xef\xbb\xbf";
    const size_t skipped = length >= 3 && memcmp(bytes, mark, 3) == 0 ? 3 : 0;
    struct parser p = {.begin = bytes + skipped, .at = bytes + skipped, .end = bytes + length, .flags = flags};
    *out = parse_text(&p);
    text_free(&p.number);
    return *out ? STATUS_OK : explain(&p, source, err);
}

enum status json_object_parse(const char *bytes, size_t length, size_t flags, const char *source, json_t **out,
                              struct error *err)
{
    enum status status = json_value_parse(bytes, length, flags | JSON_DECODE_ANY, source, out, err);
    if (status != STATUS_OK || json_is_map(*out)) return status;
    error_set(err, STATUS_INVALID, "%s%sexpected a JSON object {...}, found %s", source ? source : "",
              source ? ": " : "", json_is_array(*out) ? "an array" : show_value(*out).text);
    json_decref(*out);
    *out = NULL;
    return STATUS_INVALID;
}
