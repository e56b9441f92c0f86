/* Selection among the candidate tokens of one sample: by count for top_k, by mass for top_p. */
#ifndef QUIRE_KERNELS_CPU_SELECT_H
#define QUIRE_KERNELS_CPU_SELECT_H

#include <stdint.h>

struct candidate {
    float value; /* logit, divided by the temperature */
    float mass;  /* exp(value - largest value); only candidates_select_mass reads it */
    int32_t id;
};

/* The order of candidates: by value, largest first; equal values by id, lowest first. */

/* Moves the first `keep` in that order to the front, the last of them to candidates[keep - 1]; the others are not
 * sorted. O(count) on average. 0 < keep <= count. */
void candidates_select(struct candidate *candidates, int64_t count, int64_t keep);

/* Moves to the front the fewest candidates from the start of that order whose masses sum to at least `mass`, and
 * returns their number: at least 1, and `count` if all masses together are less. count > 0. */
int64_t candidates_select_mass(struct candidate *candidates, int64_t count, double mass);

#endif
