/* MiniMax-Text-01 and MiniMax-M1 (MiniMax, 2025): of each eight layers seven have lightning attention (Qin et al.,
 * 2024), a recurrence of fixed decay, and one has attention; the residual stream is normed before each sublayer, and
 * scaled; experts in every layer. Files of transformers have other names of keys than the published ones. */
#include "model/families/families.h"

/* alpha and beta of x = alpha * norm(x) + beta * f(norm(x)), whose names are the first of two or the second. */
static struct stream_scaling read_scaling(struct json_reader *r, const char *const alphas[2],
                                          const char *const betas[2])
{
    const double alpha = json_reader_number(r, family_either_key(r, alphas[0], alphas[1]), 1, 1e-6, 1e6);
    const double beta = json_reader_number(r, family_either_key(r, betas[0], betas[1]), 1, 0, 1e6);
    return (struct stream_scaling){.output = (float)(beta / alpha), .sum = (float)alpha};
}

static void read_scalings(struct json_reader *r, struct layer_spec *attention, struct layer_spec *recurrent)
{
    static const char *const keys[][2][2] = {
        {{"full_attn_alpha_factor", "layernorm_full_attention_alpha"},
         {"full_attn_beta_factor", "layernorm_full_attention_beta"}},
        {{"linear_attn_alpha_factor", "layernorm_linear_attention_alpha"},
         {"linear_attn_beta_factor", "layernorm_linear_attention_beta"}},
        {{"mlp_alpha_factor", "layernorm_mlp_alpha"}, {"mlp_beta_factor", "layernorm_mlp_beta"}},
    };
    family_require_bool(r, "postnorm", true, "a residual stream that is not normed");
    attention->norm_placement = recurrent->norm_placement = NORM_STREAM;
    attention->mixer_scaling = read_scaling(r, keys[0][0], keys[0][1]);
    recurrent->mixer_scaling = read_scaling(r, keys[1][0], keys[1][1]);
    attention->mlp_scaling = recurrent->mlp_scaling = read_scaling(r, keys[2][0], keys[2][1]);
}

/* The slopes of a layer are those of ALiBi, which shrink from layer to layer. */
static struct recurrent_spec read_lightning(struct json_reader *r, const struct attention_spec *heads)
{
    struct recurrent_spec net = {.kind = RECURRENCE_FIXED,
                                 .layout = RECURRENT_LIGHTNING,
                                 .num_k_heads = heads->num_heads,
                                 .num_v_heads = heads->num_heads,
                                 .k_head_size = heads->head_size,
                                 .v_head_size = heads->head_size,
                                 .conv_width = 1,
                                 .scale = 1,
                                 .sigmoid_gate = true,
                                 .round_norm = true,
                                 .norm_eps = 1e-6};
    net.norm_group_size = (int32_t)recurrent_v_size(&net);
    family_finish_recurrent(r, &net);
    return net;
}

/* layer_types, or attn_type_list, which has a 1 for a layer of attention. Without both every other layer has it, the
 * first among them. */
static void set_layers(struct json_reader *r, const struct layer_spec *attention, const struct layer_spec *recurrent,
                       struct model_spec *spec)
{
    const json_t *list = family_get_layer_list(r, "attn_type_list", "numbers", spec);
    if (json_reader_get(r, "layer_types")) {
        family_set_mixed_layers(r, "linear_attention", attention, recurrent, 1, spec);
        list = NULL;
    } else {
        for (int32_t i = 0; i < spec->num_layers; i++) spec->layers[i] = i % 2 == 0 ? *attention : *recurrent;
    }
    for (int32_t i = 0; list && i < spec->num_layers; i++) {
        const json_t *type = json_array_get(list, (size_t)i);
        const bool attends = json_reader_to_int64(r, "an element of attn_type_list", type, 0, 1);
        spec->layers[i] = attends ? *attention : *recurrent;
    }
    for (int32_t i = 0; i < spec->num_layers; i++)
        spec->layers[i].recurrent.slope_factor = (float)(1 - i / (spec->num_layers - 1 + 1e-5) + 1e-5);
}

/* An MLP beside the experts, which no published file has: its sizes are 0, one for all layers or one for each. */
static void check_shared(struct json_reader *r)
{
    const json_t *sizes = json_reader_get(r, "shared_intermediate_size");
    bool any = sizes && !json_is_array(sizes) && !json_is_off(sizes);
    for (size_t i = 0; i < json_array_size(sizes); i++) any |= !json_is_off(json_array_get(sizes, i));
    if (any)
        json_reader_fail(r, STATUS_UNSUPPORTED,
                         "shared_intermediate_size is not 0: quire computes no MLP beside experts in this family");
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    static const struct experts_keys keys = {.num_experts = {"num_local_experts", "num_experts"},
                                             .size = "intermediate_size",
                                             .absent_num_experts = 8,
                                             .absent_top_k = 2};
    const struct size_defaults defaults = {.max_position = 131072, .num_kv_heads = 8, .norm_eps = 1e-5};
    struct layer_spec attention = family_read_llama(r, &defaults, spec), recurrent;
    attention.experts = family_read_experts(r, &keys);
    attention.experts.router.normalize = true;
    attention.mlp.intermediate_size = 0;
    family_read_rotary_dim(r, &attention.attention);
    recurrent = attention;
    recurrent.mixer = MIXER_RECURRENT;
    recurrent.attention = (struct attention_spec){0};
    recurrent.recurrent = read_lightning(r, &attention.attention);
    read_scalings(r, &attention, &recurrent);
    check_shared(r);
    set_layers(r, &attention, &recurrent, spec);
    family_set_mixtral_names(spec);
    spec->names.recurrent = "self_attn";
    spec->names.recurrent_o = "out_proj";
    spec->names.recurrent_norm = "norm";
}

#define KEYS "layer_types num_experts num_local_experts"

const struct family family_minimax = {
    .model_type = "minimax", .architecture = "MiniMaxForCausalLM", .read = read, .rope_theta = 1e6, .reads = KEYS};
const struct family family_minimax_m1 = {
    .model_type = "minimax_m1", .architecture = "MiniMaxM1ForCausalLM", .read = read, .rope_theta = 1e6, .reads = KEYS};
const struct family family_minimax_text_01 = {.model_type = "minimax_text_01",
                                              .architecture = "MiniMaxText01ForCausalLM",
                                              .read = read,
                                              .rope_theta = 1e6,
                                              .reads = KEYS};
