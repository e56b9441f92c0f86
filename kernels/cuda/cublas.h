/* Matmuls by cuBLAS. The executable is not linked against the library: it is opened together with the GPU, so that the
 * executable also starts on a host that does not have it. */
#ifndef QUIRE_KERNELS_CUDA_CUBLAS_H
#define QUIRE_KERNELS_CUDA_CUBLAS_H

#include <stdbool.h>

#include "base/status.h"
#include "kernels/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cublas;

#define CUBLAS_WORKSPACE_BYTES ((int64_t)32 << 20) /* what NVIDIA recommends for Hopper */

/* A thread's function: loads the library, so that cublas_open need not. Run it while the CUDA context is created. */
void *cublas_preload(void *unused);

/* Opens libcublas for the calling thread's current device. STATUS_UNSUPPORTED: it is not installed; *err says what to
 * install. */
enum status cublas_open(struct cublas **out, struct error *err);
void cublas_close(struct cublas *c); /* does nothing for NULL */

/* Scratch memory for matmuls, aligned to 256 bytes, owned by the caller. NULL, 0: none. */
void cublas_set_workspace(struct cublas *c, void *workspace, int64_t bytes);

/* out[t][o] = sum over i of x[t][i] * weight[o][i], added to what is in out if `add`. */
struct cublas_matmul {
    void *out; /* [num_tokens, out_features] out_dtype: float32 or dtype */
    int64_t out_stride;
    enum dtype out_dtype;
    const void *x; /* [num_tokens, in_features] dtype */
    int64_t x_stride;
    const void *weight; /* [out_features, in_features] dtype */
    enum dtype dtype;
    int64_t num_tokens, out_features, in_features;
    bool add;
};

/* Starts a matmul on `stream`, a cudaStream_t. It accumulates in float32, for float32 operands without TF32. Matmuls
 * share the workspace, so they must run one after another. Returns NULL, or why the matmul could not be started. */
const char *cublas_run(struct cublas *c, const struct cublas_matmul *matmul, void *stream);

/* Matmuls of the same sizes, whose operands lie so many elements apart. */
struct cublas_batch {
    int32_t count;
    int64_t out_stride, x_stride, weight_stride;
    bool transposed; /* weights are [in_features, out_features] */
};

/* cublas_run for all matmuls of a batch; `matmul` is the first. */
const char *cublas_run_batch(struct cublas *c, const struct cublas_matmul *matmul, const struct cublas_batch *batch,
                             void *stream);

#ifdef __cplusplus
}
#endif

#endif
