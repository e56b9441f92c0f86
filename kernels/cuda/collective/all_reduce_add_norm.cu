/* all_reduce_add_norm. A block computes tokens, one after the other; few of them travel in words and more in passes of
 * rows (peers.cuh). It rounds where all_reduce and fused_add_rms_norm do (norm.cu). */
#include "kernels/cuda/collective/peers.cuh"
#include "kernels/cuda/gains.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/quantize.cuh"
#include "kernels/cuda/warp.cuh"

using namespace collective;

template <class T> struct reduce_call {
    struct peers peers;
    T *out;
    const T *x;
    T *residual;
    struct norm_params norm;
    quantize_call quantized; /* what is written instead of out */
    float multiplier;
    int pieces; /* of a token */
    int tokens;
    int chunk; /* tokens of a pass */
};

union piece_words {
    uint4 all;
    uint2 words[2];
};

template <class T, int N>
static __device__ __forceinline__ void add_part(float (&sum)[N], const uint4 &part, bool first)
{
    const piece<T, N> x = *(const piece<T, N> *)&part;
#pragma unroll
    for (int j = 0; j < N; j++) sum[j] = first ? to_float(x.values[j]) : sum[j] + to_float(x.values[j]);
}

/* The residual stream after the addition, whose squares are added to *squares. */
template <class T, int N>
static __device__ __forceinline__ piece<T, N> add_residual(const float (&sum)[N], const piece<T, N> &residual,
                                                           float multiplier, float *squares)
{
    piece<T, N> p;
#pragma unroll
    for (int j = 0; j < N; j++) {
        const float x = to_float(from_float<T>(sum[j]));
        p.values[j] = from_float<T>(fmaf(multiplier, x, to_float(residual.values[j])));
        *squares += to_float(p.values[j]) * to_float(p.values[j]);
    }
    return p;
}

/* Adds up a token, and writes its residual and its norm. receive(k, i) is piece i of the token of rank k, another one.
 * PIECES: of a thread. */
template <int PIECES, class T, int N, class Receive>
static __device__ __forceinline__ void finish_token(const reduce_call<T> &c, int token, const raw_gains<N> *gains,
                                                    struct warp_sums *sums, Receive receive)
{
    const int64_t row = (int64_t)token * c.pieces;
    uint4 mine[PIECES];
    piece<T, N> kept[PIECES];
    float squares = 0;
#pragma unroll
    for (int k = 0; k < PIECES; k++) {
        const int i = threadIdx.x + k * blockDim.x;
        if (i >= c.pieces) continue;
        mine[k] = ((const uint4 *)c.x)[row + i];
        kept[k] = ((const piece<T, N> *)c.residual)[row + i];
    }
#pragma unroll
    for (int k = 0; k < PIECES; k++) {
        const int i = threadIdx.x + k * blockDim.x;
        if (i >= c.pieces) continue;
        float sum[N];
        for (int r = 0; r < c.peers.count; r++)
            add_part<T, N>(sum, r == c.peers.rank ? mine[k] : receive(r, i), r == 0);
        kept[k] = add_residual<T, N>(sum, kept[k], c.multiplier, &squares);
        ((piece<T, N> *)c.residual)[row + i] = kept[k];
    }
    const float factor = rsqrtf(block_sum(squares, sums) / (float)(c.pieces * N) + c.norm.eps);
#pragma unroll
    for (int k = 0; k < PIECES; k++) {
        const int i = threadIdx.x + k * blockDim.x;
        if (i >= c.pieces) continue;
        apply_gains(kept[k], factor, gains[k], c.norm.gain_dtype);
        if (!c.quantized.data) ((piece<T, N> *)c.out)[row + i] = kept[k];
    }
    if (c.quantized.data) quantize_token(c.quantized, token, kept, c.pieces, [](int) { return piece<T, N>(); });
}

template <int PIECES, class T, int N>
static __device__ __forceinline__ void load_all_gains(const reduce_call<T> &c, raw_gains<N> *gains)
{
#pragma unroll
    for (int k = 0; k < PIECES; k++) {
        const int i = threadIdx.x + k * blockDim.x;
        if (i < c.pieces) gains[k] = load_gains<N>(c.norm.gain, c.norm.gain_dtype, i);
    }
}

/* ---- in words ---- */

template <class T> static __device__ __forceinline__ void send_token(const reduce_call<T> &c, uint32_t call, int token)
{
    const int64_t row = (int64_t)token * c.pieces;
    for (int i = threadIdx.x; i < c.pieces; i += blockDim.x) {
        piece_words mine;
        mine.all = ((const uint4 *)c.x)[row + i];
        send(c.peers, call, (int)(2 * (row + i)), mine.words[0]);
        send(c.peers, call, (int)(2 * (row + i)) + 1, mine.words[1]);
    }
}

/* Two calls of block_sum that follow each other have different sums. */
template <class T, int PIECES>
static __global__ void __launch_bounds__(THREADS) in_words_kernel(const __grid_constant__ reduce_call<T> c)
{
    constexpr int N = 16 / sizeof(T);
    __shared__ struct warp_sums sums[2];
    raw_gains<N> gains[PIECES];
    let_next_start();
    load_all_gains<PIECES, T, N>(c, gains);
    wait_for_previous();
    const uint32_t call = begin_call(c.peers);
    for (int token = blockIdx.x; token < c.tokens; token += gridDim.x) send_token(c, call, token);
    int parity = 0;
    for (int token = blockIdx.x; token < c.tokens; token += gridDim.x, parity ^= 1)
        finish_token<PIECES, T, N>(c, token, gains, &sums[parity], [&](int rank, int i) {
            return receive_two(c.peers, call, rank, 2 * (token * c.pieces + i));
        });
    end_call(c.peers, call);
}

/* ---- in passes ---- */

/* Where rank `of` receives the rows of a sender. */
static __device__ __forceinline__ uint4 *rows_of(const peers &p, int of, uint32_t pass, int sender)
{
    const int place = sender < of ? sender : sender - 1;
    return p.of[of]->rows[pass % ROWS_SETS][blockIdx.x] + place * (ROWS_PIECES / (p.count - 1));
}

template <class T> static __device__ __forceinline__ void send_rows(const reduce_call<T> &c, int first, uint32_t pass)
{
    const int size = min(c.chunk, c.tokens - first) * c.pieces;
    const uint4 *from = (const uint4 *)c.x + (int64_t)first * c.pieces;
    for_each_other(c.peers, [&](int k) {
        uint4 *to = rows_of(c.peers, k, pass, c.peers.rank);
#pragma unroll 4
        for (int i = threadIdx.x; i < size; i += blockDim.x) to[i] = from[i];
    });
    signal(c.peers, ROWS_ARE_THERE, pass);
}

/* Chunks of c.chunk tokens: block b has b, b + blocks and so on. The next one is sent before this one is awaited. */
template <class T, int PIECES>
static __global__ void __launch_bounds__(THREADS) in_passes_kernel(const __grid_constant__ reduce_call<T> c)
{
    constexpr int N = 16 / sizeof(T);
    __shared__ struct warp_sums sums[2];
    const int step = gridDim.x * c.chunk;
    raw_gains<N> gains[PIECES];
    let_next_start();
    load_all_gains<PIECES, T, N>(c, gains);
    wait_for_previous();
    uint32_t pass = own(c.peers)->row_passes[blockIdx.x] + 1;
    int parity = 0;
    send_rows(c, blockIdx.x * c.chunk, pass);
    for (int first = blockIdx.x * c.chunk; first < c.tokens; first += step, pass++) {
        if (first + step < c.tokens) send_rows(c, first + step, pass + 1);
        wait_for_signals(c.peers, ROWS_ARE_THERE, pass);
        const int end = min(first + c.chunk, c.tokens);
        for (int token = first; token < end; token++, parity ^= 1)
            finish_token<PIECES, T, N>(c, token, gains, &sums[parity], [&](int rank, int i) {
                return __ldcv(rows_of(c.peers, c.peers.rank, pass, rank) + (token - first) * c.pieces + i);
            });
    }
    if (threadIdx.x == 0) own(c.peers)->row_passes[blockIdx.x] = pass - 1;
}

/* ---- launches ---- */

enum { MOST_PIECES = 4 /* of a thread */ };

/* What passes of rows are faster for than all_reduce and a norm: two ranks send no more by them; of more ranks each
 * sends all rows to all others, so only few. */
static int64_t most_in_passes(const struct cuda_state *s)
{
    const int64_t FEW = 2 << 20, ranks = s->group->num_ranks;
    return ranks == 2 ? INT64_MAX : FEW / (ranks - 1);
}

/* What is taken follows from the model and num_tokens, because activations are aligned. */
static bool takes(const struct cuda_state *s, const struct fused_add_rms_norm_args *args)
{
    const int64_t row = (int64_t)args->size * dtype_size(args->dtype);
    const bool aligned =
        row % 16 == 0 && cuda_is_aligned(args->x) && cuda_is_aligned(args->out) && cuda_is_aligned(args->residual);
    const bool plain = args->out && !args->post_norm && !args->x_scales.of_tokens && args->sum_multiplier == 1 &&
                       args->norm.type == NORM_RMS;
    return plain && aligned && row <= (int64_t)MOST_PIECES * THREADS * 16 &&
           row <= ROWS_BYTES / (s->group->num_ranks - 1) && args->num_tokens * row <= most_in_passes(s);
}

template <class T, int PIECES> static void launch(const struct cuda_state *s, reduce_call<T> *call)
{
    const int threads = cuda_threads_for(call->pieces, THREADS);
    if ((int64_t)call->tokens * call->pieces * 16 <= cuda_most_in_words(s)) {
        cuda_launch_dependent(s, in_words_kernel<T, PIECES>, {cuda_blocks_for(s, call->tokens), threads}, *call);
        return;
    }
    const int most = ROWS_PIECES / (s->group->num_ranks - 1) / call->pieces;
    const int share = (int)cuda_div_up(call->tokens, s->group->max_blocks);
    call->chunk = share < most ? share : most;
    cuda_launch_dependent(s, in_passes_kernel<T, PIECES>,
                          {cuda_blocks_for(s, cuda_div_up(call->tokens, call->chunk)), threads}, *call);
}

bool cuda_all_reduce_add_norm(struct backend *b, const struct fused_add_rms_norm_args *args)
{
    if (!takes(cuda_state(b), args)) return false;
    bool launched = false;
    const struct cuda_state *s = cuda_use(b);
    const struct quantized_rows *rows = args->quantized;
    if (args->num_tokens <= 0 || args->size <= 0) return true;
    if (rows && !quantize_check(b, "all_reduce_add_norm", rows, args->size)) return true;
    cuda_dispatch(b, "all_reduce_add_norm", args->dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = 16 / sizeof(T);
        if (!gains_are_aligned<N>(&args->norm)) return;
        reduce_call<T> call = {
            cuda_peers(s),       (T *)args->out, (const T *)args->x,
            (T *)args->residual, args->norm,     quantize_call_of(rows, args->num_tokens, args->size),
            args->multiplier,    args->size / N, args->num_tokens};
        if (call.pieces <= THREADS)
            launch<T, 1>(s, &call);
        else if (call.pieces <= 2 * THREADS)
            launch<T, 2>(s, &call);
        else
            launch<T, MOST_PIECES>(s, &call);
        launched = true;
    });
    cuda_check_launch(b, "all_reduce_add_norm");
    return launched;
}

template <class T, int PIECES> static bool load_kernels(struct backend *b)
{
    struct cudaFuncAttributes attributes;
    return cuda_check(b, "all_reduce_add_norm", cudaFuncGetAttributes(&attributes, in_words_kernel<T, PIECES>)) &&
           cuda_check(b, "all_reduce_add_norm", cudaFuncGetAttributes(&attributes, in_passes_kernel<T, PIECES>));
}

template <class T> static bool load(struct backend *b)
{
    return load_kernels<T, 1>(b) && load_kernels<T, 2>(b) && load_kernels<T, MOST_PIECES>(b);
}

bool cuda_load_all_reduce_add_norm(struct backend *b)
{
    return load<float>(b) && load<__half>(b) && load<__nv_bfloat16>(b);
}
