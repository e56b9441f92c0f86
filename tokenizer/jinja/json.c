/* From JSON, and to JSON as Python's json.dumps writes it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "tokenizer/jinja/characters.h"
#include "tokenizer/jinja/library.h"

/* --- from JSON --- */

static struct jinja_value from_json(struct jinja_run *run, const struct jinja_variable *variable, const json_t *json,
                                    bool marked);

static struct jinja_value from_string(struct jinja_run *run, const json_t *json, bool marked)
{
    jinja_run_allow(run, json_string_length(json));
    return jinja_string_of(run, json_string_value(json), json_string_length(json), marked);
}

static struct jinja_value from_object(struct jinja_run *run, const struct jinja_variable *variable, const json_t *json)
{
    struct jinja_value dict = jinja_dict_new(run);
    const char *key;
    json_t *member;
    json_object_foreach((json_t *)json, key, member)
    {
        bool marked = variable->marked;
        if (marked && variable->is_marked && json_is_string(member))
            marked = variable->is_marked(key, json_string_value(member), json_string_length(member));
        if (!jinja_tick(run)) break;
        struct jinja_value name = jinja_string_of(run, key, strlen(key), variable->marked);
        jinja_run_allow(run, strlen(key));
        struct jinja_value value = from_json(run, variable, member, marked);
        if (jinja_failed(run)) break;
        jinja_dict_set(run, dict.dict, name, value);
    }
    return dict;
}

static struct jinja_value from_array(struct jinja_run *run, const struct jinja_variable *variable, const json_t *json)
{
    struct jinja_value list = jinja_list_new(run, JINJA_LIST);
    for (size_t i = 0; i < json_array_size(json) && jinja_tick(run); i++)
        jinja_list_append(run, list.list, from_json(run, variable, json_array_get(json, i), variable->marked));
    return list;
}

static struct jinja_value from_container(struct jinja_run *run, const struct jinja_variable *variable,
                                         const json_t *json)
{
    if (!jinja_enter(run)) return jinja_undefined(NULL);
    struct jinja_value v = json_is_object(json) ? from_object(run, variable, json) : from_array(run, variable, json);
    jinja_leave(run);
    return v;
}

/* A number that jansson does not hold. */
static struct jinja_value from_spelling(struct jinja_run *run, const json_t *json)
{
    const char *spelling = json_spelling(json);
    if (!json_is_whole(json)) return jinja_float(strtod(spelling, NULL));
    struct jinja_value v = jinja_literal(run, spelling);
    if (v.kind == JINJA_STRING) v.kind = JINJA_BIG_INT;
    return v;
}

static struct jinja_value from_json(struct jinja_run *run, const struct jinja_variable *variable, const json_t *json,
                                    bool marked)
{
    jinja_run_allow(run, sizeof(json_t));
    switch (json_typeof(json)) {
    case JSON_STRING:
        return from_string(run, json, marked);
    case JSON_INTEGER:
        return jinja_int(json_integer_value(json));
    case JSON_REAL:
        return jinja_float(json_real_value(json));
    case JSON_TRUE:
    case JSON_FALSE:
        return jinja_bool(json_is_true(json));
    case JSON_NULL:
        return jinja_none();
    default:
        return json_spelling(json) ? from_spelling(run, json) : from_container(run, variable, json);
    }
}

struct jinja_value jinja_from_json(struct jinja_run *run, const struct jinja_variable *variable)
{
    return from_json(run, variable, variable->value, variable->marked);
}

/* --- to JSON --- */

struct dumper {
    struct jinja_run *run;
    struct jinja_builder b;
    const struct jinja_string *indent; /* of one level; NULL: everything on one line */
    int level;
    const struct jinja_string *item_separator, *key_separator;
    bool sort_keys, ensure_ascii;
};

static bool dump(struct dumper *d, struct jinja_value v);

static bool dump_escaped(struct dumper *d, uint32_t c, bool marked)
{
    char text[16];
    int length;
    const char letter = c == '\n' ? 'n' : c == '\r' ? 'r' : c == '\t' ? 't' : c == '\f' ? 'f' : c == '\b' ? 'b' : '\0';
    if (letter || c == '"' || c == '\\') {
        length = snprintf(text, sizeof text, "\\%c", letter ? letter : (char)c);
    } else if (c <= 0xFFFF) {
        length = snprintf(text, sizeof text, "\\u%04x", (unsigned)c);
    } else {
        c -= 0x10000;
        length = snprintf(text, sizeof text, "\\u%04x\\u%04x", (unsigned)(0xD800 + (c >> 10)),
                          (unsigned)(0xDC00 + (c & 0x3FF)));
    }
    return jinja_build_bytes(d->run, &d->b, text, (size_t)length, marked);
}

static bool dump_string(struct dumper *d, const struct jinja_string *s)
{
    size_t done = 0;
    jinja_build_text(d->run, &d->b, "\"");
    for (size_t at = 0; at < s->length && jinja_tick(d->run);) {
        size_t start = at;
        uint32_t c = utf8_next(s->bytes + at, &at);
        if (c >= ' ' && c != '"' && c != '\\' && (c < 0x7F || !d->ensure_ascii)) continue;
        jinja_build_range(d->run, &d->b, s, done, start);
        dump_escaped(d, c, jinja_mark_at(s, start));
        done = at;
    }
    jinja_build_range(d->run, &d->b, s, done, s->length);
    return jinja_build_text(d->run, &d->b, "\"");
}

static bool dump_float(struct dumper *d, double f)
{
    char text[JINJA_FLOAT_TEXT];
    if (!isfinite(f)) return jinja_build_text(d->run, &d->b, isnan(f) ? "NaN" : f < 0 ? "-Infinity" : "Infinity");
    jinja_float_repr(f, text);
    return jinja_build_text(d->run, &d->b, text);
}

static bool new_line(struct dumper *d)
{
    if (!d->indent) return true;
    jinja_build_text(d->run, &d->b, "\n");
    return jinja_build_repeated(d->run, &d->b, d->indent, d->level);
}

static bool dump_key(struct dumper *d, struct jinja_value key)
{
    if (key.kind == JINJA_STRING) return dump_string(d, key.string);
    if (key.kind != JINJA_NONE && !jinja_is_number(key))
        return jinja_fail(d->run, "keys must be str, int, float, bool or None, not %s", jinja_type_name(key));
    jinja_build_text(d->run, &d->b, "\"");
    dump(d, key);
    return jinja_build_text(d->run, &d->b, "\"");
}

/* The pairs of a dict in the order in which they are written. */
static struct jinja_keyed *ordered_pairs(struct dumper *d, const struct jinja_dict *dict)
{
    struct jinja_keyed *pairs = jinja_pairs(d->run, dict);
    if (pairs && d->sort_keys && !jinja_sort(d->run, pairs, dict->count, false)) return NULL;
    return pairs;
}

static bool dump_items(struct dumper *d, struct jinja_value v)
{
    const bool is_dict = v.kind == JINJA_DICT;
    const size_t count = is_dict ? v.dict->count : v.list->count;
    if (count == 0) return jinja_build_text(d->run, &d->b, is_dict ? "{}" : "[]");
    const struct jinja_keyed *pairs = is_dict ? ordered_pairs(d, v.dict) : NULL;
    jinja_build_text(d->run, &d->b, is_dict ? "{" : "[");
    d->level++;
    for (size_t i = 0; i < count && jinja_tick(d->run); i++) {
        if (i) jinja_build_string(d->run, &d->b, d->item_separator);
        new_line(d);
        if (is_dict) {
            dump_key(d, pairs[i].key);
            jinja_build_string(d->run, &d->b, d->key_separator);
        }
        dump(d, is_dict ? pairs[i].item : v.list->items[i]);
    }
    d->level--;
    new_line(d);
    return jinja_build_text(d->run, &d->b, is_dict ? "}" : "]");
}

static bool dump_container(struct dumper *d, struct jinja_value v)
{
    if (!jinja_enter(d->run)) return false;
    const bool ok = dump_items(d, v);
    jinja_leave(d->run);
    return ok;
}

static bool dump(struct dumper *d, struct jinja_value v)
{
    if (jinja_failed(d->run)) return false;
    switch (v.kind) {
    case JINJA_NONE:
        return jinja_build_text(d->run, &d->b, "null");
    case JINJA_BOOL:
        return jinja_build_text(d->run, &d->b, v.boolean ? "true" : "false");
    case JINJA_INT:
    case JINJA_BIG_INT:
        return jinja_build_repr(d->run, &d->b, v);
    case JINJA_FLOAT:
        return dump_float(d, v.real);
    case JINJA_STRING:
        return dump_string(d, v.string);
    case JINJA_UNDEFINED:
    case JINJA_OBJECT:
        return jinja_fail(d->run, "Object of type %s is not JSON serializable", jinja_type_name(v));
    default:
        return dump_container(d, v);
    }
}

/* `indent` of json.dumps: a string, a number of spaces, or None. */
static bool parse_indent(struct jinja_run *run, struct jinja_value v, struct dumper *d)
{
    int64_t spaces;
    if (v.kind == JINJA_UNDEFINED || v.kind == JINJA_NONE) return true;
    if (v.kind != JINJA_STRING) {
        if (!jinja_expect_int(run, "tojson", v, 0, &spaces)) return false;
        v = jinja_arithmetic(run, JINJA_MULTIPLY, jinja_literal(run, " "), jinja_int(spaces));
    }
    d->indent = v.kind == JINJA_STRING ? v.string : NULL;
    return !jinja_failed(run);
}

/* `separators` of json.dumps: a pair (between items, between key and value), or None. */
static bool parse_separators(struct jinja_run *run, struct jinja_value v, struct dumper *d)
{
    struct jinja_value pair[] = {jinja_literal(run, d->indent ? "," : ", "), jinja_literal(run, ": ")};
    if (v.kind != JINJA_UNDEFINED && v.kind != JINJA_NONE) {
        const struct jinja_list *list = jinja_iterate(run, v);
        if (list && list->count != 2) jinja_fail(run, "tojson: separators must be a pair of strings");
        for (size_t i = 0; i < 2 && jinja_tick(run); i++) pair[i] = list->items[i];
    }
    d->item_separator = jinja_expect_string(run, "separators", pair[0]);
    d->key_separator = jinja_expect_string(run, "separators", pair[1]);
    return !jinja_failed(run);
}

static struct jinja_value filter_tojson(struct jinja_run *run, struct jinja_call *c)
{
    struct dumper d = {
        .run = run, .ensure_ascii = jinja_is_true(run, c->v[0]), .sort_keys = jinja_is_true(run, c->v[3])};
    if (!parse_indent(run, c->v[1], &d) || !parse_separators(run, c->v[2], &d)) return jinja_undefined(NULL);
    dump(&d, c->self);
    return jinja_build_end(run, &d.b);
}

const struct jinja_function jinja_json_filters[] = {
    {"tojson", filter_tojson, "ensure_ascii=, indent=, separators=, sort_keys="}, {NULL}};
