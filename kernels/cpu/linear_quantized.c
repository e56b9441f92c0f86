/* Matmuls with quantized weights that are decoded in registers (CPU_FEW_QUANTIZED): memory sets the speed of few
 * tokens. They are computed up to FEW_TOKENS at a time.
 *
 * For INT8, INT4 and MXFP4, x is rounded to 8 bits first, once for all output features. Each thread takes a range of
 * output features. The workspace:
 *
 *   | x of each token, as the kernels read it | sums of its groups | scratch of thread 0 | of thread 1 | ...
 *
 * A zero point adds scale * (8 - zero) * (the sum of x over the group): the totals of an output feature begin with a
 * small product of as many elements as there are groups. */
#include <assert.h>

#include "kernels/cpu/linear.h"

enum {
    ROWS = FEW_PIECE, /* output features whose scales are converted at once */
    MAX_SPLIT = 4,    /* groups that share a vector of weights */
    CACHE_WAY = 4096, /* bytes: addresses so far apart share a set of the L1 cache, which has few places */
    ROUNDING_WORK = 8 /* multiplications that take as long as to round an element of x */
};

struct few {
    const struct matmul_parts *parts;
    struct few_x x;
    int64_t token;
    int64_t features; /* at once */
};

/* ---- the workspace ---- */

static int64_t most_groups(int64_t in_features)
{
    return divide_up(in_features, CPU_X_GROUP) + MAX_SPLIT;
}

/* A token as floats and the sums of its groups, or scales and zero terms of ROWS output features. */
static int64_t thread_floats(int64_t in_features)
{
    return max_i64(in_features + most_groups(in_features), 2 * ROWS * most_groups(in_features));
}

static int64_t token_bytes(const struct cpu_quantized_kernels *kernels, enum weight_format format, int64_t in_features)
{
    /* A column of many tokens must not fall into one set. */
    if (format == WEIGHT_FP8)
        return divide_up(in_features * (int64_t)sizeof(float), CACHE_WAY) * CACHE_WAY + CACHE_WAY / 2;
    return divide_up(in_features, cpu_unit_columns(kernels->lanes, format)) * cpu_unit_bytes(kernels->lanes, format);
}

int64_t matmul_quantized_workspace(const struct cpu_state *s, int64_t in_features)
{
    const struct cpu_quantized_kernels *kernels = s->tables->quantized;
    if (!kernels) return 0;
    const int64_t x =
        max_i64(token_bytes(kernels, WEIGHT_FP8, in_features), token_bytes(kernels, WEIGHT_INT8, in_features));
    const int64_t floats = FEW_TOKENS * most_groups(in_features) + s->threads * thread_floats(in_features);
    return FEW_TOKENS * x + cpu_align(floats * (int64_t)sizeof(float));
}

/* ---- x ---- */

static float *thread_scratch(const struct few_x *f, int thread)
{
    return f->scratch + thread * thread_floats(f->m->in_features);
}

int64_t matmul_quantized_x_room(const struct matmul *m)
{
    const struct cpu_state *s = m->s;
    const int64_t floats = s->threads * thread_floats(m->in_features);
    const int64_t bytes =
        token_bytes(s->tables->quantized, m->w->format, m->in_features) + weight_groups(m->w) * (int64_t)sizeof(float);
    return (s->workspace_bytes - floats * (int64_t)sizeof(float)) / bytes;
}

struct few_x matmul_quantized_x(const struct matmul *m, int count)
{
    const struct cpu_state *s = m->s;
    struct few_x f = {.m = m, .kernels = s->tables->quantized, .x = s->workspace, .count = count};
    const int64_t split = cpu_groups_of_vector(s->tables, m->w);
    f.x_bytes = token_bytes(f.kernels, m->w->format, m->in_features);
    f.groups = weight_groups(m->w);
    f.scale_stride = divide_up(f.groups, split) * split;
    f.sums = (float *)(f.x + count * f.x_bytes);
    f.scratch = f.sums + count * f.groups;
    assert((uint8_t *)thread_scratch(&f, s->threads) <= s->workspace + s->workspace_bytes);
    return f;
}

void matmul_quantized_x_set(const struct few_x *f, const struct matmul *m, int64_t t, int64_t token, int thread)
{
    float *row = thread_scratch(f, thread), *parts = row + m->in_features;
    const float *x = row;
    if (m->w->format == WEIGHT_FP8) {
        matmul_gather_x(m, (float *)(f->x + t * f->x_bytes), token, 0, m->in_features);
        return;
    }
    if (m->args->dtype == DTYPE_FLOAT32 && !m->w->input_order && !m->x_weights) {
        x = matmul_x(m, token, 0);
    } else {
        matmul_gather_x(m, row, token, 0, m->in_features);
    }
    f->kernels->round_x(f->x + t * f->x_bytes, parts, x, m->w->format, m->in_features);
    if (!m->w->zeros) return;
    float *sums = f->sums + t * f->groups;
    for (int64_t g = 0; g < f->groups; g++) sums[g] = 0;
    for (int64_t i = 0; i < m->in_features; i += CPU_X_GROUP) sums[i / m->w->group_size] += parts[i / CPU_X_GROUP];
}

static void prepare_x(const struct cpu_state *s, const void *few, int64_t t, int thread)
{
    (void)s;
    const struct few *f = few;
    matmul_quantized_x_set(&f->x, f->x.m, t, f->token + t, thread);
}

/* ---- output features ---- */

/* The scales of output features [first, first + count), in rows of scale_stride. */
static void load_scales(const struct few_x *f, const struct weight *w, float *out, int64_t first, int64_t count)
{
    const struct cpu_kernels *kernels = f->m->s->kernels;
    if (w->scale_rows == 1 && f->scale_stride == f->groups) {
        kernels->to_float(out, cpu_element(w->scales, w->scale_dtype, first * f->groups), w->scale_dtype,
                          count * f->groups);
        return;
    }
    for (int64_t o = 0; o < count; o++, out += f->scale_stride) {
        const int64_t row = (first + o) / w->scale_rows;
        kernels->to_float(out, cpu_element(w->scales, w->scale_dtype, row * f->groups), w->scale_dtype, f->groups);
        for (int64_t g = f->groups; g < f->scale_stride; g++) out[g] = 0;
    }
}

/* What cpu_quantized_args.terms points to, of output features [first, first + count). */
static void make_terms(const struct few_x *f, const struct weight *w, float *terms, const float *scales, int64_t first,
                       int64_t count)
{
    const uint8_t *zeros = w->zeros + first * f->groups;
    if (f->scale_stride == f->groups) {
        f->kernels->zero_terms(terms, scales, zeros, count * f->groups);
        return;
    }
    for (int64_t o = 0; o < count; o++)
        f->kernels->zero_terms(terms + o * f->groups, scales + o * f->scale_stride, zeros + o * f->groups, f->groups);
}

/* Fetches the scales and zeros of later output features, which are read long after those before. */
static void prefetch_groups(const struct few_x *f, const struct weight *w, int64_t first, int64_t count)
{
    enum { LINE = 64 };
    if (w->scale_rows > 1 || first + count > w->out_features) return;
    const int64_t at = first * f->groups, groups = count * f->groups, bytes = groups * dtype_size(w->scale_dtype);
    const uint8_t *scales = cpu_element(w->scales, w->scale_dtype, at);
    for (int64_t i = 0; i < bytes; i += LINE) __builtin_prefetch(scales + i);
    for (int64_t i = 0; i < groups && w->zeros; i += LINE) __builtin_prefetch(w->zeros + at + i);
}

/* Sums of up to ROWS output features. scales: the thread's scratch. */
static void few_rows(const struct few_x *f, const struct weight *w, float *sums, float *scales, int64_t first,
                     int64_t count)
{
    float *terms = scales + ROWS * most_groups(w->in_features);
    load_scales(f, w, scales, first, count);
    if (w->zeros) make_terms(f, w, terms, scales, first, count);
    prefetch_groups(f, w, first + count, count);
    const struct cpu_quantized_args args = {.format = w->format,
                                            .out = sums,
                                            .out_stride = FEW_FEATURES,
                                            .x = f->x,
                                            .x_bytes = f->x_bytes,
                                            .weights = (const uint8_t *)w->data + first * weight_row_bytes(w),
                                            .row_bytes = weight_row_bytes(w),
                                            .scales = scales,
                                            .scale_stride = f->scale_stride,
                                            .group_size = w->group_size,
                                            .terms = w->zeros ? terms : NULL,
                                            .sums = f->sums,
                                            .groups = f->groups,
                                            .num_tokens = f->count,
                                            .out_features = count,
                                            .in_features = w->in_features};
    f->kernels->dot(&args);
}

void matmul_quantized_sums(const struct few_x *f, const struct weight *w, float *sums, int64_t first, int64_t count,
                           int thread)
{
    float *scratch = thread_scratch(f, thread);
    for (int64_t o = 0; o < count; o += ROWS) few_rows(f, w, sums + o, scratch, first + o, min_i64(ROWS, count - o));
}

static void few_features(const struct cpu_state *s, const void *few, int64_t i, int thread)
{
    (void)s;
    const struct few *f = few;
    const struct few_piece p = matmul_few_piece(f->parts, f->features, i);
    float sums[FEW_TOKENS * FEW_FEATURES];
    matmul_quantized_sums(&f->x, p.m->w, sums, p.first, p.count, thread);
    for (int t = 0; t < f->x.count; t++)
        matmul_finish(p.m, f->token + t, p.first, sums + t * FEW_FEATURES, NULL, p.count);
}

void matmul_few_quantized(const struct matmul_parts *parts, int64_t token, int count)
{
    const struct matmul *m = parts->m;
    const struct few f = {.parts = parts,
                          .x = matmul_quantized_x(m, count),
                          .token = token,
                          .features = few_features_of(weight_row_bytes(m->w), ROWS)};
    cpu_for(m->s, ROUNDING_WORK * count * m->in_features, count, prepare_x, &f);
    cpu_for(m->s, matmul_few_work(parts, count), matmul_few_pieces(parts, f.features), few_features, &f);
}
