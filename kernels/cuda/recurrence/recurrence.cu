/* recurrence of decodes, token after token. A block computes some rows of the state of one head, which stay in
 * registers, for all tokens of a chain of entries: rows do not depend on each other. */
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/recurrence/recurrence.cuh"

enum { THREADS = 128, MAX_ROWS = 4 /* of a thread */ };

template <class T, int ROWS> struct token_inputs {
    token_pieces<T> of_head;
    T v[ROWS];
};

/* Where a block's rows are. */
struct block_rows {
    int32_t head, k_head, first, step, lane; /* the thread's rows: first, first + step, .. */
};

template <int LANES, int ROWS>
static __device__ __forceinline__ block_rows block_rows_of(const struct recurrence_params &params)
{
    constexpr int STEP = THREADS / LANES;
    const int32_t head = blockIdx.y;
    return {head, head / (params.num_v_heads / params.num_k_heads),
            (int32_t)(blockIdx.x * ROWS * STEP + threadIdx.x / LANES), STEP, (int32_t)(threadIdx.x % LANES)};
}

template <class T, enum recurrence_kind KIND, int LANES, int ROWS>
static __device__ __forceinline__ void load_token(token_inputs<T, ROWS> &in, const struct recurrence_call &call,
                                                  const block_rows &rows, int64_t token)
{
    const int32_t v_size = call.params.v_size;
    const T *v = (const T *)call.args.v + token * call.args.qkv_stride + (int64_t)rows.head * v_size;
    load_pieces<T, KIND, LANES>(in.of_head, call, rows.head, rows.k_head, rows.lane, token);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int row = rows.first + r * rows.step;
        in.v[r] = row < v_size ? v[row] : T();
    }
}

template <class T, enum recurrence_kind KIND, int LANES, int ROWS>
static __device__ __forceinline__ void compute_token(state_rows<LANES, ROWS> &state, const token_inputs<T, ROWS> &in,
                                                     const struct recurrence_call &call, const block_rows &rows,
                                                     const head_params &head, int64_t token)
{
    const struct recurrence_args &args = call.args;
    const struct recurrence_params &params = call.params;
    token_vectors x;
    float v[ROWS], out[ROWS];
    unpack_vectors<LANES>(x, in.of_head, params);
#pragma unroll
    for (int r = 0; r < ROWS; r++) v[r] = to_float(in.v[r]);
    const token_scalars scalars = token_scalars_of<KIND>(params, head, to_float(in.of_head.a), to_float(in.of_head.b));
    if constexpr (KIND == RECURRENCE_DELTA_CHANNELS) {
        const int64_t first = (int64_t)rows.head * params.k_size;
        lane_elements decays;
        load_decays<LANES>(decays, (const T *)args.a + token * args.a_stride + first, params.dt_bias + first, head.rate,
                           rows.lane, params.k_size);
        state.decay(decays);
    }
    state.template token<KIND>(x, scalars, head.skip, v, out);
    T *to = (T *)args.out + (token * params.num_v_heads + rows.head) * params.v_size;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int row = rows.first + r * rows.step;
        if (row < params.v_size && rows.lane == r % LANES) to[row] = from_float<T>(out[r]);
    }
}

/* The grid is recurrence_grid. The next token is read while one is computed. */
template <class T, enum recurrence_kind KIND, int LANES, int ROWS>
static __global__ void __launch_bounds__(THREADS) recurrence_kernel(const __grid_constant__ struct recurrence_call call)
{
    const struct state_batch &batch = call.args.batch;
    const struct recurrence_params &params = call.params;
    const block_rows rows = block_rows_of<LANES, ROWS>(params);
    const int64_t head_first = (int64_t)rows.head * params.v_size * params.k_size;
    int32_t i = blockIdx.z;
    let_next_start();
    const int32_t source = batch.sources[i];
    if (source == STATE_CONTINUES) {
        wait_for_previous();
        return;
    }
    const head_params head = load_head_params<KIND>(params, rows.head);
    wait_for_previous();
    state_rows<LANES, ROWS> state;
    token_inputs<T, ROWS> in = {}, next = {};
    const float *from = source == STATE_SLOT_NONE ? NULL : call.args.states + source * call.args.state_stride;
    state.load(from ? from + head_first : NULL, rows.first, rows.step, params.v_size, rows.lane, params.k_size);
    int32_t t = batch.query_start[i];
    const int32_t num_tokens = batch.query_start[batch.num_seqs];
    if (t < num_tokens) load_token<T, KIND, LANES, ROWS>(next, call, rows, t);
    do {
        for (const int32_t end = batch.query_start[i + 1]; t < end; t++) {
            in = next;
            if (t + 1 < num_tokens) load_token<T, KIND, LANES, ROWS>(next, call, rows, t + 1);
            compute_token<T, KIND, LANES, ROWS>(state, in, call, rows, head, t);
        }
        if (batch.slots[i] != STATE_SLOT_NONE)
            state.store(call.args.states + batch.slots[i] * call.args.state_stride + head_first, rows.first, rows.step,
                        params.v_size, rows.lane, params.k_size);
        i++;
    } while (i < batch.num_seqs && batch.sources[i] == STATE_CONTINUES);
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
        const dim3 large = recurrence_grid(call, MAX_ROWS * THREADS / LANES);
        const dim3 small = recurrence_grid(call, THREADS / LANES);
        if ((int)(large.x * large.y * large.z) < 2 * s->num_sms)
            cuda_launch_dependent(s, recurrence_kernel<T, KIND, LANES, 1>, {small, THREADS}, call);
        else
            cuda_launch_dependent(s, recurrence_kernel<T, KIND, LANES, MAX_ROWS>, {large, THREADS}, call);
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
