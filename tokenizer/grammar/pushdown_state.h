/* What a pushdown is made of, for the files that make its places. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_PUSHDOWN_STATE_H
#define QUIRE_TOKENIZER_GRAMMAR_PUSHDOWN_STATE_H

#include <pthread.h>

#include "tokenizer/grammar/pushdown.h"

/* A hash table of stacks or places. */
struct hash_table {
    void **slots; /* [num_slots], NULL: free */
    size_t num_slots, count;
};

/* A place in the making: configurations are visited, that is put to work if they are new; work makes their calls. */
struct place_maker {
    struct configuration *work, *met; /* to be looked at; those that read bytes */
    size_t num_work, num_met, work_capacity, met_capacity;
    struct seen {
        struct configuration configuration;
        uint32_t round;
    } * seen; /* hash table of those that were put to work in this round */
    size_t num_seen, seen_slots;
    uint32_t round;
    struct pending {
        int32_t next;
        struct stack_entry entry;
    } * pending; /* calls, in the list of their unit */
    size_t num_pending, pending_capacity;
    int32_t *pending_of; /* [num_units] -1: none */
    int32_t *heap;       /* [num_units] units with pending calls, the lowest rank on top */
    int32_t heap_size;
    struct stack_entry *entries;
    size_t entry_capacity;
    bool may_end;
};

struct pushdown {
    const struct grammar *grammar;
    pthread_mutex_t lock;
    atomic_int references;
    struct block *blocks;
    char *free_bytes;
    size_t num_free;
    atomic_size_t num_bytes;
    atomic_size_t max_bytes; /* with more it is full */
    struct hash_table stacks, places;
    uint32_t num_stacks;
    const struct stack *bottom;
    struct place *start;
    struct mask *_Atomic first_mask;
    struct place_maker maker;
    bool failed; /* memory ran out in this call */
};

/* All with the lock held; NULL or false: memory ran out, and p->failed is set. */
void *pushdown_take(struct pushdown *p, size_t bytes);
/* The stack of entries [count], which are put in order. */
const struct stack *pushdown_intern_stack(struct pushdown *p, struct stack_entry *entries, size_t count);
/* The place of configurations [count], which are put in order and differ. */
struct place *pushdown_intern_place(struct pushdown *p, struct configuration *configurations, size_t count,
                                    bool may_end);
struct place *pushdown_make_start(struct pushdown *p);

bool place_maker_init(struct place_maker *m, int32_t num_units);
void place_maker_free(struct place_maker *m);

/* Adds a value to a hash. */
static inline uint32_t hash_mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(hash ^ hash >> 32);
}

#endif
