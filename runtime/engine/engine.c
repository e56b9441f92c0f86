#include "runtime/engine/engine.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/plural.h"
#include "base/processors.h"
#include "runtime/engine/draft_grammar.h"
#include "runtime/engine/engine_state.h"
#include "runtime/engine/loaded_draft.h"
#include "runtime/engine/loaded_nodes.h"
#include "runtime/engine/memory_plan.h"
#include "runtime/engine/plan.h"

enum { MASK_THREADS = 8 }; /* at most, for the masks of a step */

/* ---- start and end ---- */

static enum status grow_swap_space(void *user, int32_t *added, struct error *err)
{
    struct engine *e = user;
    const int32_t limit = e->loaded->profile.num_host_blocks;
    const enum status status = model_grow_swap_space(e->loaded->model, limit, added, err);
    return status == STATUS_OK ? loaded_draft_grow_swap_space(e->loaded, *added, err) : status;
}

static enum status grow_host_slots(void *user, int32_t *added, struct error *err)
{
    struct engine *e = user;
    return model_grow_host_slots(e->loaded->model, e->loaded->profile.num_host_slots, added, err);
}

static enum status create_scheduler(struct engine *e, struct error *err)
{
    const struct scheduler_config config = {
        .limits = e->loaded->limits,
        .num_blocks = e->loaded->profile.num_blocks,
        .num_host_blocks = e->loaded->profile.num_host_blocks,
        .num_host_slots = e->loaded->profile.num_host_slots,
        .blocks_setting = memory_profile_blocks_setting(&e->loaded->profile),
        .preemption_mode = e->options.preemption_mode,
        .policy = e->options.scheduling_policy,
        .grow_host_blocks = grow_swap_space,
        .grow_host_slots = grow_host_slots,
        .user = e,
        .log = e->options.log,
        /* longrope: the rows of long sequences follow those of short ones (rope_table_rows) */
        .first_namespace_len = model_spec_rope_switch(&e->loaded->config.spec, e->loaded->limits.max_model_len),
        .namespace_position_shift = e->loaded->limits.max_model_len,
        .state_interval = e->options.state_interval,
        .num_batches = e->options.pipeline_parallel_size,
        .enable_prefix_caching = e->options.enable_prefix_caching,
        .enable_chunked_prefill = e->options.enable_chunked_prefill,
#ifndef NDEBUG
        .check_invariants = true,
#endif
    };
    return scheduler_create(&config, &e->scheduler, err);
}

static enum status create_batch(struct engine *e, struct error *err)
{
    const enum status status = batch_init(&e->batch, &e->loaded->limits, err);
    if (status != STATUS_OK) plan_advise_less(&e->options, e->loaded, err);
    return status;
}

/* Where a step has room for drafts. */
static enum status create_speculation(struct engine *e, struct error *err)
{
    const struct speculation_limits limits = memory_plan_speculation(&e->options, e->loaded);
    if (limits.max_num_drafts == 0) return STATUS_OK;
    enum status status = STATUS_OK;
    e->drafter = e->options.drafter;
    if (!e->drafter) status = loaded_draft_drafter(&e->options, e->loaded, &e->drafter, err);
    if (!e->drafter && status == STATUS_OK && e->options.speculative.method != DRAFT_GRAMMAR)
        status = drafter_create(&e->options.speculative, e->loaded->limits.max_model_len, &e->drafter, err);
    const bool on_host = !e->drafter || !e->drafter->draft, owned = e->drafter != e->options.drafter;
    if (status == STATUS_OK && on_host && e->loaded->tokenizer)
        status = draft_grammar_create(e->drafter, owned, e->loaded->tokenizer, &e->drafter, err);
    if (status != STATUS_OK || !e->drafter) return status; /* without a tokenizer there are no grammars */
    return speculation_create(&limits, e->drafter, &e->speculation, err);
}

static enum status create_text_buffer(struct engine *e, struct error *err)
{
    if (!e->loaded->tokenizer) return STATUS_OK;
    e->text_buffer = malloc(answer_text_buffer_size(e->loaded->tokenizer));
    return e->text_buffer ? STATUS_OK : error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
}

/* What answers with a grammar need. On a CPU the threads that compute the model wait meanwhile. */
static enum status create_masks(struct engine *e, struct error *err)
{
    const bool discrete = e->loaded->backend->discrete;
    const int allowed = processors_allowed(), own = engine_options_threads(&e->options);
    const int threads = !discrete && own < allowed ? own : allowed;
    const enum status status = grammars_create(e->loaded, &e->grammars, err);
    if (status != STATUS_OK) return status;
    e->events = calloc((size_t)batch_max_entries(&e->loaded->limits), sizeof *e->events);
    if (!e->events) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
    return step_masks_create(batch_max_entries(&e->loaded->limits), threads < MASK_THREADS ? threads : MASK_THREADS,
                             &e->masks, err);
}

/* Whether snapshots are as far apart as was asked for. */
static void warn_of_interval(const struct engine *e)
{
    const int32_t interval = e->options.state_interval, unit = batch_largest_block_size(&e->loaded->limits);
    struct error warning;
    if (e->loaded->limits.num_state_slots == 0 || interval % unit == 0) return;
    error_set(&warning, STATUS_OK,
              "snapshots of states are %d tokens apart, because %d are not a multiple of %d, a block",
              (interval + unit - 1) / unit * unit, interval, unit);
    log_warn(e->options.log, &warning);
}

/* "cuda:0, cuda:1"; ranks on the CPU have one name. */
static void name_devices(const struct engine_info *info, char *text, size_t size)
{
    const int32_t count = info->discrete ? info->num_ranks : 1;
    size_t length = 0;
    for (int32_t r = 0; r < count && length < size; r++)
        length += (size_t)snprintf(text + length, size - length, "%s%s", r ? ", " : "", info->rank_memory[r].device);
}

static void say_ready(const struct engine *e)
{
    const struct memory_profile *p = &e->loaded->profile;
    char states[96] = "", devices[256];
    name_devices(&e->info, devices, sizeof devices);
    if (p->num_state_slots > 0)
        snprintf(states, sizeof states, ", %d state slots of %.2f MiB for sequences and %d for snapshots",
                 p->num_state_slots - p->num_snapshot_slots, (double)p->slot_bytes / (1 << 20), p->num_snapshot_slots);
    log_write(e->options.log, LOG_INFO, "%s ready on %s in %.3f s: %d block%s of %d tokens%s, max_model_len %d",
              e->options.model, devices, e->info.start_seconds, p->num_blocks, plural(p->num_blocks),
              e->loaded->limits.block_size, states, e->loaded->limits.max_model_len);
}

enum status engine_create(const struct engine_options *options, struct engine **out, struct error *err)
{
    const double start = clock_seconds();
    *out = NULL;
    struct engine *e = calloc(1, sizeof *e);
    if (!e) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
    e->options = *options;
    inbox_init(&e->inbox);
    pthread_mutex_init(&e->schedule_lock, NULL);
    enum status status = STATUS_OK;
    if (options->trace_file) status = trace_open(options->trace_file, options->log, &e->trace, err);
    if (status == STATUS_OK) status = loaded_model_open(options, &e->loaded, err);
    if (status == STATUS_OK) status = create_scheduler(e, err);
    if (status == STATUS_OK) status = create_batch(e, err);
    if (status == STATUS_OK) status = create_speculation(e, err);
    if (status == STATUS_OK) status = create_text_buffer(e, err);
    if (status == STATUS_OK) status = create_masks(e, err);
    if (status != STATUS_OK) {
        engine_destroy(e);
        return status;
    }
    const bool two = options->async_scheduling < 0 ? e->loaded->backend->discrete : options->async_scheduling > 0;
    e->max_in_flight = two && !(e->drafter && e->drafter->one_step) ? 2 : 1;
    if (options->pipeline_parallel_size > 1) e->max_in_flight = options->pipeline_parallel_size;
    e->info = loaded_model_info(options, e->loaded);
    e->info.drafter = e->drafter ? e->drafter->name : NULL;
    e->info.grammars = e->loaded->tokenizer ? e->grammars : NULL;
    e->info.start_seconds = clock_seconds() - start;
    warn_of_interval(e);
    say_ready(e);
    *out = e;
    return STATUS_OK;
}

void engine_destroy(struct engine *e)
{
    if (!e) return;
    trace_close(e->trace);
    scheduler_destroy(e->scheduler);
    inbox_free(&e->inbox, job_free);
    batch_free(&e->batch);
    speculation_destroy(e->speculation);
    if (e->drafter != e->options.drafter) drafter_destroy(e->drafter);
    free(e->text_buffer);
    free(e->events);
    step_masks_free(e->masks);
    grammars_free(e->grammars);
    loaded_model_close(e->loaded);
    pthread_mutex_destroy(&e->schedule_lock);
    free(e);
}

void engine_leave(struct engine *e)
{
    if (!e) return;
    if (!e->loaded->backend->discrete) {
        engine_destroy(e);
        return;
    }
    trace_close(e->trace);
    loaded_nodes_close(e->loaded, STATUS_OK, NULL);
}

/* ---- what any thread may call ---- */

enum status engine_check(const struct engine *e, const struct engine_request *request, struct error *err)
{
    return request_check(&e->options, e->loaded, request, err);
}

enum status engine_add(struct engine *e, const struct engine_request *request, uint64_t *id, struct error *err)
{
    struct job *job = NULL;
    enum status status = engine_check(e, request, err);
    if (status == STATUS_OK) status = job_create(e->loaded, e->text_buffer, request, &job, err);
    if (status == STATUS_OK) job->added = trace_now(e->trace);
    if (status == STATUS_OK) status = inbox_put(&e->inbox, &job->entry, id, err);
    if (status != STATUS_OK) job_free(job);
    return status;
}

void engine_abort(struct engine *e, uint64_t id)
{
    inbox_abort(&e->inbox, id);
}

bool engine_has_work(struct engine *e)
{
    return inbox_has_work(&e->inbox);
}

/* Without schedule_lock: the scheduler changes sequences only in calls of this thread. */
int32_t engine_num_computed(struct engine *e, uint64_t id)
{
    const struct inbox_entry *entry = inbox_find(&e->inbox, id);
    return entry ? ((const struct job *)entry->job)->request->sequences[0].num_computed : 0;
}

void engine_wait(struct engine *e)
{
    inbox_wait(&e->inbox);
}

void engine_wake(struct engine *e)
{
    inbox_wake(&e->inbox);
}

/* ---- one step ---- */

/* Hands new requests to the scheduler in order of arrival, then ends those that were aborted. */
static void read_inbox(struct engine *e)
{
    struct inbox_entry *added, *aborts, *entry;
    inbox_read(&e->inbox, &added, &aborts);
    for (entry = added; entry; entry = entry->next_new) {
        struct job *job = entry->job;
        job->request->id = entry->id;
        trace_request_begin(e->trace, &job->trace, job->request, job->added);
        e->num_constrained += job->constrained != NULL;
        scheduler_add(e->scheduler, job->request);
    }
    while ((entry = inbox_next_abort(&aborts)) != NULL)
        scheduler_abort(e->scheduler, ((struct job *)entry->job)->request);
}

/* The scheduler fails only if its own state is inconsistent. That is a bug, which the user is asked to report. */
static enum status check_scheduler(enum status status, struct error *err)
{
    return status == STATUS_OK ? status : error_prefix(err, status, "internal error, please report it");
}

/* Submits what makes the drafts, and the step. */
static enum status submit_step(struct engine *e, const struct schedule *schedule, struct error *err)
{
    struct drafter *d = e->drafter && e->drafter->draft ? e->drafter : NULL;
    enum status status = d ? d->draft(d, &e->batch, schedule, err) : STATUS_OK;
    if (status != STATUS_OK) return status;
    const bool masks = e->num_constrained > 0 && step_masks_any(&e->batch, schedule->sampled);
    status = masks ? model_forward(e->loaded->model, &e->batch, err) : model_submit(e->loaded->model, &e->batch, err);
    if (d && status == STATUS_CANCELLED) d->cancel(d);
    e->is_unsampled = masks && status == STATUS_OK;
    return status;
}

/* Ends the sequence of an answer that cannot go on: its text may end here, or the error says why. */
static void end_dead_answer(void *engine, struct sequence *seq)
{
    struct engine *e = engine;
    struct constrained_answer *answer = &job_of(seq)->constrained->answers[seq->index];
    const bool may_end = matcher_may_end(answer->matcher);
    if (!may_end) constrained_dead_end(answer, request_error(seq->request));
    answer->has_ended = true;
    pthread_mutex_lock(&e->schedule_lock);
    scheduler_finish(e->scheduler, seq, may_end ? FINISH_STOP : FINISH_ERROR);
    pthread_mutex_unlock(&e->schedule_lock);
}

/* Has a step that was submitted without its sampling draw, if the tokens that its masks follow from are known: those of
 * all steps before it or, of stages, whose steps share no sequence, always. */
static enum status sample_step(struct engine *e, struct error *err)
{
    struct model *model = e->loaded->model;
    if (!e->is_unsampled || (e->options.pipeline_parallel_size <= 1 && scheduler_in_flight(e->scheduler) > 1))
        return STATUS_OK;
    const struct sample_masks masks = model_masks(model);
    const int32_t num_rows = step_masks_write(e->masks, &e->batch, e->schedule.sampled, &masks, end_dead_answer, e);
    const enum status status = model_sample(model, &e->batch, num_rows, err);
    e->is_unsampled = false;
    trace_part_end(e->trace, TRACE_MASKS);
    return status;
}

/* Schedules the next step and submits it. */
static enum status schedule_and_submit(struct engine *e, enum schedule_result *result, struct error *err)
{
    struct schedule *schedule = &e->schedule;
    pthread_mutex_lock(&e->schedule_lock);
    read_inbox(e);
    if (e->speculation) speculation_propose(e->speculation, e->scheduler);
    const enum status status = check_scheduler(scheduler_schedule(e->scheduler, &e->batch, schedule, err), err);
    if (e->speculation) speculation_scheduled(e->speculation, schedule);
    pthread_mutex_unlock(&e->schedule_lock);
    *result = schedule->result;
    trace_requests_scheduled(e->trace);
    trace_part_end(e->trace, TRACE_SCHEDULE);
    if (status != STATUS_OK || *result != SCHEDULE_BATCH) return status;
    trace_batch(e->trace, &e->batch);
    for (int32_t i = 0; i < schedule->num_admitted; i++) {
        const struct sequence *seq = schedule->admitted[i];
        trace_request_started(e->trace, &((struct job *)seq->request->user)->trace);
        struct sampling_state state;
        job_sampling_state(seq, e->options.seed, &state);
        model_set_sampling_state(e->loaded->model, seq->state_index, &state, seq->tokens, seq->num_tokens);
    }
    const enum status submitted = submit_step(e, schedule, err);
    trace_part_end(e->trace, TRACE_SUBMIT);
    if (submitted != STATUS_CANCELLED) return submitted;
    pthread_mutex_lock(&e->schedule_lock);
    scheduler_cancel(e->scheduler);
    pthread_mutex_unlock(&e->schedule_lock);
    return STATUS_OK;
}

/* Tells the grammar of an event's token. False: nobody gets the token. */
static bool take_constrained(struct engine *e, struct token_event *event)
{
    struct constrained *c = job_of(event->seq)->constrained;
    struct error why;
    if (!c || event->token < 0) return true;
    switch (constrained_take(c, event, &why)) {
    case CONSTRAINED_GOES_ON:
        return true;
    case CONSTRAINED_ENDS:
        event->finish_reason = FINISH_STOP;
        scheduler_finish(e->scheduler, event->seq, FINISH_STOP);
        return true;
    case CONSTRAINED_FAILED: {
        struct error *err = request_error(event->seq->request);
        if (err) *err = why;
        scheduler_finish(e->scheduler, event->seq, FINISH_ERROR);
        return false;
    }
    case CONSTRAINED_DROPPED:
        return false;
    }
    return false;
}

/* Has all grammars take the tokens of a step, before masks are made for the next one. *events becomes those that are to
 * be delivered. */
static int32_t take_all_constrained(struct engine *e, const struct token_event **events, int32_t num_events)
{
    int32_t kept = 0;
    if (e->num_constrained == 0) return num_events;
    pthread_mutex_lock(&e->schedule_lock);
    for (int32_t i = 0; i < num_events; i++) {
        struct token_event event = (*events)[i];
        if (take_constrained(e, &event)) e->events[kept++] = event;
    }
    pthread_mutex_unlock(&e->schedule_lock);
    *events = e->events;
    return kept;
}

static enum status collect_and_deliver(struct engine *e, struct error *err)
{
    struct sample_output samples;
    enum status status = model_collect(e->loaded->model, &samples, err);
    if (status == STATUS_OK && e->drafter && e->drafter->collect)
        status = e->drafter->collect(e->drafter, &samples.draft_ids, err);
    /* The CPU computes with the weights in the mapped files; a GPU has copied them. */
    if (status == STATUS_OK && !e->loaded->backend->discrete) status = loaded_model_check_files(e->loaded, err);
    if (status != STATUS_OK) return status;
    const struct token_event *events;
    int32_t num_events;
    pthread_mutex_lock(&e->schedule_lock);
    status = check_scheduler(scheduler_collect(e->scheduler, &samples, &events, &num_events, err), err);
    pthread_mutex_unlock(&e->schedule_lock);
    if (status == STATUS_OK) num_events = take_all_constrained(e, &events, num_events);
    trace_part_end(e->trace, TRACE_COLLECT);
    if (status == STATUS_OK) status = sample_step(e, err);
    for (int32_t i = 0; i < num_events; i++) engine_deliver(e, &events[i], &samples);
    return status;
}

static void trace_end_of_step(struct engine *e, bool worked)
{
    struct scheduler_stats stats;
    if (!e->trace) return;
    trace_part_end(e->trace, TRACE_DELIVER);
    engine_stats(e, &stats);
    trace_step_end(e->trace, worked, &stats);
}

/* Whether another step may be submitted before one is collected. */
static bool has_room(const struct engine *e)
{
    const int32_t in_flight = scheduler_in_flight(e->scheduler);
    if (in_flight >= e->max_in_flight) return false;
    return in_flight == 0 || !e->speculation || !speculation_wants_drafts(e->speculation, e->scheduler);
}

enum status engine_step(struct engine *e, bool *worked, struct error *err)
{
    enum schedule_result result = SCHEDULE_COLLECT_FIRST;
    enum status status = STATUS_OK;
    trace_step_begin(e->trace);
    if (has_room(e)) status = schedule_and_submit(e, &result, err);
    if (status == STATUS_OK) status = sample_step(e, err);
    *worked = result == SCHEDULE_BATCH;
    /* After submitting a step, collect one only if no more may be in flight; if there was none to submit, collect what
     * is in flight. */
    if (status == STATUS_OK && scheduler_in_flight(e->scheduler) > 0 && (result != SCHEDULE_BATCH || !has_room(e))) {
        status = collect_and_deliver(e, err);
        *worked = true;
    }
    if (status == STATUS_OK && engine_finish_jobs(e)) *worked = true;
    trace_end_of_step(e, *worked);
    return status;
}

/* ---- facts ---- */

const struct engine_info *engine_info(const struct engine *e)
{
    return &e->info;
}

void engine_stats(struct engine *e, struct scheduler_stats *stats)
{
    pthread_mutex_lock(&e->schedule_lock);
    scheduler_get_stats(e->scheduler, stats);
    pthread_mutex_unlock(&e->schedule_lock);
}

double engine_blocks_filled(struct engine *e)
{
    pthread_mutex_lock(&e->schedule_lock);
    const double filled = scheduler_blocks_filled(e->scheduler);
    pthread_mutex_unlock(&e->schedule_lock);
    return filled;
}

int64_t engine_blocks_unshared(struct engine *e)
{
    pthread_mutex_lock(&e->schedule_lock);
    const int64_t blocks = scheduler_blocks_unshared(e->scheduler);
    pthread_mutex_unlock(&e->schedule_lock);
    return blocks;
}

void engine_residence(const struct engine *e, struct model_residence *out)
{
    model_residence(e->loaded->model, out);
}

void engine_reset_prefix_cache(struct engine *e)
{
    pthread_mutex_lock(&e->schedule_lock);
    scheduler_reset_prefix_cache(e->scheduler);
    pthread_mutex_unlock(&e->schedule_lock);
}
