/* What the operations of this folder share. */
#ifndef QUIRE_KERNELS_CUDA_RECURRENCE_BATCH_CUH
#define QUIRE_KERNELS_CUDA_RECURRENCE_BATCH_CUH

#include "kernels/cuda/state.cuh"

/* exp(x), as exactly as T is. */
template <class T> static __device__ __forceinline__ float exponential(float x)
{
    return sizeof(T) == 4 ? expf(x) : __expf(x);
}

/* The entries that are no decodes. */
static inline struct state_batch prefills_of(const struct state_batch &batch)
{
    struct state_batch out = batch;
    out.query_start += batch.num_decodes;
    out.sources += batch.num_decodes;
    out.slots += batch.num_decodes;
    out.num_seqs -= batch.num_decodes;
    out.num_decodes = 0;
    return out;
}

#endif
