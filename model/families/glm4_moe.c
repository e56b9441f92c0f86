/* GLM-4.5 and its kin (GLM-4.5 Team, 2025; dots.llm1, 2025; Solar Open, 2026): Llama's or Qwen's attention, and experts
 * with DeepSeek V3's router and shared experts, after some dense layers. */
#include "model/families/families.h"

static void read_glm(struct json_reader *r, int32_t max_position, bool bias, struct model_spec *spec)
{
    static const struct experts_keys keys = {.num_experts = {"n_routed_experts", "num_local_experts"},
                                             .size = "moe_intermediate_size",
                                             .absent_num_experts = 128,
                                             .absent_top_k = 8,
                                             .absent_size = 1408};
    const struct size_defaults defaults = {.max_position = max_position, .num_kv_heads = 8, .norm_eps = 1e-5};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    const struct experts_spec experts = family_read_deepseek_experts(r, &keys, true);
    layer.attention.qkv_bias = json_reader_bool(r, "attention_bias", bias); /* O has none */
    family_set_layers(spec, &layer);
    family_set_deepseek_experts(spec, &experts, json_reader_int(r, "first_k_dense_replace", 1, 0, INT32_MAX),
                                json_reader_int(r, "n_shared_experts", 1, 0, 1 << 10));
}

static void read_glm4_moe(struct json_reader *r, struct model_spec *spec)
{
    read_glm(r, 131072, false, spec);
    if (!json_reader_bool(r, "use_qk_norm", false)) return;
    for (int32_t i = 0; i < spec->num_layers; i++) spec->layers[i].attention.qk_norm = QK_NORM_HEAD;
}

/* GLM-4.7-Flash: with latent attention */
static void read_glm4_moe_lite(struct json_reader *r, struct model_spec *spec)
{
    static const struct latent_sizes latent = {.q_rank = 768, .rank = 512, .rope = 64, .nope = 192, .v_head_size = 256};
    static const struct experts_keys keys = {.num_experts = {"n_routed_experts", "num_local_experts"},
                                             .size = "moe_intermediate_size",
                                             .absent_num_experts = 64,
                                             .absent_top_k = 4,
                                             .absent_size = 1536};
    const struct size_defaults defaults = {.max_position = 202752, .norm_eps = 1e-5};
    const struct layer_spec layer = family_read_latent(r, &defaults, &latent, spec);
    struct experts_spec experts = family_read_deepseek_experts(r, &keys, true);
    experts.router.scaling = (float)json_reader_number(r, "routed_scaling_factor", 1.8, 1e-6, 1e6);
    spec->rope_interleaved = json_reader_bool(r, "rope_interleave", true);
    spec->names.shared = "mlp.shared_experts";
    family_set_layers(spec, &layer);
    family_set_listed_experts(r, spec, &experts, json_reader_int(r, "first_k_dense_replace", 1, 0, INT32_MAX),
                              json_reader_int(r, "n_shared_experts", 1, 0, 1 << 10) * experts.intermediate_size);
}

/* The text part of GLM-4.5V and GLM-4.6V */
static void read_glm4v_moe(struct json_reader *r, struct model_spec *spec)
{
    read_glm(r, 65536, true, spec);
}

/* Layers from max_window_layers on have the window, unless layer_types says otherwise. */
static void read_dots1(struct json_reader *r, struct model_spec *spec)
{
    static const struct experts_keys keys = {.num_experts = {"n_routed_experts", "num_local_experts"},
                                             .size = "moe_intermediate_size",
                                             .absent_num_experts = 128,
                                             .absent_top_k = 6,
                                             .absent_size = 1408};
    struct layer_spec layer =
        family_read_llama(r, &(struct size_defaults){.max_position = 2048, .num_kv_heads = 32}, spec);
    const struct experts_spec experts = family_read_deepseek_experts(r, &keys, false);
    const int32_t window = family_read_window(r, 4096);
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.attention.qk_norm = QK_NORM_HEAD;
    family_set_layers(spec, &layer);
    for (int32_t i = json_reader_int(r, "max_window_layers", 62, 0, INT32_MAX); i < spec->num_layers; i++)
        spec->layers[i].attention.window = window;
    family_read_layer_types(r, window, spec);
    family_set_deepseek_experts(spec, &experts, json_reader_int(r, "first_k_dense_replace", 0, 0, INT32_MAX),
                                json_reader_int(r, "n_shared_experts", 0, 0, 1 << 10));
}

static void read_solar_open(struct json_reader *r, struct model_spec *spec)
{
    static const struct experts_keys keys = {.num_experts = {"n_routed_experts", "num_local_experts"},
                                             .size = "moe_intermediate_size",
                                             .absent_num_experts = 128,
                                             .absent_top_k = 8,
                                             .absent_size = 1280};
    const struct size_defaults defaults = {
        .max_position = 131072, .num_kv_heads = 8, .head_size = 128, .norm_eps = 1e-5, .no_mlp = true};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    const struct experts_spec experts = family_read_deepseek_experts(r, &keys, true);
    layer.attention.qkv_bias = json_reader_bool(r, "attention_bias", false); /* O has none */
    family_set_layers(spec, &layer);
    family_set_deepseek_experts(spec, &experts, 0, json_reader_int(r, "n_shared_experts", 1, 0, 1 << 10));
}

const struct family family_glm4_moe = {
    .model_type = "glm4_moe",
    .architecture = "Glm4MoeForCausalLM",
    .read = read_glm4_moe,
    .make_mtp = family_make_deepseek_mtp,
    .partial_rotary_factor = 0.5,
    .reads = "attention_bias partial_rotary_factor use_qk_norm n_routed_experts num_local_experts"};
const struct family family_glm4_moe_lite = {.model_type = "glm4_moe_lite",
                                            .architecture = "Glm4MoeLiteForCausalLM",
                                            .read = read_glm4_moe_lite,
                                            .make_mtp = family_make_deepseek_mtp,
                                            .reads =
                                                "attention_bias rope_interleave n_routed_experts num_local_experts"};
const struct family family_glm4v_moe = {.model_type = "glm4v_moe_text",
                                        .architecture = "Glm4vMoeForConditionalGeneration",
                                        .read = read_glm4v_moe,
                                        .partial_rotary_factor = 0.5,
                                        .reads =
                                            "attention_bias partial_rotary_factor n_routed_experts num_local_experts",
                                        .sizes = {4096, 10944, 46, 96, 151424}};
const struct family family_dots1 = {.model_type = "dots1",
                                    .architecture = "Dots1ForCausalLM",
                                    .read = read_dots1,
                                    .reads =
                                        "attention_bias sliding_window layer_types n_routed_experts num_local_experts",
                                    .ignores = "use_sliding_window"};
const struct family family_solar_open = {.model_type = "solar_open",
                                         .architecture = "SolarOpenForCausalLM",
                                         .read = read_solar_open,
                                         .rope_theta = 1e6,
                                         .reads = "attention_bias partial_rotary_factor n_routed_experts "
                                                  "num_local_experts"};
