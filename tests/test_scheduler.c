/* The scheduler, with a device that stores tokens in place of K and V: every sequence must get exactly the tokens that
 * are drawn on plain arrays, whatever is shared, chunked, preempted or in flight. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/scheduler_state.h"
#include "tests/support/scheduler_world.h"

#define VOCAB TRUE_VOCAB
#define EOS 1

/* ---- A scheduler and its device ---- */

static struct scheduler_config config_of(int32_t num_blocks, int32_t block_size, int32_t max_num_tokens,
                                         int32_t max_num_seqs)
{
    return (struct scheduler_config){
        .limits = {.max_num_tokens = max_num_tokens,
                   .max_num_seqs = max_num_seqs,
                   .max_model_len = 1024,
                   .block_size = block_size,
                   .num_groups = 1},
        .num_blocks = num_blocks,
        .blocks_setting = "kv_cache_space",
        .enable_prefix_caching = true,
        .enable_chunked_prefill = true,
        .check_invariants = true,
    };
}

static void world_check(const struct world *w)
{
    struct error err;
    if (scheduler_check(w->scheduler, &err) != STATUS_OK) fail_msg("%s", err.text);
}

static int64_t num_preemptions(const struct world *w)
{
    const struct scheduler_stats stats = world_stats(w);
    return stats.preemptions_recompute + stats.preemptions_swap;
}

static void world_close(struct world *w)
{
    world_check(w);
    world_free(w);
}

/* The token that is drawn after the first `length`. */
static int32_t token_after(const struct sequence *seq, const int32_t *tokens, int32_t length)
{
    struct true_sequence truth;
    world_true_sequence(&truth, seq, tokens, length);
    return true_sequence_draw(&truth, length);
}

static void world_set_beams(struct world *w, struct request *request, const struct beam *beams)
{
    scheduler_set_beams(w->scheduler, request, beams);
    for (int32_t i = 0; i < request->num_sequences; i++)
        if (request->sequences[i].state_index >= 0) world_tell_device(w, &request->sequences[i]);
}

static struct request *world_add(struct world *w, int32_t first, int32_t length, int32_t n, int32_t max_tokens)
{
    const struct sampling_params params = world_params(n, max_tokens);
    return world_add_counted(w, &params, first, length);
}

/* The output tokens are those that are drawn on a plain array. */
static void assert_true_tokens(const struct sequence *seq)
{
    struct true_sequence truth;
    world_true_sequence(&truth, seq, seq->tokens, seq->prompt_len);
    for (int32_t i = seq->prompt_len; i < seq->num_tokens; i++)
        assert_int_equal(seq->tokens[i], true_sequence_token(&truth, i));
}

static void assert_ended(struct request *request, enum finish_reason reason)
{
    for (int32_t i = 0; i < request->num_sequences; i++) {
        const struct sequence *seq = &request->sequences[i];
        assert_int_equal(seq->status, SEQUENCE_FINISHED);
        assert_int_equal(seq->finish_reason, reason);
        if (reason == FINISH_LENGTH) assert_int_equal(seq->num_tokens, seq->token_capacity);
        assert_true_tokens(seq);
    }
}

/* Runs steps until every request has ended, and destroys them; there must be `count`. */
static void run_out(struct world *w, int32_t count, enum finish_reason reason)
{
    for (int step = 0; scheduler_has_work(w->scheduler) && step < 10000; step++) {
        world_step(w);
        for (struct request *r; (r = scheduler_next_finished(w->scheduler)); count--) {
            assert_ended(r, reason);
            request_destroy(r);
        }
    }
    assert_int_equal(count, 0);
    assert_int_equal(world_stats(w).blocks_in_use, 0);
    assert_false(scheduler_has_work(w->scheduler));
}

/* ---- The layout of a step ---- */

static void test_decodes_come_before_chunks(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, config_of(100, 16, 20, 8));
    world_add(&w, 0, 5, 1, 8);
    world_step(&w);
    world_add(&w, 9, 40, 1, 4); /* chunks of 19, as one token of 20 is the first one's */
    assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
    assert_int_equal(w.batch.num_seqs, 2);
    assert_int_equal(w.batch.num_decodes, 1);
    assert_int_equal(w.batch.num_tokens, 20);
    assert_int_equal(w.batch.query_start[1], 1);
    assert_int_equal(w.batch.seq_lens[0], 6);
    assert_int_equal(w.batch.seq_lens[1], 19);
    assert_int_equal(w.batch.max_query_len, 19);
    assert_int_equal(w.batch.num_samples, 1);
    assert_int_equal(w.batch.output_positions[0], 1);
    world_collect(&w);
    world_step(&w);
    assert_int_equal(world_schedule(&w), SCHEDULE_BATCH); /* the last chunk: 2 tokens */
    assert_int_equal(w.batch.num_tokens, 3);
    assert_int_equal(w.batch.num_samples, 2);
    world_collect(&w);
    run_out(&w, 2, FINISH_LENGTH);
    world_close(&w);
}

static void test_a_place_is_taken_in_the_next_step(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, config_of(100, 16, 64, 2));
    world_add(&w, 0, 5, 1, 2);
    world_add(&w, 1, 5, 1, 5);
    struct request *third = world_add(&w, 2, 5, 1, 2);
    world_step(&w);
    world_step(&w);
    assert_int_equal(third->sequences[0].num_computed, 0);
    world_step(&w);
    assert_int_equal(third->sequences[0].num_computed, 5);
    run_out(&w, 3, FINISH_LENGTH);
    world_close(&w);
}

static void test_without_chunks_a_prompt_waits_for_a_whole_step(void **state)
{
    (void)state;
    struct world w;
    struct scheduler_config config = config_of(100, 16, 64, 4);
    config.enable_chunked_prefill = false;
    config.limits.max_model_len = 64;
    world_open(&w, config);
    world_add(&w, 0, 40, 1, 4);
    world_add(&w, 7, 30, 1, 4);
    world_schedule(&w);
    assert_int_equal(w.batch.num_tokens, 40);
    world_collect(&w);
    world_schedule(&w);
    assert_int_equal(w.batch.num_tokens, 31);
    world_collect(&w);
    run_out(&w, 2, FINISH_LENGTH);
    world_close(&w);

    struct scheduler *none;
    struct error err;
    config.limits.max_model_len = 65;
    assert_int_equal(scheduler_create(&config, &none, &err), STATUS_INVALID);
}

/* ---- Sharing ---- */

static void test_64_prompts_share_500_tokens_in_one_step(void **state)
{
    (void)state;
    for (int caching = 0; caching < 2; caching++) {
        struct world w;
        struct scheduler_config config = config_of(4000, 16, 64 * 512, 64);
        config.enable_prefix_caching = caching;
        world_open(&w, config);
        for (int32_t i = 0; i < 64; i++) {
            struct error err;
            struct sampling_params params = sampling_params_default();
            struct request *request;
            int32_t prompt[512];
            for (int32_t t = 0; t < 512; t++) prompt[t] = t < 500 ? t * t % VOCAB : (i >> (t % 8)) % VOCAB;
            params.max_tokens = 2;
            params.ignore_eos = true;
            assert_int_equal(request_create(&params, prompt, 512, &config.limits, &request, &err), STATUS_OK);
            scheduler_add(w.scheduler, request);
        }
        assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
        /* 31 full blocks hold 496 of the 500 tokens; each prompt has a 32nd block of its own. */
        assert_int_equal(world_stats(&w).blocks_in_use, caching ? 31 + 64 : 32 * 64);
        assert_int_equal(w.batch.num_tokens, caching ? 512 + 63 * 16 : 64 * 512);
        assert_int_equal(world_stats(&w).prefix_hits, caching ? 63 * 496 : 0);
        assert_int_equal(world_stats(&w).prefix_queries, 64 * 512);
        world_collect(&w);
        run_out(&w, 64, FINISH_LENGTH);
        world_close(&w);
    }
}

static void test_n_answers_share_the_prompt_and_then_copy(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, config_of(100, 16, 32, 4));
    world_add(&w, 0, 40, 3, 20);
    world_step(&w);
    assert_int_equal(w.schedule.num_admitted, 1);
    assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
    assert_int_equal(w.schedule.num_admitted, 2); /* the siblings start with the end of the prompt */
    assert_int_equal(w.batch.num_seqs, 1);
    assert_int_equal(w.batch.num_samples, 3);
    for (int32_t i = 0; i < 3; i++) {
        assert_int_equal(w.batch.logits_indices[i], 7);
        assert_int_equal(w.batch.output_positions[i], 0);
    }
    assert_int_equal(world_stats(&w).blocks_in_use, 3);
    world_collect(&w);
    assert_int_equal(w.num_events, 3);
    assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
    assert_int_equal(w.batch.num_decodes, 3);
    assert_int_equal(w.batch.num_copies, 2);         /* the last one writes in place */
    assert_int_equal(w.batch.num_deltas, 1 + 3 + 3); /* the first: its new block; the siblings: all of the table */
    assert_int_equal(world_stats(&w).blocks_in_use, 5);
    world_collect(&w);
    run_out(&w, 1, FINISH_LENGTH);
    world_close(&w);
}

static void test_more_answers_than_max_num_seqs(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, config_of(100, 16, 32, 4));
    struct request *request = world_add(&w, 0, 40, 5, 20);
    assert_true(strstr(request->error->text, "n is 5, but at most 4") != NULL);
    assert_int_equal(request->error->num_advice, 1);
    assert_string_equal(request->error->advice[0].setting, "max_num_seqs");
    assert_string_equal(request->error->advice[0].value, "5");
    run_out(&w, 1, FINISH_ERROR);
    world_close(&w);
}

static void test_the_others_go_on_when_the_first_ends_early(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, config_of(100, 16, 32, 4));
    struct request *request = world_add(&w, 0, 80, 3, 6);
    world_schedule(&w);
    scheduler_finish(w.scheduler, &request->sequences[0], FINISH_ABORT); /* while its first chunk is in flight */
    assert_int_equal(request->sequences[0].tables[0].num_blocks, 0);
    world_collect(&w);
    while (!(request = scheduler_next_finished(w.scheduler))) world_step(&w);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(request->sequences[i].num_tokens, 86);
        assert_true_tokens(&request->sequences[i]);
    }
    request_destroy(request);
    world_close(&w);
}

/* ---- Too few blocks ---- */

static void test_a_prompt_that_never_fits(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, config_of(100, 8, 64, 4));
    struct request *never = world_add(&w, 0, 800, 1, 4); /* 100 blocks, and the watermark keeps one free */
    struct request *fits = world_add(&w, 3, 60, 1, 4);
    world_step(&w);
    assert_ptr_equal(scheduler_next_finished(w.scheduler), never);
    assert_ended(never, FINISH_ERROR);
    assert_true(strstr(never->error->text, "100 KV cache blocks") != NULL);
    assert_int_equal(never->error->num_advice, 1);
    assert_string_equal(never->error->advice[0].setting, "kv_cache_space");
    assert_int_equal(fits->sequences[0].num_computed, 60);
    request_destroy(never);
    run_out(&w, 1, FINISH_LENGTH);
    world_close(&w);
}

static void test_a_lone_request_that_outgrows_the_cache(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, config_of(4, 8, 64, 4));
    struct request *request = world_add(&w, 0, 20, 1, 100);
    for (int i = 0; i < 50 && scheduler_has_work(w.scheduler) && request->sequences[0].status != SEQUENCE_FINISHED; i++)
        world_step(&w);
    assert_int_equal(request->sequences[0].num_tokens, 33);
    assert_true(strstr(request->error->text, "needs 5 blocks of 8 tokens, but there are 4") != NULL);
    assert_int_equal(request->error->num_advice, 2);
    assert_string_equal(request->error->advice[0].setting, "kv_cache_space");
    assert_string_equal(request->error->advice[1].setting, "max_model_len");
    run_out(&w, 1, FINISH_ERROR);
    world_close(&w);
}

static void test_the_youngest_is_preempted(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, config_of(6, 8, 64, 4));
    struct request *old = world_add(&w, 0, 16, 1, 30);
    struct request *young = world_add(&w, 5, 16, 1, 20);
    struct request *waits = world_add(&w, 11, 24, 1, 3);
    while (num_preemptions(&w) == 0) assert_int_equal(world_step(&w), SCHEDULE_BATCH);
    assert_int_equal(young->sequences[0].status, SEQUENCE_WAITING);
    assert_int_equal(old->sequences[0].status, SEQUENCE_RUNNING);
    assert_int_equal(waits->sequences[0].status, SEQUENCE_WAITING); /* a step that preempts admits nothing */
    assert_true(young->sequences[0].num_tokens > 16);               /* what it generated is kept */
    run_out(&w, 3, FINISH_LENGTH);
    world_close(&w);
}

static void test_preemption_waits_for_the_step_in_flight(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, config_of(6, 8, 64, 4));
    world_add(&w, 0, 16, 1, 30);
    world_add(&w, 5, 16, 1, 20);
    enum schedule_result result = world_schedule(&w);
    while ((result = world_schedule(&w)) == SCHEDULE_BATCH) world_collect(&w);
    assert_int_equal(result, SCHEDULE_COLLECT_FIRST);
    struct scheduler_stats before = world_stats(&w);
    assert_int_equal(world_schedule(&w), SCHEDULE_COLLECT_FIRST);
    struct scheduler_stats after = world_stats(&w);
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(after.preemptions_recompute, 0);
    world_collect(&w);
    world_schedule(&w);
    assert_int_equal(num_preemptions(&w), 1);
    world_collect(&w);
    run_out(&w, 2, FINISH_LENGTH);
    world_close(&w);
}

/* Four answers that share a long prompt come back after a preemption in no more blocks than they had. */
static void test_a_forked_request_comes_back_sharing(void **state)
{
    (void)state;
    for (int caching = 0; caching < 2; caching++) {
        struct world w;
        struct scheduler_config config = config_of(31, 8, 50, 8);
        config.enable_prefix_caching = caching;
        world_open(&w, config);
        world_add(&w, 0, 8, 1, 60);
        struct request *many = world_add(&w, 3, 84, 4, 30); /* 10 full blocks to share */
        while (num_preemptions(&w) == 0) world_step(&w);
        assert_int_equal(many->sequences[0].status, SEQUENCE_WAITING);
        run_out(&w, 2, FINISH_LENGTH);
        world_close(&w);
    }
}

/* ---- Swapping ---- */

static struct scheduler_config swapping_config(int32_t num_blocks, int32_t num_host_blocks)
{
    struct scheduler_config config = config_of(num_blocks, 8, 100, 8);
    config.num_host_blocks = num_host_blocks;
    return config;
}

/* Runs steps until a request is preempted. Returns the number of swapped requests. */
static int32_t step_until_preemption(struct world *w)
{
    while (num_preemptions(w) == 0) assert_int_equal(world_step(w), SCHEDULE_BATCH);
    return world_stats(w).num_swapped;
}

/* An old request that grows, and four answers to a prompt of 10 full blocks and a part of one. */
static struct request *add_one_and_four(struct world *w)
{
    world_add(w, 0, 8, 1, 200);
    return world_add(w, 3, 84, 4, 40);
}

/* Blocks that the sequences hold, a shared one counted once. */
static int32_t count_blocks(const struct request *request)
{
    int32_t count = 0;
    for (int32_t i = 0; i < request->num_sequences; i++)
        for (int32_t j = 0; j < request->sequences[i].tables[0].num_blocks; j++) {
            bool seen = false;
            for (int32_t k = 0; k < i; k++)
                seen = seen || (j < request->sequences[k].tables[0].num_blocks &&
                                request->sequences[k].tables[0].blocks[j] == request->sequences[i].tables[0].blocks[j]);
            count += !seen;
        }
    return count;
}

static void test_a_shared_block_is_swapped_once_and_stays_shared(void **state)
{
    (void)state;
    for (int caching = 0; caching < 2; caching++) {
        struct world w;
        struct scheduler_config config = swapping_config(34, 50);
        config.enable_prefix_caching = caching;
        world_open(&w, config);
        struct request *many = add_one_and_four(&w);
        assert_int_equal(step_until_preemption(&w), 1);
        const struct sequence *seqs = many->sequences;
        for (int32_t i = 0; i < 4; i++) {
            assert_int_equal(seqs[i].status, SEQUENCE_SWAPPED);
            assert_int_equal(seqs[i].state_index, -1);
            for (int32_t j = 0; j < seqs[i].tables[0].num_blocks; j++)
                assert_in_range(seqs[i].tables[0].blocks[j], 35, 84);
            assert_memory_equal(seqs[i].tables[0].blocks, seqs[0].tables[0].blocks, 10 * sizeof(int32_t));
            assert_int_not_equal(seqs[i].tables[0].blocks[10], seqs[(i + 1) % 4].tables[0].blocks[10]);
        }
        assert_int_equal(w.batch.num_swap_out, count_blocks(many));
        assert_int_equal(world_stats(&w).host_blocks_in_use, count_blocks(many));
        assert_int_equal(world_stats(&w).blocks_swapped_out, count_blocks(many));
        assert_true(count_blocks(many) < 4 * seqs[0].tables[0].num_blocks - 20);

        struct request *waits = world_add(&w, 9, 8, 1, 4);
        while (world_stats(&w).num_swapped > 0) { /* before it comes back, nothing is admitted */
            assert_int_equal(waits->sequences[0].num_computed, 0);
            world_step(&w);
        }
        assert_int_equal(w.schedule.num_admitted, 5); /* in one step: it, and then the one that waited */
        /* Blocks that the prefix cache still finds are not copied. */
        const int64_t out = world_stats(&w).blocks_swapped_out;
        assert_true(caching ? w.batch.num_swap_in < out && w.batch.num_swap_in >= out - 10
                            : w.batch.num_swap_in == out);
        assert_int_equal(world_stats(&w).host_blocks_in_use, 0);
        for (int32_t i = 1; i < 4; i++)
            assert_memory_equal(seqs[i].tables[0].blocks, seqs[0].tables[0].blocks, 10 * sizeof(int32_t));
        run_out(&w, 3, FINISH_LENGTH);
        world_close(&w);
    }
}

/* Blocks are in the prefix cache again in the step that swaps them in: a prompt of that step with the same prefix
 * shares them. */
static void test_blocks_that_come_back_can_be_found(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, swapping_config(34, 50));
    struct request *many = add_one_and_four(&w);
    assert_int_equal(step_until_preemption(&w), 1);
    scheduler_reset_prefix_cache(w.scheduler); /* what they left on the device must not be what is found */
    struct request *same = world_add(&w, 3, 84, 1, 4);
    while (world_stats(&w).num_swapped > 0) world_step(&w);
    assert_int_equal(same->sequences[0].num_cached, 80);
    assert_memory_equal(same->sequences[0].tables[0].blocks, many->sequences[0].tables[0].blocks, 10 * sizeof(int32_t));
    run_out(&w, 3, FINISH_LENGTH);
    world_close(&w);
}

static void test_who_is_swapped(void **state)
{
    (void)state;
    const struct {
        enum preemption_mode mode;
        int32_t n, num_swapped;
    } cases[] = {
        {PREEMPTION_AUTO, 1, 0},      {PREEMPTION_AUTO, 2, 1}, {PREEMPTION_RECOMPUTE, 1, 0},
        {PREEMPTION_RECOMPUTE, 2, 0}, {PREEMPTION_SWAP, 1, 1}, {PREEMPTION_SWAP, 2, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world w;
        struct scheduler_config config = swapping_config(12, 50);
        config.preemption_mode = cases[i].mode;
        world_open(&w, config);
        world_add(&w, 0, 16, 1, 60);
        world_add(&w, 5, 16, cases[i].n, 40);
        assert_int_equal(step_until_preemption(&w), cases[i].num_swapped);
        run_out(&w, 2, FINISH_LENGTH);
        assert_int_equal(world_stats(&w).blocks_swapped_out > 0, cases[i].num_swapped);
        world_close(&w);
    }
}

static void test_one_answer_that_is_left_is_computed_again(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, swapping_config(12, 50));
    world_add(&w, 0, 16, 1, 60);
    struct request *two = world_add(&w, 5, 16, 2, 40);
    for (int i = 0; i < 5; i++) world_step(&w);
    scheduler_finish(w.scheduler, &two->sequences[0], FINISH_LENGTH);
    two->sequences[0].token_capacity = two->sequences[0].num_tokens; /* as if it had been this short */
    assert_int_equal(step_until_preemption(&w), 0);
    run_out(&w, 2, FINISH_LENGTH);
    world_close(&w);
}

static void test_a_prompt_that_others_wait_for_is_computed_again(void **state)
{
    (void)state;
    struct world w;
    struct scheduler_config config = swapping_config(14, 50);
    config.preemption_mode = PREEMPTION_SWAP;
    config.limits.max_num_tokens = 8;
    world_open(&w, config);
    world_add(&w, 0, 8, 1, 60);
    struct request *two = world_add(&w, 5, 96, 2, 8); /* 12 blocks, 7 tokens a step */
    assert_int_equal(step_until_preemption(&w), 0);
    assert_int_equal(two->sequences[1].num_tokens, 96);
    run_out(&w, 2, FINISH_LENGTH);
    world_close(&w);
}

static void test_no_host_block_is_left(void **state)
{
    (void)state;
    for (int32_t num_host_blocks = 0; num_host_blocks < 10; num_host_blocks += 3) {
        struct world w;
        world_open(&w, swapping_config(34, num_host_blocks));
        struct request *many = add_one_and_four(&w);
        assert_int_equal(step_until_preemption(&w), 0);
        assert_int_equal(many->sequences[0].status, SEQUENCE_WAITING);
        assert_int_equal(world_stats(&w).host_blocks_in_use, 0);
        run_out(&w, 2, FINISH_LENGTH);
        assert_int_equal(world_stats(&w).blocks_swapped_out, 0);
        world_close(&w);
    }
}

struct host_growth {
    int calls, fails_at;
    int32_t piece;
};

static enum status grow_host_blocks(void *user, int32_t *added, struct error *err)
{
    struct host_growth *growth = user;
    if (growth->calls++ == growth->fails_at) return error_set(err, STATUS_OUT_OF_MEMORY, "no memory can be pinned");
    *added = growth->piece;
    return STATUS_OK;
}

/* Host blocks are allocated for the largest swap so far: none before the first swap, none for a second one of the same
 * size. */
static void test_host_blocks_are_taken_as_needed_and_may_fail(void **state)
{
    (void)state;
    for (int fails_at = -1; fails_at < 3; fails_at++) {
        struct world w;
        struct host_growth growth = {.fails_at = fails_at, .piece = 5};
        struct scheduler_config config = swapping_config(34, 50);
        int32_t most = 0;
        config.grow_host_blocks = grow_host_blocks;
        config.user = &growth;
        world_open(&w, config);
        for (int round = 0; round < 2; round++) {
            add_one_and_four(&w);
            for (int step = 0; step < 300; step++) {
                world_step(&w);
                const struct scheduler_stats stats = world_stats(&w);
                most = stats.host_blocks_in_use > most ? stats.host_blocks_in_use : most;
                assert_true(growth.calls == 0 || (stats.preemptions_recompute + stats.preemptions_swap) > 0);
            }
            assert_int_equal(world_stats(&w).num_swapped, 0);
            run_out(&w, 2, FINISH_LENGTH);
            assert_int_equal(growth.calls, fails_at < 0 ? (most + 4) / 5 : fails_at + 1);
            assert_int_equal(most > 0, fails_at < 0);
            assert_int_equal(world_stats(&w).blocks_swapped_out > 0, fails_at < 0);
            assert_true(num_preemptions(&w) > 0);
        }
        world_close(&w);
    }
}

static void test_no_host_blocks_are_made_for_what_never_fits(void **state)
{
    (void)state;
    struct world w;
    struct host_growth growth = {.fails_at = -1, .piece = 5};
    struct scheduler_config config = swapping_config(34, 10);
    config.grow_host_blocks = grow_host_blocks;
    config.user = &growth;
    world_open(&w, config);
    add_one_and_four(&w);
    assert_int_equal(step_until_preemption(&w), 0);
    run_out(&w, 2, FINISH_LENGTH);
    assert_int_equal(growth.calls, 0);
    world_close(&w);
}

/* A swapped request needs its blocks and one more for each answer. If the pool is too small for that, the request is
 * recomputed. */
static void test_a_swapped_request_that_can_never_come_back(void **state)
{
    (void)state;
    for (int never = 0; never < 2; never++) {
        struct world w;
        struct scheduler_config config = swapping_config(never ? 19 : 20, 50);
        config.enable_prefix_caching = false;
        world_open(&w, config);
        world_add(&w, 0, never ? 4 : 12, 1, 50);
        struct request *many = world_add(&w, 3, 32, 4, 24);
        assert_int_equal(step_until_preemption(&w), 1);
        assert_int_equal(count_blocks(many), 4 + 4 * 3);
        world_step(&w);
        assert_int_equal(many->sequences[0].status, never ? SEQUENCE_WAITING : SEQUENCE_SWAPPED);
        assert_int_equal(world_stats(&w).host_blocks_in_use, never ? 0 : 16);
        run_out(&w, 2, FINISH_LENGTH);
        assert_int_equal(world_stats(&w).blocks_swapped_in, never ? 0 : 16);
        world_close(&w);
    }
}

static void test_the_end_of_a_swapped_request(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, swapping_config(34, 50));
    struct request *many = add_one_and_four(&w);
    assert_int_equal(step_until_preemption(&w), 1);
    scheduler_finish(w.scheduler, &many->sequences[1], FINISH_ABORT);
    assert_int_equal(world_stats(&w).num_swapped, 1);
    assert_int_equal(world_stats(&w).host_blocks_in_use, count_blocks(many));
    scheduler_abort(w.scheduler, many);
    assert_int_equal(world_stats(&w).num_swapped, 0);
    assert_int_equal(world_stats(&w).host_blocks_in_use, 0);
    assert_ptr_equal(scheduler_next_finished(w.scheduler), many);
    assert_ended(many, FINISH_ABORT);
    request_destroy(many);
    run_out(&w, 1, FINISH_LENGTH);
    world_close(&w);
}

/* ---- Ends ---- */

/* The device runs in order: what others write to the blocks is written after the step in flight. The request itself is
 * handed back when the step is collected. */
static void test_blocks_are_free_while_a_step_is_in_flight(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, config_of(100, 8, 64, 4));
    struct request *request = world_add(&w, 0, 16, 1, 10);
    world_schedule(&w);
    world_schedule(&w);
    world_collect(&w);
    scheduler_finish(w.scheduler, &request->sequences[0], FINISH_STOP);
    assert_null(scheduler_next_finished(w.scheduler));
    assert_int_equal(world_stats(&w).blocks_in_use, 0);
    assert_true(scheduler_has_work(w.scheduler));
    world_collect(&w);
    assert_int_equal(w.num_events, 0); /* the wasted token is dropped */
    assert_int_equal(request->sequences[0].num_tokens, 17);
    assert_ptr_equal(scheduler_next_finished(w.scheduler), request);
    assert_int_equal(world_stats(&w).blocks_in_use, 0);
    request_destroy(request);
    world_close(&w);
}

static void test_a_known_end_is_not_scheduled_again(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, config_of(100, 8, 64, 4));
    world_add(&w, 0, 16, 1, 2);
    assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
    assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
    assert_true(w.batch.token_ids[0] == -1);
    world_collect(&w);
    assert_int_equal(world_schedule(&w), SCHEDULE_EMPTY);
    world_collect(&w);
    run_out(&w, 1, FINISH_LENGTH);
    world_close(&w);
}

static void test_stop_tokens_and_min_tokens(void **state)
{
    (void)state;
    for (int32_t min_tokens = 0; min_tokens < 6; min_tokens++) {
        struct world w;
        world_open(&w, config_of(100, 8, 64, 4));
        struct request *request = world_add(&w, 0, 16, 1, 6);
        request->params.min_tokens = min_tokens;
        const int32_t stop = token_after(&request->sequences[0], request->sequences[0].tokens, 16);
        assert_true(sampling_params_add_stop_token_id(&request->params, stop));
        while (!scheduler_next_finished(w.scheduler)) world_step(&w);
        const struct sequence *seq = &request->sequences[0];
        if (min_tokens < 2) {
            assert_int_equal(seq->num_tokens, 17);
            assert_int_equal(seq->finish_reason, FINISH_STOP);
            assert_int_equal(seq->stop_token, stop);
        } else {
            assert_true(seq->num_tokens >= 16 + min_tokens);
        }
        request_destroy(request);
        world_close(&w);
    }
}

static void test_a_prompt_as_long_as_the_model_gets_one_token(void **state)
{
    (void)state;
    struct world w;
    struct scheduler_config config = config_of(20, 8, 64, 4);
    config.limits.max_model_len = 40;
    world_open(&w, config);
    struct request *full = world_add(&w, 0, 40, 2, -1);
    while (!scheduler_next_finished(w.scheduler)) world_step(&w);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(full->sequences[i].num_tokens, 41);
        assert_int_equal(full->sequences[i].finish_reason, FINISH_LENGTH);
        assert_true_tokens(&full->sequences[i]);
    }
    request_destroy(full);
    world_close(&w);
}

static void test_reset_of_the_prefix_cache(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, config_of(100, 8, 256, 4));
    for (int round = 0; round < 3; round++) {
        if (round == 2) scheduler_reset_prefix_cache(w.scheduler);
        int64_t hits = world_stats(&w).prefix_hits;
        world_add(&w, 0, 65, 1, 2);
        world_step(&w);
        assert_int_equal(world_stats(&w).prefix_hits - hits, round == 1 ? 64 : 0);
        run_out(&w, 1, FINISH_LENGTH);
    }
    assert_int_equal(world_stats(&w).blocks_cached, 8);
    world_close(&w);
}

static void test_prompts_of_a_wrong_length(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, config_of(100, 8, 64, 4));
    struct sampling_params params = sampling_params_default();
    struct request *request;
    struct error err;
    int32_t prompt[8] = {2, 3, 4, 5, 6, 7, 8, 9};
    struct batch_limits limits = w.config.limits;
    assert_int_equal(request_create(&params, prompt, 0, &limits, &request, &err), STATUS_INVALID);
    limits.max_model_len = 7;
    assert_int_equal(request_create(&params, prompt, 8, &limits, &request, &err), STATUS_INVALID);
    assert_null(request);
    params.max_tokens = -1;
    limits.max_model_len = 1025;
    assert_int_equal(request_create(&params, prompt, 8, &limits, &request, &err), STATUS_OK);
    scheduler_add(w.scheduler, request); /* made for a longer model than the scheduler's */
    assert_true(strstr(request->error->text, "max_model_len is 1024") != NULL);
    run_out(&w, 1, FINISH_ERROR);
    world_close(&w);
}

/* With two steps in flight, the end of a sequence by length is known when its last token is still pending. */
static void test_a_known_end_gives_its_place_to_the_very_next_step(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, config_of(3, 8, 64, 1));
    struct request *first = world_add(&w, 0, 16, 1, 4), *second = world_add(&w, 5, 17, 1, 3);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
        assert_int_equal(w.schedule.admitted[0] == &second->sequences[0], 0);
        if (i > 0) world_collect(&w);
    }
    assert_int_equal(first->sequences[0].num_tokens, 19); /* the 20th is pending */
    assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
    assert_int_equal(w.schedule.num_admitted, 1); /* the only state index and all the blocks */
    assert_ptr_equal(w.schedule.admitted[0], &second->sequences[0]);
    assert_int_equal(first->sequences[0].tables[0].num_blocks, 0);
    world_collect(&w);
    assert_int_equal(w.num_events, 1);
    assert_int_equal(first->sequences[0].finish_reason, FINISH_LENGTH);
    world_collect(&w);
    run_out(&w, 2, FINISH_LENGTH);
    world_close(&w);
}

/* ---- One path for forked requests ---- */

/* After a recompute the leader computes the prompt, the others fork from it, and then each its own tokens as a chunk.
 */
static void test_a_forked_request_is_computed_again_as_it_was(void **state)
{
    (void)state;
    struct world w;
    struct scheduler_config config = config_of(100, 8, 64, 8);
    config.enable_prefix_caching = false;
    world_open(&w, config);
    struct request *request = world_add(&w, 0, 20, 3, 30);
    for (int i = 0; i < 6; i++) world_step(&w); /* 6 tokens each */
    scheduler_preempt(w.scheduler, &w.batch, request);
    world_schedule(&w);
    assert_int_equal(w.schedule.num_admitted, 3);
    assert_int_equal(w.batch.num_seqs, 1);
    assert_int_equal(w.batch.num_tokens, 20);
    assert_int_equal(w.batch.num_samples, 0);
    assert_int_equal(world_stats(&w).blocks_in_use, 3);
    assert_null(request->leader);
    world_collect(&w);
    world_schedule(&w);
    assert_int_equal(w.batch.num_seqs, 3);
    assert_int_equal(w.batch.num_decodes, 0);
    assert_int_equal(w.batch.num_tokens, 3 * 6);
    assert_int_equal(w.batch.num_copies, 2);
    assert_int_equal(w.batch.num_samples, 3);
    world_collect(&w);
    run_out(&w, 1, FINISH_LENGTH);
    world_close(&w);
}

/* What a request needs changes when a sequence ends, and when it is preempted: a kept answer is forgotten. */
static void test_a_kept_answer_is_forgotten(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, config_of(100, 8, 64, 8));
    struct request *request = world_add(&w, 0, 20, 2, 30);
    request->retry_gains = 1000;
    scheduler_finish(w.scheduler, &request->sequences[1], FINISH_ABORT);
    assert_int_equal(request->retry_gains, 0);
    world_step(&w);
    request->retry_gains = 1000;
    scheduler_preempt(w.scheduler, &w.batch, request);
    assert_int_equal(request->retry_gains, 0);
    scheduler_abort(w.scheduler, request);
    assert_ptr_equal(scheduler_next_finished(w.scheduler), request);
    request_destroy(request);
    world_close(&w);
}

/* ---- Beams ---- */

static struct request *world_add_beams(struct world *w, int32_t length, int32_t n, int32_t max_tokens)
{
    struct request *request = world_add(w, 0, length, n, max_tokens);
    request->beams = true;
    return request;
}

static void test_beams_fork_and_end_at_any_step(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, config_of(100, 8, 64, 8));
    struct request *request = world_add_beams(&w, 20, 3, 30);
    struct sequence *seqs = request->sequences;
    world_step(&w);
    assert_int_equal(w.num_events, 3);
    assert_int_equal(seqs[0].num_tokens, 20); /* nothing is appended */
    assert_int_equal(world_schedule(&w), SCHEDULE_EMPTY);
    world_set_beams(&w, request, (struct beam[]){{0, 10}, {1, 11}, {2, 12}});
    world_step(&w);
    assert_int_equal(w.batch.num_copies, 2);
    assert_int_equal(world_stats(&w).blocks_in_use, 2 + 3);
    /* All go on from the last: the others' third blocks are given back, and the last one's has three holders. */
    world_set_beams(&w, request, (struct beam[]){{2, 20}, {2, 21}, {2, 22}});
    assert_int_equal(world_stats(&w).blocks_in_use, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(seqs[i].num_tokens, 22);
        assert_int_equal(seqs[i].tokens[20], 12);
        assert_int_equal(seqs[i].tokens[21], 20 + i);
    }
    assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
    assert_int_equal(w.schedule.num_admitted, 0);
    assert_int_equal(w.batch.num_decodes, 3);
    assert_int_equal(w.batch.num_copies, 2);
    assert_int_equal(w.batch.num_deltas, 2); /* the last one's row has its block already, and it writes in place */
    world_collect(&w);
    scheduler_finish(w.scheduler, &seqs[1], FINISH_STOP);
    world_set_beams(&w, request, (struct beam[]){{2, 5}, {0, 0}, {0, 6}}); /* two change places */
    assert_int_equal(seqs[0].tokens[21], 22);
    assert_int_equal(seqs[2].tokens[21], 20);
    assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
    assert_int_equal(w.batch.num_copies, 0);
    assert_int_equal(w.batch.num_deltas, 2);
    world_collect(&w);
    for (int i = 0; i < 3; i += 2) scheduler_finish(w.scheduler, &seqs[i], FINISH_LENGTH);
    assert_ptr_equal(scheduler_next_finished(w.scheduler), request);
    assert_int_equal(world_stats(&w).blocks_in_use, 0);
    request_destroy(request);
    world_close(&w);
}

/* A beam whose samples were collected, but which has no next token yet, is computed again up to the tokens that it has,
 * and not sampled from twice. */
static void test_beams_that_are_preempted_before_they_are_set(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, config_of(100, 8, 64, 8));
    struct request *request = world_add_beams(&w, 20, 2, 30);
    world_step(&w);
    world_set_beams(&w, request, (struct beam[]){{0, 10}, {0, 11}});
    world_step(&w);
    scheduler_preempt(w.scheduler, &w.batch, request);
    scheduler_reset_prefix_cache(w.scheduler);
    assert_int_equal(world_schedule(&w), SCHEDULE_EMPTY); /* they start again once they are chosen */
    world_set_beams(&w, request, (struct beam[]){{1, 20}, {1, 21}});
    world_step(&w);
    assert_int_equal(w.batch.num_tokens, 20);
    world_step(&w);
    assert_int_equal(w.batch.num_tokens, 4);
    assert_int_equal(w.num_events, 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(w.events[i].token, token_after(&request->sequences[i], request->sequences[i].tokens, 22));
    scheduler_abort(w.scheduler, request);
    assert_ptr_equal(scheduler_next_finished(w.scheduler), request);
    request_destroy(request);
    world_close(&w);
}

/* ---- Order ---- */

static struct request *world_add_priority(struct world *w, int32_t priority, int32_t length, int32_t max_tokens)
{
    struct error err;
    struct request *request;
    struct sampling_params params = sampling_params_default();
    int32_t prompt[1024];
    for (int32_t i = 0; i < length; i++) prompt[i] = 2 + ((priority + 8) * 7 + i * i) % (VOCAB - 2);
    params.max_tokens = max_tokens;
    params.ignore_eos = true;
    assert_int_equal(request_create(&params, prompt, length, &w->config.limits, &request, &err), STATUS_OK);
    request->priority = priority;
    scheduler_add(w->scheduler, request);
    return request;
}

/* A request of 2 blocks comes while another is swapped that needs more blocks than are free. With priorities it starts
 * in the next step if it is more urgent, and not before the other if it is less so; with fcfs it waits in any case. */
static void test_an_urgent_request_does_not_wait_for_a_swapped_one(void **state)
{
    (void)state;
    static const int32_t priorities[] = {-8, 7};
    for (int i = 0; i < 4; i++) {
        struct world w;
        struct scheduler_config config = config_of(40, 8, 64, 8);
        config.policy = i < 2 ? SCHEDULING_PRIORITY : SCHEDULING_FCFS;
        config.preemption_mode = PREEMPTION_SWAP;
        config.num_host_blocks = 40;
        world_open(&w, config);
        world_add_priority(&w, 0, 90, 60);
        struct request *large = world_add_priority(&w, 5, 222, 30);
        for (int step = 0; world_stats(&w).num_swapped == 0 && step < 100; step++) world_step(&w);
        assert_ptr_equal(w.scheduler->swapped.head, large);
        struct request *small = world_add_priority(&w, priorities[i % 2], 8, 4);
        world_step(&w);
        assert_true(world_stats(&w).blocks_in_use < 20);
        assert_int_equal(small->sequences[0].status, i == 0 ? SEQUENCE_RUNNING : SEQUENCE_WAITING);
        assert_ptr_equal(w.scheduler->swapped.head, large);
        while (w.scheduler->swapped.head) {
            assert_true(i == 0 || small->sequences[0].status == SEQUENCE_WAITING);
            world_step(&w);
        }
        run_out(&w, w.scheduler->ended.count + w.scheduler->running.count + w.scheduler->waiting.count, FINISH_LENGTH);
        world_close(&w);
    }
}

/* Requests start by priority and then by arrival, or by arrival alone. */
static void test_the_order_in_which_requests_start(void **state)
{
    (void)state;
    const int32_t priorities[] = {3, 0, 2, 3, -1, 0, 2, 1, -5, 3};
    const int32_t expected[2][10] = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {8, 4, 1, 5, 7, 2, 6, 0, 3, 9}};
    for (int policy = 0; policy < 2; policy++) {
        struct world w;
        struct scheduler_config config = config_of(100, 8, 64, 1);
        config.policy = policy ? SCHEDULING_PRIORITY : SCHEDULING_FCFS;
        world_open(&w, config);
        struct request *requests[10];
        for (int i = 0; i < 10; i++) requests[i] = world_add_priority(&w, priorities[i], 10, 4);
        for (int i = 0; i < 10; i++) {
            do assert_int_equal(world_step(&w), SCHEDULE_BATCH);
            while (w.schedule.num_admitted == 0);
            assert_ptr_equal(w.schedule.admitted[0]->request, requests[expected[policy][i]]);
        }
        run_out(&w, 10, FINISH_LENGTH);
        world_close(&w);
    }
}

/* Requests that would fit do not overtake one that does not, however many there are. */
static void test_a_large_request_is_not_overtaken(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, config_of(40, 8, 64, 8));
    world_add_priority(&w, 1, 100, 4); /* 13 blocks */
    world_step(&w);
    struct request *large = world_add_priority(&w, 2, 280, 4); /* 35 blocks */
    int32_t num_added = 2;
    for (int step = 0; large->sequences[0].num_computed == 0; step++) {
        assert_true(step < 10);
        world_add_priority(&w, 3 + step, 8, 4);
        num_added++;
        world_step(&w);
        for (struct request *r; (r = scheduler_next_finished(w.scheduler)); num_added--) request_destroy(r);
        if (large->sequences[0].num_computed == 0) assert_in_range(world_stats(&w).num_running, 0, 1);
    }
    run_out(&w, num_added, FINISH_LENGTH);
    world_close(&w);
}

/* In whatever order they come and go, the time is not quadratic: that would be more than a test program is given. */
static void test_many_requests_wait_and_are_aborted(void **state)
{
    (void)state;
    enum { COUNT = 200000 };
    struct world w;
    struct scheduler_config config = config_of(100, 8, 64, 8);
    config.check_invariants = false;
    config.policy = SCHEDULING_PRIORITY;
    config.limits.max_model_len = 16;
    world_open(&w, config);
    struct request **requests = calloc(COUNT, sizeof *requests);
    assert_non_null(requests);
    uint32_t seed = 1;
    for (int32_t i = 0; i < COUNT; i++)
        requests[i] = world_add_priority(&w, (int32_t)((seed = seed * 1664525 + 1013904223) >> 20), 4, 4);
    for (int i = 0; i < 20; i++) world_step(&w);
    for (int32_t i = COUNT - 1; i > 0; i--) {
        const int32_t j = (int32_t)((seed = seed * 1664525 + 1013904223) % (uint32_t)(i + 1));
        struct request *other = requests[j];
        requests[j] = requests[i];
        requests[i] = other;
    }
    int32_t num_aborted = 0, num_ended = 0;
    for (int32_t i = 0; i < COUNT; i++) {
        num_aborted += !request_finished(requests[i]);
        scheduler_abort(w.scheduler, requests[i]);
    }
    assert_true(num_aborted < COUNT && num_aborted > COUNT - 100);
    for (; scheduler_next_finished(w.scheduler); num_ended++) continue;
    assert_int_equal(num_ended, COUNT);
    for (int32_t i = 0; i < COUNT; i++) request_destroy(requests[i]);
    free(requests);
    world_close(&w);
}

/* ---- Thrashing ---- */

/* Who has just been preempted gets a token before it is preempted again. */
static void test_the_victim_has_got_on(void **state)
{
    (void)state;
    struct world w;
    struct scheduler_config config = config_of(12, 8, 64, 8);
    config.enable_prefix_caching = false;
    world_open(&w, config);
    struct request *requests[3];
    for (int i = 0; i < 3; i++) requests[i] = world_add(&w, 9 * i, 32, 1, 60);
    world_step(&w);
    requests[2]->stalled = true; /* as if it had come back a moment ago */
    for (int step = 0; num_preemptions(&w) == 0 && step < 20; step++)
        world_schedule(&w), world_collect(&w), requests[2]->stalled = true;
    assert_int_equal(requests[0]->num_preemptions, 0);
    assert_int_equal(requests[1]->num_preemptions, 1);
    assert_int_equal(requests[2]->num_preemptions, 0);
    assert_true(requests[1]->stalled);
    while (requests[1]->stalled) world_step(&w);
    assert_true(requests[1]->sequences[0].num_computed > 0);
    run_out(&w, 3, FINISH_LENGTH);
    world_close(&w);
}

/* Each preemption of a request but the first comes after a new token, unless only the oldest and others like it run. */
static void test_thrashing_is_bounded_and_reported(void **state)
{
    (void)state;
    enum { COUNT = 12 };
    struct world w;
    world_open(&w, config_of(40, 8, 64, COUNT));
    struct request *requests[COUNT];
    int32_t preemptions[COUNT] = {0}, tokens[COUNT] = {0}, most = 0;
    for (int i = 0; i < COUNT; i++) requests[i] = world_add(&w, 9 * i, 16, 1, 280);
    while (requests[COUNT - 1]->sequences[0].status != SEQUENCE_FINISHED) {
        world_step(&w);
        for (int i = 0; i < COUNT; i++) {
            if (requests[i]->num_preemptions == preemptions[i]) continue;
            assert_true(requests[i]->sequences[0].num_tokens > tokens[i]);
            preemptions[i] = requests[i]->num_preemptions;
            tokens[i] = requests[i]->sequences[0].num_tokens;
            most = preemptions[i] > most ? preemptions[i] : most;
            assert_int_equal(w.scheduler->warned, most >= 3);
        }
    }
    assert_true(w.scheduler->warned);
    run_out(&w, COUNT, FINISH_LENGTH);
    world_close(&w);
}

/* ---- KV cache groups ---- */

/* A window's blocks are given back as the sequence grows, and taken by others. */
static void test_a_sequence_holds_the_blocks_of_its_window(void **state)
{
    (void)state;
    struct world w;
    struct scheduler_config config = config_of(100, 8, 64, 8);
    config.limits.num_groups = 3;
    config.limits.windows[1] = 20;
    config.limits.windows[2] = 1;
    config.enable_prefix_caching = false;
    world_open(&w, config);
    struct request *request = world_add(&w, 0, 300, 1, 50);
    while (request->sequences[0].num_tokens < 345) {
        world_step(&w);
        const struct block_table *t = request->sequences[0].tables;
        const int32_t most = w.batch.num_tokens > 1 ? (19 + 64 + 6) / 8 + 1 : 3 + 1;
        assert_in_range(t[1].num_blocks - t[1].first, 1, most);
        assert_int_equal(world_stats(&w).blocks_in_use,
                         t[0].num_blocks + t[1].num_blocks - t[1].first + t[2].num_blocks - t[2].first);
    }
    run_out(&w, 1, FINISH_LENGTH);
    world_close(&w);
    config.limits.num_groups = 9;
    struct scheduler *none;
    struct error err;
    assert_int_equal(scheduler_create(&config, &none, &err), STATUS_INVALID);
}

/* A prompt whose window is short fits into a pool that is far smaller than the prompt. */
static void test_a_long_prompt_through_a_short_window(void **state)
{
    (void)state;
    struct world w;
    struct scheduler_config config = config_of(14, 8, 64, 8);
    config.limits.windows[0] = 30;
    world_open(&w, config);
    world_add(&w, 0, 900, 1, 20); /* 113 blocks */
    run_out(&w, 1, FINISH_LENGTH);
    assert_int_equal(num_preemptions(&w), 0);
    world_close(&w);
}

/* ---- A token that could not be sampled ---- */

/* Collects the oldest step as if nothing could be sampled for `seq`. */
static void collect_without_token(struct world *w, const struct sequence *seq)
{
    struct error err;
    const struct sample_output samples = slot_device_collect(&w->device);
    int32_t tokens[64];
    const struct step *step = &w->scheduler->steps[w->scheduler->oldest];
    memcpy(tokens, samples.token_ids, (size_t)samples.num_samples * sizeof *tokens);
    for (int32_t row = 0; row < step->num_sampled; row++)
        if (step->sampled[row] == seq) tokens[row] = -1;
    const struct sample_output damaged = {.num_samples = samples.num_samples, .token_ids = tokens};
    assert_int_equal(scheduler_collect(w->scheduler, &damaged, &w->events, &w->num_events, &err), STATUS_OK);
}

/* The sequence ends with an error and without the token; its siblings and the other requests go on. */
static void test_a_sequence_without_a_token_ends(void **state)
{
    (void)state;
    for (int32_t depth = 1; depth <= 2; depth++)
        for (int32_t which = 0; which < 3; which++) {
            struct world w;
            world_open(&w, config_of(100, 8, 64, 8));
            struct request *request = world_add(&w, 0, 20, 3, 30), *other = world_add(&w, 5, 12, 1, 30);
            struct sequence *seq = &request->sequences[which];
            for (int i = 0; i < 4; i++) world_step(&w);
            const int32_t before = seq->num_tokens;
            world_schedule(&w);
            if (depth == 2) world_schedule(&w); /* the step after it names the token that there will not be */
            collect_without_token(&w, seq);
            assert_int_equal(w.num_events, 4);
            int32_t negative = 0;
            for (int32_t i = 0; i < w.num_events; i++) negative += w.events[i].token == -1 && w.events[i].seq == seq;
            assert_int_equal(negative, 1);
            assert_int_equal(seq->finish_reason, FINISH_ERROR);
            assert_int_equal(seq->num_tokens, before);
            if (depth == 2) world_collect(&w);
            assert_int_equal(seq->num_tokens, before);
            int32_t ended = 0;
            for (int step = 0; scheduler_has_work(w.scheduler) && step < 1000; step++) {
                world_step(&w);
                for (struct request *r; (r = scheduler_next_finished(w.scheduler)); ended++)
                    for (int32_t i = 0; i < r->num_sequences; i++)
                        assert_int_equal(r->sequences[i].finish_reason,
                                         &r->sequences[i] == seq ? FINISH_ERROR : FINISH_LENGTH);
            }
            assert_int_equal(ended, 2);
            assert_int_equal(world_stats(&w).blocks_in_use, 0);
            request_destroy(request);
            request_destroy(other);
            world_close(&w);
        }
}

/* ---- Internal inconsistencies: a step on blocks that are not there is never submitted ---- */

static int32_t last_block(const struct sequence *seq)
{
    return seq->tables[0].blocks[seq->tables[0].num_blocks - 1];
}

static void lose_the_block_that_is_written(struct scheduler *s, struct request *request)
{
    s->blocks.pool.blocks[last_block(request->sequences)].ref_count = 0;
}

static void lose_the_first_block(struct scheduler *s, struct request *request)
{
    s->blocks.pool.blocks[request->sequences[0].tables[0].blocks[0]].ref_count = 0;
}

static void lose_the_first_block_and_finish(struct scheduler *s, struct request *request)
{
    lose_the_first_block(s, request);
    scheduler_finish(s, &request->sequences[0], FINISH_STOP);
}

static void empty_the_free_list(struct scheduler *s, struct request *request)
{
    (void)request;
    s->blocks.pool.untaken = s->blocks.pool.end;
    s->blocks.pool.head = s->blocks.pool.tail = BLOCK_NONE;
}

static void put_a_used_block_into_the_free_list(struct scheduler *s, struct request *request)
{
    s->blocks.pool.head = request->sequences[0].tables[0].blocks[0];
}

static void point_the_free_list_nowhere(struct scheduler *s, struct request *request)
{
    (void)request;
    s->blocks.pool.head = 1000000;
}

static void use_a_block_that_was_never_taken(struct scheduler *s, struct request *request)
{
    (void)request;
    s->blocks.pool.blocks[s->blocks.pool.untaken].ref_count = 1;
}

static void mark_free_blocks_as_cached(struct scheduler *s, struct request *request)
{
    (void)request;
    for (int32_t i = s->blocks.pool.untaken; i < s->blocks.pool.end; i++) s->blocks.pool.blocks[i].prefix = 4;
}

static void forget_that_blocks_are_cached(struct scheduler *s, struct request *request)
{
    for (int32_t i = 0; i < request->sequences[0].num_hashed; i++)
        s->blocks.pool.blocks[request->sequences[0].tables[0].blocks[i]].prefix = PREFIX_NONE;
    scheduler_abort(s, request);
}

static void point_the_free_list_of_the_host_nowhere(struct scheduler *s, struct request *request)
{
    (void)request;
    struct error err;
    assert_int_equal(block_manager_grow_host(&s->blocks, s->config.num_host_blocks, &err), STATUS_OK);
    s->blocks.host.head = 1000000;
}

/* Steps, `depth` of them in flight, until the scheduler finds the inconsistency; every batch until then is checked and
 * computed by the device. Then both calls go on returning the same sentence, with no batch and no events. */
static void assert_stops(struct world *w, int32_t depth, const char *sentence)
{
    enum status status = STATUS_OK;
    struct error err, again;
    struct schedule schedule;
    struct sample_output samples = {0};
    for (int step = 0; status == STATUS_OK && step < 1000; step++) {
        status = scheduler_schedule(w->scheduler, &w->batch, &schedule, &err);
        for (int32_t i = 0; status == STATUS_OK && i < schedule.num_admitted; i++)
            world_tell_device(w, schedule.admitted[i]);
        if (status == STATUS_OK && schedule.result == SCHEDULE_BATCH &&
            slot_device_submit(&w->device, &w->batch, &again) != STATUS_OK)
            fail_msg("%s", again.text);
        int32_t in_flight = scheduler_in_flight(w->scheduler);
        if (status != STATUS_OK || in_flight == 0) continue;
        if (in_flight < depth && schedule.result == SCHEDULE_BATCH) continue;
        samples = slot_device_collect(&w->device);
        status = scheduler_collect(w->scheduler, &samples, &w->events, &w->num_events, &err);
    }
    assert_int_equal(status, STATUS_INTERNAL);
    if (!strstr(err.text, sentence)) fail_msg("\"%s\" instead of \"%s\"", err.text, sentence);
    for (int i = 0; i < 3; i++) {
        world_add(w, 0, 5, 1, 5);
        assert_int_equal(scheduler_schedule(w->scheduler, &w->batch, &schedule, &again), STATUS_INTERNAL);
        assert_string_equal(again.text, err.text);
        assert_int_equal(schedule.result, SCHEDULE_EMPTY);
        assert_int_equal(schedule.num_admitted, 0);
        assert_int_equal(w->batch.num_tokens + w->batch.num_seqs + w->batch.num_samples, 0);
        assert_int_equal(w->batch.num_swap_out + w->batch.num_swap_in + w->batch.num_copies, 0);
        assert_int_equal(scheduler_collect(w->scheduler, &samples, &w->events, &w->num_events, &again),
                         STATUS_INTERNAL);
        assert_string_equal(again.text, err.text);
        assert_int_equal(w->num_events, 0);
    }
    assert_int_equal(scheduler_check(w->scheduler, &again), STATUS_INTERNAL);
    assert_string_equal(again.text, err.text);
}

/* The requests are not handed back after an inconsistency: this frees them where they are. */
static void world_abandon(struct world *w)
{
    struct request_queue *queues[] = {&w->scheduler->waiting, &w->scheduler->swapped, &w->scheduler->running,
                                      &w->scheduler->ended};
    for (size_t i = 0; i < sizeof queues / sizeof *queues; i++)
        for (struct request *r; (r = queues[i]->head);) {
            request_queue_remove(r);
            request_destroy(r);
        }
    world_free(w);
}

/* The request has a prompt of 20 tokens (2 full blocks of 8 and a part of one) and 2 answers; a second request with the
 * same prompt arrives after the damage was done. */
static void test_an_inconsistency_stops_the_step(void **state)
{
    (void)state;
    const struct {
        void (*damage)(struct scheduler *s, struct request *request);
        int32_t steps_before;
        const char *sentence;
    } cases[] = {
        {lose_the_block_that_is_written, 2, "are written, but its count is 0"},
        {lose_the_first_block, 2, "which is free already"},
        {lose_the_first_block_and_finish, 2, "which is free already"},
        {empty_the_free_list, 2, "but none can be taken"},
        {put_a_used_block_into_the_free_list, 2, "but none can be taken"},
        {point_the_free_list_nowhere, 2, "but none can be taken"},
        {use_a_block_that_was_never_taken, 2, "but none can be taken"},
        {mark_free_blocks_as_cached, 2, "not in the prefix cache"},
        {forget_that_blocks_are_cached, 2, "is shared, but it is free"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int32_t depth = 1; depth <= 2; depth++) {
            struct world w;
            struct scheduler_config config = config_of(100, 8, 64, 8);
            config.check_invariants = false; /* what release builds see */
            world_open(&w, config);
            struct request *request = world_add(&w, 0, 20, 2, 30);
            for (int32_t step = 0; step < cases[i].steps_before; step++) world_step(&w);
            cases[i].damage(w.scheduler, request);
            world_add(&w, 0, 20, 1, 30);
            assert_stops(&w, depth, cases[i].sentence);
            world_abandon(&w);
        }
}

static void test_an_inconsistency_stops_a_fork(void **state)
{
    (void)state;
    struct world w;
    struct scheduler_config config = config_of(100, 8, 16, 8);
    config.check_invariants = false;
    config.enable_prefix_caching = false;
    world_open(&w, config);
    struct request *request = world_add(&w, 0, 20, 3, 30);
    world_step(&w); /* 16 tokens; the others start when the last 4 are computed */
    lose_the_first_block(w.scheduler, request);
    assert_stops(&w, 1, "is shared, but it is free");
    world_abandon(&w);
}

static void test_an_inconsistency_stops_a_swap(void **state)
{
    (void)state;
    struct world w;
    struct scheduler_config config = swapping_config(34, 50);
    config.check_invariants = false;
    world_open(&w, config);
    struct request *many = add_one_and_four(&w);
    world_step(&w);
    point_the_free_list_of_the_host_nowhere(w.scheduler, many);
    assert_stops(&w, 2, "but none can be taken");
    assert_int_equal(world_stats(&w).num_swapped, 1);
    world_abandon(&w);
}

/* With check_invariants the damage is found by the next operation, whatever it does. */
static void test_an_inconsistency_that_only_the_invariants_show(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, config_of(100, 8, 64, 8));
    struct request *request = world_add(&w, 0, 20, 1, 30);
    world_step(&w);
    w.scheduler->blocks.pool.blocks[request->sequences[0].tables[0].blocks[0]].ref_count++;
    assert_stops(&w, 1, "has the count 2, but 1 table entries name it");
    world_abandon(&w);
}

/* ---- Cache namespaces ---- */

enum { SHIFT = 5000 }; /* of the positions in namespace 1 */

/* Namespace 0 is that of sequences of at most 20 tokens. */
static struct scheduler_config namespaces_config(void)
{
    struct scheduler_config config = config_of(100, 8, 64, 8);
    config.first_namespace_len = 20;
    config.namespace_position_shift = SHIFT;
    return config;
}

/* A sequence that has become too long for namespace 0 is computed again from its first token, as soon as its next token
 * is known. */
static void test_a_sequence_that_outgrows_its_namespace_starts_again(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, namespaces_config());
    struct request *request = world_add(&w, 0, 18, 1, 10), *other = world_add(&w, 7, 5, 1, 30);
    world_step(&w);
    world_step(&w);
    assert_int_equal(world_schedule(&w), SCHEDULE_BATCH); /* samples the 21st token */
    assert_int_equal(request->sequences[0].num_computed, 20);
    assert_int_equal(world_schedule(&w), SCHEDULE_BATCH); /* which nobody knows yet: the other goes on alone */
    assert_int_equal(w.batch.num_seqs, 1);
    assert_int_equal(w.batch.positions[0], 7);
    world_collect(&w);
    assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
    assert_int_equal(w.schedule.num_admitted, 1);
    assert_int_equal(w.batch.num_tokens, 1 + 21);
    assert_int_equal(w.batch.positions[0], 8);
    for (int32_t t = 0; t < 21; t++) assert_int_equal(w.batch.positions[1 + t], SHIFT + t);
    assert_int_equal(w.batch.output_positions[1], 3);
    assert_int_equal(num_preemptions(&w), 0);
    world_collect(&w);
    world_collect(&w);
    world_schedule(&w);
    assert_int_equal(w.batch.num_tokens, 2);
    assert_int_equal(w.batch.positions[0] + w.batch.positions[1], 9 + SHIFT + 21);
    assert_int_equal(other->cache_namespace, 0);
    world_collect(&w);
    run_out(&w, 2, FINISH_LENGTH);
    world_close(&w);
}

/* A sequence whose last token is the first that namespace 0 has no room for is not computed again. */
static void test_the_last_token_may_lie_past_the_namespace(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, namespaces_config());
    world_add(&w, 0, 18, 1, 3);
    world_add(&w, 0, 20, 1, 1);
    run_out(&w, 2, FINISH_LENGTH);
    assert_int_equal(world_stats(&w).tokens, 20 + 20 - 16); /* of 16 cached tokens */
    world_close(&w);
}

/* A long prompt is in namespace 1 from its first chunk on, and finds the cached blocks of that namespace alone. */
static void test_a_prompt_of_the_second_namespace(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, namespaces_config());
    world_add(&w, 0, 20, 1, 1);
    run_out(&w, 1, FINISH_LENGTH);
    world_add(&w, 0, 100, 1, 2);
    world_schedule(&w);
    assert_int_equal(w.batch.num_tokens, 64);
    assert_int_equal(w.batch.num_samples, 0);
    assert_int_equal(w.batch.positions[0], SHIFT);
    assert_int_equal(w.batch.positions[63], SHIFT + 63);
    world_collect(&w);
    run_out(&w, 1, FINISH_LENGTH);
    assert_int_equal(world_stats(&w).prefix_hits, 0);
    world_add(&w, 0, 21, 1, 2);
    world_schedule(&w);
    assert_int_equal(world_stats(&w).prefix_hits, 16);
    assert_int_equal(w.batch.positions[0], SHIFT + 16);
    world_collect(&w);
    world_add(&w, 0, 19, 1, 2);
    world_schedule(&w);
    assert_int_equal(world_stats(&w).prefix_hits, 32);
    assert_int_equal(w.batch.positions[w.batch.num_tokens - 1], 18);
    world_collect(&w);
    run_out(&w, 2, FINISH_LENGTH);
    world_close(&w);
}

/* Answers of one request change their namespace together: those ahead wait, and the prompt is shared again after it. */
static void test_answers_change_their_namespace_together(void **state)
{
    (void)state;
    for (int caching = 0; caching < 2; caching++) {
        struct world w;
        struct scheduler_config config = namespaces_config();
        config.enable_prefix_caching = caching;
        config.limits.max_num_tokens = 2; /* of three answers, one falls behind */
        world_open(&w, config);
        struct request *request = world_add(&w, 0, 17, 3, 12);
        const struct sequence *seqs = request->sequences;
        while (seqs[0].num_tokens < 21) world_step(&w);
        assert_int_equal(seqs[1].num_tokens, 21);
        assert_true(seqs[2].num_tokens < 20);
        for (; seqs[2].num_tokens < 21; world_step(&w)) {
            assert_int_equal(seqs[0].num_tokens, 21);
            assert_int_equal(request->cache_namespace, 0);
        }
        world_step(&w);
        assert_int_equal(request->cache_namespace, 1);
        while (seqs[0].num_tokens < 25) world_step(&w);
        assert_int_equal(seqs[0].tables[0].blocks[1], seqs[2].tables[0].blocks[1]); /* the prompt's full blocks */
        assert_int_not_equal(seqs[0].tables[0].blocks[2], seqs[2].tables[0].blocks[2]);
        run_out(&w, 1, FINISH_LENGTH);
        world_close(&w);
    }
}

/* A request that is preempted while its first answer waits for the others at the end of namespace 0 starts again in
 * it. */
static void test_a_preemption_at_the_end_of_a_namespace(void **state)
{
    (void)state;
    struct world w;
    struct scheduler_config config = namespaces_config();
    config.preemption_mode = PREEMPTION_RECOMPUTE;
    config.limits.max_num_tokens = 2;
    config.enable_prefix_caching = false;
    world_open(&w, config);
    struct request *request = world_add(&w, 0, 17, 3, 12);
    while (request->sequences[0].num_tokens < 21) world_step(&w);
    scheduler_preempt(w.scheduler, &w.batch, request);
    assert_int_equal(request->cache_namespace, 0);
    world_step(&w);
    assert_int_equal(request->sequences[0].status, SEQUENCE_RUNNING);
    run_out(&w, 1, FINISH_LENGTH);
    world_close(&w);
}

/* Beams that were preempted at the end of namespace 0 start again in namespace 1, once they have the token past it. */
static void test_beams_that_are_chosen_past_their_namespace(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, namespaces_config());
    struct request *request = world_add_beams(&w, 20, 2, 10);
    world_step(&w);
    scheduler_preempt(w.scheduler, &w.batch, request);
    assert_int_equal(request->cache_namespace, 0);
    world_set_beams(&w, request, (struct beam[]){{0, 10}, {0, 11}});
    assert_int_equal(request->cache_namespace, 1);
    world_step(&w);
    assert_int_equal(w.batch.num_tokens, 20);
    scheduler_abort(w.scheduler, request);
    assert_ptr_equal(scheduler_next_finished(w.scheduler), request);
    request_destroy(request);
    world_close(&w);
}

static void test_the_invariants_of_namespaces(void **state)
{
    (void)state;
    struct world w;
    struct error err;
    world_open(&w, namespaces_config());
    struct request *request = world_add(&w, 0, 15, 1, 10);
    world_step(&w);
    request->cache_namespace = 1;
    assert_int_equal(scheduler_check(w.scheduler, &err), STATUS_INTERNAL);
    assert_non_null(strstr(err.text, "a sequence of 16 tokens, 15 computed, is in cache namespace 1"));
    request->cache_namespace = 0;
    while (request->cache_namespace == 0) world_step(&w);
    request->cache_namespace = 0;
    assert_int_equal(scheduler_check(w.scheduler, &err), STATUS_INTERNAL);
    assert_non_null(strstr(err.text, "a sequence of 22 tokens, 21 computed, is in cache namespace 0"));
    request->cache_namespace = 1;
    run_out(&w, 1, FINISH_LENGTH);
    world_close(&w);
}

/* ---- Anything at random ---- */

struct random {
    uint64_t state;
};

static uint32_t random_next(struct random *r)
{
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = r->state;
    x ^= x >> 33;
    x *= 0xFF51AFD7ED558CCDu;
    return (uint32_t)(x >> 32);
}

static int32_t random_in(struct random *r, int32_t low, int32_t high)
{
    return low + (int32_t)(random_next(r) % (uint32_t)(high - low + 1));
}

static bool chance(struct random *r, int32_t percent)
{
    return random_in(r, 1, 100) <= percent;
}

#define MAX_REQUESTS 40
#define STOP_WORD 13 /* the test's own stop string: this token, from the third output on */

/* What the test knows of a request. */
struct expectation {
    bool aborted, started;
    bool event[4];        /* of a beam: its sample was collected, and the next beams were not set yet */
    int32_t beam[4][200]; /* the tokens of each beam */
    int32_t beam_len[4];
};

struct trial {
    struct random random;
    struct world world;
    int32_t depth, num_requests, num_added, num_ended;
    int32_t base[3][64]; /* shared prefixes */
    struct request *live[MAX_REQUESTS];
    struct expectation expectations[MAX_REQUESTS];
    uint64_t newest_started;
};

struct totals {
    int64_t steps, preemptions, hits, evictions, copies, collect_first, errors, aborts, stops, lengths;
    int64_t swapped_out, swapped_in, swapped_aborts, namespace_changes, beams, windows;
};

/* Mostly few blocks: enough for a handful of sequences of the largest length. */
static struct scheduler_config random_config(struct random *r)
{
    int32_t block_size = 8 << random_in(r, 0, 2), max_model_len = random_in(r, 40, 160);
    int32_t num_blocks = random_in(r, 1, 6) * ((max_model_len + block_size - 1) / block_size) + random_in(r, 0, 5);
    int32_t num_groups = chance(r, 50) ? 1 : random_in(r, 1, 4);
    num_blocks *= num_groups;
    if (chance(r, 10)) num_blocks = random_in(r, 100, 300);
    struct scheduler_config c =
        config_of(num_blocks, block_size, (1 << random_in(r, 0, 8)) + random_in(r, 0, 20), random_in(r, 1, 12));
    c.limits.num_groups = num_groups;
    for (int32_t g = 0; g < num_groups; g++)
        c.limits.windows[g] = chance(r, num_groups > 1 ? 50 : 20) ? random_in(r, 1, 50) : 0;
    for (int32_t g = 0; g < num_groups && num_groups > 1; g++)
        c.limits.block_shifts[g] = chance(r, 50) ? 0 : random_in(r, 0, 2);
    c.limits.max_model_len = max_model_len;
    c.policy = chance(r, 30) ? SCHEDULING_PRIORITY : SCHEDULING_FCFS;
    c.num_host_blocks = chance(r, 80) ? random_in(r, 1, 3 * num_blocks) : 0;
    c.preemption_mode = chance(r, 20) ? PREEMPTION_RECOMPUTE : chance(r, 50) ? PREEMPTION_SWAP : PREEMPTION_AUTO;
    c.enable_prefix_caching = chance(r, 60);
    c.enable_chunked_prefill = chance(r, 80);
    c.first_namespace_len = chance(r, 40) ? random_in(r, 1, max_model_len - 1) : 0;
    c.namespace_position_shift = max_model_len + 1;
    if (!c.enable_chunked_prefill && c.limits.max_num_tokens < max_model_len) c.limits.max_num_tokens = max_model_len;
    return c;
}

static struct request *random_request(struct trial *t)
{
    struct random *r = &t->random;
    const struct batch_limits *limits = &t->world.config.limits;
    struct sampling_params params = sampling_params_default();
    struct request *request;
    struct error err;
    int32_t prompt[160], base = random_in(r, 0, 2), shared = random_in(r, 0, 64);
    int32_t length = random_in(r, 1, chance(r, 20) ? limits->max_model_len : limits->max_model_len / 2);
    for (int32_t i = 0; i < length; i++)
        prompt[i] = i < shared && i < 64 ? t->base[base][i] : random_in(r, 0, VOCAB - 1);
    params.n = chance(r, limits->max_num_seqs > 4 ? 40 : 80) ? 1 : random_in(r, 1, 4);
    params.max_tokens = chance(r, 20) ? -1 : random_in(r, 1, 60);
    params.min_tokens = params.max_tokens > 0 && chance(r, 30) ? random_in(r, 0, params.max_tokens) : 0;
    params.ignore_eos = chance(r, 60);
    params.seed = random_next(r) % 3;
    params.num_stop_token_ids = chance(r, 20) ? 2 : 0;
    params.stop_token_ids = (int32_t[]){5, 9};
    assert_int_equal(request_create(&params, prompt, length, limits, &request, &err), STATUS_OK);
    request->eos_token_ids[0] = EOS;
    request->num_eos = 1;
    request->beams = params.n > 1 ? chance(r, 50) : chance(r, 5);
    request->priority = random_in(r, 0, 3);
    request->id = chance(r, 10); /* 1: it has a salt, which it gives back with its end */
    request->cache_salt = request->id ? cache_salt_create("another salt") : NULL;
    return request;
}

static bool uses_stop_word(const struct request *request)
{
    return request->params.seed == 1;
}

/* Stands for the engine's search for stop strings. */
static bool stop_word_found(const struct sequence *seq)
{
    return uses_stop_word(seq->request) && seq->num_tokens - seq->prompt_len >= 3 &&
           seq->tokens[seq->num_tokens - 1] == STOP_WORD;
}

/* The tokens that the sequence must have, computed on a plain array. Returns their number. */
static int32_t true_tokens(const struct sequence *seq, const struct batch_limits *limits, int32_t *tokens,
                           enum finish_reason *reason)
{
    const struct request *request = seq->request;
    struct true_sequence truth;
    const struct sampling_params *p = &request->params;
    int32_t n = seq->prompt_len;
    memcpy(tokens, seq->tokens, (size_t)n * sizeof *tokens);
    world_true_sequence(&truth, seq, tokens, n);
    for (;;) {
        const int32_t token = true_sequence_token(&truth, n);
        const int32_t output = n + 1 - seq->prompt_len;
        tokens[n++] = token;
        bool stop = token == EOS && !p->ignore_eos;
        for (int32_t i = 0; i < p->num_stop_token_ids; i++) stop = stop || token == p->stop_token_ids[i];
        *reason = FINISH_STOP;
        if (stop && output >= p->min_tokens) return n;
        *reason = FINISH_LENGTH;
        if (output == p->max_tokens || n >= limits->max_model_len) return n;
        *reason = FINISH_STOP;
        if (uses_stop_word(request) && output >= 3 && token == STOP_WORD) return n;
    }
}

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* A request may fail only if the pool could not hold it alone. */
static void check_error(const struct trial *t, const struct request *request)
{
    const struct scheduler_config *c = &t->world.config;
    const int32_t prompt_len = request->sequences[0].prompt_len;
    int32_t needed = 0;
    assert_true(strlen(request->error->text) > 20);
    for (int32_t g = 0; g < c->limits.num_groups; g++) {
        const int32_t shared = prompt_len / batch_block_size(&c->limits, g);
        needed += smaller(shared, batch_group_blocks(&c->limits, g, prompt_len));
        for (int32_t i = 0; i < request->num_sequences; i++) {
            const struct sequence *seq = &request->sequences[i];
            const int32_t most = batch_group_blocks(&c->limits, g, seq->num_tokens);
            if (seq->finish_reason == FINISH_ERROR)
                needed += smaller(batch_num_blocks(&c->limits, g, seq->num_tokens) - shared, most);
        }
    }
    bool never = batch_sequence_blocks(&c->limits, prompt_len) > c->num_blocks - c->num_blocks / 100;
    assert_true(never || needed > c->num_blocks || request->num_sequences > c->limits.max_num_seqs);
}

/* The tokens of a beam are those that the test chose. */
static void check_beam(struct trial *t, const struct sequence *seq, struct totals *totals)
{
    const struct expectation *expected = seq->request->user;
    assert_int_equal(seq->num_tokens, expected->beam_len[seq->index]);
    assert_memory_equal(seq->tokens, expected->beam[seq->index], (size_t)seq->num_tokens * sizeof *seq->tokens);
    if (seq->finish_reason == FINISH_ABORT) assert_true(expected->aborted);
    if (seq->finish_reason == FINISH_ERROR) check_error(t, seq->request);
    totals->aborts += seq->finish_reason == FINISH_ABORT;
    totals->errors += seq->finish_reason == FINISH_ERROR;
    totals->lengths += seq->finish_reason == FINISH_LENGTH;
}

static void check_request(struct trial *t, struct request *request, struct totals *totals)
{
    const struct expectation *expected = request->user;
    int32_t tokens[200];
    for (int32_t i = 0; i < request->num_sequences; i++) {
        const struct sequence *seq = &request->sequences[i];
        enum finish_reason reason;
        assert_int_equal(seq->tables[0].num_blocks, 0);
        assert_int_equal(seq->state_index, -1);
        if (request->beams) {
            check_beam(t, seq, totals);
            continue;
        }
        int32_t length = true_tokens(seq, &t->world.config.limits, tokens, &reason);
        assert_in_range(seq->num_tokens, seq->prompt_len, length);
        assert_memory_equal(seq->tokens, tokens, (size_t)seq->num_tokens * sizeof *tokens);
        const int32_t most = t->world.config.first_namespace_len;
        totals->namespace_changes += most > 0 && seq->prompt_len <= most && seq->num_tokens > most + 1;
        switch (seq->finish_reason) {
        case FINISH_ABORT:
            assert_true(expected->aborted);
            totals->aborts++;
            break;
        case FINISH_ERROR:
            check_error(t, request);
            totals->errors++;
            break;
        default:
            assert_int_equal(seq->finish_reason, reason);
            assert_int_equal(seq->num_tokens, length);
            *(reason == FINISH_STOP ? &totals->stops : &totals->lengths) += 1;
        }
    }
}

static void trial_add(struct trial *t)
{
    struct request *request = random_request(t);
    struct expectation *expected = &t->expectations[t->num_added];
    *expected = (struct expectation){0};
    for (int32_t i = 0; i < request->num_sequences; i++) {
        const struct sequence *seq = &request->sequences[i];
        expected->beam_len[i] = seq->num_tokens;
        memcpy(expected->beam[i], seq->tokens, (size_t)seq->num_tokens * sizeof *seq->tokens);
    }
    request->user = expected;
    t->live[t->num_added++] = request;
    scheduler_add(t->world.scheduler, request);
}

static void trial_abort(struct trial *t, struct totals *totals)
{
    struct request *request = t->live[random_in(&t->random, 0, t->num_added - 1)];
    if (!request) return;
    struct expectation *expected = request->user;
    expected->aborted = true;
    for (int32_t i = 0; i < request->num_sequences; i++)
        totals->swapped_aborts += request->sequences[i].status == SEQUENCE_SWAPPED;
    if (chance(&t->random, 50))
        scheduler_abort(t->world.scheduler, request);
    else
        scheduler_finish(t->world.scheduler, &request->sequences[random_in(&t->random, 0, request->num_sequences - 1)],
                         FINISH_ABORT);
}

/* Requests start by rank: none is still waiting, or with priorities swapped, that comes before one that starts. */
static void check_starts(struct trial *t)
{
    const struct scheduler *s = t->world.scheduler;
    const bool priorities = s->config.policy == SCHEDULING_PRIORITY;
    for (int32_t i = 0; i < t->world.schedule.num_admitted; i++) {
        const struct request *request = t->world.schedule.admitted[i]->request;
        struct expectation *expected = request->user;
        if (expected->started) continue;
        expected->started = true;
        for (int32_t j = 0; j < t->num_added; j++)
            if (t->live[j] && (t->live[j]->queue == &s->waiting || (priorities && t->live[j]->queue == &s->swapped)))
                assert_true(request_precedes(request, t->live[j]));
        if (priorities) continue;
        assert_true(request->arrival >= t->newest_started);
        t->newest_started = request->arrival;
    }
}

/* With fcfs, while a request is swapped, no waiting request is admitted. A step that preempts swaps nothing in, unless
 * the request that it made room for has failed. */
static void check_swaps(struct trial *t, const struct scheduler_stats *before)
{
    struct scheduler_stats after = world_stats(&t->world);
    const bool fcfs = t->world.config.policy == SCHEDULING_FCFS;
    if (fcfs && after.num_swapped > 0) assert_true(after.num_waiting >= before->num_waiting);
    bool failed = false;
    for (int32_t i = 0; i < t->num_added; i++) failed = failed || (t->live[i] && t->live[i]->error);
    const int64_t preempted = after.preemptions_recompute + after.preemptions_swap;
    if (preempted > before->preemptions_recompute + before->preemptions_swap && !failed)
        assert_int_equal(t->world.batch.num_swap_in, 0);
    if (fcfs && before->num_swapped > 0 && after.num_waiting < before->num_waiting)
        assert_int_equal(after.num_swapped, 0);
}

/* Whether the caller is to say how its beams go on. */
static bool all_beams_have_events(const struct request *request)
{
    const struct expectation *expected = request->user;
    for (int32_t i = 0; i < request->num_sequences; i++)
        if (request->sequences[i].status != SEQUENCE_FINISHED && !expected->event[i]) return false;
    return !request_finished(request);
}

static void trial_schedule(struct trial *t)
{
    struct world *w = &t->world;
    struct scheduler_stats before = world_stats(w);
    enum schedule_result result = world_schedule(w);
    check_starts(t);
    check_swaps(t, &before);
    if (result == SCHEDULE_COLLECT_FIRST) assert_true(scheduler_in_flight(w->scheduler) > 0);
    if (result == SCHEDULE_EMPTY && scheduler_in_flight(w->scheduler) == 0) { /* then nothing is left behind */
        for (int32_t i = 0; i < t->num_added; i++)
            if (t->live[i] && t->live[i]->beams && all_beams_have_events(t->live[i])) return;
        assert_int_equal(world_stats(w).num_running, 0);
        assert_int_equal(world_stats(w).num_waiting, 0);
        assert_int_equal(world_stats(w).num_swapped, 0);
        assert_int_equal(world_stats(w).blocks_in_use, 0);
    }
}

/* The sample is of the beam's own tokens. */
static void note_beam(const struct token_event *event)
{
    const struct sequence *seq = event->seq;
    struct expectation *expected = seq->request->user;
    const int32_t *tokens = expected->beam[seq->index], length = expected->beam_len[seq->index];
    assert_int_equal(event->token, token_after(seq, tokens, length));
    assert_false(expected->event[seq->index]);
    expected->event[seq->index] = true;
}

/* Each beam goes on from any beam with any token; those that are long enough end, and others now and then. */
static void set_random_beams(struct trial *t, struct request *request)
{
    struct expectation *expected = request->user, old = *expected;
    struct beam beams[4] = {{0}};
    for (int32_t i = 0; i < request->num_sequences; i++) {
        if (request->sequences[i].status == SEQUENCE_FINISHED) continue;
        do beams[i].parent = random_in(&t->random, 0, request->num_sequences - 1);
        while (request->sequences[beams[i].parent].status == SEQUENCE_FINISHED);
        beams[i].token = random_in(&t->random, 0, VOCAB - 1);
        expected->event[i] = false;
        expected->beam_len[i] = old.beam_len[beams[i].parent];
        memcpy(expected->beam[i], old.beam[beams[i].parent], sizeof old.beam[0]);
        expected->beam[i][expected->beam_len[i]++] = beams[i].token;
    }
    world_set_beams(&t->world, request, beams);
    for (int32_t i = 0; i < request->num_sequences; i++) {
        struct sequence *seq = &request->sequences[i];
        if (seq->num_tokens >= seq->token_capacity || chance(&t->random, 1))
            scheduler_finish(t->world.scheduler, seq, FINISH_LENGTH);
    }
}

/* Mostly at once, as an engine does. */
static void trial_set_beams(struct trial *t, struct totals *totals)
{
    for (int32_t i = 0; i < t->num_added; i++) {
        struct request *request = t->live[i];
        if (!request || !request->beams || !all_beams_have_events(request) || !chance(&t->random, 80)) continue;
        set_random_beams(t, request);
        totals->beams++;
    }
}

static void trial_collect(struct trial *t)
{
    struct world *w = &t->world;
    world_collect(w);
    for (int32_t i = 0; i < w->num_events; i++) {
        struct sequence *seq = w->events[i].seq;
        if (seq->request->beams) {
            note_beam(&w->events[i]);
            continue;
        }
        assert_int_equal(seq->tokens[seq->num_tokens - 1], w->events[i].token);
        if (stop_word_found(seq)) scheduler_finish(w->scheduler, seq, FINISH_STOP);
    }
}

static void trial_take_ended(struct trial *t, struct totals *totals)
{
    for (struct request *request; (request = scheduler_next_finished(t->world.scheduler)); t->num_ended++) {
        for (int32_t i = 0; i < t->num_added; i++)
            if (t->live[i] == request) t->live[i] = NULL;
        check_request(t, request, totals);
        request_destroy(request);
    }
}

static void add_totals(const struct world *w, struct totals *totals)
{
    struct scheduler_stats stats = world_stats(w);
    assert_int_equal(stats.blocks_in_use, 0);
    assert_int_equal(stats.host_blocks_in_use, 0);
    totals->swapped_out += stats.blocks_swapped_out;
    totals->swapped_in += stats.blocks_swapped_in;
    totals->steps += stats.steps;
    totals->preemptions += (stats.preemptions_recompute + stats.preemptions_swap);
    totals->hits += stats.prefix_hits;
    totals->evictions += stats.evictions;
    totals->copies += w->copies;
    totals->collect_first += w->collect_first;
}

static void run_trial(uint64_t seed, struct totals *totals)
{
    struct trial *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->random.state = seed * 0x9E3779B97F4A7C15u;
    struct scheduler_config config = random_config(&t->random);
    world_open(&t->world, config);
    t->depth = random_in(&t->random, 1, 2);
    t->num_requests = random_in(&t->random, 1, MAX_REQUESTS);
    for (int32_t i = 0; i < 3 * 64; i++) t->base[i / 64][i % 64] = random_in(&t->random, 0, VOCAB - 1);
    int32_t haste = random_in(&t->random, 2, 60), aborts = chance(&t->random, 50) ? random_in(&t->random, 1, 4) : 0;

    for (int64_t turn = 0; t->num_ended < t->num_requests; turn++) {
        assert_true(turn < 200000); /* nothing starves */
        if (t->num_added < t->num_requests && chance(&t->random, haste)) trial_add(t);
        if (t->num_added > 0 && chance(&t->random, aborts)) trial_abort(t, totals);
        if (scheduler_in_flight(t->world.scheduler) < t->depth && chance(&t->random, 80)) trial_schedule(t);
        if (scheduler_in_flight(t->world.scheduler) > 0 && chance(&t->random, 60)) trial_collect(t);
        trial_set_beams(t, totals);
        trial_take_ended(t, totals);
    }
    while (scheduler_in_flight(t->world.scheduler) > 0) trial_collect(t);
    assert_false(scheduler_has_work(t->world.scheduler));
    add_totals(&t->world, totals);
    for (int32_t g = 0; g < config.limits.num_groups; g++) totals->windows += config.limits.windows[g] > 0;
    world_close(&t->world);
    free(t);
}

static void test_random_work_gives_the_true_tokens(void **state)
{
    (void)state;
    struct totals totals = {0};
    const char *first = getenv("QUIRE_TEST_SEED"), *count = getenv("QUIRE_TEST_COUNT"); /* for long runs */
    const uint64_t start = first ? strtoull(first, NULL, 10) : 1,
                   end = start + (count ? strtoull(count, NULL, 10) : 2000);
    for (uint64_t seed = start; seed < end; seed++) run_trial(seed, &totals);
    if (first) return;
    print_message("%lld blocks swapped out, %lld in, %lld sequences ended while they were swapped, %lld changed "
                  "their namespace\n",
                  (long long)totals.swapped_out, (long long)totals.swapped_in, (long long)totals.swapped_aborts,
                  (long long)totals.namespace_changes);
    print_message("%lld groups with windows, beams set %lld times\n", (long long)totals.windows,
                  (long long)totals.beams);
    print_message("%lld steps, %lld preemptions, %lld tokens hit, %lld evictions, %lld copies, %lld times collected "
                  "first; sequences ended: %lld stop, %lld length, %lld abort, %lld error\n",
                  (long long)totals.steps, (long long)totals.preemptions, (long long)totals.hits,
                  (long long)totals.evictions, (long long)totals.copies, (long long)totals.collect_first,
                  (long long)totals.stops, (long long)totals.lengths, (long long)totals.aborts,
                  (long long)totals.errors);
    assert_true(totals.steps > 5000);
    assert_true(totals.preemptions > 100 && totals.hits > 1000 && totals.evictions > 100 && totals.copies > 100);
    assert_true(totals.swapped_out > totals.swapped_in && totals.swapped_in > 1000 && totals.swapped_aborts > 10);
    assert_true(totals.namespace_changes > 1000 && totals.beams > 1000 && totals.windows > 1000);
    assert_true(totals.collect_first > 10 && totals.errors > 10 && totals.aborts > 10);
    assert_true(totals.stops > 100 && totals.lengths > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decodes_come_before_chunks),
        cmocka_unit_test(test_a_place_is_taken_in_the_next_step),
        cmocka_unit_test(test_without_chunks_a_prompt_waits_for_a_whole_step),
        cmocka_unit_test(test_64_prompts_share_500_tokens_in_one_step),
        cmocka_unit_test(test_n_answers_share_the_prompt_and_then_copy),
        cmocka_unit_test(test_more_answers_than_max_num_seqs),
        cmocka_unit_test(test_the_others_go_on_when_the_first_ends_early),
        cmocka_unit_test(test_a_prompt_that_never_fits),
        cmocka_unit_test(test_a_lone_request_that_outgrows_the_cache),
        cmocka_unit_test(test_the_youngest_is_preempted),
        cmocka_unit_test(test_preemption_waits_for_the_step_in_flight),
        cmocka_unit_test(test_a_forked_request_comes_back_sharing),
        cmocka_unit_test(test_a_shared_block_is_swapped_once_and_stays_shared),
        cmocka_unit_test(test_blocks_that_come_back_can_be_found),
        cmocka_unit_test(test_who_is_swapped),
        cmocka_unit_test(test_one_answer_that_is_left_is_computed_again),
        cmocka_unit_test(test_a_prompt_that_others_wait_for_is_computed_again),
        cmocka_unit_test(test_no_host_block_is_left),
        cmocka_unit_test(test_host_blocks_are_taken_as_needed_and_may_fail),
        cmocka_unit_test(test_no_host_blocks_are_made_for_what_never_fits),
        cmocka_unit_test(test_a_swapped_request_that_can_never_come_back),
        cmocka_unit_test(test_the_end_of_a_swapped_request),
        cmocka_unit_test(test_blocks_are_free_while_a_step_is_in_flight),
        cmocka_unit_test(test_a_known_end_is_not_scheduled_again),
        cmocka_unit_test(test_stop_tokens_and_min_tokens),
        cmocka_unit_test(test_a_prompt_as_long_as_the_model_gets_one_token),
        cmocka_unit_test(test_reset_of_the_prefix_cache),
        cmocka_unit_test(test_prompts_of_a_wrong_length),
        cmocka_unit_test(test_a_known_end_gives_its_place_to_the_very_next_step),
        cmocka_unit_test(test_a_forked_request_is_computed_again_as_it_was),
        cmocka_unit_test(test_a_kept_answer_is_forgotten),
        cmocka_unit_test(test_beams_fork_and_end_at_any_step),
        cmocka_unit_test(test_beams_that_are_preempted_before_they_are_set),
        cmocka_unit_test(test_an_urgent_request_does_not_wait_for_a_swapped_one),
        cmocka_unit_test(test_the_order_in_which_requests_start),
        cmocka_unit_test(test_a_large_request_is_not_overtaken),
        cmocka_unit_test(test_many_requests_wait_and_are_aborted),
        cmocka_unit_test(test_the_victim_has_got_on),
        cmocka_unit_test(test_thrashing_is_bounded_and_reported),
        cmocka_unit_test(test_a_sequence_holds_the_blocks_of_its_window),
        cmocka_unit_test(test_a_long_prompt_through_a_short_window),
        cmocka_unit_test(test_a_sequence_without_a_token_ends),
        cmocka_unit_test(test_an_inconsistency_stops_the_step),
        cmocka_unit_test(test_an_inconsistency_stops_a_fork),
        cmocka_unit_test(test_an_inconsistency_stops_a_swap),
        cmocka_unit_test(test_an_inconsistency_that_only_the_invariants_show),
        cmocka_unit_test(test_a_sequence_that_outgrows_its_namespace_starts_again),
        cmocka_unit_test(test_the_last_token_may_lie_past_the_namespace),
        cmocka_unit_test(test_a_prompt_of_the_second_namespace),
        cmocka_unit_test(test_answers_change_their_namespace_together),
        cmocka_unit_test(test_a_preemption_at_the_end_of_a_namespace),
        cmocka_unit_test(test_beams_that_are_chosen_past_their_namespace),
        cmocka_unit_test(test_the_invariants_of_namespaces),
        cmocka_unit_test(test_random_work_gives_the_true_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
