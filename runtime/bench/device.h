/* How fast the kernels are on this machine, compared with what its memory can do. Nothing is printed. */
#ifndef QUIRE_RUNTIME_BENCH_DEVICE_H
#define QUIRE_RUNTIME_BENCH_DEVICE_H

#include "kernels/backend.h"

/* Read bandwidth of host memory: `threads` threads (0: all that are allowed) read a buffer much larger than the caches,
 * in pieces. */
struct bench_read {
    int64_t bytes;  /* of a piece */
    double seconds; /* the median over the pieces */
    double bytes_per_second;
};
enum status bench_host_read(int threads, struct bench_read *out, struct error *err);

/* How the matrices of layers are quantized; others are floats, and so are those that groups do not divide. */
struct bench_quantization {
    enum weight_format format; /* not FP8, INT8 or INT4: they are floats, too */
    enum dtype scale_dtype;
    int32_t scale_rows, group_size; /* as in struct weight; group_size 0: all input features */
    bool has_zeros, quantize_x;
};

/* The sizes of a model that the shapes of its kernels follow from. */
struct bench_sizes {
    int32_t hidden_size, intermediate_size, num_layers, num_heads, num_kv_heads, head_size, vocab_size, block_size;
    enum dtype weights, activations, cache;
    struct bench_quantization quantization;
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
    BENCH_NORM_LINEAR, /* from here on: optional operations */
    BENCH_LINEAR_RESIDUAL,
    BENCH_GATE_UP,
    BENCH_DECODE_ATTENTION,
    BENCH_NUM_OPERATIONS
};
const char *bench_operation_name(enum bench_operation operation); /* its name in backend.h */

/* One call of one operation. */
struct bench_case {
    enum bench_operation operation;
    int32_t count;   /* tokens; of decode and sample: sequences; of copy_blocks and swap_blocks: blocks */
    int32_t context; /* decode: tokens of each sequence */
    int64_t out_features, in_features; /* matmuls: the weight's. The output is float32 if out_features is vocab_size */
    bool top_p;                        /* sample: with a temperature and top_p 0.9; else greedy */
    bool swap_in;                      /* swap_blocks: from the host to the device; else out */
};
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
