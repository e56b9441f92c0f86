/* Apertus (Swiss AI, 2025): an MLP without a gate, whose xIELU has numbers that each layer learns, and norms of each
 * head of queries and keys. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec layer =
        family_read_llama(r, &(struct size_defaults){.max_position = 65536, .norm_eps = 1e-5}, spec);
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.attention.qk_norm = QK_NORM_HEAD;
    layer.mlp.kind = MLP_PLAIN;
    layer.mlp.activation = ACTIVATION_XIELU;
    family_check_activation(r, "xielu");
    family_set_layers(spec, &layer);
    spec->names.attention_norm = "attention_layernorm";
    spec->names.mlp_norm = "feedforward_layernorm";
}

static const struct rope_config rope = {.type = ROPE_LLAMA3,
                                        .theta = 12000000,
                                        .factor = 8,
                                        .low_freq_factor = 1,
                                        .high_freq_factor = 4,
                                        .original_max_position = 8192};

const struct family family_apertus = {.model_type = "apertus",
                                      .architecture = "ApertusForCausalLM",
                                      .read = read,
                                      .rope_theta = 12000000,
                                      .rope = &rope,
                                      .reads = "attention_bias hidden_act",
                                      /* queries and keys always have norms */
                                      .ignores = "qk_norm"};
