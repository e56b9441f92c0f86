/* Latent attention for every shape and pair of types, in float32: exact arithmetic for float32, and everything that the
 * kernel on tensor cores does not take. A block takes one head of one query token. Its warps share the context in
 * chunks of 32 tokens; chunk c goes to warp c % WARPS. In a chunk a lane first has one token, and then elements lane,
 * lane + 32, ... of the output. Tokens that the query does not attend to are not read. */
#include "kernels/cuda/latent/latent.cuh"
#include "kernels/cuda/warp.cuh"

enum { WARPS = 4, LANES = 32, THREADS = WARPS * LANES, MAX_RANK = 1024, OUT_PER_LANE = MAX_RANK / LANES };

static __device__ __forceinline__ float to_float(__nv_fp8_e4m3 x)
{
    return (float)x;
}
static __device__ __forceinline__ float to_float(__nv_fp8_e5m2 x)
{
    return (float)x;
}

/* A warp's share of the softmax of one query and head. */
struct lane_state {
    float max, sum, out[OUT_PER_LANE];
};

/* One query of one head; it attends to tokens [0, end). */
template <class C> struct latent_query {
    const float *values; /* [rank + rope], scaled */
    const C *cache;
    const int32_t *block_table;
    int64_t block_stride;
    int32_t block_size, rank, size, end;
};

template <class C> static __device__ __forceinline__ const C *row_of(const latent_query<C> &q, int32_t token)
{
    const int64_t block = q.block_table[token / q.block_size];
    return q.cache + block * q.block_stride + (int64_t)(token % q.block_size) * q.size;
}

template <class C> static __device__ float score(const latent_query<C> &q, const C *row)
{
    constexpr int X = 16 / sizeof(C);
    float sum = 0;
    for (int32_t d = 0; d < q.size; d += X) {
        const piece<C, X> key = *(const piece<C, X> *)(row + d);
#pragma unroll
        for (int i = 0; i < X; i++) sum = fmaf(q.values[d + i], to_float(key.values[i]), sum);
    }
    return sum;
}

/* Adds tokens [start, start + 32) to the softmax. */
template <class C> static __device__ void attend_chunk(lane_state &s, const latent_query<C> &q, int32_t start)
{
    const int32_t lane = threadIdx.x % LANES, token = start + lane, count = min(q.end - start, (int32_t)LANES);
    const C *row = lane < count ? row_of(q, token) : NULL;
    const float x = row ? score(q, row) : -INFINITY, max = fmaxf(s.max, warp_max(x));
    const float base = max == -INFINITY ? 0 : max; /* all scores may be -inf */
    const float factor = expf(s.max - base), weight = row ? expf(x - base) : 0;
    s.sum = s.sum * factor + warp_sum(weight);
    s.max = max;
#pragma unroll
    for (int k = 0; k < OUT_PER_LANE; k++) s.out[k] *= factor;
    for (int32_t t = 0; t < count; t++) {
        const float w = __shfl_sync(~0u, weight, t);
        const C *from = (const C *)__shfl_sync(~0u, (unsigned long long)row, t);
#pragma unroll
        for (int k = 0; k < OUT_PER_LANE; k++) {
            const int d = lane + k * LANES;
            if (d >= q.rank) break;
            s.out[k] = fmaf(w, to_float(from[d]), s.out[k]);
        }
    }
}

/* Sums what the warps have found, and stores the row of the result. */
template <class T>
static __device__ void store(const lane_state &s, T *row, int32_t rank, float scale, float (*out)[MAX_RANK])
{
    __shared__ float maxima[WARPS], sums[WARPS];
    const int32_t warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
#pragma unroll
    for (int k = 0; k < OUT_PER_LANE; k++) out[warp][lane + k * LANES] = s.out[k];
    if (lane == 0) maxima[warp] = s.max, sums[warp] = s.sum;
    __syncthreads();
    float max = -INFINITY, sum = 0, weights[WARPS];
    for (int w = 0; w < WARPS; w++) max = fmaxf(max, maxima[w]);
    for (int w = 0; w < WARPS; w++) {
        weights[w] = maxima[w] == -INFINITY ? 0 : expf(maxima[w] - max);
        sum += sums[w] * weights[w];
    }
    const float inverse = sum == 0 ? 0 : scale / sum;
    for (int d = threadIdx.x; d < rank; d += THREADS) {
        float total = 0;
        for (int w = 0; w < WARPS; w++) total += weights[w] * out[w][d];
        row[d] = from_float<T>(total * inverse);
    }
}

/* Grid: (max_query_len, num_heads, entries). */
template <class T, class C>
static __global__ void __launch_bounds__(THREADS)
    latent_generic_kernel(const __grid_constant__ struct latent_attention_args args)
{
    extern __shared__ float query[];
    __shared__ float out[WARPS][MAX_RANK];
    const int32_t seq = blockIdx.z, head = blockIdx.y, size = args.rank + args.rope;
    const int32_t first_token = args.query_start[seq], query_len = args.query_start[seq + 1] - first_token;
    if ((int32_t)blockIdx.x >= query_len) return;
    const int64_t row = ((int64_t)first_token + blockIdx.x) * args.num_heads + head;
    const float scale = latent_scale_load(args);
    for (int d = threadIdx.x; d < size; d += THREADS)
        query[d] = to_float(((const T *)args.query)[row * size + d]) * (args.scale * scale);
    __syncthreads();
    const latent_query<C> q = {query,
                               (const C *)args.cache,
                               args.block_tables + args.state_indices[seq] * args.block_table_stride,
                               args.block_stride,
                               args.block_size,
                               args.rank,
                               size,
                               args.seq_lens[seq] - query_len + (int32_t)blockIdx.x + 1};
    lane_state s = {-INFINITY, 0, {}};
    for (int32_t start = threadIdx.x / LANES * LANES; start < q.end; start += THREADS) attend_chunk(s, q, start);
    store(s, (T *)args.out + row * args.rank, args.rank, scale, out);
}

void cuda_latent_generic(struct backend *b, const struct latent_attention_args *args)
{
    const dim3 grid(args->max_query_len, args->num_heads, args->num_seqs);
    const int shared_bytes = (args->rank + args->rope) * (int)sizeof(float);
    if (args->rank > MAX_RANK || shared_bytes > 16384) {
        cuda_fail(b, "latent attention: there is no kernel for latents of %d + %d elements", args->rank, args->rope);
        return;
    }
    cudaStream_t stream = cuda_stream(b, NULL);
    cuda_dispatch(b, "latent attention", args->dtype, [&](auto zero) {
        using T = decltype(zero);
        cuda_dispatch_cache(b, "latent attention", args->cache_dtype, [&](auto cache_zero) {
            latent_generic_kernel<T, decltype(cache_zero)><<<grid, THREADS, shared_bytes, stream>>>(*args);
        });
    });
    cuda_check_launch(b, "latent attention");
}
