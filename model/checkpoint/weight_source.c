#include "model/checkpoint/weight_source.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "model/checkpoint/quantize.h"

enum { BAND_BYTES = 4 << 20, TILE_WORDS = 16 };

static const int awq_order[8] = {0, 2, 4, 6, 1, 3, 5, 7};

const struct storage storages[] = {
    [STORED_ROWS] = {".weight", ".weight_scale", ".weight_scale_inv", ".weight_zero_point", NULL},
    [STORED_PACKED] = {".weight_packed", ".weight_scale", ".weight_scale_inv", ".weight_zero_point", ".weight_g_idx",
                       .in_words = true},
    [STORED_GPTQ] = {".qweight", ".scales", NULL, ".qzeros", ".g_idx", .in_words = true, .transposed = true},
    [STORED_AWQ] = {".qweight", ".scales", NULL, ".qzeros", NULL, .in_words = true, .transposed = true,
                    .words_of_rows = true, .word_order = awq_order},
    [STORED_MXFP4] = {".weight_packed", ".weight_scale", .data_type = "U8", .scale_type = "U8",
                      .scale_dtype = DTYPE_E8M0},
    [STORED_NVFP4] = {".weight_packed", ".weight_scale", .data_type = "U8", .scale_type = "F8_E4M3",
                      .scale_dtype = DTYPE_FP8_E4M3, .global_scale = ".weight_global_scale"},
    [STORED_MXFP4_BLOCKS] = {"_blocks", "_scales", .data_type = "U8", .scale_type = "U8", .scale_dtype = DTYPE_E8M0,
                             .of_experts = true},
};

void weight_source_close(struct weight_source *s)
{
    if (s->stored) weight_source_close(s->stored);
    free(s->stored);
    free(s->owned);
}

/* Where words hold rows, a file has few bytes of a band side by side, so that it takes many reads: bands are larger. */
int64_t weight_source_band(const struct weight_source *s)
{
    const int64_t bytes = s->storage->words_of_rows ? 4 * BAND_BYTES : BAND_BYTES;
    const int64_t rows = bytes / weight_row_bytes(&s->weight) / WEIGHT_SOURCE_ROWS * WEIGHT_SOURCE_ROWS;
    return rows > WEIGHT_SOURCE_ROWS ? rows : WEIGHT_SOURCE_ROWS;
}

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

/* Transposes words [8, columns]: bits 4 j of word i become bits 4 i of word j. Blocks of 4 x 4 change places, in each
 * of them those of 2 x 2, and in those the elements (Warren, Hacker's Delight, 7-3). */
static void transpose_words(uint32_t *words, int64_t columns)
{
    swap_blocks(words, columns, 4, 0x0000ffff);
    swap_blocks(words, columns, 2, 0x00ff00ff);
    swap_blocks(words, columns, 1, 0x0f0f0f0f);
}

/* Data that is transposed, in words of several input features: out[row][k] = stored[k][row]. Words of eight rows are
 * made such words first: out[row][k] comes from stored[8 k .. 8 k + 7][row / 8]. */
static enum status read_transposed(const struct weight_source *s, int64_t first, int64_t count, uint32_t *out,
                                   struct error *err)
{
    const int64_t words = weight_row_bytes(&s->weight) / 4, lines = s->storage->words_of_rows ? 8 : 1;
    const int64_t columns = count / lines, at = (s->first_row + first) / lines;
    const int64_t first_word = s->first_column / (s->weight.format == WEIGHT_INT8 ? 4 : 8);
    uint32_t *tile = malloc((size_t)(TILE_WORDS * count) * sizeof *tile);
    enum status status = tile ? STATUS_OK : out_of_memory(err);
    for (int64_t k = 0; k < words && status == STATUS_OK; k += TILE_WORDS) {
        const int64_t wide = words - k < TILE_WORDS ? words - k : TILE_WORDS;
        status = tensor_file_read_strips(s->file, s->data, (first_word + k) * lines, wide * lines, at * 4, columns * 4,
                                         tile, err);
        if (status != STATUS_OK) break;
        for (int64_t j = 0; lines > 1 && j < wide; j++) transpose_words(tile + 8 * j * columns, columns);
        for (int i = 0; i < lines; i++) {
            const int row = s->storage->word_order ? s->storage->word_order[i] : i;
            transpose(out + row * words + k, lines * words, tile + i * columns, lines * columns, columns, wide);
        }
    }
    free(tile);
    return status;
}

static enum status read_columns(const struct weight_source *s, int64_t first, int64_t count, void *out,
                                struct error *err)
{
    const int64_t bytes = weight_row_bytes(&s->weight);
    const struct row_bytes row = weight_source_columns(s, bytes);
    enum status status = s->storage->transposed ? read_transposed(s, first, count, out, err)
                                                : weight_source_read_rows(s, s->data, first, count, &row, out, err);
    if (s->weight.format == WEIGHT_INT8 && s->storage->in_words)
        for (int64_t i = 0; i < count * bytes && status == STATUS_OK; i++) ((uint8_t *)out)[i] ^= 0x80;
    return status;
}

/* The elements of a row in the order of the groups. */
static void permute(const struct weight *w, const uint8_t *row, uint8_t *out)
{
    const int32_t *order = w->input_order;
    for (int64_t i = 0; w->format == WEIGHT_INT8 && i < w->in_features; i++) out[i] = row[order[i]];
    for (int64_t i = 0; w->format != WEIGHT_INT8 && i < w->in_features / 2; i++) {
        const int32_t low = order[2 * i], high = order[2 * i + 1];
        out[i] = (uint8_t)((row[low / 2] >> low % 2 * 4 & 15) | (row[high / 2] >> high % 2 * 4) << 4);
    }
}

/* A weight in an order may have some of all columns, wherever they lie. */
static enum status read_data(const struct weight_source *s, int64_t first, int64_t count, void *out, struct error *err)
{
    if (!s->weight.input_order) return read_columns(s, first, count, out, err);
    struct weight_source all = *s;
    all.first_column = 0, all.weight.in_features = s->file_columns;
    const int64_t bytes = weight_row_bytes(&all.weight);
    uint8_t *rows = malloc((size_t)(count * bytes));
    enum status status = rows ? read_columns(&all, first, count, rows, err) : out_of_memory(err);
    for (int64_t row = 0; row < count && status == STATUS_OK; row++)
        permute(&s->weight, rows + row * bytes, (uint8_t *)out + row * weight_row_bytes(&s->weight));
    free(rows);
    return status;
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

/* Rows of scales, of `size` bytes each scale; runs of rows are whole ones of scales, too. */
static enum status read_rows_of_scales(const struct weight_source *s, int64_t first, int64_t count, int64_t size,
                                       void *out, struct error *err)
{
    const struct stored_groups stored = weight_source_groups(s);
    const struct row_bytes row = {stored.count * size, stored.first * size, weight_groups(&s->weight) * size};
    const int64_t unit = s->weight.scale_rows;
    struct weight_source scales = *s;
    scales.first_row /= unit;
    scales.run = (s->run + unit - 1) / unit;
    scales.step /= unit;
    return weight_source_read_rows(&scales, s->scales, first / unit, count, &row, out, err);
}

/* There is a row of scales for each scale_rows rows of data. */
static enum status read_scales(const struct weight_source *s, int64_t first, int64_t count, void *out,
                               struct error *err)
{
    const bool transposed = s->storage->transposed;
    const struct weight *w = &s->weight;
    const int64_t groups = weight_groups(w), rows = (count + w->scale_rows - 1) / w->scale_rows;
    const enum dtype stored = s->scale_dtype;
    const int64_t size = dtype_size(stored);
    if (s->one_scale >= 0) return read_one_scale(s, rows, out, stored, err);
    char *raw = malloc((size_t)(rows * groups * size));
    if (!raw) return out_of_memory(err);
    const int64_t first_group = weight_source_groups(s).first;
    enum status status = transposed ? tensor_file_read_strips(s->file, s->scales, first_group, groups,
                                                              (s->first_row + first) * size, rows * size, raw, err)
                                    : read_rows_of_scales(s, first, rows, size, raw, err);
    for (int64_t i = 0; i < rows && status == STATUS_OK; i++)
        for (int64_t g = 0; g < groups; g++)
            convert(out, w->scale_dtype, i * groups + g, raw, stored, transposed ? g * rows + i : i * groups + g);
    for (int64_t i = 0; i < rows * groups && s->storage->global_scale && status == STATUS_OK; i++)
        ((float *)out)[i] /= s->global_scale;
    free(raw);
    return status;
}

/* Zero points lie in words of several output features: [rows / n, groups], or [groups, rows / n] if transposed. Reads
 * those of `count` rows that follow each other, from row `at` of the stored tensor on, which may be inside a word. */
static enum status read_run_of_zeros(const struct weight_source *s, int64_t at, int64_t count, uint8_t *out,
                                     struct error *err)
{
    const bool transposed = s->storage->transposed;
    const int *order = s->storage->word_order;
    const int bits = s->weight.format == WEIGHT_INT8 ? 8 : 4, in_word = 32 / bits;
    const int64_t groups = weight_groups(&s->weight), size = sizeof(uint32_t), word = at / in_word;
    const int64_t words = (at + count - 1) / in_word + 1 - word, first = weight_source_groups(s).first;
    const uint32_t mask = (1u << bits) - 1, more = s->scheme->zeros_less_one;
    uint32_t *raw = malloc((size_t)(words * groups * size));
    int place[8]; /* of an output feature in its word */
    if (!raw) return out_of_memory(err);
    for (int i = 0; i < 8; i++) place[order ? order[i] : i] = i * bits;
    enum status status =
        transposed ? tensor_file_read_strips(s->file, s->zeros, first, groups, word * size, words * size, raw, err)
                   : tensor_file_read_strips(s->file, s->zeros, word, words, first * size, groups * size, raw, err);
    for (int64_t row = 0; row < count && status == STATUS_OK; row++)
        for (int64_t g = 0; g < groups; g++) {
            const int64_t i = (at + row) / in_word - word;
            const uint32_t stored = raw[transposed ? g * words + i : i * groups + g] >> place[(at + row) % in_word];
            out[row * groups + g] = (uint8_t)((stored + more) & mask);
        }
    free(raw);
    return status;
}

static enum status read_zeros(const struct weight_source *s, int64_t first, int64_t count, uint8_t *out,
                              struct error *err)
{
    const int64_t groups = weight_groups(&s->weight);
    enum status status = STATUS_OK;
    for (int64_t i = 0, n, at; i < count && status == STATUS_OK; i += n) {
        n = weight_source_run(s, first + i, count - i, &at);
        status = read_run_of_zeros(s, at, n, out + i * groups, err);
    }
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
    return (struct weight_quantize_args){.dtype = s->data->type->dtype,
                                         .in_features = w->in_features,
                                         .format = w->format,
                                         .group_size = w->group_size,
                                         .scale_dtype = s->scheme->scale_dtype,
                                         .data = out->at[WEIGHT_DATA],
                                         .scales = out->at[WEIGHT_SCALES],
                                         .zeros = out->at[WEIGHT_ZEROS]};
}

/* Rows are read, and quantized, a few at a time, so that they stay in a processor's cache. Of a transposed matrix few
 * rows take as many reads as more. */
static enum status quantize_band(const struct weight_source *s, int64_t first, int64_t count,
                                 const struct weight_rows *out, struct error *err)
{
    const int64_t step = s->transposed ? WEIGHT_SOURCE_ROWS : 8;
    const struct weight *w = &s->weight;
    char *rows = malloc((size_t)(step * w->in_features) * sizeof(float));
    enum status status = rows ? STATUS_OK : out_of_memory(err);
    for (int64_t row = 0; row < count && status == STATUS_OK; row += step) {
        const struct weight_rows to = weight_rows_at(w, out, row);
        struct weight_quantize_args args = weight_source_quantizing(s, &to);
        args.rows = rows;
        args.num_rows = count - row < step ? count - row : step;
        status = weight_source_read_floats(s, first + row, args.num_rows, rows, err);
        if (status == STATUS_OK) quantize_rows(&args);
    }
    free(rows);
    return status;
}

enum status weight_source_read(const struct weight_source *s, int64_t first, int64_t count,
                               const struct weight_rows *out, struct error *err)
{
    if (s->scheme->quantize) return quantize_band(s, first, count, out, err);
    if (!s->scheme->is_quantized) return weight_source_read_floats(s, first, count, out->at[WEIGHT_DATA], err);
    return weight_source_read_quantized(s, first, count, out, err);
}

enum status weight_source_read_quantized(const struct weight_source *s, int64_t first, int64_t count,
                                         const struct weight_rows *out, struct error *err)
{
    void *const *to = out->at;
    enum status status = STATUS_OK;
    if (to[WEIGHT_DATA]) status = read_data(s, first, count, to[WEIGHT_DATA], err);
    if (to[WEIGHT_SCALES] && status == STATUS_OK) status = read_scales(s, first, count, to[WEIGHT_SCALES], err);
    if (to[WEIGHT_ZEROS] && status == STATUS_OK) status = read_zeros(s, first, count, to[WEIGHT_ZEROS], err);
    if (s->zeros && !s->scheme->has_zeros && status == STATUS_OK) status = check_zeros(s, first, count, err);
    return status;
}
