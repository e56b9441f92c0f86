/* The state of the scheduler's model, and what its files call of each other. Private to scheduler_model*.c.
 *
 *     scheduler_model.c           operations: what is done to the scheduler and to the device
 *     scheduler_model_request.c   requests, as they are alone
 *     scheduler_model_check.c     contents, counts and tokens
 *     scheduler_model_policy.c    who starts, who is preempted, who waits
 *     scheduler_model_drafts.c    who gets drafts, and what comes of them
 *     scheduler_model_states.c    state slots and snapshots
 *     scheduler_model_digest.c    a hash of the state
 */
#ifndef QUIRE_TESTS_SUPPORT_SCHEDULER_MODEL_STATE_H
#define QUIRE_TESTS_SUPPORT_SCHEDULER_MODEL_STATE_H

#include "scheduler/scheduler_state.h"
#include "tests/support/scheduler_model.h"
#include "tests/support/slot_device.h"

#define MAX_BLOCKS 512 /* of the device and of the host */
#define MAX_GROUPS 4
#define MAX_LENGTH 64 /* max_model_len */
enum { MAX_SEQS = 12, MAX_STEP_DRAFTS = 40, MAX_SPARE_STATES = 200, MAX_HOST_SLOTS = 40 };

enum place { PLACE_WAITING, PLACE_SWAPPED, PLACE_RUNNING, PLACE_ENDED };

/* The drafts of a sequence. */
struct model_drafts {
    int32_t given;               /* for the step that is being scheduled */
    int32_t tokens[MAX_DRAFTS];  /* [given] or, of a run in flight, [count] */
    int32_t count;               /* of the run in flight; 0: none is */
    int32_t sample;              /* of the step, the run's first */
    int64_t step;                /* of the device */
    int32_t length, blocks;      /* of the sequence, before the run is collected; -1: it has ended by then */
    int32_t accepted, collected; /* drafts of the run that are right, and tokens that it yields */
};

/* A request and what the model knows of it, each by sequence. */
struct model_request {
    int32_t number;
    struct request *request;
    struct true_sequence truth[SCHEDULER_MODEL_MAX_N];
    int32_t alone_length[SCHEDULER_MODEL_MAX_N]; /* tokens with which it ends if it runs alone */
    enum finish_reason alone_reason[SCHEDULER_MODEL_MAX_N];
    int32_t computed[SCHEDULER_MODEL_MAX_N]; /* tokens that the batches had; the cached ones included */
    bool sampled[SCHEDULER_MODEL_MAX_N];     /* a beam that waits to be chosen */
    bool ended[SCHEDULER_MODEL_MAX_N];       /* by an operation */
    bool damaged[SCHEDULER_MODEL_MAX_N];     /* by a sample that could not be taken */
    struct model_drafts drafts[SCHEDULER_MODEL_MAX_N];
    int32_t scored;                /* tokens of the prompt that the batches had as targets, from the first */
    bool stalled;                  /* it was preempted, and has got no token since */
    bool named[SLOT_DEVICE_STEPS]; /* by which steps in flight, in the device's order */
    /* Before the step that is being scheduled. */
    enum place place;
    int32_t namespace_before;
    bool was_due, waited; /* waited: its other sequences waited for the prompt */
    int32_t held;         /* distinct blocks */
    int32_t held_states;  /* distinct state slots */
    int32_t preemptions;
    enum sequence_status status[SCHEDULER_MODEL_MAX_N];
    int32_t pending[SCHEDULER_MODEL_MAX_N];
    int32_t found[SCHEDULER_MODEL_MAX_N];  /* tokens whose blocks the prefix cache could give it */
    int32_t length[SCHEDULER_MODEL_MAX_N]; /* tokens, before the step is cancelled */
    /* Before the operation. */
    struct model_table {
        int32_t blocks[MAX_LENGTH], count, first; /* first: the first that is read */
    } tables[SCHEDULER_MODEL_MAX_N][MAX_GROUPS];
};

struct scheduler_model {
    struct scheduler_config config;
    struct scheduler *scheduler;
    struct slot_device device;
    struct batch batch;
    struct model_request *live[SCHEDULER_MODEL_MAX_REQUESTS]; /* [num_live] in order of arrival */
    int32_t num_live;
    int32_t watermark, num_hashes; /* num_hashes: of the prefix cache; 0: its own */
    int32_t host_grow, host_fails, host_calls;
    bool host_misuse;                  /* more host blocks were asked for after a failure, or none */
    int32_t counts[MAX_BLOCKS];        /* holders of each block */
    int32_t held;                      /* device blocks with a holder */
    int32_t counts_before[MAX_BLOCKS]; /* before the operation */
    bool findable_before[MAX_BLOCKS];
    int64_t evictions; /* of blocks and snapshots, before the step that is being scheduled */
    int32_t num_given; /* drafts for the step that is being scheduled, of all sequences */
    bool on_device;    /* they are known when it is collected */
    int64_t free_before, most_cost, most_cost_of_drafts; /* blocks before that step: free ones, and those that it takes
                                                            at most, without drafts and for them */
    bool unchecked;                                      /* see scheduler_model_set_unchecked */
    struct scheduler_model_totals totals;
};

/* Whether the groups' blocks have several sizes. */
static inline bool model_is_mixed(const struct scheduler_model *m)
{
    const struct batch_limits *limits = &m->config.limits;
    for (int32_t g = 1; g < limits->num_groups; g++)
        if (limits->block_shifts[g] != limits->block_shifts[0]) return true;
    return false;
}

static inline int32_t model_clamp(int32_t value, int32_t least, int32_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* ---- scheduler_model_request.c ---- */

struct model_request *model_find(const struct scheduler_model *m, int32_t number); /* NULL: it is not there */
struct model_request *model_of(const struct scheduler_model *m, const struct request *request);
/* The sequence that has this place on the device: its request, and *index. */
struct model_request *model_of_state(const struct scheduler_model *m, int32_t state_index, int32_t *index);
enum status model_add(struct scheduler_model *m, const int32_t *values, struct error *err);

enum place model_place(const struct request *request);
/* Whether a runs before b. */
bool model_precedes(const struct scheduler_model *m, const struct request *a, const struct request *b);
/* Whether all beams wait to be chosen. */
bool model_beams_are_due(const struct model_request *r);
/* Whether the sequence runs and has blocks. One whose last token is pending has given its place on. */
bool model_has_place(const struct sequence *seq);
bool model_awaits_its_end(const struct sequence *seq);
bool model_is_admitted(const struct schedule *schedule, const struct sequence *seq);
/* The first position that a query at `position` reads in this group. */
int32_t model_first_read(const struct scheduler_model *m, int32_t group, int32_t position);
/* Blocks that the request holds, a shared one counted once. */
int32_t model_num_distinct(const struct scheduler_model *m, const struct request *request);

/* ---- scheduler_model_check.c ---- */

/* Remembers, before an operation, what blocks there are. */
enum status model_remember_blocks(struct scheduler_model *m, struct error *err);
/* All that must be true after an operation, the policy apart. forgets: the prefix cache may forget blocks in it. */
enum status model_check(struct scheduler_model *m, bool forgets, struct error *err);
/* Counts the holders of each block from all tables. */
enum status model_count_holders(struct scheduler_model *m, struct error *err);
enum status model_check_tokens(const struct model_request *r, const struct sequence *seq, struct error *err);
/* The blocks on the way of the sequence's tokens through the prefix cache hold these tokens. *found (may be NULL) gets
 * how many of them it could start with. */
enum status model_check_found(const struct scheduler_model *m, const struct model_request *r,
                              const struct sequence *seq, int32_t *found, struct error *err);
/* Sequence i of the batch goes on where it was, its full blocks can be found, and it holds no more than it needs. */
enum status model_check_progress(struct scheduler_model *m, const struct schedule *schedule, int32_t i,
                                 struct error *err);
enum status model_check_blocks_held(struct scheduler_model *m, int32_t i, struct error *err);
/* Sequence i of the batch has the targets that its request lacks, as far as it is computed, and no others. */
enum status model_check_targets(struct scheduler_model *m, int32_t i, struct error *err);
/* A request that got a token has all rows. */
enum status model_check_prompt_logprobs(const struct model_request *r, struct error *err);
/* How a sequence of a request that is handed back has ended. */
enum status model_check_end(struct scheduler_model *m, struct model_request *r, int32_t index, struct error *err);

/* ---- scheduler_model_drafts.c ---- */

/* Gives the sequences that may have drafts some for the next step, as the operation says. */
enum status model_give_drafts(struct scheduler_model *m, const int32_t *values, struct error *err);
/* Before a step is submitted: the schedule names its runs. If their drafts are the device's, it gets them. */
enum status model_submit_drafts(struct scheduler_model *m, const struct schedule *schedule, struct error *err);
/* The runs of the step that was submitted have the drafts that were given, as far as there was room. */
enum status model_check_runs(struct scheduler_model *m, struct error *err);
/* A step that is scheduled does not suffer from drafts. */
enum status model_check_drafts_give_way(const struct scheduler_model *m, const struct schedule *schedule,
                                        struct error *err);
/* The runs of the device's newest step, which is cancelled, are in flight no more. */
void model_cancel_runs(struct scheduler_model *m);
/* Before a step is collected: what its runs must yield. After it: whether they did. */
void model_remember_runs(struct scheduler_model *m, const struct sample_output *samples);
enum status model_check_collected(struct scheduler_model *m, const struct token_event *events, int32_t num_events,
                                  struct error *err);
/* What the sequence's slots hold: of a run in flight, with its drafts, in *scratch. */
const struct true_sequence *model_contents(const struct model_request *r, const struct sequence *seq,
                                           struct true_sequence *scratch);

/* ---- scheduler_model_states.c ---- */

/* The state slots of running sequences hold their states. */
enum status model_check_states(struct scheduler_model *m, struct error *err);
/* Where the sequence's prefix has a snapshot, that is the state after its tokens. *usable: whether it has one. */
enum status model_check_snapshot(const struct scheduler_model *m, const struct true_sequence *seq, int32_t prefix,
                                 int32_t num_tokens, bool *usable, struct error *err);
/* Whether a snapshot is pending that the request, which waits, could start from. */
bool model_awaits_snapshot(const struct scheduler_model *m, const struct model_request *r);
/* Distinct state slots that sequences of these requests go on from. */
int32_t model_num_states(struct model_request *const *requests, int32_t count);
/* The sequence computes its tokens start to end in a step: not over a boundary where a snapshot is wanted, and what
 * ends at one becomes a snapshot. */
enum status model_check_cut(struct scheduler_model *m, const struct model_request *r, const struct sequence *seq,
                            int32_t start, int32_t end, struct error *err);
/* Whether there are so many state slots that none is ever lacking. */
bool model_has_ample_states(const struct scheduler_model *m);
int64_t model_num_evictions(const struct scheduler_model *m);

/* ---- scheduler_model_policy.c ---- */

enum status model_check_policy(struct scheduler_model *m, const struct schedule *schedule, struct error *err);

/* The most steps that can be in flight. */
static inline int32_t model_most_steps(const struct scheduler_model *m)
{
    return m->config.num_batches > 1 ? m->config.num_batches : 2;
}

#endif
