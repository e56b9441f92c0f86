/* The scales of an fp8 KV cache: found in the checkpoint, or measured by the first step. test_golden compares the
 * logits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "kernels/kv_scale.h"
#include "model/config.h"
#include "model/model_state.h"
#include "tests/support/must.h"
#include "tests/support/run.h"
#include "tests/support/temp_folder.h"

#define CHECKPOINT QUIRE_TEST_DATA "/golden/qwen3" /* of two layers, in one file */
enum { LAYERS = 2 };

/* A float32 tensor to add to the checkpoint. */
struct added {
    const char *name; /* after "model.layers.0.self_attn." */
    int32_t layer;
    const char *shape;
    int32_t count;
    float values[4];
};

/* The checkpoint with more tensors; the header of its file gets their entries, and the end of it their numbers. */
static void write_checkpoint(struct temp_folder *folder, const struct added *added, int count)
{
    struct text stored = {0}, header = {0}, data = {0};
    struct error err;
    uint64_t length;
    temp_folder_make(folder);
    temp_folder_copy(folder, CHECKPOINT, "config.json");
    must(file_read(CHECKPOINT "/model.safetensors", &stored, &err), &err);
    memcpy(&length, stored.data, sizeof length);
    assert_true(text_append(&data, stored.data + 8 + length, stored.length - 8 - length));
    while (stored.data[8 + length - 1] != '}') length--;
    assert_true(text_append(&header, stored.data + 9, length - 2)); /* without braces */
    for (int i = 0; i < count; i++) {
        const uint64_t size = (uint64_t)added[i].count * sizeof(float);
        assert_true(text_printf(&header,
                                ",\"model.layers.%d.self_attn.%s\":{\"dtype\":\"F32\",\"shape\":%s,"
                                "\"data_offsets\":[%llu,%llu]}",
                                added[i].layer, added[i].name, added[i].shape, (unsigned long long)data.length,
                                (unsigned long long)(data.length + size)));
        assert_true(text_append(&data, (const char *)added[i].values, size));
    }
    temp_folder_write_safetensors(folder, "model.safetensors", header.data, data.data, data.length);
    text_free(&stored), text_free(&header), text_free(&data);
}

/* A model of a folder, on the CPU. */
struct fixture {
    struct backend *backend;
    struct model_config config;
    struct model_weights weights;
    struct model *model;
};

/* The status of model_create. */
static enum status fixture_open(struct fixture *f, const char *folder, enum dtype cache_dtype,
                                const volatile sig_atomic_t *cancel, struct error *err)
{
    const struct model_options options = {
        .limits = {.max_num_tokens = 64, .max_num_seqs = 4, .max_model_len = 64, .block_size = 16, .num_groups = 1},
        .cache_dtype = cache_dtype,
        .cancel = cancel,
    };
    *f = (struct fixture){0};
    must(model_config_load(folder, NULL, NULL, &f->config, err), err);
    must(backend_open("cpu", 1, &f->backend, err), err);
    must(model_weights_open(folder, &f->config.spec, NULL, &f->weights, err), err);
    assert_int_equal(f->config.spec.num_layers, LAYERS);
    return model_create(f->backend, &f->config.spec, &f->weights, &options, &f->model, err);
}

static void fixture_close(struct fixture *f)
{
    model_destroy(f->model);
    model_weights_close(&f->weights);
    f->backend->destroy(f->backend);
}

static void finds_scales_under_every_name(void **state)
{
    (void)state;
    static const char *const names[][2] = {{"k_scale", "v_scale"},
                                           {"k_proj.k_scale", "v_proj.v_scale"},
                                           {"qkv_proj.k_scale", "qkv_proj.v_scale"},
                                           {"attn.k_scale", "attn.v_scale"},
                                           {"k_proj.output_scale", "v_proj.output_scale"}};
    for (int n = 0; n < 5; n++) {
        const struct added added[] = {{names[n][0], 0, "[]", 1, {0.25f}},
                                      {names[n][1], 0, "[1]", 1, {0.3f}},
                                      {names[n][0], 1, "[1]", 1, {7}},
                                      {names[n][1], 1, "[1,1,1]", 1, {1e-3f}}};
        const float expected[2 * LAYERS] = {0.25f, 0.3f, 7, 1e-3f};
        struct temp_folder folder;
        struct fixture f;
        struct error err;
        write_checkpoint(&folder, added, 4);
        must(fixture_open(&f, folder.path, DTYPE_FP8_E4M3, NULL, &err), &err);
        assert_memory_equal(f.model->cache.scales, expected, sizeof expected);
        assert_false(f.model->cache.measure_scales);
        fixture_close(&f);
        must(fixture_open(&f, folder.path, DTYPE_FP8_E5M2, NULL, &err), &err);
        for (int i = 0; i < 2 * LAYERS; i++) assert_true(f.model->cache.scales[i] == 1);
        assert_false(f.model->cache.measure_scales);
        fixture_close(&f);
        must(fixture_open(&f, folder.path, DTYPE_BFLOAT16, NULL, &err), &err);
        assert_null(f.model->cache.scales);
        fixture_close(&f);
        temp_folder_remove(&folder);
    }
}

static void one_scale_for_both(void **state)
{
    (void)state;
    const struct added added[] = {{"kv_scale", 0, "[1]", 1, {0.5f}}, {"kv_scale", 1, "[1]", 1, {0.75f}}};
    const float expected[2 * LAYERS] = {0.5f, 0.5f, 0.75f, 0.75f};
    struct temp_folder folder;
    struct fixture f;
    struct error err;
    write_checkpoint(&folder, added, 2);
    must(fixture_open(&f, folder.path, DTYPE_FP8_E4M3, NULL, &err), &err);
    assert_memory_equal(f.model->cache.scales, expected, sizeof expected);
    fixture_close(&f);
    temp_folder_remove(&folder);
}

/* Scales of some layers, or of single heads, are not enough. */
static void incomplete_scales_are_measured(void **state)
{
    (void)state;
    const struct added some[] = {
        {"k_scale", 0, "[1]", 1, {3}}, {"v_scale", 0, "[1]", 1, {3}}, {"k_scale", 1, "[1]", 1, {3}}};
    const struct added heads[] = {{"k_scale", 0, "[2]", 2, {3, 3}},
                                  {"v_scale", 0, "[2]", 2, {3, 3}},
                                  {"k_scale", 1, "[2]", 2, {3, 3}},
                                  {"v_scale", 1, "[2]", 2, {3, 3}}};
    for (int i = 0; i < 3; i++) {
        struct temp_folder folder;
        struct fixture f;
        struct error err;
        write_checkpoint(&folder, i == 1 ? some : heads, i == 0 ? 0 : i == 1 ? 3 : 4);
        must(fixture_open(&f, folder.path, DTYPE_FP8_E4M3, NULL, &err), &err);
        for (int k = 0; k < 2 * LAYERS; k++) assert_true(f.model->cache.scales[k] == KV_SCALE_LEAST);
        assert_true(f.model->cache.measure_scales);
        fixture_close(&f);
        temp_folder_remove(&folder);
    }
}

static void refuses_scales_that_are_none(void **state)
{
    (void)state;
    const float bad[] = {-1, NAN, INFINITY};
    for (int i = 0; i < 3; i++) {
        const struct added added[] = {{"k_scale", 0, "[1]", 1, {1}},
                                      {"v_scale", 0, "[1]", 1, {1}},
                                      {"k_scale", 1, "[1]", 1, {1}},
                                      {"v_scale", 1, "[1]", 1, {bad[i]}}};
        struct temp_folder folder;
        struct fixture f;
        struct error err;
        write_checkpoint(&folder, added, 4);
        assert_int_equal(fixture_open(&f, folder.path, DTYPE_FP8_E4M3, NULL, &err), STATUS_INVALID);
        assert_non_null(strstr(err.text, "the cached values of layer 1"));
        fixture_close(&f);
        must(fixture_open(&f, folder.path, DTYPE_FLOAT32, NULL, &err), &err); /* which has no scales */
        fixture_close(&f);
        temp_folder_remove(&folder);
    }
}

/* A prompt of these ids in block 1. */
static enum status run_prompt_of(struct fixture *f, const int32_t *ids, int32_t count, struct error *err)
{
    const struct sampling_state greedy = {.num_logprobs = -1, .repetition_penalty = 1};
    struct sample_output out;
    struct batch b;
    must(batch_init(&b, &f->model->options.limits, err), err);
    batch_clear(&b);
    b.num_tokens = b.max_query_len = b.seq_lens[0] = b.max_seq_len = b.query_start[1] = count;
    b.num_seqs = b.num_samples = b.num_deltas = 1;
    b.num_decodes = count == 1;
    b.query_start[0] = b.state_indices[0] = b.sample_state_indices[0] = b.output_positions[0] = 0;
    b.logits_indices[0] = count - 1;
    b.deltas[0] = (struct block_table_delta){.block = 1};
    for (int32_t t = 0; t < count; t++) b.token_ids[t] = ids[t], b.positions[t] = t, b.slot_mapping[t] = 16 + t;
    model_set_sampling_state(f->model, 0, &greedy, NULL, 0);
    enum status status = model_submit(f->model, &b, err);
    if (status == STATUS_OK) status = model_collect(f->model, &out, err);
    batch_free(&b);
    return status;
}

/* Scales are measured by the first step, were it of one token, and by no other: not by the warm-up, nor by a step that
 * is cancelled. */
static void the_first_step_measures(void **state)
{
    (void)state;
    static const int32_t ids[] = {5, 77, 130, 9, 200};
    for (int32_t count = 1; count <= 5; count += 4) {
        volatile sig_atomic_t cancel = 0;
        struct fixture f;
        struct error err;
        float measured[2 * LAYERS];
        must(fixture_open(&f, CHECKPOINT, DTYPE_FP8_E4M3, &cancel, &err), &err);
        float *scales = f.model->cache.scales;
        must(model_warm_up(f.model, &err), &err);
        assert_true(f.model->cache.measure_scales);
        for (int i = 0; i < 2 * LAYERS; i++) assert_true(scales[i] == KV_SCALE_LEAST);
        must(model_allocate_cache(f.model, 2, &err), &err);
        cancel = 1;
        assert_int_equal(run_prompt_of(&f, ids, count, &err), STATUS_CANCELLED);
        cancel = 0;
        assert_true(f.model->cache.measure_scales);
        must(run_prompt_of(&f, ids, count, &err), &err);
        assert_false(f.model->cache.measure_scales);
        memcpy(measured, scales, sizeof measured);
        float largest = 0;
        for (int i = 0; i < 2 * LAYERS; i++) largest = fmaxf(largest, measured[i]);
        assert_true(count == 1 || largest > KV_SCALE_LEAST);
        for (int32_t id = 10; id < 300; id += 5) {
            const int32_t others[] = {id, id + 1, id + 2, id + 3};
            must(run_prompt_of(&f, others, 4, &err), &err);
        }
        assert_memory_equal(scales, measured, sizeof measured);
        fixture_close(&f);
    }
}

/* How a run shares steps, blocks and swap space changes nothing. All have the same first prompt in their first step. */
static void answers_do_not_depend_on_the_schedule(void **state)
{
    (void)state;
    static const int32_t lengths[] = {40, 3, 17, 60, 1, 33, 40, 8};
    static const char *const dtypes[] = {"fp8_e4m3", "fp8_e5m2"};
    for (int d = 0; d < 2; d++) {
        struct run runs[4];
        struct run_prompt *prompts = run_random_prompts(lengths, 8, 320, 5);
        for (int v = 0; v < 4; v++) {
            char path[512];
            struct sampling_params params = sampling_params_default();
            struct engine_options o = run_options("golden/qwen3", path, sizeof path);
            params.temperature = 0, params.ignore_eos = true, params.max_tokens = 40;
            o.kv_cache_dtype = dtypes[d];
            o.max_num_batched_tokens = v == 1 ? 48 : 512;
            o.enable_prefix_caching = v != 2;
            o.block_size = v == 2 ? 32 : 16;
            if (v == 3) o.num_gpu_blocks_override = 18, o.preemption_mode = PREEMPTION_SWAP, o.max_model_len = 128;
            struct engine *e = run_engine(&o);
            run_prompts(e, prompts, 8, &params, &runs[v]);
            engine_destroy(e);
        }
        for (int v = 1; v < 4; v++) run_assert_same(&runs[0], &runs[v], dtypes[d]);
        for (int v = 0; v < 4; v++) run_free(&runs[v]);
        run_prompts_free(prompts, 8);
    }
}

static void refuses_by_name(void **state)
{
    (void)state;
    char path[512];
    struct engine *e;
    struct error err;
    struct engine_options o = run_options("golden/qwen3", path, sizeof path);
    o.kv_cache_dtype = "int8";
    assert_int_equal(engine_create(&o, &e, &err), STATUS_INVALID);
    assert_string_equal(err.text, "kv_cache_dtype is \"int8\", but must be auto, float32, float16, bfloat16, fp8, "
                                  "fp8_e4m3 or fp8_e5m2");
    o.kv_cache_dtype = "fp8", o.dtype = "fp8";
    assert_int_equal(engine_create(&o, &e, &err), STATUS_INVALID);
    assert_string_equal(err.text, "dtype is \"fp8\", but must be auto, float32, float16 or bfloat16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_scales_under_every_name),
        cmocka_unit_test(one_scale_for_both),
        cmocka_unit_test(incomplete_scales_are_measured),
        cmocka_unit_test(refuses_scales_that_are_none),
        cmocka_unit_test(refuses_by_name),
        cmocka_unit_test(the_first_step_measures),
        cmocka_unit_test(answers_do_not_depend_on_the_schedule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
