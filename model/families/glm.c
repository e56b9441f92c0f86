/* GLM-4, dense (GLM Team, 2024): the first half of each head is rotated, in pairs of neighbours, and gate and up are
 * one tensor of the file. The models of 2025 (model_type glm4) also norm the output of each sublayer, as does the text
 * part of GLM-4.1V. */
#include "model/families/families.h"

static void set(struct model_spec *spec, struct layer_spec *layer, enum norm_placement placement)
{
    layer->norm_placement = placement;
    family_set_layers(spec, layer);
    spec->rope_interleaved = true;
    spec->names.gate_up = "mlp.gate_up_proj";
}

static void name_output_norms(struct model_spec *spec)
{
    spec->names.post_attention_norm = "post_self_attn_layernorm";
    spec->names.post_mlp_norm = "post_mlp_layernorm";
}

static void read(struct json_reader *r, struct model_spec *spec, enum norm_placement placement)
{
    const struct size_defaults defaults = {
        .max_position = 131072, .num_kv_heads = 2, .head_size = 128, .norm_eps = 1.5625e-7};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    /* o_proj has none, whatever the key says */
    layer.attention.qkv_bias = json_reader_bool(r, "attention_bias", true);
    set(spec, &layer, placement);
}

static void read_glm(struct json_reader *r, struct model_spec *spec)
{
    read(r, spec, NORM_BEFORE);
}

static void read_glm4(struct json_reader *r, struct model_spec *spec)
{
    read(r, spec, NORM_AROUND);
    name_output_norms(spec);
}

/* Q, K and V always have biases */
static void read_glm4v(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {.max_position = 32768, .num_kv_heads = 2, .norm_eps = 1e-5};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    layer.attention.qkv_bias = true;
    set(spec, &layer, NORM_AROUND);
    name_output_norms(spec);
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
const struct family family_glm4v = {.model_type = "glm4v_text",
                                    .architecture = "Glm4vForConditionalGeneration",
                                    .read = read_glm4v,
                                    .reads = "partial_rotary_factor",
                                    .ignores = "attention_bias",
                                    .sizes = {4096, 13696, 40, 32, 151552}};
