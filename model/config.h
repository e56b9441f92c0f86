/* config.json and generation_config.json of a checkpoint, as transformers 4 and 5 write them.
 *
 * A key known to change the arithmetic is either honoured or refused by name, so a checkpoint is computed right or not
 * at all; other keys are ignored. A null counts as an absent key. Which families there are, and what each reads, is in
 * families/.
 */
#ifndef QUIRE_MODEL_CONFIG_H
#define QUIRE_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "base/status.h"
#include "model/generation_config.h"
#include "model/model_spec.h"

#define CONFIG_MAX_EOS 16

struct model_config {
    char model_type[64];   /* the family's: "llama" */
    char architecture[64]; /* "LlamaForCausalLM" */
    struct model_spec spec;

    int32_t bos_token_id;                           /* -1: none */
    int32_t eos_token_ids[CONFIG_MAX_EOS], num_eos; /* of both files, distinct, config.json's first */

    struct generation_config generation;
};

/* Reads folder/config.json and, if they are there, generation_config.json, and hf_quant_config.json where config.json
 * says nothing of quantization. Errors name the file and the key.
 *
 * generation: "auto" or NULL, the folder's generation_config.json; "vllm", only the end-of-sequence ids in it; else the
 * folder whose generation_config.json is read in its place. A bad value in that file is a warning on `log`, and so is
 * what others compute differently with the same keys.
 *
 * The keys hidden_size, intermediate_size, num_hidden_layers, num_attention_heads and vocab_size are required, and a
 * model_type or an architecture that quire runs. Other keys default as in the family's config class in transformers.
 *
 * STATUS_UNSUPPORTED: another family; a key that changes the arithmetic and that the family does not read; an unknown
 * rope type, or an unknown key beside it. STATUS_INVALID: wrong types, and sizes that are absurd or contradict each
 * other (heads not a multiple of kv heads, odd head_dim), and a head, which is no model of its own. STATUS_IO: a file
 * cannot be read; generation_config.json is a folder, a named pipe or a broken symbolic link.
 */
enum status model_config_load(const char *folder, const char *generation, const struct log *log,
                              struct model_config *config, struct error *err);

/* model_config_load without generation_config.json, of a model that drafts for another. It may be a head (struct
 * head_spec), which head_fit (head.h) then fits to its target. */
enum status model_config_load_drafter(const char *folder, const struct log *log, struct model_config *config,
                                      struct error *err);
/* The same of the head that a model's own files hold: its layers that predict further tokens
 * (num_nextn_predict_layers), of which the first is used. UNSUPPORTED: there are none, or quire does not compute them.
 */
enum status model_config_load_mtp(const char *folder, const struct log *log, struct model_config *config,
                                  struct error *err);

#endif
