#include "tokenizer/grammar/compile.h"

struct compiler {
    const struct grammar_builder *b;
    const struct units *u;
    struct nfa *n;
};

static void add_node(const struct compiler *c, grammar_node node, int32_t from, int32_t to);

static void add_sequence(const struct compiler *c, const struct node *node, int32_t from, int32_t to)
{
    for (int32_t i = 0; i < node->count; i++) {
        const int32_t next = i == node->count - 1 ? to : nfa_state(c->n);
        add_node(c, c->b->children[node->first + i], from, next);
        from = next;
    }
}

static void add_literal(const struct compiler *c, const struct node *node, int32_t from, int32_t to)
{
    for (int32_t i = 0; i < node->count; i++) {
        const int32_t next = i == node->count - 1 ? to : nfa_state(c->n);
        const uint8_t byte = (uint8_t)c->b->bytes[node->first + i];
        nfa_add_bytes(c->n, from, next, byte, byte);
        from = next;
    }
}

static void add_loop(const struct compiler *c, grammar_node part, int32_t from, int32_t to)
{
    const int32_t loop = nfa_state(c->n), end = nfa_state(c->n);
    nfa_add_empty(c->n, from, loop);
    add_node(c, part, loop, end);
    nfa_add_empty(c->n, end, loop);
    nfa_add_empty(c->n, loop, to);
}

/* Each copy after the least may be the last. */
static void add_copies(const struct compiler *c, const struct node *node, int32_t from, int32_t to)
{
    const bool is_bounded = node->most != GRAMMAR_UNBOUNDED;
    const int32_t copies = is_bounded ? node->most : node->least;
    for (int32_t i = 0; i < copies; i++) {
        const int32_t next = nfa_state(c->n);
        if (i >= node->least) nfa_add_empty(c->n, from, to);
        add_node(c, node->first, from, next);
        from = next;
    }
    if (is_bounded)
        nfa_add_empty(c->n, from, to);
    else
        add_loop(c, node->first, from, to);
}

static void add_call(const struct compiler *c, int32_t unit, int32_t from, int32_t to, int32_t least, int32_t most)
{
    const grammar_node node = c->u->nodes[unit];
    if (c->u->is_nullable[node]) least = 0;
    if (least == 0) {
        nfa_add_empty(c->n, from, to);
        least = 1;
    }
    if (c->u->has_bytes[node]) nfa_add_call(c->n, from, to, unit, least, most);
}

static void add_repeat(const struct compiler *c, const struct node *node, int32_t from, int32_t to)
{
    const int32_t unit = c->u->unit_of[node->first];
    if (!c->u->has_text[node->first])
        nfa_add_empty(c->n, from, to); /* not once */
    else if (units_unrolls(c->u, node))
        add_copies(c, node, from, to);
    else if (node->most != GRAMMAR_UNBOUNDED)
        add_call(c, unit, from, to, node->least, node->most);
    else {
        const int32_t next = nfa_state(c->n);
        add_call(c, unit, from, next, node->least, node->least);
        add_loop(c, node->first, next, to);
    }
}

static void add_automaton(const struct compiler *c, const struct node *node, int32_t from, int32_t to)
{
    int32_t first = nfa_state(c->n);
    for (int32_t s = 1; s < node->count; s++) nfa_state(c->n);
    nfa_add_empty(c->n, from, first);
    for (int32_t s = 0; s < node->count && !c->n->failed; s++) {
        const struct stored_state *state = &c->b->states[node->first + s];
        for (int32_t e = state[0].first_edge; e < state[1].first_edge; e++) {
            const struct stored_edge *edge = &c->b->edges[e];
            nfa_add_bytes(c->n, first + s, first + edge->target, edge->first, edge->last);
        }
        if (state->ends) nfa_add_empty(c->n, first + s, to);
    }
}

/* Adds the node itself, which may be a unit. */
static void add_body(const struct compiler *c, grammar_node node, int32_t from, int32_t to)
{
    const struct node *n = &c->b->nodes[node];
    switch (n->kind) {
    case NODE_NEVER:
        return;
    case NODE_EMPTY:
        nfa_add_empty(c->n, from, to);
        return;
    case NODE_BYTES:
        add_literal(c, n, from, to);
        return;
    case NODE_CHARACTERS:
        for (int32_t i = 0; i < n->count; i++) nfa_add_characters(c->n, from, to, c->b->ranges[n->first + i]);
        return;
    case NODE_SEQUENCE:
        add_sequence(c, n, from, to);
        return;
    case NODE_CHOICE:
        for (int32_t i = 0; i < n->count; i++) add_node(c, c->b->children[n->first + i], from, to);
        return;
    case NODE_REPEAT:
        add_repeat(c, n, from, to);
        return;
    case NODE_AUTOMATON:
        add_automaton(c, n, from, to);
        return;
    case NODE_REFERENCE:
        add_node(c, c->b->rules[n->first].node, from, to);
        return;
    }
}

static void add_node(const struct compiler *c, grammar_node node, int32_t from, int32_t to)
{
    const int32_t unit = c->u->unit_of[node];
    if (c->n->failed || !c->u->has_text[node]) return;
    if (unit < 0)
        add_body(c, node, from, to);
    else
        add_call(c, unit, from, to, 1, 1);
}

void compile_unit(const struct grammar_builder *b, const struct units *u, int32_t unit, struct nfa *n)
{
    const struct compiler c = {b, u, n};
    nfa_begin(n);
    if (u->has_text[u->nodes[unit]]) add_body(&c, u->nodes[unit], n->start, n->end);
}
