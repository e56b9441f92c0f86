/* config.json and generation_config.json of a llama-style checkpoint, as transformers 4 and 5 write them.
 *
 * Every key known to change the arithmetic is honoured, or refused by name with the file's path; keys that change
 * nothing are ignored. So a checkpoint is computed right or not at all.
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
    double attention_factor;                  /* yarn: <= 0: 0.1 ln(factor) + 1 */
    double mscale, mscale_all_dim;            /* yarn, 0: absent */
    bool truncate;                            /* yarn: true unless the file says otherwise */
    int32_t original_max_position;            /* dynamic, yarn, llama3 */
};

#define CONFIG_MAX_EOS 16

struct model_config {
    char architecture[64]; /* "LlamaForCausalLM", "MistralForCausalLM" */
    int32_t hidden_size, intermediate_size, num_layers, num_heads, num_kv_heads, head_dim, vocab_size;
    int32_t max_position_embeddings;
    double rms_norm_eps;
    bool tie_word_embeddings, attention_bias, mlp_bias;
    int32_t sliding_window; /* 0: none */
    struct rope_config rope;
    enum dtype dtype; /* torch_dtype or dtype of the file; float32 if it is silent, as transformers takes it */

    int32_t bos_token_id;                           /* -1: none */
    int32_t eos_token_ids[CONFIG_MAX_EOS], num_eos; /* a number or a list */

    /* generation_config.json: defaults for sampling; a field that the file does not give is NaN or -1. eos ids there
     * are added to those above. */
    struct {
        bool present, do_sample_given, do_sample;
        double temperature, top_p, min_p, repetition_penalty;
        int32_t top_k, max_new_tokens;
    } generation;
};

/* Reads folder/config.json and, if it is there, folder/generation_config.json. Refuses, by key and path: a model_type
 * or architecture that is not llama's shape (llama, mistral), hidden_act other than silu, an unknown rope type,
 * quantization_config, pretraining_tp that splits, partial rotary factors, sizes that do not fit together (heads not a
 * multiple of kv heads, odd head_dim, zero or negative or absurd sizes). */
enum status model_config_load(const char *folder, struct model_config *config, struct error *err);

/* Fills table[max_position, head_dim]: cos of each pair's angle, then sin, both times yarn's attention factor.
 * max_model_len decides dynamic scaling. */
void rope_table(const struct model_config *config, int32_t max_position, float *table);

#endif
