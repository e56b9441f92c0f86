/* The matmuls of a mixture of experts. Each expert has some rows of the plan; threads share experts and their output
 * features in one loop.
 *
 * The rows of an expert are few or many, as the tokens of a matmul are (linear.c), and the kernels are the same. First
 * the experts with few rows are computed, in batches for whose x the workspace has room, then those with many. So an
 * expert's weights are read once, except where its rows do not fit into a batch. */
#include <assert.h>
#include <math.h>

#include "kernels/cpu/linear.h"

enum {
    BATCH_EXPERTS = 128,
    BATCH_ROWS = 1 << 12, /* few rows at once, at most */
    PREPARE_WORK = 8      /* multiplications that take as long as to prepare an element of x */
};

/* An operation on all experts. */
struct experts {
    const struct expert_matrices *matrices;
    const struct expert_plan *plan;
    struct matmul m;     /* of expert 0, without its weights */
    struct matmul_up up; /* of expert 0; w is NULL if there is no gate */
};

/* Rows of an expert. */
struct expert_rows {
    struct weight weights[2]; /* of the expert: its parts */
    struct matmul m;
    struct matmul_up up;
    int64_t row; /* the first */
    int count;
    int64_t index;          /* few: of the first in x */
    struct stretch stretch; /* many */
    int64_t end;            /* many: strips, then pieces, of the experts up to this one */
};

struct expert_batch {
    const struct experts *experts;
    bool is_many;
    int count;
    int64_t used, room;   /* few: rows; many: bytes of packed x */
    int64_t features;     /* few: output features at once */
    struct few_x x, x_up; /* few; x_up is what up multiplies: x, or where up has an input_order of its own, another */
    struct expert_rows rows[BATCH_EXPERTS];
};

static struct weight expert_weight(const struct expert_matrices *matrices, int32_t expert, int part)
{
    if (matrices->stacked) return weight_of_segment(matrices->weights, expert);
    return matrices->weights[expert * matrices->num_parts + part];
}

/* Points the matmul of `rows` to its own weights. */
static void bind(struct expert_rows *rows, const struct experts *experts, int32_t expert)
{
    const int last = experts->matrices->num_parts - 1;
    rows->m = experts->m;
    rows->up = experts->up;
    for (int part = 0; part <= last; part++) rows->weights[part] = expert_weight(experts->matrices, expert, part);
    rows->m.w = &rows->weights[0];
    rows->up.w = &rows->weights[last];
    rows->m.up = experts->up.w ? &rows->up : NULL;
}

static bool has_two_orders(const struct matmul *m)
{
    return m->up && m->up->w != m->w && (m->w->input_order || m->up->w->input_order);
}

/* ---- few rows ---- */

static void prepare_row(const struct cpu_state *s, const void *args, int64_t i, int thread)
{
    (void)s;
    const struct expert_batch *batch = args;
    int r = 0;
    while (i >= batch->rows[r].index + batch->rows[r].count) r++;
    const struct expert_rows *rows = &batch->rows[r];
    const int64_t row = rows->row + i - rows->index;
    struct matmul up = rows->m;
    up.w = rows->up.w;
    matmul_few_x_set(&batch->x, &rows->m, i, row, thread);
    if (has_two_orders(&rows->m)) matmul_few_x_set(&batch->x_up, &up, i, row, thread);
}

static void few_features(const struct cpu_state *s, const void *args, int64_t i, int thread)
{
    (void)s;
    const struct expert_batch *batch = args;
    const int64_t pieces = divide_up(batch->experts->m.out_features, batch->features);
    const struct expert_rows *rows = &batch->rows[i / pieces];
    const struct matmul *m = &rows->m;
    const int64_t first = i % pieces * batch->features, count = min_i64(batch->features, m->out_features - first);
    const struct few_x x = matmul_few_x_part(&batch->x, rows->index, rows->count);
    float sums[FEW_TOKENS * FEW_FEATURES], ups[FEW_TOKENS * FEW_FEATURES];
    matmul_few_sums(&x, m->w, m->plan.few, sums, first, count, thread);
    if (m->up) {
        const struct few_x x_up = matmul_few_x_part(&batch->x_up, rows->index, rows->count);
        matmul_few_sums(&x_up, m->up->w, m->plan.few, ups, m->up->first + first, count, thread);
    }
    for (int t = 0; t < rows->count; t++)
        matmul_finish(m, rows->row + t, first, sums + t * FEW_FEATURES, ups + t * FEW_FEATURES, count);
}

static void compute_few(struct expert_batch *batch)
{
    const struct matmul *m = &batch->experts->m;
    const bool twice = has_two_orders(m);
    const int count = (int)batch->used;
    /* Where there are two, the second lies behind the first; both have the scratch behind the second. */
    batch->x = batch->x_up = matmul_few_x(m, twice ? 2 * count : count);
    if (twice) batch->x_up = matmul_few_x_part(&batch->x, count, count);
    batch->features = few_features_of(weight_row_bytes(m->w), FEW_PIECE);
    const int64_t work = matmul_work(m, count) * (m->up ? 2 : 1);
    cpu_for(m->s, PREPARE_WORK * count * m->in_features, count, prepare_row, batch);
    cpu_for(m->s, work, batch->count * divide_up(m->out_features, batch->features), few_features, batch);
}

/* ---- many rows ---- */

/* Finds the rows that have iteration *i, and makes it their own number. */
static const struct expert_rows *rows_of(const struct expert_batch *batch, int64_t *i)
{
    int r = 0;
    while (*i >= batch->rows[r].end) r++;
    if (r > 0) *i -= batch->rows[r - 1].end;
    return &batch->rows[r];
}

static void pack_strip(const struct cpu_state *s, const void *batch, int64_t i, int thread)
{
    (void)s, (void)thread;
    const struct expert_rows *rows = rows_of(batch, &i);
    matmul_pack_strip(&rows->stretch, i);
}

static void compute_piece(const struct cpu_state *s, const void *batch, int64_t i, int thread)
{
    (void)s;
    const struct expert_rows *rows = rows_of(batch, &i);
    matmul_compute_piece(&rows->stretch, i, thread);
}

static void compute_many(struct expert_batch *batch)
{
    const struct cpu_state *s = batch->experts->m.s;
    uint8_t *packed = matmul_packed(s);
    int64_t work = 0, strips = 0, pieces = 0;
    for (int r = 0; r < batch->count; r++) {
        struct expert_rows *rows = &batch->rows[r];
        rows->stretch = (struct stretch){
            .m = &rows->m, .token = rows->row, .num_tokens = rows->count, .packed = packed, .scratch = s->workspace};
        packed += matmul_packed_bytes(&rows->m, rows->count);
        work += matmul_work(&rows->m, rows->count) * (rows->m.up ? 2 : 1);
    }
    const int threads = cpu_threads_for(s, work);
    const int64_t wanted = threads > 1 ? divide_up(4 * threads, batch->count) : 1;
    for (int r = 0; r < batch->count; r++) {
        matmul_choose_pieces(&batch->rows[r].stretch, wanted);
        batch->rows[r].end = strips += batch->rows[r].stretch.strips;
    }
    cpu_for(s, work, strips, pack_strip, batch);
    for (int r = 0; r < batch->count; r++)
        batch->rows[r].end = pieces += batch->rows[r].stretch.across * batch->rows[r].stretch.down;
    cpu_for(s, work, pieces, compute_piece, batch);
}

/* ---- batches ---- */

static void batch_begin(struct expert_batch *batch, const struct experts *experts, bool is_many)
{
    const struct matmul *m = &experts->m;
    batch->experts = experts;
    batch->is_many = is_many;
    batch->count = 0;
    batch->used = 0;
    batch->room = min_i64(BATCH_ROWS, matmul_few_x_room(m) / (has_two_orders(m) ? 2 : 1));
    if (is_many) batch->room = m->s->workspace + m->s->workspace_bytes - matmul_packed(m->s);
}

static void batch_flush(struct expert_batch *batch)
{
    if (batch->count > 0 && batch->is_many) compute_many(batch);
    if (batch->count > 0 && !batch->is_many) compute_few(batch);
    batch->count = 0;
    batch->used = 0;
}

static void batch_add(struct expert_batch *batch, int32_t expert, int64_t row, int count,
                      const struct cpu_matmul_plan *plan)
{
    struct matmul of_plan = batch->experts->m;
    of_plan.plan = *plan;
    const int64_t size = batch->is_many ? matmul_packed_bytes(&of_plan, count) : count;
    assert(batch->room > 0);
    if (batch->count == BATCH_EXPERTS || batch->used + size > batch->room) batch_flush(batch);
    struct expert_rows *rows = &batch->rows[batch->count++];
    bind(rows, batch->experts, expert);
    rows->m.plan = *plan;
    rows->m.num_tokens = count;
    rows->row = row, rows->count = count, rows->index = batch->used;
    batch->used += size;
}

/* How many rows of an expert that has `count` are computed at once. 0: none in this pass. */
static int64_t rows_at_once(const struct expert_batch *batch, const struct cpu_matmul_plan *plan, int64_t count)
{
    struct matmul m = batch->experts->m;
    m.plan = *plan;
    /* What is packed for the gate must be what up multiplies. */
    const int64_t longest = plan->tiles && !has_two_orders(&m) ? matmul_longest_stretch(&m) : 0;
    if (batch->is_many != (longest > 0)) return 0;
    const int64_t most = batch->is_many ? longest : min_i64(FEW_TOKENS, batch->room);
    return divide_up(count, divide_up(count, most));
}

static void compute_experts(const struct experts *experts, int32_t num_experts)
{
    const struct matmul *m = &experts->m;
    struct expert_batch batch;
    for (int is_many = 0; is_many < 2; is_many++) {
        batch_begin(&batch, experts, is_many);
        for (int32_t e = 0; e < num_experts; e++) {
            const int64_t start = experts->plan->starts[e], end = experts->plan->starts[e + 1];
            if (start == end) continue;
            const struct cpu_matmul_plan plan = cpu_matmul_plan(m->s->tables, m->w, m->args->dtype, end - start);
            const int64_t each = rows_at_once(&batch, &plan, end - start);
            for (int64_t row = start; row < end && each > 0; row += each)
                batch_add(&batch, e, row, (int)min_i64(each, end - row), &plan);
        }
        batch_flush(&batch);
    }
}

static struct matmul matmul_of(const struct cpu_state *s, const struct linear_args *args, int64_t out_features)
{
    const struct weight *w = args->weight;
    return (struct matmul){.s = s,
                           .args = args,
                           .w = w,
                           .w_dtype = weight_is_quantized(w) ? DTYPE_FLOAT32 : weight_dtype(w),
                           .plan = cpu_matmul_plan(s->tables, w, args->dtype, 1),
                           .num_tokens = 1,
                           .in_features = w->in_features,
                           .out_features = out_features};
}

/* ---- the operations ---- */

void cpu_experts_gate_up(struct backend *b, const struct experts_gate_up_args *args)
{
    const struct weight *w = args->gate_up.weights;
    const bool two = args->gate_up.num_parts == 2, gated = args->gate.kind != GATE_NONE;
    const struct linear_args linear = {.out = args->out,
                                       .out_stride = args->size,
                                       .out_dtype = args->dtype,
                                       .x = args->x,
                                       .x_stride = w->in_features,
                                       .dtype = args->dtype,
                                       .weight = w};
    struct experts experts = {.matrices = &args->gate_up,
                              .plan = &args->plan,
                              .m = matmul_of(cpu_state(b), &linear, args->size),
                              .up = {.first = two ? 0 : args->size}};
    if (gated) experts.up.w = two ? w + 1 : w, experts.m.up = &experts.up;
    experts.m.gate = &args->gate;
    experts.m.tokens = args->plan.tokens;
    experts.m.x_weights = args->weights_first ? &args->plan : NULL;
    experts.m.top_k = args->top_k;
    compute_experts(&experts, args->num_experts);
}

/* A piece of a token's sum over its experts. */
static void sum_piece(const struct cpu_state *s, const void *down_args, int64_t i, int thread)
{
    (void)thread;
    const struct experts_down_args *args = down_args;
    const int64_t size = args->down.weights->out_features, pieces = divide_up(size, CPU_PIECE), t = i / pieces;
    const int64_t first = i % pieces * CPU_PIECE, count = min_i64(CPU_PIECE, size - first);
    float sum[CPU_PIECE] = {0}, row[CPU_PIECE];
    if (args->base) {
        const float factor = args->base_gate ? args->base_gate[t] : 1;
        s->kernels->to_float(sum, cpu_element(args->base, args->dtype, t * size + first), args->dtype, count);
        for (int64_t j = 0; j < count && args->base_gate; j++) sum[j] *= factor;
    }
    for (int64_t k = t * args->top_k; k < (t + 1) * args->top_k; k++) {
        const int64_t start = args->plan.rows[k] * size + first;
        if (args->plan.rows[k] < 0) continue;
        const float weight = args->weights_first ? 1 : args->plan.weights[k];
        s->kernels->to_float(row, cpu_element(args->scratch, args->dtype, start), args->dtype, count);
        for (int64_t j = 0; j < count; j++) sum[j] += weight * row[j];
    }
    s->kernels->from_float(cpu_element_out(args->out, args->dtype, t * size + first), sum, args->dtype, count);
}

void cpu_experts_down(struct backend *b, const struct experts_down_args *args)
{
    const struct cpu_state *s = cpu_state(b);
    const struct weight *w = args->down.weights;
    const struct linear_args linear = {.out = args->scratch,
                                       .out_stride = w->out_features,
                                       .out_dtype = args->dtype,
                                       .x = args->x,
                                       .x_stride = args->size,
                                       .dtype = args->dtype,
                                       .weight = w};
    const struct experts experts = {
        .matrices = &args->down, .plan = &args->plan, .m = matmul_of(s, &linear, w->out_features)};
    compute_experts(&experts, args->num_experts);
    cpu_for(s, (int64_t)args->num_tokens * (args->top_k + 2) * w->out_features,
            args->num_tokens * divide_up(w->out_features, CPU_PIECE), sum_piece, args);
}
