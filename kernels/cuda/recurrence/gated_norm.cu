/* gated_norm: a warp or a block computes a group. */
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/gains.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/recurrence/gated_norm.cuh"
#include "kernels/cuda/warp.cuh"

enum { THREADS = 256, WARP_MAX = 1024 }; /* WARP_MAX: elements of a group that a warp computes */

/* A group of a token: its pieces of x, of the gate and of the result, and the index of its first gain. */
template <class T, int N> struct gated_group {
    const piece<T, N> *x, *gate;
    piece<T, N> *out;
    int32_t pieces, gain_first;
};

template <class T, int N>
static __device__ __forceinline__ gated_group<T, N> group_of(const struct gated_norm_args &args, int64_t index)
{
    const int32_t per_token = args.size / args.group_size;
    const int64_t token = index / per_token, first = (index - token * per_token) * args.group_size;
    const int64_t at = token * args.size + first;
    return {(const piece<T, N> *)((const T *)args.x + at),
            (const piece<T, N> *)((const T *)args.gate + token * args.gate_stride + first),
            (piece<T, N> *)((T *)args.out + at), args.group_size / N,
            args.gain_size == args.size ? (int32_t)first / N : 0};
}

/* What the norm is of. */
template <class T, int N>
static __device__ __forceinline__ void load_group_piece(float (&out)[N], const gated_group<T, N> &group,
                                                        const piece<T, N> &gate, const struct gated_norm_args &args,
                                                        int i)
{
    const piece<T, N> x = group.x[i];
#pragma unroll
    for (int j = 0; j < N; j++) {
        out[j] = to_float(x.values[j]);
        if (args.gate_first) out[j] *= gate_factor<T>(args, to_float(gate.values[j]));
    }
}

template <class T, int N>
static __device__ __forceinline__ void norm_group_piece(float (&x)[N], const gated_group<T, N> &group,
                                                        const struct gated_norm_args &args, float factor, int i)
{
    float gains[N];
    convert_gains<N>(gains, load_gains<N>(args.gain, args.gain_dtype, group.gain_first + i), args.gain_dtype);
#pragma unroll
    for (int j = 0; j < N; j++) {
        x[j] *= factor * gains[j];
        if (args.round_norm) x[j] = to_float(from_float<T>(x[j]));
    }
}

template <class T, int N, bool WARP>
static __global__ void __launch_bounds__(THREADS) gated_norm_kernel(const __grid_constant__ struct gated_norm_args args)
{
    __shared__ struct warp_sums sums;
    const int threads = WARP ? 32 : blockDim.x, thread = threadIdx.x % threads;
    const int64_t index = WARP ? (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32 : blockIdx.x;
    let_next_start();
    wait_for_previous();
    if (index >= (int64_t)args.num_tokens * (args.size / args.group_size)) return;
    const gated_group<T, N> group = group_of<T, N>(args, index);
    float x[N], sum = 0;
    for (int i = thread; args.gain && i < group.pieces; i += threads) {
        load_group_piece(x, group, group.gate[i], args, i);
#pragma unroll
        for (int j = 0; j < N; j++) sum += x[j] * x[j];
    }
    sum = WARP ? warp_sum(sum) : block_sum(sum, &sums);
    const float factor = rsqrtf(sum / (float)args.group_size + args.eps);
    for (int i = thread; i < group.pieces; i += threads) {
        const piece<T, N> gate = group.gate[i];
        piece<T, N> out;
        load_group_piece(x, group, gate, args, i);
        if (args.gain) norm_group_piece(x, group, args, factor, i);
#pragma unroll
        for (int j = 0; j < N; j++)
            out.values[j] =
                from_float<T>(args.gate_first ? x[j] : x[j] * gate_factor<T>(args, to_float(gate.values[j])));
        group.out[i] = out;
    }
}

template <class T, int N> static void launch(const struct cuda_state *s, const struct gated_norm_args &args)
{
    const int64_t groups = (int64_t)args.num_tokens * (args.size / args.group_size);
    if (args.group_size <= WARP_MAX) {
        const int threads = (int)cuda_threads_for(32 * groups, THREADS);
        cuda_launch_dependent(s, gated_norm_kernel<T, N, true>,
                              {dim3((unsigned)cuda_div_up(groups, threads / 32)), threads}, args);
    } else {
        const int threads = cuda_threads_for(args.group_size / N, THREADS);
        cuda_launch_dependent(s, gated_norm_kernel<T, N, false>, {dim3((unsigned)groups), threads}, args);
    }
}

void cuda_gated_norm(struct backend *b, const struct gated_norm_args *args)
{
    struct gated_norm_args call = *args;
    if (args->num_tokens <= 0) return;
    const struct cuda_state *s = cuda_use(b);
    if (!call.gain) call.group_size = call.size;
    cuda_dispatch(b, "gated_norm", args->dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = 16 / sizeof(T);
        const bool vectors = call.group_size % N == 0 && call.gate_stride % N == 0 && cuda_is_aligned(call.x) &&
                             cuda_is_aligned(call.gate) && cuda_is_aligned(call.out) &&
                             (uintptr_t)call.gain % (N * dtype_size(call.gain_dtype)) == 0;
        if (vectors)
            launch<T, N>(s, call);
        else
            launch<T, 1>(s, call);
    });
    cuda_check_launch(b, "gated_norm");
}
