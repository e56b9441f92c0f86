/* ERNIE 4.5, dense (Baidu, 2025): Llama that rotates pairs of neighbours, with biases everywhere or nowhere. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {
        .max_position = 131072, .num_kv_heads = 2, .head_size = 128, .norm_eps = 1e-5, .tie_word_embeddings = true};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    layer.attention.qkv_bias = layer.attention.o_bias = layer.mlp.bias = json_reader_bool(r, "use_bias", false);
    family_set_layers(spec, &layer);
    spec->rope_interleaved = true;
}

const struct family family_ernie4_5 = {.model_type = "ernie4_5",
                                       .architecture = "Ernie4_5ForCausalLM",
                                       .read = read,
                                       .rope_theta = 500000,
                                       .reads = "use_bias"};
