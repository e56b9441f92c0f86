/* Matrix products with a batch of tokens on Hopper: the cost is still to read the weights once, but x is too large for
 * the shared memory of every block, so it comes along with the weights.
 *
 * The product is transposed, [rows, tokens] = w x': weights are the operand of wgmma that has 64 rows a warpgroup,
 * tokens the one whose size is free, so that few tokens waste little. A block has a tile of weight rows and takes its
 * columns in steps. Of a gated product's tile, half of the rows are the gate's, and the others are those of up that
 * belong to them. One warp orders the weights of the steps with the tensor copy engine into a ring in shared memory,
 * one the tokens, one or two warpgroups multiply. The weights' warp does not wait for the previous kernel, so the ring
 * is full of them when x is there.
 *
 * Where tiles are fewer than places for blocks, each is cut into parts along its columns, one for each block of a
 * cluster; the blocks then share the tokens and add up the parts, which they read from each other's shared memory, in
 * the order of their ranks. Plans leave room for blocks of the next kernel: its full rings are worth more than more
 * blocks of this one (32 tokens, 4096 x 4096: 13.6 us with 64 tiles in 2 parts, 17.2 in 4, which fill the device).
 *
 * An operand in shared memory is rows of 128 bytes, 64 columns, swizzled: the 16-byte pieces of a row change places by
 * the row's number, as both the copy engine and wgmma know. */
#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/linear_wgmma.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/wgmma.cuh"

enum {
    GROUP = 128, /* threads of a warpgroup, which has 64 rows */
    BOX_COLUMNS = 64,
    BOX_ROW = 2 * BOX_COLUMNS, /* bytes */
    MAX_SPLITS = 8,
    MIN_PART = 512 /* columns */
};

/* How the kernel for up to N tokens is laid out, with GROUPS warpgroups that multiply. Two blocks fit into a
 * multiprocessor. */
template <int N, int GROUPS> struct tiling {
    static constexpr int ROWS = 64 * GROUPS;            /* of a tile, at most */
    static constexpr int BOXES = ROWS + N > 96 ? 1 : 2; /* of both operands in a step */
    static constexpr int MULTIPLIERS = GROUP * GROUPS, THREADS = MULTIPLIERS + 64;
    static constexpr int WEIGHT_BOX = ROWS * BOX_ROW, TOKEN_BOX = N * BOX_ROW;
    static constexpr int STAGE = BOXES * (WEIGHT_BOX + TOKEN_BOX);
    static constexpr int STAGES = (110 << 10) / STAGE;
    static constexpr int SUMS_ROW = ROWS + 4; /* floats: four tokens of a warp lie in other banks than the next four */
    static constexpr int ALIGNMENT = 1024;    /* of a box: the swizzle's period */
    static constexpr int SHARED = ALIGNMENT + STAGES * STAGE;
    static_assert(4 * N * SUMS_ROW <= STAGES * STAGE, "the ring holds the sums at the end");
};

/* What the kernel is given. */
struct wgmma_call {
    CUtensorMap weights, x; /* in boxes of tile_rows (of half, if gated) and N rows */
    struct matmul product;
    int32_t tile_rows; /* a multiple of 8; of 16, if gated */
    int32_t splits;    /* parts of a tile, blocks of a cluster */
    int32_t steps;     /* of all parts together */
    bool fours;        /* four rows of out can be moved as one */
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* The block's part of the product: steps begin .. end - 1 of a tile. Tiles begin at different steps and go round, so
 * that they do not all want the same piece of x at once. */
struct part_of_block {
    int32_t rank, tile, begin, end, first;
};

static __device__ __forceinline__ part_of_block find_part(const wgmma_call &call)
{
    part_of_block part;
    part.rank = blockIdx.x % call.splits;
    part.tile = blockIdx.x / call.splits;
    part.begin = call.steps * part.rank / call.splits;
    part.end = call.steps * (part.rank + 1) / call.splits;
    part.first = part.begin + part.tile % (part.end - part.begin);
    return part;
}

/* Where an operand's boxes lie: in one part, or in two, `bytes` each, from those rows on. In the ring a box begins
 * box_step after the one before it. */
struct operand {
    const CUtensorMap *map;
    int row, second_row; /* -1: one part */
    int bytes, box_step;
};

static __device__ __forceinline__ operand weights_of_tile(const wgmma_call &call, int tile, int box_step)
{
    const bool gated = call.product.result == MATMUL_GATE;
    const int rows = gated ? call.tile_rows / 2 : call.tile_rows, row = tile * rows;
    return {&call.weights, row, gated ? (int)(call.product.out_features / 2) + row : -1, rows * BOX_ROW, box_step};
}

/* One thread: an operand's boxes of every step, each as soon as its place in the ring is free. */
template <class L>
static __device__ __forceinline__ void order_boxes(const operand &o, const part_of_block &part, uint8_t *ring,
                                                   uint64_t policy, uint64_t *full, uint64_t *empty)
{
    const int parts = o.second_row < 0 ? 1 : 2;
    ring_place at = {0, 0};
    int from = part.first;
#pragma unroll 1
    for (int i = part.begin; i < part.end; i++) {
        if (at.round > 0) barrier_wait(&empty[at.stage], (at.round - 1) & 1);
        barrier_arrive_expect(&full[at.stage], L::BOXES * parts * o.bytes);
#pragma unroll
        for (int box = 0; box < L::BOXES; box++) {
            uint8_t *to = ring + at.stage * L::STAGE + box * o.box_step;
            const int column = (from * L::BOXES + box) * BOX_COLUMNS;
            box_copy_2d(to, o.map, column, o.row, &full[at.stage], policy);
            if (parts == 2) box_copy_2d(to + o.bytes, o.map, column, o.second_row, &full[at.stage], policy);
        }
        if (++from == part.end) from = part.begin;
        ring_step(at, L::STAGES);
    }
}

/* An operand of swizzled rows of 128 bytes. Its address is a multiple of 1024, and 32 bytes more for 16 columns. */
static __device__ __forceinline__ uint64_t swizzled_descriptor(uint32_t address)
{
    return (uint64_t)(address >> 4) | (uint64_t)1 << 16 | (uint64_t)(8 * BOX_ROW >> 4) << 32 | (uint64_t)1 << 62;
}

/* The product of 16 columns, for any N that is a sum of those that wgmma_shared has. */
template <class T, int N>
static __device__ __forceinline__ void multiply(float *sums, uint64_t weights, uint64_t tokens)
{
    constexpr int FIRST = N >= 64 ? 64 : N >= 32 ? 32 : 16;
    wgmma_shared<T, FIRST>(sums, weights, tokens, true);
    if constexpr (N > FIRST) multiply<T, N - FIRST>(sums + FIRST / 2, weights, tokens + (FIRST * BOX_ROW >> 4));
}

/* A place in the ring is free again when the products after it have begun and its own are over. */
template <class T, int N, class L>
static __device__ __forceinline__ void multiply_steps(float (&sums)[N / 2], const part_of_block &part,
                                                      const uint8_t *ring, uint64_t *full, uint64_t *empty)
{
    const uint32_t first = shared_address(ring), own_rows = threadIdx.x / GROUP * 64 * BOX_ROW;
    ring_place at = {0, 0};
    int before = 0;
#pragma unroll 1
    for (int i = part.begin; i < part.end; i++) {
        const uint32_t stage = first + at.stage * L::STAGE;
        const uint64_t weights = swizzled_descriptor(stage + own_rows);
        const uint64_t tokens = swizzled_descriptor(stage + L::BOXES * L::WEIGHT_BOX);
        barrier_wait(&full[at.stage], at.round & 1);
        wgmma_begin();
#pragma unroll
        for (int k = 0; k < L::BOXES * 4; k++)
            multiply<T, N>(sums, weights + k / 4 * (L::WEIGHT_BOX >> 4) + k % 4 * 2,
                           tokens + k / 4 * (L::TOKEN_BOX >> 4) + k % 4 * 2);
        wgmma_commit();
        wgmma_wait<1>();
        if (i > part.begin && threadIdx.x % 32 == 0) barrier_arrive(&empty[before]);
        before = at.stage;
        ring_step(at, L::STAGES);
    }
    wgmma_wait<0>();
    wgmma_pin(sums);
}

template <class L> static __device__ __forceinline__ void multipliers_sync()
{
    asm volatile("bar.sync 1, %0;" ::"n"(L::MULTIPLIERS) : "memory");
}

/* y[i]: four rows of a token, sums of all parts. The loads come from afar: none waits for another. */
template <int COUNT>
static __device__ __forceinline__ void load_totals(float4 (&y)[COUNT], const float *const (&sums)[COUNT], int splits)
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) y[i] = splits == 1 ? *(const float4 *)sums[i] : float4{};
    if (splits == 1) return;
#pragma unroll 4
    for (int rank = 0; rank < splits; rank++) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const float4 part = cluster_load_4(cluster_address(sums[i], rank));
            y[i].x += part.x, y[i].y += part.y, y[i].z += part.z, y[i].w += part.w;
        }
    }
}

/* add: to what is there. */
template <class Out>
static __device__ __forceinline__ void store_four(Out *to, float4 y, const float (&bias)[4], bool as_one, int count,
                                                  bool add)
{
    piece<Out, 4> out = {from_float<Out>(y.x + bias[0]), from_float<Out>(y.y + bias[1]), from_float<Out>(y.z + bias[2]),
                         from_float<Out>(y.w + bias[3])};
    if (add) {
        piece<Out, 4> before = {};
        if (as_one) before = *(const piece<Out, 4> *)to;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (!as_one && i < count) before.values[i] = to[i];
            out.values[i] = from_float<Out>(to_float(before.values[i]) + to_float(out.values[i]));
        }
    }
    if (as_one) {
        *(piece<Out, 4> *)to = out;
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i < count) to[i] = out.values[i];
}

/* The same of a gated product: a thread has four rows of the gate and those of up that belong to them. */
template <class T, class L>
static __device__ __forceinline__ void write_gated_tile(const wgmma_call &call, const part_of_block &part,
                                                        const float *sums)
{
    constexpr int FOURS = L::ROWS / 8, STEP = L::MULTIPLIERS / FOURS;
    const matmul &p = call.product;
    const int half = call.tile_rows / 2, r = threadIdx.x % FOURS * 4, size = (int)(p.out_features / 2);
    const int row = part.tile * half + r, count = size - row < 4 ? size - row : 4;
    const int first = p.num_tokens * part.rank / call.splits + threadIdx.x / FOURS;
    const int end = p.num_tokens * (part.rank + 1) / call.splits;
    if (r >= half || count <= 0) return;
    float gate_bias[4] = {}, up_bias[4] = {}, none[4] = {};
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (p.bias && i < count) {
            gate_bias[i] = to_float(((const T *)p.bias)[row + i]);
            up_bias[i] = to_float(((const T *)p.bias)[size + row + i]);
        }
#pragma unroll 1
    for (int token = first; token < end; token += STEP) {
        const float *gate = sums + token * L::SUMS_ROW + r;
        const float *const from[] = {gate, gate + half};
        float4 y[2];
        load_totals(y, from, call.splits);
        const float4 gated = {gate_times_up<T>(p.activation, y[0].x + gate_bias[0], y[1].x + up_bias[0]),
                              gate_times_up<T>(p.activation, y[0].y + gate_bias[1], y[1].y + up_bias[1]),
                              gate_times_up<T>(p.activation, y[0].z + gate_bias[2], y[1].z + up_bias[2]),
                              gate_times_up<T>(p.activation, y[0].w + gate_bias[3], y[1].w + up_bias[3])};
        store_four((T *)p.out + row + token * p.out_stride, gated, none, call.fours, count, false);
    }
}

/* This block's tokens of the tile. A thread has four rows of every so-many-th token, two at a time. */
template <class T, class L, class Out>
static __device__ __forceinline__ void write_tile(const wgmma_call &call, const part_of_block &part, const float *sums)
{
    constexpr int FOURS = L::ROWS / 4, STEP = L::MULTIPLIERS / FOURS;
    const matmul &p = call.product;
    const int r = threadIdx.x % FOURS * 4, row = part.tile * call.tile_rows + r;
    const int first = p.num_tokens * part.rank / call.splits + threadIdx.x / FOURS;
    const int end = p.num_tokens * (part.rank + 1) / call.splits;
    const int count = p.out_features - row < 4 ? (int)p.out_features - row : 4;
    if (r >= call.tile_rows || count <= 0) return;
    float bias[4] = {};
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (p.bias && i < count) bias[i] = to_float(((const T *)p.bias)[row + i]);
    Out *to = (Out *)p.out + row;
    const bool add = p.result == MATMUL_ADD;
#pragma unroll 1
    for (int token = first; token < end; token += 2 * STEP) {
        const bool is_second = token + STEP < end;
        const float *const from[] = {sums + token * L::SUMS_ROW + r,
                                     sums + (token + is_second * STEP) * L::SUMS_ROW + r};
        float4 y[2];
        load_totals(y, from, call.splits);
        store_four(to + token * p.out_stride, y[0], bias, call.fours, count, add);
        if (is_second) store_four(to + (token + STEP) * p.out_stride, y[1], bias, call.fours, count, add);
    }
}

/* The multiplying warps, from the first step to what is written. */
template <class T, int N, class L>
static __device__ __forceinline__ void multiply_tile(const wgmma_call &call, const part_of_block &part, uint8_t *ring,
                                                     uint64_t *full, uint64_t *empty)
{
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, token = threadIdx.x % 4 * 2;
    float sums[N / 2] = {}, *shared_sums = (float *)ring;
    multiply_steps<T, N, L>(sums, part, ring, full, empty);
    multipliers_sync<L>(); /* all have read what lies in the ring */
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        shared_sums[(i / 4 * 8 + token + i % 2) * L::SUMS_ROW + row + i % 4 / 2 * 8] = sums[i];
    if (call.splits > 1) {
        __syncwarp();
        cluster_arrive();
        cluster_wait();
    } else {
        multipliers_sync<L>();
    }
    wait_for_previous();
    if (call.product.result == MATMUL_GATE) {
        write_gated_tile<T, L>(call, part, shared_sums);
    } else if (call.product.out_is_float) {
        write_tile<T, L, float>(call, part, shared_sums);
    } else {
        write_tile<T, L, T>(call, part, shared_sums);
    }
}

#endif

template <class T, int N, int GROUPS>
static __global__ void __launch_bounds__(tiling<N, GROUPS>::THREADS, 2)
    linear_wgmma_kernel(const __grid_constant__ wgmma_call call)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    using L = tiling<N, GROUPS>;
    extern __shared__ uint8_t shared[];
    __shared__ uint64_t full[L::STAGES], empty[L::STAGES];
    uint8_t *ring = shared + (-shared_address(shared) & (L::ALIGNMENT - 1));
    const part_of_block part = find_part(call);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, producer = warp - L::MULTIPLIERS / 32;
    let_next_start();
    if (threadIdx.x < L::STAGES) {
        barrier_init(&full[threadIdx.x], 2);
        barrier_init(&empty[threadIdx.x], L::MULTIPLIERS / 32);
        barrier_init_fence();
    }
    __syncthreads();
    if (producer < 0) {
        multiply_tile<T, N, L>(call, part, ring, full, empty);
    } else {
        if (lane == 0 && producer == 0)
            order_boxes<L>(weights_of_tile(call, part.tile, L::WEIGHT_BOX), part, ring, evict_first_policy(), full,
                           empty);
        if (lane == 0 && producer == 1) {
            wait_for_previous();
            order_boxes<L>({&call.x, 0, -1, L::TOKEN_BOX, L::TOKEN_BOX}, part, ring + L::BOXES * L::WEIGHT_BOX,
                           evict_last_policy(), full, empty);
        }
        __syncwarp();
        if (call.splits > 1) cluster_arrive_relaxed(), cluster_wait();
    }
    if (call.splits > 1) { /* nobody reads this block's sums any more */
        __syncwarp();
        cluster_arrive_relaxed();
        cluster_wait();
    }
#endif
}

/* A map of a matrix whose rows of `columns` elements are `stride` apart, in boxes of 64 columns. */
static bool make_map(CUtensorMap *out, const void *data, enum dtype dtype, int64_t rows, int64_t columns,
                     int64_t stride, int32_t box_rows)
{
    void *function = NULL;
    cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found) !=
            cudaSuccess ||
        found != cudaDriverEntryPointSuccess)
        return false;
    const cuuint64_t sizes[] = {(cuuint64_t)columns, (cuuint64_t)rows}, strides[] = {(cuuint64_t)stride * 2};
    const cuuint32_t box[] = {BOX_COLUMNS, (cuuint32_t)box_rows}, steps[] = {1, 1};
    return ((decltype(&cuTensorMapEncodeTiled))function)(
               out, dtype == DTYPE_FLOAT16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
               (void *)data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/* Few tiles: parts as many as leave room for the next kernel's blocks. Many: as many rows as fill the last round of
 * blocks like the others. */
template <class L> static void plan(const struct cuda_state *s, wgmma_call *call)
{
    const struct matmul *p = &call->product;
    const int64_t slots = 2 * s->num_sms, tiles = cuda_div_up(p->out_features, L::ROWS);
    int64_t splits = slots * 3 / 4 / tiles;
    if (splits > p->in_features / MIN_PART) splits = p->in_features / MIN_PART;
    call->splits = splits > MAX_SPLITS ? MAX_SPLITS : splits < 1 ? 1 : (int32_t)splits;
    call->steps = (int32_t)cuda_div_up(p->in_features, L::BOXES * BOX_COLUMNS);
    const int64_t even = cuda_div_up(p->out_features, cuda_div_up(tiles, slots) * slots);
    const int64_t multiple = p->result == MATMUL_GATE ? 16 : 8;
    call->tile_rows = call->splits > 1 ? L::ROWS : (int32_t)(cuda_div_up(even, multiple) * multiple);
}

template <class T, int N, int GROUPS> static bool launch(struct backend *b, const char *operation, wgmma_call *call)
{
    using L = tiling<N, GROUPS>;
    const struct matmul *p = &call->product;
    plan<L>(cuda_state(b), call);
    const int32_t box_rows = p->result == MATMUL_GATE ? call->tile_rows / 2 : call->tile_rows;
    if (!make_map(&call->weights, p->weight, p->dtype, p->out_features, p->in_features, p->in_features, box_rows) ||
        !make_map(&call->x, p->x, p->dtype, p->num_tokens, p->in_features, p->x_stride, N))
        return false;
    auto *kernel = linear_wgmma_kernel<T, N, GROUPS>;
    if (!cuda_allow_shared(b, operation, kernel, L::SHARED)) return true;
    const dim3 grid((unsigned)cuda_div_up(p->out_features, call->tile_rows) * call->splits);
    cuda_launch_dependent(cuda_use(b), kernel, {grid, L::THREADS, L::SHARED, call->splits}, *call);
    cuda_check_launch(b, operation);
    return true;
}

/* More tiles of 64 rows than fit at once: tiles twice as high read x half as often. */
template <class T, int N> static bool launch_rows(struct backend *b, const char *operation, wgmma_call *call)
{
    return cuda_div_up(call->product.out_features, 64) > 2 * cuda_state(b)->num_sms
               ? launch<T, N, 2>(b, operation, call)
               : launch<T, N, 1>(b, operation, call);
}

template <class T> static bool launch_tokens(struct backend *b, const char *operation, wgmma_call *call)
{
    const int32_t tokens = call->product.num_tokens;
    return tokens <= 16   ? launch_rows<T, 16>(b, operation, call)
           : tokens <= 32 ? launch_rows<T, 32>(b, operation, call)
           : tokens <= 48 ? launch_rows<T, 48>(b, operation, call)
                          : launch_rows<T, 64>(b, operation, call);
}

bool linear_wgmma(struct backend *b, const char *operation, const struct matmul *p)
{
    const bool shape = p->num_tokens >= 1 && p->num_tokens <= LINEAR_WGMMA_MAX_TOKENS && p->out_features > 0 &&
                       p->out_features <= INT32_MAX / 16 && p->in_features > 0 && p->in_features % 8 == 0 &&
                       p->in_features <= INT32_MAX / 16;
    const bool types = p->dtype == DTYPE_FLOAT16 || p->dtype == DTYPE_BFLOAT16;
    const bool places = cuda_is_aligned(p->weight) && cuda_is_aligned(p->x) && p->x_stride % 8 == 0;
    if (!cuda_state(b)->has_wgmma || !shape || !types || !places || p->gain) return false;
    const int64_t out_rows = p->result == MATMUL_GATE ? p->out_features / 2 : p->out_features;
    wgmma_call call = {};
    call.product = *p;
    call.fours = out_rows % 4 == 0 && p->out_stride % 4 == 0 && cuda_is_aligned(p->out);
    return p->dtype == DTYPE_FLOAT16 ? launch_tokens<__half>(b, operation, &call)
                                     : launch_tokens<__nv_bfloat16>(b, operation, &call);
}
