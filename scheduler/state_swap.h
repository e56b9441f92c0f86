/* States in swap space. A swapped-out sequence's newest state goes from its state slot to a host slot, and comes back
 * to any slot. Sequences that share a state share it on the host, too.
 *
 * The state after the last boundary stays behind: it becomes a snapshot, as when the sequence ends (state_pool.h). A
 * sequence that was to write a snapshot for which prompts wait writes none, and another of these prompts does.
 *
 * As with blocks, a step copies first the states that leave and then those that return, before it computes: so a slot
 * whose state leaves can be written in the same step. */
#ifndef QUIRE_SCHEDULER_STATE_SWAP_H
#define QUIRE_SCHEDULER_STATE_SWAP_H

#include "scheduler/state_pool.h"

/* So many host slots more. */
enum status state_swap_grow(struct state_pool *pool, int32_t num_slots, struct error *err);
/* States that the request's sequences hold, a shared one counted once. */
int32_t state_swap_cost(const struct request *request);
/* Moves the states of a request, whose cost is free in the other pool, and adds the copies to the batch. */
enum status state_swap_out(struct state_pool *pool, struct request *request, struct batch *batch, struct error *err);
enum status state_swap_in(struct state_pool *pool, struct request *request, struct batch *batch, struct error *err);

#endif
