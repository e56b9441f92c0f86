/* Granite 3, mixtures of experts (IBM, 2024): Granite 3 whose experts are two tensors of a layer; granitemoeshared has
 * an MLP beside them. */
#include "model/families/families.h"

struct experts_spec family_read_granite_experts(struct json_reader *r, struct model_spec *spec)
{
    static const struct experts_keys keys = {
        .num_experts = {"num_local_experts"}, .size = "intermediate_size", .absent_num_experts = 8, .absent_top_k = 2};
    struct experts_spec experts = family_read_experts(r, &keys);
    experts.router.normalize = true;
    spec->names.router = "block_sparse_moe.router.layer";
    spec->names.experts = NULL;
    spec->names.expert_gate_up = "block_sparse_moe.input_linear.weight";
    spec->names.expert_down = "block_sparse_moe.output_linear.weight";
    spec->names.gate_up = "shared_mlp.input_linear";
    spec->names.down = "shared_mlp.output_linear";
    return experts;
}

static void read_with_mlp(struct json_reader *r, int32_t mlp_size, struct model_spec *spec)
{
    struct layer_spec layer = family_read_llama(r, &(struct size_defaults){.max_position = 2048}, spec);
    layer.experts = family_read_granite_experts(r, spec);
    layer.mlp.intermediate_size = mlp_size;
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    family_set_layers(spec, &layer);
    family_read_granite_multipliers(r, spec);
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    read_with_mlp(r, 0, spec);
}

static void read_shared(struct json_reader *r, struct model_spec *spec)
{
    read_with_mlp(r, json_reader_int(r, "shared_intermediate_size", 0, 0, 1 << 22), spec);
}

static const char reads[] =
    "attention_bias attention_multiplier residual_multiplier embedding_multiplier logits_scaling num_local_experts";

const struct family family_granitemoe = {
    .model_type = "granitemoe", .architecture = "GraniteMoeForCausalLM", .read = read, .reads = reads};
const struct family family_granitemoeshared = {.model_type = "granitemoeshared",
                                               .architecture = "GraniteMoeSharedForCausalLM",
                                               .read = read_shared,
                                               .reads = reads};
