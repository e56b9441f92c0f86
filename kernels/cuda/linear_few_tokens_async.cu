/* Matmuls with up to ASYNC_MAX_TOKENS tokens on devices without bulk copies and dependent launches (compute capability
 * below 9.0). The cost is to read the weights once, at the speed of memory, as in linear_few_tokens.cu.
 *
 * One block for each multiprocessor walks the tiles of 8 output features. Each of its warps copies its own share of the
 * weights through a ring of its own, and needs the other warps only at the end of a tile. Even less is shared: a lane
 * copies the very bytes that it multiplies itself, so a chunk that has arrived needs no barrier.
 *
 *     a chunk: 512 input features of a tile             a stage of a warp's ring: 64 input features of 8 rows
 *
 *               warp 0   warp 1         warp 7                  features 0..31      32..63
 *     row 0   | 64     | 64     | ... | 64     |         lane 0 | row 0, 0..7    | row 0, 32..39 |
 *     ...     |        |        |     |        |         lane 1 | row 0, 8..15   | row 0, 40..47 |
 *     row 7   | 64     | 64     | ... | 64     |         lane 4 | row 1, 0..7    | row 1, 32..39 |
 *
 * The matmul runs on tensor cores (mma.cuh) with tokens as M, of which the upper 8 are zero, and the output features of
 * the tile as N. The order in which a lane multiplies input features does not matter as long as it is the same for both
 * operands: lane (g, t) takes features 8 t .. 8 t + 7 of each 32, of weight row g and of token g, in pieces of 16
 * bytes.
 *
 * A kernel begins with an idle memory here, so it starts the copies of all stages at once. x goes first, since it is
 * small and in the L2 cache: it has been normed when the first weights arrive. Small tiles divide the work evenly, and
 * the ring goes on to the next tile while the sums of this one are added. And so that memory is not idle between two
 * kernels, the blocks that have requested their last weights prefetch the first ones of the next matmul into the L2
 * cache. */
#include "kernels/cuda/cache_policy.cuh"
#include "kernels/cuda/copy_async.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_tile.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/operations.h"

enum {
    ASYNC_MAX_TOKENS = 8,
    TILE = 8,
    COUNT = ASYNC_MAX_TOKENS * TILE, /* sums of a tile */
    GROUP = 32,                      /* input features that the 4 lanes of a row multiply at a time */
    GROUPS = 2,                      /* of a stage */
    GROUP_BYTES = 2 * TILE * GROUP,
    CHUNK = MMA_WARPS * GROUPS * GROUP,
    CHUNK_BYTES = 2 * TILE * CHUNK,
    MAX_STAGES = 8,           /* 64 KiB in flight to each multiprocessor */
    SECTOR = 32,              /* bytes that a prefetch brings into the L2 cache */
    PREFETCH_BYTES = 64 << 10 /* of the next matmul's weights, by each block */
};

#if __CUDA_ARCH__ < 900

/* A lane's copies of weights. */
template <class T> struct weight_copies {
    uint32_t ring; /* the lane's place in the first stage */
    int64_t tile;  /* of the next chunk */
    int chunk;     /* of the tile */
    const T *from; /* what the lane copies first of the next chunk */
    int left;      /* input features from there to the end of the part; 0 or less: there is nothing to copy */
    uint64_t policy;
};

/* The first input feature of a chunk that is the lane's. */
static __device__ __forceinline__ int lane_feature()
{
    return threadIdx.x / 32 * GROUPS * GROUP + threadIdx.x % 4 * 8;
}

template <class T>
static __device__ __forceinline__ void begin_tile(weight_copies<T> &copies, const matmul &m, const block_part &p)
{
    const int64_t row = copies.tile < p.tiles ? feature_of<TILE>(m, copies.tile, threadIdx.x % 32 / 4) : -1;
    copies.chunk = 0;
    copies.from = (const T *)m.weight + (row < 0 ? 0 : row * m.in_features + p.begin + lane_feature());
    copies.left = row < 0 ? 0 : p.size - lane_feature();
}

/* Prefetches the first PREFETCH_BYTES * gridDim.x bytes of the next matmul's weights. */
static __device__ __forceinline__ void prefetch_next(const few_tokens_call &c)
{
    const int64_t most = (int64_t)PREFETCH_BYTES * gridDim.x, bytes = c.next_bytes < most ? c.next_bytes : most;
    const int64_t step = (int64_t)SECTOR * MMA_THREADS * gridDim.x;
    for (int64_t i = ((int64_t)blockIdx.x * MMA_THREADS + threadIdx.x) * SECTOR; i < bytes; i += step)
        prefetch((const uint8_t *)c.next + i);
}

/* Starts the copies of the next chunk, to a stage; beyond the last tile they write zeros, as beyond the last row. */
template <class T>
static __device__ __forceinline__ void copy_next(weight_copies<T> &copies, const few_tokens_call &c,
                                                 const block_part &p, int stage)
{
#pragma unroll
    for (int i = 0; i < GROUPS; i++)
        copy_async(copies.ring + stage * CHUNK_BYTES + i * GROUP_BYTES, copies.from + i * GROUP,
                   copies.left > i * GROUP, copies.policy);
    copy_async_commit();
    copies.from += CHUNK;
    copies.left -= CHUNK;
    if (++copies.chunk < p.chunks) return;
    if (copies.tile < p.tiles && copies.tile + p.tile_step >= p.tiles) prefetch_next(c);
    copies.tile += p.tile_step;
    begin_tile(copies, c.matmul, p);
}

/* Starts to copy this part's input features of x, with zeros behind them up to the end of the last chunk. */
static __device__ __forceinline__ void copy_x(const matmul &m, const block_part &p, uint8_t *x)
{
    for (int token = 0; token < m.num_tokens; token++) {
        const uint16_t *from = (const uint16_t *)m.x + token * m.x_stride + p.begin;
        const uint32_t to = shared_address(x + token * p.x_row);
        for (int i = threadIdx.x * 8; i < p.chunks * CHUNK; i += MMA_THREADS * 8)
            copy_async(to + i * 2, from + i, i < p.size);
    }
    copy_async_commit();
}

/* Brings the gains into the L2 cache. */
static __device__ __forceinline__ void prefetch_gains(const matmul &m)
{
    const int64_t bytes = m.in_features * (m.gain_is_float ? 4 : 2);
    for (int64_t i = (int64_t)threadIdx.x * SECTOR; i < bytes; i += MMA_THREADS * SECTOR)
        prefetch((const uint8_t *)m.gain + i);
}

/* The lane's place in a stage; and in x, the same input features of token g, if there is such a token. */
template <class T>
static __device__ __forceinline__ void multiply_chunk(float (&sum)[2][4], const uint8_t *stage, const uint8_t *x,
                                                      bool has_token)
{
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
        const uint4 w = *(const uint4 *)(stage + i * GROUP_BYTES);
        const uint4 y = has_token ? *(const uint4 *)(x + i * GROUP * 2) : make_uint4(0, 0, 0, 0);
        const uint32_t first[4] = {y.x, 0, y.y, 0}, second[4] = {y.z, 0, y.w, 0};
        multiply_add<T>(sum[0], first, w.x, w.y);
        multiply_add<T>(sum[1], second, w.z, w.w);
    }
}

/* All chunks of all tiles. sums: two sets of [MMA_WARPS, tokens, TILE], used in turn, so that one barrier a tile is
 * enough. */
template <class T, int STAGES>
static __device__ __forceinline__ void multiply_tiles(const few_tokens_call &c, const block_part &p,
                                                      weight_copies<T> &copies, const uint8_t *ring, const uint8_t *x,
                                                      float *sums, int *is_last)
{
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const uint8_t *stages = ring + threadIdx.x % 32 * 16 + warp * GROUPS * GROUP_BYTES;
    const uint8_t *lane_x = x + g * p.x_row + lane_feature() * 2;
    int stage = 0, side = 0;
    for (int64_t tile = p.first_tile; tile < p.tiles; tile += p.tile_step) {
        const result_place place = find_place<T, TILE>(c.matmul, tile);
        float sum[2][4] = {};
        for (int chunk = 0; chunk < p.chunks; chunk++) {
            copy_async_wait<STAGES - 1>();
            multiply_chunk<T>(sum, stages + stage * CHUNK_BYTES, lane_x + chunk * CHUNK * 2, g < c.matmul.num_tokens);
            copy_next(copies, c, p, stage);
            stage = (stage + 1) % STAGES;
        }
        float *of_tile = sums + side * MMA_WARPS * COUNT;
        *(float2 *)(of_tile + warp * COUNT + g * TILE + 2 * t) =
            make_float2(sum[0][0] + sum[1][0], sum[0][1] + sum[1][1]);
        mma_warps_sync();
        finish_tile<T, TILE, COUNT>(c, p, tile, place, of_tile, is_last);
        side ^= 1;
    }
}

#endif

/* Dynamic shared memory: the ring, x, two sets of the warps' sums. */
template <class T, int STAGES>
static __global__ void __launch_bounds__(MMA_THREADS, 1)
    few_tokens_async_kernel(const __grid_constant__ few_tokens_call c)
{
#if __CUDA_ARCH__ < 900
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ int is_last;
    uint8_t *x = shared + STAGES * CHUNK_BYTES;
    float *sums = (float *)(x + c.plan.x_bytes);
    const block_part p = find_part<TILE>(c.plan, c.matmul);
    weight_copies<T> copies;
    copies.ring = shared_address(shared + threadIdx.x / 32 * GROUPS * GROUP_BYTES + threadIdx.x % 32 * 16);
    copies.tile = p.first_tile;
    copies.policy = evict_first_policy();
    begin_tile(copies, c.matmul, p);
    if (c.matmul.gain) prefetch_gains(c.matmul);
    copy_x(c.matmul, p, x);
    for (int stage = 0; stage < STAGES; stage++) copy_next(copies, c, p, stage);
    copy_async_wait<STAGES>();
    mma_warps_sync();
    if (c.matmul.gain) {
        norm_x<T>(c.matmul, x, p.x_row, (const uint8_t *)c.matmul.gain, sums);
        mma_warps_sync();
    }
    multiply_tiles<T, STAGES>(c, p, copies, shared, x, sums, &is_last);
#endif
}

static struct few_tokens_plan plan_of(const struct cuda_state *s, const struct matmul *m, int32_t splits,
                                      int32_t stages)
{
    const int64_t part = cuda_div_up(cuda_div_up(m->in_features, splits), CHUNK) * CHUNK, tiles = tile_count<TILE>(m);
    const int64_t x = m->num_tokens * (2 * part + SKEW), sums = COUNT * (int64_t)sizeof(float);
    const int64_t bytes = (int64_t)stages * CHUNK_BYTES + x + 2 * MMA_WARPS * sums;
    const int64_t blocks = s->num_sms / splits < tiles ? s->num_sms / splits : tiles;
    struct few_tokens_plan plan = {};
    if (bytes > few_tokens_room(s) || !few_tokens_can_split(s, m, splits, part, tiles, tiles * sums)) return plan;
    plan.splits = splits;
    plan.part = (int32_t)part;
    plan.chunk = CHUNK;
    plan.stages = plan.in_flight = stages;
    plan.blocks = (int32_t)blocks * splits;
    plan.cluster = 1;
    plan.x_bytes = (int32_t)x;
    plan.shared_bytes = (int32_t)bytes;
    return plan;
}

/* The fewest parts that leave room for enough stages: two where a multiprocessor has up to 100 KiB of shared memory,
 * because the memory of such devices is slow, four elsewhere. */
bool few_tokens_async_plan(const struct cuda_state *s, const struct matmul *m, struct few_tokens_plan *out)
{
    const int32_t least = s->max_shared_bytes <= 100 << 10 ? 2 : 4, most = s->num_sms < 16 ? s->num_sms : 16;
    *out = {};
    if (m->num_tokens > ASYNC_MAX_TOKENS) return false;
    for (int32_t splits = 1; splits <= most && out->stages == 0; splits *= 2)
        for (int32_t stages = MAX_STAGES; stages >= least && out->stages == 0; stages /= 2)
            *out = plan_of(s, m, splits, stages);
    return out->stages > 0;
}

template <class T, int STAGES>
static void launch(struct backend *b, const char *operation, const struct few_tokens_call *call)
{
    const int shared_bytes = call->plan.shared_bytes;
    auto *kernel = few_tokens_async_kernel<T, STAGES>;
    if (!cuda_allow_shared(b, operation, kernel, shared_bytes)) return;
    cuda_launch_kernel(cuda_use(b), kernel, {dim3(call->plan.blocks), MMA_THREADS, shared_bytes}, false, *call);
    cuda_check_launch(b, operation);
}

template <class T>
static void launch_stages(struct backend *b, const char *operation, const struct few_tokens_call *call)
{
    switch (call->plan.stages) {
    case 2:
        return launch<T, 2>(b, operation, call);
    case 4:
        return launch<T, 4>(b, operation, call);
    default:
        return launch<T, MAX_STAGES>(b, operation, call);
    }
}

void few_tokens_async_launch(struct backend *b, const char *operation, const struct few_tokens_call *call)
{
    if (call->matmul.dtype == DTYPE_FLOAT16) {
        launch_stages<__half>(b, operation, call);
    } else {
        launch_stages<__nv_bfloat16>(b, operation, call);
    }
}
