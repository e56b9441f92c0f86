/* Qwen2 and Qwen2.5 (Yang et al., 2024): Llama with biases of Q, K and V, and windows in the upper layers if the file
 * turns them on. MiMo (Xiaomi, 2025) is Qwen2 with layers that predict further tokens. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec layer =
        family_read_llama(r, &(struct size_defaults){.max_position = 32768, .num_kv_heads = 32}, spec);
    layer.attention.qkv_bias = true;
    family_set_layers(spec, &layer);
    family_read_qwen_windows(r, 28, spec);
}

/* MiMo's (Xiaomi, 2025, and vLLM's mimo_mtp.py, which is Xiaomi's): the state is the target's before its final norm,
 * and then the output of the head's own final norm. */
static void make_mtp(struct json_reader *r, struct model_spec *spec)
{
    struct tensor_names *names = &spec->names;
    (void)r;
    family_set_mtp(spec, &spec->layers[spec->num_layers - 1], names->next_layers, 0);
    spec->head.state_first = spec->head.state_before_norm = spec->head.own_state_normed = true;
    names->head_embedding_norm = ".token_layernorm";
    names->head_state_norm = ".hidden_layernorm";
    names->head_projection = ".input_proj";
    names->final_norm = ".final_layernorm";
}

static void read_mimo(struct json_reader *r, struct model_spec *spec)
{
    read(r, spec);
    spec->names.next_layers = "model.mtp_layers";
}

const struct family family_qwen2 = {.model_type = "qwen2",
                                    .architecture = "Qwen2ForCausalLM",
                                    .read = read,
                                    .reads = "sliding_window use_sliding_window layer_types",
                                    /* Q, K and V always have biases */
                                    .ignores = "attention_bias qkv_bias",
                                    .sizes = {4096, 22016, 32, 32, 151936}};
const struct family family_mimo = {.model_type = "mimo",
                                   .architecture = "MiMoForCausalLM",
                                   .read = read_mimo,
                                   .make_mtp = make_mtp,
                                   .reads = "sliding_window use_sliding_window layer_types",
                                   .ignores = "attention_bias qkv_bias"};
