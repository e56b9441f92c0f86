/* Tensor maps: how the copy engine finds a box of a tensor in memory (CUDA driver API, "tensor map object management").
 * Compute capability 9.0 and later. */
#ifndef QUIRE_KERNELS_CUDA_TENSOR_MAP_CUH
#define QUIRE_KERNELS_CUDA_TENSOR_MAP_CUH

#include <cuda.h>

#include "kernels/cuda/state.cuh"

enum { TENSOR_MAP_MAX_DIMENSIONS = 5 };

/* A tensor of 16-bit elements. Sizes, strides and the box are in elements, the innermost dimension first. The part
 * of a box that is outside the tensor is filled with zeros. */
struct tensor_map_args {
    const void *data;
    int32_t dimensions;
    int64_t sizes[TENSOR_MAP_MAX_DIMENSIONS];
    int64_t strides[TENSOR_MAP_MAX_DIMENSIONS - 1]; /* of dimensions 1, 2, ...; that of dimension 0 is 1 */
    int32_t box[TENSOR_MAP_MAX_DIMENSIONS];
    CUtensorMapSwizzle swizzle;
    CUtensorMapL2promotion promotion;
};

/* False: the driver cannot make such a map. */
static inline bool tensor_map_encode(CUtensorMap *out, const struct tensor_map_args *args)
{
    const cuuint32_t steps[TENSOR_MAP_MAX_DIMENSIONS] = {1, 1, 1, 1, 1};
    cuuint64_t sizes[TENSOR_MAP_MAX_DIMENSIONS], bytes[TENSOR_MAP_MAX_DIMENSIONS - 1];
    cuuint32_t box[TENSOR_MAP_MAX_DIMENSIONS];
    void *function = NULL;
    cudaDriverEntryPointQueryResult found;
    for (int i = 0; i < args->dimensions; i++) {
        sizes[i] = (cuuint64_t)args->sizes[i];
        box[i] = (cuuint32_t)args->box[i];
        if (i > 0) bytes[i - 1] = (cuuint64_t)args->strides[i - 1] * 2;
    }
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found) !=
            cudaSuccess ||
        found != cudaDriverEntryPointSuccess)
        return false;
    return ((decltype(&cuTensorMapEncodeTiled))function)(
               out, CU_TENSOR_MAP_DATA_TYPE_UINT16, (cuuint32_t)args->dimensions, (void *)args->data, sizes, bytes, box,
               steps, CU_TENSOR_MAP_INTERLEAVE_NONE, args->swizzle, args->promotion,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

#endif
