/* Hunyuan (Tencent, 2025): Llama with each head of queries and keys normed after the rotation, and with a rope whose
 * theta grows with `alpha` (NTK). Hunyuan-A13B has experts and an MLP beside them in every layer. */
#include "model/families/families.h"

static void read_dense(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec layer =
        family_read_llama(r, &(struct size_defaults){.max_position = 2048, .norm_eps = 1e-5}, spec);
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.attention.qk_norm = QK_NORM_HEAD;
    layer.attention.norm_after_rotation = true;
    family_set_layers(spec, &layer);
    spec->names.q_norm = "query_layernorm";
    spec->names.k_norm = "key_layernorm";
}

/* How many experts a token has in a layer: moe_topk is a number, or a list of them. */
static int32_t read_top_k(struct json_reader *r, int32_t layer, int32_t num_experts)
{
    const json_t *list = json_reader_get(r, "moe_topk");
    const int32_t most = num_experts < ROUTER_MAX_TOP_K ? num_experts : ROUTER_MAX_TOP_K;
    if (!json_is_array(list)) return json_reader_int(r, "moe_topk", 1, 1, most);
    if (json_array_size(list) <= (size_t)layer) {
        json_reader_expected(r, "moe_topk", "a number for each of num_hidden_layers", list);
        return 1;
    }
    return (int32_t)json_reader_to_int64(r, "an element of moe_topk", json_array_get(list, (size_t)layer), 1, most);
}

static void read_moe(struct json_reader *r, struct model_spec *spec)
{
    struct experts_spec experts = {.router = {.kind = ROUTER_SOFTMAX, .normalize = true, .scaling = 1}};
    read_dense(r, spec);
    experts.router.num_experts = json_reader_int(r, "num_experts", 1, 1, ROUTER_MAX_EXPERTS);
    experts.intermediate_size = spec->layers[0].mlp.intermediate_size;
    for (int32_t i = 0; i < spec->num_layers; i++) {
        experts.router.top_k = read_top_k(r, i, experts.router.num_experts);
        family_set_experts(spec, i, &experts, experts.intermediate_size);
    }
    spec->names.router = "mlp.gate.wg";
    spec->names.shared = "mlp.shared_mlp";
}

const struct family family_hunyuan_v1_dense = {.model_type = "hunyuan_v1_dense",
                                               .architecture = "HunYuanDenseV1ForCausalLM",
                                               .read = read_dense,
                                               .reads_alpha = true,
                                               .reads = "attention_bias",
                                               /* queries and keys always have norms */
                                               .ignores = "use_qk_norm"};
const struct family family_hunyuan_v1_moe = {.model_type = "hunyuan_v1_moe",
                                             .architecture = "HunYuanMoEV1ForCausalLM",
                                             .read = read_moe,
                                             .reads_alpha = true,
                                             .reads = "attention_bias num_experts",
                                             .ignores = "use_qk_norm"};
