/* Granite 3, dense (IBM, 2024): Llama whose embeddings, attention scores, residuals and logits are scaled by constants.
 * HyperCLOVA X (Naver, 2025): the same with norms after sublayers, too. */
#include <math.h>

#include "model/families/families.h"

static double read_multiplier(struct json_reader *r, const char *key)
{
    return json_reader_number(r, key, 1, 1e-6, 1e6);
}

void family_read_granite_multipliers(struct json_reader *r, struct model_spec *spec)
{
    const double attention = read_multiplier(r, "attention_multiplier");
    const double residual = read_multiplier(r, "residual_multiplier");
    for (int32_t i = 0; i < spec->num_layers; i++) {
        if (spec->layers[i].mixer == MIXER_ATTENTION) spec->layers[i].attention.scale = (float)attention;
        spec->layers[i].residual_multiplier = (float)residual;
    }
    spec->embedding_multiplier = read_multiplier(r, "embedding_multiplier");
    spec->logits_multiplier = 1 / read_multiplier(r, "logits_scaling");
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec layer = family_read_llama(r, &(struct size_defaults){.max_position = 2048}, spec);
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.mlp.bias = json_reader_bool(r, "mlp_bias", false);
    family_set_layers(spec, &layer);
    family_read_granite_multipliers(r, spec);
}

/* logits_scaling multiplies here. */
static void read_hyperclovax(struct json_reader *r, struct model_spec *spec)
{
    read(r, spec);
    spec->logits_multiplier = read_multiplier(r, "logits_scaling");
    spec->names.post_attention_norm = "post_norm1";
    spec->names.post_mlp_norm = "post_norm2";
    const bool post_norms = json_reader_bool(r, "use_post_norm", true);
    for (int32_t i = 0; i < spec->num_layers; i++) {
        struct layer_spec *layer = &spec->layers[i];
        layer->norm_placement = post_norms ? NORM_AROUND : NORM_BEFORE;
        if (!json_reader_get(r, "attention_multiplier"))
            layer->attention.scale = (float)(1 / sqrt(layer->attention.head_size));
    }
}

#define READS "attention_bias mlp_bias attention_multiplier residual_multiplier embedding_multiplier logits_scaling"

const struct family family_granite = {.model_type = "granite",
                                      .architecture = "GraniteForCausalLM",
                                      .read = read,
                                      .reads = READS,
                                      .sizes = {4096, 11008, 32, 32, 32000}};
const struct family family_hyperclovax = {
    .model_type = "hyperclovax", .architecture = "HyperCLOVAXForCausalLM", .read = read_hyperclovax, .reads = READS};
/* The text part of Granite Vision 4 */
const struct family family_granite4_vision = {.model_type = "granite4_vision_text",
                                              .architecture = "Granite4VisionForConditionalGeneration",
                                              .read = read,
                                              .reads = READS,
                                              .sizes = {4096, 11008, 32, 32, 32000}};
