/* The results and states of the chunks of a round. A warp has 16 rows of a head's state, which stay in its registers as
 * sums of the tensor cores: rows do not depend on each other. In its products rows of the state are those of A and
 * tokens the columns, so that a result has the layout that it needs as the A of the next product. What the warps of a
 * block multiply by is in shared memory. */
#include "kernels/cuda/recurrence/chunks.cuh"

enum { MAX_WARPS = 4 };

/* What a block reads of a chunk. */
template <int COLUMNS, int WARPS> struct chunk_stage {
    static constexpr int ROWS = 16 * WARPS, V_PITCH = ROWS + 8; /* ROWS: of the state */
    alignas(128) uint16_t q[CHUNK * COLUMNS], k[CHUNK * COLUMNS];
    uint16_t inverse[CHUNK * CHUNK], scores[CHUNK * CHUNK];
    uint16_t v[CHUNK * V_PITCH];
    struct chunk_factors factors;
};

/* Where a block and a warp are. */
struct states_place {
    int32_t head, k_head, entry;
    int32_t block_row, row, lane; /* rows of the state: the first of the block, and of the warp */
};

/* The chunks that a block computes: chunks [first, end) of the entry, whose tokens begin at `begin`. */
struct states_range {
    int32_t first, end, begin, num_tokens;
    bool goes_on, is_cut; /* the entry has chunks in earlier rounds, in later rounds */

    __device__ __forceinline__ int32_t tokens_of(int32_t chunk) const { return min(CHUNK, num_tokens - chunk * CHUNK); }
};

/* False: no chunk of the entry is of this round. */
static __device__ __forceinline__ bool find_range(const struct chunk_call &call, int32_t entry, states_range &out)
{
    const struct state_batch &batch = call.of.args.batch;
    const entry_chunks chunks = chunks_of_entry(batch, entry);
    const int32_t first = call.first - chunks.first, end = first + call.count;
    out.begin = batch.query_start[entry], out.num_tokens = batch.query_start[entry + 1] - out.begin;
    out.first = max(first, 0), out.end = min(end, chunks.count);
    out.goes_on = first > 0, out.is_cut = end < chunks.count;
    return out.first < out.end;
}

/* Starts the copies of a chunk. */
template <class T, enum recurrence_kind KIND, int COLUMNS, int WARPS>
static __device__ __forceinline__ void load_stage(chunk_stage<COLUMNS, WARPS> &stage, const struct chunk_call &call,
                                                  const states_place &at, const states_range &range, int32_t chunk)
{
    constexpr int THREADS = 32 * WARPS, V_PITCH = stage.V_PITCH, ROWS = stage.ROWS;
    const struct recurrence_args &args = call.of.args;
    const struct recurrence_params &params = call.of.params;
    const int64_t token = range.begin + chunk * CHUNK, of_token = token * args.qkv_stride;
    const int32_t count = range.tokens_of(chunk),
                  in_round = chunks_of_entry(args.batch, at.entry).first + chunk - call.first;
    const T *q = (const T *)args.q + of_token + (int64_t)at.k_head * params.k_size;
    const T *k = (const T *)args.k + of_token + (int64_t)at.k_head * params.k_size;
    const T *v = (const T *)args.v + of_token + (int64_t)at.head * params.v_size + at.block_row;
    const struct chunk_work *work = call.work + (int64_t)in_round * params.num_v_heads + at.head;
    load_tile<COLUMNS, THREADS>(stage.k, k, args.qkv_stride, count, params.k_size);
    for (int i = threadIdx.x; i < CHUNK * ROWS / 8; i += THREADS) {
        const int row = i / (ROWS / 8), column = i % (ROWS / 8) * 8;
        const bool reads = row < count && at.block_row + column < params.v_size;
        copy_async(shared_address(&stage.v[row * V_PITCH + column]),
                   reads ? v + row * args.qkv_stride + column : (const T *)args.v, reads);
    }
    for (int i = threadIdx.x; i < (int)(sizeof(struct chunk_factors) / 16); i += THREADS)
        copy_async(shared_address(&stage.factors) + i * 16, (const uint8_t *)&work->factors + i * 16, true);
    for (int i = threadIdx.x; i < CHUNK * CHUNK / 8; i += THREADS) {
        const int row = i / (CHUNK / 8), column = i % (CHUNK / 8) * 8;
        const uint32_t offset = tile_offset<CHUNK>(row, column);
        if (column / 16 > row / 16) continue;
        if (KIND == RECURRENCE_DELTA)
            copy_async(shared_address(stage.inverse) + offset, &work->inverse[row * CHUNK + column], true);
        copy_async(shared_address(stage.scores) + offset, &work->scores[row * CHUNK + column], true);
    }
    load_tile<COLUMNS, THREADS>(stage.q, q, args.qkv_stride, count, params.k_size);
}

/* Sums of a warp: [16 rows of the state][tokens], as mma.cuh lays C out, and the same as A of products over tokens. */
typedef float token_sums[CHUNK / 8][4];
typedef uint32_t token_operands[CHUNK / 16][4];

template <class T> static __device__ __forceinline__ void pack_sums(uint32_t out[4], const float x[4], const float y[4])
{
    out[0] = pack_pair<T>(x[0], x[1]), out[1] = pack_pair<T>(x[2], x[3]);
    out[2] = pack_pair<T>(y[0], y[1]), out[3] = pack_pair<T>(y[2], y[3]);
}

/* Multiplies the sums by factors of tokens, and packs them. */
template <class T>
static __device__ __forceinline__ void pack_scaled(token_operands &out, const token_sums &x, const float *factors,
                                                   int lane)
{
#pragma unroll
    for (int p = 0; p < CHUNK / 16; p++) {
        float scaled[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float2 f = *(const float2 *)&factors[8 * (2 * p + i) + lane % 4 * 2];
            const float *from = x[2 * p + i];
            scaled[i][0] = from[0] * f.x, scaled[i][1] = from[1] * f.y;
            scaled[i][2] = from[2] * f.x, scaled[i][3] = from[3] * f.y;
        }
        pack_sums<T>(out[p], scaled[0], scaled[1]);
    }
}

static __device__ __forceinline__ void scale_sums(token_sums &x, const float *factors, int lane)
{
#pragma unroll
    for (int n = 0; n < CHUNK / 8; n++) {
        const float2 f = *(const float2 *)&factors[8 * n + lane % 4 * 2];
        x[n][0] *= f.x, x[n][1] *= f.y, x[n][2] *= f.x, x[n][3] *= f.y;
    }
}

/* out += x tile^T: the tile is a lower triangle, [token][token]. */
template <class T>
static __device__ __forceinline__ void multiply_lower(token_sums &out, const token_operands &x, const uint16_t *tile,
                                                      int lane)
{
    const uint32_t address = shared_address(tile);
#pragma unroll
    for (int p = 0; p < CHUNK / 16; p++)
#pragma unroll
        for (int s = 0; s <= p; s++) {
            uint32_t b[4];
            load_rows_as_b<CHUNK>(b, address, p, s, lane);
            multiply_add<T>(out[2 * p], x[s], b[0], b[1]);
            multiply_add<T>(out[2 * p + 1], x[s], b[2], b[3]);
        }
}

/* The warp's rows of v: as A of products over tokens, which is also the layout of two sums. */
template <int COLUMNS, int WARPS>
static __device__ __forceinline__ void load_v(token_operands &out, const chunk_stage<COLUMNS, WARPS> &stage,
                                              const states_place &at)
{
    const int column = at.row - at.block_row + at.lane / 8 % 2 * 8;
#pragma unroll
    for (int p = 0; p < CHUNK / 16; p++)
        load_matrices_transposed(
            out[p], shared_address(&stage.v[(16 * p + at.lane / 16 * 8 + at.lane % 8) * stage.V_PITCH + column]));
}

template <class T> static __device__ __forceinline__ float2 unpack_pair(uint32_t x)
{
    const piece<T, 2> pair = *(const piece<T, 2> *)&x;
    return make_float2(to_float(pair.values[0]), to_float(pair.values[1]));
}

/* Calls f(sum, v) for the elements of v. */
template <class T, class Function>
static __device__ __forceinline__ void combine_v(token_sums &x, const token_operands &v, Function f)
{
#pragma unroll
    for (int n = 0; n < CHUNK / 8; n++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float2 of_v = unpack_pair<T>(v[n / 2][n % 2 * 2 + half]);
            f(x[n][2 * half], of_v.x), f(x[n][2 * half + 1], of_v.y);
        }
}

/* 16 rows of a state, as sums: [rows][elements of k]. */
template <int COLUMNS> struct warp_state {
    float sums[COLUMNS / 8][4];

    /* Calls f(element of the state, two sums) for what the lane has. */
    template <class Function>
    __device__ __forceinline__ void for_each(const struct recurrence_params &params, const states_place &at, Function f)
    {
        if (at.row >= params.v_size) return;
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                if (8 * n < params.k_size)
                    f(((int64_t)at.head * params.v_size + at.row + at.lane / 4 + 8 * half) * params.k_size + 8 * n +
                          at.lane % 4 * 2,
                      &sums[n][2 * half]);
    }

    /* read += S k^T, results += S q^T. */
    template <class T, bool READS>
    __device__ __forceinline__ void multiply(token_sums &read, token_sums &results, const uint16_t *k,
                                             const uint16_t *q, int lane) const
    {
        const uint32_t of_k = shared_address(k), of_q = shared_address(q);
#pragma unroll
        for (int s = 0; s < COLUMNS / 16; s++) {
            uint32_t a[4], b[4];
            pack_sums<T>(a, sums[2 * s], sums[2 * s + 1]);
#pragma unroll
            for (int p = 0; p < CHUNK / 16; p++) {
                if (READS) {
                    load_rows_as_b<COLUMNS>(b, of_k, p, s, lane);
                    multiply_add<T>(read[2 * p], a, b[0], b[1]);
                    multiply_add<T>(read[2 * p + 1], a, b[2], b[3]);
                }
                load_rows_as_b<COLUMNS>(b, of_q, p, s, lane);
                multiply_add<T>(results[2 * p], a, b[0], b[1]);
                multiply_add<T>(results[2 * p + 1], a, b[2], b[3]);
            }
        }
    }

    /* S = decay S + u k. */
    template <class T>
    __device__ __forceinline__ void update(const token_operands &u, const uint16_t *k, float decay, int lane)
    {
        const uint32_t of_k = shared_address(k);
#pragma unroll
        for (int c = 0; c < COLUMNS / 16; c++) {
#pragma unroll
            for (int i = 0; i < 4; i++) sums[2 * c][i] *= decay, sums[2 * c + 1][i] *= decay;
#pragma unroll
            for (int s = 0; s < CHUNK / 16; s++) {
                uint32_t b[4];
                load_matrices_transposed(b, of_k + tile_offset<COLUMNS>(16 * s + lane % 16, 16 * c + lane / 16 * 8));
                multiply_add<T>(sums[2 * c], u[s], b[0], b[1]);
                multiply_add<T>(sums[2 * c + 1], u[s], b[2], b[3]);
            }
        }
    }
};

/* Writes the results of `count` tokens. */
template <class T>
static __device__ __forceinline__ void write_results(const struct recurrence_call &call, const states_place &at,
                                                     const token_sums &x, int64_t token, int32_t count)
{
    const struct recurrence_params &params = call.params;
    const int64_t stride = (int64_t)params.num_v_heads * params.v_size;
    T *to = (T *)call.args.out + (token + at.lane / 4) * stride + (int64_t)at.head * params.v_size + at.row +
            at.lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < CHUNK / 8; n++) {
        const uint32_t first = transpose_matrix(pack_pair<T>(x[n][0], x[n][1]));
        const uint32_t second = transpose_matrix(pack_pair<T>(x[n][2], x[n][3]));
        if (8 * n + at.lane / 4 >= count || at.row >= params.v_size) continue;
        *(uint32_t *)(to + 8 * n * stride) = first;
        *(uint32_t *)(to + 8 * n * stride + 8) = second;
    }
}

template <class T, enum recurrence_kind KIND, int COLUMNS, int WARPS>
static __device__ __forceinline__ void compute_chunk(warp_state<COLUMNS> &state,
                                                     const chunk_stage<COLUMNS, WARPS> &stage,
                                                     const struct recurrence_call &call, const states_place &at,
                                                     float skip, int64_t token, int32_t count)
{
    constexpr bool DELTA = KIND == RECURRENCE_DELTA;
    const struct chunk_factors &factors = stage.factors;
    token_sums read = {}, results = {};
    token_operands v, u, updates;
    state.template multiply<T, DELTA>(read, results, stage.k, stage.q, at.lane);
    load_v(v, stage, at);
    scale_sums(results, factors.query, at.lane);
    if (skip != 0) combine_v<T>(results, v, [&](float &x, float of_v) { x += skip * of_v; });
    if constexpr (DELTA) {
        token_sums sums = {};
        scale_sums(read, factors.read, at.lane);
        combine_v<T>(read, v, [&](float &x, float of_v) { x = of_v - x; });
        pack_scaled<T>(u, read, factors.beta, at.lane);
        multiply_lower<T>(sums, u, stage.inverse, at.lane);
#pragma unroll
        for (int p = 0; p < CHUNK / 16; p++) pack_sums<T>(u[p], sums[2 * p], sums[2 * p + 1]);
        pack_scaled<T>(updates, sums, factors.write, at.lane);
        multiply_lower<T>(results, u, stage.scores, at.lane);
    } else {
        token_sums sums = {};
        combine_v<T>(sums, v, [&](float &x, float of_v) { x = of_v; });
        pack_scaled<T>(updates, sums, factors.write, at.lane);
        multiply_lower<T>(results, v, stage.scores, at.lane);
    }
    write_results<T>(call, at, results, token, count);
    state.template update<T>(updates, stage.k, factors.decay[0], at.lane);
}

/* Where the state before a range, or after it, lies; NULL: zeros, or nowhere. */
static __device__ __forceinline__ const float *state_before(const struct chunk_call &call, const states_range &range,
                                                            int32_t entry)
{
    const int32_t source = call.of.args.batch.sources[entry];
    if (range.goes_on) return call.carried;
    return source == STATE_SLOT_NONE ? NULL : call.of.args.states + source * call.of.args.state_stride;
}
static __device__ __forceinline__ float *state_after(const struct chunk_call &call, const states_range &range,
                                                     int32_t entry)
{
    const int32_t slot = call.of.args.batch.slots[entry];
    if (range.is_cut) return call.carries;
    return slot == STATE_SLOT_NONE ? NULL : call.of.args.states + slot * call.of.args.state_stride;
}

/* The grid is (slices of rows, heads, entries). */
template <class T, enum recurrence_kind KIND, int COLUMNS, int WARPS>
static __global__ void __launch_bounds__(32 * WARPS) states_kernel(const __grid_constant__ struct chunk_call call)
{
    typedef chunk_stage<COLUMNS, WARPS> stage;
    extern __shared__ __align__(128) uint8_t memory[];
    stage *stages = (stage *)memory;
    const struct recurrence_params &params = call.of.params;
    const int32_t head = blockIdx.y, row = blockIdx.x * stage::ROWS;
    const states_place at = {head,
                             head / (params.num_v_heads / params.num_k_heads),
                             (int32_t)blockIdx.z,
                             row,
                             row + (int32_t)threadIdx.x / 32 * 16,
                             (int32_t)threadIdx.x % 32};
    states_range range;
    let_next_start();
    const bool has_work = find_range(call, at.entry, range);
    const float skip = params.skip ? params.skip[head] : 0;
    wait_for_previous();
    if (!has_work) return;
    load_stage<T, KIND>(stages[0], call, at, range, range.first);
    warp_state<COLUMNS> state = {};
    const float *from = state_before(call, range, at.entry);
    float *to = state_after(call, range, at.entry);
    if (from)
        state.for_each(params, at, [&](int64_t i, float *x) {
            const float2 pair = *(const float2 *)(from + i);
            x[0] = pair.x, x[1] = pair.y;
        });
    for (int32_t chunk = range.first; chunk < range.end; chunk++) {
        const int now = call.has_two_stages ? (chunk - range.first) % 2 : 0;
        copy_async_wait_all();
        __syncthreads();
        if (call.has_two_stages && chunk + 1 < range.end)
            load_stage<T, KIND>(stages[1 - now], call, at, range, chunk + 1);
        compute_chunk<T, KIND>(state, stages[now], call.of, at, skip, range.begin + chunk * CHUNK,
                               range.tokens_of(chunk));
        if (call.has_two_stages || chunk + 1 == range.end) continue;
        __syncthreads();
        load_stage<T, KIND>(stages[0], call, at, range, chunk + 1);
    }
    if (to) state.for_each(params, at, [&](int64_t i, float *x) { *(float2 *)(to + i) = make_float2(x[0], x[1]); });
}

int cuda_chunk_states_shared(int32_t k_size)
{
    int bytes = 0;
    chunk_columns(k_size, [&](auto columns) { bytes = (int)sizeof(chunk_stage<decltype(columns)::value, MAX_WARPS>); });
    return bytes;
}

/* Blocks of few rows where there are multiprocessors for them. */
template <class T, enum recurrence_kind KIND, int COLUMNS, int WARPS>
static bool launch(struct backend *b, struct chunk_call &call)
{
    typedef chunk_stage<COLUMNS, WARPS> stage;
    const struct cuda_state *s = cuda_state(b);
    const struct recurrence_params &params = call.of.params;
    const unsigned slices = (unsigned)cuda_div_up(params.v_size, stage::ROWS);
    const dim3 grid(slices, params.num_v_heads, call.of.args.batch.num_seqs);
    call.has_two_stages = 2 * (int)sizeof(stage) <= s->max_shared_bytes;
    const int bytes = (call.has_two_stages ? 2 : 1) * (int)sizeof(stage);
    const auto kernel = states_kernel<T, KIND, COLUMNS, WARPS>;
    if (!cuda_allow_shared(b, "recurrence", kernel, bytes)) return false;
    cuda_launch_dependent(s, kernel, {grid, 32 * WARPS, bytes}, call);
    return true;
}

bool cuda_chunk_states(struct backend *b, struct chunk_call &call)
{
    const struct recurrence_params &params = call.of.params;
    const int64_t large = cuda_div_up(params.v_size, 16 * MAX_WARPS) * params.num_v_heads * call.of.args.batch.num_seqs;
    bool launched = false;
    chunk_kinds(call.of, [&](auto zero, auto kind) {
        chunk_columns(params.k_size, [&](auto columns) {
            typedef decltype(zero) T;
            constexpr enum recurrence_kind KIND = decltype(kind)::value;
            constexpr int COLUMNS = decltype(columns)::value;
            if (large < cuda_state(b)->num_sms)
                launched = launch<T, KIND, COLUMNS, MAX_WARPS / 2>(b, call);
            else
                launched = launch<T, KIND, COLUMNS, MAX_WARPS>(b, call);
        });
    });
    return launched;
}
