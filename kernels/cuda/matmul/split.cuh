/* Floats as sums of e4m3, of which each has four significant bits.
 *
 * Split rows are x of a matmul of MXFP4 (linear_wgmma_mxfp4_rows.cu): each bfloat16 is the sum of two e4m3, times a
 * power of two of the row. bfloat16 has eight significant bits, so what is lost is bits that are 2^16 times smaller
 * than the largest element of the row. Of 64 input features a row has the first e4m3, and then the second ones; each 16
 * of them lie in the order in which mxfp4_bytes gives the weight (quantized.cuh). A row takes as many bytes as in
 * bfloat16. */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_SPLIT_CUH
#define QUIRE_KERNELS_CUDA_MATMUL_SPLIT_CUH

#include "kernels/cuda/state.cuh"

enum {
    SPLIT_FEATURES = 64,     /* of which the two parts follow each other */
    SPLIT_PIECE = 16,        /* input features that a thread splits */
    SPLIT_MIN_EXPONENT = 22, /* of the largest element of a row, with its bias; a smaller one counts as this */
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890

/* The four leading bits, which are all that an e4m3 has. */
static __device__ __forceinline__ float leading_bits(float x)
{
    return __uint_as_float(__float_as_uint(x) & 0xfff00000);
}

/* Takes e4m3 out of eight numbers below 448. */
static __device__ __forceinline__ uint2 take_e4m3(float *x)
{
    uint32_t bytes[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float low = leading_bits(x[2 * i]), high = leading_bits(x[2 * i + 1]);
        uint16_t pair;
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
        bytes[i] = pair;
        x[2 * i] -= low, x[2 * i + 1] -= high;
    }
    return make_uint2(bytes[0] | bytes[1] << 16, bytes[2] | bytes[3] << 16);
}

/* By what elements are divided, from the exponent of the largest, with its bias: NaN if that is NaN or an infinity.
 * They are below 256 then. */
static __device__ __forceinline__ float split_scale(uint32_t exponent)
{
    return __uint_as_float(exponent == 255 ? 0x7fc00000 : (exponent - 7) << 23);
}
static __device__ __forceinline__ float split_inverse(uint32_t exponent)
{
    return __uint_as_float((2 * 127 + 7 - exponent) << 23);
}

/* Takes a part out of the elements of piece i of a row, and stores it there. */
static __device__ __forceinline__ void split_store(uint8_t *row, int i, int part, float (&x)[SPLIT_PIECE])
{
    constexpr int PIECES = SPLIT_FEATURES / SPLIT_PIECE;
    const uint2 u = take_e4m3(x), v = take_e4m3(x + 8);
    ((uint4 *)row)[i / PIECES * 2 * PIECES + part * PIECES + i % PIECES] = {
        __byte_perm(u.x, v.x, 0x5140), __byte_perm(u.x, v.x, 0x7362), __byte_perm(u.y, v.y, 0x5140),
        __byte_perm(u.y, v.y, 0x7362)};
}

#endif
#endif
