/* Bamba (IBM, Princeton, CMU and UIUC, 2024): most layers are recurrent (Mamba 2), the others have attention that
 * rotates half of each head. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {.max_position = 262144, .num_kv_heads = 8, .norm_eps = 1e-5};
    struct layer_spec layer = family_read_llama(r, &defaults, spec), recurrent;
    layer.mlp.bias = json_reader_bool(r, "mlp_bias", false);
    recurrent = layer;
    recurrent.mixer = MIXER_RECURRENT;
    recurrent.attention = (struct attention_spec){0};
    recurrent.recurrent = family_read_mamba2(r, 0, spec);
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    for (int32_t i = 0; i < spec->num_layers; i++)
        spec->layers[i] = family_list_has_layer(r, "attn_layer_indices", i) ? layer : recurrent;
    family_set_bamba_names(&spec->names);
}

const struct family family_bamba = {.model_type = "bamba",
                                    .architecture = "BambaForCausalLM",
                                    .read = read,
                                    .partial_rotary_factor = 0.5,
                                    .reads = "attention_bias mlp_bias partial_rotary_factor",
                                    .ignores = "layer_types"};
