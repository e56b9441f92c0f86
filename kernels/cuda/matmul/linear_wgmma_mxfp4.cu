/* linear_wgmma_mxfp4. */
#include "kernels/cuda/matmul/linear_wgmma_quantized.cuh"

bool linear_wgmma_mxfp4(struct backend *b, const char *operation, const struct matmul *m)
{
    quantized_wgmma_call call = quantized_call_of(m);
    return m->dtype == DTYPE_FLOAT16 ? launch_tokens<__half, WEIGHT_MXFP4>(b, operation, &call)
                                     : launch_tokens<__nv_bfloat16, WEIGHT_MXFP4>(b, operation, &call);
}
