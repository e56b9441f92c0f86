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
        status = tensor_file_read_strips(s->file, t, expert * in_features + k, wide, column * size, bytes, tile, err);
        if (status != STATUS_OK) break;
        if (size == 2)
            transpose(out + k * 2, in_features, tile, bytes, count, wide, step, 2);
        else
            transpose(out + k * 4, in_features, tile, bytes, count, wide, step, 4);
    }
    free(tile);
    return status;
}

enum status weight_source_read_rows(const struct weight_source *s, const struct stored_tensor *t, int64_t first,
                                    int64_t count, int64_t bytes, void *out, struct error *err)
{
    enum status status = STATUS_OK;
    for (int64_t i = 0, n, at; i < count && status == STATUS_OK; i += n) {
        n = weight_source_run(s, first + i, count - i, &at);
        status = tensor_file_read(s->file, (const char *)t->data + at * bytes, (uint64_t)(n * bytes),
                                  (char *)out + i * bytes, err);
    }
    return status;
}

enum status weight_source_read_floats(const struct weight_source *s, int64_t first, int64_t count, void *out,
                                      struct error *err)
{
    if (s->stored) return weight_source_dequantize(s, first, count, out, err);
    const int64_t bytes = s->weight.in_features * s->data->type->bytes;
    enum status status = STATUS_OK;
    if (!s->transposed) return weight_source_read_rows(s, s->data, first, count, bytes, out, err);
    for (int64_t i = 0, n, at; i < count && status == STATUS_OK; i += n) {
        const bool apart = s->run == 1; /* single rows are read together, with those between them */
        n = weight_source_run(s, first + i, count - i, &at);
        if (apart) n = count;
        status = read_transposed(s, at, n, apart ? s->step : 1, (char *)out + i * bytes, err);
    }
    return status;
}
