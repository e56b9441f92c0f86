#include "scheduler/scheduler_state.h"

static void start(struct scheduler *s, struct sequence *seq)
{
    seq->status = SEQUENCE_RUNNING;
    seq->first_step = s->num_steps;
    s->admitted[s->num_admitted++] = seq;
}

/* Full blocks of the prompt, which all sequences of the request share. */
static int32_t num_shared_blocks(const struct scheduler *s, const struct sequence *seq)
{
    return seq->prompt_len / s->config.limits.block_size;
}

bool scheduler_start_siblings(struct scheduler *s, struct request *request)
{
    struct sequence *leader = request->leader;
    int32_t shared = num_shared_blocks(s, leader);
    bool fork = !request->forked;
    if (leader->num_computed < (fork ? leader->prompt_len : shared * s->config.limits.block_size)) return false;
    request->forked = true;
    enum status status = STATUS_OK;
    struct error err;
    for (int32_t i = 0; i < request->num_sequences && status == STATUS_OK; i++) {
        struct sequence *seq = &request->sequences[i];
        if (seq->status != SEQUENCE_WAITING) continue;
        if (fork)
            status = block_manager_fork(&s->blocks, leader, seq, &err);
        else
            status = block_manager_share(&s->blocks, leader, seq, shared, &err);
        seq->num_pending = fork ? 1 : 0;
        start(s, seq);
    }
    if (status != STATUS_OK) scheduler_set_unsound(s, &err);
    return fork;
}

static void admit_siblings(struct scheduler *s, struct request *request)
{
    struct sequence *leader = request->leader;
    int32_t shared = num_shared_blocks(s, leader);
    bool computed = leader->num_computed >= shared * s->config.limits.block_size;
    enum status status = STATUS_OK;
    struct error err;
    for (int32_t i = leader->index + 1; i < request->num_sequences && status == STATUS_OK; i++) {
        struct sequence *seq = &request->sequences[i];
        if (seq->status != SEQUENCE_WAITING) continue;
        if (computed) { /* the shared blocks are in the cache, or there are none: the sibling need not wait */
            status = block_manager_allocate(&s->blocks, seq, &err);
            start(s, seq);
        } else {
            status = block_manager_reserve(&s->blocks, seq, shared, &err);
        }
    }
    if (status != STATUS_OK) scheduler_set_unsound(s, &err);
}

/* can_allocate answered OK, and there are enough state indices. Every unfinished sequence takes its state index now, so
 * that a waiting sibling is sure to have one when it starts. */
static void admit(struct scheduler *s, struct request *request)
{
    struct error err;
    struct sequence *leader = request->leader = request_first_unfinished(request);
    for (int32_t i = leader->index; i < request->num_sequences; i++) {
        struct sequence *seq = &request->sequences[i];
        if (seq->status != SEQUENCE_FINISHED) seq->state_index = s->free_state_indices[--s->num_free_state_indices];
    }
    if (block_manager_allocate(&s->blocks, leader, &err) != STATUS_OK) {
        scheduler_set_unsound(s, &err);
        return;
    }
    start(s, leader);
    if (request->num_preemptions == 0) {
        leader->num_cached = leader->num_computed;
        s->prefix_queries += leader->num_tokens;
        s->prefix_hits += leader->num_cached;
    }
    if (request->forked) admit_siblings(s, request);
    request_queue_move(&s->running, request);
}

/* can_swap_in answered OK, and there are enough state indices. The host blocks become free, and are not overwritten
 * before this step has read them: once a step has swapped a request in, it swaps none out. */
static void swap_in(struct scheduler *s, struct batch *batch, struct request *request)
{
    struct error err;
    s->blocks_swapped_in -= batch->num_swap_in;
    if (block_manager_swap_in(&s->blocks, request, batch->swap_in, &batch->num_swap_in, &err) != STATUS_OK)
        scheduler_set_unsound(s, &err);
    s->blocks_swapped_in += batch->num_swap_in;
    for (int32_t i = 0; i < request->num_sequences; i++) {
        struct sequence *seq = &request->sequences[i];
        if (seq->status == SEQUENCE_FINISHED) continue;
        seq->state_index = s->free_state_indices[--s->num_free_state_indices];
        start(s, seq);
    }
    request_queue_move(&s->running, request);
}

void scheduler_choose_swapped(struct scheduler *s, struct batch *batch)
{
    struct request *request;
    while (s->budget > 0 && !s->unsound && (request = s->swapped.head)) {
        if (request_num_unfinished(request) > s->num_free_state_indices) return;
        enum allocate_result result = block_manager_can_swap_in(&s->blocks, request);
        if (result == ALLOCATE_LATER) return;
        if (result == ALLOCATE_NEVER) {
            scheduler_requeue(s, request);
            continue;
        }
        swap_in(s, batch, request);
        if (!s->unsound) scheduler_choose_request(s, batch, request);
    }
}

static void refuse(struct scheduler *s, struct request *request, int32_t required)
{
    error_set(request_error(request), STATUS_OUT_OF_MEMORY,
              "the prompt needs %d KV cache blocks of %d tokens, but there are %d, of which %d stay free; shorten it",
              required, s->config.limits.block_size, block_pool_num_total(&s->blocks.pool), s->blocks.watermark);
    scheduler_advise_more_blocks(request_error(request));
    scheduler_end_request(s, request, FINISH_ERROR);
}

void scheduler_choose_waiting(struct scheduler *s, struct batch *batch)
{
    struct request *request;
    while (s->budget > 0 && !s->unsound && (request = s->waiting.head)) {
        int32_t required;
        if (request_num_unfinished(request) > s->num_free_state_indices) return;
        if (!s->config.enable_chunked_prefill && request_first_unfinished(request)->num_tokens > s->budget) return;
        enum allocate_result result = block_manager_can_allocate(&s->blocks, request, &required);
        if (result == ALLOCATE_LATER) return;
        if (result == ALLOCATE_NEVER) {
            refuse(s, request, required);
            continue;
        }
        admit(s, request);
        if (!s->unsound) scheduler_choose_request(s, batch, request);
    }
}
