/* A step that is cancelled in the middle: its requests end, and nobody finds K and V that were not written. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include <cmocka.h>

#include "runtime/engine/engine.h"
#include "scheduler/scheduler.h"
#include "tests/support/run.h"

/* ---- the scheduler ---- */

enum { BLOCK = 4 };

struct world {
    struct scheduler *scheduler;
    struct batch batch;
    struct scheduler_config config;
};

static void world_make(struct world *w)
{
    struct error err;
    *w = (struct world){.config = {.limits = {.max_num_tokens = 12,
                                              .max_num_seqs = 4,
                                              .max_model_len = 64,
                                              .block_size = BLOCK,
                                              .num_groups = 2,
                                              .windows = {0, 6}},
                                   .num_blocks = 60,
                                   .enable_prefix_caching = true,
                                   .enable_chunked_prefill = true,
                                   .check_invariants = true}};
    assert_int_equal(batch_init(&w->batch, &w->config.limits, &err), STATUS_OK);
    assert_int_equal(scheduler_create(&w->config, &w->scheduler, &err), STATUS_OK);
}

static struct request *add_with_logprobs(struct world *w, int32_t prompt_len, int32_t n, int32_t prompt_logprobs)
{
    int32_t prompt[64];
    struct error err;
    struct request *request;
    struct sampling_params params = sampling_params_default();
    for (int32_t i = 0; i < prompt_len; i++) prompt[i] = 100 + i;
    params.n = n;
    params.prompt_logprobs = prompt_logprobs;
    params.ignore_eos = true;
    assert_int_equal(request_create(&params, prompt, prompt_len, &w->config.limits, &request, &err), STATUS_OK);
    scheduler_add(w->scheduler, request);
    return request;
}

static struct request *add(struct world *w, int32_t prompt_len, int32_t n)
{
    return add_with_logprobs(w, prompt_len, n, -1);
}

static void schedule(struct world *w)
{
    struct schedule schedule;
    struct error err = {""};
    if (scheduler_schedule(w->scheduler, &w->batch, &schedule, &err) != STATUS_OK) fail_msg("%s", err.text);
    assert_int_equal(schedule.result, SCHEDULE_BATCH);
}

static void collect(struct world *w)
{
    int32_t tokens[4] = {1, 2, 3, 4}, num_events;
    const struct token_event *events;
    struct error err = {""};
    const struct sample_output samples = {.num_samples = w->batch.num_samples, .token_ids = tokens};
    if (scheduler_collect(w->scheduler, &samples, &events, &num_events, &err) != STATUS_OK) fail_msg("%s", err.text);
}

static void expect_aborted(struct world *w, int count)
{
    struct request *r;
    for (; (r = scheduler_next_finished(w->scheduler)) != NULL; count--) {
        for (int32_t i = 0; i < r->num_sequences; i++) assert_int_equal(r->sequences[i].finish_reason, FINISH_ABORT);
        request_destroy(r);
    }
    assert_int_equal(count, 0);
}

static int32_t cached_tokens(struct world *w, int32_t prompt_len)
{
    struct request *r = add(w, prompt_len, 1);
    schedule(w);
    const int32_t cached = r->sequences[0].num_cached;
    collect(w);
    scheduler_abort(w->scheduler, r);
    expect_aborted(w, 1);
    return cached;
}

static void world_free(struct world *w)
{
    assert_false(scheduler_has_work(w->scheduler));
    scheduler_destroy(w->scheduler);
    batch_free(&w->batch);
}

static void test_what_was_not_computed_is_not_found(void **state)
{
    (void)state;
    struct world w;
    world_make(&w);
    add(&w, 10, 1);
    schedule(&w);
    scheduler_cancel(w.scheduler);
    assert_int_equal(scheduler_in_flight(w.scheduler), 0);
    expect_aborted(&w, 1);
    assert_int_equal(cached_tokens(&w, 10), 0);
    assert_int_equal(cached_tokens(&w, 10), 8);
    world_free(&w);
}

/* Two requests with one prompt: the second found in the cache what the first was to compute in the same step. */
static void test_requests_that_share(void **state)
{
    (void)state;
    struct world w;
    world_make(&w);
    add(&w, 9, 2);
    add(&w, 9, 1);
    schedule(&w);
    scheduler_cancel(w.scheduler);
    expect_aborted(&w, 2);
    assert_int_equal(cached_tokens(&w, 9), 0);
    world_free(&w);
}

static void test_earlier_chunks_stay(void **state)
{
    (void)state;
    struct world w;
    world_make(&w);
    add(&w, 30, 1);
    schedule(&w); /* 12 tokens */
    collect(&w);
    schedule(&w); /* to 24 */
    scheduler_cancel(w.scheduler);
    expect_aborted(&w, 1);
    assert_int_equal(cached_tokens(&w, 30), 12);
    world_free(&w);
}

/* The token that fills a block is a decode. */
static void test_decodes(void **state)
{
    (void)state;
    struct world w;
    world_make(&w);
    struct request *r = add(&w, 6, 1);
    schedule(&w); /* the prompt */
    collect(&w);
    schedule(&w); /* token 6 */
    collect(&w);
    schedule(&w); /* token 7, the last of the second block */
    int32_t tokens[8];
    memcpy(tokens, r->sequences[0].tokens, sizeof tokens);
    scheduler_cancel(w.scheduler);
    expect_aborted(&w, 1);
    struct request *again;
    struct error err;
    struct sampling_params params = sampling_params_default();
    int32_t prompt[9];
    memcpy(prompt, tokens, sizeof tokens);
    prompt[8] = 5;
    assert_int_equal(request_create(&params, prompt, 9, &w.config.limits, &again, &err), STATUS_OK);
    scheduler_add(w.scheduler, again);
    schedule(&w);
    assert_int_equal(again->sequences[0].num_cached, 4);
    scheduler_cancel(w.scheduler);
    expect_aborted(&w, 1);
    world_free(&w);
}

/* The request of the step before is still in flight when a later step is cancelled that does not name it: it is handed
 * back once its step is collected. */
static void test_the_step_before_stays_in_flight(void **state)
{
    (void)state;
    struct world w;
    world_make(&w);
    struct request *first = add(&w, 6, 1);
    schedule(&w);
    scheduler_abort(w.scheduler, first);
    add(&w, 5, 1);
    schedule(&w);
    scheduler_cancel(w.scheduler);
    assert_int_equal(scheduler_in_flight(w.scheduler), 1);
    assert_null(scheduler_next_finished(w.scheduler));
    collect(&w);
    expect_aborted(&w, 2);
    world_free(&w);
}

/* The targets of a cancelled step are not those of the next one. */
static void test_prompt_logprobs(void **state)
{
    (void)state;
    struct world w;
    world_make(&w);
    add_with_logprobs(&w, 9, 1, 0);
    schedule(&w);
    scheduler_cancel(w.scheduler);
    expect_aborted(&w, 1);
    struct request *r = add_with_logprobs(&w, 4, 1, 0);
    schedule(&w);
    assert_int_equal(w.batch.num_targets, 3);
    int32_t token = 1, ids[] = {1, 2, 3}, ranks[] = {11, 12, 13}, num_events;
    float logprobs[] = {-1, -2, -3};
    const struct token_event *events;
    struct error err = {""};
    const struct sample_output targets = {.num_samples = 3, .token_ids = ids, .logprobs = logprobs, .ranks = ranks};
    const struct sample_output samples = {.num_samples = 1, .token_ids = &token, .targets = &targets};
    assert_int_equal(scheduler_collect(w.scheduler, &samples, &events, &num_events, &err), STATUS_OK);
    assert_int_equal(num_events, 1);
    for (int32_t i = 0; i < 3; i++) assert_int_equal(r->prompt_logprobs->ranks[i + 1], ranks[i]);
    scheduler_abort(w.scheduler, r);
    expect_aborted(&w, 1);
    world_free(&w);
}

/* ---- the engine ---- */

static volatile sig_atomic_t cancel;

static void on_alarm(int signal_number)
{
    (void)signal_number;
    cancel = 1;
}

/* Runs the prompts; the alarm cancels what is running then. Returns how many answers were aborted. */
static int run_with_alarm(struct engine *e, const struct run_prompt *prompts, int count,
                          const struct sampling_params *params, int microseconds)
{
    const struct itimerval timer = {.it_value = {.tv_usec = microseconds}}, none = {{0}};
    struct run run;
    int aborted = 0;
    cancel = 0;
    setitimer(ITIMER_REAL, &timer, NULL);
    run_prompts(e, prompts, count, params, &run);
    setitimer(ITIMER_REAL, &none, NULL);
    cancel = 0;
    for (int i = 0; i < count; i++) aborted += run.answers[i].finish == FINISH_ABORT;
    run_free(&run);
    return aborted;
}

/* `draft`: the folder of a draft model, or NULL. */
static void check_answers_after_cancelled_steps(int async, const char *draft)
{
    enum { PROMPTS = 3, ROUNDS = 60 };
    const int32_t lengths[PROMPTS] = {200, 150, 90};
    char path[512];
    struct engine_options o = run_options("golden/gqa", path, sizeof path);
    o.async_scheduling = async;
    if (draft) o.speculative.method = DRAFT_MODEL;
    if (draft) snprintf(o.speculative.model, sizeof o.speculative.model, "%s", draft);
    o.cancel = &cancel;
    o.max_num_batched_tokens = 128; /* several steps for the prompts */
    o.max_num_seqs = 4;
    signal(SIGALRM, on_alarm);
    cancel = 0;
    struct engine *e = run_engine(&o);
    struct run_prompt *prompts = run_random_prompts(lengths, PROMPTS, engine_info(e)->config->spec.vocab_size, 7);
    struct sampling_params params = sampling_params_default();
    struct run reference, run;
    int aborted = 0;
    params.temperature = 0;
    params.max_tokens = 20;
    params.ignore_eos = true;
    params.logprobs = 2;
    run_prompts(e, prompts, PROMPTS, &params, &reference);
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 3 == 0) engine_reset_prefix_cache(e);
        aborted += run_with_alarm(e, prompts, PROMPTS, &params, 100 + i * i * 3);
        run_prompts(e, prompts, PROMPTS, &params, &run);
        run_assert_same(&reference, &run, "after a cancelled step");
        run_free(&run);
    }
    print_message("%d of %d answers were cancelled\n", aborted, ROUNDS * PROMPTS);
    assert_true(aborted > 0);
    run_free(&reference);
    run_prompts_free(prompts, PROMPTS);
    engine_destroy(e);
    signal(SIGALRM, SIG_DFL);
}

static void test_answers_after_cancelled_steps(void **state)
{
    (void)state;
    check_answers_after_cancelled_steps(0, NULL);
}

/* The passes of a draft model are cancelled, too, with and without another step in flight. */
static void test_answers_after_cancelled_steps_with_drafts(void **state)
{
    (void)state;
    check_answers_after_cancelled_steps(1, QUIRE_TEST_DATA "/golden/gqa");
    check_answers_after_cancelled_steps(1, QUIRE_TEST_DATA "/golden/mha");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_not_computed_is_not_found),
        cmocka_unit_test(test_requests_that_share),
        cmocka_unit_test(test_earlier_chunks_stay),
        cmocka_unit_test(test_decodes),
        cmocka_unit_test(test_the_step_before_stays_in_flight),
        cmocka_unit_test(test_prompt_logprobs),
        cmocka_unit_test(test_answers_after_cancelled_steps),
        cmocka_unit_test(test_answers_after_cancelled_steps_with_drafts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
