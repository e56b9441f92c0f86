#include "tokenizer/grammar/units.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

enum {
    INLINE_SIZE = 16,  /* states of a node that is used several times and is no unit */
    UNROLL_SIZE = 32,  /* states of all copies of a repetition that is not counted */
    MAX_DEPTH = 100,   /* of nodes in an automaton */
    MAX_SIZE = 1 << 24 /* sizes are not counted further */
};

static int32_t num_children(const struct node *n)
{
    if (n->kind == NODE_SEQUENCE || n->kind == NODE_CHOICE) return n->count;
    return n->kind == NODE_REPEAT || n->kind == NODE_REFERENCE ? 1 : 0;
}

static grammar_node child(const struct grammar_builder *b, const struct node *n, int32_t i)
{
    if (n->kind == NODE_REPEAT) return n->first;
    return n->kind == NODE_REFERENCE ? b->rules[n->first].node : b->children[n->first + i];
}

static void make_unit(struct units *u, grammar_node node)
{
    if (u->unit_of[node] >= 0) return;
    u->unit_of[node] = u->count;
    u->nodes[u->count++] = node;
}

/* ---- order ---- */

struct visit {
    grammar_node node;
    int32_t next; /* child */
};

struct walk {
    struct visit *visits;
    size_t depth, capacity;
    bool *is_open; /* [num_nodes] a visit of it has not ended */
};

static bool enter(struct walk *w, struct units *u, grammar_node node)
{
    if (!array_reserve(&w->visits, &w->capacity, w->depth + 1, sizeof *w->visits)) return false;
    w->visits[w->depth++] = (struct visit){node, 0};
    w->is_open[node] = true;
    u->uses[node] = 1;
    return true;
}

static enum status undefined(const struct rule *rule, struct error *err)
{
    return error_set(err, STATUS_INVALID, "rule %s is used but not defined",
                     rule->name ? rule->name : "without a name");
}

/* Goes one step of a depth-first visit of all nodes; a node that is met inside itself is a unit. */
static enum status visit_next(const struct grammar_builder *b, struct units *u, struct walk *w, struct error *err)
{
    struct visit *v = &w->visits[w->depth - 1];
    const struct node *n = &b->nodes[v->node];
    if (n->kind == NODE_REFERENCE && !b->rules[n->first].is_defined) return undefined(&b->rules[n->first], err);
    if (v->next == num_children(n)) {
        w->is_open[v->node] = false;
        u->order[u->num_reached++] = v->node;
        w->depth--;
        return STATUS_OK;
    }
    const grammar_node next = child(b, n, v->next++);
    if (w->is_open[next]) make_unit(u, next);
    if (u->uses[next] > 0)
        u->uses[next]++;
    else if (!enter(w, u, next))
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for a grammar");
    return STATUS_OK;
}

static enum status order_nodes(const struct grammar_builder *b, grammar_node root, struct units *u, struct error *err)
{
    struct walk w = {.is_open = calloc((size_t)b->num_nodes, sizeof(bool))};
    enum status status = STATUS_OK;
    if (!w.is_open || !enter(&w, u, root)) status = error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for a grammar");
    while (!status && w.depth > 0) status = visit_next(b, u, &w, err);
    free(w.visits);
    free(w.is_open);
    return status;
}

/* ---- which nodes have a text, and the empty one ---- */

/* Whether a child has a property, or all have it. */
static bool children_have(const struct grammar_builder *b, const struct node *n, const bool *property, bool all)
{
    for (int32_t i = 0; i < n->count; i++)
        if (property[b->children[n->first + i]] != all) return !all;
    return all;
}

typedef bool node_property(const struct grammar_builder *b, const struct units *u, grammar_node node);

static bool is_nullable(const struct grammar_builder *b, const struct units *u, grammar_node node)
{
    const struct node *n = &b->nodes[node];
    switch (n->kind) {
    case NODE_NEVER:
    case NODE_BYTES:
    case NODE_CHARACTERS:
        return false;
    case NODE_EMPTY:
        return true;
    case NODE_SEQUENCE:
        return children_have(b, n, u->is_nullable, true);
    case NODE_CHOICE:
        return children_have(b, n, u->is_nullable, false);
    case NODE_REPEAT:
        return n->least == 0 || u->is_nullable[n->first];
    case NODE_AUTOMATON:
        return b->states[n->first].ends;
    case NODE_REFERENCE:
        return u->is_nullable[b->rules[n->first].node];
    }
    return false;
}

static bool has_text(const struct grammar_builder *b, const struct units *u, grammar_node node)
{
    const struct node *n = &b->nodes[node];
    switch (n->kind) {
    case NODE_NEVER:
        return false;
    case NODE_EMPTY:
    case NODE_BYTES:
    case NODE_CHARACTERS:
    case NODE_AUTOMATON:
        return true;
    case NODE_SEQUENCE:
        return children_have(b, n, u->has_text, true);
    case NODE_CHOICE:
        return children_have(b, n, u->has_text, false);
    case NODE_REPEAT:
        return n->least == 0 || u->has_text[n->first];
    case NODE_REFERENCE:
        return u->has_text[b->rules[n->first].node];
    }
    return false;
}

/* Asked when all of has_text is known. */
static bool has_bytes(const struct grammar_builder *b, const struct units *u, grammar_node node)
{
    const struct node *n = &b->nodes[node];
    switch (n->kind) {
    case NODE_NEVER:
    case NODE_EMPTY:
        return false;
    case NODE_BYTES:
    case NODE_CHARACTERS:
    case NODE_AUTOMATON:
        return true;
    case NODE_SEQUENCE:
        return u->has_text[node] && children_have(b, n, u->has_bytes, false);
    case NODE_CHOICE:
        return children_have(b, n, u->has_bytes, false);
    case NODE_REPEAT:
        return u->has_bytes[n->first];
    case NODE_REFERENCE:
        return u->has_bytes[b->rules[n->first].node];
    }
    return false;
}

/* Finds the smallest set of nodes with the property, known[]. */
static void find_property(const struct grammar_builder *b, const struct units *u, node_property *property, bool *known)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t i = 0; i < u->num_reached; i++) {
            const grammar_node node = u->order[i];
            if (known[node] || !property(b, u, node)) continue;
            known[node] = changed = true;
        }
    }
}

/* ---- sizes ---- */

bool units_unrolls(const struct units *u, const struct node *repeat)
{
    const int64_t copies = repeat->most == GRAMMAR_UNBOUNDED ? (int64_t)repeat->least + 1 : repeat->most;
    const int64_t size = u->unit_of[repeat->first] >= 0 ? 1 : u->sizes[repeat->first];
    return copies <= 2 || copies * size <= UNROLL_SIZE;
}

/* About the states of a node's automaton without its children. */
static int64_t own_size(const struct node *n)
{
    if (n->kind == NODE_CHARACTERS) return n->count == 1 ? 1 : 4 * (int64_t)n->count;
    if (n->kind == NODE_BYTES || n->kind == NODE_AUTOMATON) return n->count;
    return 1;
}

static void measure(const struct grammar_builder *b, struct units *u, grammar_node node)
{
    const struct node *n = &b->nodes[node];
    int64_t size = own_size(n);
    int32_t depth = 0;
    for (int32_t i = 0; i < num_children(n); i++) {
        const grammar_node c = child(b, n, i);
        const bool is_unit = u->unit_of[c] >= 0;
        size += is_unit ? 1 : u->sizes[c];
        if (!is_unit && u->depths[c] + 1 > depth) depth = u->depths[c] + 1;
    }
    u->sizes[node] = size < MAX_SIZE ? (int32_t)size : MAX_SIZE;
    u->depths[node] = depth;
    if (n->kind == NODE_REPEAT && !units_unrolls(u, n)) make_unit(u, n->first);
    if ((u->uses[node] > 1 && size > INLINE_SIZE) || depth >= MAX_DEPTH)
        make_unit(u, n->kind == NODE_REFERENCE ? child(b, n, 0) : node);
}

static bool allocate(const struct grammar_builder *b, struct units *u)
{
    const size_t count = (size_t)b->num_nodes;
    u->unit_of = table_new(count * sizeof *u->unit_of);
    u->is_nullable = calloc(count, sizeof *u->is_nullable);
    u->has_text = calloc(count, sizeof *u->has_text);
    u->has_bytes = calloc(count, sizeof *u->has_bytes);
    u->nodes = malloc(count * sizeof *u->nodes);
    u->order = malloc(count * sizeof *u->order);
    u->uses = calloc(count, sizeof *u->uses);
    u->sizes = calloc(count, sizeof *u->sizes);
    u->depths = calloc(count, sizeof *u->depths);
    return u->unit_of && u->is_nullable && u->has_text && u->has_bytes && u->nodes && u->order && u->uses && u->sizes &&
           u->depths;
}

enum status units_find(const struct grammar_builder *b, grammar_node root, struct units *u, struct error *err)
{
    *u = (struct units){0};
    if (!allocate(b, u)) return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for a grammar");
    make_unit(u, root);
    enum status status = order_nodes(b, root, u, err);
    if (status) return status;
    find_property(b, u, is_nullable, u->is_nullable);
    find_property(b, u, has_text, u->has_text);
    find_property(b, u, has_bytes, u->has_bytes);
    if (!u->has_text[root]) return error_set(err, STATUS_INVALID, "no text is in the grammar");
    for (int32_t i = 0; i < u->num_reached; i++) measure(b, u, u->order[i]);
    return STATUS_OK;
}

void units_free(struct units *u)
{
    free(u->unit_of);
    free(u->is_nullable);
    free(u->has_text);
    free(u->has_bytes);
    free(u->nodes);
    free(u->order);
    free(u->uses);
    free(u->sizes);
    free(u->depths);
    *u = (struct units){0};
}
