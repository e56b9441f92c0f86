/* Mellum 2 (JetBrains, 2026): Qwen 3's mixture of experts with windows, and a rope of their own for the layers that
 * have one. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    static const struct experts_keys keys = {.num_experts = {"num_experts", "num_local_experts"},
                                             .size = "moe_intermediate_size",
                                             .absent_num_experts = 64,
                                             .absent_top_k = 8,
                                             .absent_size = 896};
    const struct size_defaults defaults = {.max_position = 131072, .num_kv_heads = 4, .head_size = 128, .no_mlp = true};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    struct experts_spec experts = family_read_experts(r, &keys);
    experts.router.normalize = json_reader_bool(r, "norm_topk_prob", true);
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.attention.qk_norm = QK_NORM_HEAD;
    layer.mlp.intermediate_size = json_reader_int(r, "intermediate_size", 7168, 1, 1 << 22);
    family_set_layers(spec, &layer);
    family_read_layer_types(r, family_read_window(r, 1024), spec);
    family_set_two_ropes(spec);
    family_set_listed_experts(r, spec, &experts, 0, 0);
}

const struct family family_mellum = {.model_type = "mellum",
                                     .architecture = "MellumForCausalLM",
                                     .read = read,
                                     .rope_theta = 500000,
                                     .rope_local_theta = 10000,
                                     .reads = "attention_bias sliding_window layer_types num_experts num_local_experts",
                                     .ignores = "use_sliding_window"};
