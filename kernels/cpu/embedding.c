#include <string.h>

#include "kernels/cpu/state.h"

/* Copies a row, converting where the types differ. */
static void copy_row(const struct cpu_kernels *kernels, void *out, enum dtype out_dtype, const void *in,
                     enum dtype in_dtype, int64_t count)
{
    if (count <= 0) return;
    if (in_dtype == out_dtype) {
        memcpy(out, in, (size_t)(count * dtype_size(in_dtype)));
        return;
    }
    float piece[CPU_PIECE];
    for (int64_t i = 0; i < count; i += CPU_PIECE) {
        int64_t n = min_i64(CPU_PIECE, count - i);
        kernels->to_float(piece, cpu_element(in, in_dtype, i), in_dtype, n);
        kernels->from_float(cpu_element_out(out, out_dtype, i), piece, out_dtype, n);
    }
}

void cpu_embedding(struct backend *b, void *out, const int32_t *ids, const int32_t *last_sampled, int32_t num_tokens,
                   const struct weight *table, enum dtype dtype, backend_stream stream)
{
    (void)stream;
    const struct cpu_state *s = cpu_state(b);
    int64_t columns = table->in_features;
#pragma omp parallel for num_threads(cpu_threads_for(s, num_tokens *columns))
    for (int32_t t = 0; t < num_tokens; t++) {
        int64_t id = ids[t] >= 0 ? ids[t] : last_sampled[-(int64_t)ids[t] - 1];
        copy_row(s->kernels, cpu_element_out(out, dtype, t * columns), dtype,
                 cpu_element(table->data, table->dtype, id * columns), table->dtype, columns);
    }
}

void cpu_gather_rows(struct backend *b, void *out, const void *x, const int32_t *rows, int32_t num_rows, int32_t size,
                     enum dtype dtype, backend_stream stream)
{
    (void)stream;
    const struct cpu_state *s = cpu_state(b);
    for (int64_t i = 0; i < num_rows; i++)
        copy_row(s->kernels, cpu_element_out(out, dtype, i * size), dtype,
                 cpu_element(x, dtype, (int64_t)rows[i] * size), dtype, size);
}
