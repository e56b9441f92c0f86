/* The fused operations of a decode step: calls of the kernel of linear_few_rows.cu with other ends. */
#include "kernels/cuda/decode_fused.h"

#include "kernels/cuda/linear_few_rows.cuh"

static struct few_rows_product product_of(const void *x, int64_t x_stride, enum dtype dtype, int32_t num_tokens,
                                          const struct weight *w, enum few_rows_result result)
{
    struct few_rows_product p = {};
    p.weights = w->data;
    p.bias = w->bias;
    p.rows = w->rows;
    p.columns = w->columns;
    p.x = x;
    p.x_stride = x_stride;
    p.num_tokens = num_tokens;
    p.dtype = dtype;
    p.result = result;
    return p;
}

/* Returns whether the kernel can make such a norm. */
static bool set_norm(struct few_rows_product *p, const struct fused_norm *norm)
{
    p->gain = norm->gain;
    p->gain_is_float = norm->gain_dtype == DTYPE_FLOAT32;
    p->eps = norm->eps;
    return norm->gain && (p->gain_is_float || norm->gain_dtype == p->dtype);
}

static bool run(struct backend *b, const char *operation, const struct few_rows_product *p, backend_stream stream)
{
    struct few_rows_plan plan;
    if (p->num_tokens > FUSED_MAX_TOKENS || !few_rows_plan(cuda_state(b), p, &plan)) return false;
    few_rows_launch(b, operation, p, &plan, cuda_stream(b, stream));
    return true;
}

bool fused_norm_linear(struct backend *b, void *out, int64_t out_stride, enum dtype out_dtype, const void *x,
                       int64_t x_stride, const struct fused_norm *norm, enum dtype dtype, int32_t num_tokens,
                       const struct weight *w, backend_stream stream)
{
    struct few_rows_product p = product_of(x, x_stride, dtype, num_tokens, w, FEW_ROWS_STORE);
    p.out = out;
    p.out_stride = out_stride;
    p.out_is_float = out_dtype == DTYPE_FLOAT32;
    if (out_dtype != dtype && out_dtype != DTYPE_FLOAT32) return false;
    return w->dtype == dtype && set_norm(&p, norm) && run(b, "fused_norm_linear", &p, stream);
}

bool fused_linear_residual(struct backend *b, void *residual, int64_t residual_stride, const void *x, int64_t x_stride,
                           enum dtype dtype, int32_t num_tokens, const struct weight *w, backend_stream stream)
{
    struct few_rows_product p = product_of(x, x_stride, dtype, num_tokens, w, FEW_ROWS_ADD);
    p.out = residual;
    p.out_stride = residual_stride;
    return w->dtype == dtype && run(b, "fused_linear_residual", &p, stream);
}

bool fused_norm_gate_up_silu(struct backend *b, void *out, int64_t out_stride, const void *x, int64_t x_stride,
                             const struct fused_norm *norm, enum dtype dtype, int32_t num_tokens,
                             const struct weight *w, backend_stream stream)
{
    struct few_rows_product p = product_of(x, x_stride, dtype, num_tokens, w, FEW_ROWS_GATE);
    p.out = out;
    p.out_stride = out_stride;
    return w->dtype == dtype && w->rows % 2 == 0 && set_norm(&p, norm) && run(b, "fused_norm_gate_up_silu", &p, stream);
}
