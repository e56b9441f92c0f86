/* A vector of floats, as wide as the registers of the instruction set that the including file is compiled for. `vec` is
 * a vector type of GCC and Clang: + - * / work on each lane, and & | on the bits of `bytes` and `half`.
 *
 *   vec      LANES floats
 *   bytes    a register of integers: 4 * LANES bytes, or LANES int32
 *   half     half of that: LANES elements of 16 bits */
#ifndef QUIRE_KERNELS_CPU_VECTOR_H
#define QUIRE_KERNELS_CPU_VECTOR_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define VECTOR static inline __attribute__((always_inline))

/* f(1) to f(N). A macro, since a function cannot make a constant of its argument. */
#define EACH_TO_6(f) f(1) f(2) f(3) f(4) f(5) f(6)
#define EACH_TO_14(f) EACH_TO_6(f) f(7) f(8) f(9) f(10) f(11) f(12) f(13) f(14)

#ifdef __AVX512F__
#include "kernels/cpu/vector_avx512.h"
#else
#include "kernels/cpu/vector_avx2.h"
#endif

VECTOR vec vec_zero(void)
{
    return VEC(setzero_ps)();
}

/* Sets v[count] to zeros; count is a constant. */
VECTOR void vec_clear(vec *v, const int count)
{
#pragma GCC unroll 64
    for (int i = 0; i < count; i++) v[i] = vec_zero();
}

VECTOR vec vec_set(float f)
{
    return VEC(set1_ps)(f);
}

VECTOR vec vec_load(const float *p)
{
    return VEC(loadu_ps)(p);
}

VECTOR void vec_store(float *p, vec v)
{
    VEC(storeu_ps)(p, v);
}

/* a * b + c */
VECTOR vec vec_fma(vec a, vec b, vec c)
{
    return VEC(fmadd_ps)(a, b, c);
}

/* The second operand where either is NaN. */
VECTOR vec vec_max(vec a, vec b)
{
    return VEC(max_ps)(a, b);
}

VECTOR vec vec_min(vec a, vec b)
{
    return VEC(min_ps)(a, b);
}

/* ---- sums ---- */

VECTOR float vec_sum(vec v)
{
    const __m128 four = vec_sum_columns(v), two = four + _mm_movehl_ps(four, four);
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

VECTOR float vec_largest(vec v)
{
    const __m128 four = vec_largest_columns(v), two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/* In each 128 bits: the sums of a's, b's, c's and d's four lanes there. */
VECTOR vec vec_sum_quads(vec a, vec b, vec c, vec d)
{
    const vec ab = VEC(shuffle_ps)(a, b, 0x88) + VEC(shuffle_ps)(a, b, 0xdd);
    const vec cd = VEC(shuffle_ps)(c, d, 0x88) + VEC(shuffle_ps)(c, d, 0xdd);
    return VEC(shuffle_ps)(ab, cd, 0x88) + VEC(shuffle_ps)(ab, cd, 0xdd);
}

/* The sums of all lanes of a, b, c, d. */
VECTOR __m128 vec_sum4(vec a, vec b, vec c, vec d)
{
    return vec_sum_columns(vec_sum_quads(a, b, c, d));
}

/* The sums of each four lanes: LANES / 4 of a, then of b, c and d. */
VECTOR vec vec_sum_quads_ordered(vec a, vec b, vec c, vec d)
{
    return vec_transpose_quads(vec_sum_quads(a, b, c, d));
}

VECTOR void vec_transpose(vec v[LANES])
{
    vec pairs[LANES], quads[LANES];
#pragma GCC unroll 8
    for (int i = 0; i < LANES; i += 2) {
        pairs[i] = VEC(unpacklo_ps)(v[i], v[i + 1]);
        pairs[i + 1] = VEC(unpackhi_ps)(v[i], v[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < LANES; i += 4) {
        quads[i] = VEC(shuffle_ps)(pairs[i], pairs[i + 2], 0x44);
        quads[i + 1] = VEC(shuffle_ps)(pairs[i], pairs[i + 2], 0xee);
        quads[i + 2] = VEC(shuffle_ps)(pairs[i + 1], pairs[i + 3], 0x44);
        quads[i + 3] = VEC(shuffle_ps)(pairs[i + 1], pairs[i + 3], 0xee);
    }
    vec_transpose_columns(v, quads);
}

/* ---- from and to other types ---- */

VECTOR bytes bytes_load(const void *p)
{
    bytes v;
    memcpy(&v, p, sizeof v);
    return v;
}

VECTOR half half_load(const void *p)
{
    half v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* `count` bytes, 4, 8 or 16 (a constant). */
VECTOR __m128i few_bytes_load(const uint8_t *p, const int count)
{
    int32_t four;
    memcpy(&four, p, sizeof four);
    if (count == 4) return _mm_cvtsi32_si128(four);
    return count == 8 ? _mm_loadl_epi64((const __m128i *)p) : _mm_loadu_si128((const __m128i *)p);
}

/* LANES bytes as 16-bit elements. */
VECTOR half half_load_bytes(const uint8_t *p)
{
    return HALF(cvtepu8_epi16)(few_bytes_load(p, LANES));
}

VECTOR vec vec_load_fp16(const uint16_t *p)
{
    return VEC(cvtph_ps)(half_load(p));
}

VECTOR vec vec_load_bf16(const uint16_t *p)
{
    return (vec)VEC(slli_epi32)(VEC(cvtepu16_epi32)(half_load(p)), 16);
}

VECTOR vec vec_load_e5m2(const uint8_t *p)
{
    return VEC(cvtph_ps)(HALF(slli_epi16)(half_load_bytes(p), 8));
}

/* Does what fp8_e4m3_to_float does. */
VECTOR vec vec_load_e4m3(const uint8_t *p)
{
    const half wide = half_load_bytes(p), magnitude = wide & HALF(set1_epi16)(0x7f);
    const half sign = HALF(slli_epi16)(wide & HALF(set1_epi16)(0x80), 8);
    const half nan = HALF(cmpeq_epi16)(magnitude, HALF(set1_epi16)(0x7f)) & HALF(set1_epi16)(0x7fff);
    return VEC(cvtph_ps)(HALF(slli_epi16)(magnitude, 7) | sign | nan) * vec_set(256);
}

/* Does what e8m0_to_float does: the bits are the exponent of a float, but for 2^-127 and NaN. */
VECTOR vec vec_load_e8m0(const uint8_t *p)
{
    const bytes wide = VEC(cvtepu8_epi32)(few_bytes_load(p, LANES)), exponent = VEC(slli_epi32)(wide, 23);
    const bytes nan = VEC(slli_epi32)(VEC(srli_epi32)(VEC(add_epi32)(wide, VEC(set1_epi32)(1)), 8), 22);
    return (vec)VEC(add_epi32)(VEC(max_epi32)(exponent, VEC(set1_epi32)(1 << 22)), nan);
}

/* vec_load_e4m3 divided by 256, and 480 / 256 for NaN: for loops that leave both to their end. */
VECTOR vec vec_load_small_e4m3(const uint8_t *p)
{
    const half upper = HALF(slli_epi16)(half_load_bytes(p), 8);
    return VEC(cvtph_ps)(HALF(srai_epi16)(upper, 1) & HALF(set1_epi16)((short)0xbf80));
}

VECTOR vec vec_load_int8(const uint8_t *p)
{
    return VEC(cvtepi32_ps)(VEC(cvtepi8_epi32)(few_bytes_load(p, LANES)));
}

/* LANES halves of bytes, the low one first, as bytes. */
VECTOR __m128i load_halves(const uint8_t *p)
{
    const __m128i wide = _mm_cvtepu8_epi16(few_bytes_load(p, LANES / 2));
    return (wide | _mm_slli_epi16(wide, 4)) & _mm_set1_epi8(15);
}

/* The same as numbers from 0 to 15. */
VECTOR vec vec_load_int4(const uint8_t *p)
{
    return VEC(cvtepi32_ps)(VEC(cvtepu8_epi32)(load_halves(p)));
}

/* Twice what each e2m1 stands for, + zero: whole numbers. A table for shuffles of bytes. */
VECTOR __m128i e2m1_table(int zero)
{
    const __m128i twice = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    return _mm_add_epi8(twice, _mm_set1_epi8((char)zero));
}

/* LANES e2m1, doubled. */
VECTOR vec vec_load_e2m1(const uint8_t *p)
{
    return VEC(cvtepi32_ps)(VEC(cvtepi8_epi32)(_mm_shuffle_epi8(e2m1_table(0), load_halves(p))));
}

VECTOR vec vec_from_int32(bytes v)
{
    return VEC(cvtepi32_ps)(v);
}

VECTOR void vec_store_fp16(uint16_t *p, vec v)
{
    const half rounded = VEC(cvtps_ph)(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    memcpy(p, &rounded, sizeof rounded);
}

/* Does what float_to_bf16 does. */
VECTOR void vec_store_bf16(uint16_t *p, vec v)
{
    const bytes bits = (bytes)v, upper = VEC(srli_epi32)(bits, 16), odd = upper & VEC(set1_epi32)(1);
    const bytes sum = VEC(add_epi32)(VEC(add_epi32)(bits, VEC(set1_epi32)(0x7fff)), odd);
    const half rounded = vec_narrow(VEC(srli_epi32)(sum, 16), upper | VEC(set1_epi32)(0x40), v);
    memcpy(p, &rounded, sizeof rounded);
}

/* ---- bytes ---- */

VECTOR bytes bytes_low_halves(bytes v)
{
    return v & VEC(set1_epi8)(15);
}

VECTOR bytes bytes_high_halves(bytes v)
{
    return bytes_low_halves(VEC(srli_epi16)(v, 4));
}

/* Each of them, from 0 to 15, as the number of e2m1_table(zero). */
VECTOR bytes bytes_from_e2m1(bytes halves, int zero)
{
    return VEC(shuffle_epi8)(bytes_repeat(e2m1_table(zero)), halves);
}

/* Whether one of them is NaN. */
VECTOR bool bytes_nan_e4m3(bytes v)
{
    return bytes_any_ones(v | VEC(set1_epi8)(-128));
}

/* dot_halves: sums, of 32 bits, + low * x_low + high * x_high, of each four bytes. low and high are at most 24, x is
 * signed. dot_bytes: sums + (w + INT8_ZERO) * x, of each four bytes, both signed and x not -128. */
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

VECTOR bytes add_pairs(bytes sums, bytes pairs)
{
    return VEC(add_epi32)(sums, VEC(madd_epi16)(pairs, VEC(set1_epi16)(1)));
}

VECTOR bytes dot_halves(bytes sums, bytes low, bytes high, bytes x_low, bytes x_high)
{
    return add_pairs(sums, VEC(add_epi16)(VEC(maddubs_epi16)(low, x_low), VEC(maddubs_epi16)(high, x_high)));
}

/* The products of unsigned with signed bytes must not exceed 16 bits in pairs, so the sign goes to x. */
VECTOR bytes dot_bytes(bytes sums, bytes w, bytes x)
{
    return add_pairs(sums, VEC(maddubs_epi16)(VEC(abs_epi8)(w), bytes_apply_sign(x, w)));
}
#endif

#endif
