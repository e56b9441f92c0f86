/* The scheduler with several batches: sequences are dealt to steps that are in flight together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/scheduler_world.h"

static struct scheduler_config config_of(int32_t num_batches, int32_t num_blocks, int32_t max_num_tokens,
                                         int32_t max_num_seqs)
{
    return (struct scheduler_config){.limits = {.max_num_tokens = max_num_tokens,
                                                .max_num_seqs = max_num_seqs,
                                                .max_model_len = 64,
                                                .block_size = 8,
                                                .num_groups = 1},
                                     .num_blocks = num_blocks,
                                     .num_batches = num_batches,
                                     .enable_prefix_caching = true,
                                     .enable_chunked_prefill = true,
                                     .check_invariants = true};
}

static void add(struct world *w, int32_t count, int32_t length, int32_t max_tokens)
{
    const struct sampling_params params = world_params(1, max_tokens);
    for (int32_t i = 0; i < count; i++) world_add_counted(w, &params, i, length);
}

/* The output is what is drawn on a plain array. */
static void assert_true_tokens(const struct request *request)
{
    const struct sequence *seq = &request->sequences[0];
    struct true_sequence truth;
    world_true_sequence(&truth, seq, seq->tokens, seq->prompt_len);
    assert_int_equal(seq->finish_reason, FINISH_LENGTH);
    assert_int_equal(seq->num_tokens, seq->token_capacity);
    for (int32_t i = seq->prompt_len; i < seq->num_tokens; i++)
        assert_int_equal(seq->tokens[i], true_sequence_token(&truth, i));
}

static void take_ended(struct world *w, int32_t *count)
{
    for (struct request *r; (r = scheduler_next_finished(w->scheduler)); ++*count) {
        assert_true_tokens(r);
        request_destroy(r);
    }
}

/* As the engine does: as many steps in flight as there may be. */
static void run_out(struct world *w, int32_t count)
{
    int32_t ended = 0;
    for (int step = 0; scheduler_has_work(w->scheduler) && step < 10000; step++) {
        if (scheduler_in_flight(w->scheduler) == w->config.num_batches || world_schedule(w) != SCHEDULE_BATCH)
            world_collect(w);
        take_ended(w, &ended);
    }
    assert_int_equal(ended, count);
    assert_int_equal(world_stats(w).blocks_in_use, 0);
    world_free(w);
}

/* Two of eight are in each of four steps, and no step can be scheduled until one of these is collected. */
static void test_sequences_are_dealt(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, config_of(4, 100, 64, 8));
    add(&w, 8, 5, 12);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
        assert_int_equal(w.batch.num_seqs, 2);
    }
    assert_int_equal(world_schedule(&w), SCHEDULE_COLLECT_FIRST);
    for (int i = 0; i < 20; i++) {
        world_collect(&w);
        assert_int_equal(scheduler_in_flight(w.scheduler), 3);
        assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
        assert_int_equal(w.batch.num_seqs, 2);
        assert_int_equal(w.batch.num_decodes, 2);
    }
    run_out(&w, 8);
}

/* A lone sequence is in one step at a time. */
static void test_a_sequence_waits_for_its_token(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, config_of(2, 100, 64, 8));
    add(&w, 1, 5, 3);
    assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
    assert_int_equal(world_schedule(&w), SCHEDULE_EMPTY);
    world_collect(&w);
    assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
    assert_true(w.batch.token_ids[0] >= 0);
    assert_int_equal(world_schedule(&w), SCHEDULE_EMPTY);
    world_collect(&w);
    run_out(&w, 1);
}

/* Its next chunk needs no token of the one before. */
static void test_a_prompt_goes_on_in_flight(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, config_of(3, 100, 16, 8));
    add(&w, 1, 40, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
        assert_int_equal(w.batch.num_tokens, i < 2 ? 16 : 8);
        assert_int_equal(w.batch.num_samples, i == 2);
    }
    for (int i = 0; i < 2; i++) {
        world_collect(&w);
        assert_int_equal(world_schedule(&w), SCHEDULE_EMPTY);
    }
    world_collect(&w);
    run_out(&w, 1);
}

/* Where one sequence of a step has ended, the step gets another of a step that has more. */
static void test_steps_become_alike_again(void **state)
{
    (void)state;
    struct world w;
    struct sampling_params params;
    int32_t ended = 0;
    world_open(&w, config_of(2, 100, 64, 8));
    for (int32_t i = 0; i < 6; i++) { /* two of the first step are short */
        params = world_params(1, i < 2 ? 2 : 20);
        world_add_counted(&w, &params, i, 5);
    }
    for (int i = 0; i < 8; i++) {
        if (scheduler_in_flight(w.scheduler) == 2) world_collect(&w);
        take_ended(&w, &ended);
        assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
    }
    assert_int_equal(ended, 2);
    for (int i = 0; i < 4; i++) {
        world_collect(&w);
        assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
        assert_int_equal(w.batch.num_seqs, 2);
    }
    run_out(&w, 4);
}

/* What waits for blocks has no place in a step. */
static void test_waiting_requests_take_no_places(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, config_of(2, 8, 64, 8));
    add(&w, 8, 15, 6); /* four of them fit */
    assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
    assert_int_equal(w.batch.num_seqs, 4);
    assert_int_equal(world_schedule(&w), SCHEDULE_EMPTY);
    world_collect(&w);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
        assert_int_equal(w.batch.num_seqs, 2);
    }
    run_out(&w, 8);
}

/* All steps are collected first; and then one goes, though a step alone would have room. */
static void test_preemption(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, config_of(2, 4, 64, 4));
    add(&w, 2, 15, 16); /* two blocks each, and then three */
    for (int i = 0; i < 2; i++) assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
    enum schedule_result result = SCHEDULE_BATCH;
    while (result == SCHEDULE_BATCH) {
        world_collect(&w);
        result = world_schedule(&w);
    }
    assert_int_equal(result, SCHEDULE_COLLECT_FIRST);
    assert_int_equal(scheduler_in_flight(w.scheduler), 1);
    assert_int_equal(world_stats(&w).preemptions_recompute, 0);
    world_collect(&w);
    assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
    assert_int_equal(world_stats(&w).preemptions_recompute, 1);
    world_collect(&w);
    run_out(&w, 2);
}

static void test_numbers_of_batches(void **state)
{
    (void)state;
    struct scheduler *s;
    struct error err;
    const struct scheduler_config config = config_of(SCHEDULER_MAX_STEPS + 1, 100, 64, 8);
    assert_int_equal(scheduler_create(&config, &s, &err), STATUS_INVALID);
    assert_string_equal(err.text, "9 batches in flight; there may be 1 to 8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sequences_are_dealt),
        cmocka_unit_test(test_a_sequence_waits_for_its_token),
        cmocka_unit_test(test_a_prompt_goes_on_in_flight),
        cmocka_unit_test(test_steps_become_alike_again),
        cmocka_unit_test(test_waiting_requests_take_no_places),
        cmocka_unit_test(test_preemption),
        cmocka_unit_test(test_numbers_of_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
