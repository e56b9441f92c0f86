/* Choosing among the tokens of one row: candidates, and the cuts of top_k and top_p. */
#ifndef QUIRE_KERNELS_CPU_SELECT_H
#define QUIRE_KERNELS_CPU_SELECT_H

#include <stdint.h>

struct candidate {
    float value; /* logit, divided by the temperature */
    float mass;  /* exp(value - largest value); only candidates_select_mass reads it */
    int32_t id;
};

/* Candidates are ordered by value, largest first; equal values by id, lowest first. */

/* Moves the `keep` first in that order to the front, unordered among themselves, in O(count) on average. Wants
 * 0 < keep <= count. The last of them is then at candidates[keep - 1]. */
void candidates_select(struct candidate *candidates, int64_t count, int64_t keep);

/* Moves to the front the shortest run from the start of that order whose masses sum to at least `mass`, and returns its
 * length; at least 1, and all of them if the sum never gets there. Wants count > 0. */
int64_t candidates_select_mass(struct candidate *candidates, int64_t count, double mass);

#endif
