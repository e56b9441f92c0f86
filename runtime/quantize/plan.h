/* What quire quantize makes of a checkpoint: which stored tensors become quantized matrices, and the safetensors files
 * (shards) that everything is written to. It follows from the headers of the checkpoint's files and the settings alone,
 * so that every run of the same command makes the same plan. */
#ifndef QUIRE_RUNTIME_QUANTIZE_PLAN_H
#define QUIRE_RUNTIME_QUANTIZE_PLAN_H

#include "model/checkpoint/tensor_layout.h"
#include "model/config.h"
#include "model/weights.h"

#define QUANTIZE_INDEX "model.safetensors.index.json"

/* A stored tensor; or the matrix of an expert in one that holds those of all experts, which is cut. */
struct planned_tensor {
    const struct stored_tensor *stored;
    char *matrix;   /* the name of an expert's matrix, owned; NULL: it is the whole tensor, with its name */
    uint64_t bytes; /* that are stored of it; 0: the tensor is cut, and nothing is written of it as a whole */
    struct weight_source source; /* of all its rows; not owned */
    uint8_t scheme;              /* of the spec's; 0: it is copied as it is, and has no source */
    bool is_linear;              /* a matrix of floats that may be a linear layer: not the embedding */
    size_t first_placed;         /* in the shard's layout: the first tensor that is written of it */
};

struct planned_shard {
    char name[64];         /* model.safetensors, or model-00001-of-00007.safetensors */
    int64_t first, count;  /* of the plan's tensors */
    uint64_t stored_bytes; /* of these */
    struct tensor_layout layout;
};

struct quantize_plan {
    const struct model_spec *spec;
    struct model_weights weights;
    struct planned_tensor *tensors; /* [num_tensors] in the order of the files, then matrices of cut tensors */
    struct planned_shard *shards;   /* [num_shards] */
    int64_t num_tensors, num_shards, num_quantized;
    uint64_t file_bytes; /* of all shards */
    bool cuts_experts;   /* tensors of all experts of a layer are cut, as vLLM reads them, but not transformers */
    size_t tensors_capacity, shards_capacity;
};

/* Opens the folder's weights, whose matrices quantization_apply has given schemes. A shard has at most `shard_bytes` of
 * tensors, or one matrix. quantize_plan_free may follow a failure. UNSUPPORTED: what cannot be stored. Else the errors
 * of model_weights_open. */
enum status quantize_plan_make(const char *folder, const struct model_spec *spec, double shard_bytes,
                               struct quantize_plan *plan, struct error *err);
void quantize_plan_free(struct quantize_plan *plan); /* safe on a zeroed struct */

/* Both NULL if memory ran out. The quantization_config of config.json; and the index of the shards. */
json_t *quantize_plan_config(const struct quantize_plan *plan);
json_t *quantize_plan_index(const struct quantize_plan *plan);

#endif
