/* Block tables: admission, forks, copy-on-write, release, prefixes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/block_manager.h"

#define SIZE 8
#define MAX_SEQS 16

/* A manager and the sequences that the test made with it. */
struct fixture {
    struct block_manager m;
    struct request *requests[MAX_SEQS];
    struct sequence *seqs[4 * MAX_SEQS];
    int32_t num_requests, num_seqs;
};

static void open_fixture(struct fixture *f, int32_t num_blocks, bool caching)
{
    struct error err;
    *f = (struct fixture){0};
    assert_int_equal(block_manager_init(&f->m, num_blocks, SIZE, caching, &err), STATUS_OK);
}

static void check(const struct fixture *f)
{
    struct error err;
    if (block_manager_check(&f->m, f->seqs, f->num_seqs, &err) != STATUS_OK) fail_msg("%s", err.text);
}

static void close_fixture(struct fixture *f)
{
    check(f);
    for (int32_t i = 0; i < f->num_requests; i++) request_destroy(f->requests[i]);
    block_manager_free(&f->m);
}

/* A prompt first, first + 1, ... for n sequences. */
static struct request *add(struct fixture *f, int32_t first, int32_t length, int32_t n)
{
    struct error err;
    struct sampling_params params = sampling_params_default();
    struct request *request;
    int32_t prompt[2000];
    for (int32_t i = 0; i < length; i++) prompt[i] = first + i;
    params.n = n;
    params.max_tokens = -1;
    assert_int_equal(request_create(&params, prompt, length, 2000, SIZE, &request, &err), STATUS_OK);
    f->requests[f->num_requests++] = request;
    for (int32_t i = 0; i < n; i++) f->seqs[f->num_seqs++] = &request->sequences[i];
    return request;
}

/* Computes all the known tokens, as a step would. */
static void compute(struct fixture *f, struct sequence *seq)
{
    struct error err;
    for (; seq->num_computed < seq->num_tokens; seq->num_computed++)
        assert_int_equal(
            block_pool_fill(&f->m.pool, seq->block_table[seq->num_computed / SIZE], seq->num_computed % SIZE, 1, &err),
            STATUS_OK);
    block_manager_hash(&f->m, seq);
    check(f);
}

static struct sequence *hold(struct fixture *f, int32_t first, int32_t length)
{
    struct error err;
    struct sequence *seq = &add(f, first, length, 1)->sequences[0];
    assert_int_equal(block_manager_allocate(&f->m, seq, &err), STATUS_OK);
    compute(f, seq);
    return seq;
}

static void release(struct fixture *f, struct sequence *seq)
{
    struct error err;
    assert_int_equal(block_manager_release(&f->m, seq, &err), STATUS_OK);
    assert_int_equal(seq->num_blocks, 0);
    check(f);
}

/* One more token of the sequence. */
static struct block_pair append(struct fixture *f, struct sequence *seq, int32_t token)
{
    struct block_pair copy;
    struct error err;
    int32_t cost = block_manager_append_cost(&f->m, seq, seq->num_tokens + 1), free_blocks = f->m.pool.num_free;
    assert_int_equal(block_manager_append(&f->m, seq, seq->num_tokens + 1, &copy, &err), STATUS_OK);
    assert_int_equal(free_blocks - f->m.pool.num_free, cost);
    seq->tokens[seq->num_tokens++] = token;
    compute(f, seq);
    return copy;
}

static enum allocate_result can_allocate(const struct fixture *f, const struct request *request, int32_t needed)
{
    int32_t required;
    enum allocate_result result = block_manager_can_allocate(&f->m, request, &required);
    assert_int_equal(required, needed);
    return result;
}

static void test_admission_without_hits(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 250, false); /* W = 2 */
    assert_int_equal(f.m.watermark, 2);
    struct request *largest = add(&f, 0, 248 * SIZE, 1), *larger = add(&f, 0, 248 * SIZE + 1, 1);
    assert_int_equal(can_allocate(&f, largest, 248), ALLOCATE_OK);
    assert_int_equal(can_allocate(&f, larger, 249), ALLOCATE_NEVER);
    struct sequence *small = hold(&f, 0, 1);
    assert_int_equal(can_allocate(&f, largest, 248), ALLOCATE_LATER);
    assert_int_equal(can_allocate(&f, add(&f, 0, 247 * SIZE, 1), 247), ALLOCATE_OK); /* 249 - 247 >= 2 */
    release(&f, small);
    assert_int_equal(can_allocate(&f, largest, 248), ALLOCATE_OK);
    close_fixture(&f);
}

static void test_the_watermark_is_one_percent_rounded_down(void **state)
{
    (void)state;
    const int32_t total[] = {1, 99, 100, 199, 200, 1000}, watermark[] = {0, 0, 1, 1, 2, 10};
    for (int i = 0; i < 6; i++) {
        struct fixture f;
        open_fixture(&f, total[i], false);
        assert_int_equal(f.m.watermark, watermark[i]);
        close_fixture(&f);
    }
}

/* (free - idle) - (required - hits) >= W, at its very edge. */
static void test_admission_with_hits(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 100, true); /* W = 1 */
    struct sequence *first = hold(&f, 0, 40 * SIZE);
    struct request *same = add(&f, 0, 40 * SIZE, 1); /* 39 hits: one token is left to compute */
    struct sequence *other = hold(&f, 5000, 58 * SIZE);
    assert_int_equal(f.m.pool.num_free, 2);
    assert_int_equal(can_allocate(&f, same, 40), ALLOCATE_OK); /* 2 - 0 - (40 - 39) = 1 */
    struct sequence *one = hold(&f, 9000, 1);
    assert_int_equal(can_allocate(&f, same, 40), ALLOCATE_LATER);
    release(&f, first); /* now the 39 are idle, and 41 free: 41 - 39 - 1 = 1 */
    assert_int_equal(f.m.pool.num_free, 41);
    assert_int_equal(can_allocate(&f, same, 40), ALLOCATE_OK);
    struct sequence *two = hold(&f, 9000, 1); /* takes the block that was not a hit of the 41 */
    assert_int_equal(f.m.pool.num_free, 40);
    assert_int_equal(can_allocate(&f, same, 40), ALLOCATE_LATER); /* 40 - 39 - 1 = 0 */
    release(&f, one);
    assert_int_equal(can_allocate(&f, same, 40), ALLOCATE_OK);
    struct error err;
    assert_int_equal(block_manager_allocate(&f.m, &same->sequences[0], &err), STATUS_OK);
    assert_int_equal(same->sequences[0].num_computed, 39 * SIZE);
    assert_int_equal(f.m.pool.num_free, 1);
    compute(&f, &same->sequences[0]);
    release(&f, &same->sequences[0]);
    release(&f, other);
    release(&f, two);
    close_fixture(&f);
}

/* Once it ran, a request is refused only if it cannot be held at all. */
static void test_admission_after_a_preemption(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 200, false); /* W = 2 */
    struct request *request = add(&f, 0, 200 * SIZE, 1);
    assert_int_equal(can_allocate(&f, request, 200), ALLOCATE_NEVER);
    request->num_preemptions = 1;
    assert_int_equal(can_allocate(&f, request, 200), ALLOCATE_OK);
    struct sequence *small = hold(&f, 0, 1);
    assert_int_equal(can_allocate(&f, request, 200), ALLOCATE_LATER);
    struct request *more = add(&f, 0, 200 * SIZE + 1, 1);
    more->num_preemptions = 1;
    assert_int_equal(can_allocate(&f, more, 201), ALLOCATE_NEVER);
    struct request *forked = add(&f, 0, 20 * SIZE + 3, 3); /* 21 + 2 of their own */
    forked->num_preemptions = 1;
    forked->forked = true;
    assert_int_equal(can_allocate(&f, forked, 23), ALLOCATE_OK);
    forked->sequences[0].status = SEQUENCE_FINISHED;
    assert_int_equal(can_allocate(&f, forked, 22), ALLOCATE_OK);
    release(&f, small);
    close_fixture(&f);
}

static void test_a_fork_shares_every_block_and_writes_to_none(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 50, true);
    struct request *request = add(&f, 0, 20, 3);
    struct sequence *a = &request->sequences[0], *b = a + 1, *c = a + 2;
    struct error err;
    assert_int_equal(block_manager_allocate(&f.m, a, &err), STATUS_OK);
    compute(&f, a);
    assert_int_equal(block_manager_fork(&f.m, a, b, &err), STATUS_OK);
    assert_int_equal(block_manager_fork(&f.m, a, c, &err), STATUS_OK);
    check(&f);
    assert_int_equal(block_pool_num_in_use(&f.m.pool), 3);
    for (int i = 0; i < 3; i++) assert_int_equal(f.m.pool.blocks[a->block_table[i]].ref_count, 3);

    int32_t last = a->block_table[2];
    a->num_uploaded = 3;
    struct block_pair copy = append(&f, a, 100);
    assert_int_equal(copy.source, last);
    assert_int_equal(copy.destination, a->block_table[2]);
    assert_int_equal(a->num_uploaded, 2); /* the device has to hear of the new one */
    assert_int_equal(f.m.pool.blocks[last].ref_count, 2);
    assert_int_equal(f.m.pool.blocks[a->block_table[2]].filled, 5);
    copy = append(&f, b, 101);
    assert_int_equal(copy.source, last);
    copy = append(&f, c, 102); /* the last holder */
    assert_int_equal(copy.source, BLOCK_NONE);
    assert_int_equal(c->block_table[2], last);
    assert_int_equal(append(&f, a, 103).source, BLOCK_NONE);
    assert_int_equal(block_pool_num_in_use(&f.m.pool), 5);
    release(&f, a);
    release(&f, b);
    assert_int_equal(f.m.pool.blocks[c->block_table[0]].ref_count, 1);
    release(&f, c);
    assert_int_equal(block_pool_num_in_use(&f.m.pool), 0);
    assert_int_equal(f.m.pool.num_cached, 2);
    close_fixture(&f);
}

static void test_a_fork_at_a_full_block_copies_nothing(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 50, false);
    struct request *request = add(&f, 0, 2 * SIZE, 2);
    struct sequence *a = &request->sequences[0], *b = a + 1;
    struct error err;
    assert_int_equal(block_manager_allocate(&f.m, a, &err), STATUS_OK);
    compute(&f, a);
    assert_int_equal(block_manager_fork(&f.m, a, b, &err), STATUS_OK);
    assert_int_equal(append(&f, a, 1).source, BLOCK_NONE);
    assert_int_equal(append(&f, b, 2).source, BLOCK_NONE);
    assert_int_not_equal(a->block_table[2], b->block_table[2]);
    release(&f, a);
    release(&f, b);
    close_fixture(&f);
}

static void test_nothing_changes_when_no_block_is_left(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 2, false);
    struct request *request = add(&f, 0, SIZE + 1, 2);
    struct sequence *a = &request->sequences[0], *b = a + 1;
    struct block_pair copy;
    struct error err;
    assert_int_equal(block_manager_allocate(&f.m, a, &err), STATUS_OK);
    compute(&f, a);
    assert_int_equal(block_manager_fork(&f.m, a, b, &err), STATUS_OK);
    int32_t last = a->block_table[1];
    assert_int_equal(block_manager_append(&f.m, a, SIZE + 2, &copy, &err), STATUS_INTERNAL); /* a copy */
    assert_int_equal(a->block_table[1], last);
    release(&f, b);
    assert_int_equal(block_manager_append(&f.m, a, SIZE + 2, &copy, &err), STATUS_OK); /* in place */
    assert_int_equal(copy.source, BLOCK_NONE);
    assert_int_equal(block_manager_append(&f.m, a, 2 * SIZE + 1, &copy, &err), STATUS_INTERNAL); /* a new block */
    assert_int_equal(a->num_blocks, 2);
    struct sequence *c = &add(&f, 50, 4, 1)->sequences[0];
    assert_int_equal(block_manager_allocate(&f.m, c, &err), STATUS_INTERNAL);
    assert_int_equal(c->num_blocks, 0);
    release(&f, a);
    close_fixture(&f);
}

static void test_tails_are_evicted_before_heads(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 6, true);
    struct sequence *seq = hold(&f, 0, 4 * SIZE);
    int32_t table[4];
    memcpy(table, seq->block_table, sizeof table);
    release(&f, seq);
    assert_int_equal(f.m.pool.num_cached, 4);
    struct sequence *three = hold(&f, 500, 3 * SIZE - 1); /* the two free ones, then the last one's last block */
    assert_int_equal(three->block_table[2], table[3]);
    assert_int_equal(f.m.evictions, 1);
    struct sequence *again = &add(&f, 0, 3 * SIZE + 1, 1)->sequences[0];
    struct error err;
    release(&f, three);
    assert_int_equal(block_manager_allocate(&f.m, again, &err), STATUS_OK);
    assert_int_equal(again->num_computed, 3 * SIZE);
    assert_memory_equal(again->block_table, table, 3 * sizeof *table);
    release(&f, again);
    close_fixture(&f);
}

/* Equal blocks, computed side by side: one is found, both are sound. */
static void test_a_duplicate_is_not_cached_twice(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 20, true);
    struct error err;
    struct sequence *a = &add(&f, 0, 3 * SIZE, 1)->sequences[0], *b = &add(&f, 0, 3 * SIZE, 1)->sequences[0];
    assert_int_equal(block_manager_allocate(&f.m, a, &err), STATUS_OK);
    assert_int_equal(block_manager_allocate(&f.m, b, &err), STATUS_OK);
    compute(&f, a);
    compute(&f, b);
    assert_int_not_equal(a->block_table[0], b->block_table[0]);
    assert_true(a->prefix_id == b->prefix_id);
    release(&f, a);
    release(&f, b);
    assert_int_equal(f.m.pool.num_cached, 3);
    close_fixture(&f);
}

static uint64_t hash_constant(uint64_t parent, const int32_t *tokens, int32_t count, uint64_t extra_key)
{
    (void)parent, (void)tokens, (void)count, (void)extra_key;
    return 3;
}

static void test_colliding_hashes_share_nothing_wrong(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 60, true);
    f.m.cache.hash = hash_constant;
    struct sequence *a = hold(&f, 0, 4 * SIZE), *b = hold(&f, 100, 4 * SIZE);
    assert_int_equal(b->num_computed, 4 * SIZE);
    assert_int_equal(block_pool_num_in_use(&f.m.pool), 8);
    /* b's second block after a's first: tokens that are cached, but after another parent. */
    struct sequence *c = &add(&f, 0, 3 * SIZE, 1)->sequences[0];
    for (int32_t i = SIZE; i < 3 * SIZE; i++) c->tokens[i] = 100 + i;
    struct error err;
    assert_int_equal(block_manager_allocate(&f.m, c, &err), STATUS_OK);
    assert_int_equal(c->num_computed, SIZE);
    assert_int_equal(c->block_table[0], a->block_table[0]);
    assert_int_not_equal(c->block_table[1], b->block_table[1]);
    compute(&f, c);
    release(&f, a);
    release(&f, b);
    release(&f, c);
    close_fixture(&f);
}

static void test_another_key_is_another_prefix(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 60, true);
    struct error err;
    hold(&f, 0, 4 * SIZE);
    struct request *salted = add(&f, 0, 4 * SIZE, 1);
    salted->extra_key = 99;
    assert_int_equal(block_manager_allocate(&f.m, &salted->sequences[0], &err), STATUS_OK);
    assert_int_equal(salted->sequences[0].num_computed, 0);
    release(&f, &salted->sequences[0]);
    release(&f, f.seqs[0]);
    close_fixture(&f);
}

static void test_one_token_is_left_to_compute(void **state)
{
    (void)state;
    for (int32_t length = 1; length <= 3 * SIZE + 1; length++) {
        struct fixture f;
        open_fixture(&f, 60, true);
        release(&f, hold(&f, 0, length));
        struct error err;
        struct sequence *again = &add(&f, 0, length, 1)->sequences[0];
        assert_int_equal(block_manager_allocate(&f.m, again, &err), STATUS_OK);
        assert_int_equal(again->num_computed, (length - 1) / SIZE * SIZE);
        release(&f, again);
        close_fixture(&f);
    }
}

static void test_a_double_release_names_the_block(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 20, false);
    struct sequence *seq = hold(&f, 0, 2 * SIZE);
    struct error err = {{0}};
    int32_t block = seq->block_table[1];
    release(&f, seq);
    seq->num_blocks = 2; /* as if it still held them */
    assert_int_equal(block_manager_release(&f.m, seq, &err), STATUS_INTERNAL);
    char name[32];
    snprintf(name, sizeof name, "block %d", block);
    assert_non_null(strstr(err.text, name));
    close_fixture(&f);
}

static void test_reserved_blocks_are_filled_by_a_sibling(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 20, true);
    struct request *request = add(&f, 0, 3 * SIZE + 2, 2);
    struct sequence *a = &request->sequences[0], *b = a + 1;
    struct error err;
    assert_int_equal(block_manager_allocate(&f.m, a, &err), STATUS_OK);
    assert_int_equal(block_manager_reserve(&f.m, b, 3, &err), STATUS_OK);
    check(&f);
    assert_int_equal(block_pool_num_in_use(&f.m.pool), 5);
    assert_int_equal(b->block_table[0], 0);
    compute(&f, a);
    assert_int_equal(block_manager_share(&f.m, a, b, 3, &err), STATUS_OK);
    compute(&f, b);
    assert_memory_equal(a->block_table, b->block_table, 3 * sizeof *a->block_table);
    assert_int_equal(block_pool_num_in_use(&f.m.pool), 5);
    assert_true(a->prefix_id == b->prefix_id);
    release(&f, a);
    release(&f, b);
    close_fixture(&f);
}

/* A shared block that already has its identity keeps it, though its parent's was given up meanwhile. */
static void test_a_block_is_identified_once(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 20, true);
    struct error err;
    struct request *request = add(&f, 0, 2 * SIZE, 2);
    struct sequence *a = &request->sequences[0], *b = a + 1, *first = &add(&f, 0, SIZE, 1)->sequences[0];
    assert_int_equal(block_manager_allocate(&f.m, first, &err), STATUS_OK);
    assert_int_equal(block_manager_allocate(&f.m, a, &err), STATUS_OK);
    compute(&f, first);
    compute(&f, a); /* its first block has the same identity as first's, and is not in the cache */
    assert_int_equal(prefix_cache_id(&f.m.cache, a->block_table[0]), 0);
    uint64_t id = prefix_cache_id(&f.m.cache, a->block_table[1]);
    release(&f, first);
    prefix_cache_forget(&f.m.cache, first->block_table[0]);
    block_pool_set_cached(&f.m.pool, first->block_table[0], false);

    assert_int_equal(block_manager_reserve(&f.m, b, 2, &err), STATUS_OK);
    assert_int_equal(block_manager_share(&f.m, a, b, 2, &err), STATUS_OK);
    compute(&f, b);
    assert_int_not_equal(prefix_cache_id(&f.m.cache, b->block_table[0]), 0);
    assert_true(prefix_cache_id(&f.m.cache, b->block_table[1]) == id);
    release(&f, a);
    release(&f, b);
    block_manager_reset_cache(&f.m);
    check(&f);
    for (int32_t i = 0; i < f.m.cache.num_buckets; i++) assert_int_equal(f.m.cache.buckets[i], 0);
    close_fixture(&f);
}

/* Two answers that share three full blocks and a partly filled one. */
static struct request *hold_two(struct fixture *f)
{
    struct error err;
    struct request *request = add(f, 0, 3 * SIZE + 2, 2);
    assert_int_equal(block_manager_allocate(&f->m, &request->sequences[0], &err), STATUS_OK);
    compute(f, &request->sequences[0]);
    assert_int_equal(block_manager_fork(&f->m, &request->sequences[0], &request->sequences[1], &err), STATUS_OK);
    return request;
}

static void test_swapped_blocks_move_once_and_come_back_shared(void **state)
{
    (void)state;
    struct fixture f;
    struct error err;
    struct block_pair pairs[8];
    int32_t num_pairs = 1; /* there is one already */
    open_fixture(&f, 20, true);
    assert_int_equal(block_manager_grow_host(&f.m, 6, &err), STATUS_OK);
    struct request *request = hold_two(&f);
    struct sequence *a = &request->sequences[0], *b = a + 1;
    append(&f, a, 70); /* copy-on-write: 5 blocks in all */
    assert_int_equal(block_manager_swap_out_cost(&f.m, request), 5);
    assert_int_equal(block_manager_swap_out(&f.m, request, pairs, &num_pairs, &err), STATUS_OK);
    check(&f);
    assert_int_equal(num_pairs, 1 + 5);
    for (int32_t i = 0; i < 5; i++) {
        assert_in_range(pairs[1 + i].source, 1, 5);
        assert_int_equal(pairs[1 + i].destination, 21 + i); /* the host's numbers follow the device's */
    }
    assert_memory_equal(a->block_table, b->block_table, 3 * sizeof *a->block_table);
    assert_int_not_equal(a->block_table[3], b->block_table[3]);
    assert_int_equal(f.m.host.blocks[a->block_table[0]].ref_count, 2);
    assert_int_equal(f.m.host.blocks[a->block_table[3]].filled, 3);
    assert_int_equal(f.m.pool.num_free, 20);
    assert_int_equal(f.m.pool.num_cached, 3); /* what lies on the device can still be found */
    assert_int_equal(block_manager_swap_out_cost(&f.m, hold_two(&f)), 4);
    assert_int_equal(f.m.host.num_free, 1);

    num_pairs = 0;
    assert_int_equal(block_manager_swap_in(&f.m, request, pairs, &num_pairs, &err), STATUS_OK);
    check(&f);
    assert_int_equal(num_pairs, 5);
    assert_int_equal(block_pool_num_in_use(&f.m.host), 0);
    assert_memory_equal(a->block_table, b->block_table, 3 * sizeof *a->block_table);
    assert_int_equal(a->num_hashed, 0);
    compute(&f, a);
    compute(&f, b);
    assert_int_equal(a->num_hashed, 3);
    assert_true(a->prefix_id == b->prefix_id);
    append(&f, b, 71);
    for (int32_t i = 0; i < 4; i++) release(&f, f.seqs[i]);
    close_fixture(&f);
}

/* total - required < W, and free - required >= W, at their very edges; a spare block for each unfinished sequence. */
static void test_coming_back_from_the_host(void **state)
{
    (void)state;
    struct fixture f;
    struct error err;
    struct block_pair pairs[300];
    int32_t num_pairs = 0;
    open_fixture(&f, 200, false); /* W = 2 */
    assert_int_equal(block_manager_grow_host(&f.m, 300, &err), STATUS_OK);
    struct request *request = hold_two(&f); /* 4 blocks, and 2 spare ones */
    assert_int_equal(block_manager_swap_out(&f.m, request, pairs, &num_pairs, &err), STATUS_OK);
    struct sequence *other = hold(&f, 0, 192 * SIZE);
    assert_int_equal(block_manager_can_swap_in(&f.m, request), ALLOCATE_OK); /* 8 - 6 = 2 */
    struct sequence *one = hold(&f, 0, 1);
    assert_int_equal(block_manager_can_swap_in(&f.m, request), ALLOCATE_LATER);
    release(&f, &request->sequences[1]);
    request->sequences[1].status = SEQUENCE_FINISHED;
    assert_int_equal(block_manager_can_swap_in(&f.m, request), ALLOCATE_OK);
    release(&f, one);
    release(&f, other);
    for (int32_t blocks = 197; blocks <= 198; blocks++) {
        struct sequence *large = hold(&f, 0, blocks * SIZE);
        num_pairs = 0;
        assert_int_equal(block_manager_swap_out(&f.m, large->request, pairs, &num_pairs, &err), STATUS_OK);
        assert_int_equal(num_pairs, blocks);
        assert_int_equal(block_manager_can_swap_in(&f.m, large->request), blocks == 197 ? ALLOCATE_OK : ALLOCATE_NEVER);
        release(&f, large); /* on the host */
    }
    release(&f, &request->sequences[0]);
    assert_int_equal(block_pool_num_in_use(&f.m.host), 0);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_admission_without_hits),
        cmocka_unit_test(test_the_watermark_is_one_percent_rounded_down),
        cmocka_unit_test(test_admission_with_hits),
        cmocka_unit_test(test_admission_after_a_preemption),
        cmocka_unit_test(test_a_fork_shares_every_block_and_writes_to_none),
        cmocka_unit_test(test_a_fork_at_a_full_block_copies_nothing),
        cmocka_unit_test(test_nothing_changes_when_no_block_is_left),
        cmocka_unit_test(test_tails_are_evicted_before_heads),
        cmocka_unit_test(test_a_duplicate_is_not_cached_twice),
        cmocka_unit_test(test_colliding_hashes_share_nothing_wrong),
        cmocka_unit_test(test_another_key_is_another_prefix),
        cmocka_unit_test(test_one_token_is_left_to_compute),
        cmocka_unit_test(test_a_double_release_names_the_block),
        cmocka_unit_test(test_reserved_blocks_are_filled_by_a_sibling),
        cmocka_unit_test(test_a_block_is_identified_once),
        cmocka_unit_test(test_swapped_blocks_move_once_and_come_back_shared),
        cmocka_unit_test(test_coming_back_from_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
