/* AFMoE, Trinity (Arcee, 2025): a mixture of experts with norms before and after each sublayer, QK norm, and output
 * gates. Windows in three of four layers, which alone are rotated. */
#include <math.h>

#include "model/families/families.h"

static struct experts_spec read_experts(struct json_reader *r)
{
    static const struct experts_keys keys = {.num_experts = {"num_experts"},
                                             .size = "moe_intermediate_size",
                                             .absent_num_experts = 64,
                                             .absent_top_k = 6,
                                             .absent_size = 1408};
    struct experts_spec experts = family_read_sigmoid_experts(r, &keys);
    experts.router.scaling = (float)json_reader_number(r, "route_scale", 1, 1e-6, 1e6);
    return experts;
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {.max_position = 16384, .head_size = 128, .norm_eps = 1e-5};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    const struct experts_spec experts = read_experts(r);
    const int32_t dense = json_reader_int(r, "num_dense_layers", 1, 0, INT32_MAX);
    const int32_t shared = json_reader_int(r, "num_shared_experts", 2, 1, 1024);
    layer.norm_placement = NORM_AROUND;
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.attention.qk_norm = QK_NORM_HEAD;
    layer.attention.output_gate = OUTPUT_GATE_SIGMOID;
    family_set_layers(spec, &layer);
    family_read_windows(r, 1024, json_reader_int(r, "global_attn_every_n_layers", 4, 1, INT32_MAX), spec);
    for (int32_t i = 0; i < spec->num_layers; i++) {
        if (spec->layers[i].attention.window == 0) spec->layers[i].attention.rotary_dim = 0;
        if (i >= dense) family_set_experts(spec, i, &experts, shared * experts.intermediate_size);
    }
    if (json_reader_bool(r, "mup_enabled", false)) spec->embedding_multiplier = sqrt(spec->hidden_size);
    spec->names.mlp_norm = "pre_mlp_layernorm";
    spec->names.post_mlp_norm = "post_mlp_layernorm";
    spec->names.output_gate = "gate_proj";
    spec->names.router = "mlp.router.gate";
    spec->names.choice_bias = "mlp.expert_bias";
    spec->names.shared = "mlp.shared_experts";
}

const struct family family_afmoe = {.model_type = "afmoe",
                                    .architecture = "AfmoeForCausalLM",
                                    .read = read,
                                    .reads = "attention_bias num_experts sliding_window layer_types",
                                    .ignores = "use_sliding_window"};
