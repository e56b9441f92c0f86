/* Granite with windows (IBM, 2026): Granite 3, dense or with experts, whose heads have learnt sinks. Every fourth layer
 * attends to all tokens, the others have a window, and each layer has a theta of its own or is not rotated. */
#include "model/families/families.h"

static void set_layers(struct json_reader *r, struct layer_spec *layer, struct model_spec *spec)
{
    const int32_t window = family_read_window(r, 128);
    layer->attention.qkv_bias = layer->attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer->attention.sinks = true;
    for (int32_t i = 0; i < spec->num_layers; i++) {
        spec->layers[i] = *layer;
        spec->layers[i].attention.window = i % 4 == 0 ? 0 : window;
    }
    family_read_layer_types(r, window, spec);
    family_read_granite_multipliers(r, spec);
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {
        .max_position = 8192, .num_kv_heads = 4, .norm_eps = 1e-5, .tie_word_embeddings = true};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    layer.mlp.bias = json_reader_bool(r, "mlp_bias", false);
    set_layers(r, &layer, spec);
}

static void read_moe(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec layer = family_read_llama(r, &(struct size_defaults){.max_position = 2048}, spec);
    layer.experts = family_read_granite_experts(r, spec);
    layer.mlp.intermediate_size = json_reader_int(r, "shared_intermediate_size", 0, 0, 1 << 22);
    set_layers(r, &layer, spec);
    spec->names.router = "block_sparse_moe.router";
    spec->names.expert_gate_up = "block_sparse_moe.experts.gate_up_proj";
    spec->names.expert_down = "block_sparse_moe.experts.down_proj";
}

#define READS                                                                                                          \
    "attention_bias attention_multiplier residual_multiplier embedding_multiplier logits_scaling sliding_window "      \
    "layer_types layer_rope_theta "

const struct family family_granite_swa = {.model_type = "granite_swa",
                                          .architecture = "GraniteSWAForCausalLM",
                                          .read = read,
                                          .reads = READS "mlp_bias",
                                          .ignores = "use_sliding_window"};
const struct family family_granitemoe_swa = {.model_type = "granitemoe_swa",
                                             .architecture = "GraniteMoeSWAForCausalLM",
                                             .read = read_moe,
                                             .reads = READS "num_local_experts",
                                             .ignores = "use_sliding_window"};
