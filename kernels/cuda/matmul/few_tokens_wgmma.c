#include "kernels/cuda/matmul/few_tokens_wgmma.h"

enum {
    MIN_RING = 64 << 10, /* bytes, unless everything fits into fewer */
    IN_FLIGHT = 64 << 10 /* bytes in flight to each multiprocessor; more make reads slower */
};

static bool takes_format(const struct matmul *m)
{
    const bool whole_rows = m->group_size >= m->in_features;
    if (m->format == WEIGHT_FP8) return m->scale_dtype == DTYPE_FLOAT32 && (whole_rows || m->group_size == STEP);
    return m->format == WEIGHT_INT4 && m->in_features % INT4_SEGMENT == 0 && m->scale_rows == 1 &&
           (whole_rows || m->group_size % STEP == 0) && m->in_features / STEP * m->out_features <= INT32_MAX;
}

static bool takes(const struct matmul_device *d, const struct matmul *m)
{
    const bool shape = m->num_tokens >= 1 && m->num_tokens * places_of(m->dtype) <= FEW_TOKENS_WGMMA_MAX &&
                       m->in_features > 0 && m->in_features % 16 == 0 && m->in_features <= INT32_MAX / 64 &&
                       m->out_features > 0 && m->out_features <= INT32_MAX / 64;
    return d->has_wgmma && takes_format(m) && shape && matmul_is_aligned(m);
}

/* Shared memory, with the longest ring that fits. False: it is too short. */
static bool lay_out(const struct matmul_device *d, struct few_tokens_wgmma_layout *c)
{
    const enum weight_format format = c->matmul.format;
    const int n = columns_of(&c->matmul), steps = steps_of(c, format), stage = BOXES * c->slot_bytes;
    const int64_t x = (int64_t)steps * n * STEP, sums = 2 * sums_of(format, n) * (int64_t)sizeof(float);
    const int64_t factors = (int64_t)steps * n / 2 * scale_bytes_of(format);
    const int64_t squares = HALF_WARPS * n / 2 * (int64_t)sizeof(float), gain = few_tokens_gain_bytes(&c->matmul);
    const int64_t room = (int64_t)d->max_shared_bytes - 1024 - ALIGNMENT - x - sums - factors - squares - gain;
    const int64_t all = c->part_stages * cuda_div_up(c->tiles, c->columns);
    const int64_t scales = c->has_stage_scales ? BOXES * box_steps_of(format) * BOX_ROWS * scale_bytes_of(format) : 0;
    int64_t stages = room > 0 ? room / (stage + scales) : 0;
    if (stages < 2 || (stages < all && stages * stage < MIN_RING)) return false;
    if (stages > MAX_STAGES) stages = MAX_STAGES;
    if (stages > all) stages = all > 2 ? all : 2; /* the rest of shared memory is for the next kernel's blocks */
    c->stages = (int32_t)stages;
    c->x_at = (int32_t)stages * stage;
    c->sums_at = (int32_t)(c->x_at + x);
    c->factors_at = (int32_t)(c->sums_at + sums);
    c->squares_at = (int32_t)(c->factors_at + factors);
    c->gain_at = (int32_t)(c->squares_at + squares);
    c->scales_at = (int32_t)cuda_div_up(c->gain_at + gain, 16) * 16;
    c->shared_bytes = (int32_t)(ALIGNMENT + c->scales_at + stages * scales);
    return true;
}

/* Cuts the matmul into tiles of so many parts, of a size that gives all blocks the same to do. False: x does not fit.
 */
static bool plan_with(const struct matmul_device *d, int splits, struct few_tokens_wgmma_layout *c)
{
    const struct matmul *m = &c->matmul;
    const bool gated = m->result == MATMUL_GATE;
    const int64_t places = d->num_sms / splits;
    const int64_t rounds = cuda_div_up(cuda_div_up(m->out_features, BOX_ROWS), places);
    c->splits = splits;
    c->tile_rows = (int32_t)cuda_div_up(cuda_div_up(m->out_features, rounds * places), 8) * 8;
    c->tiles = (int32_t)cuda_div_up(m->out_features, c->tile_rows);
    c->columns = c->tiles < places ? c->tiles : (int32_t)places;
    c->features = gated ? c->tile_rows / 2 : c->tile_rows;
    c->inverse = (uint32_t)(((uint64_t)1 << 32) / (uint64_t)c->features + 1);
    c->slot_bytes = (gated ? BOX_ROWS : c->features) * BOX_ROW;
    c->all_stages = (int32_t)cuda_div_up(m->in_features, BOXES * box_steps_of(m->format) * STEP);
    c->part_stages = (int32_t)cuda_div_up(c->all_stages, splits);
    if ((splits - 1) * c->part_stages >= c->all_stages || !lay_out(d, c)) return false;
    c->in_flight = (int32_t)cuda_div_up(IN_FLIGHT, BOXES * c->tile_rows * BOX_ROW);
    if (c->in_flight > c->stages) c->in_flight = c->stages;
    return true;
}

/* An x that leaves too little for the ring is cut into two parts, but the norm needs all of it. */
bool few_tokens_wgmma_lay_out(const struct matmul_device *d, const struct matmul *m,
                              struct few_tokens_wgmma_layout *out)
{
    if (!takes(d, m)) return false;
    const int columns = columns_of(m);
    const bool is_large = m->in_features * columns > (columns == 8 ? 72 << 10 : 116 << 10);
    *out = (struct few_tokens_wgmma_layout){.matmul = *m};
    out->groups = (int32_t)cuda_div_up(m->in_features, m->group_size);
    out->group_steps = out->groups > 1 ? (int32_t)(m->group_size / STEP) : 1;
    out->scale_bytes = (int32_t)dtype_size(m->scale_dtype);
    out->has_stage_scales = m->format == WEIGHT_INT4 || out->groups > 1;
    out->loads_eight = m->format == WEIGHT_INT4 && out->scale_bytes == 2 && m->group_size == STEP &&
                       out->groups % 8 == 0 && cuda_is_aligned(m->scales) && (uintptr_t)m->zeros % 8 == 0;
    if (!plan_with(d, m->gain || !is_large ? 1 : 2, out)) return false;
    out->x_steps = m->in_features % STEP == 0 ? steps_of(out, m->format) : 1;
    return true;
}

bool few_tokens_wgmma_fits(const struct matmul_device *d, const struct matmul *m)
{
    struct few_tokens_wgmma_layout layout;
    return few_tokens_wgmma_lay_out(d, m, &layout);
}
