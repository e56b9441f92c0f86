/* State slots and snapshots in the scheduler: what prompts with a common beginning, chats and answers compute, on a
 * device that notes which tokens each state has seen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "scheduler/scheduler_state.h"
#include "scheduler/state_swap.h"
#include "tests/support/scheduler_world.h"

#define BLOCK 16
#define MAX_LENGTH 1024

static struct scheduler_config config_of(int32_t max_num_seqs, int32_t spare_slots)
{
    struct scheduler_config config = {
        .limits = {.max_num_tokens = 512,
                   .max_num_seqs = max_num_seqs,
                   .max_model_len = MAX_LENGTH,
                   .block_size = BLOCK,
                   .num_groups = 1},
        .num_blocks = 4000,
        .enable_prefix_caching = true,
        .enable_chunked_prefill = true,
        .check_invariants = true,
    };
    config.limits.num_state_slots = state_pool_min_slots(&config.limits) + spare_slots;
    return config;
}

/* No state is held at the end, but by snapshots. */
static void close_world(struct world *w)
{
    struct error err;
    assert_int_equal(world_schedule(w), SCHEDULE_EMPTY); /* what the last step read is free */
    if (scheduler_check(w->scheduler, &err) != STATUS_OK) fail_msg("%s", err.text);
    assert_int_equal(world_stats(w).state_slots_in_use, 0);
    assert_int_equal(world_stats(w).blocks_in_use, 0);
    world_free(w);
}

static struct request *add(struct world *w, const int32_t *prompt, int32_t length, int32_t n, int32_t max_tokens)
{
    const struct sampling_params params = world_params(n, max_tokens);
    return world_add_prompt(w, &params, prompt, length);
}

/* Computes a step, or collects one: so many are in flight at most. */
static void go_on(struct world *w, int32_t depth)
{
    if (scheduler_in_flight(w->scheduler) < depth && world_schedule(w) == SCHEDULE_BATCH) return;
    assert_true(scheduler_in_flight(w->scheduler) > 0);
    world_collect(w);
}

/* The tokens of an answer are those that are drawn alone. */
static void assert_true_tokens(const struct sequence *seq)
{
    struct true_sequence truth;
    world_true_sequence(&truth, seq, seq->tokens, seq->prompt_len);
    for (int32_t i = seq->prompt_len; i < seq->num_tokens; i++)
        assert_int_equal(seq->tokens[i], true_sequence_token(&truth, i));
}

static int32_t take_finished(struct world *w)
{
    int32_t count = 0;
    for (struct request *r; (r = scheduler_next_finished(w->scheduler)); count++) {
        for (int32_t i = 0; i < r->num_sequences; i++) assert_true_tokens(&r->sequences[i]);
        request_destroy(r);
    }
    return count;
}

/* Runs all requests to their ends with so many steps in flight. Returns how many tokens the steps computed. */
static int64_t run_out(struct world *w, int32_t depth)
{
    const int64_t before = world_stats(w).tokens;
    for (int32_t i = 0; scheduler_has_work(w->scheduler) && i < 10000; i++) {
        go_on(w, depth);
        take_finished(w);
    }
    assert_false(scheduler_has_work(w->scheduler));
    return world_stats(w).tokens - before;
}

/* Tokens of the text of this number. */
static void fill(int32_t *tokens, int32_t count, int32_t text)
{
    for (int32_t i = 0; i < count; i++)
        tokens[i] = (int32_t)(random_mix((uint64_t)text * 100000 + (uint64_t)i) % TRUE_VOCAB);
}

/* ---- prompts with a common beginning ---- */

enum { COMMON = 300, OWN = 20, NUM_PROMPTS = 100 };

static void add_common_prompt(struct world *w, int32_t number)
{
    int32_t prompt[COMMON + OWN];
    fill(prompt, COMMON, 1);
    fill(prompt + COMMON, OWN, 100 + number);
    prompt[COMMON] = number % TRUE_VOCAB; /* at 300 = 18 blocks and 12 tokens they part, or soon after */
    prompt[COMMON + 1] = number / TRUE_VOCAB;
    add(w, prompt, COMMON + OWN, 1, 1);
}

/* Two prompts compute what all have in common, and each computes the rest, which is less than a block and its own. */
static void test_of_100_prompts_two_compute_what_is_common(void **state)
{
    (void)state;
    for (int32_t seqs = 4; seqs <= 128; seqs *= 32)
        for (int32_t depth = 1; depth <= 2; depth++)
            for (int32_t spare = 0; spare <= 50; spare += 50) {
                struct world w;
                world_open(&w, config_of(seqs, spare));
                for (int32_t i = 0; i < NUM_PROMPTS; i++) add_common_prompt(&w, i);
                const int64_t tokens = run_out(&w, depth), common = COMMON - COMMON % BLOCK;
                assert_int_equal(tokens, 2 * common + (int64_t)NUM_PROMPTS * (COMMON + OWN - common));
                assert_int_equal(world_stats(&w).snapshot_hits, NUM_PROMPTS - 2);
                close_world(&w);
            }
}

static void test_equal_prompts_are_computed_once(void **state)
{
    (void)state;
    struct world w;
    int32_t prompt[COMMON];
    fill(prompt, COMMON, 1);
    world_open(&w, config_of(64, 64));
    for (int32_t i = 0; i < NUM_PROMPTS; i++) add(&w, prompt, COMMON, 1, 1);
    assert_int_equal(run_out(&w, 2), COMMON + (NUM_PROMPTS - 1) * (COMMON % BLOCK));
    close_world(&w);
}

/* The second request, which computes what the first has computed, for all that come after it, is aborted: the third
 * takes its place. */
static void test_who_waits_for_an_aborted_request_goes_on(void **state)
{
    (void)state;
    struct world w;
    struct scheduler_config config = config_of(8, 8);
    config.limits.max_num_tokens = 64;
    world_open(&w, config);
    add_common_prompt(&w, 0);
    run_out(&w, 1);
    add_common_prompt(&w, 1);
    const struct sequence *second = &w.scheduler->waiting.head->sequences[0];
    for (int32_t i = 2; i < 5; i++) add_common_prompt(&w, i);
    for (int32_t i = 0; i < 3; i++) go_on(&w, 1);
    assert_int_equal(second->parting, COMMON - COMMON % BLOCK);
    assert_int_equal(w.scheduler->waiting.count, 3);
    const int32_t computed = second->num_computed; /* whole blocks: the third goes on from there */
    assert_in_range(computed, BLOCK, COMMON);
    scheduler_abort(w.scheduler, second->request);
    const int64_t rest = COMMON + OWN - (COMMON - COMMON % BLOCK);
    assert_int_equal(run_out(&w, 1), COMMON + OWN - computed + 2 * rest);
    close_world(&w);
}

/* ---- chats ---- */

/* Each turn begins with all that was said before. Returns the tokens that it computes beyond what is new. */
static int64_t take_turn(struct world *w, int32_t *text, int32_t *length, int32_t *known, int32_t depth)
{
    enum { QUESTION = 13, ANSWER = 20 };
    fill(text + *length, QUESTION, *length);
    *length += QUESTION;
    struct request *r = add(w, text, *length, 1, ANSWER);
    const int64_t before = world_stats(w).tokens;
    while (!request_finished(r)) go_on(w, depth);
    while (scheduler_in_flight(w->scheduler) > 0) world_collect(w);
    const struct sequence *seq = &r->sequences[0];
    assert_int_equal(seq->num_tokens, *length + ANSWER);
    for (int32_t i = *length; i < *length + ANSWER; i++) text[i] = seq->tokens[i];
    *length += ANSWER;
    assert_int_equal(take_finished(w), 1);
    const int64_t computed = world_stats(w).tokens - before - (*length - 1 - *known);
    *known = *length - 1; /* the last token of an answer is computed by nobody */
    return computed;
}

static void test_a_chat_computes_what_is_new_and_less_than_a_block(void **state)
{
    (void)state;
    for (int32_t depth = 1; depth <= 2; depth++)
        for (int32_t spare = 1; spare <= 8; spare += 7) {
            struct world w;
            int32_t text[MAX_LENGTH], length = 0, known = 0;
            world_open(&w, config_of(1, spare));
            for (int32_t turn = 0; turn < 20; turn++) {
                const int64_t again = take_turn(&w, text, &length, &known, depth);
                assert_in_range(again, 0, BLOCK - 1);
            }
            assert_int_equal(world_stats(&w).snapshot_hits, 19);
            close_world(&w);
        }
}

/* A template that drops what follows the conversation: the next prompt goes on from before the generation prompt. */
static void test_a_prompt_without_its_generation_prompt_is_found(void **state)
{
    (void)state;
    struct world w;
    int32_t prompt[400];
    fill(prompt, 400, 1);
    world_open(&w, config_of(2, 4));
    const struct sampling_params params = world_params(1, 5);
    struct request *r;
    struct error err;
    assert_int_equal(request_create(&params, prompt, 250, &w.config.limits, &r, &err), STATUS_OK);
    r->state_boundary = 203; /* 12 blocks, and 11 tokens; the last block before the prompt's end is the 15th */
    scheduler_add(w.scheduler, r);
    assert_int_equal(run_out(&w, 1), 250 + 4);
    assert_int_equal(world_stats(&w).snapshots, 2);
    fill(prompt + 203, 100, 2);
    add(&w, prompt, 303, 1, 1);
    assert_int_equal(run_out(&w, 1), 303 - 192);
    close_world(&w);
}

static void test_a_long_prompt_has_a_snapshot_every_interval(void **state)
{
    (void)state;
    struct world w;
    int32_t prompt[1000];
    fill(prompt, 1000, 1);
    struct scheduler_config config = config_of(2, 20);
    config.state_interval = 100; /* 7 blocks */
    world_open(&w, config);
    add(&w, prompt, 1000, 1, 1);
    run_out(&w, 1);
    assert_int_equal(world_stats(&w).snapshots, 1000 / 112 + 1); /* 992 is the last */
    fill(prompt + 600, 300, 2);
    add(&w, prompt, 900, 1, 1);
    assert_int_equal(run_out(&w, 1), 900 - 560);
    close_world(&w);
}

/* ---- answers ---- */

static void test_n_answers_go_on_from_one_state(void **state)
{
    (void)state;
    struct world w;
    int32_t prompt[40];
    fill(prompt, 40, 1);
    world_open(&w, config_of(4, 0));
    struct request *r = add(&w, prompt, 40, 4, 30);
    world_schedule(&w); /* to the boundary, 32 */
    assert_int_equal(w.batch.num_tokens, 32);
    assert_int_equal(w.batch.state_sources[0], STATE_SLOT_NONE);
    const int32_t first = w.batch.state_slots[0];
    world_collect(&w);
    world_schedule(&w); /* the snapshot is read, and another slot is written */
    assert_int_equal(w.batch.state_sources[0], first);
    const int32_t second = w.batch.state_slots[0];
    assert_int_not_equal(second, first);
    world_collect(&w);
    for (int32_t i = 0; i < 4; i++) assert_int_equal(r->sequences[i].state, second);
    world_schedule(&w); /* all read one slot, and each writes one of its own */
    for (int32_t i = 0; i < 4; i++) {
        assert_int_equal(w.batch.state_sources[i], second);
        assert_int_not_equal(w.batch.state_slots[i], second);
    }
    world_collect(&w);
    world_schedule(&w); /* in place */
    for (int32_t i = 0; i < 4; i++) assert_int_equal(w.batch.state_sources[i], w.batch.state_slots[i]);
    world_collect(&w);
    run_out(&w, 2);
    close_world(&w);
}

/* The token that ends the answer, at each place of a block, is seen one step late. What follows finds the last boundary
 * that is known whole. */
static void test_ends_with_two_steps_in_flight(void **state)
{
    (void)state;
    for (int32_t outputs = 1; outputs <= 2 * BLOCK + 1; outputs++)
        for (int32_t by_length = 0; by_length < 2; by_length++) {
            struct world w;
            int32_t text[MAX_LENGTH];
            fill(text, 37, 1);
            world_open(&w, config_of(2, 6));
            struct request *r = add(&w, text, 37, 1, by_length ? outputs : -1);
            struct sequence *seq = &r->sequences[0];
            while (!request_finished(r)) {
                go_on(&w, 2);
                if (seq->num_tokens == 37 + outputs) scheduler_finish(w.scheduler, seq, FINISH_STOP);
            }
            while (scheduler_in_flight(w.scheduler) > 0) world_collect(&w);
            for (int32_t i = 37; i < 37 + outputs; i++) text[i] = seq->tokens[i];
            take_finished(&w);
            fill(text + 37 + outputs, 20, 2);
            add(&w, text, 57 + outputs, 1, 1);
            /* By length, the last token is computed by nobody; otherwise by the step that is in flight at the end. */
            const int32_t computed = 37 + outputs - by_length, found = computed - computed % BLOCK;
            assert_int_equal(run_out(&w, 2), 57 + outputs - found);
            close_world(&w);
        }
}

/* The step that computes a boundary is cancelled: what was said up to the boundary before it is found. */
static void test_a_cancelled_step_leaves_the_boundary_before(void **state)
{
    (void)state;
    for (int32_t depth = 1; depth <= 2; depth++) {
        struct world w;
        int32_t text[100];
        fill(text, 37, 1);
        world_open(&w, config_of(2, 6));
        struct request *r = add(&w, text, 37, 1, -1);
        struct sequence *seq = &r->sequences[0];
        while (seq->num_computed < 64) go_on(&w, depth);
        scheduler_cancel(w.scheduler);
        slot_device_cancel(&w.device, &w.batch, 0);
        while (scheduler_in_flight(w.scheduler) > 0) world_collect(&w);
        memcpy(text, seq->tokens, (size_t)seq->num_tokens * sizeof *text);
        const int32_t known = seq->num_tokens;
        take_finished(&w);
        fill(text + known, 20, 2);
        add(&w, text, known + 20, 1, 1);
        assert_int_equal(run_out(&w, depth), known + 20 - 48);
        close_world(&w);
    }
}

/* Two requests, of which the second is preempted. */
static void run_to_preemption(struct world *w, int32_t num_host_slots, struct request **requests)
{
    struct scheduler_config config = config_of(2, 4);
    int32_t prompt[48];
    config.num_blocks = 12;
    config.limits.max_model_len = 180;
    config.preemption_mode = PREEMPTION_SWAP;
    config.num_host_blocks = 20;
    config.num_host_slots = num_host_slots;
    world_open(w, config);
    for (int32_t i = 0; i < 2; i++) {
        fill(prompt, 48, i);
        requests[i] = add(w, prompt, 40 + 8 * i, 1, 80); /* the second is inside a block when the first needs one */
    }
    while (world_stats(w).preemptions_recompute + world_stats(w).preemptions_swap == 0) go_on(w, 1);
}

/* A request that finds no host slot is recomputed, and goes on from the last boundary that it had passed. */
static void test_a_preempted_request_goes_on_from_a_snapshot(void **state)
{
    (void)state;
    struct world w;
    struct request *requests[2];
    run_to_preemption(&w, 0, requests);
    const int32_t computed = requests[1]->sequences[0].num_tokens - 1;
    assert_int_equal(world_stats(&w).preemptions_swap, 0);
    assert_true(computed > 60);
    scheduler_abort(w.scheduler, requests[0]);
    assert_int_equal(run_out(&w, 1), 127 - (computed - computed % BLOCK));
    assert_int_equal(world_stats(&w).snapshot_hits, 1);
    close_world(&w);
}

/* A swapped request takes its state along: nothing is computed again. Its last boundary stays, as a snapshot. */
static void test_a_swapped_request_goes_on_with_its_state(void **state)
{
    (void)state;
    for (int32_t abort = 0; abort < 2; abort++) {
        struct world w;
        struct request *requests[2];
        run_to_preemption(&w, 1, requests);
        const struct sequence *second = &requests[1]->sequences[0];
        assert_int_equal(world_stats(&w).preemptions_swap, 1);
        assert_int_equal(world_stats(&w).states_swapped_out, 1);
        assert_int_equal(second->status, SEQUENCE_SWAPPED);
        assert_true(second->state > w.config.limits.num_state_slots);
        assert_int_equal(second->boundary, 0);
        assert_int_equal(world_stats(&w).snapshots, 3); /* of both prompts, and of the second's last boundary */
        const int64_t computed = second->num_computed;
        scheduler_abort(w.scheduler, requests[abort]);
        const int64_t rest = run_out(&w, 1);
        if (!abort) assert_int_equal(rest, 48 + 79 - computed);
        assert_int_equal(world_stats(&w).states_swapped_in, !abort);
        assert_int_equal(world_stats(&w).snapshot_hits, 0);
        close_world(&w);
    }
}

/* Answers that go on from one state share it on the host, too, and write their own once they are back. */
static void test_swapped_answers_share_their_state(void **state)
{
    (void)state;
    struct world w;
    struct scheduler_config config = config_of(4, 0);
    int32_t prompt[40];
    fill(prompt, 40, 1);
    config.num_blocks = 40;
    config.num_host_blocks = config.num_host_slots = 20;
    world_open(&w, config);
    add(&w, prompt, 30, 1, 100);
    struct request *r = add(&w, prompt, 40, 3, 30);
    while (r->sequences[2].status != SEQUENCE_RUNNING) go_on(&w, 1);
    while (scheduler_in_flight(w.scheduler) > 0) world_collect(&w);
    assert_int_equal(state_swap_cost(r), 1);
    /* The second request is preempted as if blocks lacked. */
    struct error err;
    batch_clear(&w.batch);
    assert_int_equal(state_swap_out(&w.scheduler->blocks.states, r, &w.batch, &err), STATUS_INTERNAL);
    assert_string_equal(err.text, "a swapped state needs a slot, but all 0 are held");
    assert_int_equal(state_swap_grow(&w.scheduler->blocks.states, 1, &err), STATUS_OK);
    const int32_t before = r->sequences[0].state, host = config.limits.num_state_slots + 1;
    struct block_pool *slots = &w.scheduler->blocks.states.slots;
    assert_int_equal(block_pool_share(slots, before, 0, &err), STATUS_OK); /* another holder, who stays */
    assert_int_equal(state_swap_out(&w.scheduler->blocks.states, r, &w.batch, &err), STATUS_OK);
    assert_true(slots->blocks[before].ref_count == 1 && slots->blocks[before].note == 0);
    assert_int_equal(block_pool_release(slots, before, &err), STATUS_OK);
    assert_int_equal(w.batch.num_states_out, 1);
    assert_int_equal(w.batch.states_out[0].source, before);
    for (int32_t i = 0; i < 3; i++) assert_int_equal(r->sequences[i].state, host);
    assert_int_equal(w.scheduler->blocks.states.host.blocks[host].ref_count, 3);
    assert_int_equal(state_swap_in(&w.scheduler->blocks.states, r, &w.batch, &err), STATUS_OK);
    assert_int_equal(w.batch.num_states_in, 1);
    for (int32_t i = 0; i < 3; i++) assert_int_equal(r->sequences[i].state, w.batch.states_in[0].destination);
    w.device.state_slots[w.batch.states_in[0].destination] = w.device.state_slots[before];
    run_out(&w, 1);
    close_world(&w);
}

/* ---- configurations that are refused ---- */

static void test_too_few_slots_are_refused(void **state)
{
    (void)state;
    struct scheduler *s;
    struct error err;
    struct scheduler_config config = config_of(8, -1);
    assert_int_equal(scheduler_create(&config, &s, &err), STATUS_INVALID);
    assert_string_equal(err.text, "16 state slots; 8 sequences and 0 drafts need 17");
    config = config_of(8, 0);
    config.first_namespace_len = 100;
    assert_int_equal(scheduler_create(&config, &s, &err), STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_of_100_prompts_two_compute_what_is_common),
        cmocka_unit_test(test_equal_prompts_are_computed_once),
        cmocka_unit_test(test_who_waits_for_an_aborted_request_goes_on),
        cmocka_unit_test(test_a_chat_computes_what_is_new_and_less_than_a_block),
        cmocka_unit_test(test_a_prompt_without_its_generation_prompt_is_found),
        cmocka_unit_test(test_a_long_prompt_has_a_snapshot_every_interval),
        cmocka_unit_test(test_n_answers_go_on_from_one_state),
        cmocka_unit_test(test_ends_with_two_steps_in_flight),
        cmocka_unit_test(test_a_cancelled_step_leaves_the_boundary_before),
        cmocka_unit_test(test_a_preempted_request_goes_on_from_a_snapshot),
        cmocka_unit_test(test_a_swapped_request_goes_on_with_its_state),
        cmocka_unit_test(test_swapped_answers_share_their_state),
        cmocka_unit_test(test_too_few_slots_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
