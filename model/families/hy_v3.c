/* Hunyuan 3 (Tencent, 2026): QK norm, and behind a dense layer a mixture of experts, chosen by sigmoids with a bias,
 * beside shared ones. */
#include "model/families/families.h"

static struct experts_spec read_experts(struct json_reader *r)
{
    static const struct experts_keys keys = {.num_experts = {"num_experts", "num_local_experts"},
                                             .size = "moe_intermediate_size",
                                             .absent_num_experts = 192,
                                             .absent_top_k = 8,
                                             .absent_size = 1536};
    struct experts_spec experts = family_read_sigmoid_experts(r, &keys);
    experts.router.scaling = (float)json_reader_number(r, "router_scaling_factor", 2.826, 1e-6, 1e6);
    return experts;
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {
        .max_position = 131072, .num_kv_heads = 8, .head_size = 128, .norm_eps = 1e-5};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    const struct experts_spec experts = read_experts(r);
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.attention.qk_norm = QK_NORM_HEAD;
    layer.mlp.bias = json_reader_bool(r, "mlp_bias", false);
    family_set_layers(spec, &layer);
    family_set_listed_experts(r, spec, &experts, 1,
                              json_reader_int(r, "num_shared_experts", 1, 1, 1 << 10) * experts.intermediate_size);
    spec->names.router = "mlp.router.gate";
    spec->names.choice_bias = "mlp.expert_bias";
    spec->names.shared = "mlp.shared_mlp";
}

const struct family family_hy_v3 = {.model_type = "hy_v3",
                                    .architecture = "HYV3ForCausalLM",
                                    .read = read,
                                    .rope_theta = 11158840,
                                    .reads = "attention_bias mlp_bias num_experts num_local_experts",
                                    .ignores = "qk_norm"};
