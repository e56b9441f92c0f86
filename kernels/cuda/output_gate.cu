/* output_gate: the results of attention times gates. */
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/output_gate.cuh"
#include "kernels/cuda/state.cuh"

enum { MAX_THREADS = 256 };

/* A thread has N elements of a token, which are in one head where gates are those of heads. */
template <class T, int N>
static __global__ void __launch_bounds__(MAX_THREADS)
    output_gate_kernel(const __grid_constant__ struct output_gate_args args)
{
    let_next_start();
    wait_for_previous();
    const int32_t row_pieces = args.size / N, span = args.size / args.gate_size;
    const int64_t index = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, token = index / row_pieces;
    if (token >= args.num_tokens) return;
    const int32_t first = (int32_t)(index - token * row_pieces) * N;
    const T *gates = (const T *)args.gate + token * args.gate_stride + first / span;
    T *x = (T *)args.x + token * args.size + first;
    piece<T, N> values = *(const piece<T, N> *)x, gate;
    if (span == 1)
        gate = *(const piece<T, N> *)gates;
    else
        gate.values[0] = *gates;
#pragma unroll
    for (int i = 0; i < N; i++)
        values.values[i] = from_float<T>(to_float(values.values[i]) *
                                         output_gate_of(args.kind, to_float(gate.values[span == 1 ? i : 0])));
    *(piece<T, N> *)x = values;
}

void cuda_output_gate(struct backend *b, const struct output_gate_args *args)
{
    if (args->num_tokens <= 0) return;
    const struct cuda_state *s = cuda_use(b);
    const int32_t span = args->size / args->gate_size;
    cuda_dispatch(b, "output_gate", args->dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = 16 / sizeof(T);
        const bool gates = span == 1 ? args->gate_stride % N == 0 && cuda_is_aligned(args->gate) : span % N == 0;
        const bool vectors = gates && args->size % N == 0 && cuda_is_aligned(args->x);
        const int64_t pieces = (int64_t)args->num_tokens * (vectors ? args->size / N : args->size);
        cuda_launch_dependent(s, vectors ? output_gate_kernel<T, N> : output_gate_kernel<T, 1>,
                              {dim3((unsigned)cuda_div_up(pieces, MAX_THREADS)), MAX_THREADS}, *args);
    });
    cuda_check_launch(b, "output_gate");
}
