#include "kernels/cuda/matmul/few_tokens.h"

enum {
    SHORT_BYTES = 600 << 10, /* a weight of fewer bytes than this for each multiprocessor gets large chunks */
    IN_FLIGHT = 64 << 10,    /* bytes in flight to each multiprocessor; many more make reads slower */
    MAX_PARTS = 16
};

struct few_tokens_plan few_tokens_split(const struct matmul *m, int32_t places, int32_t splits, int32_t chunk,
                                        int32_t tile, int32_t skew)
{
    const int32_t part = (int32_t)(cuda_div_up(cuda_div_up(m->in_features, splits), chunk) * chunk);
    const int32_t tiles = (int32_t)few_tokens_tiles(m, tile);
    const int32_t columns = places / splits < tiles ? places / splits : tiles;
    return (struct few_tokens_plan){.blocks = columns * splits,
                                    .columns = columns,
                                    .splits = splits,
                                    .split_shift = __builtin_ctz((unsigned)splits),
                                    .tiles = tiles,
                                    .part = part,
                                    .chunk = chunk,
                                    .cluster = 1,
                                    .x_row = 2 * part + skew};
}

bool few_tokens_has_parts(const struct matmul_device *d, const struct matmul *m, const struct few_tokens_plan *plan,
                          int32_t tile_bytes)
{
    return plan->splits == 1 ||
           ((plan->splits - 1) * (int64_t)plan->part < m->in_features && d->has_partials &&
            plan->tiles <= MAX_SPLIT_TILES && plan->splits * (int64_t)plan->tiles * tile_bytes <= PARTIAL_BYTES);
}

/* Sizes and alignments that few_tokens.cu and matmul_chain.cu take. */
static bool can_compute(const struct matmul *m)
{
    return m->num_tokens >= 1 && m->num_tokens <= FEW_TOKENS_MAX && m->in_features > 0 && m->in_features % 8 == 0 &&
           m->in_features <= INT32_MAX / 64 && m->out_features > 0 &&
           few_tokens_tiles(m, FEW_TOKENS_TILE) <= INT32_MAX / 64 && matmul_is_aligned(m);
}

/* The most parts of a tile: each is computed by a block, one on each multiprocessor. */
static int32_t most_splits(const struct matmul_device *d)
{
    return d->num_sms < MAX_PARTS ? d->num_sms : MAX_PARTS;
}

/* Finishes a plan of one of the two kernels, with the longest ring that fits, at most of `stages` stages. A block keeps
 * the sums of a tile of each warp, twice. stages is 0 if fewer than `least` fit, or if the matmul cannot have so many
 * parts: the norm of x needs all of x. */
static struct few_tokens_plan with_ring(const struct matmul_device *d, const struct matmul *m,
                                        struct few_tokens_plan plan, int32_t tile_bytes, int32_t stage_bytes,
                                        int32_t least, int32_t stages)
{
    const int64_t fixed = (int64_t)m->num_tokens * plan.x_row + 2 * MMA_WARPS * tile_bytes + few_tokens_gain_bytes(m);
    const int64_t room = (d->max_shared_bytes - 1024 - fixed) / stage_bytes; /* 1024: static shared memory */
    plan.stages = room < stages ? (int32_t)room : stages;
    if (plan.stages < least || (plan.splits > 1 && m->gain) || !few_tokens_has_parts(d, m, &plan, tile_bytes))
        plan.stages = 0;
    plan.shared_bytes = (int32_t)(plan.stages * (int64_t)stage_bytes + fixed);
    return plan;
}

/* few_tokens.cu with so many splits and input features a chunk. A ring that is longer than what a block has to read
 * would take shared memory from the next kernel's blocks. Sums are those of the tokens padded to groups of 8. */
static struct few_tokens_plan plan_of(const struct matmul_device *d, const struct matmul *m, int32_t splits,
                                      int32_t chunk)
{
    const int32_t tile_bytes = (m->num_tokens <= 8 ? 8 : 16) * FEW_TOKENS_TILE * (int32_t)sizeof(float);
    struct few_tokens_plan plan = few_tokens_split(m, d->num_sms, splits, chunk, FEW_TOKENS_TILE, SKEW);
    const int64_t chunks = cuda_div_up(plan.tiles, plan.columns) * (plan.part / chunk); /* of a block */
    const int32_t most = chunks > FEW_TOKENS_MAX_STAGES ? FEW_TOKENS_MAX_STAGES : chunks < 2 ? 2 : (int32_t)chunks;
    plan = with_ring(d, m, plan, tile_bytes, FEW_TOKENS_TILE * (2 * chunk + SKEW), 2, most);
    plan.in_flight = IN_FLIGHT / (FEW_TOKENS_TILE * 2 * chunk);
    if (plan.in_flight > plan.stages) plan.in_flight = plan.stages;
    if (splits == 1 && plan.blocks % 2 == 0 && m->num_tokens > 2) plan.cluster = 2;
    return plan;
}

/* matmul_chain.cu, with the fewest parts that leave room for enough stages: two where a multiprocessor has up to 100
 * KiB of shared memory, because the memory of such devices is slow, four elsewhere. The kernel has 8, 4 or 2. */
static bool chain_plan(const struct matmul_device *d, const struct matmul *m, struct few_tokens_plan *out)
{
    const int32_t least = d->max_shared_bytes <= 100 << 10 ? 2 : 4;
    *out = (struct few_tokens_plan){0};
    if (m->num_tokens > CHAIN_MAX_TOKENS) return false;
    for (int32_t splits = 1; splits <= most_splits(d) && out->stages == 0; splits *= 2) {
        const struct few_tokens_plan plan = few_tokens_split(m, d->num_sms, splits, CHAIN_CHUNK, CHAIN_TILE, SKEW);
        for (int32_t stages = CHAIN_MAX_STAGES; stages >= least && out->stages == 0; stages /= 2)
            *out = with_ring(d, m, plan, CHAIN_MAX_TOKENS * CHAIN_TILE * (int32_t)sizeof(float),
                             2 * CHAIN_TILE * CHAIN_CHUNK, stages, stages);
    }
    return out->stages > 0;
}

/* Copies of large chunks start sooner, those of small chunks finish more evenly, so a block that has little to read
 * gets large chunks. */
bool few_tokens_plan(const struct matmul_device *d, const struct matmul *m, struct few_tokens_plan *out)
{
    if (!can_compute(m)) return false;
    if (d->compute_capability < 90) return chain_plan(d, m, out);
    const bool is_short = m->out_features * m->in_features * 2 < (int64_t)SHORT_BYTES * d->num_sms;
    *out = plan_of(d, m, 1, is_short ? 1024 : 512);
    if (out->stages >= 3) return true;
    for (int32_t splits = 1; splits <= most_splits(d) && out->stages < 4; splits *= 2) {
        const struct few_tokens_plan plan = plan_of(d, m, splits, 512);
        if (plan.stages > out->stages) *out = plan;
    }
    return out->stages >= 2;
}
