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
#define MAX_SEQS 80

/* A manager and the sequences that the test made with it. */
struct fixture {
    struct block_manager m;
    struct request *requests[MAX_SEQS];
    struct sequence *seqs[4 * MAX_SEQS];
    int32_t num_requests, num_seqs;
};

/* Groups with these windows; steps of at most max_num_tokens. */
static void open_groups(struct fixture *f, int32_t num_blocks, bool caching, int32_t max_num_tokens, int32_t num_groups,
                        const int32_t *windows)
{
    struct error err;
    struct batch_limits limits = {.max_num_tokens = max_num_tokens,
                                  .max_num_seqs = MAX_SEQS,
                                  .max_model_len = 2000,
                                  .block_size = SIZE,
                                  .num_groups = num_groups};
    memcpy(limits.windows, windows, (size_t)num_groups * sizeof *windows);
    *f = (struct fixture){0};
    assert_int_equal(block_manager_init(&f->m, num_blocks, &limits, caching, &err), STATUS_OK);
}

static void open_fixture(struct fixture *f, int32_t num_blocks, bool caching)
{
    open_groups(f, num_blocks, caching, 2000, 1, (int32_t[]){0});
}

static void check(const struct fixture *f)
{
    struct error err;
    for (int32_t i = 0; i < f->num_requests; i++)
        f->requests[i]->next = i + 1 < f->num_requests ? f->requests[i + 1] : NULL;
    if (block_manager_check(&f->m, f->num_requests > 0 ? f->requests[0] : NULL, NULL, &err) != STATUS_OK)
        fail_msg("%s", err.text);
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
    assert_int_equal(request_create(&params, prompt, length, &f->m.limits, &request, &err), STATUS_OK);
    f->requests[f->num_requests++] = request;
    for (int32_t i = 0; i < n; i++) f->seqs[f->num_seqs++] = &request->sequences[i];
    return request;
}

/* Computes tokens up to `end`, whose blocks the sequence has, as a step would. */
static void compute_to(struct fixture *f, struct sequence *seq, int32_t end)
{
    struct error err;
    for (; seq->num_computed < end; seq->num_computed++)
        for (int32_t g = 0; g < f->m.limits.num_groups; g++) {
            const int32_t size = batch_block_size(&f->m.limits, g);
            assert_int_equal(block_pool_fill(&f->m.pool, seq->tables[g].blocks[seq->num_computed / size], size,
                                             seq->num_computed % size, 1, &err),
                             STATUS_OK);
        }
    block_manager_hash(&f->m, seq);
    check(f);
}

/* Computes all the known tokens. */
static void compute(struct fixture *f, struct sequence *seq)
{
    compute_to(f, seq, seq->num_tokens);
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
    assert_int_equal(seq->tables[0].num_blocks, 0);
    check(f);
}

/* Makes room for tokens up to num_tokens, at the cost foretold. Returns the number of copies. */
static int32_t grow(struct fixture *f, struct sequence *seq, int32_t num_tokens, struct block_pair *copies)
{
    struct error err;
    const int32_t cost = block_manager_append_cost(&f->m, &(struct growth){seq, num_tokens}, 1);
    const int32_t free_blocks = f->m.pool.num_free;
    int32_t num_copies = 0;
    assert_int_equal(block_manager_append(&f->m, seq, num_tokens, copies, &num_copies, &err), STATUS_OK);
    if (f->m.limits.windows[0] == 0) assert_int_equal(free_blocks - f->m.pool.num_free, cost);
    return num_copies;
}

/* Appends one token to the sequence. */
static struct block_pair append(struct fixture *f, struct sequence *seq, int32_t token)
{
    struct block_pair copy[KV_MAX_GROUPS] = {{BLOCK_NONE, BLOCK_NONE}};
    assert_in_range(grow(f, seq, seq->num_tokens + 1, copy), 0, f->m.limits.num_groups);
    seq->tokens[seq->num_tokens++] = token;
    compute(f, seq);
    return copy[0];
}

/* A fresh answer: what was kept of an earlier one is forgotten. */
static enum allocate_result can_allocate(struct fixture *f, struct request *request, int32_t needed)
{
    request->retry_gains = 0;
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

/* Just enough and just too few blocks for (free - idle) - (required - hits) >= watermark. */
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

/* A request that ran before is refused only if the pool cannot hold it at all. */
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
    assert_int_equal(can_allocate(&f, forked, 21), ALLOCATE_OK); /* nobody has tokens of its own */
    for (int32_t i = 0; i < 3; i++) forked->sequences[i].num_tokens++;
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
    for (int i = 0; i < 3; i++) assert_int_equal(f.m.pool.blocks[a->tables[0].blocks[i]].ref_count, 3);

    int32_t last = a->tables[0].blocks[2];
    a->num_uploaded[0] = 3;
    struct block_pair copy = append(&f, a, 100);
    assert_int_equal(copy.source, last);
    assert_int_equal(copy.destination, a->tables[0].blocks[2]);
    assert_int_equal(a->num_uploaded[0], 2); /* the device has to hear of the new one */
    assert_int_equal(f.m.pool.blocks[last].ref_count, 2);
    assert_int_equal(f.m.pool.blocks[a->tables[0].blocks[2]].filled, 5);
    copy = append(&f, b, 101);
    assert_int_equal(copy.source, last);
    copy = append(&f, c, 102); /* the last holder */
    assert_int_equal(copy.source, BLOCK_NONE);
    assert_int_equal(c->tables[0].blocks[2], last);
    assert_int_equal(append(&f, a, 103).source, BLOCK_NONE);
    assert_int_equal(block_pool_num_in_use(&f.m.pool), 5);
    release(&f, a);
    release(&f, b);
    assert_int_equal(f.m.pool.blocks[c->tables[0].blocks[0]].ref_count, 1);
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
    assert_int_not_equal(a->tables[0].blocks[2], b->tables[0].blocks[2]);
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
    struct block_pair copy = {0};
    int32_t num_copies = 0;
    struct error err;
    assert_int_equal(block_manager_allocate(&f.m, a, &err), STATUS_OK);
    compute(&f, a);
    assert_int_equal(block_manager_fork(&f.m, a, b, &err), STATUS_OK);
    int32_t last = a->tables[0].blocks[1];
    assert_int_equal(block_manager_append(&f.m, a, SIZE + 2, &copy, &num_copies, &err), STATUS_INTERNAL); /* a copy */
    assert_int_equal(a->tables[0].blocks[1], last);
    release(&f, b);
    assert_int_equal(block_manager_append(&f.m, a, SIZE + 2, &copy, &num_copies, &err), STATUS_OK); /* in place */
    assert_int_equal(num_copies, 0);
    assert_int_equal(block_manager_append(&f.m, a, 2 * SIZE + 1, &copy, &num_copies, &err),
                     STATUS_INTERNAL); /* a new block */
    assert_int_equal(a->tables[0].num_blocks, 2);
    struct sequence *c = &add(&f, 50, 4, 1)->sequences[0];
    assert_int_equal(block_manager_allocate(&f.m, c, &err), STATUS_INTERNAL);
    assert_int_equal(c->tables[0].num_blocks, 0);
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
    memcpy(table, seq->tables[0].blocks, sizeof table);
    release(&f, seq);
    assert_int_equal(f.m.pool.num_cached, 4);
    struct sequence *three = hold(&f, 500, 3 * SIZE - 1); /* the two free ones, then the last one's last block */
    assert_int_equal(three->tables[0].blocks[2], table[3]);
    assert_int_equal(f.m.evictions, 1);
    struct sequence *again = &add(&f, 0, 3 * SIZE + 1, 1)->sequences[0];
    struct error err;
    release(&f, three);
    assert_int_equal(block_manager_allocate(&f.m, again, &err), STATUS_OK);
    assert_int_equal(again->num_computed, 3 * SIZE);
    assert_memory_equal(again->tables[0].blocks, table, 3 * sizeof *table);
    release(&f, again);
    close_fixture(&f);
}

/* Two sequences compute equal blocks at the same time: one of the blocks enters the cache, both stay valid. */
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
    assert_int_not_equal(a->tables[0].blocks[0], b->tables[0].blocks[0]);
    assert_true(a->prefix == b->prefix);
    release(&f, a);
    release(&f, b);
    assert_int_equal(f.m.pool.num_cached, 3);
    close_fixture(&f);
}

static uint64_t hash_constant(int32_t parent, const int32_t *tokens, int32_t count)
{
    (void)parent, (void)tokens, (void)count;
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
    assert_int_equal(c->tables[0].blocks[0], a->tables[0].blocks[0]);
    assert_int_not_equal(c->tables[0].blocks[1], b->tables[0].blocks[1]);
    compute(&f, c);
    release(&f, a);
    release(&f, b);
    release(&f, c);
    close_fixture(&f);
}

static void set_salt(struct fixture *f, struct request *request, const char *text)
{
    request->cache_salt = prefix_cache_add_salt(&f->m.cache, cache_salt_create(text));
}

static void test_another_salt_is_another_prefix(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 60, true);
    struct error err;
    hold(&f, 0, 4 * SIZE);
    struct request *salted = add(&f, 0, 4 * SIZE, 1);
    set_salt(&f, salted, "salt");
    assert_int_equal(block_manager_allocate(&f.m, &salted->sequences[0], &err), STATUS_OK);
    assert_int_equal(salted->sequences[0].num_computed, 0);
    release(&f, &salted->sequences[0]);
    release(&f, f.seqs[0]);
    close_fixture(&f);
}

/* The prompt of one block and a token, with a salt of 1 MB that ends with this letter, is computed and ends. Returns
 * how much of it was cached. */
static int32_t run_salted(struct fixture *f, char letter)
{
    struct error err;
    static char text[1000000 + 1];
    struct request *request = add(f, 0, SIZE + 1, 1);
    struct sequence *seq = &request->sequences[0];
    memset(text, 's', sizeof text - 1);
    text[sizeof text - 2] = letter;
    set_salt(f, request, text);
    assert_int_equal(block_manager_allocate(&f->m, seq, &err), STATUS_OK);
    const int32_t cached = seq->num_computed;
    compute(f, seq);
    release(f, seq);
    return cached;
}

/* A salt is no prefix: however long it is, it takes nothing that another request's block needs. */
static void test_a_long_salt_forgets_nothing(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 60, true);
    release(&f, hold(&f, 0, 4 * SIZE));
    const int32_t before = f.m.pool.num_cached, unused = f.m.cache.num_unused;
    for (int32_t i = 0; i < 8; i++) {
        assert_int_equal(run_salted(&f, (char)('a' + i)), 0);
        assert_int_equal(f.m.pool.num_cached, before + i + 1);
        assert_int_equal(f.m.cache.num_unused, unused - i - 1);
    }
    for (int32_t i = 0; i < 8; i++) assert_int_equal(run_salted(&f, (char)('a' + i)), SIZE);
    assert_int_equal(f.m.evictions, 0);
    close_fixture(&f);
}

/* Sums with a window, a length or a block size near the largest integer. */
static void test_the_largest_integers(void **state)
{
    (void)state;
    struct fixture f;
    struct error err;
    open_groups(&f, 20, true, INT32_MAX, 2, (int32_t[]){INT32_MAX, INT32_MAX - 1});
    struct sequence *seq = hold(&f, 0, 3 * SIZE - 1);
    assert_int_equal(block_manager_append(&f.m, seq, 3 * SIZE, NULL, NULL, &err), STATUS_OK);
    assert_int_equal(seq->num_writable, 3 * SIZE);
    release(&f, seq);
    close_fixture(&f);

    struct batch_limits limits = {.max_num_tokens = INT32_MAX,
                                  .max_num_seqs = 1 << 16,
                                  .max_model_len = INT32_MAX,
                                  .block_size = 16,
                                  .num_groups = 8,
                                  .windows = {0, INT32_MAX}};
    assert_int_equal(batch_max_blocks(&limits), 1 << 27);
    for (int32_t g = 0; g < 2; g++) assert_int_equal(batch_group_blocks(&limits, g, INT32_MAX), 1 << 27);
    assert_int_equal(batch_sequence_blocks(&limits, INT32_MAX), 1 << 30);
    limits.block_size = 1;
    assert_int_equal(batch_sequence_blocks(&limits, INT32_MAX), INT32_MAX);
    limits.block_size = INT32_MAX;
    assert_int_equal(batch_max_blocks(&limits), 1);
}

/* A block that would leave its number in use is kept: forgetting it would not help. */
static void test_a_block_is_not_forgotten_for_nothing(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 60, true);
    release(&f, hold(&f, 0, SIZE + 1));
    const int32_t oldest = f.m.pool.oldest, prefix = f.m.pool.blocks[oldest].prefix;
    prefix_cache_pin(&f.m.cache, prefix);
    for (int32_t tokens[SIZE] = {5000}; f.m.cache.num_unused > 0; tokens[0]++)
        prefix_cache_pin(&f.m.cache, prefix_cache_insert(&f.m.cache, prefix_cache_root(0, NULL), tokens));
    struct sequence *seq = hold(&f, 1000, SIZE + 1);
    assert_int_equal(seq->num_hashed, 0);
    assert_int_equal(f.m.pool.oldest, oldest);
    assert_int_equal(f.m.pool.num_cached, 1);
    prefix_cache_unpin(&f.m.cache, prefix);
    block_manager_hash(&f.m, seq);
    assert_int_equal(seq->num_hashed, 1);
    assert_int_equal(f.m.pool.num_cached, 0);
    release(&f, seq);
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
    int32_t block = seq->tables[0].blocks[1];
    release(&f, seq);
    seq->tables[0].num_blocks = 2; /* as if it still held them */
    assert_int_equal(block_manager_release(&f.m, seq, &err), STATUS_INTERNAL);
    char name[32];
    snprintf(name, sizeof name, "block %d", block);
    assert_non_null(strstr(err.text, name));
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
    assert_memory_equal(a->tables[0].blocks, b->tables[0].blocks, 3 * sizeof *a->tables[0].blocks);
    assert_int_not_equal(a->tables[0].blocks[3], b->tables[0].blocks[3]);
    assert_int_equal(f.m.host.blocks[a->tables[0].blocks[0]].ref_count, 2);
    assert_int_equal(f.m.host.blocks[a->tables[0].blocks[3]].filled, 3);
    assert_int_equal(f.m.pool.num_free, 20);
    assert_int_equal(f.m.pool.num_cached, 3); /* what lies on the device can still be found */
    struct request *same = hold_two(&f);      /* shares those */
    assert_int_equal(block_manager_swap_out_cost(&f.m, same), 4);
    assert_int_equal(f.m.host.num_free, 1);

    num_pairs = 0;
    assert_int_equal(block_manager_swap_in(&f.m, request, pairs, &num_pairs, &err), STATUS_OK);
    check(&f);
    assert_int_equal(num_pairs, 2); /* what the prefix cache finds is not copied */
    assert_int_equal(block_pool_num_in_use(&f.m.host), 0);
    assert_memory_equal(a->tables[0].blocks, same->sequences[0].tables[0].blocks, 3 * sizeof(int32_t));
    assert_memory_equal(a->tables[0].blocks, b->tables[0].blocks, 3 * sizeof *a->tables[0].blocks);
    assert_int_equal(a->num_hashed, 0);
    compute(&f, a);
    compute(&f, b);
    assert_int_equal(a->num_hashed, 3);
    assert_true(a->prefix == b->prefix);
    append(&f, b, 71);
    for (int32_t i = 0; i < 4; i++) release(&f, f.seqs[i]);
    close_fixture(&f);
}

/* Just enough and just too few blocks for total - required >= watermark and for free - required >= watermark, where
 * required has one more block for each unfinished sequence. */
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

/* ---- What several sequences write to ---- */

static int32_t cost_of(struct fixture *f, struct sequence *seqs, int32_t count)
{
    struct growth growths[4];
    for (int32_t i = 0; i < count; i++) growths[i] = (struct growth){&seqs[i], seqs[i].num_tokens + 1};
    const int32_t cost = block_manager_append_cost(&f->m, growths, count);
    check(f); /* the notes are 0 again */
    return cost;
}

/* Each writer but the last holder takes a copy. */
static void test_the_cost_of_siblings_that_write_to_one_block(void **state)
{
    (void)state;
    struct fixture f;
    struct error err;
    open_fixture(&f, 50, true);
    struct request *request = add(&f, 0, SIZE + 3, 4);
    struct sequence *seqs = request->sequences;
    assert_int_equal(block_manager_allocate(&f.m, &seqs[0], &err), STATUS_OK);
    compute(&f, &seqs[0]);
    for (int32_t i = 1; i < 4; i++) assert_int_equal(block_manager_fork(&f.m, &seqs[0], &seqs[i], &err), STATUS_OK);
    for (int32_t n = 1; n <= 4; n++) assert_int_equal(cost_of(&f, seqs, n), n < 4 ? n : 3);
    for (int32_t i = 0; i < 4; i++) append(&f, &seqs[i], 50 + i);
    assert_int_equal(block_pool_num_in_use(&f.m.pool), 1 + 4);
    for (int32_t i = 0; i < 4; i++) release(&f, &seqs[i]);
    close_fixture(&f);
}

/* A table may reach past the block that is written next: every shared block in the range is replaced, and the one that
 * has tokens is copied. */
static void test_copy_on_write_of_a_range(void **state)
{
    (void)state;
    struct fixture f;
    struct error err;
    struct block_pair copies[4];
    open_fixture(&f, 50, false);
    struct request *request = add(&f, 0, SIZE + 3, 2);
    struct sequence *a = &request->sequences[0], *b = a + 1;
    assert_int_equal(block_manager_allocate(&f.m, a, &err), STATUS_OK);
    compute(&f, a);
    assert_int_equal(grow(&f, a, 4 * SIZE, copies), 0); /* room for tokens that are not computed yet */
    assert_int_equal(block_manager_fork(&f.m, a, b, &err), STATUS_OK);
    int32_t table[4];
    memcpy(table, a->tables[0].blocks, sizeof table);
    a->num_uploaded[0] = 4;
    assert_int_equal(grow(&f, a, 3 * SIZE, copies), 1); /* blocks 1 and 2 of the table */
    assert_int_equal(copies[0].source, table[1]);
    assert_int_equal(copies[0].destination, a->tables[0].blocks[1]);
    assert_int_not_equal(a->tables[0].blocks[2], table[2]);
    assert_int_equal(a->tables[0].blocks[0], table[0]);
    assert_int_equal(a->tables[0].blocks[3], table[3]);
    assert_int_equal(a->num_uploaded[0], 1);
    compute_to(&f, a, 3 * SIZE);
    assert_int_equal(f.m.pool.blocks[table[1]].filled, 3);
    assert_int_equal(f.m.pool.blocks[table[2]].filled, 0);
    assert_int_equal(grow(&f, b, 3 * SIZE, copies), 0); /* the last holder writes in place */
    assert_int_equal(grow(&f, b, 4 * SIZE + 1, copies), 0);
    release(&f, a);
    release(&f, b);
    close_fixture(&f);
}

/* ---- The answer LATER ---- */

static int num_hashes;

static uint64_t hash_counting(int32_t parent, const int32_t *tokens, int32_t count)
{
    uint64_t hash = (uint64_t)parent;
    num_hashes++;
    for (int32_t i = 0; i < count; i++) hash = hash * 0x9E3779B97F4A7C15u + (uint64_t)tokens[i];
    return hash ^ hash >> 32;
}

/* What can_allocate found is kept until it could be another answer, and no longer. */
static void test_later_is_kept_until_blocks_are_gained(void **state)
{
    (void)state;
    struct fixture f;
    int32_t required, lookups = 0;
    open_fixture(&f, 100, true); /* W = 1 */
    f.m.cache.hash = hash_counting;
    struct sequence *prefix = hold(&f, 0, 30 * SIZE), *small[60];
    for (int32_t i = 0; i < 60; i++) small[i] = hold(&f, 2000 + 100 * i, 1);
    struct request *waits = add(&f, 0, 80 * SIZE, 1); /* 30 hits in use: 50 more, and the watermark */
    for (int32_t i = 0; i < 60; i++) {
        assert_int_equal(f.m.pool.num_free, 10 + i);
        const enum allocate_result expected = 10 + i >= 51 ? ALLOCATE_OK : ALLOCATE_LATER;
        for (int repeat = 0; repeat < 3; repeat++) {
            const int before = num_hashes;
            assert_int_equal(block_manager_can_allocate(&f.m, waits, &required), expected);
            lookups += num_hashes > before;
            if (expected == ALLOCATE_OK) break;
        }
        assert_int_equal(can_allocate(&f, add(&f, 0, 80 * SIZE, 1), 80), expected); /* what a new one is answered */
        request_destroy(f.requests[--f.num_requests]);
        f.num_seqs--;
        release(&f, small[i]);
        if (expected == ALLOCATE_OK) break;
    }
    assert_int_equal(lookups, 2); /* the first time, and when it was enough */
    release(&f, prefix);
    for (int32_t i = 0; i < 60; i++)
        if (small[i]->tables[0].num_blocks > 0) release(&f, small[i]);
    close_fixture(&f);
}

/* Blocks that become findable are gains, too: here none becomes free. */
static void test_later_ends_when_the_prefix_is_computed(void **state)
{
    (void)state;
    struct fixture f;
    struct error err;
    int32_t required;
    open_fixture(&f, 100, true);
    struct sequence *first = &add(&f, 0, 40 * SIZE, 1)->sequences[0];
    assert_int_equal(block_manager_allocate(&f.m, first, &err), STATUS_OK);
    struct request *waits = add(&f, 0, 80 * SIZE, 1);
    assert_int_equal(block_manager_can_allocate(&f.m, waits, &required), ALLOCATE_LATER); /* 60 - 80 - W: 21 missing */
    compute_to(&f, first, 20 * SIZE);
    assert_int_equal(block_manager_can_allocate(&f.m, waits, &required), ALLOCATE_LATER);
    compute_to(&f, first, 21 * SIZE);
    assert_int_equal(block_manager_can_allocate(&f.m, waits, &required), ALLOCATE_OK);
    release(&f, first);
    close_fixture(&f);
}

/* ---- Windows ---- */

/* The same for a chunk. Required: at most what the window and one step's tokens touch. Held: in steady state ceil(W /
 * block_size) + 1. */
static void test_a_window_bounds_what_is_needed_and_held(void **state)
{
    (void)state;
    for (int32_t i = 2; i < 6 * SIZE; i++) {
        const int32_t window = i / 2;
        struct fixture f;
        struct error err;
        struct block_pair copies[2];
        const int32_t chunk = 4 * SIZE, length = 60 * SIZE + 3;
        open_groups(&f, 100, false, chunk, 2, (int32_t[]){window, 0});
        f.m.limits.chunked[0] = i % 2;
        struct request *request = add(&f, 0, length, 1);
        struct sequence *seq = &request->sequences[0];
        const int32_t most = (window - 1 + chunk + SIZE - 2) / SIZE + 1;
        assert_int_equal(batch_group_blocks(&f.m.limits, 0, length), most);
        can_allocate(&f, request, most + 61);
        assert_int_equal(block_manager_allocate(&f.m, seq, &err), STATUS_OK);
        assert_int_equal(seq->tables[0].num_blocks, 4);
        assert_int_equal(seq->tables[1].num_blocks, 61);
        while (seq->num_computed < length) {
            const int32_t end = seq->num_computed + chunk < length ? seq->num_computed + chunk : length;
            assert_int_equal(grow(&f, seq, end, copies), 0);
            assert_in_range(seq->tables[0].num_blocks - seq->tables[0].first, 1, most);
            assert_int_equal(seq->tables[0].first, batch_first_block(&f.m.limits, 0, seq->num_computed));
            compute_to(&f, seq, end);
        }
        for (int32_t k = 0; k < 30; k++) {
            append(&f, seq, 7);
            assert_in_range(seq->tables[0].num_blocks - seq->tables[0].first, 1, (window + SIZE - 1) / SIZE + 1);
            assert_int_equal(seq->tables[1].first, 0);
        }
        release(&f, seq);
        assert_int_equal(f.m.pool.num_free, 100);
        close_fixture(&f);
    }
}

/* The block that leaves a window pays for the one that is taken; two sequences, and the second's comes too late. */
static void test_the_cost_of_what_leaves_a_window(void **state)
{
    (void)state;
    struct fixture f;
    open_groups(&f, 20, false, 100, 1, (int32_t[]){SIZE});
    struct sequence *a = hold(&f, 0, 2 * SIZE), *b = hold(&f, 100, 2 * SIZE);
    struct growth growths[] = {{a, 2 * SIZE + 1}, {b, 2 * SIZE + 1}};
    /* The query of token 16 reads tokens 9 to 16: block 0 leaves, and block 2 is new. */
    assert_int_equal(block_manager_append_cost(&f.m, growths, 2), 0);
    growths[0].num_tokens = 4 * SIZE;
    assert_int_equal(block_manager_append_cost(&f.m, growths, 2), 1);
    struct growth reversed[] = {growths[1], growths[0]};
    assert_int_equal(block_manager_append_cost(&f.m, reversed, 2), 1);
    b->num_computed = 2 * SIZE - 1; /* as if it were computed again: nothing leaves its window */
    growths[1].num_tokens = 2 * SIZE;
    assert_int_equal(block_manager_append_cost(&f.m, growths, 2), 1);
    b->num_computed = 2 * SIZE;
    check(&f);
    release(&f, a);
    release(&f, b);
    close_fixture(&f);
}

/* Does to the prefix cache what an eviction of the block does. */
static void forget(struct fixture *f, int32_t block)
{
    prefix_cache_detach(&f->m.cache, f->m.pool.blocks[block].prefix, block);
    block_pool_set_prefix(&f->m.pool, block, PREFIX_NONE);
}

static int32_t hits_of(struct fixture *f, int32_t length)
{
    struct error err;
    struct sequence *seq = &add(f, 0, length, 1)->sequences[0];
    assert_int_equal(block_manager_allocate(&f->m, seq, &err), STATUS_OK);
    const int32_t hits = seq->num_computed / SIZE;
    for (int32_t g = 0; g < f->m.limits.num_groups; g++) {
        assert_int_equal(seq->tables[g].first, batch_first_block(&f->m.limits, g, seq->num_computed));
        for (int32_t i = 0; i < seq->tables[g].first; i++) assert_int_equal(seq->tables[g].blocks[i], 0);
    }
    release(f, seq);
    request_destroy(f->requests[--f->num_requests]);
    f->num_seqs--;
    return hits;
}

/* A hit needs every block of full attention, but of a window only those that the next token reads. */
static void test_hits_with_windows(void **state)
{
    (void)state;
    const int32_t length = 10 * SIZE + 1, windows[] = {0, 2 * SIZE + 1};
    for (int32_t missing = 0; missing < 10; missing++)
        for (int32_t group = 0; group < 2; group++) {
            struct fixture f;
            open_groups(&f, 200, true, 1000, 2, windows);
            struct sequence *seq = hold(&f, 0, length);
            const int32_t block = seq->tables[group].blocks[missing];
            release(&f, seq);
            assert_int_equal(hits_of(&f, length), 10);
            forget(&f, block);
            /* The query of token 80 reads tokens 64 to 80: blocks 8 and 9 of the window. */
            assert_int_equal(hits_of(&f, length), group == 1 && missing < 8 ? 10 : missing);
            assert_int_equal(hits_of(&f, 3 * SIZE), missing < 2 ? missing : 2);
            close_fixture(&f);
        }
}

/* Without full attention, the prefix is found where no block of its beginning is left. */
static void test_hits_with_windows_alone(void **state)
{
    (void)state;
    struct fixture f;
    int32_t blocks[10];
    open_groups(&f, 200, true, 1000, 1, (int32_t[]){SIZE});
    struct sequence *seq = hold(&f, 0, 10 * SIZE + 1);
    memcpy(blocks, seq->tables[0].blocks, sizeof blocks);
    release(&f, seq);
    for (int32_t i = 0; i < 9; i++) forget(&f, blocks[i]);
    assert_int_equal(hits_of(&f, 10 * SIZE + 1), 10);
    assert_int_equal(hits_of(&f, 10 * SIZE), 0);
    forget(&f, blocks[9]);
    assert_int_equal(hits_of(&f, 10 * SIZE + 1), 0);
    close_fixture(&f);
}

/* Blocks that have left the window stay behind; what is null stays null; what the cache finds is not copied. */
static void test_windows_in_swap_space(void **state)
{
    (void)state;
    for (int caching = 0; caching < 2; caching++) {
        struct fixture f;
        struct error err;
        struct block_pair pairs[40];
        int32_t num_pairs = 0;
        open_groups(&f, 100, caching, 1000, 2, (int32_t[]){0, 2 * SIZE + 1});
        assert_int_equal(block_manager_grow_host(&f.m, 40, &err), STATUS_OK);
        struct sequence *seq = hold(&f, 0, 10 * SIZE + 1);
        assert_int_equal(block_manager_swap_out_cost(&f.m, seq->request), 11 + 3);
        assert_int_equal(block_manager_swap_out(&f.m, seq->request, pairs, &num_pairs, &err), STATUS_OK);
        check(&f);
        assert_int_equal(num_pairs, 11 + 3);
        assert_int_equal(seq->tables[1].first, 8);
        assert_int_equal(f.m.pool.num_free, 100);
        num_pairs = 0;
        assert_int_equal(block_manager_swap_in(&f.m, seq->request, pairs, &num_pairs, &err), STATUS_OK);
        check(&f);
        assert_int_equal(num_pairs, caching ? 2 : 14); /* the blocks that are not full */
        assert_int_equal(seq->tables[1].first, 8);
        append(&f, seq, 5);
        release(&f, seq);
        assert_int_equal(block_pool_num_in_use(&f.m.host), 0);
        close_fixture(&f);
    }
}

/* One block a group for each sequence; but those that it lacks, if it was preempted amid its known tokens. */
static void test_what_a_sequence_needs_to_come_back(void **state)
{
    (void)state;
    for (int32_t own = 1; own < 40; own++) {
        struct fixture f;
        struct error err;
        struct block_pair pairs[8], copies[2];
        int32_t num_pairs = 0;
        open_fixture(&f, 50, false); /* W = 0 */
        assert_int_equal(block_manager_grow_host(&f.m, 40, &err), STATUS_OK);
        struct request *request = add(&f, 0, SIZE + 2, 2);
        struct sequence *a = &request->sequences[0], *b = a + 1;
        assert_int_equal(block_manager_allocate(&f.m, a, &err), STATUS_OK);
        compute(&f, a);
        assert_int_equal(block_manager_fork(&f.m, a, b, &err), STATUS_OK);
        for (int32_t i = 0; i < own; i++) b->tokens[b->num_tokens++] = 3;
        assert_int_equal(block_manager_swap_out(&f.m, request, pairs, &num_pairs, &err), STATUS_OK);
        const int32_t missing = (b->num_tokens + SIZE - 1) / SIZE - 2;
        const int32_t required = 2 + 1 + (missing > 0 && own > 1 ? missing + 1 : 1);
        while (f.m.pool.num_free > required) hold(&f, 100, 1);
        assert_int_equal(block_manager_can_swap_in(&f.m, request), ALLOCATE_OK);
        struct sequence *one = hold(&f, 100, 1);
        assert_int_equal(block_manager_can_swap_in(&f.m, request), ALLOCATE_LATER);
        release(&f, one);
        num_pairs = 0;
        assert_int_equal(block_manager_swap_in(&f.m, request, pairs, &num_pairs, &err), STATUS_OK);
        grow(&f, b, b->num_tokens, copies);
        grow(&f, a, a->num_tokens + 1, copies);
        assert_int_equal(f.m.pool.num_free, 1); /* a's to grow into, which it did not need */
        for (int32_t i = 0; i < f.num_seqs; i++) release(&f, f.seqs[i]);
        close_fixture(&f);
    }
}

/* ---- Blocks of several sizes ---- */

/* Groups whose blocks hold SIZE << shifts[g] tokens. */
static void open_sizes(struct fixture *f, int32_t num_blocks, bool caching, int32_t num_groups, const int32_t *windows,
                       const int32_t *shifts)
{
    struct error err;
    open_groups(f, num_blocks, caching, 2000, num_groups, windows);
    struct batch_limits limits = f->m.limits;
    memcpy(limits.block_shifts, shifts, (size_t)num_groups * sizeof *shifts);
    block_manager_free(&f->m);
    assert_int_equal(block_manager_init(&f->m, num_blocks, &limits, caching, &err), STATUS_OK);
}

/* A prefix is shared up to where the blocks of all groups end, and leaves a token to compute. */
static void test_a_hit_ends_where_all_blocks_end(void **state)
{
    (void)state;
    for (int32_t length = 1; length <= 9 * SIZE + 1; length++) {
        struct fixture f;
        struct error err;
        open_sizes(&f, 100, true, 3, (int32_t[]){0, 0, 0}, (int32_t[]){1, 0, 2});
        release(&f, hold(&f, 0, 9 * SIZE + 3));
        assert_int_equal(f.m.pool.num_cached, 4 + 9 + 2); /* whole blocks of 16, 8 and 32 tokens */
        struct request *request = add(&f, 0, length, 1);
        struct sequence *again = &request->sequences[0];
        can_allocate(&f, request, (length + 15) / 16 + (length + 7) / 8 + (length + 31) / 32);
        assert_int_equal(block_manager_allocate(&f.m, again, &err), STATUS_OK);
        assert_int_equal(again->num_computed, (length - 1) / (4 * SIZE) * (4 * SIZE));
        compute(&f, again);
        release(&f, again);
        close_fixture(&f);
    }
}

/* What a hit lacks of a window is what the next token reads, in blocks of that group's size. */
static void test_a_hit_needs_the_large_blocks_of_a_window(void **state)
{
    (void)state;
    struct fixture f;
    struct error err;
    open_sizes(&f, 100, true, 2, (int32_t[]){0, SIZE + 2}, (int32_t[]){0, 1});
    struct sequence *seq = hold(&f, 0, 8 * SIZE + 1);
    int32_t windowed[4];
    memcpy(windowed, seq->tables[1].blocks, sizeof windowed);
    release(&f, seq);
    struct sequence *again = &add(&f, 0, 8 * SIZE + 1, 1)->sequences[0];
    for (int32_t left = 4; left > 0; left--) { /* the last block of those that are left is forgotten */
        assert_int_equal(block_manager_allocate(&f.m, again, &err), STATUS_OK);
        assert_int_equal(again->num_computed, left * 2 * SIZE);
        assert_int_equal(again->tables[1].first, left - 1); /* a window of 10 reads one block of 16 */
        assert_int_equal(again->tables[1].blocks[left - 1], windowed[left - 1]);
        release(&f, again);
        forget(&f, windowed[left - 1]);
    }
    assert_int_equal(block_manager_allocate(&f.m, again, &err), STATUS_OK);
    assert_int_equal(again->num_computed, 0);
    compute(&f, again);
    release(&f, again);
    close_fixture(&f);
}

/* After 5 * SIZE tokens only the larger block is partly filled: it alone is copied when one of two holders writes. */
static void test_a_fork_copies_the_larger_block_alone(void **state)
{
    (void)state;
    struct fixture f;
    struct error err;
    struct block_pair copies[2];
    open_sizes(&f, 50, true, 2, (int32_t[]){0, 0}, (int32_t[]){0, 2});
    struct request *request = add(&f, 0, 5 * SIZE, 2);
    struct sequence *a = &request->sequences[0], *b = a + 1;
    assert_int_equal(block_manager_allocate(&f.m, a, &err), STATUS_OK);
    compute(&f, a);
    assert_int_equal(a->tables[0].num_blocks, 5);
    assert_int_equal(a->tables[1].num_blocks, 2);
    assert_int_equal(block_manager_fork(&f.m, a, b, &err), STATUS_OK);
    const int32_t shared = a->tables[1].blocks[1];
    assert_int_equal(grow(&f, a, 5 * SIZE + 1, copies), 1);
    assert_int_equal(copies[0].source, shared);
    assert_int_equal(copies[0].destination, a->tables[1].blocks[1]);
    assert_int_equal(a->num_writable, 6 * SIZE); /* the smaller blocks end first */
    assert_int_equal(grow(&f, b, 5 * SIZE + 1, copies), 0);
    assert_int_equal(block_pool_num_in_use(&f.m.pool), 5 + 2 + 1 + 2);
    compute_to(&f, a, 5 * SIZE);
    release(&f, a);
    release(&f, b);
    close_fixture(&f);
}

/* Out and back again, with blocks that the prefix cache still has shared instead of copied. */
static void test_swaps_of_blocks_of_two_sizes(void **state)
{
    (void)state;
    struct fixture f;
    struct error err;
    struct block_pair pairs[64];
    int32_t num_pairs = 0;
    open_sizes(&f, 50, true, 2, (int32_t[]){3 * SIZE, 0}, (int32_t[]){0, 2});
    assert_int_equal(block_manager_grow_host(&f.m, 30, &err), STATUS_OK);
    struct request *request = add(&f, 0, 10 * SIZE + 2, 2);
    struct sequence *a = &request->sequences[0], *b = a + 1;
    assert_int_equal(block_manager_allocate(&f.m, a, &err), STATUS_OK);
    compute(&f, a);
    assert_int_equal(block_manager_fork(&f.m, a, b, &err), STATUS_OK);
    append(&f, a, 1000);
    append(&f, b, 2000);
    /* Of 3 blocks of 32 tokens, and of the 4 of 8 that the window touches, the last is each sequence's own. */
    assert_int_equal(block_manager_swap_out_cost(&f.m, request), 3 + 1 + 4 + 1);
    assert_int_equal(block_manager_swap_out(&f.m, request, pairs, &num_pairs, &err), STATUS_OK);
    assert_int_equal(num_pairs, 9);
    a->status = b->status = SEQUENCE_SWAPPED;
    check(&f);
    num_pairs = 0;
    assert_int_equal(block_manager_can_swap_in(&f.m, request), ALLOCATE_OK);
    assert_int_equal(block_manager_swap_in(&f.m, request, pairs, &num_pairs, &err), STATUS_OK);
    assert_int_equal(num_pairs, 4); /* those that were not full */
    assert_int_equal(block_pool_num_in_use(&f.m.host), 0);
    assert_int_equal(a->tables[1].blocks[1], b->tables[1].blocks[1]);
    assert_int_not_equal(a->tables[1].blocks[2], b->tables[1].blocks[2]);
    assert_int_equal(f.m.pool.blocks[a->tables[1].blocks[1]].filled, 4 * SIZE);
    assert_int_equal(f.m.pool.blocks[a->tables[1].blocks[2]].filled, 2 * SIZE + 3);
    check(&f);
    release(&f, a);
    release(&f, b);
    close_fixture(&f);
}

/* ---- Rollback ---- */

/* Computes the sequence's newest token, which is not computed yet, and `drafts` more, as a run does. */
static void compute_run(struct fixture *f, struct sequence *seq, int32_t drafts)
{
    struct block_pair copies[KV_MAX_GROUPS];
    struct error err;
    int32_t num_copies = 0;
    const int32_t end = seq->num_tokens + drafts;
    assert_int_equal(block_manager_append(&f->m, seq, end, copies, &num_copies, &err), STATUS_OK);
    assert_int_equal(num_copies, 0);
    for (int32_t i = 0; i < drafts; i++) seq->tokens[seq->num_tokens + i] = 1000 + i;
    for (int32_t g = 0; g < f->m.limits.num_groups; g++) seq->num_uploaded[g] = seq->tables[g].num_blocks;
    compute_to(f, seq, end);
}

/* After a rollback to `kept` tokens each table has their blocks alone, filled so far; the others are free. */
static void check_rolled_back(const struct fixture *f, const struct sequence *seq, int32_t kept)
{
    int32_t held = 0;
    assert_int_equal(seq->num_computed, kept);
    assert_true(seq->num_writable >= 0);
    for (int32_t g = 0; g < f->m.limits.num_groups; g++) {
        const struct block_table *t = &seq->tables[g];
        const int32_t size = SIZE << f->m.limits.block_shifts[g];
        assert_int_equal(t->num_blocks, (kept + size - 1) / size);
        assert_int_equal(seq->num_uploaded[g], t->num_blocks);
        assert_true(seq->num_writable <= t->num_blocks * size);
        for (int32_t i = t->first; i < t->num_blocks; i++, held++)
            assert_int_equal(f->m.pool.blocks[t->blocks[i]].filled, kept - i * size < size ? kept - i * size : size);
    }
    assert_int_equal(block_pool_num_in_use(&f->m.pool), held);
    for (int32_t b = 1; b < f->m.pool.end; b++) /* only what has left a window can be found */
        assert_true(f->m.pool.blocks[b].ref_count > 0 || f->m.pool.blocks[b].prefix == PREFIX_NONE ||
                    seq->tables[0].first + seq->tables[f->m.limits.num_groups > 1].first > 0);
}

/* A prompt of `length`, a token and a run of `drafts`, of which `accepted` are kept; then another run. */
static void roll_back(struct fixture *f, int32_t length, int32_t drafts, int32_t accepted)
{
    struct error err;
    struct sequence *seq = hold(f, 0, length);
    const int32_t kept = length + 1 + accepted;
    seq->tokens[seq->num_tokens++] = 500;
    compute_run(f, seq, drafts);
    assert_int_equal(seq->num_hashed, f->m.caching ? (length + 1) / SIZE : 0); /* none with a draft */
    assert_int_equal(block_manager_rollback(&f->m, seq, kept, &err), STATUS_OK);
    check_rolled_back(f, seq, kept);
    check(f);
    seq->num_tokens += accepted;
    seq->tokens[seq->num_tokens++] = 501;
    block_manager_hash(&f->m, seq);
    assert_int_equal(seq->num_hashed, f->m.caching ? kept / SIZE : 0);
    compute_run(f, seq, drafts);
    release(f, seq);
    assert_int_equal(block_pool_num_in_use(&f->m.pool), 0);
}

/* At every place of a block, for every number of drafts, with one block size and several, with and without windows. */
static void test_a_rollback_keeps_what_was_accepted(void **state)
{
    (void)state;
    static const struct {
        int32_t num_groups, windows[3], shifts[3];
    } cases[] = {{1, {0}, {0}},
                 {1, {5}, {0}},
                 {1, {SIZE}, {1}},
                 {2, {0, 7}, {0, 0}},
                 {2, {0, 0}, {2, 0}},
                 {2, {SIZE + 2, 0}, {0, 1}},
                 {3, {0, 3, 0}, {1, 0, 2}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int32_t length = 1; length <= 4 * SIZE; length++)
            for (int32_t drafts = 1; drafts <= MAX_DRAFTS; drafts++) {
                const int32_t accepted = (length + drafts) % drafts;
                struct fixture f;
                open_sizes(&f, 60, length % 2 == 0, cases[i].num_groups, cases[i].windows, cases[i].shifts);
                roll_back(&f, length, drafts, accepted);
                close_fixture(&f);
            }
}

/* Blocks that come back by a rollback are the first that are taken again, and count as gains. */
static void test_a_rollback_returns_blocks(void **state)
{
    (void)state;
    struct fixture f;
    struct error err;
    open_fixture(&f, 4, true);
    struct sequence *seq = hold(&f, 0, 2 * SIZE - 1);
    seq->tokens[seq->num_tokens++] = 500;
    compute_run(&f, seq, SIZE + 1); /* blocks 2 and 3 of the table hold drafts alone */
    assert_int_equal(f.m.pool.num_free, 0);
    const int64_t gains = f.m.gains;
    assert_int_equal(block_manager_rollback(&f.m, seq, 2 * SIZE, &err), STATUS_OK);
    assert_int_equal(f.m.pool.num_free, 2);
    assert_int_equal(f.m.gains, gains + 2);
    assert_int_equal(seq->num_writable, 2 * SIZE);
    release(&f, hold(&f, 100, 2 * SIZE));
    release(&f, seq);
    close_fixture(&f);
}

/* A block that another sequence holds, or that can be found, has no drafts. */
static void test_a_rollback_of_a_shared_block_is_an_error(void **state)
{
    (void)state;
    struct fixture f;
    struct error err;
    open_fixture(&f, 4, true);
    struct sequence *seq = hold(&f, 0, SIZE);
    assert_int_equal(block_manager_rollback(&f.m, seq, SIZE - 1, &err), STATUS_INTERNAL);
    assert_non_null(strstr(err.text, "block 1 keeps its first 7 slots"));
    assert_int_equal(f.m.pool.blocks[1].filled, SIZE);
    seq->num_computed = SIZE;
    release(&f, seq);
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
        cmocka_unit_test(test_another_salt_is_another_prefix),
        cmocka_unit_test(test_a_long_salt_forgets_nothing),
        cmocka_unit_test(test_the_largest_integers),
        cmocka_unit_test(test_a_block_is_not_forgotten_for_nothing),
        cmocka_unit_test(test_one_token_is_left_to_compute),
        cmocka_unit_test(test_a_double_release_names_the_block),
        cmocka_unit_test(test_swapped_blocks_move_once_and_come_back_shared),
        cmocka_unit_test(test_coming_back_from_the_host),
        cmocka_unit_test(test_the_cost_of_siblings_that_write_to_one_block),
        cmocka_unit_test(test_copy_on_write_of_a_range),
        cmocka_unit_test(test_later_is_kept_until_blocks_are_gained),
        cmocka_unit_test(test_later_ends_when_the_prefix_is_computed),
        cmocka_unit_test(test_a_window_bounds_what_is_needed_and_held),
        cmocka_unit_test(test_the_cost_of_what_leaves_a_window),
        cmocka_unit_test(test_hits_with_windows),
        cmocka_unit_test(test_hits_with_windows_alone),
        cmocka_unit_test(test_windows_in_swap_space),
        cmocka_unit_test(test_what_a_sequence_needs_to_come_back),
        cmocka_unit_test(test_a_hit_ends_where_all_blocks_end),
        cmocka_unit_test(test_a_hit_needs_the_large_blocks_of_a_window),
        cmocka_unit_test(test_a_fork_copies_the_larger_block_alone),
        cmocka_unit_test(test_swaps_of_blocks_of_two_sizes),
        cmocka_unit_test(test_a_rollback_keeps_what_was_accepted),
        cmocka_unit_test(test_a_rollback_returns_blocks),
        cmocka_unit_test(test_a_rollback_of_a_shared_block_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
