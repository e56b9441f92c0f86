/* A model of several ranks: one thread calls each of them. Those of other processes are called by model/nodes/calls.h.
 */
#include "base/pool.h"
#include "kernels/group_failure.h"
#include "model/model_state.h"
#include "model/stage.h"

struct rank_calls {
    struct model *first;
    rank_function *function;
    void *context;
    enum status status[COLLECTIVE_MAX_RANKS];
    struct error errors[COLLECTIVE_MAX_RANKS];
};

/* "rank 1 (cuda:1): the sentence" */
static enum status name_rank(const struct model *m, enum status status, const struct error *why, struct error *err)
{
    return error_set(err, status, "rank %d (%s): %s", stage_rank(m->spec), m->backend->name, why->text);
}

/* Whether other ranks may be waiting for one whose call ended so. A step that is cancelled is so on all. */
static bool ends_group(enum status status)
{
    return status != STATUS_OK && status != STATUS_CANCELLED && status != STATUS_OUT_OF_MEMORY;
}

static void call_rank(void *rank_calls, int64_t rank, int thread)
{
    struct rank_calls *c = rank_calls;
    struct model *m = model_rank_of(c->first, (int32_t)rank);
    (void)thread;
    c->status[rank] = c->function(m, c->context, &c->errors[rank]);
    if (!ends_group(c->status[rank]) || group_has_failed(m->backend->failure)) return;
    struct error why;
    name_rank(m, c->status[rank], &c->errors[rank], &why);
    group_fail(m->backend->failure, c->status[rank], why.text);
}

enum status model_for_ranks(struct model *m, rank_function *function, void *context, struct error *err)
{
    const int32_t num_ranks = 1 + m->num_others;
    struct rank_calls calls = {.first = m, .function = function, .context = context};
    if (!m->backend->failure) return function(m, context, err);
    pool_run(m->rank_threads, num_ranks, num_ranks, call_rank, &calls);
    if (group_has_failed(m->backend->failure)) return group_failure_get(m->backend->failure, err);
    for (int32_t r = 0; r < num_ranks; r++)
        if (calls.status[r] != STATUS_OK) return name_rank(model_rank_of(m, r), calls.status[r], &calls.errors[r], err);
    return STATUS_OK;
}
