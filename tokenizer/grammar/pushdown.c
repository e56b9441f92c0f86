#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "tokenizer/grammar/pushdown_state.h"

enum { BLOCK_BYTES = 1 << 16, FIRST_SLOTS = 256 };

struct block {
    struct block *next;
};

/* ---- memory ---- */

void *pushdown_take(struct pushdown *p, size_t bytes)
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
    void *memory = pushdown_take(p, bytes);
    pthread_mutex_unlock(&p->lock);
    return memory;
}

size_t pushdown_bytes(const struct pushdown *p)
{
    return atomic_load_explicit(&p->num_bytes, memory_order_relaxed);
}

bool pushdown_is_full(const struct pushdown *p)
{
    return pushdown_bytes(p) > p->max_bytes;
}

/* Makes room for one more; `hash_of` gives the hash of an element. */
static bool table_reserve(struct pushdown *p, struct hash_table *t, uint32_t (*hash_of)(const void *))
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
    p->num_bytes += (count - t->num_slots) * sizeof *slots;
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

const struct stack *pushdown_intern_stack(struct pushdown *p, struct stack_entry *entries, size_t count)
{
    if (count > 1) qsort(entries, count, sizeof *entries, compare_entries);
    size_t kept = 0;
    uint32_t hash = 0;
    for (size_t i = 0; i < count; i++) {
        if (kept && compare_entries(&entries[i], &entries[kept - 1]) == 0) continue;
        entries[kept++] = entries[i];
        hash = hash_mix(hash_mix(hash, (uint32_t)entries[i].call * 31u + (uint32_t)entries[i].count),
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
    struct stack *made = pushdown_take(p, sizeof *made + kept * sizeof *entries);
    if (!made) return NULL;
    *made = (struct stack){.hash = hash, .number = ++p->num_stacks, .num_entries = (int32_t)kept};
    atomic_init(&made->popped, NULL);
    memcpy(made->entries, entries, kept * sizeof *entries);
    p->stacks.slots[at] = made;
    p->stacks.count++;
    return made;
}

/* ---- places ---- */

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

struct place *pushdown_intern_place(struct pushdown *p, struct configuration *configurations, size_t count,
                                    bool may_end)
{
    if (!table_reserve(p, &p->places, place_hash)) return NULL;
    if (count > 1) qsort(configurations, count, sizeof *configurations, compare_configurations);
    uint32_t hash = may_end;
    for (size_t i = 0; i < count; i++)
        hash = hash_mix(hash_mix(hash, (uint32_t)configurations[i].state), configurations[i].stack->number);
    size_t at = hash & (p->places.num_slots - 1);
    for (; p->places.slots[at]; at = (at + 1) & (p->places.num_slots - 1)) {
        struct place *place = p->places.slots[at];
        if (place->hash == hash && is_same(place, configurations, count, may_end)) return place;
    }
    struct place *made = pushdown_take(p, sizeof *made + count * sizeof *configurations);
    if (!made) return NULL;
    memset(made, 0, sizeof *made);
    made->hash = hash;
    made->num_configurations = (int32_t)count;
    made->may_end = may_end;
    for (size_t i = 0; i < count; i++) {
        const uint8_t last = p->grammar->last_bytes[configurations[i].state];
        if (last > made->last_byte) made->last_byte = last;
    }
    if (count) memcpy(made->configurations, configurations, count * sizeof *configurations);
    p->places.slots[at] = made;
    p->places.count++;
    return made;
}

struct place *pushdown_start(struct pushdown *p)
{
    return p->start;
}

struct place *pushdown_place(struct pushdown *p, struct configuration c)
{
    pthread_mutex_lock(&p->lock);
    p->failed = false;
    struct place *place = pushdown_intern_place(p, &c, 1, false);
    pthread_mutex_unlock(&p->lock);
    return place;
}

const struct stack *pushdown_stack(struct pushdown *p, struct stack_entry entry)
{
    pthread_mutex_lock(&p->lock);
    p->failed = false;
    const struct stack *stack = pushdown_intern_stack(p, &entry, 1);
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

/* ---- the whole ---- */

static bool prepare(struct pushdown *p)
{
    struct stack_entry bottom = {STACK_BOTTOM, 0, NULL};
    if (!place_maker_init(&p->maker, p->grammar->num_units)) return false;
    p->bottom = pushdown_intern_stack(p, &bottom, 1);
    p->start = p->bottom ? pushdown_make_start(p) : NULL;
    return p->start != NULL;
}

struct pushdown *pushdown_create(const struct grammar *g, size_t max_bytes)
{
    struct pushdown *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->grammar = g;
    p->references = 1;
    p->max_bytes = max_bytes;
    pthread_mutex_init(&p->lock, NULL);
    if (prepare(p)) return p;
    pushdown_free(p);
    return NULL;
}

struct pushdown *pushdown_keep(struct pushdown *p)
{
    atomic_fetch_add(&p->references, 1);
    return p;
}

void pushdown_free(struct pushdown *p)
{
    if (!p || atomic_fetch_sub(&p->references, 1) > 1) return;
    for (struct block *block = p->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    pthread_mutex_destroy(&p->lock);
    place_maker_free(&p->maker);
    free(p->stacks.slots);
    free(p->places.slots);
    free(p);
}

struct mask *_Atomic *pushdown_first_mask(struct pushdown *p)
{
    return &p->first_mask;
}
