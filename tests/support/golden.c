#include "tests/support/golden.h"

#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

const char *const golden_checkpoints[] = {
    "afmoe",
    "apertus",
    "arcee",
    "bamba",
    "bloom",
    "cohere",
    "cohere2",
    "cohere2_moe",
    "cwm",
    "dbrx",
    "deepseek_v2",
    "deepseek_v3",
    "dots1",
    "ernie4_5",
    "ernie4_5_moe",
    "exaone",
    "exaone4",
    "exaone_moe",
    "falcon",
    "falcon_alibi",
    "falcon_h1",
    "falcon_two_norms",
    "flex_olmo",
    "gemma",
    "gemma2",
    "gemma3",
    "gemma3_vision",
    "gemma4",
    "gemma4_e",
    "gemma4_moe",
    "glm",
    "glm4",
    "glm4_moe",
    "glm4_moe_lite",
    "glm4v",
    "glm4v_moe",
    "gpt2",
    "gpt_bigcode",
    "gpt_neox",
    "gpt_oss",
    "gptj",
    "gqa",
    "granite",
    "granite4",
    "granite4_h",
    "granite4_h_moe",
    "granite4_moe",
    "granite_swa",
    "granitemoe",
    "granitemoe_swa",
    "granitemoeshared",
    "helium",
    "hunyuan_v1_dense",
    "hunyuan_v1_moe",
    "hy_v3",
    "hyperclovax",
    "internlm3",
    "iquestcoder",
    "jais2",
    "kimi_linear",
    "laguna",
    "lfm2",
    "lfm2_moe",
    "llama4",
    "llava",
    "many_channels",
    "many_experts",
    "many_groups",
    "many_heads",
    "many_norms",
    "mellum",
    "mha",
    "mimo",
    "mimo_v2",
    "minicpm3",
    "minimax",
    "minimax_m2",
    "ministral",
    "ministral3",
    "mistral3",
    "mistral4",
    "mixtral",
    "mpt",
    "mqa",
    "nanochat",
    "nemotron",
    "nemotron_h",
    "nemotron_h_latent",
    "nemotron_h_moe",
    "olmo",
    "olmo2",
    "olmo3",
    "olmo_hybrid",
    "olmoe",
    "opt",
    "persimmon",
    "phi",
    "phi3",
    "phi4",
    "phimoe",
    "phi_qk_norm",
    "qwen2",
    "qwen2_5_vl",
    "qwen2_moe",
    "qwen3",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_moe",
    "qwen3_next",
    "qwen3_vl",
    "qwen3_vl_moe",
    "seed_oss",
    "sliding",
    "smollm3",
    "smolvlm",
    "solar_open",
    "stablelm",
    "stablelm_parallel",
    "starcoder2",
    "step3p7",
    "vaultgemma",
    "yarn",
    "youtu",
};
const int golden_num_checkpoints = sizeof golden_checkpoints / sizeof *golden_checkpoints;

static const char *const x_rounding_names[NUM_X_ROUNDINGS] = {"int8 token", "fp8 token", "fp8 group", "int8 group"};

static int32_t *copy_ids(const json_t *array, int32_t *count)
{
    *count = (int32_t)json_array_size(array);
    int32_t *ids = calloc((size_t)*count + 1, sizeof *ids);
    for (int32_t i = 0; ids && i < *count; i++) ids[i] = (int32_t)json_integer_value(json_array_get(array, (size_t)i));
    return ids;
}

static float *copy_numbers(const json_t *array)
{
    const size_t count = json_array_size(array);
    float *numbers = calloc(count + 1, sizeof *numbers);
    for (size_t i = 0; numbers && i < count; i++) numbers[i] = (float)json_number_value(json_array_get(array, i));
    return numbers;
}

/* The case's arrays, and its place in the logits; false where they do not fit together. */
static bool read_case(const json_t *object, const struct golden *golden, size_t num_logits, struct golden_case *c)
{
    const int64_t offset = json_integer_value(json_object_get(object, "logits_offset"));
    c->prompt = copy_ids(json_object_get(object, "prompt"), &c->num_prompt);
    c->positions = copy_ids(json_object_get(object, "positions"), &c->num_positions);
    c->greedy = copy_ids(json_object_get(object, "greedy"), &c->num_greedy);
    c->gaps = copy_numbers(json_object_get(object, "gaps"));
    c->logits = golden->logits + offset;
    return c->prompt && c->positions && c->greedy && c->gaps && c->num_prompt && c->num_greedy && offset >= 0 &&
           json_array_size(json_object_get(object, "gaps")) == (size_t)c->num_greedy &&
           (size_t)offset + (size_t)c->num_positions * (size_t)golden->vocab_size <= num_logits;
}

static enum status read_cases(const char *path, const json_t *root, size_t num_logits, struct golden *golden,
                              struct error *err)
{
    const json_t *cases = json_object_get(root, "cases");
    golden->vocab_size = (int32_t)json_integer_value(json_object_get(root, "vocab_size"));
    golden->bfloat16_error = json_number_value(json_object_get(root, "bfloat16_error"));
    for (int i = 0; i < NUM_X_ROUNDINGS; i++)
        golden->x_errors[i] =
            json_number_value(json_object_get(json_object_get(root, "x_errors"), x_rounding_names[i]));
    golden->cases = calloc(json_array_size(cases) + 1, sizeof *golden->cases);
    if (!golden->cases || golden->vocab_size <= 0 || json_array_size(cases) == 0)
        return error_set(err, STATUS_INVALID, "%s: no cases", path);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        golden->num_cases++;
        if (!read_case(json_array_get(cases, i), golden, num_logits, &golden->cases[i]))
            return error_set(err, STATUS_INVALID, "%s: case %zu is not whole", path, i);
    }
    return STATUS_OK;
}

static enum status read_logits(const char *folder, struct golden *golden, size_t *num_logits, struct error *err)
{
    char path[PATH_MAX];
    struct text bytes = {0};
    path_join(path, sizeof path, folder, "golden.bin");
    enum status status = file_read(path, &bytes, err);
    if (status == STATUS_OK) {
        *num_logits = bytes.length / sizeof(float);
        golden->logits = (float *)bytes.data; /* malloc aligns it; the file is little-endian, as the machine is */
    }
    return status;
}

enum status golden_load(const char *folder, struct golden *golden, struct error *err)
{
    char path[PATH_MAX];
    json_error_t problem;
    size_t num_logits = 0;
    *golden = (struct golden){0};
    path_join(path, sizeof path, folder, "golden.json");
    json_t *root = json_load_file(path, 0, &problem);
    if (!root) return error_set(err, STATUS_INVALID, "%s: %s", path, problem.text);
    enum status status = read_logits(folder, golden, &num_logits, err);
    if (status == STATUS_OK) status = read_cases(path, root, num_logits, golden, err);
    json_decref(root);
    if (status != STATUS_OK) golden_free(golden);
    return status;
}

void golden_free(struct golden *golden)
{
    for (int32_t i = 0; i < golden->num_cases; i++) {
        free(golden->cases[i].prompt);
        free(golden->cases[i].positions);
        free(golden->cases[i].greedy);
        free(golden->cases[i].gaps);
    }
    free(golden->cases);
    free(golden->logits);
    *golden = (struct golden){0};
}
