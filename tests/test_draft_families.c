/* Every family with every drafter gives the tokens of plain decoding: the golden checkpoints with n-grams, with
 * suffixes and with themselves as draft models, and a target with its heads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/config.h"
#include "model/state_cache.h"
#include "tests/support/golden_choice.h"
#include "tests/support/run.h"

enum { VOCABULARY = 160, NUM_PROMPTS = 3, OUTPUT_TOKENS = 24, REPEATED = 6, MAX_MODEL_LEN = 120 };

static const int32_t lengths[NUM_PROMPTS] = {5, 30, 72}; /* windows have 24 tokens */

/* Some tokens again and again, so that n-grams are found. */
static struct run_prompt *make_prompts(void)
{
    struct run_prompt *prompts = run_random_prompts(lengths, NUM_PROMPTS, VOCABULARY, 3);
    for (int32_t i = 0; i < NUM_PROMPTS; i++)
        for (int32_t k = REPEATED; k < prompts[i].length; k++)
            ((int32_t *)prompts[i].ids)[k] = prompts[i].ids[k - REPEATED];
    return prompts;
}

/* What drafts of a model gave. */
struct drafted {
    struct run run;
    struct scheduler_stats stats;
};

/* `model` is the draft model's folder; NULL: the target's. */
static void draft(const char *folder, enum draft_method method, const char *model, const struct run_prompt *prompts,
                  struct drafted *out)
{
    char path[512];
    struct sampling_params params = sampling_params_default();
    struct engine_options o = run_options(folder, path, sizeof path);
    params.temperature = 0;
    params.logprobs = 2;
    params.max_tokens = OUTPUT_TOKENS;
    params.ignore_eos = true;
    o.max_model_len = MAX_MODEL_LEN;
    o.fixed_drafts = true;
    o.speculative.method = method;
    o.speculative.prompt_lookup_min = 1;
    o.speculative.num_speculative_tokens = 5;
    snprintf(o.speculative.model, sizeof o.speculative.model, "%s",
             method != DRAFT_MODEL ? ""
             : model               ? model
                                   : o.model);
    struct engine *e = run_engine(&o);
    run_prompts(e, prompts, NUM_PROMPTS, &params, &out->run);
    engine_stats(e, &out->stats);
    engine_destroy(e);
}

static bool has_states(const char *checkpoint)
{
    struct model_config *config = golden_config(checkpoint);
    const bool found = state_cache_slot_bytes(&config->spec) > 0;
    free(config);
    return found;
}

/* Adds to drafts[method] how many there were. */
static void check(const char *checkpoint, const struct run_prompt *prompts, int64_t drafts[NUM_DRAFT_METHODS])
{
    struct drafted plain, drafted;
    char folder[256];
    snprintf(folder, sizeof folder, "golden/%s", checkpoint);
    draft(folder, DRAFT_NONE, NULL, prompts, &plain);
    assert_int_equal(plain.stats.drafts, 0);
    for (enum draft_method method = DRAFT_NONE + 1; method <= DRAFT_MODEL; method++) {
        if (method == DRAFT_MODEL && has_states(checkpoint)) continue; /* refused */
        char what[200];
        snprintf(what, sizeof what, "%s, %s", checkpoint, draft_method_name(method));
        draft(folder, method, NULL, prompts, &drafted);
        drafts[method] += drafted.stats.drafts;
        if (run_assert_same(&plain.run, &drafted.run, what) > 1) fail_msg("%s: too many near ties", what);
        if (method == DRAFT_MODEL && drafted.stats.drafts_accepted * 10 < drafted.stats.drafts * 9)
            fail_msg("%s: %d of %d drafts were accepted", what, (int)drafted.stats.drafts_accepted,
                     (int)drafted.stats.drafts);
        run_free(&drafted.run);
    }
    run_free(&plain.run);
}

static void test_families(void **state)
{
    (void)state;
    const struct golden_choice choice = golden_choose();
    struct run_prompt *prompts = make_prompts();
    int64_t drafts[NUM_DRAFT_METHODS] = {0};
    for (int i = 0; i < choice.count; i++) check(choice.names[i], prompts, drafts);
    for (enum draft_method method = DRAFT_NONE + 1; method <= DRAFT_MODEL; method++)
        assert_true(drafts[method] > 10 * choice.count);
    run_prompts_free(prompts, NUM_PROMPTS);
}

/* EAGLE-3 heads of one layer and of several, and a target's own head. Their weights are random, and so are their
 * drafts. */
static void test_heads(void **state)
{
    (void)state;
    static const char target[] = QUIRE_TEST_DATA "/heads/target";
    static const char *const heads[] = {QUIRE_TEST_DATA "/heads/eagle3", QUIRE_TEST_DATA "/heads/eagle3_layers"};
    static const char *const mtp[] = {QUIRE_TEST_DATA "/heads/mtp_ernie4_5_moe", QUIRE_TEST_DATA "/heads/mtp_glm4_moe",
                                      QUIRE_TEST_DATA "/heads/mtp_mimo"};
    struct run_prompt *prompts = make_prompts();
    struct drafted plain, drafted;
    run_need_device();
    for (size_t i = 0; i < sizeof mtp / sizeof *mtp; i++) {
        draft(mtp[i], DRAFT_NONE, NULL, prompts, &plain);
        draft(mtp[i], DRAFT_MTP, NULL, prompts, &drafted);
        if (run_assert_same(&plain.run, &drafted.run, mtp[i]) > 1) fail_msg("%s: too many near ties", mtp[i]);
        assert_true(drafted.stats.drafts > NUM_PROMPTS * OUTPUT_TOKENS);
        run_free(&plain.run);
        run_free(&drafted.run);
    }
    draft(target, DRAFT_NONE, NULL, prompts, &plain);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        draft(target, DRAFT_MODEL, heads[i], prompts, &drafted);
        if (run_assert_same(&plain.run, &drafted.run, heads[i]) > 1) fail_msg("%s: too many near ties", heads[i]);
        assert_true(drafted.stats.drafts > NUM_PROMPTS * OUTPUT_TOKENS);
        run_free(&drafted.run);
    }
    run_free(&plain.run);
    run_prompts_free(prompts, NUM_PROMPTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families), cmocka_unit_test(test_heads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
