/* What the kernels share that multiply 4-bit weights with up to 64 tokens on Hopper (linear_wgmma_int4.cu,
 * linear_wgmma_mxfp4_rows.cu). What limits these is the instructions that decode, so the decoded elements have no
 * scale: wgmma sums a group, and the scales are applied to its sums, in float32.
 *
 * A block has a tile of output features; each of its two warpgroups multiplies 64 of them. One more warp copies weights
 * and tokens into a ring: of a step 64 bytes of each row of the weight, and of each token two boxes of 128 bytes. The
 * threads that multiply load the scales of their two rows themselves.
 *
 * Few tiles are split along the input features, one part for each block of a cluster. */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_LINEAR_WGMMA_4_BITS_CUH
#define QUIRE_KERNELS_CUDA_MATMUL_LINEAR_WGMMA_4_BITS_CUH

#include "kernels/cuda/matmul/kernels.cuh"
#include "kernels/cuda/matmul/linear_wgmma_encoded.cuh"

enum { MAX_STAGES = 12 };

template <int N> struct four_bit_tiling {
    static constexpr int TOKENS = N, ROWS = 128, MMA_THREADS = 2 * GROUP, THREADS = MMA_THREADS + 32, PLACES = 2;
    static constexpr int WEIGHT_BYTES = ROWS * STEP / 2, TOKEN_BOX = N * BOX_ROW;
    static constexpr int STAGE = WEIGHT_BYTES + 2 * TOKEN_BOX, RING = 110 << 10;
    static constexpr int STAGES = RING / STAGE < MAX_STAGES ? RING / STAGE : MAX_STAGES;
    static constexpr int SHARED = ALIGNMENT + RING;
    static constexpr int SUMS_ROW = ROWS + 4, TOKENS_AT_ONCE = 2; /* that a thread writes */
    static constexpr int WORDS = 2;                               /* of 32 input features, that are decoded at once */
    static_assert(4 * N * SUMS_ROW <= RING, "the ring holds the sums at the end");
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* By one thread: copies all steps. The first weights are copied while the kernel before may still write the tokens. */
template <class L>
static __device__ __forceinline__ void copy_tile(const wgmma_call &call, const tile_part &part, const step_ring &ring)
{
    const uint64_t first_out = evict_first_policy(), last_out = evict_last_policy();
    const operand weights = weights_of_tile(call, part, STEP / 2, STEP / 4);
    const operand tokens = tokens_of_tile(call, part, L::TOKEN_BOX);
    const int first = min(part.end - part.begin, L::STAGES);
    auto copy_weights = [&](int stage, int step) {
        uint64_t *full = &ring.full[stage];
        barrier_arrive_expect(full, box_bytes(weights) + 2 * L::TOKEN_BOX);
        copy_box(weights, step, ring.data + stage * L::STAGE, full, first_out);
    };
    auto copy_tokens = [&](int stage, int step) {
        uint8_t *to = ring.data + stage * L::STAGE + L::WEIGHT_BYTES;
#pragma unroll
        for (int box = 0; box < 2; box++)
            copy_box(tokens, 2 * step + box, to + box * L::TOKEN_BOX, &ring.full[stage], last_out);
    };
    for (int i = 0; i < first; i++) copy_weights(i, part.begin + i);
    wait_for_previous();
    for (int i = 0; i < first; i++) copy_tokens(i, part.begin + i);
    ring_place at = {0, 1};
#pragma unroll 1
    for (int step = part.begin + first; step < part.end; step++) {
        wait_until_free(ring, at);
        copy_weights(at.stage, step);
        copy_tokens(at.stage, step);
        ring_step(at, L::STAGES);
    }
}

template <int N>
static __device__ __forceinline__ void add_scaled(float (&totals)[N / 2], const float (&sums)[N / 2],
                                                  const float (&scales)[2])
{
#pragma unroll
    for (int i = 0; i < N / 2; i++) totals[i] = fmaf(sums[i], scales[i % 4 / 2], totals[i]);
}

#endif

/* M has the type of out, the tokens of a tile, and multiply(totals, call, part, ring), which all threads of the two
 * warpgroups call: the sums of a part of a tile, with all their scales. */
template <class M>
static __global__ void __launch_bounds__(four_bit_tiling<M::TOKENS>::THREADS, four_bit_tiling<M::TOKENS>::PLACES)
    linear_wgmma_4_bits_kernel(const __grid_constant__ quantized_wgmma_call call)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    using L = four_bit_tiling<M::TOKENS>;
    extern __shared__ uint8_t shared[];
    __shared__ uint64_t barriers[2][MAX_STAGES];
    const step_ring ring = {shared + (-shared_address(shared) & (ALIGNMENT - 1)), barriers[0], barriers[1], L::STAGES,
                            L::STAGE};
    let_next_start();
    const tile_part part = find_part<M::TOKENS>(call);
    if (part.num_tokens == 0) return;
    if (threadIdx.x < MAX_STAGES) {
        init_stage(ring, threadIdx.x, 1, L::MMA_THREADS / 32);
        barrier_init_fence();
    }
    __syncthreads();
    /* A branch that the compiler knows to be the same for a whole warp keeps addresses in uniform registers. */
    if (__shfl_sync(~0u, threadIdx.x / 32, 0) < L::MMA_THREADS / 32) {
        float totals[M::TOKENS / 2] = {}, *shared_sums = (float *)ring.data;
        M::multiply(totals, call, part, ring);
        mma_warps_sync<L>(); /* no warp reads operands any more */
        leave_sums<L, M::TOKENS>(shared_sums, totals, row_of_thread<1>(0), {1.0f, 1.0f});
        finish_tile<typename M::type, L>(call, part, shared_sums);
    } else {
        if (threadIdx.x == L::MMA_THREADS) copy_tile<L>(call, part, ring);
        leave_cluster(call);
    }
    leave_cluster(call); /* no other block uses this block's shared memory any more */
#endif
}

template <class M> static bool launch_4_bits(struct backend *b, const char *operation, quantized_wgmma_call *call)
{
    using L = four_bit_tiling<M::TOKENS>;
    plan_tiles<L>(cuda_use(b), call, STEP, true);
    if (!map_operands(call, M::TOKENS)) return false;
    launch_tiles<L>(b, operation, linear_wgmma_4_bits_kernel<M>, call);
    return true;
}

#endif
