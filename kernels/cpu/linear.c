/* Matmuls with weights [out_features, in_features].
 *
 * Few tokens: each thread takes a range of output features and reads their weights once from memory, as they are
 * stored; then they stay in its caches while the tokens pass in groups of a few. Memory sets the speed of a few tokens,
 * and arithmetic that of more. Matmuls of the same x are one loop (cpu_linear_parts), so that threads wait for each
 * other less often.
 *
 * Many tokens: packing the weights costs as much as some ten tokens, so tiles, which are faster by the token, pay only
 * from some tens of tokens on: where both ways take as long, so that tokens per second do not fall when a batch grows
 * (plan.c has the numbers). It is the blocking of Goto and van de Geijn ("Anatomy of high-performance matrix
 * multiplication", 2008), with the operands in the roles that suit weights. All threads pack a stretch of x into the
 * shared workspace, so that a tile reads consecutive addresses. Then each thread takes pieces of the output: it packs
 * (and converts) the weights of a piece into its own scratch, a panel of DEPTH input features at a time, and computes
 * the piece in tiles whose sums stay in registers.
 *
 *                 in_features                                 out_features
 *              DEPTH    DEPTH                         piece             piece
 *            +--------+--------+--                  +------+------+   +------+--
 *    strip 0 |        |        |     tile_tokens    | tile | tile |...|      |
 *            +--------+--------+--   tokens each    +------+------+   +------+--
 *    strip 1 |        |        |                    | tile | tile |   |      |
 *            +--------+--------+--                  +------+------+   +------+--
 *            |        |        |                    |      |      |   |      |
 *                   x                                        out
 *
 * With AMX, bfloat16 weights are multiplied as they are (tiles_amx.c).
 * Quantized weights are multiplied as bytes, with an x of 8 bits (linear_quantized.c and, in tiles, here), or become
 * floats a panel at a time where there are no kernels for that, or these are slower. x is put into the order of their
 * columns.
 */
#include <assert.h>

#include "kernels/cpu/linear.h"

enum {
    FEW_ROWS = 4,          /* output features that kernels->dot takes at once */
    PANEL_ROWS = 16,       /* output features and */
    PANEL_DEPTH = 1024,    /* input features of quantized weights that become floats for kernels->dot */
    DEPTH = 256,           /* input features of a panel: 32 KiB for 32 output features */
    STRETCH_TOKENS = 1008, /* tokens packed at once: a multiple of 6 and of 14 */
    STRETCH_FLOATS = 1 << 23,
    MAX_TILE_TOKENS = 32,
    MAX_TILE_FEATURES = 64,
    MAX_TILE = 1024, /* tokens x features */
    GATED_PIECE_FEATURES = PIECE_FEATURES / 2
};

/* ---- few tokens ---- */

/* Tokens [first, first + count) of x as floats: in place, or converted into the workspace. */
static const float *float_tokens(const struct matmul *m, int64_t first, int count, int64_t *stride)
{
    const struct cpu_state *s = m->s;
    *stride = m->args->x_stride;
    if (m->args->dtype == DTYPE_FLOAT32 && !m->w->input_order) return matmul_x(m, first, 0);
    float *out = (float *)s->workspace;
    assert(count * m->in_features * (int64_t)sizeof(float) <= s->workspace_bytes);
    *stride = m->in_features;
    for (int t = 0; t < count; t++) matmul_gather_x(m, out + t * m->in_features, first + t, 0, m->in_features);
    return out;
}

/* Does what cpu_kernels.dot does, with quantized weights: `count` output features from `first` on. */
static void dot_quantized(const struct cpu_state *s, const struct weight *w, const struct cpu_dot_args *dot,
                          int64_t first, int64_t count)
{
    float panel[PANEL_ROWS * PANEL_DEPTH], sums[FEW_TOKENS * PANEL_ROWS];
    for (int64_t o = 0; o < count; o += PANEL_ROWS) {
        struct cpu_dot_args part = *dot;
        part.out = sums;
        part.out_stride = PANEL_ROWS;
        part.weights = panel;
        part.out_features = min_i64(PANEL_ROWS, count - o);
        for (int64_t start = 0; start < w->in_features; start += PANEL_DEPTH) {
            part.in_features = min_i64(PANEL_DEPTH, w->in_features - start);
            part.x = dot->x + start;
            cpu_dequantize(s, panel, w, first + o, part.out_features, start, part.in_features);
            s->kernels->dot(&part);
            for (int t = 0; t < dot->num_tokens; t++)
                for (int64_t i = 0; i < part.out_features; i++) {
                    float *out = &dot->out[t * dot->out_stride + o + i];
                    *out = (start > 0 ? *out : 0) + sums[t * PANEL_ROWS + i];
                }
        }
    }
}

/* The sums of output features [first, first + count) of w: completes *dot, which has all but weights and out_features.
 * w_dtype: of w, if it is not quantized. */
static void dot_features(const struct cpu_state *s, const struct weight *w, enum dtype w_dtype,
                         enum cpu_few_kernel kernel, struct cpu_dot_args *dot, int64_t first, int64_t count)
{
    if (kernel == CPU_FEW_DEQUANTIZED) {
        dot_quantized(s, w, dot, first, count);
        return;
    }
    dot->weights = cpu_element(w->data, w_dtype, first * w->in_features);
    dot->out_features = count;
    s->kernels->dot(dot);
}

/* The tokens in `dot`, the first of which is `token`. */
struct few {
    const struct matmul_parts *parts;
    struct cpu_dot_args dot; /* without out and weights */
    int64_t token, features; /* features: at once */
};

static void few_features(const struct cpu_state *s, const void *few, int64_t i, int thread)
{
    (void)thread;
    const struct few *f = few;
    const struct few_piece piece = matmul_few_piece(f->parts, f->features, i);
    const struct matmul *m = piece.m;
    float sums[FEW_TOKENS * FEW_FEATURES];
    struct cpu_dot_args dot = f->dot;
    dot.out = sums;
    dot.out_stride = FEW_FEATURES;
    dot_features(s, m->w, m->w_dtype, m->plan.few, &dot, piece.first, piece.count);
    for (int t = 0; t < dot.num_tokens; t++)
        matmul_finish(m, f->token + t, piece.first, sums + t * FEW_FEATURES, NULL, piece.count);
}

static void few_tokens_at_once(const struct matmul_parts *parts, int64_t token, int count)
{
    const struct matmul *m = parts->m; /* the others are like it */
    if (m->plan.few == CPU_FEW_QUANTIZED) {
        matmul_few_quantized(parts, token, count);
        return;
    }
    /* Where tokens pass in several groups, each is read for so many output features. */
    const int64_t rows = count > FEW_ROWS ? PANEL_ROWS : FEW_ROWS;
    struct few few = {.parts = parts,
                      .dot = {.dtype = m->w_dtype, .num_tokens = count, .in_features = m->in_features},
                      .token = token,
                      .features = few_features_of(m->in_features * dtype_size(m->w_dtype), rows)};
    few.dot.x = float_tokens(m, token, count, &few.dot.x_stride);
    cpu_for(m->s, matmul_few_work(parts, count), matmul_few_pieces(parts, few.features), few_features, &few);
}

static void few_tokens(const struct matmul_parts *parts)
{
    const int64_t num_tokens = parts->m->num_tokens, pieces = divide_up(num_tokens, FEW_TOKENS);
    const int64_t each = divide_up(num_tokens, max_i64(1, pieces));
    for (int64_t token = 0; token < num_tokens; token += each)
        few_tokens_at_once(parts, token, (int)min_i64(each, num_tokens - token));
}

int64_t matmul_few_x_room(const struct matmul *m)
{
    if (m->plan.few == CPU_FEW_QUANTIZED) return matmul_quantized_x_room(m);
    return m->s->workspace_bytes / (m->in_features * (int64_t)sizeof(float));
}

struct few_x matmul_few_x(const struct matmul *m, int count)
{
    if (m->plan.few == CPU_FEW_QUANTIZED) return matmul_quantized_x(m, count);
    return (struct few_x){
        .m = m, .x_bytes = m->in_features * (int64_t)sizeof(float), .x = m->s->workspace, .count = count};
}

struct few_x matmul_few_x_part(const struct few_x *x, int64_t first, int count)
{
    struct few_x part = *x;
    part.x += first * x->x_bytes;
    if (x->sums) part.sums += first * x->groups;
    part.count = count;
    return part;
}

void matmul_few_x_set(const struct few_x *x, const struct matmul *m, int64_t index, int64_t token, int thread)
{
    if (x->kernels) {
        matmul_quantized_x_set(x, m, index, token, thread);
    } else {
        matmul_gather_x(m, (float *)(x->x + index * x->x_bytes), token, 0, m->in_features);
    }
}

void matmul_few_sums(const struct few_x *x, const struct weight *w, enum cpu_few_kernel kernel, float *sums,
                     int64_t first, int64_t count, int thread)
{
    struct cpu_dot_args dot = {.out = sums,
                               .out_stride = FEW_FEATURES,
                               .x = (const float *)x->x,
                               .x_stride = x->x_bytes / (int64_t)sizeof(float),
                               .dtype = x->m->w_dtype,
                               .num_tokens = x->count,
                               .in_features = w->in_features};
    if (kernel == CPU_FEW_QUANTIZED) {
        matmul_quantized_sums(x, w, sums, first, count, thread);
    } else {
        dot_features(x->m->s, w, x->m->w_dtype, kernel, &dot, first, count);
    }
}

/* ---- many tokens ---- */

/* What a thread computes at once: output features [first, first + count) of strips [first_strip, end_strip). */
struct piece {
    int64_t first, count, first_strip, end_strip;
    uint8_t *panel; /* packed weights: [count / tile_features] of tile_features * w_bytes() */
    float *edge;    /* [tile_tokens, tile_features] */
    float *sums;    /* [tokens of the piece, sums_stride]: the output itself if it is float32, else scratch */
    int64_t sums_stride;
};

static int64_t panel_bytes(void)
{
    return PIECE_FEATURES * DEPTH * (int64_t)sizeof(float);
}

/* A thread's scratch: panel, edge and sums. */
static int64_t thread_bytes(void)
{
    return panel_bytes() + (MAX_TILE + STRETCH_TOKENS * PIECE_FEATURES) * (int64_t)sizeof(float);
}

/* Packed bytes of so many input features of a token, and of an output feature. */
static int64_t x_bytes(const struct cpu_tiles *tiles, int64_t depth)
{
    return divide_up(depth, tiles->group) * tiles->x_group_bytes;
}

static int64_t w_bytes(const struct cpu_tiles *tiles, int64_t depth)
{
    return divide_up(depth, tiles->group) * tiles->w_group_bytes;
}

/* Tokens of a stretch for these in_features: a multiple of tile_tokens. */
static int64_t stretch_tokens(int tile_tokens, int64_t in_features)
{
    const int64_t tokens = min_i64(STRETCH_TOKENS, max_i64(16 * tile_tokens, STRETCH_FLOATS / in_features));
    return tokens / tile_tokens * tile_tokens;
}

/* Packed input features [start, start + depth) of a strip; start is a multiple of DEPTH. */
static uint8_t *packed_strip(const struct stretch *stretch, int64_t strip, int64_t start, int64_t depth)
{
    const struct cpu_tiles *tiles = stretch->m->plan.tiles;
    return stretch->packed +
           (x_bytes(tiles, start) * stretch->strips + strip * x_bytes(tiles, depth)) * tiles->tile_tokens;
}

/* Whether x becomes floats before it is packed. */
static bool gathers(const struct matmul *m)
{
    const enum cpu_tile_kind kind = m->plan.tiles->kind;
    const bool takes_others = kind == CPU_TILES_FLOAT || kind == CPU_TILES_BF16_X;
    return m->w->input_order || m->tokens || (m->args->dtype != DTYPE_FLOAT32 && !takes_others);
}

/* Columns [start, start + depth) of tokens from `first` on, in the type that the tiles take. */
static const void *gather_strip(const struct matmul *m, float *out, uint16_t *rounded, int64_t first, int tokens,
                                int64_t start, int64_t depth)
{
    for (int t = 0; t < tokens; t++) matmul_gather_x(m, out + t * depth, first + t, start, depth);
    if (m->plan.tiles->kind != CPU_TILES_BF16_X) return out;
    m->s->kernels->from_float(rounded, out, DTYPE_BFLOAT16, tokens * depth);
    return rounded;
}

void matmul_pack_strip(const struct stretch *stretch, int64_t strip)
{
    const struct matmul *m = stretch->m;
    const int64_t first = strip * stretch->strip_tokens;
    const int tokens = (int)min_i64(stretch->strip_tokens, stretch->num_tokens - first);
    const bool takes_x = !gathers(m) || m->plan.tiles->kind == CPU_TILES_BF16_X;
    const enum dtype dtype = takes_x ? m->args->dtype : DTYPE_FLOAT32;
    for (int64_t start = 0; start < m->in_features; start += DEPTH) {
        const int64_t depth = min_i64(DEPTH, m->in_features - start), stride = gathers(m) ? depth : m->args->x_stride;
        const void *x = matmul_x(m, stretch->token + first, start);
        uint8_t *packed = packed_strip(stretch, strip, start, depth);
        float gathered[MAX_TILE_TOKENS * DEPTH];
        uint16_t rounded[MAX_TILE_TOKENS * DEPTH];
        if (gathers(m)) x = gather_strip(m, gathered, rounded, stretch->token + first, tokens, start, depth);
        m->plan.tiles->pack_x(packed, x, dtype, stride, tokens, depth);
    }
}

static void pack_strip(const struct cpu_state *s, const void *stretch, int64_t strip, int thread)
{
    (void)s, (void)thread;
    matmul_pack_strip(stretch, strip);
}

/* Packs output features [first, first + count) of w, count <= tile_features. */
static void pack_features(const struct matmul *m, const struct weight *w, uint8_t *panel, int64_t first, int count,
                          int64_t start, int64_t depth)
{
    float decoded[MAX_TILE_FEATURES * DEPTH];
    const struct cpu_tiles *tiles = m->plan.tiles;
    if (tiles->kind == CPU_TILES_FLOAT && weight_is_quantized(w)) {
        const struct weight floats = {.format = WEIGHT_FLOAT32, .data = decoded, .in_features = depth};
        cpu_dequantize(m->s, decoded, w, first, count, start, depth);
        tiles->pack_w(panel, &floats, 0, count, 0, depth);
    } else {
        tiles->pack_w(panel, w, first, count, start, depth);
    }
}

/* The tiles of one strip. A last tile that is wider than what is left of the piece goes through `edge`. */
static void compute_tiles(const struct stretch *stretch, const struct piece *piece, int64_t strip, int64_t start,
                          int64_t depth)
{
    const struct matmul *m = stretch->m;
    const struct cpu_tiles *kernels = m->plan.tiles;
    const int64_t stride = piece->sums_stride, width = kernels->tile_features;
    const int64_t n = piece->count / width * width, left = piece->count - n; /* whole tiles, and what is left */
    const int tokens = (int)min_i64(stretch->strip_tokens, stretch->num_tokens - strip * stretch->strip_tokens);
    float *sums = piece->sums + (strip - piece->first_strip) * stretch->strip_tokens * stride;
    struct cpu_tile_args tiles = {.out = sums,
                                  .out_stride = stride,
                                  .x = packed_strip(stretch, strip, start, depth),
                                  .weights = piece->panel,
                                  .depth = depth,
                                  .num_features = n,
                                  .num_tokens = tokens,
                                  .accumulate = start > 0};
    kernels->multiply(&tiles);
    if (left == 0) return;
    tiles.out = piece->edge, tiles.out_stride = width;
    tiles.weights += n * w_bytes(kernels, depth);
    tiles.num_features = width;
    tiles.accumulate = false;
    kernels->multiply(&tiles);
    for (int t = 0; t < tokens; t++)
        for (int64_t i = 0; i < left; i++)
            sums[t * stride + n + i] = (start > 0 ? sums[t * stride + n + i] : 0) + piece->edge[t * width + i];
}

/* The sums of the piece by output features of w, of which `first` is the piece's first. */
static void multiply_piece(const struct stretch *stretch, const struct piece *piece, const struct weight *w,
                           int64_t first)
{
    const struct matmul *m = stretch->m;
    const struct cpu_tiles *tiles = m->plan.tiles;
    const int width = tiles->tile_features;
    for (int64_t start = 0; start < m->in_features; start += DEPTH) {
        const int64_t depth = min_i64(DEPTH, m->in_features - start);
        for (int64_t n = 0; n < piece->count; n += width)
            pack_features(m, w, piece->panel + n * w_bytes(tiles, depth), first + n,
                          (int)min_i64(width, piece->count - n), start, depth);
        for (int64_t strip = piece->first_strip; strip < piece->end_strip; strip++)
            compute_tiles(stretch, piece, strip, start, depth);
    }
}

/* The sums of gate and up lie side by side. */
static void compute_gated_piece(const struct stretch *stretch, struct piece *piece, int64_t token, int64_t tokens)
{
    const struct matmul *m = stretch->m;
    struct piece up = *piece;
    up.sums += GATED_PIECE_FEATURES;
    multiply_piece(stretch, piece, m->w, piece->first);
    multiply_piece(stretch, &up, m->up->w, m->up->first + piece->first);
    for (int64_t t = 0; t < tokens; t++)
        matmul_finish(m, token + t, piece->first, piece->sums + t * piece->sums_stride,
                      up.sums + t * piece->sums_stride, piece->count);
}

static void compute_piece(const struct stretch *stretch, struct piece *piece, uint8_t *scratch)
{
    const struct matmul *m = stretch->m;
    const enum cpu_tile_kind kind = m->plan.tiles->kind;
    /* Rows that lie far apart are slow to load into registers of tiles. */
    const bool direct =
        m->args->out_dtype == DTYPE_FLOAT32 && (kind == CPU_TILES_FLOAT || kind == CPU_TILES_INT8) && !m->gate;
    const int64_t first = piece->first_strip * stretch->strip_tokens, token = stretch->token + first;
    const int64_t tokens = min_i64(piece->end_strip * stretch->strip_tokens, stretch->num_tokens) - first;
    piece->panel = scratch;
    piece->edge = (float *)(scratch + panel_bytes());
    piece->sums = direct ? (float *)m->args->out + token * m->args->out_stride + piece->first : piece->edge + MAX_TILE;
    piece->sums_stride = direct ? m->args->out_stride : PIECE_FEATURES;
    if (m->up) {
        compute_gated_piece(stretch, piece, token, tokens);
        return;
    }
    multiply_piece(stretch, piece, m->w, piece->first);
    for (int64_t t = 0; t < tokens && (m->w->bias || !direct); t++) {
        float *sums = piece->sums + t * piece->sums_stride;
        if (direct) {
            matmul_add_bias(m, m->w, sums, piece->first, piece->count);
        } else {
            matmul_finish(m, token + t, piece->first, sums, NULL, piece->count);
        }
    }
}

void matmul_compute_piece(const struct stretch *stretch, int64_t index, int thread)
{
    struct piece piece = {.first = index % stretch->across * stretch->piece_features,
                          .first_strip = index / stretch->across * stretch->piece_strips};
    piece.count = min_i64(stretch->piece_features, stretch->m->out_features - piece.first);
    piece.end_strip = min_i64(piece.first_strip + stretch->piece_strips, stretch->strips);
    compute_piece(stretch, &piece, stretch->scratch + thread * thread_bytes());
}

static void compute_piece_of(const struct cpu_state *s, const void *stretch, int64_t i, int thread)
{
    (void)s;
    matmul_compute_piece(stretch, i, thread);
}

/* Small matmuls are cut finer, so that every thread has something to do. */
void matmul_choose_pieces(struct stretch *stretch, int64_t wanted)
{
    const int64_t n = stretch->m->out_features;
    const int64_t width = stretch->m->plan.tiles->tile_features;
    stretch->strips = divide_up(stretch->num_tokens, stretch->m->plan.tiles->tile_tokens);
    stretch->strip_tokens = divide_up(stretch->num_tokens, stretch->strips);
    stretch->strips = divide_up(stretch->num_tokens, stretch->strip_tokens);
    stretch->piece_features = (stretch->m->up ? GATED_PIECE_FEATURES : PIECE_FEATURES) / width * width;
    while (stretch->piece_features > width && n < wanted * stretch->piece_features) stretch->piece_features -= width;
    stretch->across = divide_up(n, stretch->piece_features);
    const int64_t down = max_i64(1, min_i64(wanted / stretch->across, stretch->strips / 4));
    stretch->piece_strips = divide_up(stretch->strips, down);
    stretch->down = divide_up(stretch->strips, stretch->piece_strips);
}

static void compute_stretch(struct stretch *stretch)
{
    const struct matmul *m = stretch->m;
    const int64_t multiplications = matmul_work(m, m->num_tokens);
    const int threads = cpu_threads_for(m->s, multiplications);
    matmul_choose_pieces(stretch, threads > 1 ? 4 * threads : 1);
    cpu_for(m->s, multiplications, stretch->strips, pack_strip, stretch);
    cpu_for(m->s, multiplications, stretch->across * stretch->down, compute_piece_of, stretch);
}

uint8_t *matmul_packed(const struct cpu_state *s)
{
    return s->workspace + s->threads * thread_bytes();
}

int64_t matmul_packed_bytes(const struct matmul *m, int64_t num_tokens)
{
    const int64_t height = m->plan.tiles->tile_tokens;
    return cpu_align(divide_up(num_tokens, height) * height * x_bytes(m->plan.tiles, m->in_features));
}

int64_t matmul_longest_stretch(const struct matmul *m)
{
    const struct cpu_state *s = m->s;
    const int64_t height = m->plan.tiles->tile_tokens;
    const int64_t bytes = s->workspace + s->workspace_bytes - matmul_packed(s);
    const int64_t room = bytes / x_bytes(m->plan.tiles, m->in_features) / height * height;
    return max_i64(0, min_i64(stretch_tokens(m->plan.tiles->tile_tokens, m->in_features), room));
}

/* Returns false, having done nothing, if the workspace has no room for a strip of x. */
static bool many_tokens(const struct matmul *m)
{
    const struct cpu_state *s = m->s;
    const int64_t longest = matmul_longest_stretch(m);
    if (longest <= 0) return false;
    const int64_t each = divide_up(m->num_tokens, divide_up(m->num_tokens, longest));
    for (int64_t token = 0; token < m->num_tokens; token += each) {
        struct stretch stretch = {.m = m,
                                  .token = token,
                                  .num_tokens = min_i64(each, m->num_tokens - token),
                                  .packed = matmul_packed(s),
                                  .scratch = s->workspace};
        compute_stretch(&stretch);
    }
    return true;
}

/* ---- the operation ---- */

static struct matmul matmul_of(struct backend *b, const struct linear_args *args)
{
    struct matmul m = {.s = cpu_state(b),
                       .args = args,
                       .w = args->weight,
                       .w_dtype = weight_is_quantized(args->weight) ? DTYPE_FLOAT32 : weight_dtype(args->weight),
                       .num_tokens = args->num_tokens,
                       .in_features = args->weight->in_features,
                       .out_features = args->weight->out_features};
    m.plan = cpu_matmul_plan(m.s->tables, m.w, args->dtype, m.num_tokens);
    return m;
}

static void linear_of_segments(struct backend *b, const struct linear_args *args)
{
    const struct row_segments *segments = &args->segments;
    for (int32_t s = 0; s < segments->count; s++) {
        const int32_t first = segments->starts[s];
        const struct weight weight = weight_of_segment(args->weight, s);
        struct linear_args part = *args;
        part.weight = &weight;
        part.x = cpu_element(args->x, args->dtype, first * args->x_stride);
        part.out = cpu_element_out(args->out, args->out_dtype, first * args->out_stride);
        part.num_tokens = segments->starts[s + 1] - first;
        part.segments.count = 0;
        if (part.num_tokens > 0) cpu_linear(b, &part);
    }
}

void cpu_linear(struct backend *b, const struct linear_args *args)
{
    if (args->segments.count > 0) {
        linear_of_segments(b, args);
        return;
    }
    const struct matmul m = matmul_of(b, args);
    if (m.plan.tiles && many_tokens(&m)) return;
    few_tokens(&(struct matmul_parts){&m, 1});
}

/* Whether x is read in the same form for both, and so are their weights. */
static bool are_alike(const struct weight *a, const struct weight *b)
{
    return a->format == b->format && a->in_features == b->in_features && a->group_size == b->group_size &&
           !a->zeros == !b->zeros && !a->input_order && !b->input_order;
}

bool cpu_linear_parts(struct backend *b, const struct linear_args *parts, int count)
{
    struct matmul m[LINEAR_MAX_PARTS];
    if (count > LINEAR_MAX_PARTS) return false;
    for (int i = 0; i < count; i++) {
        m[i] = matmul_of(b, &parts[i]);
        if (parts[i].segments.count > 0 || !m[i].plan.is_few || !are_alike(m[i].w, m[0].w)) return false;
    }
    few_tokens(&(struct matmul_parts){m, count});
    return true;
}

/* The packed x of a stretch, and the threads' scratch. */
static int64_t tiles_workspace(const struct cpu_state *s, const struct workspace_query *query, enum cpu_tile_kind kind)
{
    const struct cpu_tiles *tiles = s->tables->tiles[kind];
    if (!tiles || query->max_num_tokens <= cpu_most_few_tokens(s->tables, kind)) return 0;
    const int64_t wanted = divide_up(query->max_num_tokens, tiles->tile_tokens) * tiles->tile_tokens;
    const int64_t tokens = min_i64(wanted, stretch_tokens(tiles->tile_tokens, query->max_in_features));
    return s->threads * thread_bytes() + tokens * x_bytes(tiles, query->max_in_features);
}

int64_t cpu_linear_workspace(const struct cpu_state *s, const struct workspace_query *query)
{
    int64_t bytes = FEW_TOKENS * query->max_in_features * (int64_t)sizeof(float);
    for (int kind = 0; kind < CPU_TILE_KINDS; kind++)
        bytes = max_i64(bytes, tiles_workspace(s, query, (enum cpu_tile_kind)kind));
    return max_i64(cpu_align(bytes), matmul_quantized_workspace(s, query->max_in_features));
}
