/* Where tensors lie in a safetensors file that is to be written (https://github.com/huggingface/safetensors, "Format"):
 * its first bytes, and the place of each tensor. Who writes the file puts the bytes there.
 *
 *     tensor_layout_add(&layout, ...);  for each tensor
 *     tensor_layout_finish(&layout);
 *
 * Elements of 8 bytes come first, then those of 4, 2 and 1, so that each tensor is aligned to its elements; among
 * equals the order is that in which they were added. The same tensors give the same bytes. */
#ifndef QUIRE_MODEL_CHECKPOINT_TENSOR_LAYOUT_H
#define QUIRE_MODEL_CHECKPOINT_TENSOR_LAYOUT_H

#include "base/array.h"
#include "model/checkpoint/tensor_file.h"

struct placed_tensor {
    char *name; /* owned by the layout */
    const struct element_type *type;
    int num_dims;
    int64_t shape[TENSOR_FILE_MAX_DIMS];
    uint64_t bytes, offset; /* offset: in the file, once the layout is finished */
};

/* Zero-initialise. */
struct tensor_layout {
    struct placed_tensor *tensors; /* [count] as they were added */
    size_t count, capacity;
    struct text head;    /* the file's first bytes: the length of the header, and the header */
    uint64_t file_bytes; /* of the whole file */
};

/* Both are false if memory ran out. `name` is UTF-8, and no other tensor's. */
bool tensor_layout_add(struct tensor_layout *layout, const char *name, const struct element_type *type,
                       const int64_t *shape, int num_dims);
bool tensor_layout_finish(struct tensor_layout *layout);
void tensor_layout_free(struct tensor_layout *layout);

#endif
