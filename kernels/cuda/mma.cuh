/* The matrix instruction of a warp, and the one that loads its operands.
 *
 * mma m16n8k16: C[16][8] += A[16][16] B[16][8]. With i = lane / 4 and j = lane % 4 a lane holds, two 16-bit elements to
 * a register,
 *   A: a0 (i, 2j..) a1 (i + 8, 2j..) a2 (i, 2j + 8..) a3 (i + 8, 2j + 8..)   [row, column]
 *   B: b0 (2j.., i) b1 (2j + 8.., i)
 *   C: c0 c1 (i, 2j..) c2 c3 (i + 8, 2j..), float32.
 *
 * ldmatrix loads four 8x8 matrices of 16-bit elements from shared memory. A row is 16 contiguous bytes whose address
 * one lane gives (lanes 8m .. 8m + 7 for matrix m). A lane gets elements 2j, 2j + 1 of row i of each matrix, or with
 * load_matrices_transposed of column i. */
#ifndef QUIRE_KERNELS_CUDA_MMA_CUH
#define QUIRE_KERNELS_CUDA_MMA_CUH

#include "kernels/cuda/state.cuh"

#define MMA_M16N8K16(type)                                                                                             \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                                        \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"                                   \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))

template <class T> __device__ void multiply_add(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1);
template <>
__device__ __forceinline__ void multiply_add<__half>(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    MMA_M16N8K16("f16");
}
template <>
__device__ __forceinline__ void multiply_add<__nv_bfloat16>(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    MMA_M16N8K16("bf16");
}

#undef MMA_M16N8K16

static __device__ __forceinline__ void load_matrices(uint32_t r[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

static __device__ __forceinline__ void load_matrices_transposed(uint32_t r[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

/* Transposes an 8x8 matrix of 16-bit elements across the warp. */
static __device__ __forceinline__ uint32_t transpose_matrix(uint32_t x)
{
    uint32_t out;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\n" : "=r"(out) : "r"(x));
    return out;
}

/* Two floats as one register of two T, the first in the low half. */
template <class T> __device__ uint32_t pack_pair(float low, float high);
template <> __device__ __forceinline__ uint32_t pack_pair<__half>(float low, float high)
{
    const __half2 pair = __floats2half2_rn(low, high);
    return *(const uint32_t *)&pair;
}
template <> __device__ __forceinline__ uint32_t pack_pair<__nv_bfloat16>(float low, float high)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *(const uint32_t *)&pair;
}

#endif
