#include "kernels/bench.h"

#include "base/clock.h"
#include "kernels/cpu/state.h"

enum { PASSES = 8, MIN_COPIES = 2, MAX_COPIES = 64 };
static const int64_t BEYOND_CACHES = (int64_t)512 << 20, READ_BYTES = 32 << 20;

/* A sum over every element, with the widest loads there are: memory is what is measured. */
static float read_all(const struct cpu_state *s, const float *data, int64_t count)
{
    int64_t each = count / s->threads;
    float sum = 0;
#pragma omp parallel for num_threads(s->threads) schedule(static, 1) reduction(+ : sum)
    for (int i = 0; i < s->threads; i++) sum += s->kernels->sum_squares(data + i * each, each);
    return sum;
}

enum status bench_host_read(int threads, struct bench_read *out, struct error *err)
{
    struct backend *b;
    void *data;
    enum status status = backend_cpu_open(threads, &b, err);
    if (status != STATUS_OK) return status;
    status = b->memory_alloc(b, MEMORY_DEVICE, BEYOND_CACHES, &data, err);
    if (status == STATUS_OK) {
        float sum = 0; /* used, so that reading cannot be left out */
        *out = (struct bench_read){.bytes = READ_BYTES, .seconds = 1e9};
        b->fill(b, data, 0, BEYOND_CACHES, NULL);
        for (int64_t at = 0; at < 2 * BEYOND_CACHES; at += READ_BYTES) {
            const uint8_t *piece = (const uint8_t *)data + at % BEYOND_CACHES;
            double start = clock_seconds();
            sum += read_all(cpu_state(b), (const float *)piece, READ_BYTES / (int64_t)sizeof(float));
            double seconds = clock_seconds() - start;
            if (seconds < out->seconds) out->seconds = seconds;
        }
        out->bytes_per_second = (double)out->bytes / out->seconds;
        if (sum != 0) status = error_set(err, STATUS_INTERNAL, "memory does not hold what was written to it");
        b->memory_free(b, MEMORY_DEVICE, data, BEYOND_CACHES);
    }
    b->destroy(b);
    return status;
}

/* What a linear layer works on. `copies` of the weights lie one after the other, and calls go through them in turn. */
struct operands {
    void *x, *out, *weights, *workspace;
    int64_t x_bytes, out_bytes, weight_bytes, workspace_bytes, copies;
};

static enum status operands_alloc(struct backend *b, const struct bench_linear_shape *shape, struct operands *o,
                                  struct error *err)
{
    const struct workspace_query query = {.max_num_tokens = shape->num_tokens,
                                          .max_num_seqs = 1,
                                          .max_model_len = 16,
                                          .num_heads = 1,
                                          .num_kv_heads = 1,
                                          .head_size = 64,
                                          .block_size = 16,
                                          .max_columns = shape->columns,
                                          .max_rows = shape->rows,
                                          .vocab_size = 16};
    *o = (struct operands){.x_bytes = shape->num_tokens * shape->columns * 4,
                           .out_bytes = shape->num_tokens * shape->rows * 4,
                           .weight_bytes = shape->rows * shape->columns * dtype_size(shape->dtype),
                           .workspace_bytes = b->workspace_bytes(b, &query)};
    o->copies = BEYOND_CACHES / o->weight_bytes;
    if (o->copies < MIN_COPIES) o->copies = MIN_COPIES;
    if (o->copies > MAX_COPIES) o->copies = MAX_COPIES;
    enum status status = b->memory_alloc(b, MEMORY_DEVICE, o->x_bytes, &o->x, err);
    if (status == STATUS_OK) status = b->memory_alloc(b, MEMORY_DEVICE, o->out_bytes, &o->out, err);
    if (status == STATUS_OK) status = b->memory_alloc(b, MEMORY_DEVICE, o->weight_bytes * o->copies, &o->weights, err);
    if (status == STATUS_OK) status = b->memory_alloc(b, MEMORY_DEVICE, o->workspace_bytes, &o->workspace, err);
    if (status != STATUS_OK) return status;
    b->fill(b, o->x, 0x3c, o->x_bytes, NULL); /* small ordinary numbers in every type */
    b->fill(b, o->weights, 0x3c, o->weight_bytes * o->copies, NULL);
    b->workspace_set(b, o->workspace, o->workspace_bytes);
    return STATUS_OK;
}

static void operands_free(struct backend *b, struct operands *o)
{
    b->workspace_set(b, NULL, 0);
    if (o->x) b->memory_free(b, MEMORY_DEVICE, o->x, o->x_bytes);
    if (o->out) b->memory_free(b, MEMORY_DEVICE, o->out, o->out_bytes);
    if (o->weights) b->memory_free(b, MEMORY_DEVICE, o->weights, o->weight_bytes * o->copies);
    if (o->workspace) b->memory_free(b, MEMORY_DEVICE, o->workspace, o->workspace_bytes);
}

static enum status time_linear(struct backend *b, const struct bench_linear_shape *shape, const struct operands *o,
                               double *seconds, struct error *err)
{
    enum status status = STATUS_OK;
    *seconds = 1e9;
    for (int64_t pass = 0; pass < MAX_COPIES && status == STATUS_OK; pass++) {
        const struct weight w = {.data = (const uint8_t *)o->weights + pass % o->copies * o->weight_bytes,
                                 .dtype = shape->dtype,
                                 .rows = shape->rows,
                                 .columns = shape->columns};
        double start = clock_seconds();
        b->linear(b, o->out, shape->rows, DTYPE_FLOAT32, o->x, shape->columns, DTYPE_FLOAT32, shape->num_tokens, &w,
                  NULL);
        status = b->stream_synchronize(b, NULL, err);
        double taken = clock_seconds() - start;
        if (taken < *seconds) *seconds = taken;
        if (taken > 0.25 && pass + 1 >= PASSES) break; /* slow enough to be sure */
    }
    return status;
}

enum status bench_linear(struct backend *b, const struct bench_linear_shape *shape, struct bench_linear *out,
                         struct error *err)
{
    struct operands o;
    double products = (double)shape->num_tokens * (double)shape->rows * (double)shape->columns;
    enum status status = operands_alloc(b, shape, &o, err);
    if (status == STATUS_OK) status = time_linear(b, shape, &o, &out->seconds, err);
    if (status == STATUS_OK) {
        out->bytes_per_second = (double)o.weight_bytes / out->seconds;
        out->flops = 2 * products / out->seconds;
    }
    operands_free(b, &o);
    return status;
}
