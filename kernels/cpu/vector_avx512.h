/* Sixteen floats in a register: AVX-512 F, BW, DQ, VL. vector_avx2.h explains the primitives. Included only by
 * vector.h. */
#ifndef QUIRE_KERNELS_CPU_VECTOR_AVX512_H
#define QUIRE_KERNELS_CPU_VECTOR_AVX512_H

typedef __m512 vec;
typedef __m512i bytes;
typedef __m256i half;

#define VEC(name) _mm512_##name
#define HALF(name) _mm256_##name

#define EACH_TILE_TOKENS EACH_TO_14
#ifdef __AVX512VNNI__
#define ISA(name) name##_avx512vnni
#else
#define ISA(name) name##_avx512
#endif

enum {
    LANES = 16,
    TILE_TOKENS = 14, /* 28 sums, 2 vectors of weights and 1 of x in 32 registers */
    DOT_X = 4,
    FP8_X = 4,
    ATTENTION_X = 4
};

VECTOR void vec_store_first(float *p, vec v, int count)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << count) - 1), v);
}

VECTOR vec vec_load_first(const float *p, int count)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), p);
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

VECTOR half vec_narrow(bytes bits, bytes nan, vec v)
{
    return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(bits, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), nan));
}

VECTOR vec vec_repeat(const float *p, const int count)
{
    return count == 4 ? _mm512_broadcast_f32x4(_mm_loadu_ps(p)) : _mm512_broadcast_f32x8(_mm256_loadu_ps(p));
}

VECTOR vec vec_repeat_scales(const float *scales, int count)
{
    const __m512i quads = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const __m512i halves = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m128i pair = _mm_loadl_epi64((const __m128i *)scales);
    if (count == 4) return _mm512_permutexvar_ps(quads, _mm512_castps128_ps512(_mm_loadu_ps(scales)));
    return _mm512_permutexvar_ps(halves, _mm512_castps128_ps512(_mm_castsi128_ps(pair)));
}

VECTOR __m128 vec_sum_columns(vec v)
{
    const __m256 pairs = _mm512_extractf32x8_ps(v, 0) + _mm512_extractf32x8_ps(v, 1);
    return _mm256_extractf128_ps(pairs, 0) + _mm256_extractf128_ps(pairs, 1);
}

VECTOR __m128 vec_largest_columns(vec v)
{
    const __m256 pairs = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    return _mm_max_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1));
}

VECTOR vec vec_transpose_quads(vec v)
{
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), v);
}

VECTOR void vec_transpose_columns(vec out[LANES], const vec quads[LANES])
{
    for (int j = 0; j < 4; j++) {
        const vec low = _mm512_shuffle_f32x4(quads[j], quads[4 + j], 0x88);
        const vec high = _mm512_shuffle_f32x4(quads[j], quads[4 + j], 0xdd);
        const vec low2 = _mm512_shuffle_f32x4(quads[8 + j], quads[12 + j], 0x88);
        const vec high2 = _mm512_shuffle_f32x4(quads[8 + j], quads[12 + j], 0xdd);
        out[j] = _mm512_shuffle_f32x4(low, low2, 0x88);
        out[4 + j] = _mm512_shuffle_f32x4(high, high2, 0x88);
        out[8 + j] = _mm512_shuffle_f32x4(low, low2, 0xdd);
        out[12 + j] = _mm512_shuffle_f32x4(high, high2, 0xdd);
    }
}

VECTOR bytes bytes_repeat(__m128i v)
{
    return _mm512_broadcast_i32x4(v);
}

VECTOR bytes bytes_load_first(const void *p, int64_t count)
{
    return _mm512_maskz_loadu_epi8(_bzhi_u64(-1, (unsigned)count), p);
}

VECTOR bool bytes_any_ones(bytes v)
{
    return _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8(-1)) != 0;
}

VECTOR bytes bytes_apply_sign(bytes x, bytes w)
{
    return _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x);
}

#endif
