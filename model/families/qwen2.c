/* Qwen2 and Qwen2.5 (Yang et al., 2024): Llama with biases of Q, K and V, and windows in the upper layers if the file
 * turns them on. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec layer =
        family_read_llama(r, &(struct size_defaults){.max_position = 32768, .num_kv_heads = 32}, spec);
    layer.attention.qkv_bias = true;
    family_set_layers(spec, &layer);
    family_read_qwen_windows(r, 28, spec);
}

const struct family family_qwen2 = {.model_type = "qwen2",
                                    .architecture = "Qwen2ForCausalLM",
                                    .read = read,
                                    .reads = "sliding_window use_sliding_window layer_types",
                                    /* Q, K and V always have biases */
                                    .ignores = "attention_bias qkv_bias",
                                    .sizes = {4096, 22016, 32, 32, 151936}};
