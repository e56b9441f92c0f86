/* config.json: every key that is honoured, every key that is refused, both layouts, wrong types and sizes; rotation
 * tables against transformers; mutated files never crash the reader. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>

#include "base/array.h"
#include "base/file.h"
#include "model/config.h"
#include "tests/support/temp_folder.h"

#define SIZES                                                                                                          \
    "\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"vocab_size\":320"
#define LLAMA "\"model_type\":\"llama\"," SIZES
#define MISTRAL "\"model_type\":\"mistral\"," SIZES

/* Loads {base, extra} and expects success. */
static struct model_config accept(const struct temp_folder *folder, const char *base, const char *extra)
{
    struct text json = {0};
    struct model_config config;
    struct error err = {""};
    assert_true(text_printf(&json, "{%s%s%s}", base, *base && *extra ? "," : "", extra));
    temp_folder_write(folder, "config.json", json.data, json.length);
    const enum status status = model_config_load(folder->path, NULL, NULL, &config, &err);
    if (status != STATUS_OK) print_error("%s: %s\n", json.data, err.text);
    assert_int_equal(status, STATUS_OK);
    text_free(&json);
    return config;
}

static void check_refusal(const struct temp_folder *folder, enum status expected, const char *file, const char *words)
{
    struct model_config config;
    struct error err = {""};
    char path[512];
    assert_true(path_join(path, sizeof path, folder->path, file));
    const enum status status = model_config_load(folder->path, NULL, NULL, &config, &err);
    if (status != expected || !strstr(err.text, words) || !strstr(err.text, path))
        print_error("expected status %d and \"%s\" about %s; found status %d: %s\n", (int)expected, words, path,
                    (int)status, err.text);
    assert_int_equal(status, expected);
    assert_non_null(strstr(err.text, path));
    assert_non_null(strstr(err.text, words));
    assert_null(strchr(err.text, '\n'));
}

/* Loads {base, extra} and expects a refusal that names the file and holds the words. */
static void refuse(const struct temp_folder *folder, const char *base, const char *extra, enum status expected,
                   const char *words)
{
    struct text json = {0};
    assert_true(text_printf(&json, "{%s%s%s}", base, *base && *extra ? "," : "", extra));
    temp_folder_write(folder, "config.json", json.data, json.length);
    check_refusal(folder, expected, "config.json", words);
    text_free(&json);
}

/* --- Keys that are honoured --- */

static void test_defaults(void **state)
{
    const struct model_config c = accept(*state, LLAMA, "");
    assert_string_equal(c.architecture, "LlamaForCausalLM");
    assert_int_equal(c.spec.hidden_size, 64);
    assert_int_equal(c.spec.layers[0].mlp.intermediate_size, 96);
    assert_int_equal(c.spec.num_layers, 2);
    assert_int_equal(c.spec.layers[0].attention.num_heads, 4);
    assert_int_equal(c.spec.layers[0].attention.num_kv_heads, 4);
    assert_int_equal(c.spec.layers[0].attention.head_size, 16);
    assert_int_equal(c.spec.vocab_size, 320);
    assert_int_equal(c.spec.max_position_embeddings, 2048);
    assert_true(c.spec.norm_eps == 1e-6);
    assert_false(c.spec.tie_word_embeddings || c.spec.layers[0].attention.qkv_bias || c.spec.layers[0].mlp.bias);
    assert_int_equal(c.spec.layers[0].attention.window, 0);
    assert_int_equal(c.spec.ropes[0].type, ROPE_DEFAULT);
    assert_true(c.spec.ropes[0].theta == 10000);
    assert_int_equal(c.spec.dtype, DTYPE_FLOAT32);
    assert_int_equal(c.bos_token_id, -1);
    assert_int_equal(c.num_eos, 0);
    assert_false(c.generation.present || c.generation.do_sample_given);
    assert_true(isnan(c.generation.temperature) && isnan(c.generation.top_p) && isnan(c.generation.min_p));
    assert_true(isnan(c.generation.repetition_penalty));
    assert_int_equal(c.generation.top_k, -1);
    assert_int_equal(c.generation.max_new_tokens, -1);
    assert_int_equal(model_spec_max_length(&c.spec), 2048);
}

static void test_values(void **state)
{
    const struct model_config c =
        accept(*state, LLAMA,
               "\"architectures\":[\"LlamaForCausalLM\"],\"head_dim\":80,\"num_key_value_heads\":2,"
               "\"max_position_embeddings\":131072,\"rms_norm_eps\":1e-05,\"tie_word_embeddings\":true,"
               "\"attention_bias\":true,\"mlp_bias\":true,\"rope_theta\":500000,\"torch_dtype\":\"bfloat16\","
               "\"bos_token_id\":128000,\"eos_token_id\":[128001,128008,128009,128001],\"unknown\":{\"a\":[1]}");
    assert_int_equal(c.spec.layers[0].attention.head_size, 80);
    assert_int_equal(c.spec.layers[0].attention.num_kv_heads, 2);
    assert_int_equal(c.spec.max_position_embeddings, 131072);
    assert_true(c.spec.norm_eps == 1e-5);
    assert_true(c.spec.tie_word_embeddings && c.spec.layers[0].attention.qkv_bias && c.spec.layers[0].mlp.bias);
    assert_true(c.spec.ropes[0].theta == 500000);
    assert_int_equal(c.spec.dtype, DTYPE_BFLOAT16);
    assert_int_equal(c.bos_token_id, 128000);
    assert_int_equal(c.num_eos, 3);
    assert_int_equal(c.eos_token_ids[2], 128009);
}

static void test_null_is_absent(void **state)
{
    const struct model_config c =
        accept(*state, LLAMA,
               "\"architectures\":null,\"head_dim\":null,\"num_key_value_heads\":null,\"rms_norm_eps\":null,"
               "\"tie_word_embeddings\":null,\"attention_bias\":null,\"rope_theta\":null,\"rope_scaling\":null,"
               "\"rope_parameters\":null,\"torch_dtype\":null,\"dtype\":null,\"bos_token_id\":null,"
               "\"eos_token_id\":null,\"sliding_window\":null,\"use_sliding_window\":null,\"layer_types\":null,"
               "\"hidden_act\":null,\"quantization_config\":null,\"partial_rotary_factor\":null,"
               "\"attention_multiplier\":null,\"query_pre_attn_scalar\":null");
    assert_int_equal(c.spec.layers[0].attention.num_kv_heads, 4);
    assert_int_equal(c.spec.layers[0].attention.head_size, 16);
    assert_int_equal(c.num_eos, 0);
}

static void test_architecture(void **state)
{
    struct model_config c =
        accept(*state, SIZES, "\"architectures\":[\"MistralForCausalLM\"],\"num_key_value_heads\":2");
    assert_string_equal(c.architecture, "MistralForCausalLM");
    c = accept(*state, SIZES, "\"model_type\":\"mistral\",\"num_key_value_heads\":2");
    assert_string_equal(c.architecture, "MistralForCausalLM");
    refuse(*state, SIZES, "", STATUS_INVALID, "model_type is missing");
    refuse(*state, SIZES, "\"model_type\":\"zebra\"", STATUS_UNSUPPORTED,
           "model_type is \"zebra\"; quire runs afmoe, apertus, arcee, ");
    refuse(*state, SIZES, "\"model_type\":\"zebra\"", STATUS_UNSUPPORTED, " and youtu");
    refuse(*state, SIZES, "\"model_type\":7", STATUS_INVALID, "model_type must be a string");
    refuse(*state, LLAMA, "\"architectures\":[\"LlamaModel\"]", STATUS_UNSUPPORTED,
           "names \"LlamaModel\"; quire runs the causal language models of afmoe, apertus, arcee, ");
    refuse(*state, LLAMA, "\"architectures\":[\"MistralForCausalLM\"]", STATUS_INVALID, "contradict");
    refuse(*state, LLAMA, "\"architectures\":[\"MistralForCausalLM\",\"Qwen2ForCausalLM\"]", STATUS_INVALID,
           "contradict");
    refuse(*state, SIZES, "\"model_type\":\"iquestcoder\",\"architectures\":[\"IQuestLoopCoderForCausalLM\"]",
           STATUS_UNSUPPORTED, "names \"IQuestLoopCoderForCausalLM\"");
    refuse(*state, SIZES, "\"architectures\":[]", STATUS_INVALID, "model_type is missing");
    refuse(*state, LLAMA, "\"architectures\":[1]", STATUS_INVALID, "architectures must be");
    refuse(*state, LLAMA, "\"architectures\":\"LlamaForCausalLM\"", STATUS_INVALID, "architectures must be");
}

/* model_type decides where architectures leaves a choice. */
static void test_several_architectures(void **state)
{
    static const char *const lists[] = {"", "\"LLaMAForCausalLM\"", "\"LlamaModel\",\"LlamaForCausalLM\"",
                                        "\"LlamaForCausalLM\",\"MistralForCausalLM\"",
                                        "\"MistralForCausalLM\",\"LlamaForCausalLM\""};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        char extra[128];
        snprintf(extra, sizeof extra, "\"architectures\":[%s]", lists[i]);
        assert_string_equal(accept(*state, LLAMA, extra).architecture, "LlamaForCausalLM");
    }
    assert_string_equal(accept(*state, SIZES, "\"architectures\":[\"LLaMAForCausalLM\"]").model_type, "llama");
}

/* Types that transformers knows. tests/scripts/list_model_types.py checks that none is forgotten. */
static void test_unsupported(void **state)
{
    static const char *const cases[][2] = {
        {"aria_text", "its mixture of experts"},
        {"longcat_flash", "its latent attention (MLA) and its mixture of experts"},
        {"jetmoe", "a mixture of attention heads (MoA)"},
        {"deepseek_v32", "sparse attention, to tokens that an indexer chooses"},
        {"mamba", "its kind of recurrent layers"},
        {"mamba2", "recurrent layers alone, without any attention"},
        {"zamba2", "blocks of attention that several layers share, with an adapter (LoRA) of each layer"},
        {"jamba", "its kind of recurrent layers and its mixture of experts"},
        {"glm5_next", "vision, its kind of recurrent layers, its latent attention (MLA) "
                      "and its mixture of experts"},
        {"aria", "vision and its mixture of experts"},
        {"paligemma", "vision"},
        {"gemma3n", "vision and audio"},
        {"whisper", "audio"},
        {"t5", "an encoder"},
        {"bert", "an encoder"},
        {"gpt_neo", "layers of a kind of its own"},
        {"patchtst", "time series in place of text"},
        {"bitnet", "layers of a kind of its own"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char keys[128], words[256];
        snprintf(keys, sizeof keys, "\"architectures\":[\"XForCausalLM\"],\"model_type\":\"%s\"", cases[i][0]);
        snprintf(words, sizeof words, "model_type is \"%s\"; what quire lacks for it: %s", cases[i][0], cases[i][1]);
        refuse(*state, SIZES, keys, STATUS_UNSUPPORTED, words);
    }
    /* no words of the table */
    refuse(*state, SIZES, "\"model_type\":\"mixtra\"", STATUS_UNSUPPORTED, "model_type is \"mixtra\"; quire runs");
    refuse(*state, SIZES, "\"model_type\":\"t5 t5_gemma_module\"", STATUS_UNSUPPORTED, "; quire runs");
    refuse(*state, SIZES, "\"model_type\":\"\"", STATUS_UNSUPPORTED, "model_type is \"\"; quire runs");
}

/* The text_config of a file with other modalities is read as the family that it names, or the file's usual one. */
static void test_multimodal(void **state)
{
    static const char nested[] = "\"text_config\":{" SIZES "}";
    static const char *const usual[][2] = {
        {"aya_vision", "cohere2"},
        {"cohere2_vision", "cohere2"},
        {"exaone4_5", "exaone4"},
        {"gemma3", "gemma3_text"},
        {"gemma4", "gemma4_text"},
        {"glm4v", "glm4v_text"},
        {"glm4v_moe", "glm4v_moe_text"},
        {"idefics3", "llama"},
        {"internvl", "qwen2"},
        {"llama4", "llama4_text"},
        {"llava", "llama"},
        {"llava_next", "llama"},
        {"llava_next_video", "llama"},
        {"llava_onevision", "qwen2"},
        {"mistral3", "mistral"},
        {"qwen2_5_vl", "qwen2_5_vl_text"},
        {"qwen2_vl", "qwen2_vl_text"},
        {"qwen3_vl", "qwen3_vl_text"},
        {"qwen3_vl_moe", "qwen3_vl_moe_text"},
        {"smolvlm", "llama"},
        {"step3p7", "step3p5"},
        {"video_llava", "llama"},
        {"vipllava", "llama"},
        {"granite4_vision", "granite4_vision_text"},
    };
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        char type[64], words[128];
        snprintf(type, sizeof type, "\"model_type\":\"%s\",\"architectures\":[\"X\"]", usual[i][0]);
        const struct model_config c = accept(*state, type, "\"text_config\":{\"num_key_value_heads\":2," SIZES "}");
        assert_string_equal(c.model_type, usual[i][1]);
        assert_true(c.spec.has_vision && !c.spec.has_audio);
        snprintf(words, sizeof words, "text_config.model_type is \"mamba\"");
        refuse(*state, type, "\"text_config\":{\"model_type\":\"mamba\"," SIZES "}", STATUS_UNSUPPORTED, words);
    }
    refuse(*state, "\"model_type\":\"gemma3\"", "\"text_config\":7", STATUS_INVALID, "text_config must be an object");
    refuse(*state, "\"model_type\":\"gemma3\"", "", STATUS_INVALID, "hidden_size is missing");
    refuse(*state, "\"model_type\":\"llava\"", "\"text_config\":{\"vocab_size\":0}", STATUS_INVALID,
           "text_config.vocab_size must be");
    struct model_config c =
        accept(*state, "\"model_type\":\"exaone4_5\"",
               "\"text_config\":{\"model_type\":\"exaone4_5_text\",\"num_key_value_heads\":2," SIZES "}");
    assert_string_equal(c.model_type, "exaone4");
    /* what the outer file says counts, and its absence leaves what the text_config says */
    c = accept(
        *state,
        "\"model_type\":\"llava\",\"torch_dtype\":\"float16\",\"eos_token_id\":[3,4],\"tie_word_embeddings\":true",
        "\"text_config\":{\"tie_word_embeddings\":false,\"dtype\":\"float32\",\"eos_token_id\":5," SIZES "}");
    assert_true(c.spec.tie_word_embeddings && c.spec.dtype == DTYPE_FLOAT16 && c.num_eos == 2);
    c = accept(*state, "\"model_type\":\"internvl\"",
               "\"text_config\":{\"tie_word_embeddings\":false,\"dtype\":\"float16\",\"eos_token_id\":5,\"num_key_"
               "value_heads\":2," SIZES "}");
    assert_true(!c.spec.tie_word_embeddings && c.spec.dtype == DTYPE_FLOAT16 && c.eos_token_ids[0] == 5);
    assert_true(accept(*state, "\"model_type\":\"mistral3\"", "\"text_config\":{\"num_key_value_heads\":2," SIZES "}")
                    .spec.tie_word_embeddings);
    assert_false(accept(*state, "\"model_type\":\"llava\"", nested).spec.tie_word_embeddings);
    /* modules are named as in the file, by whichever version of transformers, and the vision tower's are no matter */
    static const char *const lists[] = {"re:language_model\\\\.model\\\\.layers\\\\.0\\\\..*",
                                        "model.language_model.layers.0", "language_model.model.layers.0",
                                        "model.layers.0"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        char keys[512];
        snprintf(keys, sizeof keys,
                 "\"text_config\":{" SIZES "},\"quantization_config\":{\"quant_method\":\"fp8\","
                 "\"modules_to_not_convert\":[\"%s\",\"vision_tower.layers.1\"]}",
                 lists[i]);
        c = accept(*state, "\"model_type\":\"llava\"", keys);
        assert_int_equal(c.spec.layers[0].schemes[TENSOR_DOWN], 0);
        assert_int_equal(c.spec.layers[1].schemes[TENSOR_DOWN], 1);
    }
    /* flat, as Qwen2-VL was published */
    c = accept(*state, "\"model_type\":\"qwen2_vl\",\"vision_config\":{\"depth\":32}",
               "\"num_key_value_heads\":2,\"rope_scaling\":{\"type\":\"mrope\",\"mrope_section\":[1,1,2]}," SIZES);
    assert_string_equal(c.model_type, "qwen2_vl_text");
    assert_true(c.spec.has_vision && c.spec.ropes[0].type == ROPE_DEFAULT && c.spec.ropes[0].theta == 1e6);
}

static void test_mistral(void **state)
{
    struct model_config c = accept(*state, MISTRAL, "\"num_key_value_heads\":2");
    assert_int_equal(c.spec.layers[0].attention.window, 4096); /* transformers' default */
    assert_int_equal(c.spec.max_position_embeddings, 131072);
    c = accept(*state, MISTRAL, "\"num_key_value_heads\":null,\"sliding_window\":null");
    assert_int_equal(c.spec.layers[0].attention.window, 0);
    assert_int_equal(c.spec.layers[0].attention.num_kv_heads, 4);
    c = accept(*state, MISTRAL, "\"num_key_value_heads\":2,\"sliding_window\":24,\"use_sliding_window\":true");
    assert_int_equal(c.spec.layers[0].attention.window, 24);
    c = accept(*state, MISTRAL, "\"num_key_value_heads\":2,\"sliding_window\":24,\"sliding_window\":32");
    assert_int_equal(c.spec.layers[0].attention.window, 32); /* the last of equal keys counts, as in Python */
    refuse(*state,
           "\"model_type\":\"mistral\",\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":2,"
           "\"num_attention_heads\":12,\"head_dim\":64,\"vocab_size\":320",
           "", STATUS_INVALID, "num_attention_heads (12) is not a multiple of num_key_value_heads (8)");
    refuse(*state, MISTRAL ",\"num_key_value_heads\":2", "\"sliding_window\":0", STATUS_INVALID, "sliding_window must");
    refuse(*state, MISTRAL ",\"num_key_value_heads\":2", "\"sliding_window\":-1", STATUS_INVALID,
           "sliding_window must");
    refuse(*state, MISTRAL ",\"num_key_value_heads\":2", "\"sliding_window\":8,\"use_sliding_window\":false",
           STATUS_UNSUPPORTED, "contradicts");
    c = accept(*state, MISTRAL,
               "\"num_key_value_heads\":2,\"sliding_window\":8,"
               "\"layer_types\":[\"sliding_attention\",\"full_attention\"]");
    assert_string_equal(c.model_type, "ministral");
    assert_string_equal(c.architecture, "MinistralForCausalLM");
    assert_int_equal(c.spec.layers[0].attention.window, 8);
    assert_int_equal(c.spec.layers[1].attention.window, 0);
    c = accept(*state, MISTRAL, "\"num_key_value_heads\":2,\"sliding_window\":8,\"layer_types\":null");
    assert_string_equal(c.model_type, "mistral");
    assert_int_equal(c.spec.layers[1].attention.window, 8);
    refuse(*state, MISTRAL ",\"num_key_value_heads\":2", "\"attention_bias\":true", STATUS_UNSUPPORTED,
           "attention_bias is true, but quire computes mistral models");
}

/* Keys of families that are Llama under other names. test_published has their defaults. */
static void test_llama_under_other_keys(void **state)
{
    static const char exaone[] = "\"model_type\":\"exaone\",\"hidden_size\":64,\"intermediate_size\":96,"
                                 "\"num_attention_heads\":4,\"vocab_size\":320";
    struct model_config c = accept(*state, exaone, "\"num_layers\":3,\"layer_norm_epsilon\":0.01");
    assert_int_equal(c.spec.num_layers, 3);
    assert_true(c.spec.norm_eps == 0.01);
    c = accept(*state, exaone,
               "\"num_hidden_layers\":4,\"rms_norm_eps\":0.02,\"architectures\":[\"LlamaForCausalLM\"]");
    assert_string_equal(c.model_type, "exaone");
    assert_true(c.spec.num_layers == 4 && c.spec.norm_eps == 0.02);
    refuse(*state, exaone, "", STATUS_INVALID, "the key num_hidden_layers is missing");
    refuse(*state, exaone, "\"num_layers\":3,\"activation_function\":\"gelu\"", STATUS_UNSUPPORTED,
           "activation_function is \"gelu\"");
    c = accept(*state, SIZES, "\"model_type\":\"internlm3\",\"num_key_value_heads\":2,\"qkv_bias\":true");
    assert_true(c.spec.layers[0].attention.qkv_bias && !c.spec.layers[0].attention.o_bias &&
                !c.spec.layers[0].mlp.bias);
    c = accept(*state, SIZES, "\"model_type\":\"internlm3\",\"num_key_value_heads\":2,\"bias\":true");
    assert_true(!c.spec.layers[0].attention.qkv_bias && c.spec.layers[0].attention.o_bias && c.spec.layers[0].mlp.bias);
    refuse(*state, SIZES, "\"model_type\":\"internlm3\",\"num_key_value_heads\":2,\"attention_bias\":true",
           STATUS_UNSUPPORTED, "attention_bias is true");
    refuse(*state, SIZES, "\"model_type\":\"iquestcoder\",\"num_key_value_heads\":2,\"clip_qkv\":8", STATUS_UNSUPPORTED,
           "clip_qkv is 8");
    refuse(*state, SIZES,
           "\"model_type\":\"iquestcoder\",\"num_key_value_heads\":2,\"use_sliding_window\":true,"
           "\"sliding_window\":64",
           STATUS_UNSUPPORTED, "sliding_window is 64");
}

static void test_llama_window(void **state)
{
    struct model_config c = accept(*state, LLAMA, "\"sliding_window\":16,\"use_sliding_window\":false");
    assert_int_equal(c.spec.layers[0].attention.window, 0);
    accept(*state, LLAMA, "\"layer_types\":[\"full_attention\",\"full_attention\"]");
    refuse(*state, LLAMA, "\"sliding_window\":16", STATUS_UNSUPPORTED, "sliding_window is 16");
    refuse(*state, LLAMA, "\"use_sliding_window\":true", STATUS_UNSUPPORTED,
           "use_sliding_window is true, but quire computes llama models only with false there");
    refuse(*state, LLAMA, "\"layer_types\":[\"full_attention\"]", STATUS_INVALID, "layer_types must be an array of");
    refuse(*state, LLAMA, "\"layer_types\":{}", STATUS_INVALID, "layer_types must be an array of");
    refuse(*state, LLAMA, "\"layer_types\":[\"full_attention\",\"sliding_attention\"]", STATUS_UNSUPPORTED,
           "layer_types[1] is \"sliding_attention\"");
    refuse(*state, LLAMA, "\"layer_types\":[\"full_attention\",3]", STATUS_UNSUPPORTED, "layer_types[1] is 3");
}

/* These read sliding_window without use_sliding_window, as transformers does. */
static void test_use_sliding_window_is_ignored(void **state)
{
    static const char *const model_types[] = {"cohere2",     "vaultgemma", "exaone4", "gemma2",
                                              "gemma3_text", "ministral",  "olmo3"};
    for (size_t i = 0; i < sizeof model_types / sizeof *model_types; i++)
        for (int use = 0; use < 2; use++) {
            char extra[128];
            snprintf(extra, sizeof extra,
                     "\"model_type\":\"%s\",\"num_key_value_heads\":2,\"sliding_window\":24,"
                     "\"use_sliding_window\":%s",
                     model_types[i], use ? "true" : "false");
            assert_int_equal(accept(*state, SIZES, extra).spec.layers[0].attention.window, 24);
        }
}

static void test_dtype(void **state)
{
    static const struct {
        const char *name;
        enum dtype dtype;
    } good[] = {{"float32", DTYPE_FLOAT32},
                {"float16", DTYPE_FLOAT16},
                {"bfloat16", DTYPE_BFLOAT16},
                {"half", DTYPE_FLOAT16},
                {"torch.bfloat16", DTYPE_BFLOAT16}};
    char extra[128];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        snprintf(extra, sizeof extra, "\"torch_dtype\":\"%s\"", good[i].name);
        assert_int_equal(accept(*state, LLAMA, extra).spec.dtype, good[i].dtype);
        snprintf(extra, sizeof extra, "\"dtype\":\"%s\"", good[i].name);
        assert_int_equal(accept(*state, LLAMA, extra).spec.dtype, good[i].dtype);
    }
    assert_int_equal(accept(*state, LLAMA, "\"torch_dtype\":\"float16\",\"dtype\":\"bfloat16\"").spec.dtype,
                     DTYPE_BFLOAT16);
    refuse(*state, LLAMA, "\"torch_dtype\":\"float64\"", STATUS_UNSUPPORTED, "torch_dtype is \"float64\"");
    refuse(*state, LLAMA, "\"dtype\":\"fp8_e4m3\"", STATUS_UNSUPPORTED, "dtype is \"fp8_e4m3\"");
    refuse(*state, LLAMA, "\"dtype\":16", STATUS_INVALID, "dtype must be a string, found 16");
}

static void test_eos(void **state)
{
    struct model_config c = accept(*state, LLAMA, "\"eos_token_id\":2,\"bos_token_id\":1");
    assert_int_equal(c.num_eos, 1);
    assert_int_equal(c.eos_token_ids[0], 2);
    c = accept(*state, LLAMA, "\"eos_token_id\":-1,\"bos_token_id\":-1");
    assert_int_equal(c.num_eos, 0);
    assert_int_equal(c.bos_token_id, -1);
    c = accept(*state, LLAMA, "\"eos_token_id\":[]");
    assert_int_equal(c.num_eos, 0);
    refuse(*state, LLAMA, "\"eos_token_id\":\"2\"", STATUS_INVALID, "eos_token_id must be a token id");
    refuse(*state, LLAMA, "\"eos_token_id\":[2,null]", STATUS_INVALID, "eos_token_id must be a token id");
    refuse(*state, LLAMA, "\"eos_token_id\":2147483648", STATUS_INVALID, "eos_token_id must be a token id");
    refuse(*state, LLAMA, "\"eos_token_id\":2.0", STATUS_INVALID, "eos_token_id must be a token id");
    refuse(*state, LLAMA, "\"eos_token_id\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]", STATUS_UNSUPPORTED,
           "more than 16 tokens");
    refuse(*state, LLAMA, "\"bos_token_id\":[1]", STATUS_INVALID, "bos_token_id must be an integer");
}

/* --- Families. What they compute is in test_published. --- */

static void test_refused_by_a_family(void **state)
{
    static const struct {
        const char *model_type, *keys;
        enum status status;
        const char *words;
    } cases[] = {
        {"apertus", "\"hidden_act\":\"silu\"", STATUS_UNSUPPORTED, "hidden_act is \"silu\"; in this family"},
        {"apertus", "\"mlp_bias\":true", STATUS_UNSUPPORTED, "mlp_bias is true"},
        {"arcee", "\"hidden_act\":\"silu\"", STATUS_UNSUPPORTED, "quire computes \"relu2\""},
        {"cohere", "\"use_qk_norm\":true", STATUS_UNSUPPORTED, "use_qk_norm is true, but quire computes cohere models"},
        {"cohere", "\"sliding_window\":24", STATUS_UNSUPPORTED, "sliding_window is 24"},
        {"cohere2", "\"sliding_window\":null", STATUS_INVALID, "sliding_window is null, but"},
        {"cohere2", "\"sliding_window_pattern\":0", STATUS_INVALID, "sliding_window_pattern must be an integer"},
        {"cohere2", "\"layer_types\":[\"full_attention\",\"chunked_attention\"]", STATUS_UNSUPPORTED,
         "layer_types[1] is \"chunked_attention\""},
        {"cwm", "\"sliding_window\":null", STATUS_INVALID, "sliding_window is null, but"},
        {"cwm", "\"attention_bias\":true", STATUS_UNSUPPORTED, "attention_bias is true"},
        {"ernie4_5", "\"moe_num_experts\":64", STATUS_UNSUPPORTED, "moe_num_experts is 64"},
        {"exaone4", "\"sliding_window_pattern\":\"LG\"", STATUS_INVALID, "sliding_window_pattern must be an integer"},
        {"exaone4", "\"sliding_window\":null,\"layer_types\":[\"full_attention\",\"sliding_attention\"]",
         STATUS_INVALID,
         "layer_types[1] is \"sliding_attention\", but sliding_window is null or use_sliding_window is false"},
        {"exaone4", "\"attention_bias\":true", STATUS_UNSUPPORTED, "attention_bias is true"},
        {"gemma", "\"hidden_act\":\"relu\"", STATUS_UNSUPPORTED, "hidden_act is \"relu\"; quire computes"},
        {"gemma", "\"sliding_window\":8", STATUS_UNSUPPORTED, "sliding_window is 8"},
        {"gemma", "\"use_bidirectional_attention\":true", STATUS_UNSUPPORTED, "use_bidirectional_attention is"},
        {"gemma2", "\"sliding_window\":null", STATUS_INVALID, "sliding_window is null, but"},
        {"gemma2", "\"hidden_activation\":\"relu\"", STATUS_UNSUPPORTED, "hidden_activation is \"relu\"; quire"},
        {"gemma2", "\"attn_logit_softcapping\":0", STATUS_INVALID, "attn_logit_softcapping must be a number"},
        {"gemma2", "\"use_bidirectional_attention\":true", STATUS_UNSUPPORTED, "use_bidirectional_attention is"},
        {"gemma2", "\"rope_local_base_freq\":10000", STATUS_UNSUPPORTED, "rope_local_base_freq is 10000"},
        {"gemma3_text", "\"sliding_window\":null", STATUS_INVALID, "sliding_window is null, but"},
        {"gemma3_text", "\"sliding_window_pattern\":0", STATUS_INVALID, "sliding_window_pattern must be"},
        {"gemma3_text", "\"attn_logit_softcapping\":50", STATUS_UNSUPPORTED, "attn_logit_softcapping is 50"},
        {"gemma3_text", "\"use_bidirectional_attention\":true", STATUS_UNSUPPORTED, "use_bidirectional_attention is"},
        {"gemma4_text", "\"sliding_window\":null", STATUS_INVALID, "sliding_window is null, but"},
        {"gemma4_text", "\"enable_moe_block\":true", STATUS_INVALID, "num_experts is missing"},
        {"gemma4_text", "\"use_bidirectional_attention\":\"all\"", STATUS_UNSUPPORTED,
         "use_bidirectional_attention is \"all\""},
        {"gemma4_text", "\"global_head_dim\":65", STATUS_INVALID, "head_dim must be even, found 65"},
        {"gemma4_text", "\"per_layer_config\":{\"1\":{\"head_dim\":64,\"intermediate_size\":8}}", STATUS_UNSUPPORTED,
         "per_layer_config.1.intermediate_size is set"},
        {"gemma4_text", "\"per_layer_config\":{\"1\":{\"num_key_value_heads\":3}}", STATUS_INVALID,
         "is not a multiple of per_layer_config.1.num_key_value_heads (3)"},
        {"gemma4_text", "\"per_layer_config\":{\"2\":{\"head_dim\":64}}", STATUS_INVALID,
         "per_layer_config must have objects named by a layer's number, found 2"},
        {"gemma4_text", "\"num_kv_shared_layers\":2", STATUS_INVALID, "num_kv_shared_layers is 2, but no layer"},
        {"glm", "\"mlp_bias\":true", STATUS_UNSUPPORTED, "mlp_bias is true, but quire computes glm models"},
        {"glm4", "\"hidden_act\":\"gelu\"", STATUS_UNSUPPORTED, "hidden_act is \"gelu\""},
        {"glm4", "\"partial_rotary_factor\":0.01", STATUS_INVALID,
         "partial_rotary_factor is 0.01, but must rotate an even number of the 128 elements of a head"},
        {"granite", "\"logits_scaling\":0", STATUS_INVALID, "logits_scaling must be a number"},
        {"granite", "\"logit_scale\":2", STATUS_UNSUPPORTED, "logit_scale is 2"},
        {"helium", "\"use_bias\":true", STATUS_UNSUPPORTED, "use_bias is true"},
        {"hunyuan_v1_dense", "\"num_experts\":8", STATUS_UNSUPPORTED, "num_experts is 8"},
        {"hunyuan_v1_dense", "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":1,\"alpha\":-1}", STATUS_INVALID,
         "rope_scaling.alpha must be"},
        {"hyperclovax", "\"logits_scaling\":0", STATUS_INVALID, "logits_scaling must be a number"},
        {"llama", "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":1,\"alpha\":9}", STATUS_UNSUPPORTED,
         "rope_scaling.alpha is set, a key that quire does not know"},
        {"ministral", "\"attention_bias\":true", STATUS_UNSUPPORTED, "attention_bias is true"},
        {"nanochat", "\"hidden_act\":\"silu\"", STATUS_UNSUPPORTED, "quire computes \"relu2\""},
        {"olmo", "\"clip_qkv\":0", STATUS_INVALID, "clip_qkv must be a number"},
        {"olmo2", "\"clip_qkv\":8", STATUS_UNSUPPORTED, "clip_qkv is 8"},
        {"olmo2", "\"sliding_window\":8", STATUS_UNSUPPORTED, "sliding_window is 8"},
        {"olmo3", "\"sliding_window\":null", STATUS_INVALID, "sliding_window is null, but"},
        {"phi3", "\"hidden_act\":\"gelu\"", STATUS_UNSUPPORTED, "hidden_act is \"gelu\""},
        {"phi3", "\"sliding_window\":0", STATUS_INVALID, "sliding_window must be"},
        {"phi3", "\"partial_rotary_factor\":0.1", STATUS_INVALID, "partial_rotary_factor is 0.1, but must rotate an"},
        {"phi3", "\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}", STATUS_UNSUPPORTED,
         "rope_type \"linear\" is not supported (default and longrope are)"},
        {"bloom", "\"apply_residual_connection_post_layernorm\":true", STATUS_UNSUPPORTED, "another residual"},
        {"falcon", "\"new_decoder_architecture\":true,\"parallel_attn\":false", STATUS_UNSUPPORTED,
         "transformers has no such model"},
        {"falcon", "\"num_kv_heads\":3,\"new_decoder_architecture\":true", STATUS_INVALID,
         "is not a multiple of num_kv_heads (3)"},
        {"gpt2", "\"activation_function\":\"quick_gelu\"", STATUS_UNSUPPORTED, "activation_function is \"quick_gelu\""},
        {"gptj", "\"rotary_dim\":7", STATUS_INVALID, "rotary_dim (7) must be even"},
        {"gptj", "\"tie_word_embeddings\":true", STATUS_UNSUPPORTED, "tie_word_embeddings is true: quire does not"},
        {"gpt_neox", "\"rotary_pct\":0.1", STATUS_INVALID, "partial_rotary_factor is 0.1, but must rotate an"},
        {"mpt", "\"attn_config\":{\"alibi\":false}", STATUS_UNSUPPORTED, "learned positions"},
        {"mpt", "\"attn_config\":{\"clip_qkv\":6}", STATUS_UNSUPPORTED, "attn_config.clip_qkv is set"},
        {"mpt", "\"no_bias\":false", STATUS_UNSUPPORTED, "no_bias is false: quire does not compute biases"},
        {"phi", "\"tie_word_embeddings\":true", STATUS_UNSUPPORTED, "tie_word_embeddings is true: quire does not"},
        {"stablelm", "\"qk_layernorm\":true", STATUS_UNSUPPORTED, "qk_layernorm is true"},
        {"qwen2", "\"mlp_bias\":true", STATUS_UNSUPPORTED, "mlp_bias is true"},
        {"qwen3", "\"qkv_bias\":true", STATUS_UNSUPPORTED, "qkv_bias is true, but quire computes qwen3 models"},
        {"qwen3", "\"num_experts\":8", STATUS_UNSUPPORTED, "num_experts is 8"},
        {"seed_oss", "\"qk_norm\":true", STATUS_UNSUPPORTED, "qk_norm is true"},
        {"smollm3", "\"no_rope_layers\":[1]", STATUS_INVALID, "no_rope_layers must be an array"},
        {"smollm3", "\"no_rope_layers\":[0,2]", STATUS_INVALID, "an element of no_rope_layers must be"},
        {"smollm3", "\"no_rope_layer_interval\":0", STATUS_INVALID, "no_rope_layer_interval must be"},
        {"vaultgemma", "\"sliding_window\":null", STATUS_INVALID, "sliding_window is null, but"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char base[256];
        snprintf(base, sizeof base, SIZES ",\"num_key_value_heads\":2,\"model_type\":\"%s\"", cases[i].model_type);
        accept(*state, base, "");
        refuse(*state, base, cases[i].keys, cases[i].status, cases[i].words);
    }
}

/* Many families have a number of heads of K and V for files without it. */
static void test_default_num_kv_heads(void **state)
{
    refuse(*state, SIZES, "\"model_type\":\"qwen2\"", STATUS_INVALID, "not a multiple of num_key_value_heads (32)");
    refuse(*state, SIZES, "\"model_type\":\"gemma\"", STATUS_INVALID, "not a multiple of num_key_value_heads (16)");
}

/* What no shape of a tensor and no size shows. */
static void test_arithmetic_of_families(void **state)
{
    static const struct {
        const char *model_type;
        bool interleaved, layer_norm, gemma, reversed, norm_last, no_gains;
    } cases[] = {
        {"cohere", .interleaved = true, .layer_norm = true},
        {"cohere2", .interleaved = true, .layer_norm = true},
        {"ernie4_5", .interleaved = true},
        {"gemma", .gemma = true},
        {"gemma2", .gemma = true},
        {"gemma3_text", .gemma = true},
        {"glm", .interleaved = true},
        {"glm4", .interleaved = true},
        {"granite"},
        {"helium", .interleaved = true},
        {"hunyuan_v1_dense", .norm_last = true},
        {"llama"},
        {"nanochat", .reversed = true, .norm_last = true, .no_gains = true},
        {"olmo", .layer_norm = true, .no_gains = true},
        {"vaultgemma", .gemma = true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char base[256];
        snprintf(base, sizeof base, SIZES ",\"num_key_value_heads\":2,\"model_type\":\"%s\"", cases[i].model_type);
        const struct model_config c = accept(*state, base, "");
        assert_int_equal(c.spec.rope_reversed, cases[i].reversed);
        assert_int_equal(c.spec.layers[0].attention.norm_after_rotation, cases[i].norm_last);
        assert_int_equal(c.spec.no_gains, cases[i].no_gains);
        assert_int_equal(c.spec.rope_interleaved, cases[i].interleaved);
        assert_int_equal(c.spec.norm_type, cases[i].layer_norm ? NORM_LAYER : NORM_RMS);
        assert_true(c.spec.gain_offset == cases[i].gemma);
        assert_int_equal(c.spec.round_embedding_multiplier, cases[i].gemma);
    }
}

/* OPT of 350M parameters is another model. */
static void test_opt(void **state)
{
    const char *base = SIZES ",\"model_type\":\"opt\",\"ffn_dim\":128";
    const struct model_config c = accept(*state, base, "");
    assert_int_equal(c.spec.position_offset, 2);
    refuse(*state, base, "\"word_embed_proj_dim\":16", STATUS_UNSUPPORTED, "quire has no projected embedding");
    refuse(*state, base, "\"do_layer_norm_before\":false", STATUS_UNSUPPORTED, "do_layer_norm_before is false");
    refuse(*state, base, "\"_remove_final_layer_norm\":true", STATUS_UNSUPPORTED, "without a final norm");
    refuse(*state, base, "\"layer_norm_elementwise_affine\":false", STATUS_UNSUPPORTED, "norms without gains");
}

/* The slopes of transformers' build_alibi_tensor: of 6 heads, those of 4 and then every second one of 8. */
static void test_alibi(void **state)
{
    static const float exponents[] = {2, 4, 6, 8, 1, 3};
    struct attention_spec a = {.num_heads = 6, .alibi_bias_max = 8, .alibi_multiplier = 0.5f};
    for (int32_t i = 0; i < 6; i++) assert_true(attention_alibi_slope(&a, i) == 0.5f * exp2f(-exponents[i]));
    a.num_heads = 4;
    for (int32_t i = 0; i < 4; i++) assert_true(attention_alibi_slope(&a, i) == 0.5f * exp2f(-2 * (float)(i + 1)));
    const struct model_config c = accept(*state, SIZES ",\"model_type\":\"falcon\"", "\"alibi\":true");
    assert_int_equal(c.spec.layers[0].attention.rotary_dim, 0);
    assert_true(c.spec.layers[0].attention.alibi_multiplier == c.spec.layers[0].attention.scale);
}

/* There are no more rows than positions, whatever else the file says. */
static void test_learned_positions(void **state)
{
    const struct model_config c = accept(*state, SIZES ",\"model_type\":\"gpt2\",\"n_positions\":64",
                                         "\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}");
    assert_int_equal(model_spec_max_length(&c.spec), 64);
}

/* Command R names its length model_max_length. */
static void test_model_max_length(void **state)
{
    const struct model_config c = accept(*state, SIZES ",\"model_type\":\"cohere\"", "\"model_max_length\":131072");
    assert_int_equal(model_spec_max_length(&c.spec), 131072); /* not 8192 */
}

/* use_sliding_window gives the layers from max_window_layers on a window, or those that layer_types names. */
static void test_qwen_windows(void **state)
{
    static const char *const bases[] = {SIZES ",\"model_type\":\"qwen2\",\"num_key_value_heads\":2",
                                        SIZES ",\"model_type\":\"qwen3\",\"num_key_value_heads\":2"};
    for (int i = 0; i < 2; i++) {
        const char *base = bases[i];
        struct model_config c = accept(*state, base, "\"sliding_window\":24,\"max_window_layers\":1");
        assert_int_equal(c.spec.layers[1].attention.window, 0);
        c = accept(*state, base, "\"use_sliding_window\":true,\"sliding_window\":24,\"max_window_layers\":1");
        assert_int_equal(c.spec.layers[0].attention.window, 0);
        assert_int_equal(c.spec.layers[1].attention.window, 24);
        c = accept(*state, base, "\"use_sliding_window\":true,\"sliding_window\":24"); /* 28 layers before it */
        assert_int_equal(c.spec.layers[1].attention.window, 0);
        c = accept(*state, base, "\"use_sliding_window\":true,\"max_window_layers\":0");
        assert_int_equal(c.spec.layers[0].attention.window, 4096);
        c = accept(*state, base, "\"use_sliding_window\":true,\"sliding_window\":null,\"max_window_layers\":0");
        assert_int_equal(c.spec.layers[0].attention.window, 0);
        c = accept(*state, base,
                   "\"use_sliding_window\":true,\"sliding_window\":24,\"max_window_layers\":0,"
                   "\"layer_types\":[\"sliding_attention\",\"full_attention\"]");
        assert_int_equal(c.spec.layers[0].attention.window, 24);
        assert_int_equal(c.spec.layers[1].attention.window, 0);
        refuse(*state, base, "\"layer_types\":[\"full_attention\",\"sliding_attention\"]", STATUS_INVALID,
               "layer_types[1] is \"sliding_attention\", but sliding_window is null or use_sliding_window is false");
        refuse(*state, base, "\"layer_types\":[\"full_attention\",\"chunked_attention\"]", STATUS_UNSUPPORTED,
               "layer_types[1] is \"chunked_attention\"");
        refuse(*state, base, "\"layer_types\":[\"full_attention\"]", STATUS_INVALID, "layer_types must be an array of");
        refuse(*state, base, "\"use_sliding_window\":true,\"sliding_window\":0", STATUS_INVALID, "sliding_window must");
    }
}

#define GEMMA3 "\"model_type\":\"gemma3_text\"," SIZES ",\"num_key_value_heads\":2"

static void check_ropes(const struct model_config *c, enum rope_type type, double theta, double local_theta)
{
    assert_int_equal(c->spec.num_ropes, 2);
    assert_int_equal(c->spec.ropes[0].type, type);
    assert_int_equal(c->spec.ropes[1].type, ROPE_DEFAULT);
    if (c->spec.ropes[0].theta != theta || c->spec.ropes[1].theta != local_theta)
        fail_msg("theta %g and %g", c->spec.ropes[0].theta, c->spec.ropes[1].theta);
    assert_int_equal(model_spec_max_length(&c->spec), c->spec.max_position_embeddings);
}

/* Layers with a window and layers without have a rope each, in both layouts. */
static void test_two_ropes(void **state)
{
    const char *olmo3 = SIZES ",\"model_type\":\"olmo3\"";
    const char *yarn = "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":8.0,"
                       "\"original_max_position_embeddings\":8192},\"max_position_embeddings\":65536";
    struct model_config c = accept(*state, GEMMA3, "");
    check_ropes(&c, ROPE_DEFAULT, 1e6, 1e4);
    c = accept(*state, GEMMA3,
               "\"rope_theta\":5000,\"rope_local_base_freq\":400,"
               "\"rope_scaling\":{\"factor\":8.0,\"rope_type\":\"linear\"}");
    check_ropes(&c, ROPE_LINEAR, 5000, 400);
    c = accept(*state, GEMMA3,
               "\"rope_parameters\":{\"full_attention\":{\"factor\":8.0,\"rope_theta\":5000,"
               "\"rope_type\":\"linear\"},\"sliding_attention\":{\"rope_theta\":400,\"rope_type\":\"default\"}}");
    check_ropes(&c, ROPE_LINEAR, 5000, 400);
    c = accept(*state, GEMMA3,
               "\"rope_parameters\":{\"full_attention\":{\"factor\":8.0,\"rope_type\":\"linear\"}},"
               "\"rope_scaling\":{}");
    check_ropes(&c, ROPE_LINEAR, 1e6, 1e4);
    assert_true(c.spec.ropes[0].factor == 8);
    c = accept(*state, GEMMA3,
               "\"rope_parameters\":{\"full_attention\":{\"factor\":8.0,\"rope_type\":\"linear\"}},"
               "\"rope_scaling\":{\"factor\":4.0}");
    check_ropes(&c, ROPE_LINEAR, 1e6, 1e4);
    assert_true(c.spec.ropes[0].factor == 4);
    c = accept(*state, GEMMA3, "\"rope_parameters\":{\"full_attention\":null}");
    check_ropes(&c, ROPE_DEFAULT, 1e6, 1e4);
    c = accept(*state, olmo3, "");
    check_ropes(&c, ROPE_DEFAULT, 5e5, 5e5);
    c = accept(*state, olmo3, yarn);
    check_ropes(&c, ROPE_YARN, 5e5, 5e5);
    refuse(*state, GEMMA3, "\"rope_parameters\":{\"rope_type\":\"default\"}", STATUS_UNSUPPORTED,
           "rope_parameters.rope_type is set, but gemma3_text models have");
    refuse(*state, GEMMA3, "\"rope_parameters\":{\"sliding_attention\":3}", STATUS_INVALID,
           "rope_parameters.sliding_attention must be an object");
    refuse(*state, GEMMA3, "\"rope_parameters\":{\"sliding_attention\":{\"alpha\":3}}", STATUS_UNSUPPORTED,
           "rope_parameters.sliding_attention.alpha is set");
    refuse(*state, GEMMA3, "\"partial_rotary_factor\":0.5", STATUS_UNSUPPORTED, "partial_rotary_factor is 0.5");
    refuse(*state, olmo3, "\"rope_local_base_freq\":400", STATUS_UNSUPPORTED, "rope_local_base_freq is 400");
}

#define GRANITE4 "\"model_type\":\"granitemoehybrid\"," SIZES ",\"num_local_experts\":0,\"shared_intermediate_size\":80"

static void test_granite4(void **state)
{
    const char *attention = "\"layer_types\":[\"attention\",\"attention\"]";
    struct model_config c = accept(*state, GRANITE4, attention);
    assert_string_equal(c.architecture, "GraniteMoeHybridForCausalLM");
    assert_int_equal(c.spec.layers[0].mlp.intermediate_size, 80);
    assert_int_equal(c.spec.layers[1].attention.rotary_dim, 0);
    assert_string_equal(c.spec.names.gate_up, "shared_mlp.input_linear");
    assert_string_equal(c.spec.names.down, "shared_mlp.output_linear");
    c = accept(*state, GRANITE4,
               "\"layers_block_type\":[\"attention\",\"full_attention\"],\"position_embedding_type\":\"rope\","
               "\"attention_multiplier\":0.015625,\"embedding_multiplier\":12,\"residual_multiplier\":0.22,"
               "\"logits_scaling\":8,\"attention_bias\":true");
    assert_int_equal(c.spec.layers[1].attention.rotary_dim, 16);
    assert_true(c.spec.layers[1].attention.scale == 0.015625f && c.spec.layers[1].residual_multiplier == 0.22f);
    assert_true(c.spec.embedding_multiplier == 12 && c.spec.logits_multiplier == 0.125);
    assert_true(c.spec.layers[0].attention.qkv_bias && c.spec.layers[0].attention.o_bias);
    refuse(*state, GRANITE4, "\"mamba_n_heads\":4,\"mamba_d_state\":16", STATUS_UNSUPPORTED, "no layer has attention");
    refuse(*state, GRANITE4, "\"layer_types\":[\"attention\"]", STATUS_INVALID, "layer_types must be an array of num_");
    refuse(*state, GRANITE4, "\"layer_types\":[\"attention\",\"conv\"]", STATUS_UNSUPPORTED,
           "layer_types[1] is \"conv\"; quire computes \"linear_attention\" and \"full_attention\"");
    c = accept(*state, "\"model_type\":\"granitemoehybrid\"," SIZES, attention);
    assert_int_equal(c.spec.layers[1].experts.router.num_experts, 8);
    assert_int_equal(c.spec.layers[1].experts.intermediate_size, 96);
    assert_int_equal(c.spec.layers[1].mlp.intermediate_size, 1024);
}

#define MAMBA2 "\"mamba_n_heads\":4,\"mamba_n_groups\":2,\"mamba_d_state\":32"

static void test_mamba2(void **state)
{
    const char *types = "\"layer_types\":[\"mamba\",\"attention\"]," MAMBA2;
    char keys[256];
    struct model_config c = accept(*state, GRANITE4, types);
    const struct recurrent_spec *net = &c.spec.layers[0].recurrent;
    assert_true(c.spec.layers[0].mixer == MIXER_RECURRENT && c.spec.layers[1].mixer == MIXER_ATTENTION);
    assert_true(net->kind == RECURRENCE_SSD && net->num_k_heads == 2 && net->num_v_heads == 4);
    assert_true(net->k_head_size == 32 && net->v_head_size == 32 && net->conv_width == 4 && net->conv_bias);
    assert_true(net->norm_group_size == 128 && net->norm_size == 128 && net->gate_first && !net->in_bias);
    assert_true(net->beta_min == 0 && isinf(net->beta_max));
    snprintf(keys, sizeof keys, "%s,\"time_step_limit\":[0.25,Infinity]", types);
    c = accept(*state, GRANITE4, keys);
    assert_true(net->beta_min == 0.25f && isinf(net->beta_max));
    snprintf(keys, sizeof keys, "%s,\"time_step_limit\":[0.25,2],\"mamba_proj_bias\":true", types);
    c = accept(*state, GRANITE4, keys);
    assert_true(net->beta_max == 2 && net->in_bias && net->o_bias);
    snprintf(keys, sizeof keys, "%s,\"time_step_limit\":[1]", types);
    refuse(*state, GRANITE4, keys, STATUS_INVALID, "time_step_limit must be an array of two numbers");
    snprintf(keys, sizeof keys, "%s,\"mamba_d_head\":16", types);
    refuse(*state, GRANITE4, keys, STATUS_INVALID, "heads of 16 elements are not mamba_expand * hidden_size (128)");
    c = accept(*state, "\"model_type\":\"bamba\"," SIZES,
               "\"num_key_value_heads\":2,\"attn_layer_indices\":[1]," MAMBA2);
    assert_true(c.spec.layers[0].mixer == MIXER_RECURRENT && c.spec.layers[1].attention.rotary_dim == 8);
    refuse(*state, "\"model_type\":\"bamba\"," SIZES, "\"num_key_value_heads\":2," MAMBA2, STATUS_UNSUPPORTED,
           "no layer has attention");
}

#define FALCON_H1                                                                                                      \
    "\"model_type\":\"falcon_h1\"," SIZES ",\"num_key_value_heads\":2,\"mamba_d_ssm\":192,\"mamba_n_heads\":6,"        \
    "\"mamba_n_groups\":2,\"mamba_d_state\":32"

/* Both mixers in each layer, and all multipliers. */
static void test_falcon_h1(void **state)
{
    struct model_config c = accept(*state, FALCON_H1,
                                   "\"key_multiplier\":0.5,\"attention_out_multiplier\":0.25,"
                                   "\"ssm_in_multiplier\":2,\"ssm_out_multiplier\":0.75,"
                                   "\"ssm_multipliers\":[0.5,1,2,3,4],\"mlp_multipliers\":[0.5,4],"
                                   "\"embedding_multiplier\":5,\"lm_head_multiplier\":0.125");
    const struct layer_spec *l = &c.spec.layers[1];
    const struct recurrent_spec *net = &l->recurrent;
    assert_true(l->mixer == MIXER_ATTENTION && l->recurrent_beside && layer_is_recurrent(l));
    assert_true(l->attention.in_multiplier == 1 && l->attention.k_multiplier == 0.5f);
    assert_true(l->attention.out_multiplier == 0.25f && net->out_multiplier == 0.75f);
    assert_true(net->gate_multiplier == 1 && net->v_multiplier == 2 && net->k_multiplier == 4);
    assert_true(net->q_multiplier == 6 && net->a_multiplier == 8);
    assert_true(l->mlp.gate_multiplier == 0.5f && l->mlp.out_multiplier == 4);
    assert_true(c.spec.embedding_multiplier == 5 && c.spec.logits_multiplier == 0.125);
    assert_true(net->v_head_size == 32 && recurrent_v_size(net) == 192 && net->no_norm);
    assert_int_equal(layer_mixer_in_size(l), attention_qkv_size(&l->attention) + recurrent_in_size(net));
    c = accept(*state, FALCON_H1, "\"mamba_rms_norm\":true,\"mamba_norm_before_gate\":false");
    assert_true(!net->no_norm && net->gate_first && net->norm_group_size == 96 && net->norm_size == 192);
    refuse(*state, FALCON_H1, "\"mamba_d_head\":16", STATUS_INVALID,
           "6) heads of 16 elements are not mamba_d_ssm (192)");
    refuse(*state, FALCON_H1, "\"ssm_multipliers\":[1,2]", STATUS_INVALID, "ssm_multipliers must be an array of 5");
    refuse(*state, FALCON_H1, "\"key_multiplier\":0", STATUS_UNSUPPORTED, "a multiplier is 0");
    refuse(*state, FALCON_H1, "\"attention_bias\":true,\"attention_in_multiplier\":2", STATUS_UNSUPPORTED,
           "attention_in_multiplier is 2 beside biases");
    refuse(*state, FALCON_H1, "\"mamba_proj_bias\":true,\"ssm_in_multiplier\":2", STATUS_UNSUPPORTED,
           "ssm_in_multiplier is 2 beside biases");
}

#define OLMO_HYBRID "\"model_type\":\"olmo_hybrid\"," SIZES ",\"linear_key_head_dim\":16"

static void test_olmo_hybrid(void **state)
{
    const char *types = "\"layer_types\":[\"linear_attention\",\"full_attention\"]";
    struct model_config c = accept(*state, OLMO_HYBRID, types);
    const struct layer_spec *first = &c.spec.layers[0], *second = &c.spec.layers[1];
    assert_true(first->mixer == MIXER_RECURRENT && second->mixer == MIXER_ATTENTION);
    assert_true(first->norm_placement == NORM_BEFORE && second->norm_placement == NORM_AFTER);
    assert_true(first->recurrent.v_head_size == 32 && first->recurrent.beta_factor == 2);
    assert_true(second->attention.rotary_dim == 16 && second->attention.qk_norm == QK_NORM_PROJECTION);
    c = accept(*state, OLMO_HYBRID, "\"rope_parameters\":{\"rope_theta\":null,\"rope_type\":\"default\"}");
    assert_true(first->mixer == MIXER_RECURRENT && second->attention.rotary_dim == 0);
    c = accept(*state, OLMO_HYBRID, "\"rope_parameters\":null,\"rope_theta\":null,\"linear_allow_neg_eigval\":false");
    assert_true(second->attention.rotary_dim == 0 && first->recurrent.beta_factor == 1);
}

static bool routes(const struct model_config *c, int32_t layer, int32_t num_experts, int32_t top_k, int32_t size)
{
    const struct experts_spec *e = &c->spec.layers[layer].experts;
    return e->router.num_experts == num_experts && e->router.top_k == top_k && e->intermediate_size == size;
}

#define NEMOTRON_H                                                                                                     \
    "\"model_type\":\"nemotron_h\"," SIZES                                                                             \
    ",\"num_key_value_heads\":2,\"mamba_num_heads\":8,\"mamba_head_dim\":16,\"n_groups\":2"

static void test_nemotron_h(void **state)
{
    struct model_config c = accept(*state, NEMOTRON_H, "\"hybrid_override_pattern\":\"M*\"");
    assert_true(c.spec.layers[0].mixer == MIXER_RECURRENT && c.spec.layers[1].mixer == MIXER_ATTENTION);
    assert_true(c.spec.layers[0].recurrent.norm_group_size == 64 && c.spec.layers[0].recurrent.norm_size == 128);
    assert_true(!layer_has_mlp(&c.spec.layers[0]) && !layer_has_mlp(&c.spec.layers[1]));
    assert_int_equal(c.spec.layers[1].attention.rotary_dim, 0);
    c = accept(*state, NEMOTRON_H, "\"layers_block_type\":[\"full_attention\",\"mlp\"]");
    assert_true(c.spec.layers[1].mixer == MIXER_NONE && c.spec.layers[1].mlp.activation == ACTIVATION_RELU2);
    refuse(*state, NEMOTRON_H, "\"hybrid_override_pattern\":\"M*-\"", STATUS_INVALID,
           "hybrid_override_pattern has 3 letters, but num_hidden_layers is 2");
    refuse(*state, NEMOTRON_H, "\"hybrid_override_pattern\":\"*x\"", STATUS_UNSUPPORTED,
           "hybrid_override_pattern[1] is x; quire computes");
    c = accept(*state, NEMOTRON_H,
               "\"hybrid_override_pattern\":\"*E\",\"n_routed_experts\":16,\"num_experts_per_tok\":3");
    const struct experts_spec *experts = &c.spec.layers[1].experts;
    assert_true(experts->gate.kind == GATE_NONE && experts->gate.activation == ACTIVATION_RELU2);
    assert_true(experts->router.kind == ROUTER_SIGMOID && experts->choice_bias && experts->latent_size == 0);
    assert_true(routes(&c, 1, 16, 3, 7688) && c.spec.layers[1].mlp.intermediate_size == 7688);
    c = accept(*state, NEMOTRON_H,
               "\"hybrid_override_pattern\":\"*E\",\"moe_latent_size\":24,\"moe_intermediate_size\":48,"
               "\"moe_shared_expert_intermediate_size\":32,\"mlp_hidden_act\":\"relu\",\"mlp_bias\":true");
    assert_true(experts->latent_size == 24 && experts->latent_bias && experts->gate.activation == ACTIVATION_RELU);
    assert_true(c.spec.layers[1].mlp.intermediate_size == 32 && c.spec.layers[1].mlp.bias && !experts->bias);
    refuse(*state, NEMOTRON_H, "\"hybrid_override_pattern\":\"*E\",\"n_shared_experts\":2", STATUS_UNSUPPORTED,
           "n_shared_experts is 2; in this family quire computes one");
}

#define LFM2 "\"model_type\":\"lfm2\"," SIZES ",\"num_key_value_heads\":2"

static void test_lfm2(void **state)
{
    const char *types = "\"layer_types\":[\"conv\",\"full_attention\"]";
    struct model_config c = accept(*state, LFM2, "\"full_attn_idxs\":[1],\"conv_L_cache\":4,\"conv_bias\":true");
    assert_true(c.spec.layers[0].mixer == MIXER_CONV && c.spec.layers[1].mixer == MIXER_ATTENTION);
    assert_true(c.spec.layers[0].conv.width == 4 && c.spec.layers[0].conv.bias && c.spec.tie_word_embeddings);
    assert_int_equal(c.spec.layers[0].mlp.intermediate_size, 256); /* 2 / 3 of 96, in multiples of 256 */
    c = accept(*state, LFM2, "\"layer_types\":[\"conv\",\"full_attention\"],\"block_auto_adjust_ff_dim\":false");
    assert_int_equal(c.spec.layers[1].mlp.intermediate_size, 96);
    refuse(*state, LFM2, "\"layer_types\":[\"conv\",\"mamba\"]", STATUS_UNSUPPORTED, "layer_types[1] is \"mamba\"");
    c = accept(*state, "\"model_type\":\"lfm2_moe\"," SIZES ",\"num_key_value_heads\":2,\"num_dense_layers\":1", types);
    assert_int_equal(c.spec.layers[0].experts.router.num_experts, 0);
    assert_true(c.spec.layers[1].experts.router.num_experts == 32 && c.spec.layers[1].experts.choice_bias);
    assert_int_equal(c.spec.layers[1].mlp.intermediate_size, 0);
}

/* --- Mixtures of experts --- */

#define QWEN3_MOE "\"model_type\":\"qwen3_moe\"," SIZES ",\"moe_intermediate_size\":24"
#define QWEN2_MOE "\"model_type\":\"qwen2_moe\"," SIZES ",\"num_key_value_heads\":2"

static void test_qwen_experts(void **state)
{
    struct model_config c = accept(*state, QWEN3_MOE, "\"num_key_value_heads\":2");
    assert_true(routes(&c, 0, 128, 8, 24) && routes(&c, 1, 128, 8, 24));
    assert_int_equal(c.spec.layers[0].mlp.intermediate_size, 0);
    assert_false(c.spec.layers[0].experts.router.normalize || c.spec.layers[0].experts.shared_gate);
    assert_true(c.spec.layers[0].experts.router.kind == ROUTER_SOFTMAX && c.spec.layers[0].experts.router.scaling == 1);
    c = accept(*state, QWEN3_MOE,
               "\"num_local_experts\":6,\"num_experts_per_tok\":2,\"norm_topk_prob\":true,\"mlp_only_layers\":[0]");
    assert_true(routes(&c, 0, 0, 0, 0) && routes(&c, 1, 6, 2, 24));
    assert_int_equal(c.spec.layers[0].mlp.intermediate_size, 96);
    assert_true(c.spec.layers[1].experts.router.normalize);
    c = accept(*state, QWEN3_MOE, "\"decoder_sparse_step\":2,\"use_sliding_window\":true,\"sliding_window\":9");
    assert_true(routes(&c, 0, 0, 0, 0) && routes(&c, 1, 128, 8, 24));
    assert_true(c.spec.layers[0].attention.window == 9 && c.spec.layers[1].attention.window == 9);
    refuse(*state, QWEN3_MOE, "\"mlp_only_layers\":0", STATUS_INVALID,
           "mlp_only_layers must be an array of numbers of");
    refuse(*state, QWEN3_MOE, "\"num_experts\":4", STATUS_INVALID,
           "num_experts_per_tok (8) is larger than num_experts");
    refuse(*state, QWEN3_MOE, "\"num_experts\":4096", STATUS_INVALID, "num_experts");

    c = accept(*state, QWEN2_MOE, "\"use_sliding_window\":true,\"max_window_layers\":1");
    assert_true(routes(&c, 1, 60, 4, 1408) && c.spec.layers[1].mlp.intermediate_size == 5632);
    assert_true(c.spec.layers[1].experts.shared_gate && c.spec.layers[1].attention.qkv_bias);
    assert_true(c.spec.layers[0].attention.window == 4096 && c.spec.layers[1].attention.window == 0);
    assert_string_equal(c.spec.names.shared, "mlp.shared_expert");
}

static void test_experts(void **state)
{
    struct model_config c = accept(*state, "\"model_type\":\"mixtral\"," SIZES, "\"num_key_value_heads\":2");
    assert_true(routes(&c, 0, 8, 2, 96) && c.spec.layers[0].mlp.intermediate_size == 0);
    assert_true(c.spec.layers[0].experts.router.normalize && c.spec.ropes[0].theta == 1e6 && c.spec.norm_eps == 1e-5);
    assert_string_equal(c.spec.names.expert_up, "w3");
    c = accept(*state, "\"model_type\":\"olmoe\"," SIZES, "\"num_experts\":16,\"clip_qkv\":null");
    assert_true(routes(&c, 1, 16, 8, 96) && c.spec.layers[1].attention.qk_norm == QK_NORM_PROJECTION);
    assert_false(c.spec.layers[1].experts.router.normalize);
    refuse(*state, "\"model_type\":\"olmoe\"," SIZES, "\"clip_qkv\":8", STATUS_UNSUPPORTED, "clip_qkv is 8");
    c = accept(*state, "\"model_type\":\"granitemoe\"," SIZES, "\"shared_intermediate_size\":40");
    assert_true(routes(&c, 0, 8, 2, 96) && c.spec.layers[0].mlp.intermediate_size == 0);
    assert_true(c.spec.layers[0].experts.router.normalize && c.spec.names.experts == NULL);
    c = accept(*state, "\"model_type\":\"granitemoeshared\"," SIZES, "\"shared_intermediate_size\":40");
    assert_true(routes(&c, 0, 8, 2, 96) && c.spec.layers[0].mlp.intermediate_size == 40);
}

/* gpt-oss as transformers builds it from sizes alone: windows of 128 in every second layer, yarn as published. */
static void test_gpt_oss(void **state)
{
    const char *base = "\"model_type\":\"gpt_oss\"," SIZES ",\"num_key_value_heads\":2";
    struct model_config c = accept(*state, base, "");
    const struct layer_spec *l = c.spec.layers;
    assert_true(routes(&c, 0, 128, 4, 96) && l[0].mlp.intermediate_size == 0);
    assert_true(l[0].attention.window == 128 && l[1].attention.window == 0);
    assert_true(l[1].attention.sinks && l[1].attention.qkv_bias && l[1].attention.o_bias);
    assert_int_equal(l[0].attention.head_size, 64);
    assert_true(l[0].experts.bias && l[0].experts.router_bias && l[0].experts.router.normalize);
    assert_true(l[0].experts.gate.kind == GATE_SWIGLU_OAI && l[0].experts.gate.limit == 7);
    const struct rope_config *rope = &c.spec.ropes[0];
    assert_true(rope->type == ROPE_YARN && rope->theta == 150000 && rope->factor == 32 && !rope->truncate);
    assert_int_equal(model_spec_max_length(&c.spec), 131072);
    assert_true(c.spec.dtype == DTYPE_BFLOAT16 && c.spec.num_schemes == 1);
    c = accept(*state, base,
               "\"dtype\":\"float16\",\"swiglu_limit\":7.0,\"quantization_config\":{\"quant_method\":\"mxfp4\","
               "\"modules_to_not_convert\":[\"model.layers.*.self_attn\",\"model.layers.*.mlp.router\","
               "\"model.embed_tokens\",\"lm_head\"]}");
    assert_true(c.spec.dtype == DTYPE_FLOAT16 && c.spec.num_schemes == 2);
    assert_int_equal(c.spec.schemes[1].storage, STORED_MXFP4_BLOCKS);
    for (int i = 0; i < NUM_TENSOR_ROLES; i++)
        assert_int_equal(c.spec.layers[1].schemes[i],
                         i == TENSOR_EXPERT_GATE || i == TENSOR_EXPERT_UP || i == TENSOR_EXPERT_DOWN);
    c = accept(*state, base,
               "\"num_local_experts\":32,\"attention_bias\":false,\"sliding_window\":24,"
               "\"layer_types\":[\"full_attention\",\"sliding_attention\"]");
    assert_true(routes(&c, 1, 32, 4, 96) && !c.spec.layers[0].attention.qkv_bias);
    assert_true(c.spec.layers[0].attention.window == 0 && c.spec.layers[1].attention.window == 24);
    refuse(*state, base, "\"sliding_window\":null", STATUS_INVALID, "sliding_window is null, but this model has");
}

static void test_afmoe(void **state)
{
    const char *base = "\"model_type\":\"afmoe\"," SIZES ",\"num_key_value_heads\":2";
    struct model_config c = accept(*state, base, "\"global_attn_every_n_layers\":2,\"mup_enabled\":true");
    const struct layer_spec *l = c.spec.layers;
    assert_true(routes(&c, 0, 0, 0, 0) && routes(&c, 1, 64, 6, 1408));
    assert_true(l[0].mlp.intermediate_size == 96 && l[1].mlp.intermediate_size == 2 * 1408);
    assert_true(l[1].experts.router.kind == ROUTER_SIGMOID && l[1].experts.choice_bias);
    assert_true(l[0].attention.window == 1024 && l[0].attention.rotary_dim == 128);
    assert_true(l[1].attention.window == 0 && l[1].attention.rotary_dim == 0);
    assert_true(l[0].attention.output_gate == OUTPUT_GATE_SIGMOID && !l[0].attention.head_gates);
    assert_true(fabs(c.spec.embedding_multiplier - sqrt(c.spec.hidden_size)) < 1e-12);
    c = accept(*state, base, "\"num_dense_layers\":0,\"route_scale\":2.5,\"num_shared_experts\":1");
    assert_true(routes(&c, 0, 64, 6, 1408) && c.spec.layers[0].experts.router.scaling == 2.5f);
    assert_true(c.spec.layers[0].mlp.intermediate_size == 1408 && c.spec.embedding_multiplier == 1);
}

/* Granite with windows: a theta for each layer, 0 for none. */
static void test_layer_rope_theta(void **state)
{
    const char *base = "\"model_type\":\"granite_swa\"," SIZES ",\"num_key_value_heads\":2";
    struct model_config c = accept(*state, base, "\"rope_theta\":700");
    assert_true(c.spec.num_ropes == 1 && c.spec.ropes[0].theta == 700 && c.spec.layers[0].attention.sinks);
    assert_true(c.spec.layers[0].attention.window == 0 && c.spec.layers[1].attention.window == 128);
    c = accept(*state, base, "\"layer_rope_theta\":[0,500]");
    assert_true(c.spec.num_ropes == 1 && c.spec.ropes[0].theta == 500);
    assert_true(c.spec.layers[0].attention.rotary_dim == 0 && c.spec.layers[1].attention.rotary_dim > 0);
    c = accept(*state, base, "\"layer_rope_theta\":[9000,500.5]");
    assert_true(c.spec.num_ropes == 2 && c.spec.ropes[0].theta == 9000 && c.spec.ropes[1].theta == 500.5);
    assert_true(c.spec.layers[0].attention.rope == 0 && c.spec.layers[1].attention.rope == 1);
    refuse(*state, base, "\"layer_rope_theta\":[500]", STATUS_INVALID, "layer_rope_theta must be an array of num_hid");
    refuse(*state, base, "\"layer_rope_theta\":[500,-1]", STATUS_INVALID, "an element of layer_rope_theta must be");
    refuse(*state,
           "\"model_type\":\"granite_swa\",\"hidden_size\":64,\"intermediate_size\":96,"
           "\"num_hidden_layers\":3,\"num_attention_heads\":4,\"vocab_size\":320",
           "\"layer_rope_theta\":[500,600,700]", STATUS_UNSUPPORTED,
           "layer_rope_theta has more than 2 numbers beside 0, in layer 2");
    refuse(*state, LLAMA, "\"layer_rope_theta\":[500,500]", STATUS_UNSUPPORTED, "layer_rope_theta is");
}

#define GLM4_MOE "\"model_type\":\"glm4_moe\"," SIZES ",\"num_key_value_heads\":2"
#define EXAONE_MOE "\"model_type\":\"exaone_moe\"," SIZES ",\"num_key_value_heads\":2"
#define MINIMAX_M2 "\"model_type\":\"minimax_m2\"," SIZES ",\"num_key_value_heads\":2"

/* DeepSeek V3's router: sigmoids, groups by the sum of two, a bias for the choice. */
static void test_deepseek_routers(void **state)
{
    struct model_config c = accept(*state, GLM4_MOE, "\"n_routed_experts\":64,\"n_group\":8,\"topk_group\":3");
    const struct router_params *router = &c.spec.layers[1].experts.router;
    assert_true(routes(&c, 0, 0, 0, 0) && routes(&c, 1, 64, 8, 1408));
    assert_true(router->kind == ROUTER_SIGMOID && router->group_sums && router->normalize && router->scaling == 1);
    assert_true(router->num_groups == 8 && router->top_groups == 3 && c.spec.layers[1].experts.choice_bias);
    assert_true(c.spec.layers[0].mlp.intermediate_size == 96 && c.spec.layers[1].mlp.intermediate_size == 1408);
    assert_true(c.spec.layers[0].attention.rotary_dim == 8 && c.spec.layers[0].attention.qk_norm == QK_NORM_NONE);
    assert_string_equal(c.spec.names.shared, "mlp.shared_experts");
    c = accept(*state, GLM4_MOE, "\"use_qk_norm\":true,\"attention_bias\":true,\"first_k_dense_replace\":0");
    assert_true(routes(&c, 0, 128, 8, 1408) && c.spec.layers[0].attention.qk_norm == QK_NORM_HEAD);
    assert_true(c.spec.layers[0].attention.qkv_bias && !c.spec.layers[0].attention.o_bias);
    c = accept(*state, "\"model_type\":\"glm4v_moe_text\"," SIZES, "\"num_key_value_heads\":2");
    assert_true(routes(&c, 1, 128, 8, 1408) && c.spec.layers[1].attention.qkv_bias &&
                !c.spec.layers[1].attention.o_bias);
    assert_true(c.spec.max_position_embeddings == 65536 && c.spec.layers[0].attention.rotary_dim == 8);
    refuse(*state, GLM4_MOE, "\"n_group\":5", STATUS_INVALID, "128 experts cannot be divided into n_group (5) groups");
    refuse(*state, GLM4_MOE, "\"topk_group\":2", STATUS_INVALID, "topk_group");

    c = accept(*state, "\"model_type\":\"dots1\"," SIZES, "\"num_key_value_heads\":2,\"max_window_layers\":1");
    assert_true(routes(&c, 0, 128, 6, 1408) && c.spec.layers[0].mlp.intermediate_size == 0);
    assert_true(c.spec.layers[0].attention.window == 0 && c.spec.layers[1].attention.window == 4096);
    assert_false(c.spec.layers[0].experts.router.normalize);
    c = accept(*state, "\"model_type\":\"solar_open\"," SIZES, "\"num_key_value_heads\":2");
    assert_true(routes(&c, 0, 128, 8, 1280) && c.spec.layers[0].mlp.intermediate_size == 1280);
    assert_true(c.spec.ropes[0].theta == 1e6 && c.spec.layers[0].attention.head_size == 128);
}

#define DEEPSEEK_V2 "\"model_type\":\"deepseek_v2\"," SIZES ",\"num_experts_per_tok\":6"
#define DEEPSEEK_V3 "\"model_type\":\"deepseek_v3\"," SIZES
#define YARN_SCALING "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,\"original_max_position_embeddings\":64"

static struct model_config accept_mtp(const struct temp_folder *folder, const char *base, const char *extra)
{
    struct model_config config;
    struct error err = {""};
    accept(folder, base, extra);
    const enum status status = model_config_load_mtp(folder->path, NULL, &config, &err);
    if (status != STATUS_OK) print_error("%s\n", err.text);
    assert_int_equal(status, STATUS_OK);
    assert_true(config.spec.head.kind == HEAD_MTP && config.spec.num_layers == 1 && config.spec.num_next_layers == 0);
    return config;
}

static bool is_latent(const struct layer_spec *l, int32_t q_rank, int32_t rank, int32_t nope, int32_t rope,
                      int32_t v_head_size)
{
    const struct latent_spec *a = &l->latent;
    return l->mixer == MIXER_LATENT && a->num_heads == 4 && a->q_rank == q_rank && a->rank == rank && a->nope == nope &&
           a->rope == rope && a->v_head_size == v_head_size && a->norm_eps == 1e-6 && l->attention.num_heads == 0;
}

static void test_deepseek_v2(void **state)
{
    struct model_config c = accept(*state, DEEPSEEK_V2, "\"q_lora_rank\":null,\"first_k_dense_replace\":1");
    const struct layer_spec *l = c.spec.layers;
    assert_true(is_latent(&l[0], 0, 512, 128, 64, 128) && c.spec.rope_interleaved && !l[0].latent.bias);
    assert_true(routes(&c, 0, 0, 0, 0) && routes(&c, 1, 64, 6, 1407) && l[1].mlp.intermediate_size == 2 * 1407);
    assert_true(l[1].experts.router.kind == ROUTER_SOFTMAX && !l[1].experts.router.normalize);
    assert_true(l[1].experts.router.num_groups == 0 && !l[1].experts.choice_bias && rope_rotary_dim(&c.spec, 0) == 64);
    assert_float_equal(l[0].latent.scale, 1 / sqrt(192), 1e-8);
    c = accept(*state, DEEPSEEK_V2,
               "\"topk_method\":\"group_limited_greedy\",\"n_group\":8,\"topk_group\":3,\"routed_scaling_factor\":16,"
               "\"qk_nope_head_dim\":32," YARN_SCALING ",\"mscale\":0.707,\"mscale_all_dim\":0.707}");
    assert_true(is_latent(&l[0], 1536, 512, 32, 64, 128) && l[0].experts.router.scaling == 16);
    assert_true(l[0].experts.router.num_groups == 8 && l[0].experts.router.top_groups == 3);
    assert_false(l[0].experts.router.group_sums);
    const double mscale = 0.1 * 0.707 * log(40) + 1;
    assert_float_equal(l[0].latent.scale, mscale * mscale / sqrt(96), 1e-6);
    refuse(*state, DEEPSEEK_V2, "\"topk_method\":\"noaux_tc\"", STATUS_UNSUPPORTED, "topk_method is \"noaux_tc\"");
    refuse(*state, DEEPSEEK_V2, "\"norm_topk_prob\":true", STATUS_UNSUPPORTED, "normalized weights of experts");
    refuse(*state, DEEPSEEK_V2, "\"moe_layer_freq\":2", STATUS_UNSUPPORTED, "moe_layer_freq is not 1");
    refuse(*state, DEEPSEEK_V2, "\"kv_lora_rank\":40", STATUS_UNSUPPORTED, "kv_lora_rank is 40; quire computes");
    refuse(*state, DEEPSEEK_V2, "\"q_lora_rank\":null,\"attention_bias\":true", STATUS_UNSUPPORTED,
           "biases of latent attention only with q_lora_rank");
}

static void test_deepseek_v3(void **state)
{
    struct model_config c = accept(*state, DEEPSEEK_V3, "\"first_k_dense_replace\":1");
    const struct layer_spec *l = c.spec.layers;
    const struct router_params *router = &l[1].experts.router;
    assert_true(is_latent(&l[1], 1536, 512, 128, 64, 128) && c.spec.rope_interleaved);
    assert_true(routes(&c, 0, 0, 0, 0) && routes(&c, 1, 256, 8, 2048) && l[1].mlp.intermediate_size == 2048);
    assert_true(router->kind == ROUTER_SIGMOID && router->group_sums && router->normalize && router->scaling == 2.5f);
    assert_true(router->num_groups == 8 && router->top_groups == 4 && l[1].experts.choice_bias);
    c = accept(*state, "\"model_type\":\"kimi_k2\"," SIZES,
               "\"architectures\":[\"DeepseekV3ForCausalLM\"],\"n_group\":1,\"topk_group\":1,\"attention_bias\":true,"
               "\"rope_interleave\":false,\"first_k_dense_replace\":0");
    assert_true(l[0].latent.bias && !c.spec.rope_interleaved && l[0].experts.router.num_groups == 1);
    refuse(*state, DEEPSEEK_V3, "\"scoring_func\":\"softmax\"", STATUS_UNSUPPORTED, "scoring_func is \"softmax\"");
    c = accept_mtp(*state, DEEPSEEK_V3, "\"first_k_dense_replace\":1,\"num_nextn_predict_layers\":1");
    assert_true(c.spec.head.kind == HEAD_MTP && is_latent(&l[0], 1536, 512, 128, 64, 128) && c.spec.num_layers == 1);
}

static void test_latent_families(void **state)
{
    struct model_config c = accept(*state, "\"model_type\":\"glm4_moe_lite\"," SIZES, "\"num_nextn_predict_layers\":1");
    const struct layer_spec *l = c.spec.layers;
    assert_true(is_latent(&l[0], 768, 512, 192, 64, 256) && c.spec.rope_interleaved && c.spec.norm_eps == 1e-5);
    assert_true(routes(&c, 0, 0, 0, 0) && routes(&c, 1, 64, 4, 1536) && l[1].experts.router.scaling == 1.8f);
    assert_string_equal(c.spec.names.shared, "mlp.shared_experts");
    c = accept(*state, "\"model_type\":\"minicpm3\"," SIZES, "\"scale_emb\":3,\"dim_model_base\":32");
    assert_true(is_latent(&l[0], 768, 256, 64, 32, 16) && !c.spec.rope_interleaved && c.spec.tie_word_embeddings);
    assert_true(c.spec.embedding_multiplier == 3 && c.spec.logits_multiplier == 0.5);
    assert_float_equal(l[1].residual_multiplier, 1.4 / sqrt(2), 1e-6);
    c = accept(*state, "\"model_type\":\"minicpm3\"," SIZES, "\"scale_depth\":null,\"dim_model_base\":null");
    assert_true(c.spec.logits_multiplier == 1 && l[1].residual_multiplier == 1);
    c = accept(*state, "\"model_type\":\"youtu\"," SIZES, "\"q_lora_rank\":96");
    assert_true(is_latent(&l[0], 96, 512, 128, 64, 128) && l[0].experts.router.num_experts == 0);
    c = accept(*state, "\"model_type\":\"mistral4\"," SIZES, "\"n_shared_experts\":2");
    assert_true(is_latent(&l[0], 1024, 256, 64, 64, 128) && l[0].latent.query_scaling.length == 8192);
    assert_true(routes(&c, 0, 128, 4, 2048) && l[0].experts.router.kind == ROUTER_SOFTMAX);
    assert_true(l[0].experts.router.normalize && !l[0].experts.choice_bias && l[0].mlp.intermediate_size == 4096);
    refuse(*state, "\"model_type\":\"mistral4\"," SIZES,
           "\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":8,\"llama_4_scaling_beta\":0.1,"
           "\"partial_rotary_factor\":0.25}",
           STATUS_INVALID, "but qk_rope_head_dim is 64 of the 128 elements of a head");
}

#define KIMI_LINEAR "\"model_type\":\"kimi_linear\"," SIZES

static void test_kimi_linear(void **state)
{
    const char *published = "\"linear_attn_config\":{\"full_attn_layers\":[2],\"kda_layers\":[1],\"head_dim\":64,"
                            "\"num_heads\":8,\"short_conv_kernel_size\":3},\"num_experts\":64,"
                            "\"num_experts_per_token\":6,\"num_expert_group\":2,\"moe_renormalize\":false,"
                            "\"num_shared_experts\":2,\"model_max_length\":5000,\"mla_use_nope\":true";
    struct model_config c = accept(*state, KIMI_LINEAR, published);
    const struct layer_spec *l = c.spec.layers;
    const struct recurrent_spec *net = &l[0].recurrent;
    assert_true(l[0].mixer == MIXER_RECURRENT && net->kind == RECURRENCE_DELTA_CHANNELS && net->conv_apart);
    assert_true(net->num_k_heads == 8 && net->num_v_heads == 8 && net->k_head_size == 64 && net->v_head_size == 64);
    assert_true(net->rank == 64 && net->conv_width == 3 && net->sigmoid_gate && net->norm_qk && !net->round_norm);
    assert_true(is_latent(&l[1], 0, 512, 128, 64, 128) && l[1].latent.no_rotation && rope_rotary_dim(&c.spec, 0) == 0);
    assert_true(routes(&c, 0, 0, 0, 0) && routes(&c, 1, 64, 6, 1024) && l[1].mlp.intermediate_size == 2048);
    assert_true(l[1].experts.router.num_groups == 2 && l[1].experts.router.top_groups == 1);
    assert_true(!l[1].experts.router.normalize && l[1].experts.router.scaling == 2.446f);
    assert_true(c.spec.max_position_embeddings == 5000 && c.spec.norm_eps == 1e-5);
    c = accept(*state, KIMI_LINEAR,
               "\"layer_types\":[\"full_attention\",\"linear_attention\"],\"linear_num_heads\":2,"
               "\"mlp_layer_types\":[\"sparse\",\"dense\"]");
    assert_true(l[0].mixer == MIXER_LATENT && l[1].recurrent.num_k_heads == 2 && l[1].recurrent.k_head_size == 128);
    assert_true(routes(&c, 0, 256, 8, 1024) && routes(&c, 1, 0, 0, 0));
    refuse(*state, KIMI_LINEAR, "\"mla_use_nope\":false", STATUS_UNSUPPORTED, "does not compute rotated keys");
    refuse(*state, KIMI_LINEAR, "\"moe_router_activation_func\":\"softmax\"", STATUS_UNSUPPORTED,
           "moe_router_activation_func is \"softmax\"");
    refuse(*state, KIMI_LINEAR, "\"moe_layer_freq\":2", STATUS_UNSUPPORTED, "moe_layer_freq is not 1");
    refuse(*state, KIMI_LINEAR, "\"linear_attn_config\":{\"head_dim\":40}", STATUS_UNSUPPORTED, "40 elements of keys");
    refuse(*state, KIMI_LINEAR, "\"linear_attn_config\":7", STATUS_INVALID, "linear_attn_config must be an object");
    refuse(*state, KIMI_LINEAR, "\"linear_attn_config\":{\"kda_layers\":[1,2]}", STATUS_UNSUPPORTED,
           "no layer has attention");
}

#define MINIMAX_M1 "\"model_type\":\"minimax_m1\"," SIZES ",\"num_key_value_heads\":2"

static void test_minimax(void **state)
{
    struct model_config c =
        accept(*state, MINIMAX_M1,
               "\"attn_type_list\":[0,1],\"postnorm\":true,\"layernorm_full_attention_alpha\":3.5,"
               "\"layernorm_full_attention_beta\":1,\"layernorm_linear_attention_alpha\":2,\"layernorm_mlp_alpha\":4,"
               "\"layernorm_mlp_beta\":2,\"rotary_dim\":8,\"shared_intermediate_size\":[0]");
    const struct layer_spec *l = c.spec.layers;
    const struct recurrent_spec *net = &l[0].recurrent;
    assert_true(l[0].mixer == MIXER_RECURRENT && net->kind == RECURRENCE_FIXED && net->num_v_heads == 4);
    assert_true(net->k_head_size == 16 && net->norm_group_size == 64 && net->conv_width == 1 && net->scale == 1);
    assert_float_equal(recurrent_slope(net, 1), (1 + 1e-5) / 16, 1e-9); /* 2^(-8 * 2 / 4) */
    assert_true(l[1].attention.num_kv_heads == 2 && l[1].attention.rotary_dim == 8);
    assert_true(l[0].norm_placement == NORM_STREAM && l[0].mixer_scaling.sum == 2 && l[0].mixer_scaling.output == 0.5f);
    assert_true(l[1].mixer_scaling.sum == 3.5f && l[1].mlp_scaling.sum == 4 && l[1].mlp_scaling.output == 0.5f);
    assert_true(routes(&c, 0, 8, 2, 96) && l[0].experts.router.normalize && l[0].mlp.intermediate_size == 0);
    c = accept(*state, "\"model_type\":\"minimax\"," SIZES,
               "\"num_key_value_heads\":2,\"layer_types\":[\"full_attention\",\"linear_attention\"],"
               "\"linear_attn_beta_factor\":3");
    assert_true(l[0].attention.rotary_dim == 16 && l[1].recurrent.slope_factor < 2e-5f);
    assert_true(l[1].mixer_scaling.output == 3 && l[1].mixer_scaling.sum == 1);
    c = accept(*state, "\"model_type\":\"minimax_text_01\"," SIZES, "\"num_key_value_heads\":2");
    assert_true(l[0].mixer == MIXER_ATTENTION && l[1].mixer == MIXER_RECURRENT);
    refuse(*state, MINIMAX_M1, "\"postnorm\":false", STATUS_UNSUPPORTED, "a residual stream that is not normed");
    refuse(*state, MINIMAX_M1, "\"shared_intermediate_size\":[0,8]", STATUS_UNSUPPORTED,
           "shared_intermediate_size is not 0");
    refuse(*state, MINIMAX_M1, "\"attn_type_list\":[0,2]", STATUS_INVALID, "an element of attn_type_list");
    refuse(*state, MINIMAX_M1, "\"attn_type_list\":[0]", STATUS_INVALID, "attn_type_list must be an array");
}

static void test_exaone_moe(void **state)
{
    struct model_config c = accept(*state, EXAONE_MOE, "\"sliding_window\":9,\"sliding_window_pattern\":2");
    assert_true(routes(&c, 0, 0, 0, 0) && routes(&c, 1, 64, 8, 1024));
    assert_true(c.spec.layers[1].experts.router.scaling == 2.5f && c.spec.layers[1].mlp.intermediate_size == 1024);
    assert_true(c.spec.layers[0].norm_placement == NORM_BEFORE && c.spec.layers[0].attention.qk_norm == QK_NORM_HEAD);
    assert_true(c.spec.layers[0].attention.window == 9 && c.spec.layers[0].attention.rotary_dim == 16);
    assert_true(c.spec.layers[1].attention.window == 0 && c.spec.layers[1].attention.rotary_dim == 0);
    assert_string_equal(c.spec.names.choice_bias, "mlp.e_score_correction_bias");
    c = accept(*state, EXAONE_MOE, "\"mlp_layer_types\":[\"sparse\",\"dense\"]");
    assert_true(routes(&c, 0, 64, 8, 1024) && routes(&c, 1, 0, 0, 0));
    refuse(*state, EXAONE_MOE, "\"mlp_layer_types\":[\"sparse\"]", STATUS_INVALID,
           "mlp_layer_types must be an array of num_hidden_layers (2) strings");
    refuse(*state, EXAONE_MOE, "\"mlp_layer_types\":[\"sparse\",\"wide\"]", STATUS_INVALID,
           "an element of mlp_layer_types must be \"dense\" or \"sparse\"");
}

static void test_dbrx(void **state)
{
    const char *base = "\"model_type\":\"dbrx\",\"d_model\":64,\"n_layers\":2,\"n_heads\":4,\"vocab_size\":320";
    struct model_config c = accept(*state, base, "\"max_seq_len\":500");
    const struct layer_spec *l = c.spec.layers;
    assert_true(routes(&c, 0, 4, 1, 3584) && l[0].mlp.intermediate_size == 0 && l[0].experts.router.normalize);
    assert_true(l[0].attention.num_kv_heads == 1 && l[0].attention.clip == 0 && c.spec.ropes[0].theta == 10000);
    assert_true(c.spec.norm_type == NORM_LAYER && c.spec.norm_eps == 1e-5 && c.spec.max_position_embeddings == 500);
    c = accept(*state, base,
               "\"attn_config\":{\"clip_qkv\":8,\"kv_n_heads\":2,\"rope_theta\":500000},\"ffn_config\":{"
               "\"ffn_hidden_size\":96,\"moe_num_experts\":16,\"moe_top_k\":4,\"moe_normalize_expert_weights\":null}");
    assert_true(routes(&c, 1, 16, 4, 96) && !l[1].experts.router.normalize && l[1].attention.clip == 8);
    assert_true(l[1].attention.num_kv_heads == 2 && c.spec.ropes[0].theta == 500000);
    c = accept(*state, base, "\"attn_config\":{\"rope_theta\":500000},\"rope_parameters\":{\"rope_theta\":700}");
    assert_true(c.spec.ropes[0].theta == 700);
    refuse(*state, base, "\"attn_config\":{\"kv_n_heads\":3}", STATUS_INVALID, "n_heads (4) is not a multiple of");
    refuse(*state, base, "\"attn_config\":8", STATUS_INVALID, ": attn_config must be an object");
    refuse(*state, base, "\"ffn_config\":{\"moe_normalize_expert_weights\":2}", STATUS_UNSUPPORTED,
           "ffn_config.moe_normalize_expert_weights is 2, but quire computes 1 or null");
    refuse(*state, base, "\"ffn_config\":{\"ffn_act_fn\":{\"name\":\"gelu\"}}", STATUS_UNSUPPORTED,
           "ffn_config.ffn_act_fn names \"gelu\"; quire computes \"silu\"");
}

static void test_granitemoe_swa(void **state)
{
    const char *base = "\"model_type\":\"granitemoe_swa\"," SIZES;
    struct model_config c = accept(*state, base, "\"sliding_window\":9,\"layer_rope_theta\":[0,500]");
    assert_true(routes(&c, 0, 8, 2, 96) && c.spec.layers[0].mlp.intermediate_size == 0);
    assert_true(c.spec.layers[0].attention.sinks && c.spec.layers[0].attention.num_kv_heads == 4);
    assert_true(c.spec.layers[0].attention.window == 0 && c.spec.layers[1].attention.window == 9);
    assert_true(c.spec.layers[0].attention.scale == 1 && c.spec.layers[0].attention.rotary_dim == 0);
    c = accept(*state, base, "\"shared_intermediate_size\":24,\"layer_types\":[\"full_attention\",\"full_attention\"]");
    assert_true(c.spec.layers[1].mlp.intermediate_size == 24 && c.spec.layers[1].attention.window == 0);
    refuse(*state, base, "\"mlp_bias\":true", STATUS_UNSUPPORTED, "mlp_bias is true");
}

static void test_hy_v3(void **state)
{
    const char *base = "\"model_type\":\"hy_v3\"," SIZES ",\"num_key_value_heads\":2";
    struct model_config c = accept(*state, base, "\"qk_norm\":true");
    const struct layer_spec *l = c.spec.layers;
    assert_true(routes(&c, 0, 0, 0, 0) && routes(&c, 1, 192, 8, 1536) && l[1].mlp.intermediate_size == 1536);
    assert_true(l[1].experts.router.kind == ROUTER_SIGMOID && l[1].experts.router.normalize);
    assert_true(l[1].experts.choice_bias && l[1].experts.router.scaling == 2.826f);
    assert_true(l[0].attention.qk_norm == QK_NORM_HEAD && l[0].attention.head_size == 128);
    assert_true(c.spec.ropes[0].theta == 11158840 && c.spec.norm_eps == 1e-5);
    c = accept(*state, base, "\"mlp_layer_types\":[\"sparse\",\"dense\"],\"mlp_bias\":true,\"num_local_experts\":16");
    assert_true(routes(&c, 0, 16, 8, 1536) && routes(&c, 1, 0, 0, 0) && l[0].mlp.bias);
    refuse(*state, base, "\"mlp_layer_types\":[\"dense\"]", STATUS_INVALID, "mlp_layer_types must be an array");
}

static void test_mellum(void **state)
{
    const char *base = "\"model_type\":\"mellum\",\"hidden_size\":64,\"num_hidden_layers\":2,"
                       "\"num_attention_heads\":4,\"vocab_size\":320";
    struct model_config c = accept(*state, base, "\"mlp_layer_types\":[\"sparse\",\"dense\"]");
    const struct layer_spec *l = c.spec.layers;
    assert_true(routes(&c, 0, 64, 8, 896) && routes(&c, 1, 0, 0, 0) && l[0].experts.router.normalize);
    assert_true(l[0].mlp.intermediate_size == 0 && l[1].mlp.intermediate_size == 7168);
    assert_true(l[0].attention.window == 0 && l[0].attention.rope == 0 && c.spec.ropes[0].theta == 500000);
    c = accept(*state, base,
               "\"layer_types\":[\"full_attention\",\"sliding_attention\"],\"rope_parameters\":{\"sliding_attention\":"
               "{\"rope_type\":\"default\",\"rope_theta\":700}}");
    assert_true(l[1].attention.window == 1024 && l[1].attention.rope == 1 && c.spec.ropes[1].theta == 700);
    refuse(*state, base, "\"rope_parameters\":{\"rope_theta\":5}", STATUS_UNSUPPORTED,
           "rope_parameters.rope_theta is set, but mellum models have the objects full_attention");
}

static void test_laguna(void **state)
{
    const char *base = "\"model_type\":\"laguna\"," SIZES ",\"num_key_value_heads\":2";
    struct model_config c = accept(*state, base, "\"layer_types\":[\"full_attention\",\"sliding_attention\"]");
    const struct layer_spec *l = c.spec.layers;
    assert_true(routes(&c, 0, 0, 0, 0) && routes(&c, 1, 256, 8, 512) && l[1].mlp.intermediate_size == 512);
    assert_true(l[1].experts.router.kind == ROUTER_SIGMOID && l[1].experts.choice_bias);
    assert_true(l[0].attention.output_gate == OUTPUT_GATE_SOFTPLUS && l[0].attention.head_gates);
    assert_true(l[0].attention.rotary_dim == 64 && l[1].attention.rotary_dim == 128 && l[1].attention.window == 512);
    c = accept(*state, base,
               "\"num_attention_heads_per_layer\":[6,8],\"gating\":\"per-element\",\"moe_routed_scaling_factor\":2.5,"
               "\"moe_router_logit_softcapping\":3,\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\","
               "\"partial_rotary_factor\":0.25},\"sliding_attention\":{\"rope_type\":\"default\"}}");
    assert_true(l[0].attention.num_heads == 6 && l[1].attention.num_heads == 8 && !l[0].attention.head_gates);
    assert_true(l[1].experts.router.scaling == 2.5f && l[1].experts.router.soft_cap == 3);
    assert_true(l[0].attention.rotary_dim == 32 && c.spec.ropes[0].theta == 500000);
    refuse(*state, base, "\"gating\":false", STATUS_INVALID, "gating must be true, \"per-head\" or \"per-element\"");
    refuse(*state, base, "\"num_attention_heads_per_layer\":[6]", STATUS_INVALID,
           "num_attention_heads_per_layer must be an array of num_hidden_layers (2) numbers");
    refuse(*state, base, "\"num_attention_heads_per_layer\":[6,5]", STATUS_INVALID,
           "num_attention_heads_per_layer[1] (5) is not a multiple of num_key_value_heads (2)");
    refuse(*state, base, "\"moe_apply_router_weight_on_input\":true", STATUS_UNSUPPORTED,
           "moe_apply_router_weight_on_input is true");
}

/* {base, extra} as the head of the file's next layers. */

/* Qwen2, and layers that predict further tokens, of which the first is the head. */
static void test_mimo(void **state)
{
    const char *base = "\"model_type\":\"mimo\"," SIZES ",\"num_key_value_heads\":2,\"num_nextn_predict_layers\":2";
    struct model_config c = accept(*state, base, "\"attention_bias\":true,\"rope_theta\":640000");
    assert_true(c.spec.layers[1].attention.qkv_bias && !c.spec.layers[1].attention.o_bias);
    assert_true(c.spec.num_next_layers == 2 && c.spec.ropes[0].theta == 640000 &&
                c.spec.layers[1].attention.window == 0);
    assert_string_equal(c.spec.names.next_layers, "model.mtp_layers");
    c = accept_mtp(*state, base, "\"tie_word_embeddings\":true");
    assert_true(c.spec.head.state_first && c.spec.head.state_before_norm && c.spec.head.own_state_normed);
    assert_true(c.spec.layers[0].attention.qkv_bias && !c.spec.tie_word_embeddings);
    assert_string_equal(c.spec.names.layers, "model.mtp_layers");
    assert_int_equal(c.spec.names.first_layer, 0);
    refuse(*state, base, "\"mlp_bias\":true", STATUS_UNSUPPORTED, "mlp_bias is true");
}

/* Of Qwen3-Next and Qwen3.5: attention, and the rest as in layer 0, which is recurrent. A file need not count it. */
static void test_qwen_mtp(void **state)
{
    const char *next = "\"model_type\":\"qwen3_next\"," SIZES, *dense = "\"model_type\":\"qwen3_5_text\"," SIZES;
    struct model_config c =
        accept_mtp(*state, next, "\"full_attention_interval\":2,\"shared_expert_intermediate_size\":32");
    const struct layer_spec *l = &c.spec.layers[0];
    struct error err;
    assert_true(l->mixer == MIXER_ATTENTION && l->attention.gate_in_q &&
                l->attention.output_gate == OUTPUT_GATE_SIGMOID);
    assert_true(l->attention.rotary_dim == l->attention.head_size / 4 && l->recurrent.num_v_heads == 0);
    assert_true(routes(&c, 0, 256, 8, 512) && l->mlp.intermediate_size == 32 && c.spec.gain_offset == 1);
    assert_true(c.spec.head.own_state_normed && !c.spec.head.state_before_norm && !c.spec.head.state_first);
    assert_string_equal(c.spec.names.layers, "mtp.layers");
    assert_string_equal(c.spec.names.final_norm, "mtp.norm");
    c = accept_mtp(*state, dense, "\"full_attention_interval\":2,\"mtp_num_hidden_layers\":1");
    assert_true(l->mixer == MIXER_ATTENTION && routes(&c, 0, 0, 0, 0) && l->mlp.intermediate_size == 96);
    c = accept(*state, dense, "\"full_attention_interval\":2");
    assert_true(c.spec.num_next_layers == 1 && c.spec.layers[0].mixer == MIXER_RECURRENT);
    static const char *const refused[][2] = {
        {"\"mtp_num_hidden_layers\":0", "mtp_num_hidden_layers is 0: the model has no layers that predict"},
        {"\"mtp_use_dedicated_embeddings\":true", "quire does not compute an embedding of next layers"}};
    for (int i = 0; i < 2; i++) {
        char extra[128];
        snprintf(extra, sizeof extra, "\"full_attention_interval\":2,%s", refused[i][0]);
        accept(*state, dense, extra);
        assert_int_equal(model_config_load_mtp(((struct temp_folder *)*state)->path, NULL, &c, &err),
                         STATUS_UNSUPPORTED);
        if (!strstr(err.text, refused[i][1])) fail_msg("\"%s\" does not say \"%s\"", err.text, refused[i][1]);
    }
}

/* The layer that predicts a further token has no experts, whatever the first layers have. */
static void test_ernie_mtp(void **state)
{
    const char *base =
        "\"model_type\":\"ernie4_5_moe\"," SIZES ",\"num_key_value_heads\":2,\"num_nextn_predict_layers\":1";
    struct model_config c = accept_mtp(*state, base, "\"moe_layer_start_index\":0,\"moe_intermediate_size\":16");
    struct error err;
    assert_true(routes(&c, 0, 0, 0, 0) && c.spec.layers[0].mlp.intermediate_size == 96);
    assert_true(c.spec.head.state_before_norm && !c.spec.head.state_first && !c.spec.head.own_state_normed);
    assert_string_equal(c.spec.names.final_norm, "model.norm");
    accept(*state, base, "\"use_bias\":true");
    assert_int_equal(model_config_load_mtp(((struct temp_folder *)*state)->path, NULL, &c, &err), STATUS_UNSUPPORTED);
    assert_non_null(
        strstr(err.text, "use_bias is true: quire does not compute layers with biases that predict further"));
}

static void test_mimo_v2(void **state)
{
    const char *base = "\"model_type\":\"mimo_v2_flash\"," SIZES ",\"num_key_value_heads\":2";
    struct model_config c = accept(*state, base, "\"attention_chunk_size\":128,\"routed_scaling_factor\":null");
    const struct layer_spec *l = c.spec.layers;
    assert_true(routes(&c, 0, 0, 0, 0) && routes(&c, 1, 256, 8, 2048) && l[1].mlp.intermediate_size == 0);
    assert_true(l[1].experts.router.kind == ROUTER_SIGMOID && l[1].experts.choice_bias);
    assert_true(l[0].attention.head_size == 192 && l[0].attention.v_head_size == 128);
    assert_true(l[0].attention.v_multiplier == 0.707f && !l[0].attention.o_bias && c.spec.norm_eps == 1e-5);
    assert_true(l[0].attention.window == 0 && l[0].attention.num_kv_heads == 2 && !l[0].attention.sinks);
    assert_true(l[1].attention.window == 128 && l[1].attention.num_kv_heads == 4 && l[1].attention.sinks);
    assert_true(l[1].attention.rope == 1 && l[1].attention.rotary_dim == 64 && c.spec.ropes[1].theta == 10000);
    c = accept(*state, base,
               "\"hybrid_layer_pattern\":[1,0],\"moe_layer_freq\":[1,0],\"layernorm_epsilon\":0.01,\"v_head_dim\":24,"
               "\"attention_value_scale\":null,\"rope_theta\":700,\"swa_rope_theta\":500,\"sliding_window\":9,"
               "\"swa_num_key_value_heads\":1,\"add_swa_attention_sink_bias\":false,\"attention_bias\":true,"
               "\"add_full_attention_sink_bias\":true,\"swa_num_attention_heads\":4,\"n_shared_experts\":null");
    assert_true(routes(&c, 0, 256, 8, 2048) && routes(&c, 1, 0, 0, 0) && c.spec.norm_eps == 0.01);
    assert_true(l[0].attention.window == 9 && l[0].attention.num_kv_heads == 1 && !l[0].attention.sinks);
    assert_true(l[1].attention.window == 0 && l[1].attention.num_kv_heads == 2 && l[1].attention.sinks);
    assert_true(l[0].attention.v_head_size == 24 && l[0].attention.v_multiplier == 1 && l[0].attention.qkv_bias);
    assert_true(c.spec.ropes[0].theta == 700 && c.spec.ropes[1].theta == 500);
    c = accept(*state, base,
               "\"layer_types\":[\"sliding_attention\",\"full_attention\"],\"hybrid_layer_pattern\":[0,1]");
    assert_true(l[0].attention.window == 128 && l[1].attention.window == 0);
    refuse(*state, base, "\"hybrid_layer_pattern\":[1]", STATUS_INVALID,
           "hybrid_layer_pattern must be an array of num_hidden_layers (2) numbers, found [1]");
    refuse(*state, base, "\"moe_layer_freq\":[0,2]", STATUS_INVALID, "moe_layer_freq must be");
    refuse(*state, base, "\"sliding_window\":null", STATUS_INVALID, "sliding_window must be a number, found null");
    refuse(*state, base, "\"swa_num_key_value_heads\":3", STATUS_INVALID,
           "num_attention_heads (4) is not a multiple of the KV heads of layers with a window (3)");
    refuse(*state, base, "\"swa_v_head_dim\":64", STATUS_UNSUPPORTED,
           "swa_v_head_dim is 64, but quire computes mimo_v2_flash models only with 128 there");
    refuse(*state, base, "\"n_shared_experts\":1", STATUS_UNSUPPORTED, "n_shared_experts is 1");
}

#define STEP3P5                                                                                                        \
    "\"model_type\":\"step3p5\",\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,"                  \
    "\"num_attention_heads\":4,\"vocab_size\":320,\"num_attention_groups\":2,\"sliding_window\":9,\"layer_types\":["   \
    "\"full_attention\",\"sliding_attention\",\"sliding_attention\",\"full_attention\",\"sliding_attention\"],"        \
    "\"num_nextn_predict_layers\":1"

static void test_step3p5(void **state)
{
    struct model_config c =
        accept(*state, STEP3P5,
               "\"moe_layers_enum\":\"1,3,4\",\"moe_num_experts\":16,\"moe_top_k\":3,\"moe_intermediate_size\":32,"
               "\"moe_router_scaling_factor\":3,\"share_expert_dim\":48,\"max_seq_len\":512,"
               "\"rope_theta\":[5e6,1e4,1e4,5e6,1e4],\"partial_rotary_factors\":[0.5,1,1,0.5,1],"
               "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":2,\"original_max_position_embeddings\":64,"
               "\"low_freq_factor\":1,\"high_freq_factor\":32},\"attention_other_setting\":{\"num_attention_heads\":6,"
               "\"num_attention_groups\":1},\"swiglu_limits\":[0,7,0,null,0],\"swiglu_limits_shared\":[5,0,0,16,0]");
    const struct layer_spec *l = c.spec.layers;
    assert_true(routes(&c, 0, 0, 0, 0) && routes(&c, 1, 16, 3, 32) && routes(&c, 2, 0, 0, 0) &&
                routes(&c, 3, 16, 3, 32));
    assert_true(l[0].mlp.intermediate_size == 96 && l[1].mlp.intermediate_size == 48);
    assert_true(l[1].experts.router.kind == ROUTER_SIGMOID && l[1].experts.router.normalize &&
                l[1].experts.choice_bias);
    assert_true(l[1].experts.router.scaling == 3 && c.spec.max_position_embeddings == 512 && c.spec.gain_offset == 1);
    assert_true(l[0].mlp.limit == 5 && l[1].mlp.limit == 0 && l[3].mlp.limit == 16);
    assert_true(l[1].experts.gate.limit == 7 && l[3].experts.gate.limit == 0);
    assert_true(l[0].attention.num_heads == 4 && l[0].attention.num_kv_heads == 2 && l[0].attention.window == 0);
    assert_true(l[1].attention.num_heads == 6 && l[1].attention.num_kv_heads == 1 && l[1].attention.window == 9);
    assert_true(l[0].attention.rotary_dim == 64 && l[1].attention.rotary_dim == 128 && l[1].attention.head_size == 128);
    assert_true(l[1].attention.output_gate == OUTPUT_GATE_SIGMOID && l[1].attention.head_gates);
    assert_true(c.spec.ropes[0].theta == 5e6 && c.spec.ropes[0].type == ROPE_LLAMA3);
    assert_true(c.spec.ropes[1].theta == 1e4 && c.spec.ropes[1].type == ROPE_DEFAULT);
}

static void test_step3p5_of_transformers(void **state)
{
    struct model_config c =
        accept(*state, STEP3P5,
               "\"num_sliding_attention_heads\":8,\"mlp_layer_types\":[\"dense\",\"sparse\",\"dense\",\"dense\"],"
               "\"moe_layers_enum\":[0],\"n_routed_experts\":8,\"num_local_experts\":128,"
               "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\",\"rope_theta\":500,"
               "\"partial_rotary_factor\":0.25},\"sliding_attention\":{\"rope_type\":\"default\"}}");
    const struct layer_spec *l = c.spec.layers;
    assert_true(routes(&c, 0, 0, 0, 0) && routes(&c, 1, 8, 8, 1280) && l[1].mlp.intermediate_size == 1280);
    assert_true(l[1].attention.num_heads == 8 && l[1].attention.num_kv_heads == 2 && l[3].attention.rotary_dim == 32);
    assert_true(c.spec.ropes[0].theta == 500 && c.spec.ropes[1].theta == 1e4 && l[2].attention.rotary_dim == 128);
    c = accept(*state, STEP3P5, "");
    assert_true(routes(&c, 2, 0, 0, 0) && routes(&c, 3, 288, 8, 1280) && c.spec.max_position_embeddings == 128000);
    c = accept(*state, STEP3P5, "\"moe_layers_enum\":[0,4]");
    assert_true(routes(&c, 0, 288, 8, 1280) && routes(&c, 3, 0, 0, 0));
}

static void test_step3p5_refusals(void **state)
{
    refuse(*state, STEP3P5, "\"moe_layers_enum\":\"1,x\"", STATUS_INVALID, "must be numbers of layers between commas");
    refuse(*state, STEP3P5, "\"swiglu_limits\":[1,2]", STATUS_INVALID,
           "swiglu_limits must be an array of num_hidden_layers (4) numbers, found [1,2]");
    refuse(*state, STEP3P5, "\"swiglu_limits_shared\":[1,2,3,-1]", STATUS_INVALID, "swiglu_limits_shared must be");
    refuse(*state, STEP3P5, "\"rope_theta\":[1e4,1e4,500,1e4]", STATUS_UNSUPPORTED,
           "rope_theta[2] is 500, but 10000 in another layer of the same kind");
    refuse(*state, STEP3P5, "\"partial_rotary_factors\":[1,1,1,0]", STATUS_UNSUPPORTED,
           "partial_rotary_factors[3] is 0, but 1 in another layer of the same kind");
    refuse(*state, STEP3P5, "\"attention_other_setting\":7", STATUS_INVALID,
           "attention_other_setting must be an object");
    refuse(*state, STEP3P5, "\"attention_other_setting\":{\"head_dim\":64}", STATUS_INVALID,
           "attention_other_setting.head_dim must be");
    refuse(*state, STEP3P5, "\"num_sliding_attention_heads\":5", STATUS_INVALID,
           "layers with a window have 5 heads, no multiple of their 2 KV heads");
    refuse(*state, STEP3P5, "\"moe_router_activation\":\"softmax\"", STATUS_UNSUPPORTED,
           "moe_router_activation is \"softmax\"; in this family quire computes \"sigmoid\"");
    refuse(*state, STEP3P5, "\"norm_expert_weight\":false", STATUS_UNSUPPORTED, "norm_expert_weight is false");
    refuse(*state, STEP3P5, "\"use_head_wise_attn_gate\":false", STATUS_UNSUPPORTED,
           "use_head_wise_attn_gate is false");
    refuse(*state, STEP3P5, "\"use_rope_layers\":[1,1,1,1]", STATUS_UNSUPPORTED, "layers without rotation");
    refuse(*state, STEP3P5, "\"mlp_bias\":true", STATUS_UNSUPPORTED, "mlp_bias is true");
}

static void test_minimax_m2(void **state)
{
    struct model_config c = accept(*state, MINIMAX_M2, "\"rotary_dim\":64,\"use_qk_norm\":true");
    assert_true(routes(&c, 0, 256, 8, 96) && c.spec.layers[0].mlp.intermediate_size == 0);
    assert_true(c.spec.layers[0].experts.router.kind == ROUTER_SIGMOID && c.spec.layers[0].experts.choice_bias);
    assert_true(c.spec.layers[0].attention.rotary_dim == 64 && c.spec.layers[0].attention.head_size == 128);
    assert_true(c.spec.layers[0].attention.qk_norm == QK_NORM_PROJECTION && c.spec.ropes[0].theta == 5e6);
    c = accept(*state, MINIMAX_M2, "\"partial_rotary_factor\":0.25");
    assert_int_equal(c.spec.layers[0].attention.rotary_dim, 32);
    refuse(*state, MINIMAX_M2, "\"rotary_dim\":63", STATUS_INVALID, "rotary_dim is 63, but must be even");
    c = accept(*state, "\"model_type\":\"flex_olmo\"," SIZES, "\"attention_bias\":true");
    assert_true(routes(&c, 0, 7, 5, 96) && c.spec.layers[0].norm_placement == NORM_AFTER);
    assert_true(c.spec.ropes[0].theta == 5e5 && c.spec.layers[0].attention.o_bias);
}

#define LLAMA4                                                                                                         \
    "\"model_type\":\"llama4_text\",\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":8,"              \
    "\"num_attention_heads\":8,\"vocab_size\":320"

/* As Scout is published, and then as Maverick, whose experts are in every second layer. */
static void test_llama4(void **state)
{
    struct model_config c =
        accept(*state, LLAMA4,
               "\"no_rope_layers\":[],\"attn_temperature_tuning\":4,\"rope_scaling\":{\"factor\":16.0,\"high_freq_"
               "factor\":1.0,"
               "\"low_freq_factor\":1.0,\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"}");
    const struct layer_spec *l = c.spec.layers;
    for (int i = 0; i < 8; i++) {
        const struct attention_spec *a = &l[i].attention;
        const bool full = i % 4 == 3;
        assert_true(routes(&c, i, 16, 1, 96) && l[i].mlp.intermediate_size == 96);
        assert_true(a->rotary_dim == (full ? 0 : 128) && a->chunk == (full ? 0 : 8192) && a->window == 0);
        assert_true(a->qk_norm == (full ? QK_NORM_NONE : QK_NORM_HEAD) && a->no_qk_gains == !full &&
                    a->norm_after_rotation == !full);
        assert_true(a->query_scaling.length == (full ? 8192 : 0) && a->query_scaling.first == full);
    }
    assert_true(l[3].attention.query_scaling.beta == 0.1f && c.spec.rope_interleaved && c.spec.ropes[0].factor == 16);
    assert_true(l[0].experts.router.kind == ROUTER_SIGMOID && l[0].experts.router.by_logits);
    assert_true(l[0].experts.weights_first && c.spec.names.experts_transposed && !c.spec.names.experts_interleaved);
    c = accept(*state, LLAMA4, "\"interleave_moe_layer_step\":2,\"num_local_experts\":128,\"use_qk_norm\":false");
    assert_true(routes(&c, 0, 0, 0, 0) && routes(&c, 1, 128, 1, 96) && c.spec.layers[0].mlp.intermediate_size == 16384);
    assert_true(c.spec.layers[0].attention.qk_norm == QK_NORM_NONE);
    c = accept(*state, LLAMA4,
               "\"moe_layers\":[2],\"no_rope_layers\":[0,1,1,1,1,1,1,1],\"attn_temperature_tuning\":false,"
               "\"attention_chunk_size\":5");
    assert_true(routes(&c, 1, 0, 0, 0) && routes(&c, 2, 16, 1, 96) && routes(&c, 7, 0, 0, 0));
    assert_true(c.spec.layers[0].attention.rotary_dim == 0 && c.spec.layers[7].attention.chunk == 5);
    assert_int_equal(c.spec.layers[0].attention.query_scaling.length, 0);
    refuse(*state, LLAMA4, "\"attention_chunk_size\":null", STATUS_INVALID,
           "attention_chunk_size is null, but layer 0");
    refuse(*state, LLAMA4, "\"moe_layers\":2", STATUS_INVALID, "moe_layers must be an array of numbers of layers");
    refuse(*state, LLAMA4,
           "\"layer_types\":[\"chunked_attention\",\"sliding_attention\",\"full_attention\",\"full_attention\","
           "\"full_attention\",\"full_attention\",\"full_attention\",\"full_attention\"]",
           STATUS_UNSUPPORTED, "layer_types[1] is \"sliding_attention\"; quire computes \"chunked_attention\"");
    refuse(*state, "\"model_type\":\"smollm3\"," SIZES, "\"attention_chunk_size\":8", STATUS_UNSUPPORTED,
           "attention_chunk_size is 8");
}

#define MINISTRAL3 "\"model_type\":\"ministral3\"," SIZES ",\"num_key_value_heads\":2"

/* What the family takes without a rope, and an object as published. */
static void test_ministral3(void **state)
{
    struct model_config c = accept(*state, MINISTRAL3, "");
    const struct attention_spec *a = &c.spec.layers[1].attention;
    assert_true(c.spec.ropes[0].type == ROPE_YARN && c.spec.ropes[0].factor == 16 && c.spec.ropes[0].theta == 1e6);
    assert_true(a->query_scaling.length == 16384 && a->query_scaling.first == 0 && a->query_scaling.beta == 0.1f);
    assert_true(a->window == 0 && a->head_size == 128 && c.spec.norm_eps == 1e-5);
    assert_int_equal(model_spec_max_length(&c.spec), 262144);
    c = accept(
        *state, MINISTRAL3,
        "\"sliding_window\":9,\"rope_parameters\":{\"beta_fast\":32.0,\"beta_slow\":1.0,\"factor\":4.0,"
        "\"llama_4_scaling_beta\":0.25,\"mscale\":1.0,\"mscale_all_dim\":1.0,\"max_position_embeddings\":4096,"
        "\"original_max_position_embeddings\":1024,\"rope_theta\":500,\"rope_type\":\"yarn\",\"type\":\"yarn\"}");
    assert_true(c.spec.ropes[0].factor == 4 && c.spec.ropes[0].theta == 500);
    assert_true(a->query_scaling.length == 1024 && a->query_scaling.beta == 0.25f && a->window == 9);
    refuse(*state, MINISTRAL3, "\"rope_parameters\":{\"rope_type\":\"default\"}", STATUS_INVALID,
           "llama_4_scaling_beta is missing");
    refuse(*state, LLAMA, "\"rope_scaling\":{\"type\":\"linear\",\"factor\":2,\"llama_4_scaling_beta\":0.1}",
           STATUS_UNSUPPORTED, "llama_4_scaling_beta is set, a key");
}

static void test_hunyuan_moe(void **state)
{
    const char *base = "\"model_type\":\"hunyuan_v1_moe\"," SIZES;
    struct model_config c = accept(*state, base,
                                   "\"num_experts\":64,\"moe_topk\":[8,3],\"use_qk_norm\":true,"
                                   "\"moe_intermediate_size\":[96,96],\"num_shared_expert\":[1,1]");
    assert_true(routes(&c, 0, 64, 8, 96) && routes(&c, 1, 64, 3, 96) && c.spec.layers[1].mlp.intermediate_size == 96);
    assert_true(c.spec.layers[0].experts.router.normalize && c.spec.layers[0].attention.norm_after_rotation);
    assert_string_equal(c.spec.names.shared, "mlp.shared_mlp");
    c = accept(*state, base, "");
    assert_true(routes(&c, 0, 1, 1, 96));
    refuse(*state, base, "\"num_experts\":4,\"moe_topk\":5", STATUS_INVALID, "moe_topk must be");
    refuse(*state, base, "\"num_experts\":4,\"moe_topk\":[2]", STATUS_INVALID,
           "moe_topk must be a number for each of num_hidden_layers");
    refuse(*state, base, "\"num_experts\":4,\"moe_topk\":[2,0]", STATUS_INVALID, "an element of moe_topk must be");
}

#define COHERE2_MOE                                                                                                    \
    "\"model_type\":\"cohere2_moe\",\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":6,"              \
    "\"num_attention_heads\":4,\"vocab_size\":320"

static void test_cohere2_moe(void **state)
{
    struct model_config c = accept(*state, COHERE2_MOE, "\"first_k_dense_replace\":2,\"num_shared_experts\":3");
    const struct layer_spec *l = c.spec.layers;
    assert_true(routes(&c, 1, 0, 0, 0) && routes(&c, 2, 8, 2, 96) && l[2].mlp.intermediate_size == 3 * 96);
    assert_true(l[0].norm_placement == NORM_PARALLEL && c.spec.norm_type == NORM_LAYER && c.spec.rope_interleaved);
    assert_true(l[2].experts.router.by_logits && l[2].experts.router.normalize && l[2].experts.mean);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(l[i].attention.window, i < 2 || i == 5 ? 0 : 4096);
        assert_int_equal(l[i].attention.rotary_dim, i == 5 ? 0 : 128);
    }
    c = accept(*state, COHERE2_MOE,
               "\"rms_norm_eps\":0.01,\"expert_selection_fn\":\"sigmoid\",\"norm_topk_prob\":false,"
               "\"prefix_dense_sliding_window_pattern\":2,\"prefix_dense_intermediate_size\":40,"
               "\"mlp_layer_types\":[\"dense\",\"sparse\",\"sparse\",\"sparse\",\"sparse\",\"dense\"],"
               "\"shared_expert_combination_strategy\":\"sum\"");
    assert_true(c.spec.norm_type == NORM_RMS && c.spec.norm_eps == 0.01 && l[1].mlp.intermediate_size == 0);
    assert_true(routes(&c, 5, 0, 0, 0) && l[5].mlp.intermediate_size == 40 && l[3].attention.rotary_dim == 0);
    assert_true(l[1].experts.router.kind == ROUTER_SIGMOID && !l[1].experts.router.normalize && !l[1].experts.mean);
    refuse(*state, COHERE2_MOE, "\"expert_selection_fn\":\"sum\"", STATUS_UNSUPPORTED,
           "expert_selection_fn is \"sum\"");
    refuse(*state, COHERE2_MOE, "\"shared_expert_combination_strategy\":\"max\"", STATUS_UNSUPPORTED,
           "shared_expert_combination_strategy is \"max\"");
}

/* 26B-A4B's text, and Qwen3-VL's. */
static void test_experts_of_multimodal(void **state)
{
    const char *gemma = "\"model_type\":\"gemma4_text\"," SIZES ",\"num_key_value_heads\":2";
    struct model_config c = accept(*state, gemma,
                                   "\"enable_moe_block\":true,\"num_experts\":128,\"top_k_experts\":8,"
                                   "\"moe_intermediate_size\":704,\"hidden_size_per_layer_input\":0");
    assert_true(routes(&c, 0, 128, 8, 704) && routes(&c, 1, 128, 8, 704) &&
                c.spec.layers[0].mlp.intermediate_size == 96);
    assert_true(c.spec.layers[0].experts.own_norms && c.spec.layers[0].experts.expert_scales);
    assert_true(c.spec.layers[0].experts.gate.activation == ACTIVATION_GELU_TANH);
    c = accept(*state, "\"model_type\":\"qwen3_vl_moe\"",
               "\"text_config\":{" SIZES ",\"num_key_value_heads\":2,\"num_experts\":128,\"num_experts_per_tok\":8,"
               "\"norm_topk_prob\":true,\"moe_intermediate_size\":768,\"head_dim\":128}");
    assert_true(routes(&c, 0, 128, 8, 768) && c.spec.layers[0].attention.qk_norm == QK_NORM_HEAD);
    assert_true(c.spec.names.experts_transposed && c.spec.has_vision && !c.spec.tie_word_embeddings);
    c = accept(*state, "\"model_type\":\"gemma4\",\"audio_config\":null",
               "\"text_config\":{" SIZES ",\"num_key_value_heads\":2}");
    assert_true(c.spec.has_vision && !c.spec.has_audio && c.spec.tie_word_embeddings);
    c = accept(*state, "\"model_type\":\"gemma4\",\"audio_config\":{}",
               "\"text_config\":{" SIZES ",\"num_key_value_heads\":2}");
    assert_true(c.spec.has_audio);
}

/* The factors of the 8 pairs of a head of 16: "short_factor":[1.00,1.01, ...],"long_factor":[2.00,2.25, ...] */
struct factors {
    char text[512];
};

static struct factors longrope_factors(void)
{
    struct factors f;
    int n = snprintf(f.text, sizeof f.text, "\"short_factor\":[1.00");
    for (int i = 1; i < 8; i++) n += snprintf(f.text + n, sizeof f.text - (size_t)n, ",%.2f", 1 + i / 100.0);
    n += snprintf(f.text + n, sizeof f.text - (size_t)n, "],\"long_factor\":[2.00");
    for (int i = 1; i < 8; i++) n += snprintf(f.text + n, sizeof f.text - (size_t)n, ",%.2f", 2 + i / 4.0);
    snprintf(f.text + n, sizeof f.text - (size_t)n, "]");
    return f;
}

/* As published, but for the factors. */
static void test_phimoe(void **state)
{
    const char *base = "\"model_type\":\"phimoe\"," SIZES ",\"num_key_value_heads\":2";
    char extra[1024];
    struct model_config c = accept(*state, base, "");
    assert_true(routes(&c, 0, 16, 2, 96) && c.spec.layers[0].mlp.intermediate_size == 0 && !c.spec.lm_head_bias);
    assert_true(c.spec.layers[0].experts.router.kind == ROUTER_SPARSEMIXER && c.spec.norm_bias);
    assert_true(c.spec.layers[0].experts.router.jitter == 0.01f && c.spec.norm_type == NORM_LAYER);
    assert_true(c.spec.ropes[0].theta == 1e6 && c.spec.norm_eps == 1e-5);
    snprintf(extra, sizeof extra,
             "\"attention_bias\":true,\"lm_head_bias\":true,\"sliding_window\":131072,\"rope_scaling\":{"
             "\"original_max_position_embeddings\":4096,\"type\":\"longrope\",\"short_mscale\":1.25,\"long_mscale\":1."
             "25,%s}",
             longrope_factors().text);
    c = accept(*state, base, extra);
    assert_true(c.spec.ropes[0].type == ROPE_LONGROPE && c.spec.ropes[0].attention_factor == 1.25);
    assert_true(c.spec.lm_head_bias && c.spec.layers[0].attention.o_bias &&
                c.spec.ropes[0].original_max_position == 4096);
    snprintf(extra, sizeof extra,
             "\"rope_scaling\":{\"type\":\"longrope\",\"short_mscale\":1.25,\"long_mscale\":1.5,%s}",
             longrope_factors().text);
    refuse(*state, base, extra, STATUS_UNSUPPORTED, "short_mscale (1.25) and long_mscale (1.5) are not the same");
    snprintf(extra, sizeof extra, "\"rope_scaling\":{\"type\":\"longrope\",%s}", longrope_factors().text);
    refuse(*state, base, extra, STATUS_INVALID, "long_mscale is missing");
    refuse(*state, base, "\"num_experts_per_tok\":3", STATUS_UNSUPPORTED, "num_experts_per_tok is 3, but");
    snprintf(extra, sizeof extra,
             "\"head_dim\":16,\"rope_scaling\":{\"type\":\"longrope\",\"llama_4_scaling_beta\":0.1,%s}",
             longrope_factors().text);
    refuse(*state, MINISTRAL3, extra, STATUS_UNSUPPORTED,
           "the rope_type is \"longrope\", but layer 0 scales its queries");
    refuse(*state, base, "\"lm_head_bias\":true,\"tie_word_embeddings\":true", STATUS_UNSUPPORTED,
           "tie_word_embeddings is true");
}

/* Which lengths have a switch, and which keys decide about it. */
static void test_longrope(void **state)
{
    static const char *const names[] = {"longrope", "su", "yarn"};
    const char *base = SIZES ",\"model_type\":\"phi3\"";
    char extra[1024];
    for (int i = 0; i < 3; i++) {
        snprintf(extra, sizeof extra,
                 "\"max_position_embeddings\":32768,\"rope_scaling\":{\"type\":\"%s\","
                 "\"original_max_position_embeddings\":64,%s}",
                 names[i], longrope_factors().text);
        const struct model_config c = accept(*state, base, extra);
        const struct rope_config *rope = &c.spec.ropes[0];
        assert_int_equal(rope->type, ROPE_LONGROPE);
        assert_int_equal(rope->original_max_position, 4096); /* the family's: the one inside does not count */
        assert_true(rope->factor == 8 && rope->attention_factor <= 0);
        assert_true(rope->short_factor[7] == 1.07f && rope->long_factor[7] == 3.75f);
        assert_int_equal(model_spec_max_length(&c.spec), 32768);
        assert_int_equal(model_spec_rope_switch(&c.spec, 4096), 0);
        assert_int_equal(rope_table_rows(&c.spec, 4096), 4096);
        assert_int_equal(model_spec_rope_switch(&c.spec, 4097), 4096);
        assert_int_equal(rope_table_rows(&c.spec, 4097), 2 * 4097);
    }
    snprintf(extra, sizeof extra,
             "\"original_max_position_embeddings\":1,\"rope_scaling\":{\"rope_type\":\"longrope\",%s}",
             longrope_factors().text);
    refuse(*state, base, extra, STATUS_INVALID, "original_max_position_embeddings must be at least 2");
    snprintf(extra, sizeof extra, "\"partial_rotary_factor\":0.75,\"rope_scaling\":{\"type\":\"longrope\",%s}",
             longrope_factors().text);
    refuse(*state, base, extra, STATUS_INVALID, "short_factor must be an array of 6 numbers, one for each pair");
    snprintf(extra, sizeof extra, "\"rope_scaling\":{\"partial_rotary_factor\":1e9,\"type\":\"longrope\",%s}",
             longrope_factors().text);
    refuse(*state, base, extra, STATUS_INVALID, "partial_rotary_factor is 1e+09, but must rotate an even");
}

/* A second rope of another type has the same angles before and after the switch. */
static void test_longrope_beside_another(void **state)
{
    enum { LENGTH = 80, DIM = 16 };
    static float table[2 * LENGTH][DIM];
    char extra[1024];
    snprintf(extra, sizeof extra, "\"original_max_position_embeddings\":64,\"rope_scaling\":{\"type\":\"longrope\",%s}",
             longrope_factors().text);
    struct model_config c = accept(*state, SIZES ",\"model_type\":\"phi3\"", extra);
    c.spec.num_ropes = 2;
    c.spec.ropes[1] = (struct rope_config){.theta = 10000, .factor = 1};
    c.spec.layers[1].attention.rope = 1;
    assert_int_equal(rope_table_rows(&c.spec, LENGTH), 2 * LENGTH);
    rope_table(&c.spec, 1, LENGTH, table[0], NULL);
    assert_true(table[1][0] != table[2][0]);
    assert_memory_equal(table, table + LENGTH, LENGTH * sizeof *table);
    rope_table(&c.spec, 0, LENGTH, table[0], NULL);
    assert_true(table[1][0] != table[LENGTH + 1][0]);
}

/* --- Sizes and types --- */

static void test_missing_sizes(void **state)
{
    static const char *const keys[] = {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                                       "vocab_size"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct text json = {0};
        char words[64];
        assert_true(text_append_string(&json, "\"model_type\":\"llama\""));
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            if (k != i) assert_true(text_printf(&json, ",\"%s\":64", keys[k]));
        snprintf(words, sizeof words, "the key %s is missing", keys[i]);
        refuse(*state, json.data, "", STATUS_INVALID, words);
        assert_true(text_printf(&json, ",\"%s\":null", keys[i]));
        refuse(*state, json.data, "", STATUS_INVALID, words);
        text_free(&json);
    }
}

static void test_wrong_sizes(void **state)
{
    static const char *const keys[] = {
        "hidden_size",         "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "vocab_size",        "head_dim",          "max_position_embeddings"};
    static const char *const values[] = {
        "0", "-1", "64.5", "\"64\"", "[64]", "true", "{}", "2147483647", "9223372036854775807", "1e300"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            struct text json = {0};
            char words[64];
            assert_true(text_append_string(&json, "\"model_type\":\"llama\""));
            for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
                assert_true(text_printf(&json, ",\"%s\":%s", keys[k], k == i ? values[v] : "64"));
            snprintf(words, sizeof words, "%s must be an integer from", keys[i]);
            refuse(*state, json.data, "", STATUS_INVALID, words);
            text_free(&json);
        }
}

static void test_sizes_that_do_not_fit(void **state)
{
    refuse(*state, LLAMA, "\"num_key_value_heads\":3", STATUS_INVALID,
           "num_attention_heads (4) is not a multiple of num_key_value_heads (3)");
    refuse(*state, LLAMA, "\"num_key_value_heads\":8", STATUS_INVALID, "is not a multiple of num_key_value_heads (8)");
    refuse(*state, LLAMA, "\"head_dim\":15", STATUS_INVALID, "head_dim must be an even number");
    refuse(*state, LLAMA, "\"head_dim\":2048", STATUS_INVALID, "head_dim must be an integer from 2 to 1024");
    refuse(*state,
           "\"model_type\":\"llama\",\"hidden_size\":65,\"intermediate_size\":96,\"num_hidden_layers\":2,"
           "\"num_attention_heads\":4,\"vocab_size\":320",
           "", STATUS_INVALID, "hidden_size (65) is not a multiple of num_attention_heads (4)");
    refuse(*state,
           "\"model_type\":\"llama\",\"hidden_size\":60,\"intermediate_size\":96,\"num_hidden_layers\":2,"
           "\"num_attention_heads\":4,\"vocab_size\":320",
           "", STATUS_INVALID, "head_dim must be an even number from 2 to 1024, found 15");
    refuse(*state,
           "\"model_type\":\"llama\",\"hidden_size\":1048576,\"intermediate_size\":96,\"num_hidden_layers\":2,"
           "\"num_attention_heads\":4,\"vocab_size\":320",
           "", STATUS_INVALID, "found 262144");
}

static void test_wrong_types(void **state)
{
    static const struct {
        const char *extra, *words;
    } cases[] = {
        {"\"rms_norm_eps\":\"1e-5\"", "rms_norm_eps must be a number"},
        {"\"rms_norm_eps\":-1", "rms_norm_eps must be a number from 0 to 1"},
        {"\"rms_norm_eps\":true", "rms_norm_eps must be a number"},
        {"\"tie_word_embeddings\":1", "tie_word_embeddings must be true or false, found 1"},
        {"\"attention_bias\":\"true\"", "attention_bias must be true or false"},
        {"\"mlp_bias\":0", "mlp_bias must be true or false"},
        {"\"rope_theta\":\"10000\"", "rope_theta must be a number"},
        {"\"rope_theta\":0", "rope_theta must be a number from 2"},
        {"\"rope_theta\":-10000", "rope_theta must be a number from 2"},
        {"\"rope_scaling\":\"linear\"", "rope_scaling must be an object or null"},
        {"\"rope_scaling\":NaN", "rope_scaling must be an object or null, found NaN"},
        {"\"quantization_config\":NaN", "quantization_config must be an object, found NaN"},
        {"\"rope_theta\":NaN", "rope_theta must be a number from 2 to 1e+15, found NaN"},
        {"\"rope_theta\":1e999", "rope_theta must be a number from 2 to 1e+15, found 1e999"},
        {"\"rms_norm_eps\":NaN", "rms_norm_eps must be a number from "},
        {"\"rms_norm_eps\":-Infinity", "found -Infinity"},
        {"\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":NaN}", "rope_scaling.factor must be a number"},
        {"\"max_position_embeddings\":1000000000000000019884624838656",
         "max_position_embeddings must be an integer from 1 to "},
        {"\"attention_multiplier\":NaN", "attention_multiplier must be a number"},
        {"\"eos_token_id\":99999999999999999999", "must be a token id or an array of them, found 99999999999999999999"},
        {"\"rope_scaling\":[]", "rope_scaling must be an object or null"},
        {"\"rope_parameters\":4", "rope_parameters must be an object or null"},
        {"\"use_sliding_window\":0", "use_sliding_window must be true or false"},
        {"\"attention_multiplier\":\"a\"", "attention_multiplier must be a number"},
        {"\"query_pre_attn_scalar\":[]", "query_pre_attn_scalar must be a number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(*state, LLAMA, cases[i].extra, STATUS_INVALID, cases[i].words);
}

static void test_not_json(void **state)
{
    const struct temp_folder *folder = *state;
    static const struct {
        const char *text, *words;
    } cases[] = {{"", "is empty"},
                 {" ", "not valid JSON"},
                 {"model", "not valid JSON"},
                 {"{", "not valid JSON"},
                 {"{}x", "not valid JSON"},
                 {"[]", "expected a JSON object"},
                 {"7", "expected a JSON object {...}, found 7"},
                 {"{\"model_type\":NaN}", "model_type must be a string, found NaN"},
                 {"{\"a\":nan}", "not valid JSON at line 1, column 6: expected a value, found 'nan'"},
                 {"\xef\xbb\xbf{", "not valid JSON"},
                 {"\xef\xbb\xbf{}", "model_type"}, /* a byte order mark is skipped */
                 {"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        temp_folder_write_string(folder, "config.json", cases[i].text);
        check_refusal(folder, STATUS_INVALID, "config.json", cases[i].words);
    }
    temp_folder_delete(folder, "config.json");
    struct model_config config;
    struct error err;
    assert_int_equal(model_config_load(folder->path, NULL, NULL, &config, &err), STATUS_IO);
    assert_non_null(strstr(err.text, ": there is no config.json; a checkpoint folder holds"));
    assert_int_equal(model_config_load("/no/such/folder", NULL, NULL, &config, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "/no/such/folder: no such folder"));
}

/* --- Keys that are refused --- */

static void test_refused_keys(void **state)
{
    static const struct {
        const char *key, *refused, *accepted; /* values; accepted may be NULL */
    } cases[] = {
        {"hidden_act", "\"gelu\"", "\"silu\""},
        {"hidden_act", "\"gelu_pytorch_tanh\"", "\"swish\""},
        {"hidden_act", "1", NULL},
        {"hidden_activation", "\"gelu\"", "\"silu\""},
        {"mlp_hidden_act", "\"relu2\"", "\"silu\""},
        {"activation_function", "\"relu\"", "\"silu\""},
        {"norm_type", "\"layer_norm\"", "\"rms_norm\""},
        {"normalization_type", "\"layernorm\"", "\"rmsnorm\""},
        {"layer_norm_type", "\"low_precision\"", "\"rms\""},
        {"layernorm_type", "\"layernorm\"", "\"RMSNorm\""},
        {"position_embedding_type", "\"nope\"", "\"rope\""},
        {"partial_rotary_factor", "0.5", "1.0"},
        {"rotary_pct", "0.25", "1"},
        {"rope_pct", "0.25", "1"},
        {"rope_interleaved", "true", "false"},
        {"rope_interleave", "true", "false"},
        {"rotary_interleaved", "true", "false"},
        {"is_neox_style", "false", "true"},
        {"use_rope", "false", "true"},
        {"no_rope_layers", "[1,0]", "[]"},
        {"no_rope_layer_interval", "4", "0"},
        {"rope_local_base_freq", "10000", NULL},
        {"sliding_window_pattern", "6", NULL},
        {"per_layer_config", "[{}]", "[]"},
        {"block_configs", "[{}]", NULL},
        {"cross_attention_layers", "[3]", "[]"},
        {"add_cross_attention", "true", "false"},
        {"is_encoder_decoder", "true", "false"},
        {"is_causal", "false", "true"},
        {"use_bidirectional_attention", "true", "false"},
        {"attention_chunk_size", "8192", NULL},
        {"attn_temperature_tuning", "4", "0"},
        {"attention_sinks", "true", "false"},
        {"alibi", "true", "false"},
        {"use_alibi", "true", "false"},
        {"attn_logit_softcapping", "50.0", "0.0"},
        {"final_logit_softcapping", "30", NULL},
        {"clip_qkv", "8", NULL},
        {"qk_norm", "true", "false"},
        {"use_qk_norm", "true", "false"},
        {"qk_layernorm", "true", "false"},
        {"use_qk_layernorm", "true", "false"},
        {"bias", "true", "false"},
        {"use_bias", "true", "false"},
        {"qkv_bias", "true", "false"},
        {"lm_head_bias", "true", "false"},
        {"embedding_multiplier", "12.0", "1.0"},
        {"scale_emb", "12", "1"},
        {"scale_embeddings", "true", "false"},
        {"normalize_embeddings", "true", "false"},
        {"residual_multiplier", "0.22", "1.0"},
        {"scale_depth", "1.4", "1"},
        {"logits_scaling", "8.0", "1.0"},
        {"logit_scale", "0.0625", "1"},
        {"dim_model_base", "256", NULL},
        {"parallel_attn", "true", "false"},
        {"parallel_residual", "true", "false"},
        {"use_parallel_residual", "true", "false"},
        {"apply_residual_connection_post_layernorm", "true", "false"},
        {"num_experts", "8", "0"},
        {"num_local_experts", "8", "0"},
        {"n_routed_experts", "64", NULL},
        {"moe_num_experts", "8", NULL},
        {"pruned_heads", "{\"0\":[1]}", "{}"},
        {"attention_out_bias", "true", "false"},
        {"attention_multiplier", "1.0", "0.25"},
        {"query_pre_attn_scalar", "256", "16"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char extra[128], words[96];
        snprintf(extra, sizeof extra, "\"%s\":%s", cases[i].key, cases[i].refused);
        snprintf(words, sizeof words, ": %s is ", cases[i].key);
        refuse(*state, LLAMA, extra, STATUS_UNSUPPORTED, words);
        if (!cases[i].accepted) continue;
        snprintf(extra, sizeof extra, "\"%s\":%s", cases[i].key, cases[i].accepted);
        accept(*state, LLAMA, extra);
    }
}

static void test_ignored_keys(void **state)
{
    accept(*state, LLAMA,
           "\"pretraining_tp\":2,\"use_cache\":true,\"initializer_range\":0.02,\"attention_dropout\":0.1,"
           "\"transformers_version\":\"4.40.0\",\"pad_token_id\":-1,\"_name_or_path\":\"x\"");
}

/* --- RoPE --- */

static void test_rope_values(void **state)
{
    struct model_config c = accept(*state, LLAMA,
                                   "\"rope_theta\":500000.0,\"max_position_embeddings\":131072,"
                                   "\"rope_scaling\":{\"factor\":8.0,\"low_freq_factor\":1.0,"
                                   "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192,"
                                   "\"rope_type\":\"llama3\"}");
    assert_int_equal(c.spec.ropes[0].type, ROPE_LLAMA3);
    assert_true(c.spec.ropes[0].theta == 500000 && c.spec.ropes[0].factor == 8);
    assert_true(c.spec.ropes[0].low_freq_factor == 1 && c.spec.ropes[0].high_freq_factor == 4);
    assert_int_equal(c.spec.ropes[0].original_max_position, 8192);
    assert_int_equal(model_spec_max_length(&c.spec), 131072);
    c = accept(*state, LLAMA,
               "\"max_position_embeddings\":32768,\"rope_parameters\":{\"rope_type\":\"yarn\","
               "\"rope_theta\":1000000,\"factor\":4.0,\"original_max_position_embeddings\":32768,\"beta_fast\":0,"
               "\"mscale\":1.0,\"mscale_all_dim\":0.5,\"truncate\":false}");
    assert_int_equal(c.spec.ropes[0].type, ROPE_YARN);
    assert_true(c.spec.ropes[0].theta == 1e6 && c.spec.ropes[0].beta_fast == 32 && c.spec.ropes[0].beta_slow == 1);
    assert_true(c.spec.ropes[0].mscale == 1 && c.spec.ropes[0].mscale_all_dim == 0.5 &&
                c.spec.ropes[0].attention_factor <= 0);
    assert_false(c.spec.ropes[0].truncate);
    assert_int_equal(model_spec_max_length(&c.spec), 131072);
    c = accept(*state, LLAMA, "\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}");
    assert_int_equal(c.spec.ropes[0].type, ROPE_LINEAR);
    assert_int_equal(model_spec_max_length(&c.spec), 4096);
    c = accept(*state, LLAMA, "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":3.0}");
    assert_int_equal(c.spec.ropes[0].type, ROPE_DYNAMIC);
    assert_int_equal(model_spec_max_length(&c.spec), 6144);
    c = accept(*state, LLAMA,
               "\"rope_scaling\":{\"type\":\"linear\",\"factor\":1000000},\"max_position_embeddings\":99999");
    assert_int_equal(model_spec_max_length(&c.spec), INT32_MAX);
}

/* Which of two places wins, as in transformers. */
static void test_rope_precedence(void **state)
{
    struct model_config c =
        accept(*state, LLAMA,
               "\"rope_theta\":5000,\"rope_scaling\":{\"type\":\"yarn\",\"rope_type\":\"linear\",\"factor\":2},"
               "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":7000}");
    assert_int_equal(c.spec.ropes[0].type, ROPE_LINEAR);
    assert_true(c.spec.ropes[0].theta == 5000);
    c = accept(*state, LLAMA, "\"rope_theta\":5000,\"rope_scaling\":{},\"rope_parameters\":{\"rope_theta\":7000}");
    assert_int_equal(c.spec.ropes[0].type, ROPE_DEFAULT);
    assert_true(c.spec.ropes[0].theta == 7000);
    c = accept(*state, LLAMA,
               "\"original_max_position_embeddings\":512,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,"
               "\"original_max_position_embeddings\":1024}");
    assert_int_equal(c.spec.ropes[0].original_max_position, 512);
    c = accept(*state, LLAMA, "\"rope_scaling\":{\"type\":\"yarn\",\"original_max_position_embeddings\":1024}");
    assert_true(c.spec.ropes[0].factor == 2); /* max_position_embeddings / original */
}

/* If only a part of each head is rotated, the table is that of heads of this size. */
static void test_rope_of_a_part(void **state)
{
    static const char *const scalings[] = {
        "null", "{\"type\":\"dynamic\",\"factor\":3.0}",
        "{\"type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":512}"};
    enum { POSITIONS = 600, DIM = 8 };
    static float part[POSITIONS][DIM], whole[POSITIONS][DIM];
    for (size_t i = 0; i < sizeof scalings / sizeof *scalings; i++) {
        char keys[256];
        snprintf(keys, sizeof keys, "\"rope_scaling\":%s", scalings[i]);
        struct model_config c = accept(*state, LLAMA, keys);
        assert_int_equal(rope_rotary_dim(&c.spec, 0), c.spec.layers[0].attention.head_size);
        for (int32_t k = 0; k < c.spec.num_layers; k++) c.spec.layers[k].attention.rotary_dim = DIM;
        c.spec.layers[0].attention.rotary_dim = 0; /* one that rotates nothing */
        assert_true(c.spec.layers[0].attention.head_size > DIM && c.spec.num_layers > 1);
        assert_int_equal(rope_rotary_dim(&c.spec, 0), DIM);
        rope_table(&c.spec, 0, POSITIONS, part[0], NULL);
        c.spec.layers[0].attention.head_size = DIM;
        rope_table(&c.spec, 0, POSITIONS, whole[0], NULL);
        assert_memory_equal(part, whole, sizeof part);
        assert_true(part[1][0] != 0 && part[1][DIM - 1] != 0);
    }
}

static void test_rope_refused(void **state)
{
    static const struct {
        const char *scaling;
        enum status status;
        const char *words;
    } cases[] = {
        {"{\"type\":\"longrope\"}", STATUS_INVALID,
         "short_factor must be an array of 8 numbers, one for each pair, found none"},
        {"{\"type\":\"longrope\",\"short_factor\":[1,1,1,1,1,1,1]}", STATUS_INVALID,
         "short_factor must be an array of 8 numbers, one for each pair, found [1,"},
        {"{\"type\":\"longrope\",\"short_factor\":[1,1,1,1,1,1,1,0]}", STATUS_INVALID, "short_factor must be a number"},
        {"{\"type\":\"longrope\",\"short_factor\":[1,1,1,1,1,1,1,1],\"long_factor\":1}", STATUS_INVALID,
         "long_factor must be an array of 8 numbers"},
        {"{\"type\":\"su\",\"factor\":2}", STATUS_UNSUPPORTED, "rope_type \"su\" is not supported"},
        {"{\"rope_type\":\"proportionate\"}", STATUS_UNSUPPORTED, "rope_type \"proportionate\""},
        {"{\"type\":3}", STATUS_INVALID, "type must be a string"},
        {"{\"type\":\"dynamic\",\"alpha\":1000,\"factor\":1}", STATUS_UNSUPPORTED, "alpha is set"},
        {"{\"full_attention\":{\"rope_type\":\"default\"}}", STATUS_UNSUPPORTED, "full_attention is set"},
        {"{\"type\":\"default\",\"partial_rotary_factor\":0.5}", STATUS_UNSUPPORTED, "partial_rotary_factor is 0.5"},
        {"{\"type\":\"linear\"}", STATUS_INVALID, "factor is missing"},
        {"{\"type\":\"dynamic\",\"factor\":null}", STATUS_INVALID, "factor is missing"},
        {"{\"type\":\"linear\",\"factor\":\"2\"}", STATUS_INVALID, "factor must be a number"},
        {"{\"type\":\"linear\",\"factor\":0}", STATUS_INVALID, "factor must be a number"},
        {"{\"type\":\"linear\",\"factor\":-2}", STATUS_INVALID, "factor must be a number"},
        {"{\"type\":\"llama3\",\"factor\":8,\"high_freq_factor\":4}", STATUS_INVALID, "low_freq_factor is missing"},
        {"{\"type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1}", STATUS_INVALID, "high_freq_factor is missing"},
        {"{\"type\":\"llama3\",\"low_freq_factor\":1,\"high_freq_factor\":4}", STATUS_INVALID, "factor is missing"},
        {"{\"type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":2}", STATUS_INVALID,
         "high_freq_factor (2) must not be less than low_freq_factor"},
        {"{\"type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":0}", STATUS_INVALID,
         "original_max_position_embeddings must be"},
        {"{\"type\":\"yarn\",\"factor\":4,\"beta_fast\":1,\"beta_slow\":2}", STATUS_INVALID, "beta_fast (1) must not"},
        {"{\"type\":\"yarn\",\"factor\":4,\"attention_factor\":0}", STATUS_INVALID, "attention_factor must be"},
        {"{\"type\":\"yarn\",\"factor\":4,\"truncate\":1}", STATUS_INVALID, "truncate must be true or false"},
        {"{\"type\":\"yarn\",\"factor\":4,\"mscale\":\"1\"}", STATUS_INVALID, "mscale must be a number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char extra[256], words[128];
        snprintf(extra, sizeof extra, "\"rope_scaling\":%s", cases[i].scaling);
        snprintf(words, sizeof words, "rope_scaling.%s", cases[i].words);
        /* the message may name the type's key either way */
        refuse(*state, LLAMA, extra, cases[i].status, words);
        snprintf(extra, sizeof extra, "\"rope_parameters\":%s", cases[i].scaling);
        snprintf(words, sizeof words, "rope_parameters.%s", cases[i].words);
        refuse(*state, LLAMA, extra, cases[i].status, words);
    }
    refuse(*state, LLAMA, "\"head_dim\":2,\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}", STATUS_INVALID,
           "needs a head_dim greater than 2");
}

/* Rows of the table at the file's positions, which follow row `first`, against transformers'. An angle is a float32
 * product of the position and a frequency that may differ in the last bit, so the tolerance grows with the
 * position. */
static void compare_rows(const char *name, const float *first, int32_t dim, const json_t *positions,
                         const json_t *expected)
{
    assert_int_equal(json_array_size(expected), json_array_size(positions));
    for (size_t i = 0; i < json_array_size(positions); i++) {
        const int64_t position = json_integer_value(json_array_get(positions, i));
        const json_t *row = json_array_get(expected, i);
        assert_int_equal(json_array_size(row), dim);
        for (int32_t k = 0; k < dim; k++) {
            const double want = json_number_value(json_array_get(row, (size_t)k));
            const double got = first[position * dim + k];
            if (!(fabs(got - want) <= 5e-7 + 3e-7 * (double)position))
                fail_msg("%s: position %lld, element %d: expected %.9g, found %.9g", name, (long long)position, k, want,
                         got);
        }
    }
}

/* A case of rope.json. "long_table" is there if the model has a switch before the last of the positions. */
static void compare_table(const struct model_config *config, const json_t *positions, const json_t *golden)
{
    const char *name = json_string_value(json_object_get(golden, "name"));
    const json_t *long_table = json_object_get(golden, "long_table");
    const int32_t length = 1 + (int32_t)json_integer_value(json_array_get(positions, json_array_size(positions) - 1));
    const int32_t rows = rope_table_rows(&config->spec, length), dim = rope_rotary_dim(&config->spec, 0);
    float *table = malloc((size_t)rows * (size_t)dim * sizeof *table);
    assert_non_null(table);
    rope_table(&config->spec, 0, length, table, NULL);
    compare_rows(name, table, dim, positions, json_object_get(golden, "table"));
    assert_int_equal(rows, long_table ? 2 * length : length);
    if (long_table) compare_rows(name, table + (int64_t)length * dim, dim, positions, long_table);
    free(table);
}

static void test_rope_golden(void **state)
{
    const struct temp_folder *folder = *state;
    json_error_t problem;
    json_t *root = json_load_file(QUIRE_TEST_DATA "/golden/rope.json", 0, &problem);
    assert_non_null(root);
    const json_t *cases = json_object_get(root, "cases"), *positions = json_object_get(root, "positions");
    unsigned types = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i);
        const char *name = json_string_value(json_object_get(c, "name"));
        char *text = json_dumps(json_object_get(c, "config"), 0);
        struct model_config config;
        struct error err = {""};
        temp_folder_write_string(folder, "config.json", text);
        free(text);
        if (model_config_load(folder->path, NULL, NULL, &config, &err) != STATUS_OK) fail_msg("%s: %s", name, err.text);
        types |= 1u << config.spec.ropes[0].type;
        compare_table(&config, positions, c);
    }
    assert_int_equal(types, 63); /* every type was there */
    json_decref(root);
}

/* --- generation_config.json --- */

static void test_generation(void **state)
{
    const struct temp_folder *folder = *state;
    temp_folder_write_string(folder, "generation_config.json",
                             "{\"do_sample\":true,\"temperature\":0.6,\"top_p\":0.9,\"top_k\":50,\"min_p\":0.05,"
                             "\"repetition_penalty\":1.1,\"max_new_tokens\":2048,\"eos_token_id\":[2,7,9],"
                             "\"bos_token_id\":5,\"pad_token_id\":0}");
    struct model_config c = accept(folder, LLAMA, "\"eos_token_id\":2");
    assert_true(c.generation.present && c.generation.do_sample_given && c.generation.do_sample);
    assert_true(c.generation.temperature == 0.6 && c.generation.top_p == 0.9 && c.generation.min_p == 0.05);
    assert_true(c.generation.repetition_penalty == 1.1);
    assert_int_equal(c.generation.top_k, 50);
    assert_int_equal(c.generation.max_new_tokens, 2048);
    assert_int_equal(c.num_eos, 3);
    assert_int_equal(c.eos_token_ids[0], 2);
    assert_int_equal(c.eos_token_ids[2], 9);
    temp_folder_write_string(folder, "generation_config.json", "{\"eos_token_id\":4,\"temperature\":null}");
    c = accept(folder, LLAMA, "");
    assert_true(c.generation.present && !c.generation.do_sample_given);
    assert_true(isnan(c.generation.temperature));
    assert_int_equal(c.num_eos, 1);
}

/* A bad value counts as none (test_bad_checkpoints has the warnings), a bad file is refused. */
static void test_bad_generation(void **state)
{
    const struct temp_folder *folder = *state;
    static const char *const files[][2] = {{"", "is empty"}, {"{", "not valid JSON"}, {"[]", "expected a JSON object"}};
    static const char *const values[] = {"\"do_sample\":1",      "\"temperature\":-1",  "\"temperature\":\"0.6\"",
                                         "\"top_p\":0",          "\"top_p\":1.5",       "\"min_p\":2",
                                         "\"top_k\":-2",         "\"top_k\":1.5",       "\"repetition_penalty\":0",
                                         "\"max_new_tokens\":0", "\"eos_token_id\":{}", "\"eos_token_id\":\"2\""};
    accept(folder, LLAMA, "");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        temp_folder_write_string(folder, "generation_config.json", files[i][0]);
        check_refusal(folder, STATUS_INVALID, "generation_config.json", files[i][1]);
    }
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char text[64];
        snprintf(text, sizeof text, "{%s}", values[i]);
        temp_folder_write_string(folder, "generation_config.json", text);
        const struct model_config c = accept(folder, LLAMA, "");
        const struct generation_config *g = &c.generation;
        assert_true(g->present && !g->do_sample_given && !g->do_sample);
        assert_true(isnan(g->temperature) && isnan(g->top_p) && isnan(g->min_p) && isnan(g->repetition_penalty));
        assert_true(g->top_k == -1 && g->max_new_tokens == -1 && c.num_eos == 0);
    }
    temp_folder_write_string(folder, "generation_config.json",
                             "{\"temperature\":\"0.6\",\"top_p\":0.5,\"top_k\":-2,\"min_p\":0.25,\"eos_token_id\":7}");
    const struct model_config c = accept(folder, LLAMA, "");
    assert_true(isnan(c.generation.temperature) && c.generation.top_p == 0.5 && c.generation.min_p == 0.25);
    assert_true(c.generation.top_k == -1 && c.num_eos == 1);
}

static void test_generation_of_another_folder(void **state)
{
    const struct temp_folder *folder = *state;
    struct temp_folder other;
    struct model_config c;
    struct error err;
    accept(folder, LLAMA, "\"eos_token_id\":2");
    temp_folder_make(&other);
    temp_folder_write_string(folder, "generation_config.json", "{\"temperature\":0.6,\"eos_token_id\":7}");
    assert_int_equal(model_config_load(folder->path, other.path, NULL, &c, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "there is no generation_config.json"));
    temp_folder_write_string(&other, "generation_config.json", "{\"temperature\":0.8,\"eos_token_id\":9}");
    assert_int_equal(model_config_load(folder->path, other.path, NULL, &c, &err), STATUS_OK);
    assert_true(c.generation.temperature == 0.8 && c.num_eos == 2 && c.eos_token_ids[1] == 9);
    assert_int_equal(model_config_load(folder->path, "auto", NULL, &c, &err), STATUS_OK);
    assert_true(c.generation.temperature == 0.6 && c.num_eos == 2 && c.eos_token_ids[1] == 7);
    /* vLLM takes the end-of-sequence ids all the same */
    assert_int_equal(model_config_load(folder->path, "vllm", NULL, &c, &err), STATUS_OK);
    assert_true(!c.generation.present && isnan(c.generation.temperature));
    assert_true(c.num_eos == 2 && c.eos_token_ids[1] == 7);
    temp_folder_remove(&other);
}

/* A file that is there but cannot be read is never taken for one that is absent, and never waited for. */
static void test_strange_files(void **state)
{
    const struct temp_folder *folder = *state;
    static const char *const names[] = {"config.json", "generation_config.json"};
    char path[512];
    for (int i = 0; i < 2; i++) {
        accept(folder, LLAMA, "");
        temp_folder_delete(folder, names[i]);
        snprintf(path, sizeof path, "%s/%s", folder->path, names[i]);
        alarm(20); /* a named pipe without a writer would block for ever */
        assert_int_equal(mkfifo(path, 0600), 0);
        check_refusal(folder, STATUS_IO, names[i], "not a regular file but a named pipe");
        assert_int_equal(unlink(path), 0);
        assert_int_equal(mkdir(path, 0700), 0);
        check_refusal(folder, STATUS_IO, names[i], "not a regular file but a folder");
        assert_int_equal(rmdir(path), 0);
        assert_int_equal(symlink("gone", path), 0);
        check_refusal(folder, STATUS_IO, names[i], "a symbolic link to a file that does not exist");
        assert_int_equal(unlink(path), 0);
        alarm(0);
    }
}

/* --- Mutations --- */

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void test_mutations(void **state)
{
    const struct temp_folder *folder = *state;
    static const char *const words[] = {"null", "true", "-1", "0", "1e9", "{}", "[]", "\"x\"", "4096", "0.5"};
    const char *json = "{" LLAMA ",\"num_key_value_heads\":2,\"head_dim\":16,\"max_position_embeddings\":256,"
                       "\"rms_norm_eps\":0.001,\"eos_token_id\":[1,2],\"layer_types\":null,"
                       "\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":4.0,\"rope_theta\":10000.0,"
                       "\"original_max_position_embeddings\":64,\"beta_fast\":32,\"beta_slow\":1,\"mscale\":0.7},"
                       "\"dtype\":\"float16\",\"sliding_window\":null}";
    uint64_t random = 11400714819323198485u;
    int loaded = 0;
    for (int round = 0; round < 4000; round++) {
        struct text file = {0};
        assert_true(text_append_string(&file, json));
        for (uint64_t n = 1 + next_random(&random) % 2; n > 0; n--) {
            const size_t at = next_random(&random) % file.length;
            const char *word = words[next_random(&random) % (sizeof words / sizeof *words)];
            if (next_random(&random) % 2) {
                file.data[at] = (char)next_random(&random);
                continue;
            }
            for (size_t i = 0; word[i] && at + i < file.length; i++) file.data[at + i] = word[i];
        }
        temp_folder_write(folder, "config.json", file.data, file.length);
        text_free(&file);
        struct model_config config;
        struct error err = {""};
        if (model_config_load(folder->path, NULL, NULL, &config, &err) != STATUS_OK) {
            assert_non_null(strstr(err.text, "config.json"));
            continue;
        }
        const int32_t count = rope_table_rows(&config.spec, 4) * rope_rotary_dim(&config.spec, 0);
        float *table = malloc((size_t)count * sizeof *table);
        assert_non_null(table);
        rope_table(&config.spec, 0, 4, table, NULL);
        for (int32_t i = 0; i < count; i++) assert_true(isfinite(table[i]));
        free(table);
        loaded++;
    }
    assert_true(loaded > 0 && loaded < 4000);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, temp_folder_setup, temp_folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_defaults),
        TEST(test_values),
        TEST(test_null_is_absent),
        TEST(test_architecture),
        TEST(test_several_architectures),
        TEST(test_llama_under_other_keys),
        TEST(test_unsupported),
        TEST(test_multimodal),
        TEST(test_mistral),
        TEST(test_llama_window),
        TEST(test_use_sliding_window_is_ignored),
        TEST(test_dtype),
        TEST(test_eos),
        TEST(test_refused_by_a_family),
        TEST(test_default_num_kv_heads),
        TEST(test_arithmetic_of_families),
        TEST(test_opt),
        TEST(test_alibi),
        TEST(test_learned_positions),
        TEST(test_model_max_length),
        TEST(test_qwen_windows),
        TEST(test_two_ropes),
        TEST(test_granite4),
        TEST(test_mamba2),
        TEST(test_falcon_h1),
        TEST(test_olmo_hybrid),
        TEST(test_nemotron_h),
        TEST(test_lfm2),
        TEST(test_gpt_oss),
        TEST(test_afmoe),
        TEST(test_layer_rope_theta),
        TEST(test_qwen_experts),
        TEST(test_experts),
        TEST(test_deepseek_routers),
        TEST(test_deepseek_v2),
        TEST(test_deepseek_v3),
        TEST(test_kimi_linear),
        TEST(test_minimax),
        TEST(test_latent_families),
        TEST(test_exaone_moe),
        TEST(test_dbrx),
        TEST(test_granitemoe_swa),
        TEST(test_hy_v3),
        TEST(test_mellum),
        TEST(test_laguna),
        TEST(test_mimo),
        TEST(test_ernie_mtp),
        TEST(test_qwen_mtp),
        TEST(test_mimo_v2),
        TEST(test_step3p5),
        TEST(test_step3p5_of_transformers),
        TEST(test_step3p5_refusals),
        TEST(test_minimax_m2),
        TEST(test_llama4),
        TEST(test_ministral3),
        TEST(test_hunyuan_moe),
        TEST(test_cohere2_moe),
        TEST(test_phimoe),
        TEST(test_experts_of_multimodal),
        TEST(test_longrope),
        TEST(test_longrope_beside_another),
        TEST(test_missing_sizes),
        TEST(test_wrong_sizes),
        TEST(test_sizes_that_do_not_fit),
        TEST(test_wrong_types),
        TEST(test_not_json),
        TEST(test_refused_keys),
        TEST(test_ignored_keys),
        TEST(test_rope_values),
        TEST(test_rope_precedence),
        TEST(test_rope_of_a_part),
        TEST(test_rope_refused),
        TEST(test_rope_golden),
        TEST(test_generation),
        TEST(test_bad_generation),
        TEST(test_generation_of_another_folder),
        TEST(test_strange_files),
        TEST(test_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
