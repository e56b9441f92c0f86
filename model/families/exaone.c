/* EXAONE 3 and 3.5 (LG AI Research, 2024): Llama under other names. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {.max_position = 2048,
                                           .norm_eps = 1e-5,
                                           .tie_word_embeddings = true,
                                           .num_layers_key = "num_layers",
                                           .norm_eps_key = "layer_norm_epsilon"};
    const struct layer_spec layer = family_read_llama(r, &defaults, spec);
    family_set_layers(spec, &layer);
    spec->names = (struct tensor_names){.embedding = "transformer.wte",
                                        .final_norm = "transformer.ln_f",
                                        .layers = "transformer.h",
                                        .attention_norm = "ln_1",
                                        .attention = "attn.attention",
                                        .o = "out_proj",
                                        .mlp_norm = "ln_2",
                                        .gate = "mlp.c_fc_0",
                                        .up = "mlp.c_fc_1",
                                        .down = "mlp.c_proj"};
}

const struct family family_exaone = {.model_type = "exaone", .architecture = "ExaoneForCausalLM", .read = read};
