/* Jais 2 (Inception, MBZUAI and Cerebras, 2025): Llama with LayerNorms, biases, and a squared ReLU in an MLP without a
 * gate. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {.max_position = 8192, .norm_eps = 1e-5, .norm_eps_key = "layer_norm_eps"};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", true);
    layer.mlp.kind = MLP_PLAIN;
    layer.mlp.bias = json_reader_bool(r, "mlp_bias", true);
    layer.mlp.activation = family_read_plain_activation(r, "hidden_act", ACTIVATION_RELU2);
    family_set_layers(spec, &layer);
    family_set_layer_norms(spec);
}

const struct family family_jais2 = {.model_type = "jais2",
                                    .architecture = "Jais2ForCausalLM",
                                    .read = read,
                                    .reads = "attention_bias mlp_bias hidden_act"};
