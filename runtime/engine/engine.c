#include "runtime/engine/engine.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/plural.h"
#include "base/processors.h"
#include "runtime/engine/draft_grammar.h"
#include "runtime/engine/grammars.h"
#include "runtime/engine/job.h"
#include "runtime/engine/loaded_draft.h"
#include "runtime/engine/loaded_nodes.h"
#include "runtime/engine/memory_plan.h"
#include "runtime/engine/plan.h"
#include "runtime/engine/speculation.h"
#include "runtime/engine/step_masks.h"

enum { MASK_THREADS = 8 }; /* at most, for the masks of a step */

struct engine {
    struct engine_options options;
    struct loaded_model *loaded;
    struct engine_info info;
    struct scheduler *scheduler;
    pthread_mutex_t schedule_lock; /* the scheduler is used under it, so that other threads can ask for statistics */
    struct batch batch;
    struct schedule schedule; /* of the batch */
    struct grammars *grammars;
    struct step_masks *masks;
    struct token_event *events; /* [batch_max_entries] those of a step that are delivered, where some are constrained */
    int32_t num_constrained;    /* jobs that the scheduler has and whose answers have a grammar */
    bool is_unsampled;          /* the newest step draws once the steps before it are collected */
    struct drafter *drafter;    /* the engine's own or options.drafter; NULL: nothing drafts */
    struct speculation *speculation; /* NULL: nothing drafts */
    int max_in_flight;               /* steps that are submitted before one is collected */
    struct inbox inbox;              /* has all jobs that are not finished */
    char *text_buffer;               /* of the answers' texts; NULL without a tokenizer */
    struct trace *trace;             /* NULL: none */
    bool damage_said;                /* a warning has said that logits are NaN */
};

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
    if (!e->drafter && status == STATUS_OK)
        status = drafter_create(&e->options.speculative, e->loaded->limits.max_model_len, &e->drafter, err);
    if (status == STATUS_OK && !e->drafter->draft && e->loaded->tokenizer)
        status =
            draft_grammar_create(e->drafter, e->drafter != e->options.drafter, e->loaded->tokenizer, &e->drafter, err);
    return status == STATUS_OK ? speculation_create(&limits, e->drafter, &e->speculation, err) : status;
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

struct structured_cache *engine_structured(struct engine *e)
{
    return grammars_cache(e->grammars);
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

static void fill_sampling_state(const struct engine *e, const struct sequence *seq, struct sampling_state *state)
{
    const struct request *request = seq->request;
    const struct sampling_params *p = &request->params;
    const struct late_answers *late = ((struct job *)request->user)->late;
    *state = (struct sampling_state){
        .temperature = request->beams ? 0 : (float)p->temperature,
        .top_p = (float)p->top_p,
        .min_p = (float)p->min_p,
        .top_k = p->top_k,
        .repetition_penalty = (float)p->repetition_penalty,
        .presence_penalty = (float)p->presence_penalty,
        .frequency_penalty = (float)p->frequency_penalty,
        .seed = p->has_seed ? p->seed : engine_request_seed(e->options.seed, request->id),
        .sequence_index = (uint32_t)seq->index,
        .min_tokens = request->beams ? 0 : p->min_tokens,
        .num_logprobs = late ? late_answers_num_logprobs(late) : p->logprobs,
        .prompt_len = seq->prompt_len,
        .num_bias = p->num_logit_bias,
    };
    for (int32_t i = 0; i < p->num_logit_bias; i++) {
        state->bias_ids[i] = p->logit_bias[i].token;
        state->bias_values[i] = p->logit_bias[i].value;
    }
    for (int32_t i = 0; i < p->num_stop_token_ids; i++) state->stop_ids[state->num_stop_ids++] = p->stop_token_ids[i];
    for (int32_t i = 0; i < request->num_eos && !p->ignore_eos; i++)
        state->stop_ids[state->num_stop_ids++] = request->eos_token_ids[i];
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
        fill_sampling_state(e, seq, &state);
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

static void finish_answer(const struct engine *e, struct job *job, struct answer *answer, struct answer_piece *piece)
{
    trace_answer_end(e->trace, &job->trace, piece->index, piece->finish_reason, piece->output_tokens);
    answer->done = true;
    job->num_done++;
    piece->request_finished = job->num_done == job->num_answers;
}

static struct answer_piece new_piece(const struct job *job, int32_t index, int32_t output_tokens, int32_t stop_token)
{
    return (struct answer_piece){
        .request = job->entry.id,
        .index = index,
        .text = "",
        .stop_token = stop_token,
        .prompt_tokens = job->request->sequences[0].prompt_len,
        .cached_tokens = job->request->sequences[0].num_cached,
        .output_tokens = output_tokens,
    };
}

static void set_logprobs(const struct job *job, const struct sample_output *samples, int32_t sample,
                         struct answer_piece *piece)
{
    const int32_t wanted = job->request->params.logprobs;
    if (wanted < 0) return;
    piece->logprob = &samples->logprobs[sample];
    piece->rank = &samples->ranks[sample];
    piece->top_ids = &samples->top_ids[(int64_t)sample * samples->top_stride];
    piece->top_logprobs = &samples->top_logprobs[(int64_t)sample * samples->top_stride];
    piece->num_top = wanted;
}

/* The prompt's come once, with the request's first token. */
static void set_prompt_logprobs(const struct job *job, struct answer_piece *piece)
{
    if (!job->request->prompt_logprobs || piece->index != 0 || piece->output_tokens != 1) return;
    piece->prompt_logprobs = job->request->prompt_logprobs;
    piece->prompt_ids = job->request->sequences[0].tokens;
}

/* Whether a sample had no token because min_tokens forbids the only ones that its grammar allows: those that end it. */
static bool is_forbidden_end(const struct token_event *event)
{
    const struct constrained *c = job_of(event->seq)->constrained;
    return c && event->seq->request->params.min_tokens > event->num_outputs &&
           matcher_may_end(c->answers[event->seq->index].matcher);
}

/* A sample had no token: a logit was NaN, or the largest was infinite. */
static void explain_damage(struct engine *e, const struct token_event *event)
{
    struct error *err = request_error(event->seq->request);
    if (is_forbidden_end(event)) {
        error_set(err, STATUS_INVALID,
                  "min_tokens is %d, but the grammar lets the answer end only, after %d; lower min_tokens",
                  event->seq->request->params.min_tokens, event->num_outputs);
        return;
    }
    const bool narrow = e->loaded->profile.dtype == DTYPE_FLOAT16;
    error_set(err, STATUS_INVALID,
              "the model computed NaN or infinity where probabilities were expected: the weights in %s are damaged%s",
              e->options.model, narrow ? ", or too large for float16" : "");
    if (narrow) error_advise(err, ADVICE_SET, "dtype", "bfloat16");
    if (narrow) error_advise(err, ADVICE_SET, "dtype", "float32");
    if (!e->damage_said) log_warn(e->options.log, err);
    e->damage_said = true;
}

/* Delivers a piece of one token: sets its text, and whether it ends the answer, at a stop string or for `reason`. */
static void deliver_token(struct engine *e, struct job *job, struct answer_piece *piece, enum finish_reason reason)
{
    struct answer *answer = &job->answers[piece->index];
    piece->finish_reason = reason;
    set_prompt_logprobs(job, piece);
    if (e->loaded->tokenizer) {
        const bool may_stop = piece->output_tokens >= job->request->params.min_tokens;
        piece->text =
            answer_text_add(&answer->text, piece->token_ids[0], may_stop, reason != FINISH_NONE, &piece->text_length);
        if (answer->text.stop >= 0) {
            piece->stop_reason = job->request->params.stop[answer->text.stop];
            piece->stop_token = -1;
            piece->finish_reason = FINISH_STOP;
        }
    }
    if (piece->finish_reason != FINISH_NONE) finish_answer(e, job, answer, piece);
    job->deliver(job->user, piece);
}

static void deliver_sample(struct engine *e, struct job *job, const struct token_event *event,
                           const struct sample_output *samples)
{
    struct sequence *seq = event->seq;
    struct answer *answer = &job->answers[seq->index];
    if (answer->done) return; /* by a stop string before this token of the run */
    answer->num_tokens = event->num_outputs;
    struct answer_piece piece =
        new_piece(job, seq->index, event->num_outputs, event->finish_reason == FINISH_NONE ? -1 : seq->stop_token);
    piece.token_ids = &event->token;
    piece.num_tokens = 1;
    set_logprobs(job, samples, event->sample, &piece);
    deliver_token(e, job, &piece, event->finish_reason);
    if (!piece.stop_reason) return;
    pthread_mutex_lock(&e->schedule_lock);
    scheduler_finish(e->scheduler, seq, FINISH_STOP);
    pthread_mutex_unlock(&e->schedule_lock);
}

static void take_event(struct engine *e, const struct token_event *event, const struct sample_output *samples)
{
    struct job *job = event->seq->request->user;
    if (event->token < 0)
        explain_damage(e, event);
    else
        trace_request_token(e->trace, &job->trace);
    if (job->late) {
        pthread_mutex_lock(&e->schedule_lock);
        late_answers_take(job->late, e->scheduler, event, samples);
        pthread_mutex_unlock(&e->schedule_lock);
    } else if (event->token >= 0) { /* else finish_job delivers the last piece */
        deliver_sample(e, job, event, samples);
    }
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
    for (int32_t i = 0; i < num_events; i++) take_event(e, &events[i], &samples);
    return status;
}

static void deliver_late(struct engine *e, struct job *job, int32_t index)
{
    const struct late_answer a = late_answers_get(job->late, index);
    const int32_t num_top = job->request->params.logprobs;
    for (int32_t i = 0; i < a.num_tokens; i++) {
        const bool last = i == a.num_tokens - 1;
        struct answer_piece piece = new_piece(job, index, i + 1, last ? a.stop_token : -1);
        piece.token_ids = &a.tokens[i];
        piece.num_tokens = 1;
        if (last) piece.score = &a.score;
        if (a.logprobs) {
            piece.logprob = &a.logprobs[i];
            piece.rank = &a.ranks[i];
            piece.top_ids = &a.top_ids[(int64_t)i * num_top];
            piece.top_logprobs = &a.top_logprobs[(int64_t)i * num_top];
            piece.num_top = num_top;
        }
        deliver_token(e, job, &piece, last ? a.finish_reason : FINISH_NONE);
    }
}

/* The last piece of an answer that ended without a token. */
static void deliver_end(struct engine *e, struct job *job, int32_t index, enum finish_reason reason)
{
    static const struct error no_memory = {"the request failed, and there was no host memory left to say why"};
    struct answer *answer = &job->answers[index];
    struct answer_piece piece = new_piece(job, index, answer->num_tokens, -1);
    if (e->loaded->tokenizer) piece.text = answer_text_finish(&answer->text, &piece.text_length);
    piece.finish_reason = reason;
    if (reason == FINISH_ERROR) piece.error = job->request->error ? job->request->error : &no_memory;
    finish_answer(e, job, answer, &piece);
    job->deliver(job->user, &piece);
}

/* What follows a stop string in its run is in no answer, and the drafter does not learn from it. */
static void tell_drafter(const struct engine *e, const struct job *job)
{
    if (!e->drafter || !e->drafter->finished) return;
    for (int32_t i = 0; i < job->request->num_sequences; i++) {
        struct sequence *seq = &job->request->sequences[i];
        if (!job->late) seq->num_tokens = seq->prompt_len + job->answers[i].num_tokens;
        e->drafter->finished(e->drafter, seq);
    }
}

/* Delivers the answers that come late, and the last pieces of those that were aborted or failed, and frees the job. */
static void finish_job(struct engine *e, struct job *job)
{
    const enum finish_reason failure = job->late ? late_answers_rank(job->late) : FINISH_NONE;
    for (int32_t i = 0; i < job->num_answers; i++) {
        if (job->late && failure == FINISH_NONE)
            deliver_late(e, job, i);
        else if (!job->answers[i].done)
            deliver_end(e, job, i, job->late ? failure : job->request->sequences[i].finish_reason);
    }
    tell_drafter(e, job);
    trace_request_end(e->trace, &job->trace);
    inbox_remove(&e->inbox, &job->entry);
    e->num_constrained -= job->constrained != NULL;
    job_free(job);
}

static bool finish_jobs(struct engine *e)
{
    bool any = false;
    for (;;) {
        pthread_mutex_lock(&e->schedule_lock);
        struct request *request = scheduler_next_finished(e->scheduler);
        pthread_mutex_unlock(&e->schedule_lock);
        if (!request) return any;
        finish_job(e, request->user);
        any = true;
    }
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
    if (status == STATUS_OK && finish_jobs(e)) *worked = true;
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
