/* The matmuls of a mixture of experts. Few tokens have kernels of their own (few_experts.cu). Otherwise the rows of a
 * plan are row segments, which the kernels of matmul/ take:
 *
 *     experts_gate_up    the tokens of the rows are gathered, and multiplied with the gate as epilogue; where no kernel
 *                        has that epilogue for segments, by linear_mixed, which gathers, and by gate_kernel
 *     experts_down       the rows are multiplied, and those of each token are added by add_rows_kernel
 *
 * Where the weight wants them so (matmul_segment_rows), rows are quantized or split on the way.
 *
 * The counts of rows stay on the device: grids have room for what there can be at most. */
#include <type_traits>

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/experts/few_experts.cuh"
#include "kernels/cuda/matmul/kernels.cuh"
#include "kernels/cuda/matmul/split.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/quantize.cuh"

enum {
    MAX_THREADS = 256,
    QUANTIZE_THREADS = 1024,
    KEPT = QUANTIZED_SEGMENTS_MAX / 8 / QUANTIZE_THREADS /* pieces of a row that a thread quantizes */
};

/* N elements of T that lie together. */
template <class T, int N> static __device__ __forceinline__ piece<T, N> &piece_at(const T *x, int64_t i)
{
    return ((piece<T, N> *)x)[i];
}

/* out[row] = x[tokens[row]], times the row's weight if there are weights first. Grid: x the row, y the part of its
 * elements. A token -1 is behind the plan's rows, here and below. */
template <class T, int N>
static __global__ void __launch_bounds__(MAX_THREADS)
    gather_kernel(T *out, const T *x, const expert_plan plan, int pieces, int top_k, bool weights_first)
{
    const int i = blockIdx.y * blockDim.x + threadIdx.x, row = blockIdx.x;
    let_next_start();
    wait_for_previous();
    if (i >= pieces) return;
    const int token = plan.tokens[row];
    if (token < 0) return;
    piece<T, N> values = piece_at<T, N>(x, (int64_t)token * pieces + i);
    if (weights_first) {
        const float weight = weight_of_row(plan, row, top_k);
#pragma unroll
        for (int k = 0; k < N; k++) values.values[k] = from_float<T>(weight * to_float(values.values[k]));
    }
    piece_at<T, N>(out, (int64_t)row * pieces + i) = values;
}

/* Quantizes a row of the plan, x[tokens[row]], times the row's weight if there are weights first; or x[row] without
 * tokens. x may be what is written: all of a row is read before any of it is written. Grid: x the row. */
template <class T, int N>
static __global__ void __launch_bounds__(QUANTIZE_THREADS)
    quantize_kernel(const quantize_call to, const T *x, const expert_plan plan, int pieces, int top_k,
                    bool weights_first)
{
    const int row = blockIdx.x;
    piece<T, N> kept[KEPT];
    let_next_start();
    wait_for_previous();
    const int64_t from = plan.tokens ? plan.tokens[row] : row;
    if (from < 0) return;
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        if ((int)(threadIdx.x + k * blockDim.x) < pieces)
            kept[k] = piece_at<T, N>(x, from * pieces + threadIdx.x + k * blockDim.x);
    if (weights_first) {
        const float weight = weight_of_row(plan, row, top_k);
#pragma unroll
        for (int k = 0; k < KEPT * N; k++)
            kept[k / N].values[k % N] = from_float<T>(weight * to_float(kept[k / N].values[k % N]));
    }
    if (to.has_groups) __syncthreads(); /* otherwise the block's largest element is waited for */
    quantize_row(to, kept, pieces, [](int) { return piece<T, N>(); });
}

/* Splits (split.cuh) a row of the plan, as quantize_kernel quantizes one. A thread has a piece. */
template <class T>
static __global__ void __launch_bounds__(QUANTIZE_THREADS)
    split_kernel(uint8_t *out, float *scales, const T *x, const expert_plan plan, int pieces, int top_k,
                 bool weights_first)
{
#if __CUDA_ARCH__ >= 890
    __shared__ uint32_t of_warps[32];
    const int row = blockIdx.x, i = threadIdx.x;
    float values[SPLIT_PIECE] = {};
    uint32_t largest = 0; /* as an integer, so that it is NaN if there is one */
    let_next_start();
    wait_for_previous();
    const int64_t from = plan.tokens ? plan.tokens[row] : row;
    if (from < 0) return;
    if (i < pieces) {
        const float weight = weights_first ? weight_of_row(plan, row, top_k) : 1.0f;
        const piece<T, SPLIT_PIECE> p = ((const piece<T, SPLIT_PIECE> *)x)[from * pieces + i];
#pragma unroll
        for (int k = 0; k < SPLIT_PIECE; k++) {
            values[k] = to_float(from_float<T>(weight * to_float(p.values[k])));
            largest = max(largest, __float_as_uint(values[k]) & 0x7fffffff);
        }
    }
    largest = __reduce_max_sync(~0u, largest);
    if (i % 32 == 0) of_warps[i / 32] = largest;
    __syncthreads();
    largest = __reduce_max_sync(~0u, i % 32 < blockDim.x / 32 ? of_warps[i % 32] : 0);
    const uint32_t exponent = max(largest >> 23, (uint32_t)SPLIT_MIN_EXPONENT);
    if (i == 0) scales[row] = split_scale(exponent);
    if (i >= pieces) return;
#pragma unroll
    for (int k = 0; k < SPLIT_PIECE; k++) values[k] *= split_inverse(exponent);
    uint8_t *to = out + (int64_t)row * pieces * sizeof(piece<T, SPLIT_PIECE>);
    split_store(to, i, 0, values);
    split_store(to, i, 1, values);
#endif
}

/* out[row] = gate(gate_up[row]). With weights first gate_up is multiplied by the row's weight, which the matmul of x
 * left out. Grid: x the row, y the part of its elements. */
template <class T>
static __global__ void __launch_bounds__(MAX_THREADS)
    gate_kernel(T *out, const T *gate_up, const expert_plan plan, gate_params gate, int size, int top_k,
                bool weights_first)
{
    const int i = blockIdx.y * blockDim.x + threadIdx.x, row = blockIdx.x;
    let_next_start();
    wait_for_previous();
    if (i >= size) return;
    const float weight = weights_first ? weight_of_row(plan, row, top_k) : 1.0f;
    const bool gated = gate.kind != GATE_NONE;
    const T *from = gate_up + (int64_t)row * (gated ? 2 : 1) * size;
    const float first = weight * to_float(from[i]);
    out[(int64_t)row * size + i] = from_float<T>(gated ? gate_value<T>(gate, first, weight * to_float(from[size + i]))
                                                       : activate_plain<T>(gate.activation, first));
}

struct addition {
    void *out;
    const void *base, *rows; /* [num_tokens, size], [A, size]; base may be NULL */
    const float *base_gate;
    expert_plan plan;
    int pieces, top_k;
    bool weights_first;
};

/* out[token] = base[token] * base_gate[token] + the token's rows times their weights, in their order. Lane j
 * has row and weight j, so that these are loaded at once, and then the rows' elements. Grid: x the token, y the part of
 * its elements. */
template <class T, int N>
static __global__ void __launch_bounds__(MAX_THREADS) add_rows_kernel(const __grid_constant__ addition call)
{
    constexpr int AT_ONCE = 8;
    static_assert(ROUTER_MAX_TOP_K <= 32, "a lane has one row");
    const int i = blockIdx.y * blockDim.x + threadIdx.x, at = min(i, call.pieces - 1), lane = threadIdx.x % 32;
    const int64_t token = blockIdx.x, first = token * call.top_k;
    const bool has_row = lane < call.top_k;
    float sums[N] = {};
    let_next_start();
    wait_for_previous();
    const int own_row = has_row ? call.plan.rows[first + lane] : 0;
    const float own_weight = has_row && !call.weights_first ? call.plan.weights[first + lane] : 1.0f;
    if (call.base) {
        const piece<T, N> base = piece_at<T, N>((const T *)call.base, token * call.pieces + at);
        const float factor = call.base_gate ? call.base_gate[token] : 1.0f;
#pragma unroll
        for (int k = 0; k < N; k++) sums[k] = factor * to_float(base.values[k]);
    }
#pragma unroll 1
    for (int j = 0; j < call.top_k; j += AT_ONCE) {
        piece<T, N> rows[AT_ONCE];
#pragma unroll
        for (int r = 0; r < AT_ONCE; r++) {
            const int64_t from = __shfl_sync(~0u, own_row, min(j + r, call.top_k - 1));
            rows[r] = piece<T, N>{};
            if (from >= 0) rows[r] = piece_at<T, N>((const T *)call.rows, from * call.pieces + at);
        }
#pragma unroll
        for (int r = 0; r < AT_ONCE; r++) {
            const float weight = __shfl_sync(~0u, own_weight, min(j + r, call.top_k - 1));
#pragma unroll
            for (int k = 0; k < N && j + r < call.top_k; k++) sums[k] += weight * to_float(rows[r].values[k]);
        }
    }
    if (i >= call.pieces) return;
    piece<T, N> out;
#pragma unroll
    for (int k = 0; k < N; k++) out.values[k] = from_float<T>(sums[k]);
    piece_at<T, N>((T *)call.out, token * call.pieces + i) = out;
}

/* ---- the host's side ---- */

/* Calls f with pieces of 16 bytes if all of them lie so, else with single elements; and with a launch for `rows` rows
 * of `size` elements. */
template <class Function>
static void for_pieces(struct backend *b, enum dtype dtype, bool aligned, int32_t rows, int64_t size, Function f)
{
    cuda_dispatch(b, "experts", dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = 16 / sizeof(T);
        auto launch_of = [&](int64_t pieces) {
            const int threads = cuda_threads_for(pieces, MAX_THREADS);
            return cuda_launch{dim3((unsigned)rows, (unsigned)cuda_div_up(pieces, threads)), threads};
        };
        if (aligned && size % N == 0) {
            f(zero, std::integral_constant<int, N>(), launch_of(size / N));
        } else {
            f(zero, std::integral_constant<int, 1>(), launch_of(size));
        }
    });
}

static void gather(struct backend *b, const struct experts_gate_up_args *args, int64_t size)
{
    const struct cuda_state *s = cuda_use(b);
    const bool aligned = cuda_is_aligned(args->x) && cuda_is_aligned(args->scratch);
    for_pieces(b, args->dtype, aligned, args->num_tokens * args->top_k, size,
               [&](auto zero, auto width, const cuda_launch &launch) {
                   using T = decltype(zero);
                   constexpr int N = decltype(width)::value;
                   cuda_launch_dependent(s, gather_kernel<T, N>, launch, (T *)args->scratch, (const T *)args->x,
                                         args->plan, (int)(size / N), (int)args->top_k, args->weights_first);
               });
    cuda_check_launch(b, "experts_gate_up");
}

/* Where quantized rows of `size` elements are written. */
struct row_places {
    struct quantized_rows rows;
    int size;
    int64_t row_bytes, scale_stride; /* from row to row, of elements and of scales */
};

/* Rows that are quantized by blocks lie as far apart as rows of x, and the scales of a row, one for each group, lie
 * behind its elements (linear_wgmma_rows). */
static struct row_places places_of_blocks(void *data, int size, enum dtype dtype)
{
    const int64_t row_bytes = size * dtype_size(dtype);
    return {
        {data, (float *)((uint8_t *)data + size), QUANTIZE_GROUP}, size, row_bytes, row_bytes / (int64_t)sizeof(float)};
}

/* Quantizes `rows` rows of x, or those that the plan's tokens choose. */
static void quantize(struct backend *b, const struct row_places *to, const void *x, const struct expert_plan *plan,
                     int32_t rows, int32_t top_k, bool weights_first, enum dtype dtype)
{
    const int size = to->size;
    const struct cuda_state *s = cuda_use(b);
    cuda_dispatch(b, "experts", dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = 16 / sizeof(T);
        const int pieces = size / N, threads = cuda_threads_for(cuda_div_up(pieces, KEPT), QUANTIZE_THREADS);
        quantize_call call = quantize_call_of(&to->rows, rows, size);
        call.row_bytes = to->row_bytes;
        call.stride = 1;
        call.of_row = to->scale_stride;
        cuda_launch_dependent(s, quantize_kernel<T, N>, {dim3((unsigned)rows), threads}, call, (const T *)x, *plan,
                              pieces, (int)top_k, weights_first);
    });
    cuda_check_launch(b, "experts");
}

/* Splits rows, chosen as those of `quantize`. */
static void split(struct backend *b, const struct quantized_rows *out, const void *x, const struct expert_plan *plan,
                  int32_t rows, int32_t top_k, bool weights_first)
{
    const int pieces = (int)(out->group_size / SPLIT_PIECE), threads = cuda_threads_for(pieces, QUANTIZE_THREADS);
    const struct cuda_state *s = cuda_use(b);
    cuda_launch_dependent(s, split_kernel<__nv_bfloat16>, {dim3((unsigned)rows), threads}, (uint8_t *)out->data,
                          out->scales, (const __nv_bfloat16 *)x, *plan, pieces, (int)top_k, weights_first);
    cuda_check_launch(b, "experts");
}

static void gate(struct backend *b, const struct experts_gate_up_args *args)
{
    const struct cuda_state *s = cuda_use(b);
    for_pieces(b, args->dtype, false, args->num_tokens * args->top_k, args->size,
               [&](auto zero, auto, const cuda_launch &launch) {
                   using T = decltype(zero);

                   cuda_launch_dependent(s, gate_kernel<T>, launch, (T *)args->out, (const T *)args->scratch,
                                         args->plan, args->gate, (int)args->size, (int)args->top_k,
                                         args->weights_first);
               });
    cuda_check_launch(b, "experts_gate_up");
}

/* Rows of `in` by the matrices of their experts. */
static struct linear_args linear_of_rows(void *out, const void *in, const struct weight *w,
                                         const struct row_segments &segments, int32_t num_rows, enum dtype dtype)
{
    struct linear_args args = {};
    args.out = out;
    args.out_stride = w->out_features;
    args.out_dtype = dtype;
    args.x = in;
    args.x_stride = w->in_features;
    args.dtype = dtype;
    args.num_tokens = num_rows;
    args.weight = w;
    args.segments = segments;
    return args;
}

static struct matmul_question question_of(const struct experts_gate_up_args *args, const struct linear_args *linear)
{
    const enum matmul_result result = args->gate.kind == GATE_NONE ? MATMUL_ACTIVATE : MATMUL_GATE;
    return matmul_question_of(linear, result, NULL, &args->gate, true);
}

/* gate_up of rows that are quantized or split, if that is what its weight wants. */
static bool gate_up_of_rows(struct backend *b, const struct experts_gate_up_args *args, struct linear_args *linear)
{
    const struct weight *w = linear->weight;
    const int64_t widest = w->in_features > w->out_features ? w->in_features : w->out_features;
    const int64_t bytes = linear->num_tokens * widest * dtype_size(args->dtype);
    const int size = (int)w->in_features;
    struct row_places to = {{args->scratch, (float *)((uint8_t *)args->scratch + bytes), size}, size, size, 1};
    const struct matmul_device device = matmul_device_of(b);
    struct matmul_question q = question_of(args, linear);
    switch (matmul_segment_rows(&device, &q, w)) {
    case SEGMENT_ROWS_PLAIN:
        return false;
    case SEGMENT_ROWS_BLOCKS:
        to = places_of_blocks(args->scratch, size, args->dtype);
        linear->x_stride = to.row_bytes;
        [[fallthrough]];
    case SEGMENT_ROWS_QUANTIZED:
        quantize(b, &to, args->x, &args->plan, linear->num_tokens, args->top_k, args->weights_first, args->dtype);
        break;
    case SEGMENT_ROWS_SPLIT:
        split(b, &to.rows, args->x, &args->plan, linear->num_tokens, args->top_k, args->weights_first);
        break;
    }
    linear->quantized_x = &to.rows;
    q = question_of(args, linear);
    matmul_run(b, "experts_gate_up", matmul_plan(&device, &q), &q.matmul);
    return true;
}

void cuda_experts_gate_up(struct backend *b, const struct experts_gate_up_args *args)
{
    const struct weight *w = args->gate_up.weights;
    const int32_t rows = args->num_tokens * args->top_k;
    if (rows <= 0 || few_experts_gate_up(b, args) || few_experts_mma_gate_up(b, args)) return;
    const struct row_segments segments = {args->plan.starts, args->num_experts, args->all_experts};
    struct linear_args linear = linear_of_rows(args->out, args->scratch, w, segments, rows, args->dtype);
    linear.out_stride = args->size;
    if (gate_up_of_rows(b, args, &linear)) return;
    const struct matmul_device device = matmul_device_of(b);
    const struct matmul_question q = question_of(args, &linear);
    const enum matmul_kernel kernel = matmul_plan(&device, &q);
    if (kernel != MATMUL_DECLINED) {
        gather(b, args, w->in_features);
        matmul_run(b, "experts_gate_up", kernel, &q.matmul);
        return;
    }
    linear = linear_of_rows(args->scratch, args->x, w, segments, rows, args->dtype);
    linear_mixed_rows(b, &linear, args->plan.tokens);
    gate(b, args);
}

/* The rows of x by the matrices of their experts, in scratch. Where the weight wants quantized or split rows, they take
 * the place of x. */
static void multiply_rows(struct backend *b, const struct experts_down_args *args)
{
    const struct weight *w = args->down.weights;
    const int32_t num_rows = args->num_tokens * args->top_k;
    const struct row_segments segments = {args->plan.starts, args->num_experts, args->all_experts};
    struct linear_args linear = linear_of_rows(args->scratch, args->x, w, segments, num_rows, args->dtype);
    const int64_t bytes = num_rows * w->out_features * dtype_size(args->dtype);
    float *const scales = (float *)((uint8_t *)args->scratch + bytes);
    struct row_places to = places_of_blocks(args->x, args->size, args->dtype);
    const struct expert_plan in_order = {};
    const struct matmul_device device = matmul_device_of(b);
    const struct matmul_question q = matmul_question_of(&linear, MATMUL_STORE, NULL, NULL, false);
    switch (matmul_segment_rows(&device, &q, w)) {
    case SEGMENT_ROWS_PLAIN:
        break;
    case SEGMENT_ROWS_QUANTIZED:
        to.rows = {args->x, scales, args->size};
        to.scale_stride = 1;
        [[fallthrough]];
    case SEGMENT_ROWS_BLOCKS:
        quantize(b, &to, args->x, &in_order, num_rows, args->top_k, false, args->dtype);
        linear.quantized_x = &to.rows;
        linear.x_stride = to.row_bytes;
        break;
    case SEGMENT_ROWS_SPLIT:
        to.rows = {args->x, scales, args->size};
        split(b, &to.rows, args->x, &in_order, num_rows, args->top_k, false);
        linear.quantized_x = &to.rows;
        break;
    }
    cuda_linear(b, &linear);
}

void cuda_experts_down(struct backend *b, const struct experts_down_args *args)
{
    const struct weight *w = args->down.weights;
    if (args->num_tokens * args->top_k <= 0 || few_experts_down(b, args) || few_experts_mma_down(b, args)) return;
    multiply_rows(b, args);
    const struct cuda_state *s = cuda_use(b);
    const bool aligned =
        cuda_is_aligned(args->out) && cuda_is_aligned(args->scratch) && (!args->base || cuda_is_aligned(args->base));
    for_pieces(b, args->dtype, aligned, args->num_tokens, w->out_features,
               [&](auto zero, auto width, const cuda_launch &launch) {
                   using T = decltype(zero);
                   constexpr int N = decltype(width)::value;
                   const addition call = {args->out,        args->base,         args->scratch,
                                          args->base_gate,  args->plan,         (int)(w->out_features / N),
                                          (int)args->top_k, args->weights_first};
                   cuda_launch_dependent(s, add_rows_kernel<T, N>, launch, call);
               });
    cuda_check_launch(b, "experts_down");
}
