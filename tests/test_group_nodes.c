/* Collective operations of CPU ranks in several nodes, which are threads here: to the bit those of one process. And
 * what becomes of ranks that wait when another fails. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/random.h"
#include "kernels/backend.h"
#include "kernels/group_failure.h"
#include "model/model_state.h"
#include "runtime/engine/loaded_model_state.h"
#include "tests/support/must.h"
#include "tests/support/run.h"

enum { MAX_COUNT = 300000 /* more than a node sends at a time */, ROWS = 3, STRIDE = 120000 };

struct rank {
    struct backend *b;
    int32_t number, num_ranks;
    void *x, *expected; /* [MAX_COUNT] float32, or [ROWS, STRIDE] */
    bool ok;
};

struct world {
    int32_t num_nodes, num_ranks;
    int sockets[COLLECTIVE_MAX_RANKS][COLLECTIVE_MAX_RANKS]; /* [node][other node] */
    struct group_failure *failures[COLLECTIVE_MAX_RANKS];
    struct rank ranks[COLLECTIVE_MAX_RANKS];
};

static void open_world(struct world *w, int32_t num_nodes, int32_t num_ranks)
{
    const int32_t per_node = num_ranks / num_nodes;
    struct error err;
    *w = (struct world){.num_nodes = num_nodes, .num_ranks = num_ranks};
    for (int32_t i = 0; i < num_nodes; i++) {
        assert_non_null(w->failures[i] = group_failure_create());
        w->sockets[i][i] = -1;
        for (int32_t k = 0; k < i; k++) {
            int pair[2];
            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
            w->sockets[i][k] = pair[0];
            w->sockets[k][i] = pair[1];
        }
    }
    for (int32_t r = 0; r < num_ranks; r++) {
        struct rank *rank = &w->ranks[r];
        *rank = (struct rank){.number = r, .num_ranks = num_ranks};
        must(backend_cpu_open(1, &rank->b, &err), &err);
        rank->b->failure = w->failures[r / per_node];
        rank->x = malloc(ROWS * STRIDE * sizeof(float));
        rank->expected = malloc(ROWS * STRIDE * sizeof(float));
        assert_true(rank->x && rank->expected);
    }
    for (int32_t i = 0; i < num_nodes; i++) {
        const struct group_nodes nodes = {
            .node = i, .num_nodes = num_nodes, .num_ranks = num_ranks, .sockets = w->sockets[i], .timeout = 600};
        struct backend *backends[COLLECTIVE_MAX_RANKS];
        for (int32_t k = 0; k < per_node; k++) backends[k] = w->ranks[i * per_node + k].b;
        must(num_nodes == 1 ? backend_group_open(backends, per_node, &err)
                            : backend_group_join(backends, per_node, &nodes, &err),
             &err);
    }
}

static void close_world(struct world *w)
{
    for (int32_t r = 0; r < w->num_ranks; r++) {
        w->ranks[r].b->destroy(w->ranks[r].b);
        free(w->ranks[r].x);
        free(w->ranks[r].expected);
    }
    for (int32_t i = 0; i < w->num_nodes; i++) {
        group_failure_free(w->failures[i]);
        for (int32_t k = 0; k < w->num_nodes; k++)
            if (w->sockets[i][k] >= 0) close(w->sockets[i][k]);
    }
}

/* Has a thread for each rank from `first` on. */
static void run_ranks(struct world *w, int32_t first, void *(*run)(void *))
{
    pthread_t threads[COLLECTIVE_MAX_RANKS];
    for (int32_t r = first; r < w->num_ranks; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, run, &w->ranks[r]), 0);
    for (int32_t r = first; r < w->num_ranks; r++) pthread_join(threads[r], NULL);
    for (int32_t r = first; r < w->num_ranks; r++)
        if (!w->ranks[r].ok) fail_msg("rank %d of %d in %d nodes", r, w->num_ranks, w->num_nodes);
}

/* ---- right results ---- */

/* What a rank puts in: of different magnitudes, so that another order of addition has other bits. */
static float input(int32_t rank, int64_t call, int64_t i)
{
    const uint64_t bits = random_mix((uint64_t)(call * 1000003 + i) * RANDOM_STEP + (uint64_t)rank);
    return ((float)(bits >> 40) / (float)(1 << 23) - 1) * (float)(1 << (bits & 7));
}

static bool reduces(struct rank *r, int64_t call, int64_t count, enum dtype dtype)
{
    const struct all_reduce_args args = {.x = r->x, .count = count, .dtype = dtype};
    for (int64_t i = 0; i < count; i++) {
        float sum = 0;
        for (int32_t k = 0; k < r->num_ranks; k++) {
            dtype_store(r->x, dtype, i, input(k, call, i));
            const float x = dtype_load(r->x, dtype, i);
            sum = k == 0 ? x : sum + x;
        }
        dtype_store(r->x, dtype, i, input(r->number, call, i));
        dtype_store(r->expected, dtype, i, sum);
    }
    r->b->all_reduce(r->b, &args);
    return memcmp(r->x, r->expected, (size_t)(count * dtype_size(dtype))) == 0;
}

/* Columns rank by rank: each has as many as there are for all, and the last the rest. */
static bool gathers(struct rank *r, int64_t total)
{
    const int64_t each = total / r->num_ranks, first = r->number * each;
    float *x = r->x, *expected = r->expected;
    const struct all_gather_args args = {.x = x,
                                         .rows = ROWS,
                                         .stride = STRIDE,
                                         .total = total,
                                         .first = first,
                                         .columns = r->number == r->num_ranks - 1 ? total - first : each};
    for (int64_t row = 0; row < ROWS; row++) {
        for (int64_t i = 0; i < STRIDE; i++) {
            const float value = i < total ? (float)(row * STRIDE + i) : -7;
            const bool own = i >= args.first && i < args.first + args.columns;
            expected[row * STRIDE + i] = value;
            x[row * STRIDE + i] = own || i >= total ? value : -1;
        }
    }
    r->b->all_gather(r->b, &args);
    return memcmp(x, expected, ROWS * STRIDE * sizeof(float)) == 0;
}

static void *compute(void *rank)
{
    static const int64_t counts[] = {0, 1, 7, 513, 4096, MAX_COUNT}, totals[] = {8, 1003, STRIDE - 1};
    static const enum dtype dtypes[] = {DTYPE_FLOAT32, DTYPE_BFLOAT16, DTYPE_FLOAT16};
    struct rank *r = rank;
    r->ok = true;
    for (int i = 0; i < 6 && r->ok; i++) {
        r->ok = reduces(r, i, counts[i], dtypes[i % 3]) && gathers(r, totals[i % 3]);
        /* what rank 0 says, whatever another says */
        r->ok = r->ok && r->b->agree(r->b, r->number == 0 ? i % 2 : i % 2 == 0) == (i % 2 == 1);
    }
    return NULL;
}

static void nodes_compute_as_one_process(void **state)
{
    static const int32_t worlds[][2] = {{2, 2}, {2, 4}, {3, 3}, {4, 4}, {4, 8}, {1, 3}};
    (void)state;
    for (int i = 0; i < 6; i++) {
        struct world w;
        open_world(&w, worlds[i][0], worlds[i][1]);
        run_ranks(&w, 0, compute);
        close_world(&w);
    }
}

/* ---- failures ---- */

/* Waits for ranks that do not come. */
static void *wait_in_vain(void *rank)
{
    struct rank *r = rank;
    const struct all_reduce_args args = {.x = r->x, .count = 5, .dtype = DTYPE_FLOAT32};
    struct error err = {""};
    r->ok = false;
    r->b->all_reduce(r->b, &args);
    r->b->all_reduce(r->b, &args);
    if (r->b->agree(r->b, true)) return NULL;
    r->ok = r->b->stream_synchronize(r->b, NULL, &err) == STATUS_INTERNAL && strcmp(err.text, "rank 0 is ill") == 0 &&
            r->b->event_synchronize(r->b, NULL, &err) == STATUS_INTERNAL;
    return NULL;
}

static void *fall_ill(void *world)
{
    usleep(20000); /* so that the others sleep, mostly */
    group_fail(((struct world *)world)->failures[0], STATUS_INTERNAL, "rank 0 is ill");
    group_fail(((struct world *)world)->failures[0], STATUS_IO, "a second failure");
    return NULL;
}

static void a_rank_that_fails_holds_nobody_up(void **state)
{
    struct world w;
    pthread_t thread;
    (void)state;
    open_world(&w, 1, 3);
    assert_int_equal(pthread_create(&thread, NULL, fall_ill, &w), 0);
    run_ranks(&w, 1, wait_in_vain);
    pthread_join(thread, NULL);
    close_world(&w);
}

/* Its node has ended. */
static void *see_the_end(void *rank)
{
    struct rank *r = rank;
    const struct all_reduce_args args = {.x = r->x, .count = 5, .dtype = DTYPE_FLOAT32};
    struct error err = {""};
    r->b->all_reduce(r->b, &args);
    r->ok = r->b->stream_synchronize(r->b, NULL, &err) == STATUS_IO &&
            strcmp(err.text, "node 0 (ranks 0 and 1) has ended: its connection was closed") == 0;
    return NULL;
}

static void a_node_that_ends_holds_nobody_up(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 2, 4);
    shutdown(w.sockets[0][1], SHUT_RDWR);
    run_ranks(&w, 2, see_the_end);
    close_world(&w);
}

/* A rank's call of a model fails before it comes to the first operation of all ranks, where the other one waits. */
static void a_call_that_fails_ends_the_step(void **state)
{
    char path[512];
    struct engine_options options = run_options("golden/mha", path, sizeof path);
    struct loaded_model *l;
    struct batch batch;
    struct error err = {""};
    (void)state;
    options.tensor_parallel_size = 2;
    options.max_num_seqs = 2;
    options.max_num_batched_tokens = 8;
    must(loaded_model_open(&options, &l, &err), &err);
    must(batch_init(&batch, &l->limits, &err), &err);
    batch.num_tokens = batch.num_seqs = batch.num_decodes = batch.max_query_len = batch.max_seq_len = 1;
    batch.query_start[1] = batch.seq_lens[0] = 1;
    batch.slot_mapping[0] = -1;
    l->model->others[0]->collected -= l->model->options.max_in_flight; /* as if as many steps were in flight */
    assert_int_equal(model_submit(l->model, &batch, &err), STATUS_INTERNAL);
    if (strncmp(err.text, "rank 1 (cpu): ", 14) != 0) fail_msg("%s", err.text);
    l->model->others[0]->collected += l->model->options.max_in_flight;
    assert_int_equal(model_submit(l->model, &batch, &err), STATUS_INTERNAL); /* for good */
    batch_free(&batch);
    loaded_model_close(l);
}

static void count_call(void *calls)
{
    ++*(int *)calls;
}

static void listeners_are_called_once(void **state)
{
    struct group_failure *f = group_failure_create();
    int calls = 0, late = 0, forgotten = 0;
    struct error err;
    (void)state;
    assert_false(group_has_failed(NULL));
    assert_false(group_has_failed(f));
    assert_int_equal(group_failure_get(f, &err), STATUS_OK);
    group_failure_tell(f, count_call, &calls);
    group_failure_tell(f, count_call, &forgotten);
    group_failure_forget(f, &forgotten);
    group_fail(f, STATUS_IO, "the first");
    group_fail(f, STATUS_INTERNAL, "the second");
    group_failure_tell(f, count_call, &late);
    assert_int_equal(calls, 1);
    assert_int_equal(late, 1);
    assert_int_equal(forgotten, 0);
    assert_int_equal(group_failure_get(f, &err), STATUS_IO);
    assert_string_equal(err.text, "the first");
    group_failure_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_compute_as_one_process),     cmocka_unit_test(a_rank_that_fails_holds_nobody_up),
        cmocka_unit_test(a_node_that_ends_holds_nobody_up), cmocka_unit_test(a_call_that_fails_ends_the_step),
        cmocka_unit_test(listeners_are_called_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
