#include "scheduler/scheduler_state.h"

#include "base/plural.h"

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* The first token after which a snapshot of the state is wanted, of those that the sequence is about to compute; at
 * least one follows it. INT32_MAX: there is none. */
static int32_t next_snapshot(const struct scheduler *s, const struct sequence *seq)
{
    const int32_t unit = s->blocks.states.boundary, done = seq->num_computed, end = scheduler_num_computable(s, seq);
    const int32_t interval = (s->config.state_interval + unit - 1) / unit * unit;
    const int32_t wanted[] = {(end - 1) / unit * unit, seq->parting, seq->request->state_boundary / unit * unit,
                              interval > 0 ? (done / interval + 1) * interval : 0};
    int32_t next = INT32_MAX;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted && s->blocks.caching; i++)
        if (wanted[i] > done && wanted[i] < end && wanted[i] < next) next = wanted[i];
    return next;
}

/* Tokens of the sequence that this step computes, at most `budget`. */
static int32_t tokens_to_compute(const struct scheduler *s, const struct sequence *seq, int32_t budget)
{
    if (seq->status != SEQUENCE_RUNNING) return 0;
    const int32_t remaining = scheduler_num_computable(s, seq) - seq->num_computed;
    if (remaining <= 0) return 0; /* less than 0: its run is in flight */
    int32_t wanted = remaining + seq->num_drafts;
    if (remaining > 1 && scheduler_has_states(s)) wanted = least(wanted, next_snapshot(s, seq) - seq->num_computed);
    if (wanted <= budget) return wanted;
    return remaining <= budget || s->config.enable_chunked_prefill ? budget : 0;
}

/* ---- the plan ---- */

/* Plans the next tokens of a request's sequences. Returns what is left of the budget. */
static int32_t plan_request(struct scheduler *s, struct request *request, int32_t budget)
{
    for (int32_t i = 0; i < request->num_sequences; i++) {
        struct sequence *seq = &request->sequences[i];
        const int32_t count = tokens_to_compute(s, seq, budget);
        if (count == 0) continue;
        const bool draws = seq->num_computed + count >= scheduler_num_known(seq);
        if (draws && s->places <= 0) continue;
        if (draws) s->places--;
        s->plan[s->num_planned++] = (struct growth){seq, seq->num_computed + count};
        budget -= count;
    }
    return budget;
}

/* A sequence whose last token is pending needs nothing more on the device: its place is free for this step. */
static void release_ends(struct scheduler *s, struct request *request)
{
    for (int32_t i = 0; i < request->num_sequences; i++) {
        struct sequence *seq = &request->sequences[i];
        if (seq->num_pending > 0 && seq->state_index >= 0 && !request->beams && scheduler_has_last_token(seq))
            scheduler_release(s, seq);
    }
}

/* A token takes at most one block of each group: where so many are free, they are not counted one by one. */
static int32_t plan_cost(struct scheduler *s, int32_t num_tokens)
{
    const int64_t most = (int64_t)num_tokens * s->config.limits.num_groups;
    if (most <= s->blocks.pool.num_free) return (int32_t)most;
    return block_manager_append_cost(&s->blocks, s->plan, s->num_planned);
}

/* The memory of thousands of requests is not in the cache, and a list tells only what comes next. The last plan, of
 * `last` sequences, most of which are planned again, says what comes later. Some may be gone by now, so they are not
 * read. A request lies before its sequences, of which there is most often one. */
static void fetch_soon(const struct scheduler *s, int32_t last)
{
    if (last - s->num_planned <= 8) return;
    const struct sequence *soon = s->plan[s->num_planned + 8].seq;
    __builtin_prefetch(soon);
    __builtin_prefetch((const struct request *)soon - 1);
}

static int32_t plan_running(struct scheduler *s)
{
    const int32_t most = s->config.limits.max_num_tokens, last = s->num_planned;
    int32_t budget = most;
    s->num_planned = 0;
    s->places = s->share;
    for (struct request *r = s->running.head; r && budget > 0; r = r->next) {
        fetch_soon(s, last);
        if (s->in_flight > 0) release_ends(s, r);
        budget = plan_request(s, r, budget);
    }
    return plan_cost(s, most - budget);
}

/* Whether drafts, where layers have states, leave a state slot to each sequence. */
static bool drafts_have_states(const struct scheduler *s)
{
    const struct batch_limits *limits = &s->config.limits;
    if (s->num_drafted == 0 || !scheduler_has_states(s)) return true;
    return s->blocks.states.slots.num_free >= limits->max_num_seqs + limits->max_num_drafts - s->drafts_left;
}

int32_t scheduler_plan_running(struct scheduler *s)
{
    int32_t needed;
    if (!drafts_have_states(s)) scheduler_drop_drafts(s);
    while ((needed = plan_running(s)) > s->blocks.pool.num_free && s->num_drafted > 0) scheduler_drop_drafts(s);
    return needed;
}

/* The only running request holds all blocks that are in use. */
static void fail_outgrown(struct scheduler *s, struct request *request, int32_t needed)
{
    const int32_t total = block_pool_num_total(&s->blocks.pool), wanted = total - s->blocks.pool.num_free + needed;
    error_set(request_error(request), STATUS_OUT_OF_MEMORY,
              "the request has outgrown the KV cache: it needs %d block%s of %d tokens, but there are %d", wanted,
              plural(wanted), s->config.limits.block_size, total);
    scheduler_advise_more_blocks(s, request_error(request));
    error_advise(request_error(request), ADVICE_LOWER, "max_model_len", NULL);
    scheduler_end_request(s, request, FINISH_ERROR);
}

/* The youngest that has got on since it was last preempted, but not the oldest; if there is none, the youngest. */
static struct request *choose_victim(const struct scheduler *s)
{
    for (struct request *r = s->running.tail; r != s->running.head; r = r->previous)
        if (!r->stalled) return r;
    return s->running.tail;
}

void scheduler_make_room(struct scheduler *s, struct batch *batch, int32_t needed)
{
    while (needed > s->blocks.pool.num_free && !s->unsound) {
        if (s->running.head == s->running.tail)
            fail_outgrown(s, s->running.head, needed);
        else
            scheduler_preempt(s, batch, choose_victim(s));
        needed = scheduler_plan_running(s);
    }
}

/* ---- carrying it out ---- */

/* Marks the slots of tokens first .. end as written by this step, before another sequence can share their blocks. */
static enum status fill_blocks(struct scheduler *s, const struct block_table *table, int32_t block_size, int32_t first,
                               int32_t end, struct error *err)
{
    enum status status = STATUS_OK;
    for (int32_t t = first, run; t < end && status == STATUS_OK; t += run) {
        const int32_t room = block_size - t % block_size;
        run = room < end - t ? room : end - t;
        status = block_pool_fill(&s->blocks.pool, table->blocks[t / block_size], block_size, t % block_size, run, err);
    }
    return status;
}

/* Chooses the slots of the sequence's states before and after the tokens of the choice, and after each of its drafts.
 * The state after them becomes a snapshot if one is wanted there, and the prefix cache knows the tokens. */
static enum status choose_states(struct scheduler *s, struct choice *c, bool is_wanted, struct error *err)
{
    struct state_pool *states = &s->blocks.states;
    struct sequence *seq = c->seq;
    struct step *step = scheduler_new_step(s);
    enum status status = state_pool_write(states, seq, c->start, &c->state_source, err);
    for (int32_t i = 0; i < c->num_drafts && status == STATUS_OK; i++) {
        const int32_t slot = state_pool_take(states);
        if (slot == STATE_SLOT_NONE) status = error_set(err, STATUS_INTERNAL, "a draft needs a state slot");
        step->draft_states[step->num_draft_states++] = slot;
    }
    const bool is_known = seq->num_hashed * s->config.limits.block_size == seq->num_computed;
    if (status == STATUS_OK && is_wanted && is_known) state_pool_add_snapshot(states, seq);
    return status;
}

/* Adds a growth to the step. Its blocks are free. `starts`: the sequence starts to run in this step. */
static void choose(struct scheduler *s, struct batch *batch, const struct growth *growth, bool starts)
{
    struct sequence *seq = growth->seq;
    const int32_t first = seq->num_computed, end = growth->num_tokens;
    const bool changed = end > seq->num_writable;
    const bool ends_at_snapshot = scheduler_has_states(s) && end == next_snapshot(s, seq);
    struct error err;
    enum status status = block_manager_append(&s->blocks, seq, end, batch->copies, &batch->num_copies, &err);
    for (int32_t g = 0; g < s->config.limits.num_groups && status == STATUS_OK; g++)
        status = fill_blocks(s, &seq->tables[g], batch_block_size(&s->config.limits, g), first, end, &err);
    if (status != STATUS_OK) {
        scheduler_set_unsound(s, &err);
        return;
    }
    const int32_t num_drafts = end - scheduler_num_known(seq);
    struct choice c = {.seq = seq, .start = first, .count = end - first, .starts = starts, .changed = changed};
    c.samples = num_drafts >= 0;
    c.num_drafts = num_drafts > 0 ? num_drafts : 0;
    seq->num_drafts = c.num_drafts;
    s->budget -= c.count;
    seq->num_computed = end;
    block_manager_hash(&s->blocks, seq);
    if (scheduler_has_states(s) && choose_states(s, &c, ends_at_snapshot, &err) != STATUS_OK) {
        scheduler_set_unsound(s, &err);
        return;
    }
    if (seq == seq->request->leader && end == seq->prompt_len) {
        c.forks = c.samples;
        scheduler_fork(s, seq);
    }
    scheduler_lay_out(s, batch, &c);
}

/* Whether the sequence computes its newest token and samples the next, in blocks of its own: what most sequences do in
 * most steps. */
static bool goes_on(const struct growth *growth)
{
    const struct sequence *seq = growth->seq;
    return growth->num_tokens == seq->num_computed + 1 && growth->num_tokens <= seq->num_writable &&
           growth->num_tokens == scheduler_num_known(seq) && seq->num_drafts == 0 && seq != seq->request->leader;
}

/* Does what choose does for a sequence that goes on: its tables do not change, and it is laid out at once. */
static void go_on(struct scheduler *s, struct batch *batch, struct sequence *seq)
{
    const struct batch_limits *limits = &s->config.limits;
    const int32_t unit = seq->num_computed / limits->block_size; /* one division serves all groups */
    int64_t *slot = batch->slot_mapping + batch->num_seqs;
    for (int32_t g = 0; g < limits->num_groups; g++, slot += limits->max_num_tokens) {
        const int32_t size = batch_block_size(limits, g), index = unit >> limits->block_shifts[g];
        const int32_t block = seq->tables[g].blocks[index], offset = seq->num_computed - index * size;
        struct error err;
        if (block_pool_fill(&s->blocks.pool, block, size, offset, 1, &err) != STATUS_OK) {
            scheduler_set_unsound(s, &err);
            return;
        }
        *slot = (int64_t)block * size + offset;
    }
    s->budget--;
    seq->num_computed++;
    block_manager_hash(&s->blocks, seq);
    scheduler_lay_out_next(s, batch, seq);
}

/* What a growth reads is fetched a few turns earlier. */
void scheduler_choose_planned(struct scheduler *s, struct batch *batch)
{
    const struct growth *growth = s->plan, *end = growth + s->num_planned;
    for (; growth < end && !s->unsound; growth++) {
        if (end - growth > 16) {
            const struct sequence *seq = growth[16].seq;
            __builtin_prefetch(&seq->last_step);
            __builtin_prefetch(seq->tables);
        }
        if (end - growth > 8) {
            const struct sequence *seq = growth[8].seq;
            const struct block_table *table = &seq->tables[0];
            __builtin_prefetch(&seq->tokens[seq->num_computed]);
            __builtin_prefetch(&table->blocks[table->num_blocks]);
        }
        if (goes_on(growth))
            go_on(s, batch, growth->seq);
        else
            choose(s, batch, growth, false);
    }
}

void scheduler_choose_request(struct scheduler *s, struct batch *batch, struct request *request)
{
    s->num_planned = 0;
    plan_request(s, request, s->budget);
    if (block_manager_append_cost(&s->blocks, s->plan, s->num_planned) > s->blocks.pool.num_free) return;
    for (int32_t i = 0; i < s->num_planned && !s->unsound; i++) choose(s, batch, &s->plan[i], true);
}
