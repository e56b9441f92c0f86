/* weight_quantize: rows of floats, which may lie in pinned host memory and are therefore read once where they fit,
 * become rows of a quantized weight. */
#include "kernels/cuda/operations.h"
#include "kernels/cuda/quantize.cuh"
#include "kernels/cuda/matmul/quantized.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, ROW_BYTES = 32 << 10, PAIRS = QUANTIZE_MAX_GROUP / 64 };

static __device__ __forceinline__ float usable_scale(float scale)
{
    if (!(scale < INFINITY)) return NAN;
    return scale >= 0x1p-126f ? scale : 1;
}

/* As it is stored. */
template <class S> static __device__ __forceinline__ S stored_scale(float scale)
{
    return from_float<S>(scale);
}
template <> __device__ __forceinline__ __half stored_scale<__half>(float scale)
{
    return __float2half_rn(scale < 0x1p-14f ? 0x1p-14f : scale > 65504 ? 65504 : scale);
}

static __device__ __forceinline__ float round_scale(float scale, dtype to)
{
    return to == DTYPE_FLOAT16    ? to_float(stored_scale<__half>(scale))
           : to == DTYPE_BFLOAT16 ? to_float(stored_scale<__nv_bfloat16>(scale))
                                  : scale;
}

/* The larger magnitude of two; NaN if one is. */
static __device__ __forceinline__ float larger(float a, float b)
{
    return __uint_as_float(max(__float_as_uint(a) & 0x7fffffff, __float_as_uint(b) & 0x7fffffff));
}

/* ---- FP8 and INT8: a block for each row ---- */

static __device__ float block_maximum(float x)
{
    __shared__ float of_warps[WARPS];
    for (int other = 16; other > 0; other /= 2) x = larger(x, __shfl_xor_sync(~0u, x, other));
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
    __syncthreads();
    for (int i = 0; i < WARPS; i++) x = larger(x, of_warps[i]);
    return x;
}

static __device__ __forceinline__ uint8_t fp8_of(float x)
{
    return (uint8_t)__nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
}

/* What does not fit into shared memory is read twice. */
template <class T, int N, bool IS_FP8>
static __global__ void __launch_bounds__(THREADS) quantize_row_kernel(const T *__restrict__ rows, int64_t in_features,
                                                                      uint8_t *data, float *scales, dtype scale_dtype)
{
    constexpr int KEPT = ROW_BYTES / sizeof(piece<T, N>);
    __shared__ piece<T, N> kept[KEPT];
    const piece<T, N> *row = (const piece<T, N> *)(rows + blockIdx.x * in_features);
    piece<uint8_t, N> *out = (piece<uint8_t, N> *)(data + blockIdx.x * in_features);
    const int pieces = (int)(in_features / N);
    float largest = 0;
    for (int i = threadIdx.x; i < pieces; i += THREADS) {
        const piece<T, N> p = row[i];
        if (i < KEPT) kept[i] = p;
        for (int j = 0; j < N; j++) largest = larger(largest, to_float(p.values[j]));
    }
    const float scale = round_scale(usable_scale(block_maximum(largest) / (IS_FP8 ? 448.0f : 127.0f)), scale_dtype);
    if (threadIdx.x == 0) scales[blockIdx.x] = scale;
    for (int i = threadIdx.x; i < pieces; i += THREADS) {
        const piece<T, N> p = i < KEPT ? kept[i] : row[i];
        piece<uint8_t, N> codes;
        for (int j = 0; j < N; j++) {
            const float x = to_float(p.values[j]) / scale;
            codes.values[j] = IS_FP8 ? fp8_of(x) : (uint8_t)__float2int_rn(x);
        }
        out[i] = codes;
    }
}

template <class T, int N> static void quantize_rows(const weight_quantize_args *args, cudaStream_t stream)
{
    const auto kernel = args->format == WEIGHT_FP8 ? quantize_row_kernel<T, N, true> : quantize_row_kernel<T, N, false>;
    kernel<<<(unsigned)args->num_rows, THREADS, 0, stream>>>(
        (const T *)args->rows, args->in_features, (uint8_t *)args->data, (float *)args->scales, args->scale_dtype);
}

/* ---- INT4: a warp for each group ---- */

/* The code of y, in steps of the scale, as a float; 0 for NaN. */
static __device__ __forceinline__ float code_of(float y, float zero)
{
    return rintf(fminf(fmaxf(y + zero, 0), 15));
}

/* The scale that fits best to the codes that y gets with the scale `step`. With codes less the zero point =: d, it is
 * sum(y d) / sum(d^2), and its error is sum(y^2) - gain with gain = sum(y d)^2 / sum(d^2). Zeros change nothing. */
static __device__ __forceinline__ float fit_scale(const float (&y)[2 * PAIRS], float step, float zero, float *gain)
{
    const float inverse = 1 / step;
    float product = 0, square = 0;
#pragma unroll
    for (int i = 0; i < 2 * PAIRS; i++) {
        const float d = code_of(y[i] * inverse, zero) - zero;
        product += y[i] * d;
        square += d * d;
    }
    product = warp_sum(product);
    square = warp_sum(square);
    *gain = square > 0 ? product * product / square : 0;
    return square > 0 ? product / square : step;
}

/* x is the lane's elements of a group. The range is divided by 15 first, because its size may be infinite. y is x in
 * steps of the whole range, so that no square overflows. */
static __device__ float choose_scale(const float (&x)[2 * PAIRS], bool symmetric, float *zero)
{
    float low = 0, high = 0, largest = 0, y[2 * PAIRS], most = -1, best = 1;
#pragma unroll
    for (int i = 0; i < 2 * PAIRS; i++) {
        low = fmaxf(low, -x[i]), high = fmaxf(high, x[i]);
        largest = larger(largest, x[i]);
    }
    low = warp_max(low), high = warp_max(high);
    if (symmetric) low = high = fmaxf(low, high);
    const bool finite = __all_sync(~0u, largest < INFINITY);
    const float scale = usable_scale(finite ? high / 15 + low / 15 : NAN), inverse = 1 / scale;
    *zero = symmetric ? 8 : code_of(low / scale, 0);
#pragma unroll
    for (int i = 0; i < 2 * PAIRS; i++) y[i] = x[i] * inverse;
#pragma unroll 1
    for (int i = 0; i < 5; i++) {
        float gain;
        const float fitted = fit_scale(y, 1 - 0.08f * i, *zero, &gain);
        if (gain > most) most = gain, best = fitted;
    }
    return best * scale;
}

/* A lane has pairs of neighbouring elements, because two make a byte. */
template <class T, class S>
static __global__ void __launch_bounds__(THREADS)
    quantize_group_kernel(const T *__restrict__ rows, int64_t groups, int size, uint8_t *data, S *scales,
                          uint8_t *zeros)
{
    const int64_t group = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (group >= groups) return;
    const piece<T, 2> *in = (const piece<T, 2> *)(rows + group * size);
    float x[2 * PAIRS], zero;
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        const int pair = lane + 32 * i;
        const piece<T, 2> p = pair < size / 2 ? in[pair] : piece<T, 2>{};
        x[2 * i] = to_float(p.values[0]), x[2 * i + 1] = to_float(p.values[1]);
    }
    const S chosen = stored_scale<S>(choose_scale(x, !zeros, &zero));
    const float scale = to_float(chosen);
    if (lane == 0) scales[group] = chosen;
    if (lane == 0 && zeros) zeros[group] = (uint8_t)zero;
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        const int low = (int)code_of(x[2 * i] / scale, zero), high = (int)code_of(x[2 * i + 1] / scale, zero);
        if (lane + 32 * i < size / 2) data[group * size / 2 + lane + 32 * i] = (uint8_t)(low | high << 4);
    }
}

template <class T, class S> static void quantize_groups(const weight_quantize_args *args, cudaStream_t stream)
{
    const int64_t groups = args->num_rows * args->in_features / args->group_size;
    quantize_group_kernel<T, S><<<(unsigned)cuda_div_up(groups, WARPS), THREADS, 0, stream>>>(
        (const T *)args->rows, groups, (int)args->group_size, (uint8_t *)args->data, (S *)args->scales, args->zeros);
}

/* ---- */

void cuda_weight_quantize(struct backend *b, const struct weight_quantize_args *args, backend_stream handle)
{
    const cudaStream_t stream = cuda_stream(b, handle);
    if (args->num_rows == 0) return;
    cuda_dispatch(b, "weight_quantize", args->dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = 16 / sizeof(T);
        if (args->format == WEIGHT_INT4)
            cuda_dispatch(b, "weight_quantize", args->scale_dtype,
                          [&](auto one) { quantize_groups<T, decltype(one)>(args, stream); });
        else if (args->in_features % 16 == 0)
            quantize_rows<T, N>(args, stream);
        else
            quantize_rows<T, 1>(args, stream);
    });
    cuda_check_launch(b, "weight_quantize");
}
