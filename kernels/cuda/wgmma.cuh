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

#define ACC_4(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define ACC_16(i) ACC_4(i), ACC_4(i + 4), ACC_4(i + 8), ACC_4(i + 12)
#define ACC_32(i) ACC_16(i), ACC_16(i + 16)
#define REGISTERS_4 "%0, %1, %2, %3"
#define REGISTERS_8 REGISTERS_4 ", %4, %5, %6, %7"
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

/* C = A B + (add ? C : 0). shape: n and k; tail: what wgmma says of transposed operands. i0 to i5 are the numbers of
 * the operands behind C's registers. */
#define FROM_SHARED(shape, registers, i0, i1, i2, i3, i4, i5, types, tail, ...)                                        \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " i2 ", 0;\n"                                                       \
                 "wgmma.mma_async.sync.aligned.m64" shape ".f32." types " {" registers "}, " i0 ", " i1                \
                 ", p, 1, 1" tail ";\n}\n"                                                                             \
                 : __VA_ARGS__                                                                                         \
                 : "l"(a), "l"(b), "r"((int)add))
#define FROM_REGISTERS(shape, registers, i0, i1, i2, i3, i4, i5, types, tail, ...)                                     \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " i5 ", 0;\n"                                                       \
                 "wgmma.mma_async.sync.aligned.m64" shape ".f32." types " {" registers "}, {" i0 ", " i1 ", " i2       \
                 ", " i3 "}, " i4 ", p, 1, 1" tail ";\n}\n"                                                            \
                 : __VA_ARGS__                                                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add))

/* `from` is one of the two above; k is "k16" or "k32". */
#define WGMMA(from, k, types, tail)                                                                                    \
    static_assert(N == 8 || N == 16 || N == 32 || N == 64 || N == 128 || N == 160 || N == 192 || N == 256,             \
                  "only these are written out");                                                                       \
    if constexpr (N == 8) from("n8" k, REGISTERS_4, "%4", "%5", "%6", "%7", "%8", "%9", types, tail, ACC_4(0));        \
    if constexpr (N == 16)                                                                                             \
        from("n16" k, REGISTERS_8, "%8", "%9", "%10", "%11", "%12", "%13", types, tail, ACC_4(0), ACC_4(4));           \
    if constexpr (N == 32)                                                                                             \
        from("n32" k, REGISTERS_16, "%16", "%17", "%18", "%19", "%20", "%21", types, tail, ACC_16(0));                 \
    if constexpr (N == 64)                                                                                             \
        from("n64" k, REGISTERS_32, "%32", "%33", "%34", "%35", "%36", "%37", types, tail, ACC_32(0));                 \
    if constexpr (N == 128)                                                                                            \
        from("n128" k, REGISTERS_64, "%64", "%65", "%66", "%67", "%68", "%69", types, tail, ACC_32(0), ACC_32(32));    \
    if constexpr (N == 160)                                                                                            \
        from("n160" k, REGISTERS_80, "%80", "%81", "%82", "%83", "%84", "%85", types, tail, ACC_32(0), ACC_32(32),     \
             ACC_16(64));                                                                                              \
    if constexpr (N == 192)                                                                                            \
        from("n192" k, REGISTERS_96, "%96", "%97", "%98", "%99", "%100", "%101", types, tail, ACC_32(0), ACC_32(32),   \
             ACC_32(64));                                                                                              \
    if constexpr (N == 256)                                                                                            \
    from("n256" k, REGISTERS_128, "%128", "%129", "%130", "%131", "%132", "%133", types, tail, ACC_32(0), ACC_32(32),  \
         ACC_32(64), ACC_32(96))

/* C = A B + (add ? C : 0), A in shared memory. */
template <class T, int N>
static __device__ __forceinline__ void wgmma_shared(float *c, uint64_t a, uint64_t b, bool add)
{
    if constexpr (std::is_same_v<T, __half>) {
        WGMMA(FROM_SHARED, "k16", "f16.f16", ", 0, 0");
    } else {
        WGMMA(FROM_SHARED, "k16", "bf16.bf16", ", 0, 0");
    }
}

/* The same of a B whose rows, and not its columns, are contiguous (swizzled_rows_descriptor). */
template <class T, int N>
static __device__ __forceinline__ void wgmma_shared_rows(float *c, uint64_t a, uint64_t b, bool add)
{
    if constexpr (std::is_same_v<T, __half>) {
        WGMMA(FROM_SHARED, "k16", "f16.f16", ", 0, 1");
    } else {
        WGMMA(FROM_SHARED, "k16", "bf16.bf16", ", 0, 1");
    }
}

/* C = A B + (add ? C : 0), A in registers. */
template <class T, int N, bool add = true>
static __device__ __forceinline__ void wgmma_registers(float *c, const uint32_t *a, uint64_t b)
{
    if constexpr (std::is_same_v<T, __half>) {
        WGMMA(FROM_REGISTERS, "k16", "f16.f16", ", 0");
    } else {
        WGMMA(FROM_REGISTERS, "k16", "bf16.bf16", ", 0");
    }
}

/* C = A B + (add ? C : 0) of e4m3, A in shared memory. */
template <int N> static __device__ __forceinline__ void wgmma_e4m3(float *c, uint64_t a, uint64_t b, bool add)
{
    WGMMA(FROM_SHARED, "k32", "e4m3.e4m3", "");
}

/* C = A B + (add ? C : 0) of e4m3, A in registers. */
template <int N>
static __device__ __forceinline__ void wgmma_e4m3_registers(float *c, const uint32_t *a, uint64_t b, bool add)
{
    WGMMA(FROM_REGISTERS, "k32", "e4m3.e4m3", "");
}

/* C = A B + (add ? C : 0), A e5m2 in registers, B e4m3. */
template <int N>
static __device__ __forceinline__ void wgmma_e5m2_registers(float *c, const uint32_t *a, uint64_t b, bool add)
{
    WGMMA(FROM_REGISTERS, "k32", "e5m2.e4m3", "");
}

#undef ACC_4
#undef ACC_16
#undef ACC_32
#undef REGISTERS_4
#undef REGISTERS_8
#undef REGISTERS_16
#undef REGISTERS_32
#undef REGISTERS_64
#undef REGISTERS_80
#undef REGISTERS_96
#undef REGISTERS_128
#undef FROM_SHARED
#undef FROM_REGISTERS
#undef WGMMA

/* The descriptor of an operand in shared memory that has rows of 128 bytes in the 128-byte swizzle. Its address is a
 * multiple of 1024, which are eight rows; every 32 bytes of a row further on add 2 to it. */
static __device__ __forceinline__ uint64_t swizzled_descriptor(uint32_t address)
{
    return (uint64_t)(address >> 4) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

/* The same for a B of 16-bit elements whose rows (of one k) are contiguous: 64 columns of a row are 128 bytes, rows
 * follow one another, and every 64 columns further on lie `panel` bytes behind. */
static __device__ __forceinline__ uint64_t swizzled_rows_descriptor(uint32_t address, uint32_t panel)
{
    return (uint64_t)(address >> 4) | (uint64_t)(panel >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
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
