/* Ministral (Mistral AI, 2024): Mistral whose layer_types name the layers that have the window. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec layer =
        family_read_llama(r, &(struct size_defaults){.max_position = 131072, .num_kv_heads = 8}, spec);
    layer.attention.window = family_read_window(r, 4096);
    family_set_layers(spec, &layer);
    family_read_layer_types(r, layer.attention.window, spec);
}

const struct family family_ministral = {.model_type = "ministral",
                                        .architecture = "MinistralForCausalLM",
                                        .read = read,
                                        .reads = "sliding_window layer_types",
                                        .ignores = "use_sliding_window"};
