/* What the kernels share that compute a matmul in tiles of output features with wgmma (linear_wgmma.cu,
 * linear_wgmma_quantized.cu): how an operand lies in shared memory, and how a tile of sums becomes a part of out.
 *
 * An operand in shared memory has rows of 128 bytes, that is 64 input features, in the 128-byte swizzle: the 16-byte
 * pieces of a row are permuted by the row's number. The copy engine and wgmma both know this layout. */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_LINEAR_WGMMA_TILE_CUH
#define QUIRE_KERNELS_CUDA_MATMUL_LINEAR_WGMMA_TILE_CUH

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/matmul/epilogue.cuh"
#include "kernels/cuda/tensor_map.cuh"
#include "kernels/cuda/wgmma.cuh"

enum {
    GROUP = 128, /* threads of a warpgroup, which has 64 rows of a tile */
    BOX_FEATURES = 64,
    BOX_ROW = 2 * BOX_FEATURES, /* bytes */
    MAX_SPLITS = 8,
    MIN_PART = 512,  /* input features */
    ALIGNMENT = 1024 /* of a box: the swizzle's period */
};

/* A matmul that is computed in tiles. With MATMUL_GATE half of a tile are features of the gate, and the other half are
 * the features of up that belong to them. */
struct tiled_matmul {
    struct matmul matmul;
    int32_t tile_rows; /* output features of a tile: a multiple of 8, with MATMUL_GATE of 16 */
    int32_t splits;    /* parts of a tile, which are the blocks of a cluster */
    bool fours;        /* four elements of a row of out can be moved as one */
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* A block's part of the matmul: steps begin .. end - 1 of a tile, beginning with `first` and going round, of
 * num_tokens tokens. */
struct block_part {
    int32_t rank, tile, begin, end, first, first_token, num_tokens;
};

/* The ring and its barriers: full[s] ends a phase when both operands of a step are in stage s, empty[s] when they have
 * been multiplied. */
struct step_ring {
    uint8_t *data;
    uint64_t *full, *empty;
};

/* A barrier of the warpgroups that multiply. */
template <class L> static __device__ __forceinline__ void mma_warps_sync()
{
    asm volatile("bar.sync 1, %0;" ::"n"(L::MMA_THREADS) : "memory");
}

/* y[i]: four output features of a token, summed over all parts. The sums of other blocks take long to load, so all
 * loads of a round are started before the first is used. */
template <int COUNT>
static __device__ __forceinline__ void load_totals(piece<float, 4> (&y)[COUNT], const float *const (&sums)[COUNT],
                                                   int splits)
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) y[i] = splits == 1 ? *(const piece<float, 4> *)sums[i] : piece<float, 4>{};
    if (splits == 1) return;
#pragma unroll 4
    for (int rank = 0; rank < splits; rank++) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const float4 part = cluster_load_4(cluster_address(sums[i], rank));
            y[i].values[0] += part.x, y[i].values[1] += part.y, y[i].values[2] += part.z, y[i].values[3] += part.w;
        }
    }
}

/* A thread's share of writing a tile: four output features of some of this block's tokens. */
struct tile_share {
    int row;        /* of the tile: the first of the four */
    int feature;    /* the same as an output feature */
    int count;      /* how many of the four exist; 0 or less: none */
    int token, end; /* tokens token, token + threads / fours, ... below end */
};

/* `fours` threads share a token, `rows` output features make a tile, and there are `features` in all. */
static __device__ __forceinline__ tile_share share_of(const tiled_matmul &call, const block_part &part, int fours,
                                                      int rows, int features)
{
    tile_share share;
    share.row = threadIdx.x % fours * 4;
    share.feature = part.tile * rows + share.row;
    share.count = share.row >= rows ? 0 : features - share.feature < 4 ? features - share.feature : 4;
    share.token = part.num_tokens * part.rank / call.splits + threadIdx.x / fours;
    share.end = part.num_tokens * (part.rank + 1) / call.splits;
    return share;
}

/* By all threads that multiply. MATMUL_GATE: a thread has four output features of the gate and those of up that belong
 * to them. */
template <class T, class L, class Out, bool GATED>
static __device__ __forceinline__ void write_tile(const tiled_matmul &call, const block_part &part, const float *sums)
{
    constexpr int HALVES = GATED ? 2 : 1, FOURS = L::ROWS / HALVES / 4, STEP = L::MMA_THREADS / FOURS,
                  AT_ONCE = L::TOKENS_AT_ONCE / HALVES;
    const matmul &m = call.matmul;
    const int rows = call.tile_rows / HALVES;
    const tile_share share = share_of(call, part, FOURS, rows, (int)m.out_features / HALVES);
    if (share.count <= 0) return;
    const biases<T, 4> bias = load_biases<T, 4>(m, share.feature, share.count);
    Out *to = (Out *)m.out + share.feature + part.first_token * m.out_stride;
#pragma unroll 1
    for (int token = share.token; token < share.end; token += AT_ONCE * STEP) {
        const float *from[AT_ONCE * HALVES];
        piece<T, 4> before[AT_ONCE];
        piece<float, 4> y[AT_ONCE * HALVES];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int at = token + k * STEP < share.end ? token + k * STEP : token;
#pragma unroll
            for (int h = 0; h < HALVES; h++) from[HALVES * k + h] = sums + at * L::SUMS_ROW + share.row + h * rows;
            const out_run<Out> run = {to + at * m.out_stride, share.count, call.fours};
            if (!GATED) before[k] = load_before<T, 4>(m, run);
        }
        load_totals(y, from, call.splits);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const out_run<Out> run = {to + (token + k * STEP) * m.out_stride, share.count, call.fours};
            if (token + k * STEP >= share.end) continue;
            if constexpr (GATED)
                finish_gated<T>(m, run, y[2 * k], y[2 * k + 1], bias);
            else
                finish_sums<T>(m, run, y[k], bias, before[k]);
        }
    }
}

/* Once each thread has put its sums into the shared memory of its block: adds the sums of the parts, and writes the
 * tile. By all threads that multiply. */
template <class T, class L>
static __device__ __forceinline__ void finish_tile(const tiled_matmul &call, const block_part &part, const float *sums)
{
    if (call.splits > 1) {
        __syncwarp();
        cluster_arrive();
        cluster_wait();
    } else {
        mma_warps_sync<L>();
    }
    wait_for_previous();
    if (call.matmul.result == MATMUL_GATE) {
        write_tile<T, L, T, true>(call, part, sums);
    } else if (call.matmul.out_is_float) {
        write_tile<T, L, float, false>(call, part, sums);
    } else {
        write_tile<T, L, T, false>(call, part, sums);
    }
}

#endif

/* A map of a matrix [rows, in_features] whose rows are `stride` apart, in boxes of 64 input features. */
static inline bool map_matrix(CUtensorMap *out, const void *data, int64_t rows, int64_t in_features, int64_t stride,
                              int32_t box_rows)
{
    const struct tensor_map_args args = {data,
                                         2,
                                         {in_features, rows},
                                         {stride},
                                         {BOX_FEATURES, box_rows},
                                         CU_TENSOR_MAP_SWIZZLE_128B,
                                         CU_TENSOR_MAP_L2_PROMOTION_L2_128B};
    return tensor_map_encode(out, &args);
}

#endif
