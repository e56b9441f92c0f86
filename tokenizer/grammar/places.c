/* How a pushdown makes its places. A place in the making is a set of configurations to which those are added that need
 * no byte: where a unit is done, what it returns to; and where a unit is called, its start. All calls of a unit share
 * one stack, so they are collected, and units begin in the order of their ranks. Units read at least a byte, so none is
 * done at the place where it began. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "tokenizer/grammar/pushdown_state.h"

enum { FIRST_SLOTS = 256, MAX_CONFIGURATIONS = 1 << 20 /* of a place: with more it counts as out of memory */ };

static bool grow_seen(struct pushdown *p)
{
    const size_t count = p->maker.seen_slots ? 2 * p->maker.seen_slots : FIRST_SLOTS, old_count = p->maker.seen_slots;
    struct seen *old = p->maker.seen, *seen = calloc(count, sizeof *seen);
    if (!seen || count > (size_t)MAX_CONFIGURATIONS) {
        free(seen);
        p->failed = true;
        return false;
    }
    for (size_t i = 0; i < old_count; i++) {
        if (old[i].round != p->maker.round) continue;
        size_t at = hash_mix((uint32_t)old[i].configuration.state, old[i].configuration.stack->number) & (count - 1);
        while (seen[at].round == p->maker.round) at = (at + 1) & (count - 1);
        seen[at] = old[i];
    }
    free(old);
    p->maker.seen = seen;
    p->maker.seen_slots = count;
    return true;
}

/* Puts a configuration to work, if it is new in this round. */
static void visit(struct pushdown *p, int32_t state, const struct stack *stack)
{
    if (!stack || (2 * (p->maker.num_seen + 1) > p->maker.seen_slots && !grow_seen(p))) return;
    size_t at = hash_mix((uint32_t)state, stack->number) & (p->maker.seen_slots - 1);
    for (; p->maker.seen[at].round == p->maker.round; at = (at + 1) & (p->maker.seen_slots - 1))
        if (p->maker.seen[at].configuration.state == state && p->maker.seen[at].configuration.stack == stack) return;
    const struct configuration c = {state, stack};
    if (!array_reserve(&p->maker.work, &p->maker.work_capacity, p->maker.num_work + 1, sizeof *p->maker.work)) {
        p->failed = true;
        return;
    }
    p->maker.seen[at] = (struct seen){c, p->maker.round};
    p->maker.num_seen++;
    p->maker.work[p->maker.num_work++] = c;
}

static int32_t rank_of(const struct pushdown *p, int32_t unit)
{
    return p->grammar->units[unit].rank;
}

static void push_heap(struct pushdown *p, int32_t unit)
{
    int32_t at = p->maker.heap_size++;
    for (; at > 0 && rank_of(p, p->maker.heap[(at - 1) / 2]) > rank_of(p, unit); at = (at - 1) / 2)
        p->maker.heap[at] = p->maker.heap[(at - 1) / 2];
    p->maker.heap[at] = unit;
}

static int32_t pop_heap(struct pushdown *p)
{
    const int32_t top = p->maker.heap[0], moved = p->maker.heap[--p->maker.heap_size];
    int32_t at = 0;
    for (int32_t next; (next = 2 * at + 1) < p->maker.heap_size; at = next) {
        if (next + 1 < p->maker.heap_size && rank_of(p, p->maker.heap[next + 1]) < rank_of(p, p->maker.heap[next]))
            next++;
        if (rank_of(p, p->maker.heap[next]) >= rank_of(p, moved)) break;
        p->maker.heap[at] = p->maker.heap[next];
    }
    p->maker.heap[at] = moved;
    return top;
}

static void add_call(struct pushdown *p, int32_t unit, struct stack_entry entry)
{
    if (!array_reserve(&p->maker.pending, &p->maker.pending_capacity, p->maker.num_pending + 1,
                       sizeof *p->maker.pending)) {
        p->failed = true;
        return;
    }
    if (p->maker.pending_of[unit] < 0) push_heap(p, unit);
    p->maker.pending[p->maker.num_pending] = (struct pending){p->maker.pending_of[unit], entry};
    p->maker.pending_of[unit] = (int32_t)p->maker.num_pending++;
}

static bool is_counted(const struct automaton_call *call)
{
    return call->least != 1 || call->most != 1;
}

/* The unit on top of the stack is done. */
static void pop(struct pushdown *p, const struct stack *stack)
{
    for (int32_t i = 0; i < stack->num_entries; i++) {
        struct stack_entry entry = stack->entries[i];
        if (entry.call == STACK_BOTTOM) {
            p->maker.may_end = true;
            continue;
        }
        const struct automaton_call *call = &p->grammar->automaton.calls[entry.call];
        if (entry.count == 0 || entry.count >= call->least) visit(p, call->target, entry.below);
        if (entry.count == 0 || entry.count >= call->most) continue;
        entry.count++;
        add_call(p, call->unit, entry);
    }
}

static void make_calls(struct pushdown *p, struct configuration c)
{
    const struct automaton *a = &p->grammar->automaton;
    const struct automaton_state *state = &a->states[c.state];
    for (int32_t i = state[0].first_call; i < state[1].first_call; i++) {
        const struct automaton_call *call = &a->calls[i];
        if (grammar_is_tail(p->grammar, call)) {
            for (int32_t e = 0; e < c.stack->num_entries; e++) add_call(p, call->unit, c.stack->entries[e]);
        } else {
            add_call(p, call->unit, (struct stack_entry){i, is_counted(call), c.stack});
        }
    }
}

/* Looks at all that was put to work. */
static void work(struct pushdown *p)
{
    while (p->maker.num_work > 0 && !p->failed) {
        const struct configuration c = p->maker.work[--p->maker.num_work];
        const struct automaton_state *state = &p->grammar->automaton.states[c.state];
        if (state[0].ends) pop(p, c.stack);
        make_calls(p, c);
        if (state[0].first_edge == state[1].first_edge) continue;
        if (!array_reserve(&p->maker.met, &p->maker.met_capacity, p->maker.num_met + 1, sizeof *p->maker.met))
            p->failed = true;
        else
            p->maker.met[p->maker.num_met++] = c;
    }
}

/* Begins the unit on top of one stack with all the entries that wait for it. */
static void begin_unit(struct pushdown *p, int32_t unit)
{
    size_t count = 0;
    for (int32_t i = p->maker.pending_of[unit]; i >= 0; i = p->maker.pending[i].next) {
        if (!array_reserve(&p->maker.entries, &p->maker.entry_capacity, count + 1, sizeof *p->maker.entries)) {
            p->failed = true;
            return;
        }
        p->maker.entries[count++] = p->maker.pending[i].entry;
    }
    p->maker.pending_of[unit] = -1;
    visit(p, p->grammar->units[unit].start, pushdown_intern_stack(p, p->maker.entries, count));
}

static void begin_place(struct pushdown *p)
{
    p->maker.num_work = p->maker.num_met = p->maker.num_seen = p->maker.num_pending = 0;
    p->maker.may_end = p->failed = false;
    if (++p->maker.round == 0) { /* it has gone round */
        if (p->maker.seen_slots) memset(p->maker.seen, 0, p->maker.seen_slots * sizeof *p->maker.seen);
        p->maker.round = 1;
    }
}

/* The place of what was put to work. */
static struct place *finish_place(struct pushdown *p)
{
    work(p);
    while (p->maker.heap_size > 0 && !p->failed) {
        begin_unit(p, pop_heap(p));
        work(p);
    }
    if (!p->failed) return pushdown_intern_place(p, p->maker.met, p->maker.num_met, p->maker.may_end);
    for (int32_t i = 0; i < p->grammar->num_units; i++) p->maker.pending_of[i] = -1;
    p->maker.heap_size = 0;
    return NULL;
}

/* ---- places ---- */

struct place *pushdown_pop(struct pushdown *p, const struct stack *stack)
{
    struct stack *s = (struct stack *)stack; /* its place is kept in it */
    struct place *place = atomic_load_explicit(&s->popped, memory_order_acquire);
    if (place) return place;
    pthread_mutex_lock(&p->lock);
    begin_place(p);
    pop(p, stack);
    place = finish_place(p);
    if (place) atomic_store_explicit(&s->popped, place, memory_order_release);
    pthread_mutex_unlock(&p->lock);
    return place;
}

/* Puts what the byte leads to from a configuration to work, and narrows the bytes first .. last to those that lead to
 * the same. */
static void step(struct pushdown *p, struct configuration c, int byte, int *first, int *last)
{
    const struct automaton *a = &p->grammar->automaton;
    const struct automaton_state *state = &a->states[c.state];
    for (int32_t e = state[0].first_edge; e < state[1].first_edge; e++) {
        const struct automaton_edge *edge = &a->edges[e];
        int low = 0, high = 255;
        if (edge->last < byte)
            low = edge->last + 1;
        else if (edge->first > byte)
            high = edge->first - 1;
        else {
            low = edge->first, high = edge->last;
            visit(p, edge->target, c.stack);
        }
        if (low > *first) *first = low;
        if (high < *last) *last = high;
    }
}

/* The row of a place, where bytes lead; NULL: no memory. */
static struct place_row *row_of(struct pushdown *p, struct place *at)
{
    struct place_row *row = atomic_load_explicit(&at->row, memory_order_relaxed);
    if (row) return row;
    const size_t bytes = sizeof *row + (size_t)p->grammar->num_byte_classes * sizeof *row->next;
    row = pushdown_take(p, bytes);
    if (!row) return NULL;
    memset(row, 0, bytes);
    row->classes = p->grammar->byte_classes;
    atomic_store_explicit(&at->row, row, memory_order_release);
    return row;
}

struct place *pushdown_find_step(struct pushdown *p, struct place *from, uint8_t byte)
{
    pthread_mutex_lock(&p->lock);
    begin_place(p);
    int first = 0, last = 255;
    for (int32_t i = 0; i < from->num_configurations; i++) step(p, from->configurations[i], byte, &first, &last);
    struct place *next = finish_place(p);
    struct place_row *row = next ? row_of(p, from) : NULL;
    for (int c = first; row && c <= last; c++)
        atomic_store_explicit(&row->next[row->classes[c]], next, memory_order_release);
    pthread_mutex_unlock(&p->lock);
    return row ? next : NULL;
}

struct place *pushdown_make_start(struct pushdown *p)
{
    begin_place(p);
    visit(p, p->grammar->units[0].start, p->bottom);
    p->maker.may_end = p->grammar->has_empty;
    return finish_place(p);
}

/* ---- memory ---- */

bool place_maker_init(struct place_maker *m, int32_t num_units)
{
    m->pending_of = table_new((size_t)num_units * sizeof *m->pending_of);
    m->heap = malloc((size_t)num_units * sizeof *m->heap);
    return m->pending_of && m->heap;
}

void place_maker_free(struct place_maker *m)
{
    free(m->work);
    free(m->met);
    free(m->seen);
    free(m->pending);
    free(m->pending_of);
    free(m->heap);
    free(m->entries);
}
