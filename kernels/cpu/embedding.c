/* Embedding, gathering of tokens, and scaling and scattering of logits. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/state.h"

enum { LOGITS_PIECE = 4096 };

/* row: of the table; position: the row of the position table that is added. -1: none. */
static void embed(const struct cpu_kernels *kernels, const struct embedding_args *args, void *out, int64_t row,
                  int64_t position)
{
    const int64_t size = args->table->in_features;
    const enum dtype from = weight_dtype(args->table), to = args->dtype;
    const void *in = row < 0 ? NULL : cpu_element(args->table->data, from, row * size);
    if (row < 0 && position < 0) {
        memset(out, 0, (size_t)(size * dtype_size(to)));
        return;
    }
    if (from == to && args->multiplier == 1 && position < 0) {
        if (size > 0) memcpy(out, in, (size_t)(size * dtype_size(to)));
        return;
    }
    float piece[CPU_PIECE], added[CPU_PIECE];
    for (int64_t i = 0; i < size; i += CPU_PIECE) {
        const int64_t n = min_i64(CPU_PIECE, size - i);
        if (row >= 0)
            kernels->to_float(piece, cpu_element(in, from, i), from, n);
        else
            memset(piece, 0, (size_t)n * sizeof *piece);
        for (int64_t j = 0; j < n; j++) piece[j] *= args->multiplier;
        if (position >= 0) {
            const enum dtype dtype = weight_dtype(args->position_table);
            kernels->to_float(added, cpu_element(args->position_table->data, dtype, position * size + i), dtype, n);
            for (int64_t j = 0; j < n; j++) piece[j] += added[j];
        }
        kernels->from_float(cpu_element_out(out, to, i), piece, to, n);
    }
}

static void embed_token(const struct cpu_state *s, const void *embedding_args, int64_t t, int thread)
{
    (void)thread;
    const struct embedding_args *args = embedding_args;
    int64_t id = args->ids[t] >= 0 ? args->ids[t] : args->last_sampled[-(int64_t)args->ids[t] - 1];
    if (id < 0) id = 0; /* no token could be sampled; the result for token 0 is not used */
    const int64_t row = id - args->first_id;
    const bool is_there = !args->is_part || (row >= 0 && row < args->table->out_features);
    const int64_t position = args->position_table ? (int64_t)args->positions[t] + args->position_offset : -1;
    embed(s->kernels, args, cpu_element_out(args->out, args->dtype, t * args->table->in_features), is_there ? row : -1,
          position);
}

void cpu_embedding(struct backend *b, const struct embedding_args *args)
{
    cpu_for(cpu_state(b), args->num_tokens * args->table->in_features, args->num_tokens, embed_token, args);
}

void cpu_gather_rows(struct backend *b, const struct gather_rows_args *args)
{
    (void)b;
    const int64_t bytes = (int64_t)args->size * dtype_size(args->dtype);
    for (int64_t i = 0; i < args->num_indices && bytes > 0; i++) {
        const int64_t row = args->indices ? args->indices[i] : i;
        if (row < 0) continue;
        memcpy(cpu_element_out(args->out, args->dtype, i * args->out_stride),
               cpu_element(args->x, args->dtype, row * args->x_stride), (size_t)bytes);
    }
}

static void scale_piece(const struct cpu_state *s, const void *scale_args, int64_t piece, int thread)
{
    (void)s, (void)thread;
    const struct scale_logits_args *args = scale_args;
    const int64_t count = (int64_t)args->num_samples * args->vocab_size;
    const int64_t first = piece * LOGITS_PIECE, end = min_i64(first + LOGITS_PIECE, count);
    const float cap = args->soft_cap, factor = cap > 0 ? args->multiplier / cap : args->multiplier;
    for (int64_t i = first; i < end; i++) {
        const float x = args->logits[i] * factor;
        args->logits[i] = cap > 0 ? cap * tanhf(x) : x;
    }
}

void cpu_scale_logits(struct backend *b, const struct scale_logits_args *args)
{
    const int64_t count = (int64_t)args->num_samples * args->vocab_size;
    const int64_t work = args->soft_cap > 0 ? 16 * count : count; /* tanhf costs as much as 16 multiplications */
    cpu_for(cpu_state(b), work, divide_up(count, LOGITS_PIECE), scale_piece, args);
}

static void scatter_row(const struct cpu_state *s, const void *scatter_args, int64_t row, int thread)
{
    (void)s, (void)thread;
    const struct scatter_logits_args *args = scatter_args;
    const float *logits = args->logits + row * args->num_ids;
    float *out = args->out + row * args->vocab_size;
    for (int32_t i = 0; i < args->vocab_size; i++) out[i] = -INFINITY;
    for (int32_t i = 0; i < args->num_ids; i++) out[args->ids[i]] = logits[i];
}

void cpu_scatter_logits(struct backend *b, const struct scatter_logits_args *args)
{
    cpu_for(cpu_state(b), (int64_t)args->num_samples * args->vocab_size, args->num_samples, scatter_row, args);
}
