/* BLOOM (BigScience, 2022): ALiBi instead of positions, a norm of the embedding, LayerNorms, and q, k and v of each
 * head together in the file. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {.max_position = 2048,
                                           .norm_eps = 1e-5,
                                           .tie_word_embeddings = true,
                                           .intermediate_factor = 4,
                                           .intermediate_size_key = "",
                                           .num_layers_key = family_either_key(r, "num_hidden_layers", "n_layer"),
                                           .norm_eps_key = "layer_norm_epsilon",
                                           .hidden_size_key = family_either_key(r, "n_embed", "hidden_size"),
                                           .num_heads_key = family_either_key(r, "num_attention_heads", "n_head"),
                                           .max_position_key = "seq_length"};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    layer.attention.qkv_bias = layer.attention.o_bias = layer.mlp.bias = true;
    layer.attention.rotary_dim = 0;
    layer.attention.alibi_bias_max = 8;
    layer.mlp.kind = MLP_PLAIN;
    layer.mlp.activation = ACTIVATION_GELU_TANH;
    family_set_layers(spec, &layer);
    family_set_layer_norms(spec);
    spec->qkv_by_head = true;
    spec->names.embedding = "transformer.word_embeddings";
    spec->names.embedding_norm = "transformer.word_embeddings_layernorm";
    spec->names.final_norm = "transformer.ln_f";
    spec->names.layers = "transformer.h";
    spec->names.attention = "self_attention";
    spec->names.qkv = "self_attention.query_key_value";
    spec->names.o = "dense";
    spec->names.up = "mlp.dense_h_to_4h";
    spec->names.down = "mlp.dense_4h_to_h";
}

const struct family family_bloom = {.model_type = "bloom", .architecture = "BloomForCausalLM", .read = read};
