/* Gemma 3, text (Gemma Team, 2025): Gemma 2 with each head of queries and keys normed, instead of soft caps, and with a
 * rope for each kind of layer: five layers with a window follow each other, then one without. */
#include <math.h>

#include "model/families/families.h"

static struct layer_spec read_layer(struct json_reader *r, const struct model_spec *spec)
{
    struct layer_spec layer = family_llama_layer(spec);
    layer.norm_placement = NORM_AROUND;
    layer.qkv_bias = layer.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.qk_norm = QK_NORM_HEAD;
    layer.attention_scale = (float)(1 / sqrt(json_reader_number(r, "query_pre_attn_scalar", 256, 1e-6, 1e6)));
    layer.activation = family_read_activation(r, "hidden_activation", ACTIVATION_GELU_TANH);
    return layer;
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {
        .max_position = 131072, .num_kv_heads = 4, .head_size = 256, .tie_word_embeddings = true};
    family_read_sizes(r, &defaults, spec);
    const struct layer_spec layer = read_layer(r, spec);
    family_set_layers(spec, &layer);
    family_read_alternating_windows(r, json_reader_int(r, "sliding_window_pattern", 6, 1, INT32_MAX), spec);
    family_set_two_ropes(spec);
    family_set_gemma(spec);
    spec->logits_soft_cap = json_reader_number(r, "final_logit_softcapping", 0, 1e-6, 1e6);
    spec->names.post_attention_norm = "post_attention_layernorm";
    spec->names.mlp_norm = "pre_feedforward_layernorm";
    spec->names.post_mlp_norm = "post_feedforward_layernorm";
    spec->names.q_norm = "self_attn.q_norm";
    spec->names.k_norm = "self_attn.k_norm";
}

static const char *const reads[] = {"attention_bias",    "query_pre_attn_scalar", "final_logit_softcapping",
                                    "hidden_activation", "sliding_window",        "sliding_window_pattern",
                                    "layer_types",       "rope_local_base_freq",  NULL};
static const char *const ignores[] = {"hidden_act", "use_sliding_window", NULL};

const struct family family_gemma3 = {.model_type = "gemma3_text",
                                     .architecture = "Gemma3ForCausalLM",
                                     .read = read,
                                     .rope_theta = 1e6,
                                     .rope_local_theta = 10000,
                                     .reads = reads,
                                     .ignores = ignores};
