/* Qwen3, dense (Yang et al., 2025): Qwen2 without its biases, and each head of queries and keys is normed. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec layer = family_read_llama(
        r, &(struct size_defaults){.max_position = 32768, .num_kv_heads = 32, .head_size = 128}, spec);
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.attention.qk_norm = QK_NORM_HEAD;
    family_set_layers(spec, &layer);
    family_read_qwen_windows(r, 28, spec);
}

const struct family family_qwen3 = {.model_type = "qwen3",
                                    .architecture = "Qwen3ForCausalLM",
                                    .read = read,
                                    .reads = "attention_bias sliding_window use_sliding_window layer_types",
                                    .sizes = {4096, 22016, 32, 32, 151936}};
