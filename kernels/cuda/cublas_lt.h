/* Matmuls of 8-bit floats by cuBLASLt, which is a part of cuBLAS's package and is opened like it. */
#ifndef QUIRE_KERNELS_CUDA_CUBLAS_LT_H
#define QUIRE_KERNELS_CUDA_CUBLAS_LT_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cublas_lt;

/* What the scales of a matmul belong to: each token and each output feature, or each token's 128 input features and
 * each block of 128 x 128 of the weight; or there is but one. */
enum cublas_lt_scaling { CUBLAS_LT_ROWS, CUBLAS_LT_BLOCKS, CUBLAS_LT_SCALAR };

/* out[t][o] = sum over i of x[t][i] * weight[o][i], both scaled, + bias[o]. Addresses are multiples of 16. */
struct cublas_lt_matmul {
    enum cublas_lt_scaling scaling;
    float scale; /* of SCALAR, which has no other scales */
    int64_t num_tokens, out_features, in_features;
    void *out; /* [num_tokens, out_features] dtype */
    int64_t out_stride;
    enum dtype dtype;           /* float16 or bfloat16 */
    const void *x;              /* [num_tokens, in_features] e4m3 */
    const float *x_scales;      /* [num_tokens]; of blocks [in_features / 128, num_tokens] */
    const void *weight;         /* [out_features, in_features] e4m3 */
    const float *weight_scales; /* [out_features]; of blocks [out_features / 128, in_features / 128] */
    const void *bias;           /* [out_features] dtype, or NULL */
};

/* NULL if there is no cuBLASLt, or not enough memory. */
struct cublas_lt *cublas_lt_open(void);
void cublas_lt_close(struct cublas_lt *lt); /* does nothing for NULL */

/* Whether the library has an algorithm for a matmul of this shape; the pointers are not read but for whether there is a
 * bias. The algorithm is kept for cublas_lt_run. `lt` may be NULL. */
bool cublas_lt_takes(struct cublas_lt *lt, const struct cublas_lt_matmul *m);

/* Starts a matmul on `stream`, a cudaStream_t. Matmuls share the workspace [CUBLAS_WORKSPACE_BYTES], also with those of
 * cublas_run, so they must run one after another. Returns 0 or cuBLAS's status. */
int cublas_lt_run(struct cublas_lt *lt, const struct cublas_lt_matmul *m, void *workspace, void *stream);

#ifdef __cplusplus
}
#endif

#endif
