/* A prompt of 100,000 tokens keeps its error: the logits behind it, in float32 on a CPU, against transformers' in
 * float64, whose recurrences are computed token by token (tests/scripts/make_long_golden.py). A delta net, one with a
 * decay for each channel beside latent attention, and Mamba 2. With a sanitizer the prompt has 3,000 tokens. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/config.h"
#include "model/model_state.h"
#include "tests/support/must.h"

enum { CHUNK = 512, BLOCK = 16, STATE_INDEX = 0, SLOT = 1 };

static const char *const names[] = {"bamba", "kimi_linear", "qwen3_next"};
static const int32_t lengths[] = {3000, 100000};
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { NUM_LENGTHS = 1 };
#else
enum { NUM_LENGTHS = 2 };
#endif

/* A model without engine or scheduler, of one sequence. */
struct fixture {
    struct backend *backend;
    struct model_config config;
    struct model_weights weights;
    struct model *model;
    struct batch batch;
};

static void fixture_open(struct fixture *f, const char *folder, int32_t length)
{
    struct error err;
    const struct model_options options = {
        .limits = {.max_num_tokens = CHUNK,
                   .max_num_seqs = 1,
                   .max_model_len = length + 1,
                   .block_size = BLOCK,
                   .num_groups = 1,
                   .num_state_slots = SLOT},
        .dtype = DTYPE_FLOAT32,
        .cache_dtype = DTYPE_FLOAT32,
        .keep_logits = true,
    };
    *f = (struct fixture){0};
    must(model_config_load(folder, NULL, NULL, &f->config, &err), &err);
    must(backend_open("cpu", 0, &f->backend, &err), &err);
    must(model_weights_open(folder, &f->config.spec, NULL, &f->weights, &err), &err);
    must(model_create(f->backend, &f->config.spec, &f->weights, &options, &f->model, &err), &err);
    must(model_allocate_cache(f->model, length / BLOCK + 1, &err), &err);
    must(model_wait_for_weights(f->model, &err), &err);
    must(batch_init(&f->batch, &options.limits, &err), &err);
}

static void fixture_close(struct fixture *f)
{
    batch_free(&f->batch);
    model_destroy(f->model);
    model_weights_close(&f->weights);
    f->backend->destroy(f->backend);
}

/* Tokens [first, end) of the prompt; the last one is sampled from. */
static void fill_batch(struct batch *b, const int32_t *prompt, int32_t first, int32_t end, bool is_last)
{
    batch_clear(b);
    b->num_seqs = 1;
    b->num_tokens = b->max_query_len = end - first;
    b->num_decodes = end - first == 1;
    b->query_start[0] = 0;
    b->query_start[1] = end - first;
    b->seq_lens[0] = b->max_seq_len = end;
    b->state_indices[0] = STATE_INDEX;
    b->state_sources[0] = first > 0 ? SLOT : STATE_SLOT_NONE;
    b->state_slots[0] = SLOT;
    for (int32_t t = first; t < end; t++) {
        b->token_ids[t - first] = prompt[t];
        b->positions[t - first] = t;
        b->slot_mapping[t - first] = BLOCK + t; /* block 0 is the null block */
        if (t % BLOCK == 0)
            b->deltas[b->num_deltas++] =
                (struct block_table_delta){.state_index = STATE_INDEX, .index = t / BLOCK, .block = 1 + t / BLOCK};
    }
    if (!is_last) return;
    b->logits_indices[0] = end - first - 1;
    b->sample_state_indices[0] = STATE_INDEX;
    b->output_positions[0] = 0;
    b->sampled_drafts[0] = -1;
    b->num_samples = 1;
}

/* The prompt that the script's first lines describe. */
static int32_t *make_prompt(int32_t length, int32_t vocab_size)
{
    int32_t *prompt = malloc((size_t)length * sizeof *prompt);
    uint32_t x = 1;
    assert_non_null(prompt);
    for (int32_t i = 0; i < length; i++) {
        prompt[i] = 3 + (int32_t)((x >> 16) % (uint32_t)(vocab_size - 3));
        x = (x * 1103515245u + 12345u) & 0x7fffffffu;
    }
    return prompt;
}

/* The logits behind the prompt, which the CPU has where it computed them. */
static const float *compute(struct fixture *f, int32_t length)
{
    const struct sampling_state greedy = {.num_logprobs = -1, .repetition_penalty = 1, .prompt_len = 1};
    int32_t *prompt = make_prompt(length, f->config.spec.vocab_size);
    struct error err;
    model_set_sampling_state(f->model, STATE_INDEX, &greedy, prompt, 1);
    for (int32_t first = 0; first < length; first += CHUNK) {
        const int32_t end = first + CHUNK < length ? first + CHUNK : length;
        struct sample_output out;
        fill_batch(&f->batch, prompt, first, end, end == length);
        must(model_submit(f->model, &f->batch, &err), &err);
        must(model_collect(f->model, &out, &err), &err);
    }
    free(prompt);
    return model_logits(f->model);
}

/* expected[vocab_size], row `row` of the file. */
static void read_expected(const char *name, int row, int32_t vocab_size, float *expected)
{
    char path[512];
    snprintf(path, sizeof path, "%s/long_prompts/%s.bin", QUIRE_TEST_DATA, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)row * vocab_size * (long)sizeof *expected, SEEK_SET), 0);
    assert_int_equal(fread(expected, sizeof *expected, (size_t)vocab_size, file), vocab_size);
    fclose(file);
}

static void test_long_prompts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int row = 0; row < NUM_LENGTHS; row++) {
            char folder[512];
            float expected[1024];
            double difference = 0, size = 0;
            struct fixture f;
            snprintf(folder, sizeof folder, "%s/golden/%s", QUIRE_TEST_DATA, names[i]);
            fixture_open(&f, folder, lengths[row]);
            assert_true(f.config.spec.vocab_size <= 1024);
            read_expected(names[i], row, f.config.spec.vocab_size, expected);
            const float *logits = compute(&f, lengths[row]);
            for (int32_t k = 0; k < f.config.spec.vocab_size; k++) {
                difference += pow((double)logits[k] - (double)expected[k], 2);
                size += pow((double)expected[k], 2);
            }
            const double error = sqrt(difference / size);
            print_message("%s, %d tokens: relative error %.2g\n", names[i], lengths[row], error);
            if (!(error < 1e-5)) fail_msg("%s, %d tokens: the logits are off by %g", names[i], lengths[row], error);
            fixture_close(&f);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_long_prompts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
