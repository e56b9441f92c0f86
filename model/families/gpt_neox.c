/* GPT-NeoX and Pythia (EleutherAI, 2022): LayerNorms, attention and MLP in parallel with a norm each, a part of each
 * head rotated, and q, k and v of each head together in the file. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {.max_position = 2048, .norm_eps = 1e-5, .norm_eps_key = "layer_norm_eps"};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    const bool parallel = json_reader_bool(r, "use_parallel_residual", true);
    layer.norm_placement = parallel ? NORM_PARALLEL_TWO : NORM_BEFORE;
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", true);
    layer.mlp.kind = MLP_PLAIN;
    layer.mlp.bias = true;
    layer.mlp.activation = family_read_plain_activation(r, "hidden_act", ACTIVATION_GELU);
    family_set_layers(spec, &layer);
    family_set_layer_norms(spec);
    spec->qkv_by_head = true;
    spec->names.embedding = "gpt_neox.embed_in";
    spec->names.final_norm = "gpt_neox.final_layer_norm";
    spec->names.lm_head = "embed_out";
    spec->names.layers = "gpt_neox.layers";
    spec->names.attention = "attention";
    spec->names.qkv = "attention.query_key_value";
    spec->names.o = "dense";
    spec->names.up = "mlp.dense_h_to_4h";
    spec->names.down = "mlp.dense_4h_to_h";
}

const struct family family_gpt_neox = {
    .model_type = "gpt_neox",
    .architecture = "GPTNeoXForCausalLM",
    .read = read,
    .rope_theta_key = "rotary_emb_base",
    .partial_rotary_factor_key = "rotary_pct",
    .partial_rotary_factor = 0.25,
    .reads = "attention_bias hidden_act use_parallel_residual partial_rotary_factor rotary_pct"};
