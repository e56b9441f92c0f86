#include "tokenizer/grammar/pushdown.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

enum {
    BLOCK_BYTES = 1 << 16,
    FIRST_SLOTS = 256,
    MAX_PLACE = 1 << 18 /* configurations of a place: a text of any length is refused rather than all memory filled */
};

struct block {
    struct block *next;
};

/* A hash table of stacks or places. */
struct table {
    void **slots; /* [num_slots], NULL: free */
    size_t num_slots, count;
};

/* A call that the place in the making makes, in the list of its unit. */
struct pending {
    int32_t next;
    struct stack_entry entry;
};

struct pushdown {
    const struct grammar *grammar;
    pthread_mutex_t lock;
    struct block *blocks;
    char *free_bytes;
    size_t num_free, num_bytes;
    struct table stacks, places;
    uint32_t num_stacks;
    const struct stack *bottom;
    struct place *start;
    /* The place in the making. */
    struct configuration *work, *met; /* to be looked at; that read bytes */
    size_t num_work, num_met, work_capacity, met_capacity;
    struct seen {
        struct configuration configuration;
        uint32_t round;
    } * seen; /* hash table of those that were put to work in this round */
    size_t num_seen, seen_slots;
    uint32_t round;
    struct pending *pending;
    size_t num_pending, pending_capacity;
    int32_t *pending_of; /* [num_units] -1: none */
    int32_t *heap;       /* [num_units] units with pending calls, the lowest rank on top */
    int32_t heap_size;
    struct stack_entry *entries;
    size_t entry_capacity;
    bool may_end, failed;
};

/* ---- memory ---- */

static void *allocate(struct pushdown *p, size_t bytes)
{
    bytes = (bytes + 15) & ~(size_t)15;
    if (bytes > p->num_free) {
        const size_t wanted = sizeof(struct block) + 15 + (bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES);
        struct block *block = malloc(wanted);
        if (!block) {
            p->failed = true;
            return NULL;
        }
        block->next = p->blocks;
        p->blocks = block;
        p->free_bytes = (char *)(((uintptr_t)(block + 1) + 15) & ~(uintptr_t)15);
        p->num_free = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        p->num_bytes += wanted;
    }
    void *memory = p->free_bytes;
    p->free_bytes += bytes;
    p->num_free -= bytes;
    return memory;
}

void *pushdown_allocate(struct pushdown *p, size_t bytes)
{
    pthread_mutex_lock(&p->lock);
    p->failed = false;
    void *memory = allocate(p, bytes);
    pthread_mutex_unlock(&p->lock);
    return memory;
}

size_t pushdown_bytes(struct pushdown *p)
{
    pthread_mutex_lock(&p->lock);
    const size_t bytes = p->num_bytes + (p->stacks.num_slots + p->places.num_slots) * sizeof(void *);
    pthread_mutex_unlock(&p->lock);
    return bytes;
}

/* Adds a value to a hash. */
static uint32_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(hash ^ hash >> 32);
}

/* Makes room for one more; `hash_of` gives the hash of an element. */
static bool table_reserve(struct pushdown *p, struct table *t, uint32_t (*hash_of)(const void *))
{
    if (2 * (t->count + 1) <= t->num_slots) return true;
    const size_t count = t->num_slots ? 2 * t->num_slots : FIRST_SLOTS;
    void **slots = calloc(count, sizeof *slots);
    if (!slots) {
        p->failed = true;
        return false;
    }
    for (size_t i = 0; i < t->num_slots; i++) {
        if (!t->slots[i]) continue;
        size_t at = hash_of(t->slots[i]) & (count - 1);
        while (slots[at]) at = (at + 1) & (count - 1);
        slots[at] = t->slots[i];
    }
    free(t->slots);
    t->slots = slots;
    t->num_slots = count;
    return true;
}

/* ---- stacks ---- */

static uint32_t stack_hash(const void *stack)
{
    return ((const struct stack *)stack)->hash;
}

static int compare_entries(const void *a, const void *b)
{
    const struct stack_entry *x = a, *y = b;
    if (x->call != y->call) return x->call < y->call ? -1 : 1;
    if (x->count != y->count) return x->count < y->count ? -1 : 1;
    const uint32_t i = x->below ? x->below->number : 0, j = y->below ? y->below->number : 0;
    return (i > j) - (i < j);
}

/* The stack of entries [count], which are put in order. */
static const struct stack *intern_stack(struct pushdown *p, struct stack_entry *entries, size_t count)
{
    if (count > 1) qsort(entries, count, sizeof *entries, compare_entries);
    size_t kept = 0;
    uint32_t hash = 0;
    for (size_t i = 0; i < count; i++) {
        if (kept && compare_entries(&entries[i], &entries[kept - 1]) == 0) continue;
        entries[kept++] = entries[i];
        hash = mix(mix(hash, (uint32_t)entries[i].call * 31u + (uint32_t)entries[i].count),
                   entries[i].below ? entries[i].below->number : 0);
    }
    if (!table_reserve(p, &p->stacks, stack_hash)) return NULL;
    size_t at = hash & (p->stacks.num_slots - 1);
    for (; p->stacks.slots[at]; at = (at + 1) & (p->stacks.num_slots - 1)) {
        const struct stack *s = p->stacks.slots[at];
        if (s->hash == hash && (size_t)s->num_entries == kept) {
            size_t i = 0;
            while (i < kept && compare_entries(&s->entries[i], &entries[i]) == 0) i++;
            if (i == kept) return s;
        }
    }
    struct stack *made = allocate(p, sizeof *made + kept * sizeof *entries);
    if (!made) return NULL;
    *made = (struct stack){.hash = hash, .number = ++p->num_stacks, .num_entries = (int32_t)kept};
    atomic_init(&made->popped, NULL);
    memcpy(made->entries, entries, kept * sizeof *entries);
    p->stacks.slots[at] = made;
    p->stacks.count++;
    return made;
}

/* ---- the place in the making ---- */

static bool grow_seen(struct pushdown *p)
{
    const size_t count = p->seen_slots ? 2 * p->seen_slots : FIRST_SLOTS, old_count = p->seen_slots;
    struct seen *old = p->seen, *seen = calloc(count, sizeof *seen);
    if (!seen || count > 4 * (size_t)MAX_PLACE) {
        free(seen);
        p->failed = true;
        return false;
    }
    for (size_t i = 0; i < old_count; i++) {
        if (old[i].round != p->round) continue;
        size_t at = mix((uint32_t)old[i].configuration.state, old[i].configuration.stack->number) & (count - 1);
        while (seen[at].round == p->round) at = (at + 1) & (count - 1);
        seen[at] = old[i];
    }
    free(old);
    p->seen = seen;
    p->seen_slots = count;
    return true;
}

/* Puts a configuration to work, if it is new in this round. */
static void visit(struct pushdown *p, int32_t state, const struct stack *stack)
{
    if (!stack || (2 * (p->num_seen + 1) > p->seen_slots && !grow_seen(p))) return;
    size_t at = mix((uint32_t)state, stack->number) & (p->seen_slots - 1);
    for (; p->seen[at].round == p->round; at = (at + 1) & (p->seen_slots - 1))
        if (p->seen[at].configuration.state == state && p->seen[at].configuration.stack == stack) return;
    const struct configuration c = {state, stack};
    if (!array_reserve(&p->work, &p->work_capacity, p->num_work + 1, sizeof *p->work)) {
        p->failed = true;
        return;
    }
    p->seen[at] = (struct seen){c, p->round};
    p->num_seen++;
    p->work[p->num_work++] = c;
}

static int32_t rank_of(const struct pushdown *p, int32_t unit)
{
    return p->grammar->units[unit].rank;
}

static void push_heap(struct pushdown *p, int32_t unit)
{
    int32_t at = p->heap_size++;
    for (; at > 0 && rank_of(p, p->heap[(at - 1) / 2]) > rank_of(p, unit); at = (at - 1) / 2)
        p->heap[at] = p->heap[(at - 1) / 2];
    p->heap[at] = unit;
}

static int32_t pop_heap(struct pushdown *p)
{
    const int32_t top = p->heap[0], moved = p->heap[--p->heap_size];
    int32_t at = 0;
    for (int32_t next; (next = 2 * at + 1) < p->heap_size; at = next) {
        if (next + 1 < p->heap_size && rank_of(p, p->heap[next + 1]) < rank_of(p, p->heap[next])) next++;
        if (rank_of(p, p->heap[next]) >= rank_of(p, moved)) break;
        p->heap[at] = p->heap[next];
    }
    p->heap[at] = moved;
    return top;
}

static void add_call(struct pushdown *p, int32_t unit, struct stack_entry entry)
{
    if (!array_reserve(&p->pending, &p->pending_capacity, p->num_pending + 1, sizeof *p->pending)) {
        p->failed = true;
        return;
    }
    if (p->pending_of[unit] < 0) push_heap(p, unit);
    p->pending[p->num_pending] = (struct pending){p->pending_of[unit], entry};
    p->pending_of[unit] = (int32_t)p->num_pending++;
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
            p->may_end = true;
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
    while (p->num_work > 0 && !p->failed) {
        const struct configuration c = p->work[--p->num_work];
        const struct automaton_state *state = &p->grammar->automaton.states[c.state];
        if (state[0].ends) pop(p, c.stack);
        make_calls(p, c);
        if (state[0].first_edge == state[1].first_edge) continue;
        if (!array_reserve(&p->met, &p->met_capacity, p->num_met + 1, sizeof *p->met))
            p->failed = true;
        else
            p->met[p->num_met++] = c;
    }
}

/* Begins the unit on top of one stack with all the entries that wait for it. */
static void begin_unit(struct pushdown *p, int32_t unit)
{
    size_t count = 0;
    for (int32_t i = p->pending_of[unit]; i >= 0; i = p->pending[i].next) {
        if (!array_reserve(&p->entries, &p->entry_capacity, count + 1, sizeof *p->entries)) {
            p->failed = true;
            return;
        }
        p->entries[count++] = p->pending[i].entry;
    }
    p->pending_of[unit] = -1;
    visit(p, p->grammar->units[unit].start, intern_stack(p, p->entries, count));
}

static uint32_t place_hash(const void *place)
{
    return ((const struct place *)place)->hash;
}

static int compare_configurations(const void *a, const void *b)
{
    const struct configuration *x = a, *y = b;
    if (x->state != y->state) return x->state < y->state ? -1 : 1;
    return (x->stack->number > y->stack->number) - (x->stack->number < y->stack->number);
}

static bool is_same(const struct place *place, const struct configuration *met, size_t count, bool may_end)
{
    if ((size_t)place->num_configurations != count || place->may_end != may_end) return false;
    for (size_t i = 0; i < count; i++)
        if (compare_configurations(&place->configurations[i], &met[i]) != 0) return false;
    return true;
}

/* The place of the configurations that were met. */
static struct place *intern_place(struct pushdown *p)
{
    if (!table_reserve(p, &p->places, place_hash)) return NULL;
    if (p->num_met > 1) qsort(p->met, p->num_met, sizeof *p->met, compare_configurations);
    uint32_t hash = p->may_end;
    for (size_t i = 0; i < p->num_met; i++) hash = mix(mix(hash, (uint32_t)p->met[i].state), p->met[i].stack->number);
    size_t at = hash & (p->places.num_slots - 1);
    for (; p->places.slots[at]; at = (at + 1) & (p->places.num_slots - 1)) {
        struct place *place = p->places.slots[at];
        if (place->hash == hash && is_same(place, p->met, p->num_met, p->may_end)) return place;
    }
    struct place *made = allocate(p, sizeof *made + p->num_met * sizeof *p->met);
    if (!made) return NULL;
    memset(made, 0, sizeof *made);
    made->hash = hash;
    made->num_configurations = (int32_t)p->num_met;
    made->may_end = p->may_end;
    if (p->num_met) memcpy(made->configurations, p->met, p->num_met * sizeof *p->met);
    p->places.slots[at] = made;
    p->places.count++;
    return made;
}

static void begin_place(struct pushdown *p)
{
    p->num_work = p->num_met = p->num_seen = p->num_pending = 0;
    p->may_end = p->failed = false;
    if (++p->round == 0) { /* it has gone round */
        if (p->seen_slots) memset(p->seen, 0, p->seen_slots * sizeof *p->seen);
        p->round = 1;
    }
}

/* The place of what was put to work. */
static struct place *finish_place(struct pushdown *p)
{
    work(p);
    while (p->heap_size > 0 && !p->failed) {
        begin_unit(p, pop_heap(p));
        work(p);
    }
    if (!p->failed) return intern_place(p);
    for (int32_t i = 0; i < p->grammar->num_units; i++) p->pending_of[i] = -1;
    p->heap_size = 0;
    return NULL;
}

/* ---- places ---- */

struct place *pushdown_start(struct pushdown *p)
{
    return p->start;
}

struct place *pushdown_place(struct pushdown *p, struct configuration c)
{
    pthread_mutex_lock(&p->lock);
    begin_place(p);
    struct place *place = NULL;
    if (array_reserve(&p->met, &p->met_capacity, 1, sizeof *p->met)) {
        p->met[p->num_met++] = c;
        place = intern_place(p);
    }
    pthread_mutex_unlock(&p->lock);
    return place;
}

const struct stack *pushdown_stack(struct pushdown *p, struct stack_entry entry)
{
    pthread_mutex_lock(&p->lock);
    p->failed = false;
    const struct stack *stack = intern_stack(p, &entry, 1);
    pthread_mutex_unlock(&p->lock);
    return stack;
}

const struct stack *pushdown_bottom(const struct pushdown *p)
{
    return p->bottom;
}

int32_t pushdown_nearest_count(const struct pushdown *p, struct stack_entry entry, int32_t num_bytes)
{
    const struct automaton_call *call = &p->grammar->automaton.calls[entry.call];
    if (call->most - entry.count <= num_bytes) return entry.count; /* each copy has a byte */
    if (entry.count >= call->least) return call->least;
    return call->least - entry.count > num_bytes ? 1 : entry.count;
}

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

struct place *pushdown_find_step(struct pushdown *p, struct place *from, uint8_t byte)
{
    pthread_mutex_lock(&p->lock);
    begin_place(p);
    int first = 0, last = 255;
    for (int32_t i = 0; i < from->num_configurations; i++) step(p, from->configurations[i], byte, &first, &last);
    struct place *next = finish_place(p);
    struct place_row *row = atomic_load_explicit(&from->row, memory_order_relaxed);
    if (next && !row && (row = allocate(p, sizeof *row)) != NULL) {
        memset(row, 0, sizeof *row);
        atomic_store_explicit(&from->row, row, memory_order_release);
    }
    for (int c = first; next && row && c <= last; c++) atomic_store_explicit(&row->next[c], next, memory_order_release);
    pthread_mutex_unlock(&p->lock);
    return row ? next : NULL;
}

/* ---- the whole ---- */

static bool prepare(struct pushdown *p)
{
    const size_t num_units = (size_t)p->grammar->num_units;
    struct stack_entry bottom = {STACK_BOTTOM, 0, NULL};
    p->pending_of = table_new(num_units * sizeof *p->pending_of);
    p->heap = malloc(num_units * sizeof *p->heap);
    if (!p->pending_of || !p->heap) return false;
    p->bottom = intern_stack(p, &bottom, 1);
    if (!p->bottom) return false;
    begin_place(p);
    visit(p, p->grammar->units[0].start, p->bottom);
    p->may_end = p->grammar->has_empty;
    p->start = finish_place(p);
    return p->start != NULL;
}

struct pushdown *pushdown_create(const struct grammar *g)
{
    struct pushdown *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->grammar = g;
    pthread_mutex_init(&p->lock, NULL);
    if (prepare(p)) return p;
    pushdown_free(p);
    return NULL;
}

void pushdown_free(struct pushdown *p)
{
    if (!p) return;
    for (struct block *block = p->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    pthread_mutex_destroy(&p->lock);
    free(p->stacks.slots);
    free(p->places.slots);
    free(p->work);
    free(p->met);
    free(p->seen);
    free(p->pending);
    free(p->pending_of);
    free(p->heap);
    free(p->entries);
    free(p);
}
