#include "tests/support/scheduler_model_state.h"

struct moves {
    int32_t preempted, started, swapped_in, failed, stayed;
};

/* It may run again already, if the step found nothing else to run. */
static bool was_preempted(const struct model_request *r)
{
    const bool changed = r->request->cache_namespace != r->namespace_before; /* not for want of blocks */
    return r->place == PLACE_RUNNING && model_place(r->request) != PLACE_ENDED && !changed &&
           r->preemptions != r->request->num_preemptions;
}

/* It ran before the step and runs after it, and did not start again in it. */
static bool stayed(const struct model_request *r)
{
    return r->place == PLACE_RUNNING && model_place(r->request) == PLACE_RUNNING &&
           r->preemptions == r->request->num_preemptions;
}

static struct moves count_moves(const struct scheduler_model *m)
{
    struct moves moves = {0};
    for (int32_t i = 0; i < m->num_live; i++) {
        const struct model_request *r = m->live[i];
        const enum place place = model_place(r->request);
        moves.preempted += was_preempted(r);
        moves.failed += r->place == PLACE_RUNNING && place == PLACE_ENDED;
        moves.started += r->place == PLACE_WAITING && place == PLACE_RUNNING;
        moves.swapped_in += r->place == PLACE_SWAPPED && place == PLACE_RUNNING;
        moves.stayed += stayed(r);
    }
    return moves;
}

/* The request that precedes another starts first if both are in one queue (with priorities, in any), and is preempted
 * last if both run, unless the other got no token since it was preempted itself. `first` precedes all that ran before
 * the step. */
static enum status check_order(const struct scheduler_model *m, const struct model_request *first,
                               const struct model_request *a, const struct model_request *b, struct error *err)
{
    const enum place place_a = model_place(a->request), place_b = model_place(b->request);
    const bool chosen = was_preempted(a) && stayed(b);
    if (chosen && (a->stalled || !b->stalled || a == first) && model_precedes(m, a->request, b->request))
        return error_set(err, STATUS_INTERNAL, "request %d was preempted, and not %d, which comes after it", a->number,
                         b->number);
    if (chosen && a->stalled && !b->stalled && b != first)
        return error_set(err, STATUS_INTERNAL, "request %d was preempted again without a token, and %d was not",
                         a->number, b->number);
    const bool one_queue = a->place == b->place || m->config.policy == SCHEDULING_PRIORITY;
    const bool b_stays = b->place == place_b && (place_b == PLACE_WAITING || place_b == PLACE_SWAPPED);
    if (place_a == PLACE_RUNNING && a->place != PLACE_RUNNING && b_stays && one_queue &&
        model_precedes(m, b->request, a->request))
        return error_set(err, STATUS_INTERNAL, "request %d started before %d, which comes before it", a->number,
                         b->number);
    return STATUS_OK;
}

/* Not one that left for the other namespace before the step was planned. */
static const struct model_request *first_that_ran(const struct scheduler_model *m)
{
    const struct model_request *first = NULL;
    for (int32_t i = 0; i < m->num_live; i++) {
        const struct model_request *r = m->live[i];
        if (r->place != PLACE_RUNNING || r->request->cache_namespace != r->namespace_before) continue;
        if (!first || model_precedes(m, r->request, first->request)) first = r;
    }
    return first;
}

/* Swapped or recomputed, as the mode and the number of its sequences say. Several requests at once may fill swap space,
 * whose free blocks and slots before the step are host_free and slots_free. */
static enum status check_preemption(const struct scheduler_model *m, const struct model_request *r, int32_t preempted,
                                    int32_t host_free, int32_t slots_free, struct error *err)
{
    const bool swapped = model_place(r->request) == PLACE_SWAPPED, several = request_num_unfinished(r->request) > 1;
    const enum preemption_mode mode = m->config.preemption_mode;
    const bool may = mode == PREEMPTION_SWAP || (mode == PREEMPTION_AUTO && several);
    const struct model_request *first = first_that_ran(m);
    int32_t index;
    bool first_runs = false;
    if (swapped && (!may || r->waited))
        return error_set(err, STATUS_INTERNAL, "request %d was swapped, not recomputed", r->number);
    for (int32_t i = 0; i < m->batch.num_seqs; i++)
        first_runs = first_runs || model_of_state(m, m->batch.state_indices[i], &index) == first;
    if (model_place(r->request) == PLACE_WAITING && may && !r->waited && !r->request->beams && preempted == 1 &&
        m->totals.host_failures == 0 && m->config.first_namespace_len == 0 && first_runs && host_free >= r->held &&
        slots_free >= r->held_states)
        return error_set(err, STATUS_INTERNAL, "request %d, with %d blocks, was recomputed; %d host blocks were free",
                         r->number, r->held, host_free);
    return STATUS_OK;
}

static enum status check_victims(struct scheduler_model *m, int32_t preempted, struct error *err)
{
    enum status status = STATUS_OK;
    int32_t host_free = m->config.num_host_blocks, slots_free = m->config.num_host_slots;
    for (int32_t i = 0; i < m->num_live; i++)
        if (m->live[i]->place == PLACE_SWAPPED) slots_free -= m->live[i]->held_states;
    for (int32_t b = m->config.num_blocks + 1; b < MAX_BLOCKS; b++) host_free -= m->counts[b] > 0;
    for (int32_t i = 0; i < m->num_live && status == STATUS_OK; i++) {
        if (!was_preempted(m->live[i])) continue;
        status = check_preemption(m, m->live[i], preempted, host_free, slots_free, err);
        m->live[i]->stalled = true;
        *(model_place(m->live[i]->request) == PLACE_SWAPPED ? &m->totals.swapped : &m->totals.recomputed) += 1;
    }
    return status;
}

static enum status check_moves(struct scheduler_model *m, struct error *err)
{
    const struct moves moves = count_moves(m);
    const struct model_request *first = first_that_ran(m);
    int32_t swapped = 0;
    for (int32_t i = 0; i < m->num_live; i++) swapped += model_place(m->live[i]->request) == PLACE_SWAPPED;
    if (moves.preempted > 0 && moves.stayed > 0 && moves.started + moves.swapped_in > 0)
        return error_set(err, STATUS_INTERNAL, "a step that preempted %d requests started %d and swapped %d in",
                         moves.preempted, moves.started, moves.swapped_in);
    if (moves.preempted > 0 && m->batch.num_drafts > 0)
        return error_set(err, STATUS_INTERNAL, "a step that preempted %d requests has %d drafts", moves.preempted,
                         m->batch.num_drafts);
    if (moves.started > 0 && swapped > 0 && m->config.policy != SCHEDULING_PRIORITY)
        return error_set(err, STATUS_INTERNAL, "%d requests started while %d are swapped", moves.started, swapped);
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < m->num_live; i++)
        for (int32_t j = 0; j < m->num_live && status == STATUS_OK; j++)
            if (i != j) status = check_order(m, first, m->live[i], m->live[j], err);
    return status == STATUS_OK ? check_victims(m, moves.preempted, err) : status;
}

static int32_t free_blocks(const struct scheduler_model *m)
{
    struct scheduler_stats stats;
    scheduler_get_stats(m->scheduler, &stats);
    return stats.blocks_free + stats.blocks_cached;
}

static int32_t free_places(const struct scheduler_model *m)
{
    int32_t places = m->config.limits.max_num_seqs;
    for (int32_t i = 0; i < m->num_live; i++)
        for (int32_t j = 0; j < m->live[i]->request->num_sequences; j++)
            places -= m->live[i]->request->sequences[j].state_index >= 0;
    return places;
}

static const struct model_request *head_of(const struct scheduler_model *m, enum place place)
{
    const struct model_request *head = NULL;
    for (int32_t i = 0; i < m->num_live; i++)
        if (model_place(m->live[i]->request) == place &&
            (!head || model_precedes(m, m->live[i]->request, head->request)))
            head = m->live[i];
    return head;
}

/* Swapped requests return first; with priorities, the most urgent of both queues. */
static const struct model_request *next_to_start(const struct scheduler_model *m)
{
    const struct model_request *swapped = head_of(m, PLACE_SWAPPED), *waiting = head_of(m, PLACE_WAITING);
    if (!swapped || !waiting) return swapped ? swapped : waiting;
    if (m->config.policy != SCHEDULING_PRIORITY) return swapped;
    return model_precedes(m, waiting->request, swapped->request) ? waiting : swapped;
}

/* ---- several batches ---- */

static bool is_dealt(const struct scheduler_model *m)
{
    return m->config.num_batches > 1;
}

/* One of the batches' equal parts. */
static int32_t part_of(const struct scheduler_model *m, int32_t count)
{
    return (count + m->config.num_batches - 1) / m->config.num_batches;
}

/* Sequences that the step draws a token for, of those that ran before it, and of all. */
struct drawn {
    int32_t before, all;
};

static struct drawn count_drawn(const struct scheduler_model *m)
{
    struct drawn drawn = {0, 0};
    for (int32_t i = 0; i < m->num_live; i++)
        for (int32_t j = 0; j < m->live[i]->request->num_sequences; j++) {
            const struct sequence *seq = &m->live[i]->request->sequences[j];
            bool draws = false, in_batch = false;
            for (int32_t k = 0; k < m->batch.num_samples && model_has_place(seq); k++)
                draws = draws || m->batch.sample_state_indices[k] == seq->state_index;
            for (int32_t k = 0; k < m->batch.num_seqs && draws; k++)
                in_batch = in_batch || m->batch.state_indices[k] == seq->state_index;
            drawn.all += in_batch;
            drawn.before += in_batch && m->live[i]->place == PLACE_RUNNING && stayed(m->live[i]);
        }
    return drawn;
}

/* Unfinished sequences that started in the step, and their requests. */
static struct moves count_started(const struct scheduler_model *m)
{
    struct moves started = {0};
    for (int32_t i = 0; i < m->num_live; i++) {
        const struct model_request *r = m->live[i];
        if (model_place(r->request) != PLACE_RUNNING || stayed(r)) continue;
        started.started++;
        started.stayed += request_num_unfinished(r->request);
    }
    return started;
}

/* Sequences that may have given their places to the step when it was planned, or failed in it. */
static int32_t count_leaving(const struct scheduler_model *m)
{
    int32_t count = 0;
    for (int32_t i = 0; i < m->num_live; i++)
        if (m->live[i]->place != PLACE_ENDED && model_place(m->live[i]->request) == PLACE_ENDED)
            count += m->live[i]->request->num_sequences;
    for (int32_t i = 0; i < m->num_live; i++)
        for (int32_t j = 0; j < m->live[i]->request->num_sequences; j++)
            count += model_awaits_its_end(&m->live[i]->request->sequences[j]);
    return count;
}

/* What a step draws if all start that can, by the sequences that ran when it was planned, and so many more. */
static int32_t part_with_starts(const struct scheduler_model *m, int32_t more)
{
    const struct moves started = count_started(m);
    int32_t all = m->config.limits.max_num_seqs - free_places(m) - started.stayed + started.started + more;
    for (int32_t i = 0; i < m->num_live; i++) {
        const enum place place = model_place(m->live[i]->request);
        all += place == PLACE_WAITING || place == PLACE_SWAPPED;
    }
    return part_of(m, all < m->config.limits.max_num_seqs ? all : m->config.limits.max_num_seqs);
}

/* A step has none of the sequences whose tokens are pending, but for beams that are computed again, and not more than
 * its part of the others. */
static enum status check_deal(const struct scheduler_model *m, int32_t num_preempted, struct error *err)
{
    int32_t index;
    if (!is_dealt(m)) return STATUS_OK;
    for (int32_t i = 0; i < m->batch.num_seqs; i++) {
        const struct model_request *r = model_of_state(m, m->batch.state_indices[i], &index);
        if (r && r->place == PLACE_RUNNING && r->pending[index] > 0 && !r->request->beams)
            return error_set(err, STATUS_INTERNAL, "request %d sequence %d is in a step, and its token is pending",
                             r->number, index);
    }
    const struct drawn drawn = count_drawn(m);
    const int32_t leaving = count_leaving(m), running = m->config.limits.max_num_seqs - free_places(m) + leaving;
    if (m->num_given > 0 || num_preempted > 0 || m->free_before < m->most_cost) return STATUS_OK;
    if (drawn.before > part_of(m, running) || drawn.all > part_with_starts(m, leaving))
        return error_set(err, STATUS_INTERNAL, "a step draws tokens for %d sequences, %d of which ran before, of %d",
                         drawn.all, drawn.before, running);
    return STATUS_OK;
}

/* The most blocks with which the request can start: without hits. */
static int32_t most_to_start(const struct scheduler_model *m, const struct model_request *r)
{
    int32_t blocks = 0;
    for (int32_t i = 0; i < r->request->num_sequences; i++) {
        const struct sequence *seq = &r->request->sequences[i];
        if (seq->status == SEQUENCE_FINISHED) continue;
        if (seq != request_first_unfinished(r->request) && seq->num_tokens == seq->prompt_len) continue;
        blocks += batch_sequence_blocks(&m->config.limits, seq->num_tokens);
    }
    return blocks;
}

static int32_t most_to_return(const struct scheduler_model *m, const struct model_request *r)
{
    int32_t blocks = model_num_distinct(m, r->request);
    for (int32_t i = 0; i < r->request->num_sequences; i++) {
        const struct sequence *seq = &r->request->sequences[i];
        if (seq->status == SEQUENCE_FINISHED) continue;
        blocks += m->config.limits.num_groups;
        if (seq->num_tokens - seq->num_computed > 1)
            blocks += batch_sequence_blocks(&m->config.limits, seq->num_tokens);
    }
    return blocks;
}

/* The most blocks that the request would have taken in this step. */
static int32_t most_growth(const struct scheduler_model *m, const struct model_request *r)
{
    int32_t blocks = 0;
    for (int32_t i = 0; i < r->request->num_sequences; i++) {
        const struct sequence *seq = &r->request->sequences[i];
        const int32_t left = seq->num_tokens - r->computed[i], size = m->config.limits.block_size;
        if (seq->status != SEQUENCE_FINISHED) blocks += ((left > 1 ? (left + size - 1) / size : 0) + 1);
    }
    return blocks * m->config.limits.num_groups;
}

/* Nobody is preempted whose blocks and growth would still have found room after the step. (Of several, the first may
 * have had too few blocks to be enough, and the last so many that the first could have stayed.) */
static enum status check_need(const struct scheduler_model *m, struct error *err)
{
    const struct moves moves = count_moves(m);
    if (moves.preempted != 1 || moves.failed > 0) return STATUS_OK; /* what failed had to make room first */
    if (is_dealt(m)) return STATUS_OK;                              /* so had those that the step leaves out */
    for (int32_t g = 0; g < m->config.limits.num_groups; g++)
        if (m->config.limits.windows[g] > 0) return STATUS_OK; /* blocks became free when the step had gone on */
    for (int32_t i = 0; i < m->num_live; i++) {
        const struct model_request *r = m->live[i];
        if (!was_preempted(r) || model_place(r->request) == PLACE_RUNNING ||
            free_blocks(m) < r->held + most_growth(m, r))
            continue;
        return error_set(err, STATUS_INTERNAL,
                         "request %d was preempted for want of blocks, but %d are free; it held %d", r->number,
                         free_blocks(m), r->held);
    }
    return STATUS_OK;
}

/* What starts leaves the watermark free. A waiting request that was preempted may have grown past that. */
static enum status check_watermark(const struct scheduler_model *m, struct error *err)
{
    const struct moves moves = count_moves(m);
    bool preempted = false;
    for (int32_t i = 0; i < m->num_live; i++)
        preempted = preempted || (m->live[i]->place != PLACE_SWAPPED && m->live[i]->request->num_preemptions > 0 &&
                                  model_place(m->live[i]->request) == PLACE_RUNNING && !stayed(m->live[i]));
    if (moves.started + moves.swapped_in == 0 || preempted || free_blocks(m) >= m->watermark) return STATUS_OK;
    return error_set(err, STATUS_INTERNAL, "%d requests started and %d came back, and left %d blocks free of %d",
                     moves.started, moves.swapped_in, free_blocks(m), m->config.num_blocks);
}

/* A sequence whose last token was pending before this step does not keep its place in it. */
static enum status check_places(const struct scheduler_model *m, const struct model_request *r, struct error *err)
{
    if (m->batch.num_tokens >= m->config.limits.max_num_tokens || r->request->beams) return STATUS_OK;
    for (int32_t i = 0; i < r->request->num_sequences; i++) {
        const struct sequence *seq = &r->request->sequences[i];
        if (model_has_place(seq) && model_awaits_its_end(seq) && r->pending[i] > 0 &&
            seq->num_tokens + r->pending[i] >= seq->token_capacity)
            return error_set(err, STATUS_INTERNAL, "request %d sequence %d keeps its place; its last token is pending",
                             r->number, i);
    }
    return STATUS_OK;
}

/* Nobody waits who fits: the place of a request that has ended goes to the next. */
static enum status check_nobody_waits(struct scheduler_model *m, struct error *err)
{
    const int32_t budget = m->config.limits.max_num_tokens - m->batch.num_tokens;
    const int32_t spare = free_blocks(m) - m->watermark, places = free_places(m);
    const struct model_request *r = next_to_start(m);
    if (!r || budget <= 0 || count_moves(m).preempted > 0) return STATUS_OK;
    if (is_dealt(m) && count_drawn(m).all >= part_with_starts(m, 0)) return STATUS_OK;
    if (model_place(r->request) == PLACE_SWAPPED) {
        if (model_beams_are_due(r) || (m->config.first_namespace_len > 0 && r->request->cache_namespace == 0))
            return STATUS_OK;
        if (most_to_return(m, r) > spare || request_num_unfinished(r->request) > places) return STATUS_OK;
        return error_set(err, STATUS_INTERNAL, "request %d stays swapped, though it fits", r->number);
    }
    if (model_beams_are_due(r) || most_to_start(m, r) > spare || request_num_unfinished(r->request) > places)
        return STATUS_OK;
    if (!m->config.enable_chunked_prefill && request_first_unfinished(r->request)->num_tokens > budget)
        return STATUS_OK;
    if (model_awaits_snapshot(m, r)) {
        m->totals.awaited++;
        return STATUS_OK;
    }
    return error_set(err, STATUS_INTERNAL, "request %d waits, though it fits: %d blocks of %d are free", r->number,
                     free_blocks(m), m->config.num_blocks);
}

/* A running sequence with a token to compute is not passed over while the step has room. */
static enum status check_nobody_is_passed_over(const struct scheduler_model *m, const struct schedule *schedule,
                                               const struct model_request *r, struct error *err)
{
    const int32_t budget = m->config.limits.max_num_tokens - m->batch.num_tokens;
    const int32_t most = r->request->cache_namespace == 0 ? m->config.first_namespace_len : 0;
    for (int32_t i = 0; i < r->request->num_sequences; i++) {
        const struct sequence *seq = &r->request->sequences[i];
        const int32_t known = seq->num_tokens + (is_dealt(m) ? 0 : seq->num_pending);
        const int32_t left = (most > 0 && known > most ? most : known) - seq->num_computed;
        if (seq->status != SEQUENCE_RUNNING || left <= 0 || model_is_admitted(schedule, seq)) continue;
        if ((r->request->beams && (r->sampled[i] || seq->num_pending > 0)) || model_awaits_its_end(seq)) continue;
        bool in_batch = false;
        for (int32_t k = 0; k < m->batch.num_seqs; k++)
            in_batch = in_batch || m->batch.state_indices[k] == seq->state_index;
        const int32_t running = m->config.limits.max_num_seqs - free_places(m) - count_started(m).stayed;
        if (is_dealt(m) && count_drawn(m).before >= part_of(m, running)) continue;
        if (in_batch || budget <= 0 || (!m->config.enable_chunked_prefill && left > budget)) continue;
        return error_set(err, STATUS_INTERNAL, "request %d sequence %d has %d tokens to compute and is passed over",
                         r->number, i, left);
    }
    return STATUS_OK;
}

/* With no step in flight and nothing scheduled, only beams that are not chosen may keep requests. */
static enum status check_rest(const struct scheduler_model *m, struct error *err)
{
    for (int32_t i = 0; i < m->num_live; i++)
        if (m->live[i]->was_due) return STATUS_OK;
    for (int32_t i = 0; i < m->num_live; i++)
        if (model_place(m->live[i]->request) != PLACE_ENDED)
            return error_set(err, STATUS_INTERNAL, "request %d is left, but nothing is scheduled", m->live[i]->number);
    return STATUS_OK;
}

enum status model_check_policy(struct scheduler_model *m, const struct schedule *schedule, struct error *err)
{
    const enum schedule_result result = schedule->result;
    if (model_check_drafts_give_way(m, schedule, err) != STATUS_OK) return STATUS_INTERNAL;
    if (result == SCHEDULE_COLLECT_FIRST) {
        m->totals.collect_first++;
        const struct moves moves = count_moves(m);
        if (scheduler_in_flight(m->scheduler) > 0 && moves.preempted + moves.started + moves.swapped_in == 0)
            return STATUS_OK;
        return error_set(err, STATUS_INTERNAL,
                         "a step that is to be collected first changed something, or there is none");
    }
    enum status status = check_moves(m, err);
    if (status == STATUS_OK && m->host_misuse)
        status = error_set(err, STATUS_INTERNAL, "more host blocks were asked for after a failure");
    if (status == STATUS_OK) status = check_need(m, err);
    if (status == STATUS_OK) status = check_watermark(m, err);
    for (int32_t i = 0; i < m->num_live && status == STATUS_OK; i++) status = check_places(m, m->live[i], err);
    if (status == STATUS_OK) status = check_nobody_waits(m, err);
    const bool preempted = count_moves(m).preempted > 0;
    if (status == STATUS_OK) status = check_deal(m, preempted, err);
    for (int32_t i = 0; i < m->num_live && status == STATUS_OK && !preempted; i++)
        status = check_nobody_is_passed_over(m, schedule, m->live[i], err);
    if (status == STATUS_OK && result == SCHEDULE_EMPTY && scheduler_in_flight(m->scheduler) == 0)
        status = check_rest(m, err);
    return status;
}
