/* Matmuls with a batch of tokens on Hopper. The cost is still to read the weights once, but x is too large for the
 * shared memory of every block, so it is copied into the ring together with the weights.
 *
 * The matmul is transposed, out' [out_features, num_tokens] = weight x': the weight is the operand of wgmma that has 64
 * rows for each warpgroup, and the tokens are the operand whose size can be chosen, so that little is computed for
 * tokens that are not there. A block has a tile of output features and goes through the input features in steps. With
 * MATMUL_GATE half of a tile are features of the gate, and the other half are the features of up that belong to them.
 * One warp copies the weights of the steps into the ring with the tensor copy engine, one warp the tokens, and one or
 * two warpgroups multiply. The warp of the weights does not wait for the previous kernel, so the ring is full of them
 * when x is ready.
 *
 * If there are fewer tiles than places for blocks, each tile is split into parts along its input features, one for each
 * block of a cluster. The blocks then share the tokens, and read each other's sums from shared memory and add them in
 * the order of their ranks. A plan leaves room for blocks of the next kernel: more is gained if that kernel fills its
 * rings early than if this kernel has more blocks.
 *
 * Row segments are cut into tiles of N tokens, each of one segment. A block looks for its tile in the starts, so its
 * weights wait for the previous kernel, too; blocks that there is no tile for end at once.
 *
 * Quantized rows by a weight in FP8 (W8A8) go the same way: two e4m3 are copied as one 16-bit element, wgmma multiplies
 * them as e4m3, and the sums are multiplied by the scales of their token and output feature. Counts of input features
 * are counts of 16-bit elements. Where the weight has a scale for each block of 128 x 128, and each row for 128
 * elements (as DeepSeek-V3 is trained), the products of 128 input features are multiplied by their scales before they
 * are added.
 */
#include <cuda_fp8.h>

#include "kernels/cuda/matmul/kernels.cuh"
#include "kernels/cuda/matmul/linear_wgmma_tile.cuh"

/* With fewer stages than there is room for, where a part has fewer steps: then more blocks fit on a multiprocessor. */
struct ringed_call : wgmma_call {
    int32_t stages;
    int32_t groups; /* of input features with a scale for each; 0: none */
};

/* The layout of the kernel for up to N tokens with GROUPS warpgroups that multiply. PLACES blocks fit on a
 * multiprocessor. */
template <int N, int GROUPS> struct tiling {
    static constexpr int TOKENS = N, PLACES = N > 128 ? 1 : 2;
    static constexpr int ROWS = 64 * GROUPS;            /* output features of a tile, at most */
    static constexpr int BOXES = ROWS + N > 96 ? 1 : 2; /* of each operand in a step */
    static constexpr int MMA_THREADS = GROUP * GROUPS, THREADS = MMA_THREADS + 64;
    static constexpr int WEIGHT_BOX = ROWS * BOX_ROW, TOKEN_BOX = N * BOX_ROW;
    static constexpr int STAGE = BOXES * (WEIGHT_BOX + TOKEN_BOX);
    static constexpr int STAGES = (220 << 10) / PLACES / STAGE;
    static constexpr int SUMS_ROW = ROWS + 4; /* floats; the padding puts the tokens of a warp into different banks */
    static constexpr int SHARED = ALIGNMENT + STAGES * STAGE;
    static constexpr int MIN_STAGES = (4 * N * SUMS_ROW + STAGE - 1) / STAGE; /* hold the sums at the end */
    static constexpr int TOKENS_AT_ONCE = 2;                                  /* that a thread writes */
    static_assert(MIN_STAGES <= STAGES, "the ring holds the sums at the end");
};

/* Of a group: the scales of the tokens of a tile, then those of each 8 of its rows. */
template <class L> static constexpr int SCALES_OF_GROUP = L::TOKENS + L::ROWS / 8;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* Multiplies 16 input features, for any N that is a sum of the sizes that wgmma has. E: the type of the operands. */
template <class E, int N>
static __device__ __forceinline__ void multiply(float *sums, uint64_t weights, uint64_t tokens, bool add = true)
{
    constexpr int FIRST = N >= 128 ? 128 : N >= 64 ? 64 : N >= 32 ? 32 : 16;
    if constexpr (std::is_same_v<E, __nv_fp8_e4m3>) {
        wgmma_e4m3<FIRST>(sums, weights, tokens, add);
    } else {
        wgmma_shared<E, FIRST>(sums, weights, tokens, add);
    }
    if constexpr (N > FIRST) multiply<E, N - FIRST>(sums + FIRST / 2, weights, tokens + (FIRST * BOX_ROW >> 4), add);
}

/* Multiplies N tokens of a tile. A stage is released one step late: wgmma_wait<1> after the matmuls of the next stage
 * have been started shows that those of this stage have ended. */
template <class E, int N, class L>
static __device__ __forceinline__ void multiply_steps(float (&sums)[L::TOKENS / 2], const tile_part &part,
                                                      const step_ring &ring)
{
    const uint32_t first = shared_address(ring.data), own_rows = threadIdx.x / GROUP * 64 * BOX_ROW;
    ring_place at = {0, 0};
    int before = 0;
#pragma unroll 1
    for (int i = part.begin; i < part.end; i++) {
        const uint32_t stage = first + at.stage * L::STAGE;
        const uint64_t weights = swizzled_descriptor(stage + own_rows);
        const uint64_t tokens = swizzled_descriptor(stage + L::BOXES * L::WEIGHT_BOX);
        barrier_wait(&ring.full[at.stage], at.round & 1);
        wgmma_begin();
#pragma unroll
        for (int k = 0; k < L::BOXES * 4; k++)
            multiply<E, N>(sums, weights + k / 4 * (L::WEIGHT_BOX >> 4) + k % 4 * 2,
                           tokens + k / 4 * (L::TOKEN_BOX >> 4) + k % 4 * 2);
        wgmma_commit();
        wgmma_wait<1>();
        if (i > part.begin && threadIdx.x % 32 == 0) barrier_arrive(&ring.empty[before]);
        before = at.stage;
        ring_step(at, ring.stages);
    }
    wgmma_wait<0>();
    wgmma_pin(sums);
}

/* Multiplies the tokens of a tile, rounded up to 64, if it has room for more. */
template <class E, int N, class L>
static __device__ __forceinline__ void multiply_tokens(float (&sums)[L::TOKENS / 2], const tile_part &part,
                                                       const step_ring &ring)
{
    if constexpr (N > 64)
        if (part.num_tokens <= N - 64) return multiply_tokens<E, N - 64, L>(sums, part, ring);
    multiply_steps<E, N, L>(sums, part, ring);
}

/* The scale of a row of a tile. A row without an output feature has that of another. */
static __device__ __forceinline__ float scale_of_row(const tiled_matmul &call, const tile_part &part, int row)
{
    const int rows = box_rows(call), half = (int)call.matmul.out_features / 2, last = (int)call.matmul.out_features - 1;
    const int feature = part.tile * rows + (row < rows ? row : row - rows);
    const bool is_up = call.matmul.result == MATMUL_GATE && row >= rows;
    return ((const float *)call.matmul.scales)[part.first_row + min(is_up ? half + feature : feature, last)];
}

/* Multiplies a thread's sums by the scales of their output features and tokens. */
template <int N>
static __device__ __forceinline__ void apply_scales(float (&sums)[N / 2], const tiled_matmul &call,
                                                    const tile_part &part, int row, int token)
{
    const float of_rows[] = {scale_of_row(call, part, row), scale_of_row(call, part, row + 8)};
    const float *of_tokens = call.matmul.x_scales + part.first_token;
    wait_for_previous();
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        const int t = i / 4 * 8 + token + i % 2;
        sums[i] *= of_rows[i % 4 / 2] * (t < part.num_tokens ? of_tokens[t] : 0);
    }
}

/* Tiles begin at different steps, so that they do not all read the same part of x at the same time. */
static __device__ __forceinline__ int first_step(const tile_part &part)
{
    return part.begin + part.tile % (part.end - part.begin);
}

/* Copies the scales of a part to shared memory, those of its first group first; 0 beyond the last group or token. */
template <class L>
static __device__ __forceinline__ void copy_block_scales(float *to, const ringed_call &call, const tile_part &part)
{
    constexpr int COUNT = SCALES_OF_GROUP<L>;
    const matmul &m = call.matmul;
    const int first = part.begin * L::BOXES, count = (part.end - part.begin) * L::BOXES * COUNT;
    for (int i = threadIdx.x; i < count; i += L::MMA_THREADS) {
        const int group = first + i / COUNT, k = i % COUNT, row = (k - L::TOKENS) * 8;
        to[i] = 0;
        if (group >= call.groups || (k < L::TOKENS && k >= part.num_tokens)) continue;
        to[i] = k < L::TOKENS
                    ? m.x_scales[(part.first_token + k) * (m.x_stride / 2) + group]
                    : ((const float *)
                           m.scales)[(int64_t)(weight_row(call, part, row) / (int)m.scale_rows) * call.groups + group];
    }
}

/* sums += the products of a group, times its scales. */
template <int N, class L>
static __device__ __forceinline__ void add_scaled(float (&sums)[N / 2], const float (&products)[N / 2],
                                                  const float *scales)
{
    const int row = row_of_thread<1>(0), token = threadIdx.x % 4 * 2;
    const float of_rows[] = {scales[N + row / 8], scales[N + row / 8 + 1]};
#pragma unroll
    for (int i = 0; i < N / 2; i += 4) {
        const float2 of_tokens = *(const float2 *)(scales + i / 4 * 8 + token);
#pragma unroll
        for (int k = 0; k < 4; k++)
            sums[i + k] += of_rows[k / 2] * (k % 2 ? of_tokens.y : of_tokens.x) * products[i + k];
    }
}

/* multiply_steps with scales of blocks, which lie in shared memory. */
template <class E, int N, class L>
static __device__ __forceinline__ void multiply_blocks(float (&sums)[N / 2], const tile_part &part,
                                                       const step_ring &ring, const float *scales)
{
    const uint32_t first = shared_address(ring.data), own_rows = threadIdx.x / GROUP * 64 * BOX_ROW;
    float products[L::BOXES][N / 2] = {};
    ring_place at = {0, 0};
    int step = first_step(part);
#pragma unroll 1
    for (int i = part.begin; i < part.end; i++) {
        const uint32_t stage = first + at.stage * L::STAGE;
        const uint64_t weights = swizzled_descriptor(stage + own_rows);
        const uint64_t tokens = swizzled_descriptor(stage + L::BOXES * L::WEIGHT_BOX);
        barrier_wait(&ring.full[at.stage], at.round & 1);
        wgmma_begin();
#pragma unroll
        for (int k = 0; k < L::BOXES * 4; k++)
            multiply<E, N>(products[k / 4], weights + k / 4 * (L::WEIGHT_BOX >> 4) + k % 4 * 2,
                           tokens + k / 4 * (L::TOKEN_BOX >> 4) + k % 4 * 2, k % 4 > 0);
        wgmma_commit();
        wgmma_wait<0>();
#pragma unroll
        for (int box = 0; box < L::BOXES; box++) wgmma_pin(products[box]);
        if (threadIdx.x % 32 == 0) barrier_arrive(&ring.empty[at.stage]);
        const float *of_step = scales + (step - part.begin) * L::BOXES * SCALES_OF_GROUP<L>;
#pragma unroll
        for (int box = 0; box < L::BOXES; box++)
            add_scaled<N, L>(sums, products[box], of_step + box * SCALES_OF_GROUP<L>);
        if (++step == part.end) step = part.begin;
        ring_step(at, ring.stages);
    }
}

/* The warpgroups that multiply. At the end they write their sums over the operands in the ring. */
template <class E, class T, int N, class L, bool BLOCKS>
static __device__ __forceinline__ void multiply_tile(const ringed_call &call, const tile_part &part,
                                                     const step_ring &ring)
{
    const int row = row_of_thread<1>(0);
    float sums[N / 2] = {}, *shared_sums = (float *)ring.data;
    if constexpr (BLOCKS) {
        float *scales = (float *)(ring.data + ring.stages * L::STAGE);
        copy_block_scales<L>(scales, call, part);
        mma_warps_sync<L>();
        multiply_blocks<E, N, L>(sums, part, ring, scales);
    } else {
        multiply_tokens<E, N, L>(sums, part, ring);
        if constexpr (!std::is_same_v<E, T>) apply_scales<N>(sums, call, part, row, threadIdx.x % 4 * 2);
    }
    mma_warps_sync<L>(); /* no warp reads operands any more */
    if constexpr (N >= 128) {
        if (is_whole_tile(call)) {
            share_results<T, N, L>(sums, call, part, row, {1.0f, 1.0f}, (T *)shared_sums);
            finish_whole_tile<T, L>(call, part, (const T *)shared_sums);
            return;
        }
    }
    leave_sums<L, N>(shared_sums, sums, row, {1.0f, 1.0f});
    finish_tile<T, L>(call, part, shared_sums);
}

/* The two warps that copy; one lane of each does it. */
template <class L>
static __device__ __forceinline__ void copy_tile(const wgmma_call &call, const tile_part &part, const step_ring &ring)
{
    const int warp = (threadIdx.x - L::MMA_THREADS) / 32, lane = threadIdx.x % 32;
    const int first = first_step(part);
    if (lane == 0 && warp == 0)
        copy_steps<L::BOXES>(weights_of_tile(call, part, BOX_ROW, BOX_FEATURES), ring, part.begin, part.end, first, 0,
                             L::WEIGHT_BOX, evict_first_policy());
    if (lane == 0 && warp == 1) {
        wait_for_previous();
        copy_steps<L::BOXES>(tokens_of_tile(call, part, L::TOKEN_BOX), ring, part.begin, part.end, first,
                             L::BOXES * L::WEIGHT_BOX, L::TOKEN_BOX, evict_last_policy());
    }
    leave_cluster(call);
}

#endif

/* E: the type of the operands, T that of out. BLOCKS: blocks and groups have scales. */
template <class E, class T, int N, int GROUPS, bool BLOCKS>
static __global__ void __launch_bounds__(tiling<N, GROUPS>::THREADS, tiling<N, GROUPS>::PLACES)
    linear_wgmma_kernel(const __grid_constant__ ringed_call call)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    using L = tiling<N, GROUPS>;
    extern __shared__ uint8_t shared[];
    __shared__ uint64_t full[L::STAGES], empty[L::STAGES];
    const step_ring ring = {shared + (-shared_address(shared) & (ALIGNMENT - 1)), full, empty, call.stages, L::STAGE};
    let_next_start();
    const tile_part part = find_part<N>(call);
    if (part.num_tokens == 0) return;
    if (threadIdx.x < call.stages) {
        init_stage(ring, threadIdx.x, 2, L::MMA_THREADS / 32);
        barrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x < L::MMA_THREADS) {
        multiply_tile<E, T, N, L, BLOCKS>(call, part, ring);
    } else {
        copy_tile<L>(call, part, ring);
    }
    leave_cluster(call); /* no other block reads this block's sums any more */
#endif
}

/* Bytes of shared memory for the scales of blocks, at most. */
template <class L> static int scales_bytes(const ringed_call *call)
{
    return call->groups == 0 ? 0 : (call->groups + L::BOXES) * SCALES_OF_GROUP<L> * (int)sizeof(float);
}

template <class E, class T, int N, int GROUPS, bool BLOCKS = false>
static bool launch(struct backend *b, const char *operation, ringed_call *call)
{
    using L = tiling<N, GROUPS>;
    enum { MOST = (225 << 10) / L::PLACES }; /* bytes of a block, of which PLACES fit */
    const struct matmul *m = &call->matmul;
    plan_tiles<L>(cuda_use(b), call, L::BOXES * BOX_FEATURES, false);
    const int32_t box_rows = m->result == MATMUL_GATE ? call->tile_rows / 2 : call->tile_rows;
    if (!map_matrix(&call->weight, m->weight, matmul_weight_rows(m), m->in_features, m->in_features, box_rows) ||
        !map_matrix(&call->x, m->x, m->num_tokens, m->in_features, m->x_stride, N))
        return false;
    const int more = ALIGNMENT + scales_bytes<L>(call);
    call->stages = (int32_t)cuda_div_up(call->steps, call->splits);
    if (call->stages > L::STAGES) call->stages = L::STAGES;
    while (call->stages * L::STAGE + more > MOST) call->stages--;
    if (call->stages < L::MIN_STAGES) call->stages = L::MIN_STAGES;
    launch_tiles<L>(b, operation, linear_wgmma_kernel<E, T, N, GROUPS, BLOCKS>, call, call->stages * L::STAGE + more);
    return true;
}

/* If there are more tiles of 64 output features than fit on the device at once, tiles twice as large read x half as
 * often. */
template <class E, class T, int N> static bool launch_rows(struct backend *b, const char *operation, ringed_call *call)
{
    return cuda_div_up(call->matmul.out_features, 64) > 2 * cuda_state(b)->num_sms
               ? launch<E, T, N, 2>(b, operation, call)
               : launch<E, T, N, 1>(b, operation, call);
}

/* Whether tiles of 256 tokens are faster than two blocks a multiprocessor with tiles of 128: with many tokens, and
 * steps enough that the end of a tile, which nothing runs beside, counts little. */
static bool is_for_256(const struct matmul *m)
{
    enum { MIN_TOKENS = 300, MIN_FEATURES = 512 };
    return matmul_tile_tokens(m) > MIN_TOKENS && m->in_features >= MIN_FEATURES;
}

/* E is T or, of pairs of quantized rows, e4m3. */
template <class E, class T> static bool launch_tokens(struct backend *b, const char *operation, const struct matmul *m)
{
    ringed_call call = {};
    set_matmul(&call, m);
    const int32_t tokens = matmul_tile_tokens(m);
    return tokens <= 16    ? launch_rows<E, T, 16>(b, operation, &call)
           : tokens <= 32  ? launch_rows<E, T, 32>(b, operation, &call)
           : tokens <= 48  ? launch_rows<E, T, 48>(b, operation, &call)
           : tokens <= 64  ? launch_rows<E, T, 64>(b, operation, &call)
           : is_for_256(m) ? launch<E, T, 256, 2>(b, operation, &call)
                           : launch<E, T, 128, 2>(b, operation, &call); /* of row segments */
}

/* By a weight that has scales of blocks. */
template <class T> static bool launch_blocks(struct backend *b, const char *operation, const struct matmul *m)
{
    using E = __nv_fp8_e4m3;
    ringed_call call = {};
    set_matmul(&call, m);
    call.groups = (int32_t)(m->in_features / BOX_FEATURES);
    const int32_t tokens = matmul_tile_tokens(m);
    return tokens <= 16   ? launch<E, T, 16, 1, true>(b, operation, &call)
           : tokens <= 32 ? launch<E, T, 32, 1, true>(b, operation, &call)
           : tokens <= 48 ? launch<E, T, 48, 1, true>(b, operation, &call)
                          : launch<E, T, 64, 1, true>(b, operation, &call);
}

bool linear_wgmma(struct backend *b, const char *operation, const struct matmul *m)
{
    return m->dtype == DTYPE_FLOAT16 ? launch_tokens<__half, __half>(b, operation, m)
                                     : launch_tokens<__nv_bfloat16, __nv_bfloat16>(b, operation, m);
}

bool linear_wgmma_rows(struct backend *b, const char *operation, const struct matmul *m)
{
    struct matmul pairs = *m;
    pairs.in_features = m->in_features / 2;
    pairs.x_stride = m->x_stride / 2;
    if (m->scale_rows > 1)
        return m->dtype == DTYPE_FLOAT16 ? launch_blocks<__half>(b, operation, &pairs)
                                         : launch_blocks<__nv_bfloat16>(b, operation, &pairs);
    return m->dtype == DTYPE_FLOAT16 ? launch_tokens<__nv_fp8_e4m3, __half>(b, operation, &pairs)
                                     : launch_tokens<__nv_fp8_e4m3, __nv_bfloat16>(b, operation, &pairs);
}
