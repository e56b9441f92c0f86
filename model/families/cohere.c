/* Command R (Cohere, 2024): LayerNorms, parallel blocks, pairs of neighbours rotated, and scaled logits. In Command R7B
 * and Command A (model_type cohere2) most layers have a sliding window, and only these rotate. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {.max_position = 8192, .tie_word_embeddings = true};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    /* Command R gives its context here, and the length of its training texts in max_position_embeddings. */
    spec->max_position_embeddings = json_reader_int(r, "model_max_length", spec->max_position_embeddings, 1, 1 << 28);
    layer.norm_placement = NORM_PARALLEL;
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    family_set_layers(spec, &layer);
    spec->norm_type = NORM_LAYER;
    spec->norm_eps = json_reader_number(r, "layer_norm_eps", 1e-5, 0, 1);
    spec->rope_interleaved = true;
    spec->logits_multiplier = json_reader_number(r, "logit_scale", 0.0625, 1e-6, 1e6);
}

static void read_cohere2(struct json_reader *r, struct model_spec *spec)
{
    read(r, spec);
    family_read_alternating_windows(r, json_reader_int(r, "sliding_window_pattern", 4, 1, INT32_MAX), spec);
    for (int32_t i = 0; i < spec->num_layers; i++)
        if (spec->layers[i].attention.window == 0) spec->layers[i].attention.rotary_dim = 0;
}

const struct family family_cohere = {.model_type = "cohere",
                                     .architecture = "CohereForCausalLM",
                                     .read = read,
                                     .rope_theta = 500000,
                                     .reads = "attention_bias logit_scale",
                                     /* position_embedding_type is "rope_gptj", the interleaved rotation */
                                     .ignores = "position_embedding_type"};
const struct family family_cohere2 = {
    .model_type = "cohere2",
    .architecture = "Cohere2ForCausalLM",
    .read = read_cohere2,
    .reads = "attention_bias logit_scale sliding_window sliding_window_pattern layer_types",
    .ignores = "position_embedding_type use_sliding_window",
    .sizes = {8192, 22528, 40, 64, 256000}};
