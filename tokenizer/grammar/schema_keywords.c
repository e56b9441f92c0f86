#include <string.h>

#include "base/json_value.h"
#include "tokenizer/grammar/schema_compiler.h"
#include "tokenizer/grammar/schema_formats.h"

/* What the value of a keyword must be. */
enum expected {
    ANYTHING, /* the keyword says nothing of the instance */
    A_SCHEMA,
    SCHEMAS, /* a list with one at least */
    NAMED_SCHEMAS,
    A_COUNT,
    A_NUMBER,
    ABOVE_ZERO,
    A_STRING,
    STRINGS,
    A_LIST, /* with one element at least */
    A_TYPE,
    A_FORMAT,
    ONLY_FALSE, /* true is not supported */
    ONLY_ROOT   /* a string in the root, not supported elsewhere */
};

static const struct keyword {
    const char *name;
    enum expected expected;
} keywords[] = {
    {"type", A_TYPE},
    {"properties", NAMED_SCHEMAS},
    {"required", STRINGS},
    {"description", ANYTHING},
    {"title", ANYTHING},
    {"default", ANYTHING},
    {"enum", A_LIST},
    {"const", ANYTHING},
    {"items", A_SCHEMA},
    {"$ref", A_STRING},
    {"anyOf", SCHEMAS},
    {"oneOf", SCHEMAS},
    {"allOf", SCHEMAS},
    {"additionalProperties", A_SCHEMA},
    {"patternProperties", NAMED_SCHEMAS},
    {"propertyNames", A_SCHEMA},
    {"minProperties", A_COUNT},
    {"maxProperties", A_COUNT},
    {"prefixItems", SCHEMAS},
    {"minItems", A_COUNT},
    {"maxItems", A_COUNT},
    {"uniqueItems", ONLY_FALSE},
    {"minLength", A_COUNT},
    {"maxLength", A_COUNT},
    {"pattern", A_STRING},
    {"format", A_FORMAT},
    {"minimum", A_NUMBER},
    {"maximum", A_NUMBER},
    {"exclusiveMinimum", A_NUMBER},
    {"exclusiveMaximum", A_NUMBER},
    {"multipleOf", ABOVE_ZERO},
    {"$defs", NAMED_SCHEMAS},
    {"definitions", NAMED_SCHEMAS},
    {"$schema", ANYTHING},
    {"$id", ONLY_ROOT},
    {"$anchor", A_STRING},
    {"$comment", ANYTHING},
    {"$vocabulary", ANYTHING},
    {"examples", ANYTHING},
    {"deprecated", ANYTHING},
    {"readOnly", ANYTHING},
    {"writeOnly", ANYTHING},
    {"contentEncoding", ANYTHING},
    {"contentMediaType", ANYTHING},
    {"contentSchema", ANYTHING},
    /* OpenAPI's, which say nothing of the instance either. */
    {"discriminator", ANYTHING},
    {"example", ANYTHING},
    {"externalDocs", ANYTHING},
    {"xml", ANYTHING},
};

static bool is_type(const json_t *value)
{
    static const char *const types[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (json_is_word(value, types[i])) return true;
    return false;
}

/* A list of values that all are what `is` wants. */
static bool is_list_of(const json_t *value, bool (*is)(const json_t *))
{
    size_t i;
    const json_t *element;
    if (!json_is_array(value)) return false;
    json_array_foreach(value, i, element) if (!is(element)) return false;
    return true;
}

static bool is_schema(const json_t *value)
{
    return json_is_boolean(value) || json_is_map(value);
}

static bool is_string(const json_t *value)
{
    return json_is_string(value);
}

static bool are_named_schemas(const json_t *value)
{
    const char *key;
    json_t *schema;
    if (!json_is_map(value)) return false;
    json_object_foreach((json_t *)value, key, schema) if (!is_schema(schema)) return false;
    return true;
}

static bool is_number(const json_t *value)
{
    struct decimal d;
    return (json_is_number(value) || json_spelling(value)) && decimal_of_json(&d, value);
}

static bool is_above_zero(const json_t *value)
{
    struct decimal d, zero;
    decimal_parse(&zero, "0");
    return is_number(value) && decimal_of_json(&d, value) && decimal_compare(&d, &zero) > 0;
}

static bool is_count(const json_t *value)
{
    if (json_is_real(value) && json_real_value(value) >= 0 && json_real_value(value) < 1e15)
        return json_real_value(value) == (double)(int64_t)json_real_value(value);
    return json_is_integer(value) && json_integer_value(value) >= 0;
}

/* NULL: the value is right; else what it must be. */
static const char *what_is_expected(enum expected expected, const json_t *value)
{
    switch (expected) {
    case ANYTHING:
        return NULL;
    case A_SCHEMA:
        return is_schema(value) ? NULL : "a schema, which is an object, true or false";
    case SCHEMAS:
        return is_list_of(value, is_schema) && json_array_size(value) > 0 ? NULL : "a list of at least one schema";
    case NAMED_SCHEMAS:
        return are_named_schemas(value) ? NULL : "an object whose values are schemas";
    case A_COUNT:
        return is_count(value) ? NULL : "an integer from 0 up";
    case A_NUMBER:
        return is_number(value) ? NULL : "a number of at most 400 digits";
    case ABOVE_ZERO:
        return is_above_zero(value) ? NULL : "a number above 0";
    case A_STRING:
    case A_FORMAT:
    case ONLY_ROOT:
        return json_is_string(value) ? NULL : "a string";
    case STRINGS:
        return is_list_of(value, is_string) ? NULL : "a list of strings";
    case A_LIST:
        return json_is_array(value) && json_array_size(value) > 0 ? NULL : "a list of at least one value";
    case A_TYPE:
        return is_type(value) || (is_list_of(value, is_type) && json_array_size(value) > 0)
                   ? NULL
                   : "null, boolean, integer, number, string, array or object, or a list of them";
    case ONLY_FALSE:
        return json_is_boolean(value) ? NULL : "true or false";
    }
    return NULL;
}

static void check_value(struct schema_compiler *c, const struct schema *s, const struct keyword *k, const json_t *value)
{
    const char *expected = what_is_expected(k->expected, value);
    if (expected && k->expected == A_SCHEMA && json_is_array(value) && strcmp(k->name, "items") == 0)
        schema_fail(c, STATUS_UNSUPPORTED, "%s/items: a list of schemas is named \"prefixItems\" in draft 2020-12",
                    s->path);
    else if (expected)
        schema_fail(c, STATUS_INVALID, "%s/%s must be %s, found %s", s->path, k->name, expected,
                    show_value(value).text);
    else if (k->expected == ONLY_FALSE && json_is_true(value))
        schema_fail(c, STATUS_UNSUPPORTED, "%s/%s: quire does not support \"%s\": true in a schema", s->path, k->name,
                    k->name);
    else if (k->expected == ONLY_ROOT && s->json != c->root)
        schema_fail(c, STATUS_UNSUPPORTED, "%s/%s: quire supports \"%s\" only at the root of a schema", s->path,
                    k->name, k->name);
    else if (k->expected == A_FORMAT && !schema_format_is_known(json_string_value(value)))
        schema_fail(c, STATUS_UNSUPPORTED, "%s/format: quire does not support the format %s", s->path,
                    show_value(value).text);
}

void schema_check_keywords(struct schema_compiler *c, const struct schema *s)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)s->json, key, value)
    {
        size_t i = 0;
        while (i < sizeof keywords / sizeof *keywords && strcmp(key, keywords[i].name) != 0) i++;
        if (i < sizeof keywords / sizeof *keywords)
            check_value(c, s, &keywords[i], value);
        else if (strncmp(key, "x-", 2) != 0)
            schema_fail(c, STATUS_UNSUPPORTED, "%s/%s: quire does not support \"%s\" in a schema", s->path,
                        show_string(key).text, show_string(key).text);
    }
}
