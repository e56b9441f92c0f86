/* Combines the pieces of tiles of latent attention, where a kernel does not do it itself. Where pieces are many,
 * several warps share an item, so that a warp loads nearly all of its pieces at once. */
#include "kernels/cuda/latent/combine.cuh"

enum { BATCH = 8 /* pieces that a warp loads at once */ };

/* Grid: x tiles, y blocks that share a tile. */
template <class T, int RANK>
static __global__ void __launch_bounds__(THREADS)
    latent_combine_kernel(T *out, const __grid_constant__ struct latent_plan plan, const float *kv_scale)
{
    __shared__ warp_sums_shared shared;
    const int32_t warp = threadIdx.x / LANES;
    let_next_start();
    wait_for_previous();
    const struct latent_tile tile = plan.tiles[blockIdx.x];
    if (tile.pieces <= 1) return;
    int32_t share = 1;
    while (share < WARPS && share * BATCH < tile.pieces) share *= 2;
    const int32_t items = tile.rows * (RANK / SLICE), at_once = WARPS / share;
    for (int32_t begin = blockIdx.y * at_once; begin < items; begin += gridDim.y * at_once) {
        const int32_t item = begin + warp / share;
        latent_sums s[1];
        sum_pieces<RANK, 1, BATCH>(plan, tile, item, 0, warp % share, share, s);
        if (share > 1) add_warps(s[0], share, shared, [] { __syncthreads(); });
        if (item < items && warp % share == 0) store_item<T, RANK>(out, tile, item, s[0], kv_scale ? *kv_scale : 1);
    }
}

void cuda_latent_combine(const struct latent_launch *l, int64_t tiles, int32_t tile_rows)
{
    if (tiles == 0) return;
    const int64_t each = cuda_div_up(2 * cuda_state(l->b)->num_sms, tiles), most = tile_rows * (l->args->rank / SLICE);
    const dim3 grid((unsigned)tiles, (unsigned)min_int(each < 4 ? 4 : each, most));
    latent_dispatch(l->args, [&](auto zero, auto is_fp8, auto rank) {
        using T = decltype(zero);
        const float *scale = decltype(is_fp8)::value ? l->args->kv_scales : NULL;
        cuda_launch_dependent(cuda_state(l->b), latent_combine_kernel<T, decltype(rank)::value>, {grid, THREADS},
                              (T *)l->args->out, l->plan, scale);
    });
    cuda_check_launch(l->b, "latent attention");
}
