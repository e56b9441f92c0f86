/* recurrence of prefills, in tiles of tokens. A block computes some rows of the state of one head, which stay in
 * registers, for all tokens of an entry.
 *
 * First the LANES threads of a group prepare one token of the tile for all: they norm q and k, and compute the decay,
 * beta and q k^T. Then every group goes through the tile with its own rows, while what the next tile is made of is on
 * its way. */
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/recurrence/recurrence.cuh"

enum { THREADS = 128, ROWS = 2 };

/* What the block knows of a tile's tokens. `v` becomes the results: a group alone reads and writes its rows. */
template <int LANES> struct tile_shared {
    static constexpr int TOKENS = THREADS / LANES, NUM_ROWS = ROWS * THREADS / LANES;
    alignas(16) float q[TOKENS][LANES * RECUR_ELEMENTS], k[TOKENS][LANES * RECUR_ELEMENTS];
    float v[TOKENS][NUM_ROWS];
    alignas(16) float4 scalars[TOKENS]; /* decay, beta, q k^T */
};
template <int LANES> struct tile_decays {
    alignas(16) float values[THREADS / LANES][LANES * RECUR_ELEMENTS];
};

/* Where a thread and its block are. */
struct tile_place {
    int32_t head, k_head, first_row, group, lane;
};

/* Of the token that a group prepares. */
template <class T, int LANES> struct tile_inputs {
    static constexpr int OF_V = tile_shared<LANES>::NUM_ROWS / LANES;
    token_pieces<T> of_head;
    T v[OF_V];
};

template <class T, enum recurrence_kind KIND, int LANES>
static __device__ __forceinline__ void load_inputs(tile_inputs<T, LANES> &in, const struct recurrence_call &call,
                                                   const tile_place &at, int32_t start, int32_t end)
{
    const int64_t token = start + at.group;
    const T *v = (const T *)call.args.v + token * call.args.qkv_stride + (int64_t)at.head * call.params.v_size;
    if (token >= end) return;
    load_pieces<T, KIND, LANES>(in.of_head, call, at.head, at.k_head, at.lane, token);
#pragma unroll
    for (int i = 0; i < in.OF_V; i++) {
        const int row = at.first_row + at.lane + i * LANES;
        in.v[i] = row < call.params.v_size ? v[row] : T();
    }
}

template <int LANES>
static __device__ __forceinline__ void store_lane(float *row, const lane_elements &x, int lane, float factor)
{
#pragma unroll
    for (int p = 0; p < RECUR_PIECES; p++) {
        const float *from = &x.values[4 * p];
        *(float4 *)(row + lane_column<LANES>(lane, p)) =
            make_float4(from[0] * factor, from[1] * factor, from[2] * factor, from[3] * factor);
    }
}

/* Prepares the group's token; what follows the last token of the entry is not used. */
template <class T, enum recurrence_kind KIND, int LANES>
static __device__ __forceinline__ void prepare(tile_shared<LANES> &tile, tile_decays<LANES> *decays,
                                               const tile_inputs<T, LANES> &in, const struct recurrence_call &call,
                                               const tile_place &at, const head_params &head, int32_t start,
                                               int32_t end)
{
    token_vectors x;
    unpack_vectors<LANES>(x, in.of_head, call.params);
    const token_scalars scalars =
        token_scalars_of<KIND>(call.params, head, to_float(in.of_head.a), to_float(in.of_head.b));
    store_lane<LANES>(tile.q[at.group], x.q, at.lane, x.q_factor);
    store_lane<LANES>(tile.k[at.group], x.k, at.lane, x.k_factor);
    if (at.lane == 0) tile.scalars[at.group] = make_float4(scalars.decay, scalars.beta, x.qk, 0);
#pragma unroll
    for (int i = 0; i < in.OF_V; i++) tile.v[at.group][at.lane + i * LANES] = to_float(in.v[i]);
    if constexpr (KIND == RECURRENCE_DELTA_CHANNELS) {
        const int64_t first = (int64_t)at.head * call.params.k_size, token = start + at.group;
        lane_elements of_token;
        if (token >= end) return;
        load_decays<LANES>(of_token, (const T *)call.args.a + token * call.args.a_stride + first,
                           call.params.dt_bias + first, head.rate, at.lane, call.params.k_size);
        store_lane<LANES>(decays->values[at.group], of_token, at.lane, 1);
    }
}

/* Goes through the tile with the group's rows. */
template <enum recurrence_kind KIND, int LANES>
static __device__ __forceinline__ void compute_tile(state_rows<LANES, ROWS> &state, tile_shared<LANES> &tile,
                                                    const tile_decays<LANES> *decays, const tile_place &at, float skip,
                                                    int num_tokens)
{
    constexpr int STEP = THREADS / LANES, SIZE = LANES * RECUR_ELEMENTS;
    for (int t = 0; t < num_tokens; t++) {
        token_vectors x;
        float v[ROWS], out[ROWS];
        load_lane<LANES>(x.q, tile.q[t], at.lane, SIZE);
        load_lane<LANES>(x.k, tile.k[t], at.lane, SIZE);
        const float4 scalars = tile.scalars[t];
        x.q_factor = x.k_factor = 1, x.qk = scalars.z;
#pragma unroll
        for (int r = 0; r < ROWS; r++) v[r] = tile.v[t][at.group + r * STEP];
        if constexpr (KIND == RECURRENCE_DELTA_CHANNELS) {
            lane_elements of_token;
            load_lane<LANES>(of_token, decays->values[t], at.lane, SIZE);
            state.decay(of_token);
        }
        state.template token<KIND>(x, {scalars.x, scalars.y}, skip, v, out);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            if (at.lane == r) tile.v[t][at.group + r * STEP] = out[r];
    }
}

/* The group writes the results of the token that it prepared. */
template <class T, int LANES>
static __device__ __forceinline__ void write_results(const struct recurrence_call &call, const tile_place &at,
                                                     const tile_shared<LANES> &tile, int32_t start, int32_t end)
{
    const int64_t token = start + at.group;
    T *to = (T *)call.args.out + (token * call.params.num_v_heads + at.head) * call.params.v_size;
    if (token >= end) return;
#pragma unroll
    for (int i = 0; i < tile.NUM_ROWS / LANES; i++) {
        const int row = at.lane + i * LANES;
        if (at.first_row + row < call.params.v_size) to[at.first_row + row] = from_float<T>(tile.v[at.group][row]);
    }
}

/* The grid is recurrence_grid. */
template <class T, enum recurrence_kind KIND, int LANES>
static __global__ void __launch_bounds__(THREADS) tiles_kernel(const __grid_constant__ struct recurrence_call call)
{
    constexpr int TOKENS = tile_shared<LANES>::TOKENS, NUM_ROWS = tile_shared<LANES>::NUM_ROWS;
    __shared__ tile_shared<LANES> tile;
    __shared__ std::conditional_t<KIND == RECURRENCE_DELTA_CHANNELS, tile_decays<LANES>, float> decay_memory;
    tile_decays<LANES> *decays = KIND == RECURRENCE_DELTA_CHANNELS ? (tile_decays<LANES> *)&decay_memory : NULL;
    const struct state_batch &batch = call.args.batch;
    const struct recurrence_params &params = call.params;
    const int32_t head_index = blockIdx.y;
    const tile_place at = {head_index, head_index / (params.num_v_heads / params.num_k_heads),
                           (int32_t)blockIdx.x * NUM_ROWS, (int32_t)threadIdx.x / LANES, (int32_t)threadIdx.x % LANES};
    const int64_t head_first = (int64_t)head_index * params.v_size * params.k_size;
    let_next_start();
    const head_params head = load_head_params<KIND>(params, head_index);
    const int32_t source = batch.sources[blockIdx.z], slot = batch.slots[blockIdx.z];
    const int32_t begin = batch.query_start[blockIdx.z], end = batch.query_start[blockIdx.z + 1];
    wait_for_previous();
    state_rows<LANES, ROWS> state;
    tile_inputs<T, LANES> in = {};
    const float *from = source == STATE_SLOT_NONE ? NULL : call.args.states + source * call.args.state_stride;
    load_inputs<T, KIND, LANES>(in, call, at, begin, end);
    state.load(from ? from + head_first : NULL, at.first_row + at.group, TOKENS, params.v_size, at.lane, params.k_size);
    for (int32_t start = begin; start < end; start += TOKENS) {
        prepare<T, KIND, LANES>(tile, decays, in, call, at, head, start, end);
        __syncthreads();
        load_inputs<T, KIND, LANES>(in, call, at, start + TOKENS, end);
        compute_tile<KIND, LANES>(state, tile, decays, at, head.skip, end - start < TOKENS ? end - start : TOKENS);
        __syncthreads();
        write_results<T, LANES>(call, at, tile, start, end);
    }
    if (slot != STATE_SLOT_NONE)
        state.store(call.args.states + slot * call.args.state_stride + head_first, at.first_row + at.group, TOKENS,
                    params.v_size, at.lane, params.k_size);
}

void cuda_recur_tiles(struct backend *b, const struct recurrence_call &call)
{
    recurrence_dispatch(b, "recurrence", call.args.dtype, call.params, [&](auto zero, auto kind, auto lanes) {
        constexpr int LANES = decltype(lanes)::value;
        cuda_launch_dependent(cuda_state(b), tiles_kernel<decltype(zero), decltype(kind)::value, LANES>,
                              {recurrence_grid(call, tile_shared<LANES>::NUM_ROWS), THREADS}, call);
    });
}
