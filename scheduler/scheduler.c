#include "scheduler/scheduler_state.h"

#include <stdlib.h>

/* ---- The lives of sequences and requests ---- */

static void queue_move(struct request_queue *to, struct request *request)
{
    request_queue_remove(request);
    request_queue_insert(to, request);
}

/* An internal inconsistency was found. The first one is kept, and from then on schedule and collect return it: no
 * sequence continues on blocks that it may not have. */
static void set_unsound(struct scheduler *s, const struct error *err)
{
    if (!s->unsound) s->violation = *err;
    s->unsound = true;
}

static void release_state_index(struct scheduler *s, struct sequence *seq)
{
    if (seq->state_index >= 0) s->free_state_indices[s->num_free_state_indices++] = seq->state_index;
    seq->state_index = -1;
}

static void give_back(struct scheduler *s, struct sequence *seq)
{
    struct error err;
    if (block_manager_release(&s->blocks, seq, &err) != STATUS_OK) set_unsound(s, &err);
    release_state_index(s, seq);
}

/* Nothing of the request may be in flight. It keeps its tokens, and is computed again from them. */
static void send_back(struct scheduler *s, struct request *request)
{
    for (int32_t i = 0; i < request->num_sequences; i++) {
        struct sequence *seq = &request->sequences[i];
        if (seq->status == SEQUENCE_FINISHED) continue;
        give_back(s, seq);
        seq->num_computed = 0;
        seq->status = SEQUENCE_WAITING;
    }
    request->leader = NULL;
    request->num_preemptions++;
    queue_move(&s->waiting, request);
}

/* How many more there may be. */
static int32_t host_blocks_left(const struct scheduler *s)
{
    return s->host_failed ? 0 : s->config.num_host_blocks - block_pool_num_total(&s->blocks.host);
}

static bool grow_host_blocks(struct scheduler *s)
{
    const struct scheduler_config *c = &s->config;
    int32_t more = host_blocks_left(s);
    struct error err;
    enum status status = c->grow_host_blocks ? c->grow_host_blocks(c->user, &more, &err) : STATUS_OK;
    if (status == STATUS_OK) status = block_manager_grow_host(&s->blocks, more, &err);
    if (status == STATUS_OK) return true;
    log_write(c->log, LOG_WARNING,
              "no more swap space: %s; preempted requests that do not fit into what there is are recomputed instead (a "
              "smaller swap space may succeed)",
              err.text);
    s->host_failed = true;
    return false;
}

/* For a request that would not fit into all that there may be, no host block is made. */
static bool can_swap_out(struct scheduler *s, const struct request *request)
{
    const struct block_pool *host = &s->blocks.host;
    const int32_t cost = block_manager_swap_out_cost(&s->blocks, request);
    if (cost - host->num_free > host_blocks_left(s)) return false;
    while (cost > host->num_free)
        if (!grow_host_blocks(s)) return false;
    return true;
}

/* Sequences that wait for their prompt have nothing to keep. */
static bool should_swap(const struct scheduler *s, const struct request *request)
{
    for (int32_t i = 0; i < request->num_sequences; i++)
        if (request->sequences[i].status == SEQUENCE_WAITING) return false;
    if (s->config.preemption_mode != PREEMPTION_AUTO) return s->config.preemption_mode == PREEMPTION_SWAP;
    return request_num_unfinished(request) > 1;
}

/* Nothing of the request may be in flight. The step that is being scheduled copies its blocks before it computes
 * anything, so whoever takes them may write to them in this very step. Its slots go to others as well. */
static void swap_out(struct scheduler *s, struct batch *batch, struct request *request)
{
    struct error err;
    s->blocks_swapped_out -= batch->num_swap_out;
    if (block_manager_swap_out(&s->blocks, request, batch->swap_out, &batch->num_swap_out, &err) != STATUS_OK)
        set_unsound(s, &err);
    s->blocks_swapped_out += batch->num_swap_out;
    for (int32_t i = 0; i < request->num_sequences; i++) {
        struct sequence *seq = &request->sequences[i];
        if (seq->status == SEQUENCE_FINISHED) continue;
        release_state_index(s, seq);
        seq->status = SEQUENCE_SWAPPED;
    }
    request->num_preemptions++;
    queue_move(&s->swapped, request);
}

static void preempt(struct scheduler *s, struct batch *batch, struct request *request)
{
    s->preemptions++;
    if (should_swap(s, request) && can_swap_out(s, request))
        swap_out(s, batch, request);
    else
        send_back(s, request);
}

/* A leader computes the prompt; the others wait for it in their slots. */
static bool others_wait_for(const struct sequence *seq)
{
    const struct request *request = seq->request;
    if (request->leader != seq) return false;
    for (int32_t i = 0; i < request->num_sequences; i++)
        if (request->sequences[i].status == SEQUENCE_WAITING) return true;
    return false;
}

static void end_sequence(struct scheduler *s, struct sequence *seq, enum finish_reason reason)
{
    struct request *request = seq->request;
    bool needed = others_wait_for(seq);
    seq->status = SEQUENCE_FINISHED;
    seq->finish_reason = reason;
    if (seq->in_flight == 0) give_back(s, seq);
    if (request_finished(request))
        queue_move(&s->ended, request);
    else if (needed)
        send_back(s, request); /* those that wait were never in a step: they start again, with another leader */
}

/* The leader goes last, so that nobody is left waiting for it. */
static void end_request(struct scheduler *s, struct request *request, enum finish_reason reason)
{
    for (int32_t i = request->num_sequences - 1; i >= 0; i--)
        if (request->sequences[i].status != SEQUENCE_FINISHED) end_sequence(s, &request->sequences[i], reason);
}

/* ---- What a step computes ---- */

static int32_t num_known(const struct sequence *seq)
{
    return seq->num_tokens + seq->num_pending;
}

/* Tokens of the sequence that this step computes, of `budget` left. */
static int32_t tokens_to_compute(const struct scheduler *s, const struct sequence *seq, int32_t budget)
{
    if (seq->status != SEQUENCE_RUNNING) return 0;
    if (seq->num_pending > 0 && num_known(seq) >= seq->token_capacity) return 0; /* it ends with the pending token */
    int32_t remaining = num_known(seq) - seq->num_computed;
    if (remaining > budget) return s->config.enable_chunked_prefill ? budget : 0;
    return remaining;
}

/* Blocks that the request's part of this step takes. Siblings that share the block they write to take a copy each, but
 * for the last one if nobody else holds it. */
static int32_t request_cost(const struct scheduler *s, const struct request *request, int32_t *budget)
{
    int32_t cost = 0, shared = BLOCK_NONE, writers = 0;
    for (int32_t i = 0; i < request->num_sequences; i++) {
        const struct sequence *seq = &request->sequences[i];
        int32_t count = tokens_to_compute(s, seq, *budget);
        if (count == 0) continue;
        *budget -= count;
        cost += block_manager_append_cost(&s->blocks, seq, seq->num_computed + count);
        int32_t index = seq->num_computed / s->config.limits.block_size;
        if (index >= seq->num_blocks) continue;
        int32_t block = seq->block_table[index], holders = s->blocks.pool.blocks[block].ref_count;
        if (block != shared) writers = 0;
        shared = block;
        if (holders > 1 && ++writers == holders) cost--;
    }
    return cost;
}

static bool running_fits(const struct scheduler *s)
{
    int32_t cost = 0, budget = s->config.limits.max_num_tokens;
    for (const struct request *r = s->running.head; r; r = r->next) cost += request_cost(s, r, &budget);
    return cost <= s->blocks.pool.num_free;
}

static void start(struct scheduler *s, struct sequence *seq)
{
    seq->status = SEQUENCE_RUNNING;
    seq->first_step = s->num_steps;
    s->admitted[s->num_admitted++] = seq;
}

/* The prompt's blocks that full prompts share: all but a partly filled one. */
static int32_t num_shared_blocks(const struct scheduler *s, const struct sequence *seq)
{
    return seq->prompt_len / s->config.limits.block_size;
}

/* Once the leader has come far enough, the others start: the first time with the leader's own logits, after a
 * preemption from the full blocks of the prompt. Returns whether they take a sample from the leader's row. */
static bool start_siblings(struct scheduler *s, struct request *request)
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
    if (status != STATUS_OK) set_unsound(s, &err);
    return fork;
}

/* Marks the slots of tokens first .. end as written by this step, before another sequence can share their blocks. */
static enum status fill_blocks(struct scheduler *s, const struct sequence *seq, int32_t first, int32_t end,
                               struct error *err)
{
    int32_t block_size = s->config.limits.block_size;
    enum status status = STATUS_OK;
    for (int32_t t = first, run; t < end && status == STATUS_OK; t += run) {
        int32_t block = seq->block_table[t / block_size], room = block_size - t % block_size;
        run = room < end - t ? room : end - t;
        status = block_pool_fill(&s->blocks.pool, block, t % block_size, run, err);
    }
    return status;
}

/* Adds `count` tokens of the sequence to the step. Its blocks are free: the caller has compared request_cost with the
 * number of free blocks. */
static void choose(struct scheduler *s, struct batch *batch, struct sequence *seq, int32_t count)
{
    struct block_pair copy;
    struct error err;
    int32_t first = seq->num_computed;
    enum status status = block_manager_append(&s->blocks, seq, first + count, &copy, &err);
    if (status == STATUS_OK) status = fill_blocks(s, seq, first, first + count, &err);
    if (status != STATUS_OK) {
        set_unsound(s, &err);
        return;
    }
    struct choice *c = &s->choices[s->num_choices++];
    if (copy.source != BLOCK_NONE) batch->copies[batch->num_copies++] = copy;
    *c = (struct choice){.seq = seq, .start = first, .count = count};
    seq->num_computed += count;
    c->samples = seq->num_computed == num_known(seq);
    if (c->samples) seq->num_pending++;
    s->budget -= count;
    block_manager_hash(&s->blocks, seq);
    if (seq == seq->request->leader) c->forks = start_siblings(s, seq->request);
}

static void choose_request(struct scheduler *s, struct batch *batch, struct request *request)
{
    for (int32_t i = 0; i < request->num_sequences; i++) {
        struct sequence *seq = &request->sequences[i];
        int32_t count = tokens_to_compute(s, seq, s->budget);
        if (count == 0) continue;
        choose(s, batch, seq, count);
        if (s->unsound) return;
        if (s->choices[s->num_choices - 1].forks) return; /* the others have their sample, and nothing to compute */
    }
}

/* The settings that a larger KV cache follows from: which of them counts depends on the device. */
static void advise_more_blocks(struct error *err)
{
    error_advise(err, ADVICE_RAISE, "num_gpu_blocks_override", NULL);
    error_advise(err, ADVICE_RAISE, "kv_cache_space", NULL);
    error_advise(err, ADVICE_RAISE, "gpu_memory_utilization", NULL);
}

/* Preempts from the youngest on until the request fits. False when it had to go itself: then nothing younger is left.
 */
static bool make_room(struct scheduler *s, struct batch *batch, struct request *request, bool *preempted)
{
    int32_t budget = s->budget, cost = request_cost(s, request, &budget);
    while (cost > s->blocks.pool.num_free && !s->unsound) {
        struct request *youngest = s->running.tail;
        *preempted = true;
        if (youngest == request && request == s->running.head) {
            int32_t total = block_pool_num_total(&s->blocks.pool);
            error_set(&request->error, STATUS_OUT_OF_MEMORY,
                      "the request has outgrown the KV cache: it needs %d blocks of %d tokens, but there are %d",
                      total - s->blocks.pool.num_free + cost, s->config.limits.block_size, total);
            advise_more_blocks(&request->error);
            error_advise(&request->error, ADVICE_LOWER, "max_model_len", NULL);
            end_request(s, request, FINISH_ERROR);
            return false;
        }
        preempt(s, batch, youngest);
        if (youngest == request) return false;
    }
    return !s->unsound;
}

/* In order of arrival. Returns whether anything was preempted. */
static bool choose_running(struct scheduler *s, struct batch *batch)
{
    bool preempted = false;
    for (struct request *r = s->running.head; r && s->budget > 0 && !s->unsound; r = r->next) {
        if (!make_room(s, batch, r, &preempted)) break;
        choose_request(s, batch, r);
    }
    return preempted;
}

/* ---- Admission ---- */

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
        if (computed) { /* in the cache, or too short to share: it needs nobody */
            status = block_manager_allocate(&s->blocks, seq, &err);
            start(s, seq);
        } else {
            status = block_manager_reserve(&s->blocks, seq, shared, &err);
        }
    }
    if (status != STATUS_OK) set_unsound(s, &err);
}

/* can_allocate said OK, and there are slots. Every unfinished sequence takes its slot now, so that none is missing when
 * it starts. */
static void admit(struct scheduler *s, struct request *request)
{
    struct error err;
    struct sequence *leader = request->leader = request_first_unfinished(request);
    for (int32_t i = leader->index; i < request->num_sequences; i++) {
        struct sequence *seq = &request->sequences[i];
        if (seq->status != SEQUENCE_FINISHED) seq->state_index = s->free_state_indices[--s->num_free_state_indices];
    }
    if (block_manager_allocate(&s->blocks, leader, &err) != STATUS_OK) {
        set_unsound(s, &err);
        return;
    }
    start(s, leader);
    if (request->num_preemptions == 0) {
        leader->num_cached = leader->num_computed;
        s->prefix_queries += leader->num_tokens;
        s->prefix_hits += leader->num_cached;
    }
    if (request->forked) admit_siblings(s, request);
    queue_move(&s->running, request);
}

/* can_swap_in said OK, and there are slots. A host block that is free now is written to by a later step at the
 * earliest: a step that swaps in swaps nothing out afterwards. */
static void swap_in(struct scheduler *s, struct batch *batch, struct request *request)
{
    struct error err;
    s->blocks_swapped_in -= batch->num_swap_in;
    if (block_manager_swap_in(&s->blocks, request, batch->swap_in, &batch->num_swap_in, &err) != STATUS_OK)
        set_unsound(s, &err);
    s->blocks_swapped_in += batch->num_swap_in;
    for (int32_t i = 0; i < request->num_sequences; i++) {
        struct sequence *seq = &request->sequences[i];
        if (seq->status == SEQUENCE_FINISHED) continue;
        seq->state_index = s->free_state_indices[--s->num_free_state_indices];
        start(s, seq);
    }
    queue_move(&s->running, request);
}

/* In order of arrival, as choose_waiting. */
static void choose_swapped(struct scheduler *s, struct batch *batch)
{
    struct request *request;
    while (s->budget > 0 && !s->unsound && (request = s->swapped.head)) {
        if (request_num_unfinished(request) > s->num_free_state_indices) return;
        enum allocate_result result = block_manager_can_swap_in(&s->blocks, request);
        if (result == ALLOCATE_LATER) return;
        if (result == ALLOCATE_NEVER) {
            send_back(s, request);
            continue;
        }
        swap_in(s, batch, request);
        if (!s->unsound) choose_request(s, batch, request);
    }
}

static void refuse(struct scheduler *s, struct request *request, int32_t required)
{
    error_set(&request->error, STATUS_OUT_OF_MEMORY,
              "the prompt needs %d KV cache blocks of %d tokens, but there are %d, of which %d stay free; shorten it",
              required, s->config.limits.block_size, block_pool_num_total(&s->blocks.pool), s->blocks.watermark);
    advise_more_blocks(&request->error);
    end_request(s, request, FINISH_ERROR);
}

/* In order of arrival; the first that has to wait keeps the others waiting. */
static void choose_waiting(struct scheduler *s, struct batch *batch)
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
        if (!s->unsound) choose_request(s, batch, request);
    }
}

/* ---- What a step brought ---- */

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

static void accept_token(struct scheduler *s, struct sequence *seq, int32_t token)
{
    seq->tokens[seq->num_tokens++] = token;
    block_manager_hash(&s->blocks, seq);
    if (stops(seq, token)) {
        seq->stop_token = token;
        end_sequence(s, seq, FINISH_STOP);
    } else if (seq->num_tokens >= seq->token_capacity) {
        end_sequence(s, seq, FINISH_LENGTH);
    }
}

/* ---- The interface ---- */

static void check_after(struct scheduler *s)
{
    struct error err;
    if (s->config.check_invariants && scheduler_check(s, &err) != STATUS_OK) set_unsound(s, &err);
}

static enum status soundness(const struct scheduler *s, struct error *err)
{
    return s->unsound ? error_set(err, STATUS_INTERNAL, "%s", s->violation.text) : STATUS_OK;
}

static enum status check_config(const struct scheduler_config *c, struct error *err)
{
    const struct batch_limits *l = &c->limits;
    if (l->num_groups != 1)
        return error_set(err, STATUS_UNSUPPORTED, "%d KV cache groups; the scheduler does one", l->num_groups);
    if (l->block_size < 1 || l->max_num_seqs < 1 || l->max_num_tokens < 1 || l->max_model_len < 1 || c->num_blocks < 1)
        return error_set(err, STATUS_INVALID,
                         "block size %d, max_num_seqs %d, max_num_batched_tokens %d, max_model_len %d and %d blocks: "
                         "each must be at least 1",
                         l->block_size, l->max_num_seqs, l->max_num_tokens, l->max_model_len, c->num_blocks);
    if (!c->enable_chunked_prefill && l->max_num_tokens < l->max_model_len)
        return error_set(err, STATUS_INVALID,
                         "without chunked prefill max_num_batched_tokens (%d) must be at least max_model_len (%d)",
                         l->max_num_tokens, l->max_model_len);
    return STATUS_OK;
}

static bool allocate_arrays(struct scheduler *s)
{
    size_t seqs = (size_t)s->config.limits.max_num_seqs;
    bool ok = (s->free_state_indices = calloc(seqs, sizeof *s->free_state_indices)) &&
              (s->choices = calloc(seqs, sizeof *s->choices)) && (s->admitted = calloc(seqs, sizeof *s->admitted)) &&
              (s->events = calloc(seqs, sizeof *s->events)) && (s->holders = calloc(seqs, sizeof *s->holders));
    for (int i = 0; ok && i < SCHEDULER_MAX_STEPS; i++)
        ok = (s->steps[i].named = calloc(seqs, sizeof *s->steps[i].named)) &&
             (s->steps[i].sampled = calloc(seqs, sizeof *s->steps[i].sampled));
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
    status = block_manager_init(&s->blocks, config->num_blocks, config->limits.block_size,
                                config->enable_prefix_caching, err);
    if (status == STATUS_OK && !allocate_arrays(s))
        status = error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for a scheduler of %d sequences",
                           config->limits.max_num_seqs);
    if (status != STATUS_OK) {
        scheduler_destroy(s);
        return status;
    }
    for (int32_t slot = config->limits.max_num_seqs - 1; slot >= 0; slot--)
        s->free_state_indices[s->num_free_state_indices++] = slot;
    *out = s;
    return STATUS_OK;
}

void scheduler_destroy(struct scheduler *s)
{
    if (!s) return;
    block_manager_free(&s->blocks);
    for (int i = 0; i < SCHEDULER_MAX_STEPS; i++) {
        free(s->steps[i].named);
        free(s->steps[i].sampled);
    }
    free(s->free_state_indices);
    free(s->choices);
    free(s->admitted);
    free(s->events);
    free(s->holders);
    free(s);
}

void scheduler_add(struct scheduler *s, struct request *request)
{
    const struct batch_limits *limits = &s->config.limits;
    request->arrival = s->next_arrival++;
    request_queue_insert(&s->waiting, request);
    if (request->num_sequences > limits->max_num_seqs) {
        error_set(&request->error, STATUS_INVALID, "n is %d, but at most %d sequences run at once: lower n",
                  request->num_sequences, limits->max_num_seqs);
        error_advise(&request->error, ADVICE_RAISE, "max_num_seqs", "%d", request->num_sequences);
        end_request(s, request, FINISH_ERROR);
    } else if (request->sequences[0].token_capacity > limits->max_model_len) {
        error_set(&request->error, STATUS_INVALID, "the request may grow to %d tokens, but max_model_len is %d",
                  request->sequences[0].token_capacity, limits->max_model_len);
        end_request(s, request, FINISH_ERROR);
    }
    check_after(s);
}

void scheduler_abort(struct scheduler *s, struct request *request)
{
    if (request_finished(request)) return;
    request->aborted = true;
    end_request(s, request, FINISH_ABORT);
    check_after(s);
}

void scheduler_finish(struct scheduler *s, struct sequence *seq, enum finish_reason reason)
{
    if (seq->status == SEQUENCE_FINISHED) return;
    end_sequence(s, seq, reason);
    check_after(s);
}

/* Decides what the next step computes, and lays it out. */
static void choose_step(struct scheduler *s, struct batch *batch)
{
    bool preempted = choose_running(s, batch);
    /* A step that preempts admits nothing; if nothing is left running, there is no such step. */
    bool admits = !preempted || !s->running.head;
    if (admits) choose_swapped(s, batch);
    if (admits && !s->swapped.head) choose_waiting(s, batch);
    if (s->num_choices > 0 && !s->unsound) scheduler_lay_out(s, batch);
    check_after(s);
}

enum status scheduler_schedule(struct scheduler *s, struct batch *batch, struct schedule *out, struct error *err)
{
    batch_clear(batch);
    *out = (struct schedule){.result = SCHEDULE_EMPTY, .admitted = s->admitted};
    if (s->unsound) return soundness(s, err);
    s->num_choices = s->num_admitted = 0;
    s->budget = s->config.limits.max_num_tokens;
    if (s->in_flight == SCHEDULER_MAX_STEPS || (s->in_flight > 0 && !running_fits(s))) {
        out->result = SCHEDULE_COLLECT_FIRST;
        return STATUS_OK;
    }
    choose_step(s, batch);
    if (s->unsound) {
        batch_clear(batch);
        return soundness(s, err);
    }
    if (s->num_choices > 0) out->result = SCHEDULE_BATCH;
    out->num_admitted = s->num_admitted;
    return STATUS_OK;
}

/* Takes the oldest step's samples. Returns the number of events. */
static int32_t collect_step(struct scheduler *s, const struct sample_output *samples)
{
    int32_t num_events = 0;
    const struct step *step = &s->steps[s->oldest];
    s->oldest = (s->oldest + 1) % SCHEDULER_MAX_STEPS;
    s->in_flight--;
    for (int32_t i = 0; i < step->num_named; i++) step->named[i]->in_flight--;
    for (int32_t row = 0; row < step->num_sampled; row++) {
        struct sequence *seq = step->sampled[row];
        seq->num_pending--;
        if (seq->status == SEQUENCE_FINISHED) continue;
        s->events[num_events++] = (struct token_event){seq, samples->token_ids[row], row};
        accept_token(s, seq, samples->token_ids[row]);
    }
    /* Those that ended while this step was in flight. Who ended just now has given back what it had. */
    for (int32_t i = 0; i < step->num_named; i++)
        if (step->named[i]->status == SEQUENCE_FINISHED && step->named[i]->in_flight == 0) give_back(s, step->named[i]);
    check_after(s);
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

static bool request_in_flight(const struct request *request)
{
    for (int32_t i = 0; i < request->num_sequences; i++)
        if (request->sequences[i].in_flight > 0) return true;
    return false;
}

struct request *scheduler_next_finished(struct scheduler *s)
{
    for (struct request *r = s->ended.head; r; r = r->next) {
        if (request_in_flight(r)) continue;
        request_queue_remove(r);
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
        .blocks_swapped_out = s->blocks_swapped_out,
        .blocks_swapped_in = s->blocks_swapped_in,
        .preemptions = s->preemptions,
        .steps = s->num_steps,
        .tokens = s->num_tokens,
    };
}

void scheduler_reset_prefix_cache(struct scheduler *s)
{
    block_manager_reset_cache(&s->blocks);
    check_after(s);
}
