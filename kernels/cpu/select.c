/* Quickselect (Hoare, 1961), by count and by mass. */
#include "kernels/cpu/select.h"

#include <stdbool.h>

static bool before(const struct candidate *a, const struct candidate *b)
{
    return a->value > b->value || (a->value == b->value && a->id < b->id);
}

static void exchange(struct candidate *a, struct candidate *b)
{
    struct candidate old = *a;
    *a = *b;
    *b = old;
}

/* Moves the median of first, middle and last to the end, as the pivot. */
static void choose_pivot(struct candidate *c, int64_t count)
{
    struct candidate *first = c, *middle = c + count / 2, *last = c + count - 1;
    if (before(middle, first)) exchange(middle, first);
    if (before(last, first)) exchange(last, first);
    if (before(middle, last)) exchange(middle, last);
}

/* Moves candidates that come before a pivot to the front and the pivot behind them; returns the pivot's index. */
static int64_t partition(struct candidate *c, int64_t count)
{
    int64_t split = 0;
    choose_pivot(c, count);
    for (int64_t i = 0; i < count - 1; i++)
        if (before(&c[i], &c[count - 1])) exchange(&c[i], &c[split++]);
    exchange(&c[split], &c[count - 1]);
    return split;
}

void candidates_select(struct candidate *candidates, int64_t count, int64_t keep)
{
    while (count > 1) {
        int64_t split = partition(candidates, count);
        if (keep - 1 == split) return;
        if (keep - 1 < split) {
            count = split;
        } else {
            candidates += split + 1;
            count -= split + 1;
            keep -= split + 1;
        }
    }
}

int64_t candidates_select_mass(struct candidate *candidates, int64_t count, double mass)
{
    int64_t kept = 0; /* candidates[0 .. kept) are selected; `mass` is what they lack */
    while (count > 0) {
        struct candidate *rest = candidates + kept;
        int64_t split = partition(rest, count);
        double sum = 0;
        for (int64_t i = 0; i < split; i++) sum += rest[i].mass;
        if (sum >= mass && split > 0) { /* the cut is among those before the pivot */
            count = split;
        } else {
            kept += split + 1;
            mass -= sum + rest[split].mass;
            count -= split + 1;
            if (mass <= 0) return kept;
        }
    }
    return kept;
}
