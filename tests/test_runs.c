/* Runs of drafts in the scheduler: how a step lays them out, which drafts are accepted, and what becomes of the others.
 * The device of slots draws the tokens, so drafts can be made that are right up to a place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/scheduler_state.h"
#include "tests/support/scheduler_world.h"

enum { BLOCK = 4, EOS = 1, MAX_SEQS = 4 };

/* ---- a scheduler and its device ---- */

static struct scheduler_config config_of(int32_t num_blocks)
{
    return (struct scheduler_config){.limits = {.max_num_tokens = 40,
                                                .max_num_seqs = MAX_SEQS,
                                                .max_num_drafts = 16,
                                                .max_model_len = 64,
                                                .block_size = BLOCK,
                                                .num_groups = 1},
                                     .num_blocks = num_blocks,
                                     .enable_prefix_caching = true,
                                     .enable_chunked_prefill = true,
                                     .check_invariants = true};
}

static void world_close(struct world *w)
{
    for (struct request *r; (r = scheduler_next_finished(w->scheduler));) request_destroy(r);
    assert_false(scheduler_has_work(w->scheduler));
    assert_int_equal(world_stats(w).blocks_in_use, 0);
    world_free(w);
}

static struct request *add(struct world *w, int32_t first, int32_t length, int32_t max_tokens)
{
    const struct sampling_params params = world_params(1, max_tokens);
    return world_add_counted(w, &params, first, length);
}

static void step(struct world *w)
{
    assert_int_equal(world_step(w), SCHEDULE_BATCH);
}

/* Gives the sequence `count` drafts, of which the first `right` are the tokens that will be drawn. */
static void draft(struct world *w, struct sequence *seq, int32_t count, int32_t right)
{
    int32_t drafts[16];
    true_sequence_guess(&w->truth[seq->state_index], seq->num_tokens, drafts, count, right);
    scheduler_set_drafts(w->scheduler, seq, drafts, count);
}

/* Output `output` of the sequence, as it is drawn without drafts. */
static int32_t true_output(struct world *w, const struct sequence *seq, int32_t output)
{
    return true_sequence_token(&w->truth[seq->state_index], seq->prompt_len + output);
}

/* Runs all requests to their ends. */
static void run_out(struct world *w)
{
    for (int32_t i = 0; scheduler_has_work(w->scheduler) && i < 1000; i++) {
        world_step(w);
        for (struct request *r; (r = scheduler_next_finished(w->scheduler));) request_destroy(r);
    }
    world_close(w);
}

/* The room for drafts that the scheduler says the sequence has; 0: it names it not. */
static int32_t room_of(struct world *w, const struct sequence *seq)
{
    struct draftable draftables[MAX_SEQS];
    const int32_t count = scheduler_draftables(w->scheduler, draftables);
    for (int32_t i = 0; i < count; i++)
        if (draftables[i].seq == seq) return draftables[i].most;
    return 0;
}

static int32_t num_draftables(struct world *w)
{
    struct draftable draftables[MAX_SEQS];
    return scheduler_draftables(w->scheduler, draftables);
}

static int32_t num_draftables_later(struct world *w)
{
    struct draftable draftables[MAX_SEQS];
    return scheduler_draftables_later(w->scheduler, draftables);
}

/* ---- the layout ---- */

static void assert_array(const int32_t *is, const int32_t *expected, int32_t count)
{
    for (int32_t i = 0; i < count; i++) assert_int_equal(is[i], expected[i]);
}

/* A decode, a run of three drafts that needs a block, and a prompt. */
static void test_a_run_is_laid_out_as_decodes(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, config_of(40));
    struct sequence *one = add(&w, 0, 6, 20)->sequences, *two = add(&w, 9, 5, 20)->sequences;
    step(&w); /* now one has 7 tokens, and two 6 */
    struct sequence *three = add(&w, 15, 3, 20)->sequences;
    const int32_t drafts[] = {20, 21, 22};
    scheduler_set_drafts(w.scheduler, two, drafts, 3);
    assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
    const struct batch *b = &w.batch;
    const int32_t a = one->state_index, r = two->state_index, c = three->state_index, *table = two->tables[0].blocks;
    assert_int_equal(b->num_seqs, 6);
    assert_int_equal(b->num_decodes, 5);
    assert_int_equal(b->num_drafts, 3);
    assert_int_equal(b->num_tokens, 8);
    assert_int_equal(b->max_query_len, 3);
    assert_int_equal(b->max_seq_len, 9);
    assert_array(b->token_ids, (int32_t[]){one->tokens[6], two->tokens[5], 20, 21, 22, three->tokens[0]}, 6);
    assert_array(b->positions, (int32_t[]){6, 5, 6, 7, 8, 0, 1, 2}, 8);
    assert_array(b->query_start, (int32_t[]){0, 1, 2, 3, 4, 5, 8}, 7);
    assert_array(b->seq_lens, (int32_t[]){7, 6, 7, 8, 9, 3}, 6);
    assert_array(b->state_indices, (int32_t[]){a, r, r, r, r, c}, 6);
    for (int32_t t = 5; t < 9; t++) assert_int_equal(b->slot_mapping[t - 4], table[t / BLOCK] * BLOCK + t % BLOCK);
    assert_int_equal(b->num_samples, 6);
    assert_array(b->logits_indices, (int32_t[]){0, 1, 2, 3, 4, 7}, 6);
    assert_array(b->sample_state_indices, (int32_t[]){a, r, r, r, r, c}, 6);
    assert_array(b->output_positions, (int32_t[]){1, 1, 2, 3, 4, 0}, 6);
    assert_array(b->sampled_drafts, (int32_t[]){-1, -1, 20, 21, 22, -1}, 6);
    assert_int_equal(b->num_deltas, 2); /* the run's third block, and the prompt's */
    assert_int_equal(b->deltas[0].state_index, r);
    assert_int_equal(b->deltas[0].index, 2);
    assert_int_equal(b->deltas[0].block, table[2]);
    assert_int_equal(world_stats(&w).tokens, 6 + 5 + 8);
    world_collect(&w);
    run_out(&w);
}

/* ---- acceptance ---- */

/* A run yields its right drafts and the token after them, whatever follows a wrong one. */
static void test_drafts_are_accepted_up_to_the_first_wrong_one(void **state)
{
    (void)state;
    for (int32_t length = 1; length <= 2 * BLOCK; length++)
        for (int32_t count = 1; count <= MAX_DRAFTS; count++)
            for (int32_t right = 0; right <= count; right++) {
                struct world w;
                world_open(&w, config_of(12));
                struct sequence *seq = add(&w, 0, length, 20)->sequences;
                step(&w);
                draft(&w, seq, count, right);
                step(&w);
                assert_int_equal(seq->num_tokens, length + 2 + right);
                assert_int_equal(seq->num_computed, length + 1 + right);
                assert_int_equal(seq->num_drafts, 0);
                assert_int_equal(w.num_events, right + 1);
                for (int32_t i = 0; i <= right; i++) {
                    assert_ptr_equal(w.events[i].seq, seq);
                    assert_int_equal(w.events[i].token, true_output(&w, seq, 1 + i));
                    assert_int_equal(w.events[i].token, seq->tokens[length + 1 + i]);
                    assert_int_equal(w.events[i].sample, i);
                    assert_int_equal(w.events[i].num_outputs, 2 + i);
                    assert_int_equal(w.events[i].finish_reason, FINISH_NONE);
                }
                const struct scheduler_stats stats = world_stats(&w);
                assert_int_equal(stats.runs, 1);
                assert_int_equal(stats.drafts, count);
                assert_int_equal(stats.drafts_accepted, right);
                assert_int_equal(stats.blocks_in_use, (length + 1 + right + BLOCK - 1) / BLOCK);
                step(&w); /* the next token is computed in the slot of the first wrong draft */
                assert_int_equal(seq->num_computed, length + 2 + right);
                run_out(&w);
            }
}

/* The samples of what follows a run are its own, in the step and in the step behind it. */
static void test_samples_after_a_run(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, config_of(40));
    struct sequence *one = add(&w, 0, 6, 20)->sequences, *two = add(&w, 9, 5, 20)->sequences;
    step(&w);
    draft(&w, one, 4, 2);
    assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
    assert_int_equal(world_schedule(&w), SCHEDULE_BATCH); /* the run waits for its tokens, the other goes on */
    assert_int_equal(w.batch.num_seqs, 1);
    assert_int_equal(w.batch.state_indices[0], two->state_index);
    assert_int_equal(w.batch.token_ids[0], -6); /* sample 5: behind the five of the run */
    assert_int_equal(num_draftables(&w), 0);
    assert_int_equal(num_draftables_later(&w), 1); /* the other */
    world_collect(&w);
    assert_int_equal(w.num_events, 3 + 1);
    assert_ptr_equal(w.events[3].seq, two);
    assert_int_equal(w.events[3].sample, 5);
    assert_int_equal(w.events[3].token, true_output(&w, two, 1));
    world_collect(&w);
    run_out(&w);
}

/* Drafts that the host learns when it collects the step: those of two runs follow one another. */
static void test_drafts_of_the_device(void **state)
{
    (void)state;
    for (int32_t right = 0; right <= 3; right++) {
        struct world w;
        int32_t drafts[5];
        world_open(&w, config_of(40));
        struct sequence *one = add(&w, 0, 6, 20)->sequences, *two = add(&w, 9, 5, 20)->sequences;
        step(&w);
        true_sequence_guess(&w.truth[one->state_index], 7, drafts, 2, 3 - right);
        true_sequence_guess(&w.truth[two->state_index], 6, drafts + 2, 3, right);
        scheduler_set_drafts(w.scheduler, one, NULL, 2);
        scheduler_set_drafts(w.scheduler, two, NULL, 3);
        w.device_drafts = drafts;
        assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
        assert_int_equal(w.schedule.num_runs, 2);
        assert_ptr_equal(w.schedule.runs[0].seq, one);
        assert_int_equal(w.schedule.runs[0].entry, 0);
        assert_ptr_equal(w.schedule.runs[1].seq, two);
        assert_int_equal(w.schedule.runs[1].entry, 3);
        assert_array(w.batch.sampled_drafts, (int32_t[]){-1, -1, -1, -1, -1, -1, -1}, 7);
        world_collect(&w);
        assert_int_equal(one->num_tokens, 7 + (3 - right < 2 ? 3 - right : 2) + 1);
        assert_int_equal(two->num_tokens, 6 + right + 1);
        for (int32_t i = 0; i < two->num_tokens - 5; i++) assert_int_equal(two->tokens[5 + i], true_output(&w, two, i));
        draft(&w, one, 3, 1); /* the host's again */
        const int32_t before = one->num_tokens;
        step(&w);
        assert_int_equal(one->num_tokens, before + 2);
        run_out(&w);
    }
}

/* ---- ends ---- */

static struct request *add_stop(struct world *w, int32_t min_tokens, int32_t stop)
{
    struct sampling_params params = world_params(1, 20);
    params.min_tokens = min_tokens;
    struct request *request = world_add_counted(w, &params, 0, 6);
    if (stop >= 0) assert_true(sampling_params_add_stop_token_id(&request->params, stop));
    return request;
}

/* What comes behind a stop token is not delivered, right or not; before min_tokens it stops nothing. */
static void test_a_run_ends_at_a_stop_token(void **state)
{
    (void)state;
    int32_t outputs[8], first[8];
    struct world w;
    world_open(&w, config_of(40));
    struct sequence *seq = add_stop(&w, 0, -1)->sequences;
    step(&w);
    for (int32_t i = 0; i < 8; i++) outputs[i] = true_output(&w, seq, i);
    run_out(&w);
    for (int32_t i = 0; i < 8; i++) /* where each of the tokens comes first */
        for (first[i] = 0; outputs[first[i]] != outputs[i];) first[i]++;
    for (int32_t at = 1; at < 6; at++)
        for (int32_t min_tokens = 0; min_tokens <= 7; min_tokens += 7) {
            if (first[at] != at) continue;
            world_open(&w, config_of(40));
            seq = add_stop(&w, min_tokens, outputs[at])->sequences;
            step(&w);
            draft(&w, seq, 5, 5);
            step(&w);
            const bool stopped = min_tokens == 0;
            assert_int_equal(seq->num_tokens, 6 + (stopped ? at + 1 : 7));
            assert_int_equal(w.num_events, stopped ? at : 6);
            for (int32_t i = 0; i < w.num_events; i++)
                assert_int_equal(w.events[i].finish_reason,
                                 stopped && i + 1 == w.num_events ? FINISH_STOP : FINISH_NONE);
            if (stopped) assert_int_equal(seq->stop_token, outputs[at]);
            if (stopped) assert_int_equal(world_stats(&w).blocks_in_use, 0);
            run_out(&w);
        }
}

/* The last token is drawn, never drafted: by max_tokens and by max_model_len. */
static void test_no_draft_takes_the_place_of_the_last_token(void **state)
{
    (void)state;
    for (int32_t max_tokens = 1; max_tokens <= 12; max_tokens++)
        for (int32_t by_length = 0; by_length < 2; by_length++) {
            struct world w;
            struct scheduler_config config = config_of(40);
            if (by_length) config.limits.max_model_len = 6 + max_tokens;
            world_open(&w, config);
            struct request *request = add(&w, 0, 6, by_length ? -1 : max_tokens);
            struct sequence *seq = request->sequences;
            step(&w);
            const int32_t left = max_tokens - 1, room = left < 1 ? 0 : left - 1 < MAX_DRAFTS ? left - 1 : MAX_DRAFTS;
            assert_int_equal(room_of(&w, seq), room);
            if (left > 0) {
                draft(&w, seq, 10, 10);
                step(&w);
                assert_int_equal(w.batch.num_drafts, room);
                assert_int_equal(seq->num_tokens, 6 + 1 + room + 1);
                assert_int_equal(w.events[room].finish_reason, room + 1 == left ? FINISH_LENGTH : FINISH_NONE);
            }
            run_out(&w);
        }
}

/* Damaged logits end the run where they are needed, and nowhere else. */
static void test_damaged_logits_in_a_run(void **state)
{
    (void)state;
    for (int32_t damaged = 0; damaged <= 4; damaged++) {
        struct world w;
        struct error err;
        int32_t tokens[16];
        world_open(&w, config_of(40));
        struct sequence *seq = add(&w, 0, 6, 20)->sequences;
        step(&w);
        draft(&w, seq, 4, 2);
        assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
        struct sample_output samples = slot_device_collect(&w.device);
        memcpy(tokens, samples.token_ids, 5 * sizeof *tokens);
        tokens[damaged] = -1;
        samples.token_ids = tokens;
        assert_int_equal(scheduler_collect(w.scheduler, &samples, &w.events, &w.num_events, &err), STATUS_OK);
        const bool ends = damaged <= 2;
        assert_int_equal(w.num_events, ends ? damaged + 1 : 3);
        assert_int_equal(seq->num_tokens, 7 + (ends ? damaged : 3));
        assert_int_equal(seq->finish_reason, ends ? FINISH_ERROR : FINISH_NONE);
        if (ends) assert_int_equal(w.events[damaged].token, -1);
        if (ends) assert_int_equal(w.events[damaged].num_outputs, 1 + damaged);
        run_out(&w);
    }
}

/* A sequence that ends while its run is in flight gives its blocks back at once, and no event comes of the run. */
static void test_ends_while_a_run_is_in_flight(void **state)
{
    (void)state;
    for (int32_t aborted = 0; aborted < 2; aborted++) {
        struct world w;
        world_open(&w, config_of(40));
        struct request *request = add(&w, 0, 6, 20);
        struct sequence *other = add(&w, 9, 5, 20)->sequences;
        step(&w);
        draft(&w, request->sequences, 5, 3);
        assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
        if (aborted)
            scheduler_abort(w.scheduler, request);
        else
            scheduler_finish(w.scheduler, request->sequences, FINISH_STOP);
        assert_int_equal(world_stats(&w).blocks_in_use, 2);
        assert_null(scheduler_next_finished(w.scheduler));
        world_collect(&w);
        assert_int_equal(w.num_events, 1);
        assert_ptr_equal(w.events[0].seq, other);
        assert_int_equal(w.events[0].token, true_output(&w, other, 1));
        assert_int_equal(request->sequences[0].num_tokens, 7);
        assert_int_equal(world_stats(&w).runs, 0);
        run_out(&w);
    }
}

/* ---- who has drafts, and how many ---- */

static void test_who_may_have_drafts(void **state)
{
    (void)state;
    struct world w;
    struct draftable draftables[MAX_SEQS];
    struct sampling_params several = world_params(1, 20);
    several.n = 2;
    world_open(&w, config_of(60));
    struct request *two = world_add_counted(&w, &several, 0, 30), *beams = add(&w, 5, 6, 20), *late = add(&w, 9, 7, 20);
    beams->beams = true;
    assert_int_equal(num_draftables(&w), 0); /* they wait */
    assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
    assert_int_equal(num_draftables(&w), 0); /* their first tokens are pending */
    world_collect(&w);
    assert_int_equal(late->sequences->num_computed, 4); /* the budget ends in its prompt */
    assert_int_equal(scheduler_draftables(w.scheduler, draftables), 2);
    for (int32_t i = 0; i < 2; i++) {
        assert_ptr_equal(draftables[i].seq, &two->sequences[i]);
        assert_int_equal(draftables[i].most, MAX_DRAFTS);
    }
    const int32_t drafts[2] = {3, 4};
    scheduler_set_drafts(w.scheduler, beams->sequences, drafts, 2);
    scheduler_set_drafts(w.scheduler, late->sequences, drafts, 2);
    scheduler_set_drafts(w.scheduler, &two->sequences[1], drafts, 0);
    step(&w);
    assert_int_equal(w.batch.num_drafts, 0);
    draft(&w, &two->sequences[1], 3, 1);
    draft(&w, &two->sequences[0], 2, 2); /* one answer is ahead of the other now */
    step(&w);
    assert_int_equal(w.batch.num_drafts, 5);
    assert_int_equal(two->sequences[0].num_tokens, 32 + 3);
    assert_int_equal(two->sequences[1].num_tokens, 32 + 2);
    scheduler_abort(w.scheduler, beams);
    run_out(&w);
}

/* After two plain steps in flight a run goes on behind the pending tokens, once these are collected. */
static void test_drafts_after_two_steps_in_flight(void **state)
{
    (void)state;
    for (int32_t right = 0; right <= 3; right++) {
        struct world w;
        struct draftable draftables[MAX_SEQS];
        world_open(&w, config_of(40));
        struct sequence *one = add(&w, 0, 6, 8)->sequences, *two = add(&w, 9, 5, 3)->sequences;
        step(&w);
        assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
        assert_int_equal(num_draftables_later(&w), 1); /* the other has its last token but one */
        assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
        assert_int_equal(num_draftables(&w), 0);
        assert_int_equal(scheduler_draftables_later(w.scheduler, draftables), 1);
        assert_ptr_equal(draftables[0].seq, one);
        assert_int_equal(draftables[0].most, 8 - 3 - 1);
        draft(&w, one, 3, 3); /* too early */
        assert_int_equal(one->num_drafts, 0);
        world_collect(&w);
        assert_int_equal(num_draftables(&w), 0);
        world_collect(&w);
        assert_int_equal(two->status, SEQUENCE_FINISHED);
        assert_int_equal(room_of(&w, one), 8 - 3 - 1);
        draft(&w, one, 3, right);
        step(&w);
        assert_int_equal(w.batch.num_drafts, 3);
        assert_int_equal(w.num_events, right + 1);
        for (int32_t i = 0; i <= right; i++) assert_int_equal(w.events[i].token, true_output(&w, one, 3 + i));
        run_out(&w);
    }
}

/* The leader of answers that wait computes the prompt; only when they have all drawn a token do they get drafts, also
 * when the request is computed again. */
static void test_answers_that_are_computed_again(void **state)
{
    (void)state;
    struct world w;
    struct sampling_params several = world_params(1, 20);
    several.n = 3;
    world_open(&w, config_of(60));
    struct request *request = world_add_counted(&w, &several, 0, 6);
    step(&w);
    for (int32_t i = 0; i < 3; i++) draft(&w, &request->sequences[i], 4, i);
    step(&w);
    scheduler_preempt(w.scheduler, &w.batch, request);
    assert_int_equal(num_draftables(&w), 0);
    for (int32_t i = 0; i < 2; i++) {
        step(&w); /* the prompt, and then what each answer has */
        assert_int_equal(num_draftables(&w), i == 0 ? 0 : 3);
    }
    for (int32_t i = 0; i < 3; i++) {
        const struct sequence *seq = &request->sequences[i];
        assert_int_equal(seq->num_tokens, 6 + 1 + (i + 1) + 1);
        for (int32_t t = 6; t < seq->num_tokens; t++) assert_int_equal(seq->tokens[t], true_output(&w, seq, t - 6));
    }
    run_out(&w);
}

/* Those of higher rank are served first. */
static void test_drafts_of_a_step_are_bounded(void **state)
{
    (void)state;
    struct world w;
    struct scheduler_config config = config_of(60);
    config.limits.max_num_drafts = 5;
    world_open(&w, config);
    struct sequence *one = add(&w, 0, 6, 20)->sequences, *two = add(&w, 9, 5, 20)->sequences;
    for (int32_t i = 0; i < 2; i++) {
        step(&w);
        draft(&w, one, 3, 0);
        draft(&w, two, 4, 0);
        assert_int_equal(one->num_drafts, 3);
        assert_int_equal(two->num_drafts, 2);
    }
    draft(&w, two, 4, 0); /* a second time: nothing changes */
    assert_int_equal(two->num_drafts, 2);
    step(&w);
    assert_int_equal(w.batch.num_drafts, 5);
    run_out(&w);
}

/* Drafts end where the budget does, and the next sequence waits for the next step. */
static void test_the_budget_counts_drafts(void **state)
{
    (void)state;
    for (int32_t budget = 2; budget <= 8; budget++) {
        struct world w;
        struct scheduler_config config = config_of(60);
        config.limits.max_num_tokens = budget;
        world_open(&w, config);
        struct sequence *one = add(&w, 0, 2, 20)->sequences, *two = add(&w, 9, 2, 20)->sequences;
        while (two->num_tokens == 2) step(&w);
        const int32_t before = one->num_tokens;
        draft(&w, one, 4, 4);
        draft(&w, two, 2, 2);
        step(&w);
        const int32_t first = budget - 1 < 4 ? budget - 1 : 4, left = budget - 1 - first;
        const int32_t second = left > 3 ? 2 : left - 1 > 0 ? left - 1 : 0;
        assert_int_equal(w.batch.num_drafts, first + second);
        assert_int_equal(w.batch.num_tokens, 1 + first + (left > 0 ? 1 + second : 0));
        assert_int_equal(one->num_tokens, before + 1 + first);
        run_out(&w);
    }
}

/* In namespace 0 the last draft is its last token at most. */
static void test_drafts_stay_in_their_namespace(void **state)
{
    (void)state;
    struct world w;
    struct scheduler_config config = config_of(60);
    config.first_namespace_len = 10;
    config.namespace_position_shift = 100;
    world_open(&w, config);
    struct sequence *seq = add(&w, 0, 6, 20)->sequences;
    step(&w);
    assert_int_equal(room_of(&w, seq), 3); /* tokens 7, 8 and 9 */
    draft(&w, seq, 7, 7);
    step(&w);
    assert_int_equal(seq->num_tokens, 11); /* the 11th is computed in the other namespace */
    assert_int_equal(room_of(&w, seq), 0);
    step(&w);
    assert_int_equal(seq->request->cache_namespace, 1);
    assert_int_equal(room_of(&w, seq), MAX_DRAFTS);
    draft(&w, seq, 2, 2);
    assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
    assert_array(w.batch.positions, (int32_t[]){111, 112, 113}, 3);
    world_collect(&w);
    run_out(&w);
}

/* ---- blocks ---- */

/* Where the blocks suffice for what has to be computed, but not for the drafts, all drafts are dropped; nobody is
 * preempted, and no step waits for another. */
static void test_drafts_give_way_to_blocks(void **state)
{
    (void)state;
    for (int32_t spare = 0; spare <= 2; spare++) {
        struct world w;
        world_open(&w, config_of(4 + spare));
        struct sequence *one = add(&w, 0, 7, 9)->sequences, *two = add(&w, 9, 7, 9)->sequences;
        step(&w); /* each computes token 7 next, in its second block, and drafts in a third */
        draft(&w, one, 2, 2);
        draft(&w, two, 2, 0);
        assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
        assert_int_equal(w.batch.num_drafts, spare == 2 ? 4 : 0);
        assert_int_equal(one->num_drafts + two->num_drafts, w.batch.num_drafts);
        world_collect(&w);
        assert_int_equal(world_stats(&w).preemptions_recompute, 0);
        assert_int_equal(world_stats(&w).blocks_in_use, spare == 2 ? 5 : 4); /* two's came back */
        run_out(&w);
    }
}

/* A step that preempts has no drafts, also in the requests that stay. */
static void test_a_step_that_preempts_has_no_drafts(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, config_of(4));
    struct sequence *one = add(&w, 0, 8, 6)->sequences, *two = add(&w, 9, 8, 6)->sequences;
    step(&w); /* both need a third block */
    draft(&w, one, 2, 2);
    draft(&w, two, 2, 2);
    step(&w);
    assert_int_equal(world_stats(&w).preemptions_recompute, 1);
    assert_int_equal(w.batch.num_drafts, 0);
    assert_int_equal(one->num_tokens, 10);
    assert_int_equal(two->status, SEQUENCE_WAITING);
    assert_int_equal(two->num_drafts, 0);
    run_out(&w);
}

/* Drafts are for one call of schedule, also if it computes nothing. */
static void test_drafts_of_a_step_that_is_not_computed(void **state)
{
    (void)state;
    struct world w;
    struct scheduler_config config = config_of(60);
    config.limits.max_num_tokens = 6;
    world_open(&w, config);
    struct sequence *last = NULL;
    for (int32_t i = 0; i < 3; i++) last = add(&w, 5 * i, 2, 20)->sequences;
    step(&w);
    step(&w);
    w.scheduler->config.limits.max_num_tokens = 2; /* the third is in neither of two steps in flight */
    for (int32_t i = 0; i < 2; i++) assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
    assert_int_equal(num_draftables(&w), 1);
    draft(&w, last, 2, 2);
    assert_int_equal(world_schedule(&w), SCHEDULE_COLLECT_FIRST);
    assert_int_equal(last->num_drafts, 0);
    world_collect(&w);
    world_collect(&w);
    w.scheduler->config.limits.max_num_tokens = 6;
    step(&w);
    assert_int_equal(w.batch.num_drafts, 0);
    run_out(&w);
}

/* Prompts of the sequence's tokens and of `tail`: how many of them the prefix cache has. */
static int32_t num_found(struct world *w, const struct sequence *seq, int32_t length, const int32_t *tail,
                         int32_t num_tail)
{
    int32_t prompt[64];
    const struct sampling_params params = world_params(1, 2);
    memcpy(prompt, seq->tokens, (size_t)length * sizeof *prompt);
    memcpy(prompt + length, tail, (size_t)num_tail * sizeof *prompt);
    struct request *request = world_add_prompt(w, &params, prompt, length + num_tail);
    assert_int_equal(world_schedule(w), SCHEDULE_BATCH);
    const int32_t found = request->sequences->num_cached;
    scheduler_abort(w->scheduler, request);
    world_collect(w);
    return found;
}

/* A block of drafts is not found while they are in flight, nor once they are rejected; of accepted ones it is. */
static void test_a_rejected_draft_is_never_found(void **state)
{
    (void)state;
    for (int32_t right = 0; right <= 6; right++)
        for (int32_t in_flight = 0; in_flight < 2; in_flight++) {
            struct world w;
            int32_t drafts[MAX_DRAFTS];
            world_open(&w, config_of(60));
            struct sequence *seq = add(&w, 0, 2 * BLOCK - 1, 20)->sequences;
            step(&w);
            true_sequence_guess(&w.truth[seq->state_index], 2 * BLOCK, drafts, 6, right);
            draft(&w, seq, 6, right); /* tokens 8 to 13, of which 8 to 11 fill a block */
            assert_int_equal(world_schedule(&w), SCHEDULE_BATCH);
            if (!in_flight) world_collect(&w);
            const int32_t found = !in_flight && right >= 4 ? 3 * BLOCK : 2 * BLOCK;
            assert_int_equal(num_found(&w, seq, 2 * BLOCK, drafts, 6), found);
            if (in_flight) world_collect(&w);
            run_out(&w);
        }
}

/* The step ends with all of its requests, and none of its blocks can be found. */
static void test_a_run_that_is_cancelled(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, config_of(60));
    struct request *request = add(&w, 0, 2 * BLOCK - 1, 20);
    step(&w);
    draft(&w, request->sequences, 6, 6);
    assert_int_equal(world_schedule(&w), SCHEDULE_BATCH); /* token 7 fills the second block */
    assert_int_equal(world_stats(&w).blocks_in_use, 4);
    slot_device_cancel(&w.device, &w.batch, 0);
    scheduler_cancel(w.scheduler);
    assert_int_equal(request->sequences->finish_reason, FINISH_ABORT);
    assert_int_equal(request->sequences->num_tokens, 2 * BLOCK);
    assert_int_equal(world_stats(&w).blocks_in_use, 0);
    assert_int_equal(world_stats(&w).blocks_cached, 1);
    assert_int_equal(world_stats(&w).runs, 0);
    run_out(&w);
}

/* A window's blocks are kept for the first row of a run, and given back once its tokens are accepted. */
static void test_a_run_in_a_window(void **state)
{
    (void)state;
    struct world w;
    struct scheduler_config config = config_of(60);
    config.limits.windows[0] = 3;
    world_open(&w, config);
    struct sequence *seq = add(&w, 0, 2 * BLOCK, 30)->sequences;
    for (int32_t i = 0; i < 4; i++) {
        const int32_t before = seq->num_tokens;
        step(&w);
        draft(&w, seq, 7, 5);
        step(&w);
        if (i > 0) assert_int_equal(seq->num_tokens, before + 7);
        assert_true(seq->tables[0].num_blocks - seq->tables[0].first <= 4);
    }
    run_out(&w);
}

/* ---- beside prompts ---- */

/* Targets of a prompt in the step of a run, and in the step behind it. */
static void test_prompt_logprobs_beside_runs(void **state)
{
    (void)state;
    struct world w;
    struct scheduler_config config = config_of(60);
    config.limits.max_num_tokens = 8;
    world_open(&w, config);
    struct sampling_params params = world_params(1, 3);
    params.prompt_logprobs = 1;
    struct sequence *seq = add(&w, 0, 5, 20)->sequences;
    step(&w);
    struct request *scored = world_add_counted(&w, &params, 9, 11);
    for (int32_t i = 0; i < 3; i++) {
        draft(&w, seq, 3, i);
        step(&w);
        assert_int_equal(seq->num_tokens, 6 + (i + 1) * (i + 2) / 2);
        assert_int_equal(w.batch.num_targets, i < 2 ? 4 : 2);
    }
    for (int32_t t = 1; t < 11; t++) {
        assert_int_equal(scored->prompt_logprobs->ranks[t], t);
        assert_true(scored->prompt_logprobs->logprobs[t] == (float)t);
    }
    assert_int_equal(scored->sequences->num_tokens, 12);
    run_out(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_run_is_laid_out_as_decodes),
        cmocka_unit_test(test_drafts_are_accepted_up_to_the_first_wrong_one),
        cmocka_unit_test(test_samples_after_a_run),
        cmocka_unit_test(test_drafts_of_the_device),
        cmocka_unit_test(test_a_run_ends_at_a_stop_token),
        cmocka_unit_test(test_no_draft_takes_the_place_of_the_last_token),
        cmocka_unit_test(test_damaged_logits_in_a_run),
        cmocka_unit_test(test_ends_while_a_run_is_in_flight),
        cmocka_unit_test(test_who_may_have_drafts),
        cmocka_unit_test(test_drafts_after_two_steps_in_flight),
        cmocka_unit_test(test_answers_that_are_computed_again),
        cmocka_unit_test(test_drafts_of_a_step_are_bounded),
        cmocka_unit_test(test_the_budget_counts_drafts),
        cmocka_unit_test(test_drafts_stay_in_their_namespace),
        cmocka_unit_test(test_drafts_give_way_to_blocks),
        cmocka_unit_test(test_a_step_that_preempts_has_no_drafts),
        cmocka_unit_test(test_drafts_of_a_step_that_is_not_computed),
        cmocka_unit_test(test_a_rejected_draft_is_never_found),
        cmocka_unit_test(test_a_run_that_is_cancelled),
        cmocka_unit_test(test_a_run_in_a_window),
        cmocka_unit_test(test_prompt_logprobs_beside_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
