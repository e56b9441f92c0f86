#include "scheduler/scheduler_state.h"

static int32_t num_known(const struct sequence *seq)
{
    return seq->num_tokens + seq->num_pending;
}

bool scheduler_past_switch(const struct scheduler *s, const struct request *request)
{
    if (s->config.rope_switch == 0) return false;
    for (int32_t i = 0; i < request->num_sequences; i++) {
        const struct sequence *seq = &request->sequences[i];
        if (seq->status != SEQUENCE_FINISHED && seq->num_tokens <= s->config.rope_switch) return false;
    }
    return true;
}

/* The tokens of the sequence whose K and V may be computed: all, or those up to the switch. */
static int32_t num_computable(const struct scheduler *s, const struct sequence *seq)
{
    const int32_t known = num_known(seq), most = s->config.rope_switch;
    return most > 0 && !seq->request->long_rope && known > most ? most : known;
}

/* Tokens of the sequence that this step computes, at most `budget`. */
static int32_t tokens_to_compute(const struct scheduler *s, const struct sequence *seq, int32_t budget)
{
    if (seq->status != SEQUENCE_RUNNING) return 0;
    if (seq->num_pending > 0 && num_known(seq) >= seq->token_capacity) return 0; /* it ends with the pending token */
    int32_t remaining = num_computable(s, seq) - seq->num_computed;
    if (remaining > budget) return s->config.enable_chunked_prefill ? budget : 0;
    return remaining;
}

/* Free blocks that the request needs in this step. Siblings that write to the same shared block each take a copy of it;
 * but if all its holders write to it, the last one finds it no longer shared and writes in place. */
static int32_t request_cost(const struct scheduler *s, const struct request *request, int32_t *budget)
{
    int32_t cost = 0, shared = BLOCK_NONE, writers = 0;
    for (int32_t i = 0; i < request->num_sequences; i++) {
        const struct sequence *seq = &request->sequences[i];
        int32_t count = tokens_to_compute(s, seq, *budget);
        if (count == 0) continue;
        *budget -= count;
        cost += block_manager_append_cost(&s->blocks, seq, seq->num_computed + count);
        int32_t index = seq->num_computed / s->config.limits.block_size;
        if (index >= seq->num_blocks) continue;
        int32_t block = seq->block_table[index], holders = s->blocks.pool.blocks[block].ref_count;
        if (block != shared) writers = 0;
        shared = block;
        if (holders > 1 && ++writers == holders) cost--;
    }
    return cost;
}

bool scheduler_running_fits(const struct scheduler *s)
{
    int32_t cost = 0, budget = s->config.limits.max_num_tokens;
    for (const struct request *r = s->running.head; r; r = r->next) cost += request_cost(s, r, &budget);
    return cost <= s->blocks.pool.num_free;
}

/* Marks the slots of tokens first .. end as written by this step, before another sequence can share their blocks. */
static enum status fill_blocks(struct scheduler *s, const struct sequence *seq, int32_t first, int32_t end,
                               struct error *err)
{
    int32_t block_size = s->config.limits.block_size;
    enum status status = STATUS_OK;
    for (int32_t t = first, run; t < end && status == STATUS_OK; t += run) {
        int32_t block = seq->block_table[t / block_size], room = block_size - t % block_size;
        run = room < end - t ? room : end - t;
        status = block_pool_fill(&s->blocks.pool, block, t % block_size, run, err);
    }
    return status;
}

/* Adds `count` tokens of the sequence to the step. Its blocks are free: the caller has compared request_cost with the
 * number of free blocks. */
static void choose(struct scheduler *s, struct batch *batch, struct sequence *seq, int32_t count)
{
    struct block_pair copy;
    struct error err;
    int32_t first = seq->num_computed;
    enum status status = block_manager_append(&s->blocks, seq, first + count, &copy, &err);
    if (status == STATUS_OK) status = fill_blocks(s, seq, first, first + count, &err);
    if (status != STATUS_OK) {
        scheduler_set_unsound(s, &err);
        return;
    }
    struct choice *c = &s->choices[s->num_choices++];
    if (copy.source != BLOCK_NONE) batch->copies[batch->num_copies++] = copy;
    *c = (struct choice){.seq = seq, .start = first, .count = count};
    seq->num_computed += count;
    c->samples = seq->num_computed == num_known(seq);
    if (c->samples) seq->num_pending++;
    s->budget -= count;
    block_manager_hash(&s->blocks, seq);
    if (seq == seq->request->leader) c->forks = scheduler_start_siblings(s, seq->request);
}

void scheduler_choose_request(struct scheduler *s, struct batch *batch, struct request *request)
{
    for (int32_t i = 0; i < request->num_sequences; i++) {
        struct sequence *seq = &request->sequences[i];
        int32_t count = tokens_to_compute(s, seq, s->budget);
        if (count == 0) continue;
        choose(s, batch, seq, count);
        if (s->unsound) return;
        if (s->choices[s->num_choices - 1].forks) return; /* the siblings only take a sample in this step */
    }
}

/* Which of these settings decides the number of blocks depends on the device. */
void scheduler_advise_more_blocks(struct error *err)
{
    error_advise(err, ADVICE_RAISE, "num_gpu_blocks_override", NULL);
    error_advise(err, ADVICE_RAISE, "kv_cache_space", NULL);
    error_advise(err, ADVICE_RAISE, "gpu_memory_utilization", NULL);
}

/* Preempts running requests, the youngest first, until this one fits. False if it was itself preempted or failed. */
static bool make_room(struct scheduler *s, struct batch *batch, struct request *request, bool *preempted)
{
    int32_t budget = s->budget, cost = request_cost(s, request, &budget);
    while (cost > s->blocks.pool.num_free && !s->unsound) {
        struct request *youngest = s->running.tail;
        *preempted = true;
        if (youngest == request && request == s->running.head) {
            int32_t total = block_pool_num_total(&s->blocks.pool);
            error_set(request_error(request), STATUS_OUT_OF_MEMORY,
                      "the request has outgrown the KV cache: it needs %d blocks of %d tokens, but there are %d",
                      total - s->blocks.pool.num_free + cost, s->config.limits.block_size, total);
            scheduler_advise_more_blocks(request_error(request));
            error_advise(request_error(request), ADVICE_LOWER, "max_model_len", NULL);
            scheduler_end_request(s, request, FINISH_ERROR);
            return false;
        }
        scheduler_preempt(s, batch, youngest);
        if (youngest == request) return false;
    }
    return !s->unsound;
}

bool scheduler_choose_running(struct scheduler *s, struct batch *batch)
{
    bool preempted = false;
    for (struct request *r = s->running.head; r && s->budget > 0 && !s->unsound; r = r->next) {
        if (!make_room(s, batch, r, &preempted)) break;
        scheduler_choose_request(s, batch, r);
    }
    return preempted;
}
