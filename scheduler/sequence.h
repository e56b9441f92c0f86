/* A request and its sequences. A request is a prompt and how to sample it; a sequence is one answer in the making: its
 * tokens, its block table, and how far its K and V have been computed. Allocated when a request is added, so that
 * the step loop allocates nothing. */
#ifndef QUIRE_SCHEDULER_SEQUENCE_H
#define QUIRE_SCHEDULER_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/sampling_params.h"

enum sequence_status { SEQUENCE_WAITING, SEQUENCE_RUNNING, SEQUENCE_SWAPPED, SEQUENCE_FINISHED };
enum finish_reason { FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_ABORT, FINISH_ERROR };
const char *finish_reason_name(enum finish_reason reason); /* "stop", "length", "abort", "error"; NULL for NONE */

struct request;
struct request_queue;

struct sequence {
    struct request *request;
    int32_t index; /* which of the request's n answers */
    enum sequence_status status;
    enum finish_reason finish_reason;
    int32_t stop_token; /* the stop token id that ended it (eos or of stop_token_ids), or -1 */

    int32_t *tokens;        /* [token_capacity] prompt, then output */
    int32_t num_tokens;     /* known tokens */
    int32_t prompt_len;     /* of those, the prompt */
    int32_t token_capacity; /* most tokens it can have: min(max_model_len, prompt_len + max_tokens) */
    int32_t num_pending;    /* tokens sampled by steps in flight, not known yet: at most one a step */
    int32_t pending_sample; /* index of the last of them among the samples of the newest step */
    int32_t num_computed;   /* tokens whose K and V are written, or will be by a submitted step */
    int32_t num_cached;     /* of the prompt, tokens found in the prefix cache at the (first) admission */

    int32_t *block_table; /* [ceil(token_capacity / block_size)] physical blocks; 0: the null block */
    int32_t num_blocks;
    int32_t num_uploaded; /* entries of block_table that the device's block table has */
    int32_t num_hashed;   /* full blocks with a prefix id, from the first */
    uint64_t prefix_id;   /* of the last of those, or that of an empty prefix */

    int32_t state_index; /* of its block table and sampling state on the device; -1: none */
    int32_t in_flight;   /* steps in flight that name it: its blocks are not released before they are collected */
    int64_t first_step;  /* the scheduler's num_steps when it last started to run */
};

struct request {
    uint64_t id;
    uint64_t arrival;              /* smaller is older */
    struct sampling_params params; /* owned */
    int32_t eos_token_ids[16], num_eos;
    uint64_t extra_key;         /* part of every block's identity: adapter, salt; 0: none */
    char *cache_salt;           /* owned; blocks are shared only with requests of the same salt; NULL: none */
    int32_t priority;           /* smaller is scheduled earlier, with SCHEDULING_PRIORITY */
    struct sequence *sequences; /* [params.n] */
    int32_t num_sequences;
    struct sequence *leader; /* while admitted: computes the prompt, for which the other sequences wait */
    bool forked;             /* the prompt was computed, and each sequence has tokens of its own since */
    bool long_rope;          /* its tokens are rotated as those of long sequences: scheduler_config.rope_switch */
    bool aborted;
    int32_t num_preemptions;
    struct error *error;         /* owned; with FINISH_ERROR: why, or NULL if memory ran out; see request_error */
    void *user;                  /* the engine's */
    struct request_queue *queue; /* the scheduler's queue that it is in; NULL: none */
    struct request *next, *previous;
};

/* Allocates a request with params.n sequences of at most max_model_len tokens in blocks of block_size, and copies the
 * params, and the prompt to each. prompt_len must be 1 to max_model_len (STATUS_INVALID). A prompt of max_model_len
 * tokens still gets one output token, whose K and V are never computed; `tokens` has room for it. */
enum status request_create(const struct sampling_params *params, const int32_t *prompt, int32_t prompt_len,
                           int32_t max_model_len, int32_t block_size, struct request **out, struct error *err);
void request_destroy(struct request *request);

/* For writing why the request failed: request->error, which is allocated here, because few requests need it. NULL if
 * memory ran out, which error_set and error_advise allow. */
struct error *request_error(struct request *request);

bool request_finished(const struct request *request);                     /* all its sequences are */
struct sequence *request_first_unfinished(const struct request *request); /* NULL: none */
int32_t request_num_unfinished(const struct request *request);

#endif
