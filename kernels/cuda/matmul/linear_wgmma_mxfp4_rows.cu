/* Matmuls of MXFP4 with row segments of few tokens on Hopper (linear_wgmma_4_bits.cuh). The weight is decoded as e5m2,
 * with a third of the instructions that bfloat16 takes, and x is in split rows: each bfloat16 is the sum of two e4m3
 * (split.cuh), so that it keeps its accuracy. wgmma sums a group of 32 input features, of both e4m3.
 *
 * A part of a step is multiplied while the next one is decoded. */
#include "kernels/cuda/matmul/linear_wgmma_4_bits.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* The scales of a thread's two rows, a word of four bytes for each step. The lanes of a quad have the same rows, so
 * each loads those of one of four steps, and gets the others' from them. A row's scales are at an even address; behind
 * the last ones, where a row ends with half a step, come others. */
struct step_scales {
    const uint16_t *scales[2]; /* of the rows */
    int last;                  /* two of a row */
    uint32_t next[2], own[2];  /* loaded for the next four steps, and of these four */

    __device__ __forceinline__ void load(const tile_part &part, int first)
    {
        const int two = min(first + (int)threadIdx.x % 4, part.end - 1) * 2;
#pragma unroll
        for (int i = 0; i < 2; i++) next[i] = scales[i][two] | (uint32_t)scales[i][min(two + 1, last)] << 16;
    }
    __device__ __forceinline__ void init(const quantized_wgmma_call &call, const tile_part &part, int row)
    {
        last = call.groups / 2 - 1;
#pragma unroll
        for (int i = 0; i < 2; i++)
            scales[i] = (const uint16_t *)((const uint8_t *)call.matmul.scales +
                                           (int64_t)weight_row(call, part, row + 8 * i) * call.groups);
        load(part, part.begin);
    }
    /* The scales of a step. It is called for all steps in turn. */
    __device__ __forceinline__ void of_step(uint32_t (&out)[2], const tile_part &part, int step)
    {
        const int index = (step - part.begin) % 4;
        if (index == 0) {
#pragma unroll
            for (int i = 0; i < 2; i++) own[i] = next[i];
            load(part, step + 4);
        }
#pragma unroll
        for (int i = 0; i < 2; i++) out[i] = __shfl_sync(~0u, own[i], index, 4);
    }
};

/* Starts to multiply a part of a step, a sum for each of its groups. tokens: the boxes of the step, whose rows have the
 * first e4m3 of 64 input features, and then the second ones. */
template <int N, int WORDS, class L>
static __device__ __forceinline__ void multiply_part(float (&sums)[WORDS][N / 2], const uint32_t (&a)[WORDS][4],
                                                     uint32_t tokens, int part)
{
    wgmma_begin();
#pragma unroll
    for (int second = 0; second < 2; second++)
#pragma unroll
        for (int w = 0; w < WORDS; w++) {
            const int group = part * WORDS + w;
            const uint64_t b = swizzled_descriptor(tokens + group / 2 * L::TOKEN_BOX) + 2 * (2 * second + group % 2);
            wgmma_e5m2_registers<N>(sums[w], a[w], b, second);
        }
    wgmma_commit();
}

/* Waits for the part that is being multiplied, and adds its sums. */
template <int N, int WORDS>
static __device__ __forceinline__ void add_part(float *totals, float (&sums)[WORDS][N / 2],
                                                const float (&factors)[WORDS][2])
{
    wgmma_wait<0>();
#pragma unroll
    for (int w = 0; w < WORDS; w++) {
        wgmma_pin(sums[w]);
        add_scaled<N>(*(float(*)[N / 2]) totals, sums[w], factors[w]);
    }
}

template <int N, class L>
static __device__ __forceinline__ void multiply_steps(float *totals, const quantized_wgmma_call &call,
                                                      const tile_part &part, const step_ring &ring)
{
    constexpr int WORDS = N <= 32 ? 2 : 1, PARTS = STEP / 32 / WORDS; /* registers have room for so many sums */
    const bool releases = threadIdx.x % 32 == 0;
    const uint32_t ring_data = shared_address(ring.data);
    const int row = row_of_thread<1>(0), t = threadIdx.x % 4;
    uint32_t encoded_at = ring_data + row * (STEP / 2), a[2][WORDS][4], scales[2];
    asm volatile("" : "+r"(encoded_at)); /* or it would be computed again in each step */
    encoded<WEIGHT_MXFP4> from;
    float sums[WORDS][N / 2] = {}, factors[WORDS][2] = {};
    step_scales of_rows;
    ring_place at = {0, 0};
    int before = 0;
    of_rows.init(call, part, row);
#pragma unroll 1
    for (int step = part.begin; step < part.end; step++) {
        const uint32_t stage = encoded_at + at.stage * L::STAGE;
        const uint32_t tokens = ring_data + at.stage * L::STAGE + L::WEIGHT_BYTES;
        of_rows.of_step(scales, part, step);
        barrier_wait(&ring.full[at.stage], at.round & 1);
        from.load(stage, 0, t);
        if ((step + 1) * STEP > call.matmul.in_features) from.load_half(stage, 0, t);
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
#pragma unroll
            for (int w = 0; w < WORDS; w++) {
                uint32_t(&to)[4] = a[p % 2][w];
                mxfp4_bytes(from.low[p * WORDS + w], to[0], to[2]);
                mxfp4_bytes(from.high[p * WORDS + w], to[1], to[3]);
                wgmma_pin_operand(to);
            }
            add_part<N, WORDS>(totals, sums, factors);
            if (p == 0) barrier_arrive_if(&ring.empty[before], releases && step > part.begin);
#pragma unroll
            for (int w = 0; w < WORDS; w++)
#pragma unroll
                for (int i = 0; i < 2; i++) factors[w][i] = mxfp4_scale(scales[i], p * WORDS + w);
            multiply_part<N, WORDS, L>(sums, a[p % 2], tokens, p);
        }
        before = at.stage;
        ring_step(at, L::STAGES);
    }
    add_part<N, WORDS>(totals, sums, factors);
}

/* Multiplies the tokens of a tile, rounded up to N or half as many. */
template <int N, class L>
static __device__ __forceinline__ void multiply_tokens(float *totals, const quantized_wgmma_call &call,
                                                       const tile_part &part, const step_ring &ring)
{
    if constexpr (N > 8)
        if (part.num_tokens <= N / 2) return multiply_tokens<N / 2, L>(totals, call, part, ring);
    multiply_steps<N, L>(totals, call, part, ring);
}

#endif

template <int N> struct mxfp4_multiplier {
    using type = __nv_bfloat16;
    static constexpr int TOKENS = N;
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    static __device__ __forceinline__ void multiply(float (&totals)[N / 2], const quantized_wgmma_call &call,
                                                    const tile_part &part, const step_ring &ring)
    {
        const float *of_tokens = call.matmul.x_scales + part.first_token;
        multiply_tokens<N, four_bit_tiling<N>>(totals, call, part, ring);
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            const int token = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
            totals[i] *= MXFP4_E5M2_FACTOR * (token < part.num_tokens ? of_tokens[token] : 0);
        }
    }
#endif
};

bool linear_wgmma_mxfp4_rows(struct backend *b, const char *operation, const struct matmul *m)
{
    const int32_t tokens = matmul_tile_tokens(m);
    quantized_wgmma_call call = {};
    set_matmul(&call, m);
    call.groups = (int32_t)(m->in_features / m->group_size);
    return tokens <= 8    ? launch_4_bits<mxfp4_multiplier<8>>(b, operation, &call)
           : tokens <= 16 ? launch_4_bits<mxfp4_multiplier<16>>(b, operation, &call)
           : tokens <= 32 ? launch_4_bits<mxfp4_multiplier<32>>(b, operation, &call)
                          : launch_4_bits<mxfp4_multiplier<64>>(b, operation, &call);
}
