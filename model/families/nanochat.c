/* nanochat (Karpathy, 2025): norms without gains, one of them after the embedding; queries and keys are rotated the
 * other way round, and normed after it; a squared ReLU in an MLP without a gate; a soft cap of logits. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec layer = family_read_llama(r, &(struct size_defaults){.max_position = 2048}, spec);
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.attention.qk_norm = QK_NORM_HEAD;
    layer.attention.norm_after_rotation = true;
    layer.mlp.kind = MLP_PLAIN;
    layer.mlp.activation = ACTIVATION_RELU2;
    family_check_activation(r, "relu2");
    family_set_layers(spec, &layer);
    spec->no_gains = true;
    spec->rope_reversed = true;
    spec->logits_soft_cap = family_read_soft_cap(r, "final_logit_softcapping", 15);
    spec->names.embedding_norm = "model.norm";
    spec->names.up = "mlp.fc1";
    spec->names.down = "mlp.fc2";
}

const struct family family_nanochat = {.model_type = "nanochat",
                                       .architecture = "NanoChatForCausalLM",
                                       .read = read,
                                       .reads = "attention_bias hidden_act final_logit_softcapping"};
