/* Products with weights, for the vectors of the file that includes this. */
#ifndef QUIRE_KERNELS_CPU_VECTOR_LINEAR_H
#define QUIRE_KERNELS_CPU_VECTOR_LINEAR_H

#include <string.h>

#include "kernels/cpu/vector_rows.h"

enum { DOT_W = 4, PREFETCH_BYTES = 1024 };

struct dot_operands {
    float *out;
    int64_t out_stride;
    const float *x;
    int64_t x_stride;
    const uint8_t *w; /* the first of the rows at hand */
    int64_t w_bytes;  /* of a row */
    int64_t columns;
};

/* 4 rows of weights against `rows` of x (a constant, at most DOT_X): each element is loaded once from either side. */
VECTOR void dot_block(const struct dot_operands *o, enum dtype dtype, const int rows)
{
    vec sums[DOT_X][DOT_W];
    int64_t c = 0;
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int n = 0; n < DOT_W; n++) sums[r][n] = vec_zero();
    for (; c + LANES <= o->columns; c += LANES) {
        vec w[DOT_W];
#pragma GCC unroll 4
        for (int n = 0; n < DOT_W; n++) w[n] = vec_load_as(o->w + n * o->w_bytes, dtype, c);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            vec x = vec_load(o->x + r * o->x_stride + c);
#pragma GCC unroll 4
            for (int n = 0; n < DOT_W; n++) sums[r][n] = vec_fma(x, w[n], sums[r][n]);
        }
    }
    float tail[LANES];
    for (int r = 0; r < rows; r++) {
        float *out = o->out + r * o->out_stride;
        _mm_storeu_ps(out, vec_sum4(sums[r][0], sums[r][1], sums[r][2], sums[r][3]));
        for (int n = 0; n < DOT_W && c < o->columns; n++) {
            to_float(tail, o->w + n * o->w_bytes + c * dtype_size(dtype), dtype, o->columns - c);
            for (int64_t i = c; i < o->columns; i++) out[n] += tail[i - c] * o->x[r * o->x_stride + i];
        }
    }
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
