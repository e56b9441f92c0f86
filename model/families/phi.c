/* Phi-1, Phi-1.5 and Phi-2 (Microsoft, 2023): one LayerNorm before attention and MLP in parallel, a part of each head
 * rotated, and biases everywhere, of lm_head too. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {.max_position = 2048, .norm_eps = 1e-5, .norm_eps_key = "layer_norm_eps"};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    layer.norm_placement = NORM_PARALLEL;
    layer.attention.qkv_bias = layer.attention.o_bias = layer.mlp.bias = spec->lm_head_bias = true;
    if (json_reader_bool(r, "qk_layernorm", false))
        layer.attention.qk_norm = QK_NORM_HEAD, layer.attention.qk_norm_bias = true;
    layer.mlp.kind = MLP_PLAIN;
    layer.mlp.activation = family_read_plain_activation(r, "hidden_act", ACTIVATION_GELU_TANH);
    family_require_bool(r, "tie_word_embeddings", false, "a bias of an lm_head that is the embedding");
    family_set_layers(spec, &layer);
    family_set_layer_norms(spec);
    spec->names.final_norm = "model.final_layernorm";
    spec->names.o = "dense";
    spec->names.q_norm = "q_layernorm";
    spec->names.k_norm = "k_layernorm";
    spec->names.up = "mlp.fc1";
    spec->names.down = "mlp.fc2";
}

const struct family family_phi = {.model_type = "phi",
                                  .architecture = "PhiForCausalLM",
                                  .read = read,
                                  .partial_rotary_factor = 0.5,
                                  .reads = "hidden_act qk_layernorm partial_rotary_factor"};
