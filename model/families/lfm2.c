/* LFM2 (Liquid AI, 2025), dense and with experts: short convolutions between two gates, and attention with QK norm in
 * some layers. */
#include <string.h>

#include "base/words.h"
#include "model/families/families.h"

/* layer_types or, in older files, full_attn_idxs. */
static void set_layers(struct json_reader *r, const struct layer_spec *attention, const struct layer_spec *conv,
                       struct model_spec *spec)
{
    const bool listed = !json_reader_get(r, "layer_types") && json_reader_get(r, "full_attn_idxs");
    if (!listed) family_set_mixed_layers(r, "conv", attention, conv, 1, spec);
    for (int32_t i = 0; listed && i < spec->num_layers; i++)
        spec->layers[i] = family_list_has_layer(r, "full_attn_idxs", i) ? *attention : *conv;
}

static void set_names(struct tensor_names *names)
{
    names->final_norm = "model.embedding_norm";
    names->attention_norm = "operator_norm";
    names->mlp_norm = "ffn_norm";
    names->o = "out_proj";
    names->q_norm = "q_layernorm";
    names->k_norm = "k_layernorm";
    names->conv = "conv";
    names->conv_o = "out_proj";
    names->gate = "feed_forward.w1";
    names->up = "feed_forward.w3";
    names->down = "feed_forward.w2";
}

static void read_layers(struct json_reader *r, int32_t inner, struct model_spec *spec)
{
    const struct size_defaults defaults = {.max_position = 128000,
                                           .num_kv_heads = 8,
                                           .norm_eps = 1e-5,
                                           .norm_eps_key = "norm_eps",
                                           .tie_word_embeddings = true,
                                           .no_mlp = true};
    struct layer_spec attention = family_read_llama(r, &defaults, spec), conv = {.residual_multiplier = 1};
    spec->tie_word_embeddings = json_reader_bool(r, "tie_embedding", spec->tie_word_embeddings);
    attention.attention.qk_norm = QK_NORM_HEAD;
    attention.mlp.intermediate_size = conv.mlp.intermediate_size = inner;
    conv.mixer = MIXER_CONV;
    conv.conv = (struct conv_spec){.channels = spec->hidden_size,
                                   .width = json_reader_int(r, "conv_L_cache", 3, 2, 16),
                                   .bias = json_reader_bool(r, "conv_bias", false)};
    set_layers(r, &attention, &conv, spec);
    set_names(&spec->names);
}

/* Of what the file says two thirds are taken, times a factor, in whole multiples, unless block_auto_adjust_ff_dim is
 * false. */
static int32_t read_intermediate_size(struct json_reader *r)
{
    const char *key = family_either_key(r, "block_ff_dim", "intermediate_size");
    const int32_t given = json_reader_int(r, key, 12288, 1, 1 << 22);
    const int32_t multiple = json_reader_int(r, "block_multiple_of", 256, 1, 1 << 20);
    const double factor = json_reader_number(r, "block_ffn_dim_multiplier", 1, 1e-3, 1e3);
    if (!json_reader_bool(r, "block_auto_adjust_ff_dim", true)) return given;
    const int64_t adjusted = (int64_t)(factor * (2 * given / 3));
    if (json_reader_has(r, "block_ffn_dim_multiplier") && !json_reader_get(r, "block_ffn_dim_multiplier"))
        return 2 * given / 3; /* null */
    return (int32_t)((adjusted + multiple - 1) / multiple * multiple);
}

static void read_lfm2(struct json_reader *r, struct model_spec *spec)
{
    read_layers(r, read_intermediate_size(r), spec);
}

static void read_lfm2_moe(struct json_reader *r, struct model_spec *spec)
{
    static const struct experts_keys keys = {.num_experts = {"num_experts", "num_local_experts"},
                                             .size = "moe_intermediate_size",
                                             .absent_num_experts = 32,
                                             .absent_top_k = 4,
                                             .absent_size = 1792};
    struct experts_spec experts = family_read_sigmoid_experts(r, &keys);
    read_layers(r, json_reader_int(r, "intermediate_size", 7168, 1, 1 << 22), spec);
    experts.choice_bias = json_reader_bool(r, "use_expert_bias", true);
    experts.router.normalize = json_reader_bool(r, "norm_topk_prob", true);
    experts.router.scaling = (float)json_reader_number(r, "routed_scaling_factor", 1, 1e-6, 1e6);
    for (int32_t i = json_reader_int(r, "num_dense_layers", 2, 0, INT32_MAX); i < spec->num_layers; i++)
        family_set_experts(spec, i, &experts, 0);
    spec->names.router = "feed_forward.gate";
    spec->names.choice_bias = "feed_forward.expert_bias";
    spec->names.experts = "feed_forward.experts";
    spec->names.expert_gate = "w1";
    spec->names.expert_up = "w3";
    spec->names.expert_down = "w2";
}

const struct family family_lfm2 = {.model_type = "lfm2",
                                   .architecture = "Lfm2ForCausalLM",
                                   .read = read_lfm2,
                                   .rope_theta = 1e6,
                                   .reads = "layer_types"};
const struct family family_lfm2_moe = {.model_type = "lfm2_moe",
                                       .architecture = "Lfm2MoeForCausalLM",
                                       .read = read_lfm2_moe,
                                       .rope_theta = 1e6,
                                       .reads = "layer_types num_experts num_local_experts"};
