/* InternLM3 (Shanghai AI Laboratory, 2025): Llama whose biases have keys of their own: qkv_bias, and bias for the other
 * matrices. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec layer =
        family_read_llama(r, &(struct size_defaults){.max_position = 32768, .num_kv_heads = 32}, spec);
    layer.attention.qkv_bias = json_reader_bool(r, "qkv_bias", false);
    layer.attention.o_bias = layer.mlp.bias = json_reader_bool(r, "bias", false);
    family_set_layers(spec, &layer);
}

const struct family family_internlm3 = {.model_type = "internlm3",
                                        .architecture = "InternLM3ForCausalLM",
                                        .is_llama_class = true,
                                        .read = read,
                                        .reads = "qkv_bias bias"};
