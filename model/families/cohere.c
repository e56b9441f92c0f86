/* Command R (Cohere, 2024): LayerNorms, parallel blocks, pairs of neighbours rotated, and scaled logits. In Command R7B
 * and Command A (model_type cohere2) most layers have a sliding window, and only these rotate. cohere2_moe has
 * experts after some dense layers. */
#include <string.h>

#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {.max_position = 8192, .tie_word_embeddings = true};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    /* Command R gives its context here, and the length of its training texts in max_position_embeddings. */
    spec->max_position_embeddings = json_reader_int(r, "model_max_length", spec->max_position_embeddings, 1, 1 << 28);
    layer.norm_placement = NORM_PARALLEL;
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    family_set_layers(spec, &layer);
    spec->norm_type = NORM_LAYER;
    spec->norm_eps = json_reader_number(r, "layer_norm_eps", 1e-5, 0, 1);
    spec->rope_interleaved = true;
    spec->logits_multiplier = json_reader_number(r, "logit_scale", 0.0625, 1e-6, 1e6);
}

static void read_cohere2(struct json_reader *r, struct model_spec *spec)
{
    read(r, spec);
    family_read_alternating_windows(r, json_reader_int(r, "sliding_window_pattern", 4, 1, INT32_MAX), spec);
    for (int32_t i = 0; i < spec->num_layers; i++)
        if (spec->layers[i].attention.window == 0) spec->layers[i].attention.rotary_dim = 0;
}

static struct experts_spec read_experts(struct json_reader *r)
{
    static const struct experts_keys keys = {
        .num_experts = {"num_experts"}, .size = "intermediate_size", .absent_num_experts = 8, .absent_top_k = 2};
    struct experts_spec experts = family_read_experts(r, &keys);
    const char *selection = json_reader_string(r, "expert_selection_fn", "softmax");
    const char *strategy = json_reader_string(r, "shared_expert_combination_strategy", "average");
    const bool sigmoid = strcmp(selection, "sigmoid") == 0;
    experts.router.kind = sigmoid ? ROUTER_SIGMOID : ROUTER_SOFTMAX;
    experts.router.by_logits = true;
    experts.router.normalize = !sigmoid || json_reader_bool(r, "norm_topk_prob", true);
    experts.mean = strcmp(strategy, "average") == 0;
    if (!sigmoid && strcmp(selection, "softmax") != 0)
        json_reader_fail(r, STATUS_UNSUPPORTED,
                         "expert_selection_fn is \"%s\"; quire computes \"softmax\" and \"sigmoid\"",
                         show_string(selection).text);
    if (!experts.mean && strcmp(strategy, "sum") != 0)
        json_reader_fail(r, STATUS_UNSUPPORTED,
                         "shared_expert_combination_strategy is \"%s\"; quire computes \"average\" and \"sum\"",
                         show_string(strategy).text);
    return experts;
}

/* Windows of the first layers, which are dense, and of the others follow patterns of their own. */
static void read_moe_windows(struct json_reader *r, int32_t num_dense, int32_t dense_pattern, struct model_spec *spec)
{
    const int32_t pattern = json_reader_int(r, "sliding_window_pattern", 4, 1, INT32_MAX);
    const int32_t window = family_read_window(r, 4096);
    for (int32_t i = 0; i < spec->num_layers; i++) {
        const bool full = i < num_dense ? (i + 1) % dense_pattern == 0 : (i - num_dense + 1) % pattern == 0;
        spec->layers[i].attention.window = full ? 0 : window;
    }
    family_read_layer_types(r, window, spec);
}

/* Layers with a window rotate, and so do the dense ones if their pattern is 1. */
static void read_moe_layers(struct json_reader *r, struct model_spec *spec)
{
    const int32_t num_dense = json_reader_int(r, "first_k_dense_replace", 0, 0, INT32_MAX);
    const int32_t dense_pattern = json_reader_int(r, "prefix_dense_sliding_window_pattern", 1, 1, INT32_MAX);
    const int32_t num_shared = json_reader_int(r, "num_shared_experts", 0, 0, 1 << 10);
    struct experts_spec experts = read_experts(r);
    experts.mean = experts.mean && num_shared > 0;
    family_set_listed_experts(r, spec, &experts, num_dense, num_shared * experts.intermediate_size);
    read_moe_windows(r, num_dense, dense_pattern, spec);
    for (int32_t i = 0; i < spec->num_layers; i++) {
        struct layer_spec *l = &spec->layers[i];
        const bool is_dense = l->experts.router.num_experts == 0;
        if (l->attention.window == 0 && !(is_dense && dense_pattern == 1)) l->attention.rotary_dim = 0;
    }
}

static void read_cohere2_moe(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {.max_position = 8192, .head_size = 128, .tie_word_embeddings = true};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    const bool rms = json_reader_get(r, "rms_norm_eps") != NULL;
    layer.norm_placement = NORM_PARALLEL;
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.mlp.intermediate_size =
        json_reader_int(r, "prefix_dense_intermediate_size", layer.mlp.intermediate_size, 1, 1 << 22);
    family_set_layers(spec, &layer);
    read_moe_layers(r, spec);
    spec->norm_type = rms ? NORM_RMS : NORM_LAYER;
    if (!rms) spec->norm_eps = json_reader_number(r, "layer_norm_eps", 1e-5, 0, 1);
    spec->rope_interleaved = true;
    spec->logits_multiplier = json_reader_number(r, "logit_scale", 0.0625, 1e-6, 1e6);
    spec->names.shared = "mlp.shared_experts";
}

const struct family family_cohere = {.model_type = "cohere",
                                     .architecture = "CohereForCausalLM",
                                     .read = read,
                                     .rope_theta = 500000,
                                     .reads = "attention_bias logit_scale",
                                     /* position_embedding_type is "rope_gptj", the interleaved rotation */
                                     .ignores = "position_embedding_type"};
const struct family family_cohere2 = {
    .model_type = "cohere2",
    .architecture = "Cohere2ForCausalLM",
    .read = read_cohere2,
    .reads = "attention_bias logit_scale sliding_window sliding_window_pattern layer_types",
    .ignores = "position_embedding_type use_sliding_window",
    .sizes = {8192, 22528, 40, 64, 256000}};
const struct family family_cohere2_moe = {
    .model_type = "cohere2_moe",
    .architecture = "Cohere2MoeForCausalLM",
    .read = read_cohere2_moe,
    .reads = "attention_bias logit_scale num_experts sliding_window sliding_window_pattern layer_types",
    .ignores = "position_embedding_type use_sliding_window"};
