/* The prefix cache: identities are compared, whatever the hash says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/block_pool.h"
#include "scheduler/prefix_cache.h"

#define SIZE 4

static uint64_t hash_constant(uint64_t parent, const int32_t *tokens, int32_t count, uint64_t extra_key)
{
    (void)parent, (void)tokens, (void)count, (void)extra_key;
    return 5;
}

/* A block collides with the same tokens after any other parent. */
static uint64_t hash_without_parent(uint64_t parent, const int32_t *tokens, int32_t count, uint64_t extra_key)
{
    (void)parent;
    return (uint64_t)tokens[0] + (uint64_t)count + extra_key;
}

static struct prefix_cache cache_of(prefix_hash_function *hash)
{
    struct prefix_cache cache;
    struct error err;
    assert_int_equal(prefix_cache_init(&cache, 20, SIZE, &err), STATUS_OK);
    if (hash) cache.hash = hash;
    return cache;
}

static uint64_t insert(struct prefix_cache *cache, int32_t block, uint64_t parent, int32_t token)
{
    int32_t tokens[SIZE] = {token, token + 1, token + 2, token + 3};
    bool inserted;
    uint64_t id = prefix_cache_insert(cache, block, parent, tokens, 0, &inserted);
    assert_true(inserted);
    assert_int_equal(prefix_cache_id(cache, block), id);
    return id;
}

static int32_t find(const struct prefix_cache *cache, uint64_t parent, int32_t token, uint64_t extra_key)
{
    int32_t tokens[SIZE] = {token, token + 1, token + 2, token + 3};
    uint64_t id = 0;
    int32_t block = prefix_cache_find(cache, parent, tokens, extra_key, &id);
    assert_int_equal(id, block == BLOCK_NONE ? 0 : prefix_cache_id(cache, block));
    return block;
}

static void test_an_identity_is_parent_tokens_and_key(void **state)
{
    prefix_hash_function *hash = (prefix_hash_function *)*state;
    struct prefix_cache cache = cache_of(hash);
    uint64_t first = insert(&cache, 3, 0, 100), second = insert(&cache, 4, 0, 200);
    uint64_t child = insert(&cache, 5, first, 100), other = insert(&cache, 6, second, 100);
    assert_true(first && second && child && other);
    assert_true(first != second && child != other && first != child && second != other);
    assert_int_equal(find(&cache, 0, 100, 0), 3);
    assert_int_equal(find(&cache, 0, 200, 0), 4);
    assert_int_equal(find(&cache, first, 100, 0), 5);
    assert_int_equal(find(&cache, second, 100, 0), 6);
    assert_int_equal(find(&cache, child, 100, 0), BLOCK_NONE);
    assert_int_equal(find(&cache, 0, 101, 0), BLOCK_NONE);
    assert_int_equal(find(&cache, 0, 100, 1), BLOCK_NONE);
    prefix_cache_free(&cache);
    prefix_cache_free(&cache);
}

static void test_a_second_block_is_not_inserted(void **state)
{
    prefix_hash_function *hash = (prefix_hash_function *)*state;
    struct prefix_cache cache = cache_of(hash);
    int32_t tokens[SIZE] = {1, 2, 3, 4};
    bool inserted = true;
    uint64_t id = insert(&cache, 3, 0, 1);
    assert_true(prefix_cache_insert(&cache, 9, 0, tokens, 0, &inserted) == id);
    assert_false(inserted);
    assert_true(prefix_cache_id(&cache, 9) == 0);
    assert_true(prefix_cache_insert(&cache, 9, 0, tokens, 8, &inserted) != id); /* another key */
    assert_true(inserted);
    prefix_cache_free(&cache);
}

static void test_a_prefix_id_is_never_used_again(void **state)
{
    prefix_hash_function *hash = (prefix_hash_function *)*state;
    struct prefix_cache cache = cache_of(hash);
    uint64_t parent = insert(&cache, 1, 0, 10);
    insert(&cache, 2, parent, 20);
    prefix_cache_forget(&cache, 1);
    assert_int_equal(find(&cache, 0, 10, 0), BLOCK_NONE);
    uint64_t again = insert(&cache, 1, 0, 10);
    assert_true(again > parent);
    assert_int_equal(find(&cache, again, 20, 0), BLOCK_NONE); /* the orphan belongs to the old id */
    assert_int_equal(find(&cache, parent, 20, 0), 2);
    prefix_cache_free(&cache);
}

/* Random insertions and removals, in one chain and in many. */
static void test_random_operations(void **state)
{
    prefix_hash_function *hash = (prefix_hash_function *)*state;
    struct prefix_cache cache = cache_of(hash);
    int32_t holds[21] = {0}; /* block -> the token its identity starts with */
    uint32_t random = 7;
    for (int step = 0; step < 20000; step++) {
        random = random * 1664525 + 1013904223;
        int32_t block = 1 + (int32_t)((random >> 10) % 20), token = 1 + (int32_t)((random >> 20) % 30);
        if (holds[block]) {
            prefix_cache_forget(&cache, block);
            holds[block] = 0;
        } else if (find(&cache, 0, token, 0) == BLOCK_NONE) {
            insert(&cache, block, 0, token);
            holds[block] = token;
        }
        int32_t found = find(&cache, 0, token, 0), expected = BLOCK_NONE;
        for (int32_t i = 1; i <= 20; i++)
            if (holds[i] == token) expected = i;
        assert_int_equal(found, expected);
    }
    prefix_cache_free(&cache);
}

int main(void)
{
    void *real = NULL, *constant = (void *)hash_constant, *no_parent = (void *)hash_without_parent;
#define WITH(test, hash) cmocka_unit_test_prestate(test, hash)
    const struct CMUnitTest tests[] = {
        WITH(test_an_identity_is_parent_tokens_and_key, real),
        WITH(test_an_identity_is_parent_tokens_and_key, constant),
        WITH(test_an_identity_is_parent_tokens_and_key, no_parent),
        WITH(test_a_second_block_is_not_inserted, real),
        WITH(test_a_second_block_is_not_inserted, constant),
        WITH(test_a_second_block_is_not_inserted, no_parent),
        WITH(test_a_prefix_id_is_never_used_again, real),
        WITH(test_a_prefix_id_is_never_used_again, constant),
        WITH(test_a_prefix_id_is_never_used_again, no_parent),
        WITH(test_random_operations, real),
        WITH(test_random_operations, constant),
        WITH(test_random_operations, no_parent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
