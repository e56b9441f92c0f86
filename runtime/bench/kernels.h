/* quire bench kernels: each kernel alone at the shapes of a model, compared with the limits of the device.
 * It runs no engine. */
#ifndef QUIRE_RUNTIME_BENCH_KERNELS_H
#define QUIRE_RUNTIME_BENCH_KERNELS_H

#include "model/config.h"
#include "runtime/bench/device.h"
#include "runtime/options/command.h"

extern const struct command bench_kernels;

/* The shapes of a model's kernels, and how the first of its matrices is quantized; the types and block_size are left 0.
 */
struct bench_sizes bench_sizes_of(const struct model_spec *c);

/* The matmuls of a model as a device with merged projections computes them: the largest of its layers, and lm_head. */
enum bench_matmul { MATMUL_QKV, MATMUL_O, MATMUL_GATE_UP, MATMUL_DOWN, MATMUL_LM_HEAD, NUM_MATMULS };
struct bench_matmuls {
    int64_t out_features[NUM_MATMULS], in_features[NUM_MATMULS];
};
enum status bench_matmuls_of(const struct model_spec *spec, struct bench_matmuls *out, struct error *err);

/* Floating-point operations a second of the fastest of a layer's matmuls with so many tokens. */
enum status bench_matmul_speed(struct backend *b, const struct bench_sizes *s, const struct bench_matmuls *matmuls,
                               int32_t num_tokens, double *flops, struct error *err);

#endif
