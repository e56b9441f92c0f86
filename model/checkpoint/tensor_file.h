/* The tensors of a checkpoint, by name: what they are, and their bytes. The format of the files, safetensors, is known
 * to safetensors.c alone.
 *
 * Files are mapped, not copied; only a tensor that is not aligned to its element type is copied, once. Opening checks
 * everything that could be wrong, so that the `data` of a tensor can be used without a second look. A folder has
 * model.safetensors or, where that is missing, model.safetensors.index.json, as transformers reads it: the index names
 * files of its own folder by their plain names. Each must be there, and hold no tensor that another one holds. Which
 * tensors there are is read from the files alone. Other files, such as consolidated.safetensors beside an index that
 * does not name it, are ignored.
 *
 * Errors: STATUS_IO, a file cannot be opened; STATUS_INVALID, a rule of the format is broken; STATUS_UNSUPPORTED, an
 * element type or a number of dimensions that quire does not know; STATUS_OUT_OF_MEMORY.
 */
#ifndef QUIRE_MODEL_CHECKPOINT_TENSOR_FILE_H
#define QUIRE_MODEL_CHECKPOINT_TENSOR_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/dtype.h"

#define TENSOR_FILE_MAX_DIMS 8

/* What the elements of a stored tensor may be. */
enum element {
    ELEMENT_BOOL,
    ELEMENT_U8,
    ELEMENT_I8,
    ELEMENT_F8_E5M2,
    ELEMENT_F8_E4M3,
    ELEMENT_I16,
    ELEMENT_U16,
    ELEMENT_F16,
    ELEMENT_BF16,
    ELEMENT_I32,
    ELEMENT_U32,
    ELEMENT_F32,
    ELEMENT_F64,
    ELEMENT_I64,
    ELEMENT_U64,
    NUM_ELEMENTS
};
struct element_type {
    const char *name; /* "BF16", as safetensors calls it */
    int bytes;
    bool has_dtype;   /* kernels have such a type: all but integers, F64 and BOOL */
    enum dtype dtype; /* if so: which */
};
extern const struct element_type element_types[NUM_ELEMENTS];

/* Whether these are floats of 16 or 32 bits. */
static inline bool element_is_float(const struct element_type *type)
{
    return type->has_dtype && dtype_size(type->dtype) > 1;
}

struct stored_tensor {
    const char *name; /* owned by the tensor file */
    const struct element_type *type;
    int num_dims; /* 0 for a scalar */
    int64_t shape[TENSOR_FILE_MAX_DIMS];
    const void *data; /* [bytes] aligned to the element size; never NULL, though empty tensors have nothing to read */
    uint64_t bytes;
    const char *path; /* the file it lies in */
};

struct tensor_file; /* one file or several; read-only once open, so any thread may use it */

/* Opens a folder's weights. On failure *out is NULL. */
enum status tensor_file_open(const char *folder, struct tensor_file **out, struct error *err);
/* Opens one file. */
enum status tensor_file_open_path(const char *path, struct tensor_file **out, struct error *err);
void tensor_file_close(struct tensor_file *f); /* unmaps; NULL is allowed */

int64_t tensor_file_count(const struct tensor_file *f);
/* Tensor `index`, in order of file name and offset; and the index of a tensor. */
const struct stored_tensor *tensor_file_at(const struct tensor_file *f, int64_t index);
int64_t tensor_file_index(const struct tensor_file *f, const struct stored_tensor *t);
const struct stored_tensor *tensor_file_find(const struct tensor_file *f, const char *name); /* NULL: no such tensor */
uint64_t tensor_file_bytes(const struct tensor_file *f);                                     /* sum over all tensors */

/* Copies the `bytes` at `data`, which lie in one tensor, to `out`; any thread. Large tensors that are used once are
 * better read than touched: a page costs no fault, nothing has to be unmapped, and a file which another program has
 * made shorter is an error and not a signal. `data` may also point to memory that belongs to no file. */
enum status tensor_file_read(const struct tensor_file *f, const void *data, uint64_t bytes, void *out,
                             struct error *err);

/* Copies to `out`, [count, bytes], of each of the `count` rows from `first` on the `bytes` from `offset` on: rows of a
 * matrix, or some of its columns. A tensor of more dimensions has the rows of all its matrices. */
enum status tensor_file_read_strips(const struct tensor_file *f, const struct stored_tensor *t, int64_t first,
                                    int64_t count, int64_t offset, int64_t bytes, void *out, struct error *err);

/* Whether all bytes of the tensor are 0. */
enum status tensor_file_is_zero(const struct tensor_file *f, const struct stored_tensor *t, bool *zero,
                                struct error *err);

/* IO: a file was written or cut short since it was opened, so what was read of it may be of two checkpoints. Costs a
 * system call for each file. */
enum status tensor_file_check_unchanged(const struct tensor_file *f, struct error *err);

#endif
