/* Granite 3, dense (IBM, 2024): Llama whose embeddings, attention scores, residuals and logits are scaled by constants.
 */
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
        spec->layers[i].attention.scale = (float)attention;
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

const struct family family_granite = {
    .model_type = "granite",
    .architecture = "GraniteForCausalLM",
    .read = read,
    .reads = "attention_bias mlp_bias attention_multiplier residual_multiplier embedding_multiplier logits_scaling",
    .sizes = {4096, 11008, 32, 32, 32000}};
/* The text part of Granite Vision 4 */
const struct family family_granite4_vision = {
    .model_type = "granite4_vision_text",
    .architecture = "Granite4VisionForConditionalGeneration",
    .read = read,
    .reads = "attention_bias mlp_bias attention_multiplier residual_multiplier embedding_multiplier logits_scaling",
    .sizes = {4096, 11008, 32, 32, 32000}};
