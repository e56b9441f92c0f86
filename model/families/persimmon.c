/* Persimmon (Adept, 2023): LayerNorms, of each head of queries and keys too, a part of each head rotated, biases, a
 * squared ReLU in an MLP without a gate, and q, k and v of each head together in the file. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {.max_position = 16384, .norm_eps = 1e-5, .norm_eps_key = "layer_norm_eps"};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    layer.attention.qkv_bias = layer.attention.o_bias = layer.mlp.bias = true;
    if (json_reader_bool(r, "qk_layernorm", true))
        layer.attention.qk_norm = QK_NORM_HEAD, layer.attention.qk_norm_bias = true;
    layer.mlp.kind = MLP_PLAIN;
    layer.mlp.activation = family_read_plain_activation(r, "hidden_act", ACTIVATION_RELU2);
    family_set_layers(spec, &layer);
    family_set_layer_norms(spec);
    spec->qkv_by_head = true;
    spec->names.final_norm = "model.final_layernorm";
    spec->names.qkv = "self_attn.query_key_value";
    spec->names.o = "dense";
    spec->names.q_norm = "q_layernorm";
    spec->names.k_norm = "k_layernorm";
    spec->names.up = "mlp.dense_h_to_4h";
    spec->names.down = "mlp.dense_4h_to_h";
}

const struct family family_persimmon = {.model_type = "persimmon",
                                        .architecture = "PersimmonForCausalLM",
                                        .read = read,
                                        .partial_rotary_factor = 0.5,
                                        .reads = "hidden_act qk_layernorm partial_rotary_factor"};
