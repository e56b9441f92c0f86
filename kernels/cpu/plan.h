/* The planner: which kernels compute a matmul. This is the only place of the CPU backend where that is decided. It is a
 * pure function of the instruction set, the weight, the type of x and the number of tokens: no processor is asked. */
#ifndef QUIRE_KERNELS_CPU_PLAN_H
#define QUIRE_KERNELS_CPU_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/kernels.h"

/* What an instruction set has. */
struct cpu_tables {
    const struct cpu_kernels *kernels;
    const struct cpu_quantized_kernels *quantized;         /* NULL: quantized weights become floats */
    const struct cpu_tiles *tiles[CPU_TILE_KINDS];         /* NULL: there are none */
    int few_floats, few_fp8, few_int8, few_int4, few_bf16; /* for more tokens other ways are faster; int4: MXFP4 too */
};

/* Never NULL; kernels is NULL in a build without this instruction set. */
const struct cpu_tables *cpu_tables_of(enum cpu_isa isa);

/* Matmuls of few tokens, in which each weight is read once. */
enum cpu_few_kernel {
    CPU_FEW_FLOATS,      /* linear.c */
    CPU_FEW_DEQUANTIZED, /* linear.c: quantized weights become floats, a panel at a time */
    CPU_FEW_QUANTIZED,   /* linear_quantized.c: quantized weights are decoded in registers */
};

struct cpu_matmul_plan {
    bool is_few;                   /* num_tokens are few: tiles are not faster */
    const struct cpu_tiles *tiles; /* NULL: num_tokens are few, or there are no tiles */
    enum cpu_few_kernel few;       /* computes the matmul without tiles, or if the workspace has no room for them */
};

struct cpu_matmul_plan cpu_matmul_plan(const struct cpu_tables *t, const struct weight *w, enum dtype x,
                                       int64_t num_tokens);

/* The most tokens for which no tiles of this kind are planned, whatever the weight. */
int cpu_most_few_tokens(const struct cpu_tables *t, enum cpu_tile_kind kind);

/* How many groups of a quantized weight share a vector of CPU_FEW_QUANTIZED. 0: it does not take groups of this size.
 */
int64_t cpu_groups_of_vector(const struct cpu_tables *t, const struct weight *w);

#endif
