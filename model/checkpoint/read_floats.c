/* Rows of a matrix as a file has them: weight_source_read_rows and weight_source_read_floats. */
#include <stdlib.h>
#include <string.h>

#include "model/checkpoint/weight_source.h"

/* out[row][k] = tile[k][row * step], of `size` bytes each. */
static inline __attribute__((always_inline)) void transpose(char *out, int64_t in_features, const char *tile,
                                                            int64_t stride, int64_t rows, int64_t columns, int64_t step,
                                                            int size)
{
    for (int64_t row = 0; row < rows; row++)
        for (int64_t k = 0; k < columns; k++)
            memcpy(out + (row * in_features + k) * size, tile + k * stride + row * step * size, (size_t)size);
}

/* Rows are columns of the stored matrix of an expert: some of its rows are read at a time, where those columns are. */
static enum status read_transposed(const struct weight_source *s, int64_t first, int64_t count, char *out,
                                   struct error *err)
{
    enum { TILE = 32 };
    const struct stored_tensor *t = s->data;
    const int64_t in_features = t->shape[1], rows = t->shape[2], size = t->type->bytes;
    const int64_t expert = s->first_row / rows, column = s->first_row % rows + first * s->row_step;
    const int64_t bytes = ((count - 1) * s->row_step + 1) * size;
    char *tile = malloc((size_t)(TILE * bytes));
    enum status status =
        tile ? STATUS_OK : error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for loading the weights");
    for (int64_t k = 0; k < in_features && status == STATUS_OK; k += TILE) {
        const int64_t wide = in_features - k < TILE ? in_features - k : TILE;
        status = tensor_file_read_strips(s->file, t, expert * in_features + k, wide, column * size, bytes, tile, err);
        if (status != STATUS_OK) break;
        if (size == 2)
            transpose(out + k * 2, in_features, tile, bytes, count, wide, s->row_step, 2);
        else
            transpose(out + k * 4, in_features, tile, bytes, count, wide, s->row_step, 4);
    }
    free(tile);
    return status;
}

enum status weight_source_read_rows(const struct weight_source *s, const struct stored_tensor *t, int64_t first,
                                    int64_t count, int64_t bytes, void *out, struct error *err)
{
    const char *from = (const char *)t->data + (s->first_row + first * s->row_step) * bytes;
    enum status status = STATUS_OK;
    if (s->row_step == 1) return tensor_file_read(s->file, from, (uint64_t)(count * bytes), out, err);
    for (int64_t i = 0; i < count && status == STATUS_OK; i++)
        status =
            tensor_file_read(s->file, from + i * s->row_step * bytes, (uint64_t)bytes, (char *)out + i * bytes, err);
    return status;
}

enum status weight_source_read_floats(const struct weight_source *s, int64_t first, int64_t count, void *out,
                                      struct error *err)
{
    if (count == 0) return STATUS_OK;
    if (s->transposed) return read_transposed(s, first, count, out, err);
    return weight_source_read_rows(s, s->data, first, count, s->weight.in_features * s->data->type->bytes, out, err);
}
