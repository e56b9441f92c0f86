/* A model of several ranks: one thread calls each of them. */
#include "base/pool.h"
#include "model/model_state.h"

struct rank_calls {
    struct model *first;
    rank_function *function;
    void *context;
    enum status status[COLLECTIVE_MAX_RANKS];
    struct error errors[COLLECTIVE_MAX_RANKS];
};

static struct model *model_of(struct model *first, int64_t rank)
{
    return rank == 0 ? first : first->others[rank - 1];
}

static void call_rank(void *rank_calls, int64_t rank, int thread)
{
    struct rank_calls *c = rank_calls;
    (void)thread;
    c->status[rank] = c->function(model_of(c->first, rank), c->context, &c->errors[rank]);
}

enum status model_for_ranks(struct model *m, rank_function *function, void *context, struct error *err)
{
    const int32_t num_ranks = 1 + m->num_others;
    struct rank_calls calls = {.first = m, .function = function, .context = context};
    if (num_ranks == 1) return function(m, context, err);
    pool_run(m->rank_threads, num_ranks, num_ranks, call_rank, &calls);
    for (int32_t r = 0; r < num_ranks; r++) {
        if (calls.status[r] == STATUS_OK) continue;
        return error_set(err, calls.status[r], "rank %d (%s): %s", r, model_of(m, r)->backend->name,
                         calls.errors[r].text);
    }
    return STATUS_OK;
}
