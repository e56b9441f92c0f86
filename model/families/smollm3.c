/* SmolLM3 (Hugging Face, 2025): Llama where every fourth layer, or those that no_rope_layers names by 0, rotates
 * nothing (NoPE: Kazemnejad et al., 2023). */
#include "model/families/families.h"

/* Unless layer_types says otherwise, layers that rotate nothing have the window. */
static void read_windows(struct json_reader *r, struct model_spec *spec)
{
    const int32_t window = json_reader_bool(r, "use_sliding_window", false) ? family_read_window(r, 0) : 0;
    for (int32_t i = 0; i < spec->num_layers; i++)
        if (spec->layers[i].attention.rotary_dim == 0) spec->layers[i].attention.window = window;
    family_read_layer_types(r, window, spec);
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {.max_position = 32768, .num_kv_heads = 4, .tie_word_embeddings = true};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.mlp.bias = json_reader_bool(r, "mlp_bias", false);
    family_set_layers(spec, &layer);
    family_read_rotating_layers(r, spec);
    read_windows(r, spec);
}

const struct family family_smollm3 = {
    .model_type = "smollm3",
    .architecture = "SmolLM3ForCausalLM",
    .read = read,
    .rope_theta = 2e6,
    .reads =
        "attention_bias mlp_bias no_rope_layers no_rope_layer_interval sliding_window use_sliding_window layer_types"};
