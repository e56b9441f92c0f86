/* The table of a model's tensors, made once from its spec. All code that handles tensors one by one walks it: finding
 * them in the files, filling them with random numbers, uploading them, counting bytes, benchmarking matmuls.
 */
#ifndef QUIRE_MODEL_TENSORS_H
#define QUIRE_MODEL_TENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "model/model_spec.h"

/* ONES is a gain, or a vector, that no file holds, since all of it is 1. SLOPES are numbers that follow from the spec,
 * of heads of a recurrent layer (recurrent_slope). A vector is float32 in memory, whatever the file has. A IDS are
 * token ids of the target: int64 in the file, each less its index; int32 in memory, where their type is called float32,
 * which has as many bytes. A scalar is one number, which the host reads: in the file its shape is [] or [1]. A cache
 * scale is the scalar of an fp8 KV cache: no weight, it has no elements here. */
enum tensor_kind {
    TENSOR_MATRIX,
    TENSOR_BIAS,
    TENSOR_GAIN,
    TENSOR_ONES,
    TENSOR_SLOPES,
    TENSOR_VECTOR,
    TENSOR_IDS,
    TENSOR_SCALAR,
    TENSOR_CACHE_SCALE
};

/* A GPU merges matrices with the same input into one; this is the merged matrix that a tensor becomes a part of. The
 * experts of a layer become one behind the other (struct row_segments): gate and up of each, and down of each. A vector
 * that is merged is one in host memory, too. */
enum merged_matrix { MERGED_NONE, MERGED_QKV, MERGED_GATE_UP, MERGED_ROUTER, MERGED_EXPERTS };

/* Role, layer and expert are what a tensor is found by; a bias has those of its matrix or norm. */
struct tensor {
    enum tensor_role role;
    enum tensor_kind kind;
    int32_t layer;                     /* -1: of no layer */
    int32_t expert;                    /* 0 for all but matrices and biases of experts; of a rank, which of its own */
    int64_t out_features, in_features; /* the shape; in_features is 0 for all but matrices, [out_features] */
    struct weight_scheme scheme;       /* of a matrix: how the file stores it, and its format in memory */
    enum merged_matrix merged;
    int part, num_parts; /* of the merged matrix: which part this is, and how many there are; 0 and 1 for a tensor that
                            is not merged */
    int64_t first_row, merged_rows; /* in the merged matrix, or its bias: where the tensor begins, and how many rows
                                       there are in all; 0 and out_features for a tensor that is not merged */
    bool merged_in_file;            /* the file has the merged matrix (or bias): `name` is its name */
    int32_t num_experts;            /* of MERGED_EXPERTS, else 0 */
    int32_t file_experts; /* so many that the files have; merged in a file, it is [file_experts, rows, ...], or flat */
    /* Where the rows lie in the stored tensor: `run` of them from file_row on, the next ones `step` rows after the
     * first, and so on. run is out_features where they are all together. */
    int64_t file_row, run, step;
    int64_t file_rows; /* of the stored tensor in all */
    /* Of a matrix: input features first_column .. first_column + in_features - 1 of the stored tensor's file_columns.
     * A rank has some of the columns of o and down, or some experts (shard.h), and is_share is true of these; else all.
     */
    int64_t first_column, file_columns;
    bool is_share;
    bool transposed;  /* the file has the matrix as [in_features, out_features] */
    bool flat;        /* the file has those of all experts one below the other, in two dimensions */
    bool optional;    /* the file may lack it */
    int32_t width;    /* of a convolution's vector: the file has it as [out_features / width, 1, width]; else 0 */
    float multiplier; /* of a gain: what the file holds times this; 0: as it is */
    char name[96];    /* in the file, once it is known which of tensor_prefixes it has; of a quantized matrix, the name
                         that it would have without quantization */
};

struct tensor_table {
    /* [count] in the order of the forward pass, a bias after its matrix; then the scales of all caches */
    struct tensor *tensors;
    int32_t count;
};

/* tied: lm_head is the embedding, and not in the table. Fails for lack of memory or, for a rank's spec, if
 * tensor_table_shard does; *table is zeroed then. */
enum status tensor_table_make(const struct model_spec *spec, bool tied, struct tensor_table *table, struct error *err);
void tensor_table_free(struct tensor_table *table); /* safe on a zeroed struct */

/* The matrix, vector or scalar with that role, of experts the first's; NULL if the layer has none. layer is -1 for what
 * belongs to no layer. */
const struct tensor *tensor_table_find(const struct tensor_table *table, enum tensor_role role, int32_t layer);

/* Whether a backend reads it, and not the host: it is no scalar and no cache scale. */
static inline bool tensor_is_weight(const struct tensor *t)
{
    return t->kind != TENSOR_SCALAR && t->kind != TENSOR_CACHE_SCALE;
}

/* Whether files hold it. */
static inline bool tensor_is_stored(const struct tensor *t)
{
    return t->kind != TENSOR_ONES && t->kind != TENSOR_SLOPES;
}

/* Whether it is a matrix that can be quantized. What chooses experts never is: it is small, and decides much. Nor are
 * learned positions, of which rows are read, and what heads_linear reads (kernels/latent.h). */
static inline bool tensor_may_be_quantized(const struct tensor *t)
{
    return t->kind == TENSOR_MATRIX && t->role != TENSOR_ROUTER && t->role != TENSOR_SHARED_GATE &&
           t->role != TENSOR_POSITION_EMBEDDING && t->role != TENSOR_LATENT_KV_B;
}

/* Whether it is a matrix that files may have quantized, and memory has as floats. */
static inline bool tensor_is_dequantized(const struct tensor *t)
{
    return t->kind == TENSOR_MATRIX && t->role == TENSOR_LATENT_KV_B;
}

int64_t tensor_elements(const struct tensor *t);

struct tensor_name {
    char text[128];
};

/* What files may have before the names of a text model's tensors, in place of the "model." and "lm_head" that the table
 * begins with: a checkpoint of several modalities has its text model in a module, and one that was saved from
 * transformers' base model lacks "model.". Files of text models have one of the first two as they are published. */
struct tensor_prefix {
    const char *model, *lm_head;
};
enum { NUM_TEXT_PREFIXES = 2, NUM_TENSOR_PREFIXES = 7 };
extern const struct tensor_prefix tensor_prefixes[NUM_TENSOR_PREFIXES]; /* the first is the table's own */

/* The name of a module of no layer that spec->names calls so. */
struct tensor_name tensor_module_name(const struct model_spec *spec, const char *name);
/* The name of the table with another prefix. */
struct tensor_name tensor_name_with(const char *name, const struct tensor_prefix *prefix);
/* Gives all tensors the names that they have with this prefix. */
void tensor_table_rename(struct tensor_table *table, const struct tensor_prefix *prefix);

/* The name of a matrix, without the ".weight" that it may end in, and with another end, such as ".qweight" or "". */
struct tensor_name tensor_name_ending(const struct tensor *matrix, const char *end);

#endif
