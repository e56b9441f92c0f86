/* Engines whose model several ranks share (model/shard.h): they answer as one that computes everything. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/must.h"
#include "tests/support/run.h"

/* How an engine drafts. */
struct drafting {
    enum draft_method method;
    const char *model; /* of DRAFT_MODEL, in the test data; else NULL */
};
static const struct drafting no_drafts = {DRAFT_NONE, NULL}, ngram = {DRAFT_NGRAM, NULL}, mtp = {DRAFT_MTP, NULL};

/* How ranks share a model. */
struct sharing {
    int32_t num_ranks;
    bool expert_parallel;
};

static void run_folder(const char *folder, const struct run_variant *v, struct sharing sharing,
                       const struct drafting *drafting, struct run *run, struct scheduler_stats *stats)
{
    char path[512];
    struct engine_options options = run_variant_options(folder, RUN_MIXED_LENGTH, v, path, sizeof path);
    options.tensor_parallel_size = sharing.num_ranks;
    options.enable_expert_parallel = sharing.expert_parallel;
    options.speculative.method = drafting->method;
    options.speculative.num_speculative_tokens = 3;
    options.fixed_drafts = true;
    if (drafting->model)
        snprintf(options.speculative.model, sizeof options.speculative.model, "%s/%s", QUIRE_TEST_DATA,
                 drafting->model);
    run_mixed(&options, run, stats);
}

/* As one rank without drafts. Returns what became of the drafts. */
static struct scheduler_stats assert_answers_alike(const char *folder, const struct run_variant *v,
                                                   struct sharing sharing, const struct drafting *drafting)
{
    struct run one, several;
    struct scheduler_stats stats;
    char what[512];
    snprintf(what, sizeof what, "%s, %s, %d ranks%s, drafts: %s %s", folder, v->name, sharing.num_ranks,
             sharing.expert_parallel ? ", whole experts" : "", draft_method_name(drafting->method),
             drafting->model ? drafting->model : "");
    run_folder(folder, v, (struct sharing){.num_ranks = 1}, &no_drafts, &one, &stats);
    run_folder(folder, v, sharing, drafting, &several, &stats);
    print_message("%s: %d cut, %d of %d drafts accepted\n", what, run_assert_same(&one, &several, what),
                  (int)stats.drafts_accepted, (int)stats.drafts);
    run_free(&one);
    run_free(&several);
    return stats;
}

static struct scheduler_stats assert_ranks_answer_alike(const char *folder, const struct run_variant *v,
                                                        int32_t num_ranks, const struct drafting *drafting)
{
    return assert_answers_alike(folder, v, (struct sharing){.num_ranks = num_ranks}, drafting);
}

static void test_answers(void **state)
{
    (void)state;
    static const char *const folders[] = {
        "golden/mha",       "golden/gqa",     "golden/qwen2",       "golden/gemma3",      "golden/mixtral",
        "golden/qwen3_moe", "golden/gpt_oss", "golden/deepseek_v3", "golden/qwen3_5_moe", "golden/qwen3_next"};
    const int32_t most = run_max_ranks();
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        assert_ranks_answer_alike(folders[i], &run_plenty, 2, &no_drafts);
        assert_ranks_answer_alike(folders[i], &run_scarce, 2, &no_drafts);
        assert_ranks_answer_alike(folders[i], &run_plenty, 2, &ngram);
    }
    if (most >= 4) assert_ranks_answer_alike("golden/mha", &run_scarce, 4, &ngram);
}

static void test_answers_of_expert_parallel(void **state)
{
    (void)state;
    static const char *const folders[] = {"golden/qwen3_moe", "golden/gpt_oss", "golden/deepseek_v3", "golden/dbrx",
                                          "golden/nemotron_h_latent"};
    const struct sharing two = {2, true}, three = {3, true}, eight = {8, true};
    const struct drafting itself = {DRAFT_MODEL, "golden/many_experts"};
    const int32_t most = run_max_ranks();
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        assert_answers_alike(folders[i], i % 3 ? &run_plenty : &run_scarce, two, i % 2 ? &ngram : &no_drafts);
    assert_answers_alike(QUIRE_TEST_DATA "/heads/mtp_glm4_moe", &run_plenty, two, &mtp);
    if (most >= 3) assert_answers_alike("golden/many_experts", &run_scarce, three, &itself);
    if (most >= 8) assert_answers_alike("golden/many_experts", &run_plenty, eight, &ngram);
}

/* A model as its own draft model guesses what it draws, on as many ranks as it, whatever is in their caches. */
static void test_draft_models(void **state)
{
    (void)state;
    static const char *const models[] = {"golden/mha", "golden/qwen3_moe", "golden/deepseek_v3"};
    const int32_t most = run_max_ranks();
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        const struct drafting itself = {DRAFT_MODEL, models[i]};
        const struct scheduler_stats stats = assert_ranks_answer_alike(models[i], &run_plenty, 2, &itself);
        assert_true(stats.drafts > 100 && stats.drafts_accepted * 10 > stats.drafts * 9);
        assert_ranks_answer_alike(models[i], &run_scarce, 2, &itself);
    }
    if (most >= 4)
        assert_ranks_answer_alike("golden/mha", &run_scarce, 4, &(struct drafting){DRAFT_MODEL, "golden/mha"});
}

/* Heads of random weights. */
static void test_heads(void **state)
{
    (void)state;
    static const char *const with_mtp[] = {"mtp_deepseek_v3", "mtp_glm4_moe", "mtp_mimo", "mtp_qwen3_next"};
    static const char *const heads[] = {"heads/eagle3", "heads/eagle3_layers"};
    run_max_ranks();
    for (size_t i = 0; i < sizeof with_mtp / sizeof *with_mtp; i++) {
        char folder[512];
        snprintf(folder, sizeof folder, QUIRE_TEST_DATA "/heads/%s", with_mtp[i]);
        assert_true(assert_ranks_answer_alike(folder, &run_plenty, 2, &mtp).drafts > 100);
        assert_ranks_answer_alike(folder, &run_scarce, 2, &mtp);
    }
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        const struct drafting head = {DRAFT_MODEL, heads[i]};
        assert_true(assert_ranks_answer_alike(QUIRE_TEST_DATA "/heads/target", &run_plenty, 2, &head).drafts > 100);
        assert_ranks_answer_alike(QUIRE_TEST_DATA "/heads/target", &run_scarce, 2, &head);
    }
}

#define QUANTIZED(name) QUIRE_TEST_DATA "/quantized/" name

/* Those of which a CPU does not round x to 8 bits: ranks would round other columns together. */
static void test_quantized_answers(void **state)
{
    (void)state;
    static const char *const folders[] = {
        QUANTIZED("fp8"),      QUANTIZED("fp8-static"), QUANTIZED("ct-fp8-channel"), QUANTIZED("ct-fp8-kv"),
        QUANTIZED("ct-mixed"), QUANTIZED("ct-mxfp4"),   QUANTIZED("ct-nvfp4"),       QUANTIZED("ct-w4a16-asym"),
        QUANTIZED("awq"),      QUANTIZED("gptq-v2"),    QUANTIZED("gated-ct-w4a16"), QUANTIZED("moe-modelopt-fp8")};
    run_max_ranks();
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        assert_ranks_answer_alike(folders[i], &run_plenty, 2, &no_drafts);
}

/* What an engine of so many ranks is refused with. */
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
    options.tensor_parallel_size = 3;
    assert_refused(&options, "the number of attention heads is 4, which 3 ranks cannot share equally");
    options.tensor_parallel_size = 4;
    options.speculative.method = DRAFT_MODEL;
    snprintf(options.speculative.model, sizeof options.speculative.model, QUIRE_TEST_DATA "/golden/qwen2");
    assert_refused(&options, "the draft model: layer 0: the number of attention heads is 2, which 4 ranks");
    options.speculative.method = DRAFT_NONE;
    options.tensor_parallel_size = 2;
    options.enable_expert_parallel = true;
    assert_refused(&options, "the model has no experts, which enable_expert_parallel shares out");
    options.tensor_parallel_size = 1;
    assert_refused(&options, "enable_expert_parallel shares the experts out to ranks, but tensor_parallel_size is 1");
    options.tensor_parallel_size = 2;
    options.enable_expert_parallel = false;
    options.device = "cuda:0,1,2";
    assert_refused(&options, "names 3 GPUs, but tensor_parallel_size is 2");
    options.device = "cpu";
    options.cpu_offload_experts = 1;
    assert_refused(&options, "does not combine with cpu_offload_experts");
}

/* A step that is cancelled ends on all ranks, whichever of them sees it first. */
static void test_cancel(void **state)
{
    (void)state;
    char path[512];
    struct engine_options options = run_variant_options("golden/mha", RUN_MIXED_LENGTH, &run_plenty, path, sizeof path);
    options.tensor_parallel_size = 2;
    run_cancelled(&options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_answers_of_expert_parallel),
        cmocka_unit_test(test_draft_models),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_quantized_answers),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_cancel),
    };
    const struct CMUnitTest gpu_tests[] = {
        cmocka_unit_test(test_answers),           cmocka_unit_test(test_answers_of_expert_parallel),
        cmocka_unit_test(test_draft_models),      cmocka_unit_test(test_heads),
        cmocka_unit_test(test_quantized_answers),
    };
    const int failed = cmocka_run_group_tests_name("cpu", tests, NULL, NULL);
    run_set_device("cuda");
    return failed + cmocka_run_group_tests_name("cuda", gpu_tests, NULL, NULL);
}
