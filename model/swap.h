/* Swap space: host memory for the blocks of preempted sequences, and the copies to it and back.
 *
 * Swaps run on a stream of their own, tensor after tensor, and the forward pass waits for a tensor's swaps before it
 * touches that tensor. Later layers have tensors of higher index (model/kv_groups.h), so a step computes its first
 * layers while blocks of its last ones are still being copied. */
#ifndef QUIRE_MODEL_SWAP_H
#define QUIRE_MODEL_SWAP_H

#include <stdbool.h>

#include "base/batch.h"
#include "model/arena.h"
#include "model/kv_cache.h"

#define SWAP_MAX_PIECES 16

/* Zero-initialise it. */
struct swap_space {
    uint8_t *pieces[SWAP_MAX_PIECES]; /* [num_pieces] pinned [piece_blocks, indices, 2 (K, V), a tensor's block] */
    int32_t num_pieces, piece_blocks;
    backend_stream stream;
    backend_event before;   /* the earlier steps are over */
    backend_event *swapped; /* [groups.num_tensors] the blocks of the K and V tensors of an index have been copied; NULL
                               before the first piece */
};

/* Allocates memory for *added more blocks. Host blocks are numbered from cache->num_blocks + 1 on, those of the first
 * call first; all calls together add `limit` blocks, which never changes. Blocks are added when they are needed and not
 * at start-up, because pinning gigabytes takes a second. */
enum status swap_space_grow(struct swap_space *s, struct arena *arena, const struct kv_cache *cache, int32_t limit,
                            int32_t *added, struct error *err);
void swap_space_close(struct swap_space *s, struct backend *b, int32_t num_indices);

bool swap_is_needed(const struct batch *batch);
/* Puts the batch's swaps, first out and then in, on their stream, behind what the main stream has been given so far.
 * s->swapped[index] is recorded when those of an index are done; those of the last index are the last. */
void swap_blocks_of_step(const struct swap_space *s, struct backend *b, const struct kv_cache *cache,
                         const struct batch *batch);

#endif
