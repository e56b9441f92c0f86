/* How fast the kernels are on the machine at hand, beside what its memory can do. Nothing is printed. */
#ifndef QUIRE_KERNELS_BENCH_H
#define QUIRE_KERNELS_BENCH_H

#include "kernels/backend.h"

/* Read bandwidth: a buffer much larger than the caches, read from end to end in pieces by `threads` threads (0: all
 * that are allowed). Host memory only. */
struct bench_read {
    int64_t bytes;  /* of a piece */
    double seconds; /* the median of the pieces, as kernels are timed */
    double bytes_per_second;
};
enum status bench_host_read(int threads, struct bench_read *out, struct error *err);

/* What the shapes of a model's kernels follow from. */
struct bench_sizes {
    int32_t hidden_size, intermediate_size, num_layers, num_heads, num_kv_heads, head_size, vocab_size, block_size;
    enum dtype weights, activations; /* the cache has the type of the activations */
};

enum bench_operation {
    BENCH_LINEAR,
    BENCH_RMS_NORM,
    BENCH_FUSED_ADD_RMS_NORM,
    BENCH_ROTARY_EMBEDDING,
    BENCH_RESHAPE_AND_CACHE,
    BENCH_ACT_AND_MUL,
    BENCH_PAGED_ATTENTION,         /* decode: one query token a sequence, through v1 or v2 as the model does */
    BENCH_PAGED_ATTENTION_PREFILL, /* one sequence, all of its tokens are queries */
    BENCH_COPY_BLOCKS,             /* in every layer's K and V */
    BENCH_SWAP_BLOCKS,             /* of every layer's K and V */
    BENCH_SAMPLE,
    BENCH_NORM_LINEAR, /* from here on what a backend may lack, or not take */
    BENCH_LINEAR_RESIDUAL,
    BENCH_GATE_UP,
    BENCH_DECODE_ATTENTION,
    BENCH_NUM_OPERATIONS
};
const char *bench_operation_name(enum bench_operation operation); /* its name in backend.h */

/* One call of one operation. */
struct bench_case {
    enum bench_operation operation;
    int32_t rows;             /* tokens; of decode and sample: sequences; of copy_blocks, swap_blocks: blocks */
    int32_t context;          /* decode: tokens of each sequence */
    int64_t outputs, columns; /* linear, and what it is fused with: weights [outputs, columns]; the output is float32 if
                                 outputs is vocab_size */
    bool top_p;               /* sample: at temperature, top_p 0.9; else greedy */
    bool swap_in;             /* swap_blocks: from the host to the device; else out */
};
struct bench_time {
    double seconds;    /* the median of several runs of as many calls as fill milliseconds; 0: the backend has no such
                          operation, or not for these sizes */
    double bytes;      /* read and written, each operand once */
    double link_bytes; /* that pass between host and device, on a GPU */
    double operations; /* floating-point operations of matrix products: 2 for each multiplication; 0: there is none */
};

/* A backend with memory for cases of a model. Calls go through copies of their operands in turn, as far apart as there
 * is room: more than caches hold. On a GPU the calls of a run are captured and replayed, where the backend has graphs,
 * so that it is the kernels that are timed. */
struct bench_device;

/* Allocates for the largest of cases [count], and sets the backend's workspace. `b` must outlive *out. */
enum status bench_device_open(struct backend *b, const struct bench_sizes *sizes, const struct bench_case *cases,
                              int count, struct bench_device **out, struct error *err);
void bench_device_close(struct bench_device *d); /* unsets the workspace; NULL is allowed */
/* Times a case no larger than those given to open. */
enum status bench_device_run(struct bench_device *d, const struct bench_case *c, struct bench_time *out,
                             struct error *err);
/* Bytes a second by a large copy inside the device's memory, read and written bytes both counted. */
enum status bench_device_copy(struct bench_device *d, double *bytes_per_second, struct error *err);
/* Bytes a second by large copies between pinned host memory and the device, in the faster direction; 0 if no case swaps
 * blocks. */
enum status bench_device_link(struct bench_device *d, double *bytes_per_second, struct error *err);

#endif
