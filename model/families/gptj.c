/* GPT-J (Wang and Komatsuzaki, 2021): one LayerNorm before attention and MLP in parallel, pairs of neighbours in a part
 * of each head rotated, and biases of the MLP and of lm_head. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    struct size_defaults defaults = family_gpt_sizes(r);
    defaults.max_position = 2048;
    defaults.tie_word_embeddings = false;
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    layer.norm_placement = NORM_PARALLEL;
    layer.attention.rotary_dim = json_reader_int(r, "rotary_dim", 64, 2, layer.attention.head_size);
    if (layer.attention.rotary_dim % 2 != 0)
        json_reader_fail(r, STATUS_INVALID, "rotary_dim (%d) must be even", layer.attention.rotary_dim);
    layer.mlp.kind = MLP_PLAIN;
    layer.mlp.bias = spec->lm_head_bias = true;
    layer.mlp.activation = family_read_plain_activation(r, "activation_function", ACTIVATION_GELU_TANH);
    family_require_bool(r, "tie_word_embeddings", false, "a bias of an lm_head that is the embedding");
    family_set_layers(spec, &layer);
    family_set_layer_norms(spec);
    spec->rope_interleaved = true;
    family_set_gpt_names(&spec->names);
    spec->names.o = "out_proj";
    spec->names.up = "mlp.fc_in";
    spec->names.down = "mlp.fc_out";
}

const struct family family_gptj = {
    .model_type = "gptj", .architecture = "GPTJForCausalLM", .read = read, .reads = "activation_function"};
