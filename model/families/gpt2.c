/* GPT-2 (Radford et al., 2019): learned positions, LayerNorms, and matrices that the file has as [in, out]. GPTBigCode
 * (SantaCoder, StarCoder: BigCode, 2023) is the same with rows as usual, and mostly with one head of K and V. */
#include "model/families/families.h"

static struct layer_spec read_both(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = family_gpt_sizes(r);
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    layer.attention.qkv_bias = layer.attention.o_bias = layer.mlp.bias = true;
    layer.attention.rotary_dim = 0;
    if (!json_reader_bool(r, "scale_attn_weights", true)) layer.attention.scale = 1;
    layer.mlp.kind = MLP_PLAIN;
    layer.mlp.activation = family_read_plain_activation(r, "activation_function", ACTIVATION_GELU_TANH);
    family_set_gpt_names(&spec->names);
    spec->names.position_embedding = "transformer.wpe";
    spec->names.mlp_norm = "ln_2";
    spec->names.qkv = "attn.c_attn";
    spec->names.o = "c_proj";
    spec->names.up = "mlp.c_fc";
    spec->names.down = "mlp.c_proj";
    family_set_layer_norms(spec);
    return layer;
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct layer_spec layer = read_both(r, spec);
    family_set_layers(spec, &layer);
    spec->transposed = true;
    if (json_reader_bool(r, "scale_attn_by_inverse_layer_idx", false))
        for (int32_t i = 0; i < spec->num_layers; i++) spec->layers[i].attention.scale /= (float)(i + 1);
}

static void read_bigcode(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec layer = read_both(r, spec);
    if (json_reader_bool(r, "multi_query", true)) layer.attention.num_kv_heads = 1;
    family_set_layers(spec, &layer);
    spec->qkv_by_head = true;
}

const struct family family_gpt2 = {
    .model_type = "gpt2", .architecture = "GPT2LMHeadModel", .read = read, .reads = "activation_function"};
const struct family family_gpt_bigcode = {.model_type = "gpt_bigcode",
                                          .architecture = "GPTBigCodeForCausalLM",
                                          .read = read_bigcode,
                                          .reads = "activation_function"};
