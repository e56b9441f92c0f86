#include "tokenizer/jinja/format.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/jinja/characters.h"

enum { MAX_PRECISION = 10000, MAX_WIDTH = 64 << 20 };

/* --- parsing --- */

static bool is_align(uint32_t c)
{
    return c == '<' || c == '>' || c == '=' || c == '^';
}

/* The digits at *at, or `absent` if there are none. */
static int64_t parse_number(const struct jinja_string *s, size_t *at, int64_t absent)
{
    if (*at >= s->length || !isdigit((unsigned char)s->bytes[*at])) return absent;
    int64_t n = 0;
    for (; *at < s->length && isdigit((unsigned char)s->bytes[*at]); ++*at) {
        if (n <= MAX_WIDTH) n = n * 10 + (s->bytes[*at] - '0');
    }
    return n;
}

static bool take(const struct jinja_string *s, size_t *at, const char *one_of, char *out)
{
    if (*at >= s->length || !s->bytes[*at] || !strchr(one_of, s->bytes[*at])) return false;
    *out = s->bytes[(*at)++];
    return true;
}

static void parse_fill(const struct jinja_string *s, size_t *at, struct jinja_format *out)
{
    size_t next = *at;
    if (next == s->length) return;
    uint32_t first = utf8_next(s->bytes + next, &next);
    if (next < s->length && is_align((unsigned char)s->bytes[next])) {
        out->fill = first;
        out->fill_marked = jinja_mark_at(s, *at);
        out->align = s->bytes[next];
        *at = next + 1;
    } else if (is_align(first)) {
        out->align = (char)first;
        *at = next;
    }
}

/* False after a failure. */
static bool parse_format(struct jinja_run *run, const struct jinja_string *s, struct jinja_format *out)
{
    size_t at = 0;
    char c;
    *out = (struct jinja_format){.fill = ' ', .sign = '-', .precision = -1};
    out->fill_marked = s->length && jinja_mark_at(s, 0);
    parse_fill(s, &at, out);
    bool own_fill = out->fill != ' ' || out->align;
    take(s, &at, "+- ", &out->sign);
    out->alternate = take(s, &at, "#", &c);
    if (take(s, &at, "0", &c) && !own_fill) {
        out->fill = '0';
        out->align = '0'; /* '=' of a number; a string's own */
    }
    out->width = parse_number(s, &at, 0);
    take(s, &at, ",_", &out->grouping);
    if (take(s, &at, ".", &c)) {
        out->precision = parse_number(s, &at, -1);
        if (out->precision < 0) jinja_fail(run, "Format specifier missing precision");
    }
    if (at < s->length) out->type = s->bytes[at++];
    if (at != s->length || (unsigned char)out->type >= 0x80) jinja_fail(run, "Invalid format specifier");
    if (out->precision > MAX_PRECISION || out->width > MAX_WIDTH)
        jinja_fail(run, "the width or precision of a format is too large");
    return !jinja_failed(run);
}

/* --- padding --- */

/* The text from builder `body` (count characters), between its padding; numbers stand to the right. */
static bool build_padded(struct jinja_run *run, struct jinja_builder *b, const struct jinja_string *body,
                         const struct jinja_format *f, char align)
{
    int64_t missing = f->width > (int64_t)body->count ? f->width - (int64_t)body->count : 0;
    int64_t left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
    char bytes[4];
    struct jinja_string fill = {.bytes = bytes, .count = 1, .marked = f->fill_marked};
    fill.length = utf8_write(f->fill, bytes);
    jinja_build_repeated(run, b, &fill, left);
    jinja_build_string(run, b, body);
    return jinja_build_repeated(run, b, &fill, missing - left);
}

bool jinja_build_string_format(struct jinja_run *run, struct jinja_builder *b, const struct jinja_string *s,
                               const struct jinja_format *f)
{
    struct jinja_string part = *s;
    if (f->precision >= 0 && f->precision < (int64_t)s->count) {
        part.length = jinja_byte_of(s, (size_t)f->precision);
        part.count = (size_t)f->precision;
    }
    return build_padded(run, b, &part, f, f->align && f->align != '0' ? f->align : '<');
}

/* --- numbers --- */

/* A number in parts: sign, prefix ("0x"), the digits that are grouped, and the rest (".5e+10"). */
struct number {
    const char *sign, *prefix, *digits, *rest;
};

/* The digits with zeros before them, so that they take at least `width` characters, and separators between groups. */
static bool build_grouped(struct jinja_run *run, struct jinja_builder *b, const char *digits, int64_t width,
                          char separator, size_t group)
{
    size_t count = strlen(digits), room = 2 * (count + (width > 0 ? (size_t)width : 0)) + 2;
    char *text = jinja_alloc(run, room);
    if (!text) return false;
    char *p = text + room;
    size_t written = 0, length = 0;
    while (written < count || (int64_t)length < width) {
        if (separator && written && written % group == 0) {
            *--p = separator;
            length++;
        }
        *--p = written < count ? digits[count - 1 - written] : '0';
        written++;
        length++;
    }
    return jinja_build_bytes(run, b, p, length, false);
}

static bool build_number(struct jinja_run *run, struct jinja_builder *b, struct number n, const struct jinja_format *f)
{
    char align = f->align == '0' ? '=' : f->align ? f->align : '>';
    size_t group = f->type && strchr("bxXo", f->type) ? 4 : 3;
    int64_t others = (int64_t)(strlen(n.sign) + strlen(n.prefix) + strlen(n.rest));
    bool zeros = align == '=' && f->fill == '0';
    struct jinja_builder body = {0};
    if (align == '=' && !zeros) { /* the fill stands between the sign and the digits */
        jinja_build_text(run, b, n.sign);
        jinja_build_text(run, b, n.prefix);
    } else {
        jinja_build_text(run, &body, n.sign);
        jinja_build_text(run, &body, n.prefix);
    }
    build_grouped(run, &body, n.digits, zeros ? f->width - others : 0, f->grouping, group);
    jinja_build_text(run, &body, n.rest);
    struct jinja_value text = jinja_build_end(run, &body);
    if (text.kind != JINJA_STRING) return false;
    struct jinja_format rest = *f;
    if (align == '=' && !zeros) rest.width -= (int64_t)(strlen(n.sign) + strlen(n.prefix));
    return build_padded(run, b, text.string, &rest, align == '=' ? '>' : align);
}

static const char *sign_text(bool negative, char sign)
{
    return negative ? "-" : sign == '+' ? "+" : sign == ' ' ? " " : "";
}

static void binary_digits(uint64_t value, char out[65])
{
    int count = 0;
    while (count < 63 && value >> (count + 1)) count++;
    for (int i = 0; i <= count; i++) out[i] = (char)('0' + (value >> (count - i) & 1));
    out[count + 1] = '\0';
}

bool jinja_build_int_format(struct jinja_run *run, struct jinja_builder *b, int64_t value, const struct jinja_format *f)
{
    char digits[72];
    uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    struct number n = {sign_text(value < 0, f->sign), "", digits, ""};
    switch (f->type) {
    case 'b':
        binary_digits(magnitude, digits);
        break;
    case 'o':
        snprintf(digits, sizeof digits, "%" PRIo64, magnitude);
        break;
    case 'x':
        snprintf(digits, sizeof digits, "%" PRIx64, magnitude);
        break;
    case 'X':
        snprintf(digits, sizeof digits, "%" PRIX64, magnitude);
        break;
    default:
        snprintf(digits, sizeof digits, "%" PRIu64, magnitude);
    }
    if (f->alternate)
        n.prefix = f->type == 'b' ? "0b" : f->type == 'o' ? "0o" : f->type == 'x' ? "0x" : f->type == 'X' ? "0X" : "";
    return build_number(run, b, n, f);
}

/* Removes the zeros after the point of "1.500e+10", and a point that nothing follows. */
static void strip_zeros(char *text)
{
    char *exponent = text + strcspn(text, "e"), *end = exponent;
    if (!memchr(text, '.', (size_t)(exponent - text))) return;
    while (end[-1] == '0') end--;
    if (end[-1] == '.') end--;
    memmove(end, exponent, strlen(exponent) + 1);
}

/* Without a type and with a precision: like g, but with an exponent one digit earlier, and ".0" for whole numbers. */
static void general_text(double value, int precision, char *text, size_t size)
{
    if (precision == 0) precision = 1;
    snprintf(text, size, "%.*e", precision - 1, value);
    int exponent = atoi(strchr(text, 'e') + 1);
    if (exponent < -4 || exponent + 1 > precision - 1) {
        strip_zeros(text);
        return;
    }
    snprintf(text, size, "%.*g", precision, value);
    if (!strchr(text, '.')) strncat(text, ".0", size - strlen(text) - 1);
}

/* The magnitude as text, of a finite value. */
static void float_text(double value, const struct jinja_format *f, char *text, size_t size)
{
    int precision = f->precision < 0 ? 6 : (int)f->precision;
    char type = f->type == 'n' ? 'g' : f->type == '%' ? 'f' : f->type;
    if (type == 0 && f->precision < 0) {
        jinja_float_repr(value, text);
    } else if (type == 0) {
        general_text(value, precision, text, size);
    } else {
        char format[8] = {'%', f->alternate ? '#' : '.', f->alternate ? '.' : '*', f->alternate ? '*' : type,
                          f->alternate ? type : '\0'};
        snprintf(text, size, format, precision, value); /* "%.*f" or "%#.*f", whatever the type */
    }
}

bool jinja_build_float_format(struct jinja_run *run, struct jinja_builder *b, double value,
                              const struct jinja_format *f)
{
    size_t size = 400 + (f->precision > 0 ? (size_t)f->precision : 0);
    char *text = jinja_alloc(run, size), *rest = jinja_alloc(run, size + 1);
    if (!text || !rest) return false;
    bool negative = signbit(value) && !isnan(value);
    value = fabs(f->type == '%' ? value * 100 : value);
    if (isfinite(value)) {
        float_text(value, f, text, size);
    } else {
        strcpy(text, isnan(value) ? "nan" : "inf");
        if (f->type && strchr("EFG", f->type)) strcpy(text, isnan(value) ? "NAN" : "INF");
    }
    size_t digits = isfinite(value) ? strspn(text, "0123456789") : strlen(text);
    snprintf(rest, size + 1, "%s%s", text + digits, f->type == '%' ? "%" : "");
    text[digits] = '\0';
    return build_number(run, b, (struct number){sign_text(negative, f->sign), "", text, rest}, f);
}

/* --- format(v, spec) --- */

static bool fail_type(struct jinja_run *run, char type, const char *name)
{
    return jinja_fail(run, "Unknown format code '%c' for object of type '%s'", type, name);
}

static bool build_int(struct jinja_run *run, struct jinja_builder *b, int64_t value, const struct jinja_format *f)
{
    if (f->type && strchr("eEfFgG%", f->type)) return jinja_build_float_format(run, b, (double)value, f);
    if (f->type && !strchr("bcdnoxX", f->type)) return fail_type(run, f->type, "int");
    if (f->precision >= 0) return jinja_fail(run, "Precision not allowed in integer format specifier");
    if (f->type != 'c') return jinja_build_int_format(run, b, value, f);
    if (value < 0 || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
        return jinja_fail(run, "%%c must have a character's number");
    char bytes[4];
    struct jinja_string c = {.bytes = bytes, .count = 1};
    c.length = utf8_write((uint32_t)value, bytes);
    return build_padded(run, b, &c, f, f->align ? f->align : '>');
}

static bool build_string(struct jinja_run *run, struct jinja_builder *b, const struct jinja_string *s,
                         const struct jinja_format *f)
{
    if (f->type && f->type != 's') return fail_type(run, f->type, "str");
    if (f->align == '=' || f->sign != '-' || f->alternate || f->grouping)
        return jinja_fail(run, "'=', a sign, '#' and ',' are not allowed in the format of a string");
    return jinja_build_string_format(run, b, s, f);
}

bool jinja_build_format(struct jinja_run *run, struct jinja_builder *b, struct jinja_value v,
                        const struct jinja_string *spec)
{
    struct jinja_format f;
    int64_t i;
    if (spec->length == 0) return jinja_build_str(run, b, v);
    if (!parse_format(run, spec, &f)) return false;
    if (jinja_is_int(v, &i)) return build_int(run, b, i, &f);
    if (v.kind == JINJA_STRING) return build_string(run, b, v.string, &f);
    if (v.kind == JINJA_FLOAT) {
        if (f.type && !strchr("eEfFgGn%", f.type)) return fail_type(run, f.type, "float");
        return jinja_build_float_format(run, b, v.real, &f);
    }
    return jinja_fail(run, "unsupported format string passed to %s.__format__", jinja_type_name(v));
}

bool jinja_build_ascii(struct jinja_run *run, struct jinja_builder *b, struct jinja_value v)
{
    struct jinja_builder repr = {0};
    jinja_build_repr(run, &repr, v);
    struct jinja_value text = jinja_build_end(run, &repr);
    if (text.kind != JINJA_STRING) return false;
    const struct jinja_string *s = text.string;
    for (size_t at = 0; at < s->length && jinja_tick(run);) {
        size_t start = at;
        uint32_t c = utf8_next(s->bytes + at, &at);
        char escape[11] = {(char)c};
        const size_t length = c < 0x80 ? 1 : character_escape(c, escape);
        jinja_build_bytes(run, b, escape, length, jinja_mark_at(s, start));
    }
    return !jinja_failed(run);
}
