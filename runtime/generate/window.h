/* The prompts that `quire generate` has read and not given to the engine yet: a bounded number, in the order in which
 * the engine gets them. Prompts with the same beginning stand together in it, so that the blocks of the beginning are
 * computed once and found again while the prefix cache still has them.
 *
 * New prompts are collected; when the sorted ones are gone, those that are there by then are sorted. So no prompt waits
 * for more than the collected ones before it. */
#ifndef QUIRE_RUNTIME_WINDOW_H
#define QUIRE_RUNTIME_WINDOW_H

#include "runtime/prompts/prompt.h"

struct result;

struct window_entry {
    struct prompt prompt;
    struct result *result; /* not owned */
    size_t order;          /* in which it was added */
};

/* Zero-initialise it; free it with window_free. */
struct window {
    struct window_entry *entries; /* [count]: the first `taken` are gone, then those up to `sorted` are sorted */
    size_t count, sorted, taken, capacity;
    int64_t num_tokens; /* of the prompts that are left */
};
void window_free(struct window *w); /* and the prompts that are left */

int64_t window_count(const struct window *w);     /* of prompts that are left */
int64_t window_collected(const struct window *w); /* of those: not sorted yet */

/* Takes over the prompt. False: memory ran out, and the prompt is still the caller's. */
bool window_add(struct window *w, const struct prompt *prompt, struct result *result);
/* Removes the first of the order: by priority, then by cache salt, then by token ids, equal ones as they were added.
 * The caller frees its prompt. False: there is none. */
bool window_take(struct window *w, struct window_entry *out);

#endif
