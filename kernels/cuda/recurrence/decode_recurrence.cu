/* decode_recurrence: convolution, recurrence and gated norm of decodes. A block computes a head of v of a chain of
 * entries. The head's state is in registers, so that it is read once, and written once for each entry.
 *
 * The heads of v that share a head of q and k all compute its convolution, and read its old state. The block that reads
 * it last, which a counter tells, writes the new one. */
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/gains.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/recurrence/gated_norm.cuh"
#include "kernels/cuda/recurrence/recurrence.cuh"
#include "kernels/cuda/recurrence/short_conv.cuh"

enum { THREADS = 256, WIDTH = 4, MAX_SIZE = 256, MAX_CHANNELS = 3 * MAX_SIZE, MAX_K_HEADS = 128 };
enum { CHANNELS = MAX_CHANNELS / THREADS }; /* of a thread */

struct decode_call {
    struct short_conv_args conv;
    struct recurrence_args args;
    struct recurrence_params params;
    struct gated_norm_args norm;
    int32_t q_channel, k_channel, v_channel; /* the first of each */
    bool norms;                              /* else args.out is written */
    uint32_t *counters;                      /* [num_seqs, num_k_heads]; NULL: each head of v has its own q and k */
};

/* What a block computes of a token before it touches the state. Two of these take turns, and a barrier for each token
 * is enough. */
struct token_buffer {
    alignas(16) float channels[MAX_CHANNELS]; /* q, k and v of the head */
    alignas(16) float decays[MAX_SIZE];
};

/* A block's chain and head. */
struct block_place {
    int32_t entry, head, k_head;
};

/* The convolution of the head's channels of q, k and v, one after the other. A thread computes channels threadIdx.x and
 * others THREADS apart; they are its own, in shared memory because registers are short. */
template <class T> struct head_conv {
    typedef conv_channels<T, 1, WIDTH> one;
    alignas(16) one conv[MAX_CHANNELS];

    /* Calls f(place among the head's channels, place among all, whether it is one of q or k). */
    template <class Function>
    static __device__ __forceinline__ void for_each(const struct decode_call &call, const block_place &at, Function f)
    {
        const int32_t k_size = call.params.k_size, v_size = call.params.v_size;
#pragma unroll
        for (int j = 0; j < CHANNELS; j++) {
            const int32_t c = threadIdx.x + j * THREADS;
            if (c < k_size)
                f(c, call.q_channel + at.k_head * k_size + c, true);
            else if (c < 2 * k_size)
                f(c, call.k_channel + at.k_head * k_size + c - k_size, true);
            else if (c < 2 * k_size + v_size)
                f(c, call.v_channel + at.head * v_size + c - 2 * k_size, false);
        }
    }

    __device__ __forceinline__ void load_weights(const struct decode_call &call, const block_place &at)
    {
        for_each(call, at, [&](int32_t c, int32_t channel, bool) { conv[c].load_weights(call.conv, channel); });
    }

    __device__ __forceinline__ void load_states(const struct decode_call &call, const block_place &at, int32_t slot)
    {
        for_each(call, at, [&](int32_t c, int32_t channel, bool) { conv[c].load_state(call.conv, channel, slot); });
    }

    __device__ __forceinline__ void store_states(const struct decode_call &call, const block_place &at, int32_t slot,
                                                 bool stores_shared) const
    {
        for_each(call, at, [&](int32_t c, int32_t channel, bool shared) {
            if (stores_shared || !shared) conv[c].store_state(call.conv, channel, slot);
        });
    }

    /* out: of the head's channels, rounded as short_conv rounds. */
    __device__ __forceinline__ void token(const struct decode_call &call, const block_place &at, int64_t token,
                                          float *out)
    {
        for_each(call, at, [&](int32_t c, int32_t channel, bool) {
            float y[1];
            one own = conv[c];
            own.step(call.conv, load_conv_inputs<T, 1>(call.conv, channel, token), y);
            conv[c] = own;
            out[c] = to_float(from_float<T>(y[0]));
        });
    }
};

template <class T> struct block_shared {
    head_conv<T> conv;
    struct token_buffer buffers[2];
    float out[2][MAX_SIZE];
    struct warp_sums sums[2];
    bool reads_last;
};

/* Whether this block is the last of those that share the k head to have read its old state. */
static __device__ __forceinline__ void count_reader(const struct decode_call &call, const block_place &at, bool *last)
{
    const uint32_t readers = call.params.num_v_heads / call.params.num_k_heads;
    if (threadIdx.x > 0) return;
    *last = true;
    if (!call.counters) return;
    __threadfence();
    *last = atomicInc(&call.counters[at.entry * call.params.num_k_heads + at.k_head], readers - 1) == readers - 1;
    __threadfence();
}

template <class T>
static __device__ __forceinline__ void compute_decays(const struct decode_call &call, const block_place &at, float rate,
                                                      int64_t token, float *decays)
{
    const int32_t i = threadIdx.x, size = call.params.k_size;
    if (i >= size) return;
    const int64_t column = (int64_t)at.head * size + i;
    const float a = to_float(((const T *)call.args.a)[token * call.args.a_stride + column]);
    decays[i] = expf(-rate * softplus(a + call.params.dt_bias[column]));
}

template <class T, enum recurrence_kind KIND>
static __device__ __forceinline__ token_scalars load_scalars(const struct decode_call &call, const block_place &at,
                                                             const head_params &head, int64_t token)
{
    float a = 0, b = 0;
    if (KIND == RECURRENCE_DELTA || KIND == RECURRENCE_SSD)
        a = to_float(((const T *)call.args.a)[token * call.args.a_stride + at.head]);
    if (KIND == RECURRENCE_DELTA || KIND == RECURRENCE_DELTA_CHANNELS)
        b = to_float(((const T *)call.args.b)[token * call.args.b_stride + at.head]);
    return token_scalars_of<KIND>(call.params, head, a, b);
}

/* The element of the head that the thread writes, which is x: the recurrence's, or the gated norm's. All threads call.
 */
template <class T>
static __device__ __forceinline__ void write_result(const struct decode_call &call, const block_place &at, float x,
                                                    int64_t token, struct warp_sums *sums)
{
    const struct gated_norm_args &norm = call.norm;
    const int32_t v_size = call.params.v_size, i = threadIdx.x;
    const int64_t element = (int64_t)at.head * v_size + i;
    float gate = 1;
    if (!call.norms) {
        if (i < v_size) ((T *)call.args.out)[token * norm.size + element] = from_float<T>(x);
        return;
    }
    x = i < v_size ? to_float(from_float<T>(x)) : 0;
    if (i < v_size) gate = gate_factor<T>(norm, to_float(((const T *)norm.gate)[token * norm.gate_stride + element]));
    if (norm.gate_first) x *= gate;
    if (norm.gain) {
        const float factor = rsqrtf(block_sum(x * x, sums) / (float)v_size + norm.eps);
        float gain[1];
        if (i >= v_size) return;
        convert_gains<1>(gain, load_gains<1>(norm.gain, norm.gain_dtype, norm.gain_size == norm.size ? element : i),
                         norm.gain_dtype);
        x *= factor * gain[0];
        if (norm.round_norm) x = to_float(from_float<T>(x));
    }
    if (i < v_size) ((T *)norm.out)[token * norm.size + element] = from_float<T>(norm.gate_first ? x : x * gate);
}

/* A token, whose number `parity` is even or odd. */
template <class T, enum recurrence_kind KIND, int LANES, int ROWS>
static __device__ __forceinline__ void compute_token(const struct decode_call &call, const block_place &at,
                                                     block_shared<T> &shared, state_rows<LANES, ROWS> &state,
                                                     const head_params &head, int64_t token, int parity)
{
    constexpr int STEP = THREADS / LANES;
    const int32_t k_size = call.params.k_size, v_size = call.params.v_size;
    const int32_t lane = threadIdx.x % LANES, first = threadIdx.x / LANES;
    struct token_buffer &buffer = shared.buffers[parity];
    shared.conv.token(call, at, token, buffer.channels);
    if (KIND == RECURRENCE_DELTA_CHANNELS) compute_decays<T>(call, at, head.rate, token, buffer.decays);
    const token_scalars scalars = load_scalars<T, KIND>(call, at, head, token);
    __syncthreads();
    token_vectors x;
    lane_elements decays;
    float v[ROWS], out[ROWS];
    load_lane<LANES>(x.q, buffer.channels, lane, k_size);
    load_lane<LANES>(x.k, buffer.channels + k_size, lane, k_size);
    finish_vectors<LANES>(x, call.params);
    if (KIND == RECURRENCE_DELTA_CHANNELS) {
        load_lane<LANES>(decays, buffer.decays, lane, k_size);
        state.decay(decays);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        v[r] = first + r * STEP < v_size ? buffer.channels[2 * k_size + first + r * STEP] : 0;
    state.template token<KIND>(x, scalars, head.skip, v, out);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (lane == r && first + r * STEP < v_size) shared.out[parity][first + r * STEP] = out[r];
    __syncthreads();
    write_result<T>(call, at, threadIdx.x < v_size ? shared.out[parity][threadIdx.x] : 0, token, &shared.sums[parity]);
}

/* The grid is (heads, entries). */
template <class T, enum recurrence_kind KIND, int LANES, int ROWS>
static __global__ void __launch_bounds__(THREADS, 2) decode_kernel(const __grid_constant__ struct decode_call call)
{
    constexpr int STEP = THREADS / LANES;
    __shared__ block_shared<T> shared;
    const struct state_batch &batch = call.args.batch;
    const struct recurrence_params &params = call.params;
    const int32_t head_index = blockIdx.x, lane = threadIdx.x % LANES, first = threadIdx.x / LANES;
    const block_place at = {(int32_t)blockIdx.y, head_index, head_index / (params.num_v_heads / params.num_k_heads)};
    const int64_t head_first = (int64_t)head_index * params.v_size * params.k_size;
    let_next_start();
    const int32_t source = batch.sources[at.entry];
    if (source == STATE_CONTINUES) {
        wait_for_previous();
        return;
    }
    const head_params head = load_head_params<KIND>(params, head_index);
    shared.conv.load_weights(call, at);
    wait_for_previous();
    state_rows<LANES, ROWS> state;
    shared.conv.load_states(call, at, source);
    const float *from = source == STATE_SLOT_NONE ? NULL : call.args.states + source * call.args.state_stride;
    state.load(from ? from + head_first : NULL, first, STEP, params.v_size, lane, params.k_size);
    __syncthreads();
    count_reader(call, at, &shared.reads_last);
    int32_t i = at.entry;
    do {
        for (int32_t t = batch.query_start[i]; t < batch.query_start[i + 1]; t++)
            compute_token<T, KIND, LANES, ROWS>(call, at, shared, state, head, t, t % 2);
        const int32_t slot = batch.slots[i++];
        if (slot == STATE_SLOT_NONE) continue;
        __syncthreads();
        state.store(call.args.states + slot * call.args.state_stride + head_first, first, STEP, params.v_size, lane,
                    params.k_size);
        shared.conv.store_states(call, at, slot, shared.reads_last);
    } while (i < batch.num_seqs && batch.sources[i] == STATE_CONTINUES);
}

/* Channels from the start of conv.out; -1: that is not where x is. */
static int32_t channel_of(const struct short_conv_args &conv, const void *x, int64_t size)
{
    const int64_t bytes = (const char *)x - (const char *)conv.out, channel = bytes / dtype_size(conv.dtype);
    return bytes >= 0 && bytes % dtype_size(conv.dtype) == 0 && channel + size <= conv.channels ? (int32_t)channel : -1;
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
    *out = {args->conv, r, p, norm};
    out->q_channel = channel_of(args->conv, r.q, k_size);
    out->k_channel = channel_of(args->conv, r.k, k_size);
    out->v_channel = channel_of(args->conv, r.v, v_size);
    out->norms = !norm.gain || norm.group_size == p.v_size;
    out->counters = p.num_k_heads == p.num_v_heads ? NULL : (uint32_t *)region->data;
    return out->q_channel >= 0 && out->k_channel >= 0 && out->v_channel >= 0 && norm.size == v_size &&
           args->conv.width == WIDTH && !args->conv.input_gate && !args->conv.output_gate &&
           cuda_is_aligned(r.states) && r.state_stride % 4 == 0 &&
           (p.num_k_heads == p.num_v_heads || (region->data && counters <= region->bytes));
}

template <class T, enum recurrence_kind KIND, int LANES>
static bool launch(const struct cuda_state *s, const struct decode_call &call)
{
    const int64_t rows = cuda_div_up(call.params.v_size, THREADS / LANES);
    const struct cuda_launch shape = {dim3(call.params.num_v_heads, call.args.batch.num_seqs), THREADS};
    if (rows > 4) return false;
    if (rows > 2)
        cuda_launch_dependent(s, decode_kernel<T, KIND, LANES, 4>, shape, call);
    else
        cuda_launch_dependent(s, decode_kernel<T, KIND, LANES, 2>, shape, call);
    return true;
}

bool cuda_decode_recurrence(struct backend *b, const struct decode_recurrence_args *args)
{
    struct decode_call call;
    bool launched = false;
    if (args->recurrence.batch.num_seqs <= 0 || !takes(cuda_state(b), args, &call)) return false;
    const struct cuda_state *s = cuda_use(b);
    recurrence_dispatch(b, "decode_recurrence", args->conv.dtype, call.params, [&](auto zero, auto kind, auto lanes) {
        launched = launch<decltype(zero), decltype(kind)::value, decltype(lanes)::value>(s, call);
    });
    if (!launched) return false;
    cuda_check_launch(b, "decode_recurrence");
    if (!call.norms) cuda_gated_norm(b, &args->norm);
    return true;
}

int64_t cuda_recurrence_workspace(const struct workspace_query *query)
{
    return (int64_t)query->max_num_seqs * MAX_K_HEADS * (int64_t)sizeof(uint32_t);
}
