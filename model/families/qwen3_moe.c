/* Qwen3, mixtures of experts (Yang et al., 2025): Qwen3-30B-A3B, Qwen3-235B-A22B, Qwen3-Coder. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    static const struct experts_keys keys = {.num_experts = {"num_experts", "num_local_experts"},
                                             .size = "moe_intermediate_size",
                                             .absent_num_experts = 128,
                                             .absent_top_k = 8,
                                             .absent_size = 768};
    struct layer_spec layer =
        family_read_llama(r, &(struct size_defaults){.max_position = 32768, .num_kv_heads = 4}, spec);
    struct experts_spec experts = family_read_experts(r, &keys);
    experts.router.normalize = json_reader_bool(r, "norm_topk_prob", false);
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.attention.qk_norm = QK_NORM_HEAD;
    if (json_reader_bool(r, "use_sliding_window", false)) layer.attention.window = family_read_window(r, 4096);
    family_set_layers(spec, &layer);
    family_set_qwen_experts(r, spec, &experts, 0);
}

const struct family family_qwen3_moe = {
    .model_type = "qwen3_moe",
    .architecture = "Qwen3MoeForCausalLM",
    .read = read,
    .reads = "attention_bias sliding_window use_sliding_window num_experts num_local_experts"};
