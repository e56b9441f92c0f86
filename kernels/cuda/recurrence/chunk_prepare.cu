/* What the chunks of a round need that does not depend on states. A block computes a chunk of a head of q and k, and of
 * up to HEADS heads of v that share it. Products of q and k stay in registers until their tiles are needed no more. */
#include "kernels/cuda/recurrence/chunks.cuh"

enum { THREADS = 128, HEADS = THREADS / CHUNK, PITCH = CHUNK + 4 };
static constexpr float LEAST_LOG = -120; /* its exponential is 0 */

template <int COLUMNS> struct prepare_shared {
    union {
        struct {
            uint16_t q[CHUNK * COLUMNS], k[CHUNK * COLUMNS];
        } rows;
        struct {
            float lower[HEADS][CHUNK][PITCH];   /* L, transposed: [j][i] */
            float inverse[HEADS][CHUNK][CHUNK]; /* [i][j] */
        } solve;
    };
    float logs[HEADS][CHUNK], beta[HEADS][CHUNK]; /* logs: g */
    float q_factor[CHUNK], k_factor[CHUNK];
    int32_t entry;
};

/* Where a block is. */
struct prepare_place {
    int32_t k_head, head, num_heads; /* of v: the first, and how many */
    int32_t begin, count;            /* tokens */
    int32_t chunk;                   /* of the round */
};

/* False: no entry has the chunk. */
static __device__ __forceinline__ bool find_chunk(const struct chunk_call &call, prepare_place &at, int32_t *entry)
{
    const struct state_batch &batch = call.of.args.batch;
    const int32_t chunk = call.first + at.chunk;
    if (threadIdx.x == 0) *entry = -1;
    __syncthreads();
    for (int32_t i = threadIdx.x; i < batch.num_seqs; i += THREADS) {
        const entry_chunks chunks = chunks_of_entry(batch, i);
        if (chunk >= chunks.first && chunk < chunks.first + chunks.count) *entry = i;
    }
    __syncthreads();
    if (*entry < 0) return false;
    at.begin = batch.query_start[*entry] + (chunk - chunks_of_entry(batch, *entry).first) * CHUNK;
    at.count = min(CHUNK, batch.query_start[*entry + 1] - at.begin);
    return true;
}

/* g and beta of a head, by a warp. After the last token decays are 1 and betas 0. */
template <class T, enum recurrence_kind KIND>
static __device__ __forceinline__ void sum_decays(const struct recurrence_call &call, const prepare_place &at,
                                                  int32_t head, float *logs, float *betas)
{
    const int lane = threadIdx.x % 32;
    const head_params params = load_head_params<KIND>(call.params, head);
    float sums[2], sum = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int t = 2 * lane + i;
        const int64_t token = at.begin + t;
        token_scalars x = {0, 0};
        if (t < at.count) {
            float a = 0, b = 0;
            if (KIND != RECURRENCE_FIXED) a = to_float(((const T *)call.args.a)[token * call.args.a_stride + head]);
            if (KIND == RECURRENCE_DELTA) b = to_float(((const T *)call.args.b)[token * call.args.b_stride + head]);
            x = token_logarithms_of<KIND>(call.params, params, a, b);
        }
        sum += x.decay < LEAST_LOG ? LEAST_LOG : x.decay;
        sums[i] = sum, betas[t] = x.beta;
    }
    float before = sum;
    for (int offset = 1; offset < 32; offset *= 2) {
        const float other = __shfl_up_sync(~0u, before, offset);
        if (lane >= offset) before += other;
    }
    before = __shfl_up_sync(~0u, before, 1);
#pragma unroll
    for (int i = 0; i < 2; i++) logs[2 * lane + i] = sums[i] + (lane > 0 ? before : 0);
}

/* What norms and scales q (threads below CHUNK) and k (the others) of a token. */
template <class T, int COLUMNS>
static __device__ __forceinline__ void compute_factors(prepare_shared<COLUMNS> &shared,
                                                       const struct recurrence_params &params)
{
    const bool of_k = threadIdx.x >= CHUNK;
    const int row = threadIdx.x % CHUNK;
    const uint8_t *tile = (const uint8_t *)(of_k ? shared.rows.k : shared.rows.q);
    float factor = of_k ? 1 : params.scale, sum = 0;
    for (int column = 0; params.norm_qk && column < COLUMNS; column += 8) {
        const piece<T, 8> x = *(const piece<T, 8> *)(tile + tile_offset<COLUMNS>(row, column));
#pragma unroll
        for (int i = 0; i < 8; i++) sum += to_float(x.values[i]) * to_float(x.values[i]);
    }
    if (params.norm_qk) factor *= rsqrtf(sum + 1e-6f);
    (of_k ? shared.k_factor : shared.q_factor)[row] = factor;
}

/* Rows 16 warp .. + 15 of x k^T, as far as they are not above the diagonal blocks; x: a tile. */
template <class T, int COLUMNS>
static __device__ __forceinline__ void multiply_rows(float (&out)[CHUNK / 8][4], const uint16_t *x, const uint16_t *k)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t of_x = shared_address(x), of_k = shared_address(k);
#pragma unroll
    for (int n = 0; n < CHUNK / 8; n++) out[n][0] = out[n][1] = out[n][2] = out[n][3] = 0;
#pragma unroll
    for (int s = 0; s < COLUMNS / 16; s++) {
        uint32_t a[4], b[4];
        load_matrices(a, of_x + tile_offset<COLUMNS>(16 * warp + lane % 16, 16 * s + lane / 16 * 8));
#pragma unroll
        for (int p = 0; p < CHUNK / 16; p++) {
            if (p > warp) continue;
            load_rows_as_b<COLUMNS>(b, of_k, p, s, lane);
            multiply_add<T>(out[2 * p], a, b[0], b[1]);
            multiply_add<T>(out[2 * p + 1], a, b[2], b[3]);
        }
    }
}

/* Makes scores and L of head `h` of the block from the thread's products. */
template <class T, enum recurrence_kind KIND, int COLUMNS>
static __device__ __forceinline__ void scale_products(prepare_shared<COLUMNS> &shared, struct chunk_work *work, int h,
                                                      const float (&qk)[CHUNK / 8][4], const float (&kk)[CHUNK / 8][4])
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = 16 * warp + lane / 4 + 8 * half;
        const float log = shared.logs[h][row], of_q = shared.q_factor[row];
        const float of_l = shared.beta[h][row] * shared.k_factor[row];
#pragma unroll
        for (int n = 0; n < CHUNK / 8; n++) {
            float scores[2];
            if (n / 2 > warp) continue;
            const int first = 8 * n + lane % 4 * 2;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int column = first + i;
                float factor = shared.k_factor[column];
                if (column < row) factor *= __expf(log - shared.logs[h][column]);
                if (KIND == RECURRENCE_DELTA)
                    shared.solve.lower[h][column][row] = column < row ? factor * of_l * kk[n][2 * half + i] : 0;
                else
                    factor *= shared.beta[h][column];
                scores[i] = column <= row ? factor * of_q * qk[n][2 * half + i] : 0;
            }
            *(uint32_t *)&work->scores[row * CHUNK + first] = pack_pair<T>(scores[0], scores[1]);
        }
    }
}

/* A column of the inverse of I + L by forward substitution, 16 rows at a time. The rows above those of the warp's first
 * column are zeros. */
template <class T>
static __device__ __forceinline__ void invert_column(const float (*lower)[PITCH], float (*inverse)[CHUNK],
                                                     uint16_t *out, int column)
{
    const int start = column / 32 * 32;
    for (int first = start; first < CHUNK; first += 16) {
        float x[16];
#pragma unroll
        for (int r = 0; r < 16; r++) x[r] = first + r == column;
#pragma unroll 4
        for (int k = start; k < first; k++) {
            const float known = inverse[k][column];
#pragma unroll
            for (int r = 0; r < 16; r += 4) {
                const float4 l = *(const float4 *)&lower[k][first + r];
                x[r] -= l.x * known, x[r + 1] -= l.y * known, x[r + 2] -= l.z * known, x[r + 3] -= l.w * known;
            }
        }
#pragma unroll
        for (int s = 0; s < 15; s++)
#pragma unroll
            for (int r = s + 1; r < 16; r++) x[r] -= lower[first + s][first + r] * x[s];
#pragma unroll
        for (int r = 0; r < 16; r++) {
            inverse[first + r][column] = x[r];
            ((T *)out)[(first + r) * CHUNK + column] = from_float<T>(x[r]);
        }
    }
}

/* The factors of token t. */
template <enum recurrence_kind KIND, int COLUMNS>
static __device__ __forceinline__ void write_factors(const prepare_shared<COLUMNS> &shared, struct chunk_factors *out,
                                                     int h, int t)
{
    const float log = shared.logs[h][t], last = shared.logs[h][CHUNK - 1], beta = shared.beta[h][t];
    out->read[t] = __expf(log) * shared.k_factor[t];
    out->query[t] = __expf(log) * shared.q_factor[t];
    out->beta[t] = beta;
    out->write[t] = __expf(last - log) * shared.k_factor[t] * (KIND == RECURRENCE_DELTA ? 1 : beta);
    if (t == 0) out->decay[0] = __expf(last);
}

/* The grid is (heads of q and k times groups of up to HEADS heads of v, chunks). */
template <class T, enum recurrence_kind KIND, int COLUMNS>
static __global__ void __launch_bounds__(THREADS) prepare_kernel(const __grid_constant__ struct chunk_call call)
{
    extern __shared__ __align__(128) uint8_t memory[];
    prepare_shared<COLUMNS> &shared = *(prepare_shared<COLUMNS> *)memory;
    const struct recurrence_args &args = call.of.args;
    const struct recurrence_params &params = call.of.params;
    const int32_t ratio = params.num_v_heads / params.num_k_heads, groups = (ratio + HEADS - 1) / HEADS;
    const int32_t k_head = blockIdx.x / groups, first = blockIdx.x % groups * HEADS, h = threadIdx.x / CHUNK;
    prepare_place at = {k_head, k_head * ratio + first, min(HEADS, ratio - first), 0, 0, (int32_t)blockIdx.y};
    let_next_start();
    const bool found = find_chunk(call, at, &shared.entry);
    wait_for_previous();
    if (!found) return;
    const int64_t element = at.begin * args.qkv_stride + (int64_t)k_head * params.k_size;
    struct chunk_work *work = call.work + (int64_t)at.chunk * params.num_v_heads + at.head;
    load_tile<COLUMNS, THREADS>(shared.rows.q, (const T *)args.q + element, args.qkv_stride, at.count, params.k_size);
    load_tile<COLUMNS, THREADS>(shared.rows.k, (const T *)args.k + element, args.qkv_stride, at.count, params.k_size);
    if (const int warp = threadIdx.x / 32; warp < at.num_heads)
        sum_decays<T, KIND>(call.of, at, at.head + warp, shared.logs[warp], shared.beta[warp]);
    copy_async_wait_all();
    __syncthreads();
    float qk[CHUNK / 8][4], kk[CHUNK / 8][4] = {};
    compute_factors<T>(shared, params);
    multiply_rows<T, COLUMNS>(qk, shared.rows.q, shared.rows.k);
    if (KIND == RECURRENCE_DELTA) multiply_rows<T, COLUMNS>(kk, shared.rows.k, shared.rows.k);
    __syncthreads();
    for (int i = 0; i < at.num_heads; i++) scale_products<T, KIND>(shared, work + i, i, qk, kk);
    if (h < at.num_heads) write_factors<KIND>(shared, &work[h].factors, h, threadIdx.x % CHUNK);
    if (KIND != RECURRENCE_DELTA) return;
    __syncthreads();
    if (h < at.num_heads)
        invert_column<T>(shared.solve.lower[h], shared.solve.inverse[h], work[h].inverse, threadIdx.x % CHUNK);
}

int cuda_chunk_prepare_shared(int32_t k_size)
{
    int bytes = 0;
    chunk_columns(k_size, [&](auto columns) { bytes = (int)sizeof(prepare_shared<decltype(columns)::value>); });
    return bytes;
}

bool cuda_chunk_prepare(struct backend *b, const struct chunk_call &call)
{
    const struct recurrence_params &params = call.of.params;
    const int64_t groups = cuda_div_up(params.num_v_heads / params.num_k_heads, HEADS);
    const int bytes = cuda_chunk_prepare_shared(params.k_size);
    const struct cuda_launch shape = {dim3((unsigned)(params.num_k_heads * groups), call.count), THREADS, bytes};
    bool allowed = false;
    chunk_kinds(call.of, [&](auto zero, auto kind) {
        chunk_columns(params.k_size, [&](auto columns) {
            const auto kernel = prepare_kernel<decltype(zero), decltype(kind)::value, decltype(columns)::value>;
            allowed = cuda_allow_shared(b, "recurrence", kernel, bytes);
            if (allowed) cuda_launch_dependent(cuda_state(b), kernel, shape, call);
        });
    });
    return allowed;
}
