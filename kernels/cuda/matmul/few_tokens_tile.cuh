/* What the two kernels for matmuls with few tokens (few_tokens.cu, matmul_chain.cu) have in common: the part of the
 * matmul that a block computes, the norm of x in shared memory, and what becomes of the sums.
 *
 * A tile is TILE output features; of MATMUL_GATE TILE / 2 gates and the TILE / 2 ups that belong to them. MMA_WARPS
 * warps multiply. Each takes a share of the input features, and their sums are added at the end of a tile.
 *
 * Sums are added in a fixed order: within a warp, over the mma warps, over the parts of a tile. Different blocks
 * compute the parts of a tile, and the block that finishes last adds them up. */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_FEW_TOKENS_TILE_CUH
#define QUIRE_KERNELS_CUDA_MATMUL_FEW_TOKENS_TILE_CUH

#include "kernels/cuda/matmul/few_tokens.h"
#include "kernels/cuda/matmul/kernels.cuh"
#include "kernels/cuda/matmul/epilogue.cuh"

/* The call of a matmul that few_tokens_plan takes. */
static inline struct few_tokens_call few_tokens_call_of(struct backend *b, const struct matmul *m)
{
    const struct matmul_device device = matmul_device_of(b);
    uint8_t *workspace = cuda_state(b)->regions[CUDA_USER_LINEAR].data;
    struct few_tokens_call call = {};
    call.matmul = *m;
    few_tokens_plan(&device, m, &call.plan);
    if (workspace) {
        call.arrivals = (uint32_t *)workspace;
        call.partials = (float *)(call.arrivals + MAX_SPLIT_TILES);
    }
    return call;
}

/* Waits for the other mma warps. */
static __device__ __forceinline__ void mma_warps_sync()
{
    asm volatile("bar.sync 1, %0;" ::"r"((int)MMA_THREADS) : "memory");
}

/* A block's part of the matmul: tiles first_tile, first_tile + tile_step, ..., and of each the input features
 * [begin, begin + size), in `chunks` chunks. */
struct block_part {
    int32_t split, first_tile, tile_step;
    int64_t tiles, begin;
    int32_t size, chunks;
    int32_t x_row; /* bytes from a token of x to the next in shared memory */
};

template <int TILE>
static __device__ __forceinline__ block_part find_part(const struct few_tokens_plan &plan, const matmul &m)
{
    block_part p;
    p.split = blockIdx.x % plan.splits;
    p.tile_step = plan.blocks / plan.splits;
    p.first_tile = blockIdx.x / plan.splits;
    p.tiles = few_tokens_tiles(&m, TILE);
    p.begin = p.split * (int64_t)plan.part;
    const int64_t left = m.in_features - p.begin;
    p.size = (int32_t)(left < plan.part ? left : plan.part);
    p.chunks = (p.size + plan.chunk - 1) / plan.chunk;
    p.x_row = 2 * plan.part + SKEW;
    return p;
}

/* The output feature that a row of a tile is; -1: none, the row is beyond the last one. */
template <int TILE> static __device__ __forceinline__ int64_t feature_of(const matmul &m, int64_t tile, int row)
{
    if (m.result != MATMUL_GATE) {
        const int64_t o = tile * TILE + row;
        return o < m.out_features ? o : -1;
    }
    const int64_t half = m.out_features / 2, o = tile * (TILE / 2) + row % (TILE / 2);
    return o >= half ? -1 : row < TILE / 2 ? o : half + o;
}

template <class T> static __device__ __forceinline__ float square_sum(uint4 words)
{
    const T *x = (const T *)&words;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) sum += to_float(x[i]) * to_float(x[i]);
    return sum;
}

template <class T, class G> static __device__ __forceinline__ uint4 normalize(uint4 words, const G *gain, float factor)
{
    T *x = (T *)&words;
    G gains[8];
#pragma unroll
    for (int i = 0; i < (int)sizeof gains / 16; i++) ((uint4 *)gains)[i] = ((const uint4 *)gain)[i];
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] = from_float<T>(to_float(x[i]) * factor * to_float(gains[i]));
    return words;
}

/* rms_norm of x in shared memory, in place. Every block does it for itself, which costs less than a kernel and its
 * round trip through memory. One to eight warps share a token. sums: scratch for [tokens, MMA_WARPS]. */
template <class T>
static __device__ __forceinline__ void norm_x(const matmul &m, uint8_t *x, int x_row, const uint8_t *gain, float *sums)
{
    const int pieces = (int)(m.in_features / 8), tokens = m.num_tokens;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warps = tokens == 1 ? 8 : tokens == 2 ? 4 : tokens <= 4 ? 2 : 1; /* of a token */
    const int first = warp % warps * 32 + lane;
    for (int token = warp / warps; token < tokens; token += MMA_WARPS / warps) {
        float sum = 0;
#pragma unroll 4
        for (int i = first; i < pieces; i += warps * 32) sum += square_sum<T>(*(uint4 *)(x + token * x_row + i * 16));
        for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
        if (lane == 0) sums[token * MMA_WARPS + warp % warps] = sum;
    }
    mma_warps_sync();
    for (int token = warp / warps; token < tokens; token += MMA_WARPS / warps) {
        float sum = 0;
        for (int i = 0; i < warps; i++) sum += sums[token * MMA_WARPS + i];
        const float factor = rsqrtf(sum / (float)m.in_features + m.eps);
#pragma unroll 4
        for (int i = first; i < pieces; i += warps * 32) {
            uint4 *words = (uint4 *)(x + token * x_row + i * 16);
            *words = m.gain_is_float ? normalize<T>(*words, (const float *)gain + i * 8, factor)
                                     : normalize<T>(*words, (const T *)gain + i * 8, factor);
        }
    }
}

/* A warp's sums of a tile, in the layout of the mma instruction, into sums [tokens, TILE]. TILE is 16. */
template <int TILE, int GROUPS>
static __device__ __forceinline__ void leave_sums(float *sums, const float (&sum)[GROUPS][4])
{
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < GROUPS; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) sums[(8 * n + 2 * t + i % 2) * TILE + g + i / 2 * 8] = sum[n][i];
}

/* An element of a tile's result that a thread stores, and what it reads for that before the sum is there: the biases
 * and the element of out that the sum is added to. A tile has at most as
 * many elements as there are mma threads. */
struct result_place {
    bool is_there;
    int token, row; /* of the tile */
    int64_t at;     /* in out */
    float bias, up_bias, before;
};

/* Element i of a tile. */
template <class T, int TILE>
static __device__ __forceinline__ result_place find_place(const matmul &m, int64_t tile, int i)
{
    const int rows = m.result == MATMUL_GATE ? TILE / 2 : TILE;
    result_place place = {};
    place.token = i / rows;
    place.row = i % rows;
    const int64_t o = feature_of<TILE>(m, tile, place.row);
    place.is_there = place.token < m.num_tokens && o >= 0;
    if (!place.is_there) return place;
    place.at = place.token * m.out_stride + o;
    if (m.bias) place.bias = to_float(((const T *)m.bias)[o]);
    if (m.bias && m.result == MATMUL_GATE) place.up_bias = to_float(((const T *)m.bias)[m.out_features / 2 + o]);
    if (m.result == MATMUL_ADD) place.before = to_float(((const T *)m.out)[place.at]);
    return place;
}

/* total(row) returns the sum of the place's token and a row of the tile. */
template <class T, int TILE, class Total>
static __device__ __forceinline__ void write_result(const matmul &m, const result_place &place, Total total)
{
    if (!place.is_there) return;
    const float y = total(place.row) + place.bias;
    if (m.result == MATMUL_GATE) {
        const float up = total(place.row + TILE / 2) + place.up_bias;
        ((T *)m.out)[place.at] = from_float<T>(gate_times_up<T>(m.activation, y, up));
    } else if (m.result == MATMUL_ADD) {
        ((T *)m.out)[place.at] = from_float<T>(place.before + to_float(from_float<T>(y)));
    } else if (m.out_is_float) {
        ((float *)m.out)[place.at] = y;
    } else {
        ((T *)m.out)[place.at] = from_float<T>(y);
    }
}

/* Finishes a tile: adds up the warps' sums [MMA_WARPS, tokens, TILE] and stores the result, or leaves the sums of this
 * part for the block that finishes the tile last. */
template <class T, int TILE, int COUNT>
static __device__ __forceinline__ void finish_tile(const few_tokens_call &c, const block_part &p, int64_t tile,
                                                   const result_place &place, const float *sums, int *is_last)
{
    auto of_warps = [&](int i) {
        float total = 0;
#pragma unroll
        for (int w = 0; w < MMA_WARPS; w++) total += sums[w * COUNT + i];
        return total;
    };
    const matmul &m = c.matmul;
    const int splits = c.plan.splits;
    if (splits == 1) {
        write_result<T, TILE>(m, place, [&](int row) { return of_warps(place.token * TILE + row); });
        return;
    }
    float *parts = c.partials + tile * splits * COUNT;
    for (int i = threadIdx.x; i < m.num_tokens * TILE; i += MMA_THREADS)
        __stcg(&parts[p.split * COUNT + i], of_warps(i));
    __threadfence();
    mma_warps_sync();
    if (threadIdx.x == 0) *is_last = atomicInc(&c.arrivals[tile], splits - 1) == (uint32_t)splits - 1;
    mma_warps_sync();
    if (!*is_last) return;
    __threadfence();
    write_result<T, TILE>(m, place, [&](int row) {
        float total = 0;
        for (int s = 0; s < splits; s++) total += __ldcg(&parts[s * COUNT + place.token * TILE + row]);
        return total;
    });
}

#endif
