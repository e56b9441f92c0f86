/* OLMo 2 (OLMo Team, 2024): norms after each sublayer instead of before, and of all heads of queries and of keys at
 * once. */
#include "model/families/families.h"

void family_read_olmo2(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec layer =
        family_read_llama(r, &(struct size_defaults){.max_position = 2048, .norm_eps = 1e-5}, spec);
    layer.norm_placement = NORM_AFTER;
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.attention.qk_norm = QK_NORM_PROJECTION;
    family_set_layers(spec, &layer);
}

const struct family family_olmo2 = {
    .model_type = "olmo2", .architecture = "Olmo2ForCausalLM", .read = family_read_olmo2, .reads = "attention_bias"};
