/* The matmuls of experts for few tokens by quantized weights, decoded in registers and multiplied by mma (mma.cuh): 16
 * rows of a weight by up to 8 rows of x. Memory sets their speed, so each matrix is read once, and a warp has many
 * loads under way.
 *
 * A warp goes through the input features in pieces of 16 bytes of each lane. Lane (i, j) has piece j of each four, of
 * rows i and i + 8 of the weight, and the same input features of row i of x; in which order the mma gets them does not
 * matter. FP8 and INT8: 16 features that follow each other, a word to a step. INT4: as weight_prepare has put them
 * (quantized.cuh).
 *
 * experts_gate_up: rows i are gates, and rows i + 8 the ups that belong to them, so a lane ends with both. Warps have
 * items of 8 gates for up to 8 rows of an expert in turn.
 *
 * experts_down: a block computes 16 output features of all tokens. Its warps take the experts in turn, and leave
 * weighted sums in shared memory, from where they are added in the order of each token's experts. */
#include <type_traits>

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/experts/few_experts.cuh"
#include "kernels/cuda/matmul/quantized.cuh"
#include "kernels/cuda/mma.cuh"

enum {
    PLACES = 2,  /* blocks on a multiprocessor */
    AT_ONCE = 6, /* pieces under way, of each of two rows */
    TILE = 16,   /* rows of a weight */
    ROWS = 8,    /* of x */
    MAX_ROWS = FEW_EXPERTS_MAX_TOKENS * FEW_EXPERTS_MAX_TOP_K
};

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
template <enum weight_format F> static constexpr int QUAD_FEATURES = F == WEIGHT_INT4 ? 128 : 64;

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

/* sums += a piece of two rows of the weight by x. x: where the lane's first input feature of the quad's piece is; NULL:
 * the row of x does not exist. */
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
                multiply_add<T>(sums, a, x ? from[0] : 0, x ? from[4] : 0);
            }
    } else {
        const uint4 none = {}, first = x ? ((const uint4 *)x)[0] : none, second = x ? ((const uint4 *)x)[1] : none;
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

/* sums = rows low_row and high_row of the weights (the lane's, of all experts') by the lane's row of x, NULL: none. */
template <class T, enum weight_format F, bool GROUPED>
static __device__ __forceinline__ void multiply_rows(float (&sums)[4], const quantized_matrices &w, int64_t low_row,
                                                     int64_t high_row, const T *x)
{
    constexpr int QUAD = QUAD_FEATURES<F>;
    const int j = threadIdx.x % 4, quads = w.in_features / QUAD;
    const uint8_t *low = w.data + low_row * w.row_bytes + 16 * j, *high = w.data + high_row * w.row_bytes + 16 * j;
    const T *own_x = x ? x + (F == WEIGHT_INT4 ? 2 * j : 16 * j) : NULL;
    uint32_t offsets[2] = {};
    if (F == WEIGHT_INT4 && !GROUPED)
        offsets[0] = offset_of<T>(w, low_row, 0), offsets[1] = offset_of<T>(w, high_row, 0);
#pragma unroll 1
    for (int first = 0; first < quads; first += AT_ONCE) {
        uint4 l[AT_ONCE], h[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int at = min(first + k, quads - 1) * 64;
            l[k] = load_once(low + at);
            h[k] = load_once(high + at);
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int quad = first + k;
            if (quad >= quads) break;
            const T *at = own_x ? own_x + quad * QUAD : NULL;
            if constexpr (GROUPED) {
                const int group = quad * QUAD / w.group_size;
                const float scales[2] = {scale_of<T, F>(w, low_row, group), scale_of<T, F>(w, high_row, group)};
                float part[4] = {};
                if (F == WEIGHT_INT4)
                    offsets[0] = offset_of<T>(w, low_row, group), offsets[1] = offset_of<T>(w, high_row, group);
                multiply_piece<T, F>(part, l[k], h[k], at, offsets);
#pragma unroll
                for (int i = 0; i < 4; i++) sums[i] += scales[i / 2] * part[i];
            } else {
                multiply_piece<T, F>(sums, l[k], h[k], at, offsets);
            }
        }
    }
    if (GROUPED) return;
    const float scales[2] = {scale_of<T, F>(w, low_row, 0), scale_of<T, F>(w, high_row, 0)};
#pragma unroll
    for (int i = 0; i < 4; i++) sums[i] *= scales[i / 2];
}

/* ---- gate and up ---- */

struct gate_up_call {
    void *out; /* [num_rows, size] */
    const void *x;
    quantized_matrices weights;
    expert_plan plan;
    gate_params gate;
    int32_t num_rows, num_experts, top_k, size;
    bool weights_first;
};

/* Finishes the gate and the up that a lane has of a row of x. */
template <class T>
static __device__ __forceinline__ void finish(const gate_up_call &call, const expert_rows &rows, int column,
                                              int feature, float gate, float up)
{
    const int row = rows.first + column;
    if (column >= rows.count || feature >= call.size) return;
    if (call.weights_first) {
        const float weight = weight_of_row(call.plan, row, call.top_k);
        gate *= weight, up *= weight;
    }
    if (call.weights.bias) {
        const T *bias = (const T *)call.weights.bias + (int64_t)rows.expert * 2 * call.size + feature;
        gate += to_float(bias[0]), up += to_float(bias[call.size]);
    }
    const T g = from_float<T>(gate), u = from_float<T>(up);
    ((T *)call.out)[(int64_t)row * call.size + feature] =
        from_float<T>(gate_value<T>(call.gate, to_float(g), to_float(u)));
}

/* Item i is tile i % tiles of the rows that row i / tiles leads. */
template <class T, enum weight_format F, bool GROUPED>
static __global__ void __launch_bounds__(FEW_EXPERTS_WARPS * 32, PLACES)
    gate_up_kernel(const __grid_constant__ gate_up_call call)
{
    const int tiles = (call.size + TILE / 2 - 1) / (TILE / 2), items = call.num_rows * tiles;
    const int i = threadIdx.x % 32 / 4, j = threadIdx.x % 4;
    let_next_start();
    wait_for_previous();
    for (int item = blockIdx.x * FEW_EXPERTS_WARPS + threadIdx.x / 32; item < items;
         item += gridDim.x * FEW_EXPERTS_WARPS) {
        const expert_rows rows = rows_led_by<ROWS>(call.plan.starts, call.num_experts, item / tiles);
        if (rows.count == 0) continue;
        const int feature = item % tiles * (TILE / 2) + i, there = min(feature, call.size - 1);
        const int64_t gate_row = (int64_t)rows.expert * 2 * call.size + there;
        const T *x = NULL;
        if (i < rows.count)
            x = (const T *)call.x + (int64_t)call.plan.tokens[rows.first + i] * call.weights.in_features;
        float sums[4] = {};
        multiply_rows<T, F, GROUPED>(sums, call.weights, gate_row, gate_row + call.size, x);
        finish<T>(call, rows, 2 * j, feature, sums[0], sums[2]);
        finish<T>(call, rows, 2 * j + 1, feature, sums[1], sums[3]);
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

/* Adds a token's rows of sums [num_rows, TILE], in their order, to its base. */
template <class T>
static __device__ __forceinline__ void add_rows(const down_call &call, const float (&sums)[MAX_ROWS][TILE], int token,
                                                int column, int feature)
{
    const int64_t at = (int64_t)token * call.weights.out_features + feature;
    const int first = token * call.top_k;
    float sum = 0;
    if (call.base)
        sum = to_float(((const T *)call.base)[at]) * (call.base_gate ? gate_factor(call.base_gate[token]) : 1.0f);
    for (int k = 0; k < call.top_k; k++)
        sum += (call.weights_first ? 1.0f : call.plan.weights[first + k]) * sums[call.plan.rows[first + k]][column];
    ((T *)call.out)[at] = from_float<T>(sum);
}

template <class T, enum weight_format F, bool GROUPED>
static __global__ void __launch_bounds__(FEW_EXPERTS_WARPS * 32, PLACES)
    down_kernel(const __grid_constant__ down_call call)
{
    __shared__ float sums_of_rows[MAX_ROWS][TILE];
    const quantized_matrices &w = call.weights;
    const int num_rows = call.num_tokens * call.top_k, first_feature = blockIdx.x * TILE, last = w.out_features - 1;
    const int i = threadIdx.x % 32 / 4, j = threadIdx.x % 4;
    let_next_start();
    wait_for_previous();
    for (int row = threadIdx.x / 32; row < num_rows; row += FEW_EXPERTS_WARPS) {
        const expert_rows rows = rows_led_by<ROWS>(call.plan.starts, call.num_experts, row);
        if (rows.count == 0) continue;
        const int64_t first_row = (int64_t)rows.expert * w.out_features;
        const int low = min(first_feature + i, last), high = min(first_feature + i + 8, last);
        const T *x = i < rows.count ? (const T *)call.x + (int64_t)(row + i) * w.in_features : NULL,
                *bias = (const T *)w.bias;
        float sums[4] = {};
        multiply_rows<T, F, GROUPED>(sums, w, first_row + low, first_row + high, x);
        if (bias) {
            const float of_rows[2] = {to_float(bias[first_row + low]), to_float(bias[first_row + high])};
#pragma unroll
            for (int k = 0; k < 4; k++) sums[k] += of_rows[k / 2];
        }
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (2 * j + k % 2 < rows.count) sums_of_rows[row + 2 * j + k % 2][i + k / 2 * 8] = sums[k];
    }
    __syncthreads();
    for (int at = threadIdx.x; at < call.num_tokens * TILE; at += FEW_EXPERTS_WARPS * 32)
        if (first_feature + at % TILE <= last)
            add_rows<T>(call, sums_of_rows, at / TILE, at % TILE, first_feature + at % TILE);
}

/* ---- the host's side ---- */

/* Rows of whole quads, INT4 as weight_prepare makes it, groups of whole quads. */
static bool takes(const struct weight *w, enum dtype dtype, int32_t num_tokens, int32_t top_k, const void *x)
{
    const int quad = w->format == WEIGHT_INT4 ? QUAD_FEATURES<WEIGHT_INT4> : QUAD_FEATURES<WEIGHT_FP8>;
    const bool format = w->format == WEIGHT_FP8 || w->format == WEIGHT_INT8 || w->format == WEIGHT_INT4;
    return format && num_tokens <= FEW_EXPERTS_MAX_TOKENS && top_k <= FEW_EXPERTS_MAX_TOP_K &&
           (dtype == DTYPE_BFLOAT16 || dtype == DTYPE_FLOAT16) && (!w->bias || w->bias_dtype == dtype) &&
           w->in_features % quad == 0 && (w->group_size >= w->in_features || w->group_size % quad == 0) &&
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
        if (weight_groups(w) > 1) {
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
    if (!takes(w, args->dtype, args->num_tokens, args->top_k, args->x)) return false;
    const struct cuda_state *s = cuda_use(b);
    const gate_up_call call = {args->out, args->x,           matrices_of(w), args->plan, args->gate,
                               rows,      args->num_experts, args->top_k,    args->size, args->weights_first};
    const cuda_launch launch =
        few_experts_launch(s, PLACES, cuda_div_up(rows * cuda_div_up(args->size, TILE / 2), FEW_EXPERTS_WARPS));
    dispatch(w, args->dtype, [&](auto zero, auto format, auto grouped) {
        cuda_launch_dependent(s, gate_up_kernel<decltype(zero), decltype(format)::value, decltype(grouped)::value>,
                              launch, call);
    });
    cuda_check_launch(b, "experts_gate_up");
    return true;
}

bool few_experts_quantized_down(struct backend *b, const struct experts_down_args *args)
{
    const struct weight *w = args->down.weights;
    if (!takes(w, args->dtype, args->num_tokens, args->top_k, args->x)) return false;
    const struct cuda_state *s = cuda_use(b);
    const down_call call = {args->out,  args->x,          matrices_of(w),    args->base,  args->base_gate,
                            args->plan, args->num_tokens, args->num_experts, args->top_k, args->weights_first};
    const cuda_launch launch = {dim3((unsigned)cuda_div_up(w->out_features, TILE)), FEW_EXPERTS_WARPS * 32};
    dispatch(w, args->dtype, [&](auto zero, auto format, auto grouped) {
        cuda_launch_dependent(s, down_kernel<decltype(zero), decltype(format)::value, decltype(grouped)::value>, launch,
                              call);
    });
    cuda_check_launch(b, "experts_down");
    return true;
}
