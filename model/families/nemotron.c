/* Nemotron-4 and Minitron (NVIDIA, 2024): LayerNorms whose gains are stored less 1, a part of each head rotated, and a
 * squared ReLU in an MLP without a gate. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {.max_position = 4096, .norm_eps = 1e-5, .norm_eps_key = "norm_eps"};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.mlp.kind = MLP_PLAIN;
    layer.mlp.bias = json_reader_bool(r, "mlp_bias", false);
    layer.mlp.activation = family_read_plain_activation(r, "hidden_act", ACTIVATION_RELU2);
    family_set_layers(spec, &layer);
    family_set_layer_norms(spec);
    spec->gain_offset = 1;
}

const struct family family_nemotron = {.model_type = "nemotron",
                                       .architecture = "NemotronForCausalLM",
                                       .read = read,
                                       .partial_rotary_factor = 0.5,
                                       .reads = "attention_bias mlp_bias hidden_act partial_rotary_factor"};
