/* The layout of latent attention with wgmma (attention_wgmma.cu): shared memory and its barriers.
 *
 * Shared memory holds Q, STAGES chunks and P, as operands of wgmma: panels of 64 columns, which have rows of 128 bytes
 * in the 128-byte swizzle. A row of a chunk is a token: as K, a column of B; as V, a row of B. Rows of tiles and tokens
 * of chunks that do not exist are zeros, and so is what a rotated key lacks to 64 elements. Chunks of fp8 lie behind P
 * until they are converted. */
#ifndef QUIRE_KERNELS_CUDA_LATENT_WGMMA_TRAITS_CUH
#define QUIRE_KERNELS_CUDA_LATENT_WGMMA_TRAITS_CUH

#include "kernels/cuda/attention/attention_wgmma.cuh"
#include "kernels/cuda/attention/softmax.cuh"
#include "kernels/cuda/barrier.cuh"
#include "kernels/cuda/latent/plan.cuh"

enum { GROUP_THREADS = 128, HALVES = 2 /* of a chunk */ };

/* TOKENS, HEAD and VARIANT are for softmax.cuh. */
template <class Type, bool is_fp8, int latent_rank> struct wgmma_traits {
    using T = Type;
    static constexpr bool FP8 = is_fp8;
    static constexpr int RANK = latent_rank, ROWS = 64, CHUNK = 64;
    static constexpr int OVERHEAD = 1, LEAST_SHARE = 1;
    static constexpr int TOKENS = CHUNK, HEAD = RANK;
    static constexpr bool VARIANT = false;
    static constexpr int PANELS = (RANK + MAX_ROPE) / 64, PANEL_BYTES = 64 * 128; /* of Q, and of a chunk */
    static constexpr int CHUNK_BYTES = PANELS * PANEL_BYTES;
    static constexpr int STAGES = RANK == 512 ? (FP8 ? 1 : 2) : (FP8 ? 2 : 4);
    static constexpr int COLUMNS = RANK / 2;    /* of O, of a warpgroup */
    static constexpr int ELEMENT = FP8 ? 1 : 2; /* bytes, of the cache */
    /* Chunks of fp8 before they are converted: how many, pieces of 16 bytes of a thread, and bytes. */
    static constexpr int RAW_STAGES = FP8 ? (RANK == 512 ? 2 : 4) : 0, RAW_PIECES = HALVES * PANELS;
    static constexpr int RAW_BYTES = RAW_PIECES * GROUP_THREADS * 16;
    static constexpr int AHEAD = FP8 ? RAW_STAGES : STAGES; /* chunks that are copied ahead */
    static constexpr int CHUNKS_AT = CHUNK_BYTES, P_AT = CHUNKS_AT + STAGES * CHUNK_BYTES;
    static constexpr int RAW_AT = P_AT + PANEL_BYTES, SHARED_BYTES = RAW_AT + RAW_STAGES * RAW_BYTES;
};

#ifdef ATTENTION_HAVE_WGMMA

/* What passes between the warpgroups. Barriers are full when what they are named for is there, and empty when it may be
 * overwritten. */
template <class L> struct latent_shared {
    uint64_t full[L::STAGES], empty[L::STAGES][HALVES];
    uint64_t query_full, query_empty, weights_full, weights_empty;
    float factors[L::ROWS]; /* belong to the weights: what O is multiplied by before they are added */
    float last[L::ROWS];    /* belong to the last weights of a piece: what O is multiplied by in the end */
};

template <class L> static __device__ __forceinline__ void init_barriers(latent_shared<L> &shared)
{
    constexpr int VALUE_WARPS = 2 * GROUP_THREADS / LANES;
    for (int i = 0; i < L::STAGES; i++) {
        barrier_init(&shared.full[i], GROUP_THREADS);
        for (int h = 0; h < HALVES; h++) barrier_init(&shared.empty[i][h], VALUE_WARPS);
    }
    barrier_init(&shared.query_full, GROUP_THREADS);
    barrier_init(&shared.query_empty, GROUP_THREADS / LANES);
    barrier_init(&shared.weights_full, GROUP_THREADS);
    barrier_init(&shared.weights_empty, VALUE_WARPS);
    barrier_init_fence();
}

/* Where a warpgroup is: how many pieces and chunks it has finished, and the stage of the next chunk. */
struct latent_progress {
    uint32_t pieces, chunks;
    ring_place ring;
};

/* The scale of the cache. */
template <class L> static __device__ __forceinline__ float scale_of(const latent_attention_args &args)
{
    return L::FP8 ? args.kv_scales[0] : 1;
}

/* The place of piece `column` of 16 bytes of a row of a panel. */
static __device__ __forceinline__ uint32_t swizzled_place(int32_t row, int32_t column)
{
    return row * 128 + (column ^ row % 8) * 16;
}

#endif
#endif
