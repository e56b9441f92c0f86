/* EXAONE 3 and 3.5 (LG AI Research, 2024): Llama under other names; transformers writes the keys under Llama's. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {.max_position = 2048,
                                           .norm_eps = 1e-5,
                                           .tie_word_embeddings = true,
                                           .num_layers_key = family_either_key(r, "num_layers", "num_hidden_layers"),
                                           .norm_eps_key = family_either_key(r, "layer_norm_epsilon", "rms_norm_eps")};
    const struct layer_spec layer = family_read_llama(r, &defaults, spec);
    family_set_layers(spec, &layer);
    family_set_gpt_names(&spec->names);
    spec->names.attention = "attn.attention";
    spec->names.o = "out_proj";
    spec->names.mlp_norm = "ln_2";
    spec->names.gate = "mlp.c_fc_0";
    spec->names.up = "mlp.c_fc_1";
    spec->names.down = "mlp.c_proj";
}

const struct family family_exaone = {
    .model_type = "exaone", .architecture = "ExaoneForCausalLM", .is_llama_class = true, .read = read};
