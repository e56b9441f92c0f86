/* x of few_tokens_wgmma.cu: how a 16-bit float becomes two or three e4m3.
 *
 * x keeps its accuracy, because each element becomes two e4m3 numbers: x 2^k = high + low, where 2^k takes the largest
 * of 128 input features of a token to 128 or more. Both have four significant bits, so bfloat16 is exact, but for bits
 * that are 2^16 times smaller than that largest one. A step is 128 input features. In shared memory x has for each step
 * the rows of wgmma's second operand, in the 128-byte swizzle. It is copied to where its two rows are later:
 *
 *     step     row 0: token 0, high    row 1: token 0, low    row 2: token 1, high    ...
 *              (before: token 0, 128 elements of 16 bits)     (before: token 1)
 *
 * float16 has more significant bits than two e4m3, so such a token has two places: the rows of high and low, and a row
 * for what these leave, with a row of zeros. */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_FEW_TOKENS_E4M3_CUH
#define QUIRE_KERNELS_CUDA_MATMUL_FEW_TOKENS_E4M3_CUH

#include <cuda_fp8.h>
#include <type_traits>

#include "kernels/cuda/matmul/few_tokens_wgmma.h"
#include "kernels/cuda/matmul/split.cuh"
#include "kernels/cuda/state.cuh"
#include "kernels/cuda/warp.cuh"

enum {
    HALF_EXPONENT = 22, /* of a float16 from 128 to 255, with its bias */
    INT4_FACTOR = 512   /* of an integer, to the e4m3 with the same bits */
};

/* What belongs to a step: of a place the scale of its e4m3, and with INT4 the sum of x / INT4_FACTOR; of a row of the
 * weight a scale, and of INT4 the scale times the zero. */
template <enum weight_format FORMAT> using step_factors = std::conditional_t<FORMAT == WEIGHT_INT4, float2, float>;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

static __device__ __forceinline__ uint32_t to_e4m3(uint32_t pair)
{
    uint16_t out;
    asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(out) : "r"(pair));
    return out;
}

template <class G> static __device__ __forceinline__ void load_eight(float (&out)[8], const G *from)
{
    G values[8];
#pragma unroll
    for (int i = 0; i < (int)sizeof values / 16; i++) ((uint4 *)values)[i] = ((const uint4 *)from)[i];
#pragma unroll
    for (int i = 0; i < 8; i++) out[i] = to_float(values[i]);
}

/* Eight elements of x times their gains, rounded, and their squares before. */
static __device__ __forceinline__ uint4 apply_gains(uint4 words, const float (&gains)[8], float &square)
{
    uint32_t *w = (uint32_t *)&words;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float low = __uint_as_float(w[i] << 16), high = __uint_as_float(w[i] & 0xffff0000);
        const __nv_bfloat162 out = __floats2bfloat162_rn(low * gains[2 * i], high * gains[2 * i + 1]);
        square += low * low + high * high;
        w[i] = *(const uint32_t *)&out;
    }
    return words;
}

/* The exponents, with their bias, of the largest of 128 bfloat16, of which 16 lanes have eight each: of COUNT tokens.
 */
template <int COUNT>
static __device__ __forceinline__ void find_exponents(uint32_t (&exponents)[COUNT], const uint4 (&words)[COUNT])
{
    constexpr uint32_t SIZE = 0x7fff7fff;
#pragma unroll
    for (int t = 0; t < COUNT; t++)
        exponents[t] = __vimax3_s16x2(__vimax3_s16x2(words[t].x & SIZE, words[t].y & SIZE, words[t].z & SIZE),
                                      words[t].w & SIZE, 0);
#pragma unroll
    for (int offset = 8; offset > 0; offset /= 2)
#pragma unroll
        for (int t = 0; t < COUNT; t++)
            exponents[t] = __vimax3_s16x2(exponents[t], __shfl_xor_sync(~0u, exponents[t], offset), 0);
#pragma unroll
    for (int t = 0; t < COUNT; t++)
        exponents[t] = max(max(exponents[t] & 0xffff, exponents[t] >> 16) >> 7, (uint32_t)HALF_EXPONENT);
}

/* Makes two e4m3 of each of eight bfloat16. As float16 one with the exponent of the largest has the exponent 7, so it
 * is below 256, and what is lost is 2^16 times smaller. */
static __device__ __forceinline__ void split_eight(const uint4 &words, uint32_t exponent, uint2 &high, uint2 &low)
{
    const uint32_t *w = (const uint32_t *)&words;
    const uint32_t minus = ((HALF_EXPONENT - exponent) << 7 & 0xffff) * 0x10001;
    uint32_t h[4], l[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t half = __viaddmax_s16x2(w[i] & 0x7fff7fff, minus, 0) << 3 | (w[i] & 0x80008000);
        const uint32_t high_part = half & 0xff80ff80; /* an e4m3 has three bits of the fraction */
        h[i] = to_e4m3(high_part);
        const __half2 rest = __hsub2(*(const __half2 *)&half, *(const __half2 *)&high_part);
        l[i] = to_e4m3(*(const uint32_t *)&rest);
    }
    high = make_uint2(h[0] | h[1] << 16, h[2] | h[3] << 16);
    low = make_uint2(l[0] | l[1] << 16, l[2] | l[3] << 16);
}

/* The sum of eight elements. */
static __device__ __forceinline__ float sum_of_eight(const uint4 &words)
{
    const uint32_t *w = (const uint32_t *)&words;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) sum += __uint_as_float(w[i] << 16) + __uint_as_float(w[i] & 0xffff0000);
    return sum;
}

/* The sums of COUNT numbers over 16 lanes: lanes 16 / COUNT * i, ... have that of number i. */
template <int COUNT> static __device__ __forceinline__ float sum_of_lanes(float (&x)[COUNT])
{
#pragma unroll
    for (int offset = 8, count = COUNT; offset > 0; offset /= 2) {
        if (count == 1) {
            x[0] += __shfl_xor_sync(~0u, x[0], offset);
            continue;
        }
        count /= 2;
        const bool keeps_upper = threadIdx.x & offset;
#pragma unroll
        for (int i = 0; i < count; i++) {
            const float kept = keeps_upper ? x[count + i] : x[i], given = keeps_upper ? x[i] : x[count + i];
            x[i] = kept + __shfl_xor_sync(~0u, given, offset);
        }
    }
    return x[0];
}

/* INT4: of 32 input features, which four lanes have, those of wgmma's bytes 2 j and 2 j + 1 are from lanes 0 and 2, or
 * 1 and 3 (quantized.cuh). The first lane of such two gets their first eight bytes, the other one the rest. */
static __device__ __forceinline__ uint2 interleave(const uint2 &own)
{
    const bool is_second = threadIdx.x & 2;
    const uint32_t others = __shfl_xor_sync(~0u, is_second ? own.x : own.y, 2);
    const uint32_t even = is_second ? others : own.x, odd = is_second ? own.y : others;
    return make_uint2(__byte_perm(even, odd, 0x5140), __byte_perm(even, odd, 0x7362));
}

/* Which eight of a step's 128 bytes of x a lane has in the end. */
template <enum weight_format FORMAT> static __device__ __forceinline__ int piece_of_lane(int lane)
{
    return FORMAT == WEIGHT_INT4 ? (lane & 12) | (lane & 1) << 1 | (lane >> 1 & 1) : lane;
}

template <class F> static __device__ __forceinline__ void store_scale(F &factors, float scale)
{
    if constexpr (std::is_same_v<F, float2>) {
        factors.x = scale;
    } else {
        factors = scale;
    }
}

/* Stores the sums of a step of COUNT tokens. */
template <int COUNT> static __device__ __forceinline__ void store_sums(float2 *factors, const uint4 (&words)[COUNT])
{
    float sums[COUNT];
#pragma unroll
    for (int t = 0; t < COUNT; t++) sums[t] = sum_of_eight(words[t]);
    const float sum = sum_of_lanes(sums);
    if (threadIdx.x % (16 / COUNT) == 0) factors[threadIdx.x % 16 / (16 / COUNT)].y = sum * (1.0f / INT4_FACTOR);
}

/* Where a lane has x: of a step, and which eight of the step's 128 bytes it has in the end. */
struct x_lane {
    int lane, half_warp, piece;
};

template <enum weight_format FORMAT> static __device__ __forceinline__ x_lane find_lane()
{
    const int lane = threadIdx.x % 16;
    return {lane, (int)threadIdx.x / 16, piece_of_lane<FORMAT>(lane)};
}

/* Loads the gains of a lane's eight elements of a step, unless they are behind the last input feature. */
template <class T>
static __device__ __forceinline__ void load_gains(float (&out)[8], const matmul &m, const uint8_t *gain, int feature)
{
    if (feature >= m.in_features) return;
    if (m.gain_is_float) {
        load_eight(out, (const float *)gain + feature);
    } else {
        load_eight(out, (const T *)gain + feature);
    }
}

/* Stores eight bytes of row i of a step's rows of x. */
static __device__ __forceinline__ void store_piece(uint8_t *rows, int i, int piece, uint2 bytes)
{
    *(uint2 *)(rows + i * STEP + (piece / 2 ^ i % 8) * 16 + piece % 2 * 8) = bytes;
}

/* Makes two e4m3 of AT_ONCE tokens of a step, from token `first` on. */
template <enum weight_format FORMAT, int N, int AT_ONCE>
static __device__ __forceinline__ void convert_tokens(const x_lane &at, uint8_t *rows, int first, const float (&g)[8],
                                                      bool has_gain, step_factors<FORMAT> *factors, float *square)
{
    uint4 words[AT_ONCE];
#pragma unroll
    for (int t = 0; t < AT_ONCE; t++) words[t] = *(const uint4 *)(rows + (first + t) * 2 * STEP + 16 * at.lane);
    if (has_gain)
#pragma unroll
        for (int t = 0; t < AT_ONCE; t++) words[t] = apply_gains(words[t], g, square[t]);
    if constexpr (FORMAT == WEIGHT_INT4) store_sums(factors + first, words);
    uint32_t exponents[AT_ONCE];
    uint2 high[AT_ONCE], low[AT_ONCE];
    find_exponents(exponents, words);
#pragma unroll
    for (int t = 0; t < AT_ONCE; t++) {
        split_eight(words[t], exponents[t], high[t], low[t]);
        if (FORMAT == WEIGHT_INT4) high[t] = interleave(high[t]), low[t] = interleave(low[t]);
    }
    __syncwarp();
#pragma unroll
    for (int t = 0; t < AT_ONCE; t++) {
        store_piece(rows, 2 * (first + t), at.piece, high[t]);
        store_piece(rows, 2 * (first + t) + 1, at.piece, low[t]);
        if (at.lane == 0) store_scale(factors[first + t], split_scale(exponents[t]));
    }
}

static __device__ __forceinline__ float sum_of(const float (&x)[8])
{
    return x[0] + x[1] + x[2] + x[3] + (x[4] + x[5] + x[6] + x[7]);
}

/* The exponent, with its bias, of the largest of 128 numbers, of which 16 lanes have eight each. */
static __device__ __forceinline__ uint32_t find_exponent(const float (&x)[8])
{
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) largest = max(largest, __float_as_uint(x[i]) & 0x7fffffff); /* NaN is the largest */
#pragma unroll
    for (int offset = 8; offset > 0; offset /= 2) largest = max(largest, __shfl_xor_sync(~0u, largest, offset));
    return max(largest >> 23, (uint32_t)HALF_EXPONENT);
}

/* Makes three e4m3 of a float16 token of a step. */
template <enum weight_format FORMAT>
static __device__ __forceinline__ void convert_half(const x_lane &at, uint8_t *rows, int token, const float (&g)[8],
                                                    bool has_gain, step_factors<FORMAT> *factors, float &square)
{
    float x[8], sum = 0;
    uint2 parts[3];
    load_eight(x, (const __half *)(rows + token * 4 * STEP) + 8 * at.lane);
    if (has_gain)
#pragma unroll
        for (int i = 0; i < 8; i++) square += x[i] * x[i], x[i] *= g[i];
    const uint32_t exponent = find_exponent(x);
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] *= split_inverse(exponent);
    if (FORMAT == WEIGHT_INT4) sum = sum_of(x);
#pragma unroll
    for (int i = 0; i < 3; i++) {
        parts[i] = take_e4m3(x);
        if (FORMAT == WEIGHT_INT4) parts[i] = interleave(parts[i]);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 3; i++) store_piece(rows, 4 * token + i, at.piece, parts[i]);
    if (FORMAT == WEIGHT_INT4) sum = warp_sum<16>(sum - sum_of(x)); /* what is lost does not meet the zero either */
    if (at.lane > 0) return;
    const float scale = split_scale(exponent);
    store_scale(factors[2 * token], scale);
    store_scale(factors[2 * token + 1], scale);
    if constexpr (FORMAT == WEIGHT_INT4)
        factors[2 * token].y = sum * scale * (1.0f / INT4_FACTOR), factors[2 * token + 1].y = 0;
}

#endif
#endif
