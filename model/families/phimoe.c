/* Phi-3.5-MoE (Microsoft, 2024): Llama with LayerNorms, and two experts that sparsemixer chooses. Sequences that are
 * longer than the texts of training are rotated by long_factor, as in vLLM and in transformers 4; transformers 5
 * rotates them by short_factor, too. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    static const struct experts_keys keys = {
        .num_experts = {"num_local_experts"}, .size = "intermediate_size", .absent_num_experts = 16, .absent_top_k = 2};
    struct layer_spec layer = family_read_llama(
        r, &(struct size_defaults){.max_position = 131072, .num_kv_heads = 8, .norm_eps = 1e-5}, spec);
    struct router_params *router = &layer.experts.router;
    layer.experts = family_read_experts(r, &keys);
    router->kind = ROUTER_SPARSEMIXER;
    router->jitter = (float)json_reader_number(r, "router_jitter_noise", 0.01, 0, 1);
    if (router->top_k != 2)
        json_reader_fail(r, STATUS_UNSUPPORTED, "num_experts_per_tok is %d, but sparsemixer chooses 2", router->top_k);
    layer.mlp.intermediate_size = 0;
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.attention.window = family_read_window(r, 0);
    family_set_layers(spec, &layer);
    family_set_layer_norms(spec);
    spec->lm_head_bias = json_reader_bool(r, "lm_head_bias", false);
    if (spec->lm_head_bias)
        family_require_bool(r, "tie_word_embeddings", false, "a bias of an lm_head that is the embedding");
    family_set_mixtral_names(spec);
}

const struct family family_phimoe = {.model_type = "phimoe",
                                     .architecture = "PhimoeForCausalLM",
                                     .read = read,
                                     .rope_theta = 1e6,
                                     .longrope_only = true,
                                     .reads_mscale = true,
                                     .reads = "attention_bias lm_head_bias num_local_experts sliding_window",
                                     .ignores = "use_sliding_window"};
