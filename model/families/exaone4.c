/* EXAONE 4 (LG AI Research, 2025): norms after each sublayer instead of before, and of each head of queries and keys.
 * The 32B model alternates layers with a sliding window, which rotate, and layers that attend to all, which do not;
 * smaller ones have no windows, and rotate in every layer. K-EXAONE (exaone_moe) has norms before each sublayer, and
 * experts with DeepSeek V3's router in the layers that mlp_layer_types names. */
#include "model/families/families.h"

/* layer_types counts where it is given, so the pattern may be anything then. */
static void read_windows(struct json_reader *r, struct model_spec *spec)
{
    const int32_t window = family_read_window(r, 4096);
    if (window > 0 && !json_reader_get(r, "layer_types"))
        family_set_windows(spec, window, json_reader_int(r, "sliding_window_pattern", 4, 1, INT32_MAX));
    family_read_layer_types(r, window, spec);
    for (int32_t i = 0; i < spec->num_layers; i++)
        if (window > 0 && spec->layers[i].attention.window == 0) spec->layers[i].attention.rotary_dim = 0;
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec layer =
        family_read_llama(r, &(struct size_defaults){.max_position = 2048, .num_kv_heads = 32, .norm_eps = 1e-5}, spec);
    layer.norm_placement = NORM_AFTER;
    layer.attention.qk_norm = QK_NORM_HEAD;
    family_set_layers(spec, &layer);
    read_windows(r, spec);
}

static void read_moe(struct json_reader *r, struct model_spec *spec)
{
    static const struct experts_keys keys = {.num_experts = {"num_experts", "num_local_experts"},
                                             .size = "moe_intermediate_size",
                                             .absent_num_experts = 64,
                                             .absent_top_k = 8,
                                             .absent_size = 1024};
    struct layer_spec layer =
        family_read_llama(r, &(struct size_defaults){.max_position = 2048, .num_kv_heads = 32, .norm_eps = 1e-5}, spec);
    struct experts_spec experts = family_read_deepseek_experts(r, &keys, true);
    experts.router.scaling = (float)json_reader_number(r, "routed_scaling_factor", 2.5, 1e-6, 1e6);
    layer.attention.qk_norm = QK_NORM_HEAD;
    family_set_layers(spec, &layer);
    read_windows(r, spec);
    family_set_listed_experts(r, spec, &experts, json_reader_int(r, "first_k_dense_replace", 1, 0, INT32_MAX),
                              json_reader_int(r, "num_shared_experts", 1, 0, 1 << 10) * experts.intermediate_size);
    spec->names.shared = "mlp.shared_experts";
    spec->names.choice_bias = "mlp.e_score_correction_bias";
}

const struct family family_exaone_moe = {
    .model_type = "exaone_moe",
    .architecture = "ExaoneMoeForCausalLM",
    .read = read_moe,
    .reads = "sliding_window sliding_window_pattern layer_types num_experts num_local_experts",
    .ignores = "use_sliding_window"};
const struct family family_exaone4 = {.model_type = "exaone4",
                                      .architecture = "Exaone4ForCausalLM",
                                      .read = read,
                                      .reads = "sliding_window sliding_window_pattern layer_types",
                                      .ignores = "use_sliding_window",
                                      .sizes = {4096, 16384, 32, 32, 102400}};
