/* Qwen1.5-MoE and Qwen2, mixtures of experts (Yang et al., 2024): beside them an MLP that all tokens use, multiplied by
 * a gate of one number for each token. */
#include "model/families/families.h"

/* Every other layer below max_window_layers has the window, unless layer_types says otherwise. */
static void read_windows(struct json_reader *r, struct model_spec *spec)
{
    int32_t window = 0;
    if (json_reader_bool(r, "use_sliding_window", false)) window = family_read_window(r, 4096);
    const int32_t end = json_reader_int(r, "max_window_layers", 28, 0, INT32_MAX);
    for (int32_t i = 0; i < spec->num_layers && i < end; i += 2) spec->layers[i].attention.window = window;
    family_read_layer_types(r, window, spec);
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    static const struct experts_keys keys = {.num_experts = {"num_experts"},
                                             .size = "moe_intermediate_size",
                                             .absent_num_experts = 60,
                                             .absent_top_k = 4,
                                             .absent_size = 1408};
    struct layer_spec layer =
        family_read_llama(r, &(struct size_defaults){.max_position = 32768, .num_kv_heads = 16}, spec);
    struct experts_spec experts = family_read_experts(r, &keys);
    experts.router.normalize = json_reader_bool(r, "norm_topk_prob", false);
    experts.shared_gate = true;
    layer.attention.qkv_bias = json_reader_bool(r, "qkv_bias", true);
    family_set_layers(spec, &layer);
    read_windows(r, spec);
    family_set_qwen_experts(r, spec, &experts, json_reader_int(r, "shared_expert_intermediate_size", 5632, 1, 1 << 22));
    spec->names.shared = "mlp.shared_expert";
    spec->names.shared_gate = "mlp.shared_expert_gate";
}

const struct family family_qwen2_moe = {.model_type = "qwen2_moe",
                                        .architecture = "Qwen2MoeForCausalLM",
                                        .read = read,
                                        .reads = "qkv_bias sliding_window use_sliding_window layer_types num_experts",
                                        /* O never has a bias */
                                        .ignores = "attention_bias"};
