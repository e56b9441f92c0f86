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

/* How many more prefixes the cache has room for. Those of `filler` are given back. */
static int32_t room(struct prefix_cache *cache)
{
    const int32_t root = prefix_cache_root(cache, false, NULL);
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
    const int32_t root = prefix_cache_root(cache, true, NULL);
    struct tokens t = {{0, -2, -2, -2}};
    for (int32_t i = room(cache) - left; i > 0; i--, t.ids[0]++)
        prefix_cache_pin(cache, prefix_cache_insert(cache, root, t.ids));
    assert_int_equal(room(cache), left);
    check(cache);
}

static void test_an_identity_is_parent_and_tokens(void **state)
{
    struct prefix_cache cache = cache_of(state);
    const int32_t root = prefix_cache_root(&cache, false, NULL), long_root = prefix_cache_root(&cache, true, NULL);
    assert_true(root != PREFIX_NONE && long_root != PREFIX_NONE && root != long_root);
    const int32_t p[] = {insert_new(&cache, root, 'a'), insert_new(&cache, root, 'b'),
                         insert_new(&cache, long_root, 'a')};
    const int32_t q[] = {insert_new(&cache, p[0], 'a'), insert_new(&cache, p[1], 'a'), insert_new(&cache, p[2], 'a')};
    const int32_t all[] = {root, long_root, p[0], p[1], p[2], q[0], q[1], q[2]};
    for (size_t i = 0; i < 8; i++)
        for (size_t j = 0; j < i; j++) assert_int_not_equal(all[i], all[j]);
    assert_int_equal(find(&cache, root, 'a'), p[0]);
    assert_int_equal(find(&cache, root, 'b'), p[1]);
    assert_int_equal(find(&cache, long_root, 'a'), p[2]);
    for (int i = 0; i < 3; i++) assert_int_equal(find(&cache, p[i], 'a'), q[i]);
    assert_int_equal(find(&cache, q[0], 'a'), PREFIX_NONE);
    assert_int_equal(find(&cache, long_root, 'b'), PREFIX_NONE);
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
    const int32_t before = room(&cache), root = prefix_cache_root(&cache, false, NULL);
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
    const int32_t before = room(&cache), root = prefix_cache_root(&cache, false, NULL);
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
    const int32_t root = prefix_cache_root(&cache, false, NULL);
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
    const int32_t root = prefix_cache_root(&cache, false, NULL), known = insert_new(&cache, root, 'a');
    fill_up(&cache, 0);
    assert_int_equal(insert(&cache, root, 'b'), PREFIX_NONE);
    assert_int_equal(insert(&cache, root, 'a'), known); /* what is there is found */
    assert_int_equal(prefix_cache_make_root(&cache, false, "salt"), PREFIX_NONE);
    check(&cache);
    unpin(&cache, known);
    assert_int_equal(room(&cache), 1);
    free_cache(&cache);
}

static void test_an_insertion_that_fails_leaves_nothing(void **state)
{
    struct prefix_cache cache = cache_of(state);
    const char *salt = "a salt of three chunks, which are 48 bytes";
    fill_up(&cache, 2);
    assert_int_equal(prefix_cache_make_root(&cache, false, salt), PREFIX_NONE);
    check(&cache);
    assert_int_equal(room(&cache), 2);
    for (int i = 0; i < 2; i++) { /* a root without anything below it, and one with */
        const int32_t root = prefix_cache_make_root(&cache, true, "x");
        assert_int_not_equal(root, PREFIX_NONE);
        const int32_t below = i ? insert_new(&cache, root, 'a') : root,
                      other = i ? PREFIX_NONE : insert(&cache, 1, 'a');
        if (other != PREFIX_NONE) prefix_cache_pin(&cache, other);
        assert_int_equal(insert(&cache, below, 'b'), PREFIX_NONE);
        check(&cache);
        assert_int_equal(prefix_cache_root(&cache, true, "x"), i ? root : PREFIX_NONE);
        prefix_cache_unpin(&cache, i ? below : other);
        assert_int_equal(prefix_cache_root(&cache, true, "x"), PREFIX_NONE);
        assert_int_equal(room(&cache), 2);
    }
    free_cache(&cache);
}

static void test_roots_without_a_salt_stay(void **state)
{
    struct prefix_cache cache = cache_of(state);
    for (int long_rope = 0; long_rope < 2; long_rope++) {
        const int32_t root = prefix_cache_root(&cache, long_rope, NULL);
        assert_int_equal(prefix_cache_make_root(&cache, long_rope, NULL), root);
        prefix_cache_unpin(&cache, root);
        prefix_cache_pin(&cache, root);
        prefix_cache_unpin(&cache, root);
        unpin(&cache, insert_new(&cache, root, 'a'));
        assert_int_equal(prefix_cache_root(&cache, long_rope, NULL), root);
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

static void test_each_salt_has_a_root_of_its_own(void **state)
{
    static const int lengths[] = {0, 1, 11, 12, 13, 27, 28, 29, 60, 1000};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        struct prefix_cache cache = cache_of(state);
        const int32_t before = room(&cache);
        char salts[4][1001]; /* the first two are the same */
        int32_t roots[4][2];
        const int n = lengths[l], at[] = {n, n, n - 1, 0}, distinct = n == 0 ? 2 : n == 1 ? 3 : 4;
        for (int i = 0; i < distinct; i++)
            for (int k = 0; k < 2; k++) {
                if (n == 1000 && (i == 3 || k == 1)) continue; /* no room for so many chunks */
                const char *salt = salt_of(salts[i], n, at[i]);
                if (i != 1) assert_int_equal(prefix_cache_root(&cache, k, salt), PREFIX_NONE);
                roots[i][k] = prefix_cache_make_root(&cache, k, salt);
                assert_int_not_equal(roots[i][k], PREFIX_NONE);
                prefix_cache_pin(&cache, roots[i][k]);
                check(&cache);
                assert_int_equal(prefix_cache_root(&cache, k, salt), roots[i][k]);
                if (i == 1) assert_int_equal(roots[1][k], roots[0][k]);
            }
        if (distinct > 2) assert_int_not_equal(roots[2][0], roots[0][0]);
        if (n < 1000) assert_int_not_equal(roots[0][0], roots[0][1]);
        if (distinct > 3 && n < 1000) assert_int_not_equal(roots[3][0], roots[2][0]);
        assert_int_not_equal(roots[0][0], prefix_cache_root(&cache, false, NULL));
        const int32_t prefix = insert_new(&cache, roots[0][0], 'a');
        assert_int_equal(find(&cache, prefix_cache_root(&cache, false, NULL), 'a'), PREFIX_NONE);
        if (distinct > 2) assert_int_equal(find(&cache, roots[2][0], 'a'), PREFIX_NONE);
        prefix_cache_unpin(&cache, prefix);
        for (int i = 0; i < distinct; i++)
            for (int k = 0; k < 2; k++)
                if (n < 1000 || (i < 3 && k == 0)) unpin(&cache, roots[i][k]);
        assert_int_equal(prefix_cache_root(&cache, false, salts[0]), PREFIX_NONE);
        assert_int_equal(room(&cache), before);
        free_cache(&cache);
    }
}

/* Tokens that spell a salt's path, and tokens that spell the rest of a longer salt. */
static void test_tokens_are_never_a_salt(void **state)
{
    struct prefix_cache cache = cache_of(state);
    struct tokens spelt = {{12}}, rest;
    memcpy(&spelt.ids[1], "twelve bytes", 12);
    memcpy(rest.ids, " and sixteen mor", 16);
    const int32_t root = prefix_cache_root(&cache, false, NULL);
    const int32_t tokens = prefix_cache_insert(&cache, root, spelt.ids);
    prefix_cache_pin(&cache, tokens);
    assert_int_equal(prefix_cache_root(&cache, false, "twelve bytes"), PREFIX_NONE);
    const int32_t salted = prefix_cache_make_root(&cache, false, "twelve bytes");
    assert_int_not_equal(salted, tokens);
    const int32_t below = prefix_cache_insert(&cache, salted, rest.ids);
    prefix_cache_pin(&cache, below);
    assert_int_equal(prefix_cache_root(&cache, false, "twelve bytes and sixteen mor"), PREFIX_NONE);
    const int32_t longer = prefix_cache_make_root(&cache, false, "twelve bytes and sixteen mor");
    prefix_cache_pin(&cache, longer);
    check(&cache);
    assert_int_not_equal(longer, below);
    assert_int_equal(prefix_cache_root(&cache, false, "twelve bytes"), salted);
    unpin(&cache, below);
    assert_int_equal(prefix_cache_root(&cache, false, "twelve bytes"), PREFIX_NONE);
    assert_int_equal(prefix_cache_root(&cache, false, "twelve bytes and sixteen mor"), longer);
    assert_int_equal(prefix_cache_find(&cache, root, spelt.ids), tokens);
    free_cache(&cache);
}

static void test_salts_in_blocks_of_one_token(void **state)
{
    (void)state;
    struct prefix_cache cache;
    struct error err;
    assert_int_equal(prefix_cache_init(&cache, 20, 1, 1, &err), STATUS_OK);
    const int32_t a = prefix_cache_make_root(&cache, false, "abcdefgh");
    prefix_cache_pin(&cache, a);
    const int32_t b = prefix_cache_make_root(&cache, false, "abcdefgi");
    prefix_cache_pin(&cache, b);
    check(&cache);
    assert_int_not_equal(a, b);
    assert_int_equal(prefix_cache_root(&cache, false, "abcdefgh"), a);
    assert_int_equal(prefix_cache_root(&cache, false, "abcd"), PREFIX_NONE);
    free_cache(&cache);
}

/* The check finds what it is for. */
static void test_the_check_finds_damage(void **state)
{
    struct prefix_cache cache = cache_of(state);
    struct error err;
    const int32_t root = prefix_cache_root(&cache, false, NULL), a = insert_new(&cache, root, 'a');
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
#undef FOUND
    const int32_t lost = insert(&cache, root, 'e'); /* neither pinned nor given a block */
    assert_int_equal(prefix_cache_check(&cache, &err), STATUS_INTERNAL);
    prefix_cache_pin(&cache, lost);
    free_cache(&cache);
}

/* ---- random operations, compared with an obvious model ---- */

/* No two share a chunk, so that each costs so many numbers. */
static const char *const salts[] = {NULL, "", "a", "b", "thirteen byte", "a salt of three chunks of sixteen bytes"};
enum { NUM_SALTS = sizeof salts / sizeof *salts, MAX_DEPTH = 6, MAX_NODES = 128 };

/* A prefix is a string: a letter for its root, "ABCD..", and one for each block of tokens, "abc". */
struct node {
    char path[MAX_DEPTH + 2];
    int32_t number, blocks[GROUPS], pins;
};

struct model {
    struct prefix_cache *cache;
    struct node nodes[MAX_NODES];
    int32_t num_nodes, room, next_block;
    int removals, failures, reused, orphans; /* what happened: a test in which nothing does means nothing */
    bool was_used[MAX_NODES];                /* by number */
};

static int root_letter(int salt, int long_rope)
{
    return 'A' + 2 * salt + long_rope;
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

static int32_t cost_of_root(const char *path)
{
    const char *salt = salts[(path[0] - 'A') / 2];
    return salt ? (int32_t)(4 + strlen(salt) + 15) / 16 : 0;
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
    m->room -= is_root(node) ? cost_of_root(path) : 1;
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
        m->room += root ? cost_of_root(node->path) : 1;
        m->removals++;
        *node = m->nodes[--m->num_nodes];
        if (root) return;
        node = model_find(m, parent);
    }
    m->orphans += !node->blocks[0] && !node->blocks[1] && !node->pins;
}

static int32_t walk(const struct prefix_cache *cache, const char *path)
{
    const int root = path[0] - 'A';
    int32_t prefix = prefix_cache_root(cache, root % 2, salts[root / 2]);
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
static void add_root(struct model *m, int salt, int long_rope, bool with_child, char letter)
{
    const char path[] = {(char)root_letter(salt, long_rope), '\0'};
    struct node *node = model_find(m, path);
    const int32_t number = prefix_cache_make_root(m->cache, long_rope, salts[salt]);
    if (!node && cost_of_root(path) > m->room) {
        assert_int_equal(number, PREFIX_NONE);
        m->failures++;
        return;
    }
    if (!node) node = model_add(m, path, number);
    assert_int_equal(number, node->number);
    if (with_child)
        add_child(m, path, number, letter, true);
    else
        keep(m, node, false);
    model_drop(m, model_find(m, path)); /* it has no child if there was no room for one */
}

static void verify(struct model *m, struct random *random)
{
    char path[MAX_DEPTH + 2] = {(char)random_between(random, 'A', root_letter(NUM_SALTS - 1, 1))};
    const int64_t depth = random_between(random, 0, MAX_DEPTH);
    for (int64_t i = 1; i <= depth; i++) path[i] = (char)random_between(random, 'a', 'c');
    const struct node *node = model_find(m, path);
    assert_int_equal(walk(m->cache, path), node ? node->number : PREFIX_NONE);
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
    model_add(m, "A", prefix_cache_root(&cache, false, NULL));
    model_add(m, "B", prefix_cache_root(&cache, true, NULL));
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
        assert_int_equal(block_pool_init(&pool, 1, num_blocks, 16, &err), STATUS_OK);
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
        WITH_EACH(test_tokens_are_never_a_salt),
        cmocka_unit_test(test_salts_in_blocks_of_one_token),
        WITH_EACH(test_the_check_finds_damage),
        WITH_EACH(test_random_operations),
        cmocka_unit_test(test_a_cached_block_costs_less_than_100_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
