#include "scheduler/state_pool.h"

#include <stdlib.h>

int32_t state_pool_min_slots(const struct batch_limits *limits)
{
    return 2 * limits->max_num_seqs + limits->max_num_drafts + 1;
}

enum status state_pool_init(struct state_pool *pool, const struct batch_limits *limits, struct prefix_cache *cache,
                            struct error *err)
{
    *pool = (struct state_pool){.boundary = batch_largest_block_size(limits), .block_size = limits->block_size};
    if (limits->num_state_slots == 0) return STATUS_OK;
    const size_t seqs = (size_t)limits->max_num_seqs;
    enum status status = block_pool_init(&pool->slots, 1, limits->num_state_slots, err);
    if (status == STATUS_OK) status = block_pool_init(&pool->host, pool->slots.end, 0, err);
    if (status == STATUS_OK && cache) status = prefix_cache_add_snapshots(cache, err);
    if (status != STATUS_OK) return status;
    pool->cache = cache;
    pool->leaving = calloc(seqs, sizeof *pool->leaving);
    pool->arrivals = calloc(seqs, sizeof *pool->arrivals);
    if (pool->leaving && pool->arrivals) return STATUS_OK;
    return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the state slots of %d sequences",
                     limits->max_num_seqs);
}

void state_pool_free(struct state_pool *pool)
{
    block_pool_free(&pool->slots);
    block_pool_free(&pool->host);
    free(pool->leaving);
    free(pool->arrivals);
    *pool = (struct state_pool){0};
}

/* ---- holders ---- */

static void violate(struct state_pool *pool, const struct error *err)
{
    if (!pool->violation.text[0]) error_set(&pool->violation, STATUS_INTERNAL, "state slots: %s", err->text);
}

static struct block_pool *pool_of(struct state_pool *pool, int32_t slot)
{
    return slot < pool->slots.end ? &pool->slots : &pool->host;
}

static void share(struct state_pool *pool, int32_t slot)
{
    struct error err;
    if (block_pool_share(pool_of(pool, slot), slot, 0, &err) != STATUS_OK) violate(pool, &err);
}

void state_pool_drop(struct state_pool *pool, int32_t slot)
{
    struct error err;
    if (slot != STATE_SLOT_NONE && block_pool_release(pool_of(pool, slot), slot, &err) != STATUS_OK)
        violate(pool, &err);
}

static bool is_own(const struct state_pool *pool, int32_t slot)
{
    return slot != STATE_SLOT_NONE && pool->slots.blocks[slot].ref_count == 1 &&
           pool->slots.blocks[slot].prefix == PREFIX_NONE;
}

/* ---- boundaries ---- */

/* The sequence keeps no boundary any more. */
static void give_up(struct state_pool *pool, struct sequence *seq)
{
    state_pool_drop(pool, seq->boundary_state);
    seq->boundary_state = STATE_SLOT_NONE;
    seq->boundary = 0;
}

void state_pool_keep(struct state_pool *pool, struct sequence *seq, int32_t slot, int32_t boundary)
{
    if (!pool->cache) return;
    share(pool, slot);
    give_up(pool, seq);
    seq->boundary_state = slot;
    seq->boundary = boundary;
}

/* ---- snapshots ---- */

static void set_snapshot(struct state_pool *pool, int32_t prefix, int32_t snapshot)
{
    pool->cache->snapshots[prefix] = snapshot;
}

/* Gives the slot to the prefix, unless that has one or lacks blocks, or the slot is another's. */
static void attach(struct state_pool *pool, int32_t slot, int32_t prefix)
{
    const int32_t snapshot = prefix_cache_snapshot(pool->cache, prefix);
    if (snapshot > 0) return;
    set_snapshot(pool, prefix, STATE_SLOT_NONE);
    if (!prefix_cache_has_all_blocks(pool->cache, prefix) || pool->slots.blocks[slot].prefix != PREFIX_NONE) return;
    set_snapshot(pool, prefix, slot);
    block_pool_set_prefix(&pool->slots, slot, prefix);
    pool->num_snapshots++;
    pool->made++;
}

void state_pool_drop_snapshot(struct state_pool *pool, int32_t prefix)
{
    const int32_t slot = pool->cache ? prefix_cache_snapshot(pool->cache, prefix) : STATE_SLOT_NONE;
    if (slot <= 0) return;
    set_snapshot(pool, prefix, STATE_SLOT_NONE);
    block_pool_set_prefix(&pool->slots, slot, PREFIX_NONE);
    pool->num_snapshots--;
    pool->evicted++;
}

int32_t state_pool_take(struct state_pool *pool)
{
    int32_t evicted;
    const int32_t slot = block_pool_take(&pool->slots, &evicted);
    if (slot == BLOCK_NONE) return STATE_SLOT_NONE;
    if (evicted != PREFIX_NONE) {
        set_snapshot(pool, evicted, STATE_SLOT_NONE);
        pool->num_snapshots--;
        pool->evicted++;
    }
    return slot;
}

void state_pool_add_snapshot(struct state_pool *pool, struct sequence *seq)
{
    if (prefix_cache_snapshot(pool->cache, seq->prefix) > 0) return;
    set_snapshot(pool, seq->prefix, SNAPSHOT_PENDING);
    prefix_cache_pin(pool->cache, seq->prefix);
    share(pool, seq->state);
    pool->arrivals[pool->num_arrivals++] = (struct arrival){seq->state, seq->prefix};
    seq->num_writable = 0;
}

void state_pool_settle(struct state_pool *pool)
{
    for (int32_t i = 0; i < pool->num_arrivals; i++) {
        const struct arrival *a = &pool->arrivals[i];
        attach(pool, a->slot, a->prefix);
        state_pool_drop(pool, a->slot);
        prefix_cache_unpin(pool->cache, a->prefix);
    }
    for (int32_t i = 0; i < pool->num_leaving; i++) state_pool_drop(pool, pool->leaving[i]);
    pool->num_arrivals = pool->num_leaving = 0;
}

static void cancel_pending(struct state_pool *pool, int32_t prefix)
{
    if (prefix_cache_snapshot(pool->cache, prefix) == SNAPSHOT_PENDING) set_snapshot(pool, prefix, STATE_SLOT_NONE);
    prefix_cache_unpin(pool->cache, prefix);
}

void state_pool_cancel(struct state_pool *pool)
{
    for (int32_t i = 0; i < pool->num_arrivals; i++) {
        state_pool_drop(pool, pool->arrivals[i].slot);
        cancel_pending(pool, pool->arrivals[i].prefix);
    }
    pool->num_arrivals = 0;
}

/* ---- sequences ---- */

void state_pool_start(struct state_pool *pool, struct sequence *seq, int32_t slot)
{
    share(pool, slot);
    seq->state = slot;
    pool->hits++;
}

void state_pool_await(struct state_pool *pool, struct sequence *seq, int32_t prefix, int32_t num_tokens)
{
    if (prefix_cache_snapshot(pool->cache, prefix) != STATE_SLOT_NONE) return;
    set_snapshot(pool, prefix, SNAPSHOT_PENDING);
    prefix_cache_pin(pool->cache, prefix);
    seq->parting_prefix = prefix;
    seq->parting = num_tokens;
}

static void end_parting(struct state_pool *pool, struct sequence *seq)
{
    if (seq->parting > 0) cancel_pending(pool, seq->parting_prefix);
    seq->parting = 0;
    seq->parting_prefix = PREFIX_NONE;
}

void state_pool_fork(struct state_pool *pool, const struct sequence *parent, struct sequence *child)
{
    child->state = parent->state;
    if (child->state != STATE_SLOT_NONE) share(pool, child->state);
}

/* An answer's state after a boundary is kept, if the sequence can go on in another slot: for want of one, the boundary
 * before is given up. */
static void keep_boundary(struct state_pool *pool, struct sequence *seq, int32_t num_computed)
{
    const bool is_snapshot = pool->slots.blocks[seq->state].prefix != PREFIX_NONE;
    if (num_computed % pool->boundary != 0 || num_computed < seq->prompt_len || seq->request->beams || is_snapshot)
        return;
    if (pool->slots.num_free == 0) give_up(pool, seq);
    if (pool->slots.num_free > 0) state_pool_keep(pool, seq, seq->state, num_computed);
}

enum status state_pool_write(struct state_pool *pool, struct sequence *seq, int32_t num_computed, int32_t *source,
                             struct error *err)
{
    *source = seq->state;
    if (seq->parting > 0 && seq->num_computed >= seq->parting) end_parting(pool, seq);
    if (seq->state != STATE_SLOT_NONE) keep_boundary(pool, seq, num_computed);
    if (is_own(pool, seq->state)) return STATUS_OK;
    const int32_t slot = state_pool_take(pool);
    if (slot == STATE_SLOT_NONE)
        return error_set(err, STATUS_INTERNAL, "a sequence needs a state slot, but all %d are held",
                         block_pool_num_total(&pool->slots));
    if (seq->state != STATE_SLOT_NONE) pool->leaving[pool->num_leaving++] = seq->state;
    seq->state = slot;
    return STATUS_OK;
}

void state_pool_forget(struct state_pool *pool, struct sequence *seq)
{
    state_pool_drop(pool, seq->state);
    seq->state = STATE_SLOT_NONE;
}

/* The prefix of the sequence's first num_tokens tokens; PREFIX_NONE: the cache does not know it. */
static int32_t prefix_of(const struct state_pool *pool, const struct sequence *seq, int32_t num_tokens)
{
    int32_t prefix = seq->prefix, length = seq->num_hashed * pool->block_size;
    if (length < num_tokens) return PREFIX_NONE;
    for (; length > num_tokens; length -= pool->block_size) prefix = prefix_cache_parent(pool->cache, prefix);
    return prefix;
}

/* Gives the slot, of the state after num_tokens tokens, to their prefix. False: it is not known, as of a sequence that
 * is swapped. */
static bool make_snapshot(struct state_pool *pool, const struct sequence *seq, int32_t slot, int32_t num_tokens)
{
    const int32_t prefix = slot == STATE_SLOT_NONE ? PREFIX_NONE : prefix_of(pool, seq, num_tokens);
    if (prefix == PREFIX_NONE) return false;
    attach(pool, slot, prefix);
    return true;
}

/* With a run in flight, the newest state is not that after num_computed tokens, of which the last are not known. */
void state_pool_release(struct state_pool *pool, struct sequence *seq)
{
    const bool at_boundary = pool->cache && seq->num_computed % pool->boundary == 0;
    if (!at_boundary || !make_snapshot(pool, seq, seq->state, seq->num_computed))
        make_snapshot(pool, seq, seq->boundary_state, seq->boundary);
    end_parting(pool, seq);
    give_up(pool, seq);
    state_pool_drop(pool, seq->state);
    seq->state = STATE_SLOT_NONE;
}

/* ---- checks ---- */

enum status state_pool_check(const struct state_pool *pool, struct error *err)
{
    if (pool->violation.text[0]) return error_set(err, STATUS_INTERNAL, "%s", pool->violation.text);
    if (!state_pool_is_used(pool)) return STATUS_OK;
    int32_t num_snapshots = 0;
    enum status status = block_pool_check(&pool->slots, err);
    if (status == STATUS_OK) status = block_pool_check(&pool->host, err);
    for (int32_t i = 1; i < pool->slots.end && status == STATUS_OK; i++) {
        const int32_t prefix = pool->slots.blocks[i].prefix;
        if (prefix == PREFIX_NONE) continue;
        num_snapshots++;
        if (prefix_cache_snapshot(pool->cache, prefix) != i)
            return error_set(err, STATUS_INTERNAL, "state slot %d is a snapshot of prefix %d, which has %d", i, prefix,
                             prefix_cache_snapshot(pool->cache, prefix));
    }
    for (int32_t i = 1; pool->cache && i < pool->cache->capacity && status == STATUS_OK; i++)
        num_snapshots -= prefix_cache_snapshot(pool->cache, i) > 0;
    if (status == STATUS_OK && num_snapshots != 0)
        return error_set(err, STATUS_INTERNAL, "prefixes and state slots disagree about %d snapshots", num_snapshots);
    return status;
}
