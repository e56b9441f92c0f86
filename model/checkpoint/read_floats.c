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

int64_t weight_source_run(const struct weight_source *s, int64_t first, int64_t count, int64_t *at)
{
    const int64_t rest = s->run - first % s->run;
    *at = s->first_row + first / s->run * s->step + first % s->run;
    return rest < count ? rest : count;
}

/* `count` rows from the stored row `at` on, `step` apart, which are columns of the stored matrix, or of an expert's in
 * it: some of its rows are read at a time, where those columns are. */
static enum status read_transposed(const struct weight_source *s, int64_t at, int64_t count, int64_t step, char *out,
                                   struct error *err)
{
    enum { TILE = 32 };
    const struct stored_tensor *t = s->data;
    const int64_t in_features = s->weight.in_features, rows = t->shape[t->num_dims - 1], size = t->type->bytes;
    const int64_t expert = at / rows, column = at % rows, bytes = ((count - 1) * step + 1) * size;
    char *tile = malloc((size_t)(TILE * bytes));
    enum status status =
        tile ? STATUS_OK : error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for loading the weights");
    for (int64_t k = 0; k < in_features && status == STATUS_OK; k += TILE) {
        const int64_t wide = in_features - k < TILE ? in_features - k : TILE;
        const int64_t line = expert * s->file_columns + s->first_column + k;
        status = tensor_file_read_strips(s->file, t, line, wide, column * size, bytes, tile, err);
        if (status != STATUS_OK) break;
        if (size == 2)
            transpose(out + k * 2, in_features, tile, bytes, count, wide, step, 2);
        else
            transpose(out + k * 4, in_features, tile, bytes, count, wide, step, 4);
    }
    free(tile);
    return status;
}

struct row_bytes weight_source_columns(const struct weight_source *s, int64_t bytes)
{
    const int64_t in_features = s->weight.in_features;
    if (s->file_columns <= in_features) return (struct row_bytes){bytes, 0, bytes};
    return (struct row_bytes){bytes * s->file_columns / in_features, bytes * s->first_column / in_features, bytes};
}

struct stored_groups weight_source_groups(const struct weight_source *s)
{
    const int64_t size = s->scheme->group_size;
    if (size == 0) return (struct stored_groups){0, 1};
    return (struct stored_groups){s->first_column / size, (s->file_columns + size - 1) / size};
}

/* Some of the columns of n rows. Short rows are read whole, because a read of few bytes takes as long. */
static enum status read_columns(const struct weight_source *s, const char *from, int64_t n, const struct row_bytes *row,
                                char *out, struct error *err)
{
    enum { SHORT = 2048 };
    enum status status = STATUS_OK;
    if (row->stride > SHORT) {
        for (int64_t i = 0; i < n && status == STATUS_OK; i++)
            status = tensor_file_read(s->file, from + i * row->stride + row->offset, (uint64_t)row->count,
                                      out + i * row->count, err);
        return status;
    }
    char *rows = malloc((size_t)(n * row->stride) + 1);
    if (!rows) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for loading the weights");
    status = tensor_file_read(s->file, from, (uint64_t)(n * row->stride), rows, err);
    for (int64_t i = 0; i < n && status == STATUS_OK; i++)
        memcpy(out + i * row->count, rows + i * row->stride + row->offset, (size_t)row->count);
    free(rows);
    return status;
}

enum status weight_source_read_rows(const struct weight_source *s, const struct stored_tensor *t, int64_t first,
                                    int64_t count, const struct row_bytes *row, void *out, struct error *err)
{
    enum status status = STATUS_OK;
    for (int64_t i = 0, n, at; i < count && status == STATUS_OK; i += n) {
        n = weight_source_run(s, first + i, count - i, &at);
        const char *from = (const char *)t->data + at * row->stride;
        char *to = (char *)out + i * row->count;
        status = row->count == row->stride ? tensor_file_read(s->file, from, (uint64_t)(n * row->stride), to, err)
                                           : read_columns(s, from, n, row, to, err);
    }
    return status;
}

enum status weight_source_read_floats(const struct weight_source *s, int64_t first, int64_t count, void *out,
                                      struct error *err)
{
    if (s->stored) return weight_source_dequantize(s, first, count, out, err);
    const int64_t bytes = s->weight.in_features * s->data->type->bytes;
    const struct row_bytes row = weight_source_columns(s, bytes);
    enum status status = STATUS_OK;
    if (!s->transposed) return weight_source_read_rows(s, s->data, first, count, &row, out, err);
    for (int64_t i = 0, n, at; i < count && status == STATUS_OK; i += n) {
        const bool apart = s->run == 1; /* single rows are read together, with those between them */
        n = weight_source_run(s, first + i, count - i, &at);
        if (apart) n = count;
        status = read_transposed(s, at, n, apart ? s->step : 1, (char *)out + i * bytes, err);
    }
    return status;
}
