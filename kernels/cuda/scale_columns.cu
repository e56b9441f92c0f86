/* scale_columns: columns times constants. */
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/state.cuh"

enum { MAX_THREADS = 256 };

/* A thread has N elements of a token, all of one part. */
template <class T, int N>
static __global__ void __launch_bounds__(MAX_THREADS)
    scale_columns_kernel(const __grid_constant__ struct scale_columns_args args, int32_t size)
{
    let_next_start();
    wait_for_previous();
    const int32_t row_pieces = size / N;
    const int64_t index = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, token = index / row_pieces;
    const int32_t column = (int32_t)(index - token * row_pieces) * N;
    if (token >= args.num_tokens) return;
    float multiplier = 1;
#pragma unroll
    for (int p = SCALE_MAX_PARTS - 1, end = size; p >= 0; p--) {
        if (p >= args.num_parts) continue;
        if (column < end) multiplier = args.multipliers[p];
        end -= args.sizes[p];
    }
    if (multiplier == 1) return;
    T *x = (T *)args.x + token * args.stride + column;
    piece<T, N> values = *(const piece<T, N> *)x;
#pragma unroll
    for (int i = 0; i < N; i++) values.values[i] = from_float<T>(to_float(values.values[i]) * multiplier);
    *(piece<T, N> *)x = values;
}

void cuda_scale_columns(struct backend *b, const struct scale_columns_args *args)
{
    int32_t size = 0;
    if (args->num_tokens <= 0) return;
    const struct cuda_state *s = cuda_use(b);
    cuda_dispatch(b, "scale_columns", args->dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = 16 / sizeof(T);
        bool vectors = args->stride % N == 0 && cuda_is_aligned(args->x);
        size = 0;
        for (int32_t p = 0; p < args->num_parts; p++) {
            vectors = vectors && args->sizes[p] % N == 0;
            size += args->sizes[p];
        }
        const int64_t pieces = (int64_t)args->num_tokens * (vectors ? size / N : size);
        cuda_launch_dependent(s, vectors ? scale_columns_kernel<T, N> : scale_columns_kernel<T, 1>,
                              {dim3((unsigned)cuda_div_up(pieces, MAX_THREADS)), MAX_THREADS}, *args, size);
    });
    cuda_check_launch(b, "scale_columns");
}
