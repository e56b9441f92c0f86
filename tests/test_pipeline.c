/* Engines whose model is computed in stages (model/stage.h): they answer as one that computes everything. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/must.h"
#include "tests/support/run.h"

enum { MAX_LENGTH = 160, NUM_PROMPTS = 9 };

/* Prompts of one to some forty tokens; the fourth and the fifth begin alike. */
static struct run_prompt *some_prompts(int32_t vocab_size)
{
    static const int32_t lengths[NUM_PROMPTS] = {1, 7, 33, 40, 44, 2, 17, 16, 31};
    struct run_prompt *prompts = run_random_prompts(lengths, NUM_PROMPTS, vocab_size, 6);
    memcpy((int32_t *)prompts[4].ids, prompts[3].ids, (size_t)lengths[3] * sizeof *prompts[3].ids);
    return prompts;
}

static const struct run_variant plenty = {
    "plenty", .block_size = 16, .max_num_seqs = 16, .max_num_batched_tokens = 64, .caching = true, .async = -1};
/* Two long answers do not fit, so that requests are preempted. */
static const struct run_variant scarce = {
    "scarce",         .block_size = 16, .max_num_seqs = 8, .max_num_batched_tokens = 24,
    .num_blocks = 17, .caching = true,  .async = -1,       .preemption_mode = PREEMPTION_SWAP};

/* Greedy, sampled with several answers, with penalties, and with log-probabilities of the prompt. */
static void make_params(struct sampling_params params[NUM_PROMPTS])
{
    for (int i = 0; i < NUM_PROMPTS; i++) {
        params[i] = sampling_params_default();
        params[i].ignore_eos = true;
        params[i].max_tokens = 24;
        params[i].temperature = i % 3 == 1 ? 0.8f : 0;
        params[i].seed = 100 + (uint64_t)i;
        if (i % 3 == 1) params[i].n = 2;
        if (i == 5) params[i].repetition_penalty = 1.3f;
        if (i == 6) params[i].prompt_logprobs = 1;
    }
}

static void run_folder(const char *folder, const struct run_variant *v, int32_t num_stages, int32_t num_ranks,
                       bool drafts, struct run *run, struct scheduler_stats *stats)
{
    char path[512];
    struct sampling_params params[NUM_PROMPTS];
    struct engine_options options = run_variant_options(folder, MAX_LENGTH, v, path, sizeof path);
    options.tensor_parallel_size = num_ranks;
    options.pipeline_parallel_size = num_stages;
    if (drafts) options.speculative.method = DRAFT_NGRAM;
    options.speculative.num_speculative_tokens = 3;
    options.fixed_drafts = true;
    struct engine *e = run_engine(&options);
    struct run_prompt *prompts = some_prompts(engine_info(e)->num_ids);
    make_params(params);
    run_requests(e, prompts, NUM_PROMPTS, params, run);
    engine_stats(e, stats);
    run_prompts_free(prompts, NUM_PROMPTS);
    engine_destroy(e);
}

/* As one stage without drafts. */
static struct scheduler_stats assert_stages_answer_alike(const char *folder, const struct run_variant *v,
                                                         int32_t num_stages, int32_t num_ranks, bool drafts)
{
    struct run one, several;
    struct scheduler_stats stats;
    char what[512];
    snprintf(what, sizeof what, "%s, %s, %d stages of %d%s", folder, v->name, num_stages, num_ranks,
             drafts ? ", drafts" : "");
    run_folder(folder, v, 1, 1, false, &one, &stats);
    run_folder(folder, v, num_stages, num_ranks, drafts, &several, &stats);
    print_message("%s: %d cut, %lld steps\n", what, run_assert_same(&one, &several, what), (long long)stats.steps);
    run_free(&one);
    run_free(&several);
    return stats;
}

/* Full attention, windows in groups, experts, latents, and states. */
static void test_answers(void **state)
{
    (void)state;
    static const char *const folders[] = {"golden/mha",     "golden/qwen2",       "golden/gemma3",
                                          "golden/gpt_oss", "golden/deepseek_v3", "golden/qwen3_next"};
    const int32_t most = run_max_ranks();
    int preempted = 0; /* models with few blocks that preempted requests */
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        assert_stages_answer_alike(folders[i], &plenty, 2, 1, false);
        const struct scheduler_stats stats = assert_stages_answer_alike(folders[i], &scarce, 2, 1, i % 2);
        preempted += stats.preemptions_swap + stats.preemptions_recompute > 0;
        if (most >= 4) assert_stages_answer_alike(folders[i], &plenty, 2, 2, i % 2);
    }
    assert_true(preempted > 2);
}

static void test_three_stages(void **state)
{
    (void)state;
    if (run_max_ranks() < 3) return;
    assert_stages_answer_alike("golden/granite4_h", &plenty, 3, 1, false);
    assert_stages_answer_alike("golden/granite4_h", &scarce, 3, 1, true);
}

static void assert_refused(const struct engine_options *options, const char *sentence)
{
    struct engine *e;
    struct error err;
    assert_int_not_equal(engine_create(options, &e, &err), STATUS_OK);
    assert_null(e);
    if (!strstr(err.text, sentence)) fail_msg("\"%s\" does not say \"%s\"", err.text, sentence);
}

static void test_refusals(void **state)
{
    (void)state;
    char path[512];
    struct engine_options options = run_variant_options("golden/mha", MAX_LENGTH, &plenty, path, sizeof path);
    options.device = "cpu";
    options.pipeline_parallel_size = 8;
    assert_refused(&options, "layers are too few for 8 stages");
    options.tensor_parallel_size = 2;
    assert_refused(&options,
                   "tensor_parallel_size 2 and pipeline_parallel_size 8 make 16 ranks; there may be 8 at most");
    options.pipeline_parallel_size = 2;
    options.device = "cuda:0,1,2";
    assert_refused(&options, "names 3 GPUs, but tensor_parallel_size 2 and pipeline_parallel_size 2 need 4");
    options.device = "cpu";
    options.speculative.method = DRAFT_MODEL;
    snprintf(options.speculative.model, sizeof options.speculative.model, QUIRE_TEST_DATA "/golden/mha");
    assert_refused(&options, "pipeline_parallel_size is 2, which quire does not combine with a draft model");
}

static void stop_at_once(void *flag, const struct answer_piece *piece)
{
    (void)piece;
    *(volatile sig_atomic_t *)flag = 1;
}

/* A step that is cancelled ends in all stages, whichever of them sees it first; and then others go on. */
static void test_cancel(void **state)
{
    (void)state;
    char path[512];
    volatile sig_atomic_t cancel = 0;
    struct engine_options options = run_variant_options("golden/mha", MAX_LENGTH, &plenty, path, sizeof path);
    options.device = "cpu";
    options.pipeline_parallel_size = 2;
    options.cancel = &cancel;
    struct engine *e = run_engine(&options);
    struct run_prompt *prompts = some_prompts(engine_info(e)->num_ids);
    struct sampling_params params = sampling_params_default();
    const struct engine_request request = {.prompt = prompts[3].ids,
                                           .prompt_len = prompts[3].length,
                                           .params = &params,
                                           .deliver = stop_at_once,
                                           .user = (void *)&cancel};
    struct error err;
    params.ignore_eos = true;
    params.max_tokens = 100;
    for (int i = 0; i < 3; i++) {
        cancel = 0;
        must(engine_add(e, &request, NULL, &err), &err);
        for (bool worked = true; engine_has_work(e) && worked;) must(engine_step(e, &worked, &err), &err);
        assert_int_equal(cancel, 1);
        assert_false(engine_has_work(e));
    }
    run_prompts_free(prompts, NUM_PROMPTS);
    engine_destroy(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_three_stages),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_cancel),
    };
    const struct CMUnitTest gpu_tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_three_stages),
    };
    const int failed = cmocka_run_group_tests_name("cpu", tests, NULL, NULL);
    run_set_device("cuda");
    return failed + cmocka_run_group_tests_name("cuda", gpu_tests, NULL, NULL);
}
