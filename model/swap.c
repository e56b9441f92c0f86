#include "model/swap.h"

#include <stdlib.h>

enum { PIECE_BYTES = 64 << 20 }; /* at least */

/* ---- memory ---- */

static enum status create_stream_and_events(struct swap_space *s, struct backend *b, int32_t num_indices,
                                            struct error *err)
{
    if (s->swapped) return STATUS_OK;
    s->swapped = calloc((size_t)num_indices + 1, sizeof *s->swapped);
    if (!s->swapped) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
    enum status status = b->stream_create(b, &s->stream, err);
    if (status == STATUS_OK) status = b->event_create(b, &s->before, err);
    if (status == STATUS_OK) status = b->event_create(b, &s->states, err);
    for (int32_t i = 0; i < num_indices && status == STATUS_OK; i++) status = b->event_create(b, &s->swapped[i], err);
    if (status != STATUS_OK) swap_space_close(s, b, num_indices);
    return status;
}

static int32_t units_of_piece(const struct swap_pieces *p, int32_t piece)
{
    const int32_t left = p->limit - piece * p->piece_units;
    return left < p->piece_units ? left : p->piece_units;
}

/* Of several stages, one may have all units when another still grows. */
static enum status add_piece(struct swap_pieces *p, struct arena *arena, struct error *err)
{
    void *data;
    if (p->unit_bytes == 0) p->total = p->limit;
    if (p->total == p->limit) return STATUS_OK;
    const int32_t units = units_of_piece(p, p->count);
    enum status status = arena_alloc(arena, PURPOSE_SWAP_SPACE, units * p->unit_bytes, &data, err);
    if (status != STATUS_OK) return status;
    p->data[p->count++] = data;
    p->total += units;
    return STATUS_OK;
}

static struct swap_pieces pieces_of(int64_t unit_bytes, int32_t first, int32_t limit)
{
    const int64_t units = unit_bytes > 0 ? PIECE_BYTES / unit_bytes : limit, least = (limit - 1) / SWAP_MAX_PIECES + 1;
    return (struct swap_pieces){.piece_units = (int32_t)(units < least   ? least
                                                         : units < limit ? units
                                                                         : limit),
                                .first = first,
                                .limit = limit,
                                .unit_bytes = unit_bytes};
}

enum status swap_space_grow(struct swap_space *s, struct arena *arena, const struct kv_cache *cache, int32_t limit,
                            struct error *err)
{
    const enum status status = create_stream_and_events(s, arena->backend, cache->groups.num_tensors, err);
    if (status != STATUS_OK) return status;
    if (s->blocks.total == 0) s->blocks = pieces_of(cache->block_bytes, cache->num_blocks + 1, limit);
    return add_piece(&s->blocks, arena, err);
}

enum status swap_space_grow_slots(struct swap_space *s, struct arena *arena, const struct kv_cache *cache,
                                  const struct state_cache *states, int32_t limit, struct error *err)
{
    const enum status status = create_stream_and_events(s, arena->backend, cache->groups.num_tensors, err);
    if (status != STATUS_OK) return status;
    if (s->slots.total == 0) s->slots = pieces_of(states->slot_bytes, states->num_slots + 1, limit);
    return add_piece(&s->slots, arena, err);
}

void swap_space_close(struct swap_space *s, struct backend *b, int32_t num_indices)
{
    for (int32_t i = 0; s->swapped && i < num_indices; i++)
        if (s->swapped[i]) b->event_destroy(b, s->swapped[i]);
    if (s->before) b->event_destroy(b, s->before);
    if (s->states) b->event_destroy(b, s->states);
    if (s->stream) b->stream_destroy(b, s->stream);
    free(s->swapped);
    *s = (struct swap_space){0};
}

/* ---- copies ---- */

/* One way: pairs of (device, host), or the reverse. */
struct direction {
    const struct block_pair *pairs;
    int32_t count;
    bool out;
};

/* Arrays on the device, and those of a piece on the host. In units of `bytes`, what is one unit of swap space further
 * is `stride` units further on the host. */
struct arrays {
    void *const *device, *const *host; /* [count] */
    int32_t count, stride;
    int64_t bytes;
};

/* Copies the pairs whose host unit lies in the piece. */
static void swap_piece(const struct swap_space *s, struct backend *b, const struct swap_pieces *p, int32_t piece,
                       const struct arrays *a, const struct direction *d)
{
    enum { AT_ONCE = 256 };
    const int32_t first = p->first + piece * p->piece_units;
    struct block_pair pairs[AT_ONCE];
    struct swap_blocks_args args = {.sources = d->out ? a->device : a->host,
                                    .destinations = d->out ? a->host : a->device,
                                    .num_caches = a->count,
                                    .block_bytes = a->bytes,
                                    .pairs = pairs};
    for (int32_t i = 0; i < d->count; i++) {
        const struct block_pair *pair = &d->pairs[i];
        const int32_t unit = (d->out ? pair->destination : pair->source) - first;
        if (unit >= 0 && unit < p->piece_units)
            pairs[args.num_pairs++] = d->out ? (struct block_pair){pair->source, unit * a->stride}
                                             : (struct block_pair){unit * a->stride, pair->destination};
        if (args.num_pairs == AT_ONCE || (i == d->count - 1 && args.num_pairs > 0)) {
            b->swap_blocks(b, &args, s->stream);
            args.num_pairs = 0;
        }
    }
}

/* The K and V tensors of one index. A host block holds all tensors of the block, side by side. */
static void swap_index(const struct swap_space *s, struct backend *b, const struct kv_cache *cache, int32_t index,
                       const struct direction *d)
{
    const int64_t bytes = cache->tensor_block_bytes;
    const int32_t sides = cache->groups.num_sides;
    void *const device[] = {cache->tensors[index],
                            sides == 2 ? cache->tensors[cache->groups.num_tensors + index] : NULL};
    for (int32_t piece = 0; piece < s->blocks.count; piece++) {
        uint8_t *k = s->blocks.data[piece] + sides * index * bytes;
        void *const host[] = {k, k + bytes};
        const struct arrays arrays = {device, host, sides, cache->num_tensors, bytes};
        swap_piece(s, b, &s->blocks, piece, &arrays, d);
    }
}

/* The states of a piece. Arrays of one size are copied together: mostly those of all layers. */
static void swap_states(const struct swap_space *s, struct backend *b, const struct state_cache *states, int32_t piece,
                        const struct direction *d)
{
    const int64_t units = units_of_piece(&s->slots, piece);
    void *device[MODEL_MAX_LAYERS], *host[MODEL_MAX_LAYERS];
    for (int is_matrix = 0; is_matrix < 2; is_matrix++) {
        struct arrays arrays = {device, host, 0, 1, 0};
        uint8_t *at = s->slots.data[piece];
        for (int32_t i = 0; i < MODEL_MAX_LAYERS; i++) {
            const struct layer_state *l = &states->layers[i];
            const int64_t conv = l->conv_stride * (int64_t)sizeof(float),
                          matrix = l->matrix_stride * (int64_t)sizeof(float);
            const int64_t bytes = is_matrix ? matrix : conv;
            if (bytes != arrays.bytes && bytes > 0) {
                if (arrays.count > 0) swap_piece(s, b, &s->slots, piece, &arrays, d);
                arrays.count = 0;
                arrays.bytes = bytes;
            }
            if (bytes > 0) {
                device[arrays.count] = is_matrix ? l->matrix : l->conv;
                host[arrays.count++] = at + (is_matrix ? units * conv : 0);
            }
            at += units * (conv + matrix);
        }
        if (arrays.count > 0) swap_piece(s, b, &s->slots, piece, &arrays, d);
    }
}

bool swap_is_needed(const struct batch *batch)
{
    return batch->num_swap_out + batch->num_swap_in + batch->num_states_out + batch->num_states_in > 0;
}

/* The swaps wait for the earlier steps, which write to what is swapped out and may still read what is overwritten. */
void swap_of_step(const struct swap_space *s, struct backend *b, const struct kv_cache *cache,
                  const struct state_cache *states, const struct batch *batch)
{
    const struct direction out = {batch->swap_out, batch->num_swap_out, true},
                           in = {batch->swap_in, batch->num_swap_in, false},
                           states_out = {batch->states_out, batch->num_states_out, true},
                           states_in = {batch->states_in, batch->num_states_in, false};
    b->event_record(b, s->before, NULL);
    b->event_wait(b, s->before, s->stream);
    for (int32_t piece = 0; piece < s->slots.count; piece++) swap_states(s, b, states, piece, &states_out);
    for (int32_t piece = 0; piece < s->slots.count; piece++) swap_states(s, b, states, piece, &states_in);
    b->event_record(b, s->states, s->stream);
    b->event_wait(b, s->states, NULL);
    for (int32_t index = 0; index < cache->groups.num_tensors; index++) {
        swap_index(s, b, cache, index, &out);
        swap_index(s, b, cache, index, &in);
        b->event_record(b, s->swapped[index], s->stream);
    }
}
