#include "kernels/transfer.h"

#include <stdlib.h>

#include "base/spin.h"
#include "kernels/group_failure.h"

static const double SLEEP_SECONDS = 0.1; /* until a rank looks whether the group has failed */

struct post {
    const void *x; /* NULL: nothing comes */
    backend_event made;
};

/* What one rank sends to one other: a ring of posts. */
struct link {
    atomic_uint sent; /* the receiver sleeps on it */
    atomic_int asleep;
    unsigned received;
    struct post posts[TRANSFER_MAX_AHEAD];
};

struct transfers {
    atomic_int members;                                            /* ends that are open */
    struct link links[COLLECTIVE_MAX_RANKS][COLLECTIVE_MAX_RANKS]; /* [from][to] */
};

/* A rank's, which its backend owns. */
struct transfer_end {
    struct transfers *all;
    int32_t rank;
    unsigned sent;                            /* to all others together */
    backend_event events[TRANSFER_MAX_AHEAD]; /* of sends in turn */
};

/* Whoever goes to sleep says so and looks again before it sleeps. */
static void put(struct link *l, struct post post)
{
    const unsigned number = atomic_load(&l->sent);
    l->posts[number % TRANSFER_MAX_AHEAD] = post;
    atomic_store(&l->sent, number + 1);
    if (atomic_load(&l->asleep) > 0) futex_wake(&l->sent, FUTEX_ALL);
}

static struct post take(struct link *l, const struct group_failure *failure)
{
    struct spin s = {0};
    while (atomic_load(&l->sent) == l->received) {
        if (group_has_failed(failure)) return (struct post){NULL, NULL};
        if (spin(&s)) continue;
        atomic_fetch_add(&l->asleep, 1);
        futex_wait_for(&l->sent, l->received, SLEEP_SECONDS);
        atomic_fetch_sub(&l->asleep, 1);
    }
    return l->posts[l->received++ % TRANSFER_MAX_AHEAD];
}

static void send(struct backend *b, const struct transfer_args *args)
{
    struct transfer_end *end = b->transfer_end;
    const struct post post = {args->x, end->events[end->sent++ % TRANSFER_MAX_AHEAD]};
    if (post.x) b->event_record(b, post.made, NULL);
    put(&end->all->links[end->rank][args->peer], post);
}

static bool receive(struct backend *b, const struct transfer_args *args)
{
    const struct transfer_end *end = b->transfer_end;
    const struct post post = take(&end->all->links[args->peer][end->rank], b->failure);
    if (!post.x) return false;
    b->event_wait(b, post.made, NULL);
    b->copy(b, args->x, post.x, args->bytes, NULL);
    return true;
}

void transfer_end_close(struct backend *b)
{
    struct transfer_end *end = b->transfer_end;
    if (!end) return;
    for (int i = 0; i < TRANSFER_MAX_AHEAD; i++)
        if (end->events[i]) b->event_destroy(b, end->events[i]);
    if (atomic_fetch_sub(&end->all->members, 1) == 1) free(end->all);
    free(end);
    b->transfer_end = NULL;
}

static enum status open_end(struct backend *b, struct transfers *all, int32_t rank, struct error *err)
{
    struct transfer_end *end = calloc(1, sizeof *end);
    if (!end) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
    end->all = all, end->rank = rank;
    atomic_fetch_add(&all->members, 1);
    b->transfer_end = end, b->send = send, b->receive = receive;
    enum status status = STATUS_OK;
    for (int i = 0; i < TRANSFER_MAX_AHEAD && status == STATUS_OK; i++)
        status = b->event_create(b, &end->events[i], err);
    return status;
}

static void connect(struct backend *const *ranks, int32_t num_ranks)
{
#ifdef QUIRE_HAVE_CUDA
    for (int32_t i = 0; i < num_ranks; i++)
        for (int32_t k = 0; k < num_ranks; k++)
            if (k != i && ranks[i]->discrete) backend_cuda_connect(ranks[i], ranks[k]);
#else
    (void)ranks, (void)num_ranks;
#endif
}

static enum status check(struct backend *const *ranks, int32_t num_ranks, struct error *err)
{
    if (num_ranks < 1 || num_ranks > COLLECTIVE_MAX_RANKS)
        return error_set(err, STATUS_INVALID, "%d ranks were to send to each other: there may be 1 to %d", num_ranks,
                         COLLECTIVE_MAX_RANKS);
    for (int32_t i = 0; i < num_ranks; i++) {
        if (ranks[i]->discrete != ranks[0]->discrete)
            return error_set(err, STATUS_INVALID,
                             "'%s' and '%s' are not devices of one kind, so they cannot send to each other",
                             ranks[0]->name, ranks[i]->name);
        if (ranks[i]->send) return error_set(err, STATUS_INVALID, "'%s' sends to others already", ranks[i]->name);
    }
    return STATUS_OK;
}

/* After a failure the ends that are open belong to their backends. */
enum status backend_transfers_open(struct backend *const *ranks, int32_t num_ranks, struct error *err)
{
    enum status status = check(ranks, num_ranks, err);
    if (status != STATUS_OK || num_ranks == 1) return status;
    struct transfers *all = calloc(1, sizeof *all);
    if (!all) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
    for (int32_t r = 0; r < num_ranks && status == STATUS_OK; r++) status = open_end(ranks[r], all, r, err);
    if (atomic_load(&all->members) == 0) free(all);
    if (status == STATUS_OK) connect(ranks, num_ranks);
    return status;
}
