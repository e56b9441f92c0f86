/* OLMo Hybrid (OLMo Team, 2026): of each four layers three are gated delta nets with norms before their sublayers; the
 * others have OLMo 3's attention, whose norms stand after them, and which does not rotate in published files. */
#include "model/families/families.h"

/* A theta of null turns the rotation off. */
static bool rotates(struct json_reader *r)
{
    const json_t *rope = json_reader_get(r, "rope_parameters"), *theta = json_object_get(rope, "rope_theta");
    if (theta) return !json_is_null(theta);
    return !json_reader_has(r, "rope_theta") || json_reader_get(r, "rope_theta");
}

static struct recurrent_spec read_delta_net(struct json_reader *r, int32_t num_heads, int32_t hidden_size)
{
    struct recurrent_spec net = {
        .kind = RECURRENCE_DELTA,
        .layout = RECURRENT_OLMO,
        .num_k_heads = json_reader_int(r, "linear_num_key_heads", num_heads, 1, 1024),
        .num_v_heads = json_reader_int(r, "linear_num_value_heads", num_heads, 1, 1024),
        .conv_width = json_reader_int(r, "linear_conv_kernel_dim", 4, 2, 16),
        .conv_apart = true,
        .norm_qk = true,
        .beta_factor = json_reader_bool(r, "linear_allow_neg_eigval", true) ? 2 : 1,
        .round_norm = true,
        .norm_eps = 1e-5,
    };
    net.k_head_size =
        json_reader_int(r, "linear_key_head_dim", (int32_t)(0.75 * hidden_size / net.num_k_heads), 1, 256);
    net.v_head_size = json_reader_int(r, "linear_value_head_dim", 2 * net.k_head_size, 1, 256);
    family_finish_recurrent(r, &net);
    return net;
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec recurrent = family_read_llama(r, &(struct size_defaults){.max_position = 65536}, spec);
    struct layer_spec attention = recurrent;
    attention.norm_placement = NORM_AFTER;
    attention.attention.qk_norm = QK_NORM_PROJECTION;
    attention.attention.qkv_bias = attention.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    if (!rotates(r)) attention.attention.rotary_dim = 0;
    recurrent.mixer = MIXER_RECURRENT;
    recurrent.recurrent = read_delta_net(r, recurrent.attention.num_heads, spec->hidden_size);
    recurrent.attention = (struct attention_spec){0};
    family_set_mixed_layers(r, "linear_attention", &attention, &recurrent, spec->num_layers < 4 ? spec->num_layers : 4,
                            spec);
    spec->names.attention_norm = "attention_layer_norm";
    spec->names.mlp_norm = "feedforward_layer_norm";
    spec->names.recurrent = "linear_attn";
    spec->names.recurrent_o = "o_proj";
    spec->names.recurrent_norm = "o_norm";
}

const struct family family_olmo_hybrid = {.model_type = "olmo_hybrid",
                                          .architecture = "OlmoHybridForCausalLM",
                                          .read = read,
                                          .reads = "attention_bias layer_types"};
