/* Qwen3-Next (Qwen Team, 2025), Qwen3.5, Qwen3.6 and Qwen3.8 (2026), dense and with experts: of each four layers three
 * are gated delta nets (Yang et al., 2024), and one has attention with an output gate. Positions of text are the same
 * on all axes. */
#include <string.h>

#include "model/families/families.h"

static struct recurrent_spec read_delta_net(struct json_reader *r, enum recurrent_layout layout, double norm_eps)
{
    struct recurrent_spec net = {
        .kind = RECURRENCE_DELTA,
        .layout = layout,
        .num_k_heads = json_reader_int(r, "linear_num_key_heads", 16, 1, 1024),
        .num_v_heads = json_reader_int(r, "linear_num_value_heads", 32, 1, 1024),
        .k_head_size = json_reader_int(r, "linear_key_head_dim", 128, 1, 256),
        .v_head_size = json_reader_int(r, "linear_value_head_dim", 128, 1, 256),
        .conv_width = json_reader_int(r, "linear_conv_kernel_dim", 4, 2, 16),
        .norm_qk = true,
        .beta_factor = 1,
        .round_norm = true,
        .norm_eps = norm_eps,
    };
    family_finish_recurrent(r, &net);
    return net;
}

/* Attention with a gate for each element, which q_proj computes, too. */
static struct layer_spec read_attention_layer(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec layer =
        family_read_llama(r, &(struct size_defaults){.max_position = 32768, .num_kv_heads = 4, .head_size = 256}, spec);
    family_require_bool(r, "attention_bias", false, "biases in attention");
    family_require_bool(r, "attn_output_gate", true, "attention without an output gate");
    layer.attention.qk_norm = QK_NORM_HEAD;
    layer.attention.output_gate = OUTPUT_GATE_SIGMOID;
    layer.attention.gate_in_q = true;
    spec->gain_offset = 1;
    return layer;
}

static void read_layers(struct json_reader *r, enum recurrent_layout layout, struct model_spec *spec)
{
    const struct layer_spec attention = read_attention_layer(r, spec);
    struct layer_spec recurrent = attention;
    recurrent.mixer = MIXER_RECURRENT;
    recurrent.attention = (struct attention_spec){0};
    recurrent.recurrent = read_delta_net(r, layout, spec->norm_eps);
    spec->names.recurrent = "linear_attn";
    spec->names.recurrent_o = "out_proj";
    spec->names.recurrent_norm = "norm";
    spec->names.next_layers = "mtp.";
    family_set_mixed_layers(r, "linear_attention", &attention, &recurrent,
                            json_reader_int(r, "full_attention_interval", 4, 1, INT32_MAX), spec);
}

static void add_experts(struct json_reader *r, bool normalize, struct model_spec *spec)
{
    static const struct experts_keys keys = {.num_experts = {"num_experts", "num_local_experts"},
                                             .size = "moe_intermediate_size",
                                             .absent_num_experts = 256,
                                             .absent_top_k = 8,
                                             .absent_size = 512};
    struct experts_spec experts = family_read_experts(r, &keys);
    experts.router.normalize = normalize;
    experts.shared_gate = true;
    family_set_qwen_experts(r, spec, &experts, json_reader_int(r, "shared_expert_intermediate_size", 512, 1, 1 << 22));
    spec->names.shared = "mlp.shared_expert";
    spec->names.shared_gate = "mlp.shared_expert_gate";
}

static void read_qwen3_5(struct json_reader *r, struct model_spec *spec)
{
    read_layers(r, RECURRENT_APART, spec);
}

static void read_qwen3_5_moe(struct json_reader *r, struct model_spec *spec)
{
    read_layers(r, RECURRENT_APART, spec);
    add_experts(r, true, spec);
    spec->names.experts = NULL;
    spec->names.expert_gate_up = "mlp.experts.gate_up_proj";
    spec->names.expert_down = "mlp.experts.down_proj";
    spec->names.quantized_experts = "mlp.experts";
}

static void read_qwen3_next(struct json_reader *r, struct model_spec *spec)
{
    read_layers(r, RECURRENT_BY_KEY_HEAD, spec);
    add_experts(r, json_reader_bool(r, "norm_topk_prob", true), spec);
}

/* A layer with attention, in which the rest is as in layer 0 (vLLM's qwen3_next_mtp.py and qwen3_5_mtp.py). The state
 * is the target's behind its final norm, and then the output of the head's own. */
static void make_mtp(struct json_reader *r, struct model_spec *spec)
{
    struct tensor_names *names = &spec->names;
    struct layer_spec layer = spec->layers[0];
    int32_t i = 0;
    family_require_bool(r, "mtp_use_dedicated_embeddings", false, "an embedding of next layers");
    while (i < spec->num_layers - 1 && spec->layers[i].mixer != MIXER_ATTENTION) i++;
    layer.mixer = MIXER_ATTENTION;
    layer.attention = spec->layers[i].attention;
    layer.recurrent = (struct recurrent_spec){0};
    family_set_mtp(spec, &layer, "mtp.layers", 0);
    spec->head.own_state_normed = true;
    names->head_embedding_norm = "mtp.pre_fc_norm_embedding";
    names->head_state_norm = "mtp.pre_fc_norm_hidden";
    names->head_projection = "mtp.fc";
    names->final_norm = "mtp.norm";
}

#define KEYS                                                                                                           \
    "attention_bias attn_output_gate layer_types full_attention_interval linear_num_key_heads linear_num_value_heads " \
    "linear_key_head_dim linear_value_head_dim linear_conv_kernel_dim partial_rotary_factor"

const struct family family_qwen3_5 = {.model_type = "qwen3_5_text",
                                      .architecture = "Qwen3_5ForCausalLM",
                                      .read = read_qwen3_5,
                                      .make_mtp = make_mtp,
                                      .num_next_layers_key = "mtp_num_hidden_layers",
                                      .absent_num_next_layers = 1,
                                      .partial_rotary_factor = 0.25,
                                      .reads = KEYS,
                                      .sizes = {4096, 12288, 32, 16, 248320}};
const struct family family_qwen3_5_moe = {.model_type = "qwen3_5_moe_text",
                                          .architecture = "Qwen3_5MoeForCausalLM",
                                          .read = read_qwen3_5_moe,
                                          .make_mtp = make_mtp,
                                          .num_next_layers_key = "mtp_num_hidden_layers",
                                          .absent_num_next_layers = 1,
                                          .partial_rotary_factor = 0.25,
                                          .reads = KEYS " num_experts num_local_experts",
                                          .sizes = {2048, 512, 40, 16, 248320}};
const struct family family_qwen3_next = {.model_type = "qwen3_next",
                                         .architecture = "Qwen3NextForCausalLM",
                                         .read = read_qwen3_next,
                                         .make_mtp = make_mtp,
                                         .absent_num_next_layers = 1,
                                         .partial_rotary_factor = 0.25,
                                         .reads = KEYS " num_experts num_local_experts"};
