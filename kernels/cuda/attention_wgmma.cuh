/* Hopper's matrix product over a warpgroup (4 warps), and the barriers between the warps that copy and those that
 * compute. For sm_90a.
 *
 * wgmma m64nNk16: C[64][N] += A[64][16] B[16][N]. Warp w of the group has rows 16w .. 16w + 15 of C, as n8 tiles of
 * mma m16n8k16 side by side: c[4b + e] is element e of tile b. A lies in shared memory, or in registers as A of that
 * mma. Operands in shared memory are made of core matrices, 8 rows (A) or columns (B) of 16 contiguous bytes along k,
 * 128 bytes in all, without swizzling: the cache's layout of K is made of just these. Or rows and columns have 32
 * contiguous bytes, swizzled: so the copy engine brings V, whose rows in a block of 16 tokens are of this size. */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_WGMMA_CUH
#define QUIRE_KERNELS_CUDA_ATTENTION_WGMMA_CUH

#include <cuda.h>
#include <type_traits>

#include "kernels/cuda/attention_mma.cuh"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define ATTENTION_HAVE_WGMMA 1

/* Where the core matrices of an operand are: `k_stride` bytes from one to the next along k, `stride` across it.
 * Addresses and strides are multiples of 16. */
static __device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t address, uint32_t k_stride, uint32_t stride = 128)
{
    return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)(k_stride >> 4) << 16 | (uint64_t)(stride >> 4) << 32;
}

/* An operand's 16 elements along k as 32 bytes, these after each other, swizzled: the two halves of rows 4 .. 7 of
 * every 8 have changed places. The address is a multiple of 256. */
static __device__ __forceinline__ uint64_t wgmma_descriptor_swizzled(uint32_t address)
{
    return wgmma_descriptor(address, 16, 256) | (uint64_t)3 << 62;
}

#define ACC_8(c, i)                                                                                                    \
    "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]),        \
        "+f"(c[i + 7])
#define ACC_32(c, i) ACC_8(c, i), ACC_8(c, i + 8), ACC_8(c, i + 16), ACC_8(c, i + 24)
#define REGISTERS_32                                                                                                   \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define REGISTERS_64                                                                                                   \
    REGISTERS_32 ", "                                                                                                  \
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                    \
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
/* C = A B + (add ? C : 0), A in shared memory. */
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

template <class T, int N>
static __device__ __forceinline__ void wgmma_shared(float *c, uint64_t a, uint64_t b, bool add)
{
    static_assert(N == 64 || N == 128, "only these are written out");
    if constexpr (N == 64 && std::is_same_v<T, __half>) WGMMA_SHARED_64("f16");
    if constexpr (N == 64 && !std::is_same_v<T, __half>) WGMMA_SHARED_64("bf16");
    if constexpr (N == 128 && std::is_same_v<T, __half>) WGMMA_SHARED_128("f16");
    if constexpr (N == 128 && !std::is_same_v<T, __half>) WGMMA_SHARED_128("bf16");
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
#undef REGISTERS_32
#undef REGISTERS_64
#undef WGMMA_SHARED_64
#undef WGMMA_SHARED_128
#undef WGMMA_REGISTERS_64
#undef WGMMA_REGISTERS_128

/* Before the products that follow use registers which other instructions wrote. */
static __device__ __forceinline__ void wgmma_begin()
{
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

static __device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

/* Until at most `pending` groups are under way. */
template <int pending> static __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(pending) : "memory");
}

/* Keeps the compiler from moving uses of these registers to the other side of a wait or begin. */
template <int count> static __device__ __forceinline__ void wgmma_pin(float (&c)[count])
{
#pragma unroll
    for (int i = 0; i < count; i++) asm volatile("" : "+f"(c[i])::"memory");
}

/* Registers for each thread of a warpgroup, from what the others gave back. */
template <int count> static __device__ __forceinline__ void take_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(count));
}
template <int count> static __device__ __forceinline__ void give_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(count));
}

/* What ordinary instructions wrote to shared memory, and this thread knows of, can be read by wgmma after this. */
static __device__ __forceinline__ void async_proxy_fence()
{
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

/* mbarriers: a phase ends when `count` threads have arrived. */
static __device__ __forceinline__ void barrier_init(uint64_t *barrier, int count)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;\n" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];\n" ::"r"(shared_address(barrier)) : "memory");
}

/* Arrives, and makes the phase wait for that many bytes of tensor_copy too. */
static __device__ __forceinline__ void barrier_arrive_expect(uint64_t *barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;\n" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

/* Brings a map close, before its first use. */
static __device__ __forceinline__ void tensor_map_prefetch(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];\n" ::"l"(map) : "memory");
}

/* A box of a tensor of 5 dimensions, from those coordinates, into shared memory; the barrier counts its bytes. */
static __device__ __forceinline__ void tensor_copy(uint32_t to, const CUtensorMap *map, int32_t c0, int32_t c1,
                                                   int32_t c2, int32_t c3, int32_t c4, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];\n" ::"r"(to),
                 "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "r"(shared_address(barrier))
                 : "memory");
}

/* Arrives once this thread's copies so far are there. */
static __device__ __forceinline__ void barrier_arrive_copied(uint64_t *barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];\n" ::"r"(shared_address(barrier)) : "memory");
}

/* Waits for the end of the phase of that parity. */
static __device__ __forceinline__ void barrier_wait(uint64_t *barrier, uint32_t parity)
{
    asm volatile("{\n.reg .pred p;\nagain:\n"
                 "mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n@!p bra again;\n}\n" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

#endif
#endif
