#include "kernels/cuda/matmul/few_tokens_quantized.h"

enum { BATCH_UNITS = 32 /* of a warp, about */ };

/* a / b by multiplication, a * b < 2^32. */
static inline uint32_t inverse_of(int b)
{
    return b == 1 ? 0 : (uint32_t)((((uint64_t)1 << 32) + b - 1) / b);
}

static bool can_compute(const struct matmul *m, int64_t groups)
{
    const int features = m->format == WEIGHT_INT4 ? INT4_SEGMENT : 16, smallest = m->format == WEIGHT_INT4 ? 32 : 64;
    const bool shape = m->num_tokens >= 1 && m->num_tokens <= FEW_TOKENS_MAX && m->in_features > 0 &&
                       m->in_features % features == 0 && m->in_features <= 1 << 21 && m->out_features > 0 &&
                       few_tokens_tiles(m, TILE) <= INT32_MAX / 64 && m->out_features <= INT32_MAX / 64;
    const bool grouping = (m->scale_rows & (m->scale_rows - 1)) == 0 &&
                          (groups == 1 || (m->group_size >= smallest && (m->group_size & (m->group_size - 1)) == 0));
    return shape && m->format != WEIGHT_MXFP4 && matmul_is_aligned(m) && grouping;
}

/* Tiles whose sums are added together, with room for the sums: of as many units as pays, in batches of one size.
 * Returns the number of batches of a block. */
static int64_t lay_out_batches(struct quantized_call *c, int32_t units)
{
    const struct few_tokens_plan *plan = &c->base.plan;
    const int64_t tiles = cuda_div_up(plan->tiles, plan->columns); /* of a block */
    const int64_t most = BATCH_UNITS * MMA_WARPS / units;
    const int64_t batches = cuda_div_up(tiles, most < 1 ? 1 : most < MAX_BATCH ? most : (int64_t)MAX_BATCH);
    c->batch = (int32_t)cuda_div_up(tiles, batches);
    c->sum_slots = (int32_t)cuda_div_up(cuda_div_up(c->batch * units, MMA_WARPS), units) + 1;
    if (c->sum_slots > c->batch) c->sum_slots = c->batch;
    return batches;
}

/* The blocks of scales that there is room for: in so many stages a warp begins that many blocks at most, and it still
 * reads the one before. */
static int32_t scale_slots(const struct quantized_call *c, int32_t stages, int32_t units)
{
    const struct few_tokens_plan *plan = &c->base.plan;
    const int32_t block_features = c->group_shift == WHOLE_ROW ? plan->part : SCALE_BLOCK << c->group_shift;
    const int32_t block_units = block_features / plan->chunk > 1 ? block_features / plan->chunk : 1;
    const int32_t slots = stages / units + stages / block_units + 3;
    return !c->grouped ? 0 : slots > stages + 1 ? stages + 1 : slots;
}

/* What follows from the size of a part and the number of blocks. Returns the bytes of shared memory. */
static int64_t lay_out(int32_t stages, struct quantized_call *c)
{
    const struct matmul *m = &c->base.matmul;
    struct few_tokens_plan *plan = &c->base.plan;
    const int32_t units = plan->part / plan->chunk, tokens = 8 * token_groups(m);
    const int64_t last = m->in_features - (plan->splits - 1) * (int64_t)plan->part;
    c->unit_inverse = inverse_of(units);
    c->last_inverse = inverse_of((int)cuda_div_up(last, plan->chunk));
    c->element_inverse = inverse_of(m->num_tokens * (m->result == MATMUL_GATE ? TILE / 2 : TILE));
    const int64_t batches = lay_out_batches(c, units);
    c->scale_slots = scale_slots(c, stages, units);
    c->sum_bytes = (batches > 1 ? 2 : 1) * MMA_WARPS * c->sum_slots * tokens * TILE * (int32_t)sizeof(float);
    c->x_sum_bytes = m->format == WEIGHT_INT4 ? units * (4 / c->fold_words) * tokens * (int32_t)sizeof(float) : 0;
    c->gain_bytes = m->gain && m->num_tokens <= GAIN_TOKENS ? plan->part * (m->gain_is_float ? 4 : 2) : 0;
    plan->stages = stages;
    const int64_t bytes = (int64_t)stages * STAGE + MMA_WARPS * c->scale_slots * scale_block_bytes(c->scale_size) +
                          c->sum_bytes + c->x_sum_bytes + c->gain_bytes + m->num_tokens * plan->x_row;
    plan->shared_bytes = (int32_t)bytes;
    return bytes;
}

/* Plans for so many blocks on a multiprocessor and each tile in so many parts, with the longest ring that fits. False:
 * no ring fits, or no workspace for the parts. */
static bool plan_with(const struct matmul_device *d, int per_sm, int splits, struct quantized_call *c)
{
    static const int32_t stages[] = {8, 5, 3}; /* wait_oldest knows these */
    const struct matmul *m = &c->base.matmul;
    const int32_t tile_bytes = token_groups(m) * 8 * TILE * (int32_t)sizeof(float);
    const int64_t room = (d->max_shared_bytes + 1024) / per_sm - 2048;
    c->base.plan = few_tokens_split(m, d->num_sms * per_sm, splits, unit_features(m->format), TILE, X_SKEW);
    if (!few_tokens_has_parts(d, m, &c->base.plan, tile_bytes)) return false;
    for (int i = 0; i < 3; i++)
        if (lay_out(stages[i], c) <= room) return true;
    return false;
}

/* Two blocks for each multiprocessor if they fit, with tiles in as few parts as possible. Many sums cost more to add
 * than a second block gains. */
static bool plan_quantized(const struct matmul_device *d, struct quantized_call *c)
{
    if (plan_with(d, 2, 1, c)) return true;
    if (token_groups(&c->base.matmul) > 1 && plan_with(d, 1, 1, c)) return true;
    for (int per_sm = 2; per_sm > 0; per_sm--)
        for (int splits = 1; splits <= 16 && splits <= per_sm * d->num_sms; splits *= 2)
            if (plan_with(d, per_sm, splits, c)) return true;
    return false;
}

bool few_tokens_quantized_lay_out(const struct matmul_device *d, const struct matmul *m, struct quantized_call *out)
{
    const int64_t groups = cuda_div_up(m->in_features, m->group_size);
    if (!can_compute(m, groups)) return false;
    *out = (struct quantized_call){.base.matmul = *m};
    out->grouped = groups > 1 || m->format == WEIGHT_INT4;
    out->groups = (int32_t)groups;
    out->scale_shift = __builtin_ctzll((uint64_t)m->scale_rows);
    out->group_shift = groups == 1 ? WHOLE_ROW : __builtin_ctzll((uint64_t)m->group_size);
    out->fold_words = groups == 1 || m->group_size >= INT4_SEGMENT ? 4 : (int32_t)m->group_size / 32;
    out->scale_size = dtype_size(m->scale_dtype);
    out->can_copy = groups % SCALE_BLOCK == 0 && cuda_is_aligned(m->scales) && ((uintptr_t)m->zeros & 7) == 0;
    return plan_quantized(d, out);
}

bool few_tokens_quantized_fits(const struct matmul_device *d, const struct matmul *m)
{
    struct quantized_call call;
    return few_tokens_quantized_lay_out(d, m, &call);
}
