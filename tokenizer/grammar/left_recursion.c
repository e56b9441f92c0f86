/* The left-corner transform. A *left call* leaves the start of an automaton. In a group of automata that left-call each
 * other, a text of A begins with a byte, or a call that leaves the group, from the start of some X. Then it goes on in
 * X to an end. There X is done: if it is A the text may end, and for each left call of X, by some Y, it goes on in Y
 * behind the call. So A becomes one automaton of copies of all those of the group. */
#include "tokenizer/grammar/left_recursion.h"

#include <stdlib.h>

enum { MAX_COPIES = 1 << 22 }; /* states of all copies */

struct groups {
    struct automaton *automata;
    int32_t count;
    int32_t *order, *low; /* [count] of Tarjan's algorithm; order -1: not met */
    int32_t *stack;       /* [count] automata without a group yet */
    int32_t *group_of;    /* [count] -1: none yet. A callee's group has the lower number, if it is another */
    int32_t *members;     /* [count] by group */
    int32_t *first;       /* [num_groups + 1] of its members */
    int32_t num_groups, num_met, depth, num_members;
    struct visit {
        int32_t automaton, call;
    } * visits; /* [count] */
};

static void enter(struct groups *g, int32_t *num_visits, int32_t automaton)
{
    g->order[automaton] = g->low[automaton] = g->num_met++;
    g->stack[g->depth++] = automaton;
    g->visits[(*num_visits)++] = (struct visit){automaton, 0};
}

static void lower(int32_t *low, int32_t value)
{
    if (value < *low) *low = value;
}

/* All that was met since the automaton, and has no group, is its group. */
static void close_group(struct groups *g, int32_t automaton)
{
    g->first[g->num_groups] = g->num_members;
    int32_t member;
    do {
        member = g->stack[--g->depth];
        g->group_of[member] = g->num_groups;
        g->members[g->num_members++] = member;
    } while (member != automaton);
    g->first[++g->num_groups] = g->num_members;
}

/* Tarjan's algorithm from an automaton that was not met. */
static void find_groups(struct groups *g, int32_t root)
{
    int32_t num_visits = 0;
    enter(g, &num_visits, root);
    while (num_visits > 0) {
        struct visit *v = &g->visits[num_visits - 1];
        const int32_t at = v->automaton;
        const struct automaton *a = &g->automata[at];
        if (v->call < a->states[1].first_call) {
            const int32_t callee = a->calls[v->call++].unit;
            if (g->order[callee] < 0)
                enter(g, &num_visits, callee);
            else if (g->group_of[callee] < 0)
                lower(&g->low[at], g->order[callee]);
            continue;
        }
        num_visits--;
        if (num_visits > 0) lower(&g->low[g->visits[num_visits - 1].automaton], g->low[at]);
        if (g->low[at] == g->order[at]) close_group(g, at);
    }
}

/* ---- the transform ---- */

/* Where the copies of a group's automata begin. */
struct copies {
    const struct groups *groups;
    int32_t group;
    struct nfa *nfa;
    int32_t *offsets; /* [groups->count] */
};

static bool in_group(const struct copies *c, int32_t automaton)
{
    return c->groups->group_of[automaton] == c->group;
}

/* Copies what leaves state s of an automaton, to start from `from`; left calls within the group are left out. */
static void copy_state(const struct copies *c, int32_t automaton, size_t s, int32_t from)
{
    const struct automaton *a = &c->groups->automata[automaton];
    const int32_t offset = c->offsets[automaton];
    for (int32_t e = a->states[s].first_edge; e < a->states[s + 1].first_edge; e++)
        nfa_add_bytes(c->nfa, from, offset + a->edges[e].target, a->edges[e].first, a->edges[e].last);
    for (int32_t i = a->states[s].first_call; i < a->states[s + 1].first_call; i++) {
        const struct automaton_call *call = &a->calls[i];
        if (s > 0 || !in_group(c, call->unit))
            nfa_add_call(c->nfa, from, offset + call->target, call->unit, call->least, call->most);
    }
}

/* From where `callee` is done to behind a left call of it. Of a repetition the first copy is done. */
static void go_on(const struct copies *c, int32_t done, const struct automaton_call *call, int32_t behind)
{
    if (call->least == 1) nfa_add_empty(c->nfa, done, behind);
    if (call->most == 1) return;
    const int32_t most = call->most == GRAMMAR_UNBOUNDED ? GRAMMAR_UNBOUNDED : call->most - 1;
    nfa_add_call(c->nfa, done, behind, call->unit, call->least > 1 ? call->least - 1 : 1, most);
}

/* The text of automaton `target` of the group. */
static void build_copies(const struct copies *c, int32_t target)
{
    const struct groups *g = c->groups;
    nfa_begin(c->nfa);
    for (int32_t m = g->first[c->group]; m < g->first[c->group + 1]; m++) {
        const int32_t x = g->members[m];
        c->offsets[x] = nfa_state(c->nfa); /* the place of x's start is where x is done */
        for (size_t s = 1; s < g->automata[x].num_states; s++) nfa_state(c->nfa);
    }
    nfa_add_empty(c->nfa, c->offsets[target], c->nfa->end);
    for (int32_t m = g->first[c->group]; m < g->first[c->group + 1] && !c->nfa->failed; m++) {
        const int32_t x = g->members[m], offset = c->offsets[x];
        const struct automaton *a = &g->automata[x];
        copy_state(c, x, 0, c->nfa->start);
        for (size_t s = 1; s < a->num_states; s++) {
            copy_state(c, x, s, offset + (int32_t)s);
            if (a->states[s].ends) nfa_add_empty(c->nfa, offset + (int32_t)s, offset);
        }
        for (int32_t i = 0; i < a->states[1].first_call; i++) {
            const struct automaton_call *call = &a->calls[i];
            if (in_group(c, call->unit)) go_on(c, c->offsets[call->unit], call, offset + call->target);
        }
    }
}

static bool is_recursive(const struct groups *g, int32_t group)
{
    if (g->first[group + 1] - g->first[group] > 1) return true;
    const int32_t only = g->members[g->first[group]];
    const struct automaton *a = &g->automata[only];
    for (int32_t i = 0; i < a->states[1].first_call; i++)
        if (a->calls[i].unit == only) return true;
    return false;
}

/* Replaces the automata of a group. */
static enum status transform(const struct groups *g, int32_t group, struct nfa *nfa, int32_t *offsets,
                             struct error *err)
{
    const int32_t first = g->first[group], count = g->first[group + 1] - first;
    const struct copies c = {g, group, nfa, offsets};
    struct automaton *made = calloc((size_t)count, sizeof *made);
    if (!made) return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for a grammar");
    enum status status = STATUS_OK;
    size_t total = 0;
    for (int32_t i = 0; i < count; i++) total += g->automata[g->members[first + i]].num_states;
    if (total * (size_t)count > MAX_COPIES)
        status = error_set(err, STATUS_UNSUPPORTED, "the grammar has too many rules that begin with each other");
    for (int32_t i = 0; i < count && !status; i++) {
        build_copies(&c, g->members[first + i]);
        status = nfa_determinize(nfa, &made[i], err);
        if (!status) status = automaton_trim(&made[i], err);
    }
    for (int32_t i = 0; i < count; i++) {
        if (status) {
            automaton_free(&made[i]);
        } else {
            automaton_free(&g->automata[g->members[first + i]]);
            g->automata[g->members[first + i]] = made[i];
        }
    }
    free(made);
    return status;
}

static enum status transform_all(struct groups *g, struct error *err)
{
    int32_t *offsets = malloc((size_t)g->count * sizeof *offsets);
    struct nfa nfa = {0};
    enum status status = offsets ? STATUS_OK : error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for a grammar");
    for (int32_t i = 0; i < g->num_groups && !status; i++)
        if (is_recursive(g, i)) status = transform(g, i, &nfa, offsets, err);
    nfa_free(&nfa);
    free(offsets);
    return status;
}

enum status left_recursion_remove(struct automaton *automata, int32_t count, int32_t *ranks, struct error *err)
{
    const size_t n = (size_t)count + 1;
    struct groups g = {.automata = automata, .count = count};
    int32_t *numbers = malloc(6 * n * sizeof *numbers);
    g.visits = malloc(n * sizeof *g.visits);
    enum status status = STATUS_OK;
    if (!numbers || !g.visits) {
        status = error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for a grammar");
    } else {
        g.order = numbers, g.low = numbers + n, g.stack = numbers + 2 * n;
        g.group_of = numbers + 3 * n, g.members = numbers + 4 * n, g.first = numbers + 5 * n;
        for (int32_t i = 0; i < count; i++) g.order[i] = g.group_of[i] = -1;
        for (int32_t i = 0; i < count; i++)
            if (g.order[i] < 0) find_groups(&g, i);
        status = transform_all(&g, err);
        for (int32_t i = 0; i < count; i++) ranks[i] = g.num_groups - 1 - g.group_of[i];
    }
    free(numbers);
    free(g.visits);
    return status;
}
