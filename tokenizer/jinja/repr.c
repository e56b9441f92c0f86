/* str() and repr() as Python 3.11 writes them, and str() with HTML's escapes. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/jinja/characters.h"
#include "tokenizer/jinja/library.h"

/* digits "d.ddd" and an exponent, written as Python does: with the exponent from 1e16 on and below 1e-4. */
static void place_point(const char *digits, int num_digits, int exponent, char *out)
{
    if (exponent < -4 || exponent >= 16) {
        out += sprintf(out, "%c", digits[0]);
        if (num_digits > 1) out += sprintf(out, ".%.*s", num_digits - 1, digits + 1);
        sprintf(out, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    } else if (exponent < 0) {
        sprintf(out, "0.%.*s%.*s", -exponent - 1, "000", num_digits, digits);
    } else if (exponent + 1 >= num_digits) {
        sprintf(out, "%.*s%.*s.0", num_digits, digits, exponent + 1 - num_digits, "0000000000000000");
    } else {
        sprintf(out, "%.*s.%.*s", exponent + 1, digits, num_digits - exponent - 1, digits + exponent + 1);
    }
}

void jinja_float_repr(double value, char out[JINJA_FLOAT_TEXT])
{
    if (!isfinite(value)) {
        strcpy(out, isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return;
    }
    if (signbit(value)) *out++ = '-';
    value = fabs(value);
    char text[JINJA_FLOAT_TEXT], digits[18];
    int precision = 0; /* digits after the point: the fewest that read back as the same value */
    do {
        snprintf(text, sizeof text, "%.*e", precision, value);
    } while (strtod(text, NULL) != value && ++precision < 17);
    int num_digits = 0;
    char *p = text;
    for (; *p != 'e'; p++) {
        if (*p != '.') digits[num_digits++] = *p;
    }
    place_point(digits, num_digits, atoi(p + 1), out);
}

/* --- strings --- */

static bool build_escaped(struct jinja_run *run, struct jinja_builder *b, uint32_t c, bool marked)
{
    char text[11];
    const char *simple = c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" : NULL;
    if (simple) return jinja_build_bytes(run, b, simple, 2, marked);
    return jinja_build_bytes(run, b, text, character_escape(c, text), marked);
}

static bool build_string_repr(struct jinja_run *run, struct jinja_builder *b, const struct jinja_string *s)
{
    bool double_quotes = s->length && memchr(s->bytes, '\'', s->length) && !memchr(s->bytes, '"', s->length);
    uint32_t quote = double_quotes ? '"' : '\'';
    if (s->is_markup) jinja_build_text(run, b, "Markup(");
    jinja_build_character(run, b, quote, false);
    size_t done = 0;
    for (size_t i = 0; i < s->length && jinja_tick(run);) {
        size_t start = i;
        uint32_t c = utf8_next(s->bytes + i, &i);
        bool backslash = c == '\\' || c == quote;
        if (!backslash && ((c >= ' ' && c < 0x7F) || (c >= 0x7F && character_is_printable(c)))) continue;
        bool marked = jinja_mark_at(s, start);
        jinja_build_range(run, b, s, done, start);
        done = backslash ? start : i;
        if (backslash) {
            jinja_build_character(run, b, '\\', marked);
        } else {
            build_escaped(run, b, c, marked);
        }
    }
    jinja_build_range(run, b, s, done, s->length);
    jinja_build_character(run, b, quote, false);
    return s->is_markup ? jinja_build_text(run, b, ")") : !jinja_failed(run);
}

/* --- containers --- */

static bool build_list(struct jinja_run *run, struct jinja_builder *b, struct jinja_value v)
{
    bool tuple = v.kind == JINJA_TUPLE;
    jinja_build_text(run, b, tuple ? "(" : "[");
    for (size_t i = 0; i < v.list->count && jinja_tick(run); i++) {
        if (i) jinja_build_text(run, b, ", ");
        jinja_build_repr(run, b, v.list->items[i]);
    }
    return jinja_build_text(run, b, !tuple ? "]" : v.list->count == 1 ? ",)" : ")");
}

static bool build_dict(struct jinja_run *run, struct jinja_builder *b, const struct jinja_dict *dict)
{
    jinja_build_text(run, b, "{");
    for (size_t i = 0; i < dict->count && jinja_tick(run); i++) {
        if (i) jinja_build_text(run, b, ", ");
        jinja_build_repr(run, b, dict->pairs[i].key);
        jinja_build_text(run, b, ": ");
        jinja_build_repr(run, b, dict->pairs[i].value);
    }
    return jinja_build_text(run, b, "}");
}

static bool build_container(struct jinja_run *run, struct jinja_builder *b, struct jinja_value v)
{
    if (!jinja_enter(run)) return false;
    bool ok;
    if (v.kind == JINJA_DICT) {
        ok = build_dict(run, b, v.dict);
    } else if (v.kind != JINJA_OBJECT) {
        ok = build_list(run, b, v);
    } else if (v.object->type->build_repr) {
        ok = v.object->type->build_repr(run, b, v.object);
    } else {
        ok = jinja_build_printf(run, b, "<%s object>", v.object->type->name);
    }
    jinja_leave(run);
    return ok;
}

bool jinja_build_repr(struct jinja_run *run, struct jinja_builder *b, struct jinja_value v)
{
    char text[JINJA_FLOAT_TEXT];
    switch (v.kind) {
    case JINJA_UNDEFINED:
        return jinja_build_text(run, b, "Undefined");
    case JINJA_NONE:
        return jinja_build_text(run, b, "None");
    case JINJA_BOOL:
        return jinja_build_text(run, b, v.boolean ? "True" : "False");
    case JINJA_INT:
        return jinja_build_printf(run, b, "%" PRId64, v.integer);
    case JINJA_FLOAT:
        jinja_float_repr(v.real, text);
        return jinja_build_text(run, b, text);
    case JINJA_BIG_INT:
        return jinja_build_string(run, b, v.string);
    case JINJA_STRING:
        return build_string_repr(run, b, v.string);
    default:
        return build_container(run, b, v);
    }
}

bool jinja_build_str(struct jinja_run *run, struct jinja_builder *b, struct jinja_value v)
{
    if (v.kind == JINJA_UNDEFINED) return !jinja_failed(run);
    return v.kind == JINJA_STRING ? jinja_build_string(run, b, v.string) : jinja_build_repr(run, b, v);
}

struct jinja_value jinja_str(struct jinja_run *run, struct jinja_value v)
{
    if (v.kind == JINJA_STRING && !jinja_failed(run)) return v;
    struct jinja_builder b = {0};
    jinja_build_str(run, &b, v);
    return jinja_build_end(run, &b);
}

struct jinja_value jinja_escape(struct jinja_run *run, struct jinja_value v)
{
    struct jinja_value text = jinja_str(run, v);
    if (text.kind != JINJA_STRING || (v.kind == JINJA_STRING && v.string->is_markup)) return text;
    const struct jinja_string *s = text.string;
    struct jinja_builder b = {0};
    size_t done = 0;
    for (size_t i = 0; i < s->length; i++) {
        static const char special[] = "&<>\"'";
        static const char *const escapes[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
        const char *found = s->bytes[i] ? strchr(special, s->bytes[i]) : NULL;
        if (!found) continue;
        const char *escape = escapes[found - special];
        jinja_build_range(run, &b, s, done, i);
        jinja_build_bytes(run, &b, escape, strlen(escape), jinja_mark_at(s, i));
        done = i + 1;
    }
    jinja_build_range(run, &b, s, done, s->length);
    return jinja_as_markup(run, jinja_build_end(run, &b));
}
