/* Granite with windows (IBM, 2026): Granite 3 whose heads have learnt sinks. Every fourth layer attends to all tokens,
 * the others have a window, and each layer has a theta of its own or is not rotated. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {
        .max_position = 8192, .num_kv_heads = 4, .norm_eps = 1e-5, .tie_word_embeddings = true};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    const int32_t window = family_read_window(r, 128);
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.attention.sinks = true;
    layer.mlp.bias = json_reader_bool(r, "mlp_bias", false);
    for (int32_t i = 0; i < spec->num_layers; i++) {
        spec->layers[i] = layer;
        spec->layers[i].attention.window = i % 4 == 0 ? 0 : window;
    }
    family_read_layer_types(r, window, spec);
    family_read_granite_multipliers(r, spec);
}

const struct family family_granite_swa = {
    .model_type = "granite_swa",
    .architecture = "GraniteSWAForCausalLM",
    .read = read,
    .reads = "attention_bias mlp_bias attention_multiplier residual_multiplier embedding_multiplier logits_scaling "
             "sliding_window layer_types layer_rope_theta",
    .ignores = "use_sliding_window"};
