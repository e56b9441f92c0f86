/* What the kernels share that decode a quantized weight in registers and multiply it with wgmma
 * (linear_wgmma_quantized.cu, linear_wgmma_int4.cu). */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_LINEAR_WGMMA_ENCODED_CUH
#define QUIRE_KERNELS_CUDA_MATMUL_LINEAR_WGMMA_ENCODED_CUH

#include "kernels/cuda/matmul/encoded.cuh"
#include "kernels/cuda/matmul/linear_wgmma_tile.cuh"

struct quantized_wgmma_call : tiled_matmul {
    CUtensorMap weight, x;  /* in boxes of tile_rows (half as many with MATMUL_GATE) and of N rows */
    int32_t groups;         /* of a row */
    int32_t scales_of_step; /* 1, 2 or 4 for each row */
    int32_t groups_of_step; /* 1, or 0 if a row is one group: of linear_wgmma_int4.cu */
    int32_t steps;          /* of all parts together */
    int32_t token_tiles;
    int32_t weight_stages, weight_stage_bytes, token_stages;
    bool eights; /* eight elements of a row of out, which are 16 bytes, can be moved as one: of
                    linear_wgmma_quantized.cu */
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <int N> static __device__ __forceinline__ block_part find_quantized_part(const quantized_wgmma_call &call)
{
    block_part part;
    const int index = blockIdx.x / call.splits;
    part.rank = blockIdx.x % call.splits;
    part.tile = index / call.token_tiles;
    part.begin = part.first = call.steps * part.rank / call.splits;
    part.end = call.steps * (part.rank + 1) / call.splits;
    part.first_token = index % call.token_tiles * N;
    part.num_tokens = min(N, call.matmul.num_tokens - part.first_token);
    return part;
}

/* Waits until a stage that is to be filled is free. */
static __device__ __forceinline__ void wait_until_free(const step_ring &ring, const ring_place &at)
{
    if (at.round > 0) barrier_wait(&ring.empty[at.stage], (at.round - 1) & 1);
}

/* The output feature of a row of the tile; one that exists. */
static __device__ __forceinline__ int feature_of(const quantized_wgmma_call &call, int tile, int row)
{
    const int features = (int)call.matmul.out_features, half = call.tile_rows / 2;
    const int feature = call.matmul.result != MATMUL_GATE ? tile * call.tile_rows + row
                        : row < half                      ? tile * half + row
                                                          : features / 2 + tile * half + row - half;
    return min(feature, features - 1);
}

static __device__ __forceinline__ uint2 shared_load_2(uint32_t address)
{
    uint2 x;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];\n" : "=r"(x.x), "=r"(x.y) : "r"(address));
    return x;
}

/* The rows of a tile that a thread has in each of its row blocks: this one and the one 8 behind it. */
template <int ROW_BLOCKS> static __device__ __forceinline__ int row_of_thread(int block)
{
    return (threadIdx.x / GROUP * ROW_BLOCKS + block) * 64 + threadIdx.x % GROUP / 32 * 16 + threadIdx.x % 32 / 4;
}

#endif

/* A map of the weight's bytes, which count as 16-bit elements, in boxes of a step. */
static bool map_weight(CUtensorMap *out, const struct matmul *m, int32_t box_rows)
{
    const bool is_int4 = m->format == WEIGHT_INT4;
    const int64_t elements = m->in_features / (is_int4 ? 4 : 2);
    const struct tensor_map_args args = {m->weight,
                                         2,
                                         {elements, m->out_features},
                                         {elements},
                                         {is_int4 ? STEP / 4 : STEP / 2, box_rows},
                                         is_int4 ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B,
                                         CU_TENSOR_MAP_L2_PROMOTION_L2_128B};
    return tensor_map_encode(out, &args);
}

#endif
