/* Eight floats in a register: AVX2, FMA, F16C. These are the primitives of vector.h in which instruction sets differ:
 * vector_avx512.h has the same. Included only by vector.h. */
#ifndef QUIRE_KERNELS_CPU_VECTOR_AVX2_H
#define QUIRE_KERNELS_CPU_VECTOR_AVX2_H

typedef __m256 vec;
typedef __m256i bytes;
typedef __m128i half;

/* The intrinsic of that name for a vector, and for half of one. */
#define VEC(name) _mm256_##name
#define HALF(name) _mm_##name

#define ISA(name) name##_avx2      /* of a table */
#define EACH_TILE_TOKENS EACH_TO_6 /* to TILE_TOKENS */

enum {
    LANES = 8,
    TILE_TOKENS = 6, /* of a matmul's tile: 12 sums, 2 vectors of weights and 1 of x in 16 registers */
    DOT_X = 3,       /* tokens against 4 output features: 12 sums, 3 vectors of x and 1 of weights */
    FP8_X = 11,      /* tokens of FP8 against 2 output features: decoding takes longer than spilling some sums */
    ATTENTION_X = 2  /* query rows against 4 vectors of keys or values */
};

/* Stores the first `count` lanes, 1 .. LANES. A masked store is dozens of instructions inside of a Zen 3. */
VECTOR void vec_store_first(float *p, vec v, int count)
{
    if (count == LANES) {
        _mm256_storeu_ps(p, v);
    } else {
        __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        _mm256_maskstore_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32(count), index), v);
    }
}

/* The first `count` floats, 1 .. LANES, and zeros. */
VECTOR vec vec_load_first(const float *p, int count)
{
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32(count), index));
}

VECTOR vec vec_round(vec v)
{
    return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* v * 2^n for whole n in [-126, 128] */
VECTOR vec vec_scale_exponent(vec v, vec n)
{
    __m256i bits = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return v * _mm256_castsi256_ps(_mm256_slli_epi32(bits, 23));
}

/* v, or 0 where x < limit */
VECTOR vec vec_zero_below(vec v, vec x, vec limit)
{
    return _mm256_andnot_ps(_mm256_cmp_ps(x, limit, _CMP_LT_OQ), v);
}

/* The lower halves of `bits`, or of `nan` where v is NaN. */
VECTOR half vec_narrow(bytes bits, bytes nan, vec v)
{
    bits = _mm256_blendv_epi8(bits, nan, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(bits, bits), 0x08));
}

/* `count` floats, 4 or 8 (a constant), repeated. */
VECTOR vec vec_repeat(const float *p, const int count)
{
    return count == 4 ? _mm256_broadcast_ps((const __m128 *)p) : _mm256_loadu_ps(p);
}

/* `count` scales, 2 or 4, each repeated LANES / count times. (4 with AVX-512 only.) */
VECTOR vec vec_repeat_scales(const float *scales, int count)
{
    (void)count;
    const __m256 pair = _mm256_castsi256_ps(_mm256_castsi128_si256(_mm_loadl_epi64((const __m128i *)scales)));
    return _mm256_permutevar8x32_ps(pair, _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
}

/* Lanes i, 4 + i, 8 + i ... summed, and the largest of them. */
VECTOR __m128 vec_sum_columns(vec v)
{
    return _mm256_castps256_ps128(v) + _mm256_extractf128_ps(v, 1);
}

VECTOR __m128 vec_largest_columns(vec v)
{
    return _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
}

/* Lanes 0, 4, 8 ..., then 1, 5, 9 ..., 2, 6, 10 ... and 3, 7, 11 ... */
VECTOR vec vec_transpose_quads(vec v)
{
    return _mm256_permutevar8x32_ps(v, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* The last step of vec_transpose: quads[4 i + j] has columns j, 4 + j, 8 + j ... of rows 4 i to 4 i + 3. */
VECTOR void vec_transpose_columns(vec out[LANES], const vec quads[LANES])
{
    for (int j = 0; j < 4; j++) {
        out[j] = _mm256_permute2f128_ps(quads[j], quads[4 + j], 0x20);
        out[4 + j] = _mm256_permute2f128_ps(quads[j], quads[4 + j], 0x31);
    }
}

/* 16 bytes, repeated. */
VECTOR bytes bytes_repeat(__m128i v)
{
    return _mm256_broadcastsi128_si256(v);
}

/* The first `count` bytes, at most a vector, and zeros. */
VECTOR bytes bytes_load_first(const void *p, int64_t count)
{
    uint8_t first[sizeof(bytes)] = {0};
    memcpy(first, p, (size_t)count);
    return _mm256_loadu_si256((const __m256i *)first);
}

/* Whether one of them has all bits set. */
VECTOR bool bytes_any_ones(bytes v)
{
    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(v, _mm256_set1_epi8(-1))) != 0;
}

/* x, with its sign changed where w is negative; where w is 0, it may be 0. */
VECTOR bytes bytes_apply_sign(bytes x, bytes w)
{
    return _mm256_sign_epi8(x, w);
}

#endif
