/* Phi-3, Phi-3.5 and Phi-4 (Microsoft, 2024): Llama with q, k and v as one tensor, gate and up as another. The models
 * of 128k tokens are rotated by longrope, Phi-4-mini only in a part of each head. No layer has biases, whatever
 * attention_bias says. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec layer =
        family_read_llama(r, &(struct size_defaults){.max_position = 4096, .norm_eps = 1e-5}, spec);
    layer.attention.window = family_read_window(r, 0);
    family_set_layers(spec, &layer);
    spec->names.qkv = "self_attn.qkv_proj";
    spec->names.gate_up = "mlp.gate_up_proj";
}

const struct family family_phi3 = {.model_type = "phi3",
                                   .architecture = "Phi3ForCausalLM",
                                   .read = read,
                                   .original_max_position = 4096,
                                   .longrope_only = true,
                                   .reads = "sliding_window partial_rotary_factor",
                                   .ignores = "attention_bias mlp_bias lm_head_bias use_sliding_window"};
