/* The block pool: counts, the order of the free list, and errors that name the block. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/block_pool.h"

static struct block_pool pool_of(int32_t num_blocks)
{
    struct block_pool pool;
    struct error err;
    assert_int_equal(block_pool_init(&pool, 1, num_blocks, &err), STATUS_OK);
    return pool;
}

static void check(const struct block_pool *pool)
{
    struct error err;
    if (block_pool_check(pool, &err) != STATUS_OK) fail_msg("%s", err.text);
}

static int32_t take(struct block_pool *pool)
{
    bool evicted;
    int32_t block = block_pool_take(pool, &evicted);
    assert_false(evicted);
    check(pool);
    return block;
}

static void release(struct block_pool *pool, int32_t block)
{
    struct error err;
    assert_int_equal(block_pool_release(pool, block, &err), STATUS_OK);
    check(pool);
}

static void share(struct block_pool *pool, int32_t block)
{
    struct error err;
    assert_int_equal(block_pool_share(pool, block, &err), STATUS_OK);
}

static void test_blocks_are_numbered_from_one(void **state)
{
    (void)state;
    struct block_pool pool = pool_of(3);
    assert_int_equal(block_pool_num_total(&pool), 3);
    for (int32_t i = 1; i <= 3; i++) assert_int_equal(take(&pool), i);
    assert_int_equal(take(&pool), BLOCK_NONE);
    assert_int_equal(block_pool_num_in_use(&pool), 3);
    for (int32_t i = 1; i <= 3; i++) release(&pool, i);
    assert_int_equal(block_pool_num_in_use(&pool), 0);
    block_pool_free(&pool);
    block_pool_free(&pool);
}

static void test_cached_blocks_wait_at_the_tail(void **state)
{
    (void)state;
    struct block_pool pool = pool_of(4);
    bool evicted;
    for (int i = 0; i < 4; i++) take(&pool);
    block_pool_set_cached(&pool, 1, true);
    block_pool_set_cached(&pool, 3, true);
    for (int32_t i = 1; i <= 4; i++) release(&pool, i);
    assert_int_equal(pool.num_cached, 2);
    assert_int_equal(take(&pool), 4); /* not cached: the last freed first */
    assert_int_equal(take(&pool), 2);
    assert_int_equal(block_pool_take(&pool, &evicted), 1); /* cached: the first freed first */
    assert_true(evicted);
    assert_int_equal(pool.num_cached, 1);
    release(&pool, 1);
    assert_int_equal(pool.num_cached, 1); /* no longer cached: it was forgotten */
    block_pool_free(&pool);
}

static void test_a_hit_takes_a_block_out_of_the_list(void **state)
{
    (void)state;
    struct block_pool pool = pool_of(3);
    for (int i = 0; i < 3; i++) take(&pool);
    block_pool_set_cached(&pool, 2, true);
    for (int32_t i = 1; i <= 3; i++) release(&pool, i);
    share(&pool, 2);
    check(&pool);
    assert_int_equal(pool.num_free, 2);
    assert_int_equal(pool.num_cached, 0);
    share(&pool, 2);
    release(&pool, 2);
    assert_int_equal(pool.num_free, 2);
    release(&pool, 2);
    assert_int_equal(pool.num_cached, 1);
    block_pool_set_cached(&pool, 2, false);
    check(&pool);
    assert_int_equal(pool.num_cached, 0);
    block_pool_free(&pool);
}

static void test_wrong_releases_name_the_block(void **state)
{
    (void)state;
    struct block_pool pool = pool_of(3);
    struct error err;
    take(&pool);
    release(&pool, 1);
    assert_int_equal(block_pool_release(&pool, 1, &err), STATUS_INTERNAL);
    assert_non_null(strstr(err.text, "block 1"));
    assert_int_equal(block_pool_release(&pool, 0, &err), STATUS_INTERNAL);
    assert_non_null(strstr(err.text, "block 0"));
    assert_int_equal(block_pool_release(&pool, 4, &err), STATUS_INTERNAL);
    assert_non_null(strstr(err.text, "block 4"));
    assert_int_equal(block_pool_release(&pool, -7, &err), STATUS_INTERNAL);
    assert_non_null(strstr(err.text, "block -7"));
    check(&pool);
    block_pool_free(&pool);
}

static void test_slots_are_filled_once_by_one_holder(void **state)
{
    (void)state;
    struct block_pool pool = pool_of(3);
    struct error err;
    int32_t block = take(&pool);
    assert_int_equal(block_pool_fill(&pool, block, 0, 3, &err), STATUS_OK);
    assert_int_equal(block_pool_fill(&pool, block, 3, 2, &err), STATUS_OK);
    assert_int_equal(block_pool_fill(&pool, block, 4, 1, &err), STATUS_INTERNAL); /* a second time */
    assert_non_null(strstr(err.text, "block 1"));
    assert_int_equal(block_pool_fill(&pool, block, 7, 1, &err), STATUS_INTERNAL); /* a gap */
    release(&pool, block);
    assert_int_equal(take(&pool), block);
    assert_int_equal(block_pool_fill(&pool, block, 0, 1, &err), STATUS_OK); /* taken anew */
    share(&pool, block);
    assert_int_equal(block_pool_fill(&pool, block, 1, 1, &err), STATUS_INTERNAL); /* shared */
    block_pool_free(&pool);
}

/* Against a model of counts in a plain array. */
static void test_random_operations(void **state)
{
    (void)state;
    enum { NUM = 13 };
    struct block_pool pool = pool_of(NUM);
    int32_t count[NUM + 1] = {0};
    bool cached[NUM + 1] = {false};
    uint32_t random = 1;
    for (int step = 0; step < 20000; step++) {
        random = random * 1664525 + 1013904223;
        int32_t block = 1 + (int32_t)((random >> 16) % NUM);
        bool evicted;
        struct error err;
        switch (random >> 28 & 3) {
        case 0:
            block = block_pool_take(&pool, &evicted);
            if (block == BLOCK_NONE) break;
            assert_int_equal(count[block]++, 0);
            assert_int_equal(evicted, cached[block]);
            cached[block] = false;
            break;
        case 1:
            if (!count[block] && !cached[block]) break;
            share(&pool, block);
            count[block]++;
            break;
        case 2:
            assert_int_equal(block_pool_release(&pool, block, &err), count[block] ? STATUS_OK : STATUS_INTERNAL);
            if (count[block]) count[block]--;
            break;
        default:
            if (!count[block]) break;
            cached[block] = !cached[block];
            block_pool_set_cached(&pool, block, cached[block]);
        }
        check(&pool);
        assert_int_equal(pool.blocks[block == BLOCK_NONE ? 1 : block].ref_count,
                         count[block == BLOCK_NONE ? 1 : block]);
    }
    block_pool_free(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_are_numbered_from_one),
        cmocka_unit_test(test_cached_blocks_wait_at_the_tail),
        cmocka_unit_test(test_a_hit_takes_a_block_out_of_the_list),
        cmocka_unit_test(test_wrong_releases_name_the_block),
        cmocka_unit_test(test_slots_are_filled_once_by_one_holder),
        cmocka_unit_test(test_random_operations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
