/* Collective operations of ranks that are threads of one process: they read and write each other's memory between two
 * barriers. Where other processes have ranks, too, the process's first rank does the work with them in between.
 *
 * all_reduce: each rank adds a slice of the elements of all ranks, and writes it to all of them. */
#include <stdlib.h>
#include <string.h>

#include "base/spin.h"
#include "kernels/cpu/group.h"

static const double SLEEP_SECONDS = 0.1; /* until a rank looks whether the group has failed */

/* Whoever goes to sleep says so and looks again before it sleeps; the last to arrive looks for sleepers after it has
 * changed what they wait for. False: the group has failed, and a rank may be missing. */
static bool barrier(struct cpu_ranks *g)
{
    const unsigned number = atomic_load(&g->barriers);
    if (atomic_fetch_add(&g->arrived, 1) == g->num_ranks - 1) {
        atomic_store(&g->arrived, 0);
        atomic_store(&g->barriers, number + 1);
        if (atomic_load(&g->asleep) > 0) futex_wake(&g->barriers, FUTEX_ALL);
        return !group_has_failed(g->failure);
    }
    struct spin s = {0};
    while (atomic_load(&g->barriers) == number && !group_has_failed(g->failure)) {
        if (spin(&s)) continue;
        atomic_fetch_add(&g->asleep, 1);
        futex_wait_for(&g->barriers, number, SLEEP_SECONDS);
        atomic_fetch_sub(&g->asleep, 1);
    }
    return !group_has_failed(g->failure);
}

/* Tells the others, and returns the notices of all ranks when all have told theirs; NULL: the group has failed. */
static const struct notice *tell(struct cpu_state *s, const struct notice *notice)
{
    struct notice *notices = s->group->notices[s->group_calls++ % 2];
    notices[s->rank] = *notice;
    return barrier(s->group) ? notices : NULL;
}

/* Whether this rank does what is to be done with other nodes. */
static bool speaks(const struct cpu_state *s)
{
    return s->group->nodes && s->rank == 0;
}

struct reduction {
    const struct notice *ranks;
    enum dtype dtype;
    int64_t begin, end; /* the slice of this rank */
};

static void reduce_piece(const struct cpu_state *s, const void *args, int64_t index, int thread)
{
    const struct reduction *r = args;
    const int64_t first = r->begin + index * CPU_PIECE, count = min_i64(CPU_PIECE, r->end - first);
    float sum[CPU_PIECE], part[CPU_PIECE];
    (void)thread;
    s->kernels->to_float(sum, cpu_element(r->ranks[0].x, r->dtype, first), r->dtype, count);
    for (int32_t k = 1; k < s->group->num_ranks; k++) {
        s->kernels->to_float(part, cpu_element(r->ranks[k].x, r->dtype, first), r->dtype, count);
        for (int64_t i = 0; i < count; i++) sum[i] += part[i];
    }
    void *rounded = cpu_element_out(r->ranks[0].x, r->dtype, first);
    s->kernels->from_float(rounded, sum, r->dtype, count);
    for (int32_t k = 1; k < s->group->num_ranks; k++)
        memcpy(cpu_element_out(r->ranks[k].x, r->dtype, first), rounded, (size_t)(count * dtype_size(r->dtype)));
}

static void all_reduce(struct backend *b, const struct all_reduce_args *args)
{
    struct cpu_state *s = cpu_state(b);
    const struct notice *ranks = tell(s, &(struct notice){.x = args->x});
    if (!ranks) return;
    if (speaks(s)) cpu_nodes_all_reduce(s, ranks, args);
    if (s->group->nodes) {
        barrier(s->group);
        return;
    }
    const int64_t slice = cpu_align(divide_up(max_i64(args->count, 0), s->group->num_ranks)); /* whole cache lines */
    const struct reduction reduction = {.ranks = ranks,
                                        .dtype = args->dtype,
                                        .begin = min_i64(s->rank * slice, args->count),
                                        .end = min_i64((s->rank + 1) * slice, args->count)};
    const int64_t count = reduction.end - reduction.begin;
    cpu_for(s, count * s->group->num_ranks, divide_up(count, CPU_PIECE), reduce_piece, &reduction);
    barrier(s->group);
}

static void all_gather(struct backend *b, const struct all_gather_args *args)
{
    struct cpu_state *s = cpu_state(b);
    const struct notice *ranks =
        tell(s, &(struct notice){.x = args->x, .stride = args->stride, .first = args->first, .columns = args->columns});
    if (!ranks) return;
    if (speaks(s)) cpu_nodes_all_gather(s, ranks, args);
    for (int32_t k = 0; k < s->group->num_ranks; k++) {
        const struct notice *from = &ranks[k];
        for (int64_t row = 0; row < args->rows && k != s->rank && from->columns > 0; row++)
            memcpy(args->x + row * args->stride + from->first,
                   (const float *)from->x + row * from->stride + from->first, (size_t)from->columns * sizeof(float));
    }
    barrier(s->group);
}

static bool agree(struct backend *b, bool mine)
{
    struct cpu_state *s = cpu_state(b);
    struct cpu_ranks *g = s->group;
    const struct notice *ranks = tell(s, &(struct notice){.agreed = mine});
    if (!ranks) return false;
    if (!g->nodes) return ranks[0].agreed;
    if (speaks(s)) g->agreed = cpu_nodes_agree(s, mine);
    return barrier(g) && g->agreed;
}

static enum status open_group(struct backend *const *ranks, int32_t num_ranks, struct cpu_nodes *nodes,
                              struct error *err)
{
    struct cpu_ranks *g = NULL;
    if (posix_memalign((void **)&g, CPU_LINE, sizeof *g) != 0) {
        cpu_nodes_close(nodes);
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory opening a group of %d ranks", num_ranks);
    }
    memset(g, 0, sizeof *g);
    g->num_ranks = num_ranks;
    g->nodes = nodes;
    g->failure = ranks[0]->failure;
    atomic_init(&g->members, num_ranks);
    for (int32_t i = 0; i < num_ranks; i++) {
        cpu_state(ranks[i])->group = g;
        cpu_state(ranks[i])->rank = i;
        ranks[i]->all_reduce = all_reduce;
        ranks[i]->all_gather = all_gather;
        ranks[i]->agree = agree;
    }
    return STATUS_OK;
}

enum status backend_cpu_group_open(struct backend *const *ranks, int32_t num_ranks, struct error *err)
{
    return open_group(ranks, num_ranks, NULL, err);
}

enum status backend_cpu_group_join(struct backend *const *ranks, int32_t count, const struct group_nodes *nodes,
                                   struct error *err)
{
    struct cpu_nodes *others;
    const enum status status = cpu_nodes_open(nodes, count, &others, err);
    return status == STATUS_OK ? open_group(ranks, count, others, err) : status;
}

void cpu_group_leave(struct cpu_state *s)
{
    if (!s->group || atomic_fetch_sub(&s->group->members, 1) > 1) return;
    cpu_nodes_close(s->group->nodes);
    free(s->group);
}
