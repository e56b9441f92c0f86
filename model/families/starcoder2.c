/* StarCoder2 (BigCode, 2024): LayerNorms, an MLP without a gate, and biases everywhere or nowhere. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {.max_position = 4096,
                                           .num_kv_heads = 2,
                                           .norm_eps = 1e-5,
                                           .norm_eps_key = "norm_epsilon",
                                           .tie_word_embeddings = true};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    layer.attention.qkv_bias = layer.attention.o_bias = layer.mlp.bias = json_reader_bool(r, "use_bias", true);
    layer.attention.window = family_read_window(r, 0);
    layer.mlp.kind = MLP_PLAIN;
    layer.mlp.activation = family_read_plain_activation(r, "hidden_act", ACTIVATION_GELU_TANH);
    family_set_layers(spec, &layer);
    family_set_layer_norms(spec);
    spec->names.up = "mlp.c_fc";
    spec->names.down = "mlp.c_proj";
}

const struct family family_starcoder2 = {.model_type = "starcoder2",
                                         .architecture = "Starcoder2ForCausalLM",
                                         .read = read,
                                         .reads = "use_bias hidden_act sliding_window",
                                         /* norm_type is "layer_norm"; hidden_act is the one that counts */
                                         .ignores = "norm_type activation_function use_sliding_window"};
