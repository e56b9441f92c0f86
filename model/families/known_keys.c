#include "model/families/known_keys.h"

#include <math.h>

#include "base/words.h"

/* Which values of a key change nothing: with them the model computes what it computes without the key. null is always
 * one of them. */
enum neutral { OFF, FALSE, ONE, TRUE, SILU, RMS_NORM, ROTARY, UNUSED_WINDOW, ATTENTION_SCALE, HEAD_SIZE };

static const char *const neutral_names[] = {
    [OFF] = "false, 0 or empty",
    [FALSE] = "false",
    [ONE] = "1",
    [TRUE] = "true",
    [SILU] = "\"silu\"",
    [RMS_NORM] = "\"rms_norm\"",
    [ROTARY] = "\"rope\"",
    [UNUSED_WINDOW] = "null, or use_sliding_window false beside it,",
    [ATTENTION_SCALE] = "1 / sqrt(head_dim)",
    [HEAD_SIZE] = "head_dim",
};

static const struct known_key {
    const char *key;
    enum neutral neutral;
    const char *what; /* what another value stands for, or what to do: for the message */
} known_keys[] = {
    {"hidden_act", SILU, "another activation"},
    {"hidden_activation", SILU, "another activation"},
    {"mlp_hidden_act", SILU, "another activation"},
    {"activation_function", SILU, "another activation"},
    {"norm_type", RMS_NORM, "another norm"},
    {"normalization_type", RMS_NORM, "another norm"},
    {"layer_norm_type", RMS_NORM, "another norm"},
    {"layernorm_type", RMS_NORM, "another norm"},
    {"position_embedding_type", ROTARY, "other positions"},
    {"partial_rotary_factor", ONE, "a partial rotation"},
    {"rotary_pct", ONE, "a partial rotation"},
    {"rope_pct", ONE, "a partial rotation"},
    {"rope_interleaved", OFF, "interleaved rotation"},
    {"rope_interleave", OFF, "interleaved rotation"},
    {"rotary_interleaved", OFF, "interleaved rotation"},
    {"is_neox_style", TRUE, "interleaved rotation"},
    {"use_rope", TRUE, "no rotation"},
    {"no_rope_layers", OFF, "layers without rotation"},
    {"use_rope_layers", OFF, "layers without rotation"},
    {"no_rope_layer_interval", OFF, "layers without rotation"},
    {"rope_local_base_freq", OFF, "layers of several kinds"},
    {"sliding_window_pattern", OFF, "layers of several kinds"},
    {"layer_rope_theta", OFF, "layers of several kinds"},
    {"per_layer_config", OFF, "layers of several kinds"},
    {"block_configs", OFF, "layers of several kinds"},
    {"cross_attention_layers", OFF, "cross-attention"},
    {"add_cross_attention", OFF, "cross-attention"},
    {"is_encoder_decoder", OFF, "an encoder"},
    {"is_causal", TRUE, "attention to later tokens"},
    {"use_bidirectional_attention", OFF, "attention to later tokens"},
    {"attention_chunk_size", OFF, "chunked attention"},
    {"attn_temperature_tuning", OFF, "scaled queries"},
    {"attention_sinks", OFF, "attention sinks"},
    {"sink", OFF, "attention sinks"},
    {"alibi", OFF, "ALiBi"},
    {"use_alibi", OFF, "ALiBi"},
    {"attn_logit_softcapping", OFF, "a soft cap"},
    {"final_logit_softcapping", OFF, "a soft cap"},
    {"clip_qkv", OFF, "clipped queries, keys and values"},
    {"qk_norm", OFF, "norms of queries and keys"},
    {"use_qk_norm", OFF, "norms of queries and keys"},
    {"qk_layernorm", OFF, "norms of queries and keys"},
    {"use_qk_layernorm", OFF, "norms of queries and keys"},
    {"bias", OFF, "biases other than attention_bias and mlp_bias"},
    {"use_bias", OFF, "biases other than attention_bias and mlp_bias"},
    {"qkv_bias", OFF, "biases other than attention_bias and mlp_bias"},
    {"lm_head_bias", OFF, "biases other than attention_bias and mlp_bias"},
    {"embedding_multiplier", ONE, "scaled embeddings"},
    {"scale_emb", ONE, "scaled embeddings"},
    {"scale_embeddings", OFF, "scaled embeddings"},
    {"normalize_embeddings", OFF, "scaled embeddings"},
    {"residual_multiplier", ONE, "a scaled residual"},
    {"scale_depth", ONE, "a scaled residual"},
    {"logits_scaling", ONE, "scaled logits"},
    {"logit_scale", ONE, "scaled logits"},
    {"dim_model_base", OFF, "scaled logits"},
    {"parallel_attn", OFF, "a parallel residual"},
    {"parallel_residual", OFF, "a parallel residual"},
    {"use_parallel_residual", OFF, "a parallel residual"},
    {"apply_residual_connection_post_layernorm", OFF, "another residual"},
    {"num_experts", OFF, "a mixture of experts"},
    {"num_local_experts", OFF, "a mixture of experts"},
    {"n_routed_experts", OFF, "a mixture of experts"},
    {"moe_num_experts", OFF, "a mixture of experts"},
    {"pruned_heads", OFF, "pruned heads"},
    {"attention_bias", OFF, "biases"},
    {"attention_out_bias", OFF, "biases"},
    {"mlp_bias", OFF, "biases"},
    {"attention_multiplier", ATTENTION_SCALE, "another scale of attention"},
    {"query_pre_attn_scalar", HEAD_SIZE, "another scale of attention"},
    {"sliding_window", UNUSED_WINDOW, "a sliding window"},
    {"use_sliding_window", FALSE, "a sliding window"},
};

static bool is_neutral(struct json_reader *r, const struct known_key *known, const struct model_spec *spec)
{
    const json_t *value = json_reader_get(r, known->key);
    if (!value) return true;
    switch (known->neutral) {
    case OFF:
        return json_is_off(value);
    case FALSE:
        return !json_reader_bool(r, known->key, false);
    case ONE:
        return json_is_number(value) && json_number_value(value) == 1;
    case TRUE:
        return json_is_true(value);
    case SILU:
        return words_have("silu swish", json_string_value(value));
    case RMS_NORM:
        return words_have("rms_norm rmsnorm RMSNorm rms", json_string_value(value));
    case ROTARY:
        return words_have("rope rotary", json_string_value(value));
    case UNUSED_WINDOW:
        return json_is_off(value) || !json_reader_bool(r, "use_sliding_window", true);
    case ATTENTION_SCALE:
        return fabs(json_reader_number(r, known->key, 0, -1e9, 1e9) - 1 / sqrt(spec->layers[0].attention.head_size)) <=
               1e-6;
    case HEAD_SIZE:
        return json_reader_number(r, known->key, 0, -1e9, 1e9) == spec->layers[0].attention.head_size;
    }
    return false;
}

void known_keys_check(struct json_reader *r, const char *model_type, const char *reads, const char *ignores,
                      const struct model_spec *spec)
{
    for (size_t i = 0; i < sizeof known_keys / sizeof *known_keys; i++) {
        const struct known_key *known = &known_keys[i];
        if (words_have(reads, known->key) || words_have(ignores, known->key)) continue;
        if (!is_neutral(r, known, spec))
            json_reader_fail(r, STATUS_UNSUPPORTED, "%s is %s, but quire computes %s models only with %s there (%s)",
                             known->key, show_value(json_reader_get(r, known->key)).text, model_type,
                             neutral_names[known->neutral], known->what);
    }
}
