/* Matmuls of many tokens with INT8, INT4 and MXFP4 weights, in tiles of bytes: AVX-512 with VNNI. Each lane of a sum is
 * an output feature, so that x is broadcast, four columns at a time, and the scales are applied once in 32 columns. */
#ifndef QUIRE_KERNELS_CPU_VECTOR_TILES_H
#define QUIRE_KERNELS_CPU_VECTOR_TILES_H

#include "kernels/cpu/vector_quantized.h"

enum {
    BYTE_TILE_TOKENS = 6, /* 12 sums of 32 columns, 12 of all, 2 vectors of weights and 1 of x in 32 registers */
    BYTE_TILE_FEATURES = 2 * LANES,
    STEPS = CPU_X_GROUP / 4,   /* of four columns */
    X_BYTES = CPU_X_GROUP + 8, /* of a group of a token: values, offset and scale */
    W_BYTES = CPU_X_GROUP + 4, /* of an output feature: values and scale */
    X_GROUP_BYTES = BYTE_TILE_TOKENS * X_BYTES,
    W_GROUP_BYTES = BYTE_TILE_FEATURES * W_BYTES
};

static void pack_x(uint8_t *out, const void *x, enum dtype dtype, int64_t stride, int num_tokens, int64_t depth)
{
    (void)dtype;
    for (int64_t k = 0; k < depth; k += CPU_X_GROUP, out += X_GROUP_BYTES)
        for (int t = 0; t < num_tokens; t++) {
            const int64_t left = depth - k < CPU_X_GROUP ? depth - k : CPU_X_GROUP;
            float padded[CPU_X_GROUP] = {0};
            int32_t fours[STEPS], sums[STEPS], offset = 0, *values = (int32_t *)out;
            __m256i v;
            memcpy(padded, (const float *)x + t * stride + k, (size_t)left * sizeof *padded);
            const float scale = round_group(&v, padded);
            _mm256_storeu_si256((__m256i *)fours, v);
            _mm256_storeu_si256((__m256i *)sums, sums_of_four(v));
            for (int i = 0; i < STEPS; i++) {
                values[i * BYTE_TILE_TOKENS + t] = fours[i];
                offset -= 128 * sums[i];
            }
            values[STEPS * BYTE_TILE_TOKENS + t] = offset;
            ((float *)values)[(STEPS + 1) * BYTE_TILE_TOKENS + t] = scale;
        }
}

/* Where columns [start, start + 64) of a row lie, and their groups. */
struct columns {
    const struct weight *w;
    int64_t row_bytes, groups;
    int64_t start, left; /* left: columns before the end of the row, at most 64 */
    int64_t group[2];    /* of the first 32 and of the others */
};

VECTOR float load_scale(const struct weight *w, int64_t i)
{
    if (w->format == WEIGHT_MXFP4) return dtype_load(w->scales, w->scale_dtype, i) / 2;
    if (w->scale_dtype == DTYPE_FLOAT32) return ((const float *)w->scales)[i];
    const uint16_t bits = ((const uint16_t *)w->scales)[i];
    return w->scale_dtype == DTYPE_FLOAT16 ? _cvtsh_ss(bits) : bf16_to_float(bits);
}

/* 64 columns of output feature o as unsigned bytes, 128 for zero; those of MXFP4 doubled. */
VECTOR bytes load_columns(const struct columns *c, int64_t o)
{
    const struct weight *w = c->w;
    const uint8_t *row = (const uint8_t *)w->data + o * c->row_bytes;
    __builtin_prefetch(row + (weight_is_packed(w->format) ? c->start / 2 : c->start) + NEXT_PANEL);
    if (w->format == WEIGHT_INT8)
        return _mm512_xor_si512(bytes_load_first(row + c->start, c->left), _mm512_set1_epi8(-128));
    const __m256i packed = _mm512_castsi512_si256(bytes_load_first(row + c->start / 2, c->left / 2));
    const bytes wide = _mm512_cvtepu8_epi16(packed);
    const bytes v = bytes_low_halves(_mm512_or_si512(wide, _mm512_slli_epi16(wide, 4)));
    if (w->format == WEIGHT_MXFP4) return bytes_from_e2m1(v, 128);
    const uint8_t *zeros = w->zeros ? w->zeros + o * c->groups : NULL;
    const __m256i first = _mm256_set1_epi8((char)(128 - (zeros ? zeros[c->group[0]] : 8)));
    const __m256i second = _mm256_set1_epi8((char)(128 - (zeros ? zeros[c->group[1]] : 8)));
    return _mm512_add_epi8(v, _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1));
}

/* 64 columns of LANES output features, transposed; those from `count` on are 0. */
VECTOR void pack_lanes(uint8_t *out, const struct columns *c, int64_t first, int count, int lane)
{
    vec v[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) v[i] = i < count ? _mm512_castsi512_ps(load_columns(c, first + i)) : vec_zero();
    vec_transpose(v);
    for (int i = 0; i < 2 * STEPS && 4 * i < c->left; i++) {
        uint8_t *group = out + i / STEPS * W_GROUP_BYTES;
        vec_store((float *)group + i % STEPS * BYTE_TILE_FEATURES + lane, v[i]);
    }
    for (int j = 0; j < 2 && CPU_X_GROUP * j < c->left; j++) {
        float *scales = (float *)(out + j * W_GROUP_BYTES) + STEPS * BYTE_TILE_FEATURES + lane;
        for (int i = 0; i < LANES; i++)
            scales[i] = i < count ? load_scale(c->w, (first + i) * c->groups + c->group[j]) : 0;
    }
}

static void pack_w(uint8_t *out, const struct weight *w, int64_t first, int count, int64_t start, int64_t depth)
{
    struct columns c = {.w = w, .row_bytes = weight_row_bytes(w), .groups = weight_groups(w)};
    for (int64_t k = 0; k < depth; k += 2 * CPU_X_GROUP, out += 2 * W_GROUP_BYTES) {
        c.start = start + k;
        c.left = depth - k < 2 * CPU_X_GROUP ? depth - k : 2 * CPU_X_GROUP;
        c.group[0] = c.start / w->group_size;
        c.group[1] = c.left > CPU_X_GROUP ? (c.start + CPU_X_GROUP) / w->group_size : c.group[0];
        for (int lane = 0; lane < BYTE_TILE_FEATURES; lane += LANES)
            pack_lanes(out, &c, first + lane, count - lane, lane);
    }
}

/* Adds the products of a group to the totals of num_tokens, a constant, by 2 vectors. */
VECTOR void tile_group(vec totals[BYTE_TILE_TOKENS][2], const uint8_t *x, const uint8_t *w, const int num_tokens)
{
    const int32_t *values = (const int32_t *)x, *offsets = values + STEPS * BYTE_TILE_TOKENS;
    const float *x_scales = (const float *)offsets + BYTE_TILE_TOKENS;
    const float *w_scales = (const float *)w + STEPS * BYTE_TILE_FEATURES;
    bytes sums[BYTE_TILE_TOKENS][2];
#pragma GCC unroll 16
    for (int t = 0; t < num_tokens; t++) sums[t][0] = sums[t][1] = _mm512_set1_epi32(offsets[t]);
#pragma GCC unroll 8
    for (int i = 0; i < STEPS; i++) {
        const bytes left = bytes_load(w + i * 8 * LANES), right = bytes_load(w + i * 8 * LANES + LINE);
#pragma GCC unroll 16
        for (int t = 0; t < num_tokens; t++) {
            const bytes four = _mm512_set1_epi32(values[i * BYTE_TILE_TOKENS + t]);
            sums[t][0] = _mm512_dpbusd_epi32(sums[t][0], left, four);
            sums[t][1] = _mm512_dpbusd_epi32(sums[t][1], right, four);
        }
    }
    const vec left = vec_load(w_scales), right = vec_load(w_scales + LANES);
#pragma GCC unroll 16
    for (int t = 0; t < num_tokens; t++) {
        const vec scale = vec_set(x_scales[t]);
        totals[t][0] = vec_fma(vec_from_int32(sums[t][0]) * scale, left, totals[t][0]);
        totals[t][1] = vec_fma(vec_from_int32(sums[t][1]) * scale, right, totals[t][1]);
    }
}

VECTOR void byte_tile_of(float *out, int64_t out_stride, const uint8_t *x, const uint8_t *w, int64_t depth,
                         const int num_tokens, bool accumulate)
{
    vec totals[BYTE_TILE_TOKENS][2];
#pragma GCC unroll 16
    for (int t = 0; t < num_tokens; t++) totals[t][0] = totals[t][1] = vec_zero();
    for (int64_t k = 0; k < depth; k += CPU_X_GROUP, x += X_GROUP_BYTES, w += W_GROUP_BYTES)
        tile_group(totals, x, w, num_tokens);
#pragma GCC unroll 16
    for (int t = 0; t < num_tokens; t++)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            float *sum = out + t * out_stride + j * LANES;
            vec_store(sum, accumulate ? (vec)(totals[t][j] + vec_load(sum)) : totals[t][j]);
        }
}

static void byte_tile(const struct cpu_tile_args *a, float *out, const uint8_t *w)
{
    switch (a->num_tokens) {
#define TILE_CASE(n)                                                                                                   \
    case n:                                                                                                            \
        byte_tile_of(out, a->out_stride, a->x, w, a->depth, n, a->accumulate);                                         \
        break;
        EACH_TO_6(TILE_CASE)
#undef TILE_CASE
    default:
        break;
    }
}

static void multiply_byte_tiles(const struct cpu_tile_args *a)
{
    const int64_t tile_bytes = (a->depth + CPU_X_GROUP - 1) / CPU_X_GROUP * W_GROUP_BYTES; /* of a tile's weights */
    for (int64_t n = 0; n < a->num_features; n += BYTE_TILE_FEATURES)
        byte_tile(a, a->out + n, a->weights + n / BYTE_TILE_FEATURES * tile_bytes);
}

const struct cpu_tiles ISA(cpu_tiles) = {
    .kind = CPU_TILES_INT8,
    .tile_tokens = BYTE_TILE_TOKENS,
    .tile_features = BYTE_TILE_FEATURES,
    .group = CPU_X_GROUP,
    .x_group_bytes = X_BYTES,
    .w_group_bytes = W_BYTES,
    .pack_x = pack_x,
    .pack_w = pack_w,
    .multiply = multiply_byte_tiles,
};

#endif
