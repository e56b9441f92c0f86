/* What the kernels for few tokens share whose warps multiply with mma.cuh (few_tokens.cu, matmul_chain.cu,
 * few_tokens_quantized.cu): the part of the matmul that a block computes, the norm of x in shared memory, and the way
 * from the sums to the epilogue.
 *
 * A tile is TILE output features; of MATMUL_GATE TILE / 2 gates and the TILE / 2 ups that belong to them. MMA_WARPS
 * warps multiply. Each takes a share of the input features, and their sums are added at the end of a tile.
 *
 * Sums are added in a fixed order: within a warp, over the mma warps, over the parts of a tile. Different blocks
 * compute the parts of a tile, and the block that finishes last adds them up. */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_FEW_TOKENS_TILE_CUH
#define QUIRE_KERNELS_CUDA_MATMUL_FEW_TOKENS_TILE_CUH

#include "kernels/cuda/matmul/epilogue.cuh"
#include "kernels/cuda/matmul/few_tokens.h"
#include "kernels/cuda/matmul/kernels.cuh"
#include "kernels/cuda/warp.cuh"

/* Tells a call where the sums of parts lie, if there is room for them. */
static inline void few_tokens_find_partials(struct backend *b, struct few_tokens_call *call)
{
    uint8_t *workspace = cuda_state(b)->regions[CUDA_USER_LINEAR].data;
    call->arrivals = (uint32_t *)workspace;
    call->partials = workspace ? (float *)(call->arrivals + MAX_SPLIT_TILES) : NULL;
}

/* The call of a matmul that few_tokens_plan takes. */
static inline struct few_tokens_call few_tokens_call_of(struct backend *b, const struct matmul *m)
{
    const struct matmul_device device = matmul_device_of(b);
    struct few_tokens_call call = {};
    call.matmul = *m;
    few_tokens_plan(&device, m, &call.plan);
    few_tokens_find_partials(b, &call);
    return call;
}

/* Waits for the other mma warps. */
static __device__ __forceinline__ void mma_warps_sync()
{
    asm volatile("bar.sync 1, %0;" ::"r"((int)MMA_THREADS) : "memory");
}

/* A block's part of the matmul: tiles first_tile, first_tile + columns, ... below plan.tiles, and of each the input
 * features [begin, begin + size), in `chunks` chunks. */
struct block_part {
    int split, first_tile, begin, size, chunks;
};

/* chunk is the plan's, which some kernels know at compile time. */
static __device__ __forceinline__ block_part find_part(const few_tokens_call &c, int chunk)
{
    const struct few_tokens_plan &plan = c.plan;
    block_part p;
    p.split = blockIdx.x & (plan.splits - 1);
    p.first_tile = blockIdx.x >> plan.split_shift;
    p.begin = p.split * plan.part;
    p.size = min((int)c.matmul.in_features - p.begin, plan.part);
    p.chunks = (p.size + chunk - 1) / chunk;
    return p;
}

/* The output feature that a row of a tile is; -1: none, the row is beyond the last one. */
template <int TILE> static __device__ __forceinline__ int feature_of(const matmul &m, int tile, int row)
{
    const int features = (int)m.out_features, half = features / 2;
    if (m.result != MATMUL_GATE) return tile * TILE + row < features ? tile * TILE + row : -1;
    const int o = tile * (TILE / 2) + row % (TILE / 2);
    return o >= half ? -1 : row < TILE / 2 ? o : half + o;
}

/* ---- the norm of x ---- */

/* The mma threads that share a token of x, a power of two of warps: a thread has pieces first, first + step, ... of
 * eight elements. */
struct token_share {
    int token, token_step, warps, first, step;
};

static __device__ __forceinline__ token_share share_tokens(int tokens)
{
    const int shift = tokens == 1 ? 3 : tokens == 2 ? 2 : tokens <= 4 ? 1 : 0, threads = 32 << shift;
    return {(int)threadIdx.x / 32 >> shift, MMA_WARPS >> shift, 1 << shift, (int)threadIdx.x & (threads - 1), threads};
}

template <class T> static __device__ __forceinline__ float square_sum(uint4 words)
{
    const T *x = (const T *)&words;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) sum += to_float(x[i]) * to_float(x[i]);
    return sum;
}

/* Piece i times the norm's factor and its gains. */
template <class T, class G>
static __device__ __forceinline__ uint4 normalize(uint4 words, const G *gain, int i, float factor)
{
    T *x = (T *)&words;
    G gains[8];
#pragma unroll
    for (int k = 0; k < (int)sizeof gains / 16; k++) ((uint4 *)gains)[k] = ((const uint4 *)(gain + 8 * i))[k];
#pragma unroll
    for (int k = 0; k < 8; k++) x[k] = from_float<T>(to_float(x[k]) * factor * to_float(gains[k]));
    return words;
}
template <class T>
static __device__ __forceinline__ uint4 normalize(const matmul &m, uint4 words, const uint8_t *gain, int i,
                                                  float factor)
{
    return m.gain_is_float ? normalize<T>(words, (const float *)gain, i, factor)
                           : normalize<T>(words, (const T *)gain, i, factor);
}

/* rms_norm of x in shared memory, in place. Every block does it for itself, which costs less than a kernel and its
 * round trip through memory. sums: scratch for [tokens, MMA_WARPS]. */
template <class T>
static __device__ __forceinline__ void norm_x(const matmul &m, uint8_t *x, int x_row, const uint8_t *gain, float *sums)
{
    const int pieces = (int)(m.in_features / 8), tokens = m.num_tokens;
    const token_share share = share_tokens(tokens);
    for (int token = share.token; token < tokens; token += share.token_step) {
        float sum = 0;
#pragma unroll 4
        for (int i = share.first; i < pieces; i += share.step)
            sum += square_sum<T>(*(uint4 *)(x + token * x_row + i * 16));
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) sums[token * MMA_WARPS + share.first / 32] = sum;
    }
    mma_warps_sync();
    for (int token = share.token; token < tokens; token += share.token_step) {
        float sum = 0;
        for (int i = 0; i < share.warps; i++) sum += sums[token * MMA_WARPS + i];
        const float factor = rsqrtf(sum / (float)m.in_features + m.eps);
#pragma unroll 4
        for (int i = share.first; i < pieces; i += share.step) {
            uint4 *words = (uint4 *)(x + token * x_row + i * 16);
            *words = normalize<T>(m, *words, gain, i, factor);
        }
    }
}

/* ---- sums ---- */

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

/* An element of a tile's result that a thread stores. A tile has at most as many as there are mma threads. */
template <class T> struct tile_element {
    bool is_there;
    int sum; /* of [tokens, TILE]; that of up is TILE / 2 further */
    out_element<T> out;
};

/* Element i of a tile, with all that is loaded for it. */
template <class T, int TILE>
static __device__ __forceinline__ tile_element<T> find_element(const matmul &m, int tile, int i)
{
    const int rows = m.result == MATMUL_GATE ? TILE / 2 : TILE, token = i / rows, row = i % rows;
    const int feature = feature_of<TILE>(m, tile, row);
    if (token >= m.num_tokens || feature < 0) return {};
    tile_element<T> element = {true, token * TILE + row, out_element_of<T>(m, token, feature)};
    load_before(m, element.out);
    return element;
}

/* total(i) returns sum i of [tokens, TILE]. */
template <class T, int TILE, class Total>
static __device__ __forceinline__ void finish(const matmul &m, const tile_element<T> &element, Total total)
{
    if (!element.is_there) return;
    finish_element(
        m, element.out, [&] { return total(element.sum); }, [&] { return total(element.sum + TILE / 2); });
}

/* Where the sums of a part of a tile are left, [tokens, TILE] padded to COUNT, for the block that finishes last. */
template <int COUNT> static __device__ __forceinline__ float *part_sums(const few_tokens_call &c, int tile, int split)
{
    return c.partials + ((int64_t)tile * c.plan.splits + split) * COUNT;
}

/* Whether the other parts of a tile have arrived. By one thread, once all threads' sums can be seen. */
static __device__ __forceinline__ bool arrives_last(const few_tokens_call &c, int tile)
{
    const uint32_t last = c.plan.splits - 1;
    return atomicInc(&c.arrivals[tile], last) == last;
}

template <int COUNT> static __device__ __forceinline__ float sum_of_parts(const few_tokens_call &c, int tile, int i)
{
    const float *parts = part_sums<COUNT>(c, tile, 0);
    const int splits = c.plan.splits;
    float total = 0;
    for (int k = 0; k < splits; k++) total += __ldcg(&parts[k * COUNT + i]);
    return total;
}

/* Finishes a tile: adds up the warps' sums [MMA_WARPS, tokens, TILE] and stores the result, or leaves the sums of this
 * part for the block that finishes the tile last. */
template <class T, int TILE, int COUNT>
static __device__ __forceinline__ void finish_tile(const few_tokens_call &c, int split, int tile,
                                                   const tile_element<T> &element, const float *sums, int *is_last)
{
    auto of_warps = [&](int i) {
        float total = 0;
#pragma unroll
        for (int w = 0; w < MMA_WARPS; w++) total += sums[w * COUNT + i];
        return total;
    };
    if (c.plan.splits == 1) return finish<T, TILE>(c.matmul, element, of_warps);
    for (int i = threadIdx.x; i < c.matmul.num_tokens * TILE; i += MMA_THREADS)
        __stcg(&part_sums<COUNT>(c, tile, split)[i], of_warps(i));
    __threadfence();
    mma_warps_sync();
    if (threadIdx.x == 0) *is_last = arrives_last(c, tile);
    mma_warps_sync();
    if (!*is_last) return;
    __threadfence();
    finish<T, TILE>(c.matmul, element, [&](int i) { return sum_of_parts<COUNT>(c, tile, i); });
}

#endif
