/* Attention for every shape, pair of types and variant, in float32: exact arithmetic for float32 caches, and everything
 * that the tensor core kernels do not take. A block takes one head of one query. Its warps share the context in chunks
 * of 32 tokens; chunk c goes to warp c % WARPS. The result of a query depends on its own context alone: not on the
 * batch, on how its prompt was cut into chunks, or on which operation computes it.
 *
 * In a chunk a lane first has one token: in K's layout the lanes of a warp read neighbouring pieces of 16 bytes. Then
 * it has the elements lane, lane + 32, ... of the output, and reads V's rows 8 tokens at a time. Tokens that the query
 * does not attend to are not used, whatever they contain. */
#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/warp.cuh"

enum { WARPS = 4, LANES = 32, MAX_HEAD_SIZE = 256, OUT_PER_LANE = MAX_HEAD_SIZE / LANES };

/* `count` elements of T, read as one or two pieces of up to 16 bytes. */
template <class T, int count> struct alignas(sizeof(T) * count < 16 ? sizeof(T) * count : 16) pack {
    T values[count];
};

/* A warp's share of the softmax of one query and head. */
template <class C> struct lane_state {
    const C *keys, *values; /* of this KV head in block 0 */
    int64_t block_stride;   /* elements from a block to the next */
    float max, sum, out[OUT_PER_LANE];
};

/* The score of the lane's token at `offset` of a block. */
template <class C>
static __device__ float score(const C *block_keys, const float *query, int32_t head_size, int32_t block_size,
                              int32_t offset)
{
    constexpr int x = 16 / sizeof(C);
    float sum = 0;
    for (int32_t d = 0; d < head_size; d += x) {
        const pack<C, x> key = *(const pack<C, x> *)(block_keys + (int64_t)d * block_size + offset * x);
#pragma unroll
        for (int i = 0; i < x; i++) sum = fmaf(query[d + i], to_float(key.values[i]), sum);
    }
    return sum;
}

/* out += weight x value for the 8 tokens of a V row that start at `offset`; bit i of `live`: the query attends to token
 * i. */
template <class C>
static __device__ void add_values(lane_state<C> &s, const C *block_values, int32_t v_head_size, int32_t block_size,
                                  int32_t offset, const float weights[8], uint32_t live)
{
    const int lane = threadIdx.x % LANES;
#pragma unroll
    for (int k = 0; k < OUT_PER_LANE; k++) {
        const int d = lane + k * LANES;
        if (d >= v_head_size) break;
        const pack<C, 8> value = *(const pack<C, 8> *)(block_values + (int64_t)d * block_size + offset);
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (live >> i & 1) s.out[k] = fmaf(weights[i], to_float(value.values[i]), s.out[k]);
    }
}

/* One query of one head; it attends to tokens [first, position]. */
struct generic_query {
    const float *values; /* [head_size], scaled */
    const int32_t *block_table;
    int32_t head, kv_head, first, position;
};

/* Adds tokens [start, start + 32) to the softmax. */
template <class C>
static __device__ void attend_chunk(lane_state<C> &s, const struct attention_call &call, const generic_query &q,
                                    int32_t start)
{
    const struct attention_args &args = call.args;
    const struct attention_params &params = call.params;
    const int32_t lane = threadIdx.x % LANES, token = start + lane;
    bool seen = token >= q.first && token <= q.position;
    if (seen && attention_is_sparse(&params))
        seen = attention_sparse_reads(&params, q.head, q.kv_head, q.position, token);
    const uint32_t live = __ballot_sync(~0u, seen);
    if (live == 0) return;
    float x = -INFINITY;
    if (seen) {
        const int64_t block = q.block_table[token / args.block_size];
        x = score(s.keys + block * s.block_stride, q.values, args.head_size, args.block_size, token % args.block_size);
        x = attention_modify(&params, x, params.alibi_slopes ? params.alibi_slopes[q.head] : 0, token - q.position);
    }
    const float max = fmaxf(s.max, warp_max(x));
    const float base = max == -INFINITY ? 0 : max; /* all scores may be -inf */
    const float factor = expf(s.max - base), weight = seen ? expf(x - base) : 0;
    s.sum = s.sum * factor + warp_sum(weight);
    s.max = max;
#pragma unroll
    for (int k = 0; k < OUT_PER_LANE; k++) s.out[k] *= factor;
    for (int32_t t = 0; t < LANES; t += 8) {
        float weights[8];
#pragma unroll
        for (int i = 0; i < 8; i++) weights[i] = __shfl_sync(~0u, weight, t + i);
        if ((live >> t & 0xff) == 0) continue;
        const int64_t block = q.block_table[(start + t) / args.block_size];
        add_values(s, s.values + block * s.block_stride, args.v_head_size, args.block_size,
                   (start + t) % args.block_size, weights, live >> t);
    }
}

/* Grid: (max_query_len, num_heads, num_seqs). */
template <class T, class C>
static __global__ void __launch_bounds__(WARPS *LANES)
    generic_kernel(const __grid_constant__ struct attention_call call)
{
    __shared__ float query[MAX_HEAD_SIZE], out[WARPS][MAX_HEAD_SIZE], maxima[WARPS], sums[WARPS];
    const struct attention_args &args = call.args;
    const struct attention_seq seq = attention_seq_load(&args, blockIdx.z);
    const int32_t head = blockIdx.y, kv_head = head / (args.num_heads / args.num_kv_heads), head_size = args.head_size;
    if ((int32_t)blockIdx.x >= seq.query_len) return;
    const int64_t row = seq.first_token + blockIdx.x;
    const int32_t position = seq.seq_len - seq.query_len + (int32_t)blockIdx.x, warp = threadIdx.x / LANES;
    const generic_query q = {query, seq.block_table, head, kv_head, attention_first(&call.params, position), position};
    const struct kv_scales scales = kv_scales_load(&call.params, sizeof(C) == 1);
    const T *query_row = (const T *)args.query + row * args.query_stride + (int64_t)head * head_size;
    for (int d = threadIdx.x; d < head_size; d += WARPS * LANES)
        query[d] = to_float(query_row[d]) * (call.params.scale * scales.k);
    __syncthreads();

    const int64_t tile = (int64_t)kv_head * args.block_size;
    lane_state<C> s = {(const C *)args.k_cache + tile * head_size,
                       (const C *)args.v_cache + tile * args.v_head_size,
                       args.block_stride,
                       -INFINITY,
                       0,
                       {}};
    for (int32_t start = (q.first / LANES / WARPS * WARPS + warp) * LANES; start <= position; start += WARPS * LANES)
        attend_chunk(s, call, q, start);

#pragma unroll
    for (int k = 0; k < OUT_PER_LANE; k++) out[warp][threadIdx.x % LANES + k * LANES] = s.out[k];
    if (threadIdx.x % LANES == 0) maxima[warp] = s.max, sums[warp] = s.sum;
    __syncthreads();
    float max = -INFINITY, sum = 0, weights[WARPS];
    for (int w = 0; w < WARPS; w++) max = fmaxf(max, maxima[w]);
    for (int w = 0; w < WARPS; w++) {
        weights[w] = maxima[w] == -INFINITY ? 0 : expf(maxima[w] - max);
        sum += sums[w] * weights[w];
    }
    if (call.params.sinks) sum += expf(call.params.sinks[head] - max);
    const float inverse = sum == 0 ? 0 : scales.v / sum;
    T *out_row = (T *)args.out + (row * args.num_heads + head) * args.v_head_size;
    for (int d = threadIdx.x; d < args.v_head_size; d += WARPS * LANES) {
        float total = 0;
        for (int w = 0; w < WARPS; w++) total += weights[w] * out[w][d];
        out_row[d] = from_float<T>(total * inverse);
    }
}

void cuda_attention_generic(struct backend *b, const struct attention_args *args)
{
    const struct attention_call call = attention_call_make(args);
    const dim3 grid(args->max_query_len, args->num_heads, args->num_seqs);
    if (args->num_seqs <= 0) return;
    cudaStream_t stream = cuda_stream(b, NULL);
    cuda_dispatch(b, "paged attention", args->dtype, [&](auto zero) {
        using T = decltype(zero);
        cuda_dispatch_cache(b, "paged attention", args->cache_dtype, [&](auto cache_zero) {
            generic_kernel<T, decltype(cache_zero)><<<grid, WARPS * LANES, 0, stream>>>(call);
        });
    });
    cuda_check_launch(b, "paged attention");
}
