/* A layer of a decode step for few tokens in half the kernels that the table of operations takes, and without gaps
 * between them: norms are made where they are used, a gate and an addition to the residual where their product is
 * made, and each kernel reads its first weights while the one before it still runs. In place of
 *
 *     fused_add_rms_norm, linear (qkv)                   norm_linear
 *     rotary_embedding, reshape_and_cache, attention     decode_attention (attention_decode.cu)
 *     linear (o)                                         linear_residual
 *     fused_add_rms_norm, linear (gate_up), silu_and_mul gate_up_silu
 *     linear (down)                                      linear_residual
 *
 * Each rounds where those do: the residual after each addition, what is added before it, gate and up before silu; and
 * the norm is in float32, from the residual as it is stored. More tokens, where linear_wgmma is the faster kernel
 * (few_rows_is_best), are normed by a kernel of their own. Those of this file return false, having done nothing, for
 * what they do not take: a norm there, more than FUSED_MAX_TOKENS where there is no linear_wgmma and more than it takes
 * where there is (from there on cuBLAS and separate kernels are as fast), float32, types that differ, columns not a
 * multiple of 8, addresses not a multiple of 16, compute capability under 9.0. All but the alignments depend on the
 * model and the number of tokens alone.
 *
 * They are launched as programmatic dependents: weights must have been in place before the kernel that precedes them.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/linear_few_tokens.cuh"
#include "kernels/cuda/linear_wgmma.cuh"
#include "kernels/cuda/operations.h"

/* Returns whether the kernel can make such a norm. */
static bool set_norm(struct few_rows_product *p, const struct norm_params *norm)
{
    p->gain = norm->gain;
    p->gain_is_float = norm->gain_dtype == DTYPE_FLOAT32;
    p->eps = norm->eps;
    return norm->gain && (p->gain_is_float || norm->gain_dtype == p->dtype);
}

static bool run(struct backend *b, const char *operation, const struct few_rows_product *p, backend_stream stream)
{
    struct few_rows_plan plan;
    if (cuda_state(b)->has_wgmma && !few_rows_is_best(p)) return linear_wgmma(b, operation, p, cuda_stream(b, stream));
    if (p->num_tokens > FUSED_MAX_TOKENS || !few_rows_plan(cuda_state(b), p, &plan)) return false;
    few_rows_launch(b, operation, p, &plan, cuda_stream(b, stream));
    return true;
}

bool cuda_norm_linear(struct backend *b, void *out, int64_t out_stride, enum dtype out_dtype, const void *x,
                      int64_t x_stride, const struct norm_params *norm, enum dtype dtype, int32_t num_tokens,
                      const struct weight *w, backend_stream stream)
{
    struct few_rows_product p = few_rows_product_of(x, x_stride, dtype, num_tokens, w, FEW_ROWS_STORE);
    p.out = out;
    p.out_stride = out_stride;
    p.out_is_float = out_dtype == DTYPE_FLOAT32;
    if (out_dtype != dtype && out_dtype != DTYPE_FLOAT32) return false;
    return w->dtype == dtype && set_norm(&p, norm) && run(b, "norm_linear", &p, stream);
}

bool cuda_linear_residual(struct backend *b, void *residual, int64_t residual_stride, const void *x, int64_t x_stride,
                          enum dtype dtype, int32_t num_tokens, const struct weight *w, backend_stream stream)
{
    struct few_rows_product p = few_rows_product_of(x, x_stride, dtype, num_tokens, w, FEW_ROWS_ADD);
    p.out = residual;
    p.out_stride = residual_stride;
    return w->dtype == dtype && run(b, "linear_residual", &p, stream);
}

bool cuda_gate_up_silu(struct backend *b, void *out, int64_t out_stride, const void *x, int64_t x_stride,
                       const struct norm_params *norm, enum dtype dtype, int32_t num_tokens, const struct weight *w,
                       backend_stream stream)
{
    struct few_rows_product p = few_rows_product_of(x, x_stride, dtype, num_tokens, w, FEW_ROWS_GATE);
    p.out = out;
    p.out_stride = out_stride;
    return w->dtype == dtype && w->out_features % 2 == 0 && (!norm || set_norm(&p, norm)) &&
           run(b, "gate_up_silu", &p, stream);
}
