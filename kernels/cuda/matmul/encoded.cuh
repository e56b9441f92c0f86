/* Elements of a quantized weight in shared memory, and how a thread decodes them as A of the mma (mma.cuh), which is
 * also what a warp of wgmma has in registers. Weights come in steps of STEP input features. */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_ENCODED_CUH
#define QUIRE_KERNELS_CUDA_MATMUL_ENCODED_CUH

#include "kernels/cuda/matmul/quantized.cuh"

enum { STEP = MATMUL_STEP };

static __device__ __forceinline__ uint4 shared_load_4(uint32_t address)
{
    uint4 x;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(address));
    return x;
}
static __device__ __forceinline__ uint2 shared_load_2(uint32_t address)
{
    uint2 x;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];\n" : "=r"(x.x), "=r"(x.y) : "r"(address));
    return x;
}
static __device__ __forceinline__ uint32_t shared_load(uint32_t address)
{
    uint32_t x;
    asm volatile("ld.shared.u32 %0, [%1];\n" : "=r"(x) : "r"(address));
    return x;
}

/* A thread's encoded elements of a step, from two rows that are 8 apart. INT4 and MXFP4: a piece of 16 bytes of each,
 * which is all of them. INT8 and FP8 are read when they are decoded. */
template <enum weight_format FORMAT> struct encoded;
template <> struct encoded<WEIGHT_INT4> {
    uint32_t low[4], high[4];
    __device__ __forceinline__ void load(uint32_t stage, int row, int t)
    {
        const uint4 a = shared_load_4(stage + row * (STEP / 2) + 16 * t);
        const uint4 b = shared_load_4(stage + (row + 8) * (STEP / 2) + 16 * t);
        low[0] = a.x, low[1] = a.y, low[2] = a.z, low[3] = a.w;
        high[0] = b.x, high[1] = b.y, high[2] = b.z, high[3] = b.w;
    }
    /* Input features 32 w + 16 half, ... + 15 as A of the mma, without the scales. */
    template <class T>
    __device__ __forceinline__ void decode(uint32_t *a, int w, int half, uint32_t low_offset, uint32_t high_offset)
    {
        a[0] = int4_pair<T>(low[w], 2 * half, low_offset);
        a[1] = int4_pair<T>(high[w], 2 * half, high_offset);
        a[2] = int4_pair<T>(low[w], 2 * half + 1, low_offset);
        a[3] = int4_pair<T>(high[w], 2 * half + 1, high_offset);
    }
};

template <> struct encoded<WEIGHT_MXFP4> : encoded<WEIGHT_INT4> {
    /* Of half a segment, at the end of a row, whose pieces have 8 bytes; zeros lie behind them. */
    __device__ __forceinline__ void load_half(uint32_t stage, int row, int t)
    {
        const uint2 a = shared_load_2(stage + row * (STEP / 2) + 8 * t);
        const uint2 b = shared_load_2(stage + (row + 8) * (STEP / 2) + 8 * t);
        low[0] = a.x, low[1] = a.y, low[2] = low[3] = 0;
        high[0] = b.x, high[1] = b.y, high[2] = high[3] = 0;
    }
    template <class T> __device__ __forceinline__ void decode(uint32_t *a, int w, int half, uint32_t, uint32_t)
    {
        mxfp4_operand<T>(a, low[w], high[w], half);
    }
};

/* A row of a step is 128 bytes in the 128-byte swizzle. Lane t of a quad needs bytes 2 t, 2 t + 1, 2 t + 8 and 2 t + 9
 * of 16. */
template <enum weight_format FORMAT> struct encoded {
    uint32_t row_address, swizzle, select;
    __device__ __forceinline__ void load(uint32_t stage, int row, int t)
    {
        row_address = stage + row * STEP + t / 2 * 4;
        swizzle = row % 8;
        select = t % 2 ? 0x7362 : 0x5140; /* so that pairs of bytes 0, 2 and 1, 3 are the two that are needed */
    }
    template <class T> __device__ __forceinline__ void decode(uint32_t *a, int w, int half, uint32_t, uint32_t)
    {
        const uint32_t from = row_address + (((2 * w + half) ^ swizzle) << 4);
        const uint32_t low = __byte_perm(shared_load(from), shared_load(from + 8), select);
        const uint32_t high = __byte_perm(shared_load(from + 8 * STEP), shared_load(from + 8 * STEP + 8), select);
        if constexpr (FORMAT == WEIGHT_INT8) {
            int8_pairs<T>(low, a[0], a[2]);
            int8_pairs<T>(high, a[1], a[3]);
        } else {
            fp8_pairs<T>(low, a[0], a[2]);
            fp8_pairs<T>(high, a[1], a[3]);
        }
    }
};

#endif
