/* decode_recurrence: convolution, recurrence and gated norm of decodes. A block computes a head of v of a chain of
 * entries, or where there are few sequences several blocks compute a slice of the head each.
 *
 * The head's state is copied to shared memory while the convolution is computed, and written to its slot from there, so
 * that it is read once, and written once for each entry. A thread copies what it computes itself: nobody else reads it.
 * What a block is going to read is brought to the L2 cache while the kernel before still runs.
 *
 * The blocks that share a head of q and k all compute its convolution, and read its old state. The block that reads it
 * last, which a counter tells, writes the new one. */
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/gains.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/recurrence/gated_norm.cuh"
#include "kernels/cuda/recurrence/recurrence.cuh"
#include "kernels/cuda/recurrence/short_conv.cuh"
#include "kernels/cuda/recurrence/staged_state.cuh"

enum { THREADS = 256, WIDTH = 4, MAX_SIZE = 256, MAX_CHANNELS = 3 * MAX_SIZE, MAX_K_HEADS = 128 };
enum { SLICES = 4, MIN_SLICE = 32 }; /* of a head; rows of a slice */

struct decode_call {
    struct short_conv_args conv;
    struct recurrence_args args;
    struct recurrence_params params;
    struct gated_norm_args norm;
    int32_t q_channel, k_channel, v_channel; /* the first of each */
    bool norms;                              /* else args.out is written */
    int32_t slices;                          /* of a head: its blocks */
    int32_t cluster;                         /* 1, or slices: they need each other's sums */
    uint32_t *counters;                      /* [num_seqs, num_k_heads]; NULL: each block has its own q and k */
};

/* What a block computes of a token. Every token has two barriers, between which channels and decays are read; results
 * are read behind the second. */
struct block_shared {
    alignas(16) float channels[MAX_CHANNELS]; /* q, k and v of the head */
    alignas(16) float decays[MAX_SIZE];
    float out[MAX_SIZE];
    struct warp_sums sums;
    float slice_sums[2];
    bool reads_last;
};

/* A block's chain and head, and its rows of the head's state: the first, and how many. `state`: the first row's place
 * in a slot. */
struct block_place {
    int32_t entry, head, k_head, v_first, v_count;
    int64_t state;
};

static __device__ __forceinline__ block_place place_of(const struct decode_call &call)
{
    const struct recurrence_params &params = call.params;
    const int32_t head = blockIdx.x / call.slices, v_count = params.v_size / call.slices;
    const int32_t v_first = (int32_t)blockIdx.x % call.slices * v_count;
    return {(int32_t)blockIdx.y,
            head,
            head / (params.num_v_heads / params.num_k_heads),
            v_first,
            v_count,
            ((int64_t)head * params.v_size + v_first) * params.k_size};
}

/* Which of all channels is the head's number c; -1: it has fewer. */
static __device__ __forceinline__ int32_t channel_at(const struct decode_call &call, const block_place &at, int32_t c)
{
    const int32_t k_size = call.params.k_size;
    if (c < k_size) return call.q_channel + at.k_head * k_size + c;
    if (c < 2 * k_size) return call.k_channel + at.k_head * k_size + c - k_size;
    if (c >= 2 * k_size + at.v_count) return -1;
    return call.v_channel + at.head * call.params.v_size + at.v_first + c - 2 * k_size;
}

/* Calls f(number, channel) for the thread's channels of the head: threadIdx.x and others THREADS apart. Of k_size up to
 * 8 * RECUR_ELEMENTS two are enough. */
template <int LANES, class Function>
static __device__ __forceinline__ void for_channels(const struct decode_call &call, const block_place &at, Function f)
{
#pragma unroll
    for (int j = 0; j < (LANES > 8 ? 3 : 2); j++) {
        const int32_t channel = channel_at(call, at, threadIdx.x + j * THREADS);
        if (channel >= 0) f(j, channel);
    }
}

/* The windows of a thread's channels, which stay from token to token. */
template <class T, int LANES> struct head_windows {
    float of[LANES > 8 ? 3 : 2][WIDTH - 1];

    __device__ __forceinline__ void load(const struct decode_call &call, const block_place &at, int32_t slot)
    {
        for_channels<LANES>(call, at, [&](int j, int32_t channel) {
            conv_channels<T, 1, WIDTH> conv;
            conv.load_state(call.conv, channel, slot);
#pragma unroll
            for (int i = 0; i < WIDTH - 1; i++) of[j][i] = conv.window[0][i];
        });
    }

    __device__ __forceinline__ void store(const struct decode_call &call, const block_place &at, int32_t slot,
                                          bool stores_shared) const
    {
        for_channels<LANES>(call, at, [&](int j, int32_t channel) {
            const bool shared = (int32_t)threadIdx.x + j * THREADS < 2 * call.params.k_size;
            conv_channels<T, 1, WIDTH> conv;
#pragma unroll
            for (int i = 0; i < WIDTH - 1; i++) conv.window[0][i] = of[j][i];
            if (stores_shared || !shared) conv.store_state(call.conv, channel, slot);
        });
    }
};

/* What a thread reads of a token before anything is computed of it. Weights are read again for each, so that they take
 * no registers meanwhile. */
template <class T, int LANES> struct token_inputs {
    conv_inputs<T, 1> x[LANES > 8 ? 3 : 2];
    float4 weights[LANES > 8 ? 3 : 2];
    float bias[LANES > 8 ? 3 : 2];
    T a, b, gate;  /* a: of DELTA_CHANNELS that of element threadIdx.x */
    float dt_bias; /* of DELTA_CHANNELS: the same */

    template <enum recurrence_kind KIND>
    __device__ __forceinline__ void load(const struct decode_call &call, const block_place &at, int64_t token)
    {
        const struct recurrence_args &args = call.args;
        const struct gated_norm_args &norm = call.norm;
        const int32_t i = threadIdx.x, k_size = call.params.k_size;
        for_channels<LANES>(call, at, [&](int j, int32_t channel) {
            x[j] = load_conv_inputs<T, 1>(call.conv, channel, token);
            weights[j] = ((const float4 *)call.conv.weight)[channel];
            bias[j] = call.conv.bias ? call.conv.bias[channel] : 0;
        });
        if (KIND == RECURRENCE_DELTA || KIND == RECURRENCE_SSD)
            a = ((const T *)args.a)[token * args.a_stride + at.head];
        if (KIND == RECURRENCE_DELTA_CHANNELS && i < k_size) {
            a = ((const T *)args.a)[token * args.a_stride + (int64_t)at.head * k_size + i];
            dt_bias = call.params.dt_bias[at.head * k_size + i];
        }
        if (KIND == RECURRENCE_DELTA || KIND == RECURRENCE_DELTA_CHANNELS)
            b = ((const T *)args.b)[token * args.b_stride + at.head];
        if (call.norms && i < at.v_count)
            gate = ((const T *)
                        norm.gate)[token * norm.gate_stride + (int64_t)at.head * call.params.v_size + at.v_first + i];
    }
};

/* The convolution of the head's channels, rounded as short_conv rounds. */
template <class T, int LANES>
static __device__ __forceinline__ void convolve(head_windows<T, LANES> &windows, const token_inputs<T, LANES> &in,
                                                const struct decode_call &call, const block_place &at, float *out)
{
    for_channels<LANES>(call, at, [&](int j, int32_t) {
        const float4 w = in.weights[j];
        conv_channels<T, 1, WIDTH> conv = {{{w.x, w.y, w.z, w.w}}, {in.bias[j]}};
        float y[1];
#pragma unroll
        for (int i = 0; i < WIDTH - 1; i++) conv.window[0][i] = windows.of[j][i];
        conv.step(call.conv, in.x[j], y);
#pragma unroll
        for (int i = 0; i < WIDTH - 1; i++) windows.of[j][i] = conv.window[0][i];
        out[threadIdx.x + j * THREADS] = to_float(from_float<T>(y[0]));
    });
}

/* What the convolution reads of q, k or v, by some warps, into the L2 cache. */
static __device__ __forceinline__ void prefetch_channels(const struct decode_call &call, const block_place &at,
                                                         int32_t source)
{
#if __CUDA_ARCH__ >= 900
    constexpr int FLOAT = sizeof(float);
    const int32_t k_size = call.params.k_size, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int32_t part = warp % 3, what = warp / 3;
    const int32_t firsts[3] = {call.q_channel + at.k_head * k_size, call.k_channel + at.k_head * k_size,
                               call.v_channel + at.head * call.params.v_size + at.v_first};
    const int32_t first = part == 0 ? firsts[0] : part == 1 ? firsts[1] : firsts[2];
    const int32_t count = part == 2 ? at.v_count : k_size;
    if (lane == 1 && what == 0 && call.conv.bias) bulk_prefetch(call.conv.bias + first, count * FLOAT);
    if (lane > 0) return;
    if (what == 0)
        bulk_prefetch(call.conv.weight + (int64_t)first * WIDTH, count * WIDTH * FLOAT);
    else if (what == 1 && source != STATE_SLOT_NONE)
        bulk_prefetch(call.conv.states + source * call.conv.state_stride + (int64_t)first * (WIDTH - 1),
                      count * (WIDTH - 1) * FLOAT);
#endif
}

/* What makes q and k as they are to be; and q k^T, of both. */
struct token_factors {
    float q, k, qk;
};

template <int LANES>
static __device__ __forceinline__ token_factors factors_of(const struct block_shared &shared,
                                                           const struct recurrence_params &params)
{
    token_vectors x;
    load_lane<LANES>(x.q, shared.channels, threadIdx.x % LANES, params.k_size);
    load_lane<LANES>(x.k, shared.channels + params.k_size, threadIdx.x % LANES, params.k_size);
    finish_vectors<LANES>(x, params);
    return {x.q_factor, x.k_factor, x.qk};
}

/* A thread's part of a row of the state, which is row r of the thread's. The pieces of q, k and decays that it is
 * multiplied by are read from shared memory at each use: registers are short. */
template <int LANES> struct staged_row {
    float values[RECUR_ELEMENTS];

    /* Calls f(index of an element, row[its column]) for all of the thread's elements; beyond the row there is 0. */
    template <class Function> static __device__ __forceinline__ void with(const float *row, int32_t k_size, Function f)
    {
#pragma unroll
        for (int p = 0; p < RECUR_PIECES; p++) {
            const int column = lane_column<LANES>(threadIdx.x % LANES, p);
            const float4 x = column < k_size ? *(const float4 *)(row + column) : float4{0, 0, 0, 0};
            f(4 * p, x.x), f(4 * p + 1, x.y), f(4 * p + 2, x.z), f(4 * p + 3, x.w);
        }
    }

    /* As state_rows' token: v is the row's, and so is the result. */
    template <enum recurrence_kind KIND>
    __device__ __forceinline__ float token(const struct block_shared &shared, int32_t k_size, const token_factors &x,
                                           const token_scalars &scalars, float skip, float v)
    {
        constexpr bool DELTA = KIND == RECURRENCE_DELTA || KIND == RECURRENCE_DELTA_CHANNELS;
        const float *q = shared.channels, *k = q + k_size;
        float sk = 0, sq = 0;
        if (KIND == RECURRENCE_DELTA_CHANNELS)
            with(shared.decays, k_size, [&](int i, float decay) { values[i] *= decay; });
        with(q, k_size, [&](int i, float element) { sq += values[i] * element; });
        if (DELTA) with(k, k_size, [&](int i, float element) { sk += values[i] * element; });
        if (DELTA) sk = warp_sum<LANES>(sk);
        sq = warp_sum<LANES>(sq);
        const float update = scalars.beta * (v - (DELTA ? scalars.decay * x.k * sk : 0));
        const float times_k = update * x.k;
        with(k, k_size, [&](int i, float element) { values[i] = scalars.decay * values[i] + times_k * element; });
        return scalars.decay * x.q * sq + update * x.qk + skip * v;
    }
};

/* A token's rows, from q, k and v in shared.channels to shared.out. to: the rows in the slot, or NULL. */
template <enum recurrence_kind KIND, int LANES>
static __device__ __forceinline__ void compute_rows(struct block_shared &shared,
                                                    const staged_state<LANES, THREADS> &state, float *to, bool keeps,
                                                    const struct decode_call &call, const block_place &at,
                                                    const token_scalars &scalars, float skip)
{
    constexpr int STEP = THREADS / LANES;
    const int32_t k_size = call.params.k_size;
    const token_factors x = factors_of<LANES>(shared, call.params);
    if (KIND == RECURRENCE_SSD) copy_async_wait_all(); /* of few rows, reading and writing had better not mix */
#pragma unroll 1
    for (int row = threadIdx.x / LANES, r = 0; row < at.v_count; row += STEP, r++) {
        asm volatile("" ::: "memory"); /* q, k and decays stay in shared memory */
        staged_row<LANES> own;
        if (KIND != RECURRENCE_SSD) state.wait(r);
        state.load(own.values, r);
        const float out = own.template token<KIND>(shared, k_size, x, scalars, skip, shared.channels[2 * k_size + row]);
        state.store(own.values, r, keeps, to ? to + (int64_t)row * k_size : NULL, k_size);
        if (threadIdx.x % LANES == 0) shared.out[row] = out;
    }
}

/* The blocks that read the state of a k head of a chain. */
static __device__ __forceinline__ uint32_t readers_of(const struct decode_call &call)
{
    return call.params.num_v_heads / call.params.num_k_heads * call.slices;
}

/* Thread 0 counts the block among those that have read the old state of their k head, and learns how many had before.
 * What the block has read has been used before the barrier in front of this, so it has arrived. */
static __device__ __forceinline__ uint32_t count_reader(const struct decode_call &call, const block_place &at)
{
    const uint32_t last = readers_of(call) - 1;
    if (!call.counters || threadIdx.x > 0) return last;
    return atomicInc(&call.counters[at.entry * call.params.num_k_heads + at.k_head], last);
}

/* The sum of x over the slices of a head, in the order in which block_sum adds the warps of a head of 128 elements. All
 * threads call. `slice_sum` is written again at the token after the next: until then all blocks have read it. */
static __device__ __forceinline__ float sum_slices(float x, int32_t cluster, float *slice_sum)
{
    float sums[SLICES];
    if (cluster == 1) return x;
    if (threadIdx.x == 0) *slice_sum = x;
    cluster_arrive();
    cluster_wait();
#pragma unroll
    for (int rank = 0; rank < SLICES; rank++) sums[rank] = cluster_load(cluster_address(slice_sum, rank));
    return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

/* The thread's gain, which does not depend on the token. */
static __device__ __forceinline__ raw_gains<1> load_gain(const struct decode_call &call, const block_place &at)
{
    const struct gated_norm_args &norm = call.norm;
    const int32_t in_head = at.v_first + threadIdx.x;
    raw_gains<1> gain = {};
    if (call.norms && norm.gain && threadIdx.x < at.v_count)
        gain = load_gains<1>(norm.gain, norm.gain_dtype,
                             norm.gain_size == norm.size ? at.head * call.params.v_size + in_head : in_head);
    return gain;
}

/* The element of the head that the thread writes: the recurrence's, or the gated norm's. All threads call. */
template <class T>
static __device__ __forceinline__ void write_result(const struct decode_call &call, const block_place &at,
                                                    struct block_shared &shared, T raw_gate,
                                                    const raw_gains<1> &raw_gain, int64_t token)
{
    const struct gated_norm_args &norm = call.norm;
    const bool writes = threadIdx.x < at.v_count;
    const int64_t element = token * norm.size + (int64_t)at.head * call.params.v_size + at.v_first + threadIdx.x;
    float x = writes ? to_float(from_float<T>(shared.out[threadIdx.x])) : 0;
    if (!call.norms) {
        if (writes) ((T *)call.args.out)[element] = from_float<T>(x);
        return;
    }
    const float gate = writes ? gate_factor<T>(norm.sigmoid, to_float(raw_gate)) : 1;
    if (norm.gate_first) x *= gate;
    if (norm.gain) {
        const float sum = sum_slices(block_sum(x * x, &shared.sums), call.cluster, &shared.slice_sums[token % 2]);
        float gain[1];
        convert_gains<1>(gain, raw_gain, norm.gain_dtype);
        x *= rsqrtf(sum / (float)call.params.v_size + norm.eps) * gain[0];
        if (norm.round_norm) x = to_float(from_float<T>(x));
    }
    if (writes) ((T *)norm.out)[element] = from_float<T>(norm.gate_first ? x : x * gate);
}

/* What is computed of a token before the barrier in front of its rows. */
template <class T, enum recurrence_kind KIND, int LANES>
static __device__ __forceinline__ void prepare_token(const struct decode_call &call, const block_place &at,
                                                     struct block_shared &shared, head_windows<T, LANES> &windows,
                                                     const token_inputs<T, LANES> &in, const head_params &head)
{
    convolve(windows, in, call, at, shared.channels);
    if (KIND == RECURRENCE_DELTA_CHANNELS && (int32_t)threadIdx.x < call.params.k_size)
        shared.decays[threadIdx.x] = expf(-head.rate * softplus(to_float(in.a) + in.dt_bias));
}

/* The barriers of a token: channels are written, results are written. */
template <class T, enum recurrence_kind KIND, int LANES>
static __device__ __forceinline__ uint32_t compute_token(const struct decode_call &call, const block_place &at,
                                                         struct block_shared &shared,
                                                         const staged_state<LANES, THREADS> &state, float *to,
                                                         const chain_entry &entry, const token_inputs<T, LANES> &in,
                                                         const head_params &head, const raw_gains<1> &gain, bool first)
{
    const token_scalars scalars = token_scalars_of<KIND>(
        call.params, head, KIND == RECURRENCE_DELTA || KIND == RECURRENCE_SSD ? to_float(in.a) : 0,
        KIND == RECURRENCE_DELTA || KIND == RECURRENCE_DELTA_CHANNELS ? to_float(in.b) : 0);
    __syncthreads();
    const uint32_t readers = first ? count_reader(call, at) : 0;
    compute_rows<KIND, LANES>(shared, state, to, entry.goes_on, call, at, scalars, head.skip);
    __syncthreads();
    write_result<T>(call, at, shared, in.gate, gain, entry.token);
    return readers;
}

/* source: of the first entry of the chain; STATE_CONTINUES: this is another one. */
template <class T, enum recurrence_kind KIND, int LANES>
static __device__ __forceinline__ void compute_entry(const struct decode_call &call, const block_place &at,
                                                     struct block_shared &shared,
                                                     const staged_state<LANES, THREADS> &state,
                                                     head_windows<T, LANES> &windows, const head_params &raw_head,
                                                     const raw_gains<1> &gain, const chain_entry &entry, int32_t source)
{
    const bool first = source != STATE_CONTINUES;
    float *states = call.args.states + at.state;
    float *to = entry.slot == STATE_SLOT_NONE ? NULL : states + entry.slot * call.args.state_stride;
    uint32_t readers = 0;
    token_inputs<T, LANES> in;
    if (entry.token >= 0) in.template load<KIND>(call, at, entry.token);
    if (first)
        state.start(source == STATE_SLOT_NONE ? NULL : states + source * call.args.state_stride, states, at.v_count,
                    call.params.k_size);
    if (entry.token >= 0) {
        const head_params head = finish_head<KIND>(raw_head);
        prepare_token<T, KIND>(call, at, shared, windows, in, head);
        readers = compute_token<T, KIND>(call, at, shared, state, to, entry, in, head, gain, first);
    } else {
        __threadfence(); /* what has been read was not used */
        __syncthreads();
        if (first) readers = count_reader(call, at);
        state.copy_to(to, at.v_count, call.params.k_size);
    }
    if (first) {
        if (threadIdx.x == 0) shared.reads_last = readers == readers_of(call) - 1;
        __syncthreads();
    }
    if (entry.slot != STATE_SLOT_NONE) windows.store(call, at, entry.slot, shared.reads_last);
}

/* Blocks of a multiprocessor, for which registers are given: states of SSD are smaller. */
static constexpr int blocks_of(enum recurrence_kind kind, int lanes)
{
    return lanes > 8 ? 2 : kind == RECURRENCE_SSD ? 4 : 3;
}

/* The grid is (slices of heads, entries). */
template <class T, enum recurrence_kind KIND, int LANES>
static __global__ void __launch_bounds__(THREADS, blocks_of(KIND, LANES))
    decode_kernel(const __grid_constant__ struct decode_call call)
{
    __shared__ struct block_shared shared;
    extern __shared__ float4 pieces[];
    const staged_state<LANES, THREADS> state = {pieces};
    const struct state_batch &batch = call.args.batch;
    const block_place at = place_of(call);
    let_next_start();
    const int32_t source = batch.sources[at.entry];
    chain_entry entry = load_entry(batch, at.entry);
    const head_params head = load_raw_head<KIND>(call.params, at.head);
    const raw_gains<1> gain = load_gain(call, at);
    if (source == STATE_CONTINUES) {
        wait_for_previous();
        return;
    }
    if (source != STATE_SLOT_NONE)
        state.prefetch(call.args.states + source * call.args.state_stride + at.state, at.v_count, call.params.k_size);
    prefetch_channels(call, at, source);
    wait_for_previous();
    head_windows<T, LANES> windows;
    windows.load(call, at, source);
#pragma unroll 1
    for (int32_t i = at.entry, first = source;; first = STATE_CONTINUES) {
        compute_entry<T, KIND, LANES>(call, at, shared, state, windows, head, gain, entry, first);
        if (!entry.goes_on) break;
        entry = load_entry(batch, ++i);
    }
    if (call.cluster == 1) return;
    cluster_arrive(); /* others may still read slice_sums */
    cluster_wait();
}

/* Channels from the start of conv.out; -1: that is not where x is. */
static int32_t channel_of(const struct short_conv_args &conv, const void *x, int64_t size)
{
    const int64_t bytes = (const char *)x - (const char *)conv.out, channel = bytes / dtype_size(conv.dtype);
    return bytes >= 0 && bytes % dtype_size(conv.dtype) == 0 && channel + size <= conv.channels ? (int32_t)channel : -1;
}

/* The blocks of a head: several where most multiprocessors would have none. Norms need a cluster. */
static int32_t slices_of(const struct cuda_state *s, const struct recurrence_args &args, bool cluster)
{
    const int32_t blocks = args.params->num_v_heads * args.batch.num_seqs, v_size = args.params->v_size;
    if (s->compute_capability < 90 || 2 * blocks > (cluster ? 1 : 2) * s->num_sms) return 1;
    if (v_size % (MIN_SLICE * SLICES) == 0) return SLICES;
    return !cluster && v_size % (MIN_SLICE * SLICES / 2) == 0 ? SLICES / 2 : 1;
}

/* Whether everything lies where pieces of 16 bytes begin. */
static bool is_aligned(const struct decode_call &call)
{
    const struct recurrence_args &r = call.args;
    const struct short_conv_args &conv = call.conv;
    return cuda_is_aligned(r.states) && r.state_stride % 4 == 0 && cuda_is_aligned(conv.states) &&
           conv.state_stride % 4 == 0 && cuda_is_aligned(conv.weight) && cuda_is_aligned(conv.bias) &&
           call.q_channel % 4 == 0 && call.k_channel % 4 == 0 && call.v_channel % 4 == 0;
}

/* What the kernel takes: what decode_call says of args, if true. */
static bool takes(const struct cuda_state *s, const struct decode_recurrence_args *args, struct decode_call *out)
{
    const struct recurrence_args &r = args->recurrence;
    const struct recurrence_params &p = *r.params;
    const struct gated_norm_args &norm = args->norm;
    const struct cuda_region *region = &s->regions[CUDA_USER_RECURRENCE];
    const int64_t k_size = (int64_t)p.num_k_heads * p.k_size, v_size = (int64_t)p.num_v_heads * p.v_size;
    const int64_t counters = r.batch.num_seqs * (int64_t)p.num_k_heads * (int64_t)sizeof(uint32_t);
    const bool counts = region->data && counters <= region->bytes;
    *out = {args->conv, r, p, norm};
    out->q_channel = channel_of(args->conv, r.q, k_size);
    out->k_channel = channel_of(args->conv, r.k, k_size);
    out->v_channel = channel_of(args->conv, r.v, v_size);
    out->norms = !norm.gain || norm.group_size == p.v_size;
    out->slices = counts ? slices_of(s, r, out->norms && norm.gain) : 1;
    out->cluster = out->norms && norm.gain ? out->slices : 1;
    out->counters = p.num_k_heads == p.num_v_heads && out->slices == 1 ? NULL : (uint32_t *)region->data;
    return out->q_channel >= 0 && out->k_channel >= 0 && out->v_channel >= 0 && norm.size == v_size &&
           args->conv.width == WIDTH && !args->conv.input_gate && !args->conv.output_gate && is_aligned(*out) &&
           (counts || p.num_k_heads == p.num_v_heads);
}

template <class T, enum recurrence_kind KIND, int LANES>
static bool launch(struct backend *b, const struct decode_call &call)
{
    typedef staged_state<LANES, THREADS> staged;
    const int32_t rows = (int32_t)cuda_div_up(call.params.v_size / call.slices, staged::STEP);
    const dim3 grid(call.params.num_v_heads * call.slices, call.args.batch.num_seqs);
    if (rows > STAGED_ROWS ||
        rows * staged::ROW_BYTES + (int)sizeof(struct block_shared) > cuda_state(b)->max_shared_bytes)
        return false;
    cuda_run_dependent(b, "decode_recurrence", decode_kernel<T, KIND, LANES>,
                       {grid, THREADS, rows * staged::ROW_BYTES, call.cluster}, call);
    return true;
}

bool cuda_decode_recurrence(struct backend *b, const struct decode_recurrence_args *args)
{
    struct decode_call call;
    bool launched = false;
    if (args->recurrence.batch.num_seqs <= 0 || !takes(cuda_state(b), args, &call)) return false;
    recurrence_dispatch(b, "decode_recurrence", args->conv.dtype, call.params, [&](auto zero, auto kind, auto lanes) {
        launched = launch<decltype(zero), decltype(kind)::value, decltype(lanes)::value>(b, call);
    });
    if (!launched) return false;
    if (!call.norms) cuda_gated_norm(b, &args->norm);
    return true;
}

int64_t cuda_recurrence_workspace(const struct workspace_query *query)
{
    return (int64_t)query->max_num_seqs * MAX_K_HEADS * (int64_t)sizeof(uint32_t);
}
