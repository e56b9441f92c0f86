/* Nemotron-H and Nemotron 3 (NVIDIA, 2025): a layer is one sublayer, which is Mamba 2, attention without rotation, an
 * MLP with a squared ReLU and no gate, or a mixture of such MLPs beside one. In Nemotron 3 Super the experts of the
 * mixture read and make latents. */
#include <string.h>

#include "model/families/families.h"

static struct recurrent_spec read_mamba2(struct json_reader *r, const struct model_spec *spec)
{
    struct recurrent_spec net = {
        .num_k_heads = json_reader_int(r, family_either_key(r, "mamba_n_groups", "n_groups"), 8, 1, 1024),
        .num_v_heads = json_reader_int(r, "mamba_num_heads", 128, 1, 4096),
        .k_head_size = json_reader_int(r, "ssm_state_size", 128, 1, 256),
        .v_head_size = json_reader_int(r, "mamba_head_dim", 64, 1, 256),
        .conv_width = json_reader_int(r, family_either_key(r, "mamba_d_conv", "conv_kernel"), 4, 2, 16),
        .conv_bias = json_reader_bool(r, family_either_key(r, "mamba_conv_bias", "use_conv_bias"), true),
        .norm_eps = spec->norm_eps,
        .beta_min = (float)json_reader_number(r, family_either_key(r, "mamba_dt_min", "time_step_min"), 1e-3, 0, 1e9),
    };
    net.in_bias = net.o_bias = json_reader_bool(r, "use_bias", false);
    net.norm_group_size = (int32_t)(recurrent_v_size(&net) / net.num_k_heads);
    return family_make_mamba2(r, &net);
}

/* The kind of a layer as hybrid_override_pattern has it: 'M', '*', '-' or 'E'; 0: it is none of these. */
static char kind_of_word(const char *word)
{
    static const struct {
        const char *word;
        char kind;
    } words[] = {{"linear_attention", 'M'}, {"mamba", 'M'}, {"full_attention", '*'},
                 {"attention", '*'},        {"mlp", '-'},   {"moe", 'E'}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i].word) == 0) return words[i].kind;
    return 0;
}

/* The list of layers, by either name, or NULL. */
static const char *list_key(struct json_reader *r)
{
    return family_either_key(r, "layers_block_type", "layer_types");
}

static const char *read_pattern(struct json_reader *r)
{
    return json_reader_get(r, list_key(r)) ? NULL : json_reader_string(r, "hybrid_override_pattern", "ME*-");
}

static int32_t count_layers(struct json_reader *r)
{
    const char *pattern = read_pattern(r);
    const size_t count = pattern ? strlen(pattern) : json_array_size(json_reader_get(r, list_key(r)));
    return count > 0 && count <= MODEL_MAX_LAYERS ? (int32_t)count : 1;
}

static char read_kind(struct json_reader *r, int32_t layer)
{
    const char *pattern = read_pattern(r), *key = pattern ? "hybrid_override_pattern" : list_key(r);
    const json_t *value = json_array_get(json_reader_get(r, key), (size_t)layer);
    char found[2] = "";
    if (pattern) found[0] = pattern[layer];
    const char kind = !pattern && json_is_text(value) ? kind_of_word(json_string_value(value)) : *found;
    if (kind && strchr("M*-E", kind)) return kind;
    json_reader_fail(r, STATUS_UNSUPPORTED,
                     "%s[%d] is %s; quire computes \"linear_attention\" (M), \"full_attention\" (*), \"mlp\" (-) and "
                     "\"moe\" (E)",
                     key, layer, pattern ? show_string(found).text : show_value(value).text);
    return '-';
}

static void check_layers(struct json_reader *r, const struct model_spec *spec)
{
    const char *pattern = read_pattern(r);
    if (!pattern)
        family_get_layer_list(r, list_key(r), "strings", spec);
    else if (strlen(pattern) != (size_t)spec->num_layers)
        json_reader_fail(r, STATUS_INVALID, "hybrid_override_pattern has %d letters, but num_hidden_layers is %d",
                         (int)strlen(pattern), spec->num_layers);
}

static struct experts_spec read_experts(struct json_reader *r)
{
    static const struct experts_keys keys = {.num_experts = {"n_routed_experts", "num_local_experts"},
                                             .size = "moe_intermediate_size",
                                             .absent_num_experts = 8,
                                             .absent_top_k = 2,
                                             .absent_size = 7688};
    struct experts_spec experts = family_read_deepseek_experts(r, &keys, true);
    experts.gate = (struct gate_params){
        .kind = GATE_NONE, .activation = family_read_plain_activation(r, "mlp_hidden_act", ACTIVATION_RELU2)};
    if (json_reader_get(r, "moe_latent_size")) {
        experts.latent_size = json_reader_int(r, "moe_latent_size", 0, 1, 1 << 20);
        experts.latent_bias = json_reader_bool(r, "mlp_bias", false);
    }
    return experts;
}

/* The shared expert, of which there is one. */
static struct mlp_spec read_shared(struct json_reader *r, const struct mlp_spec *mlp)
{
    struct mlp_spec shared = *mlp;
    const int32_t count = json_reader_int(r, "n_shared_experts", 1, 0, INT32_MAX);
    shared.intermediate_size = json_reader_int(r, "moe_shared_expert_intermediate_size", 7688, 1, 1 << 22);
    if (count != 1)
        json_reader_fail(r, STATUS_UNSUPPORTED, "n_shared_experts is %d; in this family quire computes one", count);
    return shared;
}

static void set_layers(struct json_reader *r, const struct attention_spec *attention, struct model_spec *spec)
{
    const struct recurrent_spec recurrent = read_mamba2(r, spec);
    const struct mlp_spec mlp = {
        .kind = MLP_PLAIN,
        .intermediate_size = json_reader_int(r, "intermediate_size", 21504, 1, 1 << 22),
        .bias = json_reader_bool(r, "mlp_bias", false),
        .activation = family_read_plain_activation(r, "mlp_hidden_act", ACTIVATION_RELU2),
    };
    for (int32_t i = 0; i < spec->num_layers && r->status == STATUS_OK; i++) {
        struct layer_spec *layer = &spec->layers[i];
        *layer = (struct layer_spec){.residual_multiplier = 1, .mixer = MIXER_NONE};
        switch (read_kind(r, i)) {
        case 'M':
            layer->mixer = MIXER_RECURRENT;
            layer->recurrent = recurrent;
            break;
        case '*':
            layer->mixer = MIXER_ATTENTION;
            layer->attention = *attention;
            break;
        case '-':
            layer->mlp = mlp;
            break;
        default:
            layer->experts = read_experts(r);
            layer->mlp = read_shared(r, &mlp);
        }
    }
}

static void set_names(struct tensor_names *names)
{
    names->embedding = "model.embeddings";
    names->final_norm = "model.norm_f";
    names->attention_norm = names->mlp_norm = "norm";
    names->attention = "mixer";
    names->up = "mixer.up_proj";
    names->down = "mixer.down_proj";
    names->router = "mixer.gate";
    names->choice_bias = "mixer.gate.e_score_correction_bias";
    names->experts = "mixer.experts";
    names->shared = "mixer.shared_experts";
    names->experts_in = "mixer.fc1_latent_proj";
    names->experts_out = "mixer.fc2_latent_proj";
    names->next_layers = "mtp";
    family_set_mamba_names(names, "mixer");
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {.max_position = 4096,
                                           .num_kv_heads = 8,
                                           .head_size = json_reader_int(r, "attention_head_dim", 128, 2, 1024),
                                           .norm_eps = 1e-5,
                                           .norm_eps_key = "layer_norm_epsilon",
                                           .no_mlp = true,
                                           .num_layers = count_layers(r)};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    layer.attention.rotary_dim = 0;
    check_layers(r, spec);
    set_layers(r, &layer.attention, spec);
    set_names(&spec->names);
}

const struct family family_nemotron_h = {
    .model_type = "nemotron_h",
    .architecture = "NemotronHForCausalLM",
    .read = read,
    .reads = "mlp_bias mlp_hidden_act use_bias layer_types n_routed_experts num_local_experts"};
