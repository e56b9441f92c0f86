#include "base/random.h"
#include "tests/support/scheduler_model_state.h"

struct digest {
    uint64_t hash;
};

static void put(struct digest *d, int64_t value)
{
    d->hash = random_mix(d->hash * RANDOM_STEP + (uint64_t)value);
}

static void put_pool(struct digest *d, const struct block_pool *pool)
{
    put(d, pool->untaken);
    put(d, pool->end);
    for (int32_t i = pool->first; i < pool->untaken; i++) {
        const struct block *b = &pool->blocks[i];
        put(d, b->ref_count);
        put(d, b->prefix != PREFIX_NONE);
        put(d, b->ref_count > 0 ? b->filled : 0);
    }
    for (int32_t i = pool->head; i != BLOCK_NONE; i = pool->blocks[i].next) put(d, i);
}

/* What the blocks that can be found hold. Of blocks in use the tables say it. */
static void put_cached(struct digest *d, const struct scheduler_model *m)
{
    const struct block_pool *pool = &m->scheduler->blocks.pool;
    for (int32_t i = pool->first; i < pool->untaken; i++) {
        if (pool->blocks[i].prefix == PREFIX_NONE) continue;
        const struct slot *slots = &m->device.slots[(int64_t)i * m->device.stride];
        put(d, (int64_t)slots[batch_block_size(&m->config.limits, slots->group) - 1].context);
        put(d, slots->group);
    }
}

/* Snapshots that are pending, and what the slots hold. */
static void put_states(struct digest *d, const struct scheduler_model *m)
{
    const struct state_pool *states = &m->scheduler->blocks.states;
    if (m->config.limits.num_state_slots == 0) return;
    put_pool(d, &states->slots);
    put_pool(d, &states->host);
    for (int32_t i = 1; i < states->slots.untaken; i++)
        if (states->slots.blocks[i].prefix != PREFIX_NONE) put(d, (int64_t)m->device.state_slots[i].context);
    for (int32_t i = 0; i < states->num_leaving; i++) put(d, states->leaving[i]);
    for (int32_t i = 0; i < states->num_arrivals; i++) put(d, states->arrivals[i].slot);
}

/* How many of the steps in flight are not newer than the last one that names the sequence. */
static int32_t steps_up_to_last(const struct scheduler *s, const struct sequence *seq)
{
    int32_t count = 0;
    for (int32_t i = 0; i < s->in_flight; i++)
        count += seq->last_step >= s->steps[(s->oldest + i) % SCHEDULER_MAX_STEPS].number;
    return count;
}

static void put_sequence(struct digest *d, const struct scheduler_model *m, const struct model_request *r,
                         const struct sequence *seq)
{
    const int64_t values[] = {seq->status,
                              seq->finish_reason,
                              seq->num_tokens,
                              seq->num_pending,
                              seq->pending_sample,
                              seq->num_computed,
                              seq->num_hashed,
                              seq->prefix != PREFIX_NONE,
                              seq->state_index,
                              seq->num_writable,
                              steps_up_to_last(m->scheduler, seq),
                              r->sampled[seq->index],
                              r->ended[seq->index],
                              seq->state,
                              seq->boundary_state,
                              seq->boundary,
                              seq->parting};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) put(d, values[i]);
    put(d, (int64_t)r->truth[seq->index].contexts[seq->num_tokens]);
    for (int32_t i = 0; i < r->drafts[seq->index].count; i++) put(d, r->drafts[seq->index].tokens[i]);
    for (int32_t g = 0; g < m->config.limits.num_groups; g++) {
        const struct block_table *table = &seq->tables[g];
        put(d, table->num_blocks);
        put(d, table->first);
        put(d, seq->num_uploaded[g]);
        for (int32_t i = 0; i < table->num_blocks; i++) put(d, table->blocks[i]);
    }
}

static void put_request(struct digest *d, const struct scheduler_model *m, const struct model_request *r)
{
    const struct request *request = r->request;
    const int64_t retry = request->retry_gains - m->scheduler->blocks.gains;
    put(d, r->number);
    put(d, model_place(request));
    put(d, request->cache_namespace | request->stalled << 1);
    put(d, request->leader ? request->leader->index : -1);
    put(d, request->num_preemptions > 0);
    put(d, retry > 0 ? retry : 0);
    put(d, r->scored);
    for (int32_t i = 0; i < request->num_sequences; i++) put_sequence(d, m, r, &request->sequences[i]);
}

/* Requests are in order of arrival, and their numbers say the rest of their ranks. */
uint64_t scheduler_model_state(const struct scheduler_model *m)
{
    const struct scheduler *s = m->scheduler;
    struct digest d = {.hash = 1};
    for (int32_t i = 0; i < m->num_live; i++) put_request(&d, m, m->live[i]);
    for (int32_t i = 0; i < s->in_flight; i++) {
        const struct step *step = &s->steps[(s->oldest + i) % SCHEDULER_MAX_STEPS];
        put(&d, step->num_sampled);
        for (int32_t k = 0; k < step->num_sampled; k++) {
            put(&d, model_of(m, step->sampled[k]->request)->number);
            put(&d, step->sampled[k]->index);
        }
        put(&d, step->num_target_runs);
        for (int32_t k = 0; k < step->num_target_runs; k++) {
            put(&d, model_of(m, step->target_runs[k].seq->request)->number);
            put(&d, step->target_runs[k].first);
            put(&d, step->target_runs[k].count);
        }
    }
    put_pool(&d, &s->blocks.pool);
    put_pool(&d, &s->blocks.host);
    put_cached(&d, m);
    put_states(&d, m);
    for (int32_t i = 0; i < s->num_free_state_indices; i++) put(&d, s->free_state_indices[i]);
    put(&d, s->host_failed);
    put(&d, m->host_calls);
    return d.hash;
}
