#include "kernels/cuda/matmul/few_tokens.h"

enum {
    SHORT_BYTES = 600 << 10, /* a weight of fewer bytes than this for each multiprocessor gets large chunks */
    IN_FLIGHT = 64 << 10,    /* bytes in flight to each multiprocessor; many more make reads slower */
    MAX_PARTS = 16
};

/* Bytes of dynamic shared memory that a block may have: what is left beside the static shared memory. */
static int64_t room_of(const struct matmul_device *d)
{
    return d->max_shared_bytes - 1024;
}

/* Whether a matmul can be computed in `splits` parts of `part` input features each. The norm of x needs all of x, and
 * the sums of a part, `sum_bytes` for all tiles, need a workspace. */
static bool can_split(const struct matmul_device *d, const struct matmul *m, int32_t splits, int64_t part,
                      int64_t tiles, int64_t sum_bytes)
{
    return splits == 1 || ((splits - 1) * part < m->in_features && d->has_partials && !m->gain &&
                           tiles <= MAX_SPLIT_TILES && splits * sum_bytes <= PARTIAL_BYTES);
}

static int64_t gain_bytes(const struct matmul *m)
{
    return m->gain ? m->in_features * (m->gain_is_float ? 4 : 2) : 0;
}

/* ---- few_tokens.cu ---- */

static int64_t stage_bytes(int32_t chunk)
{
    return FEW_TOKENS_TILE * (2 * chunk + SKEW);
}

/* Sizes and alignments that this kernel and matmul_chain.cu take. */
static bool can_compute(const struct matmul *m)
{
    const bool shape = m->num_tokens >= 1 && m->num_tokens <= FEW_TOKENS_MAX && m->in_features > 0 &&
                       m->in_features % 8 == 0 && m->in_features <= INT32_MAX / 64 && m->out_features > 0 &&
                       few_tokens_tiles(m, FEW_TOKENS_TILE) <= INT32_MAX / 64;
    const bool aligned = cuda_is_aligned(m->weight) && cuda_is_aligned(m->x) && m->x_stride % 8 == 0 &&
                         (!m->gain || cuda_is_aligned(m->gain));
    return shape && aligned;
}

/* A plan with that many splits and input features a chunk; stages is 0 if that does not fit. The sums of a tile are
 * those of its tokens padded to groups of 8, of each warp, twice. */
static struct few_tokens_plan plan_of(const struct matmul_device *d, const struct matmul *m, int32_t splits,
                                      int32_t chunk)
{
    const int64_t sums = (int64_t)(m->num_tokens <= 8 ? 8 : 16) * FEW_TOKENS_TILE * (int64_t)sizeof(float);
    const int64_t tiles = few_tokens_tiles(m, FEW_TOKENS_TILE);
    const int64_t part = cuda_div_up(cuda_div_up(m->in_features, splits), chunk) * chunk;
    const int64_t x = m->num_tokens * (2 * part + SKEW);
    const int64_t fixed = x + 2 * MMA_WARPS * sums + gain_bytes(m);
    const int64_t blocks = d->num_sms / splits < tiles ? d->num_sms / splits : tiles;
    const int64_t most = cuda_div_up(tiles, blocks) * (part / chunk); /* chunks that a block has to read */
    struct few_tokens_plan plan = {0};
    if (!can_split(d, m, splits, part, tiles, tiles * sums)) return plan;
    int64_t stages = (room_of(d) - fixed) / stage_bytes(chunk);
    if (stages < 2) return plan;
    if (stages > FEW_TOKENS_MAX_STAGES) stages = FEW_TOKENS_MAX_STAGES;
    if (stages > most) stages = most > 2 ? most : 2; /* the rest of shared memory is for the next kernel's blocks */
    plan.splits = splits;
    plan.part = (int32_t)part;
    plan.chunk = chunk;
    plan.stages = (int32_t)stages;
    plan.in_flight = IN_FLIGHT / (FEW_TOKENS_TILE * 2 * chunk);
    if (plan.in_flight > plan.stages) plan.in_flight = plan.stages;
    plan.blocks = (int32_t)blocks * splits;
    plan.cluster = splits == 1 && plan.blocks % 2 == 0 && m->num_tokens > 2 ? 2 : 1;
    plan.x_bytes = (int32_t)x;
    plan.shared_bytes = (int32_t)(plan.stages * stage_bytes(chunk) + fixed);
    return plan;
}

/* ---- matmul_chain.cu ---- */

static struct few_tokens_plan chain_plan_of(const struct matmul_device *d, const struct matmul *m, int32_t splits,
                                            int32_t stages)
{
    const int64_t part = cuda_div_up(cuda_div_up(m->in_features, splits), CHAIN_CHUNK) * CHAIN_CHUNK;
    const int64_t tiles = few_tokens_tiles(m, CHAIN_TILE), x = m->num_tokens * (2 * part + SKEW);
    const int64_t sums = CHAIN_MAX_TOKENS * CHAIN_TILE * (int64_t)sizeof(float);
    const int64_t bytes = (int64_t)stages * 2 * CHAIN_TILE * CHAIN_CHUNK + x + 2 * MMA_WARPS * sums + gain_bytes(m);
    const int64_t blocks = d->num_sms / splits < tiles ? d->num_sms / splits : tiles;
    struct few_tokens_plan plan = {0};
    if (bytes > room_of(d) || !can_split(d, m, splits, part, tiles, tiles * sums)) return plan;
    plan.splits = splits;
    plan.part = (int32_t)part;
    plan.chunk = CHAIN_CHUNK;
    plan.stages = plan.in_flight = stages;
    plan.blocks = (int32_t)blocks * splits;
    plan.cluster = 1;
    plan.x_bytes = (int32_t)x;
    plan.shared_bytes = (int32_t)bytes;
    return plan;
}

/* The fewest parts that leave room for enough stages: two where a multiprocessor has up to 100 KiB of shared memory,
 * because the memory of such devices is slow, four elsewhere. */
static bool chain_plan(const struct matmul_device *d, const struct matmul *m, struct few_tokens_plan *out)
{
    const int32_t least = d->max_shared_bytes <= 100 << 10 ? 2 : 4;
    const int32_t most = d->num_sms < MAX_PARTS ? d->num_sms : MAX_PARTS;
    *out = (struct few_tokens_plan){0};
    if (m->num_tokens > CHAIN_MAX_TOKENS) return false;
    for (int32_t splits = 1; splits <= most && out->stages == 0; splits *= 2)
        for (int32_t stages = CHAIN_MAX_STAGES; stages >= least && out->stages == 0; stages /= 2)
            *out = chain_plan_of(d, m, splits, stages);
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
    for (int32_t splits = 1; splits <= MAX_PARTS && out->stages < 4; splits *= 2) {
        const struct few_tokens_plan plan = plan_of(d, m, splits, 512);
        if (plan.stages > out->stages) *out = plan;
    }
    return out->stages >= 2;
}
