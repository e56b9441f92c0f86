/* The softmax of prefill. A warp has 16 rows of scores and of the result in registers: matrices C of mma.cuh, one after
 * the other along tokens or elements. P is the same as in tiles.cuh. */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_SOFTMAX_CUH
#define QUIRE_KERNELS_CUDA_ATTENTION_SOFTMAX_CUH

#include "kernels/cuda/attention/tiles.cuh"

enum { MAX_GROWTH = 8 };

/* The softmax of one row. A thread has two rows, i and i + 8 of its warp's 16. */
struct row_state {
    int32_t first, last;   /* tokens that it attends to */
    float max, sum, slope; /* max: of the scores, less MAX_GROWTH at most */
};

/* Applies soft cap and ALiBi to the scores of a tile of tokens from `start`, and sets those of tokens that a row does
 * not attend to to -INFINITY. */
template <class P>
static __device__ __forceinline__ void modify_scores(float (&s)[P::TOKENS / 2], const attention_call &call,
                                                     const row_state rows[2], int32_t start)
{
    const int32_t j = threadIdx.x % 4;
    if constexpr (P::VARIANT) {
        const float scale = call.params.scale * kv_scales_load(&call.params, P::FP8).k;
#pragma unroll
        for (int n = 0; n < P::TOKENS / 2; n++) {
            const int32_t token = start + n / 4 * 8 + 2 * j + n % 2;
            s[n] =
                attention_modify_fast(&call.params, s[n] * scale, rows[n / 2 % 2].slope, token - rows[n / 2 % 2].last);
        }
    }
    const int32_t last = min(__shfl_sync(~0u, rows[0].last, 0), rows[0].last); /* rows are ordered by position */
    const int32_t first = rows[1].first;
    if (__all_sync(~0u, start >= first && start + P::TOKENS - 1 <= last)) return;
#pragma unroll
    for (int n = 0; n < P::TOKENS / 2; n++) {
        const int32_t token = start + n / 4 * 8 + 2 * j + n % 2;
        if (token < rows[n / 2 % 2].first || token > rows[n / 2 % 2].last) s[n] = -INFINITY;
    }
}

/* Turns scores into weights. factors: what sums with the previous maximum are to be multiplied by. In large heads,
 * whose sums take long to multiply, a maximum is only replaced by one that is more than 2^MAX_GROWTH times as heavy, so
 * that most factors are 1. Weights up to that are as exact as those up to 1. */
template <class P>
static __device__ __forceinline__ void softmax(float (&s)[P::TOKENS / 2], row_state rows[2], float factors[2],
                                               float scale_log2)
{
    float base[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float max[2] = {rows[r].max, rows[r].max}; /* two chains of half the length */
#pragma unroll
        for (int n = 0; n < P::TOKENS / 4; n++) max[n % 2] = fmaxf(max[n % 2], s[n / 2 * 4 + r * 2 + n % 2]);
        max[0] = fmaxf(max[0], max[1]);
        max[0] = fmaxf(max[0], __shfl_xor_sync(~0u, max[0], 1));
        max[0] = fmaxf(max[0], __shfl_xor_sync(~0u, max[0], 2));
        if (P::HEAD > 64 && !((max[0] - rows[r].max) * scale_log2 > MAX_GROWTH)) max[0] = rows[r].max;
        base[r] = max[0] == -INFINITY ? 0 : max[0] * scale_log2;
        factors[r] = exp2_fast(rows[r].max * scale_log2 - base[r]);
        rows[r].max = max[0];
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum[2] = {0, 0};
#pragma unroll
        for (int n = 0; n < P::TOKENS / 4; n++) {
            float &x = s[n / 2 * 4 + r * 2 + n % 2];
            x = exp2_fast(fmaf(x, scale_log2, -base[r]));
            sum[n % 2] += x;
        }
        rows[r].sum = rows[r].sum * factors[r] + (sum[0] + sum[1]);
    }
}

/* The weights as matrices A of mma.cuh. */
template <class P>
static __device__ __forceinline__ void pack_weights(uint32_t (&weights)[P::TOKENS / 4], const float (&s)[P::TOKENS / 2])
{
#pragma unroll
    for (int n = 0; n < P::TOKENS / 4; n++) weights[n] = pack_pair<typename P::T>(s[2 * n], s[2 * n + 1]);
}

/* Initializes this thread's rows of a tile. */
template <class P>
static __device__ __forceinline__ void start_rows(const attention_call &call, const prefill_tile &tile,
                                                  int32_t first_row, row_state rows[2])
{
    for (int r = 0; r < 2; r++) {
        const int32_t position = prefill_position(&tile, first_row + r * 8);
        rows[r] = {attention_first(&call.params, position), position, -INFINITY, 0, 0};
        if (P::VARIANT && call.params.alibi_slopes)
            rows[r].slope = call.params.alibi_slopes[prefill_row_of(&tile, first_row + r * 8).head];
    }
}

static __device__ __forceinline__ void store_pair(uint32_t to, uint32_t pair)
{
    asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(to), "r"(pair) : "memory");
}

/* Stores a warp's 16 rows of the result, from row `first_row` of the tile on. They pass through the warp's part of Q in
 * shared memory, which is not needed any more, so that each row is written in one piece. */
template <class P>
static __device__ __forceinline__ void store_rows(const attention_call &call, const prefill_tile &tile,
                                                  const float (&out)[P::HEAD / 2], const row_state rows[2],
                                                  float scale_log2, uint32_t q, int32_t first_row)
{
    constexpr int GROUPS = P::HEAD / 8, STEP = 32 / GROUPS;
    const struct attention_args &args = call.args;
    const int32_t lane = threadIdx.x % 32, d = lane % GROUPS;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = rows[r].sum;
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (call.params.sinks)
            sum += attention_sink_weight(&call.params, prefill_row_of(&tile, first_row + lane / 4 + r * 8).head,
                                         rows[r].max * scale_log2);
        const float inverse = sum == 0 ? 0 : kv_scales_load(&call.params, P::FP8).v / sum;
#pragma unroll
        for (int b = 0; b < GROUPS; b++)
            store_pair(q + b * P::Q_STRIDE + r * 128 + lane * 4,
                       pack_pair<typename P::T>(out[b * 4 + r * 2] * inverse, out[b * 4 + r * 2 + 1] * inverse));
    }
    __syncwarp();
#pragma unroll
    for (int r = lane / GROUPS; r < 16; r += STEP) {
        const struct prefill_row row = prefill_row_of(&tile, first_row + r);
        const uint4 piece = load_piece(q + d * P::Q_STRIDE + r * 16);
        if (row.token < tile.seq.query_len && d * 8 < v_head_size<P>(args))
            *(uint4 *)((typename P::T *)args.out +
                       ((tile.seq.first_token + row.token) * args.num_heads + row.head) * v_head_size<P>(args) +
                       d * 8) = piece;
    }
}

#endif
