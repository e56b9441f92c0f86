/* The weights of a llama checkpoint: names checked, shapes checked, pointers into the mapped file (or filled with
 * random numbers for --load-format dummy). */
#ifndef QUIRE_MODEL_WEIGHTS_H
#define QUIRE_MODEL_WEIGHTS_H

#include <stdint.h>

#include "base/log.h"
#include "base/status.h"
#include "kernels/backend.h"
#include "model/model_spec.h"
#include "model/safetensors.h"

/* Matrices whose outputs lie side by side: q, k, v or gate, up. As they lie in the file, so several, all of one dtype;
 * a backend that copies weights to its own memory may merge them into one. */
struct projection {
    struct weight parts[3];
    int num_parts;
};

struct layer_weights {
    const void *input_norm;          /* [hidden_size] norm_dtype */
    struct projection qkv;           /* [(num_heads + 2 * num_kv_heads) * head_size, hidden_size] */
    struct weight o;                 /* [hidden_size, num_heads * head_size] */
    const void *post_attention_norm; /* [hidden_size] */
    struct projection gate_up;       /* [2 * intermediate_size, hidden_size] */
    struct weight down;              /* [hidden_size, intermediate_size] */
};

struct model_weights {
    struct weight embedding;      /* [vocab_size, hidden_size] */
    struct weight lm_head;        /* [vocab_size, hidden_size]; the embedding where they are tied */
    const void *final_norm;       /* [hidden_size] */
    enum dtype norm_dtype;        /* of every norm's gain */
    struct layer_weights *layers; /* [num_layers] */
    int32_t num_layers;
    int64_t bytes;            /* of all weights, a tied one counted once */
    struct safetensors *file; /* what the pointers point into; NULL for dummy weights */
    void *dummy;              /* the memory of dummy weights; NULL otherwise */
    int64_t dummy_bytes;      /* bytes, and what aligns each tensor to 64 */
};

/* How many bytes the weights of `config` take in config->dtype (for a report before anything is read). */
int64_t model_weights_bytes(const struct model_spec *spec);

/* Maps the folder's safetensors and finds every tensor by its name in transformers' LlamaForCausalLM ("model.layers.0.
 * self_attn.q_proj.weight", ...). Errors name the file, the tensor, the shape or dtype found and the one expected. A
 * tensor that nothing uses is named in a warning on `log` (rotary inv_freq buffers, a tied lm_head apart).
 *
 * Matrices are float32, float16 or bfloat16, each as the file has it, whatever config->dtype says; a bias has its
 * matrix's dtype, the parts of a projection have one, all gains have one. Nothing is read but the headers: pages come
 * in as they are touched. On failure *weights is zeroed. */
enum status model_weights_open(const char *folder, const struct model_spec *spec, const struct log *log,
                               struct model_weights *weights, struct error *err);

/* Random weights of the config's shapes and dtype, the same for the same seed, however many threads there are; in host
 * memory. Deviation 0.02, gains 1. Made for speed (a counter hashed, four of its bytes summed: 1021 values that are
 * nearly normal and end at 3.5 deviations), so that an 8B model takes seconds. Bytes cannot overflow; memory that is
 * not there is an error. On failure *weights is zeroed. */
enum status model_weights_dummy(const struct model_spec *spec, uint64_t seed, struct model_weights *weights,
                                struct error *err);
void model_weights_close(struct model_weights *weights); /* safe on a zeroed struct */

#endif
