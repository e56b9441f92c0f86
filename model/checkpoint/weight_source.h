/* A tensor of the model's table (model/tensors.h) in the files of a checkpoint: which stored tensors it is made of, and
 * its rows as struct weight (kernels/backend.h) has them.
 *
 * A scheme says how a matrix is stored (enum weight_storage), and a table how that storage lies in a file: names,
 * shapes and words. Each part of a weight (data, scales, zeros) either lies in a file as struct weight wants it, and
 * can be used or copied from there, or is read by rows, which converts it. Floats that are quantized while they are
 * loaded are read by rows, too, and so are floats whose rows the file has in several runs or as columns, those that the
 * file has quantized, and those of which a rank has some columns.
 */
#ifndef QUIRE_MODEL_CHECKPOINT_WEIGHT_SOURCE_H
#define QUIRE_MODEL_CHECKPOINT_WEIGHT_SOURCE_H

#include "model/checkpoint/tensor_file.h"
#include "model/weight_parts.h"

/* How a storage lies in a file. */
struct storage {
    /* What the stored tensors of a matrix are called, in place of ".weight"; NULL: there is none. The scales have
     * either name, and are divided by the global scale. */
    const char *data, *scales, *other_scales, *zeros, *input_order, *global_scale;
    const char *data_type, *scale_type; /* as safetensors calls it; NULL: that of the scheme, and any floats */
    enum dtype scale_dtype;             /* with scale_type: what it stands for */
    bool of_experts;                    /* the tensors hold all experts of a layer: [num_experts, out, groups, ...] */
    bool in_words;         /* data lies in words; 8 bits of one are a number from 0 to 255 whose zero is 128 */
    bool words_of_rows;    /* a word of data holds several output features; else several input features */
    bool transposed;       /* data is [in, out], scales and zeros are [groups, out]; else [out, in] and [out, groups] */
    const int *word_order; /* [8] element i of a word of rows is this row of the eight; NULL: they are in order */
};
extern const struct storage storages[]; /* by enum weight_storage */

struct weight_source {
    const struct weight_scheme *scheme; /* the tensor's, and its storage */
    const struct storage *storage;
    /* What is read. Its data, scales and zeros point into the file, or are NULL where they must be read by rows. A
     * gain, a bias or a vector points into the file or to `owned`. */
    struct weight weight;
    const struct tensor_file *file;                    /* not owned */
    const struct stored_tensor *data, *scales, *zeros; /* NULL: none there */
    enum dtype scale_dtype;                            /* of stored scales */
    float global_scale;                                /* by which they are divided */
    int64_t first_row, run, step;                      /* of the stored tensors, as in struct tensor */
    int64_t first_column, file_columns;                /* the same */
    bool transposed;   /* floats lie as [in_features, rows], of all experts as [num_experts, in_features, rows] */
    int64_t one_scale; /* the scale of the whole matrix is this element of `scales`; -1: rows have their own */
    struct weight_source *stored; /* floats that the file has quantized: the matrix as it has it; NULL: others */
    void *owned; /* the weight's input_order, or a vector that was copied or made; NULL: there is none */
};

/* ---- finding ---- */

struct finder {
    const struct tensor_file *file;
    const char *folder; /* that errors name */
    bool *used;         /* [tensor_file_count] stored tensors that were found */
    struct error *err;
};

/* The stored tensor of that name, which is marked as used; NULL: there is none. In a checkpoint saved from
 * transformers' base model the "transformer." or "gpt_neox." before it is missing. */
const struct stored_tensor *finder_find(const struct finder *f, const char *name);

/* Finds the stored tensors that *t is made of by its scheme, and checks their shapes and types; *s may be closed on
 * failure, too. INVALID: one is missing, or has another shape or type than config.json makes it. UNSUPPORTED: a type or
 * a size that quire does not read. Reads nothing but the order of the input features. */
enum status weight_source_find(const struct finder *f, const struct tensor *t, struct weight_source *s);
void weight_source_close(struct weight_source *s); /* safe on a zeroed struct */

/* ---- reading ---- */

/* Rows are read in bands that begin at a multiple of this. */
enum { WEIGHT_SOURCE_ROWS = 128 };

/* The rows of a band: some MiB. A multiple of WEIGHT_SOURCE_ROWS. */
int64_t weight_source_band(const struct weight_source *s);

/* Reads the wanted parts of rows [first, first + count); first is a multiple of WEIGHT_SOURCE_ROWS, and count too,
 * except at the end. Any thread. IO: the file cannot be read. INVALID: zero points where the scheme has none. */
enum status weight_source_read(const struct weight_source *s, int64_t first, int64_t count,
                               const struct weight_rows *out, struct error *err);

/* The same of a matrix that is quantized, and not quantized now, whatever the scheme says of memory. */
enum status weight_source_read_quantized(const struct weight_source *s, int64_t first, int64_t count,
                                         const struct weight_rows *out, struct error *err);
/* Reads rows [first, first + count) of floats that the file has quantized; both are as in weight_source_read. */
enum status weight_source_dequantize(const struct weight_source *s, int64_t first, int64_t count, float *out,
                                     struct error *err);

/* How many of `count` rows of s from `first` on follow each other in the stored tensors; *at gets where the first is.
 */
int64_t weight_source_run(const struct weight_source *s, int64_t first, int64_t count, int64_t *at);
/* What is read of a row: `count` bytes from `offset` on of the `stride` that it has in the stored tensor. */
struct row_bytes {
    int64_t stride, offset, count;
};
/* The columns of s in a stored tensor that has `bytes` for them. */
struct row_bytes weight_source_columns(const struct weight_source *s, int64_t bytes);
/* Reads rows [first, first + count) of s in the stored tensor *t, which is not transposed. Any thread. IO: the file
 * cannot be read. */
enum status weight_source_read_rows(const struct weight_source *s, const struct stored_tensor *t, int64_t first,
                                    int64_t count, const struct row_bytes *row, void *out, struct error *err);

/* The groups of a row that share a scale: the first one of s, and how many the file has in all. */
struct stored_groups {
    int64_t first, count;
};
struct stored_groups weight_source_groups(const struct weight_source *s);

/* How a matrix is quantized while it is loaded, into what `out` points to; the caller sets `rows` and `num_rows`. */
struct weight_quantize_args weight_source_quantizing(const struct weight_source *s, const struct weight_rows *out);
/* Reads rows [first, first + count) of its floats, as they are stored, or dequantized. Any thread. IO: the file cannot
 * be read. */
enum status weight_source_read_floats(const struct weight_source *s, int64_t first, int64_t count, void *out,
                                      struct error *err);

#endif
