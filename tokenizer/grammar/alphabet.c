#include "tokenizer/grammar/character_set.h"

#include <stdlib.h>
#include <string.h>

void alphabet_free(struct alphabet *a)
{
    free(a->first);
    free(a->class_of);
    *a = (struct alphabet){0};
}

static bool alphabet_new(struct alphabet *out, size_t num_intervals)
{
    *out = (struct alphabet){.num_intervals = (int32_t)num_intervals,
                             .first = malloc(num_intervals * sizeof *out->first),
                             .class_of = calloc(num_intervals, sizeof *out->class_of)};
    if (out->first && out->class_of) return true;
    alphabet_free(out);
    return false;
}

bool alphabet_copy(struct alphabet *out, const struct alphabet *a)
{
    if (!alphabet_new(out, (size_t)a->num_intervals)) return false;
    memcpy(out->first, a->first, (size_t)a->num_intervals * sizeof *a->first);
    memcpy(out->class_of, a->class_of, (size_t)a->num_intervals * sizeof *a->class_of);
    out->num_classes = a->num_classes;
    return true;
}

static int compare_symbols(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

int32_t alphabet_interval(const struct alphabet *a, uint32_t symbol)
{
    int32_t low = 0, high = a->num_intervals - 1;
    while (low < high) {
        const int32_t middle = (low + high + 1) / 2;
        if (a->first[middle] <= symbol)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

int32_t alphabet_class(const struct alphabet *a, uint32_t symbol)
{
    return a->class_of[alphabet_interval(a, symbol)];
}

/* Splits each class into the part in the set and the rest. `moved` [num_intervals] is scratch space. */
static void split_classes(struct alphabet *a, const struct character_set *set, int32_t *moved)
{
    const int32_t before = a->num_classes;
    int32_t *inside = moved + a->num_intervals, *outside = inside + before; /* members of each class */
    memset(moved, 0, sizeof *moved * (size_t)(a->num_intervals + 2 * before));
    for (size_t r = 0; r < set->count; r++)
        for (int32_t i = alphabet_interval(a, set->ranges[r].first);
             i < a->num_intervals && a->first[i] <= set->ranges[r].last; i++)
            moved[i] = 1;
    for (int32_t i = 0; i < a->num_intervals; i++) (moved[i] ? inside : outside)[a->class_of[i]]++;
    for (int32_t c = 0; c < before; c++) inside[c] = inside[c] && outside[c] ? a->num_classes++ : c;
    for (int32_t i = 0; i < a->num_intervals; i++)
        if (moved[i]) a->class_of[i] = inside[a->class_of[i]];
}

bool alphabet_of_sets(struct alphabet *out, const struct character_set *sets, size_t count)
{
    size_t num_bounds = 1, num = 0;
    for (size_t s = 0; s < count; s++) num_bounds += 2 * sets[s].count;
    uint32_t *bounds = calloc(num_bounds, sizeof *bounds); /* bounds[0] is 0 */
    if (!bounds) return false;
    num_bounds = 1;
    for (size_t s = 0; s < count; s++) {
        for (size_t r = 0; r < sets[s].count; r++) {
            bounds[num_bounds++] = sets[s].ranges[r].first;
            if (sets[s].ranges[r].last + 1 < NUM_SYMBOLS) bounds[num_bounds++] = sets[s].ranges[r].last + 1;
        }
    }
    qsort(bounds, num_bounds, sizeof *bounds, compare_symbols);
    for (size_t i = 1; i < num_bounds; i++)
        if (bounds[i] != bounds[num]) bounds[++num] = bounds[i];
    int32_t *scratch = malloc(3 * (num + 1) * sizeof *scratch);
    const bool made = scratch && alphabet_new(out, num + 1);
    if (made) {
        memcpy(out->first, bounds, (num + 1) * sizeof *bounds);
        out->num_classes = 1;
        for (size_t s = 0; s < count; s++) split_classes(out, &sets[s], scratch);
    }
    free(scratch);
    free(bounds);
    return made;
}

enum { MAX_PAIRS = 1 << 24 }; /* of classes */

/* Goes through both alphabets' intervals at once; returns how many there are of the finer one, written if `out` has
 * room for them. */
static int32_t join_intervals(const struct alphabet *a, const struct alphabet *b, struct alphabet *out)
{
    int32_t i = 0, j = 0, num = 0;
    for (uint32_t at = 0;;) {
        if (out) {
            out->first[num] = at;
            out->class_of[num] = a->class_of[i] * b->num_classes + b->class_of[j];
        }
        num++;
        const uint32_t a_next = i + 1 < a->num_intervals ? a->first[i + 1] : UINT32_MAX;
        const uint32_t b_next = j + 1 < b->num_intervals ? b->first[j + 1] : UINT32_MAX;
        if (a_next == UINT32_MAX && b_next == UINT32_MAX) return num;
        at = a_next < b_next ? a_next : b_next;
        i += a_next == at;
        j += b_next == at;
    }
}

bool alphabet_join(struct alphabet *out, const struct alphabet *a, const struct alphabet *b, int32_t **a_class,
                   int32_t **b_class)
{
    const size_t num_intervals = (size_t)join_intervals(a, b, NULL);
    const size_t num_pairs = (size_t)a->num_classes * (size_t)b->num_classes;
    if (num_pairs > MAX_PAIRS) return false;
    int32_t *number = malloc(num_pairs * sizeof *number);
    *a_class = malloc(num_intervals * sizeof **a_class);
    *b_class = malloc(num_intervals * sizeof **b_class);
    if (!number || !*a_class || !*b_class || !alphabet_new(out, num_intervals)) {
        free(number);
        free(*a_class);
        free(*b_class);
        return false;
    }
    join_intervals(a, b, out);
    memset(number, 0xFF, num_pairs * sizeof *number);
    for (int32_t i = 0; i < out->num_intervals; i++) {
        const int32_t pair = out->class_of[i];
        if (number[pair] < 0) {
            number[pair] = out->num_classes++;
            (*a_class)[number[pair]] = pair / b->num_classes;
            (*b_class)[number[pair]] = pair % b->num_classes;
        }
        out->class_of[i] = number[pair];
    }
    free(number);
    return true;
}

void alphabet_map(struct alphabet *a, const int32_t *map, int32_t num_classes)
{
    int32_t num = 0;
    for (int32_t i = 0; i < a->num_intervals; i++) {
        const int32_t mapped = map[a->class_of[i]];
        if (num > 0 && a->class_of[num - 1] == mapped) continue;
        a->first[num] = a->first[i];
        a->class_of[num++] = mapped;
    }
    a->num_intervals = num;
    a->num_classes = num_classes;
}
