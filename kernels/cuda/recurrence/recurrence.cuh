/* Rows of a head's state in registers, and what a token does to them.
 *
 * A row's elements lie in LANES neighbouring threads, RECUR_ELEMENTS in each: piece p of lane j is elements
 * 4 (j + p LANES) .. + 3, so that the lanes of a row read neighbouring 16 bytes. Rows are as long as LANES allows, or
 * shorter. Other rows of the head lie in other threads, or a thread has several. */
#ifndef QUIRE_KERNELS_CUDA_RECURRENCE_RECURRENCE_CUH
#define QUIRE_KERNELS_CUDA_RECURRENCE_RECURRENCE_CUH

#include "kernels/cuda/recurrence/batch.cuh"
#include "kernels/cuda/warp.cuh"

enum { RECUR_PIECES = 4, RECUR_ELEMENTS = 4 * RECUR_PIECES };

/* struct recurrence_args, for the device. */
struct recurrence_call {
    struct recurrence_args args;
    struct recurrence_params params;
};

/* Of entries with many tokens, none of which goes on from the one before it. recurrence_tiles.cu: from token to token.
 * recurrence_chunks.cu: on tensor cores; false: it does not take the call, and did nothing. */
void cuda_recur_tiles(struct backend *b, const struct recurrence_call &call);
bool cuda_recur_chunks(struct backend *b, const struct recurrence_call &call);

static __device__ __forceinline__ float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

/* What a head's decay and step are made of besides the token. */
struct head_params {
    float rate, dt_bias, skip; /* rate: exp(a_log), of FIXED a_log */
};

/* Nothing is computed of them yet, so that nothing waits for them: rate is a_log. */
template <enum recurrence_kind KIND>
static __device__ __forceinline__ head_params load_raw_head(const struct recurrence_params &params, int32_t head)
{
    head_params out = {params.a_log[head], 0, 0};
    if (KIND == RECURRENCE_DELTA || KIND == RECURRENCE_SSD) out.dt_bias = params.dt_bias[head];
    if (params.skip) out.skip = params.skip[head];
    return out;
}

template <enum recurrence_kind KIND> static __device__ __forceinline__ head_params finish_head(const head_params &raw)
{
    return {KIND == RECURRENCE_FIXED ? raw.rate : expf(raw.rate), raw.dt_bias, raw.skip};
}

template <enum recurrence_kind KIND>
static __device__ __forceinline__ head_params load_head_params(const struct recurrence_params &params, int32_t head)
{
    return finish_head<KIND>(load_raw_head<KIND>(params, head));
}

/* The decay of a token, where a head has one, or its logarithm, and its beta. */
struct token_scalars {
    float decay, beta;
};

template <enum recurrence_kind KIND>
static __device__ __forceinline__ token_scalars token_logarithms_of(const struct recurrence_params &params,
                                                                    const head_params &head, float a, float b)
{
    token_scalars out = {0, 1};
    if (KIND == RECURRENCE_DELTA || KIND == RECURRENCE_DELTA_CHANNELS) out.beta = params.beta_factor / (1 + expf(-b));
    if (KIND == RECURRENCE_DELTA) out.decay = -head.rate * softplus(a + head.dt_bias);
    if (KIND == RECURRENCE_SSD) {
        out.beta = fminf(fmaxf(softplus(a + head.dt_bias), params.beta_min), params.beta_max);
        out.decay = -head.rate * out.beta;
    }
    if (KIND == RECURRENCE_FIXED) out.decay = -head.rate;
    return out;
}

template <enum recurrence_kind KIND>
static __device__ __forceinline__ token_scalars token_scalars_of(const struct recurrence_params &params,
                                                                 const head_params &head, float a, float b)
{
    const token_scalars x = token_logarithms_of<KIND>(params, head, a, b);
    return {expf(x.decay), x.beta};
}

/* The thread's elements of a row of q, k or the decays. */
struct lane_elements {
    float values[RECUR_ELEMENTS];
};

/* The column of the first element of the lane's piece p. */
template <int LANES> static __device__ __forceinline__ int lane_column(int lane, int p)
{
    return 4 * (lane + p * LANES);
}

template <int LANES, class T>
static __device__ __forceinline__ void load_lane(lane_elements &out, const T *row, int lane, int32_t size)
{
#pragma unroll
    for (int p = 0; p < RECUR_PIECES; p++) {
        const int column = lane_column<LANES>(lane, p);
        piece<T, 4> x = {};
        if (column < size) x = *(const piece<T, 4> *)(row + column);
#pragma unroll
        for (int i = 0; i < 4; i++) out.values[4 * p + i] = to_float(x.values[i]);
    }
}

/* The sums of squares, or of products, over a whole row. */
template <int LANES> static __device__ __forceinline__ float lanes_dot(const lane_elements &x, const lane_elements &y)
{
    float sum = 0;
#pragma unroll
    for (int i = 0; i < RECUR_ELEMENTS; i++) sum += x.values[i] * y.values[i];
    return warp_sum<LANES>(sum);
}

/* q and k of a token, not normed, and what makes them so. */
struct token_vectors {
    lane_elements q, k;
    float q_factor, k_factor, qk; /* qk: q k^T, of both as they are to be */
};

template <int LANES>
static __device__ __forceinline__ void finish_vectors(token_vectors &x, const struct recurrence_params &params)
{
    x.q_factor = params.scale, x.k_factor = 1;
    if (params.norm_qk) {
        x.q_factor *= rsqrtf(lanes_dot<LANES>(x.q, x.q) + 1e-6f);
        x.k_factor = rsqrtf(lanes_dot<LANES>(x.k, x.k) + 1e-6f);
    }
    x.qk = x.q_factor * x.k_factor * lanes_dot<LANES>(x.q, x.k);
}

/* The lane's elements of q and k of a token, as they lie in memory, and what else a thread reads of a token before
 * anything is computed of it. */
template <class T> struct token_pieces {
    piece<T, 4> q[RECUR_PIECES], k[RECUR_PIECES];
    T a, b;
};

template <class T, enum recurrence_kind KIND, int LANES>
static __device__ __forceinline__ void load_pieces(token_pieces<T> &in, const struct recurrence_call &call,
                                                   int32_t head, int32_t k_head, int lane, int64_t token)
{
    const struct recurrence_args &args = call.args;
    const int64_t first = token * args.qkv_stride + (int64_t)k_head * call.params.k_size;
#pragma unroll
    for (int p = 0; p < RECUR_PIECES; p++) {
        const int column = lane_column<LANES>(lane, p);
        in.q[p] = in.k[p] = {};
        if (column >= call.params.k_size) continue;
        in.q[p] = *(const piece<T, 4> *)((const T *)args.q + first + column);
        in.k[p] = *(const piece<T, 4> *)((const T *)args.k + first + column);
    }
    if (KIND == RECURRENCE_DELTA || KIND == RECURRENCE_SSD) in.a = ((const T *)args.a)[token * args.a_stride + head];
    if (KIND == RECURRENCE_DELTA || KIND == RECURRENCE_DELTA_CHANNELS)
        in.b = ((const T *)args.b)[token * args.b_stride + head];
}

template <int LANES, class T>
static __device__ __forceinline__ void unpack_vectors(token_vectors &x, const token_pieces<T> &in,
                                                      const struct recurrence_params &params)
{
#pragma unroll
    for (int i = 0; i < RECUR_ELEMENTS; i++) {
        x.q.values[i] = to_float(in.q[i / 4].values[i % 4]);
        x.k.values[i] = to_float(in.k[i / 4].values[i % 4]);
    }
    finish_vectors<LANES>(x, params);
}

/* The decays of DELTA_CHANNELS. a and dt_bias are those of the head. */
template <int LANES, class T>
static __device__ __forceinline__ void load_decays(lane_elements &out, const T *a, const float *dt_bias, float rate,
                                                   int lane, int32_t size)
{
#pragma unroll
    for (int i = 0; i < RECUR_ELEMENTS; i++) {
        const int column = lane_column<LANES>(lane, i / 4) + i % 4;
        out.values[i] = column < size ? expf(-rate * softplus(to_float(a[column]) + dt_bias[column])) : 1;
    }
}

/* ROWS rows of a state: `first`, and others `step` apart, as far as they are below `end`. */
template <int LANES, int ROWS> struct state_rows {
    float values[ROWS][RECUR_ELEMENTS];

    __device__ __forceinline__ void load(const float *state, int first, int step, int end, int lane, int32_t k_size)
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int p = 0; p < RECUR_PIECES; p++) {
                const int column = lane_column<LANES>(lane, p), row = first + r * step;
                float4 x = {0, 0, 0, 0};
                if (state && row < end && column < k_size)
                    x = *(const float4 *)(state + (int64_t)row * k_size + column);
                *(float4 *)&values[r][4 * p] = x;
            }
    }

    __device__ __forceinline__ void store(float *state, int first, int step, int end, int lane, int32_t k_size) const
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int p = 0; p < RECUR_PIECES; p++) {
                const int column = lane_column<LANES>(lane, p), row = first + r * step;
                if (row < end && column < k_size)
                    *(float4 *)(state + (int64_t)row * k_size + column) = *(const float4 *)&values[r][4 * p];
            }
    }

    /* Computes a token. v: of the rows; out: the results of the rows, in all of their lanes. With DELTA_CHANNELS the
     * state is decayed before.
     *
     * S q after the update is decay * S q + update * (q k), so that both sums over a row are of the old S. */
    template <enum recurrence_kind KIND>
    __device__ __forceinline__ void token(const token_vectors &x, const token_scalars &scalars, float skip,
                                          const float (&v)[ROWS], float (&out)[ROWS])
    {
        constexpr bool DELTA = KIND == RECURRENCE_DELTA || KIND == RECURRENCE_DELTA_CHANNELS;
        float sk[ROWS], sq[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            sk[r] = sq[r] = 0;
#pragma unroll
            for (int i = 0; i < RECUR_ELEMENTS; i++) {
                if (DELTA) sk[r] += values[r][i] * x.k.values[i];
                sq[r] += values[r][i] * x.q.values[i];
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (DELTA) sk[r] = warp_sum<LANES>(sk[r]);
            sq[r] = warp_sum<LANES>(sq[r]);
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const float update = scalars.beta * (v[r] - (DELTA ? scalars.decay * x.k_factor * sk[r] : 0));
            out[r] = scalars.decay * x.q_factor * sq[r] + update * x.qk + skip * v[r];
            const float times_k = update * x.k_factor;
#pragma unroll
            for (int i = 0; i < RECUR_ELEMENTS; i++)
                values[r][i] = scalars.decay * values[r][i] + times_k * x.k.values[i];
        }
    }

    __device__ __forceinline__ void decay(const lane_elements &decays)
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int i = 0; i < RECUR_ELEMENTS; i++) values[r][i] *= decays.values[i];
    }
};

/* Calls f with the lanes of a row of k_size elements, as a constant. */
template <class Function> static inline void recurrence_lanes(int32_t k_size, Function f)
{
    if (k_size <= 4 * RECUR_ELEMENTS)
        f(std::integral_constant<int, 4>());
    else if (k_size <= 8 * RECUR_ELEMENTS)
        f(std::integral_constant<int, 8>());
    else
        f(std::integral_constant<int, 16>());
}

/* Calls f with the kind, as a constant. */
template <class Function> static inline void recurrence_kinds(enum recurrence_kind kind, Function f)
{
    switch (kind) {
    case RECURRENCE_DELTA:
        f(std::integral_constant<enum recurrence_kind, RECURRENCE_DELTA>());
        break;
    case RECURRENCE_DELTA_CHANNELS:
        f(std::integral_constant<enum recurrence_kind, RECURRENCE_DELTA_CHANNELS>());
        break;
    case RECURRENCE_SSD:
        f(std::integral_constant<enum recurrence_kind, RECURRENCE_SSD>());
        break;
    case RECURRENCE_FIXED:
        f(std::integral_constant<enum recurrence_kind, RECURRENCE_FIXED>());
        break;
    }
}

/* Calls f with zero of the type, the kind and the lanes. */
template <class Function>
static inline void recurrence_dispatch(struct backend *b, const char *operation, enum dtype dtype,
                                       const struct recurrence_params &params, Function f)
{
    cuda_dispatch(b, operation, dtype, [&](auto zero) {
        recurrence_kinds(params.kind, [&](auto kind) {
            recurrence_lanes(params.k_size, [&](auto lanes) { f(zero, kind, lanes); });
        });
    });
}

/* The grid of kernels whose blocks have `rows` rows of the state of a head: (slices of rows, heads, entries). */
static inline dim3 recurrence_grid(const struct recurrence_call &call, int rows)
{
    const struct recurrence_params &params = call.params;
    return dim3((unsigned)cuda_div_up(params.v_size, rows), params.num_v_heads, call.args.batch.num_seqs);
}

#endif
