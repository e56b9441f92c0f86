/* OLMo 2 (OLMo Team, 2024): norms after each sublayer instead of before, and of all heads of queries and of keys at
 * once. */
#include "model/families/families.h"

void family_read_olmo2(struct json_reader *r, struct model_spec *spec)
{
    family_read_sizes(r, &(struct size_defaults){.max_position = 2048, .norm_eps = 1e-5}, spec);
    struct layer_spec layer = family_llama_layer(spec);
    layer.norm_placement = NORM_AFTER;
    layer.qkv_bias = layer.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.qk_norm = QK_NORM_PROJECTION;
    family_set_layers(spec, &layer);
}

static const char *const reads[] = {"attention_bias", NULL};

const struct family family_olmo2 = {
    .model_type = "olmo2", .architecture = "Olmo2ForCausalLM", .read = family_read_olmo2, .reads = reads};
