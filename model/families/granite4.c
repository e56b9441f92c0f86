/* Granite 4 (IBM, 2025): Granite 3 whose gate and up are one tensor, dense or with a mixture of experts beside its MLP.
 * In the models called H most layers are recurrent (Mamba 2). */
#include <string.h>

#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec layer = family_read_llama(r, &(struct size_defaults){.max_position = 2048}, spec), recurrent;
    if (json_reader_int(r, "num_local_experts", 8, 0, INT32_MAX) > 0)
        layer.experts = family_read_granite_experts(r, spec);
    layer.mlp.intermediate_size = json_reader_int(r, "shared_intermediate_size", 1024, 1, 1 << 22);
    recurrent = layer;
    recurrent.mixer = MIXER_RECURRENT;
    recurrent.attention = (struct attention_spec){0};
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    if (strcmp(json_reader_string(r, "position_embedding_type", "none"), "rope") != 0) layer.attention.rotary_dim = 0;
    family_set_mixed_layers(r, "linear_attention mamba", &layer, &recurrent, INT32_MAX, spec);
    for (int32_t i = 0; i < spec->num_layers; i++)
        if (spec->layers[i].mixer == MIXER_RECURRENT) spec->layers[i].recurrent = family_read_mamba2(r, 0, spec);
    family_set_mamba_names(&spec->names, "mamba");
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
