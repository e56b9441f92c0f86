#include "runtime/generate/index_set.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

bool index_set_add(struct index_set *set, int64_t index)
{
    const size_t word = (size_t)(index / 64), before = set->capacity;
    if (!array_reserve(&set->words, &set->capacity, word + 1, sizeof *set->words)) return false;
    if (set->capacity > before) memset(set->words + before, 0, (set->capacity - before) * sizeof *set->words);
    const uint64_t bit = UINT64_C(1) << (index % 64);
    if (!(set->words[word] & bit)) set->count++;
    set->words[word] |= bit;
    return true;
}

bool index_set_has(const struct index_set *set, int64_t index)
{
    const size_t word = (size_t)(index / 64);
    return word < set->capacity && (set->words[word] >> (index % 64) & 1);
}

void index_set_free(struct index_set *set)
{
    free(set->words);
    *set = (struct index_set){0};
}
