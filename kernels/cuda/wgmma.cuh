/* Hopper's matrix instruction of a warpgroup (4 warps). For sm_90a.
 *
 * wgmma m64nNk16: C[64][N] += A[64][16] B[16][N]. Warp w of the group has rows 16w .. 16w + 15 of C, as n8 tiles of
 * mma m16n8k16 side by side: c[4b + e] is element e of tile b, in row lane / 4 + e / 2 * 8 and column 2 (lane % 4) +
 * e % 2. A is in shared memory, or in registers like A of that mma; B is in shared memory. Descriptors say where. With
 * e4m3 elements it is m64nNk32, whose rows have as many bytes. */
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
#define REGISTERS_80                                                                                                   \
    REGISTERS_64 ", "                                                                                                  \
                 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define REGISTERS_96                                                                                                   \
    REGISTERS_80 ", "                                                                                                  \
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define REGISTERS_128                                                                                                  \
    REGISTERS_96 ", "                                                                                                  \
                 "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "        \
                 "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
/* C = A B + (add ? C : 0), A in shared memory. */
#define WGMMA_SHARED_16(type)                                                                                          \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n16k16.f32." type "." type " {" REGISTERS_8 "}, %8, %9, "            \
                 "p, 1, 1, 0, 0;\n}\n"                                                                                 \
                 : ACC_8(c, 0)                                                                                         \
                 : "l"(a), "l"(b), "r"((int)add))
#define WGMMA_SHARED_32(type)                                                                                          \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type " {" REGISTERS_16 "}, %16, %17, "         \
                 "p, 1, 1, 0, 0;\n}\n"                                                                                 \
                 : ACC_8(c, 0), ACC_8(c, 8)                                                                            \
                 : "l"(a), "l"(b), "r"((int)add))
#define WGMMA_SHARED_64(type)                                                                                          \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" REGISTERS_32 "}, %32, %33, "         \
                 "p, 1, 1, 0, 0;\n}\n"                                                                                 \
                 : ACC_32(c, 0)                                                                                        \
                 : "l"(a), "l"(b), "r"((int)add))
#define WGMMA_SHARED_128(type)                                                                                         \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" REGISTERS_64 "}, %64, %65, "        \
                 "p, 1, 1, 0, 0;\n}\n"                                                                                 \
                 : ACC_32(c, 0), ACC_32(c, 32)                                                                         \
                 : "l"(a), "l"(b), "r"((int)add))
#define WGMMA_SHARED_160(type)                                                                                         \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %82, 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n160k16.f32." type "." type " {" REGISTERS_80 "}, %80, %81, "        \
                 "p, 1, 1, 0, 0;\n}\n"                                                                                 \
                 : ACC_32(c, 0), ACC_32(c, 32), ACC_8(c, 64), ACC_8(c, 72)                                             \
                 : "l"(a), "l"(b), "r"((int)add))
/* C = A B + add * C, A in registers. */
#define WGMMA_REGISTERS_16(type, add)                                                                                  \
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32." type "." type " {" REGISTERS_8                          \
                 "}, {%8, %9, %10, %11}, %12, " add ", 1, 1, 0;\n"                                                     \
                 : ACC_8(c, 0)                                                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define WGMMA_REGISTERS_32(type, add)                                                                                  \
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type " {" REGISTERS_16                         \
                 "}, {%16, %17, %18, %19}, %20, " add ", 1, 1, 0;\n"                                                   \
                 : ACC_8(c, 0), ACC_8(c, 8)                                                                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define WGMMA_REGISTERS_64(type, add)                                                                                  \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" REGISTERS_32                         \
                 "}, {%32, %33, %34, %35}, %36, " add ", 1, 1, 0;\n"                                                   \
                 : ACC_32(c, 0)                                                                                        \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define WGMMA_REGISTERS_128(type)                                                                                      \
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" REGISTERS_64                        \
                 "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 0;\n"                                                         \
                 : ACC_32(c, 0), ACC_32(c, 32)                                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define WGMMA_REGISTERS_192(type)                                                                                      \
    asm volatile("wgmma.mma_async.sync.aligned.m64n192k16.f32." type "." type " {" REGISTERS_96                        \
                 "}, {%96, %97, %98, %99}, %100, 1, 1, 1, 0;\n"                                                        \
                 : ACC_32(c, 0), ACC_32(c, 32), ACC_32(c, 64)                                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define WGMMA_REGISTERS_256(type)                                                                                      \
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type " {" REGISTERS_128                       \
                 "}, {%128, %129, %130, %131}, %132, 1, 1, 1, 0;\n"                                                    \
                 : ACC_32(c, 0), ACC_32(c, 32), ACC_32(c, 64), ACC_32(c, 96)                                           \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

template <class T, int N>
static __device__ __forceinline__ void wgmma_shared(float *c, uint64_t a, uint64_t b, bool add)
{
    static_assert(N == 16 || N == 32 || N == 64 || N == 128 || N == 160, "only these are written out");
    if constexpr (N == 16 && std::is_same_v<T, __half>) WGMMA_SHARED_16("f16");
    if constexpr (N == 16 && !std::is_same_v<T, __half>) WGMMA_SHARED_16("bf16");
    if constexpr (N == 32 && std::is_same_v<T, __half>) WGMMA_SHARED_32("f16");
    if constexpr (N == 32 && !std::is_same_v<T, __half>) WGMMA_SHARED_32("bf16");
    if constexpr (N == 64 && std::is_same_v<T, __half>) WGMMA_SHARED_64("f16");
    if constexpr (N == 64 && !std::is_same_v<T, __half>) WGMMA_SHARED_64("bf16");
    if constexpr (N == 128 && std::is_same_v<T, __half>) WGMMA_SHARED_128("f16");
    if constexpr (N == 128 && !std::is_same_v<T, __half>) WGMMA_SHARED_128("bf16");
    if constexpr (N == 160 && std::is_same_v<T, __half>) WGMMA_SHARED_160("f16");
    if constexpr (N == 160 && !std::is_same_v<T, __half>) WGMMA_SHARED_160("bf16");
}

/* ADD: C is added. */
template <class T, int N, bool ADD = true>
static __device__ __forceinline__ void wgmma_registers(float *c, const uint32_t *a, uint64_t b)
{
    static_assert(N == 16 || N == 32 || N == 64 || (ADD && (N == 128 || N == 192 || N == 256)),
                  "only these are written out");
    constexpr bool HALF = std::is_same_v<T, __half>;
    if constexpr (N == 16 && HALF && ADD) WGMMA_REGISTERS_16("f16", "1");
    if constexpr (N == 16 && HALF && !ADD) WGMMA_REGISTERS_16("f16", "0");
    if constexpr (N == 16 && !HALF && ADD) WGMMA_REGISTERS_16("bf16", "1");
    if constexpr (N == 16 && !HALF && !ADD) WGMMA_REGISTERS_16("bf16", "0");
    if constexpr (N == 32 && HALF && ADD) WGMMA_REGISTERS_32("f16", "1");
    if constexpr (N == 32 && HALF && !ADD) WGMMA_REGISTERS_32("f16", "0");
    if constexpr (N == 32 && !HALF && ADD) WGMMA_REGISTERS_32("bf16", "1");
    if constexpr (N == 32 && !HALF && !ADD) WGMMA_REGISTERS_32("bf16", "0");
    if constexpr (N == 64 && HALF && ADD) WGMMA_REGISTERS_64("f16", "1");
    if constexpr (N == 64 && HALF && !ADD) WGMMA_REGISTERS_64("f16", "0");
    if constexpr (N == 64 && !HALF && ADD) WGMMA_REGISTERS_64("bf16", "1");
    if constexpr (N == 64 && !HALF && !ADD) WGMMA_REGISTERS_64("bf16", "0");
    if constexpr (N == 128 && HALF) WGMMA_REGISTERS_128("f16");
    if constexpr (N == 128 && !HALF) WGMMA_REGISTERS_128("bf16");
    if constexpr (N == 192 && HALF) WGMMA_REGISTERS_192("f16");
    if constexpr (N == 192 && !HALF) WGMMA_REGISTERS_192("bf16");
    if constexpr (N == 256 && HALF) WGMMA_REGISTERS_256("f16");
    if constexpr (N == 256 && !HALF) WGMMA_REGISTERS_256("bf16");
}

/* C = A B + (add ? C : 0), of e4m3 in shared memory. */
#define WGMMA_E4M3(shape, registers, a_at, b_at, add_at, ...)                                                          \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " add_at ", 0;\n"                                                   \
                 "wgmma.mma_async.sync.aligned." shape ".f32.e4m3.e4m3 {" registers "}, " a_at ", " b_at               \
                 ", p, 1, 1;\n}\n"                                                                                     \
                 : __VA_ARGS__                                                                                         \
                 : "l"(a), "l"(b), "r"((int)add))
template <int N> static __device__ __forceinline__ void wgmma_e4m3(float *c, uint64_t a, uint64_t b, bool add)
{
    static_assert(N == 8 || N == 16 || N == 32 || N == 64, "only these are written out");
    if constexpr (N == 8)
        WGMMA_E4M3("m64n8k32", "%0, %1, %2, %3", "%4", "%5", "%6", "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]));
    if constexpr (N == 16) WGMMA_E4M3("m64n16k32", REGISTERS_8, "%8", "%9", "%10", ACC_8(c, 0));
    if constexpr (N == 32) WGMMA_E4M3("m64n32k32", REGISTERS_16, "%16", "%17", "%18", ACC_8(c, 0), ACC_8(c, 8));
    if constexpr (N == 64) WGMMA_E4M3("m64n64k32", REGISTERS_32, "%32", "%33", "%34", ACC_32(c, 0));
}

/* wgmma_e4m3 with A in registers. */
#define WGMMA_E4M3_REGISTERS(shape, registers, a_at, b_at, add_at, ...)                                                \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " add_at ", 0;\n"                                                   \
                 "wgmma.mma_async.sync.aligned." shape ".f32.e4m3.e4m3 {" registers "}, {" a_at "}, " b_at             \
                 ", p, 1, 1;\n}\n"                                                                                     \
                 : __VA_ARGS__                                                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add))
template <int N>
static __device__ __forceinline__ void wgmma_e4m3_registers(float *c, const uint32_t *a, uint64_t b, bool add)
{
    static_assert(N == 8 || N == 16, "only these are written out");
    if constexpr (N == 8)
        WGMMA_E4M3_REGISTERS("m64n8k32", "%0, %1, %2, %3", "%4, %5, %6, %7", "%8", "%9", "+f"(c[0]), "+f"(c[1]),
                             "+f"(c[2]), "+f"(c[3]));
    if constexpr (N == 16)
        WGMMA_E4M3_REGISTERS("m64n16k32", REGISTERS_8, "%8, %9, %10, %11", "%12", "%13", ACC_8(c, 0));
}

#undef ACC_8
#undef ACC_32
#undef REGISTERS_8
#undef REGISTERS_16
#undef REGISTERS_32
#undef REGISTERS_64
#undef REGISTERS_80
#undef REGISTERS_96
#undef REGISTERS_128
#undef WGMMA_E4M3
#undef WGMMA_E4M3_REGISTERS
#undef WGMMA_SHARED_16
#undef WGMMA_SHARED_32
#undef WGMMA_SHARED_64
#undef WGMMA_SHARED_128
#undef WGMMA_SHARED_160
#undef WGMMA_REGISTERS_16
#undef WGMMA_REGISTERS_32
#undef WGMMA_REGISTERS_64
#undef WGMMA_REGISTERS_128
#undef WGMMA_REGISTERS_192
#undef WGMMA_REGISTERS_256

/* The descriptor of an operand in shared memory that has rows of 128 bytes in the 128-byte swizzle. Its address is a
 * multiple of 1024, which are eight rows; every 32 bytes of a row further on add 2 to it. */
static __device__ __forceinline__ uint64_t swizzled_descriptor(uint32_t address)
{
    return (uint64_t)(address >> 4) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

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

/* Keeps the compiler from computing these registers later than here. */
template <int count> static __device__ __forceinline__ void wgmma_pin_operand(uint32_t (&a)[count])
{
#pragma unroll
    for (int i = 0; i < count; i++) asm volatile("" : "+r"(a[i])::"memory");
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
