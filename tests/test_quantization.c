/* quantization_config of config.json: which scheme each matrix gets, and every format that is refused
 * (data/quantization_configs.json); quantization_apply; schemes in words; mutated files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/random.h"
#include "model/config.h"
#include "model/quantization.h"
#include "model/tensors.h"
#include "tests/support/temp_folder.h"

/* config.json of a small Llama with other keys over its own. Free it with json_decref. */
static json_t *model_json(const json_t *model, const json_t *more)
{
    json_t *config = json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:s}", "model_type", "llama", "hidden_size", 256,
                               "intermediate_size", 384, "num_hidden_layers", 2, "num_attention_heads", 4,
                               "num_key_value_heads", 2, "vocab_size", 320, "torch_dtype", "bfloat16");
    assert_non_null(config);
    if (model) assert_int_equal(json_object_update(config, (json_t *)model), 0);
    if (more) assert_int_equal(json_object_update(config, (json_t *)more), 0);
    return config;
}

static enum status load(const struct temp_folder *folder, const json_t *json, struct model_config *config,
                        struct error *err)
{
    char *text = json_dumps(json, JSON_COMPACT);
    assert_non_null(text);
    temp_folder_write_string(folder, "config.json", text);
    free(text);
    return model_config_load(folder->path, NULL, NULL, config, err);
}

/* A sound config.json with these keys, which are freed. */
static struct model_spec load_more(const struct temp_folder *folder, json_t *more)
{
    json_t *json = model_json(NULL, more);
    struct model_config config;
    struct error err = {""};
    if (load(folder, json, &config, &err) != STATUS_OK) fail_msg("%s", err.text);
    json_decref(json);
    json_decref(more);
    return config.spec;
}

/* Loads a config.json with this quantization_config, JSON with apostrophes for quotation marks. */
static struct model_spec load_quantized(const struct temp_folder *folder, const char *config)
{
    char text[256];
    size_t n = 0;
    for (; config[n]; n++) text[n] = config[n] == '\'' ? '"' : config[n];
    text[n] = '\0';
    return load_more(folder, json_pack("{s:o}", "quantization_config", json_loads(text, 0, NULL)));
}

/* The scheme of the matrix that the file calls NAME.weight. */
static struct weight_scheme find_scheme(const struct model_spec *spec, const char *name)
{
    struct tensor_table table;
    struct error err;
    struct weight_scheme scheme = {STORED_ROWS};
    const size_t length = strlen(name);
    bool found = false;
    assert_int_equal(tensor_table_make(spec, spec->tie_word_embeddings, &table, &err), STATUS_OK);
    for (int32_t i = 0; i < table.count && !found; i++) {
        found =
            strncmp(table.tensors[i].name, name, length) == 0 && strcmp(table.tensors[i].name + length, ".weight") == 0;
        if (found) scheme = table.tensors[i].scheme;
    }
    tensor_table_free(&table);
    if (!found) fail_msg("no matrix \"%s\"", name);
    return scheme;
}

static struct quantization_words find_words(const struct model_spec *spec, const char *name)
{
    const struct weight_scheme scheme = find_scheme(spec, name);
    return weight_scheme_words(&scheme);
}

/* hf_quant_config.json counts where config.json says nothing of quantization. */
static void test_modelopt_file(void **state)
{
    static const char fp8[] = "{\"producer\":{\"name\":\"modelopt\"},\"quantization\":{\"quant_algo\":\"FP8\","
                              "\"kv_cache_quant_algo\":\"FP8\",\"exclude_modules\":[\"lm_head\",\"*.0.mlp.up_proj\"]}}";
    struct model_config config;
    struct error err;
    temp_folder_write_string(*state, "hf_quant_config.json", fp8);
    struct model_spec spec = load_more(*state, NULL);
    assert_string_equal(find_words(&spec, "model.layers.0.mlp.down_proj").text,
                        "fp8, per tensor, activations too (W8A8)");
    assert_string_equal(find_words(&spec, "model.layers.0.mlp.up_proj").text, "not quantized");
    assert_string_equal(find_words(&spec, "lm_head").text, "not quantized");
    spec = load_quantized(*state, "{'quant_method':'gptq','bits':4,'group_size':128}");
    assert_string_equal(find_words(&spec, "model.layers.0.mlp.down_proj").text, "int4, groups of 128, GPTQ");
    temp_folder_write_string(*state, "hf_quant_config.json", "{\"quantization\":{\"quant_algo\":\"NVFP4\"}}");
    json_t *json = model_json(NULL, NULL);
    assert_int_equal(load(*state, json, &config, &err), STATUS_UNSUPPORTED);
    assert_non_null(
        strstr(err.text, "/hf_quant_config.json: quantization: NVFP4 of ModelOpt is not read; use the mod"));
    temp_folder_write_string(*state, "hf_quant_config.json",
                             "{\"quantization\":{\"quant_algo\":null,\"kv_cache_quant_algo\":\"FP8\"}}");
    assert_int_equal(load(*state, json, &config, &err), STATUS_OK);
    assert_int_equal(config.spec.num_schemes, 1);
    temp_folder_delete(*state, "hf_quant_config.json");
    json_decref(json);
}

/* --- The cases of the file --- */

static json_t *read_cases(void)
{
    json_error_t problem;
    json_t *cases = json_load_file(QUIRE_TEST_DATA "/quantization_configs.json", 0, &problem);
    if (!cases) fail_msg("quantization_configs.json: %s", problem.text);
    assert_true(json_array_size(cases) > 50);
    return cases;
}

static void check_accepted(const struct temp_folder *folder, const json_t *entry, const json_t *config_json)
{
    struct model_config config;
    struct error err = {""};
    const char *name;
    json_t *expected;
    if (load(folder, config_json, &config, &err) != STATUS_OK) fail_msg("%s", err.text);
    json_object_foreach(json_object_get(entry, "expected"), name, expected)
    {
        const struct quantization_words words = find_words(&config.spec, name);
        if (strcmp(words.text, json_string_value(expected)) != 0)
            fail_msg("%s: %s is \"%s\", expected \"%s\"", json_string_value(json_object_get(entry, "name")), name,
                     words.text, json_string_value(expected));
    }
    if (config.spec.tie_word_embeddings) assert_int_equal(config.spec.lm_head_scheme, 0);
}

static void check_refused(const struct temp_folder *folder, const json_t *entry, const json_t *config_json)
{
    const char *expected = json_string_value(json_object_get(entry, "error"));
    const bool invalid = strcmp(json_string_value(json_object_get(entry, "status")), "invalid") == 0;
    struct model_config config;
    struct error err = {""};
    const enum status status = load(folder, config_json, &config, &err);
    if (status != (invalid ? STATUS_INVALID : STATUS_UNSUPPORTED) || !strstr(err.text, expected))
        fail_msg("%s: expected \"%s\", found status %d: %s", json_string_value(json_object_get(entry, "name")),
                 expected, (int)status, err.text);
    assert_non_null(strstr(err.text, "/config.json: "));
    if (!invalid) assert_non_null(strstr(err.text, "; use the model in bfloat16 or float16, which quire can quantize"));
}

static void test_configs(void **state)
{
    json_t *cases = read_cases(), *entry;
    size_t i;
    json_array_foreach(cases, i, entry)
    {
        json_t *config = model_json(json_object_get(entry, "model"), json_object_get(entry, "config"));
        if (json_object_get(entry, "expected"))
            check_accepted(*state, entry, config);
        else
            check_refused(*state, entry, config);
        json_decref(config);
    }
    json_decref(cases);
}

/* The fields of a scheme, where the words for it do not say all. */
static void test_schemes(void **state)
{
    static const struct {
        const char *config;
        struct weight_scheme expected;
    } cases[] = {
        {"{'quant_method':'gptq','bits':4,'group_size':128,'sym':false}",
         {STORED_GPTQ, true, .format = WEIGHT_INT4, .group_size = 128, .has_zeros = true, .zeros_less_one = true}},
        {"{'quant_method':'gptq','bits':4,'group_size':128,'sym':false,'checkpoint_format':'gptq_v2'}",
         {STORED_GPTQ, true, .format = WEIGHT_INT4, .group_size = 128, .has_zeros = true}},
        {"{'quant_method':'gptq','bits':4,'group_size':128,'sym':true,'desc_act':true}",
         {STORED_GPTQ, true, .format = WEIGHT_INT4, .group_size = 128, .zeros_less_one = true, .ordered = true}},
        {"{'quant_method':'awq','bits':4,'group_size':128,'zero_point':true,'version':'gemm'}",
         {STORED_AWQ, true, .format = WEIGHT_INT4, .group_size = 128, .has_zeros = true}},
        {"{'quant_method':'auto-round','bits':4,'group_size':128,'sym':false,'packing_format':'auto_round:auto_gptq'}",
         {STORED_GPTQ, true, .format = WEIGHT_INT4, .group_size = 128, .has_zeros = true, .zeros_less_one = true}},
        {"{'quant_method':'auto-round','bits':4,'group_size':128,'sym':false,'packing_format':'auto_round:gptqmodel'}",
         {STORED_GPTQ, true, .format = WEIGHT_INT4, .group_size = 128, .has_zeros = true}},
        {"{'quant_method':'fp8','weight_block_size':[128,128]}",
         {STORED_ROWS, true, .format = WEIGHT_FP8, .group_size = 128, .blocks = true, .quantize_x = true}},
        {"{'quant_method':'fp8'}", {STORED_ROWS, true, .format = WEIGHT_FP8, .per_tensor = true, .quantize_x = true}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct model_spec spec = load_quantized(*state, cases[i].config);
        assert_int_equal(spec.num_schemes, 2);
        const struct weight_scheme scheme = find_scheme(&spec, "model.layers.1.mlp.down_proj");
        const struct weight_scheme *s = &scheme, *e = &cases[i].expected;
        if (s->storage != e->storage || !s->is_quantized || s->quantize || s->format != e->format ||
            s->group_size != e->group_size || s->blocks != e->blocks || s->per_tensor != e->per_tensor ||
            s->has_zeros != e->has_zeros || s->zeros_less_one != e->zeros_less_one || s->ordered != e->ordered ||
            s->quantize_x != e->quantize_x)
            fail_msg("%s", cases[i].config);
    }
}

static void test_words_of_a_model(void **state)
{
    json_t *cases = read_cases(), *entry;
    size_t i, checked = 0;
    json_array_foreach(cases, i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));
        struct model_config config;
        struct error err = {""};
        const char *expected = NULL;
        if (strncmp(name, "mixed-precision", 15) == 0)
            expected = "int4, groups of 128, compressed-tensors, asymmetric; fp8, per channel, activations too (W8A8); "
                       "int8, per channel, activations too (W8A8)";
        if (strcmp(name, "AWQ") == 0) expected = "int4, groups of 128, AWQ";
        if (strcmp(name, "null") == 0) expected = "";
        if (!expected) continue;
        json_t *json = model_json(NULL, json_object_get(entry, "config"));
        assert_int_equal(load(*state, json, &config, &err), STATUS_OK);
        assert_string_equal(quantization_words(&config.spec).text, expected);
        json_decref(json);
        checked++;
    }
    assert_int_equal(checked, 3);
    json_decref(cases);
}

/* --- quantization_apply --- */

static struct model_spec load_plain(const struct temp_folder *folder, const char *key, int value)
{
    return load_more(folder, json_pack("{s:i}", key, value));
}

static void check_words(const struct model_spec *spec, const char *name, const char *expected)
{
    assert_string_equal(find_words(spec, name).text, expected);
}

static void test_apply(void **state)
{
    static const struct {
        const char *name, *words;
    } cases[] = {{NULL, "not quantized"},
                 {"none", "not quantized"},
                 {"fp8", "fp8, per channel, activations too (W8A8), quantized while loading"},
                 {"int8", "int8, per channel, activations too (W8A8), quantized while loading"},
                 {"int4", "int4, groups of 128, asymmetric, quantized while loading"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_spec spec = load_plain(*state, "vocab_size", 320);
        struct error err = {""};
        assert_int_equal(quantization_apply(&spec, cases[i].name, &err), STATUS_OK);
        check_words(&spec, "model.layers.0.self_attn.q_proj", cases[i].words);
        check_words(&spec, "model.layers.1.mlp.down_proj", cases[i].words);
        check_words(&spec, "model.layers.1.mlp.gate_proj", cases[i].words);
        check_words(&spec, "lm_head", "not quantized");
        check_words(&spec, "model.embed_tokens", "not quantized");
        assert_int_equal(spec.num_schemes, i < 2 ? 1 : 2);
        assert_string_equal(quantization_words(&spec).text, i < 2 ? "" : cases[i].words);
        assert_int_equal(quantization_apply(&spec, cases[i].name, &err), STATUS_OK); /* it is so already */
    }
}

/* Groups get smaller where 128 do not divide the input features. */
static void test_apply_groups(void **state)
{
    static const struct {
        int intermediate_size;
        const char *words;
    } cases[] = {{320, "int4, groups of 64, asymmetric, quantized while loading"},
                 {352, "int4, groups of 32, asymmetric, quantized while loading"},
                 {368, "not quantized"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_spec spec = load_plain(*state, "intermediate_size", cases[i].intermediate_size);
        struct error err = {""};
        assert_int_equal(quantization_apply(&spec, "int4", &err), STATUS_OK);
        check_words(&spec, "model.layers.1.mlp.down_proj", cases[i].words);
        check_words(&spec, "model.layers.1.mlp.up_proj", "int4, groups of 128, asymmetric, quantized while loading");
        spec = load_plain(*state, "intermediate_size", cases[i].intermediate_size);
        assert_int_equal(quantization_apply(&spec, "int8", &err), STATUS_OK);
        check_words(&spec, "model.layers.1.mlp.down_proj",
                    "int8, per channel, activations too (W8A8), quantized while loading");
    }
}

/* Experts have no zero points, one group size for all of their matrices, and scales of the checkpoint's type. */
static void test_apply_experts(void **state)
{
    (void)state;
    static const struct {
        const char *model, *format, *words;
    } cases[] = {
        {"quantize/qwen3_moe", "fp8", "fp8, per channel, activations too (W8A8), quantized while loading"},
        {"quantize/qwen3_moe", "int8",
         "int8, per channel, activations too (W8A8), quantized while loading; int8, per channel, quantized while "
         "loading"},
        {"quantize/qwen3_moe", "int4",
         "int4, groups of 64, asymmetric, quantized while loading; int4, groups of 32, asymmetric, quantized while "
         "loading; int4, groups of 32, quantized while loading"},
        {"golden/qwen3_moe", "int4",
         "int4, groups of 32, asymmetric, quantized while loading; int4, groups of 128, asymmetric, quantized while "
         "loading"},
        {"golden/llama4", "int4",
         "int4, groups of 32, quantized while loading; int4, groups of 128, quantized while loading"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char folder[512];
        struct model_config config;
        struct error err = {""};
        snprintf(folder, sizeof folder, "%s/%s", QUIRE_TEST_DATA, cases[i].model);
        assert_int_equal(model_config_load(folder, NULL, NULL, &config, &err), STATUS_OK);
        assert_int_equal(quantization_apply(&config.spec, cases[i].format, &err), STATUS_OK);
        assert_string_equal(quantization_words(&config.spec).text, cases[i].words);
        const struct weight_scheme *down = &config.spec.schemes[config.spec.layers[0].schemes[TENSOR_EXPERT_DOWN]];
        if (i == 1 || i == 2) assert_int_equal(down->scale_dtype, DTYPE_BFLOAT16);
    }
}

static void test_apply_refused(void **state)
{
    struct model_spec spec = load_plain(*state, "vocab_size", 320);
    struct error err = {""};
    assert_int_equal(quantization_apply(&spec, "awq", &err), STATUS_INVALID);
    assert_string_equal(err.text, "quantization is \"awq\", but the checkpoint is not quantized; quire quantizes to "
                                  "fp8, int8 or int4");
    assert_int_equal(spec.num_schemes, 1);
    assert_int_equal(quantization_apply(&spec, "", &err), STATUS_INVALID);
}

/* For a quantized checkpoint a name says what it is, or is refused. */
static void test_apply_to_quantized(void **state)
{
    static const struct {
        const char *config, *same, *other;
    } cases[] = {
        {"{'quant_method':'awq','bits':4,'group_size':128}", "awq int4", "gptq fp8 int8 compressed-tensors"},
        {"{'quant_method':'gptq','bits':4,'group_size':128}", "gptq int4", "awq fp8 int8 compressed-tensors"},
        {"{'quant_method':'fp8'}", "fp8", "awq gptq int4 int8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_spec spec = load_quantized(*state, cases[i].config);
        struct error err = {""};
        const struct quantization_words before = quantization_words(&spec);
        static const char *const names[] = {"fp8", "int8", "int4", "awq", "gptq", "compressed-tensors"};
        for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
            const bool same = strstr(cases[i].same, names[n]) != NULL;
            if (!same && !strstr(cases[i].other, names[n])) continue;
            err = (struct error){""};
            assert_int_equal(quantization_apply(&spec, names[n], &err), same ? STATUS_OK : STATUS_INVALID);
            assert_string_equal(quantization_words(&spec).text, before.text);
            if (same) continue;
            assert_non_null(strstr(err.text, before.text));
            assert_int_equal(err.num_advice, 1);
            assert_string_equal(err.advice[0].value, "none");
        }
        assert_int_equal(quantization_apply(&spec, "none", &err), STATUS_OK);
    }
}

/* --- Mutations --- */

/* A byte of a quantization_config is replaced: the file is read or refused with a sentence. */
static void test_mutations(void **state)
{
    json_t *cases = read_cases(), *entry;
    uint64_t random = 1;
    int read = 0;
    size_t i;
    json_array_foreach(cases, i, entry)
    {
        json_t *json = model_json(json_object_get(entry, "model"), json_object_get(entry, "config"));
        char *text = json_dumps(json, JSON_COMPACT);
        assert_non_null(text);
        const char *from = strstr(text, "_config\":");
        const size_t start = from ? (size_t)(from - text) + 9 : 0, length = strlen(text);
        for (int n = 0; n < 20; n++) {
            static const char bytes[] = "0:,{}[]\"x-1";
            random = random_mix(random + RANDOM_STEP);
            const size_t at = start + random % (length - start);
            const char kept = text[at];
            text[at] = bytes[(random >> 32) % (sizeof bytes - 1)];
            temp_folder_write_string(*state, "config.json", text);
            struct model_config config;
            struct error err = {""};
            if (model_config_load(((const struct temp_folder *)*state)->path, NULL, NULL, &config, &err) == STATUS_OK)
                read += find_scheme(&config.spec, "model.layers.0.self_attn.o_proj").is_quantized;
            else
                assert_non_null(strstr(err.text, "config.json"));
            text[at] = kept;
        }
        free(text);
        json_decref(json);
    }
    assert_true(read > 100);
    json_decref(cases);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, temp_folder_setup, temp_folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_configs),      TEST(test_schemes),       TEST(test_words_of_a_model), TEST(test_apply),
        TEST(test_apply_groups), TEST(test_apply_experts), TEST(test_apply_refused),    TEST(test_apply_to_quantized),
        TEST(test_mutations),    TEST(test_modelopt_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
