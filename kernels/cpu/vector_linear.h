/* Products with weights, for the vectors of the file that includes this. */
#ifndef QUIRE_KERNELS_CPU_VECTOR_LINEAR_H
#define QUIRE_KERNELS_CPU_VECTOR_LINEAR_H

#include <string.h>

#include "kernels/cpu/vector_rows.h"

enum {
    DOT_W = 4,          /* rows of weights at once */
    LINE = 64,          /* bytes of a cache line */
    NEAR_BYTES = 2048,  /* how far ahead of each of several rows to prefetch */
    FAR_BYTES = 4096,   /* and of a single row */
    LINE_COLUMNS = 6144 /* a longer x does not stay in the first cache while weights pass by */
};

struct dot_operands {
    float *out;
    int64_t out_stride;
    const float *x;
    int64_t x_stride;
    const uint8_t *w; /* the first of the rows at hand */
    int64_t w_bytes;  /* of a row */
    int64_t columns;
};

/* One step of dot_block: LANES columns from c. A single row of x has two sets of sums, taken in turn, so that enough
 * additions are under way. */
VECTOR void dot_step(const struct dot_operands *o, enum dtype dtype, const int rows, int64_t c, const int turn,
                     vec sums[DOT_X][DOT_W])
{
    vec w[DOT_W];
#pragma GCC unroll 4
    for (int n = 0; n < DOT_W; n++) w[n] = vec_load_as(o->w + n * o->w_bytes, dtype, c);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        vec x = vec_load(o->x + r * o->x_stride + c);
        vec *sum = sums[rows == 1 ? turn % 2 : r];
#pragma GCC unroll 4
        for (int n = 0; n < DOT_W; n++) sum[n] = vec_fma(x, w[n], sum[n]);
    }
}

/* What is left of a row after the last whole vector. */
VECTOR void dot_tail(const struct dot_operands *o, enum dtype dtype, int rows, int w_rows, int64_t c)
{
    float tail[LANES];
    for (int n = 0; n < w_rows && c < o->columns; n++) {
        to_float(tail, o->w + n * o->w_bytes + c * dtype_size(dtype), dtype, o->columns - c);
        for (int r = 0; r < rows; r++)
            for (int64_t i = c; i < o->columns; i++)
                o->out[r * o->out_stride + n] += tail[i - c] * o->x[r * o->x_stride + i];
    }
}

/* 4 rows of weights against `rows` of x (a constant, at most DOT_X): each element is loaded once from either side.
 * Processors do not prefetch across pages by themselves, and rows are not much longer than that: each row is
 * prefetched here, and the start of the next four at its end. */
VECTOR void dot_block(const struct dot_operands *o, enum dtype dtype, const int rows)
{
    const int steps = LINE / dtype_size(dtype) / LANES, line_columns = LINE / dtype_size(dtype);
    vec sums[DOT_X][DOT_W];
    int64_t c = 0;
#pragma GCC unroll 4
    for (int r = 0; r < DOT_X; r++)
#pragma GCC unroll 4
        for (int n = 0; n < DOT_W; n++) sums[r][n] = vec_zero();
    for (; c + line_columns <= o->columns; c += line_columns) {
        int64_t ahead = c * dtype_size(dtype) + NEAR_BYTES;
        if (ahead >= o->w_bytes) ahead += (DOT_W - 1) * o->w_bytes;
#pragma GCC unroll 4
        for (int n = 0; n < DOT_W; n++) __builtin_prefetch(o->w + n * o->w_bytes + ahead);
#pragma GCC unroll 4
        for (int i = 0; i < steps; i++) dot_step(o, dtype, rows, c + i * LANES, i, sums);
    }
    for (; c + LANES <= o->columns; c += LANES) dot_step(o, dtype, rows, c, 0, sums);
    if (rows == 1)
        for (int n = 0; n < DOT_W; n++) sums[0][n] = vec_add(sums[0][n], sums[1][n]);
    for (int r = 0; r < rows; r++)
        _mm_storeu_ps(o->out + r * o->out_stride, vec_sum4(sums[r][0], sums[r][1], sums[r][2], sums[r][3]));
    dot_tail(o, dtype, rows, DOT_W, c);
}

/* One row of weights against one of x: memory is read as one stream, which is fastest where x stays in the cache. */
VECTOR void dot_line(const struct dot_operands *o, enum dtype dtype)
{
    vec sums[4] = {vec_zero(), vec_zero(), vec_zero(), vec_zero()};
    int64_t c = 0;
    for (; c + 4 * LANES <= o->columns; c += 4 * LANES) {
        const uint8_t *ahead = o->w + c * dtype_size(dtype) + FAR_BYTES;
        for (int i = 0; i < 4 * LANES * dtype_size(dtype); i += LINE) __builtin_prefetch(ahead + i);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            sums[i] = vec_fma(vec_load(o->x + c + i * LANES), vec_load_as(o->w, dtype, c + i * LANES), sums[i]);
    }
    for (; c + LANES <= o->columns; c += LANES)
        sums[0] = vec_fma(vec_load(o->x + c), vec_load_as(o->w, dtype, c), sums[0]);
    *o->out = vec_sum(vec_add(vec_add(sums[0], sums[1]), vec_add(sums[2], sums[3])));
    dot_tail(o, dtype, 1, 1, c);
}

/* All rows of x against 4 rows of weights, which stay in the cache. */
VECTOR void dot_all_rows(struct dot_operands o, enum dtype dtype, int rows)
{
    for (; rows >= DOT_X; rows -= DOT_X) {
        dot_block(&o, dtype, DOT_X);
        o.x += DOT_X * o.x_stride;
        o.out += DOT_X * o.out_stride;
    }
    if (rows == 3) dot_block(&o, dtype, DOT_X > 3 ? 3 : 1);
    if (rows == 2) dot_block(&o, dtype, 2);
    if (rows == 1) dot_block(&o, dtype, 1);
}

VECTOR void dot_rows_as(struct dot_operands o, enum dtype dtype, int rows, int64_t count)
{
    int64_t n = 0;
    for (; n < count && rows == 1 && o.columns <= LINE_COLUMNS; n++) {
        dot_line(&o, dtype);
        o.w += o.w_bytes;
        o.out++;
    }
    for (; n + DOT_W <= count; n += DOT_W) {
        dot_all_rows(o, dtype, rows);
        o.w += DOT_W * o.w_bytes;
        o.out += DOT_W;
    }
    if (n < count)
        cpu_kernels_scalar.dot_rows(o.out, o.out_stride, o.x, o.x_stride, rows, o.w, dtype,
                                    o.w_bytes / dtype_size(dtype), count - n, o.columns);
}

static void dot_rows(float *out, int64_t out_stride, const float *x, int64_t x_stride, int rows, const void *w,
                     enum dtype dtype, int64_t w_stride, int64_t count, int64_t columns)
{
    struct dot_operands o = {out, out_stride, x, x_stride, w, w_stride * dtype_size(dtype), columns};
    switch (dtype) {
    case DTYPE_FLOAT16:
        dot_rows_as(o, DTYPE_FLOAT16, rows, count);
        break;
    case DTYPE_BFLOAT16:
        dot_rows_as(o, DTYPE_BFLOAT16, rows, count);
        break;
    default:
        dot_rows_as(o, DTYPE_FLOAT32, rows, count);
        break;
    }
}

/* LANES columns of up to LANES rows, turned. */
VECTOR void pack_square(float *out, int width, const uint8_t *in, enum dtype dtype, int64_t row_bytes, int64_t c,
                        int rows, int lanes)
{
    vec v[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) v[i] = i < rows ? vec_load_as(in + i * row_bytes, dtype, c) : vec_zero();
    vec_transpose(v);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) vec_store_first(out + (c + i) * width, v[i], lanes);
}

VECTOR void pack_as(float *out, int width, const uint8_t *in, enum dtype dtype, int64_t stride, int rows,
                    int64_t columns)
{
    int64_t row_bytes = stride * dtype_size(dtype);
    for (int first = 0; first < width; first += LANES) {
        int lanes = width - first < LANES ? width - first : LANES;
        int64_t c = 0;
        for (; c + LANES <= columns; c += LANES)
            pack_square(out + first, width, in + first * row_bytes, dtype, row_bytes, c, rows - first, lanes);
        float tail[LANES];
        for (int i = 0; i < lanes && c < columns; i++) {
            memset(tail, 0, sizeof tail);
            if (first + i < rows)
                to_float(tail, in + (first + i) * row_bytes + c * dtype_size(dtype), dtype, columns - c);
            for (int64_t j = c; j < columns; j++) out[j * width + first + i] = tail[j - c];
        }
    }
}

static void pack(float *out, int width, const void *in, enum dtype dtype, int64_t stride, int rows, int64_t columns)
{
    switch (dtype) {
    case DTYPE_FLOAT16:
        pack_as(out, width, in, DTYPE_FLOAT16, stride, rows, columns);
        break;
    case DTYPE_BFLOAT16:
        pack_as(out, width, in, DTYPE_BFLOAT16, stride, rows, columns);
        break;
    default:
        pack_as(out, width, in, DTYPE_FLOAT32, stride, rows, columns);
        break;
    }
}

/* `rows` is a constant: 2 * rows sums stay in registers over the whole depth. */
VECTOR void tile_of(float *out, int64_t out_stride, const float *a, const float *b, int64_t depth, const int rows,
                    bool accumulate)
{
    vec left[TILE_ROWS], right[TILE_ROWS];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) left[r] = right[r] = vec_zero();
    for (int64_t k = 0; k < depth; k++) {
        vec b0 = vec_load(b), b1 = vec_load(b + LANES);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            vec x = vec_set(a[r]);
            left[r] = vec_fma(x, b0, left[r]);
            right[r] = vec_fma(x, b1, right[r]);
        }
        a += TILE_ROWS;
        b += 2 * LANES;
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
        float *row = out + r * out_stride;
        if (accumulate) {
            left[r] = vec_add(left[r], vec_load(row));
            right[r] = vec_add(right[r], vec_load(row + LANES));
        }
        vec_store(row, left[r]);
        vec_store(row + LANES, right[r]);
    }
}

/* Only what x has rows for is computed; half a tile is as fast as two of a quarter. */
static void tile(float *out, int64_t out_stride, const float *a, const float *b, int64_t depth, int rows,
                 bool accumulate)
{
    switch (rows) {
    case 1:
        tile_of(out, out_stride, a, b, depth, 1, accumulate);
        break;
    case 2:
        tile_of(out, out_stride, a, b, depth, 2, accumulate);
        break;
    case 3:
        tile_of(out, out_stride, a, b, depth, 3, accumulate);
        break;
    case 4:
        tile_of(out, out_stride, a, b, depth, 4, accumulate);
        break;
    case 5:
        tile_of(out, out_stride, a, b, depth, 5, accumulate);
        break;
    case 6:
        tile_of(out, out_stride, a, b, depth, 6, accumulate);
        break;
#if TILE_MORE_ROWS
    case 7:
        tile_of(out, out_stride, a, b, depth, 7, accumulate);
        break;
    case 8:
        tile_of(out, out_stride, a, b, depth, 8, accumulate);
        break;
    case 9:
        tile_of(out, out_stride, a, b, depth, 9, accumulate);
        break;
    case 10:
        tile_of(out, out_stride, a, b, depth, 10, accumulate);
        break;
    case 11:
        tile_of(out, out_stride, a, b, depth, 11, accumulate);
        break;
    case 12:
        tile_of(out, out_stride, a, b, depth, 12, accumulate);
        break;
    case 13:
        tile_of(out, out_stride, a, b, depth, 13, accumulate);
        break;
    case 14:
        tile_of(out, out_stride, a, b, depth, 14, accumulate);
        break;
#endif
    default:
        break;
    }
}

#endif
