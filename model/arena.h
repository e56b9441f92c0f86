/* All device memory comes from here, pinned host memory too, and every byte has a purpose. */
#ifndef QUIRE_MODEL_ARENA_H
#define QUIRE_MODEL_ARENA_H

#include "kernels/backend.h"

enum memory_purpose {
    PURPOSE_WEIGHTS,
    PURPOSE_KV_CACHE,
    PURPOSE_ACTIVATIONS,
    PURPOSE_WORKSPACE,
    PURPOSE_STATE,
    PURPOSE_HOST_STAGING, /* pinned host memory, as is the next */
    PURPOSE_SWAP_SPACE,
    NUM_PURPOSES
};

struct arena_piece {
    void *data;
    int64_t bytes;
    enum memory_kind kind;
    enum memory_purpose purpose;
};

struct arena {
    struct backend *backend;
    bool planning;              /* only counts: nothing is allocated, pointers are not for use */
    struct arena_piece *pieces; /* [count] */
    size_t count, capacity;
    int64_t bytes[NUM_PURPOSES];
};

void arena_init(struct arena *arena, struct backend *backend);
/* An arena that plans has `planning` set after arena_init.
 *
 * Allocates `bytes` (0 gives NULL) for a purpose, zeroed and aligned for any use. */
enum status arena_alloc(struct arena *arena, enum memory_purpose purpose, int64_t bytes, void **out, struct error *err);
void arena_release(struct arena *arena, enum memory_purpose purpose); /* what was allocated for it */
void arena_free(struct arena *arena);                                 /* everything; safe on a zeroed struct */

#endif
