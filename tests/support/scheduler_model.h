/* A scheduler, a device of slots (slot_device.h) and, beside them, what must be true: each request's tokens on plain
 * arrays, the holders of each block counted again from all tables, and the policy. Operations (operation_list.h) drive
 * the scheduler through its public interface, and after each of them everything is compared:
 *
 *     contents   each sequence's tables read back its own tokens, wherever its next query reads; so do the blocks that
 *                the prefix cache would give it
 *     slots      none is written twice or read before it is written
 *     counts     a block's count is the number of table entries that name it; free + cached + in use = total
 *     policy     order of arrival or priority, who is preempted, what a preempting step may start, the watermark, and
 *                that nobody waits who fits
 *     cache      full blocks can be found, and are evicted for other contents alone: the end of a sequence before its
 *                beginning, and none while there are blocks that were never taken
 *     drafts     who may have some; a run yields the right ones and one token more; slots of the wrong ones are not
 * read and are written again, and their blocks are free; no step preempts or waits for drafts cancelled  the requests
 * of a cancelled step end as aborted, with the tokens that they had; no other does tokens     a request ends with those
 * that it has when it runs alone, and with the prompt_logprobs of its prompt
 *
 * The scheduler's own scheduler_check runs as well. */
#ifndef QUIRE_TESTS_SUPPORT_SCHEDULER_MODEL_H
#define QUIRE_TESTS_SUPPORT_SCHEDULER_MODEL_H

#include "tests/support/operation_list.h"

#define SCHEDULER_MODEL_MAX_REQUESTS 16 /* at once; more are not added */
#define SCHEDULER_MODEL_MAX_N 4         /* sequences of one request */

struct scheduler_model;

/* What a run has been through: a run that misses a path proves nothing about it. */
struct scheduler_model_totals {
    int64_t operations, steps, copies, collect_first, recomputed, swapped, swapped_in, hits, evictions, forks, beams,
        window_blocks, mixed_hits, mixed_swapped_in, namespace_changes, targets, cancelled, cancelled_second, requests,
        stops, lengths, aborts, errors, host_failures;
    int64_t runs, drafts, accepted; /* collected */
    int64_t rollbacks;              /* of runs that gave blocks back */
    int64_t ends_in_runs;           /* before the last token that a run yields */
    int64_t device_runs;            /* of those whose drafts are the device's */
    int64_t lost_runs;              /* of sequences that had ended, or whose step was cancelled */
    int64_t dropped;                /* drafts that had no room */
    int64_t snapshots, snapshots_evicted, snapshot_hits;
    int64_t states_swapped_in;
    int64_t cuts;            /* chunks that ended where a snapshot was wanted */
    int64_t awaited;         /* times that a request waited for a snapshot */
    int64_t state_runs;      /* runs with drafts, of sequences with states */
    int64_t kept, recovered; /* kept: steps after which a sequence had a boundary; recovered: starts from a snapshot of
                                requests that were preempted */
};
void scheduler_model_totals_add(struct scheduler_model_totals *to, const struct scheduler_model_totals *from);

/* `config` is an OPERATION_CONFIG; its values are clamped to what a scheduler accepts. */
enum status scheduler_model_create(const struct operation *config, struct scheduler_model **out, struct error *err);
void scheduler_model_destroy(struct scheduler_model *m);

/* Does the operation, if it can be done now, and checks everything. */
enum status scheduler_model_apply(struct scheduler_model *m, const struct operation *operation, struct error *err);
/* Runs until every request has ended, and checks that nothing is held then. */
enum status scheduler_model_finish(struct scheduler_model *m, struct error *err);

/* Leaves out what only compares, for a beginning that was checked before. */
void scheduler_model_set_unchecked(struct scheduler_model *m, bool unchecked);

int32_t scheduler_model_in_flight(const struct scheduler_model *m);
int32_t scheduler_model_num_requests(const struct scheduler_model *m);
/* The number of the index-th request that has not been handed back. */
int32_t scheduler_model_request(const struct scheduler_model *m, int32_t index);
/* Whether the request with this number waits for OPERATION_BEAMS. */
bool scheduler_model_beams_are_due(const struct scheduler_model *m, int32_t number);
const struct scheduler_model_totals *scheduler_model_get_totals(struct scheduler_model *m);

/* A hash of all that the future depends on: two runs with the same state go on alike. */
uint64_t scheduler_model_state(const struct scheduler_model *m);
/* Queues, sequences and tables, for people. */
void scheduler_model_print(const struct scheduler_model *m, FILE *out);

#endif
