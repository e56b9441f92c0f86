/* The layout of prefill with wgmma: shared memory and its barriers. */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_PREFILL_CUH
#define QUIRE_KERNELS_CUDA_ATTENTION_PREFILL_CUH

#include "kernels/cuda/attention/softmax.cuh"
#include "kernels/cuda/attention/attention_wgmma.cuh"
#include "kernels/cuda/bulk_copy.cuh"

enum { GROUP_THREADS = 128, SHARED_LIMIT = 226 * 1024 }; /* with the barriers all that a block can have */

/* Shared memory holds stages of K, of V and of Q. They are operands of wgmma (attention_wgmma.cuh), in pieces of 16
 * bytes:
 *
 *     K [TOKENS / 8][HEAD / 8][8 tokens] pieces of 8 elements: core matrices, as they are in the cache;
 *     V [TOKENS / 16][HEAD] rows of 2 pieces of 8 tokens, swizzled: the rows of a cache with blocks of 16 tokens.
 *       With blocks of 8 tokens: [TOKENS / 8][HEAD] pieces;
 *     Q [HEAD / 8][ROWS] pieces of 8 elements, each group padded by one piece against bank conflicts.
 *
 * Behind them are K and V of an fp8 cache, until they are converted. */
template <class Type, bool is_fp8, int head_size, bool has_variant, int consumers, bool is_split = false,
          int tile_tokens = 128>
struct prefill_traits {
    using T = Type;
    static constexpr bool FP8 = is_fp8, VARIANT = has_variant, SPLIT = is_split;
    static constexpr int HEAD = head_size; /* padded to 64, 128, 256 */
    static constexpr bool TWO_SIZES = VARIANT && HEAD == 256;
    static constexpr int CONSUMERS = consumers, ROWS = 64 * CONSUMERS;
    static constexpr int THREADS = (1 + CONSUMERS) * GROUP_THREADS, Q_THREADS = FP8 ? GROUP_THREADS : 64;
    static constexpr int PRODUCER_REGISTERS = FP8 ? 56 : CONSUMERS == 2 ? 40 : 32;
    static constexpr int CONSUMER_REGISTERS = FP8 ? 224 : CONSUMERS == 2 ? 232 : 160;
    static constexpr int TOKENS = HEAD == 256 ? 64 : tile_tokens; /* of a tile of K or V */
    static constexpr int TILE_BYTES = TOKENS * HEAD * 2, TOKEN_BYTES = HEAD * 2;
    static constexpr int Q_STRIDE = (ROWS + 1) * 16, Q_BYTES = HEAD / 8 * Q_STRIDE, Q_STAGES = HEAD == 256 ? 1 : 2;
    static constexpr int RAW_BYTES = FP8 ? TILE_BYTES : 0; /* a tile of K and one of V, not yet converted */
    static constexpr int STAGES = (SHARED_LIMIT - Q_STAGES * Q_BYTES - RAW_BYTES) / TILE_BYTES;
    static constexpr int V_STAGES = STAGES / 2, K_STAGES = STAGES - V_STAGES;
    static constexpr int SHARED_BYTES = STAGES * TILE_BYTES + Q_STAGES * Q_BYTES + RAW_BYTES;
    static_assert(!SPLIT || CONSUMERS * GROUP_THREADS * (HEAD / 2 + 4) * 4 <= STAGES * TILE_BYTES, "store_part");
};

/* Barriers of a ring of stages: full ends a phase when a stage's data has arrived, empty when it may be overwritten.
 * Producer and consumers go through the same tiles in the same order, so they need nothing else to agree. */
template <int stages> struct prefill_barriers {
    uint64_t full[stages], empty[stages];
};

template <int stages>
static __device__ __forceinline__ void prefill_barriers_init(prefill_barriers<stages> *barriers, int writers,
                                                             int readers)
{
    for (int i = 0; i < stages; i++) {
        barrier_init(&barriers->full[i], writers);
        barrier_init(&barriers->empty[i], readers);
    }
}

template <class P> struct prefill_shared {
    prefill_barriers<P::K_STAGES> k_barriers;
    prefill_barriers<P::V_STAGES> v_barriers;
    prefill_barriers<P::Q_STAGES> q_barriers;
};

/* The stage that a producer or consumer is at, and the parity of its phase. */
template <int stages> struct prefill_stage {
    prefill_barriers<stages> *barriers;
    int32_t index;
    uint32_t parity;
};

template <int stages> static __device__ __forceinline__ uint64_t *prefill_full(const prefill_stage<stages> &stage)
{
    return &stage.barriers->full[stage.index];
}
template <int stages> static __device__ __forceinline__ void prefill_wait_full(const prefill_stage<stages> &stage)
{
    barrier_wait(&stage.barriers->full[stage.index], stage.parity);
}
/* For producers. The empty barrier is one phase behind the full one; waiting for the phase before the first returns at
 * once. */
template <int stages> static __device__ __forceinline__ void prefill_wait_empty(const prefill_stage<stages> &stage)
{
    barrier_wait(&stage.barriers->empty[stage.index], stage.parity ^ 1);
}
template <int stages> static __device__ __forceinline__ void prefill_stage_next(prefill_stage<stages> *stage)
{
    if (++stage->index == stages) stage->index = 0, stage->parity ^= 1;
}
/* A consumer has finished with a stage that only wgmma reads: each warp arrives once. */
template <int stages> static __device__ __forceinline__ void prefill_stage_release(prefill_stage<stages> *stage)
{
    if (threadIdx.x % 32 == 0) barrier_arrive(&stage->barriers->empty[stage->index]);
    prefill_stage_next(stage);
}
/* A consumer has finished with a stage that every thread has read and written: each thread arrives. */
template <int stages> static __device__ __forceinline__ void prefill_stage_return(prefill_stage<stages> *stage)
{
    barrier_arrive(&stage->barriers->empty[stage->index]);
    prefill_stage_next(stage);
}

/* The arguments of a launch: the call, and the caches as tensors (map_caches) for the copy engine, which copies boxes
 * of one head's K or V of a run of 16 tokens, or of 8 if a block has no more. */
struct prefill_call {
    CUtensorMap keys, values;
    struct attention_call call;
};

/* Tokens of a run. */
static inline __host__ __device__ int32_t run_tokens(const struct attention_args *args)
{
    return args->block_size < 16 ? args->block_size : 16;
}

#endif
