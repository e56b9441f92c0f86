/* Swap space: host memory for the blocks and states of preempted sequences, and the copies to it and back.
 *
 * Swaps run on a stream of their own, first the states and then the blocks, tensor after tensor, and the forward pass
 * waits for a tensor's swaps before it touches that tensor. Later layers have tensors of higher index
 * (model/kv_groups.h), so a step computes its first layers while blocks of its last ones are still being copied. It
 * waits for all states at once. */
#ifndef QUIRE_MODEL_SWAP_H
#define QUIRE_MODEL_SWAP_H

#include <stdbool.h>

#include "base/batch.h"
#include "model/arena.h"
#include "model/kv_cache.h"
#include "model/state_cache.h"

#define SWAP_MAX_PIECES 16

/* Pinned memory that grows by pieces, up to `limit` units of unit_bytes. The first unit has the number `first`. */
struct swap_pieces {
    uint8_t *data[SWAP_MAX_PIECES]; /* [count] */
    int32_t count, piece_units;     /* the last piece may have fewer */
    int32_t first, limit;
    int32_t total;      /* units that there are */
    int64_t unit_bytes; /* 0: nothing is kept here of a unit, and there are no pieces */
};

/* Zero-initialise it. */
struct swap_space {
    struct swap_pieces blocks; /* each piece [units, indices, 2 (K, V), a tensor's block] */
    struct swap_pieces slots;  /* each piece, layer after layer, [units, conv_stride] and then [units, matrix_stride] */
    backend_stream stream;
    backend_event before;   /* the earlier steps are over */
    backend_event states;   /* the states have been copied */
    backend_event *swapped; /* [groups.num_tensors] the blocks of the K and V tensors of an index have been copied; NULL
                               before the first piece */
};

/* Allocates memory for more blocks: s->blocks.total is how many there are then. Host blocks are numbered from
 * cache->num_blocks + 1 on, those of the first call first; all calls together add `limit` blocks, which never changes.
 * Blocks are added when they are needed and not at start-up, because pinning gigabytes takes a second. */
enum status swap_space_grow(struct swap_space *s, struct arena *arena, const struct kv_cache *cache, int32_t limit,
                            struct error *err);
/* The same for host slots, numbered from states->num_slots + 1 on. */
enum status swap_space_grow_slots(struct swap_space *s, struct arena *arena, const struct kv_cache *cache,
                                  const struct state_cache *states, int32_t limit, struct error *err);
void swap_space_close(struct swap_space *s, struct backend *b, int32_t num_indices);

bool swap_is_needed(const struct batch *batch);
/* Puts the batch's swaps, first out and then in, on their stream, behind what the main stream has been given so far.
 * s->swapped[index] is recorded when those of an index are done; those of the last index are the last. The main stream
 * waits for the states. */
void swap_of_step(const struct swap_space *s, struct backend *b, const struct kv_cache *cache,
                  const struct state_cache *states, const struct batch *batch);

#endif
