/* config.json and generation_config.json of a llama-style checkpoint, as transformers 4 and 5 write them.
 *
 * Every key known to change the arithmetic is honoured, or refused by name with the file's path; keys that change
 * nothing are ignored. So a checkpoint is computed right or not at all. A null value counts as an absent key.
 */
#ifndef QUIRE_MODEL_CONFIG_H
#define QUIRE_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/dtype.h"

enum rope_type { ROPE_DEFAULT, ROPE_LINEAR, ROPE_DYNAMIC, ROPE_YARN, ROPE_LLAMA3 };

/* rope_theta and rope_scaling (transformers 4), or rope_parameters (5). Formulas: transformers' modeling_rope_utils. */
struct rope_config {
    enum rope_type type;
    double theta;
    double factor;                            /* linear, dynamic, yarn, llama3 */
    double low_freq_factor, high_freq_factor; /* llama3 */
    double beta_fast, beta_slow;              /* yarn: 32, 1 */
    double attention_factor;                  /* yarn: <= 0: follows from factor, mscale and mscale_all_dim */
    double mscale, mscale_all_dim;            /* yarn, 0: absent */
    bool truncate;                            /* yarn: true unless the file says otherwise */
    int32_t original_max_position;            /* yarn, llama3: the file's, or max_position_embeddings */
};

#define CONFIG_MAX_EOS 16
#define CONFIG_MAX_HEAD_SIZE 1024

struct model_config {
    char architecture[64]; /* "LlamaForCausalLM", "MistralForCausalLM" */
    int32_t hidden_size, intermediate_size, num_layers, num_heads, num_kv_heads, head_size, vocab_size;
    int32_t max_position_embeddings;
    double rms_norm_eps;
    bool tie_word_embeddings, attention_bias, mlp_bias;
    int32_t sliding_window; /* 0: none. Mistral: 4096 where the key is absent, as in transformers; null: none */
    struct rope_config rope;
    enum dtype dtype; /* torch_dtype or dtype of the file; float32 if it is silent, as transformers takes it */

    int32_t bos_token_id;                           /* -1: none */
    int32_t eos_token_ids[CONFIG_MAX_EOS], num_eos; /* a number or a list, distinct */

    /* generation_config.json: defaults for sampling; a field that the file does not give is NaN or -1. eos ids there
     * are added to those above. Ranges are checked as vLLM's SamplingParams does; top_k 0 is off. */
    struct {
        bool present, do_sample_given, do_sample;
        double temperature, top_p, min_p, repetition_penalty;
        int32_t top_k, max_new_tokens;
    } generation;
};

/* Reads folder/config.json and, if it is there, folder/generation_config.json.
 *
 * Required: hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, vocab_size, and a model_type or an
 * architecture that is llama's shape (llama, mistral). Other keys default as in transformers' LlamaConfig and
 * MistralConfig.
 *
 * Refused, by key and path (STATUS_UNSUPPORTED): hidden_act other than silu, an unknown rope type or an unknown key
 * beside it, quantization_config, partial rotary factors, experts, multipliers of other families, soft caps, layers of
 * several kinds, and the like; STATUS_INVALID: wrong types, and sizes that are absurd or do not fit together (heads not
 * a multiple of kv heads, odd head_size). pretraining_tp is ignored: however many slices it names, the sum is the same.
 */
enum status model_config_load(const char *folder, struct model_config *config, struct error *err);

/* The most tokens of one sequence that the model is made for: max_position_embeddings, stretched by linear, dynamic or
 * yarn scaling (yarn: original_max_position x factor), as vLLM derives max_model_len. */
int32_t model_config_max_length(const struct model_config *config);

/* Fills table[max_position, head_size]: cos of each pair's angle, then sin, both times yarn's attention factor. Angles
 * are float32 products, rounded where transformers rounds them.
 *
 * Dynamic scaling: transformers changes the base with the current length of the sequence, which would make cached keys
 * depend on when they were computed. The table is fixed instead, as in vLLM: the base is the one for the longest
 * context, max_length = max_position_embeddings * factor, whatever max_position is: theta * (factor * max_length /
 * max_position_embeddings - (factor - 1)) ^ (head_size / (head_size - 2)). */
void rope_table(const struct model_config *config, int32_t max_position, float *table);

#endif
