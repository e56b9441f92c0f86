/* all_norm: a block computes a token. Of few tokens one kernel does all, and the ranks exchange their sums in words
 * (peers.cuh); of many, all_reduce adds them between two kernels. Both add in the same order, and give the same bits.
 */
#include "kernels/cuda/collective/peers.cuh"
#include "kernels/cuda/gains.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/recurrence/gated_norm.cuh"
#include "kernels/cuda/warp.cuh"

using namespace collective;

/* Of args.norms and the block's token. */
template <class T, int N> static __device__ __forceinline__ const piece<T, N> *gates_of(const struct all_norm &norm)
{
    return (const piece<T, N> *)((const T *)norm.gate + blockIdx.x * norm.gate_stride);
}

template <class T, int N> static __device__ __forceinline__ piece<T, N> *row_of(const struct all_norm &norm)
{
    return (piece<T, N> *)((T *)norm.x + blockIdx.x * norm.stride);
}

static __device__ __forceinline__ int group_of(const struct all_norm_args &args, const struct all_norm &norm, int rank)
{
    return rank * norm.num_groups / args.num_ranks;
}

template <class T, int N>
static __device__ __forceinline__ void multiply_gates(float (&x)[N], const struct all_norm &norm, int i)
{
    const piece<T, N> gate = gates_of<T, N>(norm)[i];
#pragma unroll
    for (int j = 0; j < N; j++) x[j] *= gate_factor<T>(norm.sigmoid, to_float(gate.values[j]));
}

/* Piece i of what the norm is of. */
template <class T, int N>
static __device__ __forceinline__ void load_input(float (&x)[N], const struct all_norm &norm, int i)
{
    const piece<T, N> p = row_of<T, N>(norm)[i];
#pragma unroll
    for (int j = 0; j < N; j++) x[j] = to_float(p.values[j]);
    if (norm.gate && norm.gate_first) multiply_gates<T, N>(x, norm, i);
}

/* This rank's sum of the token. All threads call. */
template <class T, int N>
static __device__ __forceinline__ float sum_of_squares(const struct all_norm &norm, struct warp_sums *sums)
{
    float sum = 0;
    for (int i = threadIdx.x; i < norm.size / N; i += blockDim.x) {
        float x[N];
        load_input<T, N>(x, norm, i);
#pragma unroll
        for (int j = 0; j < N; j++) sum += x[j] * x[j];
    }
    return block_sum(sum, sums);
}

template <class T, int N>
static __device__ __forceinline__ void norm_row(const struct all_norm_args &args, const struct all_norm &norm,
                                                float squares)
{
    const float elements = (float)((int64_t)norm.size * args.num_ranks / norm.num_groups);
    const float factor = rsqrtf(squares / elements + norm.eps);
    for (int i = threadIdx.x; i < norm.size / N; i += blockDim.x) {
        float x[N], gains[N];
        piece<T, N> out;
        load_input<T, N>(x, norm, i);
        convert_gains<N>(gains, load_gains<N>(norm.gain, norm.gain_dtype, i), norm.gain_dtype);
#pragma unroll
        for (int j = 0; j < N; j++) {
            x[j] = x[j] * factor * gains[j];
            if (norm.round_norm) x[j] = to_float(from_float<T>(x[j]));
        }
        if (norm.gate && !norm.gate_first) multiply_gates<T, N>(x, norm, i);
#pragma unroll
        for (int j = 0; j < N; j++) out.values[j] = from_float<T>(x[j]);
        row_of<T, N>(norm)[i] = out;
    }
}

/* The sum over the ranks of this one's group. `word`: that of the token and the norm. One thread calls. */
static __device__ __forceinline__ float exchange_sum(const peers &p, uint32_t call, int word, float mine,
                                                     const struct all_norm_args &args, const struct all_norm &norm)
{
    float sum = 0;
    send(p, call, word, make_uint2(__float_as_uint(mine), 0));
    for (int k = 0; k < p.count; k++) {
        const float part = k == p.rank ? mine : __uint_as_float(receive(p, call, k, word).x);
        if (group_of(args, norm, k) == group_of(args, norm, p.rank)) sum += part;
    }
    return sum;
}

template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    all_norm_kernel(const __grid_constant__ peers p, const __grid_constant__ struct all_norm_args args)
{
    __shared__ struct warp_sums sums[ALL_NORM_MAX];
    __shared__ float squares[ALL_NORM_MAX];
    let_next_start();
    wait_for_previous();
    const uint32_t call = begin_call(p);
    for (int n = 0; n < args.num_norms; n++) {
        const float sum = sum_of_squares<T, N>(args.norms[n], &sums[n]);
        if (threadIdx.x == 0) squares[n] = sum;
    }
    __syncthreads();
    if ((int)threadIdx.x < args.num_norms) {
        const int n = threadIdx.x;
        squares[n] = exchange_sum(p, call, blockIdx.x * args.num_norms + n, squares[n], args, args.norms[n]);
    }
    __syncthreads();
    for (int n = 0; n < args.num_norms; n++) norm_row<T, N>(args, args.norms[n], squares[n]);
    end_call(p, call);
}

/* A token's sums are `stride` elements apart from the next one's. */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    squares_kernel(const __grid_constant__ struct all_norm_args args, int stride)
{
    __shared__ struct warp_sums sums[ALL_NORM_MAX];
    float *squares = args.squares + (int64_t)blockIdx.x * stride;
    let_next_start();
    wait_for_previous();
    for (int n = 0; n < args.num_norms; n++) {
        const struct all_norm &norm = args.norms[n];
        const float sum = sum_of_squares<T, N>(norm, &sums[n]);
        for (int g = threadIdx.x; g < norm.num_groups; g += blockDim.x)
            squares[g] = g == group_of(args, norm, args.rank) ? sum : 0;
        squares += norm.num_groups;
    }
}

template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    norm_kernel(const __grid_constant__ struct all_norm_args args, int stride)
{
    const float *squares = args.squares + (int64_t)blockIdx.x * stride;
    let_next_start();
    wait_for_previous();
    for (int n = 0; n < args.num_norms; n++) {
        const struct all_norm &norm = args.norms[n];
        norm_row<T, N>(args, norm, squares[group_of(args, norm, args.rank)]);
        squares += norm.num_groups;
    }
}

template <class T, int N> static bool is_aligned(const struct all_norm_args *args)
{
    bool aligned = true;
    for (int n = 0; n < args->num_norms; n++) {
        const struct all_norm *norm = &args->norms[n];
        aligned = aligned && norm->size % N == 0 && norm->stride % N == 0 && cuda_is_aligned(norm->x) &&
                  (uintptr_t)norm->gain % (N * dtype_size(norm->gain_dtype)) == 0 &&
                  (!norm->gate || (norm->gate_stride % N == 0 && cuda_is_aligned(norm->gate)));
    }
    return aligned;
}

/* Devices of several processes do not write each other's memory: their group has none. */
template <class T, int N> static void launch(struct backend *b, const struct all_norm_args *args)
{
    const struct cuda_state *s = cuda_use(b);
    int32_t stride = 0, size = 0;
    for (int n = 0; n < args->num_norms; n++) {
        stride += args->norms[n].num_groups;
        if (args->norms[n].size > size) size = args->norms[n].size;
    }
    const struct cuda_launch shape = {dim3((unsigned)args->num_tokens), cuda_threads_for(size / N, THREADS)};
    if (s->group && s->group->memories[0] && args->num_tokens <= s->group->max_blocks) {
        cuda_launch_dependent(s, all_norm_kernel<T, N>, shape, cuda_peers(s), *args);
        return;
    }
    const struct all_reduce_args sums = {args->squares, (int64_t)args->num_tokens * stride, DTYPE_FLOAT32};
    cuda_launch_dependent(s, squares_kernel<T, N>, shape, *args, stride);
    b->all_reduce(b, &sums);
    cuda_launch_dependent(s, norm_kernel<T, N>, shape, *args, stride);
}

void cuda_all_norm(struct backend *b, const struct all_norm_args *args)
{
    if (args->num_tokens <= 0) return;
    cuda_dispatch(b, "all_norm", args->dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = 16 / sizeof(T);
        if (is_aligned<T, N>(args))
            launch<T, N>(b, args);
        else
            launch<T, 1>(b, args);
    });
    cuda_check_launch(b, "all_norm");
}

template <class T, int N> static bool load(struct backend *b)
{
    struct cudaFuncAttributes attributes;
    return cuda_check(b, "all_norm", cudaFuncGetAttributes(&attributes, all_norm_kernel<T, N>)) &&
           cuda_check(b, "all_norm", cudaFuncGetAttributes(&attributes, squares_kernel<T, N>)) &&
           cuda_check(b, "all_norm", cudaFuncGetAttributes(&attributes, norm_kernel<T, N>));
}

template <class T> static bool load_type(struct backend *b)
{
    return load<T, 16 / sizeof(T)>(b) && load<T, 1>(b);
}

bool cuda_load_all_norm(struct backend *b)
{
    return load_type<float>(b) && load_type<__half>(b) && load_type<__nv_bfloat16>(b);
}
