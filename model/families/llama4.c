/* Llama 4 (Meta, 2025): mixtures of experts whose weights come first, attention in chunks, and every fourth layer
 * without chunks and rotation (iRoPE), whose queries grow with their position. Layers that rotate norm queries and keys
 * after the rotation, without gains. */
#include "model/families/families.h"

static void set_names(struct model_spec *spec)
{
    spec->names.gate = "feed_forward.gate_proj";
    spec->names.up = "feed_forward.up_proj";
    spec->names.down = "feed_forward.down_proj";
    spec->names.router = "feed_forward.router";
    spec->names.shared = "feed_forward.shared_expert";
    spec->names.experts = NULL;
    spec->names.expert_gate_up = "feed_forward.experts.gate_up_proj";
    spec->names.expert_down = "feed_forward.experts.down_proj";
    spec->names.experts_transposed = true;
    spec->names.quantized_experts = "feed_forward.experts";
}

/* The layers that moe_layers names, or every so many-th. */
static void set_experts(struct json_reader *r, struct model_spec *spec)
{
    static const struct experts_keys keys = {.num_experts = {"num_local_experts"},
                                             .size = "intermediate_size",
                                             .absent_num_experts = 16,
                                             .absent_top_k = 1,
                                             .absent_size = 8192};
    const int32_t step = json_reader_int(r, "interleave_moe_layer_step", 1, 1, INT32_MAX);
    const bool has_list = json_reader_get(r, "moe_layers") != NULL;
    struct experts_spec experts = family_read_experts(r, &keys);
    experts.router.kind = ROUTER_SIGMOID;
    experts.router.by_logits = true;
    experts.weights_first = true;
    for (int32_t i = 0; i < spec->num_layers; i++)
        if (has_list ? family_list_has_layer(r, "moe_layers", i) : (i + 1) % step == 0)
            family_set_experts(spec, i, &experts, experts.intermediate_size);
}

static void set_attention(struct json_reader *r, struct model_spec *spec)
{
    const bool norms = json_reader_bool(r, "use_qk_norm", true);
    const json_t *tuning = json_reader_get(r, "attn_temperature_tuning"); /* some files have a number */
    const bool scales = !tuning || !json_is_off(tuning);
    const struct query_scaling scaling = {.length = json_reader_int(r, "floor_scale", 8192, 1, INT32_MAX),
                                          .first = 1,
                                          .beta = (float)json_reader_number(r, "attn_scale", 0.1, -1e6, 1e6)};
    const int32_t absent = json_reader_has(r, "attention_chunk_size") ? 0 : 8192;
    family_read_rotating_layers(r, spec);
    family_read_chunks(r, json_reader_int(r, "attention_chunk_size", absent, 1, INT32_MAX), spec);
    for (int32_t i = 0; i < spec->num_layers; i++) {
        struct attention_spec *a = &spec->layers[i].attention;
        const bool rotates = a->rotary_dim > 0;
        if (rotates && norms) {
            a->qk_norm = QK_NORM_HEAD;
            a->norm_after_rotation = a->no_qk_gains = true;
        }
        if (!rotates && scales) a->query_scaling = scaling;
    }
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {
        .max_position = 131072, .num_kv_heads = 8, .head_size = 128, .norm_eps = 1e-5};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    layer.mlp.intermediate_size = json_reader_int(r, "intermediate_size_mlp", 16384, 1, 1 << 22);
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    family_set_layers(spec, &layer);
    set_attention(r, spec);
    set_experts(r, spec);
    spec->rope_interleaved = true;
    set_names(spec);
}

const struct family family_llama4 = {.model_type = "llama4_text",
                                     .architecture = "Llama4ForCausalLM",
                                     .read = read,
                                     .rope_theta = 500000,
                                     .reads = "attention_bias attention_chunk_size attn_temperature_tuning layer_types "
                                              "no_rope_layers no_rope_layer_interval num_local_experts use_qk_norm",
                                     .sizes = {5120, 8192, 48, 40, 202048}};
