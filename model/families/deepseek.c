/* DeepSeek V2 and V3 (DeepSeek-AI, 2024), of which R1, V3.1 and Kimi K2 (2025) are further checkpoints, Youtu-LLM
 * (Tencent, 2025) and Mistral 4 (2026): latent attention, and experts after some dense layers, or none. */
#include <string.h>

#include "model/families/families.h"

/* Fails unless the key is absent or this word. */
static void require_word(struct json_reader *r, const char *key, const char *expected)
{
    const char *word = json_reader_string(r, key, expected);
    if (strcmp(word, expected) != 0)
        json_reader_fail(r, STATUS_UNSUPPORTED, "%s is \"%s\"; in this family quire computes \"%s\"", key,
                         show_string(word).text, expected);
}

/* Gives the layers from first_k_dense_replace on experts, and shared ones beside them. */
static void set_experts(struct json_reader *r, const struct experts_spec *experts, int32_t first, int32_t shared,
                        struct model_spec *spec)
{
    if (json_reader_int(r, "moe_layer_freq", 1, 1, INT32_MAX) != 1)
        json_reader_fail(r, STATUS_UNSUPPORTED,
                         "moe_layer_freq is not 1: quire computes experts in each layer behind "
                         "the dense ones in this family");
    family_set_deepseek_experts(spec, experts, json_reader_int(r, "first_k_dense_replace", first, 0, INT32_MAX),
                                json_reader_int(r, "n_shared_experts", shared, 0, 1 << 10));
}

/* A softmax, whose weights are not normalized. With groups, those count whose best expert has the largest score. */
static void read_deepseek_v2(struct json_reader *r, struct model_spec *spec)
{
    static const struct latent_sizes latent = {
        .q_rank = 1536, .rank = 512, .rope = 64, .nope = 128, .v_head_size = 128};
    static const struct experts_keys keys = {.num_experts = {"n_routed_experts", "num_experts"},
                                             .size = "moe_intermediate_size",
                                             .absent_num_experts = 64,
                                             .absent_size = 1407};
    const struct layer_spec layer = family_read_latent(r, &(struct size_defaults){.max_position = 2048}, &latent, spec);
    struct experts_spec experts = family_read_experts(r, &keys);
    const char *method = json_reader_string(r, "topk_method", "greedy");
    require_word(r, "scoring_func", "softmax");
    family_require_bool(r, "norm_topk_prob", false, "normalized weights of experts");
    if (strcmp(method, "group_limited_greedy") == 0)
        family_read_expert_groups(r, 1, 1, &experts);
    else if (strcmp(method, "greedy") != 0)
        json_reader_fail(r, STATUS_UNSUPPORTED,
                         "topk_method is \"%s\"; in this family quire computes \"greedy\" and \"group_limited_greedy\"",
                         show_string(method).text);
    experts.router.scaling = (float)json_reader_number(r, "routed_scaling_factor", 1, 1e-6, 1e6);
    spec->rope_interleaved = true;
    family_set_layers(spec, &layer);
    set_experts(r, &experts, 0, 2, spec);
}

static const struct latent_sizes v3_sizes = {.q_rank = 1536, .rank = 512, .rope = 64, .nope = 128, .v_head_size = 128};

static void read_deepseek_v3(struct json_reader *r, struct model_spec *spec)
{
    static const struct experts_keys keys = {.num_experts = {"n_routed_experts", "num_local_experts"},
                                             .size = "moe_intermediate_size",
                                             .absent_num_experts = 256,
                                             .absent_top_k = 8,
                                             .absent_size = 2048};
    const struct layer_spec layer =
        family_read_latent(r, &(struct size_defaults){.max_position = 4096}, &v3_sizes, spec);
    struct experts_spec experts = family_read_deepseek_experts(r, &keys, true);
    family_read_expert_groups(r, 8, 4, &experts);
    experts.router.scaling = (float)json_reader_number(r, "routed_scaling_factor", 2.5, 1e-6, 1e6);
    require_word(r, "scoring_func", "sigmoid");
    require_word(r, "topk_method", "noaux_tc");
    spec->rope_interleaved = json_reader_bool(r, "rope_interleave", true);
    family_set_layers(spec, &layer);
    set_experts(r, &experts, 3, 1, spec);
}

void family_make_deepseek_mtp(struct json_reader *r, struct model_spec *spec)
{
    struct tensor_names *names = &spec->names;
    (void)r;
    family_set_mtp(spec, &spec->layers[spec->num_layers - 1], names->layers, spec->num_layers);
    names->head_embedding_norm = ".enorm";
    names->head_state_norm = ".hnorm";
    names->head_projection = ".eh_proj";
    names->final_norm = ".shared_head.norm";
}

/* Without experts */
static void read_youtu(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {.max_position = 131072, .tie_word_embeddings = true};
    const struct layer_spec layer = family_read_latent(r, &defaults, &v3_sizes, spec);
    spec->rope_interleaved = json_reader_bool(r, "rope_interleave", true);
    family_set_layers(spec, &layer);
}

/* A softmax; weights are normalized. Queries grow with their position. */
static void read_mistral4(struct json_reader *r, struct model_spec *spec)
{
    static const struct latent_sizes latent = {.q_rank = 1024, .rank = 256, .rope = 64, .nope = 64, .v_head_size = 128};
    static const struct experts_keys keys = {.num_experts = {"n_routed_experts", "num_local_experts"},
                                             .size = "moe_intermediate_size",
                                             .absent_num_experts = 128,
                                             .absent_top_k = 4,
                                             .absent_size = 2048};
    const struct layer_spec layer =
        family_read_latent(r, &(struct size_defaults){.max_position = 1048576}, &latent, spec);
    struct experts_spec experts = family_read_deepseek_experts(r, &keys, true);
    experts.router.kind = ROUTER_SOFTMAX;
    experts.choice_bias = false;
    spec->rope_interleaved = json_reader_bool(r, "rope_interleave", true);
    family_set_layers(spec, &layer);
    set_experts(r, &experts, 0, 1, spec);
    spec->names.experts = NULL;
    spec->names.expert_gate_up = "mlp.experts.gate_up_proj";
    spec->names.expert_down = "mlp.experts.down_proj";
    spec->names.quantized_experts = "mlp.experts";
}

static const struct rope_config mistral4_rope = {.type = ROPE_YARN,
                                                 .theta = 10000,
                                                 .factor = 128,
                                                 .beta_fast = 32,
                                                 .beta_slow = 1,
                                                 .mscale = 1,
                                                 .mscale_all_dim = 1,
                                                 .truncate = true,
                                                 .original_max_position = 8192};

const struct family family_deepseek_v2 = {.model_type = "deepseek_v2",
                                          .architecture = "DeepseekV2ForCausalLM",
                                          .read = read_deepseek_v2,
                                          .reads = "attention_bias n_routed_experts num_experts"};
const struct family family_deepseek_v3 = {.model_type = "deepseek_v3",
                                          .architecture = "DeepseekV3ForCausalLM",
                                          .read = read_deepseek_v3,
                                          .make_mtp = family_make_deepseek_mtp,
                                          .reads = "attention_bias rope_interleave n_routed_experts num_local_experts"};
const struct family family_kimi_k2 = {.model_type = "kimi_k2",
                                      .architecture = "DeepseekV3ForCausalLM",
                                      .read = read_deepseek_v3,
                                      .make_mtp = family_make_deepseek_mtp,
                                      .reads = "attention_bias rope_interleave n_routed_experts num_local_experts"};
const struct family family_mistral4 = {
    .model_type = "mistral4",
    .architecture = "Mistral4ForCausalLM",
    .read = read_mistral4,
    .rope = &mistral4_rope,
    .scales_queries = true,
    .reads = "attention_bias rope_interleave n_routed_experts num_local_experts partial_rotary_factor",
    .sizes = {4096, 12288, 36, 32, 131072}};
const struct family family_youtu = {.model_type = "youtu",
                                    .architecture = "YoutuForCausalLM",
                                    .read = read_youtu,
                                    .reads = "attention_bias rope_interleave"};
