/* Gemma, Gemma 1.1 and CodeGemma (Gemma Team, 2024): Llama with gains stored less 1, scaled embeddings and GELU.
 * hidden_act counts, as in transformers 5; files give hidden_activation, too, which only transformers 4 read. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {
        .max_position = 8192, .num_kv_heads = 16, .head_size = 256, .tie_word_embeddings = true};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.mlp.activation = family_read_activation(r, "hidden_act", ACTIVATION_GELU_TANH);
    family_set_layers(spec, &layer);
    family_set_gemma(spec);
}

const struct family family_gemma = {.model_type = "gemma",
                                    .architecture = "GemmaForCausalLM",
                                    .read = read,
                                    .reads = "attention_bias hidden_act",
                                    .ignores = "hidden_activation"};
