/* How decode is shared between blocks.
 *
 * A unit of work is one sequence and up to UNIT_HEADS query heads of one KV head; it walks the context in chunks of
 * CHUNK tokens. Long units are cut in parts, a cluster of blocks each (of one block, if there are many units). The
 * blocks of a cluster join their results through shared memory: with few sequences that is all, and saves a way through
 * global memory and back. The parts of a unit in several leave theirs in the workspace, and the block that comes last
 * joins them.
 *
 * The length of a part is decided on the device: about 1 / `target` of all chunks of the call. So there are never more
 * than `target` parts beyond one a unit, and a grid of units + target clusters has room for any lengths: a graph
 * captured for long contexts costs nothing extra on short ones, few sequences fill the GPU, and one long sequence among
 * many does not keep the others' blocks waiting. */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_DECODE_CUH
#define QUIRE_KERNELS_CUDA_ATTENTION_DECODE_CUH

#include "kernels/cuda/attention.cuh"

enum { CHUNK = 16, UNIT_HEADS = 8, DECODE_WARPS = 4, LANES = 32, DECODE_THREADS = DECODE_WARPS * LANES };

struct decode_plan {
    int32_t cluster;        /* blocks: 1, 2, 4 or 8 */
    int32_t target;         /* 0: every unit in one part */
    int32_t stages;         /* of a warp's ring: 2, 4 or 8 */
    int32_t units_per_head; /* of a KV head */
    int32_t log_block_size;
    /* Of the parts of units in several parts, no more than 2 target; a slot each. */
    uint32_t *counters; /* by a unit's first slot: blocks that left their results; 0 between calls */
    float *partials;    /* [2 target][UNIT_HEADS][HEAD] */
    float *stats;       /* [2 target][UNIT_HEADS][2] maximum, sum */
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
    const float *cos_sin; /* [, head_size]; NULL: heads are not rotated */
    const int64_t *slots;
    struct decode_norms norms;
};

/* What a block computes: chunks [begin, end) of a unit, none perhaps where another block of its cluster has some. */
struct decode_work {
    int32_t seq, unit; /* in the call; in the sequence */
    int32_t slot;      /* state_indices of that sequence */
    int32_t begin, end;
    int32_t part, parts, first_slot;
};

/* The tokens that a decode query sees are [first, end). */
struct decode_range {
    int32_t first, end;
    int32_t chunk, count; /* its chunks are [chunk, chunk + count); no query: 0; nothing to see: one, of nothing */
};

static __device__ __forceinline__ struct decode_range decode_range_of(const struct attention_call *call, int32_t i)
{
    const int32_t seq = call->args.first_seq + i, end = call->args.seq_lens[seq];
    const int32_t query_len = call->args.query_start[seq + 1] - call->args.query_start[seq];
    const int32_t first = attention_first(&call->params, end - 1), chunk = first / CHUNK;
    return {first, end, chunk, query_len > 0 ? max((end + CHUNK - 1) / CHUNK - chunk, 1) : 0};
}

static __device__ __forceinline__ int64_t warp_inclusive_sum(int64_t x)
{
    for (int step = 1; step < LANES; step *= 2) {
        const int64_t other = __shfl_up_sync(~0u, x, step);
        if ((int)(threadIdx.x % LANES) >= step) x += other;
    }
    return x;
}

/* Blocks and slots of a sequence of `count` chunks in parts of `share`, both in one number. */
enum { SLOTS_BITS = 32 };
static __device__ __forceinline__ int64_t decode_blocks(int32_t count, int32_t share, int32_t units)
{
    const int64_t parts = (count + share - 1) / share, blocks = parts * units;
    return blocks << SLOTS_BITS | (parts > 1 ? blocks : 0);
}

/* The block's share of its cluster's part. */
static __device__ __forceinline__ void decode_share_part(struct decode_work *work, int32_t cluster)
{
    const int32_t share = (work->end - work->begin + cluster - 1) / cluster;
    work->begin = min(work->begin + (int32_t)blockIdx.x % cluster * share, work->end);
    work->end = min(work->begin + share, work->end);
}

/* The block's work; false: none for the whole cluster. Every warp finds it for itself: a lane adds up every LANES-th
 * sequence, the warp the lanes' sums, and those of the lane that the cluster falls to are walked. */
static __device__ __forceinline__ bool decode_work_of(struct decode_work *work, const struct attention_call *call,
                                                      const struct decode_plan *plan)
{
    const int32_t lane = threadIdx.x % LANES, num_seqs = call->args.num_seqs;
    const int32_t units = call->args.num_kv_heads * plan->units_per_head;
    const int32_t *slots = call->args.state_indices + call->args.first_seq;
    const int32_t index = (int32_t)blockIdx.x / plan->cluster;
    if (plan->target == 0) {
        const int32_t seq = index / units;
        *work = {seq, index % units, slots[seq], 0, decode_range_of(call, seq).count, 0, 1, 0};
        return work->end > 0;
    }
    const int32_t slot = lane < num_seqs ? slots[lane] : 0; /* at once with the lengths: it is waited for */
    int32_t lane_chunks = 0;
    for (int32_t i = lane; i < num_seqs; i += LANES) lane_chunks += decode_range_of(call, i).count;
    const int32_t chunks = __reduce_add_sync(~0u, lane_chunks);
    const int32_t least = plan->cluster == 1 ? DECODE_WARPS : 4 * DECODE_WARPS * plan->cluster;
    int32_t share = (int32_t)ceilf((float)chunks * (float)units / (float)plan->target);
    share = max(share + DECODE_WARPS - 1, least) / DECODE_WARPS * DECODE_WARPS;
    int64_t sum = 0, before = 0;
    int32_t owner = 0;
    if (num_seqs > 1) {
        for (int32_t i = lane; i < num_seqs; i += LANES)
            sum += decode_blocks(decode_range_of(call, i).count, share, units);
        const int64_t through = warp_inclusive_sum(sum);
        owner = __popc(__ballot_sync(~0u, through >> SLOTS_BITS <= index));
        if (owner == LANES) return false;
        before = __shfl_sync(~0u, through - sum, owner);
    } else if (decode_blocks(chunks, share, units) >> SLOTS_BITS <= index) {
        return false;
    }
    int32_t seq = owner, count;
    for (;; seq += LANES) {
        count = decode_range_of(call, seq).count;
        const int64_t next = before + decode_blocks(count, share, units);
        if (next >> SLOTS_BITS > index) break;
        before = next;
    }
    const int32_t parts = (count + share - 1) / share, place = (int32_t)(index - (before >> SLOTS_BITS));
    const int32_t unit = place / parts, part = place % parts;
    const int32_t owner_state_index = __shfl_sync(~0u, slot, owner);
    *work = {seq,
             unit,
             seq == owner ? owner_state_index : slots[seq],
             part * share,
             min(count, (part + 1) * share),
             part,
             parts,
             (int32_t)before + unit * parts};
    decode_share_part(work, plan->cluster);
    return true;
}

#endif
