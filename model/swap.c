#include "model/swap.h"

#include <stdlib.h>

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
    return status;
}

enum status model_allocate_swap_space(struct model *m, int32_t num_host_blocks, struct error *err)
{
    m->swap.tensor_bytes = model_cache_block_bytes(m) * num_host_blocks;
    void *data;
    enum status status = create_order(m, err);
    if (status == STATUS_OK)
        status =
            arena_alloc(&m->arena, PURPOSE_SWAP_SPACE, 2 * m->config.num_layers * m->swap.tensor_bytes, &data, err);
    if (status == STATUS_OK)
        m->swap.data = data;
    else
        swap_close(m);
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

/* The K and V of one layer. Host blocks are numbered after the device's. */
static void swap_layer(struct model *m, int32_t layer, const struct block_pair *pairs, int32_t count, bool out)
{
    enum { AT_ONCE = 256 };
    uint8_t *k = m->swap.data + 2 * layer * m->swap.tensor_bytes;
    void *const device[] = {m->k_cache[layer], m->v_cache[layer]};
    void *const host[] = {k, k + m->swap.tensor_bytes};
    const int32_t first_host = m->num_blocks + 1;
    struct block_pair places[AT_ONCE];
    for (int32_t first = 0; first < count; first += AT_ONCE) {
        const int32_t n = count - first < AT_ONCE ? count - first : AT_ONCE;
        for (int32_t i = 0; i < n; i++)
            places[i] = (struct block_pair){pairs[first + i].source - (out ? 0 : first_host),
                                            pairs[first + i].destination - (out ? first_host : 0)};
        m->backend->swap_blocks(m->backend, out ? device : host, out ? host : device, 2, model_cache_block_bytes(m),
                                places, n, m->swap.stream);
    }
}

/* Not before the steps so far are over: they write to blocks that go, and may still read those that are taken. */
static void swap_layers(struct model *m, const struct batch *batch)
{
    struct backend *b = m->backend;
    b->event_record(b, m->swap.before, NULL);
    b->event_wait(b, m->swap.before, m->swap.stream);
    for (int32_t layer = 0; layer < m->config.num_layers; layer++) {
        swap_layer(m, layer, batch->swap_out, batch->num_swap_out, true);
        swap_layer(m, layer, batch->swap_in, batch->num_swap_in, false);
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
    if (batch->num_deltas > 0)
        b->update_block_tables(b, m->state.block_tables, batch_max_blocks(&m->options.limits), m->inputs.deltas,
                               batch->num_deltas, NULL);
    if (swaps) swap_layers(m, batch);
    if (batch->num_copies == 0) return;
    if (swaps) swap_wait(m, m->config.num_layers - 1); /* the last to be moved; copies are of all layers */
    b->copy_blocks(b, m->k_cache, 2 * m->config.num_layers, model_cache_block_bytes(m), m->inputs.copies,
                   batch->num_copies, NULL);
}

void swap_wait(struct model *m, int32_t layer)
{
    m->backend->event_wait(m->backend, m->swap.moved[layer], NULL);
}
