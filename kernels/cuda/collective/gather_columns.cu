/* gather_columns: each rank writes its columns as floats, all_gather brings those of the others, and a kernel takes
 * them in the order. */
#include "kernels/cuda/collective/peers.cuh"
#include "kernels/cuda/operations.h"

enum { COLUMN_THREADS = 256 };

template <class T>
static __global__ void __launch_bounds__(COLUMN_THREADS)
    put_columns_kernel(const __grid_constant__ struct gather_columns_args args)
{
    const int64_t i = (int64_t)blockIdx.x * COLUMN_THREADS + threadIdx.x, token = i / args.columns;
    let_next_start();
    wait_for_previous();
    if (token >= args.num_tokens) return;
    args.all[token * args.total + args.first + i % args.columns] = to_float(((const T *)args.x)[i]);
}

template <class T>
static __global__ void __launch_bounds__(COLUMN_THREADS)
    take_columns_kernel(const __grid_constant__ struct gather_columns_args args)
{
    const int64_t i = (int64_t)blockIdx.x * COLUMN_THREADS + threadIdx.x, token = i / args.size;
    const bool mine = token < args.num_tokens;
    const int32_t column = mine ? args.order[i % args.size] : 0; /* which no kernel writes */
    let_next_start();
    wait_for_previous();
    if (mine) ((T *)args.out)[i] = from_float<T>(args.all[token * args.total + column]);
}

static struct cuda_launch shape_of(int64_t elements)
{
    return {dim3((unsigned)cuda_div_up(elements, COLUMN_THREADS)), COLUMN_THREADS};
}

void cuda_gather_columns(struct backend *b, const struct gather_columns_args *args)
{
    const struct all_gather_args all = {args->all,   args->num_tokens, args->total,
                                        args->total, args->first,      args->columns};
    if (args->num_tokens <= 0) return;
    const struct cuda_state *s = cuda_use(b);
    cuda_dispatch(b, "gather_columns", args->dtype, [&](auto zero) {
        using T = decltype(zero);
        cuda_launch_dependent(s, put_columns_kernel<T>, shape_of(args->num_tokens * args->columns), *args);
        b->all_gather(b, &all);
        cuda_launch_dependent(s, take_columns_kernel<T>, shape_of(args->num_tokens * args->size), *args);
    });
    cuda_check_launch(b, "gather_columns");
}

template <class T> static bool load(struct backend *b)
{
    struct cudaFuncAttributes attributes;
    return cuda_check(b, "gather_columns", cudaFuncGetAttributes(&attributes, put_columns_kernel<T>)) &&
           cuda_check(b, "gather_columns", cudaFuncGetAttributes(&attributes, take_columns_kernel<T>));
}

bool cuda_load_gather_columns(struct backend *b)
{
    return load<float>(b) && load<__half>(b) && load<__nv_bfloat16>(b);
}
