/* Step-3.5-Flash (StepFun, 2026), and the text of Step-3.7-Flash: QK norm, gates of the attention's heads, more heads
 * in layers with a window, which have a rope of their own, and behind dense layers a mixture of experts, chosen by
 * sigmoids with a bias, beside a shared one. In some layers what the gates multiply is limited. */
#include <stdlib.h>
#include <string.h>

#include "model/families/families.h"

static struct experts_spec read_experts(struct json_reader *r)
{
    const struct experts_keys keys = {.num_experts = {"n_routed_experts", "moe_num_experts"},
                                      .top_k = family_either_key(r, "num_experts_per_tok", "moe_top_k"),
                                      .size = "moe_intermediate_size",
                                      .absent_num_experts = 288,
                                      .absent_top_k = 8,
                                      .absent_size = 1280};
    struct experts_spec experts = family_read_sigmoid_experts(r, &keys);
    const char *activation = json_reader_string(r, "moe_router_activation", "sigmoid");
    experts.router.scaling = (float)json_reader_number(r, "moe_router_scaling_factor", 1, 1e-6, 1e6);
    if (strcmp(activation, "sigmoid") != 0)
        json_reader_fail(r, STATUS_UNSUPPORTED, "moe_router_activation is \"%s\"; in this family quire computes \"%s\"",
                         show_string(activation).text, "sigmoid");
    family_require_bool(r, "norm_expert_weight", true, "weights of experts that are not normalized");
    family_require_bool(r, "use_moe_router_bias", true, "a router without a bias");
    return experts;
}

/* moe_layers_enum: the layers with experts, an array or "3,4,5", where those for further tokens may follow. */
static void set_listed_layers(struct json_reader *r, struct model_spec *spec, const struct experts_spec *experts,
                              int32_t shared_size)
{
    const json_t *list = json_reader_get(r, "moe_layers_enum");
    const char *at = json_is_text(list) ? json_string_value(list) : NULL;
    for (int32_t i = 0; !at && i < spec->num_layers; i++)
        if (family_list_has_layer(r, "moe_layers_enum", i)) family_set_experts(spec, i, experts, shared_size);
    while (at) {
        char *end;
        const long layer = strtol(at, &end, 10);
        if (end == at || (*end && *end != ',')) {
            json_reader_expected(r, "moe_layers_enum", "numbers of layers between commas", list);
            return;
        }
        if (layer >= 0 && layer < spec->num_layers) family_set_experts(spec, (int32_t)layer, experts, shared_size);
        at = *end ? end + 1 : NULL;
    }
}

static void set_experts(struct json_reader *r, struct model_spec *spec)
{
    const struct experts_spec experts = read_experts(r);
    const int32_t shared_size =
        json_reader_int(r, family_either_key(r, "share_expert_dim", "share_expert_dims"), 1280, 1, 1 << 22);
    if (json_reader_get(r, "moe_layers_enum") && !json_reader_get(r, "mlp_layer_types"))
        set_listed_layers(r, spec, &experts, shared_size);
    else
        family_set_listed_experts(r, spec, &experts, 3, shared_size);
}

/* Heads of layers with a window. */
static void read_other_heads(struct json_reader *r, struct model_spec *spec)
{
    struct json_reader inner = *r;
    const struct attention_spec full = spec->layers[0].attention;
    const json_t *other = json_reader_get(r, "attention_other_setting");
    if (other && !json_is_map(other)) json_reader_expected(&inner, "attention_other_setting", "an object", other);
    inner.object = other;
    inner.prefix = "attention_other_setting.";
    int32_t num_heads = json_reader_int(&inner, "num_attention_heads", full.num_heads, 1, 4096);
    const int32_t num_kv_heads = json_reader_int(&inner, "num_attention_groups", full.num_kv_heads, 1, 4096);
    json_reader_int(&inner, "head_dim", full.head_size, full.head_size, full.head_size);
    r->status = inner.status;
    num_heads = json_reader_int(r, "num_sliding_attention_heads", num_heads, 1, 4096);
    if (num_heads % num_kv_heads != 0)
        json_reader_fail(r, STATUS_INVALID, "layers with a window have %d heads, no multiple of their %d KV heads",
                         num_heads, num_kv_heads);
    for (int32_t i = 0; i < spec->num_layers; i++) {
        struct attention_spec *a = &spec->layers[i].attention;
        if (a->window == 0) continue;
        a->num_heads = num_heads;
        a->num_kv_heads = num_kv_heads;
    }
}

/* The limit of a layer; 0: none, which null stands for. */
static float read_limit(struct json_reader *r, const char *key, int32_t layer, const struct model_spec *spec)
{
    const json_t *value = json_array_get(family_get_layer_list(r, key, "numbers", spec), (size_t)layer);
    return value && !json_is_null(value) ? (float)json_reader_to_number(r, key, value, 0, 1e6) : 0;
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {
        .max_position = 128000,
        .num_kv_heads = 8,
        .head_size = 128,
        .norm_eps = 1e-5,
        .num_kv_heads_key = family_either_key(r, "num_key_value_heads", "num_attention_groups"),
        .max_position_key = family_either_key(r, "max_position_embeddings", "max_seq_len")};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.attention.qk_norm = QK_NORM_HEAD;
    layer.attention.output_gate = OUTPUT_GATE_SIGMOID;
    layer.attention.head_gates = true;
    family_require_bool(r, "use_qk_norm", true, "attention without QK norm");
    family_require_bool(r, "use_head_wise_attn_gate", true, "attention without gates");
    family_require_bool(r, "zero_centered", true, "gains that are not stored less 1");
    family_set_layers(spec, &layer);
    family_read_layer_types(r, family_read_window(r, 0), spec);
    family_set_two_ropes(spec);
    read_other_heads(r, spec);
    set_experts(r, spec);
    for (int32_t i = 0; i < spec->num_layers; i++) {
        spec->layers[i].mlp.limit = read_limit(r, "swiglu_limits_shared", i, spec);
        spec->layers[i].experts.gate.limit = read_limit(r, "swiglu_limits", i, spec);
    }
    spec->gain_offset = 1;
    spec->names.output_gate = "g_proj";
    spec->names.router = "moe.gate";
    spec->names.choice_bias = "moe.router_bias";
    spec->names.shared = "share_expert";
    spec->names.experts = NULL;
    spec->names.expert_gate = "moe.gate_proj.weight";
    spec->names.expert_up = "moe.up_proj.weight";
    spec->names.expert_down = "moe.down_proj.weight";
}

const struct family family_step3p5 = {
    .model_type = "step3p5",
    .architecture = "Step3p5ForCausalLM",
    .read = read,
    .rope_theta = 10000,
    .rope_local_theta = 10000,
    .rope_local_theta_key = "rope_theta",
    .partial_rotary_factor_key = "partial_rotary_factors",
    .reads = "attention_bias sliding_window layer_types partial_rotary_factor use_qk_norm n_routed_experts "
             "moe_num_experts",
    /* transformers writes the first two beside what they follow from */
    .ignores = "num_local_experts per_layer_config use_sliding_window",
    .sizes = {
        .hidden_size = 4096, .intermediate_size = 11264, .num_layers = 45, .num_heads = 64, .vocab_size = 128815}};
