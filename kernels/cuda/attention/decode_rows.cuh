/* The rows of a unit's query tokens, and of K and V that are not in the cache yet: they are normed and rotated in
 * shared memory, and K and V are put into chunks and into the cache. */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_DECODE_ROWS_CUH
#define QUIRE_KERNELS_CUDA_ATTENTION_DECODE_ROWS_CUH

#include "kernels/cuda/attention/decode_chunks.cuh"
#include "kernels/cuda/cache.cuh"
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/rotary.cuh"

/* Rows of the unit's query tokens: the unit's columns of the query, then K and V of the tokens that are not in the
 * cache yet, first all of K, if this block has chunks that they belong to. */
template <class D> struct decode_rows {
    alignas(16) typename D::T values[D::COLUMNS + 2 * D::FRESH][D::ROW_STRIDE];
};

/* A lane's share of a row: 4 elements from `left` on, and the 4 from `right` on, which rotation pairs them with. */
struct row_share {
    int32_t left, right;
    bool there;   /* the row has such elements */
    bool rotated; /* they are rotated */
};

/* By which angles. */
struct row_angles {
    piece<float, 4> cos, sin;
};

/* HEAD / 8 lanes share a row. */
template <class D, bool ANY>
static __device__ __forceinline__ row_share share_row(const struct decode_fresh &fresh, int32_t head_size)
{
    const int32_t i = threadIdx.x % (D::HEAD / 8), half = head_size / 2;
    const int32_t rotary_dim = ANY ? fresh.rotary_dim : head_size;
    row_share share = {4 * i, half + 4 * i, 4 * i < half};
    if constexpr (ANY) {
        const head_split split = {head_size / 4, rotary_dim / 8, fresh.interleaved};
        share.left = 4 * split.left(i);
        share.right = 4 * split.right(i);
    }
    share.rotated = !ANY || 4 * i < rotary_dim / 2;
    return share;
}

template <class D, bool ANY>
static __device__ __forceinline__ row_angles load_angles(const struct decode_fresh &fresh, const row_share &share,
                                                         int64_t token, int32_t head_size)
{
    const int32_t i = threadIdx.x % (D::HEAD / 8), rotary_dim = ANY ? fresh.rotary_dim : head_size;
    row_angles out = {};
    if (fresh.cos_sin && share.there && share.rotated) {
        const float *angles = fresh.cos_sin + (int64_t)fresh.positions[token] * rotary_dim + 4 * i;
        out.cos = *(const piece<float, 4> *)angles;
        out.sin = *(const piece<float, 4> *)(angles + rotary_dim / 2);
    }
    return out;
}

/* The lane's gains of a row. */
struct row_gains {
    raw_gains<4> left, right;
};

static __device__ __forceinline__ row_gains load_row_gains(const void *gain, enum dtype dtype, const row_share &share)
{
    return {load_gains<4>(gain, dtype, share.left / 4), load_gains<4>(gain, dtype, share.right / 4)};
}

template <class T>
static __device__ __forceinline__ void apply_row_gains(piece<T, 4> &left, piece<T, 4> &right, float factor,
                                                       const row_gains &gains, enum dtype gain_dtype)
{
    apply_gains(left, factor, gains.left, gain_dtype);
    apply_gains(right, factor, gains.right, gain_dtype);
}

/* What all rows of a block are prepared with. The gains, which no kernel writes, are read before the wait. */
struct row_preparation {
    row_share share;
    row_gains query_gains, key_gains;
    int32_t head_size;
    bool normed;
};

template <class D, bool ANY>
static __device__ __forceinline__ row_preparation prepare_rows(const struct attention_call &call,
                                                               const struct decode_fresh &fresh)
{
    const struct decode_norms &norms = fresh.norms;
    row_preparation p;
    p.head_size = call.args.head_size;
    p.share = share_row<D, ANY>(fresh, p.head_size);
    p.normed = ANY && norms.query_gain;
    if (p.normed && p.share.there) {
        p.query_gains = load_row_gains(norms.query_gain, norms.gain_dtype, p.share);
        p.key_gains = load_row_gains(norms.key_gain, norms.gain_dtype, p.share);
    }
    return p;
}

/* A row of the query, of K or of V: the lane's share of it. */
template <class T> struct row_pieces {
    piece<T, 4> left, right;
    bool is_query, is_key;
    bool there; /* this lane has a share of a row */
};

/* Norms and rotates rows of query and key, and stores them. */
template <class D, bool ANY>
static __device__ __forceinline__ void finish_row(typename D::T *to, row_pieces<typename D::T> &row,
                                                  const row_preparation &p, const row_angles &angles,
                                                  const struct decode_fresh &fresh)
{
    const struct decode_norms &norms = fresh.norms;
    if (p.normed) {
        const float eps = row.is_query ? norms.query_eps : norms.key_eps;
        const float squares = add_squares(add_squares(0, row.left), row.right);
        const float factor = head_norm_factor(squares, D::HEAD / 8, p.head_size, eps);
        if (row.is_query) apply_row_gains(row.left, row.right, factor, p.query_gains, norms.gain_dtype);
        if (row.is_key) apply_row_gains(row.left, row.right, factor, p.key_gains, norms.gain_dtype);
    }
    if (fresh.cos_sin && p.share.rotated && (row.is_query || row.is_key))
        rotate_pieces(row.left, row.right, angles.cos.values, angles.sin.values, ANY && fresh.interleaved);
    if (!row.there) return;
    *(piece<typename D::T, 4> *)(to + p.share.left) = row.left;
    *(piece<typename D::T, 4> *)(to + p.share.right) = row.right;
}

/* Loads the rows of the block's token when the previous kernels have ended: `heads` of the query, then K and V if
 * has_fresh. */
template <class D, bool ANY>
static __device__ __forceinline__ void load_rows(decode_rows<D> *rows, const struct attention_call &call,
                                                 const struct decode_fresh &fresh, const struct decode_unit &unit,
                                                 bool has_fresh)
{
    using T = typename D::T;
    constexpr int ROW_LANES = D::HEAD / 8, ROWS_AT_ONCE = DECODE_THREADS / ROW_LANES;
    const int32_t head_size = call.args.head_size, heads = unit.heads, count = has_fresh ? heads + 2 : heads;
    const T *query = (const T *)call.args.query + unit.token * call.args.query_stride + (int64_t)unit.head * head_size;
    const T *key = (const T *)fresh.key + unit.token * fresh.key_stride + (int64_t)unit.kv_head * head_size;
    const T *value = (const T *)fresh.value + unit.token * fresh.value_stride + (int64_t)unit.kv_head * head_size;
    const row_preparation p = prepare_rows<D, ANY>(call, fresh);
    const row_angles angles = load_angles<D, ANY>(fresh, p.share, unit.token, head_size);
    wait_for_previous();
    /* With ANY all lanes of a warp make the same number of rounds, because they may exchange sums. */
    const int32_t row = threadIdx.x / ROW_LANES;
    for (int32_t first = 0; first + (ANY ? 0 : row) < count && (ANY || p.share.there); first += ROWS_AT_ONCE) {
        const int32_t r = first + row;
        row_pieces<T> x = {{}, {}, r < heads, r == heads, !ANY || (r < count && p.share.there)};
        const T *from = r < heads ? query + r * head_size : r == heads ? key : value;
        if (x.there)
            x.left = *(const piece<T, 4> *)(from + p.share.left),
            x.right = *(const piece<T, 4> *)(from + p.share.right);
        finish_row<D, ANY>(rows->values[r], x, p, angles, fresh);
    }
}

/* The same for a unit of several tokens: its columns of the query, then K of the run's tokens, then V, if has_fresh.
 * Everything is loaded before the first row is prepared. */
template <class D>
static __device__ __forceinline__ void load_run_rows(decode_rows<D> *rows, const struct attention_call &call,
                                                     const struct decode_fresh &fresh, const struct decode_unit &unit,
                                                     bool has_fresh)
{
    using T = typename D::T;
    constexpr int ROW_LANES = D::HEAD / 8, ROWS_AT_ONCE = DECODE_THREADS / ROW_LANES;
    constexpr int ROUNDS = (D::COLUMNS + 2 * D::FRESH + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE;
    const int32_t head_size = call.args.head_size, columns = unit.columns<D>();
    const int32_t values = columns + unit.run, count = has_fresh ? values + unit.run : columns;
    const int64_t first_token = unit.token + unit.entries - unit.run, kv_offset = (int64_t)unit.kv_head * head_size;
    const row_preparation p = prepare_rows<D, true>(call, fresh);
    row_angles angles[ROUNDS];
    row_pieces<T> pieces[ROUNDS];
    const T *from[ROUNDS];
#pragma unroll
    for (int n = 0; n < ROUNDS; n++) {
        const int32_t r = n * ROWS_AT_ONCE + (int32_t)threadIdx.x / ROW_LANES;
        const bool is_query = r < columns, is_key = !is_query && r < values;
        const int64_t token = is_query ? unit.token + unit.entry<D>(r) : first_token + r - (is_key ? columns : values);
        pieces[n] = {{}, {}, is_query, is_key, r < count && p.share.there};
        if (is_query)
            from[n] =
                (const T *)call.args.query + token * call.args.query_stride + (int64_t)unit.head_of<D>(r) * head_size;
        else
            from[n] = is_key ? (const T *)fresh.key + token * fresh.key_stride + kv_offset
                             : (const T *)fresh.value + token * fresh.value_stride + kv_offset;
        angles[n] = {};
        if (r < count && (is_query || is_key)) angles[n] = load_angles<D, true>(fresh, p.share, token, head_size);
    }
    wait_for_previous();
#pragma unroll
    for (int n = 0; n < ROUNDS; n++)
        if (pieces[n].there) {
            pieces[n].left = *(const piece<T, 4> *)(from[n] + p.share.left);
            pieces[n].right = *(const piece<T, 4> *)(from[n] + p.share.right);
        }
#pragma unroll
    for (int n = 0; n < ROUNDS; n++)
        if (n * ROWS_AT_ONCE < count)
            finish_row<D, true>(rows->values[n * ROWS_AT_ONCE + (int32_t)threadIdx.x / ROW_LANES], pieces[n], p,
                                angles[n], fresh);
}

/* The unit's columns of the query as B operands, with zeros after the last one and after head_size. */
template <class D>
static __device__ __forceinline__ void load_query(decode_state<D> &state, const decode_rows<D> *rows, int32_t columns,
                                                  int32_t head_size)
{
    const int32_t j = threadIdx.x % 4;
#pragma unroll
    for (int t = 0; t < D::TILES; t++) {
        const int32_t column = t * TILE_COLUMNS + threadIdx.x % LANES / 4;
#pragma unroll
        for (int k = 0; k < D::HEAD / 16; k++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int32_t d = k * 16 + (D::FP8 ? 4 * j + 2 * e : 2 * j + 8 * e);
                const bool there = column < columns && d < head_size;
                const uint32_t pair = there ? *(const uint32_t *)&rows->values[column][d] : 0;
                state.query[t][k][e] =
                    std::is_same_v<typename D::T, typename D::Operand> ? pair : bfloat16_to_float16(pair);
            }
    }
}

template <class D>
static __device__ __forceinline__ typename D::Element cache_element(typename D::T x, float inverse_scale,
                                                                    enum dtype cache)
{
    if constexpr (!D::FP8)
        return x;
    else if (cache == DTYPE_FP8_E5M2)
        return to_cache<__nv_fp8_e5m2>(to_float(x), inverse_scale).__x;
    else
        return to_cache<__nv_fp8_e4m3>(to_float(x), inverse_scale).__x;
}

/* Writes K and V of a token that is not in the cache yet into its chunk, which is in `stage`, and into the cache,
 * unless slot is negative. */
template <class D>
static __device__ __forceinline__ void place_token(const chunk_source &source, const struct attention_call &call,
                                                   struct kv_scales scales, const typename D::T *key,
                                                   const typename D::T *value, int32_t position, int64_t slot,
                                                   uint8_t *stage)
{
    using Element = typename D::Element;
    constexpr int X = 16 / sizeof(Element), SIZE = sizeof(Element);
    const enum dtype cache = call.args.cache_dtype;
    const float k_inverse = 1.0f / scales.k, v_inverse = 1.0f / scales.v;
    const int32_t token = position % CHUNK, row = chunk_row<D>(token), bs = source.block_size;
    const int64_t block = slot >> source.log_block_size, offset = slot & (bs - 1);
    uint8_t *keys = (uint8_t *)source.keys + block * source.block_bytes + offset * 16;
    uint8_t *values = (uint8_t *)source.values + block * source.block_bytes + offset * SIZE;
    for (int32_t d = threadIdx.x % LANES * 2; d < source.head_size; d += LANES * 2) {
        const piece<Element, 2> k = {cache_element<D>(key[d], k_inverse, cache),
                                     cache_element<D>(key[d + 1], k_inverse, cache)};
        *(piece<Element, 2> *)(stage + (d / X * CHUNK + row) * 16 + d % X * SIZE) = k;
        if (slot >= 0) *(piece<Element, 2> *)(keys + d / X * bs * 16 + d % X * SIZE) = k;
        const int32_t half = D::FP8 ? 0 : token / 8 ^ d / 4 % 2;
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const Element v = cache_element<D>(value[d + e], v_inverse, cache);
            *(Element *)(stage + D::PART_BYTES + ((d + e) * (D::FP8 ? 1 : 2) + half) * 16 + token % X * SIZE) = v;
            if (slot >= 0) *(Element *)(values + (d + e) * bs * SIZE) = v;
        }
    }
}

/* What of the last tokens is not in the cache yet: rows of K, then as many of V. `slot`: where to store the last one;
 * with runs, lane k has that of token k. */
template <class D> struct fresh_rows {
    const typename D::T (*rows)[D::ROW_STRIDE]; /* NULL: all is in the cache */
    int32_t count;
    int64_t slot;
};

/* Places those that are in the chunk of tokens from `start` on. */
template <class D>
static __device__ __forceinline__ void place_fresh(const chunk_source &source, const struct attention_call &call,
                                                   struct kv_scales scales, const fresh_rows<D> &fresh, int32_t start,
                                                   uint8_t *stage)
{
    const int32_t count = D::RUNS ? fresh.count : 1, first = source.end - count; /* position of the first of them */
    if (!fresh.rows || start + CHUNK <= first) return;
    if constexpr (D::RUNS) {
        const int32_t end = min(source.end, start + CHUNK);
        for (int32_t k = max(start - first, 0); first + k < end; k++)
            place_token<D>(source, call, scales, fresh.rows[k], fresh.rows[count + k], first + k,
                           __shfl_sync(~0u, fresh.slot, k), stage);
    } else {
        place_token<D>(source, call, scales, fresh.rows[0], fresh.rows[1], first, fresh.slot, stage);
    }
    __syncwarp();
}

#endif
