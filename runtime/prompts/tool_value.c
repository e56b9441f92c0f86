#include "runtime/prompts/tool_value.h"

#include <string.h>
#include <strings.h>

#include "base/json_scan.h"
#include "base/json_value.h"
#include "runtime/prompts/literal.h"

enum { MAX_DEPTH = 8 }; /* of branches and references in one another */

const json_t *tool_property(const json_t *schema, const char *key, size_t length)
{
    return json_object_getn(json_object_get(schema, "properties"), key, length);
}

static unsigned type_of_name(const char *name)
{
    static const struct {
        const char *name;
        unsigned type;
    } names[] = {{"null", TOOL_NULL},    {"integer", TOOL_INTEGER}, {"int", TOOL_INTEGER},  {"number", TOOL_NUMBER},
                 {"float", TOOL_NUMBER}, {"boolean", TOOL_BOOLEAN}, {"bool", TOOL_BOOLEAN}, {"object", TOOL_OBJECT},
                 {"dict", TOOL_OBJECT},  {"array", TOOL_ARRAY},     {"list", TOOL_ARRAY},   {"string", TOOL_STRING}};
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, name) == 0) return names[i].type;
    return name ? TOOL_STRING : 0;
}

static unsigned type_of_constant(const json_t *value)
{
    if (!value) return 0;
    if (json_is_map(value)) return TOOL_OBJECT;
    switch (json_typeof(value)) {
    case JSON_ARRAY:
        return TOOL_ARRAY;
    case JSON_STRING:
        return TOOL_STRING;
    case JSON_TRUE:
    case JSON_FALSE:
        return TOOL_BOOLEAN;
    case JSON_NULL:
        return TOOL_NULL;
    case JSON_INTEGER:
        return TOOL_INTEGER;
    default:
        return TOOL_NUMBER;
    }
}

/* What "#/$defs/NAME" leads to; NULL: nothing. */
static const json_t *follow_reference(const json_t *root, const char *reference)
{
    if (!reference || strncmp(reference, "#/", 2) != 0) return NULL;
    const json_t *value = root;
    for (const char *at = reference + 2; value; at++) {
        const size_t length = strcspn(at, "/");
        value = json_object_getn(value, at, length);
        at += length;
        if (!*at) return value;
    }
    return NULL;
}

static unsigned types_of(const json_t *root, const json_t *property, int depth)
{
    static const char *const branches[] = {"anyOf", "oneOf", "allOf"};
    const json_t *type = json_object_get(property, "type"), *constants = json_object_get(property, "enum");
    if (!property || depth == MAX_DEPTH) return 0;
    unsigned types = type_of_name(json_string_value(type)) | type_of_constant(json_object_get(property, "const"));
    for (size_t i = 0; i < json_array_size(type); i++)
        types |= type_of_name(json_string_value(json_array_get(type, i)));
    if (!type)
        for (size_t i = 0; i < json_array_size(constants); i++) types |= type_of_constant(json_array_get(constants, i));
    for (size_t b = 0; b < sizeof branches / sizeof *branches; b++) {
        const json_t *list = json_object_get(property, branches[b]);
        for (size_t i = 0; i < json_array_size(list); i++) types |= types_of(root, json_array_get(list, i), depth + 1);
    }
    const char *reference = json_string_value(json_object_get(property, "$ref"));
    return types | types_of(root, follow_reference(root, reference), depth + 1);
}

unsigned tool_value_types(const json_t *root, const json_t *property)
{
    return types_of(root, property, 0);
}

/* ---- text to JSON ---- */

/* "+05" is the integer 5. */
static bool append_integer(struct text *out, const char *text, size_t length, bool *done)
{
    const bool minus = length > 0 && *text == '-', sign = minus || (length > 0 && *text == '+');
    size_t zeros = sign;
    for (size_t i = sign; i < length; i++)
        if (text[i] < '0' || text[i] > '9') return true;
    if (length == sign) return true;
    while (zeros + 1 < length && text[zeros] == '0') zeros++;
    *done = true;
    return (!minus || text_append(out, "-", 1)) && text_append(out, text + zeros, length - zeros);
}

static bool is_word(const char *text, size_t length, const char *word)
{
    return strlen(word) == length && strncasecmp(text, word, length) == 0;
}

/* Appends the text as this type if it is one, and sets *done. */
static bool append_as(struct text *out, unsigned type, const char *text, size_t length, bool *done)
{
    const bool yes = is_word(text, length, "true") || is_word(text, length, "1");
    const bool no = is_word(text, length, "false") || is_word(text, length, "0");
    const char first = type == TOOL_OBJECT ? '{' : '[';
    switch (type) {
    case TOOL_NULL:
        *done = is_word(text, length, "null") || is_word(text, length, "none");
        return !*done || text_append_string(out, "null");
    case TOOL_INTEGER:
        return append_integer(out, text, length, done);
    case TOOL_NUMBER:
        *done = length > 0 && (*text == '-' || (*text >= '0' && *text <= '9')) && json_scan_whole(text, length);
        return !*done || text_append(out, text, length);
    case TOOL_BOOLEAN:
        *done = yes || no;
        return !*done || text_append_string(out, yes ? "true" : "false");
    default:
        if (length == 0 || *text != first) return true;
        if (json_scan_whole(text, length)) return *done = true, text_append(out, text, length);
        *done = literal_whole(text, length, out);
        return true;
    }
}

/* Any JSON, or Python's list or dict. */
static bool append_any(struct text *out, const char *text, size_t length, bool *done)
{
    *done = json_scan_whole(text, length);
    if (*done) return text_append(out, text, length);
    *done = length > 0 && strchr("[{", *text) && literal_whole(text, length, out);
    return true;
}

bool tool_value_append(struct text *out, unsigned types, const char *text, size_t length)
{
    const char *trimmed = text;
    size_t left = length;
    bool done = false, ok = true;
    while (left > 0 && json_is_blank(*trimmed)) trimmed++, left--;
    while (left > 0 && json_is_blank(trimmed[left - 1])) left--;
    if (types == 0) ok = append_any(out, trimmed, left, &done);
    for (unsigned type = TOOL_NULL; type < TOOL_STRING && ok && !done; type *= 2)
        if (types & type) ok = append_as(out, type, trimmed, left, &done);
    if (done || !ok) return ok;
    return text_append(out, "\"", 1) && json_append_escaped(out, text, length) && text_append(out, "\"", 1);
}
