/* Granite 4 (IBM, 2025): Granite 3 whose gate and up are one tensor, dense or with a mixture of experts beside its MLP.
 * Of its model_type there are also models with recurrent layers (Mamba 2), which are refused. */
#include <string.h>

#include "model/families/families.h"

/* Layers of attention are called "attention" by transformers 4. */
static void refuse_recurrent_layers(struct json_reader *r, const struct model_spec *spec)
{
    const char *key = json_reader_get(r, "layers_block_type") ? "layers_block_type" : "layer_types";
    const json_t *list = json_reader_get(r, key);
    if (!list)
        json_reader_fail(r, STATUS_UNSUPPORTED,
                         "layer_types is missing: all layers are recurrent, which quire does not compute");
    if (!json_is_array(list) || json_array_size(list) != (size_t)spec->num_layers) {
        json_reader_expected(r, key, "an array of num_hidden_layers strings", list);
        return;
    }
    for (int32_t i = 0; i < spec->num_layers; i++) {
        const json_t *value = json_array_get(list, (size_t)i);
        const char *type = json_string_value(value);
        if (!type || (strcmp(type, "attention") != 0 && strcmp(type, "full_attention") != 0))
            json_reader_fail(r, STATUS_UNSUPPORTED, "%s[%d] is %s; quire computes layers of attention only", key, i,
                             show_value(value).text);
    }
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec layer = family_read_llama(r, &(struct size_defaults){.max_position = 2048}, spec);
    refuse_recurrent_layers(r, spec);
    if (json_reader_int(r, "num_local_experts", 8, 0, INT32_MAX) > 0)
        layer.experts = family_read_granite_experts(r, spec);
    layer.mlp.intermediate_size = json_reader_int(r, "shared_intermediate_size", 1024, 1, 1 << 22);
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    if (strcmp(json_reader_string(r, "position_embedding_type", "none"), "rope") != 0) layer.attention.rotary_dim = 0;
    family_set_layers(spec, &layer);
    family_read_granite_multipliers(r, spec);
    spec->names.gate_up = "shared_mlp.input_linear";
    spec->names.down = "shared_mlp.output_linear";
}

const struct family family_granite4 = {
    .model_type = "granitemoehybrid",
    .architecture = "GraniteMoeHybridForCausalLM",
    .read = read,
    .reads = "attention_bias num_local_experts layer_types position_embedding_type attention_multiplier "
             "residual_multiplier embedding_multiplier logits_scaling"};
