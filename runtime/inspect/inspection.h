/* What a checkpoint folder holds, and what of it fits this machine: the facts of quire inspect. config.json, the
 * headers of the weights and the files of the tokenizer are read, and the memory is planned as quire profile does, but
 * nothing is loaded. */
#ifndef QUIRE_RUNTIME_INSPECTION_H
#define QUIRE_RUNTIME_INSPECTION_H

#include <jansson.h>

#include "model/weights.h"
#include "runtime/engine/loaded_model.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer_config.h"

/* Only config.json must be right. What is wrong with the rest is a fact like any other: a sentence in an error below,
 * whose text is "" where nothing is wrong. */
struct inspection {
    const struct engine_options *options;
    struct loaded_model *loaded;
    struct engine_info info; /* of what is planned. The weights have no data if their files cannot be read, only the
                                shapes and the type that config.json gives them. Where ranks share the model, the
                                weights are those of all of it: the next two */
    struct model_weights whole, whole_draft;
    struct tokenizer_config tokenizer_config;
    struct error weights_error, tokenizer_error;
    struct error template_error; /* "": the chat templates, if there are any, can be used */
    struct error memory_error;   /* "": the weights and a request of info.limits->max_model_len tokens fit */
    bool tied;                   /* lm_head is the embedding */
    int64_t num_parameters, num_embedding_parameters; /* tied ones counted once */
    /* without the experts that a token does not go to; and the bytes that a forward pass of one token reads of these:
     * of an embedding that is not lm_head, one row */
    int64_t num_active_parameters, token_bytes;
    int64_t float_bytes; /* of the weights, if they were floats of config.json's type */
    int64_t file_bytes;  /* of the files with the weights; 0: there are none */
    int32_t num_files;
    bool can_draft;               /* quire computes the layers that predict further tokens, as the drafter mtp */
    int64_t num_draft_parameters; /* of a draft model or a head that the options ask for */
};

/* Reads all but i->options, which is set, into *i, which is zero. Fails if config.json is wrong or memory ran out. Free
 * with inspection_free, also after a failure. */
enum status inspection_read(struct inspection *i, struct error *err);
void inspection_free(struct inspection *i);

/* Prints names and values in groups on stdout. False if it could not be written. */
bool inspection_print(const struct inspection *i);
/* One object, with the keys of config.json and vLLM's names where they have one. The caller owns it; NULL if memory ran
 * out. */
json_t *inspection_json(const struct inspection *i);

/* For those who print it: words of config.json where it has them ("gelu_pytorch_tanh"). */
bool inspect_rope_has_factor(const struct rope_config *rope);
bool inspect_rope_has_original(const struct rope_config *rope); /* original_max_position */
const char *inspect_norm_type(enum norm_type type);
const char *inspect_activation(const struct layer_spec *layer);
const char *inspect_norm_placement(enum norm_placement placement);
const char *inspect_qk_norm(enum qk_norm norm); /* NULL: none */

/* Lengths of requests that are shown, from the shortest: 1024 tokens, 4 times as many and so on, and last
 * max_model_len. 0: there is no k-th. */
int32_t inspect_length(const struct inspection *i, int32_t k);

/* Ids that begin and end a text, as the engine takes them. */
int32_t inspect_bos(const struct inspection *i);                              /* -1: none */
int32_t inspect_eos(const struct inspection *i, int32_t ids[CONFIG_MAX_EOS]); /* returns how many */
/* The spelling of a token; "" if the files that can be read do not tell. */
struct shown inspect_token(const struct inspection *i, int32_t id);

#endif
