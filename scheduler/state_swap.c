#include "scheduler/state_swap.h"

enum status state_swap_grow(struct state_pool *pool, int32_t num_slots, struct error *err)
{
    return block_pool_grow(&pool->host, num_slots, err);
}

int32_t state_swap_cost(const struct request *request)
{
    int32_t count = 0;
    for (int32_t i = 0; i < request->num_sequences; i++) {
        const int32_t slot = request->sequences[i].state;
        bool is_counted = slot == STATE_SLOT_NONE;
        for (int32_t k = 0; k < i && !is_counted; k++) is_counted = request->sequences[k].state == slot;
        count += !is_counted;
    }
    return count;
}

/* The way of states from one pool to the other. The note of a slot that leaves is its place there. */
struct way {
    struct block_pool *from, *to;
    struct block_pair *pairs;
    int32_t *num_pairs;
    bool out;
};

/* A place for a state. On the device a snapshot may give way to it. */
static enum status take_place(struct state_pool *pool, const struct way *way, int32_t *place, struct error *err)
{
    int32_t evicted;
    *place = way->out ? block_pool_take(&pool->host, &evicted) : state_pool_take(pool);
    if (*place > STATE_SLOT_NONE) return STATUS_OK;
    return error_set(err, STATUS_INTERNAL, "a swapped state needs a slot, but all %d are held",
                     block_pool_num_total(way->to));
}

static enum status choose_place(struct state_pool *pool, int32_t slot, const struct way *way, struct error *err)
{
    struct block *b = &way->from->blocks[slot];
    int32_t place = b->note;
    if (place) return block_pool_share(way->to, place, 0, err);
    const enum status status = take_place(pool, way, &place, err);
    if (status != STATUS_OK) return status;
    b->note = place;
    way->pairs[(*way->num_pairs)++] = (struct block_pair){slot, place};
    return STATUS_OK;
}

static enum status move(struct state_pool *pool, struct request *request, const struct way *way, struct error *err)
{
    const int32_t first = *way->num_pairs;
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < request->num_sequences && status == STATUS_OK; i++)
        if (request->sequences[i].state != STATE_SLOT_NONE)
            status = choose_place(pool, request->sequences[i].state, way, err);
    if (status != STATUS_OK) return status;
    for (int32_t i = 0; i < request->num_sequences; i++) {
        struct sequence *seq = &request->sequences[i];
        const int32_t place = seq->state != STATE_SLOT_NONE ? way->from->blocks[seq->state].note : STATE_SLOT_NONE;
        state_pool_release(pool, seq);
        seq->state = place;
    }
    for (int32_t i = first; i < *way->num_pairs; i++) { /* a slot that is free by now has no note */
        struct block *b = &way->from->blocks[way->pairs[i].source];
        if (b->ref_count > 0) b->note = 0;
    }
    return STATUS_OK;
}

enum status state_swap_out(struct state_pool *pool, struct request *request, struct batch *batch, struct error *err)
{
    const struct way way = {&pool->slots, &pool->host, batch->states_out, &batch->num_states_out, true};
    return move(pool, request, &way, err);
}

enum status state_swap_in(struct state_pool *pool, struct request *request, struct batch *batch, struct error *err)
{
    const struct way way = {&pool->host, &pool->slots, batch->states_in, &batch->num_states_in, false};
    return move(pool, request, &way, err);
}
