#include "tokenizer/grammar/schema_members.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

enum { MAX_CELLS = 1 << 10 };

static bool has_property(const struct schema_members *m, const char *name)
{
    for (size_t i = 0; i < m->count; i++)
        if (strcmp(m->properties[i].name, name) == 0) return true;
    return false;
}

static void add_property(struct schema_compiler *c, const struct conjunction *j, struct schema_members *m,
                         const char *name)
{
    if (c->status || has_property(m, name)) return;
    if (m->count == m->capacity) {
        const size_t capacity = m->capacity ? 2 * m->capacity : 16;
        struct schema_property *properties = schema_alloc(c, capacity * sizeof *properties);
        if (!properties) return;
        if (m->count > 0) memcpy(properties, m->properties, m->count * sizeof *properties);
        m->properties = properties;
        m->capacity = capacity;
    }
    m->properties[m->count++] = (struct schema_property){name, 0, conjunction_requires(j, name)};
}

static void find_properties(struct schema_compiler *c, const struct conjunction *j, struct schema_members *m)
{
    for (size_t i = 0; i < j->count; i++) {
        const char *name;
        json_t *schema;
        json_object_foreach(json_object_get(j->members[i].schema->json, "properties"), name, schema)
            add_property(c, j, m, name);
    }
    for (size_t i = 0; i < j->count; i++) {
        size_t k;
        const json_t *name;
        json_array_foreach(json_object_get(j->members[i].schema->json, "required"), k, name)
            add_property(c, j, m, json_string_value(name));
    }
}

/* Makes the members of the properties, and drops those that cannot be. */
static void make_members(struct schema_compiler *c, const struct conjunction *j, struct schema_members *m)
{
    const struct conjunction names = conjunction_names(c, j);
    size_t kept = 0;
    for (size_t i = 0; i < m->count && !c->status; i++) {
        struct schema_property p = m->properties[i];
        const struct conjunction value = conjunction_property(c, j, p.name);
        json_t *name = json_string(p.name);
        if (!name) schema_out_of_memory(c);
        const bool possible = name && conjunction_types(&value) && schema_accepts(c, &names, name);
        json_decref(name);
        m->never = m->never || (!possible && p.required);
        if (!possible) continue;
        p.member =
            json_member_node(&c->nodes, json_text_node(&c->nodes, p.name, strlen(p.name)), schema_node(c, &value));
        m->properties[kept++] = p;
    }
    m->count = kept;
}

/* Names whose values must satisfy the same schemas of patternProperties and additionalProperties. */
struct cell {
    struct regular *names; /* NULL: all */
    struct conjunction value;
    bool matched; /* by a pattern of the schema that is looked at */
    bool named;   /* a schema says something of the value */
};

struct cells {
    struct cell *cells; /* [count] */
    size_t count, capacity;
};

static void add_cell(struct schema_compiler *c, struct cells *all, struct cell cell)
{
    if (all->count == MAX_CELLS)
        schema_fail(c, STATUS_UNSUPPORTED, "#: patternProperties has too many patterns with names in common");
    else if (!c->status && !array_reserve(&all->cells, &all->capacity, all->count + 1, sizeof *all->cells))
        schema_out_of_memory(c);
    if (c->status || regular_is_empty(cell.names))
        regular_free(cell.names);
    else
        all->cells[all->count++] = cell;
}

/* The names that the schema does not list, and that propertyNames allows; NULL: all names. */
static struct regular *other_names(struct schema_compiler *c, const struct conjunction *j,
                                   const struct schema_members *m)
{
    struct regular *allowed, *both = NULL;
    const struct conjunction names = conjunction_names(c, j);
    schema_names_language(c, &names, &allowed);
    if (c->status || m->count == 0) return allowed;
    struct regular_text *texts = schema_alloc(c, m->count * sizeof *texts);
    for (size_t i = 0; i < m->count && texts; i++)
        texts[i] = (struct regular_text){m->properties[i].name, strlen(m->properties[i].name)};
    struct regular *listed = texts ? regular_texts(texts, (int32_t)m->count) : NULL;
    struct regular *others = regular_complement(listed);
    if (allowed) both = regular_intersection(allowed, others);
    if (!others || (allowed && !both))
        schema_fail(c, STATUS_UNSUPPORTED, "%s/properties: the names are too long or too many for quire",
                    j->members[0].schema->path);
    regular_free(listed);
    if (!allowed) return others;
    regular_free(allowed);
    regular_free(others);
    return both;
}

/* Splits the cells into the names that have the pattern of s and those that have not. */
static void split_cells(struct schema_compiler *c, struct cells *all, const struct schema *s, const char *pattern)
{
    const struct regular *language = schema_pattern(c, pattern, strlen(pattern), s->path);
    struct regular *rest = regular_complement(language), *any = regular_any(0, -1);
    struct cells old = *all;
    *all = (struct cells){0};
    if (!c->status && (!rest || !any)) schema_out_of_memory(c);
    for (size_t i = 0; i < old.count; i++) {
        struct cell in = old.cells[i], out = in;
        struct regular *names = out.names;
        in.names = schema_intersection(c, names ? names : any, language, s->path);
        out.names = schema_intersection(c, names ? names : any, rest, s->path);
        regular_free(names);
        in.matched = in.named = true;
        in.value = conjunction_copy(c, &out.value);
        conjunction_add_named(c, &in.value, s, "patternProperties", pattern);
        if (in.names) add_cell(c, all, in);
        if (out.names) add_cell(c, all, out);
    }
    regular_free(rest);
    regular_free(any);
    free(old.cells);
}

/* What the schema s says of properties without a name in `properties`. */
static void add_schema(struct schema_compiler *c, struct cells *all, const struct schema *s)
{
    const char *pattern;
    json_t *schema;
    for (size_t i = 0; i < all->count; i++) all->cells[i].matched = false;
    json_object_foreach(json_object_get(s->json, "patternProperties"), pattern, schema) split_cells(c, all, s, pattern);
    for (size_t i = 0; i < all->count; i++) {
        struct cell *cell = &all->cells[i];
        if (cell->matched || !json_object_get(s->json, "additionalProperties")) continue;
        conjunction_add_keyword(c, &cell->value, s, "additionalProperties");
        cell->named = true;
    }
}

static grammar_node cell_node(struct schema_compiler *c, const struct conjunction *j, const struct cell *cell)
{
    grammar_node name = c->nodes.string, characters;
    if (cell->names && !regular_node(cell->names, REGULAR_JSON_STRING, c->nodes.b, &characters))
        schema_fail(c, STATUS_UNSUPPORTED, "%s: the names of its properties are too many for quire",
                    j->members[0].schema->path);
    else if (cell->names)
        name = json_string_node(&c->nodes, characters);
    return json_member_node(&c->nodes, name, schema_node(c, &cell->value));
}

/* Makes the members that the schema does not name. */
static void make_others(struct schema_compiler *c, const struct conjunction *j, struct schema_members *m,
                        struct regular *names)
{
    struct cells all = {0};
    bool closed = false;
    if (array_reserve(&all.cells, &all.capacity, 1, sizeof *all.cells)) {
        all.cells[all.count++] = (struct cell){.names = names};
    } else {
        regular_free(names);
        schema_out_of_memory(c);
    }
    for (size_t i = 0; i < j->count && !c->status; i++) {
        add_schema(c, &all, j->members[i].schema);
        closed = closed || json_object_get(j->members[i].schema->json, "properties");
    }
    grammar_node *nodes = schema_alloc(c, (all.count + 1) * sizeof *nodes);
    int32_t num = 0;
    for (size_t i = 0; i < all.count && !c->status; i++) {
        const struct cell *cell = &all.cells[i];
        const bool left_out = c->options->disable_additional_properties && closed && !cell->named;
        if (!left_out && conjunction_types(&cell->value)) nodes[num++] = cell_node(c, j, cell);
    }
    m->has_others = num > 0;
    if (num > 0) m->others = num == 1 ? nodes[0] : grammar_choice(c->nodes.b, nodes, num);
    for (size_t i = 0; i < all.count; i++) regular_free(all.cells[i].names);
    free(all.cells);
}

struct schema_members schema_find_members(struct schema_compiler *c, const struct conjunction *j)
{
    struct schema_members m = {.has_others = false};
    find_properties(c, j, &m);
    struct regular *names = other_names(c, j, &m);
    make_members(c, j, &m);
    if (!c->status && !(names && regular_is_empty(names)))
        make_others(c, j, &m, names);
    else
        regular_free(names);
    return m;
}
