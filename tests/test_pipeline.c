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

static void run_folder(const char *folder, const struct run_variant *v, int32_t num_stages, int32_t num_ranks,
                       bool drafts, struct run *run, struct scheduler_stats *stats)
{
    char path[512];
    struct engine_options options = run_variant_options(folder, RUN_MIXED_LENGTH, v, path, sizeof path);
    options.tensor_parallel_size = num_ranks;
    options.pipeline_parallel_size = num_stages;
    if (drafts) options.speculative.method = DRAFT_NGRAM;
    options.speculative.num_speculative_tokens = 3;
    options.fixed_drafts = true;
    run_mixed(&options, run, stats);
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
        assert_stages_answer_alike(folders[i], &run_plenty, 2, 1, false);
        const struct scheduler_stats stats = assert_stages_answer_alike(folders[i], &run_scarce, 2, 1, i % 2);
        preempted += stats.preemptions_swap + stats.preemptions_recompute > 0;
        if (most >= 4) assert_stages_answer_alike(folders[i], &run_plenty, 2, 2, i % 2);
    }
    assert_true(preempted > 2);
}

static void test_three_stages(void **state)
{
    (void)state;
    if (run_max_ranks() < 3) return;
    assert_stages_answer_alike("golden/granite4_h", &run_plenty, 3, 1, false);
    assert_stages_answer_alike("golden/granite4_h", &run_scarce, 3, 1, true);
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
    struct engine_options options = run_variant_options("golden/mha", RUN_MIXED_LENGTH, &run_plenty, path, sizeof path);
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

/* A step that is cancelled ends in all stages, whichever of them sees it first; and then others go on. */
static void test_cancel(void **state)
{
    (void)state;
    char path[512];
    struct engine_options options = run_variant_options("golden/mha", RUN_MIXED_LENGTH, &run_plenty, path, sizeof path);
    options.device = "cpu";
    options.pipeline_parallel_size = 2;
    run_cancelled(&options);
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
