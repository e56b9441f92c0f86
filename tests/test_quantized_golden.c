/* Quantized checkpoints of every format against transformers: logits and greedy tokens of all of tests/data/quantized.
 *
 * With float32 activations the plain C kernels compute what the stored weights stand for, so the logits are those of
 * the dequantized weights within 1e-5. Kernels that round the inputs of matmuls to 8 bits are as far off as float64
 * arithmetic is if only those inputs are rounded, which golden.json says (x_errors). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "kernels/cpu/cpu.h"
#include "model/config.h"
#include "model/model.h"
#include "model/shard.h"
#include "model/state_cache.h"
#include "tests/support/golden.h"
#include "tests/support/must.h"
#include "tests/support/run.h"
#include "tests/support/temp_folder.h"

enum { MAX_TOKENS = 160, BLOCK = 16, RANKS = 2 };

static const char *const checkpoints[] = {
    "awq",
    "awq-g128",
    "ct-fp8-block",
    "ct-fp8-channel",
    "ct-fp8-kv",
    "ct-fp8-lm-head",
    "ct-fp8-tensor",
    "ct-mixed",
    "ct-mxfp4",
    "ct-nvfp4",
    "ct-phi3",
    "ct-w4a16",
    "ct-w4a16-actorder",
    "ct-w4a16-asym",
    "ct-w4a16-channel",
    "ct-w4a16-g-idx",
    "ct-w8a16",
    "ct-w8a8",
    "fp8",
    "fp8-block",
    "fp8-block-edges",
    "fp8-phi3",
    "fp8-static",
    "gated-ct-w4a16",
    "gated-fp8-block",
    "gptq",
    "gptq-act-order",
    "gptq-channel",
    "gptq-phi3",
    "gptq-qwen2",
    "gptq-v2",
    "moe-awq",
    "moe-ct-fp8-channel",
    "moe-ct-w4a16",
    "moe-ct-w8a16",
    "moe-ct-w8a8",
    "moe-fp8",
    "moe-fp8-block",
    "moe-gptq",
    "moe-modelopt-fp8",
    "mxfp4-gpt-oss",
};
enum { NUM_CHECKPOINTS = sizeof checkpoints / sizeof *checkpoints };

/* How a checkpoint is computed. */
struct variant {
    const char *name;
    enum cpu_isa isa;
    enum dtype dtype;
    int32_t chunk; /* tokens of a step at most */
    bool copy_weights;
    bool of_ranks; /* RANKS of them */
};

/* A model, one batch, and its logits. */
struct fixture {
    struct backend *backend;
    struct model_config config;
    struct model_weights weights;
    struct model *model;
    struct batch batch;
    struct golden golden;
    float *logits; /* [max_num_seqs, vocab_size] on the host */
    /* What the ranks of a model have; rank 0's backend is the one above */
    struct model_rank ranks[RANKS]; /* [num_ranks] */
    int32_t num_ranks;              /* 0: there is one */
};

static void open_ranks(struct fixture *f, const char *folder, enum cpu_isa isa)
{
    struct error err;
    for (; f->num_ranks < RANKS; f->num_ranks++) {
        struct model_rank *rank = &f->ranks[f->num_ranks];
        struct model_spec *spec = malloc(sizeof *spec);
        rank->weights = malloc(sizeof *rank->weights);
        assert_true(spec && rank->weights);
        rank->spec = spec;
        rank->backend = f->num_ranks == 0 ? f->backend : run_rank_device(f->backend, f->num_ranks);
        if (!rank->backend->discrete) backend_cpu_set_isa(rank->backend, isa);
        must(model_spec_shard(&f->config.spec, f->num_ranks, RANKS, spec, &err), &err);
        must(model_weights_open(folder, spec, NULL, rank->weights, &err), &err);
    }
}

static void close_ranks(struct fixture *f)
{
    for (int32_t i = 0; i < f->num_ranks; i++) {
        struct model_rank *rank = &f->ranks[i];
        model_weights_close(rank->weights);
        free(rank->weights);
        free((void *)rank->spec);
        if (i > 0) rank->backend->destroy(rank->backend);
    }
}

static void fixture_open(struct fixture *f, const char *folder, const struct variant *v)
{
    struct error err;
    struct model_options options = {
        .limits = {.max_num_tokens = MAX_TOKENS,
                   .max_num_seqs = MAX_TOKENS,
                   .max_model_len = MAX_TOKENS,
                   .block_size = BLOCK,
                   .num_groups = 1},
        .dtype = v->dtype,
        .cache_dtype = v->dtype,
        .keep_logits = true,
    };
    *f = (struct fixture){0};
    must(golden_load(folder, &f->golden, &err), &err);
    must(model_config_load(folder, NULL, NULL, &f->config, &err), &err);
    must(backend_open(run_need_device(), 2, &f->backend, &err), &err);
    if (!f->backend->discrete) backend_cpu_set_isa(f->backend, v->isa);
    options.copy_weights = v->copy_weights || f->backend->discrete;
    if (state_cache_slot_bytes(&f->config.spec) > 0) options.limits.num_state_slots = 1;
    if (v->of_ranks) {
        open_ranks(f, folder, v->isa);
        must(model_create_ranks(f->ranks, f->num_ranks, &options, &f->model, &err), &err);
    } else {
        must(model_weights_open(folder, &f->config.spec, NULL, &f->weights, &err), &err);
        must(model_create(f->backend, &f->config.spec, &f->weights, &options, &f->model, &err), &err);
    }
    must(model_allocate_cache(f->model, MAX_TOKENS / BLOCK, &err), &err);
    must(model_capture(f->model, &err), &err);
    must(model_wait_for_weights(f->model, &err), &err);
    must(batch_init(&f->batch, &options.limits, &err), &err);
    f->logits = malloc((size_t)MAX_TOKENS * (size_t)f->config.spec.vocab_size * sizeof *f->logits);
    assert_non_null(f->logits);
}

static void fixture_close(struct fixture *f)
{
    free(f->logits);
    golden_free(&f->golden);
    batch_free(&f->batch);
    model_destroy(f->model);
    model_weights_close(&f->weights);
    close_ranks(f);
    f->backend->destroy(f->backend);
}

/* Tokens [first, end) of a sequence; the logits of all of them are wanted. */
static void fill_batch(struct batch *b, const int32_t *tokens, int32_t first, int32_t end)
{
    batch_clear(b);
    b->num_seqs = 1;
    b->num_tokens = b->num_samples = b->max_query_len = b->query_start[1] = end - first;
    b->num_decodes = end - first == 1;
    b->query_start[0] = b->state_indices[0] = 0;
    b->seq_lens[0] = b->max_seq_len = end;
    b->state_sources[0] = first > 0 ? 1 : STATE_SLOT_NONE;
    b->state_slots[0] = 1;
    for (int32_t t = first; t < end; t++) {
        const int32_t i = t - first;
        b->token_ids[i] = tokens[t];
        b->positions[i] = t;
        b->slot_mapping[i] = BLOCK + t;
        b->logits_indices[i] = i;
        b->sample_state_indices[i] = b->output_positions[i] = 0;
        if (t % BLOCK == 0 || t == first)
            b->deltas[b->num_deltas++] = (struct block_table_delta){.index = t / BLOCK, .block = 1 + t / BLOCK};
    }
}

/* Computes the logits of a case's prompt and greedy tokens, [tokens, vocab_size] in f->logits. */
static int32_t run_case(struct fixture *f, const struct golden_case *c, int32_t chunk)
{
    const struct sampling_state greedy = {.num_logprobs = -1, .repetition_penalty = 1};
    const int32_t length = c->num_prompt + c->num_greedy, vocab_size = f->config.spec.vocab_size;
    int32_t tokens[MAX_TOKENS];
    struct error err;
    assert_true(length <= MAX_TOKENS && vocab_size == f->golden.vocab_size);
    memcpy(tokens, c->prompt, (size_t)c->num_prompt * sizeof *tokens);
    memcpy(tokens + c->num_prompt, c->greedy, (size_t)c->num_greedy * sizeof *tokens);
    model_set_sampling_state(f->model, 0, &greedy, c->prompt, c->num_prompt);
    for (int32_t first = 0; first < length; first += chunk) {
        struct sample_output out;
        const int32_t end = first + chunk < length ? first + chunk : length;
        fill_batch(&f->batch, tokens, first, end);
        must(model_submit(f->model, &f->batch, &err), &err);
        must(model_collect(f->model, &out, &err), &err);
        f->backend->copy(f->backend, f->logits + (int64_t)first * vocab_size, model_logits(f->model),
                         (int64_t)out.num_samples * vocab_size * (int64_t)sizeof *f->logits, NULL);
        must(f->backend->stream_synchronize(f->backend, NULL, &err), &err);
    }
    return length;
}

/* The token with the highest logit at each position from the prompt's last on. */
static int32_t count_other_tokens(const struct fixture *f, const struct golden_case *c)
{
    const int32_t vocab_size = f->config.spec.vocab_size;
    int32_t others = 0;
    for (int32_t i = 0; i < c->num_greedy; i++) {
        const float *logits = f->logits + (int64_t)(c->num_prompt - 1 + i) * vocab_size;
        int32_t best = 0;
        for (int32_t id = 1; id < vocab_size; id++)
            if (logits[id] > logits[best]) best = id;
        others += best != c->greedy[i];
    }
    return others;
}

struct result {
    double error;          /* ||logits - golden|| / ||golden||, over all cases together */
    int32_t others;        /* greedy tokens that differ */
    double bfloat16_error; /* of the golden data */
    double x_errors[NUM_X_ROUNDINGS];
    bool rounds_x, int_weights; /* of any matrix: quantize_x; int8 or int4 */
    bool fp8_weights;
};

static void describe(const struct model_spec *spec, struct result *r)
{
    for (int32_t i = 1; i < spec->num_schemes; i++) {
        r->rounds_x |= spec->schemes[i].quantize_x;
        r->int_weights |= spec->schemes[i].format != WEIGHT_FP8;
        r->fp8_weights |= spec->schemes[i].format == WEIGHT_FP8;
    }
}

static struct result compute_folder(const char *folder, const struct variant *v)
{
    struct fixture f;
    struct result r = {0};
    double difference = 0, size = 0;
    run_need_device(); /* before anything is allocated */
    fixture_open(&f, folder, v);
    for (int32_t i = 0; i < f.golden.num_cases; i++) {
        const struct golden_case *c = &f.golden.cases[i];
        run_case(&f, c, v->chunk);
        for (int64_t j = 0; j < (int64_t)c->num_positions * f.golden.vocab_size; j++) {
            const int64_t position = c->positions[j / f.golden.vocab_size];
            const double golden = c->logits[j];
            const double d = f.logits[position * f.golden.vocab_size + j % f.golden.vocab_size] - golden;
            difference += d * d;
            size += golden * golden;
        }
        r.others += count_other_tokens(&f, c);
    }
    r.error = sqrt(difference / size);
    r.bfloat16_error = f.golden.bfloat16_error;
    memcpy(r.x_errors, f.golden.x_errors, sizeof r.x_errors);
    describe(&f.config.spec, &r);
    fixture_close(&f);
    return r;
}

static struct result compute(const char *name, const struct variant *v)
{
    char folder[512];
    snprintf(folder, sizeof folder, "%s/quantized/%s", QUIRE_TEST_DATA, name);
    return compute_folder(folder, v);
}

/* How many ways test_exact takes. With a sanitizer those with few tokens and with many: each has its kernels. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { NUM_WAYS = 2 };
#else
enum { NUM_WAYS = 4 };
#endif

/* Weights that are stored, exact arithmetic: whole, in chunks and token by token, and with weights copied as for a
 * device, where projections are merged. */
static void test_exact(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_CHECKPOINTS; i++) {
        const struct variant variants[] = {{"chunks of 13", CPU_SCALAR, DTYPE_FLOAT32, 13, false},
                                           {"copied", CPU_SCALAR, DTYPE_FLOAT32, 40, true},
                                           {"whole", CPU_SCALAR, DTYPE_FLOAT32, MAX_TOKENS, false},
                                           {"by token", CPU_SCALAR, DTYPE_FLOAT32, 1, false}};
        for (int j = 0; j < NUM_WAYS; j++) {
            const struct result r = compute(checkpoints[i], &variants[j]);
            print_message("%s, %s: relative error %.2g\n", checkpoints[i], variants[j].name, r.error);
            if (!(r.error < 1e-5))
                fail_msg("%s, %s: the logits are off by %g", checkpoints[i], variants[j].name, r.error);
            if (r.others > 0) fail_msg("%s, %s: %d other tokens", checkpoints[i], variants[j].name, r.others);
        }
    }
}

/* Whether the ranks can share the checkpoint: its sizes divide, and no rank would have parts of what shares a scale. */
static bool can_share(const char *name)
{
    static struct model_config config;
    static struct model_spec part;
    struct model_weights weights;
    struct error err;
    char folder[512];
    snprintf(folder, sizeof folder, "%s/quantized/%s", QUIRE_TEST_DATA, name);
    must(model_config_load(folder, NULL, NULL, &config, &err), &err);
    enum status status = model_spec_shard(&config.spec, 0, RANKS, &part, &err);
    if (status == STATUS_OK) status = model_weights_open(folder, &part, NULL, &weights, &err);
    if (status == STATUS_OK) model_weights_close(&weights);
    if (status != STATUS_OK) assert_int_equal(status, STATUS_UNSUPPORTED);
    return status == STATUS_OK;
}

/* The checkpoints that ranks can share. */
static void test_ranks(void **state)
{
    (void)state;
    int shared = 0;
    for (int i = 0; i < NUM_CHECKPOINTS; i++) {
        const struct variant variants[] = {
            {"ranks", CPU_SCALAR, DTYPE_FLOAT32, MAX_TOKENS, .of_ranks = true},
            {"ranks, copied, chunks of 13", CPU_SCALAR, DTYPE_FLOAT32, 13, .copy_weights = true, .of_ranks = true},
            {"ranks, by token", CPU_SCALAR, DTYPE_FLOAT32, 1, .of_ranks = true}};
        if (!can_share(checkpoints[i])) continue;
        shared++;
        for (int j = 0; j < 3; j++) {
            const struct result r = compute(checkpoints[i], &variants[j]);
            print_message("%s, %s: relative error %.2g\n", checkpoints[i], variants[j].name, r.error);
            if (!(r.error < 1e-5))
                fail_msg("%s, %s: the logits are off by %g", checkpoints[i], variants[j].name, r.error);
            if (r.others > 0) fail_msg("%s, %s: %d other tokens", checkpoints[i], variants[j].name, r.others);
        }
    }
    print_message("%d ranks: %d checkpoints\n", RANKS, shared);
    assert_true(shared > NUM_CHECKPOINTS / 2);
}

/* Qwen 3 VL's experts are one tensor for a layer where they are floats, and of each matrix where they are quantized.
 * Its text model computes what Qwen 3 MoE does. */
static void test_experts_apart(void **state)
{
    (void)state;
    static const char *const files[] = {"model.safetensors", "golden.json", "golden.bin"};
    static const char from[] = QUIRE_TEST_DATA "/quantized/moe-ct-fp8-channel";
    const struct variant v = {"copied", CPU_SCALAR, DTYPE_FLOAT32, 40, true};
    struct temp_folder folder;
    json_t *config = json_load_file(QUIRE_TEST_DATA "/quantized/moe-ct-fp8-channel/config.json", 0, NULL);
    json_object_set_new(config, "model_type", json_string("qwen3_vl_moe_text"));
    json_object_del(config, "architectures");
    char *text = json_dumps(config, 0);
    assert_non_null(text);
    temp_folder_make(&folder);
    for (int i = 0; i < 3; i++) temp_folder_copy(&folder, from, files[i]);
    temp_folder_write_string(&folder, "config.json", text);
    const struct result r = compute_folder(folder.path, &v);
    if (!(r.error < 1e-5) || r.others > 0) fail_msg("off by %g, %d other tokens", r.error, r.others);
    temp_folder_remove(&folder);
    json_decref(config);
    free(text);
}

/* The vector kernels round the inputs of int8 and int4 weights to int8, in groups of 32. */
static void test_vector_kernels(void **state)
{
    (void)state;
    static const int chunks[] = {1, 16, MAX_TOKENS};
    for (int i = 0; i < NUM_CHECKPOINTS; i++)
        for (enum cpu_isa isa = CPU_SCALAR + 1; isa < CPU_ISA_COUNT; isa++)
            for (int j = 0; j < 3 && run_has_isa(isa); j++) {
                const int chunk = chunks[j];
                const struct variant v = {cpu_isa_name(isa), isa, DTYPE_FLOAT32, chunk, false};
                const struct result r = compute(checkpoints[i], &v);
                const double bound = r.int_weights ? 1.2 * r.x_errors[X_INT8_GROUP] : 1e-5;
                print_message("%s, %s, chunks of %d: relative error %.2g, at most %.2g\n", checkpoints[i], v.name,
                              chunk, r.error, bound);
                if (!(r.error < bound))
                    fail_msg("%s, %s: the logits are off by %g, not %g", checkpoints[i], v.name, r.error, bound);
            }
}

/* The error that rounding of activations explains: to dtype, and of W8A8 to 8 bits, unless they are float32. */
static double gpu_bound(const struct result *r, enum dtype dtype)
{
    double rounding = 0;
    if (dtype == DTYPE_FLOAT32) return 1e-4;
    if (r->rounds_x && r->fp8_weights) rounding = fmax(r->x_errors[X_FP8_TOKEN], r->x_errors[X_FP8_GROUP]);
    if (r->rounds_x && r->int_weights) rounding = fmax(rounding, r->x_errors[X_INT8_TOKEN]);
    return 1.5 * hypot(rounding, r->bfloat16_error);
}

/* Computes every checkpoint in each way, unless its ranks cannot share it. */
static void check_gpu(const struct variant *variants, int num_variants)
{
    int failures = 0;
    for (int i = 0; i < NUM_CHECKPOINTS; i++)
        for (int j = 0; j < num_variants; j++) {
            if (variants[j].of_ranks && !can_share(checkpoints[i])) continue;
            const struct result r = compute(checkpoints[i], &variants[j]);
            const double bound = gpu_bound(&r, variants[j].dtype);
            print_message("%s, %s: relative error %.2g, at most %.2g%s\n", checkpoints[i], variants[j].name, r.error,
                          bound, r.error < bound ? "" : " FAILED");
            failures += !(r.error < bound);
        }
    if (failures > 0) fail_msg("the logits of %d runs are too far off", failures);
}

static void test_gpu(void **state)
{
    (void)state;
    const struct variant variants[] = {{"float32", CPU_SCALAR, DTYPE_FLOAT32, MAX_TOKENS, true},
                                       {"float32, by token", CPU_SCALAR, DTYPE_FLOAT32, 1, true},
                                       {"float16, chunks of 40", CPU_SCALAR, DTYPE_FLOAT16, 40, true},
                                       {"bfloat16", CPU_SCALAR, DTYPE_BFLOAT16, MAX_TOKENS, true},
                                       {"bfloat16, by token", CPU_SCALAR, DTYPE_BFLOAT16, 1, true}};
    check_gpu(variants, 5);
}

/* The ranks' sums are rounded, too. */
static void test_gpu_ranks(void **state)
{
    (void)state;
    const struct variant variants[] = {{"ranks, float32", CPU_SCALAR, DTYPE_FLOAT32, MAX_TOKENS, .of_ranks = true},
                                       {"ranks, float32, by token", CPU_SCALAR, DTYPE_FLOAT32, 1, .of_ranks = true},
                                       {"ranks, bfloat16", CPU_SCALAR, DTYPE_BFLOAT16, MAX_TOKENS, .of_ranks = true},
                                       {"ranks, bfloat16, by token", CPU_SCALAR, DTYPE_BFLOAT16, 1, .of_ranks = true}};
    run_max_ranks();
    check_gpu(variants, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_experts_apart),
        cmocka_unit_test(test_vector_kernels),
    };
    const struct CMUnitTest gpu_tests[] = {
        cmocka_unit_test(test_gpu),
        cmocka_unit_test(test_gpu_ranks),
    };
    const int failed = cmocka_run_group_tests_name("cpu", tests, NULL, NULL);
    run_set_device("cuda");
    return failed + cmocka_run_group_tests_name("cuda", gpu_tests, NULL, NULL);
}
