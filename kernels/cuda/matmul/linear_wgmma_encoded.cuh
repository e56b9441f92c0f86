/* What the kernels share that decode a quantized weight in registers and multiply it with wgmma
 * (linear_wgmma_quantized.cuh, linear_wgmma_4_bits.cuh). */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_LINEAR_WGMMA_ENCODED_CUH
#define QUIRE_KERNELS_CUDA_MATMUL_LINEAR_WGMMA_ENCODED_CUH

#include "kernels/cuda/matmul/encoded.cuh"
#include "kernels/cuda/matmul/linear_wgmma_tile.cuh"

struct quantized_wgmma_call : wgmma_call {
    int32_t groups;         /* of a row */
    int32_t scales_of_step; /* 1, 2 or 4 for each row */
    int32_t groups_of_step; /* 1, or 0 if a row is one group: of linear_wgmma_int4.cu */
    int32_t weight_stages, weight_stage_bytes, token_stages;
};

/* Maps the weight's bytes, which count as 16-bit elements, in boxes of a step, and x in boxes of box_tokens tokens. */
static bool map_operands(struct quantized_wgmma_call *call, int32_t box_tokens)
{
    const struct matmul *m = &call->matmul;
    const int32_t box_rows = m->result == MATMUL_GATE ? call->tile_rows / 2 : call->tile_rows;
    const bool is_packed = weight_is_packed(m->format);
    const int64_t elements = m->in_features / (is_packed ? 4 : 2);
    const struct tensor_map_args args = {m->weight,
                                         2,
                                         {elements, matmul_weight_rows(m)},
                                         {elements},
                                         {is_packed ? STEP / 4 : STEP / 2, box_rows},
                                         is_packed ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B,
                                         CU_TENSOR_MAP_L2_PROMOTION_L2_128B};
    return tensor_map_encode(&call->weight, &args) &&
           map_matrix(&call->x, m->x, m->num_tokens, m->in_features, m->x_stride, box_tokens);
}

#endif
