#include "tokenizer/grammar/schema_compiler.h"

/* What may stand behind element index - 1, of prefixItems or, from `num_prefix` on, of items. */
struct tail {
    const struct conjunction *j;
    size_t num_prefix;
    int64_t least, most;
};

static size_t count_prefix(const struct conjunction *j)
{
    size_t most = 0;
    for (size_t i = 0; i < j->count; i++) {
        const size_t size = json_array_size(json_object_get(j->members[i].schema->json, "prefixItems"));
        if (size > most) most = size;
    }
    return most;
}

static grammar_node element_node(struct schema_compiler *c, const struct tail *t, size_t index)
{
    const struct conjunction element = conjunction_element(c, t->j, index);
    return schema_node(c, &element);
}

/* The elements behind those of prefixItems, each with its comma before it. */
static grammar_node rest_node(struct schema_compiler *c, const struct tail *t)
{
    const int64_t prefix = (int64_t)t->num_prefix;
    const grammar_node element[] = {c->nodes.comma, element_node(c, t, t->num_prefix)};
    return schema_repeat(c, t->j, grammar_sequence(c->nodes.b, element, 2), t->least > prefix ? t->least - prefix : 0,
                         t->most < 0 ? -1 : t->most - prefix);
}

grammar_node schema_array_node(struct schema_compiler *c, const struct conjunction *j)
{
    const struct json_nodes *n = &c->nodes;
    struct tail t = {.j = j, .num_prefix = count_prefix(j)};
    conjunction_counts(j, "minItems", "maxItems", &t.least, &t.most);
    if (t.most >= 0 && t.most < t.least) return grammar_never(n->b);
    if (t.most == 0) return json_brackets_node(n, "[]", grammar_empty(n->b));
    if (t.num_prefix == 0) t.num_prefix = 1; /* the first element has no comma before it */
    size_t count = t.num_prefix;
    grammar_node node = grammar_empty(n->b);
    if (t.most >= 0 && (int64_t)count >= t.most)
        count = (size_t)t.most;
    else
        node = rest_node(c, &t);
    while (count-- > 0) {
        const grammar_node comma = count == 0 ? grammar_empty(n->b) : n->comma;
        node = grammar_sequence(n->b, (grammar_node[]){comma, element_node(c, &t, count), node}, 3);
        if ((int64_t)count >= t.least) node = json_optional_node(n, node);
    }
    return json_brackets_node(n, "[]", node);
}
