/* How many drafts sequences get, with a real scheduler, a device that draws a fixed text, and a drafter that is right
 * when the test says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/engine/speculation.h"

enum { MAX_SEQS = 16, MAX_LEN = 4096, PROMPT_LEN = 5, MOST = 5 };

/* Every answer is the same text. */
static int32_t text_token(int32_t output)
{
    return output * 31 % 97 + 1;
}

struct bench {
    struct drafter drafter;
    struct scheduler *scheduler;
    struct speculation *speculation;
    struct speculation_limits limits;
    struct batch batch;
    struct flight { /* a step in flight, by number */
        int32_t draws[2 * MAX_SEQS * (MOST + 1)], drafts[MAX_SEQS * MOST], num_samples, num_drafts;
    } flights[2];
    int64_t num_submitted, num_collected, num_beside; /* steps; submitted while another was in flight */
    struct request *requests[MAX_SEQS];               /* unfinished, by id - first_id */
    uint64_t next_id;
    bool right, silent; /* what the drafter does */
    int32_t num_asked;  /* sequences that it was asked for in the step */
    int32_t num_given;  /* drafts that it has offered in the step */
    int64_t num_tries;  /* sequences that it was asked for in all steps */
};

static void propose(struct drafter *d, struct draft_query *queries, int32_t count)
{
    struct bench *b = (struct bench *)d;
    assert_int_equal(scheduler_in_flight(b->scheduler), 0);
    b->num_asked += count;
    b->num_tries += count;
    for (int32_t i = 0; i < count && !b->silent; i++) {
        struct draft_query *q = &queries[i];
        assert_in_range(q->most, 1, MAX_DRAFTS);
        for (; q->num_drafts < q->most; q->num_drafts++) {
            const int32_t token = text_token(q->seq->num_tokens - q->seq->prompt_len + q->num_drafts);
            q->drafts[q->num_drafts] = b->right ? token : token + 1;
        }
        b->num_given += q->num_drafts;
    }
}

/* The engine's part: what makes the drafts of a drafter on the device is submitted with the step. */
static enum status never_called(struct drafter *d, struct batch *batch, const struct schedule *schedule,
                                struct error *err)
{
    (void)d, (void)batch, (void)schedule;
    return error_set(err, STATUS_INTERNAL, "the engine calls this");
}

/* `costly`: the drafter is on the device. */
static struct bench *bench_open(int32_t free_entries, bool fixed, bool costly)
{
    struct error err = {""};
    struct bench *b = calloc(1, sizeof *b);
    struct speculation_limits limits = {.max_num_tokens = 512,
                                        .max_num_seqs = MAX_SEQS,
                                        .free_entries = free_entries,
                                        .num_speculative_tokens = MOST,
                                        .fixed = fixed};
    limits.max_num_drafts = speculation_most_drafts(&limits);
    const struct scheduler_config config = {.limits = {.max_num_tokens = limits.max_num_tokens,
                                                       .max_num_seqs = limits.max_num_seqs,
                                                       .max_num_drafts = limits.max_num_drafts,
                                                       .max_model_len = MAX_LEN,
                                                       .block_size = 16,
                                                       .num_groups = 1},
                                            .num_blocks = MAX_SEQS * MAX_LEN / 16,
                                            .enable_chunked_prefill = true,
                                            .check_invariants = true};
    *b = (struct bench){.drafter = {.name = "test", .propose = propose}, .limits = limits, .next_id = 1, .right = true};
    if (costly) b->drafter.draft = never_called;
    assert_int_equal(scheduler_create(&config, &b->scheduler, &err), STATUS_OK);
    assert_int_equal(batch_init(&b->batch, &config.limits, &err), STATUS_OK);
    assert_int_equal(speculation_create(&limits, &b->drafter, &b->speculation, &err), STATUS_OK);
    return b;
}

static struct bench *bench_create(int32_t free_entries, bool fixed)
{
    return bench_open(free_entries, fixed, false);
}

static void free_finished(struct bench *b)
{
    for (struct request *r; (r = scheduler_next_finished(b->scheduler)) != NULL;) request_destroy(r);
}

/* The drafts of the device are right or wrong as those of the host are. */
static void make_drafts(const struct bench *b, const struct schedule *schedule, int32_t *drafts)
{
    for (int32_t r = 0; r < schedule->num_runs; r++) {
        const struct sequence *seq = schedule->runs[r].seq;
        for (int32_t i = 0; i < seq->num_drafts; i++)
            *drafts++ = text_token(seq->num_tokens - seq->prompt_len + i) + !b->right;
    }
}

/* Returns the number of drafts. A step with drafts is alone in flight. */
static int32_t submit(struct bench *b)
{
    struct error err = {""};
    struct schedule schedule;
    struct flight *f = &b->flights[b->num_submitted++ % 2];
    const bool beside = scheduler_in_flight(b->scheduler) > 0;
    b->num_asked = b->num_given = 0;
    speculation_propose(b->speculation, b->scheduler);
    assert_int_equal(scheduler_schedule(b->scheduler, &b->batch, &schedule, &err), STATUS_OK);
    speculation_scheduled(b->speculation, &schedule);
    assert_int_equal(schedule.result, SCHEDULE_BATCH);
    assert_true(!beside || schedule.num_runs == 0);
    b->num_beside += beside;
    f->num_samples = b->batch.num_samples;
    f->num_drafts = b->batch.num_drafts;
    for (int32_t i = 0; i < f->num_samples; i++) f->draws[i] = text_token(b->batch.output_positions[i]);
    make_drafts(b, &schedule, f->drafts);
    return f->num_drafts;
}

/* The oldest step. Returns the number of its drafts. */
static int32_t collect(struct bench *b)
{
    struct error err = {""};
    const struct token_event *events;
    int32_t num_events;
    const struct flight *f = &b->flights[b->num_collected++ % 2];
    const struct sample_output samples = {.num_samples = f->num_samples, .token_ids = f->draws, .draft_ids = f->drafts};
    assert_int_equal(scheduler_collect(b->scheduler, &samples, &events, &num_events, &err), STATUS_OK);
    return f->num_drafts;
}

static void bench_destroy(struct bench *b)
{
    for (int32_t i = 0; i < MAX_SEQS; i++)
        if (b->requests[i]) scheduler_abort(b->scheduler, b->requests[i]);
    while (scheduler_in_flight(b->scheduler) > 0) collect(b);
    free_finished(b);
    speculation_destroy(b->speculation);
    batch_free(&b->batch);
    scheduler_destroy(b->scheduler);
    free(b);
}

static void add_request(struct bench *b, int32_t place)
{
    static const int32_t prompt[PROMPT_LEN] = {1, 2, 3, 4, 5};
    struct error err = {""};
    struct sampling_params params = sampling_params_default();
    params.max_tokens = MAX_LEN;
    assert_int_equal(request_create(&params, prompt, PROMPT_LEN, &b->batch.limits, &b->requests[place], &err),
                     STATUS_OK);
    b->requests[place]->id = b->next_id++;
    scheduler_add(b->scheduler, b->requests[place]);
}

static void abort_request(struct bench *b, int32_t place)
{
    scheduler_abort(b->scheduler, b->requests[place]);
    b->requests[place] = NULL;
    free_finished(b);
}

/* Returns the number of drafts that the step computed. */
static int32_t step(struct bench *b)
{
    const int32_t num_drafts = submit(b);
    collect(b);
    return num_drafts;
}

/* Submits a step, and collects one or two, as the engine does where two may be in flight. Returns the number of drafts
 * that were collected. */
static int32_t step_of_two(struct bench *b)
{
    int32_t drafts = 0;
    if (scheduler_in_flight(b->scheduler) > 0 && speculation_wants_drafts(b->speculation, b->scheduler))
        drafts += collect(b);
    submit(b);
    const int32_t in_flight = scheduler_in_flight(b->scheduler);
    if (in_flight == 2 || speculation_wants_drafts(b->speculation, b->scheduler)) drafts += collect(b);
    return drafts;
}

/* Drafts of so many steps. */
static int32_t steps(struct bench *b, int32_t count)
{
    int32_t total = 0;
    for (int32_t i = 0; i < count; i++) total += step(b);
    return total;
}

/* A sequence that has its first token. */
static struct bench *bench_with_one(bool right)
{
    struct bench *b = bench_create(64, false);
    b->right = right;
    add_request(b, 0);
    assert_int_equal(step(b), 0);
    return b;
}

static void test_right_drafts(void **state)
{
    (void)state;
    struct bench *b = bench_with_one(true);
    assert_true(step(b) >= 2); /* it begins with hope */
    steps(b, 1);
    const int32_t before = b->requests[0]->sequences[0].num_tokens;
    for (int32_t i = 0; i < 100; i++) assert_int_equal(step(b), MOST);
    assert_int_equal(b->requests[0]->sequences[0].num_tokens, before + 100 * (MOST + 1));
    bench_destroy(b);
}

/* 1000 steps with a drafter that is never right have hardly any drafts, and none waits for more than 64 steps. */
static void test_wrong_drafts(void **state)
{
    (void)state;
    struct bench *b = bench_with_one(false);
    assert_in_range(steps(b, 50), 10, 20);
    assert_in_range(steps(b, 350), 5, 14);
    int32_t since = 0;
    for (int32_t i = 0; i < 600; i++) {
        const int32_t drafts = step(b);
        assert_in_range(drafts, 0, 1);
        since = drafts > 0 ? 0 : since + 1;
        assert_true(since <= 64);
        if (drafts == 0) assert_int_equal(b->num_asked, 0);
    }
    bench_destroy(b);
}

static void test_drafts_become_right(void **state)
{
    (void)state;
    struct bench *b = bench_with_one(false);
    steps(b, 500);
    b->right = true;
    int32_t waited = 0;
    while (step(b) == 0) waited++;
    assert_true(waited <= 64);
    assert_in_range(steps(b, 7), 15, 7 * MOST);
    assert_int_equal(step(b), MOST);
    bench_destroy(b);
}

static void test_drafts_become_wrong(void **state)
{
    (void)state;
    struct bench *b = bench_with_one(true);
    steps(b, 50);
    b->right = false;
    assert_true(steps(b, 10) <= 4 * MOST);
    assert_true(steps(b, 20) <= 8);
    b->right = true; /* after so short a time it comes back at once */
    assert_true(steps(b, 20) >= 12 * MOST);
    bench_destroy(b);
}

/* A drafter that has no idea costs nothing, and is asked in every step. */
static void test_no_drafts(void **state)
{
    (void)state;
    struct bench *b = bench_with_one(true);
    b->silent = true;
    for (int32_t i = 0; i < 100; i++) {
        assert_int_equal(step(b), 0);
        assert_int_equal(b->num_asked, 1);
    }
    b->silent = false;
    assert_true(step(b) >= 2);
    bench_destroy(b);
}

/* Where each draft costs a pass of a model, fewer are tried. */
static void test_costly_drafts(void **state)
{
    (void)state;
    int32_t given[2];
    for (int costly = 0; costly <= 1; costly++) {
        struct bench *b = bench_open(64, false, costly);
        add_request(b, 0);
        assert_int_equal(step(b), 0);
        step(b);
        given[costly] = b->num_given;
        bench_destroy(b);
    }
    assert_int_equal(given[0], MOST);
    assert_in_range(given[1], 1, MOST - 1);
}

/* Another sequence at the same state index begins with what is usual: after a few failures of the one before with less
 * hope, and after many with a wait. */
static void test_next_sequence(void **state)
{
    (void)state;
    struct bench *b = bench_with_one(false);
    steps(b, 20);
    assert_int_equal(steps(b, 2), 0);
    abort_request(b, 0);
    add_request(b, 0);
    assert_int_equal(step(b), 0);
    assert_int_equal(steps(b, 2), 1);
    for (int32_t i = 0; i < 40; i++) {
        steps(b, 100);
        abort_request(b, 0);
        add_request(b, 0);
    }
    assert_int_equal(step(b), 0);
    assert_in_range(steps(b, 50), 0, 4);
    bench_destroy(b);
}

/* A run of which nothing was learned, because the next step had too many sequences, is forgotten: what came in between
 * is no success. */
static void test_forgotten_run(void **state)
{
    (void)state;
    struct bench *b = bench_create(8, false);
    b->right = false;
    add_request(b, 0);
    steps(b, 200);
    for (bool drafted = false; !drafted;) {
        for (int32_t i = 1; i < 9; i++) add_request(b, i);
        drafted = step(b) == 1; /* besides the prompts of the others */
        if (drafted) assert_int_equal(steps(b, 20), 0);
        for (int32_t i = 1; i < 9; i++) abort_request(b, i);
    }
    for (int32_t i = 0; i < 20; i++) assert_in_range(step(b), 0, 1);
    bench_destroy(b);
}

/* However many sequences run, a step has no more entries than are free; with more sequences nobody is asked. */
static void test_entries_of_a_step(void **state)
{
    (void)state;
    const int32_t free_entries = 8;
    struct bench *b = bench_create(free_entries, false);
    assert_int_equal(b->batch.limits.max_num_drafts, free_entries - 1);
    for (int32_t n = 1; n <= MAX_SEQS; n++) {
        add_request(b, n - 1);
        step(b); /* the others run on */
        for (int32_t i = 0; i < 10; i++) {
            const int32_t drafts = step(b), room = free_entries - n;
            assert_int_equal(b->batch.num_seqs, n + drafts);
            assert_int_equal(drafts, room < 0 ? 0 : room < n * MOST ? room : n * MOST);
            assert_int_equal(b->num_asked, room > 0 ? n : 0);
        }
    }
    bench_destroy(b);
}

/* First drafts come before second ones, and among equals the older sequence first. */
static void test_drafts_are_shared(void **state)
{
    (void)state;
    struct bench *b = bench_create(8, false);
    for (int32_t i = 0; i < 3; i++) add_request(b, i);
    steps(b, 5);
    int32_t before[3], most[] = {2, 2, 1};
    for (int32_t i = 0; i < 3; i++) before[i] = b->requests[i]->sequences[0].num_tokens;
    assert_int_equal(step(b), 5);
    for (int32_t i = 0; i < 3; i++) assert_int_equal(b->requests[i]->sequences[0].num_tokens, before[i] + 1 + most[i]);
    bench_destroy(b);
}

static void test_fixed_drafts(void **state)
{
    (void)state;
    struct bench *b = bench_create(8, true);
    b->right = false;
    assert_int_equal(b->batch.limits.max_num_drafts, MAX_SEQS * MOST);
    for (int32_t i = 0; i < MAX_SEQS; i++) add_request(b, i);
    step(b);
    for (int32_t i = 0; i < 50; i++) assert_int_equal(step(b), MAX_SEQS * MOST);
    bench_destroy(b);
}

static void test_most_drafts(void **state)
{
    (void)state;
    struct speculation_limits l = {
        .max_num_tokens = 512, .max_num_seqs = 4, .free_entries = 64, .num_speculative_tokens = 3};
    assert_int_equal(speculation_most_drafts(&l), 12);
    l.max_num_seqs = 256;
    assert_int_equal(speculation_most_drafts(&l), 63);
    l.fixed = true;
    assert_int_equal(speculation_most_drafts(&l), 256);
    l.max_num_tokens = 8;
    assert_int_equal(speculation_most_drafts(&l), 7);
    l.num_speculative_tokens = 0;
    assert_int_equal(speculation_most_drafts(&l), 0);
}

/* ---- two steps in flight ---- */

static struct bench *bench_with(int32_t count, int32_t free_entries, bool right, bool costly)
{
    struct bench *b = bench_open(free_entries, false, costly);
    b->right = right;
    for (int32_t i = 0; i < count; i++) add_request(b, i);
    return b;
}

/* Sequences that wait have two steps in flight between their tries, which come as often as with one. */
static void test_two_in_flight_while_all_wait(void **state)
{
    (void)state;
    for (int32_t count = 1; count <= 3; count++)
        for (int costly = 0; costly <= 1; costly++) {
            struct bench *one = bench_with(count, 64, false, costly), *two = bench_with(count, 64, false, costly);
            while (one->num_submitted < 1000) step(one);
            while (two->num_submitted < 1000) step_of_two(two);
            assert_int_equal(one->num_beside, 0);
            assert_in_range(two->num_beside, 1000 - 6 * two->num_tries - 3, 999);
            assert_int_equal(one->num_tries, two->num_tries);
            assert_true(one->num_tries < 40 * count);
            bench_destroy(one);
            bench_destroy(two);
        }
}

/* Where drafts are right, or fixed, or the drafter may have an idea at any token, each step is collected first. */
static void test_one_in_flight_while_drafts_are_wanted(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        struct bench *b = bench_open(64, kind == 1, false);
        b->silent = kind == 2;
        add_request(b, 0);
        add_request(b, 1);
        for (int32_t i = 0; i < 100; i++) step_of_two(b);
        assert_int_equal(b->num_beside, 0);
        assert_int_equal(b->num_submitted, 100);
        bench_destroy(b);
    }
}

/* A step with more sequences than entries are free has no drafts, and waits for none. */
static void test_two_in_flight_without_room(void **state)
{
    (void)state;
    struct bench *b = bench_with(8, 8, true, false);
    for (int32_t i = 0; i < 100; i++) step_of_two(b);
    assert_int_equal(b->num_beside, 99);
    assert_int_equal(b->num_tries, 0);
    abort_request(b, 3); /* while a step that names it is in flight */
    for (int32_t i = 0; i < 3; i++) step_of_two(b);
    assert_true(step_of_two(b) > 0);
    bench_destroy(b);
}

/* A new sequence is computed beside steps in flight, and is tried as soon as it has a token, while others wait. */
static void test_new_sequence_beside_one_that_waits(void **state)
{
    (void)state;
    struct bench *b = bench_with(1, 64, true, false);
    for (int32_t i = 0; i < 300; i++) step_of_two(b); /* so that drafts are usually right */
    b->right = false;
    while (b->num_tries < 300 + 20) step_of_two(b);
    step_of_two(b);
    assert_int_equal(scheduler_in_flight(b->scheduler), 1);
    const int64_t tries = b->num_tries, beside = b->num_beside;
    add_request(b, 1);
    for (int32_t i = 0; i < 4; i++) step_of_two(b);
    assert_true(b->num_beside > beside);
    assert_in_range(b->num_tries, tries + 1, tries + 4);
    assert_true(b->requests[1]->sequences[0].num_tokens > PROMPT_LEN);
    bench_destroy(b);
}

/* ---- a drafter's model that is useless ---- */

static void steps_of_two(struct bench *b, int32_t count)
{
    for (int32_t i = 0; i < count; i++) step_of_two(b);
}

/* Requests that come later hardly try it, but one sequence of all does, every 64 steps. */
static void test_useless_model(void **state)
{
    (void)state;
    struct bench *b = bench_with(MAX_SEQS, 64, false, true);
    for (int32_t generation = 0; generation < 10; generation++) {
        const int64_t tries = b->num_tries;
        steps_of_two(b, 256);
        assert_in_range(b->num_tries - tries, 2, generation == 0 ? 8 * MAX_SEQS : 2 * MAX_SEQS);
        if (generation == 9) assert_in_range(b->num_tries - tries, 2, 5);
        for (int32_t i = 0; i < MAX_SEQS; i++) {
            abort_request(b, i);
            add_request(b, i);
        }
    }
    bench_destroy(b);
}

/* When it becomes right, all find out soon. */
static void test_useless_model_becomes_right(void **state)
{
    (void)state;
    struct bench *b = bench_with(8, 64, false, true);
    steps_of_two(b, 2000);
    b->right = true;
    steps_of_two(b, 70);
    assert_true(b->num_asked > 0); /* one at least, in each step */
    steps_of_two(b, 70);
    assert_int_equal(b->num_asked, 8);
    bench_destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_drafts),
        cmocka_unit_test(test_wrong_drafts),
        cmocka_unit_test(test_drafts_become_right),
        cmocka_unit_test(test_drafts_become_wrong),
        cmocka_unit_test(test_no_drafts),
        cmocka_unit_test(test_costly_drafts),
        cmocka_unit_test(test_next_sequence),
        cmocka_unit_test(test_forgotten_run),
        cmocka_unit_test(test_entries_of_a_step),
        cmocka_unit_test(test_drafts_are_shared),
        cmocka_unit_test(test_fixed_drafts),
        cmocka_unit_test(test_most_drafts),
        cmocka_unit_test(test_two_in_flight_while_all_wait),
        cmocka_unit_test(test_one_in_flight_while_drafts_are_wanted),
        cmocka_unit_test(test_two_in_flight_without_room),
        cmocka_unit_test(test_new_sequence_beside_one_that_waits),
        cmocka_unit_test(test_useless_model),
        cmocka_unit_test(test_useless_model_becomes_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
