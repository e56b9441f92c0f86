/* recurrence of decodes, token after token. A block computes some rows of the state of one head, which stay in shared
 * memory, for all tokens of a chain of entries: rows do not depend on each other. */
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/recurrence/staged_state.cuh"

enum { THREADS = 128, BLOCKS = 5 /* of a multiprocessor, for which registers are given */ };

template <class T> struct token_inputs {
    token_pieces<T> of_head;
    T v[STAGED_ROWS];
};

/* A block's rows of the state of a head: the first, and how many. `state`: the first row's place in a slot. */
struct block_rows {
    int32_t head, k_head, first, count;
    int64_t state;
};

static __device__ __forceinline__ block_rows block_rows_of(const struct recurrence_params &params, int32_t most)
{
    const int32_t head = blockIdx.y, first = blockIdx.x * most, left = params.v_size - first;
    return {head, head / (params.num_v_heads / params.num_k_heads), first, left < most ? left : most,
            ((int64_t)head * params.v_size + first) * params.k_size};
}

template <class T, enum recurrence_kind KIND, int LANES>
static __device__ __forceinline__ void load_token(token_inputs<T> &in, const struct recurrence_call &call,
                                                  const block_rows &rows, int64_t token)
{
    const T *v =
        (const T *)call.args.v + token * call.args.qkv_stride + (int64_t)rows.head * call.params.v_size + rows.first;
    load_pieces<T, KIND, LANES>(in.of_head, call, rows.head, rows.k_head, threadIdx.x % LANES, token);
#pragma unroll
    for (int r = 0; r < STAGED_ROWS; r++) {
        const int row = threadIdx.x / LANES + r * (THREADS / LANES);
        in.v[r] = row < rows.count ? v[row] : T();
    }
}

/* Uses in.v up. to: the first row's place in the slot, or NULL. keeps: another entry goes on from the state. */
template <class T, enum recurrence_kind KIND, int LANES>
static __device__ __forceinline__ void compute_token(const staged_state<LANES, THREADS> &state, float *to, bool keeps,
                                                     token_inputs<T> &in, const struct recurrence_call &call,
                                                     const block_rows &rows, const head_params &head, int64_t token)
{
    const struct recurrence_args &args = call.args;
    const struct recurrence_params &params = call.params;
    const int lane = threadIdx.x % LANES;
    T *results = (T *)args.out + (token * params.num_v_heads + rows.head) * params.v_size + rows.first;
    token_vectors x;
    lane_elements decays;
    unpack_vectors<LANES>(x, in.of_head, params);
    const token_scalars scalars = token_scalars_of<KIND>(params, head, to_float(in.of_head.a), to_float(in.of_head.b));
    if constexpr (KIND == RECURRENCE_DELTA_CHANNELS) {
        const int64_t first = (int64_t)rows.head * params.k_size;
        load_decays<LANES>(decays, (const T *)args.a + token * args.a_stride + first, params.dt_bias + first, head.rate,
                           lane, params.k_size);
    }
#pragma unroll 1
    for (int row = threadIdx.x / LANES, r = 0; row < rows.count; row += state.STEP, r++) {
        asm volatile("" ::: "memory"); /* a row after the other: registers are short */
        state_rows<LANES, 1> own;
        const float v[1] = {to_float(in.v[0])};
        float out[1];
        state.wait(r);
        state.load(own.values[0], r);
        if constexpr (KIND == RECURRENCE_DELTA_CHANNELS) own.decay(decays);
        own.template token<KIND>(x, scalars, head.skip, v, out);
        state.store(own.values[0], r, keeps, to ? to + (int64_t)row * params.k_size : NULL, params.k_size);
        if (lane == 0) results[row] = from_float<T>(out[0]);
#pragma unroll
        for (int j = 0; j + 1 < STAGED_ROWS; j++) in.v[j] = in.v[j + 1];
    }
}

/* first: the chain's state is read, `from` there. The token is read before it, because it takes longer. */
template <class T, enum recurrence_kind KIND, int LANES>
static __device__ __forceinline__ void compute_entry(const staged_state<LANES, THREADS> &state, const float *from,
                                                     bool first, const chain_entry &entry,
                                                     const struct recurrence_call &call, const block_rows &rows,
                                                     const head_params &head)
{
    const int32_t k_size = call.params.k_size;
    float *states = call.args.states + rows.state;
    float *to = entry.slot == STATE_SLOT_NONE ? NULL : states + entry.slot * call.args.state_stride;
    if (entry.token >= 0) {
        token_inputs<T> in;
        load_token<T, KIND, LANES>(in, call, rows, entry.token);
        if (first) state.start(from, states, rows.count, k_size);
        compute_token<T, KIND, LANES>(state, to, entry.goes_on, in, call, rows, head, entry.token);
    } else {
        if (first) state.start(from, states, rows.count, k_size);
        state.copy_to(to, rows.count, k_size);
    }
}

/* The grid is recurrence_grid of `most` rows. */
template <class T, enum recurrence_kind KIND, int LANES>
static __global__ void __launch_bounds__(THREADS, BLOCKS)
    recurrence_kernel(const __grid_constant__ struct recurrence_call call, int32_t most)
{
    extern __shared__ float4 pieces[];
    const staged_state<LANES, THREADS> state = {pieces};
    const struct state_batch &batch = call.args.batch;
    const struct recurrence_params &params = call.params;
    const block_rows rows = block_rows_of(params, most);
    int32_t i = blockIdx.z;
    let_next_start();
    const int32_t source = batch.sources[i];
    chain_entry entry = load_entry(batch, i);
    const head_params raw_head = load_raw_head<KIND>(params, rows.head);
    if (source == STATE_CONTINUES) {
        wait_for_previous();
        return;
    }
    float *states = call.args.states + rows.state;
    const float *from = source == STATE_SLOT_NONE ? NULL : states + source * call.args.state_stride;
    if (from) state.prefetch(from, rows.count, params.k_size);
    wait_for_previous();
    const head_params head = finish_head<KIND>(raw_head);
    compute_entry<T, KIND, LANES>(state, from, true, entry, call, rows, head);
    while (entry.goes_on) {
        entry = load_entry(batch, ++i);
        compute_entry<T, KIND, LANES>(state, NULL, false, entry, call, rows, head);
    }
}

template <class T> static bool is_aligned(const struct recurrence_args *args)
{
    const uintptr_t pieces = (uintptr_t)args->q | (uintptr_t)args->k;
    return pieces % (4 * sizeof(T)) == 0 && args->qkv_stride % 4 == 0 && cuda_is_aligned(args->states) &&
           args->state_stride % 4 == 0;
}

/* Many blocks of few rows where there are few sequences. */
static void recur_decodes(struct backend *b, const struct recurrence_call &call)
{
    const struct cuda_state *s = cuda_state(b);
    recurrence_dispatch(b, "recurrence", call.args.dtype, call.params, [&](auto zero, auto kind, auto lanes) {
        typedef decltype(zero) T;
        constexpr enum recurrence_kind KIND = decltype(kind)::value;
        constexpr int LANES = decltype(lanes)::value;
        typedef staged_state<LANES, THREADS> staged;
        const dim3 large = recurrence_grid(call, STAGED_ROWS * staged::STEP);
        const int rows = (int)(large.x * large.y * large.z) < 2 * s->num_sms ? 1 : STAGED_ROWS;
        cuda_launch_dependent(s, recurrence_kernel<T, KIND, LANES>,
                              {recurrence_grid(call, rows * staged::STEP), THREADS, rows * staged::ROW_BYTES}, call,
                              rows * staged::STEP);
    });
}

void cuda_recurrence(struct backend *b, const struct recurrence_args *args)
{
    const struct state_batch &batch = args->batch;
    struct recurrence_call call = {*args, *args->params};
    bool aligned = false;
    cuda_dispatch(b, "recurrence", args->dtype, [&](auto zero) { aligned = is_aligned<decltype(zero)>(args); });
    if (!aligned) {
        cuda_fail(b, "recurrence: q, k or the states are not aligned");
        return;
    }
    cuda_use(b);
    call.args.batch.num_seqs = batch.num_decodes;
    if (batch.num_decodes > 0) recur_decodes(b, call);
    call.args.batch = prefills_of(batch);
    if (call.args.batch.num_seqs > 0 && !cuda_recur_chunks(b, call)) cuda_recur_tiles(b, call);
    cuda_check_launch(b, "recurrence");
}
