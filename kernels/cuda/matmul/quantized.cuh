/* Quantized weights on the GPU: how they lie in memory, and how a few elements become 16-bit floats in registers.
 *
 * FP8 and INT8 lie as kernels/backend.h says. So does INT4 whose in_features is not a multiple of INT4_SEGMENT.
 * Other INT4 is reordered by weight_prepare within each segment of 128 input features (64 bytes) of a row. The 16-byte
 * piece t of a segment is what lane t of a quad multiplies (mma.cuh, and wgmma with the weight in registers), for 8
 * steps of 16 input features in their natural order. Word w of a piece has two steps. Its half-bytes i and i + 4 are
 * pair i:
 *
 *     half-byte   7       6       5       4       3       2       1       0
 *     pair        3       2       1       0       3       2       1       0        (word >> 4 i) & 0x000f000f
 *               second  second  second  second  first   first   first   first
 *
 *     pair 0: input features 32 w + 2 t, + 1        pair 1: 32 w + 2 t + 8, + 9         step 2 w
 *     pair 2: 32 w + 2 t + 16, + 17                 pair 3: 32 w + 2 t + 24, + 25       step 2 w + 1
 *
 * MXFP4 in groups of 32 is reordered likewise if in_features is a multiple of half a segment. If it is no multiple of a
 * whole one, the last segment of a row has half the steps, and its pieces have 8 bytes, two words. Each half of a word
 * has an element of each pair, with sign s and magnitude m in bits from which bytes of e5m2 are easily made, and pairs
 * of 16-bit floats:
 *
 *     bit   15  14  13  12  11  10   9   8   7   6   5   4   3   2   1   0
 *           s1  m3  m3  m3  m1  m1  m1  s3  s0  m2  m2  m2  m0  m0  m0  s2 */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_QUANTIZED_CUH
#define QUIRE_KERNELS_CUDA_MATMUL_QUANTIZED_CUH

#include <type_traits>

#include "kernels/cuda/matmul/matmul.h"
#include "kernels/cuda/state.cuh"

enum { INT4_SEGMENT_BYTES = INT4_SEGMENT / 2 };

/* Formats with two elements a byte. */
template <enum weight_format F> static constexpr bool IS_PACKED = F == WEIGHT_INT4 || F == WEIGHT_MXFP4;

static inline bool weight_is_prepared(const struct weight *w)
{
    if (w->format == WEIGHT_MXFP4) return w->group_size == 32 && w->in_features % MXFP4_SEGMENT == 0;
    return w->format == WEIGHT_INT4 && w->in_features % INT4_SEGMENT == 0;
}

/* The words of a piece of the segment that begins with this input feature: 4 or, of half a segment, 2. */
static inline __host__ __device__ int piece_words(int64_t in_features, int64_t first)
{
    return in_features - first < INT4_SEGMENT ? 2 : 4;
}

/* Where input feature i of a segment is after weight_prepare, in half-bytes. */
static inline __host__ __device__ int prepared_place(int i, int words)
{
    const int word = i / 32, pair = i / 8 % 4, t = i / 2 % 4;
    return (words * t + word) * 8 + pair + i % 2 * 4;
}

/* 16-bit floats that the integers 0 to 15 are put into: with the lower bits v the number stands for INT4_OFFSET + v. */
template <class T> static constexpr uint32_t INT4_BITS = std::is_same_v<T, __half> ? 0x64006400 : 0x43004300;
template <class T> static constexpr float INT4_OFFSET = std::is_same_v<T, __half> ? 1024 : 128;

/* What fp8_pairs gives is smaller than the e4m3 by this factor, the difference of the exponents' biases. */
template <class T> static constexpr float FP8_FACTOR = std::is_same_v<T, __half> ? 0x1p8f : 0x1p120f;

/* What mxfp4_pair gives is smaller than the e2m1 by this factor, for the same reason. */
template <class T> static constexpr float MXFP4_FACTOR = std::is_same_v<T, __half> ? 0x1p14f : 0x1p126f;

/* a - b, a * b of two pairs of T. */
template <class T> static __device__ __forceinline__ uint32_t subtract_pairs(uint32_t a, uint32_t b)
{
    if constexpr (std::is_same_v<T, __half>) {
        const __half2 c = __hsub2(*(__half2 *)&a, *(__half2 *)&b);
        return *(const uint32_t *)&c;
    } else {
        const __nv_bfloat162 c = __hsub2(*(__nv_bfloat162 *)&a, *(__nv_bfloat162 *)&b);
        return *(const uint32_t *)&c;
    }
}
template <class T> static __device__ __forceinline__ uint32_t multiply_pairs(uint32_t a, uint32_t b)
{
    if constexpr (std::is_same_v<T, __half>) {
        const __half2 c = __hmul2(*(__half2 *)&a, *(__half2 *)&b);
        return *(const uint32_t *)&c;
    } else {
        const __nv_bfloat162 c = __hmul2(*(__nv_bfloat162 *)&a, *(__nv_bfloat162 *)&b);
        return *(const uint32_t *)&c;
    }
}

/* (word & mask) | bits, which the compiler would make two instructions of if it knew both constants. */
static __device__ __forceinline__ uint32_t masked_with(uint32_t word, uint32_t mask, uint32_t bits)
{
    uint32_t out;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(word), "r"(mask), "r"(bits));
    return out;
}

/* (word & mask) ^ bits, for the same reason. */
static __device__ __forceinline__ uint32_t masked_without(uint32_t word, uint32_t mask, uint32_t bits)
{
    uint32_t out;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(out) : "r"(word), "r"(mask), "r"(bits));
    return out;
}

/* The float whose exponent these eight bits are; 255 is NaN. */
static __device__ __forceinline__ float e8m0_to_float(uint32_t bits)
{
    return __uint_as_float(bits == 0 ? 1u << 22 : bits == 255 ? 0x7fffffff : bits << 23);
}

/* The scale with these bits; those of a smaller type are the lower ones. */
static __device__ __forceinline__ float to_scale(uint32_t bits, enum dtype dtype)
{
    if (dtype == DTYPE_E8M0) return e8m0_to_float(bits);
    if (dtype == DTYPE_FLOAT16) return to_float(__ushort_as_half((uint16_t)bits));
    return __uint_as_float(dtype == DTYPE_FLOAT32 ? bits : bits << 16);
}

/* Scale i of a weight. */
static __device__ __forceinline__ float load_scale(const void *scales, enum dtype dtype, int64_t i)
{
    if (dtype == DTYPE_FLOAT32) return ((const float *)scales)[i];
    if (dtype == DTYPE_E8M0) return e8m0_to_float(((const uint8_t *)scales)[i]);
    return to_scale(((const uint16_t *)scales)[i], dtype);
}

/* The same 16-bit float twice. */
template <class T> static __device__ __forceinline__ uint32_t pair_of(float x)
{
    const piece<T, 2> both = {from_float<T>(x), from_float<T>(x)};
    return *(const uint32_t *)&both;
}

/* Pair i of a prepared word, minus a zero: offset is pair_of(INT4_OFFSET<T> + zero). Exact. */
template <class T> static __device__ __forceinline__ uint32_t int4_pair(uint32_t word, int i, uint32_t offset)
{
    return subtract_pairs<T>(masked_with(word >> 4 * i, 0x000f000f, INT4_BITS<T>), offset);
}

/* An e2m1 as an element of a pair in half a word, and back; higher bits of `half` do not matter. */
static __device__ __forceinline__ uint32_t mxfp4_encode(uint32_t half_byte, int pair)
{
    const uint32_t byte =
        pair < 2 ? (half_byte & 8) << 4 | (half_byte & 7) << 1 : half_byte >> 3 | (half_byte & 7) << 4;
    return byte << pair % 2 * 8;
}
static __device__ __forceinline__ uint32_t mxfp4_half_byte(uint32_t half, int pair)
{
    const uint32_t byte = half >> pair % 2 * 8;
    return pair < 2 ? (byte >> 4 & 8) | (byte >> 1 & 7) : (byte << 3 & 8) | (byte >> 4 & 7);
}

/* x << by, or to the right if `by` is negative. */
template <int by> static __device__ __forceinline__ uint32_t shifted(uint32_t x)
{
    return by >= 0 ? x << (by & 31) : x >> (-by & 31);
}

/* Pair i of a prepared word of e2m1, divided by MXFP4_FACTOR<T>. Exact, 0.5 included, which is a subnormal number. */
template <class T, int i> static __device__ __forceinline__ uint32_t mxfp4_pair(uint32_t word)
{
    constexpr int lowest = std::is_same_v<T, __half> ? 9 : 6; /* of a magnitude's bits in T */
    constexpr uint32_t magnitudes = (7u << lowest) * 0x10001;
    constexpr int sign = i == 0   ? 8
                         : i == 1 ? 0
                         : i == 2 ? 15
                                  : 7,
                  magnitude = i == 0   ? 1
                              : i == 1 ? 9
                              : i == 2 ? 4
                                       : 12;
    return (shifted<sign>(word) & 0x80008000) | (shifted<lowest - magnitude>(word) & magnitudes);
}

/* Pairs 2 half and 2 half + 1 of a word of each of two rows, as A of the mma. */
template <class T>
static __device__ __forceinline__ void mxfp4_operand(uint32_t *a, uint32_t low, uint32_t high, int half)
{
    a[0] = half ? mxfp4_pair<T, 2>(low) : mxfp4_pair<T, 0>(low);
    a[1] = half ? mxfp4_pair<T, 2>(high) : mxfp4_pair<T, 0>(high);
    a[2] = half ? mxfp4_pair<T, 3>(low) : mxfp4_pair<T, 1>(low);
    a[3] = half ? mxfp4_pair<T, 3>(high) : mxfp4_pair<T, 1>(high);
}

/* The elements of a prepared word of e2m1 as e5m2, divided by MXFP4_E5M2_FACTOR: of pairs 0 and 1, and of pairs 2
 * and 3. Exact. So bytes 4 t to 4 t + 3 of 16, which lane t of a quad has, are input features 2 t, 2 t + 8, 2 t + 1 and
 * 2 t + 9. */
static constexpr float MXFP4_E5M2_FACTOR = 0x1p14f;
static __device__ __forceinline__ void mxfp4_bytes(uint32_t word, uint32_t &first, uint32_t &second)
{
    first = word & 0x8e8e8e8e;
    second = (word >> 3 & 0x0e0e0e0e) | (word << 7 & 0x80808080);
}

/* The scale of MXFP4 that is byte i of a word, as a factor of a sum: 0 for 2^-127, infinity for NaN. */
static __device__ __forceinline__ float mxfp4_scale(uint32_t scales, int i)
{
    return __uint_as_float((i < 3 ? scales << (23 - 8 * i) : scales >> 1) & 0x7f800000);
}

/* Bytes 0 and 2, and bytes 1 and 3, of four INT8. Exact. */
template <class T> static __device__ __forceinline__ void int8_pairs(uint32_t word, uint32_t &even, uint32_t &odd)
{
    const uint32_t high = word >> 8;
    if constexpr (std::is_same_v<T, __half>) { /* 1024 + 128 + v */
        even = subtract_pairs<T>(masked_without(word, 0x00ff00ff, 0x64806480), 0x64806480);
        odd = subtract_pairs<T>(masked_without(high, 0x00ff00ff, 0x64806480), 0x64806480);
    } else { /* 128 and the lower 7 bits, minus 128, or 256 if the sign is set */
        even = subtract_pairs<T>(masked_with(word, 0x007f007f, 0x43004300), masked_with(word, 0x00800080, 0x43004300));
        odd = subtract_pairs<T>(masked_with(high, 0x007f007f, 0x43004300), masked_with(high, 0x00800080, 0x43004300));
    }
}

/* Bytes 0 and 2, and bytes 1 and 3, of four e4m3, divided by FP8_FACTOR<T>. Exact, subnormal numbers included. NaN
 * (0x7f) becomes 480, which is why a checkpoint must not have it. */
template <class T> static __device__ __forceinline__ void fp8_pairs(uint32_t word, uint32_t &even, uint32_t &odd)
{
    constexpr int shift = std::is_same_v<T, __half> ? 1 : 4; /* from a sign in bit 15 on */
    constexpr uint32_t magnitude = (0x7f00 >> shift) * 0x10001u;
    even = (word << 8 & 0x80008000) | (word << (8 - shift) & magnitude);
    odd = (word & 0x80008000) | (word >> shift & magnitude);
}

/* Four e4m3 as float16: the lower two and the upper two. */
static __device__ __forceinline__ void fp8_halves(uint32_t word, uint32_t &lower, uint32_t &upper)
{
#if __CUDA_ARCH__ >= 890
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, low;\ncvt.rn.f16x2.e4m3x2 %1, high;\n}\n"
        : "=r"(lower), "=r"(upper)
        : "r"(word));
#else
    fp8_pairs<__half>(__byte_perm(word, 0, 0x3120), lower, upper);
    lower = multiply_pairs<__half>(lower, pair_of<__half>(FP8_FACTOR<__half>));
    upper = multiply_pairs<__half>(upper, pair_of<__half>(FP8_FACTOR<__half>));
#endif
}

#endif
