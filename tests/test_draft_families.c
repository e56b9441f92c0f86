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
#include "tests/support/stored_copy.h"

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
        if (method == DRAFT_GRAMMAR) continue;                         /* only of answers with one */
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
        assert_true(method == DRAFT_GRAMMAR || drafts[method] > 10 * choice.count);
    run_prompts_free(prompts, NUM_PROMPTS);
}

/* ---- a head that is right ---- */

enum { HIDDEN = 32 };

static bool is_named(const struct stored_tensor *t, const char *end)
{
    const size_t n = strlen(t->name), m = strlen(end);
    return n >= m && strcmp(t->name + n - m, end) == 0;
}

/* Element [row, column] of a matrix of bfloat16 becomes 1. */
static void set_one(const struct stored_tensor *t, void *bytes, int64_t row, int64_t column)
{
    ((uint16_t *)bytes)[row * t->shape[1] + column] = 0x3F80;
}

/* No layer adds anything, so that the residual stream is the embedding, whose token t < 32 is unit vector t. lm_head
 * finds token t + 1 in it. The head finds the token behind the state's, t + 2, in the state alone: its projection turns
 * unit vector t into t + 1. */
static void make_right(const struct stored_tensor *t, void *bytes)
{
    const bool embeds = is_named(t, ".embed_tokens.weight"), is_lm_head = is_named(t, "lm_head.weight");
    const bool projects = is_named(t, "mtp.fc.weight") || is_named(t, ".eh_proj.weight");
    if (embeds || is_lm_head || projects || is_named(t, "o_proj.weight") || is_named(t, "out_proj.weight") ||
        is_named(t, "down_proj.weight") || is_named(t, "down_proj"))
        memset(bytes, 0, t->bytes);
    for (int64_t i = 0; i < HIDDEN; i++) {
        if (embeds) set_one(t, bytes, i, i);
        if (is_lm_head) set_one(t, bytes, (i + 1) % HIDDEN, i);
        if (projects) set_one(t, bytes, (i + 1) % HIDDEN, HIDDEN + i);
    }
}

/* The states that a head reads, the target's and its own, are those of the tokens before its places: all drafts are
 * right. */
static void test_states(void **state)
{
    (void)state;
    static const char *const heads[] = {"mtp_qwen3_next", "mtp_qwen3_5_moe", "mtp_glm4_moe_lite", "mtp_glm4_moe"};
    struct run_prompt *prompts = run_random_prompts(lengths, NUM_PROMPTS, HIDDEN, 3);
    run_need_device();
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        char from[512];
        struct temp_folder folder;
        struct stored_copy copy = {{0}};
        struct drafted drafted;
        snprintf(from, sizeof from, QUIRE_TEST_DATA "/heads/%s", heads[i]);
        temp_folder_make(&folder);
        temp_folder_copy(&folder, from, "config.json");
        stored_copy_add(&copy, from, "", make_right);
        stored_copy_write(&copy, &folder);
        draft(folder.path, DRAFT_MTP, NULL, prompts, &drafted);
        assert_true(drafted.stats.drafts > NUM_PROMPTS * OUTPUT_TOKENS / 2);
        if (drafted.stats.drafts_accepted < drafted.stats.drafts)
            fail_msg("%s: %d of %d drafts were accepted", heads[i], (int)drafted.stats.drafts_accepted,
                     (int)drafted.stats.drafts);
        run_free(&drafted.run);
        temp_folder_remove(&folder);
    }
    run_prompts_free(prompts, NUM_PROMPTS);
}

/* The head eagle3_layers for a target of two layers. */
static void make_eagle3_of_two_layers(struct temp_folder *folder)
{
    temp_folder_make(folder);
    temp_folder_copy(folder, QUIRE_TEST_DATA "/heads/eagle3_layers", "model.safetensors");
    temp_folder_write_string(
        folder, "config.json",
        "{\"architectures\": [\"LlamaForCausalLMEagle3\"], \"model_type\": \"llama\", \"vocab_size\": 160,"
        "\"draft_vocab_size\": 160, \"hidden_size\": 48, \"target_hidden_size\": 32, \"intermediate_size\": 40,"
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"head_dim\": 64,"
        "\"attention_bias\": true, \"rms_norm_eps\": 1e-05, \"max_position_embeddings\": 256,"
        "\"torch_dtype\": \"bfloat16\","
        "\"eagle_config\": {\"eagle_aux_hidden_state_layer_ids\": [0, 1, 1], \"use_aux_hidden_state\": true}}");
}

/* EAGLE-3 heads of one layer and of several, and a target's own head. Their weights are random, and so are their
 * drafts. */
static void test_heads(void **state)
{
    (void)state;
    static const char target[] = QUIRE_TEST_DATA "/heads/target";
    static const char *const heads[] = {QUIRE_TEST_DATA "/heads/eagle3", QUIRE_TEST_DATA "/heads/eagle3_layers"};
    static const char *const mtp[] = {
        QUIRE_TEST_DATA "/heads/mtp_deepseek_v3", QUIRE_TEST_DATA "/heads/mtp_ernie4_5_moe",
        QUIRE_TEST_DATA "/heads/mtp_glm4_moe",    QUIRE_TEST_DATA "/heads/mtp_glm4_moe_lite",
        QUIRE_TEST_DATA "/heads/mtp_mimo",        QUIRE_TEST_DATA "/heads/mtp_qwen3_5",
        QUIRE_TEST_DATA "/heads/mtp_qwen3_5_moe", QUIRE_TEST_DATA "/heads/mtp_qwen3_next"};
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

/* Each of the drafters, a folder, for the target. */
static void check_drafters(const char *target, const char *const *drafters, size_t count,
                           const struct run_prompt *prompts)
{
    struct drafted plain, drafted;
    draft(target, DRAFT_NONE, NULL, prompts, &plain);
    for (size_t i = 0; i < count; i++) {
        draft(target, DRAFT_MODEL, drafters[i], prompts, &drafted);
        if (run_assert_same(&plain.run, &drafted.run, target) > 1)
            fail_msg("%s, %s: too many near ties", target, drafters[i]);
        assert_true(drafted.stats.drafts > NUM_PROMPTS * OUTPUT_TOKENS);
        run_free(&drafted.run);
    }
    run_free(&plain.run);
}

/* Targets with recurrent layers, which keep the states of a run, and with latent attention, whose blocks have no V.
 * What drafts has neither: a Llama, and an EAGLE-3 head, which reads states in front of layers of any kind. And a draft
 * model with latent attention for a Llama. */
static void test_other_layers(void **state)
{
    (void)state;
    static const char *const targets[] = {QUIRE_TEST_DATA "/heads/mtp_qwen3_next", QUIRE_TEST_DATA "/heads/mtp_qwen3_5",
                                          QUIRE_TEST_DATA "/heads/mtp_glm4_moe_lite"};
    static const char llama[] = QUIRE_TEST_DATA "/heads/target";
    struct run_prompt *prompts = make_prompts();
    struct temp_folder head;
    run_need_device();
    make_eagle3_of_two_layers(&head);
    const char *const drafters[] = {llama, head.path};
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) check_drafters(targets[i], drafters, 2, prompts);
    check_drafters(llama, &targets[2], 1, prompts);
    temp_folder_remove(&head);
    run_prompts_free(prompts, NUM_PROMPTS);
}

/* Whatever the target has. */
static void test_recurrent_draft_model(void **state)
{
    (void)state;
    static const char *const targets[] = {QUIRE_TEST_DATA "/heads/target", QUIRE_TEST_DATA "/heads/mtp_qwen3_next"};
    for (int i = 0; i < 2; i++) {
        char path[512];
        struct engine_options o = run_options(targets[i], path, sizeof path);
        struct engine *e;
        struct error err;
        o.speculative.method = DRAFT_MODEL;
        snprintf(o.speculative.model, sizeof o.speculative.model, QUIRE_TEST_DATA "/heads/mtp_qwen3_next");
        assert_int_equal(engine_create(&o, &e, &err), STATUS_UNSUPPORTED);
        assert_non_null(strstr(err.text, "the draft model has recurrent layers"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families), cmocka_unit_test(test_heads),
                                       cmocka_unit_test(test_other_layers), cmocka_unit_test(test_states),
                                       cmocka_unit_test(test_recurrent_draft_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
