/* clip: queries, keys and values of a step, which are one row of elements. */
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/state.cuh"

enum { MAX_THREADS = 256 };

/* count is a multiple of N. A comparison with NaN is false, so NaN stays. */
template <class T, int N>
static __global__ void __launch_bounds__(MAX_THREADS) clip_kernel(T *x, float limit, int64_t count)
{
    let_next_start();
    wait_for_previous();
    const int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (i >= count) return;
    piece<T, N> values = *(const piece<T, N> *)(x + i);
#pragma unroll
    for (int j = 0; j < N; j++) {
        const float value = to_float(values.values[j]), above = value < -limit ? -limit : value;
        values.values[j] = from_float<T>(above > limit ? limit : above);
    }
    *(piece<T, N> *)(x + i) = values;
}

void cuda_clip(struct backend *b, const struct clip_args *args)
{
    if (args->count <= 0) return;
    const struct cuda_state *s = cuda_use(b);
    cuda_dispatch(b, "clip", args->dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = 16 / sizeof(T);
        const bool vectors = args->count % N == 0 && cuda_is_aligned(args->x);
        const int64_t pieces = vectors ? args->count / N : args->count;
        cuda_launch_dependent(s, vectors ? clip_kernel<T, N> : clip_kernel<T, 1>,
                              {dim3((unsigned)cuda_div_up(pieces, MAX_THREADS)), MAX_THREADS}, (T *)args->x,
                              args->limit, args->count);
    });
    cuda_check_launch(b, "clip");
}
