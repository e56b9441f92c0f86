/* Sampling: known answers of the generator, each option alone, all options combined against a sampler that sorts in
 * float64, and the distribution of the tokens drawn. Rows of logits end with padding (tensor_padded_logits). */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/philox.h"
#include "tests/support/kernel_test.h"

enum { MAX_SAMPLES = 64, HISTORY = 64 };

/* A batch of samples. Sample i has state index state_indices[i]. The results of sampling come back here. */
struct sampling {
    int32_t count, vocab_size;
    int32_t workspace_samples;                 /* the workspace is made for so many */
    float *logits;                             /* [count, vocab_size] */
    struct sampling_state states[MAX_SAMPLES]; /* by state index */
    int32_t state_indices[MAX_SAMPLES], output_positions[MAX_SAMPLES];
    bool has_drafts;
    int32_t drafts[MAX_SAMPLES];
    uint32_t *masks; /* [MAX_SAMPLES, mask_words]; NULL: none */
    int64_t mask_words;
    int32_t mask_rows[MAX_SAMPLES];
    int32_t history[MAX_SAMPLES * HISTORY]; /* by state index */
    int32_t tokens[MAX_SAMPLES], ranks[MAX_SAMPLES];
    float logprobs[MAX_SAMPLES];
    int32_t top_ids[MAX_SAMPLES * SAMPLING_MAX_TOP];
    float top_logprobs[MAX_SAMPLES * SAMPLING_MAX_TOP];
};

static struct sampling_state plain_state(void)
{
    return (struct sampling_state){.temperature = 0, .top_p = 1, .repetition_penalty = 1, .num_logprobs = -1};
}

static struct sampling *sampling_new(int32_t count, int32_t vocab_size)
{
    struct sampling *s = calloc(1, sizeof *s);
    s->count = count;
    s->vocab_size = vocab_size;
    s->workspace_samples = MAX_SAMPLES;
    s->logits = calloc((size_t)count * (size_t)vocab_size, sizeof *s->logits);
    for (int32_t i = 0; i < MAX_SAMPLES; i++) {
        s->states[i] = plain_state();
        s->state_indices[i] = i;
    }
    return s;
}

static void sampling_free(struct sampling *s)
{
    free(s->logits);
    free(s->masks);
    free(s);
}

static void fetch(struct tensor *t, void *out)
{
    tensor_download(t);
    memcpy(out, t->host, (size_t)t->bytes);
    tensor_free(t);
}

static void workspace_for(struct test_backend *tb, const struct sampling *s)
{
    const struct workspace_query query = {.max_num_tokens = 1,
                                          .max_num_seqs = s->workspace_samples,
                                          .max_model_len = HISTORY,
                                          .num_heads = 1,
                                          .head_size = 64,
                                          .block_size = 16,
                                          .max_in_features = 64,
                                          .vocab_size = s->vocab_size};
    use_workspace(tb, &query);
}

/* Sets the flags that say which passes the batch needs. */
static void set_flags(const struct sampling *s, struct sample_args *args)
{
    for (int32_t i = 0; i < s->count; i++) {
        const struct sampling_state *state = &s->states[s->state_indices[i]];
        args->any_random |= state->temperature >= 1e-5f;
        args->any_logprobs |= state->num_logprobs >= 0;
        args->any_processing |= state->num_bias > 0 || state->num_stop_ids > 0 || state->repetition_penalty != 1 ||
                                state->presence_penalty != 0 || state->frequency_penalty != 0;
    }
}

static void run(struct test_backend *tb, struct sampling *s)
{
    struct backend *b = tb->b;
    const int64_t n = s->count, word = 4;
    workspace_for(tb, s);
    int64_t logits_stride;
    struct tensor logits = tensor_padded_logits(tb, s->logits, n, s->vocab_size, &logits_stride);
    struct tensor states = tensor_bytes(b, s->states, (int64_t)sizeof s->states);
    struct tensor state_indices = tensor_bytes(b, s->state_indices, n * word);
    struct tensor output_positions = tensor_bytes(b, s->output_positions, n * word);
    struct tensor drafts = tensor_bytes(b, s->drafts, n * word);
    struct tensor masks = {0}, mask_rows = tensor_bytes(b, s->mask_rows, n * word);
    if (s->masks) masks = tensor_bytes(b, s->masks, MAX_SAMPLES * s->mask_words * word);
    struct tensor history = tensor_bytes(b, s->history, (int64_t)sizeof s->history);
    struct tensor tokens = tensor_poison(b, DTYPE_FLOAT32, n), ranks = tensor_poison(b, DTYPE_FLOAT32, n);
    struct tensor logprobs = tensor_poison(b, DTYPE_FLOAT32, n);
    struct tensor top_ids = tensor_poison(b, DTYPE_FLOAT32, n * SAMPLING_MAX_TOP);
    struct tensor top_logprobs = tensor_poison(b, DTYPE_FLOAT32, n * SAMPLING_MAX_TOP);
    struct sample_args args = {.logits = logits.data,
                               .logits_stride = logits_stride,
                               .num_samples = s->count,
                               .vocab_size = s->vocab_size,
                               .state_indices = state_indices.data,
                               .output_positions = output_positions.data,
                               .states = states.data,
                               .history = history.data,
                               .history_stride = HISTORY,
                               .drafts = s->has_drafts ? drafts.data : NULL,
                               .masks = masks.data,
                               .mask_words = s->mask_words,
                               .mask_rows = mask_rows.data,
                               .token_ids = tokens.data,
                               .logprobs = logprobs.data,
                               .ranks = ranks.data,
                               .top_stride = SAMPLING_MAX_TOP,
                               .top_ids = top_ids.data,
                               .top_logprobs = top_logprobs.data};
    set_flags(s, &args);
    b->sample(b, &args);
    fetch(&tokens, s->tokens), fetch(&ranks, s->ranks), fetch(&logprobs, s->logprobs);
    fetch(&top_ids, s->top_ids), fetch(&top_logprobs, s->top_logprobs), fetch(&history, s->history);
    tensor_free(&logits), tensor_free(&states), tensor_free(&state_indices), tensor_free(&output_positions);
    tensor_free(&drafts), tensor_free(&mask_rows);
    if (s->masks) tensor_free(&masks);
    check_workspace(tb);
}

static struct kernel_test *test_of(void **state)
{
    return *state;
}

/* Samples from one vector of logits on every backend; all must give the same token. */
static int32_t sample_row(struct kernel_test *test, const float *logits, int32_t vocab_size,
                          const struct sampling_state *row, const int32_t *history, int32_t output)
{
    int32_t token = -1;
    for (int i = 0; i < test->num_backends; i++) {
        struct sampling *s = sampling_new(1, vocab_size);
        memcpy(s->logits, logits, sizeof *logits * (size_t)vocab_size);
        s->state_indices[0] = 3;
        s->states[3] = *row;
        s->output_positions[0] = output;
        if (history) memcpy(s->history + 3 * HISTORY, history, sizeof *history * (size_t)(row->prompt_len + output));
        run(&test->backends[i], s);
        if (i > 0) assert_int_equal(s->tokens[0], token);
        token = s->tokens[0];
        assert_int_equal(s->history[3 * HISTORY + row->prompt_len + output], token < 0 ? 0 : token);
        sampling_free(s);
    }
    return token;
}

/* Philox4x32-10 with any counter and key, as its authors state it: multiplications split into halves. */
static void philox_any(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t k0 = key[0], k1 = key[1];
    memcpy(out, counter, 4 * sizeof *out);
    for (int round = 0; round < 10; round++) {
        const uint64_t product0 = (uint64_t)out[0] * 3528531795u, product1 = (uint64_t)out[2] * 3449720151u;
        const uint32_t next[4] = {(uint32_t)(product1 >> 32) ^ out[1] ^ k0, (uint32_t)product1,
                                  (uint32_t)(product0 >> 32) ^ out[3] ^ k1, (uint32_t)product0};
        memcpy(out, next, sizeof next);
        k0 += 2654435769u, k1 += 3144134277u;
    }
}

/* The general form gives the three published vectors of Random123 (Salmon et al., 2011), and quire's form, whose last
 * counter word is 0, gives what the general form gives. */
static void philox_known_answers(void **state)
{
    struct kernel_test *test = *state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    uint32_t out[4], expected[4];
    for (int i = 0; i < 3; i++) {
        philox_any(known[i].counter, known[i].key, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
    philox4x32(0, 0, 0, 0, out);
    assert_memory_equal(out, known[0].out, sizeof out);
    for (int i = 0; i < 1000; i++) {
        const uint64_t seed = random_bits(&test->random), bits = random_bits(&test->random);
        const uint32_t counter[4] = {(uint32_t)bits, (uint32_t)(bits >> 32), (uint32_t)(seed * 3), 0};
        const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
        philox4x32(seed, counter[2], counter[1], counter[0], out);
        philox_any(counter, key, expected);
        assert_memory_equal(out, expected, sizeof out);
    }
    assert_true(philox_uniform(0) > 0);
    assert_true(philox_uniform(UINT32_MAX) < 1);
}

static void greedy_takes_the_largest(void **state)
{
    float logits[9] = {1, 5, -2, 5, 4.999f, 0, 5, -1, 3};
    const struct sampling_state row = plain_state();
    assert_int_equal(sample_row(test_of(state), logits, 9, &row, NULL, 0), 1); /* ties to the lowest id */
    logits[8] = FLT_MAX;
    assert_int_equal(sample_row(test_of(state), logits, 9, &row, NULL, 0), 8);
    for (int i = 0; i < 9; i++) logits[i] = -1e30f * (float)(10 - i);
    assert_int_equal(sample_row(test_of(state), logits, 9, &row, NULL, 0), 8);
}

/* Whatever the parameters are: the token id is -1 if any logit is NaN or the largest is infinite. */
static void nan_or_infinite_logits_give_no_token(void **state)
{
    static const int32_t places[] = {0, 1, 20, 38, 39};
    const int32_t history[8] = {5, 6};
    float logits[40];
    for (int pass = 0; pass < 8; pass++) {
        struct sampling_state row = plain_state();
        row.temperature = pass % 2 ? 1 : 0;
        row.top_p = pass / 2 % 2 ? 0.5f : 1;
        row.top_k = pass / 2 % 2 ? 3 : 0;
        row.presence_penalty = pass / 4 ? 1 : 0;
        row.prompt_len = 2;
        for (int i = 0; i < 40; i++) logits[i] = NAN;
        assert_int_equal(sample_row(test_of(state), logits, 40, &row, history, 0), -1);
        for (int i = 0; i < 40; i++) logits[i] = -INFINITY;
        assert_int_equal(sample_row(test_of(state), logits, 40, &row, history, 0), -1);
        logits[37] = -5; /* one finite logit is enough */
        assert_int_equal(sample_row(test_of(state), logits, 40, &row, history, 0), 37);
        for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
            for (int i = 0; i < 40; i++) logits[i] = (float)i;
            logits[places[k]] = NAN;
            assert_int_equal(sample_row(test_of(state), logits, 40, &row, history, 0), -1);
            logits[places[k]] = INFINITY;
            assert_int_equal(sample_row(test_of(state), logits, 40, &row, history, 0), -1);
            logits[places[k]] = -INFINITY;
            assert_int_not_equal(sample_row(test_of(state), logits, 40, &row, history, 0), -1);
        }
    }
}

/* Every third sample has a NaN or infinite logit. Its token id is -1 and its history stays as it was; the other samples
 * get their tokens. */
static void other_samples_get_their_tokens(void **state)
{
    struct kernel_test *test = test_of(state);
    for (int k = 0; k < test->num_backends; k++) {
        struct sampling *s = sampling_new(32, 5000);
        for (int32_t i = 0; i < s->count; i++) {
            float *logits = s->logits + i * s->vocab_size;
            logits[100 + i] = 50;
            if (i % 3 == 1) logits[i * 977 % s->vocab_size] = i % 2 ? NAN : INFINITY;
            s->states[i].temperature = i % 4 < 2 ? 1 : 0;
            s->states[i].num_logprobs = 3;
            s->states[i].prompt_len = 1;
            s->history[i * HISTORY + 1] = 77;
        }
        run(&test->backends[k], s);
        for (int32_t i = 0; i < s->count; i++) {
            const bool has_token = i % 3 != 1;
            assert_int_equal(s->tokens[i], has_token ? 100 + i : -1);
            assert_int_equal(s->history[i * HISTORY + 1], has_token ? 100 + i : 77);
            if (has_token) assert_int_equal(s->ranks[i], 1);
        }
        sampling_free(s);
    }
}

static void min_tokens_forbids_stop_ids(void **state)
{
    const float logits[6] = {0, 9, 8, 7, 6, 5};
    const int32_t history[8] = {0};
    struct sampling_state row = plain_state();
    row.min_tokens = 2;
    row.num_stop_ids = 2;
    row.stop_ids[0] = 1;
    row.stop_ids[1] = 2;
    row.prompt_len = 1;
    assert_int_equal(sample_row(test_of(state), logits, 6, &row, history, 0), 3);
    assert_int_equal(sample_row(test_of(state), logits, 6, &row, history, 1), 3);
    assert_int_equal(sample_row(test_of(state), logits, 6, &row, history, 2), 1);
    row.num_bias = 1; /* a bias does not bring a forbidden token back */
    row.bias_ids[0] = 1;
    row.bias_values[0] = 100;
    assert_int_equal(sample_row(test_of(state), logits, 6, &row, history, 0), 3);
}

static void logit_bias_is_added(void **state)
{
    const float logits[5] = {1, 2, 3, 4, 5};
    struct sampling_state row = plain_state();
    row.num_bias = 3;
    row.bias_ids[0] = 4, row.bias_values[0] = -100;
    row.bias_ids[1] = 0, row.bias_values[1] = 3.5f;
    row.bias_ids[2] = 77, row.bias_values[2] = 100; /* not in the vocabulary: ignored */
    assert_int_equal(sample_row(test_of(state), logits, 5, &row, NULL, 0), 0);
}

/* History: prompt 0 1, output 2 2 3. */
static void penalties_apply_where_they_should(void **state)
{
    const int32_t history[5] = {0, 1, 2, 2, 3};
    struct sampling_state row = plain_state();
    row.prompt_len = 2;
    const float positive[6] = {5, 5, 5, 5, 2.6f, 2.4f};
    row.repetition_penalty = 2; /* 2.5 2.5 2.5 2.5 2.6 2.4: prompt and output alike */
    assert_int_equal(sample_row(test_of(state), positive, 6, &row, history, 3), 4);
    const float negative[6] = {-1, -1, -1, -1, -1.9f, -2.1f}; /* -2 -2 -2 -2 -1.9 -2.1 */
    assert_int_equal(sample_row(test_of(state), negative, 6, &row, history, 3), 4);
    row.repetition_penalty = 1;
    row.frequency_penalty = 1;
    const float frequency[6] = {0, 0, 3.5f, 2.4f, 1.3f, 1}; /* 0 0 1.5 1.4 1.3 1: the prompt is not counted */
    assert_int_equal(sample_row(test_of(state), frequency, 6, &row, history, 3), 2);
    const float frequency2[6] = {0, 0, 3.3f, 2.4f, 1.3f, 1};
    assert_int_equal(sample_row(test_of(state), frequency2, 6, &row, history, 3), 3);
    row.frequency_penalty = 0;
    row.presence_penalty = 1;
    const float presence[6] = {1.1f, 0, 2.2f, 2, 1.1f, 1}; /* 1.1 0 1.2 1 1.1 1: once, however often */
    assert_int_equal(sample_row(test_of(state), presence, 6, &row, history, 3), 2);
    row.presence_penalty = -1; /* 1.1 0 3.2 3.3 .. */
    const float reward[6] = {1.1f, 0, 2.2f, 2.3f, 1.1f, 1};
    assert_int_equal(sample_row(test_of(state), reward, 6, &row, history, 3), 3);
}

/* Draws many times from one vector of logits, at different output positions; counts [vocab_size] how often each token
 * came. */
static void draw_many(struct test_backend *tb, const float *logits, int32_t vocab_size,
                      const struct sampling_state *row, int32_t draws, int32_t *counts)
{
    memset(counts, 0, sizeof *counts * (size_t)vocab_size);
    for (int32_t done = 0; done < draws; done += MAX_SAMPLES) {
        struct sampling *s = sampling_new(MAX_SAMPLES, vocab_size);
        for (int32_t i = 0; i < MAX_SAMPLES; i++) {
            memcpy(s->logits + (int64_t)i * vocab_size, logits, sizeof *logits * (size_t)vocab_size);
            s->states[i] = *row;
            s->states[i].seed = row->seed + (uint64_t)done;
            s->states[i].sequence_index = (uint32_t)i / 8;
            s->output_positions[i] = i % 8;
        }
        run(tb, s);
        for (int32_t i = 0; i < MAX_SAMPLES; i++) counts[s->tokens[i]]++;
        sampling_free(s);
    }
}

/* Pearson's chi-square against the exact probabilities: its mean is the degrees of freedom k, its deviation sqrt(2k).
 * Six deviations do not happen. Tokens that were cut off must never be drawn. */
static void check_distribution(struct test_backend *tb, const float *logits, int32_t vocab_size,
                               const struct sampling_state *row, int32_t draws)
{
    int32_t *counts = calloc((size_t)vocab_size, sizeof *counts);
    struct reference_sample expected = {.probabilities = calloc((size_t)vocab_size, sizeof(double))};
    reference_sample(&expected, logits, vocab_size, row, NULL, 0);
    draw_many(tb, logits, vocab_size, row, draws, counts);
    double chi_square = 0;
    for (int32_t i = 0; i < vocab_size; i++) {
        const double mean = expected.probabilities[i] * draws;
        if (mean == 0 && counts[i] > 0) fail_msg("%s: token %d was cut off, yet it was drawn", tb->name, i);
        if (mean > 0) chi_square += (counts[i] - mean) * (counts[i] - mean) / mean;
    }
    const double freedom = expected.num_kept - 1;
    if (fabs(chi_square - freedom) > 6 * sqrt(2 * freedom) + 6)
        fail_msg("%s: chi-square %.1f for %.0f degrees of freedom", tb->name, chi_square, freedom);
    free(counts), free(expected.probabilities);
}

static void draws_the_right_distribution(void **state)
{
    struct kernel_test *test = *state;
    float logits[30];
    for (int i = 0; i < 30; i++) logits[i] = (float)(2 * random_uniform(&test->random));
    for (int i = 0; i < test->num_backends; i++) {
        struct sampling_state row = plain_state();
        row.seed = 12345;
        row.temperature = 1;
        check_distribution(&test->backends[i], logits, 30, &row, 12800);
        row.temperature = 0.5f;
        check_distribution(&test->backends[i], logits, 30, &row, 6400);
        row.temperature = 1.5f;
        row.top_k = 7;
        check_distribution(&test->backends[i], logits, 30, &row, 6400);
        row.top_k = 0;
        row.top_p = 0.6f;
        check_distribution(&test->backends[i], logits, 30, &row, 6400);
        row.top_p = 1;
        row.min_p = 0.4f;
        check_distribution(&test->backends[i], logits, 30, &row, 6400);
        row.top_p = 0.8f;
        row.top_k = 20;
        row.min_p = 0.1f;
        check_distribution(&test->backends[i], logits, 30, &row, 6400);
    }
}

static void cuts_to_one_token(void **state)
{
    const float logits[5] = {1, 2, 7, 3, 4};
    struct sampling_state row = plain_state();
    row.temperature = 2;
    for (uint64_t seed = 0; seed < 10; seed++) {
        row.seed = seed;
        row.top_k = 1;
        assert_int_equal(sample_row(test_of(state), logits, 5, &row, NULL, 0), 2);
        row.top_k = -1;
        row.top_p = 1e-6f; /* always at least one */
        assert_int_equal(sample_row(test_of(state), logits, 5, &row, NULL, 0), 2);
        row.top_p = 1;
        row.min_p = 1;
        assert_int_equal(sample_row(test_of(state), logits, 5, &row, NULL, 0), 2);
        row.min_p = 0;
    }
}

/* With a tie for the second place, top_k 2 keeps all that tie, and all of them are drawn. */
static void top_k_keeps_ties(void **state)
{
    struct kernel_test *test = *state;
    const float logits[6] = {0, 1, 2, 1, 0, 0};
    struct sampling_state row = plain_state();
    row.temperature = 3;
    row.top_k = 2;
    for (int i = 0; i < test->num_backends; i++) {
        int32_t counts[6];
        draw_many(&test->backends[i], logits, 6, &row, 640, counts);
        assert_true(counts[1] > 0 && counts[2] > 0 && counts[3] > 0);
        assert_int_equal(counts[0] + counts[4] + counts[5], 0);
    }
}

static void randomize_logits(struct sampling *s, int32_t i, struct random *r)
{
    for (int32_t j = 0; j < s->vocab_size; j++)
        s->logits[(int64_t)i * s->vocab_size + j] = (float)(12 * random_uniform(r) * random_uniform(r) - 4);
}

/* A sample with random options, history and logits. */
static void randomize(struct sampling *s, int32_t i, struct random *r)
{
    struct sampling_state *row = &s->states[s->state_indices[i]];
    int32_t *history = s->history + s->state_indices[i] * HISTORY;
    *row = plain_state();
    row->temperature = random_between(r, 0, 3) == 0 ? 0 : (float)(0.2 + 2 * random_uniform(r));
    if (random_between(r, 0, 1)) row->top_p = (float)(0.05 + 0.95 * random_uniform(r));
    if (random_between(r, 0, 1)) row->top_k = (int32_t)random_between(r, 1, s->vocab_size + 5);
    if (random_between(r, 0, 1)) row->min_p = (float)(0.3 * random_uniform(r));
    if (random_between(r, 0, 1)) row->repetition_penalty = (float)(0.5 + 1.5 * random_uniform(r));
    if (random_between(r, 0, 1)) row->frequency_penalty = (float)(4 * random_uniform(r) - 2);
    if (random_between(r, 0, 1)) row->presence_penalty = (float)(4 * random_uniform(r) - 2);
    row->seed = random_bits(r);
    row->sequence_index = (uint32_t)random_between(r, 0, 5);
    row->prompt_len = (int32_t)random_between(r, 1, HISTORY / 2);
    row->min_tokens = (int32_t)random_between(r, 0, 20);
    row->num_stop_ids = (int32_t)random_between(r, 0, 4);
    row->num_bias = (int32_t)random_between(r, 0, 6);
    for (int j = 0; j < row->num_stop_ids; j++) row->stop_ids[j] = (int32_t)random_between(r, 0, s->vocab_size - 1);
    for (int j = 0; j < row->num_bias; j++) {
        row->bias_ids[j] = (int32_t)((random_bits(r) % 50 * 7 + (uint64_t)j) % (uint64_t)s->vocab_size);
        row->bias_values[j] = (float)(10 * random_uniform(r) - 5);
    }
    row->num_logprobs = (int32_t)random_between(r, -1, SAMPLING_MAX_TOP);
    s->output_positions[i] = (int32_t)random_between(r, 0, HISTORY / 2 - 1);
    for (int j = 0; j < HISTORY; j++) history[j] = (int32_t)random_between(r, 0, j % 2 ? 5 : s->vocab_size - 1);
    randomize_logits(s, i, r);
}

static void check_logprobs(const struct test_backend *tb, const struct sampling *s, int32_t i,
                           const struct reference_sample *expected)
{
    const float *logits = s->logits + (int64_t)i * s->vocab_size;
    const int32_t wanted = s->states[s->state_indices[i]].num_logprobs, sampled = s->tokens[i];
    const double total = logits[expected->token] - expected->logprob; /* log of the sum of exp(logit) */
    int32_t rank = 1;
    if (wanted < 0) return;
    for (int32_t j = 0; j < s->vocab_size; j++) rank += logits[j] > logits[sampled];
    assert_int_equal(s->ranks[i], rank);
    if (fabs(s->logprobs[i] - (logits[sampled] - total)) > 1e-4)
        fail_msg("%s: logprob %g, not %g", tb->name, (double)s->logprobs[i], logits[sampled] - total);
    for (int32_t j = 0; j < wanted && j < s->vocab_size; j++) {
        const int32_t id = s->top_ids[i * SAMPLING_MAX_TOP + j];
        int32_t ahead = 0; /* tokens that come before this one */
        for (int32_t k = 0; k < s->vocab_size; k++)
            ahead += logits[k] > logits[id] || (logits[k] == logits[id] && k < id);
        assert_int_equal(ahead, j);
        assert_true(fabs(s->top_logprobs[i * SAMPLING_MAX_TOP + j] - (logits[id] - total)) < 1e-4);
    }
}

static void options_combine(void **state)
{
    struct kernel_test *test = *state;
    int32_t close = 0, all = 0;
    for (int pass = 0; pass < 24; pass++)
        for (int i = 0; i < test->num_backends; i++) {
            const int32_t vocab_size = pass % 4 == 0 ? 5 : pass % 4 == 1 ? 64 : pass % 4 == 2 ? 333 : 5000;
            struct sampling *s = sampling_new(16, vocab_size);
            for (int32_t j = 0; j < 16; j++) s->state_indices[j] = (j * 7 + 3) % MAX_SAMPLES;
            for (int32_t j = 0; j < 16; j++) randomize(s, j, &test->random);
            struct sampling *before = malloc(sizeof *before);
            memcpy(before, s, sizeof *s);
            run(&test->backends[i], s);
            for (int32_t j = 0; j < 16; j++) {
                struct reference_sample expected = {.probabilities = NULL};
                const struct sampling_state *row = &s->states[s->state_indices[j]];
                int32_t *history = before->history + s->state_indices[j] * HISTORY;
                reference_sample(&expected, s->logits + (int64_t)j * vocab_size, vocab_size, row, history,
                                 s->output_positions[j]);
                all++;
                close += expected.close;
                if (!expected.close && s->tokens[j] != expected.token)
                    fail_msg("%s: token %d, not %d (vocabulary %d, temperature %g, top_p %g, top_k %d, min_p %g)",
                             test->backends[i].name, s->tokens[j], expected.token, vocab_size, (double)row->temperature,
                             (double)row->top_p, row->top_k, (double)row->min_p);
                check_logprobs(&test->backends[i], s, j, &expected);
                history[row->prompt_len + s->output_positions[j]] = s->tokens[j]; /* and nothing else is written */
            }
            assert_memory_equal(s->history, before->history, sizeof s->history);
            free(before);
            sampling_free(s);
        }
    assert_true(close * 20 < all); /* a check that skips much checks little */
}

/* A seed gives the same token whatever else is in the batch and whatever its state index. */
static void batch_does_not_matter(void **state)
{
    struct kernel_test *test = *state;
    for (int i = 0; i < test->num_backends; i++) {
        struct sampling *s = sampling_new(20, 500);
        for (int32_t j = 0; j < 20; j++) randomize(s, j, &test->random);
        struct sampling *alone = sampling_new(1, 500);
        memcpy(alone->logits, s->logits + 13 * 500, 500 * sizeof(float));
        memcpy(alone->states, s->states, sizeof s->states);
        memcpy(alone->history, s->history, sizeof s->history);
        alone->state_indices[0] = s->state_indices[13];
        alone->output_positions[0] = s->output_positions[13];
        run(&test->backends[i], s);
        run(&test->backends[i], alone);
        assert_int_equal(s->tokens[13], alone->tokens[0]);
        sampling_free(s), sampling_free(alone);
    }
}

/* ---- runs ---- */

enum { RUN_SAMPLES = 40, LONGEST_RUN = 1 + MAX_DRAFTS };

/* Where the runs begin: run k is the samples starts[k], ..., starts[k + 1] - 1. */
struct runs {
    int32_t count, starts[RUN_SAMPLES + 1];
    int32_t accepted[RUN_SAMPLES]; /* the first so many drafts of a run are what plain calls draw */
};

/* Logits of few tokens are near the largest, so that a penalty often changes which is drawn. */
static void random_runs(struct sampling *s, struct runs *runs, bool plain, struct random *r)
{
    *runs = (struct runs){0};
    for (int32_t first = 0, length; first < s->count; first += length) {
        length = (int32_t)random_between(r, 1, LONGEST_RUN);
        if (length > s->count - first) length = s->count - first;
        const int32_t state = (runs->count * 7 + 3) % MAX_SAMPLES;
        s->state_indices[first] = state;
        randomize(s, first, r);
        s->output_positions[first] %= HISTORY / 2 - LONGEST_RUN;
        if (plain) s->states[state] = (struct sampling_state){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
        for (int32_t i = first; i < first + length; i++) {
            randomize_logits(s, i, r);
            for (int32_t j = 20; j < s->vocab_size; j++) s->logits[i * s->vocab_size + j] -= 4;
            s->state_indices[i] = state;
            s->output_positions[i] = s->output_positions[first] + i - first;
        }
        runs->starts[runs->count++] = first;
    }
    runs->starts[runs->count] = s->count;
}

static void copy_sample(struct sampling *to, int32_t i, const struct sampling *from, int32_t j)
{
    memcpy(to->logits + (int64_t)i * to->vocab_size, from->logits + (int64_t)j * to->vocab_size,
           sizeof *to->logits * (size_t)to->vocab_size);
    to->state_indices[i] = from->state_indices[j];
    to->output_positions[i] = from->output_positions[j];
}

static void copy_results(struct sampling *to, int32_t i, const struct sampling *from, int32_t j)
{
    to->tokens[i] = from->tokens[j], to->ranks[i] = from->ranks[j], to->logprobs[i] = from->logprobs[j];
    memcpy(to->top_ids + (int64_t)i * SAMPLING_MAX_TOP, from->top_ids + (int64_t)j * SAMPLING_MAX_TOP,
           SAMPLING_MAX_TOP * sizeof *to->top_ids);
    memcpy(to->top_logprobs + (int64_t)i * SAMPLING_MAX_TOP, from->top_logprobs + (int64_t)j * SAMPLING_MAX_TOP,
           SAMPLING_MAX_TOP * sizeof *to->top_logprobs);
}

/* The results of `s`, whose runs are drawn one token after another, all by plain calls. */
static void draw_plainly(struct test_backend *tb, struct sampling *s, const struct runs *runs)
{
    for (int32_t at = 0; at < LONGEST_RUN; at++) {
        struct sampling *step = sampling_new(runs->count, s->vocab_size);
        int32_t from[RUN_SAMPLES];
        step->count = 0;
        memcpy(step->states, s->states, sizeof s->states);
        memcpy(step->history, s->history, sizeof s->history);
        for (int32_t k = 0; k < runs->count; k++) {
            const int32_t i = runs->starts[k] + at;
            if (i >= runs->starts[k + 1]) continue;
            copy_sample(step, step->count, s, i);
            from[step->count++] = i;
        }
        if (step->count > 0) {
            run(tb, step);
            memcpy(s->history, step->history, sizeof s->history);
            for (int32_t j = 0; j < step->count; j++) copy_results(s, from[j], step, j);
        }
        sampling_free(step);
    }
}

/* Some drafts of a run, from its second sample on, are the tokens before; the next is not, and the rest may be. */
static void choose_drafts(struct sampling *s, struct runs *runs, const struct sampling *expected, struct random *r)
{
    s->has_drafts = true;
    for (int32_t k = 0; k < runs->count; k++) {
        const int32_t first = runs->starts[k], num_drafts = runs->starts[k + 1] - first - 1;
        runs->accepted[k] = random_between(r, 0, 1) ? num_drafts : (int32_t)random_between(r, 0, num_drafts);
        s->drafts[first] = -1;
        for (int32_t i = 1; i <= num_drafts; i++) {
            const int32_t token = expected->tokens[first + i - 1];
            s->drafts[first + i] = i - 1 == runs->accepted[k] ? (token + 1) % s->vocab_size : token;
        }
    }
}

/* What was accepted, and the token after it. */
static void check_run(const char *name, const struct sampling *s, const struct sampling *expected, int32_t first,
                      int32_t accepted)
{
    const struct sampling_state *options = &s->states[s->state_indices[first]];
    for (int32_t i = first; i <= first + accepted; i++) {
        const int32_t top = i * SAMPLING_MAX_TOP, position = options->prompt_len + s->output_positions[i];
        if (s->tokens[i] != expected->tokens[i])
            fail_msg("%s: token %d of a run is %d, not %d", name, i - first, s->tokens[i], expected->tokens[i]);
        assert_int_equal(s->history[s->state_indices[i] * HISTORY + position], expected->tokens[i]);
        if (options->num_logprobs < 0) continue;
        assert_int_equal(s->ranks[i], expected->ranks[i]);
        assert_true(fabsf(s->logprobs[i] - expected->logprobs[i]) < 1e-4f);
        for (int32_t j = 0; j < options->num_logprobs; j++) {
            assert_int_equal(s->top_ids[top + j], expected->top_ids[top + j]);
            assert_true(fabsf(s->top_logprobs[top + j] - expected->top_logprobs[top + j]) < 1e-4f);
        }
    }
}

/* A workspace for a few samples makes the CUDA backend take them in parts, which cut runs. */
static void check_runs(struct test_backend *tb, int32_t workspace_samples, bool plain, struct random *r)
{
    struct sampling *s = sampling_new(RUN_SAMPLES, 700), *expected = sampling_new(RUN_SAMPLES, 700);
    float *logits = expected->logits;
    struct runs runs;
    random_runs(s, &runs, plain, r);
    memcpy(logits, s->logits, sizeof *logits * (size_t)s->count * (size_t)s->vocab_size);
    *expected = *s;
    expected->logits = logits;
    draw_plainly(tb, expected, &runs);
    choose_drafts(s, &runs, expected, r);
    s->workspace_samples = workspace_samples;
    run(tb, s);
    for (int32_t k = 0; k < runs.count; k++) check_run(tb->name, s, expected, runs.starts[k], runs.accepted[k]);
    sampling_free(s), sampling_free(expected);
}

/* Up to the first token that is not the draft, a run draws what plain calls do, whatever its options are. */
static void runs_draw_what_plain_calls_draw(void **state)
{
    struct kernel_test *test = *state;
    for (int i = 0; i < test->num_backends; i++)
        for (int pass = 0; pass < 24; pass++)
            check_runs(&test->backends[i], pass % 2 ? 8 : MAX_SAMPLES, pass % 6 == 5, &test->random);
}

/* ---- masks ---- */

static bool mask_has(const struct sampling *s, int32_t i, int32_t id)
{
    return s->mask_rows[i] < 0 || s->masks[s->mask_rows[i] * s->mask_words + id / 32] >> id % 32 & 1;
}

/* Rows in any order, of few ids or of most, with bits behind the vocabulary; some samples have none. */
static void random_masks(struct sampling *s, struct random *r)
{
    s->mask_words = (s->vocab_size + 31) / 32 + (int64_t)random_between(r, 0, 3);
    s->masks = calloc((size_t)(MAX_SAMPLES * s->mask_words), sizeof *s->masks);
    for (int32_t i = 0; i < s->count; i++) {
        s->mask_rows[i] = random_between(r, 0, 4) == 0 ? -1 : (i * 5 + 3) % MAX_SAMPLES;
        if (s->mask_rows[i] < 0) continue;
        uint32_t *mask = s->masks + s->mask_rows[i] * s->mask_words;
        const int kind = (int)random_between(r, 0, 2);
        for (int64_t w = 0; w < s->mask_words; w++)
            mask[w] = kind == 0 ? (uint32_t)random_bits(r) : kind == 1 ? ~(1u << w % 32) : 0;
        const int32_t id = (int32_t)random_between(r, 0, s->vocab_size - 1); /* one at least */
        mask[id / 32] |= 1u << id % 32;
    }
}

/* What a mask does not have becomes -infinity in `masked`, and whatever it may in `s`: it is not looked at. */
static void hide(struct sampling *s, struct sampling *masked, struct random *r)
{
    for (int32_t i = 0; i < s->count; i++)
        for (int32_t id = 0; id < s->vocab_size; id++) {
            const int64_t at = (int64_t)i * s->vocab_size + id;
            if (mask_has(s, i, id)) continue;
            masked->logits[at] = -INFINITY;
            if (random_between(r, 0, 3) == 0) s->logits[at] = random_between(r, 0, 1) ? NAN : 1e30f;
        }
}

static void check_masked(struct test_backend *tb, int32_t vocab_size, int32_t workspace_samples, struct random *r)
{
    struct sampling *s = sampling_new(MAX_SAMPLES, vocab_size), *masked = sampling_new(MAX_SAMPLES, vocab_size);
    float *logits = masked->logits;
    for (int32_t i = 0; i < s->count; i++) randomize(s, i, r);
    s->workspace_samples = workspace_samples;
    *masked = *s;
    masked->logits = logits;
    memcpy(logits, s->logits, sizeof *logits * (size_t)s->count * (size_t)vocab_size);
    random_masks(s, r);
    hide(s, masked, r);
    run(tb, s), run(tb, masked);
    for (int32_t i = 0; i < s->count; i++) {
        const int32_t wanted = s->states[i].num_logprobs, num_top = wanted < vocab_size ? wanted : vocab_size;
        assert_int_equal(s->tokens[i], masked->tokens[i]);
        if (s->tokens[i] < 0) continue; /* min_tokens forbids all that the mask has */
        assert_true(mask_has(s, i, s->tokens[i]));
        if (wanted < 0) continue;
        assert_int_equal(s->ranks[i], masked->ranks[i]);
        assert_true(s->logprobs[i] == masked->logprobs[i]);
        if (num_top == 0) continue;
        assert_memory_equal(s->top_ids + i * SAMPLING_MAX_TOP, masked->top_ids + i * SAMPLING_MAX_TOP,
                            sizeof *s->top_ids * (size_t)num_top);
        assert_memory_equal(s->top_logprobs + i * SAMPLING_MAX_TOP, masked->top_logprobs + i * SAMPLING_MAX_TOP,
                            sizeof *s->top_logprobs * (size_t)num_top);
    }
    assert_memory_equal(s->history, masked->history, sizeof s->history);
    sampling_free(s), sampling_free(masked);
}

/* A mask's samples are those of logits that are -infinity wherever the mask has no bit; of many ids in parts, too. */
static void masked_ids_count_as_minus_infinity(void **state)
{
    static const int32_t sizes[] = {5, 64, 333, 9000};
    struct kernel_test *test = *state;
    for (int i = 0; i < test->num_backends; i++)
        for (int pass = 0; pass < 16; pass++)
            check_masked(&test->backends[i], sizes[pass % 4], pass % 12 == 3 ? 40 : MAX_SAMPLES, &test->random);
}

/* Greedy samples, which take another pass. */
static void a_mask_decides_which_is_the_largest(void **state)
{
    struct kernel_test *test = *state;
    for (int i = 0; i < test->num_backends; i++) {
        struct sampling *s = sampling_new(3, 100);
        for (int32_t j = 0; j < 300; j++) s->logits[j] = (float)(j % 100);
        s->mask_words = 4;
        s->masks = calloc(MAX_SAMPLES * 4, sizeof *s->masks);
        s->mask_rows[0] = 1, s->mask_rows[1] = -1, s->mask_rows[2] = 0;
        s->masks[0] = 1u << 31 | 2, s->masks[4 + 3] = 1; /* ids 1 and 31; 96 */
        run(&test->backends[i], s);
        assert_int_equal(s->tokens[0], 96);
        assert_int_equal(s->tokens[1], 99);
        assert_int_equal(s->tokens[2], 31);
        s->masks[0] = 0; /* no id at all */
        run(&test->backends[i], s);
        assert_int_equal(s->tokens[2], -1);
        sampling_free(s);
    }
}

/* ---- tokens that are given ---- */

enum { TARGET_ROWS = 13 };

/* Some rows have a NaN or an infinite logit, many logits are -infinity, and some targets are ids of padding. */
static void random_targets(struct random *r, struct sampling *s, int32_t *targets)
{
    for (int32_t i = 0; i < s->count; i++) {
        float *logits = s->logits + (int64_t)i * s->vocab_size;
        for (int32_t j = 0; j < s->vocab_size; j++)
            logits[j] = i % 4 == 1 && j % 3 ? -INFINITY : (float)(20 * random_uniform(r) - 10);
        const int32_t place = (int32_t)random_between(r, 0, s->vocab_size - 1);
        targets[i] = i % 6 == 5 ? s->vocab_size + i - 5 : (int32_t)random_between(r, 0, s->vocab_size - 1);
        if (i == 6) logits[place] = NAN;
        if (i == 7) logits[place] = INFINITY;
    }
}

/* Results of given tokens; what belongs to drawing is NULL. */
static void score(struct test_backend *tb, struct sampling *s, const int32_t *targets, int32_t num_top)
{
    struct backend *b = tb->b;
    const int64_t n = s->count, top = n * num_top;
    workspace_for(tb, s);
    int64_t logits_stride;
    struct tensor logits = tensor_padded_logits(tb, s->logits, n, s->vocab_size, &logits_stride);
    struct tensor wanted = tensor_bytes(b, targets, n * (int64_t)sizeof *targets);
    struct tensor tokens = tensor_poison(b, DTYPE_FLOAT32, n), ranks = tensor_poison(b, DTYPE_FLOAT32, n);
    struct tensor logprobs = tensor_poison(b, DTYPE_FLOAT32, n);
    struct tensor top_ids = tensor_poison(b, DTYPE_FLOAT32, top + 1);
    struct tensor top_logprobs = tensor_poison(b, DTYPE_FLOAT32, top + 1);
    const struct sample_args args = {.logits = logits.data,
                                     .logits_stride = logits_stride,
                                     .num_samples = s->count,
                                     .vocab_size = s->vocab_size,
                                     .history_stride = HISTORY,
                                     .targets = wanted.data,
                                     .any_logprobs = true,
                                     .token_ids = tokens.data,
                                     .logprobs = logprobs.data,
                                     .ranks = ranks.data,
                                     .top_stride = num_top,
                                     .top_ids = top_ids.data,
                                     .top_logprobs = top_logprobs.data};
    b->sample(b, &args);
    fetch(&tokens, s->tokens), fetch(&ranks, s->ranks), fetch(&logprobs, s->logprobs);
    fetch(&top_ids, s->top_ids), fetch(&top_logprobs, s->top_logprobs);
    tensor_free(&logits), tensor_free(&wanted);
    check_workspace(tb);
}

static void check_logprob(const char *name, float value, double logit, double total)
{
    if (logit == (double)-INFINITY ? value != -INFINITY : !(fabs((double)value - (logit - total)) < 1e-4))
        fail_msg("%s: log-probability %g, not %g", name, (double)value, logit - total);
}

/* Against float64. */
static void check_target(const char *name, const struct sampling *s, int32_t i, int32_t target, int32_t num_top)
{
    const float *logits = s->logits + (int64_t)i * s->vocab_size;
    const float own = target < s->vocab_size ? logits[target] : -INFINITY;
    double sum = 0;
    int32_t rank = 1;
    for (int32_t j = 0; j < s->vocab_size; j++) sum += exp((double)logits[j]);
    for (int32_t j = 0; j < s->vocab_size; j++) rank += logits[j] > own;
    assert_int_equal(s->tokens[i], target);
    assert_int_equal(s->ranks[i], rank);
    check_logprob(name, s->logprobs[i], (double)own, log(sum));
    for (int32_t j = 0; j < num_top && j < s->vocab_size; j++) {
        const int32_t id = s->top_ids[i * num_top + j];
        int32_t ahead = 0;
        assert_true(id >= 0 && id < s->vocab_size);
        for (int32_t k = 0; k < s->vocab_size; k++)
            ahead += logits[k] > logits[id] || (logits[k] == logits[id] && k < id);
        assert_int_equal(ahead, j);
        check_logprob(name, s->top_logprobs[i * num_top + j], (double)logits[id], log(sum));
    }
}

static void given_tokens_are_scored(void **state)
{
    static const int32_t sizes[] = {5, 64, 333, 5000, 128256}, tops[] = {0, 5, 1, SAMPLING_MAX_LOGPROBS};
    struct kernel_test *test = *state;
    for (int pass = 0; pass < 20; pass++)
        for (int k = 0; k < test->num_backends; k++) {
            const int32_t num_top = tops[pass % 4];
            struct sampling *s = sampling_new(TARGET_ROWS, sizes[pass % 5]);
            int32_t targets[TARGET_ROWS];
            random_targets(&test->random, s, targets);
            score(&test->backends[k], s, targets, num_top);
            for (int32_t i = 0; i < s->count; i++)
                if (i == 6 || i == 7)
                    assert_int_equal(s->tokens[i], -1);
                else
                    check_target(test->backends[k].name, s, i, targets[i], num_top);
            sampling_free(s);
        }
}

/* Real vocabulary sizes, with options that read all of the logits. */
static void large_vocabulary(void **state)
{
    enum { ROWS = 6, ROUNDS = 4 };
    struct kernel_test *test = *state;
    for (int i = 0; i < test->num_backends; i++) {
        int32_t close = 0;
        for (int round = 0; round < ROUNDS; round++) {
            struct sampling *s = sampling_new(ROWS, 128256);
            for (int32_t j = 0; j < ROWS; j++) {
                randomize(s, j, &test->random);
                s->states[j].temperature = 1;
                s->states[j].top_k = j % 3 == 0 ? 50 : 0;
                s->states[j].top_p = j % 2 == 0 ? 0.9f : 1;
            }
            int32_t *history = malloc(sizeof s->history);
            memcpy(history, s->history, sizeof s->history);
            run(&test->backends[i], s);
            for (int32_t j = 0; j < ROWS; j++) {
                struct reference_sample expected = {.probabilities = NULL};
                reference_sample(&expected, s->logits + (int64_t)j * s->vocab_size, s->vocab_size, &s->states[j],
                                 history + (int64_t)j * HISTORY, s->output_positions[j]);
                close += expected.close;
                if (!expected.close) assert_int_equal(s->tokens[j], expected.token);
            }
            free(history);
            sampling_free(s);
        }
        /* With so many tokens about one row in six is decided by less than rounding; half would check too little. */
        assert_true(close <= ROWS * ROUNDS / 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(greedy_takes_the_largest),
        cmocka_unit_test(nan_or_infinite_logits_give_no_token),
        cmocka_unit_test(other_samples_get_their_tokens),
        cmocka_unit_test(min_tokens_forbids_stop_ids),
        cmocka_unit_test(logit_bias_is_added),
        cmocka_unit_test(penalties_apply_where_they_should),
        cmocka_unit_test(draws_the_right_distribution),
        cmocka_unit_test(cuts_to_one_token),
        cmocka_unit_test(top_k_keeps_ties),
        cmocka_unit_test(options_combine),
        cmocka_unit_test(batch_does_not_matter),
        cmocka_unit_test(runs_draw_what_plain_calls_draw),
        cmocka_unit_test(masked_ids_count_as_minus_infinity),
        cmocka_unit_test(a_mask_decides_which_is_the_largest),
        cmocka_unit_test(large_vocabulary),
        cmocka_unit_test(given_tokens_are_scored),
    };
    return cmocka_run_group_tests(tests, kernel_test_setup, kernel_test_teardown);
}
