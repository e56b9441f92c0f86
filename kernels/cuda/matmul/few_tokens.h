/* How the kernels for few tokens split a matmul between blocks, and what a block keeps in shared memory: few_tokens.cu
 * (compute capability 9.0 and later), matmul_chain.cu (8.x), and few_tokens_quantized.cu and few_tokens_wgmma.cu for
 * quantized weights. The planner asks whether a matmul fits, the kernels' launches ask how. All of it follows from the
 * matmul and the device alone.
 *
 * They keep all of x in the shared memory of every block, or of a part of its input features. */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_FEW_TOKENS_H
#define QUIRE_KERNELS_CUDA_MATMUL_FEW_TOKENS_H

#include "kernels/cuda/matmul/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    FEW_TOKENS_MAX = 16,
    FEW_TOKENS_TILE = 16, /* output features; of MATMUL_GATE 8 gates and the 8 ups that belong to them */
    FEW_TOKENS_MAX_STAGES = 16,
    CHAIN_MAX_TOKENS = 8,
    CHAIN_TILE = 8,
    CHAIN_CHUNK = 512,
    CHAIN_MAX_STAGES = 8, /* 64 KiB in flight to each multiprocessor */
    MMA_WARPS = 8,
    MMA_THREADS = 32 * MMA_WARPS,
    SKEW = 64, /* bytes between the tokens of x in shared memory, so that they begin in different banks */
    PARTIAL_BYTES = 16 << 20, /* of the workspace, for the sums of parts */
    MAX_SPLIT_TILES = 16384,  /* of a matmul in parts: the workspace has a counter for each */
    CHAIN_COUNTER_AT = MAX_SPLIT_TILES * 4 + PARTIAL_BYTES /* in the workspace: the counter of a chain's blocks */
};

/* How a matmul is split. A tile is 16 output features of the weight (8 on 8.x), a part is one of the `splits` pieces of
 * a tile along its input features, and a chunk is one stage of the ring. */
struct few_tokens_plan {
    int32_t blocks;              /* columns * splits */
    int32_t columns;             /* blocks that share the tiles of a part */
    int32_t splits, split_shift; /* a power of two, and its logarithm */
    int32_t tiles;
    int32_t part;  /* input features of a part; a multiple of chunk */
    int32_t chunk; /* input features of a chunk */
    int32_t stages;
    int32_t in_flight; /* few_tokens.cu: the most chunks that are being copied at a time; at most stages */
    int32_t cluster;   /* blocks that load x together: 1 or 2 */
    int32_t x_row;     /* bytes from a token of x to the next in shared memory */
    int32_t shared_bytes;
};

struct few_tokens_call {
    struct matmul matmul;
    struct few_tokens_plan plan;
    uint32_t *arrivals; /* [tiles] parts that are finished; zero before and after the kernel */
    float *partials;    /* [tiles, splits, tokens, TILE] */
};

/* Tiles of `tile` output features. */
CUDA_HOST_DEVICE int64_t few_tokens_tiles(const struct matmul *m, int tile)
{
    return m->result == MATMUL_GATE ? cuda_div_up(m->out_features / 2, tile / 2) : cuda_div_up(m->out_features, tile);
}

CUDA_HOST_DEVICE int few_tokens_gain_bytes(const struct matmul *m)
{
    return m->gain ? (int)m->in_features * (m->gain_is_float ? 4 : 2) : 0;
}

/* A plan without a ring: the matmul in so many splits, by `places` blocks at most, which are no fewer than splits. */
struct few_tokens_plan few_tokens_split(const struct matmul *m, int32_t places, int32_t splits, int32_t chunk,
                                        int32_t tile, int32_t skew);

/* Whether no part of such a plan is empty, and there is room for the parts' sums, tile_bytes for each tile. */
bool few_tokens_has_parts(const struct matmul_device *d, const struct matmul *m, const struct few_tokens_plan *plan,
                          int32_t tile_bytes);

/* How few_tokens.cu, or matmul_chain.cu on 8.x, splits the matmul. False: it cannot compute this matmul on this device,
 * or with these sizes and alignments. */
bool few_tokens_plan(const struct matmul_device *d, const struct matmul *m, struct few_tokens_plan *out);

/* Whether few_tokens_quantized.cu can compute a matmul of a quantized weight without an input_order; and
 * few_tokens_wgmma.cu: FP8 with a scale for each output feature or groups of 128 input features, and INT4 that
 * weight_prepare has reordered, in groups of a multiple of 128 or of the whole row. */
bool few_tokens_quantized_fits(const struct matmul_device *d, const struct matmul *m);
bool few_tokens_wgmma_fits(const struct matmul_device *d, const struct matmul *m);

#ifdef __cplusplus
}
#endif

#endif
