#include <stdlib.h>

#include "tokenizer/grammar/pushdown_state.h"

struct copied {
    const struct stack *from, *to;
};

struct copier {
    struct pushdown *to;
    struct copied *stacks; /* [num_stacks + 1] by number; from NULL: no place needs it */
    uint32_t num_stacks;
};

/* Marks the stacks that places stand on. What is below a stack has a lower number. */
static void mark_stacks(struct copier *c, struct place *const *places, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (int32_t k = 0; k < places[i]->num_configurations; k++) {
            const struct stack *stack = places[i]->configurations[k].stack;
            c->stacks[stack->number].from = stack;
        }
    }
    for (uint32_t n = c->num_stacks; n > 0; n--) {
        const struct stack *stack = c->stacks[n].from;
        for (int32_t e = 0; stack && e < stack->num_entries; e++) {
            const struct stack *below = stack->entries[e].below;
            if (below) c->stacks[below->number].from = below;
        }
    }
}

static bool copy_stack(struct copier *c, struct copied *copied)
{
    const size_t count = (size_t)copied->from->num_entries;
    struct stack_entry *entries = malloc(count * sizeof *entries);
    if (!entries) return false;
    for (size_t e = 0; e < count; e++) {
        entries[e] = copied->from->entries[e];
        if (entries[e].below) entries[e].below = c->stacks[entries[e].below->number].to;
    }
    copied->to = pushdown_intern_stack(c->to, entries, count);
    free(entries);
    return copied->to != NULL;
}

/* NULL: no memory. */
static struct place *copy_place(struct copier *c, const struct place *place)
{
    const size_t count = (size_t)place->num_configurations;
    struct configuration *configurations = malloc((count + 1) * sizeof *configurations);
    if (!configurations) return NULL;
    for (size_t i = 0; i < count; i++) {
        configurations[i] = place->configurations[i];
        configurations[i].stack = c->stacks[configurations[i].stack->number].to;
    }
    struct place *copied = pushdown_intern_place(c->to, configurations, count, place->may_end);
    free(configurations);
    return copied;
}

static bool copy(struct copier *c, struct place **places, size_t count)
{
    mark_stacks(c, places, count);
    for (uint32_t n = 1; n <= c->num_stacks; n++)
        if (c->stacks[n].from && !copy_stack(c, &c->stacks[n])) return false;
    for (size_t i = 0; i < count; i++) {
        places[i] = copy_place(c, places[i]);
        if (!places[i]) return false;
    }
    return true;
}

bool pushdown_copy(struct pushdown *to, struct pushdown *from, struct place **places, size_t count)
{
    pthread_mutex_lock(&from->lock);
    struct copier c = {.to = to, .num_stacks = from->num_stacks};
    pthread_mutex_unlock(&from->lock);
    c.stacks = calloc((size_t)c.num_stacks + 1, sizeof *c.stacks);
    pthread_mutex_lock(&to->lock);
    to->failed = false;
    const bool fits = c.stacks && copy(&c, places, count);
    const size_t bytes = 2 * pushdown_bytes(to); /* that are needed may be more than there should be */
    if (bytes > to->max_bytes) to->max_bytes = bytes;
    pthread_mutex_unlock(&to->lock);
    free(c.stacks);
    return fits;
}
