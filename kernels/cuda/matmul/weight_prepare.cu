/* weight_prepare: the order of INT4 that the kernels read (quantized.cuh), made in place. */
#include "kernels/cuda/operations.h"
#include "kernels/cuda/matmul/quantized.cuh"

enum { THREADS = 256, WORDS = INT4_SEGMENT_BYTES / 4 };

/* A thread makes a word of a segment, from the pairs of other threads' words: it has 8 input features, each pair from
 * another word. All threads of a segment are in one warp, which reads before it writes. */
static __global__ void __launch_bounds__(THREADS) weight_prepare_kernel(uint32_t *words, int64_t count)
{
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= count) return; /* count is a multiple of WORDS, and the shuffles stay within a segment */
    const uint32_t mask = WORDS == 32 ? ~0u : 0xffffu << (threadIdx.x % 32 / WORDS * WORDS), own = words[at];
    const int place = threadIdx.x % WORDS, t = place / 4, w = place % 4;
    uint32_t out = 0;
#pragma unroll
    for (int pair = 0; pair < 4; pair++) {
        const uint32_t word = __shfl_sync(mask, own, 4 * w + pair, WORDS); /* input features 32 w + 8 pair, ... + 7 */
        out |= (word >> 8 * t & 15) << 4 * pair | (word >> (8 * t + 4) & 15) << 4 * (pair + 4);
    }
    words[at] = out;
}

/* The scale of a row that has a NaN becomes NaN, because decoding would make 480 of it (fp8_pairs). */
static __global__ void __launch_bounds__(THREADS)
    mark_nan_kernel(const uint8_t *data, int64_t in_features, float *scales, int64_t scale_rows, int64_t groups)
{
    const int64_t row = blockIdx.x;
    bool has_nan = false;
    for (int64_t i = threadIdx.x; i < in_features; i += THREADS)
        has_nan |= (data[row * in_features + i] & 0x7f) == 0x7f;
    if (__syncthreads_or(has_nan) && threadIdx.x == 0) scales[row / scale_rows * groups] = NAN;
}

static void mark_nan(struct backend *b, const struct weight *w)
{
    if (w->out_features == 0 || w->scale_dtype != DTYPE_FLOAT32) return;
    mark_nan_kernel<<<(unsigned)w->out_features, THREADS, 0, cuda_stream(b, NULL)>>>(
        (const uint8_t *)w->data, w->in_features, (float *)w->scales, w->scale_rows, weight_groups(w));
    cuda_check_launch(b, "weight_prepare");
}

void cuda_weight_prepare(struct backend *b, const struct weight *w)
{
    const int64_t words = w->out_features * weight_row_bytes(w) / 4;
    if (w->format == WEIGHT_FP8) mark_nan(b, w);
    if (!int4_is_prepared(w) || words == 0) return;
    weight_prepare_kernel<<<(unsigned)cuda_div_up(words, THREADS), THREADS, 0, cuda_stream(b, NULL)>>>(
        (uint32_t *)w->data, words);
    cuda_check_launch(b, "weight_prepare");
}
