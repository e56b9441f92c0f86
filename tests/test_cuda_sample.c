/* Sampling on a GPU beside the CPU backend, on the same logits: real vocabularies, many rows, ties by the thousand,
 * long histories, more rows than logits can be kept aside for. Skipped where there is no GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/kernel_test.h"

enum { MAX_ROWS = 96 };

/* Samples of a batch, row i in slot i; everything that goes in and comes out. */
struct sampling {
    int32_t count, vocab_size, history_len;
    float *logits;               /* [count, vocab_size] */
    struct sampling_state *rows; /* [count] */
    int32_t *slots, *outputs;    /* [count] */
    int32_t *history;            /* [count, history_len] */
    int32_t *tokens, *ranks;     /* [count] */
    float *logprobs;             /* [count] */
    int32_t *top_ids;            /* [count, SAMPLING_MAX_LOGPROBS] */
    float *top_logprobs;
};

static struct sampling sampling_new(int32_t count, int32_t vocab_size, int32_t history_len)
{
    const size_t n = (size_t)count;
    struct sampling s = {.count = count, .vocab_size = vocab_size, .history_len = history_len};
    s.logits = calloc(n * (size_t)vocab_size, sizeof *s.logits);
    s.rows = calloc(n, sizeof *s.rows);
    s.slots = calloc(n, sizeof *s.slots);
    s.outputs = calloc(n, sizeof *s.outputs);
    s.history = calloc(n * (size_t)history_len, sizeof *s.history);
    s.tokens = calloc(n, sizeof *s.tokens);
    s.ranks = calloc(n, sizeof *s.ranks);
    s.logprobs = calloc(n, sizeof *s.logprobs);
    s.top_ids = calloc(n * SAMPLING_MAX_LOGPROBS, sizeof *s.top_ids);
    s.top_logprobs = calloc(n * SAMPLING_MAX_LOGPROBS, sizeof *s.top_logprobs);
    for (int32_t i = 0; i < count; i++) {
        s.rows[i] =
            (struct sampling_state){.top_p = 1, .repetition_penalty = 1, .num_logprobs = -1, .seed = 77 + (uint64_t)i};
        s.slots[i] = i;
    }
    return s;
}

static void sampling_free(struct sampling *s)
{
    free(s->logits), free(s->rows), free(s->slots), free(s->outputs), free(s->history), free(s->tokens);
    free(s->ranks), free(s->logprobs), free(s->top_ids), free(s->top_logprobs);
}

static void fetch(struct tensor *t, void *out)
{
    tensor_download(t);
    memcpy(out, t->host, (size_t)t->bytes);
    tensor_free(t);
}

static void run(struct test_backend *tb, struct sampling *s)
{
    struct backend *b = tb->b;
    const int64_t n = s->count, word = 4, top = n * SAMPLING_MAX_LOGPROBS;
    const struct workspace_query query = {.max_num_tokens = 1,
                                          .max_num_seqs = s->count,
                                          .max_model_len = s->history_len,
                                          .num_heads = 1,
                                          .num_kv_heads = 1,
                                          .head_size = 64,
                                          .block_size = 16,
                                          .max_in_features = 64,
                                          .max_out_features = s->vocab_size,
                                          .vocab_size = s->vocab_size};
    use_workspace(tb, &query);
    struct tensor logits = tensor_bytes(b, s->logits, n * s->vocab_size * word);
    struct tensor rows = tensor_bytes(b, s->rows, n * (int64_t)sizeof *s->rows);
    struct tensor slots = tensor_bytes(b, s->slots, n * word), outputs = tensor_bytes(b, s->outputs, n * word);
    struct tensor history = tensor_bytes(b, s->history, n * s->history_len * word);
    struct tensor tokens = tensor_poison(b, DTYPE_FLOAT32, n), ranks = tensor_poison(b, DTYPE_FLOAT32, n);
    struct tensor logprobs = tensor_poison(b, DTYPE_FLOAT32, n);
    struct tensor top_ids = tensor_poison(b, DTYPE_FLOAT32, top), top_logprobs = tensor_poison(b, DTYPE_FLOAT32, top);
    struct sample_args args = {.logits = logits.data,
                               .num_samples = s->count,
                               .vocab_size = s->vocab_size,
                               .state_indices = slots.data,
                               .output_positions = outputs.data,
                               .states = rows.data,
                               .history = history.data,
                               .history_stride = s->history_len,
                               .token_ids = tokens.data,
                               .logprobs = logprobs.data,
                               .ranks = ranks.data,
                               .top_ids = top_ids.data,
                               .top_logprobs = top_logprobs.data};
    for (int32_t i = 0; i < s->count; i++) {
        const struct sampling_state *row = &s->rows[i];
        args.any_random |= row->temperature >= 1e-5f;
        args.any_logprobs |= row->num_logprobs >= 0;
        args.any_processing |= row->num_bias > 0 || row->num_stop_ids > 0 || row->repetition_penalty != 1 ||
                               row->presence_penalty != 0 || row->frequency_penalty != 0;
    }
    b->sample(b, &args);
    fetch(&tokens, s->tokens), fetch(&ranks, s->ranks), fetch(&logprobs, s->logprobs);
    fetch(&top_ids, s->top_ids), fetch(&top_logprobs, s->top_logprobs), fetch(&history, s->history);
    tensor_free(&logits), tensor_free(&rows), tensor_free(&slots), tensor_free(&outputs);
    check_workspace(tb);
}

static struct test_backend *the_gpu(struct kernel_test *test)
{
    for (int i = 0; i < test->num_backends; i++)
        if (!test->backends[i].is_cpu) return &test->backends[i];
    skip();
    return NULL;
}

/* Runs the batch on both; returns how many tokens differ. What follows from a token is compared where they agree, and
 * what does not always. */
static int32_t compare(struct kernel_test *test, struct sampling *s)
{
    struct test_backend *gpu = the_gpu(test);
    struct sampling cpu = sampling_new(s->count, s->vocab_size, s->history_len);
    memcpy(cpu.logits, s->logits, sizeof *s->logits * (size_t)s->count * (size_t)s->vocab_size);
    memcpy(cpu.rows, s->rows, sizeof *s->rows * (size_t)s->count);
    memcpy(cpu.outputs, s->outputs, sizeof *s->outputs * (size_t)s->count);
    memcpy(cpu.history, s->history, sizeof *s->history * (size_t)s->count * (size_t)s->history_len);
    run(&test->backends[0], &cpu);
    run(gpu, s);
    int32_t different = 0;
    for (int32_t i = 0; i < s->count; i++) {
        const struct sampling_state *row = &s->rows[i];
        const int32_t at = i * s->history_len + row->prompt_len + s->outputs[i], top = i * SAMPLING_MAX_LOGPROBS;
        assert_in_range(s->tokens[i], 0, s->vocab_size - 1);
        assert_int_equal(s->history[at], s->tokens[i]);
        const bool same = s->tokens[i] == cpu.tokens[i];
        different += !same;
        if (row->num_logprobs < 0) continue;
        if (same) assert_int_equal(s->ranks[i], cpu.ranks[i]);
        if (same) assert_true(fabsf(s->logprobs[i] - cpu.logprobs[i]) < 1e-4f);
        for (int32_t j = 0; j < row->num_logprobs; j++) {
            assert_int_equal(s->top_ids[top + j], cpu.top_ids[top + j]);
            assert_true(fabsf(s->top_logprobs[top + j] - cpu.top_logprobs[top + j]) < 1e-4f);
        }
    }
    sampling_free(&cpu);
    return different;
}

/* Some of the options, none of them, or all. */
static void randomize_row(struct sampling *s, int32_t i, struct random *r)
{
    struct sampling_state *row = &s->rows[i];
    int32_t *history = s->history + (int64_t)i * s->history_len;
    if (random_between(r, 0, 3)) row->temperature = (float)(0.3 + 1.5 * random_uniform(r));
    if (random_between(r, 0, 1)) row->top_p = (float)(0.3 + 0.7 * random_uniform(r));
    if (random_between(r, 0, 1)) row->top_k = (int32_t)random_between(r, 1, random_between(r, 0, 1) ? 100 : 5000);
    if (random_between(r, 0, 3) == 0) row->min_p = (float)(0.2 * random_uniform(r));
    if (random_between(r, 0, 1)) row->repetition_penalty = (float)(0.8 + 0.7 * random_uniform(r));
    if (random_between(r, 0, 1)) row->frequency_penalty = (float)(2 * random_uniform(r) - 1);
    if (random_between(r, 0, 1)) row->presence_penalty = (float)(2 * random_uniform(r) - 1);
    if (random_between(r, 0, 1)) row->num_logprobs = (int32_t)random_between(r, 0, SAMPLING_MAX_LOGPROBS);
    row->seed = random_bits(r);
    row->prompt_len = (int32_t)random_between(r, 1, s->history_len / 2);
    s->outputs[i] = (int32_t)random_between(r, 0, s->history_len / 2 - 1);
    row->min_tokens = (int32_t)random_between(r, 0, s->history_len);
    row->num_stop_ids = (int32_t)random_between(r, 0, SAMPLING_MAX_STOP_IDS);
    row->num_bias = random_between(r, 0, 1) ? (int32_t)random_between(r, 0, SAMPLING_MAX_BIAS) : 0;
    for (int j = 0; j < row->num_stop_ids; j++) row->stop_ids[j] = (int32_t)random_between(r, -1, s->vocab_size);
    for (int j = 0; j < row->num_bias; j++) { /* some of them twice, some outside */
        row->bias_ids[j] = (int32_t)random_between(r, -2, j % 3 ? s->vocab_size + 1 : 40);
        row->bias_values[j] = (float)(4 * random_uniform(r) - 2);
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

/* Odd vocabularies put rows where 16-byte reads cannot start. */
static void the_same_tokens_as_the_cpu(void **state)
{
    struct kernel_test *test = *state;
    the_gpu(test); /* or the test is skipped, before anything is allocated */
    static const int32_t shapes[][3] = {{1, 128256, 3000}, {7, 128256, 500}, {64, 32000, 64}, {96, 151, 40},
                                        {3, 49153, 200},   {9, 102, 16},     {2, 256000, 100}};
    int32_t different = 0, all = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < 7; i++) {
            struct sampling s = sampling_new(shapes[i][0], shapes[i][1], shapes[i][2]);
            randomize_logits(&s, &test->random);
            for (int32_t j = 0; j < s.count; j++) randomize_row(&s, j, &test->random);
            for (int32_t j = 0; j < s.count; j++)
                if (s.rows[j].num_logprobs > s.vocab_size) s.rows[j].num_logprobs = s.vocab_size;
            different += compare(test, &s);
            all += s.count;
            sampling_free(&s);
        }
    if (different * 100 > all) fail_msg("%d of %d tokens differ from the CPU's", different, all);
}

/* Nothing but a few different values: a cut falls among thousands of equal tokens. */
static void ties_by_the_thousand(void **state)
{
    struct kernel_test *test = *state;
    the_gpu(test); /* or the test is skipped, before anything is allocated */
    struct sampling s = sampling_new(24, 128256, 8);
    for (int32_t i = 0; i < s.count; i++) {
        struct sampling_state *row = &s.rows[i];
        row->temperature = i % 4 == 0 ? 0 : 1.0f;
        row->top_k = i % 2 ? 3000 + 100 * i : 0;
        row->top_p = i % 3 ? 0.1f + 0.03f * (float)i : 1;
        row->num_logprobs = i % 5 ? SAMPLING_MAX_LOGPROBS : -1;
        for (int32_t j = 0; j < s.vocab_size; j++)
            s.logits[(int64_t)i * s.vocab_size + j] = i < 12 ? (float)(random_bits(&test->random) % 3) : 0;
        if (i % 6 == 5) /* nearly everything forbidden, zeros of both signs, NaN */
            for (int32_t j = 0; j < s.vocab_size; j++)
                s.logits[(int64_t)i * s.vocab_size + j] = j % 1000 == 7   ? -0.0f
                                                          : j % 1000 == 9 ? 0
                                                          : j % 2         ? -INFINITY
                                                                          : NAN;
    }
    assert_true(compare(test, &s) <= 1);
    sampling_free(&s);
}

/* A few tokens that are likely, and all others so far below that a selection tells them apart last; some of the cuts
 * fall among those. */
static void few_tokens_are_likely(void **state)
{
    static const float shares[] = {0.5f, 0.9f, 0.999f, 0.99999f, 0.9999999f};
    struct kernel_test *test = *state;
    the_gpu(test); /* or the test is skipped, before anything is allocated */
    struct sampling s = sampling_new(40, 128256, 8);
    for (int32_t i = 0; i < s.count; i++) {
        float *logits = s.logits + (int64_t)i * s.vocab_size;
        for (int32_t j = 0; j < s.vocab_size; j++)
            logits[j] = -(float)(12 + 2 * (i % 7)) - 3 * (float)random_uniform(&test->random);
        for (int32_t j = 0; j < 30; j++)
            logits[random_between(&test->random, 0, s.vocab_size - 1)] = 5 * (float)random_uniform(&test->random);
        s.rows[i].temperature = i % 2 ? 1.0f : 0.7f;
        s.rows[i].top_p = shares[i % 5];
        s.rows[i].top_k = i % 3 ? 0 : 25 + 3 * i;
        s.rows[i].num_logprobs = i % 4 ? -1 : SAMPLING_MAX_LOGPROBS;
    }
    assert_true(compare(test, &s) <= 1);
    sampling_free(&s);
}

/* Everything the same but the batch: the same token. */
static void a_row_does_not_depend_on_the_batch(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = the_gpu(test); /* or the test is skipped, before anything is allocated */
    struct sampling s = sampling_new(MAX_ROWS, 50000, 64);
    randomize_logits(&s, &test->random);
    for (int32_t i = 0; i < s.count; i++) randomize_row(&s, i, &test->random);
    struct sampling one = sampling_new(1, 50000, 64);
    run(gpu, &s);
    for (int32_t i = 0; i < s.count; i += 19) {
        memcpy(one.logits, s.logits + (int64_t)i * s.vocab_size, sizeof *one.logits * (size_t)one.vocab_size);
        memcpy(one.history, s.history + i * 64, 64 * sizeof *one.history);
        one.rows[0] = s.rows[i];
        one.outputs[0] = s.outputs[i];
        run(gpu, &one);
        assert_int_equal(one.tokens[0], s.tokens[i]);
        if (s.rows[i].num_logprobs >= 0) assert_int_equal(one.ranks[0], s.ranks[i]);
    }
    sampling_free(&s), sampling_free(&one);
}

/* A history as long as the vocabulary for every row: logits are kept aside for some rows at a time. */
static void more_rows_than_are_kept_aside(void **state)
{
    struct kernel_test *test = *state;
    the_gpu(test); /* or the test is skipped, before anything is allocated */
    struct sampling s = sampling_new(48, 100000, 110000);
    randomize_logits(&s, &test->random);
    for (int32_t i = 0; i < s.count; i++) {
        randomize_row(&s, i, &test->random);
        s.rows[i].repetition_penalty = 1.2f;
        s.rows[i].num_logprobs = 5;
    }
    assert_true(compare(test, &s) <= 1);
    sampling_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_tokens_as_the_cpu),    cmocka_unit_test(ties_by_the_thousand),
        cmocka_unit_test(few_tokens_are_likely),         cmocka_unit_test(a_row_does_not_depend_on_the_batch),
        cmocka_unit_test(more_rows_than_are_kept_aside),
    };
    return cmocka_run_group_tests(tests, kernel_test_setup, kernel_test_teardown);
}
