/* GLM-4, dense (GLM Team, 2024): the first half of each head is rotated, in pairs of neighbours, and gate and up are
 * one tensor of the file. The models of 2025 (model_type glm4) also norm the output of each sublayer. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec, enum norm_placement placement)
{
    const struct size_defaults defaults = {
        .max_position = 131072, .num_kv_heads = 2, .head_size = 128, .norm_eps = 1.5625e-7};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    layer.norm_placement = placement;
    /* o_proj has none, whatever the key says */
    layer.attention.qkv_bias = json_reader_bool(r, "attention_bias", true);
    family_set_layers(spec, &layer);
    spec->rope_interleaved = true;
    spec->names.gate_up = "mlp.gate_up_proj";
}

static void read_glm(struct json_reader *r, struct model_spec *spec)
{
    read(r, spec, NORM_BEFORE);
}

static void read_glm4(struct json_reader *r, struct model_spec *spec)
{
    read(r, spec, NORM_AROUND);
    spec->names.post_attention_norm = "post_self_attn_layernorm";
    spec->names.post_mlp_norm = "post_mlp_layernorm";
}

const struct family family_glm = {.model_type = "glm",
                                  .architecture = "GlmForCausalLM",
                                  .read = read_glm,
                                  .partial_rotary_factor = 0.5,
                                  .reads = "attention_bias partial_rotary_factor"};
const struct family family_glm4 = {.model_type = "glm4",
                                   .architecture = "Glm4ForCausalLM",
                                   .read = read_glm4,
                                   .partial_rotary_factor = 0.5,
                                   .reads = "attention_bias partial_rotary_factor"};
