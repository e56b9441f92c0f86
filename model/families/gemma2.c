/* Gemma 2 (Gemma Team, 2024): norms before and after each sublayer, gains stored less 1, soft caps, GELU, and a sliding
 * window in every second layer. VaultGemma (2025) is the same without the norms after sublayers. */
#include <math.h>

#include "model/families/families.h"

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

static void read_with_norms(struct json_reader *r, enum norm_placement placement, struct model_spec *spec)
{
    struct layer_spec layer = family_read_gemma2(r, 8192, spec);
    layer.norm_placement = placement;
    layer.attention.soft_cap = family_read_soft_cap(r, "attn_logit_softcapping", 50);
    family_set_layers(spec, &layer);
    family_read_alternating_windows(r, 2, spec);
    spec->logits_soft_cap = family_read_soft_cap(r, "final_logit_softcapping", 30);
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    read_with_norms(r, NORM_AROUND, spec);
}

static void read_vaultgemma(struct json_reader *r, struct model_spec *spec)
{
    read_with_norms(r, NORM_BEFORE, spec);
}

#define READS                                                                                                          \
    "attention_bias query_pre_attn_scalar attn_logit_softcapping final_logit_softcapping hidden_activation "           \
    "sliding_window layer_types"

const struct family family_gemma2 = {.model_type = "gemma2",
                                     .architecture = "Gemma2ForCausalLM",
                                     .read = read,
                                     .reads = READS,
                                     /* hidden_activation is the one that counts */
                                     .ignores = "hidden_act use_sliding_window"};
const struct family family_vaultgemma = {.model_type = "vaultgemma",
                                         .architecture = "VaultGemmaForCausalLM",
                                         .read = read_vaultgemma,
                                         .reads = READS,
                                         .ignores = "hidden_act use_sliding_window"};
