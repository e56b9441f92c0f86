/* What model_weights_open is made of: for find_weights.c and find_quantized.c alone. */
#ifndef QUIRE_MODEL_FIND_WEIGHTS_H
#define QUIRE_MODEL_FIND_WEIGHTS_H

#include <stdbool.h>

#include "model/weights.h"

struct finder {
    struct model_weights *weights;
    const struct model_spec *spec;
    const char *folder;
    bool *used;       /* [tensor_file_count] */
    float *next_gain; /* in weights->gains */
    struct error *err;
};

/* The tensor of that name; in a checkpoint saved from transformers' base model the "model." before it is missing. */
const struct stored_tensor *find_by_name(const struct tensor_file *file, const char *name);

/* Nothing warns that this tensor is not used. */
void mark_used(const struct finder *f, const struct stored_tensor *found);

bool has_shape(const struct stored_tensor *found, const int64_t *shape, int num_dims);
/* INVALID: the tensor has another shape. */
enum status check_shape(const struct finder *f, const struct stored_tensor *found, const int64_t *shape, int num_dims);

/* The tensor of floats that has the name of *t. */
enum status find_floats(const struct finder *f, const struct tensor *t, const struct stored_tensor **found,
                        enum dtype *dtype);

/* Finds the tensors that the scheme of a quantized matrix needs, and fills its weight and its source. */
enum status find_quantized(struct finder *f, const struct tensor *t);

/* Reads the tensor. */
enum status all_bytes_zero(const struct finder *f, const struct stored_tensor *t, bool *zero);

#endif
