/* Thompson's construction (1968), and then sets of states that are taken together. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "tokenizer/grammar/regular_state.h"
#include "tokenizer/grammar/regular_syntax.h"

enum { MAX_NODES = 1 << 17 };

enum node_kind { NODE_SET, NODE_FORK, NODE_BEGIN, NODE_END, NODE_MATCH };

/* A state of the automaton that is not deterministic. */
struct node {
    enum node_kind kind;
    int32_t set;   /* of NODE_SET; ALL_CHARACTERS: every character */
    int32_t out;   /* where it leads to */
    int32_t other; /* of NODE_FORK: the other one; -1: none */
};
enum { ALL_CHARACTERS = -1 };

struct compiler {
    const struct regular_tree *tree;
    struct alphabet alphabet;
    bool *has; /* [num_sets, alphabet.num_classes]: the class is in the set */
    struct node *nodes;
    size_t num_nodes, node_capacity;
    int32_t rest; /* the node that takes all characters behind a match; -1: none */
    enum status status;

    /* The sets of nodes that are states: members[start[s]] .. members[start[s + 1] - 1], ascending. */
    int32_t *members;
    size_t num_members, member_capacity;
    size_t *start;
    size_t num_states, start_capacity;
    bool *ends; /* [num_states] */
    size_t ends_capacity;
    int32_t *next; /* [num_states, num_classes] */
    size_t next_capacity;
    int32_t *table; /* [table_size] numbers of states by their hash, -1: none */
    size_t table_size;
    size_t work, max_work;

    /* Scratch of a closure: nodes that were seen in this one, once for each `at_end`, and those still to look at. */
    uint32_t *seen[2];
    uint32_t round;
    int32_t *stack;
    int32_t *found; /* the set that is being made */
    size_t num_found;
};

static int32_t add_node(struct compiler *c, struct node node)
{
    if (c->status) return 0;
    if (c->num_nodes == MAX_NODES)
        c->status = STATUS_UNSUPPORTED;
    else if (!array_reserve(&c->nodes, &c->node_capacity, c->num_nodes + 1, sizeof *c->nodes))
        c->status = STATUS_OUT_OF_MEMORY;
    if (c->status) return 0;
    c->nodes[c->num_nodes] = node;
    return (int32_t)c->num_nodes++;
}

static int32_t add_part(struct compiler *c, int32_t index, int32_t out);

/* Children are linked forwards and nodes are made backwards, so that each knows where it leads to. */
static int32_t add_sequence(struct compiler *c, int32_t child, int32_t out)
{
    size_t count = 0;
    for (int32_t i = child; i; i = c->tree->parts[i].sibling) count++;
    int32_t *children = malloc((count + 1) * sizeof *children);
    if (!children) c->status = STATUS_OUT_OF_MEMORY;
    if (c->status) {
        free(children);
        return 0;
    }
    count = 0;
    for (int32_t i = child; i; i = c->tree->parts[i].sibling) children[count++] = i;
    while (count > 0) out = add_part(c, children[--count], out);
    free(children);
    return out;
}

static int32_t add_repeat(struct compiler *c, const struct regular_part *part, int32_t out)
{
    const int32_t end = out;
    if (part->most < 0) {
        const int32_t loop = add_node(c, (struct node){NODE_FORK, 0, -1, out});
        const int32_t body = add_part(c, part->child, loop);
        if (!c->status) c->nodes[loop].out = body;
        out = loop;
    }
    for (int32_t i = part->least; i < part->most && !c->status; i++)
        out = add_node(c, (struct node){NODE_FORK, 0, add_part(c, part->child, out), end});
    for (int32_t i = 0; i < part->least && !c->status; i++) out = add_part(c, part->child, out);
    return out;
}

/* The node from which a text of the part leads to `out`. */
static int32_t add_part(struct compiler *c, int32_t index, int32_t out)
{
    const struct regular_part *part = &c->tree->parts[index];
    int32_t all = -1;
    if (c->work++ > c->max_work) c->status = STATUS_UNSUPPORTED;
    if (c->status) return 0;
    switch (part->kind) {
    case REGULAR_SET:
        return add_node(c, (struct node){NODE_SET, part->set, out, -1});
    case REGULAR_BEGIN:
        return add_node(c, (struct node){NODE_BEGIN, 0, out, -1});
    case REGULAR_END:
        return add_node(c, (struct node){NODE_END, 0, out, -1});
    case REGULAR_SEQUENCE:
        return add_sequence(c, part->child, out);
    case REGULAR_REPEAT:
        return add_repeat(c, part, out);
    case REGULAR_CHOICE:
        break;
    }
    for (int32_t i = part->child; i && !c->status; i = c->tree->parts[i].sibling) {
        const int32_t one = add_part(c, i, out);
        all = all < 0 ? one : add_node(c, (struct node){NODE_FORK, 0, one, all});
    }
    return all;
}

/* All nodes; returns the first. With `search` any text may stand before and behind what matches. */
static int32_t add_nodes(struct compiler *c, bool search)
{
    const int32_t match = add_node(c, (struct node){NODE_MATCH, 0, -1, -1});
    if (!search) return add_part(c, c->tree->root, match);
    c->rest = add_node(c, (struct node){NODE_SET, ALL_CHARACTERS, -1, -1});
    const int32_t behind = add_node(c, (struct node){NODE_FORK, 0, c->rest, match});
    const int32_t before = add_node(c, (struct node){NODE_SET, ALL_CHARACTERS, -1, -1});
    const int32_t body = add_part(c, c->tree->root, behind);
    const int32_t start = add_node(c, (struct node){NODE_FORK, 0, before, body});
    if (c->status) return 0;
    c->nodes[c->rest].out = behind;
    c->nodes[before].out = start;
    return start;
}

static void visit(struct compiler *c, int32_t node, bool at_end, size_t *depth)
{
    if (node < 0 || c->seen[at_end][node] == c->round) return;
    c->seen[at_end][node] = c->round;
    c->stack[(*depth)++] = 2 * node + at_end;
}

/* Adds to `found` what can be reached from the node without a character. Beyond the end of the text no character is
 * taken: such nodes only say whether the text may end. Returns that. */
static bool close_over(struct compiler *c, int32_t from, bool at_start)
{
    size_t depth = 0;
    bool ends = false;
    visit(c, from, false, &depth);
    while (depth > 0) {
        const int32_t item = c->stack[--depth];
        const struct node *node = &c->nodes[item / 2];
        const bool at_end = item % 2;
        c->work++;
        switch (node->kind) {
        case NODE_SET:
            if (!at_end) c->found[c->num_found++] = item / 2;
            break;
        case NODE_FORK:
            visit(c, node->out, at_end, &depth);
            visit(c, node->other, at_end, &depth);
            break;
        case NODE_BEGIN:
            if (at_start) visit(c, node->out, at_end, &depth);
            break;
        case NODE_END:
            visit(c, node->out, true, &depth);
            break;
        case NODE_MATCH:
            ends = true;
            break;
        }
    }
    return ends;
}

static int compare_numbers(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static size_t state_slot(const struct compiler *c, const int32_t *set, size_t count, bool ends)
{
    uint64_t hash = ends;
    for (size_t i = 0; i < count; i++) hash = (hash ^ (uint32_t)set[i]) * UINT64_C(0x9E3779B97F4A7C15);
    size_t slot = (hash ^ hash >> 32) & (c->table_size - 1);
    for (; c->table[slot] >= 0; slot = (slot + 1) & (c->table_size - 1)) {
        const size_t s = (size_t)c->table[slot], length = c->start[s + 1] - c->start[s];
        if (length == count && c->ends[s] == ends &&
            (count == 0 || memcmp(c->members + c->start[s], set, count * sizeof *set) == 0))
            break;
    }
    return slot;
}

static bool grow_table(struct compiler *c)
{
    if (c->num_states * 2 < c->table_size) return true;
    const size_t size = c->table_size ? 2 * c->table_size : 256;
    int32_t *table = malloc(size * sizeof *table);
    if (!table) return false;
    memset(table, 0xFF, size * sizeof *table);
    free(c->table);
    c->table = table;
    c->table_size = size;
    for (size_t s = 0; s < c->num_states; s++)
        table[state_slot(c, c->members + c->start[s], c->start[s + 1] - c->start[s], c->ends[s])] = (int32_t)s;
    return true;
}

/* The state of the nodes found. Once the rest of a text does not matter, only that is remembered. */
static int32_t find_state(struct compiler *c, bool ends)
{
    if (c->rest >= 0 && c->seen[0][c->rest] == c->round) {
        c->found[0] = c->rest;
        c->num_found = 1;
        ends = true;
    }
    qsort(c->found, c->num_found, sizeof *c->found, compare_numbers);
    const size_t states = c->num_states + 1, num_members = c->num_members + c->num_found;
    if (!array_reserve(&c->start, &c->start_capacity, states + 1, sizeof *c->start) || !grow_table(c)) {
        c->status = STATUS_OUT_OF_MEMORY;
        return 0;
    }
    c->start[0] = 0;
    int32_t *number = &c->table[state_slot(c, c->found, c->num_found, ends)];
    if (*number >= 0) return *number;
    if (states > REGULAR_MAX_STATES || states * (size_t)c->alphabet.num_classes > REGULAR_MAX_TRANSITIONS)
        c->status = STATUS_UNSUPPORTED;
    else if (!array_reserve(&c->members, &c->member_capacity, num_members + 1, sizeof *c->members) ||
             !array_reserve(&c->ends, &c->ends_capacity, states, sizeof *c->ends) ||
             !array_reserve(&c->next, &c->next_capacity, states * (size_t)c->alphabet.num_classes, sizeof *c->next))
        c->status = STATUS_OUT_OF_MEMORY;
    if (c->status) return 0;
    memcpy(c->members + c->num_members, c->found, c->num_found * sizeof *c->found);
    c->num_members = num_members;
    c->start[states] = num_members;
    c->ends[c->num_states] = ends;
    *number = (int32_t)c->num_states++;
    return *number;
}

static int32_t follow(struct compiler *c, size_t state, int32_t class)
{
    bool ends = false;
    c->round++;
    c->num_found = 0;
    for (size_t i = c->start[state]; i < c->start[state + 1]; i++) {
        const struct node *node = &c->nodes[c->members[i]];
        c->work++;
        if (node->set == ALL_CHARACTERS || c->has[node->set * c->alphabet.num_classes + class])
            ends |= close_over(c, node->out, false);
    }
    if (c->work > c->max_work) c->status = STATUS_UNSUPPORTED;
    return c->status ? 0 : find_state(c, ends);
}

static void find_states(struct compiler *c, int32_t first)
{
    c->round = 1;
    const bool ends = close_over(c, first, true);
    find_state(c, ends);
    for (size_t s = 0; s < c->num_states && !c->status; s++) {
        for (int32_t class = 0; class < c->alphabet.num_classes && !c->status; class ++) {
            const int32_t to = follow(c, s, class);
            if (!c->status) c->next[s * (size_t)c->alphabet.num_classes + (size_t) class] = to;
        }
    }
}

/* Which classes are in which sets. */
static bool find_classes(struct compiler *c)
{
    const struct regular_tree *tree = c->tree;
    if (!alphabet_of_sets(&c->alphabet, tree->sets, tree->num_sets)) return false;
    const size_t num_classes = (size_t)c->alphabet.num_classes;
    c->has = calloc(tree->num_sets * num_classes + 1, sizeof *c->has);
    for (size_t s = 0; c->has && s < tree->num_sets; s++)
        for (int32_t i = 0, r = 0; i < c->alphabet.num_intervals; i++) {
            while (r < (int32_t)tree->sets[s].count && tree->sets[s].ranges[r].last < c->alphabet.first[i]) r++;
            if (r < (int32_t)tree->sets[s].count && tree->sets[s].ranges[r].first <= c->alphabet.first[i])
                c->has[s * num_classes + (size_t)c->alphabet.class_of[i]] = true;
        }
    return c->has != NULL;
}

static bool make_scratch(struct compiler *c)
{
    c->seen[0] = calloc(c->num_nodes, sizeof **c->seen);
    c->seen[1] = calloc(c->num_nodes, sizeof **c->seen);
    c->stack = malloc(2 * c->num_nodes * sizeof *c->stack);
    c->found = malloc(c->num_nodes * sizeof *c->found);
    return c->seen[0] && c->seen[1] && c->stack && c->found;
}

static void free_compiler(struct compiler *c)
{
    void *const arrays[] = {c->has,   c->nodes,   c->members, c->start, c->ends, c->next,
                            c->table, c->seen[0], c->seen[1], c->stack, c->found};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    alphabet_free(&c->alphabet);
}

static struct regular *automaton(struct compiler *c)
{
    struct regular *r = regular_new((int32_t)c->num_states, &c->alphabet);
    if (!r) return NULL;
    memcpy(r->next, c->next, c->num_states * (size_t)r->alphabet.num_classes * sizeof *r->next);
    memcpy(r->ends, c->ends, c->num_states * sizeof *r->ends);
    return regular_minimize(r);
}

enum status regular_compile(const struct regular_tree *tree, bool search, size_t *work, struct regular **out,
                            struct error *err)
{
    struct compiler c = {.tree = tree, .rest = -1, .max_work = *work};
    const int32_t first = add_nodes(&c, search);
    if (!c.status && (!find_classes(&c) || !make_scratch(&c))) c.status = STATUS_OUT_OF_MEMORY;
    if (!c.status) find_states(&c, first);
    *out = c.status ? NULL : automaton(&c);
    if (!c.status && !*out) c.status = STATUS_OUT_OF_MEMORY;
    free_compiler(&c);
    *work -= c.work < *work ? c.work : *work;
    if (c.status == STATUS_UNSUPPORTED)
        return error_set(err, c.status,
                         "the regular expression is too large: its automaton would have more than %d states",
                         REGULAR_MAX_STATES);
    return c.status ? error_set(err, c.status, "no memory for a regular expression") : STATUS_OK;
}
