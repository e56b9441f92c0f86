/* Matmuls with weights, for the vectors of the file that includes this. */
#ifndef QUIRE_KERNELS_CPU_VECTOR_LINEAR_H
#define QUIRE_KERNELS_CPU_VECTOR_LINEAR_H

#include <string.h>

#include "kernels/cpu/vector_prefetch.h"
#include "kernels/cpu/vector_rows.h"

enum {
    DOT_W = 4,           /* output features at once */
    COLUMN_VECTORS = 4,  /* vectors of output features at once, of a matrix that is stored by columns */
    DOT_DEPTH = 1024,    /* input features at once of several tokens, so that x and the weights stay in the L1 cache */
    PACK_BYTES = 512,    /* how far ahead to prefetch rows that are packed, a few columns at a time */
    LINE_FEATURES = 6144 /* a longer x does not stay in the L1 cache while weights pass through it */
};

/* One step of dot_block: LANES input features from i on. A single token has two sets of sums, used in turn, so that
 * enough additions are under way. */
VECTOR void dot_step(const struct cpu_dot_args *args, enum dtype dtype, const int num_tokens, int64_t i, const int turn,
                     vec sums[DOT_X][DOT_W])
{
    const int64_t w_bytes = args->in_features * dtype_size(dtype);
    vec x[DOT_X];
#pragma GCC unroll 4
    for (int t = 0; t < num_tokens; t++) x[t] = vec_load(args->x + t * args->x_stride + i);
#pragma GCC unroll 4
    for (int o = 0; o < DOT_W; o++) {
        const vec w = vec_load_as((const uint8_t *)args->weights + o * w_bytes, dtype, i);
#pragma GCC unroll 4
        for (int t = 0; t < num_tokens; t++) {
            vec *sum = &sums[num_tokens == 1 ? turn % 2 : t][o];
            *sum = vec_fma(x[t], w, *sum);
        }
    }
}

/* The input features after the last whole vector, from `start` on. */
VECTOR void dot_tail(const struct cpu_dot_args *args, enum dtype dtype, int num_tokens, int out_features, int64_t start)
{
    const int64_t count = args->in_features - start;
    float tail[LANES];
    for (int o = 0; o < out_features && count > 0; o++) {
        const int64_t first = o * args->in_features + start;
        to_float(tail, (const uint8_t *)args->weights + first * dtype_size(dtype), dtype, count);
        for (int t = 0; t < num_tokens; t++)
            for (int64_t i = 0; i < count; i++)
                args->out[t * args->out_stride + o] += tail[i] * args->x[t * args->x_stride + start + i];
    }
}

/* Input features [start, end), and how many bytes after these weights those begin that are multiplied next: of more
 * input features or of later output features. */
struct dot_range {
    int64_t start, end, next;
};

/* A range of DOT_W output features of num_tokens tokens (a constant, at most DOT_X): each element of x and of the
 * weights is loaded once. The sums are added to those of the ranges before. The next weights of `fetch_rows` rows (a
 * constant) from row `fetch` on are fetched into the L2 cache; 0: the weights after these, into the L1 cache. */
VECTOR void dot_block(const struct cpu_dot_args *args, enum dtype dtype, const int num_tokens,
                      const struct dot_range *range, int fetch, const int fetch_rows)
{
    const int steps = CACHE_LINE / dtype_size(dtype) / LANES, line_features = CACHE_LINE / dtype_size(dtype);
    const int64_t w_bytes = args->in_features * dtype_size(dtype), end = range->end;
    const uint8_t *next = (const uint8_t *)args->weights + fetch * w_bytes + range->next;
    vec sums[DOT_X][DOT_W];
    int64_t i = range->start;
    vec_clear(sums[0], DOT_X * DOT_W);
    for (; i + line_features <= end; i += line_features) {
        if (fetch_rows == 0) prefetch_rows(args->weights, w_bytes, DOT_W, i * dtype_size(dtype), num_tokens == 1);
#pragma GCC unroll 4
        for (int r = 0; r < fetch_rows; r++) __builtin_prefetch(next + r * w_bytes + i * dtype_size(dtype), 0, 2);
#pragma GCC unroll 4
        for (int j = 0; j < steps; j++) dot_step(args, dtype, num_tokens, i + j * LANES, j, sums);
    }
    for (; i + LANES <= end; i += LANES) dot_step(args, dtype, num_tokens, i, 0, sums);
    if (num_tokens == 1)
        for (int o = 0; o < DOT_W; o++) sums[0][o] += sums[1][o];
    for (int t = 0; t < num_tokens; t++) {
        float *out = args->out + t * args->out_stride;
        __m128 four = vec_sum4(sums[t][0], sums[t][1], sums[t][2], sums[t][3]);
        if (range->start > 0) four += _mm_loadu_ps(out);
        _mm_storeu_ps(out, four);
    }
    if (end == args->in_features) dot_tail(args, dtype, num_tokens, DOT_W, i);
}

/* One output feature of one token: the weights are read at consecutive addresses, which is fastest as long as x stays
 * in the cache. */
VECTOR void dot_line(const struct cpu_dot_args *args, enum dtype dtype)
{
    vec sums[4] = {vec_zero(), vec_zero(), vec_zero(), vec_zero()};
    const uint8_t *weights = args->weights;
    const int64_t w_bytes = args->in_features * dtype_size(dtype);
    int64_t i = 0;
    for (; i + 4 * LANES <= args->in_features; i += 4 * LANES) {
        for (int j = 0; j < 4 * LANES * dtype_size(dtype); j += CACHE_LINE)
            prefetch_rows(weights, w_bytes, 1, i * dtype_size(dtype) + j, true);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            sums[j] = vec_fma(vec_load(args->x + i + j * LANES), vec_load_as(weights, dtype, i + j * LANES), sums[j]);
    }
    for (; i + LANES <= args->in_features; i += LANES)
        sums[0] = vec_fma(vec_load(args->x + i), vec_load_as(weights, dtype, i), sums[0]);
    *args->out = vec_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
    dot_tail(args, dtype, 1, 1, i);
}

/* The next `count` output features. */
VECTOR void dot_advance(struct cpu_dot_args *args, enum dtype dtype, int count)
{
    args->weights = (const uint8_t *)args->weights + count * args->in_features * dtype_size(dtype);
    args->out += count;
    args->out_features -= count;
}

/* All output features of num_tokens tokens (a constant), whose x stays in the L1 cache. */
VECTOR void dot_tokens(struct cpu_dot_args args, enum dtype dtype, const int num_tokens, const struct dot_range *range,
                       int fetch, const int fetch_rows)
{
    for (; args.out_features >= DOT_W; dot_advance(&args, dtype, DOT_W))
        dot_block(&args, dtype, num_tokens, range, fetch, fetch_rows);
}

VECTOR void dot_group(const struct cpu_dot_args *args, enum dtype dtype, int num_tokens, const struct dot_range *range,
                      int fetch, const int fetch_rows)
{
    if (num_tokens == 4) dot_tokens(*args, dtype, DOT_X < 4 ? 1 : 4, range, fetch, fetch_rows);
    if (num_tokens == 3) dot_tokens(*args, dtype, 3, range, fetch, fetch_rows);
    if (num_tokens == 2) dot_tokens(*args, dtype, 2, range, fetch, fetch_rows);
    if (num_tokens == 1) dot_tokens(*args, dtype, 1, range, fetch, fetch_rows);
}

/* All tokens, in groups of up to DOT_X; the weights stay in the L2 cache. Each group fetches a part of the next. */
VECTOR void dot_groups(struct cpu_dot_args args, enum dtype dtype, const struct dot_range *range)
{
    const int groups = (args.num_tokens + DOT_X - 1) / DOT_X;
    for (int g = 0; g < groups; g++) {
        const int tokens = (args.num_tokens + groups - g - 1) / (groups - g);
        if (groups < DOT_W) {
            dot_group(&args, dtype, tokens, range, g % 2 * 2, 2);
        } else {
            dot_group(&args, dtype, tokens, range, g % DOT_W, 1);
        }
        args.x += tokens * args.x_stride;
        args.out += tokens * args.out_stride;
        args.num_tokens -= tokens;
    }
}

/* More than DOT_X tokens. */
VECTOR void dot_many(const struct cpu_dot_args *args, enum dtype dtype)
{
    const int64_t in_features = args->in_features;
    for (int64_t start = 0; start < in_features; start += DOT_DEPTH) {
        const int64_t end = start + DOT_DEPTH < in_features ? start + DOT_DEPTH : in_features;
        const int64_t next = end < in_features ? DOT_DEPTH : args->out_features * in_features - start;
        const struct dot_range range = {start, end, next * dtype_size(dtype)};
        dot_groups(*args, dtype, &range);
    }
}

VECTOR void dot_as(struct cpu_dot_args args, enum dtype dtype)
{
    while (args.out_features > 0 && args.num_tokens == 1 && args.in_features <= LINE_FEATURES) {
        dot_line(&args, dtype);
        dot_advance(&args, dtype, 1);
    }
    const struct dot_range all = {0, args.in_features, 0};
    if (args.num_tokens > DOT_X) {
        dot_many(&args, dtype);
    } else {
        dot_group(&args, dtype, args.num_tokens, &all, 0, 0);
    }
    dot_advance(&args, dtype, (int)(args.out_features / DOT_W * DOT_W));
    const struct cpu_dot_args rest = args; /* a copy, so that args itself can stay in registers */
    if (rest.out_features > 0) cpu_kernels_scalar.dot(&rest);
}

static void dot_all(const struct cpu_dot_args *args)
{
    if (args->dtype == DTYPE_FLOAT32) dot_as(*args, DTYPE_FLOAT32);
    if (args->dtype == DTYPE_FLOAT16) dot_as(*args, DTYPE_FLOAT16);
    if (args->dtype == DTYPE_BFLOAT16) dot_as(*args, DTYPE_BFLOAT16);
}

/* COLUMN_VECTORS * LANES output features, or LANES, from o on, of num_tokens tokens from t on; num_tokens and
 * num_vectors are constants. */
VECTOR void columns_block(const struct cpu_columns_args *args, enum dtype dtype, int t, const int num_tokens, int64_t o,
                          const int num_vectors)
{
    const float *x = args->x + t * args->x_stride;
    float *out = args->out + t * args->out_stride + o;
    const uint8_t *weights = (const uint8_t *)args->weights + o * dtype_size(dtype);
    vec sums[DOT_X][COLUMN_VECTORS];
#pragma GCC unroll 4
    for (int j = 0; j < num_tokens; j++)
#pragma GCC unroll 4
        for (int n = 0; n < num_vectors; n++) sums[j][n] = vec_load(out + j * args->out_stride + n * LANES);
    for (int64_t i = 0; i < args->in_features; i++) {
        vec w[COLUMN_VECTORS];
#pragma GCC unroll 4
        for (int n = 0; n < num_vectors; n++) w[n] = vec_load_as(weights, dtype, n * LANES);
#pragma GCC unroll 4
        for (int j = 0; j < num_tokens; j++) {
            const vec xj = vec_set(x[j * args->x_stride + i]);
#pragma GCC unroll 4
            for (int n = 0; n < num_vectors; n++) sums[j][n] = vec_fma(xj, w[n], sums[j][n]);
        }
        weights += args->weight_stride * dtype_size(dtype);
    }
#pragma GCC unroll 4
    for (int j = 0; j < num_tokens; j++)
#pragma GCC unroll 4
        for (int n = 0; n < num_vectors; n++) vec_store(out + j * args->out_stride + n * LANES, sums[j][n]);
}

VECTOR void columns_tokens(const struct cpu_columns_args *args, enum dtype dtype, int64_t o, const int num_vectors)
{
    int t = 0;
    for (; t + DOT_X <= args->num_tokens; t += DOT_X) columns_block(args, dtype, t, DOT_X, o, num_vectors);
    for (; t < args->num_tokens; t++) columns_block(args, dtype, t, 1, o, num_vectors);
}

VECTOR void columns_as(const struct cpu_columns_args args, enum dtype dtype)
{
    const int64_t all = args.out_features;
    int64_t o = 0;
    for (; o + COLUMN_VECTORS * LANES <= all; o += COLUMN_VECTORS * LANES)
        columns_tokens(&args, dtype, o, COLUMN_VECTORS);
    for (; o + LANES <= all; o += LANES) columns_tokens(&args, dtype, o, 1);
    struct cpu_columns_args rest = args;
    rest.out += o, rest.out_features -= o;
    rest.weights = (const uint8_t *)args.weights + o * dtype_size(dtype);
    if (rest.out_features > 0) cpu_kernels_scalar.columns(&rest);
}

static void columns(const struct cpu_columns_args *args)
{
    if (args->dtype == DTYPE_FLOAT32) columns_as(*args, DTYPE_FLOAT32);
    if (args->dtype == DTYPE_FLOAT16) columns_as(*args, DTYPE_FLOAT16);
    if (args->dtype == DTYPE_BFLOAT16) columns_as(*args, DTYPE_BFLOAT16);
}

/* Transposes LANES elements from k on of up to LANES rows. */
VECTOR void pack_square(float *out, int width, const uint8_t *in, enum dtype dtype, int64_t row_bytes, int64_t k,
                        int count, int lanes)
{
    vec v[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) {
        __builtin_prefetch(in + i * row_bytes + k * dtype_size(dtype) + PACK_BYTES);
        v[i] = i < count ? vec_load_as(in + i * row_bytes, dtype, k) : vec_zero();
    }
    vec_transpose(v);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) vec_store_first(out + (k + i) * width, v[i], lanes);
}

VECTOR void pack_as(float *out, int width, const uint8_t *in, enum dtype dtype, int64_t stride, int count,
                    int64_t depth)
{
    const int64_t row_bytes = stride * dtype_size(dtype);
    for (int first = 0; first < width; first += LANES) {
        const int lanes = width - first < LANES ? width - first : LANES;
        int64_t k = 0;
        for (; k + LANES <= depth; k += LANES)
            pack_square(out + first, width, in + first * row_bytes, dtype, row_bytes, k, count - first, lanes);
        float tail[LANES];
        for (int i = 0; i < lanes && k < depth; i++) {
            memset(tail, 0, sizeof tail);
            if (first + i < count)
                to_float(tail, in + (first + i) * row_bytes + k * dtype_size(dtype), dtype, depth - k);
            for (int64_t j = k; j < depth; j++) out[j * width + first + i] = tail[j - k];
        }
    }
}

/* Transposes `count` rows of `depth` elements: out[k][i] = in[i][k] for i < count, 0 for count <= i < width. */
static void pack(uint8_t *packed, int width, const void *in, enum dtype dtype, int64_t stride, int count, int64_t depth)
{
    float *out = (float *)packed;
    if (dtype == DTYPE_FLOAT32) pack_as(out, width, in, DTYPE_FLOAT32, stride, count, depth);
    if (dtype == DTYPE_FLOAT16) pack_as(out, width, in, DTYPE_FLOAT16, stride, count, depth);
    if (dtype == DTYPE_BFLOAT16) pack_as(out, width, in, DTYPE_BFLOAT16, stride, count, depth);
}

static void pack_x(uint8_t *out, const void *x, enum dtype dtype, int64_t stride, int num_tokens, int64_t depth)
{
    pack(out, TILE_TOKENS, x, dtype, stride, num_tokens, depth);
}

static void pack_w(uint8_t *out, const struct weight *w, int64_t first, int count, int64_t start, int64_t depth)
{
    const enum dtype dtype = weight_dtype(w);
    const uint8_t *in = (const uint8_t *)w->data + (first * w->in_features + start) * dtype_size(dtype);
    pack(out, 2 * LANES, in, dtype, w->in_features, count, depth);
}

/* Adds to or writes a tile. num_tokens is a constant: 2 * num_tokens sums stay in registers over the whole depth. */
VECTOR void tile_of(float *out, int64_t out_stride, const float *a, const float *b, int64_t depth, const int num_tokens,
                    bool accumulate)
{
    vec left[TILE_TOKENS], right[TILE_TOKENS];
#pragma GCC unroll 16
    for (int t = 0; t < num_tokens; t++) left[t] = right[t] = vec_zero();
    for (int64_t k = 0; k < depth; k++) {
        vec b0 = vec_load(b), b1 = vec_load(b + LANES);
#pragma GCC unroll 16
        for (int t = 0; t < num_tokens; t++) {
            vec x = vec_set(a[t]);
            left[t] = vec_fma(x, b0, left[t]);
            right[t] = vec_fma(x, b1, right[t]);
        }
        a += TILE_TOKENS;
        b += 2 * LANES;
    }
#pragma GCC unroll 16
    for (int t = 0; t < num_tokens; t++) {
        float *row = out + t * out_stride;
        if (accumulate) {
            left[t] += vec_load(row);
            right[t] += vec_load(row + LANES);
        }
        vec_store(row, left[t]);
        vec_store(row + LANES, right[t]);
    }
}

static void tile(float *out, int64_t out_stride, const float *a, const float *b, int64_t depth, int num_tokens,
                 bool accumulate)
{
    switch (num_tokens) {
#define TILE_CASE(n)                                                                                                   \
    case n:                                                                                                            \
        tile_of(out, out_stride, a, b, depth, n, accumulate);                                                          \
        break;
        EACH_TILE_TOKENS(TILE_CASE) /* half a tile takes half the time */
#undef TILE_CASE
    default:
        break;
    }
}

static void multiply_tiles(const struct cpu_tile_args *args)
{
    const float *weights = (const float *)args->weights;
    for (int64_t n = 0; n < args->num_features; n += 2 * LANES, weights += 2 * LANES * args->depth)
        tile(args->out + n, args->out_stride, (const float *)args->x, weights, args->depth, args->num_tokens,
             args->accumulate);
}

const struct cpu_tiles ISA(cpu_tiles) = {
    .kind = CPU_TILES_FLOAT,
    .tile_tokens = TILE_TOKENS,
    .tile_features = 2 * LANES,
    .group = 1,
    .x_group_bytes = sizeof(float),
    .w_group_bytes = sizeof(float),
    .pack_x = pack_x,
    .pack_w = pack_w,
    .multiply = multiply_tiles,
};

#endif
