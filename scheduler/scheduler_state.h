/* The scheduler's state, and what its files call of each other. Private to scheduler*.c and tests.
 *
 *     scheduler.c           the interface: create, add, schedule, collect, cancel, statistics
 *     scheduler_choose.c    what the step computes of running requests, and who is preempted for them
 *     scheduler_admit.c     how waiting and swapped requests start to run
 *     scheduler_release.c   how requests lose their blocks: preemption, and the end of sequences
 *     scheduler_beams.c     how the beams of a request go on
 *     scheduler_layout.c    turns the step's choices into a batch
 *     scheduler_check.c     checks the invariants
 *     scheduler_request.c   what a request may compute, and its sequences that start: for the files above
 *
 * All of them may read every field. struct scheduler says which file writes which of its fields. In requests and
 * sequences, request_queue.c writes the places in queues, block_manager.c what follows from the blocks that a sequence
 * holds (tables, num_writable, num_hashed, prefix, num_uploaded, retry_gains; num_computed and num_cached where it
 * starts, forks, is rolled back or ends), state_pool.c its states and whose snapshots are awaited, and these files the
 * rest:
 *
 *     scheduler.c           arrival, priority, cache_salt; num_drafts, and the drafts among the tokens; when it
 *                           collects: state, of a run; tokens, num_tokens, num_pending, stop_token, stalled, the rows
 * of prompt_logprobs scheduler_choose.c    num_computed; num_drafts, of a run scheduler_admit.c     when a request
 * starts: leader, state_index, num_cached scheduler_request.c   cache_namespace; when a sequence starts: status, and
 * leader at a fork scheduler_release.c   when something stops: status, leader, state_index, finish_reason,
 * num_preemptions, stalled, retry_gains, num_drafts scheduler_beams.c     all that a beam takes over from another
 *     scheduler_layout.c    last_step, pending_sample, num_pending, num_uploaded, prompt_logprobs->num_submitted
 *
 * The file that finds why a request fails writes its error.
 */
#ifndef QUIRE_SCHEDULER_SCHEDULER_STATE_H
#define QUIRE_SCHEDULER_SCHEDULER_STATE_H

#include "scheduler/request_queue.h"
#include "scheduler/scheduler.h"

/* Targets of a batch that follow one another: the rows first .. first + count - 1 of a request's prompt_logprobs. */
struct target_run {
    struct sequence *seq; /* that computed them */
    int32_t first, count;
};

/* A sequence with num_drafts drafts in a step: the first of its samples, and the first of its drafts among the step's.
 */
struct drafted_run {
    struct sequence *seq;
    int32_t sample, draft;
};

/* A submitted step: the sequence that each of its samples belongs to, and whose drafts and targets it has. */
struct step {
    struct sequence **sampled; /* [num_sampled] those of a run follow one another */
    int32_t num_sampled;
    int32_t num_runs;
    struct drafted_run *runs; /* [num_runs] */
    int32_t *drafts;          /* [drafts of all runs], unless on_device */
    int32_t *draft_states;    /* [num_draft_states] the state slots after each of them, held; 0: none any more */
    int32_t num_draft_states;
    bool on_device; /* a drafter on the device makes the drafts */
    int32_t num_target_runs;
    struct target_run *target_runs; /* [num_target_runs] in the order of the batch's targets */
    int64_t number;                 /* counted from 0, cancelled steps included */
};

/* What the step being scheduled computes of one sequence. */
struct choice {
    struct sequence *seq;
    int32_t start, count; /* tokens of the sequence, drafts included */
    int32_t num_drafts;
    int32_t state_source; /* the slot of the state before the first token */
    bool starts;          /* the sequence starts to run in this step */
    bool samples;         /* its last token's logits are wanted */
    bool forks;           /* the sequences that started with it sample from the same logits */
    bool changed;         /* its tables have entries that the device's lack */
};

/* The heading above a field names the files that write it. Besides, scheduler.c creates and frees everything, and when
 * it begins a step it sets num_choices and num_admitted to 0 and budget to max_num_tokens. */
struct scheduler {
    /* ---- scheduler.c ---- */
    struct scheduler_config config; /* never changed */
    uint64_t next_arrival;
    struct token_event *events; /* [batch_max_entries] of the step that was collected last */
    int64_t runs, drafts, drafts_accepted;

    /* ---- scheduler.c: drafts for the step that is scheduled next ---- */
    struct sequence **drafted; /* [num_drafted] the sequences that have some */
    int32_t num_drafted, drafts_left;
    bool on_device; /* a drafter on the device makes them */

    /* ---- scheduler.c adds and removes requests; scheduler_admit.c and scheduler_release.c move them ---- */
    /* By rank: the tail of `running` is the youngest, and a preempted request often becomes the head of `waiting`,
     * which is a heap, or `swapped`. `ended` is first in, first out. */
    struct request_queue waiting, swapped, running, ended;

    /* ---- scheduler_layout.c adds steps; scheduler.c removes them, collected or cancelled ---- */
    struct step steps[SCHEDULER_MAX_STEPS]; /* a ring */
    int32_t oldest, in_flight;

    /* ---- scheduler_admit.c takes state indices; scheduler_release.c gives them back ---- */
    int32_t *free_state_indices; /* [num_free_state_indices] a stack */
    int32_t num_free_state_indices;

    /* ---- scheduler_choose.c: the step that is being scheduled ---- */
    struct growth *plan; /* [num_planned] what running requests compute, if there are blocks for it. Until the next
                            plan is made, its sequences may be gone */
    int32_t num_planned;
    int32_t budget; /* tokens left */
    int32_t places; /* sequences left for which a token may be drawn; scheduler.c sets it for those that start */

    /* ---- scheduler.c: how many of the running ones that may be ---- */
    int32_t share;

    /* ---- scheduler_request.c: what starts; scheduler_admit.c: the counts ---- */
    struct sequence **admitted; /* [num_admitted] the sequences that the step starts */
    int32_t num_admitted;
    int64_t prefix_queries, prefix_hits; /* tokens */

    /* ---- scheduler_release.c ---- */
    int64_t preemptions_recompute, preemptions_swap;
    bool host_failed; /* the last attempt to allocate more host blocks failed */
    bool warned;      /* that the KV cache is too small */

    /* ---- scheduler_layout.c ---- */
    struct choice *choices; /* [num_choices] prefills and chunks, which follow the decodes in the batch */
    int32_t num_choices;
    struct sequence **sequences;          /* [num_seqs of the batch] */
    struct scheduled_run *scheduled_runs; /* [num_scheduled_runs] */
    int32_t num_scheduled_runs;
    int64_t num_steps, num_tokens;
    int64_t blocks_swapped_out, blocks_swapped_in, states_swapped_out, states_swapped_in;

    /* ---- all but scheduler_layout.c and scheduler_check.c, through functions: those of block_manager.h;
     * scheduler_choose.c fills slots (block_pool_fill), scheduler.c adds salts (prefix_cache_add_salt), both call
     * functions of state_pool.h ---- */
    struct block_manager blocks;

    struct sequence *parents;  /* scratch of scheduler_beams.c */
    struct sequence **holders; /* scratch of scheduler_check.c: those of state indices */

    /* ---- scheduler_request.c ---- */
    bool unsound;           /* an internal inconsistency was found: nothing is scheduled or collected any more */
    struct error violation; /* the first one, if unsound */
};

/* Whether layers have states. */
static inline bool scheduler_has_states(const struct scheduler *s)
{
    return s->config.limits.num_state_slots > 0;
}
/* Drops the drafts that no step in flight computes. */
void scheduler_drop_drafts(struct scheduler *s);
/* Checks the invariants if the configuration asks for it. */
void scheduler_check_after(struct scheduler *s);

/* ---- scheduler_request.c ---- */

/* Records an internal inconsistency. The first one is kept, and from then on schedule and collect return it: no
 * sequence continues on blocks that it may not have. */
void scheduler_set_unsound(struct scheduler *s, const struct error *err);
/* Adds to a request's error the settings that give a larger KV cache. */
void scheduler_advise_more_blocks(const struct scheduler *s, struct error *err);
/* Sets the namespace in which a request that holds no blocks is computed: 1 if each unfinished sequence has more than
 * first_namespace_len tokens, otherwise 0. */
void scheduler_set_namespace(const struct scheduler *s, struct request *request);
/* Whether the request is in namespace 0 and cannot go on there: it must be computed again in namespace 1. */
bool scheduler_must_change_namespace(const struct scheduler *s, const struct request *request);
/* The tokens of the sequence, with those that are pending. */
static inline int32_t scheduler_num_known(const struct sequence *seq)
{
    return seq->num_tokens + seq->num_pending;
}
/* Whether the sequence has its last token by length, known or pending, and so needs no more K and V. */
static inline bool scheduler_has_last_token(const struct sequence *seq)
{
    return scheduler_num_known(seq) >= seq->token_capacity && scheduler_num_known(seq) > seq->prompt_len;
}
/* The tokens of the sequence whose K and V may be computed now: all; with several batches, all but one that is pending;
 * of a leader, the prompt, for which others wait; of a beam, those that the caller has set; in namespace 0, those that
 * it has room for. */
static inline int32_t scheduler_num_computable(const struct scheduler *s, const struct sequence *seq)
{
    const struct request *request = seq->request;
    const int32_t most = s->config.first_namespace_len;
    int32_t count = request->beams || s->config.num_batches > 1 ? seq->num_tokens : scheduler_num_known(seq);
    if (seq == request->leader)
        count = seq->prompt_len;
    else if (scheduler_has_last_token(seq))
        return seq->num_computed;
    return most > 0 && request->cache_namespace == 0 && count > most ? most : count;
}
/* Drafts that the sequence has room for in the step that is scheduled next. */
int32_t scheduler_draft_room(const struct scheduler *s, const struct sequence *seq);
/* The same for the step after those in flight, if their tokens do not end the sequence. */
int32_t scheduler_draft_room_later(const struct scheduler *s, const struct sequence *seq);
/* Whether a sequence of the request has a token whose K and V may be computed now. */
bool scheduler_can_go_on(const struct scheduler *s, const struct request *request);
/* The step starts the sequence. */
void scheduler_start(struct scheduler *s, struct sequence *seq);
/* The leader has computed the prompt: starts the sequences that wait for it, with its blocks. They compute nothing in
 * this step, because a block is copied before the step writes to it, but may sample from the leader's logits. */
void scheduler_fork(struct scheduler *s, struct sequence *leader);

/* ---- scheduler_choose.c ---- */

/* Plans the next tokens of all running requests, by rank, with their drafts if there are blocks for these, too. Returns
 * the blocks that must be free for them; if enough are, it may be a few more than that. */
int32_t scheduler_plan_running(struct scheduler *s);
/* Preempts requests until the plan of the others fits into the free blocks. */
void scheduler_make_room(struct scheduler *s, struct batch *batch, int32_t needed);
/* Carries the plan out. */
void scheduler_choose_planned(struct scheduler *s, struct batch *batch);
/* Plans the next tokens of one request that starts, and carries the plan out if it fits into the free blocks. */
void scheduler_choose_request(struct scheduler *s, struct batch *batch, struct request *request);

/* ---- scheduler_admit.c ---- */

/* Brings swapped requests back and admits waiting ones: with fcfs the swapped ones first, each queue by rank; with
 * priority both by rank. The first that does not fit ends the search, so that none is starved. */
void scheduler_choose_starts(struct scheduler *s, struct batch *batch);

/* ---- scheduler_release.c ---- */

/* Preempts a running request by recompute or swap. No step in flight may name it. */
void scheduler_preempt(struct scheduler *s, struct batch *batch, struct request *request);
/* Preemption by recompute: the request releases its blocks, keeps its tokens and is computed again from them, in
 * the namespace that suits their number. No step in flight may name it. */
void scheduler_requeue(struct scheduler *s, struct request *request);
/* The step computes nothing, because the request that was to have the blocks has failed, so it copies nothing: the
 * requests that it was to swap out are computed again instead. */
void scheduler_undo_swaps(struct scheduler *s, struct batch *batch);
/* Releases the blocks and the state index of a sequence. */
void scheduler_release(struct scheduler *s, struct sequence *seq);
/* Ends a sequence and releases its blocks and state index, even if a step in flight names it: what other sequences
 * write to the blocks is written after that step. With its last sequence a request moves to `ended`. */
void scheduler_end_sequence(struct scheduler *s, struct sequence *seq, enum finish_reason reason);
void scheduler_end_request(struct scheduler *s, struct request *request, enum finish_reason reason);

/* ---- scheduler_layout.c ---- */

/* The step that is being scheduled. */
static inline struct step *scheduler_new_step(struct scheduler *s)
{
    return &s->steps[(s->oldest + s->in_flight) % SCHEDULER_MAX_STEPS];
}
/* Whether a step in flight names the sequence. */
static inline bool scheduler_is_in_flight(const struct scheduler *s, const struct sequence *seq)
{
    return s->in_flight > 0 && seq->last_step >= s->steps[s->oldest].number;
}
/* Adds a choice to the batch: at once if it is a decode or a run, otherwise behind all of those. */
void scheduler_lay_out(struct scheduler *s, struct batch *batch, const struct choice *choice);
/* Adds a decode that changes no table and samples the next token: its token num_computed - 1, whose slots are in the
 * batch already. */
void scheduler_lay_out_next(struct scheduler *s, struct batch *batch, struct sequence *seq);
/* Adds the choices that are not decodes, and adds the step to those in flight, if there is anything in it. */
void scheduler_finish_layout(struct scheduler *s, struct batch *batch);

#endif
