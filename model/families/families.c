#include "model/families/families.h"

#include <stdio.h>
#include <string.h>

#include "base/words.h"
#include "model/families/known_keys.h"

static const struct family *const families[] = {
    &family_afmoe,
    &family_apertus,
    &family_arcee,
    &family_bamba,
    &family_bloom,
    &family_cohere,
    &family_cohere2,
    &family_cohere2_moe,
    &family_cwm,
    &family_dbrx,
    &family_deepseek_v2,
    &family_deepseek_v3,
    &family_dots1,
    &family_ernie4_5,
    &family_ernie4_5_moe,
    &family_exaone,
    &family_exaone4,
    &family_exaone_moe,
    &family_falcon,
    &family_falcon_h1,
    &family_flex_olmo,
    &family_gemma,
    &family_gemma2,
    &family_gemma3,
    &family_gemma4,
    &family_glm,
    &family_glm4,
    &family_glm4_moe,
    &family_glm4_moe_lite,
    &family_glm4v,
    &family_glm4v_moe,
    &family_gpt2,
    &family_gpt_bigcode,
    &family_gpt_neox,
    &family_gpt_oss,
    &family_gptj,
    &family_granite,
    &family_granite4,
    &family_granite4_vision,
    &family_granite_swa,
    &family_granitemoe,
    &family_granitemoe_swa,
    &family_granitemoeshared,
    &family_helium,
    &family_hunyuan_v1_dense,
    &family_hunyuan_v1_moe,
    &family_hy_v3,
    &family_hyperclovax,
    &family_internlm3,
    &family_iquestcoder,
    &family_jais2,
    &family_kimi_k2,
    &family_kimi_linear,
    &family_laguna,
    &family_lfm2,
    &family_lfm2_moe,
    &family_llama,
    &family_llama4,
    &family_llama_eagle3,
    &family_mellum,
    &family_mimo,
    &family_mimo_v2_flash,
    &family_minicpm3,
    &family_minimax,
    &family_minimax_m1,
    &family_minimax_m2,
    &family_minimax_text_01,
    &family_ministral,
    &family_ministral3,
    &family_mistral,
    &family_mistral4,
    &family_mixtral,
    &family_mpt,
    &family_nanochat,
    &family_nemotron,
    &family_nemotron_h,
    &family_olmo,
    &family_olmo2,
    &family_olmo3,
    &family_olmoe,
    &family_opt,
    &family_persimmon,
    &family_phi,
    &family_phi3,
    &family_phimoe,
    &family_qwen2,
    &family_qwen2_5_vl,
    &family_qwen2_moe,
    &family_qwen2_vl,
    &family_qwen3,
    &family_qwen3_5,
    &family_qwen3_5_moe,
    &family_qwen3_moe,
    &family_qwen3_next,
    &family_qwen3_vl,
    &family_qwen3_vl_moe,
    &family_seed_oss,
    &family_smollm3,
    &family_solar_open,
    &family_stablelm,
    &family_starcoder2,
    &family_step3p5,
    &family_vaultgemma,
    &family_youtu,
};
enum { NUM_FAMILIES = sizeof families / sizeof *families };

/* --- Which family a file is of --- */

/* "a, b and c": every family's model_type. */
struct family_names {
    char text[2048];
};

static struct family_names list_families(void)
{
    struct family_names names = {""};
    for (int i = 0; i < NUM_FAMILIES; i++) {
        if (families[i]->is_head) continue;
        const size_t n = strlen(names.text);
        const char *between = i == 0 ? "" : i == NUM_FAMILIES - 1 ? " and " : ", ";
        snprintf(names.text + n, sizeof names.text - n, "%s%s", between, families[i]->model_type);
    }
    return names;
}

static const struct family *find_model_type(struct json_reader *r)
{
    const char *name = json_reader_string(r, "model_type", NULL);
    if (!name) return NULL;
    for (int i = 0; i < NUM_FAMILIES; i++)
        if (strcmp(name, families[i]->model_type) == 0 && !families[i]->is_head) return families[i];
    const struct missing_parts missing = family_missing_parts(name);
    if (*missing.text) {
        json_reader_fail(r, STATUS_UNSUPPORTED, "%smodel_type is \"%s\"; what quire lacks for it: %s", r->prefix, name,
                         missing.text);
    } else {
        json_reader_fail(r, STATUS_UNSUPPORTED, "%smodel_type is \"%s\"; quire runs %s", r->prefix,
                         show_string(name).text, list_families().text);
    }
    return NULL;
}

static bool has_architecture(const struct family *family, const char *name)
{
    return strcasecmp(name, family->architecture) == 0 ||
           (family->is_llama_class && strcasecmp(name, family_llama.architecture) == 0);
}

/* The architectures of a file, of which `by_type`'s counts if it is among them, and else the first. Old files of Llama
 * have "LLaMAForCausalLM". */
static const struct family *find_architecture(struct json_reader *r, const struct family *by_type)
{
    const json_t *list = json_reader_get(r, "architectures"), *value;
    const char *name = json_string_value(json_array_get(list, 0));
    size_t at;
    if (!list || (json_is_array(list) && json_array_size(list) == 0)) return NULL;
    if (!name) {
        json_reader_expected(r, "architectures", "an array of strings", list);
        return NULL;
    }
    json_array_foreach(list, at, value)
    {
        if (by_type && json_is_string(value) && has_architecture(by_type, json_string_value(value))) return by_type;
    }
    for (int i = 0; i < NUM_FAMILIES; i++)
        if (strcasecmp(name, families[i]->architecture) == 0) return families[i];
    json_reader_fail(r, STATUS_UNSUPPORTED, "architectures names \"%s\"; quire runs the causal language models of %s",
                     show_string(name).text, list_families().text);
    return NULL;
}

static const struct family *find(struct json_reader *r)
{
    const struct family *by_type = find_model_type(r), *by_architecture = find_architecture(r, by_type);
    if (by_architecture && by_type && strcmp(by_architecture->model_type, by_type->model_type) != 0)
        json_reader_fail(r, STATUS_INVALID, "model_type \"%s\" and architectures \"%s\" contradict each other",
                         by_type->model_type, by_architecture->architecture);
    if (by_architecture) return by_architecture;
    if (by_type) return by_type;
    json_reader_fail(r, STATUS_INVALID, "the key model_type is missing");
    return families[0];
}

/* Mistral with layer_types is Ministral, as for transformers. */
const struct family *family_find(struct json_reader *r)
{
    const struct family *family = find(r);
    return family == &family_mistral && json_reader_get(r, "layer_types") ? &family_ministral : family;
}

/* --- What the file says --- */

static void read_dtype(struct json_reader *r, enum dtype absent, struct model_spec *spec)
{
    const char *key = json_reader_get(r, "dtype") ? "dtype" : "torch_dtype";
    const char *name = json_reader_string(r, key, dtype_name(absent));
    if (strncmp(name, "torch.", 6) == 0) name += 6;
    if (dtype_parse(name, &spec->dtype) != 0 || dtype_size(spec->dtype) == 1)
        json_reader_fail(r, STATUS_UNSUPPORTED, "%s is \"%s\", but quire computes in float32, float16 or bfloat16", key,
                         show_string(name).text);
}

static void check_attention(struct json_reader *r, const struct model_spec *spec)
{
    for (int32_t i = 0; i < spec->num_layers; i++)
        if (spec->layers[i].mixer == MIXER_ATTENTION || spec->layers[i].mixer == MIXER_LATENT) return;
    json_reader_fail(r, STATUS_UNSUPPORTED,
                     "no layer has attention; quire computes models with at least one such layer");
}

static const char *num_next_layers_key(const struct family *family)
{
    return family->num_next_layers_key ? family->num_next_layers_key : "num_nextn_predict_layers";
}

void family_read_spec(struct json_reader *r, const struct family *family, struct model_spec *spec)
{
    *spec = (struct model_spec){
        .embedding_multiplier = 1,
        .logits_multiplier = 1,
        .names = tensor_names_llama,
        .num_ropes = 1,
    };
    family->read(r, spec);
    check_attention(r, spec);
    family_read_rope(r, family, spec);
    read_dtype(r, family->dtype, spec);
    spec->num_next_layers =
        json_reader_int(r, num_next_layers_key(family), family->absent_num_next_layers, 0, MODEL_MAX_LAYERS);
    known_keys_check(r, family->model_type, family->reads, family->ignores, spec);
    if (!words_have(family->reads, "layer_types") && !words_have(family->ignores, "layer_types"))
        family_check_layer_types(r, spec);
}

void family_read_mtp(struct json_reader *r, const struct family *family, struct model_spec *spec)
{
    family_read_spec(r, family, spec);
    if (!family->make_mtp)
        json_reader_fail(r, STATUS_UNSUPPORTED, "quire computes no layers of %s that predict further tokens",
                         family->model_type);
    else if (spec->num_next_layers == 0)
        json_reader_fail(r, STATUS_UNSUPPORTED, "%s is 0: the model has no layers that predict further tokens",
                         num_next_layers_key(family));
    if (r->status != STATUS_OK) return;
    family->make_mtp(r, spec);
    spec->num_next_layers = 0;
}
