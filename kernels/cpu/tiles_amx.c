/* Matmuls of many tokens with bfloat16 weights, in the tile registers of AMX: sixteen rows of 64 bytes. A tile product
 * adds 16 tokens x 32 input features times 32 input features x 16 output features. */
#include "kernels/cpu/kernels.h"

#if QUIRE_X86

#include "kernels/cpu/vector.h"

enum {
    ROWS = 16,              /* of a register */
    DEPTH = 32,             /* input features of a tile product */
    TILE_BYTES = ROWS * 64, /* of a register */
    PARTS = 3,              /* bfloat16 parts whose sum is a float32 */
    AMX_TOKENS = 2 * ROWS,  /* 2 x 2 registers of sums, 2 of x and 2 of weights */
    AMX_FEATURES = 2 * ROWS,
    X_BYTES = 2 * TILE_BYTES, /* of a group of a part of x, */
    W_BYTES = 2 * TILE_BYTES, /* of a group of the weights */
    NEXT_PANEL = 512          /* bytes of a row ahead to prefetch: the input features that are packed next */
};

/* The operand of ldtilecfg: rows and bytes of a row of each register. */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Registers 0 to 3 hold the sums, 4 and 5 x, 6 and 7 the weights. With up to ROWS tokens 2, 3 and 5 are not used. */
static void configure(int num_tokens)
{
    struct tile_config config = {.palette = 1};
    const uint8_t first = (uint8_t)(num_tokens < ROWS ? num_tokens : ROWS), second = (uint8_t)(num_tokens - first);
    const uint8_t rows[] = {first, first, second, second, first, second, ROWS, ROWS};
    for (int i = 0; i < 8; i++) {
        config.rows[i] = rows[i];
        config.row_bytes[i] = rows[i] ? 64 : 0;
    }
    _tile_loadconfig(&config);
}

/* Bits of the first `count` of 32 elements. */
VECTOR __mmask32 first_bits(int64_t count)
{
    return count >= 32 ? 0xffffffff : (1u << count) - 1;
}

/* Two vectors of floats as 32 bfloat16, rounded to nearest; they keep what that leaves: 0 of what is not finite. */
VECTOR __m512i take_part(vec v[2])
{
    enum { NOT_FINITE = 0x99 };
    const __m512i part = (__m512i)_mm512_cvtne2ps_pbh(v[1], v[0]);
    const __m256i halves[] = {_mm512_castsi512_si256(part), _mm512_extracti64x4_epi64(part, 1)};
    for (int i = 0; i < 2; i++) {
        const vec near = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves[i]), 16));
        v[i] = _mm512_maskz_sub_ps(~_mm512_fpclass_ps_mask(near, NOT_FINITE), v[i], near);
    }
    return part;
}

static void pack_x_float32(uint8_t *out, const void *x, enum dtype dtype, int64_t stride, int num_tokens, int64_t depth)
{
    (void)dtype;
    for (int64_t k = 0; k < depth; k += DEPTH, out += PARTS * X_BYTES)
        for (int t = 0; t < num_tokens; t++) {
            const float *row = (const float *)x + t * stride + k;
            const __mmask32 mask = first_bits(depth - k);
            vec v[] = {_mm512_maskz_loadu_ps((__mmask16)mask, row),
                       _mm512_maskz_loadu_ps((__mmask16)(mask >> 16), row + LANES)};
            for (int p = 0; p < PARTS; p++) _mm512_storeu_si512(out + p * X_BYTES + t * 64, take_part(v));
        }
}

static void pack_x_bfloat16(uint8_t *out, const void *x, enum dtype dtype, int64_t stride, int num_tokens,
                            int64_t depth)
{
    (void)dtype;
    for (int64_t k = 0; k < depth; k += DEPTH, out += X_BYTES)
        for (int t = 0; t < num_tokens; t++)
            _mm512_storeu_si512(out + t * 64,
                                _mm512_maskz_loadu_epi16(first_bits(depth - k), (const uint16_t *)x + t * stride + k));
}

/* Transposes pairs of input features of ROWS output features; those from `count` on are 0. */
VECTOR void pack_register(uint8_t *out, const uint16_t *w, int64_t stride, int count, int64_t depth)
{
    vec v[ROWS];
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; i++) {
        v[i] = vec_zero();
        if (i >= count) continue;
        __builtin_prefetch((const uint8_t *)(w + i * stride) + NEXT_PANEL);
        v[i] = _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(first_bits(depth), w + i * stride));
    }
    vec_transpose(v);
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; i++) vec_store((float *)(out + i * 64), v[i]);
}

static void pack_w(uint8_t *out, const struct weight *weight, int64_t first, int count, int64_t start, int64_t depth)
{
    const int64_t stride = weight->in_features;
    const uint16_t *w = (const uint16_t *)weight->data + first * stride + start;
    for (int64_t k = 0; k < depth; k += DEPTH)
        for (int i = 0; i < AMX_FEATURES; i += ROWS, out += TILE_BYTES)
            pack_register(out, w + i * stride + k, stride, count - i, depth - k);
}

/* Sums of AMX_FEATURES in the registers that are configured; is_tall: of more than ROWS tokens. */
VECTOR void tile_of(const struct cpu_tile_args *a, float *out, const uint8_t *w, const int parts, const bool is_tall)
{
    const size_t out_bytes = (size_t)a->out_stride * sizeof *out;
    float *second = out + ROWS * a->out_stride;
    const uint8_t *x = a->x;
    if (a->accumulate) {
        _tile_loadd(0, out, out_bytes);
        _tile_loadd(1, out + ROWS, out_bytes);
        if (is_tall) _tile_loadd(2, second, out_bytes);
        if (is_tall) _tile_loadd(3, second + ROWS, out_bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        if (is_tall) _tile_zero(2);
        if (is_tall) _tile_zero(3);
    }
    for (int64_t k = 0; k < a->depth; k += DEPTH, w += W_BYTES) {
        _tile_loadd(6, w, 64);
        _tile_loadd(7, w + TILE_BYTES, 64);
        for (int p = 0; p < parts; p++, x += X_BYTES) {
            _tile_loadd(4, x, 64);
            if (is_tall) _tile_loadd(5, x + TILE_BYTES, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            if (is_tall) _tile_dpbf16ps(2, 5, 6);
            if (is_tall) _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, out, out_bytes);
    _tile_stored(1, out + ROWS, out_bytes);
    if (is_tall) _tile_stored(2, second, out_bytes);
    if (is_tall) _tile_stored(3, second + ROWS, out_bytes);
}

VECTOR void multiply_parts(const struct cpu_tile_args *a, const int parts)
{
    const int64_t groups = (a->depth + DEPTH - 1) / DEPTH;
    const uint8_t *w = a->weights;
    configure(a->num_tokens);
    for (int64_t n = 0; n < a->num_features; n += AMX_FEATURES, w += groups * W_BYTES) {
        if (a->num_tokens > ROWS) {
            tile_of(a, a->out + n, w, parts, true);
        } else {
            tile_of(a, a->out + n, w, parts, false);
        }
    }
    _tile_release();
}

static void multiply_float32(const struct cpu_tile_args *args)
{
    multiply_parts(args, PARTS);
}

static void multiply_bfloat16(const struct cpu_tile_args *args)
{
    multiply_parts(args, 1);
}

const struct cpu_tiles cpu_tiles_amx = {
    .kind = CPU_TILES_BF16,
    .tile_tokens = AMX_TOKENS,
    .tile_features = AMX_FEATURES,
    .group = DEPTH,
    .x_group_bytes = PARTS * DEPTH * (int)sizeof(uint16_t),
    .w_group_bytes = DEPTH * (int)sizeof(uint16_t),
    .pack_x = pack_x_float32,
    .pack_w = pack_w,
    .multiply = multiply_float32,
};

const struct cpu_tiles cpu_tiles_amx_bfloat16 = {
    .kind = CPU_TILES_BF16_X,
    .tile_tokens = AMX_TOKENS,
    .tile_features = AMX_FEATURES,
    .group = DEPTH,
    .x_group_bytes = DEPTH * (int)sizeof(uint16_t),
    .w_group_bytes = DEPTH * (int)sizeof(uint16_t),
    .pack_x = pack_x_bfloat16,
    .pack_w = pack_w,
    .multiply = multiply_bfloat16,
};

#endif
