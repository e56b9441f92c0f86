/* OLMoE (Muennighoff et al., 2024): a norm of all heads of queries and of keys at once. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    static const struct experts_keys keys = {.num_experts = {"num_experts", "num_local_experts"},
                                             .size = "intermediate_size",
                                             .absent_num_experts = 64,
                                             .absent_top_k = 8};
    struct layer_spec layer =
        family_read_llama(r, &(struct size_defaults){.max_position = 4096, .norm_eps = 1e-5}, spec);
    layer.experts = family_read_experts(r, &keys);
    layer.experts.router.normalize = json_reader_bool(r, "norm_topk_prob", false);
    layer.mlp.intermediate_size = 0;
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.attention.qk_norm = QK_NORM_PROJECTION;
    family_set_layers(spec, &layer);
}

const struct family family_olmoe = {.model_type = "olmoe",
                                    .architecture = "OlmoeForCausalLM",
                                    .read = read,
                                    .reads = "attention_bias num_experts num_local_experts"};
