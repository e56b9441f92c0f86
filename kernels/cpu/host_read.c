#include "kernels/host_read.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "kernels/cpu/state.h"

/* What is read: zeros. */
struct reading {
    const float *data;
    int64_t count; /* of each thread */
    atomic_bool *damaged;
};

/* sum_squares loads with the widest registers of this processor, so that memory sets the speed. */
static void read_part(const struct cpu_state *s, const void *args, int64_t index, int thread)
{
    (void)thread;
    const struct reading *r = args;
    if (s->kernels->sum_squares(r->data + index * r->count, r->count) != 0) atomic_store(r->damaged, true);
}

enum status host_read_time(int threads, int64_t buffer_bytes, int64_t piece_bytes, double *seconds, int count,
                           struct error *err)
{
    struct backend *b;
    void *data;
    enum status status = backend_cpu_open(threads, &b, err);
    if (status != STATUS_OK) return status;
    status = b->memory_alloc(b, MEMORY_DEVICE, buffer_bytes, &data, err);
    if (status == STATUS_OK) {
        const struct cpu_state *s = cpu_state(b);
        atomic_bool damaged = false;
        b->fill(b, data, 0, buffer_bytes);
        for (int i = 0; i < count; i++) {
            const uint8_t *piece = (const uint8_t *)data + i * piece_bytes % buffer_bytes;
            const struct reading r = {(const float *)piece, piece_bytes / (int64_t)sizeof(float) / s->threads,
                                      &damaged};
            double start = clock_seconds();
            cpu_for(s, INT64_MAX, s->threads, read_part, &r);
            seconds[i] = clock_seconds() - start;
        }
        if (damaged) status = error_set(err, STATUS_INTERNAL, "memory does not hold what was written to it");
        b->memory_free(b, MEMORY_DEVICE, data, buffer_bytes);
    }
    b->destroy(b);
    return status;
}
