/* Seed-OSS (ByteDance Seed, 2025): Llama with biases of Q, K and V, and switches for those of the other matrices. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec layer = family_read_llama(
        r, &(struct size_defaults){.max_position = 524288, .num_kv_heads = 8, .head_size = 128}, spec);
    layer.attention.qkv_bias = json_reader_bool(r, "attention_bias", true);
    layer.attention.o_bias = json_reader_bool(r, "attention_out_bias", false);
    layer.mlp.bias = json_reader_bool(r, "mlp_bias", false);
    family_set_layers(spec, &layer);
}

const struct family family_seed_oss = {.model_type = "seed_oss",
                                       .architecture = "SeedOssForCausalLM",
                                       .read = read,
                                       .reads = "attention_bias attention_out_bias mlp_bias"};
