/* Latent attention in its absorbed form (kernels/latent.h), and the matmuls of heads around it.
 *
 * All heads read one vector of a token: K is the whole of it, V its first `rank` elements. So a tile has up to
 * TILE_ROWS rows, each a head of a token of a sequence, and walks its context block after block with the online softmax
 * of Milakov and Gimelshein (2018), as in attention.c. A block is a matrix of a row for each token: scores are its
 * product with the queries, and results the sum of its rows, weighted. Only the tokens before the tile's end are read.
 *
 * The contexts of decodes are cut into partitions, whose results are combined. */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/state.h"

enum { TILE_ROWS = 64 };

struct tile {
    const struct latent_attention_args *args;
    const struct cpu_kernels *kernels;
    const int32_t *block_table;
    int32_t rows, end;              /* some row attends to tokens [0, end) */
    int32_t first_position;         /* of the first row's token */
    int64_t first_row, first_token; /* of the entry's rows; row of query and out of the first row's token */
    float max[TILE_ROWS];           /* of the softmax so far */
    /* Sums of the softmax, and weighted sums: of the latest partition, and of those before it. So a sum of many tokens
     * is not rounded with each of them. */
    float sum[TILE_ROWS], earlier_sum[TILE_ROWS];
    float *out, *earlier; /* [rows, rank] */
    float *query;         /* [rows, rank + rope], scaled */
    float *scores;        /* [rows, block_size] */
    float *block;         /* [block_size, rank + rope] an fp8 block as floats */
};

static int64_t vector_size(const struct latent_attention_args *args)
{
    return args->rank + args->rope;
}

static int64_t tile_bytes(const struct latent_attention_args *args)
{
    const int64_t row = vector_size(args) + 2 * args->rank + args->block_size;
    return cpu_align((TILE_ROWS * row + args->block_size * vector_size(args)) * (int64_t)sizeof(float));
}

static float kv_scale(const struct latent_attention_args *args)
{
    return dtype_size(args->cache_dtype) == 1 ? args->kv_scales[0] : 1;
}

/* The row's token, counted from the tile's first one. */
static int64_t token_of(const struct tile *tile, int32_t row)
{
    const int32_t heads = tile->args->num_heads;
    return (tile->first_row % heads + row) / heads;
}

static int64_t head_of(const struct tile *tile, int32_t row)
{
    return (tile->first_row + row) % tile->args->num_heads;
}

static void load_query(struct tile *tile, int32_t row)
{
    const struct latent_attention_args *args = tile->args;
    const int64_t size = vector_size(args);
    const int64_t index = (tile->first_token + token_of(tile, row)) * args->num_heads + head_of(tile, row);
    float *query = tile->query + row * size, factor = args->scale * kv_scale(args);
    tile->kernels->to_float(query, cpu_element(args->query, args->dtype, index * size), args->dtype, size);
    for (int64_t i = 0; i < size; i++) query[i] *= factor;
}

/* Takes rows [first_row, first_row + TILE_ROWS) of entry `seq`; row r is head r % num_heads of token r / num_heads.
 * Returns false if there are no such rows. */
static bool tile_begin(struct tile *tile, const struct cpu_state *s, const struct latent_attention_args *args,
                       int64_t seq, int64_t first_row, int thread)
{
    const int64_t bytes = tile_bytes(args), start = args->query_start[seq], count = args->query_start[seq + 1] - start;
    const int64_t rows = min_i64(TILE_ROWS, count * args->num_heads - first_row), token = first_row / args->num_heads;
    if (rows <= 0) return false;
    assert((thread + 1) * bytes <= s->workspace_bytes);
    tile->args = args, tile->kernels = s->kernels;
    tile->block_table = args->block_tables + args->state_indices[seq] * args->block_table_stride;
    tile->rows = (int32_t)rows, tile->first_row = first_row, tile->first_token = start + token;
    tile->first_position = (int32_t)(args->seq_lens[seq] - count + token);
    tile->query = (float *)(s->workspace + thread * bytes);
    tile->out = tile->query + TILE_ROWS * vector_size(args);
    tile->earlier = tile->out + TILE_ROWS * args->rank;
    tile->scores = tile->earlier + TILE_ROWS * args->rank;
    tile->block = tile->scores + TILE_ROWS * args->block_size;
    memset(tile->out, 0, sizeof(float) * (size_t)(rows * args->rank));
    memset(tile->earlier, 0, sizeof(float) * (size_t)(rows * args->rank));
    for (int32_t r = 0; r < tile->rows; r++) {
        tile->max[r] = -INFINITY, tile->sum[r] = tile->earlier_sum[r] = 0;
        load_query(tile, r);
    }
    tile->end = tile->first_position + (int32_t)token_of(tile, tile->rows - 1) + 1;
    return true;
}

/* Turns the scores of tokens [start, start + count) into weights relative to the largest score so far. If that has
 * grown, scales down the row's earlier sums. */
static void softmax_row(struct tile *tile, int32_t row, float *scores, int32_t start, int32_t count)
{
    const int64_t rank = tile->args->rank, position = tile->first_position + token_of(tile, row);
    for (int64_t t = max_i64(position + 1 - start, 0); t < count; t++) scores[t] = -INFINITY;
    float max = tile->kernels->maximum(scores, count);
    if (max < tile->max[row]) max = tile->max[row];
    if (max == -INFINITY) { /* the row attends to nothing yet; a NaN score stays, so that it reaches the result */
        for (int32_t t = 0; t < count; t++) scores[t] = isnan(scores[t]) ? scores[t] : 0;
        return;
    }
    const float factor = tile->max[row] == -INFINITY ? 0 : expf(tile->max[row] - max);
    float *out = tile->out + row * rank, *earlier = tile->earlier + row * rank;
    if (factor != 1)
        for (int64_t d = 0; d < rank; d++) out[d] *= factor, earlier[d] *= factor;
    tile->earlier_sum[row] *= factor;
    tile->sum[row] = tile->sum[row] * factor + tile->kernels->exponentials(scores, max, count);
    tile->max[row] = max;
}

/* Attends to the first `count` tokens of a block, the first of which is token `start`. */
static void attend_block(struct tile *tile, int32_t start, int32_t count)
{
    const struct latent_attention_args *args = tile->args;
    const int64_t size = vector_size(args), block = tile->block_table[start / args->block_size];
    const void *rows = cpu_element(args->cache, args->cache_dtype, block * args->block_stride);
    enum dtype dtype = args->cache_dtype;
    if (dtype_size(dtype) == 1) {
        tile->kernels->to_float(tile->block, rows, dtype, count * size);
        rows = tile->block, dtype = DTYPE_FLOAT32;
    }
    tile->kernels->dot(&(struct cpu_dot_args){.out = tile->scores,
                                              .out_stride = args->block_size,
                                              .x = tile->query,
                                              .x_stride = size,
                                              .weights = rows,
                                              .dtype = dtype,
                                              .num_tokens = tile->rows,
                                              .out_features = count,
                                              .in_features = size});
    for (int32_t r = 0; r < tile->rows; r++)
        softmax_row(tile, r, tile->scores + (int64_t)r * args->block_size, start, count);
    tile->kernels->columns(&(struct cpu_columns_args){.out = tile->out,
                                                      .out_stride = args->rank,
                                                      .x = tile->scores,
                                                      .x_stride = args->block_size,
                                                      .weights = rows,
                                                      .weight_stride = size,
                                                      .dtype = dtype,
                                                      .num_tokens = tile->rows,
                                                      .in_features = count,
                                                      .out_features = args->rank});
}

/* Tokens of a partition: whole blocks. */
static int64_t partition_tokens(const struct latent_attention_args *args)
{
    return divide_up(PAGED_ATTENTION_PARTITION_SIZE, args->block_size) * args->block_size;
}

/* Adds the sums of the latest partition to the earlier ones. */
static void end_partition(struct tile *tile)
{
    const int64_t rank = tile->args->rank;
    for (int64_t i = 0; i < tile->rows * rank; i++) tile->earlier[i] += tile->out[i];
    memset(tile->out, 0, sizeof(float) * (size_t)(tile->rows * rank));
    for (int32_t r = 0; r < tile->rows; r++) {
        tile->earlier_sum[r] += tile->sum[r];
        tile->sum[r] = 0;
    }
}

/* Attends to the tile's tokens among [from, to); `from` is a multiple of the block size. */
static void tile_attend(struct tile *tile, int64_t from, int64_t to)
{
    const int64_t block_size = tile->args->block_size, partition = partition_tokens(tile->args);
    to = min_i64(to, tile->end);
    for (int64_t start = from; start < to; start += block_size) {
        attend_block(tile, (int32_t)start, (int32_t)min_i64(block_size, to - start));
        if ((start + block_size) % partition == 0) end_partition(tile);
    }
    end_partition(tile);
}

/* The row's result, normalised in place; 0 if it attended to nothing. */
static float *tile_result(const struct tile *tile, int32_t row)
{
    float *out = tile->earlier + (int64_t)row * tile->args->rank;
    const float sum = tile->earlier_sum[row], factor = sum == 0 ? 0 : kv_scale(tile->args) / sum;
    for (int32_t d = 0; d < tile->args->rank; d++) out[d] *= factor;
    return out;
}

static void *out_row(const struct latent_attention_args *args, int64_t token, int64_t head)
{
    return cpu_element_out(args->out, args->dtype, (token * args->num_heads + head) * args->rank);
}

/* Entries [first_seq, first_seq + num_seqs), each tile over its whole context or, of decodes, over a partition. */
struct entries {
    const struct latent_attention_args *args;
    int64_t first_seq, num_seqs;
    int64_t tiles, num_partitions; /* of an entry; of a tile */
    float *partials;               /* [num_seqs, num_heads, num_partitions, partial_floats] */
};

/* The last tiles of a prefill come first, because they take longest. */
static void attend_whole(const struct cpu_state *s, const void *context, int64_t index, int thread)
{
    const struct entries *e = context;
    const struct latent_attention_args *args = e->args;
    const int64_t first_row = (e->tiles - 1 - index / e->num_seqs) * TILE_ROWS;
    struct tile tile;
    if (!tile_begin(&tile, s, args, e->first_seq + index % e->num_seqs, first_row, thread)) return;
    tile_attend(&tile, 0, tile.end);
    for (int32_t r = 0; r < tile.rows; r++)
        s->kernels->from_float(out_row(args, tile.first_token + token_of(&tile, r), head_of(&tile, r)),
                               tile_result(&tile, r), args->dtype, args->rank);
}

/* What is stored for one head of one entry and one partition: max, sum and the normalised result. */
static int64_t partial_floats(const struct latent_attention_args *args)
{
    return args->rank + 2;
}

static void attend_partition(const struct cpu_state *s, const void *context, int64_t index, int thread)
{
    const struct entries *e = context;
    const struct latent_attention_args *args = e->args;
    const int64_t partition = index / e->tiles % e->num_partitions, seq = index / e->tiles / e->num_partitions;
    const int64_t from = partition * partition_tokens(args), first_row = index % e->tiles * TILE_ROWS;
    struct tile tile;
    if (!tile_begin(&tile, s, args, e->first_seq + seq, first_row, thread)) return;
    tile_attend(&tile, from, from + partition_tokens(args));
    for (int32_t r = 0; r < tile.rows; r++) {
        const int64_t head = seq * args->num_heads + head_of(&tile, r);
        float *partial = e->partials + (head * e->num_partitions + partition) * partial_floats(args);
        partial[0] = tile.max[r];
        partial[1] = tile.earlier_sum[r];
        memcpy(partial + 2, tile_result(&tile, r), sizeof(float) * (size_t)args->rank);
    }
}

/* Combines the partitions of a head of an entry. */
static void reduce_partitions(const struct cpu_state *s, const void *context, int64_t index, int thread)
{
    (void)thread;
    const struct entries *e = context;
    const struct latent_attention_args *args = e->args;
    const int64_t seq = e->first_seq + index / args->num_heads, size = partial_floats(args);
    const float *first = e->partials + index * e->num_partitions * size;
    float max = -FLT_MAX, sum = 0, piece[CPU_PIECE];
    if (args->query_start[seq] == args->query_start[seq + 1]) return;
    for (int64_t j = 0; j < e->num_partitions; j++)
        if (first[j * size] > max) max = first[j * size];
    for (int64_t j = 0; j < e->num_partitions; j++) sum += first[j * size + 1] * expf(first[j * size] - max);
    const float inverse = sum == 0 ? 0 : 1 / sum;
    for (int64_t start = 0; start < args->rank; start += CPU_PIECE) {
        const int64_t n = min_i64(CPU_PIECE, args->rank - start);
        memset(piece, 0, sizeof piece);
        for (int64_t j = 0; j < e->num_partitions; j++) {
            const float weight = first[j * size + 1] * expf(first[j * size] - max) * inverse;
            for (int64_t d = 0; d < n; d++) piece[d] += weight * first[j * size + 2 + start + d];
        }
        void *out = out_row(args, args->query_start[seq], index % args->num_heads);
        s->kernels->from_float(cpu_element_out(out, args->dtype, start), piece, args->dtype, n);
    }
}

static int64_t attention_work(const struct latent_attention_args *args, int64_t tokens)
{
    return tokens * args->num_heads * args->max_seq_len * vector_size(args);
}

/* Divides long contexts between threads; takes as many decodes at a time as the workspace has room for. Returns false,
 * having done nothing, if that is none. */
static bool attend_partitions(const struct cpu_state *s, const struct latent_attention_args *args)
{
    struct entries e = {.args = args,
                        .tiles = divide_up(args->num_heads, TILE_ROWS),
                        .num_partitions = divide_up(args->max_seq_len, partition_tokens(args))};
    const int64_t used = s->threads * tile_bytes(args);
    const int64_t per_seq = args->num_heads * e.num_partitions * partial_floats(args) * (int64_t)sizeof(float);
    const int64_t at_once = (s->workspace_bytes - used) / per_seq;
    if (at_once < 1) return false; /* the context is longer than the workspace was made for */
    e.partials = (float *)(s->workspace + used);
    for (; e.first_seq < args->num_decodes; e.first_seq += e.num_seqs) {
        e.num_seqs = min_i64(at_once, args->num_decodes - e.first_seq);
        cpu_for(s, attention_work(args, e.num_seqs), e.num_seqs * e.num_partitions * e.tiles, attend_partition, &e);
        cpu_for(s, e.num_seqs * per_seq / 4, e.num_seqs * args->num_heads, reduce_partitions, &e);
    }
    return true;
}

void cpu_latent_attention(struct backend *b, const struct latent_attention_args *args)
{
    const struct cpu_state *s = cpu_state(b);
    struct entries e = {.args = args};
    if (args->num_decodes > 0 && args->max_seq_len > partition_tokens(args) && attend_partitions(s, args))
        e.first_seq = args->num_decodes;
    e.num_seqs = args->num_seqs - e.first_seq;
    e.tiles = divide_up((int64_t)args->max_query_len * args->num_heads, TILE_ROWS);
    cpu_for(s, attention_work(args, args->num_tokens), e.tiles * e.num_seqs, attend_whole, &e);
}

/* ---- heads_linear ---- */

enum { X_FLOATS = 8192, MAX_TOKENS = 32, FEATURES = 64 };

/* An iteration computes some output features of a head for some tokens. */
struct heads_matmul {
    const struct heads_linear_args *args;
    int64_t tokens, token_pieces, feature_pieces; /* tokens at once; pieces of all tokens and of all output features */
};

static const void *head_weights(const struct heads_linear_args *args, int64_t head, int64_t first)
{
    const int64_t row = args->transposed ? 1 : args->in_features;
    return cpu_element(args->weight, args->weight_dtype, head * args->head_stride + first * row);
}

/* sums [num_tokens, FEATURES] = x [num_tokens, in_features] times output features [first, first + count) of a head. */
static void multiply_head(const struct cpu_kernels *kernels, const struct heads_linear_args *args, float *sums,
                          const float *x, int num_tokens, int64_t head, int64_t first, int64_t count)
{
    if (args->transposed) {
        memset(sums, 0, sizeof(float) * FEATURES * (size_t)num_tokens);
        kernels->columns(&(struct cpu_columns_args){.out = sums,
                                                    .out_stride = FEATURES,
                                                    .x = x,
                                                    .x_stride = args->in_features,
                                                    .weights = head_weights(args, head, first),
                                                    .weight_stride = args->out_features,
                                                    .dtype = args->weight_dtype,
                                                    .num_tokens = num_tokens,
                                                    .in_features = args->in_features,
                                                    .out_features = count});
        return;
    }
    kernels->dot(&(struct cpu_dot_args){.out = sums,
                                        .out_stride = FEATURES,
                                        .x = x,
                                        .x_stride = args->in_features,
                                        .weights = head_weights(args, head, first),
                                        .dtype = args->weight_dtype,
                                        .num_tokens = num_tokens,
                                        .out_features = count,
                                        .in_features = args->in_features});
}

/* What is copied beside the output features of a head, for some tokens. */
static void copy_rest(const struct cpu_kernels *kernels, const struct heads_linear_args *args, int64_t token,
                      int64_t num_tokens, int64_t head)
{
    const size_t bytes = (size_t)args->num_copied * (size_t)dtype_size(args->dtype);
    for (int64_t t = token; t < token + num_tokens; t++) {
        const int64_t from = t * args->x_stride + head * args->x_head_stride + args->in_features;
        const int64_t to = t * args->out_stride + head * args->out_head_stride + args->out_features;
        void *rest = cpu_element_out(args->out, args->dtype, to);
        memcpy(rest, cpu_element(args->x, args->dtype, from), bytes);
        if (args->cos_sin)
            cpu_rotate_head(kernels, rest, args->dtype, args->cos_sin + (int64_t)args->positions[t] * args->num_copied,
                            args->num_copied / 2, args->interleaved);
    }
}

static void multiply_piece(const struct cpu_state *s, const void *context, int64_t index, int thread)
{
    (void)thread;
    const struct heads_matmul *m = context;
    const struct heads_linear_args *args = m->args;
    const int64_t token = index % m->token_pieces * m->tokens, piece = index / m->token_pieces % m->feature_pieces;
    const int64_t head = index / m->token_pieces / m->feature_pieces, first = piece * FEATURES;
    const int64_t tokens = min_i64(m->tokens, args->num_tokens - token), size = args->in_features;
    const int64_t count = min_i64(FEATURES, args->out_features - first);
    float x[X_FLOATS], sums[MAX_TOKENS * FEATURES];
    for (int64_t t = 0; t < tokens; t++)
        s->kernels->to_float(
            x + t * size, cpu_element(args->x, args->dtype, (token + t) * args->x_stride + head * args->x_head_stride),
            args->dtype, size);
    multiply_head(s->kernels, args, sums, x, (int)tokens, head, first, count);
    for (int64_t t = 0; t < tokens; t++) {
        const int64_t at = (token + t) * args->out_stride + head * args->out_head_stride + first;
        s->kernels->from_float(cpu_element_out(args->out, args->dtype, at), sums + t * FEATURES, args->dtype, count);
    }
    if (piece == 0 && args->num_copied > 0) copy_rest(s->kernels, args, token, tokens, head);
}

void cpu_heads_linear(struct backend *b, const struct heads_linear_args *args)
{
    assert(args->in_features <= X_FLOATS);
    struct heads_matmul m = {.args = args,
                             .tokens = min_i64(MAX_TOKENS, X_FLOATS / args->in_features),
                             .feature_pieces = divide_up(args->out_features, FEATURES)};
    m.token_pieces = divide_up(args->num_tokens, m.tokens);
    const int64_t work = (int64_t)args->num_tokens * args->num_heads * args->in_features * args->out_features;
    cpu_for(cpu_state(b), work, args->num_heads * m.feature_pieces * m.token_pieces, multiply_piece, &m);
}
