/* gated_norm: a warp or a block computes a group. Its threads hold their pieces of it, and have the gains before the
 * kernel before ends. What is too large for that, or not aligned, is read twice. */
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/gains.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/recurrence/gated_norm.cuh"
#include "kernels/cuda/warp.cuh"

enum { THREADS = 512, WARP_THREADS = 256, LOOP_THREADS = 256, MAX_PIECES = 4 /* of a thread */ };

/* A group of a token: its pieces of x, of the gate and of the result, and the index of its first gain. */
template <class T, int N> struct gated_group {
    const piece<T, N> *x, *gate;
    piece<T, N> *out;
    int32_t pieces, gain_first;
};

template <class T, int N>
static __device__ __forceinline__ gated_group<T, N> group_of(const struct gated_norm_args &args, int64_t index)
{
    const uint32_t per_token = args.size / args.group_size;
    const int64_t token = (uint32_t)index / per_token, first = (index - token * per_token) * args.group_size;
    const int64_t at = token * args.size + first;
    return {(const piece<T, N> *)((const T *)args.x + at),
            (const piece<T, N> *)((const T *)args.gate + token * args.gate_stride + first),
            (piece<T, N> *)((T *)args.out + at), args.group_size / N,
            args.gain_size == args.size ? (int32_t)first / N : 0};
}

/* What the norm is of. */
template <class T, int N>
static __device__ __forceinline__ void norm_input(float (&out)[N], const piece<T, N> &x, const piece<T, N> &gate,
                                                  const struct gated_norm_args &args)
{
#pragma unroll
    for (int j = 0; j < N; j++) {
        out[j] = to_float(x.values[j]);
        if (args.gate_first) out[j] *= gate_factor<T>(args.sigmoid, to_float(gate.values[j]));
    }
}

template <int N> static __device__ __forceinline__ float sum_of_squares(const float (&x)[N])
{
    float sum = 0;
#pragma unroll
    for (int j = 0; j < N; j++) sum += x[j] * x[j];
    return sum;
}

/* x, which is the input of the norm, becomes the result. Without gains there is no norm. */
template <class T, int N>
static __device__ __forceinline__ piece<T, N> norm_output(float (&x)[N], const piece<T, N> &gate, float factor,
                                                          const raw_gains<N> &raw, const struct gated_norm_args &args)
{
    float gains[N];
    piece<T, N> out;
    if (args.gain) convert_gains<N>(gains, raw, args.gain_dtype);
#pragma unroll
    for (int j = 0; j < N; j++) {
        if (args.gain) {
            x[j] *= factor * gains[j];
            if (args.round_norm) x[j] = to_float(from_float<T>(x[j]));
        }
        out.values[j] =
            from_float<T>(args.gate_first ? x[j] : x[j] * gate_factor<T>(args.sigmoid, to_float(gate.values[j])));
    }
    return out;
}

/* A thread has PIECES pieces at most. There is a gain. */
template <class T, int N, int PIECES, bool WARP>
static __global__ void __launch_bounds__(THREADS) held_kernel(const __grid_constant__ struct gated_norm_args args)
{
    __shared__ struct warp_sums sums;
    const int threads = WARP ? 32 : blockDim.x, thread = threadIdx.x % threads;
    const int64_t index = WARP ? (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32 : blockIdx.x;
    const gated_group<T, N> group = group_of<T, N>(args, index);
    raw_gains<N> gains[PIECES];
    piece<T, N> in[PIECES], gate[PIECES];
    float x[PIECES][N], sum = 0;
    let_next_start();
#pragma unroll
    for (int p = 0; p < PIECES; p++)
        if (thread + p * threads < group.pieces)
            gains[p] = load_gains<N>(args.gain, args.gain_dtype, group.gain_first + thread + p * threads);
    wait_for_previous();
    if (index >= (int64_t)args.num_tokens * (args.size / args.group_size)) return;
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        const int i = thread + p * threads;
        in[p] = gate[p] = {};
        if (i < group.pieces) in[p] = group.x[i], gate[p] = group.gate[i];
    }
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        norm_input<T, N>(x[p], in[p], gate[p], args);
        sum += sum_of_squares<N>(x[p]);
    }
    sum = WARP ? warp_sum(sum) : block_sum(sum, &sums);
    const float factor = rsqrtf(sum / (float)args.group_size + args.eps);
#pragma unroll
    for (int p = 0; p < PIECES; p++)
        if (thread + p * threads < group.pieces)
            group.out[thread + p * threads] = norm_output<T, N>(x[p], gate[p], factor, gains[p], args);
}

template <class T, int N>
static __global__ void __launch_bounds__(LOOP_THREADS) loop_kernel(const __grid_constant__ struct gated_norm_args args)
{
    __shared__ struct warp_sums sums;
    const gated_group<T, N> group = group_of<T, N>(args, blockIdx.x);
    float x[N], sum = 0;
    let_next_start();
    wait_for_previous();
    for (int i = threadIdx.x; args.gain && i < group.pieces; i += blockDim.x) {
        norm_input<T, N>(x, group.x[i], group.gate[i], args);
        sum += sum_of_squares<N>(x);
    }
    sum = block_sum(sum, &sums);
    const float factor = rsqrtf(sum / (float)args.group_size + args.eps);
    for (int i = threadIdx.x; i < group.pieces; i += blockDim.x) {
        const piece<T, N> gate = group.gate[i];
        raw_gains<N> gains = {};
        norm_input<T, N>(x, group.x[i], gate, args);
        if (args.gain) gains = load_gains<N>(args.gain, args.gain_dtype, group.gain_first + i);
        group.out[i] = norm_output<T, N>(x, gate, factor, gains, args);
    }
}

template <class T, int N, int PIECES>
static void launch_held(const struct cuda_state *s, const struct gated_norm_args &args, int64_t groups, bool warp)
{
    if (warp) {
        const int threads = cuda_threads_for(32 * groups, WARP_THREADS);
        cuda_launch_dependent(s, held_kernel<T, N, PIECES, true>,
                              {dim3((unsigned)cuda_div_up(groups, threads / 32)), threads}, args);
    } else {
        const int threads = cuda_threads_for(cuda_div_up(args.group_size / N, PIECES), THREADS);
        cuda_launch_dependent(s, held_kernel<T, N, PIECES, false>, {dim3((unsigned)groups), threads}, args);
    }
}

/* A warp computes a group that has few pieces, or where there are enough groups for all multiprocessors. */
template <class T, int N> static void launch(const struct cuda_state *s, const struct gated_norm_args &args)
{
    const int64_t groups = (int64_t)args.num_tokens * (args.size / args.group_size);
    const int pieces = args.group_size / N;
    const bool warp = pieces <= 32 || (pieces <= 32 * MAX_PIECES && groups >= 8 * s->num_sms);
    const int of_thread = (int)cuda_div_up(pieces, warp ? 32 : THREADS);
    if constexpr (N > 1) {
        if (args.gain && of_thread == 1) return launch_held<T, N, 1>(s, args, groups, warp);
        if (args.gain && of_thread == 2) return launch_held<T, N, 2>(s, args, groups, warp);
        if (args.gain && of_thread <= MAX_PIECES) return launch_held<T, N, MAX_PIECES>(s, args, groups, warp);
    }
    cuda_launch_dependent(s, loop_kernel<T, N>, {dim3((unsigned)groups), cuda_threads_for(pieces, LOOP_THREADS)}, args);
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
