/* The subset construction. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "tokenizer/grammar/nfa.h"

enum { FIRST_SLOTS = 256 };

/* Targets of an automaton in the making are numbers of sets of states of the NFA. */
struct subsets {
    const struct nfa *nfa;
    struct automaton *out;
    int32_t *members; /* of all sets, end to end, each in order */
    size_t num_members, member_capacity;
    struct set {
        size_t first;
        int32_t count;
        uint32_t hash;
    } * sets; /* [num_sets]; the first is the start, and is not in the table */
    size_t num_sets, set_capacity;
    int32_t *slots; /* hash table of sets, -1: free */
    size_t num_slots;
    uint32_t *marks; /* [nfa->num_states] the last round that met a state */
    uint32_t round;
    int32_t *stack; /* [nfa->num_states] */
    int32_t *found; /* [nfa->num_states] the set in the making */
    int32_t num_found;
    bool singles; /* each state of the NFA is a set */
    bool failed;
};

static bool is_important(const struct nfa *n, int32_t state)
{
    if (state == n->end) return true;
    for (int32_t e = n->edges_of[state]; e >= 0; e = n->edges[e].next)
        if (n->edges[e].unit != NFA_EMPTY) return true;
    return false;
}

static void mark(struct subsets *s, int32_t state, int32_t *depth)
{
    if (s->marks[state] == s->round) return;
    s->marks[state] = s->round;
    s->stack[(*depth)++] = state;
}

/* Adds what a state reaches by reading nothing to the set in the making. */
static void add_closure(struct subsets *s, int32_t state)
{
    const struct nfa *n = s->nfa;
    int32_t depth = 0;
    mark(s, state, &depth);
    while (depth > 0) {
        state = s->stack[--depth];
        if (is_important(n, state)) s->found[s->num_found++] = state;
        for (int32_t e = n->edges_of[state]; e >= 0; e = n->edges[e].next)
            if (n->edges[e].unit == NFA_EMPTY) mark(s, n->edges[e].target, &depth);
    }
}

static void begin_set(struct subsets *s)
{
    s->round++;
    s->num_found = 0;
}

static int compare_int32(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static uint32_t hash_found(const struct subsets *s)
{
    uint64_t hash = 0;
    for (int32_t i = 0; i < s->num_found; i++)
        hash = (hash ^ (uint32_t)s->found[i]) * 0x9E3779B97F4A7C15u, hash ^= hash >> 32;
    return (uint32_t)hash;
}

/* Appends the set in the making; false: no memory. */
static bool append_set(struct subsets *s, uint32_t hash)
{
    const size_t count = (size_t)s->num_found;
    if (!array_reserve(&s->sets, &s->set_capacity, s->num_sets + 1, sizeof *s->sets) ||
        !array_reserve(&s->members, &s->member_capacity, s->num_members + count, sizeof *s->members)) {
        s->failed = true;
        return false;
    }
    s->sets[s->num_sets++] = (struct set){s->num_members, s->num_found, hash};
    if (count) memcpy(s->members + s->num_members, s->found, count * sizeof *s->members);
    s->num_members += count;
    return true;
}

static bool grow_slots(struct subsets *s)
{
    const size_t count = s->num_slots ? 2 * s->num_slots : FIRST_SLOTS;
    int32_t *slots = table_new(count * sizeof *slots);
    if (!slots) {
        s->failed = true;
        return false;
    }
    for (size_t i = 1; i < s->num_sets; i++) {
        size_t at = s->sets[i].hash & (count - 1);
        while (slots[at] >= 0) at = (at + 1) & (count - 1);
        slots[at] = (int32_t)i;
    }
    free(s->slots);
    s->slots = slots;
    s->num_slots = count;
    return true;
}

/* The number of the set in the making; -1: no memory. */
static int32_t intern_found(struct subsets *s)
{
    if (2 * s->num_sets >= s->num_slots && !grow_slots(s)) return -1;
    qsort(s->found, (size_t)s->num_found, sizeof *s->found, compare_int32);
    const uint32_t hash = hash_found(s);
    size_t at = hash & (s->num_slots - 1);
    for (; s->slots[at] >= 0; at = (at + 1) & (s->num_slots - 1)) {
        const struct set *set = &s->sets[s->slots[at]];
        if (set->hash == hash && set->count == s->num_found &&
            memcmp(s->members + set->first, s->found, (size_t)s->num_found * sizeof *s->found) == 0)
            return s->slots[at];
    }
    if (!append_set(s, hash)) return -1;
    return s->slots[at] = (int32_t)s->num_sets - 1;
}

/* ---- the edges of a set ---- */

struct edge_list {
    const struct nfa_edge **edges;
    size_t count, capacity;
};

/* Adds an edge that reads bytes first .. last and leads to the targets. */
static void add_bytes(struct subsets *s, int first, int last, const int32_t *targets, int32_t count)
{
    struct automaton *out = s->out;
    begin_set(s);
    for (int32_t i = 0; i < count; i++) add_closure(s, targets[i]);
    const int32_t target = intern_found(s);
    if (target < 0) return;
    struct automaton_edge *before =
        out->num_edges > (size_t)out->states[out->num_states - 1].first_edge ? &out->edges[out->num_edges - 1] : NULL;
    if (before && before->target == target && before->last + 1 == first)
        before->last = (uint8_t)last;
    else if (!automaton_add_edge(out, (uint8_t)first, (uint8_t)last, target))
        s->failed = true;
}

/* Adds the edges that read bytes: one for each run of bytes that the same edges of the NFA read. */
static void add_all_bytes(struct subsets *s, const struct edge_list *list, int32_t *targets)
{
    bool cuts[257] = {false};
    for (size_t i = 0; i < list->count; i++) {
        if (s->singles) add_bytes(s, list->edges[i]->first, list->edges[i]->last, &list->edges[i]->target, 1);
        cuts[list->edges[i]->first] = cuts[list->edges[i]->last + 1] = true;
    }
    for (int first = 0, last; !s->singles && first < 256; first = last + 1) {
        int32_t count = 0;
        for (last = first; last < 255 && !cuts[last + 1];) last++;
        for (size_t i = 0; i < list->count; i++)
            if (list->edges[i]->first <= first && list->edges[i]->last >= first)
                targets[count++] = list->edges[i]->target;
        if (count) add_bytes(s, first, last, targets, count);
    }
}

static int compare_calls(const void *a, const void *b)
{
    const struct nfa_edge *x = *(const struct nfa_edge *const *)a, *y = *(const struct nfa_edge *const *)b;
    if (x->unit != y->unit) return x->unit < y->unit ? -1 : 1;
    if (x->least != y->least) return x->least < y->least ? -1 : 1;
    return (x->most > y->most) - (x->most < y->most);
}

/* Adds the edges that call: one for each unit and counts. */
static void add_all_calls(struct subsets *s, const struct edge_list *list)
{
    if (list->count > 0) qsort(list->edges, list->count, sizeof *list->edges, compare_calls);
    for (size_t i = 0, next; i < list->count; i = next) {
        const struct nfa_edge *edge = list->edges[i];
        begin_set(s);
        for (next = i; next < list->count && compare_calls(&list->edges[i], &list->edges[next]) == 0; next++) {
            if (s->singles && next > i) break;
            add_closure(s, list->edges[next]->target);
        }
        const int32_t target = intern_found(s);
        if (target >= 0 &&
            !automaton_add_call(s->out, (struct automaton_call){edge->unit, target, edge->least, edge->most}))
            s->failed = true;
    }
}

/* Lists the edges of the members of set i that read bytes, or that call. */
static void list_edges(struct subsets *s, size_t i, bool calls, struct edge_list *list)
{
    const struct set set = s->sets[i];
    list->count = 0;
    for (int32_t m = 0; m < set.count; m++) {
        for (int32_t e = s->nfa->edges_of[s->members[set.first + (size_t)m]]; e >= 0; e = s->nfa->edges[e].next) {
            const struct nfa_edge *edge = &s->nfa->edges[e];
            if (edge->unit == NFA_EMPTY || calls != (edge->unit >= 0)) continue;
            if (!array_reserve(&list->edges, &list->capacity, list->count + 1, sizeof *list->edges)) {
                s->failed = true;
                return;
            }
            list->edges[list->count++] = edge;
        }
    }
}

static bool set_ends(const struct subsets *s, size_t i)
{
    for (int32_t m = 0; m < s->sets[i].count; m++)
        if (s->members[s->sets[i].first + (size_t)m] == s->nfa->end) return i != 0;
    return false;
}

/* Makes the states of out from the sets; false: it becomes much larger than the NFA, or memory ran out. */
static bool expand_sets(struct subsets *s, size_t max_sets, size_t max_members)
{
    struct edge_list list = {0};
    int32_t *targets = malloc((s->nfa->num_edges + 1) * sizeof *targets);
    if (!targets) s->failed = true;
    bool fits = true;
    for (size_t i = 0; i < s->num_sets && !s->failed && fits; i++) {
        if (!automaton_add_state(s->out, set_ends(s, i))) s->failed = true;
        if (!s->failed) list_edges(s, i, false, &list);
        if (!s->failed) add_all_bytes(s, &list, targets);
        if (!s->failed) list_edges(s, i, true, &list);
        if (!s->failed) add_all_calls(s, &list);
        fits = s->num_sets <= max_sets && s->num_members <= max_members && s->out->num_edges <= max_members;
    }
    free(targets);
    free(list.edges);
    return fits && !s->failed;
}

/* `singles`: what an edge leads to is the closure of one state, so that there are no more sets than states. */
static bool make_sets(const struct nfa *n, bool singles, struct automaton *out, bool *failed)
{
    const size_t most = n->num_states;
    struct subsets s = {.nfa = n, .out = out, .singles = singles};
    s.marks = calloc(most, sizeof *s.marks);
    s.stack = malloc(most * sizeof *s.stack);
    s.found = malloc(most * sizeof *s.found);
    bool done = false;
    if (!s.marks || !s.stack || !s.found) {
        s.failed = true;
    } else {
        begin_set(&s);
        add_closure(&s, n->start);
        done = append_set(&s, 0) && expand_sets(&s, singles ? SIZE_MAX : 4 * most + 1024, 64 * most + (1 << 20));
    }
    free(s.members);
    free(s.sets);
    free(s.slots);
    free(s.marks);
    free(s.stack);
    free(s.found);
    *failed = s.failed;
    return done;
}

enum status nfa_determinize(const struct nfa *n, struct automaton *out, struct error *err)
{
    *out = (struct automaton){0};
    bool failed = n->failed;
    if (!failed && make_sets(n, false, out, &failed)) return STATUS_OK;
    automaton_free(out);
    if (!failed && make_sets(n, true, out, &failed)) return STATUS_OK;
    automaton_free(out);
    if (failed) return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for a grammar");
    return error_set(err, STATUS_UNSUPPORTED, "the grammar is too large");
}
