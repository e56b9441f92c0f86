/* Helium 1 (Kyutai, 2025): Llama that rotates pairs of neighbours. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {
        .max_position = 4096, .num_kv_heads = 20, .head_size = 128, .norm_eps = 1e-8};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    /* o_proj has none, whatever the key says */
    layer.attention.qkv_bias = json_reader_bool(r, "attention_bias", false);
    layer.mlp.bias = json_reader_bool(r, "mlp_bias", false);
    family_set_layers(spec, &layer);
    spec->rope_interleaved = true;
}

const struct family family_helium = {.model_type = "helium",
                                     .architecture = "HeliumForCausalLM",
                                     .read = read,
                                     .rope_theta = 100000,
                                     .reads = "attention_bias mlp_bias"};
