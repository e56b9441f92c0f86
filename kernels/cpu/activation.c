/* SwiGLU's gate (Shazeer, "GLU variants improve transformer", 2020). */
#include "kernels/cpu/state.h"

static void silu_row(const struct cpu_kernels *kernels, void *out, const void *x, int64_t size, enum dtype dtype)
{
    if (dtype == DTYPE_FLOAT32) {
        kernels->silu_and_mul(out, x, (const float *)x + size, size);
        return;
    }
    float gate[CPU_PIECE], up[CPU_PIECE];
    for (int64_t i = 0; i < size; i += CPU_PIECE) {
        int64_t n = min_i64(CPU_PIECE, size - i);
        kernels->to_float(gate, cpu_element(x, dtype, i), dtype, n);
        kernels->to_float(up, cpu_element(x, dtype, size + i), dtype, n);
        kernels->silu_and_mul(gate, gate, up, n);
        kernels->from_float(cpu_element_out(out, dtype, i), gate, dtype, n);
    }
}

void cpu_silu_and_mul(struct backend *b, void *out, const void *x, int32_t num_tokens, int32_t size, enum dtype dtype,
                      backend_stream stream)
{
    (void)stream;
    const struct cpu_state *s = cpu_state(b);
#pragma omp parallel for num_threads(cpu_threads_for(s, 3 * (int64_t)num_tokens * size))
    for (int32_t t = 0; t < num_tokens; t++)
        silu_row(s->kernels, cpu_element_out(out, dtype, (int64_t)t * size),
                 cpu_element(x, dtype, 2 * (int64_t)t * size), size, dtype);
}
