/* The weights of a checkpoint: found by name, checked by shape and dtype; tied or not, with biases or not; and random
 * ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <unistd.h>

#include "base/array.h"
#include "base/file.h"
#include "model/weights.h"
#include "tests/support/golden.h"
#include "tests/support/temp_folder.h"

#define GOLDEN QUIRE_TEST_DATA "/golden/"

/* A checkpoint under construction: header entries and zeroed data. */
struct checkpoint {
    struct text header;
    uint64_t bytes;
    const char *skip;    /* a tensor to leave out, or NULL */
    const char *reshape; /* a tensor to give another shape, or NULL */
    const char *retype;  /* tensors whose name holds this get other_dtype, or NULL */
    const char *other_dtype;
    int other_size;
};

static void add(struct checkpoint *c, const char *name, int64_t rows, int64_t columns)
{
    const char *dtype = "BF16";
    int size = 2;
    char shape[64];
    if (c->skip && strcmp(name, c->skip) == 0) return;
    if (c->retype && strstr(name, c->retype)) {
        dtype = c->other_dtype;
        size = c->other_size;
    }
    if (c->reshape && strcmp(name, c->reshape) == 0) rows++;
    if (columns) {
        snprintf(shape, sizeof shape, "[%lld,%lld]", (long long)rows, (long long)columns);
    } else {
        snprintf(shape, sizeof shape, "[%lld]", (long long)rows);
    }
    const uint64_t end = c->bytes + (uint64_t)(rows * (columns ? columns : 1) * size);
    assert_true(text_printf(&c->header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%llu,%llu]}",
                            c->header.length ? "," : "", name, dtype, shape, (unsigned long long)c->bytes,
                            (unsigned long long)end));
    c->bytes = end;
}

static void add_linear(struct checkpoint *c, int layer, const char *module, int64_t rows, int64_t columns, bool bias)
{
    char name[128];
    snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, module);
    add(c, name, rows, columns);
    snprintf(name, sizeof name, "model.layers.%d.%s.bias", layer, module);
    if (bias) add(c, name, rows, 0);
}

static void add_layer(struct checkpoint *c, const struct model_config *m, int i)
{
    char name[128];
    const int64_t q = m->num_heads * m->head_size, kv = m->num_kv_heads * m->head_size;
    snprintf(name, sizeof name, "model.layers.%d.input_layernorm.weight", i);
    add(c, name, m->hidden_size, 0);
    add_linear(c, i, "self_attn.q_proj", q, m->hidden_size, m->attention_bias);
    add_linear(c, i, "self_attn.k_proj", kv, m->hidden_size, m->attention_bias);
    add_linear(c, i, "self_attn.v_proj", kv, m->hidden_size, m->attention_bias);
    add_linear(c, i, "self_attn.o_proj", m->hidden_size, q, m->attention_bias);
    snprintf(name, sizeof name, "model.layers.%d.post_attention_layernorm.weight", i);
    add(c, name, m->hidden_size, 0);
    add_linear(c, i, "mlp.gate_proj", m->intermediate_size, m->hidden_size, m->mlp_bias);
    add_linear(c, i, "mlp.up_proj", m->intermediate_size, m->hidden_size, m->mlp_bias);
    add_linear(c, i, "mlp.down_proj", m->hidden_size, m->intermediate_size, m->mlp_bias);
}

static void add_model(struct checkpoint *c, const struct model_config *m, bool head)
{
    add(c, "model.embed_tokens.weight", m->vocab_size, m->hidden_size);
    for (int i = 0; i < m->num_layers; i++) add_layer(c, m, i);
    add(c, "model.norm.weight", m->hidden_size, 0);
    if (head) add(c, "lm_head.weight", m->vocab_size, m->hidden_size);
}

/* Writes the file and forgets the checkpoint. */
static void finish(struct checkpoint *c, const struct temp_folder *folder)
{
    struct text file = {0}, zeros = {0};
    const uint64_t length = c->header.length + 2;
    assert_true(text_append(&file, (const char *)&length, 8));
    assert_true(text_printf(&file, "{%s}", c->header.data));
    assert_true(text_reserve(&zeros, c->bytes));
    memset(zeros.data, 0, c->bytes);
    assert_true(text_append(&file, zeros.data, c->bytes));
    temp_folder_write(folder, "model.safetensors", file.data, file.length);
    text_free(&file);
    text_free(&zeros);
    text_free(&c->header);
}

static struct model_config small(void)
{
    return (struct model_config){.hidden_size = 8,
                                 .intermediate_size = 12,
                                 .num_layers = 2,
                                 .num_heads = 4,
                                 .num_kv_heads = 2,
                                 .head_size = 6,
                                 .vocab_size = 10,
                                 .dtype = DTYPE_BFLOAT16};
}

static int setup(void **state)
{
    struct temp_folder *folder = malloc(sizeof *folder);
    if (!folder) return -1;
    temp_folder_make(folder);
    *state = folder;
    return 0;
}

static int teardown(void **state)
{
    temp_folder_remove(*state);
    free(*state);
    return 0;
}

static struct model_weights accept(const char *folder, const struct model_config *config)
{
    struct model_weights w;
    struct error err = {""};
    const enum status status = model_weights_open(folder, config, NULL, &w, &err);
    if (status != STATUS_OK) print_error("%s\n", err.text);
    assert_int_equal(status, STATUS_OK);
    return w;
}

static void refuse(const struct temp_folder *folder, const struct model_config *config, enum status expected,
                   const char *words)
{
    struct model_weights w;
    struct error err = {""};
    const enum status status = model_weights_open(folder->path, config, NULL, &w, &err);
    if (status != expected || !strstr(err.text, words))
        print_error("expected status %d and \"%s\"; found status %d: %s\n", (int)expected, words, (int)status,
                    err.text);
    assert_int_equal(status, expected);
    assert_non_null(strstr(err.text, words));
    assert_non_null(strstr(err.text, folder->path));
    assert_null(w.layers);
    assert_null(w.file);
}

/* Runs model_weights_open with stderr in a file of the folder; the caller frees the text. */
static struct text warnings_of(const struct temp_folder *folder, const struct model_config *config)
{
    const struct log log = {LOG_WARNING};
    struct text text = {0};
    struct error err = {""};
    struct model_weights w;
    char path[512];
    assert_true(path_join(path, sizeof path, folder->path, "stderr"));
    fflush(stderr);
    const int saved = dup(STDERR_FILENO), fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    assert_true(saved >= 0 && fd >= 0);
    dup2(fd, STDERR_FILENO);
    const enum status status = model_weights_open(folder->path, config, &log, &w, &err);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(fd);
    assert_int_equal(status, STATUS_OK);
    model_weights_close(&w);
    assert_true(text_append(&text, "", 0));
    assert_int_equal(file_read(path, &text, &err), STATUS_OK);
    return text;
}

static void check_matrix(const struct weight *w, int64_t rows, int64_t columns, enum dtype dtype, bool bias)
{
    assert_non_null(w->data);
    assert_int_equal(w->out_features, rows);
    assert_int_equal(w->in_features, columns);
    assert_int_equal(weight_dtype(w), dtype);
    assert_int_equal(w->bias != NULL, bias);
    if (bias) assert_int_equal(w->bias_dtype, dtype);
}

static void check_all(const struct model_weights *w, const struct model_config *c, enum dtype dtype)
{
    const int64_t q = c->num_heads * c->head_size, kv = c->num_kv_heads * c->head_size;
    check_matrix(&w->embedding, c->vocab_size, c->hidden_size, dtype, false);
    check_matrix(&w->lm_head, c->vocab_size, c->hidden_size, dtype, false);
    assert_int_equal(w->lm_head.data == w->embedding.data, c->tie_word_embeddings);
    assert_non_null(w->final_norm);
    assert_int_equal(w->num_layers, c->num_layers);
    for (int i = 0; i < c->num_layers; i++) {
        const struct layer_weights *layer = &w->layers[i];
        assert_non_null(layer->input_norm);
        assert_non_null(layer->post_attention_norm);
        assert_ptr_not_equal(layer->input_norm, layer->post_attention_norm);
        assert_int_equal(layer->qkv.num_parts, 3);
        assert_int_equal(layer->gate_up.num_parts, 2);
        check_matrix(&layer->qkv.parts[0], q, c->hidden_size, dtype, c->attention_bias);
        check_matrix(&layer->qkv.parts[1], kv, c->hidden_size, dtype, c->attention_bias);
        check_matrix(&layer->qkv.parts[2], kv, c->hidden_size, dtype, c->attention_bias);
        check_matrix(&layer->o, c->hidden_size, q, dtype, c->attention_bias);
        check_matrix(&layer->gate_up.parts[0], c->intermediate_size, c->hidden_size, dtype, c->mlp_bias);
        check_matrix(&layer->gate_up.parts[1], c->intermediate_size, c->hidden_size, dtype, c->mlp_bias);
        check_matrix(&layer->down, c->hidden_size, c->intermediate_size, dtype, c->mlp_bias);
    }
}

/* --- Golden checkpoints --- */

static void test_golden(void **state)
{
    static const struct {
        const char *name;
        enum dtype dtype;
        bool tied, bias;
    } all[] = {{"mha", DTYPE_BFLOAT16, false, false},
               {"gqa", DTYPE_FLOAT16, true, false},
               {"mqa", DTYPE_FLOAT32, false, true},
               {"sliding", DTYPE_BFLOAT16, false, false},
               {"yarn", DTYPE_FLOAT32, true, false}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char folder[512];
        struct model_config config;
        struct error err = {""};
        snprintf(folder, sizeof folder, GOLDEN "%s", all[i].name);
        if (model_config_load(folder, &config, &err) != STATUS_OK) fail_msg("%s", err.text);
        assert_int_equal(config.dtype, all[i].dtype);
        assert_int_equal(config.tie_word_embeddings, all[i].tied);
        assert_int_equal(config.attention_bias && config.mlp_bias, all[i].bias);
        struct model_weights w = accept(folder, &config);
        check_all(&w, &config, all[i].dtype);
        assert_int_equal(w.norm_dtype, all[i].dtype);
        assert_int_equal(w.bytes, model_weights_bytes(&config));
        assert_int_equal(w.bytes, (int64_t)safetensors_total_bytes(w.file));
        /* gains lie around 1: the pointers point to what they say */
        assert_true(fabsf(dtype_load(w.final_norm, w.norm_dtype, 0) - 1) < 1);
        model_weights_close(&w);
        assert_null(w.layers);
        model_weights_close(&w);
    }
}

static void test_golden_cases(void **state)
{
    static const char *const names[] = {"mha", "gqa", "mqa", "sliding", "yarn"};
    static const int32_t lengths[] = {1, 7, 33, 100};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char folder[512];
        struct golden golden;
        struct error err = {""};
        snprintf(folder, sizeof folder, GOLDEN "%s", names[i]);
        if (golden_load(folder, &golden, &err) != STATUS_OK) fail_msg("%s", err.text);
        assert_int_equal(golden.num_cases, 4);
        for (int k = 0; k < 4; k++) {
            const struct golden_case *c = &golden.cases[k];
            assert_int_equal(c->num_prompt, lengths[k]);
            assert_int_equal(c->num_greedy, 64);
            /* the last position's logits give the first greedy token */
            const float *row = c->logits + (int64_t)(c->num_positions - 1) * golden.vocab_size;
            assert_int_equal(c->positions[c->num_positions - 1], c->num_prompt - 1);
            for (int32_t t = 0; t < golden.vocab_size; t++)
                assert_true(t == c->greedy[0] || row[t] <= row[c->greedy[0]] - 0.99f * c->gaps[0]);
        }
        golden_free(&golden);
    }
}

/* --- Built checkpoints --- */

static void test_well_formed(void **state)
{
    const struct temp_folder *folder = *state;
    for (int variant = 0; variant < 8; variant++) {
        struct model_config config = small();
        config.tie_word_embeddings = variant & 1;
        config.attention_bias = variant & 2;
        config.mlp_bias = variant & 4;
        struct checkpoint c = {0};
        add_model(&c, &config, !config.tie_word_embeddings);
        finish(&c, folder);
        struct model_weights w = accept(folder->path, &config);
        check_all(&w, &config, DTYPE_BFLOAT16);
        assert_int_equal(w.bytes, model_weights_bytes(&config));
        model_weights_close(&w);
        struct text warnings = warnings_of(folder, &config);
        assert_string_equal(warnings.data, "");
        text_free(&warnings);
    }
}

/* A tied model's lm_head, where the file has one, is not another weight. */
static void test_tied_with_head(void **state)
{
    const struct temp_folder *folder = *state;
    struct model_config config = small();
    config.tie_word_embeddings = true;
    struct checkpoint c = {0};
    add_model(&c, &config, true);
    finish(&c, folder);
    struct model_weights w = accept(folder->path, &config);
    check_all(&w, &config, DTYPE_BFLOAT16);
    assert_int_equal(w.bytes, model_weights_bytes(&config));
    model_weights_close(&w);
    struct text warnings = warnings_of(folder, &config);
    assert_string_equal(warnings.data, "");
    text_free(&warnings);
}

static const char *const every_tensor[] = {
    "model.embed_tokens.weight",
    "model.layers.0.input_layernorm.weight",
    "model.layers.1.self_attn.q_proj.weight",
    "model.layers.0.self_attn.k_proj.weight",
    "model.layers.1.self_attn.v_proj.weight",
    "model.layers.0.self_attn.o_proj.weight",
    "model.layers.1.self_attn.q_proj.bias",
    "model.layers.0.self_attn.k_proj.bias",
    "model.layers.1.self_attn.v_proj.bias",
    "model.layers.0.self_attn.o_proj.bias",
    "model.layers.1.post_attention_layernorm.weight",
    "model.layers.0.mlp.gate_proj.weight",
    "model.layers.1.mlp.up_proj.weight",
    "model.layers.0.mlp.down_proj.weight",
    "model.layers.1.mlp.gate_proj.bias",
    "model.layers.0.mlp.up_proj.bias",
    "model.layers.1.mlp.down_proj.bias",
    "model.norm.weight",
    "lm_head.weight",
};

static void test_missing_and_reshaped(void **state)
{
    const struct temp_folder *folder = *state;
    struct model_config config = small();
    config.attention_bias = config.mlp_bias = true;
    for (size_t i = 0; i < sizeof every_tensor / sizeof *every_tensor; i++) {
        char words[256];
        struct checkpoint c = {.skip = every_tensor[i]};
        add_model(&c, &config, true);
        finish(&c, folder);
        snprintf(words, sizeof words, "there is no tensor \"%s\"", every_tensor[i]);
        refuse(folder, &config, STATUS_INVALID, words);
        c = (struct checkpoint){.reshape = every_tensor[i]};
        add_model(&c, &config, true);
        finish(&c, folder);
        snprintf(words, sizeof words, "tensor \"%s\" has shape [", every_tensor[i]);
        refuse(folder, &config, STATUS_INVALID, words);
    }
}

static void test_hints(void **state)
{
    const struct temp_folder *folder = *state;
    struct model_config config = small();
    struct checkpoint c = {0};
    add_model(&c, &config, false);
    finish(&c, folder);
    refuse(folder, &config, STATUS_INVALID, "\"tie_word_embeddings\": true");
    config.tie_word_embeddings = config.attention_bias = true;
    refuse(folder, &config, STATUS_INVALID, "has biases");
    config = small();
    config.vocab_size = 11;
    refuse(folder, &config, STATUS_INVALID, "has shape [10, 8], but config.json makes it [11, 8]");
    temp_folder_write_string(folder, "model.safetensors", "broken");
    refuse(folder, &config, STATUS_INVALID, "too few");
    temp_folder_delete(folder, "model.safetensors");
    refuse(folder, &config, STATUS_IO, "neither");
}

/* A matrix where a vector is expected, and the other way round. */
static void test_wrong_rank(void **state)
{
    const struct temp_folder *folder = *state;
    const struct model_config config = small();
    struct checkpoint c = {.skip = "model.norm.weight"};
    add_model(&c, &config, true);
    c.skip = NULL;
    add(&c, "model.norm.weight", 1, 8);
    finish(&c, folder);
    refuse(folder, &config, STATUS_INVALID, "has shape [1, 8], but config.json makes it [8]");
    c = (struct checkpoint){.skip = "lm_head.weight"};
    add_model(&c, &config, true);
    c.skip = NULL;
    add(&c, "lm_head.weight", 80, 0);
    finish(&c, folder);
    refuse(folder, &config, STATUS_INVALID, "has shape [80], but config.json makes it [10, 8]");
}

static void test_dtypes(void **state)
{
    const struct temp_folder *folder = *state;
    struct model_config config = small();
    config.attention_bias = true;
    static const struct {
        const char *retype, *dtype;
        int size;
        enum status status;
        const char *words; /* NULL: accepted */
    } cases[] = {
        {"norm", "F32", 4, STATUS_OK, NULL},
        {"lm_head", "F16", 2, STATUS_OK, NULL},
        {"down_proj", "F32", 4, STATUS_OK, NULL},
        {"model.norm", "F32", 4, STATUS_UNSUPPORTED, "has dtype F32, but model.layers.0.input_layernorm.weight has"},
        {"q_proj", "F32", 4, STATUS_UNSUPPORTED, "q, k and v projections of model.layers.0"},
        {"1.self_attn.v_proj", "F16", 2, STATUS_UNSUPPORTED, "q, k and v projections of model.layers.1"},
        {"up_proj", "F32", 4, STATUS_UNSUPPORTED, "gate and up projections of model.layers.0"},
        {"o_proj.bias", "F32", 4, STATUS_OK, NULL},
        {"embed_tokens", "F64", 8, STATUS_UNSUPPORTED, "\"model.embed_tokens.weight\" has dtype F64"},
        {"o_proj.weight", "I8", 1, STATUS_UNSUPPORTED, "has dtype I8"},
        {"gate_proj", "F8_E4M3", 1, STATUS_UNSUPPORTED, "has dtype F8_E4M3"},
        {"input_layernorm", "I32", 4, STATUS_UNSUPPORTED, "has dtype I32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct checkpoint c = {.retype = cases[i].retype, .other_dtype = cases[i].dtype, .other_size = cases[i].size};
        add_model(&c, &config, true);
        finish(&c, folder);
        if (cases[i].words) {
            refuse(folder, &config, cases[i].status, cases[i].words);
            continue;
        }
        struct model_weights w = accept(folder->path, &config);
        assert_int_equal(w.norm_dtype, strcmp(cases[i].retype, "norm") == 0 ? DTYPE_FLOAT32 : DTYPE_BFLOAT16);
        const struct weight *o = &w.layers[1].o;
        assert_int_equal(weight_dtype(o), DTYPE_BFLOAT16);
        assert_int_equal(o->bias_dtype, strcmp(cases[i].retype, "o_proj.bias") == 0 ? DTYPE_FLOAT32 : DTYPE_BFLOAT16);
        model_weights_close(&w);
    }
}

static void test_unused(void **state)
{
    const struct temp_folder *folder = *state;
    const struct model_config config = small();
    struct checkpoint c = {0};
    add_model(&c, &config, true);
    add(&c, "model.layers.0.self_attn.rotary_emb.inv_freq", 3, 0);
    add(&c, "model.layers.0.self_attn.q_norm.weight", 6, 0);
    finish(&c, folder);
    struct text warnings = warnings_of(folder, &config);
    assert_non_null(strstr(warnings.data, "model.safetensors: tensor \"model.layers.0.self_attn.q_norm.weight\""));
    assert_null(strstr(warnings.data, "inv_freq"));
    text_free(&warnings);
    c = (struct checkpoint){0};
    add_model(&c, &config, true);
    add_layer(&c, &config, 2);
    add_layer(&c, &config, 3);
    finish(&c, folder);
    warnings = warnings_of(folder, &config);
    assert_non_null(strstr(warnings.data, "tensor \"model.layers.2.input_layernorm.weight\" is not used"));
    assert_non_null(strstr(warnings.data, "10 more tensors are not used"));
    text_free(&warnings);
}

/* --- Random weights --- */

static void moments(const struct weight *w, double *mean, double *deviation)
{
    const int64_t count = w->out_features * w->in_features;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < count; i++) {
        const double v = dtype_load(w->data, weight_dtype(w), i);
        sum += v;
        squares += v * v;
    }
    *mean = sum / (double)count;
    *deviation = sqrt(squares / (double)count);
}

static void test_dummy(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_FLOAT32, DTYPE_FLOAT16, DTYPE_BFLOAT16};
    for (size_t i = 0; i < 3; i++) {
        struct model_config config = small();
        config.hidden_size = 61; /* odd, so that tensors have odd sizes */
        config.vocab_size = 333;
        config.dtype = dtypes[i];
        config.attention_bias = config.mlp_bias = i % 2;
        config.tie_word_embeddings = i % 2;
        struct model_weights w;
        struct error err;
        assert_int_equal(model_weights_dummy(&config, 5, &w, &err), STATUS_OK);
        check_all(&w, &config, dtypes[i]);
        assert_null(w.file);
        assert_int_equal(w.bytes, model_weights_bytes(&config));
        assert_true(w.dummy_bytes >= w.bytes);
        assert_int_equal((uintptr_t)w.layers[1].down.data % 64, 0);
        for (int k = 0; k < config.hidden_size; k++) {
            assert_true(dtype_load(w.final_norm, w.norm_dtype, k) == 1);
            assert_true(dtype_load(w.layers[1].input_norm, w.norm_dtype, k) == 1);
        }
        double mean, deviation;
        moments(&w.embedding, &mean, &deviation);
        assert_true(fabs(mean) < 0.001);
        assert_true(fabs(deviation - 0.02) < 0.001);
        model_weights_close(&w);
    }
}

static void test_dummy_seed(void **state)
{
    (void)state;
    struct model_config config = small();
    config.hidden_size = 64;
    struct model_weights a, b, c;
    struct error err;
    assert_int_equal(model_weights_dummy(&config, 1, &a, &err), STATUS_OK);
    assert_int_equal(model_weights_dummy(&config, 1, &b, &err), STATUS_OK);
    assert_int_equal(model_weights_dummy(&config, 2, &c, &err), STATUS_OK);
    assert_int_equal(a.dummy_bytes, b.dummy_bytes);
    assert_memory_equal(a.dummy, b.dummy, (size_t)a.dummy_bytes);
    assert_memory_not_equal(a.dummy, c.dummy, (size_t)a.dummy_bytes);
    /* no two tensors alike */
    assert_memory_not_equal(a.layers[0].qkv.parts[1].data, a.layers[0].qkv.parts[2].data, 64);
    assert_memory_not_equal(a.layers[0].down.data, a.layers[1].down.data, 64);
    model_weights_close(&a);
    model_weights_close(&b);
    model_weights_close(&c);
}

static void test_dummy_too_large(void **state)
{
    (void)state;
    struct model_config config = {.hidden_size = 1 << 20,
                                  .intermediate_size = 1 << 22,
                                  .num_layers = 4096,
                                  .num_heads = 4096,
                                  .num_kv_heads = 4096,
                                  .head_size = 1024,
                                  .vocab_size = 1 << 24,
                                  .attention_bias = true,
                                  .mlp_bias = true}; /* the largest that a config.json may say */
    struct model_weights w;
    struct error err = {""};
    assert_true(model_weights_bytes(&config) > 0);
    assert_int_equal(model_weights_dummy(&config, 1, &w, &err), STATUS_OUT_OF_MEMORY);
    assert_non_null(strstr(err.text, "GiB of host memory"));
    assert_null(w.layers);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_golden),
        TEST(test_golden_cases),
        TEST(test_well_formed),
        TEST(test_tied_with_head),
        TEST(test_missing_and_reshaped),
        TEST(test_hints),
        TEST(test_wrong_rank),
        TEST(test_dtypes),
        TEST(test_unused),
        TEST(test_dummy),
        TEST(test_dummy_seed),
        TEST(test_dummy_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
