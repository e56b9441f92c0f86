/* Combines the pieces of tiles of latent attention (plan.cuh). A warp takes a row of a tile, and SLICE columns of it,
 * at a time; where pieces are many, several warps share them, so that a warp loads nearly all of its pieces at once. */
#include "kernels/cuda/attention/attention_mma.cuh"
#include "kernels/cuda/latent/plan.cuh"

enum { SLICE = LANES * 4 /* columns */, BATCH = 8 /* pieces that a warp loads at once */ };

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

/* Pieces first, first + step, ... of a row; `column` is the lane's first. */
template <int RANK>
static __device__ __forceinline__ latent_sums sum_pieces(const latent_plan &plan, const latent_tile &tile, int32_t row,
                                                         int32_t column, int32_t first, int32_t step)
{
    latent_sums s = {-INFINITY};
    for (; first < tile.pieces; first += BATCH * step) {
        float2 stats[BATCH];
        float4 x[BATCH];
        float max = s.max;
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            const int32_t i = first + k * step;
            const int64_t place = (int64_t)(i == 0 ? tile.first : tile.first + 2 * i - 1) * MAX_ROWS + row;
            stats[k] = make_float2(-INFINITY, 0), x[k] = make_float4(0, 0, 0, 0);
            if (i < tile.pieces) {
                stats[k] = plan.stats[place];
                x[k] = *(const float4 *)(plan.partials + place * RANK + column);
            }
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) max = fmaxf(max, stats[k].x);
        const float base = raise_max(s, max);
#pragma unroll
        for (int k = 0; k < BATCH; k++) add_sums(s, exp2_fast(stats[k].x - base), stats[k].y, x[k]);
    }
    return s;
}

/* Adds up the sums of `share` warps, each of which calls it; those of the first are complete then. All warps of the
 * block pass the barriers. */
static __device__ __forceinline__ void add_warps(latent_sums &s, int32_t share)
{
    __shared__ float4 sums[WARPS][LANES];
    __shared__ float2 stats[WARPS];
    const int32_t lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    sums[warp][lane] = s.sum;
    if (lane == 0) stats[warp] = make_float2(s.max, s.weight);
    __syncthreads();
    if (warp % share == 0) {
        float max = s.max;
        for (int w = 1; w < share; w++) max = fmaxf(max, stats[warp + w].x);
        const float base = raise_max(s, max);
        for (int w = 1; w < share; w++)
            add_sums(s, exp2_fast(stats[warp + w].x - base), stats[warp + w].y, sums[warp + w][lane]);
    }
    __syncthreads();
}

/* Grid: x tiles, y blocks that share a tile. */
template <class T, int RANK>
static __global__ void __launch_bounds__(THREADS)
    latent_combine_kernel(T *out, const __grid_constant__ struct latent_plan plan, const float *kv_scale)
{
    constexpr int SLICES = RANK / SLICE;
    const int32_t lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    let_next_start();
    wait_for_previous();
    const struct latent_tile tile = plan.tiles[blockIdx.x];
    if (tile.pieces <= 1) return;
    int32_t share = 1;
    while (share < WARPS && share * BATCH < tile.pieces) share *= 2;
    const int32_t items = tile.rows * SLICES, at_once = WARPS / share;
    for (int32_t begin = blockIdx.y * at_once; begin < items; begin += gridDim.y * at_once) {
        const int32_t item = begin + warp / share, row = item / SLICES, column = item % SLICES * SLICE + lane * 4;
        latent_sums s = {-INFINITY};
        if (item < items) s = sum_pieces<RANK>(plan, tile, row, column, warp % share, share);
        if (share > 1) add_warps(s, share);
        if (item >= items || warp % share != 0) continue;
        const float factor = s.weight == 0 ? 0 : (kv_scale ? *kv_scale : 1) / s.weight;
        const uint2 pairs = {pack_pair<T>(s.sum.x * factor, s.sum.y * factor),
                             pack_pair<T>(s.sum.z * factor, s.sum.w * factor)};
        *(uint2 *)(out + (int64_t)(tile.row + row) * RANK + column) = pairs;
    }
}

template <class T, int RANK> static void launch(const struct latent_launch *l, dim3 grid)
{
    const struct latent_attention_args *args = l->args;
    const bool fp8 = dtype_size(args->cache_dtype) == 1;
    cuda_launch_dependent(cuda_state(l->b), latent_combine_kernel<T, RANK>, {grid, THREADS}, (T *)args->out, l->plan,
                          fp8 ? args->kv_scales : (const float *)NULL);
}

void cuda_latent_combine(const struct latent_launch *l, int64_t tiles, int32_t tile_rows)
{
    if (tiles == 0) return;
    const bool large = l->args->rank == 512;
    const int64_t each = cuda_div_up(2 * cuda_state(l->b)->num_sms, tiles), most = tile_rows * (l->args->rank / SLICE);
    const dim3 grid((unsigned)tiles, (unsigned)min_int(each < 4 ? 4 : each, most));
    auto with_type = [&](auto zero) {
        using T = decltype(zero);
        if (large)
            launch<T, 512>(l, grid);
        else
            launch<T, 256>(l, grid);
    };
    if (l->args->dtype == DTYPE_FLOAT16)
        with_type(__half());
    else
        with_type(__nv_bfloat16());
    cuda_check_launch(l->b, "latent attention");
}
