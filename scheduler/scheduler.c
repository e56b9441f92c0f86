#include "scheduler/scheduler_state.h"

#include <stdlib.h>
#include <string.h>

#include "base/plural.h"

void scheduler_check_after(struct scheduler *s)
{
    struct error err;
    if (s->config.check_invariants && scheduler_check(s, &err) != STATUS_OK) scheduler_set_unsound(s, &err);
}

static enum status soundness(const struct scheduler *s, struct error *err)
{
    return s->unsound ? error_set(err, STATUS_INTERNAL, "%s", s->violation.text) : STATUS_OK;
}

static enum status check_config(const struct scheduler_config *c, struct error *err)
{
    const struct batch_limits *l = &c->limits;
    if (l->num_groups < 1 || l->num_groups > KV_MAX_GROUPS)
        return error_set(err, STATUS_INVALID, "%d KV cache groups; there must be 1 to %d", l->num_groups,
                         KV_MAX_GROUPS);
    if (l->block_size < 1 || l->max_num_seqs < 1 || l->max_num_tokens < 1 || l->max_model_len < 1 || c->num_blocks < 1)
        return error_set(err, STATUS_INVALID,
                         "block size %d, max_num_seqs %d, max_num_batched_tokens %d, max_model_len %d and %d blocks: "
                         "each must be at least 1",
                         l->block_size, l->max_num_seqs, l->max_num_tokens, l->max_model_len, c->num_blocks);
    if (!c->enable_chunked_prefill && l->max_num_tokens < l->max_model_len)
        return error_set(err, STATUS_INVALID,
                         "without chunked prefill max_num_batched_tokens (%d) must be at least max_model_len (%d)",
                         l->max_num_tokens, l->max_model_len);
    if (l->num_state_slots != 0 && l->num_state_slots < state_pool_min_slots(l))
        return error_set(err, STATUS_INVALID, "%d state slots; %d sequences and %d drafts need %d", l->num_state_slots,
                         l->max_num_seqs, l->max_num_drafts, state_pool_min_slots(l));
    if (l->num_state_slots != 0 && c->first_namespace_len != 0)
        return error_set(err, STATUS_INVALID, "a model with states cannot have two cache namespaces");
    if (c->num_batches < 0 || c->num_batches > SCHEDULER_MAX_STEPS)
        return error_set(err, STATUS_INVALID, "%d batches in flight; there may be 1 to %d", c->num_batches,
                         SCHEDULER_MAX_STEPS);
    return STATUS_OK;
}

static bool allocate_arrays(struct scheduler *s)
{
    const size_t seqs = (size_t)s->config.limits.max_num_seqs, rows = (size_t)batch_max_entries(&s->config.limits);
    bool ok = (s->free_state_indices = calloc(seqs, sizeof *s->free_state_indices)) &&
              (s->plan = calloc(seqs, sizeof *s->plan)) && (s->choices = calloc(seqs, sizeof *s->choices)) &&
              (s->admitted = calloc(seqs, sizeof *s->admitted)) && (s->events = calloc(rows, sizeof *s->events)) &&
              (s->drafted = calloc(seqs, sizeof *s->drafted)) && (s->sequences = calloc(rows, sizeof *s->sequences)) &&
              (s->scheduled_runs = calloc(seqs, sizeof *s->scheduled_runs)) &&
              (s->parents = calloc(seqs, sizeof *s->parents)) && (s->holders = calloc(seqs, sizeof *s->holders));
    for (int i = 0; ok && i < SCHEDULER_MAX_STEPS; i++)
        ok = (s->steps[i].sampled = calloc(rows, sizeof *s->steps[i].sampled)) &&
             (s->steps[i].drafts = calloc(rows, sizeof *s->steps[i].drafts)) &&
             (s->steps[i].draft_states = calloc(rows, sizeof *s->steps[i].draft_states)) &&
             (s->steps[i].runs = calloc(seqs, sizeof *s->steps[i].runs)) &&
             (s->steps[i].target_runs = calloc(seqs, sizeof *s->steps[i].target_runs));
    return ok;
}

enum status scheduler_create(const struct scheduler_config *config, struct scheduler **out, struct error *err)
{
    *out = NULL;
    enum status status = check_config(config, err);
    if (status != STATUS_OK) return status;
    struct scheduler *s = calloc(1, sizeof *s);
    if (!s) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the scheduler");
    s->config = *config;
    s->waiting.kind = QUEUE_HEAP;
    s->swapped.kind = s->running.kind = QUEUE_SORTED;
    s->ended.kind = QUEUE_FIFO;
    status = block_manager_init(&s->blocks, config->num_blocks, &config->limits, config->enable_prefix_caching, err);
    if (status == STATUS_OK && !allocate_arrays(s))
        status = error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for a scheduler of %d sequence%s",
                           config->limits.max_num_seqs, plural(config->limits.max_num_seqs));
    if (status != STATUS_OK) {
        scheduler_destroy(s);
        return status;
    }
    for (int32_t i = config->limits.max_num_seqs - 1; i >= 0; i--)
        s->free_state_indices[s->num_free_state_indices++] = i;
    s->drafts_left = config->limits.max_num_drafts;
    *out = s;
    return STATUS_OK;
}

void scheduler_destroy(struct scheduler *s)
{
    if (!s) return;
    block_manager_free(&s->blocks);
    for (int i = 0; i < SCHEDULER_MAX_STEPS; i++) {
        free(s->steps[i].sampled);
        free(s->steps[i].drafts);
        free(s->steps[i].draft_states);
        free(s->steps[i].runs);
        free(s->steps[i].target_runs);
    }
    free(s->free_state_indices);
    free(s->plan);
    free(s->choices);
    free(s->admitted);
    free(s->events);
    free(s->drafted);
    free(s->scheduled_runs);
    free(s->sequences);
    free(s->parents);
    free(s->holders);
    free(s);
}

void scheduler_add(struct scheduler *s, struct request *request)
{
    const struct batch_limits *limits = &s->config.limits;
    request->arrival = s->next_arrival++;
    if (s->config.policy == SCHEDULING_FCFS) request->priority = 0;
    scheduler_set_namespace(s, request);
    if (request->cache_salt && s->config.enable_prefix_caching)
        request->cache_salt = prefix_cache_add_salt(&s->blocks.cache, request->cache_salt);
    request_queue_insert(&s->waiting, request);
    if (request->num_sequences > limits->max_num_seqs) {
        error_set(request_error(request), STATUS_INVALID, "n is %d, but at most %d sequences run at once",
                  request->num_sequences, limits->max_num_seqs);
        error_advise(request_error(request), ADVICE_RAISE, "max_num_seqs", "%d", request->num_sequences);
        scheduler_end_request(s, request, FINISH_ERROR);
    } else if (request->sequences[0].token_capacity > limits->max_model_len) {
        error_set(request_error(request), STATUS_INVALID, "the request may grow to %d tokens, but max_model_len is %d",
                  request->sequences[0].token_capacity, limits->max_model_len);
        scheduler_end_request(s, request, FINISH_ERROR);
    }
    scheduler_check_after(s);
}

void scheduler_abort(struct scheduler *s, struct request *request)
{
    if (request_finished(request)) return;
    scheduler_end_request(s, request, FINISH_ABORT);
    scheduler_check_after(s);
}

void scheduler_finish(struct scheduler *s, struct sequence *seq, enum finish_reason reason)
{
    if (seq->status == SEQUENCE_FINISHED) return;
    scheduler_end_sequence(s, seq, reason);
    scheduler_check_after(s);
}

static bool request_in_flight(const struct scheduler *s, const struct request *request)
{
    for (int32_t i = 0; i < request->num_sequences; i++)
        if (scheduler_is_in_flight(s, &request->sequences[i])) return true;
    return false;
}

/* Requests whose sequences have all stopped at the end of their namespace return to the queue, and start again in the
 * next one. */
static void change_namespaces(struct scheduler *s)
{
    for (struct request *r = s->running.head, *next; r; r = next) {
        next = r->next;
        if (scheduler_must_change_namespace(s, r) && !request_in_flight(s, r)) scheduler_requeue(s, r);
    }
}

/* ---- drafts ---- */

static int32_t list_draftables(const struct scheduler *s,
                               int32_t (*room_of)(const struct scheduler *, const struct sequence *),
                               struct draftable *out)
{
    int32_t count = 0;
    for (const struct request *r = s->running.head; r; r = r->next)
        for (int32_t i = 0; i < r->num_sequences; i++) {
            struct sequence *seq = &r->sequences[i];
            const int32_t room = room_of(s, seq);
            if (room > 0) out[count++] = (struct draftable){seq, room};
        }
    return count;
}

int32_t scheduler_draftables(const struct scheduler *s, struct draftable *out)
{
    return list_draftables(s, scheduler_draft_room, out);
}

int32_t scheduler_draftables_later(const struct scheduler *s, struct draftable *out)
{
    return list_draftables(s, scheduler_draft_room_later, out);
}

void scheduler_set_drafts(struct scheduler *s, struct sequence *seq, const int32_t *drafts, int32_t count)
{
    const int32_t room = scheduler_draft_room(s, seq);
    if (count > room) count = room;
    if (count > s->drafts_left) count = s->drafts_left;
    if (count <= 0 || seq->num_drafts > 0) return;
    s->on_device = !drafts;
    if (drafts) memcpy(seq->tokens + seq->num_tokens, drafts, (size_t)count * sizeof *drafts);
    seq->num_drafts = count;
    s->drafts_left -= count;
    s->drafted[s->num_drafted++] = seq;
}

/* Of sequences that a step computes they stay. */
void scheduler_drop_drafts(struct scheduler *s)
{
    for (int32_t i = 0; i < s->num_drafted; i++)
        if (s->drafted[i]->num_pending == 0) s->drafted[i]->num_drafts = 0;
    s->num_drafted = 0;
}

/* ---- a step ---- */

/* What was found while state slots were given back. */
static void check_states(struct scheduler *s)
{
    if (s->blocks.states.violation.text[0]) scheduler_set_unsound(s, &s->blocks.states.violation);
}

/* Whether the running sequences are dealt to several steps. A step with drafts is for all. */
static bool is_dealt(const struct scheduler *s)
{
    return s->config.num_batches > 1 && s->num_drafted == 0;
}

/* One of num_batches equal parts. */
static int32_t part_of(const struct scheduler *s, int32_t num_sequences)
{
    return (num_sequences + s->config.num_batches - 1) / s->config.num_batches;
}

static int32_t num_running(const struct scheduler *s)
{
    return s->config.limits.max_num_seqs - s->num_free_state_indices;
}

/* What the step has room for beside what it draws so far, if all requests start that can. */
static int32_t places_of_starts(const struct scheduler *s)
{
    const int32_t most = s->config.limits.max_num_seqs, starts = s->waiting.count + s->swapped.count;
    const int32_t running = num_running(s), all = starts < most - running ? running + starts : most;
    const int32_t drawn = s->share - s->places;
    return is_dealt(s) ? part_of(s, all) - drawn : INT32_MAX;
}

/* All running sequences fit, so their part does, unless chunks take the tokens of those that are left out. */
static void plan_part(struct scheduler *s)
{
    s->share = part_of(s, num_running(s));
    if (scheduler_plan_running(s) <= s->blocks.pool.num_free) return;
    s->share = INT32_MAX;
    scheduler_plan_running(s);
}

/* Decides what the next step computes, and lays it out. The plan of the running requests needs so many blocks: of all
 * of them, if no step is in flight. */
static void choose_step(struct scheduler *s, struct batch *batch, int32_t needed)
{
    const bool fits = needed <= s->blocks.pool.num_free;
    if (!fits) scheduler_make_room(s, batch, needed);
    if (is_dealt(s) && s->in_flight == 0) plan_part(s);
    scheduler_choose_planned(s, batch);
    /* A step that preempts admits nothing, unless nothing is left running. */
    const bool admits = fits || !s->running.head;
    s->places = places_of_starts(s);
    if (admits) scheduler_choose_starts(s, batch);
    if (!s->unsound) scheduler_finish_layout(s, batch);
    if (batch->num_seqs == 0) scheduler_undo_swaps(s, batch);
    scheduler_drop_drafts(s);
    check_states(s);
    scheduler_check_after(s);
}

/* Without the drafts, which the caller drops. */
static enum status schedule(struct scheduler *s, struct batch *batch, struct schedule *out, struct error *err)
{
    batch_clear(batch);
    *out = (struct schedule){
        .result = SCHEDULE_EMPTY, .admitted = s->admitted, .runs = s->scheduled_runs, .sequences = s->sequences};
    if (s->unsound) return soundness(s, err);
    s->num_choices = s->num_admitted = s->num_scheduled_runs = 0;
    s->budget = s->config.limits.max_num_tokens;
    state_pool_settle(&s->blocks.states);
    if (s->in_flight == (s->config.num_batches > 1 ? s->config.num_batches : 2)) {
        out->result = SCHEDULE_COLLECT_FIRST;
        return STATUS_OK;
    }
    if (s->config.first_namespace_len > 0) change_namespaces(s);
    s->share = is_dealt(s) && s->in_flight > 0 ? part_of(s, num_running(s)) : INT32_MAX;
    const int32_t needed = scheduler_plan_running(s);
    if (s->in_flight > 0 && needed > s->blocks.pool.num_free && !s->unsound) {
        out->result = SCHEDULE_COLLECT_FIRST;
        return STATUS_OK;
    }
    out->sampled = scheduler_new_step(s)->sampled;
    choose_step(s, batch, needed);
    if (s->unsound) {
        batch_clear(batch);
        return soundness(s, err);
    }
    if (batch->num_seqs > 0) out->result = SCHEDULE_BATCH;
    out->num_admitted = s->num_admitted;
    out->num_runs = s->num_scheduled_runs;
    return STATUS_OK;
}

enum status scheduler_schedule(struct scheduler *s, struct batch *batch, struct schedule *out, struct error *err)
{
    const enum status status = schedule(s, batch, out, err);
    scheduler_drop_drafts(s);
    s->drafts_left = s->config.limits.max_num_drafts;
    return status;
}

static bool contains(const int32_t *tokens, int32_t count, int32_t token)
{
    for (int32_t i = 0; i < count; i++)
        if (tokens[i] == token) return true;
    return false;
}

static bool stops(const struct sequence *seq, int32_t token)
{
    const struct request *request = seq->request;
    const struct sampling_params *p = &request->params;
    if (seq->num_tokens - seq->prompt_len < p->min_tokens) return false;
    if (!p->ignore_eos && contains(request->eos_token_ids, request->num_eos, token)) return true;
    return contains(p->stop_token_ids, p->num_stop_token_ids, token);
}

/* A negative token says that none could be sampled: the sequence ends with FINISH_ERROR. A beam's stays pending: the
 * caller decides what follows. */
static void accept_token(struct scheduler *s, struct sequence *seq, int32_t token)
{
    if (token < 0) {
        scheduler_end_sequence(s, seq, FINISH_ERROR);
        return;
    }
    seq->request->stalled = false;
    if (seq->request->beams) return;
    seq->num_pending--;
    seq->tokens[seq->num_tokens++] = token;
    block_manager_hash(&s->blocks, seq);
    if (stops(seq, token)) {
        seq->stop_token = token;
        scheduler_end_sequence(s, seq, FINISH_STOP);
    } else if (seq->num_tokens >= seq->token_capacity) {
        scheduler_end_sequence(s, seq, FINISH_LENGTH);
    }
}

/* Copies the rows of a run, which begin at `from`. Returns false if one has no log-probability, because the logits are
 * damaged. */
static bool keep_run(const struct target_run *run, const struct sample_output *targets, int32_t from)
{
    struct prompt_logprobs *p = run->seq->request->prompt_logprobs;
    const size_t top = (size_t)p->num_top;
    for (int32_t i = 0; i < run->count; i++) {
        const size_t source = (size_t)(from + i), row = (size_t)(run->first + i);
        if (targets->token_ids[source] < 0) return false;
        p->logprobs[row] = targets->logprobs[source];
        p->ranks[row] = targets->ranks[source];
        if (top == 0) continue;
        memcpy(p->top_ids + row * top, targets->top_ids + source * (size_t)targets->top_stride,
               top * sizeof *p->top_ids);
        memcpy(p->top_logprobs + row * top, targets->top_logprobs + source * (size_t)targets->top_stride,
               top * sizeof *p->top_logprobs);
    }
    return true;
}

/* Takes the step's log-probabilities of prompts. A request whose logits are damaged ends, with an event like that of a
 * sample without a token. Returns the number of events. */
static int32_t collect_targets(struct scheduler *s, const struct step *step, const struct sample_output *targets)
{
    int32_t num_events = 0, from = 0;
    for (int32_t i = 0; i < step->num_target_runs; from += step->target_runs[i++].count) {
        struct sequence *seq = step->target_runs[i].seq;
        if (keep_run(&step->target_runs[i], targets, from) || request_finished(seq->request)) continue;
        s->events[num_events++] =
            (struct token_event){.seq = seq, .token = -1, .sample = -1, .finish_reason = FINISH_ERROR};
        scheduler_end_request(s, seq->request, FINISH_ERROR);
    }
    return num_events;
}

/* A run's states: that after the last accepted draft becomes the sequence's, and that after a boundary before it is
 * kept. The run's first token is `first`. */
static void accept_states(struct scheduler *s, const struct step *step, const struct drafted_run *run, int32_t first,
                          int32_t accepted)
{
    struct state_pool *states = &s->blocks.states;
    struct sequence *seq = run->seq;
    int32_t *drafts = step->draft_states + run->draft;
    if (accepted == 0) return;
    const int32_t boundary = (first + accepted) / states->boundary * states->boundary, draft = boundary - first - 2;
    if (boundary > first) state_pool_keep(states, seq, draft < 0 ? seq->state : drafts[draft], boundary);
    state_pool_drop(states, seq->state);
    seq->state = drafts[accepted - 1];
    drafts[accepted - 1] = STATE_SLOT_NONE;
}

/* The step's runs hold no states any more. */
static void drop_draft_states(struct scheduler *s, struct step *step)
{
    for (int32_t i = 0; i < step->num_draft_states; i++) state_pool_drop(&s->blocks.states, step->draft_states[i]);
    step->num_draft_states = 0;
}

/* Compares a run's drafts with the tokens drawn in their places. Those that are the same are accepted, and as many
 * tokens more are pending; the others are rolled back. */
static void accept_drafts(struct scheduler *s, const struct step *step, const struct drafted_run *run,
                          const struct sample_output *samples)
{
    struct sequence *seq = run->seq;
    if (seq->status == SEQUENCE_FINISHED) return;
    const int32_t *drawn = samples->token_ids + run->sample;
    const int32_t *drafts = (step->on_device ? samples->draft_ids : step->drafts) + run->draft;
    const int32_t count = seq->num_drafts, first = seq->num_computed - count - 1;
    int32_t accepted = 0;
    struct error err;
    while (accepted < count && drawn[accepted] >= 0 && drawn[accepted] == drafts[accepted]) accepted++;
    seq->num_drafts = 0;
    seq->num_pending += accepted;
    s->runs++;
    s->drafts += count;
    s->drafts_accepted += accepted;
    if (accepted < count &&
        block_manager_rollback(&s->blocks, seq, seq->num_computed - (count - accepted), &err) != STATUS_OK)
        scheduler_set_unsound(s, &err);
    if (scheduler_has_states(s)) accept_states(s, step, run, first, accepted);
}

/* Takes a token for each sample, and adds the events to num_events others. A sample is dropped if its sequence has
 * ended, or if no token is pending any more, because it follows the first rejected draft of a run. */
static int32_t collect_samples(struct scheduler *s, const struct step *step, const struct sample_output *samples,
                               int32_t num_events)
{
    for (int32_t i = 0; i < step->num_sampled; i++) {
        if (i + 16 < step->num_sampled) __builtin_prefetch(step->sampled[i + 16]);
        if (i + 8 < step->num_sampled) {
            const struct sequence *soon = step->sampled[i + 8];
            __builtin_prefetch(soon->request);
            __builtin_prefetch(&soon->tokens[soon->num_tokens], 1);
        }
        struct sequence *seq = step->sampled[i];
        if (seq->status == SEQUENCE_FINISHED || seq->num_pending == 0) continue;
        accept_token(s, seq, samples->token_ids[i]);
        s->events[num_events++] = (struct token_event){.seq = seq,
                                                       .token = samples->token_ids[i],
                                                       .sample = i,
                                                       .num_outputs = seq->num_tokens - seq->prompt_len,
                                                       .finish_reason = seq->finish_reason};
    }
    return num_events;
}

/* Takes the oldest step's samples. K and V of rejected drafts are rolled back before tokens are added, so that no block
 * with some of them is taken for one of these tokens. Returns the number of events. */
static int32_t collect_step(struct scheduler *s, const struct sample_output *samples)
{
    int32_t num_events = 0;
    struct step *step = &s->steps[s->oldest];
    s->oldest = (s->oldest + 1) % SCHEDULER_MAX_STEPS;
    s->in_flight--;
    if (step->num_target_runs > 0) num_events = collect_targets(s, step, samples->targets);
    for (int32_t i = 0; i < step->num_runs; i++) accept_drafts(s, step, &step->runs[i], samples);
    drop_draft_states(s, step);
    num_events = collect_samples(s, step, samples, num_events);
    step->num_runs = step->num_target_runs = 0;
    check_states(s);
    scheduler_check_after(s);
    return num_events;
}

enum status scheduler_collect(struct scheduler *s, const struct sample_output *samples,
                              const struct token_event **events, int32_t *num_events, struct error *err)
{
    *events = s->events;
    *num_events = 0;
    if (s->unsound) return soundness(s, err);
    if (s->in_flight == 0) return STATUS_OK;
    int32_t count = collect_step(s, samples);
    if (!s->unsound) *num_events = count;
    return soundness(s, err);
}

/* The first token that the newest step computes of a sequence that it names. A decode computes the last one, a run that
 * and its drafts. */
static int32_t first_of_step(const struct scheduler *s, const struct sequence *seq)
{
    for (int32_t i = 0; i < s->num_choices; i++)
        if (s->choices[i].seq == seq) return s->choices[i].start;
    return seq->num_computed - 1 - seq->num_drafts;
}

static bool forget_step(struct scheduler *s, struct request *request)
{
    bool named = false;
    for (int32_t i = 0; i < request->num_sequences; i++) {
        struct sequence *seq = &request->sequences[i];
        if (seq->status != SEQUENCE_RUNNING || seq->last_step != s->num_steps - 1) continue;
        block_manager_forget(&s->blocks, seq, first_of_step(s, seq));
        named = true;
    }
    return named;
}

/* All requests that hold a block which the step was to write are in the step: nobody else can have found it yet. */
void scheduler_cancel(struct scheduler *s)
{
    if (s->in_flight == 0) return;
    state_pool_cancel(&s->blocks.states);
    for (struct request *r = s->running.head, *next; r; r = next) {
        next = r->next;
        if (forget_step(s, r)) scheduler_end_request(s, r, FINISH_ABORT);
    }
    s->in_flight--;
    struct step *step = &s->steps[(s->oldest + s->in_flight) % SCHEDULER_MAX_STEPS];
    step->num_runs = step->num_target_runs = 0;
    drop_draft_states(s, step);
    scheduler_check_after(s);
}

struct request *scheduler_next_finished(struct scheduler *s)
{
    for (struct request *r = s->ended.head; r; r = r->next) {
        if (request_in_flight(s, r)) continue;
        request_queue_remove(r);
        cache_salt_release(r->cache_salt);
        r->cache_salt = NULL;
        return r;
    }
    return NULL;
}

bool scheduler_has_work(const struct scheduler *s)
{
    return s->waiting.head || s->swapped.head || s->running.head || s->ended.head || s->in_flight > 0;
}

int32_t scheduler_in_flight(const struct scheduler *s)
{
    return s->in_flight;
}

void scheduler_get_stats(const struct scheduler *s, struct scheduler_stats *stats)
{
    const struct block_pool *pool = &s->blocks.pool;
    const struct state_pool *states = &s->blocks.states;
    *stats = (struct scheduler_stats){
        .num_running = s->running.count,
        .num_waiting = s->waiting.count,
        .num_swapped = s->swapped.count,
        .blocks_total = block_pool_num_total(pool),
        .blocks_in_use = block_pool_num_in_use(pool),
        .blocks_cached = pool->num_cached,
        .blocks_free = pool->num_free - pool->num_cached,
        .prefix_queries = s->prefix_queries,
        .prefix_hits = s->prefix_hits,
        .evictions = s->blocks.evictions,
        .host_blocks_in_use = block_pool_num_in_use(&s->blocks.host),
        .runs = s->runs,
        .drafts = s->drafts,
        .drafts_accepted = s->drafts_accepted,
        .blocks_swapped_out = s->blocks_swapped_out,
        .blocks_swapped_in = s->blocks_swapped_in,
        .states_swapped_out = s->states_swapped_out,
        .states_swapped_in = s->states_swapped_in,
        .preemptions_recompute = s->preemptions_recompute,
        .preemptions_swap = s->preemptions_swap,
        .steps = s->num_steps,
        .tokens = s->num_tokens,
        .state_slots_total = s->config.limits.num_state_slots,
        .state_slots_in_use = s->config.limits.num_state_slots - states->slots.num_free,
        .state_slots_cached = states->slots.num_cached,
        .snapshots = states->num_snapshots,
        .snapshots_made = states->made,
        .snapshots_evicted = states->evicted,
        .snapshot_hits = states->hits,
    };
}

/* A block that several sequences hold counts in each of them by its part. */
static double filled_of_sequence(const struct scheduler *s, const struct sequence *seq)
{
    double filled = 0;
    for (int32_t g = 0; g < s->config.limits.num_groups; g++)
        for (int32_t i = seq->tables[g].first; i < seq->tables[g].num_blocks; i++) {
            const struct block *b = &s->blocks.pool.blocks[seq->tables[g].blocks[i]];
            filled += (double)b->filled / (b->ref_count * batch_block_size(&s->config.limits, g));
        }
    return filled;
}

double scheduler_blocks_filled(const struct scheduler *s)
{
    double filled = 0;
    for (const struct request *r = s->running.head; r; r = r->next)
        for (int32_t i = 0; i < r->num_sequences; i++) filled += filled_of_sequence(s, &r->sequences[i]);
    return filled;
}

static int64_t blocks_of_request(const struct scheduler *s, const struct request *request)
{
    int64_t blocks = 0;
    for (int32_t i = 0; i < request->num_sequences; i++)
        for (int32_t g = 0; g < s->config.limits.num_groups; g++)
            blocks += request->sequences[i].tables[g].num_blocks - request->sequences[i].tables[g].first;
    return blocks;
}

int64_t scheduler_blocks_unshared(const struct scheduler *s)
{
    int64_t blocks = 0;
    for (const struct request *r = s->running.head; r; r = r->next) blocks += blocks_of_request(s, r);
    return blocks;
}

void scheduler_reset_prefix_cache(struct scheduler *s)
{
    block_manager_reset_cache(&s->blocks);
    scheduler_check_after(s);
}
