/* Matmuls with up to CHAIN_MAX_TOKENS tokens on devices without bulk copies and dependent launches (compute capability
 * below 9.0). The cost is to read the weights once, at the speed of memory, as in few_tokens.cu.
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
 * the ring goes on to the next tile while the sums of this one are added.
 *
 * So that memory is not idle between two matmuls either, matmuls that follow each other are one kernel, a chain of
 * calls, with a barrier of all blocks after each call. The ring goes on across the barrier, because weights do not
 * depend on it: when a block arrives, the first weights of its next call are on their way.
 *
 *     a block     | o, last chunk | arrive, wait | x, norm | gate_up, chunk 0 | chunk 1 | ...
 *     its copies  | gate_up, chunks 0 .. 7 ----------------->                | chunk 8 | ...
 *
 * The operations add their matmul to the chain of the backend, and whatever else is put on the main stream launches it
 * before (cuda_use). A matmul has the same bits in a chain as on its own. */
#include <stdlib.h>

#include "kernels/cuda/cache_policy.cuh"
#include "kernels/cuda/copy_async.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/matmul/few_tokens_tile.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/operations.h"

enum {
    TILE = CHAIN_TILE,
    COUNT = CHAIN_MAX_TOKENS * TILE, /* sums of a tile */
    GROUP = 32,                      /* input features that the 4 lanes of a row multiply at a time */
    GROUPS = 2,                      /* of a stage */
    GROUP_BYTES = 2 * TILE * GROUP,
    CHUNK = MMA_WARPS * GROUPS * GROUP,
    CHUNK_BYTES = 2 * TILE * CHUNK,
    MAX_CHAIN = 4 /* o, gate_up, down, and the next layer's qkv or lm_head */
};
static_assert((int)CHUNK == (int)CHAIN_CHUNK, "a plan knows what a chunk is");

/* Matmuls of which each may read what those before it write. */
struct matmul_chain {
    struct few_tokens_call calls[MAX_CHAIN];
    int32_t num_calls;
    uint32_t *counter; /* of the barrier, in the workspace; NULL: no workspace, so chains of one call */
};

#if __CUDA_ARCH__ < 900

/* A block's part of a call. The blocks beyond the call's own have no tiles. */
static __device__ __forceinline__ block_part part_of(const few_tokens_call &c)
{
    block_part p = find_part(c, CHUNK);
    if ((int)blockIdx.x >= c.plan.blocks) p.first_tile = c.plan.tiles;
    return p;
}

/* A lane's copies of weights. */
template <class T> struct weight_copies {
    uint32_t ring;   /* the lane's place in the first stage */
    int call;        /* of the next chunk */
    block_part part; /* of this call */
    int tile;        /* of this part; beyond the last one: there is nothing left to copy */
    int chunk;       /* of the tile */
    const T *from;   /* what the lane copies first of the next chunk */
    int left;        /* input features from there to the end of the part; 0 or less: there is nothing to copy */
    uint64_t policy;
};

/* The first input feature of a chunk that is the lane's. */
static __device__ __forceinline__ int lane_feature()
{
    return threadIdx.x / 32 * GROUPS * GROUP + threadIdx.x % 4 * 8;
}

template <class T>
static __device__ __forceinline__ void begin_call(weight_copies<T> &copies, const matmul_chain &chain, int call)
{
    copies.call = call;
    copies.part = part_of(chain.calls[call]);
    copies.tile = copies.part.first_tile;
}

/* Begins the tile, or if the block has no more tiles of this call, the first one of a later call. */
template <class T>
static __device__ __forceinline__ void begin_tile(weight_copies<T> &copies, const matmul_chain &chain)
{
    while (copies.tile >= chain.calls[copies.call].plan.tiles && copies.call + 1 < chain.num_calls)
        begin_call(copies, chain, copies.call + 1);
    const few_tokens_call &c = chain.calls[copies.call];
    const matmul &m = c.matmul;
    const block_part &p = copies.part;
    const int row = copies.tile < c.plan.tiles ? feature_of<TILE>(m, copies.tile, threadIdx.x % 32 / 4) : -1;
    copies.chunk = 0;
    copies.from = (const T *)m.weight + (row < 0 ? 0 : (int64_t)row * m.in_features + p.begin + lane_feature());
    copies.left = row < 0 ? 0 : p.size - lane_feature();
}

/* Starts the copies of the next chunk, to a stage; beyond the last tile they write zeros, as beyond the last row. */
template <class T>
static __device__ __forceinline__ void copy_next(weight_copies<T> &copies, const matmul_chain &chain, int stage)
{
#pragma unroll
    for (int i = 0; i < GROUPS; i++)
        copy_async(copies.ring + stage * CHUNK_BYTES + i * GROUP_BYTES, copies.from + i * GROUP,
                   copies.left > i * GROUP, copies.policy);
    copy_async_commit();
    copies.from += CHUNK;
    copies.left -= CHUNK;
    if (++copies.chunk < copies.part.chunks) return;
    copies.tile += chain.calls[copies.call].plan.columns;
    begin_tile(copies, chain);
}

/* Starts to copy this part's input features of x, with zeros behind them up to the end of the last chunk. Earlier calls
 * of the chain have written x; these copies read from the L2 cache, so they see it. */
static __device__ __forceinline__ void copy_x(const few_tokens_call &c, const block_part &p, uint8_t *x)
{
    const matmul &m = c.matmul;
    for (int token = 0; token < m.num_tokens; token++) {
        const uint16_t *from = (const uint16_t *)m.x + token * m.x_stride + p.begin;
        const uint32_t to = shared_address(x + token * c.plan.x_row);
        for (int i = threadIdx.x * 8; i < p.chunks * CHUNK; i += MMA_THREADS * 8)
            copy_async(to + i * 2, from + i, i < p.size);
    }
}

/* Where the gains lie in shared memory: behind x. */
static __device__ __forceinline__ uint8_t *gains_of(const few_tokens_call &c, uint8_t *x)
{
    return x + c.matmul.num_tokens * c.plan.x_row;
}

/* Starts to copy the gains. */
static __device__ __forceinline__ void copy_gains(const few_tokens_call &c, uint8_t *x)
{
    const matmul &m = c.matmul;
    const int bytes = few_tokens_gain_bytes(&m);
    uint8_t *gain = gains_of(c, x);
    for (int i = threadIdx.x * 16; i < bytes; i += MMA_THREADS * 16)
        copy_async(shared_address(gain + i), (const uint8_t *)m.gain + i, true);
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

/* The lane's stages of the ring, and the one with its next chunk. */
struct ring_reader {
    const uint8_t *stages;
    int stage;
};

/* All chunks of all tiles of a call. sums: two sets of [MMA_WARPS, tokens, TILE], used in turn, so that one barrier a
 * tile is enough. */
template <class T, int STAGES>
static __device__ __forceinline__ void multiply_tiles(const matmul_chain &chain, int call, const block_part &p,
                                                      weight_copies<T> &copies, ring_reader &ring, const uint8_t *x,
                                                      float *sums, int *is_last)
{
    const few_tokens_call &c = chain.calls[call];
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const uint8_t *lane_x = x + g * c.plan.x_row + lane_feature() * 2;
    const bool has_token = g < c.matmul.num_tokens;
    int side = 0;
    for (int tile = p.first_tile; tile < c.plan.tiles; tile += c.plan.columns) {
        const tile_element<T> element = find_element<T, TILE>(c.matmul, tile, threadIdx.x);
        float sum[2][4] = {};
        for (int chunk = 0; chunk < p.chunks; chunk++) {
            copy_async_wait<STAGES - 1>();
            multiply_chunk<T>(sum, ring.stages + ring.stage * CHUNK_BYTES, lane_x + chunk * CHUNK * 2, has_token);
            copy_next(copies, chain, ring.stage);
            ring.stage = (ring.stage + 1) % STAGES;
        }
        float *of_tile = sums + side * MMA_WARPS * COUNT;
        *(float2 *)(of_tile + warp * COUNT + g * TILE + 2 * t) =
            make_float2(sum[0][0] + sum[1][0], sum[0][1] + sum[1][1]);
        mma_warps_sync();
        finish_tile<T, TILE, COUNT>(c, p.split, tile, element, of_tile, is_last);
        side ^= 1;
    }
}

/* The barrier between two calls of a chain. To arrive, the blocks together add 2^31 to the counter: one each, and block
 * 0 what is missing. So the last one to arrive flips the top bit, and the other bits are zero again for the next time.
 * Nothing has to be reset between two kernels. */
struct chain_barrier {
    uint32_t *counter;
    uint32_t before; /* its top bit is the counter's until all blocks have arrived */
};
enum : uint32_t { TOP_BIT = 1u << 31 };

/* The top bit cannot flip before this block arrives. */
static __device__ __forceinline__ chain_barrier find_barrier(const matmul_chain &chain)
{
    chain_barrier barrier = {chain.counter, 0};
    if (chain.num_calls > 1 && threadIdx.x == 0) barrier.before = *(volatile uint32_t *)chain.counter;
    return barrier;
}

/* After the wait, every block can read what the others have written before they arrived. */
static __device__ __forceinline__ void arrive(const chain_barrier &barrier)
{
    mma_warps_sync();
    if (threadIdx.x > 0) return;
    const uint32_t share = blockIdx.x == 0 ? TOP_BIT - (gridDim.x - 1) : 1;
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(barrier.counter), "r"(share) : "memory");
}

static __device__ __forceinline__ void wait_for_blocks(chain_barrier &barrier)
{
    uint32_t now = barrier.before;
    if (threadIdx.x == 0)
        while (((now ^ barrier.before) & TOP_BIT) == 0)
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(barrier.counter) : "memory");
    barrier.before ^= TOP_BIT;
    mma_warps_sync();
}

#endif

/* Dynamic shared memory: the ring, two sets of the warps' sums, x, the gains. */
template <class T, int STAGES>
static __global__ void __launch_bounds__(MMA_THREADS, 1) matmul_chain_kernel(const __grid_constant__ matmul_chain chain)
{
#if __CUDA_ARCH__ < 900
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ int is_last;
    float *sums = (float *)(shared + STAGES * CHUNK_BYTES);
    uint8_t *x = (uint8_t *)(sums + 2 * MMA_WARPS * COUNT);
    const int place = threadIdx.x / 32 * GROUPS * GROUP_BYTES + threadIdx.x % 32 * 16;
    ring_reader ring = {shared + place, 0};
    chain_barrier barrier = find_barrier(chain);
    weight_copies<T> copies;
    copies.ring = shared_address(shared + place);
    copies.policy = evict_first_policy();
    begin_call(copies, chain, 0);
    block_part p = copies.part;
    copy_x(chain.calls[0], p, x);
    copy_gains(chain.calls[0], x);
    copy_async_commit();
    begin_tile(copies, chain);
#pragma unroll 1 /* less code to load */
    for (int stage = 0; stage < STAGES; stage++) copy_next(copies, chain, stage);
    copy_async_wait<STAGES>();
    for (int call = 0;;) {
        const few_tokens_call &c = chain.calls[call];
        mma_warps_sync();
        if (c.matmul.gain && p.first_tile < c.plan.tiles) {
            norm_x<T>(c.matmul, x, c.plan.x_row, gains_of(c, x), sums);
            mma_warps_sync();
        }
        multiply_tiles<T, STAGES>(chain, call, p, copies, ring, x, sums, &is_last);
        if (++call == chain.num_calls) return;
        arrive(barrier);
        p = part_of(chain.calls[call]);
        copy_gains(chain.calls[call], x);
        wait_for_blocks(barrier);
        copy_x(chain.calls[call], p, x);
        copy_async_wait_all();
    }
#endif
}

template <class T> static auto kernel_of(int32_t stages)
{
    return stages == 2   ? matmul_chain_kernel<T, 2>
           : stages == 4 ? matmul_chain_kernel<T, 4>
                         : matmul_chain_kernel<T, CHAIN_MAX_STAGES>;
}

void cuda_launch_chain(struct backend *b)
{
    const char *operation = "a matmul of few tokens";
    struct cuda_state *s = cuda_state(b);
    struct matmul_chain *chain = s->chain;
    const struct few_tokens_call *first = &chain->calls[0];
    const bool is_one = chain->num_calls == 1;
    struct cuda_launch shape = {dim3(is_one ? first->plan.blocks : s->num_sms), MMA_THREADS};
    shape.cooperative = !is_one;
    for (int i = 0; i < chain->num_calls; i++)
        if (chain->calls[i].plan.shared_bytes > shape.shared_bytes)
            shape.shared_bytes = chain->calls[i].plan.shared_bytes;
    s->has_chain = false;
    cuda_use(b);
    matmul_dispatch(&first->matmul, [&](auto zero) {
        auto *kernel = kernel_of<decltype(zero)>(first->plan.stages);
        if (!cuda_allow_shared(b, operation, kernel, shape.shared_bytes)) return;
        cuda_launch_kernel(s, kernel, shape, false, *chain);
        cuda_check_launch(b, operation);
    });
    chain->num_calls = 0;
}

/* Whether one kernel can compute both: its type and its ring are those of the first call. */
static bool belongs_to(const struct matmul_chain *chain, const struct few_tokens_call *call)
{
    const struct few_tokens_call *first = &chain->calls[0];
    return chain->counter && chain->num_calls < MAX_CHAIN && call->matmul.dtype == first->matmul.dtype &&
           call->plan.stages == first->plan.stages;
}

bool matmul_chain_add(struct backend *b, const char *operation, const struct matmul *m)
{
    struct cuda_state *s = cuda_state(b);
    const struct few_tokens_call call = few_tokens_call_of(b, m);
    (void)operation;
    if (!s->chain) s->chain = (struct matmul_chain *)calloc(1, sizeof *s->chain);
    if (!s->chain) return cuda_fail(b, "out of host memory for a chain of matmuls"), true;
    if (s->has_chain && !belongs_to(s->chain, &call)) cuda_launch_chain(b);
    s->chain->counter = call.arrivals ? (uint32_t *)((uint8_t *)call.arrivals + CHAIN_COUNTER_AT) : NULL;
    s->chain->calls[s->chain->num_calls++] = call;
    s->has_chain = true;
    return true;
}
