/* ERNIE 4.5, mixtures of experts (Baidu, 2025): a softmax of all experts, and a bias for the choice only. */
#include "model/families/families.h"

/* The layers from moe_layer_start_index to moe_layer_end_index, of which every moe_layer_interval-th has experts. */
static void set_experts(struct json_reader *r, const struct experts_spec *experts, struct model_spec *spec)
{
    const int32_t num_shared = json_reader_int(r, "moe_num_shared_experts", 2, 0, ROUTER_MAX_EXPERTS);
    const int32_t first = json_reader_int(r, "moe_layer_start_index", 1, 0, INT32_MAX);
    const int32_t last = json_reader_int(r, "moe_layer_end_index", -1, -1, INT32_MAX);
    const int32_t interval = json_reader_int(r, "moe_layer_interval", 1, 1, INT32_MAX);
    for (int32_t i = first; i < spec->num_layers && (last < 0 || i <= last); i++)
        if ((i + 1) % interval == 0) family_set_experts(spec, i, experts, num_shared * experts->intermediate_size);
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    static const struct experts_keys keys = {.num_experts = {"moe_num_experts"},
                                             .top_k = "moe_k",
                                             .size = "moe_intermediate_size",
                                             .absent_num_experts = 64,
                                             .absent_top_k = 6,
                                             .absent_size = 1536};
    const struct size_defaults defaults = {
        .max_position = 131072, .num_kv_heads = 4, .norm_eps = 1e-5, .tie_word_embeddings = true};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    struct experts_spec experts = family_read_experts(r, &keys);
    experts.router.normalize = true;
    experts.choice_bias = true;
    layer.attention.qkv_bias = layer.attention.o_bias = layer.mlp.bias = json_reader_bool(r, "use_bias", false);
    family_set_layers(spec, &layer);
    set_experts(r, &experts, spec);
    spec->rope_interleaved = true;
    spec->names.choice_bias = "mlp.moe_statics.e_score_correction_bias";
    spec->names.shared = "mlp.shared_experts";
    spec->names.next_layers = "model.mtp_";
}

/* A layer without experts. Baidu's training code (PaddleFormers) is followed, since that is what the weights are made
 * for: the state is the target's before its final norm, and that norm is the head's, too. vLLM takes the state behind
 * the norm, and leaves the head's out. */
static void make_mtp(struct json_reader *r, struct model_spec *spec)
{
    struct tensor_names *names = &spec->names;
    struct layer_spec layer = spec->layers[0];
    family_require_bool(r, "use_bias", false, "layers with biases that predict further tokens");
    layer.experts = (struct experts_spec){0};
    layer.mlp.intermediate_size = json_reader_require_int(r, "intermediate_size", 1, 1 << 22);
    family_set_mtp(spec, &layer, "model.mtp_block", 0);
    spec->head.state_before_norm = true;
    names->head_embedding_norm = "model.mtp_emb_norm.0";
    names->head_state_norm = "model.mtp_hidden_norm.0";
    names->head_projection = "model.mtp_linear_proj.0";
}

const struct family family_ernie4_5_moe = {.model_type = "ernie4_5_moe",
                                           .architecture = "Ernie4_5_MoeForCausalLM",
                                           .read = read,
                                           .make_mtp = make_mtp,
                                           .rope_theta = 500000,
                                           .reads = "use_bias moe_num_experts"};
