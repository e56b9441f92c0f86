#include "model/checkpoint/weight_source.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "model/checkpoint/quantize.h"

enum { BAND_BYTES = 4 << 20, TILE_WORDS = 16 };

struct weight weight_of_scheme(const struct tensor *t)
{
    const struct weight_scheme *s = &t->scheme;
    return (struct weight){.format = s->format,
                           .out_features = t->out_features,
                           .in_features = t->in_features,
                           .scale_dtype = s->format == WEIGHT_INT4 ? DTYPE_FLOAT16 : DTYPE_FLOAT32,
                           .scale_rows = s->blocks ? s->group_size : 1,
                           .group_size = s->group_size > 0 ? s->group_size : t->in_features,
                           .quantize_x = s->quantize_x};
}

bool weight_is_ordered(const struct tensor *t)
{
    const int64_t group = t->scheme.group_size;
    return t->scheme.is_quantized && t->scheme.ordered && group > 0 && group < t->in_features;
}

/* An AWQ file has few bytes of a band side by side, so that it takes many reads: its bands are larger. */
int64_t weight_source_band(const struct weight_source *s)
{
    const int64_t bytes = s->scheme.storage == STORED_AWQ ? 4 * BAND_BYTES : BAND_BYTES;
    const int64_t rows = bytes / weight_row_bytes(&s->weight) / WEIGHT_SOURCE_ROWS * WEIGHT_SOURCE_ROWS;
    return rows > WEIGHT_SOURCE_ROWS ? rows : WEIGHT_SOURCE_ROWS;
}

struct weight_part_bytes weight_part_bytes(const struct weight *w, bool has_zeros, int64_t rows)
{
    const int64_t groups = weight_groups(w), scale_rows = (rows + w->scale_rows - 1) / w->scale_rows;
    return (struct weight_part_bytes){.data = rows * weight_row_bytes(w),
                                      .scales = scale_rows * groups * dtype_size(w->scale_dtype),
                                      .zeros = has_zeros ? rows * groups : 0};
}

int64_t weight_bytes_of_parts(const struct weight *w, bool has_zeros)
{
    const struct weight_part_bytes parts = weight_part_bytes(w, has_zeros, w->out_features);
    const int64_t order = w->input_order ? w->in_features * (int64_t)sizeof *w->input_order : 0;
    return parts.data + parts.scales + parts.zeros + order;
}

struct weight_rows weight_rows_at(const struct weight *w, const struct weight_rows *parts, int64_t first)
{
    const struct weight_part_bytes skipped = weight_part_bytes(w, true, first);
    return (struct weight_rows){.data = parts->data ? (char *)parts->data + skipped.data : NULL,
                                .scales = parts->scales ? (char *)parts->scales + skipped.scales : NULL,
                                .zeros = parts->zeros ? parts->zeros + skipped.zeros : NULL};
}

/* ---- reading ---- */

static enum status out_of_memory(struct error *err)
{
    return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for loading the weights");
}

/* ---- data ---- */

/* out[row * out_stride + j] = tile[j * stride + row], j < columns. Blocks of 4 x 4 go through registers. */
static void transpose(uint32_t *out, int64_t out_stride, const uint32_t *tile, int64_t stride, int64_t rows,
                      int64_t columns)
{
    enum { N = 4 };
    for (int64_t row = 0; row < rows; row += N)
        for (int64_t j = 0; j < columns; j += N) {
            const uint32_t *from = tile + j * stride + row;
            uint32_t *to = out + row * out_stride + j, block[N][N];
            if (rows - row < N || columns - j < N) {
                for (int64_t k = 0; k < N && k < columns - j; k++)
                    for (int64_t i = 0; i < N && i < rows - row; i++) to[i * out_stride + k] = from[k * stride + i];
                continue;
            }
            for (int k = 0; k < N; k++) memcpy(block[k], from + k * stride, sizeof block[k]);
            for (int i = 0; i < N; i++) {
                const uint32_t words[N] = {block[0][i], block[1][i], block[2][i], block[3][i]};
                memcpy(to + i * out_stride, words, sizeof words);
            }
        }
}

/* out[row][k] = stored[k][row], in words of several input features. */
static enum status read_gptq(const struct weight_source *s, int64_t first, int64_t count, uint32_t *out,
                             struct error *err)
{
    const int64_t words = weight_row_bytes(&s->weight) / 4;
    uint32_t *tile = malloc((size_t)(TILE_WORDS * count) * sizeof *tile);
    enum status status = tile ? STATUS_OK : out_of_memory(err);
    for (int64_t k = 0; k < words && status == STATUS_OK; k += TILE_WORDS) {
        const int64_t wide = words - k < TILE_WORDS ? words - k : TILE_WORDS;
        status = tensor_file_read_strips(s->file, s->data, k, wide, (s->first_row + first) * 4, count * 4, tile, err);
        if (status == STATUS_OK) transpose(out + k, words, tile, count, count, wide);
    }
    free(tile);
    return status;
}

/* Swaps the bits of `mask` in words[i + step][column] with those in words[i][column] that are 4 * step higher. */
static inline void swap_blocks(uint32_t *words, int64_t columns, int step, uint32_t mask)
{
    for (int i = 0; i < 8; i++) {
        if (i & step) continue;
        uint32_t *restrict a = words + i * columns, *restrict b = words + (i + step) * columns;
#pragma omp simd
        for (int64_t column = 0; column < columns; column++) {
            const uint32_t changed = ((a[column] >> 4 * step) ^ b[column]) & mask;
            b[column] ^= changed;
            a[column] ^= changed << 4 * step;
        }
    }
}

/* Of words [8, columns]: bits 4 j of word i become bits 4 i of word j. Blocks of 4 x 4 change places, in each of them
 * those of 2 x 2, and in those the elements (Warren, Hacker's Delight, 7-3). */
static void transpose_words(uint32_t *words, int64_t columns)
{
    swap_blocks(words, columns, 4, 0x0000ffff);
    swap_blocks(words, columns, 2, 0x00ff00ff);
    swap_blocks(words, columns, 1, 0x0f0f0f0f);
}

/* Element i of an AWQ word is of this output feature of the eight. */
static const int awq_order[8] = {0, 2, 4, 6, 1, 3, 5, 7};

/* out[row][k] from stored[8 k .. 8 k + 7][row / 8]. */
static enum status read_awq(const struct weight_source *s, int64_t first, int64_t count, uint32_t *out,
                            struct error *err)
{
    const int64_t words = weight_row_bytes(&s->weight) / 4, columns = count / 8;
    uint32_t *tile = malloc((size_t)(TILE_WORDS * count) * sizeof *tile);
    enum status status = tile ? STATUS_OK : out_of_memory(err);
    for (int64_t k = 0; k < words && status == STATUS_OK; k += TILE_WORDS) {
        const int64_t wide = words - k < TILE_WORDS ? words - k : TILE_WORDS;
        status = tensor_file_read_strips(s->file, s->data, 8 * k, 8 * wide, (s->first_row + first) / 2, count / 2, tile,
                                         err);
        if (status != STATUS_OK) break;
        for (int64_t j = 0; j < wide; j++) transpose_words(tile + 8 * j * columns, columns);
        for (int i = 0; i < 8; i++)
            transpose(out + awq_order[i] * words + k, 8 * words, tile + i * columns, 8 * columns, columns, wide);
    }
    free(tile);
    return status;
}

/* The columns of each row in the order of the groups. */
static enum status permute(const struct weight *w, int64_t count, uint8_t *data, struct error *err)
{
    const int64_t n = w->in_features, bytes = weight_row_bytes(w);
    const int32_t *order = w->input_order;
    uint8_t *columns = malloc((size_t)n + 1);
    if (!columns) return out_of_memory(err);
    for (int64_t row = 0; row < count; row++) {
        uint8_t *out = data + row * bytes;
        if (w->format == WEIGHT_INT8) {
            memcpy(columns, out, (size_t)n);
            for (int64_t i = 0; i < n; i++) out[i] = columns[order[i]];
            continue;
        }
        for (int64_t i = 0; i < bytes; i++) columns[2 * i] = out[i] & 15, columns[2 * i + 1] = out[i] >> 4;
        for (int64_t i = 0; i < bytes; i++) out[i] = (uint8_t)(columns[order[2 * i]] | columns[order[2 * i + 1]] << 4);
    }
    free(columns);
    return STATUS_OK;
}

static enum status read_data(const struct weight_source *s, int64_t first, int64_t count, void *out, struct error *err)
{
    const int64_t bytes = weight_row_bytes(&s->weight);
    enum status status;
    if (s->scheme.storage == STORED_GPTQ)
        status = read_gptq(s, first, count, out, err);
    else if (s->scheme.storage == STORED_AWQ)
        status = read_awq(s, first, count, out, err);
    else
        status = tensor_file_read_strips(s->file, s->data, s->first_row + first, count, 0, bytes, out, err);
    /* In words, 8 bits are stored as a number from 0 to 255 whose zero is 128. */
    if (s->weight.format == WEIGHT_INT8 && s->scheme.storage != STORED_ROWS)
        for (int64_t i = 0; i < count * bytes && status == STATUS_OK; i++) ((uint8_t *)out)[i] ^= 0x80;
    return status == STATUS_OK && s->weight.input_order ? permute(&s->weight, count, out, err) : status;
}

/* ---- scales and zero points ---- */

static void convert(void *out, enum dtype to, int64_t i, const void *in, enum dtype from, int64_t k)
{
    const int size = dtype_size(from);
    if (from == to)
        memcpy((char *)out + i * size, (const char *)in + k * size, (size_t)size);
    else
        dtype_store(out, to, i, dtype_load(in, from, k));
}

static enum status read_one_scale(const struct weight_source *s, int64_t count, void *out, enum dtype stored,
                                  struct error *err)
{
    const int64_t size = dtype_size(stored), elements = count * weight_groups(&s->weight);
    float one = 0; /* of any dtype */
    const char *from = (const char *)s->scales->data + s->one_scale * size;
    enum status status = tensor_file_read(s->file, from, (uint64_t)size, &one, err);
    for (int64_t i = 0; i < elements && status == STATUS_OK; i++)
        convert(out, s->weight.scale_dtype, i, &one, stored, 0);
    return status;
}

/* Rows of scales: one for each scale_rows rows of data. GPTQ and AWQ store them as [groups, rows]. */
static enum status read_scales(const struct weight_source *s, int64_t first, int64_t count, void *out,
                               struct error *err)
{
    const bool transposed = s->scheme.storage == STORED_GPTQ || s->scheme.storage == STORED_AWQ;
    const struct weight *w = &s->weight;
    const int64_t groups = weight_groups(w), rows = (count + w->scale_rows - 1) / w->scale_rows;
    const int64_t row = (s->first_row + first) / w->scale_rows;
    enum dtype stored;
    element_type_to_dtype(s->scales->dtype, &stored);
    const int64_t size = dtype_size(stored);
    if (s->one_scale >= 0) return read_one_scale(s, rows, out, stored, err);
    char *raw = malloc((size_t)(rows * groups * size));
    if (!raw) return out_of_memory(err);
    enum status status = transposed
                             ? tensor_file_read_strips(s->file, s->scales, 0, groups, row * size, rows * size, raw, err)
                             : tensor_file_read_strips(s->file, s->scales, row, rows, 0, groups * size, raw, err);
    for (int64_t i = 0; i < rows && status == STATUS_OK; i++)
        for (int64_t g = 0; g < groups; g++)
            convert(out, w->scale_dtype, i * groups + g, raw, stored, transposed ? g * rows + i : i * groups + g);
    free(raw);
    return status;
}

/* Zero points lie in words of several output features: PACKED [rows / n, groups], GPTQ and AWQ [groups, rows / n]. */
static enum status read_zeros(const struct weight_source *s, int64_t first, int64_t count, uint8_t *out,
                              struct error *err)
{
    const bool rows_first = s->scheme.storage == STORED_PACKED, awq = s->scheme.storage == STORED_AWQ;
    const int bits = s->weight.format == WEIGHT_INT8 ? 8 : 4, in_word = 32 / bits;
    const int64_t groups = weight_groups(&s->weight), words = (count + in_word - 1) / in_word;
    const int64_t word = (s->first_row + first) / in_word;
    const uint32_t mask = (1u << bits) - 1, more = s->scheme.zeros_less_one;
    uint32_t *raw = malloc((size_t)(words * groups) * sizeof *raw);
    int place[8]; /* of an output feature in its word */
    if (!raw) return out_of_memory(err);
    for (int i = 0; i < 8; i++) place[awq ? awq_order[i] : i] = i * bits;
    enum status status = rows_first
                             ? tensor_file_read_strips(s->file, s->zeros, word, words, 0, groups * 4, raw, err)
                             : tensor_file_read_strips(s->file, s->zeros, 0, groups, word * 4, words * 4, raw, err);
    for (int64_t row = 0; row < count && status == STATUS_OK; row++)
        for (int64_t g = 0; g < groups; g++) {
            const int64_t i = row / in_word;
            const uint32_t stored = raw[rows_first ? i * groups + g : g * words + i] >> place[row % in_word];
            out[row * groups + g] = (uint8_t)((stored + more) & mask);
        }
    free(raw);
    return status;
}

/* Where the scheme has no zero points, those that the file has all the same must be the middle of the range, as they
 * are or less one: nothing else is needed of a symmetric file, so its scheme need not say which. */
static enum status check_zeros(const struct weight_source *s, int64_t first, int64_t count, struct error *err)
{
    const int64_t zeros = count * weight_groups(&s->weight);
    const int middle = s->weight.format == WEIGHT_INT8 ? 128 : 8;
    uint8_t *read = malloc((size_t)zeros);
    enum status status = read ? read_zeros(s, first, count, read, err) : out_of_memory(err);
    for (int64_t i = 0; i < zeros && status == STATUS_OK; i++)
        if (read[i] != middle && read[i] != middle - 1)
            status = error_set(err, STATUS_INVALID,
                               "%s: tensor \"%s\" has a zero point of %d; the quantization_config of config.json says "
                               "that it is symmetric, so all must be %d",
                               s->zeros->path, show_string(s->zeros->name).text, read[i], middle);
    free(read);
    return status;
}

/* ---- quantizing ---- */

struct weight_quantize_args weight_source_quantizing(const struct weight_source *s, const struct weight_rows *out)
{
    const struct weight *w = &s->weight;
    struct weight_quantize_args args = {.in_features = w->in_features,
                                        .format = w->format,
                                        .group_size = w->group_size,
                                        .scale_dtype = w->scale_dtype,
                                        .data = out->data,
                                        .scales = out->scales,
                                        .zeros = out->zeros};
    element_type_to_dtype(s->data->dtype, &args.dtype);
    return args;
}

enum status weight_source_read_floats(const struct weight_source *s, int64_t first, int64_t count, void *out,
                                      struct error *err)
{
    return tensor_file_read_strips(s->file, s->data, s->first_row + first, count, 0,
                                   (int64_t)s->data->bytes / s->data->shape[0], out, err);
}

/* Rows are read, and quantized, a few at a time, so that they stay in a processor's cache. */
static enum status quantize_band(const struct weight_source *s, int64_t first, int64_t count,
                                 const struct weight_rows *out, struct error *err)
{
    enum { ROWS = 8 };
    const struct weight *w = &s->weight;
    char *rows = malloc((size_t)(ROWS * w->in_features) * sizeof(float));
    enum status status = rows ? STATUS_OK : out_of_memory(err);
    for (int64_t row = 0; row < count && status == STATUS_OK; row += ROWS) {
        const struct weight_rows to = weight_rows_at(w, out, row);
        struct weight_quantize_args args = weight_source_quantizing(s, &to);
        args.rows = rows;
        args.num_rows = count - row < ROWS ? count - row : ROWS;
        status = weight_source_read_floats(s, first + row, args.num_rows, rows, err);
        if (status == STATUS_OK) quantize_rows(&args);
    }
    free(rows);
    return status;
}

enum status weight_source_read(const struct weight_source *s, int64_t first, int64_t count,
                               const struct weight_rows *out, struct error *err)
{
    enum status status = STATUS_OK;
    if (s->scheme.quantize) return quantize_band(s, first, count, out, err);
    if (out->data) status = read_data(s, first, count, out->data, err);
    if (out->scales && status == STATUS_OK) status = read_scales(s, first, count, out->scales, err);
    if (out->zeros && status == STATUS_OK) status = read_zeros(s, first, count, out->zeros, err);
    if (s->zeros && !s->has_zeros && status == STATUS_OK) status = check_zeros(s, first, count, err);
    return status;
}
