/* Continuous batching: what the next step computes. Host logic only.
 *
 * A step is cut in two. scheduler_schedule() fills a batch; the caller submits it; scheduler_collect() takes what it
 * sampled. At most two steps are in flight: step n + 1 may be scheduled while the device computes step n. A token that
 * step n samples is then named in batch n + 1 by its row (token_ids -(r+1)). What is learned one step late (an end of
 * sequence, a stop string) costs at most one wasted row, never a wrong token.
 *
 * Preemption, and anything else that would take blocks from a sequence in flight, waits: schedule() answers
 * SCHEDULE_COLLECT_FIRST. Prompt blocks get their identity when the step that computes them is scheduled (steps run in
 * order, and within a step K and V are written before they are read, so a second prompt in the same step may share
 * them); blocks of sampled tokens get theirs at collect, when the tokens are known.
 *
 * A preempted request is computed again from its tokens, or its blocks are swapped to host memory: by default where
 * several of its sequences are unfinished. One whose sequences still wait for their prompt, or that finds no host
 * block, is always computed again. What is swapped comes back before anything that waits is admitted.
 *
 * Not thread-safe: the engine calls it from one thread and keeps the queue that other threads use. Nothing is allocated
 * after scheduler_create, but for host blocks where more are swapped out than ever before: most runs never swap, and
 * pinning gigabytes takes longer than all the rest of a start.
 */
#ifndef QUIRE_SCHEDULER_SCHEDULER_H
#define QUIRE_SCHEDULER_SCHEDULER_H

#include "base/batch.h"
#include "base/log.h"
#include "scheduler/block_manager.h"
#include "scheduler/sequence.h"

enum preemption_mode { PREEMPTION_AUTO, PREEMPTION_RECOMPUTE, PREEMPTION_SWAP };

struct scheduler_config {
    struct batch_limits limits;
    int32_t num_blocks;
    int32_t num_host_blocks; /* in swap space, numbered num_blocks + 1 .. num_blocks + num_host_blocks; 0: none */
    enum preemption_mode preemption_mode;
    /* Allocates memory for more host blocks: called where a swap needs more than there are, which is none at first.
     * *added gets how many it added; more than num_host_blocks in all are never asked for. If it fails, its
     * sentence goes to `log` as a warning, it is not called again, and what does not fit is computed again instead.
     * NULL: nothing has to be allocated. */
    enum status (*grow_host_blocks)(void *user, int32_t *added, struct error *err);
    void *user;
    const struct log *log; /* may be NULL */
    bool enable_prefix_caching;
    bool enable_chunked_prefill; /* false: a prompt is computed in one step; needs max_num_tokens >= max_model_len */
    bool check_invariants;       /* after every operation; slow; on in debug builds and tests */
};

struct scheduler_stats {
    int32_t num_running, num_waiting, num_swapped;                   /* requests */
    int32_t blocks_total, blocks_in_use, blocks_cached, blocks_free; /* their sum is the total */
    int64_t prefix_queries, prefix_hits, evictions;                  /* in tokens, tokens, blocks */
    int32_t host_blocks_in_use;
    int64_t blocks_swapped_out, blocks_swapped_in; /* copied */
    int64_t preemptions, steps;
    int64_t tokens; /* computed, or in a submitted step */
};

enum schedule_result {
    SCHEDULE_BATCH,        /* the batch is filled: submit it */
    SCHEDULE_EMPTY,        /* nothing to compute now; if a step is in flight, collect it and ask again */
    SCHEDULE_COLLECT_FIRST /* a decision needs the step in flight: collect it and ask again */
};

struct schedule {
    enum schedule_result result;
    /* [num_admitted] the sequences that this step starts, for the first time or again: their sampling state and tokens
     * must reach the device before the batch runs. Owned by the scheduler, valid until the next call; none unless
     * SCHEDULE_BATCH. The siblings of an n > 1 request start when its prompt is complete: their first samples are taken
     * from the first sequence's last token. */
    struct sequence *const *admitted;
    int32_t num_admitted;
};

/* What a collected step brought to one sequence, in the order of the samples. */
struct token_event {
    struct sequence *seq;
    int32_t token; /* appended to seq->tokens; a stop token too */
    int32_t row;   /* of the step's sample_output */
};

struct scheduler;

enum status scheduler_create(const struct scheduler_config *config, struct scheduler **out, struct error *err);
void scheduler_destroy(struct scheduler *s);

/* Queues a request, after all that were added before it (sets request->arrival); the scheduler refers to it until it is
 * finished and scheduler_next_finished() handed it back. A prompt that can never fit ends with FINISH_ERROR and a
 * sentence when its turn comes, or here if it is more than a step or the number of slots allows; the others go on. */
void scheduler_add(struct scheduler *s, struct request *request);
/* Ends every unfinished sequence with FINISH_ABORT. */
void scheduler_abort(struct scheduler *s, struct request *request);
/* Ends one sequence (a stop string was found). Its blocks go back once no step in flight names it. */
void scheduler_finish(struct scheduler *s, struct sequence *seq, enum finish_reason reason);

/* Fills `batch`, which was made for config.limits with max_pairs >= max_num_seqs.
 *
 * Here and in scheduler_collect, STATUS_INTERNAL means that an internal inconsistency was found: a block that is not
 * free for a step that was found to fit, the release of a free block, a broken free list. The batch is empty then,
 * there are no events, and every later call of the two returns the same error: no request continues on blocks that it
 * does not have. */
enum status scheduler_schedule(struct scheduler *s, struct batch *batch, struct schedule *out, struct error *err);
/* Takes the samples of the oldest step in flight: appends the tokens and ends sequences on eos, stop ids (min_tokens
 * permitting, ignore_eos) or length. A sample whose sequence has ended since is dropped. *events gets [*num_events],
 * owned by the scheduler, valid until the next collect. */
enum status scheduler_collect(struct scheduler *s, const struct sample_output *samples,
                              const struct token_event **events, int32_t *num_events, struct error *err);

/* A request all of whose sequences have ended and that nothing in flight names, or NULL. It is the caller's again. */
struct request *scheduler_next_finished(struct scheduler *s);

bool scheduler_has_work(const struct scheduler *s);     /* requests unfinished or not handed back, or steps in flight */
int32_t scheduler_in_flight(const struct scheduler *s); /* steps submitted and not collected */
void scheduler_get_stats(const struct scheduler *s, struct scheduler_stats *stats);

/* Drops every cached block's identity (nothing may be running); for measuring cold starts. */
void scheduler_reset_prefix_cache(struct scheduler *s);

/* The invariants of ARCHITECTURE.md over all sequences, and any inconsistency found earlier. Slow, for tests; with
 * check_invariants it runs after every operation, and schedule and collect return what it finds. */
enum status scheduler_check(const struct scheduler *s, struct error *err);

#endif
