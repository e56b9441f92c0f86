/* fill_dummy. Nothing is read, so a model's weights are made as fast as they can be written. */
#include "kernels/cuda/operations.h"
#include "kernels/cuda/state.cuh"
#include "kernels/dummy.h"

enum { DUMMY_THREADS = 256 };

template <class From, class To> static __device__ __forceinline__ To number_of(uint32_t sum)
{
    return from_float<To>(to_float(from_float<From>(dummy_float(sum))));
}

/* A thread makes two numbers. */
template <class From, class To>
static __global__ void __launch_bounds__(DUMMY_THREADS) floats_kernel(To *out, int64_t count, uint64_t seed)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t low, high;
    if (2 * i >= count) return;
    dummy_sums(dummy_bits(seed, i), &low, &high);
    if (2 * i + 1 == count) low = dummy_last_sum(seed);
    out[2 * i] = number_of<From, To>(low);
    if (2 * i + 1 < count) out[2 * i + 1] = number_of<From, To>(high);
}

/* A thread makes eight bytes. */
static __global__ void __launch_bounds__(DUMMY_THREADS)
    bytes_kernel(uint8_t *out, int64_t count, uint64_t seed, uint64_t pattern, bool fp8)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const uint64_t x = pattern ? pattern : dummy_bytes(dummy_bits(seed, i), fp8);
    const bool whole = 8 * i + 8 <= count;
    if (whole && (uintptr_t)out % 8 == 0) {
        ((uint64_t *)out)[i] = x;
        return;
    }
    for (int k = 0; k < 8 && 8 * i + k < count; k++)
        out[8 * i + k] = whole || pattern ? (uint8_t)(x >> 8 * k) : (uint8_t)DUMMY_LAST_BYTE;
}

static unsigned blocks_for(int64_t count, int of_a_thread)
{
    return (unsigned)cuda_div_up(count, of_a_thread * DUMMY_THREADS);
}

template <class From>
static void fill_floats(struct backend *b, const struct fill_dummy_args *args, cudaStream_t stream)
{
    cuda_dispatch(b, "fill_dummy", args->dtype, [&](auto zero) {
        using To = decltype(zero);
        floats_kernel<From, To>
            <<<blocks_for(args->count, 2), DUMMY_THREADS, 0, stream>>>((To *)args->out, args->count, args->seed);
    });
}

static void fill_bytes(const struct fill_dummy_args *args, cudaStream_t stream)
{
    bytes_kernel<<<blocks_for(args->count, 8), DUMMY_THREADS, 0, stream>>>(
        (uint8_t *)args->out, args->count, args->seed, args->pattern, args->format == WEIGHT_FP8);
}

void cuda_fill_dummy(struct backend *b, const struct fill_dummy_args *args, backend_stream handle)
{
    const cudaStream_t stream = cuda_stream(b, handle);
    if (args->count <= 0) return;
    if (args->pattern || args->format >= WEIGHT_FP8)
        fill_bytes(args, stream);
    else if (args->format == WEIGHT_FLOAT32)
        fill_floats<float>(b, args, stream);
    else if (args->format == WEIGHT_FLOAT16)
        fill_floats<__half>(b, args, stream);
    else
        fill_floats<__nv_bfloat16>(b, args, stream);
    cuda_check_launch(b, "fill_dummy");
}
