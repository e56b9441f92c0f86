#include "model/layers/layers.h"
#include "model/shard.h"

/* out = w(in), contiguous. */
static struct linear_args linear_of(const struct residual_stream *s, void *out, const struct matmul_input *in,
                                    const struct weight *w)
{
    const enum dtype dtype = s->d->dtype;
    return (struct linear_args){.out = out,
                                .out_stride = w->out_features,
                                .out_dtype = dtype,
                                .x = in->x,
                                .x_stride = w->in_features,
                                .quantized_x = rows_of(in),
                                .dtype = dtype,
                                .num_tokens = s->num_tokens,
                                .weight = w};
}

static int64_t projection_stride(const struct projection *p)
{
    int64_t size = 0;
    for (int i = 0; i < p->num_parts; i++) size += p->parts[i].out_features;
    return p->out_stride > 0 ? p->out_stride : size;
}

/* ---- Quantized rows: where the backend wants the input of a matmul in 8 bits, the operation that computes the input
 * writes it so. ---- */

static bool takes_rows(const struct residual_stream *s, const struct weight *w)
{
    struct backend *b = s->d->backend;
    return b->takes_quantized_rows && b->takes_quantized_rows(b, w, s->num_tokens, s->d->dtype);
}

struct quantized_rows layer_rows_for(const struct residual_stream *s, const struct weight *w, void *buffer)
{
    if (!takes_rows(s, w)) return (struct quantized_rows){0};
    const int64_t groups = w->in_features / w->group_size;
    const int64_t scales = quantized_rows_padded(s->num_tokens) * groups * (int64_t)sizeof(float);
    return (struct quantized_rows){.data = (char *)buffer + scales, .scales = buffer, .group_size = w->group_size};
}

/* The rows of a projection's input, if those parts that want any want the same. *mixed: the others read floats. */
static struct quantized_rows rows_for_parts(const struct residual_stream *s, const struct projection *p, void *buffer,
                                            bool *mixed)
{
    struct quantized_rows rows = {0};
    int count = 0;
    for (int i = 0; i < p->num_parts; i++) {
        const struct quantized_rows part = layer_rows_for(s, &p->parts[i], buffer);
        if (!part.data) continue;
        if (rows.data && part.group_size != rows.group_size) return (struct quantized_rows){0};
        rows = part;
        count++;
    }
    *mixed = rows.data && count < p->num_parts;
    return rows;
}

static void quantize(const struct residual_stream *s, const struct matmul_input *in, int64_t size)
{
    struct backend *b = s->d->backend;
    const struct quantize_rows_args args = {
        .out = &in->rows, .x = in->x, .num_tokens = s->num_tokens, .size = (int32_t)size, .dtype = s->d->dtype};
    if (in->rows.data) b->quantize_rows(b, &args);
}

struct matmul_input layer_quantize_for(const struct residual_stream *s, const void *x, const struct weight *w,
                                       void *buffer)
{
    const struct matmul_input in = {.x = x, .rows = layer_rows_for(s, w, buffer)};
    quantize(s, &in, w->in_features);
    return in;
}

/* ---- Fused operations ---- */

/* out = p(rms_norm(residual)) */
static bool fused_norm_linear(const struct residual_stream *s, void *out, enum dtype out_dtype,
                              const struct projection *p, const struct norm_params *norm)
{
    struct backend *b = s->d->backend;
    if (!b->norm_linear || s->pending || !norm->gain || p->num_parts > 1) return false;
    const struct matmul_input in = {.x = s->residual};
    struct norm_linear_args args = {.linear = linear_of(s, out, &in, &p->parts[0]), .norm = *norm};
    args.linear.out_dtype = out_dtype;
    args.linear.out_stride = projection_stride(p);
    return b->norm_linear(b, &args);
}

/* residual += w(in) */
static bool fused_linear_residual(const struct residual_stream *s, const struct matmul_input *in,
                                  const struct weight *w, const struct norm_params *post_norm, float multiplier)
{
    struct backend *b = s->d->backend;
    if (!b->linear_residual || w->is_share || in->rows.data || post_norm->gain || multiplier != 1 ||
        s->sum_multiplier != 1)
        return false;
    const struct linear_args args = linear_of(s, s->residual, in, w);
    return b->linear_residual(b, &args);
}

bool fused_gate_up(const struct residual_stream *s, const struct matmul_input *in, const struct projection *p,
                   const struct mlp_spec *mlp, const struct norm_params *norm)
{
    struct backend *b = s->d->backend;
    const struct weight *w = &p->parts[0];
    const bool gated = mlp->kind == MLP_GATED;
    if (!b->gate_up || in->rows.data || p->num_parts > 1 || mlp->activation == ACTIVATION_XIELU) return false;
    if (norm && (s->pending || s->normed == norm || !norm->gain)) return false;
    struct gate_up_args args = {.linear = linear_of(s, s->d->act.gated, in, w),
                                .norm = norm,
                                .gate = {gated ? GATE_MULTIPLY : GATE_NONE, mlp->activation, mlp->limit}};
    args.linear.out_stride = w->out_features / gate_operands(&args.gate);
    return b->gate_up(b, &args);
}

bool fused_decode_attention(const struct decoder *d, const struct step_shape *shape,
                            const struct decode_attention_args *args)
{
    struct backend *b = d->backend;
    const bool scattered = d->scatters_runs && shape->num_drafts > 0;
    return b->decode_attention && !scattered && shape->num_decodes == shape->num_seqs && b->decode_attention(b, args);
}

void layer_scale_columns(const struct residual_stream *s, void *x, int64_t stride, const struct column_part *parts,
                         int num_parts)
{
    struct backend *b = s->d->backend;
    struct scale_columns_args args = {.x = x, .stride = stride, .num_tokens = s->num_tokens, .dtype = s->d->dtype};
    bool scales = false;
    for (int i = 0; i < num_parts; i++) {
        if (parts[i].size == 0) continue;
        args.sizes[args.num_parts] = (int32_t)parts[i].size;
        args.multipliers[args.num_parts] = multiplier_or_1(parts[i].multiplier);
        scales = scales || args.multipliers[args.num_parts] != 1;
        args.num_parts++;
    }
    if (scales) b->scale_columns(b, &args);
}

void layer_norm_in_place(const struct residual_stream *s, void *x, int64_t stride, int64_t size,
                         const struct norm_params *norm)
{
    struct backend *b = s->d->backend;
    const struct rms_norm_args args = {.out = x,
                                       .x = x,
                                       .out_stride = stride,
                                       .x_stride = stride,
                                       .norm = *norm,
                                       .num_tokens = s->num_tokens,
                                       .size = (int32_t)size,
                                       .dtype = s->d->dtype};
    b->rms_norm(b, &args);
}

void layer_norm_over_ranks(const struct residual_stream *s, struct all_norm_args *args)
{
    struct backend *b = s->d->backend;
    args->num_tokens = s->num_tokens;
    args->rank = s->d->spec->rank, args->num_ranks = s->d->spec->num_ranks;
    args->dtype = s->d->dtype;
    b->all_norm(b, args);
}

/* ---- From the residual stream into a sublayer, and back ---- */

void layer_all_reduce(const struct residual_stream *s, void *x, int64_t size)
{
    struct backend *b = s->d->backend;
    const struct all_reduce_args args = {.x = x, .count = s->num_tokens * size, .dtype = s->d->dtype};
    b->all_reduce(b, &args);
}

void layer_add_shares(const struct residual_stream *s, void *x, int64_t size, const struct weight *last)
{
    if (last->is_share) layer_all_reduce(s, x, size);
}

/* all_reduce of the pending output, and its addition. */
static bool fused_reduction(const struct decoder *d, const struct fused_add_rms_norm_args *args)
{
    struct backend *b = d->backend;
    return b->all_reduce_add_norm && b->all_reduce_add_norm(b, args);
}

/* residual += the pending output; hidden = norm(residual), or nothing if norm is NULL. With `rows` they are written
 * instead of hidden. */
static void add_pending(struct residual_stream *s, const struct norm_params *norm, const struct quantized_rows *rows)
{
    const struct decoder *d = s->d;
    const struct fused_add_rms_norm_args args = {.out = norm ? s->hidden : NULL,
                                                 .quantized = norm ? rows : NULL,
                                                 .x = s->hidden,
                                                 .x_scales = s->scales,
                                                 .residual = s->residual,
                                                 .multiplier = s->multiplier,
                                                 .sum_multiplier = s->sum_multiplier,
                                                 .post_norm = s->post_norm,
                                                 .norm = norm ? *norm : (struct norm_params){0},
                                                 .num_tokens = s->num_tokens,
                                                 .size = d->spec->hidden_size,
                                                 .dtype = d->dtype};
    if (!s->share || !fused_reduction(d, &args)) {
        if (s->share) layer_all_reduce(s, s->hidden, d->spec->hidden_size);
        d->backend->fused_add_rms_norm(d->backend, &args);
    }
    s->pending = s->share = false;
    s->sum_multiplier = 1;
}

struct matmul_input residual_input(struct residual_stream *s, const struct norm_params *norm,
                                   const struct projection *p)
{
    const struct decoder *d = s->d;
    const int32_t size = d->spec->hidden_size;
    struct matmul_input in = {.x = norm->gain ? s->hidden : s->residual};
    bool mixed = false;
    if (p) in.rows = rows_for_parts(s, p, d->act.quantized, &mixed);
    const struct quantized_rows *only_rows = mixed ? NULL : rows_of(&in);
    /* in a parallel block, which has one norm for attention and MLP */
    if (s->normed == norm && s->normed_groups == in.rows.group_size && !mixed) return in;
    if (s->pending) {
        add_pending(s, norm->gain ? norm : NULL, only_rows);
    } else if (norm->gain) {
        const struct rms_norm_args args = {.out = s->hidden,
                                           .x = s->residual,
                                           .out_stride = size,
                                           .x_stride = size,
                                           .quantized = only_rows,
                                           .norm = *norm,
                                           .num_tokens = s->num_tokens,
                                           .size = size,
                                           .dtype = d->dtype};
        d->backend->rms_norm(d->backend, &args);
    }
    if (norm->gain) {
        s->normed = norm;
        s->normed_groups = in.rows.group_size;
    }
    if (!norm->gain || mixed) quantize(s, &in, size);
    return in;
}

void residual_norm_stream(struct residual_stream *s, const struct norm_params *norm)
{
    residual_input(s, norm, NULL);
    void *old = s->residual;
    s->residual = s->hidden;
    s->hidden = old;
    s->normed = NULL;
}

void residual_begin(struct residual_stream *s)
{
    if (s->pending) add_pending(s, NULL, NULL); /* of a parallel block's attention, or of the layer before */
    s->normed = NULL;
    s->scales = (struct left_out_scales){0};
}

void residual_pend(struct residual_stream *s, const struct norm_params *post_norm, float multiplier, bool is_share)
{
    s->pending = true;
    s->share = is_share;
    s->multiplier = multiplier;
    s->post_norm = post_norm->gain ? post_norm : NULL;
}

void residual_add(struct residual_stream *s, const struct matmul_input *in, const struct weight *w,
                  const struct norm_params *post_norm, float multiplier)
{
    struct backend *b = s->d->backend;
    s->normed = NULL;
    if (fused_linear_residual(s, in, w, post_norm, multiplier)) return;
    residual_begin(s);
    struct linear_args args = linear_of(s, s->hidden, in, w);
    if (!w->is_share) args.left_out = &s->scales; /* which differ from rank to rank */
    b->linear(b, &args);
    residual_pend(s, post_norm, multiplier, w->is_share);
}

struct last_matmul layer_last_matmul(const struct residual_stream *s, const struct matmul_input *in,
                                     const struct weight *w, int32_t layer, enum tensor_role role)
{
    const struct decoder *d = s->d;
    struct last_matmul last = {*in, *w};
    if (!w->is_share || !w->input_order) return last;
    const struct column_range columns = shard_columns(d->spec, layer, role);
    const struct gather_columns_args args = {.out = d->act.ordered,
                                             .x = in->x,
                                             .order = w->input_order,
                                             .all = d->act.all_inputs,
                                             .first = columns.first,
                                             .columns = w->in_features,
                                             .total = columns.total,
                                             .size = w->in_features,
                                             .num_tokens = s->num_tokens,
                                             .dtype = d->dtype};
    d->backend->gather_columns(d->backend, &args);
    last.in.x = d->act.ordered;
    last.weight.input_order = NULL;
    return last;
}

void layer_project(const struct residual_stream *s, void *out, enum dtype out_dtype, const struct projection *p,
                   const struct matmul_input *in, struct left_out_scales *left_out)
{
    struct backend *b = s->d->backend;
    struct linear_args parts[LINEAR_MAX_PARTS];
    const int64_t stride = projection_stride(p);
    for (int64_t i = 0, column = 0; i < p->num_parts; column += p->parts[i++].out_features) {
        parts[i] = linear_of(s, at_column(out, column, out_dtype), in, &p->parts[i]);
        parts[i].out_stride = stride;
        parts[i].out_dtype = out_dtype;
        parts[i].left_out = p->num_parts == 1 ? left_out : NULL;
        if (p->num_parts > 1 && !takes_rows(s, &p->parts[i])) parts[i].quantized_x = NULL;
    }
    if (p->num_parts > 1 && b->linear_parts && b->linear_parts(b, parts, p->num_parts)) return;
    for (int i = 0; i < p->num_parts; i++) b->linear(b, &parts[i]);
}

void residual_project(struct residual_stream *s, void *out, enum dtype out_dtype, const struct projection *p,
                      const struct norm_params *norm)
{
    if (fused_norm_linear(s, out, out_dtype, p, norm)) return;
    const struct matmul_input in = residual_input(s, norm, out_dtype == s->d->dtype ? p : NULL);
    layer_project(s, out, out_dtype, p, &in, NULL);
}
