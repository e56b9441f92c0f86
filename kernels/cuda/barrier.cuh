/* Barriers in shared memory that also count the bytes of copies, and rings of stages with such barriers (compute
 * capability 9.0 and later; PTX ISA, "mbarrier"). A phase of a barrier ends when as many threads have arrived as
 * barrier_init was told, and all bytes that they announced have been copied. Then the next phase begins, with the other
 * parity. */
#ifndef QUIRE_KERNELS_CUDA_BARRIER_CUH
#define QUIRE_KERNELS_CUDA_BARRIER_CUH

#include "kernels/cuda/state.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

static __device__ __forceinline__ void barrier_init(uint64_t *barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;\n" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

/* Call it after barrier_init, before other threads or the copy engine use the barriers. */
static __device__ __forceinline__ void barrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}

/* Orders ordinary accesses to shared memory, as far as this thread has seen them, before those of wgmma and of the copy
 * engine that follow. */
static __device__ __forceinline__ void async_proxy_fence()
{
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];\n" ::"r"(shared_address(barrier)) : "memory");
}

/* Arrives if `really`, without a branch, which wgmma's pipeline cannot have. */
static __device__ __forceinline__ void barrier_arrive_if(uint64_t *barrier, bool really)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %1, 0;\n@p mbarrier.arrive.shared.b64 _, [%0];\n}\n" ::"r"(
                     shared_address(barrier)),
                 "r"((int)really)
                 : "memory");
}

/* Arrives, and announces that many bytes, which the phase waits for too. */
static __device__ __forceinline__ void barrier_arrive_expect(uint64_t *barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;\n" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

/* Arrives when this thread's copies by cp.async so far have been made. */
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

/* A position in a ring: the stage, and the number of rounds before this one. The parity of `round` is that of the phase
 * of the stage's barriers. */
struct ring_place {
    int stage;
    uint32_t round;
};

static __device__ __forceinline__ void ring_step(ring_place &place, int stages)
{
    if (++place.stage == stages) place.stage = 0, place.round++;
}

/* Where a warp is that fills a ring: the stage that it fills next, the oldest one whose copies may still be in flight,
 * and how many such stages there are. */
struct ring_filler {
    ring_place next, arrived;
    int in_flight;
};

/* Waits until the next stage is empty and at most `most` stages are in flight, this one included. */
static __device__ __forceinline__ void ring_wait_empty(ring_filler &filler, uint64_t *full, uint64_t *empty, int stages,
                                                       int most)
{
    if (filler.in_flight == most) {
        barrier_wait(&full[filler.arrived.stage], filler.arrived.round & 1);
        ring_step(filler.arrived, stages);
    } else {
        filler.in_flight++;
    }
    if (filler.next.round > 0) barrier_wait(&empty[filler.next.stage], (filler.next.round - 1) & 1);
}

#endif
#endif
