/* RMSNorm (Zhang and Sennrich, 2019). float32 rows are worked on where they lie; others in pieces on the stack, twice:
 * once for the sum of squares, once for the result. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/state.h"

struct norm {
    void *out, *residual; /* residual: NULL for a plain norm */
    const void *x, *gain;
    enum dtype dtype, gain_dtype;
    float eps;
    int32_t num_tokens, size;
};

/* `count` elements as floats: in place when they are floats, else converted into `piece`. */
static const float *as_floats(const struct cpu_kernels *kernels, float *piece, const void *data, enum dtype dtype,
                              int64_t start, int64_t count)
{
    const void *first = cpu_element(data, dtype, start);
    if (dtype == DTYPE_FLOAT32) return first;
    kernels->to_float(piece, first, dtype, count);
    return piece;
}

/* residual += x, in the type of both. */
static void add_row(const struct cpu_kernels *kernels, void *residual, const void *x, enum dtype dtype, int64_t size)
{
    float left[CPU_PIECE], right[CPU_PIECE];
    for (int64_t i = 0; i < size; i += CPU_PIECE) {
        int64_t n = min_i64(CPU_PIECE, size - i);
        const float *a = as_floats(kernels, left, residual, dtype, i, n),
                    *c = as_floats(kernels, right, x, dtype, i, n);
        for (int64_t j = 0; j < n; j++) left[j] = a[j] + c[j];
        kernels->from_float(cpu_element_out(residual, dtype, i), left, dtype, n);
    }
}

static void norm_row(const struct cpu_kernels *kernels, const struct norm *norm, void *out, const void *x)
{
    float piece[CPU_PIECE], gain_piece[CPU_PIECE], sum = 0;
    int64_t size = norm->size;
    for (int64_t i = 0; i < size; i += CPU_PIECE) {
        int64_t n = min_i64(CPU_PIECE, size - i);
        sum += kernels->sum_squares(as_floats(kernels, piece, x, norm->dtype, i, n), n);
    }
    float factor = 1.0f / sqrtf(sum / (float)size + norm->eps);
    for (int64_t i = 0; i < size; i += CPU_PIECE) {
        int64_t n = min_i64(CPU_PIECE, size - i);
        const float *values = as_floats(kernels, piece, x, norm->dtype, i, n);
        const float *gain = as_floats(kernels, gain_piece, norm->gain, norm->gain_dtype, i, n);
        bool direct = norm->dtype == DTYPE_FLOAT32;
        float *result = direct ? (float *)out + i : piece;
        kernels->scale(result, values, gain, factor, n);
        if (!direct) kernels->from_float(cpu_element_out(out, norm->dtype, i), piece, norm->dtype, n);
    }
}

static void norm_rows(const struct cpu_state *s, const struct norm *norm)
{
    int64_t size = norm->size;
#pragma omp parallel for num_threads(cpu_threads_for(s, norm->num_tokens *size))
    for (int32_t t = 0; t < norm->num_tokens; t++) {
        const void *x = cpu_element(norm->x, norm->dtype, t * size);
        if (norm->residual) {
            void *residual = cpu_element_out(norm->residual, norm->dtype, t * size);
            add_row(s->kernels, residual, x, norm->dtype, size);
            x = residual;
        }
        norm_row(s->kernels, norm, cpu_element_out(norm->out, norm->dtype, t * size), x);
    }
}

void cpu_rms_norm(struct backend *b, void *out, const void *x, const void *gain, enum dtype gain_dtype, float eps,
                  int32_t num_tokens, int32_t size, enum dtype dtype, backend_stream stream)
{
    (void)stream;
    struct norm norm = {out, NULL, x, gain, dtype, gain_dtype, eps, num_tokens, size};
    norm_rows(cpu_state(b), &norm);
}

void cpu_fused_add_rms_norm(struct backend *b, void *out, const void *x, void *residual, const void *gain,
                            enum dtype gain_dtype, float eps, int32_t num_tokens, int32_t size, enum dtype dtype,
                            backend_stream stream)
{
    (void)stream;
    struct norm norm = {out, residual, x, gain, dtype, gain_dtype, eps, num_tokens, size};
    norm_rows(cpu_state(b), &norm);
}
