/* Sixteen floats in a register: AVX-512 F, BW, DQ, VL. The same names as vector_avx2.h, where they are explained. */
#ifndef QUIRE_KERNELS_CPU_VECTOR_AVX512_H
#define QUIRE_KERNELS_CPU_VECTOR_AVX512_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define VECTOR static inline __attribute__((always_inline))

typedef __m512 vec;

enum {
    LANES = 16,
    TILE_TOKENS = 14, /* 28 sums, 2 vectors of weights and 1 of x in 32 registers */
    DOT_X = 4,
    FP8_X = 4,
    ATTENTION_X = 4
};

VECTOR vec vec_zero(void)
{
    return _mm512_setzero_ps();
}

VECTOR vec vec_set(float f)
{
    return _mm512_set1_ps(f);
}

VECTOR vec vec_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

VECTOR void vec_store(float *p, vec v)
{
    _mm512_storeu_ps(p, v);
}

VECTOR void vec_store_first(float *p, vec v, int count)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << count) - 1), v);
}

VECTOR vec vec_add(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}

VECTOR vec vec_subtract(vec a, vec b)
{
    return _mm512_sub_ps(a, b);
}

VECTOR vec vec_multiply(vec a, vec b)
{
    return _mm512_mul_ps(a, b);
}

VECTOR vec vec_divide(vec a, vec b)
{
    return _mm512_div_ps(a, b);
}

VECTOR vec vec_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

VECTOR vec vec_max(vec a, vec b)
{
    return _mm512_max_ps(a, b);
}

VECTOR vec vec_min(vec a, vec b)
{
    return _mm512_min_ps(a, b);
}

VECTOR vec vec_round(vec v)
{
    return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

VECTOR vec vec_scale_exponent(vec v, vec n)
{
    return _mm512_scalef_ps(v, n);
}

VECTOR vec vec_zero_below(vec v, vec x, vec limit)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), v);
}

VECTOR vec vec_load_bf16(const uint16_t *p)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

VECTOR vec vec_load_fp16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

VECTOR vec vec_load_e5m2(const uint8_t *p)
{
    __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)p));
    return _mm512_cvtph_ps(_mm256_slli_epi16(wide, 8));
}

VECTOR vec vec_load_e4m3(const uint8_t *p)
{
    __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)p));
    __m256i magnitude = _mm256_and_si256(wide, _mm256_set1_epi16(0x7f));
    __m256i sign = _mm256_slli_epi16(_mm256_and_si256(wide, _mm256_set1_epi16(0x80)), 8);
    __m256i nan = _mm256_and_si256(_mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x7f)), _mm256_set1_epi16(0x7fff));
    __m256i half = _mm256_or_si256(_mm256_or_si256(_mm256_slli_epi16(magnitude, 7), sign), nan);
    return _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256));
}

VECTOR void vec_store_fp16(uint16_t *p, vec v)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

VECTOR void vec_store_bf16(uint16_t *p, vec v)
{
    __m512i bits = _mm512_castps_si512(v), upper = _mm512_srli_epi32(bits, 16);
    __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, nan, upper, _mm512_set1_epi32(0x40));
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(rounded));
}

VECTOR vec vec_repeat4(const float *p)
{
    return _mm512_broadcast_f32x4(_mm_loadu_ps(p));
}

VECTOR vec vec_repeat8(const float *p)
{
    return _mm512_broadcast_f32x8(_mm256_loadu_ps(p));
}

VECTOR float vec_sum(vec v)
{
    return _mm512_reduce_add_ps(v);
}

VECTOR float vec_largest(vec v)
{
    return _mm512_reduce_max_ps(v);
}

VECTOR vec vec_sum_quads(vec a, vec b, vec c, vec d)
{
    vec ab = _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
    vec cd = _mm512_add_ps(_mm512_shuffle_ps(c, d, 0x88), _mm512_shuffle_ps(c, d, 0xdd));
    return _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x88), _mm512_shuffle_ps(ab, cd, 0xdd));
}

VECTOR __m128 vec_sum4(vec a, vec b, vec c, vec d)
{
    vec quads = vec_sum_quads(a, b, c, d);
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(quads), _mm512_extractf32x8_ps(quads, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

VECTOR vec vec_sum_quads_ordered(vec a, vec b, vec c, vec d)
{
    __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_ps(order, vec_sum_quads(a, b, c, d));
}

/* ---- bytes ---- */

typedef __m512i bytes;

VECTOR bytes bytes_load(const void *p)
{
    return _mm512_loadu_si512(p);
}

VECTOR bytes bytes_load_first(const void *p, int64_t count)
{
    return _mm512_maskz_loadu_epi8(_bzhi_u64(-1, (unsigned)count), p);
}

VECTOR bytes bytes_low_halves(bytes v)
{
    return _mm512_and_si512(v, _mm512_set1_epi8(15));
}

VECTOR bytes bytes_high_halves(bytes v)
{
    return _mm512_and_si512(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(15));
}

VECTOR bool bytes_nan_e4m3(bytes v)
{
    return _mm512_cmpeq_epi8_mask(_mm512_or_si512(v, _mm512_set1_epi8(-128)), _mm512_set1_epi8(-1)) != 0;
}

VECTOR vec vec_from_int32(bytes v)
{
    return _mm512_cvtepi32_ps(v);
}

VECTOR vec vec_load_small_e4m3(const uint8_t *p)
{
    __m256i upper = _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)p)), 8);
    return _mm512_cvtph_ps(_mm256_and_si256(_mm256_srai_epi16(upper, 1), _mm256_set1_epi16((short)0xbf80)));
}

VECTOR vec vec_load_int8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

VECTOR vec vec_load_int4(const uint8_t *p)
{
    __m128i wide = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)p));
    __m128i halves = _mm_and_si128(_mm_or_si128(wide, _mm_slli_epi16(wide, 4)), _mm_set1_epi8(15));
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(halves));
}

VECTOR vec vec_repeat_scales(const float *scales, int count)
{
    const __m512i quads = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const __m512i halves = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m128i pair = _mm_loadl_epi64((const __m128i *)scales);
    if (count == 4) return _mm512_permutexvar_ps(quads, _mm512_castps128_ps512(_mm_loadu_ps(scales)));
    return _mm512_permutexvar_ps(halves, _mm512_castps128_ps512(_mm_castsi128_ps(pair)));
}

#ifdef __AVX512VNNI__
enum { INT8_ZERO = 128 };

VECTOR bytes dot_halves(bytes sums, bytes low, bytes high, bytes x_low, bytes x_high)
{
    return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(sums, low, x_low), high, x_high);
}

VECTOR bytes dot_bytes(bytes sums, bytes w, bytes x)
{
    return _mm512_dpbusd_epi32(sums, _mm512_xor_si512(w, _mm512_set1_epi8(-128)), x);
}
#else
enum { INT8_ZERO = 0 };

VECTOR bytes dot_halves(bytes sums, bytes low, bytes high, bytes x_low, bytes x_high)
{
    bytes pairs = _mm512_add_epi16(_mm512_maddubs_epi16(low, x_low), _mm512_maddubs_epi16(high, x_high));
    return _mm512_add_epi32(sums, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}

VECTOR bytes dot_bytes(bytes sums, bytes w, bytes x)
{
    bytes signed_x = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x);
    bytes pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(w), signed_x);
    return _mm512_add_epi32(sums, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}
#endif

VECTOR void vec_transpose(vec v[LANES])
{
    vec pairs[16], fours[16];
    for (int i = 0; i < 8; i++) {
        pairs[2 * i] = _mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]);
        pairs[2 * i + 1] = _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]);
    }
    for (int i = 0; i < 16; i += 4) { /* fours[i + j]: rows i .. i+3 of columns j, 4 + j, 8 + j, 12 + j */
        fours[i] = _mm512_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
        fours[i + 1] = _mm512_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
        fours[i + 2] = _mm512_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
        fours[i + 3] = _mm512_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
    }
    for (int j = 0; j < 4; j++) {
        vec low = _mm512_shuffle_f32x4(fours[j], fours[4 + j], 0x88);
        vec high = _mm512_shuffle_f32x4(fours[j], fours[4 + j], 0xdd);
        vec low2 = _mm512_shuffle_f32x4(fours[8 + j], fours[12 + j], 0x88);
        vec high2 = _mm512_shuffle_f32x4(fours[8 + j], fours[12 + j], 0xdd);
        v[j] = _mm512_shuffle_f32x4(low, low2, 0x88);
        v[4 + j] = _mm512_shuffle_f32x4(high, high2, 0x88);
        v[8 + j] = _mm512_shuffle_f32x4(low, low2, 0xdd);
        v[12 + j] = _mm512_shuffle_f32x4(high, high2, 0xdd);
    }
}

#endif
