/* Pointers to a model's weights: in the mapped files of a checkpoint, in host memory (dummy weights), or on a device
 * (device_weights.h).
 */
#ifndef QUIRE_MODEL_WEIGHTS_H
#define QUIRE_MODEL_WEIGHTS_H

#include <stdint.h>

#include "base/log.h"
#include "base/pool.h"
#include "base/status.h"
#include "kernels/backend.h"
#include "model/checkpoint/weight_source.h"
#include "model/model_spec.h"
#include "model/tensors.h"

/* Matrices with the same input, whose outputs lie side by side: q, k, v and output gates; gate, up; or a router and the
 * shared experts' gate. In a file they are several, whose types may differ; a device merges those that follow each
 * other and are of one type. */
struct projection {
    struct weight parts[LINEAR_MAX_PARTS];
    int num_parts;
    int64_t starts[LINEAR_MAX_PARTS + 1]; /* [num_parts + 1] of all rows, those of part i begin with starts[i] */
    int64_t out_stride;                   /* elements from token to token of the output; 0: as many as there are rows */
};

/* A vector that the layer does not have has data NULL. */
struct weight_vector {
    const void *data;
    enum dtype dtype;
};

/* The experts of a layer. In host memory, a matrix for each: gate_up [num_experts, 2], the gate and up of each, and
 * down [num_experts]; without gates gate_up has up alone. Stacked, one for all: gate_up [1] and down [1] describe the
 * first expert's, behind which the others lie (struct expert_matrices), and behind these, with has_shared, the MLP
 * beside them: then gate_up and down of the layer are a part of these matrices. */
struct expert_weights {
    struct projection router; /* [num_experts, hidden_size], and the shared gate's row behind them if there is one */
    struct weight_vector choice_bias, expert_scales; /* [num_experts] */
    /* Only with own_norms, [hidden_size]: of the inputs of router and experts, and of what the experts and the MLP
     * beside them compute. */
    struct norm_params router_norm, norm, post_norm, post_shared_norm;
    /* [intermediate_size, experts_width] each; stacked, [2 * intermediate_size, experts_width] or, without gates, as
     * each */
    struct weight *gate_up;
    struct weight *down; /* [experts_width, intermediate_size] */
    bool stacked, has_shared;
    struct weight in, out; /* with latent_size: [latent_size, hidden_size], and back */
};

/* Of a recurrent layer (struct recurrence_args), or of a convolution (struct short_conv_args). */
struct recurrent_weights {
    struct weight_vector conv, conv_bias, a_log, dt_bias, skip;
    struct weight_vector norm; /* gain, of what the recurrence computes, [norm_size] */
    struct weight gate_b, a_b; /* [recurrent_v_size, rank] and [recurrent_a_size, rank]; not there without a rank */
    struct weight o;           /* [hidden_size, recurrent_v_size], beside attention; else the layer's */
};

/* Of latent attention. */
struct latent_weights {
    struct norm_params q_norm, norm; /* [q_rank] and [rank] */
    struct projection q_b;           /* [latent_q_size, q_rank]; not there without q_rank */
    struct weight kv_b;              /* [num_heads * (nope + v_head_size), rank], floats: of a head W_UK, then W_UV */
};

/* A norm that the layer does not have has gain NULL. */
struct layer_weights {
    struct norm_params attention_norm;               /* [hidden_size] */
    struct norm_params stream_norm, mlp_stream_norm; /* [hidden_size] of NORM_STREAM */
    /* [attention_qkv_size, hidden_size] of the layer: q, k, v and output gates; of a recurrent layer, or beside
     * attention, [recurrent_in_size, hidden_size]: channels, gates, a and b; of a convolution [3 * hidden_size,
     * hidden_size]; of latent attention [latent_first_size + latent_vector_size, hidden_size] */
    struct projection qkv;
    struct recurrent_weights recurrent;
    struct latent_weights latent;
    struct norm_params v_norm;         /* [attention_v_head_size] */
    struct norm_params q_norm, k_norm; /* [head_size], or [num_heads * head_size] and [num_kv_heads * head_size] */
    struct weight_vector sinks;        /* [num_heads] */
    float kv_scales[2];                /* the checkpoint's for an fp8 cache, of K and of V; 0: it has none */
    struct weight o;                   /* [hidden_size, attention_out_size] */
    struct norm_params post_attention_norm, mlp_norm; /* [hidden_size] */
    struct projection gate_up; /* [2 * intermediate_size, hidden_size]; without a gate, up: [intermediate_size, ] */
    struct xielu_params xielu; /* of an MLP with that activation */
    struct weight down;        /* [hidden_size, intermediate_size] */
    struct expert_weights experts;
    struct norm_params post_mlp_norm;       /* [hidden_size] */
    struct projection per_layer_gate;       /* [per_layer_size, hidden_size] */
    struct weight per_layer_down;           /* [hidden_size, per_layer_size] */
    struct norm_params post_per_layer_norm; /* [hidden_size] */
    float scalar;                           /* what the layer multiplies the residual stream by; 1 where it does not */
};

struct model_weights {
    struct tensor_table table;         /* what there is */
    struct weight embedding;           /* [vocab_size, hidden_size] */
    struct weight position_embedding;  /* [max_position_embeddings + position_offset, hidden_size]; data NULL: none */
    struct norm_params embedding_norm; /* [hidden_size] */
    struct weight head_projection; /* of a head, as the next two: [hidden_size, of states, or of state and embedding] */
    struct norm_params head_state_norm, head_embedding_norm; /* [hidden_size] */
    struct weight per_layer_embedding;                       /* [per_layer_vocab_size, num_layers * per_layer_size] */
    struct projection per_layer_projection;                  /* [num_layers * per_layer_size, hidden_size] */
    struct norm_params per_layer_norm;                       /* [per_layer_size] */
    struct weight lm_head;           /* [vocab_size, hidden_size]; the embedding where they are tied */
    struct norm_params final_norm;   /* [hidden_size] */
    struct weight_vector target_ids; /* [head.num_ids] int32 (TENSOR_IDS) */
    struct layer_weights *layers;    /* [num_layers] */
    struct weight *experts;          /* those of all layers, at most three for each expert */
    int64_t bytes;                   /* of all weights, a tied one counted once */
    int64_t expert_bytes;            /* of these, those of matrices and biases of experts */
    int32_t host_expert_layers; /* the experts of the first so many layers stay in host memory when the rest is copied
                                   to a device (device_weights.h) */
    /* Tables of which a step reads a few rows, the embedding unless it is lm_head, too, and per-layer embeddings, are
     * then copied to pinned host memory. */
    bool host_embeddings;
    struct tensor_file *file;      /* what weights point into; NULL for dummy weights and on a device */
    struct weight_source *sources; /* [table.count] what tensors are made of in the files; NULL without files */
    uint64_t seed;                 /* of dummy weights */
    bool made_by_device;           /* dummy weights whose matrices are not on the host */
    void *memory;                  /* dummy weights, or what model_weights_pack has read; NULL otherwise */
    int64_t memory_bytes;
    int64_t other_tensors, other_bytes; /* of the files: in the parts for images and audio, which are not used */
    int64_t next_tensors, next_bytes;   /* of the files: in layers that predict further tokens (struct head_spec) */
};

/* Maps the folder's safetensors and finds every tensor of the spec by its name, and those that its schemes name. Errors
 * name the file, the tensor, the shape or dtype found and the one expected. A warning on `log` names each tensor that
 * nothing uses, except rotary inv_freq buffers and the copy of a tied lm_head.
 *
 * A matrix points to what the file has as struct weight wants it; the rest is NULL, and is read from its source: by
 * model_weights_pack, or while it is uploaded. Each tensor that is not quantized is float32, float16 or bfloat16 as the
 * file has it, whatever spec->dtype says. Gains to which a gain_offset is added, those that are 1, and vectors are
 * float32. An lm_head that the file holds is used, as transformers 5 does, even if the spec ties it to the embedding;
 * one whose bytes are the embedding's stays tied.
 *
 * Nothing is read but headers, scalars, the gains that are converted, an lm_head that the spec ties, and the order of
 * input features in a quantized matrix: other pages come in as they are touched. On failure *weights is zeroed. */
enum status model_weights_open(const char *folder, const struct model_spec *spec, const struct log *log,
                               struct model_weights *weights, struct error *err);

/* Reads into memory what matrices cannot use in the files, so that weights can be used on the CPU; on
 * all processors. Does nothing where there is no such matrix, or if that is done already. OUT_OF_MEMORY, IO,
 * or INVALID: see weight_source_read. */
enum status model_weights_pack(struct model_weights *weights, struct error *err);
int64_t model_weights_to_pack(const struct model_weights *weights); /* bytes that it would allocate now */
/* The same for the experts that stay in host memory, alone. */
enum status model_weights_pack_host_experts(struct model_weights *weights, struct error *err);
/* Whether the tensor is of an expert that stays there. */
bool model_weights_stays_on_host(const struct model_weights *weights, const struct tensor *t);
/* Whether it is a table that host_embeddings is about. */
bool model_weights_is_looked_up(const struct model_weights *weights, const struct tensor *t);

/* Random weights of the spec's shapes and dtype in host memory, the same for the same seed, however many threads there
 * are. The standard deviation is 0.02; gains are 1. A value is the sum of four bytes of a hashed counter, so there are
 * 1021 of them, nearly normal, up to 3.5 deviations: an 8B model takes seconds. A quantized matrix gets random bytes
 * and equal scales and, where its scheme has one, an order of input features, the same for all of that size. Vectors
 * are 0, but for convolutions and the gains of recurrent layers, which are 1. Gains are float32 where
 * model_weights_open makes them so. Fails if the host does not have the memory; *weights is zeroed then.
 *
 * made_by_device: matrices are left out, because fill_dummy of a backend will make the same on a device. */
enum status model_weights_dummy(const struct model_spec *spec, uint64_t seed, bool made_by_device,
                                struct model_weights *weights, struct error *err);
/* What a part of *w, a matrix or bias of dummy weights, is made of: out, which is to be filled, has its type. */
struct fill_dummy_args dummy_part(const struct model_weights *weights, const struct tensor *t, const struct weight *w,
                                  int part, void *out);
/* Makes it in host memory. The pool may be NULL. */
void dummy_fill(const struct fill_dummy_args *args, struct pool *pool);
/* Weights of the spec's shapes and dtype without data: their table, their types and `bytes`, which is what a plan of
 * memory reads. */
enum status model_weights_sizes(const struct model_spec *spec, struct model_weights *weights, struct error *err);
void model_weights_close(struct model_weights *weights); /* safe on a zeroed struct */
/* Host memory that the weights lie in, and how much of it is in memory now: mapped pages of files that the system holds
 * in its page cache, and dummy or packed weights. *resident is -1 where the system does not tell. */
void model_weights_resident(const struct model_weights *weights, int64_t *bytes, int64_t *resident);

/* Makes the table and zeroed layers, for functions that fill weights. Experts are not stacked. On failure *weights is
 * zeroed. */
enum status model_weights_init(const struct model_spec *spec, bool tied, struct model_weights *weights,
                               struct error *err);
/* Memory that parts of weights are taken from, one after the other. `at` NULL: they are only counted. */
struct weights_memory {
    char *at;
    int64_t bytes; /* taken */
};
/* Aligned for any use; NULL if `bytes` is 0 or parts are only counted. */
void *weights_memory_take(struct weights_memory *memory, int64_t bytes);
/* Takes memory for those parts that *w does not have, points *w to them, and returns them; the others are NULL. Where
 * parts are only counted, all are NULL, and *w stays as it is. */
struct weight_rows weights_memory_take_parts(struct weights_memory *memory, struct weight *w, bool has_zeros);

/* Allocates `memory` of that size. `what` is said in the error if there is too little: "dummy weights of this config"
 */
enum status model_weights_allocate(struct model_weights *weights, int64_t bytes, const char *what, struct error *err);
/* Whether the tensor is converted to float32 when it is read. */
bool model_weights_converts(const struct model_spec *spec, const struct tensor *t);
/* The type of a tensor that is not quantized, in weights without files. */
enum dtype model_weights_dtype(const struct model_spec *spec, const struct tensor *t);
/* Points the place of a tensor, which is no scalar, to what `from` has, and counts its bytes. Of a merged vector only
 * the first part, behind which the others lie, is pointed to. */
void model_weights_set(struct model_weights *weights, const struct tensor *t, const struct weight *from);
/* What the tensor is made of in the files; NULL without files. */
const struct weight_source *model_weights_source(const struct model_weights *weights, const struct tensor *t);
/* Sets a scalar, or a scale of the cache, to what the file holds. Those of a layer are set in the order of the table:
 * the alphas follow from beta and from what was learnt. Before, they have the values with which training begins. */
void model_weights_set_scalar(struct model_weights *weights, const struct tensor *t, float value);
/* Where a tensor's role, layer and expert lead to. A bias has its matrix's role. Only who may change the weights may
 * write to what the place points to. */
struct weights_place {
    struct projection *projection; /* that the matrix is a part of; NULL: none */
    struct weight *matrix;         /* the merged one, where parts of the projection have been merged; NULL: none */
    struct norm_params *norm;      /* that the gain or bias belongs to; NULL: none */
    const void **vector;           /* the data of a bias, a gain or a vector, and their type */
    enum dtype *vector_dtype;
    /* where the tensor begins in the matrix or its bias, and how many rows these have, of all segments together */
    int64_t first_row, num_rows;
    int32_t num_segments; /* matrices one behind the other, of which `matrix` describes the first: stacked experts; 1 */
};
struct weights_place model_weights_place(const struct model_weights *weights, const struct tensor *t);
struct weight *model_weights_matrix(const struct model_weights *weights, const struct tensor *t);
/* UNSUPPORTED, with the name of a matrix, unless the experts of each layer are what struct expert_matrices describes:
 * of one type, without input_order. */
enum status model_weights_check_experts(const struct model_weights *weights, struct error *err);
/* Bytes of the tensor's weight, which may lack its zeros yet, with its input_order and without the bias. */
int64_t model_weights_tensor_bytes(const struct tensor *t, const struct weight *w);

#endif
