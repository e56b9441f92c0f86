/* Gemma 2 (Gemma Team, 2024): norms before and after each sublayer, gains stored less 1, soft caps, GELU, and a sliding
 * window in every second layer. */
#include <math.h>

#include "model/families/families.h"

/* null turns a soft cap off */
static float read_soft_cap(struct json_reader *r, const char *key, double absent)
{
    return (float)json_reader_number(r, key, json_reader_has(r, key) ? 0 : absent, 1e-6, 1e6);
}

static struct layer_spec read_layer(struct json_reader *r, const struct model_spec *spec)
{
    struct layer_spec layer = family_llama_layer(spec);
    layer.norm_placement = NORM_AROUND;
    layer.qkv_bias = layer.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.attention_scale = (float)(1 / sqrt(json_reader_number(r, "query_pre_attn_scalar", 256, 1e-6, 1e6)));
    layer.attention_soft_cap = read_soft_cap(r, "attn_logit_softcapping", 50);
    layer.activation = family_read_activation(r, "hidden_activation", ACTIVATION_GELU_TANH);
    return layer;
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {
        .max_position = 8192, .num_kv_heads = 4, .head_size = 256, .tie_word_embeddings = true};
    family_read_sizes(r, &defaults, spec);
    const struct layer_spec layer = read_layer(r, spec);
    const int32_t window = json_reader_int(r, "sliding_window", 4096, 1, INT32_MAX);
    family_set_layers(spec, &layer);
    for (int32_t i = 0; i < spec->num_layers; i += 2) spec->layers[i].window = window;
    family_read_layer_types(r, window, spec);
    family_set_gemma(spec);
    spec->logits_soft_cap = read_soft_cap(r, "final_logit_softcapping", 30);
    spec->names.post_attention_norm = "post_attention_layernorm";
    spec->names.mlp_norm = "pre_feedforward_layernorm";
    spec->names.post_mlp_norm = "post_feedforward_layernorm";
}

static const char *const reads[] = {"attention_bias",
                                    "query_pre_attn_scalar",
                                    "attn_logit_softcapping",
                                    "final_logit_softcapping",
                                    "hidden_activation",
                                    "sliding_window",
                                    "layer_types",
                                    NULL};
static const char *const ignores[] = {"hidden_act", NULL}; /* hidden_activation is the one that counts */

const struct family family_gemma2 = {
    .model_type = "gemma2", .architecture = "Gemma2ForCausalLM", .read = read, .reads = reads, .ignores = ignores};
