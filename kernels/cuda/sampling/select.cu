/* Thresholds without sorting: the k-th largest logit, or the token at which the largest ones have a given share of the
 * mass.
 *
 * A cluster of blocks (on devices without clusters, one block) has a row, that is the logits of one sample. A selection
 * makes a histogram in shared memory of the distances from the largest value, scans it for the bin that contains the
 * wanted token, and compares that bin's few tokens with each other. A bin with too many tokens (equal logits, for
 * example) is divided further, by the bits of a key that orders by value first and by id second, until few are left.
 * Keys are distinct, so this ends.
 *
 * Masses are summed as integers, exp(value - largest) * 2^44, so that their order does not matter and a row's result is
 * the same every time. The sum of a row of fewer than 2^19 tokens is below 2^63, and loses less than 2^-25 of it to
 * rounding; longer rows have fewer than 44 bits. */
#include <cooperative_groups.h>
#include <float.h>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/sampling/sample.cuh"

namespace cg = cooperative_groups;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
using row_blocks = cg::cluster_group;

static __device__ __forceinline__ row_blocks blocks_of_row()
{
    return cg::this_cluster();
}
#else
/* A cluster of one block, for devices that have no clusters. */
struct row_blocks {
    __device__ unsigned num_blocks() const { return 1; }
    __device__ unsigned block_rank() const { return 0; }
    __device__ void sync() const { __syncthreads(); }
    template <class T> __device__ T *map_shared_rank(T *p, unsigned) const { return p; }
};

static __device__ __forceinline__ row_blocks blocks_of_row()
{
    return row_blocks();
}
#endif

enum { THREADS = 1024, BINS = 2048, BINS_OF_THREAD = BINS / THREADS, LIST = 1024, MAX_CLUSTER = 8 };
static_assert(SAMPLING_MAX_TOP <= LIST, "a list holds the most probable tokens");

/* Values further below the largest than this go to the last bin. */
#define REACH 20.0f
enum { MASS_BITS = 44 };

/* The row of a selection. value = logit / temperature. Tokens below `floor` are left out. NaN counts as -infinity here;
 * choose_kernel finds it and writes token id -1. */
struct selection_row {
    const float *logits;
    int32_t begin, end;                 /* this block's part */
    float temperature, max, floor, one; /* max: the largest value; one: its mass */
    float low, high;                    /* logits outside are skipped before anything is computed from them */
};

struct selection_shared {
    uint32_t low[BINS], high[BINS];    /* the two words of a bin's weight: its number of tokens, or their mass */
    uint64_t keys[LIST], masses[LIST]; /* the tokens of one bin; in the cluster's first block only */
    uint64_t of_warps[THREADS / 32], before, found;
    double sums[THREADS / 32], sum;
    float maxima[THREADS / 32], max;
    int32_t bin, num_listed;
};

static __device__ __forceinline__ float value_of(const selection_row &row, float logit)
{
    return isnan(logit) ? -CUDART_INF_F : __fdiv_rn(logit, row.temperature);
}

/* Larger values have larger keys; of equal ones, lower ids. */
static __device__ __forceinline__ uint64_t key_of(float value, int32_t id)
{
    const uint32_t bits = __float_as_uint(value + 0.0f); /* -0 becomes 0 */
    const uint32_t ordered = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)ordered << 32 | (0xffffffffu - (uint32_t)id);
}

static __device__ __forceinline__ float value_of_key(uint64_t key)
{
    const uint32_t ordered = (uint32_t)(key >> 32);
    return __uint_as_float(ordered >> 31 ? ordered & 0x7fffffffu : ~ordered);
}

static __device__ __forceinline__ int32_t id_of_key(uint64_t key)
{
    return (int32_t)(0xffffffffu - (uint32_t)key);
}

static __device__ __forceinline__ int bin_of(const selection_row &row, float value)
{
    const float distance = row.max - value;
    return distance < REACH ? (int)(distance * ((BINS - 1) / REACH)) : BINS - 1;
}

/* The row restricted to the logits of a bin, with a margin of half a bin and any rounding error. */
static __device__ selection_row only_bin(const selection_row &row, int bin)
{
    const float width = REACH / (BINS - 1), slack = 0.5f * width + 1e-6f * (fabsf(row.max) + REACH);
    selection_row part = row;
    if (bin < BINS - 1) part.low = (row.max - (bin + 1) * width - slack) * row.temperature;
    part.high = (row.max - bin * width + slack) * row.temperature;
    return part;
}

static __device__ __forceinline__ uint64_t mass_of(const selection_row &row, float value)
{
    return __float2ull_rn(expf(value - row.max) * row.one);
}

/* Calls f(value, id) for the tokens of this block's part. Several are read before the first is used. */
template <class F> static __device__ __forceinline__ void for_each_token(const selection_row &row, F f)
{
    constexpr int AT_ONCE = 8;
    for (int32_t begin = row.begin + threadIdx.x; begin < row.end; begin += AT_ONCE * THREADS) {
        float logits[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            logits[i] = begin + i * THREADS < row.end ? row.logits[begin + i * THREADS] : 0;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (begin + i * THREADS >= row.end || logits[i] < row.low || logits[i] > row.high) continue;
            const float value = value_of(row, logits[i]);
            if (value >= row.floor) f(value, begin + i * THREADS);
        }
    }
}

/* Which tokens a round of a selection looks at, and into which bins they go. The first round: all tokens, by distance.
 * Later rounds: those of one bin of the previous round, by the next bits of their keys, highest bits first. */
struct selection_round {
    int first_bin; /* -1: the first round */
    int shift;     /* of this round's bits in the key */
    bool narrowed; /* keys >> (shift + 11) must be `prefix` */
    uint64_t prefix;
};

static __device__ __forceinline__ int bin_in_round(const selection_row &row, const selection_round &round, float value,
                                                   int32_t id)
{
    const int bin = bin_of(row, value);
    if (round.first_bin < 0) return bin;
    if (bin != round.first_bin) return -1;
    const uint64_t key = key_of(value, id);
    if (round.narrowed && key >> (round.shift + 11) != round.prefix) return -1;
    return BINS - 1 - (int)(key >> round.shift & (BINS - 1));
}

static __device__ __forceinline__ void add_weight(selection_shared &s, int bin, uint64_t weight)
{
    const uint32_t low = (uint32_t)weight, old = atomicAdd(&s.low[bin], low);
    const uint32_t high = (uint32_t)(weight >> 32) + (old + low < old);
    if (high > 0) atomicAdd(&s.high[bin], high);
}

/* Most tokens of a row may be in the last bin of the first round, so warps add up the weights of that bin first. */
static __device__ void make_histogram(selection_shared &s, const selection_row &row, const selection_round &round,
                                      bool by_mass)
{
    const int summed_bin = round.first_bin < 0 ? BINS - 1 : -1;
    uint64_t sum = 0;
    for (int i = threadIdx.x; i < BINS; i += THREADS) s.low[i] = s.high[i] = 0;
    if (threadIdx.x == 0) s.num_listed = 0;
    __syncthreads();
    for_each_token(row, [&](float value, int32_t id) {
        const int bin = bin_in_round(row, round, value, id);
        if (bin < 0) return;
        const uint64_t weight = by_mass ? mass_of(row, value) : 1;
        if (bin == summed_bin)
            sum += weight;
        else if (by_mass)
            add_weight(s, bin, weight);
        else
            atomicAdd(&s.low[bin], 1);
    });
    if (summed_bin < 0) return;
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
    if (threadIdx.x % 32 == 0) add_weight(s, summed_bin, sum);
}

/* Adds up the cluster's histograms and finds the bin in which the running weight, from `before` on, reaches the target:
 * s.bin, and in s.before the weight of everything before that bin. If share >= 0, the target is set to that share of
 * all weights. s.bin = -1: the target is never reached. All blocks find the same. */
static __device__ void find_bin(row_blocks &cluster, selection_shared &s, uint64_t before, double share,
                                uint64_t *target)
{
    uint64_t weights[BINS_OF_THREAD] = {}, sum = 0;
    const int first = threadIdx.x * BINS_OF_THREAD, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (unsigned rank = 0; rank < cluster.num_blocks(); rank++) {
        const selection_shared *other = cluster.map_shared_rank(&s, rank);
#pragma unroll
        for (int i = 0; i < BINS_OF_THREAD; i++)
            weights[i] += (uint64_t)other->high[first + i] << 32 | other->low[first + i];
    }
#pragma unroll
    for (int i = 0; i < BINS_OF_THREAD; i++) sum += weights[i];
    uint64_t running = sum; /* of this thread's bins and those before them */
    for (int offset = 1; offset < 32; offset *= 2) {
        const uint64_t other = __shfl_up_sync(~0u, running, offset);
        if (lane >= offset) running += other;
    }
    if (lane == 31) s.of_warps[warp] = running;
    if (threadIdx.x == 0) s.bin = -1;
    __syncthreads();
    uint64_t total = 0, ahead = before + running - sum;
    for (int i = 0; i < THREADS / 32; i++) {
        if (i < warp) ahead += s.of_warps[i];
        total += s.of_warps[i];
    }
    if (share >= 0) {
        const double wanted = ceil(share * (double)total);
        *target = wanted < 1 ? 1 : (uint64_t)wanted;
    }
#pragma unroll
    for (int i = 0; i < BINS_OF_THREAD; i++) {
        if (ahead < *target && *target <= ahead + weights[i]) {
            s.bin = first + i;
            s.before = ahead;
        }
        ahead += weights[i];
    }
    __syncthreads();
}

/* Collects the cluster's tokens for which keep(value, id) is true in the first block's list, in any order. */
template <class Keep>
static __device__ void list_tokens(row_blocks &cluster, selection_shared &s, const selection_row &row, Keep keep)
{
    selection_shared *first = cluster.map_shared_rank(&s, 0);
    for_each_token(row, [&](float value, int32_t id) {
        if (!keep(value, id)) return;
        const int at = atomicAdd(&first->num_listed, 1);
        if (at >= LIST) return;
        first->keys[at] = key_of(value, id);
        first->masses[at] = mass_of(row, value);
    });
    cluster.sync();
}

/* Sets s.found to the listed key at which the running weight reaches the target. */
static __device__ void find_in_list(selection_shared &s, bool by_mass, uint64_t before, uint64_t target)
{
    for (int i = threadIdx.x; i < s.num_listed; i += THREADS) {
        const uint64_t own = by_mass ? s.masses[i] : 1;
        uint64_t ahead = before;
        for (int j = 0; j < s.num_listed; j++)
            if (s.keys[j] > s.keys[i]) ahead += by_mass ? s.masses[j] : 1;
        if (ahead < target && target <= ahead + own) s.found = s.keys[i];
    }
}

/* The key of the token at which the tokens, from the largest on, reach `target` in number or by mass (if share >= 0,
 * that share of the row's whole mass); 0 if they never do. All threads of the cluster call it and get the same. */
static __device__ uint64_t select_token(row_blocks &cluster, selection_shared &s, const selection_row &row,
                                        bool by_mass, double share, uint64_t target)
{
    selection_round round = {-1, 64, false, 0};
    selection_shared *first = cluster.map_shared_rank(&s, 0);
    uint64_t before = 0;
    for (;;) {
        make_histogram(s, round.first_bin < 0 ? row : only_bin(row, round.first_bin), round, by_mass);
        cluster.sync();
        find_bin(cluster, s, before, round.first_bin < 0 ? share : -1, &target);
        cluster.sync(); /* the histograms are no longer read */
        const int bin = s.bin;
        if (bin < 0) return 0;
        before = s.before;
        list_tokens(cluster, s, only_bin(row, round.first_bin < 0 ? bin : round.first_bin),
                    [&](float value, int32_t id) { return bin_in_round(row, round, value, id) == bin; });
        if (first->num_listed <= LIST) break;
        cluster.sync(); /* the next round starts another list */
        if (round.first_bin < 0) {
            round.first_bin = bin;
            round.shift = 53;
        } else {
            const uint64_t digit = BINS - 1 - bin;
            round.prefix = round.narrowed ? round.prefix << 11 | digit : digit;
            round.narrowed = true;
            round.shift -= 11;
        }
    }
    if (cluster.block_rank() == 0) find_in_list(s, by_mass, before, target);
    cluster.sync();
    const uint64_t found = first->found;
    cluster.sync(); /* from here on the list and s.found may be overwritten */
    return found;
}

static __device__ float cluster_max(row_blocks &cluster, selection_shared &s, const selection_row &row)
{
    float max = -CUDART_INF_F;
#pragma unroll 8
    for (int32_t id = row.begin + threadIdx.x; id < row.end; id += THREADS) max = fmaxf(max, row.logits[id]);
    for (int offset = 16; offset > 0; offset /= 2) max = fmaxf(max, __shfl_xor_sync(~0u, max, offset));
    if (threadIdx.x % 32 == 0) s.maxima[threadIdx.x / 32] = max;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 0; i < THREADS / 32; i++) max = fmaxf(max, s.maxima[i]);
        s.max = max;
    }
    cluster.sync();
    for (unsigned rank = 0; rank < cluster.num_blocks(); rank++)
        max = fmaxf(max, cluster.map_shared_rank(&s, rank)->max);
    cluster.sync();
    return max;
}

/* The sum of exp(logit - max) over the row, in double and in a fixed order. */
static __device__ double cluster_sum_exp(row_blocks &cluster, selection_shared &s, const selection_row &row)
{
    double sum = 0;
#pragma unroll 4
    for (int32_t id = row.begin + threadIdx.x; id < row.end; id += THREADS) {
        const float logit = row.logits[id];
        if (!isnan(logit)) sum += expf(logit - row.max);
    }
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
    if (threadIdx.x % 32 == 0) s.sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        sum = 0;
        for (int i = 0; i < THREADS / 32; i++) sum += s.sums[i];
        s.sum = sum;
    }
    cluster.sync();
    sum = 0;
    for (unsigned rank = 0; rank < cluster.num_blocks(); rank++) sum += cluster.map_shared_rank(&s, rank)->sum;
    cluster.sync();
    return sum;
}

/* This block's part of row i, before max and floor are known. */
static __device__ selection_row row_of(row_blocks &cluster, const sample_args &args, int i, float temperature)
{
    const int64_t size = args.vocab_size, blocks = cluster.num_blocks(), rank = cluster.block_rank();
    selection_row row = {};
    row.logits = args.logits + i * args.logits_stride;
    row.begin = (int32_t)(size * rank / blocks);
    row.end = (int32_t)(size * (rank + 1) / blocks);
    row.temperature = temperature;
    row.one = ldexpf(1, min((int)MASS_BITS, 31 + __clz(args.vocab_size)));
    row.floor = row.low = -CUDART_INF_F;
    row.high = CUDART_INF_F;
    return row;
}

/* Grid: one cluster a row. Tokens at -infinity are never drawn. If the largest value is infinite, there is no cut:
 * choose_kernel then writes token id -1. */
static __global__ void __launch_bounds__(THREADS) cut_kernel(sample_args args, sample_scratch scratch)
{
    __shared__ selection_shared s;
    row_blocks cluster = blocks_of_row();
    const int i = blockIdx.x / cluster.num_blocks();
    const sampling_state *state = sample_state_of(args, i);
    if (!sample_is_random(args, state)) return;
    float cut_value = -FLT_MAX;
    int32_t cut_id = INT32_MAX;
    if (state->min_p > 0 || state->top_k > 0 || state->top_p < 1) {
        selection_row row = row_of(cluster, args, i, state->temperature);
        row.max = __fdiv_rn(cluster_max(cluster, s, row), row.temperature);
        row.floor = -FLT_MAX;
        if (!isinf(row.max)) {
            if (state->min_p > 0) row.floor = fmaxf(row.floor, row.max + logf(state->min_p));
            if (state->top_k > 0) { /* tokens equal to the k-th stay too */
                const uint64_t key = select_token(cluster, s, row, false, -1, state->top_k);
                if (key) row.floor = value_of_key(key);
            }
            cut_value = row.floor;
            if (state->top_p < 1) {
                const uint64_t key = select_token(cluster, s, row, true, fmaxf(state->top_p, 0.0f), 0);
                if (key) cut_value = value_of_key(key), cut_id = id_of_key(key);
            }
        }
    }
    if (cluster.block_rank() > 0 || threadIdx.x > 0) return;
    scratch.results[i].cut_value = cut_value;
    scratch.results[i].cut_id = cut_id;
}

/* Writes the list in order: ids and log-probabilities of the most probable tokens. */
static __device__ void write_top(const selection_shared &s, double log_total, int32_t *ids, float *logprobs)
{
    for (int i = threadIdx.x; i < s.num_listed; i += THREADS) {
        int rank = 0;
        for (int j = 0; j < s.num_listed; j++) rank += s.keys[j] > s.keys[i];
        const float value = value_of_key(s.keys[i]);
        ids[rank] = id_of_key(s.keys[i]);
        logprobs[rank] = value == -CUDART_INF_F ? value : (float)(value - log_total);
    }
}

/* Grid: one cluster a row. */
static __global__ void __launch_bounds__(THREADS) raw_kernel(sample_args args, sample_scratch scratch)
{
    __shared__ selection_shared s;
    row_blocks cluster = blocks_of_row();
    const int i = blockIdx.x / cluster.num_blocks();
    const sampling_state *state = sample_state_of(args, i);
    const int32_t most = sample_num_logprobs(args, state);
    if (most < 0) return;
    selection_row row = row_of(cluster, args, i, 1);
    row.max = cluster_max(cluster, s, row);
    const double log_total = row.max + log(cluster_sum_exp(cluster, s, row));
    if (cluster.block_rank() == 0 && threadIdx.x == 0) {
        scratch.results[i].log_total = log_total;
        scratch.results[i].num_saved = 0;
        args.ranks[i] = 1;
    }
    const int32_t wanted = min(min(most, args.top_stride), args.vocab_size);
    if (wanted <= 0) return;
    const uint64_t last = select_token(cluster, s, row, false, -1, wanted);
    if (threadIdx.x == 0) s.num_listed = 0;
    cluster.sync();
    list_tokens(cluster, s, row, [&](float value, int32_t id) { return key_of(value, id) >= last; });
    if (cluster.block_rank() == 0)
        write_top(s, log_total, args.top_ids + (int64_t)i * args.top_stride,
                  args.top_logprobs + (int64_t)i * args.top_stride);
    cluster.sync();
}

/* Few samples get more blocks each. The number of blocks does not change a result, but for the last bits of a sum. */
template <class Kernel>
static void launch_clusters(const struct cuda_state *s, Kernel kernel, const struct sample_args *args,
                            const struct sample_scratch *scratch)
{
    int cluster = 1;
    if (s->compute_capability >= 90)
        while (cluster < MAX_CLUSTER && args->num_samples * cluster * 2 <= s->num_sms) cluster *= 2;
    cuda_launch_kernel(s, kernel, {dim3(args->num_samples * cluster), THREADS, 0, cluster}, false, *args, *scratch);
}

void sample_cut(const struct cuda_state *s, const struct sample_args *args, const struct sample_scratch *scratch)
{
    launch_clusters(s, cut_kernel, args, scratch);
}

void sample_raw_statistics(const struct cuda_state *s, const struct sample_args *args,
                           const struct sample_scratch *scratch)
{
    launch_clusters(s, raw_kernel, args, scratch);
}
