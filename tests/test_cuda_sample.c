/* Sampling on a GPU against the CPU backend, from the same logits: real vocabularies, many samples, thousands of equal
 * logits, long histories, more samples than logits can be saved for at a time. Skipped where there is no GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/kernel_test.h"

enum { MAX_SAMPLES = 96 };

/* The inputs and outputs of a batch of samples; sample i has state_index i. */
struct sampling {
    int32_t count, vocab_size, history_len;
    float *logits;                      /* [count, vocab_size] */
    struct sampling_state *states;      /* [count] */
    int32_t *state_indices, *positions; /* [count] */
    int32_t *history;                   /* [count, history_len] */
    int32_t *tokens, *ranks;            /* [count] */
    float *logprobs;                    /* [count] */
    int32_t *top_ids;                   /* [count, SAMPLING_MAX_TOP] */
    float *top_logprobs;                /* the same */
};

static struct sampling sampling_new(int32_t count, int32_t vocab_size, int32_t history_len)
{
    const size_t n = (size_t)count;
    struct sampling s = {.count = count, .vocab_size = vocab_size, .history_len = history_len};
    s.logits = calloc(n * (size_t)vocab_size, sizeof *s.logits);
    s.states = calloc(n, sizeof *s.states);
    s.state_indices = calloc(n, sizeof *s.state_indices);
    s.positions = calloc(n, sizeof *s.positions);
    s.history = calloc(n * (size_t)history_len, sizeof *s.history);
    s.tokens = calloc(n, sizeof *s.tokens);
    s.ranks = calloc(n, sizeof *s.ranks);
    s.logprobs = calloc(n, sizeof *s.logprobs);
    s.top_ids = calloc(n * SAMPLING_MAX_TOP, sizeof *s.top_ids);
    s.top_logprobs = calloc(n * SAMPLING_MAX_TOP, sizeof *s.top_logprobs);
    for (int32_t i = 0; i < count; i++) {
        s.states[i] =
            (struct sampling_state){.top_p = 1, .repetition_penalty = 1, .num_logprobs = -1, .seed = 77 + (uint64_t)i};
        s.state_indices[i] = i;
    }
    return s;
}

static void sampling_free(struct sampling *s)
{
    free(s->logits), free(s->states), free(s->state_indices), free(s->positions), free(s->history), free(s->tokens);
    free(s->ranks), free(s->logprobs), free(s->top_ids), free(s->top_logprobs);
}

static void fetch(struct tensor *t, void *out)
{
    tensor_download(t);
    memcpy(out, t->host, (size_t)t->bytes);
    tensor_free(t);
}

static void use_workspace_of(struct test_backend *tb, const struct sampling *s)
{
    const struct workspace_query query = {.max_num_tokens = 1,
                                          .max_num_seqs = s->count,
                                          .max_model_len = s->history_len,
                                          .num_heads = 1,
                                          .head_size = 64,
                                          .block_size = 16,
                                          .max_in_features = 64,
                                          .vocab_size = s->vocab_size};
    use_workspace(tb, &query);
}

/* The sample_args's any_* fields. */
static void set_any(struct sample_args *args, const struct sampling *s)
{
    for (int32_t i = 0; i < s->count; i++) {
        const struct sampling_state *state = &s->states[i];
        args->any_random |= state->temperature >= 1e-5f;
        args->any_logprobs |= state->num_logprobs >= 0;
        args->any_processing |= state->num_bias > 0 || state->num_stop_ids > 0 || state->repetition_penalty != 1 ||
                                state->presence_penalty != 0 || state->frequency_penalty != 0;
    }
}

static void run(struct test_backend *tb, struct sampling *s)
{
    struct backend *b = tb->b;
    const int64_t n = s->count, word = 4, top = n * SAMPLING_MAX_TOP;
    use_workspace_of(tb, s);
    int64_t logits_stride;
    struct tensor logits = tensor_padded_logits(tb, s->logits, n, s->vocab_size, &logits_stride);
    struct tensor states = tensor_bytes(b, s->states, n * (int64_t)sizeof *s->states);
    struct tensor indices = tensor_bytes(b, s->state_indices, n * word);
    struct tensor positions = tensor_bytes(b, s->positions, n * word);
    struct tensor history = tensor_bytes(b, s->history, n * s->history_len * word);
    struct tensor tokens = tensor_poison(b, DTYPE_FLOAT32, n), ranks = tensor_poison(b, DTYPE_FLOAT32, n);
    struct tensor logprobs = tensor_poison(b, DTYPE_FLOAT32, n);
    struct tensor top_ids = tensor_poison(b, DTYPE_FLOAT32, top), top_logprobs = tensor_poison(b, DTYPE_FLOAT32, top);
    struct sample_args args = {.logits = logits.data,
                               .logits_stride = logits_stride,
                               .num_samples = s->count,
                               .vocab_size = s->vocab_size,
                               .state_indices = indices.data,
                               .output_positions = positions.data,
                               .states = states.data,
                               .history = history.data,
                               .history_stride = s->history_len,
                               .token_ids = tokens.data,
                               .logprobs = logprobs.data,
                               .ranks = ranks.data,
                               .top_stride = SAMPLING_MAX_TOP,
                               .top_ids = top_ids.data,
                               .top_logprobs = top_logprobs.data};
    set_any(&args, s);
    b->sample(b, &args);
    fetch(&tokens, s->tokens), fetch(&ranks, s->ranks), fetch(&logprobs, s->logprobs);
    fetch(&top_ids, s->top_ids), fetch(&top_logprobs, s->top_logprobs), fetch(&history, s->history);
    tensor_free(&logits), tensor_free(&states), tensor_free(&indices), tensor_free(&positions);
    check_workspace(tb);
}

/* Runs the batch on both backends and returns how many tokens differ. Outputs that depend on the sampled token are
 * compared where the tokens agree, the other outputs always. */
static int32_t compare(struct kernel_test *test, struct sampling *s)
{
    struct test_backend *gpu = kernel_test_gpu(test);
    struct sampling cpu = sampling_new(s->count, s->vocab_size, s->history_len);
    memcpy(cpu.logits, s->logits, sizeof *s->logits * (size_t)s->count * (size_t)s->vocab_size);
    memcpy(cpu.states, s->states, sizeof *s->states * (size_t)s->count);
    memcpy(cpu.positions, s->positions, sizeof *s->positions * (size_t)s->count);
    memcpy(cpu.history, s->history, sizeof *s->history * (size_t)s->count * (size_t)s->history_len);
    run(&test->backends[0], &cpu);
    run(gpu, s);
    int32_t different = 0;
    for (int32_t i = 0; i < s->count; i++) {
        const struct sampling_state *options = &s->states[i];
        const int32_t at = i * s->history_len + options->prompt_len + s->positions[i], top = i * SAMPLING_MAX_TOP;
        assert_in_range(s->tokens[i], 0, s->vocab_size - 1);
        assert_int_equal(s->history[at], s->tokens[i]);
        const bool same = s->tokens[i] == cpu.tokens[i];
        different += !same;
        if (options->num_logprobs < 0) continue;
        if (same) assert_int_equal(s->ranks[i], cpu.ranks[i]);
        if (same) assert_true(fabsf(s->logprobs[i] - cpu.logprobs[i]) < 1e-4f);
        for (int32_t j = 0; j < options->num_logprobs; j++) {
            assert_int_equal(s->top_ids[top + j], cpu.top_ids[top + j]);
            assert_true(fabsf(s->top_logprobs[top + j] - cpu.top_logprobs[top + j]) < 1e-4f);
        }
    }
    sampling_free(&cpu);
    return different;
}

/* Sets some of a sample's options, none of them, or all. */
static void randomize_options(struct sampling *s, int32_t i, struct random *r)
{
    struct sampling_state *options = &s->states[i];
    int32_t *history = s->history + (int64_t)i * s->history_len;
    if (random_between(r, 0, 3)) options->temperature = (float)(0.3 + 1.5 * random_uniform(r));
    if (random_between(r, 0, 1)) options->top_p = (float)(0.3 + 0.7 * random_uniform(r));
    if (random_between(r, 0, 1)) options->top_k = (int32_t)random_between(r, 1, random_between(r, 0, 1) ? 100 : 5000);
    if (random_between(r, 0, 3) == 0) options->min_p = (float)(0.2 * random_uniform(r));
    if (random_between(r, 0, 1)) options->repetition_penalty = (float)(0.8 + 0.7 * random_uniform(r));
    if (random_between(r, 0, 1)) options->frequency_penalty = (float)(2 * random_uniform(r) - 1);
    if (random_between(r, 0, 1)) options->presence_penalty = (float)(2 * random_uniform(r) - 1);
    if (random_between(r, 0, 1)) options->num_logprobs = (int32_t)random_between(r, 0, SAMPLING_MAX_TOP);
    options->seed = random_bits(r);
    options->prompt_len = (int32_t)random_between(r, 1, s->history_len / 2);
    s->positions[i] = (int32_t)random_between(r, 0, s->history_len / 2 - 1);
    options->min_tokens = (int32_t)random_between(r, 0, s->history_len);
    options->num_stop_ids = (int32_t)random_between(r, 0, SAMPLING_MAX_STOP_IDS);
    options->num_bias = random_between(r, 0, 1) ? (int32_t)random_between(r, 0, SAMPLING_MAX_BIAS) : 0;
    for (int j = 0; j < options->num_stop_ids; j++)
        options->stop_ids[j] = (int32_t)random_between(r, -1, s->vocab_size);
    for (int j = 0; j < options->num_bias; j++) { /* some ids twice, some outside the vocabulary */
        options->bias_ids[j] = (int32_t)random_between(r, -2, j % 3 ? s->vocab_size + 1 : 40);
        options->bias_values[j] = (float)(4 * random_uniform(r) - 2);
    }
    for (int j = 0; j < s->history_len; j++) history[j] = (int32_t)random_between(r, 0, j % 2 ? 50 : s->vocab_size - 1);
}

static void randomize_logits(struct sampling *s, struct random *r)
{
    for (int64_t i = 0; i < (int64_t)s->count * s->vocab_size; i++) {
        double sum = 0;
        for (int j = 0; j < 4; j++) sum += random_uniform(r);
        s->logits[i] = (float)(5 * (sum - 2));
    }
}

/* With odd vocabularies the logits of a sample do not allow 16-byte reads. */
static void the_same_tokens_as_the_cpu(void **state)
{
    struct kernel_test *test = *state;
    kernel_test_gpu(test); /* skips the test before anything is allocated */
    static const int32_t shapes[][3] = {{1, 128256, 3000}, {7, 128256, 500}, {64, 32000, 64}, {96, 151, 40},
                                        {3, 49153, 200},   {9, 102, 16},     {2, 256000, 100}};
    int32_t different = 0, all = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < 7; i++) {
            struct sampling s = sampling_new(shapes[i][0], shapes[i][1], shapes[i][2]);
            randomize_logits(&s, &test->random);
            for (int32_t j = 0; j < s.count; j++) randomize_options(&s, j, &test->random);
            for (int32_t j = 0; j < s.count; j++)
                if (s.states[j].num_logprobs > s.vocab_size) s.states[j].num_logprobs = s.vocab_size;
            different += compare(test, &s);
            all += s.count;
            sampling_free(&s);
        }
    if (different * 100 > all) fail_msg("%d of %d tokens differ from the CPU's", different, all);
}

/* There are only a few different values, so that a cut falls among thousands of equal tokens. */
static void thousands_of_equal_logits(void **state)
{
    struct kernel_test *test = *state;
    kernel_test_gpu(test); /* skips the test before anything is allocated */
    struct sampling s = sampling_new(24, 128256, 8);
    for (int32_t i = 0; i < s.count; i++) {
        struct sampling_state *options = &s.states[i];
        options->temperature = i % 4 == 0 ? 0 : 1.0f;
        options->top_k = i % 2 ? 3000 + 100 * i : 0;
        options->top_p = i % 3 ? 0.1f + 0.03f * (float)i : 1;
        options->num_logprobs = i % 5 ? SAMPLING_MAX_TOP : -1;
        for (int32_t j = 0; j < s.vocab_size; j++)
            s.logits[(int64_t)i * s.vocab_size + j] = i < 12 ? (float)(random_bits(&test->random) % 3) : 0;
        if (i % 6 == 5) /* mostly -infinity, with zeros of both signs */
            for (int32_t j = 0; j < s.vocab_size; j++)
                s.logits[(int64_t)i * s.vocab_size + j] = j % 1000 == 7 ? -0.0f : j % 1000 == 9 ? 0 : -INFINITY;
    }
    assert_true(compare(test, &s) <= 1);
    sampling_free(&s);
}

/* A few likely tokens, and all others so far below them that they are in a selection's last bin; some cuts fall among
 * those. */
static void few_tokens_are_likely(void **state)
{
    static const float shares[] = {0.5f, 0.9f, 0.999f, 0.99999f, 0.9999999f};
    struct kernel_test *test = *state;
    kernel_test_gpu(test); /* skips the test before anything is allocated */
    struct sampling s = sampling_new(40, 128256, 8);
    for (int32_t i = 0; i < s.count; i++) {
        float *logits = s.logits + (int64_t)i * s.vocab_size;
        for (int32_t j = 0; j < s.vocab_size; j++)
            logits[j] = -(float)(12 + 2 * (i % 7)) - 3 * (float)random_uniform(&test->random);
        for (int32_t j = 0; j < 30; j++)
            logits[random_between(&test->random, 0, s.vocab_size - 1)] = 5 * (float)random_uniform(&test->random);
        s.states[i].temperature = i % 2 ? 1.0f : 0.7f;
        s.states[i].top_p = shares[i % 5];
        s.states[i].top_k = i % 3 ? 0 : 25 + 3 * i;
        s.states[i].num_logprobs = i % 4 ? -1 : SAMPLING_MAX_TOP;
    }
    assert_true(compare(test, &s) <= 1);
    sampling_free(&s);
}

/* A sample gets the same token alone and in a batch. */
static void a_sample_does_not_depend_on_the_batch(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = kernel_test_gpu(test); /* skips the test before anything is allocated */
    struct sampling s = sampling_new(MAX_SAMPLES, 50000, 64);
    randomize_logits(&s, &test->random);
    for (int32_t i = 0; i < s.count; i++) randomize_options(&s, i, &test->random);
    struct sampling one = sampling_new(1, 50000, 64);
    run(gpu, &s);
    for (int32_t i = 0; i < s.count; i += 19) {
        memcpy(one.logits, s.logits + (int64_t)i * s.vocab_size, sizeof *one.logits * (size_t)one.vocab_size);
        memcpy(one.history, s.history + i * 64, 64 * sizeof *one.history);
        one.states[0] = s.states[i];
        one.positions[0] = s.positions[i];
        run(gpu, &one);
        assert_int_equal(one.tokens[0], s.tokens[i]);
        if (s.states[i].num_logprobs >= 0) assert_int_equal(one.ranks[0], s.ranks[i]);
    }
    sampling_free(&s), sampling_free(&one);
}

/* Histories as long as the vocabulary, so that logits are saved for some of the samples at a time. */
static void more_samples_than_are_saved(void **state)
{
    struct kernel_test *test = *state;
    kernel_test_gpu(test); /* skips the test before anything is allocated */
    struct sampling s = sampling_new(48, 100000, 110000);
    randomize_logits(&s, &test->random);
    for (int32_t i = 0; i < s.count; i++) {
        randomize_options(&s, i, &test->random);
        s.states[i].repetition_penalty = 1.2f;
        s.states[i].num_logprobs = 5;
    }
    assert_true(compare(test, &s) <= 1);
    sampling_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_tokens_as_the_cpu),  cmocka_unit_test(thousands_of_equal_logits),
        cmocka_unit_test(few_tokens_are_likely),       cmocka_unit_test(a_sample_does_not_depend_on_the_batch),
        cmocka_unit_test(more_samples_than_are_saved),
    };
    return cmocka_run_group_tests(tests, kernel_test_setup, kernel_test_teardown);
}
