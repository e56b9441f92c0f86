/* Hunyuan, dense (Tencent, 2025): Llama with each head of queries and keys normed after the rotation, and with a rope
 * whose theta grows with `alpha` (NTK). */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
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

const struct family family_hunyuan_v1_dense = {.model_type = "hunyuan_v1_dense",
                                               .architecture = "HunYuanDenseV1ForCausalLM",
                                               .read = read,
                                               .reads_alpha = true,
                                               .reads = "attention_bias",
                                               /* queries and keys always have norms */
                                               .ignores = "use_qk_norm"};
