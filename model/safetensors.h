/* Reader of the safetensors format (https://github.com/huggingface/safetensors, "Format"): an 8-byte little-endian
 * header length, a JSON header, then the tensors' bytes. The file is mapped, not copied; only a tensor that is not
 * aligned to its element type is copied, once. Opening checks everything that could be wrong, so that tensor->data can
 * be used without a second look.
 *
 * Checked, in 64-bit arithmetic that cannot overflow: the header length is within the file and 100 MB; the header
 * starts with '{' and ends with '}' and the format's padding (spaces); strict JSON (no duplicate keys, no trailing
 * text);
 * __metadata__ is an object of strings; each dtype is known; shape x element size = span; the spans, sorted by start,
 * have no gap and no overlap, and end with the file.
 *
 * An index (model.safetensors.index.json) names files of its own folder by their plain names. Each must be there, and
 * hold no tensor that another one holds. Which tensors there are is read from the files alone, as in transformers.
 *
 * Errors: STATUS_IO, a file cannot be opened; STATUS_INVALID, a rule is broken; STATUS_UNSUPPORTED, a dtype or a number
 * of dimensions that quire does not know; STATUS_OUT_OF_MEMORY.
 */
#ifndef QUIRE_MODEL_SAFETENSORS_H
#define QUIRE_MODEL_SAFETENSORS_H

#include <stdint.h>

#include "base/file.h"
#include "base/status.h"
#include "kernels/dtype.h"

#define SAFETENSORS_MAX_DIMS 8
#define SAFETENSORS_MAX_HEADER 100000000 /* bytes; the limit of the reference implementation */

/* The format's own list. */
enum safetensors_dtype {
    SAFETENSORS_BOOL,
    SAFETENSORS_U8,
    SAFETENSORS_I8,
    SAFETENSORS_F8_E5M2,
    SAFETENSORS_F8_E4M3,
    SAFETENSORS_I16,
    SAFETENSORS_U16,
    SAFETENSORS_F16,
    SAFETENSORS_BF16,
    SAFETENSORS_I32,
    SAFETENSORS_U32,
    SAFETENSORS_F32,
    SAFETENSORS_F64,
    SAFETENSORS_I64,
    SAFETENSORS_U64
};

struct safetensor {
    const char *name; /* owned by the reader */
    enum safetensors_dtype dtype;
    int num_dims; /* 0 for a scalar */
    int64_t shape[SAFETENSORS_MAX_DIMS];
    const void *data; /* [bytes] aligned to the element size; never NULL, though empty tensors have nothing to read */
    uint64_t bytes;
    const char *path; /* the file it lies in */
};

struct safetensors; /* one file, or all files of an index; read-only once open, so any thread may use it */

/* Opens a folder's weights: model.safetensors if there is one, else model.safetensors.index.json, as transformers does.
 * Other files, such as consolidated.safetensors beside an index that does not name it, are ignored. On failure *out is
 * NULL. */
enum status safetensors_open_folder(const char *folder, struct safetensors **out, struct error *err);
/* Opens one file. */
enum status safetensors_open_file(const char *path, struct safetensors **out, struct error *err);
void safetensors_close(struct safetensors *s); /* unmaps; NULL is allowed */

int64_t safetensors_count(const struct safetensors *s);
/* Tensor `index`, in order of file name and offset; and the index of a tensor. */
const struct safetensor *safetensors_at(const struct safetensors *s, int64_t index);
int64_t safetensors_index(const struct safetensors *s, const struct safetensor *t);
const struct safetensor *safetensors_find(const struct safetensors *s, const char *name); /* NULL: no such tensor */
uint64_t safetensors_total_bytes(const struct safetensors *s);                            /* sum over all tensors */
/* Copies the `bytes` at `data`, which lie in one tensor, to `out`; any thread. Large tensors that are used once are
 * better read than touched: a page costs no fault, and nothing has to be unmapped. */
enum status safetensors_read(const struct safetensors *s, const void *data, uint64_t bytes, void *out,
                             struct error *err);

/* IO: a file was written or cut short since it was opened, so what was read of it may be of two checkpoints. Costs a
 * system call for each file. */
enum status safetensors_check_unchanged(const struct safetensors *s, struct error *err);

const char *safetensors_dtype_name(enum safetensors_dtype dtype); /* "BF16" */
int safetensors_dtype_bytes(enum safetensors_dtype dtype);
/* The dtype as kernels know it: 0, or -1 where kernels have no such type (integers, F64, BOOL). */
int safetensors_to_dtype(enum safetensors_dtype dtype, enum dtype *out);

#endif
