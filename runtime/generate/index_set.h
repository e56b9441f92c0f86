/* A set of indices, a bit for each number up to the largest: 1.2 MiB for ten million prompts. */
#ifndef QUIRE_RUNTIME_INDEX_SET_H
#define QUIRE_RUNTIME_INDEX_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero-initialise it. */
struct index_set {
    uint64_t *words;
    size_t capacity; /* in words; all of them are initialised */
    int64_t count;   /* how many indices are in it */
};

/* Adds an index of 0 or more. False: memory ran out, and the set is as it was. */
bool index_set_add(struct index_set *set, int64_t index);
bool index_set_has(const struct index_set *set, int64_t index);
void index_set_free(struct index_set *set);

#endif
