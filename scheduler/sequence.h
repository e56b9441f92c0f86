/* A request and its sequences. A request is a prompt and how to sample it; a sequence is one answer in the making: its
 * tokens, its block table, and how far its K and V have been computed. Allocated when a request is added, so that
 * the step loop allocates nothing. */
#ifndef QUIRE_SCHEDULER_SEQUENCE_H
#define QUIRE_SCHEDULER_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/batch.h"
#include "base/status.h"
#include "scheduler/prefix_cache.h"
#include "scheduler/sampling_params.h"

enum sequence_status { SEQUENCE_WAITING, SEQUENCE_RUNNING, SEQUENCE_SWAPPED, SEQUENCE_FINISHED };
enum finish_reason { FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_ABORT, FINISH_ERROR };
const char *finish_reason_name(enum finish_reason reason); /* "stop", "length", "abort", "error"; NULL for NONE */

struct request;
struct request_queue;

/* The blocks of one KV cache group that hold a sequence's K and V. */
struct block_table {
    int32_t *blocks;    /* [batch_num_blocks of token_capacity] physical blocks; 0: the null block */
    int32_t num_blocks; /* entries so far */
    int32_t first;      /* the entries before this one are null: their blocks have left the window */
};

#define CACHE_LINE 64

struct sequence {
    /* What every step reads comes first, in one cache line and 12 bytes of the next. */
    _Alignas(CACHE_LINE) struct request *request;
    int32_t *tokens;            /* [token_capacity] prompt, then output; behind num_tokens its drafts */
    struct block_table *tables; /* [num_groups] */
    enum sequence_status status : 16;
    int32_t num_drafts : 16; /* of the step that is scheduled next or, with num_pending 1, of its run in flight */
    int32_t num_tokens;      /* known tokens */
    int32_t num_pending;  /* tokens sampled by steps in flight, not known yet: at most one a step. A beam's stays until
                             scheduler_set_beams says what follows */
    int32_t num_computed; /* tokens whose K and V are written, or will be by a submitted step, drafts included */
    int32_t num_writable; /* tokens up to this one are computed without a change of the tables, and of the device's */
    int32_t token_capacity; /* most tokens it can have: min(max_model_len, prompt_len + max_tokens) */
    int32_t prompt_len;     /* of the tokens, the prompt */
    int32_t num_hashed;     /* tokens that the prefix cache knows, from the first, in units of block_size */
    int32_t pending_sample; /* index of the last pending token among the samples of the newest step */
    int32_t state_index;    /* of its block table and sampling state on the device; -1: none */

    int64_t last_step; /* the newest step that names it, counted from 0; -1: none */
    int32_t state;     /* the slot of the state after num_computed tokens, with a run in flight after the first token of
                          the run; STATE_SLOT_NONE: after none */
    int32_t index;     /* which of the request's sequences */
    int32_t prefix;    /* that of these tokens, pinned (prefix_cache.h); PREFIX_NONE: num_hashed is 0 */
    int32_t num_uploaded[KV_MAX_GROUPS]; /* entries of each table that its row of the device's tables has */
    int32_t num_cached;                  /* of the prompt, tokens found in the prefix cache at the (first) admission */

    enum finish_reason finish_reason;
    int32_t stop_token; /* the stop token id that ended it (eos or of stop_token_ids), or -1 */

    int32_t boundary_state; /* the slot of the state after the first `boundary` tokens, kept beside `state` */
    int32_t boundary; /* the last boundary (state_pool.h) that it has passed, if it keeps the state; 0: it does not */
    int32_t parting;  /* it writes a snapshot after so many tokens, for which prompts wait; 0: it does not */
    int32_t parting_prefix; /* that of these tokens, pinned */

    int32_t drafter_computed; /* a drafter's: the tokens whose K and V its model has, from the first on; 0 at first */
};

/* The log-probabilities of a prompt's tokens, of a request with params.prompt_logprobs >= 0. Row t is of token t; row 0
 * is unused, because nothing comes before the first token. Steps compute the rows in order, each once: a request that
 * is computed again after a preemption goes on where it was. */
struct prompt_logprobs {
    int32_t num_tokens;    /* of the prompt */
    int32_t num_top;       /* params.prompt_logprobs */
    int32_t num_submitted; /* rows that submitted steps fill, row 0 included */
    float *logprobs;       /* [num_tokens] */
    int32_t *ranks;        /* [num_tokens] */
    int32_t *top_ids;      /* [num_tokens, num_top] */
    float *top_logprobs;   /* [num_tokens, num_top] */
};

/* Its sequences follow it in memory, and each of them begins a cache line. */
struct request {
    /* What every step reads comes first. */
    _Alignas(CACHE_LINE) struct request *next; /* in its queue */
    struct sequence *sequences;                /* [num_sequences] */
    struct cache_salt *cache_salt; /* owned; blocks are shared only with requests of the same salt; NULL: none. Set
                                      before scheduler_add */
    struct sequence *leader;       /* computes the prompt, for which the other sequences wait; NULL: none waits */
    int32_t num_sequences;
    uint8_t cache_namespace; /* of CACHE_NAMESPACES: blocks are shared only with requests of the same one. Set by
                                scheduler_set_namespace alone */
    bool beams;              /* beam search: its sequences go on by scheduler_set_beams. Set before scheduler_add */
    bool constrained;        /* its samples have masks, which the caller knows. Set before scheduler_add */
    bool stalled;            /* it was preempted, and has got no token since */
    int32_t num_eos;
    struct sampling_params params; /* owned */
    int32_t eos_token_ids[16];     /* [num_eos] */

    /* Tokens of the prompt that the next prompt of the conversation begins with, whatever the template makes of what
     * follows: there is a snapshot of the states after the last of their blocks. 0: unknown. Set before scheduler_add
     */
    int32_t state_boundary;

    uint64_t id;
    struct prompt_logprobs *prompt_logprobs; /* owned; scheduler_collect fills it; NULL: not asked for */

    /* What queues read, in one cache line. */
    _Alignas(CACHE_LINE) struct request_queue *queue; /* the scheduler's queue that it is in; NULL: none */
    struct request *previous, *child;
    uint64_t arrival; /* smaller is older */
    int32_t priority; /* smaller is scheduled earlier; the scheduler makes it 0 unless SCHEDULING_PRIORITY */
    int32_t num_preemptions;
    int64_t retry_gains; /* block_manager.gains before which it cannot start: see block_manager_can_allocate */
    void *user;          /* the engine's */
    struct error *error; /* owned; with FINISH_ERROR: why, or NULL if memory ran out; see request_error */
};

/* Allocates a request with sampling_params_num_sequences sequences of at most limits->max_model_len tokens, and copies
 * params, and the prompt to each. prompt_len must be 1 to max_model_len (STATUS_INVALID). A prompt of max_model_len
 * tokens still gets one output token, whose K and V are never computed; `tokens` has room for it. */
enum status request_create(const struct sampling_params *params, const int32_t *prompt, int32_t prompt_len,
                           const struct batch_limits *limits, struct request **out, struct error *err);
void request_destroy(struct request *request);

/* The most tokens of a prompt that may be found in the prefix cache: the logits that prompt_logprobs still lack must be
 * computed. */
int32_t request_most_cached(const struct request *request);

/* For writing why the request failed: request->error, which is allocated here, because few requests need it. NULL if
 * memory ran out, which error_set and error_advise allow. */
struct error *request_error(struct request *request);

bool request_finished(const struct request *request);                     /* all its sequences are */
struct sequence *request_first_unfinished(const struct request *request); /* NULL: none */
int32_t request_num_unfinished(const struct request *request);

#endif
