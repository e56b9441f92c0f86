/* Laguna (Poolside, 2026): QK norm, softplus gates of the attention's output, as many heads in a layer as the file
 * says, windows with a rope of their own, and behind a dense layer a mixture of experts, chosen by sigmoids with a
 * bias, beside a shared one. */
#include <string.h>

#include "model/families/families.h"

static struct experts_spec read_experts(struct json_reader *r)
{
    static const struct experts_keys keys = {.num_experts = {"num_experts"},
                                             .size = "moe_intermediate_size",
                                             .absent_num_experts = 256,
                                             .absent_top_k = 8,
                                             .absent_size = 512};
    struct experts_spec experts = family_read_sigmoid_experts(r, &keys);
    experts.router.scaling = (float)json_reader_number(r, "moe_routed_scaling_factor", 1, 1e-6, 1e6);
    experts.router.soft_cap = (float)json_reader_number(r, "moe_router_logit_softcapping", 0, 0, 1e6);
    if (json_reader_bool(r, "moe_apply_router_weight_on_input", false))
        json_reader_fail(r, STATUS_UNSUPPORTED,
                         "moe_apply_router_weight_on_input is true, but in this family quire weights what experts "
                         "compute");
    return experts;
}

/* A gate for each head, or for each of its elements. */
static bool read_head_gates(struct json_reader *r)
{
    const json_t *gating = json_reader_get(r, "gating");
    const char *text = json_string_value(gating);
    if (!gating || json_is_true(gating) || (text && strcmp(text, "per-head") == 0)) return true;
    if (!text || strcmp(text, "per-element") != 0)
        json_reader_expected(r, "gating", "true, \"per-head\" or \"per-element\"", gating);
    return false;
}

static void read_num_heads(struct json_reader *r, struct model_spec *spec)
{
    const json_t *list = family_get_layer_list(r, "num_attention_heads_per_layer", "numbers", spec);
    for (int32_t i = 0; list && i < spec->num_layers; i++) {
        struct attention_spec *a = &spec->layers[i].attention;
        a->num_heads = (int32_t)json_reader_to_int64(r, "an element of num_attention_heads_per_layer",
                                                     json_array_get(list, (size_t)i), 1, 4096);
        if (a->num_heads % a->num_kv_heads != 0)
            json_reader_fail(r, STATUS_INVALID,
                             "num_attention_heads_per_layer[%d] (%d) is not a multiple of num_key_value_heads (%d)", i,
                             a->num_heads, a->num_kv_heads);
    }
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {.max_position = 131072, .num_kv_heads = 8, .head_size = 128};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    const struct experts_spec experts = read_experts(r);
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.attention.qk_norm = QK_NORM_HEAD;
    layer.attention.output_gate = OUTPUT_GATE_SOFTPLUS;
    layer.attention.head_gates = read_head_gates(r);
    family_set_layers(spec, &layer);
    read_num_heads(r, spec);
    family_read_layer_types(r, family_read_window(r, 512), spec);
    family_set_two_ropes(spec);
    if (!json_reader_get(r, "rope_parameters"))
        for (int32_t i = 0; i < spec->num_layers; i++)
            if (spec->layers[i].attention.window == 0) spec->layers[i].attention.rotary_dim /= 2;
    family_set_listed_experts(r, spec, &experts, 1,
                              json_reader_int(r, "shared_expert_intermediate_size", 512, 1, 1 << 22));
    spec->names.output_gate = "g_proj";
    spec->names.choice_bias = "mlp.experts.e_score_correction_bias";
    spec->names.shared = "mlp.shared_expert";
}

const struct family family_laguna = {.model_type = "laguna",
                                     .architecture = "LagunaForCausalLM",
                                     .read = read,
                                     .rope_theta = 500000,
                                     .rope_local_theta = 10000,
                                     .reads =
                                         "attention_bias sliding_window layer_types num_experts partial_rotary_factor",
                                     .ignores = "use_sliding_window"};
