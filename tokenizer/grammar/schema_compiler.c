#include "tokenizer/grammar/schema_compiler.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/json_value.h"
#include "base/utf8.h"

enum { MAX_BYTES = 1 << 28 /* of a compiler's memory */, BLOCK_BYTES = 1 << 16 };

struct schema_block {
    struct schema_block *next;
    size_t used, size;
    max_align_t data[];
};

/* A rule for a conjunction whose instances may be arrays or objects. */
struct schema_rule {
    struct conjunction conjunction;
    int32_t rule;
};

void schema_fail(struct schema_compiler *c, enum status status, const char *format, ...)
{
    char text[2048];
    va_list args;
    if (c->status) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    c->status = error_set(c->err, status, "%s", text);
}

void schema_out_of_memory(struct schema_compiler *c)
{
    schema_fail(c, STATUS_OUT_OF_MEMORY, "no memory for a schema");
}

void *schema_alloc(struct schema_compiler *c, size_t bytes)
{
    bytes = (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    if (!c->blocks || c->blocks->size - c->blocks->used < bytes) {
        const size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        if (c->num_bytes + size > MAX_BYTES) {
            schema_fail(c, STATUS_UNSUPPORTED, "the schema is too large");
            return NULL;
        }
        struct schema_block *block = calloc(1, sizeof *block + size);
        if (!block) {
            schema_out_of_memory(c);
            return NULL;
        }
        block->next = c->blocks;
        block->size = size;
        c->blocks = block;
        c->num_bytes += size;
    }
    void *data = (char *)c->blocks->data + c->blocks->used;
    c->blocks->used += bytes;
    return data;
}

void schema_compiler_free(struct schema_compiler *c)
{
    while (c->blocks) {
        struct schema_block *next = c->blocks->next;
        free(c->blocks);
        c->blocks = next;
    }
    for (size_t i = 0; i < c->num_languages; i++) regular_free(c->languages[i].language);
    free(c->languages);
    free(c->schemas);
    free(c->rules);
    free(c->rule_table);
}

static bool same_conjunction(const struct conjunction *a, const struct conjunction *b)
{
    bool same = a->count == b->count;
    for (size_t i = 0; i < a->count && same; i++)
        same = a->members[i].schema == b->members[i].schema && a->members[i].any_chosen == b->members[i].any_chosen &&
               a->members[i].one_chosen == b->members[i].one_chosen;
    return same;
}

static int32_t *find_rule(const struct schema_compiler *c, const struct conjunction *j)
{
    uint64_t hash = j->count;
    for (size_t i = 0; i < j->count; i++) {
        const struct member *m = &j->members[i];
        hash = (hash ^ (uintptr_t)m->schema) * UINT64_C(0x9E3779B97F4A7C15) + 2 * m->any_chosen + m->one_chosen;
        hash ^= hash >> 29;
    }
    size_t slot = hash & (c->rule_table_size - 1);
    while (c->rule_table[slot] >= 0 && !same_conjunction(&c->rules[c->rule_table[slot]].conjunction, j))
        slot = (slot + 1) & (c->rule_table_size - 1);
    return &c->rule_table[slot];
}

static bool grow_rule_table(struct schema_compiler *c)
{
    if (2 * c->num_rules < c->rule_table_size) return true;
    const size_t size = c->rule_table_size ? 2 * c->rule_table_size : 128;
    int32_t *table = malloc(size * sizeof *table);
    if (!table) return false;
    memset(table, 0xFF, size * sizeof *table);
    free(c->rule_table);
    c->rule_table = table;
    c->rule_table_size = size;
    for (size_t i = 0; i < c->num_rules; i++) *find_rule(c, &c->rules[i].conjunction) = (int32_t)i;
    return true;
}

/* The reference to the rule of a conjunction; a new rule is defined later, in its turn, so that nothing recurs. */
static grammar_node rule_node(struct schema_compiler *c, const struct conjunction *j)
{
    if (!grow_rule_table(c) || !array_reserve(&c->rules, &c->rule_capacity, c->num_rules + 1, sizeof *c->rules)) {
        schema_out_of_memory(c);
        return grammar_never(c->nodes.b);
    }
    int32_t *place = find_rule(c, j);
    if (*place < 0) {
        c->rules[c->num_rules] = (struct schema_rule){*j, grammar_rule(c->nodes.b, NULL)};
        *place = (int32_t)c->num_rules++;
    }
    return grammar_reference(c->nodes.b, c->rules[*place].rule);
}

static grammar_node language_node(struct schema_compiler *c, const struct regular *language,
                                  enum regular_spelling spelling, const char *path)
{
    grammar_node node;
    if (regular_node(language, spelling, c->nodes.b, &node)) return node;
    schema_fail(c, STATUS_UNSUPPORTED, "%s: the automaton of its strings is too large for quire", path);
    return node;
}

/* Of a language that several places may have there is one node. */
static grammar_node single_node(struct schema_compiler *c, struct schema_language *single, const char *path)
{
    if (single->node < 0)
        single->node = json_string_node(&c->nodes, language_node(c, single->language, REGULAR_JSON_STRING, path));
    return single->node;
}

static grammar_node string_node(struct schema_compiler *c, const struct conjunction *j)
{
    const struct json_nodes *n = &c->nodes;
    struct schema_language *single = schema_single_language(c, j);
    int64_t least, most;
    struct regular *language;
    if (single) return single_node(c, single, j->members[0].schema->path);
    schema_string_language(c, j, &language);
    schema_lengths_of_language(c, j, &language);
    conjunction_counts(j, "minLength", "maxLength", &least, &most);
    grammar_node node = n->string;
    if (c->status || (most >= 0 && most < least))
        node = grammar_never(n->b);
    else if (language)
        node = json_string_node(n, language_node(c, language, REGULAR_JSON_STRING, j->members[0].schema->path));
    else if (least > 0 || most >= 0)
        node = json_string_node(n, schema_repeat(c, j, n->character, least, most));
    regular_free(language);
    return node;
}

static grammar_node number_node(struct schema_compiler *c, const struct conjunction *j, bool integers)
{
    struct regular *language;
    schema_number_language(c, j, integers, &language);
    const grammar_node node = language   ? language_node(c, language, REGULAR_PLAIN, j->members[0].schema->path)
                              : integers ? c->nodes.integer
                                         : c->nodes.number;
    regular_free(language);
    return node;
}

static grammar_node values_node(struct schema_compiler *c, const json_t *values)
{
    size_t i;
    const json_t *value;
    grammar_node *nodes = schema_alloc(c, (json_array_size(values) + 1) * sizeof *nodes);
    if (!nodes) return grammar_never(c->nodes.b);
    json_array_foreach(values, i, value) nodes[i] = json_value_node(&c->nodes, value);
    return grammar_choice(c->nodes.b, nodes, (int32_t)json_array_size(values));
}

/* Fails unless each two branches of oneOf exclude each other. */
static void check_exclusive(struct schema_compiler *c, const struct conjunction *j, size_t i, size_t count)
{
    const struct schema *s = j->members[i].schema;
    for (size_t a = 0; a < count; a++) {
        for (size_t b = a + 1; b < count && !c->status; b++) {
            struct conjunction both = conjunction_choose(c, j, i, "oneOf", a);
            conjunction_add_indexed(c, &both, s, "oneOf", b);
            if (!schema_is_empty(c, &both, 0))
                schema_fail(c, STATUS_UNSUPPORTED,
                            "%s/oneOf: quire needs branches that exclude each other, and cannot tell whether %zu and "
                            "%zu do; anyOf takes any branches",
                            s->path, a, b);
        }
    }
}

static grammar_node choice_node(struct schema_compiler *c, const struct conjunction *j, size_t i, const char *key)
{
    const size_t count = json_array_size(json_object_get(j->members[i].schema->json, key));
    grammar_node *nodes = schema_alloc(c, (count + 1) * sizeof *nodes);
    int32_t num = 0;
    if (key[0] == 'o') check_exclusive(c, j, i, count);
    for (size_t k = 0; k < count && nodes && !c->status; k++) {
        const struct conjunction chosen = conjunction_choose(c, j, i, key, k);
        if (conjunction_types(&chosen)) nodes[num++] = schema_node(c, &chosen);
    }
    return nodes ? grammar_choice(c->nodes.b, nodes, num) : grammar_never(c->nodes.b);
}

/* The texts of the conjunction, which has no anyOf or oneOf to choose from and no list of values, of all types. */
static grammar_node types_node(struct schema_compiler *c, const struct conjunction *j)
{
    const unsigned types = conjunction_types(j);
    grammar_node nodes[6];
    int32_t num = 0;
    if (types & TYPE_OBJECT) nodes[num++] = schema_object_node(c, j);
    if (types & TYPE_ARRAY) nodes[num++] = schema_array_node(c, j);
    if (types & TYPE_STRING) nodes[num++] = string_node(c, j);
    if (types & (TYPE_INTEGER | TYPE_FRACTION)) nodes[num++] = number_node(c, j, !(types & TYPE_FRACTION));
    if (types & TYPE_BOOLEAN) nodes[num++] = c->nodes.boolean;
    if (types & TYPE_NULL) nodes[num++] = c->nodes.null;
    return grammar_choice(c->nodes.b, nodes, num);
}

static grammar_node conjunction_node(struct schema_compiler *c, const struct conjunction *j)
{
    size_t i;
    const char *key;
    json_t *values = schema_values(c, j);
    const grammar_node node = values                             ? values_node(c, values)
                              : conjunction_pending(j, &i, &key) ? choice_node(c, j, i, key)
                                                                 : types_node(c, j);
    json_decref(values);
    return node;
}

grammar_node schema_node(struct schema_compiler *c, const struct conjunction *j)
{
    size_t i;
    const char *key;
    const unsigned types = conjunction_types(j);
    if (c->status || types == 0) return grammar_never(c->nodes.b);
    if (j->count == 0) return grammar_reference(c->nodes.b, c->nodes.value);
    if (types & (TYPE_ARRAY | TYPE_OBJECT) || conjunction_pending(j, &i, &key)) return rule_node(c, j);
    return conjunction_node(c, j);
}

grammar_node schema_repeat(struct schema_compiler *c, const struct conjunction *j, grammar_node part, int64_t least,
                           int64_t most)
{
    if (least <= INT32_MAX && most <= INT32_MAX)
        return grammar_repeat(c->nodes.b, part, (int32_t)least, most < 0 ? GRAMMAR_UNBOUNDED : (int32_t)most);
    schema_fail(c, STATUS_UNSUPPORTED, "%s: quire supports counts of at most %d", j->members[0].schema->path,
                INT32_MAX);
    return grammar_never(c->nodes.b);
}

/* All strings and keys in it are UTF-8. */
static bool has_whole_characters(const json_t *json)
{
    const char *key;
    json_t *value;
    size_t i;
    bool whole = true;
    if (json_spelling(json)) return true;
    if (json_is_string(json))
        return utf8_valid_prefix(json_string_value(json), json_string_length(json)) == json_string_length(json);
    json_array_foreach(json, i, value) whole = whole && has_whole_characters(value);
    json_object_foreach((json_t *)json, key, value) whole =
        whole && utf8_valid_prefix(key, strlen(key)) == strlen(key) && has_whole_characters(value);
    return whole;
}

enum status json_schema_node(const json_t *schema, const struct json_schema_options *options, struct grammar_builder *b,
                             grammar_node *out, struct error *err)
{
    struct schema_compiler c = {.options = options, .root = schema, .left = SCHEMA_MAX_WORK, .err = err};
    struct conjunction root = {0};
    *out = grammar_never(b);
    if (!json_is_boolean(schema) && !json_is_map(schema))
        return error_set(err, STATUS_INVALID, "#: a schema must be an object, true or false");
    if (!has_whole_characters(schema))
        return error_set(err, STATUS_INVALID, "#: the schema has half of a surrogate pair, or a key with U+0000");
    if (!json_nodes_make(&c.nodes, options, b)) schema_out_of_memory(&c);
    if (!c.status) conjunction_add(&c, &root, schema, "#");
    if (!c.status) *out = schema_node(&c, &root);
    for (size_t i = 0; i < c.num_rules; i++) {
        const struct conjunction j = c.rules[i].conjunction;
        grammar_define(b, c.rules[i].rule, c.status ? grammar_never(b) : conjunction_node(&c, &j));
    }
    if (c.nodes.failed) schema_out_of_memory(&c);
    schema_compiler_free(&c);
    return c.status;
}

enum status json_object_node(const struct json_schema_options *options, struct grammar_builder *b, grammar_node *out,
                             struct error *err)
{
    struct json_nodes n;
    *out = grammar_never(b);
    if (!json_nodes_make(&n, options, b))
        return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for a grammar of JSON");
    const grammar_node member = json_member_node(&n, n.string, grammar_reference(b, n.value));
    *out = json_brackets_node(&n, "{}", json_list_node(&n, member, 0, GRAMMAR_UNBOUNDED));
    return STATUS_OK;
}
