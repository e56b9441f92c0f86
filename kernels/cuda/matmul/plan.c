#include "kernels/cuda/matmul/plan.h"

#include <assert.h>
#include <limits.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/matmul/few_tokens.h"

/* Where one kernel becomes faster than another, in tokens; kernels/MEASURED.md and kernels/TRIED.md have the
 * measurements. */
enum {
    /* few_tokens before linear_wgmma: all of x in every block leaves the less room for weights the larger it is. */
    FEW_TOKENS_BEST = 8,
    FEW_TOKENS_BEST_ELEMENTS = 20480, /* of x */
    LINEAR_WGMMA_MAX = 64,            /* cuBLAS is faster from 128 on */
    /* few_tokens_quantized, which does not take MXFP4, before the kernels for a batch of tokens. */
    WGMMA_INT4_MIN = 5,
    WGMMA_MIN = 9,
    MMA_MIN = 9,
    LINEAR_WGMMA_INT4_MAX = 32,
    SPLIT_ROWS_MAX = 80,   /* of a segment */
    BLOCKS_MAX = 64,       /* of a tile of row segments by blocks with a scale each */
    MMA_MAX = 512,         /* cuBLAS is faster from here on, dequantizing included; */
    DEQUANTIZE_MIN = 6144, /* on Hopper from here on */
    /* x keeps its 16 bits where that takes no longer: with so many tokens, or with FEW_TOKENS_WGMMA_MAX if linear_wgmma
     * takes more. */
    ROWS_MIN = 17
};

enum { MMA_MAX_FEATURES = 1 << 21 /* of linear_mma_quantized, so that offsets in a tile are 32-bit */ };

/* ---- what each kernel takes ---- */

/* The kernels but cuBLAS and linear_mixed: 16-bit floats, all of one type, and weights of that type or quantized. */
static bool takes_types(const struct matmul_question *q)
{
    const struct matmul *m = &q->matmul;
    return (matmul_is_quantized(m) || m->format == weight_format_of(m->dtype)) &&
           (!m->bias || q->bias_dtype == m->dtype) && (m->dtype == DTYPE_FLOAT16 || m->dtype == DTYPE_BFLOAT16) &&
           (q->out_dtype == m->dtype || (q->out_dtype == DTYPE_FLOAT32 && m->result == MATMUL_STORE));
}

static bool takes_norm(const struct norm_params *norm, enum dtype dtype)
{
    return norm->gain && norm->type == NORM_RMS && (norm->gain_dtype == DTYPE_FLOAT32 || norm->gain_dtype == dtype);
}

static bool linear_wgmma_takes(const struct matmul_device *d, const struct matmul *m)
{
    const bool few = m->segments.count > 0 || m->num_tokens <= LINEAR_WGMMA_MAX;
    const bool shape = m->num_tokens >= 1 && few && m->out_features > 0 && matmul_weight_rows(m) <= INT32_MAX / 16 &&
                       m->in_features > 0 && m->in_features % 8 == 0 && m->in_features <= INT32_MAX / 16;
    return d->has_wgmma && shape && matmul_is_aligned(m) && !m->gain;
}

/* Quantized rows by a weight in FP8 with a scale for each output feature or, of row segments, for each block of 128 x
 * 128. Pairs of its elements count as elements. */
static bool rows_wgmma_takes(const struct matmul_device *d, const struct matmul_question *q)
{
    const struct matmul *m = &q->matmul;
    struct matmul pairs = *m;
    pairs.in_features = m->in_features / 2;
    pairs.x_stride = m->x_stride / 2;
    const bool of_rows = m->scale_rows == 1 && m->group_size == m->in_features && q->rows_group_size == m->in_features;
    const bool of_blocks = m->segments.count > 0 && m->scale_rows == MATMUL_STEP && m->group_size == MATMUL_STEP &&
                           q->rows_group_size == MATMUL_STEP && m->in_features % MATMUL_STEP == 0 &&
                           m->out_features % 16 == 0 && matmul_tile_tokens(m) <= BLOCKS_MAX;
    const bool is_fp8 = m->format == WEIGHT_FP8 && m->scale_dtype == DTYPE_FLOAT32 && (of_rows || of_blocks);
    return takes_types(q) && is_fp8 && m->in_features % 16 == 0 && !m->input_order && linear_wgmma_takes(d, &pairs);
}

/* One type, sizes that fit into an int, and a bias that `out` can hold exactly. */
static bool cublas_takes(const struct matmul_question *q)
{
    const struct matmul *m = &q->matmul;
    const bool is_float = q->out_dtype == DTYPE_FLOAT32;
    return m->format == weight_format_of(m->dtype) && (q->out_dtype == m->dtype || is_float) &&
           (!m->bias || is_float || q->bias_dtype == q->out_dtype) && m->out_features <= INT_MAX &&
           m->in_features <= INT_MAX && m->x_stride <= INT_MAX && m->out_stride <= INT_MAX;
}

/* Rows of whole 16-byte pieces, and of INT4 and MXFP4 the order that weight_prepare makes. */
static bool has_whole_pieces(const struct matmul *m)
{
    return m->in_features % (m->format == WEIGHT_INT4    ? INT4_SEGMENT
                             : m->format == WEIGHT_MXFP4 ? MXFP4_SEGMENT
                                                         : 16) ==
           0;
}

/* Groups of 32, 64, a multiple of 128 or the whole row. */
static bool has_groups_of_steps(const struct matmul *m)
{
    return m->group_size >= m->in_features || m->group_size == 32 || m->group_size == 64 ||
           m->group_size % MATMUL_STEP == 0;
}

/* linear_wgmma_quantized, apart from a norm. */
static bool wgmma_takes(const struct matmul_device *d, const struct matmul *m)
{
    const bool size = m->num_tokens >= 1 && m->out_features > 0 && matmul_weight_rows(m) <= INT32_MAX / 16 &&
                      m->in_features > 0 && m->in_features <= INT32_MAX / 16;
    const bool is_nvfp4 = m->format == WEIGHT_MXFP4 && (m->group_size != 32 || m->scale_dtype != DTYPE_E8M0);
    return d->has_wgmma && size && !is_nvfp4 && has_whole_pieces(m) && has_groups_of_steps(m) && matmul_is_aligned(m);
}

/* linear_wgmma_int4, of what linear_wgmma_quantized takes. */
static bool wgmma_int4_takes(const struct matmul *m)
{
    return m->format == WEIGHT_INT4 && (m->group_size >= m->in_features || m->group_size == MATMUL_STEP) &&
           m->scale_dtype != DTYPE_FLOAT32 && matmul_weight_tokens(m) <= LINEAR_WGMMA_INT4_MAX &&
           matmul_weight_rows(m) * (m->in_features / MATMUL_STEP) <= INT32_MAX;
}

/* Split rows of few tokens of a segment by MXFP4. */
static bool split_rows_takes(const struct matmul_device *d, const struct matmul_question *q)
{
    const struct matmul *m = &q->matmul;
    return takes_types(q) && m->format == WEIGHT_MXFP4 && m->dtype == DTYPE_BFLOAT16 && m->segments.count > 0 &&
           q->rows_group_size == m->in_features && matmul_tile_tokens(m) <= SPLIT_ROWS_MAX && m->scale_rows == 1 &&
           (uintptr_t)m->scales % 2 == 0 && wgmma_takes(d, m);
}

/* linear_mma_quantized, apart from a norm and MATMUL_GATE, neither of which it takes. Its ring fits into the shared
 * memory of every GPU. */
static bool mma_takes(const struct matmul *m)
{
    const int64_t groups = m->group_size > 0 ? cuda_div_up(m->in_features, m->group_size) : 0;
    const bool few = m->segments.count > 0 || m->num_tokens <= MMA_MAX;
    const bool size = m->num_tokens >= 1 && few && m->out_features > 0 && m->in_features > 0 &&
                      m->in_features <= MMA_MAX_FEATURES && m->x_stride <= MMA_MAX_FEATURES &&
                      m->out_features <= INT32_MAX / MMA_MAX / 4 && matmul_weight_rows(m) * groups <= INT32_MAX;
    return size && m->format != WEIGHT_MXFP4 && has_whole_pieces(m) && has_groups_of_steps(m) &&
           (m->format != WEIGHT_INT4 || m->scale_rows == 1) && matmul_is_aligned(m);
}

/* ---- the choice ---- */

/* The smaller of the two sizes counts, so that all matmuls of a layer with the same tokens go to the same kernel. */
static bool few_tokens_is_best(const struct matmul *m)
{
    const int64_t size = m->out_features < m->in_features ? m->out_features : m->in_features;
    return m->num_tokens <= FEW_TOKENS_BEST && m->num_tokens * size <= FEW_TOKENS_BEST_ELEMENTS;
}

static enum matmul_kernel few_tokens_of(const struct matmul_device *d)
{
    return d->compute_capability < 90 ? MATMUL_CHAIN : MATMUL_FEW_TOKENS;
}

/* By quire's own kernels where they are faster than cuBLAS, which they are not with a tile in parts. */
static enum matmul_kernel plan_floats(const struct matmul_device *d, const struct matmul_question *q)
{
    const struct matmul *m = &q->matmul;
    struct few_tokens_plan plan;
    if (takes_types(q)) {
        if (!few_tokens_is_best(m) && linear_wgmma_takes(d, m)) return MATMUL_LINEAR_WGMMA;
        if (few_tokens_plan(d, m, &plan) && plan.splits == 1) return few_tokens_of(d);
    }
    return cublas_takes(q) ? MATMUL_CUBLAS : MATMUL_LINEAR_MIXED;
}

static enum matmul_kernel plan_fused_floats(const struct matmul_device *d, const struct matmul *m)
{
    struct few_tokens_plan plan;
    if (d->has_wgmma && !few_tokens_is_best(m)) return linear_wgmma_takes(d, m) ? MATMUL_LINEAR_WGMMA : MATMUL_DECLINED;
    if (m->num_tokens > FUSED_MAX_TOKENS || !few_tokens_plan(d, m, &plan)) return MATMUL_DECLINED;
    return few_tokens_of(d);
}

/* Whether linear_mma_quantized is the fastest kernel, if it is asked for a plain matmul. */
static bool is_for_mma(const struct matmul_device *d, const struct matmul *m)
{
    return !d->has_wgmma && m->num_tokens >= MMA_MIN && mma_takes(m);
}

/* The kernels for a batch of tokens take no norm, because it is faster as a kernel of its own there. */
enum matmul_kernel matmul_plan_quantized(const struct matmul_device *d, const struct matmul *m)
{
    if (few_tokens_wgmma_fits(d, m)) return MATMUL_FEW_TOKENS_WGMMA;
    const int32_t min_tokens = m->format == WEIGHT_MXFP4 ? 1 : m->format == WEIGHT_INT4 ? WGMMA_INT4_MIN : WGMMA_MIN;
    if (m->num_tokens >= min_tokens && wgmma_takes(d, m))
        return m->gain               ? MATMUL_DECLINED
               : wgmma_int4_takes(m) ? MATMUL_LINEAR_WGMMA_INT4
                                     : MATMUL_LINEAR_WGMMA_QUANTIZED;
    if (is_for_mma(d, m)) return m->gain || m->result == MATMUL_GATE ? MATMUL_DECLINED : MATMUL_LINEAR_MMA_QUANTIZED;
    return few_tokens_quantized_fits(d, m) ? MATMUL_FEW_TOKENS_QUANTIZED : MATMUL_DECLINED;
}

int32_t matmul_part_tokens(const struct matmul_device *d, const struct matmul *m)
{
    const int64_t most = d->scratch ? d->scratch_bytes / (m->in_features * dtype_size(m->dtype)) : 0;
    return most == 0 ? 0 : (int32_t)cuda_div_up(m->num_tokens, cuda_div_up(m->num_tokens, most));
}

struct matmul matmul_ordered_part(const struct matmul_device *d, const struct matmul *m, int32_t first_token,
                                  int32_t num_tokens)
{
    struct matmul part = *m;
    part.num_tokens = num_tokens;
    part.x = d->scratch;
    part.x_stride = m->in_features;
    part.gain = NULL;
    part.input_order = NULL;
    part.out = (uint8_t *)m->out +
               first_token * m->out_stride * (m->out_is_float ? (int64_t)sizeof(float) : dtype_size(m->dtype));
    return part;
}

/* Whether input_order.cu can put x into the order: in pieces, with a token in shared memory, beside a float a warp. */
static bool can_order(const struct matmul_device *d, const struct matmul *m)
{
    const int gain_bytes = INPUT_ORDER_PIECE * (m->gain_is_float ? (int)sizeof(float) : dtype_size(m->dtype));
    const int64_t room = d->max_shared_bytes - INPUT_ORDER_WARPS * (int)sizeof(float);
    return m->in_features * dtype_size(m->dtype) <= room && m->in_features % INPUT_ORDER_PIECE == 0 &&
           m->x_stride % INPUT_ORDER_PIECE == 0 && cuda_is_aligned(m->x) &&
           (!m->gain || (uintptr_t)m->gain % (uintptr_t)gain_bytes == 0);
}

/* A matmul whose x is put into an order first. An addition must not end halfway, so it is one part. */
static enum matmul_kernel plan_in_order(const struct matmul_device *d, const struct matmul *m)
{
    const int32_t part = matmul_part_tokens(d, m);
    const bool too_many = !d->has_wgmma && m->num_tokens > FEW_TOKENS_MAX;
    if (is_for_mma(d, m) ? m->result == MATMUL_GATE : too_many) return MATMUL_DECLINED;
    if (part == 0 || (m->result == MATMUL_ADD && m->num_tokens > part) || !can_order(d, m)) return MATMUL_DECLINED;
    const int32_t last = (m->num_tokens - 1) % part + 1;
    const struct matmul parts[] = {matmul_ordered_part(d, m, 0, part), matmul_ordered_part(d, m, 0, last)};
    for (int i = 0; i < 2; i++)
        if (matmul_plan_quantized(d, &parts[i]) == MATMUL_DECLINED) return MATMUL_DECLINED;
    return MATMUL_IN_ORDER;
}

static enum matmul_kernel plan_any_quantized(const struct matmul_device *d, const struct matmul *m)
{
    if (m->input_order) return plan_in_order(d, m);
    return m->num_tokens < DEQUANTIZE_MIN ? matmul_plan_quantized(d, m) : MATMUL_DECLINED;
}

static enum matmul_kernel plan_fused(const struct matmul_device *d, const struct matmul_question *q)
{
    const struct matmul *m = &q->matmul;
    if (!takes_types(q) || (q->norm && !takes_norm(q->norm, m->dtype)) ||
        (m->result == MATMUL_GATE && m->out_features % 2 != 0))
        return MATMUL_DECLINED;
    return matmul_is_quantized(m) ? plan_any_quantized(d, m) : plan_fused_floats(d, m);
}

/* Row segments: the kernels for a batch of tokens take them, and linear_mixed. Quantized rows are there only if
 * matmul_segment_rows was asked. */
static enum matmul_kernel plan_segments(const struct matmul_device *d, const struct matmul_question *q)
{
    const struct matmul *m = &q->matmul;
    const enum matmul_kernel otherwise = q->is_fused ? MATMUL_DECLINED : MATMUL_LINEAR_MIXED;
    assert(!m->input_order);
    assert(q->rows_group_size == 0 || rows_wgmma_takes(d, q) || split_rows_takes(d, q));
    assert(!matmul_is_quantized(m) || m->out_features % m->scale_rows == 0);
    if (q->rows_group_size > 0) return MATMUL_ROWS_WGMMA;
    if (!takes_types(q) || q->norm || (m->result == MATMUL_GATE && m->out_features % 2 != 0)) return otherwise;
    if (!matmul_is_quantized(m)) return linear_wgmma_takes(d, m) ? MATMUL_LINEAR_WGMMA : otherwise;
    if (wgmma_takes(d, m)) return wgmma_int4_takes(m) ? MATMUL_LINEAR_WGMMA_INT4 : MATMUL_LINEAR_WGMMA_QUANTIZED;
    return !d->has_wgmma && mma_takes(m) && m->result != MATMUL_GATE ? MATMUL_LINEAR_MMA_QUANTIZED : otherwise;
}

enum matmul_kernel matmul_plan(const struct matmul_device *d, const struct matmul_question *q)
{
    const struct matmul *m = &q->matmul;
    if (m->segments.count > 0) return plan_segments(d, q);
    if (q->is_fused) return plan_fused(d, q);
    if (q->rows_group_size > 0) return rows_wgmma_takes(d, q) ? MATMUL_ROWS_WGMMA : MATMUL_CUBLAS_LT;
    if (!matmul_is_quantized(m)) return plan_floats(d, q);
    const enum matmul_kernel kernel = takes_types(q) ? plan_any_quantized(d, m) : MATMUL_DECLINED;
    return kernel == MATMUL_DECLINED ? MATMUL_DEQUANTIZE : kernel;
}

/* ---- quantized rows ---- */

bool matmul_is_for_cublas_lt(const struct weight *w, enum dtype dtype, bool *by_blocks)
{
    enum { GROUP = 128 };
    const bool rows = w->scale_rows == 1 && w->group_size == w->in_features;
    *by_blocks = w->scale_rows == GROUP && w->group_size == GROUP &&
                 w->in_features % (4 * GROUP) == 0; /* rows of scales are aligned to 16 bytes */
    return w->format == WEIGHT_FP8 && (rows || *by_blocks) && !w->input_order && w->scale_dtype == DTYPE_FLOAT32 &&
           (dtype == DTYPE_FLOAT16 || dtype == DTYPE_BFLOAT16) && (!w->bias || w->bias_dtype == dtype) &&
           w->in_features % 16 == 0 && w->out_features % 16 == 0 && cuda_is_aligned(w->data) &&
           cuda_is_aligned(w->scales);
}

bool matmul_wants_quantized_rows(const struct matmul_device *d, const struct weight *w, int32_t num_tokens,
                                 enum dtype dtype)
{
    bool by_blocks;
    if (!w->quantize_x || !matmul_is_for_cublas_lt(w, dtype, &by_blocks)) return false;
    return num_tokens >= (d->has_wgmma && !by_blocks ? FEW_TOKENS_WGMMA_MAX + 1 : ROWS_MIN);
}

enum segment_rows matmul_segment_rows(const struct matmul_device *d, const struct matmul_question *q,
                                      const struct weight *w)
{
    struct matmul_question of_rows = *q;
    of_rows.rows_group_size = w->in_features;
    if (w->in_features > QUANTIZED_SEGMENTS_MAX) return SEGMENT_ROWS_PLAIN;
    if (split_rows_takes(d, &of_rows)) return SEGMENT_ROWS_SPLIT;
    if (w->scale_rows > 1) of_rows.rows_group_size = MATMUL_STEP;
    if (!w->quantize_x || !rows_wgmma_takes(d, &of_rows)) return SEGMENT_ROWS_PLAIN;
    return w->scale_rows > 1 ? SEGMENT_ROWS_BLOCKS : SEGMENT_ROWS_QUANTIZED;
}

/* ---- questions ---- */

struct matmul_question matmul_question_of(const struct linear_args *args, enum matmul_result result,
                                          const struct norm_params *norm, const struct gate_params *gate, bool is_fused)
{
    const struct weight *w = args->weight;
    const struct matmul matmul = {.weight = w->data,
                                  .bias = w->bias,
                                  .out_features = w->out_features,
                                  .in_features = w->in_features,
                                  .x = args->quantized_x ? args->quantized_x->data : args->x,
                                  .x_stride = args->x_stride,
                                  .num_tokens = args->num_tokens,
                                  .segments = args->segments,
                                  .dtype = args->dtype,
                                  .gain = norm ? norm->gain : NULL,
                                  .gain_is_float = norm && norm->gain_dtype == DTYPE_FLOAT32,
                                  .eps = norm ? norm->eps : 0,
                                  .out = args->out,
                                  .out_stride = args->out_stride,
                                  .out_is_float = args->out_dtype == DTYPE_FLOAT32,
                                  .result = result,
                                  .gate = gate ? *gate : (struct gate_params){0},
                                  .format = w->format,
                                  .scales = w->scales,
                                  .scale_dtype = w->scale_dtype,
                                  .scale_rows = w->scale_rows,
                                  .group_size = w->group_size,
                                  .zeros = w->zeros,
                                  .x_scales = args->quantized_x ? args->quantized_x->scales : NULL,
                                  .input_order = w->input_order};
    return (struct matmul_question){.matmul = matmul,
                                    .is_fused = is_fused,
                                    .out_dtype = args->out_dtype,
                                    .bias_dtype = w->bias_dtype,
                                    .norm = norm,
                                    .rows_group_size = args->quantized_x ? args->quantized_x->group_size : 0};
}
