/* A grammar as a pushdown automaton, made deterministic where it is visited.
 *
 * A *configuration* is a state of the grammar's automata and a stack: what is to be done when the unit of the state is
 * done. A *place* is the set of configurations in which a text leaves the automaton, so it says all about what may
 * follow. A stack stands for several ways to get here: each of its entries is a call and the stack below it. All calls
 * of a unit at one place share a stack, so that places stay small where the grammar is ambiguous: there are no more
 * configurations than in an Earley set. Stacks and places with the same contents are one, and a place remembers where a
 * byte leads. So texts that look alike to the grammar lead to the same place, and are looked up after the first time.
 *
 * Any thread may use it: what is found is read without a lock. Nothing is freed before the whole is: when it is full,
 * those who use it take another one and copy the places that they need. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_PUSHDOWN_H
#define QUIRE_TOKENIZER_GRAMMAR_PUSHDOWN_H

#include <stdatomic.h>

#include "tokenizer/grammar/grammar_state.h"

enum { STACK_BOTTOM = -1 };

struct stack_entry {
    int32_t call;              /* STACK_BOTTOM: none, the text of the whole is done */
    int32_t count;             /* of a counted call: the copy that is being read, from 1; 0: the call is plain */
    const struct stack *below; /* NULL at the bottom */
};
struct stack {
    uint32_t hash, number;
    int32_t num_entries;
    struct place *_Atomic popped; /* where it goes on when the unit on top of it is done; NULL: not sought yet */
    struct stack_entry entries[]; /* in order */
};

struct configuration {
    int32_t state; /* it reads bytes */
    const struct stack *stack;
};
struct place_row {
    const uint8_t *classes;       /* [256] of bytes that lead to the same */
    struct place *_Atomic next[]; /* [num_byte_classes] NULL: not sought yet */
};
struct place {
    struct place_row *_Atomic row; /* NULL: nothing was sought yet */
    uint32_t hash;
    int32_t num_configurations;
    bool may_end;      /* the bottom of the stacks is reached */
    uint8_t last_byte; /* larger ones lead nowhere */
    /* What loops.c and masks.c have found of it. */
    _Atomic uint64_t loop_classes;
    struct place *_Atomic loop_next;
    struct loops *_Atomic loops;
    struct record *_Atomic record;
    struct mask *_Atomic mask;
    struct configuration configurations[]; /* in order */
};

struct pushdown;
/* The grammar outlives it. With more than max_bytes it is full, which is only said. NULL: no memory. */
struct pushdown *pushdown_create(const struct grammar *g, size_t max_bytes);
struct pushdown *pushdown_keep(struct pushdown *p); /* one reference more */
void pushdown_free(struct pushdown *p);             /* one less; NULL is allowed */
size_t pushdown_bytes(const struct pushdown *p);
bool pushdown_is_full(const struct pushdown *p);
/* Memory that is freed with it; NULL: none is left. */
void *pushdown_allocate(struct pushdown *p, size_t bytes);

/* The functions that return a place or a stack return NULL if memory ran out. */
struct place *pushdown_start(struct pushdown *p); /* of a text */
/* Where one configuration is. */
struct place *pushdown_place(struct pushdown *p, struct configuration c);
const struct stack *pushdown_stack(struct pushdown *p, struct stack_entry entry); /* of one entry */
const struct stack *pushdown_bottom(const struct pushdown *p);                    /* where nothing waits */
/* A count of the same call from which all texts of so many bytes lead on as from the entry's; the same one for as many
 * as can be. */
int32_t pushdown_nearest_count(const struct pushdown *p, struct stack_entry entry, int32_t num_bytes);
/* Where it goes on when the unit on top of the stack is done. */
struct place *pushdown_pop(struct pushdown *p, const struct stack *stack);
struct place *pushdown_find_step(struct pushdown *p, struct place *from, uint8_t byte);

struct mask *_Atomic *pushdown_first_mask(struct pushdown *p); /* of masks.c */
/* Replaces places [count] of `from` by those of `to`, another pushdown of the same grammar. If they need so much memory
 * that `to` is nearly full, it may have more. False: no memory. */
bool pushdown_copy(struct pushdown *to, struct pushdown *from, struct place **places, size_t count);

/* No text goes on from here, and none ends. */
static inline bool place_is_dead(const struct place *at)
{
    return at->num_configurations == 0 && !at->may_end;
}

/* Where a byte leads. */
static inline struct place *pushdown_step(struct pushdown *p, struct place *from, uint8_t byte)
{
    struct place_row *row = atomic_load_explicit(&from->row, memory_order_acquire);
    struct place *next = row ? atomic_load_explicit(&row->next[row->classes[byte]], memory_order_acquire) : NULL;
    return next ? next : pushdown_find_step(p, from, byte);
}

#endif
