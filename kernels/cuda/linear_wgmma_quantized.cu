/* Matmuls of a quantized weight with a batch of tokens on Hopper. As in linear_wgmma.cu the matmul is transposed, out'
 * [out_features, num_tokens] = weight x', a block has a tile of output features and goes through the input features in
 * steps, and warps copy the operands of the steps into a ring. But wgmma has the weight in registers: each warpgroup
 * decodes the 64 rows that it multiplies, and decodes the next 32 input features while wgmma multiplies the last.
 *
 * A stage of the ring has STEP input features of both operands, and of each row and group the scale and the offset that
 * is subtracted from the decoded integers, each as a pair of T. Two warps make these pairs. A weight with one scale for
 * each row is multiplied without it, and the sums are multiplied by it at the end.
 *
 * Few tiles are split along the input features, one part for each block of a cluster. Otherwise the two blocks of a
 * cluster may share the tokens: each copies a half of them to both. */
#include "kernels/cuda/linear_wgmma_quantized.cuh"
#include "kernels/cuda/linear_wgmma_tile.cuh"
#include "kernels/cuda/quantized.cuh"

enum {
    STEP = 128,     /* input features of a stage */
    COPY_WARPS = 4, /* of the weights, of the tokens, and two of the scales */
    MAX_STAGES = 12,
    SCALES_AT_ONCE = 4 /* of a row */
};

/* The layout of the kernel for up to N tokens with GROUPS warpgroups that multiply; BLOCKS fit on a multiprocessor. */
template <enum weight_format FORMAT, int N, int GROUPS, int BLOCKS> struct quantized_tiling {
    static constexpr int ROWS = 64 * GROUPS; /* output features of a tile, at most */
    static constexpr int MMA_THREADS = GROUP * GROUPS, THREADS = MMA_THREADS + 32 * COPY_WARPS;
    static constexpr int ROW_BYTES = FORMAT == WEIGHT_INT4 ? STEP / 2 : STEP;
    static constexpr int WEIGHT_BYTES = ROWS * ROW_BYTES, TOKEN_BOX = N * BOX_ROW;
    static constexpr int SCALES = WEIGHT_BYTES + STEP / BOX_FEATURES * TOKEN_BOX; /* where they begin in a stage */
    static constexpr int RING = (BLOCKS == 1 ? 222 : 110) << 10;
    static constexpr int SHARED = ALIGNMENT + RING;
    static constexpr int SUMS_ROW = ROWS + 4; /* floats; the padding puts the tokens of a warp into different banks */
    /* Registers of a thread, if the warps that multiply need more than the others. */
    static constexpr bool UNEVEN = N >= 128;
    static constexpr int MMA_REGISTERS = GROUPS == 2 ? 224 : 112, COPY_REGISTERS = GROUPS == 2 ? 56 : 32;
    static_assert(4 * N * SUMS_ROW <= RING, "the ring holds the sums at the end");
};

struct quantized_call : tiled_matmul {
    CUtensorMap weight, x;  /* in boxes of tile_rows (half as many with MATMUL_GATE) and of N / sharing rows */
    int32_t groups;         /* of a row */
    int32_t scales_of_step; /* 1, 2 or 4 for each row */
    int32_t steps;          /* of all parts together */
    int32_t token_tiles;
    int32_t sharing; /* blocks of a cluster that share the tokens: 1 or 2 */
    int32_t stages, stage_bytes;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <int N> static __device__ __forceinline__ block_part find_quantized_part(const quantized_call &call)
{
    block_part part;
    const int cluster = call.splits * call.sharing, index = blockIdx.x / cluster, rank = blockIdx.x % cluster;
    part.rank = call.splits > 1 ? rank : 0;
    part.tile = index / call.token_tiles * call.sharing + (call.splits > 1 ? 0 : rank);
    part.begin = part.first = call.steps * part.rank / call.splits;
    part.end = call.steps * (part.rank + 1) / call.splits;
    part.first_token = index % call.token_tiles * N;
    part.num_tokens = min(N, call.matmul.num_tokens - part.first_token);
    return part;
}

/* ---- the warps that copy ---- */

/* The stage that a warp fills, once it is free. */
static __device__ __forceinline__ uint8_t *free_stage(const quantized_call &call, const step_ring &ring,
                                                      const ring_place &at)
{
    if (at.round > 0) barrier_wait(&ring.empty[at.stage], (at.round - 1) & 1);
    return ring.data + at.stage * call.stage_bytes;
}

template <class L>
static __device__ __forceinline__ void copy_weights(const quantized_call &call, const block_part &part,
                                                    const step_ring &ring)
{
    const bool gated = call.matmul.result == MATMUL_GATE;
    const int rows = gated ? call.tile_rows / 2 : call.tile_rows, row = part.tile * rows, bytes = rows * L::ROW_BYTES;
    const uint64_t policy = evict_first_policy();
    ring_place at = {0, 0};
#pragma unroll 1
    for (int i = part.begin; i < part.end; i++) {
        uint8_t *to = free_stage(call, ring, at);
        uint64_t *full = &ring.full[at.stage];
        barrier_arrive_expect(full, gated ? 2 * bytes : bytes);
        box_copy_2d(to, &call.weight, i * L::ROW_BYTES / 2, row, full, policy);
        if (gated)
            box_copy_2d(to + bytes, &call.weight, i * L::ROW_BYTES / 2, (int)(call.matmul.out_features / 2) + row, full,
                        policy);
        ring_step(at, call.stages);
    }
}

template <class L>
static __device__ __forceinline__ void copy_tokens(const quantized_call &call, const block_part &part,
                                                   const step_ring &ring)
{
    const uint64_t policy = evict_last_policy();
    const int share = call.sharing > 1 ? (int)cluster_rank() : 0, bytes = L::TOKEN_BOX / call.sharing;
    const int token = part.first_token + share * bytes / BOX_ROW;
    ring_place at = {0, 0};
#pragma unroll 1
    for (int i = part.begin; i < part.end; i++) {
        uint8_t *to = free_stage(call, ring, at) + L::WEIGHT_BYTES + share * bytes;
        uint64_t *full = &ring.full[at.stage];
        barrier_arrive_expect(full, STEP / BOX_FEATURES * L::TOKEN_BOX);
#pragma unroll
        for (int box = 0; box < STEP / BOX_FEATURES; box++) {
            const int feature = i * STEP + box * BOX_FEATURES;
            if (call.sharing > 1) {
                box_copy_2d_to_cluster(to + box * L::TOKEN_BOX, &call.x, feature, token, full, 3, policy);
            } else {
                box_copy_2d(to + box * L::TOKEN_BOX, &call.x, feature, token, full, policy);
            }
        }
        ring_step(at, call.stages);
    }
}

/* The output feature of a row of the tile; one that exists. */
static __device__ __forceinline__ int feature_of(const quantized_call &call, int tile, int row)
{
    const int features = (int)call.matmul.out_features, half = call.tile_rows / 2;
    const int feature = call.matmul.result != MATMUL_GATE ? tile * call.tile_rows + row
                        : row < half                      ? tile * half + row
                                                          : features / 2 + tile * half + row - half;
    return min(feature, features - 1);
}

static __device__ __forceinline__ float load_scale(const quantized_call &call, int64_t index)
{
    return call.matmul.scale_dtype == DTYPE_FLOAT32   ? ((const float *)call.matmul.scales)[index]
           : call.matmul.scale_dtype == DTYPE_FLOAT16 ? to_float(((const __half *)call.matmul.scales)[index])
                                                      : to_float(((const __nv_bfloat16 *)call.matmul.scales)[index]);
}

/* The scales and zeros of some groups of a row as they lie in memory. */
struct raw_scales {
    uint4 scales;
    uint32_t zeros;
};

/* Whether SCALES_AT_ONCE of them are aligned, beginning with a multiple of that. */
static __device__ __forceinline__ bool scales_are_aligned(const quantized_call &call)
{
    return call.groups % SCALES_AT_ONCE == 0 && call.matmul.group_size <= STEP &&
           ((uintptr_t)call.matmul.scales & (call.matmul.scale_dtype == DTYPE_FLOAT32 ? 15 : 7)) == 0 &&
           ((uintptr_t)call.matmul.zeros & 3) == 0;
}

/* Of the input features from `place` * STEP / scales_of_step on. */
static __device__ __forceinline__ raw_scales load_raw(const quantized_call &call, int feature, int place, bool aligned)
{
    raw_scales raw = {{0, 0, 0, 0}, 0x08080808};
    const int64_t row = (int64_t)(feature / (int)call.matmul.scale_rows) * call.groups;
    const uint8_t *zeros = call.matmul.zeros + (int64_t)feature * call.groups;
    if (aligned) {
        if (call.matmul.scale_dtype == DTYPE_FLOAT32) {
            raw.scales = *(const uint4 *)((const float *)call.matmul.scales + row + place);
        } else {
            const uint2 two = *(const uint2 *)((const uint16_t *)call.matmul.scales + row + place);
            raw.scales.x = two.x, raw.scales.y = two.y;
        }
        if (call.matmul.zeros) raw.zeros = *(const uint32_t *)(zeros + place);
        return raw;
    }
    float scales[SCALES_AT_ONCE];
#pragma unroll
    for (int k = 0; k < SCALES_AT_ONCE; k++) {
        const int group =
            min((place + k) * (STEP / call.scales_of_step) / (int)call.matmul.group_size, call.groups - 1);
        scales[k] = load_scale(call, row + group);
        if (call.matmul.zeros) raw.zeros = (raw.zeros & ~(255u << 8 * k)) | (uint32_t)zeros[group] << 8 * k;
    }
    raw.scales = {__float_as_uint(scales[0]), __float_as_uint(scales[1]), __float_as_uint(scales[2]),
                  __float_as_uint(scales[3])};
    return raw;
}

template <class T, enum weight_format FORMAT>
static __device__ __forceinline__ uint2 pairs_of(const quantized_call &call, const raw_scales &raw, int k, bool aligned)
{
    const uint32_t words[] = {raw.scales.x, raw.scales.y, raw.scales.z, raw.scales.w};
    float scale = __uint_as_float(k == 0 ? words[0] : k == 1 ? words[1] : k == 2 ? words[2] : words[3]);
    if (aligned && call.matmul.scale_dtype != DTYPE_FLOAT32) {
        const uint16_t bits = (uint16_t)((k < 2 ? words[0] : words[1]) >> 16 * (k & 1));
        scale = call.matmul.scale_dtype == DTYPE_FLOAT16 ? __half2float(__ushort_as_half(bits))
                                                         : __bfloat162float(__ushort_as_bfloat16(bits));
    }
    if (call.groups == 1) scale = 1.0f;
    if (FORMAT == WEIGHT_FP8) scale *= FP8_FACTOR<T>;
    return {pair_of<T>(scale), pair_of<T>(INT4_OFFSET<T> + (float)(raw.zeros >> 8 * k & 255))};
}

/* Half of the rows' scales, by a warp. */
template <class T, enum weight_format FORMAT, class L>
static __device__ __forceinline__ void copy_scales(const quantized_call &call, const block_part &part,
                                                   const step_ring &ring, int half)
{
    const int of_step = call.scales_of_step, lane = threadIdx.x % 32, end = part.end * of_step;
    const bool aligned = scales_are_aligned(call);
    ring_place at = {0, 0};
#pragma unroll 1
    for (int first = part.begin * of_step & -SCALES_AT_ONCE; first < end; first += SCALES_AT_ONCE) {
        raw_scales raw[L::ROWS / 64];
#pragma unroll
        for (int j = 0; j < L::ROWS / 64; j++)
            raw[j] = load_raw(call, feature_of(call, part.tile, 64 * j + 32 * half + lane), first, aligned);
#pragma unroll 1
        for (int k = max(0, part.begin * of_step - first); k < SCALES_AT_ONCE && first + k < end; k += of_step) {
            uint2 *to = (uint2 *)(free_stage(call, ring, at) + L::SCALES) + 32 * half + lane;
#pragma unroll 1
            for (int of = 0; of < of_step; of++)
#pragma unroll
                for (int j = 0; j < L::ROWS / 64; j++)
                    to[of * L::ROWS + 64 * j] = pairs_of<T, FORMAT>(call, raw[j], k + of, aligned);
            __syncwarp();
            if (lane == 0) barrier_arrive(&ring.full[at.stage]);
            ring_step(at, call.stages);
        }
    }
}

/* ---- the warpgroups that multiply ---- */

static __device__ __forceinline__ uint4 shared_load_4(uint32_t address)
{
    uint4 x;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(address));
    return x;
}
static __device__ __forceinline__ uint2 shared_load_2(uint32_t address)
{
    uint2 x;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];\n" : "=r"(x.x), "=r"(x.y) : "r"(address));
    return x;
}
static __device__ __forceinline__ uint32_t shared_load(uint32_t address)
{
    uint32_t x;
    asm volatile("ld.shared.u32 %0, [%1];\n" : "=r"(x) : "r"(address));
    return x;
}

/* A thread's encoded elements of a step, from two rows that are 8 apart. INT4: a piece of 16 bytes of each, which is
 * all of them. INT8 and FP8 are read when they are decoded. */
template <enum weight_format FORMAT> struct encoded;
template <> struct encoded<WEIGHT_INT4> {
    uint32_t low[4], high[4];
    __device__ __forceinline__ void load(uint32_t stage, int row, int t)
    {
        const uint4 a = shared_load_4(stage + row * (STEP / 2) + 16 * t);
        const uint4 b = shared_load_4(stage + (row + 8) * (STEP / 2) + 16 * t);
        low[0] = a.x, low[1] = a.y, low[2] = a.z, low[3] = a.w;
        high[0] = b.x, high[1] = b.y, high[2] = b.z, high[3] = b.w;
    }
    /* Input features 32 w + 16 half, ... + 15 as A of the mma, without the scales. */
    template <class T>
    __device__ __forceinline__ void decode(uint32_t *a, int w, int half, uint32_t low_offset, uint32_t high_offset)
    {
        a[0] = int4_pair<T>(low[w], 2 * half, low_offset);
        a[1] = int4_pair<T>(high[w], 2 * half, high_offset);
        a[2] = int4_pair<T>(low[w], 2 * half + 1, low_offset);
        a[3] = int4_pair<T>(high[w], 2 * half + 1, high_offset);
    }
};

/* A row of a step is 128 bytes in the 128-byte swizzle. Lane t of a quad needs bytes 2 t, 2 t + 1, 2 t + 8 and 2 t + 9
 * of 16. */
template <enum weight_format FORMAT> struct encoded {
    uint32_t row_address, swizzle, select;
    __device__ __forceinline__ void load(uint32_t stage, int row, int t)
    {
        row_address = stage + row * STEP + t / 2 * 4;
        swizzle = row % 8;
        select = t % 2 ? 0x7362 : 0x5140; /* so that pairs of bytes 0, 2 and 1, 3 are the two that are needed */
    }
    template <class T> __device__ __forceinline__ void decode(uint32_t *a, int w, int half, uint32_t, uint32_t)
    {
        const uint32_t from = row_address + (((2 * w + half) ^ swizzle) << 4);
        const uint32_t low = __byte_perm(shared_load(from), shared_load(from + 8), select);
        const uint32_t high = __byte_perm(shared_load(from + 8 * STEP), shared_load(from + 8 * STEP + 8), select);
        if constexpr (FORMAT == WEIGHT_INT8) {
            int8_pairs<T>(low, a[0], a[2]);
            int8_pairs<T>(high, a[1], a[3]);
        } else {
            fp8_pairs<T>(low, a[0], a[2]);
            fp8_pairs<T>(high, a[1], a[3]);
        }
    }
};

/* Where a thread releases a stage: in its own block, and in the one that it shares the tokens with. No other thread of
 * a warp does it. */
struct release_place {
    uint32_t own, other;
    bool own_too, other_too;
};

static __device__ __forceinline__ release_place find_release_place(const quantized_call &call, const step_ring &ring)
{
    const uint32_t rank = cluster_rank();
    const bool first = threadIdx.x % 32 == 0;
    return {cluster_address(ring.empty, rank), cluster_address(ring.empty, call.sharing > 1 ? rank ^ 1 : rank), first,
            first && call.sharing > 1};
}

static __device__ __forceinline__ void release(const release_place &place, int stage, bool really)
{
    barrier_arrive_cluster(place.own + 8 * stage, place.own_too && really);
    barrier_arrive_cluster(place.other + 8 * stage, place.other_too && really);
}

template <class T, enum weight_format FORMAT, int N, class L>
static __device__ __forceinline__ void multiply_decoded(float (&sums)[N / 2], const quantized_call &call,
                                                        const block_part &part, const step_ring &ring)
{
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const uint32_t first = shared_address(ring.data);
    ring_place at = {0, 0};
    const release_place place = find_release_place(call, ring);
    int before = 0;
#pragma unroll 1
    for (int i = part.begin; i < part.end; i++) {
        const uint32_t stage = first + at.stage * call.stage_bytes, scales = stage + L::SCALES + 8 * row;
        const uint64_t tokens = swizzled_descriptor(stage + L::WEIGHT_BYTES);
        encoded<FORMAT> from;
        uint32_t a[2][2][4];
        barrier_wait(&ring.full[at.stage], at.round & 1);
        from.load(stage, row, t);
#pragma unroll
        for (int w = 0; w < STEP / 32; w++) {
            const uint32_t pairs = scales + (w * call.scales_of_step >> 2) * (8 * L::ROWS);
            const uint2 low = shared_load_2(pairs), high = shared_load_2(pairs + 64);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                uint32_t *to = a[w % 2][half];
                from.template decode<T>(to, w, half, low.y, high.y);
                to[0] = multiply_pairs<T>(to[0], low.x), to[2] = multiply_pairs<T>(to[2], low.x);
                to[1] = multiply_pairs<T>(to[1], high.x), to[3] = multiply_pairs<T>(to[3], high.x);
            }
            wgmma_pin_operand(a[w % 2][0]), wgmma_pin_operand(a[w % 2][1]);
            wgmma_begin();
#pragma unroll
            for (int half = 0; half < 2; half++)
                wgmma_registers<T, N>(sums, a[w % 2][half],
                                      tokens + w / 2 * (L::TOKEN_BOX >> 4) + (w % 2 * 2 + half) * 2);
            wgmma_commit();
            wgmma_wait<1>();
            if (w == 0) release(place, before, i > part.begin);
        }
        before = at.stage;
        ring_step(at, call.stages);
    }
    wgmma_wait<0>();
    wgmma_pin(sums);
}

template <class T, enum weight_format FORMAT, int N, class L>
static __device__ __forceinline__ void multiply_quantized_tile(const quantized_call &call, const block_part &part,
                                                               const step_ring &ring)
{
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, token = threadIdx.x % 4 * 2;
    float sums[N / 2] = {}, *shared_sums = (float *)ring.data, row_scales[2] = {1.0f, 1.0f};
    multiply_decoded<T, FORMAT, N, L>(sums, call, part, ring);
    if (call.groups == 1)
#pragma unroll
        for (int i = 0; i < 2; i++)
            row_scales[i] = load_scale(call, feature_of(call, part.tile, row + 8 * i) / (int)call.matmul.scale_rows);
    mma_warps_sync<L>(); /* no warp reads operands any more */
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        shared_sums[(i / 4 * 8 + token + i % 2) * L::SUMS_ROW + row + i % 4 / 2 * 8] = sums[i] * row_scales[i % 4 / 2];
    if (call.splits > 1) {
        __syncwarp();
        cluster_arrive();
        cluster_wait();
    } else {
        mma_warps_sync<L>();
    }
    wait_for_previous();
    if (call.matmul.result == MATMUL_GATE) {
        write_gated_tile<T, L>(call, part, shared_sums);
    } else if (call.matmul.out_is_float) {
        write_tile<T, L, float>(call, part, shared_sums);
    } else {
        write_tile<T, L, T>(call, part, shared_sums);
    }
}

/* The warps that copy; the first two with one lane. */
template <class T, enum weight_format FORMAT, class L>
static __device__ __forceinline__ void copy_quantized_tile(const quantized_call &call, const block_part &part,
                                                           const step_ring &ring)
{
    const int warp = (threadIdx.x - L::MMA_THREADS) / 32, lane = threadIdx.x % 32;
    if (warp >= 2) copy_scales<T, FORMAT, L>(call, part, ring, warp - 2);
    if (lane == 0 && warp == 0) copy_weights<L>(call, part, ring);
    if (lane == 0 && warp == 1) {
        wait_for_previous();
        copy_tokens<L>(call, part, ring);
    }
    __syncwarp();
    if (call.splits > 1) cluster_arrive_relaxed(), cluster_wait();
}

#endif

template <class T, enum weight_format FORMAT, int N, int GROUPS, int BLOCKS>
static __global__ void __launch_bounds__(quantized_tiling<FORMAT, N, GROUPS, BLOCKS>::THREADS, BLOCKS)
    linear_wgmma_quantized_kernel(const __grid_constant__ quantized_call call)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    using L = quantized_tiling<FORMAT, N, GROUPS, BLOCKS>;
    extern __shared__ uint8_t shared[];
    __shared__ uint64_t full[MAX_STAGES], empty[MAX_STAGES];
    const step_ring ring = {shared + (-shared_address(shared) & (ALIGNMENT - 1)), full, empty};
    const block_part part = find_quantized_part<N>(call);
    const bool clustered = call.splits > 1 || call.sharing > 1;
    let_next_start();
    if (threadIdx.x < call.stages) {
        barrier_init(&full[threadIdx.x], COPY_WARPS);
        barrier_init(&empty[threadIdx.x], L::MMA_THREADS / 32 * call.sharing);
        barrier_init_fence();
    }
    __syncthreads();
    if (call.sharing > 1) cluster_arrive(), cluster_wait(); /* the other block's barriers are initialized */
    if (threadIdx.x < L::MMA_THREADS) {
        if constexpr (L::UNEVEN) take_registers<L::MMA_REGISTERS>();
        multiply_quantized_tile<T, FORMAT, N, L>(call, part, ring);
    } else {
        if constexpr (L::UNEVEN) give_registers<L::COPY_REGISTERS>();
        copy_quantized_tile<T, FORMAT, L>(call, part, ring);
    }
    if (clustered) { /* waits until no other block uses this block's shared memory any more */
        __syncwarp();
        cluster_arrive_relaxed();
        cluster_wait();
    }
#endif
}

/* A map of the weight's bytes, which count as 16-bit elements, in boxes of a step. */
static bool map_weight(CUtensorMap *out, const struct matmul *m, int32_t box_rows)
{
    const bool is_int4 = m->format == WEIGHT_INT4;
    const int64_t elements = m->in_features / (is_int4 ? 4 : 2);
    const struct tensor_map_args args = {m->weight,
                                         2,
                                         {elements, m->out_features},
                                         {elements},
                                         {is_int4 ? STEP / 4 : STEP / 2, box_rows},
                                         is_int4 ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B,
                                         CU_TENSOR_MAP_L2_PROMOTION_L2_128B};
    return tensor_map_encode(out, &args);
}

/* As plan of linear_wgmma.cu, where there is one tile of tokens. */
template <class L> static void plan(const struct cuda_state *s, quantized_call *call, int blocks)
{
    const struct matmul *m = &call->matmul;
    const int64_t places = (int64_t)blocks * s->num_sms;
    const int64_t tiles = cuda_div_up(m->out_features, L::ROWS), all = tiles * call->token_tiles;
    int64_t splits = places / all;
    if (splits > m->in_features / MIN_PART) splits = m->in_features / MIN_PART;
    call->splits = splits > MAX_SPLITS ? MAX_SPLITS : splits < 1 ? 1 : (int32_t)splits;
    call->steps = (int32_t)cuda_div_up(m->in_features, STEP);
    const int64_t even = cuda_div_up(m->out_features, cuda_div_up(tiles, places) * places);
    const int64_t multiple = m->result == MATMUL_GATE ? 16 : 8;
    const bool whole = call->splits > 1 || call->token_tiles > 1;
    call->tile_rows = whole ? L::ROWS : (int32_t)(cuda_div_up(even, multiple) * multiple);
    call->stage_bytes = (int32_t)cuda_div_up(L::SCALES + 8 * L::ROWS * call->scales_of_step, ALIGNMENT) * ALIGNMENT;
    call->stages = L::RING / call->stage_bytes > MAX_STAGES ? (int32_t)MAX_STAGES : L::RING / call->stage_bytes;
}

int linear_wgmma_quantized_sharing = 1; /* XXX */

template <class T, enum weight_format FORMAT, int N, int GROUPS, int BLOCKS>
static bool launch(struct backend *b, const char *operation, quantized_call *call)
{
    using L = quantized_tiling<FORMAT, N, GROUPS, BLOCKS>;
    const struct matmul *m = &call->matmul;
    const struct cuda_state *s = cuda_use(b);
    call->token_tiles = (int32_t)cuda_div_up(m->num_tokens, N);
    plan<L>(s, call, BLOCKS);
    call->sharing = call->splits == 1 && linear_wgmma_quantized_sharing == 2 ? 2 : 1;
    const int32_t box_rows = m->result == MATMUL_GATE ? call->tile_rows / 2 : call->tile_rows;
    if (!map_weight(&call->weight, m, box_rows) ||
        !map_matrix(&call->x, m->x, m->num_tokens, m->in_features, m->x_stride, N / call->sharing))
        return false;
    auto *kernel = linear_wgmma_quantized_kernel<T, FORMAT, N, GROUPS, BLOCKS>;
    if (!cuda_allow_shared(b, operation, kernel, L::SHARED)) return true;
    const int64_t tiles = cuda_div_up(cuda_div_up(m->out_features, call->tile_rows), call->sharing) * call->sharing;
    const dim3 grid((unsigned)(tiles * call->token_tiles * call->splits));
    cuda_launch_dependent(s, kernel, {grid, L::THREADS, L::SHARED, call->splits * call->sharing}, *call);
    cuda_check_launch(b, operation);
    return true;
}

int linear_wgmma_quantized_variant = 0; /* XXX */

template <class T, enum weight_format FORMAT>
static bool launch_tokens(struct backend *b, const char *operation, quantized_call *call)
{
    switch (linear_wgmma_quantized_variant) {
    case 1:
        return launch<T, FORMAT, 16, 2, 2>(b, operation, call);
    case 2:
        return launch<T, FORMAT, 32, 2, 2>(b, operation, call);
    case 3:
        return launch<T, FORMAT, 64, 2, 2>(b, operation, call);
    case 4:
        return launch<T, FORMAT, 64, 4, 1>(b, operation, call);
    case 5:
        return launch<T, FORMAT, 128, 2, 1>(b, operation, call);
    case 6:
        return launch<T, FORMAT, 128, 4, 1>(b, operation, call);
    case 7:
        return launch<T, FORMAT, 256, 2, 1>(b, operation, call);
    }
    const int32_t tokens = call->matmul.num_tokens;
    return tokens <= 16    ? launch<T, FORMAT, 16, 2, 2>(b, operation, call)
           : tokens <= 32  ? launch<T, FORMAT, 32, 2, 2>(b, operation, call)
           : tokens <= 64  ? launch<T, FORMAT, 64, 2, 2>(b, operation, call)
           : tokens <= 128 ? launch<T, FORMAT, 128, 2, 1>(b, operation, call)
                           : launch<T, FORMAT, 256, 2, 1>(b, operation, call);
}

template <class T> static bool launch_format(struct backend *b, const char *operation, quantized_call *call)
{
#ifdef INT4ONLY
    return launch_tokens<T, WEIGHT_INT4>(b, operation, call);
#endif
    return call->matmul.format == WEIGHT_INT4   ? launch_tokens<T, WEIGHT_INT4>(b, operation, call)
           : call->matmul.format == WEIGHT_INT8 ? launch_tokens<T, WEIGHT_INT8>(b, operation, call)
                                                : launch_tokens<T, WEIGHT_FP8>(b, operation, call);
}

static bool takes(const struct matmul *m)
{
    const bool size = m->num_tokens >= 1 && m->out_features > 0 && m->out_features <= INT32_MAX / 16 &&
                      m->in_features > 0 && m->in_features <= INT32_MAX / 16;
    const bool rows = m->in_features % (m->format == WEIGHT_INT4 ? INT4_SEGMENT : 16) == 0 && m->x_stride % 8 == 0;
    const bool groups =
        m->group_size >= m->in_features || m->group_size == 32 || m->group_size == 64 || m->group_size % STEP == 0;
    return size && rows && groups && cuda_is_aligned(m->weight) && cuda_is_aligned(m->x) && !m->gain;
}

bool linear_wgmma_quantized(struct backend *b, const char *operation, const struct matmul *m)
{
    if (!cuda_state(b)->has_wgmma || !takes(m)) return false;
    const int64_t features = m->result == MATMUL_GATE ? m->out_features / 2 : m->out_features;
    quantized_call call = {};
    call.matmul = *m;
    call.fours = features % 4 == 0 && m->out_stride % 4 == 0 && cuda_is_aligned(m->out);
    call.groups = (int32_t)cuda_div_up(m->in_features, m->group_size);
    call.scales_of_step = m->group_size >= STEP ? 1 : (int32_t)(STEP / m->group_size);
    return m->dtype == DTYPE_FLOAT16 ? launch_format<__half>(b, operation, &call)
                                     : launch_format<__nv_bfloat16>(b, operation, &call);
}
