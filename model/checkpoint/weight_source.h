/* A quantized matrix in the files of a checkpoint, or one of floats that is quantized while it is loaded: which tensors
 * hold it, and its rows as struct weight (kernels/backend.h) has them.
 *
 * Each part of a matrix (data, scales, zeros) either lies in a file as struct weight wants it, and can be used or
 * copied from there, or is read by rows, which converts it. enum weight_storage says how files store matrices. */
#ifndef QUIRE_MODEL_WEIGHT_SOURCE_H
#define QUIRE_MODEL_WEIGHT_SOURCE_H

#include "model/checkpoint/tensor_file.h"
#include "model/tensors.h"

/* Rows are read in bands that begin at a multiple of this. */
enum { WEIGHT_SOURCE_ROWS = 128 };

struct weight_source {
    struct weight_scheme scheme;
    /* What is read: its data, scales and zeros point into the file, or are NULL where they must be read by rows.
     * input_order is owned by the source. */
    struct weight weight;
    bool has_zeros;                                    /* the weight has zeros, which are read by rows */
    const struct tensor_file *file;                    /* not owned */
    const struct stored_tensor *data, *scales, *zeros; /* in the file; scales NULL: of floats; zeros NULL: none there */
    int64_t first_row;                                 /* of the tensors: where the matrix begins */
    int64_t one_scale; /* the scale of the whole matrix is this element of `scales`; -1: rows have their own */
};

/* A matrix of that tensor's scheme, which is quantized, without data. */
struct weight weight_of_scheme(const struct tensor *t);

/* Whether matrices of that scheme have an order of input features, unless the file's changes nothing. */
bool weight_is_ordered(const struct tensor *t);

/* Rows of a matrix. NULL: this part is not wanted. */
struct weight_rows {
    void *data, *scales;
    uint8_t *zeros;
};

/* The rows of a band: some MiB. A multiple of WEIGHT_SOURCE_ROWS. */
int64_t weight_source_band(const struct weight_source *s);

/* Bytes of each part of a matrix, as struct weight has them, for `rows` rows, or all the rest, from a multiple of
 * WEIGHT_SOURCE_ROWS on. */
struct weight_part_bytes {
    int64_t data, scales, zeros;
};
struct weight_part_bytes weight_part_bytes(const struct weight *w, bool has_zeros, int64_t rows);

/* Of the whole weight, with its input_order and without the bias: weight_bytes of one whose pointers may be NULL yet.
 */
int64_t weight_bytes_of_parts(const struct weight *w, bool has_zeros);

/* The place of row `first` in what `parts` points to. */
struct weight_rows weight_rows_at(const struct weight *w, const struct weight_rows *parts, int64_t first);

/* Of a matrix that is quantized while it is loaded: how, and what `out` points to; but not which rows. */
struct weight_quantize_args weight_source_quantizing(const struct weight_source *s, const struct weight_rows *out);
/* Reads rows [first, first + count) of its floats, as they are stored. Any thread. IO: the file cannot be read. */
enum status weight_source_read_floats(const struct weight_source *s, int64_t first, int64_t count, void *out,
                                      struct error *err);

/* Reads the wanted parts of rows [first, first + count); first is a multiple of WEIGHT_SOURCE_ROWS, and count too,
 * except at the end. Any thread. IO: the file cannot be read. INVALID: zero points where the scheme has none. */
enum status weight_source_read(const struct weight_source *s, int64_t first, int64_t count,
                               const struct weight_rows *out, struct error *err);

#endif
