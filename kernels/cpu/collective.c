/* Collective operations of ranks that are threads of one process: they read and write each other's memory between two
 * barriers.
 *
 * all_reduce: each rank adds a slice of the elements of all ranks, and writes it to all of them. */
#include <stdlib.h>
#include <string.h>

#include "base/spin.h"
#include "kernels/cpu/state.h"

enum { LINE = 128 /* bytes; processors fetch cache lines in pairs */ };

/* What a rank tells the others. */
struct notice {
    void *x;
    int64_t stride, first, columns; /* of all_gather */
    bool agreed;
};

struct cpu_ranks {
    int32_t num_ranks;
    atomic_int members; /* that have not left */
    /* The ranks at the barrier; and the number of the barrier, on which they sleep, and how many of them do. */
    _Alignas(LINE) atomic_int arrived;
    _Alignas(LINE) atomic_uint barriers;
    atomic_int asleep;
    /* Notices of even and of odd calls. A rank that has left the first barrier of a call may write its next notice
     * while others still read this one. It is never two calls ahead. */
    struct notice notices[2][COLLECTIVE_MAX_RANKS];
};

/* Whoever goes to sleep says so and looks again before it sleeps; the last to arrive looks for sleepers after it has
 * changed what they wait for. */
static void barrier(struct cpu_ranks *g)
{
    const unsigned number = atomic_load(&g->barriers);
    if (atomic_fetch_add(&g->arrived, 1) == g->num_ranks - 1) {
        atomic_store(&g->arrived, 0);
        atomic_store(&g->barriers, number + 1);
        if (atomic_load(&g->asleep) > 0) futex_wake(&g->barriers, FUTEX_ALL);
        return;
    }
    struct spin s = {0};
    while (atomic_load(&g->barriers) == number) {
        if (spin(&s)) continue;
        atomic_fetch_add(&g->asleep, 1);
        futex_wait(&g->barriers, number);
        atomic_fetch_sub(&g->asleep, 1);
    }
}

/* Tells the others, and returns the notices of all ranks when all have told theirs. */
static const struct notice *tell(struct cpu_state *s, const struct notice *notice)
{
    struct notice *notices = s->group->notices[s->group_calls++ % 2];
    notices[s->rank] = *notice;
    barrier(s->group);
    return notices;
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
    return tell(cpu_state(b), &(struct notice){.agreed = mine})[0].agreed;
}

enum status backend_cpu_group_open(struct backend *const *ranks, int32_t num_ranks, struct error *err)
{
    struct cpu_ranks *g = NULL;
    if (posix_memalign((void **)&g, LINE, sizeof *g) != 0)
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory opening a group of %d ranks", num_ranks);
    memset(g, 0, sizeof *g);
    g->num_ranks = num_ranks;
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

void cpu_group_leave(struct cpu_state *s)
{
    if (s->group && atomic_fetch_sub(&s->group->members, 1) == 1) free(s->group);
}
