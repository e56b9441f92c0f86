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
#include <jansson.h>
#include <math.h>
#include <unistd.h>

#include "base/array.h"
#include "base/file.h"
#include "model/config.h"
#include "model/quantization.h"
#include "model/weights.h"
#include "tests/support/golden.h"
#include "tests/support/temp_folder.h"

#define GOLDEN QUIRE_TEST_DATA "/golden/"

/* A checkpoint under construction: header entries, and data of one byte. */
struct checkpoint {
    struct text header;
    uint64_t bytes;
    const struct tensor_prefix *prefix; /* of the names that are added; NULL: as they are */
    const char *skip;                   /* a tensor to leave out, or NULL */
    const char *reshape;                /* a tensor to give another shape, or NULL */
    const char *retype;                 /* tensors whose name holds this get other_dtype, or NULL */
    const char *other_dtype;
    int other_size;
    uint8_t fill, last_byte; /* what the data are: all bytes but the last, and the last if it is not 0 */
};

static void add(struct checkpoint *c, const char *name, int64_t rows, int64_t columns)
{
    const char *dtype = "BF16";
    int size = 2;
    char shape[64];
    struct tensor_name renamed;
    if (c->prefix) renamed = tensor_name_with(name, c->prefix), name = renamed.text;
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

static void add_layer(struct checkpoint *c, const struct model_spec *m, int i)
{
    char name[128];
    const struct layer_spec *l = &m->layers[i];
    const int64_t q = attention_q_size(&l->attention), kv = attention_k_size(&l->attention);
    const int64_t inner = l->mlp.intermediate_size;
    snprintf(name, sizeof name, "model.layers.%d.input_layernorm.weight", i);
    add(c, name, m->hidden_size, 0);
    add_linear(c, i, "self_attn.q_proj", q, m->hidden_size, l->attention.qkv_bias);
    add_linear(c, i, "self_attn.k_proj", kv, m->hidden_size, l->attention.qkv_bias);
    add_linear(c, i, "self_attn.v_proj", kv, m->hidden_size, l->attention.qkv_bias);
    add_linear(c, i, "self_attn.o_proj", m->hidden_size, q, l->attention.qkv_bias);
    snprintf(name, sizeof name, "model.layers.%d.post_attention_layernorm.weight", i);
    add(c, name, m->hidden_size, 0);
    if (l->mlp.kind == MLP_GATED) add_linear(c, i, "mlp.gate_proj", inner, m->hidden_size, l->mlp.bias);
    add_linear(c, i, "mlp.up_proj", inner, m->hidden_size, l->mlp.bias);
    add_linear(c, i, "mlp.down_proj", m->hidden_size, inner, l->mlp.bias);
}

static void add_scalars(struct checkpoint *c, int layer)
{
    static const char *const names[] = {"alpha_n", "alpha_p", "beta", "eps"};
    for (int i = 0; i < 4; i++) {
        char name[128];
        snprintf(name, sizeof name, "model.layers.%d.mlp.act_fn.%s", layer, names[i]);
        add(c, name, 1, 0);
    }
}

static void add_model(struct checkpoint *c, const struct model_spec *m, bool head)
{
    add(c, "model.embed_tokens.weight", m->vocab_size, m->hidden_size);
    for (int i = 0; i < m->num_layers; i++) {
        add_layer(c, m, i);
        if (m->layers[i].mlp.activation == ACTIVATION_XIELU) add_scalars(c, i);
    }
    add(c, "model.norm.weight", m->hidden_size, 0);
    if (head) add(c, "lm_head.weight", m->vocab_size, m->hidden_size);
}

/* Writes the file and forgets the checkpoint. */
static void finish(struct checkpoint *c, const struct temp_folder *folder)
{
    struct text data = {0};
    assert_true(text_reserve(&data, c->bytes));
    memset(data.data, c->fill, c->bytes);
    if (c->last_byte) data.data[c->bytes - 1] = (char)c->last_byte;
    temp_folder_write_safetensors(folder, "model.safetensors", c->header.data, data.data, c->bytes);
    text_free(&data);
    text_free(&c->header);
}

static void set_sizes(struct model_spec *spec, const struct attention_spec *attention, int32_t intermediate_size)
{
    for (int32_t i = 0; i < spec->num_layers; i++)
        spec->layers[i] = (struct layer_spec){.attention = *attention, .mlp = {.intermediate_size = intermediate_size}};
}

static struct model_spec small(void)
{
    struct model_spec spec = {
        .hidden_size = 8, .num_layers = 2, .vocab_size = 10, .names = tensor_names_llama, .dtype = DTYPE_BFLOAT16};
    set_sizes(&spec, &(struct attention_spec){.num_heads = 4, .num_kv_heads = 2, .head_size = 6}, 12);
    return spec;
}

static void set_biases(struct model_spec *spec, bool attention, bool mlp)
{
    for (int32_t i = 0; i < spec->num_layers; i++) {
        spec->layers[i].attention.qkv_bias = spec->layers[i].attention.o_bias = attention;
        spec->layers[i].mlp.bias = mlp;
    }
}

static struct model_weights accept(const char *folder, const struct model_spec *config)
{
    struct model_weights w;
    struct error err = {""};
    const enum status status = model_weights_open(folder, config, NULL, &w, &err);
    if (status != STATUS_OK) print_error("%s\n", err.text);
    assert_int_equal(status, STATUS_OK);
    return w;
}

static void refuse(const struct temp_folder *folder, const struct model_spec *config, enum status expected,
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
static struct text warnings_of(const struct temp_folder *folder, const struct model_spec *config)
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

/* The bytes of a model of Llama's shape. */
static int64_t expected_bytes(const struct model_spec *c)
{
    const struct layer_spec *l = &c->layers[0];
    const int64_t hidden = c->hidden_size, inner = l->mlp.intermediate_size;
    const int64_t q = attention_q_size(&l->attention), kv = attention_k_size(&l->attention);
    const int64_t layer = 2 * hidden + 2 * hidden * q + 2 * hidden * kv + 3 * hidden * inner;
    int64_t biases = 0;
    for (int32_t i = 0; i < c->num_layers; i++) {
        if (c->layers[i].attention.qkv_bias) biases += q + 2 * kv;
        if (c->layers[i].attention.o_bias) biases += hidden;
        if (c->layers[i].mlp.bias) biases += 2 * inner + hidden;
    }
    const int64_t table = (int64_t)c->vocab_size * hidden;
    return (c->num_layers * layer + biases + hidden + (c->tie_word_embeddings ? 1 : 2) * table) * dtype_size(c->dtype);
}

static void check_all(const struct model_weights *w, const struct model_spec *c, enum dtype dtype)
{
    const struct layer_spec *l = &c->layers[0];
    const int64_t q = attention_q_size(&l->attention), kv = attention_k_size(&l->attention);
    const int64_t inner = l->mlp.intermediate_size;
    check_matrix(&w->embedding, c->vocab_size, c->hidden_size, dtype, false);
    check_matrix(&w->lm_head, c->vocab_size, c->hidden_size, dtype, false);
    assert_int_equal(w->lm_head.data == w->embedding.data, c->tie_word_embeddings);
    assert_non_null(w->final_norm.gain);
    for (int i = 0; i < c->num_layers; i++) {
        const struct layer_weights *layer = &w->layers[i];
        assert_non_null(layer->attention_norm.gain);
        assert_non_null(layer->mlp_norm.gain);
        assert_ptr_not_equal(layer->attention_norm.gain, layer->mlp_norm.gain);
        assert_null(layer->post_attention_norm.gain);
        assert_null(layer->post_mlp_norm.gain);
        assert_null(layer->q_norm.gain);
        assert_null(layer->k_norm.gain);
        assert_int_equal(layer->qkv.num_parts, 3);
        assert_int_equal(layer->gate_up.num_parts, 2);
        check_matrix(&layer->qkv.parts[0], q, c->hidden_size, dtype, l->attention.qkv_bias);
        check_matrix(&layer->qkv.parts[1], kv, c->hidden_size, dtype, l->attention.qkv_bias);
        check_matrix(&layer->qkv.parts[2], kv, c->hidden_size, dtype, l->attention.qkv_bias);
        check_matrix(&layer->o, c->hidden_size, q, dtype, l->attention.qkv_bias);
        check_matrix(&layer->gate_up.parts[0], inner, c->hidden_size, dtype, l->mlp.bias);
        check_matrix(&layer->gate_up.parts[1], inner, c->hidden_size, dtype, l->mlp.bias);
        check_matrix(&layer->down, c->hidden_size, inner, dtype, l->mlp.bias);
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
        if (model_config_load(folder, NULL, NULL, &config, &err) != STATUS_OK) fail_msg("%s", err.text);
        const struct model_spec spec = config.spec;
        assert_int_equal(spec.dtype, all[i].dtype);
        assert_int_equal(spec.tie_word_embeddings, all[i].tied);
        assert_int_equal(spec.layers[0].attention.qkv_bias && spec.layers[0].mlp.bias, all[i].bias);
        struct model_weights w = accept(folder, &spec);
        check_all(&w, &spec, all[i].dtype);
        assert_int_equal(w.final_norm.gain_dtype, all[i].dtype);
        assert_int_equal(w.bytes, expected_bytes(&spec));
        assert_int_equal(w.bytes, (int64_t)tensor_file_bytes(w.file));
        /* gains are near 1, which shows that the pointers are right */
        assert_true(fabsf(dtype_load(w.final_norm.gain, w.final_norm.gain_dtype, 0) - 1) < 1);
        model_weights_close(&w);
        assert_null(w.layers);
        model_weights_close(&w);
    }
}

/* Families whose layers differ from Llama's: every tensor of the table is found, and the layers have no other norms. */
static void test_golden_families(void **state)
{
    static const struct {
        const char *name;
        bool before, after, qk_norm, bias;
        bool converted; /* gains */
    } all[] = {{"qwen2", true, false, false, true, false},
               {"qwen3", true, false, true, false, false},
               {"gemma2", true, true, false, false, true},
               {"olmo2", false, true, true, false, false},
               {"granite", true, false, false, false, false}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char folder[512];
        struct model_config config;
        struct error err = {""};
        snprintf(folder, sizeof folder, GOLDEN "%s", all[i].name);
        if (model_config_load(folder, NULL, NULL, &config, &err) != STATUS_OK) fail_msg("%s", err.text);
        struct model_weights w = accept(folder, &config.spec);
        int64_t bytes = 0;
        for (int32_t k = 0; k < w.table.count; k++) {
            const struct tensor *t = &w.table.tensors[k];
            if (t->kind == TENSOR_CACHE_SCALE) continue;
            const struct stored_tensor *stored = tensor_file_find(w.file, t->name);
            assert_non_null(stored);
            if (t->kind != TENSOR_GAIN) {
                const struct weight *m = model_weights_matrix(&w, t);
                assert_ptr_equal(t->kind == TENSOR_BIAS ? m->bias : m->data, stored->data);
                bytes += (int64_t)stored->bytes;
                continue;
            }
            const struct norm_params *norm = model_weights_place(&w, t).norm;
            assert_int_equal(norm->gain != stored->data, all[i].converted);
            assert_true(norm->eps == (float)config.spec.norm_eps);
            bytes += t->out_features * dtype_size(norm->gain_dtype);
        }
        assert_int_equal(w.bytes, bytes);
        for (int32_t k = 0; k < config.spec.num_layers; k++) {
            const struct layer_weights *layer = &w.layers[k];
            assert_int_equal(layer->attention_norm.gain != NULL, all[i].before);
            assert_int_equal(layer->mlp_norm.gain != NULL, all[i].before);
            assert_int_equal(layer->post_attention_norm.gain != NULL, all[i].after);
            assert_int_equal(layer->post_mlp_norm.gain != NULL, all[i].after);
            assert_int_equal(layer->q_norm.gain != NULL && layer->k_norm.gain != NULL, all[i].qk_norm);
            for (int part = 0; part < 3; part++) assert_int_equal(layer->qkv.parts[part].bias != NULL, all[i].bias);
            assert_null(layer->o.bias);
        }
        model_weights_close(&w);
    }
}

/* Opens a golden checkpoint, quantized while it is loaded (NULL: it is not), and reads into memory what lies in another
 * order in its file. */
static struct model_weights open_packed(const char *name, const char *quantization)
{
    char folder[512];
    struct model_config config;
    struct model_weights w;
    struct error err = {""};
    snprintf(folder, sizeof folder, GOLDEN "%s", name);
    if (model_config_load(folder, NULL, NULL, &config, &err) != STATUS_OK ||
        (quantization && quantization_apply(&config.spec, quantization, &err) != STATUS_OK) ||
        model_weights_open(folder, &config.spec, NULL, &w, &err) != STATUS_OK ||
        model_weights_pack(&w, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return w;
}

/* Element [row][i] of q, k or v of layer 1, where the file has `stored` at this row and column. */
static void check_element(const struct model_weights *w, const struct model_weights *int8, int part, int64_t row,
                          int64_t i, float stored)
{
    const struct weight *m = &w->layers[1].qkv.parts[part], *q = &int8->layers[1].qkv.parts[part];
    const float scale = dtype_load(q->scales, q->scale_dtype, row);
    assert_true(weight_element(m, row, i) == stored);
    assert_true(fabsf(weight_element(q, row, i) - stored) <= 0.501f * scale);
}

/* GPT-NeoX has q, k and v of each head together, GPT-2 has columns. */
static void test_rows_in_another_order(void **state)
{
    (void)state;
    enum { HEAD = 16, HIDDEN = 32 };
    struct model_weights w = open_packed("gpt_neox", NULL), int8 = open_packed("gpt_neox", "int8");
    const struct stored_tensor *found = tensor_file_find(w.file, "gpt_neox.layers.1.attention.query_key_value.weight");
    const struct stored_tensor *bias = tensor_file_find(w.file, "gpt_neox.layers.1.attention.query_key_value.bias");
    assert_true(found && bias && int8.layers[1].qkv.parts[0].format == WEIGHT_INT8);
    for (int64_t row = 0; row < HIDDEN; row++)
        for (int part = 0; part < 3; part++) {
            const int64_t at = row / HEAD * 3 * HEAD + part * HEAD + row % HEAD;
            const struct weight *m = &w.layers[1].qkv.parts[part];
            assert_true(dtype_load(m->bias, m->bias_dtype, row) == dtype_load(bias->data, bias->type->dtype, at));
            for (int64_t i = 0; i < HIDDEN; i++)
                check_element(&w, &int8, part, row, i, dtype_load(found->data, found->type->dtype, at * HIDDEN + i));
        }
    model_weights_close(&w), model_weights_close(&int8);

    w = open_packed("gpt2", NULL), int8 = open_packed("gpt2", "int8");
    found = tensor_file_find(w.file, "transformer.h.1.attn.c_attn.weight");
    for (int64_t row = 0; row < HIDDEN; row++)
        for (int64_t i = 0; i < HIDDEN; i++)
            for (int part = 0; part < 3; part++)
                check_element(&w, &int8, part, row, i,
                              ((const float *)found->data)[i * 3 * HIDDEN + part * HIDDEN + row]);
    model_weights_close(&w), model_weights_close(&int8);
}

/* ||quantized - floats|| / ||floats|| of a matrix. */
static double relative_error(const struct weight *quantized, const struct weight *floats)
{
    double difference = 0, size = 0;
    assert_int_equal(quantized->out_features, floats->out_features);
    assert_int_equal(quantized->in_features, floats->in_features);
    for (int64_t row = 0; row < floats->out_features; row++)
        for (int64_t i = 0; i < floats->in_features; i++) {
            const double value = weight_element(floats, row, i), d = weight_element(quantized, row, i) - value;
            difference += d * d;
            size += value * value;
        }
    return sqrt(difference / size);
}

/* Experts that are quantized while they are loaded, from files with a tensor for each matrix, with one for all experts
 * of a layer, and with one that is transposed, in which gate and up take turns. Those of 16 or 24 features have no
 * groups of int4, and stay floats. */
static void test_quantized_experts(void **state)
{
    (void)state;
    static const char *const names[] = {"mixtral", "granitemoe", "gpt_oss"};
    static const struct {
        const char *format;
        double bound; /* of the relative error; rows in other places are off by more than 1 */
    } formats[] = {{"fp8", 0.04}, {"int8", 0.01}, {"int4", 0.15}};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++) {
            struct model_weights w = open_packed(names[i], NULL), q = open_packed(names[i], formats[k].format);
            int quantized = 0;
            for (int32_t t = 0; t < w.table.count; t++) {
                const struct tensor *tensor = &w.table.tensors[t];
                if (tensor->num_experts == 0 || tensor->kind != TENSOR_MATRIX) continue;
                const struct weight *of_q = model_weights_matrix(&q, &q.table.tensors[t]);
                const double error = relative_error(of_q, model_weights_matrix(&w, tensor));
                if (!(error < formats[k].bound))
                    fail_msg("%s, %s: \"%s\" is off by %g", names[i], formats[k].format, tensor->name, error);
                quantized += weight_is_quantized(of_q);
            }
            assert_int_equal(quantized > 0, k < 2);
            model_weights_close(&w), model_weights_close(&q);
        }
}

/* By quantization_config each matrix of an expert is quantized, but the file has one tensor for all of a layer. */
static void test_quantized_experts_in_one_tensor(void **state)
{
    (void)state;
    json_t *json = json_load_file(GOLDEN "qwen3_vl_moe/config.json", 0, NULL);
    struct temp_folder folder;
    struct model_config config;
    struct model_weights w;
    struct error err = {""};
    json_object_set_new(
        json, "quantization_config",
        json_pack("{s:s, s:[s, s]}", "quant_method", "fp8", "modules_to_not_convert", "self_attn", "layers.0"));
    char *text = json_dumps(json, 0);
    assert_non_null(text);
    temp_folder_make(&folder);
    temp_folder_copy(&folder, GOLDEN "qwen3_vl_moe", "model.safetensors");
    temp_folder_write_string(&folder, "config.json", text);
    assert_int_equal(model_config_load(folder.path, NULL, NULL, &config, &err), STATUS_OK);
    assert_int_equal(model_weights_open(folder.path, &config.spec, NULL, &w, &err), STATUS_INVALID);
    if (!strstr(err.text, "experts.0.gate_proj.weight\" in the safetensors files; by the \"quantization_config\" of "
                          "config.json this matrix is quantized, and has a tensor of its own, as those of each expert"))
        fail_msg("%s", err.text);
    temp_folder_remove(&folder);
    json_decref(json);
    free(text);
}

static void test_golden_cases(void **state)
{
    static const int32_t lengths[] = {1, 7, 33, 100};
    (void)state;
    for (int i = 0; i < golden_num_checkpoints; i++) {
        char folder[512];
        struct golden golden;
        struct error err = {""};
        snprintf(folder, sizeof folder, GOLDEN "%s", golden_checkpoints[i]);
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
        struct model_spec spec = small();
        spec.tie_word_embeddings = variant & 1;
        set_biases(&spec, variant & 2, variant & 4);
        struct checkpoint c = {0};
        add_model(&c, &spec, !spec.tie_word_embeddings);
        finish(&c, folder);
        struct model_weights w = accept(folder->path, &spec);
        check_all(&w, &spec, DTYPE_BFLOAT16);
        assert_int_equal(w.bytes, expected_bytes(&spec));
        model_weights_close(&w);
        struct text warnings = warnings_of(folder, &spec);
        assert_string_equal(warnings.data, "");
        text_free(&warnings);
    }
}

/* If a tied model's file has an lm_head that equals the embedding, it is not a second weight. */
static void test_tied_with_head(void **state)
{
    const struct temp_folder *folder = *state;
    struct model_spec spec = small();
    spec.tie_word_embeddings = true;
    struct checkpoint c = {0};
    add_model(&c, &spec, true);
    finish(&c, folder);
    struct model_weights w = accept(folder->path, &spec);
    check_all(&w, &spec, DTYPE_BFLOAT16);
    assert_int_equal(w.bytes, expected_bytes(&spec));
    model_weights_close(&w);
    struct text warnings = warnings_of(folder, &spec);
    assert_string_equal(warnings.data, "");
    text_free(&warnings);
}

/* A tied model's file may hold the matrix as lm_head alone. */
static void test_tied_as_head_alone(void **state)
{
    const struct temp_folder *folder = *state;
    struct model_spec spec = small();
    struct checkpoint c = {.skip = "model.embed_tokens.weight"};
    add_model(&c, &spec, true);
    finish(&c, folder);
    refuse(folder, &spec, STATUS_INVALID, "there is no tensor \"model.embed_tokens.weight\"");
    spec.tie_word_embeddings = true;
    struct model_weights w = accept(folder->path, &spec);
    check_all(&w, &spec, DTYPE_BFLOAT16);
    assert_ptr_equal(w.embedding.data, tensor_file_find(w.file, "lm_head.weight")->data);
    assert_int_equal(w.bytes, expected_bytes(&spec));
    model_weights_close(&w);
    struct text warnings = warnings_of(folder, &spec);
    assert_string_equal(warnings.data, "");
    text_free(&warnings);
    c = (struct checkpoint){.skip = "model.embed_tokens.weight", .reshape = "lm_head.weight"};
    add_model(&c, &spec, true);
    finish(&c, folder);
    refuse(folder, &spec, STATUS_INVALID, "\"lm_head.weight\" has shape [11, 8], but config.json makes it [10, 8]");
}

/* An lm_head that differs from the embedding is used, as in transformers 5, without a warning. */
static void test_tied_with_another_head(void **state)
{
    const struct temp_folder *folder = *state;
    struct model_spec spec = small();
    spec.tie_word_embeddings = true;
    for (int variant = 0; variant < 3; variant++) {
        const bool retyped = variant == 2;
        struct checkpoint c = {.retype = retyped ? "lm_head" : NULL, .other_dtype = "F32", .other_size = 4};
        add_model(&c, &spec, true);
        c.last_byte = variant == 1 ? 1 : 0; /* lm_head is the last tensor */
        finish(&c, folder);
        struct model_weights w = accept(folder->path, &spec);
        assert_int_equal(w.lm_head.data == w.embedding.data, variant == 0);
        assert_int_equal(weight_dtype(&w.lm_head), retyped ? DTYPE_FLOAT32 : DTYPE_BFLOAT16);
        assert_int_equal(w.bytes - expected_bytes(&spec), variant == 0 ? 0 : weight_bytes(&w.lm_head));
        assert_int_equal(tensor_table_find(&w.table, TENSOR_LM_HEAD, -1) != NULL, variant != 0);
        model_weights_close(&w);
        struct text warnings = warnings_of(folder, &spec);
        assert_string_equal(warnings.data, "");
        text_free(&warnings);
    }
    struct checkpoint c = {.reshape = "lm_head.weight"};
    add_model(&c, &spec, true);
    finish(&c, folder);
    refuse(folder, &spec, STATUS_INVALID, "\"lm_head.weight\" has shape [11, 8], but config.json makes it [10, 8]");
}

/* K and V of a layer that reads another's are no surprise, whatever prefix the file has. */
static void test_shared_kv(void **state)
{
    const struct temp_folder *folder = *state;
    for (int i = 0; i < NUM_TENSOR_PREFIXES; i++) {
        struct model_spec spec = small();
        struct checkpoint c = {.prefix = &tensor_prefixes[i]};
        add_model(&c, &spec, true);
        finish(&c, folder);
        spec.layers[1].attention.shares_kv = 1;
        struct text warnings = warnings_of(folder, &spec);
        assert_string_equal(warnings.data, "");
        text_free(&warnings);
    }
}

/* All experts of a layer in one tensor, [2, first, second]. */
static void add_stacked(struct checkpoint *c, const char *name, int64_t first, int64_t second)
{
    const uint64_t end = c->bytes + (uint64_t)(2 * first * second * 2);
    assert_true(text_printf(
        &c->header,
        ",\"model.layers.0.mlp.experts.%s\":{\"dtype\":\"BF16\",\"shape\":[2,%lld,%lld],\"data_offsets\":[%llu,%llu]}",
        name, (long long)first, (long long)second, (unsigned long long)c->bytes, (unsigned long long)end));
    c->bytes = end;
}

/* Experts that are published transposed may be stored as rows, which are used where they lie. Of square matrices the
 * others tell. */
static void test_experts_as_rows(void **state)
{
    const struct temp_folder *folder = *state;
    static const int32_t sizes[] = {5, 4, 8}; /* gate and up together are square, or down is */
    for (int i = 0; i < 6; i++) {
        const bool rows = i % 2;
        const int32_t inner = sizes[i / 2];
        struct model_spec spec = small();
        spec.num_layers = 1;
        spec.layers[0].experts =
            (struct experts_spec){.router = {.num_experts = 2, .top_k = 1}, .intermediate_size = inner};
        spec.names.experts = NULL;
        spec.names.expert_gate_up = "mlp.experts.gate_up";
        spec.names.expert_down = "mlp.experts.down";
        spec.names.experts_transposed = true;
        struct checkpoint c = {0};
        add_model(&c, &spec, true);
        add(&c, "model.layers.0.mlp.gate.weight", 2, 8);
        add_stacked(&c, "gate_up", rows ? 2 * inner : 8, rows ? 8 : 2 * inner);
        add_stacked(&c, "down", rows ? 8 : inner, rows ? inner : 8);
        finish(&c, folder);
        struct model_weights w = accept(folder->path, &spec);
        const struct expert_weights *e = &w.layers[0].experts;
        const int64_t step = 8 * inner * 2;
        assert_int_equal(e->down[0].data != NULL, rows);
        assert_int_equal(e->gate_up[0].data != NULL, rows);
        if (rows) assert_ptr_equal(e->down[1].data, (const char *)e->down[0].data + step);
        if (rows) assert_ptr_equal(e->gate_up[3].data, (const char *)e->gate_up[0].data + 3 * step);
        model_weights_close(&w);
    }
}

/* With a gain_offset gains are float32: the offset and what the file holds. Nothing else is changed. */
static void test_gain_offset(void **state)
{
    const struct temp_folder *folder = *state;
    struct model_spec spec = small();
    spec.gain_offset = 1;
    struct checkpoint c = {.fill = 0x3f}; /* each bfloat16 is 0x3f3f */
    add_model(&c, &spec, true);
    finish(&c, folder);
    struct model_weights w = accept(folder->path, &spec);
    const float stored = bf16_to_float(0x3f3f);
    int64_t gains = 0;
    for (int32_t i = 0; i < w.table.count; i++) {
        const struct tensor *t = &w.table.tensors[i];
        if (t->kind != TENSOR_GAIN) continue;
        const struct norm_params *norm = model_weights_place(&w, t).norm;
        assert_int_equal(norm->gain_dtype, DTYPE_FLOAT32);
        for (int64_t k = 0; k < t->out_features; k++) assert_true(((const float *)norm->gain)[k] == 1 + stored);
        gains += t->out_features;
    }
    assert_int_equal(gains, 5 * spec.hidden_size);
    assert_true(dtype_load(w.layers[1].o.data, DTYPE_BFLOAT16, 3) == stored);
    assert_int_equal(w.bytes, expected_bytes(&spec) + gains * 2);
    model_weights_close(&w);
}

static struct model_weights open_xielu(const struct temp_folder *folder, const struct model_spec *spec,
                                       const char *skip)
{
    struct checkpoint c = {.fill = 0x3f, .skip = skip}; /* each bfloat16 is 0x3f3f */
    add_model(&c, spec, true);
    finish(&c, folder);
    return accept(folder->path, spec);
}

/* alpha_p and alpha_n are what softplus makes of the file's numbers, and beta more; a file may lack beta and eps. */
static void test_xielu(void **state)
{
    const struct temp_folder *folder = *state;
    struct model_spec spec = small();
    spec.layers[0].mlp.kind = spec.layers[1].mlp.kind = MLP_PLAIN;
    spec.layers[0].mlp.activation = spec.layers[1].mlp.activation = ACTIVATION_XIELU;
    const double stored = bf16_to_float(0x3f3f), softplus = log(1 + exp(stored));
    struct model_weights w = open_xielu(folder, &spec, NULL);
    const struct xielu_params *xielu = &w.layers[1].xielu;
    assert_true(fabs(xielu->alpha_p - softplus) < 1e-6 && fabs(xielu->alpha_n - stored - softplus) < 1e-6);
    assert_true(xielu->beta == (float)stored && xielu->eps == (float)stored);
    assert_int_equal(w.layers[1].gate_up.num_parts, 1);
    check_matrix(&w.layers[1].gate_up.parts[0], spec.layers[1].mlp.intermediate_size, spec.hidden_size, DTYPE_BFLOAT16,
                 false);
    model_weights_close(&w);
    w = open_xielu(folder, &spec, "model.layers.1.mlp.act_fn.beta");
    xielu = &w.layers[1].xielu;
    assert_true(xielu->beta == 0.5f && fabs(xielu->alpha_n - 0.5 - softplus) < 1e-6);
    model_weights_close(&w);
    w = open_xielu(folder, &spec, "model.layers.1.mlp.act_fn.eps");
    assert_true(w.layers[1].xielu.eps == -1e-6f);
    model_weights_close(&w);
    struct checkpoint c = {.skip = "model.layers.0.mlp.act_fn.alpha_p"};
    add_model(&c, &spec, true);
    finish(&c, folder);
    refuse(folder, &spec, STATUS_INVALID, "there is no tensor \"model.layers.0.mlp.act_fn.alpha_p\"");
    c = (struct checkpoint){.reshape = "model.layers.0.mlp.act_fn.alpha_n"};
    add_model(&c, &spec, true);
    finish(&c, folder);
    refuse(folder, &spec, STATUS_INVALID, "alpha_n\" has shape [2], but config.json makes it [1]");
}

/* Dummy weights have xIELU's numbers with which training begins. */
static void test_dummy_without_a_gate(void **state)
{
    (void)state;
    struct model_spec spec = small();
    spec.layers[0].mlp.kind = spec.layers[1].mlp.kind = MLP_PLAIN;
    spec.layers[0].mlp.activation = ACTIVATION_XIELU;
    spec.layers[1].mlp.activation = ACTIVATION_RELU2;
    struct model_weights w;
    struct error err = {""};
    assert_int_equal(model_weights_dummy(&spec, 1, false, &w, &err), STATUS_OK);
    const struct xielu_params *learnt = &w.layers[0].xielu;
    assert_true(learnt->alpha_p == 0.8f && learnt->alpha_n == 0.8f && learnt->beta == 0.5f);
    assert_int_equal(w.bytes, expected_bytes(&spec) - (int64_t)2 * 8 * 12 * 2); /* two gates less, and no scalars */
    model_weights_close(&w);
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
    struct model_spec spec = small();
    set_biases(&spec, true, true);
    for (size_t i = 0; i < sizeof every_tensor / sizeof *every_tensor; i++) {
        char words[256];
        struct checkpoint c = {.skip = every_tensor[i]};
        add_model(&c, &spec, true);
        finish(&c, folder);
        snprintf(words, sizeof words, "there is no tensor \"%s\"", every_tensor[i]);
        refuse(folder, &spec, STATUS_INVALID, words);
        c = (struct checkpoint){.reshape = every_tensor[i]};
        add_model(&c, &spec, true);
        finish(&c, folder);
        snprintf(words, sizeof words, "tensor \"%s\" has shape [", every_tensor[i]);
        refuse(folder, &spec, STATUS_INVALID, words);
    }
}

static void test_hints(void **state)
{
    const struct temp_folder *folder = *state;
    struct model_spec spec = small();
    struct checkpoint c = {0};
    add_model(&c, &spec, false);
    finish(&c, folder);
    refuse(folder, &spec, STATUS_INVALID, "\"tie_word_embeddings\": true");
    spec.tie_word_embeddings = true;
    set_biases(&spec, true, false);
    refuse(folder, &spec, STATUS_INVALID, "has biases");
    spec = small();
    spec.vocab_size = 11;
    refuse(folder, &spec, STATUS_INVALID, "has shape [10, 8], but config.json makes it [11, 8]");
    temp_folder_write_string(folder, "model.safetensors", "broken");
    refuse(folder, &spec, STATUS_INVALID, "too few");
    temp_folder_delete(folder, "model.safetensors");
    refuse(folder, &spec, STATUS_IO, "there is no model.safetensors");
}

/* A matrix where a vector is expected, and the other way round. */
static void test_wrong_rank(void **state)
{
    const struct temp_folder *folder = *state;
    const struct model_spec spec = small();
    struct checkpoint c = {.skip = "model.norm.weight"};
    add_model(&c, &spec, true);
    c.skip = NULL;
    add(&c, "model.norm.weight", 1, 8);
    finish(&c, folder);
    refuse(folder, &spec, STATUS_INVALID, "has shape [1, 8], but config.json makes it [8]");
    c = (struct checkpoint){.skip = "lm_head.weight"};
    add_model(&c, &spec, true);
    c.skip = NULL;
    add(&c, "lm_head.weight", 80, 0);
    finish(&c, folder);
    refuse(folder, &spec, STATUS_INVALID, "has shape [80], but config.json makes it [10, 8]");
}

/* Each tensor has the dtype that the file gives it, whatever the others have. */
static void check_dtypes(const struct model_weights *w, const char *retype, enum dtype other)
{
    int changed = 0;
    for (int32_t i = 0; i < w->table.count; i++) {
        const struct tensor *t = &w->table.tensors[i];
        if (t->kind == TENSOR_CACHE_SCALE) continue;
        const bool is_changed = strstr(t->name, retype) != NULL;
        const enum dtype expected = is_changed ? other : DTYPE_BFLOAT16;
        changed += is_changed;
        if (t->kind == TENSOR_GAIN)
            assert_int_equal(model_weights_place(w, t).norm->gain_dtype, expected);
        else if (t->kind == TENSOR_BIAS)
            assert_int_equal(model_weights_matrix(w, t)->bias_dtype, expected);
        else
            assert_int_equal(weight_dtype(model_weights_matrix(w, t)), expected);
    }
    assert_true(changed > 0);
}

static void test_dtypes(void **state)
{
    const struct temp_folder *folder = *state;
    struct model_spec spec = small();
    set_biases(&spec, true, false);
    static const struct {
        const char *retype, *dtype;
        int size;
        enum status status;
        const char *words; /* NULL: accepted */
    } cases[] = {
        {"norm", "F32", 4, STATUS_OK, NULL},
        {"lm_head", "F16", 2, STATUS_OK, NULL},
        {"down_proj", "F32", 4, STATUS_OK, NULL},
        {"model.norm", "F32", 4, STATUS_OK, NULL},
        {"q_proj", "F32", 4, STATUS_OK, NULL},
        {"1.self_attn.v_proj", "F16", 2, STATUS_OK, NULL},
        {"up_proj", "F32", 4, STATUS_OK, NULL},
        {"o_proj.bias", "F32", 4, STATUS_OK, NULL},
        {"embed_tokens", "F64", 8, STATUS_UNSUPPORTED,
         "has dtype F64, which quire does not read; load the model in float32"},
        {"o_proj.weight", "I8", 1, STATUS_UNSUPPORTED, "has dtype I8"},
        {"gate_proj", "F8_E4M3", 1, STATUS_UNSUPPORTED, "has dtype F8_E4M3"},
        {"input_layernorm", "I32", 4, STATUS_UNSUPPORTED, "has dtype I32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct checkpoint c = {.retype = cases[i].retype, .other_dtype = cases[i].dtype, .other_size = cases[i].size};
        add_model(&c, &spec, true);
        finish(&c, folder);
        if (cases[i].words) {
            refuse(folder, &spec, cases[i].status, cases[i].words);
            continue;
        }
        struct model_weights w = accept(folder->path, &spec);
        check_dtypes(&w, cases[i].retype, strcmp(cases[i].dtype, "F16") == 0 ? DTYPE_FLOAT16 : DTYPE_FLOAT32);
        const struct weight *o = &w.layers[1].o;
        assert_int_equal(weight_dtype(o), DTYPE_BFLOAT16);
        assert_int_equal(o->bias_dtype, strcmp(cases[i].retype, "o_proj.bias") == 0 ? DTYPE_FLOAT32 : DTYPE_BFLOAT16);
        model_weights_close(&w);
    }
}

static void test_unused(void **state)
{
    const struct temp_folder *folder = *state;
    struct model_spec spec = small();
    struct checkpoint c = {0};
    add_model(&c, &spec, true);
    add(&c, "model.layers.0.self_attn.rotary_emb.inv_freq", 3, 0);
    add(&c, "model.layers.0.self_attn.q_norm.weight", 6, 0);
    finish(&c, folder);
    struct text warnings = warnings_of(folder, &spec);
    assert_non_null(strstr(warnings.data, "model.safetensors: tensor \"model.layers.0.self_attn.q_norm.weight\""));
    assert_null(strstr(warnings.data, "inv_freq"));
    text_free(&warnings);
    c = (struct checkpoint){0};
    add_model(&c, &spec, true);
    add_layer(&c, &spec, 2);
    add_layer(&c, &spec, 3);
    finish(&c, folder);
    warnings = warnings_of(folder, &spec);
    assert_non_null(strstr(warnings.data, "tensor \"model.layers.2.input_layernorm.weight\" is not used"));
    assert_non_null(strstr(warnings.data, "10 more tensors are not used"));
    text_free(&warnings);
    spec.num_next_layers = 1; /* which a head is made of */
    warnings = warnings_of(folder, &spec);
    assert_null(strstr(warnings.data, "model.layers.2."));
    assert_non_null(strstr(warnings.data, "tensor \"model.layers.3.input_layernorm.weight\" is not used"));
    text_free(&warnings);
    spec.names.next_layers = "model.layers.3";
    warnings = warnings_of(folder, &spec);
    assert_null(strstr(warnings.data, "model.layers.3."));
    assert_non_null(strstr(warnings.data, "tensor \"model.layers.2.input_layernorm.weight\" is not used"));
    text_free(&warnings);
    spec.num_next_layers = 0;
    warnings = warnings_of(folder, &spec);
    assert_non_null(strstr(warnings.data, "10 more tensors are not used"));
    text_free(&warnings);
}

/* A checkpoint of several modalities has its text model under a name of its own. What else it holds is one line. */
static void test_prefixes(void **state)
{
    const struct temp_folder *folder = *state;
    struct model_spec spec = small();
    spec.has_vision = true;
    for (int i = 0; i < NUM_TENSOR_PREFIXES; i++) {
        struct checkpoint c = {.prefix = &tensor_prefixes[i]};
        add_model(&c, &spec, true);
        add(&c, "vision_tower.layers.0.self_attn.q_proj.weight", 3, 3);
        add(&c, "vision_tower.layers.0.self_attn.q_proj.bias", 3, 0);
        add(&c, "multi_modal_projector.norm.weight", 3, 0);
        finish(&c, folder);
        struct model_weights w = accept(folder->path, &spec);
        assert_string_equal(w.table.tensors[0].name,
                            tensor_name_with("model.embed_tokens.weight", &tensor_prefixes[i]).text);
        model_weights_close(&w);
        struct text warnings = warnings_of(folder, &spec);
        assert_non_null(strstr(warnings.data, ": vision tower: 3 tensors not used; images are refused\n"));
        assert_true(strchr(warnings.data, '\n') == warnings.data + warnings.length - 1);
        text_free(&warnings);
    }
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
        struct model_spec spec = small();
        spec.hidden_size = 61; /* odd, so that tensors have odd sizes */
        spec.vocab_size = 333;
        spec.dtype = dtypes[i];
        set_biases(&spec, i % 2, i % 2);
        spec.tie_word_embeddings = i % 2;
        struct model_weights w;
        struct error err;
        assert_int_equal(model_weights_dummy(&spec, 5, false, &w, &err), STATUS_OK);
        check_all(&w, &spec, dtypes[i]);
        assert_null(w.file);
        assert_int_equal(w.bytes, expected_bytes(&spec));
        assert_true(w.memory_bytes >= w.bytes);
        assert_int_equal((uintptr_t)w.layers[1].down.data % 64, 0);
        for (int k = 0; k < spec.hidden_size; k++) {
            assert_true(dtype_load(w.final_norm.gain, w.final_norm.gain_dtype, k) == 1);
            assert_true(dtype_load(w.layers[1].attention_norm.gain, w.layers[1].attention_norm.gain_dtype, k) == 1);
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
    struct model_spec spec = small();
    spec.hidden_size = 64;
    struct model_weights a, b, c;
    struct error err;
    assert_int_equal(model_weights_dummy(&spec, 1, false, &a, &err), STATUS_OK);
    assert_int_equal(model_weights_dummy(&spec, 1, false, &b, &err), STATUS_OK);
    assert_int_equal(model_weights_dummy(&spec, 2, false, &c, &err), STATUS_OK);
    assert_int_equal(a.memory_bytes, b.memory_bytes);
    assert_memory_equal(a.memory, b.memory, (size_t)a.memory_bytes);
    assert_memory_not_equal(a.memory, c.memory, (size_t)a.memory_bytes);
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
    struct model_spec spec = {.hidden_size = 1 << 20,
                              .num_layers = MODEL_MAX_LAYERS,
                              .vocab_size = 1 << 24,
                              .names = tensor_names_llama}; /* the largest that a config.json may say */
    set_sizes(&spec, &(struct attention_spec){.num_heads = 4096, .num_kv_heads = 4096, .head_size = 1024}, 1 << 22);
    set_biases(&spec, true, true);
    struct model_weights w;
    struct error err = {""};
    char words[64];
    assert_int_equal(model_weights_dummy(&spec, 1, false, &w, &err), STATUS_OUT_OF_MEMORY);
    /* 2^56 bytes and more did not overflow; dtype 0 is float32 */
    snprintf(words, sizeof words, "take %.1f GiB of host memory", (double)expected_bytes(&spec) / (1 << 30));
    assert_non_null(strstr(err.text, words));
    assert_null(w.layers);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, temp_folder_setup, temp_folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_golden),
        TEST(test_golden_families),
        TEST(test_golden_cases),
        TEST(test_rows_in_another_order),
        TEST(test_quantized_experts),
        TEST(test_quantized_experts_in_one_tensor),
        TEST(test_well_formed),
        TEST(test_tied_with_head),
        TEST(test_tied_as_head_alone),
        TEST(test_tied_with_another_head),
        TEST(test_shared_kv),
        TEST(test_experts_as_rows),
        TEST(test_gain_offset),
        TEST(test_missing_and_reshaped),
        TEST(test_hints),
        TEST(test_wrong_rank),
        TEST(test_dtypes),
        TEST(test_unused),
        TEST(test_prefixes),
        TEST(test_dummy),
        TEST(test_dummy_seed),
        TEST(test_dummy_too_large),
        TEST(test_xielu),
        TEST(test_dummy_without_a_gate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
