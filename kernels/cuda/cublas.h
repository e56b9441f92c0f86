/* The one thing that is asked of cuBLAS, a matrix product, without linking against it: the library is looked for when a
 * GPU is opened, so that the executable starts where there is none. */
#ifndef QUIRE_KERNELS_CUDA_CUBLAS_H
#define QUIRE_KERNELS_CUDA_CUBLAS_H

#include <stdbool.h>

#include "base/status.h"
#include "kernels/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cublas;

#define CUBLAS_WORKSPACE_BYTES ((int64_t)32 << 20) /* what NVIDIA advises for Hopper */

/* A thread's function: loads the library, which takes half as long as making a context. cublas_open finds it there. */
void *cublas_preload(void *unused);

/* Opens libcublas for the calling thread's current device. STATUS_UNSUPPORTED: not installed, and what to install. */
enum status cublas_open(struct cublas **out, struct error *err);
void cublas_close(struct cublas *c); /* NULL is nothing */

/* Memory for products, aligned to 256 bytes, which the caller owns; NULL, 0 takes it away. */
void cublas_set_workspace(struct cublas *c, void *workspace, int64_t bytes);

/* out[t][r] = sum_c x[t][c] * w[r][c]: x [tokens, columns] and w [rows, columns] of `dtype`, out [tokens, rows] of
 * float32 or `dtype`; x and out with row strides in elements. add: the sum is added to what is in out. Accumulated in
 * float32; float32 without TF32. `stream` is a cudaStream_t. One product at a time: they share the workspace. Returns
 * NULL, or why it could not be started. */
const char *cublas_product(struct cublas *c, void *out, int64_t out_stride, enum dtype out_dtype, const void *x,
                           int64_t x_stride, const void *w, enum dtype dtype, int64_t tokens, int64_t rows,
                           int64_t columns, bool add, void *stream);

#ifdef __cplusplus
}
#endif

#endif
