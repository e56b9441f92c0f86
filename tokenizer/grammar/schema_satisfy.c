/* Whether a value satisfies a conjunction, and whether any can. */
#include <stdlib.h>
#include <string.h>

#include "base/json_value.h"
#include "base/utf8.h"
#include "tokenizer/grammar/schema_compiler.h"

enum { MAX_DEPTH = 6 /* of conjunctions that are looked at to find that one is empty */ };

bool json_instances_equal(const json_t *a, const json_t *b)
{
    struct decimal x, y;
    const char *key;
    json_t *value;
    size_t i;
    const bool a_number = json_is_number(a) || json_spelling(a), b_number = json_is_number(b) || json_spelling(b);
    if (a_number && b_number) return decimal_of_json(&x, a) && decimal_of_json(&y, b) && decimal_compare(&x, &y) == 0;
    if (a_number || b_number || json_typeof(a) != json_typeof(b)) return false;
    if (json_is_array(a)) {
        if (json_array_size(a) != json_array_size(b)) return false;
        json_array_foreach(a, i, value) if (!json_instances_equal(value, json_array_get(b, i))) return false;
        return true;
    }
    if (!json_is_object(a)) return json_equal(a, b);
    if (json_object_size(a) != json_object_size(b)) return false;
    json_object_foreach((json_t *)a, key, value)
    {
        const json_t *other = json_object_get(b, key);
        if (!other || !json_instances_equal(value, other)) return false;
    }
    return true;
}

static unsigned type_of(const json_t *value)
{
    struct decimal d;
    if (json_is_null(value)) return TYPE_NULL;
    if (json_is_boolean(value)) return TYPE_BOOLEAN;
    if (json_is_string(value)) return TYPE_STRING;
    if (json_is_array(value)) return TYPE_ARRAY;
    if (json_is_map(value)) return TYPE_OBJECT;
    return decimal_of_json(&d, value) && decimal_is_whole(&d) ? TYPE_INTEGER : TYPE_FRACTION;
}

/* `value` is among the values of each enum and const. */
static bool is_listed(const struct conjunction *j, const json_t *value)
{
    for (size_t i = 0; i < j->count; i++) {
        const json_t *list = json_object_get(j->members[i].schema->json, "enum"), *element;
        const json_t *constant = json_object_get(j->members[i].schema->json, "const");
        bool found = !list;
        size_t k;
        json_array_foreach(list, k, element) found = found || json_instances_equal(element, value);
        if (!found || (constant && !json_instances_equal(constant, value))) return false;
    }
    return true;
}

static bool is_count_within(const struct conjunction *j, const char *least_key, const char *most_key, size_t count)
{
    int64_t least, most;
    conjunction_counts(j, least_key, most_key, &least, &most);
    return (int64_t)count >= least && (most < 0 || (int64_t)count <= most);
}

static bool string_fits(struct schema_compiler *c, const struct conjunction *j, const json_t *value)
{
    const char *text = json_string_value(value);
    const size_t length = json_string_length(value);
    size_t count = 0;
    struct regular *language;
    if (utf8_valid_prefix(text, length) < length) return false;
    for (size_t at = 0; at < length; count++) utf8_next(text + at, &at);
    schema_string_language(c, j, &language);
    const bool fits = !language || regular_matches(language, text, length);
    regular_free(language);
    return fits && is_count_within(j, "minLength", "maxLength", count);
}

static bool number_fits(struct schema_compiler *c, const struct conjunction *j, const json_t *value)
{
    struct text text = {0};
    struct decimal d;
    struct regular *language;
    schema_number_language(c, j, type_of(value) == TYPE_INTEGER, &language);
    if (!language) return true;
    if (!decimal_of_json(&d, value) || !decimal_append(&text, &d)) schema_out_of_memory(c);
    const bool fits = !c->status && regular_matches(language, text.data, text.length);
    text_free(&text);
    regular_free(language);
    return fits;
}

static bool array_fits(struct schema_compiler *c, const struct conjunction *j, const json_t *value)
{
    size_t i;
    const json_t *element;
    if (!is_count_within(j, "minItems", "maxItems", json_array_size(value))) return false;
    json_array_foreach(value, i, element)
    {
        const struct conjunction of_element = conjunction_element(c, j, i);
        if (!schema_accepts(c, &of_element, element)) return false;
    }
    return true;
}

static bool object_fits(struct schema_compiler *c, const struct conjunction *j, const json_t *value)
{
    const char *key;
    json_t *property;
    if (!is_count_within(j, "minProperties", "maxProperties", json_object_size(value))) return false;
    const struct conjunction names = conjunction_names(c, j);
    json_object_foreach((json_t *)value, key, property)
    {
        const struct conjunction of_property = conjunction_property(c, j, key);
        json_t *name = json_string(key);
        if (!name) schema_out_of_memory(c);
        const bool fits = name && schema_accepts(c, &names, name) && schema_accepts(c, &of_property, property);
        json_decref(name);
        if (!fits) return false;
    }
    for (size_t i = 0; i < j->count; i++) {
        size_t k;
        const json_t *name;
        json_array_foreach(json_object_get(j->members[i].schema->json, "required"), k,
                           name) if (!json_object_get(value, json_string_value(name))) return false;
    }
    return true;
}

static bool chosen_fits(struct schema_compiler *c, const struct conjunction *j, const json_t *value)
{
    size_t i;
    const char *key;
    if (!conjunction_pending(j, &i, &key)) return true;
    const struct schema *s = j->members[i].schema;
    const size_t count = json_array_size(json_object_get(s->json, key));
    int num_fitting = 0;
    for (size_t k = 0; k < count && !c->status; k++) {
        const struct conjunction chosen = conjunction_choose(c, j, i, key, k);
        num_fitting += schema_accepts(c, &chosen, value);
        if (num_fitting > 0 && key[0] == 'a') return true;
    }
    return num_fitting == 1;
}

bool schema_accepts(struct schema_compiler *c, const struct conjunction *j, const json_t *value)
{
    const unsigned type = type_of(value);
    if (c->status || j->never || !(conjunction_types(j) & type) || !is_listed(j, value)) return false;
    const bool fits = type == TYPE_STRING                     ? string_fits(c, j, value)
                      : type & (TYPE_INTEGER | TYPE_FRACTION) ? number_fits(c, j, value)
                      : type == TYPE_ARRAY                    ? array_fits(c, j, value)
                      : type == TYPE_OBJECT                   ? object_fits(c, j, value)
                                                              : true;
    return fits && chosen_fits(c, j, value);
}

json_t *schema_values(struct schema_compiler *c, const struct conjunction *j)
{
    const json_t *constant = NULL, *list = NULL, *element;
    for (size_t i = 0; i < j->count && !constant; i++) {
        constant = json_object_get(j->members[i].schema->json, "const");
        if (!list) list = json_object_get(j->members[i].schema->json, "enum");
    }
    if (!constant && !list) return NULL;
    json_t *values = json_array();
    size_t i;
    if (!values) schema_out_of_memory(c);
    if (constant && schema_accepts(c, j, constant)) json_array_append(values, (json_t *)constant);
    json_array_foreach(constant ? NULL : list, i, element) if (schema_accepts(c, j, element))
        json_array_append(values, (json_t *)element);
    return values;
}

static bool strings_are_empty(struct schema_compiler *c, const struct conjunction *j)
{
    struct regular *language;
    int64_t least, most;
    conjunction_counts(j, "minLength", "maxLength", &least, &most);
    if (most >= 0 && most < least) return true;
    schema_string_language(c, j, &language);
    schema_lengths_of_language(c, j, &language);
    const bool empty = language && regular_is_empty(language);
    regular_free(language);
    return empty;
}

static bool numbers_are_empty(struct schema_compiler *c, const struct conjunction *j, bool integers)
{
    struct regular *language;
    schema_number_language(c, j, integers, &language);
    const bool empty = language && regular_is_empty(language);
    regular_free(language);
    return empty;
}

static bool arrays_are_empty(struct schema_compiler *c, const struct conjunction *j, int depth)
{
    int64_t least, most;
    size_t num_prefix = 0;
    conjunction_counts(j, "minItems", "maxItems", &least, &most);
    if (most >= 0 && most < least) return true;
    for (size_t i = 0; i < j->count; i++) {
        const size_t size = json_array_size(json_object_get(j->members[i].schema->json, "prefixItems"));
        if (size > num_prefix) num_prefix = size;
    }
    for (size_t i = 0; (int64_t)i < least && i <= num_prefix; i++) {
        const struct conjunction element = conjunction_element(c, j, i);
        if (schema_is_empty(c, &element, depth + 1)) return true;
    }
    return false;
}

static bool objects_are_empty(struct schema_compiler *c, const struct conjunction *j, int depth)
{
    int64_t least, most;
    conjunction_counts(j, "minProperties", "maxProperties", &least, &most);
    if (most >= 0 && most < least) return true;
    for (size_t i = 0; i < j->count; i++) {
        size_t k;
        const json_t *name;
        json_array_foreach(json_object_get(j->members[i].schema->json, "required"), k, name)
        {
            const struct conjunction property = conjunction_property(c, j, json_string_value(name));
            if (schema_is_empty(c, &property, depth + 1)) return true;
        }
    }
    return false;
}

/* All branches of the first anyOf or oneOf are empty. */
static bool choices_are_empty(struct schema_compiler *c, const struct conjunction *j, int depth)
{
    size_t i;
    const char *key;
    if (!conjunction_pending(j, &i, &key)) return false;
    const size_t count = json_array_size(json_object_get(j->members[i].schema->json, key));
    for (size_t k = 0; k < count; k++) {
        const struct conjunction chosen = conjunction_choose(c, j, i, key, k);
        if (!schema_is_empty(c, &chosen, depth + 1)) return false;
    }
    return true;
}

bool schema_is_empty(struct schema_compiler *c, const struct conjunction *j, int depth)
{
    if (c->status) return false;
    const unsigned types = conjunction_types(j);
    if (types == 0) return true;
    if (depth > MAX_DEPTH || j->count == 0) return false;
    json_t *values = schema_values(c, j);
    const bool listed = values != NULL, none = listed && json_array_size(values) == 0;
    json_decref(values);
    if (none || choices_are_empty(c, j, depth)) return true;
    return !listed && !(types & (TYPE_NULL | TYPE_BOOLEAN)) && (!(types & TYPE_STRING) || strings_are_empty(c, j)) &&
           (!(types & TYPE_INTEGER) || numbers_are_empty(c, j, true)) &&
           (!(types & TYPE_FRACTION) || numbers_are_empty(c, j, false)) &&
           (!(types & TYPE_ARRAY) || arrays_are_empty(c, j, depth)) &&
           (!(types & TYPE_OBJECT) || objects_are_empty(c, j, depth));
}
