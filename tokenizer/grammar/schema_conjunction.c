#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_value.h"
#include "tokenizer/grammar/schema_compiler.h"

enum { MAX_WORK = 1 << 18 /* conjunctions that are made for one document */ };

static size_t pointer_hash(const void *pointer)
{
    const uint64_t hash = (uint64_t)(uintptr_t)pointer * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(hash >> 20 ^ hash >> 40);
}

static struct schema **find_schema(const struct schema_compiler *c, const json_t *json)
{
    size_t slot = pointer_hash(json) & (c->schema_table_size - 1);
    while (c->schemas[slot] && c->schemas[slot]->json != json) slot = (slot + 1) & (c->schema_table_size - 1);
    return &c->schemas[slot];
}

static bool grow_table(struct schema_compiler *c)
{
    if (2 * c->num_schemas < c->schema_table_size) return true;
    struct schema_compiler larger = *c;
    larger.schema_table_size = c->schema_table_size ? 2 * c->schema_table_size : 256;
    larger.schemas = calloc(larger.schema_table_size, sizeof *larger.schemas);
    if (!larger.schemas) return false;
    for (size_t i = 0; i < c->schema_table_size; i++)
        if (c->schemas[i]) *find_schema(&larger, c->schemas[i]->json) = c->schemas[i];
    free(c->schemas);
    c->schemas = larger.schemas;
    c->schema_table_size = larger.schema_table_size;
    return true;
}

/* The schema of a JSON object, which is checked when it is first seen. NULL: it has failed. */
static const struct schema *intern(struct schema_compiler *c, const json_t *json, const char *path)
{
    if (c->status) return NULL;
    if (!grow_table(c)) {
        schema_out_of_memory(c);
        return NULL;
    }
    struct schema **place = find_schema(c, json);
    if (*place) return *place;
    struct schema *s = schema_alloc(c, sizeof *s + strlen(path) + 1);
    if (!s) return NULL;
    char *copied = (char *)(s + 1);
    strcpy(copied, path);
    *s = (struct schema){json, copied};
    *place = s;
    c->num_schemas++;
    schema_check_keywords(c, s);
    return s;
}

/* One part of a JSON pointer in a fragment of a URI, without ~0, ~1 and %XX. */
static bool decode_part(const char *from, size_t length, char *out)
{
    for (size_t i = 0; i < length; i++) {
        char byte = from[i];
        if (byte == '%') {
            unsigned value;
            if (i + 2 >= length || sscanf(from + i + 1, "%2x", &value) != 1 || value == 0) return false;
            byte = (char)value;
            i += 2;
        }
        *out++ = byte;
    }
    *out = '\0';
    return true;
}

static void unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from; from++) {
        const bool escaped = from[0] == '~' && (from[1] == '0' || from[1] == '1');
        *to++ = escaped ? (from[1] == '0' ? '~' : '/') : *from;
        from += escaped;
    }
    *to = '\0';
}

/* The value at a JSON pointer, "" or "/a/b"; NULL: there is none. */
static const json_t *follow_pointer(struct schema_compiler *c, const char *pointer)
{
    const json_t *json = c->root;
    char *part = schema_alloc(c, strlen(pointer) + 1);
    while (part && json && *pointer == '/') {
        const size_t length = strcspn(++pointer, "/");
        if (!decode_part(pointer, length, part)) return NULL;
        unescape(part);
        char *end;
        const unsigned long index = json_is_array(json) ? strtoul(part, &end, 10) : 0;
        json =
            json_is_array(json) ? (*part && !*end ? json_array_get(json, index) : NULL) : json_object_get(json, part);
        pointer += length;
    }
    return part && *pointer == '\0' ? json : NULL;
}

/* The schema with this anchor, and its path in `path`. */
static const json_t *find_anchor(const json_t *json, const char *anchor, struct text *path)
{
    const size_t length = path->length;
    const json_t *found = NULL;
    const char *key;
    json_t *value;
    size_t i;
    if (json_is_map(json) && json_is_word(json_object_get(json, "$anchor"), anchor)) return json;
    if (json_is_map(json)) {
        json_object_foreach((json_t *)json, key, value)
        {
            if (found || !text_printf(path, "/%s", key)) break;
            found = find_anchor(value, anchor, path);
            if (found) return found;
            path->length = length;
        }
    } else if (json_is_array(json)) {
        json_array_foreach(json, i, value)
        {
            if (!text_printf(path, "/%zu", i)) break;
            found = find_anchor(value, anchor, path);
            if (found) return found;
            path->length = length;
        }
    }
    return NULL;
}

/* Adds what "$ref" of the schema refers to. */
static void add_reference(struct schema_compiler *c, struct conjunction *out, const struct schema *s)
{
    const char *reference = json_string_value(json_object_get(s->json, "$ref"));
    const char *id = json_string_value(json_object_get(c->root, "$id"));
    struct text path = {0};
    if (id && strncmp(reference, id, strlen(id)) == 0 && (reference[strlen(id)] == '#' || !reference[strlen(id)]))
        reference += *id ? strlen(id) : 0;
    if (*reference && *reference != '#') {
        schema_fail(c, STATUS_UNSUPPORTED, "%s/$ref: quire supports references within the schema alone, found %s",
                    s->path, show_value(json_object_get(s->json, "$ref")).text);
        return;
    }
    reference += *reference == '#';
    const bool is_pointer = *reference == '/' || !*reference;
    if (!text_append_string(&path, "#") || (is_pointer && !text_append_string(&path, reference)))
        schema_out_of_memory(c);
    const json_t *target = c->status    ? NULL
                           : is_pointer ? follow_pointer(c, reference)
                                        : find_anchor(c->root, reference, &path);
    if (json_is_boolean(target) || json_is_map(target))
        conjunction_add(c, out, target, path.data);
    else
        schema_fail(c, STATUS_INVALID, "%s/$ref refers to %s, which is no schema of this document", s->path,
                    show_value(json_object_get(s->json, "$ref")).text);
    text_free(&path);
}

static bool has_member(const struct conjunction *j, const struct schema *s)
{
    for (size_t i = 0; i < j->count; i++)
        if (j->members[i].schema == s) return true;
    return false;
}

static bool append(struct schema_compiler *c, struct conjunction *out, struct member member)
{
    if (out->count == out->capacity) {
        const size_t capacity = out->capacity ? 2 * out->capacity : 4;
        struct member *members = schema_alloc(c, capacity * sizeof *members);
        if (!members) return false;
        if (out->count > 0) memcpy(members, out->members, out->count * sizeof *members);
        out->members = members;
        out->capacity = capacity;
    }
    out->members[out->count++] = member;
    return true;
}

/* Adds one schema without what it refers to. */
static void add_one(struct schema_compiler *c, struct conjunction *out, const json_t *json, const char *path)
{
    if (json_is_false(json)) out->never = true;
    if (json_is_boolean(json)) return;
    const struct schema *s = intern(c, json, path);
    if (s && !has_member(out, s)) append(c, out, (struct member){s, false, false});
}

void conjunction_add(struct schema_compiler *c, struct conjunction *out, const json_t *json, const char *path)
{
    size_t next = out->count;
    if (c->work++ > MAX_WORK) schema_fail(c, STATUS_UNSUPPORTED, "%s: the schema has too many combinations", path);
    add_one(c, out, json, path);
    for (; next < out->count && !c->status; next++) {
        const struct schema *s = out->members[next].schema;
        const json_t *all = json_object_get(s->json, "allOf");
        if (json_object_get(s->json, "$ref")) add_reference(c, out, s);
        for (size_t i = 0; i < json_array_size(all); i++) conjunction_add_indexed(c, out, s, "allOf", i);
    }
}

/* Adds the schema json, which is at "PATH/key" or "PATH/key/name". */
static void add_child(struct schema_compiler *c, struct conjunction *out, const struct schema *parent, const char *key,
                      const char *name, const json_t *json)
{
    struct text path = {0};
    if (!json || c->status) return;
    bool made = text_printf(&path, "%s/%s%s", parent->path, key, name ? "/" : "");
    for (; name && *name && made; name++)
        made = *name == '~' || *name == '/' ? text_append_string(&path, *name == '~' ? "~0" : "~1")
                                            : text_append(&path, name, 1);
    if (made)
        conjunction_add(c, out, json, path.data);
    else
        schema_out_of_memory(c);
    text_free(&path);
}

void conjunction_add_keyword(struct schema_compiler *c, struct conjunction *out, const struct schema *parent,
                             const char *key)
{
    add_child(c, out, parent, key, NULL, json_object_get(parent->json, key));
}

void conjunction_add_named(struct schema_compiler *c, struct conjunction *out, const struct schema *parent,
                           const char *key, const char *name)
{
    add_child(c, out, parent, key, name, json_object_get(json_object_get(parent->json, key), name));
}

void conjunction_add_indexed(struct schema_compiler *c, struct conjunction *out, const struct schema *parent,
                             const char *key, size_t index)
{
    char name[32];
    snprintf(name, sizeof name, "%zu", index);
    add_child(c, out, parent, key, name, json_array_get(json_object_get(parent->json, key), index));
}

struct conjunction conjunction_copy(struct schema_compiler *c, const struct conjunction *from)
{
    struct conjunction out = {.never = from->never};
    for (size_t k = 0; k < from->count; k++) append(c, &out, from->members[k]);
    return out;
}

struct conjunction conjunction_choose(struct schema_compiler *c, const struct conjunction *from, size_t i,
                                      const char *key, size_t index)
{
    struct conjunction out = conjunction_copy(c, from);
    if (c->status) return out;
    if (key[0] == 'a')
        out.members[i].any_chosen = true;
    else
        out.members[i].one_chosen = true;
    conjunction_add_indexed(c, &out, from->members[i].schema, key, index);
    return out;
}

bool conjunction_pending(const struct conjunction *j, size_t *i, const char **key)
{
    for (*i = 0; *i < j->count; ++*i) {
        const struct member *m = &j->members[*i];
        *key = "anyOf";
        if (!m->any_chosen && json_object_get(m->schema->json, *key)) return true;
        *key = "oneOf";
        if (!m->one_chosen && json_object_get(m->schema->json, *key)) return true;
    }
    return false;
}

/* Adds the schemas of patternProperties whose patterns the name has. */
static bool add_patterns(struct schema_compiler *c, struct conjunction *out, const struct schema *s, const char *name)
{
    const json_t *patterns = json_object_get(s->json, "patternProperties");
    const char *pattern;
    json_t *schema;
    bool found = false;
    json_object_foreach((json_t *)patterns, pattern, schema)
    {
        const struct regular *language = schema_pattern(c, pattern, strlen(pattern), s->path);
        if (!language || !regular_matches(language, name, strlen(name))) continue;
        conjunction_add_named(c, out, s, "patternProperties", pattern);
        found = true;
    }
    return found;
}

struct conjunction conjunction_property(struct schema_compiler *c, const struct conjunction *j, const char *name)
{
    struct conjunction out = {0};
    bool named = false, closed = false;
    for (size_t i = 0; i < j->count && !c->status; i++) {
        const struct schema *s = j->members[i].schema;
        const bool has_property = json_object_get(json_object_get(s->json, "properties"), name) != NULL;
        if (has_property) conjunction_add_named(c, &out, s, "properties", name);
        const bool found = add_patterns(c, &out, s, name) || has_property;
        const bool additional = !found && json_object_get(s->json, "additionalProperties");
        if (additional) conjunction_add_keyword(c, &out, s, "additionalProperties");
        named = named || found || additional;
        closed = closed || json_object_get(s->json, "properties");
    }
    if (c->options->disable_additional_properties && closed && !named) out.never = true;
    return out;
}

struct conjunction conjunction_element(struct schema_compiler *c, const struct conjunction *j, size_t index)
{
    struct conjunction out = {0};
    bool named = false, closed = false;
    for (size_t i = 0; i < j->count && !c->status; i++) {
        const struct schema *s = j->members[i].schema;
        const json_t *prefix = json_object_get(s->json, "prefixItems");
        if (index < json_array_size(prefix))
            conjunction_add_indexed(c, &out, s, "prefixItems", index);
        else
            conjunction_add_keyword(c, &out, s, "items");
        named = named || index < json_array_size(prefix) || json_object_get(s->json, "items");
        closed = closed || prefix;
    }
    if (c->options->disable_additional_properties && closed && !named) out.never = true;
    return out;
}

struct conjunction conjunction_names(struct schema_compiler *c, const struct conjunction *j)
{
    struct conjunction out = {0};
    for (size_t i = 0; i < j->count && !c->status; i++)
        conjunction_add_keyword(c, &out, j->members[i].schema, "propertyNames");
    return out;
}

static unsigned type_bits(const json_t *type)
{
    static const struct {
        const char *name;
        unsigned bits;
    } types[] = {{"null", TYPE_NULL},
                 {"boolean", TYPE_BOOLEAN},
                 {"integer", TYPE_INTEGER},
                 {"string", TYPE_STRING},
                 {"array", TYPE_ARRAY},
                 {"object", TYPE_OBJECT},
                 {"number", TYPE_INTEGER | TYPE_FRACTION}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (json_is_word(type, types[i].name)) return types[i].bits;
    return 0;
}

unsigned conjunction_types(const struct conjunction *j)
{
    unsigned all = j->never ? 0 : ALL_TYPES;
    for (size_t i = 0; i < j->count; i++) {
        const json_t *type = json_object_get(j->members[i].schema->json, "type"), *element;
        unsigned bits = type_bits(type);
        size_t k;
        json_array_foreach(type, k, element) bits |= type_bits(element);
        if (type) all &= bits;
    }
    return all;
}

static int64_t count_of(const json_t *value)
{
    return json_is_real(value) ? (int64_t)json_real_value(value) : json_integer_value(value);
}

void conjunction_counts(const struct conjunction *j, const char *least_key, const char *most_key, int64_t *least,
                        int64_t *most)
{
    *least = 0;
    *most = -1;
    for (size_t i = 0; i < j->count; i++) {
        const json_t *low = json_object_get(j->members[i].schema->json, least_key);
        const json_t *high = json_object_get(j->members[i].schema->json, most_key);
        if (low && count_of(low) > *least) *least = count_of(low);
        if (high && (*most < 0 || count_of(high) < *most)) *most = count_of(high);
    }
}

bool conjunction_requires(const struct conjunction *j, const char *name)
{
    for (size_t i = 0; i < j->count; i++) {
        size_t k;
        const json_t *element;
        json_array_foreach(json_object_get(j->members[i].schema->json, "required"), k,
                           element) if (strcmp(json_string_value(element), name) == 0) return true;
    }
    return false;
}
