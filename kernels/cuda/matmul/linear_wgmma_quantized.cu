/* linear_wgmma_quantized: FP8, INT8 and INT4. linear_wgmma_mxfp4.cu has MXFP4, so that the two are compiled at once. */
#include "kernels/cuda/matmul/linear_wgmma_quantized.cuh"

template <class T> static bool launch_format(struct backend *b, const char *operation, quantized_wgmma_call *call)
{
    return call->matmul.format == WEIGHT_INT4   ? launch_tokens<T, WEIGHT_INT4>(b, operation, call)
           : call->matmul.format == WEIGHT_INT8 ? launch_tokens<T, WEIGHT_INT8>(b, operation, call)
                                                : launch_tokens<T, WEIGHT_FP8>(b, operation, call);
}

bool linear_wgmma_quantized(struct backend *b, const char *operation, const struct matmul *m)
{
    quantized_wgmma_call call = quantized_call_of(m);
    return m->dtype == DTYPE_FLOAT16 ? launch_format<__half>(b, operation, &call)
                                     : launch_format<__nv_bfloat16>(b, operation, &call);
}
