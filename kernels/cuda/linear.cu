/* Matrix products with weights, each sent to what computes it best. */
#include <limits.h>

#include "kernels/cuda/linear_few_tokens.cuh"
#include "kernels/cuda/linear_wgmma.cuh"
#include "kernels/cuda/operations.h"

enum { THREADS = 256, MAX_GRID_Y = 65535 };

/* out[t][r] = bias[r]: what the product is then added to, so that the sum is rounded once. */
template <class T, class W>
static __global__ void spread_bias_kernel(T *out, int64_t out_stride, const W *__restrict__ bias, int64_t rows,
                                          int num_tokens)
{
    const int64_t row = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (row >= rows) return;
    const T value = from_float<T>(to_float(bias[row]));
    for (int64_t t = blockIdx.y; t < num_tokens; t += gridDim.y) out[t * out_stride + row] = value;
}

static void spread_bias(struct backend *b, void *out, int64_t out_stride, enum dtype out_dtype, int32_t num_tokens,
                        const struct weight *w, cudaStream_t stream)
{
    const dim3 grid((unsigned)cuda_div_up(w->out_features, THREADS), num_tokens < MAX_GRID_Y ? num_tokens : MAX_GRID_Y);
    cuda_dispatch(b, "linear", out_dtype, [&](auto zero) {
        using T = decltype(zero);
        cuda_dispatch(b, "linear", w->dtype, [&](auto w_zero) {
            using W = decltype(w_zero);
            spread_bias_kernel<<<grid, THREADS, 0, stream>>>((T *)out, out_stride, (const W *)w->bias, w->out_features,
                                                             num_tokens);
        });
    });
}

/* By the kernels for few tokens and for a batch of them, if they can and cuBLAS is not faster. */
static bool run_own_kernel(struct backend *b, const struct few_rows_product *p, cudaStream_t stream)
{
    struct few_rows_plan plan;
    if (!few_rows_is_best(p) && linear_wgmma(b, "linear", p, stream)) return true;
    if (!few_rows_plan(cuda_state(b), p, &plan) || plan.splits > 1) return false;
    few_rows_launch(b, "linear", p, &plan, stream);
    return true;
}

void cuda_linear(struct backend *b, void *out, int64_t out_stride, enum dtype out_dtype, const void *x,
                 int64_t x_stride, enum dtype dtype, int32_t num_tokens, const struct weight *w, backend_stream stream)
{
    if (num_tokens <= 0 || w->out_features <= 0) return;
    cudaStream_t on = cuda_stream(b, stream);
    const bool one_type = w->dtype == dtype && (out_dtype == dtype || out_dtype == DTYPE_FLOAT32);
    struct few_rows_product product = few_rows_product_of(x, x_stride, dtype, num_tokens, w, FEW_ROWS_STORE);
    product.out = out;
    product.out_stride = out_stride;
    product.out_is_float = out_dtype == DTYPE_FLOAT32;
    if (one_type && run_own_kernel(b, &product, on)) return;
    const bool fits =
        w->out_features <= INT_MAX && w->in_features <= INT_MAX && x_stride <= INT_MAX && out_stride <= INT_MAX;
    if (!one_type || !fits) {
        cuda_linear_mixed(b, out, out_stride, out_dtype, x, x_stride, dtype, num_tokens, w, stream);
        return;
    }
    if (w->bias) spread_bias(b, out, out_stride, out_dtype, num_tokens, w, on);
    const char *wrong = cublas_product(cuda_state(b)->cublas, out, out_stride, out_dtype, x, x_stride, w->data, dtype,
                                       num_tokens, w->out_features, w->in_features, w->bias != NULL, on);
    if (wrong)
        cuda_fail(b, "linear failed on %s: cuBLAS says %s for %d x %lld x %lld of %s", b->name, wrong, num_tokens,
                  (long long)w->out_features, (long long)w->in_features, dtype_name(dtype));
    cuda_check_launch(b, "linear");
}
