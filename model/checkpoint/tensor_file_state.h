/* What a tensor file is made of, for the reader of its format. */
#ifndef QUIRE_MODEL_CHECKPOINT_TENSOR_FILE_STATE_H
#define QUIRE_MODEL_CHECKPOINT_TENSOR_FILE_STATE_H

#include <stddef.h>

#include "base/file.h"
#include "model/checkpoint/tensor_file.h"

struct tensor_source { /* one file of the set */
    struct mapped_file map;
    char *path;
};

struct tensor_file {
    struct tensor_source *sources; /* [num_sources] */
    size_t num_sources, sources_capacity;
    struct stored_tensor *tensors; /* [num_tensors] by file and offset */
    size_t num_tensors, tensors_capacity;
    struct stored_tensor **by_name; /* [num_tensors] sorted by name */
    void **copies;                  /* [num_copies] data of misaligned tensors */
    size_t num_copies, copies_capacity;
    uint64_t total_bytes;
};

#endif
