#include "model/swap.h"

#include <stdlib.h>

enum { PIECE_BYTES = 64 << 20 }; /* at least */

static enum status create_stream_and_events(struct swap_space *s, struct backend *b, int32_t num_indices,
                                            struct error *err)
{
    s->swapped = calloc((size_t)num_indices, sizeof *s->swapped);
    if (!s->swapped) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
    enum status status = b->stream_create(b, &s->stream, err);
    if (status == STATUS_OK) status = b->event_create(b, &s->before, err);
    for (int32_t i = 0; i < num_indices && status == STATUS_OK; i++) status = b->event_create(b, &s->swapped[i], err);
    if (status != STATUS_OK) swap_space_close(s, b, num_indices);
    return status;
}

enum status swap_space_grow(struct swap_space *s, struct arena *arena, const struct kv_cache *cache, int32_t limit,
                            int32_t *added, struct error *err)
{
    if (!s->swapped) {
        enum status status = create_stream_and_events(s, arena->backend, cache->groups.num_tensors, err);
        if (status != STATUS_OK) return status;
        const int64_t blocks = PIECE_BYTES / cache->block_bytes, least = (limit - 1) / SWAP_MAX_PIECES + 1;
        s->piece_blocks = (int32_t)(blocks < least ? least : blocks < limit ? blocks : limit);
    }
    const int32_t left = limit - s->num_pieces * s->piece_blocks;
    *added = left < s->piece_blocks ? left : s->piece_blocks;
    void *data;
    enum status status = arena_alloc(arena, PURPOSE_SWAP_SPACE, *added * cache->block_bytes, &data, err);
    if (status == STATUS_OK) s->pieces[s->num_pieces++] = data;
    return status;
}

void swap_space_close(struct swap_space *s, struct backend *b, int32_t num_indices)
{
    for (int32_t i = 0; s->swapped && i < num_indices; i++)
        if (s->swapped[i]) b->event_destroy(b, s->swapped[i]);
    if (s->before) b->event_destroy(b, s->before);
    if (s->stream) b->stream_destroy(b, s->stream);
    free(s->swapped);
    *s = (struct swap_space){0};
}

/* One way: pairs of (device block, host block), or the reverse. */
struct direction {
    const struct block_pair *pairs;
    int32_t count;
    bool out;
};

/* Copies the K and V tensors of one index for the pairs whose host block lies in one piece. A host block holds all
 * tensors of the block, side by side, so in units of tensor_block_bytes the same tensor of the next host block is
 * num_tensors further. */
static void swap_piece(const struct swap_space *s, struct backend *b, const struct kv_cache *cache, int32_t index,
                       int32_t piece, const struct direction *d)
{
    enum { AT_ONCE = 256 };
    const int64_t bytes = cache->tensor_block_bytes;
    const int32_t first = cache->num_blocks + 1 + piece * s->piece_blocks, stride = cache->num_tensors;
    const int32_t sides = cache->groups.num_sides;
    uint8_t *k = s->pieces[piece] + sides * index * bytes;
    void *const device[] = {cache->tensors[index],
                            sides == 2 ? cache->tensors[cache->groups.num_tensors + index] : NULL};
    void *const host[] = {k, k + bytes};
    struct block_pair pairs[AT_ONCE];
    struct swap_blocks_args args = {.sources = d->out ? device : host,
                                    .destinations = d->out ? host : device,
                                    .num_caches = sides,
                                    .block_bytes = bytes,
                                    .pairs = pairs};
    for (int32_t i = 0; i < d->count; i++) {
        const struct block_pair *pair = &d->pairs[i];
        const int32_t block = (d->out ? pair->destination : pair->source) - first;
        if (block >= 0 && block < s->piece_blocks)
            pairs[args.num_pairs++] = d->out ? (struct block_pair){pair->source, block * stride}
                                             : (struct block_pair){block * stride, pair->destination};
        if (args.num_pairs == AT_ONCE || (i == d->count - 1 && args.num_pairs > 0)) {
            b->swap_blocks(b, &args, s->stream);
            args.num_pairs = 0;
        }
    }
}

bool swap_is_needed(const struct batch *batch)
{
    return batch->num_swap_out + batch->num_swap_in > 0;
}

/* The swaps wait for the earlier steps, which write to the blocks that are swapped out and may still read the blocks
 * that are overwritten. */
void swap_blocks_of_step(const struct swap_space *s, struct backend *b, const struct kv_cache *cache,
                         const struct batch *batch)
{
    const struct direction out = {batch->swap_out, batch->num_swap_out, true},
                           in = {batch->swap_in, batch->num_swap_in, false};
    b->event_record(b, s->before, NULL);
    b->event_wait(b, s->before, s->stream);
    for (int32_t index = 0; index < cache->groups.num_tensors; index++) {
        for (int32_t piece = 0; piece < s->num_pieces; piece++) swap_piece(s, b, cache, index, piece, &out);
        for (int32_t piece = 0; piece < s->num_pieces; piece++) swap_piece(s, b, cache, index, piece, &in);
        b->event_record(b, s->swapped[index], s->stream);
    }
}
