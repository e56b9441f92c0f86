#include "scheduler/scheduler_state.h"

/* The filled slots of a table's blocks are those of the tokens that the sequence has computed, so nothing is read
 * before it is written. A swapped sequence holds blocks of the host, any other blocks of the device. */
static enum status check_blocks(const struct scheduler *s, const struct sequence *seq, int32_t group, struct error *err)
{
    const int32_t block_size = batch_block_size(&s->config.limits, group);
    const struct block_table *t = &seq->tables[group];
    const struct block_pool *pool = seq->status == SEQUENCE_SWAPPED ? &s->blocks.host : &s->blocks.pool;
    for (int32_t i = t->first; i < t->num_blocks; i++) {
        const int32_t computed = seq->num_computed - i * block_size, block = t->blocks[i];
        const int32_t expected = computed < 0 ? 0 : computed < block_size ? computed : block_size;
        if (block < pool->first || block >= pool->end)
            return error_set(err, STATUS_INTERNAL, "block %d is not one of %d to %d, where its sequence's are", block,
                             pool->first, pool->end - 1);
        if (pool->blocks[block].filled != expected)
            return error_set(err, STATUS_INTERNAL, "block %d has %d slots written where its sequence has computed %d",
                             block, pool->blocks[block].filled, expected);
    }
    return STATUS_OK;
}

/* A table has the blocks of all computed tokens that are still read, and of a group with a window no more than may be
 * held at a time. */
static enum status check_tables(const struct scheduler *s, const struct sequence *seq, struct error *err)
{
    const struct batch_limits *limits = &s->config.limits;
    for (int32_t g = 0; g < limits->num_groups; g++) {
        const struct block_table *t = &seq->tables[g];
        const int32_t most = batch_group_blocks(limits, g, seq->token_capacity);
        if (t->first > batch_first_block(limits, g, seq->num_computed) ||
            (int64_t)t->num_blocks * batch_block_size(limits, g) < seq->num_computed)
            return error_set(err, STATUS_INTERNAL, "a sequence has computed %d tokens, but holds blocks %d to %d",
                             seq->num_computed, t->first, t->num_blocks - 1);
        if (t->num_blocks - t->first > most || seq->num_uploaded[g] > t->num_blocks)
            return error_set(err, STATUS_INTERNAL, "a sequence holds %d blocks of group %d, of which %d are enough",
                             t->num_blocks - t->first, g, most);
        enum status status = check_blocks(s, seq, g, err);
        if (status != STATUS_OK) return status;
        const int32_t end = batch_num_blocks(limits, g, seq->num_writable);
        for (int32_t i = seq->num_computed / batch_block_size(limits, g); i < end; i++)
            if (i >= t->num_blocks || s->blocks.pool.blocks[t->blocks[i]].ref_count != 1)
                return error_set(err, STATUS_INTERNAL, "a sequence may write %d tokens, but block %d is not its own",
                                 seq->num_writable, i);
    }
    return STATUS_OK;
}

/* Namespace 0 computes no token past its length, and namespace 1 no sequence that is not longer than that. A sequence
 * that has ended computes nothing more, whatever its siblings become. */
static enum status check_namespace(const struct scheduler *s, const struct sequence *seq, struct error *err)
{
    const int32_t most = s->config.first_namespace_len, is_in = seq->request->cache_namespace;
    if (seq->status == SEQUENCE_FINISHED) return STATUS_OK;
    if (is_in == 0 ? most == 0 || seq->num_computed <= most : most > 0 && seq->num_tokens > most) return STATUS_OK;
    return error_set(err, STATUS_INTERNAL, "a sequence of %d tokens, %d computed, is in cache namespace %d",
                     seq->num_tokens, seq->num_computed, is_in);
}

/* A sequence that runs has a state once a token is computed, and goes on in place only if the slot is its own, and up
 * to the next boundary. One that holds no blocks holds no state. */
static enum status check_state(const struct scheduler *s, const struct sequence *seq, bool holds, struct error *err)
{
    const struct state_pool *states = &s->blocks.states;
    if ((seq->state != STATE_SLOT_NONE) != (holds && seq->num_computed > 0))
        return error_set(err, STATUS_INTERNAL, "a sequence of %d computed tokens has the state slot %d",
                         seq->num_computed, seq->state);
    if ((seq->boundary_state != STATE_SLOT_NONE) != (seq->boundary > 0) || seq->boundary % states->boundary != 0 ||
        seq->boundary > seq->num_computed || (seq->parting > 0 && (!holds || seq->parting <= seq->num_computed)))
        return error_set(err, STATUS_INTERNAL,
                         "a sequence of %d computed tokens keeps a state after %d, and is to make one after %d",
                         seq->num_computed, seq->boundary, seq->parting);
    if (seq->state == STATE_SLOT_NONE || seq->num_writable <= seq->num_computed) return STATUS_OK;
    const struct block *slot = &states->slots.blocks[seq->state];
    const int32_t end = (seq->num_computed / states->boundary + 1) * states->boundary;
    if (slot->ref_count == 1 && slot->prefix == PREFIX_NONE && seq->num_computed % states->boundary != 0 &&
        seq->num_writable <= end)
        return STATUS_OK;
    return error_set(err, STATUS_INTERNAL, "a sequence of %d computed tokens may write %d, but state slot %d is kept",
                     seq->num_computed, seq->num_writable, seq->state);
}

/* A sequence holds nothing if it waits, if it has ended or if its last token is pending. If it runs it holds blocks and
 * a state index; if it is swapped, blocks alone. */
static enum status check_sequence(const struct scheduler *s, const struct request_queue *queue,
                                  const struct sequence *seq, struct error *err)
{
    const bool holds = seq->tables[0].num_blocks > 0,
               pending_end = seq->num_pending > 0 && scheduler_has_last_token(seq);
    const bool waits = seq->request->leader && seq->status == SEQUENCE_WAITING;
    const bool in_flight = scheduler_is_in_flight(s, seq);
    if (seq->status != SEQUENCE_FINISHED && (seq->status == SEQUENCE_SWAPPED) != (queue == &s->swapped))
        return error_set(err, STATUS_INTERNAL, "a sequence is swapped and its request is not, or the reverse");
    if (seq->num_pending > s->in_flight * in_flight && !seq->request->beams && seq->status == SEQUENCE_RUNNING)
        return error_set(err, STATUS_INTERNAL, "a sequence has %d pending tokens, with %d steps in flight",
                         seq->num_pending, s->in_flight);
    if (seq->num_drafts < 0 || (seq->num_drafts > 0 && (seq->num_pending != 1 || !in_flight || !holds)))
        return error_set(err, STATUS_INTERNAL, "a sequence has %d drafts and %d pending tokens", seq->num_drafts,
                         seq->num_pending);
    if (holds != (seq->status == SEQUENCE_SWAPPED || seq->status == SEQUENCE_RUNNING) && !(pending_end && !holds))
        return error_set(err, STATUS_INTERNAL, "a sequence that %s holds %d blocks", holds ? "does not run" : "runs",
                         seq->tables[0].num_blocks);
    if ((seq->state_index >= 0) != (waits || (holds && seq->status == SEQUENCE_RUNNING)))
        return error_set(err, STATUS_INTERNAL, "a sequence that holds %d blocks has the state index %d",
                         seq->tables[0].num_blocks, seq->state_index);
    if (scheduler_has_states(s) && check_state(s, seq, holds, err) != STATUS_OK) return STATUS_INTERNAL;
    if (!holds) return STATUS_OK;
    enum status status = check_namespace(s, seq, err);
    return status == STATUS_OK ? check_tables(s, seq, err) : status;
}

/* Whether a request stands where its rank says: in a list after the one before it, in a heap below its parent. */
static bool in_order(const struct request_queue *queue, const struct request *r)
{
    if (queue->kind == QUEUE_FIFO) return true;
    if (queue->kind == QUEUE_SORTED) return !r->next || request_precedes(r, r->next);
    for (const struct request *child = r->child; child; child = child->next)
        if (!request_precedes(r, child)) return false;
    return true;
}

static enum status check_queue(const struct scheduler *s, const struct request_queue *queue, int32_t *num_holders,
                               struct error *err)
{
    int32_t count = 0;
    enum status status = STATUS_OK;
    for (const struct request *r = queue->head; r && status == STATUS_OK; r = request_queue_next(r), count++) {
        if (r->queue != queue || !in_order(queue, r))
            return error_set(err, STATUS_INTERNAL, "a queue of requests is out of order");
        for (int32_t i = 0; i < r->num_sequences && status == STATUS_OK; i++) {
            struct sequence *seq = &r->sequences[i];
            status = check_sequence(s, queue, seq, err);
            if (status != STATUS_OK || seq->state_index < 0) continue;
            if (*num_holders == s->config.limits.max_num_seqs)
                return error_set(err, STATUS_INTERNAL, "more sequences run than there are state indices");
            s->holders[(*num_holders)++] = seq;
        }
    }
    if (status == STATUS_OK && count != queue->count)
        return error_set(err, STATUS_INTERNAL, "a queue holds %d requests, but %d were counted", count, queue->count);
    return status;
}

static bool state_index_is_free(const struct scheduler *s, int32_t index)
{
    for (int32_t i = 0; i < s->num_free_state_indices; i++)
        if (s->free_state_indices[i] == index) return true;
    return false;
}

static enum status check_state_indices(const struct scheduler *s, int32_t num_holders, struct error *err)
{
    if (num_holders + s->num_free_state_indices != s->config.limits.max_num_seqs)
        return error_set(err, STATUS_INTERNAL, "%d state indices are held and %d free, of %d", num_holders,
                         s->num_free_state_indices, s->config.limits.max_num_seqs);
    for (int32_t i = 0; i < num_holders; i++) {
        bool taken = state_index_is_free(s, s->holders[i]->state_index);
        for (int32_t j = 0; j < i; j++) taken = taken || s->holders[j]->state_index == s->holders[i]->state_index;
        if (taken) return error_set(err, STATUS_INTERNAL, "state index %d has two holders", s->holders[i]->state_index);
    }
    return STATUS_OK;
}

/* ---- state slots ---- */

/* Counts a holder of the slot, in its note. */
static void note_holder(const struct scheduler *s, int32_t slot)
{
    const struct state_pool *states = &s->blocks.states;
    const struct block_pool *pool = slot < states->slots.end ? &states->slots : &states->host;
    if (slot != STATE_SLOT_NONE && slot < pool->end && pool->blocks[slot].ref_count > 0) pool->blocks[slot].note++;
}

static void note_holders(const struct scheduler *s)
{
    const struct state_pool *states = &s->blocks.states;
    for (const struct request *r = s->running.head; r; r = r->next)
        for (int32_t i = 0; i < r->num_sequences; i++) {
            note_holder(s, r->sequences[i].state);
            note_holder(s, r->sequences[i].boundary_state);
        }
    for (const struct request *r = s->swapped.head; r; r = r->next)
        for (int32_t i = 0; i < r->num_sequences; i++) note_holder(s, r->sequences[i].state);
    for (int32_t i = 0; i < SCHEDULER_MAX_STEPS; i++)
        for (int32_t k = 0; k < s->steps[i].num_draft_states; k++) note_holder(s, s->steps[i].draft_states[k]);
    for (int32_t i = 0; i < states->num_leaving; i++) note_holder(s, states->leaving[i]);
    for (int32_t i = 0; i < states->num_arrivals; i++) note_holder(s, states->arrivals[i].slot);
}

/* Whether a step that was scheduled, or a running sequence, will write the prefix's snapshot. */
static bool is_awaited(const struct scheduler *s, int32_t prefix)
{
    const struct state_pool *states = &s->blocks.states;
    for (int32_t i = 0; i < states->num_arrivals; i++)
        if (states->arrivals[i].prefix == prefix) return true;
    for (const struct request *r = s->running.head; r; r = r->next)
        for (int32_t i = 0; i < r->num_sequences; i++)
            if (r->sequences[i].parting_prefix == prefix) return true;
    return false;
}

/* Free slots, snapshots and those that are held are all, each holder is counted, and nobody waits for a snapshot that
 * nobody writes. */
static enum status check_state_slots(const struct scheduler *s, struct error *err)
{
    const struct state_pool *states = &s->blocks.states;
    enum status status = STATUS_OK;
    note_holders(s);
    for (int32_t i = 1; i < states->host.end; i++) {
        struct block *b = &(i < states->slots.end ? &states->slots : &states->host)->blocks[i];
        if (b->ref_count == 0) continue;
        if (b->ref_count != b->note && status == STATUS_OK)
            status = error_set(err, STATUS_INTERNAL, "state slot %d has the count %d, but %d holders", i, b->ref_count,
                               b->note);
        b->note = 0;
    }
    for (int32_t i = 1; states->cache && i < states->cache->capacity && status == STATUS_OK; i++)
        if (prefix_cache_snapshot(states->cache, i) == SNAPSHOT_PENDING && !is_awaited(s, i))
            status = error_set(err, STATUS_INTERNAL, "the snapshot of prefix %d is pending, but nobody writes it", i);
    return status;
}

enum status scheduler_check(const struct scheduler *s, struct error *err)
{
    if (s->unsound) {
        *err = s->violation;
        return STATUS_INTERNAL;
    }
    int32_t num_holders = 0;
    enum status status = check_queue(s, &s->waiting, &num_holders, err);
    if (status == STATUS_OK) status = check_queue(s, &s->swapped, &num_holders, err);
    if (status == STATUS_OK) status = check_queue(s, &s->running, &num_holders, err);
    if (status == STATUS_OK) status = check_queue(s, &s->ended, &num_holders, err);
    if (status == STATUS_OK) status = check_state_indices(s, num_holders, err);
    if (status == STATUS_OK) status = block_manager_check(&s->blocks, s->running.head, s->swapped.head, err);
    if (status == STATUS_OK && scheduler_has_states(s)) status = check_state_slots(s, err);
    return status;
}
