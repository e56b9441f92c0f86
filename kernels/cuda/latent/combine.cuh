/* Adding up the sums of a tile's pieces (plan.cuh). A warp takes an item at a time: SLICE columns of a row, of which a
 * lane has four. */
#ifndef QUIRE_KERNELS_CUDA_LATENT_COMBINE_CUH
#define QUIRE_KERNELS_CUDA_LATENT_COMBINE_CUH

#include "kernels/cuda/attention/attention_mma.cuh"
#include "kernels/cuda/latent/plan.cuh"

enum { SLICE = LANES * 4 };

/* Sums of some pieces: the largest maximum, in powers of two, and relative to it the weights and a lane's columns. */
struct latent_sums {
    float max, weight;
    float4 sum;
};

static __device__ __forceinline__ void add_sums(latent_sums &s, float now, float weight, float4 x)
{
    s.weight += weight * now;
    s.sum.x += x.x * now, s.sum.y += x.y * now, s.sum.z += x.z * now, s.sum.w += x.w * now;
}

/* Replaces the maximum by `max`, which is not less; returns what weights are relative to. */
static __device__ __forceinline__ float raise_max(latent_sums &s, float max)
{
    const float base = max == -INFINITY ? 0 : max, old = exp2_fast(s.max - base);
    s.max = max;
    s.weight *= old;
    s.sum.x *= old, s.sum.y *= old, s.sum.z *= old, s.sum.w *= old;
    return base;
}

/* Adds pieces first, first + step, ... of items item, item + item_step, ... to s, PIECES of each at a time, which are
 * loaded at once. Items that do not exist get no sums. */
template <int RANK, int ITEMS, int PIECES>
static __device__ __forceinline__ void sum_pieces(const latent_plan &plan, const latent_tile &tile, int32_t item,
                                                  int32_t item_step, int32_t first, int32_t step,
                                                  latent_sums (&s)[ITEMS])
{
    constexpr int SLICES = RANK / SLICE;
    const int32_t items = tile.rows * SLICES;
#pragma unroll
    for (int n = 0; n < ITEMS; n++) s[n] = {-INFINITY, 0, {0, 0, 0, 0}};
    for (; first < tile.pieces; first += PIECES * step) {
        float2 stats[ITEMS][PIECES];
        float4 x[ITEMS][PIECES];
#pragma unroll
        for (int n = 0; n < ITEMS; n++)
#pragma unroll
            for (int k = 0; k < PIECES; k++) {
                const int32_t at = item + n * item_step, i = first + k * step, column = at % SLICES * SLICE;
                const int64_t place = (int64_t)(i == 0 ? tile.first : tile.first + 2 * i - 1) * MAX_ROWS + at / SLICES;
                stats[n][k] = make_float2(-INFINITY, 0), x[n][k] = make_float4(0, 0, 0, 0);
                if (at >= items || i >= tile.pieces) continue;
                stats[n][k] = __ldcg(plan.stats + place);
                x[n][k] =
                    __ldcg((const float4 *)(plan.partials + place * RANK + column) + (int32_t)(threadIdx.x % LANES));
            }
#pragma unroll
        for (int n = 0; n < ITEMS; n++) {
            float max = s[n].max;
#pragma unroll
            for (int k = 0; k < PIECES; k++) max = fmaxf(max, stats[n][k].x);
            const float base = raise_max(s[n], max);
#pragma unroll
            for (int k = 0; k < PIECES; k++) add_sums(s[n], exp2_fast(stats[n][k].x - base), stats[n][k].y, x[n][k]);
        }
    }
}

/* What warps have summed, in shared memory. */
struct warp_sums_shared {
    float4 sums[WARPS][LANES];
    float2 stats[WARPS];
};

/* Adds up the sums of `share` neighbouring warps in those of the first of them. sync() is a barrier of all warps that
 * call this function. */
template <class Sync>
static __device__ __forceinline__ void add_warps(latent_sums &s, int32_t share, warp_sums_shared &shared, Sync sync)
{
    const int32_t lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    shared.sums[warp][lane] = s.sum;
    if (lane == 0) shared.stats[warp] = make_float2(s.max, s.weight);
    sync();
    if (warp % share == 0) {
        float max = s.max;
        for (int w = 1; w < share; w++) max = fmaxf(max, shared.stats[warp + w].x);
        const float base = raise_max(s, max);
        for (int w = 1; w < share; w++)
            add_sums(s, exp2_fast(shared.stats[warp + w].x - base), shared.stats[warp + w].y,
                     shared.sums[warp + w][lane]);
    }
    sync();
}

/* Stores a lane's result of an item. scale: of the cache. */
template <class T, int RANK>
static __device__ __forceinline__ void store_item(T *out, const latent_tile &tile, int32_t item, const latent_sums &s,
                                                  float scale)
{
    constexpr int SLICES = RANK / SLICE;
    const int32_t column = item % SLICES * SLICE + (int32_t)(threadIdx.x % LANES) * 4;
    const float factor = s.weight == 0 ? 0 : scale / s.weight;
    const uint2 pairs = {pack_pair<T>(s.sum.x * factor, s.sum.y * factor),
                         pack_pair<T>(s.sum.z * factor, s.sum.w * factor)};
    *(uint2 *)(out + (int64_t)(tile.row + item / SLICES) * RANK + column) = pairs;
}

#endif
