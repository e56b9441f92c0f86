/* Mixtral (Jiang et al., 2024): Mistral whose MLPs are mixtures of experts. */
#include "model/families/families.h"

void family_set_mixtral_names(struct model_spec *spec)
{
    spec->names.router = "block_sparse_moe.gate";
    spec->names.experts = "block_sparse_moe.experts";
    spec->names.expert_gate = "w1";
    spec->names.expert_up = "w3";
    spec->names.expert_down = "w2";
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    static const struct experts_keys keys = {
        .num_experts = {"num_local_experts"}, .size = "intermediate_size", .absent_num_experts = 8, .absent_top_k = 2};
    struct layer_spec layer = family_read_llama(
        r, &(struct size_defaults){.max_position = 131072, .num_kv_heads = 8, .norm_eps = 1e-5}, spec);
    layer.experts = family_read_experts(r, &keys);
    layer.experts.router.normalize = true;
    layer.attention.window = family_read_window(r, 0);
    layer.mlp.intermediate_size = 0;
    family_set_layers(spec, &layer);
    family_set_mixtral_names(spec);
}

const struct family family_mixtral = {.model_type = "mixtral",
                                      .architecture = "MixtralForCausalLM",
                                      .read = read,
                                      .rope_theta = 1e6,
                                      .reads = "sliding_window num_local_experts"};
