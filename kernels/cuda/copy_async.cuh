/* Asynchronous copies from global to shared memory, 16 bytes a thread (compute capability 8.0 and later; PTX ISA,
 * "cp.async"). A thread's copies arrive in groups, in the order in which it committed them. */
#ifndef QUIRE_KERNELS_CUDA_COPY_ASYNC_CUH
#define QUIRE_KERNELS_CUDA_COPY_ASYNC_CUH

#include "kernels/cuda/state.cuh"

/* Copies 16 bytes. If `read` is false, nothing is read and zeros are written. */
static __device__ __forceinline__ void copy_async(uint32_t to, const void *from, bool read)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(read ? 16 : 0) : "memory");
}

/* Copies 16 bytes or writes zeros, with a policy of cache_policy.cuh; the L2 cache fetches the whole line of 128 bytes.
 */
static __device__ __forceinline__ void copy_async(uint32_t to, const void *from, bool read, uint64_t policy)
{
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;\n" ::"r"(to), "l"(from),
                 "r"(read ? 16 : 0), "l"(policy)
                 : "memory");
}

/* Copies `bytes` bytes, 0 to 16, and zeros behind them. */
static __device__ __forceinline__ void copy_async_bytes(uint32_t to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

/* Copies 8 bytes. */
static __device__ __forceinline__ void copy_async_8(uint32_t to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;\n" ::"r"(to), "l"(from) : "memory");
}

/* Copies 4 bytes. */
static __device__ __forceinline__ void copy_async_4(uint32_t to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\n" ::"r"(to), "l"(from) : "memory");
}

static __device__ __forceinline__ void copy_async_commit()
{
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

/* Waits until at most `pending` of this thread's groups have not arrived. */
template <int pending> static __device__ __forceinline__ void copy_async_wait()
{
    asm volatile("cp.async.wait_group %0;\n" ::"n"(pending) : "memory");
}

/* Waits for all of this thread's copies, committed or not. */
static __device__ __forceinline__ void copy_async_wait_all()
{
    asm volatile("cp.async.wait_all;\n" ::: "memory");
}

#endif
