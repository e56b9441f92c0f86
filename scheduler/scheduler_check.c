#include "scheduler/scheduler_state.h"

/* The filled slots of a sequence's blocks are those of the tokens that it has computed, so nothing is read before it is
 * written. A swapped sequence holds blocks of the host, any other blocks of the device. */
static enum status check_filled(const struct scheduler *s, const struct sequence *seq, struct error *err)
{
    int32_t block_size = s->config.limits.block_size;
    const struct block_pool *pool = seq->status == SEQUENCE_SWAPPED ? &s->blocks.host : &s->blocks.pool;
    for (int32_t i = 0; i < seq->num_blocks; i++) {
        int32_t computed = seq->num_computed - i * block_size;
        int32_t expected = computed < 0 ? 0 : computed < block_size ? computed : block_size;
        int32_t block = seq->block_table[i];
        if (block != 0 && (block < pool->first || block >= pool->end))
            return error_set(err, STATUS_INTERNAL, "block %d is not one of %d to %d, where its sequence's are", block,
                             pool->first, pool->end - 1);
        int32_t filled = pool->blocks[block].filled;
        if (block != 0 && filled != expected)
            return error_set(err, STATUS_INTERNAL, "block %d has %d slots written where its sequence has computed %d",
                             block, filled, expected);
        if (block == 0 && expected > 0)
            return error_set(err, STATUS_INTERNAL, "a sequence has computed %d tokens, but its block %d is null",
                             seq->num_computed, i);
    }
    return STATUS_OK;
}

/* No token past the switch is computed as one of a short sequence, and no shorter sequence as a long one. A sequence
 * that has ended computes nothing more, whatever its siblings become. */
static enum status check_switch(const struct scheduler *s, const struct sequence *seq, struct error *err)
{
    const bool is_long = seq->request->long_rope;
    const int32_t most = s->config.rope_switch;
    if (seq->status == SEQUENCE_FINISHED) return STATUS_OK;
    if (is_long ? most > 0 && seq->num_tokens > most : most == 0 || seq->num_computed <= most) return STATUS_OK;
    return error_set(err, STATUS_INTERNAL, "a sequence of %d tokens, %d computed, is rotated as a %s one",
                     seq->num_tokens, seq->num_computed, is_long ? "long" : "short");
}

static enum status check_sequence(const struct scheduler *s, const struct request_queue *queue,
                                  const struct sequence *seq, struct error *err)
{
    bool holds = seq->state_index >= 0, may_hold = queue != &s->waiting || seq->status == SEQUENCE_FINISHED;
    if (seq->status != SEQUENCE_FINISHED && (seq->status == SEQUENCE_SWAPPED) != (queue == &s->swapped))
        return error_set(err, STATUS_INTERNAL, "a sequence is swapped and its request is not, or the reverse");
    if (seq->status == SEQUENCE_SWAPPED && !holds && seq->in_flight == 0) return check_filled(s, seq, err);
    if (!holds && seq->num_blocks == 0 && seq->in_flight == 0) return STATUS_OK;
    if (!holds || !may_hold || (seq->status == SEQUENCE_FINISHED && seq->in_flight == 0))
        return error_set(err, STATUS_INTERNAL, "a sequence that does not run holds state index %d and %d blocks",
                         seq->state_index, seq->num_blocks);
    if (seq->num_pending > seq->in_flight || seq->in_flight > s->in_flight || seq->num_uploaded > seq->num_blocks)
        return error_set(err, STATUS_INTERNAL, "a sequence has %d pending tokens, is in %d steps of %d in flight",
                         seq->num_pending, seq->in_flight, s->in_flight);
    enum status status = check_switch(s, seq, err);
    return status == STATUS_OK ? check_filled(s, seq, err) : status;
}

static enum status check_queue(const struct scheduler *s, const struct request_queue *queue, int32_t *num_holders,
                               struct error *err)
{
    int32_t count = 0;
    enum status status = STATUS_OK;
    for (const struct request *r = queue->head; r && status == STATUS_OK; r = r->next, count++) {
        if (r->queue != queue || (r->next && r->next->arrival <= r->arrival))
            return error_set(err, STATUS_INTERNAL, "a queue of requests is out of order");
        for (int32_t i = 0; i < r->num_sequences && status == STATUS_OK; i++) {
            struct sequence *seq = &r->sequences[i];
            status = check_sequence(s, queue, seq, err);
            if (status == STATUS_OK && (seq->state_index >= 0 || seq->num_blocks > 0)) {
                if (*num_holders == s->config.limits.max_num_seqs)
                    return error_set(err, STATUS_INTERNAL, "more sequences hold blocks than there are state indices");
                s->holders[(*num_holders)++] = seq;
            }
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
    int32_t held = 0;
    for (int32_t i = 0; i < num_holders; i++) held += s->holders[i]->state_index >= 0;
    if (held + s->num_free_state_indices != s->config.limits.max_num_seqs)
        return error_set(err, STATUS_INTERNAL, "%d state indices are held and %d free, of %d", held,
                         s->num_free_state_indices, s->config.limits.max_num_seqs);
    for (int32_t i = 0; i < num_holders; i++) {
        if (s->holders[i]->state_index < 0) continue;
        bool taken = state_index_is_free(s, s->holders[i]->state_index);
        for (int32_t j = 0; j < i; j++) taken = taken || s->holders[j]->state_index == s->holders[i]->state_index;
        if (taken) return error_set(err, STATUS_INTERNAL, "state index %d has two holders", s->holders[i]->state_index);
    }
    return STATUS_OK;
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
    if (status == STATUS_OK) status = block_manager_check(&s->blocks, s->holders, num_holders, err);
    return status;
}
