/* Kimi Linear (Kimi Team, 2025): of each four layers three are delta nets with a decay for each channel, and one has
 * latent attention without rotation; and DeepSeek V3's experts, behind a dense layer. */
#include <string.h>

#include "base/words.h"
#include "model/families/families.h"

/* The object linear_attn_config, which is absent from files of transformers. */
static struct json_reader net_reader(struct json_reader *r)
{
    struct json_reader inner = *r;
    inner.object = json_reader_get(r, "linear_attn_config");
    if (!inner.object) return inner;
    inner.prefix = "linear_attn_config.";
    if (!json_is_object(inner.object)) json_reader_expected(r, "linear_attn_config", "an object", inner.object);
    inner.status = r->status;
    return inner;
}

/* Keys lie in linear_attn_config or, with longer names, beside the others. */
static struct recurrent_spec read_net(struct json_reader *r, double norm_eps)
{
    struct json_reader inner = net_reader(r);
    const bool nested = inner.object != NULL;
    struct json_reader *from = nested ? &inner : r;
    struct recurrent_spec net = {
        .kind = RECURRENCE_DELTA_CHANNELS,
        .layout = RECURRENT_KIMI,
        .conv_apart = true,
        .num_k_heads = json_reader_int(from, nested ? "num_heads" : "linear_num_heads", 32, 1, 1024),
        .k_head_size = json_reader_int(from, nested ? "head_dim" : "linear_head_dim", 128, 1, 256),
        .conv_width = json_reader_int(from, nested ? "short_conv_kernel_size" : "linear_conv_kernel_dim", 4, 2, 16),
        .norm_qk = true,
        .beta_factor = 1,
        .sigmoid_gate = true,
        .norm_eps = norm_eps,
    };
    r->status = from->status;
    net.num_v_heads = net.num_k_heads;
    net.v_head_size = net.rank = net.k_head_size;
    family_finish_recurrent(r, &net);
    return net;
}

static struct experts_spec read_experts(struct json_reader *r)
{
    const struct experts_keys keys = {.num_experts = {"num_experts", "num_local_experts"},
                                      .top_k = family_either_key(r, "num_experts_per_token", "num_experts_per_tok"),
                                      .size = "moe_intermediate_size",
                                      .absent_num_experts = 256,
                                      .absent_top_k = 8,
                                      .absent_size = 1024};
    struct experts_spec experts = family_read_deepseek_experts(r, &keys, true);
    experts.router.normalize = json_reader_bool(r, "moe_renormalize", experts.router.normalize);
    experts.router.scaling = (float)json_reader_number(r, "routed_scaling_factor", 2.446, 1e-6, 1e6);
    const char *scores = json_reader_string(r, "moe_router_activation_func", "sigmoid");
    if (strcmp(scores, "sigmoid") != 0)
        json_reader_fail(r, STATUS_UNSUPPORTED,
                         "moe_router_activation_func is \"%s\"; in this family quire computes \"sigmoid\"",
                         show_string(scores).text);
    if (json_reader_int(r, "moe_layer_freq", 1, 1, INT32_MAX) != 1)
        json_reader_fail(r, STATUS_UNSUPPORTED,
                         "moe_layer_freq is not 1: quire computes experts in each layer behind the dense ones in this "
                         "family");
    return experts;
}

/* layer_types; without it kda_layers, which counts layers from 1; without both every fourth layer after the first has
 * attention. */
static void set_layers(struct json_reader *r, const struct layer_spec *attention, const struct layer_spec *recurrent,
                       struct model_spec *spec)
{
    struct json_reader inner = net_reader(r);
    const bool numbered = inner.object && json_reader_get(&inner, "kda_layers");
    if (json_reader_get(r, "layer_types")) {
        family_set_mixed_layers(r, "linear_attention", attention, recurrent, 1, spec);
        return;
    }
    for (int32_t i = 0; i < spec->num_layers; i++) {
        const bool recurs = numbered ? family_list_has_layer(&inner, "kda_layers", i + 1) : i == 0 || i % 4 != 0;
        spec->layers[i] = recurs ? *recurrent : *attention;
    }
    r->status = inner.status;
}

static void set_names(struct tensor_names *names)
{
    names->recurrent = "self_attn";
    names->recurrent_o = "o_proj";
    names->recurrent_norm = "o_norm";
    names->router = "block_sparse_moe.gate";
    names->choice_bias = "block_sparse_moe.gate.e_score_correction_bias";
    names->experts = "block_sparse_moe.experts";
    names->expert_gate = "w1";
    names->expert_up = "w3";
    names->expert_down = "w2";
    names->shared = "block_sparse_moe.shared_experts";
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    static const struct latent_sizes latent = {.rank = 512, .rope = 64, .nope = 128, .v_head_size = 128};
    const struct size_defaults defaults = {
        .max_position = 1048576,
        .norm_eps = 1e-5,
        .max_position_key = family_either_key(r, "model_max_length", "max_position_embeddings"),
    };
    struct layer_spec attention = family_read_latent(r, &defaults, &latent, spec), recurrent = attention;
    const struct experts_spec experts = read_experts(r);
    const char *shared = family_either_key(r, "num_shared_experts", "n_shared_experts");
    family_require_bool(r, "mla_use_nope", true, "rotated keys");
    attention.latent.no_rotation = true;
    recurrent.mixer = MIXER_RECURRENT;
    recurrent.latent = (struct latent_spec){0};
    recurrent.recurrent = read_net(r, spec->norm_eps);
    set_layers(r, &attention, &recurrent, spec);
    set_names(&spec->names);
    family_set_listed_experts(r, spec, &experts, json_reader_int(r, "first_k_dense_replace", 1, 0, INT32_MAX),
                              json_reader_int(r, shared, 1, 0, 1 << 10) * experts.intermediate_size);
}

const struct family family_kimi_linear = {.model_type = "kimi_linear",
                                          .architecture = "KimiLinearForCausalLM",
                                          .read = read,
                                          .reads = "attention_bias layer_types num_experts num_local_experts"};
