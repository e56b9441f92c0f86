/* Rows of a head's state in shared memory, on their way from one slot to another. A thread copies the pieces that it
 * computes itself (recurrence.cuh says which): nobody else reads them, so there are no barriers. */
#ifndef QUIRE_KERNELS_CUDA_RECURRENCE_STAGED_STATE_CUH
#define QUIRE_KERNELS_CUDA_RECURRENCE_STAGED_STATE_CUH

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/copy_async.cuh"
#include "kernels/cuda/recurrence/recurrence.cuh"

enum { STAGED_ROWS = 4 }; /* of a thread, at most */

/* Row r of a thread is row threadIdx.x / LANES + r * STEP of the block's. */
template <int LANES, int THREADS> struct staged_state {
    static constexpr int STEP = THREADS / LANES, ROW_BYTES = RECUR_PIECES * THREADS * (int)sizeof(float4);

    float4 *pieces; /* 16 bytes of a thread, of the next thread, ..; then those of the next piece */

    __device__ __forceinline__ float4 *piece_at(int r, int p) const
    {
        return pieces + (r * RECUR_PIECES + p) * THREADS + threadIdx.x;
    }

    /* `count` rows that begin at `from`, a multiple of the number of warps, into the L2 cache. */
    static __device__ __forceinline__ void prefetch(const float *from, int32_t count, int32_t k_size)
    {
#if __CUDA_ARCH__ >= 900
        const int32_t elements = count / (THREADS / 32) * k_size;
        if (threadIdx.x % 32 == 0) bulk_prefetch(from + threadIdx.x / 32 * elements, elements * (int)sizeof(float));
#endif
    }

    /* Starts to copy `count` rows, or zeros if `from` is NULL. states: any address that can be read. A row arrives
     * after the thread's rows before it, so that it can be computed and stored while others are on their way. */
    __device__ __forceinline__ void start(const float *from, const float *states, int32_t count, int32_t k_size) const
    {
        const uint64_t policy = evict_first_policy();
        for (int row = threadIdx.x / LANES, r = 0; r < STAGED_ROWS; row += STEP, r++) {
#pragma unroll
            for (int p = 0; p < RECUR_PIECES && row < count; p++) {
                const int column = lane_column<LANES>(threadIdx.x % LANES, p);
                const bool reads = from && column < k_size;
                copy_async(shared_address(piece_at(r, p)), reads ? from + (int64_t)row * k_size + column : states,
                           reads, policy);
            }
            copy_async_commit();
        }
    }

    /* Waits until row r has arrived. */
    static __device__ __forceinline__ void wait(int r)
    {
        static_assert(STAGED_ROWS == 4, "the cases");
        if (r == 0)
            copy_async_wait<3>();
        else if (r == 1)
            copy_async_wait<2>();
        else if (r == 2)
            copy_async_wait<1>();
        else
            copy_async_wait<0>();
    }

    __device__ __forceinline__ void load(float (&values)[RECUR_ELEMENTS], int r) const
    {
#pragma unroll
        for (int p = 0; p < RECUR_PIECES; p++) *(float4 *)&values[4 * p] = *piece_at(r, p);
    }

    /* To shared memory if `keeps`, and to the row `to` in a slot unless it is NULL. */
    __device__ __forceinline__ void store(const float (&values)[RECUR_ELEMENTS], int r, bool keeps, float *to,
                                          int32_t k_size) const
    {
#pragma unroll
        for (int p = 0; p < RECUR_PIECES; p++) {
            const int column = lane_column<LANES>(threadIdx.x % LANES, p);
            const float4 x = *(const float4 *)&values[4 * p];
            if (keeps) *piece_at(r, p) = x;
            if (to && column < k_size) __stcs((float4 *)(to + column), x);
        }
    }

    /* The state of an entry without a token is the one before. */
    __device__ __forceinline__ void copy_to(float *to, int32_t count, int32_t k_size) const
    {
        for (int row = threadIdx.x / LANES, r = 0; to && row < count; row += STEP, r++) {
            float values[RECUR_ELEMENTS];
            wait(r);
            load(values, r);
            store(values, r, false, to + (int64_t)row * k_size, k_size);
        }
    }
};

/* An entry of a chain: its token or -1, its slot, and whether another entry goes on from its state. */
struct chain_entry {
    int32_t token, slot;
    bool goes_on;
};

static __device__ __forceinline__ chain_entry load_entry(const struct state_batch &batch, int32_t i)
{
    const int32_t token = batch.query_start[i];
    return {batch.query_start[i + 1] > token ? token : -1, batch.slots[i],
            i + 1 < batch.num_seqs && batch.sources[i + 1] == STATE_CONTINUES};
}

#endif
