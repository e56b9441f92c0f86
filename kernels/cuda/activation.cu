/* act_and_mul and activate. */
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/quantize.cuh"

enum { MAX_THREADS = 256, QUANTIZE_THREADS = 512, KEPT = 4 };

/* What is computed of g and u. */
template <enum activation activation, bool limited> struct gate_of {
    float limit;

    template <class T> __device__ __forceinline__ float value(float g, float u) const
    {
        g = activate<T>(activation, g);
        if (limited) limit_gate(limit, &g, &u);
        return g * u;
    }
};

/* Gates and ups, and their scales if these were left out. */
template <class T, class Gate> struct gate_up {
    const T *x; /* [num_tokens, 2 * size] */
    left_out_scales scales;
    int size;
    Gate gate;
};

/* Piece i of the token blockIdx.x. */
template <class T, int N, class Gate>
static __device__ __forceinline__ piece<T, N> gated_piece(const gate_up<T, Gate> &from, int i)
{
    const piece<T, N> *row = (const piece<T, N> *)(from.x + 2 * (int64_t)blockIdx.x * from.size);
    const int up = i + from.size / N;
    const piece<T, N> gates = row[i], ups = row[up];
    float gate_values[N], up_values[N];
    piece<T, N> out;
    load_values(gate_values, gates, from.scales, i);
    load_values(up_values, ups, from.scales, up);
#pragma unroll
    for (int j = 0; j < N; j++)
        out.values[j] = from_float<T>(from.gate.template value<T>(gate_values[j], up_values[j]));
    return out;
}

/* Grid: x the token, y the part of its elements. size is a multiple of N. */
template <class T, int N, class Gate>
static __global__ void __launch_bounds__(MAX_THREADS) act_and_mul_kernel(T *out, const gate_up<T, Gate> from)
{
    let_next_start();
    wait_for_previous();
    const int i = blockIdx.y * blockDim.x + threadIdx.x;
    if (i * N < from.size)
        ((piece<T, N> *)(out + (int64_t)blockIdx.x * from.size))[i] = gated_piece<T, N, Gate>(from, i);
}

/* One block a token. */
template <class T, int N, class Gate>
static __global__ void __launch_bounds__(QUANTIZE_THREADS)
    act_and_mul_quantize_kernel(const quantize_call call, const gate_up<T, Gate> from)
{
    const int pieces = from.size / N;
    piece<T, N> kept[KEPT];
    let_next_start();
    wait_for_previous();
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int i = threadIdx.x + k * blockDim.x;
        if (i < pieces) kept[k] = gated_piece<T, N, Gate>(from, i);
    }
    quantize_row(call, kept, pieces, [&](int i) { return gated_piece<T, N, Gate>(from, i); });
}

template <class T, class Gate>
static void launch_quantize(const struct cuda_state *s, const struct act_and_mul_args *args,
                            const gate_up<T, Gate> &from)
{
    constexpr int N = 16 / sizeof(T);
    const int threads = cuda_threads_for(cuda_div_up(args->size / N, KEPT), QUANTIZE_THREADS);
    cuda_launch_dependent(s, act_and_mul_quantize_kernel<T, N, Gate>, {dim3(args->num_tokens), threads},
                          quantize_call_of(args->quantized, args->num_tokens, args->size), from);
}

/* Gates and ups in buffers of their own. Grid: x the token. */
template <class T, class Gate>
static __global__ void __launch_bounds__(MAX_THREADS)
    act_and_mul_apart_kernel(T *out, const T *gates, const T *ups, int64_t up_stride, int size, const Gate gate)
{
    let_next_start();
    wait_for_previous();
    const int64_t row = (int64_t)blockIdx.x * size;
    for (int i = threadIdx.x; i < size; i += blockDim.x)
        out[row + i] = from_float<T>(
            gate.template value<T>(to_float(gates[row + i]), to_float(ups[(int64_t)blockIdx.x * up_stride + i])));
}

template <class T, class Gate> static void launch(const struct cuda_state *s, const struct act_and_mul_args *args)
{
    constexpr int N = 16 / sizeof(T);
    const Gate gate = {args->limit};
    if (args->up) {
        cuda_launch_dependent(s, act_and_mul_apart_kernel<T, Gate>,
                              {dim3(args->num_tokens), cuda_threads_for(args->size, MAX_THREADS)}, (T *)args->out,
                              (const T *)args->gate_up, (const T *)args->up, args->up_stride, args->size, gate);
        return;
    }
    const gate_up<T, Gate> from = {(const T *)args->gate_up, args->gate_up_scales, args->size, gate};
    if (args->quantized) {
        launch_quantize(s, args, from);
        return;
    }
    const bool vectors = args->size % N == 0 && cuda_is_aligned(args->out) && cuda_is_aligned(args->gate_up);
    const int64_t pieces = vectors ? args->size / N : args->size;
    const int threads = cuda_threads_for(pieces, MAX_THREADS);
    const dim3 grid(args->num_tokens, (unsigned)cuda_div_up(pieces, threads));
    cuda_launch_dependent(s, vectors ? act_and_mul_kernel<T, N, Gate> : act_and_mul_kernel<T, 1, Gate>, {grid, threads},
                          (T *)args->out, from);
}

template <class T, enum activation activation>
static void launch_gate(const struct cuda_state *s, const struct act_and_mul_args *args)
{
    if (args->limit > 0)
        launch<T, gate_of<activation, true>>(s, args);
    else
        launch<T, gate_of<activation, false>>(s, args);
}

void cuda_act_and_mul(struct backend *b, const struct act_and_mul_args *args)
{
    if (args->num_tokens <= 0 || args->size <= 0) return;
    if (args->quantized && !quantize_check(b, "act_and_mul", args->quantized, args->size)) return;
    const struct cuda_state *s = cuda_use(b);
    cuda_dispatch(b, "act_and_mul", args->dtype, [&](auto zero) {
        using T = decltype(zero);
        switch (args->activation) {
        case ACTIVATION_GELU:
            launch_gate<T, ACTIVATION_GELU>(s, args);
            break;
        case ACTIVATION_GELU_TANH:
            launch_gate<T, ACTIVATION_GELU_TANH>(s, args);
            break;
        default:
            launch_gate<T, ACTIVATION_SILU>(s, args);
        }
    });
    cuda_check_launch(b, "act_and_mul");
}

/* activation(x); xielu is of ACTIVATION_XIELU. */
template <enum activation activation> struct activation_of {
    xielu_params xielu;

    template <class T> __device__ __forceinline__ float value(float x) const
    {
        if constexpr (activation == ACTIVATION_XIELU) {
            const float positive = xielu.alpha_p * x * x;
            const float negative = xielu.alpha_n * (expm1f(fminf(x, xielu.eps)) - x);
            return (x > 0 ? positive : negative) + xielu.beta * x;
        } else {
            return activate_plain<T>(activation, x);
        }
    }
};

/* Tokens lie side by side, so they are one row of elements. */
template <enum activation activation> static void run_activate(struct backend *b, const struct activate_args *args)
{
    cuda_elementwise(b, "activate", args->dtype, args->out, args->x, (int64_t)args->num_tokens * args->size,
                     activation_of<activation>{args->xielu});
}

void cuda_activate(struct backend *b, const struct activate_args *args)
{
    switch (args->activation) {
    case ACTIVATION_SILU:
        return run_activate<ACTIVATION_SILU>(b, args);
    case ACTIVATION_GELU_TANH:
        return run_activate<ACTIVATION_GELU_TANH>(b, args);
    case ACTIVATION_GELU:
        return run_activate<ACTIVATION_GELU>(b, args);
    case ACTIVATION_RELU:
        return run_activate<ACTIVATION_RELU>(b, args);
    case ACTIVATION_RELU2:
        return run_activate<ACTIVATION_RELU2>(b, args);
    default:
        return run_activate<ACTIVATION_XIELU>(b, args);
    }
}
