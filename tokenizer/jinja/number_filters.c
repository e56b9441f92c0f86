/* Filters of numbers, and Python's int() and float() of strings. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tokenizer/jinja/library.h"

static struct jinja_value filter_abs(struct jinja_run *run, struct jinja_call *c)
{
    int64_t i;
    if (c->self.kind == JINJA_FLOAT) return jinja_float(fabs(c->self.real));
    if (!jinja_is_int(c->self, &i)) return jinja_wrong_type(run, "abs()", "a number", c->self);
    return i < 0 ? jinja_negate(run, jinja_int(i), false) : jinja_int(i);
}

/* --- reading numbers --- */

/* The string without white space around it and without underscores, which may stand between two digits; NUL-terminated.
 * NULL: this is no number (or a failure). */
static char *number_text(struct jinja_run *run, const struct jinja_string *s)
{
    struct jinja_value self = {.kind = JINJA_STRING, .string = s};
    struct jinja_value stripped = jinja_call_str_method(run, "strip", self, &(struct jinja_args){0});
    if (stripped.kind != JINJA_STRING) return NULL;
    const struct jinja_string *text = stripped.string;
    char *out = jinja_alloc(run, text->length + 1), *p = out;
    if (!out) return NULL;
    for (size_t i = 0; i < text->length; i++) {
        if (text->bytes[i] == '_') {
            bool between = i > 0 && i + 1 < text->length && isalnum((unsigned char)text->bytes[i - 1]) &&
                           isalnum((unsigned char)text->bytes[i + 1]);
            if (!between) return NULL;
        } else {
            *p++ = text->bytes[i] ? text->bytes[i] : '?';
        }
    }
    return out;
}

static int digit_value(char c)
{
    return isdigit((unsigned char)c) ? c - '0' : isalpha((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10 : 99;
}

/* A base prefix such as "0x" at *p; sets a base of 0. */
static void skip_prefix(const char **p, int *base)
{
    char letter = (*p)[0] == '0' ? (char)tolower((unsigned char)(*p)[1]) : '\0';
    int prefixed = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (prefixed && (*base == 0 || *base == prefixed)) {
        *base = prefixed;
        *p += 2;
    } else if (*base == 0) {
        *base = 10;
    }
}

/* int(s, base). False: it is no integer (or a failure, if it is too large). */
static bool parse_int(struct jinja_run *run, const struct jinja_string *s, int base, int64_t *out)
{
    const char *p = number_text(run, s);
    if (!p) return false;
    bool negative = *p == '-';
    if (*p == '-' || *p == '+') p++;
    skip_prefix(&p, &base);
    if (!*p) return false;
    int64_t n = 0;
    bool too_large = false;
    for (; *p; p++) {
        int digit = digit_value(*p);
        if (digit >= base) return false;
        too_large = too_large || __builtin_mul_overflow(n, base, &n) || __builtin_sub_overflow(n, digit, &n);
    }
    *out = negative ? n : -n;
    if (too_large || (!negative && n == INT64_MIN)) jinja_fail(run, "int: the number is too large for 64 bits");
    return !jinja_failed(run);
}

/* float(s). False: it is no number (or a failure). */
static bool parse_float(struct jinja_run *run, const struct jinja_string *s, double *out)
{
    const char *text = number_text(run, s);
    if (!text) return false;
    const char *p = text + (*text == '-' || *text == '+');
    if (strcasecmp(p, "inf") && strcasecmp(p, "infinity") && strcasecmp(p, "nan")) {
        size_t whole = strspn(p, "0123456789"), fraction = 0;
        p += whole;
        if (*p == '.') fraction = strspn(++p, "0123456789");
        p += fraction;
        if (whole + fraction == 0) return false;
        if (*p == 'e' || *p == 'E') {
            p += 1 + (p[1] == '+' || p[1] == '-');
            size_t exponent = strspn(p, "0123456789");
            if (exponent == 0) return false;
            p += exponent;
        }
        if (*p) return false;
    }
    *out = strtod(text, NULL);
    return true;
}

/* int(f). False: it has no integer value. */
static bool truncate_float(double f, int64_t *out)
{
    if (!(f >= -0x1p63 && f < 0x1p63)) return false;
    *out = (int64_t)f;
    return true;
}

static struct jinja_value filter_int(struct jinja_run *run, struct jinja_call *c)
{
    int64_t base, i;
    double f;
    if (!jinja_expect_int(run, "int", c->v[1], 10, &base)) return jinja_undefined(NULL);
    struct jinja_value otherwise = c->v[0].kind == JINJA_UNDEFINED ? jinja_int(0) : c->v[0];
    if (jinja_is_int(c->self, &i)) return jinja_int(i);
    if (c->self.kind == JINJA_BIG_INT) return c->self;
    if (c->self.kind == JINJA_UNDEFINED) return jinja_wrong_type(run, "int", "a value", c->self);
    if (c->self.kind == JINJA_FLOAT) {
        if (truncate_float(c->self.real, &i)) return jinja_int(i);
        if (isnan(c->self.real)) return otherwise;
        jinja_fail(run, "int: cannot convert %g to an integer", c->self.real);
    } else if (c->self.kind == JINJA_STRING) {
        bool base_is_valid = base == 0 || (base >= 2 && base <= 36);
        if (base_is_valid && parse_int(run, c->self.string, (int)base, &i)) return jinja_int(i);
        if (parse_float(run, c->self.string, &f) && truncate_float(f, &i)) return jinja_int(i);
    }
    return otherwise;
}

static struct jinja_value filter_float(struct jinja_run *run, struct jinja_call *c)
{
    double f;
    if (c->v[0].kind == JINJA_UNDEFINED) c->v[0] = jinja_float(0);
    if (c->self.kind == JINJA_UNDEFINED) return jinja_wrong_type(run, "float", "a value", c->self);
    if (jinja_is_number(c->self)) return jinja_float(jinja_to_double(c->self));
    return c->self.kind == JINJA_STRING && parse_float(run, c->self.string, &f) ? jinja_float(f) : c->v[0];
}

/* --- round --- */

/* round(f, precision): the nearest decimal, as printf rounds it. */
static double round_float(double f, int64_t precision)
{
    if (!isfinite(f) || precision > 323) return f;
    if (precision < -308) return copysign(0, f);
    if (precision < 0) {
        double unit = pow(10, (double)-precision);
        return nearbyint(f / unit) * unit;
    }
    char text[700];
    snprintf(text, sizeof text, "%.*f", (int)precision, f);
    return strtod(text, NULL);
}

/* round(i, precision): to tens, hundreds, ...; half to even. */
static struct jinja_value round_int(struct jinja_run *run, int64_t i, int64_t precision)
{
    if (precision < -19) return jinja_int(0);
    __int128 unit = 1;
    for (; precision < 0; precision++) unit *= 10;
    __int128 rest = i % unit, rounded = i - rest;
    __int128 twice = 2 * (rest < 0 ? -rest : rest);
    bool odd = (rounded / unit) % 2 != 0;
    if (twice > unit || (twice == unit && odd)) rounded += rest < 0 ? -unit : unit;
    if (rounded < INT64_MIN || rounded > INT64_MAX) jinja_fail(run, "round: the result is too large for 64 bits");
    return jinja_int((int64_t)rounded);
}

static struct jinja_value filter_round(struct jinja_run *run, struct jinja_call *c)
{
    int64_t precision, i;
    if (!jinja_expect_int(run, "round", c->v[0], 0, &precision)) return jinja_undefined(NULL);
    const struct jinja_string *method = c->v[1].kind == JINJA_STRING ? c->v[1].string : NULL;
    bool common = c->v[1].kind == JINJA_UNDEFINED || (method && jinja_string_is(method, "common"));
    bool ceiling = method && jinja_string_is(method, "ceil");
    if (!common && !ceiling && !(method && jinja_string_is(method, "floor")))
        jinja_fail(run, "method must be common, ceil or floor");
    if (jinja_failed(run)) return jinja_undefined(NULL);
    if (!jinja_is_number(c->self) || c->self.kind == JINJA_BIG_INT)
        return jinja_wrong_type(run, "round", "a number", c->self);
    if (common && c->self.kind == JINJA_FLOAT) return jinja_float(round_float(c->self.real, precision));
    if (common && jinja_is_int(c->self, &i)) return round_int(run, i, precision);
    double unit = pow(10, (double)precision), scaled = jinja_to_double(c->self) * unit;
    return jinja_float(((ceiling ? ceil(scaled) : floor(scaled)) + 0.0) / unit); /* not -0.0: the integer 0 in Python */
}

static struct jinja_value filter_filesizeformat(struct jinja_run *run, struct jinja_call *c)
{
    double bytes;
    if (jinja_is_number(c->self)) {
        bytes = jinja_to_double(c->self);
    } else if (c->self.kind != JINJA_STRING || !parse_float(run, c->self.string, &bytes)) {
        return jinja_wrong_type(run, "filesizeformat", "a number", c->self);
    }
    bool binary = jinja_is_true(run, c->v[0]);
    const double base = binary ? 1024 : 1000;
    struct jinja_builder b = {0};
    if (bytes == 1) {
        jinja_build_text(run, &b, "1 Byte");
    } else if (bytes < base) {
        jinja_build_printf(run, &b, "%.0f Bytes", trunc(bytes) + 0.0);
    } else {
        const char *prefix = binary ? "KMGTPEZY" : "kMGTPEZY";
        double unit = base * base;
        for (; prefix[1] && bytes >= unit; prefix++) unit *= base;
        jinja_build_printf(run, &b, "%.1f %c%s", base * bytes / unit, *prefix, binary ? "iB" : "B");
    }
    return jinja_build_end(run, &b);
}

const struct jinja_function jinja_number_filters[] = {
    {"abs", filter_abs, "/"},
    {"filesizeformat", filter_filesizeformat, "binary="},
    {"float", filter_float, "default="},
    {"int", filter_int, "default=, base="},
    {"round", filter_round, "precision=, method="},
    {NULL},
};
