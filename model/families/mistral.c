/* Mistral 7B (Jiang et al., 2023): Llama with a sliding window in every layer, or in none. A file with layer_types is
 * read as Ministral. */
#include "model/families/families.h"

static int32_t read_window(struct json_reader *r)
{
    const int32_t window = family_read_window(r, 4096);
    if (json_reader_bool(r, "use_sliding_window", window > 0) != (window > 0))
        json_reader_fail(r, STATUS_UNSUPPORTED, "use_sliding_window (%s) contradicts sliding_window (%d)",
                         window ? "false" : "true", window);
    return window;
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec layer =
        family_read_llama(r, &(struct size_defaults){.max_position = 131072, .num_kv_heads = 8}, spec);
    layer.attention.window = read_window(r);
    family_set_layers(spec, &layer);
}

const struct family family_mistral = {.model_type = "mistral",
                                      .architecture = "MistralForCausalLM",
                                      .read = read,
                                      .reads = "sliding_window use_sliding_window",
                                      .sizes = {4096, 14336, 32, 32, 32000}};
