#include "scheduler/scheduler_state.h"

#include "base/plural.h"

static void start(struct scheduler *s, struct sequence *seq)
{
    seq->status = SEQUENCE_RUNNING;
    s->admitted[s->num_admitted++] = seq;
}

/* Every unfinished sequence takes its state index when the request starts, so that one which waits for the prompt is
 * sure to have one. */
static void take_state_indices(struct scheduler *s, struct request *request)
{
    for (int32_t i = 0; i < request->num_sequences; i++) {
        struct sequence *seq = &request->sequences[i];
        if (seq->status != SEQUENCE_FINISHED) seq->state_index = s->free_state_indices[--s->num_free_state_indices];
    }
}

void scheduler_fork(struct scheduler *s, struct sequence *leader)
{
    struct request *request = leader->request;
    enum status status = STATUS_OK;
    struct error err;
    request->leader = NULL;
    for (int32_t i = 0; i < request->num_sequences && status == STATUS_OK; i++) {
        struct sequence *seq = &request->sequences[i];
        if (seq->status != SEQUENCE_WAITING) continue;
        status = block_manager_fork(&s->blocks, leader, seq, &err);
        start(s, seq);
    }
    if (status != STATUS_OK) scheduler_set_unsound(s, &err);
}

/* can_allocate answered OK, and there are enough state indices. */
static void admit(struct scheduler *s, struct request *request)
{
    struct error err;
    struct sequence *first = request_first_unfinished(request);
    take_state_indices(s, request);
    if (block_manager_allocate(&s->blocks, first, &err) != STATUS_OK) {
        scheduler_set_unsound(s, &err);
        return;
    }
    start(s, first);
    request->leader = request_num_unfinished(request) > 1 ? first : NULL;
    if (request->num_preemptions == 0) {
        first->num_cached = first->num_computed;
        s->prefix_queries += first->num_tokens;
        s->prefix_hits += first->num_cached;
    }
    request_queue_move(&s->running, request);
}

/* can_swap_in answered OK, and there are enough state indices. The host blocks become free, and are not overwritten
 * before this step has read them: once a step has swapped a request in, it swaps none out. */
static void swap_in(struct scheduler *s, struct batch *batch, struct request *request)
{
    struct error err;
    if (block_manager_swap_in(&s->blocks, request, batch->swap_in, &batch->num_swap_in, &err) != STATUS_OK)
        scheduler_set_unsound(s, &err);
    take_state_indices(s, request);
    for (int32_t i = 0; i < request->num_sequences; i++)
        if (request->sequences[i].status != SEQUENCE_FINISHED) start(s, &request->sequences[i]);
    request_queue_move(&s->running, request);
}

void scheduler_choose_swapped(struct scheduler *s, struct batch *batch)
{
    struct request *request;
    while (s->budget > 0 && !s->unsound && (request = s->swapped.head)) {
        if (request_num_unfinished(request) > s->num_free_state_indices) return;
        const bool past_switch = !request->long_rope && scheduler_past_switch(s, request);
        enum allocate_result result = past_switch ? ALLOCATE_NEVER : block_manager_can_swap_in(&s->blocks, request);
        if (result == ALLOCATE_NEVER) {
            scheduler_requeue(s, request);
            continue;
        }
        if (result == ALLOCATE_LATER || !scheduler_can_go_on(s, request)) return;
        swap_in(s, batch, request);
        if (!s->unsound) scheduler_choose_request(s, batch, request);
    }
}

static void refuse(struct scheduler *s, struct request *request, int32_t required)
{
    error_set(request_error(request), STATUS_OUT_OF_MEMORY,
              "the prompt needs %d KV cache block%s of %d tokens, but there are %d, of which %d stay free; shorten it",
              required, plural(required), s->config.limits.block_size, block_pool_num_total(&s->blocks.pool),
              s->blocks.watermark);
    scheduler_advise_more_blocks(s, request_error(request));
    scheduler_end_request(s, request, FINISH_ERROR);
}

void scheduler_choose_waiting(struct scheduler *s, struct batch *batch)
{
    struct request *request;
    while (s->budget > 0 && !s->unsound && (request = s->waiting.head)) {
        int32_t required;
        if (request_num_unfinished(request) > s->num_free_state_indices) return;
        if (!scheduler_can_go_on(s, request)) return; /* beams that the caller has yet to choose */
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
