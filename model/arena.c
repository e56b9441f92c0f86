#include "model/arena.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

void arena_init(struct arena *arena, struct backend *backend)
{
    *arena = (struct arena){.backend = backend};
}

enum status arena_alloc(struct arena *arena, enum memory_purpose purpose, int64_t bytes, void **out, struct error *err)
{
    struct backend *b = arena->backend;
    const bool host = purpose >= PURPOSE_HOST_STAGING;
    const enum memory_kind kind = host ? MEMORY_HOST_PINNED : MEMORY_DEVICE;
    *out = NULL;
    if (bytes == 0) return STATUS_OK;
    if (arena->planning) {
        arena->bytes[purpose] += bytes;
        return STATUS_OK;
    }
    if (!array_reserve(&arena->pieces, &arena->capacity, arena->count + 1, sizeof *arena->pieces))
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
    enum status status = b->memory_alloc(b, kind, bytes, out, err);
    if (status != STATUS_OK) return status;
    arena->pieces[arena->count++] = (struct arena_piece){*out, bytes, kind, purpose};
    arena->bytes[purpose] += bytes;
    return STATUS_OK;
}

enum status arena_alloc_all(struct arena *arena, const struct arena_request *requests, size_t count, struct error *err)
{
    for (size_t i = 0; i < count; i++) {
        const struct arena_request *r = &requests[i];
        void *data;
        enum status status = arena_alloc(arena, r->purpose, r->count * r->element_size, &data, err);
        if (status != STATUS_OK) return status;
        memcpy(r->pointer, &data, sizeof data);
    }
    return STATUS_OK;
}

static void free_piece(struct arena *arena, const struct arena_piece *piece)
{
    arena->backend->memory_free(arena->backend, piece->kind, piece->data, piece->bytes);
    arena->bytes[piece->purpose] -= piece->bytes;
}

void arena_release(struct arena *arena, enum memory_purpose purpose)
{
    size_t kept = 0;
    for (size_t i = 0; i < arena->count; i++) {
        if (arena->pieces[i].purpose == purpose)
            free_piece(arena, &arena->pieces[i]);
        else
            arena->pieces[kept++] = arena->pieces[i];
    }
    arena->count = kept;
}

void arena_free(struct arena *arena)
{
    while (arena->count > 0) free_piece(arena, &arena->pieces[--arena->count]);
    free(arena->pieces);
    *arena = (struct arena){0};
}
