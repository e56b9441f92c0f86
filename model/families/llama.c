/* Llama (Touvron et al., 2023), and what shares its model_type: Llama 2 and 3, SmolLM2, TinyLlama, Yi, ...
 * pretraining_tp is no known key: into however many slices it cuts a matmul, the sum is the same. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec layer = family_read_llama(r, &(struct size_defaults){.max_position = 2048}, spec);
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.mlp.bias = json_reader_bool(r, "mlp_bias", false);
    family_set_layers(spec, &layer);
}

const struct family family_llama = {.model_type = "llama",
                                    .architecture = "LlamaForCausalLM",
                                    .read = read,
                                    .reads = "attention_bias mlp_bias",
                                    .sizes = {4096, 11008, 32, 32, 32000}};
