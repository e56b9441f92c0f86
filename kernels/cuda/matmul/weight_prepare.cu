/* weight_prepare: the order of INT4 and MXFP4 that the kernels read (quantized.cuh), made in place. */
#include "kernels/cuda/operations.h"
#include "kernels/cuda/matmul/quantized.cuh"

enum { THREADS = 256, WORDS = INT4_SEGMENT_BYTES / 4 };

/* A thread makes a word of a segment, from the pairs of other threads' words: it has 8 input features, each pair from
 * another word. All threads of a segment are in one warp, which reads before it writes. A row has `segments`, the last
 * of which may be half a one, so that some threads have no word. */
static __global__ void __launch_bounds__(THREADS)
    weight_prepare_kernel(uint32_t *words, int64_t rows, int64_t segments, int64_t in_features, bool is_mxfp4)
{
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x, row = at / (segments * WORDS);
    const int64_t column = at % (segments * WORDS) * 8; /* the first that the thread reads */
    if (row >= rows) return;                            /* the shuffles stay within a segment */
    const bool is_there = column < in_features;
    uint32_t *const own_word = words + (row * in_features + column) / 8;
    const uint32_t mask = WORDS == 32 ? ~0u : 0xffffu << (threadIdx.x % 32 / WORDS * WORDS);
    const uint32_t own = is_there ? *own_word : 0;
    const int place = threadIdx.x % WORDS, of_piece = piece_words(in_features, column - place * 8);
    const int t = place / of_piece, w = place % of_piece;
    uint32_t out = 0;
#pragma unroll
    for (int pair = 0; pair < 4; pair++) {
        const uint32_t word = __shfl_sync(mask, own, 4 * w + pair, WORDS); /* input features 32 w + 8 pair, ... + 7 */
        const uint32_t first = word >> 8 * t & 15, second = word >> (8 * t + 4) & 15;
        out |= is_mxfp4 ? mxfp4_encode(first, pair) | mxfp4_encode(second, pair) << 16
                        : first << 4 * pair | second << 4 * (pair + 4);
    }
    if (is_there) *own_word = out;
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
    const int64_t segments = cuda_div_up(w->in_features, INT4_SEGMENT), threads = w->out_features * segments * WORDS;
    if (w->format == WEIGHT_FP8) mark_nan(b, w);
    if (!weight_is_prepared(w) || threads == 0) return;
    weight_prepare_kernel<<<(unsigned)cuda_div_up(threads, THREADS), THREADS, 0, cuda_stream(b, NULL)>>>(
        (uint32_t *)w->data, w->out_features, segments, w->in_features, w->format == WEIGHT_MXFP4);
    cuda_check_launch(b, "weight_prepare");
}
