/* OLMo (Groeneveld et al., 2024): Llama with LayerNorms that have no gains; in some, queries, keys and values are
 * clipped. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec layer = family_read_llama(r, &(struct size_defaults){.max_position = 2048}, spec);
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.attention.clip = (float)json_reader_number(r, "clip_qkv", 0, 1e-6, 1e6);
    family_set_layers(spec, &layer);
    spec->norm_type = NORM_LAYER;
    spec->norm_eps = 1e-5;
    spec->no_gains = true;
}

const struct family family_olmo = {
    .model_type = "olmo", .architecture = "OlmoForCausalLM", .read = read, .reads = "attention_bias clip_qkv"};
