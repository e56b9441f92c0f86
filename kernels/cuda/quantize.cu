/* quantize_rows: for the inputs of matmuls that are not quantized by the operation that computes them. */
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/quantize.cuh"

enum { MAX_THREADS = 512, KEPT = 2 };

template <class T, int N>
static __global__ void __launch_bounds__(MAX_THREADS)
    quantize_rows_kernel(const quantize_call call, const T *__restrict__ x, int size)
{
    const int pieces = size / N;
    const piece<T, N> *row = (const piece<T, N> *)(x + (int64_t)blockIdx.x * size);
    piece<T, N> kept[KEPT];
    let_next_start();
    wait_for_previous();
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        if ((int)(threadIdx.x + k * blockDim.x) < pieces) kept[k] = row[threadIdx.x + k * blockDim.x];
    quantize_row(call, kept, pieces, [&](int i) { return row[i]; });
}

void cuda_quantize_rows(struct backend *b, const struct quantize_rows_args *args)
{
    if (args->num_tokens <= 0 || args->size <= 0 || !quantize_check(b, "quantize_rows", args->out, args->size)) return;
    const struct cuda_state *s = cuda_use(b);
    cuda_dispatch(b, "quantize_rows", args->dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = 16 / sizeof(T);
        const int threads = cuda_threads_for(cuda_div_up(args->size / N, KEPT), MAX_THREADS);
        cuda_launch_dependent(s, quantize_rows_kernel<T, N>, {dim3(args->num_tokens), threads},
                              quantize_call_of(args->out, args->num_tokens, args->size), (const T *)args->x,
                              args->size);
    });
    cuda_check_launch(b, "quantize_rows");
}
