/* Ministral 3 (Mistral AI, 2025): Mistral with yarn, whose queries grow with their position. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {
        .max_position = 262144, .num_kv_heads = 8, .head_size = 128, .norm_eps = 1e-5};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    layer.attention.window = family_read_window(r, 0);
    family_set_layers(spec, &layer);
}

static const struct rope_config rope = {.type = ROPE_YARN,
                                        .theta = 1e6,
                                        .factor = 16,
                                        .beta_fast = 32,
                                        .beta_slow = 1,
                                        .mscale = 1,
                                        .mscale_all_dim = 1,
                                        .truncate = true,
                                        .original_max_position = 16384};

const struct family family_ministral3 = {.model_type = "ministral3",
                                         .architecture = "Ministral3ForCausalLM",
                                         .read = read,
                                         .rope = &rope,
                                         .scales_queries = true,
                                         .reads = "sliding_window",
                                         .ignores = "use_sliding_window",
                                         .sizes = {4096, 14336, 34, 32, 131072}};
