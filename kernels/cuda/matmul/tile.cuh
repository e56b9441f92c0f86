/* Matmuls that are cut into tiles of output features and tokens: which tile a block computes, and how its sums become a
 * part of out. */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_TILE_CUH
#define QUIRE_KERNELS_CUDA_MATMUL_TILE_CUH

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/matmul/epilogue.cuh"

/* With MATMUL_GATE half of a tile are features of the gate, and the other half are the features of up that belong to
 * them. */
struct tiled_matmul {
    struct matmul matmul;
    int32_t tile_rows; /* output features of a tile: a multiple of 8, with MATMUL_GATE of 16 */
    int32_t token_tiles;
    int32_t splits; /* parts of a tile along the input features, each by a block */
    int32_t steps;  /* of all parts together */
    bool fours;     /* four elements of a row of out can be moved as one */
};

/* How many tiles of n tokens there are at most: each segment with rows ends with a tile that may not be full. */
static inline int32_t token_tiles_of(const struct row_segments *segments, int32_t num_tokens, int32_t n)
{
    if (segments->count == 0) return (int32_t)cuda_div_up(num_tokens, n);
    return num_tokens / n + (segments->count < num_tokens ? segments->count : num_tokens);
}

/* What a block computes: part `rank` of the input features, which is steps begin .. end - 1, of a tile of output
 * features and a tile of tokens. num_tokens 0: there is no such tile of tokens. */
struct tile_part {
    int32_t rank, tile, begin, end, first_token, num_tokens;
    int32_t first_row; /* where the weight begins in those that lie one behind the other: its first output feature */
};

/* Finds tile number `token_tile` of the tokens of all segments; `part` stays as it is if there are fewer. Each warp
 * does it for itself, for 128 segments at a time, four for each lane, so that the starts are loaded at once; all of its
 * lanes call it. */
template <int N>
static __device__ __forceinline__ void find_segment(tile_part &part, const row_segments &segments, int out_features,
                                                    int token_tile)
{
    constexpr int EACH = 4;
    const int lane = threadIdx.x % 32;
    wait_for_previous(); /* it may have written the starts */
    for (int first = 0; first < segments.count; first += 32 * EACH) {
        const int own = first + lane * EACH;
        int starts[EACH + 1], tiles = 0; /* tiles of the lane's segments */
#pragma unroll
        for (int i = 0; i <= EACH; i++) starts[i] = segments.starts[min(own + i, segments.count)];
#pragma unroll
        for (int i = 0; i < EACH; i++) tiles += (starts[i + 1] - starts[i] + N - 1) / N;
        int sum = tiles; /* of these segments and those before */
#pragma unroll
        for (int offset = 1; offset < 32; offset *= 2) {
            const int before = __shfl_up_sync(~0u, sum, offset);
            if (lane >= offset) sum += before;
        }
        const uint32_t behind = __ballot_sync(~0u, sum > token_tile);
        if (behind) {
            int tile = token_tile - (sum - tiles), begin = starts[0], end = starts[1], segment = own;
#pragma unroll
            for (int i = 1; i < EACH; i++) {
                const int of_segment = (end - begin + N - 1) / N;
                if (tile < of_segment) continue;
                tile -= of_segment, begin = starts[i], end = starts[i + 1], segment = own + i;
            }
            const int found = __ffs(behind) - 1;
            part.first_token = __shfl_sync(~0u, begin + tile * N, found);
            part.num_tokens = min(N, __shfl_sync(~0u, end, found) - part.first_token);
            part.first_row = __shfl_sync(~0u, segment, found) * out_features;
            return;
        }
        token_tile -= __shfl_sync(~0u, sum, 31);
    }
}

/* N: the tokens of a tile. */
template <int N>
static __device__ __forceinline__ tile_part find_part(const tiled_matmul &call, int tile, int token_tile, int rank)
{
    const matmul &m = call.matmul;
    tile_part part = {
        rank, tile, call.steps * rank / call.splits, call.steps * (rank + 1) / call.splits, token_tile * N, 0, 0};
    part.num_tokens = min(N, m.num_tokens - part.first_token);
    if (m.segments.count > 0) {
        part.num_tokens = 0;
        find_segment<N>(part, m.segments, (int)m.out_features, token_tile);
    }
    return part;
}

/* Output features of a tile, with MATMUL_GATE of the gate. */
static __device__ __forceinline__ int box_rows(const tiled_matmul &call)
{
    return call.matmul.result == MATMUL_GATE ? call.tile_rows / 2 : call.tile_rows;
}

/* ---- the end of a tile ---- */

/* Loads pieces of a token's sums, and adds them over the blocks of a cluster. Those of other blocks take long to load,
 * so all loads of a round are started before the first is used. */
template <int COUNT>
static __device__ __forceinline__ void load_pieces(piece<float, 4> (&y)[COUNT], const float *const (&from)[COUNT],
                                                   int splits)
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) y[i] = splits == 1 ? *(const piece<float, 4> *)from[i] : piece<float, 4>{};
    if (splits == 1) return;
#pragma unroll 4
    for (int rank = 0; rank < splits; rank++) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const float4 part = cluster_load_4(cluster_address(from[i], rank));
            y[i].values[0] += part.x, y[i].values[1] += part.y, y[i].values[2] += part.z, y[i].values[3] += part.w;
        }
    }
}

/* Loads pieces of results, which are whole. */
template <class T, int N, int COUNT>
static __device__ __forceinline__ void load_pieces(piece<T, N> (&y)[COUNT], const T *const (&from)[COUNT], int)
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) y[i] = *(const piece<T, N> *)from[i];
}

/* By all threads that multiply: writes a tile that lies in shared memory, [tokens of the tile, stride] Y: sums or, with
 * the type of out, results that have been rounded with their bias. The blocks of a cluster share the tokens. A thread
 * has N output features (with MATMUL_GATE of the gate and the same of up) of some tokens, AT_ONCE at a time. */
template <class T, class L, class Out, bool GATED, int N, int AT_ONCE, class Y>
static __device__ __forceinline__ void write_tile(const tiled_matmul &call, const tile_part &part, const Y *shared,
                                                  int stride, int splits, bool as_one)
{
    constexpr int HALVES = GATED ? 2 : 1, PIECES = L::ROWS / HALVES / N, STEP = L::MMA_THREADS / PIECES;
    const matmul &m = call.matmul;
    const int rows = box_rows(call), row = threadIdx.x % PIECES * N, feature = part.tile * rows + row;
    const int count = min(N, (int)m.out_features / HALVES - feature);
    const int end = part.num_tokens * (part.rank + 1) / splits;
    if (row >= rows || count <= 0) return;
    const biases<T, N> bias = load_biases<T, N>(m, part.first_row + feature, count);
    Out *to = (Out *)m.out + feature + part.first_token * m.out_stride;
#pragma unroll 1
    for (int token = part.num_tokens * part.rank / splits + threadIdx.x / PIECES; token < end;
         token += AT_ONCE * STEP) {
        const Y *from[AT_ONCE * HALVES];
        piece<T, N> before[AT_ONCE];
        piece<Y, N> y[AT_ONCE * HALVES];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int at = token + k * STEP < end ? token + k * STEP : token;
#pragma unroll
            for (int h = 0; h < HALVES; h++) from[HALVES * k + h] = shared + at * stride + row + h * rows;
            if (!GATED) before[k] = load_before<T, N>(m, out_run<Out>{to + at * m.out_stride, count, as_one});
        }
        load_pieces(y, from, splits);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const out_run<Out> run = {to + (token + k * STEP) * m.out_stride, count, as_one};
            if (token + k * STEP >= end) continue;
            if constexpr (GATED)
                finish_gated<T>(m, run, y[2 * k], y[2 * k + 1], bias);
            else
                finish_sums<T>(m, run, y[k], bias, before[k]);
        }
    }
}

#endif
