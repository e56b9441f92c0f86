/* Matrix products with weights [rows, columns].
 *
 * Few rows of x: each thread takes a range of weight rows and reads each once, as it lies; the speed is memory's.
 *
 * Many rows: the blocking of Goto and van de Geijn ("Anatomy of high-performance matrix multiplication", 2008), with
 * the operands in the roles that suit weights. A stretch of x is packed once, by all threads, into the shared
 * workspace; then each thread takes columns of the output, packs (and converts) the weights they need, DEPTH at a time,
 * into its own scratch, and runs over the stretch of x in tiles that stay in registers. */
#include <assert.h>
#include <string.h>

#include "kernels/cpu/state.h"

enum {
    FEW_ROWS = 16,       /* x rows at once on the first path */
    FEW_COLUMNS = 64,    /* weight rows at once */
    DEPTH = 256,         /* columns of a packed panel of weights: 32 KiB for 32 of them */
    PANEL_COLUMNS = 128, /* output columns of a thread's piece, at most */
    STRETCH_ROWS = 1008, /* x rows packed at once: a multiple of 6 and of 14 */
    STRETCH_FLOATS = 1 << 23,
    MAX_TILE = 16 * 64
};

struct product {
    const struct cpu_state *s;
    void *out;
    int64_t out_stride;
    enum dtype out_dtype;
    const void *x;
    int64_t x_stride;
    enum dtype dtype, w_dtype;
    int64_t rows;
    const struct weight *w;
};

static int64_t work(const struct product *p)
{
    return p->rows * p->w->out_features * p->w->in_features;
}

static void add_bias(const struct product *p, float *row, int64_t first, int64_t count)
{
    float bias[PANEL_COLUMNS];
    if (!p->w->bias) return;
    p->s->kernels->to_float(bias, cpu_element(p->w->bias, p->w->bias_dtype, first), p->w->bias_dtype, count);
    for (int64_t i = 0; i < count; i++) row[i] += bias[i];
}

static void store_row(const struct product *p, int64_t row, int64_t first, const float *values, int64_t count)
{
    p->s->kernels->from_float(cpu_element_out(p->out, p->out_dtype, row * p->out_stride + first), values, p->out_dtype,
                              count);
}

/* Output columns [first, first + count) of x's rows [row, row + rows), which are floats at x. */
static void few_columns(const struct product *p, const float *x, int64_t x_stride, int64_t row, int rows, int64_t first,
                        int64_t count)
{
    float values[FEW_ROWS * FEW_COLUMNS];
    const struct weight *w = p->w;
    p->s->kernels->dot_rows(values, FEW_COLUMNS, x, x_stride, rows,
                            cpu_element(w->data, p->w_dtype, first * w->in_features), p->w_dtype, w->in_features, count,
                            w->in_features);
    for (int r = 0; r < rows; r++) {
        add_bias(p, values + r * FEW_COLUMNS, first, count);
        store_row(p, row + r, first, values + r * FEW_COLUMNS, count);
    }
}

/* Rows [row, row + rows) of x, as floats: where they lie, or converted into the shared workspace. */
static const float *float_rows(const struct product *p, int64_t row, int rows, int64_t *stride)
{
    const struct cpu_state *s = p->s;
    *stride = p->x_stride;
    if (p->dtype == DTYPE_FLOAT32) return (const float *)p->x + row * p->x_stride;
    int64_t columns = p->w->in_features;
    float *out = (float *)s->workspace;
    assert(rows * columns * (int64_t)sizeof(float) <= s->workspace_bytes);
    *stride = columns;
    for (int r = 0; r < rows; r++)
        s->kernels->to_float(out + r * columns, cpu_element(p->x, p->dtype, (row + r) * p->x_stride), p->dtype,
                             columns);
    return out;
}

static void few_rows(const struct product *p, int64_t row, int rows)
{
    int64_t x_stride, n = p->w->out_features, pieces = (n + FEW_COLUMNS - 1) / FEW_COLUMNS;
    const float *x = float_rows(p, row, rows, &x_stride);
#pragma omp parallel for num_threads(cpu_threads_for(p->s, rows *n * p->w->in_features)) schedule(dynamic, 1)
    for (int64_t i = 0; i < pieces; i++)
        few_columns(p, x, x_stride, row, rows, i * FEW_COLUMNS, min_i64(FEW_COLUMNS, n - i * FEW_COLUMNS));
}

/* The second path's plan: x rows [row, row + rows) against all weights. */
struct stretch {
    const struct product *p;
    int64_t row, rows;
    int64_t strips, strip_rows; /* x is cut in strips of equal height, at most tile_rows */
    int64_t piece_columns;      /* of the output that a thread takes at once: a multiple of tile_columns, */
    int64_t piece_strips;       /* by so many strips */
    float *packed;              /* x: for each DEPTH columns, [strips, depth, tile_rows] */
    uint8_t *scratch;           /* [threads] of thread_bytes */
};

/* A thread's scratch: a panel of weights, a tile of the output's edge, and the piece's sums where out is not float. */
static int64_t panel_bytes(void)
{
    return PANEL_COLUMNS * DEPTH * (int64_t)sizeof(float);
}

static int64_t thread_bytes(void)
{
    return panel_bytes() + (MAX_TILE + STRETCH_ROWS * PANEL_COLUMNS) * (int64_t)sizeof(float);
}

static int64_t divide_up(int64_t n, int64_t step)
{
    return (n + step - 1) / step;
}

static int64_t stretch_rows(const struct cpu_kernels *kernels, int64_t columns)
{
    int64_t rows = min_i64(STRETCH_ROWS, max_i64(16 * kernels->tile_rows, STRETCH_FLOATS / columns));
    return rows / kernels->tile_rows * kernels->tile_rows;
}

static float *packed_strip(const struct stretch *stretch, int64_t strip, int64_t depth_start, int64_t depth)
{
    return stretch->packed + (depth_start * stretch->strips + strip * depth) * stretch->p->s->kernels->tile_rows;
}

/* One tile that the output has only `count` columns for. */
static void edge_tile(const struct cpu_kernels *kernels, float *edge, float *out, int64_t out_stride, const float *a,
                      const float *b, int64_t depth, int rows, int64_t count, bool accumulate)
{
    int64_t width = kernels->tile_columns;
    kernels->tile(edge, width, a, b, depth, rows, false);
    for (int r = 0; r < rows; r++)
        for (int64_t i = 0; i < count; i++)
            out[r * out_stride + i] = (accumulate ? out[r * out_stride + i] : 0) + edge[r * width + i];
}

/* Tiles over one panel of weights: `count` columns of the output, strips [first, end); `out` is the first element. */
static void panel_tiles(const struct stretch *stretch, const float *panel, float *edge, float *out, int64_t out_stride,
                        int64_t first, int64_t end, int64_t count, int64_t depth_start, int64_t depth)
{
    const struct cpu_kernels *kernels = stretch->p->s->kernels;
    int64_t width = kernels->tile_columns;
    for (int64_t strip = first; strip < end; strip++)
        for (int64_t n = 0; n < count; n += width) {
            const float *a = packed_strip(stretch, strip, depth_start, depth), *b = panel + n * depth;
            float *corner = out + (strip - first) * stretch->strip_rows * out_stride + n;
            int rows = (int)min_i64(stretch->strip_rows, stretch->rows - strip * stretch->strip_rows);
            if (n + width <= count) {
                kernels->tile(corner, out_stride, a, b, depth, rows, depth_start > 0);
            } else {
                edge_tile(kernels, edge, corner, out_stride, a, b, depth, rows, count - n, depth_start > 0);
            }
        }
}

static void pack_panel(const struct stretch *stretch, float *panel, int64_t first, int64_t count, int64_t depth_start,
                       int64_t depth)
{
    const struct product *p = stretch->p;
    const struct cpu_kernels *kernels = p->s->kernels;
    const struct weight *w = p->w;
    for (int64_t n = 0; n < count; n += kernels->tile_columns)
        kernels->pack(panel + n * depth, kernels->tile_columns,
                      cpu_element(w->data, p->w_dtype, (first + n) * w->in_features + depth_start), p->w_dtype,
                      w->in_features, (int)min_i64(kernels->tile_columns, count - n), depth);
}

/* Output columns [first, first + count) of the stretch's strips [first_strip, end_strip). */
static void stretch_piece(const struct stretch *stretch, int64_t first, int64_t count, int64_t first_strip,
                          int64_t end_strip)
{
    const struct product *p = stretch->p;
    uint8_t *scratch = stretch->scratch + cpu_thread() * thread_bytes();
    float *panel = (float *)scratch, *edge = (float *)(scratch + panel_bytes()), *sums = edge + MAX_TILE;
    bool direct = p->out_dtype == DTYPE_FLOAT32;
    int64_t first_row = first_strip * stretch->strip_rows, row = stretch->row + first_row;
    int64_t rows = min_i64(end_strip * stretch->strip_rows, stretch->rows) - first_row;
    int64_t sums_stride = direct ? p->out_stride : PANEL_COLUMNS;
    if (direct) sums = (float *)p->out + row * p->out_stride + first;
    for (int64_t start = 0; start < p->w->in_features; start += DEPTH) {
        int64_t depth = min_i64(DEPTH, p->w->in_features - start);
        pack_panel(stretch, panel, first, count, start, depth);
        panel_tiles(stretch, panel, edge, sums, sums_stride, first_strip, end_strip, count, start, depth);
    }
    for (int64_t r = 0; r < rows && (p->w->bias || !direct); r++) {
        add_bias(p, sums + r * sums_stride, first, count);
        if (!direct) store_row(p, row + r, first, sums + r * sums_stride, count);
    }
}

/* Small products are cut finer, so that every thread has something to do. */
static void choose_pieces(struct stretch *stretch, int threads)
{
    const struct cpu_kernels *kernels = stretch->p->s->kernels;
    int64_t n = stretch->p->w->out_features, wanted = threads > 1 ? 4 * threads : 1;
    stretch->strips = divide_up(stretch->rows, kernels->tile_rows);
    stretch->strip_rows = divide_up(stretch->rows, stretch->strips);
    stretch->strips = divide_up(stretch->rows, stretch->strip_rows);
    stretch->piece_columns = PANEL_COLUMNS / kernels->tile_columns * kernels->tile_columns;
    while (stretch->piece_columns > kernels->tile_columns && n < wanted * stretch->piece_columns)
        stretch->piece_columns -= kernels->tile_columns;
    int64_t across = divide_up(n, stretch->piece_columns);
    int64_t down = max_i64(1, min_i64(wanted / across, stretch->strips / 4));
    stretch->piece_strips = divide_up(stretch->strips, down);
}

static void pack_strip(const struct stretch *stretch, int64_t strip)
{
    const struct product *p = stretch->p;
    int64_t first = strip * stretch->strip_rows, row = stretch->row + first;
    for (int64_t start = 0; start < p->w->in_features; start += DEPTH) {
        int64_t depth = min_i64(DEPTH, p->w->in_features - start);
        p->s->kernels->pack(packed_strip(stretch, strip, start, depth), p->s->kernels->tile_rows,
                            cpu_element(p->x, p->dtype, row * p->x_stride + start), p->dtype, p->x_stride,
                            (int)min_i64(stretch->strip_rows, stretch->rows - first), depth);
    }
}

static void run_stretch(struct stretch *stretch)
{
    const struct product *p = stretch->p;
    int threads = cpu_threads_for(p->s, work(p));
    choose_pieces(stretch, threads);
    int64_t across = divide_up(p->w->out_features, stretch->piece_columns);
    int64_t down = divide_up(stretch->strips, stretch->piece_strips);
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < stretch->strips; i++) pack_strip(stretch, i);
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < across * down; i++) {
            int64_t first = i % across * stretch->piece_columns, first_strip = i / across * stretch->piece_strips;
            stretch_piece(stretch, first, min_i64(stretch->piece_columns, p->w->out_features - first), first_strip,
                          min_i64(first_strip + stretch->piece_strips, stretch->strips));
        }
    }
}

/* Returns false, having done nothing, if the workspace has no room for a strip of x. */
static bool many_rows(const struct product *p)
{
    const struct cpu_state *s = p->s;
    int64_t scratch = s->threads * thread_bytes(), height = s->kernels->tile_rows;
    int64_t longest =
        min_i64(stretch_rows(s->kernels, p->w->in_features),
                (s->workspace_bytes - scratch) / (p->w->in_features * (int64_t)sizeof(float)) / height * height);
    if (longest <= 0) return false;
    int64_t each = divide_up(p->rows, divide_up(p->rows, longest));
    for (int64_t row = 0; row < p->rows; row += each) {
        struct stretch stretch = {.p = p,
                                  .row = row,
                                  .rows = min_i64(each, p->rows - row),
                                  .packed = (float *)(s->workspace + scratch),
                                  .scratch = s->workspace};
        run_stretch(&stretch);
    }
    return true;
}

void cpu_linear(struct backend *b, const struct linear_args *args)
{
    const struct cpu_state *s = cpu_state(b);
    const struct product p = {.s = s,
                              .out = args->out,
                              .out_stride = args->out_stride,
                              .out_dtype = args->out_dtype,
                              .x = args->x,
                              .x_stride = args->x_stride,
                              .dtype = args->dtype,
                              .w_dtype = weight_dtype(args->weight),
                              .rows = args->num_tokens,
                              .w = args->weight};
    if (s->kernels->tile_rows > 0 && p.rows > FEW_ROWS && many_rows(&p)) return;
    for (int64_t row = 0; row < p.rows; row += FEW_ROWS) few_rows(&p, row, (int)min_i64(FEW_ROWS, p.rows - row));
}

int64_t cpu_linear_workspace(const struct cpu_state *s, const struct workspace_query *query)
{
    int64_t rows = FEW_ROWS, scratch = 0;
    if (s->kernels->tile_rows > 0 && query->max_num_tokens > FEW_ROWS) {
        int64_t wanted = divide_up(query->max_num_tokens, s->kernels->tile_rows) * s->kernels->tile_rows;
        rows = max_i64(rows, min_i64(wanted, stretch_rows(s->kernels, query->max_in_features)));
        scratch = s->threads * thread_bytes();
    }
    return scratch + cpu_align(rows * query->max_in_features * (int64_t)sizeof(float));
}
