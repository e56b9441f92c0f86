/* How attention of a decode step is split between blocks.
 *
 * A unit of work is one sequence and up to UNIT_HEADS query heads of one KV head. It reads the context in chunks of
 * CHUNK tokens. Long units are cut into parts, and each part is computed by a cluster of blocks (of one block if there
 * are many units). The blocks of a cluster combine their results through shared memory. With few sequences every unit
 * is one part, which saves writing results to global memory and reading them back. Otherwise the parts of a unit leave
 * their results in the workspace ("partials"), and the block that finishes last combines them.
 *
 * The length of a part is computed on the device: about 1 / `target` of all chunks of the call. So there are at most
 * `target` more parts than units, and a grid of units + target clusters is large enough for any lengths. This has three
 * effects: a graph that was captured for long contexts costs nothing extra on short ones, few sequences fill the GPU,
 * and one long sequence among many does not delay the others.
 *
 * Entries of a run (base/batch.h) are sequences that read nearly the same tokens. With short contexts each is computed
 * alone: they find K and V in the L2 cache, and there are more units to fill the GPU with. Where the context is long, a
 * unit has up to group_entries entries of the run, a group, and reads K and V once for all of them. That pays if it
 * saves LEAST_SAVED_CHUNKS chunks in all, supposing that the call's other entries are as these. It is decided on the
 * device, because a graph is captured before lengths and runs are known. The last entry of a group stands for it, and
 * the others have no work:
 *
 *     entry          0      1      2      3      4      5        a decode, and a run with room for 4 entries in a unit
 *     seq_lens       700    5001   5002   5003   5004   5005
 *     units of       0                           1-4    5 */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_DECODE_CUH
#define QUIRE_KERNELS_CUDA_ATTENTION_DECODE_CUH

#include "kernels/cuda/attention/attention.cuh"

enum { CHUNK = 16, UNIT_HEADS = 8, DECODE_WARPS = 4, LANES = 32, DECODE_THREADS = DECODE_WARPS * LANES };
enum { LEAST_GROUP_CHUNKS = 128, LEAST_SAVED_CHUNKS = 4096 };

struct decode_plan {
    int32_t cluster;        /* blocks of a part: 1, 2, 4 or 8 */
    int32_t target;         /* 0: every unit is one part */
    int32_t stages;         /* of a warp's ring: 1, 2, 4 or 8 */
    int32_t units_per_head; /* of a KV head */
    int32_t log_block_size;
    int32_t unit_heads;    /* most heads of a unit */
    int32_t group_entries; /* most entries of a group */
    /* The workspace. Only parts of units with several parts have a partial; there are at most 2 target of them. */
    uint32_t *counters; /* [2 target] at a unit's first partial: blocks that are finished; 0 between calls */
    float *partials;    /* [2 target][COLUMNS][HEAD] */
    float *stats;       /* [2 target][COLUMNS][2] maximum, sum */
};

/* Norms over the heads of query and key; gains NULL: none. */
struct decode_norms {
    const void *query_gain, *key_gain;
    enum dtype gain_dtype;
    float query_eps, key_eps;
};

/* For decode_attention: the step's own K and V, as the QKV matmul left them. Pointers and strides are those of
 * rotary_args and reshape_and_cache_args. */
struct decode_fresh {
    const void *key, *value; /* NULL: the query is rotated already, and K and V are in the cache */
    int64_t key_stride, value_stride;
    const int32_t *positions;
    const float *cos_sin; /* [, rotary_dim]; NULL: heads are not rotated */
    const int64_t *slots;
    struct decode_norms norms;
    int32_t rotary_dim;
    bool interleaved;
};

/* The tokens [first, end) that the queries of a group attend to, each up to its own, which are in chunks [chunk, chunk
 * + count). An entry of no group is a group of its own. count is 0 if the entry has no query token, or is not the last
 * of its group, and 1 if it has one that attends to nothing. */
struct decode_range {
    int32_t first, end;
    int32_t chunk, count;
    int32_t entries; /* of the group, which this is the last of */
    int32_t run;     /* tokens of the run up to this one */
};

/* What a block computes: chunks [begin, end) of a unit. A block may have none while others of its cluster have some. */
struct decode_work {
    int32_t seq;         /* of the call; of a group: its last entry */
    int32_t unit;        /* of the sequence */
    int32_t state_index; /* of the sequence */
    int32_t begin, end;
    int32_t part, parts;
    int32_t first_partial; /* that of the unit's part 0 */
    struct decode_range range;
};

/* Bit k: entry from + k continues the run of the entry before it. */
static __device__ __forceinline__ uint32_t continued_entries(const struct attention_call *call, int32_t from)
{
    const int32_t i = from + (int32_t)(threadIdx.x % LANES);
    const int32_t *lens = call->args.seq_lens + call->args.first_seq + i;
    const int32_t *state_indices = call->args.state_indices + call->args.first_seq + i;
    const bool there = i > 0 && i < call->args.num_seqs;
    return __ballot_sync(~0u, there && state_indices[0] == state_indices[-1] && lens[0] == lens[-1] + 1);
}

/* What continues what around an entry, whose own bit is WINDOW_BIT: for all lanes the same entry, or for each lane
 * entry `from` + lane. */
enum { WINDOW_BIT = 15 };
template <bool RUNS>
static __device__ __forceinline__ uint32_t window_of_one(const struct attention_call *call, int32_t i)
{
    return RUNS ? continued_entries(call, i - WINDOW_BIT) : 0;
}
template <bool RUNS>
static __device__ __forceinline__ uint32_t window_of_each(const struct attention_call *call, int32_t from)
{
    if (!RUNS) return 0;
    const uint64_t low = continued_entries(call, from - WINDOW_BIT);
    const uint64_t high = continued_entries(call, from - WINDOW_BIT + LANES);
    return (uint32_t)((low | high << LANES) >> threadIdx.x % LANES);
}

static __device__ __forceinline__ bool group_pays(const struct attention_call *call, int32_t chunks, int32_t entries)
{
    const int64_t saved = (int64_t)chunks * (entries - 1) * call->args.num_seqs;
    return chunks >= LEAST_GROUP_CHUNKS && saved >= (int64_t)LEAST_SAVED_CHUNKS * entries;
}

/* Entry i, with its window. A group is a part of a run, of as many entries as a unit has columns for, if that
 * pays. */
template <bool RUNS>
static __device__ __forceinline__ struct decode_range decode_range_of(const struct attention_call *call,
                                                                      const struct decode_plan *plan, int32_t i,
                                                                      uint32_t window)
{
    const int32_t seq = call->args.first_seq + i, end = call->args.seq_lens[seq];
    const int32_t query_len = call->args.query_start[seq + 1] - call->args.query_start[seq];
    int32_t run = 1;
    if (RUNS) {
        const int32_t before = min(__clz(~(window << (31 - WINDOW_BIT))), MAX_DRAFTS);
        const int32_t after = __ffs(~(window >> (WINDOW_BIT + 1))) - 1, place = before % plan->group_entries;
        const int32_t entries = min(place + 1 + after, plan->group_entries), last = end + entries - 1 - place;
        const int32_t first = attention_first(&call->params, end - 1 - place), chunk = first / CHUNK;
        const int32_t count = (last + CHUNK - 1) / CHUNK - chunk;
        run = before + 1;
        if (entries > 1 && group_pays(call, count, entries))
            return {first, end, chunk, place == entries - 1 ? count : 0, entries, run};
    }
    const int32_t first = attention_first(&call->params, end - 1), chunk = first / CHUNK;
    return {first, end, chunk, query_len > 0 ? max((end + CHUNK - 1) / CHUNK - chunk, 1) : 0, 1, run};
}

static __device__ __forceinline__ int64_t warp_inclusive_sum(int64_t x)
{
    for (int step = 1; step < LANES; step *= 2) {
        const int64_t other = __shfl_up_sync(~0u, x, step);
        if ((int)(threadIdx.x % LANES) >= step) x += other;
    }
    return x;
}

/* The parts of a sequence of `count` chunks, `share` chunks a part, in the high bits, and how many of these have a
 * partial in the low bits. */
enum { PARTIALS_BITS = 32 };
static __device__ __forceinline__ int64_t count_parts(int32_t count, int32_t share, int32_t units)
{
    const int64_t parts = (count + share - 1) / share, all = parts * units;
    return all << PARTIALS_BITS | (parts > 1 ? all : 0);
}

/* Narrows the work from the cluster's part to this block's share of it. */
static __device__ __forceinline__ void decode_share_part(struct decode_work *work, int32_t cluster)
{
    const int32_t share = (work->end - work->begin + cluster - 1) / cluster;
    work->begin = min(work->begin + (int32_t)blockIdx.x % cluster * share, work->end);
    work->end = min(work->begin + share, work->end);
}

/* On devices without clusters parts meet in global memory. That takes longer than to compute a unit of so few chunks in
 * one part. */
#if __CUDA_ARCH__ >= 900
static constexpr int32_t WHOLE_CHUNKS = 0;
#else
static constexpr int32_t WHOLE_CHUNKS = 4 * DECODE_WARPS;
#endif

/* Chunks of a call, and the sequences that have any. */
struct decode_sum {
    int32_t chunks, seqs;
};

template <bool RUNS>
static __device__ __forceinline__ struct decode_sum sum_chunks(const struct attention_call *call,
                                                               const struct decode_plan *plan)
{
    const int32_t num_seqs = call->args.num_seqs, lane = threadIdx.x % LANES;
    struct decode_sum sum = {0, 0};
    for (int32_t from = 0; from < num_seqs; from += LANES) {
        const uint32_t window = window_of_each<RUNS>(call, from);
        if (from + lane >= num_seqs) continue;
        const int32_t count = decode_range_of<RUNS>(call, plan, from + lane, window).count;
        sum.chunks += count;
        sum.seqs += count > 0;
    }
    return {__reduce_add_sync(~0u, sum.chunks), RUNS ? __reduce_add_sync(~0u, sum.seqs) : 0};
}

/* Chunks of a part, whole rounds of the warps. Clusters need longer parts to be worth their cost. With runs
 * there is little room beside the target, so units of one length are cut into equal parts: the chunks that are left
 * over would be a part that starts when another has ended. */
template <bool RUNS>
static __device__ __forceinline__ int32_t part_chunks(const struct decode_plan *plan, struct decode_sum sum,
                                                      int32_t units)
{
    if (WHOLE_CHUNKS > 0 && sum.chunks <= WHOLE_CHUNKS) return WHOLE_CHUNKS;
    const int32_t least = plan->cluster == 1 ? DECODE_WARPS : 4 * DECODE_WARPS * plan->cluster;
    int32_t target = plan->target;
    if (RUNS) target -= sum.seqs * units <= target ? target % max(sum.seqs * units, 1) : 0;
    const int32_t share = (int32_t)ceilf((float)sum.chunks * (float)units / (float)target);
    return max(share + DECODE_WARPS - 1, least) / DECODE_WARPS * DECODE_WARPS;
}

/* The sequence whose parts include part `index` of the call. The parts are ordered by lane, and a lane has every
 * LANES-th sequence. */
struct decode_owner {
    int32_t lane, seq;
    struct decode_range range;
    int64_t before; /* count_parts of all sequences before it */
};

/* False: the call has no such part. The warp adds up what its lanes count, and then goes through the sequences of the
 * lane that has part `index`. */
template <bool RUNS>
static __device__ __forceinline__ bool find_owner(struct decode_owner *owner, const struct attention_call *call,
                                                  const struct decode_plan *plan, int32_t index, int32_t share,
                                                  int32_t chunks, int32_t units)
{
    const int32_t num_seqs = call->args.num_seqs, lane = threadIdx.x % LANES;
    *owner = {};
    if (num_seqs > 1) {
        int64_t sum = 0;
        for (int32_t from = 0; from < num_seqs; from += LANES) {
            const uint32_t window = window_of_each<RUNS>(call, from);
            if (from + lane < num_seqs)
                sum += count_parts(decode_range_of<RUNS>(call, plan, from + lane, window).count, share, units);
        }
        const int64_t through = warp_inclusive_sum(sum);
        owner->lane = __popc(__ballot_sync(~0u, through >> PARTIALS_BITS <= index));
        if (owner->lane == LANES) return false;
        owner->before = __shfl_sync(~0u, through - sum, owner->lane);
    } else if (count_parts(chunks, share, units) >> PARTIALS_BITS <= index) {
        return false;
    }
    for (owner->seq = owner->lane;; owner->seq += LANES) {
        owner->range = decode_range_of<RUNS>(call, plan, owner->seq, window_of_one<RUNS>(call, owner->seq));
        const int64_t next = owner->before + count_parts(owner->range.count, share, units);
        if (next >> PARTIALS_BITS > index) return true;
        owner->before = next;
    }
}

/* The block's work; false: the whole cluster has none. Every warp finds it for itself. */
template <bool RUNS>
static __device__ __forceinline__ bool decode_work_of(struct decode_work *work, const struct attention_call *call,
                                                      const struct decode_plan *plan)
{
    const int32_t lane = threadIdx.x % LANES, num_seqs = call->args.num_seqs;
    const int32_t units = call->args.num_kv_heads * plan->units_per_head;
    const int32_t *state_indices = call->args.state_indices + call->args.first_seq;
    const int32_t index = (int32_t)blockIdx.x / plan->cluster;
    if (plan->target == 0) {
        const int32_t seq = index / units;
        const struct decode_range range = decode_range_of<RUNS>(call, plan, seq, window_of_one<RUNS>(call, seq));
        *work = {seq, index % units, state_indices[seq], 0, range.count, 0, 1, 0, range};
        return work->end > 0;
    }
    const int32_t lane_state_index = lane < num_seqs ? state_indices[lane] : 0; /* read together with the lengths */
    const struct decode_sum sum = sum_chunks<RUNS>(call, plan);
    const int32_t share = part_chunks<RUNS>(plan, sum, units);
    struct decode_owner owner;
    if (!find_owner<RUNS>(&owner, call, plan, index, share, sum.chunks, units)) return false;
    const int32_t count = owner.range.count, parts = (count + share - 1) / share;
    const int32_t place = (int32_t)(index - (owner.before >> PARTIALS_BITS));
    const int32_t unit = place / parts, part = place % parts;
    const int32_t state_index = __shfl_sync(~0u, lane_state_index, owner.lane);
    *work = {owner.seq,
             unit,
             owner.seq == owner.lane ? state_index : state_indices[owner.seq],
             part * share,
             min(count, (part + 1) * share),
             part,
             parts,
             (int32_t)owner.before + unit * parts,
             owner.range};
    decode_share_part(work, plan->cluster);
    return true;
}

#endif
