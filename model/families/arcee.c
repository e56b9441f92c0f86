/* AFM (Arcee AI, 2025): Llama with a squared ReLU in an MLP without a gate. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec layer =
        family_read_llama(r, &(struct size_defaults){.max_position = 4096, .norm_eps = 1e-5}, spec);
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.mlp.kind = MLP_PLAIN;
    layer.mlp.activation = ACTIVATION_RELU2;
    layer.mlp.bias = json_reader_bool(r, "mlp_bias", false);
    family_check_activation(r, "relu2");
    family_set_layers(spec, &layer);
}

const struct family family_arcee = {.model_type = "arcee",
                                    .architecture = "ArceeForCausalLM",
                                    .read = read,
                                    .reads = "attention_bias mlp_bias hidden_act"};
