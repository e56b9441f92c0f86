/* Filters of numbers, and Python's int() and float() of strings. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tokenizer/jinja/filters.h"
#include "tokenizer/jinja/str_methods.h"

struct jinja_value jinja_filter_abs(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    int64_t i;
    if (!jinja_bind_positional(run, "abs", args, 0, 0, NULL)) return jinja_undefined(NULL);
    if (self.kind == JINJA_FLOAT) return jinja_float(fabs(self.real));
    if (!jinja_is_int(self, &i)) return jinja_wrong_type(run, "abs()", "a number", self);
    return i < 0 ? jinja_negate(run, jinja_int(i), false) : jinja_int(i);
}

/* --- reading numbers --- */

/* The string without white space around it and without underscores, which may stand between two digits; NUL-terminated.
 * NULL: this is no number (or a failure). */
static char *number_text(struct jinja_run *run, const struct jinja_string *s)
{
    struct jinja_value stripped =
        jinja_str_strip(run, (struct jinja_value){.kind = JINJA_STRING, .string = s}, &(struct jinja_args){0});
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

struct jinja_value jinja_filter_int(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    static const char *const names[] = {"default", "base"};
    struct jinja_value v[2];
    int64_t base, i;
    double f;
    if (!jinja_bind(run, "int", args, names, 2, 0, v) || !jinja_expect_int(run, "int", v[1], 10, &base))
        return jinja_undefined(NULL);
    struct jinja_value otherwise = v[0].kind == JINJA_UNDEFINED ? jinja_int(0) : v[0];
    if (jinja_is_int(self, &i)) return jinja_int(i);
    if (self.kind == JINJA_BIG_INT) return self;
    if (self.kind == JINJA_UNDEFINED) return jinja_wrong_type(run, "int", "a value", self);
    if (self.kind == JINJA_FLOAT) {
        if (truncate_float(self.real, &i)) return jinja_int(i);
        if (isnan(self.real)) return otherwise;
        jinja_fail(run, "int: cannot convert %g to an integer", self.real);
    } else if (self.kind == JINJA_STRING) {
        bool base_is_valid = base == 0 || (base >= 2 && base <= 36);
        if (base_is_valid && parse_int(run, self.string, (int)base, &i)) return jinja_int(i);
        if (parse_float(run, self.string, &f) && truncate_float(f, &i)) return jinja_int(i);
    }
    return otherwise;
}

struct jinja_value jinja_filter_float(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    static const char *const names[] = {"default"};
    struct jinja_value otherwise;
    double f;
    if (!jinja_bind(run, "float", args, names, 1, 0, &otherwise)) return jinja_undefined(NULL);
    if (otherwise.kind == JINJA_UNDEFINED) otherwise = jinja_float(0);
    if (self.kind == JINJA_UNDEFINED) return jinja_wrong_type(run, "float", "a value", self);
    if (jinja_is_number(self)) return jinja_float(jinja_to_double(self));
    return self.kind == JINJA_STRING && parse_float(run, self.string, &f) ? jinja_float(f) : otherwise;
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

struct jinja_value jinja_filter_round(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    static const char *const names[] = {"precision", "method"};
    struct jinja_value v[2];
    int64_t precision, i;
    if (!jinja_bind(run, "round", args, names, 2, 0, v) || !jinja_expect_int(run, "round", v[0], 0, &precision))
        return jinja_undefined(NULL);
    const struct jinja_string *method = v[1].kind == JINJA_STRING ? v[1].string : NULL;
    bool common = v[1].kind == JINJA_UNDEFINED || (method && jinja_string_is(method, "common"));
    bool ceiling = method && jinja_string_is(method, "ceil");
    if (!common && !ceiling && !(method && jinja_string_is(method, "floor")))
        jinja_fail(run, "method must be common, ceil or floor");
    if (jinja_failed(run)) return jinja_undefined(NULL);
    if (!jinja_is_number(self) || self.kind == JINJA_BIG_INT) return jinja_wrong_type(run, "round", "a number", self);
    if (common && self.kind == JINJA_FLOAT) return jinja_float(round_float(self.real, precision));
    if (common && jinja_is_int(self, &i)) return round_int(run, i, precision);
    double unit = pow(10, (double)precision), scaled = jinja_to_double(self) * unit;
    return jinja_float(((ceiling ? ceil(scaled) : floor(scaled)) + 0.0) / unit); /* not -0.0: the integer 0 in Python */
}

struct jinja_value jinja_filter_filesizeformat(struct jinja_run *run, struct jinja_value self,
                                               const struct jinja_args *args)
{
    static const char *const names[] = {"binary"};
    struct jinja_value v;
    double bytes;
    if (!jinja_bind(run, "filesizeformat", args, names, 1, 0, &v)) return jinja_undefined(NULL);
    if (jinja_is_number(self)) {
        bytes = jinja_to_double(self);
    } else if (self.kind != JINJA_STRING || !parse_float(run, self.string, &bytes)) {
        return jinja_wrong_type(run, "filesizeformat", "a number", self);
    }
    bool binary = jinja_is_true(run, v);
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
