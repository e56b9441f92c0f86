/* Hopper's matrix instruction of a warpgroup (4 warps). For sm_90a.
 *
 * wgmma m64nNk16: C[64][N] += A[64][16] B[16][N]. Warp w of the group has rows 16w .. 16w + 15 of C, as n8 tiles of
 * mma m16n8k16 side by side: c[4b + e] is element e of tile b, in row lane / 4 + e / 2 * 8 and column 2 (lane % 4) +
 * e % 2. A is in shared memory, or in registers like A of that mma; B is in shared memory. Descriptors say where. */
#ifndef QUIRE_KERNELS_CUDA_WGMMA_CUH
#define QUIRE_KERNELS_CUDA_WGMMA_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>
#include <type_traits>

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define ACC_8(c, i)                                                                                                    \
    "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]),        \
        "+f"(c[i + 7])
#define ACC_32(c, i) ACC_8(c, i), ACC_8(c, i + 8), ACC_8(c, i + 16), ACC_8(c, i + 24)
#define REGISTERS_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define REGISTERS_16 REGISTERS_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define REGISTERS_32 REGISTERS_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define REGISTERS_64                                                                                                   \
    REGISTERS_32 ", "                                                                                                  \
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                    \
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
/* C = A B + (add ? C : 0), A in shared memory. */
#define WGMMA_SHARED_16(types, transposes)                                                                             \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n16" types " {" REGISTERS_8 "}, %8, %9, "                            \
                 "p, 1, 1" transposes ";\n}\n"                                                                         \
                 : ACC_8(c, 0)                                                                                         \
                 : "l"(a), "l"(b), "r"((int)add))
#define WGMMA_SHARED_32(types, transposes)                                                                             \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n32" types " {" REGISTERS_16 "}, %16, %17, "                         \
                 "p, 1, 1" transposes ";\n}\n"                                                                         \
                 : ACC_8(c, 0), ACC_8(c, 8)                                                                            \
                 : "l"(a), "l"(b), "r"((int)add))
#define WGMMA_SHARED_64(types, transposes)                                                                             \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n64" types " {" REGISTERS_32 "}, %32, %33, "                         \
                 "p, 1, 1" transposes ";\n}\n"                                                                         \
                 : ACC_32(c, 0)                                                                                        \
                 : "l"(a), "l"(b), "r"((int)add))
#define WGMMA_SHARED_128(types, transposes)                                                                            \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n128" types " {" REGISTERS_64 "}, %64, %65, "                        \
                 "p, 1, 1" transposes ";\n}\n"                                                                         \
                 : ACC_32(c, 0), ACC_32(c, 32)                                                                         \
                 : "l"(a), "l"(b), "r"((int)add))
/* C += A B, A in registers. */
#define WGMMA_REGISTERS_64(type)                                                                                       \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" REGISTERS_32                         \
                 "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 0;\n"                                                         \
                 : ACC_32(c, 0)                                                                                        \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define WGMMA_REGISTERS_128(type)                                                                                      \
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" REGISTERS_64                        \
                 "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 0;\n"                                                         \
                 : ACC_32(c, 0), ACC_32(c, 32)                                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

/* Two e4m3 numbers, in the place of a 16-bit one: then a wgmma multiplies 32 of them instead of 16. */
struct e4m3_two {
    uint16_t bits;
};

#define WGMMA_SHARED(n)                                                                                                \
    if constexpr (N == n && std::is_same_v<T, __half>) WGMMA_SHARED_##n("k16.f32.f16.f16", ", 0, 0");                  \
    if constexpr (N == n && std::is_same_v<T, __nv_bfloat16>) WGMMA_SHARED_##n("k16.f32.bf16.bf16", ", 0, 0");         \
    if constexpr (N == n && std::is_same_v<T, e4m3_two>) WGMMA_SHARED_##n("k32.f32.e4m3.e4m3", "")

template <class T, int N>
static __device__ __forceinline__ void wgmma_shared(float *c, uint64_t a, uint64_t b, bool add)
{
    static_assert(N == 16 || N == 32 || N == 64 || N == 128, "only these are written out");
    WGMMA_SHARED(16);
    WGMMA_SHARED(32);
    WGMMA_SHARED(64);
    WGMMA_SHARED(128);
}

template <class T, int N>
static __device__ __forceinline__ void wgmma_registers(float *c, const uint32_t *a, uint64_t b)
{
    static_assert(N == 64 || N == 128, "only these are written out");
    if constexpr (N == 64 && std::is_same_v<T, __half>) WGMMA_REGISTERS_64("f16");
    if constexpr (N == 64 && !std::is_same_v<T, __half>) WGMMA_REGISTERS_64("bf16");
    if constexpr (N == 128 && std::is_same_v<T, __half>) WGMMA_REGISTERS_128("f16");
    if constexpr (N == 128 && !std::is_same_v<T, __half>) WGMMA_REGISTERS_128("bf16");
}

#undef ACC_8
#undef ACC_32
#undef REGISTERS_8
#undef REGISTERS_16
#undef REGISTERS_32
#undef REGISTERS_64
#undef WGMMA_SHARED
#undef WGMMA_SHARED_16
#undef WGMMA_SHARED_32
#undef WGMMA_SHARED_64
#undef WGMMA_SHARED_128
#undef WGMMA_REGISTERS_64
#undef WGMMA_REGISTERS_128

/* Call it before wgmma uses registers that other instructions wrote. */
static __device__ __forceinline__ void wgmma_begin()
{
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

static __device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

/* Waits until at most `pending` committed groups have not ended. */
template <int pending> static __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(pending) : "memory");
}

/* Keeps the compiler from moving uses of these registers across a wait or begin. */
template <int count> static __device__ __forceinline__ void wgmma_pin(float (&c)[count])
{
#pragma unroll
    for (int i = 0; i < count; i++) asm volatile("" : "+f"(c[i])::"memory");
}

/* Changes the number of registers of each thread of a warpgroup: give_registers frees some, take_registers waits for
 * freed ones. */
template <int count> static __device__ __forceinline__ void take_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(count));
}
template <int count> static __device__ __forceinline__ void give_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(count));
}

#endif
#endif
