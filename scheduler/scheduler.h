/* Continuous batching: decides what the next step computes. Host logic only.
 *
 * A step has two halves. scheduler_schedule() fills a batch, which the caller submits; scheduler_collect() takes the
 * tokens that it sampled. At most two steps are in flight, so step n + 1 can be scheduled while the device computes
 * step n. Batch n + 1 names a token that step n has yet to sample by the index of its sample: token_ids holds -(i + 1)
 * for sample i. The host learns of an end of sequence or a stop string one step late; this costs at most one wasted
 * token of computation, never a wrong token in an answer.
 *
 * Several batches: where stages of a model compute steps at the same time (pipeline parallelism), a token that is not
 * known yet has no name, because the stage that draws it is not the one that needs it. So a sequence whose token is
 * pending is left out, and the running sequences are dealt to num_batches steps, which are in flight together: a step
 * draws tokens for one of num_batches equal parts of them. A prompt goes on with its next chunk at once. Where the part
 * of a step does not fit into the free blocks, all steps are collected, and requests are preempted until all fit.
 *
 * Preemption takes blocks from a sequence, so it must not happen while a step that names the sequence is in flight:
 * schedule() then answers SCHEDULE_COLLECT_FIRST. A block of prompt tokens enters the prefix cache when the step that
 * computes it is scheduled. This is early enough for a second prompt of the same step to share it, and safe, because
 * steps run in order and a step writes all of its K and V before it reads any. A block of sampled tokens enters the
 * cache at collect, when its tokens are known.
 *
 * Preemption: when the blocks do not suffice for the next tokens of all running requests, the youngest is preempted,
 * until they do. A request that was preempted before and has got no token since is spared, and so is the oldest, as
 * long as there is another: so each preemption of a request follows a new token of it, and none is thrown out again and
 * again. (The youngest of all goes where only the oldest and spared ones run; the oldest ends some day.) A lone request
 * that cannot grow ends with an error. When one request is preempted for the third time, the log says once that the KV
 * cache is the bottleneck.
 *
 * A preempted request is recomputed from its tokens or swapped to host memory: by default, swapped if several of its
 * sequences are unfinished. It is always recomputed if its sequences still wait for their prompt, whatever the mode, or
 * if there are too few host blocks or slots. With the policy fcfs, swapped requests return before any waiting request
 * is admitted; with priority, the most urgent request of both is next.
 *
 * A sequence that needs nothing more on the device gives its blocks and its state index to the very next step, even if
 * a step in flight still names it, because the device runs steps in order. That is so when it has ended, and when its
 * last token by length is pending.
 *
 * Cache namespaces: in some models a sequence of more than first_namespace_len tokens has other K and V than a shorter
 * one, from its first token on. A request is computed in cache namespace 0 or 1, and shares blocks with requests of the
 * same namespace alone. In namespace 0 its sequences stop at first_namespace_len computed tokens; once all that are
 * unfinished have another token to compute, the request releases its blocks and is computed again in namespace 1, like
 * one that was preempted. The model knows the namespace of a token by its position, which is shifted in namespace 1.
 *
 * Speculation (Leviathan et al., 2023): before a step the caller may give running sequences drafts, tokens that it
 * guesses will be drawn next (scheduler_set_drafts). The step then computes the sequence's last token and the drafts, a
 * run, and draws a token from each row of logits. A draft is accepted if it is the token that was drawn in its place.
 * The first that is not ends the run, and the draw stands in its place, so a run of d drafts yields 1 to d + 1 tokens,
 * those of plain decoding. The K and V of rejected drafts are rolled back: their slots are written again later, and
 * blocks that they alone needed are free. A sequence whose run is in flight waits for scheduler_collect. Drafts give
 * way: those that the budget, the blocks or the cache namespace have no room for are dropped, and none is the cause of
 * a preemption. The beams of a beam search take none.
 *
 * States: in models with recurrent layers a sequence also has a state, of fixed size, in a state slot (base/batch.h),
 * which limits.num_state_slots counts; state_pool.h says who holds which slot, and which slots are snapshots that later
 * prompts go on from. With prefix caching, a prefill is cut where a snapshot of its state is wanted: at the last
 * boundary that leaves a token to compute, at that of request->state_boundary, at the one where the prompt parts from
 * the cached prompts that it has found, and every state_interval tokens. A run needs a slot for each draft: drafts
 * without one are dropped. A preempted request that is recomputed starts from the deepest snapshot; one that is swapped
 * takes its states to host slots (state_swap.h). Cache namespaces and states do not go together.
 *
 * Not thread-safe: the engine calls it from one thread and keeps the queue that other threads use. Nothing is allocated
 * after scheduler_create, except the error of a request that fails, places of cache salts, when a request with one is
 * added, and host blocks and slots, which are allocated when a swap needs more than there are: most runs never swap,
 * and pinning gigabytes of host memory at start-up takes seconds.
 */
#ifndef QUIRE_SCHEDULER_SCHEDULER_H
#define QUIRE_SCHEDULER_SCHEDULER_H

#include "base/batch.h"
#include "base/log.h"
#include "scheduler/block_manager.h"
#include "scheduler/sequence.h"

enum preemption_mode { PREEMPTION_AUTO, PREEMPTION_RECOMPUTE, PREEMPTION_SWAP };
/* In which order requests run, and in which reverse order they are preempted: that of arrival, or first that of
 * request->priority and then that of arrival. */
enum scheduling_policy { SCHEDULING_FCFS, SCHEDULING_PRIORITY };

#define SCHEDULER_MAX_STEPS 8 /* in flight */

/* Allocates host memory for swaps: *added gets how many blocks or slots there are more. */
typedef enum status grow_host_function(void *user, int32_t *added, struct error *err);

struct scheduler_config {
    struct batch_limits limits;
    int32_t num_blocks;
    int32_t num_host_blocks; /* in swap space, numbered num_blocks + 1 .. num_blocks + num_host_blocks; 0: none */
    enum preemption_mode preemption_mode;
    enum scheduling_policy policy;
    int32_t num_host_slots; /* for swapped states, numbered limits.num_state_slots + 1 and on; 0: none */
    /* Called when a swap needs more blocks or slots than there are (at first there are none), and never for more than
     * the numbers above in all. If one fails, its sentence is logged as a warning, neither is called again, and
     * requests that do not fit in what there is are recomputed instead. NULL: they need no allocation. */
    grow_host_function *grow_host_blocks, *grow_host_slots;
    void *user;
    const struct log *log;       /* may be NULL */
    const char *blocks_setting;  /* the setting that decides num_blocks, for advice; NULL: none */
    int32_t first_namespace_len; /* most tokens of a sequence that is computed in cache namespace 0; 0: any number */
    int32_t namespace_position_shift; /* what is added to the positions of a sequence in cache namespace 1 */
    int32_t state_interval; /* with states and caching: snapshots of a prompt are at most so many tokens apart, and the
                               rest of a block; 0: there are none within it for that alone */
    int32_t num_batches;    /* 2 .. SCHEDULER_MAX_STEPS: see above; 0 or 1: two steps can be in flight, as they come */
    bool enable_prefix_caching;
    bool enable_chunked_prefill; /* false: a prompt is computed in one step, or with states in those that snapshots cut
                                    it into; needs max_num_tokens >= max_model_len */
    bool check_invariants;       /* after every operation; slow; on in debug builds and tests */
};

struct scheduler_stats {
    int32_t num_running, num_waiting, num_swapped;                   /* requests */
    int32_t blocks_total, blocks_in_use, blocks_cached, blocks_free; /* their sum is the total */
    int64_t prefix_queries, prefix_hits, evictions;                  /* tokens, tokens, blocks */
    int32_t host_blocks_in_use;
    int64_t blocks_swapped_out, blocks_swapped_in, states_swapped_out, states_swapped_in;
    int64_t preemptions_recompute, preemptions_swap, steps;
    int64_t tokens;                                /* computed, steps in flight included */
    int64_t runs, drafts, drafts_accepted;         /* collected: runs with drafts, their drafts, those accepted */
    int32_t state_slots_total, state_slots_in_use; /* in use: held by sequences */
    int32_t state_slots_cached;                    /* snapshots that no sequence holds */
    int32_t snapshots;                             /* of state slots, held by prefixes; some are in use as well */
    int64_t snapshots_made, snapshots_evicted, snapshot_hits;
};

enum schedule_result {
    SCHEDULE_BATCH,        /* the batch is filled: submit it */
    SCHEDULE_EMPTY,        /* nothing to compute now; if a step is in flight, collect it and ask again */
    SCHEDULE_COLLECT_FIRST /* a decision needs the step in flight: collect it and ask again */
};

/* A sequence whose drafts a step computes. */
struct scheduled_run {
    struct sequence *seq; /* has num_drafts */
    int32_t entry;        /* of its last token; those of the drafts follow */
};

struct schedule {
    enum schedule_result result;
    /* [num_admitted] the sequences that this step starts, for the first time or again: their sampling state and tokens
     * must reach the device before the batch runs. Owned by the scheduler, valid until the next call; none unless
     * SCHEDULE_BATCH. The siblings of an n > 1 request start when its prompt is complete: their first samples are taken
     * from the first sequence's last token. */
    struct sequence *const *admitted;
    int32_t num_admitted;
    struct sequence *const *sequences; /* [num_seqs of the batch] of each entry. Owned by the scheduler, valid until the
                                          next call; a sequence may end before that */
    struct sequence *const *sampled;   /* [num_samples of the batch] of each sample. Owned by the scheduler, valid until
                                          the step is collected */
    /* [num_runs] the step's runs, in the order of their entries. Owned by the scheduler, valid until the next call. */
    const struct scheduled_run *runs;
    int32_t num_runs;
};

/* A beam of the next step: the sequence that it continues, by index, and its next token. */
struct beam {
    int32_t parent, token;
};

/* A running sequence that may compute drafts in the next step. */
struct draftable {
    struct sequence *seq;
    int32_t most; /* drafts that it has room for: 1 .. MAX_DRAFTS */
};

/* A token that a collected step sampled for one sequence. A run has an event for each token that it yields, in order;
 * seq has all of them by then. */
struct token_event {
    struct sequence *seq;
    int32_t token;  /* appended to seq->tokens, even if it is a stop token. -1: the logits are damaged, and the sequence
                       has ended with FINISH_ERROR; the caller knows why, and sets request->error */
    int32_t sample; /* index into the arrays of struct sample_output. -1, with token -1: the damaged logits are those of
                       a prompt whose log-probabilities are wanted, and all sequences of the request have ended */
    int32_t num_outputs;              /* output tokens of the sequence up to this one; a beam's is not among them yet */
    enum finish_reason finish_reason; /* other than FINISH_NONE: the token ended the sequence */
};

struct scheduler;

enum status scheduler_create(const struct scheduler_config *config, struct scheduler **out, struct error *err);
void scheduler_destroy(struct scheduler *s);

/* Queues a request behind those added before it, and sets request->arrival (and its priority to 0 with FCFS). The
 * scheduler keeps the pointer until scheduler_next_finished() returns it. A request that can never fit ends with
 * FINISH_ERROR and a sentence, without harm to others: here if it has more sequences than run at once or may outgrow
 * max_model_len, otherwise when its turn comes. */
void scheduler_add(struct scheduler *s, struct request *request);
/* Ends every unfinished sequence with FINISH_ABORT. */
void scheduler_abort(struct scheduler *s, struct request *request);
/* Ends one sequence, for example when a stop string was found. Its blocks are free at once. */
void scheduler_finish(struct scheduler *s, struct sequence *seq, enum finish_reason reason);

/* Beam search: the request's sequences are its beams, and the caller decides after every collected step how they go on.
 * Until it has, none of them is scheduled. Sequence i becomes a copy of sequence beams[i].parent, of all of its tokens
 * and blocks, followed by beams[i].token. A parent may be named any number of times; a sequence that nobody names gives
 * its blocks back. Of a request with request->beams, scheduler_collect appends no token: its events say which sequences
 * have samples to choose from. Call it for a request of which every unfinished sequence had an event. A beam whose
 * tokens reach their capacity is not computed any further: the caller ends it with scheduler_finish. */
void scheduler_set_beams(struct scheduler *s, struct request *request, const struct beam *beams);

/* Fills out[max_num_seqs] with the running sequences that may compute drafts in the next step, by rank: those that have
 * one token to compute, no token pending, and room for another token behind it. Returns how many. */
int32_t scheduler_draftables(const struct scheduler *s, struct draftable *out);
/* The same for the step after those in flight, once they are collected: with a token that is pending counted as known,
 * as if it did not end the sequence. A sequence whose run is in flight is not among them. */
int32_t scheduler_draftables_later(const struct scheduler *s, struct draftable *out);
/* Gives such a sequence drafts[count], of which there may be more than it has room for, for the next call of
 * scheduler_schedule, which must follow. NULL: a drafter on the device makes them once the step is scheduled, and puts
 * what names them into the batch; then all drafts of the step are of this kind. */
void scheduler_set_drafts(struct scheduler *s, struct sequence *seq, const int32_t *drafts, int32_t count);

/* Fills `batch`, which was made for config.limits.
 *
 * Here and in scheduler_collect, STATUS_INTERNAL means that an internal inconsistency was found: a block that is not
 * free for a step that was found to fit, the release of a free block, a broken free list. The batch is empty then,
 * there are no events, and every later call of the two returns the same error: no request continues on blocks that it
 * does not have. */
enum status scheduler_schedule(struct scheduler *s, struct batch *batch, struct schedule *out, struct error *err);
/* Takes the samples of the oldest step in flight: appends the tokens and ends sequences on eos, stop ids (min_tokens
 * permitting, ignore_eos) or length. A sample whose sequence has ended since is dropped. Log-probabilities of prompts
 * go to request->prompt_logprobs, which is complete when an event brings the request's first token. *events gets
 * [*num_events], owned by the scheduler, valid until the next collect. */
enum status scheduler_collect(struct scheduler *s, const struct sample_output *samples,
                              const struct token_event **events, int32_t *num_events, struct error *err);

/* The newest step in flight was cancelled, so that some of its K and V are not written. Its requests end with
 * FINISH_ABORT, because their blocks cannot be trusted; the prefix cache forgets what the step was to write. Of two
 * steps in flight the older one stays. No call may come between the scheduler_schedule that filled the step and this
 * one: a sequence that ends in between would leave its blocks in the prefix cache. */
void scheduler_cancel(struct scheduler *s);

/* Removes and returns a request whose sequences have all ended and which no step in flight names; NULL: there is none.
 * It belongs to the caller again, without its cache_salt. */
struct request *scheduler_next_finished(struct scheduler *s);

bool scheduler_has_work(const struct scheduler *s);     /* requests not handed back, or steps in flight */
int32_t scheduler_in_flight(const struct scheduler *s); /* steps submitted and not collected */
void scheduler_get_stats(const struct scheduler *s, struct scheduler_stats *stats);
/* How many blocks the K and V of the running sequences would fill, those of the submitted steps included: for each
 * block in use, the filled part of it. Walks all tables. */
double scheduler_blocks_filled(const struct scheduler *s);
/* Blocks that the running sequences would take if each had blocks of its own. */
int64_t scheduler_blocks_unshared(const struct scheduler *s);

/* Empties the prefix cache, for measuring cold starts. Nothing may be running. */
void scheduler_reset_prefix_cache(struct scheduler *s);

/* The invariants of ARCHITECTURE.md over all sequences, and any inconsistency found earlier. Slow, for tests; with
 * check_invariants it runs after every operation, and schedule and collect return what it finds. */
enum status scheduler_check(const struct scheduler *s, struct error *err);

#endif
