/* How fast the kernels are on this machine, compared with what its memory can do. Nothing is printed. */
#ifndef QUIRE_RUNTIME_BENCH_DEVICE_H
#define QUIRE_RUNTIME_BENCH_DEVICE_H

#include "runtime/bench/plan.h"

/* Read bandwidth of host memory: `threads` threads (0: all that are allowed) read a buffer much larger than the caches,
 * in pieces. */
struct bench_read {
    int64_t bytes;  /* of a piece */
    double seconds; /* the median over the pieces */
    double bytes_per_second;
};
enum status bench_host_read(int threads, struct bench_read *out, struct error *err);

struct bench_time {
    double seconds;          /* of a call: the median of several runs, each of milliseconds. 0: the backend has no such
                                operation, or does not take these sizes */
    double fastest, slowest; /* of those runs: seconds of a call */
    double bytes;            /* read and written, each operand once */
    double link_bytes;       /* passed between host and device, on a GPU */
    double operations; /* floating-point operations of matmuls and attention, 2 for each multiplication and addition */
};

/* A backend and the memory for cases of a model. Calls take turns on copies of their operands that fill more memory
 * than the caches hold. Where the backend has graphs, the calls of a run are captured and replayed, so that launches
 * are not timed. */
struct bench_device;

/* Allocates for the largest of cases [count], and sets the backend's workspace. `b` must outlive *out. */
enum status bench_device_open(struct backend *b, const struct bench_sizes *sizes, const struct bench_case *cases,
                              int count, struct bench_device **out, struct error *err);
/* The same for the ranks of a group: operations of ranks run on all of them, others on the first. */
enum status bench_device_open_ranks(struct backend *const *ranks, int32_t num_ranks, const struct bench_sizes *sizes,
                                    const struct bench_case *cases, int count, struct bench_device **out,
                                    struct error *err);
void bench_device_close(struct bench_device *d); /* unsets the workspace; NULL is allowed */
/* Times a case, which must not be larger than those given to open. */
enum status bench_device_run(struct bench_device *d, const struct bench_case *c, struct bench_time *out,
                             struct error *err);
/* Bytes a second by a large copy inside the device's memory, read and written bytes both counted. */
enum status bench_device_copy(struct bench_device *d, double *bytes_per_second, struct error *err);
/* Bytes a second by large copies between pinned host memory and the device, in the faster direction; 0 if no case swaps
 * blocks. */
enum status bench_device_link(struct bench_device *d, double *bytes_per_second, struct error *err);

#endif
