/* RMSNorm (Zhang and Sennrich, 2019) and LayerNorm (Ba et al., 2016), with or without an addition to the residual
 * stream before it. One block a token.
 *
 * A thread keeps what it reads for the sum of squares in registers, up to KEPT pieces, so that it need not read them
 * again for the result. The gains are read first: the norm of a few tokens spends its time waiting for memory, and no
 * kernel writes the gains, so they can be loaded while the previous kernel still runs.
 *
 * rms_norm_kernel takes what most models consist of. LayerNorm, a norm of what is added (post norm) and an addition
 * without a norm after it go to any_norm_kernel, which finds out at run time what it has to do. */
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/gains.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/quantize.cuh"
#include "kernels/cuda/warp.cuh"

enum { MAX_THREADS = 32 * BLOCK_SUM_WARPS, KEPT = 2 };

template <class T> struct norm_call {
    T *out;
    const T *x;
    T *residual;
    int64_t out_stride, x_stride;
    struct norm_params norm;
    quantize_call quantized;
    left_out_scales scales; /* of x, where there is a residual */
    float multiplier;       /* of x, where there is a residual */
    int size;
};

/* Piece i of x; with a residual, of the residual after the addition, rounded to T as it is stored. */
template <class T, int N, bool ADD>
static __device__ __forceinline__ piece<T, N> load_piece(const norm_call<T> &call, const piece<T, N> *x,
                                                         piece<T, N> *residual, int i, float *sum)
{
    piece<T, N> p = x[i];
    if constexpr (ADD) {
        const piece<T, N> r = residual[i];
        float values[N];
        load_values(values, p, call.scales, i);
#pragma unroll
        for (int j = 0; j < N; j++)
            p.values[j] = from_float<T>(fmaf(call.multiplier, values[j], to_float(r.values[j])));
        residual[i] = p;
    }
#pragma unroll
    for (int j = 0; j < N; j++) *sum += to_float(p.values[j]) * to_float(p.values[j]);
    return p;
}

template <class T, int N>
static __device__ __forceinline__ void store_piece(piece<T, N> *out, piece<T, N> p, const raw_gains<N> &raw,
                                                   enum dtype gain_dtype, float factor, int i)
{
    apply_gains(p, factor, raw, gain_dtype);
    out[i] = p;
}

/* The normed row, quantized. `row`: where it is read again. */
template <class T, int N>
static __device__ __forceinline__ void quantize_kept(const norm_call<T> &call, piece<T, N> (&kept)[KEPT],
                                                     const raw_gains<N> (&gains)[KEPT], float factor,
                                                     const piece<T, N> *row)
{
    const int pieces = call.size / N;
    const struct norm_params &norm = call.norm;
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        if ((int)(threadIdx.x + k * blockDim.x) < pieces) apply_gains(kept[k], factor, gains[k], norm.gain_dtype);
    quantize_row(call.quantized, kept, pieces, [&](int i) {
        piece<T, N> p = row[i];
        apply_gains(p, factor, load_gains<N>(norm.gain, norm.gain_dtype, i), norm.gain_dtype);
        return p;
    });
}

/* ADD: there is a residual, and all rows are contiguous. out may be x: a thread writes what it alone has read. size and
 * the strides are multiples of N. QUANTIZE: the result goes to call.quantized. */
template <class T, int N, bool ADD, bool QUANTIZE>
static __global__ void __launch_bounds__(MAX_THREADS) rms_norm_kernel(const __grid_constant__ norm_call<T> call)
{
    __shared__ struct warp_sums sums;
    const int pieces = call.size / N, step = blockDim.x;
    const void *gain = call.norm.gain;
    const enum dtype gain_dtype = call.norm.gain_dtype;
    piece<T, N> kept[KEPT];
    raw_gains<N> gains[KEPT];
    float sum = 0;
    let_next_start();
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        if ((int)threadIdx.x + k * step < pieces) gains[k] = load_gains<N>(gain, gain_dtype, threadIdx.x + k * step);
    wait_for_previous();
    const int64_t row = (int64_t)blockIdx.x * call.size;
    const piece<T, N> *from = (const piece<T, N> *)(call.x + (ADD ? row : blockIdx.x * call.x_stride));
    piece<T, N> *added = (piece<T, N> *)(call.residual + row);
    piece<T, N> *to = (piece<T, N> *)(call.out + (ADD ? row : blockIdx.x * call.out_stride));
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        if ((int)threadIdx.x + k * step < pieces)
            kept[k] = load_piece<T, N, ADD>(call, from, added, threadIdx.x + k * step, &sum);
    for (int i = threadIdx.x + KEPT * step; i < pieces; i += step) load_piece<T, N, ADD>(call, from, added, i, &sum);
    const float factor = rsqrtf(block_sum(sum, &sums) / (float)call.size + call.norm.eps);
    if constexpr (QUANTIZE) {
        quantize_kept(call, kept, gains, factor, ADD ? added : from);
    } else {
#pragma unroll
        for (int k = 0; k < KEPT; k++)
            if ((int)threadIdx.x + k * step < pieces)
                store_piece<T, N>(to, kept[k], gains[k], gain_dtype, factor, threadIdx.x + k * step);
        for (int i = threadIdx.x + KEPT * step; i < pieces; i += step)
            store_piece<T, N>(to, ADD ? added[i] : from[i], load_gains<N>(gain, gain_dtype, i), gain_dtype, factor, i);
    }
}

/* A call of any_norm_kernel. */
template <class T> struct any_norm_call {
    norm_call<T> of;              /* residual NULL: rms_norm; out and quantized NULL: only the addition */
    struct norm_params post_norm; /* of x before the addition; gain NULL: none */
    float sum_multiplier;
};

/* A row of x or of the residual stream: the pieces that a thread keeps, and where it reads the others. */
template <class T, int N> struct norm_row {
    piece<T, N> kept[KEPT];
    const piece<T, N> *from;
    int pieces;
};

/* f(piece, i, k) of each of the thread's pieces. i: its place in the row; k: its place in `kept`, or KEPT. */
template <class T, int N, class Function>
static __device__ __forceinline__ void for_each_piece(norm_row<T, N> &row, Function f)
{
    const int step = blockDim.x;
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        if ((int)threadIdx.x + k * step < row.pieces) f(row.kept[k], threadIdx.x + k * step, k);
#pragma unroll 1
    for (int i = threadIdx.x + KEPT * step; i < row.pieces; i += step) {
        piece<T, N> p = row.from[i];
        f(p, i, KEPT);
    }
}

/* The gains of the thread's pieces, which stay in registers as far as the pieces do. */
template <int N> struct norm_gains {
    raw_gains<N> kept[KEPT];
};

template <int N>
static __device__ __forceinline__ void keep_gains(norm_gains<N> &gains, const struct norm_params &norm, int pieces)
{
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int i = threadIdx.x + k * blockDim.x;
        if (norm.gain && i < pieces) gains.kept[k] = load_gains<N>(norm.gain, norm.gain_dtype, i);
    }
}

/* A norm is y = (x - mean) * factor * gain + bias, where RMSNorm has no mean and no bias. */
struct norm_moments {
    float mean, factor;
};

template <class T, int N>
static __device__ __forceinline__ norm_moments moments_of(norm_row<T, N> &row, const struct norm_params &norm, int size,
                                                          struct warp_sums sums[2])
{
    float mean = 0, sum = 0;
    if (norm.type == NORM_LAYER) {
        for_each_piece(row, [&](const piece<T, N> &p, int, int) {
#pragma unroll
            for (int j = 0; j < N; j++) sum += to_float(p.values[j]);
        });
        mean = block_sum(sum, &sums[0]) / (float)size;
        sum = 0;
    }
    for_each_piece(row, [&](const piece<T, N> &p, int, int) {
#pragma unroll
        for (int j = 0; j < N; j++) sum += (to_float(p.values[j]) - mean) * (to_float(p.values[j]) - mean);
    });
    return {mean, rsqrtf(block_sum(sum, &sums[1]) / (float)size + norm.eps)};
}

template <class T, int N>
static __device__ __forceinline__ void norm_piece(piece<T, N> &p, const norm_moments &moments,
                                                  const struct norm_params &norm, const norm_gains<N> &kept, int i,
                                                  int k)
{
    float gains[N];
    convert_gains<N>(gains, k < KEPT ? kept.kept[k] : load_gains<N>(norm.gain, norm.gain_dtype, i), norm.gain_dtype);
#pragma unroll
    for (int j = 0; j < N; j++) gains[j] *= (to_float(p.values[j]) - moments.mean) * moments.factor;
    if (norm.bias) {
        float biases[N];
        convert_gains<N>(biases, load_gains<N>(norm.bias, norm.bias_dtype, i), norm.bias_dtype);
#pragma unroll
        for (int j = 0; j < N; j++) gains[j] += biases[j];
    }
#pragma unroll
    for (int j = 0; j < N; j++) p.values[j] = from_float<T>(gains[j]);
}

/* Multiplies x by the scales that its matmul has left out, in its place where it is not kept. */
template <class T, int N>
static __device__ __forceinline__ void scale_x(norm_row<T, N> &row, const left_out_scales &scales)
{
    for_each_piece(row, [&](piece<T, N> &p, int i, int k) {
        float values[N];
        load_scaled(values, p, scales, i);
#pragma unroll
        for (int j = 0; j < N; j++) p.values[j] = from_float<T>(values[j]);
        if (k == KEPT) ((piece<T, N> *)row.from)[i] = p;
    });
}

/* residual = sum_multiplier * (residual + multiplier * post_norm(x)). `row` is that of x before, and of the residual
 * stream after. */
template <class T, int N>
static __device__ __forceinline__ void add_row(norm_row<T, N> &row, const any_norm_call<T> &call,
                                               const norm_gains<N> &gains, struct warp_sums sums[2])
{
    piece<T, N> *residual = (piece<T, N> *)(call.of.residual + (int64_t)blockIdx.x * call.of.size), kept[KEPT];
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int i = threadIdx.x + k * blockDim.x;
        if (i < row.pieces) kept[k] = residual[i];
    }
    const bool normed = call.post_norm.gain;
    norm_moments moments = {};
    if (normed) moments = moments_of(row, call.post_norm, call.of.size, sums);
    for_each_piece(row, [&](piece<T, N> &p, int i, int k) {
        if (normed) norm_piece(p, moments, call.post_norm, gains, i, k);
        const piece<T, N> r = k < KEPT ? kept[k] : residual[i];
#pragma unroll
        for (int j = 0; j < N; j++)
            p.values[j] = from_float<T>(call.sum_multiplier *
                                        fmaf(call.of.multiplier, to_float(p.values[j]), to_float(r.values[j])));
        residual[i] = p;
    });
    row.from = residual;
}

template <class T, int N>
static __device__ __forceinline__ void quantize_normed(norm_row<T, N> &row, const norm_call<T> &call,
                                                       const norm_moments &moments, const norm_gains<N> &gains)
{
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int i = threadIdx.x + k * blockDim.x;
        if (i < row.pieces) norm_piece(row.kept[k], moments, call.norm, gains, i, k);
    }
    quantize_row(call.quantized, row.kept, row.pieces, [&](int i) {
        piece<T, N> p = row.from[i];
        norm_piece(p, moments, call.norm, gains, i, KEPT);
        return p;
    });
}

/* Whatever fused_add_rms_norm and rms_norm can ask for. size and the strides are multiples of N. */
template <class T, int N>
static __global__ void __launch_bounds__(MAX_THREADS) any_norm_kernel(const __grid_constant__ any_norm_call<T> call)
{
    __shared__ struct warp_sums sums[2][2];
    const struct norm_params &norm = call.of.norm;
    const int pieces = call.of.size / N;
    norm_gains<N> gains, post_gains;
    let_next_start();
    keep_gains(post_gains, call.post_norm, pieces);
    const bool normed = call.of.out || call.of.quantized.data;
    if (normed) keep_gains(gains, norm, pieces);
    wait_for_previous();
    norm_row<T, N> row = {{}, (const piece<T, N> *)(call.of.x + blockIdx.x * call.of.x_stride), pieces};
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int i = threadIdx.x + k * blockDim.x;
        if (i < pieces) row.kept[k] = row.from[i];
    }
    if (call.of.scales.of_tokens) scale_x(row, call.of.scales);
    if (call.of.residual) add_row(row, call, post_gains, sums[0]);
    if (!normed) return;
    piece<T, N> *out = (piece<T, N> *)(call.of.out + blockIdx.x * call.of.out_stride);
    const norm_moments moments = moments_of(row, norm, call.of.size, sums[1]);
    if constexpr (N > 1) {
        if (call.of.quantized.data) {
            quantize_normed(row, call.of, moments, gains);
            return;
        }
    }
    for_each_piece(row, [&](piece<T, N> &p, int i, int k) {
        norm_piece(p, moments, norm, gains, i, k);
        out[i] = p;
    });
}

/* Few tokens: as many threads as a token has pieces. Enough tokens for every multiprocessor: fewer threads with KEPT
 * pieces each, which keeps more reads in flight. */
static int threads_for(const struct cuda_state *s, int64_t pieces, int32_t num_tokens)
{
    return cuda_threads_for(num_tokens > s->num_sms ? cuda_div_up(pieces, KEPT) : pieces, MAX_THREADS);
}

/* What fused_add_rms_norm has beyond rms_norm. */
struct addition {
    void *residual; /* NULL: nothing is added */
    left_out_scales scales;
    float multiplier, sum_multiplier;
    const struct norm_params *post_norm;
};

template <class T, int N, bool ADD>
static void launch_norm(const struct cuda_state *s, const norm_call<T> &call, const struct addition &add,
                        int32_t num_tokens)
{
    const struct cuda_launch shape = {dim3(num_tokens), threads_for(s, call.size / N, num_tokens)};
    const bool is_plain = call.norm.type == NORM_RMS && !add.post_norm && add.sum_multiplier == 1;
    if (is_plain && N > 1 && call.quantized.data) {
        cuda_launch_dependent(s, rms_norm_kernel<T, N, ADD, (N > 1)>, shape, call);
    } else if (is_plain && call.out) {
        cuda_launch_dependent(s, rms_norm_kernel<T, N, ADD, false>, shape, call);
    } else {
        const any_norm_call<T> any = {call, add.post_norm ? *add.post_norm : norm_params(), add.sum_multiplier};
        cuda_launch_dependent(s, any_norm_kernel<T, N>, shape, any);
    }
}

/* rms_norm; with ADD fused_add_rms_norm. */
template <bool ADD>
static void norm(struct backend *b, const char *operation, const struct rms_norm_args *args, const struct addition &add)
{
    const struct quantized_rows *q = args->quantized;
    if (args->num_tokens <= 0 || args->size <= 0 || (q && !quantize_check(b, operation, q, args->size))) return;
    const struct cuda_state *s = cuda_use(b);
    cuda_dispatch(b, operation, args->dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = 16 / sizeof(T);
        const norm_call<T> call = {q ? NULL : (T *)args->out,
                                   (const T *)args->x,
                                   (T *)add.residual,
                                   args->out_stride,
                                   args->x_stride,
                                   args->norm,
                                   quantize_call_of(q, args->num_tokens, args->size),
                                   add.scales,
                                   add.multiplier,
                                   args->size};
        const bool vectors = args->size % N == 0 && args->out_stride % N == 0 && args->x_stride % N == 0 &&
                             cuda_is_aligned(args->out) && cuda_is_aligned(args->x) && cuda_is_aligned(add.residual) &&
                             (!add.scales.of_tokens || cuda_is_aligned(add.scales.of_features)) &&
                             (!(args->out || q) || gains_are_aligned<N>(&args->norm)) &&
                             (!add.post_norm || gains_are_aligned<N>(add.post_norm));
        if (vectors) {
            launch_norm<T, N, ADD>(s, call, add, args->num_tokens);
        } else if (q) {
            cuda_fail(b, "%s: what is to be quantized is not aligned to 16 bytes", operation);
        } else {
            launch_norm<T, 1, ADD>(s, call, add, args->num_tokens);
        }
    });
    cuda_check_launch(b, operation);
}

void cuda_rms_norm(struct backend *b, const struct rms_norm_args *args)
{
    norm<false>(b, "rms_norm", args, {NULL, {}, 1, 1, NULL});
}

void cuda_fused_add_rms_norm(struct backend *b, const struct fused_add_rms_norm_args *args)
{
    const struct rms_norm_args rows = {.out = args->out,
                                       .x = args->x,
                                       .out_stride = args->size,
                                       .x_stride = args->size,
                                       .quantized = args->quantized,
                                       .norm = args->norm,
                                       .num_tokens = args->num_tokens,
                                       .size = args->size,
                                       .dtype = args->dtype};
    norm<true>(b, "fused_add_rms_norm", &rows,
               {args->residual, args->x_scales, args->multiplier, args->sum_multiplier, args->post_norm});
}
