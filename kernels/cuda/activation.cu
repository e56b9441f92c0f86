/* SwiGLU's gate (Shazeer, "GLU variants improve transformer", 2020). */
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/operations.h"

enum { MAX_THREADS = 256 };

/* float32 results are kept exact; the error of the fast instructions, some 1e-6, is far under the rounding of the
 * shorter types. */
template <class T> static __device__ __forceinline__ float silu(float x)
{
    return sizeof(T) == 4 ? x / (1.0f + expf(-x)) : __fdividef(x, 1.0f + __expf(-x));
}

/* Grid: x the token, y the part of its row. size is a multiple of N. */
template <class T, int N>
static __global__ void __launch_bounds__(MAX_THREADS) silu_and_mul_kernel(T *out, const T *__restrict__ x, int size)
{
    let_next_start();
    wait_for_previous();
    const int i = (blockIdx.y * blockDim.x + threadIdx.x) * N;
    if (i >= size) return;
    const T *row = x + 2 * (int64_t)blockIdx.x * size;
    piece<T, N> gate = *(const piece<T, N> *)(row + i);
    const piece<T, N> up = *(const piece<T, N> *)(row + size + i);
#pragma unroll
    for (int j = 0; j < N; j++) {
        gate.values[j] = from_float<T>(silu<T>(to_float(gate.values[j])) * to_float(up.values[j]));
    }
    *(piece<T, N> *)(out + (int64_t)blockIdx.x * size + i) = gate;
}

void cuda_silu_and_mul(struct backend *b, void *out, const void *x, int32_t num_tokens, int32_t size, enum dtype dtype,
                       backend_stream stream)
{
    if (num_tokens <= 0 || size <= 0) return;
    cudaStream_t on = cuda_stream(b, stream);
    cuda_dispatch(b, "silu_and_mul", dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = 16 / sizeof(T);
        const bool vectors = size % N == 0 && cuda_is_aligned(out) && cuda_is_aligned(x);
        const int64_t pieces = vectors ? size / N : size;
        const int threads = pieces >= MAX_THREADS ? MAX_THREADS : (int)cuda_div_up(pieces, 32) * 32;
        const dim3 grid(num_tokens, (unsigned)cuda_div_up(pieces, threads));
        cuda_launch_dependent(cuda_state(b), on, vectors ? silu_and_mul_kernel<T, N> : silu_and_mul_kernel<T, 1>, grid,
                              threads, 0, 1, (T *)out, (const T *)x, size);
    });
    cuda_check_launch(b, "silu_and_mul");
}
