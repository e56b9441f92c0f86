/* The part of a matmul that a block computes, for the kernels that cut it into tiles of output features and tokens. */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_TILE_PART_CUH
#define QUIRE_KERNELS_CUDA_MATMUL_TILE_PART_CUH

#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/matmul/matmul.h"

/* How many tiles of n tokens there are at most: each segment with rows ends with a tile that may not be full. */
static inline int32_t token_tiles_of(const struct row_segments *segments, int32_t num_tokens, int32_t n)
{
    if (segments->count == 0) return (int32_t)cuda_div_up(num_tokens, n);
    return num_tokens / n + (segments->count < num_tokens ? segments->count : num_tokens);
}

/* Steps begin .. end - 1 of the input features, which are the `rank`-th part of them, of a tile of output features and
 * of a tile of tokens; num_tokens 0: of none. */
struct tile_part {
    int32_t rank, tile, begin, end, first_token, num_tokens;
    int32_t first_row; /* where the weight begins in those that lie one behind the other: its first output feature */
};

/* Finds tile number `token_tile` of the tokens of all segments. Each warp does it for itself, 32 segments at a time;
 * all of its lanes call it. */
template <int N>
static __device__ __forceinline__ void find_segment(tile_part &part, const row_segments &segments, int out_features,
                                                    int token_tile)
{
    const int lane = threadIdx.x % 32;
    wait_for_previous(); /* it may have written the starts */
    for (int first = 0; first < segments.count; first += 32) {
        const bool is_there = first + lane < segments.count;
        const int begin = is_there ? segments.starts[first + lane] : 0;
        const int end = is_there ? segments.starts[first + lane + 1] : 0, tiles = (end - begin + N - 1) / N;
        int sum = tiles; /* of this segment and those before */
#pragma unroll
        for (int offset = 1; offset < 32; offset *= 2) {
            const int before = __shfl_up_sync(~0u, sum, offset);
            if (lane >= offset) sum += before;
        }
        const uint32_t behind = __ballot_sync(~0u, sum > token_tile);
        if (behind) {
            const int found = __ffs(behind) - 1;
            part.first_token = __shfl_sync(~0u, begin + (token_tile - sum + tiles) * N, found);
            part.num_tokens = min(N, __shfl_sync(~0u, end, found) - part.first_token);
            part.first_row = (first + found) * out_features;
            return;
        }
        token_tile -= __shfl_sync(~0u, sum, 31);
    }
}

/* N: the tokens of a tile. */
template <int N>
static __device__ __forceinline__ tile_part find_part(const matmul &m, int tile, int token_tile, int rank, int splits,
                                                      int steps)
{
    tile_part part = {rank, tile, steps * rank / splits, steps * (rank + 1) / splits, 0, 0, 0};
    if (m.segments.count > 0) {
        find_segment<N>(part, m.segments, (int)m.out_features, token_tile);
    } else {
        part.first_token = token_tile * N;
        part.num_tokens = min(N, m.num_tokens - part.first_token);
    }
    return part;
}

#endif
