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
#include "model/model_spec.h"

#define CONFIG_MAX_EOS 16

struct model_config {
    char architecture[64]; /* "LlamaForCausalLM", "MistralForCausalLM" */
    struct model_spec spec;

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

#endif
