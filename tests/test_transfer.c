/* Ranks that send to each other (kernels/transfer.c), on the CPU and on two GPUs. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/backend.h"
#include "tests/support/must.h"
#include "tests/support/run.h"

enum { MAX_RANKS = 3, COUNT = 1000, SENDS = 200 };

/* A rank and its thread. Rank r sends to r + 1. */
struct rank {
    struct backend *b;
    pthread_t thread;
    int32_t rank, count;
    int32_t *outbox[TRANSFER_MAX_AHEAD], *inbox; /* [COUNT] of the device */
    int32_t wrong, missing;                      /* elements; receives that got nothing */
    struct error err;                            /* "": none */
};

static int32_t element(int32_t sender, int32_t number, int32_t i)
{
    return sender * 1000000 + number * 1000 + i;
}

static bool is_left_out(int32_t number)
{
    return number % 7 == 3;
}

/* Before it sends what is in a buffer of eight, the receiver has got what was there: they meet every few sends. */
static void send_all(struct rank *r, int32_t first, int32_t count)
{
    struct backend *b = r->b;
    int32_t numbers[COUNT];
    for (int32_t n = first; n < first + count; n++) {
        int32_t *x = r->outbox[n % TRANSFER_MAX_AHEAD];
        for (int32_t i = 0; i < COUNT; i++) numbers[i] = element(r->rank, n, i);
        b->copy(b, x, numbers, sizeof numbers, NULL);
        const struct transfer_args args = {is_left_out(n) ? NULL : x, sizeof numbers, r->rank + 1};
        b->send(b, &args);
    }
}

static void receive_all(struct rank *r, int32_t first, int32_t count)
{
    struct backend *b = r->b;
    int32_t numbers[COUNT];
    for (int32_t n = first; n < first + count; n++) {
        const struct transfer_args args = {r->inbox, sizeof numbers, r->rank - 1};
        const bool came = b->receive(b, &args);
        r->missing += came == is_left_out(n);
        b->copy(b, numbers, r->inbox, sizeof numbers, NULL);
        if (b->stream_synchronize(b, NULL, &r->err) != STATUS_OK) return;
        for (int32_t i = 0; i < COUNT && came; i++) r->wrong += numbers[i] != element(r->rank - 1, n, i);
    }
}

struct part {
    struct rank *rank;
    int32_t first;
};

enum { AT_ONCE = TRANSFER_MAX_AHEAD };

static void *work(void *part)
{
    const struct part *p = part;
    struct rank *r = p->rank;
    if (r->rank < r->count - 1) send_all(r, p->first, AT_ONCE);
    if (r->rank > 0) receive_all(r, p->first, AT_ONCE);
    r->b->stream_synchronize(r->b, NULL, &r->err);
    return NULL;
}

static void open_rank(struct rank *r, int32_t rank, int32_t count)
{
    char device[32] = "cpu";
    struct error err;
    *r = (struct rank){.rank = rank, .count = count};
    if (strcmp(run_need_device(), "cpu") != 0) snprintf(device, sizeof device, "cuda:%d", rank);
    must(backend_open(device, 1, &r->b, &err), &err);
    void *memory;
    for (int i = 0; i < TRANSFER_MAX_AHEAD; i++) {
        must(r->b->memory_alloc(r->b, MEMORY_DEVICE, COUNT * sizeof(int32_t), &memory, &err), &err);
        r->outbox[i] = memory;
    }
    must(r->b->memory_alloc(r->b, MEMORY_DEVICE, COUNT * sizeof(int32_t), &memory, &err), &err);
    r->inbox = memory;
}

static void close_rank(struct rank *r)
{
    for (int i = 0; i < TRANSFER_MAX_AHEAD; i++)
        r->b->memory_free(r->b, MEMORY_DEVICE, r->outbox[i], COUNT * sizeof(int32_t));
    r->b->memory_free(r->b, MEMORY_DEVICE, r->inbox, COUNT * sizeof(int32_t));
    r->b->destroy(r->b);
}

/* What is sent comes in order, and nothing where nothing was sent. */
static void test_a_chain(void **state)
{
    (void)state;
    const int32_t most = run_max_ranks(), count = most < MAX_RANKS ? most : MAX_RANKS;
    struct rank ranks[MAX_RANKS];
    struct backend *backends[MAX_RANKS];
    struct part parts[MAX_RANKS];
    struct error err;
    for (int32_t r = 0; r < count; r++) {
        open_rank(&ranks[r], r, count);
        backends[r] = ranks[r].b;
    }
    must(backend_transfers_open(backends, count, &err), &err);
    for (int32_t first = 0; first < SENDS; first += AT_ONCE) {
        for (int32_t r = 0; r < count; r++) {
            parts[r] = (struct part){&ranks[r], first};
            assert_int_equal(pthread_create(&ranks[r].thread, NULL, work, &parts[r]), 0);
        }
        for (int32_t r = 0; r < count; r++) pthread_join(ranks[r].thread, NULL);
    }
    for (int32_t r = 0; r < count; r++) {
        assert_string_equal(ranks[r].err.text, "");
        assert_int_equal(ranks[r].wrong, 0);
        assert_int_equal(ranks[r].missing, 0);
        close_rank(&ranks[r]);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct backend *ranks[2];
    struct error err;
    for (int i = 0; i < 2; i++) must(backend_open("cpu", 1, &ranks[i], &err), &err);
    assert_int_equal(backend_transfers_open(ranks, 9, &err), STATUS_INVALID);
    assert_string_equal(err.text, "9 ranks were to send to each other: there may be 1 to 8");
    must(backend_transfers_open(ranks, 1, &err), &err);
    assert_null(ranks[0]->send);
    must(backend_transfers_open(ranks, 2, &err), &err);
    assert_int_equal(backend_transfers_open(ranks, 2, &err), STATUS_INVALID);
    assert_string_equal(err.text, "'cpu' sends to others already");
    for (int i = 0; i < 2; i++) ranks[i]->destroy(ranks[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_chain),
        cmocka_unit_test(test_refusals),
    };
    const struct CMUnitTest gpu_tests[] = {cmocka_unit_test(test_a_chain)};
    const int failed = cmocka_run_group_tests_name("cpu", tests, NULL, NULL);
    run_set_device("cuda");
    return failed + cmocka_run_group_tests_name("cuda", gpu_tests, NULL, NULL);
}
