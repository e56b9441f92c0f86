/* config.json of well-known checkpoints (tests/data/configs), and files with hardly any keys: the spec, the ropes and
 * the table of tensors are what transformers makes of the same file (tests/data/config_golden.json, by
 * tests/scripts/make_config_golden.py). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/file.h"
#include "model/config.h"
#include "model/tensors.h"
#include "tests/support/temp_folder.h"

static json_t *load_file(const char *name)
{
    char path[512];
    json_error_t err;
    snprintf(path, sizeof path, QUIRE_TEST_DATA "/configs/%s.json", name);
    json_t *config = json_load_file(path, 0, &err);
    if (!config) fail_msg("%s: %s", path, err.text);
    return config;
}

/* The config of a case: its "config", or the file that its name stands for. */
static struct model_config load(const json_t *golden)
{
    struct temp_folder folder;
    struct model_config config;
    struct error err;
    const char *name = json_string_value(json_object_get(golden, "name"));
    json_t *keys = json_object_get(golden, "config"), *json = keys ? json_incref(keys) : load_file(name);
    char *text = json_dumps(json, 0);
    assert_non_null(text);
    temp_folder_make(&folder);
    temp_folder_write_string(&folder, "config.json", text);
    const enum status status = model_config_load(folder.path, NULL, NULL, &config, &err);
    temp_folder_remove(&folder);
    if (status != STATUS_OK) fail_msg("%s: %s", name, err.text);
    free(text);
    json_decref(json);
    return config;
}

static double number(const json_t *golden, const char *key)
{
    const json_t *value = json_object_get(golden, key);
    if (!json_is_number(value)) fail_msg("there is no %s", key);
    return json_number_value(value);
}

static double element(const json_t *golden, const char *key, int32_t i)
{
    return json_number_value(json_array_get(json_object_get(golden, key), (size_t)i));
}

static void same(const char *name, const char *what, double found, double expected)
{
    if (found != expected) fail_msg("%s: %s is %.9g, expected %.9g", name, what, found, expected);
}

static void check_sizes(const char *name, const struct model_spec *spec, const json_t *golden)
{
    const json_t *multipliers = json_object_get(golden, "multipliers");
    same(name, "hidden_size", spec->hidden_size, number(golden, "hidden_size"));
    same(name, "vocab_size", spec->vocab_size, number(golden, "vocab_size"));
    same(name, "num_layers", spec->num_layers, number(golden, "num_layers"));
    same(name, "num_heads", spec->layers[0].attention.num_heads, number(golden, "num_heads"));
    same(name, "num_kv_heads", spec->layers[0].attention.num_kv_heads, number(golden, "num_kv_heads"));
    same(name, "head_size", spec->layers[0].attention.head_size, number(golden, "head_size"));
    same(name, "max_position", spec->max_position_embeddings, number(golden, "max_position"));
    same(name, "norm_eps", spec->norm_eps, number(golden, "norm_eps"));
    same(name, "tied", spec->tie_word_embeddings, json_is_true(json_object_get(golden, "tied")));
    same(name, "logits_soft_cap", spec->logits_soft_cap, number(golden, "logits_soft_cap"));
    same(name, "the embedding's multiplier", spec->embedding_multiplier, number(multipliers, "embedding"));
    same(name, "the logits' multiplier", spec->logits_multiplier, number(multipliers, "logits"));
    same(name, "the residual's multiplier", spec->layers[0].residual_multiplier,
         (float)number(multipliers, "residual"));
}

/* The class of a layer's activation in transformers. */
static const char *activation_class(const struct layer_spec *layer)
{
    static const char *const classes[] = {
        [ACTIVATION_SILU] = "SiLUActivation",         [ACTIVATION_GELU_TANH] = "GELUTanh",
        [ACTIVATION_GELU] = "GELUActivation",         [ACTIVATION_RELU] = "ReLU",
        [ACTIVATION_RELU2] = "ReLUSquaredActivation", [ACTIVATION_XIELU] = "XIELUActivation"};
    return classes[layer->mlp.activation];
}

static void check_layers(const char *name, const struct model_spec *spec, const json_t *golden)
{
    for (int32_t i = 0; i < spec->num_layers; i++) {
        const struct layer_spec *layer = &spec->layers[i];
        same(name, "a window", layer->attention.window, element(golden, "windows", i));
        same(name, "a rotary_dim", layer->attention.rotary_dim, element(golden, "rotary_dims", i));
        same(name, "a layer's rope", layer->attention.rope, element(golden, "ropes", i));
        same(name, "the scale of attention", layer->attention.scale, (float)number(golden, "scale"));
        same(name, "a soft cap", layer->attention.soft_cap, number(golden, "soft_cap"));
        if (json_object_get(golden, "experts")) continue;
        assert_string_equal(activation_class(layer), json_string_value(json_object_get(golden, "activation")));
    }
}

static void check_experts(const char *name, const struct model_spec *spec, const json_t *golden)
{
    const json_t *layers = json_object_get(golden, "experts"), *sizes;
    size_t i;
    json_array_foreach(layers, i, sizes)
    {
        const struct layer_spec *layer = &spec->layers[i];
        same(name, "experts", layer->experts.router.num_experts, json_number_value(json_array_get(sizes, 0)));
        same(name, "experts of a token", layer->experts.router.top_k, json_number_value(json_array_get(sizes, 1)));
        same(name, "an expert's size", layer->experts.intermediate_size, json_number_value(json_array_get(sizes, 2)));
        same(name, "an MLP's size", layer->mlp.intermediate_size, json_number_value(json_array_get(sizes, 3)));
    }
    if (!layers) assert_int_equal(model_spec_num_experts(spec), 0);
}

/* The row of position 1 holds the cosines and sines of the frequencies. */
static void check_ropes(const char *name, const struct model_spec *spec, const json_t *golden)
{
    static float table[2][MODEL_MAX_HEAD_SIZE];
    const json_t *ropes = json_object_get(golden, "frequencies"), *frequencies;
    size_t rope;
    json_array_foreach(ropes, rope, frequencies)
    {
        const int32_t dim = rope_rotary_dim(spec, (int32_t)rope), pairs = dim / 2;
        const double scale = element(golden, "rope_scale", (int32_t)rope);
        const double sine_scale = spec->rope_reversed ? -scale : scale;
        float *row = &table[0][0] + dim;
        same(name, "the number of frequencies", pairs, (double)json_array_size(frequencies));
        rope_table(spec, (int32_t)rope, 2, &table[0][0], NULL);
        for (int32_t i = 0; i < pairs; i++) {
            const double frequency = json_number_value(json_array_get(frequencies, (size_t)i));
            if (fabs(row[i] - scale * cos(frequency)) > 1e-6 ||
                fabs(row[pairs + i] - sine_scale * sin(frequency)) > 1e-6)
                fail_msg("%s: rope %d, pair %d: %.9g and %.9g, expected the frequency %.9g and the scale %.9g", name,
                         (int)rope, i, row[i], row[pairs + i], frequency, scale);
        }
    }
    assert_int_equal(json_array_size(ropes), rope_rotary_dim(spec, 0) > 0 ? spec->num_ropes : 0);
}

static const struct tensor *find(const struct tensor_table *table, const char *name)
{
    for (int32_t i = 0; i < table->count; i++)
        if (strcmp(table->tensors[i].name, name) == 0) return &table->tensors[i];
    return NULL;
}

static bool is_of_mlp(const struct tensor *t)
{
    return t->role >= TENSOR_GATE && t->role <= TENSOR_EXPERT_DOWN;
}

static void check_tensors(const char *name, const struct model_spec *spec, json_t *golden)
{
    struct tensor_table table;
    struct error err;
    assert_int_equal(tensor_table_make(spec, spec->tie_word_embeddings, &table, &err), STATUS_OK);
    int32_t in_file = 0;
    for (int32_t i = 0; i < table.count; i++) {
        const struct tensor *t = &table.tensors[i];
        if (json_object_get(golden, "experts") && is_of_mlp(t)) continue;
        if (t->role == TENSOR_V && spec->layers[t->layer].attention.v_is_k) continue; /* k's matrix */
        in_file += table.tensors[i].kind != TENSOR_CACHE_SCALE && tensor_is_stored(&table.tensors[i]) &&
                   table.tensors[i].file_row == 0;
    }
    same(name, "the number of tensors", in_file, number(golden, "num_tensors"));
    const char *key;
    json_t *shape;
    json_object_foreach(json_object_get(golden, "tensors"), key, shape)
    {
        const struct tensor *t = find(&table, key);
        if (!t) fail_msg("%s: there is no %s in the table", name, key);
        same(name, key, (double)t->file_rows, json_number_value(json_array_get(shape, t->transposed)));
        same(name, key, (double)t->in_features, json_number_value(json_array_get(shape, !t->transposed)));
    }
    tensor_table_free(&table);
}

static void test_published(void **state)
{
    json_error_t err;
    json_t *cases = json_load_file(QUIRE_TEST_DATA "/config_golden.json", 0, &err), *golden;
    size_t i;
    (void)state;
    if (!cases) fail_msg("config_golden.json: %s", err.text);
    assert_true(json_array_size(cases) > 0);
    json_array_foreach(cases, i, golden)
    {
        const char *name = json_string_value(json_object_get(golden, "name"));
        const struct model_config config = load(golden);
        check_sizes(name, &config.spec, golden);
        check_layers(name, &config.spec, golden);
        check_experts(name, &config.spec, golden);
        check_ropes(name, &config.spec, golden);
        check_tensors(name, &config.spec, golden);
    }
    json_decref(cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_published)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
