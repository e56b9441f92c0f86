/* OLMo 2 (OLMo Team, 2024): norms after each sublayer instead of before, and of all heads of queries and of keys at
 * once. FlexOlmo (Shi et al., 2025) has experts in place of the MLP. */
#include "model/families/families.h"

static struct layer_spec read_layer(struct json_reader *r, const struct size_defaults *defaults,
                                    struct model_spec *spec)
{
    struct layer_spec layer = family_read_llama(r, defaults, spec);
    layer.norm_placement = NORM_AFTER;
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.attention.qk_norm = QK_NORM_PROJECTION;
    return layer;
}

void family_read_olmo2(struct json_reader *r, struct model_spec *spec)
{
    const struct layer_spec layer =
        read_layer(r, &(struct size_defaults){.max_position = 2048, .norm_eps = 1e-5}, spec);
    family_set_layers(spec, &layer);
}

static void read_flex_olmo(struct json_reader *r, struct model_spec *spec)
{
    static const struct experts_keys keys = {.num_experts = {"num_experts", "num_local_experts"},
                                             .size = "intermediate_size",
                                             .absent_num_experts = 7,
                                             .absent_top_k = 5};
    struct layer_spec layer = read_layer(r, &(struct size_defaults){.max_position = 4096}, spec);
    layer.experts = family_read_experts(r, &keys);
    layer.experts.router.normalize = json_reader_bool(r, "norm_topk_prob", false);
    layer.mlp.intermediate_size = 0;
    family_set_layers(spec, &layer);
}

const struct family family_flex_olmo = {.model_type = "flex_olmo",
                                        .architecture = "FlexOlmoForCausalLM",
                                        .read = read_flex_olmo,
                                        .rope_theta = 5e5,
                                        .reads = "attention_bias num_experts num_local_experts"};
const struct family family_olmo2 = {
    .model_type = "olmo2", .architecture = "Olmo2ForCausalLM", .read = family_read_olmo2, .reads = "attention_bias"};
