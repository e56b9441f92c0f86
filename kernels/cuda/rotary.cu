/* rotary_embedding: rotates the pairs of each head, after a norm over the head if there is one (QK norm: Henry et al.,
 * 2020). */
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/rotary.cuh"

enum { MAX_THREADS = 256, NORM_THREADS = 256 };

/* Rotates without a norm. One block a token; a thread rotates N pairs of one head at a time. */
template <class T, int N> static __global__ void __launch_bounds__(MAX_THREADS) rotary_kernel(struct rotary_args args)
{
    let_next_start();
    wait_for_previous();
    const int token = blockIdx.x, half = args.rotary_dim / 2, of_head = half / N;
    const float *cos = args.cos_sin + (int64_t)args.positions[token] * args.rotary_dim, *sin = cos + half;
    T *query = (T *)args.query + token * args.query_stride, *key = (T *)args.key + token * args.key_stride;
    const head_split split = {2 * of_head, of_head, args.interleaved};
    for (int i = threadIdx.x; i < (args.num_heads + args.num_kv_heads) * of_head; i += blockDim.x) {
        const int head = i / of_head, pairs = i % of_head;
        T *at = head < args.num_heads ? query + (int64_t)head * args.head_size
                                      : key + (int64_t)(head - args.num_heads) * args.head_size;
        piece<T, N> *left = (piece<T, N> *)at + split.left(pairs), *right = (piece<T, N> *)at + split.right(pairs);
        piece<T, N> l = *left, r = *right;
        rotate_pieces(l, r, cos + pairs * N, sin + pairs * N, args.interleaved);
        *left = l;
        *right = r;
    }
}

static void launch_rotary(struct backend *b, const struct rotary_args *args)
{
    const struct cuda_state *s = cuda_use(b);
    const int half = args->rotary_dim / 2, heads = args->num_heads + args->num_kv_heads;
    if (half <= 0) return;
    cuda_dispatch(b, "rotary_embedding", args->dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = 16 / sizeof(T);
        const bool vectors = half % N == 0 && args->head_size % N == 0 && args->query_stride % N == 0 &&
                             args->key_stride % N == 0 && cuda_is_aligned(args->query) && cuda_is_aligned(args->key);
        const int threads = cuda_threads_for((int64_t)heads * (vectors ? half / N : half), MAX_THREADS);
        cuda_launch_dependent(s, vectors ? rotary_kernel<T, N> : rotary_kernel<T, 1>, {dim3(args->num_tokens), threads},
                              *args);
    });
}

struct norm_rotary_call {
    struct rotary_args args;
    struct norm_params query_norm, key_norm;
    int lanes; /* of a head: a power of two, up to 32 */
};

/* One head of one token, which the `lanes` lanes of a group have in pieces of N elements. */
template <class T, int N, bool LAYER> struct head_lane {
    piece<T, N> *pieces;
    const struct norm_params &norm;
    float mean, factor; /* mean: of a LayerNorm */

    __device__ __forceinline__ piece<T, N> normed(int i) const
    {
        piece<T, N> x = pieces[i];
        const raw_gains<N> raw = load_gains<N>(norm.gain, norm.gain_dtype, i);
        if constexpr (!LAYER) {
            apply_gains(x, factor, raw, norm.gain_dtype);
        } else {
            float gains[N], biases[N] = {};
            convert_gains<N>(gains, raw, norm.gain_dtype);
            if (norm.bias) convert_gains<N>(biases, load_gains<N>(norm.bias, norm.bias_dtype, i), norm.bias_dtype);
#pragma unroll
            for (int j = 0; j < N; j++)
                x.values[j] = from_float<T>((to_float(x.values[j]) - mean) * factor * gains[j] + biases[j]);
        }
        return x;
    }
};

/* This lane's part of the head's sum of (x - mean)^2, or of x. */
template <class T, int N>
static __device__ __forceinline__ float lane_deviations(const piece<T, N> *head, const head_split &split, int lane,
                                                        int lanes, float mean, bool squared)
{
    float sum = 0;
    for (int i = lane; i < split.count(); i += lanes)
        for (int k = 0; k < 2; k++) {
            const int at = k ? split.right(i) : split.left(i);
            if (at >= split.pieces) continue;
#pragma unroll
            for (int j = 0; j < N; j++) {
                const float x = to_float(head[at].values[j]) - mean;
                sum += squared ? x * x : x;
            }
        }
    return sum;
}

/* This lane's part of the head's sum of squares. */
template <class T, int N>
static __device__ __forceinline__ float lane_squares(const piece<T, N> *head, const head_split &split, int lane,
                                                     int lanes)
{
    float sum = 0;
    for (int i = lane; i < split.count(); i += lanes) {
        sum = add_squares(sum, head[split.left(i)]);
        if (split.right(i) < split.pieces) sum = add_squares(sum, head[split.right(i)]);
    }
    return sum;
}

/* Norms and rotates. Grid: x the token, y the part of its heads. N divides rotary_dim / 2 and head_size. */
template <class T, int N, bool LAYER>
static __global__ void __launch_bounds__(NORM_THREADS) norm_rotary_kernel(const __grid_constant__ norm_rotary_call call)
{
    const struct rotary_args &args = call.args;
    const int token = blockIdx.x, lanes = call.lanes, lane = threadIdx.x % lanes;
    const int head = (blockIdx.y * NORM_THREADS + threadIdx.x) / lanes;
    const bool is_query = head < args.num_heads, there = head < args.num_heads + args.num_kv_heads;
    const struct norm_params &norm = is_query ? call.query_norm : call.key_norm;
    const head_split split = {there ? args.head_size / N : 0, args.rotary_dim / 2 / N, args.interleaved};
    T *at = is_query ? (T *)args.query + token * args.query_stride + (int64_t)head * args.head_size
                     : (T *)args.key + token * args.key_stride + (int64_t)(head - args.num_heads) * args.head_size;
    head_lane<T, N, LAYER> h = {(piece<T, N> *)at, norm, 0, 0};
    let_next_start();
    wait_for_previous();
    float squares;
    if constexpr (!LAYER) {
        squares = lane_squares(h.pieces, split, lane, lanes);
    } else {
        h.mean = head_sum(lane_deviations(h.pieces, split, lane, lanes, 0, false), lanes) / (float)args.head_size;
        squares = lane_deviations(h.pieces, split, lane, lanes, h.mean, true);
    }
    h.factor = head_norm_factor(squares, lanes, args.head_size, norm.eps);
    const float *cos = split.rotated > 0 ? args.cos_sin + (int64_t)args.positions[token] * args.rotary_dim : NULL;
    for (int i = lane; i < split.count(); i += lanes) {
        const bool has_right = split.right(i) < split.pieces;
        piece<T, N> l = h.normed(split.left(i)), r = {};
        if (has_right) r = h.normed(split.right(i));
        if (i < split.rotated) rotate_pieces(l, r, cos + i * N, cos + (split.rotated + i) * N, args.interleaved);
        h.pieces[split.left(i)] = l;
        if (has_right) h.pieces[split.right(i)] = r;
    }
}

/* Pieces of 4 elements, as decode_attention has them. */
template <bool LAYER> static void launch_norm_rotary(struct backend *b, const struct rotary_args *args)
{
    const struct cuda_state *s = cuda_use(b);
    norm_rotary_call call = {*args, *args->query_norm, *args->key_norm, 1};
    cuda_dispatch(b, "rotary_embedding", args->dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = 4;
        const bool vectors = args->rotary_dim % (2 * N) == 0 && args->head_size % N == 0 &&
                             args->query_stride % N == 0 && args->key_stride % N == 0 &&
                             (uintptr_t)args->query % sizeof(piece<T, N>) == 0 &&
                             (uintptr_t)args->key % sizeof(piece<T, N>) == 0 &&
                             gains_are_aligned<N>(args->query_norm) && gains_are_aligned<N>(args->key_norm);
        const int pieces = vectors ? args->head_size / N : args->head_size;
        while (call.lanes < 32 && 2 * call.lanes < pieces) call.lanes *= 2;
        const int64_t threads = (int64_t)(args->num_heads + args->num_kv_heads) * call.lanes;
        cuda_launch_dependent(s, vectors ? norm_rotary_kernel<T, N, LAYER> : norm_rotary_kernel<T, 1, LAYER>,
                              {dim3(args->num_tokens, (unsigned)cuda_div_up(threads, NORM_THREADS)), NORM_THREADS},
                              call);
    });
}

void cuda_rotary_embedding(struct backend *b, const struct rotary_args *args)
{
    if (args->num_tokens <= 0 || args->num_heads + args->num_kv_heads <= 0) return;
    if (args->query_norm && args->key_norm) {
        if (args->query_norm->type == NORM_LAYER) {
            launch_norm_rotary<true>(b, args);
        } else {
            launch_norm_rotary<false>(b, args);
        }
    } else {
        launch_rotary(b, args);
    }
    cuda_check_launch(b, "rotary_embedding");
}
