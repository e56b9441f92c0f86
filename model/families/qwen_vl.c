/* The text parts of Qwen2-VL and Qwen2.5-VL, which are Qwen2, and of Qwen3-VL, which is Qwen3, with experts or without.
 * Positions of text are the same on all axes, so that they rotate as in these. */
#include "model/families/families.h"

static void read_qwen2_vl(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec layer =
        family_read_llama(r, &(struct size_defaults){.max_position = 32768, .num_kv_heads = 8, .norm_eps = 1e-5}, spec);
    layer.attention.qkv_bias = true;
    family_set_layers(spec, &layer);
    family_read_qwen_windows(r, 80, spec);
}

static void read_qwen3_vl(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec layer = family_read_llama(
        r, &(struct size_defaults){.max_position = 128000, .num_kv_heads = 32, .head_size = 128}, spec);
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.attention.qk_norm = QK_NORM_HEAD;
    family_set_layers(spec, &layer);
}

static void read_qwen3_vl_moe(struct json_reader *r, struct model_spec *spec)
{
    static const struct experts_keys keys = {.num_experts = {"num_experts", "num_local_experts"},
                                             .size = "moe_intermediate_size",
                                             .absent_num_experts = 60,
                                             .absent_top_k = 4,
                                             .absent_size = 1408};
    const struct size_defaults defaults = {.max_position = 128000, .num_kv_heads = 16, .tie_word_embeddings = true};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    struct experts_spec experts = family_read_experts(r, &keys);
    experts.router.normalize = true;
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.attention.qk_norm = QK_NORM_HEAD;
    family_set_layers(spec, &layer);
    family_set_qwen_experts(r, spec, &experts, 0);
    spec->names.experts = NULL;
    spec->names.expert_gate_up = "mlp.experts.gate_up_proj";
    spec->names.expert_down = "mlp.experts.down_proj";
    spec->names.experts_transposed = true;
    spec->names.quantized_experts = "mlp.experts";
}

const struct family family_qwen2_vl = {.model_type = "qwen2_vl_text",
                                       .architecture = "Qwen2VLForConditionalGeneration",
                                       .read = read_qwen2_vl,
                                       .rope_theta = 1e6,
                                       .reads = "sliding_window use_sliding_window layer_types",
                                       .ignores = "attention_bias qkv_bias",
                                       .sizes = {8192, 29568, 80, 64, 152064}};
const struct family family_qwen2_5_vl = {.model_type = "qwen2_5_vl_text",
                                         .architecture = "Qwen2_5_VLForConditionalGeneration",
                                         .read = read_qwen2_vl,
                                         .rope_theta = 1e6,
                                         .reads = "sliding_window use_sliding_window layer_types",
                                         .ignores = "attention_bias qkv_bias",
                                         .sizes = {8192, 29568, 80, 64, 152064}};
const struct family family_qwen3_vl = {.model_type = "qwen3_vl_text",
                                       .architecture = "Qwen3VLForConditionalGeneration",
                                       .read = read_qwen3_vl,
                                       .rope_theta = 500000,
                                       .reads = "attention_bias",
                                       .sizes = {4096, 22016, 32, 32, 151936}};
const struct family family_qwen3_vl_moe = {.model_type = "qwen3_vl_moe_text",
                                           .architecture = "Qwen3VLMoeForConditionalGeneration",
                                           .read = read_qwen3_vl_moe,
                                           .rope_theta = 500000,
                                           .reads = "attention_bias num_experts num_local_experts",
                                           .sizes = {2048, 5632, 24, 16, 151936}};
