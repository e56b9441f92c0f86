/* Gemma 2 (Gemma Team, 2024): norms before and after each sublayer, gains stored less 1, soft caps, GELU, and a sliding
 * window in every second layer. */
#include <math.h>

#include "model/families/families.h"

/* null turns a soft cap off */
static float read_soft_cap(struct json_reader *r, const char *key, double absent)
{
    return (float)json_reader_number(r, key, json_reader_has(r, key) ? 0 : absent, 1e-6, 1e6);
}

struct layer_spec family_read_gemma2(struct json_reader *r, int32_t max_position, struct model_spec *spec)
{
    const struct size_defaults defaults = {
        .max_position = max_position, .num_kv_heads = 4, .head_size = 256, .tie_word_embeddings = true};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    family_set_gemma(spec);
    spec->names.mlp_norm = "pre_feedforward_layernorm";
    layer.norm_placement = NORM_AROUND;
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.attention.scale = (float)(1 / sqrt(json_reader_number(r, "query_pre_attn_scalar", 256, 1e-6, 1e6)));
    layer.mlp.activation = family_read_activation(r, "hidden_activation", ACTIVATION_GELU_TANH);
    return layer;
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec layer = family_read_gemma2(r, 8192, spec);
    layer.attention.soft_cap = read_soft_cap(r, "attn_logit_softcapping", 50);
    family_set_layers(spec, &layer);
    family_read_alternating_windows(r, 2, spec);
    spec->logits_soft_cap = read_soft_cap(r, "final_logit_softcapping", 30);
}

const struct family family_gemma2 = {.model_type = "gemma2",
                                     .architecture = "Gemma2ForCausalLM",
                                     .read = read,
                                     .reads = "attention_bias query_pre_attn_scalar attn_logit_softcapping "
                                              "final_logit_softcapping hidden_activation sliding_window layer_types",
                                     /* hidden_activation is the one that counts */
                                     .ignores = "hidden_act use_sliding_window"};
