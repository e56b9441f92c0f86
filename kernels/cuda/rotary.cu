/* Rotary position embedding of the pairs (i, i + rotary_dim / 2). One block a token; a thread turns N pairs of one
 * head. */
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/rotary.cuh"

enum { MAX_THREADS = 256 };

template <class T, int N> static __global__ void __launch_bounds__(MAX_THREADS) rotary_kernel(struct rotary_args args)
{
    let_next_start();
    wait_for_previous();
    const int token = blockIdx.x, half = args.rotary_dim / 2, of_head = half / N;
    const float *cos = args.cos_sin + (int64_t)args.positions[token] * args.rotary_dim, *sin = cos + half;
    T *query = (T *)args.query + token * args.query_stride, *key = (T *)args.key + token * args.key_stride;
    for (int i = threadIdx.x; i < (args.num_heads + args.num_kv_heads) * of_head; i += blockDim.x) {
        const int head = i / of_head, first = i % of_head * N;
        T *at = head < args.num_heads ? query + (int64_t)head * args.head_size
                                      : key + (int64_t)(head - args.num_heads) * args.head_size;
        piece<T, N> *left = (piece<T, N> *)(at + first), *right = (piece<T, N> *)(at + half + first);
        piece<T, N> l = *left, r = *right;
        rotate(l, r, cos + first, sin + first);
        *left = l;
        *right = r;
    }
}

void cuda_rotary_embedding(struct backend *b, const struct rotary_args *args, backend_stream stream)
{
    const int half = args->rotary_dim / 2, heads = args->num_heads + args->num_kv_heads;
    if (args->num_tokens <= 0 || half <= 0 || heads <= 0) return;
    cudaStream_t on = cuda_stream(b, stream);
    cuda_dispatch(b, "rotary_embedding", args->dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = 16 / sizeof(T);
        const bool vectors = half % N == 0 && args->head_size % N == 0 && args->query_stride % N == 0 &&
                             args->key_stride % N == 0 && cuda_is_aligned(args->query) && cuda_is_aligned(args->key);
        const int64_t items = (int64_t)heads * (vectors ? half / N : half);
        const int threads = items >= MAX_THREADS ? MAX_THREADS : (int)cuda_div_up(items, 32) * 32;
        cuda_launch_dependent(cuda_state(b), on, vectors ? rotary_kernel<T, N> : rotary_kernel<T, 1>, args->num_tokens,
                              threads, 0, 1, *args);
    });
    cuda_check_launch(b, "rotary_embedding");
}
