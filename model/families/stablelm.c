/* StableLM (Stability AI, 2023): Llama with LayerNorms and a part of each head rotated. In a parallel model attention
 * and MLP share a norm. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {
        .max_position = 4096, .num_kv_heads = 32, .norm_eps = 1e-5, .norm_eps_key = "layer_norm_eps"};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    if (json_reader_bool(r, "use_parallel_residual", false)) layer.norm_placement = NORM_PARALLEL;
    layer.attention.qkv_bias = json_reader_bool(r, "use_qkv_bias", false);
    layer.mlp.activation = family_read_activation(r, "hidden_act", ACTIVATION_SILU);
    family_set_layers(spec, &layer);
    family_set_layer_norms(spec);
}

const struct family family_stablelm = {.model_type = "stablelm",
                                       .architecture = "StableLmForCausalLM",
                                       .read = read,
                                       .partial_rotary_factor = 0.25,
                                       .reads = "hidden_act use_parallel_residual partial_rotary_factor",
                                       .ignores = "rope_pct"};
