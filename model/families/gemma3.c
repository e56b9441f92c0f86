/* Gemma 3, text (Gemma Team, 2025): Gemma 2 with each head of queries and keys normed, instead of soft caps, and with a
 * rope for each kind of layer: five layers with a window follow each other, then one without. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec layer = family_read_gemma2(r, 131072, spec);
    layer.attention.qk_norm = QK_NORM_HEAD;
    family_set_layers(spec, &layer);
    family_read_alternating_windows(r, json_reader_int(r, "sliding_window_pattern", 6, 1, INT32_MAX), spec);
    family_set_two_ropes(spec);
    spec->logits_soft_cap = json_reader_number(r, "final_logit_softcapping", 0, 1e-6, 1e6);
}

const struct family family_gemma3 = {
    .model_type = "gemma3_text",
    .architecture = "Gemma3ForCausalLM",
    .read = read,
    .rope_theta = 1e6,
    .rope_local_theta = 10000,
    .reads = "attention_bias query_pre_attn_scalar final_logit_softcapping hidden_activation sliding_window "
             "sliding_window_pattern layer_types rope_local_base_freq",
    .ignores = "hidden_act use_sliding_window",
    .sizes = {2304, 9216, 26, 8, 262208}};
