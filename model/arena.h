/* The memory of a model: on the device, and pinned on the host. Every byte has a purpose, so that the memory report is
 * a sum. The CUDA context and captured graphs do not come from here; they are measured. Nor do the pinned buffers of
 * upload.c, which are freed once the weights are on the device. */
#ifndef QUIRE_MODEL_ARENA_H
#define QUIRE_MODEL_ARENA_H

#include "kernels/backend.h"

enum memory_purpose {
    PURPOSE_WEIGHTS,
    PURPOSE_KV_CACHE,
    PURPOSE_ACTIVATIONS,
    PURPOSE_WORKSPACE,
    PURPOSE_STATE,
    PURPOSE_STATE_SLOTS,
    PURPOSE_HOST_STAGING, /* this and the next are pinned host memory */
    PURPOSE_HOST_WEIGHTS, /* which the device reads there */
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
    bool planning;              /* set after arena_init: bytes are counted, nothing is allocated, pointers are NULL */
    struct arena_piece *pieces; /* [count] */
    size_t count, capacity;
    int64_t bytes[NUM_PURPOSES];
};

void arena_init(struct arena *arena, struct backend *backend);

/* Allocates `bytes` (0 gives NULL) for a purpose, zeroed and aligned for any use. */
enum status arena_alloc(struct arena *arena, enum memory_purpose purpose, int64_t bytes, void **out, struct error *err);

/* One array of several to allocate. `pointer` is the address of the pointer that gets its address. */
struct arena_request {
    enum memory_purpose purpose;
    int64_t count, element_size;
    void *pointer;
};
enum status arena_alloc_all(struct arena *arena, const struct arena_request *requests, size_t count, struct error *err);

void arena_release(struct arena *arena, enum memory_purpose purpose); /* frees everything with that purpose */
void arena_free(struct arena *arena);                                 /* frees everything; safe on a zeroed struct */

#endif
