/* A layer of a decode step for few tokens in four fewer kernels than the table of operations takes, and without gaps
 * between them: norms are made where they are used, a gate and an addition to the residual where their product is
 * made, and each kernel reads its first weights while the one before it still runs. In place of
 *
 *     fused_add_rms_norm, linear (qkv)                   fused_norm_linear
 *     (rotary_embedding, reshape_and_cache, attention)   (the same)
 *     linear (o)                                         fused_linear_residual
 *     fused_add_rms_norm, linear (gate_up), silu_and_mul fused_norm_gate_up_silu
 *     linear (down)                                      fused_linear_residual
 *
 * Each rounds where those do: the residual after each addition, what is added before it, gate and up before silu; and
 * the norm is in float32, from the residual as it is stored. Each returns false, having done nothing, for what it does
 * not take: more than FUSED_MAX_TOKENS (from there on cuBLAS and separate kernels are as fast), float32, types that
 * differ, columns not a multiple of 8, addresses not a multiple of 16, compute capability under 9.0. All but the
 * alignments depend on the model and the number of tokens alone.
 *
 * They are launched as programmatic dependents: weights must have been in place before the kernel that precedes them.
 */
#ifndef QUIRE_KERNELS_CUDA_DECODE_FUSED_H
#define QUIRE_KERNELS_CUDA_DECODE_FUSED_H

#include "kernels/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FUSED_MAX_TOKENS = 8 };

/* rms_norm's parameters: gain [size] gain_dtype, which is float32 or the activations' type. */
struct fused_norm {
    const void *gain;
    enum dtype gain_dtype;
    float eps;
};

/* out = linear(rms_norm(x)). x [num_tokens, w->columns] dtype, out [num_tokens, w->rows] out_dtype, which is dtype or
 * float32; row strides in elements. */
bool fused_norm_linear(struct backend *b, void *out, int64_t out_stride, enum dtype out_dtype, const void *x,
                       int64_t x_stride, const struct fused_norm *norm, enum dtype dtype, int32_t num_tokens,
                       const struct weight *w, backend_stream stream);

/* residual += linear(x). residual [num_tokens, w->rows] dtype. */
bool fused_linear_residual(struct backend *b, void *residual, int64_t residual_stride, const void *x, int64_t x_stride,
                           enum dtype dtype, int32_t num_tokens, const struct weight *w, backend_stream stream);

/* out[t][i] = silu(y[t][i]) * y[t][size + i] of y = linear(rms_norm(x)); w [2 * size, columns], gate then up; out
 * [num_tokens, size] dtype. */
bool fused_norm_gate_up_silu(struct backend *b, void *out, int64_t out_stride, const void *x, int64_t x_stride,
                             const struct fused_norm *norm, enum dtype dtype, int32_t num_tokens,
                             const struct weight *w, backend_stream stream);

#ifdef __cplusplus
}
#endif

#endif
