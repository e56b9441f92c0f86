/* scale_queries: queries times a function of their position. */
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/state.cuh"

enum { MAX_THREADS = 256 };

/* A thread has N elements of a token. */
template <class T, int N>
static __global__ void __launch_bounds__(MAX_THREADS)
    scale_queries_kernel(const __grid_constant__ struct scale_queries_args args)
{
    let_next_start();
    wait_for_previous();
    const int32_t row_pieces = args.size / N;
    const int64_t index = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, token = index / row_pieces;
    if (token >= args.num_tokens) return;
    const int32_t quotient = (args.positions[token] + args.scaling.first) / args.scaling.length;
    if (quotient == 0) return;
    const float factor = 1 + args.scaling.beta * log1pf((float)quotient);
    T *x = (T *)args.x + token * args.stride + (index - token * row_pieces) * N;
    piece<T, N> values = *(const piece<T, N> *)x;
#pragma unroll
    for (int i = 0; i < N; i++) values.values[i] = from_float<T>(to_float(values.values[i]) * factor);
    *(piece<T, N> *)x = values;
}

void cuda_scale_queries(struct backend *b, const struct scale_queries_args *args)
{
    if (args->num_tokens <= 0) return;
    const struct cuda_state *s = cuda_use(b);
    cuda_dispatch(b, "scale_queries", args->dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = 16 / sizeof(T);
        const bool vectors = args->size % N == 0 && args->stride % N == 0 && cuda_is_aligned(args->x);
        const int64_t pieces = (int64_t)args->num_tokens * (vectors ? args->size / N : args->size);
        cuda_launch_dependent(s, vectors ? scale_queries_kernel<T, N> : scale_queries_kernel<T, 1>,
                              {dim3((unsigned)cuda_div_up(pieces, MAX_THREADS)), MAX_THREADS}, *args);
    });
    cuda_check_launch(b, "scale_queries");
}
