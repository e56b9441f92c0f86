/* Matmuls of INT4 with up to 32 tokens on Hopper, in groups of a step or of the whole row (linear_wgmma_4_bits.cuh). A
 * decoded element is the integer minus its zero, which is exact. wgmma sums a step: a quarter of the multiplications by
 * scales with 32 tokens. */
#include "kernels/cuda/matmul/linear_wgmma_4_bits.cuh"

/* The zero of every row of a weight without zeros. Code for other devices does not use it. */
[[maybe_unused]] static __device__ uint8_t middle_zero = 8;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* The scales of a thread's two rows. The lanes of a quad have the same rows, so each loads those of one of four steps,
 * and gets the others' from them. */
struct step_scales {
    const uint16_t *scales[2]; /* of the rows */
    const uint8_t *zeros[2];
    uint32_t scale[2], zero[2]; /* loaded for the next four steps: a scale's bits, and its zero */
    uint32_t both[2];           /* of these four: the zero above the scale */

    __device__ __forceinline__ void load(const quantized_wgmma_call &call, const tile_part &part, int first)
    {
        const int group = min(first + (int)threadIdx.x % 4, part.end - 1) * call.groups_of_step;
        const int zero_group = call.matmul.zeros ? group : 0;
#pragma unroll
        for (int i = 0; i < 2; i++) scale[i] = scales[i][group], zero[i] = zeros[i][zero_group];
    }
    __device__ __forceinline__ void init(const quantized_wgmma_call &call, const tile_part &part, int row)
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int64_t first = (int64_t)weight_row(call, part, row + 8 * i) * call.groups;
            scales[i] = (const uint16_t *)call.matmul.scales + first;
            zeros[i] = call.matmul.zeros ? call.matmul.zeros + first : &middle_zero;
        }
        load(call, part, part.begin);
    }
    /* The scales and zeros of a step. It is called for all steps in turn. */
    __device__ __forceinline__ void of_step(uint32_t (&out)[2], const quantized_wgmma_call &call, const tile_part &part,
                                            int step)
    {
        const int index = (step - part.begin) % 4;
        if (index == 0) {
#pragma unroll
            for (int i = 0; i < 2; i++) both[i] = scale[i] | zero[i] << 16;
            load(call, part, step + 4);
        }
#pragma unroll
        for (int i = 0; i < 2; i++) out[i] = __shfl_sync(~0u, both[i], index, 4);
    }
};

/* From what of_step gives: the pair that is subtracted from a pair of decoded integers. */
template <class T> static __device__ __forceinline__ uint32_t offset_of(uint32_t both)
{
    return INT4_BITS<T> + (both >> 16) * 0x10001;
}

/* Part `index` of a step, WORDS words of both rows, as A. */
template <class T, class L>
static __device__ __forceinline__ void decode_part(uint32_t (&to)[L::WORDS][2][4], encoded<WEIGHT_INT4> &from,
                                                   int index, const uint32_t (&offsets)[2])
{
#pragma unroll
    for (int w = 0; w < L::WORDS; w++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            from.template decode<T>(to[w][half], index * L::WORDS + w, half, offsets[0], offsets[1]);
            wgmma_pin_operand(to[w][half]);
        }
}

/* Starts to multiply a decoded part. The first part of a step begins new sums. */
template <class T, int N, class L>
static __device__ __forceinline__ void multiply_part(float (&sums)[N / 2], const uint32_t (&a)[L::WORDS][2][4],
                                                     uint32_t tokens, int index)
{
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < 2 * L::WORDS; k++) {
        const int feature = (index * L::WORDS * 2 + k) * 16;
        const uint64_t b =
            swizzled_descriptor(tokens + feature / BOX_FEATURES * L::TOKEN_BOX) + feature % BOX_FEATURES / 8;
        if (index == 0 && k == 0)
            wgmma_registers<T, N, false>(sums, a[k / 2][k % 2], b);
        else
            wgmma_registers<T, N>(sums, a[k / 2][k % 2], b);
    }
    wgmma_commit();
}

/* A part of a step is decoded while wgmma multiplies the part before. Between steps nothing is multiplied: the other
 * warpgroups of the multiprocessor fill that time. */
template <class T, int N, class L>
static __device__ __forceinline__ void multiply_int4(float (&totals)[N / 2], const quantized_wgmma_call &call,
                                                     const tile_part &part, const step_ring &ring)
{
    constexpr int PARTS = STEP / 32 / L::WORDS;
    const enum dtype scale_dtype = call.matmul.scale_dtype == DTYPE_FLOAT16 ? DTYPE_FLOAT16 : DTYPE_BFLOAT16;
    const bool releases = threadIdx.x % 32 == 0;
    const uint32_t ring_data = shared_address(ring.data);
    const int row = row_of_thread<1>(0);
    uint32_t encoded_at = ring_data + row * (STEP / 2) + threadIdx.x % 4 * 16, a[2][L::WORDS][2][4], both[2],
             offsets[2];
    asm volatile("" : "+r"(encoded_at)); /* or it would be computed again in each step */
    encoded<WEIGHT_INT4> from;
    float sums[N / 2] = {};
    step_scales scales;
    ring_place at = {0, 0};
    scales.init(call, part, row);
#pragma unroll 1
    for (int step = part.begin; step < part.end; step++) {
        const uint32_t tokens = ring_data + at.stage * L::STAGE + L::WEIGHT_BYTES;
        scales.of_step(both, call, part, step);
        barrier_wait(&ring.full[at.stage], at.round & 1);
        from.load(encoded_at + at.stage * L::STAGE, 0, 0);
        for (int i = 0; i < 2; i++) offsets[i] = offset_of<T>(both[i]);
#pragma unroll
        for (int i = 0; i < PARTS; i++) {
            wgmma_wait<1>(); /* what was decoded here before has been multiplied */
            decode_part<T, L>(a[i % 2], from, i, offsets);
            multiply_part<T, N, L>(sums, a[i % 2], tokens, i);
        }
        const float factors[2] = {to_scale(both[0], scale_dtype), to_scale(both[1], scale_dtype)};
        wgmma_wait<0>();
        wgmma_pin(sums);
        barrier_arrive_if(&ring.empty[at.stage], releases);
        add_scaled<N>(totals, sums, factors);
        ring_step(at, L::STAGES);
    }
}

#endif

template <class T, int N> struct int4_multiplier {
    using type = T;
    static constexpr int TOKENS = N;
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    static __device__ __forceinline__ void multiply(float (&totals)[N / 2], const quantized_wgmma_call &call,
                                                    const tile_part &part, const step_ring &ring)
    {
        multiply_int4<T, N, four_bit_tiling<N>>(totals, call, part, ring);
    }
#endif
};

template <class T>
static bool launch_tokens(struct backend *b, const char *operation, struct quantized_wgmma_call *call)
{
    return matmul_weight_tokens(&call->matmul) <= 16 ? launch_4_bits<int4_multiplier<T, 16>>(b, operation, call)
                                                     : launch_4_bits<int4_multiplier<T, 32>>(b, operation, call);
}

bool linear_wgmma_int4(struct backend *b, const char *operation, const struct matmul *m)
{
    const int64_t group = m->group_size < m->in_features ? m->group_size : m->in_features;
    struct quantized_wgmma_call call = {};
    set_matmul(&call, m);
    call.groups = (int32_t)cuda_div_up(m->in_features, group);
    call.groups_of_step = group == STEP ? 1 : 0;
    return m->dtype == DTYPE_FLOAT16 ? launch_tokens<__half>(b, operation, &call)
                                     : launch_tokens<__nv_bfloat16>(b, operation, &call);
}
