/* MiMo-V2-Flash (Xiaomi, 2025): heads of V that are smaller than those of Q and K, scaled values, and windows whose
 * layers have learnt sinks, KV heads and a rope of their own; behind a dense layer a mixture of experts with DeepSeek
 * V3's router. */
#include "model/families/families.h"

/* Whether an array of 0 and 1, one for each layer, has a 1 for the layer; `absent` where the file lacks it. */
static bool read_flag(struct json_reader *r, const struct model_spec *spec, const char *key, int32_t layer, bool absent)
{
    const json_t *list = family_get_layer_list(r, key, "numbers", spec);
    return list ? json_reader_to_int64(r, key, json_array_get(list, (size_t)layer), 0, 1) == 1 : absent;
}

/* Fails unless a key of layers with a window is absent or what others have. */
static void require_same(struct json_reader *r, const char *key, int32_t expected)
{
    const int32_t found = json_reader_int(r, key, expected, 0, INT32_MAX);
    if (found != expected)
        json_reader_fail(r, STATUS_UNSUPPORTED, "%s is %d, but quire computes mimo_v2_flash models only with %d there",
                         key, found, expected);
}

static void set_windows(struct json_reader *r, struct model_spec *spec)
{
    const struct attention_spec first = spec->layers[0].attention;
    const int32_t window = family_read_window(r, 128);
    const int32_t num_kv_heads = json_reader_int(r, "swa_num_key_value_heads", 2 * first.num_kv_heads, 1, 4096);
    const bool sinks = json_reader_bool(r, "add_swa_attention_sink_bias", true);
    require_same(r, "swa_num_attention_heads", first.num_heads);
    require_same(r, "swa_head_dim", first.head_size);
    require_same(r, "swa_v_head_dim", first.v_head_size);
    require_same(r, "sliding_window_size", window);
    for (int32_t i = 0; i < spec->num_layers; i++)
        if (read_flag(r, spec, "hybrid_layer_pattern", i, i > 0 && (i + 1) % 6 != 0))
            spec->layers[i].attention.window = window;
    family_read_layer_types(r, window, spec);
    if (window == 0) json_reader_fail(r, STATUS_INVALID, "sliding_window must be a number, found null");
    if (first.num_heads % num_kv_heads != 0)
        json_reader_fail(r, STATUS_INVALID,
                         "num_attention_heads (%d) is not a multiple of the KV heads of layers with a window (%d)",
                         first.num_heads, num_kv_heads);
    for (int32_t i = 0; i < spec->num_layers; i++) {
        struct attention_spec *a = &spec->layers[i].attention;
        if (a->window == 0) continue;
        a->num_kv_heads = num_kv_heads;
        a->sinks = sinks;
    }
}

static void set_experts(struct json_reader *r, struct model_spec *spec)
{
    static const struct experts_keys keys = {.num_experts = {"n_routed_experts", "num_local_experts"},
                                             .size = "moe_intermediate_size",
                                             .absent_num_experts = 256,
                                             .absent_top_k = 8,
                                             .absent_size = 2048};
    const struct experts_spec experts = family_read_deepseek_experts(r, &keys, true);
    require_same(r, "n_shared_experts", 0);
    if (json_reader_get(r, "mlp_layer_types"))
        family_set_listed_experts(r, spec, &experts, 1, 0);
    else
        for (int32_t i = 0; i < spec->num_layers; i++)
            if (read_flag(r, spec, "moe_layer_freq", i, i > 0)) family_set_experts(spec, i, &experts, 0);
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {.max_position = 131072,
                                           .num_kv_heads = 4,
                                           .head_size = 192,
                                           .norm_eps = 1e-5,
                                           .norm_eps_key = family_either_key(r, "rms_norm_eps", "layernorm_epsilon")};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    layer.attention.v_head_size = json_reader_int(r, "v_head_dim", 128, 2, MODEL_MAX_HEAD_SIZE);
    layer.attention.v_multiplier = (float)json_reader_number(
        r, "attention_value_scale", json_reader_has(r, "attention_value_scale") ? 1 : 0.707, 1e-6, 1e6);
    layer.attention.qkv_bias = json_reader_bool(r, "attention_bias", false);
    layer.attention.sinks = json_reader_bool(r, "add_full_attention_sink_bias", false);
    family_set_layers(spec, &layer);
    set_windows(r, spec);
    family_set_two_ropes(spec);
    set_experts(r, spec);
    spec->names.sinks = "attention_sink_bias";
}

const struct family family_mimo_v2_flash = {
    .model_type = "mimo_v2_flash",
    .architecture = "MiMoV2FlashForCausalLM",
    .read = read,
    .rope_theta = 5e6,
    .rope_local_theta = 10000,
    .rope_local_theta_key = "swa_rope_theta",
    .partial_rotary_factor = 0.334,
    .reads = "attention_bias sliding_window layer_types n_routed_experts num_local_experts partial_rotary_factor "
             "swa_rope_theta",
    .ignores = "use_sliding_window attention_chunk_size"};
