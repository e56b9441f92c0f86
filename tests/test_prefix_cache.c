/* The prefix cache: identities are compared, whatever the hash says, and prefixes live as long as something refers to
 * them. Each test of behaviour runs with the real hash and with two that collide. */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "scheduler/block_pool.h"
#include "scheduler/prefix_cache.h"

enum { SIZE = 4, GROUPS = 2 };

static uint64_t hash_constant(int32_t parent, const int32_t *tokens, int32_t count)
{
    (void)parent, (void)tokens, (void)count;
    return 5;
}

/* A block collides with the same tokens after any other parent. */
static uint64_t hash_without_parent(int32_t parent, const int32_t *tokens, int32_t count)
{
    (void)parent;
    return (uint64_t)tokens[0] + (uint64_t)count;
}

static struct prefix_cache cache_of(void **state)
{
    struct prefix_cache cache;
    struct error err;
    assert_int_equal(prefix_cache_init(&cache, 20, SIZE, GROUPS, &err), STATUS_OK);
    if (*state) cache.hash = (prefix_hash_function *)*state;
    return cache;
}

static void check(const struct prefix_cache *cache)
{
    struct error err;
    if (prefix_cache_check(cache, &err) != STATUS_OK) fail_msg("%s", err.text);
}

static void free_cache(struct prefix_cache *cache)
{
    check(cache);
    prefix_cache_free(cache);
    prefix_cache_free(cache);
}

/* A block of four tokens that a letter stands for. */
struct tokens {
    int32_t ids[SIZE];
};

static struct tokens tokens_of(char letter)
{
    return (struct tokens){{letter, 7, 7, letter + 1}};
}

static int32_t find(const struct prefix_cache *cache, int32_t parent, char letter)
{
    return prefix_cache_find(cache, parent, tokens_of(letter).ids);
}

static int32_t insert(struct prefix_cache *cache, int32_t parent, char letter)
{
    return prefix_cache_insert(cache, parent, tokens_of(letter).ids);
}

/* A new prefix, pinned. */
static int32_t insert_new(struct prefix_cache *cache, int32_t parent, char letter)
{
    assert_int_equal(find(cache, parent, letter), PREFIX_NONE);
    const int32_t prefix = insert(cache, parent, letter);
    assert_int_not_equal(prefix, PREFIX_NONE);
    prefix_cache_pin(cache, prefix);
    assert_int_equal(find(cache, parent, letter), prefix);
    check(cache);
    return prefix;
}

static void unpin(struct prefix_cache *cache, int32_t prefix)
{
    prefix_cache_unpin(cache, prefix);
    check(cache);
}

/* A salt of a request; all hashes are the same if those of prefixes are. */
static struct cache_salt *create_salt(const struct prefix_cache *cache, const char *text)
{
    struct cache_salt *salt = cache_salt_create(text);
    assert_non_null(salt);
    if (cache->hash == hash_constant) salt->hash = 5;
    return salt;
}

static struct cache_salt *add_salt(struct prefix_cache *cache, const char *text)
{
    return prefix_cache_add_salt(cache, create_salt(cache, text));
}

/* Whether a request or a prefix keeps the salt. */
static bool is_kept(struct prefix_cache *cache, const char *text)
{
    struct cache_salt *made = create_salt(cache, text);
    const uintptr_t address = (uintptr_t)made;
    struct cache_salt *salt = prefix_cache_add_salt(cache, made);
    const bool kept = (uintptr_t)salt != address;
    cache_salt_release(salt);
    return kept;
}

static int32_t root_of(struct prefix_cache *cache, int32_t cache_namespace, const char *text)
{
    struct cache_salt *salt = text ? add_salt(cache, text) : NULL;
    const int32_t root = prefix_cache_root(cache_namespace, salt);
    assert_int_not_equal(root, PREFIX_NONE);
    cache_salt_release(salt);
    return root;
}

/* The root of a salt that no request has any more, pinned. */
static int32_t make_root(struct prefix_cache *cache, int32_t cache_namespace, const char *text)
{
    struct cache_salt *salt = text ? add_salt(cache, text) : NULL;
    const int32_t root = prefix_cache_root(cache_namespace, salt);
    prefix_cache_pin(cache, root);
    cache_salt_release(salt);
    check(cache);
    assert_int_equal(root_of(cache, cache_namespace, text), root);
    return root;
}

/* How many more prefixes the cache has room for. Those of `filler` are given back. */
static int32_t room(struct prefix_cache *cache)
{
    const int32_t root = prefix_cache_root(0, NULL);
    int32_t filler[128], count = 0;
    for (struct tokens t = {{0, -1, -1, -1}};; t.ids[0]++) {
        const int32_t prefix = prefix_cache_insert(cache, root, t.ids);
        if (prefix == PREFIX_NONE) break;
        assert_true(count < 128);
        prefix_cache_pin(cache, prefix);
        filler[count++] = prefix;
    }
    for (int32_t i = 0; i < count; i++) prefix_cache_unpin(cache, filler[i]);
    return count;
}

/* Pins new prefixes until there is room for `left` more. */
static void fill_up(struct prefix_cache *cache, int32_t left)
{
    const int32_t root = prefix_cache_root(1, NULL);
    struct tokens t = {{0, -2, -2, -2}};
    for (int32_t i = room(cache) - left; i > 0; i--, t.ids[0]++)
        prefix_cache_pin(cache, prefix_cache_insert(cache, root, t.ids));
    assert_int_equal(room(cache), left);
    check(cache);
}

static void test_an_identity_is_parent_and_tokens(void **state)
{
    struct prefix_cache cache = cache_of(state);
    const int32_t root = prefix_cache_root(0, NULL), other_root = prefix_cache_root(1, NULL);
    assert_true(root != PREFIX_NONE && other_root != PREFIX_NONE && root != other_root);
    const int32_t p[] = {insert_new(&cache, root, 'a'), insert_new(&cache, root, 'b'),
                         insert_new(&cache, other_root, 'a')};
    const int32_t q[] = {insert_new(&cache, p[0], 'a'), insert_new(&cache, p[1], 'a'), insert_new(&cache, p[2], 'a')};
    const int32_t all[] = {root, other_root, p[0], p[1], p[2], q[0], q[1], q[2]};
    for (size_t i = 0; i < 8; i++)
        for (size_t j = 0; j < i; j++) assert_int_not_equal(all[i], all[j]);
    assert_int_equal(find(&cache, root, 'a'), p[0]);
    assert_int_equal(find(&cache, root, 'b'), p[1]);
    assert_int_equal(find(&cache, other_root, 'a'), p[2]);
    for (int i = 0; i < 3; i++) assert_int_equal(find(&cache, p[i], 'a'), q[i]);
    assert_int_equal(find(&cache, q[0], 'a'), PREFIX_NONE);
    assert_int_equal(find(&cache, other_root, 'b'), PREFIX_NONE);
    for (int i = 0; i < SIZE; i++) { /* each token counts */
        struct tokens other = tokens_of('a');
        other.ids[i] += 100;
        assert_int_equal(prefix_cache_find(&cache, root, other.ids), PREFIX_NONE);
    }
    assert_int_equal(find(&cache, PREFIX_NONE, 'a'), PREFIX_NONE);
    assert_int_equal(insert(&cache, PREFIX_NONE, 'a'), PREFIX_NONE);
    assert_int_equal(insert(&cache, root, 'a'), p[0]); /* it is not made twice */
    free_cache(&cache);
}

static void test_a_prefix_has_a_block_of_each_group(void **state)
{
    struct prefix_cache cache = cache_of(state);
    const int32_t before = room(&cache), root = prefix_cache_root(0, NULL);
    const int32_t prefix = insert(&cache, root, 'a');
    prefix_cache_attach(&cache, prefix, 1, 8);
    check(&cache);
    assert_int_equal(prefix_cache_block(&cache, prefix, 0), 0);
    assert_int_equal(prefix_cache_block(&cache, prefix, 1), 8);
    prefix_cache_attach(&cache, prefix, 0, 3);
    prefix_cache_detach(&cache, prefix, 8);
    check(&cache);
    assert_int_equal(prefix_cache_block(&cache, prefix, 0), 3);
    assert_int_equal(prefix_cache_block(&cache, prefix, 1), 0);
    assert_int_equal(find(&cache, root, 'a'), prefix);
    prefix_cache_detach(&cache, prefix, 3);
    assert_int_equal(find(&cache, root, 'a'), PREFIX_NONE);
    assert_int_equal(room(&cache), before);
    assert_int_equal(prefix_cache_block(&cache, insert_new(&cache, root, 'b'), 0), 0); /* where 'a' was */
    free_cache(&cache);
}

static void test_eviction_in_the_middle_keeps_longer_prefixes(void **state)
{
    struct prefix_cache cache = cache_of(state);
    const int32_t before = room(&cache), root = prefix_cache_root(0, NULL);
    int32_t p[5], parent = root;
    for (int i = 0; i < 5; i++) {
        parent = p[i] = insert(&cache, parent, "abcde"[i]);
        prefix_cache_attach(&cache, parent, 0, 10 + i);
    }
    for (int i = 0; i < 4; i++) prefix_cache_detach(&cache, p[i], 10 + i);
    check(&cache);
    for (int i = 0; i < 5; i++) assert_int_equal(find(&cache, i ? p[i - 1] : root, "abcde"[i]), p[i]);
    for (int i = 0; i < 5; i++) assert_int_equal(prefix_cache_block(&cache, p[i], 0), i < 4 ? 0 : 14);
    assert_int_equal(room(&cache), before - 5);
    prefix_cache_attach(&cache, p[2], 0, 20); /* computed again */
    prefix_cache_detach(&cache, p[4], 14);    /* the last two go, the first three stay */
    check(&cache);
    assert_int_equal(find(&cache, p[2], 'd'), PREFIX_NONE);
    assert_int_equal(find(&cache, p[1], 'c'), p[2]);
    assert_int_equal(room(&cache), before - 3);
    prefix_cache_detach(&cache, p[2], 20);
    assert_int_equal(find(&cache, root, 'a'), PREFIX_NONE);
    assert_int_equal(room(&cache), before);
    free_cache(&cache);
}

static void test_a_number_is_used_again_only_when_nothing_refers_to_it(void **state)
{
    struct prefix_cache cache = cache_of(state);
    const int32_t root = prefix_cache_root(0, NULL);
    const int32_t parent = insert_new(&cache, root, 'a'), child = insert_new(&cache, parent, 'b');
    unpin(&cache, parent); /* its child keeps it */
    prefix_cache_pin(&cache, child);
    unpin(&cache, child); /* one pin of two */
    fill_up(&cache, 0);   /* asks for every number: neither is given away */
    assert_int_equal(find(&cache, root, 'a'), parent);
    assert_int_equal(find(&cache, parent, 'b'), child);
    unpin(&cache, child);
    assert_int_equal(find(&cache, root, 'a'), PREFIX_NONE);
    const int32_t first = insert_new(&cache, root, 'c'), second = insert_new(&cache, first, 'd');
    assert_true((first == parent && second == child) || (first == child && second == parent));
    assert_int_equal(insert(&cache, second, 'e'), PREFIX_NONE);
    free_cache(&cache);
}

static void test_there_is_room_for_every_block(void **state)
{
    struct prefix_cache cache = cache_of(state);
    assert_true(room(&cache) >= 20);
    const int32_t root = prefix_cache_root(0, NULL), known = insert_new(&cache, root, 'a');
    fill_up(&cache, 0);
    assert_int_equal(insert(&cache, root, 'b'), PREFIX_NONE);
    assert_int_equal(insert(&cache, root, 'a'), known); /* what is there is found */
    check(&cache);
    unpin(&cache, known);
    assert_int_equal(room(&cache), 1);
    free_cache(&cache);
}

static void test_an_insertion_that_fails_leaves_nothing(void **state)
{
    struct prefix_cache cache = cache_of(state);
    struct cache_salt *salt = add_salt(&cache, "x");
    fill_up(&cache, 1);
    const int32_t root = prefix_cache_root(1, salt), below = insert_new(&cache, root, 'a');
    cache_salt_release(salt);
    assert_int_equal(insert(&cache, below, 'b'), PREFIX_NONE);
    check(&cache);
    assert_int_equal(root_of(&cache, 1, "x"), root);
    unpin(&cache, below);
    assert_false(is_kept(&cache, "x"));
    prefix_cache_pin(&cache, insert(&cache, 1, 'a')); /* the last number */
    salt = add_salt(&cache, "x");
    assert_int_equal(insert(&cache, prefix_cache_root(1, salt), 'b'), PREFIX_NONE);
    cache_salt_release(salt);
    assert_false(is_kept(&cache, "x"));
    free_cache(&cache);
}

static void test_roots_without_a_salt_stay(void **state)
{
    struct prefix_cache cache = cache_of(state);
    for (int cache_namespace = 0; cache_namespace < CACHE_NAMESPACES; cache_namespace++) {
        const int32_t root = prefix_cache_root(cache_namespace, NULL);
        assert_int_equal(make_root(&cache, cache_namespace, NULL), root);
        prefix_cache_unpin(&cache, root);
        prefix_cache_pin(&cache, root);
        prefix_cache_unpin(&cache, root);
        unpin(&cache, insert_new(&cache, root, 'a'));
        assert_int_equal(prefix_cache_root(cache_namespace, NULL), root);
    }
    prefix_cache_pin(&cache, PREFIX_NONE);
    prefix_cache_unpin(&cache, PREFIX_NONE);
    free_cache(&cache);
}

/* A salt of `length` bytes, all but the one at `at` the same. */
static const char *salt_of(char *out, int length, int at)
{
    memset(out, 's', (size_t)length);
    if (at < length) out[at] = 't';
    out[length] = '\0';
    return out;
}

enum { LONGEST = 1000000 };
static char texts[4][LONGEST + 1];

/* However long a salt is, it takes the room of no prefix. */
static void test_each_salt_has_a_root_of_its_own(void **state)
{
    static const int lengths[] = {0, 1, 2, 16, 1000, LONGEST};
    struct prefix_cache cache = cache_of(state);
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        const int32_t before = room(&cache);
        int32_t roots[4][2]; /* of four salts, the first two of which are the same */
        const int n = lengths[l], at[] = {n, n, n - 1, 0}, distinct = n == 0 ? 2 : n == 1 ? 3 : 4;
        for (int i = 0; i < distinct; i++)
            for (int k = 0; k < 2; k++) {
                const char *text = salt_of(texts[i], n, at[i]);
                assert_int_equal(is_kept(&cache, text), i == 1 || k == 1);
                roots[i][k] = make_root(&cache, k, text);
                for (int j = 0; j < i; j++) assert_int_equal(roots[i][k] == roots[j][k], i == 1);
            }
        assert_int_not_equal(roots[0][0], roots[0][1]);
        assert_int_not_equal(roots[0][0], prefix_cache_root(0, NULL));
        const int32_t prefix = insert_new(&cache, roots[0][0], 'a');
        assert_int_equal(find(&cache, prefix_cache_root(0, NULL), 'a'), PREFIX_NONE);
        if (distinct > 2) assert_int_equal(find(&cache, roots[2][0], 'a'), PREFIX_NONE);
        assert_int_equal(room(&cache), before - 1);
        prefix_cache_unpin(&cache, prefix);
        for (int i = 0; i < distinct; i++)
            for (int k = 0; k < 2; k++) unpin(&cache, roots[i][k]);
        assert_false(is_kept(&cache, texts[0]));
        assert_int_equal(cache.idle_bytes, 0);
    }
    free_cache(&cache);
}

/* A salt is kept as long as a request has it or something lies below one of its roots. */
static void test_how_long_a_salt_is_kept(void **state)
{
    struct prefix_cache cache = cache_of(state);
    struct cache_salt *first = add_salt(&cache, "salt"), *other = add_salt(&cache, "tlas");
    assert_ptr_not_equal(first, other);
    assert_ptr_equal(add_salt(&cache, "salt"), first);
    cache_salt_release(first);
    check(&cache);
    const int32_t root = prefix_cache_root(1, first), below = insert_new(&cache, root, 'a');
    cache_salt_release(first);
    check(&cache);
    assert_int_equal(cache.idle_bytes, 4);
    assert_ptr_equal(add_salt(&cache, "salt"), first);
    assert_int_equal(cache.idle_bytes, 0);
    unpin(&cache, below); /* the request keeps it */
    assert_int_equal(prefix_cache_root(1, first), root);
    assert_true(is_kept(&cache, "salt") && is_kept(&cache, "tlas"));
    cache_salt_release(first);
    cache_salt_release(other);
    assert_false(is_kept(&cache, "salt") || is_kept(&cache, "tlas"));
    free_cache(&cache);
}

/* Roots stay different while the table of salts grows, and places are used again. */
static void test_many_salts(void **state)
{
    enum { COUNT = 1000 };
    static struct cache_salt *salts_of_requests[COUNT];
    struct prefix_cache cache = cache_of(state);
    char text[16];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < COUNT; i++) {
            snprintf(text, sizeof text, "%d", i);
            salts_of_requests[i] = add_salt(&cache, text);
            assert_int_equal(prefix_cache_root(1, salts_of_requests[i]), root_of(&cache, 1, text));
        }
        assert_true(cache.num_places < 2 * COUNT);
        check(&cache);
        for (int i = 1; i < COUNT; i++)
            assert_int_not_equal(prefix_cache_root(0, salts_of_requests[i]),
                                 prefix_cache_root(0, salts_of_requests[i - 1]));
        for (int i = 0; i < COUNT; i++) cache_salt_release(salts_of_requests[i]);
    }
    free_cache(&cache);
}

/* A salt that a request still has when the cache goes is the request's. */
static void test_a_salt_outlives_its_cache(void **state)
{
    struct prefix_cache cache = cache_of(state);
    struct cache_salt *salt = add_salt(&cache, "salt");
    prefix_cache_attach(&cache, insert(&cache, make_root(&cache, 0, "an idle one"), 'a'), 0, 7);
    prefix_cache_attach(&cache, insert(&cache, prefix_cache_root(0, salt), 'a'), 0, 8);
    free_cache(&cache);
    assert_int_equal(prefix_cache_root(0, salt), PREFIX_NONE);
    cache_salt_release(salt);
    cache_salt_release(cache_salt_create("never added"));
    cache_salt_release(NULL);
}

/* Salts that no request has are kept up to a limit. Of one more, nothing is found; its prefixes stay until their blocks
 * are taken. */
static void test_the_salts_without_a_request_are_limited(void **state)
{
    struct prefix_cache cache = cache_of(state);
    const int32_t before = room(&cache);
    int32_t prefixes[80], kept = 0;
    for (int32_t i = 0; i < 80; i++) {
        salt_of(texts[0], LONGEST, i);
        struct cache_salt *salt = add_salt(&cache, texts[0]);
        prefixes[i] = insert_new(&cache, prefix_cache_root(i % 2, salt), 'a');
        cache_salt_release(salt);
        check(&cache);
        assert_true(cache.idle_bytes <= 64 << 20);
        kept += is_kept(&cache, texts[0]);
    }
    assert_int_equal(kept, (64 << 20) / LONGEST);
    assert_int_equal(room(&cache), before - 80);
    for (int32_t i = 0; i < 80; i++) unpin(&cache, prefixes[i]);
    assert_int_equal(cache.idle_bytes, 0);
    assert_int_equal(room(&cache), before);
    free_cache(&cache);
}

/* The check finds what it is for. */
static void test_the_check_finds_damage(void **state)
{
    struct prefix_cache cache = cache_of(state);
    struct error err;
    const int32_t root = prefix_cache_root(0, NULL), a = insert_new(&cache, root, 'a');
    const int32_t b = insert_new(&cache, a, 'b'), c = insert_new(&cache, root, 'c'), d = insert_new(&cache, root, 'd');
    unpin(&cache, a);
    unpin(&cache, c);
    unpin(&cache, d); /* two numbers are free */
    const struct prefix_cache sound = cache;
    int32_t *tokens = cache.tokens + (size_t)b * SIZE;
#define FOUND(damage, repair)                                                                                          \
    do {                                                                                                               \
        damage;                                                                                                        \
        assert_int_equal(prefix_cache_check(&cache, &err), STATUS_INTERNAL);                                           \
        cache = sound;                                                                                                 \
        repair;                                                                                                        \
        check(&cache);                                                                                                 \
    } while (0)
    FOUND(cache.blocks[GROUPS * a] = 9, cache.blocks[GROUPS * a] = 0); /* not counted: two references, one is counted */
    FOUND(cache.blocks[GROUPS * c] = 9, cache.blocks[GROUPS * c] = 0); /* of a free number */
    FOUND(cache.first_free = PREFIX_NONE, );                           /* lost numbers */
    FOUND(cache.first_free = c == sound.first_free ? d : c, );
    FOUND(cache.first_free = a, );
    FOUND(cache.num_unused--, );
    FOUND(cache.num_unused++; cache.first_free = PREFIX_NONE, );
    if (!*state) FOUND(tokens[0]++, tokens[0]--); /* not where its hash says */
    for (int32_t i = 0; i < cache.num_buckets; i++) {
        const int32_t first = cache.buckets[i];
        if (first == PREFIX_NONE) continue;
        FOUND(cache.buckets[i] = PREFIX_NONE, cache.buckets[i] = first); /* prefixes in no chain */
        FOUND(cache.buckets[i] = c, cache.buckets[i] = first);           /* a free one in a chain */
    }
    struct cache_salt *salt = add_salt(&cache, "salt");
    const int32_t salted = insert_new(&cache, prefix_cache_root(0, salt), 'a'), place = salt->place;
    const uint64_t hash = salt->hash;
    cache_salt_release(salt);
    const struct prefix_cache with_salt = cache;
#define SALT_FOUND(damage, repair)                                                                                     \
    do {                                                                                                               \
        damage;                                                                                                        \
        assert_int_equal(prefix_cache_check(&cache, &err), STATUS_INTERNAL);                                           \
        cache = with_salt;                                                                                             \
        repair;                                                                                                        \
        check(&cache);                                                                                                 \
    } while (0)
    SALT_FOUND(cache.idle_bytes++, );
    SALT_FOUND(salt->place++, salt->place = place);
    SALT_FOUND(salt->hash++, salt->hash = hash); /* not where its hash says */
    SALT_FOUND(cache.first_free_place = -1, );
#undef SALT_FOUND
    unpin(&cache, salted);
#undef FOUND
    const int32_t lost = insert(&cache, root, 'e'); /* neither pinned nor given a block */
    assert_int_equal(prefix_cache_check(&cache, &err), STATUS_INTERNAL);
    prefix_cache_pin(&cache, lost);
    free_cache(&cache);
}

/* ---- random operations, compared with an obvious model ---- */

static const char *const salts[] = {NULL, "", "a", "b", "ab", "a salt that is longer than a block of tokens"};
enum { NUM_SALTS = sizeof salts / sizeof *salts, MAX_DEPTH = 6, MAX_NODES = 256 };

/* A prefix is a string: a letter for its root, "ABCD..", and one for each block of tokens, "abc". */
struct node {
    char path[MAX_DEPTH + 2];
    int32_t number, blocks[GROUPS], pins;
};

struct model {
    struct prefix_cache *cache;
    struct node nodes[MAX_NODES];
    struct cache_salt *held[NUM_SALTS]; /* by a request; NULL: by none */
    int32_t num_nodes, room, next_block;
    int removals, failures, reused, orphans; /* what happened: a test in which nothing does means nothing */
    bool was_used[MAX_NODES];                /* by number */
};

static int root_letter(int salt, int cache_namespace)
{
    return 'A' + CACHE_NAMESPACES * salt + cache_namespace;
}

static bool is_root(const struct node *node)
{
    return node->path[1] == '\0';
}

/* Roots without a salt are always there. */
static bool is_permanent(const struct node *node)
{
    return is_root(node) && node->path[0] < root_letter(1, 0);
}

static struct node *model_find(struct model *m, const char *path)
{
    for (int32_t i = 0; i < m->num_nodes; i++)
        if (!strcmp(m->nodes[i].path, path)) return &m->nodes[i];
    return NULL;
}

static struct node *model_add(struct model *m, const char *path, int32_t number)
{
    assert_true(number > 0 && number < MAX_NODES && m->num_nodes < MAX_NODES);
    for (int32_t i = 0; i < m->num_nodes; i++) assert_int_not_equal(m->nodes[i].number, number);
    struct node *node = &m->nodes[m->num_nodes++];
    *node = (struct node){.number = number};
    strcpy(node->path, path);
    m->room -= !is_root(node);
    m->reused += m->was_used[number];
    m->was_used[number] = true;
    return node;
}

static bool has_child(const struct model *m, const char *path)
{
    const size_t length = strlen(path);
    for (int32_t i = 0; i < m->num_nodes; i++)
        if (strlen(m->nodes[i].path) == length + 1 && !strncmp(m->nodes[i].path, path, length)) return true;
    return false;
}

/* The node, and then those above it, go when nothing refers to them. */
static void model_drop(struct model *m, struct node *node)
{
    while (!is_permanent(node) && !node->pins && !node->blocks[0] && !node->blocks[1] && !has_child(m, node->path)) {
        char parent[MAX_DEPTH + 2];
        const bool root = is_root(node);
        strcpy(parent, node->path);
        parent[strlen(parent) - 1] = '\0';
        m->room += !root;
        m->removals++;
        *node = m->nodes[--m->num_nodes];
        if (root) return;
        node = model_find(m, parent);
    }
    m->orphans += !node->blocks[0] && !node->blocks[1] && !node->pins;
}

static int32_t walk(struct prefix_cache *cache, const char *path)
{
    const int root = path[0] - 'A';
    int32_t prefix = root_of(cache, root % 2, salts[root / 2]);
    for (const char *letter = path + 1; *letter; letter++) prefix = find(cache, prefix, *letter);
    return prefix;
}

static void keep(struct model *m, struct node *node, bool with_block)
{
    const int32_t group = m->next_block % GROUPS;
    if (with_block && !is_root(node) && !node->blocks[group]) {
        node->blocks[group] = ++m->next_block;
        prefix_cache_attach(m->cache, node->number, group, node->blocks[group]);
    } else {
        prefix_cache_pin(m->cache, node->number);
        if (!is_permanent(node)) node->pins++;
    }
}

static void drop(struct model *m, struct node *node, int32_t group)
{
    if (group < GROUPS && node->blocks[group]) {
        prefix_cache_detach(m->cache, node->number, node->blocks[group]);
        node->blocks[group] = 0;
    } else if (node->pins || is_permanent(node)) {
        prefix_cache_unpin(m->cache, node->number);
        if (!is_permanent(node)) node->pins--;
    }
    model_drop(m, node);
}

/* The child of a node by a letter, kept; or nothing. */
static void add_child(struct model *m, const char *parent, int32_t parent_number, char letter, bool with_block)
{
    char path[MAX_DEPTH + 2];
    snprintf(path, sizeof path, "%s%c", parent, letter);
    struct node *node = model_find(m, path);
    const int32_t number = insert(m->cache, parent_number, letter);
    if (node)
        assert_int_equal(number, node->number);
    else if (m->room == 0)
        assert_int_equal(number, PREFIX_NONE);
    else
        node = model_add(m, path, number);
    if (node)
        keep(m, node, with_block);
    else
        m->failures++;
}

/* The root of a salt, pinned, or kept by a child alone. */
static void add_root(struct model *m, int salt, int cache_namespace, bool with_child, char letter)
{
    const char path[] = {(char)root_letter(salt, cache_namespace), '\0'};
    struct node *node = model_find(m, path);
    struct cache_salt *request = add_salt(m->cache, salts[salt]);
    const int32_t number = prefix_cache_root(cache_namespace, request);
    if (!node) node = model_add(m, path, number);
    assert_int_equal(number, node->number);
    if (with_child)
        add_child(m, path, number, letter, true);
    else
        keep(m, node, false);
    model_drop(m, model_find(m, path)); /* it has no child if there was no room for one */
    cache_salt_release(request);
}

/* A request with this salt comes, or goes. */
static void hold_salt(struct model *m, int salt)
{
    if (m->held[salt]) cache_salt_release(m->held[salt]);
    m->held[salt] = m->held[salt] ? NULL : add_salt(m->cache, salts[salt]);
}

static void verify(struct model *m, struct random *random)
{
    char path[MAX_DEPTH + 2] = {(char)random_between(random, 'A', root_letter(NUM_SALTS - 1, 1))};
    const int64_t depth = random_between(random, 0, MAX_DEPTH);
    for (int64_t i = 1; i <= depth; i++) path[i] = (char)random_between(random, 'a', 'c');
    const struct node *node = model_find(m, path);
    if (node || path[1]) assert_int_equal(walk(m->cache, path), node ? node->number : PREFIX_NONE);
    for (int32_t i = 0; i < m->num_nodes; i++) {
        node = &m->nodes[i];
        assert_int_equal(walk(m->cache, node->path), node->number);
        for (int32_t g = 0; g < GROUPS && !is_root(node); g++)
            assert_int_equal(prefix_cache_block(m->cache, node->number, g), node->blocks[g]);
    }
}

static void test_random_operations(void **state)
{
    struct prefix_cache cache = cache_of(state);
    struct model *m = calloc(1, sizeof *m);
    struct random random = {11};
    m->cache = &cache;
    m->room = room(&cache);
    const int32_t most = m->room;
    model_add(m, "A", prefix_cache_root(0, NULL));
    model_add(m, "B", prefix_cache_root(1, NULL));
    for (int step = 0; step < 100000; step++) {
        const bool growing = step / 1000 % 2 == 0; /* from empty to full and back */
        const struct node at = m->nodes[random_between(&random, 0, m->num_nodes - 1)];
        const char letter = (char)random_between(&random, 'a', 'c');
        const bool coin = random_bits(&random) & 1;
        const int64_t choice = random_between(&random, 0, growing ? 4 : 9);
        if (choice == 0)
            add_root(m, (int)random_between(&random, 1, NUM_SALTS - 1), coin, random_bits(&random) & 1, letter);
        else if (choice <= 2 && strlen(at.path) <= MAX_DEPTH)
            add_child(m, at.path, at.number, letter, coin);
        else if (choice == 3)
            keep(m, model_find(m, at.path), coin);
        else
            drop(m, model_find(m, at.path), (int32_t)random_between(&random, 0, GROUPS));
        if (step % 8 == 0) hold_salt(m, (int)random_between(&random, 1, NUM_SALTS - 1));
        check(&cache);
        if (step % 16 == 0) verify(m, &random);
        if (step % 64 == 0) assert_int_equal(room(&cache), m->room);
    }
    if (m->removals < 1000 || m->failures < 100 || m->reused < 1000 || m->orphans < 1000)
        fail_msg("%d removals, %d failures, %d numbers reused, %d prefixes kept by longer ones: too few to mean much",
                 m->removals, m->failures, m->reused, m->orphans);
    while (m->num_nodes > 2) {
        const int64_t i = random_between(&random, 2, m->num_nodes - 1);
        drop(m, &m->nodes[i], (int32_t)random_between(&random, 0, GROUPS));
    }
    assert_int_equal(room(&cache), most);
    for (int i = 0; i < NUM_SALTS; i++) cache_salt_release(m->held[i]);
    assert_int_equal(cache.idle_bytes, 0);
    free(m);
    free_cache(&cache);
}

/* ---- memory ---- */

static void test_a_cached_block_costs_less_than_100_bytes(void **state)
{
    (void)state;
    for (int32_t num_blocks = 1 << 17; num_blocks <= 1 << 19; num_blocks += 12345) {
        struct prefix_cache cache;
        struct block_pool pool;
        struct error err;
        assert_int_equal(block_pool_init(&pool, 1, num_blocks, &err), STATUS_OK);
        assert_int_equal(prefix_cache_init(&cache, num_blocks, 16, 1, &err), STATUS_OK);
        const size_t bytes = malloc_usable_size(pool.blocks) + malloc_usable_size(cache.prefixes) +
                             malloc_usable_size(cache.tokens) + malloc_usable_size(cache.blocks) +
                             malloc_usable_size(cache.buckets);
        if (bytes >= (size_t)num_blocks * 100) fail_msg("%zu bytes for %d blocks", bytes, num_blocks);
        assert_true(bytes >= (size_t)num_blocks * (16 + 12 + 4 + 64 + 1)); /* nothing was left out */
        block_pool_free(&pool);
        prefix_cache_free(&cache);
    }
}

int main(void)
{
    void *real = NULL, *constant = (void *)hash_constant, *no_parent = (void *)hash_without_parent;
#define WITH(test, hash) cmocka_unit_test_prestate(test, hash)
#define WITH_EACH(test) WITH(test, real), WITH(test, constant), WITH(test, no_parent)
    const struct CMUnitTest tests[] = {
        WITH_EACH(test_an_identity_is_parent_and_tokens),
        WITH_EACH(test_a_prefix_has_a_block_of_each_group),
        WITH_EACH(test_eviction_in_the_middle_keeps_longer_prefixes),
        WITH_EACH(test_a_number_is_used_again_only_when_nothing_refers_to_it),
        WITH_EACH(test_there_is_room_for_every_block),
        WITH_EACH(test_an_insertion_that_fails_leaves_nothing),
        WITH_EACH(test_roots_without_a_salt_stay),
        WITH_EACH(test_each_salt_has_a_root_of_its_own),
        WITH_EACH(test_how_long_a_salt_is_kept),
        WITH_EACH(test_many_salts),
        WITH_EACH(test_a_salt_outlives_its_cache),
        WITH_EACH(test_the_salts_without_a_request_are_limited),
        WITH_EACH(test_the_check_finds_damage),
        WITH_EACH(test_random_operations),
        cmocka_unit_test(test_a_cached_block_costs_less_than_100_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
