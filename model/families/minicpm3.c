/* MiniCPM 3 (OpenBMB, 2024): latent attention in a dense model, whose embeddings, residuals and logits are scaled by
 * constants. */
#include <math.h>

#include "model/families/families.h"

/* null: no scale. */
static double read_scale(struct json_reader *r, const char *key, double absent, double none)
{
    return json_reader_number(r, key, json_reader_has(r, key) ? none : absent, 1e-6, 1e6);
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    static const struct latent_sizes latent = {.q_rank = 768, .rank = 256, .rope = 32, .nope = 64};
    const struct size_defaults defaults = {.max_position = 32768, .norm_eps = 1e-5, .tie_word_embeddings = true};
    struct layer_spec layer = family_read_latent(r, &defaults, &latent, spec);
    const double depth = sqrt(spec->num_layers);
    layer.residual_multiplier = (float)(read_scale(r, "scale_depth", 1.4, depth) / depth);
    spec->embedding_multiplier = read_scale(r, "scale_emb", 12, 1);
    spec->round_embedding_multiplier = true;
    spec->logits_multiplier = read_scale(r, "dim_model_base", 256, spec->hidden_size) / spec->hidden_size;
    family_set_layers(spec, &layer);
}

const struct family family_minicpm3 = {.model_type = "minicpm3",
                                       .architecture = "MiniCPM3ForCausalLM",
                                       .read = read,
                                       .reads = "attention_bias scale_emb scale_depth dim_model_base"};
