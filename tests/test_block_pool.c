/* The block pool: counts, the order of the free list, and errors that name the block. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/random.h"
#include "scheduler/block_pool.h"
#include "scheduler/prefix_cache.h"

#define SIZE 8

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

/* A block that evicts this prefix. */
static int32_t take_evicting(struct block_pool *pool, int32_t prefix)
{
    int32_t evicted = -1, block = block_pool_take(pool, &evicted);
    assert_int_equal(evicted, prefix);
    check(pool);
    return block;
}

static int32_t take(struct block_pool *pool)
{
    return take_evicting(pool, PREFIX_NONE);
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
    assert_int_equal(block_pool_share(pool, block, SIZE, &err), STATUS_OK);
    check(pool);
}

static void fill(struct block_pool *pool, int32_t block, int32_t offset, int32_t count)
{
    struct error err;
    assert_int_equal(block_pool_fill(pool, block, SIZE, offset, count, &err), STATUS_OK);
    check(pool);
}

static void cannot_fill(struct block_pool *pool, int32_t block, int32_t offset, int32_t count)
{
    struct error err;
    char name[32];
    snprintf(name, sizeof name, "block %d", block);
    assert_int_equal(block_pool_fill(pool, block, SIZE, offset, count, &err), STATUS_INTERNAL);
    if (!strstr(err.text, name)) fail_msg("\"%s\" does not name %s", err.text, name);
    check(pool);
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

static void test_a_pool_grows_from_nothing(void **state)
{
    (void)state;
    struct block_pool pool;
    struct error err;
    assert_int_equal(block_pool_init(&pool, 10, 0, &err), STATUS_OK);
    assert_int_equal(take(&pool), BLOCK_NONE);
    assert_int_equal(block_pool_grow(&pool, 2, &err), STATUS_OK);
    assert_int_equal(take(&pool), 10);
    assert_int_equal(take(&pool), 11);
    assert_int_equal(block_pool_grow(&pool, 1000, &err), STATUS_OK);
    assert_int_equal(block_pool_num_total(&pool), 1002);
    assert_int_equal(block_pool_num_in_use(&pool), 2);
    release(&pool, 10);
    assert_int_equal(take(&pool), 10); /* rather than one that was never taken */
    for (int32_t i = 12; i < 1012; i++) assert_int_equal(take(&pool), i);
    assert_int_equal(take(&pool), BLOCK_NONE);
    block_pool_free(&pool);
}

static void test_cached_blocks_wait_at_the_tail(void **state)
{
    (void)state;
    struct block_pool pool = pool_of(5);
    for (int i = 0; i < 4; i++) take(&pool);
    block_pool_set_prefix(&pool, 1, 70);
    block_pool_set_prefix(&pool, 3, 50);
    for (int32_t i = 1; i <= 4; i++) release(&pool, i);
    assert_int_equal(pool.num_cached, 2);
    assert_int_equal(take(&pool), 4); /* not cached: the last freed first */
    assert_int_equal(take(&pool), 2);
    assert_int_equal(take(&pool), 5);              /* never taken */
    assert_int_equal(take_evicting(&pool, 70), 1); /* cached: the first freed first */
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
    fill(&pool, 2, 0, SIZE);
    block_pool_set_prefix(&pool, 2, 9);
    for (int32_t i = 1; i <= 3; i++) release(&pool, i);
    share(&pool, 2);
    assert_int_equal(pool.blocks[2].filled, SIZE); /* it is full, as it was */
    cannot_fill(&pool, 2, 0, 1);
    assert_int_equal(pool.num_free, 2);
    assert_int_equal(pool.num_cached, 0);
    share(&pool, 2);
    release(&pool, 2);
    assert_int_equal(pool.num_free, 2);
    release(&pool, 2);
    assert_int_equal(pool.num_cached, 1);
    block_pool_free(&pool);
}

static void test_a_forgotten_block_is_free(void **state)
{
    (void)state;
    struct block_pool pool = pool_of(3);
    for (int32_t i = 1; i <= 3; i++) {
        take(&pool);
        block_pool_set_prefix(&pool, i, 10 * i);
    }
    for (int32_t i = 1; i <= 3; i++) release(&pool, i);
    block_pool_set_prefix(&pool, 2, PREFIX_NONE); /* cached until now: it is taken before cached ones */
    check(&pool);
    assert_int_equal(pool.num_cached, 2);
    struct error err;
    assert_int_equal(block_pool_share(&pool, 2, SIZE, &err), STATUS_INTERNAL);
    assert_non_null(strstr(err.text, "block 2"));
    assert_int_equal(take(&pool), 2);
    assert_int_equal(take_evicting(&pool, 10), 1);
    block_pool_set_prefix(&pool, 1, 40);
    block_pool_set_prefix(&pool, 1, PREFIX_NONE); /* in use: it stays so */
    release(&pool, 1);
    assert_int_equal(pool.num_cached, 1);
    assert_int_equal(take(&pool), 1);
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
    int32_t block = take(&pool);
    fill(&pool, block, 0, 3);
    fill(&pool, block, 3, 2);
    cannot_fill(&pool, block, 4, 1); /* a second time */
    cannot_fill(&pool, block, 6, 1); /* a gap */
    cannot_fill(&pool, block, 5, SIZE - 5 + 1);
    fill(&pool, block, 5, SIZE - 5);
    release(&pool, block);
    cannot_fill(&pool, block, 0, 1); /* free: what stands in its place in the list is kept */
    cannot_fill(&pool, 0, 0, 1);
    cannot_fill(&pool, 4, 0, 1);
    cannot_fill(&pool, -1, 0, 1);
    assert_int_equal(take(&pool), block);
    fill(&pool, block, 0, 1); /* taken anew */
    share(&pool, block);
    cannot_fill(&pool, block, 1, 1); /* shared */
    block_pool_free(&pool);
}

static void cannot_unfill(struct block_pool *pool, int32_t block, int32_t filled)
{
    struct error err;
    assert_int_equal(block_pool_unfill(pool, block, filled, &err), STATUS_INTERNAL);
    char name[20];
    snprintf(name, sizeof name, "block %d ", block);
    assert_non_null(strstr(err.text, name));
    check(pool);
}

/* Slots that count no more are filled again, from the first of them on. */
static void test_slots_may_be_taken_back(void **state)
{
    (void)state;
    struct block_pool pool = pool_of(2);
    struct error err;
    const int32_t block = take(&pool);
    fill(&pool, block, 0, SIZE);
    for (int32_t filled = SIZE; filled >= 0; filled--) {
        assert_int_equal(block_pool_unfill(&pool, block, filled, &err), STATUS_OK);
        if (filled < SIZE) cannot_fill(&pool, block, filled + 1, 1);
        cannot_unfill(&pool, block, filled + 1); /* more than there are */
    }
    cannot_unfill(&pool, block, -1);
    fill(&pool, block, 0, SIZE);
    share(&pool, block);
    cannot_unfill(&pool, block, 3); /* another holder reads them */
    release(&pool, block);
    block_pool_set_prefix(&pool, block, 5);
    cannot_unfill(&pool, block, 3); /* they can be found */
    assert_int_equal(pool.blocks[block].filled, SIZE);
    block_pool_set_prefix(&pool, block, PREFIX_NONE);
    release(&pool, block);
    cannot_unfill(&pool, block, 0);
    cannot_unfill(&pool, 0, 0);
    cannot_unfill(&pool, 3, 0);
    block_pool_free(&pool);
}

/* The check finds what it is for. */
static void test_the_check_finds_damage(void **state)
{
    (void)state;
    struct block_pool pool = pool_of(5);
    struct error err;
    for (int i = 0; i < 4; i++) take(&pool);
    block_pool_set_prefix(&pool, 1, 6);
    for (int32_t i = 1; i <= 3; i++) release(&pool, i); /* the list: 3, 2, 1 (cached); 4 in use; 5 never taken */
    check(&pool);
    const struct block_pool sound = pool;
    struct block blocks[6];
    memcpy(blocks, pool.blocks, sizeof blocks);
#define FOUND(damage)                                                                                                  \
    do {                                                                                                               \
        damage;                                                                                                        \
        assert_int_equal(block_pool_check(&pool, &err), STATUS_INTERNAL);                                              \
        pool = sound;                                                                                                  \
        memcpy(pool.blocks, blocks, sizeof blocks);                                                                    \
        check(&pool);                                                                                                  \
    } while (0)
    FOUND(pool.num_free++);
    FOUND(pool.num_cached++);
    FOUND(pool.tail = 2);
    FOUND(pool.blocks[2].ref_count = 1);
    FOUND(pool.blocks[2].ref_count = -1);
    FOUND(pool.blocks[2].prefix = 8);
    FOUND(pool.blocks[3].prefix = 8; pool.num_cached++); /* cached before free ones */
    FOUND(pool.blocks[1].prefix = PREFIX_NONE);
    FOUND(pool.blocks[2].next = 3);
    FOUND(pool.blocks[2].next = 4);
    FOUND(pool.blocks[2].next = 5);
    FOUND(pool.blocks[2].previous = 1);
    FOUND(pool.blocks[4].filled = -1);
    FOUND(pool.blocks[5].ref_count = 1);
    FOUND(pool.blocks[5].prefix = 3);
    FOUND(pool.blocks[0].ref_count = 1);
    FOUND(pool.blocks[0].prefix = 3);
#undef FOUND
    block_pool_free(&pool);
}

/* What a pool should be, block by block. */
struct model_block {
    int32_t count, prefix, filled;
    int freed; /* when its count became 0; 0: it was never taken */
};

/* The block that is taken next, by the order of block_pool.h; 0: none. */
static int32_t next_taken(const struct model_block *blocks, int32_t num)
{
    int32_t best = 0;
    for (int32_t i = 1; i <= num; i++) {
        const struct model_block *a = &blocks[i], *b = &blocks[best];
        if (a->count) continue;
        const int kind = a->prefix ? 2 : a->freed ? 0 : 1, best_kind = b->prefix ? 2 : b->freed ? 0 : 1;
        if (!best || kind < best_kind || (kind == best_kind && (kind == 0 ? a->freed > b->freed : a->freed < b->freed)))
            best = i;
    }
    return best;
}

static void test_random_operations(void **state)
{
    (void)state;
    enum { NUM = 13 };
    struct block_pool pool = pool_of(NUM);
    struct model_block blocks[NUM + 1] = {{0}};
    struct random random = {1};
    struct error err;
    int taken = 0, evictions = 0, hits = 0, forgotten = 0;
    for (int step = 1; step <= 100000; step++) {
        const int32_t block = (int32_t)random_between(&random, 1, NUM), prefix = 1 + step;
        struct model_block *b = &blocks[block];
        switch (random_between(&random, 0, 8)) {
        case 0: {
            const int32_t expected = next_taken(blocks, NUM);
            assert_int_equal(take_evicting(&pool, blocks[expected].prefix), expected ? expected : BLOCK_NONE);
            if (!expected) break;
            taken++;
            evictions += blocks[expected].prefix != PREFIX_NONE;
            blocks[expected] = (struct model_block){.count = 1, .freed = step};
            break;
        }
        case 1:
            assert_int_equal(block_pool_share(&pool, block, SIZE, &err),
                             b->count || b->prefix ? STATUS_OK : STATUS_INTERNAL);
            if (!b->count && !b->prefix) break;
            hits += b->count == 0;
            if (b->count++ == 0) b->filled = SIZE;
            break;
        case 2:
        case 3:
            assert_int_equal(block_pool_release(&pool, block, &err), b->count ? STATUS_OK : STATUS_INTERNAL);
            if (b->count && --b->count == 0) b->freed = step;
            break;
        case 4:
        case 5: {
            const int32_t any = (int32_t)random_between(&random, 0, SIZE - 1);
            const int32_t offset = random_between(&random, 0, 3) ? b->filled : any;
            const int32_t count = (int32_t)random_between(&random, SIZE / 2, SIZE);
            const bool sound = b->count == 1 && b->filled == offset && offset + count <= SIZE;
            assert_int_equal(block_pool_fill(&pool, block, SIZE, offset, count, &err),
                             sound ? STATUS_OK : STATUS_INTERNAL);
            if (sound) b->filled += count;
            break;
        }
        case 6:
        case 7:
            if (!b->count || b->filled != SIZE) break;
            b->prefix = prefix;
            block_pool_set_prefix(&pool, block, prefix);
            break;
        default:
            if (!b->count && b->prefix) b->freed = step, forgotten++;
            b->prefix = PREFIX_NONE;
            block_pool_set_prefix(&pool, block, PREFIX_NONE);
        }
        check(&pool);
        int32_t num_free = 0, num_cached = 0;
        for (int32_t i = 1; i <= NUM; i++) {
            assert_int_equal(pool.blocks[i].ref_count, blocks[i].count);
            assert_int_equal(pool.blocks[i].prefix, blocks[i].prefix);
            if (blocks[i].count) assert_int_equal(pool.blocks[i].filled, blocks[i].filled);
            num_free += blocks[i].count == 0;
            num_cached += blocks[i].count == 0 && blocks[i].prefix;
        }
        assert_int_equal(pool.num_free, num_free);
        assert_int_equal(pool.num_cached, num_cached);
    }
    if (taken < 1000 || evictions < 100 || hits < 100 || forgotten < 100)
        fail_msg("%d taken, %d evictions, %d hits, %d forgotten: too few to mean much", taken, evictions, hits,
                 forgotten);
    block_pool_free(&pool);
}

/* Pages of the array that have memory. */
static size_t resident_pages(const struct block_pool *pool)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)pool->blocks / page * page;
    const size_t length = (uintptr_t)(pool->blocks + pool->end) - start, pages = (length + page - 1) / page;
    unsigned char *resident = malloc(pages);
    assert_non_null(resident);
    assert_int_equal(mincore((void *)start, length, resident), 0);
    size_t count = 0;
    for (size_t i = 0; i < pages; i++) count += resident[i] & 1;
    free(resident);
    return count;
}

static void test_blocks_cost_no_memory_before_they_are_used(void **state)
{
    (void)state;
    const double start = clock_seconds();
    struct block_pool pool = pool_of(10000000);
    print_message("a pool of 10^7 blocks: %.6f s\n", clock_seconds() - start);
    int32_t evicted;
    for (int32_t i = 1; i <= 1000; i++) assert_int_equal(block_pool_take(&pool, &evicted), i);
    const size_t pages = resident_pages(&pool);
    assert_true(pages >= 1000 * sizeof(struct block) / (size_t)sysconf(_SC_PAGESIZE));
#ifndef __SANITIZE_THREAD__          /* whose calloc writes to what it gives */
    assert_in_range(pages, 1, 1024); /* of some 40,000; a few more than were used, where pages are huge */
#endif
    block_pool_free(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_are_numbered_from_one),
        cmocka_unit_test(test_a_pool_grows_from_nothing),
        cmocka_unit_test(test_cached_blocks_wait_at_the_tail),
        cmocka_unit_test(test_a_hit_takes_a_block_out_of_the_list),
        cmocka_unit_test(test_a_forgotten_block_is_free),
        cmocka_unit_test(test_wrong_releases_name_the_block),
        cmocka_unit_test(test_slots_are_filled_once_by_one_holder),
        cmocka_unit_test(test_slots_may_be_taken_back),
        cmocka_unit_test(test_the_check_finds_damage),
        cmocka_unit_test(test_random_operations),
        cmocka_unit_test(test_blocks_cost_no_memory_before_they_are_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
