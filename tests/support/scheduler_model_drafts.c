#include <string.h>

#include "base/random.h"
#include "tests/support/scheduler_model_state.h"

/* ---- before a step ---- */

/* Drafts that the sequence may get: it computes its newest token, and draws another after the last draft. `later`: in
 * the step after those in flight. */
static int32_t room_of(const struct scheduler_model *m, const struct model_request *r, const struct sequence *seq,
                       bool later)
{
    const int32_t length = m->config.first_namespace_len, known = seq->num_tokens + seq->num_pending;
    const int32_t most = seq->token_capacity - known - 1;
    if (!model_has_place(seq) || r->request->beams || (seq->num_pending > 0 && !later) || known == seq->prompt_len ||
        r->drafts[seq->index].count > 0 || r->computed[seq->index] != known - 1)
        return 0;
    const bool bounded = length > 0 && r->request->cache_namespace == 0 && length - known < most;
    return model_clamp(bounded ? length - known : most, 0, MAX_DRAFTS);
}

static enum status check_draftables(const struct scheduler_model *m, const struct draftable *draftables, int32_t count,
                                    bool later, struct error *err)
{
    int32_t expected = 0;
    for (int32_t i = 0; i < m->num_live; i++)
        for (int32_t j = 0; j < m->live[i]->request->num_sequences; j++)
            expected += room_of(m, m->live[i], &m->live[i]->request->sequences[j], later) > 0;
    if (count != expected)
        return error_set(err, STATUS_INTERNAL, "%d sequences may have drafts, it is said; %d may", count, expected);
    for (int32_t i = 0; i < count; i++) {
        const struct sequence *seq = draftables[i].seq, *before = i > 0 ? draftables[i - 1].seq : NULL;
        const struct model_request *r = model_of(m, seq->request);
        if (!r || draftables[i].most != room_of(m, r, seq, later))
            return error_set(err, STATUS_INTERNAL, "request %d sequence %d has room for %d drafts, it is said",
                             r ? r->number : -1, seq->index, draftables[i].most);
        if (before && (before->request == seq->request ? before->index >= seq->index
                                                       : model_precedes(m, seq->request, before->request)))
            return error_set(err, STATUS_INTERNAL, "request %d sequence %d may have drafts after one of lower rank",
                             r->number, seq->index);
    }
    return STATUS_OK;
}

/* The most blocks that the step takes for running sequences and, apart from these, for their drafts. */
static void bound_cost(struct scheduler_model *m)
{
    struct scheduler_stats stats;
    scheduler_get_stats(m->scheduler, &stats);
    m->free_before = stats.blocks_free + stats.blocks_cached;
    m->most_cost = m->most_cost_of_drafts = 0;
    for (int32_t i = 0; i < m->num_live; i++)
        for (int32_t j = 0; j < m->live[i]->request->num_sequences; j++) {
            const struct sequence *seq = &m->live[i]->request->sequences[j];
            if (!model_has_place(seq)) continue;
            const int32_t known = seq->num_tokens + seq->num_pending, given = m->live[i]->drafts[j].given;
            for (int32_t g = 0; g < m->config.limits.num_groups; g++) {
                const int32_t held = seq->tables[g].num_blocks;
                const int32_t needed = batch_num_blocks(&m->config.limits, g, known);
                m->most_cost += (needed > held ? needed - held : 0) + 1; /* one may be copied */
                m->most_cost_of_drafts += batch_num_blocks(&m->config.limits, g, known + given) - needed;
            }
        }
}

enum status model_give_drafts(struct scheduler_model *m, const int32_t *values, struct error *err)
{
    enum { MOST_GIVEN = MAX_DRAFTS + 2 }; /* more than a sequence takes */
    struct draftable draftables[SCHEDULER_MODEL_MAX_REQUESTS * SCHEDULER_MODEL_MAX_N];
    int32_t count = scheduler_draftables_later(m->scheduler, draftables);
    enum status status = check_draftables(m, draftables, count, true, err);
    count = scheduler_draftables(m->scheduler, draftables);
    if (status == STATUS_OK) status = check_draftables(m, draftables, count, false, err);
    int32_t left = m->config.limits.max_num_drafts;
    m->num_given = 0;
    m->on_device = values[SCHEDULE_DEVICE] != 0;
    for (int32_t i = 0; i < m->num_live; i++)
        for (int32_t j = 0; j < SCHEDULER_MODEL_MAX_N; j++) m->live[i]->drafts[j].given = 0;
    for (int32_t i = 0; i < count && status == STATUS_OK; i++) {
        struct sequence *seq = draftables[i].seq;
        struct model_request *r = model_of(m, seq->request);
        struct random random = {
            .state = random_mix((uint64_t)(values[SCHEDULE_SPREAD] * 1000 + r->number * 4 + seq->index))};
        int32_t drafts[MOST_GIVEN], num = model_clamp(values[SCHEDULE_DRAFTS], 0, MOST_GIVEN);
        int32_t right = model_clamp(values[SCHEDULE_RIGHT], 0, MOST_GIVEN);
        if (values[SCHEDULE_SPREAD] != 0) {
            num = (int32_t)random_between(&random, 0, num);
            right = (int32_t)random_between(&random, 0, right);
        }
        true_sequence_guess(&r->truth[seq->index], seq->num_tokens, drafts, num, right);
        scheduler_set_drafts(m->scheduler, seq, m->on_device ? NULL : drafts, num);
        struct model_drafts *d = &r->drafts[seq->index];
        d->given = model_clamp(num, 0, draftables[i].most < left ? draftables[i].most : left);
        memcpy(d->tokens, drafts, (size_t)d->given * sizeof *drafts);
        left -= d->given;
        m->num_given += d->given;
    }
    bound_cost(m);
    return status;
}

/* ---- after a step ---- */

/* The entries of the batch that the sequence has, and the first of its samples. */
static struct run_entries entries_of(const struct scheduler_model *m, const struct sequence *seq, int32_t *sample)
{
    const struct batch *b = &m->batch;
    struct run_entries none = {0, 0};
    for (int32_t i = 0; i < b->num_seqs && seq->state_index >= 0; i++) {
        if (b->state_indices[i] != seq->state_index) continue;
        *sample = 0;
        while (*sample < b->num_samples && b->logits_indices[*sample] != b->query_start[i]) ++*sample;
        return slot_device_entries(b, i);
    }
    return none;
}

enum status model_submit_drafts(struct scheduler_model *m, const struct schedule *schedule, struct error *err)
{
    const struct batch *b = &m->batch;
    int32_t drafts[MAX_STEP_DRAFTS], count = 0;
    for (int32_t i = 0; i < schedule->num_runs; i++) {
        const struct scheduled_run *s = &schedule->runs[i];
        const struct run_entries run = slot_device_entries(b, s->entry);
        const struct model_request *r = model_of(m, s->seq->request);
        if (!r || run.first != s->entry || b->state_indices[s->entry] != s->seq->state_index ||
            s->seq->num_drafts != run.end - run.first - 1 || s->seq->num_drafts > r->drafts[s->seq->index].given ||
            (i > 0 && s->entry <= schedule->runs[i - 1].entry) || count + s->seq->num_drafts > MAX_STEP_DRAFTS)
            return error_set(err, STATUS_INTERNAL, "run %d is said to begin with entry %d and have %d drafts", i,
                             s->entry, s->seq->num_drafts);
        memcpy(drafts + count, r->drafts[s->seq->index].tokens, (size_t)s->seq->num_drafts * sizeof *drafts);
        count += s->seq->num_drafts;
    }
    if (count != b->num_drafts)
        return error_set(err, STATUS_INTERNAL, "runs are said to have %d drafts, and the step %d", count,
                         b->num_drafts);
    if (m->on_device) slot_device_set_drafts(&m->device, &m->batch, drafts);
    return STATUS_OK;
}

static enum status check_run(struct scheduler_model *m, struct model_request *r, int32_t index, struct error *err)
{
    const struct sequence *seq = &r->request->sequences[index];
    struct model_drafts *d = &r->drafts[index];
    int32_t sample = 0;
    const struct run_entries run = entries_of(m, seq, &sample);
    const int32_t count = run.end - run.first - 1;
    m->totals.dropped += d->given - (count > 0 ? count : 0);
    if (count <= 0) return STATUS_OK;
    if (count > d->given)
        return error_set(err, STATUS_INTERNAL, "request %d sequence %d computes %d drafts of %d", r->number, index,
                         count, d->given);
    for (int32_t i = 0; i < count; i++)
        if (m->device.resolved[run.first + 1 + i] != d->tokens[i])
            return error_set(err, STATUS_INTERNAL, "request %d sequence %d: draft %d is %d instead of %d", r->number,
                             index, i, m->device.resolved[run.first + 1 + i], d->tokens[i]);
    m->totals.device_runs += m->on_device;
    m->totals.state_runs += m->config.limits.num_state_slots > 0;
    d->count = count;
    d->sample = sample;
    d->step = m->device.num_submitted - 1;
    return STATUS_OK;
}

enum status model_check_runs(struct scheduler_model *m, struct error *err)
{
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < m->num_live; i++)
        for (int32_t j = 0; j < m->live[i]->request->num_sequences && status == STATUS_OK; j++)
            status = check_run(m, m->live[i], j, err);
    return status;
}

enum status model_check_drafts_give_way(const struct scheduler_model *m, const struct schedule *schedule,
                                        struct error *err)
{
    const bool room = m->free_before >= m->most_cost;
    if (schedule->result == SCHEDULE_COLLECT_FIRST && room && scheduler_in_flight(m->scheduler) < model_most_steps(m))
        return error_set(err, STATUS_INTERNAL, "a step waits for another, but %lld blocks are free and it takes %lld",
                         (long long)m->free_before, (long long)m->most_cost);
    if (schedule->result != SCHEDULE_BATCH || m->batch.num_tokens == m->config.limits.max_num_tokens) return STATUS_OK;
    if (!model_has_ample_states(m)) return STATUS_OK;
    if (m->free_before < m->most_cost + m->most_cost_of_drafts || m->batch.num_drafts == m->num_given) return STATUS_OK;
    return error_set(err, STATUS_INTERNAL, "a step has %d drafts of %d, but %lld blocks are free and it takes %lld",
                     m->batch.num_drafts, m->num_given, (long long)m->free_before,
                     (long long)(m->most_cost + m->most_cost_of_drafts));
}

void model_cancel_runs(struct scheduler_model *m)
{
    for (int32_t i = 0; i < m->num_live; i++)
        for (int32_t j = 0; j < SCHEDULER_MODEL_MAX_N; j++) {
            struct model_drafts *d = &m->live[i]->drafts[j];
            if (d->count == 0 || d->step != m->device.num_submitted) continue;
            d->count = 0;
            m->totals.lost_runs++;
        }
}

const struct true_sequence *model_contents(const struct model_request *r, const struct sequence *seq,
                                           struct true_sequence *scratch)
{
    const struct model_drafts *d = &r->drafts[seq->index];
    if (d->count == 0) return &r->truth[seq->index];
    true_sequence_draft(scratch, &r->truth[seq->index], seq->num_tokens, d->tokens, d->count);
    return scratch;
}

/* ---- collect ---- */

static bool is_collected(const struct scheduler_model *m, const struct model_drafts *d)
{
    return d->count > 0 && d->step == m->device.num_collected - 1;
}

static int32_t num_blocks_of(const struct scheduler_model *m, const struct sequence *seq)
{
    int32_t count = 0;
    for (int32_t g = 0; g < m->config.limits.num_groups; g++) count += seq->tables[g].num_blocks;
    return count;
}

void model_remember_runs(struct scheduler_model *m, const struct sample_output *samples)
{
    for (int32_t i = 0; i < m->num_live; i++)
        for (int32_t j = 0; j < m->live[i]->request->num_sequences; j++) {
            struct model_request *r = m->live[i];
            const struct sequence *seq = &r->request->sequences[j];
            struct model_drafts *d = &r->drafts[j];
            if (!is_collected(m, d)) continue;
            const int32_t *drawn = samples->token_ids + d->sample;
            d->length = seq->status == SEQUENCE_FINISHED ? -1 : seq->num_tokens;
            d->blocks = num_blocks_of(m, seq);
            d->accepted = d->collected = 0;
            while (d->accepted < d->count && drawn[d->accepted] == d->tokens[d->accepted]) d->accepted++;
            while (d->collected <= d->accepted && drawn[d->collected] >= 0 &&
                   d->length + d->collected < r->alone_length[j])
                d->collected++;
        }
}

/* The events of a run: a token each, in order, and only the last one may end the sequence. */
static enum status check_events(const struct model_request *r, const struct sequence *seq,
                                const struct token_event *events, int32_t num_events, struct error *err)
{
    const struct model_drafts *d = &r->drafts[seq->index];
    const int32_t most = d->collected + r->damaged[seq->index];
    int32_t count = 0;
    for (int32_t i = 0; i < num_events; i++) {
        const struct token_event *e = &events[i];
        if (e->seq != seq || e->sample < 0) continue;
        const int32_t outputs = d->length - seq->prompt_len + (e->token < 0 ? count : count + 1);
        const enum finish_reason reason = count + 1 == most ? seq->finish_reason : FINISH_NONE;
        if (e->sample != d->sample + count || e->num_outputs != outputs || e->finish_reason != reason)
            return error_set(err, STATUS_INTERNAL,
                             "request %d sequence %d: event %d of its run is sample %d, output %d, end %d", r->number,
                             seq->index, count, e->sample, e->num_outputs, e->finish_reason);
        count++;
    }
    if (count == most) return STATUS_OK;
    return error_set(err, STATUS_INTERNAL, "request %d sequence %d: its run has %d events, not %d", r->number,
                     seq->index, count, most);
}

/* An event that is not of a run says what its sequence has come to. */
static enum status check_event(const struct scheduler_model *m, const struct token_event *e, struct error *err)
{
    const struct sequence *seq = e->seq;
    const struct model_request *r = model_of(m, seq->request);
    if (e->sample < 0
            ? e->finish_reason == FINISH_ERROR
            : is_collected(m, &r->drafts[seq->index]) ||
                  (e->num_outputs == seq->num_tokens - seq->prompt_len && e->finish_reason == seq->finish_reason))
        return STATUS_OK;
    return error_set(err, STATUS_INTERNAL, "request %d sequence %d: an event says output %d, end %d", r->number,
                     seq->index, e->num_outputs, e->finish_reason);
}

static enum status check_yield(struct scheduler_model *m, struct model_request *r, const struct sequence *seq,
                               const struct token_event *events, int32_t num_events, struct error *err)
{
    struct model_drafts *d = &r->drafts[seq->index];
    const int32_t count = d->count;
    d->count = 0;
    if (d->length < 0) {
        m->totals.lost_runs++;
        return STATUS_OK;
    }
    m->totals.runs++;
    m->totals.drafts += count;
    m->totals.accepted += d->accepted;
    m->totals.ends_in_runs += d->collected <= d->accepted;
    if (seq->num_tokens != d->length + d->collected)
        return error_set(err, STATUS_INTERNAL,
                         "request %d sequence %d: a run of %d drafts, %d of them right, makes %d tokens %d", r->number,
                         seq->index, count, d->accepted, d->length, seq->num_tokens);
    if (seq->status == SEQUENCE_FINISHED) return check_events(r, seq, events, num_events, err);
    r->computed[seq->index] = d->length + d->accepted;
    m->totals.rollbacks += num_blocks_of(m, seq) < d->blocks;
    return check_events(r, seq, events, num_events, err);
}

enum status model_check_collected(struct scheduler_model *m, const struct token_event *events, int32_t num_events,
                                  struct error *err)
{
    struct scheduler_stats stats;
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < num_events && status == STATUS_OK; i++) status = check_event(m, &events[i], err);
    for (int32_t i = 0; i < m->num_live; i++)
        for (int32_t j = 0; j < m->live[i]->request->num_sequences && status == STATUS_OK; j++)
            if (is_collected(m, &m->live[i]->drafts[j]))
                status = check_yield(m, m->live[i], &m->live[i]->request->sequences[j], events, num_events, err);
    scheduler_get_stats(m->scheduler, &stats);
    if (status != STATUS_OK || (stats.runs == m->totals.runs && stats.drafts == m->totals.drafts &&
                                stats.drafts_accepted == m->totals.accepted))
        return status;
    return error_set(err, STATUS_INTERNAL,
                     "%lld runs are counted, %lld drafts and %lld accepted; there were %lld, %lld, %lld",
                     (long long)stats.runs, (long long)stats.drafts, (long long)stats.drafts_accepted,
                     (long long)m->totals.runs, (long long)m->totals.drafts, (long long)m->totals.accepted);
}
