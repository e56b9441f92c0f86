#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "tests/support/scheduler_model_state.h"

void scheduler_model_totals_add(struct scheduler_model_totals *to, const struct scheduler_model_totals *from)
{
    const size_t count = sizeof *to / sizeof(int64_t);
    int64_t *into = (int64_t *)to;
    const int64_t *values = (const int64_t *)from;
    for (size_t i = 0; i < count; i++) into[i] += values[i];
}

/* ---- configuration ---- */

static enum status grow_host(void *user, int32_t *added, struct error *err)
{
    struct scheduler_model *m = user;
    m->host_misuse = m->host_misuse || m->totals.host_failures > 0 || *added < 1;
    if (++m->host_calls == m->host_fails) {
        m->totals.host_failures++;
        return error_set(err, STATUS_OUT_OF_MEMORY, "the model has no more host memory");
    }
    if (m->host_grow < *added) *added = m->host_grow;
    return STATUS_OK;
}

/* Prefix cache hashes: the fewer there are, the more prefixes share one. */
static uint64_t few_hashes(int32_t parent, const int32_t *tokens, int32_t count, uint64_t hashes)
{
    uint64_t hash = (uint64_t)parent;
    for (int32_t i = 0; i < count; i++) hash = random_mix(hash + (uint64_t)tokens[i]);
    return hash % hashes;
}

static uint64_t one_hash(int32_t parent, const int32_t *tokens, int32_t count)
{
    return few_hashes(parent, tokens, count, 1);
}

static uint64_t two_hashes(int32_t parent, const int32_t *tokens, int32_t count)
{
    return few_hashes(parent, tokens, count, 2);
}

static uint64_t five_hashes(int32_t parent, const int32_t *tokens, int32_t count)
{
    return few_hashes(parent, tokens, count, 5);
}

static struct scheduler_config config_of(const int32_t *v)
{
    struct scheduler_config c = {
        .limits = {.max_num_tokens = model_clamp(v[CONFIG_TOKENS], 1, 64),
                   .max_num_seqs = model_clamp(v[CONFIG_SEQS], 1, MAX_SEQS),
                   .max_num_drafts = model_clamp(v[CONFIG_DRAFTS], 0, MAX_STEP_DRAFTS),
                   .max_model_len = model_clamp(v[CONFIG_LENGTH], 2, MAX_LENGTH),
                   .block_size = model_clamp(v[CONFIG_SIZE], 1, 8),
                   .num_groups = model_clamp(v[CONFIG_GROUPS], 1, MAX_GROUPS)},
        .num_blocks = model_clamp(v[CONFIG_BLOCKS], 1, MAX_BLOCKS / 2 - 1),
        .num_host_blocks = model_clamp(v[CONFIG_HOST], 0, MAX_BLOCKS / 2 - 1),
        .preemption_mode = (enum preemption_mode)model_clamp(v[CONFIG_MODE], PREEMPTION_AUTO, PREEMPTION_SWAP),
        .policy = (enum scheduling_policy)model_clamp(v[CONFIG_POLICY], SCHEDULING_FCFS, SCHEDULING_PRIORITY),
        .enable_prefix_caching = v[CONFIG_CACHING] != 0,
        .enable_chunked_prefill = v[CONFIG_CHUNKED] != 0,
        .first_namespace_len = model_clamp(v[CONFIG_NAMESPACE], 0, 64),
        .namespace_position_shift = 1000,
        .num_batches = model_clamp(v[CONFIG_BATCHES], 0, SCHEDULER_MAX_STEPS),
    };
    for (int32_t g = 0; g < c.limits.num_groups; g++) {
        c.limits.windows[g] = model_clamp(v[CONFIG_WINDOW + g], 0, 64);
        c.limits.chunked[g] = c.limits.windows[g] > 0 && v[CONFIG_CHUNKS] >> g & 1;
        c.limits.block_shifts[g] = model_clamp(v[CONFIG_SHIFT + g], 0, 3);
    }
    if (v[CONFIG_STATES] > 0) {
        c.limits.num_state_slots =
            state_pool_min_slots(&c.limits) + model_clamp(v[CONFIG_STATES], 1, MAX_SPARE_STATES) - 1;
        c.state_interval = model_clamp(v[CONFIG_INTERVAL], 0, MAX_LENGTH);
        c.num_host_slots = model_clamp(v[CONFIG_HOST_SLOTS], 0, MAX_HOST_SLOTS);
        c.first_namespace_len = 0;
    }
    if (!c.enable_chunked_prefill && c.limits.max_num_tokens < c.limits.max_model_len)
        c.limits.max_num_tokens = c.limits.max_model_len;
    return c;
}

enum status scheduler_model_create(const struct operation *config, struct scheduler_model **out, struct error *err)
{
    struct scheduler_model *m = *out = calloc(1, sizeof *m);
    if (!m) return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for the model of the scheduler");
    m->config = config_of(config->values);
    m->host_grow = config->values[CONFIG_GROW];
    m->host_fails = config->values[CONFIG_FAILS];
    if (m->host_grow > 0) {
        m->config.grow_host_blocks = m->config.grow_host_slots = grow_host;
        m->config.user = m;
    }
    enum status status = scheduler_create(&m->config, &m->scheduler, err);
    if (status == STATUS_OK) status = batch_init(&m->batch, &m->config.limits, err);
    if (status == STATUS_OK) status = slot_device_init(&m->device, &m->config, err);
    if (status != STATUS_OK) {
        scheduler_model_destroy(m);
        *out = NULL;
        return status;
    }
    const int32_t hashes = m->num_hashes = config->values[CONFIG_HASHES];
    if (m->config.enable_prefix_caching && hashes > 0)
        m->scheduler->blocks.cache.hash = hashes == 1 ? one_hash : hashes == 2 ? two_hashes : five_hashes;
    m->watermark = model_clamp(config->values[CONFIG_WATERMARK], 0, m->config.num_blocks - 1);
    if (m->watermark > 0)
        m->scheduler->blocks.watermark = m->watermark;
    else
        m->watermark = batch_watermark(m->config.num_blocks);
    return STATUS_OK;
}

void scheduler_model_destroy(struct scheduler_model *m)
{
    if (!m) return;
    for (int32_t i = 0; i < m->num_live; i++) {
        request_destroy(m->live[i]->request);
        free(m->live[i]);
    }
    scheduler_destroy(m->scheduler);
    slot_device_free(&m->device);
    batch_free(&m->batch);
    free(m);
}

static enum status take_ended(struct scheduler_model *m, struct error *err)
{
    enum status status = STATUS_OK;
    for (struct request *request; status == STATUS_OK && (request = scheduler_next_finished(m->scheduler));) {
        struct model_request *r = model_of(m, request);
        if (!r) return error_set(err, STATUS_INTERNAL, "a request was handed back twice");
        for (int32_t i = 0; i < SLOT_DEVICE_STEPS; i++)
            if (r->named[i])
                return error_set(err, STATUS_INTERNAL,
                                 "request %d is handed back while a step that names it is in flight", r->number);
        for (int32_t i = 0; i < request->num_sequences && status == STATUS_OK; i++) {
            status = model_check_tokens(r, &request->sequences[i], err);
            if (status == STATUS_OK) status = model_check_end(m, r, i, err);
        }
        if (status == STATUS_OK) status = model_check_prompt_logprobs(r, err);
        int32_t at = 0;
        while (m->live[at] != r) at++;
        memmove(&m->live[at], &m->live[at + 1], (size_t)(--m->num_live - at) * sizeof *m->live);
        request_destroy(request);
        free(r);
    }
    return status;
}

/* ---- schedule ---- */

static enum status remember(struct scheduler_model *m, struct error *err)
{
    enum status status = m->unchecked ? model_count_holders(m, err) : STATUS_OK;
    m->evictions = model_num_evictions(m);
    for (int32_t i = 0; i < m->num_live; i++) {
        struct model_request *r = m->live[i];
        r->place = model_place(r->request);
        r->namespace_before = r->request->cache_namespace;
        r->was_due = model_beams_are_due(r);
        r->waited = r->request->leader != NULL;
        r->held = model_num_distinct(m, r->request);
        r->held_states = model_num_states(&r, 1);
        r->preemptions = r->request->num_preemptions;
        for (int32_t j = 0; j < r->request->num_sequences && status == STATUS_OK; j++) {
            r->status[j] = r->request->sequences[j].status;
            r->pending[j] = r->request->sequences[j].num_pending;
            status = model_check_found(m, r, &r->request->sequences[j], &r->found[j], err);
        }
    }
    return status;
}

/* The host's part of a start: the sequence's state reaches the device. */
static enum status start(struct scheduler_model *m, const struct sequence *seq, struct error *err)
{
    struct model_request *r = model_of(m, seq->request);
    if (!r || seq->status != SEQUENCE_RUNNING || seq->state_index < 0 ||
        seq->state_index >= m->config.limits.max_num_seqs)
        return error_set(err, STATUS_INTERNAL, "a sequence that does not run, or has state index %d, was started",
                         seq->state_index);
    m->totals.namespace_changes += r->truth[seq->index].cache_namespace != seq->request->cache_namespace;
    r->truth[seq->index].cache_namespace = seq->request->cache_namespace;
    m->device.states[seq->state_index] = &r->truth[seq->index];
    return STATUS_OK;
}

/* What running sequences hold, and keep, is not written again. */
static void keep_slots(struct scheduler_model *m, const struct schedule *schedule)
{
    for (int32_t i = 0; i < m->num_live; i++)
        for (int32_t j = 0; j < m->live[i]->request->num_sequences; j++) {
            const struct sequence *seq = &m->live[i]->request->sequences[j];
            bool kept = m->live[i]->status[j] == SEQUENCE_RUNNING && model_has_place(seq);
            for (int32_t k = 0; k < schedule->num_admitted; k++) kept = kept && schedule->admitted[k] != seq;
            const int32_t computed = m->live[i]->computed[j];
            for (int32_t g = 0; kept && g < m->config.limits.num_groups; g++) {
                const int32_t size = batch_block_size(&m->config.limits, g);
                for (int32_t p = model_first_read(m, g, computed); p < computed; p++)
                    slot_device_keep(&m->device, seq->tables[g].blocks[p / size], p % size);
            }
        }
}

/* Siblings that start with the leader's last prompt token have computed what it has. */
static void note_forks(struct scheduler_model *m, const struct schedule *schedule)
{
    for (int32_t i = 0; i < schedule->num_admitted; i++) {
        const struct sequence *seq = schedule->admitted[i];
        struct model_request *r = model_of(m, seq->request);
        bool in_batch = false;
        for (int32_t k = 0; k < m->batch.num_seqs; k++)
            in_batch = in_batch || m->batch.state_indices[k] == seq->state_index;
        if (in_batch) continue;
        m->totals.forks++;
        r->computed[seq->index] = seq->num_computed; /* check_table reads it back */
    }
}

/* The step in this place of the device's ring names the requests of the batch, or none any more. */
static void note_names(struct scheduler_model *m, int64_t step, bool named)
{
    int32_t index;
    for (int32_t i = 0; i < m->num_live; i++) m->live[i]->named[step % SLOT_DEVICE_STEPS] = false;
    for (int32_t i = 0; named && i < m->batch.num_seqs; i++) {
        struct model_request *r = model_of_state(m, m->batch.state_indices[i], &index);
        if (r) r->named[step % SLOT_DEVICE_STEPS] = true;
    }
}

static enum status submit(struct scheduler_model *m, const struct schedule *schedule, struct error *err)
{
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < schedule->num_admitted && status == STATUS_OK; i++)
        status = start(m, schedule->admitted[i], err);
    if (status != STATUS_OK) return status;
    keep_slots(m, schedule);
    status = model_submit_drafts(m, schedule, err);
    if (status == STATUS_OK) status = slot_device_submit(&m->device, &m->batch, err);
    for (int32_t i = 0; i < m->batch.num_seqs && status == STATUS_OK; i++) {
        status = model_check_progress(m, schedule, i, err);
        if (status == STATUS_OK) status = model_check_targets(m, i, err);
        if (status == STATUS_OK) status = model_check_blocks_held(m, i, err);
    }
    if (status == STATUS_OK) status = model_check_runs(m, err);
    if (status == STATUS_OK) note_forks(m, schedule);
    if (status == STATUS_OK) note_names(m, m->device.num_submitted - 1, true);
    m->totals.steps++;
    m->totals.copies += m->batch.num_copies;
    m->totals.swapped_in += m->batch.num_swap_in;
    m->totals.states_swapped_in += m->batch.num_states_in;
    if (model_is_mixed(m)) m->totals.mixed_swapped_in += m->batch.num_swap_in;
    return status;
}

/* Whether the step computes a sequence of the request, or starts one. */
static bool is_in_step(const struct scheduler_model *m, const struct schedule *schedule, const struct model_request *r)
{
    int32_t index;
    for (int32_t i = 0; i < m->batch.num_seqs; i++)
        if (model_of_state(m, m->batch.state_indices[i], &index) == r) return true;
    for (int32_t i = 0; i < r->request->num_sequences; i++)
        if (model_is_admitted(schedule, &r->request->sequences[i])) return true;
    return false;
}

/* After a cancelled step: what was in it has ended as aborted, what was not is as it was. */
static enum status check_cancelled(const struct model_request *r, bool in_step, struct error *err)
{
    for (int32_t i = 0; i < r->request->num_sequences; i++) {
        const struct sequence *seq = &r->request->sequences[i];
        const bool ends = in_step && r->status[i] != SEQUENCE_FINISHED;
        const bool aborted = seq->status == SEQUENCE_FINISHED && seq->finish_reason == FINISH_ABORT;
        if (ends ? !aborted : seq->status != r->status[i])
            return error_set(err, STATUS_INTERNAL, "request %d sequence %d, %s in the cancelled step, %s", r->number, i,
                             in_step ? "which is" : "which is not",
                             seq->status == SEQUENCE_FINISHED ? "has ended" : "goes on");
        if (seq->num_tokens != r->length[i])
            return error_set(err, STATUS_INTERNAL,
                             "request %d sequence %d has %d tokens after the cancelled step, not %d", r->number, i,
                             seq->num_tokens, r->length[i]);
    }
    return STATUS_OK;
}

static enum status cancel_step(struct scheduler_model *m, const struct schedule *schedule, int32_t part,
                               struct error *err)
{
    bool in_step[SCHEDULER_MODEL_MAX_REQUESTS];
    m->totals.cancelled++;
    m->totals.cancelled_second += scheduler_in_flight(m->scheduler) == 2;
    slot_device_cancel(&m->device, &m->batch, part);
    model_cancel_runs(m);
    note_names(m, m->device.num_submitted, false);
    for (int32_t i = 0; i < m->num_live; i++) {
        struct model_request *r = m->live[i];
        in_step[i] = is_in_step(m, schedule, r);
        for (int32_t j = 0; j < r->request->num_sequences; j++) {
            r->length[j] = r->request->sequences[j].num_tokens;
            r->status[j] = r->request->sequences[j].status;
            r->ended[j] = r->ended[j] || (in_step[i] && r->status[j] != SEQUENCE_FINISHED);
        }
    }
    scheduler_cancel(m->scheduler);
    if (scheduler_in_flight(m->scheduler) != m->device.num_submitted - m->device.num_collected)
        return error_set(err, STATUS_INTERNAL, "%d steps are said to be in flight after one was cancelled",
                         scheduler_in_flight(m->scheduler));
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < m->num_live && status == STATUS_OK; i++)
        status = check_cancelled(m->live[i], in_step[i], err);
    return status;
}

static enum status schedule_step(struct scheduler_model *m, const int32_t *values, struct error *err)
{
    const int32_t cancel = values[SCHEDULE_CANCEL];
    struct schedule schedule;
    enum status status = remember(m, err);
    if (status == STATUS_OK) status = model_give_drafts(m, values, err);
    if (status == STATUS_OK) status = scheduler_schedule(m->scheduler, &m->batch, &schedule, err);
    if (status != STATUS_OK) return status;
    if (schedule.result == SCHEDULE_BATCH)
        status = submit(m, &schedule, err);
    else if (schedule.num_admitted > 0 || m->batch.num_tokens > 0)
        status = error_set(err, STATUS_INTERNAL, "%d sequences start without a batch", schedule.num_admitted);
    if (status == STATUS_OK) status = model_check_policy(m, &schedule, err);
    if (status == STATUS_OK && cancel > 0 && schedule.result == SCHEDULE_BATCH)
        status = cancel_step(m, &schedule, cancel - 1, err);
    return status;
}

/* ---- collect, and ends from outside ---- */

static enum status take_event(struct scheduler_model *m, const struct token_event *event,
                              const struct sample_output *samples, struct error *err)
{
    struct model_request *r = model_of(m, event->seq->request);
    if (r && event->sample == -1 && event->token == -1 && r->request->prompt_logprobs && request_finished(r->request)) {
        for (int32_t i = 0; i < r->request->num_sequences; i++) r->damaged[i] = true;
        return STATUS_OK;
    }
    if (!r || event->sample < 0 || event->sample >= samples->num_samples ||
        event->token != samples->token_ids[event->sample])
        return error_set(err, STATUS_INTERNAL, "an event is of no request or has another token than its sample");
    const int32_t index = event->seq->index;
    if (event->token < 0) {
        r->damaged[index] = true;
        if (event->seq->finish_reason == FINISH_ERROR) return STATUS_OK;
        return error_set(err, STATUS_INTERNAL, "request %d sequence %d has no token, and goes on", r->number, index);
    }
    r->sampled[index] = r->request->beams;
    r->stalled = false;
    return STATUS_OK;
}

/* The device's samples and targets, one of which may be damaged. */
struct collected {
    struct sample_output samples, targets;
    int32_t tokens[MAX_SEQS + MAX_STEP_DRAFTS], target_ids[64];
    int32_t request; /* the number of the one whose target is damaged; -1: none */
};

static void take_collected(struct scheduler_model *m, int32_t damaged, struct collected *c)
{
    const struct sample_output none = {0};
    c->samples = slot_device_collect(&m->device);
    c->targets = c->samples.targets ? *c->samples.targets : none;
    c->request = -1;
    const int32_t num_samples = c->samples.num_samples, num_targets = c->targets.num_samples;
    if (num_samples > 0) memcpy(c->tokens, c->samples.token_ids, (size_t)num_samples * sizeof *c->tokens);
    if (num_targets > 0) memcpy(c->target_ids, c->targets.token_ids, (size_t)num_targets * sizeof *c->target_ids);
    c->samples.token_ids = c->tokens;
    c->targets.token_ids = c->target_ids;
    if (c->samples.targets) c->samples.targets = &c->targets;
    if (damaged <= 0 || num_samples + num_targets == 0) return;
    const int32_t hit = (damaged - 1) % (num_samples + num_targets);
    if (hit < num_samples) {
        c->tokens[hit] = -1;
    } else {
        c->target_ids[hit - num_samples] = -1;
        c->request = slot_device_request_of_target(&m->device, hit - num_samples);
    }
}

static enum status collect(struct scheduler_model *m, int32_t damaged, struct error *err)
{
    if (scheduler_in_flight(m->scheduler) == 0) return STATUS_OK;
    struct collected c;
    const struct token_event *events;
    int32_t num_events;
    take_collected(m, damaged, &c);
    note_names(m, m->device.num_collected - 1, false);
    model_remember_runs(m, &c.samples);
    enum status status = scheduler_collect(m->scheduler, &c.samples, &events, &num_events, err);
    for (int32_t i = 0; i < num_events && status == STATUS_OK; i++) status = take_event(m, &events[i], &c.samples, err);
    if (status == STATUS_OK) status = model_check_collected(m, events, num_events, err);
    const struct model_request *r = c.request < 0 ? NULL : model_find(m, c.request);
    if (status == STATUS_OK && r && !request_finished(r->request))
        status = error_set(err, STATUS_INTERNAL, "request %d goes on, though a row of its prompt_logprobs is damaged",
                           r->number);
    return status;
}

static void abort_request(struct scheduler_model *m, int32_t number)
{
    struct model_request *r = model_find(m, number);
    if (!r) return;
    for (int32_t i = 0; i < r->request->num_sequences; i++)
        if (r->request->sequences[i].status != SEQUENCE_FINISHED) r->ended[i] = true;
    scheduler_abort(m->scheduler, r->request);
}

static void finish_sequence(struct scheduler_model *m, int32_t number, int32_t index)
{
    struct model_request *r = model_find(m, number);
    if (!r) return;
    index = model_clamp(index, 0, r->request->num_sequences - 1);
    if (r->request->sequences[index].status != SEQUENCE_FINISHED) r->ended[index] = true;
    scheduler_finish(m->scheduler, &r->request->sequences[index], FINISH_STOP);
}

/* Choice 0: every beam goes on; others: beams die and are forked as the number says. */
static void choose_beams(struct scheduler_model *m, int32_t number, int32_t choice)
{
    struct model_request *r = model_find(m, number);
    if (!r || !model_beams_are_due(r)) return;
    const int32_t n = r->request->num_sequences;
    struct beam beams[SCHEDULER_MODEL_MAX_N];
    struct true_sequence truth[SCHEDULER_MODEL_MAX_N];
    int32_t alive[SCHEDULER_MODEL_MAX_N], num_alive = 0;
    for (int32_t i = 0; i < n; i++)
        if (r->request->sequences[i].status != SEQUENCE_FINISHED) alive[num_alive++] = i;
    struct random random = {.state = (uint64_t)choice};
    for (int32_t i = 0; i < n; i++) {
        const int32_t other = alive[random_between(&random, 0, num_alive - 1)];
        beams[i] = (struct beam){.parent = choice == 0 ? i : other,
                                 .token = (int32_t)random_between(&random, 0, TRUE_VOCAB - 1)};
        truth[i] = r->truth[i];
    }
    scheduler_set_beams(m->scheduler, r->request, beams);
    m->totals.beams++;
    for (int32_t k = 0; k < num_alive; k++) {
        const int32_t i = alive[k];
        struct sequence *seq = &r->request->sequences[i];
        r->truth[i] = truth[beams[i].parent];
        r->truth[i].index = i;
        true_sequence_append(&r->truth[i], beams[i].token);
        r->sampled[i] = false;
        r->computed[i] = seq->num_computed; /* check_table reads it back */
    }
    for (int32_t k = 0; k < num_alive; k++)
        if (r->request->sequences[alive[k]].num_tokens >= r->request->sequences[alive[k]].token_capacity) {
            r->ended[alive[k]] = true;
            scheduler_finish(m->scheduler, &r->request->sequences[alive[k]], FINISH_LENGTH);
        }
}

static enum status reset(struct scheduler_model *m, struct error *err)
{
    if (m->unchecked && model_count_holders(m, err) != STATUS_OK) return STATUS_INTERNAL;
    if (m->held > 0 || scheduler_in_flight(m->scheduler) > 0) return STATUS_OK;
    for (int32_t i = 0; i < m->num_live; i++)
        if (model_place(m->live[i]->request) == PLACE_SWAPPED) return STATUS_OK;
    scheduler_reset_prefix_cache(m->scheduler);
    struct scheduler_stats stats;
    scheduler_get_stats(m->scheduler, &stats);
    if (stats.blocks_cached == 0) return STATUS_OK;
    return error_set(err, STATUS_INTERNAL, "%d blocks are cached after the reset", stats.blocks_cached);
}

/* ---- operations ---- */

enum status scheduler_model_apply(struct scheduler_model *m, const struct operation *operation, struct error *err)
{
    const int32_t *v = operation->values;
    const bool forgets =
        operation->kind == OPERATION_RESET || (operation->kind == OPERATION_SCHEDULE && v[SCHEDULE_CANCEL] > 0);
    enum status status = m->unchecked ? STATUS_OK : model_remember_blocks(m, err);
    m->totals.operations++;
    if (status != STATUS_OK) return status;
    switch (operation->kind) {
    case OPERATION_ADD:
        status = model_add(m, v, err);
        break;
    case OPERATION_ABORT:
        abort_request(m, v[FINISH_REQUEST]);
        break;
    case OPERATION_FINISH:
        finish_sequence(m, v[FINISH_REQUEST], v[FINISH_SEQUENCE]);
        break;
    case OPERATION_SCHEDULE:
        status = schedule_step(m, v, err);
        break;
    case OPERATION_COLLECT:
        status = collect(m, v[COLLECT_DAMAGED], err);
        break;
    case OPERATION_BEAMS:
        choose_beams(m, v[BEAMS_REQUEST], v[BEAMS_CHOICE]);
        break;
    case OPERATION_RESET:
        status = reset(m, err);
        break;
    case OPERATION_CONFIG:
    case NUM_OPERATION_KINDS:
        break;
    }
    if (status == STATUS_OK && !m->unchecked) status = model_check(m, forgets, err);
    return status == STATUS_OK ? take_ended(m, err) : status;
}

void scheduler_model_set_unchecked(struct scheduler_model *m, bool unchecked)
{
    m->unchecked = unchecked;
}

enum status scheduler_model_finish(struct scheduler_model *m, struct error *err)
{
    enum status status = STATUS_OK;
    const int32_t most = 20000; /* nobody starves */
    for (int32_t i = 0; scheduler_has_work(m->scheduler) && status == STATUS_OK; i++) {
        if (i == most) return error_set(err, STATUS_INTERNAL, "requests are left after %d steps", most);
        for (int32_t k = m->num_live - 1; k >= 0 && status == STATUS_OK; k--) {
            struct operation beams = operation_of(OPERATION_BEAMS);
            beams.values[BEAMS_REQUEST] = m->live[k]->number;
            beams.values[BEAMS_CHOICE] = i;
            if (model_beams_are_due(m->live[k])) status = scheduler_model_apply(m, &beams, err);
        }
        const struct operation schedule = operation_of(OPERATION_SCHEDULE), take = operation_of(OPERATION_COLLECT);
        if (status == STATUS_OK) status = scheduler_model_apply(m, &schedule, err);
        if (status == STATUS_OK) status = scheduler_model_apply(m, &take, err);
    }
    if (status == STATUS_OK && (m->num_live > 0 || m->held > 0))
        status = error_set(err, STATUS_INTERNAL, "%d requests and %d blocks are left at the end", m->num_live, m->held);
    if (status == STATUS_OK && block_pool_num_in_use(&m->scheduler->blocks.host) > 0)
        status = error_set(err, STATUS_INTERNAL, "host blocks are held at the end");
    return status;
}

const struct scheduler_model_totals *scheduler_model_get_totals(struct scheduler_model *m)
{
    const struct state_pool *states = &m->scheduler->blocks.states;
    m->totals.evictions = m->scheduler->blocks.evictions;
    m->totals.snapshots = states->made;
    m->totals.snapshots_evicted = states->evicted;
    m->totals.snapshot_hits = states->hits;
    return &m->totals;
}

/* ---- for people ---- */

void scheduler_model_print(const struct scheduler_model *m, FILE *out)
{
    static const char *const places[] = {"waiting", "swapped", "running", "ended"};
    static const char *const states[] = {"waiting", "running", "swapped", "finished"};
    struct scheduler_stats stats;
    scheduler_get_stats(m->scheduler, &stats);
    fprintf(out, "    %d steps in flight; blocks: %d in use, %d cached, %d free; %d of the host in use\n",
            scheduler_in_flight(m->scheduler), stats.blocks_in_use, stats.blocks_cached, stats.blocks_free,
            stats.host_blocks_in_use);
    for (int32_t i = 0; i < m->num_live; i++) {
        const struct request *request = m->live[i]->request;
        fprintf(out, "    request %d: %s%s%s\n", m->live[i]->number, places[model_place(request)],
                model_beams_are_due(m->live[i]) ? ", beams are due" : "",
                m->live[i]->stalled ? ", no token yet since" : "");
        for (int32_t j = 0; j < request->num_sequences; j++) {
            const struct sequence *seq = &request->sequences[j];
            fprintf(out, "        %s, %d tokens and %d pending of %d, %d computed; ", states[seq->status],
                    seq->num_tokens, seq->num_pending, seq->token_capacity, seq->num_computed);
            if (m->config.limits.num_state_slots > 0)
                fprintf(out, "state %d, after %d tokens %d, a snapshot due after %d; ", seq->state, seq->boundary,
                        seq->boundary_state, seq->parting);
            fprintf(out, "tables");
            for (int32_t g = 0; g < m->config.limits.num_groups; g++) {
                fprintf(out, " [");
                for (int32_t b = 0; b < seq->tables[g].num_blocks; b++) fprintf(out, " %d", seq->tables[g].blocks[b]);
                fprintf(out, " ]");
            }
            fputc('\n', out);
        }
    }
}
