/* Moving blocks before a step computes: to host memory and back, and copies on write.
 *
 * Swaps run on a stream of their own, a layer after the other, and the forward pass waits for a layer's where it first
 * touches that layer's cache. So a step computes its first layers while blocks of its last are still on their way. */
#ifndef QUIRE_MODEL_SWAP_H
#define QUIRE_MODEL_SWAP_H

#include "model/model.h"

bool swap_is_needed(const struct batch *batch);
/* Puts the batch's changes of block tables and its copies of blocks on the main stream, its swaps on their own. A block
 * that is swapped out may be written to in the same step, and one that came back copied: they are moved in that order.
 */
void swap_move_blocks(struct model *m, const struct batch *batch);
/* The main stream waits for the swaps of one layer: before it touches that layer's cache, in a step that swaps. */
void swap_wait(struct model *m, int32_t layer);
void swap_close(struct model *m);

#endif
