#include "scheduler/scheduler_state.h"

#include "base/plural.h"
#include "scheduler/state_swap.h"

/* Every unfinished sequence takes its state index when the request starts, so that one which waits for the prompt is
 * sure to have one. */
static void take_state_indices(struct scheduler *s, struct request *request)
{
    for (int32_t i = 0; i < request->num_sequences; i++) {
        struct sequence *seq = &request->sequences[i];
        if (seq->status != SEQUENCE_FINISHED) seq->state_index = s->free_state_indices[--s->num_free_state_indices];
    }
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
    scheduler_start(s, first);
    request->leader = request_num_unfinished(request) > 1 ? first : NULL;
    if (request->num_preemptions == 0) {
        first->num_cached = first->num_computed;
        s->prefix_queries += first->num_tokens;
        s->prefix_hits += first->num_cached;
    }
    request_queue_move(&s->running, request);
}

/* can_swap_in answered OK, and there are enough state indices, and as many state slots. The host blocks become free,
 * and are not overwritten before this step has read them: once a step has swapped a request in, it swaps none out. */
static void swap_in(struct scheduler *s, struct batch *batch, struct request *request)
{
    struct error err;
    enum status status = block_manager_swap_in(&s->blocks, request, batch->swap_in, &batch->num_swap_in, &err);
    if (status == STATUS_OK) status = state_swap_in(&s->blocks.states, request, batch, &err);
    if (status != STATUS_OK) scheduler_set_unsound(s, &err);
    take_state_indices(s, request);
    for (int32_t i = 0; i < request->num_sequences; i++)
        if (request->sequences[i].status != SEQUENCE_FINISHED) scheduler_start(s, &request->sequences[i]);
    request_queue_move(&s->running, request);
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

/* Brings back a swapped request, or makes it wait where it does not fit any more. False: not in this step. */
static bool choose_swapped(struct scheduler *s, struct batch *batch, struct request *request)
{
    const enum allocate_result result =
        scheduler_must_change_namespace(s, request) ? ALLOCATE_NEVER : block_manager_can_swap_in(&s->blocks, request);
    if (result == ALLOCATE_NEVER) {
        scheduler_requeue(s, request);
        return true;
    }
    if (result == ALLOCATE_LATER || !scheduler_can_go_on(s, request)) return false;
    swap_in(s, batch, request);
    if (!s->unsound) scheduler_choose_request(s, batch, request);
    return true;
}

/* Admits a waiting request, or ends it if it can never fit. False: not in this step. */
static bool choose_waiting(struct scheduler *s, struct batch *batch, struct request *request)
{
    int32_t required;
    if (!scheduler_can_go_on(s, request)) return false; /* beams that the caller has yet to choose */
    if (!s->config.enable_chunked_prefill && request_first_unfinished(request)->num_tokens > s->budget) return false;
    const enum allocate_result result = block_manager_can_allocate(&s->blocks, request, &required);
    if (result == ALLOCATE_LATER) return false;
    if (result == ALLOCATE_NEVER) {
        refuse(s, request, required);
        return true;
    }
    admit(s, request);
    if (!s->unsound) scheduler_choose_request(s, batch, request);
    return true;
}

/* With fcfs a swapped request, whatever waits; with priority the one of higher rank. NULL: there is none. */
static struct request *next_to_start(const struct scheduler *s)
{
    struct request *swapped = s->swapped.head, *waiting = s->waiting.head;
    if (!swapped || !waiting) return swapped ? swapped : waiting;
    return s->config.policy == SCHEDULING_PRIORITY && request_precedes(waiting, swapped) ? waiting : swapped;
}

void scheduler_choose_starts(struct scheduler *s, struct batch *batch)
{
    struct request *request;
    bool goes_on = true;
    while (goes_on && s->budget > 0 && s->places > 0 && !s->unsound && (request = next_to_start(s))) {
        if (request_num_unfinished(request) > s->num_free_state_indices) return;
        goes_on = request->queue == &s->swapped ? choose_swapped(s, batch, request) : choose_waiting(s, batch, request);
    }
}
