/* all_reduce, in words and in passes (peers.cuh). Both add in the order of ranks and round once, so they give the same
 * bits. Very many elements are NCCL's (communicators.h). */
#include "kernels/cuda/collective/peers.cuh"
#include "kernels/cuda/operations.h"

using namespace collective;

/* N elements from x [count], N * i and those after it. Beyond count they are not read or written. aligned: x is. */
template <class T, int N>
static __device__ __forceinline__ piece<T, N> load_elements(const T *x, int64_t i, int64_t count, bool aligned)
{
    piece<T, N> p = {};
    if (aligned && (i + 1) * N <= count) return ((const piece<T, N> *)x)[i];
    for (int j = 0; j < N && i * N + j < count; j++) p.values[j] = x[i * N + j];
    return p;
}

template <class T, int N>
static __device__ __forceinline__ void store_elements(T *x, int64_t i, int64_t count, bool aligned,
                                                      const piece<T, N> &p)
{
    if (aligned && (i + 1) * N <= count) {
        ((piece<T, N> *)x)[i] = p;
        return;
    }
    for (int j = 0; j < N && i * N + j < count; j++) x[i * N + j] = p.values[j];
}

/* sum = x of the first rank, or sum + x of another. */
template <class T, int N>
static __device__ __forceinline__ void add_elements(float (&sum)[N], const piece<T, N> &x, bool first)
{
#pragma unroll
    for (int j = 0; j < N; j++) sum[j] = first ? to_float(x.values[j]) : sum[j] + to_float(x.values[j]);
}

template <class T, int N> static __device__ __forceinline__ piece<T, N> round_elements(const float (&sum)[N])
{
    piece<T, N> p;
#pragma unroll
    for (int j = 0; j < N; j++) p.values[j] = from_float<T>(sum[j]);
    return p;
}

/* Each rank sends its x to all others. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    words_kernel(const __grid_constant__ peers p, T *x, int64_t count, bool aligned)
{
    constexpr int N = WORD_BYTES / sizeof(T);
    const int first = blockIdx.x * THREADS + threadIdx.x, step = gridDim.x * THREADS;
    let_next_start();
    wait_for_previous();
    const uint32_t call = begin_call(p);
    for (int i = first; (int64_t)i * N < count; i += step) {
        const piece<T, N> mine = load_elements<T, N>(x, i, count, aligned);
        send(p, call, i, *(const uint2 *)&mine);
    }
    for (int i = first; (int64_t)i * N < count; i += step) {
        const piece<T, N> mine = load_elements<T, N>(x, i, count, aligned);
        float sum[N];
        for (int k = 0; k < p.count; k++) {
            piece<T, N> part = mine;
            if (k != p.rank) *(uint2 *)&part = receive(p, call, k, i);
            add_elements(sum, part, k == 0);
        }
        store_elements(x, i, count, aligned, round_elements<T>(sum));
    }
    __syncthreads();
    end_call(p, call);
}

/* A chunk of a block's, cut into a slice for each rank. */
struct chunk {
    int64_t first; /* piece of x */
    int pieces, slice;

    __device__ __forceinline__ int begin(int rank) const { return min(rank * slice, pieces); }
    __device__ __forceinline__ int size(int rank) const { return begin(rank + 1) - begin(rank); }
};

/* Sends the others their slices, adds the own one, sends them the sums, and takes theirs. */
template <class T>
static __device__ __forceinline__ void reduce_chunk(const peers &p, T *x, int64_t count, bool aligned, const chunk &c,
                                                    uint32_t pass)
{
    constexpr int N = 16 / sizeof(T);
    const int block = blockIdx.x, set = pass % 2, own_begin = c.begin(p.rank);
    const uint4 *inputs = own(p)->inputs[set][block], *results = own(p)->results[set][block];
    for_each_other(p, [&](int k) {
        uint4 *to = p.of[k]->inputs[set][block] + p.rank * c.slice;
#pragma unroll 4
        for (int i = threadIdx.x; i < c.size(k); i += THREADS) {
            const piece<T, N> mine = load_elements<T, N>(x, c.first + c.begin(k) + i, count, aligned);
            to[i] = *(const uint4 *)&mine;
        }
    });
    exchange(p, INPUTS_ARE_THERE, pass);
#pragma unroll 2
    for (int i = threadIdx.x; i < c.size(p.rank); i += THREADS) {
        float sum[N];
        for (int k = 0; k < p.count; k++) {
            piece<T, N> part;
            if (k == p.rank)
                part = load_elements<T, N>(x, c.first + own_begin + i, count, aligned);
            else
                *(uint4 *)&part = __ldcv(inputs + k * c.slice + i);
            add_elements(sum, part, k == 0);
        }
        const piece<T, N> rounded = round_elements<T>(sum);
        store_elements(x, c.first + own_begin + i, count, aligned, rounded);
        for_each_other(p, [&](int k) { p.of[k]->results[set][block][own_begin + i] = *(const uint4 *)&rounded; });
    }
    exchange(p, RESULTS_ARE_THERE, pass);
    for_each_other(p, [&](int k) {
#pragma unroll 4
        for (int i = threadIdx.x; i < c.size(k); i += THREADS) {
            piece<T, N> sum;
            *(uint4 *)&sum = __ldcv(results + c.begin(k) + i);
            store_elements(x, c.first + c.begin(k) + i, count, aligned, sum);
        }
    });
}

/* Chunks of `per_chunk` pieces: block b has b, b + blocks and so on. slice * ranks may be a little more than a chunk,
 * so per_chunk leaves room for a piece a rank. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    passes_kernel(const __grid_constant__ peers p, T *x, int64_t count, bool aligned, int per_chunk)
{
    const int64_t pieces = cuda_div_up(count, 16 / sizeof(T));
    let_next_start();
    wait_for_previous();
    uint32_t pass = own(p)->passes[blockIdx.x];
    for (int64_t first = (int64_t)blockIdx.x * per_chunk; first < pieces; first += (int64_t)gridDim.x * per_chunk) {
        const int size = (int)min((int64_t)per_chunk, pieces - first);
        reduce_chunk(p, x, count, aligned, {first, size, (size + p.count - 1) / p.count}, ++pass);
    }
    if (threadIdx.x == 0) own(p)->passes[blockIdx.x] = pass;
}

template <class T> static void reduce(const struct cuda_state *s, T *x, int64_t count)
{
    const peers p = cuda_peers(s);
    const bool aligned = cuda_is_aligned(x);
    const int64_t bytes = count * (int64_t)sizeof(T);
    if (bytes <= cuda_most_in_words(s)) {
        const int64_t words = cuda_div_up(bytes, WORD_BYTES);
        cuda_launch_dependent(s, words_kernel<T>, {cuda_blocks_for(s, cuda_div_up(words, THREADS)), THREADS}, p, x,
                              count, aligned);
        return;
    }
    const int64_t pieces = cuda_div_up(bytes, 16), share = cuda_div_up(pieces, s->group->max_blocks);
    const int64_t most = CHUNK_PIECES - MAX_RANKS, per_chunk = share < most ? share : most;
    cuda_launch_dependent(s, passes_kernel<T>, {cuda_blocks_for(s, cuda_div_up(pieces, per_chunk)), THREADS}, p, x,
                          count, aligned, (int)per_chunk);
}

void cuda_all_reduce(struct backend *b, const struct all_reduce_args *args)
{
    if (args->count <= 0) return;
    const struct cuda_state *s = cuda_use(b);
    struct nccl *nccl =
        communicators_take(&s->group->communicators, s->rank, args->count * (int64_t)dtype_size(args->dtype));
    if (nccl) {
        const char *why = nccl_all_reduce(nccl, args->x, args->count, args->dtype, s->stream);
        if (why) cuda_fail(b, "all_reduce failed on %s: NCCL: %s", s->name, why);
        return;
    }
    cuda_dispatch(b, "all_reduce", args->dtype, [&](auto zero) {
        using T = decltype(zero);
        reduce(s, (T *)args->x, args->count);
    });
    cuda_check_launch(b, "all_reduce");
}

template <class T> static bool load(struct backend *b)
{
    struct cudaFuncAttributes attributes;
    return cuda_check(b, "all_reduce", cudaFuncGetAttributes(&attributes, words_kernel<T>)) &&
           cuda_check(b, "all_reduce", cudaFuncGetAttributes(&attributes, passes_kernel<T>));
}

bool cuda_load_all_reduce(struct backend *b)
{
    return load<float>(b) && load<__half>(b) && load<__nv_bfloat16>(b);
}
