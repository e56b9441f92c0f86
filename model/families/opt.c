/* OPT (Zhang et al., 2022): learned positions from the third row on, LayerNorms, ReLU in an MLP without a gate. The
 * model of 350M parameters, whose embedding is narrower and whose norms follow the sublayers, is refused. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {
        .max_position = 2048, .tie_word_embeddings = true, .intermediate_size_key = "ffn_dim"};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    layer.attention.qkv_bias = layer.attention.o_bias = layer.mlp.bias = json_reader_bool(r, "enable_bias", true);
    layer.attention.rotary_dim = 0;
    layer.mlp.kind = MLP_PLAIN;
    layer.mlp.activation = family_read_plain_activation(r, "activation_function", ACTIVATION_RELU);
    family_require_bool(r, "do_layer_norm_before", true, "norms of the sum after each sublayer");
    family_require_bool(r, "_remove_final_layer_norm", false, "models without a final norm");
    family_require_bool(r, "layer_norm_elementwise_affine", true, "norms without gains");
    const int32_t width = json_reader_int(r, "word_embed_proj_dim", spec->hidden_size, 1, 1 << 20);
    if (width != spec->hidden_size)
        json_reader_fail(r, STATUS_UNSUPPORTED,
                         "word_embed_proj_dim (%d) is not hidden_size (%d): quire has no projected embedding", width,
                         spec->hidden_size);
    family_set_layers(spec, &layer);
    family_set_layer_norms(spec);
    spec->norm_eps = 1e-5;
    spec->position_offset = 2;
    spec->names.embedding = "model.decoder.embed_tokens";
    spec->names.position_embedding = "model.decoder.embed_positions";
    spec->names.final_norm = "model.decoder.final_layer_norm";
    spec->names.layers = "model.decoder.layers";
    spec->names.attention_norm = "self_attn_layer_norm";
    spec->names.mlp_norm = "final_layer_norm";
    spec->names.o = "out_proj";
    spec->names.up = "fc1";
    spec->names.down = "fc2";
}

const struct family family_opt = {
    .model_type = "opt", .architecture = "OPTForCausalLM", .read = read, .reads = "activation_function"};
