/* The matmuls of experts for few tokens by quantized weights, decoded in registers and multiplied by mma (mma.cuh): 16
 * rows of a weight by up to 8 rows of x. Memory sets their speed, so each matrix is read once, and a warp has many
 * loads under way.
 *
 * A warp goes through the input features in pieces of 16 bytes of each lane. Lane (i, j) has piece j of each four, of
 * rows i and i + 8 of the weight, and the same input features of row i of x; in which order the mma gets them does not
 * matter. FP8 and INT8: 16 features that follow each other, a word to a step. INT4 and MXFP4: as weight_prepare has put
 * them (quantized.cuh). The words of a piece of MXFP4 are the quad's part of a group each.
 *
 * experts_gate_up: rows i are gates, and rows i + 8 the ups that belong to them, so a lane ends with both; or features
 * of the first half, and of the second. Blocks take tiles of these pairs for up to 8 rows of an expert in turn; the
 * warps of a tile share its input features.
 *
 * experts_down: a block computes 16 output features of all tokens. Its warps, two of which share a matrix, take the
 * experts in turn, and leave sums in shared memory, from where they are added in the order of each token's experts. */
#include <type_traits>

#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/experts/few_experts.cuh"
#include "kernels/cuda/matmul/quantized.cuh"
#include "kernels/cuda/mma.cuh"

enum {
    TILE = 16,                               /* rows of a weight */
    ROWS = 8,                                /* of x */
    SHARES = 4,                              /* of the input features of a tile, each a warp's, of experts_gate_up, */
    DOWN_SHARES = 2,                         /* and of experts_down */
    GATE_TILES = FEW_EXPERTS_WARPS / SHARES, /* of a block at a time */
    WGMMA_BEST = 5,                          /* tokens from which on linear_wgmma_quantized is faster, on Hopper */
    MAX_ROWS = FEW_EXPERTS_MAX_TOKENS * FEW_EXPERTS_MAX_TOP_K
};

/* Blocks of experts_gate_up on a multiprocessor. The scales of groups take registers. */
template <bool GROUPED> static constexpr int PLACES = GROUPED ? 2 : 3;

/* Warps of a block of experts_down, of which a multiprocessor has 16: MXFP4 needs fewer for enough bytes under way, and
 * with two blocks to a multiprocessor the tiles of a matrix are shared out better. */
template <enum weight_format F> static constexpr int DOWN_WARPS = F == WEIGHT_MXFP4 ? 8 : 16;

/* Pieces under way, of each of two rows. */
template <enum weight_format F> static constexpr int AT_ONCE = F == WEIGHT_INT4 ? 4 : 6;

/* The weights of experts, one behind the other. */
struct quantized_matrices {
    const uint8_t *data;
    const void *scales, *bias;
    const uint8_t *zeros;
    enum dtype scale_dtype;
    int32_t out_features, in_features, row_bytes;
    int32_t scale_rows, group_size, groups; /* groups 1: a scale for a whole row */
};

/* Input features of four pieces, a quad's. */
template <enum weight_format F> static constexpr int QUAD_FEATURES = IS_PACKED<F> ? 128 : 64;

/* The scale and, of INT4, the offset pair of row `row` of all experts' and a group. */
template <class T, enum weight_format F>
static __device__ __forceinline__ float scale_of(const quantized_matrices &w, int64_t row, int group)
{
    return load_scale(w.scales, w.scale_dtype, row / w.scale_rows * w.groups + group);
}

template <class T>
static __device__ __forceinline__ uint32_t offset_of(const quantized_matrices &w, int64_t row, int group)
{
    return pair_of<T>(INT4_OFFSET<T> + (w.zeros ? (float)w.zeros[row * w.groups + group] : 8.0f));
}

/* sums += a piece of two rows of the weight by x. x: where the lane's first input feature of the quad's piece is. */
template <class T, enum weight_format F>
static __device__ __forceinline__ void multiply_piece(float (&sums)[4], const uint4 &low, const uint4 &high, const T *x,
                                                      const uint32_t (&offsets)[2])
{
    const uint32_t l[4] = {low.x, low.y, low.z, low.w}, h[4] = {high.x, high.y, high.z, high.w};
    if constexpr (F == WEIGHT_INT4) {
#pragma unroll
        for (int w = 0; w < 4; w++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint32_t a[4] = {
                    int4_pair<T>(l[w], 2 * half, offsets[0]), int4_pair<T>(h[w], 2 * half, offsets[1]),
                    int4_pair<T>(l[w], 2 * half + 1, offsets[0]), int4_pair<T>(h[w], 2 * half + 1, offsets[1])};
                const uint32_t *from = (const uint32_t *)(x + 32 * w + 16 * half);
                multiply_add<T>(sums, a, from[0], from[4]);
            }
    } else {
        const uint4 first = ((const uint4 *)x)[0], second = ((const uint4 *)x)[1];
        const uint32_t in[8] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
#pragma unroll
        for (int w = 0; w < 4; w++) {
            uint32_t a[4];
            if constexpr (F == WEIGHT_INT8) {
                int8_pairs<T>(l[w], a[0], a[2]);
                int8_pairs<T>(h[w], a[1], a[3]);
            } else {
                fp8_pairs<T>(l[w], a[0], a[2]);
                fp8_pairs<T>(h[w], a[1], a[3]);
#pragma unroll
                for (int i = 0; i < 4; i++) a[i] = multiply_pairs<T>(a[i], pair_of<T>(FP8_FACTOR<T>));
            }
            /* Elements 0 and 2, 1 and 3 of four. */
            multiply_add<T>(sums, a, __byte_perm(in[2 * w], in[2 * w + 1], 0x5410),
                            __byte_perm(in[2 * w], in[2 * w + 1], 0x7632));
        }
    }
}

/* Quads of a row that a share has. half: the first share, which has the fewest, also has the half of one at the end of
 * a row of MXFP4. */
struct row_share {
    int begin, end;
    bool half;
};

template <enum weight_format F>
static __device__ __forceinline__ row_share share_of(const quantized_matrices &w, int share, int shares)
{
    const int quads = w.in_features / QUAD_FEATURES<F>;
    return {quads * share / shares, quads * (share + 1) / shares, share == 0 && w.in_features % QUAD_FEATURES<F> > 0};
}

/* multiply_rows of the other formats. */
template <class T, enum weight_format F, bool GROUPED>
static __device__ __forceinline__ void multiply_scaled_rows(float (&sums)[4], const quantized_matrices &w,
                                                            int64_t low_row, int64_t high_row, const T *x,
                                                            const row_share &share)
{
    constexpr int QUAD = QUAD_FEATURES<F>, N = AT_ONCE<F>, CONSTANTS = GROUPED ? N : 1;
    const int j = threadIdx.x % 4;
    const uint8_t *low = w.data + low_row * w.row_bytes + 16 * j, *high = w.data + high_row * w.row_bytes + 16 * j;
    const T *own_x = x + (F == WEIGHT_INT4 ? 2 * j : 16 * j);
    float scales[CONSTANTS][2];
    uint32_t offsets[CONSTANTS][2] = {};
    auto load_constants = [&](int k, int group) {
        scales[k][0] = scale_of<T, F>(w, low_row, group), scales[k][1] = scale_of<T, F>(w, high_row, group);
        if (F != WEIGHT_INT4) return;
        offsets[k][0] = offset_of<T>(w, low_row, group), offsets[k][1] = offset_of<T>(w, high_row, group);
    };
    if (!GROUPED) load_constants(0, 0);
#pragma unroll 1
    for (int first = share.begin; first < share.end; first += N) {
        uint4 l[N], h[N];
#pragma unroll
        for (int k = 0; k < N; k++) {
            const int quad = min(first + k, share.end - 1);
            l[k] = load_once(low + quad * 64);
            h[k] = load_once(high + quad * 64);
        }
#pragma unroll
        for (int k = 0; GROUPED && k < N; k++)
            load_constants(k % CONSTANTS, min(first + k, share.end - 1) * QUAD / w.group_size);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float part[4] = {};
            if (first + k >= share.end) break;
            multiply_piece<T, F>(part, l[k], h[k], own_x + (first + k) * QUAD, offsets[k % CONSTANTS]);
#pragma unroll
            for (int i = 0; i < 4; i++) sums[i] += GROUPED ? scales[k % CONSTANTS][i / 2] * part[i] : part[i];
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) sums[i] *= GROUPED ? 1 : scales[0][i / 2];
}

/* ---- MXFP4 ---- */

/* A lane's piece of two rows, and the scales of its words, a byte each. */
struct mxfp4_pieces {
    uint4 low, high;
    uint32_t low_scales, high_scales;
};

/* The scales of so many words of a quad, two at a time: the scales of a row are at an even address. */
template <int WORDS> static __device__ __forceinline__ uint32_t load_scales(const uint8_t *scales, int quad)
{
    const uint16_t *two = (const uint16_t *)(scales + 4 * quad);
    return __ldg(two) | (WORDS == 4 ? (uint32_t)__ldg(two + 1) << 16 : 0);
}

/* sums += WORDS words of the pieces by x, as in multiply_piece. */
template <class T, int WORDS>
static __device__ __forceinline__ void multiply_mxfp4(float (&sums)[4], const mxfp4_pieces &p, const T *x)
{
    const uint32_t l[4] = {p.low.x, p.low.y, p.low.z, p.low.w}, h[4] = {p.high.x, p.high.y, p.high.z, p.high.w};
    const uint32_t factor = pair_of<T>(MXFP4_FACTOR<T>);
#pragma unroll
    for (int w = 0; w < WORDS; w++) {
        const float low_scale = mxfp4_scale(p.low_scales, w), high_scale = mxfp4_scale(p.high_scales, w);
        float part[4] = {};
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t a[4];
            mxfp4_operand<T>(a, l[w], h[w], half);
#pragma unroll
            for (int i = 0; i < 4; i++) a[i] = multiply_pairs<T>(a[i], factor);
            const uint32_t *from = (const uint32_t *)(x + 32 * w + 16 * half);
            multiply_add<T>(part, a, from[0], from[4]);
        }
        sums[0] += low_scale * part[0], sums[1] += low_scale * part[1];
        sums[2] += high_scale * part[2], sums[3] += high_scale * part[3];
    }
}

/* multiply_rows of MXFP4, whose scales are those of a word. */
template <class T>
static __device__ __forceinline__ void multiply_mxfp4_rows(float (&sums)[4], const quantized_matrices &w,
                                                           int64_t low_row, int64_t high_row, const T *x,
                                                           const row_share &share)
{
    constexpr int QUAD = QUAD_FEATURES<WEIGHT_MXFP4>, N = AT_ONCE<WEIGHT_MXFP4>;
    const int j = threadIdx.x % 4, whole = w.in_features / QUAD;
    const uint8_t *low = w.data + low_row * w.row_bytes, *high = w.data + high_row * w.row_bytes;
    const uint8_t *low_scales = (const uint8_t *)w.scales + low_row * w.groups,
                  *high_scales = (const uint8_t *)w.scales + high_row * w.groups;
    const T *own_x = x + 2 * j;
#pragma unroll 1
    for (int first = share.begin; first < share.end; first += N) {
        mxfp4_pieces p[N];
#pragma unroll
        for (int k = 0; k < N; k++) {
            const int quad = min(first + k, share.end - 1);
            p[k] = {load_once(low + quad * 64 + 16 * j), load_once(high + quad * 64 + 16 * j),
                    load_scales<4>(low_scales, quad), load_scales<4>(high_scales, quad)};
        }
#pragma unroll
        for (int k = 0; k < N; k++)
            if (first + k < share.end) multiply_mxfp4<T, 4>(sums, p[k], own_x + (first + k) * QUAD);
    }
    if (!share.half) return;
    const uint2 l = *(const uint2 *)(low + whole * 64 + 8 * j), h = *(const uint2 *)(high + whole * 64 + 8 * j);
    const mxfp4_pieces p = {
        {l.x, l.y}, {h.x, h.y}, load_scales<2>(low_scales, whole), load_scales<2>(high_scales, whole)};
    multiply_mxfp4<T, 2>(sums, p, own_x + whole * QUAD);
}

/* sums = a share of rows low_row and high_row of the weights (the lane's, of all experts') by the lane's row of x. */
template <class T, enum weight_format F, bool GROUPED>
static __device__ __forceinline__ void multiply_rows(float (&sums)[4], const quantized_matrices &w, int64_t low_row,
                                                     int64_t high_row, const T *x, const row_share &share)
{
    if constexpr (F == WEIGHT_MXFP4)
        multiply_mxfp4_rows<T>(sums, w, low_row, high_row, x, share);
    else
        multiply_scaled_rows<T, F, GROUPED>(sums, w, low_row, high_row, x, share);
}

/* ---- gate and up ---- */

struct gate_up_call {
    gated_rows to;
    const void *x;
    quantized_matrices weights;
    int32_t num_rows, num_experts;
};

/* A block computes GATE_TILES tiles at a time, SHARES warps each. Item i is tiles i % groups * GATE_TILES and on, of
 * the rows that row i / groups leads. */
template <class T, enum weight_format F, bool GROUPED>
static __global__ void __launch_bounds__(FEW_EXPERTS_WARPS * 32, PLACES<GROUPED>)
    gate_up_kernel(const __grid_constant__ gate_up_call call)
{
    __shared__ float shares[FEW_EXPERTS_WARPS][32][4];
    constexpr int FEATURES = GATE_TILES * TILE / 2;
    const int groups = (call.to.pairs + FEATURES - 1) / FEATURES, items = call.num_rows * groups;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, i = lane / 4, j = lane % 4;
    const row_share share = share_of<F>(call.weights, warp % SHARES, SHARES);
    let_next_start();
    wait_for_previous();
    for (int item = blockIdx.x; item < items; item += gridDim.x) {
        const expert_rows rows = rows_led_by<ROWS>(call.to.plan.starts, call.num_experts, item / groups);
        if (rows.count == 0) continue;
        const int feature = item % groups * FEATURES + warp / SHARES * (TILE / 2) + i,
                  there = min(feature, call.to.pairs - 1);
        const int64_t gate_row = (int64_t)rows.expert * 2 * call.to.pairs + there;
        const int token = call.to.plan.tokens[rows.first + min(i, rows.count - 1)]; /* a row too many is not used */
        const T *x = (const T *)call.x + (int64_t)token * call.weights.in_features;
        float sums[4] = {};
        multiply_rows<T, F, GROUPED>(sums, call.weights, gate_row, gate_row + call.to.pairs, x, share);
        *(piece<float, 4> *)shares[warp][lane] = {sums[0], sums[1], sums[2], sums[3]};
        __syncthreads();
        if (warp % SHARES == 0) {
#pragma unroll
            for (int k = 1; k < SHARES; k++)
#pragma unroll
                for (int n = 0; n < 4; n++) sums[n] += shares[warp + k][lane][n];
#pragma unroll
            for (int n = 0; n < 2; n++)
                if (2 * j + n < rows.count && feature < call.to.pairs)
                    finish_pair<T>(call.to, rows.expert, rows.first + 2 * j + n, feature, sums[n], sums[2 + n]);
        }
        __syncthreads();
    }
}

/* ---- down ---- */

struct down_call {
    void *out; /* [num_tokens, out_features] */
    const void *x;
    quantized_matrices weights;
    const void *base;
    const float *base_gate;
    expert_plan plan;
    int32_t num_tokens, num_experts, top_k;
    bool weights_first;
};

using sums_of_rows = float[DOWN_SHARES][MAX_ROWS][TILE];

/* Adds a token's rows of sums, in their order, to its base. */
template <class T>
static __device__ __forceinline__ void add_rows(const down_call &call, const sums_of_rows &sums, int token, int column,
                                                int feature)
{
    const int64_t at = (int64_t)token * call.weights.out_features + feature;
    const int first = token * call.top_k;
    float sum = 0;
    if (call.base)
        sum = to_float(((const T *)call.base)[at]) * (call.base_gate ? gate_factor(call.base_gate[token]) : 1.0f);
    for (int k = 0; k < call.top_k; k++) {
        const int row = call.plan.rows[first + k];
        sum +=
            (call.weights_first ? 1.0f : call.plan.weights[first + k]) * (sums[0][row][column] + sums[1][row][column]);
    }
    ((T *)call.out)[at] = from_float<T>(sum);
}

/* Leaves a share of the tile of the expert whose rows row `row` leads. */
template <class T, enum weight_format F, bool GROUPED>
static __device__ __forceinline__ void multiply_tile(const down_call &call, sums_of_rows &shared, int row, int share)
{
    const quantized_matrices &w = call.weights;
    const int lane = threadIdx.x % 32, i = lane / 4, j = lane % 4, last = w.out_features - 1;
    const expert_rows rows = rows_led_by<ROWS>(call.plan.starts, call.num_experts, row);
    if (rows.count == 0) return;
    const int64_t first_row = (int64_t)rows.expert * w.out_features;
    const int low = min((int)blockIdx.x * TILE + i, last), high = min((int)blockIdx.x * TILE + i + 8, last);
    const T *x = (const T *)call.x + (int64_t)(row + min(i, rows.count - 1)) * w.in_features;
    const T *bias = (const T *)w.bias;
    float sums[4] = {};
    multiply_rows<T, F, GROUPED>(sums, w, first_row + low, first_row + high, x, share_of<F>(w, share, DOWN_SHARES));
    if (bias && share == 0) {
        const float of_rows[2] = {to_float(bias[first_row + low]), to_float(bias[first_row + high])};
#pragma unroll
        for (int k = 0; k < 4; k++) sums[k] += of_rows[k / 2];
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (2 * j + k % 2 < rows.count) shared[share][row + 2 * j + k % 2][i + k / 2 * 8] = sums[k];
}

/* Grid: x the tile. */
template <class T, enum weight_format F, bool GROUPED>
static __global__ void __launch_bounds__(DOWN_WARPS<F> * 32, 16 / DOWN_WARPS<F>)
    down_kernel(const __grid_constant__ down_call call)
{
    __shared__ sums_of_rows shared;
    const int num_rows = call.num_tokens * call.top_k, warp = threadIdx.x / 32;
    let_next_start();
    wait_for_previous();
    for (int row = warp / DOWN_SHARES; row < num_rows; row += DOWN_WARPS<F> / DOWN_SHARES)
        multiply_tile<T, F, GROUPED>(call, shared, row, warp % DOWN_SHARES);
    __syncthreads();
    for (int at = threadIdx.x; at < call.num_tokens * TILE; at += DOWN_WARPS<F> * 32) {
        const int feature = blockIdx.x * TILE + at % TILE;
        if (feature < call.weights.out_features) add_rows<T>(call, shared, at / TILE, at % TILE, feature);
    }
}

/* ---- the host's side ---- */

/* Rows of whole quads, INT4 as weight_prepare makes it, groups of whole quads. Of MXFP4 what weight_prepare reorders.
 */
static bool takes_format(const struct weight *w)
{
    const int quad = w->format == WEIGHT_INT4 ? QUAD_FEATURES<WEIGHT_INT4> : QUAD_FEATURES<WEIGHT_FP8>;
    if (w->format == WEIGHT_MXFP4)
        return weight_is_prepared(w) && w->scale_dtype == DTYPE_E8M0 && w->scale_rows == 1 &&
               (uintptr_t)w->scales % 2 == 0;
    return (w->format == WEIGHT_FP8 || w->format == WEIGHT_INT8 || w->format == WEIGHT_INT4) &&
           w->in_features % quad == 0 && (w->group_size >= w->in_features || w->group_size % quad == 0);
}

static bool takes(struct backend *b, const struct weight *w, enum dtype dtype, int32_t num_tokens, int32_t top_k,
                  const void *x)
{
    const bool as_e4m3 = w->format == WEIGHT_MXFP4 && dtype == DTYPE_BFLOAT16; /* linear_wgmma_mxfp4_rows.cu */
    const int most_tokens = !cuda_state(b)->has_wgmma ? FEW_EXPERTS_MAX_TOKENS : as_e4m3 ? 0 : WGMMA_BEST - 1;
    return takes_format(w) && num_tokens <= most_tokens && top_k <= FEW_EXPERTS_MAX_TOP_K &&
           (dtype == DTYPE_BFLOAT16 || dtype == DTYPE_FLOAT16) && (!w->bias || w->bias_dtype == dtype) &&
           w->in_features < INT32_MAX / MAX_ROWS && w->out_features < INT32_MAX / MAX_ROWS && !w->input_order &&
           cuda_is_aligned(w->data) && cuda_is_aligned(x);
}

static quantized_matrices matrices_of(const struct weight *w)
{
    return {(const uint8_t *)w->data,
            w->scales,
            w->bias,
            w->zeros,
            w->scale_dtype,
            (int32_t)w->out_features,
            (int32_t)w->in_features,
            (int32_t)weight_row_bytes(w),
            (int32_t)w->scale_rows,
            (int32_t)w->group_size,
            (int32_t)weight_groups(w)};
}

/* Calls f with a value of the type, and constants of the format and of whether there are groups. */
template <class Function> static void dispatch(const struct weight *w, enum dtype dtype, Function f)
{
    auto with_groups = [&](auto zero, auto format) {
        if constexpr (decltype(format)::value == WEIGHT_MXFP4) {
            f(zero, format, std::true_type());
        } else if (weight_groups(w) > 1) {
            f(zero, format, std::true_type());
        } else {
            f(zero, format, std::false_type());
        }
    };
    auto with_type = [&](auto zero) {
        if (w->format == WEIGHT_INT4) {
            with_groups(zero, std::integral_constant<enum weight_format, WEIGHT_INT4>());
        } else if (w->format == WEIGHT_INT8) {
            with_groups(zero, std::integral_constant<enum weight_format, WEIGHT_INT8>());
        } else if (w->format == WEIGHT_MXFP4) {
            with_groups(zero, std::integral_constant<enum weight_format, WEIGHT_MXFP4>());
        } else {
            with_groups(zero, std::integral_constant<enum weight_format, WEIGHT_FP8>());
        }
    };
    if (dtype == DTYPE_FLOAT16) {
        with_type(__half());
    } else {
        with_type(__nv_bfloat16());
    }
}

bool few_experts_quantized_gate_up(struct backend *b, const struct experts_gate_up_args *args)
{
    const struct weight *w = args->gate_up.weights;
    const int32_t rows = args->num_tokens * args->top_k;
    if (!takes(b, w, args->dtype, args->num_tokens, args->top_k, args->x) || w->out_features % 2) return false;
    const struct cuda_state *s = cuda_use(b);
    const gate_up_call call = {gated_rows_of(args), args->x, matrices_of(w), rows, args->num_experts};
    const int64_t blocks = rows * cuda_div_up(w->out_features / 2, GATE_TILES * TILE / 2);
    dispatch(w, args->dtype, [&](auto zero, auto format, auto grouped) {
        constexpr bool GROUPED = decltype(grouped)::value;
        cuda_launch_dependent(s, gate_up_kernel<decltype(zero), decltype(format)::value, GROUPED>,
                              few_experts_launch(s, PLACES<GROUPED>, blocks), call);
    });
    cuda_check_launch(b, "experts_gate_up");
    return true;
}

bool few_experts_quantized_down(struct backend *b, const struct experts_down_args *args)
{
    const struct weight *w = args->down.weights;
    if (!takes(b, w, args->dtype, args->num_tokens, args->top_k, args->x)) return false;
    const struct cuda_state *s = cuda_use(b);
    const down_call call = {args->out,  args->x,          matrices_of(w),    args->base,  args->base_gate,
                            args->plan, args->num_tokens, args->num_experts, args->top_k, args->weights_first};
    dispatch(w, args->dtype, [&](auto zero, auto format, auto grouped) {
        constexpr enum weight_format F = decltype(format)::value;
        cuda_launch_dependent(s, down_kernel<decltype(zero), F, decltype(grouped)::value>,
                              {dim3((unsigned)cuda_div_up(w->out_features, TILE)), DOWN_WARPS<F> * 32}, call);
    });
    cuda_check_launch(b, "experts_down");
    return true;
}
