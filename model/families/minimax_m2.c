/* MiniMax-M2 (MiniMax, 2025): norms of all heads of queries and of keys at once, a part of each head rotated, and
 * experts in every layer, chosen by sigmoids with a bias. */
#include "model/families/families.h"

/* Files of transformers say which part of a head is rotated. */
void family_read_rotary_dim(struct json_reader *r, struct attention_spec *attention)
{
    attention->rotary_dim = json_reader_int(r, "rotary_dim", attention->head_size, 2, attention->head_size);
    if (attention->rotary_dim % 2 != 0)
        json_reader_fail(r, STATUS_INVALID, "rotary_dim is %d, but must be even", attention->rotary_dim);
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    static const struct experts_keys keys = {.num_experts = {"num_local_experts", "num_experts"},
                                             .size = "intermediate_size",
                                             .absent_num_experts = 256,
                                             .absent_top_k = 8};
    const struct size_defaults defaults = {.max_position = 196608, .num_kv_heads = 8, .head_size = 128};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    layer.experts = family_read_sigmoid_experts(r, &keys);
    layer.mlp.intermediate_size = 0;
    layer.attention.qk_norm = QK_NORM_PROJECTION;
    family_read_rotary_dim(r, &layer.attention);
    family_set_layers(spec, &layer);
    family_set_mixtral_names(spec);
    spec->names.choice_bias = "block_sparse_moe.e_score_correction_bias";
}

const struct family family_minimax_m2 = {.model_type = "minimax_m2",
                                         .architecture = "MiniMaxM2ForCausalLM",
                                         .read = read,
                                         .rope_theta = 5e6,
                                         .reads = "partial_rotary_factor num_experts num_local_experts",
                                         .ignores = "use_qk_norm"};
