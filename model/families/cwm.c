/* CWM (Meta, 2025): Llama with a sliding window in all but every fourth layer, beginning with the first. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {
        .max_position = 131072, .num_kv_heads = 8, .head_size = 128, .norm_eps = 1e-5};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    layer.mlp.bias = json_reader_bool(r, "mlp_bias", false);
    family_set_layers(spec, &layer);
    const int32_t window = family_read_window(r, 8192);
    for (int32_t i = 0; i < spec->num_layers; i++) spec->layers[i].attention.window = i % 4 == 0 ? 0 : window;
    family_read_layer_types(r, window, spec);
    if (window == 0 && !json_reader_get(r, "layer_types"))
        json_reader_fail(r, STATUS_INVALID, "sliding_window is null, but this model has layers with a window");
}

static const struct rope_config rope = {.type = ROPE_LLAMA3,
                                        .theta = 1000000,
                                        .factor = 16,
                                        .low_freq_factor = 1,
                                        .high_freq_factor = 4,
                                        .original_max_position = 8192};

const struct family family_cwm = {.model_type = "cwm",
                                  .architecture = "CwmForCausalLM",
                                  .read = read,
                                  .rope_theta = 1000000,
                                  .rope = &rope,
                                  .reads = "mlp_bias sliding_window layer_types",
                                  .ignores = "use_sliding_window"};
