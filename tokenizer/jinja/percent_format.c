/* "text" % arguments, as Python's str does it. */
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/jinja/characters.h"
#include "tokenizer/jinja/format.h"

enum { MAX_PRECISION = 10000, MAX_WIDTH = 1 << 24 };

struct percent {
    struct jinja_run *run;
    const struct jinja_string *text;
    size_t at;
    struct jinja_value args; /* a tuple's items one after another, or one value */
    size_t used;
    bool is_mapping;
};

static char next(struct percent *p)
{
    if (p->at < p->text->length) return p->text->bytes[p->at++];
    jinja_fail(p->run, "incomplete format");
    return '\0';
}

static struct jinja_value next_argument(struct percent *p)
{
    size_t count = p->args.kind == JINJA_TUPLE ? p->args.list->count : 1;
    if (p->used < count) {
        p->used++;
        return p->args.kind == JINJA_TUPLE ? p->args.list->items[p->used - 1] : p->args;
    }
    return jinja_error(p->run, "not enough arguments for format string");
}

/* "(name)" after the percent sign: the item of the mapping. */
static struct jinja_value keyed_argument(struct percent *p)
{
    size_t from = p->at;
    int depth = 1;
    while (depth && !jinja_failed(p->run)) {
        char c = next(p);
        depth += (c == '(') - (c == ')');
    }
    if (p->args.kind != JINJA_DICT) jinja_fail(p->run, "format requires a mapping");
    if (jinja_failed(p->run)) return jinja_undefined(NULL);
    struct jinja_value key = jinja_substring(p->run, p->text, from, p->at - 1);
    const struct jinja_value *value = jinja_dict_get(p->run, p->args.dict, key);
    if (value) return *value;
    return jinja_error(p->run, "the format's key '%.*s' is not in the mapping", (int)key.string->length,
                       key.string->bytes);
}

/* A number of the format, or * for one from the arguments. */
static int64_t parse_number(struct percent *p, char *c)
{
    int64_t n = 0;
    if (*c == '*') {
        if (!jinja_expect_int(p->run, "*", next_argument(p), 0, &n)) return 0;
        *c = next(p);
        return n;
    }
    for (; isdigit((unsigned char)*c); *c = next(p)) {
        if (n <= MAX_WIDTH) n = n * 10 + (*c - '0');
    }
    return n;
}

static bool build_int(struct percent *p, struct jinja_builder *b, struct jinja_value v, struct jinja_format *f)
{
    int64_t i;
    if (v.kind == JINJA_FLOAT && (f->type == 'd' || f->type == 'i' || f->type == 'u') && fabs(v.real) < 0x1p63)
        i = (int64_t)v.real;
    else if (!jinja_is_int(v, &i))
        return jinja_fail(p->run, "%%%c format: a number is required, not %s", f->type, jinja_type_name(v));
    if (f->type == 'i' || f->type == 'u') f->type = 'd';
    if (f->precision < 0) return jinja_build_int_format(p->run, b, i, f);
    struct jinja_format digits = *f; /* the precision is the least number of digits */
    digits.align = '0';
    digits.fill = '0';
    digits.width = f->precision + (i < 0 || f->sign != '-') + (f->alternate && f->type != 'd' ? 2 : 0);
    struct jinja_builder body = {0};
    jinja_build_int_format(p->run, &body, i, &digits);
    struct jinja_value text = jinja_build_end(p->run, &body);
    f->precision = -1;
    if (f->align == '0') f->align = '>';
    return text.kind == JINJA_STRING && jinja_build_string_format(p->run, b, text.string, f);
}

static bool build_character(struct percent *p, struct jinja_builder *b, struct jinja_value v,
                            const struct jinja_format *f)
{
    int64_t i;
    bool is_int = jinja_is_int(v, &i);
    if (is_int && i >= 0 && i <= 0x10FFFF && (i < 0xD800 || i >= 0xE000)) {
        char bytes[4];
        v = jinja_string_copy(p->run, bytes, utf8_write((uint32_t)i, bytes), false);
    }
    if (v.kind != JINJA_STRING || v.string->count != 1) return jinja_fail(p->run, "%%c requires int or char");
    return jinja_build_string_format(p->run, b, v.string, f);
}

static bool build_text(struct percent *p, struct jinja_builder *b, struct jinja_value v, const struct jinja_format *f)
{
    struct jinja_builder body = {0};
    if (f->type == 's') jinja_build_str(p->run, &body, v);
    if (f->type == 'r') jinja_build_repr(p->run, &body, v);
    if (f->type == 'a') jinja_build_ascii(p->run, &body, v);
    struct jinja_value text = jinja_build_end(p->run, &body);
    return text.kind == JINJA_STRING && jinja_build_string_format(p->run, b, text.string, f);
}

static bool build_value(struct percent *p, struct jinja_builder *b, struct jinja_value v, struct jinja_format *f)
{
    if (jinja_failed(p->run)) return false;
    bool is_text = f->type && strchr("srac", f->type);
    if (is_text && f->align == '0') { /* strings are not filled with zeros */
        f->align = '>';
        f->fill = ' ';
    }
    if (f->type == 'c') return build_character(p, b, v, f);
    if (is_text) return build_text(p, b, v, f);
    if (f->type && strchr("diuxXo", f->type)) return build_int(p, b, v, f);
    if (f->type && strchr("eEfFgG", f->type)) {
        if (jinja_is_number(v)) return jinja_build_float_format(p->run, b, jinja_to_double(v), f);
        return jinja_fail(p->run, "must be real number, not %s", jinja_type_name(v));
    }
    const char *character = p->text->bytes + p->at - 1;
    const int length = utf8_length(character, p->text->length - (p->at - 1));
    return jinja_fail(p->run, "unsupported format character '%.*s' at index %zu", length, character, p->at - 1);
}

/* What follows a percent sign. */
static bool build_field(struct percent *p, struct jinja_builder *b)
{
    const bool marked = jinja_mark_at(p->text, p->at - 1); /* of the percent sign, and so of what fills the field */
    struct jinja_format f = {.fill = ' ', .fill_marked = marked, .align = '>', .sign = '-', .precision = -1};
    struct jinja_value v = jinja_undefined(NULL);
    bool left = false, zero = false;
    char c = next(p);
    bool keyed = c == '(';
    if (keyed) {
        v = keyed_argument(p);
        c = next(p);
    }
    for (; c && strchr("-+ #0", c); c = next(p)) {
        left = left || c == '-';
        zero = zero || c == '0';
        f.alternate = f.alternate || c == '#';
        if (c == '+' || (c == ' ' && f.sign != '+')) f.sign = c;
    }
    f.width = parse_number(p, &c);
    if (f.width < 0) {
        left = true;
        f.width = f.width < -MAX_WIDTH ? MAX_WIDTH + 1 : -f.width;
    }
    if (c == '.') {
        c = next(p);
        f.precision = parse_number(p, &c);
        if (f.precision < 0) f.precision = 0;
    }
    while (c == 'h' || c == 'l' || c == 'L') c = next(p);
    if (f.width > MAX_WIDTH || f.precision > MAX_PRECISION)
        jinja_fail(p->run, "the width or precision of a format is too large");
    if (jinja_failed(p->run)) return false;
    if (c == '%') return jinja_build_bytes(p->run, b, "%", 1, marked);
    f.type = c;
    if (zero) f.fill = '0';
    if (zero || left) f.align = left ? '<' : '0';
    if (left) f.fill = ' ';
    return build_value(p, b, keyed ? v : next_argument(p), &f);
}

struct jinja_value jinja_percent_format(struct jinja_run *run, const struct jinja_string *text, struct jinja_value args)
{
    struct percent p = {.run = run, .text = text, .args = args};
    p.is_mapping =
        args.kind == JINJA_DICT || args.kind == JINJA_LIST || args.kind == JINJA_UNDEFINED || jinja_is_range(args);
    struct jinja_builder b = {0};
    while (p.at < text->length && jinja_tick(run)) {
        const char *percent = memchr(text->bytes + p.at, '%', text->length - p.at);
        size_t end = percent ? (size_t)(percent - text->bytes) : text->length;
        jinja_build_range(run, &b, text, p.at, end);
        p.at = end + 1;
        if (percent) build_field(&p, &b);
    }
    size_t count = args.kind == JINJA_TUPLE ? args.list->count : 1;
    if (p.used < count && !p.is_mapping) jinja_fail(run, "not all arguments converted during string formatting");
    return jinja_build_end(run, &b);
}
