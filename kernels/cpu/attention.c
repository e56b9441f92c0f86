/* Paged attention (Kwon et al., 2023) with the online softmax of Milakov and Gimelshein (2018).
 *
 * The work is cut into tiles of up to TILE_ROWS query rows. A row is one head of one token; the rows of a tile share a
 * sequence and a KV head, so that each K and V is read once for all of them. A tile walks its context in chunks of
 * CHUNK tokens: scores, mask, softmax, weighted values.
 *
 *                    chunk 0     chunk 1     chunk 2
 *                  +-----------+-----------+------
 *   token 5 head 0 | scores    | scores    |           tile->max, tile->sum and tile->out hold the softmax and the
 *   token 5 head 1 | [rows,    |           |           weighted sum of V over the chunks so far
 *   token 6 head 0 |  chunk]   |           |
 *                  +-----------+-----------+------
 *
 * float32 blocks are read in place, others are converted one block at a time. Slots that no row of the tile attends to
 * (past the end of the sequence, before the window) may hold anything, NaN included. Their weight is 0, but 0 * NaN is
 * NaN, so V is set to zero there. */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/state.h"

enum { TILE_ROWS = 64, CHUNK = 128, MAX_CHUNK_BLOCKS = CHUNK };

struct tile {
    const struct attention_args *args;
    const struct cpu_kernels *kernels;
    const int32_t *block_table;
    int32_t kv_head, rows;
    int32_t first, end; /* the tokens that some row attends to lie in [first, end) */
    bool sparse;
    int32_t position[TILE_ROWS], head[TILE_ROWS];
    int64_t token[TILE_ROWS];             /* row of query and out */
    float max[TILE_ROWS], sum[TILE_ROWS]; /* of the softmax so far */
    float *query, *out; /* [rows, head_size] scaled query; [rows, v_head_size] weighted sum of V so far */
    float *scores;      /* [rows, chunk] */
    float *k, *v;       /* converted K of one block; converted V of the blocks of a chunk */
};

static int64_t chunk_tokens(int64_t block_size)
{
    return max_i64(block_size, CHUNK / block_size * block_size);
}

static int64_t tile_bytes(int64_t head_size, int64_t v_head_size, int64_t block_size)
{
    int64_t chunk = chunk_tokens(block_size);
    int64_t floats = (TILE_ROWS + block_size) * head_size + TILE_ROWS * chunk + (TILE_ROWS + chunk) * v_head_size;
    return cpu_align(floats * (int64_t)sizeof(float));
}

static bool is_sparse(const struct attention_args *args)
{
    return args->params->sparse_vertical_stride > 1;
}

/* In block-sparse attention (struct attention_params) each row masks different tokens. With one row in a tile, V can be
 * zeroed where the row masks it. */
static int32_t rows_per_tile(const struct attention_args *args)
{
    return is_sparse(args) ? 1 : TILE_ROWS;
}

static void tile_scratch(struct tile *tile, const struct cpu_state *s, const struct attention_args *args, int thread)
{
    int64_t head_size = args->head_size, block_size = args->block_size;
    int64_t bytes = tile_bytes(head_size, args->v_head_size, block_size);
    assert((thread + 1) * bytes <= s->workspace_bytes);
    tile->args = args;
    tile->kernels = s->kernels;
    tile->sparse = is_sparse(args);
    tile->query = (float *)(s->workspace + thread * bytes);
    tile->out = tile->query + TILE_ROWS * head_size;
    tile->scores = tile->out + TILE_ROWS * args->v_head_size;
    tile->k = tile->scores + TILE_ROWS * chunk_tokens(block_size);
    tile->v = tile->k + block_size * head_size;
}

/* The scale of K (0) or V (1): real value = stored value * scale. */
static float kv_scale(const struct attention_args *args, int i)
{
    return dtype_size(args->cache_dtype) == 1 ? args->params->kv_scales[i] : 1;
}

static void load_query(struct tile *tile, int32_t row)
{
    const struct attention_args *args = tile->args;
    float *query = tile->query + (int64_t)row * args->head_size, factor = args->params->scale * kv_scale(args, 0);
    int64_t start = tile->token[row] * args->query_stride + (int64_t)tile->head[row] * args->head_size;
    tile->kernels->to_float(query, cpu_element(args->query, args->dtype, start), args->dtype, args->head_size);
    for (int32_t d = 0; d < args->head_size; d++) query[d] *= factor;
}

/* The first token that the query at `position` attends to. */
static int32_t first_token(const struct attention_params *params, int32_t position)
{
    if (params->chunk > 0) return position / params->chunk * params->chunk;
    return params->window > 0 && position >= params->window ? position - params->window + 1 : 0;
}

/* Takes rows [first_row, first_row + rows per tile) of sequence `seq` and a KV head; row r is head r % group of token
 * r / group. Returns false if there are no such rows. */
static bool tile_begin(struct tile *tile, int32_t seq, int32_t kv_head, int64_t first_row)
{
    const struct attention_args *args = tile->args;
    int32_t group = args->num_heads / args->num_kv_heads;
    int64_t query_start = args->query_start[seq], query_len = args->query_start[seq + 1] - query_start;
    int64_t rows = min_i64(rows_per_tile(args), query_len * group - first_row);
    if (rows <= 0) return false;
    tile->rows = (int32_t)rows;
    tile->kv_head = kv_head;
    tile->block_table = args->block_tables + args->state_indices[seq] * args->block_table_stride;
    for (int32_t r = 0; r < tile->rows; r++) {
        int64_t token = (first_row + r) / group;
        tile->head[r] = kv_head * group + (int32_t)((first_row + r) % group);
        tile->token[r] = query_start + token;
        tile->position[r] = (int32_t)(args->seq_lens[seq] - query_len + token);
        tile->max[r] = -INFINITY;
        tile->sum[r] = 0;
        load_query(tile, r);
    }
    memset(tile->out, 0, sizeof(float) * (size_t)(rows * args->v_head_size));
    tile->end = tile->position[rows - 1] + 1;
    tile->first = first_token(args->params, tile->position[0]);
    return true;
}

/* The inner loops take K in groups of 4 or 8 elements. */
static int key_group(enum dtype cache_dtype)
{
    return cache_dtype == DTYPE_FLOAT32 ? 4 : 8;
}

/* An fp8 cache has groups of 16 elements: cuts them into groups of 8. */
static void convert_fp8_keys(float *out, const struct tile *tile, const void *in)
{
    const struct attention_args *args = tile->args;
    int64_t block_size = args->block_size;
    float piece[16];
    for (int64_t d = 0; d < args->head_size; d += 16)
        for (int64_t t = 0; t < block_size; t++) {
            tile->kernels->to_float(piece, (const uint8_t *)in + d * block_size + t * 16, args->cache_dtype, 16);
            memcpy(out + d * block_size + t * 8, piece, 8 * sizeof *piece);
            memcpy(out + (d + 8) * block_size + t * 8, piece + 8, 8 * sizeof *piece);
        }
}

/* The keys of a physical block as floats, in groups of key_group elements. */
static const float *block_keys(const struct tile *tile, int64_t block)
{
    const struct attention_args *args = tile->args;
    int64_t count = (int64_t)args->block_size * args->head_size;
    const void *in = cpu_element(args->k_cache, args->cache_dtype, block * args->block_stride + tile->kv_head * count);
    if (args->cache_dtype == DTYPE_FLOAT32) return in;
    if (dtype_size(args->cache_dtype) == 1) {
        convert_fp8_keys(tile->k, tile, in);
    } else {
        tile->kernels->to_float(tile->k, in, args->cache_dtype, count);
    }
    return tile->k;
}

/* Sets V [v_head_size, block_size] to zero for tokens that no row attends to. The block begins with token `start`. */
static void zero_hidden(const struct tile *tile, float *values, int64_t start, const float *scores)
{
    int64_t block_size = tile->args->block_size, head_size = tile->args->v_head_size;
    for (int64_t t = 0; t < block_size; t++) {
        bool hidden = start + t < tile->first || start + t >= tile->end || (tile->sparse && scores[t] == -INFINITY);
        for (int64_t d = 0; hidden && d < head_size; d++) values[d * block_size + t] = 0;
    }
}

/* V of a physical block as floats, 0 for tokens that no row attends to. `scores` are the first row's, before the
 * softmax. */
static const float *block_values(const struct tile *tile, float *scratch, int64_t block, int64_t start,
                                 const float *scores)
{
    const struct attention_args *args = tile->args;
    int64_t count = (int64_t)args->block_size * args->v_head_size;
    const void *in = cpu_element(args->v_cache, args->cache_dtype, block * args->block_stride + tile->kv_head * count);
    bool all_seen = start >= tile->first && start + args->block_size <= tile->end && !tile->sparse;
    if (args->cache_dtype == DTYPE_FLOAT32 && all_seen) return in;
    tile->kernels->to_float(scratch, in, args->cache_dtype, count);
    if (!all_seen) zero_hidden(tile, scratch, start, scores);
    return scratch;
}

/* Block-sparse attention (struct attention_params): whether a row reads the key at `token`. */
static bool sparse_reads(const struct tile *tile, int32_t row, int32_t token)
{
    const struct attention_params *params = tile->args->params;
    int64_t step = params->sparse_head_sliding_step, key_block = token / params->sparse_block_size;
    int64_t head_offset = step >= 0 ? tile->head[row] * step : tile->kv_head * -step;
    int64_t query_block = tile->position[row] / params->sparse_block_size;
    return (key_block + head_offset + 1) % params->sparse_vertical_stride == 0 ||
           key_block > query_block - params->sparse_local_blocks;
}

/* Applies soft cap and ALiBi to the scores of tokens [start, start + width), and sets those of tokens that the row does
 * not attend to to -INFINITY. */
static void mask_row(const struct tile *tile, int32_t row, float *scores, int32_t start, int32_t width)
{
    const struct attention_params *params = tile->args->params;
    int32_t position = tile->position[row], from = first_token(params, position) - start, to = position + 1 - start;
    if (from < 0) from = 0;
    if (to < 0) to = 0;
    if (to > width) to = width;
    if (from > to) from = to;
    for (int32_t t = 0; t < from; t++) scores[t] = -INFINITY;
    for (int32_t t = to; t < width; t++) scores[t] = -INFINITY;
    if (params->soft_cap > 0)
        for (int32_t t = from; t < to; t++) scores[t] = params->soft_cap * tanhf(scores[t] / params->soft_cap);
    if (params->alibi_slopes)
        for (int32_t t = from; t < to; t++)
            scores[t] += params->alibi_slopes[tile->head[row]] * (float)(start + t - position);
    if (tile->sparse)
        for (int32_t t = from; t < to; t++)
            if (!sparse_reads(tile, row, start + t)) scores[t] = -INFINITY;
}

/* Turns scores into weights relative to the largest score so far. If that has grown, scales down the row's earlier
 * sums. */
static void softmax_row(struct tile *tile, int32_t row, float *scores, int32_t width)
{
    float max = tile->kernels->maximum(scores, width);
    if (max < tile->max[row]) max = tile->max[row];
    if (max == -INFINITY) { /* the row attends to nothing yet; a NaN score stays, so that it reaches the result */
        for (int32_t t = 0; t < width; t++) scores[t] = isnan(scores[t]) ? scores[t] : 0;
        return;
    }
    float factor = tile->max[row] == -INFINITY ? 0 : expf(tile->max[row] - max);
    float *out = tile->out + (int64_t)row * tile->args->v_head_size;
    if (factor != 1)
        for (int32_t d = 0; d < tile->args->v_head_size; d++) out[d] *= factor;
    tile->sum[row] = tile->sum[row] * factor + tile->kernels->exponentials(scores, max, width);
    tile->max[row] = max;
}

/* Attends to tokens [start, end), which lie in the num_blocks blocks from the one that begins with `start` on. */
static void tile_chunk(struct tile *tile, int32_t start, int32_t num_blocks, int32_t end)
{
    const struct attention_args *args = tile->args;
    int32_t block_size = args->block_size, width = num_blocks * block_size;
    const int32_t *blocks = tile->block_table + start / block_size;
    const float *values[MAX_CHUNK_BLOCKS];
    struct cpu_scores_args scores = {.score_stride = width,
                                     .query = tile->query,
                                     .num_rows = tile->rows,
                                     .head_size = args->head_size,
                                     .block_size = block_size,
                                     .x = key_group(args->cache_dtype)};
    for (int32_t i = 0; i < num_blocks; i++) {
        scores.scores = tile->scores + i * block_size;
        scores.keys = block_keys(tile, blocks[i]);
        scores.num_tokens = (int)min_i64(block_size, end - start - i * block_size);
        tile->kernels->scores(&scores);
    }
    for (int32_t r = 0; r < tile->rows; r++) mask_row(tile, r, tile->scores + (int64_t)r * width, start, width);
    for (int32_t i = 0; i < num_blocks; i++)
        values[i] = block_values(tile, tile->v + (int64_t)i * block_size * args->v_head_size, blocks[i],
                                 start + i * block_size, tile->scores + i * block_size);
    for (int32_t r = 0; r < tile->rows; r++) softmax_row(tile, r, tile->scores + (int64_t)r * width, width);
    tile->kernels->weighted_values(&(struct cpu_values_args){.out = tile->out,
                                                             .weights = tile->scores,
                                                             .weight_stride = width,
                                                             .values = values,
                                                             .num_rows = tile->rows,
                                                             .num_blocks = num_blocks,
                                                             .head_size = args->v_head_size,
                                                             .block_size = block_size});
}

/* Attends to the tile's tokens among [from, to); `from` is a multiple of the block size. */
static void tile_attend(struct tile *tile, int32_t from, int32_t to)
{
    int32_t block_size = tile->args->block_size, chunk = (int32_t)chunk_tokens(block_size);
    if (from < tile->first) from = tile->first / block_size * block_size;
    if (to > tile->end) to = tile->end;
    for (int32_t start = from; start < to; start += chunk) {
        int32_t end = (int32_t)min_i64(to, (int64_t)start + chunk);
        tile_chunk(tile, start, (int32_t)divide_up(end - start, block_size), end);
    }
}

/* What a head's sink adds to a sum of weights relative to `max`. */
static float sink_weight(const struct attention_args *args, int64_t head, float max)
{
    return args->params->sinks ? expf(args->params->sinks[head] - max) : 0;
}

/* The row's result, normalised in place; 0 if it attended to nothing. */
static float *tile_result(const struct tile *tile, int32_t row)
{
    float *out = tile->out + (int64_t)row * tile->args->v_head_size;
    float factor = tile->sum[row] == 0 ? 0 : kv_scale(tile->args, 1) / tile->sum[row];
    for (int32_t d = 0; d < tile->args->v_head_size; d++) out[d] *= factor;
    return out;
}

static void *out_row(const struct attention_args *args, int64_t token, int64_t head)
{
    return cpu_element_out(args->out, args->dtype, (token * args->num_heads + head) * args->v_head_size);
}

/* One tile of one sequence over its whole context. */
static void attend_tile(const struct cpu_state *s, const struct attention_args *args, int32_t seq, int32_t kv_head,
                        int64_t tile_index, int thread)
{
    struct tile tile;
    tile_scratch(&tile, s, args, thread);
    if (!tile_begin(&tile, seq, kv_head, tile_index * rows_per_tile(args))) return;
    tile_attend(&tile, 0, tile.end);
    for (int32_t r = 0; r < tile.rows; r++) {
        tile.sum[r] += sink_weight(args, tile.head[r], tile.max[r]);
        s->kernels->from_float(out_row(args, tile.token[r], tile.head[r]), tile_result(&tile, r), args->dtype,
                               args->v_head_size);
    }
}

/* Tiles of the longest query. */
static int64_t tiles_per_head(const struct attention_args *args, int32_t max_query_len)
{
    return divide_up((int64_t)max_query_len * (args->num_heads / args->num_kv_heads), rows_per_tile(args));
}

static int64_t attention_work(const struct attention_args *args)
{
    int64_t rows = (int64_t)args->num_seqs * args->max_query_len * args->num_heads;
    return rows * args->max_seq_len * args->head_size;
}

/* Each tile attends to its whole context. */
struct whole {
    const struct attention_args *args;
    int64_t tiles, heads; /* per head; of all sequences */
    int64_t rounds, threads;
};

/* The last tiles of a prefill come first, because they take longest. Neighbours run on one thread, so tiles are dealt
 * out like cards: each thread gets one of a round. */
static void attend_one(const struct cpu_state *s, const void *whole, int64_t index, int thread)
{
    const struct whole *w = whole;
    const struct attention_args *args = w->args;
    const int64_t i = index % w->rounds * w->threads + index / w->rounds;
    if (i >= w->tiles * w->heads) return;
    int32_t seq = args->first_seq + (int32_t)(i % w->heads / args->num_kv_heads);
    attend_tile(s, args, seq, (int32_t)(i % args->num_kv_heads), w->tiles - 1 - i / w->heads, thread);
}

void cpu_paged_attention(struct backend *b, const struct attention_args *args)
{
    const struct cpu_state *s = cpu_state(b);
    struct whole whole = {.args = args,
                          .tiles = tiles_per_head(args, args->max_query_len),
                          .heads = (int64_t)args->num_seqs * args->num_kv_heads,
                          .threads = cpu_threads_for(s, attention_work(args))};
    whole.rounds = divide_up(whole.tiles * whole.heads, whole.threads);
    cpu_for(s, attention_work(args), whole.rounds * whole.threads, attend_one, &whole);
}

/* What v2 stores for one head of one sequence and one partition: max, sum and the normalised result. */
static int64_t partial_floats(int64_t v_head_size)
{
    return v_head_size + 2;
}

/* Contexts are cut into partitions. */
struct parts {
    const struct attention_args *args; /* sequences [first_seq, first_seq + num_seqs) */
    float *partials;                   /* [num_seqs, stride] */
    int64_t stride, tiles, num_partitions;
};

static void attend_partition(const struct cpu_state *s, const void *parts, int64_t i, int thread)
{
    const struct parts *p = parts;
    const struct attention_args *args = p->args;
    const int64_t num_partitions = p->num_partitions, per_seq = num_partitions * args->num_kv_heads * p->tiles;
    const int64_t seq = i / per_seq, partition = i % per_seq / (args->num_kv_heads * p->tiles);
    const int32_t kv_head = (int32_t)(i / p->tiles % args->num_kv_heads);
    float *partials = p->partials + seq * p->stride;
    struct tile tile;
    tile_scratch(&tile, s, args, thread);
    if (!tile_begin(&tile, args->first_seq + (int32_t)seq, kv_head, i % p->tiles * rows_per_tile(args))) return;
    int64_t from = partition * PAGED_ATTENTION_PARTITION_SIZE;
    tile_attend(&tile, (int32_t)from, (int32_t)min_i64(tile.end, from + PAGED_ATTENTION_PARTITION_SIZE));
    for (int32_t r = 0; r < tile.rows; r++) {
        float *partial = partials + (tile.head[r] * num_partitions + partition) * partial_floats(args->v_head_size);
        partial[0] = tile.sum[r] == 0 ? -FLT_MAX : tile.max[r];
        partial[1] = tile.sum[r];
        memcpy(partial + 2, tile_result(&tile, r), sizeof(float) * (size_t)args->v_head_size);
    }
}

/* Combines the partitions of one head. */
static void reduce_partitions(const struct cpu_state *s, const void *parts, int64_t i, int thread)
{
    (void)thread;
    const struct parts *p = parts;
    const struct attention_args *args = p->args;
    const int64_t head_size = args->v_head_size, size = partial_floats(head_size), num_partitions = p->num_partitions;
    const int64_t seq = i / args->num_heads, head = i % args->num_heads;
    const float *first = p->partials + seq * p->stride + head * num_partitions * size;
    float max = -FLT_MAX, sum = 0, piece[CPU_PIECE];
    for (int64_t j = 0; j < num_partitions; j++)
        if (first[j * size] > max) max = first[j * size];
    for (int64_t j = 0; j < num_partitions; j++) sum += first[j * size + 1] * expf(first[j * size] - max);
    sum += sink_weight(args, head, max);
    float inverse = sum == 0 ? 0 : 1 / sum;
    for (int64_t start = 0; start < head_size; start += CPU_PIECE) {
        int64_t n = min_i64(CPU_PIECE, head_size - start);
        memset(piece, 0, sizeof piece);
        for (int64_t j = 0; j < num_partitions; j++) {
            float weight = first[j * size + 1] * expf(first[j * size] - max) * inverse;
            for (int64_t d = 0; d < n; d++) piece[d] += weight * first[j * size + 2 + start + d];
        }
        void *out = out_row(args, args->query_start[args->first_seq + seq], head);
        s->kernels->from_float(cpu_element_out(out, args->dtype, start), piece, args->dtype, n);
    }
}

/* v2 for sequences [first_seq, first_seq + num_seqs), whose partial results fit in the workspace. */
static void attend_partitions(const struct cpu_state *s, const struct attention_args *args, float *partials,
                              int64_t num_partitions)
{
    const struct parts parts = {.args = args,
                                .partials = partials,
                                .stride = args->num_heads * num_partitions * partial_floats(args->v_head_size),
                                .tiles = tiles_per_head(args, 1),
                                .num_partitions = num_partitions};
    const int64_t per_seq = num_partitions * args->num_kv_heads * parts.tiles;
    cpu_for(s, attention_work(args), args->num_seqs * per_seq, attend_partition, &parts);
    cpu_for(s, args->num_seqs * parts.stride, (int64_t)args->num_seqs * args->num_heads, reduce_partitions, &parts);
}

/* Divides long contexts between threads; takes as many sequences at a time as the workspace has room for. */
void cpu_paged_attention_v2(struct backend *b, const struct attention_args *args)
{
    const struct cpu_state *s = cpu_state(b);
    int64_t num_partitions = max_i64(1, divide_up(args->max_seq_len, PAGED_ATTENTION_PARTITION_SIZE));
    int64_t used = s->threads * tile_bytes(args->head_size, args->v_head_size, args->block_size);
    int64_t per_seq = args->num_heads * num_partitions * partial_floats(args->v_head_size) * (int64_t)sizeof(float);
    int64_t at_once = (s->workspace_bytes - used) / per_seq;
    if (at_once < 1) { /* the context is longer than the workspace was made for */
        cpu_paged_attention(b, args);
        return;
    }
    struct attention_args part = *args;
    int32_t end = args->first_seq + args->num_seqs;
    for (; part.first_seq < end; part.first_seq += part.num_seqs) {
        part.num_seqs = (int32_t)min_i64(at_once, end - part.first_seq);
        attend_partitions(s, &part, (float *)(s->workspace + used), num_partitions);
    }
}

int64_t cpu_attention_workspace(const struct cpu_state *s, const struct workspace_query *query)
{
    int64_t num_partitions = divide_up(query->max_model_len, PAGED_ATTENTION_PARTITION_SIZE);
    int64_t partials = query->num_heads * num_partitions * partial_floats(query->head_size) * (int64_t)sizeof(float);
    return s->threads * tile_bytes(query->head_size, query->head_size, query->block_size) + cpu_align(partials);
}
