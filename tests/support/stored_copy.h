/* A safetensors file that is put together of the tensors of others. */
#ifndef QUIRE_TESTS_SUPPORT_STORED_COPY_H
#define QUIRE_TESTS_SUPPORT_STORED_COPY_H

#include "base/array.h"
#include "model/checkpoint/tensor_file.h"
#include "tests/support/temp_folder.h"

struct stored_copy {
    struct text header, data;
};

/* Adds the tensors of a folder whose names begin with `prefix`. `edit` changes the copy of the bytes; NULL: nothing. */
void stored_copy_add(struct stored_copy *copy, const char *folder, const char *prefix,
                     void (*edit)(const struct stored_tensor *t, void *bytes));
/* Writes model.safetensors, and empties the copy. */
void stored_copy_write(struct stored_copy *copy, const struct temp_folder *folder);

#endif
