/* all_reduce_add_norm. A block computes tokens, one after the other; few of them travel in words and more in passes of
 * rows (peers.cuh). It rounds where all_reduce and fused_add_rms_norm do (norm.cu). */
#include "kernels/cuda/collective/peers.cuh"
#include "kernels/cuda/gains.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/quantize.cuh"
#include "kernels/cuda/warp.cuh"

using namespace collective;

enum { MOST_PIECES = 4 /* of a thread at a time */, SENDERS = 4 /* blocks that send a token in words */ };

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

/* The sums over the block. Two calls that follow each other have different `sums`. */
template <int ROWS> static __device__ __forceinline__ void block_sums(float (&x)[ROWS], struct warp_sums (&sums)[ROWS])
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        x[r] = warp_sum(x[r]);
        if (lane == 0) sums[r].of_warps[warp] = x[r];
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        x[r] = lane < (int)blockDim.x / 32 ? sums[r].of_warps[lane] : 0;
        x[r] = __shfl_sync(~0u, warp_sum<BLOCK_SUM_WARPS>(x[r]), 0);
    }
}

/* Adds up the tokens from `token` to `end`, ROWS of them at most, and writes their residuals and their norms.
 * receive(token, k, i) is piece i of rank k, another one. PIECES: of a thread. */
template <int ROWS, int PIECES, class T, int N, class Receive>
static __device__ __forceinline__ void finish_tokens(const reduce_call<T> &c, int token, int end,
                                                     const raw_gains<N> *gains, struct warp_sums (&sums)[ROWS],
                                                     Receive receive)
{
    uint4 mine[ROWS][PIECES];
    piece<T, N> kept[ROWS][PIECES];
    float squares[ROWS] = {};
    auto for_each = [&](auto f) {
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int k = 0; k < PIECES; k++) {
                const int i = threadIdx.x + k * blockDim.x;
                if (token + r < end && i < c.pieces) f(r, k, (int64_t)(token + r) * c.pieces + i, i);
            }
    };
    for_each([&](int r, int k, int64_t at, int) {
        mine[r][k] = ((const uint4 *)c.x)[at];
        kept[r][k] = ((const piece<T, N> *)c.residual)[at];
    });
    for_each([&](int r, int k, int64_t at, int i) {
        float sum[N];
        for (int rank = 0; rank < c.peers.count; rank++)
            add_part<T, N>(sum, rank == c.peers.rank ? mine[r][k] : receive(token + r, rank, i), rank == 0);
        kept[r][k] = add_residual<T, N>(sum, kept[r][k], c.multiplier, &squares[r]);
        ((piece<T, N> *)c.residual)[at] = kept[r][k];
    });
    block_sums(squares, sums);
    for_each([&](int r, int k, int64_t at, int) {
        const float factor = rsqrtf(squares[r] / (float)(c.pieces * N) + c.norm.eps);
        apply_gains(kept[r][k], factor, gains[k], c.norm.gain_dtype);
        if (!c.quantized.data) ((piece<T, N> *)c.out)[at] = kept[r][k];
    });
    if (!c.quantized.data) return;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (token + r >= end) break;
        if (r > 0) __syncthreads();
        quantize_token(c.quantized, token + r, kept[r], c.pieces, [](int) { return piece<T, N>(); });
    }
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

/* Blocks that have no token of their own send, too. */
template <class T, int PIECES>
static __global__ void __launch_bounds__(THREADS) in_words_kernel(const __grid_constant__ reduce_call<T> c)
{
    constexpr int N = 16 / sizeof(T);
    __shared__ struct warp_sums sums[2][1];
    const int words = 2 * c.tokens * c.pieces;
    raw_gains<N> gains[PIECES];
    let_next_start();
    load_all_gains<PIECES, T, N>(c, gains);
    wait_for_previous();
    const uint32_t call = begin_call(c.peers);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x)
        send(c.peers, call, i, ((const uint2 *)c.x)[i]);
    int parity = 0;
    for (int token = blockIdx.x; token < c.tokens; token += gridDim.x, parity ^= 1)
        finish_tokens<1, PIECES, T, N>(c, token, c.tokens, gains, sums[parity], [&](int of, int rank, int i) {
            return receive_two(c.peers, call, rank, 2 * (of * c.pieces + i));
        });
    __syncthreads();
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
    constexpr int N = 16 / sizeof(T), ROWS = MOST_PIECES / PIECES;
    __shared__ struct warp_sums sums[2][ROWS];
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
        for (int token = first; token < end; token += ROWS, parity ^= 1)
            finish_tokens<ROWS, PIECES, T, N>(c, token, end, gains, sums[parity], [&](int of, int rank, int i) {
                return __ldcv(rows_of(c.peers, c.peers.rank, pass, rank) + (of - first) * c.pieces + i);
            });
    }
    if (threadIdx.x == 0) own(c.peers)->row_passes[blockIdx.x] = pass - 1;
}

/* ---- launches ---- */

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
        cuda_launch_dependent(s, in_words_kernel<T, PIECES>,
                              {cuda_blocks_for(s, (int64_t)SENDERS * call->tokens), threads}, *call);
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
