/* heads_linear: a matmul of each head by cuBLAS, and the elements that are copied beside them. */
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/operations.h"

enum { THREADS = 128 };

/* A thread copies an element. */
template <class T>
static __global__ void __launch_bounds__(THREADS) copy_rest_kernel(const __grid_constant__ heads_linear_args args)
{
    const int64_t index = (int64_t)blockIdx.x * THREADS + threadIdx.x, row = index / args.num_copied;
    const int64_t i = index - row * args.num_copied, token = row / args.num_heads, head = row - token * args.num_heads;
    let_next_start();
    wait_for_previous();
    if (token >= args.num_tokens) return;
    ((T *)args.out)[token * args.out_stride + head * args.out_head_stride + args.out_features + i] =
        ((const T *)args.x)[token * args.x_stride + head * args.x_head_stride + args.in_features + i];
}

static void copy_rest(struct backend *b, const struct heads_linear_args *args)
{
    const int64_t count = (int64_t)args->num_tokens * args->num_heads * args->num_copied;
    const dim3 grid((unsigned)cuda_div_up(count, THREADS));
    cuda_dispatch(b, "heads_linear", args->dtype, [&](auto zero) {
        cuda_launch_dependent(cuda_use(b), copy_rest_kernel<decltype(zero)>, {grid, THREADS}, *args);
    });
    cuda_check_launch(b, "heads_linear");
}

void cuda_heads_linear(struct backend *b, const struct heads_linear_args *args)
{
    if (args->num_tokens <= 0) return;
    if (args->weight_dtype != args->dtype) {
        cuda_fail(b, "heads_linear: there is no kernel for weights of %s and activations of %s",
                  dtype_name(args->weight_dtype), dtype_name(args->dtype));
        return;
    }
    struct cuda_state *s = cuda_use(b);
    const struct cublas_matmul matmul = {.out = args->out,
                                         .out_stride = args->out_stride,
                                         .out_dtype = args->dtype,
                                         .x = args->x,
                                         .x_stride = args->x_stride,
                                         .weight = args->weight,
                                         .dtype = args->dtype,
                                         .num_tokens = args->num_tokens,
                                         .out_features = args->out_features,
                                         .in_features = args->in_features};
    const struct cublas_batch batch = {.count = args->num_heads,
                                       .out_stride = args->out_head_stride,
                                       .x_stride = args->x_head_stride,
                                       .weight_stride = args->head_stride,
                                       .transposed = args->transposed};
    const char *failure = cublas_run_batch(s->cublas, &matmul, &batch, s->stream);
    if (failure) cuda_fail(b, "heads_linear: cuBLAS reports %s", failure);
    if (args->num_copied > 0) copy_rest(b, args);
}
