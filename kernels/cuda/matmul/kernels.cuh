/* The kernels that the planner (plan.h) chooses among. They compute what it sends to them, and nothing else. */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_KERNELS_CUH
#define QUIRE_KERNELS_CUDA_MATMUL_KERNELS_CUH

#include "kernels/cuda/matmul/plan.h"
#include "kernels/cuda/state.cuh"

static inline struct matmul_device matmul_device_of(struct backend *b)
{
    const struct cuda_state *s = cuda_state(b);
    const struct cuda_region *scratch = &s->regions[CUDA_USER_DEQUANTIZE];
    return {s->compute_capability,
            s->has_wgmma,
            s->num_sms,
            s->max_shared_bytes,
            s->regions[CUDA_USER_LINEAR].data != NULL,
            scratch->data,
            scratch->bytes};
}

/* Calls f with a value of the matmul's type: cuda_dispatch (state.cuh) for the two types that these kernels have. */
template <class Function> static inline void matmul_dispatch(const struct matmul *m, Function f)
{
    if (m->dtype == DTYPE_FLOAT16) {
        f(__half());
    } else {
        f(__nv_bfloat16());
    }
}

/* Puts a matmul on the main stream. False: nothing was done, because the driver cannot describe the operands to the
 * copy engine. */
typedef bool matmul_function(struct backend *b, const char *operation, const struct matmul *m);

matmul_function few_tokens;
matmul_function matmul_chain_add;
matmul_function few_tokens_wgmma;
matmul_function few_tokens_quantized;
matmul_function linear_wgmma;
matmul_function linear_wgmma_rows; /* linear_wgmma.cu: of quantized rows */
matmul_function linear_wgmma_int4;
matmul_function linear_wgmma_quantized;
matmul_function linear_wgmma_mxfp4;      /* MATMUL_LINEAR_WGMMA_QUANTIZED of MXFP4 */
matmul_function linear_wgmma_mxfp4_rows; /* MATMUL_ROWS_WGMMA of MXFP4 */
matmul_function linear_mma_quantized;

/* Writes x, normed if there is a gain, to `out` [num_tokens, in_features] in the order of m->input_order. */
void input_order_gather(struct backend *b, const char *operation, const struct matmul *m, void *out);

/* linear_mixed.cu: linear, where row i of x is x[x_rows[i]] (on the device). */
void linear_mixed_rows(struct backend *b, const struct linear_args *args, const int32_t *x_rows);

/* linear.cu: by one of these kernels, or MATMUL_IN_ORDER by several. */
void matmul_run(struct backend *b, const char *operation, enum matmul_kernel kernel, const struct matmul *m);

#endif
