#include "runtime/generate/id_set.h"

#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "base/json.h"

enum { FIRST_SIZE = 1 << 12 };

/* The slot of that hash, or the free one where it belongs. */
static uint64_t *find(uint64_t *slots, size_t size, uint64_t hash)
{
    size_t at = (size_t)(hash >> 1) & (size - 1);
    while (slots[at] && (slots[at] | 1) != (hash | 1)) at = (at + 1) & (size - 1);
    return &slots[at];
}

/* Makes the table twice as large. */
static bool grow(struct id_set *set)
{
    const size_t size = set->size ? 2 * set->size : FIRST_SIZE;
    uint64_t *slots = calloc(size, sizeof *slots);
    if (!slots) return false;
    for (size_t i = 0; i < set->size; i++)
        if (set->slots[i]) *find(slots, size, set->slots[i]) = set->slots[i];
    free(set->slots);
    set->slots = slots;
    set->size = size;
    return true;
}

/* "1" and 1 are two ids. Never 0 or 1. */
static uint64_t hash_id(const json_t *id)
{
    struct text text = {0};
    const bool ok = json_append(&text, id, JSON_COMPACT);
    const uint64_t hash = ok ? XXH3_64bits(text.data, text.length) : 0;
    text_free(&text);
    return (hash | 2) & ~UINT64_C(1);
}

void id_set_add(struct id_set *set, const json_t *id)
{
    if (!id) return;
    if (2 * set->count >= set->size && set->size < 2 * ID_SET_MOST && !grow(set)) set->full = true;
    if (set->size == 0) return;
    const uint64_t hash = hash_id(id);
    uint64_t *slot = find(set->slots, set->size, hash);
    if (*slot) {
        set->num_repeated += !(*slot & 1);
        *slot |= 1;
    } else if (2 * set->count < set->size) {
        *slot = hash;
        set->count++;
    } else {
        set->full = true;
    }
}

void id_set_free(struct id_set *set)
{
    free(set->slots);
    *set = (struct id_set){0};
}

struct id_sentence id_set_sentence(const struct id_set *set)
{
    struct id_sentence s = {""};
    if (set->num_repeated > 0)
        snprintf(s.text, sizeof s.text, "%s%lld id%s more than once", set->full ? "at least " : "",
                 (long long)set->num_repeated, set->num_repeated == 1 ? " occurs" : "s occur");
    return s;
}
