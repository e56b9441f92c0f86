#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "tokenizer/grammar/builder_state.h"

enum {
    MAX_ITEMS = 1 << 26, /* bytes, ranges, children, states and edges, each */
    FIRST_NAME_SLOTS = 64,
    LAST_CHARACTER = 0x10FFFF,
    FIRST_SURROGATE = 0xD800,
    LAST_SURROGATE = 0xDFFF
};

/* Makes room for `more` elements behind the first `count`. */
static bool reserve(struct grammar_builder *b, void *data, size_t *capacity, size_t count, size_t more, size_t size)
{
    if (more > MAX_ITEMS || count + more > MAX_ITEMS) {
        b->too_large = true;
        return false;
    }
    if (array_reserve(data, capacity, count + more, size)) return true;
    b->out_of_memory = true;
    return false;
}

static grammar_node add_node(struct grammar_builder *b, struct node node)
{
    if (b->num_nodes == GRAMMAR_MAX_NODES) b->too_large = true;
    if (b->too_large || !reserve(b, &b->nodes, &b->node_capacity, (size_t)b->num_nodes, 1, sizeof *b->nodes)) return 0;
    b->nodes[b->num_nodes] = node;
    return b->num_nodes++;
}

struct grammar_builder *grammar_builder_create(void)
{
    struct grammar_builder *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    add_node(b, (struct node){.kind = NODE_NEVER});
    add_node(b, (struct node){.kind = NODE_EMPTY});
    if (b->num_nodes == 2) return b;
    grammar_builder_free(b);
    return NULL;
}

void grammar_builder_free(struct grammar_builder *b)
{
    if (!b) return;
    for (int32_t i = 0; i < b->num_rules; i++) free(b->rules[i].name);
    free(b->nodes);
    free(b->rules);
    free(b->bytes);
    free(b->ranges);
    free(b->children);
    free(b->states);
    free(b->edges);
    free(b->names);
    free(b);
}

/* ---- nodes ---- */

grammar_node grammar_never(struct grammar_builder *b)
{
    (void)b;
    return 0;
}

grammar_node grammar_empty(struct grammar_builder *b)
{
    (void)b;
    return 1;
}

grammar_node grammar_bytes(struct grammar_builder *b, const char *bytes, size_t length)
{
    if (length == 0) return grammar_empty(b);
    if (!reserve(b, &b->bytes, &b->byte_capacity, b->num_bytes, length, 1)) return 0;
    memcpy(b->bytes + b->num_bytes, bytes, length);
    b->num_bytes += length;
    return add_node(
        b, (struct node){.kind = NODE_BYTES, .first = (int32_t)(b->num_bytes - length), .count = (int32_t)length});
}

static int compare_ranges(const void *a, const void *b)
{
    const struct character_range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* Appends a range without the surrogates in it. */
static void append_range(struct grammar_builder *b, struct character_range r)
{
    if (r.last > LAST_CHARACTER) r.last = LAST_CHARACTER;
    if (r.first < FIRST_SURROGATE && r.last >= FIRST_SURROGATE) {
        b->ranges[b->num_ranges++] = (struct character_range){r.first, FIRST_SURROGATE - 1};
        r.first = FIRST_SURROGATE;
    }
    if (r.first >= FIRST_SURROGATE && r.first <= LAST_SURROGATE) r.first = LAST_SURROGATE + 1;
    if (r.first <= r.last) b->ranges[b->num_ranges++] = r;
}

grammar_node grammar_characters(struct grammar_builder *b, const struct character_range *ranges, int32_t count)
{
    const size_t first = b->num_ranges;
    if (count == 0) return grammar_never(b);
    if (!reserve(b, &b->ranges, &b->range_capacity, first, 2 * (size_t)count, sizeof *b->ranges)) return 0;
    for (int32_t i = 0; i < count; i++) append_range(b, ranges[i]);
    struct character_range *all = b->ranges + first;
    const size_t found = b->num_ranges - first;
    qsort(all, found, sizeof *all, compare_ranges);
    size_t kept = 0;
    for (size_t i = 0; i < found; i++) {
        if (kept && all[i].first <= all[kept - 1].last + 1) {
            if (all[i].last > all[kept - 1].last) all[kept - 1].last = all[i].last;
        } else {
            all[kept++] = all[i];
        }
    }
    b->num_ranges = first + kept;
    if (kept == 0) return grammar_never(b);
    return add_node(b, (struct node){.kind = NODE_CHARACTERS, .first = (int32_t)first, .count = (int32_t)kept});
}

static grammar_node add_parent(struct grammar_builder *b, enum node_kind kind, const grammar_node *parts, int32_t count)
{
    if (!reserve(b, &b->children, &b->child_capacity, b->num_children, (size_t)count, sizeof *b->children)) return 0;
    memcpy(b->children + b->num_children, parts, (size_t)count * sizeof *parts);
    b->num_children += (size_t)count;
    return add_node(b, (struct node){.kind = kind, .first = (int32_t)b->num_children - count, .count = count});
}

grammar_node grammar_sequence(struct grammar_builder *b, const grammar_node *parts, int32_t count)
{
    if (count == 0) return grammar_empty(b);
    return count == 1 ? parts[0] : add_parent(b, NODE_SEQUENCE, parts, count);
}

grammar_node grammar_choice(struct grammar_builder *b, const grammar_node *parts, int32_t count)
{
    if (count == 0) return grammar_never(b);
    return count == 1 ? parts[0] : add_parent(b, NODE_CHOICE, parts, count);
}

grammar_node grammar_repeat(struct grammar_builder *b, grammar_node part, int32_t least, int32_t most)
{
    if (most == 0) return grammar_empty(b);
    if (least == 1 && most == 1) return part;
    return add_node(b, (struct node){.kind = NODE_REPEAT, .first = part, .least = least, .most = most});
}

/* Appends the edges of a state: a run of bytes with the same target is one. */
static bool append_edges(struct grammar_builder *b, const int32_t *next)
{
    if (!reserve(b, &b->edges, &b->edge_capacity, b->num_edges, 256, sizeof *b->edges)) return false;
    for (int c = 0, last; c < 256; c = last + 1) {
        for (last = c; last < 255 && next[last + 1] == next[c];) last++;
        if (next[c] < 0) continue;
        b->edges[b->num_edges++] = (struct stored_edge){(uint8_t)c, (uint8_t)last, next[c]};
    }
    return true;
}

/* Whether a text of at least a byte leads to an end. `stack` and `is_reached` have room for all states. */
static bool reads_text(const struct grammar_automaton *a, int32_t *stack, bool *is_reached)
{
    int32_t depth = 0;
    stack[depth++] = 0;
    is_reached[0] = true;
    while (depth > 0) {
        const int32_t *next = a->next + (size_t)stack[--depth] * 256;
        for (int c = 0; c < 256; c++) {
            if (next[c] < 0) continue;
            if (a->ends[next[c]]) return true;
            if (!is_reached[next[c]]) stack[depth++] = next[c];
            is_reached[next[c]] = true;
        }
    }
    return false;
}

/* The node of an automaton that has at most the empty text; -1: it has others. */
static grammar_node without_bytes(struct grammar_builder *b, const struct grammar_automaton *a)
{
    if (a->num_states == 0) return grammar_never(b);
    int32_t *stack = malloc((size_t)a->num_states * sizeof *stack);
    bool *is_reached = calloc((size_t)a->num_states, sizeof *is_reached);
    grammar_node node = a->ends[0] ? grammar_empty(b) : grammar_never(b);
    if (!stack || !is_reached)
        b->out_of_memory = true;
    else if (reads_text(a, stack, is_reached))
        node = -1;
    free(stack);
    free(is_reached);
    return node;
}

grammar_node grammar_from_automaton(struct grammar_builder *b, const struct grammar_automaton *automaton)
{
    const size_t count = (size_t)automaton->num_states, first = b->num_states;
    const grammar_node node = without_bytes(b, automaton);
    if (node >= 0) return node;
    if (!reserve(b, &b->states, &b->state_capacity, first, count + 1, sizeof *b->states)) return 0;
    for (size_t s = 0; s < count; s++) {
        b->states[first + s] = (struct stored_state){(int32_t)b->num_edges, automaton->ends[s]};
        if (!append_edges(b, automaton->next + s * 256)) return 0;
    }
    b->states[first + count] = (struct stored_state){(int32_t)b->num_edges, false};
    b->num_states += count + 1;
    return add_node(b, (struct node){.kind = NODE_AUTOMATON, .first = (int32_t)first, .count = (int32_t)count});
}

/* ---- rules ---- */

static uint32_t hash_name(const char *name)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash;
}

/* The slot of this name, or the free one where it belongs. */
static int32_t *name_slot(const struct grammar_builder *b, const char *name)
{
    const uint32_t mask = (uint32_t)b->name_slots - 1;
    uint32_t i = hash_name(name) & mask;
    while (b->names[i] >= 0 && strcmp(b->rules[b->names[i]].name, name) != 0) i = (i + 1) & mask;
    return b->names + i;
}

/* Keeps the table of names at most half full. */
static bool reserve_name(struct grammar_builder *b)
{
    if (2 * (b->num_names + 1) <= b->name_slots) return true;
    int32_t *old = b->names;
    const int32_t old_slots = b->name_slots;
    const int32_t slots = old_slots ? 2 * old_slots : FIRST_NAME_SLOTS;
    b->names = table_new((size_t)slots * sizeof *b->names);
    if (!b->names) {
        b->names = old;
        b->out_of_memory = true;
        return false;
    }
    b->name_slots = slots;
    for (int32_t i = 0; i < old_slots; i++)
        if (old[i] >= 0) *name_slot(b, b->rules[old[i]].name) = old[i];
    free(old);
    return true;
}

int32_t grammar_rule(struct grammar_builder *b, const char *name)
{
    int32_t *slot = NULL;
    if (name && reserve_name(b)) slot = name_slot(b, name);
    if (slot && *slot >= 0) return *slot;
    if (b->num_rules == GRAMMAR_MAX_RULES) b->too_large = true;
    if (b->too_large || (name && !slot)) return -1;
    if (!reserve(b, &b->rules, &b->rule_capacity, (size_t)b->num_rules, 1, sizeof *b->rules)) return -1;
    struct rule *rule = &b->rules[b->num_rules];
    *rule = (struct rule){.name = name ? strdup(name) : NULL};
    if (name && !rule->name) {
        b->out_of_memory = true;
        return -1;
    }
    if (slot) {
        *slot = b->num_rules;
        b->num_names++;
    }
    return b->num_rules++;
}

grammar_node grammar_reference(struct grammar_builder *b, int32_t rule)
{
    if (rule < 0) return 0;
    return add_node(b, (struct node){.kind = NODE_REFERENCE, .first = rule});
}

void grammar_define(struct grammar_builder *b, int32_t rule, grammar_node node)
{
    if (rule < 0) return;
    b->rules[rule].node = node;
    b->rules[rule].is_defined = true;
}

bool grammar_is_defined(const struct grammar_builder *b, int32_t rule)
{
    return rule >= 0 && b->rules[rule].is_defined;
}
