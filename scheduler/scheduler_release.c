#include "scheduler/scheduler_state.h"

#include "scheduler/state_swap.h"

static void release_state_index(struct scheduler *s, struct sequence *seq)
{
    if (seq->state_index >= 0) s->free_state_indices[s->num_free_state_indices++] = seq->state_index;
    seq->state_index = -1;
}

void scheduler_release(struct scheduler *s, struct sequence *seq)
{
    struct error err;
    if (block_manager_release(&s->blocks, seq, &err) != STATUS_OK) scheduler_set_unsound(s, &err);
    seq->num_drafts = 0;
    release_state_index(s, seq);
}

void scheduler_requeue(struct scheduler *s, struct request *request)
{
    for (int32_t i = 0; i < request->num_sequences; i++) {
        struct sequence *seq = &request->sequences[i];
        if (seq->status == SEQUENCE_FINISHED) continue;
        scheduler_release(s, seq);
        seq->status = SEQUENCE_WAITING;
    }
    request->leader = NULL;
    scheduler_set_namespace(s, request);
    request->num_preemptions++;
    request->retry_gains = 0;
    request_queue_move(&s->waiting, request);
}

/* Swap space is of two kinds. */
enum host_kind { HOST_BLOCKS, HOST_STATES };

static const struct block_pool *host_pool(const struct scheduler *s, enum host_kind kind)
{
    return kind == HOST_BLOCKS ? &s->blocks.host : &s->blocks.states.host;
}

/* Host blocks or slots that may still be allocated. */
static int32_t host_left(const struct scheduler *s, enum host_kind kind)
{
    const int32_t most = kind == HOST_BLOCKS ? s->config.num_host_blocks : s->config.num_host_slots;
    return s->host_failed ? 0 : most - block_pool_num_total(host_pool(s, kind));
}

static bool grow_host(struct scheduler *s, enum host_kind kind)
{
    const struct scheduler_config *c = &s->config;
    grow_host_function *allocate = kind == HOST_BLOCKS ? c->grow_host_blocks : c->grow_host_slots;
    int32_t more = host_left(s, kind);
    struct error err;
    enum status status = allocate ? allocate(c->user, &more, &err) : STATUS_OK;
    if (status == STATUS_OK)
        status = kind == HOST_BLOCKS ? block_manager_grow_host(&s->blocks, more, &err)
                                     : state_swap_grow(&s->blocks.states, more, &err);
    if (status == STATUS_OK) return true;
    struct error warning;
    error_set(&warning, status,
              "no more swap space: %s; preempted requests that do not fit into what there is are recomputed instead",
              err.text);
    error_advise(&warning, ADVICE_LOWER, "swap_space", NULL);
    log_warn(c->log, &warning);
    s->host_failed = true;
    return false;
}

/* Whether so many host blocks or slots are free, allocating more if that helps. */
static bool has_room(struct scheduler *s, enum host_kind kind, int32_t cost)
{
    const struct block_pool *host = host_pool(s, kind);
    if (cost - host->num_free > host_left(s, kind)) return false;
    while (cost > host->num_free)
        if (!grow_host(s, kind)) return false;
    return true;
}

static bool can_swap_out(struct scheduler *s, const struct request *request)
{
    return has_room(s, HOST_STATES, state_swap_cost(request)) &&
           has_room(s, HOST_BLOCKS, block_manager_swap_out_cost(&s->blocks, request));
}

/* A request whose other sequences wait for the prompt has no blocks worth keeping. Nor is a request swapped if it
 * cannot go on itself, or if the oldest computes nothing in this step: then the step might be empty, and copy nothing.
 */
static bool should_swap(const struct scheduler *s, const struct request *request)
{
    const bool oldest_runs = s->num_planned > 0 && s->plan[0].seq->request == s->running.head;
    if (request->leader || !oldest_runs || !scheduler_can_go_on(s, request)) return false;
    if (s->config.preemption_mode != PREEMPTION_AUTO) return s->config.preemption_mode == PREEMPTION_SWAP;
    return request_num_unfinished(request) > 1;
}

/* No step in flight may name the request. The step that is being scheduled copies its blocks to the host before it
 * computes anything, so another sequence may take them and write to them in this same step. Its state indices become
 * free as well. */
static void swap_out(struct scheduler *s, struct batch *batch, struct request *request)
{
    struct error err;
    enum status status = state_swap_out(&s->blocks.states, request, batch, &err);
    if (status == STATUS_OK)
        status = block_manager_swap_out(&s->blocks, request, batch->swap_out, &batch->num_swap_out, &err);
    if (status != STATUS_OK) scheduler_set_unsound(s, &err);
    for (int32_t i = 0; i < request->num_sequences; i++) {
        struct sequence *seq = &request->sequences[i];
        if (seq->status == SEQUENCE_FINISHED) continue;
        release_state_index(s, seq);
        seq->status = SEQUENCE_SWAPPED;
    }
    request->num_preemptions++;
    request_queue_move(&s->swapped, request);
}

static bool is_copied_by(const struct batch *batch, int32_t block)
{
    for (int32_t i = 0; i < batch->num_swap_out; i++)
        if (batch->swap_out[i].destination == block) return true;
    return false;
}

/* Whether the batch copies a block of the request to the host. */
static bool is_swapped_by(const struct scheduler *s, const struct batch *batch, const struct request *request)
{
    for (int32_t i = 0; i < request->num_sequences; i++)
        for (int32_t g = 0; g < s->config.limits.num_groups; g++) {
            const struct block_table *t = &request->sequences[i].tables[g];
            for (int32_t b = t->first; b < t->num_blocks; b++)
                if (is_copied_by(batch, t->blocks[b])) return true;
        }
    return false;
}

void scheduler_undo_swaps(struct scheduler *s, struct batch *batch)
{
    for (struct request *r = batch->num_swap_out > 0 ? s->swapped.head : NULL, *next; r; r = next) {
        next = r->next;
        if (is_swapped_by(s, batch, r)) scheduler_requeue(s, r);
    }
    batch->num_swap_out = batch->num_states_out = 0;
}

enum { MANY_PREEMPTIONS = 3 }; /* of one request: the KV cache is too small for what runs at once */

static void warn(struct scheduler *s, const struct request *request)
{
    struct error warning;
    if (s->warned || request->num_preemptions < MANY_PREEMPTIONS) return;
    s->warned = true;
    error_set(&warning, STATUS_OK, "the KV cache is the bottleneck, because a request was preempted %d times so far",
              request->num_preemptions);
    scheduler_advise_more_blocks(s, &warning);
    error_advise(&warning, ADVICE_LOWER, "max_num_seqs", NULL);
    log_warn(s->config.log, &warning);
}

void scheduler_preempt(struct scheduler *s, struct batch *batch, struct request *request)
{
    request->stalled = true;
    if (should_swap(s, request) && can_swap_out(s, request)) {
        s->preemptions_swap++;
        swap_out(s, batch, request);
    } else {
        s->preemptions_recompute++;
        scheduler_requeue(s, request);
    }
    warn(s, request);
}

void scheduler_end_sequence(struct scheduler *s, struct sequence *seq, enum finish_reason reason)
{
    struct request *request = seq->request;
    seq->status = SEQUENCE_FINISHED;
    seq->finish_reason = reason;
    request->retry_gains = 0;
    scheduler_release(s, seq);
    if (request_finished(request))
        request_queue_move(&s->ended, request);
    else if (request->leader == seq)
        scheduler_requeue(s, request); /* the others were in no step yet: they start again, with another leader */
}

/* The leader ends last: a leader that ended before its siblings would send them back to the queue. */
void scheduler_end_request(struct scheduler *s, struct request *request, enum finish_reason reason)
{
    for (int32_t i = request->num_sequences - 1; i >= 0; i--)
        if (request->sequences[i].status != SEQUENCE_FINISHED)
            scheduler_end_sequence(s, &request->sequences[i], reason);
}
