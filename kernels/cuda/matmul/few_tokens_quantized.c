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
    const bool aligned = cuda_is_aligned(m->weight) && cuda_is_aligned(m->x) && m->x_stride % 8 == 0 &&
                         (!m->gain || cuda_is_aligned(m->gain));
    const bool grouping = (m->scale_rows & (m->scale_rows - 1)) == 0 &&
                          (groups == 1 || (m->group_size >= smallest && (m->group_size & (m->group_size - 1)) == 0));
    return shape && aligned && grouping;
}

/* What follows from the size of a part and the number of blocks. Returns the bytes of shared memory. */
static int64_t lay_out(const struct matmul *m, int32_t stages, struct quantized_call *c)
{
    struct few_tokens_plan *plan = &c->base.plan;
    const int tokens = 8 * token_groups(m), features = unit_features(m->format), gain = m->gain_is_float ? 4 : 2;
    const int64_t tiles = cuda_div_up(few_tokens_tiles(m, TILE), plan->blocks / plan->splits); /* of a block */
    c->units = plan->part / features;
    c->unit_inverse = inverse_of(c->units);
    c->last_inverse = inverse_of((int)cuda_div_up(m->in_features - (plan->splits - 1) * (int64_t)plan->part, features));
    c->element_inverse = inverse_of(m->num_tokens * (m->result == MATMUL_GATE ? TILE / 2 : TILE));
    c->tiles = (int32_t)few_tokens_tiles(m, TILE);
    c->columns = plan->blocks / plan->splits;
    c->split_shift = __builtin_ctz((unsigned)plan->splits);
    const int64_t most = BATCH_UNITS * MMA_WARPS / c->units, wanted = most < 1           ? 1
                                                                      : most < MAX_BATCH ? most
                                                                                         : (int64_t)MAX_BATCH;
    const int64_t batches = cuda_div_up(tiles, wanted);
    c->batch = (int32_t)cuda_div_up(tiles, batches);
    c->sum_slots = (int32_t)cuda_div_up(cuda_div_up(c->batch * c->units, MMA_WARPS), c->units) + 1;
    if (c->sum_slots > c->batch) c->sum_slots = c->batch;
    /* In so many stages a warp begins that many blocks of scales at most, and it still reads the one before. */
    const int block_features = c->group_shift == WHOLE_ROW ? plan->part : SCALE_BLOCK << c->group_shift;
    const int block_units = block_features / features > 1 ? block_features / features : 1;
    c->scale_slots = c->grouped ? stages / c->units + stages / block_units + 3 : 0;
    if (c->scale_slots > stages + 1) c->scale_slots = stages + 1;
    c->sum_bytes = (batches > 1 ? 2 : 1) * MMA_WARPS * c->sum_slots * tokens * TILE * (int32_t)sizeof(float);
    c->x_sum_bytes = m->format == WEIGHT_INT4 ? c->units * (4 / c->fold_words) * tokens * (int32_t)sizeof(float) : 0;
    c->gain_bytes = m->gain && m->num_tokens <= GAIN_TOKENS ? plan->part * gain : 0;
    plan->stages = stages;
    plan->x_bytes = m->num_tokens * (2 * plan->part + X_SKEW);
    const int64_t bytes = (int64_t)stages * STAGE + MMA_WARPS * c->scale_slots * scale_block_bytes(c->scale_size) +
                          c->sum_bytes + c->x_sum_bytes + c->gain_bytes + plan->x_bytes;
    plan->shared_bytes = (int32_t)bytes;
    return bytes;
}

/* With so many blocks on a multiprocessor, and each tile in so many parts; with the longest ring that fits. */
static bool plan_with(const struct matmul_device *d, const struct matmul *m, int per_sm, int splits,
                      struct quantized_call *c)
{
    static const int32_t stages[] = {8, 5, 3}; /* wait_oldest knows these */
    const int64_t units = cuda_div_up(m->in_features, unit_features(m->format)), tiles = few_tokens_tiles(m, TILE);
    const int64_t sums = (int64_t)token_groups(m) * 8 * TILE * (int64_t)sizeof(float);
    const int64_t part = cuda_div_up(units, splits) * unit_features(m->format);
    const int64_t room = (d->max_shared_bytes + 1024) / per_sm - 2048, columns = d->num_sms * per_sm / splits;
    if (splits > 1 && ((splits - 1) * part >= m->in_features || !d->has_partials || tiles > MAX_SPLIT_TILES ||
                       splits * tiles * sums > PARTIAL_BYTES))
        return false;
    c->base.plan = (struct few_tokens_plan){0};
    c->base.plan.splits = splits;
    c->base.plan.part = (int32_t)part;
    c->base.plan.blocks = (int32_t)(columns < tiles ? columns : tiles) * splits;
    for (int i = 0; i < 3; i++)
        if (lay_out(m, stages[i], c) <= room) return true;
    return false;
}

/* Two blocks for each multiprocessor if they fit, with tiles in as few parts as possible. Many sums cost more to add
 * than a second block gains. */
static bool plan_quantized(const struct matmul_device *d, const struct matmul *m, struct quantized_call *c)
{
    if (plan_with(d, m, 2, 1, c)) return true;
    if (token_groups(m) > 1 && plan_with(d, m, 1, 1, c)) return true;
    for (int per_sm = 2; per_sm > 0; per_sm--)
        for (int splits = 1; splits <= 16; splits *= 2)
            if (plan_with(d, m, per_sm, splits, c)) return true;
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
    return plan_quantized(d, m, out);
}

bool few_tokens_quantized_fits(const struct matmul_device *d, const struct matmul *m)
{
    struct quantized_call call;
    return few_tokens_quantized_lay_out(d, m, &call);
}
