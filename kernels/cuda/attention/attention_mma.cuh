/* What the attention kernels on tensor cores need besides mma.cuh. */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_ATTENTION_MMA_CUH
#define QUIRE_KERNELS_CUDA_ATTENTION_ATTENTION_MMA_CUH

#include <type_traits>

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/copy_async.cuh"
#include "kernels/cuda/mma.cuh"

/* Two e4m3 numbers (the low 16 bits) as two float16. The bits in their places of a float16 are the number divided by
 * 2^8, which is the difference of the biases of the exponents, and all bits are NaN. */
static __device__ __forceinline__ uint32_t e4m3_pair(uint32_t bits)
{
    const uint32_t apart = (bits & 0xff) | (bits & 0xff00) << 8, size = apart & 0x007f007f;
    const uint32_t small = (apart & 0x00800080) << 8 | size << 7;
    const __half2 pair = __hmul2(*(const __half2 *)&small, __floats2half2_rn(256, 256));
    const uint32_t is_nan = (size + 0x00010001) >> 7 & 0x00010001;
    return *(const uint32_t *)&pair | is_nan * 0x7e00;
}

/* Four fp8 numbers as four float16, which can represent every fp8 number: the lower two and the upper two. GPUs before
 * compute capability 8.9 have no instruction for e4m3. An e5m2 is the upper byte of a float16. */
template <bool E5M2>
static __device__ __forceinline__ void fp8_to_float16(uint32_t bits, uint32_t &lower, uint32_t &upper)
{
    if constexpr (E5M2) {
        lower = __byte_perm(bits, 0, 0x1404), upper = __byte_perm(bits, 0, 0x3424);
    } else {
#if __CUDA_ARCH__ >= 890
        asm("{\n"
            ".reg .b16 low, high;\n"
            "mov.b32 {low, high}, %2;\n"
            "cvt.rn.f16x2.e4m3x2 %0, low;\n"
            "cvt.rn.f16x2.e4m3x2 %1, high;\n"
            "}\n"
            : "=r"(lower), "=r"(upper)
            : "r"(bits));
#else
        lower = e4m3_pair(bits), upper = e4m3_pair(bits >> 16);
#endif
    }
}

/* Two bfloat16 as two float16. Numbers beyond float16's range become its largest number. */
static __device__ __forceinline__ uint32_t bfloat16_to_float16(uint32_t bits)
{
    const float2 pair = __bfloat1622float2(*(const __nv_bfloat162 *)&bits);
    const float most = 65504;
    return pack_pair<__half>(fminf(fmaxf(pair.x, -most), most), fminf(fmaxf(pair.y, -most), most));
}

/* 2^x, within 2 ulp; 0 for -INFINITY. */
static __device__ __forceinline__ float exp2_fast(float x)
{
    float out;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(out) : "f"(x));
    return out;
}

/* attention_modify for scores of 16-bit operands: the relative error of tanh is 2^-11 here, less than theirs. */
static __device__ __forceinline__ float attention_modify_fast(const struct attention_params *params, float score,
                                                              float slope, int32_t distance)
{
    if (params->soft_cap > 0) {
        float tanh;
        asm("tanh.approx.f32 %0, %1;\n" : "=f"(tanh) : "f"(score * (1 / params->soft_cap)));
        score = params->soft_cap * tanh;
    }
    return params->alibi_slopes ? score + slope * (float)distance : score;
}

#define ATTENTION_LOG2E 1.4426950408889634f

/* What a head's sink adds to a sum of weights relative to 2^max_log2. */
static __device__ __forceinline__ float attention_sink_weight(const struct attention_params *params, int32_t head,
                                                              float max_log2)
{
    return params->sinks ? exp2_fast(params->sinks[head] * ATTENTION_LOG2E - max_log2) : 0;
}

/* Whether there is a soft cap or ALiBi. */
static inline bool attention_modifies_scores(const struct attention_params *params)
{
    return params->alibi_slopes || params->soft_cap > 0;
}

/* The size of a head of V. P is the traits of a kernel, which has TWO_SIZES if it serves heads of V that are not as
 * large as those of K: others need no register for it. Kernels for heads of 256 serve all of these. */
template <class P> static __device__ __forceinline__ int32_t v_head_size(const struct attention_args &args)
{
    return P::TWO_SIZES ? args.v_head_size : args.head_size;
}

static inline bool attention_has_two_sizes(const struct attention_args *args)
{
    return args->v_head_size != args->head_size;
}

static inline int padded_head_size(int head_size)
{
    return head_size <= 64 ? 64 : head_size <= 128 ? 128 : 256;
}

/* What the kernels are compiled for: activations of type T, a cache of the same type or of fp8, and heads padded to
 * HEAD elements. */
template <class T, bool FP8, int HEAD> struct attention_types {
};

/* Calls f with the attention_types of a call. */
template <class Function> static inline void attention_dispatch(const struct attention_args *args, Function f)
{
    auto with_cache = [&](auto zero, auto fp8) {
        using T = decltype(zero);
        constexpr bool FP8 = decltype(fp8)::value;
        switch (padded_head_size(args->head_size)) {
        case 64:
            return f(attention_types<T, FP8, 64>());
        case 128:
            return f(attention_types<T, FP8, 128>());
        default:
            return f(attention_types<T, FP8, 256>());
        }
    };
    auto with_type = [&](auto zero) {
        if (dtype_size(args->cache_dtype) == 1) {
            with_cache(zero, std::true_type());
        } else {
            with_cache(zero, std::false_type());
        }
    };
    if (args->dtype == DTYPE_FLOAT16) {
        with_type(__half());
    } else {
        with_type(__nv_bfloat16());
    }
}

#endif
