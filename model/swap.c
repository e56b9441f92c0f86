#include "model/swap.h"

#include <stdlib.h>

enum { PIECE_BYTES = 64 << 20 }; /* at least */

static int64_t host_block_bytes(const struct model *m)
{
    return 2 * m->config.num_layers * model_cache_block_bytes(m);
}

static enum status create_order(struct model *m, struct error *err)
{
    struct backend *b = m->backend;
    struct swap_space *s = &m->swap;
    s->moved = calloc((size_t)m->config.num_layers, sizeof *s->moved);
    if (!s->moved) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
    enum status status = b->stream_create(b, &s->stream, err);
    if (status == STATUS_OK) status = b->event_create(b, &s->before, err);
    for (int32_t i = 0; i < m->config.num_layers && status == STATUS_OK; i++)
        status = b->event_create(b, &s->moved[i], err);
    if (status != STATUS_OK) swap_close(m);
    return status;
}

enum status model_grow_swap_space(struct model *m, int32_t limit, int32_t *added, struct error *err)
{
    struct swap_space *s = &m->swap;
    if (!s->moved) {
        enum status status = create_order(m, err);
        if (status != STATUS_OK) return status;
        const int64_t blocks = PIECE_BYTES / host_block_bytes(m), least = (limit - 1) / SWAP_MAX_PIECES + 1;
        s->piece_blocks = (int32_t)(blocks < least ? least : blocks < limit ? blocks : limit);
    }
    const int32_t left = limit - s->num_pieces * s->piece_blocks;
    *added = left < s->piece_blocks ? left : s->piece_blocks;
    void *data;
    enum status status = arena_alloc(&m->arena, PURPOSE_SWAP_SPACE, *added * host_block_bytes(m), &data, err);
    if (status == STATUS_OK) s->pieces[s->num_pieces++] = data;
    return status;
}

void swap_close(struct model *m)
{
    struct backend *b = m->backend;
    struct swap_space *s = &m->swap;
    for (int32_t i = 0; s->moved && i < m->config.num_layers; i++)
        if (s->moved[i]) b->event_destroy(b, s->moved[i]);
    if (s->before) b->event_destroy(b, s->before);
    if (s->stream) b->stream_destroy(b, s->stream);
    free(s->moved);
    *s = (struct swap_space){0};
}

/* The K and V of one layer, of the pairs whose host block lies in one piece. In a piece the blocks of a tensor are as
 * far apart as a block of all tensors is long. */
static void swap_piece(struct model *m, int32_t layer, int32_t piece, const struct block_pair *pairs, int32_t count,
                       bool out)
{
    enum { AT_ONCE = 256 };
    const struct swap_space *s = &m->swap;
    const int64_t bytes = model_cache_block_bytes(m);
    const int32_t first = m->num_blocks + 1 + piece * s->piece_blocks, apart = 2 * m->config.num_layers;
    uint8_t *k = s->pieces[piece] + 2 * layer * bytes;
    void *const device[] = {m->k_cache[layer], m->v_cache[layer]}, *const host[] = {k, k + bytes};
    struct block_pair places[AT_ONCE];
    for (int32_t i = 0, n = 0; i < count; i++) {
        const int32_t block = (out ? pairs[i].destination : pairs[i].source) - first;
        if (block >= 0 && block < s->piece_blocks)
            places[n++] = out ? (struct block_pair){pairs[i].source, block * apart}
                              : (struct block_pair){block * apart, pairs[i].destination};
        if (n == AT_ONCE || (i == count - 1 && n > 0)) {
            const struct swap_blocks_args args = {.sources = out ? device : host,
                                                  .destinations = out ? host : device,
                                                  .num_caches = 2,
                                                  .block_bytes = bytes,
                                                  .pairs = places,
                                                  .num_pairs = n};
            m->backend->swap_blocks(m->backend, &args, s->stream);
            n = 0;
        }
    }
}

static void swap_layer(struct model *m, int32_t layer, const struct batch *batch)
{
    for (int32_t piece = 0; piece < m->swap.num_pieces; piece++)
        swap_piece(m, layer, piece, batch->swap_out, batch->num_swap_out, true);
    for (int32_t piece = 0; piece < m->swap.num_pieces; piece++)
        swap_piece(m, layer, piece, batch->swap_in, batch->num_swap_in, false);
}

/* Not before the steps so far are over: they write to blocks that go, and may still read those that are taken. */
static void swap_layers(struct model *m, const struct batch *batch)
{
    struct backend *b = m->backend;
    b->event_record(b, m->swap.before, NULL);
    b->event_wait(b, m->swap.before, m->swap.stream);
    for (int32_t layer = 0; layer < m->config.num_layers; layer++) {
        swap_layer(m, layer, batch);
        b->event_record(b, m->swap.moved[layer], m->swap.stream);
    }
}

bool swap_is_needed(const struct batch *batch)
{
    return batch->num_swap_out + batch->num_swap_in > 0;
}

void swap_move_blocks(struct model *m, const struct batch *batch)
{
    struct backend *b = m->backend;
    const bool swaps = swap_is_needed(batch);
    if (batch->num_deltas > 0) {
        const struct update_block_tables_args args = {.block_tables = m->state.block_tables,
                                                      .block_table_stride = batch_max_blocks(&m->options.limits),
                                                      .deltas = m->inputs.deltas,
                                                      .num_deltas = batch->num_deltas};
        b->update_block_tables(b, &args);
    }
    if (swaps) swap_layers(m, batch);
    if (batch->num_copies == 0) return;
    if (swaps) swap_wait(m, m->config.num_layers - 1); /* the last to be moved; copies are of all layers */
    const struct copy_blocks_args args = {.caches = m->k_cache,
                                          .num_caches = 2 * m->config.num_layers,
                                          .block_bytes = model_cache_block_bytes(m),
                                          .pairs = m->inputs.copies,
                                          .num_pairs = batch->num_copies};
    b->copy_blocks(b, &args);
}

void swap_wait(struct model *m, int32_t layer)
{
    m->backend->event_wait(m->backend, m->swap.moved[layer], NULL);
}
