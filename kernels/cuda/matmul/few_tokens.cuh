/* The kernels for matmuls with few tokens, behind linear and the fused operations (fused.cu): how they split one
 * matmul between blocks. few_tokens.cu has the one for compute capability 9.0 and later,
 * matmul_chain.cu the one for 8.x, few_tokens_quantized.cu the one for quantized weights on both. */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_FEW_TOKENS_CUH
#define QUIRE_KERNELS_CUDA_MATMUL_FEW_TOKENS_CUH

#include "kernels/cuda/matmul/matmul.cuh"

enum { FEW_TOKENS_MAX = 16, FEW_TOKENS_BEST = 8, FEW_TOKENS_BEST_ELEMENTS = 20480 };

/* Whether they are faster than linear_wgmma. They keep all of x in the shared memory of every block, so a large x
 * leaves too little room for weights. The smaller of the two sizes counts, so that all matmuls of a layer with the same
 * tokens go to the same kernel. */
static inline bool few_tokens_is_best(const struct matmul *m)
{
    const int64_t size = m->out_features < m->in_features ? m->out_features : m->in_features;
    return m->num_tokens <= FEW_TOKENS_BEST && m->num_tokens * size <= FEW_TOKENS_BEST_ELEMENTS;
}

/* How a matmul is split; a function of its shape and of the device. A tile is 16 output features of the weight (8
 * on 8.x), a part is one of the `splits` pieces of a tile along its input features, and a chunk is one stage of the
 * ring. */
struct few_tokens_plan {
    int32_t blocks; /* a multiple of splits */
    int32_t splits;
    int32_t part;  /* input features of a part; a multiple of chunk */
    int32_t chunk; /* input features of a chunk; a multiple of 256 */
    int32_t stages;
    int32_t in_flight; /* the most chunks that are being copied at a time; at most stages */
    int32_t cluster;   /* blocks that load x together: 1 or 2 */
    int32_t x_bytes, shared_bytes;
};

/* False: no kernel can compute this matmul on this device, or with these sizes and alignments. */
bool few_tokens_plan(const struct cuda_state *s, const struct matmul *m, struct few_tokens_plan *out);

/* On 8.x the matmul is launched later, together with those that follow it (matmul_chain.cu). */
void few_tokens_launch(struct backend *b, const char *operation, const struct matmul *m,
                       const struct few_tokens_plan *plan);

/* few_tokens_quantized.cu: the same for a quantized weight. False: it has done nothing, because it does not take
 * such sizes or alignments. */
bool few_tokens_quantized(struct backend *b, const char *operation, const struct matmul *m);

#endif
