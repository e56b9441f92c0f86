/* How fast the kernels are on the machine at hand, beside what its memory can do. Nothing is printed. */
#ifndef QUIRE_KERNELS_BENCH_H
#define QUIRE_KERNELS_BENCH_H

#include "kernels/backend.h"

/* Read bandwidth: a buffer much larger than the caches, read from end to end in pieces by `threads` threads (0: all
 * that are allowed). Host memory only. */
struct bench_read {
    int64_t bytes;  /* of a piece */
    double seconds; /* the best of the pieces */
    double bytes_per_second;
};
enum status bench_host_read(int threads, struct bench_read *out, struct error *err);

/* One linear layer: x [num_tokens, columns] float32 by weights [rows, columns]. */
struct bench_linear_shape {
    int32_t num_tokens;
    int64_t rows, columns;
    enum dtype dtype; /* of the weights */
};
struct bench_linear {
    double seconds;          /* the best of several calls, each on weights that no cache holds any more */
    double bytes_per_second; /* weights read */
    double flops;            /* floating-point operations a second: 2 for each weight and token */
};
/* Allocates on the backend what it needs, sets the backend's workspace for the time of the call and leaves it unset. */
enum status bench_linear(struct backend *b, const struct bench_linear_shape *shape, struct bench_linear *out,
                         struct error *err);

#endif
