/* Eight floats in a register: AVX2, FMA, F16C. The functions have the names of those in vector_avx512.h, so that the
 * loops of vector_*.h serve both. Included only by files that are compiled for these instructions. */
#ifndef QUIRE_KERNELS_CPU_VECTOR_AVX2_H
#define QUIRE_KERNELS_CPU_VECTOR_AVX2_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define VECTOR static inline __attribute__((always_inline))

typedef __m256 vec;

enum {
    LANES = 8,
    TILE_TOKENS = 6, /* of a matmul's tile: 12 sums, 2 vectors of weights and 1 of x in 16 registers */
    DOT_X = 3,       /* tokens against 4 output features: 12 sums, 3 vectors of x and 1 of weights */
    FP8_X = 11,      /* tokens of FP8 against 2 output features: decoding takes longer than spilling some sums */
    ATTENTION_X = 2  /* query rows against 4 vectors of keys or values */
};

VECTOR vec vec_zero(void)
{
    return _mm256_setzero_ps();
}

VECTOR vec vec_set(float f)
{
    return _mm256_set1_ps(f);
}

VECTOR vec vec_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

VECTOR void vec_store(float *p, vec v)
{
    _mm256_storeu_ps(p, v);
}

/* The first `count` lanes, 1 .. LANES. A masked store is dozens of instructions inside of a Zen 3. */
VECTOR void vec_store_first(float *p, vec v, int count)
{
    if (count == LANES) {
        vec_store(p, v);
    } else {
        __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        _mm256_maskstore_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32(count), index), v);
    }
}

VECTOR vec vec_add(vec a, vec b)
{
    return _mm256_add_ps(a, b);
}

VECTOR vec vec_subtract(vec a, vec b)
{
    return _mm256_sub_ps(a, b);
}

VECTOR vec vec_multiply(vec a, vec b)
{
    return _mm256_mul_ps(a, b);
}

VECTOR vec vec_divide(vec a, vec b)
{
    return _mm256_div_ps(a, b);
}

/* a * b + c */
VECTOR vec vec_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* The second operand where either is NaN. */
VECTOR vec vec_max(vec a, vec b)
{
    return _mm256_max_ps(a, b);
}

VECTOR vec vec_min(vec a, vec b)
{
    return _mm256_min_ps(a, b);
}

VECTOR vec vec_round(vec v)
{
    return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* v * 2^n for whole n in [-126, 128] */
VECTOR vec vec_scale_exponent(vec v, vec n)
{
    __m256i bits = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(v, _mm256_castsi256_ps(_mm256_slli_epi32(bits, 23)));
}

/* v, or 0 where x < limit */
VECTOR vec vec_zero_below(vec v, vec x, vec limit)
{
    return _mm256_andnot_ps(_mm256_cmp_ps(x, limit, _CMP_LT_OQ), v);
}

VECTOR vec vec_load_bf16(const uint16_t *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

VECTOR vec vec_load_fp16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

VECTOR vec vec_load_e5m2(const uint8_t *p)
{
    __m128i wide = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)p));
    return _mm256_cvtph_ps(_mm_slli_epi16(wide, 8));
}

/* As fp8_e4m3_to_float in fp8.h. */
VECTOR vec vec_load_e4m3(const uint8_t *p)
{
    __m128i wide = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)p));
    __m128i magnitude = _mm_and_si128(wide, _mm_set1_epi16(0x7f));
    __m128i sign = _mm_slli_epi16(_mm_and_si128(wide, _mm_set1_epi16(0x80)), 8);
    __m128i nan = _mm_and_si128(_mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x7f)), _mm_set1_epi16(0x7fff));
    __m128i half = _mm_or_si128(_mm_or_si128(_mm_slli_epi16(magnitude, 7), sign), nan);
    return _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256));
}

VECTOR void vec_store_fp16(uint16_t *p, vec v)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* As float_to_bf16 in dtype.h. */
VECTOR void vec_store_bf16(uint16_t *p, vec v)
{
    __m256i bits = _mm256_castps_si256(v), upper = _mm256_srli_epi32(bits, 16);
    __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    rounded = _mm256_blendv_epi8(rounded, _mm256_or_si256(upper, _mm256_set1_epi32(0x40)), nan);
    __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(rounded, rounded), 0x08);
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(packed));
}

/* Four floats, repeated. */
VECTOR vec vec_repeat4(const float *p)
{
    return _mm256_broadcast_ps((const __m128 *)p);
}

/* Eight floats, repeated. */
VECTOR vec vec_repeat8(const float *p)
{
    return _mm256_loadu_ps(p);
}

VECTOR float vec_sum(vec v)
{
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

VECTOR float vec_largest(vec v)
{
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/* In each 128 bits: the sums of a's, b's, c's and d's four lanes there. */
VECTOR vec vec_sum_quads(vec a, vec b, vec c, vec d)
{
    return _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
}

/* The sums of all lanes of a, b, c, d. */
VECTOR __m128 vec_sum4(vec a, vec b, vec c, vec d)
{
    vec quads = vec_sum_quads(a, b, c, d);
    return _mm_add_ps(_mm256_castps256_ps128(quads), _mm256_extractf128_ps(quads, 1));
}

/* The sums of each four lanes: LANES / 4 of a, then of b, c and d. */
VECTOR vec vec_sum_quads_ordered(vec a, vec b, vec c, vec d)
{
    return _mm256_permutevar8x32_ps(vec_sum_quads(a, b, c, d), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* ---- bytes: as many as fit into a vector ---- */

typedef __m256i bytes;

VECTOR bytes bytes_load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* The first `count` bytes, at most a vector, and zeros. */
VECTOR bytes bytes_load_first(const void *p, int64_t count)
{
    uint8_t first[sizeof(bytes)] = {0};
    memcpy(first, p, (size_t)count);
    return bytes_load(first);
}

VECTOR bytes bytes_low_halves(bytes v)
{
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}

VECTOR bytes bytes_high_halves(bytes v)
{
    return _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(15));
}

/* Whether one of them is NaN. */
VECTOR bool bytes_nan_e4m3(bytes v)
{
    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_or_si256(v, _mm256_set1_epi8(-128)), _mm256_set1_epi8(-1))) !=
           0;
}

VECTOR vec vec_from_int32(bytes v)
{
    return _mm256_cvtepi32_ps(v);
}

/* As vec_load_e4m3, divided by 256, and with 480 / 256 for NaN: for loops that leave both to their end. */
VECTOR vec vec_load_small_e4m3(const uint8_t *p)
{
    __m128i upper = _mm_slli_epi16(_mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)p)), 8);
    return _mm256_cvtph_ps(_mm_and_si128(_mm_srai_epi16(upper, 1), _mm_set1_epi16((short)0xbf80)));
}

VECTOR vec vec_load_int8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

/* LANES halves of bytes, the low one first, as numbers from 0 to 15. */
VECTOR vec vec_load_int4(const uint8_t *p)
{
    int32_t four;
    memcpy(&four, p, sizeof four);
    __m128i wide = _mm_cvtepu8_epi16(_mm_cvtsi32_si128(four));
    __m128i halves = _mm_and_si128(_mm_or_si128(wide, _mm_slli_epi16(wide, 4)), _mm_set1_epi8(15));
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(halves));
}

/* `count` scales, 2 or 4, each repeated LANES / count times. (4 with AVX-512 only.) */
VECTOR vec vec_repeat_scales(const float *scales, int count)
{
    (void)count;
    const __m256 pair = _mm256_castsi256_ps(_mm256_castsi128_si256(_mm_loadl_epi64((const __m128i *)scales)));
    return _mm256_permutevar8x32_ps(pair, _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
}

/* dot_bytes takes w + INT8_ZERO as unsigned numbers. */
enum { INT8_ZERO = 0 };

/* sums, of 32 bits, += low * x_low + high * x_high, of each four bytes. low and high are at most 15, x is signed. */
VECTOR bytes dot_halves(bytes sums, bytes low, bytes high, bytes x_low, bytes x_high)
{
    bytes pairs = _mm256_add_epi16(_mm256_maddubs_epi16(low, x_low), _mm256_maddubs_epi16(high, x_high));
    return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

/* sums += (w + INT8_ZERO) * x, of each four bytes, both signed and x not -128. The products of unsigned with signed
 * bytes must not exceed 16 bits in pairs, so the sign goes to x. */
VECTOR bytes dot_bytes(bytes sums, bytes w, bytes x)
{
    bytes pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

VECTOR void vec_transpose(vec v[LANES])
{
    vec pairs[8], fours[8];
    for (int i = 0; i < 4; i++) {
        pairs[2 * i] = _mm256_unpacklo_ps(v[2 * i], v[2 * i + 1]);
        pairs[2 * i + 1] = _mm256_unpackhi_ps(v[2 * i], v[2 * i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        fours[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
        fours[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
        fours[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
        fours[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20);
        v[i + 4] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31);
    }
}

#endif
