/* IQuest-Coder (IQuest Lab, 2026): Llama. Its clip_qkv and windows, which no published file has, are refused. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {
        .max_position = 16384, .num_kv_heads = 8, .head_size = 128, .norm_eps = 1e-5};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.mlp.bias = json_reader_bool(r, "mlp_bias", false);
    family_set_layers(spec, &layer);
}

const struct family family_iquestcoder = {.model_type = "iquestcoder",
                                          .architecture = "IQuestCoderForCausalLM",
                                          .is_llama_class = true,
                                          .read = read,
                                          .rope_theta = 500000,
                                          .reads = "attention_bias mlp_bias"};
