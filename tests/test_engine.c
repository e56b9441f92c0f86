/* The engine, on the CPU and on a GPU: the same tokens whatever the path, seeds, aborts, threads, stop conditions,
 * admission, and no heap allocation in the step loop. Every comparison takes as its reference the engine in its
 * simplest configuration, whose results test_golden checks. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/file.h"
#include "model/model.h"
#include "runtime/commands.h"
#include "runtime/engine/loaded_model.h"
#include "tests/support/padded_model.h"
#include "tests/support/run.h"
#include "tests/support/toy_model.h"

#define OUTPUT_TOKENS 40

static const int32_t lengths[] = {1, 7, 33, 70, 33, 15, 16, 17, 64, 100, 2, 48};
enum { NUM_PROMPTS = sizeof lengths / sizeof *lengths };

static struct sampling_params greedy(void)
{
    struct sampling_params p = sampling_params_default();
    p.temperature = 0;
    p.max_tokens = OUTPUT_TOKENS;
    p.ignore_eos = true;
    p.logprobs = 2;
    return p;
}

/* Prompts 2 and 4 are the same, and 9 starts with prompt 3's first 64 tokens, so that caches have something to find. */
static struct run_prompt *test_prompts(int32_t vocab_size)
{
    struct run_prompt *prompts = run_random_prompts(lengths, NUM_PROMPTS, vocab_size, 7);
    memcpy((void *)prompts[4].ids, prompts[2].ids, 33 * sizeof(int32_t));
    memcpy((void *)prompts[9].ids, prompts[3].ids, 64 * sizeof(int32_t));
    return prompts;
}

/* ---- the same tokens whatever the path ---- */

static const struct run_variant variants[] = {
    {"batched", 16, 16, 512, 0, true, 0, PREEMPTION_AUTO},
    {"batched, no cache", 16, 16, 512, 0, false, 0, PREEMPTION_AUTO},
    {"two steps in flight", 16, 16, 512, 0, true, 1, PREEMPTION_AUTO},
    {"chunks of 1", 16, 1, 1, 0, true, 0, PREEMPTION_AUTO},
    {"chunks of 3", 16, 2, 3, 0, false, 0, PREEMPTION_AUTO},
    {"chunks of 16", 16, 4, 16, 0, true, 1, PREEMPTION_AUTO},
    {"chunks of 17", 8, 4, 17, 0, true, 0, PREEMPTION_AUTO},
    {"chunks of 64", 32, 16, 64, 0, false, 0, PREEMPTION_AUTO},
    {"blocks of 8", 8, 16, 512, 0, true, 0, PREEMPTION_AUTO},
    {"blocks of 32", 32, 16, 512, 0, true, 1, PREEMPTION_AUTO},
    {"blocks of 128", 128, 16, 512, 0, true, 0, PREEMPTION_AUTO},
    {"preemption", 8, 16, 512, 34, true, 0, PREEMPTION_AUTO},
    {"preemption, no cache, in flight", 8, 16, 64, 34, false, 1, PREEMPTION_AUTO},
    {"swapping", 8, 16, 512, 34, true, 0, PREEMPTION_SWAP},
    {"swapping, no cache, in flight", 8, 16, 64, 34, false, 1, PREEMPTION_SWAP},
};

static struct engine *variant_engine(const char *folder, const struct run_variant *v)
{
    return run_variant_engine(folder, 200, v);
}

/* A variant with few blocks was made to preempt, and to swap if its mode, or several answers, ask for it. */
static void check_preemptions(struct engine *e, const struct run_variant *v, int32_t n)
{
    struct scheduler_stats stats;
    engine_stats(e, &stats);
    if (v->num_blocks == 0) return;
    const bool swaps = v->preemption_mode == PREEMPTION_AUTO ? n > 1 : v->preemption_mode == PREEMPTION_SWAP;
    if (stats.preemptions_recompute + stats.preemptions_swap == 0) fail_msg("%s: nothing was preempted", v->name);
    if (swaps != (stats.preemptions_swap > 0) || swaps != (stats.blocks_swapped_out > 0))
        fail_msg("%s: %lld blocks were swapped out", v->name, (long long)stats.blocks_swapped_out);
    assert_int_equal(stats.host_blocks_in_use, 0);
}

/* Whether a model takes a path. With AddressSanitizer one model takes all; of the others, whose code is the same, those
 * with most in flight are enough, and with ThreadSanitizer of all. */
static bool is_taken(const char *folder, const struct run_variant *v)
{
#if defined(__SANITIZE_THREAD__)
    return folder && v->async && v->num_blocks > 0;
#elif defined(__SANITIZE_ADDRESS__)
    return strcmp(folder, "golden/gqa") == 0 || (v->async && v->num_blocks > 0);
#else
    return folder && v;
#endif
}

static void same_tokens(const char *folder)
{
    const struct run_variant alone = {"alone", 16, 1, 512, 0, false, 0, PREEMPTION_AUTO};
    const struct sampling_params params = greedy();
    struct engine *e = variant_engine(folder, &alone);
    struct run_prompt *prompts = test_prompts(engine_info(e)->config->spec.vocab_size);
    struct run reference, other;
    run_prompts(e, prompts, NUM_PROMPTS, &params, &reference);
    engine_destroy(e);
    int cut = 0;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        const struct run_variant *v = &variants[i];
        if (!is_taken(folder, v)) continue;
        e = variant_engine(folder, v);
        run_prompts(e, prompts, NUM_PROMPTS, &params, &other);
        check_preemptions(e, v, 1);
        cut += run_assert_same(&reference, &other, v->name);
        run_free(&other);
        /* A second time: with a cache, now every prompt has a cached prefix. */
        run_prompts(e, prompts, NUM_PROMPTS, &params, &other);
        cut += run_assert_same(&reference, &other, v->name);
        if (v->caching && v->num_blocks == 0 && v->block_size <= 32)
            assert_true(other.answers[9].cached_tokens >= 96 / v->block_size * v->block_size);
        run_free(&other);
        engine_destroy(e);
    }
    if (cut > 12) fail_msg("%d answers were cut at a near tie: too many to call the paths the same", cut);
    run_free(&reference);
    run_prompts_free(prompts, NUM_PROMPTS);
}

static void test_same_tokens_mha(void **state)
{
    (void)state;
    same_tokens("golden/mha");
}

static void test_same_tokens_gqa(void **state)
{
    (void)state;
    same_tokens("golden/gqa");
}

static void test_same_tokens_mqa(void **state)
{
    (void)state;
    same_tokens("golden/mqa");
}

static void test_same_tokens_sliding(void **state)
{
    (void)state;
    same_tokens("golden/sliding");
}

/* Most of its sequences cross longrope's switch, or begin past it. */
static void test_same_tokens_longrope(void **state)
{
    (void)state;
    same_tokens("golden/phi3");
}

/* ---- forks ---- */

static const struct run_variant roomy = {"roomy", 16, 16, 512, 0, true, 0, PREEMPTION_AUTO};

/* vLLM's rule: several answers need a temperature. With this one the draw decides nothing but near ties. */
#define NEARLY_GREEDY 2e-5

static void forks_are_one_answer(const char *folder)
{
    struct sampling_params params = greedy();
    const struct run_variant forms[] = {roomy,
                                        {"two in flight", 16, 16, 512, 0, true, 1, PREEMPTION_AUTO},
                                        {"small chunks", 8, 16, 20, 0, false, 0, PREEMPTION_AUTO},
                                        {"swapped", 8, 16, 512, 40, false, 0, PREEMPTION_AUTO},
                                        {"swapped, cache, in flight", 8, 16, 64, 40, true, 1, PREEMPTION_AUTO},
                                        {"preempted", 8, 16, 512, 40, false, 0, PREEMPTION_RECOMPUTE}};
    struct engine *e = variant_engine(folder, &roomy);
    struct run_prompt *prompts = test_prompts(engine_info(e)->config->spec.vocab_size);
    struct run one, many;
    run_prompts(e, prompts, NUM_PROMPTS, &params, &one);
    engine_destroy(e);
    params.n = 3;
    params.temperature = NEARLY_GREEDY;
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        e = variant_engine(folder, &forms[f]);
        run_prompts(e, prompts, NUM_PROMPTS, &params, &many);
        check_preemptions(e, &forms[f], 3);
        for (int32_t j = 0; j < 3; j++) { /* every fork is the one greedy answer */
            struct run_answer picked[NUM_PROMPTS];
            for (int32_t i = 0; i < NUM_PROMPTS; i++) picked[i] = many.answers[i * 3 + j];
            const struct run fork = {.answers = picked, .num_prompts = NUM_PROMPTS, .n = 1};
            run_assert_same(&one, &fork, forms[f].name);
        }
        run_free(&many);
        engine_destroy(e);
    }
    run_free(&one);
    run_prompts_free(prompts, NUM_PROMPTS);
}

static void test_forks_are_one_answer(void **state)
{
    (void)state;
    forks_are_one_answer("golden/gqa");
}

static void test_forks_of_longrope_are_one_answer(void **state)
{
    (void)state;
    forks_are_one_answer("golden/phi3");
}

static struct sampling_params three_seeded(void)
{
    struct sampling_params params = greedy();
    params.temperature = 1;
    params.top_p = 0.95;
    params.has_seed = true;
    params.seed = 42;
    params.n = 3;
    params.logprobs = -1;
    return params;
}

static void test_seed_whatever_the_batch(void **state)
{
    (void)state;
    struct sampling_params params = three_seeded();
    struct engine *e = variant_engine("golden/gqa", &roomy);
    struct run_prompt *prompts = test_prompts(engine_info(e)->config->spec.vocab_size);
    struct run batched, alone;
    run_prompts(e, prompts, NUM_PROMPTS, &params, &batched);
    for (int32_t i = 0; i < NUM_PROMPTS; i++) {
        run_prompts(e, &prompts[i], 1, &params, &alone);
        for (int32_t j = 0; j < 3; j++)
            assert_memory_equal(alone.answers[j].tokens, batched.answers[i * 3 + j].tokens,
                                OUTPUT_TOKENS * sizeof(int32_t));
        assert_memory_not_equal(alone.answers[0].tokens, alone.answers[1].tokens, OUTPUT_TOKENS * sizeof(int32_t));
        run_free(&alone);
    }
    params.seed = 43;
    run_prompts(e, prompts, 1, &params, &alone);
    assert_memory_not_equal(alone.answers[0].tokens, batched.answers[0].tokens, OUTPUT_TOKENS * sizeof(int32_t));
    run_free(&alone);
    run_free(&batched);
    engine_destroy(e);
    run_prompts_free(prompts, NUM_PROMPTS);
}

/* The requests have a penalty, so that the token counts that the device keeps for a sequence must be restored too. */
static void test_seed_whatever_the_preemption(void **state)
{
    (void)state;
    struct sampling_params params = three_seeded();
    params.presence_penalty = 0.5;
    const struct run_variant forms[] = {
        {"swapped", 8, 16, 512, 40, true, 0, PREEMPTION_AUTO},
        {"swapped, in flight", 8, 16, 512, 40, true, 1, PREEMPTION_AUTO},
        {"swapped, small chunks", 8, 16, 20, 40, false, 1, PREEMPTION_SWAP},
        {"computed again", 8, 16, 512, 40, true, 1, PREEMPTION_RECOMPUTE},
    };
    struct engine *e = variant_engine("golden/gqa", &roomy);
    struct run_prompt *prompts = test_prompts(engine_info(e)->config->spec.vocab_size);
    struct run reference, other;
    run_prompts(e, prompts, NUM_PROMPTS, &params, &reference);
    engine_destroy(e);
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        e = variant_engine("golden/gqa", &forms[f]);
        run_prompts(e, prompts, NUM_PROMPTS, &params, &other);
        check_preemptions(e, &forms[f], 3);
        for (int32_t i = 0; i < NUM_PROMPTS * 3; i++)
            assert_memory_equal(other.answers[i].tokens, reference.answers[i].tokens, OUTPUT_TOKENS * sizeof(int32_t));
        run_free(&other);
        engine_destroy(e);
    }
    run_free(&reference);
    run_prompts_free(prompts, NUM_PROMPTS);
}

/* ---- how answers end ---- */

static void test_lengths_and_stop_ids(void **state)
{
    (void)state;
    struct engine *e = variant_engine("golden/mha", &roomy);
    struct run_prompt *prompts = test_prompts(engine_info(e)->config->spec.vocab_size);
    struct sampling_params params = greedy();
    struct run full, run;
    params.max_tokens = -1; /* until max_model_len */
    run_prompts(e, &prompts[9], 1, &params, &full);
    assert_int_equal(full.answers[0].count, 100);
    assert_int_equal(full.answers[0].finish, FINISH_LENGTH);

    const int32_t stop = full.answers[0].tokens[5];
    int32_t first = 0;
    while (full.answers[0].tokens[first] != stop) first++;
    params.num_stop_token_ids = 1;
    params.stop_token_ids = (int32_t[]){stop};
    run_prompts(e, &prompts[9], 1, &params, &run);
    assert_int_equal(run.answers[0].count, first + 1);
    assert_int_equal(run.answers[0].finish, FINISH_STOP);
    assert_int_equal(run.answers[0].stop_token, stop);
    run_free(&run);

    params.min_tokens = 20; /* the stop token cannot even be sampled before */
    run_prompts(e, &prompts[9], 1, &params, &run);
    assert_true(run.answers[0].count >= 20);
    for (int32_t i = 0; i < 20 && i < run.answers[0].count; i++) assert_int_not_equal(run.answers[0].tokens[i], stop);
    run_free(&run);
    run_free(&full);
    engine_destroy(e);
    run_prompts_free(prompts, NUM_PROMPTS);
}

/* engine_add's status for a prompt whose answer is ignored. */
static enum status add_prompt(struct engine *e, const int32_t *ids, int32_t length,
                              const struct sampling_params *params, struct error *err)
{
    const struct engine_request request = {.prompt = ids, .prompt_len = length, .params = params};
    return engine_add(e, &request, NULL, err);
}

static void test_refused_prompts(void **state)
{
    (void)state;
    struct engine *e = variant_engine("golden/mha", &roomy);
    const struct sampling_params params = greedy();
    struct error err;
    const int32_t bad[] = {5, 100000};
    int32_t long_prompt[200] = {0};
    assert_int_equal(add_prompt(e, bad, 0, &params, &err), STATUS_INVALID);
    assert_int_equal(add_prompt(e, bad, 2, &params, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "100000"));
    assert_int_equal(add_prompt(e, long_prompt, 200, &params, &err), STATUS_INVALID);
    assert_non_null(strstr(command_sentence(&err).text, "max_model_len is 200"));
    assert_non_null(strstr(command_sentence(&err).text, "raise --max-model-len to 201"));
    struct sampling_params wrong = params;
    wrong.top_p = 2;
    assert_int_equal(add_prompt(e, long_prompt, 3, &wrong, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "top_p"));
    wrong = params;
    wrong.n = 17;
    wrong.temperature = 1;
    assert_int_equal(add_prompt(e, long_prompt, 3, &wrong, &err), STATUS_INVALID);
    assert_non_null(strstr(command_sentence(&err).text, "n is 17"));
    assert_non_null(strstr(command_sentence(&err).text, "raise --max-num-seqs to 17"));
    assert_false(engine_has_work(e));
    engine_destroy(e);
}

/* ---- padding of the vocabulary ---- */

enum { FEW = 4 }; /* of test_prompts: the guide is larger than the models of the other tests */

static struct engine *guide_engine(const char *folder, bool skip_tokenizer)
{
    char path[512];
    struct engine_options o = run_options(folder, path, sizeof path);
    o.max_model_len = 200;
    o.skip_tokenizer = skip_tokenizer;
    return run_engine(&o);
}

static void check_tokens(const struct run *run, int32_t num_ids)
{
    for (int32_t i = 0; i < run->num_prompts * run->n; i++)
        for (int32_t k = 0; k < run->answers[i].count; k++) assert_in_range(run->answers[i].tokens[k], 0, num_ids - 1);
}

/* Draws ids below num_ids only, without cuts and with them. */
static void check_random(struct engine *e, const struct run_prompt *prompts, int32_t num_ids)
{
    struct sampling_params params = greedy();
    struct run run;
    params.n = 3;
    params.temperature = 1;
    for (int cuts = 0; cuts < 2; cuts++) {
        params.top_p = cuts ? 0.9 : 1;
        params.top_k = cuts ? 50 : 0;
        run_prompts(e, prompts, FEW, &params, &run);
        check_tokens(&run, num_ids);
        run_free(&run);
    }
}

/* The ids from num_ids on can be in a prompt, but not in what changes sampling. */
static void check_bounds(struct engine *e, const struct run_prompt *prompt, int32_t num_ids)
{
    struct sampling_params params = greedy();
    struct run run;
    struct error err;
    char bound[64];
    snprintf(bound, sizeof bound, "names token %d; this model's tokens are 0 to %d", num_ids, num_ids - 1);
    params.num_logit_bias = 1;
    params.logit_bias = (struct logit_bias[]){{num_ids, 0}};
    assert_int_equal(add_prompt(e, prompt->ids, prompt->length, &params, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, bound));
    params = greedy();
    params.num_stop_token_ids = 1;
    params.stop_token_ids = (int32_t[]){num_ids};
    assert_int_equal(add_prompt(e, prompt->ids, prompt->length, &params, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, bound));
    ((int32_t *)prompt->ids)[0] = 2 * num_ids - 1;
    params = greedy();
    params.repetition_penalty = 1.5; /* reads the prompt */
    run_prompts(e, prompt, 1, &params, &run);
    check_tokens(&run, num_ids);
    run_free(&run);
}

/* The largest logits are those of padding: without a tokenizer they are sampled. With it the answers are those of the
 * same model without padding. One engine at a time, because each counts on its share of a GPU. */
static void test_padding_is_never_sampled(void **state)
{
    (void)state;
    run_need_device();
#ifdef __SANITIZE_THREAD__
    skip(); /* minutes, and no thread does anything else than in the other tests */
#endif
    struct temp_folder folder;
    const struct sampling_params params = greedy();
    struct run expected, run;
    int32_t beyond = 0;
    struct engine *e = guide_engine(QUIRE_GUIDE, false);
    const int32_t num_ids = tokenizer_size(engine_info(e)->tokenizer);
    struct run_prompt *prompts = test_prompts(num_ids);
    run_prompts(e, prompts, FEW, &params, &expected);
    engine_destroy(e);
    padded_model_make(&folder, QUIRE_GUIDE);
    e = guide_engine(folder.path, true);
    run_prompts(e, prompts, FEW, &params, &run);
    for (int32_t i = 0; i < FEW; i++) beyond += run.answers[i].tokens[0] >= num_ids;
    assert_true(beyond > FEW / 2);
    run_free(&run);
    engine_destroy(e);
    e = guide_engine(folder.path, false);
    assert_int_equal(engine_info(e)->config->spec.vocab_size, 2 * num_ids);
    run_prompts(e, prompts, FEW, &params, &run);
    assert_true(run_assert_same(&expected, &run, "padded") <= 1);
    run_free(&run);
    check_random(e, prompts, num_ids);
    check_bounds(e, &prompts[1], num_ids);
    engine_destroy(e);
    run_free(&expected);
    temp_folder_remove(&folder);
    run_prompts_free(prompts, NUM_PROMPTS);
}

/* A max_model_len that is the model's own cannot be raised. */
static void ignore_piece(void *user, const struct answer_piece *piece)
{
    (void)user, (void)piece;
}

/* Chunk by chunk, and from where the prefix cache ends. */
static void test_progress_of_a_prompt(void **state)
{
    (void)state;
    const struct run_variant chunks = {"chunks of 16", 16, 4, 16, 0, true, 0, PREEMPTION_AUTO};
    struct engine *e = variant_engine("golden/gqa", &chunks);
    struct run_prompt *prompts =
        run_random_prompts((const int32_t[]){60}, 1, engine_info(e)->config->spec.vocab_size, 3);
    struct sampling_params params = greedy();
    params.max_tokens = 1;
    struct engine_request request = {
        .prompt = prompts[0].ids, .prompt_len = 40, .params = &params, .deliver = ignore_piece};
    static const int32_t expected[2][3] = {{16, 32, 0}, {48, 0}}; /* after each step; the last one ends the request */
    for (int again = 0; again < 2; again++) {
        struct error err;
        uint64_t id;
        bool worked;
        assert_int_equal(engine_add(e, &request, &id, &err), STATUS_OK);
        assert_int_equal(engine_num_computed(e, id), 0);
        for (int step = 0; engine_has_work(e); step++) {
            assert_int_equal(engine_step(e, &worked, &err), STATUS_OK);
            assert_int_equal(engine_num_computed(e, id), expected[again][step]);
        }
        request.prompt_len = 60; /* its first two blocks are in the cache then */
    }
    run_prompts_free(prompts, 1);
    engine_destroy(e);
}

static void test_prompt_longer_than_the_model(void **state)
{
    (void)state;
    char path[512];
    const struct engine_options o = run_options("golden/mha", path, sizeof path);
    struct engine *e = run_engine(&o);
    const struct sampling_params params = greedy();
    int32_t long_prompt[256] = {0};
    struct error err;
    assert_int_equal(engine_info(e)->limits->max_model_len, 256);
    assert_int_equal(add_prompt(e, long_prompt, 256, &params, &err), STATUS_INVALID);
    assert_int_equal(err.num_advice, 0);
    assert_non_null(strstr(err.text, "shorten the prompt"));
    engine_destroy(e);
}

static void test_too_few_blocks(void **state)
{
    (void)state;
    char path[512];
    struct engine_options o = run_options("golden/mha", path, sizeof path);
    struct engine *e;
    struct error err;
    o.max_model_len = 200;
    o.num_gpu_blocks_override = 4; /* 64 tokens */
    assert_int_not_equal(engine_create(&o, &e, &err), STATUS_OK);
    assert_non_null(strstr(command_sentence(&err).text, ": lower --max-model-len to 64, or"));
    assert_non_null(strstr(command_sentence(&err).text, " raise --num-gpu-blocks-override to 13"));
    o.max_model_len = 0; /* then the largest that fits is taken */
    e = run_engine(&o);
    assert_int_equal(engine_info(e)->limits->max_model_len, 64);
    engine_destroy(e);
    o.max_model_len = 1000000;
    assert_int_equal(engine_create(&o, &e, &err), STATUS_INVALID);
    assert_non_null(strstr(command_sentence(&err).text, "lower --max-model-len to "));
    o.max_model_len = 0;
    o.block_size = 12;
    assert_int_equal(engine_create(&o, &e, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "block_size is 12"));
    o.block_size = 16;
    o.max_num_batched_tokens = 8;
    assert_int_equal(engine_create(&o, &e, &err), STATUS_INVALID);
    assert_non_null(
        strstr(command_sentence(&err).text, ": lower --max-num-seqs to 8, or raise --max-num-batched-tokens to 16"));
}

/* The model could have a longer prompt, but the blocks could not. */
static void test_a_prompt_for_which_there_are_too_few_blocks(void **state)
{
    (void)state;
    char path[512];
    struct engine_options o = run_options("golden/mha", path, sizeof path);
    const struct sampling_params params = greedy();
    int32_t prompt[100] = {0};
    struct error err;
    o.num_gpu_blocks_override = 4; /* 64 tokens */
    struct engine *e = run_engine(&o);
    assert_int_equal(add_prompt(e, prompt, 100, &params, &err), STATUS_INVALID);
    assert_int_equal(err.num_advice, 0);
    assert_non_null(strstr(err.text, "max_model_len is 64"));
    assert_non_null(strstr(err.text, "shorten the prompt"));
    engine_destroy(e);
}

/* n answers that together outgrow the pool: the request ends with an error and the next one runs. */
static void test_lone_request_cannot_grow(void **state)
{
    (void)state;
    char path[512];
    struct engine_options o = run_options("golden/mha", path, sizeof path);
    o.max_model_len = 200;
    o.num_gpu_blocks_override = 14;
    struct engine *e = run_engine(&o);
    struct run_prompt *prompts = test_prompts(engine_info(e)->config->spec.vocab_size);
    struct sampling_params params = greedy();
    struct run run;
    params.n = 8;
    params.temperature = 1;
    params.max_tokens = -1;
    run_prompts(e, &prompts[9], 1, &params, &run);
    int errors = 0;
    for (int i = 0; i < 8; i++) errors += run.answers[i].finish == FINISH_ERROR;
    assert_true(errors > 0);
    for (int i = 0; i < 8; i++)
        if (run.answers[i].finish == FINISH_ERROR) assert_non_null(strstr(run.answers[i].error, "block"));
    run_free(&run);
    params.n = 1;
    run_prompts(e, &prompts[9], 1, &params, &run);
    assert_int_equal(run.answers[0].finish, FINISH_LENGTH);
    run_free(&run);
    engine_destroy(e);
    run_prompts_free(prompts, NUM_PROMPTS);
}

/* ---- damaged weights ---- */

enum { DAMAGED_TOKEN = 9 };

/* golden/mha with a NaN in the embedding of one token: only sequences that contain it are affected. */
static void make_damaged_model(struct temp_folder *folder)
{
    const uint16_t nan = 0x7fff; /* bfloat16 */
    struct error err;
    struct text file = {0};
    uint64_t header_length, row = 64 * sizeof nan;
    long long start;
    temp_folder_make(folder);
    temp_folder_copy(folder, QUIRE_TEST_DATA "/golden/mha", "config.json");
    if (file_read(QUIRE_TEST_DATA "/golden/mha/model.safetensors", &file, &err) != STATUS_OK) fail_msg("%s", err.text);
    memcpy(&header_length, file.data, sizeof header_length);
    const char *entry = strstr(file.data + sizeof header_length, "\"model.embed_tokens.weight\"");
    assert_non_null(entry);
    assert_int_equal(sscanf(entry, "%*[^{]{\"dtype\":\"BF16\",\"shape\":[320,64],\"data_offsets\":[%lld", &start), 1);
    const uint64_t place = sizeof header_length + header_length + (uint64_t)start + DAMAGED_TOKEN * row;
    memcpy(file.data + place, &nan, sizeof nan);
    temp_folder_write(folder, "model.safetensors", file.data, file.length);
    text_free(&file);
}

static bool has_damaged_token(const struct run_prompt *prompt)
{
    for (int32_t i = 0; i < prompt->length; i++)
        if (prompt->ids[i] == DAMAGED_TOKEN) return true;
    return false;
}

/* Runs the prompts with the damaged model, some with the damaged token in them: these end with an error, the others
 * answer as with the sound model. */
static void check_damage(const char *folder, int async, int32_t n, int32_t beam_width, const struct run *sound)
{
    char path[512];
    struct engine_options o = run_options(folder, path, sizeof path);
    o.max_model_len = 200;
    o.max_num_seqs = 16;
    o.async_scheduling = async;
    struct engine *e = run_engine(&o);
    struct run_prompt *prompts = test_prompts(engine_info(e)->config->spec.vocab_size);
    struct sampling_params params = greedy();
    struct run run;
    int32_t failed = 0;
    params.n = n;
    params.temperature = n > 1 ? NEARLY_GREEDY : 0;
    params.beam_width = beam_width;
    if (beam_width > 1) params.logprobs = -1;
    if (async) params.prompt_logprobs = 0;
    for (int i = 1; i < NUM_PROMPTS; i += 3) ((int32_t *)prompts[i].ids)[prompts[i].length / 2] = DAMAGED_TOKEN;
    run_prompts(e, prompts, NUM_PROMPTS, &params, &run);
    for (int32_t i = 0; i < NUM_PROMPTS * n; i++) {
        const struct run_answer *a = &run.answers[i];
        if (has_damaged_token(&prompts[i / n])) {
            assert_int_equal(a->finish, FINISH_ERROR);
            assert_int_equal(a->count, 0);
            assert_non_null(strstr(a->error, "NaN or infinity"));
            assert_non_null(strstr(a->error, folder));
            failed++;
        } else if (beam_width > 1) {
            /* A beam may continue with a damaged token, and then the request fails. */
            assert_true(a->finish == FINISH_LENGTH || strstr(a->error, "NaN or infinity"));
        } else if (n == 1) {
            /* A damaged token may be sampled, and ends the answer then; until there it is the sound one. */
            assert_true(a->finish == FINISH_LENGTH || a->tokens[a->count - 1] == DAMAGED_TOKEN);
            assert_memory_equal(a->tokens, sound->answers[i].tokens, (size_t)a->count * sizeof *a->tokens);
        }
    }
    assert_in_range(failed, 4 * n, (NUM_PROMPTS - 4) * n);
    run_free(&run);
    engine_destroy(e);
    run_prompts_free(prompts, NUM_PROMPTS);
}

static void test_damaged_weights(void **state)
{
    (void)state;
    run_need_device();
    struct temp_folder folder;
    struct engine *e = variant_engine("golden/mha", &roomy);
    struct run_prompt *prompts = test_prompts(engine_info(e)->config->spec.vocab_size);
    const struct sampling_params params = greedy();
    struct run sound;
    run_prompts(e, prompts, NUM_PROMPTS, &params, &sound);
    engine_destroy(e);
    make_damaged_model(&folder);
    for (int async = 0; async <= 1; async++)
        for (int32_t n = 1; n <= 3; n += 2) {
            check_damage(folder.path, async, n, 1, &sound);
            check_damage(folder.path, async, n, 4, &sound);
        }
    temp_folder_remove(&folder);
    run_free(&sound);
    run_prompts_free(prompts, NUM_PROMPTS);
}

/* float16 overflows where bfloat16 does not, so there the sentence names another cause, and what to try. */
static void test_damage_in_float16(void **state)
{
    (void)state;
    char path[512];
    struct temp_folder folder;
    struct run run;
    make_damaged_model(&folder);
    struct engine_options o = run_options(folder.path, path, sizeof path);
    o.dtype = "float16";
    struct engine *e = run_engine(&o);
    const int32_t ids[] = {3, DAMAGED_TOKEN, 4};
    const struct run_prompt prompt = {ids, 3};
    const struct sampling_params params = greedy();
    run_prompts(e, &prompt, 1, &params, &run);
    assert_non_null(strstr(run.answers[0].error, "are damaged, or too large for float16: set --dtype to bfloat16 or"));
    run_free(&run);
    engine_destroy(e);
    temp_folder_remove(&folder);
}

/* ---- threads ---- */

struct counter {
    struct engine *engine;
    atomic_int finished;
    int num_tokens; /* of all requests */
};

static void count_piece(void *user, const struct answer_piece *piece)
{
    struct counter *c = user;
    c->num_tokens += piece->num_tokens;
    if (piece->request_finished) atomic_fetch_add(&c->finished, 1);
}

static enum status add_counted(struct counter *c, const struct run_prompt *prompt, const struct sampling_params *params,
                               uint64_t *id, struct error *err)
{
    const struct engine_request request = {
        .prompt = prompt->ids, .prompt_len = prompt->length, .params = params, .deliver = count_piece, .user = c};
    return engine_add(c->engine, &request, id, err);
}

/* One request of many: what was asked, and what came. */
struct asked {
    struct crowd *crowd;
    int32_t n;
    int last_pieces[3]; /* [n] */
    int finished;       /* pieces that said that the request is finished */
    int too_late;       /* pieces after the last one */
};

enum { CROWD_THREADS = 8, CROWD_REQUESTS = 40 };

struct crowd {
    struct engine *engine;
    const struct run_prompt *prompts;
    struct asked asked[CROWD_THREADS][CROWD_REQUESTS];
    int finished, reasons[FINISH_ERROR + 1]; /* counted on the thread that steps */
    atomic_uint_fast64_t last_id;
    atomic_int next_thread;
    atomic_bool done;
};

static void note_piece(void *user, const struct answer_piece *piece)
{
    struct asked *a = user;
    if (a->finished || a->last_pieces[piece->index]) a->too_late++;
    if (piece->finish_reason != FINISH_NONE) {
        a->last_pieces[piece->index]++;
        a->crowd->reasons[piece->finish_reason]++;
    }
    if (!piece->request_finished) return;
    engine_abort(a->crowd->engine, piece->request); /* too late: it is about to be freed */
    a->finished++;
    a->crowd->finished++;
}

/* One, two or three answers; some end at a stop string, some at once. */
static void ask(struct crowd *c, struct asked *a, int i)
{
    struct sampling_params params = greedy();
    struct error err = {""};
    uint64_t id;
    params.n = a->n = 1 + i % 3;
    params.temperature = 1;
    params.max_tokens = 1 + i % 23;
    if (i % 4 == 0) assert_true(sampling_params_add_stop(&params, "e"));
    a->crowd = c;
    const struct run_prompt *p = &c->prompts[i % NUM_PROMPTS];
    const struct engine_request request = {
        .prompt = p->ids, .prompt_len = p->length, .params = &params, .deliver = note_piece, .user = a};
    if (engine_add(c->engine, &request, &id, &err) != STATUS_OK) abort();
    sampling_params_free(&params);
    atomic_store(&c->last_id, id);
    if (i % 5 == 0) engine_abort(c->engine, id);
}

/* Besides its own requests it aborts those of others: new ones, old ones, finished ones, the same twice, none. */
static void *ask_and_abort(void *user)
{
    struct crowd *c = user;
    const int thread = atomic_fetch_add(&c->next_thread, 1);
    for (int i = 0; i < CROWD_REQUESTS; i++) {
        ask(c, &c->asked[thread][i], i + thread);
        const uint64_t last = atomic_load(&c->last_id);
        if (i % 7 == 0) engine_abort(c->engine, last);
        if (i % 7 == 1) engine_abort(c->engine, 1 + last / 2);
        if (i % 7 == 2) engine_abort(c->engine, 1 + last * 7 / 8);
        if (i % 7 == 2) engine_abort(c->engine, 1 + last * 7 / 8);
    }
    engine_abort(c->engine, 0);
    engine_abort(c->engine, 999999);
    return NULL;
}

static void *read_stats(void *user)
{
    struct crowd *c = user;
    while (!atomic_load(&c->done)) {
        struct scheduler_stats s;
        engine_stats(c->engine, &s);
        if (s.blocks_in_use + s.blocks_cached + s.blocks_free != s.blocks_total) abort();
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    return NULL;
}

static void run_crowd(struct crowd *c)
{
    pthread_t threads[CROWD_THREADS], reader;
    struct error err = {""};
    assert_int_equal(pthread_create(&reader, NULL, read_stats, c), 0);
    for (int i = 0; i < CROWD_THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, ask_and_abort, c), 0);
    while (c->finished < CROWD_THREADS * CROWD_REQUESTS) {
        bool worked;
        engine_wait(c->engine);
        if (engine_step(c->engine, &worked, &err) != STATUS_OK) fail_msg("engine_step: %s", err.text);
    }
    for (int i = 0; i < CROWD_THREADS; i++) pthread_join(threads[i], NULL);
    bool worked; /* a step takes up the aborts of requests that had ended by then */
    if (engine_step(c->engine, &worked, &err) != STATUS_OK) fail_msg("engine_step: %s", err.text);
    atomic_store(&c->done, true);
    pthread_join(reader, NULL);
}

static void check_asked(const struct asked *a)
{
    assert_int_equal(a->finished, 1);
    assert_int_equal(a->too_late, 0);
    for (int32_t i = 0; i < a->n; i++) assert_int_equal(a->last_pieces[i], 1);
}

/* There are few blocks, so that requests are also preempted and swapped. Every answer ends once, and nothing is left.
 */
static void test_add_and_abort_from_threads(void **state)
{
    (void)state;
    run_need_device();
    struct temp_folder folder;
    char path[512];
    struct crowd *c = calloc(1, sizeof *c);
    struct scheduler_stats stats;
    toy_model_make(&folder, QUIRE_GUIDE, false);
    struct engine_options o = run_options(folder.path, path, sizeof path);
    o.load_format = LOAD_FORMAT_DUMMY;
    o.skip_tokenizer = false;
    o.max_model_len = 200;
    o.block_size = 8;
    o.num_gpu_blocks_override = 34;
    o.async_scheduling = 1;
    c->engine = run_engine(&o);
    c->prompts = test_prompts(engine_info(c->engine)->num_ids);
    run_crowd(c);
    for (int t = 0; t < CROWD_THREADS; t++)
        for (int i = 0; i < CROWD_REQUESTS; i++) check_asked(&c->asked[t][i]);
    assert_true(c->reasons[FINISH_ABORT] > 0 && c->reasons[FINISH_STOP] > 0 && c->reasons[FINISH_LENGTH] > 0);
    assert_int_equal(c->reasons[FINISH_ERROR], 0);
    assert_false(engine_has_work(c->engine));
    engine_stats(c->engine, &stats);
    assert_true(stats.blocks_in_use == 0 && stats.host_blocks_in_use == 0);
    assert_true(stats.preemptions_recompute + stats.preemptions_swap > 0);
    engine_destroy(c->engine);
    run_prompts_free((struct run_prompt *)c->prompts, NUM_PROMPTS);
    free(c);
    temp_folder_remove(&folder);
}

static void step_until(struct engine *e, const struct counter *c, int finished)
{
    struct error err = {""};
    bool worked;
    while (atomic_load(&c->finished) < finished)
        if (engine_step(e, &worked, &err) != STATUS_OK) fail_msg("engine_step: %s", err.text);
}

/* Still in the inbox, waiting, running, twice, finished: each request ends once, those around it in full. */
static void test_aborts_at_any_time(void **state)
{
    (void)state;
    enum { REQUESTS = 100 };
    const struct run_variant one_at_a_time = {"one at a time", 16, 1, 512, 0, true, 0, PREEMPTION_AUTO};
    struct engine *e = variant_engine("golden/gqa", &one_at_a_time);
    struct run_prompt *prompts = test_prompts(engine_info(e)->config->spec.vocab_size);
    struct sampling_params params = greedy();
    struct error err;
    struct counter ended = {.engine = e}, aborted = {.engine = e};
    uint64_t ids[REQUESTS];
    bool worked;
    params.max_tokens = 3;
    for (int i = 0; i < REQUESTS; i++) {
        struct counter *c = i % 4 == 0 ? &ended : &aborted;
        assert_int_equal(add_counted(c, &prompts[i % NUM_PROMPTS], &params, &ids[i], &err), STATUS_OK);
    }
    for (int i = 1; i < REQUESTS; i += 4) engine_abort(e, ids[i]);
    assert_int_equal(engine_step(e, &worked, &err), STATUS_OK);
    assert_int_equal(atomic_load(&aborted.finished), REQUESTS / 4);
    for (int i = REQUESTS - 1; i > 0; i--) { /* now from the back, those that were aborted too */
        if (i % 4 == 0) continue;
        engine_abort(e, ids[i]);
        engine_abort(e, ids[i]);
    }
    assert_int_equal(engine_step(e, &worked, &err), STATUS_OK);
    assert_int_equal(atomic_load(&aborted.finished), REQUESTS / 4 * 3);
    step_until(e, &ended, 1);
    engine_abort(e, ids[0]); /* finished */
    step_until(e, &ended, REQUESTS / 4);
    assert_false(engine_has_work(e));
    assert_int_equal(atomic_load(&ended.finished), REQUESTS / 4);
    assert_int_equal(atomic_load(&aborted.finished), REQUESTS / 4 * 3);
    assert_int_equal(ended.num_tokens, REQUESTS / 4 * 3);
    engine_destroy(e);
    run_prompts_free(prompts, NUM_PROMPTS);
}

/* ---- a thread that serves the others ---- */

struct server {
    struct engine *engine;
    atomic_bool stop;
    atomic_int waits; /* engine_wait has returned so often */
    enum status status;
    struct error err;
};

static void *serve(void *user)
{
    struct server *s = user;
    while (!atomic_load(&s->stop) && s->status == STATUS_OK) {
        bool worked;
        engine_wait(s->engine);
        atomic_fetch_add(&s->waits, 1);
        while (engine_has_work(s->engine) && s->status == STATUS_OK)
            s->status = engine_step(s->engine, &worked, &s->err);
    }
    return NULL;
}

static void pause_a_little(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Waits, for a bounded time, until another thread has counted this far. */
static void wait_until(const atomic_int *count, int value)
{
    for (int i = 0; i < 60000 && atomic_load(count) < value; i++) pause_a_little();
    if (atomic_load(count) < value) fail_msg("waited in vain: %d of %d", atomic_load(count), value);
}

/* Each request finds the engine idle and its server thread asleep; every request must wake it. */
static void test_server_waits_for_work(void **state)
{
    (void)state;
    struct engine *e = variant_engine("golden/gqa", &variants[2]);
    struct server server = {.engine = e};
    struct counter counter = {.engine = e};
    struct run_prompt *prompts = test_prompts(engine_info(e)->config->spec.vocab_size);
    struct sampling_params params = greedy();
    pthread_t thread;
    struct error err;
    params.max_tokens = 3;
    assert_int_equal(pthread_create(&thread, NULL, serve, &server), 0);
    for (int i = 0; i < 10; i++) pause_a_little();
    assert_int_equal(atomic_load(&server.waits), 0); /* nothing to do: it sleeps */
    for (int i = 0; i < 20; i++) {
        assert_int_equal(add_counted(&counter, &prompts[i % NUM_PROMPTS], &params, NULL, &err), STATUS_OK);
        wait_until(&counter.finished, i + 1);
    }
    assert_in_range(atomic_load(&server.waits), 1, 20); /* a request wakes the server at most once, nothing else does */
    for (int i = 0; i < 10; i++) pause_a_little();
    const int waits = atomic_load(&server.waits);
    engine_wake(e); /* without work */
    wait_until(&server.waits, waits + 1);
    for (int i = 0; i < 10; i++) pause_a_little();
    assert_int_equal(atomic_load(&server.waits), waits + 1); /* one wake-up, one return */
    atomic_store(&server.stop, true);
    engine_wake(e);
    pthread_join(thread, NULL);
    if (server.status != STATUS_OK) fail_msg("engine_step: %s", server.err.text);
    engine_destroy(e);
    run_prompts_free(prompts, NUM_PROMPTS);
}

/* A wake-up or a request that comes before the wait is not lost. */
static void test_wait_returns_at_once(void **state)
{
    (void)state;
    struct engine *e = variant_engine("golden/gqa", &roomy);
    struct counter counter = {.engine = e};
    struct run_prompt *prompts = test_prompts(engine_info(e)->config->spec.vocab_size);
    const struct sampling_params params = greedy();
    struct error err;
    bool worked;
    engine_wake(e);
    engine_wake(e);
    engine_wait(e);
    assert_int_equal(add_counted(&counter, &prompts[0], &params, NULL, &err), STATUS_OK);
    engine_wait(e); /* there is work, and there is until it is done */
    engine_wait(e);
    while (engine_has_work(e)) assert_int_equal(engine_step(e, &worked, &err), STATUS_OK);
    assert_int_equal(atomic_load(&counter.finished), 1);
    engine_destroy(e);
    run_prompts_free(prompts, NUM_PROMPTS);
}

static void test_destroy_with_work(void **state)
{
    (void)state;
    struct engine *e = variant_engine("golden/gqa", &variants[2]);
    struct counter counter = {.engine = e};
    struct run_prompt *prompts = test_prompts(engine_info(e)->config->spec.vocab_size);
    const struct sampling_params params = greedy();
    struct error err;
    bool worked;
    for (int i = 0; i < NUM_PROMPTS; i++) add_counted(&counter, &prompts[i], &params, NULL, &err);
    for (int i = 0; i < 5; i++) engine_step(e, &worked, &err);
    add_counted(&counter, &prompts[0], &params, NULL, &err);
    engine_destroy(e);
    run_prompts_free(prompts, NUM_PROMPTS);
}

/* ---- the step loop allocates nothing ---- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTING 0
#else
#define COUNTING 1
static atomic_long allocations;
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern const char __executable_start, etext;

/* quire is linked into this program; what a library of the system (a GPU's driver) does for itself is not counted. */
static void count(const void *caller)
{
    if ((const char *)caller >= &__executable_start && (const char *)caller < &etext) atomic_fetch_add(&allocations, 1);
}

__attribute__((noinline)) void *malloc(size_t size)
{
    count(__builtin_return_address(0));
    return __libc_malloc(size);
}
__attribute__((noinline)) void *calloc(size_t elements, size_t size)
{
    count(__builtin_return_address(0));
    return __libc_calloc(elements, size);
}
__attribute__((noinline)) void *realloc(void *old, size_t size)
{
    count(__builtin_return_address(0));
    return __libc_realloc(old, size);
}

static long count_allocations(struct engine *e, const struct run_prompt *prompts, long *steps)
{
    struct counter counter = {.engine = e};
    struct sampling_params params = greedy();
    struct error err;
    bool worked;
    for (int i = 0; i < NUM_PROMPTS; i++) {
        params.n = 2;
        params.temperature = 1;
        params.best_of = i % 3 == 1 ? 3 : -1;
        params.beam_width = i % 3 == 2 ? 3 : 1;
        params.logprobs = i % 3 == 2 ? -1 : 2;
        assert_int_equal(add_counted(&counter, &prompts[i], &params, NULL, &err), STATUS_OK);
    }
    const long before = atomic_load(&allocations);
    while (engine_has_work(e)) {
        assert_int_equal(engine_step(e, &worked, &err), STATUS_OK);
        ++*steps;
    }
    return atomic_load(&allocations) - before;
}
#endif

/* The second time: the first takes swap space, and lets a GPU's driver set up what it does
 * on first use. */
static void test_no_allocation_in_steps(void **state)
{
    (void)state;
#if COUNTING
    const struct run_variant tight = {"tight", 8, 16, 64, 40, true, 1, PREEMPTION_AUTO};
    struct engine *e = variant_engine("golden/gqa", &tight);
    struct run_prompt *prompts = test_prompts(engine_info(e)->config->spec.vocab_size);
    struct scheduler_stats stats;
    long steps = 0;
    count_allocations(e, prompts, &steps);
    steps = 0;
    const long allocated = count_allocations(e, prompts, &steps), before = atomic_load(&allocations);
    void *volatile piece = malloc((size_t)steps);
    free(piece);
    assert_true(atomic_load(&allocations) > before); /* it does count */
    engine_stats(e, &stats);
    assert_true(steps > 50 && stats.preemptions_swap > 0 && stats.blocks_swapped_out > 0);
    assert_int_equal(allocated, 0);
    engine_destroy(e);
    run_prompts_free(prompts, NUM_PROMPTS);
#else
    skip(); /* a sanitizer owns malloc */
#endif
}

/* ---- facts ---- */

/* The facts of a model that is only planned are those of an engine with the same options. */
static void check_planned(const struct engine_options *o, const struct engine_info *running)
{
    struct loaded_model *l;
    struct error err, weights_error;
    assert_int_equal(loaded_model_describe(o, &l, &weights_error, &err), STATUS_OK);
    assert_int_equal(loaded_model_plan(o, l, false, &err), STATUS_OK);
    const struct engine_info planned = loaded_model_info(o, l);
    assert_string_equal(planned.device, running->device);
    assert_string_equal(planned.isa, running->isa);
    assert_int_equal(planned.discrete, running->discrete);
    assert_int_equal(planned.threads, running->threads);
    assert_int_equal(planned.num_ids, running->num_ids);
    assert_memory_equal(planned.limits, running->limits, sizeof *planned.limits);
    assert_int_equal(planned.memory->num_blocks, running->memory->num_blocks);
    assert_int_equal(memory_profile_step_memory(planned.memory), memory_profile_step_memory(running->memory));
    assert_int_equal(planned.decode_weight_bytes, 0);
    loaded_model_close(l);
}

/* What a decode step reads, and the memory that is reserved, are what was planned. */
static void test_facts(void **state)
{
    (void)state;
    static const char *const folders[] = {"golden/gqa", "golden/mha"};
    for (int i = 0; i < 2; i++) {
        char path[512];
        const struct engine_options o = run_options(folders[i], path, sizeof path);
        struct engine *e = run_engine(&o);
        const struct engine_info *info = engine_info(e);
        const struct model_spec *spec = &info->config->spec;
        const struct memory_profile *p = info->memory;
        struct model_residence memory[NUM_PURPOSES];
        const int64_t embedding = (int64_t)spec->vocab_size * spec->hidden_size * dtype_size(spec->dtype);
        assert_int_equal(spec->tie_word_embeddings, i == 0);
        assert_int_equal(info->decode_weight_bytes, p->weights - (spec->tie_word_embeddings ? 0 : embedding));
        engine_residence(e, memory);
        assert_int_equal(memory[PURPOSE_ACTIVATIONS].reserved, p->activations);
        assert_int_equal(memory[PURPOSE_KV_CACHE].reserved, p->kv_cache + p->block_bytes); /* and the null block */
        assert_int_equal(memory[PURPOSE_STATE].reserved, p->state - p->block_bytes - batch_bytes(info->limits));
        assert_int_equal(memory[PURPOSE_SWAP_SPACE].reserved, 0);
        assert_true(memory[PURPOSE_WEIGHTS].reserved >= p->weights);
        check_planned(&o, info);
        engine_destroy(e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_tokens_mha),
        cmocka_unit_test(test_same_tokens_gqa),
        cmocka_unit_test(test_same_tokens_mqa),
        cmocka_unit_test(test_same_tokens_sliding),
        cmocka_unit_test(test_same_tokens_longrope),
        cmocka_unit_test(test_forks_are_one_answer),
        cmocka_unit_test(test_forks_of_longrope_are_one_answer),
        cmocka_unit_test(test_seed_whatever_the_batch),
        cmocka_unit_test(test_seed_whatever_the_preemption),
        cmocka_unit_test(test_lengths_and_stop_ids),
        cmocka_unit_test(test_refused_prompts),
        cmocka_unit_test(test_progress_of_a_prompt),
        cmocka_unit_test(test_prompt_longer_than_the_model),
        cmocka_unit_test(test_too_few_blocks),
        cmocka_unit_test(test_a_prompt_for_which_there_are_too_few_blocks),
        cmocka_unit_test(test_padding_is_never_sampled),
        cmocka_unit_test(test_lone_request_cannot_grow),
        cmocka_unit_test(test_damaged_weights),
        cmocka_unit_test(test_damage_in_float16),
        cmocka_unit_test(test_add_and_abort_from_threads),
        cmocka_unit_test(test_aborts_at_any_time),
        cmocka_unit_test(test_server_waits_for_work),
        cmocka_unit_test(test_wait_returns_at_once),
        cmocka_unit_test(test_destroy_with_work),
        cmocka_unit_test(test_no_allocation_in_steps),
        cmocka_unit_test(test_facts),
    };
    const struct CMUnitTest gpu_tests[] = {
        cmocka_unit_test(test_same_tokens_mha),
        cmocka_unit_test(test_same_tokens_gqa),
        cmocka_unit_test(test_same_tokens_mqa),
        cmocka_unit_test(test_same_tokens_sliding),
        cmocka_unit_test(test_same_tokens_longrope),
        cmocka_unit_test(test_forks_are_one_answer),
        cmocka_unit_test(test_forks_of_longrope_are_one_answer),
        cmocka_unit_test(test_seed_whatever_the_batch),
        cmocka_unit_test(test_seed_whatever_the_preemption),
        cmocka_unit_test(test_lengths_and_stop_ids),
        cmocka_unit_test(test_padding_is_never_sampled),
        cmocka_unit_test(test_lone_request_cannot_grow),
        cmocka_unit_test(test_damaged_weights),
        cmocka_unit_test(test_damage_in_float16),
        cmocka_unit_test(test_add_and_abort_from_threads),
        cmocka_unit_test(test_server_waits_for_work),
        cmocka_unit_test(test_wait_returns_at_once),
        cmocka_unit_test(test_destroy_with_work),
        cmocka_unit_test(test_no_allocation_in_steps),
    };
    cmocka_set_test_filter(getenv("QUIRE_TEST_FILTER"));
    const int failed = cmocka_run_group_tests_name("cpu", tests, NULL, NULL);
    run_set_device("cuda");
    return failed + cmocka_run_group_tests_name("cuda", gpu_tests, NULL, NULL);
}
