/* Matmuls of a quantized weight with a batch of tokens on Hopper. As in linear_wgmma.cu the matmul is transposed, out'
 * [out_features, num_tokens] = weight x', a block has a tile of output features and goes through the input features in
 * steps. But wgmma has the weight in registers: each warpgroup decodes the rows that it multiplies, the next 32 input
 * features while wgmma multiplies the last ones.
 *
 * There are two rings. A stage of one has STEP input features of the weight and, of each row and group, the scale and
 * the offset that is subtracted from the decoded integers, each as a pair of T; two warps make these pairs. A stage of
 * the other has tokens. A weight with one scale for each row is multiplied without it, and the sums are multiplied by
 * it at the end.
 *
 * MXFP4 has no offset. Its scales by MXFP4_FACTOR may be too large for T. float16 has what is missing of them in place
 * of the offset; in bfloat16 they are divided by MXFP4_DIVISOR, by which the sums are multiplied at the end. A scale
 * that is too large even so becomes infinite.
 *
 * Few tiles are split along the input features, one part for each block of a cluster. */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_LINEAR_WGMMA_QUANTIZED_CUH
#define QUIRE_KERNELS_CUDA_MATMUL_LINEAR_WGMMA_QUANTIZED_CUH

#include "kernels/cuda/matmul/kernels.cuh"
#include "kernels/cuda/matmul/linear_wgmma_encoded.cuh"

enum {
    COPY_WARPS = 4, /* of the weights, of the tokens, and two of the scales */
    MAX_STAGES = 12,
    SCALES_AT_ONCE = 4 /* of a row */
};

/* The largest scale of MXFP4 whose product with MXFP4_FACTOR float16 holds, and what scales are divided by in bfloat16.
 * x by the quotients are normal numbers of float32 from 2^-94 on. */
static constexpr float MXFP4_LARGEST = 2, MXFP4_DIVISOR = 0x1p32f;

/* The layout of the kernel for up to N tokens with GROUPS warpgroups that multiply 64 * ROW_BLOCKS rows each;
 * PLACES of its blocks fit on a multiprocessor. */
template <enum weight_format FORMAT, int N, int GROUPS, int ROW_BLOCKS, int MAX_PLACES> struct quantized_tiling {
    static constexpr int TOKENS = N, PLACES = MAX_PLACES;
    static constexpr int ROWS = 64 * GROUPS * ROW_BLOCKS; /* output features of a tile, at most */
    static constexpr int MMA_THREADS = GROUP * GROUPS, THREADS = MMA_THREADS + 32 * COPY_WARPS;
    static constexpr int ROW_BYTES = IS_PACKED<FORMAT> ? STEP / 2 : STEP, WEIGHT_BYTES = ROWS * ROW_BYTES;
    static constexpr int TOKEN_BOX = N * BOX_ROW, BOXES = N >= 128 ? 1 : STEP / BOX_FEATURES; /* of a stage */
    static constexpr int TOKEN_STAGE = BOXES * TOKEN_BOX, TOKEN_STEP = STEP / BOX_FEATURES * TOKEN_BOX;
    static constexpr int RING = (PLACES == 1 ? 222 : 110) << 10; /* bytes of both rings */
    static constexpr int SHARED = ALIGNMENT + RING;
    static constexpr int SUMS_ROW = ROWS + 4; /* floats; the padding puts the tokens of a warp into different banks */
    static constexpr int TOKENS_AT_ONCE = N >= 128 ? 8 : 2; /* that a thread writes */
    static constexpr bool ROUNDS_FIRST = N >= 128; /* results are 16-bit in shared memory, if the tile is not split */
    /* Registers of a thread, if the warps that multiply need more than the others. */
    static constexpr bool UNEVEN = N * ROW_BLOCKS >= 128;
    static constexpr int MMA_REGISTERS = 216, COPY_REGISTERS = 72;
    static_assert(4 * N * SUMS_ROW <= RING, "the rings hold the sums at the end");
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* The two rings: stages of a step of weights and their scales, and stages of BOXES boxes of tokens. */
struct quantized_rings {
    step_ring weights, tokens;
};

/* ---- the warps that copy ---- */

/* SCALES_AT_ONCE scales of a row as they lie in memory, or as floats, and zeros, a byte each. */
struct scale_words {
    uint4 scales;
    uint32_t zeros;
};

/* Whether SCALES_AT_ONCE of them can be read as one, beginning with a multiple of that. */
static __device__ __forceinline__ bool scales_are_aligned(const quantized_wgmma_call &call)
{
    return call.groups % SCALES_AT_ONCE == 0 && call.matmul.group_size <= STEP &&
           ((uintptr_t)call.matmul.scales & (call.matmul.scale_dtype == DTYPE_FLOAT32 ? 15 : 7)) == 0 &&
           ((uintptr_t)call.matmul.zeros & 3) == 0;
}

/* Loads the scales and zeros of a row's input features from `place` * STEP / scales_of_step on. `scales` is where the
 * row's scales begin, `zeros` where its zeros do. */
static __device__ __forceinline__ scale_words load_raw(const quantized_wgmma_call &call, int64_t scales,
                                                       const uint8_t *zeros, int place, bool aligned)
{
    scale_words raw = {{0, 0, 0, 0}, 0x08080808};
    if (aligned) {
        if (call.matmul.scale_dtype == DTYPE_FLOAT32) {
            raw.scales = *(const uint4 *)((const float *)call.matmul.scales + scales + place);
        } else {
            const uint2 two = *(const uint2 *)((const uint16_t *)call.matmul.scales + scales + place);
            raw.scales.x = two.x, raw.scales.y = two.y;
        }
        if (zeros) raw.zeros = *(const uint32_t *)(zeros + place);
        return raw;
    }
    float values[SCALES_AT_ONCE];
#pragma unroll
    for (int k = 0; k < SCALES_AT_ONCE; k++) {
        const int group =
            min((place + k) * (STEP / call.scales_of_step) / (int)call.matmul.group_size, call.groups - 1);
        values[k] = load_scale(call.matmul.scales, call.matmul.scale_dtype, scales + group);
        if (zeros) raw.zeros = (raw.zeros & ~(255u << 8 * k)) | (uint32_t)zeros[group] << 8 * k;
    }
    raw.scales = {__float_as_uint(values[0]), __float_as_uint(values[1]), __float_as_uint(values[2]),
                  __float_as_uint(values[3])};
    return raw;
}

/* The same for MXFP4, a byte each. A row has an even number of scales, and begins at an even address; behind the last
 * ones, where a row ends with half a step, come others. */
static __device__ __forceinline__ scale_words load_e8m0(const quantized_wgmma_call &call, int64_t scales, int place)
{
    const uint16_t *row = (const uint16_t *)((const uint8_t *)call.matmul.scales + scales);
    return {{row[place / 2] | (uint32_t)row[min(place + 2, call.groups - 2) / 2] << 16, 0, 0, 0}, 0};
}

template <enum weight_format FORMAT>
static __device__ __forceinline__ scale_words load_scales(const quantized_wgmma_call &call, int64_t scales,
                                                          const uint8_t *zeros, int place, bool aligned)
{
    if constexpr (FORMAT == WEIGHT_MXFP4)
        return load_e8m0(call, scales, place);
    else
        return load_raw(call, scales, zeros, place, aligned);
}

/* pairs[k]: the scale of group k, and what is subtracted from its elements before, each twice. */
template <class T, enum weight_format FORMAT>
static __device__ __forceinline__ void make_pairs(uint2 (&pairs)[SCALES_AT_ONCE], const quantized_wgmma_call &call,
                                                  const scale_words &raw, bool aligned)
{
    const uint32_t words[] = {raw.scales.x, raw.scales.y, raw.scales.z, raw.scales.w};
    const bool is_float = !aligned || call.matmul.scale_dtype == DTYPE_FLOAT32;
#pragma unroll
    for (int k = 0; k < SCALES_AT_ONCE; k++) {
        const uint32_t bits = is_float ? words[k] : words[k / 2] >> 16 * (k % 2) & 0xffff;
        float scale = to_scale(bits, is_float ? DTYPE_FLOAT32 : call.matmul.scale_dtype);
        if (call.groups == 1) scale = 1.0f;
        if (FORMAT == WEIGHT_FP8) scale *= FP8_FACTOR<T>;
        pairs[k] = {pair_of<T>(scale), INT4_BITS<T> + (raw.zeros >> 8 * k & 255) * 0x10001};
    }
}

/* The same for MXFP4: by what its elements are multiplied, and multiplied again. */
template <class T>
static __device__ __forceinline__ void make_mxfp4_pairs(uint2 (&pairs)[SCALES_AT_ONCE], const scale_words &raw)
{
    constexpr uint32_t NOT_A_NUMBER = 0x7fff7fff, EXPONENT = 126 - 32; /* of MXFP4_FACTOR / MXFP4_DIVISOR */
#pragma unroll
    for (int k = 0; k < SCALES_AT_ONCE; k++) {
        const uint32_t bits = raw.scales.x >> 8 * k & 255;
        if constexpr (std::is_same_v<T, __half>) {
            const float scale = e8m0_to_float(bits), rest = scale > MXFP4_LARGEST ? scale / MXFP4_LARGEST : 1;
            pairs[k] = {pair_of<T>(scale / rest * MXFP4_FACTOR<T>), pair_of<T>(rest)};
        } else {
            pairs[k] = {bits == 255 ? NOT_A_NUMBER : min(bits + EXPONENT, 255u) * 0x00800080u, 0};
        }
    }
}

/* Half of the rows' scales, by a warp, which loads those of the next steps before it stores these. */
template <class T, enum weight_format FORMAT, class L>
static __device__ __forceinline__ void copy_scales(const quantized_wgmma_call &call, const tile_part &part,
                                                   const step_ring &ring, int half)
{
    constexpr int ROWS_OF_LANE = L::ROWS / 64;
    const int of_step = call.scales_of_step, lane = threadIdx.x % 32;
    const int begin = part.begin * of_step, end = part.end * of_step;
    const bool aligned = scales_are_aligned(call);
    int64_t scales[ROWS_OF_LANE];
    const uint8_t *zeros[ROWS_OF_LANE];
    scale_words next[ROWS_OF_LANE];
    ring_place at = {0, 0};
#pragma unroll
    for (int j = 0; j < ROWS_OF_LANE; j++) {
        const int feature = weight_row(call, part, 64 * j + 32 * half + lane);
        scales[j] = (int64_t)(feature / (int)call.matmul.scale_rows) * call.groups;
        zeros[j] = call.matmul.zeros ? call.matmul.zeros + (int64_t)feature * call.groups : NULL;
        next[j] = load_scales<FORMAT>(call, scales[j], zeros[j], begin & -SCALES_AT_ONCE, aligned);
    }
#pragma unroll 1
    for (int first = begin & -SCALES_AT_ONCE; first < end; first += SCALES_AT_ONCE) {
        uint2 pairs[ROWS_OF_LANE][SCALES_AT_ONCE];
#pragma unroll
        for (int j = 0; j < ROWS_OF_LANE; j++) {
            if constexpr (FORMAT == WEIGHT_MXFP4)
                make_mxfp4_pairs<T>(pairs[j], next[j]);
            else
                make_pairs<T, FORMAT>(pairs[j], call, next[j], aligned);
            if (first + SCALES_AT_ONCE < end)
                next[j] = load_scales<FORMAT>(call, scales[j], zeros[j], first + SCALES_AT_ONCE, aligned);
        }
        auto store = [&](int k) {
            const int of = k & (of_step - 1); /* of_step is a power of two */
            if (first + k < begin || first + k >= end) return;
            if (of == 0) wait_until_free(ring, at);
            uint2 *to = (uint2 *)(ring.data + at.stage * call.weight_stage_bytes + L::WEIGHT_BYTES) + of * L::ROWS;
#pragma unroll
            for (int j = 0; j < ROWS_OF_LANE; j++) to[64 * j + 32 * half + lane] = pairs[j][k];
            if (of < of_step - 1) return;
            __syncwarp();
            if (lane == 0) barrier_arrive(&ring.full[at.stage]);
            ring_step(at, call.weight_stages);
        };
        store(0), store(1), store(2), store(3);
        static_assert(SCALES_AT_ONCE == 4, "all are stored");
    }
}

/* ---- the warpgroups that multiply ---- */

/* wgmma reads the registers of one step of 32 input features while the others are decoded. So a stage is released when
 * the first step of the next stage has been started and wgmma_wait<1> shows that those before it have ended. */
template <class T, enum weight_format FORMAT, int N, int ROW_BLOCKS, class L>
static __device__ __forceinline__ void multiply_decoded(float (&sums)[ROW_BLOCKS][N / 2],
                                                        const quantized_wgmma_call &call, const tile_part &part,
                                                        const quantized_rings &rings)
{
    const bool releases = threadIdx.x % 32 == 0;
    const uint32_t first_weights = shared_address(rings.weights.data), first_tokens = shared_address(rings.tokens.data);
    ring_place at = {0, 0}, token_at = {0, 0};
    int before = 0, token_before = 0;
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; m++) wgmma_pin(sums[m]); /* they are zero before the first wgmma */
#pragma unroll 1
    for (int i = part.begin; i < part.end; i++) {
        const uint32_t stage = first_weights + at.stage * call.weight_stage_bytes;
        encoded<FORMAT> from[ROW_BLOCKS];
        uint32_t a[2][ROW_BLOCKS][2][4], tokens = 0;
        barrier_wait(&rings.weights.full[at.stage], at.round & 1);
#pragma unroll
        for (int m = 0; m < ROW_BLOCKS; m++) {
            const int row = row_of_thread<ROW_BLOCKS>(m), t = threadIdx.x % 4;
            from[m].load(stage, row, t);
            if constexpr (FORMAT == WEIGHT_MXFP4)
                if ((i + 1) * STEP > call.matmul.in_features) from[m].load_half(stage, row, t);
        }
#pragma unroll
        for (int w = 0; w < STEP / 32; w++) {
            constexpr int WORDS = L::BOXES * BOX_FEATURES / 32; /* of a stage of tokens */
#pragma unroll
            for (int m = 0; m < ROW_BLOCKS; m++) {
                const uint32_t pairs = stage + L::WEIGHT_BYTES + 8 * row_of_thread<ROW_BLOCKS>(m) +
                                       (w * call.scales_of_step >> 2) * (8 * L::ROWS);
                const uint2 low = shared_load_2(pairs), high = shared_load_2(pairs + 64);
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    uint32_t *to = a[w % 2][m][half];
                    from[m].template decode<T>(to, w, half, low.y, high.y);
                    to[0] = multiply_pairs<T>(to[0], low.x), to[2] = multiply_pairs<T>(to[2], low.x);
                    to[1] = multiply_pairs<T>(to[1], high.x), to[3] = multiply_pairs<T>(to[3], high.x);
                    if (FORMAT == WEIGHT_MXFP4 && std::is_same_v<T, __half>) {
                        to[0] = multiply_pairs<T>(to[0], low.y), to[2] = multiply_pairs<T>(to[2], low.y);
                        to[1] = multiply_pairs<T>(to[1], high.y), to[3] = multiply_pairs<T>(to[3], high.y);
                    }
                    wgmma_pin_operand(a[w % 2][m][half]);
                }
            }
            if (w % WORDS == 0) {
                barrier_wait(&rings.tokens.full[token_at.stage], token_at.round & 1);
                tokens = first_tokens + token_at.stage * L::TOKEN_STAGE;
            }
            wgmma_begin();
#pragma unroll
            for (int half = 0; half < 2; half++)
#pragma unroll
                for (int m = 0; m < ROW_BLOCKS; m++)
                    wgmma_registers<T, N>(sums[m], a[w % 2][m][half],
                                          swizzled_descriptor(tokens + w % WORDS / 2 * L::TOKEN_BOX) +
                                              (w % 2 * 2 + half) * 2);
            wgmma_commit();
            wgmma_wait<1>();
            if (w == 0) barrier_arrive_if(&rings.weights.empty[before], releases && i > part.begin);
            if (w % WORDS == 0) {
                barrier_arrive_if(&rings.tokens.empty[token_before], releases && (i > part.begin || w > 0));
                token_before = token_at.stage;
                ring_step(token_at, call.token_stages);
            }
        }
        before = at.stage;
        ring_step(at, call.weight_stages);
    }
    wgmma_wait<0>();
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; m++) wgmma_pin(sums[m]);
}

/* What a thread's sums of a row block are multiplied by, those of row `row` and of the one 8 behind it. */
template <class T, enum weight_format FORMAT>
static __device__ __forceinline__ void load_row_scales(float (&out)[2], const quantized_wgmma_call &call,
                                                       const tile_part &part, int row)
{
    constexpr float OF_ALL = FORMAT == WEIGHT_MXFP4 && !std::is_same_v<T, __half> ? MXFP4_DIVISOR : 1;
#pragma unroll
    for (int i = 0; i < 2; i++)
        out[i] = FORMAT == WEIGHT_MXFP4 || call.groups > 1
                     ? OF_ALL
                     : load_scale(call.matmul.scales, call.matmul.scale_dtype,
                                  weight_row(call, part, row + 8 * i) / (int)call.matmul.scale_rows);
}

template <class T, enum weight_format FORMAT, int N, int ROW_BLOCKS, class L>
static __device__ __forceinline__ void multiply_quantized_tile(const quantized_wgmma_call &call, const tile_part &part,
                                                               const quantized_rings &rings)
{
    float sums[ROW_BLOCKS][N / 2] = {}, *shared_sums = (float *)rings.weights.data;
    multiply_decoded<T, FORMAT, N, ROW_BLOCKS, L>(sums, call, part, rings);
    mma_warps_sync<L>(); /* no warp reads operands any more */
    if constexpr (L::ROUNDS_FIRST) {
        if (is_whole_tile(call)) {
#pragma unroll
            for (int m = 0; m < ROW_BLOCKS; m++) {
                const int row = row_of_thread<ROW_BLOCKS>(m);
                float scales[2];
                load_row_scales<T, FORMAT>(scales, call, part, row);
                share_results<T, N, L>(sums[m], call, part, row, scales, (T *)shared_sums);
            }
            finish_whole_tile<T, L>(call, part, (const T *)shared_sums);
            return;
        }
    }
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; m++) {
        const int row = row_of_thread<ROW_BLOCKS>(m);
        float scales[2];
        load_row_scales<T, FORMAT>(scales, call, part, row);
        leave_sums<L, N>(shared_sums, sums[m], row, scales);
    }
    finish_tile<T, L>(call, part, shared_sums);
}

/* The warps that copy; the first two with one lane. */
template <class T, enum weight_format FORMAT, class L>
static __device__ __forceinline__ void copy_quantized_tile(const quantized_wgmma_call &call, const tile_part &part,
                                                           const quantized_rings &rings)
{
    const int warp = (threadIdx.x - L::MMA_THREADS) / 32, lane = threadIdx.x % 32;
    if (warp >= 2) copy_scales<T, FORMAT, L>(call, part, rings.weights, warp - 2);
    if (lane == 0 && warp == 0)
        copy_steps<1>(weights_of_tile(call, part, L::ROW_BYTES, L::ROW_BYTES / 2), rings.weights, part.begin, part.end,
                      part.begin, 0, 0, evict_first_policy());
    if (lane == 0 && warp == 1) {
        constexpr int STAGES_OF_STEP = STEP / BOX_FEATURES / L::BOXES;
        const int begin = part.begin * STAGES_OF_STEP, end = part.end * STAGES_OF_STEP;
        wait_for_previous();
        copy_steps<L::BOXES>(tokens_of_tile(call, part, L::TOKEN_BOX), rings.tokens, begin, end, begin, 0, L::TOKEN_BOX,
                             evict_last_policy());
    }
    leave_cluster(call);
}

#endif

template <class T, enum weight_format FORMAT, int N, int GROUPS, int ROW_BLOCKS, int PLACES>
static __global__ void __launch_bounds__(quantized_tiling<FORMAT, N, GROUPS, ROW_BLOCKS, PLACES>::THREADS, PLACES)
    linear_wgmma_quantized_kernel(const __grid_constant__ quantized_wgmma_call call)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    using L = quantized_tiling<FORMAT, N, GROUPS, ROW_BLOCKS, PLACES>;
    extern __shared__ uint8_t shared[];
    __shared__ uint64_t barriers[4][MAX_STAGES];
    uint8_t *data = shared + (-shared_address(shared) & (ALIGNMENT - 1));
    const quantized_rings rings = {{data, barriers[0], barriers[1], call.weight_stages, call.weight_stage_bytes},
                                   {data + call.weight_stages * call.weight_stage_bytes, barriers[2], barriers[3],
                                    call.token_stages, L::TOKEN_STAGE}};
    let_next_start();
    const tile_part part = find_part<N>(call);
    if (part.num_tokens == 0) return;
    if (threadIdx.x < MAX_STAGES) {
        init_stage(rings.weights, threadIdx.x, COPY_WARPS - 1, L::MMA_THREADS / 32);
        init_stage(rings.tokens, threadIdx.x, 1, L::MMA_THREADS / 32);
        barrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x < L::MMA_THREADS) {
        if constexpr (L::UNEVEN) take_registers<L::MMA_REGISTERS>();
        multiply_quantized_tile<T, FORMAT, N, ROW_BLOCKS, L>(call, part, rings);
    } else {
        if constexpr (L::UNEVEN) give_registers<L::COPY_REGISTERS>();
        copy_quantized_tile<T, FORMAT, L>(call, part, rings);
    }
    leave_cluster(call); /* no other block uses this block's shared memory any more */
#endif
}

/* As many stages of weights as fit together with those of their tokens; the rest is for more tokens. */
template <class L> static void plan_rings(quantized_wgmma_call *call)
{
    call->weight_stage_bytes =
        (int32_t)cuda_div_up(L::WEIGHT_BYTES + 8 * L::ROWS * call->scales_of_step, ALIGNMENT) * ALIGNMENT;
    call->weight_stages = L::RING / (call->weight_stage_bytes + L::TOKEN_STEP); /* 2 at least */
    if (call->weight_stages > MAX_STAGES) call->weight_stages = MAX_STAGES;
    call->token_stages = (L::RING - call->weight_stages * call->weight_stage_bytes) / L::TOKEN_STAGE;
    if (call->token_stages > MAX_STAGES) call->token_stages = MAX_STAGES;
}

template <class T, enum weight_format FORMAT, int N, int GROUPS, int ROW_BLOCKS, int PLACES>
static bool launch(struct backend *b, const char *operation, quantized_wgmma_call *call)
{
    using L = quantized_tiling<FORMAT, N, GROUPS, ROW_BLOCKS, PLACES>;
    plan_tiles<L>(cuda_use(b), call, STEP, true);
    plan_rings<L>(call);
    if (!map_operands(call, N)) return false;
    launch_tiles<L>(b, operation, linear_wgmma_quantized_kernel<T, FORMAT, N, GROUPS, ROW_BLOCKS, PLACES>, call);
    return true;
}

/* The tiles for more than 128 tokens, in the order in which they are preferred. The cost of a step is how many tokens
 * wgmma could multiply by 128 output features in the same time, which is about 8 cycles for each: those of the tile,
 * but more where fewer tokens or rows of the tile use what is copied. */
struct many_tokens_tile {
    int32_t tokens, row_blocks, step_cost;
};
static const struct many_tokens_tile many_tokens_tiles[] = {{256, 1, 256}, {128, 2, 264}, {192, 1, 198}, {128, 1, 152}};

/* Beside its steps: what filling the rings costs, how many steps take as long as writing the tile, and adding the sums
 * of each further part. */
enum { START_COST = 600, WRITE_STEPS = 4, SPLIT_STEPS = 2 };

static int64_t cost_of(int64_t places, const struct matmul *m, const struct many_tokens_tile *tile)
{
    const int64_t rows = 2 * 64 * tile->row_blocks;
    const int64_t tiles =
        cuda_div_up(m->out_features, rows) * token_tiles_of(&m->segments, m->num_tokens, tile->tokens);
    const int32_t splits = splits_of(places, tiles, m->in_features, true);
    const int64_t steps = cuda_div_up(cuda_div_up(m->in_features, STEP), splits) + SPLIT_STEPS * (splits - 1);
    return cuda_div_up(tiles * splits, places) * (START_COST + (steps + WRITE_STEPS) * tile->step_cost);
}

static struct many_tokens_tile cheapest_tile(int64_t places, const struct matmul *m)
{
    struct many_tokens_tile best = many_tokens_tiles[0];
    for (const struct many_tokens_tile &tile : many_tokens_tiles)
        if (cost_of(places, m, &tile) < cost_of(places, m, &best)) best = tile;
    return best;
}

template <class T, enum weight_format FORMAT>
static bool launch_many_tokens(struct backend *b, const char *operation, quantized_wgmma_call *call)
{
    const struct many_tokens_tile tile = cheapest_tile(cuda_state(b)->num_sms, &call->matmul);
    return tile.tokens == 256     ? launch<T, FORMAT, 256, 2, 1, 1>(b, operation, call)
           : tile.tokens == 192   ? launch<T, FORMAT, 192, 2, 1, 1>(b, operation, call)
           : tile.row_blocks == 2 ? launch<T, FORMAT, 128, 2, 2, 1>(b, operation, call)
                                  : launch<T, FORMAT, 128, 2, 1, 1>(b, operation, call);
}

/* Up to 128 tokens: where there are enough tiles, those of twice as many output features read the tokens half as often.
 */
template <class T, enum weight_format FORMAT>
static bool launch_tokens(struct backend *b, const char *operation, quantized_wgmma_call *call)
{
    const int32_t tokens = matmul_tile_tokens(&call->matmul);
    const bool many_tiles = call->matmul.out_features > 128 * cuda_state(b)->num_sms;
    return tokens <= 16   ? launch<T, FORMAT, 16, 2, 1, 2>(b, operation, call)
           : tokens <= 32 ? launch<T, FORMAT, 32, 2, 1, 2>(b, operation, call)
           : tokens <= 64 ? launch<T, FORMAT, 64, 2, 1, 2>(b, operation, call)
           : tokens > 128 ? launch_many_tokens<T, FORMAT>(b, operation, call)
           : many_tiles   ? launch<T, FORMAT, 128, 2, 2, 1>(b, operation, call)
                          : launch<T, FORMAT, 128, 2, 1, 1>(b, operation, call);
}

/* What the kernel needs to know beside the matmul. */
static quantized_wgmma_call quantized_call_of(const struct matmul *m)
{
    quantized_wgmma_call call = {};
    set_matmul(&call, m);
    call.groups = (int32_t)cuda_div_up(m->in_features, m->group_size);
    call.scales_of_step = m->group_size >= STEP ? 1 : (int32_t)(STEP / m->group_size);
    return call;
}

#endif
