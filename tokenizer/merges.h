/* The merges of byte-pair encoding, applied to the symbols of a word. The pair of the lowest rank is merged first, and
 * of equal ones the leftmost, until no pair of neighbours can be merged. Never quadratic: n symbols take O(n log n). */
#ifndef QUIRE_TOKENIZER_MERGES_H
#define QUIRE_TOKENIZER_MERGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct merge {
    int32_t left, right, result; /* ids, >= 0 */
};

struct merges {
    struct merge *items; /* [count] by rank */
    size_t count;
    struct pair_slot *slots; /* [mask + 1], a power of two */
    size_t mask;
    bool by_result; /* several pairs may have one rank */
};

/* Takes over items[count], also after a failure, which is that memory ran out. Of several merges of one pair the last
 * counts. by_result: neighbours with the same result have one rank, that of the first. */
bool merges_init(struct merges *m, struct merge *items, size_t count, bool by_result);
void merges_free(struct merges *m); /* safe on a zeroed struct */

/* Memory for merging, for many words on one thread. */
struct merge_scratch;
struct merge_scratch *merge_scratch_new(void);    /* NULL if memory ran out */
void merge_scratch_free(struct merge_scratch *s); /* NULL is allowed */

/* Merges the symbols ids[count], count < 2^32, in place and returns how many are left; SIZE_MAX if memory ran out:
 * the scratch can then only be freed. */
size_t merges_apply(const struct merges *m, struct merge_scratch *s, int32_t *ids, size_t count);

#endif
