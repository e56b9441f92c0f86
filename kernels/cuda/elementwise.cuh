/* Operations whose every element follows from one element. */
#ifndef QUIRE_KERNELS_CUDA_ELEMENTWISE_CUH
#define QUIRE_KERNELS_CUDA_ELEMENTWISE_CUH

#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/state.cuh"

enum { ELEMENTWISE_THREADS = 256 };

/* count is a multiple of N. */
template <class T, int N, class Function>
static __global__ void __launch_bounds__(ELEMENTWISE_THREADS)
    elementwise_kernel(T *out, const T *x, const Function function, int64_t count)
{
    let_next_start();
    wait_for_previous();
    const int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (i >= count) return;
    piece<T, N> values = *(const piece<T, N> *)(x + i);
#pragma unroll
    for (int j = 0; j < N; j++)
        values.values[j] = from_float<T>(function.template value<T>(to_float(values.values[j])));
    *(piece<T, N> *)(out + i) = values;
}

/* out[i] = value<T>(x[i]) in float32, for `count` elements of dtype, T, that follow each other; out may be x. value is
 * a device function of the struct `function`. */
template <class Function>
static void cuda_elementwise(struct backend *b, const char *operation, enum dtype dtype, void *out, const void *x,
                             int64_t count, const Function &function)
{
    if (count <= 0) return;
    const struct cuda_state *s = cuda_use(b);
    cuda_dispatch(b, operation, dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = 16 / sizeof(T);
        const bool vectors = count % N == 0 && cuda_is_aligned(out) && cuda_is_aligned(x);
        const int64_t pieces = vectors ? count / N : count;
        cuda_launch_dependent(s, vectors ? elementwise_kernel<T, N, Function> : elementwise_kernel<T, 1, Function>,
                              {dim3((unsigned)cuda_div_up(pieces, ELEMENTWISE_THREADS)), ELEMENTWISE_THREADS}, (T *)out,
                              (const T *)x, function, count);
    });
    cuda_check_launch(b, operation);
}

#endif
