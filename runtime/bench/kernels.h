/* quire bench kernels: each kernel alone at the shapes of a model, beside what the device can do at most. No engine. */
#ifndef QUIRE_RUNTIME_BENCH_KERNELS_H
#define QUIRE_RUNTIME_BENCH_KERNELS_H

#include "kernels/bench.h"
#include "model/config.h"

/* argv[0] is "kernels". Returns the exit status. */
int bench_kernels_command(int argc, char **argv);
extern const char bench_kernels_summary[];

/* The shapes of a model's kernels; the types and block_size are left 0. */
struct bench_sizes bench_sizes_of(const struct model_config *c);

/* The matmuls of a model: those of a layer, and the output's. */
enum bench_product { PRODUCT_QKV, PRODUCT_O, PRODUCT_GATE_UP, PRODUCT_DOWN, PRODUCT_HEAD, NUM_PRODUCTS };
struct bench_case bench_product_case(const struct bench_sizes *s, enum bench_product product, int32_t num_tokens);

/* Floating-point operations a second of the fastest of a layer's matmuls with so many tokens. */
enum status bench_product_speed(struct backend *b, const struct bench_sizes *s, int32_t num_tokens, double *flops,
                                struct error *err);

#endif
