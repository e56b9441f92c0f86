/* The parts of a struct weight (kernels/backend.h), which lie apart in memory: what code does with each of them. */
#ifndef QUIRE_MODEL_WEIGHT_PARTS_H
#define QUIRE_MODEL_WEIGHT_PARTS_H

#include "kernels/backend.h"
#include "model/tensors.h"

enum weight_part { WEIGHT_DATA, WEIGHT_SCALES, WEIGHT_ZEROS, NUM_WEIGHT_PARTS };

/* Where the rows of each part begin. NULL: the weight does not have this part, or it is not wanted. */
struct weight_rows {
    void *at[NUM_WEIGHT_PARTS];
};
struct weight_rows weight_parts(const struct weight *w);
void weight_set_parts(struct weight *w, const struct weight_rows *parts);

/* Bytes of each part, for `rows` rows from a multiple of scale_rows on. */
struct weight_part_bytes {
    int64_t of[NUM_WEIGHT_PARTS];
};
struct weight_part_bytes weight_part_bytes(const struct weight *w, bool has_zeros, int64_t rows);

/* The place of row `first` in what `parts` points to. */
struct weight_rows weight_rows_at(const struct weight *w, const struct weight_rows *parts, int64_t first);

/* The weight that a tensor becomes, without data: of the tensor's scheme, or, if that is not quantized, of type
 * `floats`. A bias or a gain becomes a weight of one input feature. */
struct weight weight_of_tensor(const struct tensor *t, enum dtype floats);

/* Whether the weight has an order of input features, unless the order in the file changes nothing. */
bool weight_is_ordered(const struct tensor *t);

#endif
